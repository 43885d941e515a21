"""The ring buffer of entries: sequence arithmetic over reused slots.

It neither waits nor locks; :class:`canal.store.memory.MemoryStore` does both. ``head`` is the oldest entry, ``tail`` the
next free sequence. Readers keep their sequences between the two.
"""

from __future__ import annotations

from canal.model.entry import Entry
from canal.model.kinds import EntryType
from canal.store import scheduler

_BEGIN = EntryType.TRANSACTIONBEGIN


class Ring:
    """A ring bounded by entries and bytes. An empty ring accepts an entry larger than the byte limit."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        size = 1
        while size < max_entries:
            size *= 2
        self._slots = [None] * size
        self._mask = size - 1
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self.head = 0
        self.tail = 0
        self.byte_count = 0
        self.row_total = 0
        self.freed_bytes = 0
        self.freed_rows = 0
        self.taken_rows = 0  # by the last ``take``
        self.unread = 0  # bytes that no reader has taken
        self._front = 0

    def put(self, entries: list[Entry], start: int) -> int:
        """Append entries from index ``start`` while there is room. Return the number of appended entries."""
        slots = self._slots
        index = start
        while index < len(entries):
            entry = entries[index]
            size = entry.size
            if self.tail > self.head:
                if self.tail - self.head >= self.max_entries or self.byte_count + size > self.max_bytes:
                    break
            slots[self.tail & self._mask] = entry
            self.tail += 1
            self.byte_count += size
            self.unread += size
            self.row_total += entry.row_count
            index += 1
        return index - start

    @staticmethod
    def give_way() -> None:
        """Let a thread run that the last ``put`` woke, if both share a core or the interpreter lock."""
        scheduler.give_way()

    def take(self, sequence: int, batch_size: int, batch_bytes: int, isolate_ddl: bool, whole: bool) -> list[Entry]:
        """Return entries from ``sequence``: at most ``batch_size`` row changes and ``batch_bytes`` bytes, at least one entry.

        A statement counts as one row change, BEGIN and END as none. A BEGIN is returned with the entry after it, if the limits
        permit. With ``isolate_ddl``, a statement that changes a schema comes alone. With ``whole``, the entries end at a
        transaction's end; a larger transaction comes alone if it is complete.
        """
        taken = self._taken(sequence, batch_size, batch_bytes, isolate_ddl)
        if whole and taken:
            self._to_an_end(taken, sequence)
            self.taken_rows = 0
            for entry in taken:
                self.taken_rows += entry.row_count
        index = self._front - sequence
        while 0 <= index < len(taken):
            entry = taken[index]
            self._pass(entry)
            index += 1
        return taken

    def _pass(self, entry: Entry) -> None:
        self.unread -= entry.size
        self._front += 1

    def _to_an_end(self, taken: list[Entry], sequence: int) -> None:
        """Shorten or extend the entries from ``sequence`` to end with a transaction."""
        slots = self._slots
        last = len(taken)
        while last:
            entry = taken[last - 1]
            if entry.is_end:
                del taken[last:]
                return
            last -= 1
        more = []
        sequence += len(taken)
        while sequence < self.tail:
            entry = slots[sequence & self._mask]
            more.append(entry)
            if entry.is_end:
                taken.extend(more)
                return
            sequence += 1

    def _taken(self, sequence: int, batch_size: int, batch_bytes: int, isolate_ddl: bool) -> list[Entry]:
        taken = []
        self.taken_rows = 0
        if sequence < self.head:  # already released
            return taken
        slots = self._slots
        weight = 0
        size = 0
        rows = 0
        limit = 3 * batch_size + 1
        while sequence < self.tail and len(taken) < limit:
            entry = slots[sequence & self._mask]
            if entry.entry_type is _BEGIN and weight >= batch_size:
                break
            if entry.rare is not None and entry.statement is not None:
                weight += 1
                if isolate_ddl and entry.is_ddl:
                    if not taken:
                        taken.append(entry)
                    break
            else:
                weight += entry.row_count
            size += entry.size
            if (weight > batch_size or size > batch_bytes) and taken:
                if len(taken) > 1 and taken[len(taken) - 1].entry_type is _BEGIN:
                    taken.pop()  # deliver BEGIN with the rows
                break
            taken.append(entry)
            rows += entry.row_count
            sequence += 1
        self.taken_rows = rows
        return taken

    def rows_from(self, sequence: int) -> int:
        """Return the number of row changes from a sequence on."""
        slots = self._slots
        rows = 0
        while sequence < self.tail:
            entry = slots[sequence & self._mask]
            rows += entry.row_count
            sequence += 1
        return rows

    def bytes_between(self, start: int, end: int) -> int:
        """Return the size of the entries from sequence ``start`` up to ``end``."""
        slots = self._slots
        size = 0
        while start < end:
            entry = slots[start & self._mask]
            size += entry.size
            start += 1
        return size

    def at(self, sequence: int) -> Entry | None:
        """Return the entry at a sequence; None if it was released or not yet stored."""
        return self._slots[sequence & self._mask] if self.head <= sequence < self.tail else None

    def release(self, head: int) -> None:
        """Release all entries before ``head``."""
        slots = self._slots
        while self.head < head:
            entry = slots[self.head & self._mask]
            if self.head == self._front:
                self._pass(entry)
            self.byte_count -= entry.size
            self.freed_bytes += entry.size
            self.freed_rows += entry.row_count
            slots[self.head & self._mask] = None
            self.head += 1
