"""Each way to log in, on each line: it connects, or ends at once with the one error that says why and what helps."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs
import pymysql
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import canal
from canal.parse.source.server import SSL_MODES
from canal.parse.source.server_errors import MEANINGS
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.live import source

pytestmark = pytest.mark.every_line

#: MySQL 5.5.9 was built without TLS, as it is carried.
WITH_TLS: Final = ("mysql>=5.6", "mariadb")
#: MySQL 5.6 and 5.7 and MariaDB before 10.4 have yaSSL in them, as they are carried: TLS 1.1 at most, 5.6 TLS 1.0.
WITH_TLS_1_2: Final = ("mysql>=8.0", "mariadb>=10.4")
WITH_TLS_1_3: Final = ("mysql>=8.0.16", "mariadb>=10.4")
#: Bytes of a password that a key of 2048 bits encrypts.
ROOM: Final = 213
PASSWORDS: Final = ("", "pw", "pä密码€", "y" * ROOM, "x" * 255)
NEXT: Final = itertools.count(1)


# -- certificates ------------------------------------------------------------------------------------------------------


class Certificate(NamedTuple):
    path: str
    key_path: str
    key: rsa.RSAPrivateKey
    name: x509.Name

    @property
    def options(self) -> dict[str, str]:
        return {"ssl_cert": self.path, "ssl_key": self.key_path}


def issue(folder: Path, name: str, authority: Certificate | None = None) -> Certificate:
    """A certificate by an authority, or of one, in files that the TLS library of MySQL 5.6 reads."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(
            subject_name=subject,
            issuer_name=authority.name if authority else subject,
            public_key=key.public_key(),
            serial_number=next(NEXT),
            not_valid_before=now - datetime.timedelta(days=1),
            not_valid_after=now + datetime.timedelta(days=30),
        )
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .sign(authority.key if authority else key, hashes.SHA256())
    )
    path, key_path = folder / f"{name}.pem", folder / f"{name}-key.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    return Certificate(str(path), str(key_path), key, subject)


class Certificates(NamedTuple):
    authority: Certificate
    server: Certificate
    client: Certificate
    stranger: Certificate


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    authority, other = issue(folder, "authority"), issue(folder, "other")
    return Certificates(
        authority, issue(folder, "server", authority), issue(folder, "client", authority), issue(folder, "stranger", other)
    )


@pytest.fixture(scope="module")
def guarded(module_line: Line, certificates: Certificates) -> Iterator[ThrowawayServer]:
    """A server with certificates, where it can have them, which lets passwords of the old format in, where it has them."""
    own = certificates.server
    options = ["--secure-auth=OFF"] if module_line.facts.fits(ACCOUNTS["mysql_old_password"]) else []
    if module_line.facts.fits(WITH_TLS):
        options += [f"--ssl-ca={certificates.authority.path}", f"--ssl-cert={own.path}", f"--ssl-key={own.key_path}"]
    with module_line.server(*options) as server:
        if module_line.facts.fits(["mariadb<10.4"]):  # somebody without a name would be taken for everybody on the socket
            server.query("DELETE FROM mysql.user WHERE user = ''")
            server.query("FLUSH PRIVILEGES")
        yield server


# -- accounts ----------------------------------------------------------------------------------------------------------

#: The lines that have each kind of account. "by default" is the plugin of accounts that name none.
ACCOUNTS: Final[dict[str, tuple[str, ...]]] = {
    "mysql_native_password": ("mysql<8.4", "mariadb"),
    "mysql_old_password": ("mysql<5.7", "mariadb"),
    "sha256_password": ("mysql>=5.6",),
    "caching_sha2_password": ("mysql>=8.0",),
    "ed25519": ("mariadb",),
    "ed25519 or native": ("mariadb>=10.4",),
    "unix_socket": ("mariadb>=10.4",),
    "by default, REQUIRE SSL": ("mysql", "mariadb"),
    "by default, REQUIRE X509": ("mysql", "mariadb"),
}


def kinds_of(line: Line) -> list[str]:
    return [kind for kind, specs in ACCOUNTS.items() if line.facts.fits(specs) and ("ed25519" not in kind or line.can("plugins"))]


