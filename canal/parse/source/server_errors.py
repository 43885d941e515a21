"""Maps a server's errors to the library's errors: one table from error number and text to error class and remedy.

Never queries a server. The rows of ``MEANINGS`` are tried in order. The texts come from MySQL 5.5 to 9.7 and MariaDB 10.1
to 11.8.
"""

from __future__ import annotations

import enum
import re
import ssl
from typing import Any, Final, Protocol

import attrs

from canal.binlog import event_layout as layout
from canal.errors import (
    GO_ON_AFTER,
    AuthenticationError,
    ConnectionLostError,
    LostReason,
    PositionLostError,
    ServerError,
    SourceError,
)
from canal.position import Position


class During(enum.Flag):
    """The operation that failed."""

    LOGIN = enum.auto()
    QUERY = enum.auto()
    DUMP = enum.auto()
    #: A dump from an offset, before the first event arrived.
    START = enum.auto()
    ANY = LOGIN | QUERY | DUMP


class SourceLogin(Protocol):
    """The parts of a source that messages mention."""

    @property
    def address(self) -> str: ...
    @property
    def user(self) -> str: ...


_OTHER_LOG: Final = "The server lost the end of the log, or the position comes from another server."
_NO_EVENT: Final = "No event begins at that offset, or the log is damaged there: start at the beginning of a transaction."
_GRANT: Final = (
    "As an administrator: GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%'; with the account's host "
    "for %."
)
_NEW_PASSWORD: Final = (
    "The hash has the format before MySQL 4.1. As an administrator: SET old_passwords = 0; "
    "SET PASSWORD FOR '{user}'@'%' = PASSWORD('…'); if that is refused (MySQL 5.6), drop and create the account."
)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


@attrs.frozen
class Meaning:
    """A row of the table: matches an error by ``numbers`` (empty: any) and by ``text``.

    ``error`` decides the reaction: a ConnectionLostError is retried for ever, a PositionLostError is handled by ``on_lost``, and
    any other error stops the instance until an operator follows ``remedy``.
    """

    name: str
    during: During
    numbers: tuple[int, ...]
    text: re.Pattern[str] = attrs.field(converter=_pattern)
    error: type[SourceError]
    remedy: str = ""
    reason: LostReason | None = None

    def fits(self, during: During, number: int, text: str) -> bool:
        return bool(during & self.during) and (not self.numbers or number in self.numbers) and bool(self.text.search(text))


