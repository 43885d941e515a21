"""Finds the position to resume from after each connection, as decided by canal.parse.start.

Never reads the stream. Queries the connection, and searches the log if the position belongs to another server.
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
from canal.parse.canal_cursor import convert_cursor
from canal.parse.connect import Link, name_of
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
    """Tracks the position of one run, and finds it in the log of a new connection.

    Args:
        resume: the stored position; None: use the configured start.
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
        self.last_delivered: Entry | None = None  # the last entry that the sink has accepted
        self.started: Position | None = None  # where the stream began
        self.found = Position()  # the result of ``locate``, with the journal's incarnation also for a dump by GTID set
        self.lost = 0
        self._lost_because: PositionLostError | None = None
        self.same_as: Position | None = None  # the start of the stream in the log of the previous server
        self.is_canals = False  # whether reading began at a cursor that canal wrote
        self._none_done = False  # whether an empty GTID set means that no GTID is done rather than unknown

    def position(self) -> Position | None:
        """Return the position after the last accepted entry, else the start of the stream, else the stored cursor."""
        return self._positions.latest() or self.started or self._resume

    def executed(self, connection: FullConnection, position: Position) -> GtidSet | None:
        """Return the GTIDs done at the position; None if unknown, an empty set if there are none."""
        return parse_gtid_set(position.gtid, connection.flavor) if position.gtid or self._none_done else None

    def count_lost(self, error: PositionLostError) -> None:
        """Continue at the next cursor if the first is purged. Otherwise raise ``error``, unless ``on_lost`` has another policy.

        Also raise if no position was found yet.
        """
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
        # Another server at the same address may have the log. Files have no second server.
        self.lost = self._options.dump_error_threshold + 1 if is_of_files else self.lost + 1
        self._lost_because = error

    def locate(self, connection: FullConnection) -> Position:
        """Return the position to resume from, as canal.parse.start decides."""
        stored = self.position()
        position = None if stored is None else _with_incarnation(connection, convert_cursor(connection, stored))
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
            return self._find_by_tail(connection, start)
        if how is How.FAIL:
            raise PositionLostError(
                f"{start} belongs to the log of server {start.source}, but {name_of(self._link.source)} is {connection.identity}",
                reason=LostReason.OTHER_SERVER,
                position=start,
                remedy="Journals of two servers cannot be compared, and the position has neither a GTID set nor a time.",
            )
        if how is How.OLDEST:
            assert position is not None
            connection.resolve(position)  # raises if a purged transaction is not done
            start = _at_oldest(connection, position, start)
        if self.last_delivered is not None:
            self._none_done = self.last_delivered.transaction.gtid_base is not None
        self.found = start
        return attrs.evolve(start, incarnation="") if how is How.GTID else start

    def _moved(self, position: Position) -> Position:
        """Store a position that was searched for as the new resume position."""
        self.last_delivered, self.lost, self.found = None, 0, position
        self._positions.persist(lambda: position)
        return position

    def _resolve(self, connection: FullConnection, decision: Decision) -> Position:
        start = decision.start
        try:
            position = connection.resolve(start)
        except PositionLostError as error:
            if not self._is_policy(decision):
                raise
            self._alarms.tell(AlarmKind.POSITION, f"{error}; starting from the oldest available log instead")
            position = connection.resolve("earliest")
        if start == "earliest":
            position = _with_incarnation(connection, position)
        if start == "latest":  # without a time, a failover before the first change could not search, nor could canal
            clock = time.time() + (connection.clock_offset or 0.0)
            position = attrs.evolve(position, timestamp=int(1000 * clock))
        if isinstance(start, Position) and start.journal and start.offset > layout.FIRST and not start.source and not start.gtid:
            begin = transaction_start(connection, position)
            if begin != position.offset:
                log.warning(
                    "[%s] %s is inside a transaction: starting at the transaction's begin, %d", self._destination, position, begin
                )
                position = attrs.evolve(position, offset=begin)
        if self._is_policy(decision):
            self._alarms.tell(
                AlarmKind.POSITION,
                f"THE POSITION {self.position()} IS LOST ({self._lost_text()}): continuing from {position} because on_lost="
                f"{self._options.on_lost!r}; the changes in between are not delivered, or are delivered again",
            )
            marks = [mark for mark in self._owner.marks() if not _is_of_present_log(connection, mark)]
            self._owner.translated(dict.fromkeys(marks))
        return position

    def _lost_text(self) -> str:
        """Return why the position is lost, without the remedy, which ``on_lost`` makes unnecessary."""
        return " ".join(self._lost_because.message.split()) if self._lost_because is not None else ""

    @staticmethod
    def _is_policy(decision: Decision) -> bool:
        return decision.rule.startswith("lost")

    def _find_by_tail(self, connection: FullConnection, position: Position) -> Position:
        """Find the position in another server's log: search by time, then after the last transactions if they are found."""
        back = Position(timestamp=max(position.timestamp - int(self._options.fallback_interval * 1000), 1))
        whole = False
        try:
            start = connection.resolve(back)
        except PositionLostError:
            start, whole = connection.resolve("earliest"), True
        prepared = tuple(PreparedXa(one.xid, "", 0) for one in position.xa)  # the rows are elsewhere in this log
        found = None
        if position.tail and connection.can_replay:
            found = find_tail(position.tail, transactions(connection, start))
        where = f"{name_of(self._link.source)} is not server {position.source}, to which {position} belongs"
        if found is None:
            if whole:
                raise PositionLostError(f"{where}, and the log does not reach back to that position's time", position=position)
            self._alarms.tell(
                AlarmKind.POSITION,
                f"{where}: continuing from {start}, {self._options.fallback_interval:g} s before that position's time; "
                "changes are delivered again",
            )
            # Everything before ``position`` is done. Its time and tail find it in a third log, or back in the first. Once
            # entries come from here, they form the new tail.
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
            return attrs.evolve(self._moved(_with_incarnation(connection, moved)), tail="")
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
        lacks = (
            f" except the last {found.missing}, which are delivered again if the server receives them" if found.missing else ""
        )
        if not any(map(changes_schema, digests_of(position.tail)[len(done) :])):
            self.same_as = position
        self._alarms.tell(AlarmKind.POSITION, f"{where}: continuing from {exact}, after the same transactions{lacks}")
        self._translate(connection, position.source, start)
        return self._moved(_with_incarnation(connection, exact))

    def _check_marks(self, connection: FullConnection, is_same_log: bool, first: Position) -> None:
        """Raise PositionLostError if a cursor of a client that is ahead belongs to another log.

        The first cursor may not prove this. A canal cursor names no server, so it cannot be ahead of another server's cursor.
        """
        for mark in self._owner.marks() if connection.can_replay else ():
            found = _why_foreign(connection, mark, is_same_log) or (
                "" if is_same_log else _why_not_ahead(connection, mark, first)
            )
            if mark.at_event and not mark.gtid and first.source not in ("", connection.identity):
                found = found or f"the first cursor belongs to server {first.source} and cannot be compared"
            if found:
                raise PositionLostError(
                    f"{mark} is not a position in the log of {name_of(self._link.source)}: {found}",
                    reason=LostReason.OTHER_SERVER,
                    position=mark,
                    remedy="This is the cursor of a client that is ahead of another client: read from the cursor's server, or "
                    "unsubscribe that client.",
                )

    def _translate(self, connection: FullConnection, source: str, start: Position) -> None:
        """Find the cursors of clients that are ahead in another server's log; ``start`` is before all of them."""
        translated: dict[Position, Position | None] = {}
        for mark in self._owner.marks():
            if mark.source == source and mark.tail:
                found = find_tail(mark.tail, transactions(connection, start))
                if found is not None:
                    row = 0 if found.missing else mark.row
                    translated[mark] = attrs.evolve(found.position, source=connection.identity, row=row)
        self._owner.translated(translated)


