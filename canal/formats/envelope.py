"""Changes of many tables in one Arrow form, with rows as JSON; docs/spark/columns.md has the values' forms.

Never rounds, cuts or shifts a value: what a column's Spark type cannot hold is null and stands, exactly, in ``_exact``.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import attrs
import pyarrow as pa

from canal.formats.arrow import exact_text
from canal.formats.change_table import HEAD, heads
from canal.formats.columns import float_text
from canal.formats.spark_types import spark_arrow_type
from canal.formats.text import dumps
from canal.formats.texts import TEXTS
from canal.model import Entry, EntryType, EventType, decode_tuples
from canal.rows.values import ABSENT, AmbiguousLabel, NoLabel
from canal.schema import ColumnSchema, is_sure

_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode
#: The JSON of a value, by the value's own class; None: such a value, as one of any other class, stands in ``_exact``.
_Forms = Mapping[type, Callable[[Any], str | None]]


def _text(value: str) -> str | None:
    return _quoted(value) if value.isascii() or is_sure(value) else None


def _real(value: float) -> str:
    return repr(value) if value - value == 0 else _quoted(float_text(value))


def _in_quotes(value: Any) -> str:
    return f'"{TEXTS[type(value)](value)}"'


_FORMS: Final[_Forms] = {
    type(None): lambda value: "null",
    int: repr,
    float: _real,
    str: _text,
    NoLabel: lambda value: '""',
    AmbiguousLabel: _text,
    **dict.fromkeys((Decimal, date, datetime, timedelta), _in_quotes),
}
_OF_BYTES: Final[_Forms] = {**_FORMS, bytes: lambda value: f'"{b64encode(value).decode()}"'}


class RowJson:
    """Makes the JSON objects of one version of a table's columns."""

    def __init__(self, columns: Sequence[ColumnSchema]) -> None:
        taken = {column.name.lower() for column in columns}
        exact = "_exact"
        while exact in taken:
            exact = f"_{exact}"
        self._exact = dumps(exact)
        self._columns: list[tuple[str, str, _Forms]] = [
            (column.name, dumps(column.name), _OF_BYTES if pa.types.is_binary(spark_arrow_type(column)) else _FORMS)
            for column in columns
        ]

    def texts(self, before: Sequence[Any] | None, after: Sequence[Any] | None) -> tuple[str, str | None]:
        """The row after a change, or the one that was deleted; and of an update the columns that it changed, before it."""
        if before is None or after is None:
            return self._object(self._members((before if after is None else after) or ())), None
        new, old = self._members(after), self._members(before)
        changed = {number: member for number, member in old.items() if new.get(number, member) != member}
        return self._object(new), self._object(changed)

    def _members(self, values: Sequence[Any]) -> dict[int, tuple[str, str | None]]:
        """By the number of each column that the image holds, its JSON, and the text that ``_exact`` has of it."""
        found: dict[int, tuple[str, str | None]] = {}
        for number, value in enumerate(values):
            if value is ABSENT:
                continue
            name, _, forms = self._columns[number]
            form = forms.get(type(value))
            made = None if form is None else form(value)
            found[number] = (made, None) if made is not None else ("null", exact_text(value, name))
        return found

    def _object(self, members: Mapping[int, tuple[str, str | None]]) -> str:
        parts = [f"{self._columns[number][1]}:{made}" for number, (made, _) in members.items()]
        exact = {self._columns[number][0]: text for number, (_, text) in members.items() if text is not None}
        if exact:
            parts.append(f"{self._exact}:{dumps(exact)}")
        return f"{{{','.join(parts)}}}"


@attrs.frozen
class Envelope:
    """The columns of a stream of many tables: rows are JSON, whose values ``from_json`` reads. Immutable, pickles.

    In this order: ``_op`` (I, U, D; Q: a statement), ``_txn``, ``_ord``, ``_ts``, ``_gtid`` as in a ``Shape``, ``schema``,
    ``table``, ``data`` (a JSON object: each column by name, null for NULL, no member for a column that the row image does not
    hold, and ``_exact`` as in a ``Shape``), ``old`` (for updates: the columns that it changed, before it), ``sql`` (of
    statements). ``RowJson`` makes the objects.
    """

    @property
    def arrow(self) -> pa.Schema:
        """The schema of every batch: what PySpark's ``to_arrow_schema(struct, timezone="UTC")`` gives."""
        return pa.schema([*HEAD, *(pa.field(name, pa.string()) for name in ("schema", "table", "data", "old", "sql"))])

    def batch(self, entries: Sequence[Entry], epoch: int = 0) -> pa.RecordBatch:
        """The row changes and statements of ``entries``, in their order; BEGIN, END and heartbeats make no rows.

        Raises:
            UnsupportedError: the position of a transaction does not fit into ``_txn``.
            DecodeError: the bytes of a row cannot be decoded.
        """
        entries = [entry for entry in entries if entry.entry_type == EntryType.ROWDATA]
        made: dict[int, RowJson] = {}
        rows = [(number, *row) for number, entry in enumerate(entries) for row in _envelope_rows(entry, made)]
        owner, op, order, *texts = zip(*rows) if rows else [()] * 8
        owners = pa.array(owner, pa.int32())
        txn, ts, gtid = (array.take(owners) for array in heads(entries, epoch))
        arrays = [pa.array(op, pa.string()), txn, pa.array(order, pa.int64()), ts, gtid]
        arrays += [pa.array(column, pa.string()) for column in texts]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


_LETTERS: Final = {EventType.INSERT: "I", EventType.UPDATE: "U", EventType.DELETE: "D"}


def _envelope_rows(
    entry: Entry, made: dict[int, RowJson]
) -> Iterator[tuple[str, int, str, str, str | None, str | None, str | None]]:
    """``made`` has what makes JSON of the rows of tables, by the tables' ids: their entries must live as long."""
    header = entry.header
    table, letter = entry.table, _LETTERS.get(entry.event_type)
    first = entry.first_row + entry.skip_rows
    if table is None or letter is None:
        yield "Q", first, header.schema, header.table, None, None, _utf8(entry.sql)
        return
    row_json = made.get(id(table))
    if row_json is None:
        row_json = made[id(table)] = RowJson(table.columns)
    rows = decode_tuples(entry, json_text=True)
    numbers = entry.selected if entry.selected is not None else range(len(rows))
    for number, (before, after) in zip(numbers, rows):
        yield letter, first + number, header.schema, header.table, *row_json.texts(before, after), None


def _utf8(text: str | None) -> str | None:
    """A statement's text; bytes of it that are no text in its charset are written out."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode("utf-8")