MEANINGS: Final[tuple[Meaning, ...]] = (
    # -- dumps: error 1236 has many meanings, which differ only in their text
    Meaning(
        "server id twice",
        During.DUMP,
        (),
        r"same server_uuid/server_id|same server_id",
        ServerError,
        "Another replica or reader uses our server id {server_id}: give each a different server_id.",
    ),
    Meaning(
        "log purged",
        During.DUMP,
        (),
        r"could not find first log file|could not open log file",
        PositionLostError,
        "The server purged or removed that log.",
        LostReason.PURGED,
    ),
    Meaning(
        "log removed",
        During.DUMP,
        (13, 29),
        r"",
        PositionLostError,
        "Restore that log: it was removed manually, or the server may not read it.",
        LostReason.PURGED,
    ),
    Meaning(
        "log reset",
        During.DUMP,
        (),
        r"could not find next log",
        PositionLostError,
        "The logs were reset or removed while they were read.",
        LostReason.PURGED,
    ),
    Meaning(
        "GTIDs purged",
        During.DUMP,
        (),
        r"purged required binary logs|purged binary logs containing gtids|could not find gtid state",
        PositionLostError,
        "The server purged transactions that were not read yet.",
        LostReason.PURGED,
    ),
    Meaning("GTIDs not in the log", During.DUMP, (1945, 1951, 1955), r"", PositionLostError, _OTHER_LOG, LostReason.DIVERGED),
    Meaning(
        "GTIDs not in the log, by text",
        During.DUMP,
        (),
        r"has more gtids than|not in the master's binlog|is missing the gtid|which is not in the",
        PositionLostError,
        _OTHER_LOG,
        LostReason.DIVERGED,
    ),
    Meaning(
        "beyond the end",
        During.DUMP,
        (),
        r"impossible position|position > file size",
        PositionLostError,
        _OTHER_LOG,
        LostReason.BEYOND,
    ),
    # The server failed at the first event that it read, so no event begins there. Some servers interpret any bytes as a length.
    Meaning(
        "no event there",
        During.DUMP,
        (),
        r"does not correspond to the location of any binlog event|"
        r"(?:bogus data|truncated in the middle|max_allowed_packet).*the first event '[^']*' at (?!4,)(\d+), "
        r"the last event read from '[^']*' at (?:\1|4|12\d),",
        PositionLostError,
        _NO_EVENT,
        LostReason.BEYOND,
    ),
    # MySQL 5.5 does not report the offset.
    Meaning(
        "no event there, from the start",
        During.START,
        (),
        r"(?:bogus data|truncated in the middle|max_allowed_packet)(?!.*the first event)",
        PositionLostError,
        _NO_EVENT,
        LostReason.BEYOND,
    ),
    # MySQL 5.5 only. Other servers always send events of up to 1 GiB, so a larger event is damaged, and they report the offset.
    Meaning(
        "event too large",
        During.DUMP,
        (),
        r"max_allowed_packet(?!.*the first event)",
        ServerError,
        f"Raise max_allowed_packet on the server, up to 1G. If it is 1G already, the log is damaged. {GO_ON_AFTER}",
    ),
    Meaning(
        "log not readable",
        During.DUMP,
        (),
        r"(?:I/O|unknown) error|error reading file",
        ServerError,
        "The log was reset during the dump, or the server's disk is damaged. Check it, then start again.",
    ),
    Meaning(
        "log damaged",
        During.DUMP,
        (),
        r"bogus data|corrupted data|truncated in the middle|did not pass|max_allowed_packet|bad magic|format_description",
        ServerError,
        f"The server's log is damaged there: check the disk. {GO_ON_AFTER}",
    ),
    Meaning(
        "anonymous transaction, gtid_mode=ON",
        During.DUMP,
        (),
        r"anonymous transaction when @@GLOBAL\.GTID_MODE = ON",
        ServerError,
        "SET GLOBAL gtid_mode = ON_PERMISSIVE until all transactions without GTIDs are read.",
    ),
    Meaning(
        "GTID transaction, gtid_mode=OFF",
        During.DUMP,
        (),
        r"GTID-transaction when @@GLOBAL\.GTID_MODE = OFF",
        ServerError,
        "SET GLOBAL gtid_mode = OFF_PERMISSIVE until all transactions with GTIDs are read.",
    ),
    Meaning(
        "anonymous transaction",
        During.DUMP,
        (),
        r"anonymous transaction",
        ServerError,
        "Start from a journal and an offset, without a GTID set, and SET GLOBAL gtid_mode = ON_PERMISSIVE until all "
        "transactions without GTIDs are read.",
    ),
    # Dolt has no dump by offset.
    Meaning(
        "no such dump",
        During.DUMP,
        (1047,),
        r"",
        ServerError,
        "This server cannot stream from an offset, which a schema history requires: set binlog_row_metadata=FULL on "
        'it, and start from "latest" or a GTID set.',
    ),
    Meaning(
        "no log",
        During.DUMP,
        (),
        r"binary log is not open|misconfigured (?:master|source)",
        ServerError,
        "Set log_bin and a server_id in the server's configuration, and restart it.",
    ),
    # The setting changed after we connected. The next dump uses journal and offset.
    Meaning("GTIDs switched off", During.DUMP, (), r"auto_position.*gtid_mode", ConnectionLostError),
    Meaning("checksums switched", During.DUMP, (), r"can ?not handle replication events", ConnectionLostError),
    # -- any operation
    Meaning(
        "no TLS",
        During.LOGIN,
        (2026,),
        r"does not offer TLS",
        ServerError,
        'Set ssl_cert and ssl_key in the server\'s configuration, or use ssl_mode="PREFERRED" or "DISABLED".',
    ),
    Meaning(
        "our certificate",
        During.LOGIN,
        (2006, 2013, 2026),
        r"alert.*(?:certificate|unknown ca)",
        AuthenticationError,
        "Check ssl_cert and ssl_key: the server accepts only certificates of the authorities in the server's ssl_ca.",
    ),
    Meaning(
        "the server's certificate",
        During.LOGIN,
        (2026,),
        r"certificate",
        ServerError,
        "Check ssl_mode and ssl_ca against the server's certificate.",
    ),
    Meaning(
        "old TLS",
        During.LOGIN,
        (2026,),
        r"protocol|version|cipher|handshake.failure|too.small|renegotiation",
        ServerError,
        "The server offers no TLS version and cipher that we accept, or (MySQL 5.7 and older) refuses our ssl_cert: use a lower "
        'tls_min_version ("TLSv1" works with every server), or ssl_mode="DISABLED" for no TLS.',
    ),
    Meaning(
        "TLS", During.LOGIN, (2026,), r"", ServerError, "Check the TLS configuration of the server and of proxies in between."
    ),
    Meaning(
        "password expired",
        During.ANY,
        (1820, 1862),
        r"",
        AuthenticationError,
        "The password has expired: as an administrator, ALTER USER … IDENTIFIED BY …, and configure the new password.",
    ),
    Meaning(
        "account locked", During.ANY, (3118, 4151), r"", AuthenticationError, "As an administrator: ALTER USER … ACCOUNT UNLOCK."
    ),
    Meaning(
        "account blocked",
        During.LOGIN,
        (3955, 4150),
        r"",
        AuthenticationError,
        "Too many wrong passwords: as an administrator, ALTER USER … ACCOUNT UNLOCK; on MariaDB, FLUSH PRIVILEGES.",
    ),
    Meaning(
        "host blocked",
        During.LOGIN,
        (1129,),
        r"",
        AuthenticationError,
        "Too many connections from our host were interrupted: as an administrator, FLUSH HOSTS, or since MySQL 8.4 "
        "TRUNCATE TABLE performance_schema.host_cache.",
    ),
    Meaning(
        "host unknown",
        During.LOGIN,
        (1130,),
        r"",
        AuthenticationError,
        "The server has no account for our host: as an administrator, CREATE USER '{user}'@'…' IDENTIFIED BY '…' with the "
        "host's name or address, and grant the privileges that a reader needs.",
    ),
    Meaning("TLS demanded", During.LOGIN, (3159,), r"", AuthenticationError, 'Use ssl_mode="REQUIRED".'),
    Meaning(
        "clear text",
        During.LOGIN,
        (2061,),
        r"in clear text",
        AuthenticationError,
        "The account uses LDAP or PAM: set allow_cleartext=True, which sends the password only over a unix_socket or with "
        'ssl_mode="VERIFY_IDENTITY" (or "VERIFY_CA" and ssl_ca). Or, as an administrator, change the plugin.',
    ),
    Meaning(
        "password to a stranger",
        During.LOGIN,
        (2061,),
        r"nothing proves who answers",
        AuthenticationError,
        "Use TLS (ssl_mode) or the server's RSA key (server_public_key). On a trusted network, "
        "get_server_public_key=True accepts the key that the server sends.",
    ),
    Meaning(
        "TLS needed",
        During.LOGIN,
        (2061,),
        r"TLS",
        AuthenticationError,
        'Use TLS (ssl_mode="REQUIRED", and tls_min_version="TLSv1" if the server has no TLS 1.2), or as an administrator '
        "change the account's plugin.",
    ),
    Meaning("old password", During.LOGIN, (1275, 2049), r"", AuthenticationError, _NEW_PASSWORD),
    Meaning(
        "old password, by its packet", During.LOGIN, (0,), r"unknown auth switch request", AuthenticationError, _NEW_PASSWORD
    ),
    Meaning(
        "plugin not loaded",
        During.LOGIN,
        (1524,),
        r"",
        AuthenticationError,
        "As an administrator, load the plugin in the server, or change the account's plugin.",
    ),
    Meaning(
        "plugin not supported",
        During.LOGIN,
        (1251, 2059, 2061),
        r"",
        AuthenticationError,
        "As an administrator, give the account mysql_native_password, caching_sha2_password or ed25519.",
    ),
    Meaning(
        "no password",
        During.LOGIN,
        (1698,),
        r"",
        AuthenticationError,
        "The account has no password: log in over the server's unix_socket as the operating system user of that name, or as "
        "an administrator set a password.",
    ),
    Meaning(
        "refused",
        During.LOGIN,
        (1044, 1045),
        r"",
        AuthenticationError,
        "Check user, password, the account's host and REQUIRE clause: SSL needs TLS, X509 also ssl_cert and ssl_key.",
    ),
    Meaning(
        "only SUPER may",
        During.QUERY,
        (1227,),
        r"\(at least one of\) the SUPER privilege",
        AuthenticationError,
        "This release requires SUPER for it: as an administrator, GRANT SUPER ON *.* TO '{user}'@'%';",
    ),
    # MySQL and MariaDB answer 1045 to a replica without REPLICATION SLAVE.
    Meaning("privilege missing", During.QUERY | During.DUMP, (1045, 1142, 1143, 1227), r"", AuthenticationError, _GRANT),
    Meaning(
        "too many connections",
        During.ANY,
        (1040, 1203, 1226),
        r"",
        ConnectionLostError,
        "Raise max_connections of the server, or the user's limit.",
    ),
    Meaning(
        "offline mode",
        During.ANY,
        (3032,),
        r"",
        ConnectionLostError,
        "SET GLOBAL offline_mode = 0, or give the user CONNECTION_ADMIN.",
    ),
    Meaning(
        "no server",
        During.LOGIN,
        (2012,),
        r"",
        ConnectionLostError,
        "Check host and port: another service listens there, such as MySQL's X protocol on 33060, or the server hangs.",
    ),
    Meaning(
        "unreachable",
        During.LOGIN,
        (2002, 2003),
        r"",
        ConnectionLostError,
        "Check host, port and network, and that the server runs.",
    ),
    Meaning(
        "file wanted",
        During.ANY,
        (2068,),
        r"",
        ServerError,
        "Find out which program answers there: a server has no reason to request a file, and we never send one.",
    ),
    Meaning(
        "answer too large",
        During.ANY,
        (2020,),
        r"",
        ServerError,
        "Check host and port, and which program answers there. docs/limits.md lists the size limits of answers.",
    ),
    Meaning("shut down", During.ANY, (1053, 1077, 1078, 1079), r"", ConnectionLostError),
    Meaning("killed", During.ANY, (1317, 1927, 3169, 4031), r"", ConnectionLostError),
    Meaning(
        "connection broke", During.ANY, (1152, 1158, 1159, 1160, 1161, 1184, 2006, 2013, 2014, 2055), r"", ConnectionLostError
    ),
    Meaning("busy", During.ANY, (1205,), r"", ConnectionLostError),
)


