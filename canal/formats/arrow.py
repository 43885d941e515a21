"""Row changes as Arrow: one record batch per table and schema version, an update as two rows.

Never guesses: what an Arrow type cannot hold is null in its column and stands, exactly, in ``_exact``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from typing import Any

import pyarrow as pa

from canal.model import Entry, TableMap, decode_tuples
from canal.parse.values import ABSENT, InvalidText, PartialJson, ZeroDate
from canal.schema import ColumnSchema

_INTEGERS = {1: (pa.int8(), pa.uint8()), 2: (pa.int16(), pa.uint16()), 9: (pa.int32(), pa.uint32()),
             3: (pa.int32(), pa.uint32()), 8: (pa.int64(), pa.uint64())}  # fmt: skip
_OPERATIONS = {0: ("", "insert"), 1: ("update_preimage", "update_postimage"), 2: ("delete", "")}
_OPERATIONS[3] = _OPERATIONS[1]


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


def to_arrow(entries: Iterable[Entry]) -> list[pa.RecordBatch]:
    """One ``RecordBatch`` per table and schema version, in the order in which they first appear.

    Columns: ``_op`` (insert, update_preimage, update_postimage, delete), ``_txn`` (GTID, or journal:offset of the
    transaction), ``_ord`` (number of the row change within its transaction), then the table's columns, then ``_absent``
    (names of columns that the row image does not hold; they are null) and ``_exact`` (the server's text, or hex of
    bytes, or the changes of a ``PartialJson`` as canal writes them, for values that the Arrow type cannot hold; they are
    null). The schema's metadata names ``canal.schema`` and
    ``canal.table``. BEGIN, END and statements make no rows.
    """
    groups: dict[int, _Group] = {}
    for entry in entries:
        table = entry.table
        if table is not None:
            group = groups.get(id(table.schema))
            if group is None:
                group = groups[id(table.schema)] = _Group(table)
            group.add(entry)
    return [group.batch() for group in groups.values()]


class _Group:
    """The rows of one table and schema version."""

    def __init__(self, table: TableMap) -> None:
        self.table = table
        self.op: list[str] = []
        self.txn: list[str] = []
        self.ord: list[int] = []
        self.rows: list[tuple[Any, ...]] = []

    def add(self, entry: Entry) -> None:
        transaction = entry.transaction
        txn = transaction.gtid or f"{transaction.journal}:{transaction.offset}"
        before_op, after_op = _OPERATIONS[entry.kind]
        pairs = decode_tuples(entry, json_text=True)
        numbers = entry.selected if entry.selected is not None else range(len(pairs))
        first = entry.first_row + entry.skip_rows
        for number, (before, after) in zip(numbers, pairs):
            for op, values in ((before_op, before), (after_op, after)):
                if values is not None:
                    self.op.append(op)
                    self.txn.append(txn)
                    self.ord.append(first + number)
                    self.rows.append(values)

    def batch(self) -> pa.RecordBatch:
        columns = self.table.columns
        absent: list[list[str] | None] = [None] * len(self.rows)
        exact: list[list[tuple[str, str]] | None] = [None] * len(self.rows)
        arrays: list[pa.Array] = [
            pa.array(self.op, pa.string()), pa.array(self.txn, pa.string()), pa.array(self.ord, pa.int64())
        ]  # fmt: skip
        for index, column in enumerate(columns):
            values = [row[index] for row in self.rows]
            arrays.append(_array(values, column, absent, exact))
        arrays.append(pa.array(absent, pa.list_(pa.string())))
        arrays.append(pa.array(exact, pa.map_(pa.string(), pa.string())))
        names = ["_op", "_txn", "_ord", *(column.name for column in columns), "_absent", "_exact"]
        schema = pa.schema(
            [pa.field(name, array.type) for name, array in zip(names, arrays)],
            metadata={"canal.schema": self.table.schema.schema, "canal.table": self.table.schema.table},
        )
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


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
