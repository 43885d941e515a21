"""Snapshots: chunks that hold every row once, values as the log has them, and a table that changes meanwhile."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pymysql
import pytest

import canal
import canal.snapshot.chunks as snapshots
from canal.errors import AuthenticationError, ConfigError, ConnectionLostError, CursorError, SchemaError, ServerError
from canal.formats.change_table import Shape
from canal.snapshot.chunks import SnapshotPlan, plan, read_chunk, read_table
from canal.snapshot.files import SnapshotFiles
from canal.snapshot.keys import KeyColumn, condition
from canal.testing.servers import ThrowawayServer
from tests.support.live import end_of_log, source
from tests.support.oracle_cases import CASES, TABLES
from tests.support.oracle_tables import Table, available, tables_of
from tests.support.snapshots import logged, shape_of, snapshot, write_cases

HEAD = 5


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    """As Python values, where NaN and the like cannot hide and -0.0 is not 0.0."""
    return [row for batch in batches for row in batch.to_pylist()]


def differences(read: list[Any], log: list[Any], table: Table) -> Iterator[str]:
    for ours, theirs in zip(sorted(rows_of(read), key=lambda row: row["id"]), sorted(rows_of(log), key=lambda row: row["id"])):
        for name in list(theirs)[HEAD:]:
            if repr(ours[name]) != repr(theirs[name]):
                about = table.cases[int(name[1:])].type if name[0] == "c" else ""
                yield f"{table.name} row {ours['id']} {name} {about}: snapshot {ours[name]!r:.80}, log {theirs[name]!r:.80}"


def test_every_type_at_its_limits_reads_as_the_log_has_it(server: ThrowawayServer, database: str) -> None:
    """The snapshot of a row gives the very values that the row's INSERT in the log does."""
    start = end_of_log(server)
    tables = list(tables_of([case for case in CASES if available(case.since, server)], "cases"))
    for table in tables:
        write_cases(server, database, table)
    shapes = {table.name: shape_of(server, database, table.name) for table in tables}
    log = logged(server, start, shapes, database)

    wrong = []
    for table in tables:
        _, read = snapshot(server, shapes[table.name])
        assert sum(batch.num_rows for batch in read) == sum(batch.num_rows for batch in log[table.name]) == table.row_count
        wrong += list(differences(read, log[table.name], table))
    assert wrong == [], "\n".join(wrong)


def test_columns_that_the_server_fills_read_as_the_log_has_them(server: ThrowawayServer, database: str) -> None:
    """Generated and invisible columns, rows of 64 kB, hidden keys: what no statement can name is told as absent. T74"""
    start = end_of_log(server)
    tables = [one for one in TABLES if available(one[5], server)]
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode='', time_zone='+00:00'")
        if server.kind == "mysql":
            cursor.execute("SET sql_generate_invisible_primary_key=ON")
        for name, definition, columns, values, *_ in tables:
            cursor.execute(f"CREATE TABLE {name} ({definition})")
            cursor.execute(f"INSERT INTO {name} ({columns}) VALUES ({values})")
    shapes = {one[0]: shape_of(server, database, one[0]) for one in tables}
    log = logged(server, start, shapes, database)

    for name, shape in shapes.items():
        _, read = snapshot(server, shape)
        (ours,), (theirs,) = rows_of(read), rows_of(log[name])
        hidden = [column.name for column in shape.table.columns if column.name.startswith("DB_ROW_HASH")]
        assert ours["_absent"] == (hidden or None)
        for column in shape.table.columns:
            if column.name not in hidden:
                assert repr(ours[column.name]) == repr(theirs[column.name]), (name, column.name)


def test_text_that_is_none_in_its_charset_is_told_as_bytes(server: ThrowawayServer, database: str) -> None:
    charsets = ("latin1", "sjis", "utf8mb4", "utf16", "swe7", "gbk", "euckr", "cp1256", "koi8r")
    start = end_of_log(server)
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode=''")
        for charset in charsets:
            cursor.execute(f"CREATE TABLE t_{charset} (id INT PRIMARY KEY, c VARCHAR(8) CHARACTER SET {charset})")
            codes = [bytes([code]) for code in range(1, 256)] + [bytes([lead, 0xA1]) for lead in range(0x81, 0xFF)]
            rows = ",".join(f"({n},X'{code.hex()}')" for n, code in enumerate(codes))
            cursor.execute(f"INSERT IGNORE INTO t_{charset} VALUES {rows}")
    shapes = {f"t_{charset}": shape_of(server, database, f"t_{charset}") for charset in charsets}
    log = logged(server, start, shapes, database)

    exact = 0
    for name, shape in shapes.items():
        _, read = snapshot(server, shape)
        ours, theirs = (sorted(rows_of(batches), key=lambda row: row["id"]) for batches in (read, log[name]))
        exact += sum(row["_exact"] is not None for row in ours)
        assert [list(row.values())[HEAD:] for row in ours] == [list(row.values())[HEAD:] for row in theirs], name
    assert exact > 50


