"""Runs a fixed list of the MariaDB server's own tests, keeps every binlog they write and compares our decoding of each.

Never judges the tests themselves: many fail or are skipped on one build or another, their logs are what counts.

    python -m tests.programs.mtr            # about 20 minutes; Debian: mariadb-test and mariadb-test-data
    python -m tests.programs.mtr --compare DIRECTORY    # only compare files that were kept with --keep
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.support.log_tools import Outcome, compare

TREES = ("/usr/share/mysql/mysql-test", "/usr/share/mariadb/mariadb-test", "/usr/share/mariadb-test")
MAGICS = (b"\xfebin", b"\xfdbin")


class Keeper(threading.Thread):
    """Hard-links every binlog and relay log below ``var`` as it appears: the link outlives RESET and PURGE."""

    def __init__(self, var: Path, kept: Path) -> None:
        super().__init__(daemon=True)
        self.var, self.kept = var, kept
        self.ended = threading.Event()
        self._seen: set[tuple[int, int]] = set()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            self.look()

    def look(self) -> None:
        for data in [*self.var.glob("mysqld.*/data"), *self.var.glob("*/mysqld.*/data")]:
            with contextlib.suppress(OSError):  # it may vanish while we look
                for file in os.scandir(data):
                    if file.name.rpartition(".")[2].isdigit():
                        self._keep(file, data.parent.name)

    def _keep(self, file: os.DirEntry[str], server: str) -> None:
        with contextlib.suppress(OSError):
            info = file.stat()
            key = (info.st_dev, info.st_ino)
            if key in self._seen or info.st_size < 4:
                return
            with open(file.path, "rb") as opened:
                if opened.read(4) in MAGICS:
                    os.link(file.path, self.kept / f"{len(self._seen):05}-{server}-{file.name}")
                    self._seen.add(key)


def find_mtr() -> Path:
    for tree in map(Path, filter(None, (os.environ.get("CANAL_MTR"), *TREES))):
        if (tree / "mysql-test-run.pl").exists():
            return tree
    sys.exit("no mysql-test-run.pl: install mariadb-test, or name its directory in CANAL_MTR")


def run_tests(work: Path, tests: list[str], parallel: int) -> None:
    """Run mtr in ``work``; it wants to own its directories, and its servers refuse to run as root."""
    user = "nobody" if os.geteuid() == 0 else None
    kept = work / "kept"
    kept.mkdir()
    if user is not None:
        shutil.chown(work, user)
        work.chmod(0o755)
    keeper = Keeper(work / "var", kept)
    keeper.start()
    command = [
        "perl",
        "mysql-test-run.pl",
        f"--vardir={work / 'var'}",
        "--force",
        "--retry=0",
        "--max-test-fail=0",
        f"--parallel={parallel}",
        "--testcase-timeout=3",
        "--suite-timeout=60",
        *tests,
    ]
    with open(work / "mtr.log", "wb") as log:
        subprocess.run(command, cwd=find_mtr(), stdout=log, stderr=log, user=user, preexec_fn=lambda: os.nice(10))
    keeper.ended.set()
    keeper.join()
    keeper.look()
    print("".join((work / "mtr.log").read_text(errors="replace").splitlines(keepends=True)[-8:]))


def compare_one(path: Path) -> Outcome:
    logging.disable(logging.WARNING)
    try:
        return compare(path, "mariadb")
    except AssertionError as error:  # the tool printed what the comparer does not know
        return Outcome("UNKNOWN TEXT", str(error))


def compare_all(files: list[Path], parallel: int) -> bool:
    """Compare each file, print what was found; True when nothing differs."""
    outcomes: Counter[str] = Counter()
    events = rows = 0
    with ProcessPoolExecutor(parallel) as pool:
        for path, found in zip(files, pool.map(compare_one, files, chunksize=8)):
            outcomes[found.verdict] += 1
            events += found.events
            rows += found.rows
            if found.detail:
                print(f"{path.name}: {found.verdict}: {found.detail}", flush=True)
    print(f"\n{len(files)} files, {events} events, {rows} rows decoded")
    for verdict, count in outcomes.most_common():
        print(f"{count:6} {verdict}")
    return not any(verdict.isupper() for verdict in outcomes)  # DIFFERENT and worse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", help="names of mtr tests; without any, those in mtr.txt")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="an empty directory for logs and kept files, not removed at the end")
    parser.add_argument("--compare", type=Path, help="run nothing, compare the files in this directory")
    options = parser.parse_args()
    if options.compare:
        return not compare_all(sorted(options.compare.iterdir()), options.parallel)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    work = options.keep or Path(tempfile.mkdtemp(prefix="canal-mtr-", dir=memory))
    try:
        run_tests(work, options.tests or Path(__file__).with_name("mtr.txt").read_text().split(), options.parallel)
        return not compare_all(sorted((work / "kept").iterdir()), options.parallel)
    finally:
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
