"""What real servers write into their logs beside plain rows: several maps, partitions, compression, crashes, old charsets.

``T..`` is the number of the trap in docs/traps.md that a test is about.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import canal
from canal.testing.journal import Change
from canal.testing.servers import ThrowawayServer
from tests.live.helpers import Reader, end_of_log, source


def delivered(server: ThrowawayServer, start: canal.Position | str, **options: Any) -> list[Change]:
    """Everything from ``start`` up to the server's present end."""
    config = canal.InstanceConfig(destination="odd", source=source(server), start=start, **options)
    with canal.Instance(config) as instance:
        instance.subscribe()
        with Reader(instance) as reader:
            return reader.read_up_to(end_of_log(server))


def tables_after(changes: list[Change]) -> dict[str, dict[Any, dict[str, Any]]]:
    """Rows by their first column, by table; every change must fit the row that it changes."""
    tables: dict[str, dict[Any, dict[str, Any]]] = {}
    for _, table, operation, before, after in changes:
        rows = tables.setdefault(table, {})
        if operation == "DDL":
            continue
        if before is not None:
            assert rows.pop(next(iter(before.values()))) == before
        if after is not None:
            key = next(iter(after.values()))
            assert key not in rows
            rows[key] = dict(after)
    return tables


def statements(changes: list[Change]) -> list[str]:
    return [after["sql"] for _, _, operation, _, after in changes if operation == "DDL" and after is not None]


def test_statements_on_several_tables_and_on_partitions(server: ThrowawayServer, database: str) -> None:
    """T3: several maps before the rows. T4: new table ids. T19: partition numbers. T48: TRUNCATE and DROP are entries."""
    server.query(f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY, text VARCHAR(200))")
    server.query(f"CREATE TABLE `{database}`.b (id INT PRIMARY KEY, text VARCHAR(200))")
    server.query(
        f"CREATE TABLE `{database}`.p (id INT PRIMARY KEY, x INT) PARTITION BY RANGE (id)"
        " (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20), PARTITION p2 VALUES LESS THAN (99))"
    )
    start = end_of_log(server)
    with server.connect(database=database, autocommit=True) as connection, connection.cursor() as cursor:
        numbers = ",".join(f"({n}, REPEAT('x', 150))" for n in range(300))
        cursor.execute(f"INSERT INTO a VALUES {numbers}")
        cursor.execute("INSERT INTO b SELECT * FROM a")
        cursor.execute("UPDATE a JOIN b USING (id) SET a.text = CONCAT('a', id), b.text = REPEAT('b', id % 199)")
        cursor.execute("FLUSH TABLES")
        cursor.execute("DELETE a, b FROM a JOIN b USING (id) WHERE id % 3 = 0")
        cursor.execute("INSERT INTO p VALUES (1, 1), (11, 11), (2, 2), (55, 55)")
        cursor.execute("UPDATE p SET id = id + 9 WHERE id < 12 ORDER BY id DESC")
        cursor.execute("UPDATE p SET id = id + 20, x = x + 1 WHERE id < 12")
        expected = {}
        for table in ("a", "b", "p"):
            cursor.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            expected[table] = {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}
        cursor.execute("ALTER TABLE p TRUNCATE PARTITION p2")
        cursor.execute("TRUNCATE TABLE a")
        cursor.execute("CREATE TABLE gone (id INT)")
        cursor.execute(f"DROP DATABASE `{database}`")

    changes = delivered(server, start, filter=rf"{database}\..*")

    assert tables_after([change for change in changes if change[2] != "DDL"]) == expected
    assert [sql.split("`")[0].strip() for sql in statements(changes)] == [
        "ALTER TABLE p TRUNCATE PARTITION p2", "TRUNCATE TABLE a", "CREATE TABLE gone (id INT)", "DROP DATABASE",
    ]  # fmt: skip


