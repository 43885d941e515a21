"""Proof that a stream goes on where it ended: from one log to the next, and in the same life of a log.

Never reads anything itself: the decoder says what stands at the head and at the end of each log. Inside of a log the offsets
of the events are the proof, and the decoder compares them.
"""

from __future__ import annotations

from datetime import datetime, timezone

import attrs

from canal.errors import DecodeError, LostReason, PositionLostError
from canal.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet
from canal.parse.events import check_format, parse_format
from canal.position import Position, journal_key

_ROTATE, _FORMAT = 4, 15
#: Events that come before those of the position.
_HEADS = frozenset((4, 15, 27, 35, 41, 163, 164))
_GAP_REMEDY = (
    'Put back what is missing, or choose on_lost="earliest", which goes on behind the gap: copy the tables anew then, for '
    "what was in it is not delivered."
)
_RESET_REMEDY = 'The log was reset, or is that of another server: copy the tables anew and start from "latest" or "earliest".'


def incarnation_of(description: bytes) -> str:
    """What a FORMAT_DESCRIPTION tells its log from a later one of the same name by; see ``Position.incarnation``."""
    return f"{int.from_bytes(description[:4], 'little')}-{int.from_bytes(description[5:9], 'little')}"


def opened(start: Position, events: list[bytes]) -> Position:
    """The start of a stream with the incarnation of its journal, where the first events are of that journal."""
    rotate = next((event for event in events if event[4] == _ROTATE), b"")
    head = next((event for event in events if event[4] == _FORMAT), b"")
    name = start.journal.encode("utf-8", "surrogateescape")
    is_named = len(rotate) - 27 - len(name) in (0, 4) and rotate[27:].startswith(name)
    try:
        if head and is_named:
            check_format(head, parse_format(head))
            return attrs.evolve(start, incarnation=incarnation_of(head))
    except DecodeError:  # which the decoder raises too
        pass
    return start


