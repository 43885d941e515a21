"""A SQLite file: all tables of a stream and the progress in one transaction.

Never rounds a value: numbers and times that SQLite has no exact type for are text.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import attrs

from canal._util.option_checks import file_path
from canal.changes import Table
from canal.changes.latest import Values
from canal.errors import ConfigError, TargetError
from canal.rows.values import InvalidText
from canal.schema import ColumnSchema
from canal.targets.names import Naming, Path, ascii_lower
from canal.targets.protocol import Guarantee, Scope
from canal.targets.sql import SQLWork
from canal.targets.sql_tables import MARK, Refused, SQLOptions
from canal.targets.values import BYTES, TEXTS

if TYPE_CHECKING:
    import pyarrow as pa

    from canal.changes.fold import ArrowState

_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit")
_MOST: Final = (1 << 63) - 1


@attrs.frozen
class SQLiteTarget:
    """A SQLite database, which is made where there is none; a table is called as at the source, without its schema.

    Integers, floats, text and bytes are SQLite's own. DECIMAL, dates, times and JSON are text, as MySQL writes them; a number
    beyond 63 bits is text too, in a column without a type. Foreign keys are not checked.

    Args:
        path: of the file.
        create, schema, progress_table: as ``canal.targets.sql_tables.SQLOptions`` has them.
        timeout: seconds to wait for others who write the file.
    """

    path: str | os.PathLike[str] = attrs.field(validator=file_path)
    create: bool = attrs.field(default=True, kw_only=True)
    schema: Literal["add", "refuse"] = attrs.field(default="add", kw_only=True)
    progress_table: str = attrs.field(default="canal_progress", kw_only=True)
    timeout: float = attrs.field(default=30.0, kw_only=True)

    guarantee = Guarantee.ONCE
    scope: ClassVar[Scope] = "all"
    is_log = False

    def __attrs_post_init__(self) -> None:
        if os.fspath(self.path) in ("", ":memory:"):
            raise ConfigError("the progress must outlive the connection: give the path of a file")

    def __str__(self) -> str:
        return f"SQLite {os.fspath(self.path)}"

    @contextmanager
    def begin(self, stream: str) -> Iterator[SQLiteWork]:
        try:
            connection = sqlite3.connect(self.path, timeout=self.timeout, isolation_level=None)
        except sqlite3.Error as error:
            raise TargetError(f"{self} cannot be opened: {error}") from error
        with closing(connection):
            yield SQLiteWork(connection, stream, SQLOptions(self.create, self.schema, self.progress_table))


class SQLiteWork(SQLWork):
    def __init__(self, connection: sqlite3.Connection, stream: str, options: SQLOptions) -> None:
        self._connection = connection
        super().__init__(stream, options)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        with self._understood():
            return self._connection.execute(sql, values)

    @staticmethod
    @contextmanager
    def _understood() -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:  # names a constraint, and no value
            raise Refused(str(error), is_duplicate=str(error).startswith("UNIQUE")) from error
        except (sqlite3.DataError, OverflowError, UnicodeEncodeError) as error:
            raise Refused(f"a value that SQLite does not take ({type(error).__name__})") from error
        except sqlite3.Error as error:
            raise TargetError(f"SQLite: {error}") from error

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self.execute("ROLLBACK")

    def upsert(self, name: str, table: Table, columns: Sequence[str], rows: Sequence[Values]) -> None:
        sql, values, key = self.update(name, table, columns)
        lists = list(zip(*rows))
        if self._run_many(sql, [lists[at] for at in (*values, *key)]) < len(rows):  # some are not there
            super().upsert(name, table, columns, rows)

    def form(self, values: pa.Array, column: ColumnSchema, declared: str) -> pa.Array | None:
        from canal.targets.sql_bulk import plain

        return plain(values)

    def put_columns(self, name: str, table: Table, rows: ArrowState) -> None:
        from canal.targets.sql_bulk import parted

        names = table.names.names
        if rows.deletes.num_rows:
            where = " AND ".join(f"{self.quoted(one)} = ?" for one in table.keys)
            self._run_many(f"DELETE FROM {name} WHERE {where}", _lists(rows.deletes))
        changed, new = parted(rows)
        if changed.num_rows:
            sql, values, key = self.update(name, table, names)
            lists = _lists(changed)
            if self._run_many(sql, [lists[at] for at in (*values, *key)]) < changed.num_rows:  # some are not there
                super().upsert(name, table, names, list(zip(*lists)))
        if new.num_rows:
            self._insert_new(name, table, names, list(zip(*_lists(new))))

    def _run_many(self, sql: str, columns: Sequence[Iterable[Any]]) -> int:
        """Run a statement for each row of the columns; returns how many rows it has changed."""
        with self._understood():
            return self._connection.executemany(sql, zip(*columns)).rowcount

    def naming(self) -> Naming:
        reserved = [(self._options.progress_table,)]
        return Naming(fold=ascii_lower, fold_columns=ascii_lower, schema=None, reserved=reserved)

    def columns(self, parts: Path) -> dict[str, str] | None:
        rows = self.execute(f"PRAGMA table_info({self.quoted(parts[-1])})").fetchall()
        return {row[1]: row[2] for row in rows} or None

    def create_table(self, parts: Path, columns: str, mark: str) -> None:
        super().create_table(parts, f"/* {mark} */ {columns}", mark)  # SQLite keeps the text

    def mark_of(self, parts: Path) -> str:
        sql = "SELECT sql FROM sqlite_master WHERE type = 'table' AND lower(name) = lower(?)"
        found = re.search(rf"/\* ({MARK}\w+) \*/", str(self.execute(sql, parts[-1:]).fetchall()))
        return found[1] if found else ""

    def column_type(self, column: ColumnSchema) -> str:
        base = column.base_type
        if base == "bigint" and column.unsigned or column.column_type == "bit(64)":
            return ""
        if base in _INTEGERS:
            return "INTEGER"
        if base in ("float", "double"):
            return "REAL"
        return "BLOB" if base in BYTES else "TEXT"

    def check_column(self, column: ColumnSchema, declared: str) -> str:
        own, theirs = _affinity(self.column_type(column)), _affinity(declared)
        if theirs in ("BLOB", own) or own == "INTEGER" and theirs == "NUMERIC":
            return ""
        return f"is {declared}, which changes values of {column.column_type}"

    def weak_key(self, table: Table, parts: Path) -> str:
        for name in table.keys:
            sql = f"EXPLAIN SELECT 1 FROM {self.named(parts)} NOT INDEXED WHERE {self.quoted(name)} = 'a'"
            used = {str(one).upper() for row in self.execute(sql).fetchall() for one in row}
            indexes = [row[1] for row in self.execute(f"PRAGMA index_list({self.quoted(parts[-1])})").fetchall() if row[2]]
            for index in indexes:
                rows = self.execute(f"PRAGMA index_xinfo({self.quoted(index)})").fetchall()
                used |= {f"{row[4].upper()}-" for row in rows if row[2] and ascii_lower(row[2]) == ascii_lower(name)}
            for weak in ("NOCASE", "RTRIM"):
                if any(one.startswith(f"{weak}-") for one in used):
                    return f"{name} compares by {weak}"
        return ""

    def adapters(self) -> Mapping[type, Callable[[Any], Any]]:
        return _ADAPTERS


def _lists(rows: pa.Table) -> list[list[Any]]:
    """The columns as values that the library takes."""
    found = []
    for column in rows.columns:
        values = column.to_pylist()
        if str(column.type) == "uint64":
            values = [str(one) if one is not None and one > _MOST else one for one in values]
        found.append(values)
    return found


def _affinity(declared: str) -> str:
    """What SQLite makes of a declared type."""
    kind = declared.upper()
    for words, affinity in (
        (("INT",), "INTEGER"),
        (("CHAR", "CLOB", "TEXT"), "TEXT"),
        (("BLOB",), "BLOB"),
        (("REAL", "FLOA", "DOUB"), "REAL"),
    ):
        if any(word in kind for word in words):
            return affinity
    return "NUMERIC" if kind else "BLOB"


_ADAPTERS: Final[Mapping[type, Callable[[Any], Any]]] = {
    **TEXTS,
    int: lambda value: value if -_MOST <= value <= _MOST else str(value),
    InvalidText: bytes,
}
