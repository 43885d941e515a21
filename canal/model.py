"""What the library delivers: entries, the transactions they belong to, and rows.

Never reads a socket, a file or a clock. Entries are small and undecoded: an entry keeps its own copy of the binlog event,
and rows are decoded each time ``entry.rows`` is asked for. Compiled where a C compiler was there at install time.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from canal.errors import DecodeError
from canal.position import TAIL_BYTES, Position, PreparedXa, position_of

if TYPE_CHECKING:
    from canal._util import interpreted as cython
else:
    try:
        import cython
    except ModuleNotFoundError:
        from canal._util import interpreted as cython

if TYPE_CHECKING:
    from canal.formats.columns import Column
    from canal.gtid import GtidSet
    from canal.rows import decoder as rows_decoder
    from canal.rows.values import JsonDiff
    from canal.schema import TableSchema
    from canal.statement import Statement


#: Whether threads run at the same time here.
_IS_FREE = not getattr(sys, "_is_gil_enabled", lambda: True)()
_MILLISECONDS = 1000  # of a second; a Python integer, so that no C arithmetic overflows


class EntryType(IntEnum):
    """What an entry is; names and numbers are canal's."""

    TRANSACTIONBEGIN = 1
    ROWDATA = 2
    TRANSACTIONEND = 3
    HEARTBEAT = 4
    GTIDLOG = 5


class EventType(IntEnum):
    """What happened; names and numbers are canal's."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    CREATE = 4
    ALTER = 5
    ERASE = 6
    QUERY = 7
    TRUNCATE = 8
    RENAME = 9
    CINDEX = 10
    DINDEX = 11
    GTID = 12
    XACOMMIT = 13
    XAROLLBACK = 14
    MHEARTBEAT = 15


@cython.no_gc
@cython.freelist(2048)
@cython.cclass
class Transaction:
    """One transaction (or one statement outside of any) of the source; shared by all its entries.

    ``journal`` and ``offset`` say where it starts, ``end`` is the offset after its last event (0 until that has come).
    The set of transactions executed before it is kept as ``gtid_base`` (immutable, shared by many transactions) plus the
    run ``gtid_first`` … ``gtid_previous`` of ``gtid_source``, so that following it costs nothing per transaction.

    ``sequence_number`` and ``last_committed`` are MySQL's clock of the journal: this transaction may be applied beside others as
    soon as the one of number ``last_committed`` is done. 0 where the source does not tell: no GTIDs, a GTID with a tag, MariaDB.
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
        self.xa: tuple[PreparedXa, ...] = ()  # the open XA transactions before this one, and after it
        self.xa_end: tuple[PreparedXa, ...] = ()
        self.incarnation = ""  # of the journal, see Position
        if cython.compiled:  # a C object begins with zeros and None
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
        self.before = 0  # transactions that the parser had done when this one began
        self.has_rows = False
        self.tape: bytearray | None = None  # digests of the transactions up to this one, where there are no GTIDs
        self.tape_start = 0  # where those before this one end
        self.tape_end = 0
        self.is_done = False  # it was delivered already, of another server that had it first

    @property
    def gtid(self) -> str:
        """This transaction's own GTID, or "" when the source writes none."""
        source = self.gtid_source
        if source is None:
            return ""
        if isinstance(source, tuple):
            return f"{source[0]}-{source[1]}-{self.gtid_number}"
        return f"{source}:{self.gtid_number}"

    @property
    def name(self) -> str:
        """Its GTID, or journal:offset where the source writes none."""
        return self.gtid if self.gtid_source is not None else f"{self.journal}:{self.offset}"

    def is_same(self, other: Transaction) -> bool:
        """Return whether two objects are one transaction: after a lost connection the rest of a large one has a new object."""
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
        """The set of executed GTIDs as text when the run of this source has come to ``number`` (0: not begun)."""
        base: Any = self.gtid_base  # of the kind that the source is of
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
        """Where to resume when the first ``row`` row changes of this transaction are done."""
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
        """Where to resume when all of this transaction is done."""
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
        """The same as it is now, in a stream in which ``before`` were done when it began."""
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
    """``Transaction(…)`` for compiled code, without boxes around its arguments."""
    made = Transaction.__new__(Transaction)
    made._set(source, journal, offset, server_id, timestamp)
    return made


