"""A MySQL or MariaDB server: how it is reached and logged in to, with the options of each.

Never opens a connection by itself, and sends nothing after the login.
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
#: What Python from 3.12 on calls ssl.OP_LEGACY_SERVER_CONNECT.
_LEGACY_SERVER_CONNECT: Final = 0x4


def draw_server_id() -> int:
    """A server id that nobody else will have."""
    return random.SystemRandom().randrange(1 << 16, 1 << 31)


def _upper(value: SslMode) -> SslMode:
    return str(value).upper()  # type: ignore[return-value]


def _int(value: int) -> int:
    """A number from text too; of what is none the validator tells."""
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
        raise ConfigError(f"ssl_mode is one of {', '.join(SSL_MODES)}, not {value!r}")


def _check_tls_version(instance: Any, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None and value not in TLS_VERSIONS:
        raise ConfigError(f"tls_min_version is one of {', '.join(TLS_VERSIONS)}, not {value!r}")


def _flag(value: bool) -> bool:
    """True and False from text too; of what is neither the validator tells."""
    return {"true": True, "false": False}.get(str(value).lower(), value)


def _check_flag(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{attribute.name} must be True or False, not {value!r}")


def _check_host(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    text(instance, attribute, value)
    if "/" in str(value) or "@" in str(value):  # it is not shown, for it may have a password
        raise ConfigError(
            "host must be a name or an address, not a URL", remedy="Use MySQLSource.from_url(url) or canal.connect(url)."
        )


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


@attrs.frozen
class Thread:
    """A connection as the server with that identity sees it: nobody else's has the same number, user and address."""

    identity: str
    number: int
    user: str
    host: str

    def __str__(self) -> str:
        return f"connection {self.number} of {self.user!r} from {self.host}"


@attrs.frozen(kw_only=True)
class ServerOptions:
    """The options of :class:`canal.MySQLSource`."""

    #: A name or an address; not a URL, for which there is ``MySQLSource.from_url``.
    host: str = attrs.field(default="127.0.0.1", validator=_check_host)
    #: From 1 to 65535.
    port: int = attrs.field(default=3306, converter=_int, validator=_check_port)
    #: Whom to log in as.
    user: str = attrs.field(default="root", validator=text)
    #: Never shown, in no message and no repr.
    password: str = attrs.field(default="", repr=False, validator=text)
    #: Path of the server's socket; host and port do not count then.
    unix_socket: str | None = None
    #: As MySQL's own client has it: PREFERRED encrypts where the server can; only the VERIFY modes look at the certificate.
    ssl_mode: SslMode = attrs.field(default="PREFERRED", converter=_upper, validator=_check_ssl_mode)
    #: File of the certificates (PEM) that a VERIFY mode trusts; None: those of the system.
    ssl_ca: str | None = None
    #: File of the certificate (PEM) by which the server knows us.
    ssl_cert: str | None = None
    #: File of its key; None: it is in the file of ``ssl_cert``.
    ssl_key: str | None = None
    #: Believe the key that the server itself sends for a password: whoever answers may then read it. For first steps.
    get_server_public_key: bool = attrs.field(default=False, converter=_flag, validator=_check_flag)
    #: The RSA key by which the password goes to the server without TLS: a file's path, or its text (PEM).
    server_public_key: str | None = None
    #: Send the password itself to plugins that ask for it, over a Unix socket or TLS that proves who answers.
    allow_cleartext: bool = attrs.field(default=False, converter=_flag, validator=_check_flag)
    #: None: Python decides, which takes TLS 1.2 and newer. Below that the weak ciphers and keys of such servers (MySQL 5.7 and
    #: MariaDB 10.2 or older) are taken too.
    tls_min_version: TlsVersion | None = attrs.field(default=None, validator=_check_tls_version)
    #: The id under which the server knows this reader: of no other replica or reader of it. None draws one for each run, so that
    #: several instances may share the object.
    server_id: int | None = attrs.field(default=None, converter=_optional_int, validator=_check_server_id)
    #: Seconds to connect and to log in.
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
    #: Dumps that we have closed, and of which the server may not know it.
    left_dumps: deque[Thread] = attrs.field(init=False, repr=False, eq=False, factory=lambda: deque(maxlen=64))

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
            if is_out_of_memory(error):
                raise ConnectionLostError(
                    f"no memory for a TLS connection to {self.address}: {error}", remedy="Give the process more memory."
                ) from error
            files = ", ".join(filter(None, (self.ssl_ca, self.ssl_cert, self.ssl_key)))
            what = f"the TLS files of {self.address} cannot be used ({files})" if files else "TLS cannot be set up"
            raise ConfigError(f"{what}: {error}") from error
        # The certificates that servers make for themselves do not follow RFC 5280 to the letter.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = self.ssl_mode == "VERIFY_IDENTITY"
        if self.ssl_mode not in _VERIFYING:
            context.verify_mode = ssl.CERT_NONE
        if self.tls_min_version is not None:
            _set_min_version(context, self.tls_min_version)
        elif context.minimum_version < ssl.TLSVersion.TLSv1_2:  # some builds of Python leave that to OpenSSL
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
        """A PyMySQL connection, unless ``opening`` is closed meanwhile. Raises the library's errors."""
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
            if opening.is_closed:  # which looks like any fault of a network, in a TLS handshake like one of TLS
                raise ConnectionLostError(f"the connection to {self.address} was closed") from error
            raise login_error(error, self) from error


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
