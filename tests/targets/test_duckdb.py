"""What is DuckDB's own: rows that it refuses are found, columns that change values are refused, a file has one process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import canal
from canal.errors import ConfigError, TargetError, TargetSchemaError
from canal.targets import DuckDBTarget, JSONLinesTarget
from canal.testing import FakeBinlog


@pytest.fixture
def target(tmp_path: Path) -> DuckDBTarget:
    return DuckDBTarget(tmp_path / "copy.duckdb")


@pytest.fixture
def orders(fake_binlog: FakeBinlog) -> Iterator[Any]:
    return fake_binlog.table("shop", "orders", "id INT PRIMARY KEY, n INT, price DECIMAL(12,4)")


def ask(target: DuckDBTarget, sql: str) -> list[Any]:
    with duckdb.connect(target.path) as connection:
        return connection.execute(sql).fetchall()


def send(fake: FakeBinlog, target: DuckDBTarget, **options: Any) -> canal.Pipe:
    fake.end()
    with canal.Instance(canal.InstanceConfig(destination="shop", source=fake, start="earliest")) as instance:
        instance.subscribe()
        made = canal.pipe(instance, target, **{"on_error": "stop", **options})
        made.run()
        return made


def test_rows_that_are_refused_are_parked_and_the_others_written(
    fake_binlog: FakeBinlog, orders: Any, target: DuckDBTarget, tmp_path: Path
) -> None:
    ask(target, "CREATE SCHEMA shop")
    ask(target, "CREATE TABLE shop.orders (id TINYINT PRIMARY KEY, n INT CHECK (n <> 7), price DECIMAL(20,6))")
    orders.insert(*({"id": n, "n": n, "price": Decimal(f"{n}.5")} for n in (*range(1, 10), 200, 100)))

    made = send(fake_binlog, target, on_unfit=JSONLinesTarget(tmp_path / "parked"))

    assert ask(target, "SELECT id, price FROM shop.orders ORDER BY id") == [
        (n, Decimal(f"{n}.5")) for n in (1, 2, 3, 4, 5, 6, 8, 9, 100)
    ]
    assert made.status().parked == 2


@pytest.mark.parametrize("declared", ["DECIMAL(12,3)", "DOUBLE", "VARCHAR", "INTEGER"])
def test_a_column_that_would_change_values_is_refused(
    declared: str, fake_binlog: FakeBinlog, orders: Any, target: DuckDBTarget
) -> None:
    ask(target, "CREATE SCHEMA shop")
    ask(target, f"CREATE TABLE shop.orders (id INT PRIMARY KEY, n INT, price {declared})")
    orders.insert({"id": 1, "n": 1, "price": Decimal("1.2345")})

    with pytest.raises(TargetSchemaError, match=r"price of shop\.orders is .*Make it DECIMAL\(12,4\)"):
        send(fake_binlog, target)

    assert ask(target, "SELECT count(*) FROM shop.orders") == [(0,)]


def test_a_file_that_another_process_has_is_an_error_that_passes(
    fake_binlog: FakeBinlog, orders: Any, target: DuckDBTarget
) -> None:
    orders.insert({"id": 1})
    code = f"import duckdb; c = duckdb.connect({str(target.path)!r}); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(TargetError, match="one process"):
            send(fake_binlog, target)
        other.communicate(b"\n")

    send(fake_binlog, target)

    assert ask(target, "SELECT id FROM shop.orders") == [(1,)]


@pytest.mark.parametrize("path", ["", ":memory:", ":memory:shop"])
def test_a_database_in_memory_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="outlive"):
        DuckDBTarget(path)
