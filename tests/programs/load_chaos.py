"""A fault run of ``snapshot="initial"``: eight tables are loaded into a target while they change and the process is killed.

    python -m tests.programs.load_chaos [--target KIND] [--server mysql|mariadb] [--rows N] [--kills N] [--seed N]

At the end the target holds what the tables of the server hold. A failure prints the seed, and keeps the folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import attrs
import pymysql

import canal
from canal.formats import DebeziumJson
from canal.pipes import initial
from canal.targets import KafkaTarget, MySQLTarget, Target
from canal.testing.servers import MariaDBServer, MySQLServer, ThrowawayServer
from tests.support import harnesses
from tests.support.live import end_of_log

ROOT: Final = Path(__file__).resolve().parents[2]
SCHEMA: Final = "loaded"
TABLES: Final = {
    "big": "id INT PRIMARY KEY, v VARCHAR(40), n INT",
    "pair": "a INT, k VARCHAR(20), v VARCHAR(40), n INT, PRIMARY KEY (a, k)",
    "texts": "id VARCHAR(30) CHARACTER SET utf8mb4 PRIMARY KEY, n INT",
    "wide": "id BIGINT UNSIGNED PRIMARY KEY, v VARCHAR(40)",
    "money": "id DECIMAL(12,2) PRIMARY KEY, v VARCHAR(40)",
    "days": "id DATETIME(3) PRIMARY KEY, v VARCHAR(40)",
    "loose": "id INT, v VARCHAR(40)",
    "nothing": "id INT PRIMARY KEY",
}
#: Seconds in which something happens, or all is wrong.
PATIENCE: Final = 300.0


def value(table: str, n: int) -> tuple[Any, ...]:
    """The key of a row of a table."""
    keys: dict[str, Callable[[], tuple[Any, ...]]] = {
        "pair": lambda: (n % 50, f"k{n}"),
        "texts": lambda: (f"{'Kkñ日'[n % 4]}{n}",),
        "wide": lambda: ((1 << 63) + n * 1000,),
        "money": lambda: (f"{n}.{n % 100:02}",),
        "days": lambda: (f"2026-01-{n % 28 + 1:02} {n // 3600 % 24:02}:{n // 60 % 60:02}:00.{n % 1000:03}",),
    }
    return keys.get(table, lambda: (n,))()


def columns(table: str) -> list[str]:
    return [part.split()[0] for part in TABLES[table].partition(", PRIMARY KEY")[0].split(", ")]


# -- the process that is killed ------------------------------------------------------------------------------------------


def target_of(kind: str, where: str) -> Target:
    if kind == "kafka":
        return KafkaTarget(where, topic=SCHEMA, encode=DebeziumJson(decimals="string"))
    if kind == "mysql":
        return MySQLTarget(json.loads(where))
    if kind in ("redis", "postgresql"):
        made = harnesses.redis_rows(where, "hash") if kind == "redis" else harnesses.postgresql(where)
        return made.make()
    return harness_of_files(kind, where).make()


def harness_of_files(kind: str, where: str) -> Any:
    return getattr(harnesses, kind)(Path(where))


def follow(options: dict[str, Any]) -> None:
    """Load and follow until killed, and print how far it is."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    initial._CHUNK_ROWS = options["chunk"]  # type: ignore[misc]
    config = canal.InstanceConfig(
        destination="load",
        source=canal.MySQLSource(**options["source"]),
        filter=rf"{SCHEMA}\..*",
        meta=canal.FileMeta(options["meta"]),
    )
    rules = [] if options["kind"] == "kafka" else [canal.Rule(tables=rf"{SCHEMA}\.loose", keys=["id"])]
    target = target_of(options["kind"], options["where"])
    with canal.Instance(config) as instance:
        instance.subscribe(timeout=PATIENCE)
        with canal.pipe(instance, target, snapshot="initial", rules=rules, batch_size=200) as pipe:
            while True:
                pipe.join(0.02)
                status = pipe.status()
                load = None if status.load is None else attrs.asdict(status.load)
                is_done = status.progress is not None and load is None
                print(json.dumps([instance.position().to_text(), is_done, load, status.commits]), flush=True)


def loaded_share(load: dict[str, Any] | None) -> float:
    """Return how much of what was left at the start of a life is loaded, from 0 to 1."""
    return 0.0 if load is None else (load["tables"] + load["rows"] / max(load["of"], 1)) / load["of_tables"]


