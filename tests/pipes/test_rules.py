"""Rules: a change of route is a delete and an insert, partial images are never guessed, tables are merged only by a column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.errors import UnfitChangeError
from canal.targets import JSONLinesTarget, SQLiteTarget
from canal.testing import FakeBinlog
from tests.support.pipes import life, read


def piped(fake: FakeBinlog, target: Any, folder: Path, *rules: canal.Rule, **options: Any) -> None:
    """A pipe to the present end of the log; it goes on where the last one ended."""
    fake.end()
    with life(fake, folder, filter=r".*\..*") as instance:
        try:
            canal.pipe(instance, target, rules=rules, on_error="stop", **options).run()
        finally:
            fake.log.ended = False


def customers(fake: FakeBinlog) -> Any:
    return fake.table("shop", "c", "id INT PRIMARY KEY, n INT, country VARCHAR(9)")


def merging(**options: Any) -> canal.Rule:
    return canal.Rule(tables=r"shop\.o_\d", to="orders", merge="origin", **options)


# -- routes ----------------------------------------------------------------------------------------------------------------


def test_an_update_that_changes_the_name_is_a_delete_and_an_insert(
    fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    table = customers(fake_binlog)
    table.insert({"id": 1, "n": 1, "country": "de"}, {"id": 2, "n": 2, "country": "de"})
    table.update({"id": 1, "n": 1, "country": "de"}, {"country": "fr"})
    table.update({"id": 1, "n": 1, "country": "fr"}, {"n": 7})
    table.delete({"id": 2, "n": 2, "country": "de"})

    by_country = canal.Rule(tables=r"shop\.c", to=lambda change: f"c_{change.row['country']}")
    piped(fake_binlog, target, folder, by_country)

    assert read(target, "SELECT id FROM c_de") == []
    assert read(target, "SELECT id, n FROM c_fr") == [(1, 7)]


def test_a_change_of_route_gives_two_messages_with_ids_of_their_own(fake_binlog: FakeBinlog, folder: Path) -> None:
    table = customers(fake_binlog)
    table.update({"id": 1, "n": 1, "country": "de"}, {"country": "fr"})

    piped(
        fake_binlog,
        JSONLinesTarget(folder / "log"),
        folder,
        canal.Rule(tables=r"shop\.c", to=lambda change: f"c_{change.row['country']}"),
    )

    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    assert [(line["table"], line["op"]) for line in lines] == [("c_de", "DELETE"), ("c_fr", "INSERT")]
    assert len({line["id"] for line in lines}) == 2


# -- partial images --------------------------------------------------------------------------------------------------------


def minimal(fake: FakeBinlog, target: SQLiteTarget, folder: Path, *rules: canal.Rule) -> Any:
    """A row that is in the target; from now on images are minimal."""
    table = customers(fake)
    table.insert({"id": 1, "n": 1, "country": "DE"})
    piped(fake, target, folder, *rules)
    fake.row_image = "MINIMAL"
    return table


def test_defaults_leave_alone_what_an_update_does_not_change(fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path) -> None:
    rule = canal.Rule(tables=r"shop\.c", defaults={"country": "??", "more": 5})
    table = minimal(fake_binlog, target, folder, rule)

    table.update({"id": 1, "n": 1, "country": "DE"}, {"n": 2})
    piped(fake_binlog, target, folder, rule)

    assert read(target, "SELECT id, n, country, more FROM c") == [(1, 2, "DE", 5)]


@pytest.mark.parametrize(
    "rule",
    [
        canal.Rule(tables=r"shop\.c", where=lambda row: row["country"] == "DE"),
        canal.Rule(tables=r"shop\.c", where=lambda row: row.get("country") != "FR"),
        canal.Rule(tables=r"shop\.c", values={"label": lambda row: f"{row['country']}!"}),
        canal.Rule(tables=r"shop\.c", to=lambda change: f"c_{change.row['country']}"),
        canal.Rule(tables=r"shop\.c", transform=lambda change: change if change.row["country"] == "DE" else None),
    ],
)
def test_a_rule_that_needs_a_column_which_the_image_lacks_is_refused(
    rule: canal.Rule, fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    table = minimal(fake_binlog, target, folder, rule)

    table.update({"id": 1, "n": 1, "country": "DE"}, {"n": 2})

    with pytest.raises(UnfitChangeError, match=r"needs the column country.*shop\.c.*binlog_row_image=FULL") as error:
        piped(fake_binlog, target, folder, rule)
    assert error.value.position
    piped(fake_binlog, target, folder, rule, on_unfit=JSONLinesTarget(folder / "parked"))
    assert len((folder / "parked").read_text().splitlines()) == 1


def test_a_rule_that_needs_columns_of_the_image_alone_passes(fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path) -> None:
    def more(change: canal.changes.Change) -> canal.changes.Change:
        return change if change.after is None else change.evolve(after={**change.after.as_dict(), "more": change.after["id"]})

    values = {"twice": lambda row: row["id"] * 2}
    rule = canal.Rule(tables=r"shop\.c", where=lambda row: row["id"] < 10, values=values, transform=more)
    table = minimal(fake_binlog, target, folder, rule)

    table.update({"id": 1, "n": 1, "country": "DE"}, {"n": 2})
    piped(fake_binlog, target, folder, rule)
    assert read(target, "SELECT id, n, country, twice, more FROM c") == [(1, 2, "DE", "2", 1)]

    table.delete({"id": 1, "n": 2, "country": "DE"})
    piped(fake_binlog, target, folder, rule)
    assert read(target, "SELECT id FROM c") == []


# -- tables that are merged --------------------------------------------------------------------------------------------------


def test_two_tables_that_a_rule_gives_one_name_are_refused(fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path) -> None:
    rules = [canal.Rule(tables=r"shop\.o_1", to="orders"), canal.Rule(tables=r"shop\.o_2", to="orders")]
    for number in (1, 2):
        table = fake_binlog.table("shop", f"o_{number}", "id INT PRIMARY KEY, n INT")
        table.insert({"id": 1, "n": number})
        if number == 1:
            piped(fake_binlog, target, folder, *rules)

    with pytest.raises(canal.ConfigError, match=r"both shop\.o_1 and shop\.o_2 .*canal\.Rule\(merge="):
        piped(fake_binlog, target, folder, *rules)

    assert read(target, "SELECT id, n FROM orders") == [(1, 1)]


@pytest.mark.parametrize("batch_size", [1, 100])
def test_merged_tables_keep_their_rows_and_columns_apart(
    batch_size: int, fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    a = fake_binlog.table("shop", "o_1", "id INT PRIMARY KEY, a INT")
    b = fake_binlog.table("shop", "o_2", "id INT PRIMARY KEY, b INT")
    a.insert({"id": 1, "a": 11}, {"id": 2, "a": 12})
    b.insert({"id": 1, "b": 21}, {"id": 2, "b": 22})
    a.update({"id": 1, "a": 11}, {"a": 13})
    b.update({"id": 2, "b": 22}, {"id": 3})
    a.delete({"id": 2, "a": 12})

    piped(fake_binlog, target, folder, merging(), batch_size=batch_size)

    assert read(target, "SELECT origin, id, a, b FROM orders ORDER BY origin, id") == [
        ("shop.o_1", 1, 13, None),
        ("shop.o_2", 1, None, 21),
        ("shop.o_2", 3, None, 22),
    ]


@pytest.mark.parametrize("batch_size", [1, 100])
def test_truncate_of_a_merged_table_deletes_its_rows_alone(
    batch_size: int, fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    tables = [fake_binlog.table("shop", f"o_{number}", "id INT PRIMARY KEY, n INT") for number in (1, 2)]
    for table in tables:
        table.insert({"id": 1, "n": 1}, {"id": 2, "n": 2})
    fake_binlog.ddl("TRUNCATE TABLE o_1", "shop")
    tables[0].insert({"id": 3, "n": 3})

    piped(fake_binlog, target, folder, merging(), batch_size=batch_size)

    rows = [("shop.o_1", 3), ("shop.o_2", 1), ("shop.o_2", 2)]
    assert read(target, "SELECT origin, id FROM orders ORDER BY origin, id") == rows


def test_a_table_that_was_merged_and_is_no_more_is_refused(fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path) -> None:
    table = fake_binlog.table("shop", "o_1", "id INT PRIMARY KEY, n INT")
    table.insert({"id": 1, "n": 1})
    piped(fake_binlog, target, folder, merging())
    table.insert({"id": 2, "n": 1})

    with pytest.raises(canal.ConfigError, match="brings tables together by the column origin"):
        piped(fake_binlog, target, folder, canal.Rule(tables=r"shop\.o_\d", to="orders"))


def test_merge_needs_a_name_and_a_column_that_is_not_there(fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path) -> None:
    with pytest.raises(canal.ConfigError, match="needs to="):
        canal.Rule(merge="origin")
    fake_binlog.table("shop", "o_1", "id INT PRIMARY KEY, Origin INT").insert({"id": 1, "Origin": 1})

    with pytest.raises(canal.ConfigError, match="two columns of shop.o_1 to the same name"):
        piped(fake_binlog, target, folder, merging())


def test_a_transform_that_adds_a_column_to_some_rows_leaves_it_in_them(
    fake_binlog: FakeBinlog, target: SQLiteTarget, folder: Path
) -> None:
    def discounted(change: canal.changes.Change) -> canal.changes.Change:
        if change.after is not None and change.after["n"]:
            return change.evolve(after={**change.after.as_dict(), "discount": 5})
        return change

    table = customers(fake_binlog)
    table.insert({"id": 1, "n": 1}, {"id": 2, "n": 0}, {"id": 3, "n": 1})
    table.update({"id": 3, "n": 1, "country": None}, {"n": 0})

    piped(fake_binlog, target, folder, canal.Rule(tables=r"shop\.c", transform=discounted))

    assert read(target, "SELECT id, discount FROM c ORDER BY id") == [(1, 5), (2, None), (3, 5)]
