"""A table as it is and then its changes, in one stream, read as Spark reads it, from real servers under load."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from canal.errors import ConfigError
from canal.spark.options import parse_options
from canal.spark.source import CanalSource
from canal.testing.servers import ThrowawayServer
from tests.spark.engine import Engine, rows_of

_names = itertools.count(1)


class Shop:
    """A table, and a writer that inserts, updates, deletes and changes keys for as long as it is asked to."""

    def __init__(self, server: ThrowawayServer) -> None:
        self.server, self.name = server, f"snap_{next(_names)}"
        server.query(f"CREATE DATABASE {self.name}")
        server.query(f"CREATE TABLE {self.name}.orders (id INT PRIMARY KEY, note VARCHAR(20))")
        values = ",".join(f"({2 * number},'old')" for number in range(500))
        server.query(f"INSERT INTO {self.name}.orders VALUES {values}")
        self.stopping = threading.Event()
        self.writer = threading.Thread(target=self._write)

    def _write(self) -> None:
        table = f"{self.name}.orders"
        with self.server.connect(autocommit=True) as session, session.cursor() as cursor:
            for number in itertools.count(1):
                if self.stopping.wait(0.002):
                    return
                cursor.execute(f"REPLACE INTO {table} VALUES ({number * 37 % 1000}, 'new {number}')")
                cursor.execute(f"UPDATE IGNORE {table} SET id = id + 1 WHERE id = {number * 53 % 1000}")
                cursor.execute(f"DELETE FROM {table} WHERE id = {number * 71 % 1000}")

    def options(self, **more: Any) -> dict[str, Any]:
        server = self.server
        return {
            "host": server.host, "port": server.port, "user": server.user, "password": server.password,
            "table": f"{self.name}.orders", "chunkRows": 50, "chunksPerBatch": 3, "pollTimeout": 0.1, **more,
        }  # fmt: skip

    def rows(self) -> dict[int, str]:
        return dict(self.server.query(f"SELECT id, note FROM {self.name}.orders"))


@pytest.fixture
def shop(server: ThrowawayServer) -> Iterator[Shop]:
    made = Shop(server)
    made.writer.start()
    yield made
    made.stopping.set()
    made.writer.join()
    server.query(f"DROP DATABASE {made.name}")


def fold(rows: list[dict[str, Any]]) -> dict[int, str]:
    """The table that the rows make, in their order."""
    found: dict[int, str] = {}
    for row in sorted(rows, key=lambda row: (row["_txn"], row["_ord"])):
        if row["_op"] == "U":
            found.pop(row["_before"]["id"], None)
        if row["_op"] == "D":
            found.pop(row["id"], None)
        else:
            found[row["id"]] = row["note"]
    return found


def until_equal(engine: Engine, shop: Shop, most: int = 100) -> None:
    shop.stopping.set()
    shop.writer.join()
    for _ in range(most):
        engine.step()
        if fold(engine.rows) == shop.rows():
            return
    raise AssertionError(f"{len(fold(engine.rows))} rows, the table has {len(shop.rows())}, {len(engine.offsets)} batches")


def test_the_snapshot_and_the_changes_make_the_table(shop: Shop) -> None:
    with Engine(shop.options(snapshot="initial")) as engine:
        engine.start()
        for _ in range(6):
            engine.step()
        assert {row["_op"] for row in engine.sink[1]} == {"r"}
        assert len(engine.partitions[1]) == 3
        until_equal(engine, shop)
    ops = [{row["_op"] for row in engine.sink[number]} for number in sorted(engine.sink)]
    last = max(number for number, some in enumerate(ops) if "r" in some)
    assert all(some <= {"r"} for some in ops[: last + 1])  # all of the snapshot comes before any change


@pytest.mark.parametrize("planned", [1, 2, 3, 9])
def test_a_restart_goes_on_in_the_middle_of_the_snapshot(shop: Shop, planned: int) -> None:
    """Once between the log of offsets and the sink, once between the sink and the commit, at each stage."""
    with Engine(shop.options(snapshot="initial")) as engine:
        engine.start()
        for _ in range(planned):
            engine.step()
        for run in (False, True):
            while not engine.plan():
                pass
            if run:
                engine.run()
            engine.stop()
            engine.start()
            engine.step()
        assert engine.committed == len(engine.offsets)
        until_equal(engine, shop)
    plans = {str(offset) for offset in engine.offsets if '"snap"' in offset}
    assert len({text.partition('"plan"')[2] for text in plans}) == 1  # the one that was made first


def test_available_now_reads_the_snapshot_and_what_was_in_the_log_and_ends(shop: Shop) -> None:
    shop.stopping.set()
    shop.writer.join()
    with Engine(shop.options(snapshot="initial")) as engine:
        engine.start(available_now=True)
        while engine.step():
            pass
        assert fold(engine.rows) == shop.rows()
        shop.server.query(f"INSERT INTO {shop.name}.orders VALUES (5001, 'later')")
        engine.stop()
        engine.start(available_now=True)
        while engine.step():
            pass
        assert fold(engine.rows) == shop.rows()


def test_a_batch_of_a_snapshot_keeps_to_the_limit_of_rows(shop: Shop) -> None:
    with Engine(shop.options(snapshot="initial", maxRowsPerBatch=100, chunksPerBatch=100)) as engine:
        engine.start()
        for _ in range(3):
            engine.step()
        assert 1 <= len(engine.partitions[1]) < 6


def test_an_empty_table_is_a_snapshot_of_nothing(server: ThrowawayServer) -> None:
    name = f"snap_{next(_names)}"
    server.query(f"CREATE DATABASE {name}")
    server.query(f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, note VARCHAR(20))")
    options = {"host": server.host, "port": server.port, "user": server.user, "password": server.password,
               "table": f"{name}.orders", "snapshot": "initial", "pollTimeout": 0.1}  # fmt: skip
    with Engine(options) as engine:
        engine.start()
        engine.step()
        server.query(f"INSERT INTO {name}.orders VALUES (1, 'a')")
        engine.until(1)
    server.query(f"DROP DATABASE {name}")


def test_a_bounded_read_of_the_table(shop: Shop) -> None:
    shop.stopping.set()
    shop.writer.join()
    source = CanalSource({name: str(value) for name, value in shop.options(mode="snapshot").items()})
    reader = source.reader(source.schema())
    partitions = reader.partitions()
    rows = rows_of(reader, partitions, source.schema())
    assert len(partitions) > 3
    assert {row["_op"] for row in rows} == {"r"}
    assert sorted((row["id"], row["note"]) for row in rows) == sorted(shop.rows().items())


@pytest.mark.parametrize(
    "more", [{"snapshot": "initial", "startingPosition": "earliest"}, {"snapshot": "initial", "path": "/binlogs"},
             {"mode": "snapshot", "tables": "shop[.].*"}, {"snapshot": "initial", "instance": "shop"}],
)  # fmt: skip
def test_a_snapshot_of_what_has_none_is_refused(more: dict[str, str]) -> None:
    server = {} if {"path", "instance"} & more.keys() else {"host": "h", "user": "u", "password": "p"}
    table = {} if "tables" in more else {"table": "a.b"}
    with pytest.raises(ConfigError):
        parse_options({**server, **table, **more})
