"""Transactions. Compiled if a C compiler was present at install time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canal.position import TAIL_BYTES, Position, PreparedXa, position_of

if TYPE_CHECKING:
    from canal._util import interpreted as cython
else:
    try:
        import cython
    except ModuleNotFoundError:
        from canal._util import interpreted as cython

if TYPE_CHECKING:
    from canal.gtid import GtidSet


@cython.no_gc
@cython.freelist(2048)
@cython.cclass
class Transaction:
    """A source transaction, or a statement outside a transaction; shared by all entries in it.

    It starts at ``journal`` and ``offset``. ``end`` is the offset after the last event, 0 until that event is read.
    ``gtid_base`` (immutable, shared) plus the run ``gtid_first`` to ``gtid_previous`` from ``gtid_source`` are the GTIDs
    executed before it. This representation costs no work per transaction.

    ``sequence_number`` and ``last_committed`` are MySQL's logical clock in the journal. A transaction may be applied in parallel
    with others once transaction ``last_committed`` is done. Both are 0 without GTIDs, for tagged GTIDs, and for MariaDB.
    """

    __slots__ = (
        "source",
        "journal",
        "offset",
        "end",
        "server_id",
        "timestamp",
        "gtid_source",
        "gtid_number",
        "gtid_first",
        "gtid_previous",
        "gtid_base",
        "thread_id",
        "xid",
        "row_count",
        "has_rows",
        "xa",
        "xa_end",
        "before",
        "tape",
        "tape_start",
        "tape_end",
        "incarnation",
        "is_done",
        "last_committed",
        "sequence_number",
    )

    def __init__(self, source: str, journal: str, offset: int, server_id: int, timestamp: int) -> None:
        self._set(source, journal, offset, server_id, timestamp)

    def _set(self, source: str, journal: str, offset: int, server_id: int, timestamp: int) -> None:
        self.source = source
        self.journal = journal
        self.offset = offset
        self.server_id = server_id
        self.timestamp = timestamp
        self.xa: tuple[PreparedXa, ...] = ()  # open XA transactions before and after this transaction
        self.xa_end: tuple[PreparedXa, ...] = ()
        self.incarnation = ""  # see Position
        if cython.compiled:  # C fields start as zero and None
            return
        self.end = 0
        self.gtid_source: str | tuple[int, int] | None = None  # a UUID, or MariaDB's (domain, server id)
        self.gtid_number = 0
        self.gtid_first = 0
        self.gtid_previous = 0
        self.gtid_base: GtidSet | None = None
        self.last_committed = 0
        self.sequence_number = 0
        self.thread_id = 0
        self.xid = 0
        self.row_count = 0
        self.before = 0  # number of transactions that the parser completed earlier
        self.has_rows = False
        self.tape: bytearray | None = None  # digests of transactions, for sources without GTIDs
        self.tape_start = 0  # end of the digests before this transaction
        self.tape_end = 0
        self.is_done = False  # already delivered from another server of a group

    @property
    def gtid(self) -> str:
        """The GTID, or "" if the source writes none."""
        source = self.gtid_source
        if source is None:
            return ""
        if isinstance(source, tuple):
            return f"{source[0]}-{source[1]}-{self.gtid_number}"
        return f"{source}:{self.gtid_number}"

    @property
    def name(self) -> str:
        """GTID, or journal:offset if the source writes no GTID."""
        return self.gtid if self.gtid_source is not None else f"{self.journal}:{self.offset}"

    def is_same(self, other: Transaction) -> bool:
        """Return whether both are the same transaction. After a reconnect, the rest in a large transaction has a new object."""
        if self is other:
            return True
        if self.gtid_source is not None and other.gtid_source is not None:
            return self.gtid_number == other.gtid_number and self.gtid_source == other.gtid_source
        return (
            self.offset == other.offset
            and self.journal == other.journal
            and self.incarnation == other.incarnation
            and self.source == other.source
        )

    def executed(self, number: int) -> str:
        """Return the executed GTIDs as text, with this source's run up to ``number`` (0: no run)."""
        base: Any = self.gtid_base  # type depends on the flavor
        if base is None:
            return ""
        source = self.gtid_source
        if source is not None and number:
            if isinstance(source, tuple):
                base = base.add(source[0], source[1], number)
            else:
                base = base.add(source, self.gtid_first, number)
        return str(base)

    def _tail(self, end: int) -> str:
        return "" if self.tape is None else self.tape[max(end - TAIL_BYTES, 0) : end].hex()

    def position_before(self, row: int) -> Position:
        """Return the resume position after the first ``row`` row changes."""
        gtid = self.executed(self.gtid_previous)
        return position_of(
            self.journal,
            self.offset,
            gtid,
            row,
            self.timestamp * 1000,
            self.server_id,
            self.source,
            self.xa,
            self._tail(self.tape_start),
            self.incarnation,
            self.gtid if row else "",
        )

    def position_after(self) -> Position:
        """Return the resume position after this transaction."""
        gtid = self.executed(self.gtid_number)
        return position_of(
            self.journal,
            self.end,
            gtid,
            0,
            self.timestamp * 1000,
            self.server_id,
            self.source,
            self.xa_end,
            self._tail(self.tape_end),
            self.incarnation,
        )

    def copy(self, before: int) -> Transaction:
        """Return a copy for a stream in which ``before`` transactions precede it."""
        made = new_transaction(self.source, self.journal, self.offset, self.server_id, self.timestamp)
        made.end = self.end
        made.gtid_source, made.gtid_number, made.gtid_base = self.gtid_source, self.gtid_number, self.gtid_base
        made.gtid_first, made.gtid_previous = self.gtid_first, self.gtid_previous
        made.last_committed, made.sequence_number = self.last_committed, self.sequence_number
        made.thread_id, made.xid = self.thread_id, self.xid
        made.row_count, made.has_rows = self.row_count, self.has_rows
        made.before = before
        made.xa, made.xa_end = self.xa, self.xa_end
        made.tape, made.tape_start, made.tape_end = self.tape, self.tape_start, self.tape_end
        made.incarnation, made.is_done = self.incarnation, self.is_done
        return made

    def __repr__(self) -> str:
        return f"<Transaction {self.gtid or '-'} at {self.journal}:{self.offset}>"


def new_transaction(source: str, journal: str, offset: int, server_id: int, timestamp: int) -> Transaction:
    """Create a ``Transaction`` from compiled code without boxing the arguments."""
    made = Transaction.__new__(Transaction)
    made._set(source, journal, offset, server_id, timestamp)
    return made
