"""The ordered stage: raw binlog events in, entries of whole transactions out.

Never touches a socket, a file or a clock, and never decodes a value: it verifies checksums, follows journals, offsets and
GTIDs, resolves table maps, measures row images and groups events into transactions. A live dump, a file and a fake all
come through here. Event numbers and layouts: MySQL source ``libs/mysql/binlog/event``, MariaDB ``sql/log_event.h``.
"""

from __future__ import annotations

import logging
import sys
import zlib
from typing import Any, Callable

from canal.errors import ChecksumError, DecodeError, MissingTableMapError, SourceError, TruncatedError, UnsupportedError
from canal.gtid import parse_gtid_set
from canal.model import Entry, EntryType, EventType, TableMap, Transaction
from canal.parse import wire
from canal.parse.charsets import lenient_text
from canal.parse.events import (
    Format,
    event_name,
    inflate_query,
    inflate_rows,
    iter_payload,
    parse_format,
    parse_gtid_list,
    parse_previous_gtids,
    query_context,
    uuid_text,
)
from canal.position import Position

log = logging.getLogger("canal.parse")

#: CRC32 of any event followed by its own CRC32 in little-endian order.
_CRC_RESIDUE = 0x2144DF1C

_BEGIN = EntryType.TRANSACTIONBEGIN
_END = EntryType.TRANSACTIONEND
_ROWDATA = EntryType.ROWDATA
_INSERT = EventType.INSERT
_UPDATE = EventType.UPDATE
_DELETE = EventType.DELETE
_QUERY = EventType.QUERY

#: Events that carry no change and need no action here.
_IGNORED = frozenset(
    (
        3,  # STOP
        5, 13, 14,  # INTVAR, RAND, USER_VAR: context of a statement that follows
        28,  # IGNORABLE
        36, 37,  # TRANSACTION_CONTEXT, VIEW_CHANGE of group replication
        161,  # BINLOG_CHECKPOINT
        164,  # START_ENCRYPTION: the server decrypts before it sends; files refuse it earlier
    )
)  # fmt: skip