# -- chunks ------------------------------------------------------------------------------------------------------------

LETTERS = ["a", "A", "á", "b", "Z", "z", "ß", "ss", "0", "9", "_", " ", "é", "e", "中", "😀", "ı", "İ", "~", "ÿ"]
KEYS: dict[str, Any] = {
    "INT": lambda rng: str(rng.randrange(-(2**31), 2**31)),
    "BIGINT": lambda rng: str(rng.choice([rng.randrange(-50, 50), rng.randrange(-(2**63), 2**63)])),
    "BIGINT UNSIGNED": lambda rng: str(rng.choice([rng.randrange(2**64), 2**64 - 1 - rng.randrange(500)])),
    "TINYINT": lambda rng: str(rng.randrange(-128, 128)),
    "DECIMAL(30,10)": lambda rng: f"{rng.randrange(-(10**18), 10**18)}.{rng.randrange(10**10):010}",
    "DOUBLE": lambda rng: repr(rng.uniform(-1e200, 1e200)),
    "FLOAT": lambda rng: repr(rng.choice([rng.uniform(-3e38, 3e38), rng.uniform(-1e-30, 1e-30)])),
    "BIT(40)": lambda rng: str(rng.randrange(2**40)),
    "DATE": lambda rng: f"'{rng.randrange(10000):04}-{rng.randrange(13):02}-{rng.randrange(32):02}'",
    "DATETIME(6)": lambda rng: (
        f"'{rng.randrange(1990, 2030)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02} "
        f"{rng.randrange(24):02}:{rng.randrange(60):02}:00.{rng.randrange(10**6):06}'"
    ),
    "TIMESTAMP(3) DEFAULT '2000-01-01'": lambda rng: f"FROM_UNIXTIME({rng.randrange(1, 2**31)}.{rng.randrange(1000):03})",
    "TIME(6)": lambda rng: f"'{rng.choice(['', '-'])}{rng.randrange(839):03}:{rng.randrange(59):02}:58.{rng.randrange(9999):04}'",
    "YEAR": lambda rng: rng.choice(["0", *map(str, range(1901, 2156))]),
    "VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci": lambda rng: text(rng),
    "VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin": lambda rng: text(rng),
    "VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_turkish_ci": lambda rng: text(rng),
    "CHAR(30) CHARACTER SET latin1 COLLATE latin1_german2_ci": lambda rng: text(rng),
    "VARCHAR(30) CHARACTER SET utf16": lambda rng: text(rng),
    "VARCHAR(30) CHARACTER SET sjis": lambda rng: text(rng),
    "VARCHAR(36) CHARACTER SET ascii": lambda rng: f"'{uuid.UUID(int=rng.getrandbits(128))}'",
    "BINARY(16)": lambda rng: f"X'{rng.getrandbits(128):032x}'",
    "SET('a','b')": lambda rng: str(rng.randrange(4)),
    "VARBINARY(8)": lambda rng: f"X'{rng.randbytes(rng.randrange(9)).hex()}'",
    "VARBINARY(6)": lambda rng: f"X'{rng.choice(['', '00', '61', '6100', 'ff'])}{'00' * rng.randrange(3)}'",
    "DECIMAL(5,2)": lambda rng: rng.choice(["-0.00", "-0", str(rng.randrange(-99999, 99999) / 100)]),
    "DOUBLE UNSIGNED": lambda rng: rng.choice(["-0e0", "5e-324", "1.7976931348623157e308", repr(rng.random())]),
    "BIT(64)": lambda rng: str(rng.choice([rng.randrange(2**64), 2**64 - 1, 2**63, 0])),
    "TIME": lambda rng: rng.choice(["'-838:59:59'", "'838:59:59'", "'-00:00:01'", f"{rng.randrange(-99, 99)}0000"]),
    "TIMESTAMP DEFAULT '2001-01-01'": lambda rng: rng.choice(["'0000-00-00'", f"FROM_UNIXTIME({rng.randrange(1, 2**31 - 1)})"]),
    "CHAR(4) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci": lambda rng: short(rng),
    "VARCHAR(4) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci": lambda rng: short(rng),
    "VARCHAR(4) CHARACTER SET latin1 COLLATE latin1_swedish_ci": lambda rng: short(rng),
    "VARCHAR(4) CHARACTER SET gbk": lambda rng: short(rng),
    "VARCHAR(4) CHARACTER SET ucs2": lambda rng: short(rng),
    "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_czech_ci": lambda rng: f"'{''.join(rng.choices('cCčhHi', k=5))}'",
    "ENUM('z','y','x')": lambda rng: str(rng.randrange(1, 4)),
}
MYSQL_KEYS = {
    "VARCHAR(4) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci": lambda rng: short(rng),
    "CHAR(4) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_as_cs": lambda rng: short(rng),
    "VARCHAR(4) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin": lambda rng: short(rng),
    "VARCHAR(4) CHARACTER SET utf8mb4 COLLATE utf8mb4_ja_0900_as_cs": lambda rng: short(rng),
}
MARIADB_KEYS = {
    "VARCHAR(4) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin": lambda rng: short(rng),
    "VARCHAR(4) CHARACTER SET utf8mb4 COLLATE uca1400_ai_ci": lambda rng: short(rng),
    "INET4": lambda rng: f"'{rng.randrange(256)}.0.{rng.randrange(9)}.{rng.randrange(256)}'",
    "UUID": lambda rng: f"'{uuid.UUID(int=rng.getrandbits(128))}'",
    "INET6": lambda rng: f"INET6_NTOA(X'{rng.getrandbits(128):032x}')",
}
PAIRS = [
    ("TINYINT", "VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci"),
    ("VARBINARY(8)", "BIGINT"),
    ("VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", "DATE"),
    ("FLOAT", "INT"),
    ("INT", "ENUM('z','y','x')"),
    ("VARCHAR(4) CHARACTER SET latin1 COLLATE latin1_swedish_ci", "SET('a','b')"),
    ("DOUBLE UNSIGNED", "TIME"),
    ("YEAR", "CHAR(4) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"),
    ("BIT(64)", "VARBINARY(6)"),
]


