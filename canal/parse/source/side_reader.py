"""Reads parts of a server's log over a second connection while the first one streams."""

from __future__ import annotations

import uuid
from collections.abc import Generator

from canal.binlog import event_layout as layout
from canal.binlog.event_types import FORMAT_DESCRIPTION, ROTATE
from canal.errors import AuthenticationError
from canal.parse.log.continuity import incarnation_of
from canal.parse.log.side_reads import SideRead
from canal.parse.source.dump import Dump
from canal.parse.source.log_check import LogCheck
from canal.parse.source.login import Login
from canal.parse.source.logs import ServerLogs
from canal.parse.source.server import ServerOptions
from canal.parse.source.session import QuerySession
from canal.parse.source.stream import DumpStream
from canal.position import Position


class _SideConnection:
    """A second login with another replica identity: a server ends a replica's dump if the same replica starts another one."""

    def __init__(self, source: ServerOptions, server_id: int) -> None:
        self._login = Login(source, server_id, str(uuid.uuid4()))
        self._queries = QuerySession(source)
        logs = ServerLogs(source, self._login, self._queries)
        self._dump = Dump(source, server_id, self._login, logs, LogCheck(source, self._login, logs, _no_incarnation))

    def open_at(self, journal: str, offset: int) -> DumpStream:
        """Log in and stream the log from ``offset`` to the present end."""
        self._login.open()
        return self._dump.begin(Position(journal=journal, offset=offset), non_block=True)

    def close(self) -> None:
        self._login.close()
        self._queries.close()
        self._dump.close()


def _no_incarnation(journal: str) -> str | None:
    """Return None: this connection has read no log before."""
    return None


class SideReader:
    """Reads logs of the server, one at a time, each over a new connection."""

    def __init__(self, source: ServerOptions, server_id: int, login: Login, logs: ServerLogs) -> None:
        self._source = source
        self._server_id = server_id ^ 0x40000000
        self._login = login
        self._logs = logs
        self._other: _SideConnection | None = None

    def incarnation(self, journal: str) -> str | None:
        """Return the incarnation of the server's log (``Position.incarnation``).

        Returns:
            "" if the server has no log of that name, None if the user may not open another connection.
        """
        try:
            if journal not in self._logs.names():
                return ""
            head = next((event for event in self.events(journal) if event[layout.TYPE] == FORMAT_DESCRIPTION), None)
        except AuthenticationError:
            return None
        return "" if head is None else incarnation_of(head)

    def replay(self, journal: str, offset: int) -> Generator[bytes, None, None]:
        """Yield the events of one log from ``offset`` on, FORMAT_DESCRIPTION first."""
        if journal not in self._logs.names():
            raise self._logs.missing_log(Position(journal=journal, offset=offset))
        begun = False
        for event in self.events(journal, offset):
            if event[layout.TYPE] != ROTATE:
                begun = True
                yield event
            elif begun:  # the log's last event, or the artificial ROTATE of a server that continues with the next log
                return

    def events(self, journal: str, offset: int = layout.FIRST) -> Generator[bytes, None, None]:
        """Yield the events from ``offset`` of a log to the end of the server's last log."""
        self._login.require_connections(3)
        other = self._other = _SideConnection(self._source, self._server_id)
        try:
            if self._login.is_closed():
                raise self._login.closed()
            stream = other.open_at(journal, offset)
            side = SideRead(journal, offset)
            while not self._login.is_closed():  # checked here too: close() may have run before self._other was set
                events = stream.read(self._source.seek_timeout)
                if not events:
                    return
                yield from map(side.check, events)
        finally:
            other.close()
        raise self._login.closed()

    def close(self) -> None:
        """End the current read. The reading thread closes the connection."""
        other = self._other
        if other is not None:
            other.close()
