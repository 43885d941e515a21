"""The store in memory: a ring that the slowest client holds back.

Never keeps more than its limits, except for one entry that is larger than all of them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import attrs

from canal.errors import ConfigError, NotSubscribedError, StoreClosedError
from canal.model import Entry
from canal.status import ReaderStatus, StoreStatus
from canal.store.patience import HeldBack, Patience
from canal.store.protocol import Slice
from canal.store.ring import Ring

#: Seconds that one wait takes at most: Python runs the handler of a signal between two steps of the main thread only, and
#: one that comes just before a wait, or to another thread, does not end it. What an exception kept from waking others
#: costs them so much.
_SHORT = 1.0
#: With so many bytes before them that nobody has got yet, readers get the processor: what waits longer is in no cache when
#: it is read. The writer goes on at this pace, in bytes a second, until they have less, and stands still for a moment
#: whenever it has written a step.
_PLENTY = 4 << 20
_PACE = 100 << 20
_STEP = 256 << 10
#: Fewer entries than so many are given at once to who waits for them. Behind more of them others come: a larger batch costs less.
_TRICKLE = 64


@attrs.define(eq=False)
class _Reader:
    """What is kept for a client: everything from ``acked`` on."""

    acked: int


class _Waiters:
    """Those who wait until something changes. All but ``wait`` is done under the lock of what they wait for.

    No ``Condition``: an exception out of a signal's handler in its ``wait`` may leave the lock to whoever has it then.
    """

    def __init__(self) -> None:
        self._locks: list[threading.Lock] = []

    def add(self) -> threading.Lock:
        lock = threading.Lock()
        lock.acquire()
        self._locks.append(lock)
        return lock

    def wait(self, lock: threading.Lock, seconds: float) -> None:
        if not lock.acquire(timeout=seconds):
            with contextlib.suppress(ValueError):  # woken just now
                self._locks.remove(lock)

    def wake(self) -> bool:
        """Whether anybody has waited."""
        woken = bool(self._locks)
        while self._locks:
            self._locks.pop().release()
        return woken


class MemoryStore:
    """An :class:`~canal.store.protocol.EntryStore` in memory.

    Args:
        max_entries: entries that it keeps at most.
        max_bytes: bytes of events and entry objects that it keeps at most.
        isolate_ddl: hand out a statement that changes a schema in a batch of its own.
        whole_transactions: let batches end where a transaction does. One that is larger than a batch comes alone, and in
            pieces only where the store has no room for all of it.
        batch_bytes: of a batch at most, as the store counts them; one entry, or one whole transaction, may be more.
        patience: with clients that hold the others back.
        tell: called about such clients, on the writer's thread and under no lock.
    """

    def __init__(
        self,
        max_entries: int = 1 << 16,
        max_bytes: int = 64 << 20,
        *,
        isolate_ddl: bool = False,
        whole_transactions: bool = False,
        batch_bytes: int | None = None,
        patience: Patience | None = None,
        tell: Callable[[HeldBack], None] = lambda held: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if type(max_entries) is not int or type(max_bytes) is not int or max_entries < 1 or max_bytes < 1:
            raise ConfigError("a store needs room for at least one entry and one byte")
        self._limits = (max_entries, max_bytes)
        self._cut = (batch_bytes or 1 << 62, isolate_ddl, whole_transactions)
        self._patience = patience
        self._tell = tell
        self._look_at = 0.0
        self._told = False
        self._clock = clock
        self._lock = threading.Lock()
        self._room = _Waiters()
        self._filled = _Waiters()
        self._read = _Waiters()
        self._ahead = 0  # bytes that were written ahead of readers who have plenty, since the writer paused
        self._readers: dict[int, _Reader] = {}
        self._ring = Ring(*self._limits)
        self._open = False
        self._ended = False
        self._last: Entry | None = None
        self._wakes = 0
        self._waited = 0.0
        self._waiting_since: float | None = None

    def start(self) -> None:
        with self._lock:
            self._ring = Ring(*self._limits)
            self._readers = {}
            self._open = True
            self._ended = False
            self._last = None
            self._waited = 0.0
            self._waiting_since = None
            self._look_at = 0.0
            self._told = False

    def stop(self) -> None:
        with self._lock:
            self._open = False
            self._ring.release(self._ring.tail)
            self._room.wake()
            self._filled.wake()
            self._read.wake()

    def put(self, entries: list[Entry]) -> None:
        done = 0
        while True:
            woken = False
            with self._lock:
                if not self._open:
                    raise StoreClosedError("the store is closed")
                unread = self._ring.unread
                count = self._ring.put(entries, done)
                self._ahead += self._ring.unread - unread
                if count:
                    done += count
                    self._last = entries[done - 1]
                    woken = self._filled.wake()
                    self._waits(False)
                if done < len(entries):
                    self._waits(True)
                held = self._held_back()
                lock = self._room.add() if done < len(entries) else None
                pause = self._pause() if lock is None else None
            if woken and len(entries) < _TRICKLE:
                self._ring.give_way()
            if held is not None:
                self._tell(held)
            if pause is not None:
                self._read.wait(pause, self._ahead / _PACE)
                self._ahead = 0
            if lock is None:
                return
            if held is None or not held.is_evicted:
                self._room.wait(lock, min(_SHORT, self._patience.seconds if self._patience else _SHORT))

    def _pause(self) -> threading.Lock | None:
        """What the writer waits for, where readers are far behind it."""
        if self._ring.unread <= _PLENTY:
            self._ahead = 0
        return self._read.add() if self._ahead >= _STEP else None

    def _waits(self, waits: bool) -> None:
        """Count the seconds for which the writer waits."""
        if not waits and self._waiting_since is not None:
            self._waited += self._clock() - self._waiting_since
            self._waiting_since = None
        elif waits and self._waiting_since is None:
            self._waiting_since = self._clock()

    def _held_back(self) -> HeldBack | None:
        """What is to be told of clients that hold the store back, if anything; evicts them, if that is to be."""
        patience, now = self._patience, self._clock()
        if self._told and self._waiting_since is None:
            self._told = False
            return HeldBack()
        if patience is None or now < self._look_at or not self._readers:
            return None
        self._look_at = now + min(_SHORT, patience.seconds)
        acked = sorted(reader.acked for reader in self._readers.values())
        first, other = acked[0], next((one for one in acked if one > acked[0]), None)
        waited = 0.0 if self._waiting_since is None else now - self._waiting_since
        is_evicted = (
            patience.evict
            and other is not None
            and (
                waited >= patience.seconds
                or (patience.entries is not None and other - first > patience.entries)
                or (patience.bytes is not None and self._ring.bytes_between(first, other) > patience.bytes)
            )
        )
        if not is_evicted and (waited < patience.seconds or self._told):
            return None
        clients = tuple(id for id, reader in self._readers.items() if reader.acked == first)
        held = HeldBack(
            clients,
            self._ring.tail - first,
            self._ring.bytes_between(first, self._ring.tail),
            self._ring.tail,
            waited,
            is_evicted,
        )
        self._told = not is_evicted
        if is_evicted:
            for id in clients:
                del self._readers[id]
            self._waits(False)
            self._release()
            self._filled.wake()
        return held

    def end(self) -> None:
        with self._lock:
            self._ended = True
            self._filled.wake()

    def open(self, client_id: int, like: int | None = None) -> int:
        with self._lock:
            start = self._ring.head if like is None else self._reader(like).acked
            self._readers[client_id] = _Reader(start)
            return start

    def join(self, client_id: int, is_done: Callable[[Entry], bool]) -> int | None:
        """As ``open``, where the oldest entry that is kept, or else the last one that was put, is done; else None."""
        with self._lock:
            entry = self._ring.at(self._ring.head) or self._last
            if not self._open or entry is None or not is_done(entry):
                return None
            self._readers[client_id] = _Reader(self._ring.head)
            return self._ring.head

    def close(self, client_id: int) -> None:
        with self._lock:
            self._readers.pop(client_id, None)
            self._release()
            self._filled.wake()

    def get(self, client_id: int, start: int, batch_size: int, timeout: float | None, linger: float) -> Slice:
        with self._lock:
            reader, wakes = self._reader(client_id), self._wakes
            if linger <= 0 and (timeout == 0 or self._ring.tail > start):
                return self._slice(reader, start, batch_size)
        wait = partial(self._wait, client_id, reader, start, wakes)
        if wait(0, timeout) and linger > 0:
            wait(batch_size, linger)
        with self._lock:
            self._check(client_id, reader)
            return self._slice(reader, start, batch_size)

    def _slice(self, reader: _Reader, start: int, batch_size: int) -> Slice:
        if start < reader.acked:
            return Slice([], start, start, 0)
        entries = self._ring.take(start, batch_size, *self._cut)
        if self._ring.unread < _PLENTY >> 1:
            self._read.wake()
        return Slice(entries, start, start + len(entries), self._ring.taken_rows)

    def _wait(self, client_id: int, reader: _Reader, start: int, wakes: int, rows: int, timeout: float | None) -> bool:
        """Wait for an entry at ``start`` and, from there on, ``rows`` row changes; False where nothing is there to wait for."""
        deadline = None if timeout is None else self._clock() + timeout
        counted, found = start, 0
        while True:
            with self._lock:
                self._check(client_id, reader)
                tail = self._ring.tail
                if self._ended or self._wakes != wakes or start < reader.acked:
                    return False
                if rows:
                    found += self._ring.rows_from(counted)
                    counted = tail
                remaining = _SHORT if deadline is None else deadline - self._clock()
                if remaining <= 0 or (tail > start and found >= rows):
                    return tail > start
                lock = self._filled.add()
            self._filled.wait(lock, min(remaining, _SHORT))

    def ack(self, client_id: int, end: int) -> None:
        with self._lock:
            reader = self._reader(client_id)
            reader.acked = max(reader.acked, min(end, self._ring.tail))
            self._release()

    def wake(self) -> None:
        with self._lock:
            self._wakes += 1
            self._filled.wake()

    @property
    def entry_count(self) -> int:
        """Entries kept now."""
        return self._ring.tail - self._ring.head

    @property
    def byte_count(self) -> int:
        """Bytes that the kept entries are accounted with."""
        return self._ring.byte_count

    def status(self, got: Mapping[int, int] = MappingProxyType({})) -> StoreStatus:
        with self._lock:
            ring, last, waited = self._ring, self._last, self._waited
            if self._waiting_since is not None:
                waited += self._clock() - self._waiting_since
            # What was got is from a moment before: acks may have gone beyond it.
            readers = {id: self._status(reader.acked, max(got.get(id, 0), reader.acked)) for id, reader in self._readers.items()}
            status = StoreStatus(
                ring.tail - ring.head,
                ring.byte_count,
                ring.row_total - ring.freed_rows,
                *self._limits,
                ring.tail,
                ring.byte_count + ring.freed_bytes,
                ring.row_total,
                waited,
                readers=readers,
            )
        if last is None:
            return status
        return attrs.evolve(status, last=last.position, transactions=last.transaction.before + last.is_end)

    def _status(self, acked: int, got: int) -> ReaderStatus:
        unacked, ungot = self._ring.at(acked), self._ring.at(got)
        return ReaderStatus(acked, got, unacked.timestamp if unacked else None, ungot.timestamp if ungot else None)

    def _reader(self, client_id: int) -> _Reader:
        if not self._open:
            raise StoreClosedError("the store is closed")
        try:
            return self._readers[client_id]
        except KeyError:
            raise NotSubscribedError(f"client {client_id} does not read from the store") from None

    def _check(self, client_id: int, reader: _Reader) -> None:
        if self._reader(client_id) is not reader:
            raise NotSubscribedError(f"client {client_id} has subscribed anew")

    def _release(self) -> None:
        """Free what every client has acked. Without any client everything is kept for the next one."""
        if not self._readers:
            return
        head = min(reader.acked for reader in self._readers.values())
        if head > self._ring.head:
            self._ring.release(head)
        self._room.wake()  # also where an exception kept the last call from it
