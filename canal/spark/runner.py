"""The stream in the process that Spark keeps for a query: an Instance, a spool of what it gave, offsets of that.

Never decodes a row: what is served are ranges of the spool, or places in the log for executors to read themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import socket
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import attrs

from canal.config import InstanceConfig
from canal.errors import CanalError, ConfigError, PositionLostError, SchemaError, SourceError, StateError, UnsupportedError
from canal.instance import Instance
from canal.model import Entry, EntryType, EventType, Message, Transaction
from canal.parse.history import FileHistory
from canal.parse.parser import BinlogParser
from canal.parse.scan import TransactionScan
from canal.parse.source import Source
from canal.position import Position, journal_key
from canal.schema import TableSchema
from canal.spark.offsets import INITIAL, Offset
from canal.spark.options import Options
from canal.spark.segments import HEADER, SegmentWriter, check_header, table_record, tables_of
from canal.spark.types import Shape, spark_arrow_type

log = logging.getLogger("canal.spark")

_GET: Final = 4096  # row changes of one get
_MOST_EPOCHS: Final = 31
_GRAIN_ROWS, _GRAIN_BYTES = 1000, 64 << 10  # how near two marks may lie that nobody asked for
_SEGMENT_BYTES: Final = 64 << 20
_CUT_BYTES: Final = 1 << 20
_PIECE_BYTES, _LARGE_PIECE_BYTES = 4 << 20, 16 << 20
_ONE_PIECE_BYTES: Final = 1 << 20


# -- what is delivered -------------------------------------------------------------------------------------------------


class Watch:
    """Decides, entry by entry, what is delivered, and finds what a query cannot go on after.

    Args:
        shape: the columns of the query; None for an envelope, which takes everything.
        options: ``schema_change``, ``on_truncate`` and ``statements``.
    """

    def __init__(self, shape: Shape | None, options: Options) -> None:
        self._shape = shape
        self._options = options
        self._known = None if shape is None else {field.name: field.type for field in shape.columns}
        self._reached = False  # rows have had just the query's columns
        self._seen: TableSchema | None = None
        self._name: tuple[str, str] | None = None

    def delivers(self, entry: Entry) -> bool:
        """Whether an entry is part of the stream.

        Raises:
            SchemaError: the table's columns have changed.
            UnsupportedError: the table was emptied, dropped or replaced, or was changed by a statement whose rows are not
                in the log.
        """
        if entry.entry_type is not EntryType.ROWDATA:
            return False
        if self._shape is None:
            return True
        if entry.table is None:
            return self._takes_statement(entry)
        if entry.table.schema is not self._seen:
            self._check_columns(entry, entry.table.schema)
            self._seen = entry.table.schema
        return True

    def _check_columns(self, entry: Entry, table: TableSchema) -> None:
        name = (table.schema, table.table)
        self._name = self._name or name
        if name != self._name:
            raise ConfigError(
                f"two tables are named so but for the case of letters: {'.'.join(self._name)} and {'.'.join(name)}",
                remedy="Read them as an envelope, with the option tables.",
            )
        if self._options.schema_change == "keep" or self._known is None:
            return
        found = {column.name: spark_arrow_type(column) for column in table.columns}
        if found == self._known:
            self._reached = True
        elif self._reached or not found.items() <= self._known.items():
            raise SchemaError(
                f"the columns of {table.name} have changed: {_difference(self._known, found)}",
                position=_place(entry),
                remedy="Everything before is delivered. Start the query again (load it anew) to read on with the present "
                "columns; if it then ends here again, these rows are older than the present columns: set schemaChange=keep.",
            )

    def _takes_statement(self, entry: Entry) -> bool:
        what = self._loss(entry)
        if not what:
            return False
        is_statement = entry.statement.kind == "dml"
        option = "onStatement" if is_statement else "onTruncate"
        choice = self._options.statements if is_statement else self._options.on_truncate
        if choice == "ignore":
            log.warning("%s at %s, which %s=ignore passes over", what, _place(entry), option)
            return False
        if choice == "row" and entry.event_type in (EventType.TRUNCATE, EventType.ERASE):
            return True
        raise UnsupportedError(
            what, position=_place(entry),
            remedy=f"Everything before is delivered. Bring the target to the same state, then go on with {option}=ignore"
            + (" for this one start." if is_statement else ", or have such statements in the stream with onTruncate=row."),
        )  # fmt: skip

    def _loss(self, entry: Entry) -> str:
        """What a statement did to the table's rows that the log does not tell row by row; "" for nothing."""
        assert self._shape is not None
        statement = entry.statement
        schema, table = self._shape.table.schema.lower(), self._shape.table.table.lower()
        ours = any((one[0].lower(), one[1].lower()) == (schema, table) for one in statement.tables)
        name = self._shape.table.name
        if statement.temporary:
            return ""
        if statement.kind == "dml":
            return f"{name} was changed by a statement, whose rows are not in the log" if ours else ""
        if any((new[0].lower(), new[1].lower()) == (schema, table) for _, new in statement.renames):
            return f"another table was renamed to {name}, with rows that were not in the stream"
        if any((old[0].lower(), old[1].lower()) == (schema, table) for old, _ in statement.renames):
            return f"{name} was renamed"
        if statement.schema_wide and statement.database.lower() == schema and _begins(entry.sql, "DROP"):
            return f"{name} was dropped with its database"
        if not ours:
            return ""
        if entry.event_type in (EventType.TRUNCATE, EventType.ERASE):
            return f"{name} was {'emptied by TRUNCATE' if entry.event_type is EventType.TRUNCATE else 'dropped'}"
        if statement.replaces:
            return f"{name} was replaced"
        if _PARTITIONS.search(entry.sql or ""):
            return f"partitions of {name} were emptied, dropped or exchanged"
        return ""


