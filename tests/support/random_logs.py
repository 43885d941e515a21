"""Hypothesis strategies: tables of all types with rows, logs of them, and what a parser makes of those."""

from __future__ import annotations

import datetime
import json
import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

import canal
from canal.filter import FieldFilter, TableFilter
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.schema.classify import classify
from canal.parse.schema.raw_map import RawTableMap
from canal.parse.schema.table_map import TableResolver
from canal.testing.fake import FakeBinlog, FakeColumn

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]
#: Characters of each charset that Python's codec and the server's agree on.
ALPHABETS = {
    "utf8mb4": "aZ é中😀\0'\"",
    "utf8mb3": "aZ é中",
    "latin1": "aZ é€\x81",
    "ascii": "aZ ~",
    "ucs2": "aé中",
    "utf16": "aé😀",
    "utf16le": "aé€",
    "utf32": "aé😀",
    "gbk": "a中文",
    "gb2312": "a中文",
    "big5": "a中文",
    "sjis": "a漢",
    "cp932": "a漢字",
    "ujis": "a漢字",
    "eucjpms": "a漢",
    "euckr": "a한글",
    "latin2": "aą",
    "greek": "aα",
    "hebrew": "aא",
    "cp1251": "aя",
    "koi8u": "aї",
    "tis620": "aก",
}
BLOBS = ("tinyblob", "blob", "mediumblob", "longblob")
TEXTS = ("tinytext", "text", "mediumtext", "longtext")
INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text('ab"é', max_size=5), inner, max_size=5),
    max_leaves=12,
)


def labels(most: int) -> st.SearchStrategy[tuple[str, ...]]:
    return st.sampled_from([tuple(f"é{number}" for number in range(count)) for count in {1, 8, 9, 33, most}])


@st.composite
def columns(draw: st.DrawFn, name: str, flavor: str) -> FakeColumn:
    kinds = ["text", "label", "integer", "number", "temporal", "bytes", "json", "shape"]
    kind = draw(st.sampled_from(kinds))
    nullable = draw(st.booleans())
    if kind == "integer":
        return FakeColumn(name, draw(st.sampled_from(sorted(INTEGERS))), unsigned=draw(st.booleans()), nullable=nullable)
    if kind == "number":
        which = draw(st.sampled_from(["decimal", "float", "double", "bit", "year"]))
        args: tuple[int, ...] = ()
        if which == "decimal":
            precision = draw(st.integers(1, 65))
            args = (precision, draw(st.integers(0, min(precision, 30))))
        elif which == "bit":
            args = (draw(st.integers(1, 64)),)
        return FakeColumn(name, which, args, nullable=nullable)
    if kind == "temporal":
        which = draw(st.sampled_from(["date", "time", "datetime", "timestamp"]))
        return FakeColumn(name, which, (draw(st.integers(0, 6)),) if which != "date" else (), nullable=nullable)
    if kind == "bytes":
        which = draw(st.sampled_from(["binary", "varbinary", *BLOBS]))
        return FakeColumn(name, which, () if which in BLOBS else (draw(st.sampled_from([1, 5, 255])),), nullable=nullable)
    if kind == "json":
        return FakeColumn(name, "json", nullable=nullable)
    if kind == "shape":
        if flavor == "mysql" and draw(st.booleans()):
            return FakeColumn(name, "vector", (3,), nullable=nullable)
        return FakeColumn(name, "geometry", nullable=nullable)
    charset = draw(st.sampled_from(sorted(ALPHABETS)))
    if kind == "label":
        which = draw(st.sampled_from(["enum", "set"]))
        members = draw(labels(300 if which == "enum" else 64))
        return FakeColumn(name, which, labels=members, charset="utf8mb4", nullable=nullable)
    which = draw(st.sampled_from(["char", "varchar", *TEXTS]))
    size = () if which in TEXTS else (draw(st.sampled_from([1, 63, 64, 255])),)
    return FakeColumn(name, which, size, charset=charset, nullable=nullable)


def values(column: FakeColumn, flavor: str) -> st.SearchStrategy[tuple[Any, Any]]:
    found = cells(column, flavor)
    return st.just((None, None)) | found if column.nullable and not column.key else found


