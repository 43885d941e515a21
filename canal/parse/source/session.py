"""A separate connection for queries while the first one streams."""

from __future__ import annotations

import logging
import re
import threading
from functools import partial
from typing import Any, Final

from canal.binlog.server_facts import SHOW_KEYS, Release, read_release
from canal.errors import AuthenticationError, ConnectionLostError
from canal.parse.schema.cascades import ForeignKey
from canal.parse.source import _pymysql
from canal.parse.source.information_schema import (
    COLUMNS_QUERY,
    NAMES_QUERY,
    UNLOGGED_QUERY,
    Accepts,
    accept_all,
    column_of,
    pieces,
    states_of,
    table_states,
    texts,
    unlogged_columns,
)
from canal.parse.source.protocol import Description
from canal.parse.source.server import ServerOptions
from canal.parse.source.server_errors import query_error
from canal.position import journal_key
from canal.schema import TableSchema

log = logging.getLogger("canal.parse")

_UNKNOWN_VARIABLE: Final = 1193


class QuerySession:
    """A connection for queries: opened by the first query, and reopened once per query if it was lost.

    One thread runs queries. Any thread may call ``close``.
    """

    def __init__(self, source: ServerOptions) -> None:
        self._source = source
        self._connection: Any = None
        #: The server's release; set by the first query.
        self.release: Release
        self._opening = _pymysql.Opening()
        self._closed = False
        self._busy = threading.Lock()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def rows(self, sql: str, args: tuple[Any, ...] = (), *, doing: str) -> list[tuple[Any, ...]]:
        """Run a query. It must be safe to repeat: a lost connection is reopened once."""
        with self._busy:
            reused = self._connection is not None
            try:
                return self._run(sql, args, doing)
            except ConnectionLostError:
                if not reused or self._closed:
                    raise
                return self._run(sql, args, doing)

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        rows = self.rows(
            COLUMNS_QUERY + " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (schema, table),
            doing=f"read the columns of {schema}.{table}",
        )
        return TableSchema(schema, table, tuple(column_of(texts(row)[2:]) for row in rows)) if rows else None

    def logs(self) -> list[tuple[str, int | None]]:
        """Return names and sizes of the server's logs, oldest first. The size is None if the server does not report it."""
        doing = "list the logs"
        try:
            return [(str(row[0]), int(row[1])) for row in self.rows("SHOW BINARY LOGS", doing=doing)]
        except AuthenticationError:  # MySQL before 5.5.25 allows SHOW BINARY LOGS only with SUPER
            first = self.rows("SHOW BINLOG EVENTS LIMIT 1", doing=doing)
            last = self.rows(self.release.status_query, doing=doing)
            if not first or not last or not (between := _names_between(str(first[0][0]), str(last[0][0]))):
                raise
            return [*((name, None) for name in between[:-1]), (between[-1], int(last[0][1]))]

    def json_columns(self, schema: str, table: str) -> set[str]:
        rows = self.rows(
            "SELECT check_clause FROM information_schema.check_constraints WHERE constraint_schema = %s AND table_name = %s",
            (schema, table),
            doing=f"read the checks of {schema}.{table}",
        )
        found = (re.fullmatch(r"json_valid\(`((?:[^`]|``)+)`\)", str(row[0])) for row in rows)
        return {one[1].replace("``", "`") for one in found if one}

    def unlogged_columns(self, schema: str, table: str) -> set[str]:
        return unlogged_columns(self.rows(UNLOGGED_QUERY, (schema, table), doing=f"read the columns of {schema}.{table}"))

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description:
        """Describe one table, or every table of the databases with an accepted table.

        Tables are queried in chunks of a few hundred, so that each answer arrives within ``read_timeout``.
        """
        doing = f"read the columns of {schema}.{table}" if schema else "list the tables"

        def ask(sql: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
            return self.rows(sql, args, doing=doing)

        ((lower_case,),) = ask("SELECT @@global.lower_case_table_names")
        databases = ask("SELECT schema_name, default_character_set_name FROM information_schema.schemata")
        unread: set[str] = set()
        if schema:
            tables = table_states(ask, schema, table, release=self.release)
        else:
            names = self.table_names()
            wanted = {name[0] for name in names if accepts(*name)}
            unread = {name[0] for name in names} - wanted
            tables = []
            for schemas, some in pieces(name for name in names if name[0] in wanted):
                of = f"{len(some) or 'all'} tables of {', '.join(schemas)}"
                doing = f"read the columns of {of}" + (f"; {len(tables)} tables are done" if tables else "")
                log.info("%s: %s", self._source.address, doing)
                tables += states_of(ask, schemas, some, release=self.release)
        return Description(tuple(tables), {str(row[0]): str(row[1]) for row in databases}, int(lower_case), frozenset(unread))

    def table_names(self) -> list[tuple[str, str]]:
        return [(str(row[0]), str(row[1])) for row in map(texts, self.rows(NAMES_QUERY, doing="list the tables"))]

    def foreign_keys(self) -> list[ForeignKey]:
        rows = self.rows(
            "SELECT constraint_schema, table_name, unique_constraint_schema, referenced_table_name, delete_rule, update_rule"
            " FROM information_schema.referential_constraints",
            doing="read the foreign keys of all tables",
        )
        keys = (ForeignKey((row[0], row[1]), (row[2], row[3]), *row[4:]) for row in (tuple(map(str, row)) for row in rows))
        return [key for key in keys if key.cascades]

    def tables_like(self, schema: str, name: str, *, is_prefix: bool) -> list[str]:
        """Return the tables of a schema with this name or name prefix.

        A prefix may miss a table: MariaDB lists tables without locks, and during a RENAME that swaps two tables neither may be
        listed. A whole name is looked up under the table's lock.
        """
        condition, args = ("LEFT(table_name, %s) = %s", (len(name), name)) if is_prefix else ("table_name = %s", (name,))
        rows = self.rows(
            f"SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND {condition}",
            (schema, *args),
            doing=f"list the tables of {schema}",
        )
        return [str(row[0]) for row in rows]

    def _run(self, sql: str, args: tuple[Any, ...], doing: str) -> list[tuple[Any, ...]]:
        if self.is_closed:
            raise ConnectionLostError(f"cannot {doing}: the connection was closed")
        is_new = self._connection is None
        self._connection = self._connection or self._source.log_in(self._opening)
        self._close_late()
        try:
            if is_new:
                self.release = read_release(partial(run, self._connection))
                if self.release.has("generated_keys"):
                    try_to_set(self._connection, SHOW_KEYS)
            return run(self._connection, sql, args)
        except (_pymysql.DriverError, OSError) as error:
            failure = query_error(error, self._source, doing)
            if isinstance(failure, ConnectionLostError):
                self._drop()
            raise failure from error

    def _close_late(self) -> None:
        """Close the connection if ``close`` was called during the login."""
        if self._closed:
            _pymysql.close(self._connection)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            _pymysql.close(connection)

    def close(self) -> None:
        self._closed = True
        self._opening.close()
        connection = self._connection
        if connection is not None:
            _pymysql.abort(connection)
        # A running query ends at once, and so does a login, unless it waits for DNS. Then the login closes the connection.
        if self._busy.acquire(blocking=connection is not None):
            self._drop()
            self._busy.release()


def _names_between(first: str, last: str) -> list[str]:
    """Return the log names from ``first`` to ``last`` inclusive; [] if their base names differ."""
    (base, begin), (other, end) = journal_key(first), journal_key(last)
    return [f"{base}.{number:06}" for number in range(begin, end + 1)] if base == other else []


def run(connection: Any, sql: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    with _pymysql.driver_errors(), connection.cursor() as cursor:
        cursor.execute(sql, args or None)
        return list(cursor.fetchall())


def try_to_set(connection: Any, setting: str) -> None:
    """Change a session setting. Ignore servers that lack it although they claim a release that has it."""
    try:
        run(connection, f"SET SESSION {setting}")
    except _pymysql.DriverError as error:
        if error.args[:1] != (_UNKNOWN_VARIABLE,):
            raise
