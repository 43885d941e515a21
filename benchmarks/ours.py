"""The library as a contestant: ``python -m benchmarks.ours STAGE JOB``. Most stages are what is done with each message."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import canal
from benchmarks.meter import Meter
from canal.changes import Change, TableState
from canal.targets import Guarantee, LogWork, StateWork


def undecoded(message: canal.Message, meter: Meter) -> None:
    """get and ack, rows counted."""
    meter.rows += message.row_count


def rows(message: canal.Message, meter: Meter) -> None:
    """Every value, row by row."""
    watch, ids = meter.watch, 0
    for entry in message.entries:
        for row in entry.rows:
            before, after = row.before and tuple(row.before), tuple(row.after)
            meter.rows += 1
            ids += after[0]
            if watch:
                meter.look(before, after)
    meter.ids += ids


def tuples(message: canal.Message, meter: Meter) -> None:
    """Every value, one call per entry."""
    watch, ids = meter.watch, 0
    for entry in message.entries:
        before, after = entry.tuples()
        if after is None:
            continue
        for image in after:
            ids += image[0]
        meter.rows += len(after)
        if watch:
            for pair in zip(before or [None] * len(after), after):
                meter.look(*pair)
    meter.ids += ids


def columns(message: canal.Message, meter: Meter) -> None:
    """canal's columns: texts with type codes."""
    for entry in message.entries:
        for row in entry.row_change.row_datas:
            meter.rows += 1
            meter.ids += int(row.after_columns[0].value)
            if meter.watch:
                meter.look(*(_values(found, meter.kinds) for found in (row.before_columns, row.after_columns)))


def _values(found: list[Any], kinds: list[str]) -> list[Any] | None:
    """Of canal's columns: bytes come as characters, labels as numbers."""
    made: list[Any] = [None if column.is_null else column.value for column in found]
    for k, (kind, value) in enumerate(zip(kinds, made)):
        if value is not None and kind in ("bytes", "enum"):
            made[k] = value.encode("latin-1") if kind == "bytes" else int(value)
    return made or None


def arrow(message: canal.Message, meter: Meter) -> None:
    """Record batches."""
    import pyarrow.compute as pc

    for batch in message.to_arrow():
        images = 2 if meter.job["update"] else 1
        meter.rows += batch.num_rows // images
        meter.ids += pc.sum(batch.column("id")).as_py() // images
        if meter.watch:
            found = [list(row.values())[3:-2] for row in batch.to_pylist()]  # between _op, _txn, _ord and _absent, _exact
            for k in range(0, len(found), images):
                meter.look(found[k] if images == 2 else None, found[k + images - 1])


STAGES: dict[str, Callable[[canal.Message, Meter], None]] = {
    stage.__name__: stage for stage in (undecoded, rows, tuples, columns, arrow)
}


def source(job: dict[str, Any]) -> Any:
    if job["from_file"]:
        return canal.LocalBinlogSource(job["file"])
    return canal.MySQLSource(
        host=job["host"],
        port=job["port"],
        user=job["user"],
        password=job["password"],
        ssl_mode="DISABLED",
        get_server_public_key=True,
    )


def config(job: dict[str, Any], **options: Any) -> canal.InstanceConfig:
    return canal.InstanceConfig(
        destination="bench",
        source=source(job),
        filter=rf"{job['schema']}\..*",
        start=canal.Position(journal=job["journal"], offset=job["offset"]),
        **options,
    )


def read(stage: Callable[[canal.Message, Meter], None], job: dict[str, Any], directory: str) -> Meter:
    meter = Meter(job)
    lagging = {"store_entries": 4 * job["rows"] + 1000, "store_bytes": 8 << 30} if job["lag"] else {}
    meta = canal.FileMeta(directory) if job["durable"] else canal.MemoryMeta()
    with canal.Instance(config(job, meta=meta, **lagging)) as instance:
        instance.subscribe()
        while job["lag"] and instance.status().store.put_rows < job["rows"]:
            time.sleep(0.05)
        if job["decode_threads"]:
            read_ahead(instance, stage, meter)
        while meter.more():
            message = instance.get_without_ack(job["batch"], timeout=60.0)
            if not message:
                raise SystemExit(f"nothing came for a minute behind {meter.rows} rows")
            stage(message, meter)
            instance.ack(message.id)
        meter.end(values=stage is not undecoded)
    return meter


