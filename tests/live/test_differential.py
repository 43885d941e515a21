"""Every row of a generated binlog, decoded by canal, decoded by mysql-replication and read back with SELECT.

Never accepts a difference that is not written down in ``peer_faults``, nor an entry there that no longer occurs.
"""

from __future__ import annotations

import importlib.metadata
import json
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import attrs
import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.constants import NONE_SOURCE
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

import canal
from canal.testing.servers import ThrowawayServer
from tests.support.journal import Change, check, compare_tables, replay
from tests.support.live import Reader, end_of_log, source
from tests.support.load import Load
from tests.support.peer_faults import FAULTS, PEER, SAME, Fault, Raised, in_peer_form

SEED: Final = 20260715
#: Rows of each table beyond those of the limits.
RANDOM_ROWS: Final = 16
#: Rows with a greater id are copies, made, changed and deleted by one statement each: several rows in an event.
COPIES: Final = 1000
LOAD_TRANSACTIONS: Final = 200
Draw = Callable[[random.Random], Any]
Snapshot = Mapping[str, Mapping[int, Mapping[str, Any]]]

# mysql-replication's own.
pytestmark = [
    pytest.mark.lines("mysql>=9.7", "mariadb==10.11"),  # for which the faults of the peer are listed
    pytest.mark.needs("full_metadata", "full_image", "uncompressed"),  # it knows of no other logs
    pytest.mark.filterwarnings("ignore:datetime.datetime.utcfromtimestamp:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'db' is deprecated:DeprecationWarning"),
]


class Sql(str):
    """An expression, where a parameter cannot say it."""

    __slots__ = ()


@attrs.frozen
class Column:
    """One generated column: the limits of its type, and how to draw another value."""

    name: str
    type: str = ""
    limits: Sequence[Any] = ()
    draw: Draw = random.Random.random
    family: str = "plain"
    digits: int = 0
    charset: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        """What to SELECT. A FLOAT shows six digits only; widened it shows all of them."""
        return (f"`{self.name}`", f"`{self.name}` * 1e0") if self.family == "float" else (f"`{self.name}`",)


@attrs.frozen
class Table:
    """A generated table. mysql-replication may raise where ``alone``: one column, and one row in each event."""

    name: str
    columns: tuple[Column, ...]
    alone: bool = False


# -- numbers -----------------------------------------------------------------------------------------------------------


def _integers() -> Iterator[Column]:
    for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64)):
        half = 1 << bits - 1
        limits = (0, 1, -1, half - 1, -half, 127, 128 - half)
        yield Column(f"{name}_s", name, limits, lambda r, half=half: r.randrange(-half, half))
        limits = (0, 1, half - 1, half, 2 * half - 1)
        yield Column(f"{name}_u", f"{name} UNSIGNED", limits, lambda r, half=half: r.randrange(2 * half))


_DECIMALS = ((65, 30), (65, 0), (1, 1), (1, 0), (9, 0), (9, 9), (10, 2), (18, 9), (20, 10), (30, 30), (30, 7), (5, 4))


