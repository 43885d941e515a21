"""A user's own store and sink in an Instance, and a consumer's unit test: only public names are imported here."""

from __future__ import annotations

import threading
from collections import deque
from decimal import Decimal
from typing import Any

import pytest

import canal
from canal.testing import FakeBinlog


class DequeStore:
    """A store for one client, unbounded: everything the EntryStore Protocol asks for, in a few lines."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: deque[canal.Entry] = deque()
        self._first = self._got = 0
        self._open = self._ended = False

    def start(self) -> None:
        self._open = True

    def stop(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def put(self, entries: list[canal.Entry]) -> None:
        with self._changed:
            if not self._open:
                raise canal.StoreClosedError("stopped")
            self._entries.extend(entries)
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def open(self, client_id: int, like: int | None = None) -> None: ...

    def close(self, client_id: int) -> None: ...

    def get(self, client_id: int, batch_size: int, timeout: float | None, linger: float) -> canal.Slice:
        with self._changed:
            self._changed.wait_for(lambda: self._end() > self._got or self._ended or not self._open, timeout)
            if not self._open:
                raise canal.StoreClosedError("stopped")
            start, self._got = self._got, min(self._end(), self._got + batch_size)
            return canal.Slice([self._entries[n - self._first] for n in range(start, self._got)], start, self._got)

    def ack(self, client_id: int, end: int) -> None:
        with self._changed:
            while self._first < end:
                self._entries.popleft()
                self._first += 1

    def rollback(self, client_id: int, start: int) -> None:
        with self._changed:
            self._got = start

    def _end(self) -> int:
        return self._first + len(self._entries)


class AuditSink:
    """A sink that keeps only inserts, notes what it dropped, and goes on to the store."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def start(self, destination: str, store: canal.EntryStore) -> None:
        self._store = store

    def stop(self) -> None: ...

    def restart(self) -> None: ...

    def sink(self, entries: list[canal.Entry]) -> None:
        kept = [e for e in entries if not e.rows or e.event_type is canal.EventType.INSERT]
        self.dropped += [e.event_type.name for e in entries if e not in kept]
        self._store.put(kept)


class Positions(canal.MemoryMeta):
    """The user's own position keeping."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[canal.Position] = []

    def update_cursor(self, client_id: int, position: canal.Position) -> None:
        super().update_cursor(client_id, position)
        self.history.append(position)


def test_a_users_own_store_sink_and_position_keeping() -> None:
    fake = FakeBinlog()
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(20)")
    orders.insert({"id": 1, "note": "a"})
    orders.update({"id": 1, "note": "a"}, {"id": 1, "note": "b"})
    orders.insert({"id": 2, "note": "c"})
    fake.end()
    sink, meta = AuditSink(), Positions()
    instance = canal.Instance.compose(
        "mine", parser=canal.BinlogParser(fake, start="earliest"), sink=sink, store=DequeStore(), meta=meta
    )

    with instance:
        instance.subscribe()
        ids = [row.after["id"] for message in instance.stream(2) for entry in message.entries for row in entry.rows]

    assert ids == [1, 2]
    assert sink.dropped == ["UPDATE"]
    assert meta.history[-1].offset == fake.position.offset
    assert len(meta.history) > 2


def test_an_exception_in_a_users_sink_stops_the_line_and_names_it() -> None:
    class Broken(AuditSink):
        def sink(self, entries: list[canal.Entry]) -> None:
            raise ValueError("no room")

    fake = FakeBinlog()
    fake.table("shop", "orders", "id INT").insert({"id": 1})
    alarms: list[str] = []
    parser = canal.BinlogParser(fake, start="earliest", alarm=lambda destination, text: alarms.append(text))
    with canal.Instance.compose("mine", parser=parser, sink=Broken()) as instance:
        instance.subscribe()
        with pytest.raises(canal.HookError) as caught:
            instance.get_without_ack(1, timeout=60)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "no room" in alarms[0]


# -- what a user writes to test a consumer ---------------------------------------------------------------------------------


def price_cache(instance: canal.Instance) -> dict[int, Decimal]:
    """The consumer under test."""
    cache: dict[int, Any] = {}
    for message in instance.stream(100):
        for entry in message.entries:
            for row in entry.rows:
                if row.after is None:
                    del cache[row.before["id"]]
                else:
                    cache[row.after["id"]] = row.after["price"]
    return cache


def test_prices_are_cached(fake_binlog: FakeBinlog, canal_instance: Any) -> None:
    orders = fake_binlog.table("shop", "orders", "id INT UNSIGNED PRIMARY KEY, price DECIMAL(10,2)")
    instance = canal_instance(fake_binlog, filter=r"shop\..*")
    orders.insert({"id": 1, "price": "9.99"}, {"id": 2, "price": "5.00"})
    orders.update({"id": 1, "price": "9.99"}, {"id": 1, "price": "8.50"})
    orders.delete({"id": 2, "price": "5.00"})
    fake_binlog.end()

    assert price_cache(instance) == {1: Decimal("8.50")}
