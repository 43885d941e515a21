"""The options of a MySQL or MariaDB server, and the login with them.

Never opens a connection unasked, and sends nothing after the login.
"""

from __future__ import annotations

import contextlib
import random
import ssl
import uuid
import warnings
from collections import deque
from pathlib import Path
from typing import Any, Final, Literal, get_args

import attrs

from canal._util.memory import is_out_of_memory
from canal._util.option_checks import positive, text
from canal.errors import ConfigError, ConnectionLostError
from canal.parse.source import _pymysql
from canal.parse.source.server_errors import login_error

SslMode = Literal["DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"]
TlsVersion = Literal["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"]
SSL_MODES: Final = get_args(SslMode)
TLS_VERSIONS: Final = get_args(TlsVersion)
_OPTIONAL: Final = SSL_MODES[:2]
_VERIFYING: Final = SSL_MODES[3:]
#: ssl.OP_LEGACY_SERVER_CONNECT, which Python names only from 3.12 on.
_LEGACY_SERVER_CONNECT: Final = 0x4


def draw_server_id() -> int:
    """Draw a random server id that no other replica is likely to have."""
    return random.SystemRandom().randrange(1 << 16, 1 << 31)


def _upper(value: SslMode) -> SslMode:
    return str(value).upper()  # type: ignore[return-value]


def _int(value: int) -> int:
    """Convert text to a number. The validator reports invalid text."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return int(value)
    return value


def _optional_int(value: int | None) -> int | None:
    return None if value is None else _int(value)


def _float(value: float) -> float:
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return float(value)
    return value


def _check_ssl_mode(instance: Any, attribute: attrs.Attribute[Any], value: str) -> None:
    if value not in SSL_MODES:
        raise ConfigError(f"ssl_mode must be one of {', '.join(SSL_MODES)}, not {value!r}")


def _check_tls_version(instance: Any, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None and value not in TLS_VERSIONS:
        raise ConfigError(f"tls_min_version must be one of {', '.join(TLS_VERSIONS)}, not {value!r}")


def _flag(value: bool) -> bool:
    """Convert text to True or False. The validator reports invalid text."""
    return {"true": True, "false": False}.get(str(value).lower(), value)


def _check_flag(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{attribute.name} must be True or False, not {value!r}")


def _check_host(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    text(instance, attribute, value)
    if "/" in str(value) or "@" in str(value):  # do not show the value: it may contain a password
        raise ConfigError(
            "host must be a name or an address, not a URL", remedy="Use MySQLSource.from_url(url) or canal.connect(url)."
        )


def _check_port(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, int) or not 0 < value < 1 << 16:  # the system would use the low 16 bits: another server
        raise ConfigError(
            f"port must be between 1 and 65535, not {value!r}", remedy="The default port of MySQL and MariaDB is 3306."
        )


def _check_server_id(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not (isinstance(value, int) and 0 < value < 1 << 32):
        raise ConfigError(f"server_id must be between 1 and 4294967295, not {value!r}", remedy="Leave it out to use a random id.")


@attrs.frozen
class Thread:
    """A server thread, identified across connections by the server's identity, thread number, user and host."""

    identity: str
    number: int
    user: str
    host: str

    def __str__(self) -> str:
        return f"connection {self.number} of {self.user!r} from {self.host}"


