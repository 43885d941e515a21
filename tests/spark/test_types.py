"""The columns of a Spark stream: types, values, what a type cannot hold, and tables that change."""

from __future__ import annotations

import base64
import json
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import attrs
import pyarrow as pa
import pytest

from canal.errors import ConfigError, SchemaError, UnsupportedError
from canal.formats.change_table import Shape, pack_txn
from canal.formats.envelope import Envelope, RowJson
from canal.formats.spark_types import spark_arrow_type
from canal.parse.schema.texts import tables_from_mapping
from canal.rows.values import ABSENT, InvalidText, JsonDiff, PartialJson, ZeroDate
from canal.schema import TableSchema, column_from_text
from canal.spark.frames import spark_struct
from canal.testing import FakeBinlog
from tests.programs.types_table import EXAMPLES, Example, spark_type
from tests.support.parsing import decoded

COLUMNS = (
    "id BIGINT UNSIGNED PRIMARY KEY, tiny TINYINT UNSIGNED, small SMALLINT UNSIGNED, medium MEDIUMINT UNSIGNED, "
    "plain INT UNSIGNED, price DECIMAL(10,2), huge DECIMAL(65,30), ratio FLOAT, note VARCHAR(40), raw VARBINARY(8), "
    "day DATE, at DATETIME(6), seen TIMESTAMP(3) NULL, took TIME(6), status ENUM('new','paid'), doc JSON, bits BIT(64), "
    "flags BIT(9), made YEAR"
)
ROW: dict[str, Any] = {
    "id": 2**64 - 1,
    "tiny": 255,
    "small": 65535,
    "medium": 2**24 - 1,
    "plain": 2**32 - 1,
    "price": Decimal("-0.50"),
    "huge": Decimal("1E-30"),
    "ratio": 0.5,
    "note": "é",
    "raw": b"\0\xff",
    "day": date(2026, 11, 21),
    "at": datetime(2026, 11, 21, 1, 2, 3, 4),
    "seen": datetime(2026, 11, 21, 1, 2, 3, 5000, UTC),
    "took": timedelta(hours=-838, microseconds=1),
    "status": "paid",
    "doc": {"a": [1]},
    "bits": 2**64 - 1,
    "flags": 511,
    "made": 2026,
}
SPARK: dict[str, Any] = {
    **ROW,
    "id": Decimal(2**64 - 1),
    "huge": "0.000000000000000000000000000001",
    "doc": '{"a": [1]}',
    "bits": Decimal(2**64 - 1),
}
TYPES = {
    "id": "decimal(20,0)",
    "tiny": "smallint",
    "small": "int",
    "medium": "int",
    "plain": "bigint",
    "price": "decimal(10,2)",
    "huge": "string",
    "ratio": "float",
    "note": "string",
    "raw": "binary",
    "day": "date",
    "at": "timestamp_ntz",
    "seen": "timestamp",
    "took": "interval day to second",
    "status": "string",
    "doc": "string",
    "bits": "decimal(20,0)",
    "flags": "bigint",
    "made": "int",
}
HEAD = {"_op": "string", "_txn": "bigint", "_ord": "bigint", "_ts": "timestamp", "_gtid": "string"}
TAIL = {"_absent": "array<string>", "_exact": "map<string,string>"}


def shape_of(columns: str, **options: Any) -> Shape:
    (table,) = tables_from_mapping({"shop.orders": columns}).values()
    return Shape(table.schema, **options)


def rows_of(fake: FakeBinlog, shape: Shape) -> list[dict[str, Any]]:
    return [row for batch in shape.batches(decoded(fake.events()), 1) for row in batch.to_pylist()]


@pytest.mark.parametrize("keep", [False, True])
def test_the_arrow_schema_is_the_one_that_pyspark_expects(keep: bool) -> None:
    from pyspark.sql.pandas import types

    for shape in (shape_of(COLUMNS, keep=keep), Envelope()):
        assert types.to_arrow_schema(spark_struct(shape.arrow), timezone="UTC") == shape.arrow
        assert all(field.nullable for field in shape.arrow)
    tail = {**TAIL, "_extra": "map<string,string>"} if keep else TAIL
    before = ",".join(f"{name}:{kind}" for name, kind in {**TYPES, **tail}.items())
    expected = {**HEAD, **TYPES, "_before": f"struct<{before}>", **tail}
    assert {field.name: field.dataType.simpleString() for field in spark_struct(shape_of(COLUMNS, keep=keep).arrow)} == expected


