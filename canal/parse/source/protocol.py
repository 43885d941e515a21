"""What a source of raw binlog events promises: the Protocols that the parser knows it by.

``Source`` and ``Connection`` are what every source must have. What one may have beside it is in Protocols by what it is able
to: ``LogReader``, ``SchemaReader`` and ``StreamTeller`` for a connection, ``SourceTeller`` for a source. Their bodies are
what holds of one that is not able to it, and ``complete`` fills them in, once per connection: the parser asks for all of it.
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
    """Something that can be connected to again and again: a server, binlog files, a fake.

    It may also have what is in ``SourceTeller``, in parts too.
    """

    def connect(self, server_id_hint: int | None = None) -> Connection:
        """Open one connection; ``server_id_hint`` is used where the configuration names no server id.

        Blocks for as long as the source's own connect timeout at most. Finds out what cannot work before anything
        streams.

        Raises:
            ConnectionLostError: nobody answers; trying again may help.
            AuthenticationError: the user or a privilege is refused.
            SourceError: any other fault of the source, such as a setting that makes its log useless.
        """
        ...


@runtime_checkable
class Connection(Protocol):
    """One connection to a source. Used by one thread at a time; only ``close`` may be called by any other.

    After an error other than those of ``resolve`` and ``table_columns`` it is of no more use than to be closed.
    It may also have what is in ``LogReader``, ``SchemaReader`` and ``StreamTeller``, in parts too.
    """

    @property
    def identity(self) -> str:
        """A stable id of the server, to tell whether journals and offsets mean the same logs; "" for files."""
        ...

    @property
    def flavor(self) -> str:
        """``"mysql"`` or ``"mariadb"``."""
        ...

    @property
    def has_gtids(self) -> bool:
        """Whether transactions have GTIDs, so that an empty set at "latest" or "earliest" means none rather than unknown."""
        ...

    @property
    def full_metadata(self) -> bool | None:
        """Whether the server is set to write binlog_row_metadata=FULL; None where that is not known."""
        ...

    def resolve(self, start: Start) -> Position:
        """Find the position that ``start`` means now.

        ``"latest"`` is the present end of the log, ``"earliest"`` the oldest that is still there. A position with
        journal or GTID set is checked and given back; one with only a time becomes the start of the first transaction
        at or after it (within its journal, where it names one); if there is none yet, the end. The result names a
        journal and an offset or a GTID set that a later ``dump`` can start from.

        Raises:
            PositionLostError: the log does not reach back to the position, or has no such position.
        """
        ...

    def dump(self, position: Position) -> None:
        """Begin to stream from a concrete position; once per connection.

        By journal and offset where the position has the ``incarnation`` of its journal, so that the reader can prove that it
        is still the same one; else by GTID set where it has one and the source can; else by journal and offset.
        ``position.row`` does not count here: the transaction that follows is sent whole.

        Raises:
            PositionLostError: it is known already that the log is gone; else the first ``read`` raises it.
        """
        ...

    def read(self, timeout: float) -> Sequence[bytes] | None:
        """The events that have arrived: whole (19-byte header to checksum), in the log's order, good until the next ``read``.

        Returns as soon as there is one event, ``[]`` when there was none within ``timeout`` seconds, None at the end of
        a log that is not followed. The stream begins with an artificial ROTATE that names the journal, then the
        journal's FORMAT_DESCRIPTION, as a server sends them; heartbeats come as events.

        Raises:
            ConnectionLostError: the connection broke, was closed, or was silent for longer than heartbeats allow.
            PositionLostError, ServerError: the server ended the stream with an error.
            DecodeError: the stream or file is damaged.
        """
        ...

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        """The columns of a table as they are now; None when there is no such table or nobody to ask.

        Raises:
            ConnectionLostError: the server could not be asked.
        """
        ...

    def close(self) -> None:
        """End the connection; a ``read`` that waits in another thread raises ConnectionLostError. Never raises."""
        ...


@attrs.frozen
class Description:
    """Tables as they are now, default charsets of databases, and one setting of the server."""

    tables: tuple[TableVersion, ...]
    databases: dict[str, str] = attrs.field(factory=dict)
    lower_case_table_names: int = 0
    #: Databases of whose tables none was asked for.
    unread: frozenset[str] = frozenset()


class LogReader(Protocol):
    """Reads the log by the side of the stream, and tells what is in it. Raises what ``read`` does."""

    @property
    def can_replay(self) -> bool:
        """Whether there are ``journal_names`` and ``replay``."""
        return False

    def journal_names(self) -> list[str]:
        """The journals that are there, the oldest first."""
        raise NotImplementedError

    def replay(self, journal: str, offset: int) -> Generator[bytes, None, None]:
        """The events of one journal from ``offset`` on, its FORMAT_DESCRIPTION first."""
        raise NotImplementedError

    def end_of_log(self) -> Position:
        """Journal and offset of the present end."""
        raise NotImplementedError

    def incarnation(self, journal: str) -> str | None:
        """What tells a journal that is there now from others of its name, see ``Position.incarnation``; "" where there is no
        such journal, None where nobody can tell."""
        return None

    def check_end(self, position: Position) -> bool:
        """Whether the log ends where reading stands, when nothing came for a while; True where that is not known.

        Raises:
            PositionLostError: the source does not have any more what was read.
        """
        return True

    def has_logged(self, gtid: str) -> bool:
        """Whether the source's log has the transactions that end a GTID set, or may have them."""
        return True

    @property
    def purged(self) -> str:
        """GTIDs that the source has executed and may have in no journal; "" where there are none."""
        return ""


