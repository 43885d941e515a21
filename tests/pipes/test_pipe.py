"""The pipe: what it writes, what it leaves out, what stops it, and where it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import random
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

import canal
from canal.aio import AsyncInstance
from canal.changes import Change
from canal.errors import TargetError, UnfitChangeError
from canal.targets import JSONLinesTarget, Progress, SQLiteTarget, Work
from canal.targets.protocol import Guarantee, Scope
from canal.testing import FakeBinlog
from canal.testing.target_suite import Faulty
from tests.support.pipes import QUICK, awaited, fail, life, of, orders, read


def test_a_task_that_is_cancelled_anywhere_loses_nothing(fake_binlog: FakeBinlog, folder: Path) -> None:
    """Cancelled at another step of another commit each time, and run again in the same life of the instance."""
    target, count, draw = SQLiteTarget(folder / "copy.db"), 60, random.Random(3)
    table = orders(fake_binlog)
    for number in range(count):
        table.insert({"id": number, "n": 0})
        table.update({"id": number, "n": 0}, {"id": number, "n": number})
    fake_binlog.end()
    cancelled: list[str] = []

    async def once(instance: AsyncInstance, point: str, commit: int) -> bool:
        loop, reached = asyncio.get_running_loop(), itertools.count()

        def at(now: str) -> None:
            if now == point and next(reached) == commit:
                loop.call_soon_threadsafe(task.cancel)

        pipe = canal.pipe(instance, Faulty(target, at), on_error="stop", batch_size=2)
        task = asyncio.create_task(pipe.run_async())
        await asyncio.wait([task])
        assert not pipe.status().is_running
        assert instance.instance.list_batches() == []
        if not task.cancelled():
            await task
            return True
        cancelled.append(point)
        return False

    async def main() -> None:
        async with AsyncInstance(of(fake_binlog)) as instance:
            await instance.subscribe()
            while not await once(instance, draw.choice(("before", "after")), draw.randrange(4)):
                pass

    awaited(main())

    assert set(cancelled) == {"before", "after"}
    assert read(target, "SELECT id, n FROM orders ORDER BY id") == [(number, number) for number in range(count)]


def test_a_task_goes_on_when_the_commit_in_hand_has_ended_and_the_loop_is_free_meanwhile(
    fake_binlog: FakeBinlog, target: SQLiteTarget
) -> None:
    orders(fake_binlog).insert({"id": 1, "n": 1})
    begun, allowed = threading.Event(), threading.Event()

    def at(point: str) -> None:
        begun.set()
        assert allowed.wait(60)

    async def main() -> None:
        with life(fake_binlog) as instance:
            pipe = canal.pipe(instance, Faulty(target, at))
            task = asyncio.create_task(pipe.run_async())
            while not begun.is_set():
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task], timeout=0.05)
            assert not task.done()
            allowed.set()
            await asyncio.wait([task])
            assert task.cancelled()
            assert pipe.status().commits == 1

    awaited(main())

    assert read(target, "SELECT id FROM orders") == [(1,)]


def test_start_returns_when_the_pipe_is_running(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    class Slow(Faulty):
        @property
        def scope(self) -> Scope:
            threading.Event().wait(0.05)  # the thread is asked for it before it runs
            return target.scope

    with life(fake_binlog) as instance:
        pipe = canal.pipe(instance, Slow(target, fail()))
        assert pipe.start().status().is_running
        pipe.stop()


def test_start_returns_when_the_pipe_has_ended_at_once(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    with life(fake_binlog) as instance:
        pipe = canal.pipe(instance, Faulty(target, fail()))
        pipe._lock.acquire()  # as if it ran elsewhere
        with pytest.raises(canal.StateError, match="is running already"):
            pipe.start().join()


def test_what_ends_the_loop_is_raised_by_await_too(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    orders(fake_binlog).insert({"id": 1, "n": 1})

    async def main() -> None:
        with life(fake_binlog) as instance:
            await canal.pipe(instance, Faulty(target, fail(TargetError("no"))), on_error="stop").run_async()

    with pytest.raises(TargetError, match="no"):
        awaited(main())


# -- what a target promises -----------------------------------------------------------------------------------------------


def test_a_line_at_the_start_says_what_is_promised(
    fake_binlog: FakeBinlog, target: SQLiteTarget, caplog: pytest.LogCaptureFixture
) -> None:
    fake_binlog.end()
    with caplog.at_level(logging.INFO, "canal.pipe"), life(fake_binlog) as instance:
        canal.pipe(instance, target).run()

    said = [record.getMessage() for record in caplog.records if record.name == "canal.pipe"]
    assert said == [f"[test] pipe to SQLite {target.path}, stream test: exactly once; a transaction is one commit"]


def test_a_pipe_is_a_thread_too_and_can_be_asked_how_it_stands(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    table = orders(fake_binlog)
    with life(fake_binlog) as instance:
        with canal.pipe(instance, target) as running:
            table.insert({"id": 1, "n": 1})
            deadline = time.monotonic() + 60
            while not running.status().changes and time.monotonic() < deadline:
                time.sleep(0.01)
            with pytest.raises(canal.StateError, match="started already"):
                running.start()
        status = running.status()

    assert read(target, "SELECT id, n, note FROM orders") == [(1, 1, None)]
    assert (status.is_running, status.changes, status.parked, status.failures, status.error) == (False, 1, 0, 0, None)
    assert status.progress is not None
    assert status.progress.position.gtid == fake_binlog.executed


def test_a_target_that_is_behind_the_cursor_is_given_the_rest(
    fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    """It was restored from a backup, say."""
    table = orders(fake_binlog)
    table.insert({"id": 1})
    with life(fake_binlog, folder) as instance:
        pipe = canal.pipe(instance, target)
        with pipe:
            while not pipe.status().changes:
                time.sleep(0.01)
        backup = Path(target.path).read_bytes()
        table.insert({"id": 2})
        with pipe:
            while pipe.status().changes < 2:
                time.sleep(0.01)
    Path(target.path).write_bytes(backup)
    table.insert({"id": 3})
    fake_binlog.end()

    with life(fake_binlog, folder) as instance:
        canal.pipe(instance, target).run()

    assert read(target, "SELECT id FROM orders ORDER BY id") == [(1,), (2,), (3,)]


def test_a_target_that_followed_another_log_is_an_error(target: SQLiteTarget) -> None:
    for uuid, gtid in ("1a" * 4, False), ("2b" * 4, False):
        fake = FakeBinlog(uuid=f"{uuid}-0000-4000-8000-000000000001", gtid=gtid)
        orders(fake).insert({"id": 1})
        fake.end()
        with life(fake) as instance:
            if uuid == "1a" * 4:
                canal.pipe(instance, target).run()
            else:
                with pytest.raises(canal.errors.StreamMismatchError, match="not of one log"):
                    canal.pipe(instance, target).run()


def test_a_stop_ends_the_loop_and_it_can_be_run_again(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    """Also one out of a rule, which does not wait for itself."""
    table = orders(fake_binlog)
    table.insert({"id": 1})
    with life(fake_binlog) as instance:
        pipe = canal.pipe(instance, target, rules=[canal.Rule(where=lambda row: pipe.stop() is None)])
        pipe.run()
        table.insert({"id": 2})
        pipe.run()

    assert read(target, "SELECT id FROM orders") == [(1,), (2,)]
    assert not pipe.status().is_running


# -- retries -------------------------------------------------------------------------------------------------------------


def test_what_fails_is_tried_again_and_a_commit_counts_anew(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    table = orders(fake_binlog)
    for number in range(4):
        table.insert({"id": number})
    fake_binlog.end()
    lost = canal.ConnectionLostError("gone")
    at = fail(lost, lost, None, lost, lost, None)
    with life(fake_binlog) as instance:
        pipe = canal.pipe(instance, Faulty(target, at), on_error=canal.Retry(times=2, first=0.001), batch_size=1)
        pipe.run()

    assert read(target, "SELECT count(*) FROM orders") == [(4,)]
    assert pipe.status().failures == 4


def test_retries_end(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    orders(fake_binlog).insert({"id": 1})
    fake_binlog.end()
    at = fail(*[canal.ConnectionLostError("gone")] * 4)
    with life(fake_binlog) as instance:
        pipe = canal.pipe(instance, Faulty(target, at), on_error=canal.Retry(times=2, first=0.001))
        with pytest.raises(canal.ConnectionLostError):
            pipe.run()
        assert pipe.status().failures == 3
        pipe.run()

    assert read(target, "SELECT id FROM orders") == [(1,)]


def test_waits_grow_up_to_the_longest() -> None:
    retry = canal.Retry(times=4, first=1.0, longest=3.0)

    assert [retry.wait(failures) for failures in range(1, 6)] == [1.0, 2.0, 3.0, 3.0, None]


def test_two_pipes_of_one_stream_write_each_change_once(fake_binlog: FakeBinlog, folder: Path) -> None:
    """They take the place of two processes of which one was paused: who comes second finds what the first has done."""
    log = JSONLinesTarget(folder / "changes.jsonl")
    table = orders(fake_binlog)
    for number in range(20):
        table.insert({"id": number})
    fake_binlog.end()
    with life(fake_binlog) as one, life(fake_binlog) as other:
        retry = canal.Retry(times=200, first=0.001, longest=0.002)
        with canal.pipe(one, log, batch_size=1, on_error=retry) as pipe:
            canal.pipe(other, log, batch_size=1, on_error=retry).run()
            pipe.join()

    lines = [json.loads(line) for line in Path(folder / "changes.jsonl").read_text().splitlines()]
    assert [line["after"]["id"] for line in lines] == list(range(20))


# -- what cannot be written ------------------------------------------------------------------------------------------------


def unfit(fake: FakeBinlog) -> None:
    """A row that the target's own unique key refuses, between others."""
    table = orders(fake)
    table.insert({"id": 1, "n": 1}, {"id": 2, "n": 1}, {"id": 3, "n": 3})
    fake.end()


