"""The process that is killed: applies a table's changes to a Delta table, to its history, and to a counter.

    python -m tests.programs.spark_kill_child DIRECTORY

DIRECTORY holds ``spec.json``; ``armed``, where it is there, names the step at which the process is to end by itself; and
``chunks``, where it is there, the last batch of a snapshot that is to be applied for now. The process ends with its standard
input, so that it never outlives who started it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

import canal
from canal.spark import apply_changes, configure, foreach_batch, supervise
from canal.targets.protocol import Progress
from canal.targets.tables import Abilities, DeltaTableTarget

STREAM = "killed"


@attrs.frozen
class CounterTarget:
    """What of each kind was applied, in SQLite: nothing there shows that a change was added twice but the numbers."""

    path: str

    abilities = Abilities(only_appends=True)

    @contextmanager
    def begin(self, stream: str, keys: tuple[str, ...]) -> Iterator[_CounterWork]:
        with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE IF NOT EXISTS progress (stream TEXT PRIMARY KEY, text TEXT)")
            connection.execute("CREATE TABLE IF NOT EXISTS counter (op TEXT PRIMARY KEY, changes INT, delta INT)")
            connection.execute("BEGIN IMMEDIATE")
            yield _CounterWork(connection, stream)

    def read(self) -> dict[str, tuple[int, int]]:
        """How many changes of each kind, and what they added to ``balance`` in all."""
        if not Path(self.path).exists():
            return {}
        with closing(sqlite3.connect(self.path, timeout=60)) as connection:
            try:
                return {op: (count, delta) for op, count, delta in connection.execute("SELECT * FROM counter")}
            except sqlite3.OperationalError:  # the process has not come to its tables
                return {}


class _CounterWork:
    """A transaction on the counter. Closing the connection without a commit rolls back."""

    schema: pa.Schema | None = None

    def __init__(self, connection: sqlite3.Connection, stream: str) -> None:
        self._connection, self._stream = connection, stream
        row = connection.execute("SELECT text FROM progress WHERE stream = ?", (stream,)).fetchone()
        self.progress = None if row is None else Progress.from_text(row[0])

    def read(self, keys: pa.Table) -> pa.Table:
        raise NotImplementedError("there are no keys")

    def write(self, upserts: pa.Table, deletes: pa.Table, progress: Progress, *, added: list[pa.Field], replace: bool) -> None:
        before = pc.struct_field(upserts["_before"].combine_chunks(), "balance")
        for op, new, old in zip(upserts["_op"].to_pylist(), upserts["balance"].to_pylist(), before.to_pylist()):
            delta = -new if op == "D" else new - (old or 0)
            self._connection.execute(
                "INSERT INTO counter VALUES (?, 1, ?) ON CONFLICT (op) DO UPDATE SET changes = changes + 1, delta = delta + ?",
                (op, delta, delta),
            )
        self._connection.execute("INSERT OR REPLACE INTO progress VALUES (?, ?)", (self._stream, progress.to_text()))
        self._connection.execute("COMMIT")


@attrs.frozen
class MortalTarget:
    """A target whose process ends before or after the commit of a batch, when that is asked for."""

    target: Any
    name: str
    armed: Path

    @property
    def abilities(self) -> Abilities:
        return self.target.abilities

    @contextmanager
    def begin(self, stream: str, keys: tuple[str, ...]) -> Iterator[Any]:
        with self.target.begin(stream, keys) as work:
            write = work.write

            def write_and_die(*arguments: Any, **more: Any) -> None:
                self._die("before")
                write(*arguments, **more)
                self._die("after")

            work.write = write_and_die
            yield work

    def _die(self, moment: str) -> None:
        if self.armed.exists() and self.armed.read_text() == f"{moment} {self.name}":
            self.armed.unlink()
            os._exit(17)


def targets(directory: Path) -> dict[str, Any]:
    return {
        "table": DeltaTableTarget(str(directory / "table")),
        "history": DeltaTableTarget(str(directory / "history")),
        "counter": CounterTarget(str(directory / "counter.db")),
    }


def sinks(directory: Path, mortal: bool = True) -> dict[str, Any]:
    """The functions that apply batches, by the name of their target."""
    made = {}
    for name, target in targets(directory).items():
        whole = MortalTarget(target, name, directory / "armed") if mortal else target
        made[name] = apply_changes(whole, keys=["id"] if name == "table" else None, stream=STREAM)
    return made


class Apply:
    """Applies each batch to all targets, and writes down what came, for whoever looks for a fault."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sinks = sinks(directory)
        self._file = (directory / "batches").open("a", buffering=1)

    def __call__(self, df: Any, batch: Any) -> None:
        rows = df if isinstance(df, pa.Table) else df.toArrow()
        while self._is_held(rows, batch):
            time.sleep(0.1)
            rows = df.toArrow()  # a worker reads on, and can be killed
        streamed = rows.filter(pc.not_equal(rows["_op"], "r"))
        numbers = list(zip(rows["_txn"].to_pylist(), rows["_ord"].to_pylist()))
        record = {"pid": os.getpid(), "time": time.time(), "rows": rows.num_rows, "id": getattr(batch, "id", batch)}
        print(json.dumps({**record, "first": min(numbers, default=None), "last": max(numbers, default=None)}), file=self._file)
        for name, sink in self._sinks.items():
            sink(rows if name == "table" else streamed, batch)

    def _is_held(self, rows: pa.Table, batch: Any) -> bool:
        """Whether this is a chunk of a snapshot that is to wait; what ends at a commit is to come to one."""
        path = self._directory / "chunks"
        try:
            return "r" in rows["_op"].to_pylist() and batch > int(path.read_text()) and not (self._directory / "armed").exists()
        except FileNotFoundError:
            return False


def run_query(directory: Path, spec: dict[str, Any]) -> None:
    """A query that is started again when it fails; a driver without its JVM ends."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,4]").appName("killed").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.local.dir", str(directory / "local"))
    builder = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    builder = configure(builder, spark_ui_enabled=False, spark_ui_showConsoleProgress=False, spark_sql_shuffle_partitions=2)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    apply = Apply(directory)

    def start() -> Any:
        frame = spark.readStream.format("canal").options(**spec["options"]).load()
        writer = frame.writeStream.foreachBatch(apply).option("checkpointLocation", str(directory / "checkpoint"))
        return writer.start()

    supervise(start, backoff=(0.2, 2.0))


def run_loop(directory: Path, spec: dict[str, Any]) -> None:
    options = spec["options"]
    schema, table = options["table"].split(".")
    source = canal.MySQLSource(
        host=options["host"],
        port=int(options["port"]),
        user=options["user"],
        password=options["password"],
        get_server_public_key=True,
    )
    config = canal.InstanceConfig(
        destination="killed",
        source=source,
        filter=rf"{schema}\.{table}",
        meta=canal.FileMeta(directory / "checkpoint"),
        start=canal.Position.from_text(options["startingPosition"]),
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        foreach_batch(None, instance, Apply(directory), batch_size=500)


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # not through a buffer, whose lock the end of the interpreter would want
    os._exit(18)


def main() -> None:
    directory = Path(sys.argv[1])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    spec = json.loads((directory / "spec.json").read_text())
    {"query": run_query, "loop": run_loop}[spec["mode"]](directory, spec)


if __name__ == "__main__":
    main()
