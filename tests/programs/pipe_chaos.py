"""A fault run of pipes: four clients of one Instance follow a server under load into Kafka, Redis, PostgreSQL and OpenSearch,
while the process and each of the servers is killed in turn.

    python -m tests.programs.pipe_chaos [--server mysql|mariadb] [--seconds N] [--kills N] [--seed N] [--record FILE]

At the end the three targets of rows hold what the server's tables hold, and a read_committed reader of Kafka gets each change
once, in the order of the commits. Meanwhile no reader of Redis and PostgreSQL sees half a transaction. A failure prints the seed,
and keeps the logs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import logging
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import attrs
import pymysql

import canal
from canal.changes import Change
from canal.targets import KafkaTarget, OpenSearchTarget, PostgreSQLTarget, RedisTarget, Target
from canal.testing.servers import MariaDBServer, MySQLServer, ThrowawayServer
from canal.testing.target_suite import as_text
from tests.programs.reliability import write_result
from tests.support import harnesses
from tests.support.journal import check
from tests.support.live import end_of_log
from tests.support.load import Load
from tests.support.target_servers import KafkaServer, OpenSearchServer, PostgreSQLServer, RedisServer

ROOT: Final = Path(__file__).resolve().parents[2]
OPTIONS: Final = ("--binlog-row-metadata=FULL",)
CLIENTS: Final = {"kafka": 1001, "redis": 1002, "postgresql": 1003, "opensearch": 1004}
FAULTS: Final = ("process", "source", *CLIENTS)
#: Tables that no load has.
OWN: Final = ("one", "other", "moved", "emptied")
#: Seconds in which a client's cursor moves on, also of a process that has only just started, or all is wrong.
PATIENCE: Final = 600.0
#: A server that was killed stays away for so many seconds at most.
AWAY: Final = 2.0


class ChaosError(AssertionError):
    """The run has shown a fault of the library."""


# -- the process that is killed ------------------------------------------------------------------------------------------


def plain(change: Change) -> bytes:
    """A change as ``tests.support.journal`` knows them, and its id."""
    schema, _, table = change.table.source.partition(".")
    before, after = (None if row is None else row.as_dict() for row in (change.before, change.after))
    return pickle.dumps((change.id, (schema, table, change.op.name, before, after)))


def targets_of(options: dict[str, Any]) -> dict[str, Target]:
    return {
        "kafka": KafkaTarget(options["kafka"], topic=options["schema"], encode=plain),
        "redis": RedisTarget(options["redis"]),
        "postgresql": PostgreSQLTarget(options["postgresql"]),
        "opensearch": OpenSearchTarget(options["opensearch"]),
    }


def follow(options: dict[str, Any]) -> None:
    """Follow the server until killed, and print how far each client is."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    schema = options["schema"]
    config = canal.InstanceConfig(
        destination=schema,
        source=canal.MySQLSource(**options["source"]),
        filter=rf"{schema}\..*",
        meta=canal.FileMeta(options["meta"]),
        store_bytes=8 << 20,
    )
    pipes = {}
    with canal.Instance(config) as instance:
        for name, target in targets_of(options).items():
            # tables without a key are for logs
            instance.subscribe(CLIENTS[name], "" if name == "kafka" else rf"{schema}\.(?!log$).*", timeout=PATIENCE)
            pipes[name] = canal.pipe(instance, target, client_id=CLIENTS[name], batch_size=500).start()
        while True:
            for one in pipes.values():
                one.join(0.02)  # raises what has ended it
            status = {name: (instance.position(CLIENTS[name]).to_text(), one.status()) for name, one in pipes.items()}
            counts = {name: [at, one.commits, one.changes, one.failures] for name, (at, one) in status.items()}
            print(json.dumps(counts), flush=True)


# -- the run -------------------------------------------------------------------------------------------------------------


