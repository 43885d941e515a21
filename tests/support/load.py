"""A mixed load on a real server: several writers and a DDL session, with a journal of what they committed.

Never reads the binlog: the journal holds what SELECT gave inside each transaction, so it can judge any reader.

    load = Load(server, "shop", seed=7)
    load.setup()                      # tables; start the reader after this, or before
    load.run(seconds=10)
    differences = check(load.journal, changes)
    tables, misfits = replay(load.journal, changes)
    differences += misfits + compare_tables(load.final_tables(), tables)
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import TracebackType
from typing import Any, Final, Protocol, Self

import attrs
import pymysql
import pymysql.cursors

from tests.support.journal import (
    ADDED,
    ORDER_TABLE,
    SESSION_TABLE,
    Change,
    Ddl,
    Journal,
    JournalTransaction,
    Tables,
    changes_of,
    check,
    compare_tables,
    replay,
)

__all__ = ["Journal", "JournalTransaction", "Load", "changes_of", "check", "compare_tables", "replay"]

#: Deadlock, lock wait timeout, unknown table or column, table changed since, row changed since, and DDL got in the way:
#: what happens to any client beside a DDL. The transaction is rolled back.
_LOST_RACE: Final = frozenset({1020, 1054, 1146, 1205, 1213, 1412, 1684})
#: The connection went away, was killed, or the server is shutting down or not there.
_LOST_SERVER: Final = frozenset({0, 1053, 1077, 1317, 1927, 2003, 2006, 2013, 2014, 2055, 3169})
_SPACING: Final = 1_000_000_000  # ids of one session


class _Server(Protocol):
    def connect(self, **options: Any) -> pymysql.connections.Connection[Any]: ...


_TEXTS: Final = ("abc", "Zürich", "日本語", "🐬🦭", 'it\'s "quoted" \\ %s', "tab\tnew\nline", "", "naïve café", "Ω≈ç√")


def _text(rng: random.Random, longest: int) -> str:
    text = " ".join(rng.choice(_TEXTS) for _ in range(rng.randint(0, 1 + longest // 30)))
    return text[:longest].rstrip(" ")


def _moment(rng: random.Random, digits: int, first: int = 1975, last: int = 2037) -> datetime:
    micros = rng.randrange(10**digits) * 10 ** (6 - digits) if digits else 0
    day = date(first, 1, 1) + timedelta(days=rng.randrange((last - first) * 365))
    return datetime(day.year, day.month, day.day, rng.randrange(24), rng.randrange(60), rng.randrange(60), micros)


def _document(rng: random.Random) -> str:
    return json.dumps(
        {
            "name": rng.choice(_TEXTS),
            "n": rng.choice([0, -1, 255, 70000, -(2**31), 2**53, 2**63 - 1]),
            "x": rng.randrange(-1000, 1000) / 8,
            "tags": [rng.choice(["red", "blue", None, True, False]) for _ in range(rng.randrange(4))],
            "deep": {"a": {"b": [1, {"c": "d"}]}},
        },
        ensure_ascii=False,
    )


def _time(rng: random.Random) -> timedelta:
    return timedelta(milliseconds=rng.randrange(-838 * 3600 * 1000, 838 * 3600 * 1000))


#: Column name -> SQL type and what to put in. FLOAT holds at most six digits, since that is all a SELECT shows of it.
_COLUMNS: Final[Mapping[str, tuple[str, Callable[[random.Random], Any]]]] = {
    "c_tiny": ("TINYINT", lambda r: r.randrange(-128, 128)),
    "c_utiny": ("TINYINT UNSIGNED", lambda r: r.randrange(256)),
    "c_small": ("SMALLINT", lambda r: r.randrange(-(2**15), 2**15)),
    "c_medium": ("MEDIUMINT UNSIGNED", lambda r: r.randrange(2**24)),
    "c_int": ("INT", lambda r: r.randrange(-(2**31), 2**31)),
    "c_uint": ("INT UNSIGNED", lambda r: r.randrange(2**32)),
    "c_big": ("BIGINT", lambda r: r.randrange(-(2**63), 2**63)),
    "c_ubig": ("BIGINT UNSIGNED", lambda r: r.randrange(2**64)),
    "c_price": ("DECIMAL(18,4)", lambda r: Decimal(r.randrange(-(10**14), 10**14)) / 10**4),
    "c_float": ("FLOAT", lambda r: r.randrange(-3999, 4000) / 4),
    "c_double": ("DOUBLE", lambda r: r.uniform(-1, 1) * 10.0 ** r.randrange(-20, 20)),
    "c_bit": ("BIT(12)", lambda r: r.randrange(2**12)),
    "c_char": ("CHAR(10)", lambda r: _text(r, 10)),
    "c_name": ("VARCHAR(200)", lambda r: _text(r, 200)),
    "c_latin": ("VARCHAR(50) CHARACTER SET latin1", lambda r: r.choice(["café", "ÿþ", "plain", ""])),
    "c_text": ("TEXT", lambda r: _text(r, 2000)),
    "c_blob": ("BLOB", lambda r: r.randbytes(r.choice([0, 1, 20, 300, 3000]))),
    "c_raw": ("VARBINARY(64)", lambda r: r.randbytes(r.randrange(65))),
    "c_date": ("DATE", lambda r: _moment(r, 0, 1000, 9999).date()),
    "c_time": ("TIME(3)", _time),
    "c_year": ("YEAR", lambda r: r.randrange(1901, 2156)),
    "c_datetime": ("DATETIME(6)", lambda r: _moment(r, 6, 1000, 9999)),
    "c_plain_datetime": ("DATETIME", lambda r: _moment(r, 0)),
    "c_stamp": ("TIMESTAMP(3) NULL DEFAULT NULL", lambda r: _moment(r, 3)),
    "c_enum": ("ENUM('new','paid','größer','sent')", lambda r: r.choice(["new", "paid", "größer", "sent"])),
    "c_set": ("SET('a','b','c','d')", lambda r: ",".join(one for one in "abcd" if r.random() < 0.5)),
    "c_json": ("JSON", _document),
}

#: What DDL adds: SQL type and values for updates. The defaults show that old rows are filled in without an event.
_ADDED: Final[Mapping[str, tuple[str, Callable[[random.Random], Any]]]] = {
    "int": ("INT NOT NULL DEFAULT 7", lambda r: r.randrange(-(2**31), 2**31)),
    "str": ("VARCHAR(60) CHARACTER SET utf8mb4 DEFAULT 'näh'", lambda r: _text(r, 60)),
    "dec": ("DECIMAL(9,2)", lambda r: Decimal(r.randrange(-(10**8), 10**8)) / 100),
    "dt": ("DATETIME(3)", lambda r: _moment(r, 3)),
}

_TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "orders": ("c_uint", "c_price", "c_name", "c_datetime", "c_stamp", "c_enum", "c_set", "c_latin"),
    "documents": ("c_text", "c_json", "c_blob", "c_char", "c_raw", "c_plain_datetime"),
    "numbers": (
        *("c_tiny", "c_utiny", "c_small", "c_medium", "c_int", "c_uint", "c_big", "c_ubig", "c_float", "c_double"),
        *("c_bit", "c_year", "c_date", "c_time"),
    ),
    "wide": tuple(_COLUMNS),
    "churn": ("c_name", "c_int", "c_stamp"),
    "log": ("c_name", "c_datetime"),
}


@attrs.define(eq=False)
class _Table:
    """A table that writers use; the DDL session renames it and takes it away."""

    name: str
    columns: tuple[str, ...]
    keyed: bool = True
    ids: list[int] = attrs.field(factory=list)
    lock: threading.Lock = attrs.field(factory=threading.Lock)

    def definition(self) -> str:
        columns = ", ".join(f"`{name}` {_COLUMNS[name][0]}" for name in self.columns)
        key = "PRIMARY KEY (`id`)" if self.keyed else "KEY (`id`)"
        return f"(`id` BIGINT UNSIGNED NOT NULL, `seq` INT UNSIGNED NOT NULL, {columns}, {key}) CHARACTER SET utf8mb4"

    def pick(self, rng: random.Random, count: int) -> list[int]:
        with self.lock:
            return sorted(rng.sample(self.ids, min(count, len(self.ids))))

    def add(self, ids: Iterable[int]) -> None:
        with self.lock:
            self.ids.extend(ids)

    def discard(self, ids: Iterable[int]) -> None:
        gone = set(ids)
        if gone:
            with self.lock:
                self.ids = [one for one in self.ids if one not in gone]


def _plain_types(version: str) -> list[tuple[str, str]]:
    """What stands in for types that a server of this version does not have: patterns and replacements."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    is_mariadb = "MariaDB" in version
    fractions = [] if is_mariadb or numbers >= (5, 6, 4) else [(r"\b(TIME|DATETIME|TIMESTAMP)\(\d\)", r"\1")]
    json = [] if numbers >= ((10, 2, 7) if is_mariadb else (5, 7, 8)) else [(r"\bJSON\b", "LONGTEXT")]
    return fractions + json


