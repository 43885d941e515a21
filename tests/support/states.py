"""States of tables in both forms, of changes that a test makes or of the entries of a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from canal.changes import Change, ChangeBatch, Changes, Op, Origin, Reader, Table, TableState, latest
from canal.changes.batch import EntryRows
from canal.changes.fold import ArrowChanges
from canal.formats.arrow import arrow_type
from canal.formats.change_columns import change_columns
from canal.model import Entry
from canal.schema import column_from_text

_OPERATIONS = {Op.INSERT: 0, Op.UPDATE: 1, Op.DELETE: 2}
Row = Mapping[str, Any]


def table(name: str, columns: Mapping[str, str], keys: Sequence[str]) -> Table:
    """A table ``schema.name`` with columns of these types, such as ``{"id": "int", "name": "varchar(20)"}``."""
    made = [column_from_text(one, kind, charset="utf8mb4", key=one in keys) for one, kind in columns.items()]
    for number, (column, kind) in enumerate(zip(made, columns.values())):
        if kind.startswith("decimal"):
            digits, scale = map(int, kind[8:-1].split(","))
            made[number] = attrs.evolve(column, meta=digits | scale << 8)
    return Table(name, name, tuple(made), tuple(keys))


def changed(of: Table, rows: Iterable[tuple[Row | None, Row | None]]) -> list[Change]:
    """Changes of a table, each (before, after): an insert has no row before, a delete none after."""
    made = []
    for number, (before, after) in enumerate(rows):
        op = Op.INSERT if before is None else Op.DELETE if after is None else Op.UPDATE
        origin = Origin(f"t:{number}", f"binlog.000001:{number}", 0)
        old, new = (None if row is None else of.row(row) for row in (before, after))
        made.append(Change(of, op, old, new, origin, number))
    return made


def state(changes: Sequence[Change]) -> TableState:
    """The state that changes of one table come to; ``arrow`` is made of the values of their rows."""
    return TableState(changes[0].table, ChangeBatch([changes], lambda: columns(changes)))


def columns(changes: Sequence[Change]) -> ArrowChanges:
    """Changes of one table, which hold all columns, as columns."""
    of = changes[0].table
    kinds = {column.name: arrow_type(column) for column in of.columns}
    after = {name: pa.array([one.row[name] for one in changes], kind) for name, kind in kinds.items()}
    former = [one.before if one.after is not None else None for one in changes]
    before = {key: pa.array([None if row is None else row[key] for row in former], kinds[key]) for key in of.keys}
    return ArrowChanges(
        of,
        pa.array([_OPERATIONS[one.op] for one in changes], pa.uint8()),
        pa.array([one.ord for one in changes], pa.int64()),
        pa.array(range(len(changes)), pa.int32()),
        pa.table(after),
        pa.table(before),
    )


def states(entries: Iterable[Entry]) -> list[TableState]:
    """What the rows of a log come to, by table: of a fake binlog or of a server."""
    return latest(changes(entries), lambda of, keys: {})


def changes(entries: Iterable[Entry]) -> Changes:
    """The changes of a log, not decoded."""
    reader, parts = Reader(), list[Any]()
    for entry in entries:
        if (source := reader.table(entry)) is not None:
            parts.append(EntryRows(entry, source, lambda entry, of, route: reader.rows(entry, of)))
        else:
            parts.append(reader.changes(entry))
    return Changes(parts, change_columns)
