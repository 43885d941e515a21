"""Reads tables in chunks, each with the end of the log after the read.

Never decides what of a chunk is still true at a position of the stream: see ``canal.pipes.initial``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias

import attrs

from canal._util.bounded import Recent
from canal.changes.change import Table
from canal.errors import ConfigError, ConnectionLostError, SchemaError, ServerError
from canal.model import Entry
from canal.parse.schema.online_ddl import stems
from canal.parse.source.information_schema import texts
from canal.parse.source.mysql import MySQLSource
from canal.position import Position
from canal.schema import TableSchema
from canal.snapshot.keys import Key, chunk_key, condition, find_key, key_column, quoted
from canal.snapshot.session import Found, SnapshotSession, barrier, end_of_log, is_visible
from canal.snapshot.values import Forms, Selection

log = logging.getLogger("canal.pipe")

#: Schema and name of a table.
Name = tuple[str, str]

_SYSTEM: Final = ("information_schema", "mysql", "performance_schema", "sys")
_NAMES: Final = (
    "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')"
)
_DEFINITION_CHANGED: Final = 1412  # since the transaction began
_ATTEMPTS: Final = 10
#: Polling interval, lock timeout and limit in seconds until a table shows the changes of the log.
_LOOK: Final = 0.02
_LOCK: Final = 10.0
_PATIENCE: Final = 60.0
#: Bytes of a chunk by the server's estimate.
_BYTES: Final = 32 << 20
#: Bytes of an entry of rows, about.
_PIECE_BYTES: Final = 8 << 20
#: A number of rows, and their images.
_Piece: TypeAlias = "tuple[int, bytes]"


@attrs.frozen
class SourceTable:
    """A table of the source."""

    table: Table
    identity: tuple[str, ...]
    """Columns of a unique key that are delivered unmasked; () if there is no such key."""

    order: str
    """Columns and collations of the chunks' key. A key of another order is not a valid bound."""

    rows: int
    """The server's estimate."""

    row_bytes: int = 0
    """The server's estimate of the bytes of a row."""


@attrs.frozen
class Rows:
    """Rows of a chunk."""

    source: SourceTable
    selection: Selection = attrs.field(repr=False)
    entries: list[Entry] = attrs.field(repr=False)
    """The rows, as entries of inserted rows at ``end``."""

    upper: Key | None
    """The last key of the chunk, or None for the last chunk."""

    end: Position
    """All changes that the rows show are before this position. A whole table is read at exactly this position."""

    ts: int
    """The server's time in milliseconds since 1970."""

    @property
    def count(self) -> int:
        """The number of the rows."""
        return sum(entry.row_count for entry in self.entries)


class TableMissingError(ConfigError):
    """The table was dropped or renamed since it was listed."""


class TableReader(Protocol):
    """Reads tables of the source that a stream follows. Used by one thread at a time."""

    def names(self) -> list[Name]:
        """Return the tables whose changes the stream would deliver, sorted."""

    def delivers(self, name: Name) -> bool:
        """Return whether the stream delivers changes of a table of this name."""

    def check(self) -> None:
        """Raise ConfigError if the source logs parts of rows."""

    def look(self, name: Name) -> SourceTable:
        """Return the table's current version.

        Raises:
            TableMissingError: there is none.
        """

    def settle(self, name: Name, position: Position, stopping: threading.Event) -> None:
        """Wait until the table shows all changes before a position, or ``stopping`` is set."""

    def read(self, name: Name, after: Key | None, order: str, count: int, stopping: threading.Event) -> Rows:
        """Return the next ``count`` rows after a key, at one moment.

        Args:
            order: the order of ``after``. If the table's order has changed, return its first rows.

        Raises:
            ConnectionLostError: ``stopping`` was set, or the connection was lost.
        """

    def read_whole(self, name: Name, stopping: threading.Event) -> Rows:
        """Return all rows of a table at the position ``end``. Raise the errors of ``read``."""

    def abort(self) -> None:
        """Interrupt a read of another thread."""

    def close(self) -> None:
        """Close the connection."""


