"""The contestants of the Spark benchmarks, all in one Spark session, each with a stream or a job of its own.

A stream is live and warm before the clock starts, with the release of the rows; it stops when the sink has the last of them.
Each contestant gives the sums of what arrived in its sink, which must be those that the server tells.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import attrs

import canal
from benchmarks.spark_debezium import Feed, table
from benchmarks.spark_load import COLUMNS, SUMS, Answer, Burst, connection_number, drip, is_followed, warming
from benchmarks.spark_ready import Gate
from canal.spark.apply import apply_changes
from canal.spark.batches import foreach_batch
from canal.spark.source import CanalSource
from canal.targets.tables.delta import DeltaTableTarget
from canal.testing.servers import ThrowawayServer

_PATIENCE = 900.0
_numbers = count(1)


@attrs.define
class Stage:
    """What the contestants share. With ``whole`` all columns are summed on the way, else the ids: that costs Spark less."""

    spark: Any
    server: ThrowawayServer
    directory: Path
    rows: int
    part: int  # rows for those that are slow
    jars: str | None
    span: tuple[str, str]  # the log of bench.orders
    warm: int = 1  # record batches of the files that warm up
    whole: bool = False
    since: int = 0  # a connection made before the contestant's

    def options(self, name: str = "bench.orders") -> dict[str, str]:
        """Of the source "canal"."""
        server = self.server
        return {
            "host": server.host,
            "port": str(server.port),
            "user": server.user,
            "password": server.password,
            "sslMode": "DISABLED",
            "table": name,
        }

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        directory = Path(tempfile.mkdtemp(dir=self.directory))
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def burst(self, rows: int) -> Burst:
        self.since = connection_number(self.server)
        return Burst(self.server, f"bench.orders_{next(_numbers)}", rows)

    def stream(self, name: str, **options: str) -> Any:
        return self.spark.readStream.format("canal").options(**self.options(name), **options).load()

    def ready(self, reader: Any, name: str = "rows") -> Any:
        return reader.format("ready").options(path=str(self.directory / f"{name}.arrow"), warm=self.warm).load()

    def gate(self, name: str = "rows") -> Gate:
        return Gate(str(self.directory / f"{name}.arrow"))

    def is_live(self) -> bool:
        return is_followed(self.server, self.since)


@attrs.define
class Result:
    """``seconds`` for ``rows`` rows in ``batches``, and the sums of all that arrived, the rows before the clock included."""

    rows: int
    seconds: float
    answer: Answer
    batches: int = 1


def wait(condition: Callable[[], bool], query: Any = None) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if query is not None and query.exception() is not None:
            raise query.exception()
        if time.monotonic() > deadline:
            raise SystemExit("a contestant does not come to its end")
        time.sleep(0.05)


def expressions(names: Any) -> list[Any]:
    from pyspark.sql import functions

    return [functions.expr(SUMS[name][1]).alias(name) for name in names]


# -- to nowhere --------------------------------------------------------------------------------------------------------


def _stream(stage: Stage, frame: Any, gate: Any, is_live: Callable[[], bool] = lambda: True) -> Result:
    """Into the noop sink; the clock stops when Spark has written down that the last batch is done."""
    names = list(SUMS) if stage.whole else ["rows", "id"]
    with stage.scratch() as scratch:
        writer = frame.observe("sums", *expressions(names)).writeStream.format("noop")
        query = writer.option("checkpointLocation", str(scratch)).start()
        try:
            wait(is_live, query)
            gate.warm()
            watched = _Watched(query)
            wait(lambda: watched.has(warming(stage.rows)), query)
            before = _progress(query)
            warm = sum(batch["numInputRows"] for batch in before)
            gate.hold()
            begin = time.time()
            gate.release()
            wait(lambda: watched.has(stage.rows), query)
            batches = _progress(query)
        finally:
            query.stop()
    last = batches[-1]
    end = datetime.fromisoformat(last["timestamp"]).timestamp() + last["durationMs"]["triggerExecution"] / 1000
    found = [batch["observedMetrics"]["sums"] for batch in batches]
    answer = {name: sum(int(sums[name] or 0) for sums in found) for name in names}
    return Result(stage.rows - warm, end - begin, answer, len(batches) - len(before))


def _progress(query: Any) -> list[Any]:
    """What Spark tells of each batch that had rows."""
    return [batch for batch in (json.loads(one.json) for one in query.recentProgress) if batch["numInputRows"]]


class _Watched:
    """How many rows a query has taken; looks again only when a batch more is done, since it costs the JVM something."""

    def __init__(self, query: Any) -> None:
        self._query = query
        self._batch = -1
        self._rows = 0

    def has(self, rows: int) -> bool:
        last = self._query.lastProgress
        if last is not None and last.batchId != self._batch:
            self._batch = last.batchId
            self._rows = sum(batch["numInputRows"] for batch in _progress(self._query))
        return self._rows >= rows


def ready(stage: Stage) -> Result:
    """The yardstick, of the columns that the source "canal" gives."""
    with stage.gate() as gate:
        return _stream(stage, stage.ready(stage.spark.readStream), gate)


def ready_bare(stage: Stage) -> Result:
    """The yardstick, of the table's ten columns alone."""
    with stage.gate("bare") as gate:
        return _stream(stage, stage.ready(stage.spark.readStream, "bare"), gate)


