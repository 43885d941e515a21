"""What of the log a query is given, and what it cannot go on after.

Never drops a change of the table's rows silently: what the rows of the log do not tell is an error, or an option says what.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import attrs

from canal.changes.alters import altered, types_from_text, types_text, unfollowed
from canal.changes.reading import is_new
from canal.changes.unlogged import NOT_UNDERSTOOD, altered_by, dropped, statement_of, unlogged
from canal.errors import ConfigError, LostReason, PositionLostError, SchemaError, UnloggedChangeError, UnsupportedError
from canal.formats.change_table import Shape
from canal.formats.spark_types import spark_arrow_type
from canal.model import Entry, EntryType, EventType, Transaction
from canal.position import Position, journal_key
from canal.schema import ColumnSchema, TableSchema
from canal.spark.options import Options

log = logging.getLogger("canal.spark")

_MOST_EPOCHS: Final = 31
_NO_COLUMNS: Final = types_text(())  # of a table that has no rows


class Watch:
    """Decides, entry by entry, what is delivered, and finds what a query cannot go on after.

    Args:
        shape: the columns of the query; None for an envelope, which takes everything.
        options: ``schema_change``, ``on_truncate``, ``statements`` and ``acknowledged``.
        types: the declared types of the columns that the rows before had, as ``Watch.types`` gives them; "" for not known.
        types_at: not "": rows may have come between this position, of which the types are, and where the stream begins.
    """

    def __init__(self, shape: Shape | None, options: Options, types: str = "", types_at: str = "") -> None:
        self._shape = shape
        self._options = options
        self._known = None if shape is None else {field.name: field.type for field in shape.columns}
        self._reached = False  # rows have had just the query's columns
        self._seen: TableSchema | None = None
        self._before = {column.name.lower(): column for column in types_from_text(types)}
        self._name: tuple[str, str] | None = None
        self.types = types
        """Of the last row's columns that the query has, the declared types: what a later ALTER is compared with."""
        self.types_at = types_at

    def delivers(self, entry: Entry) -> bool:
        """Whether an entry is part of the stream.

        Raises:
            SchemaError: the table's columns have changed; a query that is loaded anew has the new ones.
            UnloggedChangeError: rows of the table changed without a word in the log. It comes again at every start.
        """
        if entry.entry_type is not EntryType.ROWDATA:
            return False
        if self._shape is None:
            return True
        if entry.table is None:
            return self._takes_statement(entry)
        if entry.table.schema is not self._seen:
            self._check_columns(entry, entry.table.schema)
            self._seen = table = entry.table.schema
            gone = self._before.keys() - {column.name.lower() for column in table.columns}
            mine = (column for column in table.columns if column.name in (self._known or ()))
            self._remember((*mine, *map(ColumnSchema, sorted(gone))))
            self.types_at = ""
        return True

    def _remember(self, columns: Iterable[ColumnSchema]) -> None:
        """Columns as the rows have them from now on. What was dropped is remembered too: another of its name has other values."""
        self._set({**self._before, **{column.name.lower(): column for column in columns}})

    def _set(self, columns: dict[str, ColumnSchema]) -> None:
        self._before, self.types = columns, types_text(columns.values())

    def _check_columns(self, entry: Entry, table: TableSchema) -> None:
        assert self._shape is not None
        name = (table.schema, table.table)
        self._name = self._name or name
        if name != self._name:
            raise ConfigError(
                f"two tables are named so but for the case of letters: {'.'.join(self._name)} and {'.'.join(name)}",
                remedy="Read them as an envelope, with the option tables.",
            )
        if self._options.schema_change == "keep" or self._known is None:
            return
        columns = self._shape.own(table.columns)
        if what := unfollowed(table.name, list(self._before.values()), columns):
            self._refuse(what, entry, "schemaChange=keep")
        found = {column.name: spark_arrow_type(column) for column in columns}
        if found == self._known:
            self._reached = True
        elif not self._shape.is_past(entry) and (self._reached or not found.items() <= self._known.items()):
            raise SchemaError(
                f"the columns of {table.name} have changed: {_difference(self._known, found)}",
                position=_position(entry),
                remedy="Start the query again (load it anew) to read on with the present columns; if it ends here again, "
                "these rows are older than the present columns: set schemaChange=keep.",
            )

    def _takes_statement(self, entry: Entry) -> bool:
        assert self._shape is not None
        table, options = self._shape.table, self._options
        names = {column.name.lower() for column in table.columns} | self._before.keys()
        what = unlogged(entry, table.schema, table.table, names) or self._altered(entry)
        if not what:
            self._drop(dropped(entry, table.schema, table.table) & names, entry)
            if is_new(entry, table.schema, table.table):
                self._empty()
            return False
        statement = statement_of(entry)
        if statement.kind == "dml" or statement.selects or what.startswith(NOT_UNDERSTOOD):
            option, choice = "onStatement=ignore", options.statements
        elif what.startswith("an ALTER "):
            option, choice = "schemaChange=keep", "ignore" if options.schema_change == "keep" else ""
        else:
            option, choice = "onTruncate=ignore", options.on_truncate
        if choice == "ignore":
            log.warning("%s at %s, which %s passes over", what, _position(entry), option)
            return False
        if choice == "row" and entry.event_type in (EventType.TRUNCATE, EventType.ERASE):
            self._empty()
            return True
        self._refuse(what, entry, option)
        self._before, self.types, self.types_at = {}, "", ""  # the target has all as it is behind this
        return False

    def _empty(self) -> None:
        """The table has no rows whose values an ALTER could change."""
        self._set({})
        self.types_at = ""

    def _altered(self, entry: Entry) -> str:
        """What an ALTER may have changed of values, or that nobody knows that; "" for nothing."""
        assert self._shape is not None
        table = self._shape.table
        chosen = {column.name.lower() for column in table.columns} if self._shape.is_chosen else None
        ask = partial(altered_by, entry, table.schema, table.table, chosen=chosen)
        columns = tuple(column for column in self._before.values() if column.column_type)
        is_known = bool(columns) or self.types == _NO_COLUMNS
        what = ask(attrs.evolve(table, columns=columns)) if is_known else None
        if what or is_known and not self.types_at:
            return altered(table.name, "its columns behind that are not known") if what is None else what
        return altered(table.name, "its columns before that are not known") if ask(None) is None else ""

    def _drop(self, names: set[str], entry: Entry) -> None:
        """Raise SchemaError where the query has columns that were dropped, unless it was loaded since: it has others then."""
        assert self._shape is not None
        table, is_new = self._shape.table, self._shape.since is not None and not self._shape.is_past(entry)
        gone = sorted(names & {column.name.lower() for column in table.columns})
        if gone and is_new and self._options.schema_change != "keep":
            raise SchemaError(
                f"the columns of {table.name} have changed: {', '.join(gone)} was dropped",
                position=_position(entry),
                remedy="Start the query again (load it anew) to read on with the present columns.",
            )
        if names and self.types != _NO_COLUMNS:
            self._remember(ColumnSchema(name) for name in names)

    def _refuse(self, what: str, entry: Entry, option: str) -> None:
        """Raise UnloggedChangeError, unless somebody has taken care of it."""
        position = _position(entry)
        if position in self._options.acknowledged:
            log.warning("%s at %s, which was acknowledged", what, position)
            return
        if self._options.is_bounded:
            remedy = f"Read the range in two, up to this position and from behind it, or pass over such with {option}."
        else:
            is_gone = what.endswith(" was renamed")
            remedy = (_GONE if is_gone else "") + _BRING.format(position=position, option=option)
        raise UnloggedChangeError(what, position=position, remedy=remedy)


