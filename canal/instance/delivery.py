"""The batches, filter and cursor of one client. A ``Delivery`` knows no other client and never starts or stops a part."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from canal.errors import (
    BatchError,
    CanalError,
    ConfigError,
    CursorError,
    NotActiveError,
    NotSubscribedError,
    StateError,
    StoreClosedError,
    fresh,
)
from canal.formats.message import Message
from canal.instance.client_filter import ClientFilter, ReadPosition, is_all_done
from canal.instance.context import ClientContext
from canal.instance.feed import Feed
from canal.parse.parser import parser_info
from canal.position import Position
from canal.status import ClientStatus, Lag, Latency, ParserStatus, StoreStatus
from canal.store import CatchUpStore, Slice

#: Seconds between two acknowledgements of entries that a client's filter dropped.
_SETTLE = 0.1
#: Seconds that a get may search beyond its timeout for an entry that passes the client's filter.
_SCAN = 1.0
#: Seconds of one wait in the store at most: no event wakes the wait when a stream is garbage collected.
_WAIT = 1.0

#: Batches whose latency is kept.
_LATENCIES = 1000


class UnackedBatch(NamedTuple):
    """Entries that were returned by a get and not acknowledged."""

    id: int
    rows: int | None
    after: ReadPosition
    thread: int
    """Ident of the thread that called get."""


class DeliveryState(NamedTuple):
    """The state that get, ack and rollback replace in one assignment, so that an exception never leaves half a change."""

    acked: ReadPosition
    reading: ReadPosition
    """Where the next get reads. Between the last batch and here are only entries that the filter dropped."""
    next_id: int
    first_id: int
    """The first batch of this turn: batches with lower ids were returned before another process was active."""
    batches: tuple[UnackedBatch, ...] = ()
    last_acked: int = 0
    rows_got: int | None = 0
    rows_acked: int | None = 0
    rollbacks: int = 0

    def back(self, number: int) -> DeliveryState:
        """Return the state in which this batch and all later ones are delivered again."""
        before = self.batches[number - 1].after if number else self.acked
        if before.feed is not self.reading.feed:
            before = before._replace(feed=None)
        return self._replace(reading=before, batches=self.batches[:number])

    def number(self, batch_id: int) -> int | None:
        """Return the index of an outstanding batch, or None."""
        return next((number for number, batch in enumerate(self.batches) if batch.id == batch_id), None)


class Delivery:
    """One subscription. Thread-safe; no call waits for another thread's ``get``.

    Attributes:
        durable: whether the meta manager stores the subscription and the cursor.
        auto: the batch that ``Instance.get`` returned last and acknowledges at its next call.
        left: outstanding batches of garbage-collected streams, which the next call rolls back. A finalizer must not take a lock,
            because it may run in a thread that holds the lock already.
        is_over: the parts were stopped.
        is_gone: the client was unsubscribed. A new client may have the same id.
        lock: held while the state changes and the cursor is written.
    """

    def __init__(
        self, context: ClientContext, client_id: int, filter: str, start: ReadPosition, durable: bool, next_id: int, first_id: int
    ) -> None:
        self.context = context
        self.id = client_id
        self.durable = durable
        self.auto = 0
        self.left: deque[int] = deque()
        self.is_over = False
        self.is_gone = False
        self.lock = threading.Lock()
        self.state = DeliveryState(start, start, next_id, first_id)
        self._released = start  # the last position that was acknowledged to the store
        self._joined = start  # where the client began to read the shared store
        self.feeds: list[Feed] = []  # private feeds that have not ended
        self._look_at = 0.0  # when to check next whether the client has caught up
        self._settled = 0.0  # when dropped entries were last acknowledged
        self._filter = ClientFilter(filter)
        self._latencies: deque[float] = deque(maxlen=_LATENCIES)  # seconds by this machine's clock

    @property
    def cursor(self) -> Position:
        """The cursor: all entries before it are acknowledged."""
        return self.state.acked.position

    @property
    def filter(self) -> str:
        """The client's filter. It applies after the instance's filter; "" passes all tables."""
        return self._filter.text

    def set_filter(self, filter: str) -> None:
        """Replace the filter for all further batches."""
        self._filter = ClientFilter(filter)

    # -- get ----------------------------------------------------------------------------------------------------------

    def get(self, batch_size: int, timeout: float | None, linger: float, taken: list[Taken]) -> Message:
        """Return the next batch; see ``Instance.get_without_ack``.

        The batch is appended to ``taken`` before it becomes outstanding, so that an interrupted caller can take it back.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self.left or self._released is not self.state.acked:
                self._catch_up()
            state = self.state
            feed = state.reading.feed
            if feed is None or self.feeds:
                feed, state = self._own_feed(feed), self.state
                if feed is None or state.reading.feed is not feed:
                    continue
            finished = feed.parser.is_finished  # read before the store, whose entries come first
            wait = _WAIT if state.reading is state.acked or state.batches else _SETTLE
            if deadline is not None:
                wait = max(min(deadline - time.monotonic(), wait), 0.0)
            try:
                self._check_not_over()  # the store may belong to a later run by now
                slice = feed.store.get(self.id, state.reading.start, batch_size, wait, linger)
            except CanalError as error:
                self._lost(error, state.reading)
                continue
            if slice.entries:
                message = self._record(slice, state.reading, taken)
                if message is not None:
                    return message
            elif self.state.reading is not state.reading:  # another thread took these entries, or rolled back
                continue
            self._settle(not slice.entries)
            # Skipping entries that the filter drops may exceed the timeout, but only by _SCAN.
            over = deadline is not None and time.monotonic() >= deadline + (_SCAN if slice.entries else 0.0)
            if finished and feed.stop is None:  # an empty slice is final then
                over = not slice.entries
            if finished and not slice.entries:
                if feed.parser.error is not None:
                    raise fresh(feed.parser.error)
                end = parser_info(feed.parser).delivered_position
                if feed.stop is not None and not self._join(end):  # the log has grown since the private feed ended
                    self._detach(state.reading)
            if over:
                return Message(-1, [])

    def _lost(self, error: CanalError, reading: ReadPosition) -> None:
        """Handle a closed store: switch to a private feed if the store evicted the client, else raise."""
        if self.is_over:
            raise StateError("the instance was stopped", destination=self.context.destination) from error
        if self.is_gone:
            raise not_subscribed(self.id, self.context.destination) from error
        if isinstance(error, NotSubscribedError):
            self._detach(reading)
        elif self.state.reading.feed is reading.feed:  # else another thread closed a feed that the client has left
            raise error

    def _record(self, slice: Slice, reading: ReadPosition, taken: list[Taken]) -> Message | None:
        """Turn a slice into a batch. Return None if the filter drops all of it, or the reading position has changed."""
        with self.lock:
            self._check_not_over()
            state = self._current()
            if state.reading is not reading:
                return None
            entries, after = self._filter.select(slice, reading)
            if not entries:
                self.state = state._replace(reading=after)
                return None
            rows = slice.row_count if entries is slice.entries else sum(entry.row_count for entry in entries)
            batch = UnackedBatch(state.next_id, rows, after, threading.get_ident())
            message = Message(batch.id, entries, after.position)
            taken.append((self, batch))
            self.state = DeliveryState(
                state.acked,
                after,
                batch.id + 1,
                state.first_id,
                (*state.batches, batch),
                state.last_acked,
                _plus(state.rows_got, rows),
                state.rows_acked,
                state.rollbacks,
            )
            return message

    def take_back(self, batch: UnackedBatch) -> None:
        """Undo a get whose batch did not reach its caller, unless a later batch is outstanding."""
        with self.lock:
            state = self.state
            if state.batches and state.batches[-1] is batch and not self.is_over:
                self.state = state.back(len(state.batches) - 1)
                self._wake()

    def _settle(self, idle: bool) -> None:
        """Acknowledge the entries that the filter dropped since the last batch."""
        with self.lock:
            state = self.state
            if self.is_over or state.batches or state.reading is state.acked:
                return
            self._check_current()
            if not idle and time.monotonic() < self._settled + _SETTLE:
                return
            self._ack(state._replace(acked=state.reading))
            self._settled = time.monotonic()

    # -- clients that are not in the shared store ---------------------------------------------------------------------

    def evicted(self) -> None:
        """Leave the shared store, which no longer keeps entries for this client."""
        if self.kept is not None:
            self._detach(self.state.reading)

    def _detach(self, reading: ReadPosition) -> None:
        with self.lock:
            if self.state.reading is reading:
                self.state = self.state._replace(reading=reading._replace(feed=None))

    def _own_feed(self, feed: Feed | None) -> Feed | None:
        """Open a private feed if there is none, or return to the shared store once the client has caught up."""
        if feed is None:
            with self.lock:
                state = self._current()
                if self.is_over:
                    raise StateError("the instance was stopped", destination=self.context.destination)
                if state.reading.feed is None:
                    self.context.store.close(self.id)
                    feed = self.context.open_feed(self.id, state.reading.position, self.feeds)
                    self.state = state._replace(reading=state.reading._replace(start=0, skip=None, feed=feed))
        elif feed.stop is not None and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _SETTLE
            if feed.source is not self.context.source:
                self._detach(self.state.reading)
            else:
                self._join()
        self.end_feeds()
        return self.state.reading.feed

    def _join(self, end: Position | None = None) -> bool:
        """Switch to the shared store if the store's first entry is already done. Return whether it is.

        Args:
            end: where the private feed has ended, if all of it was read. It differs from the client's position if that is lost.
        """
        with self.lock:
            reading = self._current().reading
            store = self.context.store
            if self.is_over or reading.feed is None or reading.feed.stop is None or not isinstance(store, CatchUpStore):
                return False
            try:
                done = end or reading.position
                start = store.join(self.id, lambda entry: is_all_done(entry, done))
                if start is None and (store.open(self.id) or not self._is_behind_start(done)):
                    return False
                start = start or 0  # the store holds the stream from its start
                joined = reading._replace(start=start, skip=done, feed=Feed(self.context.parser, store))
                self._joined = joined
                self.state = self.state._replace(reading=joined)
            finally:
                if self.state.reading is reading:
                    store.close(self.id)
        self.context.caught_up(self.id)
        return True

    def _is_behind_start(self, position: Position) -> bool:
        """Return whether the shared stream has begun at this position or before it."""
        with contextlib.suppress(CanalError):  # the stream has not begun
            return position.precedes(self.context.parser.wait_started(0.0)) is False
        return False

    def end_feeds(self) -> None:
        """End the private feeds that the client does not read; all of them if it is over or gone."""
        while True:
            with self.lock:  # a feed that is being opened is not read yet
                kept = None if self.is_over or self.is_gone else self.state.reading.feed
                ended = next((feed for feed in self.feeds if feed is not kept), None)
            if ended is None:
                return
            assert ended.stop is not None
            ended.stop()
            with contextlib.suppress(ValueError):  # another thread has removed it
                self.feeds.remove(ended)

    def seek(self, feed: Feed, position: Position) -> None:
        """Move the cursor and read from this feed, which begins there. Outstanding batches can no longer be acknowledged."""
        with self.lock:
            if self.is_over:
                self.context.check_running()
            state = self._current()
            if self.durable:
                self.context.write_cursor(self.id, position)
                try:
                    self.context.flush()  # otherwise a crash could resume at the former cursor
                except CursorError:
                    self.context.write_cursor(self.id, state.acked.position)
                    raise
            reading = ReadPosition(0, position, feed=feed)
            self.feeds.append(feed)
            self.state = state._replace(acked=reading, reading=reading, batches=(), rollbacks=state.rollbacks + 1)
            self.context.store.close(self.id)
            self._wake()

    @property
    def kept(self) -> ReadPosition | None:
        """The position from which the shared store keeps entries for this client, or None if it keeps none."""
        state = self.state
        if state.reading.feed is None or state.reading.feed.stop is not None:
            return None
        return state.acked if state.acked.feed is state.reading.feed else self._joined

    # -- ack and rollback ---------------------------------------------------------------------------------------------

    def ack(self, batch_id: int) -> None:
        """Acknowledge the oldest batch; see ``Instance.ack``. The cursor is durable on return."""
        with self.lock:
            if self.is_over:
                self.context.check_running()
                raise self._too_late(batch_id)
            state = self._current()
            batches = state.batches
            if not batches or batches[0].id != batch_id:
                number = state.number(batch_id)
                if number is None and batch_id == state.last_acked:
                    return
                raise self._refusal(state, batch_id, number)
            _, rows, after, _ = batches[0]
            self._ack(
                DeliveryState(
                    after,
                    state.reading,
                    state.next_id,
                    state.first_id,
                    batches[1:],
                    batch_id,
                    state.rows_got,
                    _plus(state.rows_acked, rows),
                    state.rollbacks,
                )
            )
            if after.position.timestamp:
                self._latencies.append(time.time() - after.position.timestamp / 1000)

    def _ack(self, state: DeliveryState) -> None:
        """Write the cursor, then replace the state, then free the store. The next call completes what an exception interrupts."""
        position = state.acked.position
        if self.durable and position is not self.state.acked.position:
            self.context.write_cursor(self.id, position)
        self.state = state
        self._release()

    def _release(self) -> None:
        acked, feed = self.state.acked, self.state.reading.feed
        if feed is not None and acked.feed is feed:
            try:
                feed.store.ack(self.id, acked.start)
            except (StoreClosedError, NotSubscribedError):  # stopped meanwhile; the cursor is durable
                pass
        self._released = acked

    def unacked_by_get(self) -> int:
        """Return the id of the batch that the next ``Instance.get`` acknowledges, or 0.

        Raises:
            BatchError: other batches are outstanding.
        """
        with self.lock:
            outstanding = [batch.id for batch in self._current().batches]
        others = [id for id in outstanding if id != self.auto]
        if others:
            raise BatchError(
                f"client {self.id} has batches that are not acknowledged: {others}",
                destination=self.context.destination,
                remedy="Acknowledge them or roll them back, or use get_without_ack.",
            )
        return outstanding[0] if outstanding else 0

    def _refusal(self, state: DeliveryState, batch_id: int, number: int | None) -> CanalError:
        if number is None and 0 < batch_id < state.first_id:
            return self._too_late(batch_id)
        if number is None:
            return BatchError(
                f"batch {batch_id} is not outstanding for client {self.id}; outstanding are "
                f"{[batch.id for batch in state.batches]}",
                destination=self.context.destination,
                remedy="It was acknowledged or rolled back before, perhaps by another reader of this client, or belongs to "
                "another client. Give each reader a separate client.",
            )
        first = state.batches[0]
        text, remedy = f"batch {batch_id} cannot be acknowledged before batch {first.id}", "Acknowledge in order of delivery."
        if first.thread != threading.get_ident():
            name = next((one.name for one in threading.enumerate() if one.ident == first.thread), "that has ended")
            text = f"{text}, which thread {name!r} has not acknowledged"
            remedy = f"{remedy} If two threads read client {self.id}, give each thread a separate client."
        return BatchError(text, destination=self.context.destination, remedy=remedy)

    def _too_late(self, batch_id: int) -> NotActiveError:
        return NotActiveError(
            f"batch {batch_id} was returned in an earlier turn of this process",
            destination=self.context.destination,
            remedy="Discard the batch: the active process delivers it again.",
        )

    def rollback(self, batch_id: int | None = None, *, disown: bool = False) -> None:
        """Deliver batches again; see ``Instance.rollback``. With ``disown`` earlier batches can no longer be acknowledged."""
        with self.lock:
            if self.is_over:  # the store is closed, or is about to be
                self.context.check_running()
                if batch_id is None:
                    return
                raise self._too_late(batch_id)
            state = self._current()
            number = 0 if batch_id is None else state.number(batch_id)
            if number is None:
                raise BatchError(
                    f"batch {batch_id} is not outstanding for client {self.id}", destination=self.context.destination
                )
            if disown:
                state = state._replace(first_id=state.next_id)
            if state.batches:
                state = state.back(number)._replace(rollbacks=state.rollbacks + 1)
            self.state = state
            self._wake()

    def _wake(self) -> None:
        for store in (self.context.store, *(feed.store for feed in self.feeds)):
            store.wake()

    def outstanding(self) -> list[int]:
        """Return the ids of the outstanding batches, oldest first."""
        with self.lock:
            return [batch.id for batch in self._current().batches]

    def add_members(self, start: Position) -> None:
        """Add the new members of a group to the cursor. None of their entries has been returned yet."""
        with self.lock:
            state = self.state
            known = dict(state.acked.position.members)
            lacking = {name: position for name, position in start.members if name not in known}
            if lacking and not self.is_over:
                acked = state.acked._replace(position=Position(members={**known, **lacking}))
                self._ack(state._replace(acked=acked, reading=acked))

    def translate(self, found: Mapping[Position, Position | None]) -> None:
        """Replace a cursor that is ahead of the stream, after a switch to another log, by its position there (None: unknown)."""
        with self.lock:
            mark = self.state.reading.skip
            if self.is_over or mark is None or mark not in found:
                return
            # The stored cursor changes with the next ack, so that all clients' cursors belong to the former log until then.
            acked, reading = self.state.acked._replace(skip=found[mark]), self.state.reading._replace(skip=found[mark])
            self.state = self.state._replace(acked=acked, reading=acked if self.state.reading is self.state.acked else reading)

    # -- checks at the start of a call, with the lock held -------------------------------------------------------------

    def _current(self) -> DeliveryState:
        """Roll back the batches of garbage-collected streams and return the state."""
        if self.is_gone:
            self._check_current()
        while self.left:
            number = self.state.number(self.left[0])
            if number is not None:
                self.state = self.state.back(number)._replace(rollbacks=self.state.rollbacks + 1)
            self.left.popleft()
        return self.state

    def _catch_up(self) -> None:
        """Complete what an earlier call or a finalizer left to the next call."""
        with self.lock:
            if not self.is_over:
                self._current()
                self._release()

    def _check_not_over(self) -> None:
        if self.is_over:
            raise StateError("the instance was stopped", destination=self.context.destination)

    def _check_current(self) -> None:
        if self.is_gone and not self.is_over:
            raise not_subscribed(self.id, self.context.destination)

    # -- status -------------------------------------------------------------------------------------------------------

    def status(
        self, state: DeliveryState, store: StoreStatus | None, parser: ParserStatus | None, now: float, complete: float | None
    ) -> ClientStatus:
        """Return the status for a state that was read before. All commits up to ``complete`` were in the store by then."""
        acked = state.acked.position
        kept = store.readers.get(self.id) if store is not None else None
        entries = transactions = unacked_age = ungot_age = None
        if store is not None and kept is not None:
            entries = store.put_entries - kept.acked
            if parser is not None and state.reading.skip is None:
                transactions = max(store.transactions - state.acked.done, 0) if entries else 0
            if parser is not None:
                unacked_age, ungot_age = (_age(since, parser, now) for since in (kept.oldest_unacked, kept.oldest_ungot))
        end = parser.end if parser is not None else None
        return ClientStatus(
            self.id,
            self.filter,
            state.reading.position,
            acked,
            len(state.batches),
            Lag(unacked_age, end.bytes_behind(acked) if end else None, end.transactions_behind(acked) if end else None),
            entries,
            transactions,
            ungot_age,
            state.rows_got,
            state.rows_acked,
            state.rollbacks,
            self.kept is None,
            Latency.of(seconds + (parser.clock_offset if parser is not None else 0.0) for seconds in tuple(self._latencies)),
            max(acked.timestamp / 1000, complete or 0.0 if entries == 0 else 0.0) or None,
        )


