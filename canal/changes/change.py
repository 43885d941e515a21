"""A change of a row: the row before and after the change, with the table, the key and the position in the log."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Self

import attrs

from canal.errors import StateError
from canal.model import ColumnNames, Entry, EventType, Row
from canal.position import Position
from canal.rows.values import ABSENT
from canal.schema import ColumnSchema, column_from_text

#: Column types of values that a transform adds.
_TYPES: Final[tuple[tuple[type, str], ...]] = (
    (bool, "bigint"),
    (int, "bigint"),
    (float, "double"),
    (Decimal, "decimal(65,30)"),
    (datetime, "datetime(6)"),
    (date, "date"),
    (timedelta, "time(6)"),
    (bytes, "longblob"),
)


class Op(enum.StrEnum):
    """The operation of a change. The names are those of :class:`canal.EventType`, except ``READ``."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    READ = "read"
    """An existing row of an initial load. ``after`` is the row, ``before`` is None."""
    TRUNCATE = "truncate"
    CREATE = "create"
    ALTER = "alter"
    ERASE = "erase"
    """DROP TABLE, and DROP DATABASE."""
    RENAME = "rename"
    CINDEX = "cindex"
    DINDEX = "dindex"
    QUERY = "query"
    """Another statement, or a statement that was not understood."""

    @property
    def is_row(self) -> bool:
        """Whether the operation changes a row. Otherwise it is a statement."""
        return self in ROW_OPS


#: The operations on rows.
ROW_OPS: Final = frozenset((Op.INSERT, Op.UPDATE, Op.DELETE, Op.READ))
_OPS: Final = {event_type: Op[event_type.name] for event_type in EventType if event_type.name in Op.__members__}


def op_of(event_type: EventType) -> Op:
    """Return the operation of an entry with rows or a statement."""
    return _OPS.get(event_type, Op.QUERY)


