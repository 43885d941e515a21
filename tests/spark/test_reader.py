"""The reader's methods as Spark calls them, against a fake server: every order of calls, crash and replay."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from canal.errors import ConfigError, PositionLostError, SchemaError, StoreError, UnloggedChangeError
from canal.parse.schema.history import FileHistory
from canal.parse.source.connection import MySQLConnection
from canal.position import Position
from canal.spark.source import CanalSource
from canal.spark.spool import Piece, Spool
from canal.spark.stretch import Stretch
from canal.testing import FakeBinlog
from canal.testing.proxy import FaultProxy
from canal.testing.servers import ThrowawayServer
from tests.support.engine import PATIENCE, Engine, OlderEngine, rows_of
from tests.support.shop import COLUMNS, Pair, Shop, rename, seen, served, told


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(FakeBinlog(getattr(request, "param", "mysql")))


both = pytest.mark.parametrize("shop", ["mysql", "mariadb"], indirect=True)


@pytest.fixture
def query(shop: Shop, tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """Makes queries on the shop's orders, from the beginning of its log."""
    made: list[Engine] = []
    with shop.fake.serve(user="cdc", password="s3cr3t") as server:

        def make(kind: type[Engine] = Engine, **options: Any) -> Engine:
            given = {
                "host": server.host, "port": server.port, "user": "cdc", "password": "s3cr3t", "table": "shop.orders",
                "startingPosition": "earliest", "spoolDir": tmp_path / "spool", "transport": "file", "pollTimeout": "0.2",
            }  # fmt: skip
            given.update(options)
            if "tables" in options:
                del given["table"]
            made.append(kind(given))
            made[-1].server = server  # type: ignore[attr-defined]
            return made[-1]

        yield make
        for engine in made:
            engine.stop()
    assert not list((tmp_path / "spool").glob("*")), "a spool was left"


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
def test_a_batch_is_the_same_in_every_form_and_when_it_is_read_again(
    shop: Shop, query: Callable[..., Engine], form: str
) -> None:
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
    monkeypatch.setattr("canal.spark.spool._CUT_BYTES", 1)
    monkeypatch.setattr("canal.spark.spool._LEAST_PIECE", 4 << 10)
    monkeypatch.setattr("canal.spark.spool._MOST_PIECE", 16 << 10)
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
    monkeypatch.setattr("canal.spark.tail._BURST_SECONDS", PATIENCE)
    monkeypatch.setattr("canal.spark.tail._BURST_MOST", PATIENCE)
    # The seconds of a burst pass when its end has come, and not before.
    monkeypatch.setattr("canal.spark.tail.Tail.is_over", lambda tail: tail._over or tail._marks[-1].rows == 800)
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
    monkeypatch.setattr("canal.spark.source._is_spared", False)
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
def test_the_spool_is_bounded_and_the_source_waits(
    shop: Shop, query: Callable[..., Engine], tmp_path: Path, form: str
) -> None:
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


# -- what a query cannot go on after --------------------------------------------------------------------------------------------


def test_new_columns_end_the_batch_and_the_query_until_it_is_loaded_anew(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        shop.insert(2)
        shop.orders.alter("ALTER TABLE orders ADD more INT", COLUMNS + ", more INT")
        with shop.fake.transaction():
            shop.other.insert({"id": 1})
            shop.orders.insert({"id": 50, "note": "x", "more": 5})
        assert seen(engine.until(2)) == shop.expected
        with pytest.raises(SchemaError, match="more is new.*load it anew"):
            engine.until(3)
        engine.stop()
        engine.start()
        rows = engine.until(3)
        assert (rows[-1]["id"], rows[-1]["more"]) == (50, 5)


def test_a_column_that_goes_ends_the_query_too(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        shop.insert(1)
        engine.until(1)
        shop.orders.alter("ALTER TABLE orders DROP note", "id INT PRIMARY KEY")
        shop.orders.insert({"id": 50})
        with pytest.raises(SchemaError, match="note was dropped"):
            engine.until(2)
        engine.stop()
        engine.start()
        assert "note" not in engine.until(2)[-1]


def test_rows_of_before_the_query_lack_what_the_table_has_got_since(shop: Shop, query: Callable[..., Engine]) -> None:
    shop.insert(1)
    shop.orders.alter("ALTER TABLE orders ADD more INT", COLUMNS + ", more INT")
    shop.orders.insert({"id": 9, "note": "x", "more": 5})
    with query() as engine:
        engine.start()
        rows = engine.until(2)
    assert [(row["more"], row["_absent"]) for row in rows] == [(None, ["more"]), (5, None)]


def test_keep_goes_on_with_the_columns_of_the_start(shop: Shop, query: Callable[..., Engine]) -> None:
    with query(schemaChange="keep") as engine:
        engine.start()
        engine.step()
        shop.insert(1)
        shop.orders.alter("ALTER TABLE orders ADD more INT", COLUMNS + ", more INT")
        shop.orders.insert({"id": 9, "note": "x", "more": 5})
        rows = engine.until(2)
    assert [row["_extra"] for row in rows] == [None, [("more", "5")]]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("TRUNCATE TABLE orders", "emptied by TRUNCATE"),
        ("DROP TABLE orders", "dropped"),
        ("DROP TABLE shop.other, shop.orders", "dropped"),
        ("RENAME TABLE orders TO old", "renamed"),
        ("RENAME TABLE fresh TO orders", "another table was renamed"),
        ("ALTER TABLE orders TRUNCATE PARTITION p1", "partitions"),
        ("ALTER TABLE orders DROP PARTITION p1", "partitions"),
        ("CREATE OR REPLACE TABLE orders (id INT)", "replaced"),
        ("DROP DATABASE shop", "dropped with its database"),
        ("-- the old one\nDROP DATABASE shop", "dropped with its database"),
        ("CREATE OR REPLACE DATABASE shop", "dropped with its database"),
        ("ALTER TABLE orders DROP /* the old */ PARTITION p1", "partitions"),
        ("ALTER TABLE other EXCHANGE PARTITION p1 WITH TABLE orders", "partitions"),
        ("ALTER TABLE orders CONVERT PARTITION p1 TO TABLE old", "partitions"),
        ("ALTER TABLE other CONVERT TABLE orders TO PARTITION p1 VALUES LESS THAN (3)", "partitions"),
        ("ALTER IGNORE TABLE orders ADD UNIQUE (note)", "altered with IGNORE"),
    ],
)
def test_a_loss_of_rows_that_the_log_does_not_tell_is_loud(
    shop: Shop, query: Callable[..., Engine], sql: str, says: str
) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        shop.insert(2)
        shop.fake.ddl(sql, "shop")
        shop.insert(1)
        assert seen(engine.until(2)) == shop.expected[:2]
        with pytest.raises(UnloggedChangeError, match=says):
            engine.until(3)
        engine.stop()
        engine.start(onTruncate="ignore")
        assert seen(engine.until(3)) == shop.expected


