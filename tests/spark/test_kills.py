"""A driver that is killed wherever it hurts, under load: its targets hold each change of the source's table once."""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pymysql
import pymysql.cursors
import pytest

from canal.testing.servers import ThrowawayServer
from tests.programs.spark_kill_child import sinks, targets
from tests.support.fix_spark import JAVA_OPTIONS, java_home
from tests.support.journal import same_value
from tests.support.live import end_of_log

ROOT = Path(__file__).resolve().parents[2]
TABLE = "bank.accounts"
COLUMNS = (
    "id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, note VARCHAR(200), price DECIMAL(20,4), made DATETIME(6), "
    "seen TIMESTAMP(6) NULL, raw VARBINARY(40)"
)
SNAPSHOT = {"snapshot": "initial", "chunkRows": "100", "chunksPerBatch": "1"}
#: Options of which each life of the driver draws one.
DRAWN = {
    "maxBytesPerBatch": ("128k", "1m"),
    "maxTransactionBytes": ("64k", "256m"),
    "backlogFiles": ("0", "2"),
    "transport": ("auto", "bytes"),
}
#: Seconds after which a process is held to hang.
PATIENCE = 400.0
_LOST_RACE = (1205, 1213)


# -- the load ----------------------------------------------------------------------------------------------------------


class Load:
    """Writers on one table, each with keys of its own; counts what they have committed.

    ``applied`` tells how much of it has arrived: the writers wait for who is far behind. ``slow``: for a time in which nothing
    arrives, of minutes.
    """

    FAST = 0.05, 8_000

    def __init__(
        self, server: ThrowawayServer, seed: int, applied: Callable[[], int], slow: bool = False, writers: int = 2
    ) -> None:
        self.server, self._applied = server, applied
        self._pace, self._most_behind = (0.25, 30_000) if slow else self.FAST
        self.counts: dict[str, list[int]] = {op: [0, 0] for op in "IUD"}
        self.transactions = 0
        self.failure: BaseException | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.writers = [_Writer(self, number, random.Random(f"{seed}/{number}")) for number in range(writers)]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._threads = [threading.Thread(target=self._guard, args=(one,), daemon=True) for one in self.writers]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        if self.failure is not None:
            raise self.failure

    def _guard(self, writer: _Writer) -> None:
        try:
            with self.server.connect(autocommit=False) as connection, connection.cursor() as cursor:
                cursor.execute("SET time_zone = '+00:00'")
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                while not self._stop.wait(self._pace):
                    if self.changes - self._applied() < self._most_behind:
                        writer.transaction(connection, cursor)
        except BaseException as error:  # raised by stop()
            self.failure = error

    def hasten(self) -> None:
        """What is written arrives soon from now on."""
        self._pace, self._most_behind = self.FAST

    def fill(self, count: int) -> None:
        """So many rows for each writer that are there before the load begins, and that it does not count."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            for writer in self.writers:
                writer.fill(cursor, count)

    def record(self, changes: list[tuple[str, int]]) -> None:
        with self._lock:
            self.transactions += 1
            for op, delta in changes:
                self.counts[op][0] += 1
                self.counts[op][1] += delta

    @property
    def changes(self) -> int:
        with self._lock:
            return sum(count for count, _ in self.counts.values())


class _Writer:
    """Small transactions on few keys, which are soon used again, and on those that were filled; a large one now and then."""

    SMALL, LARGE = 300, 900
    FILLED = 2000

    def __init__(self, load: Load, number: int, rng: random.Random) -> None:
        self._load, self._rng = load, rng
        self._first = number * 1_000_000
        self._areas = [range(self._first, self._first + self.SMALL)]
        self.rows: dict[int, int] = {}  # balance by id
        self._changes: list[tuple[str, int]] = []
        self._numbers = itertools.count(100)
        self._cursor: Any = None

    def transaction(self, connection: Any, cursor: Any) -> None:
        before, self._changes, self._cursor = dict(self.rows), [], cursor
        rng, others = self._rng, (self._delete, self._move, self._shift, self._again)
        try:
            if next(self._numbers) % 200 == 0:
                self._large()
            else:
                for _ in range(rng.randint(1, 6)):
                    rng.choice((self._insert, self._insert, self._update, self._update, *others))()
            if rng.random() < 0.9:
                connection.commit()
                self._load.record(self._changes)
                return
        except pymysql.MySQLError as error:
            if error.args[0] not in _LOST_RACE:
                raise
        connection.rollback()
        self.rows = before

    def _run(self, sql: str, *arguments: Any) -> None:
        self._cursor.execute(sql, arguments)

    def _some(self, most: int) -> list[int]:
        area = self._rng.choice(self._areas)
        there = [one for one in self.rows if one in area]
        return self._rng.sample(there, min(len(there), self._rng.randint(1, most)))

    def _free(self, most: int) -> list[int]:
        free = [one for one in self._rng.choice(self._areas) if one not in self.rows]
        return self._rng.sample(free, min(len(free), self._rng.randint(1, most)))

    def _values(self, id: int) -> tuple[Any, ...]:
        rng = self._rng
        note = rng.choice((None, "", "Zürich", "日本語 🐬", "x" * 150, 'it\'s "quoted" \\ %s'))
        moment = datetime(1980, 1, 1) + timedelta(microseconds=rng.randrange(50 * 365 * 86400 * 10**6))
        price = Decimal(rng.randrange(-(10**12), 10**12)) / 10**4
        return id, rng.randrange(-1000, 1000), note, price, moment, rng.choice((None, moment)), rng.randbytes(rng.randrange(40))

    def _put(self, ids: list[int]) -> None:
        rows = [self._values(id) for id in ids]
        if not rows:
            return
        self._run(
            f"INSERT INTO {TABLE} VALUES " + ", ".join(["(%s, %s, %s, %s, %s, %s, %s)"] * len(rows)), *itertools.chain(*rows)
        )
        for id, balance, *_ in rows:
            self.rows[id] = balance
            self._changes.append(("I", balance))

    def _take(self, ids: list[int]) -> None:
        if ids:
            self._run(f"DELETE FROM {TABLE} WHERE id IN ({', '.join(['%s'] * len(ids))})", *ids)
            self._changes += [("D", -self.rows.pop(id)) for id in ids]

    def _add(self, ids: list[int], delta: int) -> None:
        if ids:
            self._run(f"UPDATE {TABLE} SET balance = balance + %s WHERE id IN ({', '.join(['%s'] * len(ids))})", delta, *ids)
            for id in ids:
                self.rows[id] += delta
                self._changes.append(("U", delta))

    def _insert(self) -> None:
        self._put(self._free(10))

    def _update(self) -> None:
        self._add(self._some(10), self._rng.choice((-7, 1, 100)))

    def _delete(self) -> None:
        self._take(self._some(8))

    def _move(self) -> None:
        """A row to another key."""
        for old, new in zip(self._some(1), self._free(1)):
            self._run(f"UPDATE {TABLE} SET id = %s WHERE id = %s", new, old)
            self.rows[new] = self.rows.pop(old)
            self._changes.append(("U", 0))

    def _shift(self) -> None:
        """Neighbours each to the key that the one above has just left."""
        for low in self._some(1):
            high = low
            while high + 1 in self.rows and high - low < 5:
                high += 1
            if high + 1 in self.rows or not any(high + 1 in area for area in self._areas):
                return
            self._run(f"UPDATE {TABLE} SET id = id + 1 WHERE id BETWEEN %s AND %s ORDER BY id DESC", low, high)
            for id in range(high, low - 1, -1):
                self.rows[id + 1] = self.rows.pop(id)
                self._changes.append(("U", 0))

    def _again(self) -> None:
        """A key deleted and put in again."""
        ids = self._some(2)
        self._take(ids)
        self._put(ids)

    def fill(self, cursor: Any, count: int) -> None:
        """Every other key of an area of its own."""
        self._cursor = cursor
        area = range(self._first + self.FILLED, self._first + self.FILLED + 2 * count)
        for at in range(0, len(area), 500):
            self._put(list(area[at : at + 500 : 2]))
        self._areas.append(area)

    def _large(self) -> None:
        first = self._first + self.SMALL
        ids = list(range(first, first + self.LARGE))
        self._take([id for id in ids if id in self.rows])
        for at in range(0, len(ids), 250):
            self._put(ids[at : at + 250])
        self._add(ids, 3)
        self._take(ids[50:])


# -- processes ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Process:
    """A process of the machine; its start tells it from a later one with its number."""

    pid: int
    start: int
    parent: int = attrs.field(eq=False)
    command: str = attrs.field(eq=False)

    def is_alive(self) -> bool:
        found = process(self.pid)
        return found == self

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it ends by itself just now
            if self.is_alive():
                os.kill(self.pid, signal.SIGKILL)


def process(pid: int) -> Process | None:
    """None where it has ended, even if nobody has asked for its end yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (OSError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else Process(pid, int(fields[19]), int(fields[1]), command)


def descendants(root: int) -> list[Process]:
    found = [one for path in Path("/proc").glob("[0-9]*") if (one := process(int(path.name))) is not None]
    family = {root}
    while more := {one.pid for one in found if one.parent in family} - family:
        family |= more
    return [one for one in found if one.pid in family and one.pid != root]


class Driver:
    """The process that is killed, in one life after the other."""

    def __init__(
        self, directory: Path, mode: str, options: dict[str, str], environment: dict[str, str], rng: random.Random
    ) -> None:
        self.directory, self._mode, self._options, self._rng = directory, mode, options, rng
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self._environment = {**os.environ, **environment, "PYTHONPATH": path, "TMPDIR": str(directory / "tmp")}
        self.lives = 0
        self.seen: set[Process] = set()
        (directory / "tmp").mkdir()
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._child is not None:
            self.wait()
        self.lives += 1
        options = self._options | {name: self._rng.choice(values) for name, values in DRAWN.items()}
        (self.directory / "spec.json").write_text(json.dumps({"mode": self._mode, "options": options}))
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.programs.spark_kill_child", str(self.directory)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self._environment,
            )

    @property
    def log(self) -> Path:
        return self.directory / f"life-{self.lives:03d}.log"

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def family(self) -> list[Process]:
        found = descendants(self.pid)
        self.seen.update(found)
        return found

    def one(self, kind: str) -> Process | None:
        """A process of a kind, where there is one now."""
        family = self.family()
        commands = {one.pid: one.command for one in family}
        fits: dict[str, Callable[[Process], bool]] = {
            "jvm": lambda one: "org.apache.spark.deploy.SparkSubmit" in one.command,
            "runner": lambda one: "python_streaming_source_runner" in one.command,
            "worker": lambda one: "pyspark.daemon pyspark.worker" in commands.get(one.parent, ""),
        }
        return next(filter(fits[kind], family), None)

    def kill(self) -> None:
        """SIGKILL of the Python, in which the sinks are."""
        assert self._child is not None
        self.family()
        self._child.kill()
        self.wait()

    def wait(self) -> int:
        assert self._child is not None
        assert self._child.stdin is not None
        code = self._child.wait(PATIENCE)
        self._child.stdin.close()
        return code

    def remains(self) -> list[Process]:
        return [one for one in self.seen if one.is_alive()]

    def end(self) -> None:
        if self._child is not None:
            if self.is_running():
                self.kill()
            elif self._child.stdin is not None:
                self._child.stdin.close()
        for one in self.remains():
            one.kill()


