"""Tracks the GTIDs that are done, without creating a set for each transaction.

Never looks at an event.
"""

from __future__ import annotations

from typing import Any

from canal.model.transaction import Transaction


class GtidRun:
    """A set of GTIDs, a run of consecutive numbers from the same source, and the open group.

    A group is a GTID's transaction, or a transaction or statement without a GTID. It is done when it ends.

    Attributes:
        base: the GTIDs that are done without the run; None if unknown.
        offset: start of the open group in the journal.
        source, number: the group's GTID: a UUID or MariaDB's (domain, server id); None without a GTID.
        last_committed, sequence_number: MySQL's logical clock, see ``Transaction``; 0 if unknown.
    """

    def __init__(self) -> None:
        self.reset(None)

    def reset(self, executed: Any) -> None:
        """Start over with a set, or with None, outside any group."""
        self.drop()
        self.adopt(executed)
        self.offset = 0
        self.number = 0
        self.last_committed = self.sequence_number = 0
        self._previous = 0
        self._first = 0

    def adopt(self, executed: Any) -> None:
        """Continue with another set. No group may be open."""
        self.base = executed
        self._source = None
        self._last = 0

    def begin(self, offset: int, source: Any, number: int) -> bool:
        """Begin a group. Return whether it starts a new run; always False if sets are unknown."""
        self.offset = offset
        self.source = source
        self.number = number
        self.last_committed = self.sequence_number = 0
        self._previous = 0
        if self.base is None:
            return False
        if source is not None and source == self._source and self._last:
            if number == self._last + 1 or (type(source) is tuple and number > self._last):
                self._previous = self._last
                return False
        self.base = self.executed()
        self._source = source
        self._first = number
        self._last = 0
        return True

    def end(self) -> None:
        """End the group: it is done."""
        if self.source is not None:
            self._last = self.number
        self.drop()

    def drop(self) -> None:
        """Drop the group: it is not done."""
        self.source = None

    def executed(self) -> Any:
        """Return the GTIDs that are done."""
        source = self._source
        if source is None or not self._last:
            return self.base
        if type(source) is tuple:
            return self.base.add(source[0], source[1], self._last)
        return self.base.add(source, self._first, self._last)

    def behind(self) -> Any:
        """Return the GTIDs that are done after the open group."""
        base = self.executed()
        source = self.source
        if base is None or source is None:
            return base
        return base.add(*source, self.number) if type(source) is tuple else base.add(source, self.number)

    def last(self) -> tuple[int, int, int] | None:
        """Return the last MariaDB GTID of the run."""
        source = self._source
        return (*source, self._last) if self._last and type(source) is tuple else None

    def stamp(self, txn: Transaction) -> None:
        """Copy the fields for positions into a transaction."""
        txn.gtid_source = self.source
        txn.gtid_number = self.number
        txn.gtid_first = self._first
        txn.gtid_previous = self._previous
        txn.gtid_base = self.base
        txn.last_committed = self.last_committed
        txn.sequence_number = self.sequence_number
