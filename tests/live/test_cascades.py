"""T49: rows that a foreign key changes below the log are told of, once; where the server logs them they are delivered."""

from __future__ import annotations

import time

import pytest

import canal
from canal.testing import MySQLServer
from canal.testing.servers import ThrowawayServer
from tests.support.live import Watch, rows_of

NO_FOREIGN_KEY_CHECKS = 0x2
PARENT = [("parent", "INSERT", None, (1, 0)), ("parent", "INSERT", None, (2, 0)), ("parent", "INSERT", None, (3, 0))]
CHILD = [("child", "INSERT", None, (10, 1)), ("child", "INSERT", None, (11, 1)), ("child", "INSERT", None, (20, 2))]
DELETED = [("child", "DELETE", (10, 1), None), ("child", "DELETE", (11, 1), None)]
ORPHANED = [("child", "UPDATE", (20, 2), (20, None))]


def make_tables(watch: Watch, db: str) -> None:
    watch.run(
        f"CREATE TABLE {db}.parent (id INT PRIMARY KEY, v INT) ENGINE=InnoDB",
        f"CREATE TABLE {db}.child (id INT PRIMARY KEY, parent INT, CONSTRAINT fk FOREIGN KEY (parent)"
        " REFERENCES parent (id) ON DELETE CASCADE ON UPDATE SET NULL) ENGINE=InnoDB",
        f"CREATE TABLE {db}.strict (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent)"
        " REFERENCES parent (id) ON DELETE RESTRICT ON UPDATE NO ACTION) ENGINE=InnoDB",
    )


def changed(watch: Watch, db: str) -> list[canal.Entry]:
    watch.run(
        f"INSERT INTO {db}.parent VALUES (1, 0), (2, 0), (3, 0)",
        f"INSERT INTO {db}.child VALUES (10, 1), (11, 1), (20, 2)",
        f"DELETE FROM {db}.parent WHERE id = 1",
        f"UPDATE {db}.parent SET id = 22 WHERE id = 2",
        "SET foreign_key_checks = 0",
        f"DELETE FROM {db}.parent WHERE id = 3",
    )
    assert watch.server.query(f"SELECT id, parent FROM {db}.child") == [(20, None)]
    return watch.read()


def check_missing_and_told(server: ThrowawayServer, db: str) -> None:
    server.query("CREATE DATABASE IF NOT EXISTS " + db)
    with Watch(server, rf"{db}\..*") as watch:
        make_tables(watch, db)
        entries = changed(watch, db)
        assert [row for row in rows_of(entries) if row[1] not in ("CREATE",)] == [
            *PARENT,
            *CHILD,
            ("parent", "DELETE", (1, 0), None),
            ("parent", "UPDATE", (2, 0), (22, 0)),
            ("parent", "DELETE", (3, 0), None),
        ]
        flags = [entry.header.row_flags & NO_FOREIGN_KEY_CHECKS for entry in entries if entry.rows]
        assert flags == [0, 0, 0, 0, NO_FOREIGN_KEY_CHECKS]
        # found in the text of the CREATE TABLE
        assert len(watch.alarms) == 1
        for word in (f"{db}.child", f"{db}.parent", "ON DELETE CASCADE and ON UPDATE SET NULL", "innodb_native_foreign_keys"):
            assert word in watch.alarms[0]
        watch.run(
            f"CREATE TABLE {db}.later (id INT PRIMARY KEY, child INT) ENGINE=InnoDB",
            f"ALTER TABLE {db}.later ADD FOREIGN KEY (child) REFERENCES {db}.child (id) ON DELETE SET NULL",
        )
        watch.read()
        assert len(watch.alarms) == 2
        assert f"{db}.later" in watch.alarms[1]

    with Watch(server, rf"{db}\.(parent|child)") as watch:  # found in information_schema
        assert watch.read() == []
        assert len(watch.alarms) == 1
        assert f"{db}.child" in watch.alarms[0]
    with Watch(server, rf"{db}\.parent") as watch:
        assert watch.read() == []
        assert watch.alarms == []


def test_mariadb_does_not_log_them(mariadb_server: ThrowawayServer) -> None:
    check_missing_and_told(mariadb_server, "cascades")


def test_mysql_with_native_foreign_keys_does_not_log_them(mysql_server: ThrowawayServer) -> None:
    with MySQLServer("--binlog-row-metadata=FULL", "--innodb-native-foreign-keys=ON") as server:
        check_missing_and_told(server, "cascades")


def test_mysql_as_a_replica_may_not_log_them(mysql_server: ThrowawayServer) -> None:
    """Its log has only the cascades that its source's log has."""
    native = MySQLServer("--innodb-native-foreign-keys=ON")
    with native, MySQLServer("--binlog-row-metadata=FULL", server_id=2) as replica:
        with native.connect() as connection, connection.cursor() as cursor:
            for sql in (
                "CREATE DATABASE d",
                "CREATE TABLE d.p (id INT PRIMARY KEY)",
                "CREATE TABLE d.c (id INT, FOREIGN KEY (id) REFERENCES p (id) ON DELETE CASCADE)",
                "INSERT INTO d.p VALUES (1)",
                "INSERT INTO d.c VALUES (1)",
                "DELETE FROM d.p",
                "CREATE TABLE d.done (id INT)",
            ):
                cursor.execute(sql)
        replica.query(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {native.port}, SOURCE_USER = 'cdc',"
            " SOURCE_PASSWORD = 'cdc', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
        )
        replica.query("START REPLICA")
        with Watch(replica, r"d\.[pc]", start="earliest") as watch:
            while ("done",) not in tables_of(replica):
                time.sleep(0.05)
            found = [row for row in rows_of(watch.read()) if row[1] != "CREATE"]
        assert replica.query("SELECT * FROM d.c") == []
    assert found == [("p", "INSERT", None, (1,)), ("c", "INSERT", None, (1,)), ("p", "DELETE", (1,), None)]
    (alarm,) = watch.alarms
    assert "d.c" in alarm


def tables_of(server: ThrowawayServer) -> list[tuple[str]]:
    return server.query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'd'")


def test_mysql_logs_them(mysql_server: ThrowawayServer) -> None:
    if mysql_server.query("SHOW VARIABLES LIKE 'innodb_native_foreign_keys'") != [("innodb_native_foreign_keys", "OFF")]:
        pytest.fail("this MySQL is older than 9.6")
    mysql_server.query("CREATE DATABASE IF NOT EXISTS cascades")
    with Watch(mysql_server, r"cascades\..*") as watch:
        make_tables(watch, "cascades")
        entries = changed(watch, "cascades")

        assert [row for row in rows_of(entries) if row[1] not in ("CREATE",)] == [
            *PARENT,
            *CHILD,
            *DELETED,
            ("parent", "DELETE", (1, 0), None),
            *ORPHANED,
            ("parent", "UPDATE", (2, 0), (22, 0)),
            ("parent", "DELETE", (3, 0), None),
        ]
        assert watch.alarms == []
    mysql_server.query("DROP DATABASE cascades")