# -- a run -------------------------------------------------------------------------------------------------------------


class Run:
    """A server under load, a driver that follows it, and faults."""

    #: Chunks of a snapshot for each fault, about, and how many of them are read at the earliest when it has come.
    CHUNKS, HELD = 10, 3

    def __init__(self, server: ThrowawayServer, directory: Path, mode: str, begin: str, seed: int, faults: int) -> None:
        self.server, self.directory, self.mode, self.begin = server, directory, mode, begin
        self.rng = random.Random(seed)
        server.query("SET GLOBAL max_binlog_size = 262144")  # so that a late restart finds whole files of backlog
        server.query("CREATE DATABASE bank CHARACTER SET utf8mb4")
        server.query(f"CREATE TABLE {TABLE} ({COLUMNS})")
        self.counter = targets(directory)["counter"]
        self.load = Load(server, seed, self.applied, slow=begin == "snapshot")
        options = {
            "host": server.host,
            "port": str(server.port),
            "user": server.user,
            "password": server.password,
            "table": TABLE,
        }
        if begin == "snapshot":
            self.load.fill(faults * self.CHUNKS * int(SNAPSHOT["chunkRows"]) // len(self.load.writers))
            options |= SNAPSHOT
        else:  # where a new checkpoint begins, too
            options["startingPosition"] = end_of_log(server).to_text()
        self.first_rows = self.select()
        java = java_home() if mode == "query" else None
        environment = {"JDK_JAVA_OPTIONS": JAVA_OPTIONS, **({"JAVA_HOME": java} if java else {})}
        self.driver = Driver(directory, mode, options, environment, self.rng)
        self.recoveries: list[tuple[str, float]] = []
        self.in_snapshot: list[str] = []
        self.chunks = 0

    def run(self, faults: list[str], later: list[str]) -> None:
        """With faults, and after a snapshot with later ones."""
        try:
            if self.begin == "snapshot":
                self.hold_chunks(0)
            self.driver.start()
            if self.begin == "snapshot":
                self.await_((self.directory / "checkpoint" / "offsets" / "0").exists, "the start to be pinned")
                self.chunks = self.chunks_left()
                self.hold_chunks(self.chunks // len(faults) - self.HELD)
            self.load.start()
            if self.begin == "stream":
                self.await_caught_up()
            self.endure(faults, self.begin == "snapshot")
            if later:
                self.await_(lambda: not self.chunks_left(), "the snapshot to end")
                self.load.hasten()
                self.await_caught_up()
                self.endure(later)
            self.load.stop()
            self.await_(lambda: self.applied() >= self.load.changes and self.is_level(), "the targets to hold everything")
            self.driver.kill()
            self.await_(lambda: not self.driver.remains(), "the processes of a killed driver to end", restart=False)
            assert list(self.directory.glob("tmp/canal-spool-*/*")) == []
        except BaseException:
            print(self.story())
            raise
        finally:
            self.load._stop.set()
            self.driver.end()

    def endure(self, faults: list[str], in_snapshot: bool = False) -> None:
        for number, kind in enumerate(faults):
            time.sleep(self.rng.uniform(0.1, 1.0 if len(faults) < 5 else 3.0))
            began = time.monotonic()
            self.fault(kind)
            if in_snapshot and number + 1 < len(faults):
                self.hold_chunks(self.chunks * (number + 2) // len(faults) - self.HELD)
            elif in_snapshot:
                (self.directory / "chunks").unlink()
            if len(faults) < 5 or number + 1 == len(faults) or self.rng.random() < 0.8:  # else the next comes upon it
                self.await_more()
                self.recoveries.append((kind, time.monotonic() - began))

    def hold_chunks(self, last: int) -> None:
        """Have the snapshot wait behind so many chunks for its next fault."""
        (self.directory / "chunks.new").write_text(str(last))
        (self.directory / "chunks.new").replace(self.directory / "chunks")

    def story(self) -> str:
        return f"{self.driver.log.name}: " + self.driver.log.read_text(errors="replace")[-6000:] if self.driver.lives else ""

    # -- faults

    def fault(self, kind: str) -> None:
        driver = self.driver
        if kind in ("driver", "checkpoint"):
            driver.kill()
            if kind == "checkpoint":
                self.await_(lambda: not driver.remains(), "the processes of a killed driver to end", restart=False)
                shutil.rmtree(self.directory / "checkpoint", ignore_errors=True)
        elif kind in ("before", "after"):
            name = "table" if self.chunks_left() else self.rng.choice(sorted(targets(self.directory)))
            (self.directory / "armed").write_text(f"{kind} {name}")
            self.await_(lambda: not driver.is_running(), f"an end {kind} a commit to {name}", restart=False)
            assert driver.wait() == 17
        else:
            found: list[Process] = []
            self.await_(lambda: bool(found.extend(filter(None, [driver.one(kind)])) or found), f"a {kind}")
            found[0].kill()
            if kind == "jvm":
                self.await_(lambda: not driver.is_running(), "a driver without its JVM to end", restart=False)
        if self.chunks_left():
            self.in_snapshot.append(kind)
        if not driver.is_running():
            driver.start()

    # -- waiting

    def chunks_left(self) -> int:
        """Chunks that are in no batch yet: those behind the last offset of the checkpoint."""
        numbers = [int(path.name) for path in self.directory.glob("checkpoint/offsets/[0-9]*") if path.name.isdigit()]
        if not numbers or self.mode != "query":
            return 0
        lines = (self.directory / "checkpoint" / "offsets" / str(max(numbers))).read_text().splitlines()
        offset = json.loads(lines[-1])
        return offset["plan"]["count"] - offset["done"] if offset["ph"] == "snap" else 0

    def await_more(self) -> None:
        """The driver goes on: two batches of a snapshot, else all that is committed by now."""
        left = self.chunks_left()
        if left > 2:
            self.await_(lambda: self.chunks_left() < left - 2, "more chunks")
        else:
            self.await_caught_up()

    def applied(self) -> int:
        return sum(count for count, _ in self.counter.read().values())

    def is_level(self) -> bool:
        """Whether all targets are at one position."""
        positions = {sink.progress() for sink in sinks(self.directory, mortal=False).values()}
        return len({one and one.table.last_change for one in positions}) == 1

    def await_caught_up(self) -> None:
        """All that is committed by now is in the targets, and the driver goes on."""
        wanted = self.load.changes + 1
        self.await_(lambda: self.applied() >= wanted, "the targets to go on")

    def await_(self, ready: Callable[[], bool], what: str, restart: bool = True) -> None:
        deadline = time.monotonic() + PATIENCE
        while not ready():
            assert time.monotonic() < deadline, f"waited {PATIENCE:g} s for {what}"
            assert not restart or self.driver.is_running(), f"the driver ended while waiting for {what}"
            if self.load.failure is not None:
                raise self.load.failure
            time.sleep(0.1)
        if self.driver.is_running():
            self.driver.family()

    # -- the verdict

    def check(self) -> None:
        expected = {op: tuple(counts) for op, counts in self.load.counts.items()}
        assert self.counter.read() == expected
        source = self.select()
        assert differences(source, list(rows_of(self.directory / "table"))) == []
        assert differences(source, replayed(self.first_rows, list(rows_of(self.directory / "history")), expected)) == []

    def select(self) -> dict[int, dict[str, Any]]:
        """All rows of the source's table by their key."""
        options = {"init_command": "SET time_zone = '+00:00'", "cursorclass": pymysql.cursors.DictCursor}
        with self.server.connect(**options) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {TABLE}")
            return {row["id"]: row for row in cursor.fetchall()}

    def report(self) -> str:
        batches = [json.loads(line) for line in (self.directory / "batches").read_text().splitlines()]
        full = [one for one in batches if one["rows"]]
        again = sum(
            one["id"] == two["id"] or two["first"][1] >= 0 and two["first"] <= one["last"] for one, two in zip(full, full[1:])
        )
        split = sum(one["last"][0] == two["first"][0] and one["last"] < two["first"] for one, two in zip(full, full[1:]))
        times = collections.defaultdict(list)
        for kind, seconds in self.recoveries:
            times[kind].append(seconds)
            times["all"].append(seconds)
        lines = [f"  {kind}: {spread(some)}" for kind, some in sorted(times.items())]
        return "\n".join(
            [
                f"{self.mode} from {self.begin} on {self.server.kind} {self.server.version}: {self.load.transactions} "
                "transactions, "
                f"{self.load.changes} changes; {self.driver.lives} lives, {len(full)} batches with rows, {again} of them begin "
                f"in what was given before, {split} cuts inside a transaction; faults in a snapshot: "
                f"{' '.join(self.in_snapshot)}; "
                "recoveries in seconds",
                *lines,
            ]
        )


def spread(values: list[float]) -> str:
    values = sorted(values)
    low, middle, high = values[0], values[len(values) // 2], values[-1]
    return f"{len(values)}, least {low:.1f}, median {middle:.1f}, p90 {values[int(0.9 * len(values))]:.1f}, most {high:.1f}"


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    import deltalake

    yield from deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist()


def differences(expected: dict[int, dict[str, Any]], rows: list[dict[str, Any]]) -> list[str]:
    """Rows that are in one of two tables only, or of which a value differs."""
    got = {row["id"]: row for row in rows}
    found = ["a key is there twice"] if len(got) != len(rows) else []
    found += [f"{id} is {'missing' if id in expected else 'too many'}" for id in sorted(expected.keys() ^ got.keys())]
    for id in expected.keys() & got.keys():
        wrong = [name for name, value in expected[id].items() if not same_value(name, value, got[id][name])]
        found += [f"{id}: {name} is {got[id][name]!r}, not {expected[id][name]!r}" for name in wrong]
    return found


def replayed(
    rows: dict[int, dict[str, Any]], history: list[dict[str, Any]], expected: dict[str, tuple[int, int]]
) -> list[dict[str, Any]]:
    """The rows as a history leaves them, each change of which is there once and finds the row that the one before left."""
    history.sort(key=lambda row: (row["_txn"], row["_ord"]))
    positions = collections.Counter((row["_txn"], row["_ord"]) for row in history)
    assert [position for position, count in positions.items() if count > 1] == []
    assert collections.Counter(row["_op"] for row in history) == {op: count for op, (count, _) in expected.items()}
    for change in history:
        row = {name: value for name, value in change.items() if not name.startswith("_")}
        if change["_op"] != "I":
            old = {name: value for name, value in (change["_before"] or row).items() if not name.startswith("_")}
            assert differences({old["id"]: rows.pop(old["id"])}, [old]) == []
        if change["_op"] != "D":
            assert row["id"] not in rows
            rows[row["id"]] = row
    return list(rows.values())


# -- tests -------------------------------------------------------------------------------------------------------------

#: "before" and "after" end the process around a commit; "checkpoint" is a kill after which the checkpoint is gone.
KINDS = ("driver", "jvm", "runner", "worker", "before", "after", "checkpoint")
FEW = {"mariadb": (["worker", "runner"], ["jvm", "before"]), "mysql": (["runner", "after"], ["worker", "driver"])}
#: Starts of Spark take most of the time: in `make test` a run has one fault while its snapshot is read, and one later;
#: test_live.py kills readers and workers, and the loop its driver.
DAILY = ["after"], ["jvm"]
BEGINS = ["stream", "snapshot"] if os.environ.get("CANAL_SOAK") == "full" else ["snapshot"]


def drawn(rng: random.Random, kinds: tuple[str, ...], count: int) -> list[str]:
    """So many faults, each kind as often as the others or once more."""
    faults = list(itertools.islice(itertools.cycle(rng.sample(kinds, len(kinds))), count))
    rng.shuffle(faults)
    return faults


def torment(run: Run, faults: list[str], later: list[str]) -> None:
    print("faults", *faults, *later)
    run.run(faults, later)
    print(run.report())
    run.check()


@pytest.fixture
def seed(full_size: bool) -> int:
    made = int(os.environ.get("CANAL_SEED") or (random.randrange(1 << 32) if full_size else 1))
    print(f"CANAL_SEED={made}")
    return made


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.daily_on("mysql")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("begin", BEGINS)
def test_a_killed_query_applies_each_change_once(
    own_server: ThrowawayServer, tmp_path: Path, full_size: bool, thorough: bool, seed: int, begin: str
) -> None:
    kinds, count = (KINDS, 30) if begin == "stream" else (KINDS[:-1], 12)  # a new checkpoint would begin a new snapshot
    full = drawn(random.Random(seed), kinds, count), list[str]()
    faults, later = full if full_size else FEW[own_server.kind] if thorough else DAILY
    run = Run(own_server, tmp_path, "query", begin, seed, len(faults))
    torment(run, faults, later)
    if begin == "snapshot":
        assert run.in_snapshot == faults


@pytest.mark.slow
@pytest.mark.daily_on("mariadb")
@pytest.mark.timeout(1800)
def test_a_killed_loop_applies_each_change_once(own_server: ThrowawayServer, tmp_path: Path, full_size: bool, seed: int) -> None:
    faults = drawn(random.Random(seed), ("driver", "before", "after", "checkpoint"), 30 if full_size else 4)
    torment(Run(own_server, tmp_path, "loop", "stream", seed, len(faults)), faults, [])