@cython.no_gc
@cython.freelist(2048)
@cython.cclass
class Rare:
    """What few entries have: statements, the text that caused rows, a selection of rows, the user's own marks."""

    __slots__ = ("selected", "sql", "statement", "query", "group", "props")

    def __init__(self) -> None:
        self.selected: tuple[int, ...] | None = None
        self.sql: str | None = None
        self.statement: Statement | None = None
        self.query: bytes | None = None
        self.group: Any = None
        self.props: dict[str, Any] | None = None

    def copy(self) -> Rare:
        """The same, with marks of its own."""
        made = Rare()
        made.selected, made.sql, made.statement = self.selected, self.sql, self.statement
        made.query, made.group = self.query, self.group
        made.props = None if self.props is None else self.props.copy()
        return made


@cython.no_gc
@cython.freelist(8192)
@cython.cclass
class Entry:
    """One binlog happening as a user sees it: changed rows, a statement, or the begin or end of a transaction.

    Attributes:
        entry_type, event_type: what it is and what happened: enums with canal's names.
        header: journal, offset, time, schema, table, GTID.
        rows, json_diffs(): the changed rows, decoded each time they are asked for; ``header.row_count`` counts them undecoded.
        row_change: the same in canal's terms, and the text of a statement.
        position: where to resume behind it; in a :class:`canal.parse.GroupParser` a position for each of its members.
        member: which of them it is of.
        transaction: the one it belongs to, shared by its entries.
        is_ddl, is_end: whether it is a statement that changes a schema, or ends its transaction.
        part, last: which piece it comes in of a transaction that was too large to wait for its end, from 0, and whether
            that is the last one.
        size: bytes that the store accounts for it: its event and the objects around that, measured and rounded up.
        props: a dict for the user's own marks.

    What else it has belongs to the decoder, and changes without notice. ``data`` is the event; of BEGIN and END it is not kept,
    and ``body_end`` is its length.
    """

    __slots__ = (
        "entry_type",
        "event_type",
        "transaction",
        "table",
        "data",
        "body",
        "body_end",
        "kind",
        "offset",
        "ordinal",
        "timestamp",
        "server_id",
        "row_count",
        "first_row",
        "skip_rows",
        "part",
        "last",
        "is_end",
        "size",
        "rare",
    )

    def __init__(
        self,
        entry_type: EntryType,
        event_type: EventType,
        transaction: Transaction,
        data: bytes,
        offset: int,
        timestamp: int,
        server_id: int,
    ) -> None:
        self._set(entry_type, event_type, transaction, data, offset, timestamp, server_id)

    def _set(
        self,
        entry_type: EntryType,
        event_type: EventType,
        transaction: Transaction,
        data: bytes,
        offset: int,
        timestamp: int,
        server_id: int,
    ) -> None:
        self.entry_type = entry_type
        self.event_type = event_type
        self.transaction = transaction
        self.data = data
        self.offset = offset
        self.timestamp = timestamp
        self.server_id = server_id
        self.last = True
        self.size = len(data) + 256
        if cython.compiled:  # a C object begins with zeros and None
            return
        self.table: TableMap | None = None
        self.body = 0
        self.body_end = 0
        self.kind = 0
        self.ordinal = 0
        self.row_count = 0
        self.first_row = 0
        self.skip_rows = 0
        self.part = 0
        self.is_end = False
        self.rare: Rare | None = None

    def _with_rare(self) -> Rare:
        with cython.critical_section(self):
            if self.rare is None:
                made = Rare.__new__(Rare) if cython.compiled else Rare()  # a C object begins with None
                if self.rare is None:  # making one may run a garbage collection, and with it another thread
                    self.rare = made
            return self.rare

    @property
    def props(self) -> dict[str, Any]:
        """For the user's own marks; of an XA transaction's END it tells XA_TYPE and XA_XID, as canal does.

        Not for the entry itself, nor for what holds it: both would stay in memory for ever.
        """
        rare = self._with_rare()
        with cython.critical_section(rare):
            if rare.props is None:
                made: dict[str, Any] = {}
                if rare.props is None:  # see _with_rare
                    rare.props = made
            return rare.props

    @property
    def statement(self) -> Statement | None:
        """The statement, if it is one."""
        return None if self.rare is None else self.rare.statement

    @statement.setter
    def statement(self, statement: Statement) -> None:
        self._with_rare().statement = statement

    @property
    def sql(self) -> str | None:
        """Text of the statement, if it is one."""
        return None if self.rare is None else self.rare.sql

    @sql.setter
    def sql(self, text: str) -> None:
        self._with_rare().sql = text

    @property
    def query(self) -> str | None:
        """Text of the statement that caused the rows, where the source logs it."""
        text = None if self.rare is None else self.rare.query
        return None if text is None else str(text, "utf-8", "surrogateescape")

    def set_query(self, text: bytes | None) -> None:
        """The text as it was logged; the entries of a statement share it."""
        if text is not None or self.rare is not None:
            self._with_rare().query = text

    @property
    def selected(self) -> tuple[int, ...] | None:
        """Numbers of the rows that are delivered; None: all."""
        return None if self.rare is None else self.rare.selected

    @selected.setter
    def selected(self, numbers: tuple[int, ...] | None) -> None:
        if numbers is not None or self.rare is not None:
            self._with_rare().selected = numbers

    @property
    def group(self) -> Any:
        """How the members of a :class:`canal.parse.GroupParser` stand; None outside of a group."""
        return None if self.rare is None else self.rare.group

    @group.setter
    def group(self, standing: Any) -> None:
        self._with_rare().group = standing

    @property
    def header(self) -> Header:
        """Where it comes from: journal, offset, time, schema, table, GTID."""
        return Header(self)

    @property
    def is_ddl(self) -> bool:
        """True for a statement that changes a schema."""
        statement = self.statement
        return statement is not None and statement.kind == "ddl"

    @property
    def row_change(self) -> RowChange:
        """The change in canal's terms: the text of a statement, or rows of ``Column`` objects."""
        return RowChange(self)

    @property
    def rows(self) -> list[ChangedRow]:
        """The changed rows, decoded now; [] for BEGIN, END and statements."""
        return decode_rows(self)

    def tuples(self) -> tuple[list[tuple[Any, ...]] | None, list[tuple[Any, ...]] | None]:
        """The values of the changed rows as plain tuples: those before the change, and those after it.

        The quickest way to them in Python. Values are in the order of ``column_names``; None stands for the images that there
        are not: before an INSERT, after a DELETE, both of BEGIN, END and statements.
        """
        return decode_images(self)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns that are delivered of the entry's table; () for BEGIN, END and statements."""
        return () if self.table is None else self.table.names.names

    def json_diffs(self) -> list[dict[str, tuple[JsonDiff, ...]]]:
        """What MySQL's partial updates of JSON columns changed: for each of ``rows``, the diffs of such columns by name.

        () of a column that stayed as it was; no column where whole values were logged (``binlog_row_value_options`` is not
        PARTIAL_JSON).
        """
        table = self.table
        if table is None:
            return []
        if self.kind != 3:
            return [{} for _ in range(self.header.row_count)]
        try:
            return _kept(self, table.decoder.diffs(self.data, self.body, self.body_end))
        except DecodeError as error:
            _locate(self, error)
            raise

    @property
    def position(self) -> Position:
        """Where to resume when everything up to and including this entry is done."""
        own = self.own_position
        return own if self.group is None else self.group.around(own)

    @property
    def own_position(self) -> Position:
        """As ``position``, of its own source alone."""
        if self.is_end:
            return self.transaction.position_after()
        return self.transaction.position_before(self.first_row + self.skip_rows + self.row_count)

    def position_at(self, row: int) -> Position:
        """Where to resume when everything up to and including the first ``row`` row changes of its transaction is done."""
        own = self.transaction.position_before(row)
        return own if self.group is None else self.group.around(own)

    @property
    def member(self) -> str:
        """The member of a :class:`canal.parse.GroupParser` that it is of; "" outside of a group."""
        return "" if self.group is None else self.group.member

    def move(self, transaction: Transaction, offset: int) -> None:
        """Make it part of another transaction, which commits what this one has prepared."""
        self.transaction = transaction
        self.offset = offset
        self.is_end = False
        self.last = True  # until a piece is made of it

    def copy(self, transaction: Transaction) -> Entry:
        """The same, of that transaction, with the same bytes: what is done to one of the two is not done to the other."""
        made = new_entry(self.entry_type, self.event_type, transaction, self.data, self.offset, self.timestamp, self.server_id)
        made.table, made.kind = self.table, self.kind
        made.body, made.body_end = self.body, self.body_end
        made.ordinal, made.row_count = self.ordinal, self.row_count
        made.first_row, made.skip_rows = self.first_row, self.skip_rows
        made.part, made.last, made.is_end = self.part, self.last, self.is_end
        made.size = self.size
        made.rare = None if self.rare is None else self.rare.copy()
        return made

    def select(self, indexes: tuple[int, ...]) -> None:
        """Keep only these of the entry's rows (numbers into ``rows``)."""
        kept = self.selected
        self.selected = indexes if kept is None else tuple(kept[i] for i in indexes)

    def __repr__(self) -> str:
        header = self.header
        what = self.event_type.name if self.entry_type == EntryType.ROWDATA else self.entry_type.name
        name = f" {header.schema}.{header.table}" if header.table else ""
        return f"<Entry {what}{name} at {header.journal}:{header.offset}>"


