"""A source of a MySQL or MariaDB: its options, what it asks, and the parts of PyMySQL that it uses."""

from __future__ import annotations

import pickle
import socket
import ssl
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from canal.binlog.server_facts import Release
from canal.errors import ConfigError, ConnectionLostError
from canal.parse.source import _pymysql
from canal.parse.source.login import clock_offset
from canal.parse.source.mysql import MySQLSource
from canal.parse.source.packets import dump_gtid_packet, register_packet

# -- configuration, without a server -----------------------------------------------------------------------------------


def test_the_password_is_not_in_the_repr() -> None:
    assert "geheim" not in repr(MySQLSource(password="geheim"))


def test_the_server_id_is_random_and_stays_with_the_object() -> None:
    one, other = MySQLSource(), MySQLSource()

    assert one._random_id != other._random_id
    assert pickle.loads(pickle.dumps(one))._random_id == one._random_id
    assert one == other


@pytest.mark.parametrize(
    "options",
    [
        {"ssl_mode": "MAYBE"},
        {"ssl_mode": "REQUIRED", "ssl_ca": "ca.pem"},
        {"server_id": 0},
        {"server_id": 1 << 32},
        {"heartbeat_interval": 0},
        {"connect_timeout": -1},
        {"port": 0},
        {"port": 1 << 16},
        {"port": (1 << 16) + 3306},
        {"tls_min_version": "1.2"},
        {"tls_min_version": "TLSv1.2", "ssl_mode": "DISABLED"},
        {"port": "x"},
        {"server_id": []},
        {"receive_buffer": float("inf")},
        {"read_timeout": None},
        {"ssl_mode": None},
    ],
)
def test_bad_options_are_found_before_anything_starts(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        MySQLSource(**options)


def test_options_may_be_text_as_in_a_url() -> None:
    source = MySQLSource(port="3307", server_id="5", ssl_mode="required", read_timeout="1.5")  # type: ignore[arg-type]

    assert (source.port, source.server_id, source.ssl_mode, source.read_timeout) == (3307, 5, "REQUIRED", 1.5)


def test_missing_tls_files_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match="TLS files"):
        MySQLSource(ssl_mode="VERIFY_CA", ssl_ca="/nowhere/ca.pem").tls_context()


def test_tls_without_memory_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ssl.SSLError(1, "[CRYPTO] malloc failure (_ssl.c:3098)")

    monkeypatch.setattr(ssl, "SSLContext", fail)
    with pytest.raises(ConnectionLostError, match="not enough memory") as caught:
        MySQLSource().tls_context()
    assert caught.value.remedy == "Give the process more memory."


@pytest.mark.parametrize(
    ("name", "weak"), [(None, False), ("TLSv1.3", False), ("TLSv1.2", False), ("TLSv1.1", True), ("TLSv1", True)]
)
def test_old_tls_and_its_weak_ciphers_are_for_who_asks_for_them(name: str | None, weak: bool) -> None:
    context = MySQLSource(tls_min_version=name).tls_context()

    assert context is not None
    assert context.minimum_version.name == (name or "TLSv1.2").replace(".", "_")
    assert bool(context.options & 0x4) is weak
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # what this build of Python takes, unless it is asked for more
    assert _takes_weak_ciphers(context) is (weak or _takes_weak_ciphers(own))


def _takes_weak_ciphers(context: ssl.SSLContext) -> bool:
    return any(cipher["name"] == "AES128-SHA" for cipher in context.get_ciphers())


def test_old_tls_is_for_who_asks_for_it_where_python_would_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def loose(protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        return context

    monkeypatch.setattr("canal.parse.source.server.ssl", SimpleNamespace(**{**vars(ssl), "SSLContext": loose}))
    context = MySQLSource().tls_context()

    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_nobody_listening_is_a_lost_connection() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # held, so that nobody else listens there
        port = free.getsockname()[1]

        with pytest.raises(ConnectionLostError, match=f"127.0.0.1:{port}"):
            MySQLSource(port=port).connect()


def test_a_server_that_says_nothing_is_a_lost_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ConnectionLostError):
        MySQLSource(port=silent.getsockname()[1], read_timeout=0.1).connect()


