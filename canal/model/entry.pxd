cimport cython
from canal.model.row cimport changed_rows
from canal.model.table cimport TableMap
from canal.model.transaction cimport Transaction
from canal.rows.decoder cimport RowDecoder

cdef class Rare:
    cdef public tuple selected
    cdef public object sql, statement, group
    cdef public bytes query
    cdef public dict props

cdef class Entry:
    cdef readonly object entry_type
    cdef public object event_type
    cdef readonly Transaction transaction
    cdef public TableMap table
    cdef readonly bytes data
    cdef public int body, body_end, row_count, skip_rows, part
    cdef public signed char kind
    cdef public bint last, is_end
    cdef readonly unsigned int timestamp, server_id
    cdef readonly long long offset
    cdef public long long ordinal, first_row, size
    cdef readonly Rare rare
    cdef Rare _with_rare(self)
    cpdef set_query(self, bytes text)
    cdef _set(self, object entry_type, object event_type, Transaction transaction, bytes data, long long offset,
              long long timestamp, long long server_id)

@cython.locals(made=Entry)
cpdef Entry new_entry(object entry_type, object event_type, Transaction transaction, bytes data, long long offset,
                      long long timestamp, long long server_id)

cdef class Header:
    cdef Entry _entry

@cython.locals(table=TableMap, before=list, after=list)
cpdef list decode_rows(Entry entry, bint json_text=*)
@cython.locals(table=TableMap, decoder=RowDecoder, images=tuple, before=list, after=list)
cpdef tuple decode_images(Entry entry, bint json_text=*)

@cython.locals(table=TableMap)
cpdef list decode_tuples(Entry entry, bint json_text=*)
cdef list _kept(Entry entry, list rows)
@cython.locals(entry=Entry, rare=Rare, rows="long long")
cpdef long long count_rows(list entries) except -1

cdef class RowChange:
    cdef Entry _entry
