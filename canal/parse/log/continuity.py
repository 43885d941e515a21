"""Checks that a stream continues without a gap: from one log to the next, and after a reset of the log.

Never reads anything: the decoder reports the head and end of each log. Inside a log, the decoder compares the offsets of
events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

import attrs

from canal.binlog import event_layout as layout
from canal.binlog.event_types import FORMAT_DESCRIPTION, HEADS, ROTATE
from canal.errors import DecodeError, LostReason, PositionLostError
from canal.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet
from canal.parse.log.events import Format, check_format, parse_format
from canal.position import Position, journal_key

_GAP_REMEDY = "Restore the missing log."
_RESET_REMEDY = "Check the source: the log was reset, or belongs to another server."


def incarnation_of(description: bytes) -> str:
    """Return the time and server id of a FORMAT_DESCRIPTION, which distinguish logs with the same name; see ``Position``."""
    time, server = description[: layout.TYPE], description[layout.SERVER : layout.SIZE]
    return f"{int.from_bytes(time, 'little')}-{int.from_bytes(server, 'little')}"


def opened(start: Position, events: list[bytes]) -> Position:
    """Return the start of a stream with the journal's incarnation, if the first events belong to that journal."""
    rotate = next((event for event in events if event[layout.TYPE] == ROTATE), b"")
    head = next((event for event in events if event[layout.TYPE] == FORMAT_DESCRIPTION), b"")
    name = start.journal.encode("utf-8", "surrogateescape")
    told = rotate[layout.ROTATE_NAME :]
    is_named = told.startswith(name) and len(told) - len(name) in (0, layout.CHECKSUM)
    try:
        if head and is_named:
            check_format(head, parse_format(head))
            return attrs.evolve(start, incarnation=incarnation_of(head))
    except DecodeError:  # the decoder raises it too
        pass
    return start


def first_of(events: Iterable[bytes]) -> bytes | None:
    """Return the first event that is not part of a log's head."""
    return next((event for event in events if event[layout.TYPE] not in HEADS), None)


def is_at(cursor: Position, event: bytes) -> bool:
    """Return whether a canal cursor belongs to an event, by time and server id."""
    return incarnation_of(event) == f"{cursor.timestamp // 1000}-{cursor.server_id}"


