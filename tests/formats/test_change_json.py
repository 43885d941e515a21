"""A change as a line: its text is that of ``document``, whatever the values are."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from canal.changes import Change, Op, Origin, Table
from canal.formats.change_json import document, key_json, line
from canal.formats.texts import document_member
from canal.rows.values import ABSENT, InvalidText
from canal.schema import column_from_text

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.decimals(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 64), 1 << 64),
    st.floats(),
    st.text(),
    st.binary(max_size=40),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.datetimes(),
    st.dates(),
    st.timedeltas(),
    st.just(ABSENT),
    _JSON,
)
NAMES = st.lists(st.text(min_size=1), min_size=1, max_size=5, unique=True)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    names = draw(NAMES)
    columns = tuple(column_from_text(name, "longtext", charset="utf8mb4") for name in names)
    table = Table(draw(st.text()), "shop.orders", columns, tuple(draw(st.lists(st.sampled_from(names), unique=True))))
    before, after = (draw(st.none() | st.fixed_dictionaries(dict.fromkeys(names, VALUES)).map(table.row)) for _ in range(2))
    origin = Origin(draw(st.text()), draw(st.text()), draw(st.integers(0, 1 << 50)))
    op = draw(st.sampled_from([Op.INSERT, Op.UPDATE, Op.TRUNCATE]))
    return Change(table, op, before, after, origin, draw(st.integers(0, 9)), sql=draw(st.text()), error=draw(st.text()))


@given(changes())
def test_a_line_is_the_text_of_the_document(change: Change) -> None:
    assert line(change) == json.dumps(document(change), separators=(",", ":"), default=document_member)


@given(st.dictionaries(st.text(min_size=1), VALUES.filter(lambda value: value is not ABSENT), min_size=1, max_size=3))
def test_a_key_is_an_object_of_its_columns(values: dict[str, Any]) -> None:
    columns = tuple(column_from_text(name, "longtext", charset="utf8mb4") for name in values)
    table = Table("t", "s.t", columns, tuple(values))

    text = key_json(table.row(values), table.keys)

    change = Change(table, Op.INSERT, None, table.row(values), Origin("", "", 0), 0)
    assert text == json.dumps(document(change)["key"], separators=(",", ":"), default=document_member)


def test_values_that_json_has_no_type_for_are_text() -> None:
    values = {
        "d": Decimal("1E+2"),
        "t": datetime(2026, 1, 31, 12, 0, 0, 500000),
        "day": date(2026, 1, 31),
        "b": b"\xff",
        "n": None,
        "time": timedelta(hours=-30),
        "j": {"a": Decimal("1.50")},
        "yes": True,
        "s": "é\x00\u2028🙂",
        "f": 1e300,
        "nan": float("nan"),
        "inf": float("-inf"),
        "days": [date(2026, 1, 31)],
    }
    table = Table("t", "s.t", tuple(column_from_text(name, "longtext", charset="utf8mb4") for name in values), ("d",))

    text = line(Change(table, Op.INSERT, None, table.row(values), Origin("x:4", "x:9", 5), 0))

    found = json.loads(text)
    assert text.isascii()
    assert found["key"] == {"d": "100"}
    assert found["base64"] == ["b"]
    assert found["after"] == values | {
        "d": "100",
        "t": "2026-01-31 12:00:00.500000",
        "day": "2026-01-31",
        "b": "/w==",
        "time": "-30:00:00",
        "j": {"a": "1.50"},
        "nan": "NaN",
        "inf": "-Infinity",
        "days": ["2026-01-31"],
    }


def test_a_column_that_is_bytes_in_one_image_only_is_listed_for_that_image() -> None:
    names = ("id", "both", "gone", "came", "null")
    table = Table("t", "s.t", tuple(column_from_text(name, "text", charset="utf8mb4") for name in names), ("id",))
    invalid = InvalidText(b"\xff", "utf8mb4")
    before = dict(zip(names, (1, b"a", invalid, "text", None)))
    after = dict(zip(names, (1, b"b", "text", invalid, b"c")))

    found = json.loads(line(Change(table, Op.UPDATE, table.row(before), table.row(after), Origin("", "", 0), 0)))

    lists = {name: value for name, value in found.items() if name.startswith("base64")}
    assert lists == {"base64": ["both", "null"], "base64_before": ["gone"], "base64_after": ["came"]}
