"""Drops most transactions that filters have emptied. Some pass, so that cursors advance.

The BEGIN and END of a transaction with delivered changes always pass.
"""

from __future__ import annotations

from canal.model.entry import Entry
from canal.model.kinds import EntryType

_BEGIN = EntryType.TRANSACTIONBEGIN
_END = EntryType.TRANSACTIONEND


class Condenser:
    """Passes one empty transaction per ``interval`` seconds or ``count`` transactions, as canal does."""

    def __init__(self, interval: float = 5.0, count: int = 8192) -> None:
        self._interval = interval
        self._count = count
        self._dropped = 0
        self._passed_at = -1e18
        self._begin = None

    def feed(self, entries: list[Entry], now: float) -> list[Entry]:
        """Return the entries to deliver, in order. ``now`` is a monotonic time in seconds."""
        if self._begin is None and not has_empty(entries):
            return entries
        kept = []
        for entry in entries:
            begin = self._begin
            if begin is not None and not begin.transaction.is_same(entry.transaction):
                self._begin = begin = None  # the parser restarted at another position
            if entry.entry_type is _BEGIN:
                if not entry.part:
                    self._begin = entry
                elif begin is None:  # rows were delivered before the parser restarted: keep the END
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
        """Forget the held BEGIN."""
        self._begin = None

    def _passes(self, now: float) -> bool:
        if now - self._passed_at > self._interval or self._dropped >= self._count:
            self._passed_at = now
            self._dropped = 0
            return True
        self._dropped += 1
        return False


def has_empty(entries: list[Entry]) -> bool:
    """Return whether a BEGIN is followed by END, or is the last entry."""
    begin = False
    for entry in entries:
        if entry.entry_type is _BEGIN:
            begin = True
        elif begin and entry.entry_type is _END:
            return True
        else:
            begin = False
    return begin
