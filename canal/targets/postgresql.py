"""PostgreSQL: all tables of a stream and the progress in one transaction.

Never rounds a value: a column that would is refused before anything is written.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import attrs

from canal._util.option_checks import positive, text
from canal.changes import Table, TableState
from canal.changes.latest import Key, Values
from canal.errors import ConfigError, ConnectionLostError
from canal.schema import ColumnSchema
from canal.targets.names import Naming, Path
from canal.targets.protocol import Guarantee, Scope
from canal.targets.sql import SQLWork
from canal.targets.sql_errors import Kind, error_of, kind_of_state
from canal.targets.sql_tables import MARK, Refused, SQLOptions
from canal.targets.tables import need
from canal.targets.values import BYTES, NO_TYPE, document_text
from canal.targets.watch import ConnectionWatch

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

    from canal.changes.fold import ArrowState

_TYPES: Final = {
    "tinyint": "smallint",
    "smallint": "smallint",
    "mediumint": "integer",
    "int": "integer",
    "bigint": "bigint",
    "tinyint unsigned": "smallint",
    "smallint unsigned": "integer",
    "mediumint unsigned": "integer",
    "int unsigned": "bigint",
    "bigint unsigned": "numeric(20,0)",
    "float": "real",
    "double": "double precision",
    "year": "smallint",
    "date": "date",
    "datetime": "timestamp(6) without time zone",
    "timestamp": "timestamp(6) with time zone",
    "time": "interval(6)",
    "json": "json",
    "bit": "numeric(20,0)",
    **dict.fromkeys(BYTES, "bytea"),
}
_BYTES: Final = "bytea"
#: Types of a target's column that keep every value of a type that is made here, or refuse it by an error.
_KEEP: Final = (
    (r"smallint|integer|bigint|numeric\(20,0\)", r"smallint|integer|bigint|numeric(\([\d,]+\))?"),
    (r"numeric.*", r"numeric(\([\d,]+\))?"),
    ("real", "double precision"),
    (r"timestamp.* without time zone", r"timestamp(\(\d\))? without time zone"),
    (r"timestamp.* with time zone", r"timestamp(\(\d\))? with time zone"),
    (r"interval.*", r"interval(\(\d\))?"),
    ("json", "json|jsonb|text"),
    ("text", r"text|citext|character varying(\(\d+\))?"),
)
#: What a server says of an account or a database that it does not let in.
_REFUSED: Final = re.compile(
    r'(password authentication failed|no password supplied|no pg_hba.conf entry|(role|database) "[^"]*" does not exist|'
    r'role "[^"]*" is not permitted to log in|[a-zA-Z0-9]+ authentication failed)'
)
#: Time-outs in seconds: a lost peer is noticed within about a minute.
_LIMITS: Final = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
#: Rows that are updated one by one: a table beside takes more statements.
_FEW: Final = 4


@attrs.frozen
class PostgreSQLTarget:
    """A PostgreSQL database, of version 12 or later, by psycopg 3; a table ``shop.orders`` is orders of the schema shop.

    TIME is an interval, BIGINT UNSIGNED and BIT numeric, ENUM and SET text, JSON json (its text as it is). What PostgreSQL has no
    value for (zero dates, a NUL in text) is unfit.

    Args:
        conninfo: as ``psycopg.connect`` takes it: a URL, or ``host=… dbname=…``. The user needs SELECT, INSERT, UPDATE and
            DELETE on the tables, and CREATE where tables are to be made.
        create, schema, progress_table: as ``canal.targets.sql_tables.SQLOptions`` has them; the progress is in the first
            schema of the user's search path.
        options: more arguments of ``psycopg.connect``, such as ``password``.
        timeout: seconds that the server may take for a statement about rows; then the connection is taken for lost.
    """

    conninfo: str = attrs.field(repr=False, validator=text)
    create: bool = attrs.field(default=True, kw_only=True)
    schema: Literal["add", "refuse"] = attrs.field(default="add", kw_only=True)
    progress_table: str = attrs.field(default="canal_progress", kw_only=True)
    options: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    timeout: float = attrs.field(default=60.0, kw_only=True, validator=positive)

    guarantee = Guarantee.ONCE
    scope: ClassVar[Scope] = "all"
    is_log = False

    def __str__(self) -> str:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        try:
            found = conninfo_to_dict(self.conninfo)
        except ProgrammingError:
            return "PostgreSQL"
        return f"PostgreSQL {found.get('host', '')}/{found.get('dbname', '')}"

    @contextmanager
    def begin(self, stream: str) -> Iterator[PostgreSQLWork]:
        psycopg = need("psycopg", "postgresql")
        user = self._user()
        try:
            connection = psycopg.connect(self.conninfo, autocommit=True, **{**_LIMITS, **self.options})
        except psycopg.ProgrammingError as error:
            raise ConfigError("the connection string of PostgreSQL cannot be read") from error
        except psycopg.Error as error:
            if found := _REFUSED.search(str(error)):  # libpq has no SQLSTATE of a login
                raise error_of(Kind.ACCOUNT, found[0], f"{self}", user) from error
            raise ConnectionLostError(f"{self} cannot be reached: {type(error).__name__}") from error
        stopping = threading.Event()
        watch = ConnectionWatch(connection.fileno, self.timeout, lambda: work.stopping if work is not None else stopping)
        work: PostgreSQLWork | None = None
        with connection, watch.running():
            server = _Server(f"{self}", user, watch)
            work = PostgreSQLWork(connection, stream, SQLOptions(self.create, self.schema, self.progress_table), server)
            yield work

    def _user(self) -> str:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        try:
            return str({**conninfo_to_dict(self.conninfo), **self.options}.get("user", ""))
        except ProgrammingError:
            return ""


@attrs.frozen
class _Server:
    """Of the server, what its errors name, and the watch over the connection to it."""

    target: str
    user: str
    watch: ConnectionWatch

    @contextmanager
    def asked(self) -> Iterator[None]:
        """What a call of psycopg raises becomes an error of ours."""
        import psycopg

        try:
            with self.watch:
                yield
        except psycopg.Error as error:
            if self.watch.is_cut:
                raise ConnectionLostError(f"{self.target} has not answered for {self.watch.limit:g} s") from error
            kind = kind_of_state(error.sqlstate)
            if kind is Kind.ROW or isinstance(error, psycopg.DataError):
                is_duplicate = isinstance(error, psycopg.errors.UniqueViolation)
                raise Refused(_said(error), is_duplicate=is_duplicate) from error
            if error.sqlstate is None and isinstance(error, psycopg.OperationalError):
                kind = Kind.LOST
            raise error_of(kind, _said(error), self.target, self.user) from error


class PostgreSQLWork(SQLWork):
    slot = "%s"

    def __init__(self, connection: psycopg.Connection[Any], stream: str, options: SQLOptions, server: _Server) -> None:
        from psycopg.types.string import TextLoader

        self._connection, self._server = connection, server
        for name in ("json", "jsonb"):
            connection.adapters.register_loader(name, TextLoader)
        self.execute("SET TIME ZONE 'UTC'")
        self._stages: dict[tuple[str, tuple[str, ...]], int] = {}
        self._numbers = itertools.count()
        super().__init__(stream, options)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        with self._server.asked():
            return self._connection.execute(sql.encode(), tuple(values))

    def insert(self, name: str, columns: Sequence[str], rows: Sequence[Values] | pa.Table) -> None:
        names = ", ".join(map(self.quoted, columns))
        copy_in = f"COPY {name} ({names}) FROM STDIN".replace("%%", "%")  # it has no slots
        if isinstance(rows, Sequence):
            with self._server.asked(), self._connection.cursor() as cursor, cursor.copy(copy_in.encode()) as copy:
                for row in rows:
                    copy.write_row(row)
            return
        from canal.targets.copy_binary import pieces

        copy_in += " (FORMAT binary)"
        with self._server.asked(), self._connection.cursor() as cursor, cursor.copy(copy_in.encode()) as copy:
            for piece in pieces(rows):
                copy.write(piece)
                self._server.watch.renew()

    def form(self, values: pa.Array, column: ColumnSchema, declared: str) -> pa.Array | None:
        """Values of the Arrow type that has the bytes of the declared one."""
        import pyarrow as pa
        from pyarrow import types as kinds

        from canal.targets import sql_bulk

        kind = values.type
        if kinds.is_integer(kind):
            integers = {"smallint": pa.int16(), "integer": pa.int32(), "bigint": pa.int64()}
            wanted = pa.decimal128(20, 0) if declared.startswith("numeric") else integers.get(declared)
            return None if wanted is None else values.cast(wanted)
        if kinds.is_duration(kind):
            return sql_bulk.intervals(values) if declared in ("interval", "interval(6)") else None
        if kinds.is_float32(kind) and declared == "double precision":
            return sql_bulk.shortest_doubles(values)
        zone = "with time zone" if kinds.is_timestamp(kind) and kind.tz else "without time zone"
        takes = (
            (kinds.is_decimal, r"numeric.*"),
            (kinds.is_float32, "real"),
            (kinds.is_float64, "double precision"),
            (kinds.is_date, "date"),
            (kinds.is_timestamp, rf"timestamp(\(\d\))? {zone}"),
            (kinds.is_binary, "bytea"),
            (kinds.is_string, r"text|json|character varying.*"),
        )
        return values if any(is_kind(kind) and re.fullmatch(name, declared) for is_kind, name in takes) else None

    def put_columns(self, name: str, table: Table, rows: ArrowState) -> None:
        from canal.targets.sql_bulk import parted

        if rows.deletes.num_rows:
            stage = self._staged(name, table.keys, rows.deletes)
            self.execute(f"DELETE FROM {name} AS t USING {stage} s WHERE {self._same(table)}")
        for part, put in zip(parted(rows), (self.upsert, self._insert_new)):
            if part.num_rows:
                put(name, table, table.names.names, part)

    def rollback(self) -> None:
        if not self._connection.closed:
            self.execute("ROLLBACK")

    def upsert(self, name: str, table: Table, columns: Sequence[str], rows: Sequence[Values] | pa.Table) -> None:
        if len(rows) <= _FEW and isinstance(rows, Sequence):
            super().upsert(name, table, columns, rows)
            return
        stage, same = self._staged(name, columns, rows), self._same(table)
        names = ", ".join(map(self.quoted, columns))
        own = [one for one in columns if one not in table.keys] or [table.keys[0]]
        sets = ", ".join(f"{self.quoted(one)} = s.{self.quoted(one)}" for one in own)
        done = self.execute(f"UPDATE {name} AS t SET {sets} FROM {stage} s WHERE {same}")
        if done.rowcount < len(rows):
            lacking = f"SELECT {names} FROM {stage} s WHERE NOT EXISTS (SELECT 1 FROM {name} t WHERE {same})"
            self.execute(f"INSERT INTO {name} ({names}) {lacking}")

    def _staged(self, name: str, columns: Sequence[str], rows: Sequence[Values] | pa.Table) -> str:
        """Put rows into a temporary table with some columns of a table, and return its name."""
        number = self._stages.setdefault((name, tuple(columns)), next(self._numbers))
        names = ", ".join(map(self.quoted, columns))
        self.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS canal_rows_{number} ON COMMIT DELETE ROWS AS SELECT {names} FROM {name}"
            " WITH NO DATA"
        )
        self.execute(f"DELETE FROM canal_rows_{number}")
        self.insert(f"canal_rows_{number}", columns, rows)
        return f"canal_rows_{number}"

    def _same(self, table: Table) -> str:
        return " AND ".join(f"t.{self.quoted(one)} = s.{self.quoted(one)}" for one in table.keys)

    def patient(self) -> AbstractContextManager[None]:
        return self._server.watch.patient()

    def prepare(self, state: TableState) -> bool:
        is_new = super().prepare(state)
        if is_new:  # columns may have other types now
            self._stages.clear()
        return is_new

    def adapted_key(self, table: Table, key: Sequence[Any]) -> Key:
        """A float as text is compared as the column's type: 0.1 of 32 bits and of 64 bits are two numbers."""
        return tuple([repr(value) if type(value) is float else value for value in self._adapted(key)])

    def naming(self) -> Naming:
        sql = "SELECT current_schema(), current_setting('max_identifier_length')::int"
        ((schema, longest),) = self.execute(sql).fetchall()
        reserved = [(schema, self._options.progress_table)]
        return Naming(schema=schema or "", longest=longest, reserved=reserved if schema else [])

    def create_parent(self, parts: Path) -> None:
        is_there = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
        if len(parts) > 1 and not self.execute(is_there, parts[:1]).fetchall():
            self.execute(f"CREATE SCHEMA IF NOT EXISTS {self.quoted(parts[0])}")

    def key_type(self, column: ColumnSchema) -> str:
        kind = self.column_type(column)
        return f'{kind} COLLATE "C"' if kind == "text" else kind

    def create_table(self, parts: Path, columns: str, mark: str) -> None:
        super().create_table(parts, columns, mark)
        self.execute(f"COMMENT ON TABLE {self.named(parts)} IS '{mark}'")

    def mark_of(self, parts: Path) -> str:
        sql = "SELECT obj_description(to_regclass(%s), 'pg_class')"
        found = str(self.execute(sql, (self.named(parts).replace("%%", "%"),)).fetchall()[0][0])
        return found if found.startswith(MARK) else ""

    def weak_key(self, table: Table, parts: Path) -> str:
        rows = self.execute(
            "SELECT attname, collname, collisdeterministic, COALESCE(NULLIF(typbasetype, 0), atttypid)::regtype::text"
            " FROM pg_attribute JOIN pg_type t ON t.oid = atttypid LEFT JOIN pg_collation c ON c.oid = attcollation"
            " WHERE attrelid = to_regclass(%s) AND attname = ANY(%s) AND NOT attisdropped",
            (self.named(parts).replace("%%", "%"), list(table.keys)),
        ).fetchall()
        for name, collation, is_deterministic, kind in rows:
            if is_deterministic is False:
                return f"{name} has the collation {collation}, which is not deterministic"
            if kind.rpartition(".")[2] == "citext":
                return f"{name} is citext"
        return ""

    def columns(self, parts: Path) -> dict[str, str] | None:
        """A column of a domain has the type below it, and one of an enumeration the type "enum"."""
        rows = self.execute(
            "SELECT attname, CASE t.typtype WHEN 'e' THEN 'enum' WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod)"
            " ELSE format_type(atttypid, atttypmod) END FROM pg_attribute JOIN pg_type t ON t.oid = atttypid"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (self.named(parts).replace("%%", "%"),),
        ).fetchall()
        return dict(rows) or None

    def column_type(self, column: ColumnSchema) -> str:
        base = column.base_type
        if base == "decimal":
            return f"numeric{_arguments(column.column_type) or '(10,0)'}"
        kind = f"{base} unsigned" if column.unsigned else base
        found = _TYPES.get(kind) or _TYPES.get(base)
        return found or (_BYTES if column.charset == "binary" and base not in ("uuid", "inet4", "inet6") else "text")

    def check_column(self, column: ColumnSchema, declared: str) -> str:
        """Accept a type if it keeps every value of the column, or refuses it by an error."""
        if not column.column_type:  # a rule made the column
            return ""
        own, digits = self.column_type(column), _arguments(declared)
        keeps = declared == own or any(re.fullmatch(kept, declared) for kind, kept in _KEEP if re.fullmatch(kind, own))
        if keeps and digits and own.startswith(("numeric", "timestamp", "interval")):
            keeps = _scale(digits) >= _scale(_arguments(own if own.startswith("numeric") else column.column_type))
        if keeps and digits and own == "text":  # it cuts blanks at the end without an error
            keeps = column.labels is not None or 0 < _length(column) <= _scale(digits)
        keeps = keeps or (column.base_type, declared) in (("enum", "enum"), ("uuid", "uuid"))
        return "" if keeps else f"is {declared}, which may change values of {column.column_type}"

    def adapters(self) -> Mapping[type, Callable[[Any], Any]]:
        return _ADAPTERS

    def quoted(self, name: str) -> str:
        return super().quoted(name).replace("%", "%%")


def _length(column: ColumnSchema) -> int:
    """Characters that the values of a CHAR or VARCHAR have at most; 0 if it is another type."""
    return _scale(_arguments(column.column_type)) if column.base_type in ("char", "varchar") else 0


def _arguments(declared: str) -> str:
    found = re.search(r"\([-\d, ]+\)", declared)
    return found[0] if found else ""


def _scale(arguments: str) -> int:
    """The last number of a type's arguments: digits behind the point."""
    return int(arguments.strip("()").rpartition(",")[2] or 0)


_ADAPTERS: Final[Mapping[type, Callable[[Any], Any]]] = {**NO_TYPE, dict: document_text, list: document_text}


def _said(error: psycopg.Error) -> str:
    """What is wrong, and where; its own text may quote a value."""
    diag = error.diag
    column = re.search(r", column (\w+)", diag.context or "")
    where = diag.constraint_name or diag.column_name or (column[1] if column else "") or diag.table_name
    return f"{error.sqlstate or 'a value that psycopg does not take'} {type(error).__name__}" + (f", {where}" if where else "")