def test_an_alter_in_a_backlog_that_executors_read_is_loud_too(shop: Shop, query: Callable[..., Engine]) -> None:
    """The types of the rows before the backlog are in the offset, and the batch is planned beyond the ALTER."""
    shop.insert(1)
    with query() as engine:
        engine.start()
        engine.until(1)
        engine.stop()
        shop.fake.rotate()
        shop.orders.alter("ALTER TABLE orders MODIFY note VARCHAR(99)", "id INT PRIMARY KEY, note VARCHAR(99)")
        shop.insert(1)
        shop.fake.rotate()
        shop.insert(1)
        for _ in range(2):
            engine.start(backlogFiles=1)
            with pytest.raises(UnloggedChangeError, match="note was varchar") as found:
                engine.until(3)
            assert isinstance(engine.partitions[len(engine.offsets) - 1][0].what, Stretch)
            engine.stop()
        engine.start(acknowledge=found.value.position)
        engine.until(3)


def test_a_range_of_the_log_is_told_what_may_be_done_with_a_range(shop: Shop) -> None:
    shop.insert(1)
    shop.fake.ddl("DROP DATABASE shop", "shop")
    shop.insert(1)
    with shop.fake.serve(user="cdc", password="s3cr3t") as server:
        options = {
            "host": server.host, "port": str(server.port), "user": "cdc", "password": "s3cr3t", "table": "shop.orders",
        }  # fmt: skip
        source = CanalSource(options)
        reader = source.reader(source.schema())
        with pytest.raises(UnloggedChangeError, match=r"dropped with its database.*Read the range in two.*onTruncate=ignore\.$"):
            rows_of(reader, reader.partitions(), source.schema())


@both
def test_a_primary_key_that_is_dropped_is_loud(shop: Shop, query: Callable[..., Engine]) -> None:
    """A target with that key would hold one of several rows."""
    with query() as engine:
        engine.start()
        engine.step()
        shop.insert(1)
        shop.fake.ddl("ALTER TABLE orders DROP PRIMARY KEY", "shop")
        shop.insert(1)
        with pytest.raises(UnloggedChangeError, match="drops its primary key.*schemaChange=keep"):
            engine.until(2)
        engine.stop()
        engine.start(schemaChange="keep")
        assert seen(engine.until(2)) == shop.expected


@both
@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
def test_chosen_columns_are_all_that_a_stream_has(
    shop: Shop, query: Callable[..., Engine], image: str
) -> None:
    shop.fake.row_image = image
    made = "id INT PRIMARY KEY, a INT, at DATETIME, hidden DATETIME, w VARCHAR(9)"
    people = shop.fake.table("shop", "people", made)
    with query(table="shop.people", columns="A, id,at", schemaChange="keep") as engine:
        engine.start()
        assert engine.struct.fieldNames()[5:8] == ["id", "a", "at"]
        people.insert({"id": 1, "a": 2, "at": "0000-00-00 00:00:00", "hidden": "0000-00-00 00:00:00", "w": "x"})
        people.update({"id": 1, "a": 2, "at": None, "hidden": None, "w": "x"}, {"w": "z"})
        rows = engine.until(2)
    assert [rows[0][name] for name in ("id", "a", "_exact", "_extra")] == [1, 2, [("at", "0000-00-00 00:00:00")], None]
    assert rows[1]["_absent"] == (None if image == "FULL" else ["id", "a", "at"])
    assert rows[1]["_before"].keys() == {"id", "a", "at", "_absent", "_exact", "_extra"}
    assert rows[1]["_before"]["_absent"] == (None if image == "FULL" else ["a", "at"])


def test_a_column_that_cannot_be_chosen_is_told(shop: Shop, query: Callable[..., Engine]) -> None:
    with pytest.raises(ConfigError, match="shop.orders has no columns nothing"):
        query(columns="id,nothing").start()
    with pytest.raises(ConfigError, match="columns goes with table"):
        query(tables=".*", columns="id").start()


