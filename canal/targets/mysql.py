"""A MySQL or MariaDB server: all tables of a stream and the progress in one transaction.

Never rounds or cuts a value: a column that would is refused before anything is written, and a warning is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal

import attrs
import pymysql
from pymysql.constants import CLIENT

from canal.changes.alters import keeps_values
from canal.changes.latest import Values
from canal.errors import ConfigError, ConnectionLostError, TargetError, TargetSchemaError
from canal.schema import ColumnSchema, column_from_text
from canal.targets.protocol import Guarantee, Scope
from canal.targets.sql import Refused, SQLOptions, SQLWork
from canal.targets.values import TEXTS, plain_text
from canal.targets.work import conflict

_MODE: Final = "STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO"
_CONFLICTS: Final = (1205, 1213)  # lock wait timeout, deadlock
_LOST: Final = (1053, 1927, 2002, 2003, 2006, 2013, 2055)
_ROWS: Final = 500


@attrs.frozen
class MySQLTarget:
    """Another MySQL or MariaDB server, or another schema; a table ``shop.orders`` is orders of the schema shop there.

    Tables that it makes are InnoDB, with the columns and the primary key of the source's; text in a key compares by its bytes.
    Foreign keys are not checked; triggers see a changed row deleted and inserted. Zero dates are kept. Never let it write what
    the same pipe reads: give tables other names by ``canal.Rule(to=…)`` where source and target are one server.

    Args:
        connect: arguments of ``pymysql.connect``: host, user, password … The user needs SELECT, INSERT, UPDATE and DELETE on the
            tables, and CREATE and ALTER where tables are to be made and columns added.
        database: where the progress is, and tables whose names have no schema.
        create, schema, progress_table: as ``canal.targets.sql.SQLOptions`` has them.
    """

    connect: Mapping[str, Any] = attrs.field(repr=False)
    database: str = "canal"
    create: bool = attrs.field(default=True, kw_only=True)
    schema: Literal["add", "refuse"] = attrs.field(default="add", kw_only=True)
    progress_table: str = attrs.field(default="canal_progress", kw_only=True)

    guarantee = Guarantee.ONCE
    scope: ClassVar[Scope] = "all"
    is_log = False

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.connect, Mapping):
            raise ConfigError("connect must be a dict of arguments of pymysql.connect")

    def __str__(self) -> str:
        return f"MySQL {self.connect.get('host', 'localhost')}:{self.connect.get('port', 3306)}"

    @contextmanager
    def begin(self, stream: str) -> Iterator[MySQLWork]:
        options = {"charset": "utf8mb4", "connect_timeout": 10, "autocommit": True, "client_flag": 0, **self.connect}
        options["client_flag"] |= CLIENT.FOUND_ROWS
        with _understood():
            connection = pymysql.connect(**options)
        with closing(connection):
            yield MySQLWork(connection, self.database, stream, SQLOptions(self.create, self.schema, self.progress_table))


class MySQLWork(SQLWork):
    slot = "%s"
    quote = "`"

    def __init__(self, connection: Any, database: str, stream: str, options: SQLOptions) -> None:
        self._connection, self._database = connection, database
        self.execute(f"SET SESSION time_zone = '+00:00', foreign_key_checks = 0, sql_mode = '{_MODE}'")
        self._packet = int(self.execute("SELECT @@max_allowed_packet").fetchone()[0])
        super().__init__(stream, options)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        cursor = self._connection.cursor()
        with _understood():
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

    def insert(self, name: str, columns: Sequence[str], rows: Sequence[Values]) -> None:
        names = ", ".join(map(self.quoted, columns))
        one = f"({', '.join([self.slot] * len(columns))})"
        for some in self._fitting(rows):
            slots = ", ".join([one] * len(some))
            self.execute(f"INSERT INTO {name} ({names}) VALUES {slots}", [value for row in some for value in row])
            for _, number, text in self.execute("SHOW WARNINGS").fetchall():
                raise Refused(f"the server would change a value, warning {number}{_column(str(text))}")

    def _fitting(self, rows: Sequence[Values]) -> Iterator[Sequence[Values]]:
        """Slices, no larger than a statement may be; a larger row is alone."""
        begin = size = 0
        for number, row in enumerate(rows):
            own = sum(map(_size, row))
            if number > begin and (size + own > self._packet // 2 or number - begin >= _ROWS):
                yield rows[begin:number]
                begin, size = number, 0
            size += own
        if begin < len(rows):
            yield rows[begin:]

    def rollback(self) -> None:
        if self._connection.open:
            self.execute("ROLLBACK")

    def parts(self, name: str) -> tuple[str, ...]:
        schema, _, table = name.rpartition(".")
        return schema or self._database, table

    def create_parent(self, parts: tuple[str, ...]) -> None:
        if not self.execute("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", parts[:1]).fetchall():
            self.execute(f"CREATE DATABASE IF NOT EXISTS {self.quoted(parts[0])}")

    def columns(self, parts: tuple[str, ...]) -> dict[str, str] | None:
        at = "table_schema = %s AND table_name = %s"
        rows = self.execute(f"SELECT column_name, column_type FROM information_schema.columns WHERE {at}", parts).fetchall()
        engine = self.execute(
            "SELECT t.engine, e.transactions FROM information_schema.tables t JOIN information_schema.engines e"
            f" ON e.engine = t.engine WHERE {at}", parts,
        ).fetchall()  # fmt: skip
        for name, transactions in engine:
            if transactions != "YES":
                raise TargetSchemaError(
                    f"the table {'.'.join(parts)} has the engine {name}, which has no transactions",
                    remedy="ALTER TABLE … ENGINE = InnoDB.",
                )
        return {name: kind if isinstance(kind, str) else kind.decode() for name, kind in rows} or None

    def column_type(self, column: ColumnSchema) -> str:
        kind = re.sub(r" ?/\*.*\*/", "", column.column_type) or "longtext"
        if column.charset in (None, "binary") or column.base_type in ("json", "uuid", "inet4", "inet6"):
            return kind
        charset = f"{kind} CHARACTER SET {column.charset}"
        return f"{charset} COLLATE {column.charset}_bin" if column.key else charset

    def check_column(self, column: ColumnSchema, declared: str) -> str:
        theirs = column_from_text(column.name, declared, charset=column.charset)
        is_json = column.base_type == "json" and theirs.base_type == "longtext"  # MariaDB's
        if not declared or not column.column_type or is_json or keeps_values(column, theirs):
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


@contextmanager
def _understood() -> Iterator[None]:
    try:
        yield
    except UnicodeEncodeError as error:
        raise Refused("text that is none in UTF-8") from error
    except pymysql.MySQLError as error:
        number = error.args[0] if error.args else 0
        said = f"error {number} ({type(error).__name__})"
        if number in _CONFLICTS:
            raise conflict(f"another writer holds what is to be written: {said}") from error
        if number in _LOST or isinstance(error, pymysql.InterfaceError):
            raise ConnectionLostError(f"the connection to the target broke: {said}") from error
        if isinstance(error, (pymysql.DataError, pymysql.IntegrityError)) or number in (1292, 1364, 1366, 3140):
            raise Refused(f"{said}{_column(str(error.args[-1]))}") from error
        raise TargetError(f"the server refuses: {said}") from error


def _column(said: str) -> str:
    """The column or key that the server names; it may quote values too."""
    found = re.search(r"(?:column|key) '([^']+)'|column (?:`[^`]*`\.){2}`([^`]+)`", said)
    return f", {found[1] or found[2]}" if found else ""
