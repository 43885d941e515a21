"""A server as a source.

What goes over a connection to it is the parts' of ``connection.py``.
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

#: How a URL is written.
URL_FORM: Final = "Write mysql://user@host:3306/; in a user or password / is %2F, ? is %3F, # is %23 and @ is %40."


def database(url: str) -> str:
    """The database that a URL names; "" for none. Raises ConfigError."""
    try:
        return unquote(urlsplit(url).path.strip("/"))
    except ValueError:
        raise ConfigError("the URL cannot be read", remedy=URL_FORM) from None


def parse_url(url: str) -> dict[str, Any]:
    """The options of a source that a URL names; the password only where it has one. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        port = parts.port or 3306
    except ValueError:  # whose text may show a part of the password
        raise ConfigError("the URL's host or port cannot be read", remedy=URL_FORM) from None
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
            remedy=f"There are {', '.join(sorted(known))}.",
        )
    return found | extra


@checks_names({"passwd": "password", "username": "user", "charset": "nothing: each column has its own"})
@attrs.frozen(kw_only=True)
class MySQLSource(ServerOptions):
    """A MySQL or MariaDB server as a source.

    Its user needs REPLICATION SLAVE and REPLICATION CLIENT, and SELECT where the server does not write
    binlog_row_metadata=FULL. Without TLS a password is not sent so that whoever answers can read it, but with an option that
    says so: docs/security.md has what each mode protects against.

    Raises:
        ConfigError: an option is of a wrong type or has a value that means nothing.
    """

    @classmethod
    def from_url(cls, url: str, **options: Any) -> MySQLSource:
        """A source of ``mysql://user:password@host:port/?option=value&…``; ``options`` win over those of the URL.

        Raises:
            ConfigError: what it says of the URL never shows the password.
        """
        found = parse_url(url)
        if database(url):
            raise ConfigError(
                "the URL names a database, and a server has one log for all",
                remedy="Use a filter for it, or canal.connect(url), which takes only its changes.",
            )
        return cls(**{**found, **options})

    def connect(self, server_id_hint: int | None = None) -> MySQLConnection:
        connection = self.new_connection(server_id_hint)
        connection.open()
        return connection

    def new_connection(self, server_id_hint: int | None = None) -> MySQLConnection:
        """A connection that is not open yet: its ``close`` also ends an ``open`` that another thread waits in."""
        server_id = self.server_id or server_id_hint or self._random_id
        # The same for each connection of a reader: so a server drops what is left of the one before when we come back.
        replica_uuid = uuid.uuid5(uuid.UUID(self._replica_uuid), str(server_id))
        return MySQLConnection(self, server_id, str(replica_uuid))

    def read_end(self, timeout: float) -> SourceEnd:
        """The end of the log and the sizes of its journals, over a connection of its own; each wait within ``timeout``."""
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
        """An ordinary connection for queries, set up and lazily opened; the caller closes it."""
        return QuerySession(self)

    def open_probe(self, timeout: float) -> QuerySession:
        """As ``open_session``, for answers that take ``timeout`` s at most."""
        return attrs.evolve(self, connect_timeout=timeout, read_timeout=timeout).open_session()


def _by_name(init: Callable[..., None]) -> Callable[..., None]:
    """Says what takes a URL, where Python would say that there are no positional arguments."""

    @wraps(init)
    def checked(self: MySQLSource, *arguments: object, **options: Any) -> None:
        if arguments:  # they are not shown, for one may have a password
            raise ConfigError(
                "MySQLSource takes its options by name, such as host=",
                remedy="Of a URL use MySQLSource.from_url(url) or canal.connect(url).",
            )
        init(self, **options)

    return checked


MySQLSource.__init__ = _by_name(MySQLSource.__init__)  # type: ignore[method-assign]


def another(source: Any) -> Any:
    """The same source as another replica, which no other one throws out."""
    return attrs.evolve(source, server_id=None) if isinstance(source, MySQLSource) else source
