"""What is no rate: the time from a commit to the consumer, also over cuts of the connection, and that of ``import canal``."""

from __future__ import annotations

import bisect
import itertools
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contestants import PROMPT, ROOT, Contestant
from benchmarks.loads import LOADS, Load, Log, end_of_log
from benchmarks.race import Race, WrongAnswer, beside_server, finish, job_of, judge, start, wait_for_reader
from canal.testing.servers import ThrowawayServer

_runs = itertools.count()
_IMPORT = "import time; t = time.process_time(); import canal; print(time.process_time() - t)"


def import_seconds(times: int = 6) -> list[float]:
    """CPU seconds of ``import canal`` in fresh processes; the first one, which fills caches, is left out."""
    found = [float(subprocess.check_output([sys.executable, "-c", _IMPORT], text=True, cwd=ROOT)) for _ in range(times)]
    return sorted(found[1:])


#: Commits a second while connections are cut.
CUT_RATE = 200


def latencies(server: ThrowawayServer, contestants: list[Contestant], rates: list[int], seconds: float, race: Race) -> None:
    """Of single-row inserts at a steady rate; the first half of each run warms up and is not counted."""
    for rate in rates:
        for contestant in prompt(contestants, race):
            taken = follow(server, contestant, rate, max(20, int(rate * seconds)), race)
            if taken is None:
                continue
            micros = [(taken.seen[n] - at) / 1000 for n, at in taken.committed.items() if n > len(taken.committed) // 2]
            line = {"server": server.kind, "contestant": contestant.name, "rate": rate, "count": len(micros)}
            line |= {name: quantile(micros, part) for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))}
            print(
                f"  latency at {rate}/s {contestant.name:26} p50 {line['p50']:8.0f} µs, p99 {line['p99']:8.0f}, p99.9"
                f" {line['p99.9']:8.0f}",
                flush=True,
            )
            race.latencies.append(line)


def recoveries(server: ThrowawayServer, contestants: list[Contestant], seconds: float, race: Race) -> None:
    """Of single-row inserts at a steady rate, while the server kills the connection that it sends its log over, five times.

    What counts is the row that comes latest of those between one cut and the next: how long it took to the consumer.
    """
    for contestant in prompt(contestants, race):
        taken = follow(server, contestant, CUT_RATE, max(100, int(CUT_RATE * seconds)), race, cuts=5)
        if taken is None:
            continue
        if not taken.cuts:
            race.refuse(contestant, server, taken.log, WrongAnswer("its connection could not be cut"))
            continue
        waits = taken.longest_waits()
        line = {"server": server.kind, "contestant": contestant.name, "millis": waits, "twice": taken.twice}
        shown = " ".join(f"{wait:.0f}" for wait in waits)
        print(f"  cuts of {contestant.name:26} {shown} ms, {taken.twice} rows twice", flush=True)
        race.recoveries.append(line)


def prompt(contestants: list[Contestant], race: Race) -> list[Contestant]:
    return [one for one in contestants if one.name in PROMPT and one.name not in race.absent]


@dataclass
class Taken:
    """When each row was committed and when a contestant had it first, in nanoseconds, and when its connection was cut."""

    log: Log
    committed: dict[int, int]
    seen: dict[int, int]
    twice: int
    cuts: list[int]

    def longest_waits(self) -> list[float]:
        """Of each cut: the longest that a row took which was committed between it and the next one, in milliseconds."""
        waits = [0.0] * len(self.cuts)
        for n, at in self.committed.items():
            cut = bisect.bisect(self.cuts, at) - 1
            if cut >= 0:
                waits[cut] = max(waits[cut], (self.seen[n] - at) / 1e6)
        return waits


def follow(server: ThrowawayServer, contestant: Contestant, rate: int, rows: int, race: Race, cuts: int = 0) -> Taken | None:
    """Single-row inserts, and a contestant that reads along; None where it is absent, or refused since rows are missing."""
    load = Load(f"L{next(_runs)}_{rate}", "latency", rows, statement=1, columns=LOADS["B"].columns)
    log = _table(server, load)
    with race.noted(contestant, server, log):
        return _follow(server, contestant, log, rate, cuts)
    return None


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def _table(server: ThrowawayServer, load: Load) -> Log:
    server.query(f"CREATE DATABASE {load.schema}")
    for statement in load.tables_sql():
        server.query(statement)
    journal, offset = end_of_log(server)
    return Log(load, load.rows, journal, offset, 0, "")


def _follow(server: ThrowawayServer, contestant: Contestant, log: Log, rate: int, cuts: int) -> Taken:
    load, found = log.load, list[int]()
    with tempfile.TemporaryDirectory() as name:
        directory, before = Path(name), int(server.query("SELECT CONNECTION_ID()")[0][0])
        seen = directory / "seen"
        job = job_of(contestant, server, log, load.rows, False, str(seen)) | {"cuts": cuts > 0}
        process = start(contestant, job, directory)
        try:
            wait_for_reader(server, process, before)
            with beside_server():
                cutter = threading.Thread(target=_cut, args=(server, before, load.rows / rate / (cuts + 1), cuts, found))
                cutter.start()
                committed = _commit(server, load, rate)
                cutter.join()
            result = finish(process, directory, 120.0)
        finally:
            process.kill()
            process.wait()
        lines = [(int(id), int(at)) for id, at in map(str.split, seen.read_text().splitlines())]
    return judged(log, result, committed, lines, found)


def judged(log: Log, result: dict[str, Any], committed: dict[int, int], lines: list[tuple[int, int]], cuts: list[int]) -> Taken:
    """Of what a contestant noted: each row's id, and when it had it. Raises WrongAnswer where a row never came."""
    seen = dict(reversed(lines))  # where a row came twice, the first time counts
    twice = len(lines) - len(seen)
    if not twice:
        judge(log.load, result, log.load.rows, check=False)
    # It counts the rows that come twice, and so it ends before as many others.
    missing = sorted(id for id in committed.keys() - seen.keys() if id <= log.load.rows - twice)
    if missing:
        raise WrongAnswer(f"{len(missing)} rows of {log.load.rows} never came, the first is {missing[0]}")
    return Taken(log, {id: at for id, at in committed.items() if id in seen}, seen, twice, cuts)


def _cut(server: ThrowawayServer, behind: int, pause: float, times: int, found: list[int]) -> None:
    """Kill each dump of a connection behind number ``behind``, after each pause; tells when in ``found``."""
    for _ in range(times):
        time.sleep(pause)
        dumps = [line[0] for line in server.query("SHOW PROCESSLIST") if "Binlog Dump" in (line[4] or "") and line[0] > behind]
        if dumps:
            found.append(time.time_ns())
        for dump in dumps:
            server.query(f"KILL {dump}")


def _commit(server: ThrowawayServer, load: Load, rate: int) -> dict[int, int]:
    """Insert row by row; gives when each commit returned."""
    committed, begun = {}, time.monotonic()
    with server.connect() as connection, connection.cursor() as cursor:
        for n, statement in enumerate(load.statements(load.rows), 1):
            time.sleep(max(0.0, begun + n / rate - time.monotonic()))
            cursor.execute(statement)
            committed[n] = time.time_ns()
    return committed
