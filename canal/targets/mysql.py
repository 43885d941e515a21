"""A MySQL or MariaDB server: all tables of a stream and the progress in one transaction.

Never rounds or cuts a value: a column that would is refused before anything is written, and a warning is an error.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import attrs
import pymysql
from pymysql.constants import CLIENT, COMMAND

from canal._util.option_checks import positive
from canal._util.option_names import check_arguments
from canal.changes.alters import keeps_values
from canal.changes.change import Table
from canal.changes.latest import Key, TableState, Values
from canal.errors import ConfigError, ConnectionLostError, TargetError, TargetSchemaError, UnfitChangeError
from canal.schema import TEXT_TYPES, ColumnSchema, column_from_text
from canal.targets.names import Naming, Path, same
from canal.targets.protocol import Guarantee, Scope
from canal.targets.sql import SQLWork
from canal.targets.sql_errors import Kind, error_of, kind_of_number
from canal.targets.sql_tables import MARK, Refused, SQLOptions
from canal.targets.values import SHAPES, TEXTS, plain_text, shortest, widened
from canal.targets.watch import ConnectionWatch, keep_alive

if TYPE_CHECKING:
    import pyarrow as pa

    from canal.changes.fold import ArrowState
    from canal.targets.tables.mysql import MySQLTableTarget

_MODE: Final = "STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO"
_DUPLICATES: Final = (1062, 1586)
#: Warnings of words that a later release may not know.
_DEPRECATED: Final = (1287,)
_ROWS: Final = 500
#: Bytes that a statement has beside its values, at most.
_STATEMENT: Final = 1 << 16


@attrs.frozen
class MySQLTarget:
    """Another MySQL or MariaDB server, or another schema; a table ``shop.orders`` is orders of the schema shop there.

    Tables that it makes are InnoDB, with the columns and the primary key of the source's; text in a key compares by its bytes.
    Foreign keys are not checked. Zero dates are kept. Never let it write what
    the same pipe reads: give tables other names by ``canal.Rule(to=…)`` where source and target are one server.

    Args:
        connect: arguments of ``pymysql.connect``: host, user, password … The user needs SELECT, INSERT, UPDATE and DELETE on the
            tables, and CREATE and ALTER where tables are to be made and columns added.
        database: where the progress is, and tables whose names have no schema.
        create, schema, progress_table: as ``canal.targets.sql_tables.SQLOptions`` has them.
        timeout: seconds that the server may take for a statement about rows; then the connection is taken for lost.
    """

    connect: Mapping[str, Any] = attrs.field(repr=False)
    database: str = "canal"
    create: bool = attrs.field(default=True, kw_only=True)
    schema: Literal["add", "refuse"] = attrs.field(default="add", kw_only=True)
    progress_table: str = attrs.field(default="canal_progress", kw_only=True)
    timeout: float = attrs.field(default=60.0, kw_only=True, validator=positive)

    guarantee = Guarantee.ONCE
    scope: ClassVar[Scope] = "all"
    is_log = False

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.connect, Mapping):
            raise ConfigError("connect must be a dict of arguments of pymysql.connect")
        check_arguments("connect of MySQLTarget", self.connect, pymysql.connect)

    def __str__(self) -> str:
        return f"MySQL {self.connect.get('host', 'localhost')}:{self.connect.get('port', 3306)}"

    def table_target(self, name: str) -> MySQLTableTarget:
        """Return the writer of one table, which ``apply_changes`` uses. The table must exist, and the progress is in its schema.

        Raises:
            ConfigError: the name is not ``table`` or ``schema.table``.
        """
        from canal.targets.tables.mysql import MySQLTableTarget  # needs pyarrow

        return MySQLTableTarget(name if "." in name else f"{self.database}.{name}", self.connect, self.progress_table)

    @contextmanager
    def begin(self, stream: str) -> Iterator[MySQLWork]:
        options = {"charset": "utf8mb4", "connect_timeout": 10, "autocommit": True, "client_flag": 0, **self.connect}
        options["client_flag"] |= CLIENT.FOUND_ROWS | CLIENT.LOCAL_FILES  # it is never sent a file: see _load
        connection: Any = pymysql.connect(**{**options, "defer_connect": True})
        stopping = threading.Event()
        watch = ConnectionWatch(
            lambda: connection._sock.fileno(), self.timeout, lambda: work.stopping if work is not None else stopping
        )
        work: MySQLWork | None = None
        server = _Server(f"{self}", str(self.connect.get("user", "")), watch)
        with watch.running():
            with server.asked():
                connection.connect()
                keep_alive(connection._sock)
            with closing(connection):
                options_of = SQLOptions(self.create, self.schema, self.progress_table)
                work = MySQLWork(connection, self.database, stream, options_of, server)
                yield work


@attrs.frozen
class _Server:
    """Of the server, what its errors name, and the watch over the connection to it."""

    target: str
    user: str
    watch: ConnectionWatch

    @contextmanager
    def asked(self) -> Iterator[None]:
        """What a call of PyMySQL raises becomes an error of ours."""
        try:
            with self.watch:
                yield
        except UnicodeEncodeError as error:
            raise Refused("text that is none in UTF-8") from error
        except pymysql.MySQLError as error:
            if self.watch.is_cut:
                raise ConnectionLostError(f"{self.target} has not answered for {self.watch.limit:g} s") from error
            number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            said = f"error {number} ({type(error).__name__}){_column(str(error.args[-1:]))}"
            kind = kind_of_number(number)
            if kind is Kind.ROW or isinstance(error, (pymysql.DataError, pymysql.IntegrityError)):
                raise Refused(said, is_duplicate=number in _DUPLICATES) from error
            if isinstance(error, pymysql.InterfaceError):
                kind = Kind.LOST
            raise error_of(kind, said, self.target, self.user) from error


class MySQLWork(SQLWork):
    slot = "%s"
    quote = "`"

    def __init__(self, connection: Any, database: str, stream: str, options: SQLOptions, server: _Server) -> None:
        self._connection, self._database, self._server = connection, database, server
        self._sole_keys: dict[Path, bool] = {}
        self._padded: set[Path] = set()
        self._stages: dict[Path, int] = {}
        self.execute(f"SET SESSION time_zone = '+00:00', foreign_key_checks = 0, sql_mode = '{_MODE}'")
        self._packet = int(self.execute("SELECT @@max_allowed_packet").fetchone()[0])
        self._loads = self._can_load()
        super().__init__(stream, options)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        cursor = self._connection.cursor()
        with self._server.asked():
            cursor.execute(sql, tuple(values))
        return cursor

    @property
    def progress_name(self) -> str:
        return f"{self.quoted(self._database)}.{self.quoted(self._options.progress_table)}"

    def _prepare_progress(self) -> None:
        parts = self._database, self._options.progress_table
        if self.columns(parts) is not None:
            return
        self.create_parent(parts)
        self.execute(
            f"CREATE TABLE IF NOT EXISTS {self.progress_name} (stream VARCHAR(128) NOT NULL, target VARCHAR(64) NOT NULL,"
            " progress MEDIUMTEXT, PRIMARY KEY (stream, target)) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        )

    def insert(self, name: str, columns: Sequence[str], rows: Sequence[Values], then: str = "") -> None:
        names = ", ".join(map(self.quoted, columns))
        one = f"({', '.join([self.slot] * len(columns))})"
        for some in self._fitting(rows):
            slots = ", ".join([one] * len(some))
            self.execute(f"INSERT INTO {name} ({names}) VALUES {slots}{then}", [value for row in some for value in row])
            self._check_warnings()

    def _check_warnings(self) -> None:
        for _, number, text in self.execute("SHOW WARNINGS").fetchall():
            if number not in _DEPRECATED:
                raise Refused(f"the server would change a value, warning {number}{_column(str(text))}")

    # -- rows in columns: they are loaded into temporary tables, from which the others are changed ------------------------------

    def _can_load(self) -> bool:
        """Whether the server takes rows by LOAD DATA LOCAL, and does not log statements for its replicas to run."""
        wanted = "('local_infile', 'log_bin', 'binlog_format')"
        found = dict(self.execute(f"SHOW VARIABLES WHERE variable_name IN {wanted}").fetchall())
        logs_statements = found.get("log_bin") == "ON" and found.get("binlog_format") == "STATEMENT"
        return found.get("local_infile") == "ON" and not logs_statements

    def columns_of(self, state: TableState) -> ArrowState | None:
        arrow = super().columns_of(state) if self._loads else None
        if arrow is None or self.names.naming.path(state.table) not in self._padded:
            return arrow
        from canal.targets.sql_bulk import has_spaces

        return None if any(map(has_spaces, [arrow.deletes, arrow.upserts.select(arrow.deletes.column_names)])) else arrow

    def _make_stages(self, parts: Path, table: Table) -> None:
        """Make temporary tables for rows and for keys. In a transaction not every server lets them be made."""
        number = self._stages.setdefault(parts, len(self._stages))
        for kind, columns in (("rows", table.names.names), ("keys", table.keys)):
            stage = self.named((self._database, f"canal_{kind}_{number}"))
            names = ", ".join(map(self.quoted, columns))
            try:
                self.execute(f"DROP TEMPORARY TABLE IF EXISTS {stage}")
                self.execute(f"CREATE TEMPORARY TABLE {stage} AS SELECT {names} FROM {self.named(parts)} LIMIT 0")
            except ConnectionLostError:
                raise
            except (TargetError, Refused):  # such as a right that the user does not have
                self._loads = False

    def form(self, values: pa.Array, column: ColumnSchema, declared: str) -> pa.Array | None:
        from canal.targets.load_data import text_form

        return text_form(values, declared)

    def put_columns(self, name: str, table: Table, rows: ArrowState) -> None:
        number = self._stages[self.names.naming.path(table)]
        same = " AND ".join(f"{name}.{self.quoted(one)} = s.{self.quoted(one)}" for one in table.keys)
        if rows.deletes.num_rows:
            stage = self._load(f"canal_keys_{number}", table.keys, rows.deletes)
            self.execute(f"DELETE FROM {name} USING {stage} AS s STRAIGHT_JOIN {name} ON {same}")
        if not rows.upserts.num_rows:
            return
        stage = self._load(f"canal_rows_{number}", table.names.names, rows.upserts)
        names = [self.quoted(one) for one in table.names.names]
        own = [self.quoted(one) for one in table.names.names if one not in table.keys] or [self.quoted(table.keys[0])]
        insert = f"INSERT INTO {name} ({', '.join(names)}) SELECT {', '.join(f's.{one}' for one in names)} FROM {stage} AS s"
        if self._is_sole_key(table):
            self.execute(f"{insert} ON DUPLICATE KEY UPDATE {', '.join(f'{name}.{one} = VALUES({one})' for one in own)}")
        else:
            sets = ", ".join(f"{name}.{one} = s.{one}" for one in own)
            self.execute(f"UPDATE {stage} AS s STRAIGHT_JOIN {name} ON {same} SET {sets}")
            self._check_warnings()
            self.execute(f"{insert} LEFT JOIN {name} ON {same} WHERE {name}.{self.quoted(table.keys[0])} IS NULL")
        self._check_warnings()

    def _load(self, stage: str, columns: Sequence[str], rows: pa.Table) -> str:
        """Send rows into a temporary table; return its name.

        The library is not told to send local files, as it would send any file that a server asks for. Here it is the rows.
        """
        from canal.targets.load_data import lines, statement

        stage = self.named((self._database, stage))
        sql = statement(stage, list(map(self.quoted, columns)), rows).replace("%%", "%")  # it has no slots
        connection = self._connection
        with self._server.asked():
            connection._execute_command(COMMAND.COM_QUERY, sql)
            if connection._read_packet().is_load_local_packet():
                for piece in lines(rows):
                    connection.write_packet(piece)
                    self._server.watch.renew()
                connection.write_packet(b"")
                connection._read_packet()
        self._check_warnings()
        return stage

    def _fitting(self, rows: Sequence[Values]) -> Iterator[Sequence[Values]]:
        """Slices, no larger than a statement may be; a larger row is alone."""
        begin = size = 0
        for number, row in enumerate(rows):
            own = sum(map(_size, row))
            if own > self._packet:
                self._check_size(row)
            if number > begin and (size + own > self._packet // 2 or number - begin >= _ROWS):
                yield rows[begin:number]
                begin, size = number, 0
            size += own
        if begin < len(rows):
            yield rows[begin:]

    def _check_size(self, row: Values) -> None:
        """A statement that is too large breaks the connection, and would again."""
        escaped = (str(self._connection.escape(value, self._connection.encoders)) for value in row)
        size = sum(len(text.encode("utf-8", "surrogateescape")) + 2 for text in escaped)
        if size + _STATEMENT > self._packet:
            raise Refused(f"it has {size} bytes, and max_allowed_packet of the server is {self._packet}")

    def patient(self) -> AbstractContextManager[None]:
        return self._server.watch.patient()

    def rollback(self) -> None:
        if self._connection.open:
            self.execute("ROLLBACK")

    def upsert(self, name: str, table: Table, columns: Sequence[str], rows: Sequence[Values]) -> None:
        """ON DUPLICATE KEY looks at all unique keys, and finds the wrong row by another one than that of the changes."""
        if self._is_sole_key(table):
            own = [one for one in columns if one not in table.keys] or [table.keys[0]]
            sets = ", ".join(f"{self.quoted(one)} = VALUES({self.quoted(one)})" for one in own)
            self.insert(name, columns, rows, f" ON DUPLICATE KEY UPDATE {sets}")
        else:
            super().upsert(name, table, columns, rows)

    def _is_sole_key(self, table: Table) -> bool:
        """Whether the target's table has one unique key, which is that of the changes."""
        parts = self.names.naming.path(table)
        if parts not in self._sole_keys:
            keys = self._unique_keys(parts)
            wanted = {(name.lower(), None) for name in table.keys}
            self._sole_keys[parts] = [{(column and column.lower(), cut) for column, cut in key} for key in keys] == [wanted]
        return self._sole_keys[parts]

    def _unique_keys(self, parts: Path) -> list[list[tuple[str | None, int | None]]]:
        """The columns of each unique key, and how many characters of them are in it; None: all."""
        rows = self.execute(
            "SELECT index_name, column_name, sub_part FROM information_schema.statistics"
            " WHERE table_schema = %s AND table_name = %s AND non_unique = 0 ORDER BY index_name, seq_in_index",
            parts,
        ).fetchall()
        found: dict[str, list[tuple[str | None, int | None]]] = {}
        for index, column, cut in rows:
            found.setdefault(index, []).append((column, cut))
        return list(found.values())

    def prepare(self, state: TableState) -> bool:
        is_new = super().prepare(state)
        if is_new:
            parts = self.names.naming.path(state.table)
            self._sole_keys.pop(parts, None)
            collations = self._collations(parts, state.table).values()
            is_padded = any(one != "utf8mb4_0900_bin" and "_nopad_" not in one for one in collations)
            (self._padded.add if is_padded else self._padded.discard)(parts)
        if self.columns_of(state) is not None:
            self._make_stages(self.names.naming.path(state.table), state.table)
        return is_new

    def _collations(self, parts: Path, table: Table) -> dict[str, str]:
        """Those of the columns of the key that have text."""
        rows = self.execute(
            "SELECT column_name, collation_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
            parts,
        ).fetchall()
        keys = {name.lower() for name in table.keys}
        return {name: str(found) for name, found in rows if found is not None and name.lower() in keys}

    def naming(self) -> Naming:
        fold = str.lower if int(self.execute("SELECT @@lower_case_table_names").fetchone()[0]) else same
        reserved = [(self._database, self._options.progress_table)]
        return Naming(fold=fold, fold_columns=str.lower, schema=self._database, reserved=reserved)

    def adapted_key(self, table: Table, key: Sequence[Any]) -> Key:
        """A FLOAT is compared as the double that its 32 bits are: 0.1 as 0.10000000149011612."""
        adapted = self._adapted(key)
        if float in map(type, adapted):
            kinds = [table.columns[table.names.index(name)].base_type for name in table.keys]
            is_float = [type(value) is float and kind == "float" for value, kind in zip(adapted, kinds)]
            adapted = [widened(value) if one else value for value, one in zip(adapted, is_float)]
        return tuple(adapted)

    def selected(self, column: ColumnSchema) -> str:
        """A FLOAT has 6 digits as text, and all of them as a double. A BIT is bytes, and a number in a sum."""
        return super().selected(column) + {"float": " + 0e0", "bit": " + 0"}.get(column.base_type, "")

    def returned(self, table: Table, row: Sequence[Any]) -> Values:
        return tuple(
            [
                shortest(value) if type(value) is float and column.base_type == "float" else value
                for value, column in zip(row, table.columns)
            ]
        )

    def _adapted_rows(self, state: TableState) -> tuple[dict[Key, Values], list[UnfitChangeError]]:
        rows, unfit = super()._adapted_rows(state)
        if self.names.naming.path(state.table) in self._padded:
            text = "a key ends with spaces, which the collation of the target's key does not tell apart"
            spaced = [key for key in state.rows if any(type(value) is str and value.endswith(" ") for value in key)]
            unfit += [self.unfit_change(state.table, state.of_key(key), text) for key in spaced]
        return rows, unfit

    def create_parent(self, parts: Path) -> None:
        if not self.execute("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", parts[:1]).fetchall():
            self.execute(f"CREATE DATABASE IF NOT EXISTS {self.quoted(parts[0])}")

    def columns(self, parts: Path) -> dict[str, str] | None:
        at = "table_schema = %s AND table_name = %s"
        asked = "column_name, column_type, character_set_name"
        rows = self.execute(f"SELECT {asked} FROM information_schema.columns WHERE {at}", parts).fetchall()
        engine = self.execute(
            "SELECT t.engine, e.transactions FROM information_schema.tables t JOIN information_schema.engines e"
            f" ON e.engine = t.engine WHERE {at}",
            parts,
        ).fetchall()
        for name, transactions in engine:
            if transactions != "YES":
                raise TargetSchemaError(
                    f"the table {'.'.join(parts)} has the engine {name}, which has no transactions",
                    remedy="ALTER TABLE … ENGINE = InnoDB.",
                )
        kinds = ((name, kind if isinstance(kind, str) else kind.decode(), charset) for name, kind, charset in rows)
        return {name: f"{kind} CHARACTER SET {charset}" if charset else kind for name, kind, charset in kinds} or None

    def column_type(self, column: ColumnSchema) -> str:
        kind = re.sub(r" ?/\*.*\*/", "", column.column_type) or "longtext"
        if column.labels is not None:
            labels = "', '".join(label.replace("\\", "\\\\").replace("'", "''").replace("%", "%%") for label in column.labels)
            kind = f"{column.base_type}('{labels}')"
        if column.charset in (None, "binary") or column.base_type in ("json", "uuid", "inet4", "inet6"):
            return kind
        return f"{kind} CHARACTER SET {column.charset}"

    def create_table(self, parts: Path, columns: str, mark: str) -> None:
        self.execute(f"CREATE TABLE {self.named(parts)} ({columns}) COMMENT '{mark}'")

    def mark_of(self, parts: Path) -> str:
        sql = "SELECT table_comment FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        found = str(self.execute(sql, parts).fetchall())
        return f"{MARK}{found.partition(MARK)[2][:16]}" if MARK in found else ""

    def key_type(self, column: ColumnSchema) -> str:
        """Text of a key compares by its bytes, and spaces at its end count where the server has such a collation."""
        kind = self.column_type(column)
        if " CHARACTER SET " not in kind:
            return kind
        wanted = (f"{column.charset}_nopad_bin", "utf8mb4_0900_bin", f"{column.charset}_bin")
        rows = self.execute(
            "SELECT collation_name, character_set_name FROM information_schema.collations WHERE collation_name IN (%s, %s, %s)",
            wanted,
        ).fetchall()
        collation, charset = min(rows, key=lambda row: wanted.index(row[0]))
        return f"{kind.rpartition(' ')[0]} {charset} COLLATE {collation}"

    def weak_key(self, table: Table, parts: Path) -> str:
        wanted = {name.lower() for name in table.keys}
        for key in self._unique_keys(parts):
            cut = next((column for column, cut in key if cut is not None), None)
            if cut is not None and {column and column.lower() for column, _ in key} == wanted:
                return f"a unique key has the beginning of {cut} alone"
        collations = self._collations(parts, table)
        weak = next((name for name, found in collations.items() if not found.endswith("_bin")), None)
        return "" if weak is None else f"{weak} has the collation {collations[weak]}"

    def check_column(self, column: ColumnSchema, declared: str) -> str:
        kind, _, charset = declared.partition(" CHARACTER SET ")
        is_named = column.charset is not None or column.base_type not in TEXT_TYPES  # some logs do not name the charset
        theirs = column_from_text(column.name, kind, charset=charset if charset and is_named else None)
        is_json = column.base_type == "json" and theirs.base_type == "longtext"  # MariaDB's
        keeps = keeps_values(column, theirs) and (theirs.base_type != "geometry" or column.base_type in SHAPES)
        if not declared or not column.column_type or is_json or keeps:
            return ""
        return f"is {declared}, which does not keep all values of {column.column_type}"

    def adapters(self) -> Mapping[type, Callable[[Any], Any]]:
        return _ADAPTERS

    def quoted(self, name: str) -> str:
        return super().quoted(name).replace("%", "%%")


def _size(value: Any) -> int:
    """Bytes of a value in a statement, at most: each of text and bytes may be escaped by another one."""
    if isinstance(value, str):
        return 8 * len(value) + 2
    return 2 * len(value) + 12 if isinstance(value, bytes) else 48


def _moment(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ") if value.tzinfo is not None else value.isoformat(" ")


_ADAPTERS: Final[Mapping[type, Callable[[Any], Any]]] = {**TEXTS, datetime: _moment, str: plain_text}


def _column(said: str) -> str:
    """The column or key that the server names; it may quote values too."""
    found = re.search(r"(?:column|key) '([^']+)'|column (?:`[^`]*`\.){2}`([^`]+)`", said)
    return f", {found[1] or found[2]}" if found else ""
