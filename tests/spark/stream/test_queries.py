"""The reader's methods as Spark calls them, against a fake server: every order of calls, crash and replay."""

from __future__ import annotations

import contextlib
import inspect
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from canal.errors import PositionLostError, UnloggedChangeError
from canal.spark.source import CanalSource
from canal.spark.stream.stretch import Stretch
from canal.spool.spool import Piece
from tests.support.engine import PATIENCE, Engine, OlderEngine
from tests.support.shop import Shop, both, seen

# -- the life of a query --------------------------------------------------------------------------------------------------


def test_the_first_batch_pins_the_start_and_carries_no_rows(shop: Shop, query: Callable[..., Engine]) -> None:
    shop.insert(3)
    with query() as engine:
        engine.start()
        assert engine.step()
        assert engine.rows == []
        assert json.loads(engine.offsets[0])["ph"] == "bin"

        assert seen(engine.until(3)) == shop.expected


@both
def test_updates_and_deletes(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        with shop.fake.transaction():
            shop.orders.insert({"id": 1, "note": "a"}, {"id": 2})
            shop.orders.update({"id": 1, "note": "a"}, {"note": "b"})
        shop.other.insert({"id": 7})
        shop.orders.delete({"id": 2})
        rows = engine.until(4)

    assert seen(rows) == [("I", 1, "a"), ("I", 2, None), ("U", 1, "b"), ("D", 2, None)]
    assert [row["_before"] and row["_before"]["note"] for row in rows] == [None, None, "a", None]
    assert [row["_ord"] for row in rows] == [0, 1, 2, 0]
    assert rows[0]["_txn"] == rows[2]["_txn"] < rows[3]["_txn"]
    assert [row["_gtid"] for row in rows] == [rows[0]["_gtid"]] * 3 + [rows[3]["_gtid"]]


def test_from_latest_nothing_is_lost_between_the_start_and_the_first_rows(shop: Shop, query: Callable[..., Engine]) -> None:
    shop.insert(2)
    shop.expected.clear()
    with query(startingPosition="latest") as engine:
        engine.start()
        engine.step()
        engine.stop()
        shop.insert(3)
        engine.start()
        assert seen(engine.until(3)) == shop.expected


@pytest.mark.parametrize("planned", [False, True])
def test_the_first_batch_is_replayed(shop: Shop, query: Callable[..., Engine], planned: bool) -> None:
    """A crash before or after batch 0 is in the log of offsets: its start is asked for anew, and is a constant."""
    shop.insert(2)
    with query() as engine:
        engine.start()
        if planned:
            engine.plan()
        else:
            assert engine.reader is not None
            engine.reader.latestOffset(engine.reader.initialOffset(), engine.limit)
        engine.stop()
        shop.insert(2)
        engine.start()
        assert seen(engine.until(4)) == shop.expected


def test_an_idle_stream_keeps_its_offset_to_the_letter(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        shop.insert(1)
        engine.until(1)
        for _ in range(3):
            assert not engine.step()
        shop.other.insert({"id": 1})  # nothing of ours
        for _ in range(3):
            assert not engine.step()
        assert engine.reader is not None
        assert engine.reader.reportLatestOffset() is not None


def test_rows_that_come_while_a_batch_is_under_way_are_of_the_next(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        shop.insert(1)
        while not engine.plan():
            pass
        assert engine.reader is not None
        shop.insert(2)
        while (engine.reader.reportLatestOffset() or {})["position"] == json.loads(engine.offsets[-1])["position"]:
            pass
        assert seen(engine.run()) == shop.expected[:1]
        assert seen(engine.until(3)) == shop.expected


def test_an_idle_stream_moves_on_now_and_then(shop: Shop, query: Callable[..., Engine]) -> None:
    with query(idleAdvance="0") as engine:
        engine.start()
        shop.insert(1)
        engine.until(1)
        before = engine.offsets[-1]
        shop.other.insert({"id": 1})
        while engine.offsets[-1] == before:
            engine.step()
        assert engine.sink[len(engine.offsets) - 1] == []
        assert not engine.step()


@both
def test_a_restart_goes_on_without_a_commit(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        for _ in range(3):
            engine.start()
            shop.insert(2)
            engine.until(len(shop.expected))
            engine.stop()
            shop.insert(1)
        engine.start()
        assert seen(engine.until(9)) == shop.expected


@both
def test_an_idle_stream_is_started_again_without_a_batch(shop: Shop, query: Callable[..., Engine]) -> None:
    """Spark never said that it committed the last batch, and compares offsets as texts."""
    with query() as engine:
        engine.start()
        shop.insert(2)
        engine.until(2)
        for _ in range(3):
            before = list(engine.offsets)
            engine.stop()
            engine.start()
            shop.other.insert({"id": 1})  # nothing of ours
            for _ in range(3):
                assert not engine.step()
            assert engine.offsets == before
        engine.stop()
        engine.start(available_now=True)
        while engine.step():
            assert engine.sink[len(engine.offsets) - 1] == []
        shop.insert(1)
        engine.stop()
        engine.start()
        assert seen(engine.until(3)) == shop.expected


def test_two_queries_at_once(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as one, query(startingPosition="latest") as other:
        one.start()
        other.start()
        other.step()
        shop.insert(5)
        assert seen(one.until(5)) == seen(other.until(5)) == shop.expected


def test_a_lost_connection_costs_nothing(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        for _ in range(4):
            shop.insert(3)
            engine.until(len(shop.expected))
            engine.server.disconnect()  # type: ignore[attr-defined]
        assert seen(engine.rows) == shop.expected


# -- three forms of a batch, and replays of it ---------------------------------------------------------------------------


def fill(shop: Shop) -> None:
    for count in (1, 30, 2):
        shop.insert(count)
    shop.orders.update({"id": 0, "note": shop.expected[0][2]}, {"note": "new"})
    shop.expected.append(("U", 0, "new"))
    shop.orders.delete({"id": 1, "note": "old"})
    shop.expected.append(("D", 1, "old"))


@both
@pytest.mark.parametrize("form", ["file", "bytes"])
def test_a_batch_is_the_same_in_every_form_and_when_it_is_read_again(shop: Shop, query: Callable[..., Engine], form: str) -> None:
    with query(transport=form) as engine:
        engine.start()
        engine.step()
        fill(shop)
        shop.fake.rotate()
        fill(shop)
        while len(engine.rows) < len(shop.expected):
            engine.plan_next()
            engine.run()
            first = engine.rows
            assert engine.run() == first[-len(engine.sink[len(engine.offsets) - 1]) :]  # a second action of foreachBatch
            whats = [partition.what for partition in engine.partitions[len(engine.offsets) - 1]]
            assert all(isinstance(what, Piece) and (what.data is None) == (form == "file") for what in whats)
            before = engine.sink[len(engine.offsets) - 1]
            engine.stop()  # before the commit
            engine.start()
            assert engine.step()
            assert all(isinstance(part.what, Stretch) for part in engine.partitions[len(engine.offsets) - 1])
            assert engine.sink[len(engine.offsets) - 1] == before
        assert seen(engine.rows) == shop.expected
        shop.insert(2)
        assert seen(engine.until(len(shop.expected))) == shop.expected


@pytest.mark.parametrize(("count", "pieces"), [(1, 1), (10, 1), (100, 3), (400, 7)])
def test_a_batch_is_cut_into_few_pieces_which_are_all_of_it(
    shop: Shop, query: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, count: int, pieces: int
) -> None:
    """About four, unless they were too small or too large."""
    monkeypatch.setattr("canal.spool.spool._CUT_BYTES", 1)
    monkeypatch.setattr("canal.spool.spool._LEAST_PIECE", 4 << 10)
    monkeypatch.setattr("canal.spool.spool._MOST_PIECE", 16 << 10)
    with query() as engine:
        engine.start()
        engine.step()
        shop.insert(count, size=300)
        assert seen(engine.until(count)) == shop.expected
        parts = [partition.what for partition in engine.partitions[len(engine.offsets) - 1]]
        assert len(parts) == pieces
        assert all(one.end == other.start for one, other in zip(parts, parts[1:]))


@pytest.mark.parametrize(("options", "first"), [({}, 800), ({"maxRowsPerBatch": 400}, 400), ({"maxBytesPerBatch": 500_000}, 400)])
def test_a_batch_holds_a_burst_to_its_end_within_the_limits(
    shop: Shop, query: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], first: int
) -> None:
    """What comes half a second behind the first megabyte is of the same batch, though the poll of the first rows is over."""
    monkeypatch.setattr("canal.spark.stream.tail._BURST_SECONDS", PATIENCE)
    monkeypatch.setattr("canal.spark.stream.tail._BURST_MOST", PATIENCE)
    # The seconds of a burst pass when its end has come, and not before.
    monkeypatch.setattr("canal.spark.stream.tail.Tail.is_over", lambda tail: tail._over or tail._marks[-1].rows == 800)
    with query(pollTimeout=0.3, **options) as engine:
        engine.start()
        engine.step()

        def write() -> None:
            shop.insert(400, size=2000)
            time.sleep(0.5)
            shop.insert(400, size=2000)

        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write)
            while not engine.step():
                pass
            writer.result()
        assert len(engine.rows) == first
        assert seen(engine.until(800)) == shop.expected


def test_a_worker_of_spark_is_spared_garbage_collections_once(
    shop: Shop, query: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no other process that reads is."""
    monkeypatch.setattr("canal.spark.readers._is_spared", False)
    frozen: list[int] = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(1))
    with query() as engine:
        engine.start()
        for context, times in ((None, 0), (object(), 1), (object(), 1)):
            monkeypatch.setattr("pyspark.TaskContext.get", lambda context=context: context)
            shop.insert(1)
            engine.until(len(shop.expected))
            assert len(frozen) == times


@both
def test_a_backlog_is_read_by_executors_file_by_file(shop: Shop, query: Callable[..., Engine]) -> None:
    for _ in range(4):
        fill(shop)
        shop.fake.rotate()
    fill(shop)
    with query(maxFilesPerBatch=3) as engine, query(backlogFiles=0) as whole:
        engine.start()
        whole.start()
        engine.step()
        assert engine.step()
        assert [type(partition.what) for partition in engine.partitions[1]] == [Stretch] * 3
        assert seen(engine.until(len(shop.expected))) == shop.expected
        assert any(isinstance(part.what, Piece) for part in engine.partitions[len(engine.offsets) - 1])
        assert whole.until(len(shop.expected)) == engine.rows
        # The offset between carries the GTIDs, so that it means something at another server too.
        gtid = json.loads(engine.offsets[1])["position"]["gtid"]
        engine.stop()
        engine.committed = 1
        engine.offsets = engine.offsets[:2]
        engine.sink = {0: [], 1: engine.sink[1]}
        engine.start()
        assert seen(engine.until(len(shop.expected))) == shop.expected
        assert gtid


def test_a_backlog_is_limited_by_bytes(shop: Shop, query: Callable[..., Engine]) -> None:
    for _ in range(4):
        shop.insert(5)
        shop.fake.rotate()
    with query(maxBytesPerBatch=1) as engine:
        engine.start()
        engine.step()
        assert engine.step()
        assert seen(engine.rows) == shop.expected[:5]
        assert seen(engine.until(20)) == shop.expected


@both
def test_what_is_purged_is_an_error_before_any_row(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        shop.insert(2)
        engine.plan_next()
        engine.stop()
        shop.fake.purge(shop.fake.rotate())
        engine.start()
        engine.plan()
        with pytest.raises(PositionLostError):
            engine.run()
        engine.stop()
        engine.committed = 1
        engine.offsets.pop()
        engine.start()
        with pytest.raises(PositionLostError):
            engine.until(2)


# -- how much ---------------------------------------------------------------------------------------------------------------


def test_batches_end_at_transactions_within_the_limit(shop: Shop, query: Callable[..., Engine]) -> None:
    with query(maxRowsPerBatch=10) as engine:
        engine.start()
        engine.step()
        for count in (4, 4, 4, 25, 3):
            shop.insert(count)
        engine.until(40)
        sizes = [len(engine.sink[number]) for number in range(1, len(engine.offsets))]
        assert seen(engine.rows) == shop.expected
        assert all(size <= 10 or size == 25 for size in sizes), sizes
        assert len(sizes) <= 8
        ends = {len(rows) and rows[-1]["id"] for rows in engine.sink.values()}
        assert ends <= {0, 3, 7, 11, 36, 39}


def test_bytes_limit_a_batch_too(shop: Shop, query: Callable[..., Engine]) -> None:
    with query(maxBytesPerBatch="4k") as engine:
        engine.start()
        engine.step()
        for _ in range(12):
            shop.insert(1, size=1000)
        engine.receive(shop.fake.position)
        engine.until(12)
        assert seen(engine.rows) == shop.expected
        assert max(len(rows) for rows in engine.sink.values()) == 3


@both
def test_a_huge_transaction_is_split_and_every_part_can_be_read_again(shop: Shop, query: Callable[..., Engine]) -> None:
    shop.insert(1)
    shop.insert(200, size=1500)
    shop.insert(1)
    with query(maxTransactionBytes="64k", maxBytesPerBatch="64k", pollTimeout="2") as engine:
        engine.start()
        engine.until(202)
        rows = engine.rows
        assert seen(rows) == shop.expected
        inside = [json.loads(offset)["position"].get("row", 0) for offset in engine.offsets]
        assert len(set(inside)) > 3
        assert [row["_ord"] for row in rows] == [0, *range(200), 0]
        assert len({row["_txn"] for row in rows}) == 3
        offsets, sink = engine.offsets, dict(engine.sink)
        engine.stop()
        for number in range(1, len(offsets)):  # each batch as the first call of a new run
            engine.offsets, engine.committed = offsets[: number + 1], number
            engine.start()
            engine.step()
            assert engine.sink[number] == sink[number]
            engine.stop()


@pytest.mark.parametrize("form", ["file", "bytes"])
def test_the_spool_is_bounded_and_the_source_waits(shop: Shop, query: Callable[..., Engine], tmp_path: Path, form: str) -> None:
    """Its files are written over where only this machine sees them."""
    files = set()
    with query(spoolBytes="256k", storeBytes="64k", pollTimeout="2", maxBytesPerBatch="32k", transport=form) as engine:
        engine.start()
        engine.step()
        for _ in range(60):
            shop.insert(20, size=1000)
        most = 0
        while len(engine.rows) < 1200:
            engine.step()
            found = {}
            for path in (tmp_path / "spool").glob("*/*"):
                with contextlib.suppress(FileNotFoundError):  # it has got another name meanwhile
                    found[path.name] = path.stat()
            most = max(most, sum(one.st_size for one in found.values()))
            files |= {one.st_ino for one in found.values()}
        assert seen(engine.rows) == shop.expected
        assert most < 600 << 10, most
        newest = max(name for name in found if name.startswith("0"))
        assert form == "file" or len(files) < 10 < int(newest)


# -- available now -----------------------------------------------------------------------------------------------------------


@both
def test_available_now_reads_what_is_there_and_ends(shop: Shop, query: Callable[..., Engine]) -> None:
    fill(shop)
    with query(maxRowsPerBatch=10) as engine:
        for _ in range(2):
            count = len(shop.expected)
            engine.start(available_now=True)
            shop.insert(3)  # later than the start: not of this run
            while engine.step():
                pass
            assert seen(engine.rows) == shop.expected[:count]
            engine.stop()
        engine.start(available_now=True)
        while engine.step():
            pass
        assert seen(engine.rows) == shop.expected


def test_available_now_from_latest_ends_at_once(shop: Shop, query: Callable[..., Engine]) -> None:
    shop.insert(3)
    with query(startingPosition="latest") as engine:
        engine.start(available_now=True)
        assert engine.step()
        assert not engine.step()
        assert engine.rows == []


def test_available_now_with_a_backlog(shop: Shop, query: Callable[..., Engine]) -> None:
    for _ in range(4):
        fill(shop)
        shop.fake.rotate()
    with query() as engine:
        engine.start(available_now=True)
        shop.insert(1)
        shop.fake.rotate()
        while engine.step():
            pass
        assert seen(engine.rows) == shop.expected[:-1]


# -- Spark 4.0 and 4.1 -----------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("planned", [False, True])
def test_older_the_first_batch_has_all_that_is_there_and_is_replayed(
    shop: Shop, query: Callable[..., Engine], planned: bool
) -> None:
    """Where it begins is nowhere in Spark's log but in its end."""
    fill(shop)
    with query(OlderEngine) as engine:
        engine.start()
        assert engine.plan()
        if not planned:  # it was never written down
            engine.offsets.clear()
        engine.stop()
        first = list(shop.expected)
        shop.insert(2)
        engine.start()
        engine.step()
        assert seen(engine.sink[0]) == (first if planned else shop.expected)
        assert seen(engine.until(len(shop.expected))) == shop.expected


@both
def test_older_a_run_goes_on_behind_the_newest_offset_that_was_written_down(shop: Shop, query: Callable[..., Engine]) -> None:
    with query(OlderEngine) as engine:
        for is_planned in (True, False, True):
            shop.insert(2)
            engine.start()
            while engine.step():
                pass
            before = list(engine.offsets)
            engine.stop()
            engine.start()
            assert not engine.step()
            assert engine.offsets == before
            shop.insert(2)
            if is_planned:
                engine.plan_next()
            engine.stop()
        engine.start()
        assert seen(engine.until(len(shop.expected))) == shop.expected


def test_older_a_run_with_available_now_is_one_batch_of_all_that_is_there(shop: Shop, query: Callable[..., Engine]) -> None:
    """However many reads it comes in."""
    with query(OlderEngine, storeBytes="8k") as engine:
        for count in (60, 120):
            while len(shop.expected) < count:
                shop.insert(1, size=1000)
            engine.start()
            assert engine.step()
            engine.stop()
            assert seen(engine.rows) == shop.expected
    assert len(engine.offsets) == 2


def test_older_of_a_backlog_too_but_of_so_many_files(shop: Shop, query: Callable[..., Engine]) -> None:
    for _ in range(4):
        fill(shop)
        shop.fake.rotate()
    fill(shop)
    with query(OlderEngine) as engine, query(OlderEngine, maxFilesPerBatch=3) as limited:
        engine.start()
        engine.step()
        assert [type(partition.what) for partition in engine.partitions[0]] == [Stretch] * 5
        assert seen(engine.rows) == shop.expected

        limited.start()
        limited.step()
        assert [type(partition.what) for partition in limited.partitions[0]] == [Stretch] * 3
        assert limited.until(len(shop.expected)) == engine.rows


def test_older_limits_of_a_batch_hold_for_the_first_too(shop: Shop, query: Callable[..., Engine]) -> None:
    for _ in range(40):
        shop.insert(1, size=1000)
    for options, most in (({"maxRowsPerBatch": 7}, 7), ({"maxBytesPerBatch": "4k"}, 3), ({"spoolBytes": "8k"}, 40)):
        with query(OlderEngine, **options) as engine:
            for _ in range(3):
                engine.start()
                engine.step()
                engine.stop()
            engine.start()
            assert seen(engine.until(40)) == shop.expected
            assert max(len(rows) for rows in engine.sink.values()) <= most


def test_a_checkpoint_goes_from_an_older_spark_to_a_newer_one_and_back(shop: Shop, query: Callable[..., Engine]) -> None:
    shop.insert(3)
    with query() as newer, query(OlderEngine) as older:
        for engine, other in ((older, newer), (newer, older), (older, newer)):
            engine.start()
            engine.plan_next()
            engine.stop()  # the other one reads what was planned
            other.offsets, other.committed, other.sink = list(engine.offsets), engine.committed, dict(engine.sink)
            shop.insert(3)
            other.start()
            assert seen(other.until(len(shop.expected))) == shop.expected
            other.stop()
            engine.offsets, engine.committed, engine.sink = list(other.offsets), other.committed, dict(other.sink)
            shop.insert(3)


def test_older_what_ends_a_query_ends_it_behind_the_first_batch_too(shop: Shop, query: Callable[..., Engine]) -> None:
    shop.insert(1)
    with query(OlderEngine) as engine:
        engine.start()
        engine.step()
        engine.stop()
        shop.insert(1)
        shop.fake.ddl("TRUNCATE orders", "shop")
        for _ in range(2):
            engine.start()
            with pytest.raises(UnloggedChangeError):
                engine.until(3)
            assert seen(engine.rows) == shop.expected
            engine.stop()


def test_a_reader_is_of_the_kind_that_its_spark_knows(
    shop: Shop, query: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    with query() as engine:
        engine.start()
        assert isinstance(engine.reader, SupportsTriggerAvailableNow)
        engine.stop()
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        reader = CanalSource(engine.options).streamReader(engine.struct)
        assert not isinstance(reader, SupportsTriggerAvailableNow)
        assert not inspect.signature(reader.latestOffset).parameters  # by which newer ones would know it