class Continuity:
    """The checks for one stream.

    Args:
        start: the position from which the stream was requested.
        source: the server's identity; "" for files.
        by_offset: the stream begins at the journal and offset of ``start``, so no event may be missing. Otherwise it begins
            after the GTID set, and the source skips transactions in the set.
        ask: returns the incarnation of a journal on the source, "" if there is no such journal, None if unknown.

    A log ends with a ROTATE that names the next log, which begins in the same second. Otherwise the server stopped there and
    was started again. The GTIDs listed at a log's head must have been read. During a dump, a server whose log is reset
    continues with a log of the new series.
    """

    def __init__(self, start: Position, source: str, *, by_offset: bool, ask: Callable[[str], str | None] | None = None) -> None:
        self.by_offset = by_offset
        self._start = start
        self._source = source
        self._ask = ask
        self._journal = ""
        self._incarnation = ""
        self._before = ""  # the previous journal
        self._is_first = True
        # At "latest", MySQL's GTID set may lack a transaction that is committing, although the offset is after it.
        # In a dump by offset without a GTID set, the head of the first log supplies the set.
        is_fuzzy = bool(source and start.gtid) and isinstance(start.gtid_set, MysqlGtidSet)
        self._is_sure = start.server_id != 0 or not is_fuzzy
        self._announced = ""
        self._rotated_at: int | None = None  # in seconds; None if the previous log did not end with a ROTATE
        self._has_stopped = False
        self._has_ended = False  # without a ROTATE; the head of the next log must show a server start
        #: Whether the first event must still be compared with the canal cursor.
        self.expects_event = by_offset and start.at_event and start.timestamp > 0
        #: A warning for the operator, or "".
        self.warning = ""
        self._doubt = ""  # a log after which another may be missing, unless the next head lists only GTIDs that were read
        self._is_cut = False  # the previous log may be cut off, unless the next head lists only GTIDs that were read

    def announce(self, journal: str, timestamp: int) -> None:
        """Record the ROTATE at the end of a log."""
        self._announced, self._rotated_at = journal, timestamp

    def stop(self) -> None:
        """Record the STOP at the end of a log."""
        self._has_stopped = True

    def enter(self, journal: str, offset: int) -> None:
        """Record that the source begins with a log or continues with the next; ``offset`` is the end in the previous log."""
        before, self._journal = self._journal, journal
        announced, self._announced = self._announced, ""
        if not before or journal == before and not announced:
            return
        # A stream by offset may start after the first log's ROTATE, unless it starts at a transaction end.
        begins_before = offset > self._start.offset or self._start.server_id != 0 and not self._start.at_event
        has_read = not self._is_first or not self.by_offset or begins_before
        if self.expects_event:
            raise self._foreign(f"{before} ends there")
        if self.is_open:
            self.check()
        self._is_first, self._before = False, before
        if announced:
            if journal != announced:
                raise self._gap(f"{before} ends with a ROTATE to {announced}, but {journal} follows")
            return
        (base, number), (other, following) = journal_key(before), journal_key(journal)
        if base == other and following != number + 1:
            self._doubt = before
        self._has_ended = has_read

    def describe(self, description: bytes, form: Format) -> str:
        """Check the log's FORMAT_DESCRIPTION and return the incarnation."""
        former, self._incarnation = self._incarnation, incarnation_of(description)
        rotated_at, self._rotated_at = self._rotated_at, None
        has_ended, self._has_ended = self._has_ended, False
        has_stopped, self._has_stopped = self._has_stopped, False
        if self._is_first:
            if self._start.source == self._source or self._start.incarnation and not self._start.source:
                self._check_life(self._incarnation)
        elif has_ended and self._source:
            self._check_start(former, form)
        elif has_ended and not form.created:
            raise self._broken(f"{self._before} ends without a ROTATE, and the server did not stop there")
        elif rotated_at is not None and rotated_at != int.from_bytes(description[: layout.TYPE], "little"):
            self._check_rotation(former, form)
        elif has_ended and not has_stopped:
            self._is_cut = True
        return self._incarnation

    def _check_rotation(self, former: str, form: Format) -> None:
        """Check a log that began in another second than the ROTATE to it.

        MariaDB may take some time to rotate on a signal. A server may also stop in between, and the next start begins the log.
        MySQL does not send that start in a dump by GTID set.
        """
        may_be_late = form.release.is_mariadb or form.created or not self.by_offset
        has_former = self._has(former) if may_be_late else False
        if has_former is None:
            self._doubt = self._before
        elif not has_former:
            raise self._reset(f"{self._journal} does not continue {self._before}, which ends with a ROTATE at another time")

    def _check_start(self, former: str, form: Format) -> None:
        """Check a log that began at a server start: of the same server, or after a reset.

        A dump by GTID set may omit the time of the start and the end of the previous log.
        """
        has_former = self._has(former) if form.created or not self.by_offset else False
        if has_former is False:
            raise self._reset(f"{self._before} ends without a ROTATE, and the server did not stop there")
        if has_former is None and not form.created:
            self._doubt = self._before

    def _has(self, former: str) -> bool | None:
        """Return whether the source still has the previous log; None if unknown."""
        present = self._ask(self._before) if self._ask is not None else None
        return present == former if present else None

    def _check_life(self, incarnation: str) -> None:
        start = self._start
        (base, number), (other, present) = journal_key(start.journal), journal_key(self._journal)
        if base != other or present > number:  # no journal, or a purged one: the GTID set proves the rest
            return
        if present < number:
            raise self._reset(f"the log begins at {self._journal} again")
        if start.incarnation and incarnation != start.incarnation:
            raise self._reset(
                f"{start.journal} was created {_when(incarnation)}, but the position belongs to a log created "
                f"{_when(start.incarnation)}"
            )

    def meet(self, events: Sequence[bytes]) -> None:
        """Compare the stream's first event with a canal cursor, which has the event's time and server id."""
        first = first_of(events)
        if first is None or not self.expects_event:
            return
        start, self.expects_event = self._start, False
        if not is_at(start, first):
            raise self._foreign(f"the event there was written {_when(incarnation_of(first))}")

    def _foreign(self, found: str) -> PositionLostError:
        start = self._start
        return PositionLostError(
            f"{start} is the position of an event written {_when(f'{start.timestamp // 1000}-{start.server_id}')}, but {found}",
            reason=LostReason.OTHER_SERVER,
            position=start,
            remedy=_RESET_REMEDY,
        )

    def list(self, listed: GtidSet, executed: GtidSet, last: tuple[int, int, int] | None = None) -> GtidSet:
        """Compare the GTIDs listed at a log's head with those done, and return the GTIDs that are done.

        ``last`` is the domain, server id and number of the stream's last transaction. It is None for MySQL: a head may lack
        a transaction written just before it, and the next head lists it.
        """
        if self._is_first:
            return executed
        if last is not None and isinstance(listed, MariadbGtidSet) and not listed.contains(*last):
            raise self._broken(f"{self._journal} does not list the last transaction of the previous log")
        missing, is_sure, self._is_sure = _missing(listed, executed), self._is_sure, True
        if missing and not is_sure and not self._doubt:
            return _union(executed, listed)
        if missing:
            raise self._broken(f"{self._journal} lists GTIDs that no earlier log contained: {missing}")
        if listed:
            self._doubt, self._is_cut = "", False
        return executed

    def follow(self, source: str | tuple[int, int], number: int, executed: Any) -> int:
        """Check a GTID that does not follow the previous GTID. ``source`` is a UUID, or MariaDB's domain and server id.

        Returns:
            The number up to which transactions of ``source`` were already delivered from another server; 0 for none.
        """
        if isinstance(source, str):
            gtid, done_to = f"{source}:{number}", _last_of(executed, source, number)
        else:
            domain, server = source
            last = executed.domains.get(domain, (server, 0))
            gtid, done_to = f"{domain}-{server}-{number}", last[1] if last[0] == server and number <= last[1] else 0
        if done_to and not self.by_offset:
            self.warning = f"the source sends transactions that are done, such as {gtid}: they are delivered again"
        if not self.by_offset or not isinstance(source, str):  # MariaDB's numbers may restart within a log
            return 0
        if done_to and source.partition(":")[0] == self._source:
            raise self._reset(f"{gtid} is in {self._journal}, but was done before that log was created")
        return done_to

    @property
    def is_open(self) -> bool:
        """Whether ``check`` must be called at the next transaction or at the end: continuity is not proved yet."""
        return bool(self._doubt) or self._is_cut or self.expects_event and bool(self._incarnation)

    def check(self) -> None:
        """Raise PositionLostError or set ``warning`` if continuity is not proved."""
        if self.expects_event:
            raise self._foreign("the stream has no event there")
        if self._is_cut:
            self._is_cut = False
            self.warning = (
                f"{self._before} ends with neither ROTATE nor STOP: the server crashed, or the file was cut off. Without GTIDs "
                "the two cannot be distinguished"
            )
        if self._doubt:
            raise self._gap(f"{self._journal} follows {self._doubt}, and a log between them may be missing")

    def _gap(self, what: str) -> PositionLostError:
        behind = Position(journal=self._journal, offset=layout.FIRST, source=self._source)
        return PositionLostError(what, reason=LostReason.GAP, behind=behind, remedy=_GAP_REMEDY)

    def _broken(self, what: str) -> PositionLostError:
        """Return the error for a log that is not continuous: a reset log of a server, or missing files."""
        return self._reset(what) if self._source else self._gap(f"{what}: a part is missing")

    def _reset(self, what: str) -> PositionLostError:
        return PositionLostError(what, reason=LostReason.DIVERGED, position=self._start, remedy=_RESET_REMEDY)


def _missing(listed: GtidSet, executed: GtidSet) -> GtidSet | None:
    """Return the listed GTIDs that are not done; None if there are none."""
    if isinstance(listed, MysqlGtidSet) and isinstance(executed, MysqlGtidSet):
        return listed - executed or None
    if isinstance(listed, MariadbGtidSet) and isinstance(executed, MariadbGtidSet):
        done = executed.domains
        return MariadbGtidSet({domain: last for domain, last in listed.domains.items() if done.get(domain) != last}) or None
    return None


def _last_of(executed: MysqlGtidSet, source: str, number: int) -> int:
    """Return the end of the interval that contains a number; 0 if the set lacks it."""
    return next((last for first, last in executed.intervals(source) if first <= number <= last), 0)


def _union(one: GtidSet, other: GtidSet) -> GtidSet:
    return one | other if isinstance(one, MysqlGtidSet) and isinstance(other, MysqlGtidSet) else one


def _when(incarnation: str) -> str:
    seconds, _, server = incarnation.partition("-")
    return f"{datetime.fromtimestamp(int(seconds), timezone.utc):%Y-%m-%d %H:%M:%S} UTC by server {server}"
