"""The connection that the parser uses: a login for the dump, and a session for queries."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from canal.errors import ConnectionLostError, PositionLostError, StateError
from canal.parse.schema.cascades import ForeignKey
from canal.parse.source.dump import Dump
from canal.parse.source.information_schema import Accepts, accept_all
from canal.parse.source.log_check import LogCheck
from canal.parse.source.login import Login
from canal.parse.source.logs import ServerLogs
from canal.parse.source.protocol import Description, FullConnection, Start
from canal.parse.source.server import ServerOptions
from canal.parse.source.session import QuerySession
from canal.parse.source.side_reader import SideReader
from canal.parse.source.start_finder import StartFinder
from canal.parse.source.unlogged import Unlogged
from canal.position import Position
from canal.schema import TableSchema


class MySQLConnection(FullConnection):
    """A connection to a MySQL or MariaDB server. Delegates to one object per task."""

    def __init__(self, source: ServerOptions, server_id: int, replica_uuid: str) -> None:
        self._source = source
        self.server_id = server_id
        self._queries = QuerySession(source)
        self._login = Login(source, server_id, replica_uuid)
        self._logs = ServerLogs(source, self._login, self._queries)
        self._side_reader = SideReader(source, server_id, self._login, self._logs)
        self._start_finder = StartFinder(source, self._login, self._logs, self._side_reader)
        self._log_check = LogCheck(source, self._login, self._logs, self._side_reader.incarnation)
        self._dump = Dump(source, server_id, self._login, self._logs, self._log_check)

    def open(self) -> None:
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
        return self._login.clock_offset

    @property
    def warnings(self) -> list[str]:
        return self._dump.warnings

    @property
    def unlogged(self) -> Sequence[Unlogged]:
        return self._login.unlogged

    @property
    def known(self) -> list[tuple[int, int, int]]:
        return self._dump.known

    @property
    def sends_heartbeats(self) -> bool:
        return True

    @property
    def is_alive(self) -> bool:
        """Whether the server has begun to send and heartbeats arrive: then silence means that there are no new events."""
        stream = self._dump.stream
        return stream is not None and stream.is_alive

    @property
    def is_encrypted(self) -> bool:
        """Whether the replication connection runs over TLS."""
        stream = self._dump.stream
        return stream.is_encrypted if stream is not None else self._login.is_encrypted

    # -- the stream ----------------------------------------------------------------------------------------------------

    def resolve(self, start: Start) -> Position:
        return self._start_finder.resolve(start)

    def dump(self, position: Position) -> None:
        self._dump.begin(position)

    def blocked_by(self) -> str:
        return self._dump.blocked_by()

    def read(self, timeout: float) -> Sequence[bytes] | None:
        stream = self._dump.stream
        if stream is None:
            raise StateError("cannot read before dump()")
        try:
            events = stream.read(timeout)
        except PositionLostError as error:
            error.message = f"{error.message}; {self._logs.available_range()}"
            raise
        if not events and stream.ended:
            raise ConnectionLostError(
                f"{self._source.address} ended the dump",
                by_source=True,
                remedy="Check whether the server shuts down or was reset (RESET MASTER). Give each reader a different "
                f"server_id: MySQL before 5.7 and MariaDB before 10.2 do not report that another reader uses {self.server_id}.",
            )
        return events

    # -- the logs ------------------------------------------------------------------------------------------------------

    @property
    def purged(self) -> str:
        return self._logs.purged

    @property
    def can_replay(self) -> bool:
        return True

    def journal_names(self) -> list[str]:
        return self._logs.names()

    def has_logged(self, gtid: str) -> bool:
        return self._logs.has_logged(gtid)

    def end_of_log(self) -> Position:
        return self._logs.end()

    def check_end(self, position: Position) -> bool:
        return self._log_check.check_end(position, by_offset=self._dump.by_offset, is_streaming=self._dump.stream is not None)

    def incarnation(self, journal: str) -> str | None:
        return self._side_reader.incarnation(journal)

    def replay(self, journal: str, offset: int) -> Generator[bytes, None, None]:
        return self._side_reader.replay(journal, offset)

    # -- the tables ----------------------------------------------------------------------------------------------------

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        return self._queries.table_columns(schema, table)

    def json_columns(self, schema: str, table: str) -> set[str]:
        return self._queries.json_columns(schema, table) if self._login.server.has("json_checks") else set()

    def unlogged_columns(self, schema: str, table: str) -> set[str]:
        return self._queries.unlogged_columns(schema, table)

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description:
        return self._queries.describe(schema, table, accepts=accepts)

    def table_names(self) -> list[tuple[str, str]]:
        return self._queries.table_names()

    @property
    def full_images(self) -> bool:
        return self._login.server.full_images

    @property
    def logs_cascades(self) -> bool:
        """Whether the log has the rows that cascading foreign keys change. False on a replica: the source may not log them."""
        if not self._login.server.logs_cascades:
            return False
        return not self._queries.rows("SHOW REPLICA STATUS", doing="ask for a replica's sources")

    def foreign_keys(self) -> list[ForeignKey]:
        return self._queries.foreign_keys()

    def tables_like(self, schema: str, name: str, *, is_prefix: bool) -> list[str]:
        return self._queries.tables_like(schema, name, is_prefix=is_prefix)

    def close(self) -> None:
        self._login.close()
        self._queries.close()
        self._dump.close()
        self._side_reader.close()