def with_unique(target: SQLiteTarget) -> None:
    with closing(sqlite3.connect(target.path)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER UNIQUE, note TEXT)")


def test_what_cannot_be_written_stops_the_pipe(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    unfit(fake_binlog)
    with_unique(target)
    with life(fake_binlog) as instance, pytest.raises(canal.errors.UnfitChangeError, match="UNIQUE") as error:
        canal.pipe(instance, target).run()

    assert [change.after["id"] for change in error.value.changes] == [2]
    assert read(target, "SELECT id FROM orders") == []


def test_what_cannot_be_written_is_parked_with_its_error_and_position(
    fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    unfit(fake_binlog)
    with_unique(target)
    with life(fake_binlog) as instance:
        pipe = canal.pipe(instance, target, on_unfit=JSONLinesTarget(folder / "parked.jsonl"))
        pipe.run()

    assert read(target, "SELECT id FROM orders ORDER BY id") == [(1,), (3,)]
    (parked,) = [json.loads(line) for line in (folder / "parked.jsonl").read_text().splitlines()]
    assert (parked["after"], parked["op"]) == ({"id": 2, "n": 1, "note": None}, "INSERT")
    assert "UNIQUE constraint failed" in parked["error"]
    assert parked["position"].startswith("binlog.000001:")
    assert pipe.status().parked == 1


def test_an_error_of_changes_that_are_none_of_the_commit_stops_the_pipe(fake_binlog: FakeBinlog, folder: Path) -> None:
    """Parking them would leave nothing out, and the commit would fail again without an end."""

    def encode(change: Change) -> str:
        raise UnfitChangeError("no", changes=(change.evolve(),))

    orders(fake_binlog).insert({"id": 1, "n": 1})
    fake_binlog.end()
    target = JSONLinesTarget(folder / "log", encode=encode)
    with life(fake_binlog) as instance, pytest.raises(UnfitChangeError, match="no"):
        canal.pipe(instance, target, on_unfit=JSONLinesTarget(folder / "parked")).run()


def test_a_rule_that_fails_stops_behind_what_lies_before_it_or_parks(
    fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 1})
    table.insert({"id": 2, "n": 0})
    table.insert({"id": 3, "n": 2})
    fake_binlog.end()
    rule = canal.Rule(mask={"n": lambda n: 6 // n})
    with life(fake_binlog) as instance:
        with pytest.raises(canal.errors.HookError, match="ZeroDivisionError"):
            canal.pipe(instance, target, rules=[rule]).run()
        assert read(target, "SELECT id, n FROM orders") == [(1, 6)]

        canal.pipe(instance, target, rules=[rule], on_unfit=JSONLinesTarget(folder / "parked.jsonl")).run()

    assert read(target, "SELECT id, n FROM orders ORDER BY id") == [(1, 6), (3, 3)]
    assert [json.loads(line)["after"]["id"] for line in (folder / "parked.jsonl").read_text().splitlines()] == [2]


def test_a_table_without_a_key_is_unfit_until_a_rule_names_one(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    table = fake_binlog.table("shop", "log", "at INT, text VARCHAR(9)")
    table.insert({"at": 1, "text": "a"}, {"at": 2, "text": "b"})
    table.delete({"at": 1, "text": "a"})
    fake_binlog.end()
    with life(fake_binlog) as instance:
        with pytest.raises(canal.errors.UnfitChangeError, match="no primary key"):
            canal.pipe(instance, target).run()
        canal.pipe(instance, target, rules=[canal.Rule(tables=r"shop\.log", keys=["at"])]).run()

    assert read(target, "SELECT * FROM log") == [(2, "b")]


def test_a_row_that_a_transform_makes_is_the_whole_row(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    fake_binlog.table("shop", "orders", "id INT PRIMARY KEY, n INT").insert({"id": 1, "n": 5})
    fake_binlog.end()

    def doubled(change: Change) -> Change:
        assert change.after is not None
        return change.evolve(after=change.after.as_dict() | {"n": 2 * change.after["n"]})

    with life(fake_binlog) as instance:
        with pytest.raises(canal.errors.UnfitChangeError, match="Where a rule made the row, it must have the columns of the key"):
            canal.pipe(instance, target, rules=[canal.Rule(transform=lambda change: change.evolve(after={"n": 10}))]).run()
        canal.pipe(instance, target, rules=[canal.Rule(transform=doubled)]).run()

    assert read(target, "SELECT id, n FROM orders") == [(1, 10)]


# -- transactions ----------------------------------------------------------------------------------------------------------


def test_a_transaction_larger_than_the_store_stops_or_comes_in_pieces(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 0})
    with fake_binlog.transaction():
        for number in range(1, 60):
            table.insert({"id": number})
    table.insert({"id": 60})
    fake_binlog.end()
    with life(fake_binlog, store_entries=16) as instance:
        with pytest.raises(canal.UsageError, match="larger than the store"):
            canal.pipe(instance, target).run()
        assert read(target, "SELECT id FROM orders") == [(0,)]

        canal.pipe(instance, target, on_large="pieces").run()

    assert read(target, "SELECT count(*), max(id) FROM orders") == [(61, 60)]


@attrs.frozen
class ByTable:
    """A target that commits each table by itself, as tables of a lake do."""

    target: SQLiteTarget
    commits: list[str] = attrs.field(factory=list)
    fails: list[str] = attrs.field(factory=list)

    guarantee = Guarantee.ONCE
    scope: ClassVar[Scope] = "table"
    is_log = False

    @contextmanager
    def begin(self, stream: str) -> Iterator[Work]:
        with self.target.begin(stream) as work:
            yield _ByTableWork(work, self)


@attrs.frozen
class _ByTableWork:
    work: Work
    target: ByTable

    def progress(self, table: str = "") -> Progress | None:
        assert table
        return self.work.progress(table)

    def apply(self, changes: Sequence[Change]) -> None:
        assert len({change.table.name for change in changes}) == 1
        self.work.apply(changes)

    def commit(self, progress: Progress, table: str = "") -> None:
        if table in self.target.fails:
            self.target.fails.remove(table)
            raise canal.ConnectionLostError("gone")
        self.target.commits.append(table)
        self.work.commit(progress, table)


def test_a_progress_for_each_table_names_its_table_of_the_source(folder: Path) -> None:
    target = SQLiteTarget(folder / "copy.db")
    rule = canal.Rule(tables=r"shop\.o_\d", to="orders")
    first, second = FakeBinlog(), FakeBinlog()
    for number, fake in ((1, first), (1, second), (2, second)):
        orders(fake, f"o_{number}").insert({"id": number})
    piped(first, ByTable(target), rule)
    with closing(sqlite3.connect(target.path)) as connection:  # what SQL targets store of it themselves
        connection.execute("DELETE FROM canal_progress WHERE target = 'names of tables'")
        connection.commit()

    with pytest.raises(canal.ConfigError, match=r"both shop\.o_1 and shop\.o_2 would be the table orders"):
        piped(second, ByTable(target), rule)

    assert read(target, "SELECT id FROM orders") == [(1,)]


def test_a_transaction_whose_end_is_long_in_coming_is_waited_for(
    fake_binlog: FakeBinlog, target: SQLiteTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that the source has written a part of when it crashes."""
    with fake_binlog.transaction():
        orders(fake_binlog).insert({"id": 1})
    fake_binlog.end()
    asked: list[int] = []
    read_one = canal.Instance._read

    def without_its_end(instance: canal.Instance, size: int, *options: Any) -> canal.Message:
        asked.append(size)
        message = read_one(instance, size, *options)
        return message if len(asked) > 100 else canal.Message(message.id, message.entries[:-1])

    monkeypatch.setattr(canal.Instance, "_read", without_its_end)
    monkeypatch.setattr("canal.pipes.units._GROW", 0.001)
    with life(fake_binlog) as instance:
        canal.pipe(instance, target).run()

    assert read(target, "SELECT id FROM orders") == [(1,)]
    assert max(asked) < 2**31, "a compiled store takes no such number"


def test_with_the_scope_table_each_table_has_a_progress_of_its_own(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    one, other = orders(fake_binlog, "one"), orders(fake_binlog, "other")
    with fake_binlog.transaction():
        one.insert({"id": 1})
        other.insert({"id": 1})
    one.insert({"id": 2})
    fake_binlog.end()
    by_table = ByTable(target, fails=["shop.other"])
    with life(fake_binlog) as instance:
        canal.pipe(instance, by_table, on_error=QUICK).run()

    assert by_table.commits == ["shop.one", "shop.other"]
    assert read(target, "SELECT count(*) FROM one UNION ALL SELECT count(*) FROM other") == [(2,), (1,)]


def test_what_a_filter_of_the_client_drops_moves_the_progress_too(
    fake_binlog: FakeBinlog, target: SQLiteTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canal.pipes.loop._SETTLE", 0.0)
    one, other = orders(fake_binlog), orders(fake_binlog, "other")
    with life(fake_binlog) as instance:
        instance.subscribe(filter=r"shop\.orders")
        with canal.pipe(instance, target) as pipe:
            one.insert({"id": 1})
            other.insert({"id": 1})
            deadline = time.monotonic() + 60
            while f'"offset":{fake_binlog.position.offset}' not in _stored(target) and time.monotonic() < deadline:
                time.sleep(0.05)
        assert pipe.status().changes == 1

    assert f'"offset":{fake_binlog.position.offset}' in _stored(target)


def _stored(target: SQLiteTarget) -> str:
    try:
        rows = read(target, "SELECT progress FROM canal_progress")
    except sqlite3.OperationalError:
        return ""
    return json.loads(rows[0][0])["position"] if rows else ""


# -- rules -----------------------------------------------------------------------------------------------------------------


def piped(fake: FakeBinlog, target: SQLiteTarget, *rules: canal.Rule, **options: Any) -> None:
    fake.end()
    with life(fake) as instance:
        canal.pipe(instance, target, rules=rules, **options).run()


def test_a_rule_chooses_renames_fills_and_masks_columns(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 5, "note": "secret"}, {"id": 2, "n": 6})
    table.update({"id": 1, "n": 5, "note": "secret"}, {"id": 3})
    rule = canal.Rule(
        fields=["note", "id"],
        rename={"id": "key", "note": "hint"},
        mask={"note": len},
        defaults={"origin": "eu"},
        to="{schema}_{table}",
    )

    piped(fake_binlog, target, rule)

    assert read(target, "SELECT key, hint, origin FROM shop_orders ORDER BY key") == [(2, None, "eu"), (3, "6", "eu")]


def test_a_row_that_leaves_what_a_rule_lets_through_is_deleted(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 5}, {"id": 2, "n": 50}, {"id": 3, "n": 50})
    table.update({"id": 2, "n": 50}, {"n": 5})  # leaves
    table.update({"id": 1, "n": 5}, {"n": 50})  # comes in
    table.delete({"id": 3, "n": 50})

    piped(fake_binlog, target, canal.Rule(where=lambda row: row["n"] >= 10), batch_size=1)

    assert read(target, "SELECT id, n FROM orders") == [(1, 50)]


def test_a_transform_gives_no_change_another_one_or_several(fake_binlog: FakeBinlog, folder: Path) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 0}, {"id": 2, "n": 1}, {"id": 3, "n": 2})

    def transform(change: Change) -> list[Change]:
        return [change.evolve(after={"id": change.row["id"], "copy": copy}) for copy in range(change.row["n"])]

    piped(fake_binlog, JSONLinesTarget(folder / "log"), canal.Rule(transform=transform))  # type: ignore[arg-type]

    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    assert [line["after"] for line in lines] == [{"id": 2, "copy": 0}, {"id": 3, "copy": 0}, {"id": 3, "copy": 1}]
    assert len({line["id"] for line in lines}) == 3


def test_the_first_rule_that_names_a_table_counts_and_others_go_through(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    for name in ("a", "b", "c"):
        orders(fake_binlog, name).insert({"id": 1})

    piped(fake_binlog, target, canal.Rule(tables=r"shop\.a", to="x"), canal.Rule(tables=r"shop\.[ab]", to=lambda change: "y"))

    assert read(target, "SELECT name FROM sqlite_master WHERE name IN ('a', 'b', 'c', 'x', 'y')") == [("x",), ("y",), ("c",)]


def test_two_tables_never_become_one_unawares(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    fake_binlog.table("one", "orders", "id INT PRIMARY KEY").insert({"id": 1})
    fake_binlog.table("other", "orders", "id INT PRIMARY KEY").insert({"id": 1})

    with pytest.raises(canal.ConfigError, match=r"both one\.orders and other\.orders"):
        piped(fake_binlog, target)


@pytest.mark.parametrize(
    "rule", [{"fields": ["id", "price"]}, {"mask": {"price": len}}, {"rename": {"n": "note"}}, {"keys": ["price"]}], ids=str
)
def test_a_rule_that_does_not_fit_its_table_is_an_error(fake_binlog: FakeBinlog, target: SQLiteTarget, rule: Any) -> None:
    orders(fake_binlog).insert({"id": 1})

    with pytest.raises(canal.ConfigError):
        piped(fake_binlog, target, canal.Rule(**rule))


# -- mistakes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"on_error": "ignore"},
        {"on_unfit": "skip"},
        {"on_large": "tear"},
        {"acknowledged": "binlog.000001:4"},
        {"batch_size": 0},
        {"rules": ["shop"]},
        {"target": "sqlite:///copy.db"},
    ],
    ids=str,
)
def test_options_that_cannot_be_are_errors(canal_instance: Any, fake_binlog: FakeBinlog, target: Any, options: Any) -> None:
    arguments = {"target": target, **options}

    with pytest.raises(canal.ConfigError):
        canal.pipe(canal_instance(fake_binlog), **arguments)


@pytest.mark.parametrize(
    "options",
    [
        {"tables": "("},
        {"fields": "id"},
        {"to": "{database}"},
        {"where": "n > 1"},
        {"rename": "x"},
        {"rename": {"id": 5}},
        {"defaults": ["id"]},
        {"mask": str},
        {"mask": {"id": canal.Mask.last(4)}},
        {"exclude": "id"},
        {"fields": ["id"], "exclude": ["n"]},
    ],
    ids=str,
)
def test_rules_that_cannot_be_are_errors(options: Any) -> None:
    with pytest.raises(canal.ConfigError):
        canal.Rule(**options)


@pytest.mark.parametrize("declared", ["REAL", "DECIMAL(10,2)", "INTEGER"])
def test_a_column_of_sqlite_that_rounds_is_refused(fake_binlog: FakeBinlog, target: SQLiteTarget, declared: str) -> None:
    fake_binlog.table("shop", "prices", "id INT PRIMARY KEY, price DECIMAL(20,2)").insert({"id": 1, "price": "1.50"})
    with closing(sqlite3.connect(target.path)) as connection:
        connection.execute(f"CREATE TABLE prices (id INTEGER PRIMARY KEY, price {declared})")

    with pytest.raises(canal.errors.TargetSchemaError, match="changes values of decimal"):
        piped(fake_binlog, target)


def test_pipe_errors_forge_no_line_of_a_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    evil = "t\nERROR:root:forged \x1b[31m"
    for parks in (False, True):
        fake = FakeBinlog()
        table = fake.table("s", evil, "id INT")
        table.insert({"id": 1})
        table.delete({"id": 1})
        fake.end()
        with canal.Instance(canal.InstanceConfig(destination="d", source=fake, start="earliest")) as instance:
            instance.subscribe()
            unfit: Any = {"on_unfit": JSONLinesTarget(tmp_path / "parked.jsonl")} if parks else {}
            pipe = canal.pipe(instance, SQLiteTarget(tmp_path / f"{parks}.db"), **unfit).start()
            with contextlib.suppress(canal.CanalError):
                pipe.join(60)
            with contextlib.suppress(canal.CanalError):
                pipe.stop()

    texts = [record.getMessage() for record in caplog.records]
    assert any("has no primary key" in text for text in texts)
    assert any("are parked in" in text for text in texts)
    assert [text for text in texts if "\n" in text or "\x1b" in text] == []
