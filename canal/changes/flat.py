"""The changes of messages for ``Instance.changes``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from canal.changes.change import Change
from canal.changes.reading import Reader
from canal.changes.unlogged import lost, touched
from canal.errors import UnloggedChangeError
from canal.model import Entry, EntryType


class FlatReader:
    """Reads the changes of a stream of messages, in order."""

    def __init__(self) -> None:
        self._reader = Reader(is_log=True, json_text=False)

    def changes(self, entries: Iterable[Entry], statements: bool = False) -> Iterator[Change]:
        """Return the changes of a message's entries in order, including statements if ``statements`` is true.

        Raises:
            UnloggedChangeError: without ``statements``, at a statement that changed rows that are not in the log.
        """
        reader = self._reader
        for entry in entries:
            if entry.table is None and not statements and entry.entry_type is EntryType.ROWDATA:
                refuse_unlogged(entry)
            else:
                yield from reader.changes(entry)
        reader.forget(reader.mark())


def refuse_unlogged(entry: Entry) -> None:
    """Raise UnloggedChangeError if a statement removed, added or changed rows that are not in the log."""
    what = next(filter(None, (lost(entry, *name) for name in touched(entry, lambda schema, table: True, ()))), "")
    if what:
        raise UnloggedChangeError(
            what,
            position=f"{entry.transaction.journal}:{entry.offset}",
            remedy="Give statements=True: the statement then comes as a change with its text in change.sql. Do to your copy of "
            "the table what it did, or ignore it.",
        )
