"""What one client of an Instance is handed and acks: its batches, its filter and where it stands.

Never starts, stops or connects anything, and knows no other client.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

import attrs

from canal.errors import BatchError, CanalError, NotActiveError, NotSubscribedError, StateError, StoreClosedError
from canal.filter import TableFilter
from canal.model import Entry, EntryType, Message, Transaction
from canal.parse.parser import EventParser
from canal.position import Position
from canal.status import ClientStatus, Lag, ParserStatus, StoreStatus
from canal.store import EntryStore, Slice

#: Seconds between two acks of entries that a client's filter dropped, and for which a get may look for one that passes.
_SETTLE, _SCAN = 0.1, 1.0


@attrs.frozen
class Line:
    """What the clients of one Instance share."""

    destination: str
    parser: EventParser
    store: EntryStore
    #: Writes the cursor of a client, durably.
    write: Callable[[int, Position], None]
    #: Raises when the Instance does not run.
    check_running: Callable[[], None]


@attrs.define
class _Batch:
    """Entries that were handed out and not acked: sequences ``start`` … ``end - 1`` of the store."""

    id: int
    start: int
    end: int
    position: Position
    rows: int | None
    done: int  # transactions of the parser that are done with it
    open: Transaction | None  # the client's open transaction before this batch
    begin: Entry | None  # the BEGIN held back before this batch


@attrs.define(eq=False)
class Delivery:
    """One subscription. ``lock`` guards the fields; ``turn`` is held by the one thread that gets."""

    line: Line
    id: int
    filter: str
    cursor: Position
    durable: bool  # its subscription and cursor are kept by the meta manager
    next_id: int = 1
    skip: Position | None = None  # entries up to here were acked in an earlier life
    done: int = 0  # transactions of the parser that were done with the last ack
    got: Position = attrs.field(init=False)  # behind the last entries that were handed out or dropped
    first_id: int = attrs.field(init=False)  # of this turn: earlier ones were handed out before another process was active
    accepted: dict[tuple[str, str], bool] = attrs.field(init=False, factory=dict)
    narrow: TableFilter | None = attrs.field(init=False)
    batches: OrderedDict[int, _Batch] = attrs.field(init=False, factory=OrderedDict)
    last_acked: int = attrs.field(init=False, default=0)
    start: int = attrs.field(init=False, default=0)  # store sequence from which the next batch begins
    #: Position, sequence and ``done`` behind entries that its filter dropped.
    unclaimed: tuple[Position, int, int] | None = attrs.field(init=False, default=None)
    open: Transaction | None = attrs.field(init=False, default=None)  # the transaction that was delivered in part
    #: BEGIN of the last transaction, when nothing of it has passed the filter yet.
    begin: Entry | None = attrs.field(init=False, default=None)
    held: Entry | None = attrs.field(init=False, default=None)  # ``begin`` as it was at ``start``
    settled: float = attrs.field(init=False, default=0.0)  # when entries that its filter dropped were last acked
    rollbacks: int = attrs.field(init=False, default=0)
    rows_got: int | None = attrs.field(init=False, default=0)
    rows_acked: int | None = attrs.field(init=False, default=0)
    auto: int = attrs.field(init=False, default=0)  # the batch that get() will ack at its next call
    is_over: bool = attrs.field(init=False, default=False)  # the parts were stopped
    is_gone: bool = attrs.field(init=False, default=False)  # unsubscribed: another one may have its number
    lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)
    turn: threading.Lock = attrs.field(init=False, factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        self.got = self.cursor
        self.first_id = self.next_id
        self.narrow = _narrowing(self.filter)

    # -- get ----------------------------------------------------------------------------------------------------------

    def get(self, batch_size: int, timeout: float | None, linger: float) -> Message:
        """The next batch, as ``Instance.get_without_ack`` gives it."""
        parser = self.line.parser
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.turn:
            while True:
                seen = self.rollbacks
                finished = parser.is_finished  # before the look into the store: what it put in goes first
                left = None if deadline is None else deadline - time.monotonic()
                wait = left if self.unclaimed is None else _SETTLE if left is None else min(left, _SETTLE)
                slice = self._slice(batch_size, None if wait is None else max(wait, 0.0), linger)
                if slice.entries:
                    message = self._record(slice, seen)
                    if message is not None:
                        return message
                self._settle(seen, not slice.entries)
                # Passing over what is not for this client may take longer than waiting was to, but not for ever.
                over = deadline is not None and time.monotonic() >= deadline + (_SCAN if slice.entries else 0.0)
                if finished:  # to have found nothing means then that there is nothing
                    over = not slice.entries
                    if over and parser.error is not None:
                        raise parser.error
                if over:
                    return Message(-1, [])

    def _slice(self, batch_size: int, timeout: float | None, linger: float) -> Slice:
        try:
            return self.line.store.get(self.id, batch_size, timeout, linger)
        except CanalError as error:
            if self.is_over:
                raise StateError("the instance was stopped", destination=self.line.destination) from error
            raise

    def _record(self, slice: Slice, seen: int) -> Message | None:
        """Make a batch of a slice; None when nothing of it is for this client, or a rollback came in between."""
        with self.lock:
            self._check_current()
            if self.rollbacks != seen:
                with contextlib.suppress(StoreClosedError):  # stopped meanwhile, as the next look into the store tells
                    self.line.store.rollback(self.id, self.start)
                return None
            last = slice.entries[-1]
            position, done = last.position, last.transaction.before + last.is_end
            entries = self._wanted(slice.entries)
            if self.skip is None:
                self.got = position
            if not entries:
                self.unclaimed = (position, slice.end, done)
                return None
            rows = slice.row_count if entries is slice.entries else sum(entry.row_count for entry in entries)
            self.rows_got = _plus(self.rows_got, rows)
            batch = _Batch(self.next_id, self.start, slice.end, position, rows, done, self.open, self.held)
            self.open = None if entries[-1].is_end else entries[-1].transaction
            self.next_id += 1
            self.batches[batch.id] = batch
            self.start = slice.end
            self.unclaimed = None
            self.held = self.begin
            return Message(batch.id, entries, position)

    def _settle(self, seen: int, idle: bool) -> None:
        """What the client's filter dropped since the last batch needs no ack by the user."""
        with self.lock:
            if self.is_over or self.unclaimed is None or self.batches or self.rollbacks != seen:
                return
            self._check_current()
            if not idle and time.monotonic() < self.settled + _SETTLE:
                return
            position, end, done = self.unclaimed
            if self.skip is None:  # else the cursor is ahead of what was dropped
                if self.durable:
                    self.line.write(self.id, position)
                self.cursor, self.done = position, done
            self.line.store.ack(self.id, end)
            self.start, self.unclaimed, self.held = end, None, self.begin
            self.settled = time.monotonic()

    # -- what is for this client --------------------------------------------------------------------------------------

    def set_filter(self, filter: str) -> None:
        """What is handed out from now on is narrowed by another filter."""
        with self.lock:
            self.filter, self.narrow, self.accepted = filter, _narrowing(filter), {}

    def _wanted(self, entries: list[Entry]) -> list[Entry]:
        if self.skip is not None:
            entries = self._unskipped(entries, self.skip)
        begin, self.begin = self.begin, None
        if begin is not None and entries and entries[0].entry_type is not EntryType.TRANSACTIONBEGIN:
            if _same(entries[0].transaction, begin.transaction):
                entries = [begin, *entries]
        if self.narrow is None or not entries:
            return entries
        return self._narrowed(entries, self.narrow)

    def _narrowed(self, entries: list[Entry], narrow: TableFilter) -> list[Entry]:
        """What passes the client's filter, with BEGIN and END of just those transactions of which something passes."""
        wanted = [entry.entry_type is EntryType.ROWDATA and self._accepts(narrow, entry) for entry in entries]
        alive = {id(entry.transaction) for entry, want in zip(entries, wanted) if want}
        if self.open is not None and _same(entries[0].transaction, self.open):
            alive.add(id(entries[0].transaction))
        last = entries[-1]
        if not last.is_end and id(last.transaction) not in alive:  # something of it may still come
            begins = (e for e in entries if e.entry_type is EntryType.TRANSACTIONBEGIN)
            self.begin = next((e for e in begins if e.transaction is last.transaction), None)
        return [
            entry
            for entry, want in zip(entries, wanted)
            if want or (entry.entry_type is not EntryType.ROWDATA and id(entry.transaction) in alive)
        ]

    def _accepts(self, narrow: TableFilter, entry: Entry) -> bool:
        if entry.statement is not None and entry.statement.doubtful:  # it may be about any table
            return True
        for name in entry.header.tables or ((entry.header.schema, ""),):
            decision = self.accepted.get(name)
            if decision is None:
                decision = self.accepted[name] = narrow.accepts(*name)
            if decision:
                return True
        return False

    def _unskipped(self, entries: list[Entry], skip: Position) -> list[Entry]:
        """Leave out what the client acked before a restart, when the parser had to begin earlier for another client."""
        for number, entry in enumerate(entries):
            position = entry.position
            done = position.precedes(skip)
            if done is False and not skip.precedes(position):  # the same place: a BEGIN stands before its rows
                done = entry.is_end or entry.row_count > 0
            if not done:
                self.skip = None
                return entries[number:]
        return []

    # -- ack and rollback ---------------------------------------------------------------------------------------------

    def ack(self, batch_id: int) -> None:
        """As ``Instance.ack``: the cursor is durable when it returns."""
        with self.lock:
            if self.is_over:
                self.line.check_running()
                raise self._too_late(batch_id)
            self._check_current()
            if batch_id == self.last_acked and batch_id not in self.batches:
                return
            batch = self._oldest(batch_id)
            if self.durable:
                self.line.write(self.id, batch.position)
            with contextlib.suppress(StoreClosedError):  # stopped meanwhile: the cursor is durable all the same
                self.line.store.ack(self.id, batch.end)
            self.cursor, self.done = batch.position, batch.done
            self.rows_acked = _plus(self.rows_acked, batch.rows)
            self.last_acked = batch_id
            del self.batches[batch_id]
            if self.auto == batch_id:
                self.auto = 0

    def unacked_by_get(self) -> int:
        """The batch that ``get`` handed out last, which its next call acks; 0: there is none."""
        with self.lock:
            auto, others = self.auto, [id for id in self.batches if id != self.auto]
        if others:
            raise BatchError(
                f"client {self.id} has batches that are not acked: {others}",
                destination=self.line.destination, remedy="Ack or roll them back, or use get_without_ack.",
            )  # fmt: skip
        return auto

    def _oldest(self, batch_id: int) -> _Batch:
        if batch_id not in self.batches and 0 < batch_id < self.first_id:
            raise self._too_late(batch_id)
        if batch_id not in self.batches:
            raise BatchError(
                f"batch {batch_id} is not outstanding for client {self.id}; outstanding are {list(self.batches)}",
                destination=self.line.destination,
                remedy="It was acked or rolled back before, or belongs to another client.",
            )
        oldest = next(iter(self.batches.values()))
        if oldest.id != batch_id:
            raise BatchError(
                f"batch {batch_id} cannot be acked before batch {oldest.id}",
                destination=self.line.destination,
                remedy="Ack in the order of delivery.",
            )
        return oldest

    def _too_late(self, batch_id: int) -> NotActiveError:
        return NotActiveError(
            f"batch {batch_id} was handed out before this process had to pause", destination=self.line.destination,
            remedy="What was not acked then is delivered again, by the process that is active.",
        )  # fmt: skip

    def rollback(self, batch_id: int | None = None) -> None:
        """As ``Instance.rollback``: hand out again."""
        with self.lock:
            if self.is_over:  # its store is closed, or is about to be
                self.line.check_running()
                if batch_id is None:
                    return
                raise self._too_late(batch_id)
            self._check_current()
            if batch_id is None:
                first = next(iter(self.batches.values()), None)
            else:
                first = self.batches.get(batch_id)
                if first is None:
                    raise BatchError(
                        f"batch {batch_id} is not outstanding for client {self.id}", destination=self.line.destination
                    )
            if first is None:
                return
            self.line.store.rollback(self.id, first.start)
            for id in [id for id in self.batches if id >= first.id]:
                del self.batches[id]
            self.start = first.start
            self.open = first.open
            self.unclaimed = None
            self.begin = self.held = first.begin
            self.auto = 0
            last = next(reversed(self.batches.values()), None)
            self.got = last.position if last is not None else self.cursor
            self.rollbacks += 1

    def disown(self) -> None:
        """Roll everything back; what was handed out cannot be acked any more."""
        self.rollback()
        self.first_id = self.next_id

    def outstanding(self) -> list[int]:
        """Ids of the batches that are not acked, oldest first."""
        with self.lock:
            return list(self.batches)

    def _check_current(self) -> None:
        if self.is_gone and not self.is_over:
            raise not_subscribed(self.id, self.line.destination)

    # -- status -------------------------------------------------------------------------------------------------------

    def look(self) -> Look:
        """What it counts, without waiting: what is acked is looked at before what is got."""
        return Look(self, self.cursor, self.done, self.rows_acked, self.got, self.rows_got)


