"""Processes take turns for a group and for a router; the owner is killed, paused and told to let go."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from canal.testing import ZooKeeperServer
from canal.testing.servers import ThrowawayServer
from tests.support.ha_journal import read_records
from tests.support.lives import ROOT
from tests.support.waiting import until

#: Of a table of each row: which outputs of the router get it.
TABLES = {"t": ("all", "t"), "u": ("all",)}
ROUNDS = 10 if os.environ.get("CANAL_SOAK") == "full" else 2
#: Seconds that anything may take where others have the machine.
BOUND = 300.0


class Writer:
    """Writes rows with ascending ids into two tables of each server, until it is left."""

    def __init__(self, servers: dict[str, ThrowawayServer]) -> None:
        self.servers = servers
        self.written = {(name, table): 0 for name in servers for table in TABLES}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        for server in servers.values():
            server.query("DROP DATABASE IF EXISTS turns")
            server.query("CREATE DATABASE turns")
            for table in TABLES:
                server.query(f"CREATE TABLE turns.{table} (id INT PRIMARY KEY)")

    def _run(self) -> None:
        rng = random.Random(3)
        while not self._ends.wait(0.01):
            name, table = rng.choice(list(self.written))
            self.servers[name].query(f"INSERT INTO turns.{table} VALUES ({self.written[name, table]})")
            self.written[name, table] += 1

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._ends.set()
        self._thread.join()


class Processes:
    """Those that take turns, and what each has written down."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self._folder, self._options = folder, options
        self.names = {"all", "t"} if options["kind"] == "router" else {"all"}
        self.lives: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self) -> int:
        path = self._folder / f"life-{len(self.lives)}"
        path.touch()
        arguments = [sys.executable, "-m", "tests.programs.turns_child", json.dumps(self._options), str(path)]
        with open(f"{path}.log", "wb") as log:
            self.lives.append((subprocess.Popen(arguments, cwd=ROOT, stdout=log, stderr=log), path))
        return len(self.lives) - 1

    def records(self, kind: str, life: int | None = None) -> list[tuple[int, tuple[Any, ...]]]:
        paths = [path for _, path in self.lives]
        every = [(number, one[1:]) for number, path in enumerate(paths) for one in read_records(path) if one[0] == kind]
        return [one for one in every if life in (None, one[0])]

    def turn(self) -> tuple[int, int]:
        """The latest in which something was acked, and by whom."""
        return max((values[1], life) for life, values in self.records("ACKED"))

    def owner(self) -> int:
        return self.turn()[1]

    def await_acks(self, *but: int) -> None:
        """Of each instance, by a process that is none of these."""
        before = len(self.records("ACKED"))

        def have() -> set[str]:
            return {values[0] for life, values in self.records("ACKED") if life not in but}

        until(lambda: len(self.records("ACKED")) > before and self.names <= have(), BOUND)
        until(lambda: self.owner() not in but, BOUND)

    def signal(self, life: int, number: int) -> None:
        self.lives[life][0].send_signal(number)

    def kill(self, life: int) -> None:
        self.signal(life, signal.SIGKILL)
        self.lives[life][0].wait()

    def let_go(self) -> None:
        """The owner, until another process has acked. It is asked in each of its turns: it takes the next one itself where the
        other process, of which the session may just have ended, is no quicker than its rest."""
        owner, asked = self.owner(), -1

        def has_passed() -> bool:
            nonlocal asked
            turn, life = self.turn()
            if life == owner and turn > asked:
                asked = turn
                self.signal(owner, signal.SIGUSR1)
            return life != owner

        until(has_passed, BOUND)

    def pause(self) -> None:
        """An owner between a get and its ack, until another process has acked; then that ack is refused."""
        life = before = -1

        def has_stopped() -> bool:
            nonlocal life, before
            if life != (owner := self.owner()):  # a turn may be over before it gets anything
                if life >= 0:
                    self.signal(life, signal.SIGCONT)
                life, before = owner, len(self.records("STOPPED", owner))
                self.signal(life, signal.SIGUSR2)
            return len(self.records("STOPPED", life)) > before

        until(has_stopped, BOUND)
        batch = self.records("STOPPED", life)[-1][1]
        self.await_acks(life)
        self.signal(life, signal.SIGCONT)
        until(lambda: batch in [values[:3] for _, values in self.records("REFUSED", life)], BOUND)

    def accepted(self) -> dict[tuple[str, str, str], list[int]]:
        """Of each instance, member and table the ids of the acks that were accepted, by their turns and in each by their batches.

        An ack without an answer counts where the next batch does not bring its rows again.
        """
        acking = [(life, *values[:3]) for life, values in self.records("ACKING")]  # what is behind it is read later
        answers = {(life, *values[:3]) for kind in ("ACKED", "REFUSED") for life, values in self.records(kind)}
        acked = [(life, *values[:3]) for life, values in self.records("ACKED")]
        ids = {(life, *values[:3]): values[3] for life, values in self.records("GOT")}
        sure = {(batch[1], one) for batch in acked for one in ids[batch]}
        doubtful = [batch for batch in acking if batch not in answers]
        acked += [batch for batch in doubtful if not any((batch[1], one) in sure for one in ids[batch])]
        found: dict[tuple[str, str, str], list[int]] = {}
        for batch in sorted(acked, key=lambda batch: batch[2:]):
            for member, table, one in ids[batch]:
                found.setdefault((batch[1], member, table), []).append(one)
        return found


@pytest.fixture
def processes(
    tmp_path: Path, request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, zookeeper_root: str
) -> Iterator[Processes]:
    made = Processes(tmp_path, {"kind": request.param, "hosts": zookeeper_server.hosts, "root": zookeeper_root})
    yield made
    for process, _ in made.lives:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("processes", ["group", "router"], indirect=True)
def test_what_was_acked_is_there_once_whatever_happens_to_the_owner(
    processes: Processes, mysql_server: ThrowawayServer, mariadb_server: ThrowawayServer
) -> None:
    servers = {"east": mariadb_server, "west": mysql_server}
    options = processes._options
    if options["kind"] == "router":
        del servers["west"]
    options |= {"ports": {name: one.port for name, one in servers.items()}, "user": mysql_server.user}
    options |= {"password": mysql_server.password}
    writer = Writer(servers)
    for _ in range(2):
        processes.start()
    until(lambda: len(processes.records("SUBSCRIBED")) == 2 * len(processes.names), BOUND)  # "latest" is before the first row
    with writer:
        processes.await_acks()
        for _ in range(ROUNDS):
            owner = processes.owner()
            processes.kill(owner)
            processes.await_acks(owner)
            processes.start()
            processes.pause()
            processes.let_go()

    def is_done() -> bool:
        found = processes.accepted()
        return all(found.get(key, [-1])[-1] == last for key, last in wanted.items())

    wanted = {
        (name, member if options["kind"] == "group" else "", table): count - 1
        for (member, table), count in writer.written.items()
        for name in (TABLES[table] if options["kind"] == "router" else ("all",))
    }
    until(is_done, BOUND)
    assert processes.accepted() == {key: list(range(last + 1)) for key, last in wanted.items()}
