"""Servers of two lines in one replication, as in an upgrade: a replica of the next line takes over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.lines import BY_NAME
from tests.support.live import replica_word, source, wait_for_row

NEVER = canal.Heartbeat(interval=3600.0)
#: Types that all lines have.
COLUMNS = (
    "id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(300), t TIME, d DATETIME, ts TIMESTAMP NULL, da DATE, n DECIMAL(20,5), "
    "e ENUM('a','b'), s SET('x','y','z'), b BIT(11), bl MEDIUMBLOB, tx LONGTEXT, c CHAR(20), bi BIGINT UNSIGNED, f FLOAT, "
    "db DOUBLE, y YEAR"
)
VALUES = (
    r"('a', '-838:59:59', '1000-01-01 00:00:00', '1971-01-01 00:00:01', '1000-01-01', -1.5, 'a', 'x,y', 5, '\0bc', 't', 'c  ', "
    "18446744073709551615, 1.5, -2.5, 1901)",
    "(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    "('b', '-00:00:01', '9999-12-31 23:59:58', '2037-01-19 03:14:07', '9999-12-31', 99999.99999, 'b', '', 2047, '', '', '', 0, "
    "0, 0, 2155)",
    f"('c', '12:34:56', '2024-02-29 12:34:56', NULL, '2024-02-29', 0, 'b', 'z', 0, '{'z' * 300}', 'x', 'y', 1, NULL, 3, 2000)",
)
FRACTIONS = "id INT PRIMARY KEY, t TIME(3), d DATETIME(6), ts TIMESTAMP(2) NULL"
FRACTION = "'-01:02:03.004', '2024-01-01 00:00:00.123456', '2024-01-01 00:00:00.12'"


@attrs.frozen
class Step:
    """An old line and a new one whose server can be its replica; ``gtid`` turns MySQL's GTIDs on where there are any."""

    old: Line
    new: Line
    gtid: bool

    @property
    def name(self) -> str:
        off = "" if self.gtid or not self.old.can("gtid") else "-without-gtids"
        return f"{self.old.name}-to-{self.new.name}{off}"

    @property
    def shares_gtids(self) -> bool:
        return self.gtid and self.old.kind == self.new.kind and self.old.can("gtid")

    def both_can(self, ability: str) -> bool:
        return self.old.can(ability) and self.new.can(ability)

    def server(self, line: Line, number: int) -> ThrowawayServer:
        options = ["--binlog-row-metadata=MINIMAL"] if line.can("full_metadata") else []
        if line.kind == "mysql" and line.can("gtid") and not (self.gtid and self.old.can("gtid")):
            options += ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]
        return line.server(*options, server_id=number)

    @contextmanager
    def pair(self) -> Iterator[tuple[ThrowawayServer, ThrowawayServer]]:
        with ExitStack() as servers:
            first = servers.enter_context(self.server(self.old, 1))
            second = servers.enter_context(self.server(self.new, 2))
            second.replicate(first, gtid=self.shares_gtids)
            yield first, second


def is_wanted(line: str, usual: bool) -> bool:
    """Whether a test is run: one of each kind usually, those of the lines that the matrix names else."""
    wanted = os.environ.get("CANAL_TEST_LINES", "")
    return usual if not wanted else wanted == "all" or line in wanted.split()


def steps() -> Iterator[Any]:
    chains = (
        ("mysql-5.5", "mysql-5.6", "mysql-5.7", "mysql-8.0.12", "mysql-8.0", "mysql-9.7"),
        ("mariadb-10.1", "mariadb-10.2", "mariadb-10.5", "mariadb-10.11", "mariadb-11.4", "mariadb-11.8"),
    )
    pairs = [pair for chain in chains for pair in zip(chain, chain[1:])]
    pairs += [
        ("mysql-5.7", "mysql-8.0"),
        ("mysql-5.5", "mariadb-10.1"),
        ("mysql-5.6", "mariadb-10.1"),
        ("mysql-5.6", "mariadb-10.2"),
        ("mysql-5.7", "mariadb-10.2"),
        ("mysql-5.7", "mariadb-10.11"),
        ("mysql-5.7", "mariadb-11.8"),
    ]
    usual = (
        "mysql-5.5-to-mysql-5.6",
        "mysql-5.7-to-mysql-8.0-without-gtids",
        "mysql-5.7-to-mariadb-10.11",
        "mariadb-10.2-to-mariadb-10.5",
    )
    for old, new in pairs:
        for gtid in (True, False) if BY_NAME[old].can("gtid") and old.startswith("mysql") else (True,):
            one = Step(Line(BY_NAME[old]), Line(BY_NAME[new]), gtid)
            if is_wanted(old, one.name in usual):
                yield pytest.param(one, id=one.name)


