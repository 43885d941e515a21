"""A mutation fuzzer: damaged events and streams must end in values or in a typed error, the same in both builds.

Never needs a server: its seeds are FakeBinlog's events, and those of binlog files where a directory is given.

    python -m tests.programs.fuzz --seed 1 --events 1000000            the build that this process would use
    python -m tests.programs.fuzz --seed 1 --events 200000 --compare   both builds, outcome by outcome
    python -m tests.programs.fuzz --seed 1 --only 4711                 one case again, with its outcome

Each case is a function of seed and index alone. Workers are processes of their own: a crash or a hang is a finding with
the index that caused it, and the run goes on behind it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import datetime
import hashlib
import json
import logging
import mmap
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs

import canal
from canal.binlog.server_facts import Release
from canal.errors import CanalError, ConfigError, CursorError, DecodeError, SourceError, TruncatedError
from canal.filter import FieldFilter, TableFilter
from canal.formats.columnar import ChangeColumns
from canal.gtid import MariadbGtidSet, MysqlGtidSet, parse_gtid_set
from canal.model import Entry, EntryType, EventType, TableMap, Transaction
from canal.parse.log.continuity import Continuity
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.log.events import ddl_context, parse_format, query_context
from canal.parse.log.framing import FileFramer, PacketFramer, parse_error_packet
from canal.parse.schema.catalog import Catalog
from canal.parse.schema.classify import classify
from canal.parse.schema.misfit import misfit
from canal.parse.schema.raw_map import RawTableMap
from canal.parse.schema.scanner import ANSI_QUOTES, NO_BACKSLASH_ESCAPES
from canal.parse.schema.table_map import TableResolver
from canal.parse.schema_search import logged_statement
from canal.position import Position, PreparedXa
from canal.rows.decoder import RowDecoder, _decimal_groups, _width
from canal.rows.json import apply_diffs, decode_diffs, decode_json, decode_objects
from canal.rows.values import ABSENT
from canal.schema import ColumnSchema, TableSchema
from canal.statement import Statement
from canal.testing import _encode
from canal.testing._columns import parse_columns
from canal.testing._log import FakeLog
from canal.testing.fake import FakeBinlog

#: Seconds of the processor: a case that takes longer is a finding, a worker that takes so many times that for one is killed.
SLOW = 2.0
HANGS = 10
#: Seconds without a step after which a worker that uses no processor is taken to wait for ever.
IDLE = 600.0
#: Address space of a worker: a damaged length must not be believed.
MEMORY = 3 << 30
#: What a worker's memory may grow by in the second half of its cases.
GROWTH_KIB = 16 << 10

ROOT = Path(__file__).resolve().parents[2]
RELEASES = (
    Release("mysql", (9, 7, 0)),
    Release("mysql", (8, 0, 15)),
    Release("mysql", (8, 0, 22)),
    Release("mariadb", (10, 2, 11)),
    Release("mariadb", (11, 8, 2)),
)
UUID = "12345678-9abc-def0-1234-56789abcdef0"

# -- seeds -------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Log:
    """A short log: events without checksums, the FORMAT_DESCRIPTION first."""

    flavor: str
    events: tuple[bytes, ...]
    tables: dict[tuple[str, str], TableSchema]
    checksum: bool


COLUMNS = {
    "integers": "a TINYINT, au TINYINT UNSIGNED, b SMALLINT, bu SMALLINT UNSIGNED, c MEDIUMINT, cu MEDIUMINT UNSIGNED,"
    " d INT, du INT UNSIGNED, e BIGINT, eu BIGINT UNSIGNED, id INT PRIMARY KEY",
    "numbers": "id INT PRIMARY KEY, f FLOAT, g DOUBLE, y YEAR, b1 BIT(1), b9 BIT(9), b64 BIT(64), d1 DECIMAL(1,0),"
    " d2 DECIMAL(10,2), d3 DECIMAL(65,30), d4 DECIMAL(9,9)",
    "times": "id INT PRIMARY KEY, d DATE, t TIME, t3 TIME(3), t6 TIME(6), dt DATETIME, dt1 DATETIME(1), dt6 DATETIME(6),"
    " s TIMESTAMP NULL, s2 TIMESTAMP(2) NULL, s6 TIMESTAMP(6) NULL",
    "texts": "id INT PRIMARY KEY, c CHAR(10), c2 CHAR(255) CHARACTER SET utf8mb4, v VARCHAR(20) CHARACTER SET latin1,"
    " v2 VARCHAR(300) CHARACTER SET gbk, b BINARY(5), vb VARBINARY(300), t TEXT CHARACTER SET utf16, tt TINYTEXT"
    " CHARACTER SET sjis, mb MEDIUMBLOB, lb LONGTEXT CHARACTER SET eucjpms, u VARCHAR(9) CHARACTER SET ucs2",
    "labels": "id INT PRIMARY KEY, e ENUM('a','é','') CHARACTER SET latin1, s SET('x','y','z'), j JSON, v VARCHAR(3)",
    "wide": ", ".join(f"c{n} {'TINYINT' if n % 2 else 'VARCHAR(5)'}" for n in range(260)),
}
SHAPES = struct.pack("<IBIdd", 4326, 1, 1, 1.5, -2.5), struct.pack("<3f", 1, -2, 0.5)


def _rows(rng: random.Random, name: str, flavor: str) -> list[dict[str, Any]]:
    """A few rows of one of COLUMNS: limits, NULLs and what lies between."""
    columns = parse_columns(COLUMNS[name])
    return [
        {
            column.name: number if column.name == "id" else None if rng.random() < 0.2 else _value(rng, column, flavor)
            for column in columns
        }
        for number in range(3)
    ]


def _value(rng: random.Random, column: Any, flavor: str) -> Any:
    kind, args = column.type, column.args
    bits = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}.get(kind, 0)
    digits = args[0] if args else 0
    if bits:
        low, high = (0, (1 << bits) - 1) if column.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
        return rng.choice([low, 0, high, rng.randint(low, high)])
    if kind == "decimal":
        size = 10 ** args[0]
        with_context = f"{rng.choice([0, size - 1, 1 - size, rng.randrange(size)])}e-{args[1]}"
        return Decimal(with_context)
    if kind == "bit":
        return rng.getrandbits(digits)
    if kind in ("float", "double"):
        return rng.choice([0.0, -0.1, 1e30, rng.random() * 1e6])
    if kind == "year":
        return rng.choice([0, 1901, 2155, 2026])
    if kind == "date":
        return rng.choice(["0000-00-00", "9999-12-31", "2024-02-29", "2024-00-31"])
    fraction = "." + "123456"[:digits] if digits else ""
    if kind == "time":
        return rng.choice(["838:59:59", "-838:59:59", f"-00:00:01{fraction}", f"12:34:56{fraction}", "00:00:00"])
    if kind in ("datetime", "timestamp"):
        return rng.choice(["0000-00-00 00:00:00", f"2024-02-29 12:34:56{fraction}", f"2038-01-19 03:14:07{fraction}"])
    if kind == "json":
        return rng.choice([DOCUMENTS[0], DOCUMENTS[1], DOCUMENTS[4]]) if flavor == "mysql" else json.dumps({"a": [1, None, "é"]})
    if kind == "geometry":
        return SHAPES[0]
    if kind == "vector":
        return SHAPES[1]
    if column.is_labelled:
        return rng.choice(column.labels)
    size = min(rng.choice([0, 1, 4, 40]), digits or 40)
    if column.is_binary:
        return rng.randbytes(size)
    return "".join(rng.choice("aZ" if column.charset in ("latin1", "sjis", "eucjpms") else "aZ中") for _ in range(size))


DOCUMENTS: list[Any] = [
    {"a": 1, "bb": [1.5, True, None, -70000, 1 << 40, 'é\n"x'], "c": {"d": {}, "e": []}},
    [
        Decimal("1.50"),
        Decimal("-0.25"),
        datetime.date(2024, 1, 2),
        datetime.datetime(2024, 1, 2, 3, 4, 5, 678901),
        -datetime.timedelta(hours=1, milliseconds=500),
        b"\1\2\xff" * 30,
    ],
    "x" * 200,
    18446744073709551615,
    {f"k{n}": "y" * 300 for n in range(3)},
    {f"k{n}": ["y" * 300, n] for n in range(250)},  # the large format
]

STATEMENTS = [
    "ALTER TABLE `shop`.`orders` ADD COLUMN x INT NOT NULL DEFAULT 'a' AFTER y, RENAME TO `b`.`c``d`",
    "RENAME TABLE a TO b, c.d TO `e`.f",
    "CREATE TABLE IF NOT EXISTS t (id INT /*!40101 PRIMARY KEY */, v VARCHAR(3) DEFAULT ')') -- end",
    "/* c */ CREATE /*M! OR REPLACE */ TABLE x LIKE y",
    "DROP TEMPORARY TABLE IF EXISTS `a`, b /* generated by server */",
    "CREATE TABLE z START TRANSACTION AS SELECT * FROM y",
    "INSERT INTO t SELECT 'it''s', \"q\\\"\", 0x41 FROM u",
    "UPDATE a, b.c SET a.x = b.y",
    "DELETE FROM a USING a JOIN b",
    "TRUNCATE orders",
    "CREATE DATABASE x",
    "XA START 'a','b',7",
    "ROLLBACK TO `s`",
    "SAVEPOINT `s`",
    "BEGIN",
    "COMMIT",
    "CREATE INDEX i ON a.b (c)",
    "REPLACE DELAYED t VALUES (1)",
    "CALL p()",
    "FLUSH TABLES",
    "GRANT ALL ON *.* TO u",
]


#: The statements that the catalog is tested with against the servers; ``{a}`` and ``{b}`` are databases.
SCHEMA_CHANGES = [
    line.replace("\\n ", "\n ").replace("{a}", "shop").replace("{b}", "other")
    for line in (ROOT / "tests/live/ddl.sql").read_text().splitlines()
    if line
]


def fake_logs() -> list[Log]:
    """Logs of every kind of event and column type that FakeBinlog makes, and of those that can be made of them."""
    logs = [*_xa_logs(), _savepoints(), _two_phase_alter(), _load_data(), *_partial_updates(), *_compressed_columns()]
    for number, (flavor, metadata, image, version, checksum) in enumerate(
        (
            ("mysql", "FULL", "FULL", 2, True),
            ("mysql", "MINIMAL", "MINIMAL", 2, True),
            ("mysql", "FULL", "NOBLOB", 1, False),
            ("mariadb", "FULL", "FULL", 1, True),
            ("mariadb", "NO_LOG", "MINIMAL", 1, False),
            ("mariadb", "MINIMAL", "FULL", 2, True),
        )
    ):
        for name in COLUMNS:
            if name == "wide" and number % 3:  # they take their time
                continue
            logs.append(
                _fake_log(name, number, flavor, metadata=metadata, row_image=image, row_version=version, checksum=checksum)
            )
    return logs


def _fake_log(name: str, number: int, flavor: Any, **options: Any) -> Log:
    rng = random.Random(f"{name} {number}")
    fake = _fake(flavor, **options)
    table = fake.table("shop", "t", COLUMNS[name])
    shapes = "id INT, g GEOMETRY, t TEXT CHARACTER SET latin1" + (", v VECTOR(3)" if flavor == "mysql" else "")
    other = fake.table("shop", "shapes", shapes)
    rows = _rows(rng, name, flavor)
    with fake.transaction() as transaction:
        table.insert(*rows, sql="insert into t …")
        table.update(rows[0], rows[1])
        table.delete(rows[2])
        if name == "labels":
            transaction.query("SAVEPOINT `s`")
            transaction.query("UPDATE t SET e = 'x'", "shop")
            other.insert({"id": 1, "g": SHAPES[0], "t": "é"} | ({"v": SHAPES[1]} if flavor == "mysql" else {}))
    if name == "integers":
        for sql in STATEMENTS[:5]:
            fake.ddl(sql, "shop")
        fake.rotate()
        other.insert({"id": 2})
    tables = {("shop", "t"): fake.table_columns("shop", "t"), ("shop", "shapes"): fake.table_columns("shop", "shapes")}
    return Log(flavor, _bare(fake), {k: v for k, v in tables.items() if v}, fake.checksum)


def _fake(flavor: Any, **options: Any) -> FakeBinlog:
    return FakeBinlog(flavor, clock=lambda: 1_700_000_000.25, uuid=UUID, **options)


def _bare(fake: FakeBinlog) -> tuple[bytes, ...]:
    return tuple(data[:-4] if fake.checksum or data[4] == 15 else data for data in fake.events())


def _with(event: bytes, kind: int, body: bytes) -> bytes:
    """The event with another type and body."""
    return event[:4] + bytes((kind,)) + event[5:9] + struct.pack("<I", 19 + len(body)) + event[13:19] + body


def _made(flavor: str, events: Sequence[bytes], checksum: bool = True) -> Log:
    """A log of events that were changed: each gets the end that it has now."""
    end, numbered = 4, []
    for event in events:
        end += len(event) + 4 * (checksum or event[4] == 15)
        numbered.append(event[:13] + struct.pack("<I", end) + event[17:])
    return Log(flavor, tuple(numbered), {}, checksum)


def _xa_logs() -> Iterator[Log]:
    """XA transactions that wait for others, with tagged GTIDs where there are such."""
    for flavor, tag in (("mysql", ""), ("mysql", "tag_1"), ("mariadb", "")):
        fake = _fake(flavor)
        table = fake.table("shop", "t", "id INT PRIMARY KEY, v VARCHAR(9)")
        numbers = iter(range(7, 99))

        def gtid(fake: FakeBinlog = fake, tag: str = tag, numbers: Iterator[int] = numbers) -> str | None:
            return f"{fake.uuid}:{tag}:{next(numbers)}" if tag else None

        for name in ("one", "two", "é'3"):
            with fake.transaction(end="PREPARE", xa=name, gtid=gtid()):
                table.insert(*({"id": number, "v": name} for number in range(3)))
                table.update({"id": 1, "v": "a"}, {"id": 1, "v": name})
        fake.xa_commit("one", gtid=gtid())
        with fake.transaction(gtid=gtid()):
            table.delete({"id": 1, "v": "x"})
        fake.xa_rollback("two", gtid=gtid())
        if flavor == "mysql":
            with fake.transaction(end="ONE PHASE", xa="four", gtid=gtid()):
                table.insert({"id": 4, "v": "y"})
        fake.xa_commit("é'3", gtid=gtid())
        yield Log(flavor, _bare(fake), {}, True)


def _savepoints() -> Log:
    fake = _fake("mariadb")
    table = fake.table("shop", "t", "id INT PRIMARY KEY")
    with fake.transaction() as transaction:
        for sql in ("SAVEPOINT s", "SAVEPOINT `odd ``name`", "ROLLBACK TO `odd ``name`", "RELEASE SAVEPOINT s", "ROLLBACK TO S"):
            table.insert({"id": 1}, {"id": 2})
            transaction.query(sql, "shop")
    with fake.transaction(end="ROLLBACK") as transaction:
        table.insert({"id": 3})
        transaction.query("INSERT INTO log VALUES (1)", "shop")
    return Log("mariadb", _bare(fake), {}, True)


def _two_phase_alter() -> Log:
    """Each ALTER is announced, then said to be done or to have failed, with the number of the announcement."""
    fake = _fake("mariadb")
    for _ in range(2):
        fake.ddl("ALTER TABLE t ADD x INT, DROP COLUMN y", "shop")
    first, *rest = _bare(fake)
    events = [first]
    for event in rest:
        if event[4] != 162:
            events.append(event)
            continue
        for flag, number in ((2, b""), (4 if len(events) < 5 else 8, struct.pack("<Q", 1))):
            events.append(_with(event, 162, event[19:32] + bytes((flag,)) + (number or bytes(5))))
            if flag == 2:
                events.append(rest[rest.index(event) + 1])
    return _made("mariadb", events)


def _load_data() -> Log:
    """A LOAD DATA in statement format: its file in blocks, then the statement."""
    fake = _fake("mysql")
    with fake.transaction() as transaction:
        transaction.query("LOAD DATA INFILE 'x' INTO TABLE t (a, b)", "shop")
    events: list[bytes] = []
    for event in _bare(fake):
        if event[4] == 2 and b"LOAD" in event:
            events += [_with(event, kind, struct.pack("<I", 1) + b"1,2\n3,4\n") for kind in (17, 9, 9)]
            events.append(_with(event, 18, event[19:32] + struct.pack("<IIIB", 1, 9, 37, 1) + event[32:]))
            events.append(_with(event, 11, struct.pack("<I", 1)))
        else:
            events.append(event)
    return _made("mysql", events)


def _partial_updates() -> Iterator[Log]:
    """Updates that hold only what was changed in JSON columns, with and without the document before."""
    for image in (b"\xff", b"\xf5"):
        fake = _fake("mysql", checksum=False)
        table = fake.table("shop", "t", "id INT PRIMARY KEY, j JSON, v VARCHAR(9), k JSON")
        row = {"id": 1, "j": {"a": [1, {"b": None}], "c": "x"}, "v": "é", "k": [1, 2]}
        table.update(row, row)
        events = []
        for event in _bare(fake):
            if event[4] == 31:  # version 2: 10 bytes, one for the number of columns, two bitmaps
                half = event[32 : 32 + (len(event) - 32) // 2]
                before = half if image == b"\xff" else b"\xf0" + half[1:5] + b"\2\xc3\xa9"
                after = b"\1\3\xf0" + half[1:5] + _counted(*DIFFS[:3]) + b"\2\xc3\xa9" + _counted(DIFFS[3])
                event = _with(event, 39, event[19:30] + image + b"\xff" + (before + after) * 2)
            events.append(event)
        yield _made("mysql", events, checksum=False)


def _counted(*parts: bytes) -> bytes:
    data = b"".join(parts)
    return struct.pack("<I", len(data)) + data


def _diff(operation: int, path: str, *value: Any) -> bytes:
    return bytes((operation,)) + b"".join(_encode.packed_text(part) for part in (path.encode(), *map(_encode.encode_json, value)))


DIFFS = [
    _diff(0, "$.c", {"d": 1.5}),
    _diff(1, '$.a[1]."é b"', "x" * 300),
    _diff(2, "$.a[0]"),
    _diff(1, "$[last]", None),
    _diff(0, "$[1]", [True, -1]),
    _diff(1, "$.zz", "z"),
    _diff(2, '$."bb"[last-2]'),
]


def _compressed_columns() -> Iterator[Log]:
    """MariaDB's COMPRESSED columns: those of two types, renamed in the table map."""
    texts = [b"", b"\0plain", b"\x82" + struct.pack(">H", 300) + zlib.compress(b"abc" * 100)]
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    texts.append(b"\x89\xff" + raw.compress(bytes(255)) + raw.flush())
    for metadata in ("FULL", "NO_LOG"):
        fake = _fake("mariadb", metadata=metadata)
        table = fake.table("shop", "t", "id INT PRIMARY KEY, v VARBINARY(301), b BLOB")
        table.insert(*({"id": n, "v": text, "b": text} for n, text in enumerate(texts)))
        table.update({"id": 1, "v": texts[1], "b": None}, {"id": 1, "v": None, "b": texts[2]})
        events = (
            event.replace(b"\x03\x03\x0f\xfc", b"\x03\x03\x8d\x8c", 1) if event[4] == 19 else event for event in _bare(fake)
        )
        yield _made("mariadb", list(events))