class Process:
    """What embeds the library: its lives one after the other."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.lives = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._path = Path()

    def start(self) -> None:
        self._path = self.run.directory / f"life-{self.lives:04d}"
        self.lives += 1
        with open(self._path, "wb") as told, open(f"{self._path}.log", "wb") as log:
            command = [sys.executable, "-m", "tests.programs.pipe_chaos", "--follow", json.dumps(self.run.options())]
            self._child = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=log)

    def kill(self) -> None:
        if self._child is not None:
            self.run.totals += collections.Counter({f"{name} {what}": n for name, what, n in self.counts()})
            self._child.kill()
            self._child.wait()
            self._child = None

    def check(self) -> None:
        if self._child is not None and self._child.poll() is not None:
            text = Path(f"{self._path}.log").read_text()[-3000:]
            raise ChaosError(f"the process of {self._path.name} has ended by itself: {text}")

    def last(self) -> dict[str, Any]:
        """What it printed last, by client; {} before its first line."""
        lines = self._path.read_bytes().splitlines(keepends=True)[-2:] if self._path.is_file() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        return json.loads(whole[-1]) if whole else {}

    def counts(self) -> Iterator[tuple[str, str, int]]:
        for name, (_, *counts) in self.last().items():
            for what, count in zip(("commits", "changes", "failures"), counts, strict=True):
                yield name, what, count


@attrs.define(eq=False)
class Run:
    """The servers, the process, and what was done to them."""

    source: ThrowawayServer
    servers: dict[str, Any]
    """By the names of ``CLIENTS``."""
    directory: Path
    seed: int
    kinds: Sequence[str]
    kills: collections.Counter[str] = attrs.field(factory=collections.Counter)
    totals: collections.Counter[str] = attrs.field(factory=collections.Counter)
    reads: int = 0
    """How often the readers of Redis and PostgreSQL looked."""
    schema: str = attrs.field(init=False)
    process: Process = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.schema = f"chaos_{self.seed}_{random.randrange(1 << 20):x}"
        self.process = Process(self)

    def options(self) -> dict[str, Any]:
        source = {
            "host": "127.0.0.1",
            "port": self.source.port,
            "user": self.source.user,
            "password": self.source.password,
            "get_server_public_key": True,
        }
        return {
            "schema": self.schema,
            "source": source,
            "meta": str(self.directory / "meta"),
            "kafka": self.servers["kafka"].servers,
            "redis": self.servers["redis"].url,
            "postgresql": self.servers["postgresql"].conninfo,
            "opensearch": self.servers["opensearch"].url,
        }

    def kill(self, kind: str, away: float) -> None:
        """SIGKILL, and a start some seconds later."""
        victim = {"process": self.process, "source": self.source, **self.servers}[kind]
        victim.kill()
        time.sleep(away)
        victim.start()
        self.kills[kind] += 1

    def torment(self, seconds: float, kills: int) -> None:
        """Kill one after the other, over so many seconds; longer where servers take longer to come back."""
        draw, began = random.Random(self.seed), time.monotonic()
        order: list[str] = []
        for number in range(kills):
            order = order or draw.sample(self.kinds, len(self.kinds))
            self._sleep_until(began + (number + draw.uniform(0.3, 1.0)) * seconds / (kills + 1))
            kind = order.pop()
            print(f"{time.monotonic() - began:.1f} s: {kind} is killed", flush=True)
            self.kill(kind, draw.uniform(0.0, AWAY))
        self._sleep_until(began + seconds)

    def _sleep_until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))
            self.process.check()

    def await_end(self) -> None:
        """Until all clients have acked all that the server has logged."""
        end = end_of_log(self.source)
        known, deadline = self.process.last(), time.monotonic() + PATIENCE
        while True:
            now = self.process.last()
            if now and all(canal.Position.from_text(text).precedes(end) is False for text, *_ in now.values()):
                return
            if now != known:
                known, deadline = now, time.monotonic() + PATIENCE
            if time.monotonic() > deadline:
                raise ChaosError(f"the clients stand at {known}, and the log ends at {end}")
            time.sleep(0.05)
            self.process.check()


class Own:
    """A writer and readers of its own tables: rows that are equal after each transaction, a key that moves, a table that is
    emptied."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.stopping = threading.Event()
        self.failures: list[BaseException] = []
        self.threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self.write, self.look)]

    def setup(self) -> None:
        for name in OWN:
            self._ask(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)")
            if name != "emptied":  # nobody has told of a row that is there already, unless it changes
                self._ask(f"INSERT INTO {name} VALUES (1, 0)")

    def __enter__(self) -> None:
        for thread in self.threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.failures.append(error)

    def _ask(self, *statements: str) -> None:
        with contextlib.closing(self.run.source.connect(database=self.run.schema)) as connection, connection.cursor() as cursor:
            for sql in statements:
                cursor.execute(sql)

    def write(self) -> None:
        draw = random.Random(self.run.seed)
        while not self.stopping.wait(0.05):
            with contextlib.suppress(pymysql.err.MySQLError, OSError):  # it may be down
                self._ask(
                    "BEGIN",
                    "UPDATE one SET n = n + 1",
                    "UPDATE moved SET id = id + 1, n = n + 1",
                    "UPDATE other SET n = n + 1",
                    "COMMIT",
                    "INSERT INTO emptied SELECT COALESCE(MAX(id), 0) + 1, 0 FROM emptied",
                )
                if draw.random() < 0.05:
                    self._ask("TRUNCATE emptied", "INSERT INTO emptied VALUES (1, 0)")

    def look(self) -> None:
        import psycopg
        import redis

        schema = self.run.schema
        postgresql = f"SELECT one.n, other.n FROM {schema}.one, {schema}.other"
        while not self.stopping.wait(0.05):
            found: list[tuple[Any, ...]] = []
            with contextlib.suppress(psycopg.Error), psycopg.connect(self.run.servers["postgresql"].conninfo) as connection:
                found += connection.execute(postgresql.encode()).fetchall()
            with contextlib.suppress(redis.RedisError), redis.Redis.from_url(self.run.servers["redis"].url) as client:
                asked = client.pipeline(transaction=True).hget(f"{schema}.one:1", "n").hget(f"{schema}.other:1", "n")
                found.append(tuple(asked.execute()))
            self.run.reads += len(found)
            if torn := [row for row in found if row[0] != row[1]]:
                raise ChaosError(f"a reader saw half a transaction: {torn[0]}")


