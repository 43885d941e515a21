"""The only module that uses private parts of PyMySQL: log in, run a command, take over the socket.

Sends only answers to a login. Never sends a password that an unauthenticated server could read, unless an option allows it
(docs/security.md). Private names checked against PyMySQL 1.1.1 to 1.2.4: ``_sock``, ``_rfile``, ``_execute_command``,
``_read_packet``, ``_read_ok_packet``, ``_read_query_result``, ``_read_bytes``, ``_write_bytes``, ``_write_timeout``,
``_force_close``, ``_get_server_information``, ``_process_auth``, ``_auth_plugin_name``, ``_secure``, ``_closed``; in ``_auth``
``scramble_caching_sha2`` and ``sha2_rsa_encrypt``; in a cursor ``_result`` with ``unbuffered_active``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeVar

import attrs
import pymysql
import pymysql.connections
import pymysql.cursors
from pymysql import _auth
from pymysql.constants import CLIENT, COMMAND, SERVER_STATUS
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

#: Base class of the errors that PyMySQL raises for server and network faults.
DriverError = pymysql.err.MySQLError


@contextlib.contextmanager
def driver_errors() -> Iterator[None]:
    """Convert the errors that PyMySQL raises for a corrupt answer to a lost connection error."""
    try:
        yield
    except pymysql.err.InternalError as error:
        if isinstance(error.args[0] if error.args else None, int):
            raise  # an error of the server
        raise pymysql.err.OperationalError(2013, f"cannot parse the answer: {error}") from error
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, struct.error) as error:
        raise pymysql.err.OperationalError(2013, f"cannot parse the answer: {error!r}") from error


#: Objects with a socket. A forked child closes these sockets at once, so that it cannot use the parent's connections.
_holders: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_fork() -> None:
    for holder in list(_holders):
        sock = holder if isinstance(holder, socket.socket) else holder._sock
        if sock is not None and sock.fileno() != -1:
            os.close(sock.detach())  # close only the child's descriptor; send nothing to the server


os.register_at_fork(after_in_child=_after_fork)


class Opening:
    """The socket of a running login, so that another thread can end the login."""

    def __init__(self) -> None:
        _holders.add(self)
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._closed = False

    def watch(self, sock: socket.socket) -> None:
        """Make ``close`` end this socket from now on. Raises OSError if ``close`` was called already."""
        with self._lock:
            if self._closed:
                raise OSError("the connection was closed")
            # Duplicate the descriptor: TLS detaches the original from the socket object, and PyMySQL closes it.
            self._release()
            self._sock = sock.dup()

    def close(self) -> None:
        """End the login: the waiting thread fails at once."""
        with self._lock:
            self._closed = True
            if self._sock is not None:
                with contextlib.suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)
            self._release()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def done(self) -> None:
        """Release the socket: the login is over."""
        with self._lock:
            self._release()

    def _release(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


def _reach(host: str, port: int, unix_socket: str | None, timeout: float, opening: Opening) -> socket.socket:
    """Return a socket connected to the first address that answers."""
    if unix_socket:
        addresses: list[Any] = [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", unix_socket)]
    else:
        addresses = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    failure = OSError("no address")
    for family, kind, protocol, _, address in addresses:
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:  # this machine lacks the address family
            failure = error
            continue
        try:
            opening.watch(sock)
            sock.settimeout(timeout)
            sock.connect(address)
            if not unix_socket:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return sock
        except OSError as error:
            sock.close()
            failure = error
    raise pymysql.err.OperationalError(2003, f"Can't connect to MySQL server on {host!r} ({failure})") from failure


def _check_greeting(sock: socket.socket) -> None:
    """Raise ``DriverError`` if the peer does not greet as a MySQL server. Peeks: the data stays in the socket."""
    try:
        head = sock.recv(_GREETING, socket.MSG_PEEK)
    except TimeoutError as error:
        raise pymysql.err.OperationalError(
            _NO_SERVER, f"no data came for {sock.gettimeout():g} s, but a MySQL server sends a greeting first"
        ) from error
    is_one = len(head) < _GREETING or head[_GREETING - 2] == 0 and head[-1] in _PROTOCOLS
    if not is_one:
        raise pymysql.err.OperationalError(_NO_SERVER, f"the peer is not a MySQL server: the data begins with {head!r}")


_UNKNOWN_CHARSET = 1115
#: MariaDB tries all plugins of an account that has several.
_MAX_PLUGINS: Final = 8
#: Bytes of an RSA key that OAEP with SHA-1 uses, and the NUL after a password.
_OAEP_AND_NUL: Final = 42 + 1
#: Bytes of a salt without the NUL terminator.
_SALT: Final = 20
#: The server's reply if the password is in the cache.
_KNOWN: Final = b"\3"
#: Maximum bytes that a server may send in a login. A greeting and keys are far smaller.
_LOGIN_BYTES: Final = 1 << 20
#: Maximum memory for the answer to a query, and for a row of a streamed result.
_ANSWER_BYTES: Final = 256 << 20
_ROW_BYTES: Final = (2 << 30) + (1 << 20)
#: Bytes that are received at once at most.
_PIECE: Final = 1 << 18
#: Memory that a column, a row and a value take in Python beside their bytes.
_COLUMN, _ROW, _VALUE = 2048, 128, 64
_TOO_LARGE: Final = 2020
_WANTS_FILE: Final = 2068
_NO_PLUGIN: Final = 2061
_NO_SERVER: Final = 2012
#: Bytes of a greeting up to the protocol version, after the packet number 0. An error packet (255) is also a valid start.
_GREETING: Final = 5
_PROTOCOLS: Final = (9, 10, 255)


@attrs.frozen(kw_only=True)
class Trust:
    """The cases in which an account's password may be sent. Without any, no server can read the password.

    ``proved``: the connection authenticates the server once it is open. ``server_key``: trust the RSA key that the server sends.
    ``public_key``: the server's RSA key in PEM. ``cleartext``: plugins may request the password itself from us if ``proved``.
    """

    proved: bool = False
    server_key: bool = False
    public_key: bytes = b""
    cleartext: bool = False


class TlsSocket(ssl.SSLSocket):
    """A socket that closes itself if the peer reset it before the handshake. Python's stays open, or has no TLS."""

    def getpeername(self) -> Any:
        try:
            return super().getpeername()
        except OSError as error:
            self.close()
            raise ConnectionResetError(errno.ECONNRESET, "the connection was reset before the TLS handshake") from error


