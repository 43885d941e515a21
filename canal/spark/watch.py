"""What of the log a query is given, and what it cannot go on after.

Never drops a change of the table's rows silently: what the rows of the log do not tell is an error, or an option says what.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from canal.errors import ConfigError, LostReason, PositionLostError, SchemaError, UnsupportedError
from canal.model import Entry, EntryType, EventType, Transaction
from canal.parse.ddl import END, WORD, Scanner
from canal.position import Position, journal_key
from canal.schema import TableSchema
from canal.spark.alters import changed_values
from canal.spark.options import Options
from canal.spark.types import Shape, spark_arrow_type

log = logging.getLogger("canal.spark")

_MOST_EPOCHS: Final = 31


class Watch:
    """Decides, entry by entry, what is delivered, and finds what a query cannot go on after.

    Args:
        shape: the columns of the query; None for an envelope, which takes everything.
        options: ``schema_change``, ``on_truncate`` and ``statements``.
    """

    def __init__(self, shape: Shape | None, options: Options) -> None:
        self._shape = shape
        self._options = options
        self._known = None if shape is None else {field.name: field.type for field in shape.columns}
        self._reached = False  # rows have had just the query's columns
        self._seen: TableSchema | None = None
        self._name: tuple[str, str] | None = None

    def delivers(self, entry: Entry) -> bool:
        """Whether an entry is part of the stream.

        Raises:
            SchemaError: the table's columns have changed.
            UnsupportedError: the table was emptied, dropped or replaced, or was changed by a statement whose rows are not
                in the log.
        """
        if entry.entry_type is not EntryType.ROWDATA:
            return False
        if self._shape is None:
            return True
        if entry.table is None:
            return self._takes_statement(entry)
        if entry.table.schema is not self._seen:
            self._check_columns(entry, entry.table.schema)
            self._seen = entry.table.schema
        return True

    def _check_columns(self, entry: Entry, table: TableSchema) -> None:
        name = (table.schema, table.table)
        self._name = self._name or name
        if name != self._name:
            raise ConfigError(
                f"two tables are named so but for the case of letters: {'.'.join(self._name)} and {'.'.join(name)}",
                remedy="Read them as an envelope, with the option tables.",
            )
        if self._options.schema_change == "keep" or self._known is None:
            return
        if self._seen is not None and (changed := changed_values(self._seen, table)):
            raise SchemaError(
                f"an ALTER of {table.name} may have changed values of rows, which the log does not tell: {changed}",
                position=_place(entry),
                remedy="Bring the target to the same state, then start the query again; or set schemaChange=keep.",
            )
        found = {column.name: spark_arrow_type(column) for column in table.columns}
        if found == self._known:
            self._reached = True
        elif self._reached or not found.items() <= self._known.items():
            raise SchemaError(
                f"the columns of {table.name} have changed: {_difference(self._known, found)}",
                position=_place(entry),
                remedy="Start the query again (load it anew) to read on with the present columns; if it ends here again, "
                "these rows are older than the present columns: set schemaChange=keep.",
            )

    def _takes_statement(self, entry: Entry) -> bool:
        what, statement = self._loss(entry), entry.statement
        is_statement = statement.kind == "dml" or statement.selects or not what
        if not what and statement.doubtful and not statement.temporary:
            assert self._shape is not None
            what = f"a statement that is not understood may have changed {self._shape.table.name}"
        if not what:
            self._check_alter(entry)
            return False
        option = "onStatement" if is_statement else "onTruncate"
        choice = self._options.statements if is_statement else self._options.on_truncate
        if choice == "ignore":
            log.warning("%s at %s, which %s=ignore passes over", what, _place(entry), option)
            return False
        if choice == "row" and entry.event_type in (EventType.TRUNCATE, EventType.ERASE):
            return True
        raise UnsupportedError(
            what, position=_place(entry),
            remedy=f"Bring the target to the same state, then start the query once with {option}=ignore"
            + ("." if is_statement else ", or have TRUNCATE and DROP in the stream with onTruncate=row."),
        )  # fmt: skip

    def _check_alter(self, entry: Entry) -> None:
        """Raise SchemaError where the text tells of new values of rows, which the columns before and after it do not."""
        assert self._shape is not None
        if self._options.schema_change == "keep" or not self._is_ours(entry) or "ALTER" not in entry.statement.event_types:
            return
        what = "a generated column was defined anew" if _GENERATED.search(_words(entry.sql)) else ""
        if gone := _gone(entry.sql) & {column.name.lower() for column in self._shape.table.columns}:
            what = f"{', '.join(sorted(gone))} was dropped or renamed"
        if what:
            raise SchemaError(
                f"an ALTER of {self._shape.table.name} may have changed values of rows, which the log does not tell: {what}",
                position=_place(entry),
                remedy="Start the query again (load it anew) to read on with the present columns; if it ends here again, bring "
                "the target to the same state, then start it once with schemaChange=keep.",
            )  # fmt: skip

    def _is_ours(self, entry: Entry) -> bool:
        assert self._shape is not None
        ours = self._shape.table.schema.lower(), self._shape.table.table.lower()
        return any((schema.lower(), table.lower()) == ours for schema, table in entry.statement.tables)

    def _loss(self, entry: Entry) -> str:
        """What a statement did to the table's rows that the log does not tell row by row; "" for nothing."""
        assert self._shape is not None
        statement = entry.statement
        schema, table = self._shape.table.schema.lower(), self._shape.table.table.lower()
        ours = self._is_ours(entry)
        name = self._shape.table.name
        if statement.temporary:
            return ""
        if statement.kind == "dml" or statement.selects:
            if not ours and statement.doubtful and statement.kind == "dml":
                return f"a statement that does not tell its tables may have changed {name}: its rows are not in the log"
            return f"{name} was changed by a statement, whose rows are not in the log" if ours else ""
        if any((new[0].lower(), new[1].lower()) == (schema, table) for _, new in statement.renames):
            return f"another table was renamed to {name}, with rows that were not in the stream"
        if any((old[0].lower(), old[1].lower()) == (schema, table) for old, _ in statement.renames):
            return f"{name} was renamed"
        words = _words(entry.sql) if ours or statement.schema_wide else ""
        if statement.schema_wide and statement.database.lower() == schema and (statement.replaces or words.startswith("DROP ")):
            return f"{name} was dropped with its database"
        if not ours:
            return ""
        if entry.event_type in (EventType.TRUNCATE, EventType.ERASE):
            return f"{name} was {'emptied by TRUNCATE' if entry.event_type is EventType.TRUNCATE else 'dropped'}"
        if statement.replaces:
            return f"{name} was replaced"
        if _PARTITIONS.search(words):
            return f"partitions of {name} were emptied, dropped or exchanged"
        if _IGNORE.match(words):
            return f"{name} was altered with IGNORE, which leaves out rows"
        return ""