def _decimal(precision: int, scale: int) -> Column:
    top = 10**precision
    limits = [Decimal(f"{number}e-{scale}") for number in (0, 1, -1, top - 1, 1 - top, top // 10)]

    def draw(r: random.Random) -> Decimal:
        return Decimal(f"{r.randrange(-top, top) // 10 ** r.randrange(precision)}e-{scale}")

    return Column(f"d{precision}_{scale}", f"DECIMAL({precision},{scale})", limits, draw)


def _finite(value: float) -> float:
    return value if value - value == 0 else 0.1


def _float32(r: random.Random) -> float:
    return _finite(struct.unpack("<f", r.randbytes(4))[0])


def _float64(r: random.Random) -> float:
    return _finite(struct.unpack("<d", r.randbytes(8))[0])


_FLOATS = (0.0, -0.0, 0.1, -1.5, 3.4028234e38, 1.1754944e-38, 1e-45, 16777216.0, 123456.0, 0.3, 1e10, 33554433.0)
_DOUBLES = (0.0, -0.0, 0.1, 1.7976931348623157e308, -1.7976931348623157e308, 2.2250738585072014e-308, 5e-324, 1 / 3, 1e22)


def _numbers() -> Iterator[Column]:
    yield Column("f", "FLOAT", _FLOATS, _float32, "float")
    yield Column("fu", "FLOAT UNSIGNED", [abs(one) for one in _FLOATS], lambda r: abs(_float32(r)), "float")
    limits = (0.1, 9999.999, -9999.999)
    yield Column("f73", "FLOAT(7,3)", limits, lambda r: r.randrange(-(10**7), 10**7) / 1000, "float")
    yield Column("d", "DOUBLE", _DOUBLES, _float64)
    yield Column("d155", "DOUBLE(15,5)", (0.1, -1e9), lambda r: r.randrange(-(10**15), 10**15) / 10**5)
    for bits in (1, 7, 8, 9, 33, 64):
        limits = (0, 1, (1 << bits) - 1, 1 << bits - 1)
        yield Column(f"b{bits}", f"BIT({bits})", limits, lambda r, bits=bits: r.getrandbits(bits), "bit", bits)
    yield Column("bare", "BIT", (0, 1), lambda r: r.getrandbits(1), "bit", 1)
    yield Column("y", "YEAR", (0, 1901, 2155, 1970, 2000), lambda r: r.randrange(1901, 2156), "year")


# -- text and bytes ----------------------------------------------------------------------------------------------------

_ALPHABETS: Final = {
    "utf8mb4": "aZ 0'\"\\%_\0\n\x7fäßéøñ€中文字漢日本語한글😀🎉𠜎ﷺ\u200d",
    "utf8mb3": "aZ 0'\"\\\0\näßéøñ€中文字漢日本語한글ﷺ",
    "gbk": "aZ 0'\\\n中文字漢囧鎔丂狢〇ā①⒈гα─",
    "utf16": "aZ 0'\\\n\0äßéøñ€中文字漢日本語한글😀🎉𠜎\u0100\u00ff",
    "latin1": "",  # all 256 bytes
}


def _draw_text(charset: str, longest: int) -> Draw:
    def draw(r: random.Random) -> Any:
        size = r.choice((1, 2, longest, r.randrange(longest + 1)))
        if charset == "latin1":
            return Sql(f"_latin1 0x{r.randbytes(max(size, 1)).hex()}")
        return "".join(r.choices(_ALPHABETS[charset], k=size))

    return draw


def _text(charset: str, name: str, of: str, longest: int, *limits: Any) -> Column:
    every = ("", "a", "tail  ", "a" * longest, *limits)
    draw = _draw_text(charset, min(longest, 300))
    return Column(name, f"{of} CHARACTER SET {charset}", every, draw, "text", charset=charset)


def _texts(charset: str) -> Iterator[Column]:
    every = _ALPHABETS[charset] or Sql(f"_latin1 0x{bytes(range(256)).hex()}")
    yield _text(charset, "c10", "CHAR(10)", 10)
    yield _text(charset, "c100", "CHAR(100)", 100)  # more than 255 bytes in some charsets
    yield _text(charset, "v20", "VARCHAR(20)", 20)
    yield _text(charset, "v300", "VARCHAR(300)", 300, every)
    yield _text(charset, "tt", "TINYTEXT", 63)
    yield _text(charset, "t", "TEXT", 10000, every)
    yield _text(charset, "mt", "MEDIUMTEXT", 300, "a" * 70000)
    yield _text(charset, "lt", "LONGTEXT", 300, every)


def _draw_bytes(longest: int) -> Draw:
    return lambda r: r.randbytes(r.choice((1, longest, r.randrange(longest + 1)))) + b"\0" * r.choice((0, 0, 1))


def _binaries() -> Iterator[Column]:
    limits = (b"", b"\0", b"a", b"a\0", b"\0a", b"\xff\xfe", b" ", b"a ")
    every = bytes(range(256))
    for size in (1, 16, 255):
        yield Column(f"b{size}", f"BINARY({size})", (*limits, every[1 : size + 1]), _draw_bytes(size - 1), "binary")
    yield Column("v20", "VARBINARY(20)", limits, _draw_bytes(19), "bytes")
    yield Column("v300", "VARBINARY(300)", (*limits, every), _draw_bytes(299), "bytes")
    yield Column("tb", "TINYBLOB", (*limits, every[:255]), _draw_bytes(254), "bytes")
    yield Column("b", "BLOB", (*limits, every), _draw_bytes(600), "bytes")
    yield Column("mb", "MEDIUMBLOB", (*limits, every * 300), _draw_bytes(600), "bytes")
    yield Column("lb", "LONGBLOB", (*limits, every), _draw_bytes(600), "bytes")


# -- temporal ----------------------------------------------------------------------------------------------------------

_DAYS: Final = (
    *("0000-00-00", "2026-00-15", "2026-07-00", "0000-01-01", "0001-01-01", "1000-01-01", "9999-12-31", "1582-10-10"),
    "2024-02-29",
)
_ODD_DAYS: Final = ("2026-02-31", "2023-02-29", "0000-00-01", "0000-02-30")


def _nines(digits: int) -> str:
    return "." + "9" * digits if digits else ""


def _least(digits: int) -> str:
    return "." + "0" * (digits - 1) + "1" if digits else ""


def _fraction(r: random.Random, digits: int) -> str:
    return "." + r.choice((f"{r.randrange(10**digits):0{digits}}", "0" * digits, "9" * digits)) if digits else ""


def _day(r: random.Random) -> str:
    return str(date.fromordinal(r.randrange(1, date.max.toordinal() + 1)))


def _clock(r: random.Random, hours: int = 24) -> str:
    return f"{r.randrange(hours):02}:{r.randrange(60):02}:{r.randrange(60):02}"


def _datetime(digits: int) -> Column:
    limits = [f"{day} 00:00:00" for day in _DAYS]
    limits += ["0000-00-00 11:12:13", f"2026-00-15 23:59:59{_nines(digits)}"]
    limits += [f"9999-12-31 23:59:59{_nines(digits)}", f"1969-12-31 23:59:59{_least(digits)}"]

    def draw(r: random.Random) -> str:
        return f"{_day(r)} {_clock(r)}{_fraction(r, digits)}"

    return Column(f"dt{digits}", f"DATETIME({digits})", limits, draw, "datetime")


def _timestamp(digits: int) -> Column:
    def draw(r: random.Random) -> str:
        return f"{datetime.fromtimestamp(r.randrange(1, 2**31), UTC):%Y-%m-%d %H:%M:%S}{_fraction(r, digits)}"

    limits = ("0000-00-00 00:00:00", "1970-01-01 00:00:01", f"2038-01-19 03:14:07{_nines(digits)}")
    return Column(f"ts{digits}", f"TIMESTAMP({digits}) NULL DEFAULT NULL", limits, draw, "timestamp")


def _time(digits: int) -> Column:
    nines, least = _nines(digits), _least(digits)
    limits = (
        *("00:00:00", "838:59:59", "-838:59:59", f"838:59:58{nines}", f"-838:59:58{nines}", f"-00:00:00{least}"),
        *("-00:00:01", f"-00:00:00{nines}", f"00:00:00{least}", f"-00:59:59{nines}", "-01:00:00", f"-12:34:56{least}"),
    )

    def draw(r: random.Random) -> str:
        return f"{r.choice(('', '-'))}{_clock(r, 838)}{_fraction(r, digits)}"

    return Column(f"t{digits}", f"TIME({digits})", limits, draw, "time")


# -- ENUM and SET ------------------------------------------------------------------------------------------------------

_WORDS: Final = ("new", "größer", "it's", "with space", "中文", "ÿ")


def _labels(labels: Sequence[str]) -> str:
    return ",".join("'" + one.replace("'", "''") + "'" for one in labels)


def _enum(name: str, labels: Sequence[str], charset: str = "utf8mb4", *limits: str) -> Column:
    of = f"ENUM({_labels(labels)}) CHARACTER SET {charset}"
    every = (labels[0], labels[-1], "no such label", *limits)
    return Column(name, of, every, lambda r: r.choice(labels), "enum", charset=charset)


def _set(name: str, labels: Sequence[str], charset: str = "utf8mb4") -> Column:
    of = f"SET({_labels(labels)}) CHARACTER SET {charset}"
    limits = ("", labels[0], labels[-1], ",".join(labels), ",".join(reversed(labels)))

    def draw(r: random.Random) -> str:
        return ",".join(one for one in labels if r.random() < 0.5)

    return Column(name, of, limits, draw, "set", charset=charset)


def _choices() -> Iterator[Column]:
    yield _enum("e", (*_WORDS, "a,b", "😀"))
    yield _enum("e_empty", ("x", "", "y"), "utf8mb4", "")
    yield _enum("e300", [f"label {n}" for n in range(300)], "utf8mb4", "label 254", "label 255")
    yield _set("s", (*_WORDS, "😀"))
    for count in (9, 33, 64):
        yield _set(f"s{count}", [f"b{n}" for n in range(count)])


def _foreign_choices() -> Iterator[Column]:
    foreign = {"latin1": ("new", "größer", "ÿ"), "gbk": ("new", "中文", "漢"), "utf16": ("new", "größer", "中文")}
    for charset, labels in foreign.items():
        yield _enum(f"e_{charset}", labels, charset)
        yield _set(f"s_{charset}", labels, charset)


# -- JSON --------------------------------------------------------------------------------------------------------------

_WHOLE: Final = (0, 1, -1, 2**15, -(2**15), 2**16, 2**31, -(2**31), 2**32, 2**63 - 1, -(2**63), 2**64 - 1)
_DOCUMENTS: Final = (
    *("{}", "[]", '""', "0", "-1", "true", "false", "1.5", "65536", '{"": 1}', '{"b": 1, "a": 2, "aa": 3}'),
    *("[1, [2, [3, {}]]]", "[" * 30 + "7" + "]" * 30, '{"a": null}', "[null]"),
    json.dumps(["x" * 70000]),
    json.dumps({f"k{n}": n for n in range(9000)}),
    json.dumps([1.0, 100.0, 1e22, 0.1, *_WHOLE, '\u2028\x7f\0"\\/']),
)


def _document(r: random.Random, depth: int = 0) -> Any:
    kind = r.randrange(7 if depth > 3 else 10)
    if kind < 2:
        return r.choice(_WHOLE)
    if kind == 2:
        return r.choice([0.5, -1.25, 1e100, 1.5e-7, r.uniform(-1, 1)])
    if kind < 6:
        return "".join(r.choices(_ALPHABETS["utf8mb4"] + "\b\t\x1f/", k=r.choice((0, 1, 5, 20, 130))))
    if kind == 6:
        return r.choice([True, False, None]) if depth else True
    if kind == 7:
        return [_document(r, depth + 1) for _ in range(r.randrange(5))]
    return {f"{r.choice(_WORDS)}{n}" if n else "": _document(r, depth + 1) for n in range(r.randrange(5))}


def _json(r: random.Random) -> str:
    return json.dumps(_document(r), ensure_ascii=r.random() < 0.3, separators=r.choice([None, (",", ":")]))


def _opaque(family: str, *members: str) -> Column:
    """Documents with a value of an SQL type, which only an expression can make."""
    limits = [Sql(f"JSON_OBJECT('k', {member})") for member in members]
    return Column("j", "JSON", limits, lambda r: r.choice(limits), family)


def _opaque_decimals() -> Column:
    r = random.Random(SEED)
    shapes = [(shape, _decimal(*shape).draw(r)) for shape in _DECIMALS for _ in range(3)]
    return _opaque("json decimal", *(f"CAST({value:f} AS DECIMAL({p},{s}))" for (p, s), value in shapes))


def _opaque_documents() -> Iterator[Column]:
    """Values that MariaDB's JSON, which is text, cannot have."""
    yield _opaque_decimals()
    yield Column("j", "JSON", ("null",), lambda r: "null", "json null")
    moments = ("2026-07-15 01:02:03.000004", "1000-01-01", "9999-12-31 23:59:59.999999", "2026-00-15")
    yield _opaque("json datetime", *(f"CAST('{one}' AS DATETIME(6))" for one in moments))
    yield _opaque("json date", "DATE'2026-07-15'", "DATE'0001-01-01'", "DATE'9999-12-31'")
    spans = ("01:02:03.000004", "-01:02:03", "838:59:59", "00:00:00", "23:59:59.999999", "-838:59:59")
    yield _opaque("json time", *(f"TIME'{one}'" for one in spans))
    yield _opaque("json bytes", "_binary 0x616263", "_binary 0xff00", f"_binary 0x{bytes(range(256)).hex()}")


# -- tables ------------------------------------------------------------------------------------------------------------


def _mixed() -> Iterator[Column]:
    """Columns of many types and charsets side by side: the table map packs what it tells of them by kind."""
    plain = [*_integers(), _decimal(10, 2), *_numbers(), _datetime(3), _timestamp(6), _time(2), *_choices()]
    text = [_text(charset, charset, "VARCHAR(40)", 40) for charset in ("utf8mb4", "gbk", "utf8mb3")]
    text += [next(_foreign_choices()), *_binaries()]
    for left, right in zip(plain, text * 9):
        yield attrs.evolve(left, name=f"l_{left.name}")
        yield attrs.evolve(right, name=f"r_{left.name}", limits=right.limits[:4])


def _tables(kind: str) -> list[Table]:
    family = "json" if kind == "mysql" else "plain"
    tables = [
        Table("ints", tuple(_integers())),
        Table("decimals", tuple(_decimal(*one) for one in _DECIMALS)),
        Table("numbers", tuple(_numbers())),
        Table("binaries", tuple(_binaries())),
        Table("dates", (Column("d", "DATE", _DAYS, _day, "date"), *(_datetime(digits) for digits in range(7)))),
        Table("clocks", (*(_timestamp(digits) for digits in range(7)), *(_time(digits) for digits in range(7)))),
        Table("choices", tuple(_choices())),
        Table("foreign_choices", tuple(_foreign_choices())),
        Table("documents", (Column("j", "JSON", _DOCUMENTS, _json, family),)),
        Table("mixed", tuple(_mixed())),
    ]
    tables += [Table(f"{charset}_texts", tuple(_texts(charset))) for charset in ("utf8mb4", "utf8mb3", "gbk")]
    alone = [attrs.evolve(one, name=f"{charset}_{one.name}") for charset in ("latin1", "utf16") for one in _texts(charset)]
    odd = [f"{day} 01:02:03" for day in _ODD_DAYS]
    alone.append(Column("odd_date", "DATE", _ODD_DAYS, lambda r: r.choice(_ODD_DAYS), "date"))
    alone.append(Column("odd_datetime", "DATETIME(2)", odd, lambda r: r.choice(odd), "datetime"))
    if kind == "mysql":
        alone += [attrs.evolve(one, name=one.family.replace(" ", "_")) for one in _opaque_documents()]
    alone += [_example(number, fault) for number, fault in enumerate(FAULTS) if kind in fault.servers]
    return tables + [Table(one.name, (one,), alone=True) for one in alone]


def _example(number: int, fault: Fault) -> Column:
    literal = Sql(fault.literal)
    return Column(f"fault{number}", fault.type, (literal,), lambda r: literal, fault.family, charset=fault.charset)


class Writer:
    """Makes, fills, changes and empties the tables, and keeps what SELECT shows in between."""

    def __init__(self, server: ThrowawayServer, database: str, kind: str, image: str) -> None:
        self.tables = {one.name: one for one in _tables(kind)}
        self._random = random.Random(SEED)
        self._connection = server.connect(database=database, autocommit=False)
        self._cursor = self._connection.cursor()
        self._run("SET SESSION sql_mode='ALLOW_INVALID_DATES', time_zone='+00:00'")
        self._run(f"SET SESSION binlog_row_image='{image}'")

    def write(self) -> tuple[Snapshot, Snapshot]:
        """Insert, update and delete; give the rows after the inserts and after the updates."""
        with self._connection:
            for table in self.tables.values():
                columns = ", ".join(f"`{one.name}` {one.type}" for one in table.columns)
                self._run(f"CREATE TABLE `{table.name}` (id INT PRIMARY KEY, {columns})")
            for table in self.tables.values():
                self._insert(table)
            inserted = self._select()
            for table in self.tables.values():
                self._update(table, inserted[table.name])
            updated = self._select()
            for table in self.tables.values():
                self._delete(table, updated[table.name])
        return inserted, updated

    def _run(self, sql: str) -> None:
        self._cursor.execute(sql)

    def _literal(self, value: Any) -> str:
        return value if isinstance(value, Sql) else self._cursor.mogrify("%s", (value,))

    def _value(self, column: Column, row: int) -> Any:
        """The limits in turn, then NULL or any other value."""
        if row < len(column.limits):
            return column.limits[row]
        return None if self._random.random() < 0.1 else column.draw(self._random)

    def _insert(self, table: Table) -> None:
        rows = max(len(one.limits) for one in table.columns) + RANDOM_ROWS
        for row in range(rows):
            values = ", ".join(self._literal(self._value(one, row)) for one in table.columns)
            self._run(f"INSERT INTO `{table.name}` VALUES ({row + 1}, {values})")
        self._run(f"INSERT INTO `{table.name}` (id) VALUES ({rows + 1})")
        if not table.alone:
            names = ", ".join(f"`{one.name}`" for one in table.columns)
            self._run(f"INSERT INTO `{table.name}` SELECT id + {COPIES}, {names} FROM `{table.name}`")
        self._connection.commit()

    def _update(self, table: Table, rows: Iterable[int]) -> None:
        groups = [f"id = {id}" for id in rows if id <= COPIES and self._random.random() < 0.6]
        for where in groups if table.alone else [*groups, f"id > {COPIES}"]:
            some = self._random.sample(table.columns, self._random.randint(1, len(table.columns)))
            values = ((one, self._value(one, self._random.randrange(2 * len(one.limits)))) for one in some)
            changes = ", ".join(f"`{one.name}` = {self._literal(value)}" for one, value in values)
            self._run(f"UPDATE `{table.name}` SET {changes} WHERE {where}")
        self._connection.commit()

    def _delete(self, table: Table, rows: Iterable[int]) -> None:
        for where in [f" WHERE id = {id}" for id in rows] if table.alone else [""]:
            self._run(f"DELETE FROM `{table.name}`{where}")
        self._connection.commit()

    def _select(self) -> Snapshot:
        found: dict[str, dict[int, dict[str, Any]]] = {}
        for table in self.tables.values():
            parts = [(one, read) for one in table.columns for read in one.reads]
            self._run(f"SELECT id, {', '.join(read for _, read in parts)} FROM `{table.name}`")
            rows = found[table.name] = {}
            for id, *shown in self._cursor.fetchall():
                values: dict[str, list[Any]] = {}
                for (column, _), value in zip(parts, shown):
                    values.setdefault(column.name, []).append(value)
                rows[id] = {one.name: _from_select(one, values[one.name]) for one in table.columns}
        return found


_LEAST_NORMAL: Final = 2.0**-126
_TOO_GREAT: Final = 2.0**128 - 2.0**103


def _is_float32(value: float, exact: float) -> bool:
    """Whether storing a double as a FLOAT makes it ``exact``."""
    return value == exact or abs(value) < _TOO_GREAT and struct.unpack("<f", struct.pack("<f", value))[0] == exact


def _from_select(column: Column, shown: Sequence[Any]) -> Any:
    """Turn what PyMySQL gives into what canal promises: an int for BIT, an aware datetime for TIMESTAMP."""
    value = shown[0]
    if value is None:
        return None
    if column.family == "bit":
        return int.from_bytes(value, "big")
    if column.family == "timestamp" and isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if column.family == "float" and (not _is_float32(value, shown[1]) or abs(value) < _LEAST_NORMAL):
        # Six digits are too few (or, of a subnormal, more than it has): the shortest text that reads back as it.
        return next(near for n in range(1, 10) if _is_float32(near := float(f"{shown[1]:.{n}g}"), shown[1]))
    return value


# -- the two readers ---------------------------------------------------------------------------------------------------


def _read_canal(server: ThrowawayServer, database: str, start: canal.Position, end: canal.Position) -> list[Change]:
    config = canal.InstanceConfig(destination="differential", source=source(server), filter=rf"{database}\..*", start=start)
    with canal.Instance(config) as instance:
        instance.subscribe()
        with Reader(instance) as reader:
            return reader.read_up_to(end)


_OPERATIONS: Final = {WriteRowsEvent: "INSERT", UpdateRowsEvent: "UPDATE", DeleteRowsEvent: "DELETE"}


def _read_peer(server: ThrowawayServer, database: str, start: canal.Position) -> list[Change]:
    """What mysql-replication gives up to the end of the log; ``Raised`` for each row of an event that it cannot read."""
    stream = BinLogStreamReader(
        {"host": server.host, "port": server.port, "user": server.user, "password": server.password},
        server_id=random.randrange(10**8, 10**9),
        log_file=start.journal,
        log_pos=start.offset,
        resume_stream=True,
        only_events=list(_OPERATIONS),
        only_schemas=[database],
        enable_logging=False,
    )
    changes: list[Change] = []
    try:
        for event in stream:
            operation = _OPERATIONS[type(event)]
            try:
                rows = event.rows
            except Exception as error:
                raised: Any = Raised(type(error).__name__)
                changes.append((event.schema, event.table, operation, raised, raised))
                continue
            for row in rows:
                before = _peer_row(row, "before_" if operation == "UPDATE" else "") if operation != "INSERT" else None
                after = _peer_row(row, "after_" if operation == "UPDATE" else "") if operation != "DELETE" else None
                changes.append((event.schema, event.table, operation, before, after))
    finally:
        stream.close()
    return changes


def _peer_row(row: Mapping[str, Any], image: str) -> dict[str, Any]:
    reasons = row[f"{image}none_sources"]
    return {
        name: canal.ABSENT if value is None and reasons.get(name) == NONE_SOURCE.COLS_BITMAP else value
        for name, value in row[f"{image}values"].items()
    }


# -- the comparison ----------------------------------------------------------------------------------------------------


def _exact(value: Any) -> str:
    """Text that tells any two different values apart, also by type, sign of zero and number of decimals."""
    return repr(sorted(value)) if isinstance(value, set) else f"{type(value).__name__} {value!r}"


class Comparison:
    """Holds changes against SELECT and against mysql-replication, and counts."""

    def __init__(self, kind: str, image: str = "FULL") -> None:
        self.values = 0
        self.problems: list[str] = []
        self.seen: Counter[str] = Counter()
        self.faults = [one for one in FAULTS if kind in one.servers and image in one.images]

    def with_select(self, changes: Iterable[Change], inserted: Snapshot, updated: Snapshot, image: str) -> None:
        """Every value is what SELECT showed; what a MINIMAL image leaves out has not changed."""
        for _, table, operation, before, after in changes:
            id = next(one for one in (before, after) if one is not None)["id"]
            old, new = inserted[table][id], updated[table].get(id, {})
            where = f"{operation} {table} id {id}"
            if before is not None:
                shown = old if operation == "UPDATE" else new
                self._image(f"{where} before", before, shown, set() if image == "MINIMAL" else set(shown))
            if after is not None:
                former = old if operation == "UPDATE" else dict.fromkeys(old)
                shown = new if operation == "UPDATE" else old
                changed = {name for name in shown if image == "FULL" or _exact(shown[name]) != _exact(former[name])}
                self._image(f"{where} after", after, shown, changed)

    def _image(self, where: str, ours: Mapping[str, Any], shown: Mapping[str, Any], needed: set[str]) -> None:
        for name, expected in shown.items():
            got = ours[name]
            if got is canal.ABSENT:
                if name in needed:
                    self.problems.append(f"{where}: {name} is absent")
            elif _exact(_plain(got)) != _exact(expected):
                self.problems.append(f"{where}: {name} is {got!r:.300}, SELECT says {expected!r:.300}")

    def with_peer(self, ours: list[Change], theirs: list[Change], columns: Callable[[str, str], Column]) -> None:
        """Every value is what mysql-replication gives, or a fault of the list. ``columns`` finds one by table and name."""
        assert len(ours) == len(theirs), f"{PEER} gives {len(theirs)} rows instead of {len(ours)}"
        for mine, other in zip(ours, theirs):
            assert mine[:3] == other[:3], f"{PEER} gives {other[:3]} instead of {mine[:3]}"
            where = f"{mine[2]} {mine[1]}"
            images = [(one, another) for one, another in zip(mine[3:], other[3:]) if one is not None]
            cells = [
                (columns(mine[1], name), value, another if isinstance(another, Raised) else another[name])
                for one, another in images
                for name, value in one.items()
            ]
            raising = [(fault, wrong) for cell in cells for fault, wrong in self._wrong(*cell) if _is_raised(wrong)]
            raised = next((another for _, another in images if isinstance(another, Raised)), None)
            if raised is None and not raising:
                for cell in cells:
                    self._value(f"{where} id {images[0][0]['id']}", *cell)
            elif raised is None:
                self.problems.append(f"{where}: no longer a fault: {raising[0][0].what}")
            elif raised in (wrong for _, wrong in raising):
                self.seen.update(fault.what for fault, wrong in raising if wrong == raised)
            else:
                self.problems.append(f"{where}: {PEER} raises {raised.error}, row {cells!r:.300}")

    def _wrong(self, column: Column, value: Any, theirs: Any = None) -> Iterator[tuple[Fault, Any]]:
        """The faults of the list that touch a value, and what each makes of it."""
        if value is not None and value is not canal.ABSENT:
            for fault in self.faults:
                wrong = fault.gives(column, value)
                if wrong is not SAME and _exact(wrong) != _exact(in_peer_form(column, value)):
                    yield fault, wrong

    def _value(self, where: str, column: Column, value: Any, theirs: Any) -> None:
        self.values += 1
        form = value if value is None or value is canal.ABSENT else in_peer_form(column, value)
        listed = [(fault, wrong) for fault, wrong in self._wrong(column, value)]
        found = [fault for fault, wrong in listed if _exact(wrong) == _exact(theirs)]
        if found:
            self.seen[found[0].what] += 1
        elif _exact(form) != _exact(theirs):
            self.problems.append(f"{where}: {column.name} ({column.type}) is {value!r:.300}, but {PEER} gives {theirs!r:.300}")
        elif listed:
            self.problems.append(f"{where}: {column.name} is {value!r:.300}, no longer a fault: {listed[0][0].what}")

    def with_list(self, inserted: Snapshot) -> None:
        """Every fault of the list has occurred, and its example is as the list says."""
        for fault in self.faults:
            example = _example(FAULTS.index(fault), fault)
            shown = inserted[example.name][1][example.name]
            if _exact(shown) != _exact(fault.server_says):
                self.problems.append(f"{fault.what}: SELECT says {shown!r}, the list {fault.server_says!r}")
            wrong = fault.gives(example, shown)
            if _exact(wrong) != _exact(fault.peer_gives):
                self.problems.append(f"{fault.what}: foretold is {wrong!r}, the list says {fault.peer_gives!r}")
            if not self.seen[fault.what]:
                self.problems.append(f"a fault that no longer occurs: {fault.what}")

    def settle(self) -> None:
        """Fail if anything is wrong."""
        if self.problems:
            version = importlib.metadata.version("mysql-replication")
            more = [f"and {len(self.problems) - 20} more"] if len(self.problems) > 20 else []
            about = f"mysql-replication here is {version}, the list is for {PEER}"
            pytest.fail("\n".join([about, *self.problems[:20], *more]), pytrace=False)


def _is_raised(value: Any) -> bool:
    return isinstance(value, Raised)


def _plain(value: Any) -> Any:
    """A ZeroDate as the str that PyMySQL gives."""
    return str(value) if isinstance(value, str) else value


# -- the tests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
def test_every_value_is_what_select_and_the_peer_say(server: ThrowawayServer, database: str, image: str) -> None:
    """T50 to T69, T86: each against SELECT, and that none of them is as the peer has it."""
    start = end_of_log(server)
    writer = Writer(server, database, server.kind, image)
    inserted, updated = writer.write()
    ours = _read_canal(server, database, start, end_of_log(server))
    ours = [change for change in ours if change[2] != "DDL"]
    theirs = _read_peer(server, database, start)

    inserts = sum(len(rows) for rows in inserted.values())
    assert [one[2] for one in ours].count("INSERT") == inserts
    assert [one[2] for one in ours].count("DELETE") == inserts
    assert inserts > 1000
    comparison = Comparison(server.kind, image)
    comparison.with_select(ours, inserted, updated, image)
    columns = {(table.name, one.name): one for table in writer.tables.values() for one in table.columns}
    id_column = Column("id", "INT")
    comparison.with_peer(ours, theirs, lambda table, name: columns.get((table, name), id_column))
    comparison.with_list(inserted)
    comparison.settle()
    print(f"{server.kind} {image}: {len(ours)} rows, {comparison.values} values")
    print(*(f"{comparison.seen[fault.what]:6} {fault.what}" for fault in comparison.faults), sep="\n")


#: What is special about columns of the load, by name.
_LOAD_COLUMNS: Final = {
    "c_float": Column("c_float", "FLOAT", family="float"),
    "c_bit": Column("c_bit", "BIT(12)", family="bit", digits=12),
    "c_stamp": Column("c_stamp", "TIMESTAMP(3)", family="timestamp"),
    "c_time": Column("c_time", "TIME(3)", family="time"),
    "c_blob": Column("c_blob", "BLOB", family="bytes"),
    "c_raw": Column("c_raw", "VARBINARY(64)", family="bytes"),
    "c_set": Column("c_set", "SET", family="set", charset="utf8mb4"),
    "c_enum": Column("c_enum", "ENUM", family="enum", charset="utf8mb4"),
}


def test_every_row_of_a_mixed_load_is_what_the_peer_and_the_journal_say(server: ThrowawayServer, database: str) -> None:
    start = end_of_log(server)
    load = Load(server, database, seed=SEED, pause=0.02)
    load.setup()
    load.run(transactions=LOAD_TRANSACTIONS)
    ours = _read_canal(server, database, start, end_of_log(server))
    theirs = _read_peer(server, database, start)

    final = load.final_tables()
    assert check(load.journal, ours) == []
    tables, misfits = replay(load.journal, ours)
    assert misfits == []
    assert compare_tables(final, tables) == []
    ours = [change for change in ours if change[2] != "DDL"]
    document = Column("c_json", "JSON", family="json" if server.kind == "mysql" else "plain")
    columns = {**_LOAD_COLUMNS, "c_json": document}
    comparison = Comparison(server.kind)
    comparison.with_peer(ours, theirs, lambda _, name: columns.get(name) or Column(name))
    comparison.settle()
    assert len(ours) > 300
    print(f"{server.kind} load: {len(ours)} rows, {comparison.values} values")
