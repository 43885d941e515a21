"""SQL targets put many rows in columns, and few one by one: what is in the tables is the same, whatever the type."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import attrs
import duckdb
import psycopg
import pytest

import canal
from canal.changes.fold import ArrowState
from canal.errors import ConnectionLostError, UnfitChangeError
from canal.targets import DuckDBTarget, MySQLTarget, PostgreSQLTarget, SQLiteTarget, copy_binary, load_data
from canal.targets.sql import SQLWork
from canal.testing import FakeBinlog
from canal.testing.proxy import FaultProxy
from canal.testing.servers import ThrowawayServer
from tests.support.pipes import life
from tests.support.target_servers import PostgreSQLServer

_TEXTS: Final = ("", "a", "tail ", " head", "NULL", "\\N", "a\tb\nc\rd\\e\"f'g,h;%s%%", "é", "😀", "\\", '"', "null", "0")
_MOMENTS: Final = (datetime(1000, 1, 1), datetime(1969, 12, 31, 23, 59, 59), datetime(9999, 12, 31, 23, 59, 59))
#: By type, values of each kind that it has; NULL is stored too where it is no key.
TYPES: Final[dict[str, tuple[Any, ...]]] = {
    **{
        f"{kind}INT": (0, 1, -1, (1 << bits - 1) - 1, -1 << bits - 1)
        for kind, bits in (("TINY", 8), ("SMALL", 16), ("MEDIUM", 24), ("", 32), ("BIG", 64))
    },
    **{
        f"{kind}INT UNSIGNED": (0, 1, 1 << bits - 1, (1 << bits) - 1)
        for kind, bits in (("TINY", 8), ("SMALL", 16), ("MEDIUM", 24), ("", 32), ("BIG", 64))
    },
    "BIT(1)": (0, 1),
    "BIT(12)": (0, 48, 4095),
    "BIT(64)": (0, 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1),
    "YEAR": (0, 1901, 1970, 2000, 2155),
    "FLOAT": (0.1, 0.3, -1.5, 1e-45, 1.17549435e-38, 3.4e38, 16777216.0, 123456.789, 1e7, 0.0009),
    "DOUBLE": (0.1, -1.5, 4.94e-324, 1.7976931348623157e308, 0.30000000000000004, 1e22, 1e7, 0.001),
    "DECIMAL(12,4)": (Decimal("0"), Decimal("1.5"), Decimal("-99999999.9999"), Decimal("0.0001")),
    "DECIMAL(20,0)": (Decimal(0), Decimal("-" + "9" * 20), Decimal(1 << 64)),
    "DECIMAL(38,10)": (Decimal("0"), Decimal("1E-10"), Decimal("9" * 28 + "." + "9" * 10), Decimal("-12345678.000001")),
    "DECIMAL(65,30)": (Decimal("0"), Decimal("-1E-30"), Decimal("9" * 35 + "." + "9" * 30)),
    "DATE": (date(1000, 1, 1), date(1582, 10, 10), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)),
    "DATETIME": _MOMENTS,
    "DATETIME(3)": (*_MOMENTS, datetime(2026, 1, 2, 3, 4, 5, 120000)),
    "DATETIME(6)": (*_MOMENTS, datetime(2026, 1, 2, 3, 4, 5, 1)),
    "TIMESTAMP(6) NULL": tuple(
        datetime(*fields, tzinfo=UTC) for fields in ((1970, 1, 1, 0, 0, 1), (2026, 3, 29, 1, 30, 0, 5), (2038, 1, 19, 3, 14, 7))
    ),
    "TIME(6)": tuple(
        timedelta(0, seconds, micros)
        for seconds, micros in ((0, 0), (-1, 0), (-1, 999999), (0, 1), (3020399, 0), (-3020399, 0), (86400, 0), (-360000, -5))
    ),
    "CHAR(30)": tuple(text.rstrip(" ") for text in _TEXTS),
    "VARCHAR(30)": _TEXTS,
    "TEXT": (*_TEXTS, "é" * 9000),
    "VARCHAR(30) CHARACTER SET latin1": ("", "é", "NULL", "a\\b"),
    "BINARY(4)": (b"\0\0\0\0", b"\\N\xff\n"),
    "VARBINARY(20)": (b"", b"\0", b"\\N", b"NULL", b"a\tb\nc\xff\xc3"),
    "BLOB": (b"", b"\0\xff" * 4000, b"1"),
    "ENUM('a','b''c\\\\d','2','1')": ("a", "b'c\\d", "1", "2"),
    "SET('x','y','z w')": ("", "x", "x,z w"),
    "JSON": ('{"a": 1.50, "b": "é\\n\\\\"}', "[]", "null", '"NULL"', "0"),
}
#: Those that no key may have, or only by its beginning.
_NO_KEYS: Final = ("TEXT", "BLOB", "JSON", "FLOAT", "DOUBLE", "BIT")


@attrs.frozen
class Base:
    """A kind of database: a target of it, and a connection that is not the library's."""

    target: Callable[[str], Any]
    connect: Callable[[str], AbstractContextManager[Any]]
    select: str = "SELECT * FROM {0}.{1} ORDER BY 1, 2"
    #: Whether tables have schemas.
    has_schemas: bool = True
    #: Types whose tables are put row by row.
    by_row: frozenset[str] = frozenset()
    #: Types that no key may have.
    no_keys: tuple[str, ...] = _NO_KEYS

    def read(self, schema: str, tables: Iterable[str]) -> dict[str, list[tuple[Any, ...]]]:
        with self.connect(schema) as connection:
            return {table: self.ask(connection, self.select.format(schema, table)) for table in tables}

    def run(self, schema: str, *statements: str) -> None:
        with self.connect(schema) as connection:
            for sql in statements:
                self.ask(connection, sql)
            if not self.has_schemas:
                connection.commit()

    @staticmethod
    def ask(connection: Any, sql: str) -> list[tuple[Any, ...]]:
        cursor = connection.cursor()
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


