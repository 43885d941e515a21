"""The written list of what mysql-replication 1.0.17 decodes otherwise than the server says, for the differential test.

Never lists a difference of form that loses nothing: those are in :func:`in_peer_form`, all of them.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, Protocol

import attrs

from canal import ABSENT

PEER: Final = "mysql-replication 1.0.17"


class ColumnKind(Protocol):
    """What the list needs to know of a column."""

    @property
    def family(self) -> str:
        """What is special about its values; "plain" when nothing is."""

    @property
    def digits(self) -> int:
        """The n in BIT(n)."""

    @property
    def charset(self) -> str:
        """The server's name of the charset of its text or labels."""


class _Mark:
    """A value that is like no other."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


#: A fault's answer for a value that it does not touch.
SAME: Final = _Mark("SAME")
#: The JSON document ``null``, which is not NULL.
JSON_NULL: Final = _Mark("JSON null")


@attrs.frozen
class Raised:
    """Instead of a value: the reader raised this, and the whole event is lost."""

    error: str


@attrs.frozen
class Fault:
    """One fault: what is read wrongly, an example of it, and which answer is right.

    ``gives`` foretells exactly what mysql-replication makes of a value (given as canal decodes it): a value,
    ``Raised``, or ``SAME`` where the value is not touched. The differential test holds every row against it, proves
    every value and the example against SELECT, and fails when a fault does not occur any more.
    """

    what: str
    #: The example: a column of this type that got this value by an INSERT.
    type: str
    literal: str
    peer_gives: Any
    server_says: Any
    why: str
    gives: Callable[[ColumnKind, Any], Any]
    family: str
    charset: str = "utf8mb4"
    servers: tuple[str, ...] = ("mariadb", "mysql")
    images: tuple[str, ...] = ("FULL", "MINIMAL")


_CODECS: Final = {"utf8mb4": "utf-8", "latin1": "cp1252", "gbk": "gbk", "utf16": "utf-16-be"}
#: cp1252 has no characters for these bytes; the server's latin1 has, of the same number.
_ONLY_IN_LATIN1: Final = frozenset("\x81\x8d\x8f\x90\x9d")


# -- differences of form, which are no faults --------------------------------------------------------------------------


def in_peer_form(column: ColumnKind, value: Any) -> Any:
    """Say canal's value in the form that mysql-replication has for it.

    * BIT: text of all its digits in base 2, where canal has an int.
    * SET: a set of labels, where canal has the server's text. (The empty set is the fault below.)
    * TIMESTAMP: naive, in UTC, where canal has an aware datetime.
    * JSON of MySQL: decoded, with keys and strings as UTF-8 bytes, DECIMAL as Decimal and temporal values as objects,
      where canal has the server's text.
    """
    if column.family == "bit":
        return format(value, f"0{column.digits}b")
    if column.family == "set":
        return set(value.split(",")) if value else set()
    if column.family == "timestamp" and isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if column.family.startswith("json"):
        return _json_form(column.family, value)
    return value


def _json_form(family: str, text: str) -> Any:
    if family == "json decimal":
        return _in_bytes(json.loads(text, parse_float=Decimal, parse_int=Decimal))
    document = json.loads(text)
    if document is None:
        return JSON_NULL
    make = {"json datetime": datetime.fromisoformat, "json date": date.fromisoformat, "json time": time.fromisoformat}
    if family in make:
        try:
            return {b"k": make[family](document["k"])}
        except ValueError:  # Python has no such moment
            pass
    return _in_bytes(document)


def _in_bytes(document: Any) -> Any:
    if isinstance(document, str):
        return document.encode()
    if isinstance(document, list):
        return [_in_bytes(one) for one in document]
    if isinstance(document, dict):
        return {key.encode(): _in_bytes(one) for key, one in document.items()}
    return document


# -- what mysql-replication makes of a value ---------------------------------------------------------------------------


def _float(column: ColumnKind, value: Any) -> Any:
    return struct.unpack("<f", struct.pack("<f", value))[0] if column.family == "float" else SAME


def _padding(column: ColumnKind, value: Any) -> Any:
    return value.rstrip(b"\0") or SAME if column.family == "binary" else SAME


def _no_bytes(column: ColumnKind, value: Any) -> Any:
    if column.family == "binary":
        return SAME if value.strip(b"\0") else ""
    return "" if value == b"" else SAME


def _is_partial(text: str) -> bool:
    year, month, day = text[:10].split("-")
    return "00" in (month, day) or year == "0000"


def _partial_date(column: ColumnKind, value: Any) -> Any:
    return None if column.family == "date" and isinstance(value, str) and _is_partial(value) else SAME


def _impossible_date(column: ColumnKind, value: Any) -> Any:
    odd = column.family == "date" and isinstance(value, str) and not _is_partial(value)
    return Raised("ValueError") if odd else SAME


def _odd_datetime(column: ColumnKind, value: Any) -> Any:
    return None if column.family == "datetime" and isinstance(value, str) else SAME


def _zero_timestamp(column: ColumnKind, value: Any) -> Any:
    return datetime(1970, 1, 1) if column.family == "timestamp" and isinstance(value, str) else SAME


def _negative_time(column: ColumnKind, value: Any) -> Any:
    if column.family != "time" or value >= timedelta(0) or value.microseconds == 0:
        return SAME
    # The seconds' two's complement is undone without the fraction's: the second is one too far, the fraction negative.
    fraction = timedelta(microseconds=(-value).microseconds)
    return -(-value - fraction + timedelta(seconds=1) - fraction)


def _year(column: ColumnKind, value: Any) -> Any:
    return 1900 if column.family == "year" and value == 0 else SAME


def _empty_set(column: ColumnKind, value: Any) -> Any:
    return None if column.family == "set" and value == "" else SAME


def _peer_label(label: str, charset: str) -> str:
    try:
        return label.encode(_CODECS[charset]).decode()
    except UnicodeDecodeError:
        return ""


def _enum_charset(column: ColumnKind, value: Any) -> Any:
    return _peer_label(value, column.charset) if column.family == "enum" else SAME


def _set_charset(column: ColumnKind, value: Any) -> Any:
    if column.family != "set" or value == "":
        return SAME
    return {_peer_label(label, column.charset) for label in value.split(",")}


def _latin1(column: ColumnKind, value: Any) -> Any:
    odd = column.family == "text" and column.charset == "latin1" and not _ONLY_IN_LATIN1.isdisjoint(value)
    return Raised("UnicodeDecodeError") if odd else SAME


def _utf16(column: ColumnKind, value: Any) -> Any:
    if column.family != "text" or column.charset != "utf16":
        return SAME
    try:
        return value.encode("utf-16-be").decode("utf-16")
    except UnicodeDecodeError:
        return Raised("UnicodeDecodeError")


def _json_null(column: ColumnKind, value: Any) -> Any:
    return None if column.family.startswith("json") and value == "null" else SAME


def _json_date(column: ColumnKind, value: Any) -> Any:
    if column.family != "json date":
        return SAME
    return {b"k": datetime.fromisoformat(json.loads(value)["k"])}


def _json_partial_datetime(column: ColumnKind, value: Any) -> Any:
    odd = column.family == "json datetime" and _is_partial(json.loads(value)["k"])
    return Raised("ValueError") if odd else SAME


def _json_negative_time(column: ColumnKind, value: Any) -> Any:
    if column.family != "json time" or not (text := json.loads(value)["k"]).startswith("-") or text[1:3] > "23":
        return SAME
    return {b"k": time.fromisoformat(text[1:])}


def _json_long_time(column: ColumnKind, value: Any) -> Any:
    if column.family != "json time" or int(json.loads(value)["k"].lstrip("-").partition(":")[0]) < 24:
        return SAME
    return Raised("ValueError")


def _json_bytes(column: ColumnKind, value: Any) -> Any:
    if column.family != "json bytes":
        return SAME
    raw = base64.b64decode(json.loads(value)["k"].rpartition(":")[2])
    return {b"k": raw.decode(errors="ignore")}


def _json_null_absent(column: ColumnKind, value: Any) -> Any:
    return ABSENT if column.family.startswith("json") and value == "null" else SAME


FAULTS: Final[Sequence[Fault]] = (
    Fault(
        what="FLOAT is widened",
        type="FLOAT",
        literal="0.1",
        peer_gives=0.10000000149011612,
        server_says=0.1,
        why="A float32 is what its shortest text says; the digits beyond come from widening it.",
        gives=_float,
        family="float",
    ),
    Fault(
        what="BINARY(n) loses zero bytes at its end",
        type="BINARY(3)",
        literal="'a'",
        peer_gives=b"a",
        server_says=b"a\0\0",
        why="BINARY(n) always has n bytes; the log leaves out zero bytes at the end, as it does spaces of a CHAR.",
        gives=_padding,
        family="binary",
    ),
    Fault(
        what="bytes become a str when there are none in the log: VARBINARY and BLOB '', BINARY(n) of zero bytes only",
        type="VARBINARY(3)",
        literal="''",
        peer_gives="",
        server_says=b"",
        why="The type is binary whatever the value; bytes.decode('binary') fails only when there are some.",
        gives=_no_bytes,
        family="bytes",
    ),
    Fault(
        what="DATE with a month or day 0, or of the year 0, becomes None ('out of date range' in none_sources)",
        type="DATE",
        literal="'2026-00-15'",
        peer_gives=None,
        server_says="2026-00-15",
        why="The column is not NULL, and all digits are in the log.",
        gives=_partial_date,
        family="date",
    ),
    Fault(
        what="DATE of a day that is in no calendar, as ALLOW_INVALID_DATES takes it: raises, the whole event is lost",
        type="DATE",
        literal="'2026-02-31'",
        peer_gives=Raised("ValueError"),
        server_says="2026-02-31",
        why="The server took it and its replicas take it. A reader that raises never gets past it.",
        gives=_impossible_date,
        family="date",
    ),
    Fault(
        what="DATETIME that Python has not becomes None ('out of datetime2 range' in none_sources)",
        type="DATETIME(1)",
        literal="'2026-00-15 23:59:59.9'",
        peer_gives=None,
        server_says="2026-00-15 23:59:59.9",
        why="The column is not NULL, and all digits are in the log.",
        gives=_odd_datetime,
        family="datetime",
    ),
    Fault(
        what="TIMESTAMP of the zero date becomes 1970",
        type="TIMESTAMP NULL",
        literal="'0000-00-00 00:00:00'",
        peer_gives=datetime(1970, 1, 1),
        server_says="0000-00-00 00:00:00",
        why="Second 0 is how the zero date is stored; 1970-01-01 00:00:00 UTC is out of the type's range.",
        gives=_zero_timestamp,
        family="timestamp",
    ),
    Fault(
        what="TIME that is negative and has a fraction is wrong",
        type="TIME(1)",
        literal="'-00:00:00.1'",
        peer_gives=-timedelta(milliseconds=900),
        server_says=-timedelta(milliseconds=100),
        why="Seconds and fraction are one negative number; mysql-replication negates the seconds alone.",
        gives=_negative_time,
        family="time",
    ),
    Fault(
        what="YEAR 0 becomes 1900",
        type="YEAR",
        literal="0",
        peer_gives=1900,
        server_says=0,
        why="A byte of 0 is the year 0000; YEAR has no 1900, it begins with 1901.",
        gives=_year,
        family="year",
    ),
    Fault(
        what="SET without members becomes None ('empty set' in none_sources)",
        type="SET('a','b') CHARACTER SET utf8mb4",
        literal="''",
        peer_gives=None,
        server_says="",
        why="The empty set is a value of its own, also in a column that is NOT NULL.",
        gives=_empty_set,
        family="set",
    ),
    Fault(
        what="ENUM labels in latin1, gbk or utf16 become '' or other text",
        type="ENUM('größer','ÿ') CHARACTER SET latin1",
        literal="'größer'",
        peer_gives="",
        server_says="größer",
        why="Labels are in the column's charset, which the table map tells; mysql-replication takes them all for UTF-8.",
        gives=_enum_charset,
        family="enum",
        charset="latin1",
    ),
    Fault(
        what="SET labels in latin1, gbk or utf16 become '' or other text, and several of them one",
        type="SET('größer','ÿ') CHARACTER SET latin1",
        literal="'größer,ÿ'",
        peer_gives={""},
        server_says="größer,ÿ",
        why="As for ENUM.",
        gives=_set_charset,
        family="set",
        charset="latin1",
    ),
    Fault(
        what="text in latin1 with a byte 81, 8D, 8F, 90 or 9D: raises, the whole event is lost",
        type="VARCHAR(9) CHARACTER SET latin1",
        literal="_latin1 0x6181",
        peer_gives=Raised("UnicodeDecodeError"),
        server_says="a\x81",
        why="The server's latin1 is cp1252 with these five as the control characters of the same number.",
        gives=_latin1,
        family="text",
        charset="latin1",
    ),
    Fault(
        what="text in utf16 has its bytes swapped; where that is no text: raises, the whole event is lost",
        type="VARCHAR(9) CHARACTER SET utf16",
        literal="'a'",
        peer_gives="\u6100",
        server_says="a",
        why="utf16 is big-endian; Python's 'utf16' without a byte order mark has the order of the reader's machine.",
        gives=_utf16,
        family="text",
        charset="utf16",
    ),
    Fault(
        what="the JSON document null becomes None, as NULL does ('null' in none_sources)",
        type="JSON",
        literal="'null'",
        peer_gives=None,
        server_says="null",
        why="IS NULL is false for it, and JSON_TYPE is 'NULL'.",
        gives=_json_null,
        family="json null",
        servers=("mysql",),
    ),
    Fault(
        what="the JSON document null in the after image of an UPDATE looks absent ('cols bitmap' in none_sources)",
        type="JSON",
        literal="'null'",
        peer_gives=ABSENT,
        server_says="null",
        why="The column is in the after image; the reason is left over from the before image, which lacks it.",
        gives=_json_null_absent,
        family="json null",
        servers=("mysql",),
        images=("MINIMAL",),
    ),
    Fault(
        what="a DATE in JSON becomes a datetime",
        type="JSON",
        literal="JSON_OBJECT('k', DATE'2026-07-15')",
        peer_gives={b"k": datetime(2026, 7, 15)},
        server_says='{"k": "2026-07-15"}',
        why="The document keeps its type, which is not DATETIME.",
        gives=_json_date,
        family="json date",
        servers=("mysql",),
    ),
    Fault(
        what="a DATETIME with a month or day 0 in JSON: raises, the whole event is lost",
        type="JSON",
        literal="JSON_OBJECT('k', CAST('2026-00-15' AS DATETIME))",
        peer_gives=Raised("ValueError"),
        server_says='{"k": "2026-00-15 00:00:00.000000"}',
        why="The server took it and its replicas take it. A reader that raises never gets past it.",
        gives=_json_partial_datetime,
        family="json datetime",
        servers=("mysql",),
    ),
    Fault(
        what="a negative TIME in JSON loses its sign",
        type="JSON",
        literal="JSON_OBJECT('k', TIME'-01:02:03')",
        peer_gives={b"k": time(1, 2, 3)},
        server_says='{"k": "-01:02:03.000000"}',
        why="A TIME is a span, not a time of day.",
        gives=_json_negative_time,
        family="json time",
        servers=("mysql",),
    ),
    Fault(
        what="a TIME of 24 hours or more in JSON: raises, the whole event is lost",
        type="JSON",
        literal="JSON_OBJECT('k', TIME'838:59:59')",
        peer_gives=Raised("ValueError"),
        server_says='{"k": "838:59:59.000000"}',
        why="A TIME is a span of up to 838 hours, not a time of day.",
        gives=_json_long_time,
        family="json time",
        servers=("mysql",),
    ),
    Fault(
        what="bytes in JSON become a str that lacks what is not UTF-8",
        type="JSON",
        literal="JSON_OBJECT('k', _binary 0xff41)",
        peer_gives={b"k": "A"},
        server_says='{"k": "base64:type15:/0E="}',
        why="They are bytes, and no text.",
        gives=_json_bytes,
        family="json bytes",
        servers=("mysql",),
    ),
)