def statements(line: Line, kind: str, name: str, password: str) -> list[str]:
    """What makes an account."""
    plugin, _, required = kind.partition(", ")
    if required and line.facts.fits(["mysql<5.7", "mariadb<10.2"]):
        return [f"GRANT USAGE ON *.* TO {name} IDENTIFIED BY '{password}' {required}"]
    if "ed25519" in plugin:
        first = password if plugin == "ed25519" else "the other"
        second = "" if plugin == "ed25519" else f" OR mysql_native_password USING PASSWORD('{password}')"
        return [
            "INSTALL PLUGIN IF NOT EXISTS ed25519 SONAME 'auth_ed25519'",
            f"CREATE USER {name} IDENTIFIED VIA ed25519 USING PASSWORD('{first}'){second}",
        ]
    if plugin == "unix_socket":
        return [f"CREATE USER {name} IDENTIFIED VIA unix_socket"]
    if plugin == "mysql_old_password":
        by = "" if line.facts.fits(["mysql<5.6", "mariadb"]) else " IDENTIFIED WITH mysql_old_password"
        return [f"CREATE USER {name}{by}", "SET old_passwords = 1", f"SET PASSWORD FOR {name} = OLD_PASSWORD('{password}')"]
    if plugin == "sha256_password" and line.facts.fits(["mysql<5.7"]):
        return [
            f"CREATE USER {name} IDENTIFIED WITH sha256_password",
            "SET old_passwords = 2",
            f"SET PASSWORD FOR {name} = PASSWORD('{password}')",
        ]
    named = plugin.endswith("_password") and line.facts.fits(["mysql>=5.7"])
    return [f"CREATE USER {name} IDENTIFIED {f'WITH {plugin} ' if named else ''}BY '{password}' {required}"]


def make_account(server: ThrowawayServer, line: Line, kind: str, password: str) -> str:
    """The name of a new account."""
    name = f"u{next(NEXT)}"
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements(line, kind, name, password):
            cursor.execute(statement)
    return name


def meaning(name: str, user: str = "") -> tuple[type[canal.SourceError], str]:
    """Error and remedy of a row of MEANINGS."""
    found = next(row for row in MEANINGS if row.name == name)
    return found.error, found.remedy.replace("{user}", user)


def answer(server: ThrowawayServer, **options: Any) -> Any:
    """What a login gives: "plain" or "TLS", or error and remedy."""
    try:
        with closing(attrs.evolve(source(server), **options).open_session()) as session:
            found = session.rows("SHOW STATUS LIKE 'Ssl_cipher'", doing="ask for the cipher")
    except canal.SourceError as error:
        return type(error), error.remedy
    return "TLS" if found and found[0][1] else "plain"


def expected(line: Line, kind: str, password: str, way: str, is_right: bool) -> str:
    """By what is known of the plugins: "TLS" or "plain", or the name of a row of MEANINGS."""
    if kind == "mysql_old_password":
        return "old password"
    if kind == "unix_socket":
        return "no password"
    if "REQUIRE" in kind and not way.startswith("TLS") or "X509" in kind and way != "TLS with a certificate":
        return "refused"
    sent = password if is_right else "wrong"
    if way == "plain" or way == "socket" and kind == "sha256_password":  # caching_sha2_password trusts the socket
        if sent and kind == "sha256_password" and line.facts.fits(["mysql<8.0"]):  # as they are carried: without RSA keys
            return "TLS needed"
        if "sha2" in kind and len(sent.encode()) > ROOM:
            return "TLS needed"
    if not is_right:
        return "refused"
    return "TLS" if way.startswith("TLS") else "plain"


def test_every_account_logs_in_or_is_refused_for_good_with_what_helps(
    guarded: ThrowawayServer, module_line: Line, certificates: Certificates
) -> None:
    line = module_line
    ways: dict[str, dict[str, Any]] = {"plain": {"ssl_mode": "DISABLED"}, "socket": {"unix_socket": str(guarded.socket_path)}}
    if line.facts.fits(WITH_TLS):
        ways["TLS"] = {"ssl_mode": "REQUIRED", "tls_min_version": "TLSv1"}
        ways["TLS with a certificate"] = {**ways["TLS"], **certificates.client.options}
    differing = []
    for kind in kinds_of(line):
        for password in PASSWORDS if kind.endswith(("_password", "ed25519")) else ["pw"]:
            if not password and kind in ("ed25519", "mysql_old_password"):
                continue  # the first then lets nobody in, the second is none
            name = make_account(guarded, line, kind, password)
            for way, is_right in itertools.product(ways, (True, False)):
                if line.can("caching_sha2"):
                    guarded.query("FLUSH PRIVILEGES")  # empties the cache of those who were here already
                found = answer(guarded, user=name, password=password if is_right else "wrong", **ways[way])
                wanted: Any = expected(line, kind, password, way, is_right)
                if found != (wanted if wanted in ("plain", "TLS") else meaning(wanted, name)):
                    differing.append((kind, len(password), way, is_right, found, wanted))
    assert differing == []


