"""Random DDL and rows against loop and query: the target equals the table, or an error says what mends it, and that does.

The server is the oracle. What is killed is who applies, between and in the middle of commits, or with a batch planned.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pymysql
import pytest

import canal
from canal.errors import CanalError, SchemaError, TargetSchemaError, UnfitChangeError, UnloggedChangeError
from canal.spark import apply_changes, copy_table, foreach_batch
from canal.targets.tables import MySQLTableTarget, Upkeep
from canal.testing.servers import ThrowawayServer
from tests.support.engine import PATIENCE, Engine, arrow, has_next
from tests.support.histories import FaultyTarget
from tests.support.lakes import Delta, Iceberg, login
from tests.support.live import end_of_log, source

#: The types that a column of the name has, from narrow to wide: to one of another kind a target's column is not altered.
KINDS = {
    "a": ("smallint", "int", "bigint"),
    "b": ("varchar(5)", "varchar(20)", "varchar(200)"),
    "c": ("decimal(6,2)", "decimal(12,2)", "decimal(12,4)"),
    "d": ("datetime", "datetime(3)", "datetime(6)"),
    "e": ("smallint", "int", "bigint"),
    "f": ("varchar(5)", "varchar(20)", "varchar(200)"),
}
VALUES = {
    "smallint": ("0", "-7", "32000"),
    "int": ("70000", "1"),
    "bigint": ("5000000000", "2"),
    "varchar(5)": ("''", "'abcde'"),
    "varchar(20)": ("'0123456789'", "'x'"),
    "varchar(200)": ("REPEAT('y', 150)", "'z'"),
    "decimal(6,2)": ("1.25", "-9999.99"),
    "decimal(12,2)": ("1234567.5", "0"),
    "decimal(12,4)": ("1.2345", "-1"),
    "datetime": ("'2024-02-29 10:00:00'",),
    "datetime(3)": ("'2024-02-29 10:00:00.125'",),
    "datetime(6)": ("'1999-12-31 23:59:59.999999'",),
}


#: Of the table and one of its columns.
STATEMENTS = (
    "TRUNCATE {0}",
    "ALTER TABLE {0} TRUNCATE PARTITION p0",
    "ALTER TABLE {0} DROP PARTITION p0",
    "OPTIMIZE TABLE {0}",
    "ALTER TABLE {0} ADD INDEX ({1})",
    "ALTER TABLE {0} DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
    "ALTER TABLE {0} COMMENT 'x'",
    "ALTER TABLE {0} REMOVE PARTITIONING",
)
PARTITIONS = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN MAXVALUE)"


class Table:
    """The table on the server, and what the machine knows of its columns."""

    def __init__(self, server: ThrowawayServer, database: str, chance: random.Random) -> None:
        self.server, self.database, self.chance = server, database, chance
        self.name = f"{database}.t"
        self.columns: dict[str, str] = {}
        self.widest: dict[str, str] = {}
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

    def has(self, name: str, kind: str) -> None:
        """A column is of this type from now on."""
        self.columns[name] = kind
        line = next(line for line in KINDS.values() if kind in line)
        self.widest[name] = max(self.widest.get(name, kind), kind, key=line.index)

    def create(self, name: str = "") -> None:
        columns = {one: self.chance.choice(KINDS[one]) for one in self.chance.sample(sorted(KINDS), self.chance.randint(1, 3))}
        text = ", ".join(f"{one} {kind}" for one, kind in columns.items())
        rest = self.chance.choice(("", "", PARTITIONS))
        assert self.run(f"CREATE TABLE {name or self.name} (id INT PRIMARY KEY, {text}) {rest}")
        self.columns = {}
        for one, kind in columns.items():
            self.has(one, kind)

    def rows(self) -> dict[int, dict[str, Any]]:
        with self.server.connect() as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(f"SELECT * FROM {self.name}")
            return {row["id"]: row for row in cursor.fetchall()}

    def write(self) -> None:
        chance = self.chance
        for _ in range(chance.randint(1, 6)):
            number, other = chance.randint(0, 9), chance.randint(0, 9)
            sets = ", ".join(f"{one} = {self.value(kind)}" for one, kind in self.columns.items() if chance.random() < 0.6)
            self.run(
                chance.choice(
                    (
                        f"REPLACE INTO {self.name} SET id = {number}{', ' * bool(sets)}{sets}",
                        f"UPDATE {self.name} SET {sets or 'id = id'} WHERE id < {number}",
                        f"UPDATE {self.name} SET id = {number} WHERE id = {other}",
                        f"DELETE FROM {self.name} WHERE id = {number}",
                    )
                )
            )

    def value(self, kind: str) -> str:
        if self.chance.random() < 0.15:
            return "NULL"
        line = next(line for line in KINDS.values() if kind in line)
        return self.chance.choice(VALUES[self.chance.choice(line[: line.index(kind) + 1])])

    def alter(self) -> None:
        """Alter without defaults: the log lacks the values that a default puts into existing rows (docs/spark/operations.md)."""
        one = self.chance.choice(list(self.columns))
        fresh = self.chance.choice([new for new in KINDS if new not in self.columns] or [one])
        often = (self.add, self.modify, self.other)
        self.chance.choice((*often, *often, self.drop, self.rename, self.swap, self.recreate))(one, fresh)

    def other(self, one: str, _: str) -> None:
        self.run(self.chance.choice(STATEMENTS).format(self.name, one))

    def add(self, _: str, new: str) -> None:
        kind = self.chance.choice(KINDS[new])
        if self.run(f"ALTER TABLE {self.name} ADD {new} {kind} {self.chance.choice(('', 'FIRST', 'AFTER id'))}"):
            self.has(new, kind)

    def drop(self, one: str, _: str) -> None:
        if len(self.columns) > 1 and self.run(f"ALTER TABLE {self.name} DROP {one}"):
            del self.columns[one]

    def rename(self, one: str, new: str) -> None:
        kind = self.columns[one]
        if kind in KINDS[new] and self.run(f"ALTER TABLE {self.name} CHANGE {one} {new} {kind}"):
            del self.columns[one]
            self.has(new, kind)

    def modify(self, one: str, _: str) -> None:
        kind = self.chance.choice(KINDS[one])
        if self.run(f"ALTER {self.chance.choice(('', '', 'IGNORE '))}TABLE {self.name} MODIFY {one} {kind}"):
            self.has(one, kind)

    def swap(self, *_: str) -> None:
        fresh, old = f"{self.database}.fresh", f"{self.database}.old"
        self.run(f"DROP TABLE IF EXISTS {fresh}, {old}")
        self.create(fresh)
        self.run(f"INSERT INTO {fresh} (id) VALUES (3), (4)")
        assert self.run(f"RENAME TABLE {self.name} TO {old}, {fresh} TO {self.name}")

    def recreate(self, *_: str) -> None:
        assert self.run(f"DROP TABLE {self.name}")
        self.create()

    def mark(self) -> None:
        """Rows at the end of a stretch: a narrower column is told by the next one."""
        self.run(f"DELETE FROM {self.name} WHERE id = 99")
        assert self.run(f"INSERT INTO {self.name} (id) VALUES (99)")
        self.end = end_of_log(self.server)

    def tick(self) -> int:
        self.ticks += 1
        assert self.run(f"INSERT INTO {self.database}.tick VALUES ({self.ticks})")
        return self.ticks


class Follower:
    """A process that keeps a target equal to the table: stopped and begun anew at any time, and mended as its errors say."""

    def __init__(self, table: Table, target: Any, path: Path, chance: random.Random) -> None:
        self.table, self.target, self.path, self.chance = table, target, path, chance
        self.kill, self.exact = "", "refuse"
        self.kills = 0
        self.mended: Counter[str] = Counter()

    def sink(self) -> Any:
        """With a target that fails once around its commit, where it is time for that."""
        kill, self.kill = self.kill, ""
        faulty = FaultyTarget(self.target, kill)
        return apply_changes(faulty, ["id"], schema="add", absent="null", snapshot="replace", exact=self.exact)

    def told(self) -> str:
        return f"{len(self.table.said)} statements, {self.kills} kills, mended {dict(self.mended)}"

    def plan(self) -> None:
        """Have a batch in hand, and be stopped or run on, before what comes next."""

    def run(self) -> None:
        """Apply all that there is."""
        raise NotImplementedError

    def mend(self, error: CanalError) -> bool:
        """Do what the error says; False where that is nothing that a machine understands."""
        if isinstance(error, UnfitChangeError) and "exact='null'" in str(error):
            is_new, self.exact = self.exact == "refuse", "null"  # rows from before a DROP, in the columns from behind it
            return is_new
        statement = re.search(r"ALTER TABLE (\S+) (?:ADD|MODIFY) .*…", error.remedy or "")
        if not isinstance(error, TargetSchemaError) or statement is None:
            return False
        sql = re.sub(r"`(\w+)` …", lambda name: f"`{name[1]}` {self.table.widest[name[1]]}", statement[0])
        return self.table.run(sql)

    def follow(self, kill: str) -> None:
        self.kill, self.exact = kill, "refuse"
        deadline = time.monotonic() + 10 * PATIENCE
        while True:
            assert time.monotonic() < deadline, self.table.said[-20:]
            try:
                return self.run()
            except (OSError, CanalError) as error:
                if "the commit" in f"{error} {error.__cause__}":
                    self.kills += 1
                elif isinstance(error, OSError):
                    raise
                elif self.mend(error):
                    self.mended[type(error).__name__] += 1
                else:
                    pytest.fail(f"no remedy that a machine understands: {error}; {self.table.said[-12:]}")


class Loop(Follower):
    """``foreach_batch``, with one set of cursors."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.meta = canal.FileMeta(str(self.path / "meta"))
        self.is_copied = False

    @contextlib.contextmanager
    def instance(self) -> Iterator[canal.Instance]:
        config = canal.InstanceConfig(
            destination="m",
            source=source(self.table.server),
            filter=rf"{self.table.database}\..*",
            meta=self.meta,
            start_timeout=10 * PATIENCE,
        )
        with canal.Instance(config) as instance:
            instance.subscribe()
            yield instance

    def mend(self, error: CanalError) -> bool:
        if isinstance(error, UnloggedChangeError) and "snapshot='replace'" in str(error):
            self.is_copied = False
            return True
        return super().mend(error)

    def run(self) -> None:
        with self.instance() as instance:
            sink = self.sink()
            if not self.is_copied:
                copy_table(instance, self.table.name, sink)
                self.is_copied = True
            self.loop(instance, sink, self.table.tick())

    def loop(self, instance: canal.Instance, sink: Any, tick: int) -> None:
        stop, last = threading.Event(), 0

        def fn(rows: Any, batch: Any) -> None:
            nonlocal last
            if batch.table in (self.table.name, ""):
                sink(rows, batch)
            elif batch.loss is not None:
                batch.loss.settle()  # of a table that nobody follows
            elif batch.table.endswith(".tick") and rows.num_rows and (last := max(rows["id"].to_pylist())) >= tick:
                stop.set()

        timer = threading.Timer(5 * PATIENCE, stop.set)
        timer.start()
        try:
            foreach_batch(None, instance, fn, batch_size=self.chance.choice((1, 3, 1000)), stop=stop, timeout=0.5, linger=0.0)
        finally:
            timer.cancel()
        assert last >= tick, "the loop does not come to its end"


