"""XA transactions: rows are logged before the decision about them.

Never delivers a row before XA COMMIT. Never compiled, because XA is rare.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from canal.binlog import event_layout as layout
from canal.binlog.event_types import QUERY
from canal.errors import DecodeError, PositionLostError, SourceError, UnsupportedError
from canal.model import Entry, EntryType, Transaction
from canal.parse.log.assembly import Assembly
from canal.parse.log.context import LogContext
from canal.parse.log.events import parse_xa_prepare
from canal.parse.log.statements import rollback
from canal.parse.log.states import Move, TransactionState
from canal.position import PreparedXa
from canal.rows import wire
from canal.statement import Statement, Verb

log = logging.getLogger("canal.parse")

_ROWDATA = EntryType.ROWDATA
#: Maximum prepared XA transactions in a position. The rows of others must be searched for.
_MOST_PREPARED = 500


class XaTransactions:
    """The held rows of prepared transactions, up to the size of a piece. ``Assembly.prepared`` has the positions of all.

    Args:
        read_again: ``(PreparedXa, offset) -> events``: the log from the start of a prepared XA transaction, starting with
            the FORMAT_DESCRIPTION. An empty ``journal`` means only that the start is before ``offset``.

    Attributes:
        held_bytes: size of the held rows.
        replayed, replayed_rows: in a decoder that reads a prepared transaction again: the xid after XA PREPARE, and the
            number of rows.
    """

    def __init__(self, read_again: Callable[[PreparedXa, int], Iterator[bytes]] | None) -> None:
        self._read_again = read_again
        self._has_told = False
        self.replayed: str | None = None
        self.replayed_rows = 0
        self.reset()

    def reset(self) -> None:
        """Drop the held rows."""
        self._held: dict[str, tuple[list[Entry], int, int]] = {}
        self.held_bytes = 0

    def take(self, decoder: LogContext, data: bytes, start: int, statement: Statement) -> None:
        """Process an XA statement."""
        assembly, verb = decoder.assembly, statement.verb
        if verb == Verb.XA_START:
            if assembly.txn is None:  # otherwise MariaDB's GTID has opened the transaction
                decoder.open(data, len(data), start).thread_id = wire.u32(data, layout.QUERY_THREAD)
            assembly.move(Move.ENTER_XA)
            return
        if verb == Verb.XA_END:
            return
        if not statement.xid:
            raise DecodeError(
                "cannot parse the identifier of an XA transaction",
                event_type=QUERY,
                remedy="Nothing was skipped. Please report this with the log.",
            )
        if assembly.txn is not None:
            # Not prepared: MySQL logs ROLLBACK of statements that it cannot undo.
            if verb == Verb.XA_ROLLBACK and assembly.state in (TransactionState.XA, TransactionState.RELEASED):
                self.replayed = statement.xid
                if assembly.state == TransactionState.RELEASED:
                    assembly.let_go()
                    own = PreparedXa(statement.xid, assembly.txn.journal, assembly.txn.offset)
                    self._read_log(decoder, assembly.txn, own, start, is_committed=False)
                rollback(decoder, data, start, statement)
                return
            raise DecodeError(f"XA transaction {statement.xid} ends inside {assembly.txn!r}", event_type=QUERY)
        prepared = next((one for one in assembly.prepared if one.xid == statement.xid), None)
        txn = decoder.open(data, len(data), start)
        if verb == Verb.XA_COMMIT and (prepared is not None or not decoder.follow_only):
            self._deliver(decoder, txn, prepared or PreparedXa(statement.xid, "", 0), start, is_committed=True)
        elif prepared is not None:
            try:
                self._deliver(decoder, txn, prepared, start, is_committed=False)
            except (PositionLostError, UnsupportedError) as error:
                log.warning(
                    "[%s] XA transaction %s is rolled back, but it cannot be read again to check whether statements changed "
                    "tables without transactions: %s",
                    decoder.destination,
                    statement.xid,
                    error,
                )
        self._finish(decoder, txn, data, start, "XA COMMIT" if verb == Verb.XA_COMMIT else "XA ROLLBACK", statement.xid, None)

    def prepare(self, decoder: LogContext, data: bytes, end: int, start: int) -> None:
        """Process XA_PREPARE: hold the rows until XA COMMIT, and deliver the transaction empty."""
        is_one_phase, xid = parse_xa_prepare(data, end)
        assembly, txn = decoder.assembly, decoder.assembly.txn
        if assembly.is_replay:
            self.replayed = xid
            self.replayed_rows = 0 if txn is None else txn.row_count
            decoder.finish(data, len(data), start)
        elif is_one_phase or txn is None:
            self._forget(assembly, xid)
            if txn is not None:
                txn.xa_end = assembly.prepared
                if assembly.state == TransactionState.RELEASED:
                    assembly.let_go()  # all rows are read again, so drop those after the released ones
                    self._deliver(decoder, txn, PreparedXa(xid, txn.journal, txn.offset), start, is_committed=True)
            decoder.finish(data, len(data), start)
        else:
            held = None
            if assembly.state != TransactionState.RELEASED:
                rows = [entry for entry in assembly.pending if entry.entry_type == _ROWDATA]
                held = (rows, txn.row_count, assembly.pending_bytes)
            assembly.keep([entry for entry in assembly.pending if entry.entry_type != _ROWDATA])
            assembly.pending_bytes = 0
            txn.row_count = 0
            txn.has_rows = False
            self._finish(decoder, txn, data, start, "XA PREPARE", xid, held)

    def _finish(
        self,
        decoder: LogContext,
        txn: Transaction,
        data: bytes,
        start: int,
        what: str,
        xid: str,
        held: tuple[list[Entry], int, int] | None,
    ) -> None:
        """End the open transaction with canal's properties. ``held``: the rows to keep for XA COMMIT; None to keep no rows."""
        assembly = decoder.assembly
        self._forget(assembly, xid)
        if what == "XA PREPARE":
            assembly.prepared += (PreparedXa(xid, txn.journal, txn.offset),)
            if len(assembly.prepared) > _MOST_PREPARED and not decoder.follow_only:
                self._shorten(decoder)
            if held is not None and self.held_bytes + held[2] <= assembly.piece_bytes:
                self._held[xid] = held
                self.held_bytes += held[2]
        txn.xa_end = assembly.prepared
        assembly.mark_xa(what, xid)
        decoder.finish(data, len(data), start)

    def _forget(self, assembly: Assembly, xid: str) -> None:
        """Forget the XA transaction of this name: it has ended, or a new one replaces it."""
        old = self._held.pop(xid, None)
        if old is not None:
            self.held_bytes -= old[2]
        assembly.prepared = tuple(one for one in assembly.prepared if one.xid != xid)

    def _shorten(self, decoder: LogContext) -> None:
        """Forget the oldest prepared transaction: some servers lose prepared transactions in a restart without logging it."""
        assembly = decoder.assembly
        log.log(
            logging.INFO if self._has_told else logging.WARNING,
            "[%s] more than %d XA transactions are prepared: forgetting the position of %s. If it is committed, the log is "
            "searched for the rows. XA RECOVER on the source lists the prepared transactions",
            decoder.destination,
            _MOST_PREPARED,
            assembly.prepared[0].xid,
        )
        self._has_told = True
        assembly.prepared = assembly.prepared[1:]

    def _deliver(self, decoder: LogContext, txn: Transaction, prepared: PreparedXa, start: int, *, is_committed: bool) -> None:
        """Deliver a prepared transaction as part of the open transaction, which decides about it.

        After a rollback, deliver only the statements: they may have changed tables without transactions.
        """
        held = self._held.get(prepared.xid)
        if held is None:
            self._read_log(decoder, txn, prepared, start, is_committed=is_committed)
            return
        _adopt(decoder.assembly, txn, held[0], start, rows=is_committed)
        if is_committed:
            txn.row_count = held[1]

    def _read_log(self, decoder: LogContext, txn: Transaction, prepared: PreparedXa, start: int, *, is_committed: bool) -> None:
        """Do the work of ``_deliver`` by reading the log again."""
        assembly = decoder.assembly
        # The rows of a transaction that commits in one phase keep their offsets.
        offset = None if prepared.offset == txn.offset and prepared.journal == txn.journal else start
        assembly.move(Move.READ_AGAIN)
        if self._read_again is None:
            raise UnsupportedError(
                f"the rows of XA transaction {prepared.xid} are before the start, and this source cannot be read there",
                event_type=QUERY,
                remedy="Start before the XA PREPARE.",
            )
        log.info("[%s] reading XA transaction %s again", decoder.destination, prepared.xid)
        again = decoder.replay(prepared, lambda entries: _adopt(assembly, txn, entries, offset, rows=is_committed))
        try:
            for event in self._read_again(prepared, start):
                again.feed([event])
                if again.xa.replayed is not None:
                    break
            if again.xa.replayed != prepared.xid:
                raise SourceError(
                    f"the log does not have the rows of XA transaction {prepared.xid}, about which {txn!r} decides",
                    remedy="The cursor was taken from another log.",
                )
            if is_committed:
                txn.row_count = again.xa.replayed_rows
        except PositionLostError as error:
            error.behind = decoder.position
            raise
        finally:
            del again  # a stored error keeps this frame alive, and with it the rows


def _adopt(assembly: Assembly, txn: Transaction, entries: list[Entry], offset: int | None, *, rows: bool) -> None:
    """Make entries of a prepared transaction part of the open transaction, with that GTID and the offset of the commit."""
    for entry in entries:
        if entry.entry_type == _ROWDATA and (rows or entry.table is None):
            entry.move(txn, entry.offset if offset is None else offset)
            if not rows:
                assembly.mark_undone(entry, 0)
            txn.has_rows = True
            assembly.ordinal = entry.ordinal
            assembly.add(entry)