def test_the_clocks_are_compared_by_the_quickest_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stood still between its answer and our look at it would be so much behind for the whole connection."""
    now, delays = 1_700_000_000.0, [8.0, 2.0, 4.0]

    def answer(connection: Any, sql: str) -> list[tuple[str]]:
        nonlocal now
        told = datetime.fromtimestamp(now + 100, UTC)
        now += delays.pop(0)
        return [(f"{told:%Y-%m-%d %H:%M:%S.%f}",)]

    new = Release("mysql", (5, 6, 4))
    monkeypatch.setattr("canal.parse.source.login.run", answer)
    monkeypatch.setattr("canal.parse.source.login.time", SimpleNamespace(time=lambda: now))
    assert clock_offset(None, new) == 99.0
    delays = [0.25, 0.0]
    assert clock_offset(None, new) == 99.875
    assert delays == [0.0]


def test_a_server_that_tells_whole_seconds_is_half_a_second_further(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(connection: Any, sql: str) -> list[tuple[str]]:
        asked.append(sql)
        return [("2026-11-22 10:00:00",)]

    now = datetime(2026, 11, 22, 9, 59, 0, 250000, tzinfo=UTC).timestamp()
    monkeypatch.setattr("canal.parse.source.login.run", answer)
    monkeypatch.setattr("canal.parse.source.login.time", SimpleNamespace(time=lambda: now))

    assert clock_offset(None, Release("mysql", (5, 5, 9))) == 60.25
    assert asked == ["SELECT UTC_TIMESTAMP()"]


def test_registering_sends_no_password() -> None:
    sent = register_packet(0x01020304)
    host = socket.gethostname().encode()[:60]

    assert sent == b"\4\3\2\1" + bytes((len(host),)) + host + bytes(1 + 1 + 2 + 4 + 4)


def test_a_dump_by_gtid_names_no_journal() -> None:
    """T9: with one a server would begin there, and leave out what the set lacks before it."""
    assert dump_gtid_packet(0, 77, b"set") == b"\0\0" + b"\x4d\0\0\0" + bytes(4) + b"\4" + bytes(7) + b"\3\0\0\0set"


@pytest.mark.parametrize(
    ("flavor", "version", "statement"),
    [
        ("mysql", (5, 6, 51), "SHOW MASTER STATUS"),
        ("mysql", (8, 0, 46), "SHOW MASTER STATUS"),
        ("mysql", (8, 2, 0), "SHOW BINARY LOG STATUS"),
        ("mysql", (9, 7, 4), "SHOW BINARY LOG STATUS"),
        ("mariadb", (11, 8, 5), "SHOW MASTER STATUS"),
    ],
)
def test_each_server_is_asked_in_its_own_words(flavor: str, version: tuple[int, ...], statement: str) -> None:
    """T28: MySQL 8.2 renamed the statement, 8.4 dropped the old one, MariaDB never had the new one."""
    assert Release(flavor, version).status_query == statement


# -- PyMySQL's private parts -------------------------------------------------------------------------------------------


def test_the_driver_still_has_the_parts_that_are_used() -> None:
    connection = pymysql.connections.Connection(defer_connect=True)

    for name in (
        "_execute_command",
        "_read_ok_packet",
        "_read_packet",
        "_read_bytes",
        "_write_bytes",
        "_force_close",
        "write_packet",
        "_get_server_information",
        "_process_auth",
    ):
        assert callable(getattr(connection, name)), name
    assert connection._sock is None


def test_taking_over_keeps_what_was_read_ahead_and_leaves_the_socket_open() -> None:
    ours, theirs = socket.socketpair()
    connection = pymysql.connections.Connection(defer_connect=True)
    connection._sock, connection._rfile = ours, ours.makefile("rb")
    theirs.sendall(b"answerAHEAD")
    assert connection._rfile.read(6) == b"answer"

    sock, ahead = _pymysql.take_over(connection)
    del connection
    theirs.sendall(b"more")

    with sock, theirs:
        assert ahead == b"AHEAD"
        assert sock.recv(10) == b"more"


def test_taking_over_without_anything_read_ahead_does_not_wait() -> None:
    ours, theirs = socket.socketpair()
    connection = pymysql.connections.Connection(defer_connect=True)
    connection._sock, connection._rfile = ours, ours.makefile("rb")

    sock, ahead = _pymysql.take_over(connection)

    with sock, theirs:
        assert ahead == b""