def meaning(during: During, number: int, text: str) -> Meaning | None:
    """Return the first row that matches; None for an unknown error, which stops the instance."""
    return next((row for row in MEANINGS if row.fits(during, number, text)), None)


def login_error(error: BaseException, source: SourceLogin) -> SourceError:
    """Convert an error that PyMySQL raised during the login."""
    number, text = _number_and_text(error)
    cause = getattr(error, "original_exception", error)
    message = f"cannot connect to {source.address} as {source.user!r}: {text}"
    if isinstance(error, RuntimeError):  # PyMySQL lacks a package for this authentication plugin
        return AuthenticationError(message, remedy="Install pymysql[rsa,ed25519].")
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        number = 2026
    found = meaning(During.LOGIN, number, text)
    if found is None and isinstance(cause, OSError):
        found = meaning(During.LOGIN, 2003, text)
    return _error(found, message, source, errno=number)


def query_error(error: BaseException, source: SourceLogin, doing: str) -> SourceError:
    """Convert an error that PyMySQL raised for a query; ``doing`` is the query's purpose, for the message."""
    number, text = _number_and_text(error)
    message = f"cannot {doing} on {source.address}: {text}"
    if number == 0 or isinstance(error, OSError):  # from the driver or the network; TLS numbers are not the server's
        return ConnectionLostError(message)
    return _error(meaning(During.QUERY, number, text), message, source, errno=number)


