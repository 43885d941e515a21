"""A fault run of a group: three sources in one store, of which one idles, one stops and one fails over, while the process that
merges them is killed.

    python -m tests.programs.group_chaos [--seconds N] [--kills N] [--seed N] [--record FILE]

At the end what a consumer holds of each source, that undoes at each restart what it got after the cursor, is what was committed
there, in its order; and in each life the transactions up to the first that was late are in the order of their times.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import canal
from canal.testing.servers import MariaDBServer, MySQLServer, ThrowawayServer
from tests.programs.kill_child import read_records
from tests.programs.reliability import write_result
from tests.support.journal import check
from tests.support.live import promote, settle, wait_for_row
from tests.support.lives import ROOT, count_started, life_files, lives, wait_for
from tests.support.load import Load

MEMBERS: Final = ("idle", "stops", "moves")


class ChaosError(AssertionError):
    """The run has shown a fault of the library."""


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
            "members": {name: str(server.port) for name, server in self.servers.items()},
            "user": one.user,
            "password": one.password,
            "standbys": {"moves": str(one.port)},
            "filter": r"g_.*\..*",
        }
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

    def end(self) -> None:
        self.child.kill()
        self.child.wait()

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
    """What a consumer holds that undoes, at each restart, what it got after the cursor, which is the last that it acked.

    Raises:
        ChaosError: a cursor is before what was acked.
    """
    batches: list[tuple[list[Any], canal.Position]] = []
    acked = 0
    for life in lives(directory):
        cursor = life[0][1]
        positions = [position for _, position in batches]
        kept = len(positions) - positions[::-1].index(cursor) if cursor in positions else 0
        if kept < acked:
            raise ChaosError(f"{acked} batches were acked, and the cursor is after {kept} of them")
        del batches[kept:]
        for kind, *values in life[1:]:
            if kind == "GOT":
                batches.append((values[0], values[1]))
            elif kind == "ACKED":
                acked = len(batches)
    return [one for found, _ in batches for one in found]


def sorted_lives(directory: Path) -> list[int]:
    """How many transactions came in each life up to the first that was late.

    Raises:
        ChaosError: these are not in the order of their times.
    """
    counts = []
    for life in lives(directory):
        latest, times = dict.fromkeys(MEMBERS, 0), []
        for ends, late in (values for kind, *values in life if kind == "ENDS"):
            if late:
                break
            for name, timestamp in ends:
                latest[name] = max(latest[name], timestamp)
                times.append(latest[name])
        if times != sorted(times):
            raise ChaosError(f"life {len(counts)} is not in the order of its times")
        counts.append(len(times))
    return counts


class Run:
    """One run on servers that are started.

    Args:
        servers: by the names of the members.
        standby: a replica of the one that moves.
        directory: for cursors and what the processes write.
    """

    def __init__(
        self,
        servers: dict[str, ThrowawayServer],
        standby: ThrowawayServer,
        directory: Path,
        seed: int,
        seconds: float,
        kills: int,
    ) -> None:
        self.servers = servers
        self.standby = standby
        self.directory = directory
        self.rng = random.Random(seed)
        self.seconds = seconds
        self.kills = kills
        pause = min(max(0.05, seconds / 4000), 0.15)
        first = servers["moves"]
        self.loads = {
            "idle": [Load(servers["idle"], f"g_idle{number}", seed=number, ddl=False) for number in (1, 2)],
            "stops": [Load(servers["stops"], "g_stops", seed=3, ddl=False, pause=pause)],
            "moves": [
                Load(one, f"g_{name}", seed=4, ddl=False, pause=pause) for one, name in ((first, "before"), (standby, "after"))
            ],
        }

    def set_up(self) -> None:
        for server in self.servers.values():
            for schema in ("g_idle1", "g_idle2", "g_stops", "g_done"):
                server.query(f"DROP DATABASE IF EXISTS {schema}")
            server.query("CREATE DATABASE g_done")
            server.query("CREATE TABLE g_done.t (id INT PRIMARY KEY)")
        for load in (*self.loads["idle"], *self.loads["stops"], self.loads["moves"][0]):
            load.setup()
        wait_for_row(self.standby, "SELECT COUNT(*) FROM g_before.load_order")

    def torment(self) -> int:
        """Let them idle, stop and fail over, and kill the process; gives how many transactions were lost with the source."""
        (quiet, late), (steady,), (before, after) = self.loads.values()
        group = self.group = Grouped(self.servers, self.standby, self.directory)
        end = time.monotonic() + self.seconds
        rounds = (self.kills - 1) // 2
        share = 0.75 * self.seconds / rounds
        try:
            wait_for(lambda: bool(lives(self.directory)), "the first process to subscribe")
            with steady:
                before.start()
                quiet.run(seconds=0.5)
                for number in range(1, rounds + 1):
                    self._kill(share / 2)
                    self._stop_for_a_while(min(3.0, share / 4))
                    time.sleep(max(end - self.seconds + number * share - time.monotonic(), 0.0))
                self.servers["moves"].kill()
                promote(self.standby)
                before.stop()
                after.setup()
                with after:
                    group.await_acks_of("moves")
                    for left in reversed(range(self.kills - 2 * rounds)):
                        self._kill(1.0)
                        time.sleep(max(end - time.monotonic(), 0.0) / (left + 1))
                late.run(seconds=0.5)
            for server in (self.servers["idle"], self.servers["stops"], self.standby):
                server.query("INSERT INTO g_done.t VALUES (1)")
            wait_for(group.is_done, "the last change of each", timeout=120.0)
        finally:
            group.end()
        return settle(before, self.standby)

    def _kill(self, most: float) -> None:
        time.sleep(self.rng.uniform(0.0, most))
        self.group.kill()

    def _stop_for_a_while(self, most: float) -> None:
        """The others go on, unless a part of its transaction has passed: they wait for the rest of that."""
        self.group.await_an_ack()
        self.servers["stops"].pause()
        try:
            self._kill(most)
            if not self.group.begins_inside("stops"):
                self.group.await_acks_of("moves")
        finally:
            self.servers["stops"].resume()
        self.group.await_acks_of("stops")

    def differences(self) -> tuple[int, int, list[str]]:
        """How many changes a consumer holds, how many transactions came before the first late one, and what is wrong."""
        wrong = []
        found = merged(self.directory)
        for name, every in self.loads.items():
            changes = [change for member, change in found if member == name]
            for load in every:
                wrong += [f"{name}: {one}" for one in check(load.journal, changes)]
                wrong += [] if load.journal.committed() else [f"{name}: nothing was committed"]
        return len(found), sum(sorted_lives(self.directory)), wrong


def run(
    servers: dict[str, ThrowawayServer],
    standby: ThrowawayServer,
    directory: Path,
    seed: int,
    seconds: float,
    kills: int,
    results: Path | None = None,
) -> dict[str, Any]:
    """One run; gives what it has found, which is added to ``results``, good or bad.

    Raises:
        ChaosError: what went wrong.
    """
    print(f"python -m tests.programs.group_chaos --seconds {seconds:g} --kills {kills} --seed {seed}", flush=True)
    began = time.monotonic()
    one = Run(servers, standby, directory, seed, seconds, kills)
    one.set_up()
    lost = one.torment()
    figures: dict[str, Any] = {
        "kind": "group",
        "seed": seed,
        "servers": {name: f"{one.kind} {one.version}" for name, one in servers.items()},
        "seconds": round(seconds),
        "took": round(time.monotonic() - began),
        "kills": len(lives(directory)) - 1,
    }
    try:
        changes, in_order, wrong = one.differences()
    except ChaosError as error:
        changes, in_order, wrong = 0, 0, [str(error)]
    figures |= {"changes": changes, "in order": in_order, "lost with the source": lost, "wrong": wrong[:20]}
    if results is not None:
        write_result(results, figures)
    if wrong:
        raise ChaosError("\n".join([f"{len(wrong)} differences:", *wrong[:20]]))
    return figures


def main() -> int:
    about = (__doc__ or "").partition("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.programs.group_chaos", description=about)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--record", type=Path, help="add what was found to this file, for docs/reliability.md")
    options = parser.parse_args()
    with ExitStack() as stack:
        idle, stops = stack.enter_context(MySQLServer()), stack.enter_context(MariaDBServer())
        first, second = (stack.enter_context(MariaDBServer(server_id=number)) for number in (11, 12))
        second.replicate(first)
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="canal-group-")))
        servers = {"idle": idle, "stops": stops, "moves": first}
        try:
            print(run(servers, second, directory, options.seed, options.seconds, options.kills, options.record))
        except ChaosError as error:
            print(f"FAILED: {error}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
