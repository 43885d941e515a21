"""Random DDL and rows against the loop: the target equals the table, or an error says what mends it, and that does.

The server is the oracle. What is killed are the loop and the Instance, between and in the middle of commits.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

import canal
from canal.errors import UnloggedChangeError
from canal.spark import apply_changes, copy_table, foreach_batch
from canal.testing.servers import ThrowawayServer
from tests.live.helpers import source
from tests.spark.engine import PATIENCE
from tests.spark.histories import FaultyTarget
from tests.spark.test_apply_targets import Delta, Iceberg

#: The types that a column of the name has, from narrow to wide: to one of another kind a target's column is not altered.
KINDS = {
    "a": ("smallint", "int", "bigint"), "b": ("varchar(5)", "varchar(20)", "varchar(200)"),
    "c": ("decimal(6,2)", "decimal(12,2)", "decimal(12,4)"), "d": ("datetime", "datetime(3)", "datetime(6)"),
    "e": ("smallint", "int", "bigint"), "f": ("varchar(5)", "varchar(20)", "varchar(200)"),
}  # fmt: skip
VALUES = {
    "smallint": ("0", "-7", "32000"), "int": ("70000", "1"), "bigint": ("5000000000", "2"),
    "varchar(5)": ("''", "'abcde'"), "varchar(20)": ("'0123456789'", "'x'"), "varchar(200)": ("REPEAT('y', 150)", "'z'"),
    "decimal(6,2)": ("1.25", "-9999.99"), "decimal(12,2)": ("1234567.5", "0"), "decimal(12,4)": ("1.2345", "-1"),
    "datetime": ("'2024-02-29 10:00:00'",), "datetime(3)": ("'2024-02-29 10:00:00.125'",),
    "datetime(6)": ("'1999-12-31 23:59:59.999999'",),
}  # fmt: skip


#: Of the table and one of its columns.
STATEMENTS = (
    "TRUNCATE {0}", "ALTER TABLE {0} TRUNCATE PARTITION p0", "ALTER TABLE {0} DROP PARTITION p0", "OPTIMIZE TABLE {0}",
    "ALTER TABLE {0} ADD INDEX ({1})", "ALTER TABLE {0} DROP PRIMARY KEY, ADD PRIMARY KEY (id)", "ALTER TABLE {0} COMMENT 'x'",
    "ALTER TABLE {0} REMOVE PARTITIONING",
)  # fmt: skip
PARTITIONS = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN MAXVALUE)"


class Table:
    """The table on the server, and what the machine knows of its columns."""

    def __init__(self, server: ThrowawayServer, database: str, chance: random.Random) -> None:
        self.server, self.database, self.chance = server, database, chance
        self.name = f"{database}.t"
        self.columns: dict[str, str] = {}
        self.ticks = 0
        self.said: list[str] = []
        self.run(f"CREATE TABLE {database}.tick (id INT PRIMARY KEY)")
        self.create()

    def run(self, sql: str) -> bool:
        try:
            self.server.query(sql)
        except pymysql.MySQLError:
            return False
        self.said.append(sql)
        return True

    def create(self, name: str = "") -> None:
        columns = {one: self.chance.choice(KINDS[one]) for one in self.chance.sample(sorted(KINDS), self.chance.randint(1, 3))}
        text = ", ".join(f"{one} {kind}" for one, kind in columns.items())
        rest = self.chance.choice(("", "", PARTITIONS))
        assert self.run(f"CREATE TABLE {name or self.name} (id INT PRIMARY KEY, {text}) {rest}")
        self.columns = columns

    def rows(self) -> dict[int, dict[str, Any]]:
        with self.server.connect() as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(f"SELECT * FROM {self.name}")
            return {row["id"]: row for row in cursor.fetchall()}

    def write(self) -> None:
        chance = self.chance
        for _ in range(chance.randint(1, 6)):
            number, other = chance.randint(0, 9), chance.randint(0, 9)
            sets = ", ".join(f"{one} = {self.value(kind)}" for one, kind in self.columns.items() if chance.random() < 0.6)
            self.run(chance.choice((
                f"REPLACE INTO {self.name} SET id = {number}{', ' * bool(sets)}{sets}",
                f"UPDATE {self.name} SET {sets or 'id = id'} WHERE id < {number}",
                f"UPDATE {self.name} SET id = {number} WHERE id = {other}",
                f"DELETE FROM {self.name} WHERE id = {number}",
            )))  # fmt: skip

    def value(self, kind: str) -> str:
        if self.chance.random() < 0.15:
            return "NULL"
        line = next(line for line in KINDS.values() if kind in line)
        return self.chance.choice(VALUES[self.chance.choice(line[: line.index(kind) + 1])])

    def alter(self) -> None:
        """What a column's default puts into rows that are there is not logged, so none has one; docs/spark.md says so."""
        one = self.chance.choice(list(self.columns))
        fresh = self.chance.choice([new for new in KINDS if new not in self.columns] or [one])
        often = (self.add, self.modify, self.other)
        self.chance.choice((*often, *often, self.drop, self.rename, self.swap, self.recreate))(one, fresh)

    def other(self, one: str, _: str) -> None:
        self.run(self.chance.choice(STATEMENTS).format(self.name, one))

    def add(self, _: str, new: str) -> None:
        kind = self.chance.choice(KINDS[new])
        if self.run(f"ALTER TABLE {self.name} ADD {new} {kind} {self.chance.choice(('', 'FIRST', 'AFTER id'))}"):
            self.columns[new] = kind

    def drop(self, one: str, _: str) -> None:
        if len(self.columns) > 1 and self.run(f"ALTER TABLE {self.name} DROP {one}"):
            del self.columns[one]

    def rename(self, one: str, new: str) -> None:
        kind = self.columns[one]
        if kind in KINDS[new] and self.run(f"ALTER TABLE {self.name} CHANGE {one} {new} {kind}"):
            del self.columns[one]
            self.columns[new] = kind

    def modify(self, one: str, _: str) -> None:
        kind = self.chance.choice(KINDS[one])
        if self.run(f"ALTER {self.chance.choice(('', '', 'IGNORE '))}TABLE {self.name} MODIFY {one} {kind}"):
            self.columns[one] = kind

    def swap(self, *_: str) -> None:
        fresh, old = f"{self.database}.fresh", f"{self.database}.old"
        self.run(f"DROP TABLE IF EXISTS {fresh}, {old}")
        self.create(fresh)
        self.run(f"INSERT INTO {fresh} (id) VALUES (3), (4)")
        assert self.run(f"RENAME TABLE {self.name} TO {old}, {fresh} TO {self.name}")

    def recreate(self, *_: str) -> None:
        assert self.run(f"DROP TABLE {self.name}")
        self.create()

    def tick(self) -> int:
        self.ticks += 1
        assert self.run(f"INSERT INTO {self.database}.tick VALUES ({self.ticks})")
        return self.ticks