def text(rng: random.Random) -> str:
    return "'" + "".join(rng.choice(LETTERS) for _ in range(rng.randrange(12))) + "'"


def short(rng: random.Random) -> str:
    """Few characters, many of them equal to others here and there; spaces and control characters at the end."""
    return "'" + "".join(rng.choice("aAáäÄ\u0301ßsS Øoµ\t\x01~") for _ in range(rng.randrange(5))).replace("\u0301", "") + "'"


def fill(cursor: Any, kinds: Sequence[str], makers: Sequence[Any], rng: random.Random, count: int) -> None:
    keys = [f"k{number}" for number in range(len(kinds))]
    cursor.execute("SET sql_mode='ALLOW_INVALID_DATES', time_zone='+00:00'")
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(keys, kinds))
    cursor.execute(f"CREATE TABLE t ({columns}, v INT, PRIMARY KEY ({', '.join(keys)}))")
    # The first of a pair has few values, so that the second one decides.
    few = [[make(rng) for _ in range(6)] for make in makers[:-1]]
    rows = (", ".join([*(rng.choice(values) for values in few), makers[-1](rng)]) for _ in range(count))
    cursor.execute(f"INSERT IGNORE INTO t VALUES {','.join(f'({row}, {n})' for n, row in enumerate(rows))}")
    cursor.execute("ANALYZE TABLE t")
    cursor.fetchall()


@pytest.mark.parametrize("kinds", [*((kind,) for kind in (*KEYS, *MYSQL_KEYS, *MARIADB_KEYS)), *PAIRS], ids=" and ".join)
def test_chunks_hold_every_row_once_whatever_the_key(server: ThrowawayServer, database: str, kinds: tuple[str, ...]) -> None:
    if kinds[0] in (MARIADB_KEYS if server.kind == "mysql" else MYSQL_KEYS):
        pytest.skip("a type of the other server")
    rng = random.Random(str(kinds))
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        fill(cursor, kinds, [{**KEYS, **MYSQL_KEYS, **MARIADB_KEYS}[kind] for kind in kinds], rng, 1500)
        cursor.execute("SELECT v FROM t")
        held = Counter(value for (value,) in cursor.fetchall())
    made, read = snapshot(server, shape_of(server, database, "t"), chunk_rows=120)
    sizes = [chunk.rows for chunk in made.chunks]

    assert Counter(row["v"] for row in rows_of(read)) == held
    assert SnapshotPlan.from_text(made.to_text()) == made
    if kinds[0].startswith(("ENUM", "SET")):
        assert (made.key, len(made.chunks)) == ((), 1)
    elif len(held) > 800:
        assert len(made.chunks) >= 5
        assert max(sizes) < 500


# -- a table that changes meanwhile ------------------------------------------------------------------------------------


