"""Runs the live tests on every server line, some also with other start-up options, and makes docs/servers.md of what passed.

    python -m tests.programs.matrix [LINE …] [--setup NAME …] [--whole] [--failed] [--page]

Results are kept in tests/matrix.json: what is run replaces what was found before, the rest stays. ``--whole`` runs all live tests
with each set-up, not only those marked ``any_setup``; ``--failed`` runs what failed before only; ``--page`` runs nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.lines import BY_NAME, GRANTS, LIMITS, LINES, SETUPS, Line

ROOT: Final = Path(__file__).resolve().parents[2]
FOUND: Final = ROOT / "tests/matrix.json"
PAGE: Final = ROOT / "docs/servers.md"

#: What a module of the live tests is about; one that is not named is about the log.
AREAS: Final = {
    "values": "oracle row_columns compressed_columns old_temporals json_objects partial_json differential",
    "the log": "",
    "DDL with the reader away": "schema_history catalog online_ddl ha_schema",
    "kill -9, load, faults": "kill mixed_load chaos memory ha",
    "start, resume": "start status checksums left_dumps",
    "failover": "failover ha_sources",
    "upgrades": "upgrade",
    "login, queries, errors": "logins server_errors server_facts refusals",
    "beside canal (Java)": "canal_java",
}
OF_MODULE: Final = {f"test_{module}": area for area, modules in AREAS.items() for module in modules.split()}
ABILITIES: Final = (
    "gtid",
    "full_metadata",
    "row_image",
    "checksum",
    "compression",
    "fractional",
    "json",
    "xa_in_log",
    "partial_json",
    "tls",
)


def run(line: Line, setup: str, whole: bool = True, tests: Sequence[str] = ("tests/live",)) -> dict[str, Any]:
    """Run the tests of a line, or those that are named; by area how many passed, failed and were skipped, and which failed."""
    chosen = [] if whole or setup == "default" else ["-m", "any_setup"]
    failed = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        environment = os.environ | {"CANAL_TEST_LINES": line.name, "CANAL_TEST_SETUP": setup, "CI": "true"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "-k", line.name]
        done = subprocess.run([*command, *chosen, *tests], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        areas: dict[str, Counter[str]] = {}
        took: Counter[str] = Counter()
        for case in ElementTree.parse(report).iter("testcase"):
            module = case.get("classname", "").split(".")[-1]
            took[module] += round(float(case.get("time", "0")))
            outcomes = {child.tag for child in case}
            outcome = "failed" if outcomes & {"failure", "error"} else "skipped" if "skipped" in outcomes else "passed"
            if outcome == "failed":
                failed.append(f"tests/live/{module}.py::{case.get('name')}")
            areas.setdefault(OF_MODULE.get(module, "the log"), Counter())[outcome] += 1
    seconds = round(time.monotonic() - begun)
    if any(area["failed"] for area in areas.values()):
        print(done.stdout[-20000:])
    print(
        f"{line.name} {setup}: {seconds} s, {dict(took)}, { ({area: dict(count) for area, count in areas.items()}) }", flush=True
    )
    found = {area: dict(count) for area, count in sorted(areas.items())}
    return {"date": time.strftime("%Y-%m-%d"), "areas": found, "failed": failed}


def run_failed(line: Line, setup: str, before: dict[str, Any]) -> dict[str, Any]:
    """Run anew what failed before; what has passed by then did so with the rest of the results."""
    again = run(line, setup, tests=before["failed"])
    areas = {area: Counter(count) for area, count in before["areas"].items()}
    for area, count in areas.items():
        count["passed"] += again["areas"].get(area, {}).get("passed", 0)
        count["failed"] = again["areas"].get(area, {}).get("failed", 0)
    return again | {"areas": {area: dict(+count) for area, count in areas.items()}}


# -- the page ----------------------------------------------------------------------------------------------------------


def cell(count: dict[str, int] | None) -> str:
    if not count or not (count.get("passed") or count.get("failed")):
        return "–"
    return f"**{count['failed']} failed**" if count.get("failed") else str(count["passed"])


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]


def total(found: dict[str, Any] | None) -> dict[str, int]:
    return dict(sum((Counter(area) for area in (found or {}).get("areas", {}).values()), Counter()))


HEAD: Final = """\
# Servers

Generated by `make matrix`: the number of passed tests in the last run against a real server of each line.
`tests/support/lines.py` lists the lines; `make servers` fetches them. MySQL 5.1 is tested with its
binlog files (`tests/corpus`) and a fake server.

## Passed tests
"""
SETUPS_HEAD: Final = """
With other server options (types at their limits, a load with DDL, kills, DDL while the reader is down; larger numbers are
all applicable live tests):
"""
SETUPS_TAIL: Final = """
A dash: the line lacks the option or has no such test. The type tests also change row images, checksums, compression and
metadata at run time. `tests/live/test_events.py` tests MySQL's encrypted logs.

## Abilities
"""
CARRIERS: Final = {"debian": "Debian", "maven": "Maven", "npm": "npm"}


def page(found: dict[str, dict[str, Any]]) -> str:
    """docs/servers.md, of the results by line and set-up."""
    others = [name for name in SETUPS if name != "default"]
    runs, more, facts = [], [], []
    for line in LINES:
        of_line = found.get(line.name, {})
        default = of_line.get("default", {"areas": {}, "date": "not run"})
        runs.append([line.name, *(cell(default["areas"].get(area)) for area in AREAS), default["date"]])
        more.append([line.name, *(cell(total(of_line.get(name))) for name in others)])
        can = ("yes" if line.can(one) else "" for one in ABILITIES)
        facts.append([line.name, line.version, CARRIERS[line.carrier.split()[0]], *can])
    limits = [f"* **{name}**: {text}" for name, text in LIMITS.items()]
    parts = [
        HEAD,
        *table(["line", *AREAS, "run on"], runs),
        SETUPS_HEAD,
        *table(["line", *others], more),
        SETUPS_TAIL,
        *table(["line", "release", "from", *ABILITIES], facts),
        "",
        "## Grants and limits",
        "",
        GRANTS,
        "",
        *limits,
        "",
    ]
    return "\n".join(parts)


def read() -> dict[str, dict[str, Any]]:
    """What was found so far, by line and set-up."""
    found: dict[str, dict[str, Any]] = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("line", nargs="*", choices=[*BY_NAME, []], help="all without one")
    parser.add_argument("--setup", action="append", choices=list(SETUPS), help="all without one")
    parser.add_argument("--whole", action="store_true", help="all live tests with each set-up")
    parser.add_argument("--failed", action="store_true", help="only what failed before")
    parser.add_argument("--page", action="store_true", help="only make the page anew")
    options = parser.parse_args()
    for line in [] if options.page else [BY_NAME[name] for name in options.line] or LINES:
        for setup in options.setup or list(SETUPS):
            before = read().get(line.name, {}).get(setup, {})
            if line.takes(setup) and (before.get("failed") or not options.failed):
                result = run_failed(line, setup, before) if options.failed else run(line, setup, options.whole)
                found = read()  # another run may have added to it
                found.setdefault(line.name, {})[setup] = result
                FOUND.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    found = read()
    PAGE.write_text(page(found))
    failed = sum(total(one).get("failed", 0) for line in found.values() for one in line.values())
    print(f"{PAGE.relative_to(ROOT)}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
