"""Run the tests of `make test` or `make test-all` in several pytest processes side by side.

    python -m tests.programs.lanes [--all] [--spark VERSION …] [--jobs N] [LANE…]

Most tests wait for a server, a clock or a JVM. Three processes for each core therefore keep all cores busy. Each lane is one
pytest process: it starts each server once. A lane has the paths that its line names, without those that another line names
more closely, so that a new test file always has a lane. The output of a lane is printed when the lane ends. A table at the end
shows the CPU seconds of each lane, its children included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

import attrs

from canal._util import build

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / ".venv/lanes"
#: The interpreted build runs without servers.
SERVERLESS: Final = "not mutants and not mysql and not mariadb and not zookeeper and not target_server and not spark"

#: Targets whose servers run in a JVM, by words in the names of their tests.
_JAVA: Final = "kafka or opensearch or rocketmq or chaos"


@attrs.frozen
class Part:
    """The tests of a lane: their paths, and options of pytest that choose among them."""

    paths: tuple[str, ...]
    marks: str = "not older"
    words: str = ""
    #: Whether the other lanes leave out its paths.
    is_apart: bool = True


def _live(*names: str) -> Part:
    return Part(tuple(f"tests/live/test_{name}.py" for name in names))


#: The lanes of the compiled build, the longest first.
COMPILED: Final[Mapping[str, Part]] = {
    "spark": Part(("tests/spark",), marks="spark and not older"),
    "live logs": _live("continuity", "checksums", "failover", "files", "left_dumps", "server_errors", "start", "upgrade"),
    "live": Part(("tests/live",)),
    "spark without spark": Part(("tests/spark",), marks="not spark and not older"),
    "snapshots": Part(tuple(f"tests/spark/test_{name}.py" for name in ("snapshot", "stream_with_snapshot", "stream_to_delta"))),
    "targets": Part(("tests/targets",), words=f"not ({_JAVA})"),
    "parse": Part(("tests/parse",)),
    "instance": Part(("tests/instance", "tests/meta", "tests/pipes", "tests/server", "tests/testing")),
    "ha": Part(("tests/ha", "tests/zookeeper")),
    "live values": _live(
        "alters", "canal_java", "catalog", "differential", "labels", "oracle", "row_columns", "schema_history", "tools"
    ),
    "targets in java": Part(("tests/targets",), words=_JAVA),
    "rest": Part(("tests",)),
    "older lines": Part(
        (*_live("oracle", "files", "logins", "server_facts").paths, "tests/parse/test_connection.py"), "older", is_apart=False
    ),
}
#: The compiled modules and the parts that use them directly: only these can behave differently when they are interpreted.
INTERPRETED: Final = (
    "tests/rows",
    "tests/formats",
    "tests/sink",
    "tests/store",
    "tests/instance/test_delivery.py",
    "tests/instance/test_decode_ahead.py",
    *(
        f"tests/parse/test_{name}.py"
        for name in (
            "cascades",
            "charsets",
            "crc",
            "damage",
            "decoder",
            "framing",
            "fuzz",
            "json",
            "partial_json",
            "roundtrip",
            "row_events",
            "rows",
            "states",
            "table_state",
            "tables",
            "texts",
            "transactions",
            "unsupported",
            "xa",
        )
    ),
)


@attrs.frozen
class Lane:
    """One pytest process."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    def start(self) -> subprocess.Popen[bytes]:
        report = ("-o", "junit_family=xunit1", f"--junitxml={self.log.with_suffix('.xml')}")  # xunit2 has no properties of tests
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *report]
        with self.log.open("wb") as log:
            return subprocess.Popen(
                ["env", "--default-signal=INT", *command, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **self.environment},
            )

    @property
    def log(self) -> Path:
        return FOLDER / f"{self.name.replace(' ', '-')}.log"


def apart(part: Part) -> list[str]:
    """Return the options that leave to the other lanes what they name more closely."""
    others = [path for other in COMPILED.values() if other.is_apart for path in other.paths]
    return [f"--ignore={path}" for path in others if any(path.startswith(f"{own}/") for own in part.paths)]


def lanes_of(is_all: bool, pure: str, sparks: Sequence[str] = ()) -> Iterator[Lane]:
    """Return the lanes of `make test`, or of `make test-all`, in the order in which they start."""
    environment = {"CANAL_PURE": pure, **({"CANAL_TESTS": "all"} if is_all else {})}
    for name, part in COMPILED.items():
        marks = " and ".join(filter(None, (part.marks, "" if is_all else "not nightly")))
        yield Lane(name, ("-m", marks, "-k", part.words, *part.paths, *apart(part)), environment)
    if pure == "0":
        marks = SERVERLESS if is_all else f"{SERVERLESS} and not nightly"
        yield Lane("interpreted", ("-m", marks, *(["tests"] if is_all else INTERPRETED)), {**environment, "CANAL_PURE": "1"})
    quiet = ("-W", "ignore::pytest.PytestUnraisableExceptionWarning", "-W", "ignore::DeprecationWarning")
    for version in sparks:  # the other files do not import with an older one
        files = [str(path) for path in sorted(ROOT.glob("tests/spark/test_*.py")) if "every_spark" in path.read_text()]
        path = {"PYTHONPATH": str(ROOT / f".venv/pyspark-{version}")}
        yield Lane(f"spark-{version}", ("-m", "every_spark", *quiet, *files), {**environment, **path})


def finish(lane: Lane) -> tuple[Lane, int, float, float]:
    """Run a lane; returns its exit code, its seconds and its CPU seconds, those of its children included."""
    print(f"== {lane.name} begins", flush=True)
    began = time.monotonic()
    process = lane.start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return lane, process.returncode, time.monotonic() - began, usage.ru_utime + usage.ru_stime


def run(lanes: Sequence[Lane], jobs: int) -> bool:
    """Run the lanes, at most so many at a time, and print what they print. Return whether all of them passed."""
    FOLDER.mkdir(exist_ok=True)
    pool, done = ThreadPoolExecutor(jobs), []
    try:
        for future in as_completed([pool.submit(finish, lane) for lane in lanes]):
            done.append(future.result())
            lane = done[-1][0]
            print(f"\n== {lane.name}", lane.log.read_text(errors="replace"), sep="\n", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C, which the lanes get too
    print("\nlane                  ends with    seconds    of CPU")
    for lane, code, seconds, cpu in done:
        print(f"{lane.name:<20} {code:>10} {seconds:>10.0f} {cpu:>9.0f}")
    print(f"{'all':<20} {'':>10} {'':>10} {sum(cpu for *_, cpu in done):>9.0f}")
    return all(code == 0 for _, code, *_ in done)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.lanes", description="Run the tests side by side.")
    parser.add_argument("--all", action="store_true", help="with what is tested nightly")
    parser.add_argument("--spark", action="append", default=[], help="run the queries with this release of Spark too")
    parser.add_argument("--jobs", type=int, default=3 * (os.cpu_count() or 1), help="processes at a time")
    parser.add_argument("lanes", nargs="*", help="names of lanes; all of them without a name")
    options = parser.parse_args(arguments)
    pure = "0" if build.compiled else "1"
    lanes = [lane for lane in lanes_of(options.all, pure, options.spark) if not options.lanes or lane.name in options.lanes]
    print(f"{'compiled' if pure == '0' else 'interpreted only'}; {options.jobs} lanes at a time", flush=True)
    if not run(lanes, options.jobs):
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
