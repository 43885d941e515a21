"""Column values as canal writes them."""

from __future__ import annotations

import pickle
import struct
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import canal
from canal.errors import DecodeError
from canal.formats.columns import PLAIN, Column, Form, canal_columns, canal_form, column_text, float32_text, float_text, sql_type
from canal.rows.values import ABSENT, InvalidText, NoLabel, ZeroDate
from canal.schema import ColumnSchema, column_from_text
from canal.testing import FakeBinlog

FLAGS = tuple(f"f{i}" for i in range(64))


def column(column_type: str, code: int, **more: Any) -> ColumnSchema:
    text = {"char", "varchar", "text", "tinytext", "mediumtext", "longtext"}
    more.setdefault("charset", "utf8mb4" if column_type.partition("(")[0] in text else None)
    return ColumnSchema(name="c", type_code=code, column_type=column_type, unsigned="unsigned" in column_type, **more)


ENUM = column("enum('a','b')", 254, labels=("a", "b"))
SET = column("set('x','y','z')", 254, labels=("x", "y", "z"))


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (column("tinyint(4)", 1), -6),
        (column("tinyint(3) unsigned", 1), 5),
        (column("smallint", 2), 5),
        (column("smallint unsigned", 2), 4),
        (column("mediumint", 9), 4),
        (column("mediumint unsigned", 9), 4),
        (column("int", 3), 4),
        (column("int unsigned", 3), -5),
        (column("bigint", 8), -5),
        (column("bigint unsigned", 8), 3),
        (column("float", 4), 7),
        (column("double", 5), 8),
        (column("decimal(9,2)", 246), 3),
        (column("bit(1)", 16), -7),
        (column("year", 13), 12),
        (column("date", 10), 91),
        (column("time(3)", 19), 92),
        (column("time", 11), 92),
        (column("datetime", 12), 93),
        (column("datetime(6)", 18), 93),
        (column("timestamp", 17), 93),
        (column("char(3)", 254), 1),
        (column("varchar(3)", 15), 12),
        (column("varchar(3)", 253), 12),
        (column("binary(3)", 254), 2004),
        (column("varbinary(3)", 15), 2004),
        (column("tinytext", 252), 2005),
        (column("longtext", 252), 2005),
        (column("blob", 252), 2004),
        (column("", 252, charset="latin1"), 2005),
        (column("", 252, charset="binary"), 2004),
        (column("", 15), 2004),
        (column("", 254, charset="gbk"), 1),
        (column("text /*M!100301 COMPRESSED*/", 140, charset="utf8mb3"), 2005),
        (column("geometry", 255), 2004),
        (column("vector(3)", 242), 2004),
        (column("json", 245), 12),
        (column("uuid", 254), 1),
        (ENUM, 4),
        (SET, -7),
        (ColumnSchema("c", 247, labels=("a",)), 4),
        (ColumnSchema("c", 248, labels=("a",)), -7),
        (ColumnSchema("c", 254, meta=0xF701), 4),
        (ColumnSchema("c", -1), 1111),
        (ColumnSchema("c", 20), 1111),
    ],
)
def test_sql_type(spec: ColumnSchema, code: int) -> None:
    assert sql_type(spec) == code


