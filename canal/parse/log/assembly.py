"""Groups entries in log order into whole transactions.

Parses only event headers. Delivers whole transactions, except for pieces of a transaction that is too large to hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import attrs

from canal.binlog import event_layout as layout
from canal.binlog.event_types import QUERY
from canal.errors import GO_ON_AFTER, ConnectionLostError, DecodeError, LostReason, PositionLostError, SourceError
from canal.model.entry import Entry, new_entry
from canal.model.kinds import EntryType, EventType
from canal.model.transaction import Transaction, new_transaction
from canal.parse.log.continuity import Continuity
from canal.parse.log.gtid_run import GtidRun
from canal.parse.log.states import NEXT, REFUSED, Move, TransactionState
from canal.parse.log.tape import Tape
from canal.position import Position
from canal.rows import wire

_BEGIN = EntryType.TRANSACTIONBEGIN
_END = EntryType.TRANSACTIONEND
_ROWDATA = EntryType.ROWDATA
_QUERY = EventType.QUERY
#: The table of moves, and states and moves, as C integers when compiled.
_TABLE = NEXT
_NEXT = _TABLE
_MOVES, _REFUSED = len(Move), REFUSED
_BETWEEN, _XA, _RELEASED = int(TransactionState.BETWEEN), int(TransactionState.XA), int(TransactionState.RELEASED)
_ANNOUNCE, _BEGUN, _RELEASE, _ENDED = int(Move.ANNOUNCE), int(Move.BEGIN), int(Move.RELEASE), int(Move.END)
#: Maximum number of savepoints to keep per transaction: RELEASE SAVEPOINT is not logged, so savepoints never end.
_MOST_SAVEPOINTS = 100_000

#: Returns the ranges of entries that a transaction rolls back later, as ascending ordinals (first, last + 1); None if the
#: source does not support side reads.
LookAhead = Callable[[str, int], Sequence[tuple[int, int]] | None]


class Assembly:
    """The open transaction, and entries of earlier transactions that are not delivered yet.

    Args:
        deliver: called with a non-empty list of entries: whole transactions, except pieces of a very large transaction.
        piece_bytes, piece_entries: a larger transaction is delivered in pieces.
        look_ahead: returns the entries that a transaction rolls back later, see ``BinlogDecoder``.

    Attributes:
        txn: the open transaction; None between transactions.
        run: the GTIDs done.
        tape: digests of transactions, if enabled.
        part: the piece number of new entries.
        ordinal: the number of the next entry in the transaction.
        skip: number of row changes that are done and must be skipped.
        state: a number of ``TransactionState``.
        may_undo: whether the transaction may roll back rows later (ROLLBACK or ROLLBACK TO), according to the GTID event.
        undone: ranges of entries that are rolled back later, as ordinals (first, last + 1); None if unknown.
        taken_back: in a look ahead: the ranges found so far.
        undone_row: the row count at the start of the present range; -1 outside a range.
        prepared: XA transactions that wait for a decision.
        known: (domain, server id, number): done up to these, but the source may send them (MariaDB).
        leaves_out: whether transactions that are done have come.
        timestamp: time of the last transaction, in seconds.
    """

    def __init__(
        self, deliver: Callable[[list[Entry]], None], piece_bytes: int, piece_entries: int, look_ahead: LookAhead | None = None
    ) -> None:
        self._deliver = deliver
        self._look_ahead = look_ahead
        self.piece_bytes = piece_bytes
        self.piece_entries = piece_entries
        self.run = GtidRun()
        self.taken_back: list[tuple[int, int]] | None = None
        self.state = _BETWEEN
        self.txn: Transaction | None = None
        self.tape: Tape | None = None
        self.savepoints: dict[str, tuple[int, int, int]] = {}  # ordinal, row count and piece number
        self.is_replay = False
        self.transaction_count = 0
        self.timestamp = 0
        self.reset(Position(), "", None, None, None)

    def reset(self, position: Position, source: str, executed: Any, tape: Tape | None, continuity: Continuity | None) -> None:
        """Start over with nothing open; see ``BinlogDecoder.reset``."""
        self._source = source
        self._continuity = continuity
        self.is_doubtful = False  # whether to check the continuity when the next transaction begins
        self.known = []
        self.leaves_out = False
        self._done_to = 0
        self.run.reset(executed)
        self.tape = tape
        self.prepared = position.xa
        self._out = []  # whole transactions, and from ``_open_at`` on the entries of the open transaction
        self._open_at = 0
        self._out_bytes = 0
        self.skip = position.row
        self._skip_later = 0
        self._skip_timestamp = position.timestamp // 1000
        self._skip_server = position.server_id
        self._skip_gtid = position.next_gtid
        self.ordinal = 0
        self._xa_mark = None
        self.may_undo = True
        self.drop()

    def move(self, move: int) -> int:
        """Make a move of ``canal.parse.log.states.MOVES`` and return the new state.

        Raises:
            DecodeError: the move is not allowed in the present state. The state does not change.
        """
        state = _NEXT[self.state * _MOVES + move]
        if state == _REFUSED:
            raise DecodeError(
                f"{Move(move).name} in state {TransactionState(self.state).name} of {self.txn!r}",
                remedy="The log is damaged here.",
            )
        self.state = state
        return state

    # -- groups -------------------------------------------------------------------------------------------------------

    def begin_group(self, start: int, source: Any, number: int) -> None:
        """Begin a group at the offset, with this GTID or without any."""
        if self.txn is not None:
            raise DecodeError(f"a transaction begins at offset {start} before {self.txn!r} has ended")
        if self.is_doubtful:
            self.is_doubtful = False
            self._continuity.check()
        self.move(_ANNOUNCE)
        self.may_undo = True
        if self.run.begin(start, source, number):
            self._done_to = 0
            if self._continuity is not None and source is not None and not self.known:
                self._done_to = self._continuity.follow(source, number, self.run.base)

    def is_known(self, txn: Transaction) -> bool:
        """Return whether the source sends a transaction that was already delivered from another server."""
        if txn.is_done:
            return True
        for domain, server, number in self.known:
            if txn.gtid_source == (domain, server) and txn.gtid_number <= number:
                return True
        return False

    # -- one transaction ----------------------------------------------------------------------------------------------

    def begin(self, p: bytes, start: int, journal: str, incarnation: str) -> Transaction:
        """Begin a transaction without a BEGIN entry."""
        if self.state == _BETWEEN:  # without GTIDs, the group begins with this event
            self.begin_group(start, None, 0)
        txn = new_transaction(self._source, journal, self.run.offset, wire.u32(p, layout.SERVER), wire.u32(p, layout.TIME))
        self.run.stamp(txn)
        txn.xa = txn.xa_end = self.prepared
        if self.tape is not None:
            self.tape.stamp(txn)
        txn.before = self.transaction_count
        txn.incarnation = incarnation
        if txn.gtid_source is not None and txn.gtid_number <= self._done_to:
            txn.is_done = self.leaves_out = True
        if self.skip > 0:
            self._check_begin(txn)
        self.move(_BEGUN)
        self.txn = txn
        self.ordinal = 0
        self.part = 1 if self.skip > 0 else 0
        self.timestamp = txn.timestamp
        return txn

    def _check_begin(self, txn: Transaction) -> None:
        """Raise PositionLostError if this is not the transaction of which rows are done."""
        if self.is_known(txn):  # the expected transaction comes later
            self._skip_later, self.skip = self.skip, 0
        elif not self._is_skipped(txn):
            raise PositionLostError(
                f"the cursor is after {self.skip} rows of transaction {self._skip_gtid or '-'} by server "
                f"{self._skip_server} at {self._skip_timestamp}, but the source continues with {txn!r} of server "
                f"{txn.server_id} at {txn.timestamp}",
                reason=LostReason.DIVERGED,
                remedy="The source lost or reordered transactions: undo the delivered rows, then continue with row 0.",
            )

    def _is_skipped(self, txn: Transaction) -> bool:
        if self._skip_gtid and txn.gtid_source is not None:
            return txn.gtid == self._skip_gtid
        return not self._skip_timestamp or (txn.timestamp, txn.server_id) == (self._skip_timestamp, self._skip_server)

    def open(self, p: bytes, size: int, start: int, journal: str, incarnation: str) -> Transaction:
        """Begin a transaction with a BEGIN entry."""
        txn = self.begin(p, start, journal, incarnation)
        entry = new_entry(_BEGIN, _QUERY, txn, b"", start, wire.u32(p, layout.TIME), wire.u32(p, layout.SERVER))
        entry.body_end = size
        entry.first_row = self.skip  # acking a repeated BEGIN must not move the cursor back
        self.add(entry)
        return txn

    def add(self, entry: Entry) -> None:
        """Append an entry to the open transaction."""
        if self.undone_row >= 0 and entry.table is not None:
            self.ordinal += 1
            return
        entry.ordinal = self.ordinal
        self.ordinal += 1
        entry.part = self.part
        self._out.append(entry)
        self.pending_bytes += entry.size
        if self.pending_bytes > self.piece_bytes or len(self._out) - self._open_at > self.piece_entries:
            self._relieve()

    def _relieve(self) -> None:
        """Reduce the open transaction, which is too large to hold."""
        if self.state >= _XA and not self.is_replay:
            self.let_go()
            return
        if self.may_undo and self._look_ahead is not None and self.txn is not None:
            self.may_undo = False
            found = self._look_ahead(self.txn.journal, self.txn.offset)
            if found is not None:
                self._begin_undone(found)
        if self.pending_bytes > self.piece_bytes or len(self._out) - self._open_at > self.piece_entries:
            self._hand_piece()

    def _hand_piece(self) -> None:
        """Deliver the entries of the open transaction so far as a piece."""
        for entry in self.pending:
            entry.last = False
        self.part += 1
        self._pass_on()
        self.flush()

    def let_go(self) -> None:
        """Release the rows of a large XA transaction: they are read again when it is committed."""
        self.keep([one for one in self.pending if one.entry_type == _BEGIN])
        self.pending_bytes = 0
        self.move(_RELEASE)

    def keep(self, entries: list[Entry]) -> None:
        """Replace the open transaction's entries; the caller updates ``pending_bytes``."""
        self._out[self._open_at :] = entries

    @property
    def pending(self) -> list[Entry]:
        """The entries of the open transaction."""
        return self._out[self._open_at :]

    # -- rows that are rolled back ---------------------------------------------------------------------------------------

    def set_savepoint(self, name: str) -> None:
        """Record the position to which ROLLBACK TO this name rolls back."""
        txn = self.txn
        if txn is None:
            return
        self.savepoints.pop(name, None)  # a savepoint that is set again becomes the newest
        self.savepoints[name] = (self.ordinal, txn.row_count, self.part)
        if len(self.savepoints) > _MOST_SAVEPOINTS:
            del self.savepoints[next(iter(self.savepoints))]
        if self.undone and self.undone_row < 0 and self.undone[0][0] <= self.ordinal:
            self.undone_row = txn.row_count

    def undo(self, savepoint: str | None) -> int:
        """Roll back the rows of the open transaction after a savepoint, or all of them; return how many.

        Rows of tables without transactions are in separate groups, so all rows here are undone. Statements stay: they may
        have changed such tables.
        """
        txn = self.txn
        if txn is None:
            return 0
        found = (0, 0, 1 if self.skip > 0 else 0) if savepoint is None else self.savepoints.get(savepoint)
        if found is None:
            raise DecodeError(
                f"ROLLBACK TO {savepoint!r}, which is not among the last {_MOST_SAVEPOINTS} savepoints of {txn!r}",
                event_type=QUERY,
                remedy="Nothing was skipped. Please report this with the log.",
            )
        ordinal, row, part = found
        if self.taken_back is not None:
            self.taken_back[:] = [one for one in self.taken_back if one[0] < ordinal]
            self.taken_back.append((ordinal, self.ordinal))
        elif self.undone and self.ordinal >= self.undone[0][1]:
            del self.undone[0]
            self.undone_row = -1
        if self.state == _RELEASED:
            return 0
        if txn.row_count == row:
            if self.undone is None:
                self._leave_out_rows(ordinal, row)  # marks the statements
            return 0
        if row < self.skip <= txn.row_count or (self.undone is None and part != self.part):
            raise SourceError(f"{txn!r} rolls back rows that are already delivered", remedy=GO_ON_AFTER)
        if self.undone is None:
            self._leave_out_rows(ordinal, row)
        count = txn.row_count - row
        txn.row_count += 1  # counts as a row, so that cursors before and after the rollback differ
        txn.has_rows = self.part > 0 or _ROWDATA in [entry.entry_type for entry in self.pending]
        return count

    def _begin_undone(self, found: Sequence[tuple[int, int]]) -> None:
        """Use the result of a look ahead: drop the rows that are rolled back, present and future."""
        self.undone = [one for one in found if one[1] >= self.ordinal]  # earlier ranges are already rolled back
        if not self.undone or self.undone[0][0] >= self.ordinal:
            return
        first = self.undone[0][0]
        rows = [row for ordinal, row, _ in self.savepoints.values() if ordinal == first]
        self.undone_row = min(rows) if rows else 0
        self._leave_out_rows(first, self.undone_row)

    def _leave_out_rows(self, ordinal: int, row: int) -> None:
        """Drop the undelivered rows from an entry on, and keep the statements among them."""
        kept = []
        for entry in self.pending:
            if entry.ordinal < ordinal or entry.table is None:
                kept.append(entry)
                if entry.ordinal >= ordinal:
                    self.mark_undone(entry, row)
            else:
                self.pending_bytes -= entry.size
        self.keep(kept)

    def mark_undone(self, entry: Entry, row: int) -> None:
        """Mark a statement that is rolled back with the rows from ``row`` on."""
        entry.first_row = max(row, self.skip)  # a cursor after it does not imply that the rows before it were delivered
        if entry.statement is not None:
            entry.statement = attrs.evolve(entry.statement, rolled_back=True)

    # -- ends -----------------------------------------------------------------------------------------------------------

    def finish(self, p: bytes, size: int, start: int, end: int) -> None:
        """End the open transaction with this event, which ends at offset ``end``."""
        txn = self.txn
        if txn is None:
            # A canal cursor is the start of the last END, so a dump from there begins with that event.
            self.run.end()
            self.move(_ENDED)
            return
        if self.undone_row >= 0:  # the look ahead did not find the end of the range
            raise ConnectionLostError(f"{txn!r} was incomplete in the log during the look ahead: it is read again")
        self._check_skipped(txn)
        entry = new_entry(_END, _QUERY, txn, b"", start, wire.u32(p, layout.TIME), wire.u32(p, layout.SERVER))
        entry.body_end = size
        entry.first_row = txn.row_count
        self.timestamp = wire.u32(p, layout.TIME)
        if self._xa_mark is not None:
            entry.props["XA_TYPE"], entry.props["XA_XID"] = self._xa_mark
            self._xa_mark = None
        self._end(txn, entry, end)

    def mark_xa(self, what: str, xid: str) -> None:
        """Add canal's XA properties to the next END."""
        self._xa_mark = (what, xid)

    def finish_with(self, entry: Entry, end: int) -> None:
        """End the open transaction with this entry, a statement that is the whole transaction."""
        txn = self.txn
        if txn is None:
            raise ValueError("no transaction is open")
        self._check_skipped(txn)
        self._end(txn, entry, end)

    def _check_skipped(self, txn: Transaction) -> None:
        if txn.row_count < self.skip:
            raise PositionLostError(
                f"the cursor is after {self.skip} rows of {txn!r}, but that transaction has only {txn.row_count}",
                reason=LostReason.DIVERGED,
                remedy="The cursor was taken from another log: undo the delivered rows, and start over.",
            )

    def _end(self, txn: Transaction, entry: Entry, end: int) -> None:
        entry.ordinal = self.ordinal
        entry.part = self.part
        entry.is_end = True
        txn.end = end
        self._out.append(entry)
        self.pending_bytes += entry.size
        self._pass_on()
        self.transaction_count += 1
        if self.tape is not None and self.tape.is_open:
            self.tape.close(txn)
        self.skip = self._skip_later
        self._skip_later = 0
        self.run.end()
        self._close()
        if self._out_bytes > self.piece_bytes or self._open_at > self.piece_entries:
            self.flush()

    def drop(self) -> None:
        """Drop the open transaction: the source stopped inside it."""
        if self.tape is not None:
            self.tape.drop()
        del self._out[self._open_at :]
        self.pending_bytes = 0
        self.run.drop()
        self._close()

    def _close(self) -> None:
        self.move(_ENDED)
        self.txn = None
        self.part = 0
        self.undone = None
        self.undone_row = -1
        if self.savepoints:
            self.savepoints.clear()

    # -- out ----------------------------------------------------------------------------------------------------------

    def _pass_on(self) -> None:
        """Mark the present entries of the open transaction as ready to deliver."""
        self._open_at = len(self._out)
        self._out_bytes += self.pending_bytes
        self.pending_bytes = 0

    def flush(self) -> None:
        """Deliver the complete entries."""
        whole = self._open_at
        if whole:
            entries = self._out
            self._out = entries[whole:]
            del entries[whole:]
            self._open_at = 0
            self._out_bytes = 0
            self._deliver(entries)

    @property
    def held_bytes(self) -> int:
        """Bytes of the entries that are not delivered."""
        return self.pending_bytes + self._out_bytes
