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
from benchmarks.goals import TEXTS, Verdict, per_row, verdicts
from benchmarks.loads import LOADS
from benchmarks.measures import CUT_RATE

DOCUMENT = ROOT / "docs" / "benchmarks.md"
CHARTS = ROOT / "docs" / "benchmarks"
#: Loads that get a chart.
_CHARTED = "ABC"
_HEAD = """\
# Benchmarks

`make bench` measures every stage beside other readers of binary logs. `python -m benchmarks --write` generates this page.

## Method

* Servers write the loads with plain SQL. Each contestant reads the same log in its own process, in turn, on another
  core than the server.
* Before the timing, each contestant's first rows are compared value by value. In each timed run, the number of rows
  and the sum of their ids are compared. A wrong answer is refused.
* "CPU" is the CPU time of the whole process, in seconds per million rows, including the connection. "Warm" is the
  second half of the run: compare JVMs by it. Both are medians of the rounds; ± is the largest deviation. Slow
  contestants read a part of the rows.
* The work differs: canal for Python verifies checksums. go-mysql returns DECIMAL and DATETIME as text and verifies no
  checksums. connector-java returns times as numbers. Both return ENUM as a number. Debezium is the embedded engine
  with Kafka Connect records, and ten times its default queue and batch sizes.

| contestant | does |
|---|---|
| drain | reads the socket only |
| canal framing | splits the stream into events |
| canal undecoded | get and ack; rows are counted |
| canal rows | `tuple(row.after)` of each row |
| canal tuples | `entry.tuples()` |
| canal columns | canal's texts |
| canal Arrow | `message.to_arrow()` |
| canal pipe | `canal.pipe` into a target that discards: changes, or tables |
| …, file | reads the binlog file instead of the server |
| …, FileMeta | with a durable ack per message |
| …, lagging | reads after the whole load is in the store |

"""

_CUTS = f"""\
Single-row inserts, {CUT_RATE} per second. The server kills the streaming connection five times. The wait is that of the
slowest row between two cuts: median, least and most. canal for Python waits 0.1 s before it reconnects
(`reconnect_backoff`)."""


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
        "load average": f"{load_before[0]:.1f} before the run, {os.getloadavg()[0]:.1f} after it",
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


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows), ""]


def spread(values: list[float], form: str = ".3g") -> str:
    median, least, most = (f"{pick(values):{form}}" for pick in (statistics.median, min, max))
    return median if len(values) == 1 else f"{median} ({least} … {most})"


def deviation(values: list[float]) -> str:
    """Return the median and the largest deviation from it."""
    median = statistics.median(values)
    most = max(abs(value - median) for value in values)
    return f"{median:.3g}" + f" ±{most / median:.0%}" * (len(values) > 1)


def _rates(result: dict[str, Any], load: str) -> list[str]:
    """Return a table of the contestants: for each server CPU seconds, rate and memory."""
    servers = list(result["servers"])
    rows = []
    for contestant in CONTESTANTS:
        by_server = [_of(result, server, load, contestant.name) for server in servers]
        if any(by_server):
            most = max(run["rows"] for runs in by_server for run in runs)
            rows.append([contestant.name, f"{most:,}", *(cell for runs in by_server for cell in _cells(runs))])
    heads = [f"{server} {what}" for server in servers for what in ("CPU", "warm", "rows/s", "MiB")]
    return table(["contestant", "rows", *heads], rows) if rows else []


def _cells(runs: list[dict[str, Any]]) -> list[str]:
    if not runs:
        return ["–"] * 4
    return [
        deviation([per_row(run) * 1e6 for run in runs]),
        f"{statistics.median(per_row(run, warm=True) * 1e6 for run in runs):.3g}",
        f"{statistics.median(run['rows'] / run['seconds'] for run in runs):,.0f}",
        f"{max(run['peak_mib'] for run in runs):.0f}",
    ]


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
    """Return the document; without charts unless `drawn` has them."""
    lines = [_HEAD, *_environment(result), *_goals(result), "## Figures", ""]
    for load in LOADS.values():
        if rates := _rates(result, load.key):
            lines += [f"### {load.key}: {load.title}", ""]
            for server in result["servers"]:
                name = f"{server}-{load.key.lower()}.svg"
                lines += [f"![{server}: CPU seconds per million rows](benchmarks/{name})", ""] * (name in (drawn or {}))
            lines += rates
    lines += [*_latency(result), *_recovery(result)]
    return "\n".join([*lines, *_left_out(result)]).rstrip() + "\n"


def _environment(result: dict[str, Any]) -> list[str]:
    lines = ["## Environment", "", *(f"* {name}: {value}" for name, value in result["machine"].items())]
    lines += [f"* {server}: {version}" for server, version in result["servers"].items()]
    averages = [run["load_average"] for run in result["runs"]]
    if averages:
        median = statistics.median(averages)
        lines.append(f"* load average during the run: {min(averages):.1f} to {max(averages):.1f}, median {median:.1f}")
        lines.append(f"* {result['rounds']} rounds, loads at {result['scale']:g} of their full size")
        if median > len(os.sched_getaffinity(0)):
            lines += ["", "**The machine was busy**: rates and latencies are not those of an idle machine."]
    return [*lines, ""]


def _goals(result: dict[str, Any]) -> list[str]:
    """Return the goals with each server's result, and the numbered reasons of those that are missed."""
    by_server = {server: {one.measure: one for one in verdicts(result, server)} for server in result["servers"]}
    measures = dict.fromkeys(measure for found in by_server.values() for measure in found)
    whys: dict[str, int] = {}
    rows = []
    for measure in measures:
        shown = [found.get(measure) for found in by_server.values()]
        goal = next(one.goal for one in shown if one)
        rows.append([measure, goal, *(_verdict(one, whys) if one else "–" for one in shown)])
    about = "Ratios of CPU time per row, unless the measure says otherwise: median, least and most. A number refers to a reason."
    lines = ["## Goals", "", about, ""]
    lines += table(["measure", "goal", *by_server], rows)
    lines += [f"{number}. {why}" for why, number in whys.items()]
    if "mariadb" in by_server:
        lines += ["", TEXTS]
    return [*lines, ""]


def _verdict(one: Verdict, whys: dict[str, int]) -> str:
    reason = f" [{whys.setdefault(one.why, len(whys) + 1)}]" if one.why and one.outcome.startswith("missed") else ""
    return ", ".join(filter(None, (one.found, one.outcome))) + reason


def _latency(result: dict[str, Any]) -> list[str]:
    if not result["latency"]:
        return []
    lines = ["## Latency from commit to consumer, µs", "", "Single-row inserts at a steady rate.", ""]
    rows = [
        [line["server"], line["contestant"], f"{line['rate']:,}", *(f"{line[part]:,.0f}" for part in ("p50", "p99", "p99.9"))]
        for line in result["latency"]
    ]
    return lines + table(["server", "contestant", "tx/s", "p50", "p99", "p99.9"], rows)


def _recovery(result: dict[str, Any]) -> list[str]:
    if not result["recovery"]:
        return []
    rows = [
        [line["server"], line["contestant"], str(len(line["millis"])), spread(line["millis"], ",.0f"), str(line["twice"])]
        for line in result["recovery"]
    ]
    lines = ["## Reconnecting, ms", "", _CUTS, ""]
    return lines + table(["server", "contestant", "cuts", "longest wait", "rows twice"], rows)


def _left_out(result: dict[str, Any]) -> list[str]:
    lines = ["## Not measured", ""]
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
