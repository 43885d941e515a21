"""Entries. Compiled if a C compiler was present at install time."""

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

_MILLISECONDS = 1000  # per second; a Python integer, so C arithmetic cannot overflow


@cython.no_gc
@cython.freelist(2048)
@cython.cclass
class Rare:
    """Fields that few entries use: statements, query text, selected rows, user marks."""

    __slots__ = ("selected", "sql", "statement", "query", "group", "props")

    def __init__(self) -> None:
        self.selected: tuple[int, ...] | None = None
        self.sql: str | None = None
        self.statement: Statement | None = None
        self.query: bytes | None = None
        self.group: Any = None
        self.props: dict[str, Any] | None = None

    def copy(self) -> Rare:
        """Return a copy with a separate ``props`` dict."""
        made = Rare()
        made.selected, made.sql, made.statement = self.selected, self.sql, self.statement
        made.query, made.group = self.query, self.group
        made.props = None if self.props is None else self.props.copy()
        return made


@cython.no_gc
@cython.freelist(8192)
@cython.cclass
class Entry:
    """A binlog event: changed rows, a statement, or a transaction boundary.

    Attributes:
        entry_type, event_type: kind of entry and change, as enums with canal's names.
        header: journal, offset, time, schema, table and GTID.
        rows, json_diffs(): the changed rows, decoded on each access. ``header.row_count`` counts rows without decoding.
        row_change: the change in canal's terms, including statement text.
        position: resume position after this entry. In a :class:`canal.parse.GroupParser` it has a position per member.
        member: the group member that produced it.
        transaction: the transaction, shared by all entries in it.
        is_ddl, is_end: true for a statement that changes a schema, and for the last entry in a transaction.
        part, last: a large transaction is delivered in pieces. ``part`` is the piece number from 0, ``last`` is true in the
            last piece.
        size: bytes that the store counts for the entry: the event and the objects around it, rounded up.
        props: a dict for user marks.

    Other attributes are internal to the decoder and may change without notice. ``data`` is the event. BEGIN and END do not
    keep the event; ``body_end`` is the length.
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
        if cython.compiled:  # C fields start as zero and None
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
                made = Rare.__new__(Rare) if cython.compiled else Rare()  # C fields start as None
                if self.rare is None:  # the allocation may run a garbage collection, which can switch threads
                    self.rare = made
            return self.rare

    @property
    def props(self) -> dict[str, Any]:
        """User marks. An XA transaction's END has XA_TYPE and XA_XID, as in canal.

        Do not store the entry or its container here: the reference cycle would never be freed.
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
        """The parsed statement, or None."""
        return None if self.rare is None else self.rare.statement

    @statement.setter
    def statement(self, statement: Statement) -> None:
        self._with_rare().statement = statement

    @property
    def sql(self) -> str | None:
        """Text of the statement, or None."""
        return None if self.rare is None else self.rare.sql

    @sql.setter
    def sql(self, text: str) -> None:
        self._with_rare().sql = text

    @property
    def query(self) -> str | None:
        """Statement text that caused the row changes, if the source logs it."""
        text = None if self.rare is None else self.rare.query
        return None if text is None else str(text, "utf-8", "surrogateescape")

    def set_query(self, text: bytes | None) -> None:
        """Set the query text as logged. Entries for the same statement share the bytes."""
        if text is not None or self.rare is not None:
            self._with_rare().query = text

    @property
    def selected(self) -> tuple[int, ...] | None:
        """Indexes of the delivered rows; None means all rows."""
        return None if self.rare is None else self.rare.selected

    @selected.setter
    def selected(self, numbers: tuple[int, ...] | None) -> None:
        if numbers is not None or self.rare is not None:
            self._with_rare().selected = numbers

    @property
    def group(self) -> Any:
        """The members' positions in a :class:`canal.parse.GroupParser`; None outside a group."""
        return None if self.rare is None else self.rare.group

    @group.setter
    def group(self, standing: Any) -> None:
        self._with_rare().group = standing

    @property
    def header(self) -> Header:
        """Origin: journal, offset, time, schema, table and GTID."""
        return Header(self)

    @property
    def is_ddl(self) -> bool:
        """True for a statement that changes a schema."""
        statement = self.statement
        return statement is not None and statement.kind == "ddl"

    @property
    def row_change(self) -> RowChange:
        """The change in canal's terms: statement text or rows of ``Column`` objects."""
        return RowChange(self)

    @property
    def rows(self) -> list[ChangedRow]:
        """The changed rows, decoded on each access; [] for BEGIN, END and statements."""
        return decode_rows(self)

    def tuples(self) -> tuple[list[tuple[Any, ...]] | None, list[tuple[Any, ...]] | None]:
        """Return the row values before and after the change, as two lists of plain tuples.

        This is the fastest access from Python. Values are in ``column_names`` order. A missing side is None: before an
        INSERT, after a DELETE, and both sides of BEGIN, END and statements.
        """
        return decode_images(self)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Delivered column names; () for BEGIN, END and statements."""
        return () if self.table is None else self.table.names.names

    def json_diffs(self) -> list[dict[str, tuple[JsonDiff, ...]]]:
        """Return the diffs from partial JSON updates in MySQL: for each row, a dict from column name to diffs.

        An unchanged column has (). A column is missing if the log has the complete value, as without
        ``binlog_row_value_options=PARTIAL_JSON``.
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
        """Resume position after this entry."""
        own = self.own_position
        return own if self.group is None else self.group.around(own)

    @property
    def own_position(self) -> Position:
        """Resume position in the source, without other group members."""
        if self.is_end:
            return self.transaction.position_after()
        return self.transaction.position_before(self.first_row + self.skip_rows + self.row_count)

    def position_at(self, row: int) -> Position:
        """Return the resume position after the transaction's first ``row`` row changes."""
        own = self.transaction.position_before(row)
        return own if self.group is None else self.group.around(own)

    @property
    def member(self) -> str:
        """Member name in a :class:`canal.parse.GroupParser`; "" outside a group."""
        return "" if self.group is None else self.group.member

    def move(self, transaction: Transaction, offset: int) -> None:
        """Move the entry from a prepared XA transaction to the transaction that commits it."""
        self.transaction = transaction
        self.offset = offset
        self.is_end = False
        self.last = True  # until the transaction is split into pieces

    def copy(self, transaction: Transaction) -> Entry:
        """Return an independent copy in another transaction. The event bytes are shared."""
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
        """Keep only these rows. ``indexes`` point into ``rows``."""
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
    """Create an ``Entry`` from compiled code without boxing the arguments."""
    made = Entry.__new__(Entry)
    made._set(entry_type, event_type, transaction, data, offset, timestamp, server_id)
    return made


