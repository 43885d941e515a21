"""Select the entries that one client should receive: those it has not acknowledged and that pass its filter.

Pure functions of a client's reading position and the entries after it.
"""

from __future__ import annotations

from typing import NamedTuple

import attrs

from canal._util.bounded import Recent
from canal.filter import TableFilter
from canal.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet
from canal.instance.feed import Feed
from canal.model import Entry, EntryType, Transaction
from canal.position import Position
from canal.store import Slice


class ReadPosition(NamedTuple):
    """A client's position between two entries of the store. A rollback restores an earlier one."""

    start: int
    """Sequence of the next entry."""
    position: Position
    """After the last entry that is done. It becomes the cursor when it is acknowledged."""
    done: int = 0
    """Number of the parser's transactions that are done."""
    skip: Position | None = None
    """Entries up to here were acknowledged before a restart."""
    open: Transaction | None = None
    """The transaction that was returned in part: its END passes the client's filter."""
    begin: Entry | None = None
    """BEGIN of the last transaction, if no entry of the transaction has passed the client's filter yet."""
    feed: Feed | None = None
    """The feed whose entries ``start`` counts. None: the next get opens a feed at ``position``."""


class Run(NamedTuple):
    """Consecutive entries, and the transaction before them that was returned in part."""

    entries: list[Entry]
    open: Transaction | None


class ClientFilter:
    """A table filter of a client or a router's output, applied after the parser's filter."""

    def __init__(self, text: str, black: str = "") -> None:
        self.text = text
        self._tables = TableFilter(text, black) if text or black else None
        self._accepted = Recent[tuple[str, str], bool]()

    def select(self, slice: Slice, reading: ReadPosition) -> tuple[list[Entry], ReadPosition]:
        """Return the entries of the slice that the client receives, and the reading position after the slice."""
        entries, skip = slice.entries, reading.skip
        runs = [Run(entries, reading.open)]
        if skip is not None:
            runs, skip = _without_done(entries, skip, reading)
            entries = [entry for run in runs for entry in run.entries]
            if not entries:
                return entries, reading._replace(start=slice.end, skip=skip, open=runs[-1].open)
        last, begin = entries[-1], reading.begin
        if begin is not None and not begin.transaction.is_same(entries[0].transaction):
            begin = None
        if self._tables is not None:
            passed: list[Entry] = []
            for run in runs:
                begin, is_open = self._filter(run, begin, passed)
            entries = passed
        else:
            if begin is not None and entries[0].entry_type is not EntryType.TRANSACTIONBEGIN:
                entries = [begin, *entries]  # the client had a filter
            begin, is_open = None, None if last.is_end else last.transaction
        done = last.transaction.before + last.is_end
        position = last.position
        if skip is not None and skip.members:
            position = Position(members={**dict(position.members), **dict(skip.members)})
        return entries, ReadPosition(slice.end, position, done, skip, is_open, begin, reading.feed)

    def _filter(self, run: Run, begin: Entry | None, passed: list[Entry]) -> tuple[Entry | None, Transaction | None]:
        """Append the changes that pass, with the BEGIN and END of their transactions.

        Return the last BEGIN if a change of its transaction may still pass, and the transaction that was returned in part.
        """
        is_open = run.open
        for entry in run.entries:
            if entry.entry_type is EntryType.ROWDATA:
                if not self.accepts(entry):
                    continue
                if begin is not None:
                    passed.append(begin)
                passed.append(entry)
                begin, is_open = None, None if entry.is_end else entry.transaction
            elif is_open is not None and is_open.is_same(entry.transaction):
                passed.append(entry)
                if entry.is_end:
                    is_open = None
            elif entry.is_end:
                begin = None
            elif not entry.part:
                begin = entry
            elif begin is None or not begin.transaction.is_same(entry.transaction):
                passed.append(entry)  # the first rows of this transaction were returned before a restart
                begin, is_open = None, entry.transaction
        return begin, is_open

    def accepts(self, entry: Entry) -> bool:
        """Return whether an entry with rows or a statement passes."""
        tables = self._tables
        if tables is None or entry.statement is not None and entry.statement.doubtful:  # it may concern any table
            return True
        for name in entry.header.tables or ((entry.header.schema, ""),):
            decision = self._accepted.get(name)
            if decision is None:
                decision = self._accepted[name] = tables.accepts(*name)
            if decision:
                return True
        return False


def unskipped(entries: list[Entry], cursor: Position) -> list[Entry]:
    """Drop the entries that a client acknowledged before a restart, if the parser resumed earlier for another client."""
    return [entry for run in _without_done(entries, cursor, ReadPosition(0, cursor))[0] for entry in run.entries]


