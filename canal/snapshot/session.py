"""A connection that reads tables: values as the server keeps them, a table's columns and keys, and positions in its log.

Never reads rows of a table by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Self

import attrs

from canal.binlog.server_facts import SHOW_KEYS, read_server
from canal.errors import AuthenticationError, ConfigError, ServerError
from canal.parse.schema.table_state import TableVersion
from canal.parse.source import _pymysql
from canal.parse.source.information_schema import table_states
from canal.parse.source.mysql import MySQLSource
from canal.parse.source.server_errors import query_error
from canal.parse.source.session import run, try_to_set
from canal.position import Position
from canal.schema import TableSchema
from canal.snapshot.images import RowImages
from canal.snapshot.keys import quoted

#: Rows and bytes of a batch at most, about.
BATCH_ROWS: Final = 16384
BATCH_BYTES: Final = 16 << 20
#: Seconds without a byte of an answer.
_READ_TIMEOUT: Final = 600.0
#: What mends a table that is not there.
NO_TABLE: Final = (
    "Name a table as schema.table, with the case of the server, and GRANT SELECT on it. Where it was renamed, follow its new "
    "name with a new checkpoint and a snapshot."
)


@attrs.frozen
class Found:
    """A table as the server has it: its columns and keys, its engine, and the estimates of its rows and their bytes."""

    state: TableVersion
    engine: str
    rows: int
    row_bytes: int

    @property
    def is_transactional(self) -> bool:
        return self.engine.lower() in ("innodb", "rocksdb")


class SnapshotSession:
    """A connection that gives every value as the server keeps it: bytes, in UTC, in the column's own charset."""

    def __init__(self, source: MySQLSource) -> None:
        self.source = attrs.evolve(source, read_timeout=max(source.read_timeout, _READ_TIMEOUT))
        self.connection: Any = self.source.log_in(_pymysql.Opening())

    def __enter__(self) -> Self:
        try:
            with self._errors("ask for the settings"):
                self.server = read_server(partial(run, self.connection), self.source)
            # The mode takes every date that a row can hold, and pads nothing; a limit would cut a table short.
            self.run(
                "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00', character_set_results = NULL,"
                f" net_write_timeout = {self.source.net_write_timeout}, sql_big_selects = 1,"
                f" sql_select_limit = {(1 << 64) - 1}"
            )
            self.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            with self._errors("prepare a snapshot"):
                if self.server.has("generated_keys"):
                    try_to_set(self.connection, SHOW_KEYS)
                if self.server.has("time_limit"):
                    limit = "max_statement_time" if self.server.is_mariadb else "max_execution_time"
                    try_to_set(self.connection, f"{limit} = 0")
        except BaseException:
            self.__exit__()
            raise
        _pymysql.return_bytes(self.connection)
        return self

    def __exit__(self, *_: object) -> None:
        _pymysql.close(self.connection)

    @property
    def flavor(self) -> str:
        return str(self.server.flavor)

    def run(self, sql: str, args: tuple[Any, ...] = (), doing: str = "read a snapshot") -> list[tuple[Any, ...]]:
        """All rows of a query; their values are bytes or None."""
        with self._errors(doing):
            return run(self.connection, sql, args)

    def begin(self) -> None:
        """Begin a transaction that sees the tables as they are now."""
        self.run("START TRANSACTION WITH CONSISTENT SNAPSHOT" + ", READ ONLY" * self.server.has("read_only_transactions"))

    def stream(self, sql: str) -> Iterator[list[tuple[bytes | None, ...]]]:
        """The rows of a query as they come, some at once."""
        with self._errors("read a snapshot"):
            yield from _pymysql.stream(self.connection, sql, BATCH_ROWS, BATCH_BYTES)

    def receive(self, sql: str, images: Callable[[int], RowImages]) -> Iterator[RowImages]:
        """Have the rows of a query collected, and yield what collects them, again and again.

        Args:
            images: makes what collects them, of the number of the packet of the first row.
        """
        with self._errors("read a snapshot"):
            yield from _pymysql.receive(self.connection, sql, images)

    def abort(self) -> None:
        """End the connection from another thread."""
        _pymysql.abort(self.connection)

    def explain(self, sql: str) -> dict[str, Any]:
        """The first row of an EXPLAIN by the names of its columns."""
        with self._errors("find the chunks of a table"), _pymysql.driver_errors(), self.connection.cursor() as cursor:
            cursor.execute(sql)
            row = cursor.fetchone()
            return dict(zip((one[0] for one in cursor.description), row))

    def table(self, schema: str, table: str) -> Found:
        """A table as it is now.

        Raises:
            ConfigError: there is none, it is a view, or the user may not see it.
        """

        def ask(sql: str, args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
            return self.run(sql, args, f"read the columns of {schema}.{table}")

        states = table_states(ask, schema, table, release=self.server)
        facts = ask(
            "SELECT engine, table_rows, avg_row_length FROM information_schema.tables"
            " WHERE table_schema = %s AND table_name = %s",
            (schema, table),
        )
        if not states or not facts:
            raise ConfigError(
                f"{self.source.address} has no table {schema}.{table}, or {self.source.user!r} may not see it", remedy=NO_TABLE
            )
        engine, rows, row_bytes = facts[0]
        return Found(states[0], (engine or b"").decode(), int(rows or 0), int(row_bytes or 0))

    def collations(self, schema: str, table: str, columns: tuple[str, ...]) -> tuple[str, ...]:
        """The collation of each column as it is now; "" where it has none."""
        rows = self.run(
            "SELECT column_name, collation_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
            (schema, table),
        )
        found = {name.decode(): (collation or b"").decode() for name, collation in rows}
        return tuple(found.get(name, "") for name in columns)

    @contextlib.contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (_pymysql.DriverError, OSError) as error:
            raise query_error(error, self.source, doing) from error


# -- the position in the log ----------------------------------------------------------------------------------------------


def barrier(session: SnapshotSession, found: Found, lock_timeout: float, *, stay: bool) -> tuple[Position, int]:
    """The position in the log up to which every change of the table is in the table, and the time there in microseconds.

    With ``stay`` a transaction stays open that sees the table as it is at just this position.
    """
    if stay and not found.is_transactional:
        raise ConfigError(
            f"{found.state.schema.name} has the engine {found.engine}, which cannot be read at one moment",
            remedy="ALTER TABLE … ENGINE = InnoDB, or take snapshot=initial, into a sink that keeps the latest row of a key.",
        )
    if session.flavor == "mariadb" and found.is_transactional:
        return _mariadb_barrier(session, stay)
    with _locked(session, found.state.schema, lock_timeout) as other:
        # The lock is held by another session: to begin a transaction would give it up.
        if stay:
            session.begin()
        return end_of_log(other)


def end_of_log(session: SnapshotSession) -> tuple[Position, int]:
    """Return the end of the log now, and the time there in microseconds."""
    row = session.run(session.server.status_query, doing="ask for the end of the log")
    now = _server_time(session)
    if not row:
        raise ServerError(f"{session.source.address} has no binary log", remedy="Set log_bin and restart the server.")
    journal, offset = row[0][0].decode(), int(row[0][1])
    if session.flavor == "mariadb":
        return _mariadb_position(session, journal, offset), now
    gtid = row[0][4].decode() if session.server.has_gtids and len(row[0]) > 4 and row[0][4] else ""
    return Position(journal=journal, offset=offset, gtid=gtid, source=session.server.identity, timestamp=now // 1000), now


def is_visible(session: SnapshotSession, found: Found, position: Position, lock_timeout: float) -> bool:
    """Return whether the table now shows every transaction of the log up to a position.

    A server sends a transaction to its replicas before the tables show it: for as long as a semi-synchronous replica takes to
    answer, for one. MySQL adds its GTID to ``gtid_executed`` when the tables show it. MariaDB tells the position of a snapshot.
    A MySQL without GTIDs is asked by a lock, which the writers of the table must end for.

    Raises:
        AuthenticationError: the user may not lock the table.
        ServerError: the table could not be locked in time.
    """
    if session.flavor == "mariadb" and found.is_transactional:
        return barrier(session, found, lock_timeout, stay=False)[0].precedes(position) is False
    if session.flavor == "mysql" and position.gtid and _has_gtids_only(session):
        done = ",".join(filter(None, (position.gtid, position.next_gtid)))
        shown = session.run("SELECT GTID_SUBSET(%s, @@global.gtid_executed)", (done,), "ask for the GTIDs")
        return bool(shown[0][0] == b"1")
    barrier(session, found, lock_timeout, stay=False)
    return True


def _has_gtids_only(session: SnapshotSession) -> bool:
    return bool(session.server.has_gtids and session.run("SELECT @@global.gtid_mode")[0][0] == b"ON")


def _mariadb_barrier(session: SnapshotSession, stay: bool) -> tuple[Position, int]:
    """MariaDB begins a snapshot in the log and in the tables at once, without a lock, and tells the position."""
    session.begin()
    status = dict(session.run("SHOW SESSION STATUS LIKE 'binlog_snapshot_%'", doing="ask for the position of a snapshot"))
    values = {name.lower(): value.decode() for name, value in status.items()}
    now = _server_time(session)
    position = _mariadb_position(session, values[b"binlog_snapshot_file"], int(values[b"binlog_snapshot_position"]))
    if not stay:
        session.run("COMMIT")
    return attrs.evolve(position, timestamp=now // 1000), now


def _mariadb_position(session: SnapshotSession, journal: str, offset: int) -> Position:
    if not journal:
        raise ServerError(f"{session.source.address} has no binary log", remedy="Set log_bin and restart the server.")
    gtid = session.run("SELECT BINLOG_GTID_POS(%s, %s)", (journal, offset), "ask for the GTIDs in the log")[0][0]
    return Position(journal=journal, offset=offset, gtid=(gtid or b"").decode(), source=session.server.identity)


def _server_time(session: SnapshotSession) -> int:
    """Microseconds since 1970 by the server's clock, or the whole seconds that it tells."""
    text = session.run(session.server.time_query)[0][0].decode()
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1)) // timedelta(microseconds=1)


_DENIED: Final = (1044, 1142, 1227, 1045)


@contextlib.contextmanager
def _locked(session: SnapshotSession, table: TableSchema, timeout: float) -> Iterator[SnapshotSession]:
    """Another session, while which lasts no writer has the table; those that had it are done, in the tables and the log."""
    with SnapshotSession(session.source) as other:
        other.run(f"SET SESSION lock_wait_timeout = {max(1, round(timeout))}")
        name = f"{quoted(table.schema)}.{quoted(table.table)}"
        for sql in (f"LOCK TABLES {name} READ", "FLUSH TABLES WITH READ LOCK"):
            try:
                run(other.connection, sql)
                break
            except _pymysql.DriverError as error:
                number = error.args[0] if error.args else 0
                if number in (1205, 1213):
                    raise ServerError(
                        f"{table.name} was not free of writers for {timeout:g} s",
                        errno=number,
                        remedy="End the transaction that changes it (information_schema.innodb_trx, XA RECOVER), or wait longer.",
                    ) from error
                if number not in _DENIED:
                    raise query_error(error, session.source, f"lock {table.name} for a moment") from error
        else:
            raise AuthenticationError(
                f"{session.source.user!r} may not lock {table.name} for the moment that its snapshot begins",
                remedy=f"As an administrator: GRANT LOCK TABLES ON {quoted(table.schema)}.* TO '{session.source.user}'@'%';",
            )
        yield other  # the lock ends with the connection
