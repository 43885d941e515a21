from canal.model.row cimport ColumnNames

cdef class TableMap:
    cdef readonly object schema
    cdef readonly tuple columns
    cdef readonly ColumnNames names
    cdef readonly object decoder
    cdef public bint accepted
    cdef readonly unsigned long long digest
    cdef public Py_ssize_t size
