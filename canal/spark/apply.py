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

#: The option in Spark's error if the rows exceed the driver's limit, and the maximum number of times to halve such a batch.
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
    """Return a function for ``foreachBatch`` and ``canal.spark.foreach_batch`` that keeps ``target`` equal to a MySQL table.

    The function accepts the DataFrames (or Arrow tables) of one table's stream in batch order, each any number of times. It
    applies each change once: the target stores the progress in the transaction of the rows, and the function skips changes
    up to the progress. So a query can restart at any earlier position, with another checkpoint or none. A change of the primary
    key removes the old row, and a TRUNCATE (``_op`` T) removes all rows. A partial row image (binlog_row_image=MINIMAL or
    NOBLOB) changes only its columns. The batch is collected in this process. If it exceeds ``spark.driver.maxResultSize``, it is
    applied in several commits, so limit batches by the source's options.

    Args:
        target: ``canal.targets.DeltaTarget``, ``IcebergTarget``, ``MySQLTarget`` or ``ParquetTarget``, with the table ``table``.
            Or a target of one table, such as ``canal.spark.DeltaSparkTarget``.
        keys: the columns of the primary key. None: append the changes themselves, exactly once, with all columns of the stream.
        stream: the name of the progress in the target. Use one name for the life of the target, with any queries and
            checkpoints. Several streams that write one target need different names and different keys.
        schema: how to handle different columns. "add" adds missing columns to the target, and writes NULL to columns that the
            stream lacks. The default that MySQL writes to a new column of existing rows is not logged, so the target has
            NULL until the row changes.
        exact: how to handle values that the column's type cannot hold (zero dates; see ``_exact``). "null" writes NULL and logs
            a warning. "keep" writes NULL, and the text to a column ``_exact`` of the target. JSON values with only a
            logged difference are always refused.
        absent: how to handle columns that an inserted image lacks, whose default is unknown: columns of partial images, and
            columns that were added after the insert.
        snapshot: how to handle a snapshot if the target has rows. Rows that were deleted meanwhile are not in the snapshot, so
            "replace" empties the target with the snapshot's first batch. "keep" keeps the rows of other streams, and refuses
            the snapshot if the target has followed this stream. Without ``keys`` a snapshot can follow any rows, but no
            changes of this stream.
        table: the name of the table in the target. ``canal.spark.foreach_batch`` passes the name of the source table, a
            streaming query does not.

    The function raises, without writing the batch:
        TargetSchemaError: the columns differ, or a value does not fit.
        UnfitChangeError: a change cannot be applied exactly, a key is NULL, or a partial image changes a missing row.
        StreamMismatchError: the changes are of another stream, or a new snapshot.
        UnloggedChangeError: the table changed without rows in the log, as a loop reports. The target stores the error, and
            each call raises it until a snapshot replaces the rows, or until ``acknowledge`` is called.
        TargetLostError: the table was dropped or rolled back between two calls.
        TargetConflictError: another writer was quicker. Call again.
        TargetError: the stored progress is unreadable.
    """
    return ApplyChanges(target, keys, stream, schema, exact, absent, snapshot, _parts, table)


def _parts(df: Any, keys: Sequence[str], level: int = 0) -> Iterator[pa.Table]:
    """Yield the rows of ``df``, in several ordered parts if Spark refuses to send so many bytes to the driver."""
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
    log.info("a batch exceeds %s: it is applied in parts", _TOO_MUCH)
    for half in halves:
        yield from _parts(half, keys, level + 1)


def _halves(df: Any, keys: Sequence[str], level: int) -> tuple[Any, ...]:
    """Split the rows into earlier and later changes, or the rows of one change by their keys."""
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