def new_entry(
    entry_type: EntryType,
    event_type: EventType,
    transaction: Transaction,
    data: bytes,
    offset: int,
    timestamp: int,
    server_id: int,
) -> Entry:
    """``Entry(…)`` for compiled code, without boxes around its arguments."""
    made = Entry.__new__(Entry)
    made._set(entry_type, event_type, transaction, data, offset, timestamp, server_id)
    return made


class Header:
    """Where an entry comes from: a view, made when asked for."""

    __slots__ = ("_entry",)

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    @property
    def journal(self) -> str:
        """Name of the binlog file."""
        return self._entry.transaction.journal

    @property
    def offset(self) -> int:
        """Offset at which the event starts in the journal (64 bits)."""
        return self._entry.offset

    @property
    def ordinal(self) -> int:
        """Number of the entry within its transaction, from 0, before any filter."""
        return self._entry.ordinal

    @property
    def server_id(self) -> int:
        """The server on which the change was first made."""
        return self._entry.server_id

    @property
    def execute_time(self) -> int:
        """Time of the event in milliseconds since 1970 (the source writes whole seconds)."""
        return self._entry.timestamp * _MILLISECONDS

    @property
    def schema(self) -> str:
        """The table's schema; of a statement that of the first table it names, else its database."""
        entry = self._entry
        if entry.table is not None:
            return entry.table.schema.schema
        statement = entry.statement
        if statement is None:
            return ""
        if statement.renames:
            return statement.renames[0][1][0]
        if statement.tables:
            return statement.tables[0][0]
        return statement.database or statement.default_schema

    @property
    def table(self) -> str:
        """The table; of a statement the first one that it names, of a RENAME the new name; "" where it names none."""
        entry = self._entry
        if entry.table is not None:
            return entry.table.schema.table
        statement = entry.statement
        if statement is None:
            return ""
        if statement.renames:  # canal names the target
            return statement.renames[0][1][1]
        return statement.tables[0][1] if statement.tables else ""

    @property
    def tables(self) -> tuple[tuple[str, str], ...]:
        """Every (schema, table) that the entry touches; a statement may touch several."""
        entry = self._entry
        if entry.table is not None:
            return ((entry.table.schema.schema, entry.table.schema.table),)
        return () if entry.statement is None else entry.statement.tables

    @property
    def event_type(self) -> EventType:
        """What happened."""
        return self._entry.event_type

    @property
    def gtid(self) -> str:
        """GTID of the entry's own transaction, or ""."""
        return self._entry.transaction.gtid

    @property
    def props(self) -> dict[str, str]:
        """What canal tells beside: ``rowsCount``, the rows of the event; with GTIDs of MySQL ``curtGtid``, ``curtGtidSn`` and
        ``curtGtidLct``: the transaction's own one, its ``sequence_number`` and ``last_committed``."""
        entry = self._entry
        transaction = entry.transaction
        found = {}
        if type(transaction.gtid_source) is str:
            found["curtGtid"] = transaction.gtid
            found["curtGtidSn"] = str(transaction.sequence_number)
            found["curtGtidLct"] = str(transaction.last_committed)
        if entry.table is not None:
            found["rowsCount"] = str(entry.row_count + entry.skip_rows)
        return found

    @property
    def event_length(self) -> int:
        """Bytes of the event in the log."""
        entry = self._entry
        return len(entry.data) or entry.body_end

    @property
    def row_flags(self) -> int:
        """Flags of a rows event: 0x2 foreign keys are off (nothing cascades), 0x4 unique checks are off, 0x10 MySQL's SQL
        layer sees to foreign keys (what cascades is in the log). 0 for other entries."""
        entry = self._entry
        return 0 if entry.table is None else int.from_bytes(entry.data[25:27], "little")

    @property
    def row_count(self) -> int:
        """Rows of the entry that the filters let through; counted without decoding them."""
        entry = self._entry
        return count_rows([entry])

    def __repr__(self) -> str:
        return f"<Header {self.journal}:{self.offset} {self.schema}.{self.table} {self.event_type.name}>"