class Following:
    """An instance without column names in the log, its alarms, and what it delivers."""

    def __init__(self, folder: Path, first: ThrowawayServer, second: ThrowawayServer | None = None) -> None:
        self.alarms: list[str] = []
        config = canal.InstanceConfig(
            destination="step",
            source=_source(first),
            standby=None if second is None else _source(second),
            filter=r"d\..*",
            meta=canal.FileMeta(folder),
            heartbeat=NEVER,
            alarm=lambda destination, text: self.alarms.append(text),
        )
        self.instance = canal.Instance(config)

    def __enter__(self) -> Following:
        self.instance.start()
        self.instance.subscribe()
        return self

    def __exit__(self, *_: object) -> None:
        self.instance.stop()

    def read(self, table: str, id: int) -> list[tuple[Any, ...]]:
        """The changes up to the insert of a row, and all that come at once."""
        found: list[tuple[Any, ...]] = []
        while ("INSERT", table, id) not in [(one[0], one[1], one[3] and one[3]["id"]) for one in found]:
            message = self.instance.get(1000, timeout=60)
            assert message, (found, self.alarms)
            found += changes_of(message)
        return found + changes_of(self.instance.get(1000, timeout=0.2))


def changes_of(message: canal.Message) -> list[tuple[Any, ...]]:
    return [
        (entry.event_type.name, entry.header.table, row.before and row.before.as_dict(), row.after and row.after.as_dict())
        for entry in message.entries
        if entry.entry_type is canal.EntryType.ROWDATA
        for row in entry.rows or [canal.ChangedRow(None, None)]
    ]


def _source(server: ThrowawayServer) -> canal.MySQLSource:
    return source(server, ssl_mode="DISABLED")


def write(step: Step, server: ThrowawayServer, round: int) -> None:
    """The same in each round, with tables of its own, and then a column more of a table that stays."""
    statements = [f"CREATE TABLE t{round} ({COLUMNS})"]
    statements += [f"INSERT INTO t{round} VALUES ({number}, {row[1:]}" for number, row in enumerate(VALUES, 1)]
    statements += [
        f"UPDATE t{round} SET tx = 'other', d = '2001-02-03 04:05:06' WHERE id > 2",
        f"UPDATE t{round} SET ts = '2020-01-01 00:00:00', t = '-01:02:03'",
        f"DELETE FROM t{round} WHERE id = 2",
        "CREATE TABLE gone (id INT)",
        "DROP TABLE gone",
        f"ALTER TABLE t{round} DROP COLUMN v, CHANGE n renamed DECIMAL(20,5), ADD COLUMN front INT FIRST",
        f"UPDATE t{round} SET front = id",
    ]
    if step.both_can("fractional"):
        statements += [f"CREATE TABLE f{round} ({FRACTIONS})", f"INSERT INTO f{round} VALUES (1, {FRACTION})"]
    if step.both_can("json") and step.old.kind == step.new.kind:
        statements += [f"CREATE TABLE j{round} (id INT PRIMARY KEY, j JSON)", f"INSERT INTO j{round} VALUES (1, '[{{}}, 1]')"]
    if not step.gtid:
        statements += [f"CREATE TABLE s{round} SELECT id, d FROM t{round}"]
    statements += [
        "BEGIN",
        f"INSERT INTO t{round} (id) VALUES (100), (101)",
        f"DELETE FROM t{round} WHERE id = 101",
        "COMMIT",
        f"INSERT INTO kept (id, a) VALUES ({10 * round}, 1)",
        f"ALTER TABLE kept ADD COLUMN c{round} INT FIRST",
        f"INSERT INTO kept (c{round}, id, a) VALUES (5, {10 * round + 1}, 2)",
    ]
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
        cursor.execute("USE d")
        for sql in statements:
            cursor.execute(sql)


