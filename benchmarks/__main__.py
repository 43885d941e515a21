"""The speed of the library beside everybody's, on real servers; every answer is checked, wrong ones are refused.

    python -m benchmarks [NAME …] [--quick | --scale X] [--rounds 3] [--server mysql|mariadb|both] [--json FILE] [--write]

NAME is a load (A … I), ``latency``, ``recovery`` or ``import``; all of them without one. ``--quick`` takes minutes, loads of 2 %
and one round.
``--write`` makes docs/benchmarks.md of the run; ``python -m benchmarks.report FILE`` of a run that was kept with ``--json``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from benchmarks import measures, report
from benchmarks.contestants import CONTESTANTS, Contestant
from benchmarks.loads import LOADS, write
from benchmarks.race import Race, pin, sized
from canal.testing.servers import MariaDBServer, MySQLServer, ThrowawayServer

SERVERS: dict[str, list[type[ThrowawayServer]]] = {
    "mysql": [MySQLServer],
    "mariadb": [MariaDBServer],
    "both": [MySQLServer, MariaDBServer],
}
MEASURES = ("latency", "recovery", "import")
OPTIONS = ("--binlog-row-metadata=FULL", "--max-binlog-size=1G", "--max-allowed-packet=64M")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*LOADS, *MEASURES, []])
    parser.add_argument("--server", choices=SERVERS, default="both")
    parser.add_argument("--only", nargs="*", default=[], help="contestants, by parts of their names")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the loads' full sizes")
    parser.add_argument("--large", type=int, help="rows of the one transaction of load G; 10,000,000 in a full run")
    parser.add_argument("--rates", type=int, nargs="*", default=[100, 1000], help="transactions a second of the latency runs")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a latency or recovery run takes")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    found = parser.parse_args()
    if found.quick:
        found.scale, found.rounds, found.seconds = 0.02, 1, 3.0
    return found


def chosen(parts: list[str]) -> list[Contestant]:
    return [one for one in CONTESTANTS if not parts or any(part in one.name for part in parts)]


def measure(server: ThrowawayServer, wanted: list[str], given: argparse.Namespace, race: Race) -> None:
    """Every load and the latencies on one server."""
    contestants = chosen(given.only)
    pin(server)
    if "latency" in wanted:
        measures.latencies(server, contestants, given.rates, given.seconds, race)
    if "recovery" in wanted:
        measures.recoveries(server, contestants, given.seconds, race)
    for key in (key for key in LOADS if key in wanted):
        load = sized(LOADS[key], given.large / LOADS[key].rows if key == "G" and given.large else given.scale)
        with tempfile.TemporaryDirectory(dir=server.base) as name:
            begun = time.monotonic()
            log = write(server, load, Path(name))
            print(
                f"{server.kind} {server.version}, {key} {load.title}: {log.rows:,} rows, {log.bytes / 1e6:.1f} MB,"
                f" {time.monotonic() - begun:.0f} s to write",
                flush=True,
            )
            fit = race.check([one for one in contestants if key in one.loads and one.name not in race.absent], server, log)
            race.rounds(fit, server, log, given.rounds)


def main() -> int:
    given = options()
    wanted = given.names or [*LOADS, *MEASURES]
    race, begun, failed = Race(), os.getloadavg(), False
    versions: dict[str, str] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for kind in SERVERS[given.server] if wanted != ["import"] else []:
            with kind(*OPTIONS, startup_timeout=180.0) as server:
                versions[server.kind] = server.version
                measure(server, wanted, given, race)
    except (KeyboardInterrupt, SystemExit):
        print("STOPPED: what was measured until now is kept", flush=True)
    except Exception:
        traceback.print_exc()
        print("FAILED: what was measured until now is kept", flush=True)
        failed = True
    result = {
        "machine": report.machine(begun),
        "servers": versions,
        "scale": given.scale,
        "rounds": given.rounds,
        "runs": race.runs,
        "absent": race.absent,
        "refused": race.refused,
        "latency": race.latencies,
        "recovery": race.recoveries,
        "import": measures.import_seconds() if "import" in wanted else [],
    }
    if given.json:
        given.json.write_text(json.dumps(result, indent=1))
    print(report.text(result))
    if given.write:
        report.write(result)
    ours = [one for one in race.refused if one["contestant"].startswith("canal ") and "Java" not in one["contestant"]]
    return 1 if failed or ours else 0


if __name__ == "__main__":
    raise SystemExit(main())