class Load:
    """Three sessions that insert, update, delete and change keys in transactions, until told to stop."""

    def __init__(self, server: ThrowawayServer, database: str) -> None:
        self.server = server
        self.database = database
        self.transactions = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(3)]

    def __enter__(self) -> Load:
        with self.server.connect(database=self.database) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (a INT, b VARCHAR(20), n INT NOT NULL, note TEXT, PRIMARY KEY (a, b))")
            for thread in range(3):
                rows = ",".join(f"({key},'{thread}-{key}',0,REPEAT('x',200))" for key in range(1500))
                cursor.execute(f"INSERT INTO t VALUES {rows}")
            cursor.execute("ANALYZE TABLE t")
            cursor.fetchall()
        for thread in self._threads:
            thread.start()
        self.wait(50)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def wait(self, transactions: int) -> None:
        until = self.transactions + transactions
        while self.transactions < until:
            assert all(thread.is_alive() for thread in self._threads)
            time.sleep(0.005)

    def _run(self, number: int) -> None:
        rng = random.Random(number)
        with self.server.connect(database=self.database) as connection, connection.cursor() as cursor:
            cursor.execute("SET autocommit=0")
            while not self._stop.is_set():
                try:
                    self._change(cursor, number, rng)
                except pymysql.MySQLError as error:
                    if error.args[0] != 1213:  # a deadlock, over the gaps between keys
                        raise
                    connection.rollback()
                connection.rollback() if rng.random() < 0.1 else connection.commit()
                self.transactions += 1

    @staticmethod
    def _change(cursor: Any, number: int, rng: random.Random) -> None:
        for _ in range(rng.randrange(1, 4)):
            key, other = rng.randrange(1500), rng.randrange(1500)
            cursor.execute(
                rng.choice(
                    [
                        f"UPDATE t SET n = n + 1 WHERE a = {key} AND b = '{number}-{key}'",
                        f"DELETE FROM t WHERE a = {key} AND b LIKE '{number}-%'",
                        f"INSERT IGNORE INTO t VALUES ({key},'{number}-{other}',0,'new')",
                        f"UPDATE IGNORE t SET a = {other}, n = n + 1 WHERE a = {key} AND b LIKE '{number}-%'",
                        f"UPDATE IGNORE t SET a = 1499 - a, b = UPPER(b) WHERE a = {key} AND b LIKE '{number}-%'",
                    ]
                )
            )


State = dict[Any, tuple[Any, ...]]


def key_of(row: Any) -> Any:
    return row["a"], row["b"].lower()  # the collation's equality, for ASCII


def values_of(row: Any) -> tuple[Any, ...]:
    return row["a"], row["b"], row["n"], row["note"]


def changes_since(server: ThrowawayServer, database: str, shape: Shape, start: canal.Position) -> list[dict[str, Any]]:
    return rows_of(logged(server, start, {"t": shape}, database)["t"])


def held(server: ThrowawayServer, database: str) -> State:
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT a, b, n, note FROM t")
        return {(row[0], row[1].lower()): row for row in cursor.fetchall()}


def test_chunks_and_the_changes_since_come_to_be_the_table(server: ThrowawayServer, database: str) -> None:
    """Each chunk is read at another moment, while keys change, also from one chunk to another."""
    with Load(server, database) as load:
        shape = shape_of(server, database, "t")
        made = plan(source(server), shape, chunk_rows=300, lock_timeout=60)
        state: State = {}
        for chunk in made.chunks:
            for row in rows_of(list(read_chunk(source(server), shape, made, chunk))):
                state[key_of(row)] = values_of(row)
            load.wait(20)
    changes = changes_since(server, database, shape, made.position)

    assert len(made.chunks) > 8
    assert {row["_op"] for row in changes} == {"I", "U", "D"}
    assert all((row["_txn"], row["_ord"]) > (made.txn, -1) for row in changes)
    for row in changes:
        if row["_op"] != "I":
            state.pop(key_of(row["_before"] or row), None)
        if row["_op"] != "D":
            state[key_of(row)] = values_of(row)
    assert state == held(server, database)


