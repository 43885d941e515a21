"""``snapshot="initial"`` on real servers: the rows that are there, while they change."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.pipes import Pipe, initial
from canal.targets import SQLiteTarget
from canal.testing.servers import ThrowawayServer
from tests.support.live import source
from tests.support.waiting import until


def config(server: ThrowawayServer, database: str, folder: Path, **options: Any) -> canal.InstanceConfig:
    return canal.InstanceConfig(
        destination="load", source=source(server), filter=rf"{database}\..*", meta=canal.FileMeta(folder / "cursors"), **options
    )


def rows(path: Path, table: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        try:
            return connection.execute(f'SELECT * FROM "{table}" ORDER BY 1, 2').fetchall()
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
        pipe = canal.pipe(instance, target, snapshot="initial", batch_size=100)
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