_PARTITIONS: Final = re.compile(r"\b(?:TRUNCATE|DROP|EXCHANGE|DISCARD|IMPORT)\s+(?:PARTITION|TABLESPACE)\b", re.IGNORECASE)


def _begins(sql: str | None, word: str) -> bool:
    return re.sub(r"/\*.*?\*/", " ", sql or "").lstrip().upper().startswith(word)


def _difference(known: dict[str, Any], found: dict[str, Any]) -> str:
    parts = [f"{name} is new" for name in found if name not in known]
    parts += [f"{name} is gone" for name in known if name not in found]
    parts += [f"{name} is {kind}, was {known[name]}" for name, kind in found.items() if known.get(name, kind) != kind]
    return ", ".join(parts)


def _place(entry: Entry) -> str:
    return f"{entry.transaction.journal}:{entry.offset}"


class Epochs:
    """Counts how often the source of transactions has become another server."""

    def __init__(self, source: str, epoch: int) -> None:
        self._source = source
        self._epoch = epoch

    def of(self, transaction: Transaction) -> int:
        if transaction.source != self._source:
            if self._source:
                self._epoch += 1
                log.warning("the source is another server: %s, before %s", transaction.source, self._source)
            self._source = transaction.source
        if self._epoch > _MOST_EPOCHS:
            raise UnsupportedError(
                f"the source has been another server {self._epoch} times, and _txn holds {_MOST_EPOCHS}",
                remedy="Begin a new checkpoint, and copy the table anew.",
            )
        return self._epoch


# -- a stretch of the log, read to an end ------------------------------------------------------------------------------


class Until:
    """A source whose connections end their stream at a position."""

    def __init__(self, source: Source, end: Position) -> None:
        self._source = source
        self._end = end
        self.parser: BinlogParser | None = None

    def connect(self, server_id_hint: int | None = None) -> Any:
        return _UntilConnection(self._source.connect(server_id_hint), self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._source, name)
        return (lambda: _UntilConnection(found(), self)) if name == "new_connection" else found

    def is_over(self, identity: str) -> bool:
        """Whether all up to the end has been read; asked by the parser's thread, between two reads."""
        assert self.parser is not None
        end, place = self._end, self.parser.place
        if end.row:
            return False  # the transaction behind it is looked into by whoever takes the entries
        if end.journal and (end.source == identity or not end.source):
            return _journal_place(place) >= _journal_place(end)
        return covers(place.gtid_set, end.gtid_set)


class _UntilConnection:
    def __init__(self, connection: Any, until: Until) -> None:
        self._connection = connection
        self._until = until

    def read(self, timeout: float) -> list[bytes] | None:
        if self._until.is_over(self._connection.identity):
            return None
        events: list[bytes] | None = self._connection.read(timeout)
        return events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def _journal_place(position: Position) -> tuple[int, int]:
    return journal_key(position.journal)[1], position.offset


def covers(outer: Any, inner: Any) -> bool:
    """Whether a GTID set includes another one, both of one kind; an empty one is included in all."""
    return not inner or (type(outer) is type(inner) and bool(inner <= outer))