class Header:
    """An entry's origin: a view that is created on access."""

    __slots__ = ("_entry",)

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    @property
    def journal(self) -> str:
        """Name of the binlog file."""
        return self._entry.transaction.journal

    @property
    def offset(self) -> int:
        """Start offset in the journal (64 bits)."""
        return self._entry.offset

    @property
    def ordinal(self) -> int:
        """Index within the transaction, from 0, before filtering."""
        return self._entry.ordinal

    @property
    def server_id(self) -> int:
        """Id of the server where the change originated."""
        return self._entry.server_id

    @property
    def execute_time(self) -> int:
        """Time of the event in milliseconds since 1970 (the source writes whole seconds)."""
        return self._entry.timestamp * _MILLISECONDS

    @property
    def schema(self) -> str:
        """The table's schema. For a statement: the first table's schema, else the database."""
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
        """The table. For a statement: the first table, for RENAME the new name, or "" if the statement names no table."""
        entry = self._entry
        if entry.table is not None:
            return entry.table.schema.table
        statement = entry.statement
        if statement is None:
            return ""
        if statement.renames:  # as canal does
            return statement.renames[0][1][1]
        return statement.tables[0][1] if statement.tables else ""

    @property
    def tables(self) -> tuple[tuple[str, str], ...]:
        """Every (schema, table) in the entry. A statement may name several."""
        entry = self._entry
        if entry.table is not None:
            return ((entry.table.schema.schema, entry.table.schema.table),)
        return () if entry.statement is None else entry.statement.tables

    @property
    def event_type(self) -> EventType:
        """Kind of change."""
        return self._entry.event_type

    @property
    def gtid(self) -> str:
        """The transaction's GTID, or ""."""
        return self._entry.transaction.gtid

    @property
    def props(self) -> dict[str, str]:
        """canal's header properties.

        ``rowsCount`` is the event's row count. With MySQL GTIDs, ``curtGtid``, ``curtGtidSn`` and ``curtGtidLct`` are the
        transaction's GTID, ``sequence_number`` and ``last_committed``.
        """
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
        """Event size in the log, in bytes."""
        entry = self._entry
        return len(entry.data) or entry.body_end

    @property
    def row_flags(self) -> int:
        """Rows event flags; 0 for other entries.

        0x2: foreign key checks are off, so no change cascades. 0x4: unique checks are off. 0x10: MySQL's SQL layer executes
        foreign keys, so cascaded changes are in the log.
        """
        entry = self._entry
        return 0 if entry.table is None else int.from_bytes(entry.data[25:27], "little")

    @property
    def row_count(self) -> int:
        """Delivered rows, counted without decoding."""
        entry = self._entry
        return count_rows([entry])

    def __repr__(self) -> str:
        return f"<Header {self.journal}:{self.offset} {self.schema}.{self.table} {self.event_type.name}>"


