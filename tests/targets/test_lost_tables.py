"""A table of the target that was dropped, made anew or replaced is noticed before a row is written into it."""

from __future__ import annotations

import re
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal.errors import TargetLostError
from canal.targets import DuckDBTarget, MySQLTarget, PostgreSQLTarget, SQLiteTarget
from canal.testing import FakeBinlog
from tests.support.pipes import life


@attrs.frozen
class Held:
    """A target, and how its owner changes and reads it."""

    target: Any
    run: Callable[[str], list[Any]]
    """Run a statement; ``{t}`` stands for the table."""


@pytest.fixture
def name() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=["sqlite", "duckdb", "postgresql", "mysql", "mariadb"])
def held(request: pytest.FixtureRequest, folder: Path, name: str) -> Iterator[Held]:
    kind = request.param
    if kind == "sqlite":

        def run(sql: str) -> list[Any]:
            with closing(sqlite3.connect(folder / "copy.db")) as connection, connection:
                return connection.execute(sql.format(t="orders")).fetchall()

        yield Held(SQLiteTarget(folder / "copy.db"), run)
    elif kind == "duckdb":
        import duckdb

        def run(sql: str) -> list[Any]:
            with duckdb.connect(folder / "copy.duck") as connection:
                return connection.execute(sql.format(t=f"{name}.orders")).fetchall()

        yield Held(DuckDBTarget(folder / "copy.duck"), run)
    elif kind == "postgresql":
        import psycopg

        server = request.getfixturevalue("postgresql_server")
        with psycopg.connect(server.conninfo, autocommit=True) as connection:

            def run(sql: str) -> list[Any]:
                cursor = connection.execute(sql.format(t=f"{name}.orders").encode())
                return cursor.fetchall() if cursor.description else []

            yield Held(PostgreSQLTarget(server.conninfo, progress_table=f"p_{name}"), run)
    else:
        server = request.getfixturevalue(f"{kind}_server")
        connect = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        target = MySQLTarget(connect, database=name)
        yield Held(target, lambda sql: list(server.query(sql.format(t=f"{name}.orders")) or []))
        server.query(f"DROP DATABASE IF EXISTS {name}")


def follow(fake: FakeBinlog, target: Any, folder: Path, **options: Any) -> None:
    """Run a pipe to the present end of the log."""
    fake.end()
    with life(fake, folder, filter=r".*\..*") as instance:
        try:
            canal.pipe(instance, target, on_error="stop", **options).run()
        finally:
            fake.log.ended = False


def begun(fake: FakeBinlog, held: Held, folder: Path, name: str) -> Any:
    orders = fake.table(name, "orders", "id INT PRIMARY KEY, n INT")
    orders.insert({"id": 1, "n": 1}, {"id": 2, "n": 2})
    follow(fake, held.target, folder)
    return orders


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (["DROP TABLE {t}"], "orders with the rows of .* was dropped"),
        (["DROP TABLE {t}", "CREATE TABLE {t} (id INT PRIMARY KEY, n INT)"], "orders with the rows of .* was replaced"),
        (["ALTER TABLE {t} DROP COLUMN n"], "the column n of .* with values of .* was dropped"),
    ],
    ids=["dropped", "replaced", "column"],
)
def test_table_that_is_not_the_one_that_was_written_stops_the_pipe(
    statements: list[str], what: str, held: Held, fake_binlog: FakeBinlog, folder: Path, name: str
) -> None:
    orders = begun(fake_binlog, held, folder, name)
    for sql in statements:
        held.run(sql)
    orders.insert({"id": 3, "n": 3})

    for _ in range(2):
        with pytest.raises(TargetLostError, match=what) as caught:
            follow(fake_binlog, held.target, folder)
    if "DROP TABLE" not in statements[-1]:  # nothing was written
        assert len(held.run("SELECT * FROM {t}")) in (0, 2)

    forget = re.search(r"present table is correct: (DELETE .*);", caught.value.remedy)
    assert forget is not None
    held.run(forget[1])
    follow(fake_binlog, held.target, folder)
    assert (3, 3) in [tuple(row) for row in held.run("SELECT id, n FROM {t}")]


def test_table_of_the_owner_and_his_own_changes_of_it_are_no_loss(
    held: Held, fake_binlog: FakeBinlog, folder: Path, name: str
) -> None:
    orders = begun(fake_binlog, held, folder, name)
    held.run("ALTER TABLE {t} ADD COLUMN mine INT")
    orders.insert({"id": 3, "n": 3})
    follow(fake_binlog, held.target, folder)
    held.run("ALTER TABLE {t} DROP COLUMN mine")
    orders.insert({"id": 4, "n": 4})
    follow(fake_binlog, held.target, folder)

    assert [tuple(row) for row in held.run("SELECT id, n FROM {t} ORDER BY id")] == [(n, n) for n in (1, 2, 3, 4)]


def test_file_that_is_restored_with_its_progress_is_given_what_came_since(fake_binlog: FakeBinlog, folder: Path) -> None:
    target = SQLiteTarget(folder / "copy.db")
    held = Held(target, lambda sql: [])
    orders = begun(fake_binlog, held, folder, "shop")
    shutil.copy(target.path, folder / "backup.db")
    orders.insert({"id": 3, "n": 3})
    follow(fake_binlog, target, folder)
    shutil.copy(folder / "backup.db", target.path)
    orders.insert({"id": 4, "n": 4})

    follow(fake_binlog, target, folder)

    with closing(sqlite3.connect(target.path)) as connection:
        assert connection.execute("SELECT id FROM orders").fetchall() == [(1,), (2,), (3,), (4,)]


def test_table_that_the_source_dropped_too_is_made_anew(fake_binlog: FakeBinlog, folder: Path) -> None:
    target = SQLiteTarget(folder / "copy.db")
    begun(fake_binlog, Held(target, lambda sql: []), folder, "shop")
    fake_binlog.ddl("DROP TABLE shop.orders", "shop")
    fake_binlog.table("shop", "orders", "id INT PRIMARY KEY, n INT").insert({"id": 7, "n": 7})
    with pytest.raises(canal.UnloggedChangeError) as caught:
        follow(fake_binlog, target, folder)
    with closing(sqlite3.connect(target.path)) as connection, connection:
        connection.execute("DROP TABLE orders")

    follow(fake_binlog, target, folder, acknowledged=[caught.value.position])

    with closing(sqlite3.connect(target.path)) as connection:
        assert connection.execute("SELECT * FROM orders").fetchall() == [(7, 7)]
