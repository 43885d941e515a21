"""Row changes as Arrow: one record batch per table and schema version, an update as two rows.

Never guesses: what an Arrow type cannot hold is null in its column and stands, exactly, in ``_exact``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta, timezone, tzinfo
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, Final, Literal, TypeAlias

import attrs
import pyarrow as pa

from canal._util import build
from canal.binlog import type_codes as codes
from canal.errors import DecodeError, UnsupportedError
from canal.formats import columnar
from canal.model import Entry, TableMap, decode_tuples
from canal.rows import native
from canal.rows.decoder import RowDecoder
from canal.rows.values import PartialJson
from canal.schema import ColumnSchema


def text_array(values: Sequence[str]) -> pa.Array:
    """As ``pa.array``, which imports pandas where that is installed: half a second for each process of Spark."""
    data = [value.encode() for value in values]
    offsets = array("i", accumulate(map(len, data), initial=0))
    return pa.Array.from_buffers(pa.string(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))], 0)


def long_array(values: Sequence[int]) -> pa.Array:
    """As ``text_array``, of integers of 64 bits."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(array("q", values))], 0)


_INTEGERS = {
    codes.TINY: (pa.int8(), pa.uint8()),
    codes.SHORT: (pa.int16(), pa.uint16()),
    codes.INT24: (pa.int32(), pa.uint32()),
    codes.LONG: (pa.int32(), pa.uint32()),
    codes.LONGLONG: (pa.int64(), pa.uint64()),
}
#: Names of the numbers in ``ChangeArrays.op``.
_OPERATIONS = [b"insert", b"update_preimage", b"update_postimage", b"delete"]
#: The Arrow type that the kernel lays each kind of value out as.
_LAYOUTS = {
    native.I8: pa.int8(),
    native.U8: pa.uint8(),
    native.I16: pa.int16(),
    native.U16: pa.uint16(),
    native.I24: pa.int32(),
    native.U24: pa.uint32(),
    native.I32: pa.int32(),
    native.U32: pa.uint32(),
    native.I64: pa.int64(),
    native.U64: pa.uint64(),
    native.FLOAT: pa.float32(),
    native.DOUBLE: pa.float64(),
    native.YEAR: pa.int16(),
    native.DATE: pa.date32(),
    native.DATETIME: pa.timestamp("us"),
    native.TIME: pa.duration("us"),
    native.BIT: pa.uint64(),
    native.NUMBER: pa.uint64(),
    native.BYTES: pa.binary(),
    native.PADDED: pa.binary(),
    **dict.fromkeys(
        (
            native.UTF8,
            native.ASCII,
            native.CODEC,
            native.ENUM,
            native.SET,
            native.JSON,
            native.UUID,
            native.INET4,
            native.INET6,
            native.MASKED,
        ),
        pa.string(),
    ),
}
_ABSENT = pa.list_(pa.string())
_EXACT = pa.map_(pa.string(), pa.string())
_HEAD = {"_op": pa.string(), "_txn": pa.string(), "_ord": pa.int64()}
_TAIL = {"_absent": _ABSENT, "_exact": _EXACT}
#: Of op, ord and entry.
_NUMBERS = (pa.int8(), pa.int64(), pa.int32())
#: The buffers of an array (which are null, values, data) with their count of nulls, or an array.
_Part: TypeAlias = tuple[int, bytearray | None, bytearray, bytearray | None] | Any
#: Whether arrays are handed over by Arrow's C data interface: by it one call makes all of a batch.
_IMPORTS: Final = build.compiled and hasattr(pa.RecordBatch, "_import_from_c")
#: Columns of all shapes that are kept, and rows of nulls.
_COLUMNS_KEPT = 20_000
_NULLS_KEPT = 256


