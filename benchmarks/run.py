"""The speed bars: contestants in turn against the same real server, on one core, with ratios of the same run.

    python benchmarks/run.py [--server mariadb|mysql] [--rounds 3] [--bulk 300000] [--single 30000] [--json FILE]

Two loads of eight columns: ``bulk`` in 1000-row statements, ``single`` in single-row transactions. The server runs on the
first core, each contestant alone on the last. mysql-replication reads a part of the log, since it needs long for all of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from canal.testing.servers import MariaDBServer, MySQLServer, ThrowawayServer

TABLE = """CREATE TABLE bench.{name} (
    id BIGINT UNSIGNED PRIMARY KEY, customer INT NOT NULL, price DECIMAL(10,2), name VARCHAR(40) CHARACTER SET utf8mb4,
    created DATETIME(6), seen TIMESTAMP NULL, ratio DOUBLE, status ENUM('new','paid','sent'))"""
BARS = {
    ("bulk", "canal_values", "mysql_replication"): 25.0,
    ("single", "canal_values", "mysql_replication"): 20.0,
    ("bulk", "canal_entries", "drain"): 0.5,
}


def row(number: int) -> str:
    return (
        f"({number},{number % 9973 - 5000},{number % 100000}.{number % 100:02d},'customer {number} é',"
        f"'2026-11-21 10:00:00.{number % 1000000:06d}','2026-11-21 10:00:{number % 60:02d}',{number / 7!r},"
        f"{number % 3 + 1})"
    )


def load(server: ThrowawayServer, name: str, rows: int, statement: int) -> dict[str, Any]:
    """Fill a table; gives where its part of the log starts and what must be read from there."""
    connection = server.connect()
    with connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS bench")
        cursor.execute(TABLE.format(name=name))
        cursor.execute("FLUSH BINARY LOGS")
        journal, offset = status(server)
        for first in range(1, rows + 1, statement):
            last = min(first + statement, rows + 1)
            cursor.execute(f"INSERT INTO bench.{name} VALUES " + ",".join(map(row, range(first, last))))
        end_journal, end = status(server)
        assert journal == end_journal, "the load must fit into one log"
    connection.close()
    return {"journal": journal, "offset": offset, "bytes": end - offset}


def status(server: ThrowawayServer) -> tuple[str, int]:
    modern = isinstance(server, MySQLServer)
    found = server.query("SHOW BINARY LOG STATUS" if modern else "SHOW MASTER STATUS")[0]
    return str(found[0]), int(found[1])


def pin(pid: int, cpu: int) -> None:
    for task in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(task), {cpu})


def run(name: str, job: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.contestants", name, json.dumps(job)],
        capture_output=True, text=True, cwd=Path(__file__).resolve().parent.parent,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if (result["rows"], result["ids"]) != (job["rows"], job["ids"]):
        raise SystemExit(f"{name} read {result['rows']} rows with ids {result['ids']}, not {job['rows']} with {job['ids']}")
    return result


def compare(server: ThrowawayServer, options: argparse.Namespace) -> dict[str, Any]:
    cpu = sorted(os.sched_getaffinity(0))[-1]
    rates: dict[str, dict[str, list[float]]] = {}
    details = []
    for load_name, rows, statement, part in (
        ("bulk", options.bulk, 1000, options.bulk // 10), ("single", options.single, 1, options.single // 6),
    ):  # fmt: skip
        place = load(server, load_name, rows, statement)
        print(f"{load_name}: {rows} rows, {place['bytes'] / 1e6:.1f} MB of log, statements of {statement}", flush=True)
        rates[load_name] = {}
        for number in range(options.rounds):
            for name in ("drain", "canal_entries", "canal_values", "canal_arrow", "mysql_replication"):
                wanted = part if name == "mysql_replication" else rows
                job = {
                    **place, "host": server.host, "port": server.port, "user": server.user, "password": server.password,
                    "rows": wanted, "ids": wanted * (wanted + 1) // 2, "cpu": cpu, "batch": options.batch,
                }  # fmt: skip
                result = run(name, job)
                details.append({**result, "load": load_name, "round": number})
                rates[load_name].setdefault(name, []).append(wanted / result["seconds"])
                megabytes = place["bytes"] / 1e6 * wanted / rows / result["seconds"]
                print(
                    f"  {name:18} {wanted / result['seconds']:12,.0f} rows/s {megabytes:8.1f} MB/s"
                    f" {result['cpu_seconds'] / result['seconds']:5.0%} cpu {result['peak_mib']:7.0f} MiB peak",
                    flush=True,
                )
    bars = []
    for (load_name, ours, theirs), bar in BARS.items():
        ratios = [a / b for a, b in zip(rates[load_name][ours], rates[load_name][theirs], strict=True)]
        median = statistics.median(ratios)
        bars.append({"load": load_name, "ours": ours, "theirs": theirs, "bar": bar, "ratios": ratios, "median": median})
        print(
            f"{'ok  ' if median >= bar else 'MISS'} {load_name}: {ours} is {median:.2f} x {theirs}"
            f" ({min(ratios):.2f} … {max(ratios):.2f}), the bar is {bar:g}"
        )
    return {"server": server.version, "machine": platform.platform(), "cpus": os.cpu_count(), "bars": bars, "runs": details}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=("mariadb", "mysql", "both"), default="both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bulk", type=int, default=500_000)
    parser.add_argument("--single", type=int, default=60_000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kinds = {"mariadb": [MariaDBServer], "mysql": [MySQLServer], "both": [MariaDBServer, MySQLServer]}[options.server]
    reports = []
    for kind in kinds:
        with kind("--binlog-row-metadata=FULL", "--max-binlog-size=1G") as server:
            pid = server.pid
            if pid is not None:
                pin(pid, sorted(os.sched_getaffinity(0))[0])
            print(f"{kind.__name__} {server.version}", flush=True)
            reports.append(compare(server, options))
    if options.json:
        options.json.write_text(json.dumps(reports, indent=1))
    return 0 if all(bar["median"] >= bar["bar"] for report in reports for bar in report["bars"]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
