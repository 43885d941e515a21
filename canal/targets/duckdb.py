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
from canal.changes import Table, TableState
from canal.changes.latest import Key, Values
from canal.errors import ConfigError, TargetError, UnfitChangeError
from canal.schema import ColumnSchema
from canal.targets.protocol import Guarantee, Scope
from canal.targets.sql import Refused, SQLOptions, SQLWork
from canal.targets.tables import need
from canal.targets.values import NO_TYPE, document_text
from canal.targets.work import conflict

if TYPE_CHECKING:
    import duckdb

_TYPES: Final = {
    "tinyint": "TINYINT", "smallint": "SMALLINT", "mediumint": "INTEGER", "int": "INTEGER", "bigint": "BIGINT",
    "tinyint unsigned": "UTINYINT", "smallint unsigned": "USMALLINT", "mediumint unsigned": "UINTEGER",
    "int unsigned": "UINTEGER", "bigint unsigned": "UBIGINT", "bit": "UBIGINT", "year": "SMALLINT", "float": "FLOAT",
    "double": "DOUBLE", "date": "DATE", "datetime": "TIMESTAMP", "timestamp": "TIMESTAMP WITH TIME ZONE", "time": "INTERVAL",
    "json": "JSON",
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry"), "BLOB"),
}  # fmt: skip
_INTEGERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
#: Types that keep every value of another one, or refuse it.
_KEEP: Final = {
    **dict.fromkeys((*_INTEGERS, *(f"U{name}" for name in _INTEGERS)), r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|DECIMAL\(.*\)"),
    "FLOAT": "DOUBLE", "JSON": "VARCHAR", "VARCHAR": r"ENUM\(.*\)",
}  # fmt: skip
#: Digits of a DECIMAL, at most.
_DIGITS: Final = 38


@attrs.frozen
class DuckDBTarget:
    """A DuckDB database, which is made where there is none; a table ``shop.orders`` is orders of the schema shop.

    TIME is an INTERVAL, BIT an UBIGINT, ENUM and SET text, JSON JSON (its text as it is), DECIMAL of more than 38 digits text.
    What DuckDB has no value for (zero dates) is unfit. DuckDB lets one process open a file: others wait until the pipe has ended.

    Args:
        path: of the file.
        create, schema, progress_table: as ``canal.targets.sql.SQLOptions`` has them.
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
        lists = self._lists(self.named(self.parts(table.name)), table.keys)
        if keys:
            yield f"({names}) IN (SELECT {lists})", [_list(one) for one in zip(*keys)]

    def _lists(self, name: str, columns: Sequence[str]) -> str:
        """What makes rows of a list for each column, of the column's type."""
        types = {row[0].lower(): row[1] for row in self.execute(f"DESCRIBE {name}").fetchall()}
        return ", ".join(f"unnest(?::{types[column.lower()]}[])" for column in columns)

    def culprits(self, made: Sequence[TableState]) -> list[tuple[TableState, Key]]:
        """DuckDB takes no statement back alone: halves are tried until it is known."""
        found = []
        for state in made:
            odd = self._culprits(attrs.evolve(state, rows=dict.fromkeys(state.rows)), {}, list(state.rows))
            gone = {key: None for key in state.rows if key not in odd}
            wrong = self._culprits(state, gone, [key for key in gone if state.rows[key] is not None])
            found += [(state, key) for key in (*odd, *wrong)]
        return found

    def _culprits(self, state: TableState, gone: dict[Key, None], keys: Sequence[Key]) -> list[Key]:
        """Those of the keys whose rows cannot be written, when these are gone."""
        if not keys or self._holds(attrs.evolve(state, rows={**gone, **{key: state.rows[key] for key in keys}})):
            return []
        middle = len(keys) // 2
        halves = (keys[:middle], keys[middle:])
        return [key for half in halves for key in self._culprits(state, gone, half)] if middle else list(keys)

    def _holds(self, state: TableState) -> bool:
        self.begin()
        try:
            self._put(state)
            return True
        except (Refused, UnfitChangeError):
            return False
        finally:
            self.rollback()

    # -- tables -----------------------------------------------------------------------------------------------------------

    def parts(self, name: str) -> tuple[str, ...]:
        schema, _, table = name.rpartition(".")
        return (schema, table) if schema else (table,)

    def create_parent(self, parts: tuple[str, ...]) -> None:
        if len(parts) > 1:
            self.execute(f"CREATE SCHEMA IF NOT EXISTS {self.quoted(parts[0])}")

    def columns(self, parts: tuple[str, ...]) -> dict[str, str] | None:
        schema = "?" if len(parts) > 1 else "current_schema()"
        rows = self.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = current_database()"
            f" AND lower(schema_name) = lower({schema}) AND lower(table_name) = lower(?)", parts,
        ).fetchall()  # fmt: skip
        return dict(rows) or None

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
        raise Refused(kind[0] if kind else "a row breaks a constraint") from error
    except (duckdb.DataError, duckdb.InvalidInputException) as error:
        raise Refused(f"a value that DuckDB does not take ({type(error).__name__})") from error
    except duckdb.TransactionException as error:
        if "onflict" in str(error):
            raise conflict("another writer changes what is to be written") from error
        raise TargetError(f"DuckDB refuses: {type(error).__name__}") from error
    except duckdb.Error as error:
        raise TargetError(f"DuckDB refuses: {type(error).__name__}") from error
