cimport cython
from canal.model.entry cimport Entry

cdef object _BEGIN, _END

cdef class Condenser:
    cdef double _interval
    cdef long long _count, _dropped
    cdef double _passed_at
    cdef Entry _begin

    @cython.locals(kept=list, entry=Entry, begin=Entry)
    cpdef list feed(self, list entries, double now)
    cpdef reset(self)
    cdef bint _passes(self, double now) except -1

@cython.locals(begin=bint, entry=Entry)
cpdef bint has_empty(list entries) except -1
