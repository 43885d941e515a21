"""Values, rows and table maps as the bytes that MySQL and MariaDB write into their binary logs.

Never reads such bytes, and never uses the library's own decoder or its tables: the two judge each other in tests.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import attrs

from canal._util import zstd
from canal.errors import UsageError
from canal.schema import GEOMETRY_KINDS

Flavor: TypeAlias = Literal["mysql", "mariadb"]
Row: TypeAlias = Mapping[str, Any]

# -- small pieces ------------------------------------------------------------------------------------------------------


def packed(number: int) -> bytes:
    """A length-encoded integer."""
    if number < 251:
        return bytes((number,))
    if number < 1 << 16:
        return b"\xfc" + struct.pack("<H", number)
    if number < 1 << 24:
        return b"\xfd" + struct.pack("<I", number)[:3]
    return b"\xfe" + struct.pack("<Q", number)


def packed_text(text: bytes) -> bytes:
    return packed(len(text)) + text


def little_bits(bits: Sequence[bool], fill: bool = False) -> bytes:
    """A bitmap whose first bit is the lowest one; ``fill`` is the value of the bits that are left over."""
    size = (len(bits) + 7) // 8
    number = sum(1 << index for index, bit in enumerate(bits) if bit)
    if fill:
        number |= ((1 << 8 * size) - 1) & ~((1 << len(bits)) - 1)
    return number.to_bytes(size, "little")


def big_bits(bits: Sequence[bool]) -> bytes:
    """A bitmap whose first bit is the highest one of the first byte."""
    padded = [*bits, *[False] * (-len(bits) % 8)]
    text = "".join("1" if bit else "0" for bit in padded)
    return int("0" + text, 2).to_bytes(len(padded) // 8, "big")


def tlv(kind: int, value: bytes) -> bytes:
    return bytes((kind,)) + packed_text(value)


# -- charsets ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Charset:
    """A character set: its default collation's number on each server, Python's codec and the bytes of one character."""

    mysql: int
    mariadb: int
    codec: str
    width: int


def _charset(number: int, codec: str, width: int = 1, *, mysql: int | None = None) -> Charset:
    return Charset(number if mysql is None else mysql, number, codec, width)


CHARSETS: Final[dict[str, Charset]] = {
    "utf8mb4": _charset(45, "utf-8", 4, mysql=255),
    "utf8mb3": _charset(33, "utf-8", 3),
    "utf8": _charset(33, "utf-8", 3),
    "latin1": _charset(8, "cp1252"),
    "ascii": _charset(11, "ascii"),
    "binary": _charset(63, "latin-1"),
    "ucs2": _charset(35, "utf-16-be", 2),
    "utf16": _charset(54, "utf-16-be", 4),
    "utf16le": _charset(56, "utf-16-le", 4),
    "utf32": _charset(60, "utf-32-be", 4),
    "gbk": _charset(28, "gbk", 2),
    "gb2312": _charset(24, "gb2312", 2),
    "big5": _charset(1, "big5", 2),
    "sjis": _charset(13, "shift_jis", 2),
    "cp932": _charset(95, "cp932", 2),
    "ujis": _charset(12, "euc_jp", 3),
    "eucjpms": _charset(97, "euc_jp", 3),
    "euckr": _charset(19, "cp949", 2),
    "latin2": _charset(9, "iso8859_2"),
    "latin5": _charset(30, "iso8859_9"),
    "latin7": _charset(41, "iso8859_13"),
    "greek": _charset(25, "iso8859_7"),
    "hebrew": _charset(16, "iso8859_8"),
    "cp1250": _charset(26, "cp1250"),
    "cp1251": _charset(51, "cp1251"),
    "cp1256": _charset(57, "cp1256"),
    "cp1257": _charset(59, "cp1257"),
    "cp850": _charset(4, "cp850"),
    "cp852": _charset(40, "cp852"),
    "cp866": _charset(36, "cp866"),
    "koi8r": _charset(7, "koi8_r"),
    "koi8u": _charset(22, "koi8_u"),
    "tis620": _charset(18, "tis_620"),
}

#: Collations that can be named; any other can be given as a number.
COLLATIONS: Final[dict[str, int]] = {
    "utf8mb4_general_ci": 45,
    "utf8mb4_bin": 46,
    "utf8mb4_unicode_ci": 224,
    "utf8mb4_0900_ai_ci": 255,
    "utf8mb4_0900_as_cs": 278,
    "utf8mb4_0900_bin": 309,
    "utf8mb3_general_ci": 33,
    "utf8mb3_bin": 83,
    "utf8_general_ci": 33,
    "utf8_bin": 83,
    "latin1_swedish_ci": 8,
    "latin1_general_ci": 48,
    "latin1_bin": 47,
    "ascii_general_ci": 11,
    "ascii_bin": 65,
    "gbk_chinese_ci": 28,
    "gbk_bin": 87,
}

#: Names of the collations that stand for a charset's default, for information_schema.
COLLATION_NAMES: Final[dict[int, str]] = {number: name for name, number in reversed(COLLATIONS.items())}


def encode_text(text: str | bytes, charset: str) -> bytes:
    """Text in the column's charset; bytes are taken as they are, so that a test can store what is not valid."""
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text)
    if not isinstance(text, str):
        raise _Unfit("is neither str nor bytes")
    if charset == "latin1":  # MySQL's latin1 is cp1252 with the five holes filled
        return b"".join(_latin1(char) for char in text)
    try:
        return text.encode(CHARSETS[charset].codec)
    except UnicodeEncodeError:
        raise _Unfit(f"has a character that is not in {charset}") from None


