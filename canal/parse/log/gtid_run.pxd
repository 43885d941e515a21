cimport cython
from canal.model.transaction cimport Transaction

@cython.final
cdef class GtidRun:
    cdef readonly object base, source
    cdef readonly long long offset
    cdef readonly unsigned long long number
    cdef public long long last_committed, sequence_number
    cdef object _source
    cdef unsigned long long _previous, _first, _last

    cpdef reset(self, object executed)
    cpdef adopt(self, object executed)
    cpdef bint begin(self, long long offset, object source, unsigned long long number) except -1
    cpdef end(self)
    cpdef drop(self)
    cpdef executed(self)
    cpdef behind(self)
    cpdef last(self)
    cpdef stamp(self, Transaction txn)