def decode_rows(entry: Entry, json_text: bool = False) -> list[ChangedRow]:
    """Return the changed rows. ``json_text=True`` returns JSON as text even if the instance decodes JSON to objects."""
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
    """Return (before, after) pairs of tuples in ``entry.table.names.names`` order.

    ``json_text=True`` returns JSON as text even if the instance decodes JSON to objects.
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
    """Apply ``skip_rows`` and ``selected`` to an event's rows."""
    if entry.skip_rows:
        rows = rows[entry.skip_rows :]
    selected = entry.selected
    return rows if selected is None else [rows[i] for i in selected]


def count_rows(entries: list[Entry]) -> int:
    """Count the delivered rows."""
    rows = 0
    for entry in entries:
        rare = entry.rare
        rows += entry.row_count if rare is None or rare.selected is None else len(rare.selected)
    return rows


class RowChange:
    """A change in canal's terms: SQL text, or rows with canal's ``Column`` objects."""

    __slots__ = ("_entry",)

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    @property
    def event_type(self) -> EventType:
        """Kind of change."""
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
        """The statement that changed the rows, or "" if the source does not log it (ROWS_QUERY, ANNOTATE_ROWS)."""
        return self._entry.query or ""

    @property
    def ddl_schema(self) -> str:
        """The statement's default schema."""
        statement = self._entry.statement
        return "" if statement is None else statement.default_schema

    @property
    def schema(self) -> TableSchema | None:
        """The table's schema at this entry."""
        return None if self._entry.table is None else self._entry.table.schema

    @property
    def rows(self) -> list[ChangedRow]:
        """The changed rows, like ``Entry.rows``."""
        return decode_rows(self._entry)

    @property
    def row_datas(self) -> list[RowData]:
        """The rows in canal's form: text values with JDBC type codes."""
        return self.columns()

    def columns(self, *, labels: bool = False, codes_of_values: bool = False) -> list[RowData]:
        """Return the rows in canal's form, with options as in ``canal.formats.columns.Form``."""
        entry = self._entry
        if entry.table is None:
            return []
        from canal.formats.columns import PLAIN, Form, canal_form

        form = Form(labels, codes_of_values) if labels or codes_of_values else PLAIN
        made = canal_form(entry.table.columns, form, entry.table.schema.columns)
        return [RowData(*made.of(before, after)) for before, after in decode_tuples(entry, json_text=True)]