def _latin1(char: str) -> bytes:
    try:
        return char.encode("cp1252")
    except UnicodeEncodeError:
        if char in "\x81\x8d\x8f\x90\x9d":
            return char.encode("latin-1")
        raise _Unfit("has a character that is not in latin1") from None


# -- columns -----------------------------------------------------------------------------------------------------------


class _Unfit(ValueError):
    """Why a value cannot be stored; the text has no value in it."""


@attrs.frozen
class FakeColumn:
    """One column of a fake table.

    ``type`` is the bare name such as ``"int"`` or ``"varchar"``, ``args`` what is in its brackets; ``collation`` is the
    number of a collation, or 0 for the charset's default; ``key`` its number in the primary key from 1 on, 0 if it is
    not in it; ``prefix`` counts the characters that are in the key, 0 for all.
    """

    name: str
    type: str
    args: tuple[int, ...] = ()
    unsigned: bool = False
    nullable: bool = True
    charset: str = "utf8mb4"
    collation: int = 0
    labels: tuple[str, ...] = ()
    key: int = 0
    prefix: int = 0
    visible: bool = True
    auto_increment: bool = False

    def __attrs_post_init__(self) -> None:
        if self.type not in _CODECS:
            raise UsageError(f"column {self.name}: type {self.type} is not known to the fake binlog")
        if self.charset not in CHARSETS:
            raise UsageError(f"column {self.name}: charset {self.charset} is not known to the fake binlog")
        low, high = _ARGUMENTS.get(self.type, (0, 1))
        if not low <= len(self.args) <= high:
            raise UsageError(f"column {self.name}: {self.type} takes {low} to {high} numbers in brackets")
        if self.is_labelled != bool(self.labels):
            raise UsageError(f"column {self.name}: members belong to ENUM and SET, and to nothing else")

    @property
    def is_labelled(self) -> bool:
        return self.type in ("enum", "set")

    @property
    def is_geometry(self) -> bool:
        return self.type in GEOMETRY_KINDS

    @property
    def is_numeric(self) -> bool:
        return self.type in _NUMERIC

    @property
    def is_binary(self) -> bool:
        """Whether it holds bytes rather than text."""
        return self.type in _BINARY

    @property
    def is_text(self) -> bool:
        return self.type in _TEXT or self.is_labelled

    @property
    def is_blob(self) -> bool:
        """Whether binlog_row_image=NOBLOB may leave it out."""
        return self.type in _BLOB_WIDTHS or self.type in ("json", "vector") or self.is_geometry

    def collation_number(self, flavor: Flavor) -> int:
        """What the table map says of the column's charset."""
        if self.is_binary or self.is_geometry or self.type == "vector":
            return 63
        if self.type == "json":
            return 46
        return self.collation or getattr(CHARSETS[self.charset], flavor)

    def column_type(self, flavor: Flavor) -> str:
        """The type's text as information_schema gives it."""
        name, args = self.type, ",".join(str(arg) for arg in self.args)
        if name == "json" and flavor == "mariadb":
            return "longtext"
        if self.is_labelled:
            args = ",".join("'" + label.replace("'", "''") + "'" for label in self.labels)
        elif name in _WIDTHS:
            keeps = flavor == "mariadb" or (name == "tinyint" and self.args == (1,))
            args = str(self.args[0] if self.args else _WIDTHS[name][self.unsigned]) if keeps else ""
        elif name == "decimal":
            args = "{},{}".format(*_decimal_size(self))
        elif name in ("char", "binary", "bit"):
            args = args or "1"
        elif name == "year":
            args = "4" if flavor == "mariadb" else ""
        return name + (f"({args})" if args and args != "0" else "") + (" unsigned" if self.unsigned else "")


@attrs.frozen
class Codec:
    """How a column travels: the type and metadata of its table map, and its cells."""

    code: int
    meta: bytes
    encode: Callable[[Any], bytes]


def codec_of(column: FakeColumn, flavor: Flavor, old: bool = False) -> Codec:
    """``old``: as MySQL before 5.6 has it."""
    if old and column.type in _NEWER:
        raise UsageError(f"column {column.name}: MySQL 5.1 has no type {column.type}")
    codecs = _CODECS | _OLD_CODECS if old else _CODECS
    return codecs[column.type](column, flavor)


# -- numbers -----------------------------------------------------------------------------------------------------------

_INTEGERS: Final = {"tinyint": (1, 1), "smallint": (2, 2), "mediumint": (9, 3), "int": (3, 4), "bigint": (8, 8)}
_WIDTHS: Final = {"tinyint": (4, 3), "smallint": (6, 5), "mediumint": (9, 8), "int": (11, 10), "bigint": (20, 20)}
_NUMERIC: Final = frozenset((*_INTEGERS, "float", "double", "decimal", "year"))


def _integer(column: FakeColumn, flavor: Flavor) -> Codec:
    code, size = _INTEGERS[column.type]

    def encode(value: Any) -> bytes:
        if not isinstance(value, int):
            raise _Unfit("is not an int")
        return value.to_bytes(size, "little", signed=not column.unsigned)

    return Codec(code, b"", encode)


def _real(column: FakeColumn, flavor: Flavor) -> Codec:
    code, size, shape = (4, 4, "<f") if column.type == "float" else (5, 8, "<d")
    return Codec(code, bytes((size,)), lambda value: struct.pack(shape, value))