def test_a_spooled_snapshot_is_the_table_at_exactly_its_position(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    """Every change behind the position fits the rows that it finds: none is missing, none is there already."""
    with Load(server, database) as load:
        shape = shape_of(server, database, "t")
        plans = []
        for _ in range(3):
            with contextlib.closing(SnapshotFiles(tmp_path)) as files:
                plans.append(plan(source(server), shape, files=files, chunk_rows=1000, lock_timeout=60))
            load.wait(20)
    for made in (plans[0], plans[-1], *plans[1:-1]):
        files = [rows_of(list(read_chunk(source(server), shape, made, chunk))) for chunk in made.chunks]
        assert [len(rows) for rows in files[:-1]] == [1000] * (len(files) - 1)
        assert len(files) > 1
        assert [len(rows) for rows in files] == [chunk.rows for chunk in made.chunks]
        state = {key_of(row): values_of(row) for rows in files for row in rows}
        numbers = [row["_ord"] for rows in files for row in rows]
        assert numbers == list(range(-(1 << 62), len(numbers) - (1 << 62)))
        for row in changes_since(server, database, shape, made.position):
            if row["_op"] != "I":
                old = row["_before"] or row
                assert state.pop(key_of(old)) == values_of(old)
            if row["_op"] != "D":
                assert key_of(row) not in state
                state[key_of(row)] = values_of(row)
        assert state == held(server, database)
        server.query(f"DROP TABLE `{database}`.the_end")


# -- what cannot be ----------------------------------------------------------------------------------------------------


def test_the_privilege_to_lock_is_asked_for(mysql_server: ThrowawayServer) -> None:
    """MySQL tells the position of a snapshot only to who locks the table; either privilege will do."""
    name = "locks"
    mysql_server.query(f"CREATE DATABASE {name}")
    mysql_server.query(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
    mysql_server.query(f"INSERT INTO {name}.t VALUES (1), (2)")
    mysql_server.query("CREATE USER 'poor'@'%' IDENTIFIED BY 'poor'")
    mysql_server.query("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'poor'@'%'")
    poor = attrs.evolve(source(mysql_server), user="poor", password="poor")
    try:
        shape = Shape(read_table(poor, name, "t"))
        with pytest.raises(AuthenticationError, match="GRANT LOCK TABLES ON `locks`"):
            plan(poor, shape)
        for granted in ("LOCK TABLES", "RELOAD"):
            mysql_server.query(f"GRANT {granted} ON *.* TO 'poor'@'%'")
            assert len(plan(poor, shape).chunks) == 1
            mysql_server.query(f"REVOKE {granted} ON *.* FROM 'poor'@'%'")
    finally:
        mysql_server.query("DROP USER 'poor'@'%'")
        mysql_server.query(f"DROP DATABASE {name}")


def test_a_writer_that_does_not_end_is_told(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    """With an engine without transactions at MariaDB too, which then has no other way to tell the position."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY) ENGINE={'MyISAM' if server.kind == 'mariadb' else 'InnoDB'}")
        shape = shape_of(server, database, "t")
        cursor.execute("LOCK TABLES t WRITE" if server.kind == "mariadb" else "SELECT 1")
        cursor.execute("SET autocommit=0")
        cursor.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(ServerError, match="not free of writers for 1 s"):
            plan(source(server), shape, lock_timeout=1)
        cursor.execute("COMMIT")
        cursor.execute("UNLOCK TABLES")
        made, read = snapshot(server, shape, lock_timeout=30)
    assert [row["id"] for row in rows_of(read)] == [1]
    if server.kind == "mariadb":
        with contextlib.closing(SnapshotFiles(tmp_path)) as files, pytest.raises(ConfigError, match="MyISAM"):
            plan(source(server), shape, files=files)


def test_another_server_s_chunks_have_all_that_was_there_at_the_position(server: ThrowawayServer, database: str) -> None:
    """A replica that lags would give older rows, whose changes the stream begins behind."""
    server.query(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO `{database}`.t VALUES (1)")
    shape = shape_of(server, database, "t")
    made = plan(source(server), shape)
    elsewhere = attrs.evolve(made.position, source=str(uuid.UUID(int=1)))
    gtid = "0-1-99999999" if "-" in made.position.gtid and ":" not in made.position.gtid else f"{uuid.UUID(int=1)}:1-3"

    same = attrs.evolve(made, position=elsewhere)
    assert len(rows_of(list(read_chunk(source(server), shape, same, made.chunks[0])))) == 1
    for ahead in (attrs.evolve(elsewhere, gtid=gtid), attrs.evolve(elsewhere, gtid="")):
        with pytest.raises(ServerError, match="another server"):
            list(read_chunk(source(server), shape, attrs.evolve(made, position=ahead), made.chunks[0]))


def test_a_table_that_changes_between_plan_and_chunk_is_refused(server: ThrowawayServer, database: str) -> None:
    server.query(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, a INT)")
    shape = shape_of(server, database, "t")
    made = plan(source(server), shape)
    server.query(f"ALTER TABLE `{database}`.t MODIFY a BIGINT")

    with pytest.raises(SchemaError, match="Begin anew"):
        list(read_chunk(source(server), shape, made, made.chunks[0]))
    with pytest.raises(SchemaError):
        plan(source(server), shape)
    with pytest.raises(ConfigError, match="no table"):
        read_table(source(server), database, "nothing")


def lettered(server: ThrowawayServer, database: str) -> tuple[Shape, SnapshotPlan]:
    """A table whose key has capitals and others, and its plan of many chunks."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (k VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY, n INT NOT NULL, KEY (n))")
        cursor.execute(f"INSERT INTO t VALUES {','.join(f'(CONCAT(CHAR({65 + n % 58}),{n}),{n})' for n in range(1000))}")
        cursor.execute("ANALYZE TABLE t")
        cursor.fetchall()
    shape = shape_of(server, database, "t")
    made = plan(source(server), shape, chunk_rows=50)
    assert len(made.chunks) > 10
    return shape, made


@pytest.mark.parametrize(
    ("ddl", "error"),
    [
        ("MODIFY k VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL", SchemaError),
        ("DROP PRIMARY KEY", SchemaError),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (n, k)", SchemaError),
        ("RENAME COLUMN n TO m", SchemaError),
        ("RENAME TO {database}.u", ConfigError),
    ],
)
def test_what_changes_the_chunks_after_the_plan_is_refused(
    server: ThrowawayServer, database: str, ddl: str, error: type[Exception]
) -> None:
    """In another order of keys chunks of two moments would leave rows out."""
    shape, made = lettered(server, database)
    list(read_chunk(source(server), shape, made, made.chunks[0]))
    server.query(f"ALTER TABLE {database}.t {ddl.format(database=database)}")
    for chunk in made.chunks[1:]:
        with pytest.raises(error):
            list(read_chunk(source(server), shape, made, chunk))


@pytest.mark.parametrize(
    ("ddl", "count"),
    [
        ("ALTER TABLE t ADD COLUMN more INT DEFAULT 5, DROP INDEX n", 1000),
        ("ALTER TABLE t PARTITION BY KEY (k) PARTITIONS 3", 1000),
        ("TRUNCATE TABLE t", 0),
    ],
)
def test_what_changes_no_order_after_the_plan_changes_no_chunks(
    server: ThrowawayServer, database: str, ddl: str, count: int
) -> None:
    shape, made = lettered(server, database)
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(ddl)
    read = [row for chunk in made.chunks for row in rows_of(list(read_chunk(source(server), shape, made, chunk)))]
    assert sorted(row["n"] for row in read) == list(range(count))


def test_a_table_that_changes_within_a_chunk_is_refused(
    server: ThrowawayServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, made = lettered(server, database)
    look = snapshots._columns_now

    def altered(*args: Any) -> Any:
        found = look(*args)
        server.query(f"ALTER TABLE `{database}`.t MODIFY n BIGINT NOT NULL, ALGORITHM=COPY")
        return found

    monkeypatch.setattr(snapshots, "_columns_now", altered)
    with pytest.raises(SchemaError, match="not those that the query began with"):
        list(read_chunk(source(server), shape, made, made.chunks[0]))


def test_a_table_that_is_emptied_within_a_chunk_is_read_again(
    server: ThrowawayServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, made = lettered(server, database)
    look, left = snapshots._columns_now, [f"TRUNCATE `{database}`.t", f"INSERT INTO `{database}`.t VALUES ('A1', 1)"]

    def emptied(*args: Any) -> Any:
        found = look(*args)
        while left:
            server.query(left.pop(0))
        return found

    monkeypatch.setattr(snapshots, "_columns_now", emptied)
    rows = [
        row["n"] for chunk in made.chunks for batch in read_chunk(source(server), shape, made, chunk) for row in batch.to_pylist()
    ]
    assert rows == [1]


HARD = {
    "partitions by range": (
        "id INT PRIMARY KEY",
        "PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (300), PARTITION b VALUES LESS THAN MAXVALUE)",
        "{n}",
    ),
    "partitions by hash": ("id INT PRIMARY KEY", "PARTITION BY HASH (id) PARTITIONS 4", "{n}"),
    "a prefix that is always equal": ("a INT, b CHAR(5), id INT, PRIMARY KEY (a, b, id)", "", "7, 'same', {n}"),
    "a prefix that is nearly always equal": ("a INT, id INT, PRIMARY KEY (a, id)", "", "IF({n} IN (0, 999), {n}, 7), {n}"),
    "a descending key": ("id INT, b INT, PRIMARY KEY (b DESC, id)", "", "{n}, {n} % 3"),
    "a key of a generated column": ("a INT, id INT AS (a * 2) STORED, UNIQUE KEY (id), PRIMARY KEY (a)", "", "{n}, DEFAULT"),
    "a generated key": ("a INT, id INT GENERATED ALWAYS AS (a * 2) STORED NOT NULL, UNIQUE KEY (id)", "", "{n}, DEFAULT"),
    "an invisible column": ("v INT, id INT INVISIBLE PRIMARY KEY AUTO_INCREMENT", "", "{n}"),
}


@pytest.mark.parametrize("hard", HARD)
def test_chunks_of_hard_tables_hold_every_row_once(server: ThrowawayServer, database: str, hard: str) -> None:
    columns, more, values = HARD[hard]
    if server.kind == "mariadb":
        columns = columns.replace("STORED NOT NULL", "STORED")  # which has no such keys: one chunk
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE t ({columns}) {more}")
        cursor.execute(f"INSERT INTO t VALUES {','.join(f'({values.format(n=n)})' for n in range(1000))}")
        cursor.execute("ANALYZE TABLE t")
        cursor.fetchall()
        cursor.execute("SELECT id FROM t")
        held = sorted(cursor.fetchall())
    made, read = snapshot(server, shape_of(server, database, "t"), chunk_rows=100)
    assert sorted((row["id"],) for row in rows_of(read)) == held
    is_keyed = made.key or (hard, server.kind) == ("a generated key", "mariadb")
    assert is_keyed
    assert not made.key or len(made.chunks) >= 5


def test_a_table_whose_rows_nobody_has_counted_is_read_whole(server: ThrowawayServer, database: str) -> None:
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY) STATS_PERSISTENT=1 STATS_AUTO_RECALC=0")
        cursor.execute("ANALYZE TABLE t")
        cursor.fetchall()
        cursor.execute(f"INSERT INTO t VALUES {','.join(f'({n})' for n in range(5000))}")
        cursor.execute(f"UPDATE mysql.innodb_table_stats SET n_rows = 0 WHERE database_name = '{database}'")
        cursor.execute("FLUSH TABLE t")
    made, read = snapshot(server, shape_of(server, database, "t"), chunk_rows=100)
    assert len(rows_of(read)) == 5000


def test_a_row_larger_than_a_packet_is_read(server: ThrowawayServer, database: str) -> None:
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)")
        cursor.execute("INSERT INTO t VALUES (1, REPEAT('x', 9000000)), (2, 'small'), (3, REPEAT('y', 9000000))")
        for _ in range(2):
            cursor.execute("UPDATE t SET v = CONCAT(v, '') WHERE id = 1")
        cursor.execute("ALTER TABLE t ADD COLUMN w LONGBLOB")
        cursor.execute("UPDATE t SET w = v")
    _, read = snapshot(server, shape_of(server, database, "t"))
    assert [(row["id"], len(row["v"]) + len(row["w"])) for row in rows_of(read)] == [(1, 18000000), (2, 10), (3, 18000000)]


@pytest.mark.parametrize("definition", ["a INT, b INT, KEY (a)", "a INT, UNIQUE (a)", "a VARCHAR(9) PRIMARY KEY, UNIQUE(a)"])
def test_without_a_key_a_table_is_one_chunk_and_that_is_told(
    server: ThrowawayServer, database: str, definition: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.query(f"CREATE TABLE `{database}`.t ({definition})")
    made, read = snapshot(server, shape_of(server, database, "t"))
    is_keyed = "PRIMARY" in definition

    assert (len(made.chunks), rows_of(read)) == (1, [])
    assert ("has no key" in caplog.text) != is_keyed
    assert made.key == (("a",) if is_keyed else ())


def test_keys_with_one_far_away_are_still_found_in_the_middle(server: ThrowawayServer, database: str) -> None:
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        cursor.execute(f"INSERT INTO t VALUES ({2**63 - 1}),({-(2**63)}),{','.join(f'({n})' for n in range(3000))}")
        cursor.execute("CREATE TABLE s (id VARCHAR(20) PRIMARY KEY)")
        cursor.execute(f"INSERT INTO s VALUES ('zzz'),(''),{','.join(f'({chr(39)}user{n}{chr(39)})' for n in range(3000))}")
        cursor.execute("ANALYZE TABLE t, s")
        cursor.fetchall()
    for table in "ts":
        made, read = snapshot(server, shape_of(server, database, table), chunk_rows=300)
        assert 6 <= len(made.chunks) <= 30
        assert len({row["id"] for row in rows_of(read)}) == sum(batch.num_rows for batch in read) == 3002


@pytest.mark.parametrize("kind", ["VARCHAR(80) CHARACTER SET utf8mb4", "CHAR(36) CHARACTER SET ascii"])
def test_a_key_of_text_takes_few_questions_for_a_chunk(
    server: ThrowawayServer, database: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    names = ["anna", "bert", "carla", "dirk", "emma", "fritz", "gina", "hans", "ida", "jan", "karl", "lena", "max", "otto"]
    hosts = ["gmail.com", "web.de", "example.org"]
    mails = {f"{rng.choice(names)}.{rng.choice(names)}{rng.randrange(9999)}@{rng.choice(hosts)}" for _ in range(8000)}
    ids = {str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(8000)}
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE t (id {kind} PRIMARY KEY)")
        cursor.execute(f"INSERT INTO t VALUES {','.join(f'({chr(39)}{n}{chr(39)})' for n in (mails if 'utf8' in kind else ids))}")
        cursor.execute("ANALYZE TABLE t")
        cursor.fetchall()
    questions: list[str] = []
    explain, first = snapshots.SnapshotSession.explain, snapshots.SnapshotSession.run
    monkeypatch.setattr(snapshots.SnapshotSession, "explain", lambda self, sql: (questions.append(sql), explain(self, sql))[1])
    monkeypatch.setattr(
        snapshots.SnapshotSession,
        "run",
        lambda self, sql, *more, **names: (questions.append(sql), first(self, sql, *more, **names))[1],
    )
    made = plan(source(server), shape_of(server, database, "t"), chunk_rows=100)
    assert len(made.chunks) > 40
    assert len(questions) < 12 * len(made.chunks)
    assert max(chunk.rows for chunk in made.chunks) <= 150


def test_how_far_the_search_for_chunks_is_is_told(
    server: ThrowawayServer, database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id VARCHAR(9) PRIMARY KEY)")
        cursor.execute(f"INSERT INTO t VALUES {','.join(f'({n})' for n in range(3000))}")
    monkeypatch.setattr(snapshots, "_PACE", 0.0)
    told: list[int] = []
    with caplog.at_level("INFO", "canal.spark"):
        plan(source(server), shape_of(server, database, "t"), chunk_rows=300, tell=told.append)
    assert "the chunks are found of 0 of about" in caplog.text
    assert told == sorted(told)
    assert told[-1] > 1000


def test_a_chunk_that_is_not_read_to_its_end_leaves_nothing_open(server: ThrowawayServer, database: str) -> None:
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
        cursor.execute(f"INSERT INTO t VALUES {','.join(f'({n},REPEAT(0,3000))' for n in range(3000))}")
        shape = shape_of(server, database, "t")
        made = plan(source(server), shape)
        batches = read_chunk(source(server), shape, made, made.chunks[0])
        assert next(batches).num_rows > 0
        batches.close()
        waiting = f"SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%FROM `{database}`.`t`%'"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            cursor.execute(waiting + " AND id <> CONNECTION_ID()")
            if cursor.fetchone() == (0,):
                break
            time.sleep(0.01)
        else:
            raise AssertionError("the query still runs")


def test_a_connection_that_breaks_in_a_chunk_is_told_and_the_chunk_can_be_read_again(
    server: ThrowawayServer, database: str
) -> None:
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
        for part in range(4):
            rows = ",".join(f"({n},REPEAT(0,20000))" for n in range(part * 1000, part * 1000 + 1000))
            cursor.execute(f"INSERT INTO t VALUES {rows}")
        shape = shape_of(server, database, "t")
        made = plan(source(server), shape)
        batches = read_chunk(source(server), shape, made, made.chunks[0])
        next(batches)
        cursor.execute(
            f"SELECT id FROM information_schema.processlist WHERE info LIKE '%FROM `{database}`.`t`%' AND id <> CONNECTION_ID()"
        )
        ((number,),) = cursor.fetchall()
        cursor.execute(f"KILL {number}")
        with pytest.raises(ConnectionLostError):
            list(batches)
    again = read_chunk(source(server), shape, made, made.chunks[0])
    assert sum(batch.num_rows for batch in again) == 4000


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"v":2}', '{"v":1,"schema":"a"}'])
def test_a_plan_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CursorError):
        SnapshotPlan.from_text(text)


def test_nothing_but_values_gets_into_the_sql_of_a_chunk() -> None:
    key = [KeyColumn("id", "number"), KeyColumn("b", "text", "utf8mb4"), KeyColumn("c", "moment")]
    for bound in (("0 OR 1=1", "", "1"), ("0", "41' OR '", "1"), ("0", "", "1' OR '1"), ("0",)):
        with pytest.raises(CursorError):
            condition(key, bound, None)
    assert "_utf8mb4 X'41'" in condition(key, None, ("0", "41", "2026-01-01"))
