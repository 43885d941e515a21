"""A column's value as canal gives it: text, with a JDBC type code.

Never guesses: a label that the column does not have is an error, not a number.

Other than canal, as it serves nobody: text is decoded in its column's charset; TIMESTAMP is text in the zone of the value,
not of the process; JSON is the server's text, whose numbers and SQL values canal writes otherwise; the old TIME of 100 hours
and more keeps its hours; VECTOR is bytes, where canal fails. What a consumer may depend on is a switch, see ``Form``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import attrs

from canal import type_codes as codes
from canal.errors import DecodeError
from canal.rows.values import ABSENT, InvalidText, NoLabel, PartialJson
from canal.schema import ColumnSchema

BIT = -7
TINYINT = -6
BIGINT = -5
CHAR = 1
DECIMAL = 3
INTEGER = 4
SMALLINT = 5
REAL = 7
DOUBLE = 8
VARCHAR = 12
DATE = 91
TIME = 92
TIMESTAMP = 93
OTHER = 1111
BLOB = 2004
CLOB = 2005

#: Integer types: JDBC code signed, unsigned (the next that holds all its values).
_INTEGERS = {
    codes.TINY: (TINYINT, SMALLINT), codes.SHORT: (SMALLINT, INTEGER), codes.INT24: (INTEGER, INTEGER),
    codes.LONG: (INTEGER, BIGINT), codes.LONGLONG: (BIGINT, DECIMAL),
}  # fmt: skip
_SIGNED_BITS = {codes.TINY: 7, codes.SHORT: 15, codes.INT24: 23, codes.LONG: 31, codes.LONGLONG: 63}
_PLAIN = {
    codes.FLOAT: REAL, codes.DOUBLE: DOUBLE, codes.DECIMAL: DECIMAL, codes.NEWDECIMAL: DECIMAL, codes.BIT: BIT,
    codes.YEAR: VARCHAR, codes.DATE: DATE, codes.NEWDATE: DATE, codes.TIME: TIME, codes.TIME2: TIME,
    codes.DATETIME: TIMESTAMP, codes.DATETIME2: TIMESTAMP, codes.TIMESTAMP: TIMESTAMP, codes.TIMESTAMP2: TIMESTAMP,
    codes.JSON: VARCHAR, codes.ENUM: INTEGER, codes.SET: BIT, codes.GEOMETRY: BLOB, codes.VECTOR: BLOB,
}  # fmt: skip
#: Types that hold text or bytes: JDBC code of the text.
_STRINGS = {
    codes.STRING: CHAR, codes.VARCHAR: VARCHAR, codes.VAR_STRING: VARCHAR, codes.VARCHAR_COMPRESSED: VARCHAR,
    codes.TINY_BLOB: CLOB, codes.MEDIUM_BLOB: CLOB, codes.LONG_BLOB: CLOB, codes.BLOB: CLOB, codes.BLOB_COMPRESSED: CLOB,
}  # fmt: skip
#: MariaDB's types that look like BINARY in the log and have a text of their own.
_TEXT_FORM = frozenset(("uuid", "inet6", "inet4"))
_TEXT_TYPES = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"))
_BYTE_TYPES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"))


@attrs.frozen
class Form:
    """Where canal's own form is a fault: what ``RowChange.columns`` is to do.

    Args:
        labels: give an ENUM or SET as the text of its labels (JDBC VARCHAR). Canal gives the number of the label from 1, or
            the bits of the SET, which mean something else after an ALTER.
        codes_of_values: give the code that canal gives to the value: that of an unsigned integer is the signed type's until
            the value needs the next one, and NULL in a SET is BLOB, in JSON OTHER. Otherwise a column has one code for all.
    """

    labels: bool = False
    codes_of_values: bool = False


@attrs.frozen
class Column:
    """One column of one row as canal gives it; ``index`` is its number among all columns of the table, from 0."""

    index: int
    sql_type: int
    name: str
    is_key: bool
    updated: bool
    is_null: bool
    value: str | None
    mysql_type: str


_DEFAULT = Form()


def canal_columns(
    columns: Sequence[ColumnSchema],
    before: Sequence[Any] | None,
    after: Sequence[Any] | None,
    form: Form = _DEFAULT,
    numbers: Sequence[int] | None = None,
) -> tuple[list[Column], list[Column]]:
    """The columns of a row before and after its change; columns that an image does not hold are left out.

    ``updated`` is canal's: False for all of ``before``; for ``after`` True unless the same text stood there before. ``numbers``
    are those of the columns in their table; None: these are all of them.
    """
    numbers = range(len(columns)) if numbers is None else numbers
    old = {} if before is None else _texts(columns, before, form)
    new = {} if after is None else _texts(columns, after, form)
    return (
        [_column(columns[i], numbers[i], text, False, form) for i, text in old.items()],
        [_column(columns[i], numbers[i], text, i not in old or old[i] != text, form) for i, text in new.items()],
    )


def _texts(columns: Sequence[ColumnSchema], values: Sequence[Any], form: Form) -> dict[int, str | None]:
    return {i: column_text(value, columns[i], form) for i, value in enumerate(values) if value is not ABSENT}


def _column(column: ColumnSchema, index: int, text: str | None, updated: bool, form: Form) -> Column:
    code = value_type(text, column) if form.codes_of_values else sql_type(column)
    if form.labels and type_code(column) in (codes.ENUM, codes.SET):
        code = VARCHAR
    return Column(index, code, column.name, column.key, updated, text is None, text, column.column_type)


def type_code(column: ColumnSchema) -> int:
    """The type code, with that of ENUM and SET instead of the STRING that stands for them in the log."""
    code = column.type_code
    if code == codes.STRING or code < 0:
        base = column.base_type
        if base in ("enum", "set"):
            return codes.ENUM if base == "enum" else codes.SET
        if code == codes.STRING and column.meta >> 8 in (codes.ENUM, codes.SET):
            return column.meta >> 8
    return code


def sql_type(column: ColumnSchema) -> int:
    """The column's ``java.sql.Types`` code: the same for all its values, NULL or not."""
    code = type_code(column)
    if code in _INTEGERS:
        return _INTEGERS[code][column.unsigned]
    if code in _STRINGS:
        return _STRINGS[code] if _is_text(column) else BLOB
    return _PLAIN.get(code, OTHER)


