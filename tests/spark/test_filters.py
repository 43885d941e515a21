"""Filters that Spark hands to the reader of a range: the rows are those that it would keep itself, and others are not decoded."""

from __future__ import annotations

import operator
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource

from canal.errors import UnloggedChangeError
from canal.spark.source import CanalReader, CanalSource, FilteredReader
from canal.testing import FakeBinlog
from tests.support.engine import rows_of

TIMES = (1_750_000_000, 1_750_000_100, 1_740_000_000, 1_750_000_050)  # a clock that is set back


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Four files of six transactions, each at a time of its own."""
    clock = [0]
    fake = FakeBinlog("mysql", clock=lambda: clock[0])
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY, n INT")
    for number, clock[0] in enumerate(TIMES):
        for each in range(2):
            orders.insert({"id": number * 10 + each, "n": 0})
            with fake.transaction():
                orders.update({"id": number * 10 + each, "n": 0}, {"id": number * 10 + each, "n": 1})
                orders.insert({"id": number * 10 + each + 5, "n": 0})
            orders.delete({"id": number * 10 + each, "n": 1})
        if number < 3:
            fake.rotate()
    fake.write(tmp_path / "logs")
    return tmp_path / "logs"


def readers(logs: Path, **options: str) -> tuple[CanalReader, FilteredReader, Any]:
    """One as where Spark hands no filters, and one that takes them."""
    made = CanalSource({"path": str(logs), "table": "shop.orders", "startingPosition": "earliest", **options})
    struct = made.schema()
    plain = made.reader(struct)
    assert type(plain) is CanalReader
    return plain, FilteredReader(plain._options, plain._shape), struct


def random_filter(chance: random.Random, rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    """A filter of PySpark, and whether it keeps a row."""
    column = chance.choice(["_op", "_txn", "_ts"])
    values = [chance.choice(rows)[column] for _ in range(2)]
    if column != "_op" and chance.random() < 0.3:
        values[0] += 1 if column == "_txn" else datetime(2025, 1, 2) - datetime(2025, 1, 1, 23)
    name, keeps = chance.choice(
        [
            ("EqualTo", operator.eq),
            ("EqualNullSafe", operator.eq),
            ("In", lambda value, among: value in among),
            ("GreaterThan", operator.gt),
            ("GreaterThanOrEqual", operator.ge),
            ("LessThan", operator.lt),
            ("LessThanOrEqual", operator.le),
        ]
    )
    value = tuple(values) if name == "In" else values[0]
    made, is_negated = getattr(datasource, name)((column,), value), chance.random() < 0.3
    return (datasource.Not(made) if is_negated else made), lambda row: keeps(row[column], value) != is_negated


def test_filtered_rows_are_those_that_spark_would_keep_and_the_others_are_not_decoded(logs: Path) -> None:
    chance = random.Random(7)
    plain, _, struct = readers(logs)
    rows = rows_of(plain, plain.partitions(), struct)
    assert len(rows) == 32
    fewest = len(plain.partitions())
    for _ in range(60):
        _, reader, _ = readers(logs)
        filters, keep = zip(*(random_filter(chance, rows) for _ in range(chance.randint(1, 3))))
        assert list(reader.pushFilters(list(filters))) == list(filters)  # Spark applies each of them
        partitions = reader.partitions()
        fewest = min(fewest, len(partitions))
        assert rows_of(reader, partitions, struct) == [row for row in rows if all(one(row) for one in keep)]
    assert fewest < 4


def test_a_file_behind_whose_end_nothing_is_wanted_is_not_asked_for(logs: Path) -> None:
    plain, reader, struct = readers(logs)
    rows = rows_of(plain, plain.partitions(), struct)
    reader.pushFilters([datasource.GreaterThanOrEqual(("_txn",), rows[8]["_txn"])])
    assert len(reader.partitions()) == 3
    reader.pushFilters([datasource.LessThan(("_txn",), rows[8]["_txn"])])  # the first of its file
    assert len(reader.partitions()) == 2
    reader.pushFilters([datasource.GreaterThan(("_txn",), rows[-1]["_txn"] + (1 << 40))])
    assert reader.partitions() == []
    reader.pushFilters([datasource.GreaterThan(("_ts",), datetime(2100, 1, 1, tzinfo=UTC))])
    assert len(reader.partitions()) == 4  # a clock tells of no file that it is over
    assert rows_of(reader, reader.partitions(), struct) == []


@pytest.mark.parametrize("value", [None, 5, "I", datetime(2025, 6, 15), 1.5, True])
def test_what_is_compared_with_something_else_is_left_to_spark(logs: Path, value: Any) -> None:
    plain, reader, struct = readers(logs)
    rows = rows_of(plain, plain.partitions(), struct)
    names = [name for name, kind in (("_op", str), ("_txn", int), ("_ts", datetime)) if type(value) is not kind]
    reader.pushFilters(
        [
            *(datasource.EqualTo((name,), value) for name in names if name != "_ts" or not isinstance(value, datetime)),
            datasource.In(("_op",), ("I", None)),
            datasource.Not(datasource.In(("_op",), (None,))),
            datasource.IsNotNull(("_op",)),
            datasource.StringStartsWith(("_op",), "x"),
            datasource.EqualTo(("id",), -1),
            datasource.EqualTo(("_before", "_op"), "x"),
            datasource.Not(datasource.IsNotNull(("_ts",))),
        ]
    )
    assert rows_of(reader, reader.partitions(), struct) == rows


def test_statements_pass_every_filter(tmp_path: Path) -> None:
    fake = FakeBinlog("mysql")
    fake.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": 1})
    with fake.transaction():
        fake.query("INSERT INTO orders VALUES (2)", "shop")
    fake.ddl("TRUNCATE orders", "shop")
    fake.write(tmp_path / "logs")
    made = CanalSource({"path": str(tmp_path / "logs"), "tables": r"shop\..*"})
    plain = made.reader(made.schema())
    assert isinstance(plain, CanalReader)
    reader = FilteredReader(plain._options, plain._shape)
    reader.pushFilters([datasource.EqualTo(("_op",), "Q")])
    rows = rows_of(reader, reader.partitions(), made.schema())
    assert [(row["_op"], row["sql"]) for row in rows] == [("Q", "INSERT INTO orders VALUES (2)"), ("Q", "TRUNCATE orders")]


def test_what_a_filter_leaves_out_still_tells_of_rows_that_went_without_a_word(tmp_path: Path) -> None:
    fake = FakeBinlog("mysql")
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY, v VARCHAR(20)")
    orders.insert({"id": 1, "v": "long"})
    orders.alter("ALTER TABLE orders MODIFY v VARCHAR(2)", "id INT PRIMARY KEY, v VARCHAR(2)")
    orders.insert({"id": 2, "v": "lo"})
    fake.write(tmp_path / "logs")
    _, reader, struct = readers(tmp_path / "logs", schemaChange="fail")
    reader.pushFilters([datasource.EqualTo(("_op",), "D")])
    with pytest.raises(UnloggedChangeError, match="ALTER"):
        rows_of(reader, reader.partitions(), struct)


@pytest.mark.every_spark
def test_spark_hands_filters_where_it_is_told_to_and_results_are_the_same(spark: Any, logs: Path) -> None:
    def read(query: str, is_on: bool) -> tuple[int, list[Any]]:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", is_on)
        made = spark.read.format("canal").options(path=str(logs), table="shop.orders").load().where(query)
        return made.rdd.getNumPartitions(), sorted(made.collect(), key=lambda row: (row["_txn"], row["_ord"]))

    rows = read("true", False)[1]
    assert len(rows) == 32
    queries = {
        f"_op <> 'I' AND _txn >= {rows[20]['_txn']} AND _ts <= TIMESTAMP '2025-06-15 11:07:00'": 2,
        "_ts > TIMESTAMP '2100-01-01 00:00:00' OR n = 1 AND _op IN ('U', 'D')": 4,
    }
    for query, parts in queries.items():
        whole, handed = read(query, False), read(query, True)
        assert whole[1] == handed[1] != []
        assert (whole[0], handed[0]) == (4, parts if hasattr(datasource, "Filter") else 4)
