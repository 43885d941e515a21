"""Targets of a data lake: Delta and Iceberg tables, and Parquet files of changes. Each commit has rows and progress.

Never opens a table: ``canal.targets.tables`` does.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final, Literal

import attrs
import pyarrow as pa

from canal._util.option_checks import file_path, text
from canal.changes import Change, Table, TableState
from canal.changes.latest import Key, Values
from canal.errors import ConfigError, TargetError, TargetSchemaError, UnfitChangeError
from canal.formats.spark_types import spark_arrow_type
from canal.schema import ColumnSchema
from canal.targets import tables
from canal.targets.protocol import UNKNOWN, Guarantee, Progress, Scope, TableProgress
from canal.targets.tables import delta, iceberg, matching, parquet
from canal.targets.tables.outcome import common, extended, fit
from canal.targets.tables.upkeep import CommitCounter, Upkeep
from canal.targets.values import NO_TYPE, document_text
from canal.targets.work import LogWork, StateWork, conflict

_MICROSECOND: Final = timedelta(microseconds=1)
_ADAPTERS: Final[Mapping[type, Callable[[Any], Any]]] = {
    **NO_TYPE,
    dict: document_text,
    list: document_text,
    timedelta: lambda value: value // _MICROSECOND,
}
#: Errors of Arrow if a type does not hold a value.
_REFUSED: Final = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, UnicodeEncodeError)


@attrs.frozen
class _Lake(ABC):
    """Base of the targets of this module. Each table has a separate commit."""

    guarantee = Guarantee.ONCE
    scope: ClassVar[Scope] = "table"
    is_log = False

    @abstractmethod
    def table_target(self, name: str) -> tables.TableTarget:
        """Return the target of one table, also for ``apply_changes``.

        Raises:
            ConfigError: the name is invalid.
        """

    @contextmanager
    def begin(self, stream: str) -> Iterator[StateWork | LogWork]:
        yield _Rows(self, f"pipe/{stream}")


@attrs.frozen
class DeltaTarget(_Lake):
    """Delta tables below ``root``, one per table with the same name: ``<root>/shop.orders``. The target creates them.

    Each commit stores the progress with the rows, as application transactions. TIME becomes microseconds (long), BIGINT
    UNSIGNED decimal(20,0), and DECIMAL with more than 38 digits text. Zero dates are unfit.

    Args:
        root: directory or URL.
        storage_options: options of the object store for ``deltalake``.
        schema: "add" new and wider columns of the source to the target, or "refuse" them and stop.
        upkeep: when to compact small files and remove old files. None: never.
        partition_by: partition columns of tables that this target creates, by table name.
    """

    root: str | os.PathLike[str] = attrs.field(validator=file_path)
    storage_options: Mapping[str, str] | None = attrs.field(default=None, kw_only=True, repr=False)
    schema: Literal["add", "refuse"] = attrs.field(default="add", kw_only=True)
    upkeep: Upkeep | None = attrs.field(default=None, kw_only=True)
    partition_by: Mapping[str, Sequence[str]] = attrs.field(factory=dict, kw_only=True)

    def __str__(self) -> str:
        return f"Delta {_without_query(self.root)}"

    def table_target(self, name: str) -> delta.DeltaTableTarget:
        columns = self.partition_by.get(name, ())
        return delta.DeltaTableTarget(_below(self.root, name), self.storage_options, columns, self.upkeep)


@attrs.frozen
class IcebergTarget(_Lake):
    """Iceberg tables in a catalog: ``shop.orders`` is orders in the namespace shop. The target creates both.

    The snapshot with the rows has the progress as a property. Types are the same as in ``DeltaTarget``.

    Args:
        catalog: a name in pyiceberg's configuration, or any name.
        properties: properties of a catalog that is not in the configuration (``type``, ``uri``, ``warehouse`` …).
        schema, upkeep: see ``DeltaTarget``.
    """

    catalog: str = attrs.field(default="default", validator=text)
    properties: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    schema: Literal["add", "refuse"] = attrs.field(default="add", kw_only=True)
    upkeep: Upkeep | None = attrs.field(default=None, kw_only=True)

    def __str__(self) -> str:
        return f"Iceberg {self.catalog}"

    def table_target(self, name: str) -> iceberg.IcebergTableTarget:
        if "." not in name.strip("."):
            raise ConfigError(f"{name} has no namespace for Iceberg", remedy='Name it by canal.Rule(to="namespace.table").')
        return iceberg.IcebergTableTarget(name, self.catalog, self.properties, upkeep=self.upkeep)


@attrs.frozen
class ParquetTarget(_Lake):
    """The changes themselves, exactly once, as Parquet files below ``root``: a directory per table, a file per commit.

    A row has ``_id``, ``_op``, ``_ts`` (milliseconds since 1970), ``_position``, ``_sql`` for statements, and ``_before`` and
    ``_after`` with the table's columns. The footer has the progress, so keep the newest file in each directory. The file system
    needs hard links: object stores do not work. Types are the same as in ``DeltaTarget``.

    Args:
        root: the directory.
        compression: the codec, as pyarrow names it.
    """

    root: str | os.PathLike[str] = attrs.field(validator=file_path)
    compression: str = attrs.field(default="zstd", kw_only=True)

    is_log = True

    def __str__(self) -> str:
        return f"Parquet {os.fspath(self.root)}"

    def table_target(self, name: str) -> parquet.ParquetTableTarget:
        return parquet.ParquetTableTarget(_below(self.root, name), self.compression)

    @contextmanager
    def begin(self, stream: str) -> Iterator[LogWork]:
        yield _Files(self, "pipe_" + re.sub(r"[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):x}_", stream))


def _below(root: str | os.PathLike[str], name: str) -> str:
    if not name or name.startswith(".") or "/" in name or "\\" in name or "\0" in name:
        raise ConfigError(f"{name!r} is not a directory name", remedy="Rename the table with canal.Rule(to=…).")
    return f"{os.fspath(root).rstrip('/')}/{name}"


def _without_query(root: str | os.PathLike[str]) -> str:
    """Return the root without the query of a URL, which may be a signature."""
    return os.fspath(root).partition("?")[0]


# -- writers -------------------------------------------------------------------------------------------------------------


def _text(work: tables.TableWork, what: str) -> str | None:
    """Return the text of the pipe's progress, without the commit number of the table."""
    if work.progress is None:
        return None
    if work.progress.position == UNKNOWN:
        raise TargetError(
            f"the history of {what} lacks the commit with the progress",
            remedy="Drop the table and load it again. Let only upkeep= remove history.",
        )
    return attrs.evolve(work.progress, table=None).to_text()


