"""The rows of the Spark benchmarks: a table of ten mixed columns on a server, bursts of it, and sums to know it by.

Never times anything.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from canal.testing.servers import MySQLServer, ThrowawayServer

COLUMNS = """(id BIGINT PRIMARY KEY, quantity INT NOT NULL, price DECIMAL(12,2) NOT NULL, ratio DOUBLE NOT NULL,
    name VARCHAR(60) NOT NULL, note VARCHAR(120) NULL, changed TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    day DATE NOT NULL, paid BOOLEAN NOT NULL, payload VARBINARY(40) NOT NULL) CHARACTER SET utf8mb4"""
_ROW = """n, n MOD 9973 - 5000, n MOD 1000000 / 100, n / 8, CONCAT('customer ', n, ' é'),
    IF(n MOD 7 = 0, NULL, CONCAT('note ', LEFT(SHA2(n, 256), 32))),
    FROM_UNIXTIME(1700000000 + n MOD 8000000 + n MOD 1000003 / 1000000),
    '2020-01-01' + INTERVAL n MOD 2000 DAY, n MOD 2, UNHEX(LEFT(SHA2(n, 256), 40))"""
#: Names of the sums, each with how the server and how Spark tell it. All are whole numbers.
SUMS = {
    "rows": ("COUNT(*)", "count(1)"),
    "id": ("SUM(id)", "sum(id)"),
    "quantity": ("SUM(quantity)", "sum(quantity)"),
    "price": ("SUM(price * 100)", "sum(price * 100)"),
    "ratio": ("SUM(ratio * 8)", "sum(ratio * 8)"),
    "name": ("SUM(CRC32(name))", "sum(crc32(cast(name as binary)))"),
    "note": ("SUM(CRC32(note))", "sum(crc32(cast(note as binary)))"),
    "changed": ("SUM(MOD(UNIX_TIMESTAMP(changed) * 1000000, 1000003))", "sum(unix_micros(changed) % 1000003)"),
    "day": ("SUM(TO_DAYS(day) - 719528)", "sum(unix_date(day))"),
    "paid": ("SUM(paid)", "sum(paid)"),
    "payload": ("SUM(CRC32(payload))", "sum(crc32(payload))"),
}
#: Names in the command lines of processes that read the log.
READERS = ("python_streaming_source_runner", "debezium")
_DIGITS = f"(SELECT 0 d{''.join(f' UNION SELECT {digit}' for digit in range(1, 10))})"
_NUMBERS = f"SELECT {{}} + a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS n FROM {_DIGITS} a, {_DIGITS} b, {_DIGITS} c, {_DIGITS} e"
_STATEMENT = 10_000

Answer = dict[str, int]


def fill(server: ThrowawayServer, rows: int) -> tuple[str, str]:
    """Make ``bench.orders``; gives where in the log its rows begin and end, as journal:offset."""
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE bench")
        cursor.execute(f"CREATE TABLE bench.orders {COLUMNS}")
        cursor.execute("FLUSH BINARY LOGS")
        start = status(server)
        for first in range(1, rows + 1, _STATEMENT):
            cursor.execute(f"INSERT INTO bench.orders SELECT {_ROW} FROM ({_NUMBERS.format(first)}) s WHERE n <= {rows}")
    return start, status(server)


def status(server: ThrowawayServer) -> str:
    modern = isinstance(server, MySQLServer)
    found = server.query("SHOW BINARY LOG STATUS" if modern else "SHOW MASTER STATUS")[0]
    return f"{found[0]}:{found[1]}"


def answer(server: ThrowawayServer, rows: int) -> Answer:
    """The sums of the table's first rows, by the server."""
    found = server.query(f"SELECT {', '.join(sql for sql, _ in SUMS.values())} FROM bench.orders WHERE id <= {rows}")[0]
    return {name: int(value) for name, value in zip(SUMS, found, strict=True)}


def warming(rows: int) -> int:
    """How many of the rows come first, in a burst of their own that warms up whoever reads them and is not timed."""
    return rows // 2


class Burst:
    """A copy of the table whose transactions are all written but not committed: what is read can come at once.

    ``warm`` commits the first half of them, ``hold`` the others, while who reads the log is stopped; ``release`` wakes it: what
    is timed is the reading, not the server's commits. A reader in this process is not stopped.
    """

    def __init__(self, server: ThrowawayServer, table: str, rows: int, transactions: int = 64) -> None:
        self.server, self.table, self.rows = server, table, rows
        self._bounds = [1 + rows * n // transactions for n in range(transactions + 1)]
        self._connections: list[Any] = []
        self._held: list[int] = []

    def __enter__(self) -> Burst:
        self.server.query(f"CREATE TABLE {self.table} LIKE bench.orders")
        for first, behind in zip(self._bounds, self._bounds[1:]):
            connection = self.server.connect()
            self._connections.append(connection)
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                cursor.execute("BEGIN")
                cursor.execute(f"INSERT INTO {self.table} SELECT * FROM bench.orders WHERE id >= {first} AND id < {behind}")
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        for connection in self._connections:
            connection.close()
        self.server.query(f"DROP TABLE {self.table}")

    def warm(self) -> None:
        self._commit(self._connections[: len(self._connections) // 2])

    def hold(self) -> None:
        self._held = [pid for pid, command in below(os.getpid()).items() if any(name in command for name in READERS)]
        for pid in self._held:
            os.kill(pid, signal.SIGSTOP)
        self._commit(self._connections[len(self._connections) // 2 :])

    @staticmethod
    def _commit(connections: list[Any]) -> None:
        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(connection.commit) for connection in connections]:
                done.result()

    def release(self) -> None:
        while self._held:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._held.pop(), signal.SIGCONT)


def below(root: int) -> dict[int, str]:
    """The processes below one, with their command lines."""
    parents, commands = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(path.name)] = (path / "cmdline").read_bytes().decode(errors="replace")
    found, left = set(), {root}
    while left := {pid for pid, parent in parents.items() if parent in left} - found:
        found |= left
    return {pid: commands[pid] for pid in found if pid in commands}


def connection_number(server: ThrowawayServer) -> int:
    """Later connections have higher ones."""
    return int(server.query("SELECT CONNECTION_ID()")[0][0])


def is_followed(server: ThrowawayServer, since: int) -> bool:
    """Whether somebody has the log sent who has connected since; a server is slow to see that others are gone."""
    return any("Binlog Dump" in (line[4] or "") and line[0] > since for line in server.query("SHOW PROCESSLIST"))


def drip(server: ThrowawayServer, table: str, numbers: Iterator[int], clock: Any) -> dict[int, float]:
    """Insert rows one by one, each a transaction; gives when the insert of each began."""
    begun = {}
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        for number in numbers:
            begun[number] = clock()
            cursor.execute(f"INSERT INTO {table} SELECT {_ROW} FROM (SELECT {number} AS n) s")
    return begun
