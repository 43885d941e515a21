"""Calls a function with Arrow tables of an Instance's batches, one source table per call, and acks when it returns.

Never stores a position: the Instance's cursor and the function's target do.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from canal._util.bounded import Recent
from canal.changes.alters import altered, types_from_text, types_text
from canal.changes.reading import is_new
from canal.changes.unlogged import ALL, altered_by, touched, unlogged
from canal.errors import CanalError, NotActiveError, UnloggedChangeError
from canal.formats.change_table import HEAD, Shape, pack_txn
from canal.formats.message import Message
from canal.instance.instance import CLIENT_ID, Instance
from canal.model import Entry, EntryType
from canal.position import Position, journal_key
from canal.schema import TableSchema

log = logging.getLogger("canal.pipe")


@attrs.frozen
class Batch:
    """The rows of one table in one message of an Instance."""

    id: int
    """The id of the message. It repeats after a restart."""

    table: str
    """``schema.table``."""

    tables: tuple[str, ...]
    """All tables of the message, in call order."""

    start: Position
    """The end of the previous call, or the last ack: the rows begin here or later."""

    end: Position
    """Everything before it is done after this call. In the last call: the end of the message."""

    first: tuple[int, int]
    """(``_txn``, ``_ord``) of the first row, in the log of ``source``."""

    last: tuple[int, int]
    """(``_txn``, ``_ord``) of the last row."""

    epoch: int = 0
    """With ``ha``: the epoch in which the message was delivered."""

    types: str = ""
    """The declared column types of the table (see ``canal.changes.alters.types_text``)."""

    loss: Loss | None = None
    """Not None: the call has no rows, but reports a change of the table without rows in the log."""

    is_copy: bool = False
    """Whether the rows are existing rows of a table copy."""

    @property
    def source(self) -> str:
        """Return the UUID of the server with this log."""
        return self.end.source


@attrs.define
class Loss:
    """A change of a table without rows in the log. ``fn`` is called with it and without rows."""

    error: UnloggedChangeError
    """The error that ``foreach_batch`` raises after the call, unless it is settled."""

    row: pa.Table
    """Its position in the stream: one row with the first five columns of the stream, ``_op`` T."""

    is_settled: bool = False
    by_types: Callable[[str], str] | None = None

    def told(self, types: str) -> str:
        """Describe the change, or return "" if nothing changed. ``types``: ``Batch.types`` of earlier rows, "" if unknown."""
        return self.error.message if self.by_types is None or not types else self.by_types(types)

    def settle(self) -> None:
        """Mark the loss as handled: the target matches the table after this position."""
        self.is_settled = True


def each_batch(
    instance: Instance,
    fn: Callable[[Any, Batch], None],
    *,
    framed: Callable[[pa.Table], Any] | None = None,
    client_id: int = CLIENT_ID,
    batch_size: int = 20_000,
    timeout: float = 1.0,
    linger: float = 0.05,
    keep: bool = False,
    statements: Callable[[Entry], None] | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Call ``fn(rows, batch)`` for each table of each message. ``canal.spark.foreach_batch`` documents the arguments.

    Args:
        framed: converts the Arrow table that ``fn`` is called with.
    """
    config = instance.config
    accepts = (lambda schema, table: True) if config is None else config.table_filter().accepts
    loop = _Loop(fn, framed, statements, keep, accepts)
    instance._readers.begin(client_id, loop, "foreach_batch")
    try:
        while stop is None or not stop.is_set():
            is_over = instance._is_over(client_id)  # before the get: what came last goes first
            message = instance._read(batch_size, timeout, linger, client_id)
            if message:
                _call(loop, instance, message, client_id)
            elif is_over:
                return
    finally:
        instance._readers.end(client_id, loop)


def _call(loop: _Loop, instance: Instance, message: Message, client_id: int) -> None:
    """Call the function with a message and ack the message, or roll it back."""
    try:
        loop.call(message, instance.position(client_id))
        instance.ack(message.id, client_id=client_id)
    except NotActiveError as error:
        log.info("[%s] batch %d is left to another process: %s", instance.destination, message.id, error)
        _roll_back(instance, message, client_id)
    except BaseException:
        _roll_back(instance, message, client_id)
        raise


def _roll_back(instance: Instance, message: Message, client_id: int) -> None:
    with contextlib.suppress(CanalError):  # it was stopped, or was refused and rolled back already
        instance.rollback(message.id, client_id=client_id)