@pytest.mark.parametrize(
    ("spec", "value", "text"),
    [
        (column("int", 3), None, None),
        (column("int", 3), -5, "-5"),
        (column("bigint unsigned", 8), 2**64 - 1, "18446744073709551615"),
        (column("bit(9)", 16), 257, "257"),
        (column("year", 13), 0, "0000"),
        (column("year", 13), 2155, "2155"),
        (column("decimal(5,2)", 246), Decimal("5.00"), "5.00"),
        (column("decimal(5,2)", 246), Decimal("-0.50"), "-0.50"),
        (column("decimal(40,20)", 246), Decimal("1E-20"), "0.00000000000000000001"),
        (column("decimal(65,0)", 246), Decimal("9" * 65), "9" * 65),
        (column("float", 4), 0.1, "0.1"),
        (column("float", 4), struct.unpack("<f", struct.pack("<f", 0.1))[0], "0.1"),
        (column("double", 5), 0.1, "0.1"),
        (column("char(3)", 254), "é ", "é "),
        (column("varchar(3)", 15), "", ""),
        (column("varbinary(3)", 15), b"\x00\xff", "\x00\xff"),
        (column("varchar(3)", 15), InvalidText(b"\xff", "utf8mb4"), "\xff"),
        (column("date", 10), date(33, 1, 2), "0033-01-02"),
        (column("date", 10), ZeroDate("2026-00-15"), "2026-00-15"),
        (column("datetime", 18), datetime(999, 1, 2, 3, 4, 5), "0999-01-02 03:04:05"),
        (column("datetime(2)", 18), datetime(2026, 1, 2, 3, 4, 5, 670000), "2026-01-02 03:04:05.67"),
        (column("datetime(6)", 18), datetime(2026, 1, 2, 3, 4, 5), "2026-01-02 03:04:05.000000"),
        (column("", 18, meta=3), datetime(2026, 1, 2, 3, 4, 5, 67000), "2026-01-02 03:04:05.067"),
        (column("timestamp(1)", 17), ZeroDate("0000-00-00 00:00:00.0"), "0000-00-00 00:00:00.0"),
        (column("timestamp", 17), datetime(2026, 1, 2, 23, 4, 5, tzinfo=timezone(timedelta(hours=8))), "2026-01-02 23:04:05"),
        (column("time", 19), timedelta(hours=838, minutes=59, seconds=59), "838:59:59"),
        (column("time", 19), timedelta(0), "00:00:00"),
        (column("time(2)", 19), -timedelta(milliseconds=500), "-00:00:00.50"),
        (column("time(3)", 19), -timedelta(microseconds=1000), "-00:00:00.001"),
        (column("time(6)", 19), -timedelta(hours=838, minutes=59, seconds=58, microseconds=999999), "-838:59:58.999999"),
        (ENUM, "a", "1"),
        (ENUM, "b", "2"),
        (ENUM, "", "0"),
        (ENUM, 2, "2"),
        (column("enum('','x')", 254, labels=("", "x")), "", "1"),
        (SET, "", "0"),
        (SET, "x,z", "5"),
        (column("set", 248, labels=FLAGS), ",".join(FLAGS), str(2**64 - 1)),
        (column("json", 245), '{"a": [1, 2]}', '{"a": [1, 2]}'),
        (column("geometry", 255), b"\x01\x80", "\x01\x80"),
    ],
)
def test_column_text(spec: ColumnSchema, value: Any, text: str | None) -> None:
    found = column_text(value, spec)
    assert found == text
    assert found is None or type(found) is str


@pytest.mark.parametrize(("spec", "value"), [(ENUM, "secret"), (SET, "x,secret"), (ColumnSchema("c", 247), "secret")])
def test_a_label_that_is_not_there_is_an_error_without_the_value(spec: ColumnSchema, value: str) -> None:
    with pytest.raises(DecodeError) as caught:
        column_text(value, spec)
    assert "secret" not in str(caught.value)
    assert caught.value.column == "c"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-2.5, "-2.5"),
        (100.0, "100.0"),
        (123.456, "123.456"),
        (0.001, "0.001"),
        (0.00015, "1.5E-4"),
        (0.0009999, "9.999E-4"),
        (9999999.0, "9999999.0"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1e22, "1.0E22"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "4.9E-324"),
        (2e-323, "2.0E-323"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_double_as_java(value: float, text: str) -> None:
    assert float_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (0.3, "0.3"),
        (16777216.0, "1.6777216E7"),
        (3.4028234663852886e38, "3.4028235E38"),
        (1.401298464324817e-45, "1.4E-45"),
        (1.17549435e-38, "1.1754944E-38"),
        (-1234.5, "-1234.5"),
        (1e10, "1.0E10"),
        (float("inf"), "Infinity"),
    ],
)
def test_float_as_java(value: float, text: str) -> None:
    assert float32_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_text_reads_back(value: float) -> None:
    assert float(float_text(value)) == value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float_text_reads_back_and_is_short(value: float) -> None:
    text = float32_text(value)
    assert struct.pack("<f", float(text)) == struct.pack("<f", value)
    assert sum(c.isdigit() for c in text.partition("E")[0].lstrip("-0.")) <= 9
    assert ("E" not in text) == (1e-3 <= abs(value) < 1e7 or value == 0)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False).filter(bool))
