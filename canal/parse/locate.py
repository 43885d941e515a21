"""Where one run of a parser goes on after each connection: what canal.parse.start decides, carried out.

Never reads the stream. It asks the connection, and searches its log where the position is one of another server.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time

import attrs

from canal.alarm import AlarmDesk, AlarmKind
from canal.binlog import event_layout as layout
from canal.binlog.event_types import ANONYMOUS_GTID, GTID, GTID_TAGGED
from canal.errors import (
    GO_ON_AT_CURSOR,
    GO_ON_AT_START,
    AuthenticationError,
    ConnectionLostError,
    LostReason,
    PositionLostError,
    SourceError,
)
from canal.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet, parse_gtid_set
from canal.model import Entry
from canal.parse.connect import Link, name_of
from canal.parse.handover import taken_over
from canal.parse.log.continuity import first_of, incarnation_of, is_at
from canal.parse.log.digests import changes_schema, digests_of, find_tail, transactions
from canal.parse.log.scan import transaction_start
from canal.parse.log_positions import LogPositionManager
from canal.parse.options import Owner, ParserOptions
from canal.parse.source.protocol import FullConnection
from canal.parse.start import Decision, Facts, How, decide
from canal.position import Position, PreparedXa, journal_key

log = logging.getLogger("canal.parse")

_GTIDS = frozenset((GTID, ANONYMOUS_GTID, GTID_TAGGED))


class Locator:
    """Knows where reading stands, and finds that position in the log of a connection.

    Args:
        resume: where an earlier run has ended; None: the configured start.
    """

    def __init__(
        self, options: ParserOptions, owner: Owner, link: Link, destination: str, alarms: AlarmDesk, resume: Position | None
    ) -> None:
        self._options = options
        self._owner = owner
        self._positions: LogPositionManager = options.log_positions
        self._link = link
        self._destination = destination
        self._alarms = alarms
        self._resume = resume
        self.handed: Entry | None = None  # the last entry that the sink has taken
        self.started: Position | None = None  # where the stream began
        self.found = Position()  # what ``locate`` found last, with the begin of its journal also where the dump is by GTID set
        self.lost = 0
        self._lost_because: PositionLostError | None = None
        self.same_as: Position | None = None  # the start of the stream in the log of another server
        self.is_canals = False  # reading began at a cursor that canal has written
        self._none_done = False  # an empty GTID set says that nothing is done, not that this is unknown

    def position(self) -> Position | None:
        """Behind what the sink has taken, or where the stream began, or the stored cursor."""
        return self._positions.latest() or self.started or self._resume

    def executed(self, connection: FullConnection, position: Position) -> GtidSet | None:
        """The GTIDs done at the position; None where they are not known, which is not the same as none at all."""
        return parse_gtid_set(position.gtid, connection.flavor) if position.gtid or self._none_done else None

    def count_lost(self, error: PositionLostError) -> None:
        """Go on at the next cursor, if the first one is lost; else give up if no policy says what to do, or no position was found
        yet."""
        is_cursor = self.started is None and self._resume is not None and self.position() == self._resume
        if is_cursor and error.reason is LostReason.PURGED and (following := self._owner.lost(error)) is not None:
            self._resume = self._moved(following)
            return
        is_first = self.position() is None
        if is_first or self._options.on_lost == "fail":
            error.remedy = f"{error.remedy} {GO_ON_AT_START if is_first else GO_ON_AT_CURSOR}".strip()
            raise error
        connection = self._link.connection
        is_of_files = connection is not None and not connection.identity
        # Another server behind the same address may have the log; files have none.
        self.lost = self._options.dump_error_threshold + 1 if is_of_files else self.lost + 1
        self._lost_because = error

    def locate(self, connection: FullConnection) -> Position:
        """Where to go on, as canal.parse.start decides."""
        stored = self.position()
        position = None if stored is None else _in_present_life(connection, taken_over(connection, stored))
        if position is not None:
            position = self._link.own(connection.identity, position)
        if stored is not None and stored.at_event:
            self.is_canals = True
            self._none_done = position is not None and not position.at_event and connection.has_gtids
        decision = decide(
            Facts(
                position=position,
                configured=self._link.start,
                identity=connection.identity,
                flavor=connection.flavor,
                has_gtids=connection.has_gtids,
                journals=_journals(connection, position),
                lost=self.lost,
                threshold=self._options.dump_error_threshold,
                on_lost=self._options.on_lost,
                fallback=self._options.fallback_interval,
                behind=self._lost_because.behind if self._lost_because is not None else None,
            )
        )
        start, how = decision.start, decision.how
        if self.started is None and not self._is_policy(decision):
            is_same_log = decision.rule == "same log" and stored is not None and bool(stored.incarnation)
            self._check_marks(connection, is_same_log, stored or Position())
        if how in (How.GTID, How.OLDEST):
            assert position is not None
            _check_purged(connection, position)
        log.debug("[%s] start by rule %r: %s from %s", self._destination, decision.rule, how.value, start)
        if how is How.RESOLVE:
            position = self._resolve(connection, decision)
            self._none_done = not isinstance(start, Position) and connection.has_gtids
            return self._moved(position)
        assert isinstance(start, Position)
        if how is How.MATCH:
            self._none_done = False
            return self._match(connection, start)
        if how is How.FAIL:
            raise PositionLostError(
                f"{start} is a position in the log of server {start.source}, and {name_of(self._link.source)} is "
                f"{connection.identity}",
                reason=LostReason.OTHER_SERVER,
                position=start,
                remedy="Journals of two servers do not compare, and it has neither a GTID set nor a time.",
            )
        if how is How.OLDEST:
            assert position is not None
            connection.resolve(position)  # raises where something is gone that is not done
            start = _at_oldest(connection, position, start)
        if self.handed is not None:
            self._none_done = self.handed.transaction.gtid_base is not None
        self.found = start
        return attrs.evolve(start, incarnation="") if how is How.GTID else start

    def _moved(self, position: Position) -> Position:
        """A position that was searched for is where to go on from now on."""
        self.handed, self.lost, self.found = None, 0, position
        self._positions.persist(lambda: position)
        return position

    def _resolve(self, connection: FullConnection, decision: Decision) -> Position:
        start = decision.start
        try:
            position = connection.resolve(start)
        except PositionLostError as error:
            if not self._is_policy(decision):
                raise
            self._alarms.tell(AlarmKind.POSITION, f"{error}; from the oldest log that is there instead")
            position = connection.resolve("earliest")
        if start == "earliest":
            position = _in_present_life(connection, position)
        if start == "latest":  # or a switch before the first change would have no time to search for, nor canal
            clock = time.time() + (connection.clock_offset or 0.0)
            position = attrs.evolve(position, timestamp=int(1000 * clock))
        if isinstance(start, Position) and start.journal and start.offset > layout.FIRST and not start.source and not start.gtid:
            begin = transaction_start(connection, position)
            if begin != position.offset:
                log.warning("[%s] %s lies inside a transaction, which begins at %d", self._destination, position, begin)
                position = attrs.evolve(position, offset=begin)
        if self._is_policy(decision):
            self._alarms.tell(
                AlarmKind.POSITION,
                f"THE POSITION {self.position()} IS LOST ({self._lost_text()}): going on from {position}, as on_lost="
                f"{self._options.on_lost!r} says; the changes in between are not delivered, or are delivered again",
            )
            marks = [mark for mark in self._owner.marks() if not _is_of_present_log(connection, mark)]
            self._owner.translated(dict.fromkeys(marks))
        return position

    def _lost_text(self) -> str:
        """Why, without the remedy, which ``on_lost`` makes superfluous."""
        return " ".join(self._lost_because.message.split()) if self._lost_because is not None else ""

    @staticmethod
    def _is_policy(decision: Decision) -> bool:
        return decision.rule.startswith("lost")

    def _match(self, connection: FullConnection, position: Position) -> Position:
        """The position in the log of another server: by time, then exactly behind the last transactions if they are there."""
        back = Position(timestamp=max(position.timestamp - int(self._options.fallback_interval * 1000), 1))
        whole = False
        try:
            start = connection.resolve(back)
        except PositionLostError:
            start, whole = connection.resolve("earliest"), True
        prepared = tuple(PreparedXa(one.xid, "", 0) for one in position.xa)  # their rows are somewhere else in this log
        found = None
        if position.tail and connection.can_replay:
            found = find_tail(position.tail, transactions(connection, start))
        where = f"{name_of(self._link.source)} is not the server {position.source} that {position} is a position of"
        if found is None:
            if whole:
                raise PositionLostError(f"{where}, and its log does not go back to the time of that position", position=position)
            self._alarms.tell(
                AlarmKind.POSITION,
                f"{where}: going on from {start}, {self._options.fallback_interval:g} s before the time of that position; "
                "changes come again",
            )
            # All before ``position`` stays done: its time and tail find it again in a third log, or back in the first. Once
            # something has come from here, the tail is that of what came.
            moved = attrs.evolve(
                position,
                journal=start.journal,
                offset=start.offset,
                gtid=start.gtid,
                row=0,
                source=start.source,
                xa=prepared,
                incarnation="",
                at_event=False,
            )
            return attrs.evolve(self._moved(_in_present_life(connection, moved)), tail="")
        done = digests_of(position.tail)[: -found.missing or None]
        exact: Position = attrs.evolve(
            position,
            journal=found.position.journal,
            offset=found.position.offset,
            source=connection.identity,
            gtid=found.position.gtid if connection.has_gtids else "",
            row=0 if found.missing else position.row,
            tail="".join(done),
            xa=prepared,
            incarnation="",
            at_event=False,
            next_gtid="",
        )
        lacks = f" but for the last {found.missing}, which come again if it gets them" if found.missing else ""
        if not any(map(changes_schema, digests_of(position.tail)[len(done) :])):
            self.same_as = position
        self._alarms.tell(AlarmKind.POSITION, f"{where}: going on from {exact}, behind the same transactions{lacks}")
        self._translate(connection, position.source, start)
        return self._moved(_in_present_life(connection, exact))

    def _check_marks(self, connection: FullConnection, is_same_log: bool, first: Position) -> None:
        """The cursors at which clients are ahead are of the log that is there now, where the first one does not prove it.

        A cursor of canal's names no server, and cannot be ahead of one of another server.
        """
        for mark in self._owner.marks() if connection.can_replay else ():
            found = _foreign(connection, mark, is_same_log) or ("" if is_same_log else _behind(connection, mark, first))
            if mark.at_event and not mark.gtid and first.source not in ("", connection.identity):
                found = found or f"the first cursor is one of the server {first.source}, with which it does not compare"
            if found:
                raise PositionLostError(
                    f"{mark} is no position in the log of {name_of(self._link.source)}: {found}",
                    reason=LostReason.OTHER_SERVER,
                    position=mark,
                    remedy="It is the cursor of a client that is ahead of another one: read from the server that it is of, or "
                    "unsubscribe that client.",
                )

    def _translate(self, connection: FullConnection, source: str, start: Position) -> None:
        """Find the cursors of clients that are ahead in the log of another server too; ``start`` is before all of them."""
        translated: dict[Position, Position | None] = {}
        for mark in self._owner.marks():
            if mark.source == source and mark.tail:
                found = find_tail(mark.tail, transactions(connection, start))
                if found is not None:
                    row = 0 if found.missing else mark.row
                    translated[mark] = attrs.evolve(found.position, source=connection.identity, row=row)
        self._owner.translated(translated)


def _foreign(connection: FullConnection, mark: Position, is_same_log: bool) -> str:
    """Why a cursor is not one of the log that is there now; "" where it is, or may be."""
    if mark.at_event and not mark.gtid and mark.timestamp:
        return _foreign_event(connection, mark)
    if mark.source != connection.identity:
        return ""
    if mark.gtid and connection.has_gtids and not _has_done(connection, mark):
        return "it has not executed all of that GTID set"
    if not mark.incarnation:
        return _not_reached(connection, mark)
    if is_same_log:
        return ""
    if mark.gtid and connection.has_gtids and _is_purged(connection, mark):
        return _not_purged(connection, mark)
    return "" if _is_of_present_log(connection, mark) else "that journal was begun at another time"


def _not_reached(connection: FullConnection, mark: Position) -> str:
    """What tells that the log has not come to the journal of a cursor; "" where it has."""
    last = connection.journal_names()[-1] if mark.journal else ""
    (base, number), (other, newest) = journal_key(mark.journal), journal_key(last)
    return f"that log ends in {last}" if base == other and newest < number else ""


def _behind(connection: FullConnection, mark: Position, first: Position) -> str:
    """Why a cursor is not ahead of the first one, by whose GTIDs the log is read; "" where it is, or may be.

    The first one may be of a log that was reset since, and have the same GTIDs as this one's log.
    """
    if not (first.gtid and connection.has_gtids) or mark.at_event:
        return ""
    what = f"the log is read by the GTIDs of the first cursor, {first}"
    if not mark.gtid:
        return f"it has none, and {what}" if not mark.tail and mark.source not in ("", connection.identity) else ""
    done, here = first.gtid_set, mark.gtid_set
    if isinstance(done, MysqlGtidSet) and isinstance(here, MysqlGtidSet):
        is_behind = not done <= here
    elif isinstance(done, MariadbGtidSet) and isinstance(here, MariadbGtidSet):
        ours = here.domains  # numbers of another server in the domain do not compare
        is_behind = any(ours[one][0] == last[0] and ours[one][1] < last[1] for one, last in done.domains.items() if one in ours)
    else:
        return ""
    return f"it lacks some of those that are done, for {what}" if is_behind else ""


def _foreign_event(connection: FullConnection, mark: Position) -> str:
    """What is found where a cursor of canal's has its event; "" for that event."""
    try:
        with contextlib.closing(connection.replay(mark.journal, mark.offset)) as events:
            event = first_of(events)
    except (AuthenticationError, ConnectionLostError):
        raise
    except SourceError as error:
        return error.message
    return "" if event is not None and is_at(mark, event) else "its time and server are not those of the event there"


