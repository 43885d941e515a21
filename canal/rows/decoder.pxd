cimport cython
from canal.binlog cimport type_codes as codes
from canal.rows cimport native, wire

cdef long long _EPOCH
cdef unsigned long long _DATETIME_ZERO
cdef double _ROUND
cdef bytes _MONTH_DAYS
cdef int _VARIABLE, _SKIP

@cython.final
cdef class Image:
    cdef readonly Py_ssize_t count, null_bytes, step_count, width, tail
    cdef readonly int last_mask
    cdef readonly bytes kinds, widths, slots, params, steps, present
    cdef readonly tuple extras, names, absent, partial
    cdef readonly bint plain, leaf

@cython.final
cdef class Cursor:
    cdef Py_ssize_t pos, end
    cdef Image before, after

@cython.final
cdef class RowDecoder:
    cdef tuple _arguments
    cdef readonly Py_ssize_t count, width, bitmap_bytes
    cdef readonly object timezone
    cdef readonly bint json_text, old_temporals
    cdef readonly tuple plan, json_columns, unlogged, hidden, masks
    cdef RowDecoder _text_form
    cdef readonly Image full
    cdef bint _fixed_zone
    cdef long long _offset
    cdef int last_mask
    cdef dict _images

    cpdef bint decodes_as(self, RowDecoder other) except -1
    @cython.locals(at=Cursor, rows=Py_ssize_t)
    cpdef Py_ssize_t walk(self, bytes data, Py_ssize_t pos, Py_ssize_t end, int kind) except -1
    cdef Py_ssize_t count_rows(self, const unsigned char* p, Py_ssize_t pos, Py_ssize_t end, int kind) except -1
    @cython.locals(before=Image, after=Image, end=Py_ssize_t, rows=Py_ssize_t)
    cdef Py_ssize_t _count(self, const unsigned char* p, Cursor at) except -1
    @cython.locals(before=list, after=list)
    cpdef list decode(self, bytes data, Py_ssize_t pos, Py_ssize_t end, int kind)
    @cython.locals(at=Cursor, before=Image, after=Image, image=Image, olds=list, news=list, old=tuple, is_partial=bint, is_empty=bint)
    cpdef tuple images(self, bytes data, Py_ssize_t pos, Py_ssize_t end, int kind)
    @cython.locals(at=Cursor, image=Image, values=tuple, rows=list)
    cpdef list diffs(self, bytes data, Py_ssize_t pos, Py_ssize_t end)
    @cython.locals(at=Cursor, before=Image, after=Image, start=Py_ssize_t, out=bytearray, size=Py_ssize_t)
    cpdef object canonical(self, bytes data, Py_ssize_t pos, Py_ssize_t end, int kind)
    @cython.locals(p="const unsigned char*", bits=Py_ssize_t)
    cdef bint _has_stray_bits(self, Image first, Image after, bytes data, Cursor at)
    @cython.locals(p="const unsigned char*", to="unsigned char*", kinds="const unsigned char*", widths="const unsigned char*",
                   nulls=Py_ssize_t, pos=Py_ssize_t, i=Py_ssize_t, width=Py_ssize_t, start=Py_ssize_t, kind=int,
                   number="unsigned long long")
    cdef Py_ssize_t _put_row(self, Image image, bytes data, Cursor at, bytearray out, Py_ssize_t size) except -1
    @cython.locals(pos=Py_ssize_t, size=Py_ssize_t, columns=tuple, found=Image)
    cdef Image _partial_image(self, Image image, bytes data, Cursor at)
    cdef tuple _apply(self, Image image, tuple old, tuple new)
    cdef Cursor _begin(self, bytes data, Py_ssize_t pos, Py_ssize_t end, int kind)
    @cython.locals(count=Py_ssize_t, size=Py_ssize_t, at=Cursor, image=Image, is_update=bint)
    cdef Cursor _open(self, const unsigned char* p, Py_ssize_t pos, Py_ssize_t end, int kind)
    @cython.locals(last=Py_ssize_t, i=Py_ssize_t, present=bytes)
    cdef Image _image(self, const unsigned char* p, Py_ssize_t pos)
    cdef object _unhidden(self, Py_ssize_t i)
    cdef object _truncated(self, Image image, Py_ssize_t column, Cursor at)
    @cython.locals(steps="const unsigned char*", nulls=Py_ssize_t, end=Py_ssize_t, pos=Py_ssize_t, i=Py_ssize_t,
                   stop=Py_ssize_t, size=Py_ssize_t, found=int)
    cdef int _skip_row(self, Image image, const unsigned char* p, Cursor at) except -1
    @cython.locals(widths="const unsigned char*", nulls=Py_ssize_t, end=Py_ssize_t, pos=Py_ssize_t, i=Py_ssize_t, size=Py_ssize_t)
    cdef int _skip_nulls(self, Image image, const unsigned char* p, Cursor at) except -1
    @cython.locals(p="const unsigned char*", kinds="const unsigned char*", widths="const unsigned char*",
                   slots="const unsigned char*", plain=bint, nulls=Py_ssize_t, end=Py_ssize_t, pos=Py_ssize_t,
                   i=Py_ssize_t, size=Py_ssize_t, start=Py_ssize_t, slot=Py_ssize_t, kind=int, some=int, values=tuple)
    cdef tuple _row(self, Image image, bytes data, Cursor at)
    @cython.locals(kinds="const unsigned char*", kind=int)
    cdef object cell(self, Image image, Py_ssize_t i, bytes data, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(p="const unsigned char*", raw=bytes, text=str)
    cdef object _text(self, Image image, Py_ssize_t i, int kind, bytes data, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(p="const unsigned char*", params="const unsigned char*", days="long long", seconds="long long",
                   micros=int, year=int)
    cdef object _value(self, Image image, Py_ssize_t i, int kind, bytes data, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(p="const unsigned char*", digits=int, number="unsigned long long", year="unsigned long long",
                   day="unsigned long long", negative=bint, raw=bytes, plain=RowDecoder, column=Py_ssize_t)
    cdef object _rare_value(self, Image image, Py_ssize_t i, int kind, bytes data, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(moment="long long", second=int, days="long long", era=int, of_era=int, year=int, of_year=int, month=int, day=int)
    cdef object _timestamp(self, long long seconds, int micros, int digits)

@cython.locals(p="const unsigned char*", number="unsigned long long", day="unsigned long long")
cdef unsigned long long _new_temporal(int kind, bytes data, Py_ssize_t start) noexcept
cdef unsigned long long _packed_time(unsigned long long number) noexcept
@cython.locals(p="const unsigned char*", value="long long")
cdef object _integer(bytes data, Py_ssize_t start, int kind)
@cython.locals(head=int, width=int, size="unsigned long long", plain=bytes)
cdef bytes _inflate(Image image, Py_ssize_t i, bytes data, Py_ssize_t start, Py_ssize_t end)
@cython.locals(p="const unsigned char*", groups="const unsigned char*", extra=bytes, text=str)
cdef object _decimal(Image image, Py_ssize_t i, bytes data, Py_ssize_t start)
@cython.locals(size=double, whole=double, near=double, power=double)
cdef object _shortest(double value)
@cython.locals(near=double)
cdef object _shortest_text(double value)
cdef int _days_in(int year, int month) except -1
cdef object _date(int year, int month, int day)
cdef object _moment(int year, int month, int day, int hour, int minute, int second, int micros, int digits)
@cython.locals(total=int)
cdef object _delta(bint negative, int hours, int minutes, int seconds, int micros)
@cython.locals(value="unsigned long long")
cdef unsigned long long _power(int exponent) noexcept
@cython.locals(micros="unsigned long long")
cdef int _micros(Image image, Py_ssize_t i, unsigned long long fraction, Py_ssize_t size) except -1
@cython.locals(p="const unsigned char*")
cdef int _fraction(Image image, Py_ssize_t i, bytes data, Py_ssize_t start, Py_ssize_t size) except -1
@cython.locals(p="const unsigned char*", micros=int, packed="unsigned long long", days="unsigned long long", months=int)
cdef object _datetime(Image image, Py_ssize_t i, bytes data, Py_ssize_t start, Py_ssize_t size, int digits)
@cython.locals(p="const unsigned char*", bits=int, packed="unsigned long long", half="unsigned long long", negative=bint,
               whole="unsigned long long", micros=int)
cdef object _time(Image image, Py_ssize_t i, bytes data, Py_ssize_t start, Py_ssize_t size)
@cython.locals(unit="unsigned long long", fraction="unsigned long long", months="unsigned long long",
               zero="unsigned long long", negative=bint)
cdef object _hires(Image image, Py_ssize_t i, int kind, unsigned long long packed, int digits)
@cython.locals(labels=tuple)
cdef object _label(Image image, Py_ssize_t i, Py_ssize_t number)
