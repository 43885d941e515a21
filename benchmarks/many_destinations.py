"""Many destinations with high availability in one process: threads, sessions, memory, and how long a take-over takes.

    python -m benchmarks.many_destinations [DESTINATIONS] [--write]

Two processes have the same destinations in one ``canal.Server`` each, on a MariaDB and a ZooKeeper of their own. Each destination
follows one table. A row goes into every table; when all are acked the first process is killed by SIGKILL and another row into
every table. Each row that the second process is handed is noted with its time: none may be missing, and none that was acked may
come again. ``--write`` puts what was measured into docs/sizing.md.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Final

import canal
from canal.testing.servers import MariaDBServer, ThrowawayServer
from canal.testing.zookeeper import ZooKeeperServer

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs/sizing.md"
SESSION_TIMEOUT, TAKEOVER_DELAY = 10.0, 1.0
#: Seconds within which all must be done.
PATIENCE: Final = 600.0
_MARKS: Final = ("<!-- many destinations -->\n", "<!-- end of many destinations -->\n")


def serve(hosts: str, port: int, user: str, password: str, count: int) -> None:
    """In a process of its own: print each row as it comes, ``destination id``, after its ack; ``ready`` when all run."""
    source = canal.MySQLSource(host="127.0.0.1", port=port, user=user, password=password)
    ha = canal.ZooKeeper(hosts=hosts, session_timeout=SESSION_TIMEOUT, takeover_delay=TAKEOVER_DELAY)
    configs = [
        canal.InstanceConfig(destination=f"d{number}", filter=rf"shop\.t{number}", source=source, ha=ha)
        for number in range(count)
    ]
    server = canal.Server(configs)
    for number in range(count):
        server.instance(f"d{number}").subscribe(timeout=PATIENCE)
    print("ready", flush=True)
    threads = [threading.Thread(target=_consume, args=(server.instance(f"d{number}"),), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    sys.stdin.read()


def _consume(instance: canal.Instance) -> None:
    for message in instance.stream():
        ids = [row.after["id"] for entry in message.entries for row in entry.rows if row.after is not None]
        instance.ack(message.id)
        for one in ids:
            os.write(sys.stdout.fileno(), f"{instance.destination} {one}\n".encode())  # whole, beside those of other threads


class Process:
    """One that serves, and the rows that it printed, by their destinations, with their times."""

    def __init__(self, zookeeper: ZooKeeperServer, server: ThrowawayServer, count: int) -> None:
        self.begun = time.monotonic()
        self.cpu_at_ready = 0.0
        self.ready = 0.0
        self.rows: dict[tuple[str, int], float] = {}
        arguments = [zookeeper.hosts, str(server.port), server.user, server.password, str(count)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.many_destinations", "serve", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            if line == "ready\n":
                self.ready = time.monotonic()
                continue
            destination, number = line.split()
            if (destination, int(number)) in self.rows:
                raise SystemExit(f"row {number} of {destination} came twice")
            self.rows[destination, int(number)] = time.monotonic()

    def wait(self, done: object) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():  # type: ignore[operator]
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"a process did not come so far: {len(self.rows)} rows")
            time.sleep(0.05)

    def status(self, name: str) -> int:
        """A number of /proc/PID/status."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+)", text, re.M)
        assert found is not None
        return int(found[1])

    def cpu(self) -> float:
        """Seconds of all its threads."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sockets(self, port: int) -> int:
        """Connections to a port of this machine."""
        own = {os.readlink(one) for one in Path(f"/proc/{self._process.pid}/fd").iterdir() if one.is_symlink()}
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(f"socket:[{line[9]}]" in own and int(line[2].rpartition(":")[2], 16) == port for line in lines)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(count: int) -> dict[str, str]:
    options = "--binlog-row-metadata=FULL", f"--max-connections={4 * count + 50}"
    with MariaDBServer(*options) as server, ZooKeeperServer() as zookeeper:
        server.query("CREATE DATABASE shop")
        for number in range(count):
            server.query(f"CREATE TABLE shop.t{number} (id INT PRIMARY KEY)")
        first = Process(zookeeper, server, count)
        first.wait(lambda: first.ready)
        second = Process(zookeeper, server, count)
        try:
            _insert(server, count, 1)
            first.wait(lambda: len(first.rows) == count)
            time.sleep(3 * TAKEOVER_DELAY)  # until the second one stands by for all
            port = int(zookeeper.hosts.rpartition(":")[2])
            found = {
                "start until all follow their tables": f"{first.ready - first.begun:.1f} s",
                "threads, with one consumer for each": str(first.status("Threads")),
                "ZooKeeper sessions": str(first.sockets(port)),
                "connections to the server": str(first.sockets(server.port)),
                "memory (RSS)": f"{first.status('VmRSS') // 1024} MiB",
                "memory of the process that stands by": f"{second.status('VmRSS') // 1024} MiB",
            }
            spent = first.cpu(), second.cpu()
            time.sleep(10)
            found["CPU while nothing happens"] = (
                f"{(first.cpu() - spent[0]) * 10:.0f} % of a core; standing by {(second.cpu() - spent[1]) * 10:.0f} %"
            )
            first.kill()
            killed = time.monotonic()
            _insert(server, count, 2)
            second.wait(lambda: len(second.rows) == count)
            if {number for _, number in second.rows} != {2} or {number for _, number in first.rows} != {1}:
                raise SystemExit("rows that were acked came again")
            late = sorted(moment - killed for moment in second.rows.values())
            found["take-over after SIGKILL, until the first new row"] = (
                f"{late[0]:.1f} s the first, {statistics.median(late):.1f} s the median, {late[-1]:.1f} s the last"
            )
            return found
        finally:
            first.kill()
            second.kill()


def _insert(server: ThrowawayServer, count: int, number: int) -> None:
    with server.connect(database="shop", autocommit=True) as connection, connection.cursor() as cursor:
        for table in range(count):
            cursor.execute(f"INSERT INTO t{table} VALUES ({number})")


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        hosts, port, user, password, count = sys.argv[2:]
        serve(hosts, int(port), user, password, int(count))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("destinations", type=int, nargs="?", default=200)
    parser.add_argument("--write", action="store_true", help="put it into docs/sizing.md")
    given = parser.parse_args()
    found = measure(given.destinations)
    lines = [
        f"| {given.destinations} destinations with `ha` in one process, on two cores, session_timeout {SESSION_TIMEOUT:g} s, "
        f"takeover_delay {TAKEOVER_DELAY:g} s | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in found.items()),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if given.write:
        before, rest = PAGE.read_text().split(_MARKS[0])
        PAGE.write_text(before + _MARKS[0] + text + _MARKS[1] + rest.split(_MARKS[1])[1])


if __name__ == "__main__":
    main()
