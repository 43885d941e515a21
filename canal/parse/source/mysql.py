"""Where raw binlog events come from: the Protocols of a source, and the live replication connection to a server.

Never looks inside an event further than its header.
"""

from __future__ import annotations

import contextlib
import logging
import random
import re
import select
import socket
import ssl
import struct
import threading
import time
import uuid
import warnings
from collections import deque
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, Final, Iterator, Protocol, runtime_checkable

import attrs

from canal.checks import positive
from canal.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionLostError,
    LostReason,
    PositionLostError,
    ServerError,
    SourceError,
    StateError,
)
from canal.gtid import MysqlGtidSet
from canal.parse.log.continuity import incarnation_of
from canal.parse.log.framing import PacketFramer
from canal.parse.log.scan import TransactionScan, first_to_scan
from canal.parse.log.side_reads import SideRead
from canal.parse.schema.alter import TableState
from canal.parse.schema.cascades import ForeignKey
from canal.parse.source import _pymysql
from canal.parse.source.information_schema import (
    COLUMNS_QUERY,
    NAMES_QUERY,
    Accepts,
    accept_all,
    column_of,
    pieces,
    states_of,
    table_states,
    texts,
)
from canal.parse.source.server_errors import login_error, query_error, stream_error
from canal.position import Position, journal_key
from canal.schema import TableSchema
from canal.server_facts import SHOW_KEYS, Release, Server, read_release, read_server
from canal.status import SourceEnd

log = logging.getLogger("canal.parse")

#: The offsets of a dump have 32 bits.
MAX_DUMP_OFFSET = 0xFFFFFFFF

Start = str | Position
"""``"latest"``, ``"earliest"`` or a :class:`Position`."""


@runtime_checkable
class Source(Protocol):
    """Something that can be connected to again and again: a server, binlog files, a fake.

    It may also have a method ``new_connection(server_id_hint)``, for a connection whose ``open()`` does what ``connect``
    does, and ends when another thread calls ``close()``. For ``Instance.status()`` it may also have an ``address`` and a method
    ``read_end(timeout) -> canal.SourceEnd``, whose waits are bounded by ``timeout`` each.
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
    For ``Instance.status()`` it may also have ``clock_offset``, the seconds that the source's clock is ahead of ours, and
    ``is_alive``: whether silence means that the source has no more.
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
        """Find the place that ``start`` means now.

        ``"latest"`` is the present end of the log, ``"earliest"`` the oldest that is still there. A position with
        journal or GTID set is checked and given back; one with only a time becomes the start of the first transaction
        at or after it (within its journal, where it names one); if there is none yet, the end. The result names a
        journal and an offset or a GTID set that a later ``dump`` can start from.

        Raises:
            PositionLostError: the log does not reach back to the place, or has no such place.
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

    def read(self, timeout: float) -> list[bytes] | None:
        """The events that have arrived: whole (19-byte header to checksum), in the log's order, each its own copy.

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
class Thread:
    """A connection as the server with that identity sees it: nobody else's has the same number, user and address."""

    identity: str
    number: int
    user: str
    host: str

    def __str__(self) -> str:
        return f"connection {self.number} of {self.user!r} from {self.host}"


SSL_MODES: Final = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
TLS_VERSIONS: Final = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_OPTIONAL: Final = SSL_MODES[:2]
_VERIFYING: Final = SSL_MODES[3:]

_COM_BINLOG_DUMP, _COM_REGISTER_SLAVE, _COM_BINLOG_DUMP_GTID = 0x12, 0x15, 0x1E
_NON_BLOCK, _SEND_ANNOTATE_ROWS = 1, 2
#: What the server says that a connection does which sends a dump; MariaDB says so of one that it wants to end, too.
_DUMPING = ("Binlog Dump", "Killed")
_ROTATE, _FORMAT = 4, 15
#: Events that open a dump before the server has found the place to start from.
_OPENING_EVENTS = frozenset((4, 15, 35, 161, 163))


def draw_server_id() -> int:
    """A server id that nobody else will have."""
    return random.SystemRandom().randrange(1 << 16, 1 << 31)


def _upper(value: object) -> str:
    return str(value).upper()