_Driver: Any = pymysql.connections.Connection  # the stubs lack private members


class _Connection(_Driver):  # type: ignore[misc]
    """PyMySQL's connection with fixes for logins to some servers, and an error number for each login failure."""

    ssl: bool
    _auth_plugin_name: str
    tls_required = False
    trust = Trust()
    _unix = False
    #: Whether the server accepted the login from the password cache. Once the cache is empty, the login will be refused.
    is_remembered = False
    _limit = _left = _LOGIN_BYTES
    _columns = 0
    _begins = True

    def _get_server_information(self) -> None:
        super()._get_server_information()
        if self.ssl and not self.server_capabilities & CLIENT.SSL:
            if self.tls_required:  # PyMySQL before 1.2 would log in without TLS
                raise pymysql.err.OperationalError(2026, "the server does not offer TLS")
            self.ssl = False
            self.client_flag &= ~CLIENT.SSL  # MySQL from 5.6 on would answer "Bad handshake"
        if self._auth_plugin_name in ("caching_sha2_password", "sha256_password"):
            self._auth_plugin_name = "none"  # the server then requests the account's plugin, which _process_auth answers

    def set_character_set(self, charset: str, collation: str | None = None) -> None:
        try:
            super().set_character_set(charset, collation)
        except pymysql.err.MySQLError as error:
            if error.args[0] != _UNKNOWN_CHARSET:
                raise
            super().set_character_set("utf8")  # MySQL before 5.5.3

    def _process_auth(self, plugin_name: bytes, auth_packet: Any, *_: Any) -> Any:
        for _count in range(_MAX_PLUGINS):
            auth_packet = self._answer(plugin_name, auth_packet)
            if auth_packet.is_ok_packet():
                return auth_packet
            if not auth_packet.is_auth_switch_request():  # PyMySQL would continue and send the password
                asked = plugin_name.decode("ascii", "replace")
                raise pymysql.err.OperationalError(_NO_PLUGIN, f"the server requests more data than {asked} sends")
            auth_packet.read_uint8()
            plugin_name = auth_packet.read_string()
        raise pymysql.err.OperationalError(_NO_PLUGIN, f"the server requested more than {_MAX_PLUGINS} authentication plugins")

    def _answer(self, plugin: bytes, question: Any) -> Any:
        if plugin == b"mysql_old_password":
            raise pymysql.err.OperationalError(2049, "the account has a password in the old format, which is not supported")
        if plugin in (b"mysql_clear_password", b"dialog") and not (self.trust.cleartext and self.trust.proved):
            why = "nothing proves who answers" if self.trust.cleartext else "allow_cleartext is not set"
            raise pymysql.err.OperationalError(_NO_PLUGIN, f"the server requests the password in clear text, and {why}")
        if plugin == b"caching_sha2_password":
            return self._caching_sha2(question.read_all())
        if plugin == b"sha256_password":
            return self._sha256(question.read_all())
        return super()._process_auth(plugin, question)

    def _caching_sha2(self, salt: bytes) -> Any:
        """Run the plugin and return the server's last packet, which PyMySQL before 1.2.4 does not."""
        answer = self._ask(_auth.scramble_caching_sha2(self.password, salt[:_SALT]))
        if not answer.is_extra_auth_data():
            return answer
        if answer._data[1:2] == _KNOWN:
            self.is_remembered = not self._is_trusted()
            return self._read_packet()
        if self._unix or is_encrypted(self):
            return self._ask(self.password + b"\0")
        return self._encrypted(b"\2", salt)

    def _sha256(self, salt: bytes) -> Any:
        """Run the plugin. PyMySQL's version fails for a Unix socket, and on MySQL 5.6 without a password."""
        if not self.password or is_encrypted(self):
            return self._ask(self.password + b"\0")
        return self._encrypted(b"\1", salt)

    def _is_trusted(self) -> bool:
        """Return whether the server may learn the password; over a plain connection, by a key that it sends."""
        trust = self.trust
        return trust.proved or trust.server_key or bool(trust.public_key) or is_encrypted(self)

    def _encrypted(self, request: bytes, salt: bytes) -> Any:
        """Send the password encrypted with the server's RSA key."""
        if not self._is_trusted():
            raise pymysql.err.OperationalError(
                _NO_PLUGIN, "the server requests the password without TLS, by a key that it sends: nothing proves who answers"
            )
        key = self.trust.public_key or self._fetch_key(request)
        try:
            secret = _auth.sha2_rsa_encrypt(self.password, salt, key)
        except ValueError as error:
            room = _room(key)
            if len(self.password) <= room:  # the key is invalid
                raise
            raise pymysql.err.OperationalError(
                _NO_PLUGIN, f"the password needs TLS: the server's RSA key can encrypt only {room} bytes"
            ) from error
        return self._ask(secret)

    def _fetch_key(self, request: bytes) -> bytes:
        try:
            return bytes(self._ask(request)._data[1:])
        except pymysql.err.OperationalError as error:
            if error.args[0] != 1045:
                raise
            # No part of the password was sent yet.
            raise pymysql.err.OperationalError(_NO_PLUGIN, "the password needs TLS: the server has no RSA key") from error

    # -- limit the size of answers before they are received --------------------------------------------------------------

    def budget(self, limit: int) -> None:
        """Limit the memory of each following answer to ``limit`` bytes."""
        self._limit = self._left = limit

    def _execute_command(self, code: int, sql: Any) -> None:
        self._left, self._begins = self._limit, True
        super()._execute_command(code, sql)

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        self._columns, self._begins = 0, True
        affected = super()._read_query_result(unbuffered)
        self.refuse_more(self._result)
        return affected

    def refuse_more(self, result: Any) -> None:
        """Raise ValueError if the query has a further result. PyMySQL would read any number of them."""
        if result is not None and result.has_next:
            self._force_close()
            raise ValueError("the server sent more than one result")

    def _read_bytes(self, size: int) -> bytes:
        self._spend(2 * size)  # the packet, and the values decoded from it
        return super()._read_bytes(size)  # type: ignore[no-any-return]

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        is_column = packet_type is FieldDescriptorPacket
        self._columns += is_column
        self._spend(_COLUMN if is_column else _ROW + self._columns * _VALUE)
        begins, self._begins = self._begins, self._limit == _LOGIN_BYTES
        packet = super()._read_packet(packet_type)
        if begins and packet.is_load_local_packet():
            self._force_close()
            raise pymysql.err.OperationalError(_WANTS_FILE, "the server requested a file of ours (LOCAL INFILE)")
        return packet

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            self._force_close()
            raise pymysql.err.OperationalError(
                _TOO_LARGE, f"the server's answer needs more than {self._limit >> 20} MiB of memory"
            )

    def _write_bytes(self, data: bytes) -> None:
        try:
            self._sock.settimeout(self._write_timeout)
            self._sock.sendall(data)
        except OSError as error:
            if is_encrypted(self) and not isinstance(error, TimeoutError):
                self._read_bytes(1)  # raises the TLS alert, for example that the server refuses our certificate
            self._force_close()
            raise pymysql.err.OperationalError(2006, f"the server has gone away ({error!r})") from error

    def _ask(self, data: bytes) -> Any:
        self.write_packet(data)
        return self._read_packet()


