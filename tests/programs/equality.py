"""The equality machine: random tables and changes of a server, a pipe that is killed, and a target that must hold the same rows.

    python -m tests.programs.equality [--target KIND …] [--server mysql|mariadb] [--seeds FIRST-LAST] [--show]

A seed decides all: schema, changes, row images, rules, batches, and what happens to the process at which commit. At the end the
rows of the target, read by its own client, are those of SELECT at the source, or the pipe has ended with an error that ``excuse``
allows for that schema, and that names the table and a remedy. What fails is made smaller and printed as statements.

Processes are forked from one that has imported everything, so a life of a pipe costs some milliseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs
import pymysql

import canal
import canal.targets
from canal.testing import FakeBinlog
from canal.testing.processes import scratch
from canal.testing.servers import MariaDBServer, MySQLServer, ThrowawayServer
from tests.support.random_tables import Column, History, Maker, Phase, Row, plain, source_expression, source_value
from tests.support.target_servers import FerretDBServer, OpenSearchServer, PostgreSQLServer, RedisServer

ROOT: Final = Path(__file__).resolve().parents[2]
#: Seconds in which a life of a pipe ends, or all is wrong.
PATIENCE: Final = 60.0
#: Exit codes of a life.
_DONE, _ERROR, _CRASH = 0, 3, 4

Address = dict[str, Any]


def address(server: ThrowawayServer) -> Address:
    return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}


# -- rules: what a pipe is given, and what of the source's rows the target then has ----------------------------------------


def _is_wanted(row: Any) -> bool:
    return row["u"] is None or row["u"] > 4


def _by_row(change: Any) -> str:
    return f"{change.table.database}.{'even' if (change.row['rid'] % 2 == 0) else 'odd'}_{change.table.own_name}"


RULES: Final[Mapping[str, Callable[[], canal.Rule]]] = {
    "renamed": lambda: canal.Rule(tables=r".*\.t\d", rename={"u": "other"}, exclude=["c0"]),
    "moved": lambda: canal.Rule(tables=r".*\.t\d", to="{schema}.{table}_copy"),
    "where by row": lambda: canal.Rule(tables=r".*\.t\d", where=_is_wanted),
    "to by row": lambda: canal.Rule(tables=r".*\.t\d", to=_by_row),
    "keys": lambda: canal.Rule(tables=r".*\.t\d", keys=["rid"]),
    "merged": lambda: canal.Rule(tables=r".*\.t\d", merge="shard", to="{schema}.all_of_them"),
}
Rows = list[Row]


def expected(rule: str, source: Mapping[str, Rows], database: str) -> Iterator[tuple[str, str, Rows]]:
    """Each table of the target, a table of the source whose columns it has, and its rows."""
    merged: Rows = []
    for name, rows in source.items():
        if name == "z":
            yield name, name, rows
        elif rule == "renamed":
            yield (
                name,
                name,
                [{"other" if one == "u" else one: value for one, value in row.items() if one != "c0"} for row in rows],
            )
        elif rule == "moved":
            yield f"{name}_copy", name, rows
        elif rule == "where by row":
            yield name, name, [row for row in rows if _is_wanted(row)]
        elif rule == "to by row":
            yield f"even_{name}", name, [row for row in rows if row["rid"] % 2 == 0]
            yield f"odd_{name}", name, [row for row in rows if row["rid"] % 2]
        elif rule == "merged":
            merged += [{"shard": f"{database}.{name}", **row} for row in rows]
        else:
            yield name, name, rows
    if rule == "merged":
        yield "all_of_them", "t1", merged


# -- targets ---------------------------------------------------------------------------------------------------------------


@attrs.define
class Place:
    """One target, for one seed."""

    database: str
    folder: Path
    server: Any = None

    avoids: ClassVar[tuple[str, ...]] = ()
    """Columns, and keys with " key" behind them, that the target refuses whatever is in them."""
    lacks: ClassVar[tuple[str, ...]] = ()
    lives: ClassVar[tuple[str, ...]] = ("before", "after", "within", "restored")
    rules: ClassVar[tuple[str, ...]] = tuple(RULES)
    images: ClassVar[tuple[str, ...]] = ("FULL", "FULL", "MINIMAL", "NOBLOB")
    imports: ClassVar[tuple[str, ...]] = ()

    def spec(self) -> dict[str, Any]:
        """What ``target_of`` makes the target of, in another process."""
        raise NotImplementedError

    def rows(self, table: str, columns: Sequence[Column]) -> Rows | None:
        """The rows by the target's own client; None: there is no such table."""
        raise NotImplementedError

    def copies(self) -> Sequence[Path]:
        """Files that are the target."""
        return ()

    def back_up(self) -> None:
        backup = self.folder / "backup"
        shutil.rmtree(backup, ignore_errors=True)
        backup.mkdir()
        for path in self.copies():
            if path.is_dir():
                shutil.copytree(path, backup / path.name)
            elif path.exists():
                shutil.copy2(path, backup / path.name)

    def restore(self) -> None:
        for path in self.copies():
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            backup = self.folder / "backup" / path.name
            if backup.is_dir():
                shutil.copytree(backup, path)
            elif backup.exists():
                shutil.copy2(backup, path)

    def close(self) -> None:
        """Remove what is on a server."""