_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def _decimal_size(column: FakeColumn) -> tuple[int, int]:
    precision = column.args[0] if column.args else 10
    scale = column.args[1] if len(column.args) > 1 else 0
    if not 1 <= precision <= 65 or not 0 <= scale <= min(precision, 38):
        raise UsageError(f"column {column.name}: no server has a DECIMAL({precision},{scale})")
    return precision, scale


def _decimal(column: FakeColumn, flavor: Flavor) -> Codec:
    precision, scale = _decimal_size(column)

    def encode(value: Any) -> bytes:
        if isinstance(value, float):
            raise _Unfit("is a float: give a Decimal, an int or a str")
        return encode_decimal(Decimal(value), precision, scale)

    return Codec(246, bytes((precision, scale)), encode)


def encode_decimal(value: Decimal, precision: int, scale: int) -> bytes:
    """A DECIMAL's cell: groups of nine digits, big-endian, the sign bit turned over, negative ones inverted."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise _Unfit("is not a finite number")
    text = "".join(map(str, digits)) + "0" * max(exponent, 0)
    point = len(text) + min(exponent, 0)
    whole, fraction = (text[:point], text[point:]) if point > 0 else ("", "0" * -point + text)
    whole, fraction = whole.lstrip("0"), fraction.rstrip("0")
    if len(whole) > precision - scale:
        raise _Unfit("has too many digits")
    if len(fraction) > scale:
        raise _Unfit("has too many decimals")
    whole, fraction = whole.rjust(precision - scale, "0"), fraction.ljust(scale, "0")
    data = bytearray(_digit_groups(whole, len(whole) % 9) + _digit_groups(fraction, 0))
    if sign and (whole + fraction).strip("0"):
        data = bytearray(byte ^ 0xFF for byte in data)
    data[0] ^= 0x80
    return bytes(data)


def _digit_groups(digits: str, first: int) -> bytes:
    groups = [digits[:first]] if first else []
    groups += [digits[at : at + 9] for at in range(first, len(digits), 9)]
    return b"".join(int(group).to_bytes(_DIGIT_BYTES[len(group)], "big") for group in groups)


def _bit(column: FakeColumn, flavor: Flavor) -> Codec:
    bits = column.args[0] if column.args else 1
    size = (bits + 7) // 8

    def encode(value: Any) -> bytes:
        number = int.from_bytes(value, "big") if isinstance(value, bytes) else int(value)
        if number < 0 or number >> bits:
            raise _Unfit("has too many bits")
        return number.to_bytes(size, "big")

    return Codec(16, bytes((bits % 8, bits // 8)), encode)


def _year(column: FakeColumn, flavor: Flavor) -> Codec:
    def encode(value: Any) -> bytes:
        if value != 0 and not 1901 <= value <= 2155:
            raise _Unfit("is neither 0 nor a year from 1901 to 2155")
        return bytes((value and value - 1900,))

    return Codec(13, b"", encode)


# -- text and bytes ----------------------------------------------------------------------------------------------------

_BLOB_WIDTHS: Final = {
    "tinytext": 1,
    "text": 2,
    "mediumtext": 3,
    "longtext": 4,
    "tinyblob": 1,
    "blob": 2,
    "mediumblob": 3,
    "longblob": 4,
}
_BINARY: Final = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
_TEXT: Final = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"))


def _sized(column: FakeColumn, limit: int) -> tuple[int, int]:
    """The characters and bytes that a CHAR, VARCHAR, BINARY or VARBINARY holds at most."""
    length = column.args[0] if column.args else 1
    width = 1 if column.is_binary else CHARSETS[column.charset].width
    if not 0 <= length * width <= limit:
        raise UsageError(f"column {column.name}: no server has a {column.type.upper()}({length}) of {column.charset}")
    return length, length * width


def _to_bytes(column: FakeColumn, value: Any, length: int, size: int) -> bytes:
    if column.is_binary and isinstance(value, str):
        raise _Unfit("is text for a column of bytes")
    data = encode_text(value, column.charset)
    if len(value if isinstance(value, str) else data) > (length if isinstance(value, str) else size):
        raise _Unfit("is too long")
    return data


def _char(column: FakeColumn, flavor: Flavor) -> Codec:
    length, size = _sized(column, 1020)
    prefix = 1 if size <= 255 else 2
    pad = b"\0" if column.is_binary else encode_text(" ", column.charset)

    def encode(value: Any) -> bytes:
        data = _to_bytes(column, value, length, size)
        while data.endswith(pad) and len(data) % len(pad) == 0:  # the padding of a CHAR or BINARY is not logged
            data = data[: -len(pad)]
        return len(data).to_bytes(prefix, "little") + data

    return Codec(254, bytes((0xFE ^ (size & 0x300) >> 4, size & 0xFF)), encode)


def _varchar(column: FakeColumn, flavor: Flavor) -> Codec:
    length, size = _sized(column, 65535)
    prefix = 1 if size <= 255 else 2

    def encode(value: Any) -> bytes:
        data = _to_bytes(column, value, length, size)
        return len(data).to_bytes(prefix, "little") + data

    return Codec(15, struct.pack("<H", size), encode)


def _blob(column: FakeColumn, flavor: Flavor) -> Codec:
    width = _BLOB_WIDTHS[column.type]
    size = (1 << 8 * width) - 1

    def encode(value: Any) -> bytes:
        data = _to_bytes(column, value, size, size)
        return len(data).to_bytes(width, "little") + data

    return Codec(252, bytes((width,)), encode)


def _bytes(column: FakeColumn, flavor: Flavor) -> Codec:
    """GEOMETRY (SRID and WKB) and VECTOR (floats), given as the bytes that they are."""

    def encode(value: Any) -> bytes:
        if not isinstance(value, bytes):
            raise _Unfit("is not bytes")
        return _counted(value)

    return Codec(255 if column.is_geometry else 242, b"\4", encode)


def _enum(column: FakeColumn, flavor: Flavor) -> Codec:
    width = 1 if len(column.labels) < 256 else 2

    def encode(value: Any) -> bytes:
        index = value if isinstance(value, int) else _label_index(column, value) + 1
        if not 0 <= index <= len(column.labels):
            raise _Unfit("is not the number of a member")
        return index.to_bytes(width, "little")

    return Codec(254, bytes((247, width)), encode)


def _set(column: FakeColumn, flavor: Flavor) -> Codec:
    count = len(column.labels)
    width = 8 if count > 32 else (count + 7) // 8

    def encode(value: Any) -> bytes:
        if not isinstance(value, int):
            names = value.split(",") if isinstance(value, str) else value
            value = sum(1 << index for index in {_label_index(column, name) for name in names if name != ""})
        if value < 0 or value >> count:
            raise _Unfit("has bits that stand for no member")
        return bytes(value.to_bytes(width, "little"))

    return Codec(254, bytes((248, width)), encode)


def _label_index(column: FakeColumn, label: str) -> int:
    if label not in column.labels:
        raise _Unfit("is not a member")
    return column.labels.index(label)


# -- dates and times ---------------------------------------------------------------------------------------------------

_TIME_TEXT: Final = re.compile(r"(-?)([0-9]{1,3}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?")
_DATE_TEXT: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_DATETIME_TEXT: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _matched(pattern: re.Pattern[str], value: str, what: str) -> list[str]:
    found = pattern.fullmatch(value)
    if found is None:
        raise _Unfit(f"is not the text of a {what}")
    return [group or "" for group in found.groups()]


def _precision(column: FakeColumn) -> int:
    digits = column.args[0] if column.args else 0
    if digits > 6:
        raise UsageError(f"column {column.name}: {column.type.upper()} has 6 decimals at most")
    return digits


def _fraction(micros: int, digits: int) -> bytes:
    """The fraction's own bytes, behind whole seconds that are not negative."""
    if micros % 10 ** (6 - digits):
        raise _Unfit("has too many decimals of a second")
    size = (digits + 1) // 2
    rest: int = micros // 10 ** (6 - 2 * size)
    return rest.to_bytes(size, "big")


