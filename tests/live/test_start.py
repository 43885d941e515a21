"""Every way to begin, on real servers: what comes is what was written behind that position."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.testing import FaultProxy
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line, Pairing
from tests.support.live import end_of_log, ids_of, purge, reset_log, source, wait_for_row


class Written:
    """A server's log with transactions of three rows each, and where and when each of them begins."""

    def __init__(self, server: ThrowawayServer, transactions: int, pause: float = 0.0) -> None:
        self.server = server
        reset_log(server)
        server.query("CREATE DATABASE s")
        server.query("CREATE TABLE s.t (id INT PRIMARY KEY)")
        self.begins: list[canal.Position] = []
        self.times: list[float] = []
        self.count = 0
        self.write(transactions, pause)

    def write(self, transactions: int, pause: float = 0.0) -> None:
        for _ in range(transactions):
            self.begins.append(end_of_log(self.server))
            self.times.append(time.time())
            with self.server.connect(autocommit=False) as connection, connection.cursor() as cursor:
                for one in range(3):
                    cursor.execute("INSERT INTO s.t VALUES (%s)", (self.count * 10 + one,))
                connection.commit()
            self.count += 1
            time.sleep(pause)

    def rows(self, first: int) -> list[int]:
        return [number * 10 + one for number in range(first, self.count) for one in range(3)]

    def drop(self) -> None:
        self.server.query("DROP DATABASE s")

    def read(
        self, start: str | canal.Position = "latest", *, count: int | None = None, until: str = "", **options: Any
    ) -> tuple[list[int], list[str]]:
        """The rows that come within a moment, or so many, and until there is such an alarm; and the alarms."""
        alarms: list[str] = []
        config = canal.InstanceConfig(
            destination="start",
            source=options.pop("source", None) or source(self.server),
            start=start,
            filter=r"s\.t",
            alarm=lambda destination, text: alarms.append(text),
            reconnect_backoff=(0.02, 0.1),
            **options,
        )
        found: list[int] = []
        with canal.Instance(config) as instance:
            instance.subscribe()
            while count is None or len(found) < count:
                message = instance.get(1000, timeout=0.5 if count is None else 60.0)
                if not message and not until:
                    break
                if until and any(until in text for text in alarms):
                    until, count = "", count or 0
                found += ids_of(message)
            instance.get(1, timeout=0)
        return found, alarms


@pytest.fixture
def server(own_server: ThrowawayServer) -> ThrowawayServer:
    return own_server


def test_earliest_latest_and_the_place_of_each_transaction(server: ThrowawayServer) -> None:
    log = Written(server, 4)
    assert log.read("earliest", count=len(log.rows(0)))[0] == log.rows(0)
    assert log.read("latest")[0] == []
    for number, position in enumerate(log.begins):
        assert log.read(position, count=len(log.rows(number)))[0] == log.rows(number)
        by_gtid = canal.Position(gtid=position.gtid)
        if position.gtid:
            assert log.read(by_gtid, count=len(log.rows(number)))[0] == log.rows(number)


def test_any_offset_of_a_journal_is_moved_to_the_begin_of_its_transaction(server: ThrowawayServer) -> None:
    log = Written(server, 3)
    end = end_of_log(server)
    begins = [position.offset for position in log.begins]
    offsets = random.Random(3).sample(range(begins[0], end.offset), 12) + begins + [end.offset]
    for offset in offsets:
        first = max((n for n, begin in enumerate(begins) if begin <= offset), default=0) if offset < end.offset else 3
        rows, _ = log.read(canal.Position(end.journal, offset), count=len(log.rows(first)) or None)
        assert rows == log.rows(first), offset


def test_a_time_alone_with_a_journal_and_a_journal_alone(server: ThrowawayServer) -> None:
    log = Written(server, 2, pause=2.0)
    first = end_of_log(server).journal
    server.query("FLUSH LOGS")
    log.write(2, pause=2.0)
    second = end_of_log(server).journal
    assert second != first
    for number, moment in enumerate(log.times):
        since = canal.Position(timestamp=int(moment) * 1000)
        assert log.read(since, count=len(log.rows(number)))[0] == log.rows(number)
    assert log.read(canal.Position(journal=second), count=6)[0] == log.rows(2)
    assert log.read(canal.Position(journal=first, timestamp=int(log.times[1]) * 1000), count=9)[0] == log.rows(1)
    assert log.read(canal.Position(timestamp=int(time.time() + 1000) * 1000))[0] == []


def test_a_start_by_time_when_clocks_went_back(server: ThrowawayServer) -> None:
    """The second log was begun by a clock that was an hour ahead."""
    log = Written(server, 1)
    now = int(time.time())
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET timestamp = %s", (now + 3600,))
        cursor.execute("FLUSH LOGS")
        cursor.execute("INSERT INTO s.t VALUES (1000)")
    server.query("FLUSH LOGS")
    log.write(1)
    server.query("FLUSH LOGS")
    log.write(1)
    since = canal.Position(timestamp=(now + 1800) * 1000)
    assert log.read(since, count=7)[0] == [1000, *log.rows(1)]
    since = canal.Position(timestamp=int(log.times[1]) * 1000)
    rows, _ = log.read(since, count=7)
    assert rows[-7:] == [1000, *log.rows(1)]


