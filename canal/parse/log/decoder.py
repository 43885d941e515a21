"""The decoder: raw binlog events in, entries of whole transactions out, in order.

Never accesses a socket, a file or a clock, and never decodes a value. It verifies checksums, tracks journals, offsets and
GTIDs, resolves table maps, measures row images and groups events into transactions, for a live dump, files or a fake.
Event numbers and layouts: MySQL ``libs/mysql/binlog/event``, MariaDB ``sql/log_event.h``.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Sequence
from typing import Any, Callable, Iterator

from canal.binlog import event_layout as layout
from canal.binlog import event_types as kinds
from canal.binlog.event_types import event_name
from canal.binlog.server_facts import Release
from canal.errors import (
    GO_ON_AFTER,
    CanalError,
    ChecksumError,
    ConfigError,
    DecodeError,
    HistoryError,
    MissingTableMapError,
    PositionLostError,
    SourceError,
    TruncatedError,
    UnsupportedError,
)
from canal.gtid import MAX_NUMBER, parse_gtid_set
from canal.model.entry import Entry, new_entry
from canal.model.kinds import EntryType, EventType
from canal.model.table import TableMap
from canal.model.transaction import Transaction
from canal.parse.log import crc
from canal.parse.log.assembly import Assembly, LookAhead
from canal.parse.log.continuity import Continuity
from canal.parse.log.events import (
    CRC_RESIDUE,
    DAMAGED,
    INSIDE,
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
    uuid_text,
)
from canal.parse.log.framing import Events
from canal.parse.log.statements import Statements
from canal.parse.log.states import Move, TransactionState
from canal.parse.log.table_maps import TableMaps
from canal.parse.log.tape import Tape
from canal.parse.log.xa import XaTransactions
from canal.position import Position, PreparedXa
from canal.rows import wire

log = logging.getLogger("canal.parse")

crc.setup()

_CRC_RESIDUE = CRC_RESIDUE  # a C integer when compiled
_MAX_GTID = MAX_NUMBER  # a C integer when compiled
#: For 32-bit log positions. C integers when compiled.
_LOW = 0xFFFFFFFF
_HALF = 0x80000000
_WRAP = 0x100000000
#: Memory overhead of a bytes object.
_BYTES = sys.getsizeof(b"")
#: Pattern of every server's log names.
_JOURNAL = re.compile(r".+\.[0-9]{6,}", re.DOTALL)

_ROWDATA = EntryType.ROWDATA
_INSERT = EventType.INSERT
_UPDATE = EventType.UPDATE
_DELETE = EventType.DELETE
#: States and moves, as C integers when compiled.
_BETWEEN, _ALONE = int(TransactionState.BETWEEN), int(TransactionState.ALONE)
_BEGIN_ALONE, _ENTER_XA, _UNDECIDE = int(Move.BEGIN_ALONE), int(Move.ENTER_XA), int(Move.UNDECIDE)

#: Events without changes that need no action.
_IGNORED = frozenset(
    (
        kinds.STOP,
        kinds.INTVAR,
        kinds.RAND,
        kinds.USER_VAR,  # context of a statement that follows
        kinds.APPEND_BLOCK,
        kinds.DELETE_FILE,
        kinds.BEGIN_LOAD_QUERY,  # the file of a LOAD DATA statement that follows
        kinds.IGNORABLE,
        kinds.TRANSACTION_CONTEXT,
        kinds.VIEW_CHANGE,  # of group replication
        kinds.BINLOG_CHECKPOINT,
        kinds.START_ENCRYPTION,  # the server decrypts before it sends; files refuse it earlier
    )
)


class BinlogDecoder:
    """Turns raw events, in order, into lists of entries.

    Args:
        resolve: called with the body of a new table map and the release that wrote it; returns a ``TableMap`` or raises.
        classify: ``(sql, default_schema, sql_mode=, flavor=) -> Statement`` for any statement except BEGIN and COMMIT.
        wants: ``Statement -> Statement | None``: the part of a statement to deliver.
        changed: called with each ``Statement`` that may change a schema, the text and the QUERY event, before later table
            maps are resolved.
        deliver: called with a non-empty list of entries: whole transactions, except pieces of a very large transaction.
        piece_bytes, piece_entries: a larger transaction is delivered in pieces.
        inflated_bytes: maximum size of an event after decompression.
        read_again: ``(PreparedXa, offset) -> events``: the log from the start of a prepared XA transaction, starting with
            the FORMAT_DESCRIPTION. An empty ``journal`` means only that the start is before ``offset``.
        look_ahead: ``(journal, offset) -> ranges``: the entries that the transaction at this position rolls back later, as
            ordinals (first, last + 1); None if the source does not support side reads.
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
        look_ahead: LookAhead | None = None,
    ) -> None:
        self._parts = (resolve, classify, wants, changed)
        self._look_ahead = look_ahead
        self._inflated_bytes = inflated_bytes
        self.assembly = Assembly(deliver, piece_bytes, piece_entries, look_ahead)
        self.maps = TableMaps(resolve)
        self.xa = XaTransactions(read_again)
        self.statements = Statements(classify, wants, changed, self.xa.take)
        self.follow_only = False
        self._gtid_sources = {}
        self.destination = ""
        self.event_count = 0
        self.byte_count = 0
        self.statement_count = 0
        self.reset(Position(), "mysql", "", None)

    def reset(
        self,
        position: Position,
        flavor: str,
        source: str,
        executed: Any,
        digests: bool = False,
        continuity: Continuity | None = None,
    ) -> None:
        """Forget the stream: the next event is the first of a new dump from ``position``.

        ``executed``: the GTIDs done at ``position``, or None if unknown. The first ``position.row`` row changes of the first
        transaction are skipped. The rows of prepared XA transactions are read again when they are committed. ``digests``: add
        digests of the last transactions to positions. ``continuity``: checks that no event is missing; None to skip the checks,
        for example when a part of a log is read again.
        """
        self._continuity = continuity
        self._strict = continuity is not None and continuity.by_offset
        self.incarnation = ""
        self.purged = ""
        self.journal = position.journal
        self.offset = self._at = position.offset
        # A dump by GTID set begins at the start of a log and skips what is done, so it does not show multiples of 4 GiB.
        self._floor = position.offset if position.offset > _LOW and position.source in ("", source) else 0
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
        self._bare = False
        self._forget_query()
        self.maps.forget()
        self.maps.end_statement()
        self.xa.reset()
        self.assembly.reset(position, source, executed, Tape(position.tail) if digests else None, continuity)
        if position.source and position.source != source:  # the offsets belong to another server's logs
            self.assembly.prepared = tuple([PreparedXa(one.xid, "", 0) for one in position.xa])

    def replay(self, prepared: PreparedXa, deliver: Callable[[list[Entry]], None]) -> BinlogDecoder:
        """Return a decoder to read the same log again, from the start of a prepared XA transaction to XA PREPARE."""
        assembly = self.assembly
        found = None
        if self._look_ahead is not None and prepared.journal:  # now, because a source allows one side read at a time
            with contextlib.suppress(PositionLostError):  # reading it again raises a better error
                found = self._look_ahead(prepared.journal, prepared.offset)
        again = BinlogDecoder(
            *self._parts,
            deliver,
            assembly.piece_bytes,
            assembly.piece_entries,
            inflated_bytes=self._inflated_bytes,
            look_ahead=lambda journal, offset: found,
        )
        again.destination = self.destination
        again.reset(Position(row=assembly.skip), self.flavor, self._source, None)
        again.assembly.is_replay = True
        return again

    def feed(self, events: Sequence[bytes]) -> None:
        """Decode whole raw events (19-byte header to checksum) in stream order.

        Entries that were complete before an error are delivered before the error is raised.
        """
        try:
            if isinstance(events, Events):
                self._feed_from_buffer(events)
            else:
                for data in events:
                    self._event(data, len(data))
        except CanalError as error:  # includes errors of ``deliver``, after which nothing is left to deliver
            if isinstance(error, (SourceError, HistoryError, ConfigError)) and error.position is None:
                error.position = f"{self.journal}:{self._at}"
            self.flush()
            raise
        self.flush()

    def _feed_from_buffer(self, events: Events) -> None:
        events.check()
        p = events.buffer
        at = events.start
        gap = events.gap
        for _ in range(events.count):
            size = wire.u24(p, at - gap) - 1 if gap else wire.u32(p, at + layout.SIZE)
            self._event(wire.part(p, at, at + size), size)
            at += size + gap

    def flush(self) -> None:
        """Deliver the complete entries."""
        self.assembly.flush()

    @property
    def held_bytes(self) -> int:
        """Bytes of the open transaction and of held prepared transactions."""
        return self.assembly.held_bytes + self.xa.held_bytes

    @property
    def timestamp(self) -> int:
        """Time of the last transaction in Unix seconds."""
        return self.assembly.timestamp

    @property
    def transaction_count(self) -> int:
        """Number of transactions that have ended."""
        return self.assembly.transaction_count

    def reset_counts(self) -> None:
        """Reset the counts of events, bytes, statements and transactions, and the time."""
        self.event_count = self.byte_count = self.statement_count = 0
        self.assembly.transaction_count = self.assembly.timestamp = 0

    @property
    def is_inside_transaction(self) -> bool:
        return self.assembly.txn is not None

    @property
    def position(self) -> Position:
        """The position after the present event, as if the transaction were done."""
        return self._position(self.offset, self.assembly.run.behind())

    @property
    def group_position(self) -> Position:
        """The position before the present transaction."""
        run = self.assembly.run
        return self._position(run.offset if self.assembly.state != _BETWEEN else self.offset, run.executed())

    def _position(self, offset: int, executed: Any) -> Position:
        gtid = "" if executed is None else executed
        return Position(self.journal, offset, gtid, source=self._source, incarnation=self.incarnation)

    @property
    def server_version(self) -> str:
        """Version of the server that wrote the present journal."""
        return "" if self._format is None else self._format.server_version

    @property
    def release(self) -> Release:
        """Release of the server that wrote the present journal."""
        return self._format.release

    # -- framing of one event -------------------------------------------------------------------------------------

    def _event(self, p: bytes, size: int) -> None:
        self._at = self.offset
        if size < layout.HEADER:
            raise TruncatedError(f"an event of {size} bytes is shorter than a header")
        kind = p[layout.TYPE]
        if wire.u32(p, layout.SIZE) != size:
            raise DecodeError(
                f"an event of {size} bytes has the length {wire.u32(p, layout.SIZE)} in its header",
                event_type=kind,
                remedy=DAMAGED,
            )
        self.event_count += 1
        self.byte_count += size
        if kind == kinds.FORMAT_DESCRIPTION:
            self._format_description(wire.piece(p, 0, size))
        if self._format is None and kind != kinds.ROTATE:
            raise DecodeError(f"{event_name(kind)} before the FORMAT_DESCRIPTION of its log", event_type=kind)
        end = size
        if self._checksum:
            end = size - layout.CHECKSUM
            if end < layout.HEADER:
                raise TruncatedError(f"{event_name(kind)} of {size} bytes is too short for a checksum", event_type=kind)
            if kind != kinds.FORMAT_DESCRIPTION and crc.crc32(p, size) != _CRC_RESIDUE:
                raise checksum_error(wire.piece(p, 0, size))
        log_pos = wire.u32(p, layout.END)
        start = self.offset
        if log_pos == 0 or wire.u16(p, layout.FLAGS) & kinds.ARTIFICIAL_F:
            if not (
                kind == kinds.ROTATE
                or kind == kinds.FORMAT_DESCRIPTION
                or kind == kinds.HEARTBEAT
                or kind == kinds.PREVIOUS_GTIDS
                or kind == kinds.HEARTBEAT_V2
                or kind == kinds.MARIADB_GTID_LIST
                or kind == kinds.START_ENCRYPTION
            ):
                self.offset = start + size  # MariaDB 11.4 and later write no positions inside a transaction
        elif kind != kinds.HEARTBEAT and kind != kinds.HEARTBEAT_V2:
            expected = start + size
            if (expected & _LOW) != log_pos:
                # Unsent events leave a gap forward, never backward. A gap across a 4 GiB wrap is small.
                if kind == kinds.FORMAT_DESCRIPTION:  # the first event of a log
                    expected = layout.FIRST + size
                hole = (log_pos - expected) & _LOW
                if (expected & _LOW) > log_pos and hole >= _HALF:
                    raise DecodeError(
                        f"{event_name(kind)} of {size} bytes, at offset {start} or later, has the end offset {log_pos}",
                        event_type=kind,
                        remedy=DAMAGED,
                    )
                if hole and self._strict and kind != kinds.FORMAT_DESCRIPTION:
                    raise DecodeError(
                        f"{hole} bytes are missing before the {event_name(kind)} that ends at {log_pos}",
                        event_type=kind,
                        remedy=DAMAGED,
                    )
                expected += hole
                if (
                    self._floor
                    and self.journal == self._floor_journal
                    and not (kind == kinds.FORMAT_DESCRIPTION or kind == kinds.PREVIOUS_GTIDS or kind == kinds.MARIADB_GTID_LIST)
                ):
                    while expected - size < self._floor:
                        expected += _WRAP
                start = self._at = expected - size
            self.offset = expected
        self._dispatch(p, size, kind, end, start)

    def _dispatch(self, p: bytes, size: int, kind: int, end: int, start: int) -> None:
        if kind == kinds.TABLE_MAP:
            self.maps.announce(p, end, self._writer)
        elif kind == kinds.WRITE_ROWS or kind == kinds.WRITE_ROWS_V1:
            self._rows(p, size, kind, end, start, 0)
        elif kind == kinds.UPDATE_ROWS or kind == kinds.UPDATE_ROWS_V1:
            self._rows(p, size, kind, end, start, 1)
        elif kind == kinds.DELETE_ROWS or kind == kinds.DELETE_ROWS_V1:
            self._rows(p, size, kind, end, start, 2)
        elif kind == kinds.XID:
            if end < layout.XID_END:
                raise TruncatedError("XID event is too short", event_type=kind)
            if self.assembly.txn is not None:
                self.assembly.txn.xid = wire.u64(p, layout.XID_NUMBER)
            self.finish(p, size, start)
        elif kind == kinds.QUERY:
            self._query_event(p, size, end, start)
        elif kind == kinds.GTID:
            self._gtid(p, end, start)
        elif kind == kinds.MARIADB_GTID:
            self._mariadb_gtid(p, size, end, start)
        elif kind == kinds.ANNOTATE_ROWS:
            self._query = wire.piece(p, layout.HEADER, end)
        else:
            self._uncommon(wire.piece(p, 0, size), kind, end, start)

    def _uncommon(self, data: bytes, kind: int, end: int, start: int) -> None:
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
            self.assembly.begin_group(start, None, 0)
            self.assembly.may_undo = end <= layout.GTID_FLAGS or p[layout.GTID_FLAGS] & kinds.FL_MAY_HAVE_STATEMENTS != 0
        elif kind == kinds.GTID_TAGGED:
            self._check_flavor(kind, "mysql")
            source, number, flags = parse_tagged_gtid(data, end)
            self.assembly.begin_group(start, self._gtid_sources.setdefault(source, source), number)
            self.assembly.may_undo = flags & kinds.FL_MAY_HAVE_STATEMENTS != 0
        elif kind == kinds.PREVIOUS_GTIDS:
            self._check_flavor(kind, "mysql")
            if self.assembly.run.base is not None:
                self._check_listed(parse_previous_gtids(data, end))
            else:
                executed = parse_previous_gtids(data, end)
                if executed or self.purged:  # GTIDs that an operator set as purged are in no log
                    executed = executed | parse_gtid_set(self.purged, "mysql")
                self._adopt_executed(executed)
        elif kind == kinds.MARIADB_GTID_LIST:
            self._check_flavor(kind, "mariadb")
            if self.assembly.run.base is None:
                self._adopt_executed(parse_gtid_list(data, end))
            elif wire.u32(p, layout.END) and not wire.u16(p, layout.FLAGS) & kinds.ARTIFICIAL_F:  # not a replica's position
                self._check_listed(parse_gtid_list(data, end))
        elif kind == kinds.ROWS_QUERY:
            self._query = data[layout.ROWS_QUERY_TEXT : end]
        elif kind == kinds.TRANSACTION_PAYLOAD:
            self._payload(data, end, start)
        elif kind == kinds.QUERY_COMPRESSED:
            plain = inflate_query(data, end, self._inflated_bytes)
            self._query_event(plain, len(plain), len(plain), start)
        elif kind == kinds.EXECUTE_LOAD_QUERY:
            plain = execute_load_query(data, end)
            self._query_event(plain, len(plain), len(plain), start)
        elif kinds.WRITE_ROWS_COMPRESSED_V1 <= kind <= kinds.DELETE_ROWS_COMPRESSED:
            plain = inflate_rows(data, end, kind, self._body_start(data, kind, end), self._inflated_bytes)
            change = (kind - kinds.WRITE_ROWS_COMPRESSED_V1) % 3
            first = kinds.WRITE_ROWS_V1 if kind < kinds.WRITE_ROWS_COMPRESSED else kinds.WRITE_ROWS
            self._rows(plain, len(plain), first + change, len(plain), start, change)
        elif kind == kinds.PARTIAL_UPDATE_ROWS:
            self._rows(data, len(data), kind, end, start, 3)
        elif kind == kinds.INCIDENT:
            raise SourceError(
                f"the source reports an INCIDENT at {self.journal}:{start}: changes may be missing from the log",
                remedy=f"Compare the tables with the source. {GO_ON_AFTER}",
            )
        elif kind == kinds.XA_PREPARE:
            self.xa.prepare(self, data, end, start)
        elif kind == kinds.PARTIAL_ROW_DATA:  # refused even if flagged as ignorable
            raise UnsupportedError(
                f"{event_name(kind)}, a fragment of a rows event, is not supported",
                event_type=kind,
                remedy="Nothing was skipped. MariaDB 12.3 fragments events larger than binlog_row_event_fragment_threshold: "
                f"raise it, or change fewer or smaller rows per statement. {GO_ON_AFTER}",
            )
        elif wire.u16(p, layout.FLAGS) & kinds.IGNORABLE_F:
            return
        else:
            raise UnsupportedError(
                f"{event_name(kind)} is not supported",
                event_type=kind,
                remedy=f"Nothing was skipped. docs/guarantees.md lists the unsupported events. {GO_ON_AFTER}",
            )

    # -- journals -------------------------------------------------------------------------------------------------

    def _format_description(self, data: bytes) -> None:
        """Process the first event of a journal, or the copy sent before the middle of a journal."""
        form: Format = parse_format(data)
        check_format(data, form)
        if form.checksum and self._unproved and not _JOURNAL.fullmatch(self.journal):
            raise ChecksumError("the ROTATE before it has a wrong CRC32", event_type=kinds.ROTATE, remedy=DAMAGED)
        self._unproved = False
        self._format = form
        self._writer = form.release
        if self.flavor == "mariadb" and not form.release.is_mariadb:  # the operator set another version, not a MariaDB one
            self._writer = Release("mariadb", (sys.maxsize,))
        self._checksum = form.checksum
        if self._continuity is not None:
            self.incarnation = self._continuity.describe(data, form)
            self.assembly.is_doubtful = self._continuity.is_open
        # Only when a log is read from the start: otherwise such rows are the rest of a transaction.
        self._bare = not form.release.has("transactions_logged") and wire.u32(data, layout.END) != 0
        self.maps.end_statement()
        if form.created:
            self._drop_transaction()

    def _drop_transaction(self) -> None:
        """Drop the open transaction: the source stopped inside it."""
        txn = self.assembly.txn
        if txn is not None:
            if self.assembly.part:
                raise SourceError(
                    f"the source stopped inside transaction {txn!r} whose first rows are already delivered",
                    remedy="Undo the delivered rows of this transaction, then continue from the start of it.",
                )
            log.warning("[%s] the source stopped inside %r: it is rolled back, and dropped here too", self.destination, txn)
        self._forget_query()
        self.assembly.drop()

    def _rotate(self, data: bytes, end: int) -> None:
        if end < layout.ROTATE_NAME:
            raise TruncatedError("ROTATE event is too short", event_type=kinds.ROTATE)
        offset = wire.u64(data, layout.ROTATE_OFFSET)
        stop = end
        if self._format is None:  # a dump's first ROTATE precedes the FORMAT_DESCRIPTION that announces checksums
            self._unproved = crc.crc32(data, len(data)) != _CRC_RESIDUE
            if not self._unproved and end - layout.ROTATE_NAME > layout.CHECKSUM:
                stop = end - layout.CHECKSUM
        if data[layout.ROTATE_TOP] & 0xC0:
            raise DecodeError("a ROTATE has an impossible offset", event_type=kinds.ROTATE, remedy=DAMAGED)
        name = data[layout.ROTATE_NAME : stop].rstrip(b"\0").decode("utf-8", "surrogateescape")
        if self._continuity is not None:
            if wire.u32(data, layout.END) and not wire.u16(data, layout.FLAGS) & kinds.ARTIFICIAL_F:
                self._continuity.announce(name, wire.u32(data, layout.TIME))
            else:
                self._continuity.enter(name, self.offset)
                self.assembly.is_doubtful = self._continuity.is_open
        if name != self.journal or offset != self.offset:
            if name != self.journal:
                self.incarnation = ""  # until the new journal's FORMAT_DESCRIPTION
            self.journal = name
            self.offset = offset
        self.maps.end_statement()

    def _check_listed(self, listed: Any) -> None:
        if self._continuity is not None:
            run = self.assembly.run
            executed = run.executed()
            known = self._continuity.list(listed, executed, run.last())
            if known is not executed:
                self._adopt_executed(known)
            self.assembly.is_doubtful = self._continuity.is_open

    def _adopt_executed(self, executed: Any) -> None:
        if self.assembly.state != _BETWEEN:
            raise DecodeError("a GTID list is inside a transaction", remedy=DAMAGED)
        self.assembly.run.adopt(executed)

    # -- transactions ---------------------------------------------------------------------------------------------

    def _check_flavor(self, kind: int, flavor: str) -> None:
        if self.flavor != flavor:
            raise DecodeError(
                f"{event_name(kind)} in a {self.flavor} log",
                event_type=kind,
                remedy="The log is damaged here, or was joined from logs of two servers.",
            )

    def _gtid(self, p: bytes, end: int, start: int) -> None:
        if end < layout.GTID_CLOCK:
            raise TruncatedError("GTID event is too short", event_type=kinds.GTID)
        if not self._sid or not wire.same(p, layout.GTID_SOURCE, self._sid, 0, 16):
            sid = wire.piece(p, layout.GTID_SOURCE, layout.GTID_NUMBER)
            if sid not in self._gtid_sources:
                self._check_flavor(kinds.GTID, "mysql")
                self._gtid_sources[sid] = uuid_text(sid)
            self._sid_text = self._gtid_sources[sid]
            self._sid = sid
        if not 0 < wire.u64(p, layout.GTID_NUMBER) <= _MAX_GTID:
            raise DecodeError(f"a GTID has the number {wire.u64(p, layout.GTID_NUMBER)}", event_type=kinds.GTID, remedy=DAMAGED)
        self.assembly.begin_group(start, self._sid_text, wire.u64(p, layout.GTID_NUMBER))
        self.assembly.may_undo = p[layout.GTID_FLAGS] & kinds.FL_MAY_HAVE_STATEMENTS != 0
        if end >= layout.GTID_CLOCK_END and p[layout.GTID_CLOCK] == 2:  # type code of the logical clock
            self.assembly.run.last_committed = wire.u64(p, layout.GTID_LAST_COMMITTED)
            self.assembly.run.sequence_number = wire.u64(p, layout.GTID_SEQUENCE)

    def _mariadb_gtid(self, p: bytes, size: int, end: int, start: int) -> None:
        if end < layout.MARIADB_GTID_REST:
            raise TruncatedError("MariaDB GTID event is too short", event_type=kinds.MARIADB_GTID)
        flags = p[layout.MARIADB_GTID_FLAGS]
        domain = wire.u32(p, layout.MARIADB_GTID_DOMAIN)
        server = wire.u32(p, layout.SERVER)
        if self._pair is None or domain != self._domain or server != self._server:
            pair = (domain, server)
            if pair not in self._gtid_sources:
                self._check_flavor(kinds.MARIADB_GTID, "mariadb")
                self._gtid_sources[pair] = pair
            self._pair = self._gtid_sources[pair]
            self._domain, self._server = self._pair
        self.assembly.begin_group(start, self._pair, wire.u64(p, layout.MARIADB_GTID_NUMBER))
        if not flags & (kinds.FL_STANDALONE | kinds.FL_COMPLETED_XA):
            self.open(p, size, start)
            if flags & kinds.FL_PREPARED_XA:
                self.assembly.move(_ENTER_XA)
        if flags & kinds.FL_DDL and is_undecided_alter(wire.piece(p, 0, size), end):
            self.assembly.move(_UNDECIDE)

    def begin(self, p: bytes, start: int) -> Transaction:
        """Begin a transaction without a BEGIN entry."""
        return self.assembly.begin(p, start, self.journal, self.incarnation)

    def open(self, p: bytes, size: int, start: int) -> Transaction:
        """Begin a transaction with a BEGIN entry."""
        return self.assembly.open(p, size, start, self.journal, self.incarnation)

    def finish(self, p: bytes, size: int, start: int) -> None:
        """End the open transaction with this event."""
        if self.assembly.txn is not None:
            self._forget_query()
        self.assembly.finish(p, size, start, self.offset)

    def finish_with(self, entry: Entry) -> None:
        """End the open transaction with this entry of the present event."""
        self._forget_query()
        self.assembly.finish_with(entry, self.offset)

    def _query_event(self, p: bytes, size: int, end: int, start: int) -> None:
        if end < layout.QUERY_STATUS:
            raise TruncatedError("QUERY event is too short", event_type=kinds.QUERY)
        schema = layout.QUERY_STATUS + wire.u16(p, layout.QUERY_STATUS_SIZE)
        schema_end = schema + p[layout.QUERY_SCHEMA_SIZE]
        sql_start = schema_end + 1
        if sql_start > end:
            raise TruncatedError("QUERY event is too short", event_type=kinds.QUERY)
        length = end - sql_start
        if length == 5 and wire.same(p, sql_start, b"BEGIN", 0, 5):
            if self.assembly.txn is None:  # otherwise MariaDB's GTID has opened the transaction
                self.open(p, size, start).thread_id = wire.u32(p, layout.QUERY_THREAD)
        elif length == 6 and wire.same(p, sql_start, b"COMMIT", 0, 6):
            self.finish(p, size, start)
        else:
            self.statements.take(self, wire.piece(p, 0, size), end, start, schema, schema_end)

    # -- rows -----------------------------------------------------------------------------------------------------

    def _body_start(self, data: bytes, kind: int, end: int) -> int:
        """Return the index of the packed column count of a rows event."""
        if self._format.post_header_length(kind) == layout.ROWS_EXTRA - layout.HEADER:  # version 2: extra data
            if end < layout.ROWS_EXTRA:
                raise TruncatedError("rows event is too short", event_type=kind)
            body = layout.ROWS_BODY + wire.u16(data, layout.ROWS_BODY)
            if body < layout.ROWS_EXTRA or body > end:
                raise TruncatedError("extra data of a rows event exceeds the event", event_type=kind)
            return body
        if end < layout.ROWS_BODY:
            raise TruncatedError("rows event is too short", event_type=kind)
        return layout.ROWS_BODY

    def _rows(self, p: bytes, size: int, kind: int, end: int, start: int, change: int) -> None:
        body = layout.ROWS_BODY
        if kind >= kinds.WRITE_ROWS:
            if end < layout.ROWS_EXTRA:
                raise TruncatedError("rows event is too short", event_type=kind)
            body = layout.ROWS_BODY + wire.u16(p, layout.ROWS_BODY)
            if body < layout.ROWS_EXTRA or body > end:
                raise TruncatedError("extra data of a rows event exceeds the event", event_type=kind)
        elif end < layout.ROWS_BODY:
            raise TruncatedError("rows event is too short", event_type=kind)
        table_id = wire.u48(p, layout.ROWS_TABLE)
        table = self.maps.find(table_id)
        last_of_statement = wire.u16(p, layout.ROWS_FLAGS) & 1
        if table is None:
            if table_id == 0xFFFFFF:  # a dummy event that only ends the statement
                if last_of_statement:
                    self._close_statement()
                return
            raise MissingTableMapError(
                f"{event_name(kind)} has table id {table_id}, but no table map announced it", event_type=kind, remedy=INSIDE
            )
        assembly = self.assembly
        txn = assembly.txn
        if txn is None and self._bare:
            txn = self.open(p, size, start)
            assembly.move(_BEGIN_ALONE)
        if txn is None:
            raise DecodeError(f"{event_name(kind)} at offset {start} outside a transaction", event_type=kind, remedy=INSIDE)
        count = self._measure(table, p, body, end, kind, change, start)
        if assembly.tape is not None:
            assembly.tape.add_rows(table, wire.piece(p, 0, size), body, end, change, self.flavor, txn)
        first = txn.row_count
        txn.row_count = first + count
        if table.accepted and txn.row_count > assembly.skip:
            entry = new_entry(
                _ROWDATA,
                _INSERT if change == 0 else _DELETE if change == 2 else _UPDATE,
                txn,
                wire.piece(p, 0, size),
                start,
                wire.u32(p, layout.TIME),
                wire.u32(p, layout.SERVER),
            )
            entry.table = table
            entry.body = body
            entry.body_end = end
            entry.kind = change
            entry.first_row = first
            if first < assembly.skip:
                entry.skip_rows = assembly.skip - first
            entry.row_count = count - entry.skip_rows
            entry.size += table.size  # counted once per map: the number of kept maps is bounded
            table.size = 0
            if self._query is not None:
                if self._query is not self._counted_query:  # all rows events of a statement share the text
                    self._counted_query = self._query
                    entry.size += _BYTES + len(self._query)
                entry.set_query(self._query)
            txn.has_rows = True
            assembly.add(entry)
        else:
            assembly.ordinal += 1
        if last_of_statement:
            self._close_statement()
            if assembly.state == _ALONE:
                self.finish(p, size, start)

    def _close_statement(self) -> None:
        self.maps.end_statement()
        self._forget_query()

    def _forget_query(self) -> None:
        self._query = self._counted_query = None

    def _measure(self, table: TableMap, p: bytes, body: int, end: int, kind: int, change: int, start: int) -> int:
        rows = table.decoder
        if rows is None:  # filtered out, with a column type that cannot be measured
            return 0
        try:
            return rows.walk(wire.piece(p, 0, end), body, end, change) if change == 3 else rows.count_rows(p, body, end, change)
        except DecodeError as error:
            error.event_type = kind
            error.table = f"{table.schema.schema}.{table.schema.table}"
            error.position = f"{self.journal}:{start}"
            raise

    # -- compressed transactions ------------------------------------------------------------------------------------

    def _payload(self, data: bytes, end: int, start: int) -> None:
        """Decode the events in a TRANSACTION_PAYLOAD. They have no checksums, and their offsets are meaningless."""
        for inner in iter_payload(data, end, self._inflated_bytes):
            kind = inner[layout.TYPE]
            if kind == kinds.TRANSACTION_PAYLOAD or kind == kinds.FORMAT_DESCRIPTION or kind == kinds.ROTATE:
                raise DecodeError(f"{event_name(kind)} inside a TRANSACTION_PAYLOAD", event_type=kind)
            self._dispatch(inner, len(inner), kind, len(inner), start)
