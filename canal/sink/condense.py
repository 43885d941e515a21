"""Transactions that the filters have emptied: most are left out, some pass so that cursors move on.

Never drops the END of a transaction that had something delivered, nor the BEGIN.
"""

from __future__ import annotations

from canal.model.entry import Entry
from canal.model.kinds import EntryType

_BEGIN = EntryType.TRANSACTIONBEGIN
_END = EntryType.TRANSACTIONEND


class Condenser:
    """Lets one empty transaction pass each ``interval`` seconds or ``count`` transactions, as canal does."""

    def __init__(self, interval: float = 5.0, count: int = 8192) -> None:
        self._interval = interval
        self._count = count
        self._dropped = 0
        self._passed_at = -1e18
        self._begin = None

    def feed(self, entries: list[Entry], now: float) -> list[Entry]:
        """The entries to deliver, in order. ``now`` is a monotonic time in seconds."""
        if self._begin is None and not has_empty(entries):
            return entries
        kept = []
        for entry in entries:
            begin = self._begin
            if begin is not None and not begin.transaction.is_same(entry.transaction):
                self._begin = begin = None  # the parser has started again, elsewhere
            if entry.entry_type is _BEGIN:
                if not entry.part:
                    self._begin = entry
                elif begin is None:  # its first rows were delivered before the parser came back: keep its END
                    kept.append(entry)
            elif begin is None:
                kept.append(entry)
            else:
                self._begin = None
                if entry.entry_type is not _END or self._passes(now):
                    kept.append(begin)
                    kept.append(entry)
        return kept

    def reset(self) -> None:
        """Forget the BEGIN that is held back."""
        self._begin = None

    def _passes(self, now: float) -> bool:
        if now - self._passed_at > self._interval or self._dropped >= self._count:
            self._passed_at = now
            self._dropped = 0
            return True
        self._dropped += 1
        return False


def has_empty(entries: list[Entry]) -> bool:
    """Whether a BEGIN is followed by its END, or by nothing yet."""
    begin = False
    for entry in entries:
        if entry.entry_type is _BEGIN:
            begin = True
        elif begin and entry.entry_type is _END:
            return True
        else:
            begin = False
    return begin
