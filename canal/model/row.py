"""Rows before and after a change. Compiled if a C compiler was present at install time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canal._util import interpreted as cython
else:
    try:
        import cython
    except ModuleNotFoundError:
        from canal._util import interpreted as cython

if TYPE_CHECKING:
    from canal.formats.columns import Column

#: True in a free-threaded interpreter, where threads run in parallel.
_IS_FREE = not getattr(sys, "_is_gil_enabled", lambda: True)()


@cython.no_gc
@cython.freelist(512)
@cython.cclass
class Row:
    """A row with access by name or index, like ``sqlite3.Row``. Unlike there, ``"id" in row`` looks up a column.

    Names are case-insensitive, as in the server. A column that is missing from the row image (``binlog_row_image`` MINIMAL or
    NOBLOB) has the value ``ABSENT``.
    """

    __slots__ = ("_values", "_names")

    def __init__(self, values: tuple[Any, ...], names: ColumnNames) -> None:
        self._values = values
        self._names = names

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._values[self._names.index(key)]
        return self._values[key]

    def __contains__(self, name: object) -> bool:
        """Return whether the table has this column."""
        return isinstance(name, str) and self._names.find(name) >= 0

    def get(self, name: str, default: Any = None) -> Any:
        """Return a column's value, or ``default`` if the table has no such column."""
        index = self._names.find(name)
        return default if index < 0 else self._values[index]

    def keys(self) -> list[str]:
        """Return the column names in order."""
        return list(self._names.names)

    def values(self) -> tuple[Any, ...]:
        """Return the values in order."""
        return self._values

    @property
    def key(self) -> tuple[Any, ...] | None:
        """Primary key values in table order. None without a key, or if a key column is not delivered or not logged."""
        return self._key_over(None)

    def _key_over(self, former: Row | None) -> tuple[Any, ...] | None:
        """Return ``key``; use the image before the update for missing values."""
        from canal.rows.values import ABSENT

        numbers = self._names.key
        key = tuple([self._values[number] for number in numbers])
        if former is not None and any(value is ABSENT for value in key):
            values = former.values()
            key = tuple([values[number] if self._values[number] is ABSENT else self._values[number] for number in numbers])
        return None if not numbers or any(value is ABSENT for value in key) else key

    def as_dict(self) -> dict[str, Any]:
        """Return the values by name, in order."""
        return dict(zip(self._names.names, self._values))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Row):
            return self._values == other.values() and list(self._names.names) == other.keys()
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._values)

    def __repr__(self) -> str:
        return "Row(" + ", ".join(f"{n}={v!r}" for n, v in zip(self._names.names, self._values)) + ")"


class ColumnNames:
    """A table's column names, shared by all rows. Lookups ignore case; ``key`` has the key column indexes."""

    __slots__ = ("names", "key", "_index")

    def __init__(self, names: tuple[str, ...], key: tuple[int, ...] = ()) -> None:
        self.names = names
        self.key = key
        self._index = {}
        for number, name in enumerate(names):
            self._index[name] = number
            self._index.setdefault(name.lower(), number)

    def copy(self) -> ColumnNames:
        made = ColumnNames.__new__(ColumnNames)
        made.names, made.key, made._index = self.names, self.key, self._index
        return made

    def find(self, name: str) -> int:
        number = self._index.get(name)
        if number is None:
            number = self._index.get(name.lower(), -1)
        return number

    def index(self, name: str) -> int:
        number = self.find(name)
        if number < 0:
            raise KeyError(f"no column {name!r}; the table has {', '.join(self.names)}")
        return number


def column_names(columns: tuple[Any, ...], shown: tuple[Any, ...]) -> ColumnNames:
    """Return the delivered column names. The key is empty if a key column is not delivered."""
    key = tuple([number for number, column in enumerate(columns) if column.key])
    is_whole = len(key) == len([column for column in shown if column.key])
    return ColumnNames(tuple([column.name for column in columns]), key if is_whole else ())


@cython.no_gc
@cython.freelist(512)
@cython.cclass
class ChangedRow:
    """One changed row: ``before`` is None for an insert, ``after`` is None for a delete."""

    __slots__ = ("before", "after")

    def __init__(self, before: Row | None, after: Row | None) -> None:
        self.before = before
        self.after = after

    @property
    def key(self) -> tuple[Any, ...] | None:
        """Key after the change, or before it for a deleted row.

        With MINIMAL images, the before image supplies missing values.
        """
        if self.after is None:
            return None if self.before is None else self.before.key
        return self.after._key_over(self.before)

    def __iter__(self) -> Iterator[Row | None]:
        return iter((self.before, self.after))

    def __repr__(self) -> str:
        return f"ChangedRow(before={self.before!r}, after={self.after!r})"


def changed_rows(before: list[Any] | None, after: list[Any] | None, names: ColumnNames) -> list[ChangedRow]:
    """Pair the images before and after each change. Reuses an input list for the result."""
    rows: Any = before if after is None else after  # replaced in place, row by row
    if _IS_FREE and len(rows) > 8:  # avoid contention on one reference count
        names = names.copy()
    for i in range(len(rows)):
        row = ChangedRow.__new__(ChangedRow)
        row.before = None if before is None else _row(before[i], names)
        row.after = None if after is None else _row(after[i], names)
        rows[i] = row
    return rows


def _row(values: tuple[Any, ...], names: ColumnNames) -> Row:
    row = Row.__new__(Row)
    row._values = values
    row._names = names
    return row


class RowData:
    """One changed row in canal's form: lists of ``Column``."""

    __slots__ = ("before_columns", "after_columns")

    def __init__(self, before_columns: list[Column], after_columns: list[Column]) -> None:
        self.before_columns = before_columns
        self.after_columns = after_columns

    def __repr__(self) -> str:
        return f"RowData(before_columns={self.before_columns!r}, after_columns={self.after_columns!r})"