def arrow_type(column: ColumnSchema, time_zone: str = "UTC") -> pa.DataType:
    """The Arrow type of a column's values."""
    code = column.type_code
    if code in _INTEGERS:
        return _INTEGERS[code][column.unsigned]
    if code in codes.DECIMALS:
        precision, scale = column.meta & 0xFF, column.meta >> 8
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if code == codes.FLOAT:
        return pa.float32()
    if code == codes.DOUBLE:
        return pa.float64()
    if code in (codes.DATE, codes.NEWDATE):
        return pa.date32()
    if code in (codes.TIME, codes.TIME2):
        return pa.duration("us")
    if code in (codes.DATETIME, codes.DATETIME2):
        return pa.timestamp("us")
    if code in (codes.TIMESTAMP, codes.TIMESTAMP2):
        return pa.timestamp("us", tz=time_zone)
    if code == codes.YEAR:
        return pa.int16()
    if code == codes.BIT:
        return pa.uint64()
    if code in (codes.ENUM, codes.SET) and column.labels is None:
        return pa.uint64()
    if code in (codes.JSON, codes.ENUM, codes.SET):
        return pa.string()
    if code in codes.TEXTS and column.charset not in (None, "binary"):
        return pa.string()
    if code == codes.STRING and column.column_type.lower().startswith(("uuid", "inet")):
        return pa.string()
    return pa.binary()


@attrs.frozen
class ChangeArrays:
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

    def take(self, rows: pa.Array) -> ChangeArrays:
        """Some of the rows, by their numbers."""
        found: dict[str, Any] = {name: value for name, value in attrs.asdict(self, recurse=False).items() if name != "table"}
        for name, value in found.items():
            if isinstance(value, list):
                found[name] = [array.take(rows) for array in value]
            elif value is not None:
                found[name] = value.take(rows)
        return ChangeArrays(self.table, **found)


@attrs.frozen(slots=False)
class _Shape:
    """What the batches of tables with the same columns have in common."""

    columns: tuple[ColumnSchema, ...]
    decoder: RowDecoder
    kinds: list[pa.DataType]
    usual: bytes
    names: list[str]

    @cached_property
    def batch(self) -> pa.Schema:
        return pa.schema([*self._added(_HEAD), *map(pa.field, self.names, self.kinds), *self._added(_TAIL)])

    def _added(self, fields: Mapping[str, pa.DataType]) -> Iterator[pa.Field]:
        """The columns that no table has, with more underscores where a column of this table has their name."""
        taken = {name.lower() for name in self.names}
        for name, kind in fields.items():
            while name in taken:
                name = f"_{name}"
            yield pa.field(name, kind)

    @cached_property
    def images(self) -> pa.StructType:
        return _struct(*_NUMBERS, *self.kinds, _ABSENT, _EXACT)

    @cached_property
    def changes(self) -> pa.StructType:
        return _struct(*_NUMBERS, *self.kinds, _ABSENT, _EXACT, *self.kinds, _ABSENT, _EXACT)


class _Shapes:
    """Shapes by the ids of their decoders; all are forgotten when they have too many columns together."""

    def __init__(self) -> None:
        self._found: dict[int, _Shape] = {}
        self._columns = 0

    def of(self, table: TableMap) -> _Shape:
        """Raises UnsupportedError: a name is no UTF-8."""
        columns, decoder = table.columns, table.decoder
        known = self._found.get(id(decoder))
        if known is not None and known.columns is columns:
            return known
        names = [column.name for column in columns]
        _check_names(*names)
        kinds = [arrow_type(column, _zone_name(decoder.timezone)) for column in columns]
        self._columns += len(columns)
        if self._columns > _COLUMNS_KEPT:
            self._found.clear()
            self._columns = len(columns)
        self._found[id(decoder)] = made = _Shape(columns, decoder, kinds, _usual(table, kinds), names)
        return made


_SHAPES: Final = _Shapes()


