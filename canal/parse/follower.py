"""Tracks table schemas at the stream's position, for table maps without full metadata.

Uses the server's present definition of a table only if no later statement in the log changes the table.

The catalog describes the stream's position. It is restored from the schema history, or read from the source if that is
proved valid for the position. Each DDL statement updates it, and the history stores the update before later events are
delivered. If the catalog lacks a table or does not fit a table map, the follower reads the table again and searches the rest
of the log for statements that change it. If there is such a statement, the columns are unknown: it raises a SchemaError.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import attrs

from canal._util.bounded import Told
from canal.binlog import event_layout as layout
from canal.binlog.server_facts import Release
from canal.errors import GO_ON_AFTER, ConnectionLostError, PositionLostError, SchemaError
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.schema.catalog import Catalog
from canal.parse.schema.history import CatchUpHistory, OtherSourceError, SchemaHistory, Snapshot, Version
from canal.parse.schema.map_schema import with_charsets, with_nullability
from canal.parse.schema.misfit import misfit
from canal.parse.schema.raw_map import RawTableMap
from canal.parse.schema.table_state import TableVersion
from canal.parse.schema.tables import table_from_document, table_to_document
from canal.parse.schema_search import SchemaChangeSearch, StatementsByTable, in_lower_case, is_after, logged_statement
from canal.parse.source.information_schema import Accepts, accept_all
from canal.parse.source.protocol import FullConnection
from canal.position import Position, journal_key
from canal.schema import UNTOLD, TableSchema
from canal.statement import Statement, Table

log = logging.getLogger("canal.parse")

#: Steps between two prunings of the history.
PRUNE_INTERVAL = 1000
#: Maximum number of tables read from the source to remember in the history.
_MOST_READ = 100


class SchemaFollower:
    """Provides the columns of tables at the stream's position.

    Args:
        history: stores the catalog.
        alarm: called with reasons why columns may be wrong.
        oldest: returns the position before which no client will resume, or None if unknown.
        accepts: whether rows of a (schema, table) may be delivered. Databases without an accepted table are not read.

    ``decoder`` reads the stream; only its position is used.
    """

    decoder: BinlogDecoder

    def __init__(
        self,
        history: SchemaHistory,
        alarm: Callable[[str], None],
        oldest: Callable[[], Position | None] = lambda: None,
        accepts: Accepts = accept_all,
    ) -> None:
        self._accepts = accepts
        self._history = history
        self._alarm = alarm
        self._oldest = oldest
        self.destination = ""
        self._reading = False  # whether all tables are being read from the source
        self._connection: FullConnection | None = None
        self._stopped: Callable[[], bool] = lambda: False
        self._catalog: Catalog | None = None
        self._opaque = 0  # number of statements so far that may have changed any table
        self._checked: dict[Table, int] = {}  # value of _opaque when a table was last compared with the source
        self._log: list[Any] = []  # identifies this log among logs with the same name, see _log_of
        self._forgotten: tuple[Table, ...] = ()  # tables of a history that was discarded
        self._search = SchemaChangeSearch(self._asked, lambda: self._stopped(), alarm)
        #: Tables as the source described them, with the end of the log before and after the query.
        self._live: dict[Table, tuple[TableVersion | None, Position, Position]] = {}
        #: Tables read from the source, as [position, document]: needed to resume earlier, when the source may differ.
        self._read_at: list[list[Any]] = []
        self._doubted: dict[Table, Position] = {}  # positions at which tables became doubtful
        self._told = Told[Table]()
        self._steps = 0

    # -- life ------------------------------------------------------------------------------------------------------

    def open(self, destination: str) -> None:
        self.destination = self._search.destination = destination
        self._history.open(destination)

    @property
    def doing(self) -> str:
        """The current work, for messages."""
        return ", still reading the columns of tables" if self._reading else self._search.doing

    def close(self) -> None:
        self._connection = None
        self._history.close()

    def begin(
        self,
        connection: FullConnection,
        position: Position,
        stopped: Callable[[], bool],
        same_as: Position | None = None,
        may_be_another: bool = False,
    ) -> None:
        """Start a stream at ``position``: restore the catalog for it, or read the catalog from the source.

        ``same_as`` is the same position in the log of the previous server, which wrote the history.
        ``may_be_another`` allows a history of another server in the replication: it is discarded.
        """
        self._connection, self._stopped = connection, stopped
        self._opaque = 0
        self._search.reset()
        self._live.clear()
        self._checked.clear()
        self._doubted.clear()
        self._read_at = []
        self._catalog = None
        try:
            found = self._history.restore(attrs.evolve(same_as or position, row=0))
        except OtherSourceError as error:
            if not may_be_another:
                raise
            self._tell(f"the schema history starts over: {error.message}")
            self._history.forget()
            found = None
        start = Position(position.journal, position.offset, position.gtid, source=connection.identity)
        if position.source and position.source != connection.identity and position.gtid:
            start = Position(gtid=position.gtid, source=connection.identity)  # another source's journals are meaningless
        if same_as is not None:
            found = self._carry_over(found, start)
        self._forgotten = ()
        if found is not None and not _is_same_log(found.settings.get("log"), connection, start):
            self._tell("the schema history belongs to a log that the source no longer has: it is not used")
            self._forgotten, found = tuple(found.tables), None
        if found is not None:
            self._go_on(found, connection, start)
        elif connection.given_tables:
            self._learn_given(connection, start)
        elif connection.full_metadata is None:
            self._learn(start)
        elif connection.full_metadata is False:
            log.info(
                "[%s] the source does not write binlog_row_metadata=FULL: column names come from information_schema and "
                "the statements in the log",
                self.destination,
            )
            self._learn(start)

    def _carry_over(self, found: Snapshot | None, position: Position) -> Snapshot | None:
        """Start a new history with the catalog at a position of another server's log."""
        self._history.forget()
        if found is None:
            return None
        found = Snapshot(found.tables, {name: value for name, value in found.settings.items() if name != "log"})
        self._history.add(position, found.tables, found.settings)
        return found

    def _go_on(self, found: Snapshot, connection: FullConnection, position: Position) -> None:
        self._catalog = _catalog_of(found, connection.lower_case_table_names)
        self._opaque = found.settings.get("opaque", 0)
        for name, version in found.tables.items():
            self._checked[in_lower_case(name)] = version.get("checked", 0) if isinstance(version, dict) else 0
        self._log = found.settings.get("log") or []
        self._read_at = list((found.ahead or found.settings).get("read", ()))
        if found.ahead.get("read"):
            self._add(position, {}, self._settings())
        if position.journal and (not self._log or self._log[1] != position.journal):  # prefer the newest journal: purged last
            self._log = _log_of(connection, position)
            self._add(position, {}, self._settings())
        self._prune(self._oldest())

    def _prune(self, position: Position | None) -> None:
        if position is not None:
            with contextlib.suppress(OtherSourceError):  # the previous server's position, until a client acks
                self._history.prune(position)

    # -- statements ------------------------------------------------------------------------------------------------

    def changed(self, statement: Statement, sql: str, data: bytes) -> None:
        """Update the catalog for a statement of the log."""
        catalog = self._catalog
        if catalog is None or (statement.kind != "ddl" and not statement.remade):
            return
        logged = logged_statement(self.decoder, statement, sql, data)
        if logged.is_opaque:
            self._opaque += 1
            self._add(logged.end, {}, self._settings())
            self._tell(f"a statement at {logged.end} is not understood: tables will be compared with the source when used")
            return
        applied = logged.apply(catalog)
        self._doubted.update((in_lower_case(name), logged.end) for name in applied.doubtful)
        for _, name in statement.renames:
            if name in applied.doubtful and self._accepts(*name):
                self._fetch(name, logged.end)
        versions = {name: self._version(name) for name in applied.changed}
        versions.update((name, self._version(name) or True) for name in applied.doubtful)
        for name in applied.changed:
            if versions[name] is None:  # dropped
                self._checked.pop(in_lower_case(name), None)
                self._live.pop(name, None)
        settings = self._settings() if statement.schema_wide or statement.temporary else None
        if versions or settings is not None:
            self._add(logged.end, versions, settings)

    def _fetch(self, name: Table, position: Position) -> None:
        """Read a table that was renamed into the filter from an unread database, if no later statement changes it."""
        assert self._catalog is not None
        live, read_at = self._live_table(name, position)
        if (
            live is not None
            and read_at is not None
            and self._search.last_change(in_lower_case(name), position, read_at) == (None, False)
        ):
            self._catalog.put(live)

    def _version(self, name: Table) -> Version:
        assert self._catalog is not None
        state = self._catalog.get(*name)
        return None if state is None else self._document(state)

    def _document(self, state: TableVersion) -> dict[str, Any]:
        checked = self._checked.get(in_lower_case((state.schema.schema, state.schema.table)), 0)
        return {**table_to_document(state), **({"checked": checked} if checked else {})}

    def _settings(self) -> dict[str, Any]:
        assert self._catalog is not None
        read = {"read": self._read_at} if self._read_at else {}
        return {**self._catalog.settings(), "opaque": self._opaque, "log": self._log, **read}

    def _add(self, position: Position, versions: dict[Table, Version], settings: dict[str, Any] | None) -> None:
        assert self._catalog is not None
        self._history.add(position, {self._catalog.key(name): version for name, version in versions.items()}, settings)
        self._steps += 1
        if self._steps % PRUNE_INTERVAL == 0:
            self._prune(self._oldest())

    # -- look-ups --------------------------------------------------------------------------------------------------

    def find(self, raw: RawTableMap) -> TableSchema | None:
        """Return the schema of a table at the stream's position that fits the map; None if it cannot be known.

        Raises:
            SchemaError: the known schema belongs to another position or does not fit.
        """
        name = (raw.schema, raw.table)
        if self._catalog is None:
            self._learn(self.decoder.group_position)
        assert self._catalog is not None
        found = state = self._with_charsets(raw, self._catalog.get(*name))
        problem = misfit(raw, state.schema) if state is not None else ""
        suspect = self._checked.get(in_lower_case(name), 0) < self._opaque
        if state is None or problem or suspect:
            found = self._read(raw, name, state, problem)
        if found is None:
            self._tell_of_namesakes(name)
            return None
        self._checked[in_lower_case(name)] = self._opaque
        if any(column.nullable is None and not column.hidden for column in found.schema.columns):
            found = attrs.evolve(found, schema=with_nullability(raw, found.schema))
            self._catalog.put(found)
        return found.as_logged

    def _with_charsets(self, raw: RawTableMap, state: TableVersion | None) -> TableVersion | None:
        """Return the table with charsets from the map; None if the map lacks them."""
        if state is None or not any(column.charset == UNTOLD for column in state.schema.columns):
            return state
        schema = with_charsets(raw, state.schema)
        if schema is None:
            return None
        state = attrs.evolve(state, schema=schema)
        assert self._catalog is not None
        self._catalog.put(state)
        return state

    def _tell_of_namesakes(self, name: Table) -> None:
        assert self._catalog is not None
        others = ", ".join(".".join(one) for one in self._catalog.namesakes(name))
        if others:
            self._tell(
                f"the columns of {'.'.join(name)} are unknown: statements name {others}, which may be the same table. "
                "Set lower_case_table_names on the source as on the server",
                name,
            )

    def _read(self, raw: RawTableMap, name: Table, state: TableVersion | None, problem: str) -> TableVersion | None:
        """Return the present table if it was the same at the stream's position; otherwise raise SchemaError."""
        full = ".".join(name)
        position = self.decoder.group_position
        before = self._read_before(raw, name) if state is None or problem else None
        if before is not None:
            self._keep(name, before)
            return before
        live, read_at = self._live_table(name, position)
        if read_at is None:  # no server to query
            if state is None:
                return None
            if problem:
                raise SchemaError(f"{full} does not fit the known schema: {problem}", remedy=self._remedy())
            return state
        change, opaque = self._search.last_change(in_lower_case(name), position, read_at)
        if change is None and live is not None and not (now := misfit(raw, live.schema)):
            self._adopt(name, live, state, problem, opaque)
            return live
        if state is not None and not problem:  # only suspect, and the source cannot confirm
            self._tell(f"the columns of {full} may be outdated: a statement that is not understood came after them", name)
            return state
        if change is not None:
            raise SchemaError(
                f"the columns of {full} are unknown for rows after {position}: "
                + (f"{problem}; " if problem else "")
                + f"the source describes it only as of a later change at {change.end}",
                remedy=self._remedy(),
            )
        if live is None:
            raise SchemaError(
                f"the source does not describe {full}: it was dropped, or SELECT on it is missing",
                remedy=self._remedy("grant SELECT"),
            )
        raise SchemaError(f"{full} does not fit the source's present schema: {now}", remedy=self._remedy())

    def _remedy(self, *ways: str) -> str:
        """Return the remedy for unknown columns: the ``ways``, then settings that prevent the problem for later changes."""
        after, later = f" {GO_ON_AFTER}", ["keep a schema history (schema_history=)"]
        if not ways and isinstance(self._history, CatchUpHistory):
            ways, after, later = self._history.ways, "", []
        if Release.parse(self.decoder.server_version).has("row_metadata"):
            later.insert(0, "set binlog_row_metadata=FULL on the source")
        text = ", ".join((*ways, f"{'or ' if ways else ''}exclude the table with black_filter.{after}"))
        return f"{text[0].upper()}{text[1:]}" + f" For later changes {' or '.join(later)}." * bool(later)

    def _adopt(self, name: Table, live: TableVersion, state: TableVersion | None, problem: str, opaque: bool) -> None:
        """Use the present table from here on."""
        assert self._catalog is not None
        if problem:
            self._tell(f"{'.'.join(name)} changed without a statement in the log: {problem}; its columns were read again", name)
        elif opaque:
            self._tell(
                f"the columns of {'.'.join(name)} were read from the source, but a later statement in the log is not "
                "understood: if it changed them, names may be wrong",
                name,
            )
        if live != state or self._checked.get(in_lower_case(name), 0) < self._opaque:
            self._checked[in_lower_case(name)] = self._opaque
            self._read_at = [*self._still_of_use(), [self.decoder.position.to_text(), self._document(live)]]
            self._keep(name, live)

    def _keep(self, name: Table, state: TableVersion) -> None:
        assert self._catalog is not None
        self._catalog.put(state)
        self._add(self.decoder.position, {name: self._document(state)}, self._settings())

    def _still_of_use(self) -> list[list[Any]]:
        """Return the remembered tables that are needed because a client may resume before them."""
        oldest = self._oldest()
        read = self._read_at[1 - _MOST_READ :]
        return [one for one in read if oldest is None or is_after(Position.from_text(one[0]), oldest)]

    def _read_before(self, raw: RawTableMap, name: Table) -> TableVersion | None:
        """Return the table as read from the source when the stream was at or just before this position the last time."""
        for text, document in reversed(self._read_at):
            state, position = table_from_document(document), Position.from_text(text)
            is_it = in_lower_case((state.schema.schema, state.schema.table)) == in_lower_case(name)
            doubted = self._doubted.get(in_lower_case(name), position)
            is_of_before = is_after(position, self.decoder.position) or is_after(doubted, position)
            if is_it and not is_of_before and not misfit(raw, state.schema):
                return state
        return None

    def _tell(self, text: str, name: Table | None = None) -> None:
        """Raise the alarm, once per table."""
        if name is None or self._told.is_first(name):
            self._alarm(text)

    # -- the source ------------------------------------------------------------------------------------------------

    def _learn(self, position: Position) -> None:
        """Read all tables, and keep those that have not changed since the position."""
        connection = self._asked()
        self._log = _log_of(connection, position)
        versions: dict[Table, Version] = dict.fromkeys(self._forgotten)
        asked_at = connection.end_of_log()
        self._reading = True
        try:
            now = connection.describe(accepts=self._accepts)
        finally:
            self._reading = False
        if now is None:
            self._catalog = Catalog(lower_case_table_names=connection.lower_case_table_names, complete=False)
            self._add(position, versions, self._settings())
            return
        read_at = connection.end_of_log()
        ahead = self._search.between(position, read_at)
        given = connection.lower_case_table_names
        catalog = Catalog(
            lower_case_table_names=now.lower_case_table_names if given is None else given,
            complete=not any(one.is_opaque for one in ahead),
            unread=now.unread,
        )
        for schema, charset in now.databases.items():
            catalog.set_database(schema, charset)
        changes = StatementsByTable(ahead)
        for state in now.tables:
            name = (state.schema.schema, state.schema.table)
            self._live[name] = (state, asked_at, read_at)
            if changes.first(name) is None:
                catalog.put(state)
        doubtful = changes.uncertain()
        self._catalog = _with_doubtful(catalog, doubtful)
        versions.update(((one.schema.schema, one.schema.table), table_to_document(one)) for one in catalog.tables())
        versions.update(dict.fromkeys(doubtful, True))
        self._add(position, versions, self._settings())

    def _learn_given(self, connection: FullConnection, position: Position) -> None:
        """Apply the statements up to the position to the user's schemas, which describe the start of the log."""
        catalog = Catalog(lower_case_table_names=connection.lower_case_table_names, complete=False)
        for state in connection.given_tables:
            catalog.put(state)
        origin = connection.resolve("earliest")
        for one in self._search.scan(origin, position):
            one.apply(catalog)
        self._catalog = catalog
        self._log = _log_of(connection, position)
        versions: dict[Table, Version] = dict.fromkeys(self._forgotten)
        versions.update(((one.schema.schema, one.schema.table), table_to_document(one)) for one in catalog.tables())
        self._add(position, versions, self._settings())

    def _asked(self) -> FullConnection:
        if self._connection is None:
            raise ConnectionLostError("the connection was closed during a table look-up")
        return self._connection

    def _live_table(self, name: Table, position: Position) -> tuple[TableVersion | None, Position | None]:
        """Return the present table and the end of the log after the query; (None, None) without a server to query."""
        known = self._live.get(name)
        if known is not None and not is_after(position, known[1]):
            return known[0], known[2]
        connection = self._asked()
        asked_at = connection.end_of_log()
        now = connection.describe(*name)
        if now is None:
            return None, None
        state = now.tables[0] if now.tables else None
        self._live[name] = (state, asked_at, connection.end_of_log())
        return state, self._live[name][2]


