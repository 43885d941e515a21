"""Ranges of the log that are hard to read by themselves, of files, of real servers, and over prepared XA."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canal.errors import ConfigError, PositionLostError, SchemaError, StoreError
from canal.parse.schema.history import FileHistory
from canal.spark.source import CanalSource
from canal.spark.stream.stretch import Stretch
from canal.testing.servers import ThrowawayServer
from tests.support.engine import Engine, rows_of
from tests.support.shop import Shop, seen

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


@pytest.mark.parametrize("shop", ["mysql", "mariadb"], indirect=True)
@pytest.mark.parametrize("part", [1, 2])
def test_files_that_are_begun_anew_between_plan_and_task_are_an_error(
    part: int, query: Callable[..., Engine], shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task has read its file when the log is reset; for the next there is a file of the same name with other changes."""
    now = [1_700_000_000.0]
    monkeypatch.setattr(shop.fake, "clock", lambda: now[0])

    def write(table: Any) -> None:
        for number in range(4):
            table.insert({"id": shop.next + number, "note": "x"})
            shop.fake.rotate()
        shop.next += 4

    write(shop.orders)
    with query(maxFilesPerBatch=3) as engine:
        engine.start()
        engine.step()
        assert engine.plan()
        partitions = engine.reader.partitions(*map(json.loads, engine.offsets[-2:]))  # type: ignore[union-attr]
        assert [type(one.what) for one in partitions] == [Stretch] * 3
        assert len(rows_of(engine.reader, partitions[:1], engine.struct)) == 1
        now[0] += 60
        shop.fake.reset()
        write(shop.other)
        with pytest.raises(PositionLostError, match=r"binlog\.00000\d"):
            rows_of(engine.reader, partitions[part : part + 1], engine.struct)


def test_a_full_disk_ends_the_query_with_what_to_do(
    shop: Shop, query: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with query() as engine:
        engine.start()
        engine.step()
        monkeypatch.setattr("canal.spool.segments.SegmentWriter._write", full)
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
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "table": "shop.orders",
        "startingPosition": "earliest",
        "spoolDir": tmp_path / "spool",
        "historyDir": tmp_path / "history",
    }
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
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": server.password,
            "table": f"{database}.{table}",
            "spoolDir": tmp_path / "spool",
            "transport": "file",
            "backlogFiles": 0,
        }
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
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "table": f"{database}.t",
        "startingPosition": f"{journal}:{offset}",
        "spoolDir": tmp_path / "spool",
        "transport": "file",
    }
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
