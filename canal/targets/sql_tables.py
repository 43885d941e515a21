"""The tables of an SQL database that a writer makes, alters and checks before it puts rows into them.

Never puts a row.
"""

from __future__ import annotations

import logging
import secrets
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar, Final, Literal

import attrs

from canal.changes import Table, TableState
from canal.errors import ConnectionLostError, TargetConflictError, TargetError, TargetLostError, TargetSchemaError
from canal.schema import ColumnSchema
from canal.targets.names import Naming, Path
from canal.targets.work import StateWork

log = logging.getLogger("canal.pipe")

#: What a table's mark begins with, where the database keeps it.
MARK: Final = "canal:"


@attrs.frozen
class SQLOptions:
    """What all SQL targets can be told.

    Args:
        create: make tables that are not there: columns and primary key of the source's, and nothing else of it.
        schema: what to do when the source's table has columns that the target's lacks: "add" adds them (rows that are there have
            NULL in them until they change: what MySQL puts into them is not logged), "refuse" stops.
        progress_table: its name; it is made where it is not there.
    """

    create: bool = True
    schema: Literal["add", "refuse"] = "add"
    progress_table: str = "canal_progress"


class Refused(Exception):
    """A row is none that the database takes. The text says why, without a value of the row.

    ``is_duplicate``: it has a unique value that another row has.
    """

    def __init__(self, text: str, *, is_duplicate: bool = False) -> None:
        super().__init__(text)
        self.is_duplicate = is_duplicate