def corpus_logs(directory: Path) -> list[Log]:
    """The transactions of binlog files, each behind the FORMAT_DESCRIPTION of its file."""
    logs = []
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.stat().st_size < 1 << 22:
            with path.open("rb") as file:
                data = file.read()
            if data[:4] == b"\xfebin":
                logs += _file_logs(data)
    return logs


def _file_logs(data: bytes) -> Iterator[Log]:
    events = FileFramer().feed(data[4:])
    try:
        form = parse_format(events[0]) if events and events[0][4] == 15 else None
    except SourceError:
        form = None
    if form is None:  # encrypted, or of another format
        return
    bare = [event[:-4] if form.checksum else event for event in events]
    first, flavor = events[0][:-4], "mariadb" if form.is_mariadb else "mysql"  # sealed again, which old ones are not
    group: list[bytes] = []
    for event in bare[1:]:
        group.append(event)
        if event[4] in (16, 4, 3, 38) or len(group) == 40 or sum(map(len, group)) > 1 << 15:
            if sum(map(len, group)) < 1 << 17:
                yield Log(flavor, (first, *group), {}, form.checksum)
            group = []
    if group and sum(map(len, group)) < 1 << 17:
        yield Log(flavor, (first, *group), {}, form.checksum)


# -- mutations ---------------------------------------------------------------------------------------------------------

