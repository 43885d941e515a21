"""Finds rows with some keys, and cuts the rows that replace a table's files into new files. Never opens a file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from canal.targets.tables.outcome import fit

#: Maximum rows of a new file. Small files let later batches skip more of the table.
_ROWS: Final = 1_000_000
#: Approximate rows in memory, in addition to the rows of one file and of the batch.
_HELD: Final = 4 * _ROWS


def new_files(kept: Iterable[pa.Table], upserts: pa.Table, keys: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of each new file, sorted by key: the kept rows of earlier files, and the rows of the batch."""
    waiting: list[pa.Table] = []
    for rows in kept:
        waiting.append(rows)
        if sum(one.num_rows for one in waiting) >= _HELD:
            yield from _cut(waiting, keys)
            waiting = []
    yield from _cut([*waiting, upserts], keys)


def _cut(waiting: list[pa.Table], keys: Sequence[str]) -> Iterator[pa.Table]:
    rows = pa.concat_tables(waiting)
    rows = rows.sort_by([(key, "ascending") for key in keys]) if len(waiting) > 1 else rows
    for begin in range(0, rows.num_rows, _ROWS):
        yield rows.slice(begin, _ROWS)


class Keys:
    """Keys of the rows to remove, in types that hold all values of the table's columns.

    Args:
        table: the columns of the keys.
    """

    def __init__(self, table: pa.Table) -> None:
        self.names = table.column_names
        self._table = _without_negative_zero(table)
        self._sorted = cache(self._sort)

    def may_be_within(self, name: str, low: Any, high: Any) -> bool:
        """Return whether a key column may have a value from ``low`` to ``high``. Dates and times are integers."""
        values = self._sorted(name)
        at = bisect_left(range(len(values)), low, key=lambda number: values[number].as_py())
        return at < len(values) and bool(values[at].as_py() <= high)

    def _sort(self, name: str) -> pa.Array:
        values = pc.unique(self._table[name]).sort()
        kind = values.type
        if pa.types.is_date32(kind):
            values = values.cast(pa.int32())
        return values.cast(pa.int64()) if pa.types.is_temporal(kind) else values

    def others(self, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
        """Return for each row whether its key is not among these keys. ``rows`` has at least the key columns."""
        keys, rows = self._table, _without_negative_zero(fit(rows, self._table.schema))
        if len(self.names) == 1 and pa.types.is_integer(keys[0].type) and not rows[0].null_count and keys.num_rows:
            values, found = self._sorted(self.names[0]).to_numpy(), rows[0].to_numpy()
            return pa.array(values[np.minimum(np.searchsorted(values, found), len(values) - 1)] != found)
        if len(self.names) == 1:
            return pc.invert(pc.is_in(rows[0], value_set=keys[0].combine_chunks()))
        mask = np.ones(rows.num_rows, bool)
        numbered = rows.append_column("__row", pa.array(np.arange(rows.num_rows)))
        found = numbered.join(keys, self.names, join_type="left semi")
        mask[found["__row"].to_numpy()] = False
        return pa.array(mask)


def _without_negative_zero(rows: pa.Table) -> pa.Table:
    """Replace -0.0 by 0.0: the source treats them as equal."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            rows = rows.set_column(number, field, pc.add(rows[number], pa.scalar(0.0, field.type)))
    return rows