def _int(value: Any) -> int:
    """A number from text too; of what is none the validator tells."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return int(value)
    return value  # type: ignore[no-any-return]


def _float(value: Any) -> float:
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return float(value)
    return value  # type: ignore[no-any-return]


def _check_ssl_mode(instance: Any, attribute: attrs.Attribute[Any], value: str) -> None:
    if value not in SSL_MODES:
        raise ConfigError(f"ssl_mode is one of {', '.join(SSL_MODES)}, not {value!r}")


def _check_tls_version(instance: Any, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None and value not in TLS_VERSIONS:
        raise ConfigError(f"tls_min_version is one of {', '.join(TLS_VERSIONS)}, not {value!r}")


def _flag(value: Any) -> bool:
    """True and False from text too; of what is neither the validator tells."""
    return {"true": True, "false": False}.get(str(value).lower(), value)  # type: ignore[no-any-return]


def _check_flag(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{attribute.name} must be True or False, not {value!r}")


def _check_port(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, int) or not 0 < value < 1 << 16:  # the system would take the low 16 bits: another server
        raise ConfigError(
            f"port must be between 1 and 65535, not {value!r}", remedy="Servers listen on 3306 unless they are told otherwise."
        )


def _check_server_id(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not (isinstance(value, int) and 0 < value < 1 << 32):
        raise ConfigError(
            f"server_id must be between 1 and 4294967295, not {value!r}", remedy="Leave it out for one that is drawn at random."
        )


@attrs.frozen(kw_only=True)
class MySQLSource:
    """A MySQL or MariaDB server as a source.

    Its user needs REPLICATION SLAVE and REPLICATION CLIENT, and SELECT where the server does not write
    binlog_row_metadata=FULL. ``server_id`` must differ from that of every other replica and reader of the server; when
    it is not given each run of an instance draws its own, so that several may share the object. ``ssl_mode`` has the
    meanings of MySQL's own client: PREFERRED encrypts where the server can, and only the VERIFY modes look at the
    certificate. Without TLS a password is not sent so that whoever answers can read it, but with an option that says so:
    docs/security.md has what each mode protects against. ``tls_min_version`` is one of "TLSv1", "TLSv1.1", "TLSv1.2" and
    "TLSv1.3"; without it Python decides, which takes TLS 1.2 and newer. Below that the weak ciphers and keys of such servers
    (MySQL 5.7 and MariaDB 10.2 or older) are taken too.
    """

    host: str = "127.0.0.1"
    port: int = attrs.field(default=3306, converter=_int, validator=_check_port)
    user: str = "root"
    password: str = attrs.field(default="", repr=False)
    unix_socket: str | None = None
    ssl_mode: str = attrs.field(default="PREFERRED", converter=_upper, validator=_check_ssl_mode)
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    #: Believe the key that the server itself sends for a password: whoever answers may then read it. For first steps.
    get_server_public_key: bool = attrs.field(default=False, converter=_flag, validator=_check_flag)
    #: The RSA key by which the password goes to the server without TLS: a file's path, or its text (PEM).
    server_public_key: str | None = None
    #: Send the password itself to plugins that ask for it, over a Unix socket or TLS that proves who answers.
    allow_cleartext: bool = attrs.field(default=False, converter=_flag, validator=_check_flag)
    tls_min_version: str | None = attrs.field(default=None, validator=_check_tls_version)
    server_id: int | None = attrs.field(default=None, converter=attrs.converters.optional(_int), validator=_check_server_id)
    connect_timeout: float = attrs.field(default=10.0, converter=_float, validator=positive)
    #: Seconds that an answer to a query or a login step may take.
    read_timeout: float = attrs.field(default=30.0, converter=_float, validator=positive)
    #: Seconds after which an idle server sends a heartbeat; three times as long without a byte means a dead connection.
    heartbeat_interval: float = attrs.field(default=5.0, converter=_float, validator=positive)
    #: Seconds without a change after which the end of the server's log is compared with what was read: a log that was
    #: reset under a running dump gives no error.
    check_interval: float = attrs.field(default=10.0, converter=_float, validator=positive)
    #: Seconds without a byte that the server may take to find the start position in its logs; of MySQL 5.1, which sends no
    #: heartbeats, those after which an idle connection is made anew.
    seek_timeout: float = attrs.field(default=600.0, converter=_float, validator=positive)
    #: Seconds that the server waits for a reader that is held up, before it gives up the connection.
    net_write_timeout: int = attrs.field(default=28800, converter=_int, validator=positive)
    #: Bytes asked of the socket at once; more is taken for as long as one packet needs it.
    receive_buffer: int = attrs.field(default=1 << 20, converter=_int, validator=positive)
    #: False accepts a server that does not write ROW format; its statements are then all that can be seen.
    require_row_format: bool = attrs.field(default=True, converter=_flag, validator=_check_flag)
    _random_id: int = attrs.field(init=False, repr=False, eq=False, factory=draw_server_id)
    _replica_uuid: str = attrs.field(init=False, repr=False, eq=False, factory=lambda: str(uuid.uuid4()))
    #: Dumps that we have closed, and of which the server may not know.
    _left: deque[Thread] = attrs.field(init=False, repr=False, eq=False, factory=lambda: deque(maxlen=64))

    def __attrs_post_init__(self) -> None:
        if self.ssl_ca and self.ssl_mode not in _VERIFYING:
            raise ConfigError(
                f"ssl_ca is not looked at with ssl_mode {self.ssl_mode}",
                remedy="Use VERIFY_CA or VERIFY_IDENTITY, or leave it out.",
            )
        if self.tls_min_version and self.ssl_mode == "DISABLED":
            raise ConfigError("tls_min_version means nothing with ssl_mode DISABLED", remedy="Leave one of the two out.")

    @property
    def address(self) -> str:
        """Where the server is, for messages."""
        return self.unix_socket or f"{self.host}:{self.port}"

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
        session = Session(
            attrs.evolve(
                self, connect_timeout=min(timeout, self.connect_timeout), read_timeout=min(timeout, self.read_timeout)
            )
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

    def open_session(self) -> Session:
        """An ordinary connection for queries, set up and lazily opened; the caller closes it."""
        return Session(self)

    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS set-up that ``ssl_mode`` means; None for no TLS."""
        if self.ssl_mode == "DISABLED" or (self.ssl_mode == "PREFERRED" and self.unix_socket):
            return None
        try:
            if self.ssl_mode in _VERIFYING:
                context = ssl.create_default_context(cafile=self.ssl_ca)
            else:  # to load the system's certificates, which nobody looks at, takes longer than to connect
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if self.ssl_cert:
                context.load_cert_chain(self.ssl_cert, self.ssl_key)
        except OSError as error:
            raise ConfigError(f"the TLS files of {self.address} cannot be used: {error}") from error
        # The certificates that servers make for themselves do not follow RFC 5280 to the letter.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = self.ssl_mode == "VERIFY_IDENTITY"
        if self.ssl_mode not in _VERIFYING:
            context.verify_mode = ssl.CERT_NONE
        if self.tls_min_version is not None:
            _set_min_version(context, self.tls_min_version)
        return context

    def _trust(self) -> _pymysql.Trust:
        return _pymysql.Trust(
            proved=bool(self.unix_socket or self.ssl_mode == "VERIFY_IDENTITY" or self.ssl_mode == "VERIFY_CA" and self.ssl_ca),
            server_key=self.get_server_public_key, public_key=_public_key(self.server_public_key),
            cleartext=self.allow_cleartext,
        )  # fmt: skip

    def log_in(self, opening: _pymysql.Opening) -> Any:
        """A PyMySQL connection, unless ``opening`` is closed meanwhile. Raises the library's errors."""
        try:
            return _pymysql.log_in(
                host=self.host, port=self.port, unix_socket=self.unix_socket, user=self.user, password=self.password,
                tls=self.tls_context(), tls_required=self.ssl_mode not in _OPTIONAL, trust=self._trust(),
                connect_timeout=self.connect_timeout, read_timeout=self.read_timeout, opening=opening,
            )  # fmt: skip
        except (_pymysql.DriverError, OSError, RuntimeError) as error:
            if opening.is_closed:  # which looks like any fault of a network, in a TLS handshake like one of TLS
                raise ConnectionLostError(f"the connection to {self.address} was closed") from error
            raise login_error(error, self) from error


#: What Python from 3.12 on calls ssl.OP_LEGACY_SERVER_CONNECT.
_LEGACY_SERVER_CONNECT: Final = 0x4


def _public_key(given: str | None) -> bytes:
    """The PEM of an RSA key, given as such or as a file; b"" for none."""
    if given is None:
        return b""
    try:
        return _pymysql.checked_key(given.encode() if "-----BEGIN" in given else Path(given).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"server_public_key cannot be used: {error}",
            remedy="Give the file public_key.pem of the server's data directory, or what SHOW STATUS LIKE "
            "'Caching_sha2_password_rsa_public_key' tells there.",
        ) from error