@attrs.define(eq=False)
class Table:
    """A table as a target sees it. Changes share a Table object until the columns change."""

    name: str
    """The name in the target: ``schema.table`` of the source, or the name from a rule."""

    source: str
    """``schema.table`` of the source."""

    columns: tuple[ColumnSchema, ...] = ()
    """The columns of the rows, in order. Empty if only statements named the table."""

    keys: tuple[str, ...] = ()
    """The names of the key columns: the primary key, or the keys from a rule."""

    database: str = attrs.field(default="", kw_only=True, repr=False)
    """The database in the source, which may contain dots. Default: the part of ``source`` before the first dot."""

    path: tuple[str, ...] = attrs.field(default=(), kw_only=True, repr=False)
    """The parts of ``name``: schema and table, or the table alone. Default: those of the source, or ``name`` split at a dot."""

    merge: tuple[str, Any] | None = attrs.field(default=None, kw_only=True)
    """For a table that is merged with others: the discriminator column, and the value of this table's rows."""

    computed: frozenset[str] = attrs.field(default=frozenset(), kw_only=True, repr=False)
    """The columns that a rule added, which no row image contains."""

    names: ColumnNames = attrs.field(init=False, repr=False)
    _fitted: dict[Any, Table] = attrs.field(factory=dict, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.database = self.database or self.source.partition(".")[0]
        if ".".join(self.path) != self.name:  # also after evolve(name=…)
            self.path = self.origin if self.name == self.source and self.own_name else split(self.name)
        self.names = ColumnNames(tuple(column.name for column in self.columns))

    @property
    def own_name(self) -> str:
        """The name in the source without the database, or "" for a statement that names no table."""
        return self.source[len(self.database) + 1 :]

    @property
    def origin(self) -> tuple[str, str]:
        """The database and the name in the source."""
        return self.database, self.own_name

    def __str__(self) -> str:
        return self.name

    def row(self, values: Mapping[str, Any]) -> Row:
        """Return a row with these values, and NULL in all other columns."""
        return Row(tuple(values.get(name) for name in self.names.names), self.names)

    def fitting(self, *rows: Mapping[str, Any]) -> Table:
        """Return the table with the columns of these rows, or this table if the columns are equal."""
        wanted = tuple(dict.fromkeys(name for row in rows for name in row))
        if not wanted or wanted == self.names.names:
            return self
        known = {column.name: column for column in self.columns}
        found = tuple([known.get(name) or _column(name, [row.get(name) for row in rows]) for name in wanted])
        shape = wanted, tuple([column.column_type for column in found if column.name not in known])
        if shape not in self._fitted:  # the same object for the same columns
            keys = self.keys if set(self.keys) <= set(wanted) else ()
            computed = self.computed | (set(wanted) - set(known))
            self._fitted[shape] = attrs.evolve(self, columns=found, keys=keys, computed=computed)
        return self._fitted[shape]


def split(name: str) -> tuple[str, ...]:
    """Split a table's name at the last dot into schema and table."""
    schema, _, table = name.rpartition(".")
    return (schema, table) if schema else (name,)


def qualified(schema: str, table: str) -> str:
    """Return ``schema.table``, with backticks around parts that contain a dot or a backtick, so that the text is unique."""
    return ".".join("`" + part.replace("`", "``") + "`" if set(part) & set(".`") else part for part in (schema, table))


def _column(name: str, values: list[Any]) -> ColumnSchema:
    value = next((value for value in values if value is not None), "")
    kind = next((text for kind, text in _TYPES if isinstance(value, kind)), "longtext")
    return column_from_text(name, kind, charset="utf8mb4")


@attrs.define(eq=False)
class Origin:
    """The origin of changes, shared by the changes of an entry."""

    transaction: str
    """The GTID of the transaction, or its ``journal:offset``."""

    position: str
    """``journal:offset`` of the event."""

    ts: int
    """Time of the event in milliseconds since 1970 (the source writes whole seconds)."""

    gtid: str = ""
    """GTID of the transaction, or "" if the source writes no GTIDs."""

    server_id: int = 0
    """The server that executed the change first."""

    thread_id: int = 0
    """The id of the client connection, or 0 if it is not in the log."""

    xid: int = 0
    """The transaction's number in the log, or 0."""

    first: int = 0
    """``ord`` of the first row of the event."""

    rows: int = 0
    """The number of rows of the transaction before any filter, or 0 if the end of the transaction has not arrived."""

    is_ddl: bool = False
    """Whether the entry is a statement that changes a schema."""

    entry: Entry | None = attrs.field(default=None, repr=False)
    """The Instance's entry with the changes, or None for changes from elsewhere."""


@attrs.define(eq=False)
class Change:
    """A row that was inserted, updated, deleted or read, or a statement such as TRUNCATE.

    A value in ``before`` or ``after`` is ``canal.ABSENT`` if the row image lacks the column.
    """

    table: Table
    op: Op
    """The operation. It equals its text: ``change.op == "insert"``."""

    before: Row | None
    """The row before the change. None for an insert, a row of a snapshot and a statement."""

    after: Row | None
    """The row after the change. None for a delete and a statement."""

    origin: Origin
    ord: int
    """The number of the row change within the transaction, before any filter."""

    part: int = 0
    """The number among several changes that a transform made from a single change."""

    sql: str = ""
    """The text of a statement."""

    error: str = ""
    """The reason why the change was parked."""

    statement: int | None = None
    """For a statement: the number among the entries of the transaction. None for a row."""

    @property
    def id(self) -> str:
        """An id to drop repeats by: the same for each delivery of the change, with GTIDs even from another server."""
        number = self.ord if self.statement is None else f"s{self.statement}"
        return f"{self.origin.transaction}/{number}{f'.{self.part}' if self.part else ''}"

    @property
    def row(self) -> Row:
        """The row after the change, or before a delete."""
        row = self.after if self.after is not None else self.before
        assert row is not None
        return row

    @property
    def key(self) -> tuple[Any, ...] | None:
        """The values of the key columns, in the order of ``table.keys``: after the change, or before a delete.

        None for a statement, and if the table has no key or the log lacks a part of the key.
        """
        if self.after is None:
            return self.old_key
        key = self.key_of(self.after)
        if ABSENT in key and self.before is not None:  # columns that a MINIMAL image omits did not change
            key = tuple([old if new is ABSENT else new for new, old in zip(key, self.key_of(self.before))])
        return key if key and ABSENT not in key else None

    @property
    def old_key(self) -> tuple[Any, ...] | None:
        """Like ``key``, but before the change. It differs from ``key`` if an update changed the key. None for an insert."""
        key = () if self.before is None else self.key_of(self.before)
        return key if key and ABSENT not in key else None

    def key_of(self, row: Row) -> tuple[Any, ...]:
        """Return the values of the key columns in a row of the table."""
        return tuple([row[name] for name in self.table.keys])

    @property
    def entry(self) -> Entry:
        """The Instance's entry with the change. ``entry.header`` has the time and the GTID."""
        if self.origin.entry is None:
            raise StateError("the change is of no entry of an Instance")
        return self.origin.entry

    @property
    def position(self) -> Position:
        """The position to resume from after this change."""
        return self.entry.position_at(self.ord + 1) if self.statement is None else self.entry.position

    def evolve(self, *, before: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None, **fields: Any) -> Self:
        """Return a copy with other rows or other fields.

        A new row must be complete and may have any columns. ``evolve(after={**change.after.as_dict(), "price": 1})`` changes a
        single column. ``op`` does not change, so a row that is None remains None.
        """
        rows = [row for row in (before, after) if row is not None]
        if not rows:
            return attrs.evolve(self, **fields)
        old, new = (_mapping(given, own) for given, own in ((before, self.before), (after, self.after)))
        table = fields.pop("table", self.table).fitting(*(row for row in (new, old) if row is not None))
        return attrs.evolve(
            self,
            table=table,
            before=None if old is None else table.row(old),
            after=None if new is None else table.row(new),
            **fields,
        )


def _mapping(given: Mapping[str, Any] | None, own: Row | None) -> Mapping[str, Any] | None:
    return None if own is None else own.as_dict() if given is None else given
