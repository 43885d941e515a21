"""Protocols that the parser requires of a source of raw binlog events.

Every source must implement ``Source`` and ``Connection``. Optional abilities are in other Protocols: ``LogReader``,
``SchemaReader`` and ``StreamInfo`` for a connection, ``SourceInfo`` for a source. Their method bodies are the defaults for
a connection without the ability. ``complete`` adds the defaults once, so the parser may call every method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Generator, Sequence
from typing import Any, Final, Protocol, cast, runtime_checkable

import attrs

from canal.parse.schema.cascades import ForeignKey
from canal.parse.schema.table_state import TableVersion
from canal.parse.source.information_schema import Accepts, accept_all
from canal.parse.source.unlogged import Unlogged
from canal.position import Position
from canal.schema import TableSchema
from canal.status import SourceEnd

Start = str | Position
"""``"latest"``, ``"earliest"`` or a :class:`Position`."""


@runtime_checkable
class Source(Protocol):
    """A server, binlog files or a fake that can be connected to repeatedly.

    It may also implement any part of ``SourceInfo``.
    """

    def connect(self, server_id_hint: int | None = None) -> Connection:
        """Open a connection. ``server_id_hint`` is used if the configuration has no server id.

        Blocks at most for the source's connect timeout. Detects wrong settings before streaming starts.

        Raises:
            ConnectionLostError: the server does not answer; a retry may help.
            AuthenticationError: the user or a privilege is refused.
            SourceError: any other fault of the source, such as a setting that makes the log useless.
        """
        ...


@runtime_checkable
class Connection(Protocol):
    """A connection to a source, used by one thread at a time. Only ``close`` may be called from another thread.

    After an error, except from ``resolve`` and ``table_columns``, the only valid call is ``close``.
    A connection may also implement any part of ``LogReader``, ``SchemaReader`` and ``StreamInfo``.
    """

    @property
    def identity(self) -> str:
        """A stable id of the server. Journals and offsets are comparable only if it is equal. "" for files."""
        ...

    @property
    def flavor(self) -> str:
        """``"mysql"`` or ``"mariadb"``."""
        ...

    @property
    def has_gtids(self) -> bool:
        """Whether transactions have GTIDs: then an empty set at "latest" or "earliest" means none rather than unknown."""
        ...

    @property
    def full_metadata(self) -> bool | None:
        """Whether the server has binlog_row_metadata=FULL; None if unknown."""
        ...

    def resolve(self, start: Start) -> Position:
        """Find the position that ``start`` means now.

        ``"latest"`` is the present end of the log, ``"earliest"`` the oldest available position. A position with a journal
        or GTID set is checked and returned. A position with only a time becomes the start of the first transaction at or
        after that time, or the end if there is none. If it also has a journal, only that journal is searched. The result
        has a journal and offset, or a GTID set, that ``dump`` accepts.

        Raises:
            PositionLostError: the log does not reach back to the position, or has no such position.
        """
        ...

    def dump(self, position: Position) -> None:
        """Start streaming from a concrete position; once per connection.

        If the position has an ``incarnation``, start at the journal and offset. The reader can then check
        that the journal is unchanged. Otherwise start after the GTID set if the source supports that, or at journal and
        offset. ``position.row`` is ignored: the next transaction is sent whole.

        Raises:
            PositionLostError: the log is known to be gone. Otherwise the first ``read`` may raise it.
        """
        ...

    def read(self, timeout: float) -> Sequence[bytes] | None:
        """Return the events that have arrived: whole, from 19-byte header to checksum, in log order, valid until the next call.

        Returns as soon as there is an event, ``[]`` after ``timeout`` seconds without one, and None at the end of a log that
        is not followed. As from a server, the stream starts with an artificial ROTATE that names the journal and the
        journal's FORMAT_DESCRIPTION, and heartbeats are events.

        Raises:
            ConnectionLostError: the connection broke, was closed, or was silent for longer than heartbeats allow.
            PositionLostError, ServerError: the server ended the stream with an error.
            DecodeError: the stream or file is corrupt.
        """
        ...

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        """Return the present columns of a table; None if there is no such table or no server to query.

        Raises:
            ConnectionLostError: the query failed.
        """
        ...

    def close(self) -> None:
        """Close the connection; a waiting ``read`` in another thread raises ConnectionLostError. Never raises."""
        ...


@attrs.frozen
class Description:
    """Tables as they are now, the databases' default charsets, and lower_case_table_names."""

    tables: tuple[TableVersion, ...]
    databases: dict[str, str] = attrs.field(factory=dict)
    lower_case_table_names: int = 0
    #: Databases without queried tables.
    unread: frozenset[str] = frozenset()


class LogReader(Protocol):
    """Reads the log next to the stream. Methods raise the same errors as ``Connection.read``."""

    @property
    def can_replay(self) -> bool:
        """Whether ``journal_names`` and ``replay`` work."""
        return False

    def journal_names(self) -> list[str]:
        """Return the available journals, oldest first."""
        raise NotImplementedError

    def replay(self, journal: str, offset: int) -> Generator[bytes, None, None]:
        """Yield the events of one journal from ``offset`` on, FORMAT_DESCRIPTION first."""
        raise NotImplementedError

    def end_of_log(self) -> Position:
        """Return the journal and offset of the present end."""
        raise NotImplementedError

    def incarnation(self, journal: str) -> str | None:
        """Return the incarnation of a journal (``Position.incarnation``); "" if there is no such journal, None if unknown."""
        return None

    def check_end(self, position: Position) -> bool:
        """Return whether the log ends at ``position``; True if unknown. Called when no event came for a while.

        Raises:
            PositionLostError: the source no longer has the log that was read.
        """
        return True

    def has_logged(self, gtid: str) -> bool:
        """Return whether the source's log has, or may have, the last transactions of a GTID set."""
        return True

    @property
    def purged(self) -> str:
        """GTIDs that the source has executed and may have purged; "" if there are none."""
        return ""


