"""Row changes as Arrow: types, the columns beside the table's, and what Arrow cannot hold."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import canal
from canal.parse.source.sealing import rotate_event
from canal.rows.decoder import RowDecoder
from canal.schema import TableSchema, column_from_text
from canal.testing import FakeBinlog
from tests.support.parsing import decoded

COLUMNS = (
    "id BIGINT UNSIGNED PRIMARY KEY, small TINYINT, price DECIMAL(10,2), huge DECIMAL(65,30), ratio FLOAT, note VARCHAR(40), "
    "raw VARBINARY(8), day DATE, at DATETIME(6), seen TIMESTAMP(3) NULL, took TIME(6), status ENUM('new','paid'), doc JSON, "
    "bits BIT(64), made YEAR"
)
ROW: dict[str, Any] = {
    "id": 2**64 - 1,
    "small": -128,
    "price": Decimal("-0.50"),
    "huge": Decimal("1." + "0" * 29 + "1"),
    "ratio": 0.1,
    "note": "é",
    "raw": b"\0\xff",
    "day": date(2026, 11, 21),
    "at": datetime(2026, 11, 21, 1, 2, 3, 4),
    "seen": datetime(2026, 11, 21, 1, 2, 3, 5000, UTC),
    "took": timedelta(hours=-838, microseconds=1),
    "status": "paid",
    "doc": {"a": [1]},
    "bits": 2**64 - 1,
    "made": 2026,
}


def batches(fake: FakeBinlog) -> list[pa.RecordBatch]:
    from canal.formats.arrow import to_arrow

    return to_arrow(decoded(fake.events()))


def test_every_type_has_its_arrow_type_and_value() -> None:
    fake = FakeBinlog()
    fake.table("shop", "orders", COLUMNS).insert(ROW, {"id": 1})
    (batch,) = batches(fake)

    types = {field.name: str(field.type) for field in batch.schema}
    assert types == {
        "_op": "string",
        "_txn": "string",
        "_ord": "int64",
        "id": "uint64",
        "small": "int8",
        "price": "decimal128(10, 2)",
        "huge": "decimal256(65, 30)",
        "ratio": "float",
        "note": "string",
        "raw": "binary",
        "day": "date32[day]",
        "at": "timestamp[us]",
        "seen": "timestamp[us, tz=UTC]",
        "took": "duration[us]",
        "status": "string",
        "doc": "string",
        "bits": "uint64",
        "made": "int16",
        "_absent": "list<item: string>",
        "_exact": "map<string, string>",
    }
    first, second = batch.to_pylist()
    assert {name: first[name] for name in ROW} == {**ROW, "ratio": pytest.approx(0.1), "doc": '{"a": [1]}'}
    assert all(second[name] is None for name in ROW if name != "id")
    assert batch.schema.metadata == {b"canal.schema": b"shop", b"canal.table": b"orders"}


@pytest.mark.parametrize("name", [b"shop", b"orders", b"note", b"journal"])
def test_a_name_that_is_no_utf_8_is_an_error(name: bytes) -> None:
    """A damaged one, or that of a file: Arrow has neither such names nor such text."""
    from canal.formats.arrow import to_arrow

    fake = FakeBinlog(checksum=False, gtid=False, base_name="journal")
    fake.table("shop", "orders", "id INT, note VARCHAR(9)").insert({"id": 1, "note": "a"})
    rotate = rotate_event("journal.000001", 4, checksum=False)
    entries = decoded([event.replace(name, b"\xff" + name[1:]) for event in (rotate, *fake.events())])
    assert [row.after[0] for entry in entries for row in entry.rows] == [1]
    with pytest.raises(canal.errors.UnsupportedError, match="is no UTF-8"):
        to_arrow(entries)


def test_operations_transactions_and_order() -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT, note VARCHAR(9)")
    with fake.transaction():
        table.insert({"id": 1, "note": "a"}, {"id": 2, "note": "b"})
        table.update({"id": 1, "note": "a"}, {"id": 1, "note": "c"})
    table.delete({"id": 2, "note": "b"})
    (batch,) = batches(fake)

    assert batch.column("_op").to_pylist() == ["insert", "insert", "update_preimage", "update_postimage", "delete"]
    assert batch.column("_ord").to_pylist() == [0, 1, 2, 2, 0]
    assert batch.column("note").to_pylist() == ["a", "b", "a", "c", "b"]
    assert batch.column("_txn").to_pylist() == [f"{fake.uuid}:1"] * 4 + [f"{fake.uuid}:2"]


def test_what_arrow_cannot_hold_is_null_and_stands_in_exact() -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT, day DATE, at DATETIME")
    table.insert({"id": 1, "day": "2026-00-15", "at": "0000-00-00 00:00:00"})
    (row,) = batches(fake)[0].to_pylist()

    assert (row["day"], row["at"]) == (None, None)
    assert dict(row["_exact"]) == {"day": "2026-00-15", "at": "0000-00-00 00:00:00"}


def test_columns_that_the_image_does_not_hold_are_named() -> None:
    fake = FakeBinlog(row_image="MINIMAL")
    table = fake.table("shop", "orders", "id INT PRIMARY KEY, a INT, b INT")
    table.update({"id": 1, "a": 1, "b": 1}, {"a": 2})
    before, after = batches(fake)[0].to_pylist()

    assert (before["id"], before["_absent"]) == (1, ["a", "b"])
    assert (after["a"], after["_absent"]) == (2, ["id", "b"])


def test_each_table_and_schema_version_is_a_batch() -> None:
    fake = FakeBinlog()
    a, b = fake.table("shop", "a", "id INT"), fake.table("shop", "b", "id INT")
    a.insert({"id": 1})
    b.insert({"id": 2})
    a.alter("ALTER TABLE a ADD x INT", "id INT, x INT")
    a.insert({"id": 3, "x": 4})

    names = [(batch.schema.metadata[b"canal.table"], batch.num_rows, len(batch.schema)) for batch in batches(fake)]
    assert names == [(b"a", 1, 6), (b"b", 1, 6), (b"a", 1, 7)]


def test_a_small_batch_is_written_out_small() -> None:
    """What Spark and other processes are given: no part of a longer array, whose buffers would be written whole."""
    fake = FakeBinlog()
    fake.table("shop", "orders", "id INT").insert({"id": 1})
    (batch,) = batches(fake)

    assert batch.serialize().size + batch.schema.serialize().size < 4096


def test_a_time_zone_is_that_of_the_decoder() -> None:
    """Also where the same table's rows were made into a batch in another one before."""
    from canal.formats import arrow

    columns = (column_from_text("seen", "timestamp"),)
    schema = TableSchema("shop", "orders", columns)
    for zone, name in ((UTC, "UTC"), (timezone(timedelta(hours=5, minutes=30)), "+05:30")):
        decoder = RowDecoder(bytes([17]), (0,), columns, None, zone)
        shape = arrow._SHAPES.of(SimpleNamespace(schema=schema, decoder=decoder, columns=columns))  # type: ignore[arg-type]
        assert shape.kinds == [pa.timestamp("us", tz=name)]


def test_columns_of_the_table_and_ours_never_have_one_name() -> None:
    fake = FakeBinlog()
    fake.table("shop", "odd", "_op INT PRIMARY KEY, __op INT, _EXACT INT").insert({"_op": 7, "__op": 8, "_EXACT": 9})

    (batch,) = batches(fake)

    assert batch.schema.names == ["___op", "_txn", "_ord", "_op", "__op", "_EXACT", "_absent", "__exact"]
    assert batch.to_pylist()[0]["___op"] == "insert"
