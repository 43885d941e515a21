"""Merges several parsers: whole transactions of several sources in one stream, with a position per source.

Never decodes. Each member is a parser with a separate thread, connection and schema history. canal.parse.merge decides which
member's transaction passes next.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import attrs

from canal._util.lifecycle import Steps
from canal._util.ownership import claim
from canal.alarm import Alarm, AlarmDesk, log_alarm
from canal.errors import CanalError, ConfigError, ConnectionLostError, CursorError, StateError, StoreClosedError
from canal.model import Entry, Transaction
from canal.parse.merge import Lane, Merge
from canal.parse.parser import ClientAwareParser, EventParser, OwnParser, parser_info
from canal.position import Position
from canal.sink.protocol import Sink
from canal.status import Lag, ParserStatus, State

#: The group's state is the first of these that a member has.
_WORST = (
    State.FAILED,
    State.WAITING,
    State.CONNECTING,
    State.SEEKING,
    State.RUNNING,
    State.STREAMING,
    State.STOPPED,
    State.ENDED,
)


@attrs.frozen(eq=False)
class GroupPosition:
    """The positions of the other members while transactions of one member pass."""

    member: str
    others: tuple[tuple[str, Position | Transaction], ...]

    def around(self, own: Position) -> Position:
        """Return the group's position for the member's position ``own``."""
        others = ((name, one if isinstance(one, Position) else one.position_after()) for name, one in self.others)
        return Position(members=(*others, (self.member, own)))


class GroupParser(OwnParser):
    """An :class:`EventParser` that merges parsers of several sources into one store.

    Transactions pass whole, each member's in the order of the log. A position has a position per member
    (``Position.members``), so each member resumes exactly after a restart. ``entry.member`` names an entry's member. Each member
    is started for the destination ``DESTINATION.NAME``, which names alarms and schema history. The first failure of a
    member, such as :class:`canal.PositionLostError`, stops the group. A source that does not answer is retried.

    Args:
        parsers: the members by name. Cursors store these names: letters, digits, "_" and "-". A member that a cursor lacks
            begins at the configured start. A cursor with an unknown member is refused.
        order: "arrival" passes transactions as they come. "time" passes the transaction that ended first, in whole seconds
            by the servers' clocks: it waits until every other member has reached that time. Clock order is not causal order
            (docs/how-to/several-sources.md). ``late`` counts transactions out of order.
        idle_after: seconds. With "time", an idle member counts as having reached the time of the last heartbeat
            (``MySQLSource.heartbeat_interval``) minus this allowance for clock differences and long statements.
        stalled_after: seconds without a change or heartbeat before an alarm names a member that others wait for.
        on_stalled: with "time", whether the others then "wait" for the member or "go_on". They always wait for the rest of
            a transaction that has passed in part.
        alarm: called for members that others wait for.

    Attributes:
        members: the parsers by name.
        joined: called with the start of a member that the cursors lack, before any entry passes.
    """

    def __init__(
        self,
        parsers: Mapping[str, EventParser],
        *,
        order: Literal["time", "arrival"] = "time",
        idle_after: float = 3.0,
        stalled_after: float = 60.0,
        on_stalled: Literal["wait", "go_on"] = "wait",
        alarm: Alarm = log_alarm,
    ) -> None:
        super().__init__()
        self.joined: Callable[[Position], None] = lambda start: None
        self.members = _checked(parsers)
        check_merging(order, idle_after, stalled_after, on_stalled)
        self._merge_options = (order == "time", float(idle_after), float(stalled_after), on_stalled == "go_on")
        self._alarms = AlarmDesk(alarm)
        self._run = _GroupRun(self, "", None, {}, lambda: None)  # placeholder that never starts

    def start(self, destination: str, sink: Sink, resume: Position | None, finished: Callable[[], None]) -> None:
        if self._run.is_started:
            raise StateError("the parser is already started", destination=destination)
        positions = {} if resume is None else self._positions_in(resume)
        self._alarms.reset(destination)
        self._run = _GroupRun(self, destination, sink, positions, finished)
        self._run.start()

    def stop(self) -> None:
        self._run.stop()

    def wait_started(self, timeout: float) -> Position:
        return self._run.wait_started(timeout)

    @property
    def error(self) -> CanalError | None:
        return next((parser.error for parser in self.members.values() if parser.error is not None), None)

    @property
    def is_finished(self) -> bool:
        return self._run.is_over

    @property
    def late(self) -> int:
        """Number of transactions since the start that came after a transaction with a later time.

        Causes: a clock that was set back, a statement that ran longer than ``idle_after``, a stalled member, or a transaction
        delivered in pieces, which counts with the end time. With "arrival" it counts unsorted transactions.
        """
        return self._run.merge.late

    def status(self, source_timeout: float | None = None) -> ParserStatus | None:
        """Return the combined status: the worst state, the longest lag, the sums of counts; None if no member has a status."""
        told = {name: parser_info(parser).status(source_timeout) for name, parser in self.members.items()}
        return _combined_status({name: status for name, status in told.items() if status is not None}, self._alarms.count)

    def new_merge(self, torn: Iterable[str]) -> Merge:
        """Return the merge for a run. ``torn``: members that resume inside a transaction."""
        lanes = [Lane(name, partial(_complete_to, parser)) for name, parser in self.members.items()]
        return Merge(lanes, *self._merge_options, self._alarms, torn)

    def bind(self) -> None:
        """Connect the members' callbacks to this group."""
        for name, parser in self.members.items():
            if isinstance(parser, ClientAwareParser):
                parser.oldest = partial(self._oldest_of, name)
                parser.marks = partial(self._marks_of, name)
                parser.translated = partial(self._translate, name)
                parser.began = partial(self._run.begin, name)

    # -- positions of members -----------------------------------------------------------------------------------------

    def _positions_in(self, resume: Position) -> dict[str, Position]:
        """Return each member's resume position."""
        if not resume.members and not resume.is_concrete:  # only a time: canal's cursor of a group
            return dict.fromkeys(self.members, resume)
        unknown = [name for name, _ in resume.members if name not in self.members]
        if unknown or not resume.members:
            what = f"names members that the group lacks: {', '.join(unknown)}" if unknown else "belongs to a single source"
            raise CursorError(
                f"the cursor {what}",
                remedy="Use the members that the cursor was written with, or write a new cursor: "
                "meta.update_cursor(client, canal.Position(members={…})).",
            )
        return dict(resume.members)

    def _oldest_of(self, name: str) -> Position | None:
        oldest = self.oldest()
        return None if oldest is None else oldest.member(name)

    def _marks_of(self, name: str) -> list[Position]:
        return [own for mark in self.marks() if (own := mark.member(name)) is not None]

    def _translate(self, name: str, found: dict[Position, Position | None]) -> None:
        """Translate group positions after a member's failover. Leave out unknown positions, so that entries repeat."""
        translated: dict[Position, Position | None] = {}
        for mark in self.marks():
            own = mark.member(name)
            if own is not None and own in found:
                members = {**dict(mark.members), name: found[own]}
                known = {one: position for one, position in members.items() if position is not None}
                translated[mark] = Position(members=known) if known else None
        self.translated(translated)


