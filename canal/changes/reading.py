"""Convert entries to changes. A statement that changed rows without logging them raises UnloggedChangeError."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from canal._util.bounded import Recent
from canal.changes.alters import altered, changed_values
from canal.changes.change import Change, Op, Origin, Table, op_of
from canal.changes.unlogged import altered_by, statement_of, touched, unlogged
from canal.errors import ConfigError, UnloggedChangeError
from canal.model import ChangedRow, Entry, EntryType, EventType, Row, decode_rows
from canal.rows.values import JsonText
from canal.schema import TableSchema

_REMEDY: Final = (
    "Bring the target to the state that the table has behind that position, then start the pipe once with "
    "acknowledged=[{position!r}]."
)

#: Schema and table.
_Name = tuple[str, str]


class Reader:
    """Converts the entries of a stream, in order.

    Args:
        is_log: whether statements are changes too. If not, statements that change rows without logging them are errors.
        accepts: whether the stream has the changes of a table, to check the tables of a statement.
        acknowledged: positions (``journal:offset``) of statements that the user has handled in the target.
        json_text: return JSON as the server's text, regardless of the instance's option. Formats and most targets need the text,
            because objects lose information.
    """

    def __init__(
        self,
        *,
        is_log: bool = False,
        accepts: Callable[[str, str], bool] = lambda schema, table: True,
        acknowledged: Collection[str] = (),
        json_text: bool = True,
    ) -> None:
        self._json_text = json_text
        self._is_log = is_log
        self._accepts = accepts
        self._acknowledged = frozenset(acknowledged)
        self._tables: Recent[_Name, tuple[TableSchema, Table]] = Recent()
        self._joined: Recent[str, _Name] = Recent()
        self._undo: deque[tuple[_Name, tuple[TableSchema, Table] | None]] = deque()
        self._forgotten = 0

    def changes(self, entry: Entry) -> Sequence[Change]:
        """The changes of an entry.

        Raises:
            UnloggedChangeError: a statement changed rows that are not in the log.
            DecodeError: the bytes of a row cannot be decoded.
        """
        if entry.entry_type is not EntryType.ROWDATA:
            return ()
        if entry.row_change.schema is None:
            return list(self._statement(entry))
        table = self.table(entry)
        return () if table is None else self.rows(entry, table)

    def mark(self) -> int:
        """Return a mark for ``back`` before the next entry."""
        return self._forgotten + len(self._undo)

    def back(self, mark: int) -> None:
        """Return to ``mark``: the entries after the mark are read again."""
        while self.mark() > mark:
            name, former = self._undo.pop()
            if former is None:
                self._tables.pop(name, None)
            else:
                self._tables[name] = former

    def forget(self, mark: int) -> None:
        """Drop the state before ``mark``."""
        while self._forgotten < mark:
            self._undo.popleft()
            self._forgotten += 1

    def table(self, entry: Entry) -> Table | None:
        """The table of an entry's rows; None if it has none.

        Raises:
            UnloggedChangeError: values were changed that are not in the log, since the last rows of the table.
        """
        table = entry.table
        if table is None or not entry.row_count:
            return None
        schema = table.schema
        found = self._tables.get((schema.schema, schema.table))
        if found is not None and found[0] is schema:
            return found[1]
        return self._table(entry, schema, table.names.names, found)

    def rows(self, entry: Entry, table: Table) -> Sequence[Change]:
        """The changes of an entry of rows. Safe from any thread.

        Raises:
            DecodeError: the bytes of a row cannot be decoded.
        """
        rows = decode_rows(entry, self._json_text)
        if self._json_text and entry.table is not None and not entry.table.decoder.json_text:
            rows = with_json(rows, table)
        origin, op = origin_of(entry), op_of(entry.event_type)
        return [Change(table, op, row.before, row.after, origin, n) for n, row in zip(row_numbers(entry), rows)]

    def _table(self, entry: Entry, schema: TableSchema, names: Sequence[str], found: tuple[TableSchema, Table] | None) -> Table:
        """A table that was not known, or had other columns."""
        name = schema.schema, schema.table
        other = self._joined.get(schema.name, name)
        if other != name and not self._is_log:
            raise ConfigError(
                f"the tables {other} and {name} are both called {schema.name}",
                position=_position(entry),
                remedy="Use a separate pipe for each table, with a separate filter and target: a target cannot tell them apart.",
            )
        self._joined[schema.name] = name
        if found is not None and not self._is_log and (changed := changed_values(found[0].columns, schema.columns)):
            self._refuse(altered(schema.name, changed), _position(entry))
        columns = {column.name: column for column in schema.columns}
        keys = tuple(column.name for column in schema.keys)  # no key if a field filter dropped a key column
        table = Table(
            schema.name,
            schema.name,
            tuple(columns[one] for one in names),
            keys if set(keys) <= set(names) else (),
            database=schema.schema,
        )
        if not schema.name.islower():  # a statement that emptied it may have called it otherwise
            self._forget(name, only_empty=True)
        self._set(name, (schema, table))
        return table

    def _spellings(self, name: _Name) -> list[_Name]:
        """Return the known tables that differ at most in case, which some servers consider the same table."""
        return [one for one in self._tables if (one[0].lower(), one[1].lower()) == (name[0].lower(), name[1].lower())]

    def _forget(self, name: _Name, *, only_empty: bool = False) -> None:
        for one in self._spellings(name):
            if not only_empty or not self._tables[one][0].columns:
                self._set(one, None)

    def _set(self, name: _Name, known: tuple[TableSchema, Table] | None) -> None:
        """Replace the known state of a table."""
        self._undo.append((name, self._tables.get(name)))
        if known is None:
            self._tables.pop(name, None)
        else:
            self._tables[name] = known

    # -- statements -----------------------------------------------------------------------------------------------------

    def _statement(self, entry: Entry) -> Iterator[Change]:
        if self._is_log:
            header = entry.header
            yield self._change(entry, (header.schema, header.table), op_of(entry.event_type))
            return
        for schema, table in touched(entry, self._accepts, [known for known, _ in self._tables.values()]):
            name = schema, table
            what = unlogged(entry, schema, table)
            if what and entry.event_type is EventType.TRUNCATE and not statement_of(entry).doubtful:
                yield self._change(entry, name, Op.TRUNCATE)
                self._set_empty(schema, table)
            elif what := what or self._altered(entry, schema, table):
                self._refuse(what, _position(entry))
                self._forget(name)
            elif is_new(entry, schema, table):
                self._set_empty(schema, table)

    def _altered(self, entry: Entry, schema: str, table: str) -> str:
        """Describe the values that an ALTER may have changed, or why that is unknown. Return "" if no value has changed."""
        known = self._tables.get((schema, table))
        if known is None:
            known = next((self._tables[one] for one in self._spellings((schema, table))), None)
        what, name = altered_by(entry, schema, table, known and known[0]), f"{schema}.{table}"
        if what is None and known is None:
            return altered(name, "no row of it has come since the pipe began, so its columns before that are not known")
        return altered(name, "its columns behind that are not known") if what is None else what

    def _set_empty(self, schema: str, table: str) -> None:
        """Record that a table has no rows, so that an ALTER cannot change values. Skip tables whose name is ambiguous in case."""
        name = schema, table
        is_sure = "".join(name).islower() and self._spellings(name) in ([], [name])
        self._forget(name)
        if is_sure:
            self._set(name, (TableSchema(schema, table, ()), _bare(name)))

    def _change(self, entry: Entry, name: _Name, op: Op) -> Change:
        known = self._tables.get(name)
        table = known[1] if known is not None else _bare(name)
        op = Op.QUERY if op.is_row else op  # the text of an INSERT, UPDATE or DELETE
        sql = (entry.row_change.sql or "").encode("utf-8", "backslashreplace").decode("utf-8")
        return Change(table, op, None, None, origin_of(entry), entry.first_row, sql=sql, statement=entry.header.ordinal)

    def _refuse(self, what: str, position: str) -> None:
        if position not in self._acknowledged:
            raise UnloggedChangeError(what, position=position, remedy=_REMEDY.format(position=position))


def with_json(rows: list[ChangedRow], table: Table) -> list[ChangedRow]:
    """Return the rows with their JSON texts marked as ``JsonText``."""
    numbers = [number for number, column in enumerate(table.columns) if column.base_type == "json"]

    def marked(row: Row | None) -> Row | None:
        if row is None:
            return None
        values = list(row.values())
        for number in numbers:
            if type(values[number]) is str and is_json(values[number]):
                values[number] = JsonText(values[number])
        return Row(tuple(values), table.names)

    return [ChangedRow(marked(row.before), marked(row.after)) for row in rows] if numbers else rows


def is_json(text: str) -> bool:
    """Return whether a text is JSON. MariaDB does not validate the values of JSON columns."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _bare(name: _Name) -> Table:
    """Return a table without known columns. ``own_name`` is "" if a statement names no table."""
    joined = ".".join(name) if name[1] else name[0]
    return Table(joined, joined, database=name[0])


def row_numbers(entry: Entry) -> Sequence[int]:
    """Return the number of each row of ``entry.rows`` within the transaction, counted before any filter."""
    first = entry.first_row + entry.skip_rows
    if entry.selected is None:
        return range(first, first + entry.row_count)
    return [first + number for number in entry.selected]


def is_new(entry: Entry, schema: str, table: str) -> bool:
    """Return whether the statement creates the table without rows."""
    statement = statement_of(entry)
    is_create = entry.event_type is EventType.CREATE and (schema, table) in statement.tables
    return is_create and not (statement.conditional or statement.doubtful or statement.temporary or statement.selects)


def _position(entry: Entry) -> str:
    return f"{entry.transaction.journal}:{entry.offset}"


def origin_of(entry: Entry) -> Origin:
    """Return the origin of an entry's changes."""
    transaction = entry.transaction
    gtid = transaction.gtid
    return Origin(
        gtid or f"{transaction.journal}:{transaction.offset}",
        _position(entry),
        entry.timestamp * 1000,
        gtid,
        entry.server_id,
        transaction.thread_id,
        transaction.xid,
        entry.first_row,
        transaction.row_count if transaction.end else 0,
        entry.is_ddl,
        entry,
    )