def _room(public_key: bytes) -> int:
    """Return the bytes of a password that a key can encrypt. Raises ValueError if it is no RSA key."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = load_pem_public_key(public_key)
    if not isinstance(key, RSAPublicKey):
        raise ValueError("not an RSA key")
    return key.key_size // 8 - _OAEP_AND_NUL


def checked_key(public_key: bytes) -> bytes:
    """Return an RSA key in PEM unchanged. Raises ValueError for anything else."""
    _room(public_key)
    return public_key


def log_in(
    *,
    host: str,
    port: int,
    unix_socket: str | None,
    user: str,
    password: str,
    tls: ssl.SSLContext | None,
    tls_required: bool,
    trust: Trust,
    connect_timeout: float,
    read_timeout: float,
    opening: Opening,
) -> Any:
    """Open a connection.

    Raises:
        DriverError: the login failed, or ``opening`` was closed meanwhile.
        OSError: a TLS handshake failed, in older versions of PyMySQL.
    """
    connection: Any = _Connection(
        host=host,
        port=port,
        unix_socket=unix_socket,
        user=user,
        # PyMySQL would encode text as latin1. Clients send passwords in UTF-8 nearly everywhere.
        password=password.encode("utf-8"),
        charset="utf8mb4",
        autocommit=True,
        ssl=tls,
        ssl_disabled=tls is None,
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        write_timeout=read_timeout,
        program_name="canal",
        defer_connect=True,
    )
    if tls is not None:
        tls.sslsocket_class = TlsSocket
    _holders.add(connection)
    connection.tls_required = tls_required
    connection.trust = trust
    connection._secure = connection._unix = bool(unix_socket)
    try:
        with driver_errors():
            sock = _reach(host, port, unix_socket, connect_timeout, opening)
            try:
                _check_greeting(sock)
            except BaseException:
                sock.close()
                raise
            connection.connect(sock)
            connection.budget(_ANSWER_BYTES)
    finally:
        opening.done()
    return connection


def is_encrypted(connection: Any) -> bool:
    return isinstance(connection._sock, ssl.SSLSocket)


def command(connection: Any, code: int, payload: bytes) -> None:
    """Send a command without reading the answer."""
    with driver_errors():
        connection._execute_command(code, payload)


def command_ok(connection: Any, code: int, payload: bytes) -> None:
    """Send a command and read the OK packet. Raises ``DriverError`` for an ERR packet."""
    with driver_errors():
        connection._execute_command(code, payload)
        connection._read_ok_packet()


def take_over(connection: Any) -> tuple[socket.socket, bytes]:
    """Return the connection's socket, now non-blocking, and the bytes that PyMySQL had read ahead.

    The connection object is unusable afterwards.
    """
    sock, reader = connection._sock, connection._rfile
    sock.settimeout(0)
    try:
        ahead = bytes(reader.peek(1))
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        ahead = b""
    _holders.add(sock)
    connection._sock = connection._rfile = None
    connection._closed = True
    reader.close()
    return sock, ahead


def abort(connection: Any) -> None:
    """End a connection from another thread: the owner's current wait fails."""
    sock = connection._sock
    if sock is not None:
        with contextlib.suppress(OSError):
            # Not SSLSocket.shutdown: that drops the TLS state first, and a reader would parse ciphertext as packets.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