def duckdb_base(folder: Path) -> Base:
    path, one = folder / "copy.duckdb", {"threads": 1}
    return Base(
        lambda schema: DuckDBTarget(path, config=one),
        lambda schema: closing(duckdb.connect(str(path), config=one)),
        "SELECT *, s::VARCHAR FROM {0}.{1} s ORDER BY ALL",
        no_keys=(*_NO_KEYS, "TIME("),
    )


def sqlite_base(folder: Path) -> Base:
    """Its tables have no schema, so each way has a file of its own."""
    return Base(
        lambda schema: SQLiteTarget(folder / f"{schema}.db"),
        lambda schema: closing(sqlite3.connect(folder / f"{schema}.db")),
        "SELECT * FROM {1} ORDER BY 1, 2",
        has_schemas=False,
    )


def postgresql_base(server: PostgreSQLServer) -> Base:
    return Base(
        lambda schema: PostgreSQLTarget(server.conninfo, progress_table=f"p_{schema}"),
        lambda schema: psycopg.connect(server.conninfo),
        "SELECT *, s::text FROM {0}.{1} s ORDER BY s::text",
    )


def mysql_base(server: ThrowawayServer) -> Base:
    def target(schema: str) -> MySQLTarget:
        options = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        return MySQLTarget(options, database=f"p_{schema}")

    def connect(schema: str) -> Any:
        return closing(server.connect(conv={}))  # no Python values: the text of the server

    return Base(target, connect, "SELECT * FROM {0}.{1} ORDER BY 1, 2")


@contextmanager
def local_infile(server: ThrowawayServer, is_on: bool) -> Iterator[None]:
    ((before,),) = server.query("SELECT @@GLOBAL.local_infile")
    server.query(f"SET GLOBAL local_infile = {is_on:d}")
    yield
    server.query(f"SET GLOBAL local_infile = {before}")