def _next(work: tables.TableWork, text: str) -> Progress:
    """Return the progress to store: the pipe's progress, with the number of the commit."""
    last = None if work.progress is None else work.progress.table
    return attrs.evolve(Progress.from_text(text), table=TableProgress(1 if last is None else last.txn + 1, 0))


class _Rows(StateWork):
    arrow_from = 1

    def __init__(self, target: Any, stream: str) -> None:
        super().__init__()
        self._target, self._stream = target, stream
        self._commits: defaultdict[str, CommitCounter] = defaultdict(CommitCounter)

    def load(self, table: str) -> str | None:
        with self._target.table_target(table).begin(self._stream, ()) as work:
            return _text(work, table)

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        (state,) = made or (TableState(Table(table, table)),)
        target = self._target.table_target(table)
        with target.begin(self._stream, state.table.keys) as work:
            if _text(work, table) != old:
                raise conflict()
            if work.schema is None and not state.table.columns:
                return  # the table was emptied before its first row
            schema, added = self._columns(work, state.table)
            upserts, deletes = _columns(state) or _rows(state)
            upserts = fit(upserts, schema)
            deletes = fit(deletes, pa.schema([schema.field(name) for name in deletes.column_names]))
            work.write(upserts, deletes, _next(work, new), added=added, replace=state.is_emptied)
        self._commits[table].committed(target, self._stream, table)

    def _columns(self, work: tables.TableWork, table: Table) -> tuple[pa.Schema, list[pa.Field]]:
        """Return the target's columns after the commit, and the new or changed columns."""
        own = [pa.field(column.name, _type(column)) for column in table.columns]
        if work.schema is None:
            return pa.schema(own), own
        wider = {field.name: kind for field in own if (kind := self._widened(work.schema, field, table.name)) is not None}
        schema, added = extended(work.schema, own, wider)
        if added and self._target.schema == "refuse":
            raise TargetSchemaError(
                f"the table {table.name} lacks columns, or has them narrower, {', '.join(field.name for field in added)}",
                remedy='Alter it like the source, or use schema="add" in the target.',
            )
        return schema, added

    @staticmethod
    def _widened(schema: pa.Schema, field: pa.Field, name: str) -> pa.DataType | None:
        """Return the type that a column must get, or None if its type holds all values."""
        if field.name not in schema.names or schema.field(field.name).type == field.type:
            return None
        kind = schema.field(field.name).type
        wanted = common(field.type, kind)
        if wanted is None:
            raise TargetSchemaError(
                f"the column {field.name} of {name} is {kind}, which cannot hold {field.type}",
                remedy="Alter the target's column.",
            )
        return None if wanted == kind else wanted

    def is_empty(self, table: Table) -> bool:
        with self._target.table_target(table.name).begin(self._stream, table.keys) as work:
            return work.schema is None or work.is_empty()

    def read(self, table: Table, keys: Sequence[Key]) -> Mapping[Key, Values]:
        with self._target.table_target(table.name).begin(self._stream, table.keys) as work:
            if work.schema is None:
                return {}
            fields = [work.schema.field(name) for name in table.keys]
            columns = [_array(values, field.type) for values, field in zip(zip(*keys), fields)]
            wanted = pa.table(columns, schema=pa.schema(fields))
            asked = dict(zip(map(tuple, (row.values() for row in wanted.to_pylist())), keys))
            rows = work.read(wanted).to_pylist()
        return {
            asked[tuple(row[name] for name in table.keys)]: tuple(row.get(name) for name in table.names.names) for row in rows
        }