def canal_spool(stage: Stage) -> Result:
    """The source, as it is by default where executors see its spool."""
    with stage.burst(stage.rows) as burst:
        return _stream(stage, stage.stream(burst.table, transport="file"), burst, stage.is_live)


def canal_bytes(stage: Stage) -> Result:
    """The source, with the events in the partitions."""
    with stage.burst(stage.rows) as burst:
        return _stream(stage, stage.stream(burst.table, transport="bytes"), burst, stage.is_live)


class _Files:
    """Puts parquet files where a stream looks for them."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = source, target

    def warm(self) -> None:
        self._link("warm")

    def hold(self) -> None:
        pass

    def release(self) -> None:
        self._link("all")

    def _link(self, step: str) -> None:
        for path in sorted((self._source / step).iterdir()):
            os.link(path, self._target / f"{step}-{path.name}")


def parquet(stage: Stage) -> Result:
    """Spark's own reader of parquet files of the same rows and columns."""
    schema = stage.spark.read.parquet(str(stage.directory / "parquet" / "all")).schema
    with stage.scratch() as scratch:
        frame = stage.spark.readStream.schema(schema).parquet(str(scratch))
        return _stream(stage, frame, _Files(stage.directory / "parquet", scratch))


def _job(stage: Stage, frame: Any) -> Result:
    """A job into the noop sink."""
    from pyspark.sql import Observation

    names = list(SUMS) if stage.whole else ["rows", "id"]
    observation = Observation("sums")
    frame = frame.observe(observation, *expressions(names))
    begin = time.time()
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.time() - begin
    return Result(stage.rows, seconds, {name: int(observation.get[name]) for name in names})


def ready_job(stage: Stage) -> Result:
    """The yardstick, read by a job."""
    return _job(stage, stage.ready(stage.spark.read))


def parquet_job(stage: Stage) -> Result:
    return _job(stage, stage.spark.read.parquet(*(str(stage.directory / "parquet" / step) for step in ("warm", "all"))))


def canal_dump(stage: Stage) -> Result:
    """The source, each task with a dump of its own: a backlog, or a bounded range."""
    start, end = stage.span
    reader = stage.spark.read.format("canal").options(**stage.options(), startingPosition=start, endingPosition=end)
    return _job(stage, reader.load())


# -- to Delta ----------------------------------------------------------------------------------------------------------


class _Delta:
    """A Delta table kept equal by ``apply_changes``, and when it had how many rows."""

    def __init__(self, directory: Path) -> None:
        self.target = DeltaTableTarget(str(directory / "delta"))
        self._apply = apply_changes(self.target, keys=["id"])
        self.done: list[tuple[float, int]] = []
        self.seen: dict[int, float] = {}

    def __call__(self, changes: Any, batch: Any) -> None:
        rows = changes if hasattr(changes, "num_rows") else changes.toArrow()
        if rows.num_rows:
            self._apply(rows, batch)
            now = time.time()
            self.done.append((now, rows.num_rows))
            if rows.num_rows < 1000:
                self.seen.update(dict.fromkeys(rows["id"].to_pylist(), now))

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.done)

    def result(self, stage: Stage, rows: int, warm: int, begin: float) -> Result:
        import deltalake

        files = deltalake.DeltaTable(self.target.path).file_uris()
        found = stage.spark.read.parquet(*files).agg(*expressions(SUMS)).collect()[0].asDict()
        batches = sum(time_ > begin for time_, _ in self.done)
        return Result(rows - warm, self.done[-1][0] - begin, {name: int(value) for name, value in found.items()}, batches)


@contextmanager
def _query(stage: Stage, frame: Any, scratch: Path, sink: _Delta) -> Iterator[Any]:
    query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(scratch / "checkpoint")).start()
    try:
        yield query
    finally:
        query.stop()


