"""One source for two outputs, in a process that is killed: each has its part of the journal."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

import canal
from canal.testing.servers import ThrowawayServer
from tests.support.journal import check
from tests.support.live import end_of_log
from tests.support.lives import ROOT, acked, count_started, lives, merged, reached, wait_for
from tests.support.load import Load

OUTPUTS = ("all", "log")


def start_child(server: ThrowawayServer, directory: Path) -> subprocess.Popen[bytes]:
    life = f"life-{count_started(directory / 'all'):04d}"
    arguments = [str(server.port), server.user, server.password, str(directory), str(directory), life, "routed"]
    child = subprocess.Popen([sys.executable, "-m", "tests.programs.router_child", *arguments], cwd=ROOT)
    for name in OUTPUTS:
        (directory / name / f"{life}.started").touch()
    return child


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_output_has_its_part_once_when_the_process_is_killed(
    server: ThrowawayServer, tmp_path: Path, full_size: bool
) -> None:
    kills = 40 if full_size else 4
    rng = random.Random(5)
    server.query("DROP DATABASE IF EXISTS routed")
    load = Load(server, "routed", seed=5, pause=0.01)
    load.setup()
    for name in OUTPUTS:
        (tmp_path / name).mkdir()
    child = start_child(server, tmp_path)
    try:
        wait_for(lambda: all(lives(tmp_path / name) for name in OUTPUTS), "both outputs to begin")
        with load:
            for _ in range(kills):
                wait_for(lambda: acked(tmp_path / rng.choice(OUTPUTS)) >= 2, "an output to ack")
                child.kill()
                child.wait()
                child = start_child(server, tmp_path)
        server.query("CREATE TABLE routed.done (id INT)")
        end = end_of_log(server)
        wait_for(lambda: all(is_done(tmp_path / name, end) for name in OUTPUTS), f"both outputs to reach {end}")
    finally:
        child.kill()
        child.wait()

    found = {name: [change for change in merged(tmp_path / name)[0] if change[1] != "done"] for name in OUTPUTS}
    assert check(load.journal, found["all"]) == []
    expected = [change for change in found["all"] if change[1] == "log"]
    assert found["log"] == expected
    assert expected


def is_done(directory: Path, end: canal.Position) -> bool:
    return bool(lives(directory)) and reached(directory, end)
