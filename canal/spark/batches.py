"""Without a streaming query: batches of an Instance as DataFrames, given to a function, and acked when it returns.

Never keeps a position of its own: the Instance's cursor, and what the function stores in its target, are all there is.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from canal.errors import CanalError, NotActiveError, UnfitChangeError
from canal.instance import CLIENT_ID, Instance
from canal.model import Entry, EntryType, EventType, Message
from canal.position import Position, journal_key
from canal.recent import Recent
from canal.schema import TableSchema
from canal.spark.types import Shape

log = logging.getLogger("canal.spark")

_THRESHOLD: Final = "spark.sql.execution.arrow.localRelationThreshold"


@attrs.frozen
class Batch:
    """What ``fn`` is called with: rows of one table out of one message of an Instance."""

    id: int
    """The message's id; it repeats after a restart."""

    table: str
    """``schema.table``."""

    tables: tuple[str, ...]
    """All tables of the message, in the order of their calls."""

    start: Position
    """What was acked, or in the message was the end, before: the rows begin here or later."""

    end: Position
    """What comes before is done with this call and those before it; of the last one the end of the message, which is acked."""

    first: tuple[int, int]
    """(``_txn``, ``_ord``) of the first row. The numbers are those of the log of ``source``."""

    last: tuple[int, int]
    """(``_txn``, ``_ord``) of the last row."""

    epoch: int = 0
    """With ``ha``: the number of the turn in which it was handed out."""

    @property
    def source(self) -> str:
        """The server whose log it is of."""
        return self.end.source


def refuse_truncate(entry: Entry) -> None:
    """What ``foreach_batch`` does with statements unless told otherwise: it goes on, but not over a TRUNCATE.

    Raises:
        UnfitChangeError: the statement is a TRUNCATE, which no row tells of.
    """
    if entry.event_type == EventType.TRUNCATE:
        header = entry.header
        raise UnfitChangeError(
            f"{header.schema}.{header.table} is truncated, which no row change tells of", position=entry.position,
            remedy="Give foreach_batch a function statements= that empties the target, or passes it over.",
        )  # fmt: skip


def foreach_batch(
    spark: Any,
    instance: Instance,
    fn: Callable[[Any, Batch], None],
    *,
    client_id: int = CLIENT_ID,
    batch_size: int = 20_000,
    timeout: float = 1.0,
    linger: float = 0.05,
    keep: bool = False,
    statements: Callable[[Entry], None] = refuse_truncate,
    stop: threading.Event | None = None,
) -> None:
    """Call ``fn(df, batch)`` with the changes of each table, for ever: get, call, ack; on an exception roll back and raise.

    The quickest way from the log to a DataFrame, with no query and no checkpoint: at least once by itself, exactly once with
    ``apply_changes``. A message with several tables makes a call for each, in the order of their first rows, and further ones
    behind a statement, a change of a table's columns, or one of the server; it is acked when all have returned. The columns
    are those of the streaming source's one-table form. Returns when ``stop`` is set (after the message in hand), or when the
    log has ended.

    With ``instance.ha`` the same loop runs in every process and waits while another is active. When a turn ends during a
    batch, the batch is not acked and the next process gets it again: the target's own transaction must fence it, as
    ``apply_changes`` does.

    Args:
        spark: the session; None: ``fn`` gets a ``pyarrow.Table`` instead of a DataFrame, and no JVM is needed.
        instance: started, with the client subscribed.
        batch_size: row changes of a message, at most (a larger transaction comes in pieces).
        timeout: seconds to wait for changes before ``stop`` is looked at again.
        linger: seconds to wait for more changes once there is one.
        keep: what has changed of a table's columns since its first batch is in ``_extra``, ``_absent`` and ``_exact``, so
            that all batches of a table have the same columns.
        statements: called with each statement (DDL and what else comes as one), between the rows before and behind it.

    Raises:
        CanalError: what stopped the parser.
        Exception: what ``fn`` raised; the batch was rolled back, and the next call of ``foreach_batch`` begins with it.
    """
    shapes = Recent[str, Shape]()
    with _quick(spark):
        while stop is None or not stop.is_set():
            is_over = instance._is_over(client_id)  # before the get: what came last goes first
            message = instance.get_without_ack(batch_size, timeout, linger, client_id=client_id)
            if not message:
                if is_over:
                    return
                continue
            try:
                _call(spark, message, instance.position(client_id), fn, statements, shapes, keep)
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


@contextlib.contextmanager
def _quick(spark: Any) -> Iterator[None]:
    """Arrow tables stay Arrow on their way into a DataFrame."""
    if spark is None:
        yield
        return
    before = spark.conf.get(_THRESHOLD)
    spark.conf.set(_THRESHOLD, "0")
    try:
        yield
    finally:
        spark.conf.set(_THRESHOLD, before)


def _call(
    spark: Any,
    message: Message,
    start: Position,
    fn: Callable[[Any, Batch], None],
    statements: Callable[[Entry], None],
    shapes: dict[str, Shape],
    keep: bool,
) -> None:
    assert message.position is not None
    tables = tuple(dict.fromkeys(entry.table.schema.name for entry in message.entries if entry.table is not None))
    for entry, groups, last in _sections(message.entries):
        end = message.position if last is None else last.position
        for schema, entries in groups:
            shape = _shape(shapes, schema, keep)
            rows = pa.Table.from_batches([shape.batch(entries)])
            df = rows if spark is None else spark.createDataFrame(rows, schema=shape.struct)
            fn(df, Batch(message.id, schema.name, tables, start, end, *_bounds(rows), message.epoch))
        start = end
        if entry is not None:
            statements(entry)


def _sections(
    entries: Sequence[Entry],
) -> Iterator[tuple[Entry | None, list[tuple[TableSchema, list[Entry]]], Entry | None]]:
    """Rows by table, up to each statement and that, to a change of a table's columns or of the log, and up to the end.

    Each with its last entry, but for what goes to the end.
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


def _shape(shapes: dict[str, Shape], schema: TableSchema, keep: bool) -> Shape:
    """Of the first version of the table that came where columns are kept, else of this one."""
    name = schema.name
    if name not in shapes or not keep and shapes[name].table is not schema:
        shapes[name] = Shape(schema, keep)
    return shapes[name]


def _bounds(rows: pa.Table) -> tuple[tuple[int, int], tuple[int, int]]:
    order = pc.sort_indices(rows, [("_txn", "ascending"), ("_ord", "ascending")])
    ends = rows.select(["_txn", "_ord"]).take(order.take(pa.array([0, len(order) - 1])))
    first, last = zip(*(column.to_pylist() for column in ends.columns))
    return first, last