def test_a_renamed_table_is_followed_by_its_new_name(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        shop.insert(1)
        shop.fake.ddl("RENAME TABLE orders TO old", "shop")
        with pytest.raises(UnloggedChangeError, match="Follow the table's new name, with a new checkpoint and a snapshot"):
            engine.until(2)


@both
def test_what_harms_no_row_passes(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        for sql in (
            "ALTER TABLE orders ADD INDEX (note)", "ALTER TABLE orders DROP INDEX note", "DROP INDEX `primary_note` ON orders",
            "ALTER TABLE other DROP PRIMARY KEY", "ALTER TABLE orders DROP FOREIGN KEY `PRIMARY`",
            "CREATE TABLE IF NOT EXISTS orders (id INT)", "TRUNCATE TABLE other",
            "DROP TABLE other", "DROP DATABASE else", "ANALYZE TABLE orders", "DROP TEMPORARY TABLE orders",
            "ALTER TABLE orders COMMENT 'we drop partition p1'", "ALTER TABLE orders CONVERT TO CHARACTER SET utf8mb4",
            "CREATE DATABASE IF NOT EXISTS shop", "ALTER TABLE orders REMOVE PARTITIONING",
        ):  # fmt: skip
            shop.fake.ddl(sql, "shop")
        shop.insert(1)
        assert seen(engine.until(1)) == shop.expected


def test_truncate_and_drop_as_rows(shop: Shop, query: Callable[..., Engine]) -> None:
    with query(onTruncate="row") as engine:
        engine.start()
        shop.insert(1)
        shop.fake.ddl("TRUNCATE TABLE orders", "shop")
        shop.insert(1)
        shop.fake.ddl("DROP TABLE orders", "shop")
        rows = engine.until(4)
        assert [(row["_op"], row["id"]) for row in rows] == [("I", 0), ("T", None), ("I", 1), ("T", None)]
        assert sorted(row["_txn"] for row in rows) == [row["_txn"] for row in rows]
        shop.orders.alter("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(99))", "id INT PRIMARY KEY, note VARCHAR(99)")
        shop.insert(1)
        engine.until(5)  # narrower, but of no row that is there


def test_a_statement_whose_rows_are_not_in_the_log_is_loud(shop: Shop, query: Callable[..., Engine]) -> None:
    """What comes before it in its transaction is delivered, once."""
    with query() as engine:
        engine.start()
        engine.step()
        with shop.fake.transaction() as transaction:
            shop.orders.insert({"id": 100})
            transaction.query("UPDATE orders SET note = NULL", "shop")
            shop.orders.insert({"id": 101})
        assert [row["id"] for row in engine.until(1)] == [100]
        with pytest.raises(UnloggedChangeError, match="rows are not in the log"):
            engine.until(2)
        engine.stop()
        shop.insert(1)
        engine.start(onStatement="ignore")
        assert [row["id"] for row in engine.until(3)] == [100, 101, 0]


def test_a_statement_that_does_not_tell_its_tables_is_loud(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        with shop.fake.transaction() as transaction:
            shop.orders.insert({"id": 100})
            transaction.query("SELECT restock()", "shop")
        assert [row["id"] for row in engine.until(1)] == [100]
        with pytest.raises(UnloggedChangeError, match="does not tell its tables"):
            engine.until(2)
        engine.stop()
        shop.insert(1)
        engine.start(onStatement="ignore")
        assert [row["id"] for row in engine.until(2)] == [100, 0]


@pytest.mark.parametrize("sql", ["REFILL orders", "DROP TABLE other VERY QUICKLY orders", "RENAME other TO orders"])
def test_a_statement_that_is_not_understood_is_loud(shop: Shop, query: Callable[..., Engine], sql: str) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        shop.insert(1)
        shop.fake.ddl(sql, "shop")
        shop.insert(1)
        engine.until(1)
        with pytest.raises(UnloggedChangeError, match="not understood may have changed shop.orders.*onStatement=ignore"):
            engine.until(2)
        engine.stop()
        engine.start(onStatement="ignore")
        assert seen(engine.until(2)) == shop.expected


# -- many tables ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["file", "bytes"])
def test_many_tables_come_as_an_envelope(shop: Shop, query: Callable[..., Engine], form: str) -> None:
    with query(tables=r"shop\..*", transport=form) as engine:
        engine.start()
        engine.step()
        shop.orders.insert({"id": 1, "note": "a"})
        shop.fake.ddl("TRUNCATE TABLE orders", "shop")
        shop.other.insert({"id": 2})
        shop.other.update({"id": 2}, {"note": "é"})
        rows = engine.until(4)
        before = [row for row in rows if row["_op"] != "T"]
        engine.stop()
        engine.offsets, engine.committed, engine.sink = [engine.offsets[0], engine.offsets[-1]], 1, {0: []}
        engine.start()
        engine.step()
        assert engine.rows == before
    assert [(row["_op"], row["table"], row["data"], row["old"], row["sql"]) for row in rows] == [
        ("I", "orders", '{"id":"1","note":"a"}', None, None), ("Q", "orders", None, None, "TRUNCATE TABLE orders"),
        ("I", "other", '{"id":"2","note":null}', None, None), ("U", "other", '{"id":"2","note":"é"}', '{"note":null}', None),
    ]  # fmt: skip


# -- the spool -------------------------------------------------------------------------------------------------------------------


def test_what_a_killed_runner_left_is_removed_and_a_living_one_is_left_alone(
    shop: Shop, query: Callable[..., Engine], tmp_path: Path
) -> None:
    with query() as one:
        one.start()
        one.step()
        root = tmp_path / "spool"
        (alive,) = (path for path in root.iterdir() if path.is_dir())
        dead = root / f"{alive.name.rpartition('-')[0]}-dead"
        dead.mkdir()
        (dead / "00000001").write_bytes(b"x")
        dead.with_name(dead.name + ".lock").touch()
        with query() as two:
            two.start()
            two.step()
            assert not dead.exists()
            assert alive.exists()
        shop.insert(1)
        one.until(1)


def test_what_a_killed_runner_left_under_another_host_name_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once where only this machine can have made it, else when nobody has touched it for a day: it may live elsewhere."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    shared = tmp_path / "shared"
    for root in (None, str(shared)):
        Spool(root).close()
        parent = Path(root or tmp_path / f"canal-spool-{os.getuid()}")
        left = [parent / f"{name}-77-abc" for name in ("old-name", "old-name-too")]
        for directory in left:
            directory.mkdir()
            directory.with_name(directory.name + ".lock").touch()
        if root:
            os.utime(f"{left[0]}.lock", (0, 0))
        spool = Spool(root)
        assert [directory.exists() for directory in left] == [False, root is not None]
        os.utime(f"{spool.directory}.lock", (0, 0))
        spool._touched -= 7200
        spool.release(0)  # as every poll does
        monkeypatch.setattr("socket.gethostname", lambda: "new-name")
        Spool(root).close()
        assert spool.directory.exists()
        spool.close()


def test_the_spool_is_private(shop: Shop, query: Callable[..., Engine], tmp_path: Path) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        assert os.stat(tmp_path / "spool").st_mode & 0o77 == 0


@pytest.mark.parametrize("kind", ["open to all", "a link"])
def test_a_spool_where_others_can_write_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    parent = tmp_path / f"canal-spool-{os.getuid()}"
    Spool(None).close()
    parent.rmdir()
    if kind == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        parent.symlink_to(tmp_path / "elsewhere")
    else:
        parent.mkdir()
        parent.chmod(0o777)
    with pytest.raises(ConfigError, match="not this user's alone"):
        Spool(None)


# -- another server ----------------------------------------------------------------------------------------------------------


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] // 1000 for row in rows]


@pytest.fixture
def pair() -> Pair:
    return Pair()


def wait_no_longer(engine: Engine, options: Any = None) -> Any:
    """Have the reader wait for nothing that another server has not got yet, or again as ``options`` say. What they were."""
    assert engine.reader is not None
    runner = engine.reader._runner
    before = runner._options
    runner._options = options or attrs.evolve(before, start_timeout=0.0)
    return before


def test_a_batch_that_is_read_again_at_another_server_holds_the_same_transactions(pair: Pair, tmp_path: Path) -> None:
    """Its log has them in another order: those of later batches are held back, and come later."""
    with contextlib.ExitStack() as stack:
        engine, (first, second) = served(pair, tmp_path, stack)
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        pair.write(0, 2, 3)
        engine.receive(pair.shops[0].fake.position)
        engine.plan_next()
        assert len(engine.run()) == 2
        engine.stop()  # the batch of 2 and 3 is planned
        pair.write(1, 4, 1, 3, 5, 2, 6)
        engine.start(**second)
        assert engine.step()
        assert sorted(ids(engine.sink[len(engine.offsets) - 1])) == [2, 3]
        engine.until(6)
        assert sorted(ids(engine.rows)) == [1, 2, 3, 4, 5, 6]
        epochs = {row["id"] // 1000: row["_txn"] >> 58 for row in engine.rows}
        assert epochs == {1: 0, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1}
        assert json.loads(engine.offsets[-1])["ep"] == 1
        engine.stop()
        pair.write(1, 7)
        pair.write(0, 5, 4, 6, 8, 7)
        engine.start(**first)
        engine.until(8)
        assert sorted(ids(engine.rows)) == [1, 2, 3, 4, 5, 6, 7, 8]
        assert engine.rows[-1]["_txn"] >> 58 == 2


@pytest.mark.parametrize("how", ["planned", "available now"])
def test_the_last_transaction_at_another_server_is_read_to_its_end_however_it_comes(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its GTID, which ends the batch, comes before its rows, and each event by itself."""
    read, left = MySQLConnection.read, dict[Any, list[bytes]]()

    def one_event(connection: MySQLConnection, timeout: float) -> list[bytes] | None:
        if not left.get(connection):
            found = read(connection, timeout)
            if not found:
                return found
            left[connection] = found
        return [left[connection].pop(0)]

    with contextlib.ExitStack() as stack:
        engine, (first, second) = served(pair, tmp_path, stack)
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        pair.write(0, 2, 3, size=20)
        engine.receive(pair.shops[0].fake.position)
        if how == "planned":
            engine.plan_next()
            assert len(engine.run()) == 40
        engine.stop()
        pair.write(1, 1)
        pair.write(1, 2, 3, size=20)
        pair.write(1, 4)
        monkeypatch.setattr(MySQLConnection, "read", one_event)
        if how == "planned":
            engine.start(**second)
            assert engine.step()
        else:
            proxy = stack.enter_context(FaultProxy(first["host"], first["port"]))
            engine.start(available_now=True, host="127.0.0.1", port=proxy.port)
            proxy.retarget(second["host"], second["port"])
            proxy.cut()
            while engine.step():
                pass
        assert ids(engine.rows) == [1, *[2] * 20, *[3] * 20]


def test_a_batch_over_a_change_of_the_server_is_read_again_by_gtid(pair: Pair, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        engine, (_, second) = served(pair, tmp_path, stack)
        engine.options["maxRowsPerBatch"] = "1"
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        before = len(engine.offsets)
        pair.write(0, 2)
        engine.until(2)
        engine.stop()
        pair.write(1, 1, 3, 2, 4)
        engine.start(**second)
        engine.until(3)
        engine.stop()
        # As if one batch had held 2 of the first server and 3 of the second, in whose log 2 lies behind the batch's end.
        offsets = engine.offsets
        engine.offsets, engine.committed, engine.sink = [offsets[before - 1], offsets[-1]], 1, {}
        engine.start()
        engine.step()
        assert sorted(ids(engine.rows)) == [2, 3]


def test_without_gtids_a_batch_cannot_be_read_again_at_another_server(tmp_path: Path) -> None:
    pair = Pair(gtid=False)
    with contextlib.ExitStack() as stack:
        engine, (_, second) = served(pair, tmp_path, stack)
        pair.write(0, 1)
        engine.start()
        engine.step()
        engine.plan_next()
        engine.stop()
        pair.write(1, 1)
        engine.start(**second)
        engine.plan()
        with pytest.raises(PositionLostError, match="is one of server"):
            engine.run()


def test_a_part_of_a_transaction_cannot_be_read_again_at_another_server(pair: Pair, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        engine, (_, second) = served(pair, tmp_path, stack)
        engine.options["maxTransactionBytes"] = engine.options["maxBytesPerBatch"] = "10k"
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        pair.write(0, 2, size=100)
        engine.plan_next()
        assert json.loads(engine.offsets[-1])["position"]["row"]
        engine.stop()
        pair.write(1, 1)
        pair.write(1, 2, size=100)
        engine.start(**second)
        engine.plan()
        with pytest.raises(PositionLostError, match="inside a transaction of another server"):
            engine.run()


def test_a_server_that_becomes_another_one_under_the_stream_costs_nothing(pair: Pair, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        engine, (first, second) = served(pair, tmp_path, stack)
        proxy = stack.enter_context(FaultProxy(first["host"], first["port"]))
        engine.options["host"], engine.options["port"] = "127.0.0.1", str(proxy.port)
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        pair.write(0, 2)
        engine.until(2)
        pair.write(1, 1, 3, 2, 4)
        proxy.retarget(second["host"], second["port"])
        proxy.cut()
        engine.until(4)
        assert ids(engine.rows) == [1, 2, 3, 4]
        assert [row["_txn"] >> 58 for row in engine.rows] == [0, 0, 1, 1]
        assert [json.loads(offset)["ep"] for offset in (engine.offsets[0], engine.offsets[-1])] == [0, 1]


def test_without_gtids_a_server_that_becomes_another_one_is_an_error(tmp_path: Path) -> None:
    """Its log is read from some time before, so what comes may have come already."""
    pair = Pair(gtid=False)
    with contextlib.ExitStack() as stack:
        engine, (first, second) = served(pair, tmp_path, stack)
        proxy = stack.enter_context(FaultProxy(first["host"], first["port"]))
        engine.options["host"], engine.options["port"] = "127.0.0.1", str(proxy.port)
        pair.write(0, 1, 2)
        engine.start()
        engine.until(2)
        pair.write(1, 1, 3, 2, 4)
        proxy.retarget(second["host"], second["port"])
        proxy.cut()
        with pytest.raises(PositionLostError, match="another server.*without GTIDs"):
            engine.until(3)
        assert ids(engine.rows) == [1, 2]


def test_available_now_keeps_what_another_server_has_in_another_order(pair: Pair, tmp_path: Path) -> None:
    """The server changes after the end was taken: what its log has before that end cannot be passed over."""
    with contextlib.ExitStack() as stack:
        engine, (first, second) = served(pair, tmp_path, stack)
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        engine.stop()
        pair.write(0, 2, 3)
        pair.write(1, 4, 1, 3, 5, 2, 6)
        proxy = stack.enter_context(FaultProxy(first["host"], first["port"]))
        engine.start(available_now=True, host="127.0.0.1", port=proxy.port)
        proxy.retarget(second["host"], second["port"])
        proxy.cut()
        while engine.step():
            pass
        assert {2, 3} <= set(ids(engine.rows))
        engine.stop()
        engine.start(**second)
        assert sorted(ids(engine.until(6))) == [1, 2, 3, 4, 5, 6]


def test_available_now_whose_end_another_server_has_not_got_is_an_error(pair: Pair, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        engine, (first, second) = served(pair, tmp_path, stack)
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        engine.stop()
        pair.write(0, 2, 3)
        pair.write(1, 1, 2)
        proxy = stack.enter_context(FaultProxy(first["host"], first["port"]))
        engine.start(available_now=True, host="127.0.0.1", port=proxy.port)
        proxy.retarget(second["host"], second["port"])
        proxy.cut()
        while len(engine.rows) < 2:
            assert engine.step()
        assert ids(engine.rows) == [1, 2]
        wait_no_longer(engine)
        with pytest.raises(PositionLostError, match="lacks transactions"):
            while engine.step():
                pass
        assert ids(engine.rows) == [1, 2]


def test_a_batch_whose_end_another_server_has_not_got_is_an_error(pair: Pair, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        engine, (_, second) = served(pair, tmp_path, stack)
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        pair.write(0, 2, 3)
        while not engine.plan():
            pass
        engine.stop()
        pair.write(1, 1)
        engine.start(**second)
        options = wait_no_longer(engine)
        with pytest.raises(PositionLostError, match="lacks transactions"):
            engine.run()
        pair.write(1, 3, 2)
        wait_no_longer(engine, options)
        engine.run()
        assert set(ids(engine.sink[len(engine.offsets) - 1])) <= {2, 3}


# -- the order of the log ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backlog", [0, 1])
def test_the_place_of_latest_counts_where_its_gtid_set_is_behind(shop: Shop, query: Callable[..., Engine], backlog: int) -> None:
    """Live, planned and read again, from the checkpoint, as AvailableNow and as a backlog of files."""
    shop.insert(1)
    before = shop.fake.executed
    shop.insert(2)
    shop.insert(1)
    with query(startingPosition=told(shop, before), backlogFiles=backlog) as engine:
        engine.start()
        engine.step()
        engine.plan()  # nothing
        assert engine.rows == []
        engine.stop()
        engine.start(available_now=True)
        assert not engine.step()
        engine.stop()
        shop.expected.clear()
        shop.insert(2)
        if backlog:
            shop.fake.rotate()
        shop.insert(1)
        for _ in range(2):
            engine.start()
            engine.until(3)
            assert seen(engine.rows) == shop.expected
            engine.stop()
            engine.committed = 1  # the same batches again, cold
            engine.sink.clear()
            engine.offsets[1:] = engine.offsets[-1:]


def test_a_batch_behind_latest_that_was_planned_with_what_lies_before_is_the_same_cold(
    shop: Shop, query: Callable[..., Engine]
) -> None:
    """The transaction that the GTID set lacks is in no batch, though the batch's end has it."""
    shop.insert(1)
    before = shop.fake.executed
    shop.insert(1)
    with query(startingPosition=told(shop, before), idleAdvance="0") as engine:
        engine.start()
        engine.step()
        shop.other.insert({"id": 1})
        while not engine.plan():
            pass
        assert engine.run() == []
        engine.stop()
        engine.start()
        engine.plan()
        assert engine.run() == []
        assert engine.partitions[1]


def test_a_range_from_such_a_place_begins_there(shop: Shop, query: Callable[..., Engine]) -> None:
    shop.insert(1)
    before = shop.fake.executed
    shop.insert(1)
    start = told(shop, before)
    shop.insert(2)
    options = {**query(startingPosition=start).options}
    source = CanalSource(options)
    reader = source.reader(source.schema())
    assert seen(rows_of(reader, reader.partitions(), source.schema())) == shop.expected[2:]


def test_a_place_of_nobody_knows_whom_is_where_its_gtid_set_is(shop: Shop, query: Callable[..., Engine]) -> None:
    shop.insert(1)
    place = Position.from_text(told(shop, shop.fake.executed))
    shop.insert(1)
    start = Position(journal=place.journal, offset=shop.fake.journals[-1][1], gtid=place.gtid)
    with query(startingPosition=start.to_text()) as engine:
        engine.start()
        engine.until(1)
        engine.stop()
        engine.committed = 1
        engine.sink.clear()
        engine.start()
        assert seen(engine.until(1)) == shop.expected[1:]


@pytest.mark.parametrize("full", [True, False])
@both
def test_files_of_another_name_go_on_in_the_next_epoch(
    shop: Shop, query: Callable[..., Engine], full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not full:  # as if the columns had to be searched for: a batch is one stretch
        monkeypatch.setattr("canal.spark.stretch.tells_columns", lambda _: False)
    for _ in range(3):
        shop.fake.rotate()
    shop.insert(2)
    with query() as engine:
        engine.start()
        engine.until(2)
        begin = len(engine.offsets)
        shop.insert(2)
        shop.fake.rotate()
        rename(shop, "renamed")
        shop.insert(1)
        shop.fake.rotate()
        shop.insert(3)
        rows = [*engine.until(8)]
        assert seen(rows) == shop.expected
        assert [row["_txn"] >> 58 for row in rows] == [0, 0, 0, 0, 1, 1, 1, 1]
        assert [row["_txn"] for row in rows] == sorted(row["_txn"] for row in rows)
        assert json.loads(engine.offsets[-1])["ep"] == 1
        for end in range(begin, len(engine.offsets)):  # each batch, and all of them as one, cold
            for first in (begin - 1, end - 1):
                engine.stop()
                again = Engine(engine.options)
                again.offsets, again.committed = [engine.offsets[first], engine.offsets[end]], 1
                with again:
                    again.start()
                    again.step()
                    assert again.rows == [row for n in range(first + 1, end + 1) for row in engine.sink[n]]


@both
def test_a_batch_before_files_of_another_name_ends_though_nothing_comes_behind_it(
    shop: Shop, query: Callable[..., Engine]
) -> None:
    with query(backlogFiles=0) as engine:
        engine.start()
        shop.insert(2)
        engine.until(2)
        engine.stop()
        rename(shop, "renamed")
        engine.committed -= 1
        engine.sink.clear()
        engine.start()
        assert seen(engine.until(2)) == shop.expected


def test_a_real_server_whose_log_gets_another_name(own_server: ThrowawayServer, tmp_path: Path) -> None:
    server, options = own_server, own_server.options
    server.restart(*options, "--log-bin-index=binlog.index")
    server.query("CREATE DATABASE shop")
    server.query("CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(20))")
    for _ in range(3):
        server.query("FLUSH BINARY LOGS")
    given = {
        "host": server.host, "port": server.port, "user": server.user, "password": server.password, "table": "shop.orders",
        "startingPosition": "earliest", "spoolDir": tmp_path / "spool", "transport": "file",
    }  # fmt: skip
    with Engine(given) as engine, Engine({**given, "backlogFiles": 0}) as cold:
        engine.start()
        for number in range(2):
            server.query(f"INSERT INTO shop.orders VALUES ({number}, 'old')")
        engine.until(2)
        server.restart(*options, "--log-bin-index=binlog.index", f"--log-bin={server.data_dir / 'renamed'}")
        for number in range(2, 4):
            server.query(f"INSERT INTO shop.orders VALUES ({number}, 'new')")
        engine.until(4)
        assert [row["id"] for row in engine.rows] == [0, 1, 2, 3]
        assert [row["_txn"] >> 58 for row in engine.rows] == [0, 0, 1, 1]
        assert {name.partition(".")[0] for name, *_ in server.query("SHOW BINARY LOGS")} == {"binlog", "renamed"}
        cold.start()
        cold.step()
        cold.offsets.append(engine.offsets[-1])
        cold.run()
        assert cold.rows == engine.rows


def test_a_backlog_of_files_of_two_names(shop: Shop, query: Callable[..., Engine]) -> None:
    for base, number in (("binlog", 0), ("renamed", 1), ("binlog", 5)):
        if number:
            rename(shop, base, number)
        for _ in range(3):
            shop.insert(2)
            shop.fake.rotate()
    with query(maxFilesPerBatch=5) as engine, query(backlogFiles=0) as whole:
        engine.start()
        whole.start()
        assert seen(engine.until(18)) == shop.expected
        assert any(isinstance(part.what, Stretch) for parts in engine.partitions.values() for part in parts)
        assert whole.until(18) == engine.rows
        assert engine.offsets[-1] == whole.offsets[-1]
        assert [row["_txn"] >> 58 for row in engine.rows] == [0] * 6 + [1] * 6 + [2] * 6
        engine.stop()
        engine.start(available_now=True)
        while engine.step():
            pass
        assert len(engine.rows) == 18


def test_a_log_that_was_begun_anew_under_its_gtids_is_an_error(pair: Pair, tmp_path: Path) -> None:
    """As after RESET BINARY LOGS AND GTIDS with gtid_purged set: what comes is behind nothing that was numbered."""
    with contextlib.ExitStack() as stack:
        engine, ways = served(pair, tmp_path, stack)
        for _ in range(3):
            pair.shops[0].fake.rotate()
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        engine.stop()
        pair.shops[1].fake.uuid = pair.shops[0].fake.uuid
        pair.write(1, 1, 2)
        engine.start(**ways[1])
        with pytest.raises(PositionLostError, match="its log begins at binlog.000001 again"):
            engine.until(2)
        assert ids(engine.rows) == [1]


# -- files that grow ----------------------------------------------------------------------------------------------------


def test_binlog_files_are_followed(shop: Shop, tmp_path: Path) -> None:
    logs, options = tmp_path / "logs", {"table": "shop.orders", "startingPosition": "earliest", "pollTimeout": "1"}
    shop.insert(3)
    shop.fake.write(logs)
    with Engine({**options, "path": logs, "spoolDir": tmp_path / "spool"}) as engine:
        engine.start()
        engine.until(3)
        shop.insert(2)
        shop.fake.rotate()
        shop.insert(1)
        shop.fake.write(logs)
        engine.until(6)
        engine.stop()
        shop.insert(1)
        shop.fake.write(logs)
        engine.start(available_now=True)
        while engine.step():
            pass
        assert seen(engine.rows) == shop.expected


def test_files_that_end_before_a_planned_batch_are_an_error(shop: Shop, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shop.insert(1)
    end = shop.fake.journals[-1][1]
    shop.insert(2)
    shop.fake.write(logs)
    options = {"table": "shop.orders", "startingPosition": "earliest", "pollTimeout": "1", "spoolDir": tmp_path / "spool"}
    with Engine({**options, "path": logs}) as engine:
        engine.start()
        engine.step()
        while len(engine.rows) < 3:
            engine.plan()
            engine.run()
        engine.stop()
        journal = next(path for path in logs.iterdir() if path.suffix == ".000001")
        journal.write_bytes(journal.read_bytes()[:end])
        engine.start()
        engine.plan()
        with pytest.raises(PositionLostError, match="the log ends at"):
            engine.run()


def test_a_full_disk_ends_the_query_with_what_to_do(
    shop: Shop, query: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with query() as engine:
        engine.start()
        engine.step()
        monkeypatch.setattr("canal.spark.segments.SegmentWriter._write", full)
        shop.insert(1)
        with pytest.raises(StoreError, match="No space left.*spoolDir"):
            engine.until(1)
        monkeypatch.undo()
        engine.stop()
        engine.start()
        engine.until(1)


# -- what makes a stretch of the log hard to read by itself ------------------------------------------------------------


def test_xa_transactions_over_the_ends_of_files_and_batches(shop: Shop, query: Callable[..., Engine]) -> None:
    """Rows come at XA COMMIT, also where the file of a stretch begins after XA PREPARE."""
    with query(maxFilesPerBatch=1) as backlog, query(backlogFiles=0) as live:
        live.start()
        live.step()
        for number in range(3):
            with shop.fake.transaction(end="PREPARE", xa=f"x{number}"):
                shop.orders.insert({"id": 100 + number, "note": "xa"})
            shop.insert(1)
            live.until(2 * number + 1)
            shop.fake.rotate()
            live.stop()
            live.start()
            shop.fake.xa_commit(f"x{number}")
            shop.fake.rotate()
            live.until(2 * number + 2)
        backlog.start()
        assert backlog.until(6) == live.rows
        assert [row["id"] for row in live.rows] == [0, 100, 1, 101, 2, 102]


@pytest.mark.lines("mariadb")
def test_a_log_that_does_not_name_its_columns(own_server: ThrowawayServer, tmp_path: Path) -> None:
    server = own_server
    server.query("SET GLOBAL binlog_row_metadata = MINIMAL")
    server.query("CREATE DATABASE shop")
    server.query("CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(20))")
    options = {
        "host": server.host, "port": server.port, "user": server.user, "password": server.password, "table": "shop.orders",
        "startingPosition": "earliest", "spoolDir": tmp_path / "spool", "historyDir": tmp_path / "history",
    }  # fmt: skip
    with Engine(options) as engine:
        engine.start()
        server.query("INSERT INTO shop.orders VALUES (1, 'a')")
        engine.until(1)
        for number in range(2, 5):
            server.query(f"INSERT INTO shop.orders VALUES ({number}, 'b')")
            server.query("FLUSH BINARY LOGS")
        engine.stop()
        engine.start()
        while not engine.plan():
            pass
        engine.run()
        engine.stop()  # before the commit
        former = FileHistory(tmp_path / "history")  # of a process that is slow to end
        former.open("spark")
        threading.Timer(2.5, former.close).start()
        engine.start()
        assert [(row["id"], row["note"]) for row in engine.until(4)] == [(1, "a"), (2, "b"), (3, "b"), (4, "b")]
        server.query("ALTER TABLE shop.orders ADD more INT FIRST")
        server.query("INSERT INTO shop.orders VALUES (7, 5, 'c')")
        with pytest.raises(SchemaError, match="more is new"):
            engine.until(5)
        engine.stop()
        engine.start()
        row = engine.until(5)[-1]
        assert (row["more"], row["id"], row["note"]) == (7, 5, "c")


def test_columns_that_mariadb_hides_are_those_of_the_stream(
    mariadb_server: ThrowawayServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The hash of a long UNIQUE key, and the times of rows of a table with versions."""
    server, database = mariadb_server, f"hidden_{os.getpid()}"
    server.query(f"CREATE DATABASE {database}")
    request.addfinalizer(lambda: server.query(f"DROP DATABASE {database}"))
    server.query(f"CREATE TABLE {database}.hashed (id INT PRIMARY KEY, note TEXT, UNIQUE (note))")
    server.query(f"CREATE TABLE {database}.versions (id INT PRIMARY KEY, note TEXT) WITH SYSTEM VERSIONING")
    server.query(
        f"CREATE TABLE {database}.named (id INT, note TEXT, a TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "
        "b TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (a, b), UNIQUE (note)) WITH SYSTEM VERSIONING"
    )
    for table in ("hashed", "versions", "named"):
        given = {
            "host": server.host, "port": server.port, "user": server.user, "password": server.password,
            "table": f"{database}.{table}", "spoolDir": tmp_path / "spool", "transport": "file", "backlogFiles": 0,
        }  # fmt: skip
        with Engine(given) as engine:
            engine.start()
            engine.step()
            server.query(f"INSERT INTO {database}.{table} (id, note) VALUES (1, 'a')")
            server.query(f"UPDATE {database}.{table} SET note = 'b'")
            server.query(f"DELETE FROM {database}.{table}")
            found = engine.until(4 if table != "hashed" else 3)
            assert [(row["_op"], row["note"]) for row in found if row["_op"] != "I"][0] == ("U", "b")
            ours = {"_op", "_txn", "_ord", "_ts", "_gtid", "_before", "_absent", "_exact", "id", "note"}
            assert found[0].keys() - ours
            assert not found[0]["_absent"]


def test_a_backlog_of_a_real_server_is_the_same_by_stretches_and_from_the_spool(
    server: ThrowawayServer, database: str, tmp_path: Path
) -> None:
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, note VARCHAR(2000), at TIMESTAMP(3) NULL)")
    server.query("FLUSH BINARY LOGS")
    status = "SHOW BINARY LOG STATUS" if server.kind == "mysql" else "SHOW MASTER STATUS"
    journal, offset = server.query(status)[0][:2]
    for number in range(4):
        values = ", ".join(f"({100 * number + n}, REPEAT('é', {n * 9}), NOW(3))" for n in range(100))
        server.query(f"INSERT INTO {database}.t VALUES {values}")
        server.query(f"UPDATE {database}.t SET note = NULL WHERE id % 7 = {number}")
        server.query("FLUSH BINARY LOGS")
    server.query(f"DELETE FROM {database}.t WHERE id < 50")
    options = {
        "host": server.host, "port": server.port, "user": server.user, "password": server.password, "table": f"{database}.t",
        "startingPosition": f"{journal}:{offset}", "spoolDir": tmp_path / "spool", "transport": "file",
    }  # fmt: skip
    found = []
    for backlog_files in (2, 0):
        with Engine({**options, "backlogFiles": backlog_files}) as engine:
            engine.start(available_now=True)
            while engine.step():
                pass
            kinds = {type(partition.what) for partitions in engine.partitions.values() for partition in partitions}
            assert (Stretch in kinds) == bool(backlog_files)
            found.append(engine.rows)
    assert found[0] == found[1]
    assert len(found[0]) > 450


# -- bounded ranges -----------------------------------------------------------------------------------------------------


def test_a_range_by_gtid_needs_the_gtids_of_its_start(shop: Shop, query: Callable[..., Engine]) -> None:
    """Else its end would never be reached."""
    shop.insert(2)
    options = query().options
    connection = CanalSource(options)._parsed.source.connect()
    first = connection.resolve("latest")
    shop.insert(2)
    last = connection.resolve("latest")
    shop.insert(2)
    connection.close()

    def read(start: str) -> list[dict[str, Any]]:
        source = CanalSource({**options, "startingPosition": start, "endingPosition": last.gtid})
        reader = source.reader(source.schema())
        return rows_of(reader, reader.partitions(), source.schema())

    assert seen(read(first.gtid)) == shop.expected[2:4]
    assert seen(read(f"{first.journal}:4")) == shop.expected[:4]
    with pytest.raises(ConfigError, match="GTIDs are not known"):
        read(f"{first.journal}:{first.offset}")