def test_every_type_comes_with_its_value_from_a_looked_up_schema_and_from_full_metadata() -> None:
    fake = FakeBinlog()
    fake.table("shop", "orders", COLUMNS).insert(ROW, {"id": 1})
    entries = decoded(fake.events())
    looked_up, logged = shape_of(COLUMNS), Shape(next(entry.table.schema for entry in entries if entry.table is not None))

    assert looked_up.arrow == logged.arrow
    for shape in (looked_up, logged):
        (batch,) = shape.batches(entries)
        assert batch.schema == shape.arrow
        first, second = batch.to_pylist()
        assert {name: first[name] for name in ROW} == SPARK
        assert all(second[name] is None for name in ROW if name != "id")
        assert (first["_absent"], first["_exact"], first["_before"]) == (None, None, None)


def test_operations_order_and_the_row_before() -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT, note VARCHAR(9)")
    with fake.transaction():
        table.insert({"id": 1, "note": "a"}, {"id": 2, "note": "b"})
        table.update({"id": 1, "note": "a"}, {"id": 1, "note": "c"})
    table.delete({"id": 2, "note": "b"})
    entries = decoded(fake.events())
    rows = rows_of(fake, shape_of("id INT, note VARCHAR(9)"))

    assert [(row["_op"], row["_ord"], row["id"], row["note"]) for row in rows] == [
        ("I", 0, 1, "a"),
        ("I", 1, 2, "b"),
        ("U", 2, 1, "c"),
        ("D", 0, 2, "b"),
    ]
    assert [row["_before"] and row["_before"]["note"] for row in rows] == [None, None, "a", None]
    changed = [entry for entry in entries if entry.table is not None]
    assert [row["_gtid"] for row in rows] == [f"{fake.uuid}:1"] * 3 + [f"{fake.uuid}:2"]
    assert {row["_ts"] for row in rows} == {datetime.fromtimestamp(changed[0].timestamp, UTC)}
    transactions = [changed[0].transaction, changed[0].transaction, changed[0].transaction, changed[-1].transaction]
    assert [row["_txn"] for row in rows] == [pack_txn(1, one.journal, one.offset) for one in transactions]
    assert rows[0]["_txn"] < rows[-1]["_txn"]


def test_what_the_type_cannot_hold_and_what_the_image_lacks_is_told_of_both_images() -> None:
    fake = FakeBinlog(row_image="MINIMAL")
    columns = "id INT PRIMARY KEY, day DATE, at DATETIME, note VARCHAR(5)"
    fake.table("shop", "orders", columns).update({"id": 1, "day": "2026-01-01"}, {"day": "2026-00-15"})
    full = FakeBinlog()
    full.table("shop", "orders", columns).update(
        {"id": 1, "day": "2026-00-15", "at": None, "note": "a"}, {"id": 1, "day": None, "at": "0000-00-00 00:00:00", "note": "b"}
    )
    (row,) = rows_of(fake, shape_of(columns))
    (other,) = rows_of(full, shape_of(columns))

    assert (row["id"], row["day"], dict(row["_exact"])) == (None, None, {"day": "2026-00-15"})
    assert set(row["_absent"]) == {"id", "at", "note"}
    assert row["_before"]["id"] == 1
    assert set(row["_before"]["_absent"]) == {"day", "at", "note"}
    assert dict(other["_exact"]) == {"at": "0000-00-00 00:00:00"}
    assert dict(other["_before"]["_exact"]) == {"day": "2026-00-15"}


def test_a_changed_table_stops_the_query_and_says_how_it_changed() -> None:
    fake = FakeBinlog()
    fake.table("shop", "orders", "id BIGINT, fresh INT").insert({"id": 1, "fresh": 2})

    with pytest.raises(SchemaError, match="fresh is new, note is gone, id is int64, was int32") as caught:
        rows_of(fake, shape_of("id INT, note VARCHAR(9)"))
    assert "Restart the query" in str(caught.value)


def test_a_column_that_is_gone_or_not_there_yet_is_told_as_absent() -> None:
    fake = FakeBinlog()
    fake.table("shop", "orders", "id INT, note VARCHAR(9)").insert({"id": 1, "note": "a"})
    (row,) = rows_of(fake, shape_of("id INT, later INT, note VARCHAR(9)"))

    assert (row["id"], row["later"], row["note"], row["_absent"]) == (1, None, "a", ["later"])


def test_a_changed_table_is_kept_on_with_if_wanted() -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id BIGINT, day VARCHAR(9), text INT, fresh DATETIME, raw VARBINARY(3)")
    old = {"id": 7, "day": None, "text": 5, "fresh": datetime(2026, 1, 2), "raw": b"\xff"}
    table.insert(old)
    table.update(old, {**old, "id": 2**40, "day": "monday", "fresh": None})
    rows = rows_of(fake, shape_of("id INT, day DATE, text VARCHAR(9), gone INT", keep=True))

    assert [(row["id"], row["day"], row["text"], row["gone"]) for row in rows] == [(7, None, "5", None), (None, None, "5", None)]
    assert [row["_absent"] for row in rows] == [["gone"], ["gone"]]
    assert rows[0]["_exact"] is None
    assert dict(rows[1]["_exact"]) == {"id": str(2**40), "day": "monday"}
    assert [dict(row["_extra"]) for row in rows] == [{"fresh": "2026-01-02 00:00:00", "raw": "ff"}, {"raw": "ff"}]
    assert rows[1]["_before"]["id"] == 7
    assert dict(rows[1]["_before"]["_extra"]) == {"fresh": "2026-01-02 00:00:00", "raw": "ff"}


