"""A DuckDB file: all tables of a stream and the progress in one transaction.

Never rounds a value: a column that would is refused before anything is written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import attrs

from canal._util.option_checks import file_path
from canal.changes import Change, Table
from canal.changes.latest import Key, Values, together
from canal.errors import ConfigError, TargetError, UnfitChangeError
from canal.schema import ColumnSchema
from canal.targets.names import Naming, Path, ascii_lower
from canal.targets.protocol import Guarantee, Scope
from canal.targets.sql import SQLWork
from canal.targets.sql_tables import MARK, Refused, SQLOptions
from canal.targets.tables import need
from canal.targets.values import BYTES, NO_TYPE, document_text, shortest
from canal.targets.work import conflict

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from canal.changes.fold import ArrowState

_TYPES: Final = {
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "mediumint": "INTEGER",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "tinyint unsigned": "UTINYINT",
    "smallint unsigned": "USMALLINT",
    "mediumint unsigned": "UINTEGER",
    "int unsigned": "UINTEGER",
    "bigint unsigned": "UBIGINT",
    "bit": "UBIGINT",
    "year": "SMALLINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "datetime": "TIMESTAMP",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "time": "INTERVAL",
    "json": "JSON",
    **dict.fromkeys(BYTES, "BLOB"),
}
_INTEGERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
#: Types that keep every value of another one, or refuse it.
_KEEP: Final = {
    **dict.fromkeys((*_INTEGERS, *(f"U{name}" for name in _INTEGERS)), r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|DECIMAL\(.*\)"),
    "FLOAT": "DOUBLE",
    "JSON": "VARCHAR",
    "VARCHAR": r"ENUM\(.*\)",
}
#: Digits of a DECIMAL, at most.
_DIGITS: Final = 38


@attrs.frozen
class DuckDBTarget:
    """A DuckDB database, which is made where there is none; a table ``shop.orders`` is orders of the schema shop.

    TIME is an INTERVAL, BIT an UBIGINT, ENUM and SET text, JSON JSON (its text as it is), DECIMAL of more than 38 digits text.
    What DuckDB has no value for (zero dates) is unfit. DuckDB lets one process open a file: others wait until the pipe has ended.

    Args:
        path: of the file.
        create, schema, progress_table: as ``canal.targets.sql_tables.SQLOptions`` has them.
        config: more settings of the database, as ``duckdb.connect`` takes them.
    """

    path: str | os.PathLike[str] = attrs.field(validator=file_path)
    create: bool = attrs.field(default=True, kw_only=True)
    schema: Literal["add", "refuse"] = attrs.field(default="add", kw_only=True)
    progress_table: str = attrs.field(default="canal_progress", kw_only=True)
    config: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)

    guarantee = Guarantee.ONCE
    scope: ClassVar[Scope] = "all"
    is_log = False

    def __attrs_post_init__(self) -> None:
        if os.fspath(self.path) in ("", ":default:") or os.fspath(self.path).startswith(":memory:"):
            raise ConfigError("the progress must outlive the connection: give the path of a file")

    def __str__(self) -> str:
        return f"DuckDB {os.fspath(self.path)}"

    @contextmanager
    def begin(self, stream: str) -> Iterator[DuckDBWork]:
        duckdb = need("duckdb", "duckdb")
        need("pytz", "duckdb")  # what DuckDB gives moments with a zone by
        try:
            connection = duckdb.connect(os.fspath(self.path), config=dict(self.config))
        except duckdb.Error as error:
            remedy = "DuckDB lets one process open a file: see that no other one has it." if "lock" in str(error) else ""
            raise TargetError(f"{self} cannot be opened: {type(error).__name__}", remedy=remedy) from error
        with closing(connection):
            yield DuckDBWork(connection, stream, SQLOptions(self.create, self.schema, self.progress_table))


class DuckDBWork(SQLWork):
    text_type = "VARCHAR"

    def __init__(self, connection: duckdb.DuckDBPyConnection, stream: str, options: SQLOptions) -> None:
        self._connection = connection
        super().__init__(stream, options)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> duckdb.DuckDBPyConnection:
        with _understood():
            return self._connection.execute(sql, list(values))

    def updated(self, done: Any) -> int:
        return int(done.fetchall()[0][0])

    def rollback(self) -> None:
        import duckdb

        try:
            self._connection.execute("ROLLBACK")
        except duckdb.TransactionException:  # it is in none
            pass

    # -- rows: columns go in as lists, a hundred times as fast as row by row --------------------------------------------------

    def insert(self, name: str, columns: Sequence[str], rows: Sequence[Values]) -> None:
        names = ", ".join(map(self.quoted, columns))
        self.execute(f"INSERT INTO {name} ({names}) SELECT {self._lists(name, columns)}", [_list(one) for one in zip(*rows)])

    def _where(self, table: Table, keys: Sequence[Key]) -> Iterator[tuple[str, list[Any]]]:
        names = ", ".join(map(self.quoted, table.keys))
        lists = self._lists(self.named(self.names.naming.path(table)), table.keys)
        if keys:
            yield f"({names}) IN (SELECT {lists})", [_list(one) for one in zip(*keys)]

    def _insert_new(self, name: str, table: Table, columns: Sequence[str], rows: Sequence[Values]) -> None:
        self.upsert(name, table, columns, rows)

    def upsert(self, name: str, table: Table, columns: Sequence[str], rows: Sequence[Values]) -> None:
        lists, values = self._lists(name, columns), [_list(one) for one in zip(*rows)]
        names = ", ".join(map(self.quoted, columns))
        own = [name for name in columns if name not in table.keys]
        same = " AND ".join(f"t.{self.quoted(one)} = s.{self.quoted(one)}" for one in table.keys)
        given = f"(SELECT {lists}) AS s({names})"
        is_there = int(self.execute(f"SELECT count(*) FROM {name} t JOIN {given} ON {same}", values).fetchall()[0][0])
        if is_there and own:
            sets = ", ".join(f"{self.quoted(one)} = s.{self.quoted(one)}" for one in own)
            self.execute(f"UPDATE {name} AS t SET {sets} FROM {given} WHERE {same}", values)
        if is_there < len(rows):
            lacking = f"SELECT {names} FROM {given} WHERE NOT EXISTS (SELECT 1 FROM {name} t WHERE {same})"
            self.execute(f"INSERT INTO {name} ({names}) {lacking if is_there else f'SELECT {lists}'}", values)

    # -- rows in columns: sorted by key they are put fifty times as fast as in any other order -------------------------------

    def form(self, values: pa.Array, column: ColumnSchema, declared: str) -> pa.Array | None:
        from pyarrow import types as kinds

        from canal.targets import sql_bulk

        kind, is_own = values.type, declared == self.column_type(column)
        if kinds.is_duration(kind):
            return sql_bulk.intervals(values) if is_own else None
        if kinds.is_decimal256(kind):
            return sql_bulk.decimal_texts(values) if declared == "VARCHAR" else None
        if kinds.is_float32(kind) and not is_own:
            return sql_bulk.shortest_doubles(values) if declared == "DOUBLE" else None
        if kinds.is_string(kind) and not declared.startswith(("VARCHAR", "JSON", "ENUM")):
            return None
        return None if kinds.is_binary(kind) and declared != "BLOB" else values

    def put_columns(self, name: str, table: Table, rows: ArrowState) -> None:
        names = ", ".join(map(self.quoted, table.names.names))
        own = [one for one in table.names.names if one not in table.keys]
        same = " AND ".join(f"t.{self.quoted(one)} = s.{self.quoted(one)}" for one in table.keys)
        if rows.deletes.num_rows:
            with self._registered("canal_gone", rows.deletes):
                self.execute(f"DELETE FROM {name} AS t USING canal_gone AS s WHERE {same}")
        with self._registered("canal_rows", rows.upserts):
            there = 0
            if own and rows.is_new.false_count:
                sets = ", ".join(f"{self.quoted(one)} = s.{self.quoted(one)}" for one in own)
                there = self.updated(self.execute(f"UPDATE {name} AS t SET {sets} FROM canal_rows AS s WHERE {same}"))
            if there < rows.upserts.num_rows:
                lacking = f"SELECT {names} FROM canal_rows AS s WHERE NOT EXISTS (SELECT 1 FROM {name} AS t WHERE {same})"
                self.execute(f"INSERT INTO {name} ({names}) {lacking}")

    @contextmanager
    def _registered(self, name: str, table: pa.Table) -> Iterator[None]:
        self._connection.register(name, table)
        yield
        self._connection.unregister(name)  # after an error the rollback does so

    def _lists(self, name: str, columns: Sequence[str]) -> str:
        """What makes rows of a list for each column, of the column's type."""
        types = {row[0].lower(): row[1] for row in self.execute(f"DESCRIBE {name}").fetchall()}
        return ", ".join(f"unnest(?::{types[column.lower()]}[])" for column in columns)

    def write_in_order(self, error: Refused, old: str | None, new: str, table: str) -> None:
        """DuckDB takes no statement back alone: each part is tried behind those before it, which are as few as can be."""
        refused: list[UnfitChangeError] = []
        good: list[list[Change]] = []
        pending = [list(self.given)]
        while pending:
            part = pending.pop()
            whole = [[change for some in (*good, part) for change in some]]
            if good and self._refusal(whole) is None:
                good = whole
            elif (why := self._refusal([*good, part])) is None:
                good.append(part)
            else:
                pending += self.without(part, why, refused)
        if refused:
            raise together(refused) from error.__cause__
        with self.transaction(old, new, table):
            for part in good:
                self.put_changes(part)

    def _refusal(self, parts: Sequence[Sequence[Change]]) -> Refused | UnfitChangeError | None:
        """Why parts cannot be put one after the other into what is committed; nothing of it stays."""
        self.begin()
        try:
            for part in parts:
                self.put_changes(part)
            return None
        except (Refused, UnfitChangeError) as error:
            return error
        finally:
            self.rollback()

    # -- tables -----------------------------------------------------------------------------------------------------------

    def naming(self) -> Naming:
        schema = str(self.execute("SELECT current_schema()").fetchall()[0][0])
        reserved = [(schema, self._options.progress_table)]
        return Naming(fold=ascii_lower, fold_columns=ascii_lower, schema=schema, reserved=reserved)

    def create_parent(self, parts: Path) -> None:
        if len(parts) > 1:
            self.execute(f"CREATE SCHEMA IF NOT EXISTS {self.quoted(parts[0])}")

    def columns(self, parts: Path) -> dict[str, str] | None:
        wanted = self.names.naming.folded(parts)
        rows = self.execute(
            "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()"
            " WHERE database_name = current_database() AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)",
            parts,
        ).fetchall()
        return {row[2]: row[3] for row in rows if self.names.naming.folded(row[:2]) == wanted} or None

    def create_table(self, parts: Path, columns: str, mark: str) -> None:
        super().create_table(parts, columns, mark)
        self.execute(f"COMMENT ON TABLE {self.named(parts)} IS '{mark}'")

    def mark_of(self, parts: Path) -> str:
        rows = self.execute(
            "SELECT comment FROM duckdb_tables() WHERE database_name = current_database()"
            " AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)",
            parts,
        ).fetchall()
        return next((str(found) for (found,) in rows if str(found).startswith(MARK)), "")

    def weak_key(self, table: Table, parts: Path) -> str:
        rows = self.execute(
            "SELECT sql FROM duckdb_tables() WHERE database_name = current_database()"
            " AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)",
            parts,
        ).fetchall()
        for name in table.keys:
            wanted = rf'[ (,"]{re.escape(name)}"? VARCHAR COLLATE (\w+)'
            if found := next((one for (sql,) in rows if (one := re.search(wanted, sql, re.IGNORECASE))), None):
                return f"{name} has the collation {found[1]}"
        return ""

    def column_type(self, column: ColumnSchema) -> str:
        base = column.base_type
        if base == "decimal":
            precision, scale = _digits(column.column_type) or (10, 0)
            return f"DECIMAL({precision},{scale})" if precision <= _DIGITS else "VARCHAR"
        found = _TYPES.get(f"{base} unsigned" if column.unsigned else base) or _TYPES.get(base)
        return found or ("BLOB" if column.charset == "binary" and base not in ("uuid", "inet4", "inet6") else "VARCHAR")

    def check_column(self, column: ColumnSchema, declared: str) -> str:
        """DuckDB refuses what is too large, but rounds fractions and cuts times without a word."""
        own = self.column_type(column)
        if own == declared or re.fullmatch(_KEEP.get(own, ""), declared):
            return ""
        wanted, theirs = _digits(own), _digits(declared)
        if own.startswith("DECIMAL") and declared.startswith("DECIMAL") and wanted and theirs and theirs[1] >= wanted[1]:
            return ""
        return f"is {declared}, which may change values of {column.column_type}"

    def returned(self, table: Table, row: Sequence[Any]) -> Values:
        """A FLOAT is returned as the double that its 32 bits are, and a DECIMAL of many digits as text."""
        values = list(row)
        for number, (value, column) in enumerate(zip(row, table.columns)):
            if type(value) is float and column.base_type == "float":
                values[number] = shortest(value)
            elif type(value) is str and column.base_type == "decimal":
                values[number] = Decimal(value)
        return tuple(values)

    def adapters(self) -> Mapping[type, Callable[[Any], Any]]:
        return _ADAPTERS


