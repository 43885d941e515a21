"""The log of a fake server: journals of events, their GTIDs, and where in them a dump begins."""

from __future__ import annotations

import struct
import threading
import uuid as uuids
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import attrs

from canal.binlog.event_types import (
    ANONYMOUS_GTID,
    BINLOG_CHECKPOINT,
    FL_ALLOW_PARALLEL,
    FL_DDL,
    FL_STANDALONE,
    FL_TRANSACTIONAL,
    FORMAT_DESCRIPTION,
    GTID,
    GTID_TAGGED,
    IGNORABLE_F,
    MARIADB_GTID,
    MARIADB_GTID_LIST,
    PREVIOUS_GTIDS,
    QUERY,
    QUERY_COMPRESSED,
    TRANSACTION_PAYLOAD,
)
from canal.errors import LostReason, PositionLostError, StateError, UsageError
from canal.gtid import MariadbGtidSet, MysqlGtidSet, parse_gtid_set
from canal.position import Position
from canal.testing import _encode
from canal.testing._encode import Flavor

#: What is shorter is not worth compressing; the least that MariaDB's log_bin_compress_min_len can be.
COMPRESS_FROM: Final = 10
SUPPRESS_USE: Final = 0x08

Gtid = tuple[str, int] | tuple[int, int, int]


@attrs.frozen
class Event:
    """One event of a journal: where it begins and the transaction that it belongs to."""

    offset: int
    data: bytes
    gtid: Gtid | None = None

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@attrs.define
class Journal:
    """One binlog file."""

    name: str
    executed: MysqlGtidSet | MariadbGtidSet
    """The GTIDs of the journals before it."""
    end: int = 4
    events: list[Event] = attrs.field(factory=list)
    first: int = 4
    """Where a reader of the whole journal begins: behind the hole that start_offset leaves, else 4."""
    in_use: bool = True
    """Whether its file is marked as open; a crash of MariaDB leaves the mark, MySQL takes it away when it starts again."""
    is_gone: bool = False
    """Whether a reset found no namesake for it in the new log."""


@attrs.frozen
class Piece:
    """An event of a transaction that is not in the log yet, so has no offset."""

    kind: int
    body: bytes
    flags: int = 0

    @property
    def has_statement(self) -> bool:
        """Whether a server's GTID event counts it as a statement."""
        if self.kind != QUERY:
            return self.kind == QUERY_COMPRESSED
        status, schema = int.from_bytes(self.body[11:13], "little"), self.body[8]
        return not self.body[14 + status + schema :].startswith((b"BEGIN", b"COMMIT", b"SAVEPOINT"))


class Setup(Protocol):
    """What a log needs to know of the server that writes it."""

    flavor: Flavor
    version: str
    is_old: bool
    checksum: bool
    gtid: bool
    server_id: int
    domain: int
    uuid: str
    compression: str
    row_version: int
    clock: Callable[[], float]


