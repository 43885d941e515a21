cimport cython
from canal.binlog cimport event_layout as layout
from canal.model.table cimport TableMap
from canal.rows cimport wire

@cython.final
cdef class TableMaps:
    cdef object _resolve
    cdef dict _maps, _tables
    cdef long long _bytes
    cdef bytes _body
    cdef TableMap _last, _one
    cdef unsigned long long _one_id

    @cython.locals(table_id="unsigned long long")
    cdef announce(self, const unsigned char* p, Py_ssize_t end, object writer)
    @cython.locals(table=TableMap)
    cdef _look_up(self, bytes body, object writer)
    cpdef TableMap find(self, unsigned long long table_id)
    cpdef end_statement(self)
    cpdef forget(self)
