"""A table, then its changes, from the source's reader into a Delta table, through restarts at every step of a batch."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from canal.position import Position
from canal.spark import apply_changes
from canal.targets.tables import DeltaTableTarget
from canal.testing.servers import ThrowawayServer
from tests.support.engine import PATIENCE, Engine, arrow, has_next
from tests.support.histories import FaultyTarget
from tests.support.live import end_of_log

#: Where a run ends: with the batch planned, read, about to be committed by the sink, committed by it but not by Spark, done.
WINDOWS = ("planned", "read", "before", "after", "committed")
ROWS = 120


class Table:
    """A table with a key of two columns, one of them text, and a writer that has no mercy with it."""

    def __init__(self, server: ThrowawayServer, database: str, image: str, truncates: bool) -> None:
        self.server, self.name, self.image, self.truncates = server, f"{database}.orders", image, truncates
        self.begin = end_of_log(server).to_text()
        server.query(
            f"CREATE TABLE {self.name} (k VARCHAR(9) COLLATE utf8mb4_general_ci, Id INT, a INT, at DATETIME(3),"
            " PRIMARY KEY (k, Id))"
        )
        values = ",".join(f"('{'kK'[number % 2]}', {number}, NULL, NOW(3))" for number in range(ROWS))
        server.query(f"INSERT INTO {self.name} VALUES {values}")
        self.rounds = 0
        self.stopping = threading.Event()
        self.writer = threading.Thread(target=self._write)

    def _write(self) -> None:
        chance = random.Random(3)
        with self.server.connect(autocommit=False) as session, session.cursor() as cursor:
            cursor.execute(f"SET SESSION binlog_row_image = {self.image}")
            for number in itertools.count(1):
                if self.stopping.wait(0.004):
                    return
                for _ in range(chance.randrange(1, 4)):
                    one, two = chance.randrange(0, ROWS, 3), chance.randrange(0, ROWS, 3)  # others are told by chunks only
                    cursor.execute(
                        chance.choice(
                            [
                                f"REPLACE INTO {self.name} VALUES ('k', {one}, {number}, NOW(3))",
                                f"UPDATE IGNORE {self.name} SET Id = {two} WHERE Id = {one}",
                                f"UPDATE {self.name} SET k = 'K', a = {number} WHERE Id = {one}",
                                f"UPDATE {self.name} SET k = 'k', a = NULL WHERE Id = {one}",
                                f"UPDATE {self.name} SET at = NULL WHERE Id IN ({one}, {two})",
                                f"DELETE FROM {self.name} WHERE Id = {one}",
                            ]
                        )
                    )
                session.commit()
                self.rounds = number
                if self.truncates and number % 40 == 0:
                    cursor.execute(f"TRUNCATE TABLE {self.name}")

    def write_enough(self) -> None:
        """Wait until changes of every kind were written."""
        deadline = time.monotonic() + PATIENCE
        while self.rounds < 100:
            assert time.monotonic() < deadline, f"{self.rounds} transactions"
            time.sleep(0.01)

    def rest(self) -> None:
        self.stopping.set()
        self.writer.join()

    def options(self, **more: Any) -> dict[str, Any]:
        server = self.server
        return {
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": server.password,
            "table": self.name,
            "pollTimeout": 0.1,
            "onTruncate": "row",
            "maxRowsPerBatch": 40,
            **more,
        }

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self.server.query(f"SELECT k, Id, a, at FROM {self.name}"), key=repr)


@pytest.fixture
def make(server: ThrowawayServer, database: str) -> Iterator[Any]:
    made: list[Table] = []

    def one(image: str, truncates: bool) -> Table:
        made.append(Table(server, database, image, truncates))
        return made[-1]

    yield one
    for table in made:
        table.rest()


def in_delta(path: str) -> list[tuple[Any, ...]]:
    rows = DeltaTable(path).to_pyarrow_table(columns=["k", "Id", "a", "at"]).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def run_until(engine: Engine, target: DeltaTableTarget, window: str, batch: int, chance: random.Random, end: Position) -> None:
    """One run of the query with a new sink, which ends so at this batch of its own (0: where the one before ended)."""
    faulty = FaultyTarget(target)
    fn = apply_changes(faulty, ["k", "Id"])
    engine.start()
    for number in itertools.count():
        if not has_next(engine, end):
            break
        is_last = number == batch
        if is_last and window == "planned":
            break
        rows = engine.run()
        if is_last and window == "read":
            break
        faulty.when = window if is_last and window in ("before", "after") else ""
        try:
            fn(arrow(engine, rows, chance), len(engine.offsets) - 1)
        except OSError:
            break
        engine.committed = len(engine.offsets)
        if is_last:
            break
    engine.stop()


@pytest.mark.parametrize(("image", "truncates"), [("FULL", False), ("NOBLOB", False), ("FULL", True)])
def test_a_table_and_its_changes_come_to_be_the_table(
    make: Any, tmp_path: Path, image: str, truncates: bool, thorough: bool
) -> None:
    table, chance, target = make(image, truncates), random.Random(image), DeltaTableTarget(str(tmp_path / "orders"))
    with Engine(table.options(snapshot="initial", chunkRows=20, chunksPerBatch=2)) as engine:
        for number, window in enumerate([*WINDOWS] * (3 if thorough else 2)):
            if number == 1:
                table.writer.start()  # behind the position of the snapshot: what chunks give when they are read again is newer
            run_until(engine, target, window, chance.randrange(3), chance, end_of_log(table.server))
        table.write_enough()
        table.rest()
        run_until(engine, target, "committed", 1 << 30, chance, end_of_log(table.server))
        assert in_delta(target.path) == table.rows()
        assert {row["_op"] for row in engine.rows} >= {"r", "I", "U", "D"}
    with Engine(table.options(startingPosition=table.begin, maxRowsPerBatch=1000)) as engine:  # the checkpoint is lost
        version = DeltaTable(target.path).version()
        run_until(engine, target, "committed", 1 << 30, chance, end_of_log(table.server))
        assert len(engine.rows) > ROWS
        assert in_delta(target.path) == table.rows()
        assert DeltaTable(target.path).version() == version


def test_a_column_is_added_while_the_query_is_down(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    """With the options of the example: inserts from before the column are not the end of the query."""
    name, target, chance = f"{database}.orders", DeltaTableTarget(str(tmp_path / "orders")), random.Random(1)
    server.query(f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT)")
    options = {"host": server.host, "port": server.port, "user": server.user, "password": server.password, "table": name}
    with Engine({**options, "startingPosition": end_of_log(server).to_text(), "pollTimeout": 0.1}) as engine:
        for number, more in enumerate(["", "b INT", "c INT"]):
            if more:
                server.query(f"INSERT INTO {name} (id) VALUES ({number})")
                server.query(f"ALTER TABLE {name} ADD COLUMN {more}")
            server.query(f"INSERT INTO {name} (id, a) VALUES ({10 + number}, 1)")
            fn = apply_changes(target, ["id"], schema="add", absent="null")
            engine.start()
            while has_next(engine, end_of_log(server)):
                fn(arrow(engine, engine.run(), chance))
                engine.committed = len(engine.offsets)
            engine.stop()
            found = DeltaTable(target.path).to_pyarrow_table().to_pylist()
            expected = [tuple(row) for row in server.query(f"SELECT * FROM {name} ORDER BY id")]
            assert sorted(tuple(row.values()) for row in found) == expected


def test_the_example_is_started_again_for_new_columns_and_for_nothing_else() -> None:
    """With the options of test_a_query_is_not_started_again_over_values_that_changed_without_a_row."""
    text = (Path(__file__).parents[2] / "examples/stream_to_delta.py").read_text("utf-8")
    assert 'apply_changes(DeltaTarget(lake), keys.split(","), table=table, schema="add", absent="null")' in text
    assert text.splitlines()[-1] == 'supervise(start, name=table, restart_on=["SchemaError"])'
