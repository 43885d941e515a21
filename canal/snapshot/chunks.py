"""A table as it is now, in chunks of its key that executors read at the same time; the position in the log is taken first.

Never changes anything at the server, and never reads rows to find the chunks.

A chunk is a range of the key between two keys that were found by looking into the index. The server itself compares: a row
is in the chunk ``(lower, upper]`` or behind it, whatever the collation, so every row is in exactly one. Each chunk is read at
one moment of its own, so together with the changes that follow the position the table comes to be what it is at the server
(``apply_changes`` and any other sink that keeps the latest row of each key), but the chunks alone are no state that the table
ever had. For a sink that only appends, a plan with ``files=`` reads the whole table at the one moment of the position.
A table that is added to a job later is a query of its own, with a snapshot of its own.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any, Final, Self

import attrs
import pyarrow as pa

from canal.changes.alters import types_text
from canal.errors import ConfigError, CursorError, SchemaError, ServerError
from canal.formats.change_table import SNAPSHOT_ORD, Shape, pack_txn
from canal.formats.spark_types import spark_arrow_type
from canal.gtid import parse_gtid_set
from canal.parse.source.mysql import MySQLSource
from canal.position import Position
from canal.schema import ColumnSchema, TableSchema
from canal.snapshot.cells import is_unseen, reader_of, to_array
from canal.snapshot.files import SnapshotFiles, read_file
from canal.snapshot.keys import Key, chunk_key, condition, find_ranges, key_column, quoted
from canal.snapshot.session import Found, SnapshotSession, barrier

log = logging.getLogger("canal.spark")

FORMAT_VERSION: Final = 1
_DEFINITION_CHANGED: Final = 1412  # since the transaction began
_ATTEMPTS: Final = 10
#: Seconds between two words on how far a snapshot is, at least.
_PACE: Final = 10.0
#: ``_ord`` of the first row of a snapshot whose rows are numbered.
FIRST_ORD: Final = -(1 << 62)


# -- the plan ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Chunk:
    """The rows with a key after ``lower`` up to ``upper``, both included in neither or one: ``lower < key <= upper``.

    None: no bound. ``rows`` is the server's estimate, or the number where they are in files.
    """

    number: int
    lower: Key | None
    upper: Key | None
    rows: int


@attrs.frozen
class SnapshotPart:
    """What one executor reads of a plan, which comes without its chunks: they may be ten thousand."""

    plan: SnapshotPlan
    chunk: Chunk


@attrs.frozen
class SnapshotRows:
    """Rows of a snapshot that were read for an executor: an Arrow stream."""

    data: bytes = attrs.field(repr=False)

    @classmethod
    def of(cls, batches: Sequence[pa.RecordBatch]) -> Self:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return cls(sink.getvalue().to_pybytes())

    def batches(self) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_stream(self.data) as reader:
            yield from reader


@attrs.frozen
class SnapshotPlan:
    """What a snapshot reads, and the position in the log from which its changes must be followed. Immutable, pickles.

    ``key`` names the columns that chunks are made of, () for a table that is read in one; ``index`` is their index;
    ``timestamp`` is the server's time in microseconds since 1970; ``txn`` is the ``_txn`` of the rows; ``files`` is the
    directory that has them already, where they were read at the position; ``collations`` are those of the key's columns;
    ``types`` are the declared types of the columns, with which a ``Watch`` compares those of the changes that follow;
    ``row_bytes`` is the server's estimate of a row, 0 where it has none; ``kept`` is the name of the file that has the chunks,
    which are ``count``, where they are not here.
    """

    schema: str
    table: str
    position: Position
    txn: int
    timestamp: int
    key: tuple[str, ...]
    index: str
    chunks: tuple[Chunk, ...]
    files: str = ""
    collations: tuple[str, ...] = ()
    types: str = ""
    row_bytes: int = 0
    kept: str = ""
    count: int = 0

    @property
    def size(self) -> int:
        """The number of its chunks."""
        return self.count or len(self.chunks)

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def gtid(self) -> str:
        """The ``_gtid`` of the rows."""
        return f"{self.position.journal}:{self.position.offset}"

    @property
    def rows(self) -> int:
        """The table's rows, as the server estimates them."""
        return sum(chunk.rows for chunk in self.chunks)

    def progress(self, done: int) -> dict[str, int]:
        """How far a snapshot is whose first ``done`` chunks are read, for logs and metrics."""
        rows = sum(chunk.rows for chunk in self.chunks[:done])
        return {"chunks_done": done, "chunks": len(self.chunks), "rows_done": rows, "rows": self.rows}

    def to_text(self) -> str:
        """Canonical text: one line of JSON, equal for equal plans."""
        return json.dumps(self.to_document(), separators=(",", ":"))

    def to_document(self) -> dict[str, Any]:
        """What ``to_text`` has, as a JSON object in a larger document."""
        return {
            "v": FORMAT_VERSION,
            "schema": self.schema,
            "table": self.table,
            "position": self.position.to_text(),
            "txn": self.txn,
            "timestamp": self.timestamp,
            "key": self.key,
            "index": self.index,
            **(
                {"kept": self.kept, "count": self.count}
                if self.kept
                else {"chunks": [[one.lower, one.upper, one.rows] for one in self.chunks]}
            ),
            "files": self.files,
            "collations": self.collations,
            **({"types": self.types} if self.types else {}),
            **({"row_bytes": self.row_bytes} if self.row_bytes else {}),
        }

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what ``to_text`` wrote; anything else is a ``CursorError``."""
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        return cls.from_document(document)

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """Read what ``to_document`` gave; anything else is a ``CursorError``."""
        try:
            fields = dict(document)
            if fields.pop("v") != FORMAT_VERSION:
                raise ValueError("another format")
            chunks = tuple(
                Chunk(number, _key(lower), _key(upper), int(rows))
                for number, (lower, upper, rows, *_) in enumerate(fields.pop("chunks") if "kept" not in fields else ())
            )
            position, key = Position.from_text(fields.pop("position")), tuple(fields.pop("key"))
            collations = tuple(fields.pop("collations", ()))
            return cls(**fields, position=position, key=key, chunks=chunks, collations=collations)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CursorError(
                "the text of a snapshot plan cannot be read", remedy="Begin the snapshot anew, with a new checkpoint."
            ) from error


@attrs.define
class Pace:
    """Tells in the log how far a snapshot is, at intervals."""

    name: str
    _begun: tuple[float, int] | None = None
    _told: float = 0.0

    def tell(self, done: int, total: int, doing: str = "") -> None:
        """``done`` rows of about ``total`` are read, or what ``doing`` says."""
        now = time.monotonic()
        if self._begun is None:
            self._begun = now, done
        elif now - self._told < _PACE:
            return
        self._told = now
        seconds, rows = now - self._begun[0], done - self._begun[1]
        rest = ""
        if rows and seconds >= 1:
            rest = f", {rows / seconds:.0f} rows/s"
            if total > done:
                rest += f", about {timedelta(seconds=round((total - done) * seconds / rows))} left"
        log.info("snapshot of %s: %s%d of about %d rows%s", self.name, doing, done, max(total, done), rest)


def _key(value: list[str] | None) -> Key | None:
    return None if value is None else tuple(map(str, value))


def read_table(source: MySQLSource, schema: str, table: str) -> TableSchema:
    """The columns of a table as the server has them now, as the instance itself looks them up.

    Raises:
        ConfigError: there is no such table, or the user may not see it.
    """
    with SnapshotSession(source) as session:
        return session.table(schema, table).state.schema


def plan(
    source: MySQLSource,
    shape: Shape,
    *,
    epoch: int = 0,
    chunk_rows: int = 100_000,
    chunk_bytes: int | None = None,
    lock_timeout: float = 10.0,
    files: SnapshotFiles | None = None,
    tell: Callable[[int], None] = lambda done: None,
) -> SnapshotPlan:
    """Take the position in the log, then find the chunks of the shape's table.

    Everything that the log has of the table up to the position is in the table, and so in every chunk: MariaDB tells the
    position of a snapshot; at a MySQL, and for an engine without transactions, the table is locked for a moment against
    writers (``LOCK TABLES … READ``, or where that privilege is missing ``FLUSH TABLES WITH READ LOCK``).

    Args:
        epoch: of the stream, for ``txn``.
        chunk_rows: rows of a chunk, about.
        chunk_bytes: and its bytes at most, as far as the server estimates them.
        lock_timeout: seconds to wait for writers that hold the table.
        files: for a sink that only appends: the whole table, as it is at the position, is read now over one connection
            into files of ``chunk_rows`` rows, which are the chunks, and its rows are numbered. Remove them where the plan
            does not come back.
        tell: is called with the number of rows that are in files, or have their chunk, again and again.

    Raises:
        ConfigError: there is no such table, or it has no snapshot because of its engine.
        SchemaError: the table has other columns than the shape.
        AuthenticationError: a privilege is missing.
        ServerError: the table could not be locked in time.
        ConnectionLostError: the connection broke; nothing was done.
        StoreError: the files cannot be written.
        UnsupportedError: the position in the log does not fit into ``_txn``.
    """
    schema, table = shape.table.schema, shape.table.table
    with SnapshotSession(source) as session:
        found = session.table(schema, table)
        _columns_now(shape, found.state.schema)
        chunk_rows = _rows_within(found, chunk_rows, chunk_bytes)
        position, timestamp = barrier(session, found, lock_timeout, stay=files is not None)
        made = SnapshotPlan(
            schema=schema,
            table=table,
            position=position,
            txn=pack_txn(epoch, position.journal, position.offset),
            timestamp=timestamp,
            key=(),
            index="",
            chunks=(Chunk(0, None, None, found.rows),),
            types=types_text(shape.table.columns),
            row_bytes=found.row_bytes,
        )
        if files is not None:
            pace = Pace(made.name)

            def told(done: int) -> None:
                pace.tell(done, found.rows)
                tell(done)

            batches = _numbered(_batches(session, shape, made, made.chunks[0]), told)
            counts = files.write(batches, shape.arrow, chunk_rows)
            chunks = tuple(Chunk(number, None, None, rows) for number, rows in enumerate(counts))
            made = attrs.evolve(made, chunks=chunks, files=str(files.directory))
        else:
            made = _with_chunks(session, found, made, chunk_rows, tell)
            if not session.server.full_images:
                log.warning(
                    "binlog_row_image is not FULL: a row of %s.%s whose key changes while the snapshot is read cannot be told "
                    "from the log alone; set it to FULL, or use snapshot=consistent",
                    schema,
                    table,
                )
        log.info("snapshot of %s.%s at %s: %d chunks, about %d rows", schema, table, position, len(made.chunks), made.rows)
        return made


def plan_again(
    source: MySQLSource,
    shape: Shape,
    lost: SnapshotPlan,
    *,
    chunk_rows: int,
    chunk_bytes: int | None,
    tell: Callable[[int], None] = lambda done: None,
) -> SnapshotPlan:
    """A plan in chunks whose file is gone, for the whole table again, at the position that it had.

    A sink that keeps the latest row of each key may have any row of a snapshot again.

    Raises:
        SchemaError: the table has other columns by now.
        ServerError: it is another server, which does not have all that was there at the plan's position.
    """
    with SnapshotSession(source) as session:
        found = session.table(lost.schema, lost.table)
        _columns_now(shape, found.state.schema)
        _check_position(session, lost)
        made = attrs.evolve(lost, chunks=(Chunk(0, None, None, found.rows),), kept="", count=0)
        return _with_chunks(session, found, made, _rows_within(found, chunk_rows, chunk_bytes), tell)


def _rows_within(found: Found, rows: int, size: int | None) -> int:
    return min(rows, max(size // found.row_bytes, 1)) if size is not None and found.row_bytes else rows


def _with_chunks(
    session: SnapshotSession, found: Found, made: SnapshotPlan, chunk_rows: int, tell: Callable[[int], None]
) -> SnapshotPlan:
    """The plan in chunks of a key, where the table has one."""
    index, key = chunk_key(found.state)
    if not key:
        log.warning(
            "%s has no key that chunks can be made of: it is read in one, by one executor, and from the start again after a "
            "failure",
            made.name,
        )
        return made
    collations, pace = session.collations(made.schema, made.table, key), Pace(made.name)

    def told(done: int, total: int) -> None:
        pace.tell(done, total, "the chunks are found of ")
        tell(done)

    ranges = find_ranges(session, found.state.schema, index, key, found.rows, chunk_rows, told)
    chunks = tuple(Chunk(number, *one) for number, one in enumerate(ranges))
    return attrs.evolve(made, index=index, key=key, chunks=chunks, collations=collations)


# -- reading -----------------------------------------------------------------------------------------------------------


def read_chunk(
    source: MySQLSource, shape: Shape, plan: SnapshotPlan, chunk: Chunk, *, tell_empty: bool = False
) -> Iterator[pa.RecordBatch]:
    """The rows of one chunk at one moment, over a connection of their own, as batches of ``shape.arrow`` with ``_op`` r.

    May be read again, in any process and at any time: rows are then what they are by then, unless they are in files.
    With ``tell_empty`` the first chunk of a table without rows is one row with ``_op`` T, which comes before all others.

    Raises:
        SourceError: a file is not there.
        SchemaError: the table has other columns by now.
        ServerError: it is another server, which does not have all that was there at the plan's position.
        ConnectionLostError: the connection broke; read the chunk again.
    """
    begun, rows = time.monotonic(), 0
    tell_empty = tell_empty and chunk.number == 0
    for batch in (_stored if plan.files else _server_batches)(source, shape, plan, chunk, tell_empty):
        rows += batch.num_rows
        yield batch
    log.info("snapshot of %s: chunk %d, %d rows in %.1f s", plan.name, chunk.number + 1, rows, time.monotonic() - begun)


def _stored(source: MySQLSource, shape: Shape, plan: SnapshotPlan, chunk: Chunk, tell_empty: bool) -> Iterator[pa.RecordBatch]:
    yield from read_file(plan.files, chunk.number, shape.arrow, chunk.rows)
    if tell_empty and not chunk.rows:
        yield _emptied(shape, plan)


def _server_batches(
    source: MySQLSource, shape: Shape, plan: SnapshotPlan, chunk: Chunk, tell_empty: bool
) -> Iterator[pa.RecordBatch]:
    with SnapshotSession(source) as session:
        _check_position(session, plan)
        for batch in _begun(session, shape, plan, chunk):
            tell_empty = False
            yield batch
        # Whatever other chunks hold, read at other moments, came or went behind the position: the stream tells it.
        if tell_empty and not session.run(f"SELECT 1 FROM {quoted(plan.schema)}.{quoted(plan.table)} LIMIT 1"):
            yield _emptied(shape, plan)


def _begun(session: SnapshotSession, shape: Shape, plan: SnapshotPlan, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    """A chunk's batches in a transaction, which begins anew where the table was altered or emptied between that and the rows."""
    for left in reversed(range(_ATTEMPTS)):
        session.begin()
        batches = _batches(session, shape, plan, chunk)
        try:
            first = next(batches, None)
        except ServerError as error:
            if error.errno != _DEFINITION_CHANGED or not left:
                raise
        else:
            return chain([] if first is None else [first], batches)
    raise AssertionError


