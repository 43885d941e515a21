"""Two processes with ``ha`` copy one destination into PostgreSQL, while the one whose turn it is is killed or paused."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from canal.targets import Progress
from canal.testing.servers import ThrowawayServer
from canal.testing.zookeeper import ZooKeeperServer
from tests.support.target_servers import PostgreSQLServer
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
#: Seconds: a session ends, another process takes its turn, on a busy machine.
PATIENCE = 120.0


class Process:
    def __init__(self, options: dict[str, Any], path: Path) -> None:
        self.path = path
        with open(path, "wb") as told, open(f"{path}.log", "wb") as log:
            command = [sys.executable, "-m", "tests.programs.pipe_turns_child", json.dumps(options)]
            self.child = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=log)

    def told(self) -> list[list[Any]]:
        assert self.child.poll() is None, Path(f"{self.path}.log").read_text()[-2000:]
        whole = self.path.read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    @property
    def commits(self) -> int:
        told = self.told()
        return int(told[-1][0]) if told else 0

    def send(self, number: int) -> None:
        self.child.send_signal(number)

    def is_paused(self) -> bool:
        return Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()


class Copied:
    """The server's tables, in which a writer moves amounts so that their sum is 0, and what PostgreSQL has of them."""

    def __init__(self, server: ThrowawayServer, postgresql: PostgreSQLServer, schema: str) -> None:
        self.server, self.conninfo, self.schema = server, postgresql.conninfo, schema
        self.stopping = threading.Event()
        for name in ("one", "other"):
            server.query(f"CREATE TABLE {schema}.{name} (id INT PRIMARY KEY, n INT NOT NULL)")

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            thread.join()

    def _write(self) -> None:
        with contextlib.closing(self.server.connect(database=self.schema)) as connection, connection.cursor() as cursor:
            number = 0
            while not self.stopping.wait(0.01):
                number += 1
                cursor.execute("BEGIN")
                for name, n in (("one", number), ("other", -number)):
                    cursor.execute(f"INSERT INTO {name} VALUES ({number}, {n})")
                    cursor.execute(f"UPDATE {name} SET id = -id WHERE id = {number // 2}")
                    cursor.execute(f"DELETE FROM {name} WHERE id = {-(number // 3)}")
                cursor.execute("COMMIT")

    def is_equal(self) -> bool:
        return all(self._copy(name) == self._original(name) for name in ("one", "other"))

    def _original(self, name: str) -> list[Any]:
        with contextlib.closing(self.server.connect(database=self.schema)) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT id, n FROM {name} ORDER BY id")
            return list(cursor.fetchall())

    def _copy(self, name: str) -> list[Any]:
        with psycopg.connect(self.conninfo) as connection, contextlib.suppress(psycopg.errors.UndefinedTable):
            return connection.execute(f"SELECT id, n FROM {self.schema}.{name} ORDER BY id".encode()).fetchall()
        return []

    def epoch(self) -> int:
        with psycopg.connect(self.conninfo) as connection:
            found = connection.execute("SELECT progress FROM canal_progress WHERE stream = %s", [self.schema]).fetchone()
            assert found is not None
            return Progress.from_text(found[0]).epoch


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_processes_that_take_turns_lose_and_double_nothing(
    mariadb_server: ThrowawayServer,
    postgresql_server: PostgreSQLServer,
    zookeeper_server: ZooKeeperServer,
    zookeeper_root: str,
    tmp_path: Path,
) -> None:
    """The owner is killed three times; then it is paused within a commit while another process takes over and writes."""
    schema = f"turns_{os.getpid()}"
    mariadb_server.query(f"CREATE DATABASE {schema}")
    copied = Copied(mariadb_server, postgresql_server, schema)
    options = {
        "schema": schema,
        "port": mariadb_server.port,
        "user": mariadb_server.user,
        "password": mariadb_server.password,
        "hosts": zookeeper_server.hosts,
        "root": zookeeper_root,
        "target": postgresql_server.conninfo,
    }
    with contextlib.ExitStack() as stack:

        def start(number: int) -> Process:
            process = Process(options, tmp_path / f"process-{number}")
            stack.callback(process.kill)
            return process

        def owner() -> Process:
            """Who commits: more than when it was first asked."""
            before = {id(one): one.commits for one in processes}
            return until(lambda: next((one for one in processes if one.commits > before[id(one)]), None), PATIENCE)

        processes = [start(0), start(1)]
        until(lambda: all(one.told() for one in processes), PATIENCE)
        with copied.writing():
            for number in range(2, 5):
                now = owner()
                now.kill()
                processes.remove(now)
                owner()
                processes.append(start(number))
            paused = owner()
            paused.send(signal.SIGUSR1)
            until(paused.is_paused, PATIENCE)
            before, errors = copied.epoch(), len(paused.told())
            processes.remove(paused)
            owner()
            later = until(lambda: copied.epoch() if copied.epoch() > before else 0, PATIENCE)
            paused.send(signal.SIGCONT)

            refused = until(lambda: [error for _, error in paused.told()[errors:] if error is not None], PATIENCE)

            assert refused[0] == "TargetConflictError"
            assert copied.epoch() >= later
        until(copied.is_equal, PATIENCE)
