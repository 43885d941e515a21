"""A connection to a server as the parser uses it: a login that becomes the dump, and a session for queries beside it."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from canal.errors import ConnectionLostError, PositionLostError, StateError
from canal.parse.schema.cascades import ForeignKey
from canal.parse.source.beside import Beside
from canal.parse.source.dump import Dump
from canal.parse.source.information_schema import Accepts, accept_all
from canal.parse.source.login import Login
from canal.parse.source.logs import ServerLogs
from canal.parse.source.proofs import Proofs
from canal.parse.source.protocol import Description, FullConnection, Start
from canal.parse.source.seek import Seek
from canal.parse.source.server import ServerOptions
from canal.parse.source.session import QuerySession
from canal.parse.source.unlogged import Unlogged
from canal.position import Position
from canal.schema import TableSchema


class MySQLConnection(FullConnection):
    """A connection to a server; each part of it knows one thing, and this which part does what."""

    def __init__(self, source: ServerOptions, server_id: int, replica_uuid: str) -> None:
        self._source = source
        self.server_id = server_id
        self._queries = QuerySession(source)
        self._login = Login(source, server_id, replica_uuid)
        self._logs = ServerLogs(source, self._login, self._queries)
        self._beside = Beside(source, server_id, self._login, self._logs)
        self._seek = Seek(source, self._login, self._logs, self._beside)
        self._proofs = Proofs(source, self._login, self._logs, self._beside.incarnation)
        self._dump = Dump(source, server_id, self._login, self._logs, self._proofs)

    def open(self) -> None:
        """Log in and set up replication; blocks as ``Source.connect`` does. ``close`` from another thread ends it."""
        self._login.open()

    @property
    def identity(self) -> str:
        return self._login.server.identity

    @property
    def flavor(self) -> str:
        return self._login.server.flavor

    @property
    def has_gtids(self) -> bool:
        return self._login.server.has_gtids

    @property
    def full_metadata(self) -> bool | None:
        return self._login.server.full_metadata

    @property
    def clock_offset(self) -> float:
        """Seconds that the server's clock is ahead of ours."""
        return self._login.clock_offset

    @property
    def warnings(self) -> list[str]:
        """What an operator should know about the position from which it streams."""
        return self._dump.warnings

    @property
    def unlogged(self) -> Sequence[Unlogged]:
        """Changes that are missing from the server's log."""
        return self._login.unlogged

    @property
    def known(self) -> list[tuple[int, int, int]]:
        """(domain, server id, number): transactions up to these are done, but the source may send them (MariaDB)."""
        return self._dump.known

    @property
    def sends_heartbeats(self) -> bool:
        return True

    @property
    def is_alive(self) -> bool:
        """Whether silence means that the server has no more: it has begun to send, and its heartbeats come."""
        stream = self._dump.stream
        return stream is not None and stream.is_alive

    @property
    def is_encrypted(self) -> bool:
        """Whether the replication connection runs over TLS."""
        stream = self._dump.stream
        return stream.is_encrypted if stream is not None else self._login.is_encrypted

    # -- the stream ----------------------------------------------------------------------------------------------------

    def resolve(self, start: Start) -> Position:
        return self._seek.resolve(start)

    def dump(self, position: Position) -> None:
        self._dump.begin(position)

    def held_up_by(self) -> str:
        """Which dumps the server has to end before it begins ours; "" where it has begun, or it is something else."""
        return self._dump.held_up_by()

    def read(self, timeout: float) -> Sequence[bytes] | None:
        stream = self._dump.stream
        if stream is None:
            raise StateError("nothing is streamed before dump()")
        try:
            events = stream.read(timeout)
        except PositionLostError as error:
            error.message = f"{error.message}; {self._logs.span()}"
            raise
        if not events and stream.ended:
            raise ConnectionLostError(
                f"{self._source.address} ended the dump",
                by_source=True,
                remedy="It shuts down, or its logs were reset (RESET MASTER), or another reader uses our server id "
                f"{self.server_id}, of which MySQL before 5.7 and MariaDB before 10.2 say no more: give each one of its own.",
            )
        return events

    # -- the logs ------------------------------------------------------------------------------------------------------

    @property
    def purged(self) -> str:
        """GTIDs that a server has executed and may have in no log (MySQL's gtid_purged); "" where there are none."""
        return self._logs.purged

    @property
    def can_replay(self) -> bool:
        return True

    def journal_names(self) -> list[str]:
        """The logs that the server still has, the oldest first."""
        return self._logs.names()

    def has_logged(self, gtid: str) -> bool:
        """Whether the transactions that end a GTID set are the server's own or came to it; MySQL's sets tell it anyhow."""
        return self._logs.has_logged(gtid)

    def end_of_log(self) -> Position:
        """Journal and offset of the present end, without GTIDs: quicker than ``resolve("latest")``."""
        return self._logs.end()

    def check_end(self, position: Position) -> bool:
        """As ``Proofs.check_end``, of the dump that streams."""
        return self._proofs.check_end(position, by_offset=self._dump.by_offset, is_streaming=self._dump.stream is not None)

    def incarnation(self, journal: str) -> str | None:
        """As ``Beside.incarnation``."""
        return self._beside.incarnation(journal)

    def replay(self, journal: str, offset: int) -> Generator[bytes, None, None]:
        """The events of one log from ``offset`` on, its FORMAT_DESCRIPTION first, over a connection of their own."""
        return self._beside.replay(journal, offset)

    # -- the tables ----------------------------------------------------------------------------------------------------

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        return self._queries.table_columns(schema, table)

    def json_columns(self, schema: str, table: str) -> set[str]:
        """The columns that MariaDB made of the type JSON: LONGTEXT with a check."""
        return self._queries.json_columns(schema, table) if self._login.server.has("json_checks") else set()

    def unlogged_columns(self, schema: str, table: str) -> set[str]:
        """As ``QuerySession.unlogged_columns``."""
        return self._queries.unlogged_columns(schema, table)

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description:
        """As ``QuerySession.describe``."""
        return self._queries.describe(schema, table, accepts=accepts)

    def table_names(self) -> list[tuple[str, str]]:
        """Schema and name of every table and view that the user may see."""
        return self._queries.table_names()

    @property
    def full_images(self) -> bool:
        return self._login.server.full_images

    @property
    def logs_cascades(self) -> bool:
        """Whether the rows that a cascading foreign key changes are in the log: not on a replica, whose source may not
        have logged them."""
        if not self._login.server.logs_cascades:
            return False
        return not self._queries.rows("SHOW REPLICA STATUS", doing="ask for a replica's sources")

    def foreign_keys(self) -> list[ForeignKey]:
        """The cascading foreign keys of all tables as they are now."""
        return self._queries.foreign_keys()

    def tables_like(self, schema: str, name: str, *, is_prefix: bool) -> list[str]:
        """Names of the tables of a schema that are called so, or begin so, as they are now."""
        return self._queries.tables_like(schema, name, is_prefix=is_prefix)

    def close(self) -> None:
        self._login.close()
        self._queries.close()
        self._dump.close()
        self._beside.close()