class SQLite(Place):
    lives = (*Place.lives, "paused before")
    imports = ("pyarrow",)

    def spec(self) -> dict[str, Any]:
        return {"kind": "SQLiteTarget", "args": [str(self.folder / "copy.db")]}

    def copies(self) -> Sequence[Path]:
        return [self.folder / "copy.db"]

    def rows(self, table: str, columns: Sequence[Column]) -> Rows | None:
        import sqlite3

        with closing(sqlite3.connect(self.folder / "copy.db")) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchall():
                return None
            cursor = connection.execute(f'SELECT * FROM "{table}"')
            return [dict(zip([one[0] for one in cursor.description], row)) for row in cursor]


class DuckDB(Place):
    avoids = ("time key", "time(6) key")
    lacks = ("zero dates",)
    imports = ("pyarrow", "duckdb", "pytz")

    def spec(self) -> dict[str, Any]:
        return {"kind": "DuckDBTarget", "args": [str(self.folder / "copy.duck")]}

    def copies(self) -> Sequence[Path]:
        return [self.folder / "copy.duck", self.folder / "copy.duck.wal"]

    def rows(self, table: str, columns: Sequence[Column]) -> Rows | None:
        import duckdb

        with duckdb.connect(self.folder / "copy.duck") as connection:
            connection.execute("SET TimeZone = 'UTC'")
            there = "SELECT 1 FROM duckdb_tables() WHERE schema_name = ? AND table_name = ?"
            if not connection.execute(there, [self.database, table]).fetchall():
                return None
            names = [one[0] for one in connection.execute(f'DESCRIBE "{self.database}"."{table}"').fetchall()]
            spans = {one.name for one in columns if one.family == "time"}
            asked = (f"(epoch_us({name}))::BIGINT AS {name}" if name in spans else f'"{name}"' for name in names)
            found = connection.execute(f'SELECT {", ".join(asked)} FROM "{self.database}"."{table}"').fetchall()
            return [dict(zip(names, row)) for row in found]


