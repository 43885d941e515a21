"""The parser's progress: written by the parser's thread at each step, read by any thread.

Costs one tuple per read and per delivery, and no work per event.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import attrs

from canal._util.threads import OwnThread
from canal.alarm import AlarmDesk, AlarmKind
from canal.errors import CanalError, PositionLostError
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.source.protocol import FullConnection, SourceInfo
from canal.position import Position
from canal.status import Lag, ParserStatus, SourceEnd, State

log = logging.getLogger("canal.parse")


class _Sample(NamedTuple):
    """The decoder's position and counts at one moment between two events."""

    journal: str
    offset: int
    timestamp: int
    events: int
    bytes: int
    transactions: int
    statements: int
    source: str  # identity of the server that wrote the journal


class ParserProgress:
    """The state of one parser.

    Args:
        source: returns the source that is read now.
        alarms: receives an alarm when a lost connection works again.
        calm: seconds that a new connection must last before the trouble counts as over.
    """

    def __init__(
        self,
        source: Callable[[], SourceInfo],
        decoder: BinlogDecoder,
        alarms: AlarmDesk,
        calm: float,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._decoder = decoder
        self._alarms = alarms
        self.calm = calm
        self._monotonic = monotonic
        self._clock = clock
        self._querying = threading.Lock()
        self._query: _EndQuery | None = None
        self.reset()

    def reset(self) -> None:
        """Forget the last run, including the decoder's counts."""
        d = self._decoder
        d.reset_counts()
        self.state = State.STOPPED
        self._origin = ""
        self._origin_source: Any = None
        self._seen = self._take_sample()
        self._connection: FullConnection | None = None
        self._fed = ("", "", 0)
        self._beat = b""
        self._idle = False
        self._fresh = 0.0  # source time up to which everything has been received
        self.complete_to = 0.0  # the same, as of the source's last report
        self._identity = self._flavor = ""
        self._clock_offset = 0.0
        self._connections = 0
        self._connected_at = 0.0
        self._troubled = False
        self._errors = 0
        self._last_error: tuple[CanalError, float] | None = None

    # -- the parser's thread ---------------------------------------------------------------------------------------

    def connected(self, connection: FullConnection) -> None:
        self._connection = connection
        self._identity, self._flavor = connection.identity, connection.flavor
        self._clock_offset = connection.clock_offset or 0.0
        self.state = State.SEEKING

    def began(self) -> None:
        """Record that a dump was requested."""
        self._connections += 1
        self._connected_at = self._monotonic()
        self._origin, self._origin_source = self._identity, self._source()
        self._seen, self._fed, self._beat, self._idle = self._take_sample(), ("", "", 0), b"", False

    def delivering(self) -> None:
        """Record that entries are about to be passed to the sink, which may block."""
        self._seen, self._idle = self._take_sample(), False
        self.state = State.STREAMING

    def fed(self, events: Sequence[bytes]) -> None:
        """Record that the events of a read are decoded."""
        if events:
            seen = self._seen = self._take_sample()
            position = (seen.source, seen.journal, seen.offset)
            if position != self._fed:
                self._fed, self._idle = position, False
                self.state = State.STREAMING
            else:  # heartbeats. MySQL also sends them while it skips known events, but never two from one position
                self._caught_up(self._idle or events[-1] == self._beat, is_said=True)
                self._beat = events[-1]
        elif self.state is State.STREAMING:
            connection = self._connection
            is_said = connection is None or not connection.sends_heartbeats
            self._caught_up(connection is None or connection.is_alive, is_said=is_said)
        if self._troubled and self.state is State.STREAMING and self._monotonic() - self._connected_at >= self.calm:
            self._troubled = False
            self._alarms.over(AlarmKind.CONNECTION, f"connected to {self._name()}")

    def _caught_up(self, is_idle: bool, *, is_said: bool) -> None:
        self._idle = is_idle
        if is_idle:
            self._fresh = self._clock() + self._clock_offset
            if is_said and not self._decoder.is_inside_transaction:
                self.complete_to = self._fresh

    def lost(self, what: str, error: CanalError, wait: float) -> None:
        self._note(error)
        self._troubled = True
        if what == "connection lost" and not self._connections:
            what = "not connected yet"
        kind = AlarmKind.POSITION if isinstance(error, PositionLostError) else AlarmKind.CONNECTION
        self._alarms.tell(kind, f"{what}, again in {wait:.1f} s: {error}", error.message)
        self.state = State.WAITING

    def blocked(self, text: str) -> None:
        """Raise an alarm that the source does not begin to send."""
        self._troubled = True
        self._alarms.tell(AlarmKind.CONNECTION, text)

    def ended(self, error: CanalError | None) -> None:
        self._seen = self._take_sample()
        if error is not None:
            self._note(error)
        self.state = State.ENDED if error is None else State.FAILED

    def _note(self, error: CanalError) -> None:
        self._errors += 1
        self._last_error = (error, self._clock())

    def _take_sample(self) -> _Sample:
        d = self._decoder
        return _Sample(
            d.journal, d.offset, d.timestamp, d.event_count, d.byte_count, d.transaction_count, d.statement_count, self._origin
        )

    def _name(self) -> str:
        return self._source().address or self._identity or "the source"

    # -- any thread ------------------------------------------------------------------------------------------------

    def status(self, delivered: Callable[[], Position | None], source_timeout: float | None) -> ParserStatus:
        """Return the status. ``delivered`` returns the position after the last delivered entry."""
        end = None if source_timeout is None else self._query_end(source_timeout)
        state, idle, seen = self.state, self._idle, self._seen
        position = delivered()  # read after ``seen``, which goes back only once earlier entries have been delivered
        error, error_at = self._last_error or (None, None)
        received = None
        if seen.journal:
            received = Position(seen.journal, seen.offset, timestamp=seen.timestamp * 1000, source=seen.source)
            if position is not None and received.precedes(position):  # the head of a large transaction is sent again
                received = attrs.evolve(position, gtid="")
        is_its = self._source() is self._origin_source  # otherwise the position still belongs to the other source
        behind = end.bytes_behind(received) if end and received and is_its else None
        lag = Lag(
            0.0 if behind == 0 and state is State.STREAMING else self._lag_seconds(state, idle, seen),
            behind,
            end.transactions_behind(position) if end and position else None,
        )
        return ParserStatus(
            state,
            self._source().address,
            self._identity,
            self._flavor,
            received,
            lag,
            seen.events,
            seen.bytes,
            seen.transactions,
            seen.statements,
            max(self._connections - 1, 0),
            self._alarms.count,
            self._errors,
            self._decoder.held_bytes,
            error,
            error_at,
            self._clock_offset,
            end,
        )

    def _lag_seconds(self, state: State, idle: bool, seen: _Sample) -> float | None:
        """Return 0 if the source has sent everything; otherwise the age of the last event or idle time."""
        if state is State.STOPPED:
            return None
        if state is State.ENDED or (state is State.STREAMING and idle):
            return 0.0
        fresh = max(self._fresh, float(seen.timestamp))
        return max(self._clock() + self._clock_offset - fresh, 0.0) if fresh else None

    def _query_end(self, timeout: float) -> SourceEnd | None:
        """Return the end of the source's log, read by another thread; None if there is no answer in time."""
        source = self._source()
        with self._querying:
            query = self._query
            if query is None or query.source is not source or not query.is_alive():
                query = self._query = _EndQuery(source, timeout, self._alarms.destination)
                query.start()
        query.join(timeout)
        return query.answer


class _EndQuery(OwnThread):
    """Queries a source for the end of the log. The network calls have timeouts, so the thread always ends."""

    def __init__(self, source: SourceInfo, timeout: float, destination: str) -> None:
        super().__init__(name=f"canal-{destination}-status")
        self.source = source
        self._timeout = timeout
        self._destination = destination
        self.answer: SourceEnd | None = None

    def work(self) -> None:
        try:
            self.answer = self.source.read_end(self._timeout)
        except Exception as error:
            log.info("[%s] cannot read the end of the source's log: %s", self._destination, error)
