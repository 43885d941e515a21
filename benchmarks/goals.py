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


_ROWS = "an object for each row image, and the reader's loop over its values; `tuples` has neither"
_OBJECTS = "for each row three entries and a transaction are made and freed, as objects"
_BATCHES = "eleven values of a row are measured, checked and copied in 100 ns; a message takes some 30 µs beside"
_SPREAD = "each transaction that waits has 0.8 KiB of memory, which the kernel finds and clears: 0.6 of the difference"
_SYNC = "each ack waits for one fdatasync, which costs the kernel more than 1,000 rows cost the reader"
_LOCK = "the interpreter's lock goes from thread to thread; a free-threaded Python has none"
_SHARED = "threads that make objects share the memory that holds what each of these refers to"
_VALUES = "each of eleven values of a row is an object, made and freed"
_CHECKS = "each event is checked (length, position, checksum), also of tables that are not wanted"
_TEXTS = "MariaDB sends the text of each statement too, which the others do not ask for"
_THREADS = (
    "from receiving to handing out the interpreter takes 50 µs and a second thread, at 100 tx/s 220 µs, as no cache holds "
    "its code by then; the others call a handler in the thread that reads"
)

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


def verdicts(result: Run, server: str) -> Iterator[tuple[str, str, str, str]]:
    """Of each goal: what, the goal, what was found, and whether it is reached."""
    runs = [run for run in result["runs"] if run["server"] == server]
    for goal in GOALS:
        for load in goal.loads:
            bar = f"{'at most' if goal.most else 'at least'} {goal.bar:g} ×"
            found = ratios(goal, load, runs)
            if not found:
                yield f"{load}: {goal}", bar, "", "not measured"
                continue
            median = statistics.median(found)
            span = f"{median:.2f} × ({min(found):.2f} … {max(found):.2f})"
            said = verdict(median, goal.bar, goal.most)
            whys = [goal.why, _TEXTS * (server == "mariadb" and not goal.wall)]
            why = "; ".join(filter(None, whys))
            yield f"{load}: {goal}", bar, span, said + f" ({why})" * (said != "reached" and why != "")
    peaks = [run["peak_mib"] - run["idle_mib"] for run in runs if (run["load"], run["contestant"]) == ("G", "canal undecoded")]
    if peaks:
        most = max(peaks)
        yield "G: most memory over idle, undecoded", f"at most {MEMORY:g} MiB", f"{most:.0f} MiB", verdict(most, MEMORY, True)
    yield from _latencies(result, server)
    if not result["import"]:
        yield "CPU time of `import canal`", f"below {IMPORT * 1000:g} ms", "", "not measured"
    else:
        median = statistics.median(result["import"])
        bar = f"below {IMPORT * 1000:g} ms"
        yield "CPU time of `import canal`", bar, f"{median * 1000:.0f} ms", verdict(median, IMPORT, True)


def _latencies(result: Run, server: str) -> Iterator[tuple[str, str, str, str]]:
    lines = [line for line in result["latency"] if line["server"] == server]
    for rate in sorted({line["rate"] for line in lines}):
        by = {line["contestant"]: line for line in lines if line["rate"] == rate}
        others = [by[name] for name in ("go-mysql sync handler", "connector-java") if name in by]
        if "canal rows" not in by or not others:
            continue
        for part in ("p50", "p99"):
            behind = by["canal rows"][part] - min(line[part] for line in others)
            what = f"commit to consumer at {rate:,} tx/s, {part}, behind the quicker of go-mysql and connector-java"
            said = verdict(behind, LATENCY, True)
            yield what, f"at most {LATENCY:g} µs", f"{behind:.0f} µs", said + f" ({_THREADS})" * (said != "reached")


def verdict(found: float, bar: float, most: bool) -> str:
    if found <= bar if most else found >= bar:
        return "reached"
    return f"missed: {found / bar:.2f} of it" if not most else f"missed: {found / bar:.2f} times it"