@pytest.mark.lines(*ACCOUNTS["mysql_old_password"])
def test_an_old_password_is_refused_until_the_remedy_is_followed(server: ThrowawayServer, line: Line) -> None:
    name = make_account(server, line, "mysql_old_password", "pw")
    mine = {"user": name, "password": "pw", "ssl_mode": "DISABLED"}
    refusal, remedy = answer(server, **mine)

    assert (refusal, remedy) == meaning("old password", name)
    if line.facts.fits(["mysql>=5.6"]):
        assert "drop and create the account" in remedy
        server.query(f"DROP USER {name}")
        server.query(f"CREATE USER {name} IDENTIFIED BY 'pw'")
    else:
        with server.connect() as connection, connection.cursor() as cursor:
            for statement in remedy.partition("As an administrator: ")[2].split("; ")[:2]:
                cursor.execute(statement.replace("…", "pw"))
    assert answer(server, **mine) == "plain"


@pytest.mark.lines("mysql>=8.0,<8.4")
@pytest.mark.parametrize("greeting", ["mysql_native_password", "sha256_password"])
def test_the_plugin_that_a_server_greets_with_makes_no_difference(line: Line, greeting: str) -> None:
    with line.server(f"--default-authentication-plugin={greeting}") as server:
        for kind in ("mysql_native_password", "sha256_password", "caching_sha2_password"):
            mine = {"user": make_account(server, line, kind, "pw"), "password": "pw"}
            for way, options in {"plain": {"ssl_mode": "DISABLED"}, "TLS": {"ssl_mode": "REQUIRED"}}.items():
                server.query("FLUSH PRIVILEGES")
                assert answer(server, **mine, **options) == way, (kind, way)


@pytest.mark.lines("mysql>=5.6")
def test_a_server_that_nothing_proves_gets_a_password_only_where_an_option_says_so(
    guarded: ThrowawayServer, module_line: Line, certificates: Certificates
) -> None:
    """As MySQL's own client."""
    line = module_line
    has_key = line.facts.fits(["mysql>=8.0"])  # 5.6 and 5.7 as they are carried have none
    old = {"tls_min_version": "TLSv1"}
    ways: dict[str, dict[str, Any]] = {
        "plain": {"ssl_mode": "DISABLED"},
        "PREFERRED": old,
        "REQUIRED": {"ssl_mode": "REQUIRED", **old},
        "VERIFY_CA": {"ssl_mode": "VERIFY_CA", "ssl_ca": certificates.authority.path, **old},
        "socket": {"unix_socket": str(guarded.socket_path)},
    }
    options: dict[str, dict[str, Any]] = {"": {}, "any": {"get_server_public_key": True}}
    if has_key:
        options["pinned"] = {"server_public_key": str(guarded.data_dir / "public_key.pem")}
    differing = []
    for kind in [one for one in kinds_of(line) if "sha2" in one]:
        name = make_account(guarded, line, kind, "pw")
        for way, option in itertools.product(ways, options):
            if has_key:
                guarded.query("FLUSH PRIVILEGES")
            found = answer(guarded, user=name, password="pw", **{"get_server_public_key": False} | ways[way] | options[option])
            refused = way == "plain" and not option
            wanted: Any = meaning("password to a stranger") if refused else "plain" if way in ("plain", "socket") else "TLS"
            if not has_key and (way, option) in [("plain", "any"), ("socket", ""), ("socket", "any")]:
                wanted = meaning("TLS needed")
            if found != wanted:
                differing.append((kind, way, option, found, wanted))
    assert differing == []


@pytest.mark.lines("mysql>=8.0")
def test_a_password_without_tls_needs_an_rsa_key_of_the_server(line: Line) -> None:
    paths = [f"--{plugin}-private-key-path=none" for plugin in ("caching-sha2-password", "sha256-password")]
    with line.server(*paths) as server:
        for kind in ("caching_sha2_password", "sha256_password"):
            mine = {"user": make_account(server, line, kind, "pw"), "password": "pw"}
            assert answer(server, **mine, ssl_mode="DISABLED") == meaning("TLS needed"), kind
            assert answer(server, **mine) == "TLS"


