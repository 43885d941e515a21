"""A table of a MySQL or MariaDB server, written with PyMySQL: rows and progress in one transaction.

Never creates the table: the user chooses its types, keys and collations. A column becomes wider only if it cannot hold a number
or a moment.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import attrs
import pyarrow as pa
import pymysql

from canal._util.option_names import check_arguments
from canal.binlog.server_facts import read_release
from canal.errors import ConfigError, ConnectionLostError, TargetConflictError, TargetError, TargetSchemaError
from canal.formats.spark_types import spark_arrow_type
from canal.parse.source.information_schema import table_states
from canal.schema import ColumnSchema
from canal.targets.protocol import Progress
from canal.targets.tables import Abilities
from canal.targets.tables.mysql_types import is_changed, redefined, wider_type

log = logging.getLogger("canal.pipe")

_SLICE: Final = 500
#: Maximum bytes of a number, a date or a separator in a statement.
_CELL: Final = 48
_NO_TABLE: Final = 1146
_DUPLICATE: Final = 1062
_CONFLICTS: Final = (1205, 1213)  # lock wait timeout, deadlock
_LOST: Final = (2006, 2013, 2055, 1053, 1927)
_MODE: Final = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_VALUE_ON_ZERO"


@attrs.frozen
class MySQLTableTarget:
    """An existing table, in another server or schema than the source's, with columns of the source's types.

    Its engine has transactions (InnoDB). The server computes generated columns. A snapshot in chunks and a transaction that is
    split over batches may temporarily repeat a value of a unique key that is not in ``keys``: create such keys when the
    target has caught up.

    Rows and the progress, a row of ``progress_table`` (which the target creates), are written in one transaction, under a lock
    on that row: a second writer waits, then skips the changes of the first writer. Rows with the keys of the batch are deleted
    and inserted again. Triggers see that, and foreign keys are not checked. A value that the server would truncate or round is
    an error. Numbers and moments that need a wider column get an ALTER before the rows. A second writer may
    write between the two.

    Args:
        table: ``schema.table``.
        connect: arguments of ``pymysql.connect``: host, user, password … The user needs SELECT, INSERT and DELETE on the table,
            and ALTER for a wider column; SELECT, INSERT, UPDATE and DELETE on the progress table, and CREATE if it is missing.
        progress_table: its name, in the schema of the table.
    """

    table: str
    connect: Mapping[str, Any] = attrs.field(repr=False)
    progress_table: str = "canal_progress"

    abilities = Abilities(stores_durations=True, widens=True)

    def __attrs_post_init__(self) -> None:
        if self.table.count(".") != 1:
            raise ConfigError(f"table must be schema.table, not {self.table!r}")
        check_arguments("connect of MySQLTarget", self.connect, pymysql.connect)

    @contextmanager
    def begin(self, stream: str, keys: tuple[str, ...]) -> Iterator[_MySQLWork]:
        if not keys:
            raise ConfigError("MySQLTarget cannot append changes", remedy="Set keys to the key columns of the table.")
        try:
            options = {"charset": "utf8mb4", "connect_timeout": 10, **self.connect}
            connection = pymysql.connect(**options, autocommit=False)
            with closing(connection), connection.cursor() as cursor:
                yield _MySQLWork(self, connection, cursor, stream, keys)
                connection.rollback()
        except pymysql.MySQLError as error:
            raise self._understood(error) from error

    def _understood(self, error: pymysql.MySQLError) -> Exception:
        number = error.args[0] if error.args else 0
        what = f"{self.table}: error {number} ({type(error).__name__})"
        if number in _CONFLICTS:
            return TargetConflictError(f"another writer has locked rows of {what}", remedy="Apply the batch again.")
        if number in _LOST or isinstance(error, pymysql.OperationalError) and number in (2002, 2003):
            return ConnectionLostError(f"the connection to the target broke, {what}")
        if number == _DUPLICATE:
            return TargetSchemaError(
                f"a unique key would have a value twice in {what}",
                remedy="Drop the unique keys other than the keys of apply_changes, and create them again when the target has "
                "caught up: chunks of a snapshot are read at different times, and a transaction may be split. If the value is in "
                "the keys of apply_changes, use the source's collation: another collation may treat two texts as equal.",
            )
        if isinstance(error, (pymysql.err.DataError, pymysql.err.IntegrityError, pymysql.err.ProgrammingError)):
            return _unfit(self.table, f"the server refuses rows of {what}", str(error.args[-1]))
        return TargetError(f"the server refused to write {what}")


class _MySQLWork:
    """A transaction that has locked the progress of the stream."""

    def __init__(self, target: MySQLTableTarget, connection: Any, cursor: Any, stream: str, keys: Sequence[str]) -> None:
        self._connection, self._cursor, self._keys = connection, cursor, keys
        schema, table = target.table.split(".")
        self._table = f"{_quoted(schema)}.{_quoted(table)}"
        self._progress_table = f"{_quoted(schema)}.{_quoted(target.progress_table)}"
        self._names = (stream, table)
        own = "time_zone = '+00:00', foreign_key_checks = 0, sql_quote_show_create = 1"
        cursor.execute(f"SET SESSION {own}, sql_mode = %s", (_MODE,))
        self._declared = self._columns(schema, table)
        fields = [pa.field(column.name, spark_arrow_type(column)) for column in self._declared]
        self.schema: pa.Schema | None = pa.schema(fields)
        self._generated = self._facts(schema, table)
        self.progress = self._stored()

    def _columns(self, schema: str, table: str) -> list[ColumnSchema]:
        def ask(sql: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
            self._cursor.execute(sql, arguments)
            return list(self._cursor.fetchall())

        states = table_states(ask, schema, table, release=read_release(ask))
        if not states:
            raise TargetSchemaError(
                f"there is no table {schema}.{table}", remedy="Create it like the source's table (SHOW CREATE TABLE)."
            )
        return list(states[0].shown)

    def _facts(self, schema: str, table: str) -> set[str]:
        """Return the generated columns. Raise TargetSchemaError if the table has no transactions."""
        at = "table_schema = %s AND table_name = %s"
        self._cursor.execute(
            "SELECT t.engine, e.transactions FROM information_schema.tables t LEFT JOIN information_schema.engines e"
            f" ON e.engine = t.engine WHERE {at}",
            (schema, table),
        )
        for engine, transactions in self._cursor.fetchall():
            if transactions != "YES":
                raise TargetSchemaError(
                    f"the table {schema}.{table} has the engine {engine}, which has no transactions",
                    remedy="ALTER TABLE … ENGINE = InnoDB.",
                )
        self._cursor.execute(
            f"SELECT column_name FROM information_schema.columns WHERE {at} AND extra REGEXP 'VIRTUAL|STORED|PERSISTENT'",
            (schema, table),
        )
        generated = {name for (name,) in self._cursor.fetchall()}
        self._cursor.execute("SELECT @@max_allowed_packet")
        self._packet = int(self._cursor.fetchone()[0])
        return generated

    def _stored(self) -> Progress | None:
        try:
            self._lock()
        except pymysql.ProgrammingError as error:
            if error.args[0] != _NO_TABLE:
                raise
            self._cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._progress_table} (stream VARCHAR(128) NOT NULL, target VARCHAR(64) NOT NULL,"
                " progress MEDIUMTEXT, PRIMARY KEY (stream, target)) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            )
            self._lock()
        text = self._cursor.fetchone()[0]
        return None if text is None else Progress.from_text(text)

    def _lock(self) -> None:
        """Lock the progress row of the stream. Create the row if it is missing."""
        where = f"FROM {self._progress_table} WHERE stream = %s AND target = %s"
        if not self._cursor.execute(f"SELECT 1 {where}", self._names):
            self._connection.rollback()
            self._cursor.execute(
                f"INSERT INTO {self._progress_table} (stream, target) VALUES (%s, %s) ON DUPLICATE KEY UPDATE target = target",
                self._names,
            )
        else:
            self._connection.rollback()  # end the snapshot of before the lock
        self._cursor.execute(f"SELECT progress {where} FOR UPDATE", self._names)

    def read(self, keys: pa.Table) -> pa.Table:
        schema = self.schema
        assert schema is not None
        names = ", ".join(map(_quoted, schema.names))
        rows: list[tuple[Any, ...]] = []
        for where, values in self._where(keys):
            self._cursor.execute(f"SELECT {names} FROM {self._table} WHERE {where}", values)
            rows += self._cursor.fetchall()
        columns = list(zip(*rows)) or [()] * len(schema)
        typed = ([_arrow_value(value, field.type) for value in column] for column, field in zip(columns, schema))
        return pa.table([pa.array(one, field.type) for one, field in zip(typed, schema)], schema=schema)

    def is_empty(self) -> bool:
        return not self._cursor.execute(f"SELECT 1 FROM {self._table} LIMIT 1")

    def write(self, upserts: pa.Table, deletes: pa.Table, progress: Progress, *, added: list[pa.Field], replace: bool) -> None:
        assert self.schema is not None
        if lacking := [field.name for field in added if field.name not in self.schema.names]:
            adds = ", ".join(f"ADD {_quoted(name)} …" for name in lacking)
            raise TargetSchemaError(
                f"the table {self._table} lacks {', '.join(lacking)}",
                remedy="Add them with the types of the source's columns (SHOW CREATE TABLE), without NOT NULL: "
                f"ALTER TABLE {self._table} {adds}",
            )
        self._make_wider(upserts)
        cursor = self._cursor
        if replace:
            cursor.execute(f"DELETE FROM {self._table}")
        else:
            for keys in (upserts.select(self._keys), deletes):
                for where, values in self._where(keys):
                    cursor.execute(f"DELETE FROM {self._table} WHERE {where}", values)
        upserts = upserts.drop_columns([name for name in upserts.column_names if name in self._generated])
        names = ", ".join(map(_quoted, upserts.column_names)).replace("%", "%%")
        slots = ", ".join(["%s"] * upserts.num_columns)
        for batch in self._slices(upserts):
            rows = list(zip(*(column.to_pylist() for column in batch.columns)))
            values = [value for row in rows for value in row]
            cursor.execute(f"INSERT INTO {self._table} ({names}) VALUES " + ", ".join([f"({slots})"] * len(rows)), values)
            self._check_warnings()
        cursor.execute(
            f"UPDATE {self._progress_table} SET progress = %s WHERE stream = %s AND target = %s",
            (progress.to_text(), *self._names),
        )
        self._connection.commit()

    def _make_wider(self, upserts: pa.Table) -> None:
        """Widen columns before any row is written: ALTER ends the transaction and its lock."""
        mine = [column for column in self._declared if column.name not in self._generated]
        if changed := [column.name for column in mine if is_changed(column, upserts[column.name])]:
            raise _unfit(self._table, f"the server would pad or truncate values in {self._table}", f"column '{changed[0]}'")
        wider = [(column, kind) for column in mine if (kind := wider_type(column, upserts[column.name]))]
        if not wider:
            return
        self._cursor.execute(f"SHOW CREATE TABLE {self._table}")
        create = self._cursor.fetchone()[1]
        parts = [f"MODIFY {redefined(create, _quoted(column.name), column.column_type, kind)}" for column, kind in wider]
        sql = f"ALTER TABLE {self._table} {', '.join(parts)}"
        log.warning("columns of %s become wider: %s", self._table, sql)
        try:
            self._cursor.execute(sql)
        except pymysql.MySQLError as error:
            if error.args[0] in (*_CONFLICTS, *_LOST):
                raise
            names = ", ".join(column.name for column, _ in wider)
            raise TargetSchemaError(
                f"the columns {names} of {self._table} must become wider, but the server refuses: error {error.args[0]}",
                remedy=f"Run this statement, or grant ALTER on the table: {sql}",
            ) from error
        if self._stored() != self.progress:
            raise TargetConflictError(
                f"another writer changed {self._table} while its columns became wider", remedy="Apply the batch again."
            )

    def _where(self, keys: pa.Table) -> Iterator[tuple[str, list[Any]]]:
        """Yield conditions for slices of the keys, with their values."""
        texts = {column.name for column in self._declared if column.charset not in (None, "binary")}
        tested = [(_quoted(name).replace("%", "%%"), keys[name]) for name in keys.column_names]
        # Bytes decide: the target's collation may treat 'a' and 'A' as equal. The plain column is tested for its index.
        tested += [
            (f"CAST(CONVERT({_quoted(name).replace('%', '%%')} USING utf8mb4) AS BINARY)", keys[name].cast(pa.binary()))
            for name in keys.column_names
            if name in texts
        ]
        one = "(" + " AND ".join(f"{name} = %s" for name, _ in tested) + ")"  # some servers use no index for (a, b) IN (…)
        for batch in self._slices(pa.table([values for _, values in tested], [str(n) for n in range(len(tested))])):
            columns = [column.to_pylist() for column in batch.columns]
            if keys.num_columns == 1:
                slots = ", ".join(["%s"] * len(batch))
                yield " AND ".join(f"{name} IN ({slots})" for name, _ in tested), [value for one in columns for value in one]
            else:
                yield " OR ".join([one] * len(batch)), [value for row in zip(*columns) for value in row]

    def _slices(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield slices by rows and by bytes of a statement. A larger row is a slice."""
        waiting = rows.to_batches(max_chunksize=_SLICE)[::-1]
        while waiting:
            batch = waiting.pop()
            count = len(batch)
            if count > 1 and 2 * batch.nbytes + _CELL * count * batch.num_columns > self._packet // 2:
                waiting += [batch.slice(count // 2), batch.slice(0, count // 2)]
            elif count:
                yield batch

    def _check_warnings(self) -> None:
        self._cursor.execute("SHOW WARNINGS")
        if warnings := self._cursor.fetchall():
            what = f"the server changes values in {self._table}: warning {warnings[0][1]}"
            raise _unfit(self._table, what, str(warnings[0][2]))


def _unfit(table: str, what: str, said: str) -> TargetSchemaError:
    """Return an error with the column in the server's text, without values in the text."""
    found = re.search(r"column '([^']+)'|column (?:`[^`]*`\.){2}`([^`]+)`", said)
    if found is None:
        return TargetSchemaError(what, remedy="Create the columns of the source in the target.")
    name = found[1] or found[2]
    quoted = table if "`" in table else ".".join(map(_quoted, table.split(".")))
    return TargetSchemaError(
        f"{what}, column {name}",
        remedy=f"Change the column to the source's type (SHOW CREATE TABLE): ALTER TABLE {quoted} MODIFY {_quoted(name)} …",
    )


def _arrow_value(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, bytes) and not pa.types.is_binary(kind):  # BIT
        return int.from_bytes(value, "big")
    if value is not None and pa.types.is_string(kind) and not isinstance(value, str):  # DECIMAL of more than 38 digits
        return format(value, "f")
    return value


def _quoted(name: str) -> str:
    doubled = name.replace("`", "``")
    return f"`{doubled}`"