class FakeLog:
    """The journals of a server and its GTIDs, and where in them a dump begins.

    Who reads or writes holds ``changed``, which is notified of each event.
    """

    def __init__(self, setup: Setup, base_name: str, start_offset: int) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.base_name = base_name
        self.journals: list[Journal] = []
        self.journal_number = 0
        self.executed: MysqlGtidSet | MariadbGtidSet = MysqlGtidSet() if setup.flavor == "mysql" else MariadbGtidSet()
        #: Nothing more will come.
        self.ended = False
        self._setup = setup
        self._thread_id = 10
        self._xid = 10
        self._sequence = 0  # of transactions in this journal, for MySQL's logical timestamps
        self._number = 0  # of the last GTID
        self._state: dict[tuple[int, int], int] = {}  # MariaDB: the last number of each domain and server, the latest behind
        self._timestamp = 0
        with self.changed:
            self.open_journal(created=True)
        if start_offset != 4:
            journal = self.journals[0]
            if start_offset < journal.end:
                raise UsageError(f"start_offset is 4, or {journal.end} and more")
            journal.first = journal.end = start_offset

    @property
    def identity(self) -> str:
        setup = self._setup
        if setup.is_old:
            return f"{setup.server_id}@fake:3306"
        return setup.uuid if setup.flavor == "mysql" else f"{setup.server_id}@{setup.uuid}"

    @property
    def position(self) -> Position:
        """The end."""
        journal = self.journals[-1]
        return self._position(journal.name, journal.end, self.executed, self._timestamp)

    def next_xid(self) -> int:
        self._xid += 1
        return self._xid

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def reset(self) -> None:
        """Every journal is gone, names and GTIDs begin anew."""
        for journal in self.journals:
            journal.is_gone = journal.name != self.journal_name(1)
        self.journals.clear()
        self.journal_number = self._number = 0
        self.executed = type(self.executed)()
        self._state.clear()
        self.open_journal(created=True)

    # -- where a dump begins -------------------------------------------------------------------------------------------

    def resolve(self, start: str | Position) -> Position:
        """The concrete position that ``start`` means now."""
        if start == "latest":
            return self.position
        if start == "earliest":
            oldest = self.journals[0]
            return self._position(oldest.name, oldest.first, oldest.executed, 0)
        if not isinstance(start, Position):
            raise UsageError(f'a start is "latest", "earliest" or a Position, not {start!r}')
        if not start.is_concrete:
            return self._at_time(start.timestamp)
        if start.gtid and self._setup.gtid:
            by_gtid = attrs.evolve(start, incarnation="")
            self.locate(by_gtid)
            is_here = start.source in ("", self.identity) and start.journal in (one.name for one in self.journals)
            return start if is_here else by_gtid
        self.check_offset(start)
        return attrs.evolve(start, offset=max(start.offset, 4), source=self.identity)

    def _at_time(self, timestamp: int) -> Position:
        """The start of the first transaction at or after a time in milliseconds."""
        executed = self.journals[0].executed
        for journal in self.journals:
            last: Gtid | None = None
            for one in journal.events:
                seconds, kind = struct.unpack_from("<IB", one.data)
                if one.gtid is not None and one.gtid != last:
                    if seconds * 1000 >= timestamp:
                        return self._position(journal.name, one.offset, executed, 0)
                    executed = self.added(executed, one.gtid)
                last = one.gtid
                if one.gtid is None and kind == ANONYMOUS_GTID and seconds * 1000 >= timestamp:
                    return self._position(journal.name, one.offset, executed, 0)
        return self.position

    def _position(self, journal: str, offset: int, executed: Any, timestamp: int) -> Position:
        return Position(
            journal=journal,
            offset=offset,
            gtid=str(executed) if self._setup.gtid else "",
            timestamp=timestamp * 1000,
            server_id=self._setup.server_id if timestamp else 0,
            source=self.identity,
        )

    def locate(self, position: Position) -> tuple[int, int, MysqlGtidSet | MariadbGtidSet | None]:
        """Journal, event and the GTIDs to leave out, from which a dump sends."""
        if not position.is_concrete:  # an empty GTID set: everything
            oldest = self.journals[0]
            if oldest.executed:
                raise PositionLostError(
                    "Cannot replicate because the source purged required binary logs", errno=1236, position=position
                )
            position = self._position(oldest.name, oldest.first, oldest.executed, 0)
        if position.gtid and self._setup.gtid and not position.incarnation:
            return self._locate_gtid(parse_gtid_set(position.gtid, self._setup.flavor), position)
        return (*self.locate_offset(position), None)

    def check_offset(self, position: Position) -> int:
        """The number of the journal that the position names, which reaches as far as its offset."""
        if position.source not in ("", self.identity):
            raise PositionLostError(
                f"the position is one of server {position.source}, and the fake binlog is {self.identity}",
                reason=LostReason.OTHER_SERVER,
                position=position,
            )
        names = [journal.name for journal in self.journals]
        if position.journal not in names:
            raise PositionLostError(
                "Could not find first log file name in binary log index file",
                errno=1236,
                position=position,
                remedy=f"The fake binlog has {', '.join(names)}.",
            )
        number = names.index(position.journal)
        if max(position.offset, 4) > self.journals[number].end:
            raise PositionLostError(
                "Client requested source to start replication from position > file size",
                errno=1236,
                reason=LostReason.BEYOND,
                position=position,
            )
        return number

    def locate_offset(self, position: Position) -> tuple[int, int]:
        number = self.check_offset(position)
        journal = self.journals[number]
        offset = max(position.offset, 4)
        if offset == journal.end:
            return number, len(journal.events)
        found = next((number for number, one in enumerate(journal.events) if one.offset == offset), None)
        if found is None or (offset == 4 and journal.first != 4):
            raise PositionLostError(
                "binlog truncated in the middle of event; no event of the fake binlog starts at this offset",
                errno=1236,
                sqlstate="HY000",
                reason=LostReason.BEYOND,
                position=position,
            )
        return number, found

    def _locate_gtid(self, wanted: Any, position: Position) -> tuple[int, int, MysqlGtidSet | MariadbGtidSet]:
        if isinstance(wanted, MysqlGtidSet) and isinstance(self.executed, MysqlGtidSet):
            unknown = wanted - self.executed
            if unknown.intervals(self._setup.uuid):
                raise PositionLostError(
                    "Replica has more GTIDs than the source has, using the source's SERVER_UUID",
                    errno=1236,
                    reason=LostReason.DIVERGED,
                    position=position,
                )
        elif any(self._state.get((domain, server), 0) < number for domain, (server, number) in wanted.domains.items()):
            raise PositionLostError(
                f"connecting slave requested to start from GTID {wanted}, which is not in the master's binlog",
                errno=1236,
                reason=LostReason.DIVERGED,
                position=position,
            )
        for number in range(len(self.journals) - 1, -1, -1):
            journal = self.journals[number]
            if journal.executed <= wanted:
                return number, (0 if journal.first == 4 else self._first_event(journal)), wanted
        raise PositionLostError("Cannot replicate because the source purged required binary logs", errno=1236, position=position)

    def lacking(self, wanted: Any) -> str:
        """What the server itself has made and does not have any more."""
        if isinstance(wanted, MysqlGtidSet):
            assert isinstance(self.executed, MysqlGtidSet)
            missing = wanted - self.executed
            return str(missing) if missing.intervals(self._setup.uuid) else ""
        own = [(domain, *last) for domain, last in wanted.domains.items() if last[0] == self._setup.server_id]
        return ",".join("-".join(map(str, gtid)) for gtid in own if self._state.get(gtid[:2], 0) < gtid[2])

    def _first_event(self, journal: Journal) -> int:
        return next((number for number, one in enumerate(journal.events) if one.offset >= journal.first), len(journal.events))

    # -- writing -------------------------------------------------------------------------------------------------------

    def query(self, schema: str, sql: str, ddl_xid: int | None = None, flags: int = 0) -> Piece:
        of_schema = sql.lower().split()[1:2] in (["database"], ["schema"])
        if of_schema:
            flags = SUPPRESS_USE
        is_ddl = ddl_xid is not None
        if of_schema and self._setup.flavor == "mariadb":
            ddl_xid = None
        status = _encode.query_status(
            self._setup.flavor, schema, ddl_xid=ddl_xid, sql=sql if is_ddl else "", old=self._setup.is_old
        )
        text, kind = sql.encode("utf-8"), QUERY
        if self._setup.compression == "zlib" and len(text) >= COMPRESS_FROM:
            text, kind = _encode.compressed(text), QUERY_COMPRESSED
        return Piece(kind, _encode.query_body(self._thread_id, schema, status, text), flags)

    def append_group(
        self,
        pieces: list[Piece],
        *,
        standalone: bool,
        is_ddl: bool,
        gtid: str | None,
        transactional: bool = True,
        xa: str = "",
        xa_flag: int = 0,
        server_id: int | None = None,
    ) -> None:
        """The events of one GTID, with the GTID event before them."""
        if self.ended:
            raise StateError("the fake binlog was ended")
        now = self._setup.clock()
        with_gtid = self._next_gtid(gtid)
        self._sequence += 1
        has_statements = standalone or any(piece.has_statement for piece in pieces)
        if self._setup.compression in ("zstd", "none") and transactional and not standalone:
            pieces = [self._payload(pieces, now)]
        if self._setup.is_old:
            head = None
        elif self._setup.flavor == "mysql":
            head = self._mysql_gtid(with_gtid, pieces, now, statement=has_statements)
        else:
            flags = FL_STANDALONE if standalone else 0
            flags |= FL_DDL if is_ddl else FL_TRANSACTIONAL if transactional and not standalone else 0
            body = struct.pack("<QIB", with_gtid[2], with_gtid[0], flags | xa_flag | FL_ALLOW_PARALLEL)
            if xa:
                body += struct.pack("<IBB", 1, len(xa.encode("utf-8")), 0) + xa.encode("utf-8")
            body = body.ljust(19, b"\0")
            head = Piece(MARIADB_GTID, body, SUPPRESS_USE)
        if with_gtid is not None and len(with_gtid) == 3:
            server_id = with_gtid[1]
        for piece in (head, *pieces) if head else pieces:
            self.append(piece.kind, piece.body, piece.flags, gtid=with_gtid, now=now, server_id=server_id)
        if with_gtid is not None:
            self.executed = self.added(self.executed, with_gtid)
            if len(with_gtid) == 3:
                domain, server, number = with_gtid
                self._state.pop((domain, server), None)
                self._state[domain, server] = number
        self._timestamp = int(now)
        self.changed.notify_all()

    def _payload(self, pieces: list[Piece], now: float) -> Piece:
        """A transaction as one TRANSACTION_PAYLOAD event."""
        events = b"".join(
            _encode.event(
                piece.kind,
                piece.body,
                timestamp=int(now),
                server_id=self._setup.server_id,
                end=0,
                flags=piece.flags,
                checksum=False,
            )
            for piece in pieces
        )
        return Piece(TRANSACTION_PAYLOAD, _encode.payload_body(events, "none" if self._setup.compression == "none" else "zstd"))

    def _next_gtid(self, text: str | None) -> Any:
        """The transaction's GTID as ``(source, number)`` or ``(domain, server, sequence)``."""
        if not self._setup.gtid:
            if text:
                raise UsageError("this fake binlog has no GTIDs")
            return None
        if text is None:
            self._number += 1
            setup = self._setup
            return (setup.uuid, self._number) if setup.flavor == "mysql" else (setup.domain, setup.server_id, self._number)
        if self._setup.flavor == "mysql":
            source, _, number = text.rpartition(":")
            uuid, colon, tag = source.partition(":")
            found: Gtid = (str(uuids.UUID(uuid)) + colon + tag, int(number))
            own = found[0] == self._setup.uuid
        else:
            domain, server, sequence = map(int, text.split("-"))
            found = (domain, server, sequence)
            own = domain == self._setup.domain
        if own:
            self._number = max(self._number, found[-1])
        return found

    @staticmethod
    def added(executed: Any, gtid: Any) -> Any:
        return executed.add(*gtid)

    def _mysql_gtid(self, gtid: Any, pieces: list[Piece], now: float, *, statement: bool) -> Piece:
        length = sum(_encode.HEADER.size + len(piece.body) + 4 * self._setup.checksum for piece in pieces)
        source, number = gtid or ("0" * 32, 0)
        uuid, _, tag = source.partition(":")
        if tag:
            return Piece(GTID_TAGGED, _encode.tagged_gtid_body(uuids.UUID(uuid).bytes, tag, number, self._sequence, statement))
        body = _encode.mysql_gtid_body(
            uuids.UUID(uuid).bytes,
            number,
            ddl=statement,
            last_committed=self._sequence - 1,
            sequence=self._sequence,
            micros=int(now * 1_000_000),
            length=length - (0 if self._setup.checksum else 4),
            version=80400,
        )
        return Piece(GTID if gtid else ANONYMOUS_GTID, body)

    def append(
        self,
        kind: int,
        body: bytes,
        flags: int = 0,
        *,
        gtid: Gtid | None = None,
        now: float | None = None,
        server_id: int | None = None,
    ) -> None:
        """One event at the end of the journal."""
        if self.ended:
            raise StateError("the fake binlog was ended")
        journal = self.journals[-1]
        checksum = self._setup.checksum or (kind == FORMAT_DESCRIPTION and not self._setup.is_old)
        size = _encode.HEADER.size + len(body) + 4 * checksum
        data = _encode.event(
            kind,
            body,
            timestamp=int(self._setup.clock() if now is None else now),
            server_id=self._setup.server_id if server_id is None else server_id,
            end=journal.end + size,
            flags=flags,
            checksum=checksum,
        )
        journal.events.append(Event(journal.end, data, gtid))
        journal.end += len(data)
        self.changed.notify_all()

    def journal_name(self, number: int) -> str:
        return f"{self.base_name}.{number:06}"

    def close_journal(self) -> None:
        self.journals[-1].in_use = False

    def open_journal(self, *, created: bool, now: float | None = None) -> None:
        self.journal_number += 1
        self._sequence = 0
        self.journals.append(Journal(self.journal_name(self.journal_number), self.executed))
        now = int(self._setup.clock() if now is None else now)
        setup = self._setup
        body = _encode.format_description(
            setup.flavor, setup.version, now if created else 0, setup.checksum, setup.row_version, old=setup.is_old
        )
        self.append(FORMAT_DESCRIPTION, body, now=now)
        if self._setup.is_old:
            return
        if isinstance(self.executed, MysqlGtidSet):
            self.append(PREVIOUS_GTIDS, self.executed.encode(), IGNORABLE_F)
        else:
            self.append(MARIADB_GTID_LIST, self.gtid_list(self.gtid_state()))
            # The checkpoint moves on from the journal before; a server writes the second one a little later.
            for journal in self.journals[-1:] if created else self.journals[-2:]:
                name = journal.name.encode("utf-8")
                self.append(BINLOG_CHECKPOINT, struct.pack("<I", len(name)) + name)

    def gtid_state(self) -> list[tuple[int, int, int]]:
        """MariaDB's gtid_binlog_state, by domain; the latest of a domain is its last one."""
        state = [(domain, server, number) for (domain, server), number in self._state.items()]
        return sorted(state, key=lambda gtid: gtid[0])

    @staticmethod
    def gtid_list(gtids: Sequence[tuple[int, int, int]]) -> bytes:
        data = b"".join(struct.pack("<IIQ", *gtid) for gtid in gtids)
        return (struct.pack("<I", len(gtids)) + data).ljust(6, b"\0")  # an empty list has two bytes more

    def find(self, name: str) -> Journal:
        for journal in self.journals:
            if journal.name == name:
                return journal
        raise UsageError(f"the fake binlog has no journal {name}")
