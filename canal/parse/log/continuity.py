"""Proof that a stream goes on where it ended: from one log to the next, and in the same life of a log.

Never reads anything itself: the decoder says what stands at the head and at the end of each log. Inside of a log the offsets
of the events are the proof, and the decoder compares them.
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

_GAP_REMEDY = "Put back what is missing."
_RESET_REMEDY = "The log was reset, or is that of another server."


def incarnation_of(description: bytes) -> str:
    """What a FORMAT_DESCRIPTION tells its log from a later one of the same name by: time and server; see ``Position``."""
    time, server = description[: layout.TYPE], description[layout.SERVER : layout.SIZE]
    return f"{int.from_bytes(time, 'little')}-{int.from_bytes(server, 'little')}"


def opened(start: Position, events: list[bytes]) -> Position:
    """The start of a stream with the incarnation of its journal, where the first events are of that journal."""
    rotate = next((event for event in events if event[layout.TYPE] == ROTATE), b"")
    head = next((event for event in events if event[layout.TYPE] == FORMAT_DESCRIPTION), b"")
    name = start.journal.encode("utf-8", "surrogateescape")
    told = rotate[layout.ROTATE_NAME :]
    is_named = told.startswith(name) and len(told) - len(name) in (0, layout.CHECKSUM)
    try:
        if head and is_named:
            check_format(head, parse_format(head))
            return attrs.evolve(start, incarnation=incarnation_of(head))
    except DecodeError:  # which the decoder raises too
        pass
    return start


def first_of(events: Iterable[bytes]) -> bytes | None:
    """The first event that is one of the position from which a stream was asked for."""
    return next((event for event in events if event[layout.TYPE] not in HEADS), None)


def is_at(cursor: Position, event: bytes) -> bool:
    """Whether a cursor of canal's is that of an event, by its time and the server that made it."""
    return incarnation_of(event) == f"{cursor.timestamp // 1000}-{cursor.server_id}"


