"""Finds statements that change schemas between two positions of the log, over a side connection.

Reports which statements may have changed a table, never what the table is like.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import attrs

from canal.binlog import event_layout as layout
from canal.binlog.event_types import FORMAT_DESCRIPTION
from canal.binlog.server_facts import Release
from canal.errors import AuthenticationError, ConnectionLostError, LostReason, PositionLostError, ServerError, SourceError
from canal.model import TableMap
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.log.events import ddl_context, query_context, status_of
from canal.parse.log.statements import explicit_defaults
from canal.parse.schema.catalog import Applied, Catalog
from canal.parse.schema.classify import classify
from canal.parse.schema.scanner import Scanner
from canal.parse.schema.table_state import TableVersion
from canal.parse.source.protocol import FullConnection
from canal.position import Position, journal_key
from canal.schema import TableSchema, column_from_text
from canal.statement import Statement, Table

log = logging.getLogger("canal.parse")

_INDEX_CHANGES = frozenset(("TRUNCATE", "CINDEX", "DINDEX"))


@attrs.frozen
class LoggedStatement:
    """A statement that changes schemas, with the session settings from the event. ``end`` is the position after it."""

    statement: Statement
    sql: str
    end: Position
    sql_mode: int
    server_charset: str
    explicit_defaults: bool | None
    session: int
    flavor: str
    version: tuple[int, ...]
    error: int = 0
    connection_charset: str = "utf8mb4"

    def apply(self, catalog: Catalog) -> Applied:
        return catalog.apply(
            self.sql,
            self.statement.default_schema,
            sql_mode=self.sql_mode,
            flavor=self.flavor,
            server_charset=self.server_charset,
            version=self.version,
            explicit_defaults=self.explicit_defaults,
            session=self.session,
            error=self.error,
            connection_charset=self.connection_charset,
            statement=self.statement,
        )

    @property
    def is_opaque(self) -> bool:
        """Whether the statement may change any table."""
        return self.statement.doubtful and not self.statement.tables

    def touches(self, name: Table) -> bool:
        """Return whether the table may differ after the statement, in columns or identity."""
        if self.dropped_database == name[0]:
            return True
        return name in map(in_lower_case, self.statement.tables) and not self._is_harmless(name)

    @property
    def dropped_database(self) -> str | None:
        """The database that the statement drops with all tables, or replaces."""
        statement = self.statement
        if not statement.schema_wide:
            return None
        is_drop = statement.replaces or Scanner(self.sql, self.sql_mode, self.flavor).take()[2] == "DROP"
        return statement.database.lower() if is_drop else None

    def _is_harmless(self, name: Table) -> bool:
        statement = self.statement
        if statement.temporary or (statement.event_types and _INDEX_CHANGES.issuperset(statement.event_types)):
            return True
        if statement.event_type == "CREATE":
            return statement.conditional and not statement.replaces  # the table exists afterwards in any case
        if "ALTER" not in statement.event_types or statement.renames or len(statement.tables) != 1:
            return False
        # Apply the statement to a table that has none of the named columns. If nothing changes, it affects no columns.
        probe = Catalog(lower_case_table_names=1)
        before = TableVersion(TableSchema(*name, (column_from_text("\0", "int"),)), None, ())
        probe.put(before)
        applied, after = self.apply(probe), probe.get(*name)
        if applied.doubtful or after is None:
            return False
        # Engines and partitions are not columns. Hidden hash columns depend on the engine and belong to MariaDB's unique keys.
        return attrs.evolve(after, engine=before.engine if self.flavor == "mysql" else after.engine, partitioned=False) == before

    @property
    def creates(self) -> Table | None:
        """The table that the statement creates and that cannot have existed before."""
        statement = self.statement
        if statement.event_type != "CREATE" or statement.conditional or statement.replaces or statement.temporary or self.error:
            return None
        return in_lower_case(statement.tables[0])


def logged_statement(decoder: BinlogDecoder, statement: Statement, sql: str, data: bytes) -> LoggedStatement:
    """Return the statement of a QUERY event with the event's status variables."""
    status = status_of(data)
    thread = data[layout.QUERY_THREAD : layout.QUERY_SECONDS]
    error = data[layout.QUERY_ERROR : layout.QUERY_STATUS_SIZE]
    context = ddl_context(status, mariadb=decoder.flavor == "mariadb")
    return LoggedStatement(
        statement,
        sql,
        decoder.position,
        query_context(status)[1],
        context.server_charset or "",
        explicit_defaults(decoder, data),
        int.from_bytes(thread, "little"),
        decoder.flavor,
        Release.parse(decoder.server_version).version,
        int.from_bytes(error, "little"),
        context.connection_charset or "utf8mb4",
    )


class StatementsByTable:
    """Statements, indexed by table."""

    def __init__(self, statements: list[LoggedStatement]) -> None:
        self._by_name: dict[Table, list[LoggedStatement]] = {}
        self._names: dict[Table, Table] = {}
        self._drops: list[tuple[str, LoggedStatement]] = []
        for one in statements:
            for name in one.statement.tables:
                self._names.setdefault(in_lower_case(name), name)
                self._by_name.setdefault(in_lower_case(name), []).append(one)
            database = one.dropped_database
            if database is not None:
                self._drops.append((database, one))

    def first(self, name: Table) -> LoggedStatement | None:
        """Return the first statement that changes the table."""
        key = in_lower_case(name)
        found = [one for one in self._by_name.get(key, ()) if one.touches(key)][:1]
        found += [one for database, one in self._drops if database == key[0]][:1]
        return min(found, key=lambda one: _order(one.end), default=None)

    def uncertain(self) -> list[Table]:
        """Return the tables that may have existed before their first change."""
        firsts = {key: self.first(key) for key in self._by_name}
        return [self._names[key] for key, one in firsts.items() if one is not None and one.creates != key]