_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF)
_NUMBERS = (
    0,
    1,
    2,
    18,
    19,
    0x7F,
    0x80,
    0xFA,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0xFFFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)


def damage(rng: random.Random, data: bytes, donor: bytes, low: int = 0) -> bytes:
    """One mutation of the bytes from ``low`` on."""
    body = bytearray(data)
    size = len(body)
    if size <= low:
        return data + rng.randbytes(rng.randint(1, 8))
    at = rng.randrange(low, size)
    kind = rng.randrange(12)
    if kind <= 1:
        body[at] ^= 1 << rng.randrange(8)
    elif kind <= 3:
        body[at] = rng.choice(_BYTES)
    elif kind == 4:
        body[at] = rng.randrange(256)
    elif kind == 5:  # a length field
        width = rng.choice((1, 2, 2, 3, 4, 4, 8))
        number = rng.choice((rng.choice(_NUMBERS), size, size - at, size - at - width, size + 1, rng.getrandbits(16)))
        body[at : at + width] = (number & ((1 << 8 * width) - 1)).to_bytes(width, rng.choice(("little", "big")))
    elif kind == 6:
        number = int.from_bytes(body[at : at + 2], "little") + rng.choice((-1, 1, 2, -2, 8))
        body[at : at + 2] = (number & 0xFFFF).to_bytes(2, "little")
    elif kind == 7:
        del body[at:]
    elif kind == 8:
        body[at:at] = rng.choice((rng.randbytes(rng.randint(1, 9)), bytes(rng.randint(1, 300)), body[at : at + 20]))
    elif kind == 9:
        del body[at : at + rng.randint(1, 12)]
    elif kind == 10:  # a piece of another event
        start = rng.randrange(len(donor)) if donor else 0
        piece = donor[start : start + rng.randint(1, 40)]
        body[at : at + (len(piece) if rng.random() < 0.7 else 0)] = piece
    else:
        stop = rng.randrange(size)
        body = body[:at] + body[min(at, stop) : max(at, stop)] + body[at:]
    return bytes(body)


def damage_events(rng: random.Random, events: list[bytes], donors: Sequence[Log]) -> list[bytes]:
    """One mutation of the events: of the bytes of one, or of their order."""
    at = rng.randrange(len(events))
    kind = rng.random()
    if kind < 0.85:
        low = 19 if rng.random() < 0.93 else 0
        donor = rng.choice(rng.choice(donors).events)
        events[at] = damage(rng, events[at], donor, low)
    elif kind < 0.88:
        del events[at]
    elif kind < 0.91:
        events.insert(at, events[rng.randrange(len(events))] if rng.random() < 0.5 else rng.choice(rng.choice(donors).events))
    elif kind < 0.94:
        other = rng.randrange(len(events))
        events[at], events[other] = events[other], events[at]
    elif kind < 0.97 and len(events[at]) > 4:  # another type
        known = rng.choice((*range(1, 43), *range(160, 172), rng.randrange(256)))
        events[at] = events[at][:4] + bytes((known,)) + events[at][5:]
    else:  # head of one, tail of another
        other = events[rng.randrange(len(events))]
        cut, start = rng.randrange(len(events[at]) + 1), rng.randrange(len(other) + 1)
        events[at] = events[at][:cut] + other[start:]
    return events


def seal(rng: random.Random, event: bytes, checksum: bool) -> bytes:
    """The event with the length and the checksum that its bytes should have."""
    checksum = checksum or event[4:5] == b"\x0f"
    if len(event) >= 13 and rng.random() < 0.97:
        event = event[:9] + struct.pack("<I", len(event) + 4 * checksum) + event[13:]
    return event + struct.pack("<I", zlib.crc32(event)) if checksum else event