# -- what is there at the end ------------------------------------------------------------------------------------------


def differences(run: Run, load: Load) -> tuple[int, list[str]]:
    """How many changes Kafka has, and all that is wrong."""
    messages = [pickle.loads(message.value()) for message in harnesses.kafka_log(run.servers["kafka"].servers, run.schema)]
    repeated = len(messages) - len({id for id, _ in messages})
    found = [f"kafka: {repeated} changes came twice"] if repeated else []
    changes = [change for _, change in messages]
    found += [f"kafka: {text}" for text in check(load.journal, [change for change in changes if change[1] not in OWN])]
    tables = {name: list(rows.values()) for name, rows in load.final_tables().items() if name != "log"}
    for name in ("one", "other"):
        counted = [change[4]["n"] for change in changes if change[1] == name and change[2] == "UPDATE"]
        if counted != list(range(1, tables[name][0]["n"] + 1)):
            found.append(f"kafka: the updates of {name} are not {tables[name][0]['n']} ones in their order")
    made = {
        "redis": harnesses.redis_rows(run.servers["redis"].url, "hash"),
        "postgresql": harnesses.postgresql(run.servers["postgresql"].conninfo),
        "opensearch": harnesses.opensearch(run.servers["opensearch"].url),
    }
    for target, harness in made.items():
        assert harness.rows is not None
        for name, rows in tables.items():
            wanted, given = texts(rows), texts(harness.rows(f"{run.schema}.{name}"))
            wrong = sorted(key for key in wanted.keys() | given.keys() if wanted.get(key) != given.get(key))
            found += [f"{target}: {name} {key}: {_difference(given.get(key), wanted.get(key))}" for key in wrong[:3]]
            found += [f"{target}: {name} has {len(wrong)} rows that differ"] * bool(wrong)
    return len(messages), found


