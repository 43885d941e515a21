"""Row changes as Arrow: one record batch per table and schema version, an update as two rows.

Never guesses: what an Arrow type cannot hold is null in its column and stands, exactly, in ``_exact``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import Any, Literal

import attrs
import pyarrow as pa

from canal.model import Entry, TableMap, decode_tuples
from canal.parse.values import ABSENT, InvalidText, PartialJson, ZeroDate
from canal.schema import ColumnSchema

_INTEGERS = {1: (pa.int8(), pa.uint8()), 2: (pa.int16(), pa.uint16()), 9: (pa.int32(), pa.uint32()),
             3: (pa.int32(), pa.uint32()), 8: (pa.int64(), pa.uint64())}  # fmt: skip
#: Names of the numbers in ``Changes.op``.
_OPERATIONS = pa.array(["insert", "update_preimage", "update_postimage", "delete"])
_ABSENT = pa.list_(pa.string())
_EXACT = pa.map_(pa.string(), pa.string())


def arrow_type(column: ColumnSchema, time_zone: str = "UTC") -> pa.DataType:
    """The Arrow type of a column's values."""
    code = column.type_code
    if code in _INTEGERS:
        return _INTEGERS[code][column.unsigned]
    if code in (0, 246):
        precision, scale = column.meta & 0xFF, column.meta >> 8
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if code == 4:
        return pa.float32()
    if code == 5:
        return pa.float64()
    if code in (10, 14):
        return pa.date32()
    if code in (11, 19):
        return pa.duration("us")
    if code in (12, 18):
        return pa.timestamp("us")
    if code in (7, 17):
        return pa.timestamp("us", tz=time_zone)
    if code == 13:
        return pa.int16()
    if code == 16:
        return pa.uint64()
    if code in (247, 248) and column.labels is None:
        return pa.uint64()
    if code in (245, 247, 248):
        return pa.string()
    if code in (15, 140, 141, 249, 250, 251, 252, 253, 254) and column.charset not in (None, "binary"):
        return pa.string()
    if code == 254 and column.column_type.lower().startswith(("uuid", "inet")):
        return pa.string()
    return pa.binary()


@attrs.frozen
class Changes:
    """The row changes of one table and schema version as Arrow arrays, all of the same length.

    ``op``: int8, 0 insert, 1 before-image of an update, 2 update, 3 delete. ``ord``: int64, number of the row change within
    its transaction. ``entry``: int32, index of its entry in what was given. ``columns``: the table's columns in the order
    of ``table.columns``. ``absent``: names of columns that the row image does not hold, or null; they are null. ``exact``:
    text of the values that the Arrow type cannot hold, or null; they are null. With the layout "changes", ``before`` and
    what begins so are the same of the image before an update, and null of other changes; else they are None.
    """

    table: TableMap
    op: pa.Array
    ord: pa.Array
    entry: pa.Array
    columns: list[pa.Array]
    absent: pa.Array
    exact: pa.Array
    before: list[pa.Array] | None = None
    before_absent: pa.Array | None = None
    before_exact: pa.Array | None = None


def changes(entries: Sequence[Entry], layout: Literal["images", "changes"] = "images") -> Changes:
    """Decode the rows of entries that all have the same ``table.schema``.

    With the layout "images" an update is two rows, the one before it first. With "changes" every change is one row: the
    values after it, or those of the deleted row. JSON is text, as everywhere in Arrow.

    Raises:
        DecodeError: as ``entry.rows`` raises it.
        ValueError: no entry, or one without rows.
    """
    if not entries:
        raise ValueError("no entries")
    table = entries[0].table
    if table is None:
        raise ValueError(f"{entries[0]!r} has no rows")
    rows = _Rows(table)
    old = _Rows(table) if layout == "changes" else None
    op: list[int] = []
    order: list[int] = []
    index: list[int] = []
    for place, entry in enumerate(entries):
        pairs = decode_tuples(entry, json_text=True)
        numbers = entry.selected if entry.selected is not None else range(len(pairs))
        first = entry.first_row + entry.skip_rows
        for number, (before, after) in zip(numbers, pairs):
            if old is not None:
                images = [(0 if before is None else 3 if after is None else 2, before if after is None else after)]
                old.rows.append(before if after is not None else None)
            elif before is None:
                images = [(0, after)]
            else:
                images = [(1, before), (2, after)] if after is not None else [(3, before)]
            for code, values in images:
                op.append(code)
                order.append(first + number)
                index.append(place)
                rows.rows.append(values)
    columns, absent, exact = rows.arrays()
    found = Changes(
        table, pa.array(op, pa.int8()), pa.array(order, pa.int64()), pa.array(index, pa.int32()), columns, absent, exact
    )
    return found if old is None else attrs.evolve(found, **dict(zip(("before", "before_absent", "before_exact"), old.arrays())))