def _set_min_version(context: ssl.SSLContext, name: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the older ones were asked for
            context.minimum_version = ssl.TLSVersion[name.replace(".", "_")]
        if name in ("TLSv1", "TLSv1.1"):
            # Servers of that age have certificates signed with SHA-1, know no secure renegotiation, and do Diffie-Hellman
            # with 512 bits (MySQL 5.6), which OpenSSL takes at no level.
            context.set_ciphers("DEFAULT:!kDHE:@SECLEVEL=0")
            context.options |= _LEGACY_SERVER_CONNECT
    except (ValueError, ssl.SSLError) as error:
        raise ConfigError(f"the TLS library of this machine cannot do {name}: {error}") from error


# -- queries -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Description:
    """Tables as they are now, default charsets of databases, and one setting of the server."""

    tables: tuple[TableState, ...]
    databases: dict[str, str] = attrs.field(factory=dict)
    lower_case_table_names: int = 0
    #: Databases of whose tables none was asked for.
    unread: frozenset[str] = frozenset()


class Session:
    """A connection for queries: opened at the first one, opened again once when it was lost in the meantime.

    Queries come from one thread; ``close`` may come from any.
    """

    def __init__(self, source: MySQLSource) -> None:
        self._source = source
        self._connection: Any = None
        #: Of the server of the connection; known with the first query.
        self.release: Release
        self._opening = _pymysql.Opening()
        self._closed = False
        self._busy = threading.Lock()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def rows(self, sql: str, args: tuple[Any, ...] = (), *, doing: str) -> list[tuple[Any, ...]]:
        """Run a query that may be repeated."""
        with self._busy:
            reused = self._connection is not None
            try:
                return self._run(sql, args, doing)
            except ConnectionLostError:
                if not reused or self._closed:
                    raise
                return self._run(sql, args, doing)

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        """The columns of a table as they are now; None when there is none, or none that the user may see."""
        rows = self.rows(
            COLUMNS_QUERY + " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (schema, table),
            doing=f"read the columns of {schema}.{table}",
        )
        return TableSchema(schema, table, tuple(column_of(texts(row)[2:]) for row in rows)) if rows else None

    def logs(self) -> list[tuple[str, int | None]]:
        """Names and sizes of the logs that the server still has, the oldest first; of a size that it does not tell us None."""
        doing = "list the logs"
        try:
            return [(str(row[0]), int(row[1])) for row in self.rows("SHOW BINARY LOGS", doing=doing)]
        except AuthenticationError:  # MySQL before 5.5.25 shows them to users with SUPER only
            first = self.rows("SHOW BINLOG EVENTS LIMIT 1", doing=doing)
            last = self.rows(self.release.status_query, doing=doing)
            if not first or not last or not (between := _names_between(str(first[0][0]), str(last[0][0]))):
                raise
            return [*((name, None) for name in between[:-1]), (between[-1], int(last[0][1]))]

    def json_columns(self, schema: str, table: str) -> set[str]:
        """The columns that MariaDB made of the type JSON: LONGTEXT with a check."""
        rows = self.rows(
            "SELECT check_clause FROM information_schema.check_constraints WHERE constraint_schema = %s AND table_name = %s",
            (schema, table),
            doing=f"read the checks of {schema}.{table}",
        )
        found = (re.fullmatch(r"json_valid\(`((?:[^`]|``)+)`\)", str(row[0])) for row in rows)
        return {one[1].replace("``", "`") for one in found if one}

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description:
        """All that is known of one table as it is now, or of every table of the databases in which one is accepted.

        Those are read some hundred tables at a time, so that no server needs ``read_timeout`` for an answer.
        """
        doing = f"read the columns of {schema}.{table}" if schema else "list the tables"

        def ask(sql: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
            return self.rows(sql, args, doing=doing)

        ((lower_case,),) = ask("SELECT @@global.lower_case_table_names")
        databases = ask("SELECT schema_name, default_character_set_name FROM information_schema.schemata")
        unread: set[str] = set()
        if schema:
            tables = table_states(ask, schema, table, release=self.release)
        else:
            names = [(str(row[0]), str(row[1])) for row in map(texts, ask(NAMES_QUERY))]
            wanted = {name[0] for name in names if accepts(*name)}
            unread = {name[0] for name in names} - wanted
            tables = []
            for schemas, some in pieces(name for name in names if name[0] in wanted):
                doing = f"read the columns of {len(some) or 'all'} tables of {', '.join(schemas)}, behind {len(tables)} others"
                log.info("%s: %s", self._source.address, doing)
                tables += states_of(ask, schemas, some, release=self.release)
        return Description(
            tuple(tables), {str(row[0]): str(row[1]) for row in databases}, int(lower_case), frozenset(unread)
        )

    def foreign_keys(self) -> list[ForeignKey]:
        """The cascading foreign keys of all tables that the user may see, in one query."""
        rows = self.rows(
            "SELECT constraint_schema, table_name, unique_constraint_schema, referenced_table_name, delete_rule, update_rule"
            " FROM information_schema.referential_constraints",
            doing="read the foreign keys of all tables",
        )
        keys = (ForeignKey((row[0], row[1]), (row[2], row[3]), *row[4:]) for row in (tuple(map(str, row)) for row in rows))
        return [key for key in keys if key.cascades]

    def tables_like(self, schema: str, name: str, *, is_prefix: bool) -> list[str]:
        """Names of the tables of a schema that are called so, or begin so.

        MariaDB lists tables without their locks: while one takes the place of another by RENAME, neither may be in the
        list. A whole name is looked up under its lock.
        """
        condition, args = ("LEFT(table_name, %s) = %s", (len(name), name)) if is_prefix else ("table_name = %s", (name,))
        rows = self.rows(
            f"SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND {condition}",
            (schema, *args),
            doing=f"list the tables of {schema}",
        )
        return [str(row[0]) for row in rows]

    def _run(self, sql: str, args: tuple[Any, ...], doing: str) -> list[tuple[Any, ...]]:
        if self.is_closed:
            raise ConnectionLostError(f"cannot {doing}: the connection was closed")
        is_new = self._connection is None
        self._connection = self._connection or self._source.log_in(self._opening)
        self._close_late()
        try:
            if is_new:
                self.release = read_release(partial(run, self._connection))
                if self.release.has("generated_keys"):
                    try_to_set(self._connection, SHOW_KEYS)
            return run(self._connection, sql, args)
        except (_pymysql.DriverError, OSError) as error:
            failure = query_error(error, self._source, doing)
            if isinstance(failure, ConnectionLostError):
                self._drop()
            raise failure from error

    def _close_late(self) -> None:
        """Do what ``close`` could not do while it was called during the login."""
        if self._closed:
            _pymysql.close(self._connection)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            _pymysql.close(connection)

    def close(self) -> None:
        self._closed = True
        self._opening.close()
        connection = self._connection
        if connection is not None:
            _pymysql.abort(connection)
        # A query that runs ends at once, and a login too unless it waits for a name; it closes what it opened by itself.
        if self._busy.acquire(blocking=connection is not None):
            self._drop()
            self._busy.release()


def _names_between(first: str, last: str) -> list[str]:
    """The names that a server gave its logs from the first to the last, both included; [] for logs of two base names."""
    (base, begin), (other, end) = journal_key(first), journal_key(last)
    return [f"{base}.{number:06}" for number in range(begin, end + 1)] if base == other else []


def run(connection: Any, sql: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All rows of one query."""
    with _pymysql.understood(), connection.cursor() as cursor:
        cursor.execute(sql, args or None)
        return list(cursor.fetchall())


def try_to_set(connection: Any, setting: str) -> None:
    """Change a setting of the session, unless the server is one that only says it is of a release that has it."""
    try:
        run(connection, f"SET SESSION {setting}")
    except _pymysql.DriverError as error:
        if error.args[:1] != (_UNKNOWN_VARIABLE,):
            raise


_UNKNOWN_VARIABLE: Final = 1193
#: A question about the server's time that took longer (seconds) is asked again, so many times at most.
_CLOCK_PRECISION: Final = 0.5
_CLOCK_LOOKS: Final = 3


def _clock_offset(connection: Any, release: Release) -> float:
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


# -- the dump ----------------------------------------------------------------------------------------------------------


class DumpStream:
    """The events of one dump, read from a socket that was taken over from PyMySQL.

    One thread reads; ``close`` may come from any other and wakes it.
    """

    def __init__(
        self, sock: socket.socket, ahead: bytes, source: MySQLSource, server_id: int, place: Position, *, beats: bool = True
    ) -> None:
        self._socket = sock
        self._source = source
        self._server_id = server_id
        self._place = place
        self._framer = PacketFramer(source.receive_buffer)
        self._early: list[bytes] = self._framer.feed(ahead) if ahead else []
        self._is_tls = isinstance(sock, ssl.SSLSocket)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._heard = time.monotonic()
        self._settled = False
        self._beats = beats
        #: Whether the server has sent a byte of the dump.
        self.has_begun = bool(ahead)
        self._closed = False
        self._reading = threading.Lock()

    @property
    def ended(self) -> bool:
        """Whether the server has said that its log ends here."""
        return bool(self._framer.ended)

    def read(self, timeout: float) -> list[bytes]:
        """As ``Connection.read``, except that ``[]`` with ``ended`` is the end of the log."""
        deadline = time.monotonic() + timeout
        with self._reading:
            events, self._early = self._early, []
            while not events:
                if self._framer.error is not None:
                    raise self._failure(self._framer.error)
                if self._framer.ended:
                    return []
                count = self._receive()
                if count < 0 and not self._wait(deadline):
                    return []
                if count >= 0:
                    events = self._framer.advance(count)
        if not self._settled:
            self._settled = any(event[4] not in _OPENING_EVENTS for event in events)
        return events

    def _receive(self) -> int:
        """Bytes that came into the framer's room, or -1 when there are none yet."""
        if self._closed:
            raise self._lost("was closed")
        try:
            room = self._framer.room()
            count = self._socket.recv_into(room)
            if self._is_tls:
                count = self._receive_rest(room, count)
        except (BlockingIOError, ssl.SSLWantReadError, InterruptedError):
            return -1
        except ssl.SSLWantWriteError:
            # An answer to a TLS key update does not fit into the socket's buffer; it goes out with the next try.
            time.sleep(0.001)
            return -1
        except (OSError, ValueError) as error:
            raise self._lost(f"broke: {error}") from error
        if self._closed:
            raise self._lost("was closed")
        if count == 0:
            raise self._ended()
        self._heard = time.monotonic()
        self.has_begun = True
        return count

    def _receive_rest(self, room: memoryview, count: int) -> int:
        """TLS gives one record of at most 16 KiB at a time; take along what is already decrypted or waiting."""
        while 0 < count < len(room):
            try:
                more = self._socket.recv_into(room[count:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                break  # what has come is good; the next call meets the error again
            if not more:
                break
            count += more
        return count

    def _wait(self, deadline: float) -> bool:
        """Sleep until there may be bytes; False at the deadline. Raises when the server was silent for too long."""
        now = time.monotonic()
        limit = 3 * self._source.heartbeat_interval if self._settled and self._beats else self._source.seek_timeout
        silent_until = self._heard + limit
        try:
            if now >= silent_until and not self._poll.poll(0):  # else it is this process that was held up
                raise self._lost(f"is half-open: {'not even a heartbeat' if self._beats else 'nothing'} came for {limit:g} s")
            if now >= deadline:
                return False
            self._poll.poll(max(1.0, 1000 * (min(deadline, silent_until) - now)))
        except (OSError, ValueError) as error:
            raise self._lost(f"broke: {error}") from error
        return True

    @property
    def is_alive(self) -> bool:
        """Whether heartbeats come as they should, or something else does."""
        return self._settled and self._beats and time.monotonic() - self._heard < 1.5 * self._source.heartbeat_interval

    def _lost(self, what: str, *, by_source: bool = False) -> ConnectionLostError:
        return ConnectionLostError(f"the replication connection to {self._source.address} {what}", by_source=by_source)

    def _ended(self) -> ConnectionLostError:
        error = self._lost("was closed without a word, by the server or on the way", by_source=True)
        error.remedy = (
            f"That was {time.monotonic() - self._heard:.1f} s after the last byte. A KILL does so, and whatever on the way "
            f"ends connections that are idle for less than heartbeat_interval, {self._source.heartbeat_interval:g} s."
        )
        return error

    def _failure(self, error: Exception) -> Exception:
        if not isinstance(error, ServerError):
            return error
        found = stream_error(error, self._source, self._server_id, self._place, begun=self._settled)
        if self._settled:
            found.position = None  # whoever has read on knows where
        return found

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        # The reader wakes at once and lets go; only then may the descriptor be given to somebody else.
        with self._reading, contextlib.suppress(OSError):
            self._socket.close()


class MySQLConnection:
    """A :class:`Connection` to a server: a login that becomes the dump, and a session for queries beside it."""

    def __init__(self, source: MySQLSource, server_id: int, replica_uuid: str) -> None:
        self._source = source
        self.server_id = server_id
        self._replica_uuid = replica_uuid
        self._queries = Session(source)
        self._stream: DumpStream | None = None
        self._thread: Thread | None = None
        self._beside: MySQLConnection | None = None
        self._closed = False
        #: What an operator should know about the place from which it streams.
        self.warnings: list[str] = []
        #: (domain, server id, number): transactions up to these are done, but the source may send them (MariaDB).
        self.known: list[tuple[int, int, int]] = []
        #: Seconds that the server's clock is ahead of ours.
        self.clock_offset = 0.0
        self._opening = _pymysql.Opening()
        self._login: Any = None
        self._using = threading.RLock()  # the login
        self._server: Server
        self._by_offset = False
        self._end = Position()  # of the log, when it was last seen to be the one that is read
        self._limit = 0

    def open(self) -> None:
        """Log in and set up replication; blocks as ``Source.connect`` does. ``close`` from another thread ends it."""
        with self._using:
            self._login = self._source.log_in(self._opening)
            if self._login.is_remembered:
                log.warning(
                    "%s let %r in by what it remembers of the password: after its restart the login will be refused. "
                    "docs/security.md says which option it needs.", self._source.address, self._source.user,
                )  # fmt: skip
            try:
                if self._closed:
                    raise ConnectionLostError(f"the connection to {self._source.address} was closed")
                self._server = self._prepare(self._login)
                self._limit = self._read_limit(self._login)
                self._need(2)
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

    def _need(self, count: int) -> None:
        """Refuse a user that cannot have so many connections at once: the server would refuse each further one, for ever."""
        if 0 < self._limit < count:
            raise AuthenticationError(
                f"{self._source.user!r} may have {self._limit} connections at once to {self._source.address}, and {count} are "
                "needed",
                remedy=f"As an administrator, raise max_user_connections of the user or of the server to {count} or more.",
            )

    def _prepare(self, login: Any) -> Server:
        try:
            server = read_server(partial(run, login), self._source)
            run(login, server.status_query)  # tells a missing REPLICATION CLIENT now rather than later
            self._set_up(login, server)
            # Registering tells a missing REPLICATION SLAVE, and shows us in SHOW REPLICAS.
            _pymysql.command_ok(login, _COM_REGISTER_SLAVE, register_packet(self.server_id))
            self.clock_offset = _clock_offset(login, server)
        except (_pymysql.DriverError, OSError) as error:
            raise query_error(error, self._source, "set up replication") from error
        return server

    def _set_up(self, login: Any, server: Server) -> None:
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
        if server.flavor == "mariadb":
            settings.append("@mariadb_slave_capability = 4")
        run(login, "SET " + ", ".join(settings))
        try_to_set(login, f"net_write_timeout = {min(self._source.net_write_timeout, 31536000)}")

    @property
    def identity(self) -> str:
        return self._server.identity

    @property
    def flavor(self) -> str:
        return self._server.flavor

    @property
    def has_gtids(self) -> bool:
        return self._server.has_gtids

    @property
    def full_metadata(self) -> bool | None:
        return self._server.full_metadata

    @property
    def purged(self) -> str:
        """GTIDs that a server has executed and may have in no log (MySQL's gtid_purged); "" where there are none."""
        if self.flavor != "mysql" or not self._server.has_gtids:
            return ""
        return str(self._rows("SELECT @@global.gtid_purged")[0][0])

    @property
    def is_alive(self) -> bool:
        """Whether silence means that the server has no more: it has begun to send, and its heartbeats come."""
        stream = self._stream
        return stream is not None and stream.is_alive

    @property
    def is_encrypted(self) -> bool:
        """Whether the replication connection runs over TLS."""
        return self._stream._is_tls if self._stream is not None else _pymysql.is_encrypted(self._login)

    # -- start positions -----------------------------------------------------------------------------------------------

    def resolve(self, start: Start) -> Position:
        if isinstance(start, Position):
            return self._resolve_position(start)
        if start == "latest":
            return self._latest()
        if start == "earliest":
            return self._earliest()
        raise ConfigError(f"start must be 'latest', 'earliest' or a Position, not {start!r}")

    def _rows(
        self, sql: str, args: tuple[Any, ...] = (), doing: str = "find the start position"
    ) -> list[tuple[Any, ...]]:
        return self._queries.rows(sql, args, doing=doing)

    def _latest(self) -> Position:
        """File, offset and GTID set of one answer, or the set that belongs to that file and offset."""
        rows = self._rows(self._server.status_query)
        if not rows:
            raise ServerError(f"{self._source.address} has no binary log", remedy="Set log_bin and restart the server.")
        journal, offset = str(rows[0][0]), int(rows[0][1])
        if self.flavor == "mariadb":
            return self._at(journal, offset, self._mariadb_gtid(journal, offset))
        executed = str(rows[0][4]) if self._server.has_gtids and len(rows[0]) > 4 else ""
        return self._at(journal, offset, executed)

    def _earliest(self) -> Position:
        journal = self._logs()[0][0]
        if self.flavor == "mariadb":
            return self._at(journal, 4, self._mariadb_gtid(journal, 4))
        if not self._server.has_gtids:
            return self._at(journal, 4, "")
        for _ in range(10):  # a purge in between would pair one log with the GTIDs of another
            purged = str(self._rows("SELECT @@global.gtid_purged")[0][0])
            again = self._logs()[0][0]
            if again == journal:
                break
            journal = again
        return self._at(journal, 4, purged)

    def _mariadb_gtid(self, journal: str, offset: int) -> str:
        found = self._rows("SELECT BINLOG_GTID_POS(%s, %s)", (journal, offset))[0][0]
        return str(found or "")

    def _at(self, journal: str, offset: int, gtid: str) -> Position:
        return Position(journal=journal, offset=offset, gtid=gtid, source=self.identity)

    def _logs(self) -> list[tuple[str, int | None]]:
        """As ``Session.logs``, at least one."""
        logs = self._queries.logs()
        if not logs:
            raise ServerError(f"{self._source.address} has no binary log", remedy="Set log_bin and restart the server.")
        return logs

    def _resolve_position(self, start: Position) -> Position:
        if start.gtid and self._server.has_gtids:
            self._check_purged(start)
            is_here = start.source in ("", self.identity) and start.incarnation and start.journal in self.journal_names()
            return start if is_here else attrs.evolve(start, incarnation="")
        if start.gtid and not start.journal and not start.timestamp:
            raise ServerError(
                f"{self._source.address} has no GTIDs and the position has only a GTID set",
                remedy=self._or_gtids("Give a journal and an offset"),
            )
        if start.journal and (start.offset or not start.timestamp):
            return self._check_journal(start)
        if start.timestamp:
            return self._search(start)
        raise ConfigError(
            "the start position is empty", remedy='Give a journal, a GTID set or a time, or "latest" or "earliest".'
        )

    def _or_gtids(self, remedy: str) -> str:
        return f"{remedy}, or set gtid_mode=ON on the server." if self._server.has("gtids") else f"{remedy}."

    def _check_purged(self, start: Position) -> None:
        if self.flavor != "mysql":
            return
        missing = self._rows("SELECT GTID_SUBTRACT(@@global.gtid_purged, %s)", (start.gtid,))[0][0]
        if missing:
            raise PositionLostError(
                f"{self._source.address} has purged transactions that were not read yet: "
                f"{_short(str(missing))}; {self._has()}",
                position=start,
                remedy='Copy the tables anew and start from "latest", or from "earliest" to accept the gap.',
            )

    def _check_journal(self, start: Position) -> Position:
        self._check_source(start)
        sizes = dict(self._logs())
        offset = max(start.offset, 4)
        if start.journal not in sizes:
            raise self._no_log(start)
        size = sizes[start.journal]
        if size is not None and offset > size:
            raise PositionLostError(
                f"{start.journal} of {self._source.address} ends at {size}, before offset {offset}",
                reason=LostReason.BEYOND,
                position=start,
                remedy="The server lost the end of its log, or is not the one that the position was made on.",
            )
        return attrs.evolve(start, offset=offset, source=self.identity)

    def _no_log(self, position: Position) -> PositionLostError:
        return PositionLostError(
            f"{self._source.address} has no log {position.journal}; {self._has()}",
            position=position,
            remedy='Copy the tables anew and start from "latest", or from "earliest" to accept the gap.',
        )

    def _check_source(self, start: Position) -> None:
        if start.source and start.source != self.identity:
            raise PositionLostError(
                f"the position is one of server {start.source}, and {self._source.address} is {self.identity}",
                reason=LostReason.OTHER_SERVER,
                position=start,
                remedy="Journals of two servers do not compare: resume by GTID set, or from a time.",
            )

    def _has(self) -> str:
        """What the server still has, for messages; "" when it does not say."""
        try:
            logs = self._logs()
        except SourceError:
            return "its logs cannot be listed"
        return f"it has {logs[0][0]} to {logs[-1][0]}"

    # -- start by time -------------------------------------------------------------------------------------------------

    def _search(self, start: Position) -> Position:
        target = -(-start.timestamp // 1000)  # events have whole seconds
        if start.journal:
            journal = self._check_journal(attrs.evolve(start, offset=4, gtid="")).journal
            return self._scan(journal, target, one_journal=True)
        names = [name for name, _ in self._logs()]
        first = first_to_scan(names, self._log_time, target, self._source.address, start)
        return self._scan(names[first], target, one_journal=False)

    def _log_time(self, journal: str) -> int:
        """When a log was begun: the time of its FORMAT_DESCRIPTION."""
        scan = TransactionScan()
        for event in self._non_blocking(journal):
            scan.feed(event)
            if scan.format_time is not None:
                return scan.format_time
        raise PositionLostError(
            f"{journal} of {self._source.address} is empty", position=Position(journal=journal, offset=4)
        )

    def _scan(self, journal: str, target: int, *, one_journal: bool) -> Position:
        scan = TransactionScan(target)
        for event in self._non_blocking(journal):
            scan.feed(event)
            if scan.found is not None or (one_journal and scan.journals > 1):
                break
        found = scan.found or scan.boundary
        gtid = found.gtid if self._server.has_gtids else ""
        if gtid and self.purged:
            gtid = str(MysqlGtidSet.parse(gtid) | MysqlGtidSet.parse(self.purged))
        return attrs.evolve(found, source=self.identity, gtid=gtid)

    def has_logged(self, gtid: str) -> bool:
        """Whether the transactions that end a GTID set are the server's own or came to it; MySQL's sets tell it anyhow."""
        if self.flavor != "mariadb":
            return True
        (state,) = self._rows("SELECT @@global.gtid_binlog_state, @@global.gtid_slave_pos")
        numbers: dict[str, int] = {}
        for one in filter(None, ",".join(map(str, state)).split(",")):
            origin, _, number = one.strip().rpartition("-")
            numbers[origin] = max(int(number), numbers.get(origin, 0))
        wanted = [one.rpartition("-") for one in gtid.split(",") if one]
        return all(numbers.get(origin, 0) >= int(number) for origin, _, number in wanted)

    def journal_names(self) -> list[str]:
        """The logs that the server still has, the oldest first."""
        return [name for name, _ in self._logs()]

    def incarnation(self, journal: str) -> str | None:
        """What tells the log that the server has now from others of that name; "" where it has none, and None where the user
        may have no connection more."""
        try:
            if journal not in self.journal_names():
                return ""
            head = next((event for event in self._non_blocking(journal) if event[4] == _FORMAT), None)
        except AuthenticationError:
            return None
        return "" if head is None else incarnation_of(head)

    def replay(self, journal: str, offset: int) -> Iterator[bytes]:
        """The events of one log from ``offset`` on, its FORMAT_DESCRIPTION first, over a connection of their own."""
        if journal not in self.journal_names():
            raise self._no_log(Position(journal=journal, offset=offset))
        begun = False
        for event in self._non_blocking(journal, offset):
            if event[4] != _ROTATE:
                begun = True
                yield event
            elif begun:  # its own, or where it ends without one the server's, which goes on with the next log
                return

    def _non_blocking(self, journal: str, offset: int = 4) -> Iterator[bytes]:
        """The events of a log from ``offset`` on and those of the logs after it, up to the end."""
        self._need(3)
        # Of a replica of its own: a server ends the dump that a replica has when the same one begins another.
        other = self._beside = MySQLConnection(self._source, self.server_id ^ 0x40000000, str(uuid.uuid4()))
        try:
            if self._closed:
                raise ConnectionLostError(f"the connection to {self._source.address} was closed")
            other.open()
            other._start_dump(Position(journal=journal, offset=offset), non_block=True)
            stream = other._stream
            assert stream is not None
            side = SideRead(journal, offset)
            while not self._closed:  # also when it was closed before there was another one to close with it
                events = stream.read(self._source.seek_timeout)
                if not events:
                    return
                yield from map(side.check, events)
        finally:
            other.close()
        raise ConnectionLostError(f"the connection to {self._source.address} was closed")

    # -- the stream ----------------------------------------------------------------------------------------------------

    def dump(self, position: Position) -> None:
        if self._stream is not None:
            raise StateError("this connection streams already")
        with self._using:
            self._start_dump(position, non_block=False)

    def _start_dump(self, position: Position, *, non_block: bool) -> None:
        flags = _NON_BLOCK if non_block else 0
        login = self._login
        if login is None or self._closed:
            raise ConnectionLostError(f"the connection to {self._source.address} was closed")
        try:
            self._end_left(login)
            self._by_offset = dumps_by_offset(position, self._server.has_gtids)
            if self._by_offset:
                self._dump_file(login, position, flags)
            else:
                self._dump_gtid(login, position, flags)
            sock, ahead = _pymysql.take_over(login)
        except (_pymysql.DriverError, OSError) as error:
            raise query_error(error, self._source, "start the dump") from error
        self._login = None
        beats = self._server.has("heartbeats")
        self._stream = DumpStream(sock, ahead, self._source, self.server_id, position, beats=beats)
        if self._queries.is_closed:  # closed while the dump was begun
            self._stream.close()

    def _end_left(self, login: Any) -> None:
        """End the dumps that we have closed and that the server goes on with, because something on the way keeps its side.

        They block in a write for as long as net_write_timeout says, and MariaDB from 10.6 on begins no dump with the same
        server_id before they end.
        """
        threads = self._threads(run(login, "SHOW PROCESSLIST"))
        (own,) = run(login, "SELECT CONNECTION_ID()")[0]
        self._thread = next((thread for thread in threads if thread.number == own), None)
        for thread in [one for one in list(self._source._left) if one.identity == self.identity]:
            with contextlib.suppress(ValueError):  # another connection of the source has taken it
                self._source._left.remove(thread)
            if threads.get(thread, "").startswith(_DUMPING):
                log.info("ending %s on %s, a dump that we have closed", thread, self._source.address)
                with contextlib.suppress(_pymysql.DriverError):  # it has ended by itself
                    run(login, f"KILL {thread.number}")

    def _threads(self, rows: list[tuple[Any, ...]]) -> dict[Thread, str]:
        """What each connection does, by the answer to SHOW PROCESSLIST."""
        return {Thread(self.identity, int(row[0]), str(row[1]), str(row[2])): str(row[4]) for row in rows}

    def held_up_by(self) -> str:
        """Which dumps the server has to end before it begins ours; "" where it has begun, or it is something else."""
        own, stream = self._thread, self._stream
        if own is None or stream is None or stream.has_begun or self.flavor != "mariadb":
            return ""
        rows = self._rows("SHOW PROCESSLIST", doing="ask what holds up the dump")
        if not any(row[0] == own.number and row[4].startswith(_DUMPING) and row[6] == "starting" for row in rows):
            return ""
        others = [str(thread) for thread, doing in self._threads(rows).items() if doing == "Killed"]
        return (
            f"{self._source.address} has not begun our dump: it waits for the end of another one with our server id "
            f"{self.server_id}, which does not take what it is sent: {' or '.join(others) or 'of another user'}. "
            "Give each reader a server_id of its own; if nobody reads there any more, KILL that connection on the server."
        )

    def _dump_gtid(self, login: Any, position: Position, flags: int) -> None:
        if self.flavor == "mariadb":
            state = str(run(login, "SELECT @@global.gtid_binlog_state")[0][0] or "")
            place, self.known = known_place(position, self.identity, state)
            for domain, server, number in self.known:
                self.warnings.append(
                    f"{self._source.address} does not have the transactions of domain {domain} by server {server} up to "
                    f"{number}; if they never come to it, what was delivered of them is not in its tables, and what other "
                    "servers of the domain did behind its last one of that server may come again"
                )
            run(login, "SET @slave_connect_state = %s, @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0",
                (place,))  # fmt: skip
            _pymysql.command(login, _COM_BINLOG_DUMP, dump_packet(4, flags | _SEND_ANNOTATE_ROWS, self.server_id, ""))
        else:
            self._check_executed(login, position)
            # Only the set: with a file as well the server would skip to that file (and past what is before it).
            encoded = _encode_gtids(position)
            _pymysql.command(login, _COM_BINLOG_DUMP_GTID, dump_gtid_packet(flags, self.server_id, encoded))

    def _check_executed(self, login: Any, position: Position) -> None:
        """A server that has not executed what was read already is another one, or has lost transactions."""
        missing = str(run(login, "SELECT GTID_SUBTRACT(%s, @@global.gtid_executed)", (position.gtid,))[0][0])
        if not missing or self.identity.lower() in missing.lower() and self._is_logged_still(position):
            return
        text = f"{self._source.address} has not executed transactions that the position says are done: {_short(missing)}"
        shared = run(login, "SELECT GTID_SUBTRACT(%s, %s)", (position.gtid, missing))[0][0]
        if not shared or self.identity.lower() in missing.lower():
            raise PositionLostError(
                text,
                reason=LostReason.DIVERGED,
                position=position,
                remedy="It is not the server that the position is from (nor a replica of it), or it lost them.",
            )
        self.warnings.append(f"{text}; if they never come to it, what was delivered of them is not in its tables")

    def _dump_file(self, login: Any, position: Position, flags: int) -> None:
        if not position.journal:
            raise PositionLostError(
                f"{self._source.address} has no GTIDs and the position names no journal",
                reason=LostReason.UNREACHABLE,
                position=position,
                remedy=self._or_gtids("Start from a journal and an offset"),
            )
        self._check_source(position)
        if position.gtid and self._server.has_gtids and self.flavor == "mysql":
            self._check_executed(login, position)
        elif position.gtid and self._server.has_gtids:
            self._check_state(position, str(run(login, "SELECT @@global.gtid_binlog_state")[0][0] or ""))
        if position.offset > MAX_DUMP_OFFSET:
            position = self._behind_large(position)
        if self.flavor == "mariadb":
            flags |= _SEND_ANNOTATE_ROWS  # without them offsets have holes where the server leaves them out
        _pymysql.command(
            login, _COM_BINLOG_DUMP, dump_packet(max(position.offset, 4), flags, self.server_id, position.journal)
        )

    def _behind_large(self, position: Position) -> Position:
        """The start of the next log, where only the ROTATE stands between: the protocol's offset has 32 bits, and a log
        beyond them ends with the transaction that made it so large."""
        logs = self._logs()
        for (name, size), (following, _) in zip(logs, logs[1:]):
            # No transaction is as short as a ROTATE.
            rotate = 31 + len(following.encode("utf-8"))
            if name == position.journal and size is not None and 0 <= size - position.offset <= rotate:
                return attrs.evolve(position, journal=following, offset=4, incarnation="")
        raise PositionLostError(
            f"offset {position.offset} of {position.journal} does not fit into the protocol's 32 bits",
            position=position,
            remedy="Resume by GTID set. At the end of that log: FLUSH BINARY LOGS on the server, and start again.",
        )

    def read(self, timeout: float) -> list[bytes] | None:
        stream = self._stream
        if stream is None:
            raise StateError("nothing is streamed before dump()")
        try:
            events = stream.read(timeout)
        except PositionLostError as error:
            error.message = f"{error.message}; {self._has()}"
            raise
        if not events and stream.ended:
            raise ConnectionLostError(
                f"{self._source.address} ended the dump",
                by_source=True,
                remedy="It shuts down, or its logs were reset (RESET MASTER), or another reader uses our server id "
                f"{self.server_id}, of which MySQL before 5.7 and MariaDB before 10.2 say no more: give each one of its own.",
            )
        return events

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        return self._queries.table_columns(schema, table)

    def json_columns(self, schema: str, table: str) -> set[str]:
        """The columns that MariaDB made of the type JSON: LONGTEXT with a check."""
        return self._queries.json_columns(schema, table) if self._server.has("json_checks") else set()

    def end_of_log(self) -> Position:
        """Journal and offset of the present end, without GTIDs: quicker than ``resolve("latest")``."""
        rows = self._rows(self._server.status_query, (), "find the end of the log")
        return Position(journal=str(rows[0][0]), offset=int(rows[0][1])) if rows else Position()

    def check_end(self, place: Position) -> bool:
        """Whether the log ends where reading stands, when nothing came for a while; in a dump by GTID set that is not known.

        Raises:
            PositionLostError: the server does not have any more what was read.
        """
        if self._by_offset or not self.has_gtids:
            end = self.end_of_log()
            if self._is_before(end, place):
                raise self._reset(place, f"its log ends at {end}")
            return _is_same(end, place)
        if self.flavor == "mysql":
            missing = str(self._rows("SELECT GTID_SUBTRACT(%s, @@global.gtid_executed)", (place.gtid,))[0][0])
            if self.identity.lower() in missing.lower() and not self._is_logged_still(place):
                raise self._reset(place, f"it has not executed {_short(missing)}")
        else:
            self._check_state(place, str(self._rows("SELECT @@global.gtid_binlog_state")[0][0] or ""))
        if self._stream is not None:
            self._check_log(place)
        return True

    def _check_log(self, place: Position) -> None:
        """A dump by GTID set leaves out all that is done, also in a log that was begun anew and has the same GTIDs again."""
        end = self.end_of_log()
        if self._is_before(end, place) or self._is_before(end, self._end):
            raise self._reset(place, f"its log ends at {end}")
        if place.incarnation and not any(_is_same(end, one) for one in (place, self._end)):
            found = self.incarnation(place.journal)
            if found and found != place.incarnation:
                raise self._reset(place, f"{place.journal} was begun anew, and what it has again does not come")
            if found:
                self._end = end

    def _is_logged_still(self, place: Position) -> bool:
        """Whether the log is still the one that was read, up to there: a commit that waits for a semi-synchronous replica is
        sent before it counts as executed."""
        if not place.incarnation or self.incarnation(place.journal) != place.incarnation:
            return False
        return not self._is_before(self.end_of_log(), place)

    def _check_state(self, place: Position, state: str) -> None:
        """A MariaDB that has not logged its own transactions that are done has lost them."""
        _, lacking = known_place(attrs.evolve(place, source="another"), self.identity, state or "0-0-0")
        own = int(self.identity.partition("@")[0])
        if any(server == own for _, server, _ in lacking):
            raise self._reset(place, f"it has logged up to {state or 'nothing'}")

    @staticmethod
    def _is_before(end: Position, place: Position) -> bool:
        return (journal_key(end.journal)[1], end.offset) < (journal_key(place.journal)[1], place.offset)

    def _reset(self, place: Position, why: str) -> PositionLostError:
        return PositionLostError(
            f"{self._source.address} has lost what was read of its log: {why}",
            reason=LostReason.DIVERGED,
            position=place,
            remedy="Its log was reset, or it was restored: copy the tables anew and start from \"latest\" or \"earliest\".",
        )

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description:
        """As ``Session.describe``."""
        return self._queries.describe(schema, table, accepts=accepts)

    @property
    def logs_cascades(self) -> bool:
        """Whether the rows that a cascading foreign key changes are in the log: not on a replica, whose source may not
        have logged them."""
        return self._server.logs_cascades and not self._rows("SHOW REPLICA STATUS", doing="ask for a replica's sources")

    def foreign_keys(self) -> list[ForeignKey]:
        """The cascading foreign keys of all tables as they are now."""
        return self._queries.foreign_keys()

    def tables_like(self, schema: str, name: str, *, is_prefix: bool) -> list[str]:
        """Names of the tables of a schema that are called so, or begin so, as they are now."""
        return self._queries.tables_like(schema, name, is_prefix=is_prefix)

    def close(self) -> None:
        self._closed = True
        self._opening.close()
        self._queries.close()
        login = self._login
        if login is not None:
            _pymysql.abort(login)
            if self._using.acquire(blocking=False):  # else it fails where it is used, and who uses it closes it again
                _pymysql.close(login)
                self._using.release()
        stream, thread = self._stream, self._thread
        if stream is not None:
            stream.close()
            if thread is not None and ":" in thread.host:  # else nothing tells it from a later one with its number
                self._source._left.append(thread)
        beside = self._beside
        if beside is not None:
            beside.close()


def another(source: Any) -> Any:
    """The same source as another replica, which no other one throws out."""
    return attrs.evolve(source, server_id=None) if isinstance(source, MySQLSource) else source


def _is_same(end: Position, other: Position) -> bool:
    return (end.journal, end.offset) == (other.journal, other.offset)


def dumps_by_offset(position: Position, has_gtids: bool) -> bool:
    """Whether a dump begins at the position's journal and offset, not behind its GTID set."""
    return bool(position.incarnation or not (position.gtid and has_gtids))


def known_place(position: Position, identity: str, state: str) -> tuple[str, list[tuple[int, int, int]]]:
    """From where MariaDB can send: it refuses a GTID that it does not have, as a replica that lags behind does not.

    Args:
        position: its GTID set is done.
        identity: of the server.
        state: its gtid_binlog_state: the last number that it has logged, by domain and server id.

    Returns:
        The GTID set to connect with, and of which (domain, server id) transactions up to which number must be left out
        because they are done.
    """
    if not position.source or position.source == identity:
        return position.gtid, []
    logged = {}
    for text in filter(None, (one.strip() for one in state.split(","))):
        domain, server, number = map(int, text.split("-"))
        logged[domain, server] = number
    place, done = [], []
    for text in position.gtid.split(","):
        domain, server, number = map(int, text.split("-"))
        last = logged.get((domain, server))
        if last is not None and last >= number:
            place.append(text)
            continue
        done.append((domain, server, number))
        if last is not None:
            place.append(f"{domain}-{server}-{last}")
        elif any(one == domain for one, _ in logged):
            raise PositionLostError(
                f"its log has no transaction of domain {domain} by server {server}, of which those up to {number} are done",
                reason=LostReason.DIVERGED,
                position=position,
                remedy="It is not a replica of the server that the position is from, or does not log what it replicates.",
            )
    return ",".join(place), done


def _encode_gtids(position: Position) -> bytes:
    encode: Any = position.gtid_set.encode  # type: ignore[union-attr]
    return bytes(encode())


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "…"


# -- packets -----------------------------------------------------------------------------------------------------------


def register_packet(server_id: int) -> bytes:
    """COM_REGISTER_SLAVE: who we are, for SHOW REPLICAS; never the password, which canal sends along in clear."""
    host = socket.gethostname().encode("ascii", "replace")[:60]
    return struct.pack("<IB", server_id, len(host)) + host + struct.pack("<BBHII", 0, 0, 0, 0, 0)


def dump_packet(offset: int, flags: int, server_id: int, journal: str) -> bytes:
    """COM_BINLOG_DUMP; its offset has 32 bits."""
    return struct.pack("<IHI", offset, flags, server_id) + journal.encode("utf-8", "surrogateescape")


def dump_gtid_packet(flags: int, server_id: int, encoded: bytes) -> bytes:
    """COM_BINLOG_DUMP_GTID with no file name and the offset that goes with none."""
    return struct.pack("<HIIQI", flags, server_id, 0, 4, len(encoded)) + encoded