_GTIDS = (b"\x21", b"\x22", b"\x2a")


def wrap(rng: random.Random, log: Log, events: list[bytes]) -> list[bytes]:
    """Some of the events in the compressed form of their server."""
    if log.flavor == "mysql":
        heads = [at for at, event in enumerate(events) if event[4:5] in _GTIDS]
        if not heads:
            return events
        head = rng.choice(heads)
        outside = (*_GTIDS, b"\x04", b"\x0f", b"\x23")
        stop = next((at for at in range(head + 1, len(events)) if events[at][4:5] in outside), len(events))
        inner = [
            event[:9] + struct.pack("<I", len(event)) + event[13:] if len(event) > 13 else event
            for event in events[head + 1 : stop]
        ]
        body = _encode.payload_body(b"".join(inner), rng.choice(("zstd", "none")))
        payload = _encode.HEADER.pack(1_700_000_000, 40, 1, 0, 0, 0) + body
        trailer = 4 * log.checksum
        moved = len(payload) + trailer - sum(len(event) + trailer for event in events[head + 1 : stop])
        rotates = [at for at, event in enumerate(events) if at >= stop and event[4:5] == b"\x04"]
        last = rotates[0] + 1 if rotates else len(events)  # the next log has offsets of its own
        return [*events[: head + 1], payload, *(_moved(event, moved) for event in events[stop:last]), *events[last:]]
    wrapped, moved = [], 0
    for event in events:
        made = _compressed(event) if rng.random() < 0.7 else event
        moved += len(made) - len(event)
        wrapped.append(_moved(made, moved))
        moved = 0 if made[4:5] == b"\x04" else moved
    return wrapped


def _moved(event: bytes, by: int) -> bytes:
    """An event that ends so many bytes further on, where it says where."""
    end = int.from_bytes(event[13:17], "little") + by
    if len(event) < 17 or end == by or not 0 < end < 1 << 32:
        return event
    return event[:13] + struct.pack("<I", end) + event[17:]


def _compressed(event: bytes) -> bytes:
    kind = event[4] if len(event) > 40 else 0
    if kind == 2:
        text = 32 + event[27] + int.from_bytes(event[30:32], "little") + 1
    elif 23 <= kind <= 25 or 30 <= kind <= 32:
        text = 27 + (2 if kind >= 30 else 0)
        size, count = (1, event[text]) if event[text] < 251 else (3, event[text + 1] | event[text + 2] << 8)
        text += size + (count + 7) // 8 * (2 if kind in (24, 31) else 1)
    else:
        return event
    packed = 165 if kind == 2 else kind + (143 if kind < 30 else 139)
    return event[:4] + bytes((packed,)) + event[5:text] + _encode.compressed(event[text:])


# -- cases -------------------------------------------------------------------------------------------------------------


class Finding(Exception):
    """What must not be."""