class Continuity:
    """The proof for one stream.

    Args:
        start: the position from which the stream was asked for.
        source: identity of the server; "" for files.
        by_offset: the stream begins at the journal and offset of ``start``, so that nothing between two events may be missing;
            else behind its GTID set, and the source leaves out what the set has.

    A server vouches for the order of its own logs. Files may be copies of some of them: there a ROTATE has to name the next
    one, and where a log ends without one, its server must have stopped there and started anew. In both, the GTIDs that a head
    lists must have been read.
    """

    def __init__(self, start: Position, source: str, *, by_offset: bool) -> None:
        self.by_offset = by_offset
        self._start = start
        self._source = source
        self._journal = ""
        self._is_first = True
        # "latest" and the like: MySQL tells a set that may lack what is being committed, though the offset is behind it.
        self._is_sure = start.server_id != 0 or not start.gtid  # without one the head of the first log tells it
        self._announced = ""
        self._has_stopped = False
        #: Whether the first event is yet to be compared with what the start says of it.
        self.expects_event = by_offset and start.at_event and start.timestamp > 0
        self._cut = ""  # a log that ended with nothing, until the head of the next one tells that a server started there
        #: The first GTID that came although it is in the GTID set behind which the stream was to begin; "" for none.
        self.repeated = ""
        #: A log behind which some may be missing, until the GTIDs that the next head lists are known to have been read.
        self.doubt = ""

    def announce(self, journal: str) -> None:
        """A log ends with a ROTATE to another one."""
        self._announced = journal

    def stop(self) -> None:
        """A log ends with a STOP."""
        self._has_stopped = True

    def enter(self, journal: str, offset: int) -> None:
        """The source goes over to a log, or begins with it; ``offset`` is how far it has read in the former one."""
        before, self._journal = self._journal, journal
        announced, self._announced = self._announced, ""
        has_stopped, self._has_stopped = self._has_stopped, False
        if not before or journal == before and not announced:
            return
        has_read = not self._is_first or offset > self._start.offset  # else the start may be behind a ROTATE
        self._is_first = False
        if announced:
            if journal != announced:
                raise self._gap(f"{before} ends with a ROTATE to {announced}, and {journal} comes")
            return
        (base, number), (other, following) = journal_key(before), journal_key(journal)
        if base == other and following != number + 1:
            self.doubt = before
        if not self._source and not has_stopped and has_read:
            self._cut = before

    def describe(self, description: bytes, created: int) -> str:
        """The present log's FORMAT_DESCRIPTION; ``created`` is 0 unless a server started with it. Gives the incarnation."""
        incarnation = incarnation_of(description)
        cut, self._cut = self._cut, ""
        if cut and not created:
            raise self._gap(f"{cut} ends without a ROTATE, and no server stopped there: its end was cut off")
        if self._is_first and self._start.incarnation and self._start.source in ("", self._source):
            self._check_life(incarnation)
        return incarnation

    def _check_life(self, incarnation: str) -> None:
        start = self._start
        (base, number), (other, present) = journal_key(start.journal), journal_key(self._journal)
        if base != other or present > number:  # the log of the position was purged, and the GTID set tells the rest
            return
        if present < number:
            raise self._reset(f"its log begins at {self._journal} again")
        if incarnation != start.incarnation:
            raise self._reset(
                f"{start.journal} was begun {_when(incarnation)}, and the position is one of a log that was begun "
                f"{_when(start.incarnation)}"
            )

    def meet(self, events: list[bytes]) -> None:
        """The first events of the stream: a cursor of canal's tells time and server of the one that its offset is of."""
        first = next((event for event in events if event[4] not in _HEADS), None)
        if first is None or not self.expects_event:
            return
        start, self.expects_event = self._start, False
        found = (int.from_bytes(first[:4], "little"), int.from_bytes(first[5:9], "little"))
        if found != (start.timestamp // 1000, start.server_id):
            raise PositionLostError(
                f"{start} is the position of an event of {_when(f'{start.timestamp // 1000}-{start.server_id}')}, and the "
                f"event there is of {_when('{}-{}'.format(*found))}",
                reason=LostReason.OTHER_SERVER, position=start, remedy=_RESET_REMEDY,
            )  # fmt: skip

    def list(self, listed: GtidSet, executed: GtidSet) -> GtidSet:
        """The GTIDs in all former logs, by the head of the present one, and those that are done; gives what is done."""
        if self._is_first:
            return executed
        missing, is_sure, self._is_sure = _missing(listed, executed), self._is_sure, True
        if missing and not is_sure and not self.doubt:
            return _union(executed, listed)
        if missing:
            raise self._gap(f"{self._journal} lists GTIDs that came in no log before it: {missing}")
        if listed:
            self.doubt = ""
        return executed

    def repeat(self, gtid: str) -> None:
        """A GTID of MySQL comes that is done. MariaDB's numbers may begin again in one log."""
        if self.by_offset:
            raise self._reset(f"{gtid} comes in {self._journal}, and was done before that log was begun")
        self.repeated = self.repeated or gtid

    def check(self) -> None:
        """A transaction begins."""
        if self.doubt:
            raise self._gap(f"{self._journal} comes behind {self.doubt}, and nothing proves that no log between is missing")

    def _gap(self, what: str) -> PositionLostError:
        behind = Position(journal=self._journal, offset=4, source=self._source)
        return PositionLostError(what, reason=LostReason.GAP, behind=behind, remedy=_GAP_REMEDY)

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


def _union(one: GtidSet, other: GtidSet) -> GtidSet:
    return one | other if isinstance(one, MysqlGtidSet) and isinstance(other, MysqlGtidSet) else one


def _when(incarnation: str) -> str:
    seconds, _, server = incarnation.partition("-")
    return f"{datetime.fromtimestamp(int(seconds), timezone.utc):%Y-%m-%d %H:%M:%S} UTC by server {server}"