def _date_parts(value: object) -> tuple[int, int, int]:
    if isinstance(value, str):
        year, month, day = (int(part) for part in _matched(_DATE_TEXT, value, "date"))
        return year, month, day
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.year, value.month, value.day
    raise _Unfit("is neither a date nor the text of one")


def _date(column: FakeColumn, flavor: Flavor) -> Codec:
    def encode(value: Any) -> bytes:
        year, month, day = _date_parts(value)
        return (year << 9 | month << 5 | day).to_bytes(3, "little")

    return Codec(10, b"", encode)


def _datetime_parts(value: Any) -> tuple[int, ...]:
    """Year to second and microseconds; the text may be a zero or partial date."""
    if isinstance(value, str):
        *parts, fraction = _matched(_DATETIME_TEXT, value, "date and time")
        return (*map(int, parts), int(fraction.ljust(6, "0")))
    if isinstance(value, dt.datetime):
        return value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond
    raise _Unfit("is neither a datetime nor the text of one")


def _packed_datetime(parts: tuple[int, ...]) -> int:
    year, month, day, hour, minute, second, _ = parts
    return ((year * 13 + month) << 5 | day) << 17 | hour << 12 | minute << 6 | second


def _datetime(column: FakeColumn, flavor: Flavor) -> Codec:
    digits = _precision(column)

    def encode(value: Any) -> bytes:
        if isinstance(value, dt.datetime) and value.tzinfo is not None:
            raise _Unfit("has a time zone, which a DATETIME has not")
        parts = _datetime_parts(value)
        return (_packed_datetime(parts) + (1 << 39)).to_bytes(5, "big") + _fraction(parts[6], digits)

    return Codec(18, bytes((digits,)), encode)


def _timestamp(column: FakeColumn, flavor: Flavor) -> Codec:
    digits = _precision(column)

    def encode(value: Any) -> bytes:
        parts = _datetime_parts(value)
        if not any(parts):
            return bytes(4) + _fraction(0, digits)
        moment: dt.datetime = value if isinstance(value, dt.datetime) else dt.datetime(*parts)  # type: ignore[arg-type]
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=dt.UTC)
        seconds, micros = divmod((moment - _EPOCH) // dt.timedelta(microseconds=1), 1_000_000)
        return struct.pack(">I", seconds) + _fraction(micros, digits)

    return Codec(17, bytes((digits,)), encode)


def _time_micros(value: Any) -> int:
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1)
    if isinstance(value, dt.time):
        value = value.isoformat()
    if not isinstance(value, str):
        raise _Unfit("is neither a timedelta nor the text of a TIME")
    sign, hour, minute, second, fraction = _matched(_TIME_TEXT, value, "TIME")
    micros = (int(hour) * 3600 + int(minute) * 60 + int(second)) * 1_000_000 + int(fraction.ljust(6, "0"))
    return -micros if sign else micros


def _packed_time(micros: int) -> int:
    """Hours, minutes and seconds above 24 bits of microseconds, negative as a whole."""
    seconds, rest = divmod(abs(micros), 1_000_000)
    number = (seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60) << 24 | rest
    return -number if micros < 0 else number