def _to_delta(stage: Stage, frame: Any, gate: Any, is_live: Callable[[], bool] = lambda: True) -> Result:
    with stage.scratch() as scratch:
        sink = _Delta(scratch)
        with _query(stage, frame, scratch, sink) as query:
            wait(is_live, query)
            gate.warm()
            wait(lambda: sink.rows >= warming(stage.rows), query)
            gate.hold()
            warm, begin = sink.rows, time.time()
            gate.release()
            wait(lambda: sink.rows >= stage.rows, query)
        return sink.result(stage, stage.rows, warm, begin)


def ready_delta(stage: Stage) -> Result:
    """The yardstick into the same sink."""
    with stage.gate() as gate:
        return _to_delta(stage, stage.ready(stage.spark.readStream), gate)


def canal_delta(stage: Stage) -> Result:
    """The source, foreachBatch and apply_changes: a Delta table equal to the server's."""
    with stage.burst(stage.rows) as burst:
        return _to_delta(stage, stage.stream(burst.table), burst, stage.is_live)


@contextmanager
def _loop(stage: Stage, name: str, sink: _Delta) -> Iterator[None]:
    """``foreach_batch`` in a thread, over an Instance of its own."""
    server = stage.server
    source = canal.MySQLSource(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        ssl_mode="DISABLED",
        get_server_public_key=True,
    )
    config = canal.InstanceConfig(destination="loop", source=source, filter=name.replace(".", r"\."), meta=canal.MemoryMeta())
    with canal.Instance(config) as instance:
        instance.subscribe()
        stop = threading.Event()
        thread = threading.Thread(target=foreach_batch, args=(None, instance, sink), kwargs={"stop": stop}, daemon=True)
        thread.start()
        wait(stage.is_live)
        try:
            yield
        finally:
            stop.set()
            thread.join()


def canal_loop_delta(stage: Stage) -> Result:
    """``foreach_batch`` and apply_changes; Spark has no part in it."""
    with stage.burst(stage.rows) as burst, stage.scratch() as scratch:
        sink = _Delta(scratch)
        with _loop(stage, burst.table, sink):
            burst.warm()
            wait(lambda: sink.rows >= warming(stage.rows))
            burst.hold()
            warm, begin = sink.rows, time.time()
            burst.release()
            wait(lambda: sink.rows >= stage.rows)
        return sink.result(stage, stage.rows, warm, begin)


@contextmanager
def _feed(stage: Stage, name: str, scratch: Path) -> Iterator[tuple[Feed, Any]]:
    """Debezium's engine, live, and the schema of the source "canal" for the same table."""
    assert stage.jars is not None
    schema = CanalSource(stage.options(name))._columns().arrow
    feed = Feed(stage.jars, stage.server, name, scratch)
    try:
        wait(stage.is_live)
        yield feed, schema
    finally:
        feed.close()


def debezium_lines(stage: Stage) -> Result:
    """Debezium's engine, whose JSON lines are counted and thrown away; Spark has no part in it."""
    with stage.burst(stage.part) as burst, stage.scratch() as scratch, _feed(stage, burst.table, scratch) as (feed, _):
        burst.warm()
        rows = 0
        while rows < warming(stage.part):
            rows += feed.lines().count(b"\n")
        burst.hold()
        warm, begin = rows, time.time()
        burst.release()
        batches = 0
        while rows < stage.part:
            rows += feed.lines().count(b"\n")
            batches += 1
        return Result(stage.part - warm, time.time() - begin, {"rows": rows}, batches)


def debezium_delta(stage: Stage) -> Result:
    """Debezium's engine, its JSON lines made Arrow, and the same apply_changes on it; Spark has no part in it."""
    with stage.burst(stage.part) as burst, stage.scratch() as scratch, _feed(stage, burst.table, scratch) as (feed, schema):
        sink = _Delta(scratch)
        burst.warm()
        while sink.rows < warming(stage.part):
            sink(table(feed.lines(), schema), None)
        burst.hold()
        warm, begin = sink.rows, time.time()
        burst.release()
        while sink.rows < stage.part:
            sink(table(feed.lines(), schema), None)
        return sink.result(stage, stage.part, warm, begin)


CONTESTANTS: dict[str, Callable[[Stage], Result]] = {
    one.__name__: one
    for one in (
        ready,
        ready_bare,
        parquet,
        canal_spool,
        canal_bytes,
        ready_job,
        parquet_job,
        canal_dump,
        ready_delta,
        canal_delta,
        canal_loop_delta,
        debezium_lines,
        debezium_delta,
    )
}
#: Those that read a part of the rows.
SLOW = ("debezium_lines", "debezium_delta")


# -- from an event to Delta --------------------------------------------------------------------------------------------


