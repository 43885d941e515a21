"""Generated columns on their way into a target: MariaDB since 11.8.9 leaves them out of the images of updates and deletes."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.errors import UnfitChangeError
from canal.targets import SQLiteTarget
from canal.testing.servers import ThrowawayServer
from tests.support.live import end_of_log, is_since, logs_generated, source

CHANGES = (
    "INSERT INTO t (id, a, b) VALUES (1, 5, 'y'), (2, 6, 'z')",
    "UPDATE t SET a = a + 10 WHERE id = 1",
    "DELETE FROM t WHERE id = 2",
)


@pytest.mark.every_line
@pytest.mark.needs("row_image", "json")  # CREATE TABLE with STORED
def test_a_targets_generated_columns_are_right_or_refused(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    """Equal, or an error names the column and the rule without it, which mends that."""
    start = end_of_log(server)
    with server.connect(database=database, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, s INT AS (a * 2) STORED, b TEXT)")
        for image in ("FULL", "NOBLOB"):
            cursor.execute(f"SET SESSION binlog_row_image = {image}")
            for sql in CHANGES:
                cursor.execute(sql)
            cursor.execute("DELETE FROM t")
        cursor.execute("SET SESSION binlog_row_image = FULL")
        for sql in CHANGES:
            cursor.execute(sql)

    def copy(*fields: str) -> list[Any]:
        target = SQLiteTarget(tmp_path / f"{len(fields)}.db")
        config = canal.InstanceConfig(
            destination="generated", source=source(server), filter=rf"{database}\.t", start=start, meta=canal.MemoryMeta()
        )
        with canal.Instance(config) as instance:
            instance.subscribe()
            with canal.pipe(instance, target, rules=[canal.Rule(fields=fields)] if fields else []) as pipe:
                deadline = time.monotonic() + 60
                while pipe.status().changes < 3 * 4 + 2 and pipe.status().is_running and time.monotonic() < deadline:
                    time.sleep(0.01)
        with closing(sqlite3.connect(target.path)) as connection:
            return connection.execute("SELECT * FROM t").fetchall()

    if is_since(server, mysql=(5, 7), mariadb=(10, 5)) and logs_generated(server):
        assert copy() == [(1, 15, 16, 30, "y")]
    else:
        with pytest.raises(UnfitChangeError, match="does not log the generated column v of") as caught:
            copy()
        assert caught.value.remedy.startswith("Leave it out: canal.Rule(fields=…) without v")
    assert copy("id", "a", "b") == [(1, 15, "y")]