def _time(column: FakeColumn, flavor: Flavor) -> Codec:
    digits = _precision(column)

    def encode(value: Any) -> bytes:
        micros = _time_micros(value)
        if abs(micros) >= 839 * 3600 * 1_000_000:
            raise _Unfit("is beyond 838:59:59")
        if micros % 10 ** (6 - digits):
            raise _Unfit("has too many decimals of a second")
        number = _packed_time(micros)
        if digits > 4:
            return (number + (1 << 47)).to_bytes(6, "big")
        size = (digits + 1) // 2
        # The fraction of a negative time is negative too: two's complement, and the seconds are rounded down.
        rest: int = (abs(number) & 0xFFFFFF) // 10 ** (6 - 2 * size) * (-1 if number < 0 else 1)
        return ((number >> 24) + (1 << 23)).to_bytes(3, "big") + rest.to_bytes(size, "big", signed=True)

    return Codec(19, bytes((digits,)), encode)


def _whole_seconds(column: FakeColumn, value: Any) -> tuple[int, ...]:
    *parts, micros = _datetime_parts(value)
    if column.args or micros:
        raise _Unfit("has decimals of a second, which MySQL has had since 5.6")
    return tuple(parts)


def _old_datetime(column: FakeColumn, flavor: Flavor) -> Codec:
    def encode(value: Any) -> bytes:
        return int("{:04}{:02}{:02}{:02}{:02}{:02}".format(*_whole_seconds(column, value))).to_bytes(8, "little")

    return Codec(12, b"", encode)


def _old_timestamp(column: FakeColumn, flavor: Flavor) -> Codec:
    newer = _timestamp(column, flavor)

    def encode(value: Any) -> bytes:
        _whole_seconds(column, value)
        return newer.encode(value)[::-1]

    return Codec(7, b"", encode)


def _old_time(column: FakeColumn, flavor: Flavor) -> Codec:
    def encode(value: Any) -> bytes:
        seconds, micros = divmod(abs(_time_micros(value)), 1_000_000)
        if column.args or micros:
            raise _Unfit("has decimals of a second, which MySQL has had since 5.6")
        number = seconds // 3600 * 10000 + seconds // 60 % 60 * 100 + seconds % 60
        return (-number if _time_micros(value) < 0 else number).to_bytes(3, "little", signed=True)

    return Codec(11, b"", encode)


# -- JSON --------------------------------------------------------------------------------------------------------------


def _json(column: FakeColumn, flavor: Flavor) -> Codec:
    """MySQL's binary JSON, MariaDB's text. A str is JSON text, as in SQL; everything else is the value itself."""
    if flavor == "mariadb":
        return Codec(252, b"\4", lambda value: _counted(_json_text(value)))

    def encode(value: Any) -> bytes:
        if isinstance(value, (str, bytes)):
            try:
                value = json.loads(value)
            except ValueError:
                raise _Unfit("is not JSON text") from None
        return _counted(encode_json(value))

    return Codec(245, b"\4", encode)


def _counted(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def _json_text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode("utf-8")


class _TooBig(Exception):
    """A container does not fit into the small form."""


def encode_json(value: Any) -> bytes:
    """MySQL's binary form of a JSON document."""
    kind, data, _ = _json_value(value)
    return bytes((kind,)) + data


def _json_value(value: Any) -> tuple[int, bytes, bool]:
    """Type, bytes, and whether the bytes go into a container's own table where they fit."""
    if value is None or isinstance(value, bool):
        return 4, bytes((0 if value is None else 1 if value else 2,)), True
    if isinstance(value, int):
        return _json_int(value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value), False
    if isinstance(value, str):
        text = value.encode("utf-8")
        return 12, _json_length(len(text)) + text, False
    if isinstance(value, Mapping):
        return (*_json_container(value, 0), False)
    if isinstance(value, (list, tuple)):
        return (*_json_container(value, 2), False)
    field, data = _json_opaque(value)
    return 15, bytes((field,)) + _json_length(len(data)) + data, False


def _json_int(value: int) -> tuple[int, bytes, bool]:
    # The parser of JSON text takes numbers up to 32 bits as signed ones, larger ones without a sign as unsigned.
    for kind, shape, low, high in (
        (5, "<h", -(1 << 15), 1 << 15),
        (7, "<i", -(1 << 31), 1 << 31),
        (9, "<q", -(1 << 63), 1 << 32),
        (10, "<Q", 0, 1 << 64),
    ):
        if low <= value < high:
            return kind, struct.pack(shape, value), kind in (5, 7)
    return 11, struct.pack("<d", float(value)), False


def _json_length(size: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    data = bytearray()
    while size > 0x7F:
        data.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*data, size))


def _json_container(value: Any, kind: int) -> tuple[int, bytes]:
    try:
        return kind, _json_table(value, 2)
    except _TooBig:
        return kind + 1, _json_table(value, 4)