class _Files(LogWork):
    def __init__(self, target: ParquetTarget, stream: str) -> None:
        super().__init__()
        self._target, self._stream = target, stream

    def load(self, table: str) -> str | None:
        with self._target.table_target(table).begin(self._stream, ()) as work:
            return _text(work, table)

    def write(self, made: Sequence[Change], old: str | None, new: str, table: str) -> None:
        with self._target.table_target(table).begin(self._stream, ()) as work:
            if _text(work, table) != old:
                raise conflict()
            rows = _envelopes(made) if made else pa.table({})
            if rows.num_columns or work.progress is not None:
                work.write(rows, pa.table({}), _next(work, new), added=[], replace=False)


def _envelopes(changes: Sequence[Change]) -> pa.Table:
    """Return the changes as rows, with the columns of the last change, then columns of earlier changes only."""
    shapes = {id(change.table): change.table for change in changes if change.table.columns}
    columns = {column.name: column for table in shapes.values() for column in table.columns}
    heads = {
        "_id": [change.id for change in changes],
        "_op": [change.op.name for change in changes],
        "_ts": [change.origin.ts for change in changes],
        "_position": [change.origin.position for change in changes],
        "_sql": [change.sql or None for change in changes],
    }
    arrays = {name: pa.array(values, pa.int64() if name == "_ts" else pa.string()) for name, values in heads.items()}
    for side in ("before", "after") if columns else ():
        rows = [getattr(change, side) for change in changes]
        kinds = [pa.field(name, _type(column)) for name, column in columns.items()]
        inner = [_of_changes(changes, [None if row is None else row.get(field.name) for row in rows], field) for field in kinds]
        missing = pa.array([row is None for row in rows])
        arrays[f"_{side}"] = pa.StructArray.from_arrays(inner, fields=kinds, mask=missing)
    return pa.table(arrays)