def test_compressed_transactions_of_mysql(mysql_server: ThrowawayServer) -> None:
    """T37: rows of a TRANSACTION_PAYLOAD. T38: one of whose rows the filter leaves nothing."""
    mysql_server.query("CREATE DATABASE IF NOT EXISTS packed")
    start = end_of_log(mysql_server)
    with mysql_server.connect(database="packed", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET binlog_transaction_compression = ON, binlog_rows_query_log_events = ON")
        cursor.execute("CREATE TABLE a (id INT PRIMARY KEY, text TEXT)")
        cursor.execute("CREATE TABLE b (id INT PRIMARY KEY, text TEXT)")
        for n in range(3):
            cursor.execute("BEGIN")
            cursor.execute(f"INSERT INTO a VALUES ({n}, REPEAT('x', 5000)), ({n + 10}, NULL)")
            cursor.execute(f"UPDATE a SET text = 'y' WHERE id = {n}")
            if n:
                cursor.execute(f"INSERT INTO b VALUES ({n}, REPEAT('z', 60000))")
            cursor.execute("COMMIT")
    raw = b"".join(path.read_bytes() for path in mysql_server.binlog_paths())
    assert b"y" * 3 not in raw
    assert b"z" * 100 not in raw, "the server did not compress"

    both = tables_after(delivered(mysql_server, start, filter=r"packed\..*"))
    one = tables_after(delivered(mysql_server, start, filter=r"packed\.b"))

    assert {n: row["text"] for n, row in both["a"].items()} == {0: "y", 1: "y", 2: "y", 10: None, 11: None, 12: None}
    assert both["b"] == one["b"] == {n: {"id": n, "text": "z" * 60000} for n in (1, 2)}
    assert "a" not in one


@pytest.mark.timeout(180)
def test_a_log_through_crashes_restarts_and_changed_checksums(own_server: ThrowawayServer, tmp_path: Path) -> None:
    """T15: checksums go off and on. T35: STOP, and logs that a crash ended. T39: MariaDB's compressed events. T42: a
    MEMORY table that a restart emptied. Read as it happens, and again afterwards."""
    is_mariadb = own_server.kind == "mariadb"
    own_server.query("CREATE DATABASE odd")
    own_server.query("CREATE TABLE odd.t (id INT PRIMARY KEY, text VARCHAR(500))")
    own_server.query("CREATE TABLE odd.m (id INT PRIMARY KEY) ENGINE=MEMORY")
    start = end_of_log(own_server)
    lost: list[str] = []
    config = canal.InstanceConfig(
        destination="odd", source=source(own_server, heartbeat_interval=0.5), filter=r"odd\..*", start=start,
        meta=canal.FileMeta(tmp_path), reconnect_backoff=(0.05, 0.5), alarm=lambda destination, text: lost.append(text),
    )  # fmt: skip
    number = 0

    def write() -> None:
        nonlocal number
        for _ in range(2):
            number += 1
            own_server.query(f"INSERT INTO odd.t VALUES ({number}, REPEAT('{number % 10}', 400))")
        own_server.query(f"UPDATE odd.t SET text = NULL WHERE id = {number}")

    with canal.Instance(config) as instance:
        instance.subscribe()
        with Reader(instance) as reader:
            own_server.query("INSERT INTO odd.m VALUES (1), (2)")
            for algorithm in ("NONE", "CRC32"):
                own_server.query(f"SET GLOBAL binlog_checksum = {algorithm}")
                write()
            if is_mariadb:
                own_server.query("SET GLOBAL log_bin_compress_min_len = 10")
                own_server.query("SET GLOBAL log_bin_compress = ON")
                write()
                assert b"7" * 100 not in b"".join(path.read_bytes() for path in own_server.binlog_paths())
            own_server.kill()
            own_server.restart()
            own_server.query("SELECT * FROM odd.m")  # notices that its rows are gone
            write()
            own_server.restart()
            write()
            live = reader.read_up_to(end_of_log(own_server))

    rows = {n: {"id": n, "text": None if n % 2 == 0 else str(n % 10) * 400} for n in range(1, number + 1)}
    for changes in (live, delivered(own_server, start, filter=r"odd\..*")):
        assert tables_after(changes)["t"] == rows
        assert [change[2] for change in changes if change[1] == "m"] == ["INSERT", "INSERT", "DDL"]
        assert [sql.partition(" `")[0] for sql in statements(changes)] == ["TRUNCATE TABLE"]
    assert lost


def test_statements_of_a_session_in_latin1(server: ThrowawayServer, database: str) -> None:
    """T66: the text of a statement, and names in it, are in the character set of the session that ran it."""
    start = end_of_log(server)
    with server.connect(database=database, charset="latin1", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE `tür` (id INT PRIMARY KEY, `größe` VARCHAR(9) COMMENT 'é€')")
        cursor.execute("INSERT INTO `tür` VALUES (1, 'ñ')")

    create, insert = delivered(server, start, filter=rf"{database}\..*")

    assert create[4] == {"sql": "CREATE TABLE `tür` (id INT PRIMARY KEY, `größe` VARCHAR(9) COMMENT 'é€')"}
    assert insert[1:] == ("tür", "INSERT", None, {"id": 1, "größe": "ñ"})


@pytest.mark.timeout(120)
def test_gtids_that_are_in_no_log(mysql_server: ThrowawayServer) -> None:
    """T32: gtid_purged is not empty, and a start at either end works, and a restart after it. T29: the set is long."""
    foreign = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    long = f"{foreign}:" + ":".join(str(2 * n + 1) for n in range(1000))
    with type(mysql_server)("--binlog-row-metadata=FULL") as server:
        server.query(f"SET @@GLOBAL.gtid_purged = '+{long}'")
        server.query("CREATE DATABASE d")
        server.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
        server.query("INSERT INTO d.t VALUES (1)")

        latest = end_of_log(server)
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT @@global.gtid_executed")
            executed = cursor.fetchone()[0]
        server.query("INSERT INTO d.t VALUES (2)")
        config = canal.InstanceConfig(destination="d", source=source(server), start="earliest", filter=r"d\..*")
        with canal.Instance(config) as instance:
            instance.subscribe()
            entries = []
            while not entries or not entries[-1].is_end or entries[-1].transaction.row_count == 0:
                message = instance.get_without_ack(1, timeout=20)
                assert message
                entries += message.entries
                instance.ack(message.id)
        first = entries[-1].position

        assert latest.gtid_set == canal.Position(gtid=executed).gtid_set
        assert len(latest.gtid) > 1024
        assert first.gtid_set == latest.gtid_set
        for start in (first, latest, canal.Position(gtid=latest.gtid)):
            assert [change[4] for change in delivered(server, start, filter=r"d\..*")] == [{"id": 2}]