def _json_table(value: Any, width: int) -> bytes:
    """A container with offsets of ``width`` bytes: its sizes, the keys' table, the values' table, keys, values."""
    keys: list[bytes] = []
    if isinstance(value, Mapping):
        named = {str(key).encode("utf-8"): item for key, item in value.items()}
        keys = sorted(named, key=lambda key: (len(key), key))
        value = [named[key] for key in keys]
    count = len(value)
    start = 2 * width + (width + 2) * len(keys) + (width + 1) * count
    key_table, texts = b"", b"".join(keys)
    for key in keys:
        key_table += _json_offset(start, width) + struct.pack("<H", len(key))
        start += len(key)
    table, tail, at = bytearray(), bytearray(), start
    for item in value:
        kind, data, inline = _json_value(item)
        table.append(kind)
        if inline and len(data) <= width:
            signed = kind in (5, 7)
            table += int.from_bytes(data, "little", signed=signed).to_bytes(width, "little", signed=signed)
        else:
            table += _json_offset(at + len(tail), width)
            tail += data
    size = at + len(tail)
    return _json_offset(count, width) + _json_offset(size, width) + key_table + bytes(table) + texts + bytes(tail)


def _json_offset(number: int, width: int) -> bytes:
    if number >> 8 * width:
        raise _TooBig
    return number.to_bytes(width, "little")


def _json_opaque(value: Any) -> tuple[int, bytes]:
    """SQL values inside of JSON, as JSON_OBJECT('a', <DECIMAL or temporal value>) makes them."""
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        scale = max(-int(exponent), 0)
        precision = max(len(digits) + max(int(exponent), 0) - scale, 1) + scale
        return 246, bytes((precision, scale)) + encode_decimal(value, precision, scale)
    if isinstance(value, dt.datetime):
        parts = _datetime_parts(value)
        return 12, struct.pack("<q", _packed_datetime(parts) << 24 | parts[6])
    if isinstance(value, dt.date):
        return 10, struct.pack("<q", _packed_datetime((*_date_parts(value), 0, 0, 0, 0)) << 24)
    if isinstance(value, dt.timedelta):
        return 11, struct.pack("<q", _packed_time(_time_micros(value)))
    if isinstance(value, bytes):
        return 252, value
    raise _Unfit("holds what JSON cannot")


_CODECS: Final[dict[str, Callable[[FakeColumn, Flavor], Codec]]] = {
    **dict.fromkeys(_INTEGERS, _integer),
    **dict.fromkeys(_BLOB_WIDTHS, _blob),
    "float": _real,
    "double": _real,
    "decimal": _decimal,
    "bit": _bit,
    "year": _year,
    "char": _char,
    "binary": _char,
    "varchar": _varchar,
    "varbinary": _varchar,
    "enum": _enum,
    "set": _set,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    "json": _json,
    "vector": _bytes,
    **dict.fromkeys(GEOMETRY_KINDS, _bytes),
}
_OLD_CODECS: Final[dict[str, Callable[[FakeColumn, Flavor], Codec]]] = {
    "datetime": _old_datetime,
    "timestamp": _old_timestamp,
    "time": _old_time,
}
_NEWER: Final = ("json", "vector")
_ARGUMENTS: Final = {
    **dict.fromkeys((*_BLOB_WIDTHS, "json", "date", "enum", "set", *GEOMETRY_KINDS), (0, 0)),
    **dict.fromkeys(("float", "double"), (0, 0)),
    "decimal": (0, 2),
    "varchar": (1, 1),
    "varbinary": (1, 1),
    "vector": (1, 1),
}


def keyed(columns: Sequence[FakeColumn], keys: Sequence[tuple[str, int | None]]) -> tuple[FakeColumn, ...]:
    """The columns, those of the primary key with their numbers in it."""
    numbers = {name.lower(): (number, prefix or 0) for number, (name, prefix) in enumerate(keys, 1)}
    unknown = numbers.keys() - {column.name.lower() for column in columns}
    if unknown:
        raise UsageError(f"the primary key names unknown columns {sorted(unknown)}")
    marked = []
    for column in columns:
        number, prefix = numbers.get(column.name.lower(), (0, 0))
        marked.append(attrs.evolve(column, key=number, prefix=prefix, nullable=False) if number else column)
    return tuple(marked)


# -- rows --------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Image:
    """Which columns a row image has; ``fill`` sets the bits behind the last one too, as MySQL does for whole rows."""

    present: tuple[bool, ...]
    fill: bool = False

    @property
    def bitmap(self) -> bytes:
        return little_bits(self.present, self.fill)


