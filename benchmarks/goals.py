"""What is to be reached: ratios of one run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Run = dict[str, Any]


@dataclass(frozen=True)
class Goal:
    """A ratio on each of some loads: theirs over ours, at least ``bar``; with ``most`` ours over theirs, at most ``bar``.

    It is of CPU seconds a row over the whole run; of theirs over the second half (``warm``), or of both (``steady``:
    without the connection). With ``wall`` of seconds.
    """

    loads: str
    ours: str
    theirs: str
    bar: float
    warm: bool = False
    steady: bool = False
    most: bool = False
    wall: bool = False
    why: str = ""
    """Where it is missed: what the profile shows."""

    def __str__(self) -> str:
        how = {", warm half": self.warm, ", second half of both": self.steady, ", by the clock": self.wall}
        return f"{self.ours} against {self.theirs}" + "".join(word for word, holds in how.items() if holds)


_ROWS = "An object per row image, and a Python loop over its values. `tuples` avoids both."
_OBJECTS = "Each single-row transaction creates and frees three entries and a transaction."
_BATCHES = "Measuring, checking and copying eleven values takes 100 ns per row; a message takes about 30 µs."
_SPREAD = "Each waiting transaction uses 0.8 KiB of memory, which the kernel has to clear: 0.6 of the difference."
_SYNC = "Each ack waits for one fdatasync, which costs more than reading 1,000 rows."
_LOCK = "The threads wait for the GIL."
_SHARED = "The threads share reference counts of common objects."
_VALUES = "Each of eleven values per row is a Python object."
_CHECKS = "Every event is verified (length, position, checksum), also of excluded tables."
_THREADS = (
    "The interpreter and a second thread take 50 µs per message, 220 µs at 100 tx/s with cold caches. "
    "The others call a handler on the reading thread."
)
#: Why MariaDB misses more of them.
TEXTS = "MariaDB also sends the text of each statement. The other readers do not request it."

GOALS = (
    Goal("A", "canal rows", "mysql-replication", 75, why=_ROWS),
    Goal("A", "canal rows", "connector-java", 1.35, warm=True, why=_ROWS),
    Goal("A", "canal rows", "go-mysql sync handler", 3, why=_ROWS),
    Goal("A", "canal tuples", "mysql-replication", 95, why=_VALUES),
    Goal("A", "canal tuples", "connector-java", 1.75, warm=True, why=_VALUES),
    Goal("A", "canal tuples", "go-mysql sync handler", 4, why=_VALUES),
    Goal("BC", "canal rows", "mysql-replication", 120, why=_OBJECTS),
    Goal("BC", "canal rows", "go-mysql sync handler", 2.5, why=_OBJECTS),
    Goal("BC", "canal rows", "connector-java", 4.5, warm=True, why=_OBJECTS),
    Goal("A", "canal Arrow", "mysql-replication", 150, why=_BATCHES),
    Goal("BC", "canal Arrow", "mysql-replication", 120, why=_OBJECTS),
    Goal("A", "canal undecoded", "drain", 0.8, steady=True, why=_CHECKS),
    Goal("B", "canal undecoded", "drain", 0.6, steady=True, why=_OBJECTS),
    Goal("F", "canal undecoded", "drain", 0.9, steady=True, why=_CHECKS),
    Goal("B", "canal undecoded, lagging", "canal undecoded", 1.5, most=True, why=_SPREAD),
    Goal("A", "canal undecoded, FileMeta", "canal undecoded", 1.2, steady=True, most=True, why=_SYNC),
    Goal("A", "canal rows", "canal (Java)", 8, warm=True),
    Goal("BC", "canal rows", "canal (Java)", 15, warm=True, why=_OBJECTS),
    Goal("A", "canal Arrow, file, 2 threads", "canal Arrow, file", 1.7, wall=True, why=_LOCK),
    *(
        Goal("A", f"canal {name}, free-threaded, 2 threads", f"canal {name}, free-threaded", 1.7, wall=True, why=_SHARED)
        for name in ("rows", "tuples", "Arrow")
    ),
    Goal("ABC", "canal rows, interpreted", "mysql-replication", 1),
)
#: MiB of memory over idle during load G: the store's budget and 64 more.
MEMORY = 128.0
#: Microseconds behind the quicker of go-mysql and connector-java, at p50 and p99.
LATENCY = 20.0
IMPORT = 0.1


def per_row(run: Run, warm: bool = False, wall: bool = False) -> float:
    """Seconds a row: of CPU or by the clock, of the whole run or its second half."""
    total, half = ("seconds", "half_seconds") if wall else ("cpu_seconds", "half_cpu")
    if not warm:
        return float(run[total]) / run["rows"]
    return float(run[total] - run[half]) / max(1, run["rows"] - run["half_rows"])


def ratios(goal: Goal, load: str, runs: list[Run]) -> list[float]:
    """Of each round that both have run."""
    ours, theirs = (
        {run["round"]: run for run in runs if (run["load"], run["contestant"]) == (load, name)}
        for name in (goal.ours, goal.theirs)
    )
    found = []
    for turn in sorted(ours.keys() & theirs.keys()):
        ratio = per_row(theirs[turn], goal.warm or goal.steady, goal.wall) / per_row(ours[turn], goal.steady, goal.wall)
        found.append(1 / ratio if goal.most else ratio)
    return found


@dataclass(frozen=True)
class Verdict:
    """A goal, the value found, the outcome, and why the goal is missed."""

    measure: str
    goal: str
    found: str
    outcome: str
    why: str = ""


def verdicts(result: Run, server: str) -> Iterator[Verdict]:
    """Yield the verdict of each goal."""
    runs = [run for run in result["runs"] if run["server"] == server]
    for goal in GOALS:
        for load in goal.loads:
            bar = f"{'at most' if goal.most else 'at least'} {goal.bar:g} ×"
            found = ratios(goal, load, runs)
            if not found:
                yield Verdict(f"{load}: {goal}", bar, "", "not measured")
                continue
            median = statistics.median(found)
            span = f"{median:.2f} × ({min(found):.2f} … {max(found):.2f})"
            yield Verdict(f"{load}: {goal}", bar, span, outcome(median, goal.bar, goal.most), goal.why)
    peaks = [run["peak_mib"] - run["idle_mib"] for run in runs if (run["load"], run["contestant"]) == ("G", "canal undecoded")]
    if peaks:
        most = max(peaks)
        found_most = outcome(most, MEMORY, True)
        yield Verdict("G: peak memory above idle, undecoded", f"at most {MEMORY:g} MiB", f"{most:.0f} MiB", found_most)
    yield from _latencies(result, server)
    if not result["import"]:
        yield Verdict("CPU time of `import canal`", f"below {IMPORT * 1000:g} ms", "", "not measured")
    else:
        median = statistics.median(result["import"])
        bar = f"below {IMPORT * 1000:g} ms"
        yield Verdict("CPU time of `import canal`", bar, f"{median * 1000:.0f} ms", outcome(median, IMPORT, True))


def _latencies(result: Run, server: str) -> Iterator[Verdict]:
    lines = [line for line in result["latency"] if line["server"] == server]
    for rate in sorted({line["rate"] for line in lines}):
        by = {line["contestant"]: line for line in lines if line["rate"] == rate}
        others = [by[name] for name in ("go-mysql sync handler", "connector-java") if name in by]
        if "canal rows" not in by or not others:
            continue
        for part in ("p50", "p99"):
            behind = by["canal rows"][part] - min(line[part] for line in others)
            measure = f"latency at {rate:,} tx/s, {part}, above the faster of go-mysql and connector-java"
            bar = f"at most {LATENCY:g} µs"
            yield Verdict(measure, bar, f"{behind:.0f} µs", outcome(behind, LATENCY, True), _THREADS)


def outcome(found: float, bar: float, most: bool) -> str:
    if found <= bar if most else found >= bar:
        return "reached"
    return f"missed: {found / bar:.2f} of the goal"
