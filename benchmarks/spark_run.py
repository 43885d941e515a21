"""The Spark benchmarks: contestants in turn in one Spark session against the same real server, with ratios of the same round.

    python benchmarks/spark_run.py [--server mariadb|mysql|both] [--rounds 3] [--rows 1000000] [--json FILE] [--only NAME …]

Ten mixed columns. A round before the others is not counted: in it every column of what arrives is summed, and compared with
the server's own sums; in the others the ids, and everything in Delta. Rows reach a stream in two bursts of 32 transactions, and
the second is timed: its transactions are committed while the process that reads the log is stopped, and the clock starts when
it is woken. A Spark of two slots, the server and all else share the machine. Debezium reads a part of the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from benchmarks import spark_debezium, spark_load  # noqa: E402
from benchmarks.spark_contestants import CONTESTANTS, LATENCIES, SLOW, Stage, idle  # noqa: E402
from benchmarks.spark_ready import Ready  # noqa: E402
from canal.spark.source import CanalSource  # noqa: E402
from canal.testing.servers import MariaDBServer, MySQLServer  # noqa: E402

#: What is compared, and how much of the yardstick's rate it is to have.
BARS = {("canal_spool", "ready"): 0.5, ("canal_dump", "ready_job"): 0.5, ("canal_bytes", "ready"): 0.2}
COMPARED = (
    ("canal_spool", "ready_bare"),
    ("canal_spool", "parquet"),
    ("canal_dump", "parquet_job"),
    ("canal_delta", "ready_delta"),
    ("canal_loop_delta", "ready_delta"),
    ("canal_spool", "debezium_lines"),
    ("canal_delta", "debezium_delta"),
    ("canal_loop_delta", "debezium_delta"),
)
LATENCY_BAR = 1.0


def session(directory: Path) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.environ["TMPDIR"] = str(directory)
    tempfile.tempdir = None
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("canal benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.maxResultSize", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Ready)
    return spark


def store(stage: Stage) -> None:
    """Write what the source "canal" makes of the rows as Arrow, and as parquet, for those who read them from there."""
    start, end = stage.span
    source = CanalSource({**stage.options(), "startingPosition": start, "endingPosition": end})
    reader = source.reader(source.schema())
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    rows = 0
    while rows < spark_load.warming(stage.rows):
        rows += batches[stage.warm - 1].num_rows
        stage.warm += rows < spark_load.warming(stage.rows)
    bare = [field.name for field in batches[0].schema if not field.name.startswith("_")]
    for name, found in (("rows", batches), ("bare", [batch.select(bare) for batch in batches])):
        with pa.OSFile(str(stage.directory / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, found[0].schema) as writer:
            for batch in found:
                writer.write_batch(batch)
    for step, part in (("warm", batches[: stage.warm]), ("all", batches[stage.warm :])):
        directory = stage.directory / "parquet" / step
        directory.mkdir(parents=True)
        size = -(-len(part) // 8)
        for number in range(0, len(part), size):
            pq.write_table(pa.Table.from_batches(part[number : number + size]), directory / f"{number:04d}.parquet")


def compare(stage: Stage, options: argparse.Namespace) -> dict[str, Any]:
    names = [name for name in CONTESTANTS if name in options.only or not options.only]
    names = [name for name in names if stage.jars is not None or name not in SLOW]
    wanted = {rows: spark_load.answer(stage.server, rows) for rows in {stage.rows, stage.part}}
    rates: dict[str, list[float]] = {name: [] for name in names}
    details = []
    for number in range(options.rounds + 1):
        stage.whole = not number
        print(f"round {number}{'' if number else ', not counted, every column summed'}", flush=True)
        for name in names:
            result = CONTESTANTS[name](stage)
            right = wanted[stage.part if name in SLOW else stage.rows]
            if result.answer != {key: right[key] for key in result.answer}:
                raise SystemExit(f"{name} came to {result.answer}, the server to {right}")
            rate = result.rows / result.seconds
            details.append({"name": name, "round": number, "rate": rate, "batches": result.batches, "rows": result.rows})
            print(
                f"  {name:16} {rate:12,.0f} rows/s  {result.rows:8} rows in {result.seconds:6.2f} s, {result.batches} batches,"
                f" {len(result.answer)} sums right",
                flush=True,
            )
            if number:
                rates[name].append(rate)
    bars = []
    for ours, theirs in (*BARS, *COMPARED):
        if not (rates.get(ours) and rates.get(theirs)):
            continue
        ratios = [a / b for a, b in zip(rates[ours], rates[theirs], strict=True)]
        median, bar = statistics.median(ratios), BARS.get((ours, theirs))
        bars.append({"ours": ours, "theirs": theirs, "bar": bar, "ratios": ratios, "median": median})
        verdict = "    " if bar is None else "ok  " if median >= bar else "MISS"
        print(
            f"{verdict} {ours} is {median:.2f} x {theirs} ({min(ratios):.2f} … {max(ratios):.2f})"
            + ("" if bar is None else f", the bar is {bar:g}"),
            flush=True,
        )
    return {"bars": bars, "runs": details}


def latency(stage: Stage, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, contestant in LATENCIES.items():
        if stage.jars is None and name.startswith("debezium"):
            continue
        seconds = sorted(contestant(stage, options.drip, options.rate))
        p50, p99 = (seconds[int(len(seconds) * part)] for part in (0.5, 0.99))
        found[name] = {"p50": p50, "p99": p99, "rows": len(seconds)}
        verdict = "    " if name != "canal_latency" else "ok  " if p50 < LATENCY_BAR else "MISS"
        print(
            f"{verdict} {name}: event to Delta p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms"
            f" ({len(seconds)} rows, {options.rate:g} transactions a second)",
            flush=True,
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=("mariadb", "mysql", "both"), default="both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--debezium-rows", type=int, default=200_000)
    parser.add_argument("--drip", type=int, default=500, help="rows whose latency is taken")
    parser.add_argument("--rate", type=float, default=25.0, help="of them in a second")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of an idle query")
    parser.add_argument("--only", nargs="*", default=[], choices=[*CONTESTANTS, "latency", "idle"])
    parser.add_argument("--jars", type=Path, default=ROOT / ".venv" / "debezium")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    jars = spark_debezium.classpath(options.jars)
    if jars is not None:
        print(
            f"Debezium {spark_debezium.version(jars)}: its embedded engine in a JVM of its own, JSON lines over a pipe, made"
            " Arrow in Python, into the same apply_changes and Delta table, without Spark",
            flush=True,
        )
    kinds = {"mariadb": [MariaDBServer], "mysql": [MySQLServer], "both": [MariaDBServer, MySQLServer]}[options.server]
    reports = []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        directory = Path(name)
        spark = session(directory)
        print(f"Spark {spark.version}, local[2], {os.cpu_count()} processors, {platform.platform()}", flush=True)
        for kind in kinds:
            with kind("--binlog-row-metadata=FULL", "--max-binlog-size=32M", "--binlog-cache-size=8M") as server:
                here = directory / kind.__name__
                here.mkdir()
                begin = time.time()
                span = spark_load.fill(server, options.rows)
                stage = Stage(spark, server, here, options.rows, min(options.rows, options.debezium_rows), jars, span)
                store(stage)
                print(f"{kind.__name__} {server.version}: {options.rows} rows, {time.time() - begin:.1f} s to fill", flush=True)
                report = {"server": server.version, **compare(stage, options)}
                if not options.only or "latency" in options.only:
                    report["latency"] = latency(stage, options)
                if not options.only or "idle" in options.only:
                    report["idle"] = found = idle(stage, options.idle)
                    print(
                        f"     an idle query takes {found['canal']:.1f} ms of processor time a second, with a source that does"
                        f" nothing {found['ready']:.1f}; an empty poll {found['poll']:.3f} ms",
                        flush=True,
                    )
                reports.append(report)
        spark.stop()
    if options.json:
        options.json.write_text(json.dumps(reports, indent=1))
    missed = [bar for report in reports for bar in report["bars"] if bar["bar"] is not None and bar["median"] < bar["bar"]]
    late = [report for report in reports if report.get("latency", {}).get("canal_latency", {}).get("p50", 0) >= LATENCY_BAR]
    return 1 if missed or late else 0


if __name__ == "__main__":
    raise SystemExit(main())