class Query(Follower):
    """The streaming source with its checkpoint, as Spark runs it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.engine = self.fresh()
        self.stopped_at = ""

    def fresh(self) -> Engine:
        server = self.table.server
        return Engine(
            {
                "host": server.host,
                "port": server.port,
                "user": server.user,
                "password": server.password,
                "pollTimeout": 0.1,
                "table": self.table.name,
                "snapshot": "initial",
                "chunkRows": 4,
                "chunksPerBatch": 2,
                "startTimeout": 10 * PATIENCE,
            }
        )

    def mend(self, error: CanalError) -> bool:
        if isinstance(error, UnloggedChangeError) and "a new checkpoint, a snapshot" in str(error):
            self.engine = self.fresh()
            return True
        if isinstance(error, SchemaError) and "Start the query again" in str(error):
            is_new, self.stopped_at = self.stopped_at != str(error), str(error)
            return is_new
        return super().mend(error)

    def plan(self) -> None:
        engine = self.engine
        with contextlib.suppress(CanalError):
            if engine.reader is None:
                engine.start()
            engine.replay = engine.plan()
        if self.chance.random() < 0.5:
            engine.stop()

    def run(self) -> None:
        sink = self.sink()
        with self.engine as engine:
            if engine.reader is None:
                engine.start(maxRowsPerBatch=self.chance.choice((1, 3, 1000)))
            while has_next(engine, self.table.end):
                sink(arrow(engine, engine.run(), self.chance), len(engine.offsets) - 1)
                engine.committed = len(engine.offsets)
        self.stopped_at = ""


def normal(value: Any) -> Any:
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


def check(table: Table, rows: list[dict[str, Any]]) -> None:
    expected = table.rows()
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows)
    assert found.keys() == expected.keys(), table.said[-20:]
    for number, row in expected.items():
        assert {name: normal(found[number].get(name)) for name in row} == row, table.said[-20:]


class InServer:
    """A table beside that of the machine, made by hand as it is when all begins."""

    def __init__(self, table: Table) -> None:
        self.server, self.name = table.server, f"{table.database}_copy.t"
        table.run(f"CREATE DATABASE {table.database}_copy")
        table.run(f"CREATE TABLE {self.name} LIKE {table.name}")
        table.run(f"ALTER TABLE {self.name} REMOVE PARTITIONING")

    def make(self) -> MySQLTableTarget:
        return MySQLTableTarget(self.name, login(self.server))

    def rows(self, target: Any) -> list[dict[str, Any]]:
        with self.server.connect() as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(f"SELECT * FROM {self.name}")
            return list(cursor.fetchall())


def play(table: Table, follower: Follower, rows: Callable[[], list[dict[str, Any]]], steps: int) -> None:
    chance = table.chance
    table.write()
    table.mark()
    follower.follow("")
    for step in range(steps):
        for _ in range(chance.randint(1, 4)):
            (table.alter if chance.random() < 0.35 else table.write)()
            if chance.random() < 0.2:
                follower.plan()
        table.mark()
        follower.follow(chance.choice(("", "", "before", "after")))
        check(table, rows())
        if step % 10 == 9:
            print(step + 1, "stretches", follower.told(), flush=True)


@pytest.fixture
def copies(server: ThrowawayServer, database: str) -> Iterator[None]:
    yield
    server.query(f"DROP DATABASE IF EXISTS {database}_copy")


@pytest.mark.slow
@pytest.mark.daily_on("mysql")
@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize("way", [Loop, Query])
@pytest.mark.parametrize("kind", ["delta", "iceberg", "mysql"])
def test_random_ddl_leaves_the_target_equal_or_says_what_mends_it(
    server: ThrowawayServer,
    database: str,
    tmp_path: Path,
    kind: str,
    way: type[Follower],
    full_size: bool,
    record: Callable[..., None],
) -> None:
    """CANAL_DDL_SEED begins at another seed."""
    seed = os.environ.get("CANAL_DDL_SEED", "0")
    chance = random.Random(f"{kind} {seed}")
    table = Table(server, database, chance)
    if kind == "mysql":
        copy = InServer(table)
        target, rows = copy.make(), lambda: copy.rows(target)
    else:
        lake = {"delta": Delta, "iceberg": Iceberg}[kind](tmp_path)
        target = attrs.evolve(lake.make(), upkeep=Upkeep(every=10, keep=0))
        rows = lambda: lake.rows(target).to_pylist()  # noqa: E731
    follower, steps = way(table, target, tmp_path, chance), 150 if full_size else 5
    wrong = ["it did not come to its end"]
    try:
        play(table, follower, rows, steps)
        wrong = []
    finally:
        record(
            kind="spark ddl",
            server=f"{server.kind} {server.version}",
            target=kind,
            way=way.__name__.lower(),
            seed=seed,
            stretches=steps,
            statements=len(table.said),
            kills=follower.kills,
            mended=dict(follower.mended),
            wrong=wrong,
        )
