"""Keeps what fault runs found, and makes docs/reliability.md of it.

    python -m tests.programs.reliability

Runs add to tests/reliability.jsonl what they found, good or bad: a line of JSON each. Nothing is in the page that is not there.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOUND: Final = ROOT / "tests/reliability.jsonl"
PAGE: Final = ROOT / "docs/reliability.md"
_PIPED: Final = ("kafka", "redis", "postgresql", "opensearch")


def write_result(path: Path, figures: dict[str, Any]) -> None:
    """Add what one run has found, and where it ran."""
    where = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[2], 1),
    }
    line = json.dumps(where | figures) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def page(results: list[dict[str, Any]]) -> str:
    """The page's text."""
    runs = [one for one in results if one["kind"] == "high availability"]
    lines = [
        "# How reliable it was found to be",
        "",
        "`make figures` makes this page of tests/reliability.jsonl, to which fault runs add what they found, good or bad:",
        "`python -m tests.programs.ha_chaos --faults 1000 --record tests/reliability.jsonl`. Nothing here is written by hand.",
        "",
        "## High availability",
        "",
        "Three processes embed one destination, on three ZooKeepers and a server under load, and fail one way after the other.",
        "A batch counts as late by when it arrived. [testing.md](testing.md) tells how a run is judged.",
        "",
        "| run | faults | turns | batches | changes | acks accepted, refused, unanswered | stops between two steps, at how many "
        "| compared with what was committed | load of the machine | wrong |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in runs:
        acks = f"{one['accepted']:,}, {one['refused']:,}, {one['doubtful']:,}"
        lines.append(
            f"| {one['date']} | {sum(one['faults'].values()):,} | {one['epochs']:,} | {one['batches']:,} | {one['changes']:,} "
            f"| {acks} "
            f"| {one['held']:,}, {one['steps']:,} | {'yes' if one['compared'] else 'no, it was cut short'} | {one['load']} "
            f"| {len(one['wrong'])} |"
        )
    wrong = [(one["date"], text) for one in runs for text in one["wrong"]]
    lines += ["", *(f"* {date}: {text}" for date, text in wrong), ""] if wrong else [""]
    last = max((number for number, one in enumerate(runs) if one["wrong"]), default=-1)
    since = [(sum(one["faults"].values()), one["compared"]) for one in runs[last + 1 :]]
    compared, cut = (sum(faults for faults, is_whole in since if is_whole is wanted) for wanted in (True, False))
    lines += [
        f"Since a run last found something wrong there were {compared:,} faults in runs that were compared with what was "
        f"committed, and {cut:,} in runs that were cut short.",
        "",
    ]
    first = runs[0] if runs else {"session": 0, "takeover": 0}
    lines += [
        f"Seconds from the owner's fault to the first batch of the next owner (session {first['session']} s, takeover_delay "
        f"{first['takeover']} s, on {_machines(runs)}):",
        "",
        *_table("the owner was", _merged(runs, "waits")),
        "",
        "Seconds from the end of a fault until acks are accepted again:",
        "",
        *_table("fault", _merged(runs, "mended")),
        "",
        *_destinations([one for one in results if one["kind"] == "destinations"]),
        "",
        *_pipes([one for one in results if one["kind"] == "pipes"]),
        "",
        *_groups([one for one in results if one["kind"] == "group"]),
        "",
        *_spark(results),
    ]
    return "\n".join(lines) + "\n"


def _destinations(runs: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Many destinations in one process"
    yield ""
    yield "Destinations with `ha` and a shared fake source start together: seconds until all are active, and their cost."
    yield "`python -m tests.programs.ha_many 100 400 1000 --record tests/reliability.jsonl`"
    yield ""
    yield (
        "| run | destinations | seconds | threads | threads besides one per parser | ZooKeeper connections | descriptors | MB "
        "| load of the machine |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in runs:
        yield (
            f"| {one['date']} | {one['count']:,} | {one['seconds']:.1f} | {one['threads']:,} | {one['shared']} "
            f"| {one['sessions']} | {one['files']} | {one['memory']} | {one['load']} |"
        )


def _pipes(runs: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Pipes"
    yield ""
    yield "Four clients of one Instance follow a server under load into Kafka, Redis, PostgreSQL and OpenSearch, each by"
    yield "`canal.pipe`; the process, the server and each target are killed (SIGKILL) in turn:"
    yield "`python -m tests.programs.pipe_chaos --record tests/reliability.jsonl`. At the end rows are compared with the"
    yield "server's, and Kafka's messages with what was committed: each once, in order. Meanwhile readers of PostgreSQL and"
    yield "Redis look whether they see half a transaction."
    yield ""
    yield (
        "| run | server | seconds | kills | changes in Kafka | commits into Kafka, Redis, PostgreSQL, OpenSearch "
        "| attempts that failed | looks | wrong |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in runs:
        commits = ", ".join(f"{one['counts'].get(f'{name} commits', 0):,}" for name in _PIPED)
        failures = sum(one["counts"].get(f"{name} failures", 0) for name in _PIPED)
        kills = ", ".join(f"{count} {kind}" for kind, count in one["kills"].items())
        yield (
            f"| {one['date']} | {one['server'].partition('-')[0]} | {one['seconds']:,} | {kills} | {one['changes']:,} "
            f"| {commits} | {failures:,} | {one['reads']:,} | {len(one['wrong'])} |"
        )
    wrong = [f"* {one['date']}: {text}" for one in runs for text in one["wrong"]]
    yield from ["", *wrong] if wrong else []


def _groups(runs: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Several sources"
    yield ""
    yield "A `GroupParser` merges three servers into one store by time, while the process is killed (SIGKILL): one of them"
    yield "has changes at the beginning and at the end alone, one is stopped (SIGSTOP) for some seconds time and again, of one"
    yield "the server is killed and its standby read: `python -m tests.programs.group_chaos --record tests/reliability.jsonl`."
    yield "At the end what came of each is compared with what was committed there, and in each life the times of transactions"
    yield "up to the first that was late are in their order."
    yield ""
    yield "| run | idles, stops, moves | seconds | kills | changes | transactions before a late one | load | wrong |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in runs:
        servers = ", ".join(one["servers"][name].partition("-")[0] for name in ("idle", "stops", "moves"))
        yield (
            f"| {one['date']} | {servers} | {one['seconds']:,} | {one['kills']} | {one['changes']:,} | {one['in order']:,} "
            f"| {one['load']} | {len(one['wrong'])} |"
        )
    wrong = [f"* {one['date']}: {text}" for one in runs for text in one["wrong"]]
    yield from ["", *wrong] if wrong else []


def _spark(results: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Spark"
    yield ""
    yield "Runs of `CANAL_SOAK=full CANAL_RECORD=tests/reliability.jsonl python -m pytest tests/spark`. Random DDL (columns"
    yield "added, dropped, renamed, wider and narrower, tables swapped, emptied and made anew, partitions) and rows, while who"
    yield "applies them dies before and after commits; after each stretch the target is compared with the server's table. An"
    yield "error that ended it was mended by just what it said."
    yield ""
    yield "| run | server | into | by | stretches | statements | deaths | errors that were mended | wrong |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in (one for one in results if one["kind"] == "spark ddl"):
        mended = ", ".join(f"{count} {name}" for name, count in one["mended"].items())
        yield (
            f"| {one['date']} | {one['server'].partition('-')[0]} | {one['target']} | {one['way']} "
            f"| {one['stretches']}{_cut(one)} | {one['statements']:,} | {one['kills']} | {mended} | {len(one['wrong'])} |"
        )
    yield ""
    yield "Batches of an upsert each, with `Upkeep`, and what there was behind each thousand of them (without the hundred of"
    yield "Iceberg's files that hold metadata; KB of metadata are those of what a reader opens first):"
    yield ""
    yield "| run | into | batches | every, keep | seconds | files | KB | KB of metadata | wrong |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in (one for one in results if one["kind"] == "spark upkeep"):
        files, whole, metadata = zip(*one["tenths"])
        sizes = " | ".join(", ".join(map(str, found)) for found in (files, [n >> 10 for n in whole], [n >> 10 for n in metadata]))
        yield (
            f"| {one['date']} | {one['target']} | {one['batches']:,}{_cut(one)} | {one['every']}, {one['keep']} s "
            f"| {one['seconds']:,} | {sizes} | {len(one['wrong'])} |"
        )
    yield ""
    yield "Many tables and many queries, and what their processes took of memory at most, together:"
    yield ""
    yield "| run | server | what | processes | MB | wrong |"
    yield "|---|---|---|---|---|---|"
    for one in (one for one in results if one["kind"] == "spark many"):
        yield (
            f"| {one['date']} | {one['server'].partition('-')[0]} | {one['what']} | {one['processes']} "
            f"| {one['bytes'] >> 20:,} | {len(one['wrong'])} |"
        )
    wrong = [f"* {one['date']}: {text}" for one in results if one["kind"].startswith("spark") for text in one["wrong"]]
    yield from ["", *wrong] if wrong else []


def _cut(run: dict[str, Any]) -> str:
    return ", cut short" if run.get("is_cut") else ""


def _machines(runs: list[dict[str, Any]]) -> str:
    return ", ".join(sorted({f"Python {one['python']} with {one['processors']} processors" for one in runs}))


def _merged(runs: list[dict[str, Any]], name: str) -> dict[str, list[float]]:
    merged: dict[str, list[float]] = {}
    for one in runs:
        for kind, waits in one[name].items():
            merged.setdefault(kind, []).extend(waits)
    return merged


def _table(first: str, waits: dict[str, list[float]]) -> Iterator[str]:
    yield f"| {first} | times | median | p99 | longest |"
    yield "|---|---|---|---|---|"
    for kind in sorted(waits, key=lambda kind: -len(waits[kind])):
        ordered = sorted(waits[kind])
        p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
        yield f"| {kind} | {len(ordered)} | {statistics.median(ordered):.2f} | {p99:.2f} | {ordered[-1]:.2f} |"


def read_results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FOUND.read_text().splitlines()]


if __name__ == "__main__":
    PAGE.write_text(page(read_results()))
