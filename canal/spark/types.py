"""The Spark types of a stream's columns, and the columns of a stream of many tables.

Never rounds, cuts or shifts a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa

from canal.formats.change_table import HEAD, heads
from canal.model import Entry, EntryType, EventType, decode_tuples
from canal.spark.envelope import RowJson


def spark_struct(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


# -- many tables -------------------------------------------------------------------------------------------------------


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