class PostgreSQL(Place):
    lacks = ("zero dates", "nul")
    lives = ("before", "after", "within", "lost", "paused before")
    imports = ("pyarrow", "psycopg")

    def spec(self) -> dict[str, Any]:
        return {"kind": "PostgreSQLTarget", "args": [self.server.conninfo], "options": {"progress_table": f"p_{self.database}"}}

    def rows(self, table: str, columns: Sequence[Column]) -> Rows | None:
        import psycopg

        with psycopg.connect(self.server.conninfo, autocommit=True) as connection:
            connection.execute("SET TIME ZONE 'UTC'")
            name = f'"{self.database}"."{table}"'
            found = connection.execute(
                "SELECT attname, format_type(atttypid, -1) FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0",
                [name],
            ).fetchall()
            if not found:
                return None
            asked = (
                f'(extract(epoch FROM "{one}") * 1000000)::bigint'
                if kind == "interval"
                else f'"{one}"::text'
                if kind.startswith(("date", "timestamp", "json"))
                else f'"{one}"'
                for one, kind in found
            )
            rows = connection.execute(f"SELECT {', '.join(asked)} FROM {name}".encode()).fetchall()
            return [dict(zip([one for one, _ in found], row)) for row in rows]

    def close(self) -> None:
        import psycopg

        with psycopg.connect(self.server.conninfo, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{self.database}" CASCADE'.encode())
            connection.execute(f'DROP TABLE IF EXISTS "p_{self.database}"'.encode())


class MySQL(Place):
    lives = ("before", "after", "within", "lost", "paused before")
    imports = ("pyarrow",)

    def spec(self) -> dict[str, Any]:
        return {"kind": "MySQLTarget", "args": [address(self.server)], "options": {"database": f"p_{self.database}"}}

    def rows(self, table: str, columns: Sequence[Column]) -> Rows | None:
        by_name = {one.name: one for one in columns}
        with self.server.connect(autocommit=True, charset="utf8mb4") as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            at = "table_schema = %s AND table_name = %s"
            cursor.execute(f"SELECT column_name FROM information_schema.columns WHERE {at}", (self.database, table))
            names = [name for (name,) in cursor.fetchall()]
            if not names:
                return None
            asked = (source_expression(by_name[name]) if name in by_name else f"`{name}`" for name in names)
            cursor.execute(f"SELECT {', '.join(asked)} FROM `{self.database}`.`{table}`")
            return [
                {name: source_value(by_name[name], value) if name in by_name else value for name, value in zip(names, row)}
                for row in cursor.fetchall()
            ]

    def close(self) -> None:
        for name in (self.database, f"p_{self.database}"):
            self.server.query(f"DROP DATABASE IF EXISTS `{name}`")


class Delta(Place):
    lacks = ("zero dates",)
    lives = ("before", "after", "within", "paused before")
    imports = ("pyarrow", "deltalake")

    def spec(self) -> dict[str, Any]:
        return {"kind": "DeltaTarget", "args": [str(self.folder / "lake")]}

    def rows(self, table: str, columns: Sequence[Column]) -> Rows | None:
        import deltalake

        path = str(self.folder / "lake" / f"{self.database}.{table}")
        if not deltalake.DeltaTable.is_deltatable(path):
            return None
        return list(deltalake.DeltaTable(path).to_pyarrow_table().to_pylist())


class Iceberg(Place):
    lacks = ("zero dates",)
    lives = ("before", "after", "within", "paused before")
    imports = ("pyarrow", "pyiceberg.catalog.sql")

    def _properties(self) -> dict[str, str]:
        return {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/ice"}

    def spec(self) -> dict[str, Any]:
        return {"kind": "IcebergTarget", "args": ["test", self._properties()]}

    def rows(self, table: str, columns: Sequence[Column]) -> Rows | None:
        from pyiceberg.exceptions import NoSuchTableError

        from tests.support.lakes import load_catalog

        try:
            found = load_catalog("test", **self._properties()).load_table(f"{self.database}.{table}").scan().to_arrow()
        except NoSuchTableError:
            return None
        return list(found.to_pylist())


class Redis(Place):
    lives = ("before", "after", "within", "paused before")
    imports = ("redis",)

    def spec(self) -> dict[str, Any]:
        options = {"structure": "hash", "prefix": f"{self.database}/"}
        return {"kind": "RedisTarget", "args": [self.server.url], "options": options}

    def rows(self, table: str, columns: Sequence[Column]) -> Rows | None:
        import redis

        with closing(redis.Redis.from_url(self.server.url)) as connection:
            keys = list(connection.scan_iter(match=f"{self.database}/{self.database}.{table}:*", count=5000))
            asked = connection.pipeline(transaction=False)
            for key in keys:
                asked.hgetall(key)
            names = {one.name for one in columns} | {"shard"}
            found = [{key.decode(): value for key, value in fields.items()} for fields in asked.execute()]
            texts = [{key: value.decode() if key == "shard" else value for key, value in row.items()} for row in found]
            return [{name: row.get(name) for name in names | row.keys()} for row in texts] or None

    def close(self) -> None:
        import redis

        with closing(redis.Redis.from_url(self.server.url)) as connection:
            for key in connection.scan_iter(match=f"*{self.database}*", count=5000):
                connection.delete(key)


class MongoDB(Place):
    """FerretDB, which has no transactions and no Decimal128."""

    lacks = ("zero dates", "nul")
    lives = ("before", "after", "within")
    imports = ("pymongo",)

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "MongoDBTarget",
            "args": [self.server.url],
            "options": {"decimals": "text", "database": f"p_{self.database}"},
        }

    def rows(self, table: str, columns: Sequence[Column]) -> Rows | None:
        import pymongo

        client: Any = pymongo.MongoClient(self.server.url)
        with closing(client):
            return [
                {key: value for key, value in row.items() if key != "_id"} for row in client[self.database][table].find()
            ] or None

    def close(self) -> None:
        import pymongo

        client: Any = pymongo.MongoClient(self.server.url)
        with closing(client):
            for name in (self.database, f"p_{self.database}"):
                client.drop_database(name)


class OpenSearch(Place):
    lacks = ("zero dates",)
    lives = ("before", "after", "within")
    images = ("FULL",)
    imports = ("httpx",)

    def spec(self) -> dict[str, Any]:
        options = {"progress_index": f"p_{self.database}", "settings": {"number_of_replicas": 0}}
        return {"kind": "OpenSearchTarget", "args": [self.server.url], "options": options}

    def rows(self, table: str, columns: Sequence[Column]) -> Rows | None:
        import httpx

        with httpx.Client(base_url=self.server.url, timeout=60) as client:
            name = f"{self.database}.{table}"
            if client.post(f"/{name}/_refresh").status_code == 404:
                return None
            page = client.post(f"/{name}/_search", json={"size": 10_000}).json()
            return [_from_base64(hit["_source"], columns) for hit in page["hits"]["hits"]]

    def close(self) -> None:
        import httpx

        with httpx.Client(base_url=self.server.url, timeout=60) as client:
            client.delete(f"/{self.database}.*")
            client.delete(f"/p_{self.database}")


def _from_base64(row: Row, columns: Sequence[Column]) -> Row:
    import base64

    raw = {one.name for one in columns if one.family == "bytes"}
    return {name: base64.b64decode(value) if name in raw and value is not None else value for name, value in row.items()}


class JSONLines(Place):
    """A log, folded: an update or delete whose row is not there is a fault too."""

    lives = (*Place.lives, "paused before")
    images = ("FULL",)
    rules = ("renamed", "moved", "where by row", "to by row")

    def spec(self) -> dict[str, Any]:
        return {"kind": "JSONLinesTarget", "args": [str(self.folder / "copy.jsonl")]}

    def copies(self) -> Sequence[Path]:
        return [self.folder / "copy.jsonl", self.folder / "copy.jsonl.progress"]

    def rows(self, table: str, columns: Sequence[Column]) -> Rows | None:
        path, found, seen = self.folder / "copy.jsonl", {}, set()
        if not path.exists():
            return None
        size = json.loads((self.folder / "copy.jsonl.progress").read_text())["size"]
        for line in path.read_bytes()[:size].splitlines():
            message = json.loads(line)
            if message["table"] != f"{self.database}.{table}":
                continue
            assert message["id"] not in seen, f"a message twice: {message['id']}"
            seen.add(message["id"])
            if message["op"] == "TRUNCATE":
                found.clear()
            if message["before"] is not None:
                key = message["before"].get("rid", message["before"].get("n"))
                assert found.pop(key, None) is not None, f"{message['op']} of a row that is not there: {message}"
            if message["after"] is not None:
                key = message["after"].get("rid", message["after"].get("n"))
                assert key not in found, f"a row that is there already: {message}"
                found[key] = _from_base64(message["after"], columns)
        return list(found.values())


PLACES: Final[Mapping[str, type[Place]]] = {
    "sqlite": SQLite,
    "duckdb": DuckDB,
    "postgresql": PostgreSQL,
    "mysql": MySQL,
    "delta": Delta,
    "iceberg": Iceberg,
    "redis": Redis,
    "mongodb": MongoDB,
    "opensearch": OpenSearch,
    "jsonlines": JSONLines,
}


@attrs.frozen
class Outcome:
    """How a life of a pipe ended."""

    code: int
    error: str = ""
    text: str = ""
    remedy: str = ""


def excuse(place: Place, history: History, image: str, outcome: Outcome, flavor: str) -> str:
    """Why a schema may end with this error; "" if it must not."""
    made = {column.name: column for column in history.columns}
    if outcome.error == "UnfitChangeError":
        if history.odd and history.odd in place.lacks:
            return history.odd
        if "an ENUM that holds none of its labels" in outcome.text and any(one.kind == "enum" for one in made.values()):
            return "the empty value of an ENUM"  # INSERT IGNORE of another label
        if "g" in made and image != "FULL" and "generated column" in outcome.text:
            return "a generated column that is not logged"
        if history.rule == "keys" and image != "FULL" and "a column of the key" in outcome.text:
            return "keys that a partial image lacks"
        if history.rule.endswith("by row") and "a rule needs the column" in outcome.text:
            return "a rule and a partial image"
    return ""


# -- the process that is killed --------------------------------------------------------------------------------------------


def target_of(spec: Mapping[str, Any]) -> Any:
    return getattr(canal.targets, spec["kind"])(*spec["args"], **spec.get("options", {}))


def _happen(life: str, work: Any) -> None:
    """What happens to this process, here and now."""
    if life != "lost":  # a signal of this thread's own comes before its next step
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP if life.startswith("paused") else signal.SIGKILL)
    else:
        connection = work._connection
        number = connection._sock.fileno() if hasattr(connection, "_sock") else connection.fileno()
        with socket.socket(fileno=os.dup(number)) as taken, contextlib.suppress(OSError):
            taken.shutdown(socket.SHUT_RDWR)


