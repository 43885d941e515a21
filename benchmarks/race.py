"""Contestants in turn on one load, each in a process of its own on the last core, the server on the first one."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.contestants import ROOT, Absent, Contestant
from benchmarks.loads import Load, Log
from canal.testing.servers import ThrowawayServer

#: Rows whose every value is compared before anything is timed.
CHECKED = 600
#: The fewest rows that a slow contestant reads.
LEAST = 1_000
#: Seconds after which a contestant is given up.
LIMIT = 120.0
_server_ids = itertools.count(50_001)


class WrongAnswer(Exception):
    """A contestant did not come to the rows that the server wrote, or to no end."""


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def pin(server: ThrowawayServer) -> None:
    """Keep the server on the first core."""
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores()[:1])


@contextmanager
def beside_server() -> Iterator[None]:
    """Keep this thread on the server's core: who writes must not take the contestant's from it."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores()[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


def job_of(
    contestant: Contestant, server: ThrowawayServer, log: Log, rows: int, check: bool, latencies: str = ""
) -> dict[str, Any]:
    program = server.installation.program("mysqlbinlog") if server.kind == "mysql" else ["mariadb-binlog"]
    job = {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "flavor": server.kind,
        "journal": log.journal,
        "offset": log.offset,
        "bytes": log.bytes,
        "file": log.file,
        "rows": rows,
        "schema": log.load.schema,
        "kinds": ",".join(log.load.kinds),
        "update": log.load.update,
        "check": check,
        "latencies": latencies,
        "batch": 1000,
        "server_id": next(_server_ids),
        "mysqlbinlog": program,
        "from_file": False,
        "durable": False,
        "lag": False,
        "decode_threads": 0,
        "cuts": False,
        "gtids": log.gtids,
    }
    return job | dict(contestant.job)


def start(contestant: Contestant, job: dict[str, Any], directory: Path) -> subprocess.Popen[str]:
    """Run a contestant; ``finish`` gives what it printed. Raises Absent where it cannot be had."""
    command = contestant.command()
    file = directory / "job.json"
    file.write_text(json.dumps(job))
    with open(directory / "errors", "w") as errors:
        process = subprocess.Popen(
            [*command, str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "", **contestant.environment},
        )
    os.sched_setaffinity(process.pid, cores()[-contestant.cores :])
    return process


def finish(process: subprocess.Popen[str], directory: Path, limit: float = LIMIT) -> dict[str, Any]:
    """What a contestant measured. Raises WrongAnswer when it fails or does not end, Absent when it says so."""
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise WrongAnswer(f"no end within {limit:g} s") from None
    except BaseException:
        process.kill()
        raise
    errors = (directory / "errors").read_text(errors="replace").strip()
    if "ABSENT " in errors:
        raise Absent(errors.partition("ABSENT ")[2])
    for line in output.splitlines():
        if line.startswith("RESULT "):
            result: dict[str, Any] = json.loads(line[7:])
            return result
    raise WrongAnswer(f"it failed: {last_words(errors)}")


def last_words(errors: str) -> str:
    """Of a traceback what was raised, of other output its end; without where this checkout is."""
    if "Traceback (most recent call last)" in errors:
        errors = errors.splitlines()[-1]
    return errors.replace(f"{ROOT}/", "")[-400:]


def judge(load: Load, result: dict[str, Any], rows: int, check: bool) -> None:
    """Refuse a wrong answer; a reader of whole batches may have read more rows than it was asked for."""
    found = result["rows"]
    if found < rows:
        raise WrongAnswer(f"{found} rows of {rows}")
    if result["ids"] is None:  # it gives no values
        if found != rows and not check:
            raise WrongAnswer(f"{found} rows, not {rows}")
        return
    if result["ids"] != load.ids(found):
        raise WrongAnswer(f"the ids of {found} rows sum to {result['ids']}, not {load.ids(found)}")
    if check and result["checksum"] % (1 << 64) != load.checksum(found) % (1 << 64):
        raise WrongAnswer(f"another checksum over the values of {found} rows")