@example(1e-45)
@example(struct.unpack("<f", struct.pack("<f", 1.4e-3))[0])
def test_float_text_has_as_few_digits_as_can_be(value: float) -> None:
    exact = struct.pack("<f", value)
    fewest = next(text for n in range(9) if _single(text := f"{value:.{n}e}") == exact)

    digits = fewest.partition("e")[0].replace(".", "").strip("-0")
    assert len(float32_text(value).partition("E")[0].replace(".", "").strip("-0")) <= max(len(digits), 2)


def _single(text: str) -> bytes:
    try:
        return struct.pack("<f", float(text))
    except OverflowError:
        return b""


def test_a_column_is_a_value() -> None:
    given = (3, -5, "c", True, False, False, "1", "bigint")
    one = Column(*given)

    assert one == Column(*given)
    assert hash(one) == hash(Column(*given))
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != given
    assert repr(one) == (
        "Column(index=3, sql_type=-5, name='c', is_key=True, updated=False, is_null=False, value='1', mysql_type='bigint')"
    )
    for n, other in enumerate((4, 4, "d", False, True, True, None, "int")):
        assert Column(*given[:n], other, *given[n + 1 :]) != one  # type: ignore[arg-type]


def test_columns_are_counted_among_those_of_their_own_table() -> None:
    """What is remembered of some columns is not taken for the same ones of another table, or in another form."""
    delivered = (column_from_text("e", "enum('a','b')"),)
    for table in (delivered, (ColumnSchema("id", 3), *delivered), None):
        for form in (PLAIN, Form(labels=True), Form(codes_of_values=True)):
            for _ in range(2):
                _, (made,) = canal_form(delivered, form, table).of(None, ["b"])
                assert made.index == (1 if table and len(table) > 1 else 0)
                assert made.value == ("b" if form.labels else "2")
                assert column_text("b", delivered[0], form) == made.value


def test_canal_columns() -> None:
    columns = (
        ColumnSchema("id", 3, key=True, column_type="int"),
        ColumnSchema("a", 3, column_type="int"),
        ColumnSchema("b", 3, column_type="int"),
        ColumnSchema("c", 3, column_type="int"),
    )
    before, after = canal_columns(columns, (1, 2, None, 4), (1, 3, None, None))
    assert [c.updated for c in before] == [False] * 4
    assert [c.updated for c in after] == [False, True, False, True]
    assert [c.is_key for c in after] == [True, False, False, False]
    assert [c.is_null for c in after] == [False, False, True, True]
    assert [c.value for c in after] == ["1", "3", None, None]

    before, after = canal_columns(columns, None, (1, None, 3, 4))
    assert before == []
    assert [c.updated for c in after] == [True] * 4

    before, after = canal_columns(columns, (1, 2, 3, 4), None)
    assert after == []
    assert not any(c.updated for c in before)


def test_columns_missing_from_an_image_are_left_out() -> None:
    columns = tuple(ColumnSchema(name, 3, column_type="int") for name in "abc")
    before, after = canal_columns(columns, (1, ABSENT, ABSENT), (ABSENT, ABSENT, 1))
    assert [(c.index, c.name) for c in before] == [(0, "a")]
    assert [(c.index, c.name, c.updated) for c in after] == [(2, "c", True)]


