"""What Spark's micro-batch engine does with a stream reader, without a JVM: its order of calls, its log of offsets.

Never helps the reader: offsets pass through JSON, readers and partitions are pickled, ``commit`` comes late or not at all.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.pandas.types import to_arrow_schema

from canal.position import Position
from canal.spark.source import CanalSource, CanalStreamReader
from canal.spark.stream.offsets import INITIAL
from canal.testing.servers import ThrowawayServer

#: Seconds after which what is waited for is held to come no more. Polls say nothing: they are short, and the machine may be slow.
PATIENCE = 60.0


def rows_of(reader: Any, partitions: Any, struct: Any) -> list[dict[str, Any]]:
    """The rows of partitions as an executor gives them, in the order of the log."""
    schema = to_arrow_schema(struct, timezone="UTC")
    found: list[dict[str, Any]] = []
    for partition in partitions:
        batches = list(cloudpickle.loads(cloudpickle.dumps(reader)).read(cloudpickle.loads(cloudpickle.dumps(partition))))
        assert all(batch.schema.equals(schema) for batch in batches)
        found += [row for batch in batches for row in pa.Table.from_batches([batch]).to_pylist()]
    return sorted(found, key=lambda row: (row["_txn"], row["_ord"]))


class Engine:
    """One query with its checkpoint: ``offsets`` and ``committed`` batches, and the rows that its sink holds, by batch."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = {name: str(value) for name, value in options.items()}
        self.offsets: list[str] = []
        self.committed = 0
        self.sink: dict[int, list[dict[str, Any]]] = {}
        self.partitions: dict[int, list[Any]] = {}
        self.reader: CanalStreamReader | None = None
        self.replay = False

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in sorted(self.sink) for row in self.sink[batch]]

    def start(self, available_now: bool = False, **options: Any) -> None:
        """Begin a run of the query in a process of its own."""
        self.options.update({name: str(value) for name, value in options.items()})
        source = cloudpickle.loads(cloudpickle.dumps(CanalSource(self.options)))
        self.struct = source.schema()
        self.reader = source.streamReader(schema=self.struct)
        self.replay = len(self.offsets) > self.committed
        self._begin(self.reader, available_now)

    def _begin(self, reader: Any, available_now: bool) -> None:
        self.limit = reader.getDefaultReadLimit()
        if available_now:
            reader.prepareForTriggerAvailableNow()

    def _latest(self, reader: Any, before: str) -> dict[str, Any]:
        end: dict[str, Any] = reader.latestOffset(json.loads(before), self.limit)
        reader.reportLatestOffset()
        return end

    def stop(self) -> None:
        """End the run, as SIGTERM does. What was planned and not committed is planned still."""
        if self.reader is not None:
            self.reader.stop()
            self.reader = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def plan(self) -> bool:
        """Have the next batch in the log of offsets; False where there is nothing new."""
        reader = self.reader
        assert reader is not None
        if self.replay:
            self.replay = False
            return True
        before = self.offsets[-1] if self.offsets else json.dumps(reader.initialOffset())
        end = json.dumps(self._latest(reader, before))
        if end == before:
            return False
        self.offsets.append(end)
        if len(self.offsets) > 1:
            reader.commit(json.loads(self.offsets[-2]))
        return True

    def plan_next(self) -> None:
        """Have the next batch in the log of offsets, in however many polls its rows come."""
        deadline = time.monotonic() + PATIENCE
        while not self.plan():
            assert time.monotonic() < deadline, "there is no next batch"

    def receive(self, end: Position) -> None:
        """Wait until the reader has all up to the end of a transaction of the stream, so that one batch can hold it."""
        assert self.reader is not None
        deadline, found = time.monotonic() + PATIENCE, Position()
        while (found.journal, found.offset) != (end.journal, end.offset):
            assert time.monotonic() < deadline, f"at {found}, not at {end}"
            time.sleep(0.005)
            newest = self.reader.reportLatestOffset()
            assert newest is not None
            found = Position.from_text(json.dumps(newest["position"]))

    def run(self) -> list[dict[str, Any]]:
        """Give the planned batch to the sink, without the commit."""
        reader = self.reader
        assert reader is not None
        number = len(self.offsets) - 1
        start = json.loads(self.offsets[-2]) if number else reader.initialOffset()
        self.partitions[number] = list(reader.partitions(start, json.loads(self.offsets[-1])))
        self.sink[number] = rows_of(reader, self.partitions[number], self.struct)
        return self.sink[number]

    def step(self) -> bool:
        """One whole batch; False where there is nothing new."""
        if not self.plan():
            return False
        self.run()
        self.committed = len(self.offsets)
        return True

    def until(self, count: int) -> list[dict[str, Any]]:
        """Batches until the sink holds so many rows."""
        deadline = time.monotonic() + PATIENCE
        while len(self.rows) < count and time.monotonic() < deadline:
            self.step()
        assert len(self.rows) == count, f"{len(self.rows)} rows, not {count}"
        return self.rows


class OlderEngine(Engine):
    """Spark 4.0 and 4.1: no start, no limit, no word of AvailableNow, which is one batch; a run that goes on begins with the
    empty range behind the newest offset that was written down."""

    def _begin(self, reader: Any, available_now: bool) -> None:
        self.reader = CanalStreamReader(reader._options, reader._shape)
        if self.offsets:
            newest = json.loads(self.offsets[-1])
            assert self.reader.partitions(newest, newest) == []

    def _latest(self, reader: Any, before: str) -> dict[str, Any]:
        end: dict[str, Any] = reader.latestOffset()
        return end


def arrow(engine: Engine, rows: list[dict[str, Any]], chance: random.Random) -> pa.Table:
    """The rows as Spark gives them: partitions come in any order."""
    schema = to_arrow_schema(engine.struct, timezone="UTC")
    return pa.Table.from_pylist(chance.sample(rows, len(rows)), schema=schema)


def has_next(engine: Engine, end: Position) -> bool:
    """Plan the next batch; False where there is none up to this end of the log."""
    assert engine.reader is not None
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        newest = engine.reader.reportLatestOffset() or INITIAL
        if engine.plan():
            return True
        if newest["ph"] == "bin" and not Position.from_text(json.dumps(newest["position"])).precedes(end):
            return False
    raise AssertionError(f"the stream does not come to {end}")


def options(server: ThrowawayServer, database: str, directory: Path) -> dict[str, Any]:
    return {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "table": f"{database}.orders",
        "spoolDir": directory / "spool",
        "transport": "file",
        "backlogFiles": 0,
    }
