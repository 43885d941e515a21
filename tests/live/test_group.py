"""Three sources in one store, of which one idles, one stops and one fails over, while the process is killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.testing.journal import check
from canal.testing.load import Load
from canal.testing.servers import MariaDBServer, ThrowawayServer
from tests.programs.kill_child import read_records
from tests.support.live import promote, settle, wait_for_row
from tests.support.lives import ROOT, count_started, life_files, lives, wait_for

MEMBERS = ("idle", "stops", "moves")


class Grouped:
    """The servers, the process that follows them, and what it has written."""

    def __init__(self, servers: dict[str, ThrowawayServer], standby: ThrowawayServer, directory: Path) -> None:
        self.servers = servers
        self.standby = standby
        self.directory = directory
        self.child = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        one = self.standby
        options = {
            "members": {name: str(server.port) for name, server in self.servers.items()}, "user": one.user,
            "password": one.password, "standbys": {"moves": str(one.port)}, "filter": r"g_.*\..*",
        }  # fmt: skip
        output = self.directory / f"life-{count_started(self.directory):04d}"
        arguments = [json.dumps(options), str(self.directory), str(output)]
        child = subprocess.Popen([sys.executable, "-m", "tests.programs.group_child", *arguments], cwd=ROOT)
        output.with_name(output.name + ".started").touch()
        return child

    def kill(self) -> None:
        """Once the present process has acked something."""
        self.await_an_ack()
        self.child.kill()
        self.child.wait()
        self.child = self._start()

    def present(self) -> list[tuple[Any, ...]]:
        return list(read_records(self.directory / f"life-{count_started(self.directory) - 1:04d}"))

    def await_an_ack(self) -> None:
        wait_for(lambda: any(kind == "ACKED" for kind, *_ in self.present()), "the present process to ack")

    def begins_inside(self, name: str) -> bool:
        """Whether the present process goes on within a transaction of a member."""
        wait_for(lambda: bool(self.present()), "the present process to begin")
        own = self.present()[0][1].member(name)
        return own is not None and own.row > 0

    def await_acks_of(self, name: str) -> None:
        """Of changes of a member that come from now on."""
        seen, lives = len(self.present()), count_started(self.directory)

        def is_there() -> bool:
            found = self.present()[seen if lives == count_started(self.directory) else 0 :]
            return any(kind == "GOT" and any(one[0] == name for one in values[0]) for kind, *values in found)

        wait_for(is_there, f"changes of {name}")

    def is_done(self) -> bool:
        records = [record for path in life_files(self.directory) for record in read_records(path)]
        done = {one[0] for kind, *values in records if kind == "GOT" for one in values[0] if one[1][0] == "g_done"}
        return done == set(MEMBERS) and records[-1][0] == "ENDS"


def merged(directory: Path) -> list[Any]:
    """What a consumer holds that undoes, at each restart, what it got after the cursor, which is the last that it acked."""
    batches: list[tuple[list[Any], canal.Position]] = []
    acked = 0
    for life in lives(directory):
        cursor = life[0][1]
        positions = [position for _, position in batches]
        kept = len(positions) - positions[::-1].index(cursor) if cursor in positions else 0
        assert kept >= acked, f"{acked} batches were acked, and the cursor is after {kept} of them"
        del batches[kept:]
        for kind, *values in life[1:]:
            if kind == "GOT":
                batches.append((values[0], values[1]))
            elif kind == "ACKED":
                acked = len(batches)
    return [one for found, _ in batches for one in found]


def sorted_lives(directory: Path) -> list[int]:
    """How many transactions came in each life up to the first that was late; they are in the order of their times."""
    counts = []
    for life in lives(directory):
        latest, times = dict.fromkeys(MEMBERS, 0), []
        for ends, late in (values for kind, *values in life if kind == "ENDS"):
            if late:
                break
            for name, timestamp in ends:
                latest[name] = max(latest[name], timestamp)
                times.append(latest[name])
        assert times == sorted(times)
        counts.append(len(times))
    return counts


@pytest.fixture
def pair(mariadb_server: ThrowawayServer) -> Iterator[tuple[ThrowawayServer, ThrowawayServer]]:
    with MariaDBServer(server_id=11) as first, MariaDBServer(server_id=12) as second:
        second.replicate(first)
        yield first, second


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_sources_are_merged_exactly_while_one_idles_one_stops_and_one_fails_over(
    mysql_server: ThrowawayServer, mariadb_server: ThrowawayServer, pair: tuple[ThrowawayServer, ThrowawayServer],
    tmp_path: Path, full_size: bool,
) -> None:  # fmt: skip
    first, second = pair
    rng = random.Random(20)
    rounds = 9 if full_size else 1
    servers = {"idle": mysql_server, "stops": mariadb_server, "moves": first}
    pause = 0.15 if full_size else 0.05
    loads = {
        "idle": [Load(mysql_server, f"g_idle{number}", seed=number, ddl=False) for number in (1, 2)],
        "stops": [Load(mariadb_server, "g_stops", seed=3, ddl=False, pause=pause)],
        "moves": [Load(one, f"g_{name}", seed=4, ddl=False, pause=pause) for one, name in ((first, "before"), (second, "after"))],
    }
    for server in servers.values():
        for load in ("g_idle1", "g_idle2", "g_stops", "g_done"):
            server.query(f"DROP DATABASE IF EXISTS {load}")
        server.query("CREATE DATABASE g_done")
        server.query("CREATE TABLE g_done.t (id INT PRIMARY KEY)")
    (quiet, late), (steady,), (before, after) = loads.values()
    for load in (quiet, late, steady, before):
        load.setup()
    wait_for_row(second, "SELECT COUNT(*) FROM g_before.load_order")
    group = Grouped(servers, second, tmp_path)
    kills, began = 0, time.monotonic()

    def kill(least: float, most: float) -> None:
        nonlocal kills
        time.sleep(rng.uniform(least, most))
        group.kill()
        kills += 1

    def stop_for_a_while(running: str) -> None:
        """The others go on, unless a part of its transaction has passed: they wait for the rest of that."""
        group.await_an_ack()
        mariadb_server.pause()
        try:
            kill(0.0, 3.0 * full_size)
            if not group.begins_inside("stops"):
                group.await_acks_of(running)
        finally:
            mariadb_server.resume()
        group.await_acks_of("stops")

    try:
        wait_for(lambda: bool(lives(tmp_path)), "the first process to subscribe")
        with steady:
            before.start()
            quiet.run(seconds=0.5)
            for _ in range(rounds):
                kill(0.0, 30.0 * full_size)
                stop_for_a_while("moves")
            first.kill()
            promote(second)
            before.stop()
            after.setup()
            with after:
                group.await_acks_of("moves")
                kill(0.0, 1.0)
                if full_size:
                    time.sleep(150.0)
                    kill(0.0, 1.0)
            late.run(seconds=0.5)
        for server in (mysql_server, mariadb_server, second):
            server.query("INSERT INTO g_done.t VALUES (1)")
        wait_for(group.is_done, "the last change of each")
    finally:
        group.child.kill()
        group.child.wait()
    lost = settle(before, second)
    seconds = time.monotonic() - began

    found = merged(tmp_path)
    assert len(lives(tmp_path)) == kills + 1
    for name, every in loads.items():
        changes = [change for member, change in found if member == name]
        for load in every:
            assert check(load.journal, changes) == [], f"{name} {load}"
            assert load.journal.committed()
    counts = sorted_lives(tmp_path)
    print(
        f"{seconds:.0f} s, {kills} kills, {len(found)} changes, {lost} transactions lost with the source; "
        f"{sum(counts)} transactions before the first that was late in a life"
    )
    assert sum(counts) > 20
