cimport cython

cdef class Transaction:
    cdef readonly str source
    cdef readonly str journal
    cdef readonly long long offset
    cdef public long long end
    cdef readonly long long server_id
    cdef readonly long long timestamp
    cdef public object gtid_source
    cdef public unsigned long long gtid_number
    cdef public unsigned long long gtid_first
    cdef public unsigned long long gtid_previous
    cdef public object gtid_base
    cdef public long long last_committed, sequence_number
    cdef public long long thread_id
    cdef public unsigned long long xid
    cdef public long long row_count
    cdef public long long before
    cdef public bint has_rows
    cdef public tuple xa
    cdef public tuple xa_end
    cdef public bytearray tape
    cdef public Py_ssize_t tape_start, tape_end
    cdef public str incarnation
    cdef public bint is_done
    cdef _set(self, str source, str journal, long long offset, long long server_id, long long timestamp)
    cpdef bint is_same(self, Transaction other) except -1

@cython.locals(made=Transaction)
cpdef Transaction new_transaction(str source, str journal, long long offset, long long server_id, long long timestamp)
