"""What of a store's entries is for one client: what it has not acked in an earlier life, and what its filter lets through.

Never changes anything: from where a client stands and the entries behind it follows where it stands next.
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
    """Where a client stands between two entries of the store. To go back is to take an older one."""

    start: int
    """Sequence of the next entry."""
    position: Position
    """Behind what is done: the cursor, once it is acked."""
    done: int = 0
    """Transactions of the parser that are done."""
    skip: Position | None = None
    """Entries up to here were acked in an earlier life."""
    open: Transaction | None = None
    """The transaction that was handed out in part."""
    begin: Entry | None = None
    """BEGIN of the last transaction, when nothing of it has passed the client's filter yet."""
    feed: Feed | None = None
    """What ``start`` counts the entries of; None: whoever reads on has to open one at ``position``."""


class Narrowing:
    """A filter behind that of the parser: a client's, or an output's."""

    def __init__(self, text: str, black: str = "") -> None:
        self.text = text
        self._tables = TableFilter(text, black) if text or black else None
        self._accepted = Recent[tuple[str, str], bool]()

    def of(self, slice: Slice, reading: ReadPosition) -> tuple[list[Entry], ReadPosition]:
        """Those entries of the slice from there on that are to be handed out, and where the client stands behind it."""
        entries, skip = slice.entries, reading.skip
        if skip is not None:
            entries = unskipped(entries, skip)
            if not entries:
                return entries, reading._replace(start=slice.end, begin=None)
            skip = _left(skip, entries)
        held = reading.begin
        if held is not None and entries[0].entry_type is not EntryType.TRANSACTIONBEGIN:
            if _same(entries[0].transaction, held.transaction):
                entries = [held, *entries]
        last, begin, is_open = entries[-1], None, reading.open
        if self._tables is not None:
            entries, begin = self._narrowed(entries, reading.open)
        if entries:
            is_open = None if entries[-1].is_end else entries[-1].transaction
        done = last.transaction.before + last.is_end
        position = last.position
        if skip is not None and skip.members:
            position = Position(members={**dict(position.members), **dict(skip.members)})
        return entries, ReadPosition(slice.end, position, done, skip, is_open, begin, reading.feed)

    def _narrowed(self, entries: list[Entry], is_open: Transaction | None) -> tuple[list[Entry], Entry | None]:
        """What passes the filter, with BEGIN and END of just those transactions of which something passes; and the BEGIN of
        the last one where something of it may still come."""
        wanted = [entry.entry_type is EntryType.ROWDATA and self.accepts(entry) for entry in entries]
        alive = {id(entry.transaction) for entry, want in zip(entries, wanted) if want}
        if is_open is not None and _same(entries[0].transaction, is_open):
            alive.add(id(entries[0].transaction))
        last, begin = entries[-1], None
        if not last.is_end and id(last.transaction) not in alive:
            begins = (e for e in entries if e.entry_type is EntryType.TRANSACTIONBEGIN)
            begin = next((e for e in begins if e.transaction is last.transaction), None)
        passed = [
            entry
            for entry, want in zip(entries, wanted)
            if want or (entry.entry_type is not EntryType.ROWDATA and id(entry.transaction) in alive)
        ]
        return passed, begin

    def accepts(self, entry: Entry) -> bool:
        """Whether rows or a statement pass."""
        tables = self._tables
        if tables is None or entry.statement is not None and entry.statement.doubtful:  # which may be about any table
            return True
        for name in entry.header.tables or ((entry.header.schema, ""),):
            decision = self._accepted.get(name)
            if decision is None:
                decision = self._accepted[name] = tables.accepts(*name)
            if decision:
                return True
        return False


def unskipped(entries: list[Entry], cursor: Position) -> list[Entry]:
    """Leave out what a client acked before a restart, when the parser had to begin earlier for another client."""
    if cursor.members:  # they are merged anew after a restart
        return [entry for entry in entries if not is_done(entry, cursor)]
    kept: list[Entry] = []
    for number, entry in enumerate(entries):
        if not is_done(entry, cursor):
            if not _is_foreign(entry, cursor):
                return kept + entries[number:]
            kept.append(entry)
            cursor = _whole(cursor)
    return kept


