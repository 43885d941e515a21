"""T23, T24: what real servers answer, and what it is taken for. One server of each line, which each test leaves usable."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import canal
from canal import Position
from canal.errors import LostReason
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.live import reset_log, source

#: Seconds. Three of them without a word are a lost connection, and none that the server has ended.
HEARTBEAT = 5.0


@pytest.fixture(scope="module")
def noisy(module_line: Line) -> Iterator[ThrowawayServer]:
    with module_line.server("--max-binlog-size=8192", "--max-connections=12") as server:
        server.query("CREATE DATABASE d")
        server.query("CREATE TABLE d.t (a INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB)")
        write(server, 40, 500)
        yield server


def write(server: ThrowawayServer, count: int = 1, size: int = 10) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for _ in range(count):
            cursor.execute("INSERT INTO d.t (b) VALUES (REPEAT('x', %s))", (size,))


def logs(server: ThrowawayServer) -> list[str]:
    return [row[0] for row in server.query("SHOW BINARY LOGS")]


def inside_a_value(server: ThrowawayServer, journal: str) -> int:
    """An offset in the x's of an INSERT: a server that takes them for a header reads a length of 2 GB. Where else one reads
    the length of an event out of the middle of another, it may be a possible one, and the answer anything."""
    events = server.query(f"SHOW BINLOG EVENTS IN '{journal}'")
    following = zip(events, events[1:])  # MariaDB 11.4 no longer tells where an event inside of a transaction ends
    return next(int(after[1]) for one, after in following if one[2].startswith("Write_rows")) - 200


def end_of(server: ThrowawayServer) -> Position:
    with opened(server) as connection:
        found: Position = connection.resolve("latest")
    return found


@contextlib.contextmanager
def opened(server: ThrowawayServer, **options: Any) -> Iterator[Any]:
    connection = source(server, heartbeat_interval=HEARTBEAT, **options).connect()
    try:
        yield connection
    finally:
        connection.close()


def failure(
    server: ThrowawayServer, position: Position, during: Callable[[], Any] | None = None, *, blindly: bool = False, **options: Any
) -> Any:
    """The error that a dump from ``position`` ends with, once ``during`` has been done to it."""
    with opened(server, **options) as connection, pytest.raises(canal.SourceError) as caught:
        if blindly:  # as if nothing had been checked before
            connection._log_check.check_executed = lambda *_: []
        connection.dump(position)
        end = time.monotonic() + 60
        if during is not None:
            while not connection.read(0.2):
                assert time.monotonic() < end
            during()
        while time.monotonic() < end:
            connection.read(0.2)
    return caught.value


def dumps(server: ThrowawayServer) -> list[int]:
    return [row[0] for row in server.query("SHOW PROCESSLIST") if row[4].startswith("Binlog Dump")]


def kill(server: ThrowawayServer) -> None:
    for thread in dumps(server):
        with contextlib.suppress(Exception):
            server.query(f"KILL {thread}")


@pytest.mark.every_line
def test_places_that_no_log_has(noisy: ThrowawayServer) -> None:
    first, last = logs(noisy)[0], logs(noisy)[-1]
    assert failure(noisy, Position(journal="binlog.999999", offset=4)).reason is LostReason.PURGED
    assert failure(noisy, Position(journal=last, offset=10**8)).reason is LostReason.BEYOND
    assert failure(noisy, Position(journal=first, offset=10**6)).reason is LostReason.BEYOND
    inside = Position(journal=first, offset=inside_a_value(noisy, first))
    lost = failure(noisy, inside)
    assert lost.reason is LostReason.BEYOND
    assert "beginning of a transaction" in lost.remedy


@pytest.mark.every_line
@pytest.mark.needs("gtid")
def test_gtids_that_the_server_lacks_or_has_purged(noisy: ThrowawayServer) -> None:
    maria = noisy.kind == "mariadb"
    uuid = noisy.query("SELECT @@server_id" if maria else "SELECT @@server_uuid")[0][0]
    ahead = Position(gtid=f"0-{uuid}-99999" if maria else f"{uuid}:1-99999")
    assert failure(noisy, ahead, blindly=True).reason is LostReason.DIVERGED
    assert failure(noisy, ahead).reason is LostReason.DIVERGED
    if maria:
        assert failure(noisy, Position(gtid="0-99-3")).reason is LostReason.DIVERGED
    write(noisy, 40, 500)
    end = time.monotonic() + 60
    while len(logs(noisy)) > 1:
        noisy.query(f"PURGE BINARY LOGS TO '{logs(noisy)[-1]}'")
        assert time.monotonic() < end
    behind = Position(gtid=f"0-{uuid}-2" if maria else f"{uuid}:1")
    assert failure(noisy, behind).reason is LostReason.PURGED


@contextlib.contextmanager
def poor_user(server: ThrowawayServer) -> Iterator[canal.MySQLSource]:
    server.query("CREATE USER 'u'@'%' IDENTIFIED BY 'pw'")
    try:
        yield canal.MySQLSource(host=server.host, port=server.port, user="u", password="pw", get_server_public_key=True)
    finally:
        with contextlib.suppress(Exception):  # it may be gone
            server.query("DROP USER 'u'@'%'")


@pytest.mark.every_line
def test_a_user_that_may_not(noisy: ThrowawayServer) -> None:
    with poor_user(noisy) as as_u:
        for change, words in (
            ("GRANT SELECT, REPLICATION CLIENT ON *.* TO 'u'@'%'", "GRANT SELECT, REPLICATION SLAVE"),
            ("REVOKE REPLICATION CLIENT ON *.* FROM 'u'@'%'", "GRANT SELECT, REPLICATION SLAVE"),
            ("GRANT REPLICATION SLAVE ON *.* TO 'u'@'%'", "REPLICATION CLIENT ON"),
            ("DROP USER 'u'@'%'", "Check user, password"),
        ):
            noisy.query(change)
            with pytest.raises(canal.AuthenticationError, match=words):
                as_u.connect().close()


@pytest.mark.lines("mysql>=5.7", "mariadb>=10.5")
def test_a_user_that_is_locked_out(noisy: ThrowawayServer) -> None:
    with poor_user(noisy) as as_u:
        noisy.query("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'u'@'%'")
        for change, words in (
            ("ALTER USER u ACCOUNT LOCK", "ACCOUNT UNLOCK"),
            ("ALTER USER u ACCOUNT UNLOCK PASSWORD EXPIRE", "password has expired"),
        ):
            noisy.query(change)
            with pytest.raises(canal.AuthenticationError, match=words):
                as_u.connect().close()


def until_alone(connection: Any) -> None:
    """Until the server has ended all other connections, those too that it refused or that never logged in: it is this number
    that it compares with max_connections."""
    end = time.monotonic() + 60
    with connection.cursor() as cursor:
        while cursor.execute("SHOW GLOBAL STATUS LIKE 'Threads_connected'") and int(cursor.fetchone()[1]) > 1:
            assert time.monotonic() < end
            time.sleep(0.02)


def test_a_server_that_is_full_is_tried_again(noisy: ThrowawayServer) -> None:
    taken: list[Any] = [noisy.connect()]
    try:
        until_alone(taken[0])  # what ends meanwhile would make room
        with pytest.raises(Exception, match="Too many"):
            while True:
                taken.append(noisy.connect())
        with pytest.raises(canal.ConnectionLostError, match="Raise max_connections"):
            source(noisy).connect()
    finally:
        for one in taken[1:]:
            one.close()
        until_alone(taken[0])
        taken[0].close()


def test_a_kill_ends_the_dump_by_the_source(noisy: ThrowawayServer) -> None:
    error = failure(noisy, end_of(noisy), lambda: kill(noisy))

    assert type(error) is canal.ConnectionLostError
    assert error.by_source


@pytest.mark.lines("mysql>=5.7", "mariadb>=10.2")  # older servers end the connection without a word
@pytest.mark.every_line
def test_the_older_of_two_readers_with_one_id_is_told(noisy: ThrowawayServer) -> None:
    """T24: MariaDB goes by the server id, MySQL by the replica's UUID."""
    position = end_of(noisy)
    same = source(noisy, heartbeat_interval=HEARTBEAT, server_id=77)
    first, second = same.connect(), same.connect()
    try:
        first.dump(position)
        end = time.monotonic() + 60
        while not first.read(0.2):  # or the second may come first
            assert time.monotonic() < end
        second.dump(position)
        with pytest.raises(canal.errors.ServerError, match="77.*different server_id"):
            while time.monotonic() < end:
                first.read(0.2)
    finally:
        first.close()
        second.close()


