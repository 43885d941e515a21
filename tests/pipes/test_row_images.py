"""Rows of an answer become row images that the row decoder reads."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canal.errors import DecodeError
from canal.position import Position
from canal.rows.values import ZeroDate
from canal.schema import TableSchema, column_from_text
from canal.snapshot.values import Forms, Selection
from tests.support.loads import packet

_END: Final = bytes((5, 0, 0))


def _cents(value: Decimal) -> Decimal:
    return value.quantize(Decimal("0.01"))


def _time_text(value: timedelta) -> str:
    seconds, micros = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    sign = "-" if value < timedelta() else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"


def _moment_text(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat(" ", "microseconds")


#: The type of a column, its values, and their text.
TYPES: Final[dict[str, tuple[Any, Any]]] = {
    "tinyint": (st.integers(-128, 127), str),
    "smallint unsigned": (st.integers(0, 65535), lambda value: f"{value:05}"),  # ZEROFILL
    "mediumint": (st.integers(-(1 << 23), (1 << 23) - 1), str),
    "int": (st.integers(-(1 << 31), (1 << 31) - 1), str),
    "bigint": (st.integers(-(1 << 63), (1 << 63) - 1), str),
    "bigint unsigned": (st.integers(0, (1 << 64) - 1), str),
    "double": (st.floats(allow_nan=False, allow_infinity=False), repr),
    "decimal(20,2)": (st.decimals(-(10**17), 10**17, allow_nan=False, places=2).map(_cents), str),
    "decimal(30,0)": (st.integers(-(10**29), 10**29).map(Decimal), str),
    "decimal(9,9)": (st.decimals(0, "0.999999999", allow_nan=False, places=9), lambda value: format(value, "f")),
    "date": (st.dates(), date.isoformat),
    "datetime(6)": (st.datetimes(), _moment_text),
    "timestamp(6)": (st.datetimes(datetime(1970, 1, 2), datetime(2106, 2, 7), timezones=st.just(UTC)), _moment_text),
    "time(6)": (st.timedeltas(-timedelta(hours=838), timedelta(hours=838)), _time_text),
    "year": (st.integers(1901, 2155) | st.just(0), lambda value: f"{value:04}"),
    "bit(13)": (st.integers(0, (1 << 13) - 1), str),
    "varchar(300)": (st.text(max_size=300), str),
    "longblob": (st.binary(max_size=300), bytes),
    "enum('a','b')": (st.sampled_from("ab"), lambda value: str(" ab".index(value))),
    "set('x','y')": (st.sampled_from(["", "x", "y", "x,y"]), lambda value: str(["", "x", "y", "x,y"].index(value))),
}
COLUMNS: Final = tuple([column_from_text(f"c{number}", kind, charset="utf8mb4") for number, kind in enumerate(TYPES)])
SELECTION: Final = Selection.of(TableSchema("shop", "orders", COLUMNS), Forms())
ROWS: Final = st.lists(st.tuples(*[st.none() | values for values, _ in TYPES.values()]), max_size=5)


def _answer(rows: list[tuple[Any, ...]]) -> bytes:
    """The rows as a server sends them, after packet 6."""
    texts = [text for _, text in TYPES.values()]
    packets = [
        packet(number, [None if value is None else text(value) for text, value in zip(texts, row)])
        for number, row in enumerate(rows, 7)
    ]
    return b"".join(packets) + _END + bytes((7 + len(rows), 0xFE, 0, 0, 2, 0))


def _decoded(images: Any) -> list[tuple[Any, ...]]:
    if not images.rows:
        return []
    entry = SELECTION.entry(images.rows, images.take(), Position("binlog.000001", 4), 0)
    return [row.after.values() for row in entry.rows]


@settings(max_examples=50)
@given(ROWS, st.lists(st.integers(1, 200)))
def test_feed_rows_in_any_pieces_gives_the_values_of_the_log(rows: list[tuple[Any, ...]], sizes: list[int]) -> None:
    answer, images = _answer(rows), SELECTION.images(7)
    at, need = 0, 4
    for size in [*sizes, len(answer)]:
        piece = answer[at : at + max(size, need)]
        at += len(piece)
        need = images.feed(piece)
        if not need:
            break
    assert need == 0
    assert images.last == answer[-5:]
    assert _decoded(images) == rows


@settings(max_examples=50)
@given(ROWS, st.data())
def test_feed_of_damaged_bytes_fails_as_decoding_does(rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    answer, images = bytearray(_answer(rows)), SELECTION.images(7)
    for _ in range(3):
        answer[data.draw(st.integers(0, len(answer) - 1))] = data.draw(st.integers(0, 255))
    try:
        images.feed(bytes(answer))
        _decoded(images)
    except DecodeError:
        pass


@pytest.mark.parametrize("text", ["", "-", "1x", "x", "1e400x", "99999999999999999999999999999999999", "2024-13-01 00:00:00"])
def test_feed_of_a_text_that_the_type_does_not_have_fails(text: str) -> None:
    for kind in TYPES.keys() - {"varchar(300)", "longblob"}:
        images = Selection.of(TableSchema("shop", "orders", (column_from_text("c", kind),)), Forms()).images(0)
        if kind == "double" and text.isdigit():
            assert images.feed(packet(0, [text])) > 0
            continue
        with pytest.raises(DecodeError):
            images.feed(packet(0, [text]))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("datetime", "0000-00-00 00:00:00"),
        ("datetime", "2024-00-31 01:02:03"),
        ("date", "2024-02-31"),
        ("timestamp", "0000-00-00 00:00:00"),
    ],
)
def test_a_moment_that_is_none_is_a_zero_date(kind: str, text: str) -> None:
    selection = Selection.of(TableSchema("shop", "orders", (column_from_text("c", kind),)), Forms())
    images = selection.images(0)
    images.feed(packet(0, [text]))
    (row,) = selection.entry(images.rows, images.take(), Position("binlog.000001", 4), 0).rows
    assert row.after is not None
    assert row.after["c"] == ZeroDate(text)


def test_a_row_of_several_packets_is_one_row() -> None:
    selection = Selection.of(TableSchema("shop", "orders", (column_from_text("c", "longblob"),)), Forms())
    for size in (0xFFFFFF - 9, 0xFFFFFF + 100):  # a first packet that is full, and nothing behind it or a little
        cell = bytes(size)
        row = b"\xfe" + size.to_bytes(8, "little") + cell
        first, rest = row[:0xFFFFFF], row[0xFFFFFF:]
        images = selection.images(255)
        need = images.feed(len(first).to_bytes(3, "little") + b"\xff" + first)
        assert need == 4
        assert images.rows == 0
        images.feed(len(rest).to_bytes(3, "little") + b"\x00" + rest)
        assert images.rows == 1
        (made,) = selection.entry(images.rows, images.take(), Position("binlog.000001", 4), 0).rows
        assert made.after is not None
        assert made.after["c"] == cell


def test_more_than_an_answer_and_packets_out_of_order_fail() -> None:
    with pytest.raises(DecodeError, match="more than an answer"):
        SELECTION.images(7).feed(_answer([]) + b"x")
    with pytest.raises(DecodeError, match="not in order"):
        SELECTION.images(8).feed(_answer([]))


def test_a_table_of_which_no_column_is_delivered_has_rows() -> None:
    table = TableSchema("shop", "orders", ())
    selection = Selection.of(table, Forms())
    images = selection.images(0)
    images.feed(packet(0, ["1"]) + packet(1, ["1"]))
    assert selection.selects == ("1",)
    rows = selection.entry(images.rows, images.take(), Position("binlog.000001", 4), 0).rows
    assert [row.after.values() for row in rows if row.after is not None] == [(), ()]