class _Struck:
    """A target at one of whose commits something happens to the process."""

    def __init__(self, target: Any, life: str, at: int, micros: int) -> None:
        self._target, self._life, self._left, self._micros = target, life, at, micros

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __str__(self) -> str:
        return str(self._target)

    @contextmanager
    def begin(self, stream: str) -> Iterator[Any]:
        with self._target.begin(stream) as work:
            commit = work.commit

            def struck(progress: Any, table: str = "") -> None:
                self._left -= 1
                is_now, life = self._left == 0, self._life
                if is_now and life in ("before", "paused before", "lost"):
                    _happen(life, work)
                if is_now and life == "within":
                    threading.Timer(self._micros / 1e6, os.kill, (os.getpid(), signal.SIGKILL)).start()
                commit(progress, table)
                if is_now and life == "after":
                    _happen(life, work)

            work.commit = struck
            yield work


def live(options: Mapping[str, Any]) -> int:
    """Follow the source to a position, write down what went wrong, and return how it ended."""
    path = Path(options["folder"]) / "outcome.json"
    try:
        follow(options)
    except canal.CanalError as error:
        cause = error.__cause__
        is_raw = cause is not None and type(cause).__module__ == "builtins" and "has stopped" in str(error)
        text = str(error) + ("".join(traceback.format_exception(cause))[-2000:] if is_raw else "")
        path.write_text(json.dumps({"error": type(error).__name__, "text": text, "remedy": getattr(error, "remedy", "")}))
        return _ERROR
    except BaseException:
        path.write_text(json.dumps({"error": "crash", "text": traceback.format_exc()[-3000:], "remedy": ""}))
        return _CRASH
    return _DONE


