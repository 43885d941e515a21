"""Columns of Arrow in the forms in which SQL databases take them.

Never changes a value: each form is what the way of rows writes of the same value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from canal.changes.change import Table
from canal.changes.fold import ArrowState
from canal.schema import ColumnSchema

_DAY: Final = 86_400_000_000
_SPAN: Final = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])


def one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def in_forms(
    arrow: ArrowState, table: Table, form: Callable[[ColumnSchema, pa.Array], pa.Array | None]
) -> ArrowState | None:  # fmt: skip
    """Return the state with the columns in their forms, or None if a column has none for its values."""
    columns = dict(zip(table.names.names, table.columns))
    try:
        made = [
            {name: form(columns[name], one_array(values)) for name, values in zip(rows.column_names, rows.columns)}
            for rows in (arrow.upserts, arrow.deletes)
        ]
    except pa.ArrowInvalid:
        return None
    if any(values is None for one in made for values in one.values()):
        return None
    upserts, deletes = map(pa.table, made)
    return attrs.evolve(arrow, upserts=upserts, deletes=deletes)


def decimal_texts(values: pa.Array) -> pa.Array:
    """Return decimals as text without an exponent."""
    texts = values.cast(pa.string())
    if values.type.scale <= 6:  # with more Arrow writes some of them as 1E-7
        return texts
    has_exponent = pc.fill_null(pc.match_substring(texts, "E"), False)
    others = values.filter(has_exponent).to_pylist()
    return pc.replace_with_mask(texts, has_exponent, pa.array([format(one, "f") for one in others], pa.string()))


def shortest_doubles(values: pa.Array) -> pa.Array:
    """Return floats of 32 bits as the doubles of their shortest texts: 0.1, not 0.10000000149011612."""
    return values.cast(pa.string()).cast(pa.float64())


def intervals(values: pa.Array) -> pa.Array:
    """Return durations as intervals of days and of less than a day, which is positive, as Python has them."""
    made = np.zeros(len(values), _SPAN)
    made["days"], rest = np.divmod(micros(values), _DAY)
    made["nanos"] = rest * 1000
    valid = values.is_valid().buffers()[1] if values.null_count else None
    return pa.Array.from_buffers(pa.month_day_nano_interval(), len(values), [valid, pa.py_buffer(made)])


def micros(values: pa.Array) -> Any:
    """Return the microseconds of moments and durations, 0 of NULL."""
    return values.view(pa.int64()).fill_null(0).to_numpy()