def same(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return strategy.map(lambda value: (value, value))


def cells(column: FakeColumn, flavor: str) -> st.SearchStrategy[tuple[Any, Any]]:
    kind, args = column.type, column.args
    if kind in INTEGERS:
        bits = INTEGERS[kind]
        low, high = (0, (1 << bits) - 1) if column.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
        return same(st.integers(low, high))
    if kind == "bit":
        return same(st.integers(0, (1 << args[0]) - 1))
    if kind == "year":
        return same(st.just(0) | st.integers(1901, 2155))
    if kind == "double":
        return same(st.floats(allow_nan=False))
    if kind == "float":
        return st.floats(width=32, allow_nan=False).map(lambda value: (value, Single(value)))
    if kind == "decimal":
        return st.integers(1 - 10 ** args[0], 10 ** args[0] - 1).map(lambda value: decimal_cell(value, args[1]))
    if kind in ("date", "time", "datetime", "timestamp"):
        return temporal(kind, args[0] if args else 0)
    if kind == "geometry" or kind in BLOBS:
        return same(st.binary(max_size=255))
    if kind == "vector":
        return same(st.binary(min_size=12, max_size=12))
    if kind == "varbinary":
        return same(st.binary(max_size=args[0]))
    if kind == "binary":
        return st.binary(max_size=args[0]).map(lambda value: (value, value.ljust(args[0], b"\0")))
    if kind == "json":
        return JSON.map(lambda value: (json.dumps(value), Json(value)))
    if kind == "enum":
        return same(st.sampled_from(column.labels))
    if kind == "set":
        chosen = st.sets(st.sampled_from(column.labels))
        return same(chosen.map(lambda names: ",".join(name for name in column.labels if name in names)))
    text = st.text(ALPHABETS[column.charset], max_size=min(args[0] if args else 60, 60))
    return text.map(lambda value: (value, value.rstrip(" ") if kind == "char" else value))


def decimal_cell(number: int, scale: int) -> tuple[Decimal, Decimal]:
    value = Decimal(f"{number}e-{scale}")
    return value, value if value else abs(value)  # there is no -0


def temporal(kind: str, digits: int) -> st.SearchStrategy[tuple[Any, Any]]:
    unit = datetime.timedelta(microseconds=10 ** (6 - digits))
    zeros = {"date": "0000-00-00", "time": "00:00:00", "datetime": "0000-00-00 00:00:00", "timestamp": "0000-00-00 00:00:00"}
    zero = zeros[kind] + ("." + "0" * digits if digits and kind != "date" else "")
    if kind == "date":
        return same(st.dates() | st.sampled_from([zero, "2024-00-31", "2023-02-29"]))
    if kind == "time":
        most = datetime.timedelta(hours=838, minutes=59, seconds=59) // unit
        return same(st.integers(-most, most).map(lambda count: count * unit))
    if kind == "datetime":
        moments = st.datetimes().map(lambda value: value - (value - datetime.datetime.min) % unit)
        return same(moments | st.just(zero))
    count = ((1 << 31) - 1) * datetime.timedelta(seconds=1) // unit
    return same(st.integers(datetime.timedelta(seconds=1) // unit, count).map(lambda n: EPOCH + n * unit) | st.just(zero))


class Single(float):
    """A FLOAT: what comes back is the shortest text of the same 32 bits."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and struct.pack("<f", other) == struct.pack("<f", self)

    __hash__ = float.__hash__


class Json:
    """A document: equal to its text."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Json):
            return bool(other.value == self.value)
        return isinstance(other, str) and bool(json.loads(other) == self.value)

    def __repr__(self) -> str:
        return f"Json({self.value!r})"


@st.composite
def tables(draw: st.DrawFn, flavor: str) -> tuple[FakeColumn, ...]:
    """A few columns of any types, or those over and over, up to more than a byte can count."""
    few = [draw(columns(f"c{number}", flavor)) for number in range(draw(st.integers(1, 6)))]
    total = draw(st.just(len(few)) | st.sampled_from([250, 251, 252, 300]))
    made = [few[number % len(few)] for number in range(max(total, len(few)))]
    keys = draw(st.sets(st.integers(0, len(few) - 1), max_size=2))
    return tuple(
        FakeColumn(
            f"c{number}",
            one.type,
            one.args,
            one.unsigned,
            one.nullable and not is_key,
            one.charset,
            one.collation,
            one.labels,
            sorted(keys).index(number) + 1 if is_key else 0,
            visible=is_key or flavor == "mariadb" or number % 7 != 3,
        )
        for number, one in enumerate(made)
        for is_key in [number in keys and not one.is_blob and one.type not in ("set", "enum")]
    )


def numbered(table: tuple[FakeColumn, ...]) -> tuple[FakeColumn, ...]:
    """The numbers in the key without holes."""
    numbers = iter(range(1, len(table) + 1))
    return tuple(
        FakeColumn(
            c.name,
            c.type,
            c.args,
            c.unsigned,
            c.nullable,
            c.charset,
            c.collation,
            c.labels,
            next(numbers) if c.key else 0,
            visible=c.visible,
        )
        for c in table
    )


@st.composite
def rows(draw: st.DrawFn, table: tuple[FakeColumn, ...], flavor: str) -> tuple[Row, Row]:
    """A row as given and as it must come back; wide tables repeat the cells of their first columns."""
    drawn: dict[Any, tuple[Any, Any]] = {}
    given_row, expected = {}, {}
    for column in table:
        kind = (column.type, column.args, column.charset, column.unsigned, column.labels, column.nullable)
        if kind not in drawn:
            drawn[kind] = draw(values(column, flavor))
        given_row[column.name], expected[column.name] = drawn[kind]
    return given_row, expected


@st.composite
def logs(draw: st.DrawFn) -> tuple[FakeBinlog, list[tuple[str, str, Row | None, Row | None]]]:
    flavor: Any = draw(st.sampled_from(["mysql", "mariadb"]))
    fake = FakeBinlog(
        flavor,
        metadata=draw(st.sampled_from(["FULL", "FULL", "MINIMAL"] + ["NO_LOG"] * (flavor == "mariadb"))),
        row_image=draw(st.sampled_from(["FULL", "MINIMAL", "NOBLOB"])),
        checksum=draw(st.booleans()),
        gtid=flavor == "mariadb" or draw(st.booleans()),
        row_event_max_size=draw(st.sampled_from([64, 8192])),
        row_version=draw(st.sampled_from([1, 2])),
        compression=draw(st.sampled_from(["", "zlib"] if flavor == "mariadb" else ["", "zstd", "none"])),
        clock=lambda: 1_700_000_000,
    )
    shapes = [numbered(draw(tables(flavor))) for _ in range(draw(st.integers(1, 2)))]
    made = [fake.table("shop", f"t{number}", shape) for number, shape in enumerate(shapes)]
    written: list[tuple[str, str, Row | None, Row | None]] = []
    for _ in range(draw(st.integers(1, 2))):
        with fake.transaction(end=draw(st.sampled_from(["XID", "COMMIT"]))):
            for _ in range(draw(st.integers(1, 3))):
                number = draw(st.integers(0, len(made) - 1))
                table, shape = made[number], shapes[number]
                some = [draw(rows(shape, flavor)) for _ in range(draw(st.integers(1, 3)))]
                kind = draw(st.sampled_from(["INSERT", "UPDATE", "DELETE"]))
                if kind == "INSERT":
                    table.insert(*[row for row, _ in some])
                    written += [(kind, table.name, None, back) for _, back in some]
                elif kind == "DELETE":
                    table.delete(*[row for row, _ in some])
                    written += [(kind, table.name, back, None) for _, back in some]
                else:
                    after = draw(rows(shape, flavor))
                    table.update(some[0][0], after[0])
                    written.append((kind, table.name, some[0][1], after[1]))
    return fake, written


def decode(fake: FakeBinlog, batches: Iterator[Sequence[bytes]]) -> list[canal.Entry]:
    found: list[canal.Entry] = []

    def find(raw: RawTableMap) -> canal.TableSchema | None:
        return fake.table_columns(raw.schema, raw.table)

    resolver = TableResolver(find, TableFilter(""), FieldFilter(), UTC)
    decoder = BinlogDecoder(resolver.resolve, classify, resolver.wants, lambda *_: None, found.extend)
    decoder.reset(canal.Position(journal="binlog.000001", offset=4), fake.flavor, "", None)
    for events in batches:
        decoder.feed(events)
    return found