class _GroupRun:
    """One run of a group."""

    def __init__(
        self, group: GroupParser, destination: str, sink: Sink | None, resume: dict[str, Position], finished: Callable[[], None]
    ) -> None:
        self._group = group
        self._members = group.members
        self._destination = destination
        self._sink = sink
        self._resume = resume
        self._finished = finished
        self._at: dict[str, Position | Transaction] = {**resume}  # each member's last passed position
        self._count = 0
        self._lock = threading.Lock()
        self._beginning = threading.Lock()
        self._left = set(group.members)
        self._steps = Steps()
        self._have_begun = threading.Event()  # set once all members run: before, a member reports the last run
        self.merge = group.new_merge(name for name, position in resume.items() if position.row)
        self.is_started = False
        self.is_over = False

    def start(self) -> None:
        self.is_started = True
        try:
            self._steps.add(claim(self._group, self._destination, *self._members.values()))
            self._group.bind()
            for name, parser in self._members.items():
                self._steps.add(parser.stop)
                lane, ended = _LaneSink(self, name), partial(self._ended, name)
                try:
                    parser.start(f"{self._destination}.{name}", lane, self._resume.get(name), ended)
                except StateError:  # started already by other code
                    self._steps.drop(parser.stop)
                    raise
            self._have_begun.set()
        except BaseException:
            self.merge.stop()  # running members may wait for room in a store that is stopped before them
            raise

    def stop(self) -> None:
        self.merge.stop()
        self._steps.carry_out()
        self.is_started = False

    def _ended(self, name: str) -> None:
        has_failed = self._members[name].error is not None
        if has_failed:
            self.merge.stop()  # first, so that no member passes after an incomplete transaction
        self.merge.end(name)
        with self._lock:
            self._left.discard(name)
            is_last = not self.is_over and (not self._left or has_failed)
            self.is_over = self.is_over or is_last
        if is_last:
            self._finished()

    def wait_started(self, timeout: float) -> Position:
        deadline = time.monotonic() + timeout
        found = {}
        for name, parser in self._members.items():
            position = self._resume.get(name)
            if position is None or not position.is_concrete:
                position = parser.wait_started(max(deadline - time.monotonic(), 0.0))
            found[name] = position
        return Position(members=found)

    # -- the members' threads -----------------------------------------------------------------------------------------

    def begin(self, name: str, start: Position) -> None:
        """Record a member's start and add it to cursors that lack it, so that a restart does not begin it again."""
        with self._beginning:
            if name not in self._at:
                self._group.joined(Position(members={name: start}))
                self._at[name] = start

    def take(self, name: str, entries: list[Entry]) -> None:
        self._await_starts()
        self.merge.pass_on(name, entries, partial(self._put, name))

    def _await_starts(self) -> None:
        """Wait for the start of every member: a cursor written before would lack that member."""
        for name in [name for name in self._members if name not in self._at]:
            while name not in self._at:
                if self.merge.is_stopping:
                    raise StoreClosedError("the group is stopping")
                if not self._have_begun.wait(0.2):
                    continue
                try:
                    start = self._members[name].wait_started(0.2)
                except ConnectionLostError:
                    continue
                except CanalError as error:  # stops the group
                    raise StoreClosedError("a member of the group has failed") from error
                self.begin(name, start)

    def _put(self, name: str, entries: list[Entry]) -> None:
        assert self._sink is not None
        position = GroupPosition(name, tuple(one for one in self._at.items() if one[0] != name))
        count = self._count
        for entry in entries:
            entry.group = position
            entry.transaction.before = count
            count += entry.is_end
        try:
            self._sink.sink(entries)
        except BaseException:
            self._sink.restart()  # entries that have not passed come again from BEGIN, or never
            raise
        self._count = count
        last = entries[-1]
        self._at[name] = last.transaction if last.is_end else last.own_position

    def restart(self, name: str) -> None:
        if self._sink is not None and self.merge.has_open(name):
            self._sink.restart()