# -- the run -------------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Run:
    source: ThrowawayServer
    kind: str
    where: str
    folder: Path
    rows: int
    kills: int
    seed: int
    lives: int = 0
    cpu: float = 0.0
    last: list[Any] = attrs.field(factory=list)
    failures: list[BaseException] = attrs.field(factory=list)
    _child: subprocess.Popen[bytes] | None = None

    def play(self) -> None:
        """Fill the tables, load them while they change, kill the process, and compare.

        Raises:
            AssertionError: the target differs.
        """
        self.fill()
        stop = threading.Event()
        writer = threading.Thread(target=self._guarded, args=(stop,))
        draw = random.Random(self.seed)
        self.start()
        writer.start()
        try:
            for number in range(self.kills):
                if number and number == self.kills - 1:  # while it follows
                    self.until(lambda last: last[1])
                    commits = self.last[3] + draw.randrange(1, 12)
                    self.until(lambda last, least=commits: last[3] >= least)
                else:
                    share = draw.random() * 0.6
                    self.until(lambda last, least=share: last[1] or loaded_share(last[2]) > least)
                self.kill()
                self.start()
            self.until(lambda last: last[1])
        finally:
            stop.set()
            writer.join()
            if self.failures:
                raise self.failures[0]
        end = end_of_log(self.source)
        self.until(lambda last: last[1] and canal.Position.from_text(last[0]).precedes(end) is False)
        self.kill()
        self.compare()

    def fill(self) -> None:
        self.source.query(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
        for table, definition in TABLES.items():
            self.source.query(f"CREATE TABLE {SCHEMA}.{table} ({definition})")
            count = 0 if table == "nothing" else self.rows if table == "big" else max(self.rows // 20, 50)
            with contextlib.closing(self.source.connect(database=SCHEMA, autocommit=True)) as connection:
                for first in range(0, count, 2000):
                    rows = [self.row(table, n) for n in range(first, min(first + 2000, count))]
                    with connection.cursor() as cursor:
                        cursor.executemany(self.insert(table), rows)

    @staticmethod
    def insert(table: str) -> str:
        names = columns(table)
        return f"INSERT IGNORE INTO {table} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))})"

    @staticmethod
    def row(table: str, n: int, word: str = "v") -> tuple[Any, ...]:
        rest = {"v": f"{word}{n}", "n": n}
        key = value(table, n)
        return (*key, *(rest[name] for name in columns(table)[len(key) :]))

    def _guarded(self, stop: threading.Event) -> None:
        try:
            self.write(stop)
        except BaseException as error:
            self.failures.append(error)

    def write(self, stop: threading.Event) -> None:
        draw, number = random.Random(self.seed + 1), 0
        with contextlib.closing(self.source.connect(database=SCHEMA, autocommit=True)) as connection:
            while not stop.is_set():
                number += 1
                with connection.cursor() as cursor, contextlib.suppress(pymysql.err.IntegrityError):
                    cursor.execute("BEGIN")
                    for table in draw.sample(list(TABLES), 3):
                        self.change(cursor, draw, table, number)
                    cursor.execute("COMMIT")
                time.sleep(0.002)

    def change(self, cursor: Any, draw: random.Random, table: str, number: int) -> None:
        count = self.rows if table == "big" else max(self.rows // 20, 50)
        n, other = draw.randrange(count), count + number
        names = columns(table)
        key = value(table, n)
        where = " AND ".join(f"{name} = %s" for name in names[: len(key)])
        kind = draw.choice(("insert", "update", "delete", "move"))
        if kind == "insert" and table != "loose":
            cursor.execute(self.insert(table), self.row(table, n, f"i{number}-"))
        elif kind == "insert":
            cursor.execute(self.insert(table), self.row(table, other, f"i{number}-"))
        elif kind == "update" and len(names) > len(key):
            last = f"u{number}" if names[-1] == "v" else number
            cursor.execute(f"UPDATE {table} SET {names[-1]} = %s WHERE {where}", (last, *key))
        elif kind == "delete":
            cursor.execute(f"DELETE FROM {table} WHERE {where}", key)
        elif kind == "move":
            sets = ", ".join(f"{name} = %s" for name in names[: len(key)])
            cursor.execute(f"UPDATE {table} SET {sets} WHERE {where}", (*value(table, other), *key))

    # -- the process ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        source = {
            "host": "127.0.0.1",
            "port": self.source.port,
            "user": self.source.user,
            "password": self.source.password,
            "get_server_public_key": True,
        }
        options = {
            "source": source,
            "meta": str(self.folder / "meta"),
            "kind": self.kind,
            "where": self.where,
            "chunk": max(self.rows // 40, 200),
        }
        self.lives += 1
        with open(self._path, "wb") as told, open(f"{self._path}.log", "wb") as log:
            command = [sys.executable, "-m", "tests.programs.load_chaos", "--follow", json.dumps(options)]
            self._child = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=log)

    @property
    def _path(self) -> Path:
        return self.folder / f"life-{self.lives:02d}"

    def kill(self) -> None:
        assert self._child is not None
        self._child.kill()
        _, self._child.returncode, usage = os.wait4(self._child.pid, 0)
        self.cpu += usage.ru_utime + usage.ru_stime

    def until(self, is_so: Callable[[list[Any]], bool]) -> None:
        deadline, known = time.monotonic() + PATIENCE, b""
        assert self._child is not None
        while True:
            whole = self._path.read_bytes().rpartition(b"\n")[0].rpartition(b"\n")[2]
            if whole and is_so(json.loads(whole)):
                self.last = json.loads(whole)
                return
            assert self._child.poll() is None, f"it has ended: {Path(f'{self._path}.log').read_text()[-2000:]}"
            if whole != known:
                known, deadline = whole, time.monotonic() + PATIENCE
            assert time.monotonic() < deadline, f"it stands at {known!r} (seed {self.seed})"
            time.sleep(0.01)

    # -- what is there at the end -----------------------------------------------------------------------------------------

    def compare(self) -> None:
        for table in TABLES:
            names = columns(table)
            wanted = Counter(
                tuple(map(text, row)) for row in self.source.query(f"SELECT {', '.join(names)} FROM {SCHEMA}.{table}")
            )
            given = Counter(tuple(text(row.get(name)) for name in names) for row in self.found(table))
            lacking, more = wanted - given, given - wanted
            told = f"{self.kind} seed {self.seed}: {table} lacks {len(lacking)} {[*lacking][:3]}, has {len(more)} {[*more][:3]}"
            if lacking or more:
                raise AssertionError(told)

    def found(self, table: str) -> list[dict[str, Any]]:
        if self.kind == "kafka":
            return self._folded(table)
        if self.kind == "mysql":
            with contextlib.closing(pymysql.connect(**json.loads(self.where))) as connection, connection.cursor() as cursor:
                cursor.execute(f"SELECT {', '.join(columns(table))} FROM {SCHEMA}.{table}")
                return [dict(zip(columns(table), row)) for row in cursor.fetchall()]
        if self.kind in ("redis", "postgresql"):
            made = harnesses.redis_rows(self.where, "hash") if self.kind == "redis" else harnesses.postgresql(self.where)
            rows: Any = made.rows(f"{SCHEMA}.{table}")
            return list(rows)
        return list(harness_of_files(self.kind, self.where).rows(f"{SCHEMA}.{table}"))

    def _folded(self, table: str) -> list[dict[str, Any]]:
        """What the messages of a table lead to."""
        rows: Counter[str] = Counter()
        keyed: dict[bytes, str | None] = {}
        for message in harnesses.kafka_log(self.where, SCHEMA):
            if message.value() is None:
                continue
            document = json.loads(message.value())
            if document["source"]["table"] != table:
                continue
            before, after = (None if document[side] is None else json.dumps(document[side]) for side in ("before", "after"))
            if message.key() is not None:
                keyed[message.key()] = after
                continue
            rows.subtract([before] if before is not None else [])
            rows.update([after] if after is not None else [])
        found = [json.loads(row) for row in (*(+rows).elements(), *filter(None, keyed.values()))]
        for row in found:  # as Debezium writes a large BIGINT and a DATETIME
            if table == "wide":
                row["id"] %= 1 << 64
            elif table == "days":
                row["id"] = datetime(1970, 1, 1) + timedelta(milliseconds=row["id"])
        return found


def text(given: Any) -> str:
    """A value as what those of all targets are compared by."""
    found = given.isoformat(" ") if hasattr(given, "isoformat") else str(given)
    return found.replace("T", " ").rstrip("0").rstrip(".") if "." in found else found


@contextlib.contextmanager
def where_of(kind: str, folder: Path, source: ThrowawayServer) -> Iterator[str]:
    """Start what the target needs."""
    from tests.support.target_servers import KafkaServer, PostgreSQLServer, RedisServer

    if kind == "mysql":
        with MySQLServer() as server:
            server.query("CREATE DATABASE canal")
            yield json.dumps(
                {"host": "127.0.0.1", "port": server.port, "user": server.user, "password": server.password, "charset": "utf8mb4"}
            )
    elif kind == "kafka":
        with KafkaServer() as kafka:
            yield kafka.servers
    elif kind == "redis":
        with RedisServer() as redis:
            yield redis.url
    elif kind == "postgresql":
        with PostgreSQLServer() as postgresql:
            yield postgresql.conninfo
    elif kind in ("sqlite", "duckdb"):
        yield str(folder / "copy.db")
    else:
        (folder / "lake").mkdir()  # for the catalog of Iceberg
        yield str(folder / "lake")


KINDS: Final = ("sqlite", "duckdb", "postgresql", "mysql", "delta", "iceberg", "kafka", "redis")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--follow", help=argparse.SUPPRESS)
    parser.add_argument("--target", choices=KINDS, action="append")
    parser.add_argument("--server", choices=("mysql", "mariadb"), default="mysql")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    options = parser.parse_args()
    if options.follow:
        follow(json.loads(options.follow))
        return 0
    for kind in options.target or KINDS:
        folder = Path(tempfile.mkdtemp(prefix=f"load-{kind}-"))
        began = time.monotonic()
        with (MySQLServer if options.server == "mysql" else MariaDBServer)() as source, where_of(kind, folder, source) as where:
            run = Run(source, kind, where, folder, options.rows, options.kills, options.seed)
            run.play()
        wall = time.monotonic() - began
        print(
            f"{kind}: equal after {options.kills} kills, {wall:.0f} s, CPU of the pipe {run.cpu:.0f} s, seed {options.seed}",
            flush=True,
        )
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
