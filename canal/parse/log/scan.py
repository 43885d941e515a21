"""Finds transaction boundaries in a journal from event headers, to start at a time or at the end of a file.

Never decodes rows and never reads anything: raw events in, a position out.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

from canal.binlog import event_layout as layout
from canal.binlog.event_types import (
    ANONYMOUS_GTID,
    ARTIFICIAL_F,
    BINLOG_CHECKPOINT,
    FL_COMPLETED_XA,
    FL_STANDALONE,
    FORMAT_DESCRIPTION,
    GTID,
    GTID_TAGGED,
    HEARTBEATS,
    INTVAR,
    MARIADB_GTID,
    MARIADB_GTID_LIST,
    PREVIOUS_GTIDS,
    QUERY,
    QUERY_COMPRESSED,
    RAND,
    ROTATE,
    START_ENCRYPTION,
    TRANSACTION_PAYLOAD,
    USER_VAR,
    XA_PREPARE,
    XID,
    event_name,
)
from canal.errors import LOG_DAMAGED, ConnectionLostError, DecodeError, LostReason, PositionLostError, SourceError, TruncatedError
from canal.gtid import MAX_NUMBER, GtidSet, MariadbGtidSet, MysqlGtidSet
from canal.parse.log.events import (
    CRC_RESIDUE,
    parse_format,
    parse_gtid_list,
    parse_previous_gtids,
    parse_tagged_gtid,
    text_start,
    uuid_text,
)
from canal.position import Position, journal_key

log = logging.getLogger("canal.parse")

_GTIDS = frozenset((GTID, ANONYMOUS_GTID, GTID_TAGGED, MARIADB_GTID))
_PRELUDES = frozenset((INTVAR, RAND, USER_VAR))
#: Events that may precede the first event of a dump's position.
_OPENING = frozenset((ROTATE, FORMAT_DESCRIPTION, PREVIOUS_GTIDS, BINLOG_CHECKPOINT, MARIADB_GTID_LIST, START_ENCRYPTION))
_ENDS = frozenset((XID, XA_PREPARE, TRANSACTION_PAYLOAD))
#: Events at the head of a journal, which may have no position.
_POSITIONLESS = frozenset((FORMAT_DESCRIPTION, PREVIOUS_GTIDS, MARIADB_GTID_LIST))
#: Minimum sizes of events that are parsed beyond the header.
_LEAST = {
    QUERY: layout.QUERY_STATUS,
    ROTATE: layout.ROTATE_NAME,
    GTID: layout.GTID_CLOCK,
    MARIADB_GTID: layout.MARIADB_GTID_REST,
    MARIADB_GTID_LIST: layout.GTID_LIST,
}


def transaction_start(connection: Any, position: Position) -> int:
    """Return the start of the transaction that contains the position, or the position's offset if none does.

    Args:
        connection: the source; provides ``replay(journal, offset)`` and ``resolve("latest")``.
        position: a journal and offset that a user entered.
    """
    try:
        events = connection.replay(position.journal, position.offset)
        first = next((event for event in events if event[layout.TYPE] not in _OPENING), None)
        if first[layout.TYPE] in _GTIDS if first is not None else _is_end(connection, position):
            return position.offset
    except SourceError as error:
        # Probably no event begins there. A server reports that as a position beyond the log.
        is_gone = isinstance(error, PositionLostError) and error.reason is not LostReason.BEYOND
        if is_gone or isinstance(error, ConnectionLostError):
            raise
        log.info("no event begins at %s:%d: %s", position.journal, position.offset, error)
    scan = TransactionScan()
    for event in connection.replay(position.journal, layout.FIRST):
        start = scan.whole
        if event[layout.TYPE] != ROTATE:
            scan.feed(event)
        if scan.whole > position.offset:
            return start
        if scan.offset >= position.offset:
            break
    return scan.whole


def _is_end(connection: Any, position: Position) -> bool:
    """Return whether a log ends at the position: MySQL 5.5 sends nothing for an offset at which no event begins."""
    end = connection.resolve("latest")
    return bool((end.journal, end.offset) == (position.journal, position.offset))


def first_to_scan(names: Sequence[str], begin: Callable[[str], int | None], target: int, source: str, position: Position) -> int:
    """Return the index of the log to scan for the first transaction at or after ``target`` (seconds).

    That is the log before the first log created at or after ``target``, or the last log. Clocks may go back, so every
    earlier log is queried for the creation time.

    Raises:
        PositionLostError: the oldest log was created at or after ``target``, and earlier logs were purged.
    """
    for number, name in enumerate(names):
        try:
            time = begin(name)
        except PositionLostError as error:
            if error.reason is not LostReason.PURGED:
                raise
            continue  # purged after the logs were listed
        if time is None or time < target:
            continue
        if number == 0 and journal_key(name)[1] > 1:
            raise PositionLostError(
                f"{source} has no log from before {_utc(position.timestamp)}: it has {names[0]}, created {_utc(time * 1000)}, "
                f"to {names[-1]}",
                position=position,
            )
        return max(number - 1, 0)
    return len(names) - 1


def _utc(timestamp: int) -> str:
    return datetime.fromtimestamp(timestamp / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


class TransactionScan:
    """Follows the events of journals from the start of a journal.

    ``found`` is the start of the first transaction at or after ``target`` (seconds; None to search for none).
    ``boundary`` is the end of the last whole transaction. ``journals`` counts the journals entered. Checksums are not
    verified: the caller has done so (``side_reads``).
    """

    def __init__(self, target: int | None = None) -> None:
        self._target = target
        self.found: Position | None = None
        self._boundary = layout.FIRST
        self.journals = 0
        self.format_time: int | None = None
        self._journal = ""
        self._offset = layout.FIRST
        self._checksum: bool | None = None
        self._time = 0
        self._open = self._inside = self._has_gtids = False
        self._executed: GtidSet | None = None
        self._gtid: tuple[str, int] | tuple[int, int, int] | None = None
        self._run: tuple[str, int, int] | None = None

    def feed(self, event: bytes, start: int | None = None) -> None:
        """Process the next event of the stream. Does nothing once ``found`` is set.

        ``start`` is the event's offset, if known. Otherwise it is derived from the events' end offsets.
        """
        kind = event[layout.TYPE]
        if self.found is not None or kind in HEARTBEATS:
            return
        if len(event) < _LEAST.get(kind, layout.HEADER):
            raise TruncatedError(f"{event_name(kind)} event is too short", event_type=kind)
        if kind == ROTATE:
            self._rotate(event)
            return
        if start is None:
            start = self._offset
            self._advance(event, kind)
        else:
            self._offset = start + len(event)
        if kind == FORMAT_DESCRIPTION:
            self._format(event)
        elif kind == PREVIOUS_GTIDS:
            self._executed, self._run = parse_previous_gtids(event, self._end(event)), None
        elif kind == MARIADB_GTID_LIST:
            count = int.from_bytes(event[layout.GTID_LIST_COUNT : layout.GTID_LIST], "little") & 0x0FFFFFFF
            end = layout.GTID_LIST + layout.GTID_LIST_EACH * count  # an empty list is padded
            self._executed = parse_gtid_list(event, min(self._end(event), end))
        else:
            self._transaction(event, kind, start)
        if not self._open:
            self._boundary = self._offset

    @property
    def boundary(self) -> Position:
        return self._position(self._boundary)

    @property
    def offset(self) -> int:
        """Offset after the last event, in the present journal."""
        return self._offset

    @property
    def whole(self) -> int:
        """Offset after the last whole transaction, in the present journal."""
        return self._boundary

    @property
    def has_checksum(self) -> bool:
        """Whether events of the present journal end in a CRC32."""
        return bool(self._checksum)

    # -- journals ------------------------------------------------------------------------------------------------------

    def _end(self, event: bytes) -> int:
        return len(event) - layout.CHECKSUM if self._checksum else len(event)

    def _rotate(self, event: bytes) -> None:
        if event[layout.ROTATE_TOP] & 0xC0:
            raise DecodeError("a ROTATE has an impossible offset", event_type=ROTATE, remedy=LOG_DAMAGED)
        end = len(event)
        # The artificial ROTATE at a dump's start precedes the FORMAT_DESCRIPTION that announces checksums.
        if self._checksum or (self._checksum is None and zlib.crc32(event) == CRC_RESIDUE):
            end -= layout.CHECKSUM
        name = event[layout.ROTATE_NAME : end].rstrip(b"\0").decode("utf-8", "surrogateescape")
        if name != self._journal:
            self.journals += 1
        self._journal, self._offset = name, int.from_bytes(event[layout.ROTATE_OFFSET : layout.ROTATE_NAME], "little")
        self._boundary = self._offset

    def _format(self, event: bytes) -> None:
        self._checksum = parse_format(event).checksum
        self.format_time = int.from_bytes(event[: layout.TYPE], "little")
        self._open = self._inside = self._has_gtids = False

    def _advance(self, event: bytes, kind: int) -> None:
        """Extend 32-bit offsets to 64 bits. MariaDB 11.4 writes none inside a transaction."""
        log_pos = int.from_bytes(event[layout.END : layout.FLAGS], "little")
        if log_pos and not event[layout.FLAGS] & ARTIFICIAL_F:
            expected = self._offset + len(event)
            self._offset = expected + (log_pos - expected & 0xFFFFFFFF)
        elif log_pos == 0 and kind not in _POSITIONLESS and not event[layout.FLAGS] & ARTIFICIAL_F:
            self._offset += len(event)

    # -- transactions --------------------------------------------------------------------------------------------------

    def _transaction(self, event: bytes, kind: int, start: int) -> None:
        if kind in _GTIDS:
            self._has_gtids = True
            self._begin(event, start)
            self._inside = kind == MARIADB_GTID and not event[layout.MARIADB_GTID_FLAGS] & (FL_STANDALONE | FL_COMPLETED_XA)
            self._gtid = self._gtid_of(event, kind)
        elif kind == QUERY or kind == QUERY_COMPRESSED:
            self._query(event, kind, start)
        elif kind in _PRELUDES and not self._open and not self._has_gtids:
            self._begin(event, start)
        elif kind in _ENDS:
            self._finish()

    def _query(self, event: bytes, kind: int, start: int) -> None:
        sql = self._statement(event) if kind == QUERY else b""
        if not self._open:
            self._begin(event, start)
        if sql == b"BEGIN" or sql.startswith(b"XA START"):
            self._inside = True
        elif not self._inside or sql in (b"COMMIT", b"ROLLBACK", b"XA ROLLBAC"):
            self._finish()

    def _statement(self, event: bytes) -> bytes:
        """Return the first bytes of the statement, enough to recognise a boundary."""
        at = text_start(event)
        return event[at : min(at + 10, self._end(event))].upper()

    def _begin(self, event: bytes, start: int) -> None:
        time = int.from_bytes(event[: layout.TYPE], "little")
        self._open, self._gtid = True, None
        if self._target is not None and time >= self._target:
            self.found = self._position(start)
        self._time = time

    def _finish(self) -> None:
        gtid, self._gtid = self._gtid, None
        self._open = self._inside = False
        if gtid is None or self._executed is None:
            return
        if isinstance(self._executed, MariadbGtidSet) != (len(gtid) == 3):
            raise DecodeError("a GTID has another flavor than the GTID list before it", remedy="The log is damaged.")
        if isinstance(self._executed, MariadbGtidSet):
            self._executed = self._executed.add(*gtid)
        elif self._run is not None and self._run[0] == gtid[0] and self._run[2] + 1 == gtid[1]:
            self._run = (self._run[0], self._run[1], gtid[1])
        else:
            self._executed, self._run = self._executed_now(), (str(gtid[0]), gtid[1], gtid[1])

    def _gtid_of(self, event: bytes, kind: int) -> tuple[str, int] | tuple[int, int, int] | None:
        number = int.from_bytes
        if kind == GTID:
            found = number(event[layout.GTID_NUMBER : layout.GTID_CLOCK], "little")
            if not 0 < found <= MAX_NUMBER:
                raise DecodeError(f"a GTID has the number {found}", event_type=kind, remedy=LOG_DAMAGED)
            return uuid_text(event[layout.GTID_SOURCE : layout.GTID_NUMBER]), found
        if kind == MARIADB_GTID:
            found, domain = struct.unpack_from("<QI", event, layout.MARIADB_GTID_NUMBER)
            return domain, number(event[layout.SERVER : layout.SIZE], "little"), found
        if kind == GTID_TAGGED:
            return parse_tagged_gtid(event, self._end(event))[:2]
        return None

    def _executed_now(self) -> GtidSet | None:
        """Return the GTIDs done. Consecutive numbers are added only on demand, because adding copies the set."""
        if self._run is not None and isinstance(self._executed, MysqlGtidSet):
            self._executed, self._run = self._executed.add(*self._run), None
        return self._executed

    def _position(self, offset: int) -> Position:
        executed = self._executed_now()
        return Position(
            journal=self._journal, offset=offset, gtid=str(executed) if executed is not None else "", timestamp=self._time * 1000
        )
