"""XA on real servers: across sessions, binlogs, restarts of ours and of the server (T40), savepoints and mixed engines (T41)."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pymysql
import pytest

import canal
from canal.meta import MemoryMeta
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.live import end_of_log, source


def session(server: ThrowawayServer, database: str = "") -> Any:
    return server.connect(database=database or None)


def do(connection: Any, *statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def leave(server: ThrowawayServer, connection: Any) -> None:
    """Close a session, and wait until the server has: only then may others decide on what it has prepared."""
    number = connection.thread_id()
    connection.close()
    deadline = time.monotonic() + 120
    while any(line[0] == number for line in server.query("SHOW PROCESSLIST")):
        assert time.monotonic() < deadline, "the session does not end"
        time.sleep(0.01)


class Reader:
    """An instance that is stopped and started again at will; keeps what it was given."""

    def __init__(self, server: ThrowawayServer, start: Any, **options: Any) -> None:
        self.server = server
        self.meta = MemoryMeta()
        self.options = options
        self.start = start
        self.seen: list[tuple[Any, ...]] = []
        self.position: canal.Position | None = None

    def read(self, until: int, *, size: int = 1000, restart_every: int = 0) -> list[tuple[Any, ...]]:
        deadline = time.monotonic() + 60
        while len(self.seen) < until and time.monotonic() < deadline:
            config = canal.InstanceConfig(
                destination="xa", source=source(self.server), start=self.start, meta=self.meta, filter=r"x\..*", **self.options
            )
            with canal.Instance(config) as instance:
                instance.subscribe()
                batches = 0
                while len(self.seen) < until and time.monotonic() < deadline:
                    message = instance.get_without_ack(size, timeout=0.5)
                    for entry in message:
                        self.seen += [(entry.event_type.name, *change.after) for change in entry.rows if change.after]
                    if message:
                        self.position = message.position
                        instance.ack(message.id)
                        batches += 1
                        if restart_every and batches % restart_every == 0:
                            break
        return self.seen


def compress(server: ThrowawayServer) -> None:
    if server.kind == "mariadb":
        server.query("SET GLOBAL log_bin_compress=ON")
        server.query("SET GLOBAL log_bin_compress_min_len=10")
    else:
        server.query("SET GLOBAL binlog_transaction_compression=ON")


def make_tables(server: ThrowawayServer) -> None:
    server.query("CREATE DATABASE x")
    server.query("CREATE TABLE x.t (id INT PRIMARY KEY, note VARCHAR(200)) ENGINE=InnoDB")
    server.query("CREATE TABLE x.m (id INT PRIMARY KEY) ENGINE=MyISAM")


@pytest.mark.needs("xa_in_log")
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
@pytest.mark.needs("plain_files")
def test_xa_across_sessions_binlogs_and_restarts(line: Line, own_server: ThrowawayServer, compressed: bool) -> None:
    """T40"""
    server = own_server
    make_tables(server)
    if compressed:
        if not line.can("compression"):
            pytest.skip("it writes no compressed log")
        compress(server)
    early = Reader(server, "earliest")
    stepwise = Reader(server, "earliest")
    one, two = session(server), session(server)
    do(one, "INSERT INTO x.t VALUES (1, 'plain')")
    do(
        one,
        "XA START 'a','branch',9",
        "INSERT INTO x.t VALUES (2, 'a'), (3, 'a')",
        "INSERT INTO x.t VALUES (4, 'a')",
        "XA END 'a','branch',9",
        "XA PREPARE 'a','branch',9",
    )
    leave(server, one)
    do(two, "FLUSH BINARY LOGS", "INSERT INTO x.t VALUES (5, 'plain')")
    late = Reader(server, "latest")  # begins between PREPARE and COMMIT
    with canal.Instance(
        canal.InstanceConfig(destination="xa", source=source(server), meta=late.meta, filter=r"x\..*")
    ) as instance:
        instance.subscribe()  # the cursor of "latest" is stored
    three = session(server)
    do(three, "XA START X'0027FF'", "INSERT INTO x.t VALUES (100, 'dropped')", "XA END X'0027FF'", "XA PREPARE X'0027FF'")
    leave(server, three)
    big = session(server)
    do(big, "XA START 'big'")
    for number in range(1000, 1400, 50):
        rows = ",".join(f"({n}, '{'x' * 150}')" for n in range(number, number + 50))
        do(big, f"INSERT INTO x.t VALUES {rows}")
    do(big, "XA END 'big'", "XA PREPARE 'big'")
    leave(server, big)
    do(two, "INSERT INTO x.t VALUES (8, 'plain')")  # a commit also makes durable what was prepared before it
    two.close()
    server.restart()
    # MySQL 9.7 forgets some of what was prepared, whether it is killed or shut down; the table is the judge.
    with server.connect(charset="latin1") as recovered, recovered.cursor() as cursor:
        cursor.execute("XA RECOVER")
        data = [row[3] for row in cursor.fetchall()]
    survived = {one.encode("latin-1") if isinstance(one, str) else one for one in data}
    two = session(server)
    expected = [1, 5, 8]
    for number, xid, text, rows in (
        (11, b"abranch", "COMMIT 'a','branch',9", [2, 3, 4]),
        (12, b"\0\x27\xff", "ROLLBACK X'0027FF'", []),
        (13, b"big", "COMMIT 'big'", list(range(1000, 1400))),
    ):
        if xid in survived:
            do(two, f"XA {text}")
            expected += rows
        do(two, "FLUSH BINARY LOGS", f"INSERT INTO x.t VALUES ({number}, 'plain')")
        expected.append(number)
    if server.kind == "mariadb":
        assert len(survived) == 3
    assert [row[1] for row in early.read(len(expected))] == expected
    assert early.position is not None
    assert len(early.position.xa) == 3 - len(survived)

    assert [row[1] for row in late.read(len(expected) - 2)] == expected[2:]

    stepwise.options = {"store_bytes": 20_000, "store_entries": 16}
    assert [row[1] for row in stepwise.read(len(expected), size=7, restart_every=3)] == expected
    with two.cursor() as cursor:
        cursor.execute("SELECT id FROM x.t ORDER BY id")
        assert [row[0] for row in cursor.fetchall()] == sorted(expected)

    files = canal.LocalBinlogSource(server.binlog_dir)
    with canal.Instance(canal.InstanceConfig(destination="files", source=files, start="earliest", filter=r"x\..*")) as instance:
        instance.subscribe()
        found = []
        for message in instance.stream():
            found += [change.after[0] for entry in message for change in entry.rows if change.after]
    assert found == expected


@pytest.mark.needs("xa_in_log")
@pytest.mark.parametrize("restarted", [False, True], ids=["flush", "restart"])
def test_latest_between_prepare_and_commit(own_server: ThrowawayServer, restarted: bool) -> None:
    """The rows lie before the start, the commit behind it: they are searched for and delivered."""
    server = own_server
    make_tables(server)
    one = session(server)
    do(one, "XA START 'early'", "INSERT INTO x.t VALUES (1, 'early')", "XA END 'early'", "XA PREPARE 'early'")
    leave(server, one)
    server.query("INSERT INTO x.t VALUES (100, 'makes durable what was prepared before it')")
    if restarted:
        server.restart()  # the log ends with STOP, or with nothing
    else:
        server.query("FLUSH BINARY LOGS")
    alarms: list[str] = []
    config = canal.InstanceConfig(
        destination="xa", source=source(server), filter=r"x\..*", alarm=lambda destination, text: alarms.append(text)
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        server.query("INSERT INTO x.t VALUES (2, 'plain')")
        two = session(server)
        do(two, "XA COMMIT 'early'")
        found: list[int] = []
        while len(found) < 2:
            message = instance.get_without_ack(100, timeout=60)
            assert message
            found += [change.after[0] for entry in message for change in entry.rows if change.after]
            instance.ack(message.id)
        assert found == [2, 1]
        server.query("INSERT INTO x.t VALUES (3, 'plain')")
        assert instance.get_without_ack(100, timeout=60)
    assert alarms == []  # the dump goes on while another connection reads


@pytest.mark.needs("xa_in_log")
def test_a_restart_at_any_entry_gives_exactly_the_rest(own_server: ThrowawayServer) -> None:
    """XA decided in another order and binlog, savepoints, mixed engines and large transactions, read in small pieces."""
    server = own_server
    make_tables(server)
    server.query(
        "SET GLOBAL transaction_isolation='READ-COMMITTED'"
        if server.kind == "mysql"
        else "SET GLOBAL tx_isolation='READ-COMMITTED'"
    )
    start = end_of_log(server)
    one = session(server, "x")
    do(one, "INSERT INTO t VALUES (1, 'x'), (2, 'x')")
    for name, values in (("a", "(10, ''), (11, '')"), ("b", "(20, '')"), ("gone", "(30, '')")):
        other = session(server, "x")
        do(
            other,
            f"XA START '{name}'",
            f"INSERT INTO t VALUES {values}",
            "SAVEPOINT s",
            f"INSERT INTO t VALUES (-{values[1:3]}, 'undone')",
            "ROLLBACK TO s",
            f"UPDATE t SET note = 'y' WHERE id = {values[1:3]}",
            f"XA END '{name}'",
            f"XA PREPARE '{name}'",
        )
        leave(server, other)
    do(one, "FLUSH BINARY LOGS", "BEGIN", "INSERT INTO t VALUES (3, '')", "SAVEPOINT s", "INSERT INTO t VALUES (4, 'undone')")
    if server.kind == "mariadb":  # MySQL refuses it with GTIDs on
        do(one, "INSERT INTO m VALUES (4)")
    do(one, "ROLLBACK TO s", "INSERT INTO t VALUES (5, '')", "COMMIT", "XA COMMIT 'b'", "XA ROLLBACK 'gone'")
    do(
        one,
        "XA START 'large'",
        *(f"INSERT INTO t VALUES ({n}, ''), ({n + 1}, '')" for n in range(100, 116, 2)),
        "XA END 'large'",
        "XA COMMIT 'large' ONE PHASE",
        "XA COMMIT 'a'",
        "INSERT INTO t VALUES (6, 'end')",
    )
    leave(server, one)

    def read(start: canal.Position) -> list[canal.Entry]:
        config = canal.InstanceConfig(destination="xa", source=source(server), start=start, filter=r"x\..*", store_entries=16)
        entries: list[canal.Entry] = []
        with canal.Instance(config) as instance:
            instance.subscribe()
            while not any(change.after[0] == 6 for entry in entries for change in entry.rows):
                message = instance.get_without_ack(5, timeout=60)
                assert message
                entries += message.entries
                instance.ack(message.id)
        return entries

    def told(entry: canal.Entry) -> tuple[Any, ...]:
        header, position = entry.header, entry.position
        return (
            header.gtid,
            header.journal,
            header.offset,
            header.ordinal,
            entry.event_type.name,
            entry.row_change.sql,
            [(change.before and tuple(change.before), tuple(change.after)) for change in entry.rows],
            position.journal,
            position.offset,
            position.row,
            position.gtid,
            position.xa,
        )

    entries = read(start)
    changes = [entry for entry in entries if entry.entry_type.name == "ROWDATA"]
    ids = [change.after[0] for entry in changes for change in entry.rows if change.before is None]
    assert [number for number in ids if number != 4] == [1, 2, 3, 5, 20, *range(100, 116), 10, 11, 6]
    last = max(stop for stop, entry in enumerate(entries) if entry is not changes[-1] and entry.entry_type.name == "ROWDATA")
    for stop in range(0, last + 1, 2):
        resumed = canal.Position.from_text(entries[stop].position.to_text())
        found = [told(entry) for entry in read(resumed) if entry.entry_type.name == "ROWDATA"]
        rest = [told(entry) for entry in entries[stop + 1 :] if entry.entry_type.name == "ROWDATA"]
        assert found == rest, (stop, entries[stop])


def test_savepoints_and_mixed_engines_give_what_the_tables_hold(own_server: ThrowawayServer) -> None:
    """T41"""
    server = own_server
    make_tables(server)
    reader = Reader(server, "earliest")
    one = session(server)
    do(one, "SET sql_mode=''")
    mixed = server.kind == "mariadb"  # MySQL refuses it with GTIDs on
    do(one, "BEGIN", "INSERT INTO x.t VALUES (1, 'kept')", "SAVEPOINT `S 1`", "INSERT INTO x.t VALUES (2, 'undone')")
    if mixed:
        do(one, "INSERT INTO x.m VALUES (50)")
    do(one, "ROLLBACK TO `s 1`", "INSERT INTO x.t VALUES (3, 'kept')", "COMMIT")
    do(one, "BEGIN", "INSERT INTO x.t VALUES (4, 'undone')")
    if mixed:
        do(one, "INSERT INTO x.m VALUES (51)")
    do(one, "ROLLBACK", "INSERT INTO x.m VALUES (52)", "INSERT INTO x.t VALUES (9, 'end')")
    expected: list[tuple[Any, ...]] = []
    for table in ("m", "t"):
        with one.cursor() as cursor:
            cursor.execute(f"SELECT * FROM x.{table}")
            expected += [("INSERT", *row) for row in cursor.fetchall()]
    assert sorted(reader.read(len(expected)), key=str) == sorted(expected, key=str)


@pytest.mark.every_line
def test_large_transactions_deliver_only_what_the_tables_hold(own_server: ThrowawayServer) -> None:
    """A temporary table that is made or dropped within a transaction makes servers log ROLLBACK."""
    server = own_server
    make_tables(server)
    reader = Reader(server, "earliest", store_entries=16)
    one = session(server)
    for number, end in ((100, "COMMIT"), (200, "ROLLBACK")):
        do(one, f"CREATE TEMPORARY TABLE x.early{number} (id INT)", "BEGIN", f"INSERT INTO x.t VALUES ({number}, '')")
        do(one, "SAVEPOINT a", *[f"INSERT INTO x.t VALUES ({number + row}, '')" for row in range(1, 30)])
        for statement in (f"DROP TEMPORARY TABLE x.early{number}", f"CREATE TEMPORARY TABLE x.late{number} (id INT)"):
            with contextlib.suppress(pymysql.err.OperationalError):  # some refuse it with GTIDs on
                do(one, statement)
        do(one, "ROLLBACK TO a", *[f"INSERT INTO x.t VALUES ({number + row}, '')" for row in range(30, 50)], end)
    do(one, "INSERT INTO x.t VALUES (300, '')")

    expected = [("INSERT", *row) for row in server.query("SELECT id, note FROM x.t")]
    assert len(expected) == 22
    assert reader.read(22) == expected


def test_tagged_gtids_of_a_server(mysql_server: ThrowawayServer) -> None:
    """T30: MySQL 8.3 and later give transactions tags; a cursor in the middle goes on exactly."""
    server = mysql_server
    make_tables(server)
    reader = Reader(server, end_of_log(server))
    for number, tag in enumerate(["", ":red", ":red", ":blue", "", ":red"]):
        connection = session(server)
        do(connection, f"SET gtid_next='AUTOMATIC{tag}'", f"INSERT INTO x.t VALUES ({number}, '{tag}')")
        connection.close()
    assert [row[1] for row in reader.read(6, size=1, restart_every=1)] == list(range(6))
    assert reader.position is not None
    with session(server).cursor() as cursor:
        done = reader.position.gtid
        cursor.execute("SELECT GTID_SUBTRACT(%s, @@gtid_executed), GTID_SUBTRACT(@@gtid_executed, %s)", [done, done])
        assert cursor.fetchone() == ("", "")
    server.query("DROP DATABASE x")