def value_type(text: str | None, column: ColumnSchema) -> int:
    """The code that canal gives to one value of the column, by its text: see ``Form.codes_of_values``."""
    code = type_code(column)
    if text is None and code in (codes.SET, codes.JSON):
        return BLOB if code == codes.SET else OTHER
    if code in _INTEGERS:
        needs_next = text is not None and column.unsigned and int(text) >> _SIGNED_BITS[code]
        return _INTEGERS[code][1 if needs_next else 0]
    return sql_type(column)


def _is_text(column: ColumnSchema) -> bool:
    base = column.base_type
    if base in _TEXT_TYPES or base in _TEXT_FORM:
        return True
    if base in _BYTE_TYPES:
        return False
    return column.charset not in (None, "binary")


def column_text(value: Any, column: ColumnSchema, form: Form = _DEFAULT) -> str | None:
    """The value's text in canal's form, None for NULL.

    Raises:
        DecodeError: an ENUM or SET holds a label that the column does not have.
    """
    if value is None:
        return None
    code = type_code(column)
    if code in (codes.ENUM, codes.SET) and not form.labels:
        return _label_number(value, column, code)
    if isinstance(value, PartialJson):
        return value.expression(column.name)
    if isinstance(value, str):  # dates that Python cannot hold too
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("latin-1")
    if isinstance(value, int):
        return f"{value:04d}" if code == codes.YEAR else str(int(value))
    if isinstance(value, float):
        return float32_text(value) if code == codes.FLOAT else float_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return f"{_date_text(value)} {_time_text(value)}{_fraction(value.microsecond, fraction_digits(column))}"
    if isinstance(value, date):
        return _date_text(value)
    if isinstance(value, timedelta):
        return _duration_text(value, fraction_digits(column))
    return str(value)


def _label_number(value: Any, column: ColumnSchema, code: int) -> str:
    """The number of an ENUM's label from 1 (0: the invalid value), or a SET's bits."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, InvalidText) and value.number is not None:
        return str(value.number)
    if isinstance(value, bytes):  # no charset is known, so labels cannot be compared
        return value.decode("latin-1")
    labels = column.labels or ()
    try:
        if code == codes.ENUM:
            return "0" if isinstance(value, NoLabel) or value == "" and "" not in labels else str(labels.index(value) + 1)
        bits = 0
        for label in value.split(",") if value else ():
            bits |= 1 << labels.index(label)
        return str(bits)
    except ValueError:
        raise DecodeError(
            "a value is not among the labels of its column", column=column.name,
            remedy=f"{column.name} is {column.column_type or 'of unknown type'}; give the table's present schema.",
        ) from None  # fmt: skip


def fraction_digits(column: ColumnSchema) -> int:
    """Digits of the fraction of seconds: from ``datetime(3)``, or from the table map where the text is not known."""
    text = column.column_type.partition("(")[2]
    if text[:1].isdigit():
        return min(int(text[0]), 6)
    if not column.column_type and column.type_code in codes.TEMPORAL:
        return min(column.meta, 6)
    return 0


def _fraction(microsecond: int, digits: int) -> str:
    return f".{microsecond:06d}"[: digits + 1] if digits else ""


def _date_text(value: date) -> str:
    return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"


def _time_text(value: datetime) -> str:
    return f"{value.hour:02d}:{value.minute:02d}:{value.second:02d}"


def _duration_text(value: timedelta, digits: int) -> str:
    sign = "-" if value < timedelta(0) else ""
    value = abs(value)
    minutes, seconds = divmod(value.days * 86400 + value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours:02d}:{minutes:02d}:{seconds:02d}{_fraction(value.microseconds, digits)}"


# -- floating point as Java writes it ----------------------------------------------------------------------------------


def float_text(value: float) -> str:
    """``Double.toString``: the shortest digits that read back as the same double."""
    return _java_text(value, repr(value))


def float32_text(value: float) -> str:
    """``Float.toString``: the shortest digits that read back as the same single-precision number."""
    if value - value != 0 or value == 0:
        return _java_text(value, repr(value))
    exact = struct.pack("<f", value)
    single = struct.unpack("<f", exact)[0]
    for digits in range(9):
        text = f"{single:.{digits}e}"
        try:
            if struct.pack("<f", float(text)) == exact:
                return _java_text(single, text)
        except OverflowError:  # the largest numbers, rounded up
            continue
    return _java_text(single, repr(single))


def _java_text(value: float, shortest: str) -> str:
    """Java's layout of digits given as ``[-]d.ddd[e±n]`` or ``[-]ddd.ddd``."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, point = Decimal(shortest).as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    minus = "-" if sign else ""
    if not text:
        return f"{minus}0.0"
    if len(text) == 1:  # Java writes two digits at least, so it takes the best two
        text = f"{abs(value):.1e}".replace(".", "")[:2].rstrip("0") or text
    exponent = len(digits) + int(point) - 1
    if not -3 <= exponent < 7:
        return f"{minus}{text[0]}.{text[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{minus}0.{'0' * (-exponent - 1)}{text}"
    return f"{minus}{text[: exponent + 1].ljust(exponent + 1, '0')}.{text[exponent + 1 :] or '0'}"