class Part:
    """What a thread counts of one message, as a meter does."""

    def __init__(self, meter: Meter) -> None:
        self.job, self.watch, self.kinds = meter.job, meter.watch, meter.kinds
        self.rows = self.ids = 0
        self.seen: list[tuple[Any, Any]] = []

    def look(self, before: Any, after: Any) -> None:
        self.seen.append((before, after))


def read_ahead(instance: canal.Instance, stage: Callable[[canal.Message, Any], None], meter: Meter) -> None:
    """The stage runs in threads, each of which has another message."""

    def decode(message: canal.Message) -> Part:
        part = Part(meter)
        stage(message, part)
        return part

    with instance.decoded(decode, meter.job["batch"], decode_threads=meter.job["decode_threads"], poll=60.0) as parts:
        for _, part in parts:
            meter.rows += part.rows
            meter.ids += part.ids
            for pair in part.seen:
                meter.look(*pair)
            if not meter.more():
                return


def framing(job: dict[str, Any]) -> Meter:
    """Events are cut out of the stream and left as they are; rows are reckoned from the last position that they tell."""
    meter, offset = Meter(job), job["offset"]
    connection, at = source(job).connect(), offset
    connection.dump(canal.Position(journal=job["journal"], offset=offset))
    while meter.more():
        events = connection.read(60.0)
        if not events:
            raise SystemExit(f"nothing came for a minute behind {meter.rows} rows")
        end = _end_of(events[-1])
        if not offset < at < end:  # the first read, or one that ends with the head of the log behind
            end = max(map(_end_of, events))
        at = max(at, end)
        meter.rows = min(job["rows"] * (at - offset) // job["bytes"], job["rows"])
    connection.close()
    meter.end(values=False)
    return meter


def _end_of(event: bytes) -> int:
    """Where the log goes on behind an event; 0 of what a server makes up."""
    return int.from_bytes(event[13:17], "little")


class Nowhere:
    """A target that counts what it is given: the changes, or with ``tables`` what is to be done to each table."""

    guarantee = Guarantee.APPENDED
    scope = "all"

    def __init__(self, meter: Meter, tables: bool) -> None:
        self._meter, self.is_log = meter, not tables

    @contextmanager
    def begin(self, stream: str) -> Iterator[LogWork | StateWork]:
        yield _Changes(self._meter) if self.is_log else _Tables(self._meter)


class _Counted:
    stopping: Any

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def load(self, table: str) -> str | None:
        return None

    def count(self, changes: Sequence[Change]) -> None:
        meter = self._meter
        meter.rows += len(changes)
        for change in changes:
            after: Any = change.after
            meter.ids += after[0]
            if meter.watch:
                meter.look(change.before and tuple(change.before), tuple(after))
        if not meter.more():
            self.stopping.set()


class _Changes(_Counted, LogWork):
    def write(self, made: Sequence[Change], old: str | None, new: str, table: str) -> None:
        self.count(made)


class _Tables(_Counted, StateWork):
    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        for state in made:
            self.count(state.changes)


def piped(job: dict[str, Any], tables: bool = False) -> Meter:
    """Through ``canal.pipe`` into a target that writes nothing."""
    meter = Meter(job)
    with canal.Instance(config(job, meta=canal.MemoryMeta())) as instance:
        instance.subscribe()
        canal.pipe(instance, Nowhere(meter, tables)).run()
        meter.end()
    return meter


#: Stages of another shape than get and ack.
LINES: dict[str, Callable[[dict[str, Any]], Meter]] = {
    "framing": framing,
    "pipe": piped,
    "pipe_tables": lambda job: piped(job, tables=True),
}


def main() -> None:
    name, job = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    further = ("canal.formats.arrow", "pyarrow.compute") if name == "arrow" else ("canal.pipes",)
    for module in ("canal.instance.instance", "canal.parse.source.mysql", "canal.parse.source.files", *further):
        importlib.import_module(module)  # imports are no part of the race
    if name in LINES:
        LINES[name](job)
        return
    with tempfile.TemporaryDirectory() as directory:
        read(STAGES[name], job, directory)


if __name__ == "__main__":
    main()