class BinlogDecoder:
    """Turns raw events, in order, into lists of entries.

    Args:
        resolve: called with the body of a table map that was not seen before; gives its ``TableMap`` or raises.
        classify: ``(sql, default_schema, sql_mode=, flavor=) -> Statement`` for anything but BEGIN and COMMIT.
        wants: ``Statement -> bool``: whether a statement is delivered.
        changed: called with each ``Statement`` that may change a schema, before later table maps are resolved.
        deliver: called with a non-empty list of entries: whole transactions, except pieces of a very large one.
        piece_bytes, piece_entries: a transaction beyond either is delivered in pieces.
    """

    def __init__(
        self,
        resolve: Callable[[bytes], TableMap],
        classify: Callable[..., Any],
        wants: Callable[[Any], bool],
        changed: Callable[[Any], None],
        deliver: Callable[[list[Entry]], None],
        piece_bytes: int = 4 << 20,
        piece_entries: int = 4096,
    ) -> None:
        self._resolve = resolve
        self._classify = classify
        self._wants = wants
        self._changed = changed
        self._deliver = deliver
        self._piece_bytes = piece_bytes
        self._piece_entries = piece_entries
        self._gtid_sources = {}
        self._maps = {}
        self.destination = ""
        self.event_count = 0
        self.byte_count = 0
        self.timestamp = 0
        self.reset(Position(), "mysql", "", None)

    def reset(self, position: Position, flavor: str, source: str, executed: Any) -> None:
        """Forget everything about the stream: the next event is the first of a new dump from ``position``.

        ``executed`` is the set of GTIDs done at ``position`` (or None when it is not known); ``position.row`` row changes
        of the first transaction are left out.
        """
        self.purged = ""
        self.journal = position.journal
        self.offset = position.offset
        self.flavor = flavor
        self._source = source
        self._format = None
        self._checksum = False
        self._tables = {}
        self._txn = None
        self._pending = []
        self._pending_bytes = 0
        self._out = []
        self._out_bytes = 0
        self._part = 0
        self._ordinal = 0
        self._skip = position.row
        self._skipping = position.row > 0
        self._skip_timestamp = position.timestamp // 1000
        self._skip_server = position.server_id
        self._group = False
        self._group_offset = 0
        self._query = None
        self._query_text = None
        self._gtid_source = None
        self._gtid_number = 0
        self._gtid_previous = 0
        self._run_base = executed
        self._run_source = None
        self._run_first = 0
        self._run_last = 0
        self._maps.clear()

    def feed(self, events: list[bytes]) -> None:
        """Take whole raw events (19-byte header to checksum) in the order of the stream.

        What was complete before a fault is handed over before the error is raised.
        """
        try:
            for data in events:
                self._event(data)
        except SourceError as error:
            if error.position is None:
                error.position = f"{self.journal}:{self.offset}"
            self.flush()
            raise
        self.flush()

    def flush(self) -> None:
        """Hand over what is complete."""
        if self._out:
            entries = self._out
            self._out = []
            self._out_bytes = 0
            self._deliver(entries)

    @property
    def is_inside_transaction(self) -> bool:
        return self._txn is not None

    # -- framing of one event -------------------------------------------------------------------------------------

    def _event(self, data: bytes) -> None:
        p = data
        size = len(data)
        if size < 19:
            raise TruncatedError(f"an event of {size} bytes has no room for its header")
        kind = p[4]
        if wire.u32(p, 9) != size:
            raise DecodeError(
                f"an event of {size} bytes says it has {wire.u32(p, 9)}", event_type=kind, remedy="The log is damaged here."
            )
        self.event_count += 1
        self.byte_count += size
        if kind == 15:
            self._format_description(data)
        if self._format is None and kind != 4:
            raise DecodeError(f"{event_name(kind)} before the FORMAT_DESCRIPTION of its log", event_type=kind)
        end = size
        if self._checksum:
            end = size - 4
            if end < 19:
                raise TruncatedError(f"{event_name(kind)} of {size} bytes has no room for its checksum", event_type=kind)
            if zlib.crc32(data) != _CRC_RESIDUE and not self._is_open_format(data, kind):
                raise ChecksumError(
                    f"{event_name(kind)} has CRC32 {wire.u32(p, end):08x}, its bytes have {zlib.crc32(data[:end]):08x}",
                    event_type=kind,
                    remedy="The log or the connection is damaged; compare with the server's own file.",
                )
        log_pos = wire.u32(p, 13)
        start = self.offset
        if log_pos == 0 or wire.u16(p, 17) & 0x20:
            if not (kind == 4 or kind == 15 or kind == 27 or kind == 35 or kind == 41 or kind == 163 or kind == 164):
                self.offset = start + size  # MariaDB 11.4 and later: no positions inside a transaction
        elif kind != 27 and kind != 41:
            expected = start + size
            if (expected & 0xFFFFFFFF) != log_pos:
                expected = start - (start & 0xFFFFFFFF) + log_pos
                if expected < start:
                    expected += 0x100000000
                start = expected - size
            self.offset = expected
        self._dispatch(data, kind, end, start)

    def _is_open_format(self, data: bytes, kind: int) -> bool:
        """The FORMAT_DESCRIPTION of a log in use is flagged so after its checksum was made."""
        if kind != 15 or not data[17] & 1:
            return False
        return zlib.crc32(data[:17] + bytes((data[17] & 0xFE,)) + data[18:]) == _CRC_RESIDUE

    def _dispatch(self, data: bytes, kind: int, end: int, start: int) -> None:
        p = data
        if kind == 19:
            self._table_map(data, end)
        elif kind == 30 or kind == 23:
            self._rows(data, kind, end, start, 0)
        elif kind == 31 or kind == 24:
            self._rows(data, kind, end, start, 1)
        elif kind == 32 or kind == 25:
            self._rows(data, kind, end, start, 2)
        elif kind == 16:
            if end < 27:
                raise TruncatedError("XID event is too short", event_type=kind)
            if self._txn is not None:
                self._txn.xid = wire.u64(p, 19)
            self._finish(data, start)
        elif kind == 2:
            self._query_event(data, end, start)
        elif kind == 33:
            self._gtid(data, end, start)
        elif kind == 162:
            self._mariadb_gtid(data, end, start)
        else:
            self._rare(data, kind, end, start)

    def _rare(self, data: bytes, kind: int, end: int, start: int) -> None:
        p = data
        if kind in _IGNORED:
            return
        if kind == 27 or kind == 41:  # HEARTBEAT
            return
        if kind == 15:
            return
        if kind == 4:
            self._rotate(data, end)
        elif kind == 34:  # ANONYMOUS_GTID
            self._start_group(start, None, 0)
        elif kind == 35:
            if self._run_base is None:
                executed = parse_previous_gtids(data, end)
                if executed or self.purged:  # GTIDs that were purged by hand are in no log
                    executed = executed | parse_gtid_set(self.purged, "mysql")
                self._adopt_executed(executed)
        elif kind == 163:
            if self._run_base is None:
                self._adopt_executed(parse_gtid_list(data, end))
        elif kind == 29:  # ROWS_QUERY: one length byte that cannot hold the length, then the text
            self._query = data[20:end]
            self._query_text = None
        elif kind == 160:  # ANNOTATE_ROWS
            self._query = data[19:end]
            self._query_text = None
        elif kind == 40:
            self._payload(data, end, start)
        elif kind == 165:
            self._query_event(inflate_query(data, end), -1, start)
        elif 166 <= kind <= 171:
            plain = inflate_rows(data, end, kind, self._body_start(data, kind, end))
            plain_kind = (23 if kind < 169 else 30) + (kind - 166) % 3
            self._rows(plain, plain_kind, len(plain), start, (kind - 166) % 3)
        elif kind == 26:
            raise SourceError(
                f"the source reports an INCIDENT at {self.journal}:{start}: changes may be missing from its log",
                remedy="Compare the tables with the source, then start from a position after the incident.",
            )
        elif kind == 38:
            self._xa_prepare(data, end, start)
        elif wire.u16(p, 17) & 0x80:  # LOG_EVENT_IGNORABLE_F
            return
        else:
            raise UnsupportedError(
                f"{event_name(kind)} is not supported", event_type=kind,
                remedy="Nothing was skipped. docs/guarantees.md lists what is not supported yet.",
            )  # fmt: skip

    # -- journals -------------------------------------------------------------------------------------------------

    def _format_description(self, data: bytes) -> None:
        """Each journal begins with one; a dump from the middle of a journal sends a copy of it."""
        form: Format = parse_format(data)
        self._format = form
        self._checksum = form.checksum
        self._tables.clear()
        if form.created and self._txn is not None:
            if self._part:
                raise SourceError(
                    f"the source stopped inside transaction {self._txn!r} whose first rows are already delivered",
                    remedy="Undo the rows of this transaction, then continue from its start.",
                )
            log.warning(
                "[%s] the source stopped inside %r; the server rolls it back and so do we", self.destination, self._txn
            )
            self._drop_transaction()

    def _rotate(self, data: bytes, end: int) -> None:
        if end < 27:
            raise TruncatedError("ROTATE event is too short", event_type=4)
        offset = wire.u64(data, 19)
        stop = end
        if self._format is None and not self._checksum and end - 27 > 4 and zlib.crc32(data) == _CRC_RESIDUE:
            stop = end - 4  # the ROTATE that opens a dump comes before the FORMAT_DESCRIPTION that tells of checksums
        name = data[27:stop].rstrip(b"\0").decode("utf-8", "surrogateescape")
        if name != self.journal or offset != self.offset:
            self.journal = name
            self.offset = offset
        self._tables.clear()

    def _adopt_executed(self, executed: Any) -> None:
        self._run_base = executed
        self._run_source = None
        self._run_last = 0

    # -- transactions ---------------------------------------------------------------------------------------------

    def _gtid(self, data: bytes, end: int, start: int) -> None:
        p = data
        if end < 44:
            raise TruncatedError("GTID event is too short", event_type=33)
        sid = p[20:36]
        source = self._gtid_sources.get(sid)
        if source is None:
            source = self._gtid_sources[sid] = uuid_text(sid)
        self._start_group(start, source, wire.u64(p, 36))

    def _mariadb_gtid(self, data: bytes, end: int, start: int) -> None:
        p = data
        if end < 32:
            raise TruncatedError("MariaDB GTID event is too short", event_type=162)
        flags = p[31]
        if flags & 0xC0:
            raise UnsupportedError(
                "a prepared XA transaction is not supported yet", event_type=162,
                remedy="Nothing was skipped. Commit without XA, or wait for a version that supports it.",
            )  # fmt: skip
        key = (wire.u32(p, 27), wire.u32(p, 5))
        source = self._gtid_sources.get(key)
        if source is None:
            source = self._gtid_sources[key] = key
        self._start_group(start, source, wire.u64(p, 19))
        if not flags & 1:
            self._open(data, start)

    def _start_group(self, start: int, source: Any, number: int) -> None:
        if self._txn is not None:
            raise DecodeError(f"a transaction begins at offset {start} before {self._txn!r} has ended")
        self._group = True
        self._group_offset = start
        self._gtid_source = source
        self._gtid_number = number
        self._gtid_previous = 0
        if self._run_base is None:
            return
        if source is not None and source == self._run_source and self._run_last:
            if number == self._run_last + 1 or (type(source) is tuple and number > self._run_last):
                self._gtid_previous = self._run_last
                return
        if self._run_last:
            self._run_base = self._executed_now()
        self._run_source = source
        self._run_first = number
        self._run_last = 0

    def _executed_now(self) -> Any:
        source = self._run_source
        if source is None or not self._run_last:
            return self._run_base
        if type(source) is tuple:
            return self._run_base.add(source[0], source[1], self._run_last)
        return self._run_base.add(source, self._run_first, self._run_last)

    def _new_transaction(self, data: bytes, start: int) -> Transaction:
        p = data
        if not self._group:  # no GTIDs here: the group begins with this event
            self._start_group(start, None, 0)
        txn = Transaction(self._source, self.journal, self._group_offset, wire.u32(p, 5), wire.u32(p, 0))
        txn.gtid_source = self._gtid_source
        txn.gtid_number = self._gtid_number
        txn.gtid_first = self._run_first
        txn.gtid_previous = self._gtid_previous
        txn.gtid_base = self._run_base
        if self._skipping and self._skip_timestamp and (
            txn.timestamp != self._skip_timestamp or txn.server_id != self._skip_server
        ):
            raise SourceError(
                f"the cursor says that {self._skip} rows are done of a transaction that server {self._skip_server} made "
                f"at {self._skip_timestamp}, but the source continues with {txn!r} of server {txn.server_id} at {txn.timestamp}",
                remedy="The source lost or reordered transactions: undo those rows, then continue with row 0.",
            )
        self._txn = txn
        self._ordinal = 0
        self._part = 1 if self._skipping else 0
        self.timestamp = txn.timestamp
        return txn

    def _open(self, data: bytes, start: int) -> None:
        p = data
        txn = self._new_transaction(data, start)
        entry = Entry(_BEGIN, _QUERY, txn, data, start, wire.u32(p, 0), wire.u32(p, 5))
        entry.first_row = self._skip  # acking a BEGIN that came again must not move the cursor back
        self._add(entry)

    def _add(self, entry: Entry) -> None:
        entry.ordinal = self._ordinal
        self._ordinal += 1
        entry.part = self._part
        self._pending.append(entry)
        self._pending_bytes += entry.size
        if self._pending_bytes > self._piece_bytes or len(self._pending) > self._piece_entries:
            self._hand_piece()

    def _hand_piece(self) -> None:
        """Give out the first part of a transaction that is too large to wait for its end."""
        for entry in self._pending:
            entry.last = False
        self._part += 1
        self._out.extend(self._pending)
        self._out_bytes += self._pending_bytes
        self._pending.clear()
        self._pending_bytes = 0
        self.flush()

    def _finish(self, data: bytes, start: int) -> None:
        txn = self._txn
        p = data
        if txn is None:
            # canal's cursors name the start of the last END: a dump from there begins with it.
            self._close_group()
            return
        self._check_skipped(txn)
        entry = Entry(_END, _QUERY, txn, data, start, wire.u32(p, 0), wire.u32(p, 5))
        entry.is_end = True
        entry.row_count = 0
        entry.first_row = txn.row_count
        entry.ordinal = self._ordinal
        entry.part = self._part
        txn.end = self.offset
        self.timestamp = wire.u32(p, 0)
        self._pending.append(entry)
        self._release(entry.size)

    def _check_skipped(self, txn: Transaction) -> None:
        if self._skipping and txn.row_count < self._skip:
            raise SourceError(
                f"the cursor says that {self._skip} rows of {txn!r} are done, but it has {txn.row_count}",
                remedy="The source's log is not the one that the cursor was taken from.",
            )

    def _release(self, size: int) -> None:
        """The open transaction has ended: its entries may go."""
        self._out.extend(self._pending)
        self._out_bytes += self._pending_bytes + size
        self._pending.clear()
        self._pending_bytes = 0
        self._txn = None
        self._skip = 0
        self._skipping = False
        self._query = None
        self._query_text = None
        self._part = 0
        self._close_group()
        if self._out_bytes > self._piece_bytes or len(self._out) > self._piece_entries:
            self.flush()

    def _close_group(self) -> None:
        if self._group and self._gtid_source is not None:
            self._run_last = self._gtid_number
        self._group = False
        self._gtid_source = None

    def _drop_transaction(self) -> None:
        self._pending.clear()
        self._pending_bytes = 0
        self._txn = None
        self._query = None
        self._query_text = None
        self._group = False
        self._gtid_source = None

    # -- statements -----------------------------------------------------------------------------------------------

    def _query_event(self, data: bytes, end: int, start: int) -> None:
        p = data
        if end < 0:
            end = len(data)
        if end < 32:
            raise TruncatedError("QUERY event is too short", event_type=2)
        schema_end = 32 + wire.u16(p, 30) + p[27]
        sql_start = schema_end + 1
        if sql_start > end:
            raise TruncatedError("QUERY event is too short", event_type=2)
        size = end - sql_start
        if size == 5 and data[sql_start:end] == b"BEGIN":
            if self._txn is None:  # MariaDB's GTID has opened it already
                self._open(data, start)
                self._txn.thread_id = wire.u32(p, 19)
        elif size == 6 and data[sql_start:end] == b"COMMIT":
            self._finish(data, start)
        else:
            self._statement(data, end, start, schema_end - p[27], schema_end)

    def _statement(self, data: bytes, end: int, start: int, schema_start: int, schema_end: int) -> None:
        codec, sql_mode = query_context(data[32:schema_start])
        schema = data[schema_start:schema_end].decode("utf-8", "surrogateescape")
        sql = lenient_text(data[schema_end + 1 : end], codec)
        if sql.startswith("# Dum"):  # MariaDB's stand-in for an event that the replica could not take
            return
        statement = self._classify(sql, schema, sql_mode=sql_mode, flavor=self.flavor)
        kind = statement.kind
        if kind == "begin":
            if self._txn is None:
                self._open(data, start)
            return
        if kind == "commit":
            self._finish(data, start)
            return
        if kind == "rollback":
            self._rollback(data, start, statement)
            return
        if kind == "savepoint":
            return
        if kind == "xa":
            raise UnsupportedError(
                "XA transactions are not supported yet", event_type=2,
                remedy="Nothing was skipped. Commit without XA, or wait for a version that supports it.",
            )  # fmt: skip
        self._statement_entry(data, start, sql, statement)

    def _rollback(self, data: bytes, start: int, statement: Any) -> None:
        txn = self._txn
        if txn is not None and (txn.has_rows or self._skipping):
            raise UnsupportedError(
                "ROLLBACK inside a transaction with row changes (it mixes engines with and without transactions)",
                event_type=2,
                remedy="Nothing was skipped. Do not mix MyISAM and InnoDB tables in one transaction.",
            )
        if statement.verb == 3:  # ddl.ROLLBACK, not ROLLBACK TO a savepoint
            self._finish(data, start)

    def _statement_entry(self, data: bytes, start: int, sql: str, statement: Any) -> None:
        p = data
        if statement.kind != "dml":
            self._maps.clear()
            self._changed(statement)
        if not self._wants(statement):
            self._unwanted_statement(data, start, statement)
            return
        alone = self._txn is None
        opens = alone and statement.starts_transaction  # MySQL's atomic CREATE TABLE … SELECT
        if opens:
            self._open(data, start)
        elif alone:
            self._new_transaction(data, start)
        txn = self._txn
        txn.thread_id = wire.u32(p, 19)
        txn.has_rows = True
        entry = Entry(_ROWDATA, EventType[statement.event_type], txn, data, start, wire.u32(p, 0), wire.u32(p, 5))
        entry.sql = sql
        entry.size += sys.getsizeof(sql)
        entry.statement = statement
        entry.first_row = max(txn.row_count, self._skip)
        if statement.kind == "dml":
            log.warning(
                "[%s] statement-format change of %s at %s:%d: delivered as a statement, its rows are not in the log",
                self.destination, ", ".join(f"{s}.{t}" for s, t in statement.tables) or "unknown tables", self.journal, start,
            )  # fmt: skip
        if alone and not opens:
            self._check_skipped(txn)
            entry.is_end = True
            entry.part = self._part
            txn.end = self.offset
            self._pending.append(entry)
            self._release(entry.size)
        elif txn.row_count < self._skip:
            self._ordinal += 1  # rows behind it are done, so it is too
        else:
            self._add(entry)

    def _unwanted_statement(self, data: bytes, start: int, statement: Any) -> None:
        """The filter leaves a statement out; alone it makes a transaction that the filter has emptied."""
        if self._txn is not None:
            self._ordinal += 1
            return
        self._open(data, start)
        if not statement.starts_transaction:
            self._finish(data, start)

    def _xa_prepare(self, data: bytes, end: int, start: int) -> None:
        if end > 19 and data[19]:  # one phase: XA COMMIT … ONE PHASE
            self._finish(data, start)
            return
        raise UnsupportedError(
            "XA PREPARE is not supported yet", event_type=38,
            remedy="Nothing was skipped. Commit without XA, or wait for a version that supports it.",
        )  # fmt: skip

    # -- rows -----------------------------------------------------------------------------------------------------

    def _table_map(self, data: bytes, end: int) -> None:
        p = data
        if end < 29:
            raise TruncatedError("TABLE_MAP event is too short", event_type=19)
        body = data[25:end]
        table = self._maps.get(body)
        if table is None:
            table = self._resolve(body)
            if len(self._maps) > 4096:
                self._maps.clear()
            self._maps[body] = table
        self._tables[wire.u48(p, 19)] = table

    def _body_start(self, data: bytes, kind: int, end: int) -> int:
        """Index of the packed column count of a rows event."""
        if self._format.post_header_length(kind) == 10:  # version 2: extra data, its length counts itself
            if end < 29:
                raise TruncatedError("rows event is too short", event_type=kind)
            body = 27 + wire.u16(data, 27)
            if body < 29 or body > end:
                raise TruncatedError("extra data of a rows event runs past its end", event_type=kind)
            return body
        if end < 27:
            raise TruncatedError("rows event is too short", event_type=kind)
        return 27

    def _rows(self, data: bytes, kind: int, end: int, start: int, change: int) -> None:
        p = data
        body = 27
        if kind >= 30:
            if end < 29:
                raise TruncatedError("rows event is too short", event_type=kind)
            body = 27 + wire.u16(p, 27)
            if body < 29 or body > end:
                raise TruncatedError("extra data of a rows event runs past its end", event_type=kind)
        elif end < 27:
            raise TruncatedError("rows event is too short", event_type=kind)
        table_id = wire.u48(p, 19)
        table = self._tables.get(table_id)
        last_of_statement = wire.u16(p, 25) & 1
        if table is None:
            if table_id == 0xFFFFFF:  # a dummy that only closes the statement
                return
            raise MissingTableMapError(
                f"{event_name(kind)} names table id {table_id}, which no table map has announced", event_type=kind,
                remedy="The position lies inside a transaction: start from the beginning of one.",
            )  # fmt: skip
        txn = self._txn
        if txn is None:
            raise DecodeError(
                f"{event_name(kind)} at offset {start} outside of a transaction", event_type=kind,
                remedy="The position lies inside a transaction: start from the beginning of one.",
            )  # fmt: skip
        count = self._measure(table, data, body, end, kind, change, start)
        first = txn.row_count
        txn.row_count = first + count
        if table.accepted and txn.row_count > self._skip:
            entry = Entry(
                _ROWDATA,
                _INSERT if change == 0 else _UPDATE if change == 1 else _DELETE,
                txn, data, start, wire.u32(p, 0), wire.u32(p, 5),
            )  # fmt: skip
            entry.table = table
            entry.body = body
            entry.body_end = end
            entry.kind = change
            entry.first_row = first
            if first < self._skip:
                entry.skip_rows = self._skip - first
            entry.row_count = count - entry.skip_rows
            if self._query is not None:
                if self._query_text is None:  # one text for all rows events of the statement, accounted once
                    self._query_text = self._query.decode("utf-8", "surrogateescape")
                    entry.size += sys.getsizeof(self._query_text)
                entry.query = self._query_text
            txn.has_rows = True
            self._add(entry)
        else:
            self._ordinal += 1
        if last_of_statement:
            self._tables.clear()
            self._query = None
            self._query_text = None

    def _measure(
        self, table: TableMap, data: bytes, body: int, end: int, kind: int, change: int, start: int
    ) -> int:
        if table.decoder is None:  # filtered out, of a column type that cannot be measured: the same each time it comes
            return 0
        try:
            return table.decoder.walk(data, body, end, change)
        except DecodeError as error:
            error.event_type = kind
            error.table = f"{table.schema.schema}.{table.schema.table}"
            error.position = f"{self.journal}:{start}"
            raise

    # -- compressed transactions ------------------------------------------------------------------------------------

    def _payload(self, data: bytes, end: int, start: int) -> None:
        """TRANSACTION_PAYLOAD: the events inside have no checksums, and offsets that mean nothing."""
        for inner in iter_payload(data, end):
            kind = inner[4]
            if kind == 40 or kind == 15 or kind == 4:
                raise DecodeError(f"{event_name(kind)} inside a TRANSACTION_PAYLOAD", event_type=kind)
            self._dispatch(inner, kind, len(inner), start)
