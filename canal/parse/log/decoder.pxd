cimport cython
from canal.binlog cimport event_layout as layout
from canal.binlog cimport event_types as kinds
from canal.model.entry cimport Entry, new_entry
from canal.model.table cimport TableMap
from canal.model.transaction cimport Transaction
from canal.parse.log cimport crc
from canal.parse.log.assembly cimport Assembly
from canal.parse.log.framing cimport Events
from canal.parse.log.table_maps cimport TableMaps
from canal.parse.log.tape cimport Tape
from canal.rows cimport wire
from canal.rows.decoder cimport RowDecoder

cdef object _ROWDATA, _INSERT, _UPDATE, _DELETE
cdef unsigned long long _MAX_GTID
cdef unsigned int _CRC_RESIDUE
cdef int _BETWEEN, _ALONE, _BEGIN_ALONE, _ENTER_XA, _UNDECIDE
cdef long long _LOW, _HALF, _WRAP, _BYTES

@cython.final
cdef class BinlogDecoder:
    cdef tuple _parts
    cdef readonly Assembly assembly
    cdef readonly TableMaps maps
    cdef readonly object xa, statements
    cdef long long _inflated_bytes
    cdef public long long event_count, byte_count, statement_count
    cdef public bint follow_only
    cdef public str destination, journal, purged, incarnation, flavor
    cdef public long long offset
    cdef long long _at, _floor
    cdef str _floor_journal, _source
    cdef object _format, _writer, _continuity, _look_ahead
    cdef bint _checksum, _unproved, _strict, _bare
    cdef dict _gtid_sources
    cdef bytes _sid
    cdef str _sid_text
    cdef tuple _pair
    cdef unsigned long long _domain, _server
    cdef bytes _query, _counted_query

    @cython.locals(data=bytes)
    cpdef feed(self, object events)
    @cython.locals(p="const unsigned char*", at=Py_ssize_t, gap=Py_ssize_t, size=Py_ssize_t)
    cdef _feed_from_buffer(self, Events events)
    cpdef flush(self)
    @cython.locals(end=Py_ssize_t, kind=int, log_pos="long long", start="long long", expected="long long", hole="long long")
    cdef _event(self, const unsigned char* p, Py_ssize_t size)
    cdef _dispatch(self, const unsigned char* p, Py_ssize_t size, int kind, Py_ssize_t end, long long start)
    @cython.locals(p="const unsigned char*", plain=bytes)
    cdef _uncommon(self, bytes data, int kind, Py_ssize_t end, long long start)
    cdef _format_description(self, bytes data)
    cdef _drop_transaction(self)
    @cython.locals(stop=Py_ssize_t, offset="long long")
    cdef _rotate(self, bytes data, Py_ssize_t end)
    cdef _adopt_executed(self, object executed)
    cdef _check_listed(self, object listed)
    cdef _check_flavor(self, int kind, str flavor)
    @cython.locals(sid=bytes)
    cdef _gtid(self, const unsigned char* p, Py_ssize_t end, long long start)
    @cython.locals(flags=int, pair=tuple, domain="unsigned long long", server="unsigned long long")
    cdef _mariadb_gtid(self, const unsigned char* p, Py_ssize_t size, Py_ssize_t end, long long start)
    cpdef Transaction begin(self, const unsigned char* p, long long start)
    cpdef Transaction open(self, const unsigned char* p, Py_ssize_t size, long long start)
    cpdef finish(self, const unsigned char* p, Py_ssize_t size, long long start)
    cpdef finish_with(self, Entry entry)
    @cython.locals(schema=Py_ssize_t, schema_end=Py_ssize_t, sql_start=Py_ssize_t, length=Py_ssize_t)
    cdef _query_event(self, const unsigned char* p, Py_ssize_t size, Py_ssize_t end, long long start)
    cdef Py_ssize_t _body_start(self, bytes data, int kind, Py_ssize_t end) except -1
    @cython.locals(body=Py_ssize_t, table_id="unsigned long long", table=TableMap, assembly=Assembly,
                   txn=Transaction, entry=Entry, count="long long", first="long long", last_of_statement=bint)
    cdef _rows(self, const unsigned char* p, Py_ssize_t size, int kind, Py_ssize_t end, long long start, int change)
    cdef _close_statement(self)
    cdef _forget_query(self)
    @cython.locals(rows=RowDecoder)
    cdef Py_ssize_t _measure(self, TableMap table, const unsigned char* p, Py_ssize_t body, Py_ssize_t end, int kind, int change, long long start) except -1
    @cython.locals(inner=bytes, kind=int)
    cdef _payload(self, bytes data, Py_ssize_t end, long long start)