def follow(options: Mapping[str, Any]) -> None:
    """Follow the source to a position.

    Raises:
        CanalError: the pipe has ended.
    """
    end = canal.Position.from_text(options["end"])
    config = canal.InstanceConfig(
        destination="equal",
        source=canal.MySQLSource(**options["source"], get_server_public_key=True),
        filter=rf"{options['database']}\..*",
        start=canal.Position.from_text(options["start"]),
        meta=canal.FileMeta(options["meta"]),
    )
    target = _Struck(target_of(options["target"]), options["life"], options["at"], options["micros"])
    rules = [RULES[options["rule"]]()] if options["rule"] else []
    # The server may still complete the commit of a process that was killed.
    retry = canal.Retry(times=3, first=0.01, longest=0.1) if options["life"] == "lost" or options["is_restart"] else "stop"
    with canal.Instance(config) as instance:
        instance.subscribe(timeout=PATIENCE)
        pipe = canal.pipe(instance, target, rules=rules, batch_size=options["batch_size"], linger=0.001, on_error=retry)
        pipe.start()
        deadline = time.monotonic() + PATIENCE
        while instance.position().precedes(end):
            if pipe.join(0.001):
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"the pipe is at {instance.position()}, not at {end}: {pipe.status()}")
        pipe.join(0)
        os._exit(_DONE)  # without a goodbye, which takes longer than all else


def _warm_up() -> None:
    """Import what a pipe imports when it begins."""
    fake = FakeBinlog()
    fake.table("d", "t", "id INT PRIMARY KEY").insert({"id": 1})
    fake.end()
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        meta = canal.FileMeta(Path(folder) / "meta")
        config = canal.InstanceConfig(destination="warm", source=fake, start="earliest", meta=meta)
        with canal.Instance(config) as instance:
            instance.subscribe()
            canal.pipe(instance, canal.targets.SQLiteTarget(Path(folder) / "copy.db"), on_error="stop").run()