@attrs.frozen
class Look:
    """One look at a client, which its Instance completes when it has looked at store and parser."""

    client: Delivery
    acked: Position
    done: int
    rows_acked: int | None
    got: Position
    rows_got: int | None

    def status(self, store: StoreStatus | None, parser: ParserStatus | None, now: float) -> ClientStatus:
        client, acked = self.client, self.acked
        place = store.places.get(client.id) if store is not None else None
        entries = transactions = unacked_age = ungot_age = None
        if store is not None and place is not None:
            entries = store.put_entries - place.acked
            if parser is not None and client.skip is None:
                transactions = max(store.transactions - self.done, 0) if entries else 0
            if parser is not None:
                unacked_age, ungot_age = (
                    _age(since, parser, now) for since in (place.oldest_unacked, place.oldest_ungot)
                )
        end = parser.end if parser is not None else None
        return ClientStatus(
            client.id, client.filter, self.got, acked, len(client.batches),
            Lag(unacked_age, end.bytes_behind(acked) if end else None, end.transactions_behind(acked) if end else None),
            entries, transactions, ungot_age, self.rows_got, self.rows_acked, client.rollbacks,
        )  # fmt: skip


def not_subscribed(client_id: int, destination: str) -> NotSubscribedError:
    """The error of a client that is not there, or not any more."""
    return NotSubscribedError(
        f"client {client_id} is not subscribed", destination=destination, remedy="Call subscribe() first."
    )


def _age(since: int | None, parser: ParserStatus, now: float) -> float | None:
    """Age of an entry by the source's clock, which is not less than the lag of what is received."""
    if since is None or parser.lag.seconds is None:
        return parser.lag.seconds
    return max(now + parser.clock_offset - since, parser.lag.seconds)


def _plus(count: int | None, more: int | None) -> int | None:
    return None if count is None or more is None else count + more


def _narrowing(filter: str) -> TableFilter | None:
    return TableFilter(filter) if filter else None


def _same(one: Transaction, other: Transaction) -> bool:
    """Whether two objects are one transaction: after a lost connection the rest of a large one comes with a new object."""
    return one is other or (one.journal, one.offset, one.source) == (other.journal, other.offset, other.source)
