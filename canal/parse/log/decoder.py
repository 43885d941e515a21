"""The ordered stage: raw binlog events in, entries of whole transactions out.

Never touches a socket, a file or a clock, and never decodes a value: it verifies checksums, follows journals, offsets and
GTIDs, resolves table maps, measures row images and groups events into transactions. A live dump, a file and a fake all
come through here. Event numbers and layouts: MySQL source ``libs/mysql/binlog/event``, MariaDB ``sql/log_event.h``.
"""

from __future__ import annotations

import logging
import re
import sys
import zlib
from typing import Any, Callable, Iterator

from canal import event_types as kinds
from canal.errors import (
    ChecksumError,
    DecodeError,
    HistoryError,
    LostReason,
    MissingTableMapError,
    PositionLostError,
    SourceError,
    TruncatedError,
    UnsupportedError,
)
from canal.event_types import event_name
from canal.gtid import MAX_NUMBER, parse_gtid_set
from canal.model import Entry, EntryType, EventType, TableMap, Transaction, new_entry, new_transaction
from canal.parse.log import crc
from canal.parse.log.continuity import Continuity
from canal.parse.log.events import (
    CRC_RESIDUE,
    DAMAGED,
    MAX_INFLATED_BYTES,
    Format,
    check_format,
    checksum_error,
    execute_load_query,
    inflate_query,
    inflate_rows,
    is_undecided_alter,
    iter_payload,
    parse_format,
    parse_gtid_list,
    parse_previous_gtids,
    parse_tagged_gtid,
    parse_xa_prepare,
    query_context,
    uuid_text,
)
from canal.position import TAIL_BYTES, Position, PreparedXa
from canal.rows import wire
from canal.rows.charsets import lenient_text
from canal.server_facts import Release
from canal.statement import Verb

log = logging.getLogger("canal.parse")

crc.setup()

_CRC_RESIDUE = CRC_RESIDUE  # a C integer when compiled
_MAX_GTID = MAX_NUMBER  # a C integer when compiled
#: The low half of an offset: positions in the log have 32 bits. C integers when compiled.
_LOW = 0xFFFFFFFF
_HALF = 0x80000000
_WRAP = 0x100000000
#: Digests kept before the part that nobody refers to is let go.
_TAPE_BYTES = 32768
#: A product with this odd number spreads what is in few bits over 32.
_SPREAD = 0x9E3779B1

#: So many prepared XA transactions a position names; the rows of one that it does not name are searched for.
_MOST_PREPARED = 500
#: So many savepoints of a transaction are known: RELEASE SAVEPOINT is not in the log, so none ever ends.
_MOST_SAVEPOINTS = 100_000
#: So many table maps are kept for the next time that they come, and so many bytes of them.
_MOST_MAPS = 4096
_MAP_BYTES = 16 << 20
#: What the name of every server's log ends in.
_JOURNAL = re.compile(r".+\.[0-9]{6,}", re.DOTALL)

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
        kinds.STOP,
        kinds.INTVAR, kinds.RAND, kinds.USER_VAR,  # context of a statement that follows
        kinds.APPEND_BLOCK, kinds.DELETE_FILE, kinds.BEGIN_LOAD_QUERY,  # the file of a LOAD DATA statement that follows
        kinds.IGNORABLE,
        kinds.TRANSACTION_CONTEXT, kinds.VIEW_CHANGE,  # of group replication
        kinds.BINLOG_CHECKPOINT,
        kinds.START_ENCRYPTION,  # the server decrypts before it sends; files refuse it earlier
    )
)  # fmt: skip