@attrs.define
class _Loop:
    """State that the calls for all messages share."""

    fn: Callable[[Any, Batch], None]
    framed: Callable[[pa.Table], Any] | None
    statements: Callable[[Entry], None] | None
    keep: bool
    accepts: Callable[[str, str], bool]
    shapes: Recent[str, Shape] = attrs.field(factory=Recent)
    last: Recent[str, TableSchema] = attrs.field(factory=Recent)
    """The columns of the last row of each table."""

    def call(self, message: Message, start: Position) -> None:
        assert message.position is not None
        tables = tuple(dict.fromkeys(entry.table.schema.name for entry in message.entries if entry.table is not None))
        for entry, groups, last in _sections(message.entries):
            end = message.position if last is None else last.position
            for schema, entries in groups:
                shape, self.last[schema.name] = self._shape(schema), schema
                rows = pa.Table.from_batches([shape.batch(entries)])
                types = types_text(schema.columns)
                self.fn(
                    self._frame(rows), Batch(message.id, schema.name, tables, start, end, *_bounds(rows), message.epoch, types)
                )
            if entry is not None and self.statements is not None:
                self.statements(entry)
            elif entry is not None:
                self._tell_losses(entry, Batch(message.id, "", tables, start, end, (0, 0), (0, 0), message.epoch))
            start = end

    def _shape(self, schema: TableSchema) -> Shape:
        """Return the shape of this version of the table, or of the first version if columns are kept."""
        shape = self.shapes.get(schema.name)
        if shape is None and self.statements is None and not self.accepts(schema.schema, ""):
            log.warning(
                "the Instance's filter passes %s but no statements about its whole database: a DROP DATABASE goes unnoticed; "
                "let it pass %s\\. too",
                schema.name,
                schema.schema,
            )
        if shape is None or not self.keep and shape.table is not schema:
            shape = self.shapes[schema.name] = Shape(schema, self.keep)
        return shape

    def _frame(self, rows: pa.Table) -> Any:
        return rows if self.framed is None else self.framed(rows)

    def _tell_losses(self, entry: Entry, batch: Batch) -> None:
        """Call ``fn`` for each table that a statement changed without rows in the log.

        Raises:
            UnloggedChangeError: the loss was not settled.
        """
        for schema, table in touched(entry, self.accepts, [shape.table for shape in self.shapes.values()]):
            name = f"{schema}.{table}"
            what, by_types = unlogged(entry, schema, table) or self._altered(entry, schema, table), None
            if what is None:
                what = altered(name, "its columns before that are not known")
                by_types = partial(_by_types, entry, schema, table)
            if is_new(entry, schema, table):
                self.last[name] = TableSchema(schema, table, ())
            if not what:
                continue
            self.last.pop(name, None)
            row = _position_row(entry)
            numbers = row["_txn"][0].as_py(), row["_ord"][0].as_py()
            error = UnloggedChangeError(
                what,
                position=f"{entry.transaction.journal}:{entry.offset}",
                remedy="Bring the target to the state of the table after this position, and call Batch.loss.settle(), or pass "
                "foreach_batch a function statements= that handles it.",
            )
            loss = Loss(error, row, by_types=by_types)
            name = "" if table == ALL else name
            shape = self.shapes.get(name)
            rows = (shape.arrow if shape else row.schema).empty_table()
            try:
                self.fn(self._frame(rows), attrs.evolve(batch, table=name, first=numbers, last=numbers, loss=loss))
            except UnloggedChangeError:
                raise
            except Exception as failed:
                raise error from failed
            if not loss.is_settled:
                raise error

    def _altered(self, entry: Entry, schema: str, table: str) -> str | None:
        """Return which values an ALTER may have changed, "" for none, or None if the earlier columns are unknown."""
        known = self.last.get(f"{schema}.{table}")
        what = altered_by(entry, schema, table, known)
        return altered(f"{schema}.{table}", "its columns behind that are not known") if what is None and known else what


def _by_types(entry: Entry, schema: str, table: str, types: str) -> str:
    columns = tuple(column for column in types_from_text(types) if column.column_type)
    what = altered_by(entry, schema, table, TableSchema(schema, table, columns)) if columns else None
    return altered(f"{schema}.{table}", "its columns before or behind that are not known") if what is None else what


def _position_row(entry: Entry) -> pa.Table:
    """Return the position of a statement as a row of the stream."""
    transaction = entry.transaction
    journal, offset = transaction.journal, transaction.offset
    values = {
        "_op": "T",
        "_txn": pack_txn(0, journal, offset),
        "_ord": entry.first_row,
        "_ts": entry.timestamp * 1_000_000,
        "_gtid": transaction.gtid or f"{journal}:{offset}",
    }
    return pa.table({field.name: pa.array([values[field.name]], field.type) for field in HEAD})


def _sections(entries: Sequence[Entry]) -> Iterator[tuple[Entry | None, list[tuple[TableSchema, list[Entry]]], Entry | None]]:
    """Yield rows by table, up to each statement, change of a table's columns or change of the log, and up to the end.

    Each section has its last entry, except the last section.
    """
    groups: dict[str, tuple[TableSchema, list[Entry]]] = {}
    last: Entry | None = None
    log: tuple[str, str] | None = None
    for entry in entries:
        table = None if entry.table is None else entry.table.schema
        transaction = entry.transaction
        is_statement = table is None and entry.entry_type == EntryType.ROWDATA
        is_cut = is_statement or table is not None and groups.get(table.name, (table,))[0] is not table
        if last is None or transaction is not last.transaction:
            before, log = log, (transaction.source, journal_key(transaction.journal)[0])
            is_cut = is_cut or before not in (None, log)
        if is_cut:
            yield entry if is_statement else None, list(groups.values()), last or entry
            groups = {}
        if table is not None:
            groups.setdefault(table.name, (table, []))[1].append(entry)
        last = entry
    yield None, list(groups.values()), None


def _bounds(rows: pa.Table) -> tuple[tuple[int, int], tuple[int, int]]:
    order = pc.sort_indices(rows, [("_txn", "ascending"), ("_ord", "ascending")])
    ends = rows.select(["_txn", "_ord"]).take(order.take(pa.array([0, len(order) - 1])))
    first, last = zip(*(column.to_pylist() for column in ends.columns))
    return first, last