class SchemaReader(Protocol):
    """Reads table definitions as they are now. Methods raise the same errors as ``Connection.table_columns``."""

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description | None:
        """Describe one table, or every table of the databases with an accepted table.

        None if there is no server to query.
        """
        return None

    def json_columns(self, schema: str, table: str) -> Container[str]:
        """Return the columns that MariaDB created as JSON."""
        return ()

    def unlogged_columns(self, schema: str, table: str) -> Container[str]:
        """Return the columns of a MariaDB table with logged values that are known to differ from the table's."""
        return ()

    def table_names(self) -> list[tuple[str, str]] | None:
        """Return (schema, name) of every table and view; None if unknown."""
        return None

    @property
    def full_images(self) -> bool:
        """Whether the source logs whole rows (binlog_row_image=FULL); True if unknown."""
        return True

    def tables_like(self, schema: str, name: str, *, is_prefix: bool) -> list[str] | None:
        """Return the tables of a schema with this name or name prefix; None if unknown."""
        return None

    @property
    def logs_cascades(self) -> bool:
        """Whether the log has the rows that cascading foreign keys change."""
        return False

    def foreign_keys(self) -> list[ForeignKey]:
        """Return the cascading foreign keys of all tables."""
        return []

    @property
    def given_tables(self) -> list[TableVersion]:
        """Tables that the user has described, as of the start of the log."""
        return []

    @property
    def lower_case_table_names(self) -> int | None:
        """The server's setting, if the user passed it; None if the server must be queried."""
        return None


class StreamInfo(Protocol):
    """The state of the stream."""

    @property
    def clock_offset(self) -> float | None:
        """Seconds by which the source's clock is ahead of ours; None means 0."""
        return None

    @property
    def is_alive(self) -> bool:
        """Whether silence means that the source has no new events."""
        return True

    @property
    def sends_heartbeats(self) -> bool:
        """Whether the source sends heartbeats while it has no events. Without one, silence may be a network delay."""
        return False

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for the operator about the start position."""
        return ()

    @property
    def unlogged(self) -> Sequence[Unlogged]:
        """Changes that the source's settings keep out of the log."""
        return ()

    @property
    def known(self) -> Sequence[tuple[int, int, int]]:
        """(domain, server id, number): transactions up to these are done, but the source may send them (MariaDB)."""
        return ()

    def blocked_by(self) -> str:
        """Describe the reason why the source does not begin to send; "" if it has begun, or if unknown."""
        return ""


class FullConnection(LogReader, SchemaReader, StreamInfo, Connection, Protocol):
    """Everything that the parser uses of a connection. A subclass needs no completion."""


class SourceInfo(Protocol):
    """Facts about a source for ``Instance.status()`` and messages, and connections other than the stream."""

    @property
    def address(self) -> str:
        """The source's address; "" if it has none."""
        return ""

    @property
    def host(self) -> str:
        """The server's host; "" if the source is no server."""
        return ""

    @property
    def port(self) -> int:
        """The server's port; 0 if the source is no server."""
        return 0

    @property
    def check_interval(self) -> float:
        """Seconds without a change after which ``LogReader.check_end`` is called."""
        return math.inf

    def read_end(self, timeout: float) -> SourceEnd | None:
        """Return the end of the log, over a new connection. Each wait is at most ``timeout``. None if unknown."""
        return None

    @property
    def new_connection(self) -> Callable[[int | None], Any] | None:
        """A factory that accepts a server id hint and returns an unopened connection; None if there is only ``connect``.

        The connection's ``open()`` does the work of ``connect``. ``close()`` from another thread ends ``open()``.
        """
        return None

    def open_probe(self, timeout: float) -> Any:
        """Return a session for queries, with ``timeout`` as the limit for an answer; None if unsupported."""
        return None


def complete(connection: Connection) -> FullConnection:
    """Add the defaults to a connection, unless it derives from ``FullConnection``."""
    whole: Any = connection if FullConnection in type(connection).__mro__ else _CompletedConnection(connection)
    return cast(FullConnection, whole)


def source_info(source: Source) -> SourceInfo:
    """Return the ``SourceInfo`` of a source, with defaults for missing members."""
    return cast(SourceInfo, Completed(source, (SourceInfo,)))


class Completed:
    """Wraps a user's object. Missing attributes come from the Protocols in ``others``."""

    def __init__(self, inner: Any, others: tuple[type, ...]) -> None:
        self._inner: Final = inner
        self._others: Final = others

    def __str__(self) -> str:
        return str(self._inner)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._inner, name)
        except AttributeError:
            found = next((vars(one)[name] for one in self._others if name in vars(one)), None)
            if found is None:
                raise
            return found.__get__(self)


class _CompletedConnection(Completed):
    def __init__(self, inner: Connection) -> None:
        super().__init__(inner, (LogReader, SchemaReader, StreamInfo))

    @property
    def can_replay(self) -> bool:
        return hasattr(self._inner, "replay")

    def end_of_log(self) -> Position:
        ask = getattr(self._inner, "end_of_log", None)
        found: Position = self._inner.resolve("latest") if ask is None else ask()
        return found

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description | None:
        """Return the result of ``table_columns`` if the connection has no ``describe``."""
        ask = getattr(self._inner, "describe", None)
        if ask is not None:
            known: Description | None = ask(schema, table, accepts=accepts)
            return known
        found = self._inner.table_columns(schema, table) if schema else None
        return None if found is None else Description((TableVersion(found, None),))
