"""What a stretch of changes comes to: for each key the row that is there at its end, or that there is none.

Never reads or writes a table itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from canal.changes.change import Change, Table
from canal.errors import UnfitChangeError
from canal.model import EventType, Row
from canal.rows.values import ABSENT, PartialJson
from canal.schema import TYPE_CODES

#: Codes of the types that NOBLOB images leave out where they did not change.
_LARGE: Final = frozenset(TYPE_CODES[name] for name in ("blob", "geometry", "json", "vector"))

Key: TypeAlias = tuple[Any, ...]
Values: TypeAlias = tuple[Any, ...]
#: Gives, of a table, the rows with such keys by their keys; not those that are missing.
Read = Callable[[Table, Sequence[Key]], Mapping[Key, Values]]


@attrs.define(eq=False)
class TableState:
    """What is to be done to one table. The order is: empty it, take away ``deletes``, put ``upserts``."""

    table: Table
    """With the columns that the last change had."""

    is_emptied: bool = False
    """Whether all rows that were there go."""

    rows: dict[Key, Values | None] = attrs.field(factory=dict)
    """By key the whole row, of the table's columns, or None where it is gone; in the order of the last changes."""

    changes: list[Change] = attrs.field(factory=list, repr=False)
    """Those that it is made of."""

    @property
    def deletes(self) -> list[Key]:
        """Keys of the rows that go."""
        return [key for key, row in self.rows.items() if row is None]

    @property
    def upserts(self) -> list[Values]:
        """Rows to put in the stead of those with their keys."""
        return [row for row in self.rows.values() if row is not None]

    def of_key(self, key: Key) -> tuple[Change, ...]:
        """The changes that touched a key."""
        return tuple(
            change
            for change in self.changes
            if any(row is not None and change.key(row) == key for row in (change.before, change.after))
        )


def latest(changes: Iterable[Change], read: Read) -> list[TableState]:
    """The state of each table that changes touch, in the order of their first ones.

    Args:
        changes: INSERT, UPDATE, DELETE and TRUNCATE, in the order of the log.
        read: asked for rows that partial images change (binlog_row_image MINIMAL or NOBLOB).

    Raises:
        UnfitChangeError: what comes out is not known, or the table has no key; ``changes`` of it tells of which.
    """
    tables: dict[str, list[Change]] = {}
    for change in changes:
        tables.setdefault(change.table.name, []).append(change)
    return [_Fold(group).fold(read) for group in tables.values()]