class Fuzzer:
    """Makes and runs cases: a function of seed and index."""

    def __init__(self, seed: str, logs: list[Log], layer: str = "") -> None:
        self.seed = seed
        self.layer = layer
        self.logs = logs
        self.documents = [_encode.encode_json(document) for document in DOCUMENTS]
        self.maps = [event[25:] for log in logs for event in log.events if event[4] == 19]
        #: What the cases so far gave the decoders: events, and values that were decoded or refused one by one.
        self.events = self.values = 0
        self.parts: list[Callable[[random.Random], Any]] = [
            self._json,
            self._diffs,
            self._row_images,
            self._row_images,
            self._gtids,
            self._texts,
            self._map,
            self._statement,
            self._context,
            self._error_packet,
            self._catalog,
            self._catalog,
            self._stored_catalog,
        ]

    def check_seeds(self) -> None:
        """Every seed of FakeBinlog decodes as it is, in each form: a fuzzer of seeds that fail at once would find nothing."""
        rng = random.Random(1)
        for log in self.logs:
            for wrapped in (False, True):
                events = wrap(rng, log, list(log.events)) if wrapped else list(log.events)
                whole = [sealed(event, log.checksum) for event in events]
                found = outcome(lambda: decoded(random.Random(1), log, [whole], 4096))  # noqa: B023
                if not found.startswith("value") or "Error: " in found:
                    end = found.partition("\n")[0]
                    raise AssertionError(f"a seed ({log.flavor}, {len(log.events)} events) gives {end}\n{found[-1500:]}")

    def run(self, index: int) -> str:
        """The outcome of a case as text."""
        rng = random.Random(f"{self.seed}/{index}")
        layer = self.layer or rng.choices(("events", "stream", "values", "parts"), (50, 10, 25, 15))[0]
        run = rng.choice(self.parts) if layer == "parts" else getattr(self, f"_{layer}")
        return outcome(lambda: run(rng))

    def _events(self, rng: random.Random) -> str:
        log = rng.choice(self.logs)
        events = list(log.events)
        wrapped = rng.random() < 0.3
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            events = damage_events(rng, events, self.logs) or [b""]
        if wrapped:
            events = wrap(rng, log, events)
            if rng.random() < 0.3:
                events = damage_events(rng, events, self.logs)
        self.events += len(events)
        return decoded(rng, log, [[seal(rng, event, log.checksum) for event in events]])

    def _stream(self, rng: random.Random) -> str:
        """Raw bytes through the framers, in random pieces."""
        log = rng.choice(self.logs)
        events = [sealed(event, log.checksum) for event in log.events]
        packets = rng.random() < 0.5
        data = b"".join(map(_packet, range(1, 1 << 20), events) if packets else events)
        donor = rng.choice(rng.choice(self.logs).events)
        for _ in range(rng.choice((1, 1, 2, 5))):
            data = damage(rng, data, donor)
        framer: Any = PacketFramer(256) if packets else FileFramer(4, 256, 1 << 20)
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 1, 3, 40))))
        batches = [framer.feed(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)])]
        self.events += sum(map(len, batches))
        tail = (framer.pending, repr(framer.error))
        return f"{decoded(rng, log, batches)}\n{tail}"

    def _json(self, rng: random.Random) -> str:
        data = rng.choice(self.documents)
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = damage(rng, data, rng.choice(self.documents))
        text = decode_json(b"?" + data + b"?", 1, 1 + len(data))
        json.loads(text)
        return f"{text} {decode_objects(b'?' + data + b'?', 1, 1 + len(data))!r}"

    def _diffs(self, rng: random.Random) -> str:
        """Partial updates of documents."""
        data = b"".join(rng.choices(DIFFS, k=rng.choice((1, 1, 2, 4))))
        for _ in range(rng.choice((0, 1, 1, 2))):
            data = damage(rng, data, rng.choice(DIFFS))
        as_text = rng.random() < 0.5
        decode = decode_json if as_text else decode_objects
        document = rng.choice(self.documents)
        before = decode(document, 0, len(document))
        diffs = decode_diffs(b"?" + data + b"?", 1, 1 + len(data), as_text)
        return f"{diffs!r} {apply_diffs(before, diffs, as_text)!r}"

    def _row_images(self, rng: random.Random) -> str:
        """Any column types, metadata and schema, and bytes that may be rows of them."""
        count = rng.choice((1, 1, 2, 5, 9, 251, 252))
        types, metas, columns = [], [], []
        for number in range(count):
            code, meta, column_type = _any_type(rng)
            types.append(code)
            metas.append(meta)
            columns.append(_any_schema(rng, number, code, meta, column_type))
        zone = rng.choice((None, datetime.timezone(datetime.timedelta(hours=-9, minutes=-30))))
        decoder = RowDecoder(bytes(types), tuple(metas), rng.choice((None, tuple(columns))), None, zone)
        kind = rng.choice((0, 0, 1, 1, 2, 2, 3))
        bitmap = rng.choice((b"\xff" * 40, rng.randbytes(40)))[: (count + 7) // 8] * (2 if kind & 1 else 1)
        head = _encode.packed(count) + bitmap
        nulls = bytes((count + 7) // 8) if rng.random() < 0.7 else rng.randbytes((count + 7) // 8)
        size = rng.choice((0, 4, 20, 100, 9 * count))
        row = nulls + rng.choice((rng.randbytes(size), bytes(size), bytes(rng.choice(_BYTES) for _ in range(size))))
        return walked(decoder, b"?" * 3 + head + row * rng.choice((1, 1, 2)), 3, kind)

    def _values(self, rng: random.Random) -> str:
        """Many rows of a few columns of any types, whose lengths are mostly right: each value meets its decoder."""
        columns = [_any_type(rng, odd=0.0) for _ in range(rng.choice((1, 2, 5, 8, 12)))]
        types, metas = bytes(column[0] for column in columns), tuple(column[1] for column in columns)
        zone = rng.choice((datetime.UTC, datetime.timezone(datetime.timedelta(hours=-9, minutes=-30))))
        decoder = RowDecoder(types, metas, tuple(_any_schema(rng, n, *column) for n, column in enumerate(columns)), None, zone)
        rows = _any_rows(rng, columns, rng.choice((32, 128, 512)))
        kind = rng.choice((0, 1, 2))
        head = _encode.packed(len(columns)) + b"\xff" * ((len(columns) + 7) // 8 * (2 if kind & 1 else 1))
        if rng.random() < 0.1:
            return walked(decoder, head + b"".join(rows[:20]), 0, kind)
        found = list(_decoded_rows(decoder, head, rows, kind))
        self.values += sum(count for _, count in found)
        return "\n".join(text for text, _ in found)

    def _gtids(self, rng: random.Random) -> str:
        tagged = MysqlGtidSet({UUID: [(1, 5), (9, 9)], f"{UUID}:tag_1": [(3, 1 << 40)]})
        plain = MysqlGtidSet({UUID: [(1, 5), (9, 9)]})
        listed = FakeLog.gtid_list([(0, 1, 5), (7, 2, 1 << 60)])
        sort, data = rng.choice(((MysqlGtidSet, tagged.encode()), (MysqlGtidSet, plain.encode()), (MariadbGtidSet, listed)))
        for _ in range(rng.choice((1, 1, 2))):
            data = damage(rng, data, data)
        found: Any = sort.decode(data)
        if sort is MysqlGtidSet and sort.decode(found.encode()) != found:
            raise Finding("a GTID set does not survive its own encoding")
        if parse_gtid_set(str(found), "mysql" if sort is MysqlGtidSet else "mariadb") != found:
            raise Finding("a GTID set does not survive its own text")
        return str(found)

    def _texts(self, rng: random.Random) -> str:
        """Stored positions and GTID sets as text."""
        position = Position("binlog.000007", 4711, f"{UUID}:1-5,{UUID}:tag:7", 3, 1_700_000_000_000, 1, UUID)
        if rng.random() < 0.5:
            prepared = PreparedXa("X'61',X'',1", "binlog.000006", 157), PreparedXa("X'',X'62',7", "", 0)
            position = attrs.evolve(position, xa=prepared)
        text = rng.choice((position.to_text(), position.gtid, "0-1-5,7-2-9", json.dumps(position.to_canal())))
        raw = damage(rng, text.encode(), b'{"v":1,"row":-1,"gtid":[1e999]}')
        damaged = raw.decode("utf-8", "replace")
        try:
            if text[0] != "{":
                return str(parse_gtid_set(damaged))
            if "postion" not in text:
                again = Position.from_text(damaged)
                if Position.from_text(again.to_text()) != again:
                    raise Finding("a position does not survive its own text")
                return repr(again)
            try:
                stored = json.loads(damaged)
            except ValueError:
                return "not JSON"
            return repr(Position.from_canal(stored)) if isinstance(stored, dict) else "no object"
        except (ConfigError, CursorError) as error:
            return f"{type(error).__name__}: {error}"

    def _map(self, rng: random.Random) -> str:
        body = rng.choice(self.maps)
        for _ in range(rng.choice((1, 1, 2, 3))):
            body = damage(rng, body, rng.choice(self.maps))
        resolver = TableResolver(lambda raw: None, TableFilter(""), FieldFilter(), datetime.UTC)
        table = resolver.resolve(body, rng.choice(RELEASES))
        return repr(table.schema)

    def _statement(self, rng: random.Random) -> str:
        text = rng.choice(STATEMENTS).encode()
        for _ in range(rng.choice((1, 1, 2, 4))):
            text = damage(rng, text, rng.choice(STATEMENTS).encode())
        sql = text.decode("utf-8", "surrogateescape")
        mode = rng.choice((0, ANSI_QUOTES, NO_BACKSLASH_ESCAPES))
        return repr(classify(sql, "shop", sql_mode=mode, flavor=rng.choice(("mysql", "mariadb"))))

    def _context(self, rng: random.Random) -> str:
        flavor: Any = rng.choice(("mysql", "mariadb"))
        status = _encode.query_status(flavor, "shop", ddl_xid=7, sql="create table x")
        status = damage(rng, status, status)
        return repr((query_context(status), ddl_context(status, mariadb=flavor == "mariadb")))

    def _catalog(self, rng: random.Random) -> str:
        """Any texts through the catalog, one after the other: what is not understood makes tables doubtful."""
        catalog = Catalog(lower_case_table_names=rng.choice((0, 0, 1, 2)), complete=rng.random() < 0.5)
        flavor: Any = rng.choice(("mysql", "mariadb"))
        catalog.apply("CREATE TABLE t (a INT PRIMARY KEY, b TEXT, c INT, KEY (c)) CHARSET utf8mb4", "shop", flavor=flavor)
        found = []
        for _ in range(rng.choice((1, 2, 4, 8))):
            text = rng.choice(SCHEMA_CHANGES).encode()
            for _ in range(rng.choice((0, 1, 1, 2, 4))):
                text = damage(rng, text, rng.choice(SCHEMA_CHANGES).encode())
            if rng.random() < 0.02:  # what takes more than linear time takes too long
                start = rng.randrange(len(text) + 1)
                piece = text[start : start + rng.choice((1, 2, 5, 20, 200))]
                text = text[:start] + piece * (40_000 // max(len(piece), 1)) + text[start:]
            applied = catalog.apply(
                text.decode("utf-8", "surrogateescape"),
                rng.choice(("shop", "shop", "", "other")),
                flavor=flavor,
                sql_mode=rng.choice((0, ANSI_QUOTES, NO_BACKSLASH_ESCAPES)),
                error=rng.random() < 0.05,
                version=rng.choice(((5, 5, 0), (5, 7, 9), (9, 0, 0), (10, 11, 0))),
                session=rng.choice((None, 1, 2)),
                explicit_defaults=rng.choice((None, True, False)),
                server_charset=rng.choice(("utf8mb4", "latin1", "")),
            )
            if any(catalog.get(*table) is not None for table in applied.doubtful):
                raise Finding("a doubtful table has columns")
            found.append(applied)
        document = json.dumps(catalog.to_document())
        if json.dumps(Catalog.from_document(json.loads(document)).to_document()) != document:
            raise Finding("a catalog does not survive its own document")
        return f"{found!r} {document}"

    def _stored_catalog(self, rng: random.Random) -> str:
        """A stored catalog that was damaged is refused, or is another catalog."""
        catalog = Catalog()
        for sql in rng.sample(SCHEMA_CHANGES, 8):
            catalog.apply(sql, "shop")
        text = json.dumps(catalog.to_document()).encode()
        for _ in range(rng.choice((1, 1, 2, 4))):
            text = damage(rng, text, b'{"keys":null,"columns":[["a","int",null,true,0,true,["b"]]],"format":1e999}')
        try:
            return json.dumps(Catalog.from_document(json.loads(text)).to_document())
        except ValueError as error:
            return f"ValueError: {error}"

    def _error_packet(self, rng: random.Random) -> str:
        return repr(parse_error_packet(b"\xff" + damage(rng, b"\xd4\x04#HY000Could not find first log file name", b"#")))


def sealed(event: bytes, checksum: bool) -> bytes:
    checksum = checksum or event[4] == 15
    event = event[:9] + struct.pack("<I", len(event) + 4 * checksum) + event[13:]
    return event + struct.pack("<I", zlib.crc32(event)) if checksum else event


def _packet(sequence: int, event: bytes) -> bytes:
    return (len(event) + 1).to_bytes(3, "little") + bytes((sequence & 0xFF, 0)) + event


_METAS: dict[int, tuple[int, ...]] = {
    4: (4,),
    5: (8,),
    15: (10, 300, 65535),
    16: (1, 0x0100, 0x0801, 0x0800, 0x0901),
    17: (0, 3, 6),
    18: (0, 3, 6),
    19: (0, 3, 6),
    140: (1, 2, 3, 4),
    141: (11, 301),
    242: (4,),
    245: (2, 4),
    246: (0x020A, 0x1E41, 0x0909, 0x0001),
    247: (0xF701, 0xF702),
    248: (0xF801, 0xF808, 0xF803),
    252: (1, 2, 3, 4),
    254: (0xFE0A, 0xEE2C, 0xF701, 0xF804, 0xF808, 0xFEFF),
    255: (4,),
}
_TYPES = (*range(1, 20), 140, 141, 242, 245, 246, 247, 248, 252, 253, 254, 255)


def _any_type(rng: random.Random, odd: float = 0.02) -> tuple[int, int, str]:
    code = rng.choice(_TYPES) if rng.random() >= odd else rng.randrange(256)
    meta = rng.choice(_METAS.get(code, (0,))) if rng.random() >= odd else rng.getrandbits(16)
    texts = {
        7: ("timestamp(3)", "timestamp"),
        11: ("time(6)", "time(1)", "time"),
        12: ("datetime(4)", "datetime(6)"),
        254: ("uuid", "inet6", "inet4", "binary(10)", ""),
    }
    return code, meta, rng.choice(texts.get(code, ("",)))


_CHARSETS = (None, "binary", "latin1", "utf8mb4", "sjis", "ucs2", "swe7", "utf32", "eucjpms", "big5")


def _any_schema(rng: random.Random, number: int, code: int, meta: int, column_type: str) -> ColumnSchema:
    return ColumnSchema(
        f"c{number}",
        code,
        meta,
        unsigned=rng.random() < 0.3,
        column_type=column_type,
        charset=rng.choice(_CHARSETS),
        labels=rng.choice((None, ("a", "b"), tuple(map(str, range(64))))),
    )


#: Random bytes to bytes of which every other one is a limit.
_LIMITS = bytes(byte if byte & 1 else _BYTES[byte // 2 % len(_BYTES)] for byte in range(256))
_TEXT = bytes(byte if byte < 128 else 0xC3 if byte < 140 else byte & 0x7F for byte in range(256))


def _any_rows(rng: random.Random, columns: Sequence[tuple[int, int, str]], count: int) -> list[bytes]:
    """Rows of the columns, a value of each that is mostly as long as it should be; some are NULL."""
    odd = rng.randrange(6 * len(columns))  # the values of one column in six rows of columns are any bytes
    values = [_any_values(rng, *column, count, number == odd) for number, column in enumerate(columns)]
    size = (len(columns) + 7) // 8
    if rng.random() < 0.7:
        return [bytes(size) + b"".join(row) for row in zip(*values)]
    rows = []
    for row in zip(*values):
        nulls = rng.getrandbits(len(columns)) & rng.getrandbits(len(columns))
        here = (value for number, value in enumerate(row) if not nulls >> number & 1)
        rows.append(nulls.to_bytes(size, "little") + b"".join(here))
    return rows


def _any_values(rng: random.Random, code: int, meta: int, column_type: str, count: int, odd: bool) -> list[bytes]:
    width = _width(code, meta, column_type)
    real = meta >> 8 if code == 254 else code
    if not odd and "(" in column_type and code in _HIRES_MOST:
        digits = int(column_type[-2])
        most = min(_HIRES_MOST[code] * 10**digits, 1 << 8 * width)
        return [rng.randrange(most).to_bytes(width, "big") for _ in range(count)]
    if not odd and code in (10, 11, 12, 14, 17, 18, 19, 246):
        numbers = struct.unpack(f"<{count}Q", rng.randbytes(8 * count))
        return list(_any_decimals(numbers, meta) if code == 246 else _any_moments(numbers, code, width))
    if not odd and real in (247, 248):  # of the two labels that there are at least
        return [bytes((byte & 1,)).ljust(width, b"\0") for byte in rng.randbytes(count)]
    table = rng.choice((None, _LIMITS, _TEXT))
    if width < 128:
        blob = rng.randbytes(width * count).translate(table)
        return [blob[at : at + width] for at in range(0, width * count, width)] if width else [b""] * count
    sizes = [size % 14 if size < 250 else size for size in rng.randbytes(count)]
    blob = rng.randbytes(sum(sizes)).translate(table)
    values, at = [], 0
    for size in sizes:
        values.append(blob[at : at + size])
        at += size
    if code in (140, 141) and not odd:
        values = [_COMPRESSED[size & 3] for size in sizes]
    if code == 245:
        documents = rng.choices(_SMALL_DOCUMENTS, k=count)
        values = [damage(rng, one, value) for one, value in zip(documents, values)] if odd else documents
    most = (1 << 8 * (width - 128)) - 1
    return [len(value[:most]).to_bytes(width - 128, "little") + value[:most] for value in values]


_INVERTED = bytes(byte ^ 0xFF for byte in range(256))
_COMPRESSED = (b"", b"\0plain", b"\x82" + struct.pack(">H", 60) + zlib.compress(b"abc" * 20), b"\x81\x03" + zlib.compress(b"abc"))
_SMALL_DOCUMENTS = [data for data in map(_encode.encode_json, (*DOCUMENTS, 1.5, -1, None, True, [], {})) if len(data) < 300]


def _any_decimals(numbers: Sequence[int], meta: int) -> Iterator[bytes]:
    """Digits as a DECIMAL has them, with the sign in the first bit."""
    groups = _decimal_groups(meta)
    parts = [(size, 10**digits) for size, digits in zip(groups[::2], groups[1::2])]
    for number in numbers:
        data = b"".join([(number % limit).to_bytes(size, "big") for size, limit in parts])
        data = data if number & 1 << 63 else data.translate(_INVERTED)
        yield bytes((data[0] ^ 0x80,)) + data[1:]


def _any_moments(numbers: Sequence[int], code: int, width: int) -> Iterator[bytes]:
    """Dates and times of a calendar, and some that only look like them."""
    limit = (1, 100, 10_000, 1_000_000)[width - _WHOLE.get(code, width)]
    for number in numbers:
        year, month, day, clock = number % 10000, number // 10007 % 13, (number >> 32) % 32, (number >> 40) % 86400
        hour, minute, second = clock // 3600, clock // 60 % 60, clock % 60
        fraction = ((number >> 20) % limit).to_bytes(width - _WHOLE.get(code, width), "big")
        if code in (10, 14):
            yield (year << 9 | month << 5 | day).to_bytes(3, "little")
        elif code == 11:
            yield (hour * 10_000 + minute * 100 + second).to_bytes(3, "little")
        elif code == 12:
            date = (year * 100 + month) * 100 + day
            yield (date * 1_000_000 + hour * 10_000 + minute * 100 + second).to_bytes(8, "little")
        elif code == 17:
            yield (number >> 24 & 0xFFFFFFFF).to_bytes(4, "big") + fraction
        elif code == 18:
            packed = 0x8000000000 | (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second
            yield packed.to_bytes(5, "big") + fraction
        else:
            packed = (0x800000 | hour << 12 | minute << 6 | second).to_bytes(3, "big") + fraction
            whole = int.from_bytes(packed, "big")
            yield packed if year & 1 else ((1 << 8 * width) - whole).to_bytes(width, "big")


#: What MariaDB's old temporal types with a fraction end at, in seconds.
_HIRES_MOST = {11: 2 * 3020399, 12: 10000 * 13 * 32 * 86400}
#: Bytes of a temporal type without those of a fraction.
_WHOLE = {17: 4, 18: 5, 19: 3}


def _decoded_rows(decoder: Any, head: bytes, rows: list[bytes], kind: int) -> Iterator[tuple[str, int]]:
    """Outcomes of the rows, each with the number of its values: together, or a few at a time where one is refused."""
    data = head + b"".join(rows)
    try:
        count = decoder.walk(data, 0, len(data), kind)
        found = decoder.decode(data, 0, len(data), kind)
    except SourceError as error:
        yield _error_text(error), 1
        pieces = range(0, len(rows), max(len(rows) // 8 & -2, 2))
        for at in pieces if len(pieces) > 1 else ():
            yield from _decoded_rows(decoder, head, rows[at : at + pieces.step], kind)
        return
    if len(found) != count:
        raise Finding(f"the walk counted {count} rows, there are {len(found)}")
    yield repr(found), len(rows) * decoder.width


# -- outcomes ----------------------------------------------------------------------------------------------------------


def walked(decoder: Any, data: bytes, pos: int, kind: int) -> str:
    """The rows; the walk and the decoding must agree about what can be read."""
    columns = by_column(decoder, data, pos, len(data), kind)
    try:
        count = decoder.walk(data, pos, len(data), kind)
    except SourceError as error:
        try:
            decoder.decode(data, pos, len(data), kind)
        except SourceError:
            raise error from None
        raise Finding(f"the walk refuses what can be decoded: {error}") from None
    try:
        rows = decoder.decode(data, pos, len(data), kind)
    except TruncatedError as error:
        if "JSON" in str(error):
            raise
        raise Finding(f"the walk counted {count} rows of an event that is too short") from error
    if len(rows) != count:
        raise Finding(f"the walk counted {count} rows, there are {len(rows)}")
    if kind == 3:
        return repr((rows, decoder.diffs(data, pos, len(data)), columns))
    return repr((rows, columns))


def by_column(decoder: Any, data: bytes, pos: int, end: int, kind: int) -> str:
    """The rows as the columnar kernel has them, twice in each of its layouts; it must fail where the tuples do."""
    decoder = decoder.text_form
    try:
        rows = decoder.decode(data, pos, end, kind)
    except SourceError:
        rows = None
    entry = Entry(EntryType.ROWDATA, EventType.UPDATE, Transaction("", "binlog.000001", 4, 1, 0), data, 4, 0, 1)
    entry.table = TableMap(TableSchema("shop", "t", ()), (), decoder, True)
    entry.body, entry.body_end, entry.kind = pos, end, kind
    text = ""
    for apart in (False, True):
        kernel = ChangeColumns(decoder, b"\1" * decoder.width, apart)
        try:
            kernel.extend([entry, entry])
            kernel.close()
        except DecodeError as error:
            if rows is not None:
                raise Finding(f"the kernel refuses what can be decoded: {error}") from error
            continue
        if rows is None:
            raise Finding("the kernel decodes what is refused")
        images = [[row[1] or row[0] for row in rows], [row[0] if row[1] and row[0] else None for row in rows]]
        if not apart:
            images = [[image for row in rows for image in row if image is not None]]
        for side, wanted in zip((kernel.images, kernel.before), images):
            for slot, column in enumerate(side.columns):
                values = 2 * sum(1 for image in wanted if image and image[slot] is not None and image[slot] is not ABSENT)
                if column.rows != 2 * len(wanted) or values != column.rows - column.nulls + len(column.exact):
                    raise Finding(f"column {slot} has {column.rows} rows and {column.nulls} nulls in the kernel")
                buffers = (bytes(column.valid), bytes(column.values), bytes(column.data))
                text += repr((buffers, column.objects, column.exact))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def decoded(rng: random.Random, log: Log, batches: list[list[bytes]], piece_entries: int = 0) -> str:
    """Everything that the decoder gives for the events, as text; the error that ends it is the last line."""
    entries: list[canal.Entry] = []

    def find(raw: RawTableMap) -> canal.TableSchema | None:
        found = log.tables.get((raw.schema, raw.table))
        if found is not None and (problem := misfit(raw, found)):
            raise canal.errors.SchemaError(problem)
        return found

    is_seed = piece_entries > 0
    tables = TableFilter("" if is_seed or rng.random() < 0.9 else r"shop\.shapes")
    names = None if is_seed or rng.random() < 0.8 else lambda schema, table: ("j", "lb")
    resolver = TableResolver(find, tables, FieldFilter(), datetime.UTC, names)
    catalog = Catalog(complete=False)

    def changed(statement: Statement, sql: str, data: bytes) -> None:
        logged = logged_statement(decoder, statement, sql, data)
        logged.apply(catalog)
        assert logged.creates is None or statement.tables
        logged.touches(("shop", "t"))

    def read_again(xa: PreparedXa, offset: int) -> Iterator[bytes]:
        at = 4
        for event in (event for batch in batches for event in batch):
            if at >= xa.offset or event[4:5] == b"\x0f":
                yield event
            at += len(event)

    decoder = BinlogDecoder(
        resolver.resolve,
        classify,
        resolver.wants,
        changed,
        entries.extend,
        piece_entries=piece_entries or rng.choice((2, 4096, 4096)),
        read_again=read_again,
    )
    start = rng.choice(("", f"{UUID}:1-5" if log.flavor == "mysql" else "0-1-5"))
    executed = parse_gtid_set(start, log.flavor) if start else None  # type: ignore[arg-type]
    position = Position(journal="binlog.000001", offset=4, gtid=start)
    if not is_seed and rng.random() < 0.1:  # in the midst of a transaction
        position = attrs.evolve(position, row=rng.choice((1, 2, 5)), timestamp=rng.choice((0, 1_700_000_000_000)), server_id=1)
    has_digests, is_proved = (not is_seed and rng.random() < 0.3 for _ in range(2))
    proof = Continuity(position, "", by_offset=rng.random() < 0.5) if is_proved else None
    decoder.reset(position, log.flavor, "", executed, has_digests, proof)
    end = "value"
    try:
        for events in batches:
            decoder.feed(events)
    except SourceError as error:
        end = _error_text(error)
    datas = rng.random() < 0.1
    lines = [_entry_text(entry, datas) for entry in entries]
    return "\n".join([end, *lines])


def _error_text(error: CanalError) -> str:
    return f"{type(error).__name__}: {error}"


def _entry_text(entry: Any, datas: bool) -> str:
    header = entry.header
    position = entry.position
    if Position.from_text(position.to_text()) != position:
        raise Finding(f"the position {position} does not survive its own text")
    try:
        rows: Any = entry.rows
        if len(rows) != header.row_count:
            raise Finding(f"{entry!r} should have {header.row_count} rows and has {len(rows)}")
        if datas:
            rows = (rows, entry.row_change.row_datas, entry.json_diffs())
            if entry.table is not None:
                rows += (by_column(entry.table.decoder, entry.data, entry.body, entry.body_end, entry.kind),)
    except SourceError as error:
        if isinstance(error, TruncatedError) and "JSON" not in str(error):
            raise Finding(f"the walk accepted an event that is too short: {error}") from error
        rows = _error_text(error)
    return repr(
        (
            entry.entry_type.name,
            entry.event_type.name,
            header.tables,
            header.gtid,
            header.offset,
            header.ordinal,
            header.execute_time,
            header.server_id,
            entry.part,
            entry.last,
            entry.is_end,
            entry.sql,
            entry.query,
            entry.size,
            position.to_text(),
            rows,
            entry.props,
        )
    )


def outcome(case: Callable[[], str]) -> str:
    """``value`` or the name of a typed error, then all that the case gave; anything else raised is ``FINDING``."""
    started = time.process_time()
    _Formats.faults.clear()
    try:
        text = case()
        if _Formats.faults:
            raise Finding("a fault was logged and survived") from _Formats.faults[0]
        head, _, rest = text.partition("\n")
        text = text if head == "value" or head.partition(":")[0] in _TYPED else f"value\n{text}"
    except SourceError as error:
        text = _error_text(error)
    except Exception as error:
        return f"FINDING {type(error).__name__}: {error}\n{traceback.format_exc()}"
    spent = time.process_time() - started
    return f"FINDING slow: {spent:.1f} s\n{text}" if spent > SLOW else text


_TYPED = {name for name in vars(canal.errors) if isinstance(vars(canal.errors)[name], type)}


# -- runs --------------------------------------------------------------------------------------------------------------

_STATE = struct.Struct("<QQQQ")  # case now, cases done, memory after half of them and at the end in KiB


def memory_kib() -> int:
    """What this process holds. The address sanitizer keeps what was freed, to know who uses it, and gives it back first: from one
    case to the next that is some ten MiB more or less."""
    with contextlib.suppress(AttributeError):  # of any other build
        ctypes.CDLL(None).__sanitizer_purge_allocator()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def work(fuzzer: Fuzzer, first: int, stop: int, path: str) -> None:
    """Run cases; the state file tells where, and gets a digest of each outcome. Findings go to stdout."""
    if "ASAN_OPTIONS" not in os.environ:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    classes: collections.Counter[str] = collections.Counter()
    given = os.environ.get("CANAL_FUZZ_FAULTS", "")
    faults = {int(index): kind for index, _, kind in (item.partition(":") for item in given.split(",") if item)}
    warm = 0
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as state:
        for number, index in enumerate(range(first, stop)):
            _STATE.pack_into(state, 0, index, number, warm, 0)
            text = outcome(lambda: fault(faults[index])) if index in faults else fuzzer.run(index)  # noqa: B023
            shown = text.split("\n", 1)[0] if text.startswith("FINDING") else text  # lines of a traceback may differ
            state[_STATE.size + 8 * index : _STATE.size + 8 * index + 8] = digest(shown)
            name = text.split(":", 1)[0].split("\n", 1)[0].split(" ", 1)[0]
            classes[name] += 1
            if name == "FINDING":
                print(json.dumps({"finding": index, "text": text}), flush=True)
            if number == max(1000, (stop - first) // 2):  # until then caches fill
                warm = memory_kib()
        _STATE.pack_into(state, 0, stop, stop - first, warm or memory_kib(), memory_kib())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"classes": classes, "peak": peak, "events": fuzzer.events, "values": fuzzer.values}), flush=True)


_kept: list[bytes] = []


def fault(kind: str) -> str:
    """What a test of the fuzzer itself orders instead of a case."""
    if kind == "crash":
        os.abort()
    while kind == "hang":
        pass
    if kind == "keep":
        _kept.append(b"x" * (GROWTH_KIB << 11))
        return "value"
    return str(1 // 0) if kind == "raise" else str(len(bytearray(MEMORY)))


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


@attrs.define
class Run:
    """One build's run over a range of cases, in worker processes one after the other."""

    arguments: list[str]
    first: int
    stop: int
    pure: str | None
    findings: dict[int, str] = attrs.field(factory=dict)
    classes: collections.Counter[str] = attrs.field(factory=collections.Counter)
    memory: list[tuple[int, int, int]] = attrs.field(factory=list)
    digests: bytes = b""
    events: int = 0
    values: int = 0
    seconds: float = 0.0

    def go(self) -> Run:
        started = time.monotonic()
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(_STATE.size + 8 * self.stop)
            first = self.first
            while first < self.stop:
                first = self._worker(first, file.name)
            self.digests = Path(file.name).read_bytes()[_STATE.size :]
        self.seconds = time.monotonic() - started
        return self

    def _worker(self, first: int, path: str) -> int:
        """Run a worker to its end; the index at which to go on."""
        work = f"{first}:{self.stop}:{path}"
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.programs.fuzz", *self.arguments, "--work", work]
        environment = dict(os.environ, PYTHONHASHSEED="0")
        if self.pure is not None:
            environment["CANAL_PURE"] = self.pure
        with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as wrong:
            worker = subprocess.Popen(command, stdout=told, stderr=wrong, env=environment, cwd=ROOT)
            hung = self._watch(worker, path)
            told.seek(0)
            wrong.seek(0)
            self._read(told.read().decode())
            index, _, warm, end = _STATE.unpack(Path(path).read_bytes()[: _STATE.size])
            if worker.returncode == 0:
                self.memory.append((warm, end, 0))
                if end - warm > GROWTH_KIB:
                    self.findings[-1] = f"memory grew from {warm} to {end} KiB"
                return self.stop
            what = "hangs" if hung else f"ends the process with {worker.returncode}"
            self.findings[index] = f"FINDING case {index} {what}\n{wrong.read().decode(errors='replace')[-4000:]}"
            if index < first or len(self.findings) > 1000:
                raise SystemExit(f"the worker does not start:\n{self.findings[index]}")
            return int(index) + 1

    def _watch(self, worker: subprocess.Popen[bytes], path: str) -> bool:
        at, since, spent = (-1, -1), time.monotonic(), 0.0
        while True:
            try:
                worker.wait(0.5)
                return False
            except subprocess.TimeoutExpired:
                with open(path, "rb") as file:
                    now = _STATE.unpack(file.read(_STATE.size))[:2]
                waited, used = time.monotonic() - since, _cpu_seconds(worker.pid) - spent
                if now != at:
                    at, since, spent = now, time.monotonic(), spent + used
                elif used > SLOW * HANGS or waited > IDLE:  # others may take the processor
                    worker.kill()
                    worker.wait()
                    return True

    def _read(self, told: str) -> None:
        for line in told.splitlines():
            found = json.loads(line)
            if "finding" in found:
                self.findings[found["finding"]] = found["text"]
            else:
                self.classes.update(found["classes"])
                self.events += found["events"]
                self.values += found["values"]
                self.memory.append((0, 0, found["peak"]))

    def report(self) -> str:
        count = self.stop - self.first
        memory = "; ".join(f"peak {peak}" if peak else f"{warm} -> {end}" for warm, end, peak in self.memory)
        classes = ", ".join(f"{name} {number}" for name, number in self.classes.most_common())
        build = {"0": "compiled", "1": "interpreted"}.get(self.pure or "", "compiled" if canal.compiled else "interpreted")
        return (
            f"{build}: {count} cases, {self.events} events and {self.values} values besides theirs in {self.seconds:.0f} s, "
            f"{count / self.seconds:.0f}/s; {classes}; memory KiB {memory}; "
            f"{len(self.findings)} findings"
        )


def compare(arguments: list[str], first: int, stop: int) -> tuple[list[Run], list[int]]:
    """Both builds over the same cases, and the indexes at which they differ."""
    runs = [Run(arguments, first, stop, pure).go() for pure in ("0", "1")]
    one, two = (run.digests for run in runs)
    return runs, [index for index in range(first, stop) if one[8 * index : 8 * index + 8] != two[8 * index : 8 * index + 8]]


class _Formats(logging.Handler):
    """Log lines are formatted and thrown away; faults that were logged instead of raised are kept."""

    faults: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            self.faults.append(record.exc_info[1])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.fuzz", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", default="1")
    parser.add_argument("--events", type=int, default=20_000, help="how many cases")
    parser.add_argument("--first", type=int, default=0, help="index of the first")
    parser.add_argument("--layer", default="", choices=("events", "stream", "values", "parts"), help="only such cases")
    parser.add_argument("--corpus", type=Path, help="a directory of binlog files to take seeds from too")
    parser.add_argument("--only", type=int, metavar="INDEX", help="run one case here and print its outcome")
    parser.add_argument("--digest", type=Path, metavar="FILE", help="write the digests of the outcomes, 8 bytes each")
    parser.add_argument("--compare", action="store_true", help="run both builds and compare the outcomes")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    passed = ["--seed", given.seed] + (["--layer", given.layer] if given.layer else [])
    passed += ["--corpus", str(given.corpus)] if given.corpus else []
    stop = given.first + given.events
    if given.work or given.only is not None:
        logging.getLogger("canal").addHandler(_Formats())
        logging.getLogger("canal").propagate = False
        fuzzer = Fuzzer(given.seed, fake_logs(), given.layer)
        fuzzer.check_seeds()
        fuzzer.logs += corpus_logs(given.corpus) if given.corpus else []
        if given.work:
            first, end, path = given.work.split(":", 2)
            work(fuzzer, int(first), int(end), path)
        else:
            print(fuzzer.run(given.only))
        return 0
    runs, different = compare(passed, given.first, stop) if given.compare else ([Run(passed, given.first, stop, None).go()], [])
    shown = " ".join(passed)
    for run in runs:
        print(run.report())
        for index, text in sorted(run.findings.items())[:20]:
            print(f"{shown} --only {index}: {text}")
    for index in different[:20]:
        print(f"{shown} --only {index}: the builds differ")
    if given.digest:
        given.digest.write_bytes(runs[0].digests)
    return 1 if different or any(run.findings for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
