"""The readers of the data source: offsets and partitions of a stream or a range, and rows on executors.

The reader of a stream lives in the process that Spark keeps for the query; ``read`` runs on executors and decodes.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from canal.errors import ConfigError
from canal.formats.change_table import Shape, pack_txn
from canal.formats.envelope import Envelope
from canal.model import Entry
from canal.parse.source.mysql import MySQLSource, another
from canal.snapshot.chunks import SnapshotPart, SnapshotRows, read_chunk
from canal.spark.options import Options
from canal.spark.stream.filters import Condition, conditions_of
from canal.spark.stream.offsets import INITIAL
from canal.spark.stream.runner import Runner, snapshot_parts, snapshot_plan
from canal.spark.stream.stretch import Stretch, plan, read_stretch
from canal.spark.stream.watch import Watch
from canal.spool.segments import read_entries
from canal.spool.spool import Piece, piece_source

_BATCH_BYTES = 16 << 20
_is_spared = False


@attrs.define(slots=False)
class _Partition(InputPartition):
    """What one task reads: a piece of the spool, a stretch of the log, or a part of the table."""

    what: Piece | Stretch | SnapshotPart | SnapshotRows


# -- reading, on executors ---------------------------------------------------------------------------------------------


class _Reading:
    """What readers of both kinds do with a partition. Pickles: it holds options and columns only."""

    def __init__(self, options: Options, shape: Shape | Envelope) -> None:
        self._options = options
        self._shape = shape

    @property
    def _table(self) -> Shape | None:
        return self._shape if isinstance(self._shape, Shape) else None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, read and decoded here."""
        if not isinstance(partition, _Partition):
            return
        what = partition.what
        if isinstance(what, SnapshotPart):
            source, shape = cast(MySQLSource, another(self._options.source)), cast(Shape, self._shape)
            yield from read_chunk(source, shape, what.plan, what.chunk, tell_empty=self._options.snapshot != "never")
        elif isinstance(what, SnapshotRows):
            yield from what.batches()
        else:
            yield from self._batches(self._entries(what))
        _spare_collector()

    def _entries(self, what: Piece | Stretch) -> Iterator[tuple[int, Entry]]:
        if isinstance(what, Piece):
            return read_entries(*piece_source(what))
        return read_stretch(self._options, Watch(self._table, self._options, what.types, what.types_at), what)

    def _batches(self, entries: Iterable[tuple[int, Entry]]) -> Iterator[pa.RecordBatch]:
        """Arrow of entries, so many rows at a time."""
        chunk: list[Entry] = []
        rows = size = last = 0
        for epoch, entry in entries:
            if chunk and (epoch != last or rows >= self._options.batch_rows or size >= _BATCH_BYTES):
                yield from self._decoded(chunk, last)
                chunk, rows, size = [], 0, 0
            last = epoch
            chunk.append(entry)
            rows += entry.header.row_count
            size += len(entry.data)
        if chunk:
            yield from self._decoded(chunk, last)

    def _decoded(self, entries: list[Entry], epoch: int) -> Iterator[pa.RecordBatch]:
        shape = self._shape
        if isinstance(shape, Envelope):
            yield shape.batch(entries, epoch)
            return
        begin = 0
        for number, entry in enumerate(entries):
            if entry.table is None:
                yield from shape.batches(entries[begin:number], epoch)
                yield _emptied(shape, entry, epoch)
                begin = number + 1
        yield from shape.batches(entries[begin:], epoch)


def _spare_collector() -> None:
    """In a worker process of Spark, behind the first rows: take what is loaded by then out of garbage collections.

    A worker makes a full one behind every task, which took as long as decoding 200,000 rows.
    """
    global _is_spared
    if not _is_spared and TaskContext.get() is not None:
        _is_spared = True
        gc.freeze()