class _Fold:
    def __init__(self, changes: list[Change]) -> None:
        table = next((one.table for one in reversed(changes) if one.table.columns), changes[-1].table)
        self._state = TableState(table, changes=changes)
        self._base: Mapping[Key, Values] = {}
        self._documents = [(column.name, at) for at, column in enumerate(table.columns) if column.base_type == "json"]

    def fold(self, read: Read) -> TableState:
        state = self._state
        if wanted := self._partial_keys():
            self._base = read(state.table, wanted)
        for change in state.changes:
            if change.op is EventType.TRUNCATE:
                state.rows.clear()
                state.is_emptied = True
                self._base = {}
            elif change.op is EventType.INSERT:
                self._put(change, self._key(change, change.row), self._whole(change, None))
            elif change.op is EventType.DELETE:
                self._put(change, self._key(change, change.row), None)
            else:
                self._update(change)
        return state

    def _partial_keys(self) -> list[Key]:
        """Keys of rows of which an update tells only a part."""
        partial = (one for one in self._state.changes if one.op is EventType.UPDATE and ABSENT in one.row.values())
        return list(dict.fromkeys(self._key(one, one.before) for one in partial if one.before is not None))

    def _update(self, change: Change) -> None:
        assert change.before is not None
        old = self._key(change, change.before)
        before: Values | None = None
        if ABSENT in change.row.values():
            self._refuse_unlogged(change, change.before)
            before = self._state.rows[old] if old in self._state.rows else self._base.get(old)
            if before is None:
                before = self._row(change, change.before)  # NOBLOB has all but what did not change
        whole = self._whole(change, before)
        new = tuple([whole[self._state.table.names.index(name)] for name in self._state.table.keys])
        if new != old:
            self._put(change, old, None)
        self._put(change, self._checked(change, new), whole)

    def _refuse_unlogged(self, change: Change, before: Row) -> None:
        """MariaDB since 11.8.9 leaves generated columns out of an update's images, FULL ones too, though they may have changed.

        An image before the change that has more than the key lacks only those, and large columns (NOBLOB).
        """
        columns = list(zip(change.table.columns, before.values(), change.row.values()))
        for column, old, new in columns:
            if new is ABSENT and old is not ABSENT and column.of_source.base_type == "json" and column.unmasked is not None:
                raise self._unfit(
                    change, f"of the JSON in {change.table.source}.{column.name}, which is masked, only a change was logged",
                    "Unset binlog_row_value_options=PARTIAL_JSON at the source.",
                )  # fmt: skip
        is_whole = any(old is not ABSENT for column, old, _ in columns if column.name not in change.table.keys)
        lacking = [
            column.name
            for column, old, new in columns
            if old is ABSENT and new is ABSENT and (not column.logged or (is_whole and column.of_source.type_code not in _LARGE))
        ]
        if lacking:
            raise self._unlogged(change, lacking)

    def _put(self, change: Change, key: Key, row: Values | None) -> None:
        self._state.rows.pop(key, None)  # the last one put is the last in order
        self._state.rows[key] = row

    def _key(self, change: Change, row: Row) -> Key:
        if not change.table.keys:
            raise self._unfit(
                change, f"{change.table.source} has no primary key: its rows cannot be told apart in the target",
                "Name columns that tell them apart by canal.Rule(keys=…), or let a log of changes be the target. "
                "Where a rule made the row, it must have the columns of the key.",
            )  # fmt: skip
        return self._checked(change, change.key(row))

    def _checked(self, change: Change, key: Key) -> Key:
        if None in key or ABSENT in key:
            raise self._unfit(
                change, f"a column of the key of {change.table.source} is NULL or not in the row image",
                "Give keys that are the table's primary key.",
            )  # fmt: skip
        return key

    def _row(self, change: Change, row: Row) -> Values:
        """The row in the order of the table's last columns."""
        if change.table is self._state.table:
            return row.values()
        return tuple([row.get(name) for name in self._state.table.names.names])

    def _whole(self, change: Change, before: Values | None) -> Values:
        """The row after a change, with what its image lacks out of the row before."""
        row = self._row(change, change.row)
        if before is not None:
            row = tuple([old if new is ABSENT else new for old, new in zip(before, row)])
        if ABSENT in row:
            column = self._state.table.columns[row.index(ABSENT)]
            if not column.logged:
                raise self._unlogged(change, [column.name])
            what = "an insert does not hold" if change.op is EventType.INSERT else "a row that the target does not have lacks"
            raise self._unfit(
                change, f"{what} the column {column.name} of {change.table.source}, whose value is not logged",
                "Set binlog_row_image=FULL at the source.",
            )  # fmt: skip
        if self._documents and (name := next((name for name, at in self._documents if isinstance(row[at], PartialJson)), "")):
            raise self._unfit(
                change, f"of the JSON in {change.table.source}.{name} only the change is known, not the value",
                "Unset binlog_row_value_options=PARTIAL_JSON at the source.",
            )  # fmt: skip
        return row

    def _unlogged(self, change: Change, names: Sequence[str]) -> UnfitChangeError:
        return self._unfit(
            change, f"the server does not log the generated column {names[0]} of {change.table.source} with each change",
            f"Leave it out: canal.Rule(fields=…) without {', '.join(names)}.",
        )  # fmt: skip

    @staticmethod
    def _unfit(change: Change, what: str, remedy: str) -> UnfitChangeError:
        return UnfitChangeError(what, position=change.origin.position, changes=(change,), remedy=remedy)
