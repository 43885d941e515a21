"""Flat iteration: one changed row after the other, each with its table, its key and the position behind it.

Never keeps a row, and never acks one that was not looped over: see ``Instance.changes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import attrs

from canal.changes.unlogged import lost, touched
from canal.errors import CanalError, UnloggedChangeError
from canal.model import Entry, EntryType, EventType, Message, Row
from canal.position import Position

if TYPE_CHECKING:
    from canal.instance.stream import Stream

Op = Literal["insert", "update", "delete", "statement"]
_OPS: Final[dict[EventType, Op]] = {EventType.INSERT: "insert", EventType.UPDATE: "update", EventType.DELETE: "delete"}


@attrs.frozen
class FlatChange:
    """One changed row, or one statement."""

    schema: str
    table: str
    """Of a statement the first one that it names; "" where it names none."""

    op: Op
    before: Row | None
    """The row as it was; None of an insert and of a statement."""

    after: Row | None
    """The row as it is; None of a delete and of a statement."""

    key: tuple[Any, ...] | None
    """Values of the primary key, in the order of the table: of the row as it is, of a deleted one as it was. None where the
    table has no primary key, or not all of it is delivered or logged."""

    position: Position
    """Where to resume when everything up to and including this change is done."""

    entry: Entry = attrs.field(repr=False, eq=False)
    """What it is of: ``entry.header`` tells time and GTID, ``entry.row_change.sql`` the text of a statement."""

    @property
    def old_key(self) -> tuple[Any, ...] | None:
        """The key of the row as it was: another one where an update has changed it. None of an insert."""
        return None if self.before is None else self.before.key


def flat(message: Message, statements: bool = False) -> Iterator[FlatChange]:
    """Return the changes of a message in their order, with its statements if ``statements`` is true.

    Raises:
        UnloggedChangeError: without ``statements``, at a statement that changed rows that are not in the log.
    """
    for entry in message.entries:
        if entry.entry_type is not EntryType.ROWDATA:
            continue
        if entry.table is not None:
            yield from _rows(entry)
        elif statements:
            header = entry.header
            yield FlatChange(header.schema, header.table, "statement", None, None, None, entry.position, entry)
        else:
            refuse_unlogged(entry)


def refuse_unlogged(entry: Entry) -> None:
    """Raise UnloggedChangeError if a statement removed, added or changed rows that are not in the log."""
    what = next(filter(None, (lost(entry, *name) for name in touched(entry, lambda schema, table: True, ()))), "")
    if what:
        raise UnloggedChangeError(
            what, position=f"{entry.transaction.journal}:{entry.offset}",
            remedy="Give statements=True: the statement then comes as a change with the op \"statement\", and its text in "
            "change.entry.row_change.sql. Do to your copy of the table what it did, or ignore it.",
        )  # fmt: skip


def _rows(entry: Entry) -> Iterator[FlatChange]:
    header, op = entry.header, _OPS[entry.event_type]
    first, selected = entry.first_row + entry.skip_rows, entry.selected
    for number, row in enumerate(entry.rows):
        done = first + 1 + (number if selected is None else selected[number])
        yield FlatChange(
            header.schema, header.table, op, row.before, row.after, row.key, entry.position_at(done), entry
        )  # fmt: skip


class Changes(Iterator[FlatChange]):
    """The iterator of ``Instance.changes``."""

    def __init__(self, stream: Stream, statements: bool) -> None:
        self._stream = stream
        self._statements = statements
        self._left: Iterator[FlatChange] = iter(())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FlatChange:
        while True:
            try:
                change = next(self._left, None)
            except CanalError:
                self.close()  # the message comes again; and the error's traceback keeps this reader
                raise
            if change is not None:
                return change
            self._left = flat(next(self._stream), self._statements)

    def close(self) -> None:
        """Roll back the message in hand; the next get hands it out again."""
        self._left = iter(())
        self._stream.close()