class _LaneSink:
    """The sink that one member sees."""

    def __init__(self, run: _GroupRun, name: str) -> None:
        self._run = run
        self._name = name

    def start(self, destination: str, store: Any) -> None:
        """Do nothing: the group's sink is already started."""

    def stop(self) -> None:
        """Do nothing: the group's sink is stopped later."""

    def sink(self, entries: list[Entry]) -> None:
        if entries:
            self._run.take(self._name, entries)

    def restart(self) -> None:
        self._run.restart(self._name)


def _checked(parsers: object) -> dict[str, EventParser]:
    if not isinstance(parsers, Mapping) or not parsers:
        raise ConfigError(f"parsers must be a mapping of names to parsers, such as canal.parse.BinlogParser, not {parsers!r}")
    for name, parser in parsers.items():
        check_name(name)
        if not isinstance(parser, EventParser) or isinstance(parser, GroupParser):
            raise ConfigError(
                f"member {name} must be a parser of a single source, such as canal.parse.BinlogParser, not {parser!r}"
            )
    if len({id(parser) for parser in parsers.values()}) < len(parsers):
        raise ConfigError("the group contains a parser twice")
    return dict(parsers)


def check_name(name: object) -> None:
    """Raise ConfigError for an invalid member name."""
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z0-9_-]{1,64}", name):
        raise ConfigError(f"a member name must have 1 to 64 letters, digits, '_' or '-', not {name!r}")


def check_merging(order: object, idle_after: object, stalled_after: object, on_stalled: object) -> None:
    """Raise ConfigError for an invalid merge option."""
    if order not in ("time", "arrival"):
        raise ConfigError(f'order must be "time" or "arrival", not {order!r}')
    if on_stalled not in ("wait", "go_on"):
        raise ConfigError(f'on_stalled must be "wait" or "go_on", not {on_stalled!r}')
    for name, seconds in (("idle_after", idle_after), ("stalled_after", stalled_after)):
        if not isinstance(seconds, (int, float)) or not seconds >= 0:
            raise ConfigError(f"{name} must be a number of seconds of at least 0, not {seconds!r}")


def _complete_to(parser: EventParser) -> float:
    return parser_info(parser).complete_to


def _combined_status(told: dict[str, ParserStatus], alarms: int) -> ParserStatus | None:
    if not told:
        return None
    every = list(told.values())
    received = {name: one.received for name, one in told.items() if one.received is not None}
    failed = max(every, key=lambda one: one.last_error_at or 0.0)
    return ParserStatus(
        min((one.state for one in every), key=_WORST.index),
        ", ".join(f"{name} {one.address}".rstrip() for name, one in told.items()),
        received=Position(members=received) if received else None,
        lag=Lag(
            *(
                _combined(kind, (getattr(one.lag, name) for one in every))
                for name, kind in (("seconds", max), ("bytes", sum), ("transactions", sum))
            )
        ),
        **{
            name: sum(getattr(one, name) for one in every)
            for name in ("events", "bytes", "transactions", "statements", "reconnects", "errors", "held_bytes")
        },
        alarms=alarms + sum(one.alarms for one in every),
        last_error=failed.last_error,
        last_error_at=failed.last_error_at,
    )


def _combined(kind: Callable[[Any], Any], values: Iterator[Any]) -> Any:
    """Combine all members' values; None if a value is unknown."""
    known = list(values)
    return None if None in known else kind(known)