def _difference(given: dict[str, Any] | None, wanted: dict[str, Any] | None) -> str:
    if given is None or wanted is None:
        return "is missing" if given is None else "should be gone"
    names = [name for name in given.keys() | wanted.keys() if given.get(name) != wanted.get(name)]
    return ", ".join(f"{name} is {given.get(name)!r}, not {wanted.get(name)!r}" for name in sorted(names))


def texts(rows: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Rows by their keys, each value as the text that is the same of all servers."""
    return {as_text(row["id"]): {name: _text(name, value) for name, value in row.items() if value is not None} for row in rows}


def _text(name: str, value: Any) -> Any:
    if name == "c_bit" and isinstance(value, bytes):
        value = int.from_bytes(value, "big")
    if name == "c_stamp" and hasattr(value, "tzinfo") and value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    if name == "c_json":
        return json.loads(value) if isinstance(value, (str, bytes)) else value
    if name in ("c_float", "c_double"):
        return float(value)
    return as_text(value)


def run(
    source: ThrowawayServer,
    servers: dict[str, Any],
    seed: int,
    seconds: float,
    kills: int,
    kinds: Sequence[str] = FAULTS,
    results: Path | None = None,
) -> str:
    """One run; gives the report. The servers are started; what was found, good or bad, is added to ``results``.

    Raises:
        ChaosError: what went wrong, and the command that repeats the run.
    """
    line = f"python -m tests.programs.pipe_chaos --server {source.kind} --seconds {seconds:g} --kills {kills} --seed {seed}"
    print(line, flush=True)
    directory = Path(tempfile.mkdtemp(prefix="canal-pipes-"))
    try:
        report = _run(Run(source, servers, directory, seed, kinds), seconds, kills, results)
    except Exception as error:
        raise ChaosError(f"{error!r}\nagain with: {line}\nlogs: {directory}") from error
    shutil.rmtree(directory)
    return report


def _run(run: Run, seconds: float, kills: int, results: Path | None) -> str:
    began = time.monotonic()
    load = Load(run.source, run.schema, seed=run.seed, sessions=2, ddl=False, pause=max(0.02, seconds / 20_000))
    load.setup()
    own = Own(run)
    own.setup()
    try:
        run.process.start()
        while not run.process.last():  # it follows from here on
            run.process.check()
            time.sleep(0.05)
        with own, load:
            run.torment(seconds, kills)
        run.await_end()
        run.process.kill()
    finally:
        run.process.kill()
    changes, found = differences(run, load)
    figures = {
        "kind": "pipes",
        "seed": run.seed,
        "server": f"{run.source.kind} {run.source.version}",
        "seconds": round(seconds),
        "took": round(time.monotonic() - began),
        "kills": dict(run.kills),
        "changes": changes,
        "counts": dict(run.totals),
        "reads": run.reads,
        "wrong": found[:20],
    }
    if results is not None:
        write_result(results, figures)
    if found:
        raise ChaosError("\n".join([f"{len(found)} differences:", *found[:20]]))
    return json.dumps(figures)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.pipe_chaos", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--server", choices=("mysql", "mariadb"), default="mariadb")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--record", type=Path, help="add what was found to this file, for docs/reliability.md")
    parser.add_argument("--follow", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        follow(json.loads(options.follow))
    kinds = {"kafka": KafkaServer, "redis": RedisServer, "postgresql": PostgreSQLServer, "opensearch": OpenSearchServer}
    with ExitStack() as stack:
        source = stack.enter_context((MySQLServer if options.server == "mysql" else MariaDBServer)(*OPTIONS))
        servers = {name: stack.enter_context(kind()) for name, kind in kinds.items()}  # type: ignore[abstract]
        try:
            print(run(source, servers, options.seed, options.seconds, options.kills, FAULTS, options.record))
        except ChaosError as error:
            print(f"FAILED: {error}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