#: A batch that a call returned, and its client.
Taken: TypeAlias = tuple[Delivery, UnackedBatch]


def take_back(taken: list[Taken]) -> None:
    """Undo the gets of a call that was interrupted."""
    while taken:
        client, batch = taken[-1]
        client.take_back(batch)
        taken.pop()


def check_client_id(client_id: object) -> None:
    """Raise ConfigError if the client id is not an int, for example a filter."""
    if type(client_id) is int:
        return
    is_filter = isinstance(client_id, str)
    raise ConfigError(
        f"client_id must be an int, not {client_id!r}",
        remedy=f"Did you mean subscribe(filter={client_id!r})?" if is_filter else "Pass an int.",
    )


def not_subscribed(client_id: int, destination: str) -> NotSubscribedError:
    """Return the error for an unknown client."""
    return NotSubscribedError(f"client {client_id} is not subscribed", destination=destination, remedy="Call subscribe() first.")


def _age(since: int | None, parser: ParserStatus, now: float) -> float | None:
    """Return the age of an entry in seconds by the source's clock, at least the parser's lag."""
    if since is None or parser.lag.seconds is None:
        return parser.lag.seconds
    return max(now + parser.clock_offset - since, parser.lag.seconds)


def _plus(count: int | None, more: int | None) -> int | None:
    return None if count is None or more is None else count + more
