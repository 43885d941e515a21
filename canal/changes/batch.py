"""The changes of consecutive log entries with two views: rows, and columns per table.

Row images are decoded when a view needs them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, overload

from canal.changes.change import Change, Table
from canal.errors import CanalError
from canal.model import Entry

if TYPE_CHECKING:
    from canal.changes.fold import ArrowChanges, ArrowState

#: Consecutive changes in the log, decoded or not.
Part: TypeAlias = "Sequence[Change]"
Read: TypeAlias = "Callable[[Entry, Table, TableRoute | None], Sequence[Change]]"
#: Converts entries of a table to columns, with these columns before an update. None if the columns would not be exact.
Decode: TypeAlias = "Callable[[Table, Sequence[Entry], Sequence[str]], ArrowChanges | None]"


class _Sequence(Sequence[Change], ABC):
    """A sequence over ``rows``."""

    __slots__ = ()

    @property
    @abstractmethod
    def rows(self) -> Sequence[Change]:
        """The changes as rows."""

    @overload
    def __getitem__(self, index: int) -> Change: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Change]: ...
    def __getitem__(self, index: int | slice) -> Change | Sequence[Change]:
        return self.rows[index]

    def __iter__(self) -> Iterator[Change]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class TableRoute(Protocol):
    """The mapping of a source table to a target table, if it is the same for all rows."""

    table: Table
    """The table in the target."""

    keys: Sequence[str]
    """The source columns of the key."""

    slots: Sequence[int | None] | None
    """The source column of each target column by number, or None for a constant. None if only rows can be mapped."""

    constants: Sequence[Any]
    """The value of each constant column."""

    def apply(self, change: Change) -> Iterable[Change]:
        """Return the changes for the target."""

    def columns(self, changes: ArrowChanges) -> ArrowChanges | None:
        """Return the changes with the columns of the target's table, or None if columns cannot represent the values."""


class EntryRows(_Sequence):
    """The changes of a row entry.

    Args:
        entry: the entry, not decoded.
        source: the table in the source.
        read: decodes the entry's rows and applies the route.
        route: the mapping to the target's table. None: the table is unchanged.
    """

    __slots__ = ("_made", "_read", "encoded", "entry", "route", "source", "table")

    def __init__(self, entry: Entry, source: Table, read: Read, route: TableRoute | None = None) -> None:
        self.entry = entry
        self.source = source
        self.table = source if route is None else route.table
        self.route = route
        self._read = read
        self._made: Sequence[Change] | None = None
        #: The changes as encoded for a log target, or None if only the rows can be encoded.
        self.encoded: Any = None

    @property
    def rows(self) -> Sequence[Change]:
        if self._made is None:
            self._made = self._read(self.entry, self.source, self.route)
        return self._made

    def __len__(self) -> int:
        selected = self.entry.selected
        return self.entry.row_count if selected is None else len(selected)


class ChangeBatch:
    """The changes of a target table in log order.

    Args:
        parts: the changes.
        arrow: returns the changes as columns. None: they have no columns.
    """

    def __init__(self, parts: Sequence[Part], arrow: Callable[[], ArrowChanges | None] | None = None) -> None:
        self.parts = parts
        self._arrow = arrow

    @cached_property
    def changes(self) -> Sequence[Change]:
        """The changes as rows."""
        return _flat(self.parts)

    @cached_property
    def tables(self) -> list[Table]:
        """The tables of the changes, each once: several if columns change, or tables are merged."""
        found: dict[Table, None] = {}
        for part in self.parts:
            found |= dict.fromkeys([part.table] if isinstance(part, EntryRows) else [change.table for change in part])
        return list(found)

    @property
    def name(self) -> str:
        """The name of the table in the target."""
        return self.tables[0].name

    @cached_property
    def arrow(self) -> ArrowChanges | None:
        """The changes as columns, or None if columns would not be exact or the table has no key.

        Four things have no columns: partial row images, values outside the column's Arrow type, statements, and results of a
        rule's callable.
        """
        try:
            return None if self._arrow is None else self._arrow()
        except (ImportError, CanalError):  # decoding the rows raises the error with its position
            return None

    @cached_property
    def state(self) -> ArrowState | None:
        """The latest row per key as columns, or None if the changes have no columns."""
        if self.arrow is None:
            return None
        from canal.changes.fold import fold

        return fold(self.arrow)

    def __len__(self) -> int:
        return sum(map(len, self.parts))