@attrs.define(eq=False)
class ServerTables:
    """The tables of a server.

    Args:
        source: returns the current server of the stream.
        accepts: the table filter.
        has_shadows: include tables of online schema changes.
    """

    source: Callable[[], Any]
    accepts: Callable[[str, str], bool]
    forms: Forms
    has_shadows: bool = False
    _session: SnapshotSession | None = None
    _made: Recent[Name, tuple[TableSchema, Table, Selection]] = attrs.field(factory=Recent)

    def names(self) -> list[Name]:
        rows = [texts(row) for row in self._open().run(_NAMES, doing="list the tables")]
        there = {(str(schema), str(table)) for schema, table in rows if str(schema).lower() not in _SYSTEM}
        accepted = {name for name in there if self.accepts(*name)}
        return sorted(name for name in accepted if self.has_shadows or not _is_shadow(name, accepted))

    def delivers(self, name: Name) -> bool:
        return self.accepts(*name)

    def check(self) -> None:
        session = self._open()
        if not session.server.full_images:
            raise ConfigError(
                f"{session.source.address} writes parts of rows into its log (binlog_row_image), and a target that has not loaded"
                " a row yet cannot complete them",
                remedy="SET GLOBAL binlog_row_image=FULL until the rows are loaded.",
            )

    def look(self, name: Name) -> SourceTable:
        return self._source_table(name, self._found(name))

    def settle(self, name: Name, position: Position, stopping: threading.Event) -> None:
        found, end = self._found(name), time.monotonic() + _PATIENCE
        while not stopping.is_set() and not is_visible(self._open(), found, position, _LOCK):
            if time.monotonic() > end:
                raise ServerError(
                    f"{name[0]}.{name[1]} does not show yet what the log of {self._open().source.address} has up to {position}",
                    remedy="Look for commits that wait (SHOW PROCESSLIST), as for a semi-synchronous replica.",
                )
            stopping.wait(_LOOK)

    def read(self, name: Name, after: Key | None, order: str, count: int, stopping: threading.Event) -> Rows:
        session = self._open()

        def rows() -> tuple[SourceTable, list[_Piece], Key | None]:
            found = self._found(name)
            made = self._source_table(name, found)
            most = min(count, max(_BYTES // found.row_bytes, 1)) if found.row_bytes else count
            index, key = chunk_key(found.state)
            where, force, upper = "", "", None
            if key:
                lower = after if order == made.order else None
                upper = find_key(session, found.state.schema, index, key, lower, most)
                by_name = {column.name: column for column in found.state.schema.columns}
                where = condition([key_column(by_name[one]) for one in key], lower, upper)
                force = f" FORCE INDEX ({quoted(index)})"
            return made, self._select(name, force, where, stopping), upper

        made, pieces, upper = self._at_one_moment(rows)
        session.run("COMMIT")
        return self._rows(made, name, pieces, upper, *end_of_log(session))

    def read_whole(self, name: Name, stopping: threading.Event) -> Rows:
        session = self._open()
        found = self._found(name)
        end, now = barrier(session, found, _LOCK, stay=True)
        again = self._found(name)
        if again.state != found.state:
            raise SchemaError(f"{name[0]}.{name[1]} was altered while its snapshot began")
        made = self._source_table(name, again)
        pieces = self._select(name, "", "", stopping)
        session.run("COMMIT")
        return self._rows(made, name, pieces, None, end, now)

    def abort(self) -> None:
        session = self._session
        if session is not None:
            session.abort()

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.__exit__()

    def _open(self) -> SnapshotSession:
        """Connect to the current server of the stream."""
        source = self.source()
        if not isinstance(source, MySQLSource):
            raise ConfigError(
                "existing rows are read from a server, and this instance reads files", remedy="Give it a MySQLSource."
            )
        if self._session is not None and self._session.source.address != source.address:
            self.close()
        if self._session is None:
            self._session = SnapshotSession(source).__enter__()
        return self._session

    def _found(self, name: Name) -> Found:
        try:
            return self._open().table(*name)
        except ConfigError as error:
            raise TableMissingError(error.message, remedy=error.remedy) from error

    def _source_table(self, name: Name, found: Found) -> SourceTable:
        schema = found.state.schema
        known = self._made.get(name)
        if known is None or known[0] != schema:
            selection = Selection.of(schema, self.forms)
            keys = [column.name for column in schema.keys]
            joined = f"{name[0]}.{name[1]}"
            own = {column.name for column in selection.columns}
            table = Table(joined, joined, selection.columns, tuple(keys) if set(keys) <= own else (), database=name[0])
            known = self._made[name] = schema, table, selection
        _, key = chunk_key(found.state)
        collations = self._open().collations(*name, key)
        order = " ".join([*key, *collations])
        return SourceTable(known[1], _identity(found, known[1]), order, found.rows, found.row_bytes)

    def _select(self, name: Name, force: str, where: str, stopping: threading.Event) -> list[_Piece]:
        _, _, selection = self._made[name]
        sql = f"SELECT {', '.join(selection.selects)} FROM {quoted(name[0])}.{quoted(name[1])}{force}{where}"
        pieces: list[_Piece] = []
        for images in self._open().receive(sql, selection.images):
            if stopping.is_set():
                raise ConnectionLostError(
                    f"the rows of {'.'.join(name)} are not read to their end: the pipe goes on without them"
                )
            if images.size >= _PIECE_BYTES or images.last and images.rows:
                pieces.append((images.rows, images.take()))
        return pieces

    def _rows(self, made: SourceTable, name: Name, pieces: Iterable[_Piece], upper: Key | None, end: Position, now: int) -> Rows:
        _, _, selection = self._made[name]
        return Rows(made, selection, [selection.entry(*piece, end, now // 1000) for piece in pieces], upper, end, now // 1000)

    def _at_one_moment(
        self, rows: Callable[[], tuple[SourceTable, list[_Piece], Key | None]]
    ) -> tuple[SourceTable, list[_Piece], Key | None]:
        """Read in a transaction. Retry if the table was altered or emptied before the first row."""
        for left in reversed(range(_ATTEMPTS)):
            self._open().begin()
            try:
                return rows()
            except ServerError as error:
                if error.errno != _DEFINITION_CHANGED or not left:
                    raise
        raise AssertionError


def _is_shadow(name: Name, there: set[Name]) -> bool:
    """Return whether the table is named like the copy of an existing table in an online schema change."""
    schema, table = name
    return any(
        (schema, stem) in there or is_prefix and any(one[0] == schema and one[1].startswith(stem) for one in there - {name})
        for stem, is_prefix in stems(table)
    )


def _identity(found: Found, table: Table) -> tuple[str, ...]:
    """Return the columns of the first unique key that is delivered unmasked."""
    columns = {column.name.lower(): column for column in found.state.schema.columns}
    delivered = {column.name.lower(): column for column in table.columns}
    keys = [key for key in found.state.keys or () if key.unique and not key.hash]
    for key in sorted(keys, key=lambda key: not key.is_primary):
        names = [name.lower() for name, _ in key.columns]
        is_whole = all(name in delivered and name in columns for name in names)
        if not is_whole or any(columns[name].nullable and not key.is_primary for name in names):
            continue
        if all(delivered[name].unmasked is None for name in names):
            return tuple(delivered[name].name for name in names)
    return ()