@pytest.mark.parametrize("position", [(32, "bin.000001", 4), (0, "bin.4194304", 4), (0, "bin.000001", 1 << 36), (0, "dump", 4)])
def test_a_position_that_does_not_fit_into_the_order_of_transactions_is_refused(position: tuple[int, str, int]) -> None:
    with pytest.raises(UnsupportedError, match="64 bits"):
        pack_txn(*position)


def test_transactions_are_ordered_by_epoch_then_journal_then_offset() -> None:
    positions = [(0, "b.000001", 4), (0, "b.000001", (1 << 36) - 1), (0, "b.000002", 4), (0, "b.4194303", 4), (31, "b.000001", 4)]
    packed = [pack_txn(*position) for position in positions]

    assert packed == sorted(set(packed))
    assert 0 < packed[-1] < 1 << 63


def test_names_that_only_the_stream_may_use_are_refused() -> None:
    with pytest.raises(ConfigError, match="_OP"):
        Shape(TableSchema("shop", "orders", (column_from_text("_OP", "int"),)))
    with pytest.raises(ConfigError, match="no columns"):
        Shape(TableSchema("shop", "orders", ()))


def test_a_shape_travels() -> None:
    shape = shape_of(COLUMNS, keep=True)
    assert shape.arrow
    copy = pickle.loads(pickle.dumps(shape))

    assert copy == shape
    assert copy.arrow == shape.arrow
    assert attrs.evolve(shape, keep=False) != shape


def test_the_page_of_types_names_sparks_as_spark_does() -> None:
    from pyspark.sql.pandas import types

    for example in EXAMPLES:
        expected = types.from_arrow_type(spark_arrow_type(example.column), prefer_timestamp_ntz=True).simpleString()
        assert spark_type(example.column) == expected


def test_a_looked_up_decimal_and_bit_without_arguments() -> None:
    assert [field.type for field in shape_of("a DECIMAL, b BIT, c DECIMAL(5)").columns] == [
        pa.decimal128(10, 0),
        pa.int64(),
        pa.decimal128(5, 0),
    ]


def test_the_envelope_holds_many_tables_as_json() -> None:
    fake = FakeBinlog(row_image="MINIMAL")
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(9)")
    with fake.transaction():
        orders.insert({"id": 1, "note": "é"})
        fake.table("shop", "other", "id INT").delete({"id": None})
    orders.update({"id": 1, "note": "a"}, {"note": "b"})
    batch = Envelope().batch(decoded(fake.events()))

    assert batch.schema == Envelope().arrow
    wanted = ("_op", "schema", "table", "data", "old", "sql")
    assert [tuple(row[name] for name in wanted) for row in batch.to_pylist()] == [
        ("I", "shop", "orders", '{"id":1,"note":"é"}', None, None),
        ("D", "shop", "other", '{"id":null}', None, None),
        ("U", "shop", "orders", '{"note":"b"}', "{}", None),
    ]
    assert Envelope().batch([]).num_rows == 0


