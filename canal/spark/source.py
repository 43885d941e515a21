"""The Spark data source "canal": the stream of a table's changes, and bounded ranges of it.

Never opens anything when it is made: Spark makes it, and pickles it, in processes that come and go. The reader of a stream
lives in the process that Spark keeps for the query; ``read`` runs on executors and decodes.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib.util
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import attrs
import pyarrow as pa
from pyspark import TaskContext, __version__

from canal.errors import ConfigError

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
except ModuleNotFoundError as error:
    raise ConfigError(
        f"the canal source needs Spark 4.0 or later, this is {__version__}",
        remedy="canal.spark.foreach_batch and apply_changes run on Spark 3.5 too.",
    ) from error
from pyspark.sql.types import StructType

from canal.model import Entry
from canal.parse.source.mysql import MySQLSource, another
from canal.parse.source.protocol import FullConnection, complete
from canal.position import Position
from canal.schema import TableSchema
from canal.spark.options import Options, parse_options
from canal.spark.segments import read_entries
from canal.spark.snapshot.chunks import NO_TABLE, SnapshotPart, SnapshotRows, read_chunk, read_table
from canal.spark.stream.filters import Condition, are_handed, conditions_of
from canal.spark.stream.offsets import INITIAL
from canal.spark.stream.runner import Runner, snapshot_parts, snapshot_plan
from canal.spark.stream.shared_instance import attach
from canal.spark.stream.spool import Piece, piece_source
from canal.spark.stream.stretch import Stretch, open_instance, plan, read_stretch
from canal.spark.stream.watch import Watch
from canal.spark.types import Envelope, Shape, pack_txn

_BATCH_BYTES = 16 << 20
_is_spared = False


@attrs.define(slots=False)
class _Partition(InputPartition):
    """What one task reads: a piece of the spool, a stretch of the log, or a part of the table."""

    what: Piece | Stretch | SnapshotPart | SnapshotRows


class CanalSource(DataSource):
    """``spark.readStream.format("canal")`` and ``spark.read.format("canal")``; see docs/spark.md for the options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._parsed = parse_options(options)
        self._shape: Shape | Envelope | None = None

    @classmethod
    def name(cls) -> str:
        return "canal"

    def schema(self) -> StructType:
        struct: StructType = self._columns().struct
        return struct

    def _columns(self) -> Shape | Envelope:
        """The columns of the stream, found out once: those that the table has now."""
        if self._shape is None:
            options = self._parsed = attach(self._parsed)
            if options.table is None:
                self._shape = Envelope()
            else:
                since = end_of_log(options)
                table = chosen(find_table(options), options.columns)
                self._shape = Shape(table, options.schema_change == "keep", since, bool(options.columns))
        return self._shape

    def _checked(self, schema: StructType) -> Shape | Envelope:
        shape = self._columns()
        if schema != shape.struct:
            raise ConfigError(
                "the canal source takes no schema: its columns are those of the table", remedy="Leave .schema(…) out."
            )
        return shape

    def streamReader(self, schema: StructType) -> CanalStreamReader:
        if self._parsed.ending is not None:
            raise ConfigError("endingPosition and endingTime are for a bounded range: spark.read.format('canal')")
        if self._parsed.mode == "snapshot":
            raise ConfigError("a stream of a table and its changes is snapshot=initial; mode=snapshot is for spark.read")
        shape = self._checked(schema)
        return _stream_reader()(self._parsed, shape)

    def reader(self, schema: StructType) -> CanalReader:
        if self._parsed.snapshot != "never":
            raise ConfigError(
                f"snapshot={self._parsed.snapshot} is for a stream; spark.read takes mode=snapshot",
                remedy="For a table at one moment run the stream once, with Trigger.AvailableNow.",
            )
        shape = self._checked(schema)
        reader = FilteredReader if are_handed() else CanalReader
        return reader(attrs.evolve(self._parsed, is_bounded=True), shape)

    def __repr__(self) -> str:
        return "CanalSource()"


def chosen(table: TableSchema, names: Sequence[str]) -> TableSchema:
    """The table with these of its columns, in its order; with all of them where none is named.

    Raises:
        ConfigError: it has no such column.
    """
    wanted = {name.lower() for name in names}
    if missing := wanted - {column.name.lower() for column in table.columns}:
        raise ConfigError(
            f"{table.name} has no columns {', '.join(sorted(missing))}", remedy="Name columns that the table has now."
        )
    return attrs.evolve(table, columns=tuple(one for one in table.columns if one.name.lower() in wanted)) if wanted else table


def end_of_log(options: Options) -> Position | None:
    """The position in the log behind which all that comes is younger than the columns that a server tells from now on."""
    connection = complete(another(options.source).connect())
    try:
        return connection.resolve("latest") if connection.identity else None
    finally:
        connection.close()


def find_table(options: Options) -> TableSchema:
    """The columns of the one table: as the source's server knows them now, else as the log tells them first.

    Raises:
        ConfigError: there is no such table, or the log does not tell its columns.
    """
    assert options.table is not None
    source = another(options.source)
    if options.snapshot != "never" or options.mode == "snapshot":
        if not isinstance(source, MySQLSource):
            raise ConfigError(
                "a snapshot is of one table of a server, and the shared Instance has none that can be connected to",
                remedy="Give the Instance a MySQLSource, or leave the snapshot out.",
            )
        return read_table(source, *options.table)
    connection = complete(source.connect())
    try:
        found = _columns_now(connection, *options.table)
        has_server = bool(connection.identity)
        start: str | Position = connection.resolve(options.starting or "earliest") if not has_server else "earliest"
    finally:
        connection.close()
    if found is not None:
        return found
    name = ".".join(options.table)
    if has_server:
        raise ConfigError(
            f"there is no table {name}, or the user may not see it",
            remedy=NO_TABLE,
        )
    with open_instance(options, another(options.source), start) as instance:
        instance.subscribe()
        for message in instance.stream():
            for entry in message.entries:
                if entry.table is not None:
                    return entry.table.schema
    raise ConfigError(f"the binlog files hold no change of {name}", remedy="Check the name, or give tableSchema.")


def _columns_now(connection: FullConnection, schema: str, table: str) -> TableSchema | None:
    """With the columns that MariaDB hides, which its log has, where the connection can tell."""
    found = connection.describe(schema, table)
    if found is None:
        return connection.table_columns(schema, table)
    return next((state.schema for state in found.tables), None)


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


def _stream_reader() -> type[CanalStreamReader]:
    """The class of readers that this Spark knows how to use."""
    if importlib.util.find_spec("pyspark.sql.streaming.datasource") is None:
        return CanalStreamReader
    from canal.spark.limits import LimitedStreamReader

    return LimitedStreamReader


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


__all__ = ["CanalReader", "CanalSource", "CanalStreamReader", "find_table"]
