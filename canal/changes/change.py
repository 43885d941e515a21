"""One change as a target is given it: a row before and after, its table and keys, and where in the log it stands.

Never decodes or writes anything.
"""

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

#: The column type of a value that no table of the source has, such as a transform may add.
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
    """What a change does. The names are those of :class:`canal.EventType`, but for ``READ``."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    READ = "read"
    """A row that was there before its changes were followed: ``after`` is the row, ``before`` is None."""
    TRUNCATE = "truncate"
    CREATE = "create"
    ALTER = "alter"
    ERASE = "erase"
    """DROP TABLE, and DROP DATABASE."""
    RENAME = "rename"
    CINDEX = "cindex"
    DINDEX = "dindex"
    QUERY = "query"
    """Another statement, or one that is not understood."""

    @property
    def is_row(self) -> bool:
        """Whether it is a change of a row; else it is a statement."""
        return self in ROW_OPS


#: What changes a row.
ROW_OPS: Final = frozenset((Op.INSERT, Op.UPDATE, Op.DELETE, Op.READ))
_OPS: Final = {event_type: Op[event_type.name] for event_type in EventType if event_type.name in Op.__members__}


def op_of(event_type: EventType) -> Op:
    """The operation of an entry with rows or a statement."""
    return _OPS.get(event_type, Op.QUERY)


@attrs.define(eq=False)
class Table:
    """A table as a target sees it; all changes of it share one object until its columns change."""

    name: str
    """What the target calls it: ``schema.table`` of the source, or what a rule says."""

    source: str
    """``schema.table`` of the source."""

    columns: tuple[ColumnSchema, ...] = ()
    """Those that its rows have, in their order; () where only a statement named it."""

    keys: tuple[str, ...] = ()
    """Names of the columns that tell its rows apart: the primary key, or what a rule says."""

    database: str = attrs.field(default="", kw_only=True, repr=False)
    """Its database at the source, whose name may have dots. Without it: what stands before the first dot of ``source``."""

    path: tuple[str, ...] = attrs.field(default=(), kw_only=True, repr=False)
    """``name`` apart: schema and table, or the table alone. Without it: that of the source, or ``name`` split at its last dot."""

    merge: tuple[str, Any] | None = attrs.field(default=None, kw_only=True)
    """Of a table that shares the target's with others: the column that tells them apart, and its value in this table's rows."""

    computed: frozenset[str] = attrs.field(default=frozenset(), kw_only=True, repr=False)
    """The columns that a rule added, which no row image of the source has."""

    names: ColumnNames = attrs.field(init=False, repr=False)
    _fitted: dict[Any, Table] = attrs.field(factory=dict, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.database = self.database or self.source.partition(".")[0]
        if ".".join(self.path) != self.name:  # also of a table that was given another name
            self.path = self.origin if self.name == self.source and self.own_name else split(self.name)
        self.names = ColumnNames(tuple(column.name for column in self.columns))

    @property
    def own_name(self) -> str:
        """Its name at the source without the database; "" of a statement that names no table."""
        return self.source[len(self.database) + 1 :]

    @property
    def origin(self) -> tuple[str, str]:
        """Its database and its own name at the source."""
        return self.database, self.own_name

    def __str__(self) -> str:
        return self.name

    def row(self, values: Mapping[str, Any]) -> Row:
        """A row of these values; columns that are not among them are NULL."""
        return Row(tuple(values.get(name) for name in self.names.names), self.names)

    def fitting(self, *rows: Mapping[str, Any]) -> Table:
        """This table with the columns that the rows have, which is itself where they are the same."""
        wanted = tuple(dict.fromkeys(name for row in rows for name in row))
        if not wanted or wanted == self.names.names:
            return self
        known = {column.name: column for column in self.columns}
        found = tuple([known.get(name) or _column(name, [row.get(name) for row in rows]) for name in wanted])
        shape = wanted, tuple([column.column_type for column in found if column.name not in known])
        if shape not in self._fitted:  # one object for each set of columns
            keys = self.keys if set(self.keys) <= set(wanted) else ()
            computed = self.computed | (set(wanted) - set(known))
            self._fitted[shape] = attrs.evolve(self, columns=found, keys=keys, computed=computed)
        return self._fitted[shape]


def split(name: str) -> tuple[str, ...]:
    """A table's name that is given as one text: what is before the last dot is the schema."""
    schema, _, table = name.rpartition(".")
    return (schema, table) if schema else (name,)


