"""What is no rate: the time from a commit to the consumer, and that of ``import canal``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.contestants import PROMPT, ROOT, Absent, Contestant
from benchmarks.loads import LOADS, Load, Log, end_of_log
from benchmarks.race import Race, WrongAnswer, beside_server, finish, job_of, judge, start, wait_for_reader
from canal.testing.servers import ThrowawayServer

_IMPORT = "import time; t = time.process_time(); import canal; print(time.process_time() - t)"


def import_seconds(times: int = 6) -> list[float]:
    """CPU seconds of ``import canal`` in fresh processes; the first one, which fills caches, is left out."""
    found = [float(subprocess.check_output([sys.executable, "-c", _IMPORT], text=True, cwd=ROOT)) for _ in range(times)]
    return sorted(found[1:])


def latencies(
    server: ThrowawayServer, contestants: list[Contestant], rates: list[int], seconds: float, race: Race
) -> None:
    """Of single-row inserts at a steady rate; the first half of each run warms up and is not counted."""
    for rate in rates:
        for contestant in contestants:
            if contestant.name not in PROMPT or contestant.name in race.absent:
                continue
            rows, key = max(20, int(rate * seconds)), f"L{len(race.latencies)}_{rate}"
            load = Load(key, "latency", rows, statement=1, columns=LOADS["B"].columns)
            log = _table(server, load)
            try:
                micros = _one(server, contestant, load, log, rate)
            except Absent as reason:
                race.absent[contestant.name] = str(reason)
                print(f"  ABSENT  {contestant.name}: {reason}", flush=True)
                continue
            except WrongAnswer as reason:
                race.refuse(contestant, server, log, reason)
                continue
            line = {"server": server.kind, "contestant": contestant.name, "rate": rate, "count": len(micros)}
            line |= {name: quantile(micros, part) for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))}
            print(
                f"  latency at {rate}/s {contestant.name:26} p50 {line['p50']:8.0f} µs, p99 {line['p99']:8.0f}, p99.9"
                f" {line['p99.9']:8.0f}", flush=True,
            )  # fmt: skip
            race.latencies.append(line)


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def _table(server: ThrowawayServer, load: Load) -> Log:
    server.query(f"CREATE DATABASE {load.schema}")
    for statement in load.tables_sql():
        server.query(statement)
    journal, offset = end_of_log(server)
    return Log(load, load.rows, journal, offset, 0, "")


def _one(server: ThrowawayServer, contestant: Contestant, load: Load, log: Log, rate: int) -> list[float]:
    """Microseconds from the return of each commit to the consumer, of the second half; below 0: it had the row before."""
    with tempfile.TemporaryDirectory() as name:
        directory, before = Path(name), int(server.query("SELECT CONNECTION_ID()")[0][0])
        seen = directory / "seen"
        process = start(contestant, job_of(contestant, server, log, load.rows, False, str(seen)), directory)
        try:
            wait_for_reader(server, process, before)
            with beside_server():
                committed = _commit(server, load, rate)
            judge(load, finish(process, directory, 60.0), load.rows, check=False)
        finally:
            process.kill()
            process.wait()
        at = dict(tuple(map(int, line.split())) for line in seen.read_text().splitlines())
    return [(at[n] - committed[n]) / 1000 for n in committed if n > load.rows // 2]


def _commit(server: ThrowawayServer, load: Load, rate: int) -> dict[int, int]:
    """Insert row by row; gives when each commit returned."""
    committed, begun = {}, time.monotonic()
    with server.connect() as connection, connection.cursor() as cursor:
        for n, statement in enumerate(load.statements(load.rows), 1):
            time.sleep(max(0.0, begun + n / rate - time.monotonic()))
            cursor.execute(statement)
            committed[n] = time.time_ns()
    return committed
