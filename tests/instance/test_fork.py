"""A fork of a process that runs an Instance: it is told that it has none, and the parent goes on as if nothing was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from canal.testing.servers import ThrowawayServer
from canal.testing.zookeeper import ZooKeeperServer

FORKS = 4


class Forking:
    """The process of tests/programs/fork_child.py."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def fork(self, number: int, *, with_sockets: bool = True) -> None:
        self.ask("fork")
        assert self.line() == "said {}"  # nothing but refusals
        assert self.line() == "running False offline []"
        assert self.line() == "sockets 0" or not with_sockets
        assert self.line() == f"child ended {-15 if number % 2 else 0}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)

    def end(self, count: int = FORKS) -> str:
        self.ask(f"end {count}")
        found = self.line()
        assert self._process.wait(60) == 0
        return found


@contextmanager
def forking(*arguments: str) -> Iterator[Forking]:
    command = [sys.executable, "-m", "tests.programs.fork_child", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        found = Forking(process)
        assert found.line() == "ready"
        yield found
    finally:
        process.kill()
        process.communicate()


def test_a_fork_is_told_that_it_has_no_instance(tmp_path: Path) -> None:
    with forking("fake", str(tmp_path)) as process:
        for number in range(FORKS):
            process.fork(number)
        assert process.end() == f"read {list(range(FORKS))} reconnects 0 alarms []"


def test_a_fork_takes_no_part_in_turns(zookeeper_server: ZooKeeperServer, zookeeper_root: str, tmp_path: Path) -> None:
    with forking("fake", str(tmp_path), zookeeper_server.hosts, zookeeper_root) as process:
        for number in range(FORKS):
            process.fork(number, with_sockets=False)
        assert process.end() == f"read {list(range(FORKS))} reconnects 0 alarms []"


@pytest.mark.every_line
def test_a_fork_does_not_touch_what_its_parent_reads(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    """Its sockets are closed, and the schema history left alone, also when it ends."""
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    with forking(address(server), str(tmp_path)) as process:
        for number in range(FORKS):
            server.query(f"INSERT INTO {database}.t VALUES ({number})")
            if number == 1:
                server.query(f"ALTER TABLE {database}.t ADD c INT")
                server.query(f"ALTER TABLE {database}.t DROP c")
            process.fork(number)
        server.query(f"INSERT INTO {database}.t VALUES ({FORKS})")
        assert process.end(FORKS + 1) == f"read {list(range(FORKS + 1))} reconnects 0 alarms []"


def test_a_server_sees_the_end_of_a_parent_that_its_forks_outlive(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    before = dumps(server)
    with forking(address(server), str(tmp_path)) as process:
        process.ask("stay")
        (own,) = dumps(server) - before
        fork = int(process.line())
        try:
            process.kill()
            deadline = time.monotonic() + 60
            while own in dumps(server):
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            os.kill(fork, signal.SIGKILL)


def address(server: ThrowawayServer) -> str:
    return f"{server.host}:{server.port}:{server.user}:{server.password}"


def dumps(server: ThrowawayServer) -> set[int]:
    return {row[0] for row in server.query("SHOW PROCESSLIST") if row[4].startswith("Binlog Dump")}
