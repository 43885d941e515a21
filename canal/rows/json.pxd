cimport cython
from canal.binlog cimport type_codes as codes
from canal.rows cimport native, wire

cpdef str decode_json(bytes data, Py_ssize_t start, Py_ssize_t end)
@cython.locals(document=Document)
cpdef decode_objects(bytes data, Py_ssize_t start, Py_ssize_t end)
@cython.locals(pos=Py_ssize_t, first=Py_ssize_t, operation=int)
cpdef tuple decode_diffs(bytes data, Py_ssize_t start, Py_ssize_t end, bint as_text)

@cython.final
cdef class Document:
    cdef bytes data
    cdef readonly list parts
    cdef public list values
    cdef long long budget

    @cython.locals(p="const unsigned char*", small="long long")
    cdef value(self, int kind, Py_ssize_t pos, Py_ssize_t end, int depth)
    cdef int need(self, Py_ssize_t pos, long long count, Py_ssize_t end) except -1
    cdef literal(self, int code)
    @cython.locals(p="const unsigned char*", width=int, count="long long", size="long long", stop=Py_ssize_t,
                   is_object=bint, entry=Py_ssize_t, values=Py_ssize_t, i="long long", offset="long long",
                   length="long long", parts=list)
    cdef container(self, int kind, Py_ssize_t pos, Py_ssize_t end, int depth)
    @cython.locals(p="const unsigned char*", kind=int, offset="long long")
    cdef entry(self, Py_ssize_t at, int width, Py_ssize_t base, Py_ssize_t stop, int depth)
    @cython.locals(length="long long")
    cdef string(self, Py_ssize_t pos, Py_ssize_t end)
    @cython.locals(p="const unsigned char*", length="long long", group="long long", i=int)
    cdef tuple length(self, Py_ssize_t pos, Py_ssize_t end)
    @cython.locals(p="const unsigned char*", plain=bint, i=Py_ssize_t, text=str, parts=list)
    cdef text(self, Py_ssize_t pos, Py_ssize_t length)
    @cython.locals(length="long long", code=int)
    cdef opaque(self, Py_ssize_t pos, Py_ssize_t end)