def _is_foreign(entry: Entry, cursor: Position) -> bool:
    """Whether it is of a server, or a domain, of which the cursor's GTIDs have nothing: in the log of another server such a
    transaction may stand before others that are done."""
    transaction, executed = entry.transaction, cursor.gtid_set
    source = transaction.gtid_source
    if source is None or transaction.gtid_base is None or transaction.source == cursor.source:
        return False
    if isinstance(source, tuple):
        return isinstance(executed, MariadbGtidSet) and source[0] not in executed.domains
    return isinstance(executed, MysqlGtidSet) and bool(executed) and not executed.intervals(source)


def _whole(cursor: Position) -> Position:
    """Without the rows of the next transaction: behind a foreign one nobody knows which that is, and it comes again."""
    return attrs.evolve(cursor, row=0) if cursor.row else cursor


def _left(skip: Position, entries: list[Entry]) -> Position | None:
    """What is still to be left out behind entries that are not done: of members that have none of these, and of a stream
    that has given foreign ones only."""
    if not skip.members:
        last = entries[-1]
        is_left = _is_foreign(last, skip) and not skip.gtid_set <= last.own_position.gtid_set
        return _whole(skip) if is_left else None
    begun = {entry.member for entry in entries}
    members = {name: one for name, one in skip.members if name not in begun}
    return Position(members=members) if members else None


def is_done(entry: Entry, cursor: Position) -> bool:
    """Whether an entry lies before a cursor. What cannot be told does not, and comes again.

    In one journal the offset of the entry's own event counts: a cursor of canal's own, which names a BEGIN, does not say
    that anything of its transaction is done.
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
    if cursor.gtid and transaction.gtid_source is not None and transaction.gtid_base is not None:
        return _is_in(transaction, cursor.gtid_set) or _is_next(entry, cursor) and _is_row_done(entry, cursor.row)
    position = entry.own_position
    is_before, is_behind = position.precedes(cursor), cursor.precedes(position)
    if is_before is False and is_behind is False:  # the same position, by GTIDs: a BEGIN stands before its rows
        return entry.is_end or entry.row_count > 0
    return is_before is True


def is_all_done(entry: Entry, cursor: Position) -> bool:
    """As ``is_done`` of its whole transaction. For an entry that stands alone: whether it is of the transaction of which some
    rows are done can only be told in another journal where all before it is known."""
    own = cursor.member(entry.member) if cursor.members else cursor
    return own is not None and is_done(entry, attrs.evolve(own, row=0))


def _is_in(transaction: Transaction, executed: GtidSet) -> bool:
    """Whether a set of GTIDs has that of a transaction."""
    source, number = transaction.gtid_source, transaction.gtid_number
    if isinstance(source, tuple):
        return isinstance(executed, MariadbGtidSet) and executed.contains(source[0], source[1], number)
    return isinstance(executed, MysqlGtidSet) and source is not None and executed.contains(source, number)


def _is_next(entry: Entry, cursor: Position) -> bool:
    """Whether an entry is of the transaction of which a cursor says that some rows are done."""
    one = entry.transaction
    made = one.timestamp * 1000, one.server_id
    return cursor.row > 0 and not entry.is_end and (not cursor.timestamp or made == (cursor.timestamp, cursor.server_id))


def _is_row_done(entry: Entry, rows: int) -> bool:
    """Whether an entry lies within the first rows of its transaction; a BEGIN stands before them."""
    row = entry.first_row + entry.skip_rows + entry.row_count
    return row < rows or (row == rows and entry.row_count > 0)


def _same(one: Transaction, other: Transaction) -> bool:
    """Whether two objects are one transaction: after a lost connection the rest of a large one comes with a new object."""
    return one is other or (one.journal, one.offset, one.source) == (other.journal, other.offset, other.source)
