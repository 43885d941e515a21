"""Delta tables whose files are written anew: rows, statistics of files, and reads that skip files."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from canal.errors import TargetConflictError
from canal.targets.protocol import Progress, TableProgress
from canal.targets.tables import DeltaTableTarget

HIGHEST = "\U0010ffff"
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tinyint": (pa.int8(), [-128, -1, 0, 127]),
    "int": (pa.int32(), [-(1 << 31), 0, 1, (1 << 31) - 1]),
    "bigint": (pa.int64(), [-(1 << 63), -(1 << 53) - 1, 0, (1 << 53), (1 << 53) + 1, (1 << 63) - 2, (1 << 63) - 1]),
    "bigint unsigned": (
        pa.decimal128(20, 0),
        [Decimal(n) for n in (0, 1 << 53, (1 << 53) + 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1)],
    ),
    "decimal(18,4)": (pa.decimal128(18, 4), [Decimal(n) for n in ("-99999999999999.9999", "0.0001", "99999999999999.9998")]),
    "decimal(38,10)": (pa.decimal128(38, 10), [Decimal(f"{10**27}.000000000{n}") for n in range(5)]),
    "varchar": (pa.string(), ["", "A", "a", "a ", "x" * 40 + "1", "x" * 40 + "2", "é" * 32, HIGHEST * 32, HIGHEST * 33 + "a"]),
    "varbinary": (pa.binary(), [b"", b"\x00", b"\xff" * 40, b"\xff" * 41]),
    "date": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(2026, 1, 1), date(9999, 12, 31)]),
    "datetime": (
        pa.timestamp("us"),
        [datetime(1000, 1, 1, 0, 0, 0, 1), datetime(2026, 1, 1, 0, 0, 0, 999999), datetime(2026, 1, 1, 0, 0, 1)],
    ),
    "datetime at its limit": (pa.timestamp("us"), [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "timestamp": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, 0, 0, 0, n, UTC) for n in (1, 2, 999, 1000, 999999)]),
    "double": (pa.float64(), [-1e300, -0.5, 0.0, 0.1, 0.1 + 2**-56, 1e300]),
}


class Table:
    """A target, and what is to be in it."""

    def __init__(self, path: Path, kind: pa.DataType) -> None:
        self.target = DeltaTableTarget(str(path))
        self.schema = pa.schema([("id", kind), ("n", pa.int64()), ("price", pa.decimal128(20, 0)), ("share", pa.float64())])
        self.rows: dict[Any, int] = {}
        self.commits = 0

    def write(self, put: list[Any], gone: list[Any]) -> None:
        self.commits += 1
        ids, number, count = pa.array(put, self.schema.field("id").type), self.commits, len(put)
        columns = [ids, [number] * count, [Decimal((1 << 64) - 1)] * count, [float("nan")] * count]
        upserts = pa.table([pa.array(one, field.type) for one, field in zip(columns, self.schema)], schema=self.schema)
        deletes = pa.table({"id": pa.array(gone, self.schema.field("id").type)})
        with self.target.begin("s", ("id",)) as work:
            added = list(self.schema) if work.schema is None else []
            work.write(upserts, deletes, Progress(table=TableProgress(number, 0)), added=added, replace=False)
        self.rows |= dict.fromkeys(put, number)
        for key in gone:
            self.rows.pop(key, None)

    @property
    def delta(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.target.path)

    def check(self) -> None:
        """Compare all rows, and each row as a reader finds it that skips files."""
        found = self.delta.to_pyarrow_table()
        assert dict(zip(found["id"].to_pylist(), found["n"].to_pylist())) == self.rows
        assert len(found) == len(self.rows)
        dataset, kind = self.delta.to_pyarrow_dataset(), self.schema.field("id").type
        for key, number in self.rows.items():
            if not pa.types.is_string(kind) and not pa.types.is_binary(kind):  # Arrow has no such filter of Delta's views
                assert dataset.to_table(filter=pc.field("id") == pa.scalar(key, kind))["n"].to_pylist() == [number]
        for column, value in (("price", Decimal((1 << 64) - 1)), ("n", self.commits)):
            wanted = [key for key, number in self.rows.items() if column == "price" or number == value]
            rows = dataset.to_table(filter=pc.field(column) == pa.scalar(value, self.schema.field(column).type))
            assert len(rows) == len(wanted)


@pytest.mark.parametrize("name", KEYS)
def test_rows_of_a_key_type_are_found_again_by_changes_and_by_readers(tmp_path: Path, name: str) -> None:
    kind, keys = KEYS[name]
    table = Table(tmp_path / "t", kind)

    table.write(keys[::2], [])
    table.write(keys[1::2], [])
    table.check()
    table.write(keys[:1] + keys[-1:], [])
    table.check()
    table.write(keys[1:2], keys[:1])
    table.delta.create_checkpoint()
    table.check()
    table.write([], keys[-1:])
    table.check()
    table.delta.optimize.compact()
    table.write(keys, [])
    table.check()


def test_only_files_that_have_keys_of_a_batch_are_written_anew(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", pa.int32())
    for first in (0, 10, 20):
        table.write([first, first + 9], [])
    before = set(table.delta.file_uris())

    table.write([10, 15], [29])

    assert len(before & set(table.delta.file_uris())) == 1
    table.check()


def test_a_table_of_another_writer_whose_files_have_all_statistics_keeps_its_rows_for_readers(tmp_path: Path) -> None:
    """Statistics of decimals are rounded there, so those of some columns would hide rows."""
    table = Table(tmp_path / "t", pa.int64())
    rows = pa.table({"id": [1], "n": [0], "price": pa.array([7], pa.decimal128(20, 0)), "share": [0.5]}, schema=table.schema)
    deltalake.write_deltalake(table.target.path, rows)

    table.write([2, 3], [])
    table.write([3], [])

    found = table.delta.to_pyarrow_dataset().to_table(filter=pc.field("price") > pa.scalar(Decimal(0), pa.decimal128(20, 0)))
    assert sorted(found["id"].to_pylist()) == [1, 2, 3]


def test_files_that_another_process_compacts_meanwhile_are_a_conflict(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", pa.int64())
    for key in (1, 2, 3):
        table.write([key], [])
    row = pa.table([[2], [9], pa.array([1], pa.decimal128(20, 0)), [0.5]], schema=table.schema)

    with table.target.begin("s", ("id",)) as work:
        table.delta.optimize.compact()
        with pytest.raises(TargetConflictError):
            work.write(row, row.select(["id"]).slice(0, 0), Progress(table=TableProgress(9, 0)), added=[], replace=False)

    table.write([2], [])
    table.check()
