"""A source is killed under load and its replica takes over: what survived in the replica comes, in order, and once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

import canal
from canal.cli.check import look
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line, Pairing
from tests.support.journal import Change, check
from tests.support.live import Reader, end_of_log, promote, replica_word, settle, source, wait_for_relay, wait_for_row
from tests.support.load import Load
from tests.support.waiting import until

QUICK = canal.Heartbeat(interval=0.3, timeout=2.0, retries=2)


def repeated(changes: list[Change]) -> int:
    """How many transactions of the load came more than once."""
    updates = (one for one in changes if one[1] == "load_session" and one[2] == "UPDATE")
    marks = [(one[0], one[4]["id"], one[4]["txn"]) for one in updates if one[4]]
    return len(marks) - len(set(marks))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.every_line
def test_a_source_that_is_killed_under_load_is_replaced_by_its_replica(pairing: Pairing, full_size: bool) -> None:
    """T31, T34"""
    for round in range(10 if full_size else 1):
        alarms: list[str] = []
        with pairing.pair() as (first, second):
            before = Load(first, "before", seed=round, ddl=False, pause=0.005)
            before.setup()
            wait_for_row(second, "SELECT COUNT(*) FROM `before`.load_order")  # the last that it makes
            config = canal.InstanceConfig(
                destination="failover",
                source=source(first, connect_timeout=2.0),
                standby=source(second),
                heartbeat=QUICK,
                start="latest",
                filter=r"(before|after)\..*",
                alarm=lambda destination, text, alarms=alarms: alarms.append(text),  # type: ignore[misc]
            )
            with canal.Instance(config) as instance:
                instance.subscribe()
                with Reader(instance) as reader:
                    before.start()
                    time.sleep(2.0 + 0.1 * round)
                    first.kill()
                    promote(second)
                    before.stop()
                    after = Load(second, "after", seed=round, ddl=False, pause=0.002)
                    after.setup()
                    after.run(seconds=1.0)
                    changes = reader.read_up_to(end_of_log(second))
            lost = settle(before, second)
        count = repeated(changes)
        print(f"{len(before.journal.committed())}+{len(after.journal.committed())} transactions, {lost} lost, {count} repeated")
        print("\n".join(alarms))
        assert any("switching" in text for text in alarms), alarms
        assert check(before.journal, changes, repeats=not pairing.gtid) == []
        assert check(after.journal, changes) == []
        assert pairing.gtid is False or count == 0


def test_a_switch_without_column_names_in_the_log(pairing: Pairing, tmp_path: Path) -> None:
    """The schema history of one server does not fit the log of another; restarts on either side of the switch."""
    with pairing.pair(named=False) as (first, second):

        def config() -> canal.InstanceConfig:
            return canal.InstanceConfig(
                destination="unnamed",
                source=source(first),
                standby=source(second),
                filter=r"d\..*",
                meta=canal.FileMeta(tmp_path),
                heartbeat=canal.Heartbeat(interval=3600.0),
            )

        rows = []

        def read(instance: canal.Instance, count: int) -> None:
            while len(rows) < count:
                message = instance.get(1, timeout=60)
                assert message, rows
                rows.extend(
                    row.after.as_dict()
                    for entry in message.entries
                    if entry.entry_type is canal.EntryType.ROWDATA and not entry.row_change.is_ddl
                    for row in entry.rows
                    if row.after
                )
            instance.get(1, timeout=0)

        first.query("CREATE DATABASE d")
        first.query("CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b INT)")
        with canal.Instance(config()) as instance:
            instance.subscribe()
            first.query("INSERT INTO d.t VALUES (1, 10, 100)")
            first.query("ALTER TABLE d.t DROP COLUMN b, ADD COLUMN c INT FIRST")
            first.query("INSERT INTO d.t VALUES (1000, 2, 20)")
            read(instance, 2)
        with canal.Instance(config()) as instance:
            read(instance, 2)
            wait_for_row(second, "SELECT COUNT(*) FROM d.t WHERE id = 2")
            assert instance.switch()
            second.stop_replication()
            second.query("INSERT INTO d.t VALUES (1001, 3, 30)")
            second.query("ALTER TABLE d.t ADD COLUMN d INT AFTER c")
            second.query("INSERT INTO d.t VALUES (1002, 7, 4, 40)")
            read(instance, 4)
            second.query("INSERT INTO d.t VALUES (1003, 8, 5, 50)")
        first.stop()
        with canal.Instance(attrs.evolve(config(), source=source(second), standby=None)) as instance:
            read(instance, 5)

    assert rows == [
        {"id": 1, "a": 10, "b": 100},
        {"c": 1000, "id": 2, "a": 20},
        {"c": 1001, "id": 3, "a": 30},
        {"c": 1002, "d": 7, "id": 4, "a": 40},
        {"c": 1003, "d": 8, "id": 5, "a": 50},
    ]


def test_a_replica_that_lags_and_one_that_lost_transactions(pairing: Pairing) -> None:
    """T31: what the replica applies after the switch does not come again; what it never gets is named."""
    named = ("has not executed", "lacks the transactions", "except the last 3")
    alarms: list[str] = []
    with pairing.pair() as (first, second):
        word = replica_word(second)
        first.query("CREATE DATABASE d")
        first.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
        first.query("INSERT INTO d.t VALUES (0)")
        config = canal.InstanceConfig(
            destination="lag",
            source=source(first),
            standby=source(second),
            filter=r"d\..*",
            heartbeat=canal.Heartbeat(interval=3600.0),
            alarm=lambda destination, text: alarms.append(text),
        )
        rows: list[int] = []
        with canal.Instance(config) as instance:
            instance.subscribe()

            def read(last: int) -> None:
                while last not in rows:
                    message = instance.get(1000, timeout=60)
                    assert message, (rows, alarms)
                    data = (entry.rows for entry in message.entries if entry.entry_type is canal.EntryType.ROWDATA)
                    rows.extend(row.after["id"] for some in data for row in some if row.after)
                instance.get(1, timeout=0)

            first.query("INSERT INTO d.t VALUES (1)")
            read(1)
            wait_for_row(second, "SELECT COUNT(*) FROM d.t WHERE id = 1")
            second.query(f"STOP {word} SQL_THREAD")
            first.query("INSERT INTO d.t VALUES (2)")
            first.query("INSERT INTO d.t VALUES (3)")
            read(3)
            wait_for_relay(second, first)
            second.query(f"STOP {word} IO_THREAD")
            first.query("INSERT INTO d.t VALUES (4)")
            read(4)
            first.kill()
            assert instance.switch("a test")
            deadline = time.monotonic() + 60
            while not any(text in alarm for alarm in alarms for text in named):
                assert time.monotonic() < deadline, alarms
                time.sleep(0.05)
            second.query(f"START {word} SQL_THREAD")
            if second.kind == "mysql":  # one thread has read it all while others apply it; MariaDB has dropped it
                wait_for_row(second, "SELECT COUNT(*) FROM d.t WHERE id = 3")
            promote(second)
            second.query("INSERT INTO d.t VALUES (5)")
            read(5)
    assert rows == ([1, 2, 3, 4, 5] if pairing.gtid else [1, 2, 3, 4, 2, 3, 5])


@pytest.mark.parametrize("by", ["hand", "heartbeats"])
def test_a_standby_that_has_purged_transactions_of_its_own_takes_over(pairing: Pairing, by: str) -> None:
    """They were never on the source, such as a CREATE USER when the standby was set up: it lacks nothing of the source."""
    with pairing.pair() as (first, second):
        first.query("CREATE DATABASE d")
        first.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
        wait_for_row(second, "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 't' AND table_schema = 'd'")
        with contextlib.closing(second.connect()) as connection, connection.cursor() as cursor:
            if pairing.line.kind == "mariadb":
                cursor.execute("SET gtid_domain_id = 5")
            cursor.execute("CREATE DATABASE own")
            cursor.execute("CREATE TABLE own.t (id INT PRIMARY KEY)")
            if pairing.line.kind == "mariadb":
                cursor.execute("SET gtid_domain_id = 0")
        first.query("INSERT INTO d.t VALUES (1)")
        wait_for_row(second, "SELECT COUNT(*) FROM d.t WHERE id = 1")
        second.query("FLUSH BINARY LOGS")
        last = second.query("SHOW BINARY LOGS")[-1][0]
        until(lambda: [second.query(f"PURGE BINARY LOGS TO '{last}'"), second.query("SHOW BINARY LOGS")[0][0] == last][1])
        alarms: list[str] = []
        config = canal.InstanceConfig(
            destination="errant",
            source=source(first, connect_timeout=2.0),
            standby=source(second),
            start="earliest",
            filter=r"d\..*",
            heartbeat=QUICK if by == "heartbeats" else canal.Heartbeat(interval=3600.0),
            alarm=lambda destination, text: alarms.append(text),
        )
        ids: list[int] = []

        def read(instance: canal.Instance, count: int) -> None:
            while len(ids) < count:
                message = instance.get(100, timeout=60)
                assert message, (ids, alarms)
                ids.extend(row.after["id"] for entry in message.entries for row in entry.rows if row.after)

        with canal.Instance(config) as instance:
            instance.subscribe()
            first.query("INSERT INTO d.t VALUES (2)")
            read(instance, 2)
            wait_for_row(second, "SELECT COUNT(*) FROM d.t WHERE id = 2")
            if by == "hand":
                warned = [part for part, finding in look(config, False) if finding.what == "gtid_purged"]
                assert warned == ["standby"] * pairing.gtid
                assert instance.switch()
                second.stop_replication()
            else:
                until(lambda: instance.parser._run.link.looked_at)  # type: ignore[attr-defined]
                first.kill()
                promote(second)
            second.query("INSERT INTO d.t VALUES (3)")
            read(instance, 3)
        assert ids == [1, 2, 3]


@pytest.mark.lines("mysql")
@pytest.mark.needs("gtid")
def test_what_lies_in_a_gap_of_the_gtids_comes_from_the_replica(line: Line, tmp_path: Path) -> None:
    """The source has logged a later GTID first, as one that applies in parallel does; and dies."""
    uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    rows: list[int] = []
    with Pairing(line, gtid=True).pair() as (first, second):

        def write(server: ThrowawayServer, number: int) -> None:
            with server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SET gtid_next = '{uuid}:{number}'")
                cursor.execute(f"INSERT INTO d.t VALUES ({number})")
                connection.commit()

        def read(instance: canal.Instance, last: int) -> None:
            while last not in rows:
                message = instance.get(1000, timeout=60)
                assert message, rows
                data = (entry.rows for entry in message.entries if entry.entry_type is canal.EntryType.ROWDATA)
                rows.extend(row.after["id"] for some in data for row in some if row.after)
            instance.get(1, timeout=0)

        first.query("CREATE DATABASE d")
        first.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
        config = canal.InstanceConfig(
            destination="gap",
            source=source(first),
            standby=source(second),
            filter=r"d\..*",
            meta=canal.FileMeta(tmp_path),
            heartbeat=canal.Heartbeat(interval=3600.0),
        )
        with canal.Instance(config) as instance:
            instance.subscribe()
            for number in (1, 2, 4, 6):
                write(first, number)
            read(instance, 6)
            wait_for_row(second, "SELECT COUNT(*) FROM d.t WHERE id = 6")
            second.stop_replication()
            first.kill()
            write(second, 3)
            assert instance.switch("a test")
            read(instance, 3)
        write(second, 5)
        write(second, 7)
        with canal.Instance(attrs.evolve(config, source=source(second), standby=None)) as instance:
            read(instance, 7)
    assert rows == [1, 2, 4, 6, 3, 5, 7]


@pytest.mark.lines("mariadb")
def test_a_large_transaction_that_was_delivered_in_part_goes_on_at_a_replica_that_lags(pairing: Pairing, tmp_path: Path) -> None:
    """What the replica sends before it is done too, and is not the transaction whose first rows were acked."""
    alarms: list[str] = []
    with pairing.pair() as (first, second):
        first.query("CREATE DATABASE d")
        first.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
        wait_for_row(second, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'd'")
        config = canal.InstanceConfig(
            destination="piece",
            source=source(first, receive_buffer=1 << 14),
            standby=source(second),
            filter=r"d\..*",
            store_entries=64,
            heartbeat=canal.Heartbeat(interval=3600.0),
            meta=canal.FileMeta(tmp_path),
            alarm=lambda destination, text: alarms.append(text),
        )
        rows: list[int] = []
        with canal.Instance(config) as instance:
            instance.subscribe()

            def read(done: Callable[[], bool], batch: int = 16) -> None:
                deadline = time.monotonic() + 60
                while not done():
                    assert time.monotonic() < deadline, (rows[-5:], alarms)
                    for entry in instance.get(batch, timeout=0.1).entries:
                        if entry.entry_type is canal.EntryType.ROWDATA:
                            rows.extend(row.after["id"] for row in entry.rows if row.after)

            first.query("INSERT INTO d.t VALUES (-3)")
            read(lambda: rows == [-3])
            wait_for_row(second, "SELECT COUNT(*) FROM d.t")
            second.query("STOP SLAVE SQL_THREAD")
            first.query("INSERT INTO d.t VALUES (-2)")
            first.query("INSERT INTO d.t VALUES (-1)")
            time.sleep(1.1)  # the large one in a second of its own
            first.query("INSERT INTO d.t SELECT seq FROM test.seq_1_to_200000")
            read(lambda: rows[-1] >= 5000)
            wait_for_relay(second, first)
            assert instance.switch("a test")
            read(lambda: any("lacks the transactions" in text for text in alarms))
            assert rows[-1] < 200000
            second.query("START SLAVE SQL_THREAD")
            read(lambda: rows[-1] == 200000, 1000)
    assert rows == [-3, -2, -1, *range(1, 200001)]
