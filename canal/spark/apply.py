"""``apply_changes`` for DataFrames.

Never applies a change itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import pyarrow as pa

from canal.pipes.apply import ApplyChanges, TableTargets
from canal.spark.frames import to_arrow
from canal.targets.tables import TableTarget

log = logging.getLogger("canal.spark")

#: What Spark's error names when a task's rows are more than the driver takes, and how often such a batch is halved.
_TOO_MUCH: Final = "spark.driver.maxResultSize"
_LEVELS: Final = 24


def apply_changes(
    target: TableTarget | TableTargets,
    keys: Sequence[str] | None,
    *,
    stream: str = "canal",
    schema: Literal["refuse", "add"] = "refuse",
    exact: Literal["refuse", "null", "keep"] = "refuse",
    absent: Literal["refuse", "null"] = "refuse",
    snapshot: Literal["refuse", "replace", "keep"] = "refuse",
    table: str = "",
) -> ApplyChanges:
    """A function for ``foreachBatch``, and for ``canal.spark.foreach_batch``, that keeps ``target`` equal to a table of MySQL.

    It takes the DataFrames (or Arrow tables) of one table's stream in the order of their batches, any number of times each.
    Each change is applied once: how far the target is stands in the target, written in the same transaction as the rows, and
    what is not behind it is left out. So it may be restarted, with another checkpoint or none, at any earlier position.
    A change of the primary key takes the old row away, and a row that tells of a TRUNCATE (``_op`` T) all rows. A partial
    row image (binlog_row_image=MINIMAL or NOBLOB) changes only the columns that it holds. The batch is collected in this
    process, in parts where it is more than ``spark.driver.maxResultSize``, each a commit: bound it by the source's options.

    Args:
        target: ``canal.targets.DeltaTarget``, ``IcebergTarget``, ``MySQLTarget`` or ``ParquetTarget``, whose table of the name
            ``table`` is written; or a target of one table, such as ``canal.spark.DeltaSparkTarget``.
        keys: columns that identify a row, the primary key; None: do not apply but append the changes themselves, each once,
            with all columns of the stream.
        stream: what the progress is filed under in the target. One name for the target's whole life, whatever becomes of
            queries and checkpoints; several streams may write one target only under names, and with keys, of their own.
        schema: what to do when the columns of target and changes differ. "add" adds the target's missing ones; those
            that the stream does not have are null in the rows that it writes. What MySQL puts into a new column of the rows
            that it has (its default) is not logged: in the target it is null until the row changes.
        exact: what to do with values that their column's type cannot hold (zero dates; see ``_exact``). "null" writes NULL
            and a warning to the log; "keep" writes NULL and keeps the text in a column ``_exact`` of the target. A JSON
            value of which only the change is known is always refused.
        absent: what an inserted row gets for a column that its image does not hold, which is its default, not known here: of
            partial images, and of rows that were inserted before a column that the query knows was added.
        snapshot: what to do when a snapshot begins though the target has rows, of this stream or earlier ones. Those that
            were deleted meanwhile are in neither, so "replace" empties the target with the snapshot's first batch. "keep"
            leaves what other streams have put there, and refuses where the target has followed this one. What is appended
            (``keys`` None) may have anything before it, but not a snapshot behind changes.
        table: the name of the table in the target. ``canal.spark.foreach_batch`` passes the name of the source's table, a
            streaming query does not.

    Raises, when it is called, with nothing of the batch written:
        TargetSchemaError: the columns differ, or a value does not fit.
        UnfitChangeError: a change cannot be applied exactly, by the rules above; a key is NULL; a partial image changes
            a row that the target does not have.
        StreamMismatchError: it is another stream, or a new snapshot.
        UnloggedChangeError: rows of the table changed without any in the log, where the batch of a loop tells that. It is
            stored in the target, and raised by every call until a snapshot replaces what is there, or ``acknowledge`` is called.
        TargetConflictError: another writer was quicker. Try again.
        TargetError: the target's stored progress is unreadable.
    """
    return ApplyChanges(target, keys, stream, schema, exact, absent, snapshot, _parts, table)


def _parts(df: Any, keys: Sequence[str], level: int = 0) -> Iterator[pa.Table]:
    """The rows of ``df``; in parts, in their order, where Spark does not give the driver so many bytes at once."""
    if isinstance(df, pa.RecordBatch):
        yield pa.Table.from_batches([df])
        return
    rows = df if isinstance(df, pa.Table) else None
    try:
        rows = to_arrow(df) if rows is None else rows
    except Exception as error:
        halves = _halves(df, keys, level) if _TOO_MUCH in str(error) and level < _LEVELS else ()
        if not halves:
            raise
    if rows is not None:
        yield rows
        return
    log.info("a batch is more than %s: it is applied in parts", _TOO_MUCH)
    for half in halves:
        yield from _parts(half, keys, level + 1)


def _halves(df: Any, keys: Sequence[str], level: int) -> tuple[Any, ...]:
    """Those of the rows that come first, and the others; of rows of one change any of them, by their keys."""
    order = to_arrow(df.select("_txn", "_ord")).sort_by([("_txn", "ascending"), ("_ord", "ascending")])
    count = order.num_rows
    own = list(zip(*(order.take([0, count // 2, count - 1])[name].to_pylist() for name in order.column_names))) if count else []
    if count and own[0] != own[2]:
        cut = own[1] if own[1] != own[0] else own[2]
        is_first = f"_txn < {cut[0]} OR (_txn = {cut[0]} AND _ord < {cut[1]})"
    elif count > 1 and keys:
        is_first = f"pmod(shiftrightunsigned(xxhash64({', '.join(map(_ticked, keys))}), {level}), 2) = 0"
    else:
        return ()
    return df.where(is_first), df.where(f"NOT ({is_first})")


def _ticked(name: str) -> str:
    doubled = name.replace("`", "``")
    return f"`{doubled}`"