def to_arrow(entries: Iterable[Entry]) -> list[pa.RecordBatch]:
    """One ``RecordBatch`` per table and schema version, in the order in which they first appear.

    Columns: ``_op`` (insert, update_preimage, update_postimage, delete), ``_txn`` (GTID, or journal:offset of the
    transaction), ``_ord`` (number of the row change within its transaction), then the table's columns, then ``_absent``
    (names of columns that the row image does not hold; they are null) and ``_exact`` (the server's text, or hex of
    bytes, or the changes of a ``PartialJson`` as canal writes them, for values that the Arrow type cannot hold; they are
    null). The schema's metadata names ``canal.schema`` and
    ``canal.table``. BEGIN, END and statements make no rows.
    """
    groups: dict[int, list[Entry]] = {}
    for entry in entries:
        table = entry.table
        if table is not None:
            groups.setdefault(id(table.schema), []).append(entry)
    return [_batch(group) for group in groups.values()]


def _batch(entries: list[Entry]) -> pa.RecordBatch:
    found = changes(entries)
    table = found.table
    transactions = pa.array([_transaction(entry) for entry in entries], pa.string())
    arrays = [
        _OPERATIONS.take(found.op), transactions.take(found.entry), found.ord, *found.columns, found.absent, found.exact
    ]  # fmt: skip
    names = ["_op", "_txn", "_ord", *(column.name for column in table.columns), "_absent", "_exact"]
    schema = pa.schema(
        [pa.field(name, array.type) for name, array in zip(names, arrays)],
        metadata={"canal.schema": table.schema.schema, "canal.table": table.schema.table},
    )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _transaction(entry: Entry) -> str:
    transaction = entry.transaction
    return transaction.gtid or f"{transaction.journal}:{transaction.offset}"


class _Rows:
    """Rows of one table as tuples, None where there is none."""

    def __init__(self, table: TableMap) -> None:
        self.table = table
        self.rows: list[tuple[Any, ...] | None] = []

    def arrays(self) -> tuple[list[pa.Array], pa.Array, pa.Array]:
        absent: list[list[str] | None] = [None] * len(self.rows)
        exact: list[list[tuple[str, str]] | None] = [None] * len(self.rows)
        arrays = []
        for index, column in enumerate(self.table.columns):
            values = [None if row is None else row[index] for row in self.rows]
            arrays.append(_array(values, column, absent, exact))
        return arrays, pa.array(absent, _ABSENT), pa.array(exact, _EXACT)


def _array(
    values: list[Any], column: ColumnSchema, absent: list[list[str] | None], exact: list[list[tuple[str, str]] | None]
) -> pa.Array:
    kind = arrow_type(column, _zone_name(values))
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        pass  # some value is not of the column's plain type
    for number, value in enumerate(values):
        if value is ABSENT:
            absent[number] = [*(absent[number] or ()), column.name]
            values[number] = None
        elif isinstance(value, (ZeroDate, InvalidText)):
            text = value.hex() if isinstance(value, bytes) else str(value)
            exact[number] = [*(exact[number] or ()), (column.name, text)]
            values[number] = None
        elif isinstance(value, PartialJson):
            exact[number] = [*(exact[number] or ()), (column.name, value.expression(column.name))]
            values[number] = None
    return pa.array(values, kind)


def _zone_name(values: list[Any]) -> str:
    for value in values:
        zone = getattr(value, "tzinfo", None)
        if zone is not None:
            return "UTC" if zone is UTC else str(zone)
    return "UTC"
