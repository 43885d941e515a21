"""Queries a server about logs: names, ends, GTIDs, and whether they contain a position.

Never reads a log.
"""

from __future__ import annotations

from typing import Any

import attrs

from canal.binlog import event_layout as layout
from canal.binlog.server_facts import ServerFacts
from canal.errors import LostReason, PositionLostError, ServerError, SourceError
from canal.gtid import MariadbGtidSet
from canal.parse.source.login import Login
from canal.parse.source.server import ServerOptions
from canal.parse.source.session import QuerySession
from canal.position import Position


class ServerLogs:
    """The logs of a server, queried over a separate session."""

    def __init__(self, source: ServerOptions, login: Login, queries: QuerySession) -> None:
        self._source = source
        self._login = login
        self._queries = queries

    @property
    def _server(self) -> ServerFacts:
        return self._login.server

    def rows(self, sql: str, args: tuple[Any, ...] = (), doing: str = "find the start position") -> list[tuple[Any, ...]]:
        return self._queries.rows(sql, args, doing=doing)

    def listed(self) -> list[tuple[str, int | None]]:
        """Return ``QuerySession.logs``. Raises ServerError if there are none."""
        logs = self._queries.logs()
        if not logs:
            raise ServerError(f"{self._source.address} has no binary log", remedy="Set log_bin and restart the server.")
        return logs

    def names(self) -> list[str]:
        return [name for name, _ in self.listed()]

    def end(self) -> Position:
        """Return the journal and offset of the present end, without GTIDs. Faster than ``resolve("latest")``."""
        rows = self.rows(self._server.status_query, (), "find the end of the log")
        return Position(journal=str(rows[0][0]), offset=int(rows[0][1])) if rows else Position()

    def latest(self) -> Position:
        """Return file, offset and GTID set of the end, read in one query or looked up for that offset."""
        rows = self.rows(self._server.status_query)
        if not rows:
            raise ServerError(f"{self._source.address} has no binary log", remedy="Set log_bin and restart the server.")
        journal, offset = str(rows[0][0]), int(rows[0][1])
        if self._server.is_mariadb:
            return self._at(journal, offset, self._mariadb_gtid(journal, offset))
        executed = str(rows[0][4]) if self._server.has_gtids and len(rows[0]) > 4 else ""
        return self._at(journal, offset, executed)

    def earliest(self) -> Position:
        """Return the start of the oldest log with the GTID set that is done there."""
        journal = self.listed()[0][0]
        if self._server.is_mariadb:
            return self._at(journal, layout.FIRST, self._mariadb_gtid(journal, layout.FIRST))
        if not self._server.has_gtids:
            return self._at(journal, layout.FIRST, "")
        for _ in range(10):  # a purge between the two queries would pair a log with the wrong GTIDs
            purged = str(self.rows("SELECT @@global.gtid_purged")[0][0])
            again = self.listed()[0][0]
            if again == journal:
                break
            journal = again
        return self._at(journal, layout.FIRST, purged)

    def _mariadb_gtid(self, journal: str, offset: int) -> str:
        if not self._server.has_gtids:
            return ""
        found = self.rows("SELECT BINLOG_GTID_POS(%s, %s)", (journal, offset))[0][0]
        return str(found or "")

    def _at(self, journal: str, offset: int, gtid: str) -> Position:
        return Position(journal=journal, offset=offset, gtid=gtid, source=self._server.identity)

    @property
    def purged(self) -> str:
        if self._server.is_mariadb or not self._server.has_gtids:
            return ""
        return str(self.rows("SELECT @@global.gtid_purged")[0][0])

    def has_logged(self, gtid: str) -> bool:
        if not self._server.is_mariadb:
            return True
        (state,) = self.rows("SELECT @@global.gtid_binlog_state, @@global.gtid_slave_pos")
        numbers: dict[str, int] = {}
        for one in filter(None, ",".join(map(str, state)).split(",")):
            origin, _, number = one.strip().rpartition("-")
            numbers[origin] = max(int(number), numbers.get(origin, 0))
        wanted = [one.rpartition("-") for one in gtid.split(",") if one]
        return all(numbers.get(origin, 0) >= int(number) for origin, _, number in wanted)

    def check_purged(self, start: Position) -> None:
        """Raise PositionLostError if the server has purged transactions that follow a GTID set.

        MariaDB checks this when a dump begins. Query it only for positions of the same server.
        """
        if not self._server.is_mariadb:
            missing = self.rows("SELECT GTID_SUBTRACT(@@global.gtid_purged, %s)", (start.gtid,))[0][0]
        elif start.source == self._server.identity:
            missing = MariadbGtidSet.parse(self.earliest().gtid) - MariadbGtidSet.parse(start.gtid)
        else:
            return
        if missing:
            raise PositionLostError(
                f"{self._source.address} has purged transactions that were not read yet: "
                f"{shortened(str(missing))}; {self.available_range()}",
                position=start,
            )

    def check_journal(self, start: Position) -> Position:
        """Return the position with this server's identity. Raises PositionLostError if the server does not have it."""
        self.check_source(start)
        sizes = dict(self.listed())
        offset = max(start.offset, layout.FIRST)
        if start.journal not in sizes:
            raise self.missing_log(start)
        size = sizes[start.journal]
        if size is not None and offset > size:
            raise PositionLostError(
                f"{start.journal} of {self._source.address} ends at {size}, before offset {offset}",
                reason=LostReason.BEYOND,
                position=start,
                remedy="Check the server: it lost the end of the log, or the position comes from another server.",
            )
        return attrs.evolve(start, offset=offset, source=self._server.identity)

    def check_source(self, start: Position) -> None:
        """Raise PositionLostError for a journal and offset of another server."""
        if start.source and start.source != self._server.identity:
            raise PositionLostError(
                f"the position is one of server {start.source}, and {self._source.address} is {self._server.identity}",
                reason=LostReason.OTHER_SERVER,
                position=start,
                remedy="Resume by GTID set or from a time: journals of two servers cannot be compared.",
            )

    def missing_log(self, position: Position) -> PositionLostError:
        return PositionLostError(
            f"{self._source.address} has no log {position.journal}; {self.available_range()}", position=position
        )

    def with_gtid_advice(self, remedy: str) -> str:
        """Add "or set gtid_mode=ON" to a remedy if the server has GTIDs."""
        return f"{remedy}, or set gtid_mode=ON on the server." if self._server.has("gtids") else f"{remedy}."

    def available_range(self) -> str:
        """Return the range of logs that the server has, for messages."""
        try:
            logs = self.listed()
        except SourceError:
            return "the logs cannot be listed"
        return f"it has {logs[0][0]} to {logs[-1][0]}"


def shortened(text: str) -> str:
    """Cut a text to 200 characters for a message."""
    return text if len(text) <= 200 else text[:197] + "…"
