"""What the log says of tables between two positions of it: the statements that change schemas, read by the side of the stream.

Never says what a table is like; it says which statements may have changed it.
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
    """A statement that changes schemas, with what its event says of its session; ``end`` is where it ends in the log."""

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
        """Whether it may change any table."""
        return self.statement.doubtful and not self.statement.tables

    def touches(self, name: Table) -> bool:
        """Whether the columns of the table may be others before it and after it, or the table another one."""
        if self.dropped_database == name[0]:
            return True
        return name in map(folded, self.statement.tables) and not self._is_harmless(name)

    @property
    def dropped_database(self) -> str | None:
        """The database that is gone with its tables, or made anew."""
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
            return statement.conditional and not statement.replaces  # of a table that exists afterwards in any case
        if "ALTER" not in statement.event_types or statement.renames or len(statement.tables) != 1:
            return False
        # What changes nothing in a table with none of its columns speaks of none of them.
        probe = Catalog(lower_case_table_names=1)
        before = TableVersion(TableSchema(*name, (column_from_text("\0", "int"),)), None, ())
        probe.put(before)
        applied, after = self.apply(probe), probe.get(*name)
        if applied.doubtful or after is None:
            return False
        # Engines and partitions are no columns; those by a hash, which depend on the engine, come with unique keys of MariaDB.
        return attrs.evolve(after, engine=before.engine if self.flavor == "mysql" else after.engine, partitioned=False) == before

    @property
    def creates(self) -> Table | None:
        """The table that it makes and that cannot have been there before."""
        statement = self.statement
        if statement.event_type != "CREATE" or statement.conditional or statement.replaces or statement.temporary or self.error:
            return None
        return folded(statement.tables[0])


def logged_statement(decoder: BinlogDecoder, statement: Statement, sql: str, data: bytes) -> LoggedStatement:
    """What a QUERY event says: the statement and its status variables."""
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
    """Statements by the tables that they are about."""

    def __init__(self, statements: list[LoggedStatement]) -> None:
        self._by_name: dict[Table, list[LoggedStatement]] = {}
        self._names: dict[Table, Table] = {}
        self._drops: list[tuple[str, LoggedStatement]] = []
        for one in statements:
            for name in one.statement.tables:
                self._names.setdefault(folded(name), name)
                self._by_name.setdefault(folded(name), []).append(one)
            database = one.dropped_database
            if database is not None:
                self._drops.append((database, one))

    def first(self, name: Table) -> LoggedStatement | None:
        """The first one that changes the table."""
        key = folded(name)
        found = [one for one in self._by_name.get(key, ()) if one.touches(key)][:1]
        found += [one for database, one in self._drops if database == key[0]][:1]
        return min(found, key=lambda one: _order(one.end), default=None)

    def uncertain(self) -> list[Table]:
        """Tables that may have been there before the first change of them."""
        firsts = {key: self.first(key) for key in self._by_name}
        return [self._names[key] for key, one in firsts.items() if one is not None and one.creates != key]


class LogAhead:
    """The statements between the position of the stream and a later one, for as long as the stream has not passed them.

    Args:
        ask: gives the connection; raises when there is none any more.
        stopped: whether the search is to end.
        alarm: called with what makes columns less than certain.

    Each part of the log is looked through once: all up to ``_seen_to`` was, and ``_found`` has what is behind the position
    that was asked from last.
    """

    def __init__(self, ask: Callable[[], FullConnection], stopped: Callable[[], bool], alarm: Callable[[str], None]) -> None:
        self.destination = ""
        #: What takes its time just now, for messages.
        self.doing = ""
        self._ask = ask
        self._stopped = stopped
        self._alarm = alarm
        self._found: list[LoggedStatement] = []
        self._seen_to: Position | None = None

    def reset(self) -> None:
        """The stream begins elsewhere: nothing is known."""
        self._found, self._seen_to = [], None

    def last_change(self, name: Table, start: Position, end: Position) -> tuple[LoggedStatement | None, bool]:
        """The last statement between two positions that changes the table; whether one of them is not understood."""
        found = self.between(start, end)
        return next((one for one in reversed(found) if one.touches(name)), None), any(one.is_opaque for one in found)

    def between(self, start: Position, end: Position) -> list[LoggedStatement]:
        """The statements between two positions."""
        seen = self._seen_to
        if seen is None or is_behind(start, seen):
            self._found, seen = [], start
        self._found = [one for one in self._found if is_behind(one.end, start)]
        if is_behind(end, seen):
            log.info("[%s] looking for schema changes between %s and %s", self.destination, seen, end)
            self.doing = f", still looking for schema changes between {seen} and {end}"
            try:
                self._found += self.scan(seen, end)
            finally:
                self.doing = ""
            log.info("[%s] %d schema changes are ahead", self.destination, len(self._found))
            seen = end
        self._seen_to = seen
        return [one for one in self._found if not is_behind(one.end, end)]

    def scan(self, start: Position, end: Position) -> list[LoggedStatement]:
        """All statements between two positions, read anew."""
        if not is_behind(end, start):
            return []
        connection = self._ask()
        if not connection.can_replay:  # a source that cannot be read by the side: anything may wait in its log
            return [opaque(end, connection.flavor)]
        names = connection.journal_names()
        if start.journal in names:
            names = names[names.index(start.journal) :]
        found: list[LoggedStatement] = []
        for name in names:
            try:
                if not self._scan_journal(name, start.offset if name == start.journal else layout.FIRST, end, found):
                    break
            except PositionLostError as error:  # the stream itself may have no need of that part of the log
                if error.reason is not LostReason.GAP:
                    raise
                self._alarm(f"{error.message}: where a statement in it changed columns, what is known of them is wrong")
                found.append(opaque(Position(name, layout.FIRST), connection.flavor))
        return found

    def _scan_journal(self, journal: str, offset: int, end: Position, found: list[LoggedStatement]) -> bool:
        """One journal from the offset on; False when the rest of the log is of no interest."""
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
                    raise ConnectionLostError("stopped while the log was searched for schema changes")
                decoder.feed([event])
                if event[layout.TYPE] == FORMAT_DESCRIPTION and offset > layout.FIRST:
                    decoder.offset = offset  # a copy of the journal's first event
                if not is_behind(end, decoder.group_position):
                    return False
        except (AuthenticationError, ConnectionLostError, ServerError):
            raise
        except SourceError as error:  # what lies behind it cannot be told, so it may be anything
            log.warning("[%s] the search for schema changes ends at %s: %s", self.destination, decoder.position, error)
            found.append(opaque(decoder.position, connection.flavor))
            return False
        return True


def opaque(position: Position, flavor: str) -> LoggedStatement:
    """Stands for what cannot be told."""
    return LoggedStatement(Statement("ddl", "QUERY", doubtful=True), "", position, 0, "", True, 0, flavor, ())


def _nothing(value: Any) -> None:
    pass


def _unread(body: bytes, release: Release) -> TableMap:
    return TableMap(TableSchema("", "", ()), (), None, False)


def folded(name: Table) -> Table:
    """Names that differ in case only are taken for one: with lower_case_table_names log and statements may differ."""
    return name[0].lower(), name[1].lower()


def _order(position: Position) -> tuple[int, int]:
    return journal_key(position.journal)[1], position.offset


def is_behind(one: Position, other: Position) -> bool:
    """Whether one position of the log is behind the other."""
    if one.journal and other.journal:
        return _order(one) > _order(other)
    return other.precedes(one) is not False
