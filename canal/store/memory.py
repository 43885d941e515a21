"""The memory store: a bounded ring. The slowest client limits it.

The store stays within its limits, except that it accepts one larger entry when empty.
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

#: Longest single wait in seconds. Python runs signal handlers only between steps of the main thread, so a signal that
#: arrives just before a wait does not interrupt it. A wake-up that an exception prevented is delayed by at most this time.
_SHORT = 1.0
#: Throttle for the writer. With more unread bytes than this in the store, entries fall out of the CPU caches before they
#: are read. The writer then continues at this rate in bytes per second and pauses after each step.
_PLENTY = 4 << 20
_PACE = 100 << 20
_STEP = 256 << 10
#: Return fewer entries than this immediately. With more, wait briefly for others: larger batches cost less per entry.
_TRICKLE = 64


@attrs.define(eq=False)
class _Reader:
    """State of a client. The store keeps every entry from ``acked`` on."""

    acked: int


class _Waiters:
    """Threads that wait for a change. All methods except ``wait`` need the lock of the store.

    We do not use ``Condition``: an exception from a signal handler in ``wait`` can leave its lock to another thread.
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
            with contextlib.suppress(ValueError):  # already woken
                self._locks.remove(lock)

    def wake(self) -> bool:
        """Wake all waiting threads. Return whether there was any."""
        woken = bool(self._locks)
        while self._locks:
            self._locks.pop().release()
        return woken


class MemoryStore:
    """An :class:`~canal.store.protocol.EntryStore` in memory.

    Args:
        max_entries: maximum number of entries.
        max_bytes: maximum bytes for events and entry objects.
        isolate_ddl: deliver each statement that changes a schema in a separate batch.
        whole_transactions: end batches at a transaction's end. A transaction larger than a batch comes alone, and in
            pieces only if the store cannot hold all of it.
        batch_bytes: maximum size of a batch, as counted by the store. A single entry or whole transaction may exceed it.
        patience: policy for clients that hold up the others.
        tell: callback for reports about such clients. It runs on the writer's thread without a lock.
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
        self._ahead = 0  # bytes written ahead of fully supplied readers since the last pause
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
        """Pause the writer if readers lag far behind."""
        if self._ring.unread <= _PLENTY:
            self._ahead = 0
        return self._read.add() if self._ahead >= _STEP else None

    def _waits(self, waits: bool) -> None:
        """Account for the time that the writer waits, in seconds."""
        if not waits and self._waiting_since is not None:
            self._waited += self._clock() - self._waiting_since
            self._waiting_since = None
        elif waits and self._waiting_since is None:
            self._waiting_since = self._clock()

    def _held_back(self) -> HeldBack | None:
        """Return the report about clients that hold up the store, if due. Evict them if the policy says so."""
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
        """Like ``open``, if the oldest kept entry is done, or the last stored entry if none is kept. Return None otherwise."""
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
        """Wait for an entry at ``start`` and ``rows`` row changes from there. Return False if nothing can arrive."""
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
        """Number of entries in the store."""
        return self._ring.tail - self._ring.head

    @property
    def byte_count(self) -> int:
        """Size of the entries in the store, as accounted."""
        return self._ring.byte_count

    def status(self, got: Mapping[int, int] = MappingProxyType({})) -> StoreStatus:
        with self._lock:
            ring, last, waited = self._ring, self._last, self._waited
            if self._waiting_since is not None:
                waited += self._clock() - self._waiting_since
            # ``got`` was read a moment earlier, so acknowledgements may have passed it.
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
        """Free entries that every client has acknowledged. Without clients, keep all entries for the next client."""
        if not self._readers:
            return
        head = min(reader.acked for reader in self._readers.values())
        if head > self._ring.head:
            self._ring.release(head)
        self._room.wake()  # also after an exception prevented the previous wake-up
