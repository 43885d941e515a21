"""Remedies for a server's administrator, each followed word by word: after it the same login works."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import pytest

import canal
from canal.errors import ServerError
from canal.parse.source.server_errors import MEANINGS
from canal.testing.proxy import FaultProxy
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.live import source
from tests.support.waiting import until


def fails(reader: canal.MySQLSource, error: type[canal.CanalError] = canal.AuthenticationError) -> str:
    """The remedy of the error that a login ends with."""
    with pytest.raises(error) as caught:
        reader.connect().close()
    return caught.value.remedy


def refusal(reader: canal.MySQLSource) -> str:
    """The remedy with which the host is refused; "" while the server has not counted the broken connection."""
    try:
        reader.connect().close()
    except canal.AuthenticationError as error:
        return error.remedy
    return ""


def statement(remedy: str, pattern: str) -> str:
    """The statement in a remedy, with the names that the remedy leaves to the administrator."""
    found = re.search(pattern, remedy)
    assert found is not None, remedy
    return found[0].replace("…", "u", 1)


def make_reader(server: ThrowawayServer, *grants: str) -> canal.MySQLSource:
    server.query("CREATE USER u IDENTIFIED BY 'old'")
    for grant in grants or ("SELECT, REPLICATION SLAVE, REPLICATION CLIENT",):
        server.query(f"GRANT {grant} ON *.* TO u")
    return source(server, user="u", password="old")


def privilege_missing(server: ThrowawayServer) -> None:
    reader = make_reader(server, "SELECT")
    server.query(statement(fails(reader), r"GRANT .*'%'"))
    reader.connect().close()


def account_locked(server: ThrowawayServer) -> None:
    reader = make_reader(server)
    server.query("ALTER USER u ACCOUNT LOCK")
    server.query(statement(fails(reader), r"ALTER USER … ACCOUNT UNLOCK"))
    reader.connect().close()


def password_expired(server: ThrowawayServer) -> None:
    reader = make_reader(server)
    server.query("ALTER USER u PASSWORD EXPIRE")
    server.query(statement(fails(reader), r"ALTER USER … IDENTIFIED BY …").replace("…", "'new'"))
    source(server, user="u", password="new").connect().close()


def refused(server: ThrowawayServer) -> None:
    reader = make_reader(server)
    assert "password" in fails(source(server, user="u", password="wrong"))
    reader.connect().close()


def too_many_connections(server: ThrowawayServer) -> None:
    reader = make_reader(server)
    with server.connect() as administrator, administrator.cursor() as cursor:
        server.query("SET GLOBAL max_connections = 10")
        held: list[Any] = []
        with pytest.raises(Exception, match="Too many"):
            while True:
                held.append(source(server).open_session())
                held[-1].rows("SELECT 1", doing="hold a connection")
        assert "Raise max_connections" in fails(reader, canal.ConnectionLostError)
        cursor.execute("SET GLOBAL max_connections = 200")
        reader.connect().close()
        for session in held:
            session.close()


def offline_mode(server: ThrowawayServer) -> None:
    if server.kind == "mariadb":
        return  # it has none
    reader = make_reader(server)
    server.query("SET GLOBAL offline_mode = 1")
    server.query(statement(fails(reader, canal.ConnectionLostError), r"SET GLOBAL offline_mode = 0"))
    reader.connect().close()


def tls_demanded(server: ThrowawayServer) -> None:
    if server.kind == "mariadb":
        return  # the one of these tests has no certificate
    make_reader(server)
    server.query("SET GLOBAL require_secure_transport = 1")
    assert 'ssl_mode="REQUIRED"' in fails(source(server, user="u", password="old", ssl_mode="DISABLED"))
    source(server, user="u", password="old", ssl_mode="REQUIRED").connect().close()
    with server.connect(ssl_disabled=False) as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL require_secure_transport = 0")


def unreachable(server: ThrowawayServer) -> None:
    reader = make_reader(server)
    server.kill()
    assert "that the server runs" in fails(reader, canal.ConnectionLostError)
    server.start()
    reader.connect().close()


def statement_format(server: ThrowawayServer) -> None:
    reader = make_reader(server)
    server.query("SET GLOBAL binlog_format = 'STATEMENT'")
    server.query(statement(fails(reader, ServerError), r"SET GLOBAL binlog_format = 'ROW'"))
    reader.connect().close()


def limited_connections(server: ThrowawayServer) -> None:
    reader = make_reader(server)
    server.query("ALTER USER u WITH MAX_USER_CONNECTIONS 1")
    remedy = fails(reader)
    count = statement(remedy, r"at least \d+").split()[2]
    server.query(f"ALTER USER u WITH MAX_USER_CONNECTIONS {count}")
    reader.connect().close()


def account_blocked(server: ThrowawayServer) -> None:
    reader = make_reader(server)
    if server.kind == "mysql":
        server.query("ALTER USER u FAILED_LOGIN_ATTEMPTS 1 PASSWORD_LOCK_TIME UNBOUNDED")
    else:
        server.query("SET GLOBAL max_password_errors = 1")
    fails(source(server, user="u", password="wrong"))
    unlock = r"ALTER USER … ACCOUNT UNLOCK" if server.kind == "mysql" else r"FLUSH PRIVILEGES"
    server.query(statement(fails(reader), unlock))
    reader.connect().close()
    if server.kind == "mariadb":
        server.query("SET GLOBAL max_password_errors = 4294967295")


def plugin_not_loaded(server: ThrowawayServer) -> None:
    reader = make_reader(server)
    if server.kind == "mysql":
        server.query("UPDATE mysql.user SET plugin = 'mysql_native_password' WHERE user = 'u'")
        server.query("FLUSH PRIVILEGES")
        assert "change the account's plugin" in fails(reader)
        server.query("ALTER USER u IDENTIFIED WITH caching_sha2_password BY 'old'")
    else:
        server.query("INSTALL SONAME 'auth_ed25519'")
        server.query("ALTER USER u IDENTIFIED VIA ed25519 USING PASSWORD('old')")
        server.query("UNINSTALL SONAME 'auth_ed25519'")
        assert "load the plugin in the server" in fails(reader)
        server.query("INSTALL SONAME 'auth_ed25519'")
    reader.connect().close()


def no_password(server: ThrowawayServer) -> None:
    if server.kind == "mysql":
        return  # it answers as to a wrong password
    reader = make_reader(server)
    server.query("ALTER USER u IDENTIFIED VIA unix_socket")
    assert "or as an administrator set a password" in fails(reader)
    server.query("ALTER USER u IDENTIFIED BY 'old'")
    reader.connect().close()


def clear_text(server: ThrowawayServer) -> None:
    if server.kind == "mysql":
        return  # the plugins of LDAP are sold only
    reader = make_reader(server)
    server.query("INSTALL SONAME 'auth_pam'")
    server.query("ALTER USER u IDENTIFIED VIA pam")
    assert "change the plugin" in fails(reader)
    server.query("ALTER USER u IDENTIFIED BY 'old'")
    reader.connect().close()


def old_tls(server: ThrowawayServer) -> None:
    if server.kind == "mariadb":
        return  # the one of these tests has no certificate
    make_reader(server)
    server.query("SET GLOBAL tls_version = 'TLSv1.2'")
    server.query("ALTER INSTANCE RELOAD TLS")
    remedy = fails(source(server, user="u", password="old", tls_min_version="TLSv1.3"), ServerError)
    assert "use a lower tls_min_version" in remedy
    source(server, user="u", password="old", tls_min_version="TLSv1.2", ssl_mode="REQUIRED").connect().close()


def host_unknown(server: ThrowawayServer) -> None:
    """The administrator stays connected: with an account for every host no host is unknown."""
    reader = source(server, user="u", password="old")
    with server.connect() as administrator, administrator.cursor() as cursor:
        cursor.execute("SELECT user, host FROM mysql.user WHERE host NOT IN ('localhost', '10.9.9.9')")
        others = cursor.fetchall()
        for user, host in others:
            cursor.execute(f"RENAME USER '{user}'@'{host}' TO '{user}'@'10.9.{len(host)}.9'")
        cursor.execute("FLUSH PRIVILEGES")
        remedy = fails(reader)
        cursor.execute(
            statement(remedy, r"CREATE USER 'u'@'…' IDENTIFIED BY '…'")
            .replace("'u'@'u'", "u@'127.0.0.1'")
            .replace("'…'", "'old'")
        )
        cursor.execute(statement(fails(reader), r"GRANT .*'%'").replace("%", "127.0.0.1"))
        reader.connect().close()
        cursor.execute("DROP USER u@'127.0.0.1'")
        for user, host in others:
            cursor.execute(f"RENAME USER '{user}'@'10.9.{len(host)}.9' TO '{user}'@'{host}'")


def host_cache(server: ThrowawayServer) -> None:
    """MySQL blocks no host of these tests: they have no names."""
    if server.kind == "mysql":
        remedy = next(row.remedy for row in MEANINGS if row.name == "host blocked")
        server.query(statement(remedy, r"TRUNCATE TABLE performance_schema\.host_cache"))


STEPS: list[Callable[[ThrowawayServer], None]] = [
    privilege_missing,
    account_locked,
    password_expired,
    refused,
    too_many_connections,
    offline_mode,
    tls_demanded,
    unreachable,
    statement_format,
    limited_connections,
    account_blocked,
    plugin_not_loaded,
    no_password,
    clear_text,
    old_tls,
    host_unknown,
]


@pytest.mark.daily_on("mariadb")
@pytest.mark.lines("mariadb", "mysql<8.4")  # MySQL counts hosts with a name only
def test_blocked_host_remedy_is_to_flush_hosts(line: Line) -> None:
    with line.server("--skip-name-resolve=OFF") as server, FaultProxy(server.host, server.port, local="127.0.0.2") as proxy:
        make_reader(server)
        server.query("SET GLOBAL max_connect_errors = 1")
        with socket.create_connection((proxy.host, proxy.port)) as connection:
            connection.recv(1)
        reader = source(server, user="u", password="old", host=proxy.host, port=proxy.port)
        remedy = until(lambda: refusal(reader))
        server.query(statement(remedy, "FLUSH HOSTS"))
        reader.connect().close()


def test_remedies_of_logins_and_settings_work_when_followed(own_server: ThrowawayServer) -> None:
    for step in STEPS:
        step(own_server)
        own_server.query("DROP USER IF EXISTS u")
