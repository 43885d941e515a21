"""Entries: what the library delivers. Compiled if a C compiler was present at install time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canal.errors import DecodeError
from canal.model.kinds import EntryType, EventType
from canal.model.row import ChangedRow, RowData, changed_rows
from canal.model.table import TableMap
from canal.model.transaction import Transaction
from canal.position import Position

if TYPE_CHECKING:
    from canal._util import interpreted as cython
else:
    try:
        import cython
    except ModuleNotFoundError:
        from canal._util import interpreted as cython

if TYPE_CHECKING:
    from canal.rows.values import JsonDiff
    from canal.schema import TableSchema
    from canal.statement import Statement

_MILLISECONDS = 1000  # of a second; a Python integer, so that no C arithmetic overflows


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


def decode_rows(entry: Entry, json_text: bool = False) -> list[ChangedRow]:
    """The changed rows; with ``json_text`` JSON is text also where the instance gives objects."""
    table = entry.table
    if table is None:
        return []
    before, after = decode_images(entry, json_text)
    return changed_rows(before, after, table.names)


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