class SchemaReader(Protocol):
    """Tells tables as they are now. Raises what ``Connection.table_columns`` does."""

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description | None:
        """All that is known of one table, or of every table of the databases in which one is accepted; None where there is
        nobody to ask."""
        return None

    def json_columns(self, schema: str, table: str) -> Container[str]:
        """The columns that MariaDB made of the type JSON."""
        return ()

    def unlogged_columns(self, schema: str, table: str) -> Container[str]:
        """The columns of a MariaDB table whose values in the log are not those of the table, as far as the source can tell."""
        return ()

    def table_names(self) -> list[tuple[str, str]] | None:
        """Schema and name of every table and view; None where nobody can tell."""
        return None

    @property
    def full_images(self) -> bool:
        """Whether the source is set to log whole rows (binlog_row_image=FULL); True where that is not known."""
        return True

    def tables_like(self, schema: str, name: str, *, is_prefix: bool) -> list[str] | None:
        """Names of the tables of a schema that are called so, or begin so; None where nobody can tell."""
        return None

    @property
    def logs_cascades(self) -> bool:
        """Whether the rows that a cascading foreign key changes are in the log."""
        return False

    def foreign_keys(self) -> list[ForeignKey]:
        """The cascading foreign keys of all tables."""
        return []

    @property
    def given_tables(self) -> list[TableVersion]:
        """Tables that the user has described, as of the start of the log."""
        return []

    @property
    def lower_case_table_names(self) -> int | None:
        """The server's setting where the user gives it; None where it is for the server to say."""
        return None


class StreamTeller(Protocol):
    """Tells how it stands with the stream."""

    @property
    def clock_offset(self) -> float | None:
        """Seconds that the source's clock is ahead of ours; None for 0."""
        return None

    @property
    def is_alive(self) -> bool:
        """Whether silence means that the source has no more."""
        return True

    @property
    def sends_heartbeats(self) -> bool:
        """Whether the source says by heartbeats that it has no more: silence for a moment may be the network's."""
        return False

    @property
    def warnings(self) -> Sequence[str]:
        """What an operator should know about the position from which it streams."""
        return ()

    @property
    def unlogged(self) -> Sequence[Unlogged]:
        """Changes that are missing from the source's log, because of its settings."""
        return ()

    @property
    def known(self) -> Sequence[tuple[int, int, int]]:
        """(domain, server id, number): transactions up to these are done, but the source may send them (MariaDB)."""
        return ()

    def held_up_by(self) -> str:
        """What the source waits for before it begins to send; "" where it has begun, or nobody can tell."""
        return ""


class FullConnection(LogReader, SchemaReader, StreamTeller, Connection, Protocol):
    """All that the parser uses of a connection. Who derives from it is used as it is."""


class SourceTeller(Protocol):
    """Tells of a source what ``Instance.status()`` and messages say of it, and what else can be opened than a stream."""

    @property
    def address(self) -> str:
        """Where it is; "" where it has no name."""
        return ""

    @property
    def host(self) -> str:
        """Of the server; "" where it is none."""
        return ""

    @property
    def port(self) -> int:
        """Of the server; 0 where it is none."""
        return 0

    @property
    def check_interval(self) -> float:
        """Seconds without a change after which ``LogReader.check_end`` is asked."""
        return math.inf

    def read_end(self, timeout: float) -> SourceEnd | None:
        """The end of the log, over a connection of its own; each wait within ``timeout``. None where nobody can tell."""
        return None

    @property
    def new_connection(self) -> Callable[[int | None], Any] | None:
        """Makes a connection, for a server id hint, whose ``open()`` does what ``connect`` does, and ends when another thread
        calls ``close()``; None where ``connect`` is all there is."""
        return None

    def open_probe(self, timeout: float) -> Any:
        """A session for queries whose answers take ``timeout`` s at most; None for a source that takes none."""
        return None


def complete(connection: Connection) -> FullConnection:
    """A connection with all that the parser uses: itself where it derives from ``FullConnection``."""
    whole: Any = connection if FullConnection in type(connection).__mro__ else _CompletedConnection(connection)
    return cast(FullConnection, whole)


def teller(source: Source) -> SourceTeller:
    """What a source tells of itself, with what it does not."""
    return cast(SourceTeller, Completed(source, (SourceTeller,)))


class Completed:
    """An object of somebody else's; what that does not have is as ``others`` say."""

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
        super().__init__(inner, (LogReader, SchemaReader, StreamTeller))

    @property
    def can_replay(self) -> bool:
        return hasattr(self._inner, "replay")

    def end_of_log(self) -> Position:
        ask = getattr(self._inner, "end_of_log", None)
        found: Position = self._inner.resolve("latest") if ask is None else ask()
        return found

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description | None:
        """What ``table_columns`` tells of one table."""
        ask = getattr(self._inner, "describe", None)
        if ask is not None:
            known: Description | None = ask(schema, table, accepts=accepts)
            return known
        found = self._inner.table_columns(schema, table) if schema else None
        return None if found is None else Description((TableVersion(found, None),))
