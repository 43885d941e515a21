"""A reader in a process of its own, as Spark keeps it for a query, which ends as such processes end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from canal.testing import FakeBinlog
from tests.support.engine import Engine

ROOT = Path(__file__).resolve().parents[2]
#: Plans batches until one is not empty, says where it ends, and lives on with its spool.
READER = """
import json, sys, threading
from tests.support.engine import Engine
engine = Engine(json.loads(sys.argv[1]))
engine.offsets, engine.committed = json.loads(sys.argv[2]), len(json.loads(sys.argv[2]))
engine.start()
while not engine.plan() or not engine.run():
    engine.committed = len(engine.offsets)
print(json.dumps(engine.offsets), flush=True)
sys.stdin.read()
"""


class Reader:
    """The process. It ends at the latest with its standard input, as the real one does with its JVM."""

    def __init__(self, options: dict[str, Any], offsets: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER, json.dumps(options), json.dumps(offsets)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )

    def offsets(self) -> list[str]:
        """The log of offsets, whose last one ends a batch with rows."""
        assert self.process.stdout is not None
        return list(json.loads(self.process.stdout.readline()))

    def end(self, how: Callable[[subprocess.Popen[bytes]], Any]) -> int:
        """Its exit code."""
        how(self.process)
        code = self.process.wait(60)
        self.close()
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Reader]]:
    made: list[Reader] = []

    def one(options: dict[str, Any], offsets: list[str]) -> Reader:
        made.append(Reader(options, offsets))
        return made[-1]

    yield one
    for reader in made:
        reader.close()


def stop(process: subprocess.Popen[bytes]) -> None:
    """query.stop(): SIGTERM, then the end of what it reads, without which Python may not see a signal before its next read."""
    process.terminate()
    assert process.stdin is not None
    process.stdin.close()


@pytest.mark.parametrize(
    ("how", "code", "leaves"),
    [
        (stop, 0, False),
        (lambda process: process.stdin.close(), 0, False),
        (lambda process: process.send_signal(signal.SIGKILL), -signal.SIGKILL, True),
    ],
    ids=["SIGTERM", "end", "SIGKILL"],
)
def test_a_reader_s_process_ends_and_the_next_has_the_planned_batch(
    start: Callable[..., Reader], tmp_path: Path, how: Any, code: int, leaves: bool
) -> None:
    """A batch that is planned, read, and not committed is the next reader's, which also removes what is left."""
    fake = FakeBinlog("mysql")
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(20)")
    spool = tmp_path / "spool"
    with fake.serve() as server:
        options = {
            "host": server.host,
            "port": server.port,
            "table": "shop.orders",
            "startingPosition": "earliest",
            "spoolDir": str(spool),
            "transport": "file",
            "pollTimeout": "0.2",
        }
        offsets: list[str] = []
        for number in range(2):
            orders.insert({"id": number, "note": "x"})
            reader = start(options, offsets)
            planned = reader.offsets()
            assert len(list(spool.glob("*/0*"))) == 1
            assert reader.end(how) == code
            assert bool(list(spool.glob("*/0*"))) == leaves
            with Engine(options) as engine:
                engine.offsets, engine.committed = planned, len(planned) - 1
                engine.start()
                assert engine.step()
                assert [row["id"] for row in engine.rows] == [number]
                assert not engine.step()  # nothing is new, but now it has a spool of its own
            assert not list(spool.glob("*"))
            offsets = planned


def test_a_sigterm_to_a_reader_that_is_being_closed_leaves_no_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while the process ends by itself, as after an error or with its JVM."""
    fake = FakeBinlog("mysql")
    fake.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": 1})
    remove = shutil.rmtree

    def terminated(*arguments: Any, **more: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        remove(*arguments, **more)

    with fake.serve() as server:
        options = {"host": server.host, "port": server.port, "table": "shop.orders", "startingPosition": "earliest"}
        engine = Engine({**options, "spoolDir": str(tmp_path / "spool"), "transport": "file"})
        engine.start()
        assert engine.step()
        monkeypatch.setattr(shutil, "rmtree", terminated)
        with pytest.raises(SystemExit):
            engine.stop()

    assert not list((tmp_path / "spool").glob("*"))