def run(contestant: Contestant, server: ThrowawayServer, log: Log, rows: int, check: bool = False) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        result = finish(start(contestant, job_of(contestant, server, log, rows, check), directory), directory)
    judge(log.load, result, rows, check)
    return result


def rows_of(contestant: Contestant, load: Load) -> int:
    whole = contestant.share == 1.0 or load.single
    return load.rows if whole else min(load.rows, max(LEAST, int(load.rows * contestant.share)))


class Race:
    """The results of one run of the suite: what was measured, who is absent, whose answer was refused."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self.latencies: list[dict[str, Any]] = []
        self.recoveries: list[dict[str, Any]] = []
        self.absent: dict[str, str] = {}
        self.refused: list[dict[str, str]] = []

    def check(self, contestants: Iterable[Contestant], server: ThrowawayServer, log: Log) -> list[Contestant]:
        """Those whose every value of the first rows is right; says of the others why they do not run."""
        fit = []
        for contestant in contestants:
            needs_all = contestant.reckons or contestant.job.get("lag")
            with self.noted(contestant, server, log):
                run(contestant, server, log, log.load.rows if needs_all else min(CHECKED, log.load.rows), check=True)
                fit.append(contestant)
        return fit

    @contextmanager
    def noted(self, contestant: Contestant, server: ThrowawayServer, log: Log) -> Iterator[None]:
        """A run, of which it is noted here that the contestant is absent, or that its answer is wrong."""
        try:
            yield
        except Absent as reason:
            self.absent[contestant.name] = str(reason)
            print(f"  ABSENT  {contestant.name}: {reason}", flush=True)
        except WrongAnswer as reason:
            self.refuse(contestant, server, log, reason)

    def refuse(self, contestant: Contestant, server: ThrowawayServer, log: Log, reason: Exception) -> None:
        self.refused.append({"server": server.kind, "load": log.load.key, "contestant": contestant.name, "reason": str(reason)})
        print(f"  REFUSED {contestant.name} on {log.load.key}: {reason}", flush=True)

    def rounds(self, contestants: list[Contestant], server: ThrowawayServer, log: Log, number: int) -> None:
        """Run each once a round, in an order that turns."""
        for turn in range(number):
            first = turn * 7 % max(1, len(contestants))
            for contestant in contestants[first:] + contestants[:first]:
                rows, load_average = rows_of(contestant, log.load), os.getloadavg()[0]
                try:
                    result = run(contestant, server, log, rows)
                except (WrongAnswer, Absent) as reason:
                    self.refuse(contestant, server, log, reason)
                    continue
                result |= {
                    "server": server.kind,
                    "load": log.load.key,
                    "contestant": contestant.name,
                    "round": turn,
                    "bytes_of_row": log.bytes / log.rows,
                    "load_average": load_average,
                }
                self.runs.append(result)
                micros = 1e6 * result["cpu_seconds"] / result["rows"]
                print(
                    f"  {turn} {log.load.key} {contestant.name:26} {result['rows']:9,} rows {micros:9.3f} µs of CPU a row"
                    f" {result['rows'] / result['seconds']:12,.0f} rows/s",
                    flush=True,
                )


def sized(load: Load, scale: float) -> Load:
    """A load of fewer rows and tables, in whole statements."""
    rows = max(2 * load.statement, LEAST, int(load.rows * scale) // load.statement * load.statement)
    return dataclasses.replace(load, rows=rows, tables=max(1, int(load.tables * min(1.0, scale))))


def wait_for_reader(server: ThrowawayServer, process: subprocess.Popen[str], before: int) -> None:
    """Until somebody has the log sent who connected behind connection number ``before``."""
    while not any("Binlog Dump" in (line[4] or "") and line[0] > before for line in server.query("SHOW PROCESSLIST")):
        if process.poll() is not None:
            raise WrongAnswer("it ended before a change was made")
        time.sleep(0.02)
