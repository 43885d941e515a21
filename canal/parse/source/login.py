"""The login of a replica: what a server is asked and what is set before it sends a dump over the same connection."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import partial
from typing import Any, Final

from canal.binlog.server_facts import Ask, Release, ServerFacts, read_server
from canal.errors import AuthenticationError, ConnectionLostError, ServerError
from canal.parse.source import _pymysql
from canal.parse.source.packets import COM_REGISTER_SLAVE, register_packet
from canal.parse.source.server import ServerOptions
from canal.parse.source.server_errors import query_error
from canal.parse.source.session import run, try_to_set
from canal.parse.source.unlogged import Unlogged, unlogged

log = logging.getLogger("canal.parse")

#: A question about the server's time that took longer (seconds) is asked again, so many times at most.
_CLOCK_PRECISION: Final = 0.5
_CLOCK_LOOKS: Final = 3


class Login:
    """Logs in, registers as a replica, and lends the connection until a dump takes its socket over.

    Used by one thread at a time, under ``using``; ``close`` may come from any, and ends an ``open`` too.
    """

    #: What the server says of itself; known once ``open`` is through.
    server: ServerFacts
    #: Changes that are missing from its log; known as ``server`` is.
    unlogged: Sequence[Unlogged] = ()

    def __init__(self, source: ServerOptions, server_id: int, replica_uuid: str) -> None:
        self._source = source
        self._server_id = server_id
        self._replica_uuid = replica_uuid
        #: The PyMySQL connection; None before ``open`` and once a dump has taken it over.
        self.connection: Any = None
        self.using = threading.RLock()
        self._closed = False
        #: Seconds that the server's clock is ahead of ours.
        self.clock_offset = 0.0
        self._opening = _pymysql.Opening()
        self._limit = 0

    def open(self) -> None:
        """Log in and set up replication; blocks as ``Source.connect`` does. ``close`` from another thread ends it."""
        with self.using:
            self.connection = self._source.log_in(self._opening)
            if self.connection.is_remembered:
                log.warning(
                    "%s let %r in by what it remembers of the password: after its restart the login will be refused. "
                    "docs/security.md says which option it needs.",
                    self._source.address,
                    self._source.user,
                )
            try:
                if self._closed:
                    raise self.closed()
                self.server = self._prepare(self.connection)
                self._limit = self._read_limit(self.connection)
                self.need(2)
            except BaseException:
                self.close()
                raise

    def _read_limit(self, login: Any) -> int:
        """The user's connections at once, 0 for any number."""
        try:
            rows = run(login, "SHOW SESSION VARIABLES LIKE 'max_user_connections'")
        except (_pymysql.DriverError, OSError) as error:
            raise query_error(error, self._source, "ask for max_user_connections") from error
        text = str(rows[0][1]) if rows else ""
        return int(text) if text.isdecimal() else 0  # MariaDB has -1 too

    def need(self, count: int) -> None:
        """Refuse a user that cannot have so many connections at once: the server would refuse each further one, for ever."""
        if 0 < self._limit < count:
            raise AuthenticationError(
                f"{self._source.user!r} may have {self._limit} connections at once to {self._source.address}, and {count} are "
                "needed",
                remedy=f"As an administrator, raise max_user_connections of the user or of the server to {count} or more.",
            )

    def _prepare(self, login: Any) -> ServerFacts:
        try:
            server = read_server(partial(run, login), self._source)
            status = run(login, server.status_query)  # tells a missing REPLICATION CLIENT now rather than later
            self._check_logging(server, status, partial(run, login))
            self._set_up(login, server)
            # Registering tells a missing REPLICATION SLAVE, and shows us in SHOW REPLICAS.
            _pymysql.command_ok(login, COM_REGISTER_SLAVE, register_packet(self._server_id))
            self.clock_offset = clock_offset(login, server)
        except (_pymysql.DriverError, OSError) as error:
            raise query_error(error, self._source, "set up replication") from error
        return server

    def _check_logging(self, server: ServerFacts, status: list[tuple[Any, ...]], ask: Ask) -> None:
        """Refuse a server whose log lacks changes of any table."""
        self.unlogged = list(unlogged(server, server.settings, status[0] if status else (), ask))
        for one in self.unlogged:
            if one.is_fatal:
                raise ServerError(f"{self._source.address} does not log all changes: {one.text}", remedy=one.remedy)

    def _set_up(self, login: Any, server: ServerFacts) -> None:
        period = int(self._source.heartbeat_interval * 1e9)
        settings = [
            "time_zone = '+00:00'",
            f"@master_heartbeat_period = {period}",
            f"@source_heartbeat_period = {period}",
            f"@slave_uuid = '{self._replica_uuid}'",
            f"@replica_uuid = '{self._replica_uuid}'",
        ]
        if server.has_checksums:
            settings += [
                "@master_binlog_checksum = @@global.binlog_checksum",
                "@source_binlog_checksum = @@global.binlog_checksum",
            ]
        if server.is_mariadb:
            settings.append("@mariadb_slave_capability = 4")
        run(login, "SET " + ", ".join(settings))
        try_to_set(login, f"net_write_timeout = {min(self._source.net_write_timeout, 31536000)}")

    @property
    def is_encrypted(self) -> bool:
        return _pymysql.is_encrypted(self.connection)

    def is_closed(self) -> bool:
        """Whether the connection that it is a part of was closed."""
        return self._closed

    def closed(self) -> ConnectionLostError:
        """The error of whoever goes on with a connection that was closed meanwhile."""
        return ConnectionLostError(f"the connection to {self._source.address} was closed")

    def take_over(self) -> tuple[socket.socket, bytes]:
        """The socket, to read a dump from, and the bytes that were read ahead of it; the login is over."""
        taken = _pymysql.take_over(self.connection)
        self.connection = None
        return taken

    def close(self) -> None:
        self._closed = True
        self._opening.close()
        connection = self.connection
        if connection is not None:
            _pymysql.abort(connection)
            if self.using.acquire(blocking=False):  # else it fails where it is used, and who uses it closes it again
                _pymysql.close(connection)
                self.using.release()


def clock_offset(connection: Any, release: Release) -> float:
    """Seconds that the server's clock is ahead of ours, to half the time that the quickest of a few questions takes, and to
    half a second more where the server tells whole seconds."""
    found: list[tuple[float, float]] = []
    cut_off = 0.0 if release.has("fractions") else 0.5
    while len(found) < _CLOCK_LOOKS and (not found or min(found)[0] > _CLOCK_PRECISION):
        asked = time.time()
        answer = str(run(connection, release.time_query)[0][0])
        took = time.time() - asked
        try:
            told = datetime.fromisoformat(answer).replace(tzinfo=timezone.utc)
        except ValueError as error:
            raise ConnectionLostError(f"the answer makes no sense: {error}") from error
        found.append((abs(took), told.timestamp() + cut_off - (asked + took / 2)))
    return min(found)[1]
