"""What Delta, Iceberg and Parquet tables do behind a pipe beside the suite."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import canal
from canal.changes import Changes, latest
from canal.changes.batch import EntryRows
from canal.errors import TargetLostError, TargetSchemaError, UnfitChangeError
from canal.formats.change_columns import change_columns
from canal.targets import DeltaTarget, IcebergTarget, JSONLinesTarget, ParquetTarget, Upkeep
from canal.testing.fake import FakeBinlog, FakeTable
from tests.support import states
from tests.support.lakes import load_catalog
from tests.support.pipes import life


def piped(fake: FakeBinlog, target: canal.targets.Target, *rules: canal.Rule, **options: Any) -> canal.Pipe:
    """All that the log has, from its start on."""
    fake.end()
    options.setdefault("on_error", "stop")
    config = canal.InstanceConfig(destination="test", source=fake, start="earliest", meta=canal.MemoryMeta())
    with canal.Instance(config) as instance:
        instance.subscribe()
        made = canal.pipe(instance, target, rules=rules, **options)
        made.run()
        return made


def orders(fake: FakeBinlog, columns: str = "id INT PRIMARY KEY, n INT") -> FakeTable:
    return fake.table("shop", "orders", columns)


def read(root: Path) -> list[dict[str, Any]]:
    rows = deltalake.DeltaTable(str(root / "shop.orders")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: str(row["id"]))


#: Columns of many types; the values of two rows, and of a third one.
TYPES: dict[str, tuple[str, Any, Any]] = {
    "big": ("BIGINT UNSIGNED", 2**64 - 1, 2**53 + 1),
    "mid": ("MEDIUMINT UNSIGNED", 2**24 - 1, 0),
    "tiny": ("TINYINT", -128, None),
    "year": ("YEAR", 2026, None),
    "bits": ("BIT(64)", 2**64 - 1, 1),
    "few": ("BIT(9)", 300, None),
    "price": ("DECIMAL(12,2)", Decimal("-1.50"), None),
    "huge": ("DECIMAL(65,30)", Decimal("1e-30"), None),
    "real": ("FLOAT", 0.5, None),
    "double_": ("DOUBLE", -0.0, None),
    "day": ("DATE", date(1, 1, 1), None),
    "moment": ("DATETIME(6)", datetime(2026, 1, 1, 1, 1, 1, 1), None),
    "span": ("TIME(6)", timedelta(hours=-800, microseconds=1), None),
    "stamp": ("TIMESTAMP(6)", datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC), None),
    "name": ("VARCHAR(20)", "a ", "ä"),
    "kind": ("ENUM('x','y')", "y", None),
    "flags": ("SET('x','y')", ("x", "y"), None),
    "raw": ("VARBINARY(9)", b"\x00\xff", b""),
    "document": ("JSON", '{"a": [1, null]}', None),
}
KEYS = ["id INT", "id BIGINT UNSIGNED", "id VARCHAR(20)", "id DECIMAL(20,0)", "id VARBINARY(9)", "id DATETIME(6)"]


def key_values(kind: str) -> list[Any]:
    if "VARCHAR" in kind:
        return ["a", "A", "a ", "é"]
    if "VARBINARY" in kind:
        return [b"a", b"", b"\xff", b"\xfe"]
    if "DATETIME" in kind:
        return [datetime(2026, 1, 1, 0, 0, 0, number) for number in range(4)]
    first = 2**64 - 4 if "UNSIGNED" in kind else 1
    return [Decimal(10**19 + number) if "DECIMAL" in kind else first + number for number in range(4)]


def no_rows() -> Any:
    raise AssertionError("rows are made")


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("lake", ["delta", "iceberg"])
def test_columns_of_changes_make_the_table_that_rows_of_them_make(
    fake_binlog: FakeBinlog, tmp_path: Path, lake: str, kind: str
) -> None:
    """By columns no row is made."""
    columns = ", ".join(f"{name} {declared}" for name, (declared, _, _) in TYPES.items())
    table = fake_binlog.table("shop", "orders", f"{kind} PRIMARY KEY, {columns}")
    one, two, three, four = key_values(kind)
    values, others = ({name: pair[at] for name, pair in TYPES.items()} for at in (1, 2))
    table.insert({"id": one, **values}, {"id": two, **others})
    table.update({"id": two, **others}, {"id": two, **values})
    table.insert({"id": three, **others})
    fake_binlog.ddl("CREATE TABLE shop.other (id INT)")  # a second batch
    table.update({"id": one, **values}, {"id": four, **others})
    table.insert({"id": one, **others})
    table.delete({"id": three, **others})
    fake_binlog.end()
    with life(fake_binlog) as instance:
        entries = [entry for message in instance.stream() for entry in message.entries if entry.table is not None]
    batches = [entries[:3], entries[3:]]
    made = {}
    for form in ("columns", "rows"):
        (tmp_path / form).mkdir()
        properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/{form}/c", "warehouse": f"file://{tmp_path}/{form}"}
        target: Any = DeltaTarget(tmp_path / form) if lake == "delta" else IcebergTarget(form, properties)
        old = None
        for number, batch in enumerate(batches, 1):
            changes = states.changes(batch)
            if form == "rows":
                changes = Changes([changes.rows])
            else:
                changes = Changes([EntryRows(part.entry, part.source, no_rows) for part in changes.parts], change_columns)
            new = canal.targets.Progress(canal.Position("binlog.000001", number)).to_text()
            with target.begin("s") as work:
                work.write(latest(changes, work.read), old, new, "shop.orders")
            old = new
        if lake == "delta":
            made[form] = deltalake.DeltaTable(str(tmp_path / form / "shop.orders")).to_pyarrow_table()
        else:
            catalog = load_catalog(form, **properties)
            made[form] = catalog.load_table("shop.orders").scan().to_arrow()
            catalog.close()

    assert made["columns"].schema == made["rows"].schema
    assert sorted(map(str, made["columns"].to_pylist())) == sorted(map(str, made["rows"].to_pylist()))
    assert {row["id"] for row in made["columns"].to_pylist()} == {one, two, four}


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


@pytest.mark.parametrize("lake", ["delta", "iceberg"])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_batch_whose_only_change_is_parked_moves_the_progress(
    fake_binlog: FakeBinlog, tmp_path: Path, lake: str, is_there: bool
) -> None:
    table = orders(fake_binlog, "id INT PRIMARY KEY, d DATE")
    if is_there:
        table.insert({"id": 2})
    table.insert({"id": 1, "d": canal.ZeroDate("0000-00-00")})
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c", "warehouse": f"file://{tmp_path}"}
    target: Any = DeltaTarget(tmp_path) if lake == "delta" else IcebergTarget("parked", properties)

    made = piped(fake_binlog, target, on_unfit=JSONLinesTarget(tmp_path / "parked"), batch_size=1)

    assert (made.status().parked, made.status().changes) == (1, int(is_there))
    again = piped(fake_binlog, target, on_unfit=JSONLinesTarget(tmp_path / "parked"), batch_size=1)
    assert again.status().parked == (0 if is_there else 1)


class Between:
    """A target of which something else happens to the table between the first commit and the second."""

    guarantee, scope, is_log = canal.targets.Guarantee.ONCE, "table", False

    def __init__(self, target: Any, happens: Callable[[], None]) -> None:
        self.target, self.left = target, [lambda: None, happens]

    @contextmanager
    def begin(self, stream: str) -> Iterator[Any]:
        with self.target.begin(stream) as work:
            write = work.write

            def later(*given: Any) -> None:
                if self.left:
                    self.left.pop(0)()
                write(*given)

            work.write = later
            yield work


@pytest.mark.parametrize("what", ["delta removed", "iceberg dropped", "iceberg rolled back"])
def test_table_that_is_lost_between_commits_ends_the_pipe(fake_binlog: FakeBinlog, tmp_path: Path, what: str) -> None:
    """Without the rows of before, the rest would be no copy of the source's table."""
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c", "warehouse": f"file://{tmp_path}"}
    table = orders(fake_binlog)
    for number in range(3):
        table.insert({"id": number, "n": number})

    def happens() -> None:
        if what == "delta removed":
            shutil.rmtree(tmp_path / "shop.orders")
            return
        catalog = load_catalog("lost", **properties)
        if what == "iceberg dropped":
            catalog.drop_table("shop.orders")
        else:
            there = catalog.load_table("shop.orders")
            there.overwrite(there.scan().to_arrow())
            there.manage_snapshots().rollback_to_snapshot(there.snapshots()[0].snapshot_id).commit()
        catalog.close()

    target: Any = DeltaTarget(tmp_path) if what == "delta removed" else IcebergTarget("lost", properties)
    between = Between(target, happens)
    if what == "iceberg rolled back":
        between.left.insert(0, lambda: None)

    with pytest.raises(TargetLostError, match="shop.orders of .* was dropped, replaced or restored"):
        piped(fake_binlog, between, batch_size=1, on_error=canal.pipes.Retry(first=0.01))


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

    with pytest.raises(canal.ConfigError, match="not a directory name"):
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
        ("INSERT", None, {"id": 1, "n": 1}),
        ("UPDATE", {"id": 1, "n": 1}, {"id": 1, "n": 2}),
    ]


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
