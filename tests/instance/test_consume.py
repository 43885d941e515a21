"""``consume`` with workers: order per key, one contiguous ack, errors and retries per key, bounded."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from functools import partial
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import canal
from canal.instance.consume import Crew, Handling, KeyOrder, ParallelConsumer, Task, UnfinishedBatch
from canal.testing import FakeBinlog


class Log:
    """Changes of some keys in random order, and what a handler saw of them."""

    def __init__(self, count: int = 300, keys: int = 20) -> None:
        rng = random.Random(7)
        self.fake = FakeBinlog()
        table = self.fake.table("shop", "t", "id INT PRIMARY KEY, n INT")
        rows: dict[int, int] = {}
        self.expected: dict[int, list[int]] = defaultdict(list)
        for number in range(count):
            key = rng.randrange(keys)
            if key in rows:
                table.update({"id": key, "n": rows[key]}, {"id": key, "n": number})
            else:
                table.insert({"id": key, "n": number})
            rows[key] = number
            self.expected[key].append(number)
        self.fake.end()
        self.seen: dict[int, list[int]] = defaultdict(list)
        self.meta = canal.MemoryMeta()

    def instance(self) -> canal.Instance:
        return canal.Instance(canal.InstanceConfig(destination="shop", source=self.fake, start="earliest", meta=self.meta))

    def see(self, change: canal.Change) -> None:
        assert change.after is not None
        self.seen[change.after["id"]].append(change.after["n"])


def test_changes_of_a_key_come_in_order_and_others_at_the_same_time() -> None:
    log, rng = Log(), random.Random(3)
    together, running, lock = 0, set(), threading.Lock()

    def handle(change: canal.Change) -> None:
        nonlocal together
        with lock:
            assert change.key not in running
            running.add(change.key)
            together = max(together, len(running))
        time.sleep(rng.random() / 500)
        log.see(change)
        with lock:
            running.remove(change.key)

    with log.instance() as instance:
        instance.subscribe()
        instance.consume(handle, 7, workers=4)
        assert instance.list_batches() == []
    assert log.seen == log.expected
    assert together > 1
    assert [thread for thread in threading.enumerate() if "-worker-" in thread.name] == []


def test_only_what_is_done_without_a_gap_is_acked() -> None:
    """The first change fails for good when many behind it are done: after a restart all of them come again."""
    log = Log()
    first = log.expected[next(iter(log.expected))][0]
    others = threading.Event()

    def handle(change: canal.Change) -> None:
        assert change.after is not None
        if change.after["n"] == 0:
            assert others.wait(60)
            raise ValueError("unfit")
        log.see(change)
        if sum(map(len, log.seen.values())) >= 50:
            others.set()

    with log.instance() as instance:
        instance.subscribe()
        begin = instance.position()
        with pytest.raises(ValueError, match="unfit"):
            instance.consume(handle, 1, workers=4)
        assert instance.position() == begin
        assert instance.list_batches() == []
        log.seen.clear()
        instance.consume(log.see, workers=4)
    assert first == 0
    assert log.seen == log.expected


def test_a_change_that_fails_is_tried_again_and_only_its_key_waits() -> None:
    log = Log(60, 6)
    failures: dict[int, int] = defaultdict(int)
    unfit: list[int] = []

    def handle(change: canal.Change) -> None:
        assert change.after is not None
        n = change.after["n"]
        if n % 10 == 0 and failures[n] < 2 or n == 33:
            failures[n] += 1
            raise ValueError(n)
        log.see(change)

    def note(change: canal.Change, error: Exception) -> None:
        assert change.after is not None
        assert isinstance(error, ValueError)
        unfit.append(change.after["n"])

    with log.instance() as instance:
        instance.subscribe()
        instance.consume(handle, workers=3, retries=2, backoff=(0.001, 0.01), on_unfit=note)
        assert instance.list_batches() == []
    assert unfit == [33]
    assert failures[33] == 3
    assert {key: [n for n in ns if n != 33] for key, ns in log.expected.items()} == log.seen


def test_a_key_that_waits_holds_up_no_worker() -> None:
    log = Log(40, 4)
    done = threading.Event()

    def handle(change: canal.Change) -> None:
        assert change.after is not None
        if change.after["id"] == 0 and not done.is_set():
            raise ValueError
        log.see(change)
        if sum(map(len, log.seen.values())) == sum(len(ns) for key, ns in log.expected.items() if key):
            done.set()

    with log.instance() as instance:
        instance.subscribe()
        instance.consume(handle, workers=1, retries=10**6, backoff=(0.001, 0.01))
    assert log.seen == log.expected


def test_it_is_bounded() -> None:
    log = Log(200, 200)
    most = 0

    def handle(change: canal.Change) -> None:
        nonlocal most
        most = max(most, sum(batch.count for batch in list(parallel._batches)))
        log.see(change)

    with log.instance() as instance:
        instance.subscribe()
        crew = partial(Crew, "worker", 2, Handling(handle, 0, (0.1, 1.0), None))
        parallel = ParallelConsumer(instance._calls, crew, 2, "primary key", 20, False, 5, 0.0, 1001)
        parallel.run()
    assert 0 < most <= 25
    assert log.seen == log.expected


def test_a_key_that_changes_is_behind_both_and_a_statement_alone() -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "t", "id INT PRIMARY KEY")
    table.insert({"id": 1})
    table.update({"id": 1}, {"id": 2})
    table.insert({"id": 1})
    table.delete({"id": 2})
    fake.ddl("TRUNCATE TABLE t", schema="shop")
    table.insert({"id": 2})
    fake.end()
    rng, seen = random.Random(1), []

    def handle(change: canal.Change) -> None:
        time.sleep(rng.random() / 100)
        seen.append(change.op)

    with canal.Instance(canal.InstanceConfig(destination="shop", source=fake, start="earliest")) as instance:
        instance.subscribe()
        instance.consume(handle, workers=4, statements=True)
    ops = [op for op in seen if op.is_row]
    assert ops[:2] == ["insert", "update"]
    assert sorted(ops[2:4]) == ["delete", "insert"]
    assert seen[-2:] == ["truncate", "insert"]


class Held:
    """A handler whose first change waits until the last one is done, and what it saw."""

    def __init__(self, first: Any, last: Any) -> None:
        self.first, self.last = first, last
        self.seen: list[Any] = []
        self._is_last_done = threading.Event()

    def __call__(self, change: canal.Change) -> None:
        row = change.after if change.after is not None and canal.ABSENT not in change.after.values()[:1] else change.before
        assert row is not None
        what = change.op, row[0]
        if what == self.first:
            assert self._is_last_done.wait(60)
        self.seen.append(what)
        if what == self.last:
            self._is_last_done.set()


def handled_behind_the_first(fake: FakeBinlog, first: Any, last: Any, **options: Any) -> list[Any]:
    """Return what was done when the first change was, with the first change itself."""
    handler = Held(first, last)
    with canal.Instance(canal.InstanceConfig(destination="shop", source=fake, start="earliest", **options)) as instance:
        instance.subscribe()
        instance.consume(handler, workers=3)
    return handler.seen


def test_minimal_images_of_a_key_are_handled_in_order() -> None:
    fake = FakeBinlog(row_image="MINIMAL")
    table = fake.table("shop", "t", "id INT PRIMARY KEY, n INT")
    table.insert({"id": 1, "n": 0})
    table.update({"id": 1}, {"n": 1})
    table.delete({"id": 1})
    table.insert({"id": 2, "n": 0})
    fake.end()

    seen = handled_behind_the_first(fake, ("insert", 1), ("insert", 2))

    assert seen == [("insert", 2), ("insert", 1), ("update", 1), ("delete", 1)]


def test_minimal_image_of_a_composite_key_has_the_whole_key() -> None:
    fake = FakeBinlog(row_image="MINIMAL")
    table = fake.table("shop", "t", "a INT, b INT, n INT, PRIMARY KEY (a, b)")
    table.update({"a": 1, "b": 2}, {"b": 3})
    table.update({"a": 1, "b": 3}, {"n": 4})
    fake.end()
    with canal.Instance(canal.InstanceConfig(destination="shop", source=fake, start="earliest")) as instance:
        instance.subscribe()
        found = [(change.old_key, change.key) for change in instance.changes()]

    assert found == [((1, 2), (1, 3)), ((1, 3), (1, 3))]


@pytest.mark.parametrize("key", ["K1", "k1 ", "k\N{LATIN SMALL LETTER DOTLESS I}", "\x01k1"])
def test_keys_that_a_collation_may_call_equal_are_handled_in_order(key: str) -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "t", "k VARCHAR(9) PRIMARY KEY, n INT")
    table.delete({"k": "k1", "n": 1})
    table.insert({"k": key, "n": 1})
    fake.table("shop", "other", "k VARCHAR(9) PRIMARY KEY, n INT").insert({"k": "x", "n": 1})
    fake.end()

    seen = handled_behind_the_first(fake, ("delete", "k1"), ("insert", "x"))

    assert seen == [("insert", "x"), ("delete", "k1"), ("insert", key)]


def test_plain_texts_that_differ_are_handled_at_the_same_time() -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "t", "k VARCHAR(9) PRIMARY KEY, n INT")
    table.insert({"k": "k1", "n": 1}, {"k": "k2", "n": 1}, {"k": "alice", "n": 1}, {"k": "bob", "n": 1})
    fake.end()

    seen = handled_behind_the_first(fake, ("insert", "k1"), ("insert", "bob"))

    assert seen[-1] == ("insert", "k1")


@pytest.mark.parametrize("statement", ["ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (n)", "ALTER TABLE t COMMENT 'x'"])
def test_changes_after_a_statement_wait_for_those_before_it(statement: str) -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "t", "id INT PRIMARY KEY, n INT")
    table.insert({"id": 1, "n": 5})
    table.insert({"id": 3, "n": 1})
    table.alter(statement, "id INT, n INT, PRIMARY KEY (n)" if "DROP" in statement else "id INT PRIMARY KEY, n INT")
    table.insert({"id": 2, "n": 5})
    fake.end()

    seen = handled_behind_the_first(fake, ("insert", 1), ("insert", 3))

    assert seen == [("insert", 3), ("insert", 1), ("insert", 2)]


def test_changes_after_a_new_primary_key_wait_when_statements_are_left_out() -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "t", "id INT PRIMARY KEY, n INT")
    table.insert({"id": 1, "n": 5})
    table.insert({"id": 3, "n": 1})
    table.alter("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (n)", "id INT, n INT, PRIMARY KEY (n)")
    table.insert({"id": 2, "n": 5})
    fake.end()

    seen = handled_behind_the_first(fake, ("insert", 1), ("insert", 3), leave_out=("ddl",))

    assert seen == [("insert", 3), ("insert", 1), ("insert", 2)]


def test_consume_raises_at_a_statement_that_changed_rows_without_logging_them() -> None:
    fake = FakeBinlog()
    fake.table("shop", "t", "id INT PRIMARY KEY").insert({"id": 1})
    fake.ddl("TRUNCATE TABLE t", schema="shop")
    fake.end()
    seen: list[Any] = []
    with canal.Instance(canal.InstanceConfig(destination="shop", source=fake, start="earliest")) as instance:
        instance.subscribe()
        with pytest.raises(canal.UnloggedChangeError, match=r"shop\.t was emptied by TRUNCATE.*statements=True"):
            instance.consume(lambda change: seen.append(change.key), workers=2)
        assert seen == [(1,)]
        instance.consume(lambda change: seen.append(change.op), workers=2, statements=True)

    assert seen == [(1,), "insert", "truncate"]


def test_a_key_of_ones_own() -> None:
    log, seen = Log(), []
    with log.instance() as instance:
        instance.subscribe()
        instance.consume(lambda change: seen.append(change.after["n"]), workers=4, key=lambda change: change.table)
    assert seen == list(range(300))
    log = Log()
    with log.instance() as instance:
        instance.subscribe()
        instance.consume(log.see, workers=4, key=lambda change: None)
    assert {key: sorted(ns) for key, ns in log.seen.items()} == log.expected


@pytest.mark.parametrize("key", [lambda change: change.table, lambda change: ("orders", change.table)])
def test_a_table_as_key_is_one_key_for_all_members_of_a_group(key: Any) -> None:
    now = itertools.count(1_700_000_000)
    logs = [FakeBinlog(server_id=number, clock=lambda: next(now)) for number in (1, 2)]
    for number in range(50):
        for log in logs:
            log.table("shop", "t", "id INT PRIMARY KEY").insert({"id": number})
    for log in logs:
        log.end()
    group = canal.Group({name: canal.Member(source=log, start="earliest") for name, log in zip("ab", logs)})
    lock, handled = threading.Lock(), []

    def handle(change: canal.Change) -> None:
        assert lock.acquire(blocking=False), "two changes of one key at one time"
        time.sleep(0.001)
        handled.append(change.key)
        lock.release()

    with canal.Instance(canal.InstanceConfig(destination="shop", source=group)) as instance:
        instance.subscribe()
        instance.consume(handle, workers=4, key=key)
    assert len(handled) == 100


def test_stop_ends_it() -> None:
    log, begun = Log(), threading.Event()
    ended: list[BaseException] = []

    def handle(change: canal.Change) -> None:
        begun.set()
        time.sleep(0.001)

    def consume() -> None:
        try:
            instance.consume(handle, workers=2)
        except canal.CanalError as error:
            ended.append(error)

    with log.instance() as instance:
        instance.subscribe()
        thread = threading.Thread(target=consume)
        thread.start()
        assert begun.wait(60)
    thread.join(60)
    assert not thread.is_alive()
    assert not ended or isinstance(ended[0], canal.StateError)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"workers": 0}, "workers"), ({"workers": 1, "key": "id"}, "key must be"), ({"workers": 1, "in_flight": 0}, "in_flight")],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with Log(1).instance() as instance:
        instance.subscribe()
        with pytest.raises(canal.ConfigError, match=message):
            instance.consume(print, **options)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sets(st.integers(0, 4), max_size=3), st.sampled_from([None, 0, 7])), max_size=30),
    st.randoms(use_true_random=False),
)
def test_the_order_of_keys(keys: list[tuple[set[int], int | None]], rng: random.Random) -> None:
    """Whichever task is done next: all are, and those of one key in their order, but for tasks that both share it."""
    order, batch = KeyOrder(), UnfinishedBatch(1, 0, 0)
    tasks = [Task(None, batch, sorted(own - {shared}), shared) for own, shared in keys]  # type: ignore[arg-type]
    ready, done = [], []
    waiting = list(tasks)
    together: set[frozenset[int]] = set()
    while waiting or ready:
        if waiting and (not ready or rng.random() < 0.5):
            task = waiting.pop(0)
            if order.add(task):
                ready.append(task)
        else:
            running = [tasks.index(one) for one in ready]
            together |= {frozenset(pair) for pair in combinations(running, 2)}
            task = ready.pop(rng.randrange(len(ready)))
            done.append(task)
            ready += order.done(task)
    numbers = {id(task): number for number, task in enumerate(done)}
    assert len(numbers) == len(tasks)
    assert not order._lines
    for number, task in enumerate(tasks):
        for later in tasks[number + 1 :]:
            own = set(task.keys) & {*later.keys, later.shared} | set(later.keys) & {task.shared}
            if own:
                assert numbers[id(task)] < numbers[id(later)]
                assert frozenset((number, tasks.index(later))) not in together