class BinlogDecoder:
    """Turns raw events, in order, into lists of entries.

    Args:
        resolve: called with the body of a table map that was not seen before, and the release that wrote it; gives its
            ``TableMap`` or raises.
        classify: ``(sql, default_schema, sql_mode=, flavor=) -> Statement`` for anything but BEGIN and COMMIT.
        wants: ``Statement -> Statement | None``: what is delivered of a statement.
        changed: called with each ``Statement`` that may change a schema, its text and its QUERY event, before later table
            maps are resolved.
        deliver: called with a non-empty list of entries: whole transactions, except pieces of a very large one.
        piece_bytes, piece_entries: a transaction beyond either is delivered in pieces.
        inflated_bytes: of an event that comes out of a compressed one, at most.
        read_again: ``(PreparedXa, offset) -> events``: the log from the start of a prepared XA transaction on, beginning
            with the FORMAT_DESCRIPTION; its ``journal`` is empty when its place is not known, it lies before ``offset``.
    """

    def __init__(
        self,
        resolve: Callable[[bytes, Release], TableMap],
        classify: Callable[..., Any],
        wants: Callable[[Any], Any],
        changed: Callable[[Any, str, bytes], None],
        deliver: Callable[[list[Entry]], None],
        piece_bytes: int = 4 << 20,
        piece_entries: int = 4096,
        read_again: Callable[[PreparedXa, int], Iterator[bytes]] | None = None,
        inflated_bytes: int = MAX_INFLATED_BYTES,
    ) -> None:
        self._resolve = resolve
        self._classify = classify
        self._wants = wants
        self._changed = changed
        self._deliver = deliver
        self._piece_bytes = piece_bytes
        self._inflated_bytes = inflated_bytes
        self._piece_entries = piece_entries
        self._read_again = read_again
        self._replaying = False
        self._replayed = None
        self._replayed_rows = 0
        self._adopting = 0
        self._told_prepared = False
        self.follow_only = False
        self._gtid_sources = {}
        self._maps = {}
        self._map_bytes = 0
        self.destination = ""
        self.event_count = 0
        self.byte_count = 0
        self.statement_count = 0
        self.transaction_count = 0
        self.timestamp = 0
        self.reset(Position(), "mysql", "", None)

    def reset(
        self, position: Position, flavor: str, source: str, executed: Any, digests: bool = False,
        continuity: Continuity | None = None,
    ) -> None:
        """Forget everything about the stream: the next event is the first of a new dump from ``position``.

        ``executed`` is the set of GTIDs done at ``position`` (or None when it is not known); ``position.row`` row changes
        of the first transaction are left out. The rows of XA transactions that are prepared already are read again when
        they are committed. ``digests`` makes positions carry those of the last transactions. ``continuity`` proves that
        nothing is missing; without it nobody asks, as in a part of a log that is read again.
        """
        self._continuity = continuity
        self._strict = continuity is not None and continuity.by_offset
        self._doubtful = False
        self.incarnation = ""
        self.purged = ""
        self.known = []  # (domain, server id, number): done up to these, but the source may send them (MariaDB)
        self.leaves_out = False  # transactions have come that are done
        self._done_to = 0
        self.journal = position.journal
        self.offset = self._at = position.offset
        # A dump by GTID set begins at the start of a log and passes over what is done, so it tells no multiples of 4 GiB.
        self._floor = position.offset if position.offset > 0xFFFFFFFF and position.source in ("", source) else 0
        self._floor_journal = position.journal
        self.flavor = flavor
        self._gtid_sources.clear()
        self._sid = b""
        self._pair = None
        self._source = source
        self._format = None
        self._writer = None
        self._checksum = False
        self._unproved = False
        self._table = None
        self._tables = {}
        self._txn = None
        self._pending = []
        self._pending_bytes = 0
        self._out = []
        self._out_bytes = 0
        self._part = 0
        self._ordinal = 0
        self._skip = position.row
        self._skip_later = 0
        self._skipping = position.row > 0
        self._skip_timestamp = position.timestamp // 1000
        self._skip_server = position.server_id
        self._group = False
        self._bare = False
        self._alone = False
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
        self._forget_maps()
        self._savepoints = {}
        self._in_xa = False
        self._undecided = False
        self._released = False
        self._xa_mark = None
        self._held = {}
        self._held_bytes = 0
        self._tape = bytearray.fromhex(position.tail) if digests else None
        self._digest = 0
        self._digest_of = 0
        self._digest_head = 0
        self._digesting = self._digest_ddl = False
        if position.source and position.source != source:  # places in the logs of another server
            self.prepared = tuple([PreparedXa(one.xid, "", 0) for one in position.xa])
        else:
            self.prepared = position.xa

    def feed(self, events: list[bytes]) -> None:
        """Take whole raw events (19-byte header to checksum) in the order of the stream.

        What was complete before a fault is handed over before the error is raised.
        """
        try:
            for data in events:
                self._event(data)
        except (SourceError, HistoryError) as error:
            if error.position is None:
                error.position = f"{self.journal}:{self._at}"
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
    def held_bytes(self) -> int:
        """Bytes of the open transaction, and of prepared ones that wait for their XA COMMIT."""
        return self._pending_bytes + self._out_bytes + self._held_bytes

    @property
    def is_inside_transaction(self) -> bool:
        return self._txn is not None

    @property
    def place(self) -> Position:
        """The position behind the present event, as if the transaction that it belongs to were done."""
        base, source = self._executed_now(), self._gtid_source
        if base is not None and self._group and source is not None:
            base = base.add(*source, self._gtid_number) if type(source) is tuple else base.add(source, self._gtid_number)
        return Position(
            self.journal, self.offset, "" if base is None else base, source=self._source, incarnation=self.incarnation
        )

    @property
    def group_place(self) -> Position:
        """The position before the transaction that the present event belongs to."""
        base = self._executed_now()
        offset = self._group_offset if self._group else self.offset
        return Position(
            self.journal, offset, "" if base is None else base, source=self._source, incarnation=self.incarnation
        )

    @property
    def server_version(self) -> str:
        """Version of the server that wrote the present journal."""
        return "" if self._format is None else self._format.server_version

    # -- framing of one event -------------------------------------------------------------------------------------

    def _event(self, data: bytes) -> None:
        p = data
        size = len(data)
        self._at = self.offset
        if size < 19:
            raise TruncatedError(f"an event of {size} bytes has no room for its header")
        kind = p[4]
        if wire.u32(p, 9) != size:
            raise DecodeError(
                f"an event of {size} bytes says it has {wire.u32(p, 9)}", event_type=kind, remedy="The log is damaged here."
            )
        self.event_count += 1
        self.byte_count += size
        if kind == kinds.FORMAT_DESCRIPTION:
            self._format_description(data)
        if self._format is None and kind != kinds.ROTATE:
            raise DecodeError(f"{event_name(kind)} before the FORMAT_DESCRIPTION of its log", event_type=kind)
        end = size
        if self._checksum:
            end = size - 4
            if end < 19:
                raise TruncatedError(f"{event_name(kind)} of {size} bytes has no room for its checksum", event_type=kind)
            if kind != kinds.FORMAT_DESCRIPTION and crc.crc32(p, size) != _CRC_RESIDUE:
                raise checksum_error(data)
        log_pos = wire.u32(p, 13)
        start = self.offset
        if log_pos == 0 or wire.u16(p, 17) & kinds.ARTIFICIAL_F:
            if not (
                kind == kinds.ROTATE or kind == kinds.FORMAT_DESCRIPTION or kind == kinds.HEARTBEAT
                or kind == kinds.PREVIOUS_GTIDS or kind == kinds.HEARTBEAT_V2 or kind == kinds.MARIADB_GTID_LIST
                or kind == kinds.START_ENCRYPTION
            ):
                self.offset = start + size  # MariaDB 11.4 and later: no positions inside a transaction
        elif kind != kinds.HEARTBEAT and kind != kinds.HEARTBEAT_V2:
            expected = start + size
            if (expected & _LOW) != log_pos:
                # What was not sent leaves a hole, never a way back; a hole over a wrap of 4 GiB is a small one.
                if kind == kinds.FORMAT_DESCRIPTION:  # the first event of its log
                    expected = size + 4
                hole = (log_pos - expected) & _LOW
                if (expected & _LOW) > log_pos and hole >= _HALF:
                    raise DecodeError(
                        f"{event_name(kind)} of {size} bytes that begins at {start} or later says it ends at {log_pos}",
                        event_type=kind, remedy="The log is damaged here.",
                    )  # fmt: skip
                if hole and self._strict and kind != kinds.FORMAT_DESCRIPTION:
                    raise DecodeError(
                        f"{hole} bytes are missing before the {event_name(kind)} that ends at {log_pos}",
                        event_type=kind, remedy="The log is damaged here.",
                    )  # fmt: skip
                expected += hole
                if self._floor and self.journal == self._floor_journal and not (
                    kind == kinds.FORMAT_DESCRIPTION or kind == kinds.PREVIOUS_GTIDS or kind == kinds.MARIADB_GTID_LIST
                ):
                    while expected - size < self._floor:
                        expected += _WRAP
                start = self._at = expected - size
            self.offset = expected
        self._dispatch(data, kind, end, start)

    def _dispatch(self, data: bytes, kind: int, end: int, start: int) -> None:
        p = data
        if kind == kinds.TABLE_MAP:
            self._table_map(data, end)
        elif kind == kinds.WRITE_ROWS or kind == kinds.WRITE_ROWS_V1:
            self._rows(data, kind, end, start, 0)
        elif kind == kinds.UPDATE_ROWS or kind == kinds.UPDATE_ROWS_V1:
            self._rows(data, kind, end, start, 1)
        elif kind == kinds.DELETE_ROWS or kind == kinds.DELETE_ROWS_V1:
            self._rows(data, kind, end, start, 2)
        elif kind == kinds.XID:
            if end < 27:
                raise TruncatedError("XID event is too short", event_type=kind)
            if self._txn is not None:
                self._txn.xid = wire.u64(p, 19)
            self._finish(data, start)
        elif kind == kinds.QUERY:
            self._query_event(data, end, start)
        elif kind == kinds.GTID:
            self._gtid(data, end, start)
        elif kind == kinds.MARIADB_GTID:
            self._mariadb_gtid(data, end, start)
        else:
            self._rare(data, kind, end, start)

    def _rare(self, data: bytes, kind: int, end: int, start: int) -> None:
        p = data
        if kind in _IGNORED:
            if kind == kinds.STOP and self._continuity is not None:
                self._continuity.stop()
            return
        if kind == kinds.HEARTBEAT or kind == kinds.HEARTBEAT_V2:
            return
        if kind == kinds.FORMAT_DESCRIPTION:
            return
        if kind == kinds.ROTATE:
            self._rotate(data, end)
        elif kind == kinds.ANONYMOUS_GTID:
            self._start_group(start, None, 0)
        elif kind == kinds.GTID_TAGGED:
            self._check_flavor(kind, "mysql")
            source, number = parse_tagged_gtid(data, end)
            self._start_group(start, self._gtid_sources.setdefault(source, source), number)
        elif kind == kinds.PREVIOUS_GTIDS:
            self._check_flavor(kind, "mysql")
            if self._run_base is not None:
                self._check_listed(parse_previous_gtids(data, end))
            else:
                executed = parse_previous_gtids(data, end)
                if executed or self.purged:  # GTIDs that were purged by hand are in no log
                    executed = executed | parse_gtid_set(self.purged, "mysql")
                self._adopt_executed(executed)
        elif kind == kinds.MARIADB_GTID_LIST:
            self._check_flavor(kind, "mariadb")
            if self._run_base is None:
                self._adopt_executed(parse_gtid_list(data, end))
            elif wire.u32(p, 13) and not wire.u16(p, 17) & kinds.ARTIFICIAL_F:  # else one that tells a replica where it is
                self._check_listed(parse_gtid_list(data, end))
        elif kind == kinds.ROWS_QUERY:  # one length byte that cannot hold the length, then the text
            self._query = data[20:end]
            self._query_text = None
        elif kind == kinds.ANNOTATE_ROWS:
            self._query = data[19:end]
            self._query_text = None
        elif kind == kinds.TRANSACTION_PAYLOAD:
            self._payload(data, end, start)
        elif kind == kinds.QUERY_COMPRESSED:
            self._query_event(inflate_query(data, end, self._inflated_bytes), -1, start)
        elif kind == kinds.EXECUTE_LOAD_QUERY:
            self._query_event(execute_load_query(data, end), -1, start)
        elif kinds.WRITE_ROWS_COMPRESSED_V1 <= kind <= kinds.DELETE_ROWS_COMPRESSED:
            plain = inflate_rows(data, end, kind, self._body_start(data, kind, end), self._inflated_bytes)
            change = (kind - kinds.WRITE_ROWS_COMPRESSED_V1) % 3
            first = kinds.WRITE_ROWS_V1 if kind < kinds.WRITE_ROWS_COMPRESSED else kinds.WRITE_ROWS
            self._rows(plain, first + change, len(plain), start, change)
        elif kind == kinds.PARTIAL_UPDATE_ROWS:
            self._rows(data, kind, end, start, 3)
        elif kind == kinds.INCIDENT:
            raise SourceError(
                f"the source reports an INCIDENT at {self.journal}:{start}: changes may be missing from its log",
                remedy="Compare the tables with the source, then start from a position after the incident.",
            )
        elif kind == kinds.XA_PREPARE:
            self._prepare_xa(data, end, start)
        elif wire.u16(p, 17) & kinds.IGNORABLE_F:
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
        check_format(data, form)
        if form.checksum and self._unproved and not _JOURNAL.fullmatch(self.journal):
            raise ChecksumError("the ROTATE before it has a wrong CRC32", event_type=kinds.ROTATE, remedy=DAMAGED)
        self._unproved = False
        self._format = form
        self._writer = form.release
        if self.flavor == "mariadb" and not form.release.is_mariadb:  # its version was set by hand: the number is none of MariaDB
            self._writer = Release("mariadb", (sys.maxsize,))
        self._checksum = form.checksum
        if self._continuity is not None:
            self.incarnation = self._continuity.describe(data, form)
            self._doubtful = self._continuity.is_open
        # Only where the log is read from its beginning: else such rows are the rest of a transaction.
        self._bare = not form.release.has("transactions_logged") and wire.u32(data, 13) != 0
        self._forget_tables()
        if form.created and self._txn is not None:
            if self._part:
                raise SourceError(
                    f"the source stopped inside transaction {self._txn!r} whose first rows are already delivered",
                    remedy="Undo the rows of this transaction, then continue from its start.",
                )
            log.warning(
                "[%s] the source stopped inside %r; the server rolls it back and so do we", self.destination, self._txn
            )
        if form.created:
            self._drop_transaction()

    def _rotate(self, data: bytes, end: int) -> None:
        if end < 27:
            raise TruncatedError("ROTATE event is too short", event_type=kinds.ROTATE)
        offset = wire.u64(data, 19)
        stop = end
        if self._format is None:  # the ROTATE that opens a dump comes before the FORMAT_DESCRIPTION that tells of checksums
            self._unproved = crc.crc32(data, len(data)) != _CRC_RESIDUE
            if not self._unproved and end - 27 > 4:
                stop = end - 4
        if data[26] & 0xC0:
            raise DecodeError("ROTATE to an offset that no file has", event_type=kinds.ROTATE, remedy="The log is damaged here.")
        name = data[27:stop].rstrip(b"\0").decode("utf-8", "surrogateescape")
        if self._continuity is not None:
            if wire.u32(data, 13) and not wire.u16(data, 17) & kinds.ARTIFICIAL_F:
                self._continuity.announce(name, wire.u32(data, 0))
            else:
                self._continuity.enter(name, self.offset)
                self._doubtful = self._continuity.is_open
        if name != self.journal or offset != self.offset:
            if name != self.journal:
                self.incarnation = ""  # until its FORMAT_DESCRIPTION
            self.journal = name
            self.offset = offset
        self._forget_tables()

    def _check_listed(self, listed: Any) -> None:
        if self._continuity is not None:
            executed = self._executed_now()
            source = self._run_source
            last = (*source, self._run_last) if self._run_last and type(source) is tuple else None
            known = self._continuity.list(listed, executed, last)
            if known is not executed:
                self._adopt_executed(known)
            self._doubtful = self._continuity.is_open

    def _adopt_executed(self, executed: Any) -> None:
        if self._group:
            raise DecodeError(
                "a list of the GTIDs before it stands inside a transaction", remedy="The log is damaged here."
            )
        self._run_base = executed
        self._run_source = None
        self._run_last = 0

    # -- transactions ---------------------------------------------------------------------------------------------

    def _check_flavor(self, kind: int, flavor: str) -> None:
        if self.flavor != flavor:
            raise DecodeError(
                f"{event_name(kind)} in a log of {self.flavor}", event_type=kind,
                remedy="The log is damaged here, or joined from those of two servers.",
            )  # fmt: skip

    def _gtid(self, data: bytes, end: int, start: int) -> None:
        p = data
        if end < 44:
            raise TruncatedError("GTID event is too short", event_type=kinds.GTID)
        if not self._sid or not wire.same(p, 20, self._sid, 0, 16):
            sid = data[20:36]
            if sid not in self._gtid_sources:
                self._check_flavor(kinds.GTID, "mysql")
                self._gtid_sources[sid] = uuid_text(sid)
            self._sid_text = self._gtid_sources[sid]
            self._sid = sid
        if not 0 < wire.u64(p, 36) <= _MAX_GTID:
            raise DecodeError(
                f"a GTID has the number {wire.u64(p, 36)}", event_type=kinds.GTID, remedy="The log is damaged here."
            )
        self._start_group(start, self._sid_text, wire.u64(p, 36))

    def _mariadb_gtid(self, data: bytes, end: int, start: int) -> None:
        p = data
        if end < 32:
            raise TruncatedError("MariaDB GTID event is too short", event_type=kinds.MARIADB_GTID)
        flags = p[31]
        if self._pair is None or wire.u32(p, 27) != self._domain or wire.u32(p, 5) != self._server:
            pair = (wire.u32(p, 27), wire.u32(p, 5))
            if pair not in self._gtid_sources:
                self._check_flavor(kinds.MARIADB_GTID, "mariadb")
                self._gtid_sources[pair] = pair
            self._pair = self._gtid_sources[pair]
            self._domain, self._server = self._pair
        self._start_group(start, self._pair, wire.u64(p, 19))
        self._undecided = flags & kinds.FL_DDL != 0 and is_undecided_alter(data, end)
        if not flags & (kinds.FL_STANDALONE | kinds.FL_COMPLETED_XA):
            self._open(data, start)
            self._in_xa = flags & kinds.FL_PREPARED_XA != 0

    def _start_group(self, start: int, source: Any, number: int) -> None:
        if self._txn is not None:
            raise DecodeError(f"a transaction begins at offset {start} before {self._txn!r} has ended")
        if self._doubtful:
            self._doubtful = False
            self._continuity.check()
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
        self._done_to = 0
        if self._continuity is not None and source is not None and not self.known:
            self._done_to = self._continuity.follow(source, number, self._run_base)
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
        txn = new_transaction(self._source, self.journal, self._group_offset, wire.u32(p, 5), wire.u32(p, 0))
        txn.gtid_source = self._gtid_source
        txn.gtid_number = self._gtid_number
        txn.gtid_first = self._run_first
        txn.gtid_previous = self._gtid_previous
        txn.gtid_base = self._run_base
        txn.xa = txn.xa_end = self.prepared
        if self._tape is not None:
            if len(self._tape) > _TAPE_BYTES:
                self._tape = self._tape[-TAIL_BYTES:]
            txn.tape = self._tape
            txn.tape_start = txn.tape_end = len(self._tape)
        txn.before = self.transaction_count
        txn.incarnation = self.incarnation
        if self._gtid_source is not None and self._gtid_number <= self._done_to:
            txn.is_done = self.leaves_out = True
        if self._skipping and self.is_known(txn):  # the one whose first rows are done comes behind it
            self._skip_later, self._skip, self._skipping = self._skip, 0, False
        if self._skipping and self._skip_timestamp and (
            txn.timestamp != self._skip_timestamp or txn.server_id != self._skip_server
        ):
            raise PositionLostError(
                f"the cursor says that {self._skip} rows are done of a transaction that server {self._skip_server} made "
                f"at {self._skip_timestamp}, but the source continues with {txn!r} of server {txn.server_id} at {txn.timestamp}",
                reason=LostReason.DIVERGED,
                remedy="The source lost or reordered transactions: undo those rows, then continue with row 0.",
            )
        self._txn = txn
        self._ordinal = 0
        self._part = 1 if self._skipping else 0
        self.timestamp = txn.timestamp
        return txn

    def is_known(self, txn: Transaction) -> bool:
        """Whether the source sends what another one sent before."""
        if txn.is_done:
            return True
        for domain, server, number in self.known:
            if txn.gtid_source == (domain, server) and txn.gtid_number <= number:
                return True
        return False

    def _open(self, data: bytes, start: int) -> None:
        p = data
        txn = self._new_transaction(data, start)
        entry = new_entry(_BEGIN, _QUERY, txn, data, start, wire.u32(p, 0), wire.u32(p, 5))
        entry.first_row = self._skip  # acking a BEGIN that came again must not move the cursor back
        self._add(entry)

    def _add(self, entry: Entry) -> None:
        entry.ordinal = self._ordinal
        self._ordinal += 1
        entry.part = self._part
        self._pending.append(entry)
        self._pending_bytes += entry.size
        if self._pending_bytes > self._piece_bytes or len(self._pending) > self._piece_entries:
            if self._in_xa and not self._replaying:
                self._let_go()
            else:
                self._hand_piece()

    def _hand_piece(self) -> None:
        """Give out the first part of a transaction that is too large to wait for its end."""
        for entry in self._pending:
            entry.last = False
        self._part += 1
        self._out.extend(self._pending)
        self._out_bytes += self._pending_bytes
        del self._pending[:]
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
        entry = new_entry(_END, _QUERY, txn, data, start, wire.u32(p, 0), wire.u32(p, 5))
        entry.is_end = True
        entry.row_count = 0
        entry.first_row = txn.row_count
        entry.ordinal = self._ordinal
        entry.part = self._part
        txn.end = self.offset
        self.timestamp = wire.u32(p, 0)
        if self._xa_mark is not None:
            entry.props["XA_TYPE"], entry.props["XA_XID"] = self._xa_mark
            self._xa_mark = None
        self._pending.append(entry)
        self._release(entry.size)

    def _check_skipped(self, txn: Transaction) -> None:
        if self._skipping and txn.row_count < self._skip:
            raise PositionLostError(
                f"the cursor says that {self._skip} rows of {txn!r} are done, but it has {txn.row_count}",
                reason=LostReason.DIVERGED,
                remedy="The source's log is not the one that the cursor was taken from: undo those rows, and start anew.",
            )

    def _release(self, size: int) -> None:
        """The open transaction has ended: its entries may go."""
        self.transaction_count += 1
        self._out.extend(self._pending)
        self._out_bytes += self._pending_bytes + size
        del self._pending[:]
        self._pending_bytes = 0
        if self._digesting:
            self._close_digest(self._txn)
        self._txn = None
        self._skip = self._skip_later
        self._skip_later = 0
        self._skipping = self._skip > 0
        self._query = None
        self._query_text = None
        self._part = 0
        self._in_xa = False
        self._released = False
        if self._savepoints:
            self._savepoints.clear()
        self._close_group()
        if self._out_bytes > self._piece_bytes or len(self._out) > self._piece_entries:
            self.flush()

    def _close_group(self) -> None:
        if self._group and self._gtid_source is not None:
            self._run_last = self._gtid_number
        self._group = False
        self._gtid_source = None

    def _drop_transaction(self) -> None:
        self._alone = False
        self._digesting = self._digest_ddl = False
        del self._pending[:]
        self._pending_bytes = 0
        self._txn = None
        self._in_xa = False
        self._released = False
        self._savepoints.clear()
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
            raise TruncatedError("QUERY event is too short", event_type=kinds.QUERY)
        schema_end = 32 + wire.u16(p, 30) + p[27]
        sql_start = schema_end + 1
        if sql_start > end:
            raise TruncatedError("QUERY event is too short", event_type=kinds.QUERY)
        size = end - sql_start
        if size == 5 and wire.same(p, sql_start, b"BEGIN", 0, 5):
            if self._txn is None:  # MariaDB's GTID has opened it already
                self._open(data, start)
                self._txn.thread_id = wire.u32(p, 19)
        elif size == 6 and wire.same(p, sql_start, b"COMMIT", 0, 6):
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
            if statement.verb == Verb.SAVEPOINT and self._txn is not None:
                self._savepoints.pop(statement.savepoint, None)  # set again it is the newest
                self._savepoints[statement.savepoint] = (len(self._pending), self._txn.row_count, self._part)
                if len(self._savepoints) > _MOST_SAVEPOINTS:
                    del self._savepoints[next(iter(self._savepoints))]
            return
        if self._tape is not None:
            self._digest_statement(data, statement, sql)
        if kind == "xa":
            self._xa_statement(data, start, statement)
            return
        if self._undecided:
            self._undecided = False
            self._unwanted_statement(data, start, statement)
            return
        self._statement_entry(data, start, sql, statement)

    def _rollback(self, data: bytes, start: int, statement: Any) -> None:
        """Servers from 5.5 on log ROLLBACK [TO] only where something that is not in these rows cannot be undone.

        Rows of tables without transactions are in groups of their own, so all rows here are undone; statements may have
        changed such tables and stay.
        """
        txn = self._txn
        if statement.verb != Verb.ROLLBACK_TO:
            if txn is not None:
                if self._released:
                    raise SourceError(
                        f"{txn!r} is rolled back, but a statement of it may have changed a table without transactions, and "
                        "it is too large to be held", remedy="Continue with a larger store_bytes.",
                    )  # fmt: skip
                self._undo(txn, 0, 0, 1 if self._skipping else 0)
            self._finish(data, start)
            return
        if txn is None:
            return
        place = self._savepoints.get(statement.savepoint)
        if place is None:
            raise DecodeError(
                f"ROLLBACK TO {statement.savepoint!r}, which is not among the last {_MOST_SAVEPOINTS} savepoints that {txn!r} "
                "has set", event_type=kinds.QUERY,
                remedy="Nothing was skipped. Please report this with the log.",
            )  # fmt: skip
        self._undo(txn, place[0], place[1], place[2])

    def _undo(self, txn: Transaction, length: int, row: int, part: int) -> None:
        """Take back the rows behind the first ``length`` entries and ``row`` rows of the open transaction."""
        if txn.row_count == row or self._released:
            return
        if not self._format.release.has("savepoints_logged"):
            raise UnsupportedError(
                f"ROLLBACK in {txn!r}: servers before 5.5 do not tell which of its rows it undoes", event_type=kinds.QUERY,
                remedy="Nothing was skipped. Compare the tables by hand and go on behind this transaction.",
            )  # fmt: skip
        if part != self._part or row < self._skip <= txn.row_count:
            raise SourceError(
                f"{txn!r} takes back rows that are delivered already, because it is larger than a piece of the store",
                remedy="Undo the rows of this transaction, then continue from its start with a larger store_bytes.",
            )
        log.info("[%s] %r takes back %d of its rows", self.destination, txn, txn.row_count - row)
        kept = [entry for entry in self._pending[length:] if entry.table is None]
        undone = [entry for entry in self._pending[length:] if entry.table is not None]
        self._pending[length:] = kept
        for entry in undone:
            self._pending_bytes -= entry.size
        for entry in kept:  # a cursor behind it does not say that the rows before it were delivered
            entry.first_row = max(row, self._skip)
        txn.row_count += 1  # counts as a row: a cursor that is behind it differs from one behind the last row before it
        txn.has_rows = any(entry.entry_type == _ROWDATA for entry in self._pending) or self._part > 0

    def _statement_entry(self, data: bytes, start: int, sql: str, statement: Any) -> None:
        p = data
        if statement.kind != "dml":
            self._forget_maps()
            self._changed(statement, sql, data)
        wanted = self._wants(statement)
        if wanted is None:
            self._unwanted_statement(data, start, statement)
            return
        statement = wanted
        alone = self._txn is None
        opens = alone and statement.starts_transaction  # MySQL's atomic CREATE TABLE … SELECT
        if opens:
            self._open(data, start)
        elif alone:
            self._new_transaction(data, start)
        txn = self._txn
        txn.thread_id = wire.u32(p, 19)
        txn.has_rows = True
        entry = new_entry(_ROWDATA, EventType[statement.event_type], txn, data, start, wire.u32(p, 0), wire.u32(p, 5))
        entry.sql = sql
        entry.size += sys.getsizeof(sql)
        entry.statement = statement
        entry.first_row = max(txn.row_count, self._skip)
        if statement.kind == "dml":
            self.statement_count += 1
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

    # -- XA transactions: their rows come before the decision about them ---------------------------------------------

    def _xa_statement(self, data: bytes, start: int, statement: Any) -> None:
        verb = statement.verb
        if verb == Verb.XA_START:
            if self._txn is None:  # MariaDB's GTID has opened it already
                self._open(data, start)
                self._txn.thread_id = wire.u32(data, 19)
            self._in_xa = True
            return
        if verb == Verb.XA_END:
            return
        if not statement.xid:
            raise DecodeError(
                "the identifier of an XA transaction does not read as one", event_type=kinds.QUERY,
                remedy="Nothing was skipped. Please report this with the log.",
            )  # fmt: skip
        if self._txn is not None:
            if verb == Verb.XA_ROLLBACK and self._in_xa:  # not prepared: MySQL's ROLLBACK of statements
                self._rollback(data, start, statement)
                return
            raise DecodeError(f"the end of XA transaction {statement.xid} inside {self._txn!r}", event_type=kinds.QUERY)
        place = next((one for one in self.prepared if one.xid == statement.xid), None)
        self._open(data, start)
        if verb == Verb.XA_COMMIT and (place is not None or not self.follow_only):
            self._commit_xa(place or PreparedXa(statement.xid, "", 0), start)
        self._finish_xa(data, start, "XA COMMIT" if verb == Verb.XA_COMMIT else "XA ROLLBACK", statement.xid, None)

    def _finish_xa(self, data: bytes, start: int, what: str, xid: str, held: tuple[list[Entry], int, int] | None) -> None:
        """End the open transaction, with canal's marks; ``held`` are the rows that wait for a later one (None: no more)."""
        txn = self._txn
        self._forget_xa(xid)
        if what == "XA PREPARE":
            self.prepared += (PreparedXa(xid, txn.journal, txn.offset),)
            if len(self.prepared) > _MOST_PREPARED and not self.follow_only:
                self._shorten_prepared()
            if held is not None and self._held_bytes + held[2] <= self._piece_bytes:
                self._held[xid] = held
                self._held_bytes += held[2]
        txn.xa_end = self.prepared
        self._xa_mark = (what, xid)
        self._finish(data, start)

    def _forget_xa(self, xid: str) -> None:
        """Drop what is known of an XA transaction: of that name there is another one, or none."""
        old = self._held.pop(xid, None)
        if old is not None:
            self._held_bytes -= old[2]
        self.prepared = tuple([one for one in self.prepared if one.xid != xid])

    def _shorten_prepared(self) -> None:
        """Some servers forget what is prepared when they restart, and the log says nothing of it."""
        level = logging.INFO if self._told_prepared else logging.WARNING
        log.log(
            level, "[%s] more than %d XA transactions are prepared: the place of %s is not kept any more, its rows are searched "
            "for if it is committed. XA RECOVER on the source tells which are prepared",
            self.destination, _MOST_PREPARED, self.prepared[0].xid,
        )  # fmt: skip
        self._told_prepared = True
        self.prepared = self.prepared[1:]

    def _prepare_xa(self, data: bytes, end: int, start: int) -> None:
        """The rows of the open transaction wait for XA COMMIT; the transaction itself is delivered empty."""
        one_phase, xid = parse_xa_prepare(data, end)
        txn = self._txn
        if self._replaying:
            self._replayed = xid
            self._replayed_rows = 0 if txn is None else txn.row_count
            self._finish(data, start)
        elif one_phase or txn is None:
            self._forget_xa(xid)
            if txn is not None:
                txn.xa_end = self.prepared
            if self._released:
                self._let_go()  # the rows behind those that were let go: all are read again
                self._commit_xa(PreparedXa(xid, txn.journal, txn.offset), start)
            self._finish(data, start)
        else:
            held = None
            if not self._released:
                held = ([entry for entry in self._pending if entry.entry_type == _ROWDATA], txn.row_count, self._pending_bytes)
            self._pending = [entry for entry in self._pending if entry.entry_type != _ROWDATA]
            self._pending_bytes = 0
            txn.row_count = 0
            txn.has_rows = False
            self._finish_xa(data, start, "XA PREPARE", xid, held)

    def _let_go(self) -> None:
        """An XA transaction that is too large to be held: its rows are read again when it is committed."""
        self._pending = [one for one in self._pending if one.entry_type == _BEGIN]
        self._pending_bytes = 0
        self._released = True

    def _commit_xa(self, place: PreparedXa, start: int) -> None:
        """Give out the rows of a prepared transaction as part of the open one."""
        txn = self._txn
        in_one_phase = place.offset == txn.offset and place.journal == txn.journal
        self._adopting = -1 if in_one_phase else start
        self._in_xa = False
        self._released = False
        held = self._held.get(place.xid)
        if held is not None:
            self._adopt(held[0])
            txn.row_count = held[1]
            return
        if self._read_again is None:
            raise UnsupportedError(
                f"the rows of XA transaction {place.xid} lie before the start, and this source cannot be read again there",
                event_type=kinds.QUERY, remedy="Start before its XA PREPARE.",
            )  # fmt: skip
        log.info("[%s] reading the rows of XA transaction %s again", self.destination, place.xid)
        again = BinlogDecoder(
            self._resolve, self._classify, self._wants, self._changed, self._adopt, self._piece_bytes, self._piece_entries,
            inflated_bytes=self._inflated_bytes,
        )
        again.destination = self.destination
        again.reset(Position(row=self._skip), self.flavor, self._source, None)
        again._replaying = True
        try:
            for event in self._read_again(place, start):
                again.feed([event])
                if again._replayed is not None:
                    break
        except PositionLostError as error:
            error.behind = self.place
            raise
        if again._replayed != place.xid:
            raise SourceError(
                f"the log does not hold the rows of XA transaction {place.xid}, which {txn!r} commits",
                remedy="The source's log is not the one that the cursor was taken from.",
            )
        txn.row_count = again._replayed_rows

    def _adopt(self, entries: list[Entry]) -> None:
        """Make entries of a prepared transaction part of the open one, which commits it: at its place, in its GTID."""
        txn = self._txn
        for entry in entries:
            if entry.entry_type == _ROWDATA:
                entry.transaction = txn
                if self._adopting >= 0:
                    entry.offset = self._adopting
                entry.is_end = False
                entry.last = True  # until a piece is made of it
                txn.has_rows = True
                self._ordinal = entry.ordinal
                self._add(entry)

    # -- rows -----------------------------------------------------------------------------------------------------

    def _table_map(self, data: bytes, end: int) -> None:
        p = data
        if end < 29:
            raise TruncatedError("TABLE_MAP event is too short", event_type=kinds.TABLE_MAP)
        if len(self._body) != end - 25 or not wire.same(p, 25, self._body, 0, end - 25):
            body = data[25:end]
            table = self._maps.get(body)
            if table is None:
                table = self._resolve(body, self._writer)
                if len(self._maps) >= _MOST_MAPS or self._map_bytes > _MAP_BYTES:
                    self._forget_maps()
                self._maps[body] = table
                self._map_bytes += table.size
            self._body = body
            self._body_table = table
        table_id = wire.u48(p, 19)
        if self._table is None or self._table_id == table_id:
            self._table = self._body_table
            self._table_id = table_id
        else:
            self._tables[table_id] = self._body_table

    def _find_table(self, table_id: int) -> TableMap | None:
        """Of the statement's table maps; most statements have one."""
        if self._table is not None and self._table_id == table_id:
            return self._table
        return self._tables.get(table_id)

    def _forget_tables(self) -> None:
        self._table = None
        if self._tables:
            self._tables.clear()

    def _forget_maps(self) -> None:
        self._maps.clear()
        self._map_bytes = 0
        self._body = b""
        self._body_table = None

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
        if kind >= kinds.WRITE_ROWS:
            if end < 29:
                raise TruncatedError("rows event is too short", event_type=kind)
            body = 27 + wire.u16(p, 27)
            if body < 29 or body > end:
                raise TruncatedError("extra data of a rows event runs past its end", event_type=kind)
        elif end < 27:
            raise TruncatedError("rows event is too short", event_type=kind)
        table_id = wire.u48(p, 19)
        table = self._find_table(table_id)
        last_of_statement = wire.u16(p, 25) & 1
        if table is None:
            if table_id == 0xFFFFFF:  # a dummy that only closes the statement
                if last_of_statement:
                    self._close_statement()
                return
            raise MissingTableMapError(
                f"{event_name(kind)} names table id {table_id}, which no table map has announced", event_type=kind,
                remedy="The position lies inside a transaction: start from the beginning of one.",
            )  # fmt: skip
        txn = self._txn
        if txn is None and self._bare:
            self._open(data, start)
            self._alone = True
            txn = self._txn
        if txn is None:
            raise DecodeError(
                f"{event_name(kind)} at offset {start} outside of a transaction", event_type=kind,
                remedy="The position lies inside a transaction: start from the beginning of one.",
            )  # fmt: skip
        count = self._measure(table, data, body, end, kind, change, start)
        if self._tape is not None:
            self._digest_rows(table, data, body, end, change)
        first = txn.row_count
        txn.row_count = first + count
        if table.accepted and txn.row_count > self._skip:
            entry = new_entry(
                _ROWDATA,
                _INSERT if change == 0 else _DELETE if change == 2 else _UPDATE,
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
            entry.size += table.size  # accounted once: the rows behind it are at most as many tables' as are kept here
            table.size = 0
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
            self._close_statement()
            if self._alone:
                self._alone = False
                self._finish(data, start)

    def _close_statement(self) -> None:
        self._forget_tables()
        self._query = None
        self._query_text = None

    def _measure(
        self, table: TableMap, data: bytes, body: int, end: int, kind: int, change: int, start: int
    ) -> int:
        rows = table.decoder
        if rows is None:  # filtered out, of a column type that cannot be measured: the same each time it comes
            return 0
        try:
            return rows.walk(data, body, end, change)
        except DecodeError as error:
            error.event_type = kind
            error.table = f"{table.schema.schema}.{table.schema.table}"
            error.position = f"{self.journal}:{start}"
            raise

    # -- digests of transactions: the same in the log of every replica, which has its own table ids, offsets, pieces, formats
    # -- of rows and words for statements

    def _digest_rows(self, table: TableMap, data: bytes, body: int, end: int, change: int) -> None:
        if self._digest_ddl:  # CREATE TABLE … SELECT, of which a replica may make two transactions
            self._close_digest(self._txn)
        self._digest_part(data, table.digest + change)
        rows = table.decoder
        # Of MariaDB's old temporal values a log that is searched does not tell how long they are.
        if rows is not None and not (rows.old_temporals and self.flavor == "mariadb"):
            self._digest = zlib.crc32(rows.canonical(data, body, end, change), self._digest)

    def _digest_statement(self, data: bytes, statement: Any, sql: str) -> None:
        """What a statement does: each server words anew what it logs. Temporary tables only some of them log."""
        if statement.temporary:
            return
        if statement.kind == "ddl":
            self._digest_ddl = True
        words = [sql]
        if statement.kind != "dml" and not statement.doubtful:
            words = [statement.event_type, statement.database, statement.xid, *map(".".join, statement.tables)]
        self._digest_part(data, zlib.crc32("\0".join(words).encode("utf-8", "surrogateescape")))

    def _digest_part(self, data: bytes, of: int) -> None:
        """What follows is of a table or statement that ``of`` stands for."""
        p = data
        if not self._digesting:
            self._digesting = True
            self._digest_head = (wire.u32(p, 0) + wire.u32(p, 5) * _SPREAD) & _LOW  # which a replica keeps
            self._digest = 0
            self._digest_of = 0
        if of != self._digest_of:
            self._digest_of = of
            self._digest = ((self._digest + of) * _SPREAD) & _LOW

    def _close_digest(self, txn: Transaction) -> None:
        """The last bit tells whether a schema may have changed."""
        self._tape += ((self._digest_head << 32) | self._digest & 0xFFFFFFFE | self._digest_ddl).to_bytes(8, "big")
        self._digesting = self._digest_ddl = False
        txn.tape_end = len(self._tape)

    # -- compressed transactions ------------------------------------------------------------------------------------

    def _payload(self, data: bytes, end: int, start: int) -> None:
        """TRANSACTION_PAYLOAD: the events inside have no checksums, and offsets that mean nothing."""
        for inner in iter_payload(data, end, self._inflated_bytes):
            kind = inner[4]
            if kind == kinds.TRANSACTION_PAYLOAD or kind == kinds.FORMAT_DESCRIPTION or kind == kinds.ROTATE:
                raise DecodeError(f"{event_name(kind)} inside a TRANSACTION_PAYLOAD", event_type=kind)
            self._dispatch(inner, kind, len(inner), start)
