"""Where a query stands in a log whose GTID set is behind, or whose files get another name or begin anew."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from canal.errors import PositionLostError
from canal.position import Position
from canal.spark.source import CanalSource
from canal.spark.stream.stretch import Stretch
from canal.testing.servers import ThrowawayServer
from tests.support.engine import Engine, rows_of
from tests.support.shop import Pair, Shop, both, ids, rename, seen, served, told

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
    position = Position.from_text(told(shop, shop.fake.executed))
    shop.insert(1)
    start = Position(journal=position.journal, offset=shop.fake.journals[-1][1], gtid=position.gtid)
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
        monkeypatch.setattr("canal.spark.stream.stretch.tells_columns", lambda _: False)
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
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "table": "shop.orders",
        "startingPosition": "earliest",
        "spoolDir": tmp_path / "spool",
        "transport": "file",
    }
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
        with pytest.raises(PositionLostError, match="the log begins at binlog.000001 again"):
            engine.until(2)
        assert ids(engine.rows) == [1]