@pytest.mark.lines("mysql>=8.0")
def test_a_new_account_and_every_one_after_a_restart_are_asked_for_the_password_itself(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = meaning("password to a stranger")
    plain: dict[str, Any] = {"ssl_mode": "DISABLED", "get_server_public_key": False}
    with line.server() as server:
        cached, always = (
            {"user": make_account(server, line, kind, "pw"), "password": "pw"}
            for kind in ("caching_sha2_password", "sha256_password")
        )
        for _ in range(2):
            assert [answer(server, **mine, **plain) for mine in (cached, always)] == [refused, refused]
            assert [answer(server, **mine, ssl_mode="REQUIRED") for mine in (cached, always)] == ["TLS", "TLS"]
            assert [answer(server, **mine, **plain) for mine in (cached, always)] == ["plain", refused]
            server.restart()

        monkeypatch.setattr("canal.parse.source._pymysql.is_encrypted", lambda connection: False)
        key = {"ssl_mode": "REQUIRED", "get_server_public_key": True}
        assert [answer(server, **mine, **key) for mine in (cached, always)] == [meaning("TLS needed")] * 2  # it has no key there


@pytest.mark.lines("mysql>=9.0")
def test_modes_and_options_mean_what_they_mean_to_mysqls_own_client(line: Line) -> None:
    """Which gives its password, or does not, to the same server with the same options."""
    with line.server() as server:
        mysql = [*server.program("mysql"), "--no-defaults", f"--host={server.host}", f"--port={server.port}", "--password=pw"]

        def is_let_in(*options: str) -> bool:
            user = make_account(server, line, "caching_sha2_password", "pw")
            return not subprocess.run([*mysql, f"--user={user}", *options, "-e", "SELECT 1"], capture_output=True).returncode

        def are_we(**options: Any) -> bool:
            user = make_account(server, line, "caching_sha2_password", "pw")
            given = {"get_server_public_key": False, **options}
            return answer(server, user=user, password="pw", **given) in ("plain", "TLS")

        ca, key = str(server.data_dir / "ca.pem"), str(server.data_dir / "public_key.pem")
        theirs = [is_let_in(f"--ssl-mode={mode}") for mode in SSL_MODES[:3]] + [
            is_let_in("--ssl-mode=DISABLED", "--get-server-public-key"),
            is_let_in("--ssl-mode=DISABLED", f"--server-public-key-path={key}"),
            *(is_let_in(f"--ssl-mode={mode}", f"--ssl-ca={ca}") for mode in SSL_MODES[3:]),
        ]
        ours = [are_we(ssl_mode=mode) for mode in SSL_MODES[:3]] + [
            are_we(ssl_mode="DISABLED", get_server_public_key=True),
            are_we(ssl_mode="DISABLED", server_public_key=key),
            *(are_we(ssl_mode=mode, ssl_ca=ca) for mode in SSL_MODES[3:]),
        ]
        assert theirs == ours == [False, True, True, True, True, True, False]
        assert not is_let_in("--ssl-mode=MAYBE")


@pytest.mark.every_line(always=True)
def test_a_server_without_tls_is_logged_in_to_unless_tls_is_asked_for(line: Line, server: ThrowawayServer) -> None:
    """PyMySQL tells such a server that TLS comes, and MySQL from 5.6 on takes that for a bad handshake."""
    with contextlib.ExitStack() as own:
        if line.can("tls"):
            server = own.enter_context(line.server("--tls-version=" if line.facts.fits(["mysql>=8.4"]) else "--skip-ssl"))

        assert [answer(server, ssl_mode=mode) for mode in SSL_MODES] == ["plain", "plain", *[meaning("no TLS")] * 3]


@pytest.mark.lines(*WITH_TLS)
def test_tls_is_never_given_up_and_taken_as_old_as_it_may_be(
    guarded: ThrowawayServer, module_line: Line, certificates: Certificates
) -> None:
    """PREFERRED goes without TLS only where none is offered."""
    new, newest = ("TLS" if module_line.facts.fits(lines) else meaning("old TLS") for lines in (WITH_TLS_1_2, WITH_TLS_1_3))
    verified = {"ssl_mode": "VERIFY_CA", "ssl_ca": certificates.authority.path}

    for options in ({}, {"ssl_mode": "REQUIRED"}, verified, {"tls_min_version": "TLSv1.2"}):
        assert answer(guarded, **options) == new, options
    assert answer(guarded, tls_min_version="TLSv1.3") == newest
    for options in ({}, {"ssl_mode": "REQUIRED"}, verified):
        assert answer(guarded, tls_min_version="TLSv1", **options) == "TLS", options
    only_1_0 = module_line.facts.fits(["mysql<5.7"])
    assert answer(guarded, tls_min_version="TLSv1.1") == (meaning("old TLS") if only_1_0 else "TLS")
    assert answer(guarded, ssl_mode="DISABLED") == "plain"


@pytest.mark.lines(*WITH_TLS)
def test_a_certificate_that_the_other_side_does_not_trust_is_named(
    guarded: ThrowawayServer, module_line: Line, certificates: Certificates
) -> None:
    old = {"tls_min_version": "TLSv1"}
    for mode in SSL_MODES[3:]:
        refused = answer(guarded, ssl_mode=mode, ssl_ca=certificates.stranger.path, **old)
        assert refused == meaning("the server's certificate"), mode
    assert answer(guarded, ssl_mode="VERIFY_CA", ssl_ca=certificates.authority.path, **old) == "TLS"
    ours = answer(guarded, ssl_mode="REQUIRED", **old, **certificates.stranger.options)
    # The others say it in a packet that is not encrypted, which is no TLS record.
    assert ours == meaning("our certificate" if module_line.facts.fits(WITH_TLS_1_2) else "old TLS")
    assert answer(guarded, ssl_mode="REQUIRED", **old, **certificates.client.options) == "TLS"


# -- the whole way to the consumer -------------------------------------------------------------------------------------


def make_reader(server: ThrowawayServer, line: Line, limit: int = 0) -> canal.MySQLSource:
    """A source whose user may do all that it must, over ``limit`` connections at once."""
    name = f"u{next(NEXT)}"
    rights = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT" + (", SUPER" if line.facts.fits(["mysql<5.6"]) else "")
    server.query(f"CREATE USER {name} IDENTIFIED BY 'pw'")
    server.query(f"GRANT {rights} ON *.* TO {name}")
    alters = line.facts.fits(["mysql>=5.7", "mariadb>=10.2"])
    server.query(f"{'ALTER USER' if alters else 'GRANT USAGE ON *.* TO'} {name} WITH MAX_USER_CONNECTIONS {limit}")
    return attrs.evolve(source(server), user=name, password="pw")


def config(where: canal.MySQLSource, **options: Any) -> canal.InstanceConfig:
    return canal.InstanceConfig(destination="x", source=where, **options)


def failure_to_subscribe(where: canal.MySQLSource, **options: Any) -> canal.CanalError:
    with canal.Instance(config(where, **options)) as instance, pytest.raises(canal.CanalError) as caught:
        instance.subscribe(timeout=3600.0)  # which it does not wait for
    return caught.value


def test_a_login_that_is_refused_ends_the_instance_at_once(server: ThrowawayServer, line: Line) -> None:
    where = make_reader(server, line)
    tls = "the server's certificate" if line.can("tls") else "no TLS"

    wrong = failure_to_subscribe(attrs.evolve(where, password="wrong"))
    distrusted = failure_to_subscribe(attrs.evolve(where, ssl_mode="VERIFY_IDENTITY"))

    assert (type(wrong), wrong.remedy) == meaning("refused")
    assert (type(distrusted), distrusted.remedy) == meaning(tls)


def test_a_user_without_enough_connections_is_refused_at_once(server: ThrowawayServer, line: Line) -> None:
    """One is the dump's and one the queries'; to look into the log for a start takes a third."""
    some_time = canal.Position(timestamp=int(time.time() * 1000))
    for limit in (1, 2):
        found = failure_to_subscribe(make_reader(server, line, limit), start=some_time)
        assert isinstance(found, canal.AuthenticationError)
        assert f"{limit} connections at once" in found.message
        assert "max_user_connections" in found.remedy
    with canal.Instance(config(make_reader(server, line, 3), start=some_time)) as instance:
        instance.subscribe()


def test_a_password_that_is_changed_ends_the_instance_when_it_connects_again(server: ThrowawayServer, line: Line) -> None:
    where = make_reader(server, line)
    changes = "ALTER USER {} IDENTIFIED BY 'new'" if line.facts.fits(["mysql>=5.7", "mariadb>=10.2"]) else None
    with canal.Instance(config(where)) as instance:
        instance.subscribe()
        server.query((changes or "SET PASSWORD FOR {} = PASSWORD('new')").format(where.user))
        for thread, user, *_ in server.query("SHOW PROCESSLIST"):
            if user == where.user:
                with contextlib.suppress(pymysql.MySQLError):  # it may have ended
                    server.query(f"KILL {thread}")
        end = time.monotonic() + 120
        with pytest.raises(canal.AuthenticationError) as caught:
            while time.monotonic() < end:
                instance.get(100, timeout=1)  # the change itself is in the log too

    assert caught.value.remedy == meaning("refused")[1]
