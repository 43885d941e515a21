"""``snapshot="initial"`` on real servers: the rows that are there, while they change."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.errors import StreamMismatchError
from canal.pipes import Pipe, initial
from canal.snapshot.rows import ServerTables
from canal.targets import DeltaTarget, JSONLinesTarget, SQLiteTarget
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.live import source
from tests.support.waiting import until


def config(server: ThrowawayServer, database: str, folder: Path, **options: Any) -> canal.InstanceConfig:
    given = {"filter": rf"{database}\..*", **options}
    return canal.InstanceConfig(destination="load", source=source(server), meta=canal.FileMeta(folder / "cursors"), **given)


def rows(path: Path, table: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        try:
            return sorted(connection.execute(f'SELECT * FROM "{table}"').fetchall())
        except sqlite3.OperationalError:
            return []


def is_loaded(pipe: Pipe) -> bool:
    status = pipe.status()
    assert status.error is None, status.error
    return status.progress is not None and status.load is None and status.progress.load is None


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial, "_CHUNK_ROWS", 300)


def test_rows_of_all_tables_are_loaded_while_they_change(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY, v VARCHAR(20))")
    server.query(f"CREATE TABLE `{database}`.b (x INT, y VARCHAR(20), v INT, PRIMARY KEY (x, y))")
    server.query(f"CREATE TABLE `{database}`.empty (id INT PRIMARY KEY)")
    for first in range(0, 5000, 1000):
        server.query(f"INSERT INTO `{database}`.a VALUES " + ", ".join(f"({n}, 'v{n}')" for n in range(first, first + 1000)))
    server.query(f"INSERT INTO `{database}`.b VALUES " + ", ".join(f"({n % 7}, 'k{n}', {n})" for n in range(1000)))
    target = SQLiteTarget(tmp_path / "copy.db")
    stop = threading.Event()

    def write() -> None:
        number = 0
        with server.connect(database=database, autocommit=True) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                number += 1
                cursor.execute(f"UPDATE a SET v = 'u{number}' WHERE id = {number * 37 % 5000}")
                cursor.execute(f"DELETE FROM a WHERE id = {number * 41 % 5000}")
                cursor.execute(f"INSERT IGNORE INTO a VALUES ({number * 43 % 6000}, 'n{number}')")
                cursor.execute(f"UPDATE b SET y = 'm{number}' WHERE y = 'k{number * 13 % 1000}'")

    writer = threading.Thread(target=write)
    with canal.Instance(config(server, database, tmp_path)) as instance:
        instance.subscribe()
        writer.start()
        pipe = instance.pipe(target, snapshot="initial", batch_size=100)
        with pipe:
            try:
                until(lambda: is_loaded(pipe), 60)
            finally:
                stop.set()
                writer.join()
            until(lambda: _is_equal(server, database, tmp_path / "copy.db"), 60)


def _is_equal(server: ThrowawayServer, database: str, path: Path) -> bool:
    for table in ("a", "b"):
        found = [tuple(row) for row in server.query(f"SELECT * FROM `{database}`.{table}")]
        if sorted(found) != sorted(rows(path, table)):
            return False
    return True


def test_transactions_that_the_filter_drops_do_not_hold_up_the_rows(
    server: ThrowawayServer, database: str, tmp_path: Path
) -> None:
    """The cursor stays where it is, as nothing that it moves for comes."""
    server.query(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY)")
    server.query(f"CREATE TABLE `{database}`.other (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO `{database}`.a VALUES (1), (2)")
    options = {"filter": rf"{database}\.a"}
    with canal.Instance(config(server, database, tmp_path, **options)) as instance:
        instance.subscribe()
        for number in range(3):  # one of them is delivered as an empty transaction
            server.query(f"INSERT INTO `{database}`.other VALUES ({number})")
        server.query("FLUSH BINARY LOGS")
        with canal.pipe(instance, SQLiteTarget(tmp_path / "copy.db"), snapshot="initial") as pipe:
            until(lambda: is_loaded(pipe), 60)
    assert rows(tmp_path / "copy.db", "a") == [(1,), (2,)]


def test_a_table_without_a_key_goes_to_a_log_at_one_position(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE `{database}`.a (n INT)")
    server.query(f"INSERT INTO `{database}`.a VALUES (1), (1), (2)")
    with canal.Instance(config(server, database, tmp_path)) as instance:
        instance.subscribe()
        server.query(f"INSERT INTO `{database}`.a VALUES (3)")  # in the log, and among the rows
        with canal.pipe(instance, JSONLinesTarget(tmp_path / "log"), snapshot="initial") as pipe:
            until(lambda: is_loaded(pipe), 60)
            server.query(f"DELETE FROM `{database}`.a WHERE n = 2")
            until(lambda: len((tmp_path / "log").read_text().splitlines()) == 5, 60)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    found = [(line["op"], (line["after"] or line["before"])["n"]) for line in lines]
    assert sorted(found[:4]) == [("READ", 1), ("READ", 1), ("READ", 2), ("READ", 3)]
    assert found[4] == ("DELETE", 2)
    assert len({line["id"] for line in lines}) == 5


def test_a_table_without_a_key_is_refused_by_a_target_of_rows(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY, n INT)")
    server.query(f"CREATE TABLE `{database}`.b (id INT, n INT)")
    server.query(f"INSERT INTO `{database}`.a VALUES (1, 1)")
    target = SQLiteTarget(tmp_path / "copy.db")
    with canal.Instance(config(server, database, tmp_path)) as instance:
        instance.subscribe()
        with pytest.raises(canal.ConfigError, match=rf"{database}.b has no primary key.*Rule\(keys="):
            canal.pipe(instance, target, snapshot="initial").run()
        assert rows(tmp_path / "copy.db", "a") == []
        rules = [canal.Rule(tables=rf"{database}\.b", keys=["id"])]
        server.query(f"INSERT INTO `{database}`.b VALUES (5, 1), (6, 1)")
        with canal.pipe(instance, target, snapshot="initial", rules=rules) as pipe:
            until(lambda: is_loaded(pipe), 60)
    assert rows(tmp_path / "copy.db", "b") == [(5, 1), (6, 1)]


def test_a_target_that_has_rows_of_unknown_origin_is_refused(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY)")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as connection, connection:
        connection.execute("CREATE TABLE a (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO a VALUES (7)")
    with canal.Instance(config(server, database, tmp_path)) as instance:
        instance.subscribe()
        pipe = canal.pipe(instance, SQLiteTarget(tmp_path / "copy.db"), snapshot="initial")
        with pytest.raises(StreamMismatchError, match="has rows already"):
            pipe.run()
    assert rows(tmp_path / "copy.db", "a") == [(7,)]


def test_a_server_that_logs_parts_of_rows_is_refused(line: Line, tmp_path: Path) -> None:
    with line.server("--binlog-row-image=MINIMAL") as server:
        server.query("CREATE DATABASE d")
        server.query("CREATE TABLE d.a (id INT PRIMARY KEY)")
        with canal.Instance(config(server, "d", tmp_path)) as instance:
            instance.subscribe()
            with pytest.raises(canal.ConfigError, match="binlog_row_image"):
                canal.pipe(instance, SQLiteTarget(tmp_path / "copy.db"), snapshot="initial").run()


def test_partial_images_after_the_load_are_accepted(line: Line, tmp_path: Path) -> None:
    with line.server() as server:
        server.query("CREATE DATABASE d")
        server.query("CREATE TABLE d.a (id INT PRIMARY KEY)")
        server.query("INSERT INTO d.a VALUES (1)")
        with canal.Instance(config(server, "d", tmp_path)) as instance:
            instance.subscribe()
            for image in ("FULL", "MINIMAL"):
                server.query(f"SET GLOBAL binlog_row_image = '{image}'")
                with canal.pipe(instance, SQLiteTarget(tmp_path / "copy.db"), snapshot="initial") as pipe:
                    server.query(f"INSERT INTO d.a VALUES ({len(image)})")
                    until(lambda: is_loaded(pipe), 60)
    assert rows(tmp_path / "copy.db", "a") == [(1,), (4,), (7,)]


def test_a_lake_that_has_rows_of_unknown_origin_is_refused(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO `{database}`.a VALUES (1)")
    target = DeltaTarget(tmp_path)
    with canal.Instance(config(server, database, tmp_path)) as instance:
        instance.subscribe()
        with canal.pipe(instance, target, snapshot="initial") as pipe:
            until(lambda: is_loaded(pipe), 60)
        with pytest.raises(StreamMismatchError, match="has rows already"):
            canal.pipe(instance, target, snapshot="initial", stream="another").run()


def test_a_table_that_is_renamed_before_its_rows_are_read_is_read_by_its_new_name(
    server: ThrowawayServer, database: str, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        server.query(f"CREATE TABLE `{database}`.{name} (id INT PRIMARY KEY)")
        server.query(f"INSERT INTO `{database}`.{name} VALUES (1), (2)")
    with canal.Instance(config(server, database, tmp_path)) as instance:
        instance.subscribe()
        with closing(server.connect(database=database)) as connection, connection.cursor() as cursor:
            cursor.execute("LOCK TABLES a WRITE")  # its rows cannot be read
            with canal.pipe(instance, JSONLinesTarget(tmp_path / "log"), snapshot="initial") as pipe:
                until(lambda: pipe.status().load, 60)
                server.query(f"RENAME TABLE `{database}`.b TO `{database}`.c")
                until(lambda: "RENAME" in (tmp_path / "log").read_text(), 60)
                cursor.execute("UNLOCK TABLES")
                until(lambda: is_loaded(pipe), 60)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    read = [(line["table"].rpartition(".")[2], line["after"]["id"]) for line in lines if line["op"] == "READ"]
    assert sorted(read) == [("a", 1), ("a", 2), ("c", 1), ("c", 2)]


def test_stop_does_not_wait_for_a_read(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO `{database}`.a VALUES (1)")
    with canal.Instance(config(server, database, tmp_path)) as instance:
        instance.subscribe()
        with closing(server.connect(database=database)) as connection, connection.cursor() as cursor:
            cursor.execute("LOCK TABLES a WRITE")
            pipe = canal.pipe(instance, SQLiteTarget(tmp_path / "copy.db"), snapshot="initial").start()
            until(lambda: any("lock" in str(row) and "FROM" in str(row) for row in server.query("SHOW FULL PROCESSLIST")), 60)
            pipe.stop()
            cursor.execute("UNLOCK TABLES")
    assert rows(tmp_path / "copy.db", "a") == []


def test_a_stream_that_has_a_progress_only_goes_on(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO `{database}`.a VALUES (1)")
    target = SQLiteTarget(tmp_path / "copy.db")
    with canal.Instance(config(server, database, tmp_path)) as instance:
        instance.subscribe()
        with canal.pipe(instance, target) as pipe:
            server.query(f"INSERT INTO `{database}`.a VALUES (2)")
            until(lambda: rows(tmp_path / "copy.db", "a") == [(2,)], 60)
        with canal.pipe(instance, target, snapshot="initial") as pipe:
            server.query(f"INSERT INTO `{database}`.a VALUES (3)")
            until(lambda: len(rows(tmp_path / "copy.db", "a")) == 2, 60)
            assert pipe.status().load is None
    assert rows(tmp_path / "copy.db", "a") == [(2,), (3,)]


def test_a_table_that_is_made_later_comes_from_the_log_alone(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO `{database}`.a VALUES (1)")
    with canal.Instance(config(server, database, tmp_path)) as instance:
        instance.subscribe()
        server.query(f"CREATE TABLE `{database}`.b (id INT PRIMARY KEY)")  # before the tables are listed
        server.query(f"INSERT INTO `{database}`.b VALUES (5)")
        with canal.pipe(instance, JSONLinesTarget(tmp_path / "log"), snapshot="initial") as pipe:
            until(lambda: is_loaded(pipe), 60)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted((line["op"], line["after"]["id"]) for line in lines if line["after"]) == [("INSERT", 5), ("READ", 1)]


@contextmanager
def held_commits(server: ThrowawayServer) -> Iterator[Callable[[], None]]:
    """The server sends transactions to replicas, and shows them when it is told to go on, as no replica confirms one."""
    if server.kind == "mysql":
        server.query("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
    word = "source" if server.kind == "mysql" else "master"
    go_on = partial(server.query, f"SET GLOBAL rpl_semi_sync_{word}_enabled = OFF")
    server.query(f"SET GLOBAL rpl_semi_sync_{word}_timeout = 600000")
    server.query(f"SET GLOBAL rpl_semi_sync_{word}_wait_point = AFTER_SYNC")
    server.query(f"SET GLOBAL rpl_semi_sync_{word}_enabled = ON")
    try:
        yield go_on
    finally:
        go_on()
        if server.kind == "mysql":
            server.query("UNINSTALL PLUGIN rpl_semi_sync_source")


def test_rows_are_read_when_the_table_shows_what_the_stream_has_passed(
    server: ThrowawayServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.query(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY, v VARCHAR(9))")
    server.query(f"INSERT INTO `{database}`.a VALUES (1, 'old')")
    settle, asked = ServerTables.settle, threading.Event()
    monkeypatch.setattr(ServerTables, "settle", lambda *given: (asked.set(), settle(*given))[1])
    with canal.Instance(config(server, database, tmp_path)) as instance:
        instance.subscribe()
        with held_commits(server) as go_on:
            writer = threading.Thread(target=server.query, args=(f"UPDATE `{database}`.a SET v = 'new'",))
            writer.start()
            message = until(lambda: instance.get_without_ack(timeout=1.0))
            instance.ack(message)  # it is in the log, and the table does not show it
            assert server.query(f"SELECT v FROM `{database}`.a") == [("old",)]
            with canal.pipe(instance, SQLiteTarget(tmp_path / "copy.db"), snapshot="initial") as pipe:
                assert asked.wait(60)
                go_on()
                writer.join()
                until(lambda: is_loaded(pipe), 60)
    assert rows(tmp_path / "copy.db", "a") == [(1, "new")]