def _emptied(shape: Shape, entry: Entry, epoch: int) -> pa.RecordBatch:
    """The row that tells of a TRUNCATE or DROP of the table."""
    transaction = entry.transaction
    journal, offset = transaction.journal, transaction.offset
    gtid = transaction.gtid or f"{journal}:{offset}"
    return shape.emptied_batch(pack_txn(epoch, journal, offset), entry.first_row, entry.timestamp * 1_000_000, gtid)


# -- the stream --------------------------------------------------------------------------------------------------------


class CanalStreamReader(_Reading, DataSourceStreamReader):
    """The reader of a stream: offsets and partitions in the process of the query, ``read`` on executors.

    As Spark 4.0 and 4.1 use it, which tell it neither where the next batch starts, nor a limit, nor that their trigger is
    AvailableNow: they ask once then, as for each first batch of a run, which therefore takes all that there is by then. It
    starts where the last one ended that was given; a run that goes on asks for the empty range behind that before all else.
    """

    def __init__(self, options: Options, shape: Shape | Envelope) -> None:
        super().__init__(options, shape)
        self._open: Runner | None = None
        self._last: dict[str, Any] | None = None
        self._has_begun = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}

    @property
    def _runner(self) -> Runner:
        if self._open is None:
            self._open = Runner(self._options, self._table)
            _end_with_process(self.stop)
        return self._open

    def initialOffset(self) -> dict[str, Any]:
        return dict(INITIAL)

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        runner, options = self._runner, self._options
        find = runner.latest if self._has_begun else runner.latest_at_once
        self._last = find(self._last or dict(INITIAL), options.max_rows, options.max_bytes)
        self._has_begun = True
        return self._last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._last = self._last or end
        return [_Partition(what) for what in self._runner.ranges(start, end)]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark calls this late or not at all: the next ``latestOffset`` shows what it has done for sure."""

    def stop(self) -> None:
        with _to_its_end():
            runner, self._open = self._open, None
            if runner is not None:
                runner.close()


def _end_with_process(close: Any) -> None:
    """Have ``close`` called when Spark ends the process, which it does by SIGTERM."""
    atexit.register(close)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise SystemExit(0)


@contextlib.contextmanager
def _to_its_end() -> Iterator[None]:
    """Let a SIGTERM wait until this is done: it may come while the process ends by itself, and half closed a spool would stay."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not _leave:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, _leave)
        if came:
            _leave(signal.SIGTERM, None)


# -- a bounded range ---------------------------------------------------------------------------------------------------


class CanalReader(_Reading, DataSourceReader):
    """The reader of a bounded range, from startingPosition or startingTime to endingPosition or endingTime, or of a table."""

    _conditions: tuple[Condition, ...] = ()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        if options.mode == "snapshot":
            return [_Partition(what) for what in snapshot_parts(snapshot_plan(options, self._table))]
        connection = another(options.source).connect()
        try:
            start = connection.resolve(options.starting or "earliest")
            end = connection.resolve(options.ending or "latest")
        finally:
            connection.close()
        if not end.journal and not start.gtid and start.offset > 4:  # how much of the set is left cannot be told
            raise ConfigError(
                f"the range ends at a GTID set and starts at {start}, whose GTIDs are not known",
                remedy="Give both as journal:offset, or both as GTID sets.",
            )
        if end.precedes(start):
            raise ConfigError(f"the range ends at {end}, before it starts at {start}")
        parts = plan(options, Stretch(start, end))
        return [_Partition(what) for what in parts if all(one.reaches(what) for one in self._conditions)]

    def _entries(self, what: Piece | Stretch) -> Iterator[tuple[int, Entry]]:
        entries = super()._entries(what)  # all of them are looked at: what a filter leaves out may tell of an unlogged change
        if not self._conditions:
            return entries
        return ((epoch, entry) for epoch, entry in entries if all(one.takes(entry, epoch) for one in self._conditions))


class FilteredReader(CanalReader):
    """As Spark 4.1 and later use it with ``spark.sql.python.filterPushdown.enabled``, where a query has filters."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Take note of them, and leave them all to Spark."""
        self._conditions = conditions_of(filters)
        return filters