def test_a_dump_that_is_killed_again_and_again_is_told_once(noisy: ThrowawayServer) -> None:
    """T24"""
    told: list[str] = []
    config = canal.InstanceConfig(
        destination="x",
        source=source(noisy, server_id=78),
        alarm=lambda name, text: told.append(text),
        reconnect_backoff=(0.02, 10.0),  # a dump of less than 20 s is a short one
    )
    enough = threading.Event()

    def killing() -> None:
        while not enough.is_set():
            write(noisy)  # each dump delivers something
            kill(noisy)

    killer = threading.Thread(target=killing)
    with canal.Instance(config) as instance:
        instance.subscribe()
        killer.start()
        try:
            end = time.monotonic() + 60
            while not any("times in a row" in text for text in told):
                instance.get(100, timeout=0.1)
                assert time.monotonic() < end
            for _ in range(20):
                instance.get(100, timeout=0.1)
        finally:
            enough.set()
            killer.join()
        write(noisy)
        last = noisy.query("SELECT MAX(a) FROM d.t")[0][0]
        while last not in (row.after["a"] for entry in instance.get(100, timeout=60) for row in entry.rows if row.after):
            assert time.monotonic() < end

    (text,) = (text for text in told if "times in a row" in text)
    assert "Check for a KILL, and for a proxy or firewall that closes idle connections" in text
    assert "server id" not in text


