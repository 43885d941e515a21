"""Columns as Debezium represents them: the Connect schema and the value function for each column.

Never returns a value that the schema cannot represent: raises ValueError with the reason.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Literal

import attrs

from canal.binlog import type_codes as codes
from canal.formats import put
from canal.formats.columns import fraction_digits, type_code
from canal.rows import native
from canal.rows.values import ABSENT, InvalidText, PartialJson, ZeroDate
from canal.schema import ColumnSchema

Schema = Mapping[str, Any]
_MICRO: Final = timedelta(microseconds=1)
_MOMENT: Final = datetime(1970, 1, 1)
_DAY: Final = 86_400_000_000
_INTEGERS: Final = {
    codes.TINY: ("int16", "int16"),
    codes.SHORT: ("int16", "int32"),
    codes.INT24: ("int32", "int32"),
    codes.LONG: ("int32", "int64"),
}
_LOGICAL: Final = "org.apache.kafka.connect.data."
_TIMES: Final = "io.debezium.time."
#: Matches white space between JSON tokens. The group matches strings, to keep them unchanged.
_SPACES: Final = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')


@attrs.frozen
class Modes:
    """Debezium's options ``decimal.handling.mode``, ``time.precision.mode``, ``bigint.unsigned.handling.mode`` and
    ``binary.handling.mode``, in this order."""

    decimals: Literal["precise", "double", "string"]
    times: Literal["adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"]
    unsigned_bigints: Literal["long", "precise"]
    binaries: Literal["bytes", "base64", "base64-url-safe", "hex"]


@attrs.frozen
class Field:
    """A column. ``schema`` includes the column name as ``field``. ``give`` returns values; bytes remain bytes."""

    name: str
    schema: Schema
    make: Callable[[Any], Any]
    zero: Any
    """Replacement for a zero date in a NOT NULL column."""
    styles: Mapping[int, tuple[int, int]] = attrs.field(factory=dict)
    """Shortcuts for JSON values: see ``canal.formats.encoder.ColumnPiece``."""

    def give(self, value: Any) -> Any:
        """Convert a value to the schema.

        Raises:
            ValueError: if the schema has no equivalent value.
        """
        if value is None:
            return None
        if isinstance(value, ZeroDate):
            return None if self.schema["optional"] else self.zero
        if value is ABSENT:
            raise ValueError("the row image does not hold the column")
        if isinstance(value, InvalidText):
            raise ValueError("it holds bytes that are invalid in its charset")
        if isinstance(value, PartialJson):
            raise ValueError("the log has only a diff of its JSON document")
        return self.make(value)


def field(column: ColumnSchema, modes: Modes) -> Field:
    """Return the schema and value function for a column."""
    kind, name, parameters, make, zero = _kind(column, modes)
    schema: dict[str, Any] = {"type": kind, "optional": bool(column.nullable) and not column.key}
    if kind == "struct":
        members, doc = parameters
        schema = {"type": kind, "fields": members, **schema, "name": name, "version": 1, "doc": doc}
    elif kind == "array":
        schema = {"type": kind, "items": {"type": "float", "optional": False}, **schema, "name": name, "version": 1}
    elif name:
        schema |= {"name": name, "version": 1}
        if parameters:
            schema["parameters"] = parameters
    return Field(column.name, schema | {"field": column.name}, make, zero, _styles(column, modes))


def _styles(column: ColumnSchema, modes: Modes) -> dict[int, tuple[int, int]]:
    """Return the shortcuts from log bytes to JSON values, by decoder kind."""
    code = type_code(column)
    if code in (codes.GEOMETRY, codes.VECTOR, codes.JSON) or column.base_type == "json":
        return {}
    found = {
        **dict.fromkeys((*range(native.I8, native.U64), native.YEAR), (put.INTEGER, 0)),
        **dict.fromkeys((native.UTF8, native.ASCII), (put.UTF8_TEXT, 0)),
        **dict.fromkeys((native.ENUM, native.SET), (put.LABELS, 0)),
        **dict.fromkeys((native.FLOAT, native.DOUBLE), (put.REAL, 0)),
        native.TIMESTAMP: (put.MOMENT, fraction_digits(column) | put.MIDDLE_T | put.IN_UTC | put.WITH_Z),
    }
    if modes.unsigned_bigints == "long":
        found[native.U64] = put.INTEGER, 1
    if modes.decimals == "string":
        found[native.DECIMAL] = put.DECIMAL_TEXT, 0
    elif modes.decimals == "precise":
        found[native.DECIMAL] = put.DECIMAL_BASE64, 0
    if modes.binaries in ("bytes", "base64"):
        found[native.BYTES] = put.BASE64, 0
    if modes.times != "isostring":
        found[native.DATE] = put.EPOCH, put.DAYS
        is_fine = modes.times == "microseconds" or modes.times != "connect" and fraction_digits(column) > 3
        unit = put.NANOS if modes.times == "nanoseconds" else put.MICROS if is_fine else put.MILLIS
        found[native.DATETIME] = put.EPOCH, unit
        if modes.times != "connect":
            found[native.TIME] = put.EPOCH, put.NANOS if modes.times == "nanoseconds" else put.MICROS
    return found


_Kind = tuple[str, str, Any, Callable[[Any], Any], Any]


def _kind(column: ColumnSchema, modes: Modes) -> _Kind:
    """Return (type, name, parameters, value function, replacement for a zero date)."""
    code = type_code(column)
    if code in _INTEGERS:
        return _INTEGERS[code][column.unsigned], "", None, int, None
    if code == codes.LONGLONG:
        return _bigint(column, modes)
    if code in codes.DECIMALS:
        return _decimal(column, modes)
    if code in (codes.FLOAT, codes.DOUBLE):
        return "float" if code == codes.FLOAT else "double", "", None, float, None
    if code == codes.BIT:
        return _bit(column)
    if code == codes.YEAR:
        return "int32", f"{_TIMES}Year", None, int, None
    if code in codes.MOMENTS:
        return _temporal(code, column, modes)
    if code in (codes.ENUM, codes.SET):
        if column.labels is None:
            raise ValueError("the labels of an ENUM or SET are not known")
        allowed = ",".join(label.replace(",", "\\,") for label in column.labels)
        name = "io.debezium.data.Enum" if code == codes.ENUM else "io.debezium.data.EnumSet"
        return "string", name, {"allowed": allowed}, _text, None
    if code == codes.JSON or column.base_type == "json":
        return "string", "io.debezium.data.Json", None, _document, None
    if code == codes.GEOMETRY:
        return _geometry(column)
    if code == codes.VECTOR:
        return "array", "io.debezium.data.FloatVector", None, _vector, None
    return _binary(modes) if column.charset in (None, "binary") and column.base_type not in _TEXT_FORM else _TEXT


def _text(value: Any) -> str:
    return str.__str__(value)


_TEXT: Final[_Kind] = ("string", "", None, _text, None)
#: MariaDB types with text values.
_TEXT_FORM: Final = ("uuid", "inet4", "inet6")


def _unscaled(scale: int) -> Callable[[Any], bytes]:
    """Return a function that encodes unscaled numbers like Java's BigInteger: two's complement in as few bytes as possible."""

    def make(value: Any) -> bytes:
        sign, digits, exponent = Decimal(value).as_tuple()
        number = int("".join(map(str, digits))) * 10 ** (scale + int(exponent))
        number = -number if sign else number
        return int(number).to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)

    return make


def _exact_decimal(precision: int, scale: int) -> _Kind:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return "bytes", f"{_LOGICAL}Decimal", parameters, _unscaled(scale), None


def _bigint(column: ColumnSchema, modes: Modes) -> _Kind:
    if not column.unsigned:
        return "int64", "", None, int, None
    if modes.unsigned_bigints == "precise":
        return _exact_decimal(20, 0)
    return "int64", "", None, lambda value: value - (1 << 64) if value >> 63 else value, None


def _decimal(column: ColumnSchema, modes: Modes) -> _Kind:
    if modes.decimals == "string":
        return "string", "", None, lambda value: format(value, "f"), None
    if modes.decimals == "double":
        return "double", "", None, float, None
    inside = re.search(r"\((\d+)(?:,(\d+))?\)", column.column_type)
    precision, scale = (int(inside[1]), int(inside[2] or 0)) if inside else (column.meta & 0xFF, column.meta >> 8)
    return _exact_decimal(precision, scale)


def _bit(column: ColumnSchema) -> _Kind:
    inside = re.search(r"\((\d+)\)", column.column_type)
    size = int(inside[1]) if inside else (column.meta >> 8) * 8 + (column.meta & 0xFF)
    if size <= 1:
        return "boolean", "", None, bool, None
    return "bytes", "io.debezium.data.Bits", {"length": str(size)}, lambda value: value.to_bytes(-(-size // 8), "little"), None


def _binary(modes: Modes) -> _Kind:
    makes: dict[str, Callable[[bytes], Any]] = {
        "bytes": bytes,
        "base64": lambda value: base64.b64encode(value).decode(),
        "base64-url-safe": lambda value: base64.urlsafe_b64encode(value).decode(),
        "hex": bytes.hex,
    }
    return "bytes" if modes.binaries == "bytes" else "string", "", None, makes[modes.binaries], None


def _document(value: Any) -> str:
    return _SPACES.sub(r"\1", value) if isinstance(value, str) else _refuse("JSON must come as text")


def _vector(value: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(value) // 4}f", value))


def _geometry(column: ColumnSchema) -> _Kind:
    members: list[dict[str, Any]] = [
        {"type": "bytes", "optional": False, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    ]
    if column.base_type != "point":
        return "struct", "io.debezium.data.geometry.Geometry", (members, "Geometry"), _shape, None
    axes = [{"type": "double", "optional": False, "field": axis} for axis in "xy"]
    members[0]["optional"] = True
    return "struct", "io.debezium.data.geometry.Point", (axes + members, "Geometry (POINT)"), _point, None


def _shape(value: bytes) -> dict[str, Any]:
    srid = int.from_bytes(value[:4], "little")
    return {"wkb": value[4:], "srid": srid or None}


def _point(value: bytes) -> dict[str, Any]:
    x, y = struct.unpack_from("<2d", value, 9)
    return {"x": x, "y": y, **_shape(value)}


# -- dates and times ---------------------------------------------------------------------------------------------------


def _temporal(code: int, column: ColumnSchema, modes: Modes) -> _Kind:
    if code in (codes.TIMESTAMP, codes.TIMESTAMP2):
        return "string", f"{_TIMES}ZonedTimestamp", None, _zoned(fraction_digits(column)), "1970-01-01T00:00:00Z"
    if code in (codes.DATE, codes.NEWDATE):
        if modes.times == "isostring":
            return "string", f"{_TIMES}IsoDate", None, lambda value: f"{value.isoformat()}Z", "1970-01-01Z"
        name = f"{_LOGICAL}Date" if modes.times == "connect" else f"{_TIMES}Date"
        return "int32", name, None, lambda value: (value - date(1970, 1, 1)).days, 0
    if code in (codes.TIME, codes.TIME2):
        return _time(modes)
    return _datetime(fraction_digits(column), modes)


def _time(modes: Modes) -> _Kind:
    if modes.times == "isostring":
        return "string", f"{_TIMES}IsoTime", None, _time_of_day, None
    if modes.times == "connect":
        return "int32", f"{_LOGICAL}Time", None, lambda value: _within_a_day(value) // 1000, None
    if modes.times == "nanoseconds":
        return "int64", f"{_TIMES}NanoTime", None, lambda value: value // _MICRO * 1000, None
    return "int64", f"{_TIMES}MicroTime", None, lambda value: value // _MICRO, None


def _datetime(digits: int, modes: Modes) -> _Kind:
    if modes.times == "isostring":
        return "string", f"{_TIMES}IsoTimestamp", None, lambda value: f"{_iso(value)}Z", "1970-01-01T00:00:00Z"
    if modes.times == "nanoseconds":
        return "int64", f"{_TIMES}NanoTimestamp", None, lambda value: _nanoseconds((value - _MOMENT) // _MICRO * 1000), 0
    if modes.times == "microseconds" or modes.times != "connect" and digits > 3:
        return "int64", f"{_TIMES}MicroTimestamp", None, lambda value: (value - _MOMENT) // _MICRO, 0
    name = f"{_LOGICAL}Timestamp" if modes.times == "connect" else f"{_TIMES}Timestamp"
    return "int64", name, None, lambda value: (value - _MOMENT) // _MICRO // 1000, 0


def _zoned(digits: int) -> Callable[[datetime], str]:
    """Return a function that formats times in UTC with as many fraction digits as the column has."""

    def make(value: datetime) -> str:
        moment = value.astimezone(UTC).replace(tzinfo=None)
        fraction = f".{moment.microsecond:06}"[: digits + 1] if digits else ""
        return f"{moment.replace(microsecond=0).isoformat()}{fraction}Z"

    return make


def _iso(value: datetime) -> str:
    """Return ISO 8601 text without trailing zeros in the fraction."""
    text = value.isoformat()
    return text.rstrip("0") if value.microsecond else text


def _within_a_day(value: timedelta) -> int:
    micros = value // _MICRO
    return micros if 0 <= micros < _DAY else _refuse("its type has no TIME below zero or of a day and more")


def _time_of_day(value: timedelta) -> str:
    return f"{_iso(_MOMENT + _MICRO * _within_a_day(value)).partition('T')[2]}Z"


def _nanoseconds(value: int) -> int:
    return value if -(1 << 63) <= value < 1 << 63 else _refuse("64 bits of nanoseconds do not reach as far")


def _refuse(what: str) -> Any:
    raise ValueError(what)