class Continuity:
    """The proof for one stream.

    Args:
        start: the position from which the stream was asked for.
        source: identity of the server; "" for files.
        by_offset: the stream begins at the journal and offset of ``start``, so that nothing between two events may be missing;
            else behind its GTID set, and the source leaves out what the set has.
        ask: gives the incarnation of a journal that the source has now, "" for none, None where it cannot be asked.

    A log ends with a ROTATE, which names the next one and is of the very second in which that was begun, or else its server
    stopped there and started anew. The GTIDs that a head lists must have been read. A server whose log is reset under a dump
    goes over to a log of the new ones all the same.
    """

    def __init__(self, start: Position, source: str, *, by_offset: bool, ask: Callable[[str], str | None] | None = None) -> None:
        self.by_offset = by_offset
        self._start = start
        self._source = source
        self._ask = ask
        self._journal = ""
        self._incarnation = ""
        self._before = ""  # the journal before this one
        self._is_first = True
        # "latest" and the like: MySQL tells a set that may lack what is being committed, though the offset is behind it.
        # Without one the head of the first log tells it.
        is_fuzzy = bool(source and start.gtid) and isinstance(start.gtid_set, MysqlGtidSet)
        self._is_sure = start.server_id != 0 or not is_fuzzy
        self._announced = ""
        self._rotated_at: int | None = None  # seconds; None where the log before this one did not end with a ROTATE
        self._has_stopped = False
        self._has_ended = False  # with nothing, until the head of the next log tells that a server started there
        #: Whether the first event is yet to be compared with what the start says of it.
        self.expects_event = by_offset and start.at_event and start.timestamp > 0
        #: What an operator should know; "" for nothing.
        self.warning = ""
        self._doubt = ""  # a log behind which some may be missing, until the GTIDs that the next head lists have been read
        self._is_cut = False  # the log before this one, unless those GTIDs have been read

    def announce(self, journal: str, timestamp: int) -> None:
        """A log ends with a ROTATE to another one."""
        self._announced, self._rotated_at = journal, timestamp

    def stop(self) -> None:
        """A log ends with a STOP."""
        self._has_stopped = True

    def enter(self, journal: str, offset: int) -> None:
        """The source goes over to a log, or begins with it; ``offset`` is how far it has read in the former one."""
        before, self._journal = self._journal, journal
        announced, self._announced = self._announced, ""
        if not before or journal == before and not announced:
            return
        # Of its first log a stream by offset may not have the ROTATE: it begins behind it, unless where a transaction ended.
        begins_before = offset > self._start.offset or self._start.server_id != 0 and not self._start.at_event
        has_read = not self._is_first or not self.by_offset or begins_before
        if self.expects_event:
            raise self._foreign(f"{before} ends there")
        if self.is_open:
            self.check()
        self._is_first, self._before = False, before
        if announced:
            if journal != announced:
                raise self._gap(f"{before} ends with a ROTATE to {announced}, and {journal} comes")
            return
        (base, number), (other, following) = journal_key(before), journal_key(journal)
        if base == other and following != number + 1:
            self._doubt = before
        self._has_ended = has_read

    def describe(self, description: bytes, form: Format) -> str:
        """The present log's FORMAT_DESCRIPTION; gives its incarnation."""
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
            raise self._broken(f"{self._before} ends without a ROTATE, and no server stopped there")
        elif rotated_at is not None and rotated_at != int.from_bytes(description[: layout.TYPE], "little"):
            self._check_rotation(former, form)
        elif has_ended and not has_stopped:
            self._is_cut = True
        return self._incarnation

    def _check_rotation(self, former: str, form: Format) -> None:
        """The log was begun in another second than the ROTATE to it was written.

        MariaDB may take some for it on a signal, and a server may stop between the two: the next start begins the log then,
        which in a dump by GTID set MySQL leaves out.
        """
        may_be_late = form.release.is_mariadb or form.created or not self.by_offset
        has_former = self._has(former) if may_be_late else False
        if has_former is None:
            self._doubt = self._before
        elif not has_former:
            raise self._reset(f"{self._journal} was not begun by the ROTATE at the end of {self._before}")

    def _check_start(self, former: str, form: Format) -> None:
        """The log was begun by a server's start, that of the former one or of one that was begun anew.

        A dump by GTID set may leave out both when a server was started and the end of its first log.
        """
        has_former = self._has(former) if form.created or not self.by_offset else False
        if has_former is False:
            raise self._reset(f"{self._before} ends without a ROTATE, and no server stopped there")
        if has_former is None and not form.created:
            self._doubt = self._before

    def _has(self, former: str) -> bool | None:
        """Whether the source still has the log before this one; None where that is not known."""
        present = self._ask(self._before) if self._ask is not None else None
        return present == former if present else None

    def _check_life(self, incarnation: str) -> None:
        start = self._start
        (base, number), (other, present) = journal_key(start.journal), journal_key(self._journal)
        if base != other or present > number:  # none is named, or it was purged, and the GTID set tells the rest
            return
        if present < number:
            raise self._reset(f"its log begins at {self._journal} again")
        if start.incarnation and incarnation != start.incarnation:
            raise self._reset(
                f"{start.journal} was begun {_when(incarnation)}, and the position is one of a log that was begun "
                f"{_when(start.incarnation)}"
            )

    def meet(self, events: Sequence[bytes]) -> None:
        """The first events of the stream: a cursor of canal's tells time and server of the one that its offset is of."""
        first = first_of(events)
        if first is None or not self.expects_event:
            return
        start, self.expects_event = self._start, False
        if not is_at(start, first):
            raise self._foreign(f"the event there is of {_when(incarnation_of(first))}")

    def _foreign(self, found: str) -> PositionLostError:
        start = self._start
        return PositionLostError(
            f"{start} is the position of an event of {_when(f'{start.timestamp // 1000}-{start.server_id}')}, and {found}",
            reason=LostReason.OTHER_SERVER,
            position=start,
            remedy=_RESET_REMEDY,
        )

    def list(self, listed: GtidSet, executed: GtidSet, last: tuple[int, int, int] | None = None) -> GtidSet:
        """The GTIDs in all former logs, by the head of the present one, and those that are done; gives what is done.

        ``last`` is the domain, server id and number of the last one that came in this stream. For MySQL it is None: a head
        may lack what was written just before it, and the next one has it.
        """
        if self._is_first:
            return executed
        if last is not None and isinstance(listed, MariadbGtidSet) and not listed.contains(*last):
            raise self._broken(f"{self._journal} does not list the last transaction that came in a log before it")
        missing, is_sure, self._is_sure = _missing(listed, executed), self._is_sure, True
        if missing and not is_sure and not self._doubt:
            return _union(executed, listed)
        if missing:
            raise self._broken(f"{self._journal} lists GTIDs that came in no log before it: {missing}")
        if listed:
            self._doubt, self._is_cut = "", False
        return executed

    def follow(self, source: str | tuple[int, int], number: int, executed: Any) -> int:
        """A GTID comes that does not follow the last one; ``source`` is a UUID or MariaDB's domain and server id.

        Gives up to which number transactions of the source were delivered already, of another server that had them first; 0
        for none.
        """
        if isinstance(source, str):
            gtid, done_to = f"{source}:{number}", _last_of(executed, source, number)
        else:
            domain, server = source
            last = executed.domains.get(domain, (server, 0))
            gtid, done_to = f"{domain}-{server}-{number}", last[1] if last[0] == server and number <= last[1] else 0
        if done_to and not self.by_offset:
            self.warning = f"transactions come that are done, such as {gtid}: they are delivered again"
        if not self.by_offset or not isinstance(source, str):  # MariaDB's numbers may begin again in one log
            return 0
        if done_to and source.partition(":")[0] == self._source:
            raise self._reset(f"{gtid} comes in {self._journal}, and was done before that log was begun")
        return done_to

    @property
    def is_open(self) -> bool:
        """Whether ``check`` is to be called when the next transaction comes, or nothing: something is not proved yet."""
        return bool(self._doubt) or self._is_cut or self.expects_event and bool(self._incarnation)

    def check(self) -> None:
        """A transaction begins, or the source has no more."""
        if self.expects_event:
            raise self._foreign("nothing comes from there")
        if self._is_cut:
            self._is_cut = False
            self.warning = (
                f"{self._before} ends with neither ROTATE nor STOP: its server crashed there, or its end was cut off, which "
                "without GTIDs nobody can tell"
            )
        if self._doubt:
            raise self._gap(f"{self._journal} comes behind {self._doubt}, and nothing proves that no log between is missing")

    def _gap(self, what: str) -> PositionLostError:
        behind = Position(journal=self._journal, offset=layout.FIRST, source=self._source)
        return PositionLostError(what, reason=LostReason.GAP, behind=behind, remedy=_GAP_REMEDY)

    def _broken(self, what: str) -> PositionLostError:
        """A server leaves nothing out of its log, unless that is another one by now."""
        return self._reset(what) if self._source else self._gap(f"{what}: something is missing")

    def _reset(self, what: str) -> PositionLostError:
        return PositionLostError(what, reason=LostReason.DIVERGED, position=self._start, remedy=_RESET_REMEDY)


def _missing(listed: GtidSet, executed: GtidSet) -> GtidSet | None:
    """What is listed and not done; None for nothing."""
    if isinstance(listed, MysqlGtidSet) and isinstance(executed, MysqlGtidSet):
        return listed - executed or None
    if isinstance(listed, MariadbGtidSet) and isinstance(executed, MariadbGtidSet):
        done = executed.domains
        return MariadbGtidSet({domain: last for domain, last in listed.domains.items() if done.get(domain) != last}) or None
    return None


def _last_of(executed: MysqlGtidSet, source: str, number: int) -> int:
    """Up to which number all that follows a number of the source, and itself, is in a set; 0 where it is not."""
    return next((last for first, last in executed.intervals(source) if first <= number <= last), 0)


def _union(one: GtidSet, other: GtidSet) -> GtidSet:
    return one | other if isinstance(one, MysqlGtidSet) and isinstance(other, MysqlGtidSet) else one


def _when(incarnation: str) -> str:
    seconds, _, server = incarnation.partition("-")
    return f"{datetime.fromtimestamp(int(seconds), timezone.utc):%Y-%m-%d %H:%M:%S} UTC by server {server}"