def _log_of(connection: FullConnection, position: Position) -> list[Any]:
    """Return [source, journal, start time, GTIDs] for the position's journal; [] if unknown."""
    if not position.journal or not connection.can_replay:
        return []
    for event in connection.replay(position.journal, layout.FIRST):
        return [connection.identity, position.journal, int.from_bytes(event[: layout.TYPE], "little"), position.gtid]
    return []


def _is_same_log(kept: list[Any] | None, connection: FullConnection, position: Position) -> bool:
    """Return whether the present log may be the one in which the history was written: not reset, not another server's."""
    if not kept or not connection.can_replay:
        return True
    identity, journal, _, gtid = kept
    if identity != connection.identity:  # for MySQL, GTID sets already prove that it is a replica; for MariaDB they do not
        return connection.has_logged(gtid)
    with contextlib.suppress(PositionLostError):  # a listed file that does not exist
        if journal in connection.journal_names():
            return _log_of(connection, Position(journal, layout.FIRST, gtid)) == kept
    return not position.journal or journal_key(journal) < journal_key(position.journal)  # purged; otherwise the log was reset


def _catalog_of(found: Snapshot, names_setting: int | None) -> Catalog:
    document = {
        **found.settings,
        **({} if names_setting is None else {"lower_case_table_names": names_setting}),
        "tables": [state for state in found.tables.values() if isinstance(state, dict)],
        "doubtful": [list(table) for table, state in found.tables.items() if state is True],
    }
    return Catalog.from_document(document)


def _with_doubtful(catalog: Catalog, doubtful: list[Table]) -> Catalog:
    document = catalog.to_document()
    document["doubtful"] = [list(table) for table in doubtful]
    return Catalog.from_document(document)
