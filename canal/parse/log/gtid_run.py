"""Which GTIDs are done, followed from transaction to transaction without making a set for each.

Never looks at an event.
"""

from __future__ import annotations

from typing import Any

from canal.model.transaction import Transaction


class GtidRun:
    """A set of GTIDs, the run of one source's numbers behind it, and the group that is under way.

    A group is what one GTID names, or one transaction or statement without any. It is done when it ends, and not before.

    Attributes:
        base: what is done but for the run; None where it is not known.
        offset: where that group begins in its journal.
        source, number: its GTID: a UUID or MariaDB's (domain, server id); None where it has none.
        last_committed, sequence_number: MySQL's clock of the journal, see ``Transaction``; 0 where it is not told.
    """

    def __init__(self) -> None:
        self.reset(None)

    def reset(self, executed: Any) -> None:
        """Begin with a set, or with None, in no group."""
        self.drop()
        self.adopt(executed)
        self.offset = 0
        self.number = 0
        self.last_committed = self.sequence_number = 0
        self._previous = 0
        self._first = 0

    def adopt(self, executed: Any) -> None:
        """Go on with another set; no group may be open."""
        self.base = executed
        self._source = None
        self._last = 0

    def begin(self, offset: int, source: Any, number: int) -> bool:
        """A group begins. Gives whether it is the first of a run, where sets are known at all."""
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
        """The group is done."""
        if self.source is not None:
            self._last = self.number
        self.drop()

    def drop(self) -> None:
        """The group never was."""
        self.source = None

    def executed(self) -> Any:
        """What is done."""
        source = self._source
        if source is None or not self._last:
            return self.base
        if type(source) is tuple:
            return self.base.add(source[0], source[1], self._last)
        return self.base.add(source, self._first, self._last)

    def behind(self) -> Any:
        """What is done when the open group is."""
        base = self.executed()
        source = self.source
        if base is None or source is None:
            return base
        return base.add(*source, self.number) if type(source) is tuple else base.add(source, self.number)

    def last(self) -> tuple[int, int, int] | None:
        """The GTID of MariaDB that the run has come to."""
        source = self._source
        return (*source, self._last) if self._last and type(source) is tuple else None

    def stamp(self, txn: Transaction) -> None:
        """Write into a transaction what its positions are made of."""
        txn.gtid_source = self.source
        txn.gtid_number = self.number
        txn.gtid_first = self._first
        txn.gtid_previous = self._previous
        txn.gtid_base = self.base
        txn.last_committed = self.last_committed
        txn.sequence_number = self.sequence_number