@attrs.define
class TableEncoder:
    """Makes the bodies of one table's TABLE_MAP and rows events."""

    flavor: Flavor
    schema: str
    table: str
    columns: tuple[FakeColumn, ...]
    row_version: int
    """Of the rows events: version 2 has room for extra data."""
    old: bool = False
    """As MySQL before 5.6 writes them."""
    codecs: tuple[Codec, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        if not 1 <= len(self.columns) <= 4096:
            raise UsageError(f"{self.schema}.{self.table}: a table has 1 to 4096 columns")
        self.codecs = tuple(codec_of(column, self.flavor, self.old) for column in self.columns)

    def table_map(self, table_id: int, metadata: str) -> bytes:
        """The body of a TABLE_MAP event."""
        schema, table = self.schema.encode("utf-8"), self.table.encode("utf-8")
        return b"".join(
            (
                table_id.to_bytes(6, "little"),
                b"\1\0",
                bytes((len(schema),)) + schema + b"\0",
                bytes((len(table),)) + table + b"\0",
                packed(len(self.columns)),
                bytes(codec.code for codec in self.codecs),
                packed_text(b"".join(codec.meta for codec in self.codecs)),
                little_bits([column.nullable for column in self.columns]),
                self._optional(metadata),
            )
        )

    def _optional(self, metadata: str) -> bytes:
        """The optional metadata, in the order in which the servers write it."""
        if metadata == "NO_LOG":
            return b""
        columns = self.columns
        numeric = [column.unsigned or column.type == "year" for column in columns if column.is_numeric]
        data = tlv(1, big_bits(numeric)) if numeric else b""
        data += self._charsets([column for column in columns if self._is_character(column)], 2, 3)
        geometries = [GEOMETRY_KINDS.index(column.type) for column in columns if column.is_geometry]
        data += tlv(7, bytes(geometries)) if geometries else b""
        dimensions = [packed(column.args[0]) for column in columns if column.type == "vector"]
        data += tlv(13, b"".join(dimensions)) if dimensions else b""
        if metadata == "MINIMAL":
            return data
        data += tlv(4, b"".join(packed_text(column.name.encode("utf-8")) for column in columns))
        data += self._charsets([column for column in columns if column.is_labelled], 10, 11)
        for kind, name in ((5, "set"), (6, "enum")):
            labels = [self._labels(column) for column in columns if column.type == name]
            data += tlv(kind, b"".join(labels)) if labels else b""
        in_key = sorted((column.key, index, column.prefix) for index, column in enumerate(columns) if column.key)
        keys = [(index, prefix) for _, index, prefix in in_key]
        if any(prefix for _, prefix in keys):
            data += tlv(9, b"".join(packed(index) + packed(prefix) for index, prefix in keys))
        elif keys:
            data += tlv(8, b"".join(packed(index) for index, _ in keys))
        if self.flavor == "mysql":
            data += tlv(12, big_bits([column.visible for column in columns]))
        return data

    def _is_character(self, column: FakeColumn) -> bool:
        if column.type == "json" or column.is_geometry:  # LONGTEXT there, and bytes
            return self.flavor == "mariadb"
        return column.type in _TEXT or column.is_binary or column.type == "vector"

    def _charsets(self, columns: list[FakeColumn], default: int, each: int) -> bytes:
        """One default and its exceptions, or one by one: whichever the server takes to be shorter."""
        if not columns:
            return b""
        numbers = [column.collation_number(self.flavor) for column in columns]
        most = max(sorted(set(numbers)), key=numbers.count)
        if len(numbers) < 1 + 2 * (len(numbers) - numbers.count(most)):
            return tlv(each, b"".join(packed(number) for number in numbers))
        others = ((index, number) for index, number in enumerate(numbers) if number != most)
        return tlv(default, packed(most) + b"".join(packed(index) + packed(number) for index, number in others))

    def _labels(self, column: FakeColumn) -> bytes:
        texts = [encode_text(label, column.charset) for label in column.labels]
        return packed(len(texts)) + b"".join(packed_text(text) for text in texts)

    def image(self, row: Row, image: Image) -> bytes:
        """A row image: the NULL bits of the columns that are present, then their cells."""
        nulls, cells = [], []
        for column, codec, here in zip(self.columns, self.codecs, image.present, strict=True):
            if not here:
                continue
            value = row.get(column.name)
            nulls.append(value is None)
            if value is not None:
                cells.append(self._cell(column, codec, value))
            elif not column.nullable:
                raise UsageError(f"{self.schema}.{self.table}.{column.name} is NOT NULL and has no value")
        return little_bits(nulls, fill=self.flavor == "mariadb") + b"".join(cells)

    def _cell(self, column: FakeColumn, codec: Codec, value: Any) -> bytes:
        try:
            return codec.encode(value)
        except _Unfit as error:
            reason = str(error)
        except (ValueError, TypeError, ArithmeticError, struct.error):
            reason = "does not fit"
        raise UsageError(f"{self.schema}.{self.table}.{column.name}: the value {reason} ({column.column_type(self.flavor)})")

    def rows_head(self, table_id: int, flags: int, images: Iterable[Image]) -> bytes:
        """A rows event up to its first row."""
        extra = b"\2\0" if self.row_version == 2 else b""
        bitmaps = b"".join(image.bitmap for image in images)
        return table_id.to_bytes(6, "little") + struct.pack("<H", flags) + extra + packed(len(self.columns)) + bitmaps

    def rows_bodies(self, table_id: int, images: Sequence[Image], rows: Sequence[bytes], limit: int) -> Iterator[bytes]:
        """The bodies of one statement's rows events, of ``limit`` bytes or one row each; the last one ends it."""
        head = len(self.rows_head(table_id, 0, images))
        first, size = 0, head
        for index, row in enumerate(rows):
            if index > first and size + len(row) > limit:
                yield self.rows_head(table_id, 0, images) + b"".join(rows[first:index])
                first, size = index, head
            size += len(row)
        yield self.rows_head(table_id, 1, images) + b"".join(rows[first:])


# -- events ------------------------------------------------------------------------------------------------------------

HEADER: Final = struct.Struct("<IBIIIH")


def event(kind: int, body: bytes, *, timestamp: int, server_id: int, end: int, flags: int = 0, checksum: bool = True) -> bytes:
    """A whole event: header, body and CRC32. ``end`` is the full offset of its end; the header keeps 32 bits of it."""
    size = HEADER.size + len(body) + 4 * checksum
    data = HEADER.pack(timestamp & 0xFFFFFFFF, kind, server_id, size, end & 0xFFFFFFFF, flags) + body
    return data + struct.pack("<I", zlib.crc32(data)) if checksum else data


def resent(data: bytes, *, checksum: bool) -> bytes:
    """A FORMAT_DESCRIPTION as sent before the middle of a journal: without its end and its time of creation.

    Servers renew its checksum only where the journal's events have one.
    """
    return without_creation(data[:13] + bytes(4) + data[17:], checksum=checksum)


def without_creation(data: bytes, *, checksum: bool) -> bytes:
    """A FORMAT_DESCRIPTION without its time of creation, at which a replica would drop its temporary tables."""
    changed = data[:71] + bytes(4) + data[75:]
    if not checksum:
        return changed
    return changed[:-4] + struct.pack("<I", zlib.crc32(changed[:-4]))


_LENGTHS: Final[dict[Flavor, bytes]] = {
    "mysql": bytes.fromhex("000d0008000000000400040000006300041a08000000000000020000000a0a0a2a2a001234000a2800") + b"\0",
    "mariadb": (
        bytes.fromhex("380d000800120004040404120000e400041a08000000080808020000000a0a0a0000000000000a0a0a").ljust(160, b"\0")
        + bytes.fromhex("041304000d0808080a0a0a")
    ),
}


#: Of MySQL 5.1.
_OLD_LENGTHS: Final = bytes.fromhex("380d0008001200040404041200005300041a0800000008080802")


def format_description(
    flavor: Flavor, version: str, created: int, checksum: bool, row_version: int, *, old: bool = False
) -> bytes:
    """The body of a FORMAT_DESCRIPTION up to the checksum algorithm, of which ``old`` releases know nothing."""
    name = version.encode("ascii").ljust(50, b"\0")
    if old:
        return struct.pack("<H", 4) + name + struct.pack("<IB", created, 19) + _OLD_LENGTHS
    lengths = bytearray(_LENGTHS[flavor])
    if row_version == 1:  # which MySQL 8.4 no longer knows
        lengths[22:25] = b"\x08\x08\x08"
    return struct.pack("<H", 4) + name + struct.pack("<IB", created, 19) + bytes(lengths) + bytes((checksum,))


def query_status(flavor: Flavor, schema: str, *, ddl_xid: int | None = None, sql: str = "", old: bool = False) -> bytes:
    """The status variables of a QUERY event: flags, sql_mode, catalog, charsets and what a DDL adds."""
    if old:
        return bytes.fromhex("0000000000010000000000000000060373746404210021000800")
    if flavor == "mariadb":
        status = bytes.fromhex("00000000010100002054000000000603737464042d002d000800")
        return status + (b"\x81" + struct.pack("<Q", ddl_xid) if ddl_xid is not None else b"")
    status = bytes.fromhex("0000000000012000a045000000000603737464042d002d00ff00")
    if ddl_xid is not None:
        name = schema.encode("utf-8")
        status += (b"\x0c\x01" + name + b"\0" if name else b"") + b"\x11" + struct.pack("<Q", ddl_xid)
    status += b"\x12\xff\x00"
    words = sql.lower().split()[:2]
    if words[:1] in (["create"], ["alter"]):
        # Whether tables need a primary key, and whether a schema's tables are encrypted.
        status += {"table": b"\x13\x00", "database": b"\x14\x00", "schema": b"\x14\x00"}.get("".join(words[1:]), b"")
    return status


def payload_body(events: bytes, compression: Literal["zstd", "none"]) -> bytes:
    """The body of a TRANSACTION_PAYLOAD event: fields, then the events, which have no checksums and no ends."""
    if compression == "none":
        return tlv(2, packed(255)) + tlv(1, packed(len(events))) + b"\0" + events
    data = zstd.compress(events)
    return tlv(2, b"\0") + tlv(3, packed(len(events))) + tlv(1, packed(len(data))) + b"\0" + data


def compressed(data: bytes) -> bytes:
    """MariaDB's compressed form: how many bytes the length has, the length, zlib data."""
    size = len(data).to_bytes(4, "big").lstrip(b"\0") or b"\0"
    return bytes((0x80 | len(size),)) + size + zlib.compress(data)


def query_body(thread: int, schema: str, status: bytes, sql: bytes) -> bytes:
    name = schema.encode("utf-8")
    return struct.pack("<IIBHH", thread, 0, len(name), 0, len(status)) + status + name + b"\0" + sql


def tagged_gtid_body(source: bytes, tag: str, number: int, sequence: int, statement: bool = False) -> bytes:
    """The body of a MySQL 8.3 GTID_TAGGED event, without the fields that tell times, versions and lengths."""
    parts = [(0, variable(int(statement))), (1, b"".join(map(variable, source))), (2, variable(number << 1))]
    parts += [(3, variable(len(tag)) + tag.encode("ascii")), (4, variable((sequence - 1) << 1)), (5, variable(sequence << 1))]
    fields = b"".join(variable(number) + value for number, value in parts)
    return variable(1) + variable(len(fields) + 3) + variable(0) + fields


def variable(number: int) -> bytes:
    """An integer in MySQL's serialisation: the ones at the end of the first byte count the bytes that follow."""
    more = max(number.bit_length() - 1, 0) // 7
    if more > 7:
        return b"\xff" + number.to_bytes(8, "little")
    return ((number << (more + 1)) | ((1 << more) - 1)).to_bytes(more + 1, "little")


def mysql_gtid_body(
    source: bytes, number: int, *, ddl: bool, last_committed: int, sequence: int, micros: int, length: int, version: int
) -> bytes:
    """The body of a MySQL 8 GTID event; ``length`` is the transaction's without this event and gets it added."""
    fixed = struct.pack("<B16sQBQQ", ddl, source, number, 2, last_committed, sequence) + struct.pack("<Q", micros)[:7]
    size = length + HEADER.size + len(fixed) + 4
    for width in (1, 3, 4, 9):
        text = packed(size + width)
        if len(text) == width:
            return fixed + text + struct.pack("<I", version)
    raise AssertionError(size)