def _emptied(shape: Shape, plan: SnapshotPlan) -> pa.RecordBatch:
    return shape.emptied_batch(plan.txn, SNAPSHOT_ORD, plan.timestamp, plan.gtid)


def _check_position(session: SnapshotSession, plan: SnapshotPlan) -> None:
    """Another server than the plan's has all that the changes from the position on leave out."""
    if session.server.identity == plan.position.source:
        return
    has = ""
    if plan.position.gtid:
        variable = "gtid_current_pos" if session.flavor == "mariadb" else "gtid_executed"
        has = (session.run(f"SELECT @@global.{variable}")[0][0] or b"").decode()
    try:
        is_there = bool(has) and plan.position.gtid_set <= parse_gtid_set(has)
    except (ConfigError, TypeError):  # sets of MySQL and MariaDB
        is_there = False
    if not is_there:
        raise ServerError(
            f"{session.source.address} is another server than the one that the snapshot began with, and it cannot be told that "
            f"it has what that one had at {plan.position}",
            remedy="Let it catch up (it is a replica that lags), or begin the snapshot anew, with a new checkpoint.",
        )


def _columns_now(shape: Shape, now: TableSchema) -> list[ColumnSchema]:
    """The shape's columns as the server has them; its texts of types and charsets say more than a log does."""
    by_name = {column.name: column for column in now.columns}
    found = [by_name[field.name] for field in shape.columns if field.name in by_name]
    if [spark_arrow_type(column) for column in found] != [field.type for field in shape.columns]:
        raise SchemaError(
            f"the columns of {now.name} are not those that the query began with",
            remedy="Begin anew, with a new checkpoint: the snapshot is not finished.",
        )
    return found


