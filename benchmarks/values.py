"""Columns of the loads, their values by row number, and the checksum that every contestant must come to.

The checksum of a row is the sum over its columns of (column number from 1) * CRC-32 of the value's text; that of a run is the
sum over its rows, with the columns of images before an update numbered behind those after it. NULL counts 0. The text of a
value is the same in every language:

    int       digits                      json      the document without spaces
    decimal   digits with the column's scale    enum      number of the label, from 1
    double    eight times the value, digits     datetime, timestamp   microseconds since 1970 (UTC)
    text, bytes   the bytes (UTF-8)             date      days since 1970
"""

from __future__ import annotations

import datetime
import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_EPOCH = datetime.datetime(1970, 1, 1)
LABELS = ("new", "paid", "sent")


class Column(NamedTuple):
    """A column: its SQL type, the kind of its text, and the value of row ``n``."""

    name: str
    sql: str
    kind: str
    value: Callable[[int], Any]


def moment(n: int, micros: int = 0) -> datetime.datetime:
    return datetime.datetime(2026, 11, 21, 10) + datetime.timedelta(seconds=n % 86_400, microseconds=micros)


def cents(n: int) -> str:
    return f"{n % 1_000_000}.{n % 100:02d}"


def document(n: int) -> str:
    """Keys in an order that is that of their lengths, as MySQL keeps them, and that of the alphabet; no spaces in values."""
    made = {"a": n, "bb": f"customer-{n}", "more": {"x": n % 1000, "yy": "z" * 80}, "tags": ["a", "b", n % 7]}
    return json.dumps(made, separators=(",", ":"))


#: The eleven of load A.
MIXED = (
    Column("id", "BIGINT PRIMARY KEY", "int", lambda n: n),
    Column("customer", "INT NOT NULL", "int", lambda n: n % 9973 - 5000),
    Column("quantity", "SMALLINT NOT NULL", "int", lambda n: n % 30_000),
    Column("paid", "TINYINT NOT NULL", "int", lambda n: n % 2),
    Column("ratio", "DOUBLE", "double", lambda n: n / 8),
    Column("price", "DECIMAL(12,2)", "decimal", cents),
    Column("created", "DATETIME(3)", "datetime", lambda n: moment(n, n % 1000 * 1000)),
    Column("seen", "TIMESTAMP NULL", "timestamp", lambda n: moment(n) if n % 10 else None),
    Column("name", "VARCHAR(40)", "text", lambda n: f"customer {n}"),
    Column("city", "VARCHAR(40)", "text", lambda n: ("Zürich", "Oslo", "東京")[n % 3]),
    Column("note", "VARCHAR(200)", "text", lambda n: f"a note on the order {n} " + "x" * (n % 40)),
)
#: What load D has ten times.
_TEN = (
    Column("i", "INT", "int", lambda n: n % 100_000),
    Column("b", "BIGINT", "int", lambda n: n * 1_000_003),
    Column("d", "DECIMAL(12,2)", "decimal", cents),
    Column("f", "DOUBLE", "double", lambda n: n / 8),
    Column("t", "VARCHAR(60)", "text", lambda n: f"text of row {n}"),
    Column("m", "DATETIME(3)", "datetime", lambda n: moment(n, n % 1000 * 1000)),
    Column("y", "DATE", "date", lambda n: datetime.date(2020, 1, 1) + datetime.timedelta(days=n % 2000)),
    Column("e", "ENUM('new','paid','sent')", "enum", lambda n: LABELS[n % 3]),
    Column("x", "VARBINARY(16)", "bytes", lambda n: b"%016d" % n if n % 10 else None),
    Column("s", "TINYINT", "int", lambda n: n % 100),
)
WIDE = (MIXED[0], *(column._replace(name=f"{column.name}{k}") for k in range(10) for column in _TEN))[:100]
LARGE = (
    MIXED[0],
    Column("document", "JSON", "json", document),
    Column("payload", "MEDIUMBLOB", "bytes", lambda n: n.to_bytes(8, "big") * 256),
    Column("story", "MEDIUMTEXT", "text", lambda n: f"story {n} " * 20),
)


def literal(value: Any) -> str:
    """A value in SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return repr(value) if isinstance(value, int | float) else f"'{value}'"


def text(kind: str, value: Any) -> bytes:
    """A value's text; takes what Python readers give: objects, or text of them."""
    if kind == "json":
        value = value if isinstance(value, str) else json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)
        return value.replace(" ", "").encode()
    if kind == "enum":
        return str(value if isinstance(value, int) else LABELS.index(value) + 1).encode()
    if kind == "double":
        return str(int(float(value) * 8)).encode()
    if kind in ("datetime", "timestamp"):
        if isinstance(value, str) and value.isdigit():
            return f"{value}000000".encode()
        found = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
        return str((found.replace(tzinfo=None) - _EPOCH) // datetime.timedelta(microseconds=1)).encode()
    if kind == "date":
        found = datetime.date.fromisoformat(value) if isinstance(value, str) else value
        return str((found - _EPOCH.date()).days).encode()
    return value if isinstance(value, bytes) else str(value).encode()


def _plain(value: Any) -> Any:
    """JSON whose keys and texts may have come as bytes."""
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value


def checksum(kinds: Sequence[str], values: Sequence[Any], first: int = 1) -> int:
    """Of one image of a row; ``first`` is the number of its first column."""
    numbered = enumerate(zip(kinds, values), first)
    return sum(number * zlib.crc32(text(kind, value)) for number, (kind, value) in numbered if value is not None)
