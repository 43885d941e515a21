"""The login of a replica: queries and settings before a server sends a dump over the same connection."""

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

#: Repeat the query for the server's time while it takes longer than this (seconds), at most so many times.
_CLOCK_PRECISION: Final = 0.5
_CLOCK_LOOKS: Final = 3


class Login:
    """Logs in, registers as a replica, and owns the connection until a dump takes over the socket.

    One thread at a time uses the connection, under ``using``. Any thread may call ``close``, which also ends ``open``.
    """

    #: The server's version and settings; set by ``open``.
    server: ServerFacts
    #: Changes that the server does not log; set by ``open``.
    unlogged: Sequence[Unlogged] = ()

    def __init__(self, source: ServerOptions, server_id: int, replica_uuid: str) -> None:
        self._source = source
        self._server_id = server_id
        self._replica_uuid = replica_uuid
        #: The PyMySQL connection; None before ``open`` and after a dump took it over.
        self.connection: Any = None
        self.using = threading.RLock()
        self._closed = False
        #: Seconds by which the server's clock is ahead of ours.
        self.clock_offset = 0.0
        self._opening = _pymysql.Opening()
        self._limit = 0

    def open(self) -> None:
        """Log in and set up replication; blocks as ``Source.connect`` does. ``close`` from another thread ends the wait."""
        with self.using:
            self.connection = self._source.log_in(self._opening)
            if self.connection.is_remembered:
                log.warning(
                    "%s accepted %r from the password cache and will refuse the login after a restart. "
                    "See docs/security.md for the option that prevents this.",
                    self._source.address,
                    self._source.user,
                )
            try:
                if self._closed:
                    raise self.closed()
                self.server = self._prepare(self.connection)
                self._limit = self._read_limit(self.connection)
                self.require_connections(2)
            except BaseException:
                self.close()
                raise

    def _read_limit(self, login: Any) -> int:
        """Return the user's limit of simultaneous connections, 0 if there is none."""
        try:
            rows = run(login, "SHOW SESSION VARIABLES LIKE 'max_user_connections'")
        except (_pymysql.DriverError, OSError) as error:
            raise query_error(error, self._source, "ask for max_user_connections") from error
        text = str(rows[0][1]) if rows else ""
        return int(text) if text.isdecimal() else 0  # MariaDB also has -1

    def require_connections(self, count: int) -> None:
        """Raise AuthenticationError if the user may not open ``count`` connections: retrying would never help."""
        if 0 < self._limit < count:
            raise AuthenticationError(
                f"{self._source.user!r} may open only {self._limit} connections at once to {self._source.address}; {count} are "
                "needed",
                remedy=f"As an administrator, raise max_user_connections of the user or the server to at least {count}.",
            )

    def _prepare(self, login: Any) -> ServerFacts:
        try:
            server = read_server(partial(run, login), self._source)
            status = run(login, server.status_query)  # fails now if REPLICATION CLIENT is missing
            self._check_logging(server, status, partial(run, login))
            self._set_up(login, server)
            # Fails if REPLICATION SLAVE is missing, and lists us in SHOW REPLICAS.
            _pymysql.command_ok(login, COM_REGISTER_SLAVE, register_packet(self._server_id))
            self.clock_offset = clock_offset(login, server)
        except (_pymysql.DriverError, OSError) as error:
            raise query_error(error, self._source, "set up replication") from error
        return server

    def _check_logging(self, server: ServerFacts, status: list[tuple[Any, ...]], ask: Ask) -> None:
        """Raise ServerError if the server does not log all changes."""
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
        """Return whether ``close`` was called."""
        return self._closed

    def closed(self) -> ConnectionLostError:
        """Return the error for a thread that uses the connection after ``close``."""
        return ConnectionLostError(f"the connection to {self._source.address} was closed")

    def take_over(self) -> tuple[socket.socket, bytes]:
        """Return the socket and the bytes already read from it. The login is over."""
        taken = _pymysql.take_over(self.connection)
        self.connection = None
        return taken

    def close(self) -> None:
        self._closed = True
        self._opening.close()
        connection = self.connection
        if connection is not None:
            _pymysql.abort(connection)
            if self.using.acquire(blocking=False):  # otherwise the thread that uses it gets an error and closes it
                _pymysql.close(connection)
                self.using.release()


def clock_offset(connection: Any, release: Release) -> float:
    """Return the seconds by which the server's clock is ahead of ours, by the fastest of a few queries.

    The error is at most half the query's duration, plus 0.5 s if the server returns whole seconds.
    """
    found: list[tuple[float, float]] = []
    cut_off = 0.0 if release.has("fractions") else 0.5
    while len(found) < _CLOCK_LOOKS and (not found or min(found)[0] > _CLOCK_PRECISION):
        asked = time.time()
        answer = str(run(connection, release.time_query)[0][0])
        took = time.time() - asked
        try:
            told = datetime.fromisoformat(answer).replace(tzinfo=timezone.utc)
        except ValueError as error:
            raise ConnectionLostError(f"cannot parse the server's time: {error}") from error
        found.append((abs(took), told.timestamp() + cut_off - (asked + took / 2)))
    return min(found)[1]
