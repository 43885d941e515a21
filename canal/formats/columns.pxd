cimport cython
from canal.rows cimport native

cdef class Column:
    cdef readonly int index, sql_type
    cdef readonly str name, mysql_type
    cdef readonly object value
    cdef readonly bint is_key, updated, is_null
    cpdef tuple _values(self)
    cdef _set(self, int index, int sql_type, str name, bint is_key, bint updated, bint is_null, object value, str mysql_type)

cdef class _Way:
    cdef readonly object column
    cdef str name, mysql_type
    cdef int index, code, sql_type, digits
    cdef readonly bint is_text
    cdef bint is_key, is_number, is_year, is_float, by_value
    cpdef text(self, object value)
    @cython.locals(made=Column)
    cdef Column made(self, object text, bint updated)

cdef class CanalForm:
    cdef readonly object columns, table
    cdef list _ways
    @cython.locals(old=list, new=list)
    cpdef tuple of(self, object before, object after)
    @cython.locals(texts=list, i=Py_ssize_t, way=_Way)
    cdef list _texts(self, object values)
    @cython.locals(made=list, i=Py_ssize_t, way=_Way, updated=bint)
    cdef list _made(self, list texts, list old, bint is_after)