def _why_foreign(connection: FullConnection, mark: Position, is_same_log: bool) -> str:
    """Return why a cursor does not belong to the present log; "" if it does or may."""
    if mark.at_event and not mark.gtid and mark.timestamp:
        return _compare_event(connection, mark)
    if mark.source != connection.identity:
        return ""
    if mark.gtid and connection.has_gtids and not _has_done(connection, mark):
        return "the server has not executed all of that GTID set"
    if not mark.incarnation:
        return _not_reached(connection, mark)
    if is_same_log:
        return ""
    if mark.gtid and connection.has_gtids and _is_purged(connection, mark):
        return _not_purged(connection, mark)
    return "" if _is_of_present_log(connection, mark) else "that journal was created at another time"


def _not_reached(connection: FullConnection, mark: Position) -> str:
    """Return a text if the log has not reached the cursor's journal; "" otherwise."""
    last = connection.journal_names()[-1] if mark.journal else ""
    (base, number), (other, newest) = journal_key(mark.journal), journal_key(last)
    return f"that log ends in {last}" if base == other and newest < number else ""


def _why_not_ahead(connection: FullConnection, mark: Position, first: Position) -> str:
    """Return why a cursor is not ahead of the first cursor, whose GTIDs select the stream; "" if it is or may be.

    The first cursor may belong to a log that was reset since and reuses GTIDs.
    """
    if not (first.gtid and connection.has_gtids) or mark.at_event:
        return ""
    what = f"the log is read by the GTIDs of the first cursor, {first}"
    if not mark.gtid:
        return f"it has no GTIDs, but {what}" if not mark.tail and mark.source not in ("", connection.identity) else ""
    done, here = first.gtid_set, mark.gtid_set
    if isinstance(done, MysqlGtidSet) and isinstance(here, MysqlGtidSet):
        is_behind = not done <= here
    elif isinstance(done, MariadbGtidSet) and isinstance(here, MariadbGtidSet):
        ours = here.domains  # numbers of different servers in a domain cannot be compared
        is_behind = any(ours[one][0] == last[0] and ours[one][1] < last[1] for one, last in done.domains.items() if one in ours)
    else:
        return ""
    return f"it lacks GTIDs that are done: {what}" if is_behind else ""


