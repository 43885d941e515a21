"""Many destinations with ``ha`` in one process: seconds until all are active, and what they cost.

    python -m tests.programs.ha_many 100 400 1000

Each count runs in a process of its own, on one fake source and a ZooKeeper that allows 60 connections per address.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import attrs

import canal
from canal.testing import FakeBinlog, ZooKeeperServer
from tests.programs.reliability import write_result


@attrs.frozen
class Cost:
    """What a number of active destinations costs one process.

    Attributes:
        shared: threads besides the parsers' own.
        memory: MB above those of a process without destinations.
    """

    count: int
    seconds: float
    threads: int
    shared: int
    sessions: int
    files: int
    memory: int

    def __str__(self) -> str:
        return (
            f"{self.count} destinations: active after {self.seconds:.1f} s, {self.threads} threads ({self.shared} besides "
            f"one per parser), {self.sessions} ZooKeeper connections, {self.files} descriptors, {self.memory} MB"
        )


def measure(hosts: str, count: int, patience: float) -> Cost:
    """Start so many destinations and wait until all are active and subscribed."""
    source = FakeBinlog()
    table = source.table("shop", "orders", "id INT PRIMARY KEY")
    ha = canal.ZooKeeper(hosts=hosts, root=f"/many-{count}")
    configs = [canal.InstanceConfig(destination=f"d{number}", source=source, start="earliest", ha=ha) for number in range(count)]
    before, began, most = _resident(), time.monotonic(), 0
    instances = [canal.Instance(config).start() for config in configs]
    try:
        for one in instances:
            while not one.wait_active(0.5):
                most = max(most, threading.active_count())
                if time.monotonic() > began + patience:
                    roles = Counter(one.role.value for one in instances)
                    raise SystemExit(f"not active after {patience:g} s: {dict(roles)}, {one.error}")
        most = max(most, threading.active_count())
        seconds = time.monotonic() - began
        for one in instances:
            one.subscribe()
        table.insert({"id": 1})
        assert all(one.get(10, timeout=30) for one in instances[:: max(count // 50, 1)])
        parsers = sum(thread.name.endswith("-parse") for thread in threading.enumerate())
        files = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_there(name)]
        return Cost(count, seconds, most, most - parsers, _connections(hosts), len(files), (_resident() - before) >> 20)
    finally:
        stopping = [threading.Thread(target=one.stop) for one in instances]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()


def _is_there(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


def _connections(hosts: str) -> int:
    """How many connections this process has to the port of ZooKeeper."""
    port = f"{int(hosts.rpartition(':')[2]):04X}"
    own = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_there(name)}
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(line[2].endswith(f":{port}") and f"socket:[{line[9]}]" in own for line in lines)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("counts", type=int, nargs="+", help="numbers of destinations")
    options.add_argument("--patience", type=float, default=600.0, help="seconds until all must be active")
    options.add_argument("--hosts", help="a ZooKeeper that runs; else one is started")
    options.add_argument("--record", type=Path, help="add what was found to this file, for docs/reliability.md")
    given = options.parse_args()
    if given.hosts:
        for count in given.counts:
            cost = measure(given.hosts, count, given.patience)
            print(cost, flush=True)
            if given.record is not None:
                write_result(given.record, {"kind": "destinations", **attrs.asdict(cost), "wrong": []})
        return
    with ZooKeeperServer("maxClientCnxns=60") as server:
        for count in given.counts:
            command = [sys.executable, "-m", "tests.programs.ha_many", str(count), "--hosts", server.hosts]
            record = [] if given.record is None else ["--record", str(given.record)]
            subprocess.run([*command, "--patience", str(given.patience), *record], check=True)


if __name__ == "__main__":
    main()
