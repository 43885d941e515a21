cimport cython
from canal.binlog cimport event_layout as layout
from canal.binlog cimport event_types as kinds
from canal.rows cimport wire

cdef long _MAX_PACKET, _LONGEST_ERROR

@cython.final
cdef class Events:
    cdef Framer _framer
    cdef bytearray buffer
    cdef long long _reads
    cdef Py_ssize_t start, count, gap, _last
    @cython.locals(p="const unsigned char*")
    cdef Py_ssize_t size_at(self, Py_ssize_t at) noexcept
    cdef check(self)
    cpdef list copies(self)

cdef class Framer:
    cdef long long reads
    cdef bytearray _buffer
    cdef Py_ssize_t _normal, _max_event, _start, _end, _need
    cdef readonly object error
    cpdef advance(self, Py_ssize_t count)
    @cython.locals(made=Events)
    cdef Events _events(self, Py_ssize_t start, Py_ssize_t last, Py_ssize_t count, Py_ssize_t gap)
    cdef _take(self, Py_ssize_t count)
    @cython.locals(pending=Py_ssize_t, size=Py_ssize_t, need=Py_ssize_t, fresh=bytearray, is_full=bint)
    cdef _make_room(self)

cdef class PacketFramer(Framer):
    cdef int _sequence
    cdef list _parts
    cdef Py_ssize_t _joined, _due
    cdef readonly bint ended
    @cython.locals(p="const unsigned char*", at=Py_ssize_t, end=Py_ssize_t, stop=Py_ssize_t, length=Py_ssize_t, events=list,
                   first=Py_ssize_t, last=Py_ssize_t, whole=Py_ssize_t)
    cpdef advance(self, Py_ssize_t count)
    cdef _continue(self, bytes payload, Py_ssize_t length, list events)
    cdef _check_length(self, Py_ssize_t length, int status, long long event_length)
    cdef _wrong_length(self, Py_ssize_t length)
    cdef _not_event(self, bytes payload)
    cdef _out_of_order(self, int found, bint is_error)
    cdef _too_large(self)

cdef class FileFramer(Framer):
    cdef readonly long long offset
    cdef readonly bint has_format
    @cython.locals(p="const unsigned char*", at=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, kind=int,
                   first=Py_ssize_t, last=Py_ssize_t, whole=Py_ssize_t)
    cpdef advance(self, Py_ssize_t count)
    cdef _relay_log(self)
    cdef _bad_length(self, Py_ssize_t length, long long offset)
