"""The fold of complete row images in columns: the latest row per key, or its absence.

Values are never converted to Python objects. ``latest`` is the equivalent for rows, and for values without exact columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from canal.changes.change import Table

#: Numbers of operations in ``ArrowChanges.op``.
INSERT, UPDATE, DELETE = 0, 1, 2
#: Codes per change at most, so that an array indexed by code remains small.
_SPARSE: Final = 8
#: The upper bound for products of codes.
_LARGEST: Final = 1 << 62


@attrs.frozen(eq=False)
class ArrowChanges:
    """Changes of a table as columns, in log order. The types are those of ``canal.formats.arrow``."""

    table: Table
    op: pa.Array
    """uint8: INSERT, UPDATE or DELETE."""

    ord: pa.Array
    """int64: number of the row change within its transaction."""

    entry: pa.Array
    """int32: the number of the entry in the batch."""

    after: pa.Table
    """The row after the change, or before a delete, with the columns of ``table``. No key is null."""

    before_keys: pa.Table
    """The key before an update. Null for other changes."""


@attrs.frozen(eq=False)
class ArrowState:
    """The changes to apply to a table, as columns: delete ``deletes``, then put ``upserts``."""

    upserts: pa.Table
    """The rows to put, with the columns of the table. Each key occurs once, sorted by key."""

    is_new: pa.BooleanArray
    """Whether, according to the log, the target has no row with the upsert's key after ``deletes`` are deleted."""

    deletes: pa.Table
    """The keys of rows to delete, sorted: deleted rows, and rows that were deleted and inserted again."""


def join(parts: Sequence[tuple[ArrowChanges, Sequence[int]]]) -> ArrowChanges | None:
    """Combine the changes of several tables. Return None if the columns differ.

    Args:
        parts: the changes of each table, and the numbers of their entries in the combined batch.
    """
    first = parts[0][0]
    if any(one.after.schema != first.after.schema or one.before_keys.schema != first.before_keys.schema for one, _ in parts):
        return None
    entry = np.concatenate([np.asarray(numbers, np.int32)[one.entry.to_numpy()] for one, numbers in parts])
    order = pa.array(np.argsort(entry, kind="stable"))

    def joined(arrays: Iterable[Any]) -> Any:
        join_all = pa.concat_arrays if isinstance((found := list(arrays))[0], pa.Array) else pa.concat_tables
        return join_all(found).take(order)

    return ArrowChanges(
        first.table,
        joined(one.op for one, _ in parts),
        joined(one.ord for one, _ in parts),
        pa.array(entry).take(order),
        joined(one.after for one, _ in parts),
        joined(one.before_keys for one, _ in parts),
    )


def fold(changes: ArrowChanges) -> ArrowState:
    """Return the state after the changes. Keys have the form of ``KeyRules.written``."""
    changes = attrs.evolve(
        changes, after=_written(changes.after, changes.table.keys), before_keys=_written(changes.before_keys, changes.table.keys)
    )
    op = changes.op.to_numpy()
    keys, row, is_new, is_gone = _steps(changes, op)
    code, width, is_sorted = _codes(keys)
    step = np.arange(len(code))
    last = _last(code, step, width)
    found = np.flatnonzero(last >= 0)
    last = last[found]
    gone = _last(code[is_gone], step[is_gone], width)[found]
    new = _last(code[is_new], step[is_new], width)[found]
    first = _last(code[::-1], step[::-1], width)[found]
    if not is_sorted:
        order = _order(keys.take(pa.array(last)))
        last, gone, new, first = last[order], gone[order], new[order], first[order]
    is_left = last > gone
    is_inserted = is_left & (new > gone)
    is_replaced = is_inserted & (new > first)
    return ArrowState(
        _take(changes.after, row[last[is_left]]), pa.array(is_inserted[is_left]), _take(keys, last[~is_left | is_replaced])
    )


def _written(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    for name in keys:
        at, column = rows.column_names.index(name), rows[name]
        if pa.types.is_floating(column.type):
            rows = rows.set_column(at, name, pc.add(column, pa.scalar(0.0, column.type)))  # converts -0.0 to 0.0
        elif pa.types.is_timestamp(column.type) and column.type.tz:
            rows = rows.set_column(at, name, column.cast(pa.timestamp("us", "UTC")))
    return rows


def _steps(changes: ArrowChanges, op: Any) -> tuple[pa.Table, Any, Any, Any]:
    """Return the steps in order: the key, the number of the change, whether the step inserts a row, and whether it deletes a row.

    An update that changes the key is two steps: a delete of the former key and an insert of the new key.
    """
    keys = changes.after.select(changes.table.keys).combine_chunks()
    row, is_new, is_gone = np.arange(len(op)), op == INSERT, op == DELETE
    moved = _moved(op, changes.before_keys, keys)
    if len(moved):
        left = changes.before_keys.take(pa.array(moved))
        order = np.insert(row, moved, len(op) + np.arange(len(moved)))
        is_new[moved] = True
        is_new, is_gone = np.insert(is_new, moved, False), np.insert(is_gone, moved, True)
        keys = pa.concat_tables([keys, left.select(keys.column_names)]).take(pa.array(order))
        row = np.insert(row, moved, moved)
    return keys, row, is_new, is_gone


def _moved(op: Any, before: pa.Table, after: pa.Table) -> Any:
    """Return the numbers of the updates that change the key."""
    is_moved = np.zeros(len(op), bool)
    for name in after.column_names:
        differs = pc.fill_null(pc.not_equal(before[name], after[name]), False)
        is_moved |= np.asarray(differs)
    return np.flatnonzero(is_moved & (op == UPDATE))


def _codes(keys: pa.Table) -> tuple[Any, int, bool]:
    """Return a code for each key, an upper bound of the codes, and whether the codes have the order of the keys.

    Codes are equal exactly if the keys are equal.
    """
    columns = [_array(column) for column in keys.columns]
    if len(columns) == 1 and pa.types.is_integer(columns[0].type) and len(columns[0]):
        values = columns[0].to_numpy()
        low, high = values.min(), values.max()
        width = int(high) - int(low) + 1
        if width <= _SPARSE * len(values):
            return (values - low).astype(np.int64), width, True
    code, width = _encoded(columns[0])
    for column in columns[1:]:
        more, count = _encoded(column)
        if width * count > _LARGEST:
            code, width = _encoded(pa.array(code))
        code, width = code * count + more, width * count
    if width > _SPARSE * len(code):
        code, width = _encoded(pa.array(code))
    return code, width, False


def _encoded(column: pa.Array) -> tuple[Any, int]:
    found = column.dictionary_encode()
    return found.indices.to_numpy().astype(np.int64), max(len(found.dictionary), 1)


def _last(code: Any, step: Any, width: int) -> Any:
    """Return the last step of each code, or -1."""
    found = np.full(width, -1, np.int64)
    found[code] = step
    return found


def _order(keys: pa.Table) -> Any:
    return pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()


def _take(table: pa.Table, rows: Any) -> pa.Table:
    if len(rows) == table.num_rows and np.array_equal(rows, np.arange(len(rows))):
        return table
    return table.take(pa.array(rows))


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