def qualified(schema: str, table: str) -> str:
    """``schema.table``, and the parts within backticks where they have a dot or backtick: other parts give another text."""
    return ".".join("`" + part.replace("`", "``") + "`" if set(part) & set(".`") else part for part in (schema, table))


def _column(name: str, values: list[Any]) -> ColumnSchema:
    value = next((value for value in values if value is not None), "")
    kind = next((text for kind, text in _TYPES if isinstance(value, kind)), "longtext")
    return column_from_text(name, kind, charset="utf8mb4")


@attrs.define(eq=False)
class Origin:
    """Where changes come from; those of one entry share it."""

    transaction: str
    """GTID, or ``journal:offset`` of its transaction."""

    position: str
    """``journal:offset`` of the event."""

    ts: int
    """Time of the event in milliseconds since 1970 (the source writes whole seconds)."""

    gtid: str = ""
    """GTID of the transaction; "" where the source writes none."""

    server_id: int = 0
    """The server on which the change was first made."""

    thread_id: int = 0
    """The connection that made it; 0 where the log does not tell."""

    xid: int = 0
    """The transaction's number in the log; 0 where it has none."""

    first: int = 0
    """``ord`` of the first row of the event."""

    rows: int = 0
    """Rows of the transaction, before any filter; 0 where its end has not come yet."""

    is_ddl: bool = False
    """Whether it is a statement that changes a schema."""

    entry: Entry | None = attrs.field(default=None, repr=False)
    """The entry of the Instance that has the changes; None of changes that were made otherwise."""


@attrs.define(eq=False)
class Change:
    """A row that was inserted, updated, deleted or read; a table that was emptied; or another statement.

    Values of ``before`` and ``after`` are those of ``entry.rows``: ``canal.ABSENT`` where the row image does not hold a column.
    """

    table: Table
    op: Op
    """It equals its text: ``change.op == "insert"``."""

    before: Row | None
    """None for an insert and a row of a snapshot, and for what is no change of a row."""

    after: Row | None
    """None for a delete, and for what is no change of a row."""

    origin: Origin
    ord: int
    """Number of the row change within its transaction, before any filter."""

    part: int = 0
    """Which it is of several that a transform made of one."""

    sql: str = ""
    """Text of the statement, of what is no change of a row."""

    error: str = ""
    """Why it was parked."""

    statement: int | None = None
    """Of what is no change of a row: its number among the entries of its transaction."""

    @property
    def id(self) -> str:
        """The same whenever and wherever the change is given again (with GTIDs also from another server): to drop repeats by."""
        number = self.ord if self.statement is None else f"s{self.statement}"
        return f"{self.origin.transaction}/{number}{f'.{self.part}' if self.part else ''}"

    @property
    def row(self) -> Row:
        """The row after it, or of a delete the one before."""
        row = self.after if self.after is not None else self.before
        assert row is not None
        return row

    @property
    def key(self) -> tuple[Any, ...] | None:
        """Values of the key columns, in the order of ``table.keys``: of the row as it is, of a deleted one as it was.

        None of a statement, and where the table has no key or the log does not have all of it.
        """
        if self.after is None:
            return self.old_key
        key = self.key_of(self.after)
        if ABSENT in key and self.before is not None:  # what a MINIMAL image leaves out did not change
            key = tuple([old if new is ABSENT else new for new, old in zip(key, self.key_of(self.before))])
        return key if key and ABSENT not in key else None

    @property
    def old_key(self) -> tuple[Any, ...] | None:
        """As ``key``, of the row as it was: another key if an update has changed it. None of an insert."""
        key = () if self.before is None else self.key_of(self.before)
        return key if key and ABSENT not in key else None

    def key_of(self, row: Row) -> tuple[Any, ...]:
        """The values of the key columns in a row of the table."""
        return tuple([row[name] for name in self.table.keys])

    @property
    def entry(self) -> Entry:
        """The entry of the Instance that has the change; ``entry.header`` has its time and GTID."""
        if self.origin.entry is None:
            raise StateError("the change is of no entry of an Instance")
        return self.origin.entry

    @property
    def position(self) -> Position:
        """Where to resume when everything up to and including this change is done."""
        return self.entry.position_at(self.ord + 1) if self.statement is None else self.entry.position

    def evolve(self, *, before: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None, **fields: Any) -> Self:
        """This change with other rows or other fields; a row or field that is not given stays.

        A row that is given is the whole row, of any columns: ``evolve(after={**change.after.as_dict(), "price": 1})`` changes
        one of them.

        ``op`` stays what it was: a row that an insert lacks cannot be given to it.
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
