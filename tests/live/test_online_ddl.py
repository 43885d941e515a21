"""T77: a table that gh-ost or pt-online-schema-change alters under load gives its own changes, and nothing of the copy.

The tools' statements are played in the order and form in which the tools send them.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import canal
from canal.testing.servers import ThrowawayServer
from tests.support.live import Watch, source

ROWS = 60


class Writer(threading.Thread):
    """One session that changes ``t`` all the time and keeps what it has committed: (type, id, v)."""

    def __init__(self, server: ThrowawayServer, database: str) -> None:
        super().__init__()
        self.done: list[tuple[str, int, int]] = []
        self.rows: dict[int, int] = {}
        self.failure: BaseException | None = None
        self.pausing = threading.Lock()
        self._random = random.Random(7)
        self._connection = server.connect(database=database)
        self._ending = threading.Event()
        for _ in range(ROWS):
            self.change("INSERT")

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                with self.pausing:
                    self.change(self._random.choice(("INSERT", "UPDATE", "UPDATE", "DELETE")))
                time.sleep(0.002)
        except BaseException as error:
            self.failure = error

    def change(self, what: str) -> None:
        id = len(self.done) + 1 if what == "INSERT" else self._random.choice(list(self.rows))
        v = self.rows.get(id, 0) + (what == "UPDATE")
        sql = {
            "INSERT": f"INSERT INTO t (id, v) VALUES ({id}, {v})",
            "UPDATE": f"UPDATE t SET v = {v} WHERE id = {id}",
            "DELETE": f"DELETE FROM t WHERE id = {id}",
        }[what]
        with self._connection.cursor() as cursor:
            assert cursor.execute(sql) == 1
        self.done.append((what, id, v))
        if what == "DELETE":
            del self.rows[id]
        else:
            self.rows[id] = v

    def end(self) -> None:
        self._ending.set()
        self.join(30)
        self._connection.close()
        assert self.failure is None


def gh_ost(server: ThrowawayServer, db: str, writer: Writer) -> None:
    def run(sql: str) -> list[tuple[Any, ...]]:
        return server.query(sql.replace("DB.", f"`{db}`."))

    run("drop /* gh-ost */ table if exists DB.`_t_gho`")
    run(
        "create /* gh-ost */ table DB.`_t_ghc` (id bigint unsigned auto_increment, last_update timestamp not null DEFAULT"
        " CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, hint varchar(64) charset ascii not null, value varchar(4096) charset"
        " ascii not null, primary key(id), unique key hint_uidx(hint)) auto_increment=256"
    )
    run("create /* gh-ost */ table DB.`_t_gho` like DB.`t`")
    run("alter /* gh-ost */ table DB.`_t_gho` ADD COLUMN extra INT NOT NULL DEFAULT 5 AFTER id")
    run(
        "insert /* gh-ost */ into DB.`_t_ghc` (id, hint, value) values (1, 'state', 'GhostTableMigrated') on duplicate key"
        " update last_update=NOW(), value=VALUES(value)"
    )
    for low in range(0, ROWS, 20):
        run(
            f"insert /* gh-ost DB.`t` */ ignore into DB.`_t_gho` (`id`, `v`) (select `id`, `v` from DB.`t` force index"
            f" (`PRIMARY`) where ((`id` > {low}) and (`id` <= {low + 20})) lock in share mode)"
        )
        run(f"replace /* gh-ost DB.`_t_gho` */ into DB.`_t_gho` (`id`, `v`) values ({low + 1}, 0)")
        time.sleep(0.05)
    run("create /* gh-ost */ table DB.`_t_del` (id int auto_increment primary key) engine=InnoDB comment='ghost-cut-over-sentry'")
    # The server lets the RENAME wait for the tables one by one: a change may come between it and the copy, and be lost.
    with writer.pausing, server.connect(database=db) as connection, connection.cursor() as cursor:
        cursor.execute(f"lock /* gh-ost */ tables `{db}`.`t` write, `{db}`.`_t_del` write")
        cursor.execute("SELECT id, v FROM t")
        now = cursor.fetchall()
        run("delete /* gh-ost DB.`_t_gho` */ from DB.`_t_gho`")  # stands for the rest of the log that gh-ost applies
        run("replace /* gh-ost DB.`_t_gho` */ into DB.`_t_gho` (id, v) values " + ", ".join(map(str, now)))
        swap = "rename /* gh-ost */ table DB.`t` to DB.`_t_del`, DB.`_t_gho` to DB.`t`"
        renaming = threading.Thread(target=run, args=(swap,))
        renaming.start()
        waiting = "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'rename%' AND state LIKE '%metadata lock%'"
        while not run(waiting):
            time.sleep(0.02)
        cursor.execute(f"drop /* gh-ost */ table if exists `{db}`.`_t_del`")
        cursor.execute("unlock /* gh-ost */ tables")
        renaming.join(30)
    run("drop /* gh-ost */ table if exists DB.`_t_ghc`")
    run("drop /* gh-ost */ table if exists DB.`_t_del`")


def pt_osc(server: ThrowawayServer, db: str, writer: Writer) -> None:
    def run(sql: str) -> list[tuple[Any, ...]]:
        return server.query(sql.replace("DB.", f"`{db}`."))

    run("CREATE TABLE DB.`_t_new` (`id` int NOT NULL, `v` int DEFAULT NULL, PRIMARY KEY (`id`)) ENGINE=InnoDB")
    run("ALTER TABLE DB.`_t_new` ADD COLUMN extra INT NOT NULL DEFAULT 5 AFTER id")
    begin = "FOR EACH ROW BEGIN DECLARE CONTINUE HANDLER FOR 1146 begin end; "
    run(
        f"CREATE TRIGGER DB.`pt_osc_x_t_del` AFTER DELETE ON DB.`t` {begin}"
        "DELETE IGNORE FROM DB.`_t_new` WHERE DB.`_t_new`.`id` <=> OLD.`id`; END"
    )
    run(
        f"CREATE TRIGGER DB.`pt_osc_x_t_upd` AFTER UPDATE ON DB.`t` {begin}"
        "DELETE IGNORE FROM DB.`_t_new` WHERE !(OLD.`id` <=> NEW.`id`) AND DB.`_t_new`.`id` <=> OLD.`id`; "
        "REPLACE INTO DB.`_t_new` (`id`, `v`) VALUES (NEW.`id`, NEW.`v`); END"
    )
    run(
        f"CREATE TRIGGER DB.`pt_osc_x_t_ins` AFTER INSERT ON DB.`t` {begin}"
        "REPLACE INTO DB.`_t_new` (`id`, `v`) VALUES (NEW.`id`, NEW.`v`); END"
    )
    for low in range(0, len(writer.done) + ROWS, 20):
        run(
            f"INSERT LOW_PRIORITY IGNORE INTO DB.`_t_new` (`id`, `v`) SELECT `id`, `v` FROM DB.`t` FORCE INDEX(`PRIMARY`)"
            f" WHERE ((`id` >= {low})) AND ((`id` <= {low + 20})) LOCK IN SHARE MODE /*pt-online-schema-change 1 copy nibble*/"
        )
        time.sleep(0.02)
    run("ANALYZE TABLE DB.`_t_new` /* pt-online-schema-change */")
    run("RENAME TABLE DB.`t` TO DB.`_t_old`, DB.`_t_new` TO DB.`t`")
    run("DROP TABLE IF EXISTS DB.`_t_old`")
    for end in ("del", "upd", "ins"):
        run(f"DROP TRIGGER IF EXISTS DB.`pt_osc_x_t_{end}`")


@pytest.mark.parametrize("tool", [gh_ost, pt_osc])
@pytest.mark.needs("full_image")
def test_a_migration_under_load(
    server: ThrowawayServer, database: str, tool: Callable[[ThrowawayServer, str, Writer], None]
) -> None:
    server.query(f"CREATE TABLE `{database}`.t (id INT NOT NULL PRIMARY KEY, v INT) ENGINE=InnoDB")
    any_table = rf"{database}\..*"
    with Watch(server, any_table) as watch, Watch(server, any_table, shadow_tables=True) as watch_all:
        writer = Writer(server, database)
        writer.start()
        try:
            tool(server, database, writer)
            enough = len(writer.done) + 20  # of the new table
            while len(writer.done) < enough and writer.is_alive():
                time.sleep(0.01)
        finally:
            writer.end()
        entries, everything = watch.read(), watch_all.read()
    assert dict(server.query(f"SELECT id, v FROM `{database}`.t")) == writer.rows

    assert [(type, row["id"], row["v"]) for type, row in changes(entries)] == writer.done
    (swap,) = [number for number, entry in enumerate(entries) if entry.is_ddl]
    alter = entries[swap]
    assert (alter.event_type, alter.header.tables) == (canal.EventType.ALTER, ((database, "t"),))
    assert "rename" in (alter.row_change.sql or "").lower()
    assert {tuple(row.keys()) for _, row in changes(entries[:swap])} == {("id", "v")}
    assert {tuple(row.keys()) for _, row in changes(entries[swap:])} == {("id", "extra", "v")}
    assert {row["extra"] for type, row in changes(entries[swap:])} == {5}
    assert {table for entry in entries for _, table in entry.header.tables} == {"t"}
    assert watch.alarms == []  # the log shows whose the tables are

    own = [entry for entry in everything if entry.header.table == "t" and entry.rows]
    assert [(type, row["id"], row["v"]) for type, row in changes(own)] == writer.done
    suffixes = ("gho", "ghc", "del") if tool is gh_ost else ("new", "old")
    tables = {table for entry in everything for _, table in entry.header.tables}
    assert tables == {"t", *(f"_t_{suffix}" for suffix in suffixes)}
    assert [e.header.tables[0][1] for e in everything if e.event_type is canal.EventType.RENAME] == ["t"]


def test_a_table_that_another_takes_the_place_of_is_found_at_any_time(server: ThrowawayServer, database: str) -> None:
    server.query(f"CREATE TABLE `{database}`.t (id INT)")
    server.query(f"CREATE TABLE `{database}`._t_gho (id INT)")
    ending = threading.Event()

    def rename() -> None:
        with server.connect(database=database) as connection, connection.cursor() as cursor:
            while not ending.is_set():
                cursor.execute("RENAME TABLE t TO _t_del, _t_gho TO t")
                cursor.execute("RENAME TABLE t TO _t_gho, _t_del TO t")

    thread = threading.Thread(target=rename)
    thread.start()
    try:
        connection = source(server).connect()
        answers = [connection.tables_like(database, "t", is_prefix=False) for _ in range(1000)]
        connection.close()
    finally:
        ending.set()
        thread.join(30)
    assert answers == [["t"]] * 1000


def changes(entries: list[canal.Entry]) -> list[tuple[str, canal.Row]]:
    """(type, the row's last image) of every row change."""
    return [(e.event_type.name, row.after or row.before) for e in entries for row in e.rows]  # type: ignore[misc]