def _compare_event(connection: FullConnection, mark: Position) -> str:
    """Compare the event at a canal cursor with the cursor; return "" if they match, or a description."""
    try:
        with contextlib.closing(connection.replay(mark.journal, mark.offset)) as events:
            event = first_of(events)
    except (AuthenticationError, ConnectionLostError):
        raise
    except SourceError as error:
        return error.message
    return "" if event is not None and is_at(mark, event) else "the event there has another time or server"


def _check_purged(connection: FullConnection, position: Position) -> None:
    """Check a position in a purged log: the server must have purged all transactions up to there that it originated.

    Raises:
        PositionLostError: some are in the present logs, so these logs did not follow the position.
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
    """Return whether the position's journal is older than all available journals."""
    (base, number), (other, oldest) = journal_key(position.journal), journal_key(connection.journal_names()[0])
    return base == other and number < oldest


def _not_purged(connection: FullConnection, position: Position) -> str:
    """Return the server's own transactions that are done by the position but were not in the purged logs; "" for none."""
    oldest, latest = connection.resolve("earliest"), connection.resolve("latest")
    done = position.gtid_set
    purged, logged = (parse_gtid_set(one.gtid, connection.flavor) for one in (oldest, latest))
    lacking: GtidSet | None = None
    if isinstance(done, MysqlGtidSet) and isinstance(purged, MysqlGtidSet):
        lacking = MysqlGtidSet({connection.identity: (done - purged).intervals(connection.identity)})
    elif isinstance(done, MariadbGtidSet) and isinstance(purged, MariadbGtidSet) and isinstance(logged, MariadbGtidSet):
        server, known = int(connection.identity.partition("@")[0]), logged.domains  # deleted domains do not count
        missing = (done - purged).domains.items()
        lacking = MariadbGtidSet({domain: last for domain, last in missing if last[0] == server and domain in known})
    return f"{lacking} was not logged before {oldest.journal}" if lacking else ""


def _has_done(connection: FullConnection, mark: Position) -> bool:
    """Return whether the server has executed all transactions in the position that it originated."""
    try:
        connection.check_end(mark)
    except PositionLostError:
        return False
    return True


def _is_of_present_log(connection: FullConnection, mark: Position) -> bool:
    """Return whether the position's journal exists and is unchanged."""
    if not mark.incarnation or mark.source not in ("", connection.identity) or not connection.can_replay:
        return False
    try:
        with contextlib.closing(connection.replay(mark.journal, layout.FIRST)) as events:
            return any(incarnation_of(event) == mark.incarnation for event in itertools.islice(events, 1))
    except (AuthenticationError, ConnectionLostError):
        raise
    except SourceError:
        return False


def _with_incarnation(connection: FullConnection, position: Position) -> Position:
    """Add the present journal's incarnation to a position without one, as earlier versions wrote.

    With a GTID set alone, a server would skip transactions without GTIDs between others.
    """
    if position.incarnation or not (position.journal and position.gtid) or position.source != connection.identity:
        return position
    if connection.has_gtids and not _has_done(connection, position):
        return position
    return attrs.evolve(position, incarnation=connection.incarnation(position.journal) or "")


def _at_oldest(connection: FullConnection, position: Position, start: Position) -> Position:
    """Return the start of the oldest log with the incarnation; by GTID set if the user may not open another connection.

    Raises:
        PositionLostError: the first available transaction has no GTID, so purged transactions may have had none either.
    """
    try:
        start = _with_incarnation(connection, start)
        kinds = (event[layout.TYPE] for name in connection.journal_names() for event in connection.replay(name, layout.FIRST))
        if next((kind for kind in kinds if kind in _GTIDS), None) != ANONYMOUS_GTID:
            return start
    except AuthenticationError:
        return attrs.evolve(start, incarnation="")
    raise PositionLostError(
        f"{position.journal} was purged, and {start.journal} begins with a transaction without a GTID: purged transactions "
        "may be missing",
        position=position,
    )


def _journals(connection: FullConnection, position: Position | None) -> list[str] | None:
    """Return the source's journals; None if they cannot be listed or are not needed."""
    if position is None or not (position.journal and position.gtid) or position.source != connection.identity:
        return None
    return connection.journal_names() if connection.can_replay else None