@cython.no_gc
@cython.freelist(512)
@cython.cclass
class Row:
    """The values of one row, by name or by index: it behaves like ``sqlite3.Row``, but ``"id" in row`` asks for a column.

    Names are compared without regard to case, as the server does. A column that the row image does not hold
    (``binlog_row_image`` MINIMAL or NOBLOB) has the value ``ABSENT``.
    """

    __slots__ = ("_values", "_names")

    def __init__(self, values: tuple[Any, ...], names: ColumnNames) -> None:
        self._values = values
        self._names = names

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._values[self._names.index(key)]
        return self._values[key]

    def __contains__(self, name: object) -> bool:
        """Whether the table has a column of that name."""
        return isinstance(name, str) and self._names.find(name) >= 0

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a column, or ``default`` when the table has no such column."""
        index = self._names.find(name)
        return default if index < 0 else self._values[index]

    def keys(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._names.names)

    def values(self) -> tuple[Any, ...]:
        """The values of the columns, in order."""
        return self._values

    @property
    def key(self) -> tuple[Any, ...] | None:
        """Values of the primary key, in the order of the table. None where the table has none, or not all of it is delivered
        or logged."""
        return self._key_over(None)

    def _key_over(self, former: Row | None) -> tuple[Any, ...] | None:
        """As ``key``, with the values that this image of an updated row lacks from the image before the update."""
        from canal.rows.values import ABSENT

        numbers = self._names.key
        key = tuple([self._values[number] for number in numbers])
        if former is not None and any(value is ABSENT for value in key):
            values = former.values()
            key = tuple([values[number] if self._values[number] is ABSENT else self._values[number] for number in numbers])
        return None if not numbers or any(value is ABSENT for value in key) else key

    def as_dict(self) -> dict[str, Any]:
        """Values by name, in order."""
        return dict(zip(self._names.names, self._values))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Row):
            return self._values == other.values() and list(self._names.names) == other.keys()
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._values)

    def __repr__(self) -> str:
        return "Row(" + ", ".join(f"{n}={v!r}" for n, v in zip(self._names.names, self._values)) + ")"


class ColumnNames:
    """The names of a table's columns in order, with a look-up that ignores case; ``key`` has the numbers of those that tell its
    rows apart. Shared by all rows of a table."""

    __slots__ = ("names", "key", "_index")

    def __init__(self, names: tuple[str, ...], key: tuple[int, ...] = ()) -> None:
        self.names = names
        self.key = key
        self._index = {}
        for number, name in enumerate(names):
            self._index[name] = number
            self._index.setdefault(name.lower(), number)

    def copy(self) -> ColumnNames:
        made = ColumnNames.__new__(ColumnNames)
        made.names, made.key, made._index = self.names, self.key, self._index
        return made

    def find(self, name: str) -> int:
        number = self._index.get(name)
        if number is None:
            number = self._index.get(name.lower(), -1)
        return number

    def index(self, name: str) -> int:
        number = self.find(name)
        if number < 0:
            raise KeyError(f"no column {name!r}; the table has {', '.join(self.names)}")
        return number


def column_names(columns: tuple[Any, ...], shown: tuple[Any, ...]) -> ColumnNames:
    """The names of delivered columns, of those that a table shows; without a key where not all of it is among them."""
    key = tuple([number for number, column in enumerate(columns) if column.key])
    is_whole = len(key) == len([column for column in shown if column.key])
    return ColumnNames(tuple([column.name for column in columns]), key if is_whole else ())


@cython.no_gc
@cython.freelist(512)
@cython.cclass
class ChangedRow:
    """One changed row: ``before`` is None for an insert, ``after`` is None for a delete."""

    __slots__ = ("before", "after")

    def __init__(self, before: Row | None, after: Row | None) -> None:
        self.before = before
        self.after = after

    @property
    def key(self) -> tuple[Any, ...] | None:
        """As ``Row.key``, of the row as it is; of a deleted one as it was.

        What a MINIMAL image after an update leaves out of the key is in the image before it.
        """
        if self.after is None:
            return None if self.before is None else self.before.key
        return self.after._key_over(self.before)

    def __iter__(self) -> Iterator[Row | None]:
        return iter((self.before, self.after))

    def __repr__(self) -> str:
        return f"ChangedRow(before={self.before!r}, after={self.after!r})"


def decode_rows(entry: Entry, json_text: bool = False) -> list[ChangedRow]:
    """The changed rows; with ``json_text`` JSON is text also where the instance gives objects."""
    table = entry.table
    if table is None:
        return []
    names = table.names
    before, after = decode_images(entry, json_text)
    rows: Any = before if after is None else after  # each row replaces its values
    if _IS_FREE and len(rows) > 8:  # or the count of its references passes from core to core with each row
        names = names.copy()
    for i in range(len(rows)):
        row = ChangedRow.__new__(ChangedRow)
        row.before = None if before is None else _row(before[i], names)
        row.after = None if after is None else _row(after[i], names)
        rows[i] = row
    return rows


def decode_images(entry: Entry, json_text: bool = False) -> tuple[list[tuple[Any, ...]] | None, list[tuple[Any, ...]] | None]:
    table = entry.table
    if table is None:
        return None, None
    decoder = table.decoder
    if decoder is None:
        raise TypeError(f"{table!r} has no decoder of rows")
    if json_text:
        decoder = decoder.text_form
    try:
        images = decoder.images(entry.data, entry.body, entry.body_end, entry.kind)
    except DecodeError as error:
        _locate(entry, error)
        raise
    if entry.skip_rows or entry.rare is not None:
        before, after = images
        return None if before is None else _kept(entry, before), None if after is None else _kept(entry, after)
    return images


def _row(values: tuple[Any, ...], names: ColumnNames) -> Row:
    row = Row.__new__(Row)
    row._values = values
    row._names = names
    return row


def decode_tuples(entry: Entry, json_text: bool = False) -> list[tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]]:
    """The quickest way to the values: (before, after) tuples in the order of ``entry.table.names.names``.

    With ``json_text`` JSON is text also where the instance gives objects.
    """
    table = entry.table
    if table is None:
        return []
    decoder = table.decoder.text_form if json_text else table.decoder
    try:
        return _kept(entry, decoder.decode(entry.data, entry.body, entry.body_end, entry.kind))
    except DecodeError as error:
        _locate(entry, error)
        raise


def _locate(entry: Entry, error: DecodeError) -> None:
    table = entry.table
    assert table is not None
    error.position = error.position or f"{entry.transaction.journal}:{entry.offset}"
    error.table = error.table or f"{table.schema.schema}.{table.schema.table}"


def _kept(entry: Entry, rows: list[Any]) -> list[Any]:
    """What skipping and selecting leave of the rows of an entry's event."""
    if entry.skip_rows:
        rows = rows[entry.skip_rows :]
    selected = entry.selected
    return rows if selected is None else [rows[i] for i in selected]


