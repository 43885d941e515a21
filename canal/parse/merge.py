"""The merge of several parsers' transactions into one stream: whose turn it is.

Never looks into an entry further than its time and whether it ends a transaction, and starts and stops nothing. Each parser's
thread comes with what it has and waits here until that may pass.
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

#: Seconds between two looks at the heartbeats of the others.
_LOOK = 0.1


@attrs.define(eq=False)
class Lane:
    """What the merge knows of one member."""

    name: str
    #: The member's source has said that it has nothing more which it made before this time, in seconds by its clock.
    complete_to: Callable[[], float]
    #: Of its last transaction that passed; it does not go back.
    time: float = 0.0
    #: Of its transaction that waits to pass.
    head: float | None = None
    is_over: bool = False
    said: float = 0.0
    #: When it gave something or said something last, by the merge's clock.
    moved: float = 0.0
    stalled: float | None = None

    def times(self, entries: list[Entry]) -> list[tuple[float, int]]:
        """The time that each transaction counts with, and where its entries end. One that goes on comes last."""
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
        by_time: the earliest goes first; else who came first.
        idle_after, stalled_after, goes_on: see :class:`canal.parse.GroupParser`.
        torn: members that begin inside a transaction: its rest comes before all else.

    Attributes:
        late: transactions that passed behind one of a later time.
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
        self._floor = self._next_torn()  # whose transactions pass, or whose last one has not ended
        self._is_passing = False
        self._latest = 0.0
        self.is_stopping = False
        self.late = 0
        for lane in self._lanes.values():
            lane.moved = clock()

    def pass_on(self, name: str, entries: list[Entry], put: Callable[[list[Entry]], None]) -> None:
        """Give a member's entries to ``put``, in one piece or several, each when it is its turn.

        Raises:
            StoreClosedError: the group is being stopped.
        """
        lane, start = self._lanes[name], 0
        times = lane.times(entries)
        while times:
            count, was_open = self._wait_turn(lane, times)
            end = times[count - 1][1]
            piece = entries[start:end]
            counted = self.late, self._latest
            self._count(times[:count], was_open)  # before a reader can see them
            try:
                put(piece)
            except BaseException:  # the parser may give it again, after a new connection
                self.late, self._latest = counted
                self._give_back(lane, is_open=was_open)
                raise
            self._leave(lane, times[count - 1][0], is_open=not piece[-1].is_end)
            del times[:count]
            start = end

    def has_open(self, name: str) -> bool:
        """Whether a part of the member's transaction has passed, and its end has not."""
        return self._floor is self._lanes[name] and not self._is_passing

    def end(self, name: str) -> None:
        """Nothing more comes of a member."""
        with self._changed:
            lane = self._lanes[name]
            lane.is_over = True
            if self._floor is lane:
                self._floor = self._next_torn()
            self._changed.notify_all()

    def stop(self) -> None:
        """Who waits, and who comes later, gets a StoreClosedError."""
        with self._changed:
            self.is_stopping = True
            self._changed.notify_all()

    # -- turns --------------------------------------------------------------------------------------------------------

    def _wait_turn(self, lane: Lane, times: list[tuple[float, int]]) -> tuple[int, bool]:
        """Wait until some of the transactions may pass; gives how many, and whether the first has passed in part."""
        with self._changed:
            lane.head = times[0][0]
            self._queue.append(lane)
            self._changed.notify_all()
        while True:
            with self._changed:
                if self.is_stopping:
                    raise StoreClosedError("the group is being stopped")
                count = self._may_pass(lane, times)
                if count:
                    was_open = self._floor is lane
                    self._queue.remove(lane)
                    self._floor, self._is_passing = lane, True
                    return count, was_open
                self._changed.wait(_LOOK)
            self._look_for_stalled(lane)

    def _may_pass(self, lane: Lane, times: list[tuple[float, int]]) -> int:
        floor = self._floor
        if floor is not None and not floor.time and floor.head is None and not self._is_passing and floor.complete_to():
            self._floor = self._next_torn()  # it was inside a transaction, of which nothing is left
        if self._floor is lane:
            return 1  # its open transaction
        if self._floor is not None:
            return 0
        if not self._by_time:
            return len(times) if self._queue[0] is lane else 0
        limit = min((self._bound(other) for other in self._lanes.values() if other is not lane), default=math.inf)
        return bisect_right(times, (limit, math.inf))

    def _bound(self, lane: Lane) -> float:
        """What the member may still bring is of this time or later."""
        if lane.is_over or lane.stalled is not None and self._goes_on:
            return math.inf
        if lane.head is not None:
            return lane.head
        return max(lane.time, math.floor(lane.complete_to() - self._idle_after))

    def _count(self, times: list[tuple[float, int]], was_open: bool) -> None:
        """Count what is late of the transactions that pass now. Only the thread of the member that has the floor calls this."""
        if not was_open:  # else it was counted with its first piece
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
        """The next that is in its turn without having come for it."""
        while self._torn:
            lane = self._torn.popleft()
            if not lane.is_over:
                return lane
        return None

    # -- members that neither give nor say anything -------------------------------------------------------------------

    def _look_for_stalled(self, waiting: Lane) -> None:
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
            text = f"nothing came of member {name} for {seconds:.0f} s, not a heartbeat"
            if is_open:
                text += ", and its transaction has not ended: the others wait for that"
            else:
                text += ": the others go on without it" if self._goes_on else ": the others wait for it"
            self._alarms.tell(AlarmKind.SLOW, text, name)
        if is_over:
            self._alarms.over(AlarmKind.SLOW, "every member gives or says something again")

    def _holds(self, lane: Lane) -> bool:
        """Whether others wait for it."""
        return self._by_time if self._floor is None else self._floor is lane and not self._is_passing