def changes(entries: Sequence[Entry], layout: Literal["images", "changes"] = "images") -> ChangeArrays:
    """Decode the rows of entries that all have the same ``table.schema``.

    With the layout "images" an update is two rows, the one before it first. With "changes" every change is one row: the
    values after it, or those of the deleted row. JSON is text, as everywhere in Arrow.

    Raises:
        DecodeError: as ``entry.rows`` raises it; or a name is no UTF-8 (UnsupportedError).
        UsageError: a column has more than 2 GiB of text or bytes.
        ValueError: no entry, one without rows, or one of another table.
    """
    if not entries:
        raise ValueError("no entries")
    table = entries[0].table
    if table is None:
        raise ValueError(f"{entries[0]!r} has no rows")
    shape = _SHAPES.of(table)
    found = _decoded(entries, shape, layout == "changes")
    rows, apart = found.images.rows, found.before is not None
    parts = [_part(found.op), _part(found.order), _part(found.entry), *_side(found.images, shape)]
    if found.before is not None:
        parts += _side(found.before, shape)
    arrays = _arrays(rows, parts, shape.changes if apart else shape.images)
    end = 3 + len(shape.kinds)
    op, order, entry = arrays[:3]
    made = ChangeArrays(table, op, order, entry, arrays[3:end], arrays[end], arrays[end + 1])
    if apart:
        made = attrs.evolve(made, before=arrays[end + 2 : -2], before_absent=arrays[-2], before_exact=arrays[-1])
    return made if found.kept is None else made.take(pa.array(found.kept, pa.int64()))


def _decoded(entries: Sequence[Entry], shape: _Shape, apart: bool) -> columnar.ChangeColumns:
    found = columnar.ChangeColumns(shape.decoder.text_form, shape.usual, apart)
    try:
        found.extend(entries)
        found.close()
    except DecodeError:
        for entry in entries:  # the first that fails says what is wrong first in it, and where
            decode_tuples(entry, json_text=True)
        raise
    return found


def _check_names(*names: str) -> None:
    """Raise UnsupportedError for bytes of the log that are no UTF-8: Arrow has none in names and text."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UnsupportedError(
                f"a name in the log is no UTF-8, and Arrow has no other: {name!r}",
                remedy="The log is damaged, or a file of it has such a name; entry.rows gives the rows all the same.",
            ) from error


def _usual(table: TableMap, kinds: list[pa.DataType]) -> bytes:
    """For each column, 1 where its Arrow type is the one that the decoder's kind of value is laid out as."""
    plan: dict[int, tuple[int, int, Any]] = {row[2]: (row[0], row[3], row[4]) for row in table.decoder.text_form.plan}
    return bytes(_layout(*plan[slot], kind) == kind for slot, kind in enumerate(kinds))


def _layout(kind: int, param: int, extra: Any, wanted: pa.DataType) -> pa.DataType | None:
    if kind == native.COMPRESSED:
        kind = param
    if kind == native.DECIMAL:
        precision = sum(extra[1::2])
        return pa.decimal128(precision, param) if precision <= 38 else pa.decimal256(precision, param)
    if kind == native.TIMESTAMP:
        return pa.timestamp("us", tz=getattr(wanted, "tz", None) or "UTC")
    return _LAYOUTS.get(kind)


def _side(images: columnar.Images, shape: _Shape) -> list[_Part]:
    """The columns, ``absent`` and ``exact`` of the rows of one side."""
    parts = [
        column.part() if column.objects is None else pa.array(column.objects, kind)
        for column, kind in zip(images.columns, shape.kinds)
    ]
    sets: Sequence[tuple[int, ...]] = images.absent
    if len(sets) == 1:
        absent = _nulls(images.rows, _ABSENT)
    else:
        lists = pa.array([[shape.names[slot] for slot in slots] or None for slots in sets], _ABSENT)
        absent = lists.take(pa.Array.from_buffers(pa.int32(), images.rows, [None, pa.py_buffer(images.numbers)]))
    exact: list[list[tuple[str, str]] | None] | None = None
    for column in images.columns:
        for row, value in column.exact:
            if exact is None:
                exact = [None] * images.rows
            exact[row] = [*(exact[row] or ()), (column.name, exact_text(value, column.name))]
    return [*parts, absent, _nulls(images.rows, _EXACT) if exact is None else pa.array(exact, _EXACT)]


@lru_cache(_NULLS_KEPT)
def _nulls(rows: int, kind: pa.DataType) -> pa.Array:
    """Of just so many rows: what is cut out of a longer array is written out whole."""
    return pa.nulls(rows, kind)


def _part(values: bytearray, data: bytearray | None = None) -> _Part:
    return 0, None, values, data


def _arrays(rows: int, parts: list[_Part], kind: pa.StructType) -> list[pa.Array]:
    """An array of each part, which is of a struct's kinds."""
    if _IMPORTS:
        found: list[pa.Array] = columnar.hand_over(pa.Array._import_from_c, rows, parts, kind).flatten()
        return found
    return [_array(rows, part, field.type) for part, field in zip(parts, kind)]


def _record_batch(rows: int, parts: list[_Part], schema: pa.Schema) -> pa.RecordBatch:
    if _IMPORTS:
        return columnar.hand_over(pa.RecordBatch._import_from_c, rows, parts, schema)
    arrays = [_array(rows, part, field.type) for part, field in zip(parts, schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(rows: int, part: _Part, kind: pa.DataType) -> pa.Array:
    if not isinstance(part, tuple):
        return part
    nulls, valid, values, data = part
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(values)]
    return pa.Array.from_buffers(kind, rows, buffers if data is None else [*buffers, pa.py_buffer(data)], nulls)


def _struct(*kinds: pa.DataType) -> pa.StructType:
    return pa.struct([pa.field("", kind) for kind in kinds])


def exact_text(value: Any, column: str) -> str:
    if isinstance(value, PartialJson):
        return value.expression(column)
    if isinstance(value, bytes):
        return value.hex()
    try:
        value.encode()
    except UnicodeEncodeError:  # bytes of a label that are no text
        return str(value.encode("utf-8", "surrogateescape").hex())
    return str(value)


def _zone_name(zone: tzinfo) -> str:
    """The zone as Arrow names it."""
    offset = zone.utcoffset(None) if isinstance(zone, timezone) else None
    if offset is None:
        return str(zone)
    minutes = offset // timedelta(minutes=1)
    if not minutes or offset % timedelta(minutes=1):
        return "UTC"
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def to_arrow(entries: Iterable[Entry]) -> list[pa.RecordBatch]:
    """One ``RecordBatch`` per table and schema version, in the order in which they first appear.

    Columns: ``_op`` (insert, update_preimage, update_postimage, delete), ``_txn`` (GTID, or journal:offset of the
    transaction), ``_ord`` (number of the row change within its transaction), then the table's columns, then ``_absent``
    (names of columns that the row image does not hold; they are null) and ``_exact`` (the server's text, or hex of
    bytes, or the changes of a ``PartialJson`` as canal writes them, for values that the Arrow type cannot hold; they are
    null). Where a column of the table has one of these names, whatever the case of its letters, ours has one more underscore
    before it. The schema's metadata names ``canal.schema`` and
    ``canal.table``. BEGIN, END and statements make no rows.

    Raises: as ``changes`` does.
    """
    return [_batch(group) for group in columnar.by_schema(entries)]


def _batch(entries: list[Entry]) -> pa.RecordBatch:
    table = entries[0].table
    assert table is not None
    shape = _SHAPES.of(table)
    found = _decoded(entries, shape, apart=False)
    named = {"canal.schema": table.schema.schema, "canal.table": table.schema.table}
    _check_names(*named.values())
    try:
        names = columnar.transaction_names(entries)
    except UnicodeEncodeError:
        _check_names(*(entry.transaction.journal for entry in entries))
        raise
    parts = [
        _part(*columnar.repeated(_OPERATIONS, found.op, 1)),
        _part(*columnar.repeated(names, found.entry, 4)),
        _part(found.order),
        *_side(found.images, shape),
    ]
    made = _record_batch(found.images.rows, parts, shape.batch.with_metadata(named))
    return made if found.kept is None else made.take(pa.array(found.kept, pa.int64()))