def open_instance(options: Options, source: Source, start: str | Position, *, history: bool) -> Instance:
    """A started instance on a source of its own, not subscribed yet."""
    if history and options.history_dir is not None:
        schema_history = FileHistory(options.history_dir)
    else:
        schema_history = None
    config = InstanceConfig(
        destination="spark", source=source, filter=options.filter, black_filter=options.black_filter, start=start,
        store_bytes=options.store_bytes, start_timeout=options.start_timeout, schema_history=schema_history,
    )  # fmt: skip
    instance = Instance(config)
    if isinstance(source, Until):
        assert isinstance(instance.parser, BinlogParser)
        source.parser = instance.parser
    return instance.start()


def fresh(source: Source) -> Source:
    """The same source with a server id and replica identity of its own."""
    return attrs.evolve(source) if attrs.has(type(source)) else source  # type: ignore[misc]


def read_range(options: Options, watch: Watch, start: Position, end: Position, epoch: int) -> Iterator[tuple[int, Entry]]:
    """The entries of (start, end], each with its epoch, over a dump of their own.

    Raises:
        PositionLostError: the log does not reach back to ``start``, before any entry.
        CanalError: what else stopped the dump, or what ``Watch`` finds.
    """
    epochs = Epochs(start.source, epoch)
    until = Until(fresh(options.source), end)
    with open_instance(options, until, start, history=False) as instance:  # type: ignore[arg-type]
        instance.subscribe()
        for message in _messages(instance):
            for entry in message.entries:
                found = _within(entry, end)
                if found is None:
                    return
                if found and watch.delivers(entry):
                    yield epochs.of(entry.transaction), entry


def _messages(instance: Instance) -> Iterator[Message]:
    while True:
        finished = instance.is_exhausted
        message = instance.get_without_ack(_GET, timeout=0.5)
        if message:
            yield message
            instance.ack(message.id)
        elif finished:
            return


def _within(entry: Entry, end: Position) -> bool | None:
    """Whether an entry lies before ``end``; None where it and all behind it do not."""
    transaction = entry.transaction
    if end.journal and (not end.source or transaction.source == end.source):
        place, last = (journal_key(transaction.journal)[1], transaction.offset), _journal_place(end)
        if place < last:
            return True
        if place > last or not end.row:
            return None
        left = end.row - entry.first_row - entry.skip_rows
        if left <= 0 and (entry.row_count or entry.is_end):
            return None
        if 0 < left < entry.row_count:
            entry.select(tuple(range(left)))
            entry.row_count = left
        return True
    if end.row:
        raise PositionLostError(
            f"a batch ends inside a transaction of server {end.source}, and the source is {transaction.source} now",
            position=end, remedy="Let it be read from that server, or begin a new checkpoint and copy the table anew.",
        )  # fmt: skip
    if not transaction.gtid:
        raise PositionLostError(
            f"a batch ends in the log of server {end.source}, and the source is {transaction.source}, without GTIDs",
            position=end, remedy="Let it be read from that server, or begin a new checkpoint and copy the table anew.",
        )  # fmt: skip
    return covers(end.gtid_set, Position(gtid=transaction.gtid).gtid_set)


@attrs.frozen
class Stretch:
    """A part of the log that whoever reads it asks the source for: (start, end]."""

    start: Position
    end: Position
    epoch: int


def stretches(options: Options, start: Position, end: Position, epoch: int) -> list[Stretch]:
    """(start, end] in parts, one for each file of the log where the log can be read from the beginning of one.

    Raises:
        PositionLostError: the source has not got the log from ``start`` on.
    """
    connection: Any = fresh(options.source).connect()
    try:
        connection.resolve(start)
        one_log = start.journal and end.journal and not start.row and start.source == end.source == connection.identity
        names: list[str] = connection.journal_names() if one_log and _tells_columns(connection) else []
        identity: str = connection.identity
    finally:
        connection.close()
    first, last = journal_key(start.journal), journal_key(end.journal)
    between = [name for name in names if first < journal_key(name) <= last]
    places = [start, *(Position(journal=name, offset=4, source=identity) for name in between), end]
    return [Stretch(*pair, epoch) for pair in zip(places, places[1:]) if _journal_place(pair[0]) != _journal_place(pair[1])
            or pair[1].row or not pair[0].journal]  # fmt: skip


