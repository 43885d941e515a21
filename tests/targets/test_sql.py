"""What all SQL targets do, shown on SQLite: rows change in place, what is refused is found by halves, weak keys are refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.errors import TargetSchemaError
from canal.targets import DuckDBTarget, JSONLinesTarget, SQLiteTarget
from canal.testing import FakeBinlog
from tests.support.pipes import life, orders, read


def made(target: SQLiteTarget, sql: str) -> SQLiteTarget:
    with closing(sqlite3.connect(target.path)) as connection:
        connection.executescript(sql)
    return target


def piped(fake: FakeBinlog, target: Any, folder: Path, **options: Any) -> canal.Pipe:
    """A pipe to the present end of the log; it goes on where the last one ended."""
    fake.end()
    with life(fake, folder) as instance:
        pipe = canal.pipe(instance, target, on_error="stop", **options)
        try:
            pipe.run()
        finally:
            fake.log.ended = False
    return pipe


def test_an_update_leaves_columns_of_the_targets_own_and_rows_that_refer_to_it(
    fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    made(target, "CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER, note TEXT, mine TEXT DEFAULT 'new')")
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 1}, {"id": 2, "n": 2})
    piped(fake_binlog, target, folder)
    made(target, "UPDATE orders SET mine = 'kept'")

    table.update({"id": 1, "n": 1, "note": None}, {"n": 5})
    table.insert({"id": 3, "n": 3})
    piped(fake_binlog, target, folder)

    assert read(target, "SELECT id, n, mine FROM orders ORDER BY id") == [(1, 5, "kept"), (2, 2, "kept"), (3, 3, "new")]


def test_a_row_that_is_deleted_and_inserted_again_is_another_row(
    fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    made(target, "CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER, note TEXT, mine TEXT DEFAULT 'new')")
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 1})
    piped(fake_binlog, target, folder)
    made(target, "UPDATE orders SET mine = 'of the former row'")

    table.delete({"id": 1, "n": 1, "note": None})
    table.insert({"id": 1, "n": 2})
    piped(fake_binlog, target, folder)

    assert read(target, "SELECT id, n, mine FROM orders") == [(1, 2, "new")]


def test_rows_that_are_there_already_are_not_refused(fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path) -> None:
    """Such as those of an initial load that overlaps the log."""
    made(target, "CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER, note TEXT); INSERT INTO orders VALUES (1, 0, 'x')")
    orders(fake_binlog).insert({"id": 1, "n": 1}, {"id": 2, "n": 2})

    piped(fake_binlog, target, folder)

    assert read(target, "SELECT id, n, note FROM orders ORDER BY id") == [(1, 1, None), (2, 2, None)]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_unique_values_that_change_places_pass(kind: str, fake_binlog: FakeBinlog, folder: Path) -> None:
    path, sql = folder / "x", "CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER UNIQUE, note TEXT)"
    target: Any = SQLiteTarget(path)
    if kind == "duckdb":
        import duckdb

        target = DuckDBTarget(path)
        with closing(duckdb.connect(str(path))) as connection:
            connection.execute(f"CREATE SCHEMA shop; {sql.replace('orders', 'shop.orders')}")
    else:
        made(target, sql)
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 1}, {"id": 2, "n": 2})
    piped(fake_binlog, target, folder)

    table.update({"id": 1, "n": 1, "note": None}, {"n": 3})
    table.update({"id": 2, "n": 2, "note": None}, {"n": 1})
    table.update({"id": 1, "n": 3, "note": None}, {"n": 2})
    piped(fake_binlog, target, folder)

    if kind == "sqlite":
        assert read(target, "SELECT id, n FROM orders ORDER BY id") == [(1, 2), (2, 1)]
    else:
        with closing(duckdb.connect(str(path))) as connection:
            assert connection.execute("SELECT id, n FROM shop.orders ORDER BY id").fetchall() == [(1, 2), (2, 1)]


class Counted:
    """A SQLite target that counts the statements of its works."""

    def __init__(self, target: SQLiteTarget) -> None:
        self.target, self.statements, self.commits = target, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def begin(self, stream: str) -> Any:
        context = self.target.begin(stream)

        class Begun:
            def __enter__(own) -> Any:
                work = context.__enter__()
                work._connection.set_trace_callback(self._count)
                return work

            def __exit__(own, *error: Any) -> Any:
                return context.__exit__(*error)

        return Begun()

    def _count(self, sql: str) -> None:
        self.statements += 1
        self.commits += sql == "COMMIT"


def test_rows_that_are_refused_are_found_by_halves_and_parked_at_once(
    fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    made(target, "CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER CHECK (n <> 7), note TEXT)")
    orders(fake_binlog).insert(*({"id": number, "n": 7 if number in (5, 700) else 0} for number in range(1000)))
    counted = Counted(target)

    pipe = piped(fake_binlog, counted, folder, on_unfit=JSONLinesTarget(folder / "parked"))

    assert pipe.status().parked == 2
    assert len((folder / "parked").read_text().splitlines()) == 2
    assert read(target, "SELECT COUNT(*) FROM orders") == [(998,)]
    assert counted.statements < 400


def test_many_values_that_are_unfit_are_parked_by_one_commit(fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path) -> None:
    made(target, "CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER CHECK (n <> 7), note TEXT)")
    orders(fake_binlog).insert(*({"id": number, "n": 7} for number in range(800)))
    counted = Counted(target)

    pipe = piped(fake_binlog, counted, folder, on_unfit=JSONLinesTarget(folder / "parked"))

    assert (pipe.status().parked, counted.commits) == (800, 1)


def test_each_parked_change_has_its_own_reason(fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path) -> None:
    made(target, "CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER CHECK (n <> 7), note TEXT NOT NULL)")
    orders(fake_binlog).insert({"id": 1, "n": 7, "note": ""}, {"id": 2, "n": 0}, {"id": 3, "n": 0, "note": ""})

    piped(fake_binlog, target, folder, on_unfit=JSONLinesTarget(folder / "parked"))

    first, second = (folder / "parked").read_text().splitlines()
    assert "CHECK" in first
    assert "NOT NULL" in second


def test_a_key_that_compares_without_case_is_refused(fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path) -> None:
    for number, sql in enumerate(("k TEXT COLLATE NOCASE PRIMARY KEY, n INT", "k TEXT, n INT, PRIMARY KEY (k COLLATE rtrim)")):
        made(target, f"CREATE TABLE t{number} ({sql})")
        fake = FakeBinlog()
        fake.table("shop", f"t{number}", "k VARCHAR(10) PRIMARY KEY, n INT").insert({"k": "a", "n": 1}, {"k": "A", "n": 2})
        with pytest.raises(TargetSchemaError, match=r"does not tell all keys of shop\.t. apart: k compares by (NOCASE|RTRIM)"):
            piped(fake, target, folder / str(number))


def test_a_table_that_cannot_be_made_is_named_with_its_key(fake_binlog: FakeBinlog, folder: Path) -> None:
    fake_binlog.table("k", "fine", "id INT PRIMARY KEY").insert({"id": 1})
    fake_binlog.table("k", "opening", "shop INT, at TIME, PRIMARY KEY (shop, at)").insert({"shop": 1, "at": timedelta(hours=8)})
    fake_binlog.end()

    with life(fake_binlog) as instance, pytest.raises(TargetSchemaError, match=r"k\.opening.*at time.*INTERVAL.*canal\.Rule\("):
        canal.pipe(instance, DuckDBTarget(folder / "x"), on_error="stop").run()
