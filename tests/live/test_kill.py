"""SIGKILL at random moments of a load: nothing is lost, and only what was not durably acked comes again."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import canal
from canal.testing.journal import Change, check, compare_tables, replay
from canal.testing.load import Load
from canal.testing.servers import ThrowawayServer
from tests.programs.kill_child import read_records
from tests.support.fix_servers import Line
from tests.support.live import end_of_log
from tests.support.lives import ROOT, count_started, life_files, lives, wait_for


def start_child(server: ThrowawayServer, directory: Path, schema: str) -> subprocess.Popen[bytes]:
    output = directory / f"life-{count_started(directory):04d}"
    arguments = [str(server.port), server.user, server.password, str(directory), str(output), schema]
    child = subprocess.Popen([sys.executable, "-m", "tests.programs.kill_child", *arguments], cwd=ROOT)
    output.with_name(output.name + ".started").touch()
    return child


def merged(directory: Path) -> tuple[list[Change], int]:
    """What a consumer holds that undoes, at each restart, what it got after the cursor; and how often that happened.

    A restart must find the cursor at the last batch that was acked, or at one that was being acked when the kill came.
    """
    batches: list[tuple[list[Change], canal.Position]] = []
    acked, repeats = 0, 0
    first_cursor: canal.Position | None = None
    for life in lives(directory):
        cursor = life[0][1]
        positions = [position for _, position in batches]
        if first_cursor is None:
            first_cursor = cursor
        kept = len(positions) - positions[::-1].index(cursor) if cursor in positions else 0
        assert kept or cursor == first_cursor, f"the cursor {cursor} is no position that was handed out"
        assert kept >= acked, f"{acked} batches were acked, and the cursor is after {kept} of them"
        repeats += len(batches) > kept
        del batches[kept:]
        for kind, *values in life[1:]:
            if kind == "GOT":
                batches.append((values[0], values[1]))
            else:
                assert values[0] == batches[-1][1]
                acked = len(batches)
    return [change for changes, _ in batches for change in changes], repeats


@pytest.mark.slow
@pytest.mark.any_setup
@pytest.mark.needs("full_image")
@pytest.mark.every_line
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_acked_twice_when_the_process_is_killed(
    line: Line, own_server: ThrowawayServer, tmp_path: Path, full_size: bool
) -> None:
    """T8"""
    kills = (200 if full_size else 10) if line.is_main else (20 if full_size else 3)
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


def acked(directory: Path) -> int:
    """How many batches with changes the process that was started last has acked."""
    records = list(read_records(directory / f"life-{count_started(directory) - 1:04d}"))
    return sum(kind == "ACKED" and bool(before[1]) for before, (kind, *_) in zip(records, records[1:], strict=False))


def reached(directory: Path, end: canal.Position) -> bool:
    """Whether the last process has acked, or begun with, everything before ``end``."""
    known = [record[1] for record in read_records(life_files(directory)[-1]) if record[0] in ("START", "ACKED")]
    return bool(known) and known[-1].precedes(end) is False
