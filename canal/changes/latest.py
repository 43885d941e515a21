"""The fold of changes to the latest row per key, or its absence."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from canal.changes.batch import ChangeBatch, Changes
from canal.changes.change import Change, Op, Table
from canal.changes.keys import KeyRules
from canal.errors import ConfigError, UnfitChangeError
from canal.model import Row
from canal.rows.values import ABSENT, PartialJson
from canal.schema import TYPE_CODES

if TYPE_CHECKING:
    from canal.changes.fold import ArrowState

#: Codes of the types that NOBLOB images omit if they did not change.
_LARGE: Final = frozenset(TYPE_CODES[name] for name in ("blob", "geometry", "json", "vector"))

Key: TypeAlias = tuple[Any, ...]
Values: TypeAlias = tuple[Any, ...]
#: Returns the existing rows of a table with these keys, by key.
Read = Callable[[Table, Sequence[Key]], Mapping[Key, Values]]


@attrs.define(eq=False)
class _Rows:
    """The changes to apply to a table, as rows."""

    is_emptied: bool = False
    emptied: list[tuple[str, Any]] = attrs.field(factory=list)
    rows: dict[Key, Values | None] = attrs.field(factory=dict)
    inserted: set[Key] = attrs.field(factory=set)
    replaced: set[Key] = attrs.field(factory=set)


class TableState:
    """The changes to apply to a table: empty it, delete ``deletes`` and ``replaced``, then put ``upserts``.

    There are two equivalent forms: ``arrow``, if the changes have columns, and rows. The rows are computed when first needed.
    """

    def __init__(self, table: Table, batch: ChangeBatch | None = None) -> None:
        self.table = table
        """The table with all columns of the changes, beginning with the columns of the last change."""

        self._batch = batch or ChangeBatch(())
        self._form: _Rows | None = None
        self._by_key: dict[Key, list[Change]] | None = None

    @property
    def arrow(self) -> ArrowState | None:
        """The state as columns, or None if the changes have no columns. A state with columns never empties the table."""
        return self._batch.state

    @property
    def changes(self) -> Sequence[Change]:
        """The changes before the fold."""
        return self._batch.changes

    @property
    def tables(self) -> Sequence[Table]:
        """The tables of the changes, each once."""
        return self._batch.tables

    @property
    def is_emptied(self) -> bool:
        """Whether to delete all existing rows."""
        return self.arrow is None and self._rows.is_emptied

    @property
    def emptied(self) -> list[tuple[str, Any]]:
        """For each emptied table that is merged with others: the discriminator column and the value of the rows to delete."""
        return [] if self.arrow is not None else self._rows.emptied

    @property
    def rows(self) -> dict[Key, Values | None]:
        """The complete row by key, or None if it is deleted, in the order of the last changes."""
        return self._rows.rows

    @property
    def inserted(self) -> set[Key]:
        """Keys of new rows. The target has no row with such a key, unless the key is in ``replaced``."""
        return self._rows.inserted

    @property
    def replaced(self) -> set[Key]:
        """Keys whose row was deleted and inserted again."""
        return self._rows.replaced

    @property
    def deletes(self) -> list[Key]:
        """Keys of the rows to delete."""
        return [key for key, row in self.rows.items() if row is None]

    @property
    def upserts(self) -> list[Values]:
        """Rows to insert or to replace by key."""
        return [row for row in self.rows.values() if row is not None]

    def of_key(self, key: Key) -> tuple[Change, ...]:
        """Return the changes of a key."""
        if self._by_key is None:
            self._by_key = {}
            written = _rules(self.table).written
            for change in self.changes:
                keys = [written(change.key_of(row)) for row in (change.before, change.after) if row is not None]
                for one in dict.fromkeys(keys):
                    self._by_key.setdefault(one, []).append(change)
        return tuple(self._by_key.get(key, ()))

    def fold(self, read: Read, not_carried: Any, unfit: list[UnfitChangeError]) -> None:
        """Compute the rows. Append changes without a known result to ``unfit``."""
        self._form = _Fold(self.table, self.changes, self.tables, not_carried, unfit).fold(read)

    @property
    def _rows(self) -> _Rows:
        if self._form is None:
            unfit: list[UnfitChangeError] = []
            self.fold(_nothing, None, unfit)  # complete row images need no read
            if unfit:
                raise together(unfit)
        assert self._form is not None
        return self._form


def _rules(table: Table) -> KeyRules:
    return KeyRules.of(table.columns, [table.names.index(name) for name in table.keys])


def _nothing(table: Table, keys: Sequence[Key]) -> Mapping[Key, Values]:
    return {}


def latest(changes: Iterable[Change], read: Read, *, keeps_columns: bool = False) -> list[TableState]:
    """Return the state of each changed table, in the order of their first changes.

    Args:
        changes: INSERT, UPDATE, DELETE and TRUNCATE, in log order.
        read: reads the rows that partial images change (binlog_row_image MINIMAL or NOBLOB).
        keeps_columns: whether the target can update some columns of a row. Columns that a change does not carry are then
            ``ABSENT`` and keep their values. Otherwise they become NULL.

    Raises:
        UnfitChangeError: the result is unknown, or the table has no key. ``changes`` lists all such changes.
    """
    unfit: list[UnfitChangeError] = []
    batches = (changes if isinstance(changes, Changes) else Changes([list(changes)])).tables
    made = [TableState(_union(batch.tables), batch) for batch in batches]
    for state in made:
        if state.arrow is None:
            state.fold(read, ABSENT if keeps_columns else None, unfit)
    if unfit:
        raise together(unfit)
    return made


def together(errors: Sequence[UnfitChangeError]) -> UnfitChangeError:
    """Combine errors of unfit changes into a single error with a reason for each change."""
    first = errors[0]
    if len(errors) == 1:
        return first
    reasons = {id(change): (change, error.message) for error in errors for change in error.changes}
    return UnfitChangeError(
        first.message,
        position=first.position,
        remedy=first.remedy,
        changes=tuple([one for one, _ in reasons.values()]),
        reasons=tuple([reason for _, reason in reasons.values()]),
    )


def _union(tables: Sequence[Table]) -> Table:
    """Return a table with the columns of all tables, beginning with the columns of the last table."""
    last = next((table for table in reversed(tables) if table.columns), tables[-1])
    if len(tables) == 1:
        return last
    for table in tables:
        if table.keys and last.keys and table.keys != last.keys:
            raise ConfigError(
                f"rows of {table.source} are told apart by {', '.join(table.keys)}, and those of {last.source}, which go into one"
                f" table with them, by {', '.join(last.keys)}",
                remedy="Name the same columns for both by canal.Rule(keys=…).",
            )
    columns = {column.name.lower(): column for table in (*tables, last) for column in table.columns}
    order = dict.fromkeys(column.name.lower() for table in (last, *reversed(tables)) for column in table.columns)
    return last if len(order) == len(last.columns) else attrs.evolve(last, columns=tuple([columns[name] for name in order]))


def _filled(row: Values, other: Values) -> Values:
    """Return the row with missing values from another row."""
    return tuple([old if new is ABSENT else new for old, new in zip(other, row)])


class _Fold:
    def __init__(
        self, table: Table, changes: Sequence[Change], tables: Sequence[Table], not_carried: Any, unfit: list[UnfitChangeError]
    ) -> None:
        self._table = table
        self._changes = changes
        self._state = _Rows()
        self._base: Mapping[Key, Values] = {}
        self._documents = [(column.name, at) for at, column in enumerate(table.columns) if column.base_type == "json"]
        self._not_carried = not_carried
        self._unfit_ones = unfit
        self._keys = _rules(table)
        #: The key columns with a canonical form, and the functions that compute it.
        self._forms = [(table.names.index(name), form) for name, form in zip(table.keys, self._keys.forms) if form is not None]
        #: For each table with other columns: the index of each column in its rows, or -1.
        self._numbers: dict[Table, list[int]] = {
            one: [one.names.find(name) for name in table.names.names] for one in tables if one.names.names != table.names.names
        }

    def fold(self, read: Read) -> _Rows:
        if wanted := self._partial_keys():
            self._base = read(self._table, wanted)
        for change in self._changes:
            try:
                self._take(change)
            except UnfitChangeError as error:
                self._unfit_ones.append(error)
        return self._state

    def _take(self, change: Change) -> None:
        if change.op is Op.TRUNCATE:
            self._empty(change.table.merge)
        elif change.before is None:
            self._put(self._key(change, change.row), self._whole(change, self._row(change, change.row), None), is_new=True)
        elif change.op is Op.DELETE:
            self._put(self._key(change, change.row), None)
        else:
            self._update(change)

    def _empty(self, merge: tuple[str, Any] | None) -> None:
        state = self._state
        if merge is None:
            state.is_emptied = True
            state.emptied.clear()
            gone = list(state.rows)
            self._base = {}
        else:
            state.emptied.append(merge)
            at = [self._table.keys.index(merge[0])] if merge[0] in self._table.keys else []
            gone = [key for key in state.rows if at and key[at[0]] == merge[1]]
            self._base = {key: row for key, row in self._base.items() if not at or key[at[0]] != merge[1]}
        for key in gone:
            del state.rows[key]
        state.inserted.difference_update(gone)
        state.replaced.difference_update(gone)

    def _partial_keys(self) -> list[Key]:
        """Return the keys of rows that must be read: partial updates, and key changes of rows that lack columns."""
        found = []
        for change in self._changes:
            before, after = change.before, change.after
            if before is None or after is None:
                continue
            lacks = self._not_carried is ABSENT and -1 in self._numbers.get(change.table, ())
            written = self._keys.written
            if ABSENT in after.values() or (lacks and written(change.key_of(before)) != written(change.key_of(after))):
                with contextlib.suppress(UnfitChangeError):  # _take raises it again
                    found.append(self._key(change, before))
        return list(dict.fromkeys(found))

    def _update(self, change: Change) -> None:
        assert change.before is not None
        old, row = self._key(change, change.before), self._row(change, change.row)
        before: Values | None = None
        if ABSENT in row:
            if ABSENT in change.row.values():
                self._refuse_unlogged(change, change.before)
                row = _filled(row, self._row(change, change.before))  # unchanged columns: prefer the source's values
            before = self._state.rows[old] if old in self._state.rows else self._base.get(old)
        whole = self._whole(change, row, before)
        new = self._checked(change, tuple([whole[self._table.names.index(name)] for name in self._table.keys]))
        if new != old:
            self._put(old, None)
        self._put(new, whole, is_new=new != old)

    def _refuse_unlogged(self, change: Change, before: Row) -> None:
        """Refuse an update that lacks a column which may have changed.

        MariaDB since 11.8.9 omits generated columns from the images of an update, even with FULL. An image before the change that
        has more than the key lacks only those columns and, with NOBLOB, large columns.
        """
        columns = list(zip(change.table.columns, before.values(), change.row.values()))
        for column, old, new in columns:
            if new is ABSENT and old is not ABSENT and column.of_source.base_type == "json" and column.unmasked is not None:
                raise self._unfit(
                    change,
                    f"of the JSON in {change.table.source}.{column.name}, which is masked, only a change was logged",
                    "Unset binlog_row_value_options=PARTIAL_JSON at the source.",
                )
        others = {*change.table.keys, *change.table.computed}
        is_whole = any(old is not ABSENT for column, old, _ in columns if column.name not in others)
        lacking = [
            column.name
            for column, old, new in columns
            if old is ABSENT and new is ABSENT and (not column.logged or (is_whole and column.of_source.type_code not in _LARGE))
        ]
        if lacking:
            raise self._unlogged(change, lacking)

    def _put(self, key: Key, row: Values | None, *, is_new: bool = False) -> None:
        state = self._state
        if row is None:
            state.inserted.discard(key)
            state.replaced.discard(key)
        elif is_new:
            state.inserted.add(key)
            if key in state.rows:
                state.replaced.add(key)
        state.rows.pop(key, None)  # keep the order of the last changes
        state.rows[key] = row

    def _key(self, change: Change, row: Row) -> Key:
        if not change.table.keys:
            raise self._unfit(
                change,
                f"{change.table.source} has no primary key: its rows cannot be told apart in the target",
                "Name columns that tell them apart by canal.Rule(keys=…), or let a log of changes be the target. "
                "Where a rule made the row, it must have the columns of the key.",
            )
        key = change.key_of(row)
        return self._checked(change, self._keys.written(key) if self._forms else key)

    def _checked(self, change: Change, key: Key) -> Key:
        if None in key or ABSENT in key:
            raise self._unfit(
                change,
                f"a column of the key of {change.table.source} is NULL or not in the row image",
                "Give keys that are the table's primary key.",
            )
        return key

    def _row(self, change: Change, row: Row) -> Values:
        """Return the row in the order of the state's columns."""
        numbers = self._numbers.get(change.table)
        values = row.values()
        if numbers is not None:
            values = tuple([values[number] if number >= 0 else self._not_carried for number in numbers])
        if self._forms:
            own = list(values)
            for number, form in self._forms:
                own[number] = form(own[number])
            values = tuple(own)
        return values

    def _whole(self, change: Change, row: Values, before: Values | None) -> Values:
        """Return the row after a change, with missing values from the row before."""
        if before is not None:
            row = _filled(row, before)
        if ABSENT in row and (lacking := self._missing(change, row)):
            column = self._table.columns[lacking[0]]
            if not column.logged:
                raise self._unlogged(change, [column.name])
            what = "an insert does not hold" if change.before is None else "a row that the target does not have lacks"
            raise self._unfit(
                change,
                f"{what} the column {column.name} of {change.table.source}, whose value is not logged",
                "Set binlog_row_image=FULL at the source.",
            )
        if self._documents and (name := next((name for name, at in self._documents if isinstance(row[at], PartialJson)), "")):
            raise self._unfit(
                change,
                f"of the JSON in {change.table.source}.{name} only the change is known, not the value",
                "Unset binlog_row_value_options=PARTIAL_JSON at the source.",
            )
        return row

    def _missing(self, change: Change, row: Values) -> list[int]:
        """Return the numbers of the change's columns whose values are unknown."""
        numbers = self._numbers.get(change.table, range(len(row)))
        return [at for at, value in enumerate(row) if value is ABSENT and numbers[at] >= 0]

    def _unlogged(self, change: Change, names: Sequence[str]) -> UnfitChangeError:
        return self._unfit(
            change,
            f"the server does not log the generated column {names[0]} of {change.table.source} with each change",
            f"Leave it out: canal.Rule(fields=…) without {', '.join(names)}.",
        )

    @staticmethod
    def _unfit(change: Change, what: str, remedy: str) -> UnfitChangeError:
        return UnfitChangeError(what, position=change.origin.position, changes=(change,), remedy=remedy)
