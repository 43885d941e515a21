"""What a column is selected as, and how the cells of a server's answer become an Arrow array.

Never knows another value than the log does: a row that is read gives what its INSERT gives.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from canal.binlog import type_codes as codes
from canal.formats.spark_types import spark_arrow_type
from canal.rows.charsets import codec_of
from canal.schema import ColumnSchema, is_sure, label_bytes, set_text
from canal.snapshot.keys import ADDRESSES, NUMBERS, STRINGS, moment_number, quoted


@attrs.frozen
class CellReader:
    """What is selected of a column, and how its texts become an array.

    ``make`` gives the values of cells one by one, None and a text for ``_exact`` for one that the type cannot hold.
    ``quick`` gives the whole array, or raises ``pa.ArrowInvalid`` for ``make`` to see to it.
    """

    select: str
    make: Callable[[bytes], tuple[Any, str | None]]
    quick: Callable[[pa.Array, pa.DataType], pa.Array] | None = None


def to_array(
    cells: Sequence[bytes | None],
    reader: CellReader,
    kind: pa.DataType,
    column: ColumnSchema,
    exact: list[list[tuple[str, str]] | None],
) -> pa.Array:
    if reader.quick is not None:
        with contextlib.suppress(pa.ArrowInvalid):
            return reader.quick(pa.array(cells, pa.binary()), kind)
    values: list[Any] = []
    for number, cell in enumerate(cells):
        value, text = (None, None) if cell is None else reader.make(cell)
        if text is not None:
            exact[number] = [*(exact[number] or ()), (column.name, text)]
        values.append(value)
    return pa.array(values, kind)


def is_unseen(column: ColumnSchema) -> bool:
    """MariaDB's hash of a long unique key: in its log, but no statement can name it."""
    return not column.visible and re.fullmatch(r"DB_ROW_HASH_\d+", column.name) is not None


def reader_of(column: ColumnSchema) -> CellReader:
    name, code = quoted(column.name), column.type_code
    if code in (codes.FLOAT, codes.DOUBLE):  # a FLOAT as text has six digits; a sum would lose the sign of 0
        return CellReader(f"{name}*1e0", lambda cell: (float(cell), None), _parsed)
    if code == codes.BIT:
        return CellReader(f"{name}+0", lambda cell: (int(cell), None), _parsed)
    if code in (codes.ENUM, codes.SET):
        return CellReader(f"CAST({name} AS UNSIGNED)", _label_maker(column))
    if code in codes.DECIMALS:
        if pa.types.is_string(spark_arrow_type(column)):  # too long for a number; a ZEROFILL has zeros before it
            return CellReader(name, lambda cell: (format(Decimal(cell.decode()), "f"), None))
        return CellReader(name, lambda cell: (Decimal(cell.decode()), None), _parsed)
    if code in NUMBERS:
        return CellReader(name, lambda cell: (int(cell), None), _parsed)
    if code in (codes.DATE, codes.NEWDATE):
        return CellReader(name, _date, _parsed_moment)
    if code in (codes.TIME, codes.TIME2):
        return CellReader(name, _time)
    if code in codes.MOMENTS:
        return CellReader(name, _moment, _parsed_moment)
    if code == codes.JSON or column.base_type in ADDRESSES:
        return CellReader(name, _text_maker("utf-8"), _parsed)
    if code in STRINGS and column.charset not in (None, "binary"):
        codec = codec_of(str(column.charset)) or "latin-1"
        return CellReader(name, _text_maker(codec), _parsed if codec in ("utf-8", "utf8") else None)
    return CellReader(name, lambda cell: (cell, None), lambda array, kind: array.cast(kind))


def _parsed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array.cast(pa.string()).cast(kind)


def _parsed_moment(array: pa.Array, kind: pa.DataType) -> pa.Array:
    naive = pa.timestamp("us") if pa.types.is_timestamp(kind) else kind
    found = array.cast(pa.string()).cast(naive)
    if array.null_count < len(array) and pc.min(pc.year(found)).as_py() < 1:
        raise pa.ArrowInvalid("the year 0 is none")
    return found if kind == naive else pc.assume_timezone(found, "UTC")


def _date(cell: bytes) -> tuple[Any, str | None]:
    text = cell.decode()
    try:
        return date.fromisoformat(text), None
    except ValueError:
        return None, text


def _moment(cell: bytes) -> tuple[Any, str | None]:
    text = cell.decode()
    try:
        return datetime.fromisoformat(text), None
    except ValueError:
        return None, text


def _time(cell: bytes) -> tuple[Any, None]:
    return timedelta(microseconds=moment_number(cell.decode())), None


def _text_maker(codec: str) -> Callable[[bytes], tuple[Any, str | None]]:
    def make(cell: bytes) -> tuple[Any, str | None]:
        try:
            return cell.decode(codec), None
        except UnicodeDecodeError:
            return None, cell.hex()

    return make


def _label_maker(column: ColumnSchema) -> Callable[[bytes], tuple[Any, str | None]]:
    """Labels by number, as the log has them."""
    labels = column.labels
    if labels is None:
        return lambda cell: (int(cell), None)
    seen: dict[bytes, tuple[Any, str | None]] = {}

    def make(cell: bytes) -> tuple[Any, str | None]:
        found = seen.get(cell)
        if found is None:
            number = int(cell)
            if column.type_code == codes.ENUM:
                text = labels[number - 1] if number else ""
            else:
                text = set_text(labels, number)
            found = (text, None) if is_sure(text) else (None, label_bytes(text).hex())
            if len(seen) < 4096:
                seen[cell] = found
        return found

    return make