class Load:
    """Writes to a schema from ``sessions`` threads, with DDL from one more, until stopped.

    Each transaction first updates its session's row of ``load_session``; most end with an update of ``load_order``,
    whose row lock makes its number the global commit order. Sessions that lose the server wait for it and find out from
    ``load_session`` whether the commit that was under way took place.

    Args:
        server: anything with a ``connect(**options)`` that gives a PyMySQL connection, such as a throwaway server.
        schema: made by :meth:`setup` when it does not exist.
        ddl: run DDL beside the writers, one about every ``ddl_interval`` seconds.
        rollback_share: the share of transactions that are rolled back on purpose.
        stamped_share: the share of transactions that take a number in the global order; the others commit in parallel.
        pause: seconds a writer waits after each transaction.
        most_rows: of one statement.
    """

    def __init__(
        self,
        server: _Server,
        schema: str,
        *,
        sessions: int = 4,
        seed: int | None = None,
        ddl: bool = True,
        ddl_interval: float = 0.2,
        rollback_share: float = 0.1,
        stamped_share: float = 0.7,
        pause: float = 0.0,
        most_rows: int = 20,
    ) -> None:
        self.schema: Final = schema
        self.seed: Final = random.randrange(2**32) if seed is None else seed
        self.sessions: Final = sessions
        self.ddl_interval: Final = ddl_interval
        self.rollback_share: Final = rollback_share
        self.stamped_share: Final = stamped_share
        self.pause: Final = pause
        self.most_rows: Final = most_rows
        self.journal: Final = Journal(schema)
        #: Transactions lost to deadlocks and DDL, by the server's error number.
        self.lost_races: Final[dict[int, int]] = {}
        self._server = server
        self._types: list[tuple[str, str]] = []
        self._ddl = ddl
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []
        self._tables = [_Table(name, columns, keyed=name != "log") for name, columns in _TABLES.items()]
        self._writers = [_Writer(self, number) for number in range(1, sessions + 1)]
        self._ddl_session = _DdlSession(self)

    def __repr__(self) -> str:
        return f"<Load {self.schema} seed {self.seed}: {len(self.journal.transactions)} transactions>"

    def setup(self) -> None:
        """Make the schema, its empty tables and the marker rows."""
        with self.connect(database=None) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT VERSION() AS version")
            self._types = _plain_types(cursor.fetchone()["version"])
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS `{self.schema}` CHARACTER SET utf8mb4")
            cursor.execute(f"USE `{self.schema}`")
            cursor.execute(f"CREATE TABLE {SESSION_TABLE} (id INT UNSIGNED PRIMARY KEY, txn BIGINT UNSIGNED NOT NULL)")
            cursor.execute(
                f"CREATE TABLE {ORDER_TABLE} (id INT UNSIGNED PRIMARY KEY, n BIGINT UNSIGNED NOT NULL, "
                "session INT UNSIGNED NOT NULL, txn BIGINT UNSIGNED NOT NULL)"
            )
            for table in self._tables:
                cursor.execute(self.typed(f"CREATE TABLE `{table.name}` {table.definition()}"))
            cursor.executemany(f"INSERT INTO {SESSION_TABLE} VALUES (%s, 0)", [(n,) for n in range(1, self.sessions + 1)])
            cursor.execute(f"INSERT INTO {ORDER_TABLE} VALUES (1, 0, 0, 0)")

    def typed(self, sql: str) -> str:
        """A statement that defines columns, with types that the server has."""
        for pattern, plain in self._types:
            sql = re.sub(pattern, plain, sql)
        return sql

    def start(self) -> Self:
        """Start the writers and the DDL session."""
        self._stop.clear()
        actors: list[tuple[str, Callable[[], None]]] = [(f"load-{one.session}", one.run) for one in self._writers]
        if self._ddl:
            actors.append(("load-ddl", self._ddl_session.run))
        self._threads = [threading.Thread(target=self._guard, args=(run,), name=name, daemon=True) for name, run in actors]
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Let each session end its transaction, and wait for them.

        Raises:
            Exception: what a session stumbled over that is not part of a normal load.
            TimeoutError: a session does not end.
        """
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        self._threads = []
        if self._failures:
            raise self._failures[0]
        if alive:
            raise TimeoutError(f"sessions of the load do not end: {', '.join(alive)}")

    def run(self, *, seconds: float | None = None, transactions: int | None = None) -> Self:
        """Run for some seconds, or until so many more transactions have ended."""
        enough = None if transactions is None else len(self.journal.transactions) + transactions
        deadline = None if seconds is None else time.monotonic() + seconds
        self.start()
        try:
            while not self._stop.wait(0.01):
                if deadline is not None and time.monotonic() >= deadline:
                    break
                if enough is not None and len(self.journal.transactions) >= enough:
                    break
        finally:
            self.stop()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def final_tables(self) -> Tables:
        """SELECT every row of every table of now, by table and id."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            names = [str(next(iter(row.values()))) for row in cursor.fetchall()]
            tables: Tables = {}
            for name in names:
                cursor.execute(f"SELECT * FROM `{name}`")
                tables[name] = {row["id"]: row for row in cursor.fetchall()}
            return tables

    # -- for the sessions

    def connect(self, **options: Any) -> pymysql.connections.Connection[Any]:
        arguments: dict[str, Any] = {
            "database": self.schema,
            "cursorclass": pymysql.cursors.DictCursor,
            "init_command": "SET time_zone='+00:00', innodb_lock_wait_timeout=5, lock_wait_timeout=5",
        }
        return self._server.connect(**arguments | options)

    def tables(self) -> list[_Table]:
        with self._lock:
            return list(self._tables)

    def add_table(self, table: _Table) -> None:
        with self._lock:
            self._tables.append(table)

    def remove_table(self, table: _Table) -> None:
        with self._lock:
            self._tables.remove(table)

    def stopping(self, seconds: float = 0.0) -> bool:
        return self._stop.wait(seconds) if seconds else self._stop.is_set()

    def record(self, transaction: JournalTransaction) -> None:
        with self._lock:
            self.journal.transactions.append(transaction)

    def count_lost_race(self, code: int) -> None:
        with self._lock:
            self.lost_races[code] = self.lost_races.get(code, 0) + 1

    def _guard(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:  # raised by stop()
            self._failures.append(error)
            self._stop.set()


def _code(error: BaseException) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


class _LoadConnection:
    """A connection that comes back when the server does."""

    def __init__(self, load: Load, seed: str) -> None:
        self.load = load
        self.rng = random.Random(seed)
        self._connection: pymysql.connections.Connection[Any] | None = None

    def connection(self) -> pymysql.connections.Connection[Any] | None:
        """The open connection, or a new one; None when the load is to stop before the server is back."""
        while self._connection is None:
            try:
                connection = self.load.connect(autocommit=True)
                self._prepare(connection)
                self._connection = connection
            except (pymysql.err.MySQLError, OSError) as error:
                if not isinstance(error, OSError) and _code(error) not in _LOST_SERVER:
                    raise
                if self.load.stopping(0.05):
                    return None
        return self._connection

    def _prepare(self, connection: pymysql.connections.Connection[Any]) -> None:
        """Set a new connection up."""

    def drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None


class _Writer(_LoadConnection):
    """One session of transactions."""

    def __init__(self, load: Load, session: int) -> None:
        super().__init__(load, f"{load.seed}/{session}")
        self.session = session
        self._number = 0
        self._next_id = session * _SPACING
        self._unknown: JournalTransaction | None = None
        self._undo: list[Callable[[], None]] = []

    def run(self) -> None:
        try:
            while not self.load.stopping(self.load.pause):
                connection = self.connection()
                if connection is None:
                    break
                self._transaction(connection)
            if self._unknown is not None:  # one more try, the server may be there by now
                self.connection()
        finally:
            self.drop()

    def _prepare(self, connection: pymysql.connections.Connection[Any]) -> None:
        # Both isolation levels are in use out there; they lock differently beside DDL.
        level = "READ COMMITTED" if self.session % 2 else "REPEATABLE READ"
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            if self._unknown is not None:
                cursor.execute(f"SELECT txn FROM {SESSION_TABLE} WHERE id = %s FOR UPDATE", (self.session,))
                row = cursor.fetchone()
                self._unknown.outcome = "committed" if row["txn"] == self._unknown.number else "rolled back"
                self._unknown = None

    def _transaction(self, connection: pymysql.connections.Connection[Any]) -> None:
        self._number += 1
        transaction = JournalTransaction(self.session, self._number)
        inserted: list[tuple[_Table, list[int]]] = []
        deleted: list[tuple[_Table, list[int]]] = []
        committing = False
        try:
            with connection.cursor() as cursor:
                cursor.execute("START TRANSACTION")
                cursor.execute(f"UPDATE {SESSION_TABLE} SET txn = %s WHERE id = %s", (self._number, self.session))
                for _ in range(self.rng.choice([1, 1, 1, 2, 3, 6])):
                    if self.rng.random() < 0.1:
                        self._undone(cursor)
                    else:
                        self._statement(cursor, transaction, inserted, deleted)
                if self.rng.random() < self.load.rollback_share:
                    cursor.execute("ROLLBACK")
                else:
                    if self.rng.random() < self.load.stamped_share:
                        self._stamp(cursor, transaction)
                    committing = True
                    cursor.execute("COMMIT")
                    transaction.outcome = "committed"
        except (pymysql.err.MySQLError, OSError) as error:
            self._failed(connection, transaction, error, committing)
        self.load.record(transaction)
        if transaction.outcome != "rolled back":
            for table, ids in inserted:
                table.add(ids)
            for table, ids in deleted:
                table.discard(ids)

    def _failed(
        self,
        connection: pymysql.connections.Connection[Any],
        transaction: JournalTransaction,
        error: BaseException,
        committing: bool,
    ) -> None:
        code = _code(error)
        if code in _LOST_RACE:
            self.load.count_lost_race(code)
            with contextlib.suppress(pymysql.err.MySQLError, OSError):
                connection.rollback()
                return
        elif not isinstance(error, OSError) and code not in _LOST_SERVER:
            raise error
        self.drop()
        if committing:
            transaction.outcome = "unknown"
            self._unknown = transaction

    def _stamp(self, cursor: Any, transaction: JournalTransaction) -> None:
        cursor.execute(f"UPDATE {ORDER_TABLE} SET n = n + 1, session = %s, txn = %s WHERE id = 1", (self.session, self._number))
        cursor.execute(f"SELECT n FROM {ORDER_TABLE} WHERE id = 1")
        transaction.order = cursor.fetchone()["n"]

    def _undone(self, cursor: Any) -> None:
        """A few statements that a savepoint takes back."""
        cursor.execute("SAVEPOINT undone")
        for _ in range(self.rng.randint(1, 2)):
            self._statement(cursor, JournalTransaction(self.session, self._number), [], [])
        cursor.execute("ROLLBACK TO SAVEPOINT undone")

    def _statement(
        self,
        cursor: Any,
        transaction: JournalTransaction,
        inserted: list[tuple[_Table, list[int]]],
        deleted: list[tuple[_Table, list[int]]],
    ) -> None:
        table = self.rng.choice(self.load.tables())
        count = 1 if self.rng.random() < 0.6 else self.rng.randint(2, max(2, self.load.most_rows))
        kind = self.rng.random()
        ids = table.pick(self.rng, count) if table.keyed and kind >= 0.4 else []
        if not ids:
            changes = self._insert(cursor, table, count)
            inserted.append((table, [change[4]["id"] for change in changes if change[4]]))
        elif kind < 0.8:
            changes = self._update(cursor, table, ids)
        else:
            changes = self._delete(cursor, table, ids)
            deleted.append((table, [change[3]["id"] for change in changes if change[3]]))
        if changes:
            transaction.statements.append(changes)

    def _value(self, name: str) -> Any:
        return None if self.rng.random() < 0.08 else _COLUMNS[name][1](self.rng)

    def _select(self, cursor: Any, name: str, ids: list[int], lock: str = "") -> dict[int, Any]:
        marks = ",".join(["%s"] * len(ids))
        cursor.execute(f"SELECT * FROM `{name}` WHERE id IN ({marks}) ORDER BY id {lock}", ids)
        return {row["id"]: row for row in cursor.fetchall()}

    def _insert(self, cursor: Any, table: _Table, count: int) -> list[Change]:
        name = table.name
        ids = list(range(self._next_id + 1, self._next_id + 1 + count))
        self._next_id += count
        columns = ", ".join(f"`{column}`" for column in ("id", "seq", *table.columns))
        row = "(" + ",".join(["%s"] * (2 + len(table.columns))) + ")"
        values: list[Any] = []
        for one in ids:
            values += [one, 0, *(self._value(column) for column in table.columns)]
        cursor.execute(f"INSERT INTO `{name}` ({columns}) VALUES {','.join([row] * count)}", values)
        after = self._select(cursor, name, ids)
        return [(self.load.schema, name, "INSERT", None, after[one]) for one in ids]

    def _update(self, cursor: Any, table: _Table, ids: list[int]) -> list[Change]:
        name = table.name
        before = self._select(cursor, name, ids, "FOR UPDATE")
        table.discard(set(ids) - before.keys())
        if not before:
            return []
        found = list(before)
        columns = self.rng.sample(table.columns, self.rng.randint(0, min(3, len(table.columns))))
        values = {column: self._value(column) for column in columns}
        for column in next(iter(before.values())):
            if column.startswith(ADDED) and self.rng.random() < 0.5:
                values[column] = _ADDED[column.split("_")[1]][1](self.rng)
        # Without the sequence number a row might stay as it is, and then there is no event.
        sets = ", ".join(["seq = seq + 1", *(f"`{column}` = %s" for column in values)])
        marks = ",".join(["%s"] * len(found))
        cursor.execute(f"UPDATE `{name}` SET {sets} WHERE id IN ({marks})", [*values.values(), *found])
        after = self._select(cursor, name, found)
        return [(self.load.schema, name, "UPDATE", before[one], after[one]) for one in found]

    def _delete(self, cursor: Any, table: _Table, ids: list[int]) -> list[Change]:
        name = table.name
        before = self._select(cursor, name, ids, "FOR UPDATE")
        table.discard(set(ids) - before.keys())
        if not before:
            return []
        marks = ",".join(["%s"] * len(before))
        cursor.execute(f"DELETE FROM `{name}` WHERE id IN ({marks})", list(before))
        return [(self.load.schema, name, "DELETE", row, None) for row in before.values()]


class _DdlSession(_LoadConnection):
    """One session of DDL. Names of columns and tables are never used twice, so that a replay can tell them apart."""

    def __init__(self, load: Load) -> None:
        super().__init__(load, f"{load.seed}/ddl")
        self._number = 0
        self._added: list[tuple[_Table, str]] = []
        self._spare: list[_Table] = []

    def run(self) -> None:
        actions = [
            self._add_column,
            self._add_column,
            self._drop_column,
            self._widen,
            self._index,
            self._create,
            self._drop,
            self._truncate,
            self._rename,
        ]
        todo: list[Callable[[], None]] = []
        try:
            while not self.load.stopping(self.load.ddl_interval * self.rng.uniform(0.2, 1.8)):
                if not todo:  # each of them once before any comes again
                    todo = self.rng.sample(actions, len(actions))
                todo.pop()()
        finally:
            self.drop()

    def _run(self, kind: str, table: str, sql: str, probe: str = "", renamed: str = "") -> bool:
        """Execute one DDL; ``probe`` is a condition on information_schema that holds once it has happened."""
        connection = self.connection()
        if connection is None:
            return False
        ddl = Ddl(self._number, kind, table, f"{sql} /* load ddl {self._number} */", renamed)
        try:
            with connection.cursor() as cursor:
                cursor.execute(ddl.sql)
        except (pymysql.err.MySQLError, OSError) as error:
            code = _code(error)
            if code in _LOST_RACE:
                self.load.count_lost_race(code)
                return False
            if not isinstance(error, OSError) and code not in _LOST_SERVER:
                raise
            self.drop()
            ddl.outcome = "unknown"
            if probe:
                self._settle(ddl, probe)
        self.load.journal.ddl.append(ddl)
        return ddl.outcome == "committed"

    def _settle(self, ddl: Ddl, probe: str) -> None:
        """Find out whether a DDL took place whose answer was lost with the connection."""
        connection = self.connection()
        if connection is not None:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT ({probe}) AS happened")
                ddl.outcome = "committed" if cursor.fetchone()["happened"] else "rolled back"

    def _exists(self, kind: str, table: str, name: str = "") -> str:
        """A condition: a table, or a column or index of it, is there."""
        views = {"table": ("TABLES", ""), "column": ("COLUMNS", "COLUMN"), "index": ("STATISTICS", "INDEX")}
        view, column = views[kind]
        rest = f" AND {column}_NAME = '{name}'" if column else ""
        return (
            f"EXISTS (SELECT 1 FROM information_schema.{view} "
            f"WHERE TABLE_SCHEMA = '{self.load.schema}' AND TABLE_NAME = '{table}'{rest})"
        )

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _lasting(self) -> _Table:
        return self.rng.choice([table for table in self.load.tables() if table not in self._spare])

    def _add_column(self) -> None:
        table = self._lasting()
        kind = self.rng.choice(list(_ADDED))
        column = f"{ADDED}{kind}_{self._next()}"
        where = self.rng.choice(["", " FIRST", f" AFTER `{self.rng.choice(table.columns)}`"])
        sql = self.load.typed(f"ALTER TABLE `{table.name}` ADD COLUMN `{column}` {_ADDED[kind][0]}{where}")
        if self._run("ALTER", table.name, sql, self._exists("column", table.name, column)):
            self._added.append((table, column))

    def _drop_column(self) -> None:
        if not self._added:
            return
        table, column = self._added[0]
        self._next()
        sql = f"ALTER TABLE `{table.name}` DROP COLUMN `{column}`"
        if self._run("ALTER", table.name, sql, f"NOT {self._exists('column', table.name, column)}"):
            del self._added[0]

    def _widen(self) -> None:
        table = self.rng.choice([table for table in self.load.tables() if "c_name" in table.columns])
        size = 200 + self._next() % 50
        self._run("ALTER", table.name, f"ALTER TABLE `{table.name}` MODIFY COLUMN `c_name` VARCHAR({size}) CHARACTER SET utf8mb4")

    def _index(self) -> None:
        table = self._lasting()
        name = f"i_{self._next()}"
        there = self._exists("index", table.name, name)
        if self._run("CINDEX", table.name, f"CREATE INDEX `{name}` ON `{table.name}` (`seq`)", there):
            self._next()
            self._run("DINDEX", table.name, f"DROP INDEX `{name}` ON `{table.name}`", f"NOT {there}")

    def _create(self) -> None:
        columns = tuple(self.rng.sample(list(_COLUMNS), self.rng.randint(1, 10)))
        table = _Table(f"spare_{self._next()}", columns)
        sql = self.load.typed(f"CREATE TABLE `{table.name}` {table.definition()}")
        if self._run("CREATE", table.name, sql, self._exists("table", table.name)):
            self._spare.append(table)
            self.load.add_table(table)

    def _drop(self) -> None:
        if not self._spare:
            return
        table = self._spare[0]
        self._next()
        if self._run("DROP", table.name, f"DROP TABLE `{table.name}`", f"NOT {self._exists('table', table.name)}"):
            del self._spare[0]
            self.load.remove_table(table)

    def _churn(self) -> _Table:
        return next(table for table in self.load.tables() if table.name.startswith("churn"))

    def _truncate(self) -> None:
        table = self._churn()
        self._next()
        self._run("TRUNCATE", table.name, f"TRUNCATE TABLE `{table.name}`")

    def _rename(self) -> None:
        table = self._churn()
        new = f"churn_{self._next()}"
        sql = f"RENAME TABLE `{table.name}` TO `{new}`"
        if self._run("RENAME", table.name, sql, self._exists("table", new), new):
            table.name = new