class SQLTables(StateWork):
    """What a writer knows of its tables. Each database says below what it does in its own way."""

    quote: ClassVar[str] = '"'

    def __init__(self, options: SQLOptions) -> None:
        super().__init__()
        self._options = options
        self._known: dict[Path, tuple[Table, bool]] = {}  # whether it is there

    def is_there(self, parts: Path) -> bool:
        """Whether there is such a table, of one that was prepared."""
        return self._known[parts][1]

    @abstractmethod
    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement; gives what has ``fetchall`` and ``rowcount``.

        Raises:
            Refused: a value or row cannot be stored.
            TargetError, ConnectionLostError: anything else.
        """

    @abstractmethod
    def naming(self) -> Naming:
        """Which names the database takes and tells apart."""

    @abstractmethod
    def columns(self, parts: Path) -> dict[str, str] | None:
        """Names and declared types of a table's columns; None: there is no such table."""

    @abstractmethod
    def column_type(self, column: ColumnSchema) -> str:
        """The type that holds every value of the source's column, and gives it back as it was."""

    def check_column(self, column: ColumnSchema, declared: str) -> str:
        """Why a column of the target does not keep values as they are; "" where it does, or refuses those that it cannot keep."""
        return ""

    def key_type(self, column: ColumnSchema) -> str:
        """The type of a column of the key, which tells all values apart that the source may tell apart.

        Raises:
            TargetSchemaError: there is none.
        """
        return self.column_type(column)

    def weak_key(self, table: Table, parts: Path) -> str:
        """The column of the key of a table that is there which does not tell all values apart, and why; "" where all do."""
        return ""

    def mark_of(self, parts: Path) -> str:
        """Return the mark that a table was made with; "" if it has none."""
        return ""

    def create_table(self, parts: Path, columns: str, mark: str) -> None:
        """Make a table with a mark, which goes with it."""
        self.execute(f"CREATE TABLE {self.named(parts)} ({columns})")

    def patient(self) -> AbstractContextManager[None]:
        """Around statements that may take long for good reason: they alter or empty a table."""
        return nullcontext()

    def create_parent(self, parts: Path) -> None:
        """Make the schema of a table that is about to be made."""

    def prepare(self, state: TableState) -> bool:
        """See that there is a table, with all columns; statements that do that may commit by themselves.

        Returns whether the columns may be others than before.
        """
        table, parts = state.table, self.names.naming.path(state.table)
        known = self._known.get(parts)
        if known is not None and (known[0] is table or (known[0].columns, known[0].keys) == (table.columns, table.keys)):
            return False
        there = self.columns(parts)
        self._check_written(table, parts, there)
        if there is None and table.columns:
            self._create(table, parts)
            there = {column.name: "" for column in table.columns}
        elif there is not None:
            self._check(table, parts, there)
        self._known[parts] = table, there is not None
        if there is not None and table.columns:
            self.names.keep(parts, self.mark_of(parts), table.names.names)
        return True

    def _check_written(self, table: Table, parts: Path, there: Mapping[str, str] | None) -> None:
        """Check that a table is the one that was written before.

        Raises:
            TargetLostError: it is not.
        """
        written = self.names.written(parts)
        if written is None:
            return
        lost, shown, fold = "", ".".join(parts), self.names.naming.fold_columns
        if there is None:
            lost = f"the table {shown}, which has rows of {table.source}, is gone"
        elif (mark := self.mark_of(parts)) != written.mark:
            lost = f"the table {shown} is another one than that with the rows of {table.source}: its mark is {mark or 'missing'}"
        elif gone := written.columns.intersection(map(fold, table.names.names)).difference(map(fold, there)):
            lost = f"the column {min(gone)} of {shown}, which has values of {table.source}, is gone"
        if lost and self.accepts_lost:
            log.warning("%s; the changes from here on go into what is there now", lost)
        elif lost:
            raise TargetLostError(
                lost,
                remedy=f"Restore it together with {self._options.progress_table}. Or load all tables anew: drop those of the"
                f' stream, delete its rows from {self._options.progress_table}, and start with snapshot="initial". Or, if the'
                f" target is right as it is now: {self.names.forget}",
            )

    def _create(self, table: Table, parts: Path) -> None:
        if not self._options.create:
            raise TargetSchemaError(f"there is no table {'.'.join(parts)}", remedy="Make it, or give the target create=True.")
        columns = []
        for column in table.columns:
            is_key = column.name in table.keys
            kind = self.key_type(column) if is_key else self.column_type(column)
            columns.append(f"{self.quoted(column.name)} {kind}{' NOT NULL' if is_key else ' NULL'}")
        keys = f", PRIMARY KEY ({', '.join(map(self.quoted, table.keys))})" if table.keys else ""
        with self._about(table, parts, "made"):
            self.create_parent(parts)
            self.create_table(parts, f"{', '.join(columns)}{keys}", f"{MARK}{secrets.token_hex(8)}")

    @contextmanager
    def _about(self, table: Table, parts: Path, what: str) -> Iterator[None]:
        """Tell which table it is that the database does not make or alter, and of which columns."""
        try:
            with self.patient():
                yield
        except (ConnectionLostError, TargetConflictError):
            raise
        except (TargetError, Refused) as error:
            if isinstance(error, TargetError) and error.is_lasting:  # the user is refused, not the table
                raise
            kinds = ", ".join(f"{one.name} {one.column_type}" for one in table.columns if one.name in table.keys)
            said = " ".join(str(error.__cause__.args[-1]).split()) if error.__cause__ and error.__cause__.args else f"{error}"
            raise TargetSchemaError(  # the text of the server has no value of a row, as there is none in the statement
                f"the table {'.'.join(parts)}, of {table.source} with the key ({kinds}), cannot be {what}: {said}",
                remedy="Make or alter it yourself, with columns that take the values, or leave columns out by "
                "canal.Rule(fields=…), or give other keys by canal.Rule(keys=…).",
            ) from error.__cause__

    def _check(self, table: Table, parts: Path, there: Mapping[str, str]) -> None:
        fold = self.names.naming.fold_columns
        declared = {fold(name): kind for name, kind in there.items()}
        lacking = [column for column in table.columns if fold(column.name) not in declared]
        if lacking and self._options.schema == "refuse":
            raise TargetSchemaError(
                f"the table {'.'.join(parts)} lacks {', '.join(column.name for column in lacking)}",
                remedy='Alter it as the source was altered, or give the target schema="add".',
            )
        for column in table.columns:
            if column not in lacking and (why := self.check_column(column, declared[fold(column.name)])):
                raise TargetSchemaError(
                    f"the column {column.name} of {'.'.join(parts)} {why}",
                    remedy=f"Make it {self.column_type(column) or 'a column without a type'}.",
                )
        if weak := self.weak_key(table, parts):
            raise TargetSchemaError(
                f"the key of the table {'.'.join(parts)} does not tell all keys of {table.source} apart: {weak}",
                remedy="Alter the column so that it compares by bytes, or drop the table and let it be made and filled anew.",
            )
        for column in lacking:
            added = f"{self.quoted(column.name)} {self.column_type(column)} NULL"
            with self._about(table, parts, f"given the column {column.name} {column.column_type}"):
                self.execute(f"ALTER TABLE {self.named(parts)} ADD COLUMN {added}")

    def named(self, parts: Path) -> str:
        return ".".join(map(self.quoted, parts))

    def quoted(self, name: str) -> str:
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote
