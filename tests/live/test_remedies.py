"""Remedies for a server's administrator, each followed word by word: after it the same login works."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import canal
from canal.errors import ServerError
from canal.testing.servers import ThrowawayServer
from tests.support.live import source


def fails(reader: canal.MySQLSource, error: type[canal.CanalError] = canal.AuthenticationError) -> str:
    """The remedy of the error that a login ends with."""
    with pytest.raises(error) as caught:
        reader.connect().close()
    return caught.value.remedy


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
    count = statement(remedy, r"to \d+ or more").split()[1]
    server.query(f"ALTER USER u WITH MAX_USER_CONNECTIONS {count}")
    reader.connect().close()


STEPS: list[Callable[[ThrowawayServer], None]] = [
    privilege_missing, account_locked, password_expired, refused, too_many_connections, offline_mode, tls_demanded, unreachable,
    statement_format, limited_connections,
]  # fmt: skip


def test_remedies_of_logins_and_settings_work_when_followed(own_server: ThrowawayServer) -> None:
    for step in STEPS:
        step(own_server)
        own_server.query("DROP USER IF EXISTS u")
