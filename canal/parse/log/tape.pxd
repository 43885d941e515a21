cimport cython
from canal.binlog cimport event_layout as layout
from canal.model.table cimport TableMap
from canal.model.transaction cimport Transaction
from canal.rows cimport wire
from canal.rows.decoder cimport RowDecoder

cdef unsigned long long _SPREAD, _LOW, _BUT_LAST

@cython.final
cdef class Tape:
    cdef bytearray _bytes
    cdef unsigned long long _digest, _digest_of, _head
    cdef readonly bint is_open
    cdef bint _has_ddl

    cpdef drop(self)
    cpdef stamp(self, Transaction txn)
    @cython.locals(rows=RowDecoder)
    cpdef add_rows(self, TableMap table, bytes data, Py_ssize_t body, Py_ssize_t end, int change, str flavor, Transaction txn)
    cpdef add_statement(self, bytes data, object statement, str sql)
    @cython.locals(p="const unsigned char*")
    cdef _part(self, bytes data, unsigned long long of)
    cpdef close(self, Transaction txn)
