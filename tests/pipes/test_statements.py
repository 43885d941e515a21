"""A pipe and statements: which change rows in a target, which stop it, and who mends what."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import canal
from canal.targets import SQLiteTarget
from canal.testing import FakeBinlog
from canal.testing.target_suite import Faulty
from tests.support.pipes import QUICK, fail, life, orders, read


def test_a_statement_that_changes_rows_without_a_word_stops_behind_what_lies_before_it(
    fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1})
    fake_binlog.ddl("ALTER TABLE orders TRUNCATE PARTITION p1", "shop")
    table.insert({"id": 2})
    fake_binlog.end()
    with life(fake_binlog, folder) as instance, pytest.raises(canal.UnloggedChangeError, match="partitions") as error:
        canal.pipe(instance, target).run()
    assert read(target, "SELECT id FROM orders") == [(1,)]

    with closing(sqlite3.connect(target.path)) as connection, connection:
        connection.execute("DELETE FROM orders")  # the owner takes care of it
    with life(fake_binlog, folder) as instance:
        canal.pipe(instance, target, acknowledged=[error.value.position]).run()

    assert read(target, "SELECT id FROM orders") == [(2,)]


def test_a_column_that_is_made_narrower_stops_the_pipe_also_when_it_is_read_again(
    fake_binlog: FakeBinlog, target: SQLiteTarget
) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 1})
    table.alter("ALTER TABLE orders MODIFY n TINYINT", "id INT PRIMARY KEY, n TINYINT, note VARCHAR(40)")
    table.insert({"id": 2, "n": 1})
    fake_binlog.end()
    at = fail(canal.ConnectionLostError("gone"))
    with life(fake_binlog) as instance, pytest.raises(canal.UnloggedChangeError, match="n was int, is tinyint"):
        canal.pipe(instance, Faulty(target, at), on_error=QUICK).run()

    assert read(target, "SELECT id FROM orders") == [(1,)]


_NARROWER = "ALTER TABLE orders MODIFY n TINYINT", "id INT PRIMARY KEY, n TINYINT, note VARCHAR(40)"


def test_a_column_that_is_made_narrower_stops_the_pipe_where_no_row_comes_behind_it(
    fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 300})
    table.alter(*_NARROWER)
    fake_binlog.end()
    with life(fake_binlog, folder) as instance, pytest.raises(canal.UnloggedChangeError, match="n was int, is tinyint") as error:
        canal.pipe(instance, target).run()
    assert read(target, "SELECT id, n FROM orders") == [(1, 300)]

    with life(fake_binlog, folder) as instance:
        canal.pipe(instance, target, acknowledged=[error.value.position]).run()


def test_an_acknowledged_alter_is_not_refused_at_the_next_row(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 1})
    table.alter(*_NARROWER)
    table.insert({"id": 2, "n": 1})
    fake_binlog.end()
    with life(fake_binlog) as instance, pytest.raises(canal.UnloggedChangeError) as error:
        canal.pipe(instance, target).run()
    with life(fake_binlog) as instance:  # from the start: the row before the ALTER comes again
        canal.pipe(instance, SQLiteTarget(target.path, progress_table="other"), acknowledged=[error.value.position]).run()

    assert read(target, "SELECT id FROM orders") == [(1,), (2,)]


@pytest.mark.parametrize(
    "change", ["MODIFY n TINYINT", "CHANGE n n TINYINT", "CONVERT TO CHARACTER SET latin1", "ADD c INT, MODIFY COLUMN n BIGINT"]
)
def test_an_alter_of_types_stops_a_pipe_that_has_seen_no_row_of_the_table(
    change: str, fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 300})
    orders(fake_binlog, "others").insert({"id": 1})
    at = fake_binlog.position
    fake_binlog.ddl(f"ALTER TABLE orders {change}", "shop")
    fake_binlog.end()
    with life(fake_binlog, start=at) as instance, pytest.raises(canal.UnloggedChangeError, match="no row of it") as error:
        canal.pipe(instance, target).run()
    assert "shop.orders" in error.value.message

    with life(fake_binlog, start=at) as instance:
        canal.pipe(instance, target, acknowledged=[error.value.position]).run()


@pytest.mark.parametrize(
    "change",
    [
        "ADD c INT",
        "ADD c INT DEFAULT NULL AFTER n",
        "ADD (c INT, d TEXT)",
        "ADD c TIMESTAMP NULL",
        "ADD INDEX (n)",
        "ENGINE=InnoDB",
        "ALTER n SET DEFAULT 3",
        "COMMENT 'modify'",
        "CHARACTER SET latin1",
    ],
)
def test_an_alter_that_changes_no_value_passes_where_no_row_came(
    change: str, fake_binlog: FakeBinlog, target: SQLiteTarget
) -> None:
    fake_binlog.ddl(f"ALTER TABLE orders {change}", "shop")
    orders(fake_binlog).insert({"id": 1})
    fake_binlog.end()
    with life(fake_binlog) as instance:
        canal.pipe(instance, target).run()
    assert read(target, "SELECT id FROM orders") == [(1,)]


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize(
    "change",
    ["ADD c INT NOT NULL", "ADD c INT DEFAULT 5", "ADD (d INT, c INT AS (id + 1))", "ADD c INT, ADD d BIGINT AUTO_INCREMENT"],
)
def test_a_column_that_comes_with_values_stops_a_pipe(
    change: str, is_seen: bool, fake_binlog: FakeBinlog, target: SQLiteTarget
) -> None:
    """The rows that are there have them, and the log does not tell."""
    if is_seen:
        orders(fake_binlog).insert({"id": 1})
    fake_binlog.ddl(f"ALTER TABLE orders {change}", "shop")
    fake_binlog.end()
    with life(fake_binlog) as instance, pytest.raises(canal.UnloggedChangeError, match="[cd] is new, with a value in each row"):
        canal.pipe(instance, target).run()


_WITH_C = "id INT PRIMARY KEY, n BIGINT, note VARCHAR(40), c INT"


def test_a_column_with_values_goes_through_as_a_null_one_that_is_filled_by_rows(
    fake_binlog: FakeBinlog, target: SQLiteTarget
) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1})
    table.insert({"id": 2})
    table.alter("ALTER TABLE orders ADD COLUMN c INT NULL", _WITH_C)
    table.update({"id": 1, "c": None}, {"c": 5})
    table.insert({"id": 3, "c": 7})
    table.update({"id": 2, "c": None}, {"c": 5})
    table.alter("ALTER TABLE orders MODIFY c INT NOT NULL DEFAULT 5", f"{_WITH_C} NOT NULL")
    table.insert({"id": 4, "c": 5})
    fake_binlog.end()
    with life(fake_binlog) as instance:
        canal.pipe(instance, target).run()

    assert read(target, "SELECT id, c FROM orders") == [(1, 5), (2, 5), (3, 7), (4, 5)]


def test_a_column_that_came_with_values_is_filled_in_the_target_by_its_owner(
    fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1})
    table.insert({"id": 2})
    table.alter("ALTER TABLE orders ADD COLUMN c INT NOT NULL DEFAULT 5", f"{_WITH_C} NOT NULL")
    table.update({"id": 1, "c": 5}, {"c": 6})
    fake_binlog.end()
    with life(fake_binlog, folder) as instance, pytest.raises(canal.UnloggedChangeError, match="c is new") as error:
        canal.pipe(instance, target).run()

    with closing(sqlite3.connect(target.path)) as connection, connection:
        connection.execute("ALTER TABLE orders ADD COLUMN c INTEGER")
        connection.execute("UPDATE orders SET c = 5")
    with life(fake_binlog, folder) as instance:
        canal.pipe(instance, target, acknowledged=[error.value.position]).run()

    assert read(target, "SELECT id, c FROM orders") == [(1, 6), (2, 5)]


def test_an_alter_of_a_table_that_is_new_or_empty_passes(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    fake_binlog.ddl("CREATE TABLE orders (id INT PRIMARY KEY, n BIGINT, note VARCHAR(40))", "shop")
    fake_binlog.ddl("ALTER TABLE orders MODIFY n INT", "shop")
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 300})
    fake_binlog.ddl("TRUNCATE TABLE orders", "shop")
    table.alter(*_NARROWER)
    table.insert({"id": 2, "n": 1})
    fake_binlog.end()
    with life(fake_binlog) as instance:
        canal.pipe(instance, target).run()
    assert read(target, "SELECT id, n FROM orders") == [(2, 1)]


@pytest.mark.parametrize(("written", "logged"), [("Orders", "orders"), ("orders", "Orders")])
@pytest.mark.parametrize("sees_rows_before", [True, False])
def test_rows_of_a_table_whose_name_is_written_otherwise_are_rows_of_it(
    written: str, logged: str, sees_rows_before: bool, fake_binlog: FakeBinlog, target: SQLiteTarget
) -> None:
    """With lower_case_table_names 1 or 2."""
    table = orders(fake_binlog, logged)
    if sees_rows_before:
        table.insert({"id": 1, "n": 1})
    fake_binlog.ddl(f"TRUNCATE TABLE {written}", "shop")
    table.insert({"id": 2, "n": 300})
    table.alter(_NARROWER[0].replace("orders", written), _NARROWER[1])
    fake_binlog.end()
    with life(fake_binlog) as instance, pytest.raises(canal.UnloggedChangeError, match="n was int, is tinyint|no row of it"):
        canal.pipe(instance, target).run()


def test_a_table_that_may_have_been_there_is_not_taken_for_new(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    fake_binlog.ddl("CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY, n BIGINT)", "shop")
    fake_binlog.ddl("ALTER TABLE orders MODIFY n INT", "shop")
    fake_binlog.end()
    with life(fake_binlog) as instance, pytest.raises(canal.UnloggedChangeError, match="no row of it has come"):
        canal.pipe(instance, target).run()


def test_a_table_that_was_read_again_is_not_taken_for_empty(fake_binlog: FakeBinlog, target: SQLiteTarget) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 1})
    fake_binlog.ddl("TRUNCATE TABLE orders", "shop")
    table.insert({"id": 2, "n": 300})
    table.alter(*_NARROWER)
    fake_binlog.end()
    at = fail(canal.ConnectionLostError("gone"), canal.ConnectionLostError("gone"))
    with life(fake_binlog) as instance, pytest.raises(canal.UnloggedChangeError, match="n was int, is tinyint"):
        canal.pipe(instance, Faulty(target, at), on_error=QUICK).run()


@pytest.mark.parametrize(
    "change",
    ["MODIFY n BIGINT", "MODIFY n INT NOT NULL", "MODIFY note VARCHAR(80)", "CHANGE note note TEXT CHARACTER SET utf8mb4"],
)
def test_an_alter_that_keeps_all_values_passes_where_a_row_came(
    change: str, fake_binlog: FakeBinlog, target: SQLiteTarget
) -> None:
    orders(fake_binlog).insert({"id": 1, "n": 1})
    fake_binlog.ddl(f"ALTER TABLE orders {change}", "shop")
    fake_binlog.end()
    with life(fake_binlog) as instance:
        canal.pipe(instance, target).run()