class Reader:
    """The loop that a process would be: stopped and begun anew at any time, with one target and one set of cursors."""

    def __init__(self, table: Table, target: Any, path: Path, chance: random.Random) -> None:
        self.table, self.target, self.path, self.chance = table, target, path, chance
        self.meta = canal.FileMeta(str(path / "meta"))
        self.kills = self.mended = 0
        self.faults: list[str] = []

    def sink(self, target: Any = None) -> Any:
        return apply_changes(target or self.target, ["id"], schema="add", absent="null", snapshot="replace")

    @contextlib.contextmanager
    def instance(self) -> Iterator[canal.Instance]:
        config = canal.InstanceConfig(
            destination="m", source=source(self.table.server), filter=rf"{self.table.database}\..*", meta=self.meta,
        )  # fmt: skip
        with canal.Instance(config) as instance:
            instance.subscribe()
            yield instance

    def follow(self, tick: int, kill: str = "") -> None:
        """Read up to a tick; an error that names what mends it is mended by just that."""
        deadline = time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < deadline, self.table.said[-20:]
            try:
                with self.instance() as instance:
                    self.mend(instance)
                    target = FaultyTarget(self.target, kill) if kill else self.target
                    kill = ""
                    self.loop(instance, self.sink(target), tick)
                return
            except (OSError, UnloggedChangeError) as error:
                if "the commit" in f"{error} {error.__cause__}":
                    self.kills += 1
                elif isinstance(error, OSError):
                    raise
                else:
                    self.faults.append(str(error))

    def mend(self, instance: canal.Instance) -> None:
        if not self.faults:
            return
        text, self.faults = self.faults[-1], []
        if "snapshot='replace'" not in text:
            pytest.fail(f"no remedy that a machine understands: {text}; {self.table.said[-12:]}")
        assert copy_table(instance, self.table.name, self.sink()), text
        self.mended += 1

    def loop(self, instance: canal.Instance, sink: Any, tick: int) -> None:
        stop = threading.Event()

        def fn(rows: Any, batch: Any) -> None:
            if batch.table in (self.table.name, ""):
                sink(rows, batch)
            elif batch.loss is not None:
                batch.loss.settle()  # of a table that nobody follows
            elif batch.table.endswith(".tick") and rows.num_rows and max(rows["id"].to_pylist()) >= tick:
                stop.set()

        timer = threading.Timer(PATIENCE, stop.set)
        timer.start()
        try:
            foreach_batch(None, instance, fn, batch_size=self.chance.choice((1, 3, 1000)), stop=stop, timeout=0.5, linger=0.0)
        finally:
            timer.cancel()


def normal(value: Any) -> Any:
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


def check(table: Table, rows: pa.Table) -> None:
    expected = table.rows()
    found = {row["id"]: row for row in rows.to_pylist()}
    assert len(found) == rows.num_rows
    assert found.keys() == expected.keys(), table.said[-20:]
    for number, row in expected.items():
        assert {name: normal(found[number].get(name)) for name in row} == row, table.said[-20:]


Made = tuple[Any, Callable[[], pa.Table]]


def play(server: ThrowawayServer, database: str, seed: str, path: Path, made: Made, steps: int) -> str:
    chance = random.Random(seed)
    table = Table(server, database, chance)
    target, rows = made
    reader = Reader(table, target, path, chance)
    with reader.instance() as instance:
        table.write()
        copy_table(instance, table.name, reader.sink())
    for _ in range(steps):
        for _ in range(chance.randint(1, 4)):
            (table.alter if chance.random() < 0.35 else table.write)()
        table.run(f"REPLACE INTO {table.name} SET id = {chance.randint(0, 9)}")  # a narrower column is told at the next row
        reader.follow(table.tick(), chance.choice(("", "", "before", "after")))
        check(table, rows())
    return f"{steps} stretches, {len(table.said)} statements, {reader.kills} kills, {reader.mended} mended"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_random_ddl_leaves_the_target_equal_or_says_what_mends_it(
    server: ThrowawayServer, database: str, tmp_path: Path, kind: str, full_size: bool
) -> None:
    """CANAL_DDL_SEED begins at another seed."""
    seed = os.environ.get("CANAL_DDL_SEED", "0")
    lake = {"delta": Delta, "iceberg": Iceberg}[kind](tmp_path)
    target = lake.make()
    made: Made = target, lambda: lake.rows(target)
    print(play(server, database, f"{kind} {seed}", tmp_path, made, 150 if full_size else 8))
