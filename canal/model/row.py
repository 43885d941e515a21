"""Rows: their values by name, before and after a change. Compiled if a C compiler was present at install time."""

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

#: Whether threads run at the same time here.
_IS_FREE = not getattr(sys, "_is_gil_enabled", lambda: True)()


@cython.no_gc
@cython.freelist(512)
@cython.cclass
class Row:
    """The values of one row, by name or by index: it behaves like ``sqlite3.Row``, but ``"id" in row`` asks for a column.

    Names are compared without regard to case, as the server does. A column that the row image does not hold
    (``binlog_row_image`` MINIMAL or NOBLOB) has the value ``ABSENT``.
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
        """Whether the table has a column of that name."""
        return isinstance(name, str) and self._names.find(name) >= 0

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a column, or ``default`` when the table has no such column."""
        index = self._names.find(name)
        return default if index < 0 else self._values[index]

    def keys(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._names.names)

    def values(self) -> tuple[Any, ...]:
        """The values of the columns, in order."""
        return self._values

    @property
    def key(self) -> tuple[Any, ...] | None:
        """Values of the primary key, in the order of the table. None where the table has none, or not all of it is delivered
        or logged."""
        return self._key_over(None)

    def _key_over(self, former: Row | None) -> tuple[Any, ...] | None:
        """As ``key``, with the values that this image of an updated row lacks from the image before the update."""
        from canal.rows.values import ABSENT

        numbers = self._names.key
        key = tuple([self._values[number] for number in numbers])
        if former is not None and any(value is ABSENT for value in key):
            values = former.values()
            key = tuple([values[number] if self._values[number] is ABSENT else self._values[number] for number in numbers])
        return None if not numbers or any(value is ABSENT for value in key) else key

    def as_dict(self) -> dict[str, Any]:
        """Values by name, in order."""
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
    """The names of a table's columns in order, with a look-up that ignores case; ``key`` has the numbers of those that tell its
    rows apart. Shared by all rows of a table."""

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
    """The names of delivered columns, of those that a table shows; without a key where not all of it is among them."""
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
        """As ``Row.key``, of the row as it is; of a deleted one as it was.

        What a MINIMAL image after an update leaves out of the key is in the image before it.
        """
        if self.after is None:
            return None if self.before is None else self.before.key
        return self.after._key_over(self.before)

    def __iter__(self) -> Iterator[Row | None]:
        return iter((self.before, self.after))

    def __repr__(self) -> str:
        return f"ChangedRow(before={self.before!r}, after={self.after!r})"


def changed_rows(before: list[Any] | None, after: list[Any] | None, names: ColumnNames) -> list[ChangedRow]:
    """Pair the values before and after each change. One of the two lists becomes the result."""
    rows: Any = before if after is None else after  # each row replaces its values
    if _IS_FREE and len(rows) > 8:  # or the count of its references passes from core to core with each row
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
    """canal's form of one changed row: lists of ``Column``."""

    __slots__ = ("before_columns", "after_columns")

    def __init__(self, before_columns: list[Column], after_columns: list[Column]) -> None:
        self.before_columns = before_columns
        self.after_columns = after_columns

    def __repr__(self) -> str:
        return f"RowData(before_columns={self.before_columns!r}, after_columns={self.after_columns!r})"
