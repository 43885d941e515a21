"""The store in memory: order, limits, positions of clients, waiting."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from canal.errors import ConfigError, NotSubscribedError, StoreClosedError
from canal.model import Entry
from canal.store import EntryStore, MemoryStore, memory
from canal.store.ring import Ring
from tests.support.strategies import row, transaction, whole

ENTRY_OVERHEAD = row(transaction()).size - 50


def opened(store: MemoryStore, *clients: int) -> MemoryStore:
    store.start()
    for client in clients:
        store.open(client)
    return store


def test_it_meets_the_protocol() -> None:
    assert isinstance(MemoryStore(), EntryStore)


def test_a_batch_is_cut_at_its_row_count_and_takes_the_end_with_it() -> None:
    store = opened(MemoryStore(), 1)
    store.put(whole(1, 2, 3) + whole(2, 4))

    first = store.get(1, 0, 5, 0, 0)
    second = store.get(1, first.end, 5, 0, 0)

    assert [entry.row_count for entry in first.entries] == [0, 2, 3, 0]
    assert [entry.row_count for entry in second.entries] == [0, 4, 0]
    assert (first.start, first.end, second.start, second.end) == (0, 4, 4, 7)


def test_an_entry_larger_than_the_batch_comes_alone_and_whole() -> None:
    store = opened(MemoryStore(), 1)
    store.put([row(transaction(), 50), row(transaction(), 1)])

    assert [entry.row_count for entry in store.get(1, 0, 10, 0, 0).entries] == [50]


def test_an_entry_larger_than_the_store_is_taken_when_it_is_empty() -> None:
    store = opened(MemoryStore(16, 100), 1)
    store.put([row(transaction(), 1, size=5000)])

    assert store.byte_count == 5000 + ENTRY_OVERHEAD
    assert len(store.get(1, 0, 10, 0, 0).entries) == 1


@pytest.mark.parametrize("limits", [(4, 1 << 20), (1000, 4 * (50 + ENTRY_OVERHEAD))], ids=["entries", "bytes"])
def test_put_waits_at_either_limit_until_the_slowest_client_acks(limits: tuple[int, int]) -> None:
    store = opened(MemoryStore(*limits), 1, 2)
    entries = [row(transaction(n)) for n in range(6)]
    done = threading.Event()
    writer = threading.Thread(target=lambda: (store.put(entries), done.set()), daemon=True)

    writer.start()
    end = 0
    while end < 4:
        end = store.get(1, end, 100, 60, 0).end
    assert (end, store.entry_count) == (4, 4), "one more is one too many"
    store.ack(1, 4)
    assert not done.wait(0.05), "client 2 still holds everything"
    assert store.get(2, 0, 4, 60, 0).end == 4
    store.ack(2, 4)

    assert done.wait(60)
    writer.join(60)
    assert store.entry_count == 2


@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=12),
    most=st.integers(1, 8),
    room=st.integers(1, 3000),
    freed=st.integers(0, 8),
)
def test_no_entry_too_many_and_none_too_few_goes_in(sizes: list[int], most: int, room: int, freed: int) -> None:
    ring = Ring(most, room)
    entries = [row(transaction(), size=size) for size in sizes]

    def longest(kept: list[Entry], coming: list[Entry]) -> int:
        """How many of those that come fit behind what is kept: one where nothing is, however large it is."""
        count = 0
        while count < len(coming):
            held = kept + coming[: count + 1]
            if len(held) > 1 and (len(held) > most or sum(entry.size for entry in held) > room):
                break
            count += 1
        return count

    first = ring.put(entries, 0)
    assert first == longest([], entries)
    ring.release(freed := min(freed, first))
    assert ring.put(entries, first) == longest(entries[freed:first], entries[first:])


def far_ahead(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> threading.Thread:
    """A writer that stands still, for days, since a reader has plenty before it."""
    monkeypatch.setattr(memory, "_PACE", 1)
    entry = row(transaction(), size=5 << 20)
    writer = threading.Thread(target=store.put, args=([entry],), daemon=True)
    writer.start()
    while not store._read._locks:
        assert writer.is_alive()
    return writer


def test_a_writer_far_ahead_goes_on_when_what_it_wrote_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(MemoryStore(), 1)
    writer = far_ahead(store, monkeypatch)

    assert store.get(1, 0, 1, 0, 0).end == 1
    writer.join(60)

    assert not writer.is_alive()


def test_a_writer_far_ahead_goes_on_when_the_store_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(MemoryStore(), 1)
    writer = far_ahead(store, monkeypatch)

    store.stop()
    writer.join(60)

    assert not writer.is_alive()


def test_a_writer_fills_the_store_though_nobody_reads() -> None:
    store = opened(MemoryStore(1000, 12 << 20), 1)

    for number in range(10):
        store.put([row(transaction(number), size=1 << 20)])

    assert store.entry_count == 10


def test_stop_wakes_a_writer_and_a_reader() -> None:
    store = opened(MemoryStore(1, 1 << 20), 1)
    store.put([row(transaction())])
    caught: list[BaseException] = []

    def run(call: object, *arguments: object) -> None:
        try:
            call(*arguments)  # type: ignore[operator]
        except StoreClosedError as error:
            caught.append(error)

    threads = [
        threading.Thread(target=run, args=(store.put, [row(transaction())])),
        threading.Thread(target=run, args=(store.get, 1, 1, 1, None, 0.0)),
    ]
    for thread in threads:
        thread.start()
    store.stop()
    for thread in threads:
        thread.join(60)

    assert len(caught) == 2


def test_end_lets_a_waiting_reader_go_with_nothing() -> None:
    store = opened(MemoryStore(), 1)
    result: list[list[Entry]] = []
    reader = threading.Thread(target=lambda: result.append(store.get(1, 0, 1, None, 0).entries))

    reader.start()
    store.end()
    reader.join(60)

    assert result == [[]]


def test_linger_fills_a_batch_that_arrives_in_parts() -> None:
    store = opened(MemoryStore(), 1)
    store.put([row(transaction())])
    writer = threading.Timer(0.05, lambda: store.put([row(transaction())]))

    writer.start()
    got = store.get(1, 0, 2, 0, 60)

    assert len(got.entries) == 2


def test_a_statement_that_changes_a_schema_can_come_alone() -> None:
    from canal.model import EntryType, EventType
    from canal.parse.schema.classify import classify

    txn = transaction()
    ddl = Entry(EntryType.ROWDATA, EventType.ALTER, txn, b"Q" * 60, 5, 5, 1)
    ddl.statement = classify("ALTER TABLE t ADD x INT", "shop")
    store = opened(MemoryStore(isolate_ddl=True), 1)
    store.put([*whole(1, 1), ddl, *whole(2, 1)])

    assert [len(store.get(1, start, 100, 0, 0).entries) for start in (0, 3, 4, 7)] == [3, 1, 3, 0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"whole_transactions": True}, [(0, 7), (7, 13), (13, 16)]),
        ({"whole_transactions": True, "batch_bytes": 1}, [(0, 4), (4, 7), (7, 13), (13, 16)]),
        ({"batch_bytes": 1}, [(number, number + 1) for number in range(16)]),
        ({"batch_bytes": 4 * (50 + ENTRY_OVERHEAD)}, [(0, 4), (4, 7), (7, 10), (10, 11), (11, 15), (15, 16)]),
        ({}, [(0, 7), (7, 10), (10, 11), (11, 16)]),
    ],
    ids=["whole", "whole and small", "one by one", "small", "by rows"],
)
def test_a_batch_ends_where_it_is_to(options: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    """Transactions of 2, 1, 4 and 1 row entries, in batches of 3 row changes."""
    store = opened(MemoryStore(**options), 1)
    store.put(whole(1, 1, 1) + whole(2, 1) + whole(3, 1, 1, 2, 2) + whole(4, 1))
    found, start = [], 0
    while (slice := store.get(1, start, 3, 0, 0)).entries:
        found.append((slice.start, slice.end))
        assert slice.row_count == sum(entry.row_count for entry in slice.entries)
        start = slice.end

    assert found == expected


def test_a_transaction_for_which_the_store_has_no_room_comes_in_pieces() -> None:
    store = opened(MemoryStore(4, whole_transactions=True), 1)
    writer = threading.Thread(target=store.put, args=(whole(1, 1, 1, 1, 1),), daemon=True)
    writer.start()
    found, start = [], 0
    while start < 6:
        slice = store.get(1, start, 2, 60, 0)
        found.append(len(slice.entries))
        store.ack(1, start := slice.end)
    writer.join(60)

    assert len(found) > 1


def test_unknown_clients_and_senseless_limits_are_refused() -> None:
    store = opened(MemoryStore(), 1)

    with pytest.raises(NotSubscribedError):
        store.get(2, 0, 1, 0, 0)
    with pytest.raises(ConfigError):
        MemoryStore(0)


class StoreMachine(RuleBasedStateMachine):
    """The store against a list of everything ever put and what each client has acked."""

    @initialize(entries=st.integers(1, 20), size=st.integers(1, 3000))
    def build(self, entries: int, size: int) -> None:
        self.limits = (entries, size)
        self.store = opened(MemoryStore(entries, size))
        self.put: list[Entry] = []
        self.acked: dict[int, int] = {}

    def head(self) -> int:
        return min(self.acked.values(), default=self.kept)

    kept = 0

    @rule(sizes=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 400)), min_size=1, max_size=6))
    def put_what_fits(self, sizes: list[tuple[int, int]]) -> None:
        for count, size in sizes:
            used = self.store.byte_count
            full = self.store.entry_count >= self.limits[0] or used + size + ENTRY_OVERHEAD > self.limits[1]
            if full and self.store.entry_count:
                return
            entry = row(transaction(), count, size)
            self.store.put([entry])
            self.put.append(entry)

    @rule(client=st.integers(1, 3))
    def open(self, client: int) -> None:
        if client not in self.acked:
            self.kept = self.head()
            assert self.store.open(client) == self.kept
            self.acked[client] = self.kept

    @precondition(lambda self: self.acked)
    @rule(data=st.data(), batch=st.integers(1, 12))
    def get(self, data: st.DataObject, batch: int) -> None:
        client = data.draw(st.sampled_from(sorted(self.acked)))
        start = data.draw(st.integers(max(self.acked[client] - 1, 0), len(self.put)))
        slice = self.store.get(client, start, batch, 0, 0)
        expected: list[Entry] = []
        for entry in self.put[start:] if start >= self.acked[client] else ():
            if expected and sum(e.row_count for e in expected) + entry.row_count > batch:
                break
            if len(expected) > 3 * batch:
                break
            expected.append(entry)
        assert [id(e) for e in slice.entries] == [id(e) for e in expected]
        assert (slice.start, slice.end) == (start, start + len(expected))

    @precondition(lambda self: self.acked)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(sorted(self.acked)))
        to = data.draw(st.integers(0, len(self.put)))
        self.store.ack(client, to)
        self.acked[client] = max(self.acked[client], to)
        self.kept = self.head()

    @precondition(lambda self: self.acked)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(sorted(self.acked)))
        self.kept = self.head()
        self.store.close(client)
        del self.acked[client]
        if self.acked:
            self.kept = self.head()

    @invariant()
    def bounded(self) -> None:
        if not hasattr(self, "store"):
            return
        kept = self.put[self.head() :]
        assert self.store.entry_count == len(kept)
        assert self.store.byte_count == sum(entry.size for entry in kept)
        assert len(kept) <= self.limits[0]
        assert self.store.byte_count <= self.limits[1] or len(kept) == 1


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(stateful_step_count=40)