def _tells_columns(connection: Any) -> bool:
    """Whether a log read from the middle says itself what the columns are; else it is searched to its end for statements."""
    return bool(connection.full_metadata or not connection.identity)


# -- the spool ---------------------------------------------------------------------------------------------------------


@attrs.define
class _Segment:
    path: Path
    file: BinaryIO
    writer: SegmentWriter
    cuts: list[int] = attrs.field(factory=list)  # record boundaries, about every _CUT_BYTES


@attrs.frozen
class Piece:
    """Whole records of one segment: in a file, or carried with the tables that they name."""

    path: str
    start: int
    end: int
    data: bytes | None = None
    tables: dict[int, bytes] = attrs.field(factory=dict)


class Spool:
    """A directory of segments of this process, which is removed with it, or after it by the next one.

    Args:
        root: where the directories of all runners of this machine and others are; None for the system's temporary one.
    """

    def __init__(self, root: str | None) -> None:
        parent = Path(root) if root else Path(tempfile.gettempdir()) / f"canal-spool-{os.getuid()}"
        host = re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())
        self.directory = parent / f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._segments: dict[int, _Segment] = {}
        self._number = 0
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = self._locked(parent)
            self.directory.mkdir(mode=0o700)
            self._remove_leftovers(parent, host)
        except OSError as error:
            raise ConfigError(f"the spool in {parent} cannot be made: {error}", remedy="Set spoolDir.") from error

    def _locked(self, parent: Path) -> BinaryIO:
        """The lock that says that this process lives; it is held before anybody can see it."""
        path = parent / f".{self.directory.name}"
        file = path.open("wb")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.rename(parent / f"{self.directory.name}.lock")
        return file

    @staticmethod
    def _remove_leftovers(parent: Path, host: str) -> None:
        for path in parent.glob(f"{host}-*.lock"):
            with contextlib.suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                path.unlink(missing_ok=True)

    def add(self, entry: Entry, epoch: int, limit: int) -> tuple[int, int, int]:
        """Write an entry; gives the segment, the offset behind it there, and the bytes that it took."""
        segment = self._segments.get(self._number)
        if segment is None or segment.writer.size >= limit:
            segment = self._next()
        before = segment.writer.size
        segment.writer.add(entry, epoch)
        size = segment.writer.size
        if size - (segment.cuts[-1] if segment.cuts else len(HEADER)) >= _CUT_BYTES:
            segment.cuts.append(size)
        return self._number, size, size - before

    def _next(self) -> _Segment:
        if self._number in self._segments:
            self._segments[self._number].writer.flush()
        self._number += 1
        path = self.directory / f"{self._number:08d}"
        file = path.open("w+b")
        segment = self._segments[self._number] = _Segment(path, file, SegmentWriter(file))
        return segment

    def flush(self) -> None:
        """Have everything that was added in the file."""
        segment = self._segments.get(self._number)
        if segment is not None:
            segment.writer.flush()

    def pieces(self, first: tuple[int, int], last: tuple[int, int], carried: bool) -> list[Piece]:
        """What lies between two places (segment, offset), in pieces to be decoded each by itself."""
        ranges = []
        for number in range(max(first[0], 1), last[0] + 1):
            segment = self._segments[number]
            start = first[1] if number == first[0] else len(HEADER)
            end = last[1] if number == last[0] else segment.writer.size
            if end > start:
                ranges.append((segment, start, end))
        total = sum(end - start for _, start, end in ranges)
        size = _PIECE_BYTES if total <= 16 * _PIECE_BYTES else _LARGE_PIECE_BYTES
        if total <= _ONE_PIECE_BYTES:
            size = total
        return [self._piece(segment, *part, carried) for segment, start, end in ranges
                for part in _parts(segment.cuts, start, end, size)]  # fmt: skip

    @staticmethod
    def _piece(segment: _Segment, start: int, end: int, carried: bool) -> Piece:
        if not carried:
            return Piece(str(segment.path), start, end)
        with segment.path.open("rb") as file:
            file.seek(start)
            data = file.read(end - start)
            return Piece("", start, end, data, {at: table_record(file, at) for at in tables_of(data)})

    def release(self, before: int) -> None:
        """Remove the segments before a number."""
        for number in [number for number in self._segments if number < before]:
            segment = self._segments.pop(number)
            segment.file.close()
            segment.path.unlink(missing_ok=True)

    def close(self) -> None:
        for segment in self._segments.values():
            segment.file.close()
        self._segments.clear()
        shutil.rmtree(self.directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            Path(f"{self.directory}.lock").unlink()
        self._lock.close()


def _parts(cuts: list[int], start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    begin = start
    for cut in cuts:
        if begin < cut < end and cut - begin >= size:
            yield begin, cut
            begin = cut
    yield begin, end


def piece_source(piece: Piece) -> tuple[bytes, Any]:
    """The bytes of a piece and a way to its tables, for ``read_entries``.

    Raises:
        SourceError: the file is not there.
    """
    if piece.data is not None:
        return piece.data, piece.tables.__getitem__
    try:
        file = Path(piece.path).open("rb")
    except OSError as error:
        raise SourceError(
            f"the spool's file {piece.path} cannot be read here: {error}",
            remedy="Where executors do not see the driver's disk set transport=bytes, or spoolDir to a shared directory. After "
            "its batch was committed a file is removed.",
        ) from error
    with file:
        check_header(file)
        file.seek(piece.start)
        data = file.read(piece.end - piece.start)
        found = {at: table_record(file, at) for at in tables_of(data)}
    return data, found.__getitem__


# -- the live stream ---------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Mark:
    """A place where a batch may end: behind an entry, with how much of the stream lies before it."""

    last: Entry | Position
    epoch: int
    place: tuple[int, int]  # segment, and offset in it
    rows: int
    bytes: int
    text: str = ""  # once Spark was given it

    @property
    def offset(self) -> Offset:
        return Offset(self.last.position if isinstance(self.last, Entry) else self.last, self.epoch)


class Tail:
    """Reads on from a position into the spool, on a thread of its own.

    Args:
        start: where from; where it is an offset, ``start_text`` is how Spark knows it.
        until: where to end; None for never.
    """

    def __init__(
        self, options: Options, watch: Watch, spool: Spool, start: str | Position, epoch: int, until: Position | None
    ) -> None:
        self._options = options
        self._watch = watch
        self._spool = spool
        source = fresh(options.source)
        self._instance = open_instance(
            options, source if until is None else Until(source, until), start, history=True  # type: ignore[arg-type]
        )
        self._changed = threading.Condition()
        self._closing = False
        self._fault: BaseException | None = None
        self._over = False
        try:
            self._instance.subscribe()
        except BaseException:
            self._instance.stop()
            raise
        position = self._instance.position()
        base = _Mark(position, epoch, (0, 0), 0, 0)
        base.text = base.offset.text
        self._marks = deque([base])
        self._given = {base.text: base}
        self._now = base  # how far it has read: not a place to stop at, perhaps
        self._epochs = Epochs(position.source, epoch)
        self._segment_bytes = max(1, min(_SEGMENT_BYTES, options.spool_bytes // 4))
        self._most_open = max(1, min(options.max_transaction, options.spool_bytes // 4))
        self._thread = threading.Thread(target=self._run, name="canal-spark-tail", daemon=True)
        self._thread.start()

    @property
    def base(self) -> Offset:
        """Where it began, or what was released last."""
        return self._marks[0].offset

    def rename_base(self, text: str) -> None:
        """Spark knows the start by another text."""
        with self._changed:
            self._marks[0].text = text
            self._given[text] = self._marks[0]

    def knows(self, text: str) -> bool:
        return text in self._given

    def last(self) -> Offset:
        """The newest place that a batch may end at."""
        return self._marks[-1].offset

    @property
    def received(self) -> int:
        """Bytes of the log that have come since the start."""
        parser = self._instance.parser
        return parser.received[1] if isinstance(parser, BinlogParser) else 0

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        fault: BaseException | None = None
        try:
            for message in _messages(self._instance):
                for entry in message.entries:
                    self._take(entry)
                self._wait_for_room()
        except StateError as error:
            fault = None if self._closing else error
        except BaseException as error:  # told to whoever asks for the next offset
            fault = error
        with self._changed:
            self._fault = fault
            self._over = True
            self._changed.notify_all()

    def _take(self, entry: Entry) -> None:
        epoch = self._epochs.of(entry.transaction)
        try:
            delivered = self._watch.delivers(entry)
        except CanalError:
            if self._now.rows > self._marks[-1].rows:  # what came before it in its transaction goes first
                self._mark(entry.transaction.position_before(entry.first_row + entry.skip_rows), epoch)
            raise
        if delivered:
            place, offset, size = self._spool.add(entry, epoch, self._segment_bytes)
            now = self._now
            self._now = attrs.evolve(
                now, place=(place, offset), rows=now.rows + entry.header.row_count + (entry.table is None), bytes=now.bytes + size
            )
        if entry.is_end or (delivered and self._now.bytes - self._marks[-1].bytes >= self._most_open):
            self._mark(entry, epoch)

    def _mark(self, last: Entry | Position, epoch: int) -> None:
        """A batch may end here. Places that nobody was given and that lie near to each other are one."""
        self._spool.flush()
        now = self._now
        mark = _Mark(last, epoch, now.place, now.rows, now.bytes)
        with self._changed:
            marks = self._marks
            if len(marks) > 1 and not marks[-1].text and self._is_near(marks[-2], mark):
                marks.pop()
            marks.append(mark)
            self._changed.notify_all()

    def _is_near(self, one: _Mark, other: _Mark) -> bool:
        rows, size = _GRAIN_ROWS, _GRAIN_BYTES
        if self._options.max_rows is not None:
            rows = min(rows, self._options.max_rows // 16)
        if self._options.max_bytes is not None:
            size = min(size, self._options.max_bytes // 16)
        return other.rows - one.rows <= rows and other.bytes - one.bytes <= size

    def _wait_for_room(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._marks[-1].bytes - self._marks[0].bytes < self._options.spool_bytes)

    # -- batches -------------------------------------------------------------------------------------------------------

    def next(self, text: str, rows: int | None, size: int | None, timeout: float, idle: bool) -> str:
        """Where the batch behind the offset ``text`` ends: ``text`` itself where there is nothing within ``timeout`` s.

        Args:
            rows, size: how much it may hold; one transaction may be more.
            idle: let it also end where there is nothing to deliver before it.

        Raises:
            CanalError: what stopped the stream, once all before it has been given.
        """
        with self._changed:
            start = self._given[text]
            self._changed.wait_for(lambda: self._marks[-1].rows > start.rows or self._over, timeout)
            end = self._end_of(start, rows, size)
            if end is start or (end.rows == start.rows and not idle and not self._over):
                if end is start and self._over and self._fault is not None:
                    raise self._fault
                return text
            end.text = end.text or end.offset.text
            self._given[end.text] = end
            return end.text

    def _end_of(self, start: _Mark, rows: int | None, size: int | None) -> _Mark:
        end = start
        for mark in self._marks:
            if mark.bytes < start.bytes or mark.rows < start.rows or mark is start:
                continue
            fits = (rows is None or mark.rows - start.rows <= rows) and (size is None or mark.bytes - start.bytes <= size)
            if not fits and end.rows > start.rows:
                break
            end = mark
            if not fits:
                break
        return end

    def is_over(self) -> bool:
        return self._over

    def pieces(self, start: str, end: str, carried: bool) -> list[Piece]:
        with self._changed:
            first, last = self._given[start], self._given[end]
            return self._spool.pieces(first.place, last.place, carried)

    def release(self, text: str) -> None:
        """Everything up to an offset is done for good."""
        with self._changed:
            mark = self._given[text]
            while self._marks[0] is not mark:
                gone = self._marks.popleft()
                self._given.pop(gone.text, None)
            self._spool.release(mark.place[0])
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._instance.stop()
        self._thread.join()


# -- the runner --------------------------------------------------------------------------------------------------------


class Runner:
    """What the methods of the stream reader do, in the process of the query. Opens nothing before it is needed."""

    def __init__(self, options: Options, shape: Shape | None) -> None:
        self._options = options
        self._shape = shape
        self._spool: Spool | None = None
        self._tail: Tail | None = None
        self._target: Position | None = None
        self._available_now = False
        self._moved_at = time.monotonic()
        self._moved_bytes = 0
        self._carried = not is_spool_visible(options)

    def prepare_available_now(self) -> None:
        """Only what is in the log now is wanted."""
        connection = fresh(self._options.source).connect()
        try:
            self._target = connection.resolve("latest")
        finally:
            connection.close()
        self._available_now = True

    def latest(self, start: dict[str, Any], rows: int | None, size: int | None) -> dict[str, Any]:
        """The end of the next batch; ``start`` itself where there is nothing new. All before ``start`` is done."""
        offset = Offset.from_dict(start)
        if offset is None:
            tail = self._open(self._options.starting or "latest", 0)
            return tail.base.to_dict()
        text = offset.text
        if self._tail is None or not self._tail.knows(text):
            end = self._backlog_end(offset)
            if end is not None:
                return end.to_dict()
            self._open(offset.position, offset.epoch).rename_base(text)
        tail = self._tail
        assert tail is not None
        tail.release(text)
        found = self._wait_for_all(tail, text, rows, size) if self._available_now else tail.next(
            text, rows, size, self._options.poll, self._is_idle(tail)
        )  # fmt: skip
        if found == text:
            return start
        self._moved_at, self._moved_bytes = time.monotonic(), tail.received
        return _as_dict(found)

    def _wait_for_all(self, tail: Tail, text: str, rows: int | None, size: int | None) -> str:
        """As ``Tail.next``, but the same offset means that the end of the log is reached."""
        while True:
            over = tail.is_over()
            found = tail.next(text, rows, size, self._options.poll, False)
            if found != text or over:
                return found

    def _is_idle(self, tail: Tail) -> bool:
        options = self._options
        return (
            time.monotonic() - self._moved_at >= options.idle_advance or tail.received - self._moved_bytes >= options.idle_bytes
        )

    def _open(self, start: str | Position, epoch: int) -> Tail:
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        if self._spool is not None:
            self._spool.close()
        self._spool = Spool(self._options.spool_dir)
        self._tail = Tail(
            self._options, Watch(self._shape, self._options), self._spool, start, epoch, self._target
        )
        self._moved_at, self._moved_bytes = time.monotonic(), 0
        return self._tail

    def _backlog_end(self, offset: Offset) -> Offset | None:
        """Where a batch ends that executors read from the log themselves; None where the stream is not so far behind."""
        options, start = self._options, offset.position
        if not options.backlog_files or options.max_rows is not None or not start.journal or start.row:
            return None
        connection: Any = fresh(options.source).connect()
        try:
            if connection.identity != start.source or not _tells_columns(connection):
                return None
            first = journal_key(start.journal)
            later = [name for name in connection.journal_names() if journal_key(name) > first]
            if self._target is not None:
                later = [name for name in later if journal_key(name) <= journal_key(self._target.journal)]
            if len(later) < options.backlog_files:
                return None
            name = later[min(len(later), options.max_files) - 1]
            position = _beginning(connection, name)
        finally:
            connection.close()
        log.info("the stream is %d files of the log behind: executors read up to %s", len(later), position)
        return Offset(position, offset.epoch)

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[Piece] | list[Stretch]:
        """Exactly what lies behind ``start`` up to ``end``.

        Raises:
            PositionLostError: it is neither in the spool nor in the log of the source any more.
        """
        first, last = Offset.from_dict(start), Offset.from_dict(end)
        if first is None or last is None or first == last:
            return []
        tail = self._tail
        if tail is not None and tail.knows(first.text) and tail.knows(last.text):
            return tail.pieces(first.text, last.text, self._carried)
        return stretches(self._options, first.position, last.position, first.epoch)

    def report(self) -> dict[str, Any] | None:
        """The newest offset that is known, from memory."""
        return None if self._tail is None else self._tail.last().to_dict()

    def close(self) -> None:
        """End the stream and remove the spool. A second call does nothing."""
        tail, self._tail = self._tail, None
        spool, self._spool = self._spool, None
        try:
            if tail is not None:
                tail.close()
        finally:
            if spool is not None:
                spool.close()


def _as_dict(text: str) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads(text)
    return found


def _beginning(connection: Any, journal: str) -> Position:
    """The place at which a file of the log begins, with the GTIDs before it."""
    scan = TransactionScan()
    events = connection.replay(journal, 4)
    try:
        for number, event in enumerate(events):
            scan.feed(event)
            if number >= 1:  # behind the FORMAT_DESCRIPTION stands the list of GTIDs
                break
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            close()
    gtid = scan.boundary.gtid if connection.has_gtids else ""
    return Position(journal=journal, offset=4, gtid=gtid, source=connection.identity)


def is_spool_visible(options: Options) -> bool:
    """Whether executors see the files of the spool: they are told to, or the master is of this machine."""
    if options.transport != "auto":
        return options.transport == "file"
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.startswith((b"spark.master=local", b"local[", b"local-cluster[")) or word == b"local" for word in words)


__all__ = [
    "INITIAL", "Piece", "Runner", "Spool", "Stretch", "Tail", "Watch", "piece_source", "read_range", "stretches",
]  # fmt: skip