class Changes(_Sequence):
    """A sequence of ``Change`` in log order, and a batch for each table.

    Args:
        parts: the changes, usually a part per entry.
        decode: converts entries to columns. None: no table has columns.
        least: a table with fewer changes has no columns.
        starts: the number of changes before each entry, if all entries share a part. None: each entry has a separate part.
    """

    def __init__(
        self, parts: Iterable[Part], decode: Decode | None = None, least: int = 0, starts: Sequence[int] | None = None
    ) -> None:
        self.parts = list(parts)
        self._decode = decode
        self._least = least
        self._starts = starts

    @cached_property
    def rows(self) -> Sequence[Change]:
        return _flat(self.parts)

    @cached_property
    def tables(self) -> list[ChangeBatch]:
        """The changes by target table, in the order of their first change."""
        found: dict[tuple[str, ...], list[Part]] = {}
        for part in self.parts:
            if isinstance(part, EntryRows):
                found.setdefault(part.table.path, []).append(part)
            else:
                _sort(part, found)
        return [ChangeBatch(parts, self._columns(parts)) for parts in found.values()]

    def after(self, number: int) -> Changes:
        """Return the changes after this number of entries."""
        if self._starts is None:
            return Changes(self.parts[number:], self._decode, self._least)
        return Changes([self.rows[self._starts[number] :] if number < len(self._starts) else []])

    def of(self, name: str) -> Changes:
        """Return the changes of a target table by name."""
        batches = [batch for batch in self.tables if batch.name == name]
        made = Changes([part for batch in batches for part in batch.parts], self._decode, self._least)
        made.tables = batches  # keep decoded rows
        return made

    def without(self, changes: Iterable[Change]) -> Changes:
        """Return the changes except these."""
        gone = {id(change) for change in changes}
        return Changes([[change for change in self.rows if id(change) not in gone]])

    def __add__(self, other: Changes) -> Changes:
        return Changes([*self.parts, *other.parts], self._decode, self._least)

    def _columns(self, parts: Sequence[Part]) -> Callable[[], ArrowChanges | None] | None:
        """Return a function that converts a table's changes to columns, or None if a part has no columns."""
        rows, decode = [part for part in parts if isinstance(part, EntryRows)], self._decode
        if decode is None or len(rows) < len(parts) or sum(map(len, rows)) < max(self._least, 1):
            return None
        tables = list(dict.fromkeys([one.table for one in rows]))
        if not tables[0].keys or any(one.names.names != tables[0].names.names for one in tables):
            return None
        if len(tables) > 1 and len({one.merge for one in tables if one.merge}) < len(tables):
            return None  # versions of a table, in which equal keys may have different types
        return lambda: _joined(rows, tables, decode)

    def __len__(self) -> int:
        return sum(map(len, self.parts))


def _joined(rows: Sequence[EntryRows], tables: Sequence[Table], decode: Decode) -> ArrowChanges | None:
    """Return the changes of these tables as columns, in the order of the log."""
    made: list[tuple[ArrowChanges, Sequence[int]]] = []
    for table in tables:
        numbers = range(len(rows)) if len(tables) == 1 else [at for at, one in enumerate(rows) if one.table is table]
        first = rows[numbers[0]]
        keys = table.keys if first.route is None else first.route.keys
        found = decode(first.source, [rows[at].entry for at in numbers], keys)
        if found is not None and first.route is not None:
            found = first.route.columns(found)
        if found is None:
            return None
        made.append((found, numbers))
    if len(made) == 1:
        return made[0][0]
    from canal.changes.fold import join

    return join(made)


def _flat(parts: Sequence[Part]) -> Sequence[Change]:
    """Concatenate the parts."""
    if len(parts) == 1:
        return parts[0]
    return list(chain.from_iterable(parts))


def _sort(changes: Iterable[Change], found: dict[tuple[str, ...], list[Part]]) -> None:
    """Add changes to the parts of their tables. Consecutive changes of a table share a part."""
    own: dict[tuple[str, ...], list[Change]] = {}
    last, some = None, list[Change]()
    for change in changes:
        if (table := change.table) is not last:
            last = table
            if (known := own.get(table.path)) is None:
                known = own[table.path] = []
                found.setdefault(table.path, []).append(known)
            some = known
        some.append(change)