def envelope_of(columns: str, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each row that is inserted, what ``data`` holds."""
    fake = FakeBinlog()
    table = fake.table("shop", "orders", columns)
    for row in rows:
        table.insert(row)
    return [json.loads(row["data"]) for row in Envelope().batch(decoded(fake.events())).to_pylist()]


def test_a_value_of_the_envelope_has_the_form_that_from_json_reads_for_its_column() -> None:
    least: dict[str, Any] = {
        **ROW,
        "id": 2**63,
        "price": Decimal("99999999.99"),
        "huge": Decimal("-" + "9" * 35 + "." + "9" * 30),
        "ratio": 0.1,
        "note": 'a"\\\0\u2028😀',
        "raw": b"",
        "at": datetime(1000, 1, 1),
        "seen": datetime(2026, 11, 21, tzinfo=UTC),
        "took": timedelta(hours=838),
        "bits": 0,
        "flags": 0,
        "made": 0,
    }
    found = envelope_of(COLUMNS, ROW, least, {"id": 0})
    assert found == [
        {
            "id": 2**64 - 1,
            "tiny": 255,
            "small": 65535,
            "medium": 2**24 - 1,
            "plain": 2**32 - 1,
            "price": "-0.50",
            "huge": "0.000000000000000000000000000001",
            "ratio": 0.5,
            "note": "é",
            "raw": "AP8=",
            "day": "2026-11-21",
            "at": "2026-11-21 01:02:03.000004",
            "seen": "2026-11-21 01:02:03.005000+00:00",
            "took": "-837:59:59.999999",
            "status": "paid",
            "doc": '{"a": [1]}',
            "bits": 2**64 - 1,
            "flags": 511,
            "made": 2026,
        },
        {
            **found[0],
            "id": 2**63,
            "price": "99999999.99",
            "huge": "-" + "9" * 35 + "." + "9" * 30,
            "ratio": 0.1,
            "note": 'a"\\\0\u2028😀',
            "raw": "",
            "at": "1000-01-01 00:00:00",
            "seen": "2026-11-21 00:00:00+00:00",
            "took": "838:00:00",
            "bits": 0,
            "flags": 0,
            "made": 0,
        },
        {**dict.fromkeys(ROW), "id": 0},
    ]
    assert [type(found[0][name]) for name in ("id", "tiny", "bits", "made")] == [int] * 4  # True and 1.0 are equal to 1


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.type)
def test_each_type_of_the_page_has_its_form_in_an_envelope(example: Example) -> None:
    column, value = example.column, example.value
    made = json.loads(RowJson([column]).texts(None, (value,))[0])
    kind = spark_arrow_type(column)
    if isinstance(value, (ZeroDate, InvalidText)):
        assert made == {"c": None, "_exact": {"c": value.hex() if isinstance(value, bytes) else str(value)}}
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or kind == pa.decimal128(20, 0):
        assert (made["c"], type(made["c"])) == (value, type(value))
    elif pa.types.is_binary(kind):
        assert base64.b64decode(made["c"], validate=True) == value
    elif pa.types.is_duration(kind):
        assert made["c"] == "-00:00:00.005000"
    else:
        assert made["c"] == (format(value, "f") if isinstance(value, Decimal) else str(value))
    assert set(made) == ({"c", "_exact"} if made["c"] is None else {"c"})


def test_what_no_type_holds_stands_in_exact_of_the_envelope() -> None:
    columns = [
        column_from_text("day", "date"),
        column_from_text("note", "varchar(9)", charset="utf8mb4"),
        column_from_text("mood", "enum('a')", charset="gbk"),
        column_from_text("doc", "json"),
        column_from_text("b", "blob"),
        column_from_text("odd", "varchar(9)", charset="utf8mb4"),
        column_from_text("ratio", "double"),
    ]
    step = PartialJson((JsonDiff("REPLACE", "$.a", "1"),))
    row = (ZeroDate("2026-00-15"), InvalidText(b"\xff", "utf8mb4"), "x\udcff", step, b"\xff", b"raw", float("nan"))
    data, old = RowJson(columns).texts(None, row)
    assert old is None
    assert json.loads(data) == {
        "day": None,
        "note": None,
        "mood": None,
        "doc": None,
        "b": "/w==",
        "odd": None,
        "ratio": "NaN",
        "_exact": {
            "day": "2026-00-15",
            "note": "ff",
            "mood": b"x\xff".hex(),
            "doc": "JSON_REPLACE(doc, '$.a', 1)",
            "odd": b"raw".hex(),
        },
    }


def test_old_of_an_envelope_has_the_columns_whose_values_the_update_changed() -> None:
    columns = [column_from_text(name, kind) for name, kind in (("id", "int"), ("day", "date"), ("ratio", "double"), ("c", "int"))]
    made = RowJson(columns)
    days = ZeroDate("0000-00-00"), ZeroDate("2026-00-00")
    assert [json.loads(str(text)) for text in made.texts((1, days[0], 0.0, 5), (1, days[1], -0.0, ABSENT))] == [
        {"id": 1, "day": None, "ratio": -0.0, "_exact": {"day": "2026-00-00"}},
        {"day": None, "ratio": 0.0, "_exact": {"day": "0000-00-00"}},
    ]
    assert made.texts((1, None, 0.0, 5), (1, None, 0.0, 5))[1] == "{}"
    assert made.texts((1, days[0], 0.0, ABSENT), None) == ('{"id":1,"day":null,"ratio":0.0,"_exact":{"day":"0000-00-00"}}', None)
    assert made.texts((ABSENT,), (7,)) == ('{"id":7}', "{}")


def test_a_column_named_as_exact_keeps_its_name_in_an_envelope() -> None:
    columns = [column_from_text("_Exact", "int"), column_from_text("__exact", "date")]
    assert RowJson(columns).texts(None, (1, ZeroDate("0000-00-00")))[0] == (
        '{"_Exact":1,"__exact":null,"___exact":{"__exact":"0000-00-00"}}'
    )