class SchemaChangeSearch:
    """Searches the log between the stream's position and a later position for statements that change schemas.

    Args:
        ask: returns the connection; raises if it is closed.
        stopped: returns whether to end the search.
        alarm: called with reasons why columns may be wrong.

    Each part of the log is searched once: everything up to ``_seen_to``. ``_found`` has the statements after the last start.
    """

    def __init__(self, ask: Callable[[], FullConnection], stopped: Callable[[], bool], alarm: Callable[[str], None]) -> None:
        self.destination = ""
        #: The current search, for messages.
        self.doing = ""
        self._ask = ask
        self._stopped = stopped
        self._alarm = alarm
        self._found: list[LoggedStatement] = []
        self._seen_to: Position | None = None

    def reset(self) -> None:
        """Forget all results: the stream starts elsewhere."""
        self._found, self._seen_to = [], None

    def last_change(self, name: Table, start: Position, end: Position) -> tuple[LoggedStatement | None, bool]:
        """Return the last statement between two positions that changes the table, and whether any of them is not understood."""
        found = self.between(start, end)
        return next((one for one in reversed(found) if one.touches(name)), None), any(one.is_opaque for one in found)

    def between(self, start: Position, end: Position) -> list[LoggedStatement]:
        """Return the statements between two positions, reading only the part of the log that was not searched before."""
        seen = self._seen_to
        if seen is None or is_after(start, seen):
            self._found, seen = [], start
        self._found = [one for one in self._found if is_after(one.end, start)]
        if is_after(end, seen):
            log.info("[%s] searching for schema changes between %s and %s", self.destination, seen, end)
            self.doing = f", still searching for schema changes between {seen} and {end}"
            try:
                self._found += self.scan(seen, end)
            finally:
                self.doing = ""
            log.info("[%s] found %d schema changes ahead", self.destination, len(self._found))
            seen = end
        self._seen_to = seen
        return [one for one in self._found if not is_after(one.end, end)]

    def scan(self, start: Position, end: Position) -> list[LoggedStatement]:
        """Read the log between two positions and return the statements."""
        if not is_after(end, start):
            return []
        connection = self._ask()
        if not connection.can_replay:  # no side reads: the log may hold any statement
            return [opaque(end, connection.flavor)]
        names = connection.journal_names()
        if start.journal in names:
            names = names[names.index(start.journal) :]
        found: list[LoggedStatement] = []
        for name in names:
            try:
                if not self._scan_journal(name, start.offset if name == start.journal else layout.FIRST, end, found):
                    break
            except PositionLostError as error:  # the stream itself may not need that part of the log
                if error.reason is not LostReason.GAP:
                    raise
                self._alarm(f"{error.message}: if a statement there changed columns, the known columns are wrong")
                found.append(opaque(Position(name, layout.FIRST), connection.flavor))
        return found

    def _scan_journal(self, journal: str, offset: int, end: Position, found: list[LoggedStatement]) -> bool:
        """Search one journal from ``offset``. Return False once ``end`` is reached."""
        connection = self._ask()

        def changed(statement: Statement, sql: str, data: bytes) -> None:
            if statement.kind == "ddl":
                found.append(logged_statement(decoder, statement, sql, data))

        decoder = BinlogDecoder(_unread, classify, _nothing, changed, _nothing)
        decoder.follow_only = True
        decoder.reset(Position(journal, offset), connection.flavor, connection.identity, None)
        try:
            for event in connection.replay(journal, offset):
                if self._stopped():
                    raise ConnectionLostError("the parser was stopped during the search for schema changes")
                decoder.feed([event])
                if event[layout.TYPE] == FORMAT_DESCRIPTION and offset > layout.FIRST:
                    decoder.offset = offset  # the event was a copy of the journal's first event
                if not is_after(end, decoder.group_position):
                    return False
        except (AuthenticationError, ConnectionLostError, ServerError):
            raise
        except SourceError as error:  # the rest of the log is unknown, so it may hold any statement
            log.warning("[%s] the search for schema changes ends at %s: %s", self.destination, decoder.position, error)
            found.append(opaque(decoder.position, connection.flavor))
            return False
        return True


def opaque(position: Position, flavor: str) -> LoggedStatement:
    """Return a placeholder for statements whose effect is unknown."""
    return LoggedStatement(Statement("ddl", "QUERY", doubtful=True), "", position, 0, "", True, 0, flavor, ())


def _nothing(value: Any) -> None:
    pass


def _unread(body: bytes, release: Release) -> TableMap:
    return TableMap(TableSchema("", "", ()), (), None, False)


def in_lower_case(name: Table) -> Table:
    """Return the name in lower case: with lower_case_table_names, log and statements may differ in case."""
    return name[0].lower(), name[1].lower()


def _order(position: Position) -> tuple[int, int]:
    return journal_key(position.journal)[1], position.offset


def is_after(one: Position, other: Position) -> bool:
    """Return whether ``one`` is after ``other`` in the log."""
    if one.journal and other.journal:
        return _order(one) > _order(other)
    return other.precedes(one) is not False
