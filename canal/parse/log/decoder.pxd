cimport cython
from canal cimport event_types as kinds
from canal.model cimport Entry, TableMap, Transaction, new_entry, new_transaction
from canal.parse.log cimport crc
from canal.rows cimport wire
from canal.rows.decoder cimport RowDecoder

cdef object _BEGIN, _END, _ROWDATA, _INSERT, _UPDATE, _DELETE, _QUERY
cdef unsigned long long _MAX_GTID, _SPREAD
cdef unsigned int _CRC_RESIDUE
cdef long long _LOW, _HALF, _WRAP

cdef class BinlogDecoder:
    cdef object _resolve, _classify, _wants, _changed, _deliver
    cdef long long _piece_bytes, _inflated_bytes
    cdef Py_ssize_t _piece_entries
    cdef dict _gtid_sources, _maps, _tables
    cdef bytes _sid, _body
    cdef str _sid_text
    cdef tuple _pair
    cdef unsigned long long _domain, _server
    cdef TableMap _table, _body_table
    cdef unsigned long long _table_id
    cdef public long long event_count, byte_count, statement_count, transaction_count, timestamp
    cdef public bint follow_only
    cdef public tuple prepared
    cdef object _read_again, _replayed, _xa_mark
    cdef bint _replaying, _in_xa, _released, _undecided, _told_prepared
    cdef long long _replayed_rows, _adopting, _held_bytes, _map_bytes
    cdef dict _savepoints, _held
    cdef public str destination, journal
    cdef public str purged
    cdef public list known
    cdef public bint leaves_out
    cdef unsigned long long _done_to
    cdef public long long offset
    cdef long long _floor
    cdef str _floor_journal
    cdef long long _at
    cdef public str flavor
    cdef str _source
    cdef object _format
    cdef object _writer
    cdef bint _checksum, _unproved, _strict, _doubtful
    cdef object _continuity
    cdef public str incarnation
    cdef Transaction _txn
    cdef list _pending, _out
    cdef long long _pending_bytes, _out_bytes, _part, _ordinal, _skip, _skip_later, _skip_timestamp, _skip_server
    cdef bint _skipping, _group, _bare, _alone
    cdef long long _group_offset
    cdef bytes _query
    cdef str _query_text
    cdef object _gtid_source, _run_base, _run_source
    cdef bytearray _tape
    cdef unsigned long long _digest, _digest_of, _digest_head
    cdef bint _digesting, _digest_ddl
    cdef unsigned long long _gtid_number, _gtid_previous, _run_first, _run_last

    cpdef feed(self, list events)
    cpdef flush(self)
    @cython.locals(p="const unsigned char*", size=Py_ssize_t, end=Py_ssize_t, kind=int, log_pos="long long",
                   start="long long", expected="long long", hole="long long")
    cdef _event(self, bytes data)
    @cython.locals(p="const unsigned char*")
    cdef _dispatch(self, bytes data, int kind, Py_ssize_t end, long long start)
    @cython.locals(p="const unsigned char*")
    cdef _rare(self, bytes data, int kind, Py_ssize_t end, long long start)
    cdef _format_description(self, bytes data)
    @cython.locals(stop=Py_ssize_t, offset="long long")
    cdef _rotate(self, bytes data, Py_ssize_t end)
    cdef _adopt_executed(self, object executed)
    cdef _check_listed(self, object listed)
    cdef _check_flavor(self, int kind, str flavor)
    @cython.locals(p="const unsigned char*", sid=bytes)
    cdef _gtid(self, bytes data, Py_ssize_t end, long long start)
    @cython.locals(p="const unsigned char*", flags=int)
    cdef _mariadb_gtid(self, bytes data, Py_ssize_t end, long long start)
    cdef _start_group(self, long long start, object source, unsigned long long number)
    cdef _executed_now(self)
    @cython.locals(p="const unsigned char*", txn=Transaction)
    cdef Transaction _new_transaction(self, bytes data, long long start)
    @cython.locals(p="const unsigned char*", txn=Transaction, entry=Entry)
    cdef _open(self, bytes data, long long start)
    cdef _add(self, Entry entry)
    @cython.locals(entry=Entry)
    cdef _hand_piece(self)
    @cython.locals(p="const unsigned char*", txn=Transaction, entry=Entry)
    cdef _finish(self, bytes data, long long start)
    cdef _check_skipped(self, Transaction txn)
    cdef _release(self, Py_ssize_t size)
    cdef _close_group(self)
    cdef _drop_transaction(self)
    cdef _close_statement(self)
    @cython.locals(p="const unsigned char*", schema_end=Py_ssize_t, sql_start=Py_ssize_t, size=Py_ssize_t)
    cdef _query_event(self, bytes data, Py_ssize_t end, long long start)
    cdef _statement(self, bytes data, Py_ssize_t end, long long start, Py_ssize_t schema_start, Py_ssize_t schema_end)
    cdef _rollback(self, bytes data, long long start, object statement)
    cdef _undo(self, Transaction txn, Py_ssize_t length, long long row, long long part)
    cdef _xa_statement(self, bytes data, long long start, object statement)
    @cython.locals(txn=Transaction)
    cdef _finish_xa(self, bytes data, long long start, str what, str xid, tuple held)
    cdef _forget_xa(self, str xid)
    cdef _shorten_prepared(self)
    cdef _let_go(self)
    @cython.locals(txn=Transaction, again=BinlogDecoder)
    cdef _commit_xa(self, object place, long long start)
    @cython.locals(txn=Transaction, entry=Entry)
    cpdef _adopt(self, list entries)
    @cython.locals(p="const unsigned char*", txn=Transaction, entry=Entry, alone=bint, opens=bint)
    cdef _statement_entry(self, bytes data, long long start, str sql, object statement)
    cdef _unwanted_statement(self, bytes data, long long start, object statement)
    @cython.locals(txn=Transaction)
    cdef _prepare_xa(self, bytes data, Py_ssize_t end, long long start)
    @cython.locals(p="const unsigned char*", body=bytes, table=TableMap, table_id="unsigned long long")
    cdef _table_map(self, bytes data, Py_ssize_t end)
    cdef TableMap _find_table(self, unsigned long long table_id)
    cdef _forget_tables(self)
    @cython.locals(rows=RowDecoder)
    cdef _digest_rows(self, TableMap table, bytes data, Py_ssize_t body, Py_ssize_t end, int change)
    cdef _digest_statement(self, bytes data, object statement, str sql)
    @cython.locals(p="const unsigned char*")
    cdef _digest_part(self, bytes data, unsigned long long of)
    cdef _close_digest(self, Transaction txn)
    cdef Py_ssize_t _body_start(self, bytes data, int kind, Py_ssize_t end) except -1
    @cython.locals(p="const unsigned char*", body=Py_ssize_t, table_id="unsigned long long", table=TableMap,
                   txn=Transaction, entry=Entry, count="long long", first="long long", last_of_statement=bint)
    cdef _rows(self, bytes data, int kind, Py_ssize_t end, long long start, int change)
    @cython.locals(rows=RowDecoder)
    cdef long long _measure(self, TableMap table, bytes data, Py_ssize_t body, Py_ssize_t end, int kind, int change, long long start) except -1
    @cython.locals(inner=bytes, kind=int)
    cdef _payload(self, bytes data, Py_ssize_t end, long long start)