def stream_error(
    error: ServerError, source: SourceLogin, server_id: int, position: Position, *, begun: bool = True
) -> SourceError:
    """Convert an error packet inside a dump. ``begun``: events of the log came before it."""
    message = f"{source.address} ended the dump: {error.message} (error {error.errno})"
    during = During.DUMP if begun or position.offset <= layout.FIRST else During.DUMP | During.START
    found = meaning(during, error.errno, error.message)
    return _error(found, message, source, errno=error.errno, sqlstate=error.sqlstate, position=position, server_id=server_id)


def _error(
    found: Meaning | None,
    message: str,
    source: SourceLogin,
    *,
    errno: int,
    sqlstate: str = "",
    server_id: int = 0,
    position: Position | None = None,
) -> SourceError:
    if found is None:
        return ServerError(message, errno=errno, sqlstate=sqlstate, position=position)
    where: dict[str, Any] = {
        "position": position,
        "remedy": found.remedy.replace("{user}", source.user).replace("{server_id}", str(server_id)),
    }
    if found.reason is not None:
        return PositionLostError(message, errno=errno, sqlstate=sqlstate, reason=found.reason, **where)
    if found.error is ServerError:
        return ServerError(message, errno=errno, sqlstate=sqlstate, **where)
    if found.error is ConnectionLostError:
        return ConnectionLostError(message, by_source=found.name == "killed", **where)
    return found.error(message, **where)


def _number_and_text(error: BaseException) -> tuple[int, str]:
    args = error.args
    if len(args) >= 2 and isinstance(args[0], int):
        return args[0], str(args[1])
    return 0, str(error)