def close(connection: Any) -> None:
    """Close without notifying the server. Never waits and never fails."""
    with contextlib.suppress(Exception):
        connection._force_close()


def return_bytes(connection: Any) -> None:
    """Return every value of a row as raw bytes, or None, from now on."""
    connection.use_unicode = False
    connection.decoders = {}


def stream(connection: Any, sql: str, rows: int, size: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of a query as they arrive, in lists of at most ``rows`` rows and about ``size`` bytes.

    The caller must close the connection if it does not finish the iteration.
    """
    cursor = connection.cursor(pymysql.cursors.SSCursor)
    try:
        with driver_errors():
            cursor.execute(sql)
        while taken := _fetch_some(connection, cursor, rows, size):
            yield taken
    finally:  # otherwise PyMySQL would read the remaining rows later, from a closed connection
        if cursor._result is not None:
            cursor._result.unbuffered_active = False
        cursor.connection = None
        connection.budget(_ANSWER_BYTES)


class RowFeed(Protocol):
    """Consumer of the raw rows of a result set."""

    last: bytes
    """The packet that ended the result set."""

    def feed(self, received: bytes) -> int:
        """Parse received bytes and return the minimum number of bytes still needed, 0 at the end of the rows."""


_Feed = TypeVar("_Feed", bound=RowFeed)


def receive(connection: Any, sql: str, feed_from: Callable[[int], _Feed]) -> Iterator[_Feed]:
    """Send a query, pass the received bytes to a feed and yield the feed after each part.

    The caller must close the connection if it does not finish the iteration.

    Args:
        feed_from: Creates the feed from the packet number of the first row.
    """
    with driver_errors():
        connection._execute_command(COMMAND.COM_QUERY, sql.encode(connection.encoding))
        columns = connection._read_packet().read_length_encoded_integer()
        for _ in range(columns):
            connection._read_packet(FieldDescriptorPacket)
        if not columns or not connection._read_packet().is_eof_packet():
            raise ValueError("the query returned no rows")
        feed, need = feed_from(connection._next_seq_id), 4
    while need:
        with driver_errors():
            need = feed.feed(_at_least(connection, need))
        yield feed
    if feed.last[0] == 0xFF:
        pymysql.err.raise_mysql_exception(feed.last)
    if len(feed.last) > 4 and feed.last[3] & SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS:
        connection._force_close()
        raise pymysql.err.OperationalError(2013, "the query returned more than one result")


def _at_least(connection: Any, need: int) -> bytes:
    """Receive at least ``need`` bytes."""
    parts, size = [], 0
    while size < need:
        part = connection._rfile.read1(_PIECE)
        if not part:
            raise pymysql.err.OperationalError(2013, "the connection was closed")
        parts.append(part)
        size += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _fetch_some(connection: Any, cursor: Any, rows: int, size: int) -> list[tuple[Any, ...]]:
    taken: list[tuple[Any, ...]] = []
    held = 0
    with driver_errors():
        while len(taken) < rows and held < size:
            connection.budget(_ROW_BYTES)
            row = cursor.fetchone()
            if row is None:
                connection.refuse_more(cursor._result)
                break
            taken.append(row)
            held += sum(map(len, filter(None, row)))
    return taken
