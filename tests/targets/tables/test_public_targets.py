"""The public targets: each serves a pipe, ``apply_changes`` of a loop, and ``apply_changes`` of a streaming query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

import canal
from canal.errors import ConfigError
from canal.spark import apply_changes, foreach_batch
from canal.targets import DeltaTarget, IcebergTarget, MySQLTarget, ParquetTarget, SQLiteTarget
from canal.testing import FakeBinlog
from tests.support.lakes import load_catalog, login

TABLE = "shop.orders"
ROWS = [{"id": 2, "n": 5}, {"id": 3, "n": 7}]


def written(fake: FakeBinlog, schema: str = "shop") -> FakeBinlog:
    orders = fake.table(schema, "orders", "id INT PRIMARY KEY, n INT")
    orders.insert({"id": 1, "n": 1}, {"id": 2, "n": 2})
    orders.update({"id": 2, "n": 2}, {"id": 2, "n": 5})
    orders.delete({"id": 1, "n": 1})
    orders.insert({"id": 3, "n": 7})
    fake.end()
    return fake


def delta_rows(root: Path) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    return DeltaTable(str(root / TABLE)).to_pyarrow_table().select(["id", "n"]).sort_by("id").to_pylist()


def catalog_of(root: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/lake"}


def iceberg_rows(root: Path) -> list[dict[str, Any]]:
    catalog = load_catalog("test", **catalog_of(root))
    try:
        return catalog.load_table(TABLE).scan().to_arrow().select(["id", "n"]).sort_by("id").to_pylist()
    finally:
        catalog.close()


def parquet_rows(root: Path) -> list[dict[str, Any]]:
    """Apply the changes of the files."""
    rows = {}
    files = [str(path) for path in sorted((root / TABLE).glob("*.parquet"))]
    for one in pyarrow.dataset.dataset(files, format="parquet").to_table().to_pylist():
        row = one if "id" in one else one["_after"] or one["_before"]
        rows[row["id"]] = None if one["_op"].startswith("D") else {"id": row["id"], "n": row["n"]}
    return sorted((row for row in rows.values() if row is not None), key=lambda row: row["id"])


LAKES: dict[str, tuple[Callable[[Path], Any], Callable[[Path], list[dict[str, Any]]], list[str] | None]] = {
    "delta": (DeltaTarget, delta_rows, ["id"]),
    "iceberg": (lambda root: IcebergTarget("test", catalog_of(root)), iceberg_rows, ["id"]),
    "parquet": (ParquetTarget, parquet_rows, None),
}


@pytest.fixture
def instance(fake_binlog: FakeBinlog) -> Iterator[canal.Instance]:
    config = canal.InstanceConfig(destination="test", source=written(fake_binlog), start="earliest", meta=canal.MemoryMeta())
    with canal.Instance(config) as made:
        made.subscribe()
        yield made


@pytest.mark.parametrize("kind", LAKES)
def test_public_target_in_a_pipe_writes_the_table(instance: canal.Instance, tmp_path: Path, kind: str) -> None:
    make, rows, _ = LAKES[kind]

    canal.pipe(instance, make(tmp_path)).run()

    assert rows(tmp_path) == ROWS


@pytest.mark.parametrize("kind", LAKES)
def test_public_target_in_a_loop_without_spark_writes_the_table(instance: canal.Instance, tmp_path: Path, kind: str) -> None:
    make, rows, keys = LAKES[kind]

    foreach_batch(None, instance, apply_changes(make(tmp_path), keys))

    assert rows(tmp_path) == ROWS


@pytest.mark.parametrize("kind", LAKES)
def test_public_target_in_foreach_batch_of_a_query_writes_the_table(instance: canal.Instance, tmp_path: Path, kind: str) -> None:
    """Spark passes a DataFrame and a number, and not the name of the table."""
    make, rows, keys = LAKES[kind]
    sink = apply_changes(make(tmp_path), keys, table=TABLE)

    foreach_batch(None, instance, lambda changes, batch: sink(changes, batch.id))

    assert rows(tmp_path) == ROWS


@pytest.mark.parametrize("way", ["pipe", "loop", "query"])
def test_public_mysql_target_writes_the_table_in_each_way(server: Any, database: str, fake_binlog: FakeBinlog, way: str) -> None:
    server.query(f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, n INT)")
    target, name = MySQLTarget(login(server), database), f"{database}.orders"
    source = written(fake_binlog, database)
    config = canal.InstanceConfig(destination="test", source=source, start="earliest", meta=canal.MemoryMeta())
    with canal.Instance(config) as instance:
        instance.subscribe()
        if way == "pipe":
            canal.pipe(instance, target).run()
        elif way == "loop":
            foreach_batch(None, instance, apply_changes(target, ["id"]))
        else:
            sink = apply_changes(target, ["id"], table=name)
            foreach_batch(None, instance, lambda changes, batch: sink(changes, batch.id))

    assert server.query(f"SELECT id, n FROM {name} ORDER BY id") == [(2, 5), (3, 7)]


def test_apply_changes_to_a_target_of_pipes_alone_raises(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="takes changes from canal.pipe alone"):
        apply_changes(SQLiteTarget(tmp_path / "copy.db"), ["id"])  # type: ignore[arg-type]


def test_delta_table_is_partitioned_by_the_columns_of_its_name(instance: canal.Instance, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    canal.pipe(instance, DeltaTarget(tmp_path, partition_by={TABLE: ["n"]})).run()

    assert DeltaTable(str(tmp_path / TABLE)).metadata().partition_columns == ["n"]
