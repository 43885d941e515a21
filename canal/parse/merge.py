"""Merges the transactions of several parsers into one stream by deciding which parser may pass next.

Looks only at an entry's time and at transaction ends, and starts and stops nothing. Each parser's thread brings entries and
waits here until they may pass.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable

import attrs

from canal.alarm import AlarmDesk, AlarmKind
from canal.errors import StoreClosedError
from canal.model import Entry

#: Polling interval in seconds for the other members' heartbeats.
_POLL = 0.1


@attrs.define(eq=False)
class Lane:
    """The merge's state of one member."""

    name: str
    #: Returns the source's time in seconds up to which the source has sent everything.
    complete_to: Callable[[], float]
    #: Time of the last transaction that passed. Never decreases.
    time: float = 0.0
    #: Time of the transaction that waits to pass.
    head: float | None = None
    is_over: bool = False
    said: float = 0.0
    #: When the member last delivered or reported anything, by the merge's clock.
    moved: float = 0.0
    stalled: float | None = None

    def times(self, entries: list[Entry]) -> list[tuple[float, int]]:
        """Return (time, end index) of each transaction in ``entries``; an incomplete transaction is the last item."""
        found, latest = [], self.time
        for end, entry in enumerate(entries, 1):
            if entry.is_end:
                latest = max(latest, entry.timestamp)
                found.append((latest, end))
        if not entries[-1].is_end:
            found.append((max(latest, entries[-1].timestamp), len(entries)))
        return found