@attrs.frozen(kw_only=True)
class ServerOptions:
    """The options of :class:`canal.MySQLSource`."""

    #: A name or an address. For a URL use ``MySQLSource.from_url``.
    host: str = attrs.field(default="127.0.0.1", validator=_check_host)
    #: 1 to 65535.
    port: int = attrs.field(default=3306, converter=_int, validator=_check_port)
    #: User name for the login.
    user: str = attrs.field(default="root", validator=text)
    #: Never shown in a message or repr.
    password: str = attrs.field(default="", repr=False, validator=text)
    #: Path of the server's socket. Overrides host and port.
    unix_socket: str | None = None
    #: As in MySQL's client: PREFERRED encrypts if the server can. Only the VERIFY modes check the certificate.
    ssl_mode: SslMode = attrs.field(default="PREFERRED", converter=_upper, validator=_check_ssl_mode)
    #: PEM file of certificates that the VERIFY modes trust. None: the system's.
    ssl_ca: str | None = None
    #: PEM file of the client certificate.
    ssl_cert: str | None = None
    #: PEM file of the client key. None: the key is in ``ssl_cert``.
    ssl_key: str | None = None
    #: Trust the RSA key that the server sends. Whoever answers can then read the password: for first tests only.
    get_server_public_key: bool = attrs.field(default=False, converter=_flag, validator=_check_flag)
    #: The server's RSA key that encrypts the password without TLS: a file path or PEM text.
    server_public_key: str | None = None
    #: Send the password in clear text to plugins that request it, only over a Unix socket or TLS that authenticates the server.
    allow_cleartext: bool = attrs.field(default=False, converter=_flag, validator=_check_flag)
    #: None: Python's default, TLS 1.2 or newer. A lower version also enables the weak ciphers and keys of MySQL 5.7,
    #: MariaDB 10.2 and older.
    tls_min_version: TlsVersion | None = attrs.field(default=None, validator=_check_tls_version)
    #: The server id of this reader, unique among replicas and readers. None: a random id per run, so that several instances
    #: may share the object.
    server_id: int | None = attrs.field(default=None, converter=_optional_int, validator=_check_server_id)
    #: Seconds to connect and log in.
    connect_timeout: float = attrs.field(default=10.0, converter=_float, validator=positive)
    #: Seconds to wait for the answer to a query or a login step.
    read_timeout: float = attrs.field(default=30.0, converter=_float, validator=positive)
    #: Seconds after which an idle server sends a heartbeat. After three times as long without a byte the connection is dead.
    heartbeat_interval: float = attrs.field(default=5.0, converter=_float, validator=positive)
    #: Seconds without a change after which the end of the server's log is compared with the position: a log that is reset
    #: during a dump causes no error.
    check_interval: float = attrs.field(default=10.0, converter=_float, validator=positive)
    #: Seconds without a byte while the server searches for the start position. MySQL 5.1 sends no heartbeats: an idle
    #: connection is reopened after this time.
    seek_timeout: float = attrs.field(default=600.0, converter=_float, validator=positive)
    #: Seconds that the server waits for a blocked reader before it closes the connection.
    net_write_timeout: int = attrs.field(default=28800, converter=_int, validator=positive)
    #: Bytes to request from the socket at once. A larger packet temporarily uses more.
    receive_buffer: int = attrs.field(default=1 << 20, converter=_int, validator=positive)
    #: False accepts a server without ROW format, with changes visible only as statements.
    require_row_format: bool = attrs.field(default=True, converter=_flag, validator=_check_flag)
    _random_id: int = attrs.field(init=False, repr=False, eq=False, factory=draw_server_id)
    _replica_uuid: str = attrs.field(init=False, repr=False, eq=False, factory=lambda: str(uuid.uuid4()))
    #: Dumps that we closed and that the server may still run.
    stale_dumps: deque[Thread] = attrs.field(init=False, repr=False, eq=False, factory=lambda: deque(maxlen=64))

    def __attrs_post_init__(self) -> None:
        if self.ssl_ca and self.ssl_mode not in _VERIFYING:
            raise ConfigError(
                f"ssl_ca has no effect with ssl_mode {self.ssl_mode}",
                remedy="Use VERIFY_CA or VERIFY_IDENTITY, or remove ssl_ca.",
            )
        if self.tls_min_version and self.ssl_mode == "DISABLED":
            raise ConfigError("tls_min_version has no effect with ssl_mode DISABLED", remedy="Remove one of them.")

    @property
    def address(self) -> str:
        return self.unix_socket or f"{self.host}:{self.port}"

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context for ``ssl_mode``; None for no TLS."""
        if self.ssl_mode == "DISABLED" or (self.ssl_mode == "PREFERRED" and self.unix_socket):
            return None
        try:
            if self.ssl_mode in _VERIFYING:
                context = ssl.create_default_context(cafile=self.ssl_ca)
            else:  # loading unused system certificates takes longer than connecting
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if self.ssl_cert:
                context.load_cert_chain(self.ssl_cert, self.ssl_key)
        except OSError as error:
            if is_out_of_memory(error):
                raise ConnectionLostError(
                    f"not enough memory for a TLS connection to {self.address}: {error}", remedy="Give the process more memory."
                ) from error
            files = ", ".join(filter(None, (self.ssl_ca, self.ssl_cert, self.ssl_key)))
            what = f"cannot use the TLS files of {self.address} ({files})" if files else "cannot set up TLS"
            raise ConfigError(f"{what}: {error}") from error
        # Certificates that servers generate do not fully conform to RFC 5280.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = self.ssl_mode == "VERIFY_IDENTITY"
        if self.ssl_mode not in _VERIFYING:
            context.verify_mode = ssl.CERT_NONE
        if self.tls_min_version is not None:
            _set_min_version(context, self.tls_min_version)
        elif context.minimum_version < ssl.TLSVersion.TLSv1_2:  # some Python builds leave the minimum to OpenSSL
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def _trust(self) -> _pymysql.Trust:
        return _pymysql.Trust(
            proved=bool(self.unix_socket or self.ssl_mode == "VERIFY_IDENTITY" or self.ssl_mode == "VERIFY_CA" and self.ssl_ca),
            server_key=self.get_server_public_key,
            public_key=_public_key(self.server_public_key),
            cleartext=self.allow_cleartext,
        )

    def log_in(self, opening: _pymysql.Opening) -> Any:
        """Return a new PyMySQL connection. Raises the library's errors, also if ``opening`` is closed meanwhile."""
        try:
            return _pymysql.log_in(
                host=self.host,
                port=self.port,
                unix_socket=self.unix_socket,
                user=self.user,
                password=self.password,
                tls=self.tls_context(),
                tls_required=self.ssl_mode not in _OPTIONAL,
                trust=self._trust(),
                connect_timeout=self.connect_timeout,
                read_timeout=self.read_timeout,
                opening=opening,
            )
        except (_pymysql.DriverError, OSError, RuntimeError) as error:
            if opening.is_closed:  # looks like a network fault, or a TLS fault during the handshake
                raise ConnectionLostError(f"the connection to {self.address} was closed") from error
            raise login_error(error, self) from error


def _public_key(given: str | None) -> bytes:
    """Return the PEM bytes of an RSA key from a file path or PEM text; b"" for None."""
    if given is None:
        return b""
    try:
        return _pymysql.checked_key(given.encode() if "-----BEGIN" in given else Path(given).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot use server_public_key: {error}",
            remedy="Use the file public_key.pem of the server's data directory, or the value of SHOW STATUS LIKE "
            "'Caching_sha2_password_rsa_public_key'.",
        ) from error


def _set_min_version(context: ssl.SSLContext, name: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the user requested an old version
            context.minimum_version = ssl.TLSVersion[name.replace(".", "_")]
        if name in ("TLSv1", "TLSv1.1"):
            # Servers of that age have SHA-1 certificates and no secure renegotiation. MySQL 5.6 uses Diffie-Hellman with
            # 512 bits, which OpenSSL refuses at every level.
            context.set_ciphers("DEFAULT:!kDHE:@SECLEVEL=0")
            context.options |= _LEGACY_SERVER_CONNECT
    except (ValueError, ssl.SSLError) as error:
        raise ConfigError(f"this machine's TLS library does not support {name}: {error}") from error
