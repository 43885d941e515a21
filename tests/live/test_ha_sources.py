"""Processes take turns, and so do the servers that they read: the new owner goes on at the right position of the right one.

And where the log does not name columns, with those that each table had at that position.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from canal.testing import ZooKeeperServer
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Pairing
from tests.support.ha_journal import read_records
from tests.support.live import promote, wait_for_row

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """An embedding process, and what it has written down."""

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        self.path, self.hosts = path, options["hosts"]
        path.touch()
        arguments = [sys.executable, "-m", "tests.programs.ha_child", json.dumps({"output": str(path), **options})]
        with open(f"{path}.out", "wb") as output:
            self.process = subprocess.Popen(arguments, cwd=ROOT, stdout=output, stderr=output)

    def kill(self) -> None:
        """Its session is ended too, so that nobody has to wait until ZooKeeper has not heard of it for long."""
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for session in [record[1:] for record in read_records(self.path) if record[0] == "SESSION"][-1:]:
            other = KazooClient(self.hosts, client_id=session, timeout=60.0)
            other.start(60)
            other.stop()
            other.close()

    @property
    def is_subscribed(self) -> bool:
        return any(record[0] == "SUBSCRIBED" for record in read_records(self.path))

    def batches(self) -> Iterator[tuple[tuple[int, float], str, list[int]]]:
        """Of each ack: in which turn and when it was answered, how (DOUBTFUL: maybe accepted), and the ids of the batch."""
        ids: dict[tuple[int, int], list[int]] = {}
        answers: dict[tuple[int, int], tuple[float, str]] = {}
        unknown: set[tuple[int, int]] = set()
        for kind, *values in read_records(self.path):
            if kind == "GOT":
                pieces = values[5]
                ids[values[0], values[1]] = [one[4]["id"] for _, some in pieces for one in some if one[2] == "INSERT"]
            elif kind in ("ACKING", "ACKED", "REFUSED", "UNKNOWN"):
                answers[values[0], values[1]] = (values[2], kind)
                if kind == "UNKNOWN":
                    unknown.add((values[0], values[1]))
        for batch, (moment, answer) in answers.items():
            doubtful = answer == "ACKING" or (answer != "ACKED" and batch in unknown)
            yield (batch[0], moment), "DOUBTFUL" if doubtful else answer, ids[batch]


class Stage:
    """A source, its replica, and processes that embed one destination."""

    def __init__(self, pairing: Pairing, folder: Path, zookeeper: ZooKeeperServer, stack: ExitStack) -> None:
        self.first, self.second = stack.enter_context(pairing.pair())
        self.folder, self.stack = folder, stack
        self.options = {
            "destination": f"sources-{folder.name}",
            "schema": "d",
            "user": self.first.user,
            "password": self.first.password,
            "port": self.first.port,
            "standby": [self.second.port],
            "hosts": zookeeper.hosts,
            "session_timeout": 30.0,
            "takeover_delay": 0.2,
            "seed": 7,
            "patience": 30.0,  # who is killed refuses at once; who is only slow is not given up
        }
        self.processes: list[Process] = []
        self.written = 0
        self.first.query("CREATE DATABASE d")
        self.first.query("CREATE TABLE d.t (id INT PRIMARY KEY)")

    def start(self) -> Process:
        process = Process(self.folder / f"life-{len(self.processes)}", self.options)
        self.processes.append(process)
        self.stack.callback(process.kill)
        self.until(lambda: process.is_subscribed, "a process to subscribe")
        return process

    def write(self, server: ThrowawayServer, count: int = 20) -> None:
        for _ in range(count):
            self.written += 1
            server.query(f"INSERT INTO d.t VALUES ({self.written})")

    def replicated(self) -> None:
        wait_for_row(self.second, f"SELECT COUNT(*) FROM d.t WHERE id = {self.written}")

    def until(self, true: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + 60
        while not true():
            assert time.monotonic() < deadline, (what, [Path(f"{one.path}.log").read_text()[-3000:] for one in self.processes])
            time.sleep(0.05)

    def acked(self) -> list[int]:
        """Ids of the accepted acks, in their order."""
        done = sorted(one for process in self.processes for one in process.batches() if one[1] == "ACKED")
        return [id for _, _, ids in done for id in ids]

    def await_all(self, *, but: int = 0) -> None:
        self.until(lambda: self.written - but in self.acked(), f"the ack of {self.written - but}")

    def check(self) -> None:
        """Each id is accepted once, in order, but for a batch whose ack was left in doubt, as by the death of its owner."""
        acked = self.acked()
        doubtful = {id for one in self.processes for _, answer, ids in one.batches() if answer == "DOUBTFUL" for id in ids}
        assert acked == sorted(set(acked))
        assert set(range(1, self.written + 1)) - set(acked) <= doubtful


@pytest.fixture
def stage(pairing: Pairing, tmp_path: Path, zookeeper_server: ZooKeeperServer) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(pairing, tmp_path, zookeeper_server, stack)


def test_the_source_goes_then_its_reader(stage: Stage) -> None:
    """The old source is back when the next process takes over, and nobody feeds it any more."""
    owner = stage.start()
    heir = stage.start()
    stage.write(stage.first)
    stage.await_all()
    stage.replicated()
    stage.first.kill()
    promote(stage.second)
    stage.write(stage.second)
    stage.await_all()
    stage.first.start()
    owner.kill()
    stage.write(stage.second)
    stage.await_all()
    heir.kill()
    stage.start()
    stage.write(stage.second)
    stage.await_all()
    stage.check()


@pytest.mark.needs("gtid")
def test_the_reader_goes_then_its_source(stage: Stage) -> None:
    """The next process finds the source dead, and changes that nobody has acked in the other one only."""
    owner = stage.start()
    stage.start()
    stage.write(stage.first)
    stage.await_all()
    owner.kill()
    stage.write(stage.first)
    stage.replicated()
    stage.first.kill()
    promote(stage.second)
    stage.write(stage.second)
    stage.await_all()
    stage.check()