def _paced(stage: Stage, first: int, rows: int, rate: float) -> Iterator[int]:
    begin = time.monotonic()
    for number in range(rows):
        time.sleep(max(0.0, begin + number / rate - time.monotonic()))
        yield first + number


def _latencies(stage: Stage, name: str, sink: _Delta, rows: int, rate: float) -> list[float]:
    """Seconds from the beginning of the INSERT of each row until Delta's commit has it."""
    for _ in drip(stage.server, name, _paced(stage, 1, 20, 10), time.time):  # warms up
        pass
    wait(lambda: sink.rows >= 20)
    begun = drip(stage.server, name, _paced(stage, 1001, rows, rate), time.time)
    wait(lambda: sink.rows >= 20 + rows)
    return [sink.seen[number] - moment for number, moment in begun.items()]


@contextmanager
def _table(stage: Stage) -> Iterator[str]:
    name = f"bench.drip_{next(_numbers)}"
    stage.since = connection_number(stage.server)
    stage.server.query(f"CREATE TABLE {name} {COLUMNS}")
    try:
        yield name
    finally:
        stage.server.query(f"DROP TABLE {name}")


def canal_latency(stage: Stage, rows: int, rate: float) -> list[float]:
    """The source with the default trigger, foreachBatch and apply_changes."""
    with _table(stage) as name, stage.scratch() as scratch:
        sink = _Delta(scratch)
        with _query(stage, stage.stream(name), scratch, sink) as query:
            wait(stage.is_live, query)
            return _latencies(stage, name, sink, rows, rate)


def canal_loop_latency(stage: Stage, rows: int, rate: float) -> list[float]:
    """``foreach_batch`` and apply_changes."""
    with _table(stage) as name, stage.scratch() as scratch:
        sink = _Delta(scratch)
        with _loop(stage, name, sink):
            return _latencies(stage, name, sink, rows, rate)


def debezium_latency(stage: Stage, rows: int, rate: float) -> list[float]:
    """Debezium's engine and apply_changes, each batch at once."""
    with _table(stage) as name, stage.scratch() as scratch, _feed(stage, name, scratch) as (feed, schema):
        sink = _Delta(scratch)

        def follow() -> None:
            while sink.rows < 20 + rows:
                sink(table(feed.lines(), schema), None)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        found = _latencies(stage, name, sink, rows, rate)
        thread.join()
        return found


LATENCIES: dict[str, Callable[[Stage, int, float], list[float]]] = {
    "canal_latency": canal_latency,
    "canal_loop_latency": canal_loop_latency,
    "debezium_latency": debezium_latency,
}


# -- nothing to do -----------------------------------------------------------------------------------------------------


def idle(stage: Stage, seconds: float) -> dict[str, float]:
    """Processor time of an idle query, all processes but the server's, in ms per s; that of a bare poll in ms."""
    with _table(stage) as name, stage.gate() as gate, stage.scratch() as scratch:
        gate.warm()
        found = {
            "canal": _idle_cpu(stage, stage.stream(name), scratch / "canal", seconds),
            "ready": _idle_cpu(stage, stage.ready(stage.spark.readStream), scratch / "ready", seconds),
        }
        source = CanalSource({**stage.options(name), "pollTimeout": "0"})
        reader = source.streamReader(source.schema())
        try:
            offset = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
            begin = time.perf_counter()
            for _ in range(1000):
                assert reader.latestOffset(offset, reader.getDefaultReadLimit()) == offset
                reader.reportLatestOffset()
            found["poll"] = time.perf_counter() - begin
        finally:
            reader.stop()
    return found


def _idle_cpu(stage: Stage, frame: Any, checkpoint: Path, seconds: float) -> float:
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        wait(lambda: query.lastProgress is not None, query)
        time.sleep(5)
        before = cpu_seconds(stage.server.pid)
        time.sleep(seconds)
        after = cpu_seconds(stage.server.pid)  # a worker may have ended with what it had used
        return sum(max(0.0, used - before.get(pid, 0.0)) for pid, used in after.items()) / seconds * 1000
    finally:
        query.stop()


def cpu_seconds(server: int | None) -> dict[int, float]:
    """Processor time of this process and all below it but the server, so far, by their numbers."""
    below: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            rest = path.read_text().rpartition(")")[2]
        except OSError:
            continue
        pid, fields = int(path.parent.name), rest.split()
        below.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15]))  # its own, and that of children that have ended
    found, left = {}, [os.getpid()]
    while left:
        pid = left.pop()
        if pid == server:
            continue
        found[pid] = used.get(pid, 0) / os.sysconf("SC_CLK_TCK")
        left += below.get(pid, [])
    return found
