cimport cython
from canal.model.entry cimport Entry
from canal.store cimport scheduler

cdef object _BEGIN

cdef class Ring:
    cdef list _slots
    cdef long long _mask
    cdef readonly long long max_entries, max_bytes, head, tail, byte_count, row_total
    cdef readonly long long freed_bytes, freed_rows, taken_rows, unread
    cdef long long _front

    @cython.locals(slots=list, index=Py_ssize_t, entry=Entry, size="long long")
    cpdef Py_ssize_t put(self, list entries, Py_ssize_t start) except -1
    cdef _pass(self, Entry entry)
    @cython.locals(taken=list, entry=Entry, index="long long")
    cpdef list take(self, long long sequence, long long batch_size, long long batch_bytes, bint isolate_ddl, bint whole)
    @cython.locals(slots=list, more=list, last=Py_ssize_t, entry=Entry)
    cdef _to_an_end(self, list taken, long long sequence)
    @cython.locals(slots=list, taken=list, weight="long long", limit="long long", size="long long", rows="long long", entry=Entry)
    cdef list _taken(self, long long sequence, long long batch_size, long long batch_bytes, bint isolate_ddl)
    @cython.locals(slots=list, rows="long long", entry=Entry)
    cpdef long long rows_from(self, long long sequence) except -1
    @cython.locals(slots=list, size="long long", entry=Entry)
    cpdef long long bytes_between(self, long long start, long long end) except -1
    cpdef at(self, long long sequence)
    @cython.locals(slots=list, entry=Entry)
    cpdef release(self, long long head)