@pytest.mark.every_line
def test_logs_that_are_reset_under_a_dump(noisy: ThrowawayServer) -> None:
    noisy.query("FLUSH LOGS")
    position = end_of(noisy)

    error = failure(noisy, position, lambda: (reset_log(noisy), write(noisy, 2)))
    assert error.reason is LostReason.PURGED
    if position.gtid:
        assert failure(noisy, position).reason is LostReason.DIVERGED


@pytest.mark.every_line
def test_the_error_of_a_log_that_was_reset_names_the_position_that_was_read_last(noisy: ThrowawayServer) -> None:
    start = end_of(noisy)
    config = canal.InstanceConfig(
        destination="x", source=source(noisy, check_interval=0.2, heartbeat_interval=HEARTBEAT), start=start, filter=r"d\.t"
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        write(noisy, 40, 500)  # several logs
        last = end_of(noisy)
        for _ in range(40):
            assert instance.get(1, timeout=30.0)
        reset_log(noisy)
        with pytest.raises(canal.PositionLostError) as caught:
            while True:
                instance.get(100, timeout=30.0)

    position = caught.value.position
    assert isinstance(position, Position)
    assert (position.journal, position.offset >= last.offset) == (last.journal, True)  # MariaDB ends the log with a ROTATE
    assert last.journal != start.journal


@pytest.mark.every_line
def test_a_log_that_is_removed_by_hand(noisy: ThrowawayServer) -> None:
    write(noisy, 40, 500)
    oldest = logs(noisy)[0]
    (noisy.data_dir / oldest).unlink()

    assert failure(noisy, Position(journal=oldest, offset=4)).reason is LostReason.PURGED