_BRING: Final = (
    "Read the table anew (a new checkpoint, a snapshot), or bring the target to the state that the table has behind it and "
    "start the query with acknowledge = {position}; or let such be passed over by {option}."
)
_GONE: Final = "Follow the table's new name, with a new checkpoint and a snapshot. If another table has the old name by now: "


def _difference(known: dict[str, Any], found: dict[str, Any]) -> str:
    parts = [f"{name} is new" for name in found if name not in known]
    parts += [f"{name} is gone" for name in known if name not in found]
    parts += [f"{name} is {kind}, was {known[name]}" for name, kind in found.items() if known.get(name, kind) != kind]
    return ", ".join(parts)


def _position(entry: Entry) -> str:
    return f"{entry.transaction.journal}:{entry.offset}"


class Epochs:
    """Counts how often the source of transactions has become another server, or has given the files of its log other names.

    Args:
        start: behind which the transactions come.
        epoch: that of the start.
    """

    def __init__(self, start: Position, epoch: int) -> None:
        self._source = start.source
        self._base, number = journal_key(start.journal)
        self._position = number, start.offset
        self._epoch = epoch
        self._transaction: Transaction | None = None

    def of(self, transaction: Transaction) -> int:
        """The epoch of the next transaction, or the present one.

        Raises:
            PositionLostError: it lies before one that has come: the log was begun anew; or it comes from another server and has
                no GTID.
            UnsupportedError: the epochs are used up.
        """
        if transaction is not self._transaction:
            self._transaction = transaction
            self._follow(transaction)
        return self._epoch

    def _follow(self, transaction: Transaction) -> None:
        source = transaction.source
        base, number = journal_key(transaction.journal)
        if source != self._source:
            if self._source and transaction.gtid_base is None:
                raise PositionLostError(
                    f"the source is another server, {source}, before {self._source}, and without GTIDs: which of its "
                    "transactions came already cannot be told for sure",
                    reason=LostReason.OTHER_SERVER,
                    position=f"{transaction.journal}:{transaction.offset}",
                    remedy="Go on at the former server, or begin a new checkpoint and copy the table anew.",
                )
            if self._source:
                self._epoch += 1
                log.warning("the source is another server: %s, before %s", source, self._source)
        elif base != self._base:
            if self._base:
                self._epoch += 1
                log.warning("the log goes on in files of another name: %s, before %s", base, self._base)
        elif (number, transaction.offset) < self._position:
            raise PositionLostError(
                f"{transaction!r} comes behind {base} {self._position}: the log was begun anew",
                reason=LostReason.DIVERGED,
                position=f"{transaction.journal}:{transaction.offset}",
                remedy="Begin a new checkpoint and copy the table anew.",
            )
        self._source, self._base, self._position = source, base, (number, transaction.offset)
        if self._epoch > _MOST_EPOCHS:
            raise UnsupportedError(
                f"the source has been another server {self._epoch} times, and _txn holds {_MOST_EPOCHS}",
                remedy="Begin a new checkpoint, and copy the table anew.",
            )
