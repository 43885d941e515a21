cimport cython
from canal.rows.decoder cimport RowDecoder


cdef bint _IS_FREE

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

@cython.locals(table=TableMap, names=ColumnNames, before=list, after=list, rows=list, row=ChangedRow, i=Py_ssize_t)
cpdef list decode_rows(Entry entry, bint json_text=*)
@cython.locals(table=TableMap, decoder=RowDecoder, images=tuple, before=list, after=list)
cpdef tuple decode_images(Entry entry, bint json_text=*)
@cython.locals(row=Row)
cdef Row _row(tuple values, ColumnNames names)

@cython.locals(table=TableMap)
cpdef list decode_tuples(Entry entry, bint json_text=*)
cdef list _kept(Entry entry, list rows)
@cython.locals(entry=Entry, rare=Rare, rows="long long")
cpdef long long count_rows(list entries) except -1

cdef class RowChange:
    cdef Entry _entry

cdef class TableMap:
    cdef readonly object schema
    cdef readonly tuple columns
    cdef readonly ColumnNames names
    cdef readonly object decoder
    cdef public bint accepted
    cdef readonly unsigned long long digest
    cdef public Py_ssize_t size