def _check_purged(connection: FullConnection, position: Position) -> None:
    """Of a position in a log that was purged the server has purged all that it made itself.

    Raises:
        PositionLostError: it has some of that in the logs that are there, which therefore are not the ones that followed.
    """
    is_here = position.source == connection.identity and position.journal and connection.can_replay
    found = _not_purged(connection, position) if is_here and _is_purged(connection, position) else ""
    if found:
        raise PositionLostError(
            f"{connection.identity} has reset its log: {position.journal} is gone, and {found}",
            reason=LostReason.DIVERGED,
            position=position,
        )


def _is_purged(connection: FullConnection, position: Position) -> bool:
    """Whether the journal of a position is older than all that are there."""
    (base, number), (other, oldest) = journal_key(position.journal), journal_key(connection.journal_names()[0])
    return base == other and number < oldest


def _not_purged(connection: FullConnection, position: Position) -> str:
    """What a position says is done of the server's own transactions, and no log had that was purged; "" for nothing."""
    oldest, latest = connection.resolve("earliest"), connection.resolve("latest")
    done = position.gtid_set
    purged, logged = (parse_gtid_set(one.gtid, connection.flavor) for one in (oldest, latest))
    lacking: GtidSet | None = None
    if isinstance(done, MysqlGtidSet) and isinstance(purged, MysqlGtidSet):
        lacking = MysqlGtidSet({connection.identity: (done - purged).intervals(connection.identity)})
    elif isinstance(done, MariadbGtidSet) and isinstance(purged, MariadbGtidSet) and isinstance(logged, MariadbGtidSet):
        server, known = int(connection.identity.partition("@")[0]), logged.domains  # but for those that were deleted
        missing = (done - purged).domains.items()
        lacking = MariadbGtidSet({domain: last for domain, last in missing if last[0] == server and domain in known})
    return f"{lacking} is not among what came before {oldest.journal}" if lacking else ""


