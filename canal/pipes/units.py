"""The units that a pipe commits: messages that end with a transaction, fetched and decoded ahead of the writer."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Literal

import attrs

from canal._util.threads import as_own
from canal.changes import Change, Changes, Reader, Table
from canal.changes.batch import Decode, EntryRows, TableRoute
from canal.errors import CanalError, HookError, UnfitChangeError, UsageError
from canal.formats.message import Message
from canal.instance.client_filter import unskipped
from canal.instance.instance import Instance
from canal.model import Entry
from canal.pipes.rules import Rules
from canal.position import Position

#: Seconds that a get waits, and so the delay of a stop; and the same during an initial load.
POLL: Final = 0.5
POLL_LOADING: Final = 0.05
#: Seconds to wait for the rest of a transaction before the next attempt.
_GROW: Final = 0.1
#: More rows than any store holds.
_ALL: Final = 1 << 30
#: Seconds after which a commit is slow, and the row changes that a unit has at most because of that.
_SLOW: Final = 0.5
_MOST: Final = 10_000


@attrs.define(eq=False)
class Unit:
    """A message that ends with a transaction, and its changes."""

    message: Message
    start: Position
    """A position before the message. No change lies between."""
    end: Position
    epoch: int
    entries: list[Entry]
    mark: int = 0
    changes: Changes = attrs.field(factory=lambda: Changes(()), repr=False)
    """The changes of each entry."""
    parked: list[Change] = attrs.field(factory=list)
    """Changes for the dead letters, because a rule failed."""
    asked: int = 0
    """The requested number of row changes."""
    failure: CanalError | None = None
    """The error that follows right after ``end``. The message must not be acknowledged then."""

    def behind(self, position: Position) -> Changes:
        """Return the changes after a position of the same log."""
        return self.changes.after(len(self.entries) - len(unskipped(self.entries, position)))


@attrs.define(eq=False)
class Units:
    """The units of a client. The next unit is fetched while the pipe writes the current unit.

    Attributes:
        is_over: whether the source has ended.
        arrow_from: a table with fewer changes is not converted to columns. None: never convert.
        encode: encodes an entry's changes for a log target. None: the target accepts rows.
    """

    instance: Instance
    client_id: int
    batch_size: int
    linger: float
    reader: Reader
    rules: Rules | None
    """The rules of the pipe. None: changes are not modified."""
    is_whole: bool
    on_large: Literal["stop", "pieces"]
    parks: bool
    is_over: bool = False
    arrow_from: int | None = None
    encode: Callable[[EntryRows], Any] | None = None
    poll: float = POLL
    _size: int = attrs.field(init=False)
    _end: Position | None = None
    _epoch: int = 0
    _ahead: Future[Unit | None] | None = None
    _out: deque[Unit] = attrs.field(factory=deque)
    _interrupt: threading.Event = attrs.field(factory=threading.Event)
    _threads: ThreadPoolExecutor = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._size = self.batch_size
        self._threads = ThreadPoolExecutor(1, f"canal-{self.instance.destination}-pipe-ahead")

    def next(self) -> Unit | None:
        """Return the next unit, or None if no change arrives for a while, or if the source has ended (``is_over``).

        Raises:
            CanalError: the error that stopped the parser, or a transaction is larger than the store.
            StateError: the instance was stopped.
        """
        ahead, self._ahead = self._ahead or self._threads.submit(self._fetch), None
        unit = ahead.result()
        if unit is not None:
            if not self._out:
                self.reader.forget(unit.mark)
            self._out.append(unit)
        if unit is None or unit.failure is None:
            self._ahead = self._threads.submit(self._fetch)
        return unit

    def ack(self, unit: Unit) -> None:
        """Acknowledge the oldest unit.

        Raises:
            CanalError: as in ``Instance.ack``.
        """
        self.instance.ack(unit.message.id, client_id=self.client_id)
        self._out.popleft()

    def pace(self, unit: Unit, seconds: float) -> None:
        """Double the size of units after a full unit that was slow to write, else halve it.

        A commit of a lake costs the same for ten changes and for ten thousand. An initial load makes progress only if the stream
        keeps up with the source.
        """
        is_slow = seconds > _SLOW and unit.message.row_count >= unit.asked
        self._size = max(min(2 * unit.asked, _MOST) if is_slow else self._size // 2, self.batch_size)

    def rollback(self) -> None:
        """Fetch all unacknowledged changes again."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._interrupt.set()
            with contextlib.suppress(Exception):  # the next fetch raises the error again
                if (unit := ahead.result()) is not None:
                    self._out.append(unit)
            self._interrupt.clear()
        if self._out:
            self.reader.back(self._out[0].mark)
        self._out.clear()
        with contextlib.suppress(CanalError):  # the instance was stopped, or another process is active
            self.instance.rollback(client_id=self.client_id)
        self._end = None

    def seek(self, position: Position) -> None:
        """Continue at a position."""
        self.rollback()
        self.instance.seek(self.client_id, position)

    def close(self) -> None:
        """Roll back unacknowledged changes and end the thread."""
        self.rollback()
        self._threads.shutdown()

    # -- in the fetch thread -------------------------------------------------------------------------------------------

    def _fetch(self) -> Unit | None:
        with as_own():
            return self._next()

    def _next(self) -> Unit | None:
        over = self.instance._is_over(self.client_id)  # before the get, because remaining changes have priority
        asked = self._size
        message = self._get(asked, self.linger)
        if message and self.is_whole:
            message = self._whole(message)
        if not message:
            self.is_over = over
            return None
        unit = self._unit(message)
        unit.asked = asked
        return unit

    def _get(self, size: int, linger: float) -> Message:
        return self.instance._read(size, self.poll, linger, self.client_id)

    def _whole(self, message: Message) -> Message:
        """Replace the message by a shorter or longer message that ends with a transaction."""
        size, waited, count = self._size, -1.0, 0
        while message and not message.entries[-1].is_end:
            rows, before, count = _rows_to_an_end(message), count, len(message.entries)
            is_all = count == before  # the rest is not in the store yet
            if not rows and is_all:
                is_stuck, waited = self._is_stuck(waited)
                if is_stuck and self.on_large == "pieces":
                    break
                if is_stuck:
                    raise self._too_large(message)
            size = min(2 * size, _ALL)  # doubles, because the rest of the transaction may take many attempts
            self.instance.rollback(message.id, client_id=self.client_id)
            if self._interrupt.is_set():
                return Message(-1, [])
            message = self._get(rows or size, _GROW if is_all and not rows else 0.0)
        return message

    def _too_large(self, message: Message) -> UsageError:
        return UsageError(
            "a transaction is larger than the store, so it cannot be one commit",
            destination=self.instance.destination,
            position=message.entries[0].transaction,
            remedy='Raise store_entries and store_bytes of the InstanceConfig, or set on_large="pieces" to commit it in '
            "pieces: a reader of the target may then see a part of it.",
        )

    def _is_stuck(self, before: float) -> tuple[bool, float]:
        """Return whether the parser has waited for room since ``before`` while a single batch of this client fills the store."""
        status = self.instance.status()
        client = next((one for one in status.clients if one.client_id == self.client_id), None)
        if client is None or status.store is None or client.batches != 1 or client.unacked_entries != status.store.entries:
            return False, -1.0
        return 0.0 <= before < status.store.waited, status.store.waited

    def _unit(self, message: Message) -> Unit:
        epoch, end = message.epoch, message.position
        assert end is not None
        if self._end is None or epoch != self._epoch:  # a batch of an earlier turn does not count
            self._end = self.instance.position(self.client_id)
        unit = Unit(message, self._end, end, epoch, list(message.entries), self.reader.mark())
        self._end, self._epoch = end, epoch
        self._read(unit)
        return unit

    def _read(self, unit: Unit) -> None:
        """Fill in the changes, up to the first entry that cannot be read."""
        if self.encode is not None:
            try:
                unit.changes = Changes([self._undecoded(entry, unit) for entry in unit.entries])
                self._encode(unit.changes, self.encode)
                return
            except CanalError:  # the rows say up to where they can be read
                self.reader.back(unit.mark)
                unit.parked.clear()
        if (decode := decoder_of_columns() if self.arrow_from is not None else None) is not None:
            try:
                unit.changes = Changes([self._undecoded(entry, unit) for entry in unit.entries], decode, self.arrow_from or 0)
                for batch in unit.changes.tables:
                    if batch.state is None:
                        assert batch.changes is not None
                return
            except CanalError:  # the rows say up to where they can be read
                self.reader.back(unit.mark)
                unit.parked.clear()
        made: list[Change] = []  # a single list is cheaper than a container per entry
        starts: list[int] = []
        whole = rows = 0  # entries and rows up to the last end of a transaction
        for number, entry in enumerate(unit.entries):
            starts.append(len(made))
            try:
                made += self._applied(self.reader.changes(entry), unit)
            except CanalError as error:
                del unit.entries[whole:], starts[whole:], made[rows:]
                unit.end = unit.entries[-1].position if whole else unit.start
                unit.failure = error
                break
            if entry.is_end:
                whole, rows = number + 1, len(made)
        unit.changes = Changes([made], starts=starts)

    @staticmethod
    def _encode(changes: Changes, encode: Callable[[EntryRows], Any]) -> None:
        for part in changes.parts:
            if isinstance(part, EntryRows):
                part.encoded = encode(part)
                if part.encoded is None:
                    assert part.rows is not None  # raises if the rows cannot be decoded

    def _undecoded(self, entry: Entry, unit: Unit) -> Sequence[Change]:
        """Return the changes of an entry. They are decoded now only if a rule needs the rows."""
        table = self.reader.table(entry)
        if table is None:
            return self._applied(self.reader.changes(entry), unit)
        plan = None if self.rules is None else self.rules.plan(table)
        if plan is not None and not (plan.has_columns if self.encode is None else plan.slots is not None):
            return self._applied(self.reader.rows(entry, table), unit)
        return EntryRows(entry, table, self._routed, plan)

    def _routed(self, entry: Entry, table: Table, route: TableRoute | None) -> Sequence[Change]:
        changes = self.reader.rows(entry, table)
        return changes if route is None else [one for change in changes for one in route.apply(change)]

    def _applied(self, changes: Sequence[Change], unit: Unit) -> Sequence[Change]:
        if self.rules is None or not changes:
            return changes
        made: list[Change] = []
        for change in changes:
            try:
                made += self.rules.apply(change)
            except (HookError, UnfitChangeError) as error:
                if not self.parks:
                    raise
                unit.parked.append(change.evolve(error=error.message))
        return made


def decoder_of_columns() -> Decode | None:
    """Return the function that converts rows to columns, or None if pyarrow is not installed."""
    try:
        from canal.formats.change_columns import change_columns
    except ImportError:
        return None
    return change_columns


def _rows_to_an_end(message: Message) -> int:
    """Return the number of row changes and statements up to the last end of a transaction, or 0 if there is no end."""
    count = last = 0
    for entry in message.entries:
        count += entry.header.row_count if entry.row_change.schema is not None else bool(entry.row_change.sql)
        if entry.is_end:
            last = count
    return last
