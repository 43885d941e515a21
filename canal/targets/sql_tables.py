"""Create, alter and check the tables of a SQL database before rows are written.

Never writes a row.
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

#: Prefix of the mark of a table, as the database stores it.
MARK: Final = "canal:"


@attrs.frozen
class SQLOptions:
    """Options of every SQL target.

    Args:
        create: create missing tables with the columns and the primary key of the source, without other keys.
        schema: if the target lacks a column of the source, "add" adds the column and "refuse" stops the pipe. Existing rows
            have NULL in an added column until they change, because the log does not have the values.
        progress_table: name of the progress table, which is created if it is missing.
    """

    create: bool = True
    schema: Literal["add", "refuse"] = "add"
    progress_table: str = "canal_progress"


class Refused(Exception):
    """The database refused a row. The message has the reason without a value of the row.

    ``is_duplicate``: another row has the same unique value.
    """

    def __init__(self, text: str, *, is_duplicate: bool = False) -> None:
        super().__init__(text)
        self.is_duplicate = is_duplicate


class SQLTables(StateWork):
    """Cached state of a writer's tables. Subclasses implement the SQL dialect."""

    quote: ClassVar[str] = '"'

    def __init__(self, options: SQLOptions) -> None:
        super().__init__()
        self._options = options
        self._known: dict[Path, tuple[Table, bool]] = {}  # whether the table exists

    def is_there(self, parts: Path) -> bool:
        """Return whether a prepared table exists."""
        return self._known[parts][1]

    @abstractmethod
    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement and return a result with ``fetchall`` and ``rowcount``.

        Raises:
            Refused: a value or row cannot be stored.
            TargetError, ConnectionLostError: anything else.
        """

    @abstractmethod
    def naming(self) -> Naming:
        """Return the rules of names in the database."""

    @abstractmethod
    def columns(self, parts: Path) -> dict[str, str] | None:
        """Return the declared types of a table's columns by name, or None if the table does not exist."""

    @abstractmethod
    def column_type(self, column: ColumnSchema) -> str:
        """Return the type that stores every value of the source's column and returns it unchanged."""

    def check_column(self, column: ColumnSchema, declared: str) -> str:
        """Return why a column may change values, or "" if it stores them unchanged or refuses them."""
        return ""

    def key_type(self, column: ColumnSchema) -> str:
        """Return a type for a key column that distinguishes every value that the source may distinguish.

        Raises:
            TargetSchemaError: the database has no such type.
        """
        return self.column_type(column)

    def weak_key(self, table: Table, parts: Path) -> str:
        """Return which key column of an existing table merges values, and why; "" if none does."""
        return ""

    def mark_of(self, parts: Path) -> str:
        """Return the mark that a table was created with, or "" if the table has none."""
        return ""

    def create_table(self, parts: Path, columns: str, mark: str) -> None:
        """Create a table with a mark that is dropped with it."""
        self.execute(f"CREATE TABLE {self.named(parts)} ({columns})")

    def patient(self) -> AbstractContextManager[None]:
        """Allow statements that may take long, because they alter or empty a table."""
        return nullcontext()

    def create_parent(self, parts: Path) -> None:
        """Create the schema of a new table."""

    def prepare(self, state: TableState) -> bool:
        """Create or alter the table so that it has all columns. The statements may commit implicitly.

        Return whether the columns may have changed since the last call.
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
        """Check that the table is the same one as at the last commit.

        Raises:
            TargetLostError: the table or a column was dropped, or another table has the name.
        """
        written = self.names.written(parts)
        if written is None:
            return
        lost, shown, fold = "", ".".join(parts), self.names.naming.fold_columns
        if there is None:
            lost = f"the table {shown} with the rows of {table.source} was dropped"
        elif self.mark_of(parts) != written.mark:
            lost = f"the table {shown} with the rows of {table.source} was replaced by another table"
        elif gone := written.columns.intersection(map(fold, table.names.names)).difference(map(fold, there)):
            lost = f"the column {min(gone)} of {shown} with values of {table.source} was dropped"
        if lost and self.accepts_lost:
            log.warning("%s; later changes are written to the present table", lost)
        elif lost:
            raise TargetLostError(
                lost,
                remedy=f"Restore the table together with {self._options.progress_table}. Or reload all tables: drop the tables of"
                f" the stream, delete the rows of the stream from {self._options.progress_table}, and start with"
                f' snapshot="initial". Or, if the present table is correct: {self.names.forget}',
            )

    def _create(self, table: Table, parts: Path) -> None:
        if not self._options.create:
            raise TargetSchemaError(f"there is no table {'.'.join(parts)}", remedy="Create it, or set create=True of the target.")
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
        """Add the table and its key columns to an error of CREATE or ALTER."""
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
                remedy="Create or alter it yourself with columns that store the values, or exclude columns by "
                "canal.Rule(fields=…), or choose other keys by canal.Rule(keys=…).",
            ) from error.__cause__

    def _check(self, table: Table, parts: Path, there: Mapping[str, str]) -> None:
        fold = self.names.naming.fold_columns
        declared = {fold(name): kind for name, kind in there.items()}
        lacking = [column for column in table.columns if fold(column.name) not in declared]
        if lacking and self._options.schema == "refuse":
            raise TargetSchemaError(
                f"the table {'.'.join(parts)} lacks {', '.join(column.name for column in lacking)}",
                remedy='Add the columns as at the source, or set schema="add" of the target.',
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
