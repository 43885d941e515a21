"""The changes of one table as Arrow: its columns, and those that a stream of changes adds to them.

Never rounds, cuts or shifts a value: what the column's type cannot hold is null in its column and stands, exactly, in ``_exact``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, Final, cast

import attrs
import pyarrow as pa

from canal.errors import ConfigError, SchemaError, UnsupportedError
from canal.formats.arrow import changes, long_array, text_array
from canal.formats.columns import Form, column_text
from canal.formats.spark_types import exact_cast, spark_arrow_type
from canal.model import Entry, Transaction
from canal.position import Position, journal_key
from canal.schema import ColumnSchema, TableSchema

_EPOCH_BITS, _NUMBER_BITS, _OFFSET_BITS = 5, 22, 36

#: ``_ord`` of the rows of a snapshot: before every change of the transaction whose ``_txn`` they share.
SNAPSHOT_ORD: Final = -1

_NAMES: Final = pa.list_(pa.field("element", pa.string()))
_TEXTS: Final = pa.map_(pa.string(), pa.string())
#: The first columns of every stream.
HEAD: Final = (
    pa.field("_op", pa.string()),
    pa.field("_txn", pa.int64()),
    pa.field("_ord", pa.int64()),
    pa.field("_ts", pa.timestamp("us", "UTC")),
    pa.field("_gtid", pa.string()),
)
_OPERATIONS: Final = text_array(["I", "U", "U", "D"])
#: Of each operation, whether there is no image from before it: a bit for each, unset for the third.
_IS_WITHOUT_BEFORE: Final = pa.Array.from_buffers(pa.bool_(), 4, [None, pa.py_buffer(b"\x0b")], 0)

_LABELS: Final = Form(labels=True)


# -- the order of transactions -----------------------------------------------------------------------------------------


def pack_txn(epoch: int, journal: str, offset: int) -> int:
    """``_txn``: 5 bits of the epoch, 22 of the journal's number, 36 of the offset at which the transaction begins.

    Raises:
        UnsupportedError: one of them does not fit, or the journal's name has no number.
    """
    number = journal_key(journal)[1]
    for value, bits, what in (
        (epoch, _EPOCH_BITS, "epoch"),
        (number, _NUMBER_BITS, "number of the journal"),
        (offset, _OFFSET_BITS, "offset"),
    ):
        if not 0 <= value < 1 << bits:
            raise UnsupportedError(
                f"the order of transactions cannot be told in 64 bits: the {what} is {value}, not 0 to {(1 << bits) - 1}",
                position=f"{journal}:{offset}",
                remedy="Start a new stream (a new checkpoint and a new snapshot); where the number of the binlog has come to "
                "its end, after RESET BINARY LOGS AND GTIDS (RESET MASTER) at the source; give files numbered names.",
            )
    return (epoch << _NUMBER_BITS | number) << _OFFSET_BITS | offset


def heads(entries: Sequence[Entry], epoch: int) -> list[pa.Array]:
    """``_txn``, ``_ts`` and ``_gtid`` of each entry."""
    last: Transaction | None = None
    packed, text, begin = 0, "", ("", 0)
    txns, texts = [], []
    for entry in entries:
        transaction = entry.transaction
        if transaction is not last:
            last = transaction
            journal, offset = transaction.journal, transaction.offset
            if journal != begin[0] or offset >> _OFFSET_BITS:
                begin = journal, pack_txn(epoch, journal, offset) - offset
            packed = begin[1] + offset
            text = transaction.gtid or f"{journal}:{offset}"
        txns.append(packed)
        texts.append(text)
    seconds = long_array([entry.timestamp for entry in entries]).cast(pa.timestamp("s", "UTC"))
    return [long_array(txns), seconds.cast(pa.timestamp("us", "UTC")), text_array(texts)]


# -- one table ---------------------------------------------------------------------------------------------------------


@attrs.frozen(slots=False)
class Shape:
    """The columns of the stream of one table; the same for the whole life of a query. Immutable, pickles.

    In this order: ``_op`` (I, U, D; r: read by a snapshot), ``_txn`` (the order of transactions, see ``pack_txn``), ``_ord``
    (number of the row change within its transaction, -1 for a snapshot), ``_ts`` (time of the event, whole seconds),
    ``_gtid`` (or journal:offset), the table's columns, ``_before``, ``_absent`` (names of columns that the row image does not
    hold), ``_exact`` (texts of values that the column's type cannot hold, hex of bytes); with ``keep`` also ``_extra``
    (texts of columns that the stream has and the shape has not). ``_before`` is null but for updates: the table's columns
    before it, and their own ``_absent``, ``_exact`` and ``_extra``.

    Args:
        table: the columns as they are at the start of the query.
        keep: go on when the table's columns change: what is of another type is converted where its value stays the same
            and else null and in ``_exact``, what is new is in ``_extra``. What is gone, or was not there yet, is null and in
            ``_absent`` in any case.
        since: a position in the log at which the table had these columns already, where the server told one. Of rows before it
            columns that are no more are left out, and others are converted, as by ``keep``.
        is_chosen: ``table`` has some of its columns only, and the others are none of the stream's business.

    Raises:
        ConfigError: the table has no columns, or one has a name that only the stream may use.
    """

    table: TableSchema
    keep: bool = False
    since: Position | None = None
    is_chosen: bool = False

    def __attrs_post_init__(self) -> None:
        if not self.table.columns:
            raise ConfigError(f"{self.table.name} has no columns", remedy="Give a table that exists and that the user may see.")
        # Spark compares names without regard to case.
        taken = {"_op", "_txn", "_ord", "_ts", "_gtid", "_before", "_absent", "_exact", "_extra"}
        bad = [column.name for column in self.table.columns if column.name.lower() in taken]
        if bad:
            raise ConfigError(
                f"{self.table.name} has columns named as those that a stream adds: {', '.join(bad)}",
                remedy="Rename them, or read the table as an envelope.",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return Shape, (self.table, self.keep, self.since, self.is_chosen)

    def own(self, columns: Sequence[ColumnSchema]) -> Sequence[ColumnSchema]:
        """Those of a version of the table's columns that the stream is about."""
        return [column for column in columns if column.name.lower() in self._names] if self.is_chosen else columns

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(column.name.lower() for column in self.table.columns)

    def is_past(self, entry: Entry) -> bool:
        """Whether an entry lies before the position ``since``, which positions in one server's log tell."""
        since, transaction = self.since, entry.transaction
        if since is None or transaction.source not in ("", since.source):
            return False
        (base, number), (other, last) = journal_key(transaction.journal), journal_key(since.journal)
        return base == other and (number, transaction.offset) < (last, since.offset)

    @cached_property
    def columns(self) -> tuple[pa.Field, ...]:
        """The fields of the table's own columns."""
        return tuple(pa.field(column.name, spark_arrow_type(column)) for column in self.table.columns)

    @cached_property
    def _tail(self) -> tuple[pa.Field, ...]:
        names = (("_absent", _NAMES), ("_exact", _TEXTS), ("_extra", _TEXTS))
        return tuple(pa.field(name, kind) for name, kind in names[: 3 if self.keep else 2])

    @cached_property
    def _before(self) -> pa.StructType:
        return pa.struct([*self.columns, *self._tail])

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema of every batch: the same in Spark, with timestamps in UTC."""
        return pa.schema([*HEAD, *self.columns, pa.field("_before", self._before), *self._tail])

    def batch(self, entries: Sequence[Entry], epoch: int = 0) -> pa.RecordBatch:
        """The row changes of entries that share one table map's schema, one row for each, in their order.

        Raises:
            SchemaError: a column is not in the shape, or of another type there, and ``keep`` is not set.
            UnsupportedError: the position of a transaction does not fit into ``_txn``.
            DecodeError: the bytes of a row cannot be decoded.
        """
        found = changes(entries, layout="changes")
        columns = found.table.columns
        self._check(columns, entries[0])
        txn, ts, gtid = (array.take(found.entry) for array in heads(entries, epoch))
        rows = self._image(columns, found.columns, found.absent, found.exact)
        if found.before is None:
            before = pa.nulls(len(found.op), self._before)
        else:
            image = self._image(columns, found.before, found.before_absent, found.before_exact)
            mask = _IS_WITHOUT_BEFORE.take(found.op)
            before = pa.StructArray.from_arrays(image, fields=list(self._before), mask=mask)
        count = len(self.columns)
        arrays = [_OPERATIONS.take(found.op), txn, found.ord, ts, gtid, *rows[:count], before, *rows[count:]]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def batches(self, entries: Sequence[Entry], epoch: int = 0) -> Iterator[pa.RecordBatch]:
        """As ``batch``, of entries of the table whatever its versions; entries without rows are passed over."""
        rows = (entry for entry in entries if entry.table is not None)
        for _, group in groupby(rows, lambda entry: id(entry.table.schema)):  # type: ignore[union-attr]
            yield self.batch(list(group), epoch)

    def snapshot_batch(
        self, columns: Sequence[pa.Array], absent: pa.Array, exact: pa.Array, txn: int, ts_us: int, gtid: str
    ) -> pa.RecordBatch:
        """Rows that a snapshot read: ``columns`` are of the types of ``Shape.columns``; ``ts_us`` is when they were read."""
        count = len(columns[0])
        head = [
            pa.repeat(pa.scalar("r"), count),
            pa.repeat(pa.scalar(txn, pa.int64()), count),
            pa.repeat(pa.scalar(SNAPSHOT_ORD, pa.int64()), count),
            pa.repeat(pa.scalar(ts_us, pa.int64()), count).cast(pa.timestamp("us", "UTC")),
            pa.repeat(pa.scalar(gtid), count),
        ]
        tail = [absent.cast(_NAMES), exact, pa.nulls(count, _TEXTS)][: len(self._tail)]
        return pa.RecordBatch.from_arrays([*head, *columns, pa.nulls(count, self._before), *tail], schema=self.arrow)

    def emptied_batch(self, txn: int, ord: int, ts_us: int, gtid: str) -> pa.RecordBatch:
        """The one row that tells that the table has no rows at this position: ``_op`` T, no values."""
        head = {"_op": "T", "_txn": txn, "_ord": ord, "_ts": ts_us, "_gtid": gtid}
        arrays = [pa.array([head.get(field.name)], field.type) for field in self.arrow]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _check(self, columns: Sequence[ColumnSchema], entry: Entry) -> None:
        if self.keep or columns is self.__dict__.get("_seen"):
            return
        found = {column.name: spark_arrow_type(column) for column in self.own(columns)}
        known = {field.name: field.type for field in self.columns}
        if not found.items() <= known.items() and not self.is_past(entry):  # what is gone is null and in ``_absent``
            raise SchemaError(
                f"the columns of {self.table.name} are not those that the query began with: {_changes(known, found)}",
                position=f"{entry.transaction.journal}:{entry.offset}",
                remedy="Restart the query to read on with the new columns, or set schemaChange=keep.",
            )
        self.__dict__["_seen"] = columns  # the same object again: nothing to compare

    def _image(
        self, columns: Sequence[ColumnSchema], arrays: Sequence[pa.Array], absent: pa.Array, exact: pa.Array
    ) -> list[pa.Array]:
        """The table's columns of one image of each row, and the arrays of ``_tail``."""
        numbers = {column.name.lower(): number for number, column in enumerate(columns)}
        image, missing, odd = [], [], []
        if self.is_chosen:
            absent, exact = self._chosen(absent, exact)
        for field in self.columns:
            number = numbers.pop(field.name.lower(), None)
            if number is None:
                missing.append(field.name)
                image.append(pa.nulls(len(absent), field.type))
                continue
            if spark_arrow_type(columns[number]) == field.type:
                image.append(_cast(arrays[number], field.type, columns[number]))
                continue
            values, unfit = _converted(arrays[number], field.type, columns[number])
            image.append(values)
            odd.append((field.name, unfit))
        if missing:
            absent = pa.array([[*(names or ()), *missing] for names in absent.to_pylist()], _NAMES)
        if odd:
            exact = _joined([exact, *(_named(texts, name) for name, texts in odd)])
        tail = [absent.cast(_NAMES), exact]
        if self.keep:
            rest = () if self.is_chosen else numbers.values()
            left = [(columns[number].name, _text_values(arrays[number], columns[number])) for number in rest]
            tail.append(_joined([_named(texts, name) for name, texts in left]) if left else pa.nulls(len(absent), _TEXTS))
        return [*image, *tail]

    def _chosen(self, absent: pa.Array, exact: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Without columns that are not the stream's."""
        if absent.null_count < len(absent):
            lists = ([name for name in names or () if name.lower() in self._names] for names in absent.to_pylist())
            absent = pa.array([names or None for names in lists], absent.type)
        if exact.null_count < len(exact):
            maps = ([pair for pair in pairs or () if pair[0].lower() in self._names] for pairs in exact.to_pylist())
            exact = pa.array([pairs or None for pairs in maps], exact.type)
        return absent, exact


def _changes(known: Mapping[str, pa.DataType], found: Mapping[str, pa.DataType]) -> str:
    """What is new, gone or of another type."""
    parts = [f"{name} is new" for name in found if name not in known]
    parts += [f"{name} is gone" for name in known if name not in found]
    parts += [f"{name} is {found[name]}, was {known[name]}" for name in known if found.get(name, known[name]) != known[name]]
    return ", ".join(parts)


def _cast(array: pa.Array, kind: pa.DataType, column: ColumnSchema) -> pa.Array:
    """The same values in the type that Spark takes; no copy where that is the same."""
    if array.type == kind:
        return array
    if pa.types.is_decimal256(array.type):
        return pa.array([None if value is None else format(value, "f") for value in array.to_pylist()], kind)
    return array.cast(kind)


def _converted(array: pa.Array, kind: pa.DataType, column: ColumnSchema) -> tuple[pa.Array, list[str | None]]:
    """Values of a column whose type was another when the query began, and the texts of those that do not fit."""
    if pa.types.is_string(kind):
        return pa.array(_text_values(array, column), kind), [None] * len(array)
    if _is_number(array.type) and _is_number(kind):
        try:
            return exact_cast(array, kind), [None] * len(array)
        except pa.ArrowInvalid:
            pass  # some value does not fit
        values = [_cast_scalar(value, kind) for value in array]
    else:
        values = [pa.scalar(None, kind)] * len(array)
    texts = _text_values(array, column)
    unfit = [None if value.is_valid else text for value, text in zip(values, texts)]
    return pa.array([value.as_py() for value in values], kind), unfit


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _cast_scalar(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    try:
        return cast(pa.Scalar, exact_cast(value, kind))
    except pa.ArrowInvalid:
        return pa.scalar(None, kind)


def _text_values(array: pa.Array, column: ColumnSchema) -> list[str | None]:
    values = array.to_pylist()
    return [value.hex() if isinstance(value, bytes) else column_text(value, column, _LABELS) for value in values]


def _named(texts: Sequence[str | None], name: str) -> list[list[tuple[str, str]]]:
    return [[] if text is None else [(name, text)] for text in texts]


def _joined(parts: Sequence[Any]) -> pa.Array:
    """One map for each row of all that the parts have for it; null where they have nothing."""
    lists = [part.to_pylist() if isinstance(part, pa.Array) else part for part in parts]
    rows = ([pair for items in row if items for pair in items] for row in zip(*lists))
    return pa.array([row or None for row in rows], _TEXTS)
