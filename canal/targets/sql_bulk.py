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
from pyarrow import types as kinds

from canal.changes.change import Table
from canal.changes.fold import ArrowState
from canal.schema import ColumnSchema

_DAY: Final = 86_400_000_000
_SPAN: Final = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def in_forms(arrow: ArrowState, table: Table, form: Callable[[ColumnSchema, pa.Array], pa.Array | None]) -> ArrowState | None:
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


def has_spaces(rows: pa.Table) -> bool:
    """Return whether a text ends with a space."""
    return any(kinds.is_string(column.type) and bool(pc.any(pc.ends_with(column, " ")).as_py()) for column in rows.columns)


def parted(rows: ArrowState) -> tuple[pa.Table, pa.Table]:
    """Return the upserts of rows that are there, by what the log says, and those of new ones."""
    if not rows.is_new.true_count:
        return rows.upserts, rows.upserts.slice(0, 0)
    return rows.upserts.filter(pc.invert(rows.is_new)), rows.upserts.filter(rows.is_new)


def plain(values: pa.Array) -> pa.Array:
    """Return values as integers, doubles, bytes, or the text that stands for them where a database has no type for them."""
    kind = values.type
    if kinds.is_decimal(kind):
        return decimal_texts(values)
    if kinds.is_float32(kind):
        return shortest_doubles(values)
    if kinds.is_timestamp(kind):
        return moment_texts(values)
    if kinds.is_duration(kind):
        return duration_texts(values)
    return values.cast(pa.string()) if kinds.is_date(kind) else values


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
    valid = pa.array(~_nulls(values)).buffers()[1] if values.null_count else None
    return pa.Array.from_buffers(pa.month_day_nano_interval(), len(values), [valid, pa.py_buffer(made)])


def moment_texts(values: pa.Array) -> pa.Array:
    """Return moments as ``datetime.isoformat`` writes them: a fraction if there is one, and the offset if they have a zone."""
    if values.type.tz not in (None, "UTC"):
        return pa.array([None if one is None else one.isoformat(" ") for one in values.to_pylist()], pa.string())
    made = micros(values) // 1_000_000
    texts = pa.array(made, pa.timestamp("s"), mask=_nulls(values)).cast(pa.string())
    texts = _with_fraction(texts, micros(values) - made * 1_000_000)
    return pc.binary_join_element_wise(texts, "+00:00", "") if values.type.tz else texts


def duration_texts(values: pa.Array) -> pa.Array:
    """Return durations as MySQL writes a TIME: ``-838:59:59.000001``."""
    all_micros = micros(values)
    seconds, fraction = np.divmod(np.abs(all_micros), 1_000_000)
    hours, minutes, rest = (
        pc.utf8_lpad(pa.array(part).cast(pa.string()), 2, "0") for part in (seconds // 3600, seconds // 60 % 60, seconds % 60)
    )
    sign = pc.if_else(pa.array(all_micros < 0), "-", "")
    texts = pc.binary_join_element_wise(pc.binary_join_element_wise(sign, hours, ""), minutes, rest, ":")
    return pc.if_else(values.is_valid(), _with_fraction(texts, fraction), None)


def _with_fraction(texts: pa.Array, fraction: Any) -> pa.Array:
    """Add the six digits of microseconds to the texts that have some."""
    if not fraction.any():
        return texts
    digits = pc.utf8_lpad(pa.array(fraction).cast(pa.string()), 6, "0")
    return pc.if_else(pa.array(fraction != 0), pc.binary_join_element_wise(texts, digits, "."), texts)


def _nulls(values: pa.Array) -> Any:
    return values.is_null().to_numpy(zero_copy_only=False)


def micros(values: pa.Array) -> Any:
    """Return the microseconds of moments and durations, 0 of NULL."""
    return values.view(pa.int64()).fill_null(0).to_numpy()
