"""Finds the type that a column of a MySQL table needs for given values.

Never queries a server: the declared type and the values decide.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from canal.errors import TargetSchemaError
from canal.schema import ColumnSchema

_FRACTIONS: Final = ("datetime", "timestamp", "time")
_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_RANGES: Final = {
    f"{name}{sign}": (0, (1 << bits) - 1) if sign else (-1 << bits - 1, (1 << bits - 1) - 1)
    for name, bits in _BITS.items()
    for sign in (" unsigned", "")
}
#: A default or ON UPDATE, which needs the fraction digits of the column.
_NOW: Final = re.compile(r"(?i)\bcurrent_timestamp(\(\d*\))?")
_COMMENT: Final = " COMMENT '"


def wider_type(column: ColumnSchema, values: pa.ChunkedArray) -> str:
    """Return the type for these values and all values of the column's type, or "" if that type is enough.

    MySQL refuses large integers, but silently rounds moments.
    """
    base, kind = column.base_type, values.type
    if values.null_count == len(values):
        return ""
    if base in _BITS and (pa.types.is_integer(kind) or pa.types.is_decimal(kind) and kind.scale == 0):
        return _wider_integer(f"{base}{' unsigned' if column.unsigned else ''}", values)
    if pa.types.is_decimal(kind) and (base in _BITS or base == "decimal" and _arguments(column) != (kind.precision, kind.scale)):
        return f"decimal({kind.precision},{kind.scale})"
    if base == "float" and pa.types.is_float64(kind):
        return "double"
    if base in _FRACTIONS and not _is_whole(values, 10 ** (6 - (_arguments(column) or (0,))[0])):
        return f"{base}(6)"
    return ""


def _wider_integer(declared: str, values: pa.ChunkedArray) -> str:
    low, high = _RANGES[declared]
    least, most = (int(one.as_py()) for one in pc.min_max(values).values())
    if low <= least and most <= high:
        return ""
    low, high = min(low, least), max(high, most)
    return next((name for name, (first, last) in _RANGES.items() if first <= low and high <= last), "decimal(20,0)")


def is_changed(column: ColumnSchema, values: pa.ChunkedArray) -> bool:
    """Return whether the server would silently pad a value, or remove its trailing blanks."""
    if column.base_type == "char":
        return bool(pc.any(pc.ends_with(values, " ")).as_py())
    if column.base_type == "binary":
        return bool(pc.any(pc.not_equal(pc.binary_length(values), (_arguments(column) or (1,))[0])).as_py())
    return False


def _is_whole(values: pa.ChunkedArray, unit: int) -> bool:
    micros = values.cast(pa.int64())
    return bool(pc.all(pc.equal(pc.multiply(pc.divide(micros, unit), unit), micros)).as_py())


def _arguments(column: ColumnSchema) -> tuple[int, ...]:
    inside = column.column_type.partition("(")[2].partition(")")[0].split(",")
    return tuple(int(one) for one in inside if one.isdecimal())


def redefined(create: str, name: str, declared: str, kind: str) -> str:
    """Return the definition of a column in SHOW CREATE TABLE, with another type."""
    head = f"  {name} {declared}"
    line = next((line for line in create.splitlines() if line.startswith(head)), "")
    if not line:
        raise TargetSchemaError(
            f"the column {name} must become {kind}, but SHOW CREATE TABLE does not show it as {declared}",
            remedy="Alter it like the source.",
        )
    rest, mark, comment = line[len(head) :].rstrip(",").partition(_COMMENT)
    if kind.endswith("(6)"):
        rest = _NOW.sub("current_timestamp(6)", rest)
    return f"{name} {kind}{rest}{mark}{comment}"