def count_rows(entries: list[Entry]) -> int:
    """Rows of the entries that the filters let through."""
    rows = 0
    for entry in entries:
        rare = entry.rare
        rows += entry.row_count if rare is None or rare.selected is None else len(rare.selected)
    return rows


class RowChange:
    """An entry's change in canal's terms: SQL text of statements, or rows with canal's ``Column`` objects."""

    __slots__ = ("_entry",)

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    @property
    def event_type(self) -> EventType:
        """What happened."""
        return self._entry.event_type

    @property
    def is_ddl(self) -> bool:
        """True for a statement that changes a schema."""
        return self._entry.is_ddl

    @property
    def sql(self) -> str:
        """Text of the statement, or "" for row data."""
        return self._entry.sql or ""

    @property
    def query(self) -> str:
        """The statement that caused these rows, where the source logs it (ROWS_QUERY, ANNOTATE_ROWS), or ""."""
        return self._entry.query or ""

    @property
    def ddl_schema(self) -> str:
        """The default schema in which a statement ran."""
        statement = self._entry.statement
        return "" if statement is None else statement.default_schema

    @property
    def schema(self) -> TableSchema | None:
        """The table's columns as of this entry."""
        return None if self._entry.table is None else self._entry.table.schema

    @property
    def rows(self) -> list[ChangedRow]:
        """The changed rows, as ``Entry.rows``."""
        return decode_rows(self._entry)

    @property
    def row_datas(self) -> list[RowData]:
        """The rows as canal gives them: text values with JDBC type codes."""
        return self.columns()

    def columns(self, *, labels: bool = False, codes_of_values: bool = False) -> list[RowData]:
        """The rows as canal gives them, in another form: see ``canal.formats.columns.Form``."""
        entry = self._entry
        if entry.table is None:
            return []
        from canal.formats.columns import PLAIN, Form, canal_form

        form = Form(labels, codes_of_values) if labels or codes_of_values else PLAIN
        made = canal_form(entry.table.columns, form, entry.table.schema.columns)
        return [RowData(*made.of(before, after)) for before, after in decode_tuples(entry, json_text=True)]