@pytest.mark.parametrize("step", list(steps()))
def test_a_replica_of_the_next_line_takes_over(step: Step, tmp_path: Path) -> None:
    """The switch is exact, whatever the lines have in common, and the schema history goes on."""
    with step.pair() as (first, second):
        first.query("CREATE DATABASE d")
        first.query("CREATE TABLE d.kept (id INT PRIMARY KEY, a INT)")
        wait_for_row(second, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'd'")
        with Following(tmp_path, first, second) as following:
            write(step, first, 0)
            before = following.read("kept", 1)
            wait_for_row(second, "SELECT COUNT(*) FROM d.kept WHERE id = 1")
            assert following.instance.switch()
            second.stop_replication()
            write(step, second, 1)
            after = following.read("kept", 11)
        first.stop()
        with Following(tmp_path, second) as again:
            second.query("INSERT INTO d.kept (c1, c0, id, a) VALUES (7, 6, 20, 3)")
            last = again.read("kept", 20)

    assert [text for text in following.alarms + again.alarms if "anew" in text or "again" in text or "not used" in text] == []
    assert before[-1][3] == {"c0": 5, "id": 1, "a": 2}
    assert after[-1][3] == {"c1": 5, "c0": None, "id": 11, "a": 2}
    assert [one[3] for one in last] == [{"c1": 7, "c0": 6, "id": 20, "a": 3}]
    own = [(kind, table.replace("1", "0"), *rows) for kind, table, *rows in after if table != "kept"]
    assert own == [one for one in before if one[1] != "kept"]


@pytest.mark.parametrize("step", list(steps()))
def test_a_replica_of_the_next_line_that_lacks_the_last_transactions(step: Step, tmp_path: Path) -> None:
    """They come again if it gets them, and no others; the schema history goes on where none of them changed a schema."""
    with step.pair() as (first, second):
        first.query("CREATE DATABASE d")
        first.query("CREATE TABLE d.t (id INT PRIMARY KEY, a INT, moment DATETIME)")
        with Following(tmp_path, first, second) as following:
            first.query("ALTER TABLE d.t ADD COLUMN b INT FIRST")
            for id in (1, 2, 3):
                first.query(f"INSERT INTO d.t (id, moment) VALUES ({id}, '2020-01-01 00:00:00')")
            following.read("t", 3)
            wait_for_row(second, "SELECT COUNT(*) FROM d.t WHERE id = 3")
            second.query(f"STOP {replica_word(second)} IO_THREAD")
            for id in (4, 5):
                first.query(f"INSERT INTO d.t (id, moment) VALUES ({id}, '2020-01-01 00:00:00')")
            following.read("t", 5)
            first.kill()
            second.stop_replication()
            second.query("INSERT INTO d.t (id) VALUES (6)")
            second.query("ALTER TABLE d.t ADD COLUMN c INT FIRST")
            second.query("INSERT INTO d.t (id, c) VALUES (7, 8)")
            assert following.instance.switch()
            changes = following.read("t", 7)
    assert [after and after["id"] for _, _, _, after in changes] == [6, None, 7]
    assert changes[0][3] == {"b": None, "id": 6, "a": None, "moment": None}
    assert changes[-1][3] == {"c": 8, "b": None, "id": 7, "a": None, "moment": None}
    assert not any("anew" in text for text in following.alarms)
    said = "lacks the" if step.old.kind == "mariadb" else "has not executed" if step.shares_gtids else "except the last 2"
    assert any(said in text for text in following.alarms), following.alarms


def upgrades() -> Iterator[Any]:
    """Chains of lines, each of which can start with the data of the one before it, and whether GTIDs are on."""
    chains = [
        (False, ("mysql-5.5", "mysql-5.6", "mysql-5.7")),
        (False, ("mysql-5.7", "mysql-8.0.12", "mysql-8.0")),
        (True, ("mysql-5.6", "mysql-5.7")),
        (True, ("mysql-5.7", "mysql-8.0.12", "mysql-8.0")),
        (True, ("mariadb-10.1", "mariadb-10.2", "mariadb-10.5", "mariadb-10.11", "mariadb-11.4", "mariadb-11.8")),
    ]
    for number, (gtid, names) in enumerate(chains):
        if is_wanted(names[-1], number in (0, 4)):
            yield pytest.param(gtid, names, id="-to-".join(names) + "-without-gtids" * (not gtid))


@pytest.mark.parametrize(("gtid", "names"), list(upgrades()))
def test_a_server_is_upgraded_in_place(gtid: bool, names: tuple[str, ...], tmp_path: Path) -> None:
    """The cursor and the schema history go on, also where the name changes by which the server is known."""
    lines = [Line(BY_NAME[name]) for name in names]
    port = row = 0
    for number, line in enumerate(lines):
        options = ["--binlog-row-metadata=MINIMAL"] if line.can("full_metadata") else []
        if line.kind == "mysql" and line.can("gtid") and not gtid:
            options += ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]
        if line.name == "mysql-5.7" and number:
            options += ["--show-compatibility-56=ON"]  # nobody has run mysql_upgrade
        with line.server(*options, base=tmp_path / "s", port=port, server_id=1) as server:
            port = server.port
            if number == 0:
                server.query("CREATE DATABASE d")
                server.query("CREATE TABLE d.t (id INT PRIMARY KEY, moment DATETIME)")
            with Following(tmp_path / "meta", server) as following:
                server.query(f"INSERT INTO d.t (id, moment) VALUES ({row + 2}, '2020-01-01 00:00:00')")
                changes = following.read("t", row + 2)
            had = [f"c{one}" for one in reversed(range(number))]
            if number:
                assert [one[3] and one[3]["id"] for one in changes] == [row, None, row + 1, row + 2]
                assert list(changes[0][3]) == [*had[1:], "id", "moment"]
            assert list(changes[-1][3]) == [*had, "id", "moment"]
            assert not any(word in text for text in following.alarms for word in ("again", "anew", "not used"))
            row += 3
            server.query(f"INSERT INTO d.t (id) VALUES ({row})")
            server.query(f"ALTER TABLE d.t ADD COLUMN c{number} INT FIRST")
            server.query(f"INSERT INTO d.t (id) VALUES ({row + 1})")
            server.shutdown()
