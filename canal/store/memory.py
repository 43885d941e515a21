"""The store in memory: a ring that the slowest client holds back.

Never keeps more than its limits, except for one entry that is larger than all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import attrs

from canal.errors import ConfigError, NotSubscribedError, StoreClosedError
from canal.model import Entry
from canal.status import PlaceStatus, StoreStatus
from canal.store.protocol import Slice
from canal.store.ring import Ring

#: Seconds that one wait takes at most: Python runs the handler of a signal between two steps of the main thread only, and
#: one that comes just before a wait, or to another thread, does not end it.
_SHORT = 1.0


@attrs.define
class _Place:
    """Where a client is: acked <= got <= tail."""

    acked: int
    got: int
    rows: int  # the ring's row_total when everything before ``got`` had been put


class MemoryStore:
    """An :class:`~canal.store.protocol.EntryStore` in memory.

    Args:
        max_entries: entries that it keeps at most.
        max_bytes: bytes of events and entry objects that it keeps at most.
        isolate_ddl: hand out a statement that changes a schema in a batch of its own.
    """

    def __init__(
        self,
        max_entries: int = 1 << 16,
        max_bytes: int = 64 << 20,
        *,
        isolate_ddl: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_entries < 1 or max_bytes < 1:
            raise ConfigError("a store needs room for at least one entry and one byte")
        self._limits = (max_entries, max_bytes)
        self._isolate_ddl = isolate_ddl
        self._clock = clock
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._filled = threading.Condition(self._lock)
        self._places: dict[int, _Place] = {}
        self._ring = Ring(*self._limits)
        self._open = False
        self._ended = False
        self._last: Entry | None = None
        self._waited = 0.0
        self._waiting_since: float | None = None

    def start(self) -> None:
        with self._lock:
            self._ring = Ring(*self._limits)
            self._places = {}
            self._open = True
            self._ended = False
            self._last = None
            self._waited = 0.0

    def stop(self) -> None:
        with self._lock:
            self._open = False
            self._ring.release(self._ring.tail)
            self._room.notify_all()
            self._filled.notify_all()

    def put(self, entries: list[Entry]) -> None:
        done = 0
        with self._lock:
            while True:
                if not self._open:
                    raise StoreClosedError("the store is closed")
                count = self._ring.put(entries, done)
                if count:
                    done += count
                    self._last = entries[done - 1]
                    self._filled.notify_all()
                if done == len(entries):
                    return
                self._wait_for_room()

    def end(self) -> None:
        with self._lock:
            self._ended = True
            self._filled.notify_all()

    def open(self, client_id: int, like: int | None = None) -> None:
        with self._lock:
            start = self._ring.head if like is None else self._place(like).acked
            self._places[client_id] = _Place(start, start, self._ring.row_total)

    def close(self, client_id: int) -> None:
        with self._lock:
            self._places.pop(client_id, None)
            self._release()

    def get(self, client_id: int, batch_size: int, timeout: float | None, linger: float) -> Slice:
        with self._lock:
            place = self._place(client_id)
            self._wait(place, timeout, lambda: self._ring.tail > place.got)
            if linger > 0 and self._ring.tail > place.got:
                self._wait(place, linger, lambda: self._ring.row_total - place.rows >= batch_size)
            start = place.got
            entries = self._ring.take(start, batch_size, self._isolate_ddl)
            place.got = start + len(entries)
            if place.got == self._ring.tail:
                place.rows = self._ring.row_total
            return Slice(entries, start, place.got, self._ring.taken_rows)

    def ack(self, client_id: int, end: int) -> None:
        with self._lock:
            place = self._place(client_id)
            place.acked = max(place.acked, min(end, place.got))
            self._release()

    def rollback(self, client_id: int, start: int) -> None:
        with self._lock:
            place = self._place(client_id)
            place.got = max(place.acked, min(start, place.got))
            place.rows = 0  # not known: what is there counts as enough, so that a redelivery does not linger
            self._filled.notify_all()

    @property
    def entry_count(self) -> int:
        """Entries kept now."""
        return self._ring.tail - self._ring.head

    @property
    def byte_count(self) -> int:
        """Bytes that the kept entries are accounted with."""
        return self._ring.byte_count

    def status(self) -> StoreStatus:
        with self._lock:
            ring, last, waited = self._ring, self._last, self._waited
            if self._waiting_since is not None:
                waited += self._clock() - self._waiting_since
            places = {client_id: self._status(place) for client_id, place in self._places.items()}
            status = StoreStatus(
                ring.tail - ring.head, ring.byte_count, ring.row_total - ring.freed_rows, *self._limits,
                ring.tail, ring.byte_count + ring.freed_bytes, ring.row_total, waited, places=places,
            )  # fmt: skip
        if last is None:
            return status
        return attrs.evolve(status, last=last.position, transactions=last.transaction.before + last.is_end)

    def _status(self, place: _Place) -> PlaceStatus:
        unacked, ungot = self._ring.at(place.acked), self._ring.at(place.got)
        return PlaceStatus(
            place.acked, place.got, unacked.timestamp if unacked else None, ungot.timestamp if ungot else None
        )

    def _place(self, client_id: int) -> _Place:
        if not self._open:
            raise StoreClosedError("the store is closed")
        try:
            return self._places[client_id]
        except KeyError:
            raise NotSubscribedError(f"client {client_id} has no place in the store") from None

    def _wait(self, place: _Place, timeout: float | None, ready: Callable[[], bool]) -> None:
        deadline = None if timeout is None else self._clock() + timeout
        while not ready() and not self._ended:
            remaining = None if deadline is None else deadline - self._clock()
            if remaining is not None and remaining <= 0:
                return
            self._filled.wait(_SHORT if remaining is None else min(remaining, _SHORT))
            if not self._open:
                raise StoreClosedError("the store was closed")

    def _wait_for_room(self) -> None:
        began = self._waiting_since = self._clock()
        self._room.wait()
        self._waiting_since = None
        self._waited += self._clock() - began

    def _release(self) -> None:
        """Free what every client has acked. Without any client everything is kept for the next one."""
        if not self._places:
            return
        head = min(place.acked for place in self._places.values())
        if head > self._ring.head:
            self._ring.release(head)
            self._room.notify()