class RowData:
    """canal's form of one changed row: lists of ``Column``."""

    __slots__ = ("before_columns", "after_columns")

    def __init__(self, before_columns: list[Column], after_columns: list[Column]) -> None:
        self.before_columns = before_columns
        self.after_columns = after_columns

    def __repr__(self) -> str:
        return f"RowData(before_columns={self.before_columns!r}, after_columns={self.after_columns!r})"


class TableMap:
    """A table as one TABLE_MAP announced it: its schema at that position and the decoder of its rows.

    ``columns`` and ``names`` hold the columns that are delivered; ``accepted`` is the filter's decision; ``digest`` stands
    for the table in digests of transactions; ``size`` are the bytes that no entry accounts for yet.
    """

    __slots__ = ("schema", "columns", "names", "decoder", "accepted", "digest", "size")

    def __init__(
        self,
        schema: TableSchema,
        columns: tuple[Any, ...],
        decoder: rows_decoder.RowDecoder | None,
        accepted: bool,
        names: ColumnNames | None = None,
        size: int = 0,
    ) -> None:
        self.schema = schema
        self.columns = columns
        self.names = column_names(columns, schema.columns) if names is None else names
        self.size = size
        self.decoder: rows_decoder.RowDecoder = decoder  # type: ignore[assignment]  # None: the rows are not accepted
        self.accepted = accepted
        self.digest = zlib.crc32(f"{schema.schema}.{schema.table}".encode("utf-8", "surrogateescape"))

    def __repr__(self) -> str:
        return f"<TableMap {self.schema.schema}.{self.schema.table}>"