def _digits(declared: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type."""
    found = re.search(r"\((\d+)(?:, *(\d+))?\)", declared)
    return (int(found[1]), int(found[2] or 0)) if found else None


def _list(values: Sequence[Any]) -> list[Any]:
    """A column's values; decimals of different scales would be made floats in a list."""
    return [format(value, "f") if type(value) is Decimal else value for value in values]


_ADAPTERS: Final[Mapping[type, Callable[[Any], Any]]] = {**NO_TYPE, dict: document_text, list: document_text}


@contextmanager
def _understood() -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.ConstraintException as error:  # its text may quote a value
        kind = re.search(r"violates [a-z ]+ constraint|NOT NULL constraint failed: \S+", str(error))
        text = kind[0] if kind else "a row breaks a constraint"
        raise Refused(text, is_duplicate="Duplicate key" in str(error)) from error
    except (duckdb.DataError, duckdb.InvalidInputException) as error:
        raise Refused(f"a value that DuckDB does not take ({type(error).__name__})") from error
    except duckdb.TransactionException as error:
        if "onflict" in str(error):
            raise conflict("another writer changes what is to be written") from error
        raise TargetError(f"DuckDB refuses: {type(error).__name__}") from error
    except duckdb.Error as error:
        raise TargetError(f"DuckDB refuses: {type(error).__name__}") from error
