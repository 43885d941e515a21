"""What servers are made to write: one table of loads, each a log of its own by plain SQL, whose answer is known by row number."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import CLIENT

from benchmarks.values import LARGE, MIXED, WIDE, Column, checksum, literal
from canal.testing.servers import MySQLServer, ThrowawayServer

#: Rows that updates go round.
KEYS = 5_000
#: Statements sent at once.
_TOGETHER = 100


@dataclass(frozen=True)
class Load:
    """One load; ``rows`` are those of a full run, in statements of ``statement`` rows, each a transaction (``single``: one)."""

    key: str
    title: str
    rows: int
    statement: int = 1000
    columns: tuple[Column, ...] = MIXED
    update: bool = False
    single: bool = False
    #: Statements of another table beside each of ours.
    noise: int = 0
    tables: int = 1
    compressed: bool = False

    @property
    def schema(self) -> str:
        return f"bench_{self.key.lower()}"

    @property
    def kinds(self) -> list[str]:
        return [column.kind for column in self.columns]

    def key_of(self, n: int) -> int:
        """The id of change number ``n``, from 1."""
        return n * 7919 % KEYS + 1 if self.update else n

    def values(self, n: int) -> list[Any]:
        """Of row ``n``, or of what update ``n`` makes of its row."""
        return [self.key_of(n), *(column.value(n) for column in self.columns[1:])]

    def ids(self, rows: int) -> int:
        """Sum of the ids of the first changes."""
        return sum(map(self.key_of, range(1, rows + 1))) if self.update else rows * (rows + 1) // 2

    def checksum(self, rows: int) -> int:
        """Over every value of the first changes, before and after; what an update finds is what the one before it left."""
        total = 0
        for n in range(1, rows + 1):
            total += checksum(self.kinds, self.values(n))
            if self.update:
                total += checksum(self.kinds, self.found(n), 1 + len(self.columns))
        return total

    def found(self, n: int) -> list[Any]:
        """What update ``n`` finds."""
        return self.values(n - KEYS) if n > KEYS else self._first(self.key_of(n))

    def _first(self, key: int) -> list[Any]:
        return [key, *(column.value(key) for column in self.columns[1:])]

    def statements(self, rows: int) -> Iterator[str]:
        for first in range(1, rows + 1, self.statement):
            numbers = range(first, min(first + self.statement, rows + 1))
            table = f"{self.schema}.t{first % self.tables}"
            yield self._update(first) if self.update else self._insert(table, numbers)
            for k in range(self.noise):
                yield self._insert("bench_noise.t", (first * self.noise + k * self.statement + n for n in range(len(numbers))))

    def _update(self, n: int) -> str:
        key, *values = map(literal, self.values(n))
        sets = ",".join(f"{column.name}={value}" for column, value in zip(self.columns[1:], values))
        return f"UPDATE {self.schema}.t0 SET {sets} WHERE id={key}"

    def _insert(self, table: str, numbers: Any) -> str:
        return f"INSERT INTO {table} VALUES " + ",".join(f"({','.join(map(literal, self.values(n)))})" for n in numbers)

    def tables_sql(self) -> Iterator[str]:
        body = ",".join(f"{column.name} {column.sql}" for column in self.columns)
        for name in ["bench_noise.t"] * bool(self.noise) + [f"{self.schema}.t{k}" for k in range(self.tables)]:
            yield f"CREATE TABLE {name} ({body}) CHARACTER SET utf8mb4"
        for first in range(1, KEYS + 1 if self.update else 1, 1000):
            yield f"INSERT INTO {self.schema}.t0 VALUES " + ",".join(
                f"({','.join(map(literal, self._first(k)))})" for k in range(first, first + 1000)
            )


LOADS = {
    load.key: load
    for load in (
        Load("A", "bulk: 1,000-row inserts, 11 mixed columns", 1_000_000),
        Load("B", "single-row inserts", 300_000, statement=1),
        Load("C", "single-row updates, both images", 100_000, statement=1, update=True),
        Load("D", "wide: 100 columns", 50_000, columns=WIDE),
        Load("E", "JSON and blobs", 50_000, statement=100, columns=LARGE),
        Load("F", "filter: 95 % of the log is of another table", 50_000, noise=19),
        Load("G", "one transaction", 10_000_000, single=True),
        Load("H", "compressed: 100-row inserts", 200_000, statement=100, compressed=True),
        Load("I", "4,000 tables, single-row inserts", 40_000, statement=1, tables=4_000),
    )
}


@dataclass(frozen=True)
class Log:
    """A load as one server wrote it: where its part of the log starts, how long it is, and a copy of the file."""

    load: Load
    rows: int
    journal: str
    offset: int
    bytes: int
    file: str = field(repr=False)
    #: Those that were done before it.
    gtids: str = ""

    @property
    def rows_in_log(self) -> int:
        return self.rows * (1 + self.load.noise)


def write(server: ThrowawayServer, load: Load, directory: Path) -> Log:
    """Have the server write a load into a log of its own, and copy that into ``directory``."""
    connection = pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        autocommit=True,
        client_flag=CLIENT.MULTI_STATEMENTS,
    )
    with connection, connection.cursor() as cursor:
        schemas = [load.schema] + ["bench_noise"] * bool(load.noise)
        for schema in schemas:
            cursor.execute(f"CREATE DATABASE {schema}")
        together(cursor, load.tables_sql(), _TOGETHER)
        if load.compressed:
            mysql = isinstance(server, MySQLServer)
            cursor.execute("SET binlog_transaction_compression = ON" if mysql else "SET GLOBAL log_bin_compress = ON")
        cursor.execute("FLUSH BINARY LOGS")
        journal, offset = end_of_log(server)
        if load.single:
            cursor.execute("BEGIN")
        together(cursor, load.statements(load.rows), _TOGETHER if load.statement == 1 else 1)
        if load.single:
            cursor.execute("COMMIT")
        end_journal, end = end_of_log(server)
        if load.single and end_journal != journal:  # one transaction is larger than a log may be, which ends behind it
            end = (server.binlog_dir / journal).stat().st_size - (19 + 8 + len(end_journal) + 4)  # less the ROTATE event
        else:
            assert journal == end_journal, f"load {load.key} must fit into one log"
            cursor.execute("FLUSH BINARY LOGS")
        if load.compressed and not mysql:
            cursor.execute("SET GLOBAL log_bin_compress = OFF")
    file = shutil.copy(server.binlog_dir / journal, directory)
    events = server.query(f"SHOW BINLOG EVENTS IN '{journal}' LIMIT 3")
    gtids = [str(event[5]).strip("[]").replace("\n", "") for event in events if event[2] in ("Previous_gtids", "Gtid_list")]
    return Log(load, load.rows, journal, offset, end - offset, str(file), "".join(gtids))


def together(cursor: Any, statements: Iterator[str], number: int) -> None:
    """Execute statements, so many of them sent at once."""
    while part := list(itertools.islice(statements, number)):
        cursor.execute(";".join(part))
        while cursor.nextset():
            pass


def end_of_log(server: ThrowawayServer) -> tuple[str, int]:
    modern = isinstance(server, MySQLServer)
    found = server.query("SHOW BINARY LOG STATUS" if modern else "SHOW MASTER STATUS")[0]
    return str(found[0]), int(found[1])