def _check_key(session: SnapshotSession, plan: SnapshotPlan, found: Found) -> None:
    """The chunks are ranges of one order of keys: rows could lie in none of them, or be sought for long, by another."""
    collations = session.collations(plan.schema, plan.table, plan.key)
    if chunk_key(found.state) != (plan.index, plan.key) or plan.collations not in ((), collations):
        raise SchemaError(
            f"the key of {plan.name}, or its order, is not that which the snapshot began with",
            remedy="Begin anew, with a new checkpoint: the snapshot is not finished.",
        )


def _batches(session: SnapshotSession, shape: Shape, plan: SnapshotPlan, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    found = session.table(plan.schema, plan.table)
    columns = _columns_now(shape, found.state.schema)
    if plan.key:
        _check_key(session, plan, found)
    readers = [None if is_unseen(column) else reader_of(column) for column in columns]
    wanted = ", ".join(reader.select for reader in readers if reader is not None)
    where, force = "", ""
    if plan.key:
        by_name = {column.name: column for column in found.state.schema.columns}
        key = [key_column(by_name[name]) for name in plan.key]
        where = condition(key, chunk.lower, chunk.upper)
        force = f" FORCE INDEX ({quoted(plan.index)})"
    sql = f"SELECT {wanted or '1'} FROM {quoted(plan.schema)}.{quoted(plan.table)}{force}{where}"
    unseen = [column.name for column, reader in zip(columns, readers) if reader is None]
    for rows in session.stream(sql):
        cells = iter(zip(*rows))
        exact: list[list[tuple[str, str]] | None] = [None] * len(rows)
        arrays = []
        for field, column, reader in zip(shape.columns, columns, readers):
            if reader is None:
                arrays.append(pa.nulls(len(rows), field.type))
            else:
                arrays.append(to_array(next(cells), reader, field.type, column, exact))
        absent = pa.array([unseen or None] * len(rows), pa.list_(pa.string()))
        yield shape.snapshot_batch(
            arrays, absent, pa.array(exact, pa.map_(pa.string(), pa.string())), plan.txn, plan.timestamp, plan.gtid
        )


def _numbered(batches: Iterator[pa.RecordBatch], tell: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    done = 0
    for batch in batches:
        numbers = pa.array(range(FIRST_ORD + done, FIRST_ORD + done + batch.num_rows), pa.int64())
        yield batch.set_column(batch.schema.names.index("_ord"), "_ord", numbers)
        done += batch.num_rows
        tell(done)
