"""The Arrow type of each column in a stream of changes of one table, and casts to it.

Never rounds, cuts or shifts a value.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from canal.binlog import type_codes as codes
from canal.formats.arrow import arrow_type
from canal.schema import ColumnSchema

#: Arrow types that Spark does not take, and the next that holds all their values.
_WIDER: Final = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


def spark_arrow_type(column: ColumnSchema) -> pa.DataType:
    """The Arrow type, one that Spark takes, of a column's values.

    As ``canal.formats.arrow.arrow_type``, but unsigned integers are the next wider type (BIGINT UNSIGNED decimal(20,0)),
    YEAR is an int, BIT(n) is a long and BIT(64) decimal(20,0), and a DECIMAL of more than 38 digits is text.
    """
    code = column.type_code
    if code in (codes.INT24, codes.YEAR):
        return pa.int32()
    if code == codes.BIT:
        return pa.decimal128(20, 0) if _bits(column) > 63 else pa.int64()
    if code == codes.ENUM and column.labels is None:
        return pa.int32()
    if code in codes.DECIMALS:
        precision, scale = _digits(column)
        return pa.decimal128(precision, scale) if precision <= 38 else pa.string()
    found = arrow_type(column)
    return _WIDER.get(found, found)


def _bits(column: ColumnSchema) -> int:
    if column.meta:
        return (column.meta >> 8) * 8 + (column.meta & 0xFF)
    numbers = _arguments(column)
    return int(numbers[0]) if numbers[0].isdecimal() else 1


def _digits(column: ColumnSchema) -> tuple[int, int]:
    """Precision and scale: of the table map, or of the type's text where the schema was looked up."""
    if column.meta:
        return column.meta & 0xFF, column.meta >> 8
    numbers = _arguments(column)
    if not numbers[0].isdecimal():
        return 10, 0
    return int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0


def _arguments(column: ColumnSchema) -> list[str]:
    return column.column_type.partition("(")[2].partition(")")[0].split(",")


def exact_cast(values: Any, kind: pa.DataType) -> Any:
    """An array or scalar of another type, each value the same.

    Raises:
        pyarrow.ArrowInvalid: one does not fit.
    """
    if pa.types.is_decimal128(values.type) and pa.types.is_decimal128(kind):  # Arrow does not see an overflow of the 128 bits
        values = values.cast(pa.decimal256(76, max(values.type.scale, kind.scale)))
    return values.cast(kind)