def _of_changes(changes: Sequence[Change], values: Sequence[Any], field: pa.Field) -> pa.Array:
    try:
        return _array(values, field.type)
    except _REFUSED + (ValueError,):
        bad = tuple(change for change, value in zip(changes, values) if not _holds(value, field.type))
        raise _unfit(field.name, bad) from None


# -- values --------------------------------------------------------------------------------------------------------------


def _type(column: ColumnSchema) -> pa.DataType:
    kind = spark_arrow_type(column)
    return pa.int64() if pa.types.is_duration(kind) else kind


def _columns(state: TableState) -> tuple[pa.Table, pa.Table] | None:
    """Return the rows to put and the keys to remove, from the state's columns. Return None if they are not exact."""
    found = state.arrow
    if found is None or any(pa.types.is_floating(field.type) for field in found.deletes.schema):  # 0.0 equals -0.0
        return None
    kinds = {column.name: _type(column) for column in state.table.columns}
    try:
        upserts, deletes = (
            pa.table({name: _cast(column, kinds[name]) for name, column in zip(one.column_names, one.columns)})
            for one in (found.upserts, found.deletes)
        )
    except pa.ArrowInvalid:  # the row way reports the value
        return None
    return upserts, matching(deletes, upserts.select(deletes.column_names), others=True) if deletes.num_rows else deletes


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_decimal256(column.type) and pa.types.is_string(kind):  # Arrow writes small values with an exponent
        return _array(column.to_pylist(), kind)
    return column if column.type == kind else column.cast(kind)


def _rows(state: TableState) -> tuple[pa.Table, pa.Table]:
    """Return the rows to put and the keys to remove, from the state's rows."""
    columns = {column.name: column for column in state.table.columns}
    keys = [columns[name] for name in state.table.keys if name in columns]
    return _arrow(state, state.upserts, state.table.columns), _arrow(state, state.deletes, keys)


def _arrow(state: TableState, rows: Sequence[Sequence[Any]], columns: Sequence[ColumnSchema]) -> pa.Table:
    """Return rows with these columns in Arrow.

    Raises:
        UnfitChangeError: a column's type does not hold a value.
    """
    arrays, fields = [], [pa.field(column.name, _type(column)) for column in columns]
    unfit: list[tuple[str, Change]] = []
    for at, field in enumerate(fields):
        values = [row[at] for row in rows]
        try:
            arrays.append(_array(values, field.type))
        except _REFUSED + (ValueError,):
            keys = [state.table.names.index(name) for name in state.table.keys]
            bad = [tuple(row[key] for key in keys) for row, value in zip(rows, values) if not _holds(value, field.type)]
            unfit += [(field.name, change) for key in bad for change in state.of_key(key)]
    if unfit:
        raise _unfit(unfit[0][0], tuple({id(change): change for _, change in unfit}.values()))
    return pa.table(arrays, schema=pa.schema(fields))


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    adapted = [_ADAPTERS[type(value)](value) if type(value) in _ADAPTERS else value for value in values]
    if pa.types.is_decimal(kind):
        adapted = [Decimal(value) if isinstance(value, int) else value for value in adapted]
    elif pa.types.is_string(kind):
        adapted = [format(value, "f") if isinstance(value, Decimal) else value for value in adapted]
    return pa.array(adapted, kind)


def _holds(value: Any, kind: pa.DataType) -> bool:
    """Return whether Arrow accepts a value. It never accepts ``ABSENT``."""
    try:
        _array([value], kind)
        return True
    except _REFUSED + (ValueError,):
        return False


def _unfit(name: str, changes: tuple[Change, ...]) -> UnfitChangeError:
    first = changes[0] if changes else None
    table = first.table.name if first else "a table"
    return UnfitChangeError(
        f"the column {name} of {table} has no value, or a value that its Arrow type does not hold",
        position=first.origin.position if first else None,
        changes=changes,
        remedy="Change the value with a rule, park it with on_unfit, or set binlog_row_image=FULL at the source.",
    )
