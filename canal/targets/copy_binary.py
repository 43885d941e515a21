"""Rows of Arrow as the bytes of PostgreSQL's COPY BINARY: https://www.postgresql.org/docs/current/sql-copy.html.

Never calls Python for a value: cells are laid out by numpy, and rows are joined by Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from canal.targets.sql_bulk import decimal_texts, one_array

HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END: Final = b"\xff\xff"
_NULL: Final = b"\xff\xff\xff\xff"
_NOTHING: Final = pa.scalar(b"", pa.binary())
#: Rows that are joined at once.
_ROWS: Final = 1 << 14
#: From 1970, where Arrow begins, to 2000, where PostgreSQL does.
_DAYS: Final = 10_957
_MICROS: Final = _DAYS * 86_400_000_000
#: Integers of 64 bits hold all decimals of so many digits.
_DIGITS: Final = 18


def pieces(rows: pa.Table) -> Iterator[memoryview]:
    """Yield the bytes of all rows."""
    yield memoryview(HEAD)
    width = pa.scalar(rows.num_columns.to_bytes(2, "big"), pa.binary())
    for begin in range(0, rows.num_rows, _ROWS):
        parts = [cell for column in rows.slice(begin, _ROWS).columns for cell in _cells(one_array(column))]
        made = pc.binary_join_element_wise(width, *parts, _NOTHING, null_handling="replace", null_replacement=_NULL)
        data = made.buffers()[2]
        yield memoryview(data)[: np.frombuffer(made.buffers()[1], np.int32)[len(made)]]
    yield memoryview(END)


def _cells(values: pa.Array) -> list[pa.Array]:
    """Arrays of bytes, which give the cell of each value one after the other; that of NULL is null in the first of them."""
    kind = values.type
    if kinds.is_string(kind) or kinds.is_binary(kind):
        sizes = _numbers(pc.binary_length(values)).astype(">i4")
        return [_fixed(values, sizes, 4), values.cast(pa.binary()).fill_null(b"")]
    if kinds.is_decimal(kind):
        return [_fixed(values, *_numerics(values))]
    if kinds.is_interval(kind):
        return [_fixed(values, *_intervals(values))]
    numbers, add = values, 0
    if kinds.is_date(kind):
        numbers, add = values.view(pa.int32()), -_DAYS
    elif kinds.is_timestamp(kind):
        numbers, add = values.view(pa.int64()), -_MICROS
    found = _numbers(numbers)
    cells = np.empty(len(values), [("size", ">i4"), ("value", found.dtype.newbyteorder(">"))])
    cells["size"] = found.dtype.itemsize
    cells["value"] = found + add if add else found
    return [_fixed(values, cells, cells.dtype.itemsize)]


def _numbers(values: pa.Array) -> Any:
    return (values.fill_null(0) if values.null_count else values).to_numpy()


def _fixed(values: pa.Array, cells: Any, width: int) -> pa.Array:
    """An array of cells of a width, null where the value is."""
    offsets = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
    made = pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(cells)])
    return pc.if_else(values.is_valid(), made, None) if values.null_count else made


def _intervals(values: pa.Array) -> tuple[Any, int]:
    found = np.frombuffer(values.buffers()[1], [("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
    found = found[values.offset : values.offset + len(values)]
    cells = np.empty(len(values), [("size", ">i4"), ("micros", ">i8"), ("days", ">i4"), ("months", ">i4")])
    cells["size"] = 16
    cells["micros"], cells["days"], cells["months"] = found["nanos"] // 1000, found["days"], found["months"]
    return cells, 20


def _numerics(values: pa.Array) -> tuple[Any, int]:
    """The cells of decimals: signs, and digits of base 10,000, as many of all values."""
    precision, scale = values.type.precision, values.type.scale
    values = values.fill_null(0) if values.null_count else values
    behind = -(-scale // 4)
    count = behind - (-(precision - scale) // 4)
    is_negative, digits = _short_digits(values, count) or _long_digits(values, count)
    cells = np.empty((len(values), 6 + count), ">u2")
    cells[:, :6] = 0, 8 + 2 * count, count, (count - behind - 1) & 0xFFFF, 0, scale
    cells[:, 4] = np.where(is_negative, 0x4000, 0)
    cells[:, 6:] = digits
    return cells, 2 * cells.shape[1]


def _short_digits(values: pa.Array, count: int) -> tuple[Any, Any] | None:
    """Whether values are negative, and their digits; None if 64 bits do not hold them."""
    if not kinds.is_decimal128(values.type):
        return None
    words = np.frombuffer(values.buffers()[1], np.int64)[2 * values.offset : 2 * (values.offset + len(values))]
    low, high = words[::2], words[1::2]
    left, pad = np.abs(low), 10 ** (-values.type.scale % 4)
    if (high != low >> 63).any() or (left < 0).any() or (left >= 10**_DIGITS // pad).any():
        return None
    left = left * pad
    digits = np.empty((len(values), count), np.int64)
    for at in reversed(range(count)):
        left, digits[:, at] = np.divmod(left, 10_000)
    return low < 0, digits


def _long_digits(values: pa.Array, count: int) -> tuple[Any, Any]:
    texts = decimal_texts(values)
    is_negative = pc.starts_with(texts, "-").to_numpy(zero_copy_only=False)
    texts = pc.replace_substring(pc.utf8_ltrim(texts, "-"), ".", "")
    pad = -values.type.scale % 4
    texts = pc.utf8_rpad(pc.utf8_lpad(texts, 4 * count - pad, "0"), 4 * count, "0")
    signs = np.frombuffer(texts.buffers()[2], np.uint8)[: 4 * count * len(values)].reshape(len(values), count, 4)
    return is_negative, (signs - 48) @ np.array([1000, 100, 10, 1], np.int64)