@pytest.mark.parametrize("by", ["gtid", "journal"])
def test_a_purged_log(server: ThrowawayServer, tmp_path: Path, by: str) -> None:
    log = Written(server, 2)
    position = log.begins[1]
    cursor = canal.Position(gtid=position.gtid, timestamp=1) if by == "gtid" else attrs_without_gtid(position)

    def meta(name: str) -> canal.FileMeta:
        made = canal.FileMeta(tmp_path / name)
        made.start("start")
        made.subscribe(1001, "")
        made.update_cursor(1001, cursor)
        made.stop()
        return made

    purge(server)
    log.write(1)
    with pytest.raises(canal.PositionLostError) as caught:
        log.read(meta=meta("fail"), count=1)
    assert caught.value.remedy
    for policy, rows in (("earliest", log.rows(2)), ("latest", []), ("time", log.rows(2))):
        options = {"meta": meta(policy), "on_lost": policy, "dump_error_threshold": 1}
        found, alarms = log.read(count=len(rows) or None, until="IS LOST", **options)
        assert found == rows, policy
        assert len([text for text in alarms if "IS LOST" in text]) == 1, alarms
    with pytest.raises(canal.PositionLostError):
        log.read(position, count=1)  # what is configured is never given up by a policy


def attrs_without_gtid(position: canal.Position) -> canal.Position:
    return canal.Position(position.journal, position.offset, timestamp=1_000, source=position.source)


@pytest.mark.lines("mysql")
@pytest.mark.needs("online_gtid_mode")
@pytest.mark.every_line
def test_from_journals_to_gtids_and_back(line: Line, tmp_path: Path) -> None:
    with Pairing(line, gtid=False).server() as server:
        log = Written(server, 1)
        meta = canal.FileMeta(tmp_path)
        assert log.read(log.begins[0], meta=meta, count=3)[0] == log.rows(0)

        server.query("SET GLOBAL enforce_gtid_consistency = ON")
        # The server sends no anonymous transaction with ON and no other with OFF: all is read before either is set.
        for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON", "ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"):
            server.query(f"SET GLOBAL gtid_mode = {mode}")
            for _ in range(2):
                log.write(1)
                assert log.read(meta=meta, count=3)[0] == log.rows(log.count - 1), mode
                server.query("FLUSH LOGS")


def test_another_server_behind_the_same_address(pairing: Pairing, tmp_path: Path) -> None:
    """A virtual address moves: while connected, and while nothing of ours runs."""
    with pairing.pair() as (first, second), FaultProxy(first.host, first.port) as proxy:
        address = canal.MySQLSource(
            host=proxy.host, port=proxy.port, user=first.user, password=first.password, ssl_mode="DISABLED"
        )
        second.stop_replication()  # what it had of the log that is reset would stand in the way of the new one
        log = Written(first, 0)
        second.replicate(first, gtid=pairing.gtid)
        meta = canal.FileMeta(tmp_path)
        config = canal.InstanceConfig(
            destination="start", source=address, filter=r"s\.t", meta=meta, reconnect_backoff=(0.05, 0.2)
        )
        found: list[int] = []

        def read(instance: canal.Instance) -> None:
            while len(found) < 3 * log.count:
                message = instance.get(1000, timeout=60)
                assert message, found
                found.extend(ids_of(message))
            instance.get(1, timeout=0)

        def moved_to(target: ThrowawayServer) -> None:
            wait_for_row(second, f"SELECT COUNT(*) = {3 * log.count} FROM s.t")
            proxy.retarget(target.host, target.port)
            proxy.cut()

        with canal.Instance(config) as instance:
            instance.subscribe()
            log.write(2)
            read(instance)
            moved_to(second)
            log.write(2)
            read(instance)
        moved_to(first)
        log.write(1)
        with canal.Instance(config) as instance:
            read(instance)
        assert found == log.rows(0)


def test_a_log_that_is_reset_under_a_running_dump_is_noticed(pairing: Pairing) -> None:
    """The server tells a reader at the end of the first journal nothing: the name of the journal is the same again."""
    with pairing.server() as server:
        Written(server, 1)
        quick = source(server, check_interval=0.3, heartbeat_interval=0.2)
        config = canal.InstanceConfig(destination="start", source=quick, start="earliest", filter=r"s\.t")
        with canal.Instance(config) as instance:
            instance.subscribe()
            found: list[int] = []
            while len(found) < 3:
                found += ids_of(instance.get(100, timeout=60))
            time.sleep(1.0)  # it is not taken for reset while nothing happens
            assert instance.error is None
            reset_log(server)
            server.query("INSERT INTO s.t VALUES (1000)")
            with pytest.raises(canal.PositionLostError):
                while True:
                    message = instance.get(100, timeout=60)
                    assert message
                    assert 1000 in ids_of(message)  # if it does come, nothing is lost
                    server.query("INSERT INTO s.t VALUES (1001)")
