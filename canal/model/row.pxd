cimport cython

cdef bint _IS_FREE

cdef class Row:
    cdef tuple _values
    cdef ColumnNames _names

cdef class ColumnNames:
    cdef readonly tuple names
    cdef readonly tuple key
    cdef dict _index
    @cython.locals(made=ColumnNames)
    cpdef ColumnNames copy(self)
    cpdef Py_ssize_t find(self, str name)
    cpdef Py_ssize_t index(self, str name) except -1

cdef class ChangedRow:
    cdef readonly Row before
    cdef readonly Row after

@cython.locals(rows=list, row=ChangedRow, i=Py_ssize_t)
cpdef list changed_rows(list before, list after, ColumnNames names)
@cython.locals(row=Row)
cdef Row _row(tuple values, ColumnNames names)
