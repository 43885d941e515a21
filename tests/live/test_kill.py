"""SIGKILL at random moments of a load: nothing is lost, and only what was not durably acked comes again."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.journal import check, compare_tables, replay
from tests.support.live import end_of_log
from tests.support.lives import ROOT, acked, count_started, lives, merged, reached, wait_for
from tests.support.load import Load


def start_child(server: ThrowawayServer, directory: Path, schema: str) -> subprocess.Popen[bytes]:
    output = directory / f"life-{count_started(directory):04d}"
    arguments = [str(server.port), server.user, server.password, str(directory), str(output), schema]
    child = subprocess.Popen([sys.executable, "-m", "tests.programs.kill_child", *arguments], cwd=ROOT)
    output.with_name(output.name + ".started").touch()
    return child


@pytest.mark.slow
@pytest.mark.any_setup
@pytest.mark.needs("full_image")
@pytest.mark.every_line
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_acked_twice_when_the_process_is_killed(
    line: Line, own_server: ThrowawayServer, tmp_path: Path, full_size: bool, thorough: bool
) -> None:
    """T8"""
    kills = (200 if full_size else 10 if thorough else 4) if line.is_main else (20 if full_size else 3)
    rng = random.Random(7)
    load = Load(own_server, "load", seed=7, pause=0.01)
    load.setup()
    child = start_child(own_server, tmp_path, "load")
    try:
        wait_for(lambda: bool(lives(tmp_path)), "the first process to subscribe")
        with load:
            for _ in range(kills):
                acks = rng.randrange(1, 6)
                wait_for(lambda: acked(tmp_path) >= acks, f"{acks} acks of the present process")  # noqa: B023
                time.sleep(rng.uniform(0.0, 0.1))
                child.kill()
                child.wait()
                child = start_child(own_server, tmp_path, "load")
        end = end_of_log(own_server)
        wait_for(lambda: reached(tmp_path, end), f"the last process to reach {end}")
    finally:
        child.kill()
        child.wait()

    changes, repeats = merged(tmp_path)
    assert len(lives(tmp_path)) == kills + 1
    print(f"{kills} kills, {len(lives(tmp_path))} lives, {repeats} with repeats, {len(changes)} changes")
    assert check(load.journal, changes) == []
    tables, misfits = replay(load.journal, changes)
    assert misfits == []
    assert compare_tables(load.final_tables(), tables) == []