def _without_done(entries: list[Entry], cursor: Position, reading: ReadPosition) -> tuple[list[Run], Position | None]:
    """Return the entries after the cursor, and the part of the cursor that the entries have not reached, or None.

    Each dropped entry ends a run, because a group may merge its members in another order than before the restart.
    """
    left = dict(cursor.members) if cursor.members else {"": cursor}
    runs = [Run([], reading.open)]
    foreign: dict[str, Entry] = {}
    for number, entry in enumerate(entries):
        name = entry.member
        own = left.get(name)
        if own is not None and is_done(entry, own):
            if not runs[-1].entries:
                del runs[-1]
            is_unseen = reading.begin is not None and reading.begin.transaction.is_same(entry.transaction)
            runs.append(Run([], None if entry.is_end or is_unseen else entry.transaction))
            continue
        runs[-1].entries.append(entry)
        if own is None:
            continue
        if _is_foreign(entry, own):
            foreign[name] = entry
            continue
        del left[name]
        if not left:
            runs[-1].entries.extend(entries[number + 1 :])
            break
    for name, entry in foreign.items():
        if name in left and left[name].gtid_set <= entry.own_position.gtid_set:
            del left[name]
    if not left:
        return runs, None
    return runs, Position(members=left) if cursor.members else left[""]


def _is_foreign(entry: Entry, cursor: Position) -> bool:
    """Return whether the cursor has no GTID of the entry's server or domain.

    In the log of another server such a transaction may precede transactions that are done.
    """
    transaction, executed = entry.transaction, cursor.gtid_set
    source = transaction.gtid_source
    if source is None or transaction.gtid_base is None or transaction.source == cursor.source:
        return False
    if isinstance(source, tuple):
        return isinstance(executed, MariadbGtidSet) and source[0] not in executed.domains
    return isinstance(executed, MysqlGtidSet) and bool(executed) and not executed.intervals(source)


def is_done(entry: Entry, cursor: Position) -> bool:
    """Return whether an entry lies before a cursor. If that is unknown, return False, so that the entry is delivered again.

    Within one journal the offset of the entry's event decides: a cursor written by canal names a BEGIN and does not prove that
    any row of its transaction is done.
    """
    if cursor.members:
        own = cursor.member(entry.member)
        return own is not None and is_done(entry, own)
    transaction = entry.transaction
    if transaction.journal == cursor.journal and (not cursor.source or cursor.source == transaction.source):
        if cursor.incarnation and transaction.incarnation and cursor.incarnation != transaction.incarnation:
            return False
        offset = max(entry.offset, transaction.offset)
        if cursor.at_event:
            return offset < cursor.offset or offset == cursor.offset and entry.entry_type is not EntryType.TRANSACTIONBEGIN
        if transaction.offset != cursor.offset:
            return offset < cursor.offset
        return not entry.is_end and _is_row_done(entry, cursor.row)
    if cursor.next_gtid and cursor.next_gtid == transaction.gtid:
        return not entry.is_end and _is_row_done(entry, cursor.row)
    if cursor.gtid and transaction.gtid_source is not None and transaction.gtid_base is not None:
        return _is_in(transaction, cursor.gtid_set)
    position = entry.own_position
    is_before, is_after = position.precedes(cursor), cursor.precedes(position)
    if is_before is False and is_after is False:  # the same position by GTIDs: a BEGIN precedes its rows
        return entry.is_end or entry.row_count > 0
    return is_before is True


def is_all_done(entry: Entry, cursor: Position) -> bool:
    """Return whether the entry's whole transaction lies before the cursor.

    For a single entry. ``is_done`` may need the entries before it to know whether the entry belongs to a transaction whose first
    rows are done.
    """
    own = cursor.member(entry.member) if cursor.members else cursor
    return own is not None and is_done(entry, attrs.evolve(own, row=0))


def _is_in(transaction: Transaction, executed: GtidSet) -> bool:
    """Return whether a GTID set contains the GTID of a transaction."""
    source, number = transaction.gtid_source, transaction.gtid_number
    if isinstance(source, tuple):
        return isinstance(executed, MariadbGtidSet) and executed.contains(source[0], source[1], number)
    return isinstance(executed, MysqlGtidSet) and source is not None and executed.contains(source, number)


def _is_row_done(entry: Entry, rows: int) -> bool:
    """Return whether an entry lies within the first rows of its transaction. A BEGIN precedes them."""
    row = entry.first_row + entry.skip_rows + entry.row_count
    return row < rows or (row == rows and entry.row_count > 0)