class Merge:
    """Lets whole transactions pass, one member at a time.

    Args:
        lanes: the members.
        by_time: the earliest transaction goes first; otherwise the first that arrived.
        idle_after, stalled_after, goes_on: see :class:`canal.parse.GroupParser`.
        torn: members that resume inside a transaction. The rest of these transactions passes first.

    Attributes:
        late: number of transactions that passed after a transaction with a later time.
    """

    def __init__(
        self,
        lanes: Iterable[Lane],
        by_time: bool,
        idle_after: float,
        stalled_after: float,
        goes_on: bool,
        alarms: AlarmDesk,
        torn: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lanes = {lane.name: lane for lane in lanes}
        self._torn = deque(self._lanes[name] for name in torn)
        self._by_time = by_time
        self._idle_after = idle_after
        self._stalled_after = stalled_after
        self._goes_on = goes_on
        self._alarms = alarms
        self._clock = clock
        self._changed = threading.Condition()
        self._queue: deque[Lane] = deque()
        self._floor = self._next_torn()  # the member with a passing or incomplete transaction
        self._is_passing = False
        self._latest = 0.0
        self.is_stopping = False
        self.late = 0
        for lane in self._lanes.values():
            lane.moved = clock()

    def pass_on(self, name: str, entries: list[Entry], put: Callable[[list[Entry]], None]) -> None:
        """Call ``put`` with a member's entries, in pieces if necessary, when it is the member's turn.

        Raises:
            StoreClosedError: the group is stopping.
        """
        lane, start = self._lanes[name], 0
        times = lane.times(entries)
        while times:
            count, was_open = self._wait_turn(lane, times)
            end = times[count - 1][1]
            piece = entries[start:end]
            counted = self.late, self._latest
            self._count(times[:count], was_open)  # before readers can see the entries
            try:
                put(piece)
            except BaseException:  # the parser may deliver the piece again after a reconnect
                self.late, self._latest = counted
                self._give_back(lane, is_open=was_open)
                raise
            self._leave(lane, times[count - 1][0], is_open=not piece[-1].is_end)
            del times[:count]
            start = end

    def has_open(self, name: str) -> bool:
        """Return whether a transaction of the member has passed in part."""
        return self._floor is self._lanes[name] and not self._is_passing

    def end(self, name: str) -> None:
        """Mark a member as ended: it brings no more entries."""
        with self._changed:
            lane = self._lanes[name]
            lane.is_over = True
            if self._floor is lane:
                self._floor = self._next_torn()
            self._changed.notify_all()

    def stop(self) -> None:
        """Raise StoreClosedError in waiting and later calls of ``pass_on``."""
        with self._changed:
            self.is_stopping = True
            self._changed.notify_all()

    # -- turns --------------------------------------------------------------------------------------------------------

    def _wait_turn(self, lane: Lane, times: list[tuple[float, int]]) -> tuple[int, bool]:
        """Wait for a turn. Return how many transactions may pass, and whether the first has already passed in part."""
        with self._changed:
            lane.head = times[0][0]
            self._queue.append(lane)
            self._changed.notify_all()
        while True:
            with self._changed:
                if self.is_stopping:
                    raise StoreClosedError("the group is stopping")
                count = self._may_pass(lane, times)
                if count:
                    was_open = self._floor is lane
                    self._queue.remove(lane)
                    self._floor, self._is_passing = lane, True
                    return count, was_open
                self._changed.wait(_POLL)
            self._report_stalled(lane)

    def _may_pass(self, lane: Lane, times: list[tuple[float, int]]) -> int:
        floor = self._floor
        if floor is not None and not floor.time and floor.head is None and not self._is_passing and floor.complete_to():
            self._floor = self._next_torn()  # the member resumed inside a transaction without further entries
        if self._floor is lane:
            return 1  # the member's open transaction
        if self._floor is not None:
            return 0
        if not self._by_time:
            return len(times) if self._queue[0] is lane else 0
        limit = min((self._bound(other) for other in self._lanes.values() if other is not lane), default=math.inf)
        return bisect_right(times, (limit, math.inf))

    def _bound(self, lane: Lane) -> float:
        """Return the earliest time that the member's next transaction may have."""
        if lane.is_over or lane.stalled is not None and self._goes_on:
            return math.inf
        if lane.head is not None:
            return lane.head
        return max(lane.time, math.floor(lane.complete_to() - self._idle_after))

    def _count(self, times: list[tuple[float, int]], was_open: bool) -> None:
        """Count late transactions among those that pass now. Called only by the thread of the passing member."""
        if not was_open:  # otherwise counted with the first piece
            self.late += bisect_left(times, (self._latest, 0))
        self._latest = max(self._latest, times[-1][0])

    def _leave(self, lane: Lane, time: float, *, is_open: bool) -> None:
        with self._changed:
            lane.time = time
            self._give_back(lane, is_open=is_open)

    def _give_back(self, lane: Lane, *, is_open: bool) -> None:
        with self._changed:
            lane.head, lane.moved, lane.stalled = None, self._clock(), None
            self._is_passing = False
            self._floor = lane if is_open else self._next_torn()
            self._changed.notify_all()

    def _next_torn(self) -> Lane | None:
        """Return the next torn member that has not ended."""
        while self._torn:
            lane = self._torn.popleft()
            if not lane.is_over:
                return lane
        return None

    # -- members that deliver and report nothing -------------------------------------------------------------------------

    def _report_stalled(self, waiting: Lane) -> None:
        told = []
        with self._changed:
            now, was_told = self._clock(), any(lane.stalled is not None for lane in self._lanes.values())
            for lane in self._lanes.values():
                if lane is waiting or lane.head is not None or lane.is_over or not self._holds(lane):
                    continue
                said = lane.complete_to()
                if said != lane.said:
                    lane.said, lane.moved, lane.stalled = said, now, None
                elif now - max(lane.moved, lane.stalled or 0.0) >= self._stalled_after:
                    lane.stalled = now
                    told.append((lane.name, now - lane.moved, self._floor is lane))
            is_over = was_told and all(lane.stalled is None for lane in self._lanes.values())
        for name, seconds, is_open in told:
            text = f"member {name} sent no change and no heartbeat for {seconds:.0f} s"
            if is_open:
                text += ", and a transaction of it is incomplete: the other members wait for the rest"
            else:
                text += ": the other members continue without it" if self._goes_on else ": the other members wait for it"
            self._alarms.tell(AlarmKind.SLOW, text, name)
        if is_over:
            self._alarms.over(AlarmKind.SLOW, "every member sends changes or heartbeats again")

    def _holds(self, lane: Lane) -> bool:
        """Return whether other members wait for this member."""
        return self._by_time if self._floor is None else self._floor is lane and not self._is_passing
