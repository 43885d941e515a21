"""What Delta, Iceberg and Parquet tables do behind a pipe beside the suite."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import canal
from canal.errors import TargetSchemaError, UnfitChangeError
from canal.targets import DeltaTarget, IcebergTarget, JSONLinesTarget, ParquetTarget
from canal.targets.tables import Upkeep
from canal.testing.fake import FakeBinlog, FakeTable


def piped(fake: FakeBinlog, target: canal.targets.Target, *rules: canal.Rule, **options: Any) -> canal.Pipe:
    """All that the log has, from its start on."""
    fake.end()
    config = canal.InstanceConfig(destination="test", source=fake, start="earliest", meta=canal.MemoryMeta())
    with canal.Instance(config) as instance:
        instance.subscribe()
        made = canal.pipe(instance, target, rules=rules, on_error="stop", **options)
        made.run()
        return made


def orders(fake: FakeBinlog, columns: str = "id INT PRIMARY KEY, n INT") -> FakeTable:
    return fake.table("shop", "orders", columns)


def read(root: Path) -> list[dict[str, Any]]:
    rows = deltalake.DeltaTable(str(root / "shop.orders")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: str(row["id"]))


def test_a_column_becomes_wider_with_the_sources(fake_binlog: FakeBinlog, tmp_path: Path) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 1})
    table.alter("ALTER TABLE orders MODIFY n BIGINT", "id INT PRIMARY KEY, n BIGINT")
    table.insert({"id": 2, "n": 1 << 40})

    with pytest.raises(TargetSchemaError, match="narrower, n"):
        piped(fake_binlog, DeltaTarget(tmp_path, schema="refuse"), batch_size=1)
    assert read(tmp_path) == [{"id": 1, "n": 1}]
    assert piped(fake_binlog, DeltaTarget(tmp_path)).status().changes == 1

    assert read(tmp_path) == [{"id": 1, "n": 1}, {"id": 2, "n": 1 << 40}]


def test_a_column_that_cannot_hold_the_sources_is_refused(fake_binlog: FakeBinlog, tmp_path: Path) -> None:
    orders(fake_binlog).insert({"id": 1, "n": 1})
    there = pa.table({"id": pa.array([], pa.int32()), "n": pa.array([], pa.string())})
    deltalake.write_deltalake(str(tmp_path / "shop.orders"), there)

    with pytest.raises(TargetSchemaError, match="n of shop.orders is string"):
        piped(fake_binlog, DeltaTarget(tmp_path))

    assert read(tmp_path) == []


def test_what_does_not_fit_is_parked_and_the_rest_written(fake_binlog: FakeBinlog, tmp_path: Path) -> None:
    table = orders(fake_binlog, "id INT PRIMARY KEY, d DATE")
    table.insert({"id": 1, "d": canal.ZeroDate("0000-00-00")})
    table.insert({"id": 2})

    made = piped(fake_binlog, DeltaTarget(tmp_path), on_unfit=JSONLinesTarget(tmp_path / "parked"))

    assert (made.status().parked, read(tmp_path)) == (1, [{"id": 2, "d": None}])
    assert "0000-00-00" in (tmp_path / "parked").read_text()


def test_small_files_are_put_together_and_the_progress_stays(fake_binlog: FakeBinlog, tmp_path: Path) -> None:
    table = orders(fake_binlog)
    target = DeltaTarget(tmp_path, upkeep=Upkeep(every=4, keep=0.0))
    for number in range(8):
        table.insert({"id": number, "n": number})
    piped(fake_binlog, target, batch_size=1)

    assert len(deltalake.DeltaTable(str(tmp_path / "shop.orders")).file_uris()) == 1
    assert piped(fake_binlog, target).status().changes == 0
    assert len(read(tmp_path)) == 8


@pytest.mark.parametrize("name", ["../orders", ".orders", "a/b"])
@pytest.mark.parametrize("kind", [DeltaTarget, ParquetTarget])
def test_no_name_of_a_table_leaves_the_directory(fake_binlog: FakeBinlog, tmp_path: Path, kind: Any, name: str) -> None:
    orders(fake_binlog).insert({"id": 1})

    with pytest.raises(canal.ConfigError, match="no name of a directory"):
        piped(fake_binlog, kind(tmp_path / "root"), canal.Rule(to=name))

    assert list(tmp_path.iterdir()) == []


def test_a_table_of_iceberg_needs_a_namespace(fake_binlog: FakeBinlog, tmp_path: Path) -> None:
    orders(fake_binlog).insert({"id": 1})

    with pytest.raises(canal.ConfigError, match="no namespace"):
        piped(fake_binlog, IcebergTarget("test", {"type": "sql", "uri": f"sqlite:///{tmp_path}/c"}), canal.Rule(to="orders"))


def test_files_of_changes_have_what_each_was_and_became(fake_binlog: FakeBinlog, tmp_path: Path) -> None:
    table = orders(fake_binlog)
    table.insert({"id": 1, "n": 1})
    table.update({"id": 1, "n": 1}, {"n": 2})

    piped(fake_binlog, ParquetTarget(tmp_path))

    rows = pq.read_table(tmp_path / "shop.orders").to_pylist()
    assert [(row["_op"], row["_before"], row["_after"]) for row in rows] == [
        ("INSERT", None, {"id": 1, "n": 1}), ("UPDATE", {"id": 1, "n": 1}, {"id": 1, "n": 2}),
    ]  # fmt: skip


def test_a_partial_image_is_none_of_a_file_of_changes(fake_binlog: FakeBinlog, tmp_path: Path) -> None:
    table = orders(fake_binlog)
    fake_binlog.row_image = "MINIMAL"
    table.update({"id": 1, "n": 1}, {"n": 2})

    with pytest.raises(UnfitChangeError, match="binlog_row_image=FULL"):
        piped(fake_binlog, ParquetTarget(tmp_path))


_KEYS: dict[str, list[Any]] = {
    "BIGINT UNSIGNED": [(1 << 53) + 1, (1 << 64) - 1],
    "BIGINT": [(1 << 63) - 1, -(1 << 63)],
    "BIT(64)": [(1 << 64) - 1],
    "DECIMAL(18,4)": [Decimal("12345678901234.5678")],
    "DECIMAL(30,10)": [Decimal("12345678901234567890.1234567891"), Decimal("0.1234567891")],
    "DOUBLE": [0.1, 1e300],
    "DATETIME(6)": [datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(2024, 1, 1, 1, 2, 3, 456789)],
    "VARCHAR(80)": ["x" * 80, "é" * 70],
    "BINARY(16)": [b"\xff" * 16, b"\x01" * 16],
}


@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
@pytest.mark.parametrize("kind", _KEYS)
def test_delta_update_and_delete_of_a_later_commit_find_the_row(
    fake_binlog: FakeBinlog, tmp_path: Path, kind: str, image: str
) -> None:
    """Statistics of a Delta log are doubles, so a file must not be ruled out by those of a key with more digits."""
    fake_binlog.row_image = image
    table = orders(fake_binlog, f"id {kind} PRIMARY KEY, n INT, m INT")
    for key in _KEYS[kind]:
        table.insert({"id": key, "n": 1, "m": 2})
    for key in _KEYS[kind]:
        table.update({"id": key, "n": 1, "m": 2}, {"n": 3})
    table.delete({"id": _KEYS[kind][0], "n": 3, "m": 2})

    piped(fake_binlog, DeltaTarget(tmp_path), batch_size=1)

    assert sorted((row["id"], row["n"], row["m"]) for row in read(tmp_path)) == sorted((key, 3, 2) for key in _KEYS[kind][1:])
