"""The catalog against the servers: after every statement of the log it equals what the server itself says.

The statements are applied as the server logged them, not as the test sent them. Tests of T75 to T85.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from canal.parse.catalog import Catalog, TableState
from canal.parse.events import ddl_context, parse_format, query_context
from canal.parse.source import _COLUMNS_QUERY, MySQLConnection, _column
from canal.parse.tables import parse_table_map, schema_from_map
from canal.schema import ColumnSchema, TableSchema
from canal.testing.servers import ThrowawayServer
from tests.live.helpers import source

QUERY, FORMAT, TABLE_MAP = 2, 15, 19

Columns = tuple[tuple[Any, ...], ...]


def facts(column: ColumnSchema) -> tuple[Any, ...]:
    """What a look-up and the catalog both know. An ENUM of bytes has the charset binary on one server, none on the other."""
    charset = None if column.charset == "binary" else column.charset
    return (
        column.name, column.column_type, charset, column.nullable, column.key, column.visible, column.labels,
        column.unsigned, column.type_code,
    )  # fmt: skip


def logged_facts(column: ColumnSchema) -> tuple[Any, ...]:
    """What a table map with full metadata knows exactly. It calls a YEAR unsigned."""
    return column.name, column.nullable, column.unsigned and column.type_code != 13, column.key, column.labels


class Oracle:
    """Runs statements on a server and follows its log with a catalog."""

    def __init__(self, server: ThrowawayServer, databases: tuple[str, ...]) -> None:
        self.server, self.databases = server, databases
        self.session = server.connect(autocommit=True)
        self.cursor = self.session.cursor()
        self.asker: MySQLConnection = source(server).connect()
        self.dump: MySQLConnection = source(server).connect()
        start = self.dump.resolve("latest")
        self.dump.dump(start)
        self.at = (start.journal, start.offset)
        self.observer = server.connect(autocommit=True)
        self.catalog = Catalog()
        self.flavor = self.asker.flavor
        self.version: tuple[int, ...] = ()
        self.statements: list[str] = []
        self.doubtful: set[tuple[str, str]] = set()
        self.failed = 0
        for database in databases:
            charset = server.query(
                "SELECT default_character_set_name FROM information_schema.schemata WHERE schema_name = %s", database
            )[0][0]
            self.catalog.set_database(database, charset)

    def close(self) -> None:
        self.session.close()
        self.observer.close()
        self.asker.close()
        self.dump.close()

    def run(self, sql: str, *, compare: bool = True) -> bool:
        """Run a statement, follow the log to its present end and compare; False when the server refused it."""
        try:
            self.cursor.execute(sql)
            self.cursor.fetchall()
        except pymysql.MySQLError:
            self.failed += 1
            return False
        before = len(self.statements)
        self.follow()
        if compare and len(self.statements) > before:
            self.compare(sql)
        return True

    def follow(self) -> None:
        end = self.asker.resolve("latest")
        while self.at < (end.journal, end.offset):
            events = self.dump.read(10.0)
            assert events, "the log ended early"
            for event in events:
                self.take(event)
                place = int.from_bytes(event[13:17], "little")
                self.at = (end.journal, place) if place else self.at

    def take(self, event: bytes) -> None:
        if event[4] == FORMAT:
            numbers = parse_format(event).server_version.split("-")[0].split(".")
            self.version = tuple(int(number) for number in numbers)
        elif event[4] == QUERY:
            start = 32 + int.from_bytes(event[30:32], "little")
            status, text = event[32:start], event[start : len(event) - 4]
            schema, sql = text[: event[27]], text[event[27] + 1 :]
            codec, sql_mode = query_context(status)
            context = ddl_context(status, mariadb=self.flavor == "mariadb")
            self.statements.append(sql.decode(codec))
            applied = self.catalog.apply(
                self.statements[-1], schema.decode(), sql_mode=sql_mode, flavor=self.flavor,
                server_charset=context.server_charset or "", version=self.version,
                explicit_defaults=context.explicit_defaults, session=int.from_bytes(event[19:23], "little"),
            )  # fmt: skip
            self.doubtful.update(applied.doubtful)
        elif event[4] == TABLE_MAP:
            self.check_map(schema_from_map(parse_table_map(event[25 : len(event) - 4])))

    def check_map(self, logged: TableSchema) -> None:
        """Compare with what the log itself says of the columns of its rows, hidden ones among them."""
        state = self.catalog.get(logged.schema, logged.table)
        if state is not None:
            found = [logged_facts(column) for column in state.schema.columns]
            assert found == [logged_facts(column) for column in logged.columns], (logged.name, self.statements[-3:])

    def tables(self) -> dict[tuple[str, str], Columns]:
        """What the server says."""
        with self.observer.cursor() as cursor:
            cursor.execute(
                f"{_COLUMNS_QUERY} WHERE table_schema IN %s ORDER BY ordinal_position", (self.databases,)
            )
            rows = cursor.fetchall()
            cursor.execute("SELECT table_schema, table_name FROM information_schema.views")
            views = cursor.fetchall()
        found: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        for row in rows:
            if row[:2] not in views:
                found.setdefault(row[:2], []).append(facts(_column(row)))
        return {name: tuple(columns) for name, columns in found.items()}

    def compare(self, sql: str) -> None:
        expected = self.tables()
        known = {(s.schema.schema, s.schema.table): s for s in self.catalog.tables()}
        missing = {table for table in expected if table not in known and not self.catalog.is_doubtful(*table)}
        assert not missing, f"{missing} not known after {sql!r}"
        assert not known.keys() - expected.keys(), f"no such tables after {sql!r}"
        for name, state in known.items():
            assert tuple(map(facts, state.shown)) == expected[name], f"{name} after {sql!r}, logged {self.statements[-1]!r}"

    def put_doubtful(self) -> None:
        """Read again what is doubtful, as the schema history does."""
        for schema, table in list(self.catalog._doubtful.values()):
            found = self.asker.table_columns(schema, table)
            if found is not None:
                self.catalog.put(TableState(found, "utf8mb4"))
        self.doubtful.clear()


@pytest.fixture
def oracle(server: ThrowawayServer, database: str) -> Iterator[Oracle]:
    other = f"{database}_b"
    server.query(f"CREATE DATABASE `{other}` CHARACTER SET latin1")
    made = Oracle(server, (database, other))
    made.cursor.execute(f"USE `{database}`")
    try:
        yield made
    finally:
        made.close()
        server.query(f"DROP DATABASE IF EXISTS `{other}`")


#: One statement a line; a server may refuse any of them. {a} and {b} are the databases, ``\n`` at a space a line's end.
STATEMENTS = Path(__file__).with_name("ddl.sql")


def test_the_catalog_equals_the_server_after_every_statement(oracle: Oracle, database: str) -> None:
    oracle.cursor.execute("SET SESSION sql_mode = DEFAULT")
    accepted = 0
    for line in STATEMENTS.read_text().splitlines():
        sql = line.replace("\\n ", "\n ").replace("{a}", database).replace("{b}", f"{database}_b")
        if sql:
            accepted += oracle.run(sql)
            if sql.lower().startswith(("create table", "alter table")):
                _insert(oracle, sql)

    assert accepted > 130
    assert {f"{table}" for _, table in oracle.doubtful} <= {"v2", "v"}


def _insert(oracle: Oracle, sql: str) -> None:
    """A row into every table that is known, for the table maps; most refuse it."""
    for state in oracle.catalog.tables():
        name = f"`{state.schema.schema}`.`{state.schema.table.replace('`', '``')}`"
        if state.schema.table in sql:
            oracle.run(f"insert ignore into {name} () values ()", compare=False)