def _has_done(connection: FullConnection, mark: Position) -> bool:
    """Whether a server has executed, of its own transactions, all that a position in its log says are done."""
    try:
        connection.check_end(mark)
    except PositionLostError:
        return False
    return True


def _is_of_present_log(connection: FullConnection, mark: Position) -> bool:
    """Whether the journal of a position is there, and is the one that it was."""
    if not mark.incarnation or mark.source not in ("", connection.identity) or not connection.can_replay:
        return False
    try:
        with contextlib.closing(connection.replay(mark.journal, layout.FIRST)) as events:
            return any(incarnation_of(event) == mark.incarnation for event in itertools.islice(events, 1))
    except (AuthenticationError, ConnectionLostError):
        raise
    except SourceError:
        return False


def _in_present_life(connection: FullConnection, position: Position) -> Position:
    """A position of the server that does not say when its journal was begun, as those of earlier versions, is taken to be of
    the one that is there: by its GTID set a server leaves out transactions without GTIDs that stand between others."""
    if position.incarnation or not (position.journal and position.gtid) or position.source != connection.identity:
        return position
    if connection.has_gtids and not _has_done(connection, position):
        return position
    return attrs.evolve(position, incarnation=connection.incarnation(position.journal) or "")


def _at_oldest(connection: FullConnection, position: Position, start: Position) -> Position:
    """The start at the oldest log, with its begin; by GTID set where the user may have no connection more.

    Raises:
        PositionLostError: the first transaction that is still there has no GTID: there may have been others in what was purged.
    """
    try:
        start = _in_present_life(connection, start)
        kinds = (event[layout.TYPE] for name in connection.journal_names() for event in connection.replay(name, layout.FIRST))
        if next((kind for kind in kinds if kind in _GTIDS), None) != ANONYMOUS_GTID:
            return start
    except AuthenticationError:
        return attrs.evolve(start, incarnation="")
    raise PositionLostError(
        f"{position.journal} was purged, and {start.journal} begins with a transaction without a GTID: nothing tells whether "
        "there were others between",
        position=position,
    )


def _journals(connection: FullConnection, position: Position | None) -> list[str] | None:
    """The logs that the source has; None where it cannot be asked, or nothing depends on it."""
    if position is None or not (position.journal and position.gtid) or position.source != connection.identity:
        return None
    return connection.journal_names() if connection.can_replay else None