def test_codes_of_values_are_canals_own() -> None:
    """Canal-behaviour: an unsigned integer is widened by its value, and two kinds of NULL have codes of their own."""
    cases = [
        ("tinyint unsigned", 127, -6),
        ("tinyint unsigned", 128, 5),
        ("smallint unsigned", 32768, 4),
        ("smallint unsigned", 1, 5),
        ("mediumint unsigned", 2**23, 4),
        ("int unsigned", 2**31 - 1, 4),
        ("int unsigned", 2**31, -5),
        ("bigint unsigned", 1, -5),
        ("bigint unsigned", 2**63, 3),
        ("bigint unsigned", None, -5),
        ("bigint", -1, -5),
        ("set('a')", None, 2004),
        ("set('a')", "a", -7),
        ("json", None, 1111),
        ("json", "[]", 12),
        ("enum('a')", None, 4),
        ("decimal(3,0) unsigned", Decimal(1), 3),
    ]
    for text, value, code in cases:
        _, (made,) = canal_columns([column_from_text("c", text)], None, [value], Form(codes_of_values=True))
        assert made.sql_type == code, (text, value)


def test_labels_are_text() -> None:
    columns = [column_from_text("e", "enum('a','b')"), column_from_text("s", "set('a','b')")]

    _, made = canal_columns(columns, None, ["b", "a,b"], Form(labels=True))

    assert [(column.value, column.sql_type) for column in made] == [("b", 12), ("a,b", 12)]


def test_no_label_is_not_the_empty_label() -> None:
    """T50."""
    column = column_from_text("e", "enum('x','')")

    assert [column_text(value, column) for value in (NoLabel(), "", "x", None)] == ["0", "2", "1", None]


def test_a_label_that_comes_twice_or_is_empty_has_its_number() -> None:
    """FakeBinlog logs numbers; the texts are those that the servers select."""
    fake = FakeBinlog()
    table = fake.table("shop", "odd", "id INT PRIMARY KEY, e ENUM('a','b','a'), s SET('','a','','b','a')")
    numbers = [(1, 0), (3, 1), (2, 3), (0, 14), (1, 31)]
    table.insert(*({"id": n, "e": number, "s": bits} for n, (number, bits) in enumerate(numbers)))
    with canal.Instance(canal.InstanceConfig(destination="d", source=fake, start="earliest")) as instance:
        instance.subscribe()
        _, entry, _ = instance.get(timeout=60).entries

    assert [(row.after["e"], row.after["s"]) for row in entry.rows] == [
        ("a", ""),
        ("a", ""),
        ("b", "a"),
        ("", "a,,b"),
        ("a", "a,,b,a"),
    ]
    texts = [[column.value for column in row.after_columns[1:]] for row in entry.row_change.row_datas]
    assert texts == [["1", "0"], ["3", "1"], ["2", "3"], ["0", "14"], ["1", "31"]]
    first = entry.rows[1].after["s"]
    assert (repr(first), pickle.loads(pickle.dumps(first)).number) == ("AmbiguousLabel('', 1)", 1)


def test_a_column_has_its_number_in_the_table_and_the_header_what_canal_tells_beside() -> None:
    fake = FakeBinlog()
    fake.table("shop", "orders", "id INT PRIMARY KEY, a INT, b INT, c INT").insert({"id": 1}, {"id": 2})
    config = canal.InstanceConfig(destination="d", source=fake, start="earliest", field_filter="shop.orders:id/c")
    with canal.Instance(config) as instance:
        instance.subscribe()
        begin, entry, _ = instance.get(timeout=60).entries

    assert [(column.name, column.index) for column in entry.row_change.row_datas[0].after_columns] == [("id", 0), ("c", 3)]
    assert {name: entry.header.props[name] for name in ("rowsCount", "curtGtid")} == {
        "rowsCount": "2",
        "curtGtid": entry.header.gtid,
    }
    assert "rowsCount" not in begin.header.props
