"""A MySQL or MariaDB server as a source.

The connection is in ``connection.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

from canal._util.option_names import checks_names
from canal.errors import ConfigError
from canal.parse.source.connection import MySQLConnection
from canal.parse.source.server import ServerOptions
from canal.parse.source.session import QuerySession
from canal.status import SourceEnd

#: The remedy for a malformed URL.
URL_FORM: Final = "Write mysql://user@host:3306/; in a user or password / is %2F, ? is %3F, # is %23 and @ is %40."


def database(url: str) -> str:
    """Return the database of a URL; "" if there is none. Raises ConfigError."""
    try:
        return unquote(urlsplit(url).path.strip("/"))
    except ValueError:
        raise ConfigError("cannot parse the URL", remedy=URL_FORM) from None


def parse_url(url: str) -> dict[str, Any]:
    """Return the source options of a URL; with the password only if the URL has it. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        port = parts.port or 3306
    except ValueError:  # the error's text may contain a part of the password
        raise ConfigError("cannot parse the URL's host or port", remedy=URL_FORM) from None
    if parts.scheme not in ("mysql", "mariadb") or not parts.hostname:
        raise ConfigError("the URL names no server", remedy=URL_FORM)
    found: dict[str, Any] = {"host": parts.hostname, "port": port, "user": unquote(parts.username or "root")}
    if parts.password is not None:
        found["password"] = unquote(parts.password)
    known = {field.name for field in attrs.fields(MySQLSource) if field.init} - {"host", "port", "user", "password"}
    extra = dict(parse_qsl(parts.query))
    if extra.keys() - known:
        raise ConfigError(
            f"the URL has an unknown option: {', '.join(sorted(extra.keys() - known))}",
            remedy=f"Use one of: {', '.join(sorted(known))}.",
        )
    return found | extra


@checks_names({"passwd": "password", "username": "user", "charset": "nothing: each column has its own"})
@attrs.frozen(kw_only=True)
class MySQLSource(ServerOptions):
    """A MySQL or MariaDB server as a source.

    The user needs REPLICATION SLAVE and REPLICATION CLIENT, and SELECT unless the server writes binlog_row_metadata=FULL.
    Without TLS, a password is never sent in a form that an unauthenticated server could read, unless an option allows it.
    See docs/security.md.

    Raises:
        ConfigError: an option has a wrong type or an invalid value.
    """

    @classmethod
    def from_url(cls, url: str, **options: Any) -> MySQLSource:
        """Return the source for ``mysql://user:password@host:port/?option=value&…``. ``options`` override those of the URL.

        Raises:
            ConfigError: the URL is invalid. The message never contains the password.
        """
        found = parse_url(url)
        if database(url):
            raise ConfigError(
                "the URL names a database, but a server has one log for all databases",
                remedy="Use a filter, or canal.connect(url), which sets the filter to that database.",
            )
        return cls(**{**found, **options})

    def connect(self, server_id_hint: int | None = None) -> MySQLConnection:
        connection = self.new_connection(server_id_hint)
        connection.open()
        return connection

    def new_connection(self, server_id_hint: int | None = None) -> MySQLConnection:
        """Return a connection that is not open yet. ``close`` also ends an ``open`` that waits in another thread."""
        server_id = self.server_id or server_id_hint or self._random_id
        # The same UUID for each connection of a reader: the server then drops the reader's previous dump.
        replica_uuid = uuid.uuid5(uuid.UUID(self._replica_uuid), str(server_id))
        return MySQLConnection(self, server_id, str(replica_uuid))

    def read_end(self, timeout: float) -> SourceEnd:
        """Return the end of the log and the journals' sizes, over a new connection. Each wait is at most ``timeout``."""
        session = QuerySession(
            attrs.evolve(self, connect_timeout=min(timeout, self.connect_timeout), read_timeout=min(timeout, self.read_timeout))
        )
        try:
            logs = session.logs()
            variable = "gtid_binlog_pos" if session.release.is_mariadb else "gtid_executed"
            gtid = None
            if session.release.has("gtids"):
                gtid = session.rows(f"SELECT @@global.{variable}", doing="ask for the GTIDs in the log")[0][0]
        finally:
            session.close()
        return SourceEnd(tuple((name, size) for name, size in logs if size is not None), str(gtid or ""))

    def open_session(self) -> QuerySession:
        """Return a session for queries that connects when first used; the caller closes it."""
        return QuerySession(self)

    def open_probe(self, timeout: float) -> QuerySession:
        """Return a session like ``open_session`` with ``timeout`` as the limit for an answer."""
        return attrs.evolve(self, connect_timeout=timeout, read_timeout=timeout).open_session()


def _by_name(init: Callable[..., None]) -> Callable[..., None]:
    """Reject positional arguments with a message that names the URL constructors."""

    @wraps(init)
    def checked(self: MySQLSource, *arguments: object, **options: Any) -> None:
        if arguments:  # do not show them: they may contain a password
            raise ConfigError(
                "MySQLSource takes only keyword arguments, such as host=",
                remedy="For a URL, use MySQLSource.from_url(url) or canal.connect(url).",
            )
        init(self, **options)

    return checked


MySQLSource.__init__ = _by_name(MySQLSource.__init__)  # type: ignore[method-assign]


def another(source: Any) -> Any:
    """Return the same source with a new server id, so that no other replica displaces it."""
    return attrs.evolve(source, server_id=None) if isinstance(source, MySQLSource) else source
