"""What real servers write into their logs beside plain rows: several maps, partitions, old charsets, GTIDs of no log.

``T..`` is the number of the trap in docs/traps.md that a test is about.
"""

from __future__ import annotations

from typing import Any

import pytest

import canal
from canal.testing.servers import ThrowawayServer
from tests.support.journal import Change
from tests.support.live import Reader, end_of_log, source


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


@pytest.mark.needs("full_metadata")  # read when the tables are gone
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
        "ALTER TABLE p TRUNCATE PARTITION p2",
        "TRUNCATE TABLE a",
        "CREATE TABLE gone (id INT)",
        "DROP DATABASE",
    ]


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
                message = instance.get_without_ack(1, timeout=60)
                assert message
                entries += message.entries
                instance.ack(message.id)
        first = entries[-1].position

        assert latest.gtid_set == canal.Position(gtid=executed).gtid_set
        assert len(latest.gtid) > 1024
        assert first.gtid_set == latest.gtid_set
        for start in (first, latest, canal.Position(gtid=latest.gtid)):
            assert [change[4] for change in delivered(server, start, filter=r"d\..*")] == [{"id": 2}]