def serve() -> None:
    """Fork a process for each order that comes by stdin, and tell what becomes of it by stdout."""
    _warm_up()
    for line in sys.stdin.buffer:
        order = json.loads(line)
        for name in order.get("imports", ()):
            __import__(name)
        pid = order.get("pid")
        if pid is None:
            pid = os.fork()
            if pid == 0:
                os.setpgid(0, 0)
                code = _CRASH
                try:
                    code = live(order)
                finally:
                    os._exit(code)
        elif order.get("kill"):
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGCONT)
        _, status = os.waitpid(pid, os.WUNTRACED)
        told = {
            "pid": pid,
            "stopped": os.WIFSTOPPED(status),
            "code": os.waitstatus_to_exitcode(status) if not os.WIFSTOPPED(status) else 0,
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


class Processes:
    """The process that the lives are forked from."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.programs.equality", "--serve"]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)

    def ask(self, **order: Any) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(order).encode() + b"\n")
        stdin.flush()
        ready, _, _ = select.select([stdout], [], [], 2 * PATIENCE)
        if not ready:
            raise AssertionError(f"no answer of a life: {order}")
        answer: dict[str, Any] = json.loads(stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        with self._process, self._errors:  # closes the pipes and waits for the process
            pass

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -- a run -----------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Result:
    """What a history came to: "equal", why it was refused, or what differs."""

    said: str
    is_fault: bool = False


@attrs.define
class Machine:
    """Plays histories against one source and one kind of target."""

    source: ThrowawayServer
    kind: str
    processes: Processes
    server: Any = None
    _connection: Any = None
    _metadata: str = ""
    _count: int = 0
    counts: Counter[str] = attrs.field(factory=Counter)

    def __enter__(self) -> Machine:
        with contextlib.suppress(pymysql.MySQLError):  # older servers have no such variable
            self._metadata = str(self.ask("SELECT @@GLOBAL.binlog_row_metadata")[0][0])
        return self

    def __exit__(self, *_: object) -> None:
        if self._metadata:
            self.ask(f"SET GLOBAL binlog_row_metadata = '{self._metadata}'")
        self._connection.close()

    def history(self, seed: int) -> History:
        made = PLACES[self.kind]
        maker = Maker(
            seed, self.source.kind, avoids=made.avoids, lacks=made.lacks, lives=made.lives, rules=made.rules, images=made.images
        )
        return maker.history()

    def check(self, seed: int) -> None:
        """Play a seed.

        Raises:
            AssertionError: the target differs, or an error came that the schema does not explain; with the smallest history.
        """
        history = self.history(seed)
        result = self.play(history)
        self.counts[result.said if not result.is_fault else "fault"] += 1
        if result.is_fault:
            smaller, said = self.smallest(history, result)
            raise AssertionError(f"{self.kind} seed {seed}: {said}\n{smaller.shown()}")

    def smallest(self, history: History, result: Result, seconds: float = 40.0) -> tuple[History, str]:
        """Leave out transactions and lives while it still fails in the same way."""
        deadline, said = time.monotonic() + seconds, result.said
        way = said.split(":")[0]

        def fails(tried: History) -> bool:
            nonlocal said
            found = self.play(tried)
            if found.is_fault and found.said.split(":")[0] == way:
                said = found.said
                return True
            return False

        for number, phase in enumerate(history.phases):
            step = max(len(phase.transactions) // 2, 1)
            while step and time.monotonic() < deadline:
                at = 0
                while at < len(history.phases[number].transactions) and time.monotonic() < deadline:
                    own = history.phases[number].transactions
                    tried = _with(history, number, transactions=own[:at] + own[at + step :])
                    if fails(tried):
                        history = tried
                    else:
                        at += step
                step //= 2
            if phase.life != "whole" and time.monotonic() < deadline and fails(tried := _with(history, number, life="whole")):
                history = tried
        if history.rule and fails(tried := attrs.evolve(history, rule="")):
            history = tried
        return history, said

    def play(self, history: History) -> Result:
        self._count += 1
        database = f"e{os.getpid() % 10_000}_{self._count}"
        with tempfile.TemporaryDirectory(dir=scratch(), prefix="canal-equal-", ignore_cleanup_errors=True) as folder:
            place = PLACES[self.kind](database, Path(folder), self.server)
            try:
                return self._play(history, place)
            finally:
                self.ask(f"DROP DATABASE IF EXISTS {database}")
                place.close()

    def ask(self, sql: str) -> Sequence[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = self.source.connect(autocommit=True, charset="utf8mb4")
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def _end(self) -> canal.Position:
        is_new = self.source.kind == "mysql" and self.source.installation.release >= (8, 2)
        journal, offset = self.ask("SHOW BINARY LOG STATUS" if is_new else "SHOW MASTER STATUS")[0][:2]
        return canal.Position(str(journal), int(offset))

    def _play(self, history: History, place: Place) -> Result:
        database = place.database
        self.ask("SET SESSION sql_mode = '', time_zone = '+00:00'")
        if self._metadata:
            self.ask(f"SET GLOBAL binlog_row_metadata = '{history.metadata}'")
        self.ask(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        self.ask(f"USE {database}")
        start = self._end()
        self.ask("CREATE TABLE z (n INT PRIMARY KEY)")
        image = "FULL"
        for number, phase in enumerate(history.phases):
            image = phase.image if phase.image != "FULL" else image
            self.ask(f"SET SESSION binlog_row_image = '{phase.image}'")
            for statements in phase.transactions:
                self._transact(statements)
            self.ask(f"INSERT INTO z VALUES ({number})")
            if phase.life == "restored" and number:
                place.restore()
            outcome = self._live(history, place, phase, start, self._end())
            if outcome.code != _DONE:
                why = excuse(place, history, image, outcome, self.source.kind)
                is_told = f"{database}." in outcome.text and bool(outcome.remedy)
                if why and is_told:
                    return Result(f"refused ({why})")
                return Result(f"{outcome.error or 'killed'}: {outcome.text} {outcome.remedy}", is_fault=True)
            if number == 0:
                place.back_up()
        return self._compare(history, place)

    def _transact(self, statements: Sequence[str]) -> None:
        """Statements that the server refuses are left out, as are those of a history that was made smaller."""
        if len(statements) > 1:
            self.ask("BEGIN")
        for sql in statements:
            with contextlib.suppress(pymysql.MySQLError):
                self.ask(sql)
        if len(statements) > 1:
            self.ask("COMMIT")

    def _live(self, history: History, place: Place, phase: Phase, start: canal.Position, end: canal.Position) -> Outcome:
        order: dict[str, Any] = {
            "imports": place.imports,
            "folder": str(place.folder),
            "database": place.database,
            "source": address(self.source),
            "start": start.to_text(),
            "end": end.to_text(),
            "meta": str(place.folder / "meta"),
            "target": place.spec(),
            "rule": history.rule,
            "batch_size": phase.batch_size,
            "life": "whole" if phase.life == "restored" else phase.life,
            "is_restart": False,
            "at": phase.at,
            "micros": (history.seed * 7919 + phase.at * 131) % 5000,
        }
        whole = order | {"life": "whole", "is_restart": True}
        told = self.processes.ask(**order)
        if told["stopped"]:  # another one goes on with its cursor meanwhile
            other = place.folder / "other"
            shutil.copytree(
                place.folder / "meta", other, dirs_exist_ok=True, ignore=lambda _, names: [n for n in names if "lock" in n]
            )
            second = self.processes.ask(**whole | {"meta": str(other)})
            outcome = self._outcome(place, second)  # read now: the paused process writes to the same file
            last = self.processes.ask(pid=told["pid"])
            if last["stopped"]:
                self.processes.ask(pid=told["pid"], kill=True)
            if second["code"] != _DONE:
                return outcome
            (place.folder / "outcome.json").unlink(missing_ok=True)
            return self._outcome(place, self.processes.ask(**whole))
        if told["code"] < 0 or (told["code"] == _DONE and phase.life == "lost"):
            told = self.processes.ask(**whole)
        return self._outcome(place, told)

    @staticmethod
    def _outcome(place: Place, told: Mapping[str, Any]) -> Outcome:
        path = place.folder / "outcome.json"
        if told["code"] not in (_ERROR, _CRASH):
            return Outcome(told["code"])
        return Outcome(told["code"], **json.loads(path.read_text()))

    # -- comparing --------------------------------------------------------------------------------------------------------

    def _compare(self, history: History, place: Place) -> Result:
        columns = {table.name: {one.name: one for one in table.columns} for table in history.tables}
        columns["z"] = {"n": Column("n", "int", "INT")}
        source: dict[str, Rows] = {}
        for (name,) in self.ask("SHOW TABLES"):
            there = [row[0] for row in self.ask(f"SHOW COLUMNS FROM `{name}`")]
            asked = ", ".join(source_expression(columns[name][one]) for one in there)
            found = self.ask(f"SELECT {asked} FROM `{name}`")
            source[name] = [{one: source_value(columns[name][one], value) for one, value in zip(there, row)} for row in found]
        for name, origin, rows in expected(history.rule, source, place.database):
            own = (
                columns[origin] if history.rule != "merged" else {one: c for made in columns.values() for one, c in made.items()}
            )
            own = own | {"other": own["u"]} if "u" in own else own
            found_rows = place.rows(name, list(own.values()))
            if found_rows is None:
                if rows:
                    return Result(f"no table: {name} is not in the target, and has {len(rows)} rows", is_fault=True)
                continue
            got = [{one: plain(own[one], value) if one in own else value for one, value in row.items()} for row in found_rows]
            if why := _difference(name, rows, got):
                return Result(why, is_fault=True)
        return Result("equal")


def _with(history: History, number: int, **fields: Any) -> History:
    phases = list(history.phases)
    phases[number] = attrs.evolve(phases[number], **fields)
    return attrs.evolve(history, phases=tuple(phases))


def _difference(table: str, want: Rows, got: Rows) -> str:
    """What differs between the rows of a table; "" for nothing. A column that a side lacks is NULL."""
    key = "n" if table == "z" else "rid"
    by_key: dict[Any, Row] = {}
    for row in got:
        one = (row.get("shard"), row[key])
        if one in by_key:
            return f"twice: {table} has the row {one} twice: {by_key[one]} and {row}"
        by_key[one] = row
    wanted = {(row.get("shard"), row[key]): row for row in want}
    if missing := wanted.keys() - by_key.keys():
        return f"missing: {table} lacks {len(missing)} rows, such as {wanted[min(missing, key=str)]}"
    if extra := by_key.keys() - wanted.keys():
        return f"too many: {table} has {len(extra)} rows more, such as {by_key[min(extra, key=str)]}"
    for one, row in wanted.items():
        found = by_key[one]
        for name in row.keys() | found.keys():
            if row.get(name) != found.get(name):
                return f"differs: {table}.{name} of {one} is {row.get(name)!r} at the source, {found.get(name)!r} in the target"
    return ""


# -- the program -----------------------------------------------------------------------------------------------------------

#: Servers that a target needs.
SERVERS: Final[Mapping[str, type]] = {
    "postgresql": PostgreSQLServer,
    "redis": RedisServer,
    "mongodb": FerretDBServer,
    "opensearch": OpenSearchServer,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", choices=PLACES)
    parser.add_argument("--server", choices=("mysql", "mariadb"), default="mysql")
    parser.add_argument("--seeds", default="0-19", help="FIRST-LAST, or one")
    parser.add_argument("--seconds", type=float, default=1e9, help="of each target, at most")
    parser.add_argument("--show", action="store_true", help="print the history of each seed")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        serve()
        return 0
    first, _, last = given.seeds.partition("-")
    kinds = {"mysql": MySQLServer, "mariadb": MariaDBServer}
    faults = 0
    with ExitStack() as stack:
        source = stack.enter_context(kinds[given.server]("--binlog-row-metadata=FULL", server_id=1))
        processes = stack.enter_context(Processes())
        for kind in given.target or PLACES:
            server = stack.enter_context(kinds[given.server](server_id=2)) if kind == "mysql" else None
            server = stack.enter_context(SERVERS[kind]()) if kind in SERVERS else server
            machine = stack.enter_context(Machine(source, kind, processes, server))
            began = time.monotonic()
            for seed in range(int(first), int(last or first) + 1):
                if time.monotonic() - began > given.seconds:
                    break
                if given.show:
                    print(machine.history(seed).shown(), flush=True)
                try:
                    machine.check(seed)
                except AssertionError as error:
                    faults += 1
                    print(f"FAULT {error}\n", flush=True)
            took = time.monotonic() - began
            print(f"{kind} on {given.server}: {dict(machine.counts)} in {took:.1f} s", flush=True)
    return min(faults, 99)


if __name__ == "__main__":
    sys.exit(main())
