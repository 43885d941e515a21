"""docs/benchmarks.md and its charts, of runs that were kept: ``python -m benchmarks.report FILE …`` (of one machine)."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import statistics
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import canal
from benchmarks import chart
from benchmarks.contestants import CONTESTANTS, PEERS, ROOT
from benchmarks.goals import per_row, verdicts
from benchmarks.loads import LOADS
from benchmarks.measures import CUT_RATE

DOCUMENT = ROOT / "docs" / "benchmarks.md"
CHARTS = ROOT / "docs" / "benchmarks"
#: Loads that get a chart.
_CHARTED = "ABC"
_HEAD = """\
# Benchmarks

Written by `python -m benchmarks --write` from what it measured; `make bench` runs everything. Servers write loads by plain SQL.
Each contestant reads the same log in a process of its own, in turn with the others: the server on the first core, the contestant
on the last. Before anything is timed each one's first rows are compared value by value (a checksum over all of them, both images
of an update), and in each timed run the number of rows and the sum of their ids. A wrong answer is refused.

CPU seconds per million rows are those of the contestant's whole process, all threads, from before it connects; the second half is
that of a run that has warmed up, which is what to compare a JVM by. Medians of the rounds, with the least and the most. A slow
contestant reads a part of the rows. The work is not equal: go-mysql gives DECIMAL and DATETIME as text and verifies no checksum
by default, connector-java gives times as numbers, both give ENUM as its number; canal for Python verifies each event's checksum.
Debezium is its embedded engine, whose records are Kafka Connect's, with ten times its queue and batches.
"canal" is canal for Python: `framing` cuts events out of the stream, `undecoded` is get and ack with rows counted, `rows`
`tuple(row.after)` of each row, `tuples` one call per entry, `columns` canal's texts, `pipe` is `canal.pipe` into a target that
writes nothing, as a log of changes or as tables; `file` reads the binlog file and not from the server.
"""

_CUTS = f"""\
Single-row inserts, {CUT_RATE} a second; five times the server kills the connection that it sends its log over, unless nobody has
connected again. Of the rows between one cut and the next the one that took longest from its commit to the consumer: the median of
the cuts, with the least and the most. canal for Python waits 0.1 s before it connects again (`reconnect_backoff`)."""


def machine(load_before: tuple[float, float, float]) -> dict[str, str]:
    """What the figures were measured on."""
    cpus = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    flags = sysconfig.get_config_var("CONFIG_ARGS") or ""
    found = {
        "date": time.strftime("%Y-%m-%d"),
        "processor": f"{cpus[0] if cpus else platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{int(memory[1]) >> 20} GiB" if memory else "",
        "system": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_version()} ({platform.python_compiler()}"
        f"{', optimised build' if '--enable-optimizations' in flags else ', not an optimised build'})",
        "canal": f"{'compiled' if canal.compiled else 'interpreted'}",
        "load average": f"{load_before[0]:.1f} before the run, {os.getloadavg()[0]:.1f} behind it",
    }
    return found | {"peers": ", ".join(_versions())}


def _versions() -> Iterator[str]:
    for package in ("mysql-replication", "mysql-event-stream", "pyarrow"):
        try:
            yield f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    yield "go-mysql " + re.findall(r"go-mysql (v\S+)", (PEERS / "go" / "go.mod").read_text())[0]
    pom = (PEERS / "java" / "pom.xml").read_text()
    for name, artifact in (("connector-java", "mysql-binlog-connector-java"), ("canal (Java)", "canal.server")):
        yield f"{name} " + re.findall(rf"<artifactId>{artifact}</artifactId><version>([^<]+)", pom)[0]
    for name, version in json.loads((PEERS / "node" / "package.json").read_text())["dependencies"].items():
        yield f"{name} {version}"


_RATES = "| Contestant | Rows | CPU s / M rows | second half | rows/s | second half | CPU s / GB | first row, ms | peak MiB |"


def table(head: str, rows: list[list[str]]) -> list[str]:
    columns = head.count("|") - 1
    return [head, "|---" * columns + "|", *(f"| {' | '.join(row)} |" for row in rows), ""]


def spread(values: list[float], form: str = ".3g") -> str:
    median, least, most = (f"{pick(values):{form}}" for pick in (statistics.median, min, max))
    return median if len(values) == 1 else f"{median} ({least} … {most})"


def _rates(result: dict[str, Any], server: str, load: str) -> list[list[str]]:
    found = []
    for contestant in CONTESTANTS:
        runs = _of(result, server, load, contestant.name)
        if not runs:
            continue
        found.append(
            [
                contestant.name,
                f"{max(run['rows'] for run in runs):,}",
                spread([per_row(run) * 1e6 for run in runs]),
                spread([per_row(run, warm=True) * 1e6 for run in runs]),
                f"{statistics.median(run['rows'] / run['seconds'] for run in runs):,.0f}",
                f"{statistics.median(1 / per_row(run, warm=True, wall=True) for run in runs):,.0f}",
                f"{statistics.median(1e9 * per_row(run) / run['bytes_of_row'] for run in runs):.2f}",
                f"{statistics.median(run['first_seconds'] for run in runs) * 1000:,.0f}",
                f"{max(run['peak_mib'] for run in runs):.0f}",
            ]
        )
    return found


def _of(result: dict[str, Any], server: str, load: str, contestant: str) -> list[dict[str, Any]]:
    wanted = (server, load, contestant)
    return [run for run in result["runs"] if (run["server"], run["load"], run["contestant"]) == wanted]


def charts(result: dict[str, Any]) -> dict[str, str]:
    """Name and SVG of each."""
    found = {}
    for server in result["servers"]:
        for load in _CHARTED:
            given = []
            for contestant in CONTESTANTS:
                costs = [per_row(run) * 1e6 for run in _of(result, server, load, contestant.name)]
                if costs:
                    is_ours = contestant.name.startswith("canal ") and "Java" not in contestant.name
                    given.append(chart.Bar(contestant.name, statistics.median(costs), min(costs), max(costs), is_ours))
            if given:
                title = f"{server} {result['servers'][server]}, {load}: {LOADS[load].title}"
                found[f"{server}-{load.lower()}.svg"] = chart.bars(title, "CPU seconds per million rows (less is better)", given)
    return found


def text(result: dict[str, Any], drawn: dict[str, str] | None = None) -> str:
    """The document; without the charts unless they are named."""
    lines = [_HEAD, *(f"* {name}: {value}" for name, value in result["machine"].items()), ""]
    averages = [run["load_average"] for run in result["runs"]]
    if averages:
        median = statistics.median(averages)
        lines += [
            f"Load average while it ran: {min(averages):.1f} to {max(averages):.1f}, median {median:.1f};"
            f" {result['rounds']} rounds, loads at {result['scale']:g} of their full size.",
            "",
        ]
        if median > len(os.sched_getaffinity(0)):
            lines += [
                "**The machine was busy**: rates by the clock and latencies are far from those of an idle one,"
                " CPU seconds somewhat, those of short runs most (they begin cold).",
                "",
            ]
    for server, version in result["servers"].items():
        lines += [f"## {server} {version}: goals", ""]
        lines += table("| Measure | Goal | Found | |", [list(line) for line in verdicts(result, server)])
    for server, version in result["servers"].items():
        lines += [f"## {server} {version}: figures", ""]
        for load in LOADS.values():
            rates = _rates(result, server, load.key)
            if rates:
                lines += [f"### {load.key}: {load.title}", ""]
                name = f"{server}-{load.key.lower()}.svg"
                lines += [f"![CPU seconds per million rows](benchmarks/{name})", ""] * (name in (drawn or {}))
                lines += table(_RATES, rates)
        latency = [line for line in result["latency"] if line["server"] == server]
        if latency:
            lines += [
                "### From the commit's return to the consumer, µs",
                "",
                "Single-row inserts at a steady rate; below 0: the consumer was quicker than the commit's return.",
                "",
            ]
            lines += table(
                "| Contestant | tx/s | p50 | p99 | p99.9 |",
                [
                    [line["contestant"], f"{line['rate']:,}", *(f"{line[part]:,.0f}" for part in ("p50", "p99", "p99.9"))]
                    for line in latency
                ],
            )
        recovery = [line for line in result["recovery"] if line["server"] == server]
        if recovery:
            lines += ["### Over a cut of the connection, ms", "", _CUTS, ""]
            lines += table(
                "| Contestant | Cuts | Longest wait | Rows twice |",
                [
                    [line["contestant"], str(len(line["millis"])), spread(line["millis"], ",.0f"), str(line["twice"])]
                    for line in recovery
                ],
            )
    return "\n".join([*lines, *_left_out(result)]).rstrip() + "\n"


def _left_out(result: dict[str, Any]) -> list[str]:
    lines = ["## Left out", ""]
    lines += [f"* {name}: absent, {' '.join(reason.split())}" for name, reason in result["absent"].items()]
    for one in result["refused"]:
        lines.append(f"* {one['contestant']} on {one['server']}, {one['load']}: refused, {' '.join(one['reason'].split())}")
    named = {one["contestant"] for key in ("runs", "refused", "latency", "recovery") for one in result[key]}
    named |= set(result["absent"])
    lines += [f"* {one.name}: not run this time" for one in CONTESTANTS if one.name not in named]
    loads = {run["load"] for run in result["runs"]}
    lines += [f"* load {load.key} ({load.title}): not run this time" for load in LOADS.values() if load.key not in loads]
    return [*lines, ""]


def merged(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Several runs of one machine as one; the first one's machine, scale and rounds are named."""
    whole = results[0]
    for other in results[1:]:
        for key in ("runs", "refused", "latency", "recovery", "import"):
            whole[key] += other[key]
        for key in ("absent", "servers"):
            whole[key] |= other[key]
    return whole


def write(result: dict[str, Any]) -> None:
    """docs/benchmarks.md and the charts beside it."""
    drawn = charts(result)
    CHARTS.mkdir(exist_ok=True)
    for old in CHARTS.glob("*.svg"):
        old.unlink()
    for name, svg in drawn.items():
        (CHARTS / name).write_text(svg)
    DOCUMENT.write_text(text(result, drawn))


if __name__ == "__main__":
    write(merged([json.loads(Path(name).read_text()) for name in sys.argv[1:]]))
