cimport cython
from canal.rows cimport native, wire

cdef int _LARGE, _NULL, _END, _ERROR, _END_SIZE, _FIXED
cdef long long _MOST, _EPOCH
cdef unsigned long long _DATETIME_ZERO, _TEN_19, _LARGEST
cdef object _SINGLE, _DOUBLE

@cython.final
cdef class RowImages:
    cdef bytes _kinds, _params, _rest
    cdef tuple _groups
    cdef Py_ssize_t _count, _null_bytes
    cdef bytearray _images
    cdef int _number
    cdef list _parts
    cdef readonly Py_ssize_t size, rows
    cdef readonly bytes last

    cpdef bytes take(self)
    @cython.locals(data=bytes, p="const unsigned char*", end=Py_ssize_t, at=Py_ssize_t, need=Py_ssize_t, size=Py_ssize_t,
                   start=Py_ssize_t)
    cpdef Py_ssize_t feed(self, bytes received) except -1
    cdef object _join(self, bytes part)
    @cython.locals(p="const unsigned char*", kinds="const unsigned char*", to="unsigned char*", nulls=Py_ssize_t, out=Py_ssize_t,
                   i=Py_ssize_t, size=Py_ssize_t, width=Py_ssize_t)
    cdef int _row(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -1
    cdef object _truncated(self)
    @cython.locals(p="const unsigned char*", kinds="const unsigned char*", params="const unsigned char*", to="unsigned char*",
                   kind=int, param=int, number="unsigned long long", second="unsigned long long", months="unsigned long long")
    cdef Py_ssize_t _put(self, Py_ssize_t i, bytes data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t out) except -1
    @cython.locals(to="unsigned char*")
    cdef Py_ssize_t _big(self, Py_ssize_t out, unsigned long long value, int width) except -1
    cdef Py_ssize_t _fraction(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, Py_ssize_t out, int digits) except -1
    @cython.locals(negative=bint, hours=Py_ssize_t, number="unsigned long long", zero="unsigned long long", width=int)
    cdef Py_ssize_t _time(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, Py_ssize_t out, int digits) except -1
    @cython.locals(p="const unsigned char*", to="unsigned char*", groups=bytes, g="const unsigned char*", count=Py_ssize_t,
                   k=int, scale=int, negative=bint, point=Py_ssize_t, lacking=Py_ssize_t, n=Py_ssize_t, start=Py_ssize_t,
                   value="unsigned long long", digit=int)
    cdef Py_ssize_t _decimal(self, Py_ssize_t i, bytes data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t out) except -1

cdef object _unknown()
cdef double _real(bytes text) except? -1
@cython.locals(value="unsigned long long", digit=int, digits=Py_ssize_t)
cdef unsigned long long _number(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) except? 1
@cython.locals(negative=bint, value="unsigned long long", bits=int)
cdef unsigned long long _integer(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, int width, bint is_signed) except? 1
@cython.locals(found="unsigned long long")
cdef unsigned long long _sixty(const unsigned char* p, Py_ssize_t at) except? 1
@cython.locals(month="unsigned long long", day="unsigned long long")
cdef unsigned long long _date(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) except? 1
cdef unsigned long long _clock(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, int digits) except? 1
@cython.locals(year="long long", month="long long", day="long long", days="long long", found="long long")
cdef unsigned long long _seconds(unsigned long long date, unsigned long long clock) except? 1
