"""The fold of whole row images in columns: for each key the row that is left at the end, or none.

Never makes a Python object for a value. ``latest`` does the same for rows, and for what has no exact columns.
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
#: Codes that a key may have for each change, so that an array of all codes is small enough.
_SPARSE: Final = 8
#: Products of codes stay below it.
_LARGEST: Final = 1 << 62


@attrs.frozen(eq=False)
class ArrowChanges:
    """Changes of one table in columns, each a row, in the order of the log. Types are those of ``canal.formats.arrow``."""

    table: Table
    op: pa.Array
    """uint8: INSERT, UPDATE or DELETE."""

    ord: pa.Array
    """int64: number of the row change within its transaction."""

    entry: pa.Array
    """int32: number of its entry among those of the batch."""

    after: pa.Table
    """The row after the change, of a delete the one before: the columns of ``table``."""

    before_keys: pa.Table
    """The key before an update; null of other changes. No value of the keys of ``after`` is null."""


@attrs.frozen(eq=False)
class ArrowState:
    """What is to be done to one table, in columns. Take away ``deletes``, then put ``upserts``."""

    upserts: pa.Table
    """The rows that are to be there: the columns of the table, each key once, sorted by key."""

    is_new: pa.BooleanArray
    """Of each upsert whether the target has no row with its key when ``deletes`` are gone, by what the log says."""

    deletes: pa.Table
    """Keys of rows to take away, sorted: of rows that are gone, and of those that went and came again."""


def join(parts: Sequence[tuple[ArrowChanges, Sequence[int]]]) -> ArrowChanges | None:
    """Return changes of several tables as those of one; None if their columns differ.

    Args:
        parts: the changes of each table, and the numbers that their entries have among those of all.
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
    """Return what the changes come to. Keys have the values that ``KeyRules.written`` gives them."""
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
            rows = rows.set_column(at, name, pc.add(column, pa.scalar(0.0, column.type)))  # of -0.0 it makes 0.0
        elif pa.types.is_timestamp(column.type) and column.type.tz:
            rows = rows.set_column(at, name, column.cast(pa.timestamp("us", "UTC")))
    return rows


def _steps(changes: ArrowChanges, op: Any) -> tuple[pa.Table, Any, Any, Any]:
    """What happens to keys, in its order: the keys, the change of each, and whether a row comes or goes.

    An update that changes the key is two steps: its former key goes, and its key comes.
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
    """Numbers of the changes that give their row another key."""
    is_moved = np.zeros(len(op), bool)
    for name in after.column_names:
        differs = pc.fill_null(pc.not_equal(before[name], after[name]), False)
        is_moved |= np.asarray(differs)
    return np.flatnonzero(is_moved & (op == UPDATE))


def _codes(keys: pa.Table) -> tuple[Any, int, bool]:
    """A number for each key, the same for the same ones only; what they are below; whether they have the order of the keys."""
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
    """By code the last of its steps, -1 where it has none."""
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