_PARTITIONS: Final = re.compile(
    r"\b(?:(?:TRUNCATE|DROP|EXCHANGE|DISCARD|IMPORT|CONVERT) (?:PARTITION|TABLESPACE)|CONVERT TABLE)\b"
)
_GENERATED: Final = re.compile(r"\b(?:MODIFY|CHANGE)\b.*\bAS\b")
_IGNORE: Final = re.compile(r"ALTER (?:ONLINE )?IGNORE TABLE\b")


def _words(sql: str | None) -> str:
    """The words of a statement with one space between, without comments; "?" for names in quotes, texts and marks."""
    take, found = Scanner(sql or "").take, []
    while (token := take())[0] != END:
        found.append(token[2] if token[0] == WORD else "?")
    return " ".join(found)


def _gone(sql: str | None) -> set[str]:
    """Names, in lower case, that an ALTER takes from columns: it drops or renames them."""
    scan, found = Scanner(sql or ""), set()
    while (token := scan.take())[0] != END:
        if token[0] != WORD or token[2] not in ("DROP", "CHANGE", "RENAME"):
            continue
        is_column = scan.accept("COLUMN") or token[2] == "CHANGE"
        scan.accept_all("IF", "EXISTS")
        if not scan.at_name() or not is_column and (token[2] == "RENAME" or scan.peek()[2] in _NO_COLUMNS):
            continue
        name = scan.take()[1].lower()
        scan.accept("TO")
        if token[2] == "DROP" or scan.peek()[1].lower() != name:
            found.add(name)
    return found


_NO_COLUMNS: Final = frozenset((
    "INDEX", "KEY", "CONSTRAINT", "FOREIGN", "PRIMARY", "CHECK", "PARTITION", "PERIOD", "SYSTEM", "DEFAULT",
))  # fmt: skip


def _difference(known: dict[str, Any], found: dict[str, Any]) -> str:
    parts = [f"{name} is new" for name in found if name not in known]
    parts += [f"{name} is gone" for name in known if name not in found]
    parts += [f"{name} is {kind}, was {known[name]}" for name, kind in found.items() if known.get(name, kind) != kind]
    return ", ".join(parts)


def _place(entry: Entry) -> str:
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
        self._place = number, start.offset
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
                    reason=LostReason.OTHER_SERVER, position=f"{transaction.journal}:{transaction.offset}",
                    remedy="Go on at the former server, or begin a new checkpoint and copy the table anew.",
                )  # fmt: skip
            if self._source:
                self._epoch += 1
                log.warning("the source is another server: %s, before %s", source, self._source)
        elif base != self._base:
            if self._base:
                self._epoch += 1
                log.warning("the log goes on in files of another name: %s, before %s", base, self._base)
        elif (number, transaction.offset) < self._place:
            raise PositionLostError(
                f"{transaction!r} comes behind {base} {self._place}: the log was begun anew",
                reason=LostReason.DIVERGED, position=f"{transaction.journal}:{transaction.offset}",
                remedy="Begin a new checkpoint and copy the table anew.",
            )  # fmt: skip
        self._source, self._base, self._place = source, base, (number, transaction.offset)
        if self._epoch > _MOST_EPOCHS:
            raise UnsupportedError(
                f"the source has been another server {self._epoch} times, and _txn holds {_MOST_EPOCHS}",
                remedy="Begin a new checkpoint, and copy the table anew.",
            )
