"""Names of tables and columns in a target: no two tables of the source share one, also across restarts."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

import canal
from canal.changes import Table
from canal.changes.change import qualified
from canal.schema import column_from_text
from canal.targets import DuckDBTarget, SQLiteTarget
from canal.targets.names import Names, Naming, ascii_lower
from canal.testing import FakeBinlog
from tests.support.pipes import life, read

_COLUMNS = (column_from_text("id", "int", key=True),)


def _table(schema: str, table: str, *columns: str) -> Table:
    own = tuple(column_from_text(name, "int") for name in columns)
    return Table(f"{schema}.{table}", f"{schema}.{table}", _COLUMNS + own, ("id",), database=schema)


def piped(fake: FakeBinlog, target: Any, *rules: canal.Rule) -> None:
    fake.end()
    with life(fake, filter=r".*\..*") as instance:
        canal.pipe(instance, target, rules=rules, on_error="stop").run()


@given(st.lists(st.tuples(st.text("ab.`"), st.text("ab.`")), unique=True, max_size=6))
def test_qualified_returns_another_text_for_each_table(tables: list[tuple[str, str]]) -> None:
    assert len({qualified(*table) for table in tables}) == len(tables)


def test_claim_of_a_name_of_another_table_raises_with_the_remedy() -> None:
    names = Names(Naming(fold=ascii_lower))
    names.claim(_table("shop", "Orders"))

    with pytest.raises(canal.ConfigError, match=r"both shop\.Orders and shop\.orders .*canal\.Rule\(to="):
        names.claim(_table("shop", "orders"))


def test_claim_after_a_restart_compares_with_the_stored_names() -> None:
    names = Names(Naming(schema=None))
    assert names.claim(_table("a", "orders")) == ("orders",)
    assert names.is_changed

    again = Names(Naming(schema=None), names.to_text())

    assert again.claim(_table("a", "orders")) == ("orders",)
    assert not again.is_changed
    with pytest.raises(canal.ConfigError, match=r"both a\.orders and b\.orders"):
        again.claim(_table("b", "orders"))


def test_claim_keeps_names_with_dots_apart() -> None:
    names = Names(Naming())

    assert names.claim(_table("a.b", "c")) == ("a.b", "c")
    assert names.claim(_table("a", "b.c")) == ("a", "b.c")
    flat = Names(Naming(is_flat=True))
    flat.claim(_table("a.b", "c"))
    with pytest.raises(canal.ConfigError):
        flat.claim(_table("a", "b.c"))


def test_claim_of_a_name_that_is_too_long_raises() -> None:
    names = Names(Naming(longest=63))
    names.claim(_table("shop", "a" * 63))

    with pytest.raises(canal.ConfigError, match=r"64 bytes.*canal\.Rule\(to="):
        names.claim(_table("shop", "a" * 64))
    with pytest.raises(canal.ConfigError, match=r"75 bytes.*canal\.Rule\(rename="):
        names.claim(_table("shop", "b", "列" * 25))


def test_claim_of_columns_that_the_target_does_not_tell_apart_raises() -> None:
    with pytest.raises(canal.ConfigError, match=r"columns id and ID of shop\.o would be one"):
        Names(Naming(fold_columns=str.lower)).claim(_table("shop", "o", "ID"))


def test_claim_of_the_progress_table_raises() -> None:
    names = Names(Naming(fold=str.lower, reserved=[("canal", "canal_progress")]))

    with pytest.raises(canal.ConfigError, match="keeps the progress of pipes.*exclude"):
        names.claim(_table("canal", "Canal_Progress"))


def test_claim_by_a_statement_that_spells_the_name_otherwise_is_no_collision() -> None:
    names = Names(Naming(fold=str.lower))
    names.claim(_table("shop", "orders"))

    names.claim(Table("shop.Orders", "shop.Orders"))


def test_a_table_that_was_given_another_name_is_split_anew() -> None:
    import attrs

    assert attrs.evolve(_table("shop", "orders"), name="b.c").path == ("b", "c")


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_tables_that_differ_in_case_are_refused_across_restarts(kind: str, folder: Path) -> None:
    target: Any = SQLiteTarget(folder / "x") if kind == "sqlite" else DuckDBTarget(folder / "x")
    first, second = FakeBinlog(), FakeBinlog()
    first.table("shop", "Orders", "id INT PRIMARY KEY, v INT").insert({"id": 1, "v": 1})
    second.table("shop", "orders", "id INT PRIMARY KEY, v INT").insert({"id": 1, "v": 2})

    piped(first, target)
    with target.begin("test") as work, pytest.raises(canal.ConfigError, match=r"both shop\.Orders and shop\.orders"):
        _write(work, second)


def test_the_remedy_of_a_table_that_is_gone_makes_room_for_another(folder: Path) -> None:
    target = SQLiteTarget(folder / "x")
    first, second = FakeBinlog(), FakeBinlog()
    first.table("shop", "Orders", "id INT PRIMARY KEY, v INT").insert({"id": 1, "v": 1})
    second.table("shop", "orders", "id INT PRIMARY KEY, v INT").insert({"id": 1, "v": 2})
    piped(first, target)
    with target.begin("test") as work, pytest.raises(canal.ConfigError) as refused:
        _write(work, second)

    _run(target, refused.value.remedy.partition("written: ")[2])

    with target.begin("test") as work:
        _write(work, second)
    assert read(target, "SELECT v FROM orders") == [(2,)]


def _run(target: SQLiteTarget, sql: str) -> None:
    import sqlite3

    with closing(sqlite3.connect(target.path)) as connection:
        assert connection.execute(sql).rowcount == 1
        connection.commit()


def _write(work: Any, fake: FakeBinlog) -> None:
    """The changes of a log, behind the progress that is there."""
    fake.end()
    with life(fake, filter=r".*\..*") as instance:
        message = instance.get_without_ack(100, 1.0)
        changes = [change for entry in message.entries for change in canal.changes.Reader().changes(entry)]
        known = work.progress()
        assert known is not None
        work.apply(changes)
        work.commit(known)


def test_a_schema_or_table_with_dots_is_a_table_of_its_own_in_duckdb(folder: Path) -> None:
    fake = FakeBinlog()
    for schema, table in (("a.b", "c"), ("shop", "v1.2")):
        fake.table(schema, table, "id INT PRIMARY KEY, v VARCHAR(20)").insert({"id": 1, "v": f"{schema}/{table}"})

    piped(fake, DuckDBTarget(folder / "x"))

    with closing(duckdb.connect(str(folder / "x"))) as connection:
        for schema, table in (("a.b", "c"), ("shop", "v1.2")):
            found = connection.execute(f'SELECT v FROM "{schema}"."{table}"').fetchall()
            assert found == [(f"{schema}/{table}",)]