@pytest.fixture(params=["duckdb", "sqlite", "postgresql_server", "mysql_server", "mariadb_server"])
def base(request: pytest.FixtureRequest, folder: Path) -> Iterator[Base]:
    if request.param in ("duckdb", "sqlite"):
        yield {"duckdb": duckdb_base, "sqlite": sqlite_base}[request.param](folder)
        return
    server = request.getfixturevalue(request.param)
    if request.param == "postgresql_server":
        yield postgresql_base(server)
        return
    with local_infile(server, True):
        yield mysql_base(server)


@pytest.fixture
def names() -> tuple[str, str]:
    """Of two schemas, one for each way."""
    name = uuid.uuid4().hex[:12]
    return f"r{name}", f"c{name}"


class Ways:
    """Writes what a function logs by rows and by columns, into two schemas, and compares the tables."""

    def __init__(self, base: Base, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.base, self._patch, self._folder = base, monkeypatch, folder
        self.schemas = names
        self.logs = tuple(FakeBinlog() for _ in names)
        self.put: dict[str, int] = {}
        kind = type(self._work())
        real = kind.put_columns

        def counted(own: Any, name: str, table: Any, rows: ArrowState) -> None:
            self.put[table.path[-1]] = self.put.get(table.path[-1], 0) + 1
            real(own, name, table, rows)

        monkeypatch.setattr(kind, "put_columns", counted)

    def _work(self) -> Any:
        with self.base.target(self.schemas[0]).begin("other") as work:
            return work

    def make(self, *statements: str) -> None:
        """Run statements about a table ``t`` of each schema."""
        for schema in self.schemas:
            name = f"{schema}.t" if self.base.has_schemas else "t"
            made = [f"CREATE SCHEMA {schema}"] if self.base.has_schemas else []
            self.base.run(schema, *made, *(sql.format(name) for sql in statements))

    def send(self, log: Callable[[Any, str], None], ways: slice = slice(None)) -> None:
        """Log the same in both logs, and follow them to their ends."""
        for schema, fake, least in list(zip(self.schemas, self.logs, (None, 0)))[ways]:
            self._patch.setattr(SQLWork, "arrow_from", least)
            fake.log.ended = False
            log(fake, schema)
            fake.end()
            folder = self._folder / schema
            folder.mkdir(exist_ok=True)
            with life(fake, folder, filter=r".*\..*") as instance:
                canal.pipe(instance, self.base.target(schema), stream=schema, on_error="stop").run()

    def same(self, *tables: str) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of the tables, which are the same in both schemas."""
        found = [self.base.read(schema, tables) for schema in self.schemas]
        assert found[0] == found[1]
        return found[0]


@pytest.fixture
def ways(base: Base, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Ways]:
    found = Ways(base, names, monkeypatch, folder)
    yield found
    for fake in found.logs:
        fake.close()


def test_values_of_each_type_are_the_same_both_ways(ways: Ways) -> None:
    tables = {f"v{number}": kind for number, kind in enumerate(TYPES)}

    def log(fake: FakeBinlog, schema: str) -> None:
        for name, kind in tables.items():
            table = fake.table(schema, name, f"id INT PRIMARY KEY, v {kind}")
            values = (None, *TYPES[kind])
            table.insert(*({"id": number, "v": value} for number, value in enumerate(values)))

    def change(fake: FakeBinlog, schema: str) -> None:
        for name, kind in tables.items():
            table, values = fake.table(schema, name, f"id INT PRIMARY KEY, v {kind}"), (None, *TYPES[kind])
            with fake.transaction():
                for number, value in enumerate(values):
                    table.update({"id": number, "v": value}, {"v": values[number - 1]})
                table.delete({"id": 0, "v": values[-1]})

    ways.send(log)
    first = ways.same(*tables)
    ways.send(change)
    last = ways.same(*tables)

    assert {tables[name] for name in tables if ways.put.get(name) != 2} == ways.base.by_row
    assert all(len(first[name]) == len(last[name]) + 1 == len(TYPES[kind]) + 1 for name, kind in tables.items())


def test_rows_that_partial_images_complete_are_read_as_they_were_put(base: Base, names: tuple[str, str], folder: Path) -> None:
    """A row of ``v…`` is put whole, and one of ``p…`` is changed by an image that has its key and one column alone."""
    fake, schema = FakeBinlog(), names[0]
    kinds = {number: (kind, not kind.startswith(base.no_keys)) for number, kind in enumerate(TYPES)}

    def table(name: str, kind: str, is_key: bool) -> Any:
        key = f"k {kind.removesuffix(' NULL')}" if is_key else "k INT"
        return fake.table(schema, name, f"{key}, v {kind}, n INT, PRIMARY KEY (k)")

    def rows(kind: str, is_key: bool, n: int) -> list[dict[str, Any]]:
        return [{"k": value if is_key else number, "v": value, "n": n} for number, value in enumerate(TYPES[kind])]

    def follow() -> None:
        fake.end()
        with life(fake, folder, filter=r".*\..*") as instance:
            canal.pipe(instance, base.target(schema), stream=schema, on_error="stop").run()
        fake.log.ended = False

    for number, (kind, is_key) in kinds.items():
        table(f"v{number}", kind, is_key).insert(*rows(kind, is_key, 1))
        table(f"p{number}", kind, is_key).insert(*rows(kind, is_key, 0))
    follow()
    fake.row_image = "MINIMAL"
    for number, (kind, is_key) in kinds.items():
        for row in rows(kind, is_key, 0):
            table(f"p{number}", kind, is_key).update(row, {"n": 1})
    follow()

    found = base.read(schema, [f"{way}{number}" for way in "vp" for number in kinds])
    assert {kind: found[f"p{number}"] for number, (kind, _) in kinds.items()} == {
        kind: found[f"v{number}"] for number, (kind, _) in kinds.items()
    }
    fake.close()


def test_keys_of_each_type_are_found_again_both_ways(ways: Ways) -> None:
    tables = {f"k{number}": kind for number, kind in enumerate(TYPES) if not kind.startswith(ways.base.no_keys)}

    def log(fake: FakeBinlog, schema: str) -> None:
        for name, kind in tables.items():
            table = fake.table(schema, name, f"k {kind}, m INT, n INT, PRIMARY KEY (k, m)".replace(" NULL", ""))
            table.insert(*({"k": value, "m": number % 2, "n": number} for number, value in enumerate(TYPES[kind])))

    def change(fake: FakeBinlog, schema: str) -> None:
        for name, kind in tables.items():
            table = fake.table(schema, name, f"k {kind}, m INT, n INT, PRIMARY KEY (k, m)".replace(" NULL", ""))
            first, *others = [{"k": value, "m": number % 2, "n": number} for number, value in enumerate(TYPES[kind])]
            with fake.transaction():
                table.delete(first)
                table.update(*(row for old in others for row in (old, {"n": 100})))
                table.insert({**first, "m": 5})

    ways.send(log)
    ways.same(*tables)
    ways.send(change)
    last = ways.same(*tables)

    assert all(len(last[name]) == len(TYPES[kind]) for name, kind in tables.items())
    assert {str(row[2]) for name in tables for row in last[name]} == {"0", "100"}


def history(seed: int) -> tuple[str, list[list[tuple[str, dict[str, Any], dict[str, Any]]]]]:
    """Columns of a table, and transactions of its rows: an operation, the row before it, and the one after it."""
    chance = random.Random(seed)
    others = chance.sample(list(TYPES), 4)
    keys, make = chance.choice(
        [
            ("id INT", lambda n: {"id": n}),
            ("id VARCHAR(40)", lambda n: {"id": f"k{n % 7}-{n}"}),
            ("id BIGINT UNSIGNED, sub DATE", lambda n: {"id": (1 << 63) + n // 5, "sub": date(2026, 1, 1 + n % 5)}),
        ]
    )
    columns = ", ".join([keys, *(f"c{number} {kind}" for number, kind in enumerate(others))])
    rows: dict[int, dict[str, Any]] = {}

    def row(key: int) -> dict[str, Any]:
        values = {f"c{number}": chance.choice([None, *TYPES[kind]]) for number, kind in enumerate(others)}
        return {**make(key), **values}

    def step() -> tuple[str, dict[str, Any], dict[str, Any]]:
        way = chance.random()
        there, free = list(rows), [key for key in range(40) if key not in rows]
        if not there or (free and way < 0.4):
            key = chance.choice(free)
            rows[key] = made = row(key)
            return "insert", {}, made
        key = chance.choice(there)
        old = rows.pop(key)
        if way < 0.55:
            return "delete", old, {}
        if free and way < 0.7:
            key = chance.choice(free)
        rows[key] = made = row(key)
        return "update", old, made

    names = ", ".join(make(0))
    return f"{columns}, PRIMARY KEY ({names})", [[step() for _ in range(chance.randint(1, 40))] for _ in range(6)]


def test_random_changes_come_to_the_same_both_ways(ways: Ways, full_size: bool) -> None:
    seeds = range(200 if full_size else 8)
    histories = {f"h{seed}": history(seed) for seed in seeds}

    def log(fake: FakeBinlog, schema: str, number: int) -> None:
        for name, (columns, transactions) in histories.items():
            table = fake.table(schema, name, columns)
            with fake.transaction():
                for way, before, after in transactions[number]:
                    getattr(table, way)(*(row for row in (before, after) if row))

    for number in range(6):
        ways.send(lambda fake, schema, at=number: log(fake, schema, at))  # type: ignore[misc]
        ways.same(*histories)

    assert set(ways.put) == set(histories)


def test_columns_of_the_targets_own_stay_and_rows_that_are_there_are_not_refused(ways: Ways) -> None:
    ways.make(
        "CREATE TABLE {} (mine VARCHAR(9) DEFAULT 'new', n INT, id INT PRIMARY KEY)",
        "INSERT INTO {} (id, n, mine) VALUES (1, 0, 'kept'), (2, 0, 'kept'), (3, 0, 'gone')",
    )

    def log(fake: FakeBinlog, schema: str) -> None:
        table = fake.table(schema, "t", "id INT PRIMARY KEY, n INT")
        table.insert({"id": 1, "n": 1}, {"id": 4, "n": 4})  # the first is there, such as by an initial load
        table.update({"id": 2, "n": 0}, {"n": 2})
        table.update({"id": 5, "n": 0}, {"n": 5})  # is not there
        table.delete({"id": 3, "n": 0})
        table.insert({"id": 3, "n": 3})

    ways.send(log)

    rows = {int(row[2]): (row[0], int(row[1])) for row in ways.same("t")["t"]}
    assert rows == {1: ("kept", 1), 2: ("kept", 2), 3: ("new", 3), 4: ("new", 4), 5: ("new", 5)}
    assert ways.put == {"t": 1}


def test_unique_values_that_change_places_pass_both_ways(ways: Ways) -> None:
    ways.make("CREATE TABLE {} (id INT PRIMARY KEY, n INT UNIQUE, mine INT DEFAULT 1)")

    def log(fake: FakeBinlog, schema: str) -> None:
        fake.table(schema, "t", "id INT PRIMARY KEY, n INT").insert(*({"id": n, "n": n} for n in range(9)))

    def swap(fake: FakeBinlog, schema: str) -> None:
        table = fake.table(schema, "t", "id INT PRIMARY KEY, n INT")
        table.update({"id": 1, "n": 1}, {"n": 100}, {"id": 2, "n": 2}, {"n": 1}, {"id": 1, "n": 100}, {"n": 2})
        table.update({"id": 3, "n": 3}, {"n": 30})
        table.insert({"id": 20, "n": 3})

    ways.send(log)
    ways.send(swap)

    rows = {int(row[0]): int(row[1]) for row in ways.same("t")["t"]}
    assert rows == {0: 0, 1: 2, 2: 1, 3: 30, 20: 3, **{n: n for n in range(4, 9)}}
    assert ways.put == {"t": 2}


def test_rows_that_are_refused_are_named_one_by_one_both_ways(ways: Ways) -> None:
    ways.make("CREATE TABLE {} (id INT PRIMARY KEY, n INT, CHECK (n <> 7))")

    def log(fake: FakeBinlog, schema: str) -> None:
        table = fake.table(schema, "t", "id INT PRIMARY KEY, n INT")
        table.insert(*({"id": n, "n": 7 if n in (3, 30) else 0} for n in range(40)))

    with pytest.raises(UnfitChangeError) as rows:
        ways.send(log, ways=slice(0, 1))
    with pytest.raises(UnfitChangeError) as columns:
        ways.send(log, ways=slice(1, 2))

    for error in (rows.value, columns.value):
        assert sorted(change.row["id"] for change in error.changes) == [3, 30]
    assert rows.value.message.partition(": ")[2] == columns.value.message.partition(": ")[2]
    assert ways.same("t") == {"t": []}
    assert ways.put == {"t": 1}


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def mysql(request: pytest.FixtureRequest) -> ThrowawayServer:
    found: ThrowawayServer = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("lacks", ["local_infile", "temporary tables"])
def test_mysql_that_cannot_load_is_put_rows(
    lacks: str, mysql: ThrowawayServer, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    base, user = mysql_base(mysql), f"u{names[0]}"
    mysql.query(f"CREATE USER {user} IDENTIFIED BY 'secret'")
    mysql.query(f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER ON *.* TO {user}")
    account = {"host": mysql.host, "port": mysql.port, "user": user, "password": "secret"}
    if lacks == "temporary tables":
        base = attrs.evolve(base, target=lambda schema: MySQLTarget(account, database=f"p_{schema}"))

    def log(fake: FakeBinlog, schema: str) -> None:
        fake.table(schema, "t", "id INT PRIMARY KEY, n INT").insert(*({"id": n, "n": n} for n in range(300)))

    with local_infile(mysql, lacks != "local_infile"):
        ways = Ways(base, names, monkeypatch, folder)
        ways.send(log)

        assert len(ways.same("t")["t"]) == 300
    assert ways.put == {}


@pytest.mark.parametrize("server", ["postgresql_server", "mysql_server", "mariadb_server"])
def test_connection_that_breaks_within_the_rows_leaves_nothing(
    server: str, request: pytest.FixtureRequest, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    of = request.getfixturevalue(server)
    base = postgresql_base(of) if server == "postgresql_server" else mysql_base(of)
    way = (copy_binary, "pieces") if server == "postgresql_server" else (load_data, "lines")
    real = getattr(*way)

    def log(fake: FakeBinlog, schema: str) -> None:
        table = fake.table(schema, "t", "id INT PRIMARY KEY, text VARCHAR(3000)")
        table.insert(*({"id": n, "text": "x" * 3000} for n in range(300)))

    with FaultProxy(of.host, of.port) as proxy, contextlib.ExitStack() as stack:
        if server != "postgresql_server":
            stack.enter_context(local_infile(of, True))
        ways = Ways(base, names, monkeypatch, folder)
        monkeypatch.setattr(*way, lambda rows: broken(real(rows), proxy))
        there = {"host": proxy.host, "port": proxy.port}
        if server == "postgresql_server":
            ways.base = attrs.evolve(base, target=lambda schema: attrs.evolve(base.target(schema), options=there))
        else:
            ways.base = attrs.evolve(
                base, target=lambda schema: attrs.evolve(made := base.target(schema), connect={**made.connect, **there})
            )
        with pytest.raises(ConnectionLostError):
            ways.send(log, ways=slice(1, 2))
        monkeypatch.setattr(*way, real)
        ways.base = base
        assert base.read(names[1], ["t"]) == {"t": []}

        ways.send(log, ways=slice(1, 2))

        assert len(base.read(names[1], ["t"])["t"]) == 300
        assert ways.put == {"t": 2}


def broken(pieces: Iterator[Any], proxy: FaultProxy) -> Iterator[Any]:
    """The pieces; the connection breaks after the first two."""
    for number, piece in enumerate(pieces):
        if number == 2:
            proxy.cut()
        yield piece
