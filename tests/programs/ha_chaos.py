"""A fault run of high availability: three processes embed one destination, and owner, ensemble and network fail at random.

    python -m tests.programs.ha_chaos [--seed N] [--faults COUNT] [--minutes M] [--record FILE]

Never looks inside the library for its verdict: the processes write down what they got and what was acked, and
``tests.support.ha_journal`` judges that. A failure prints the seed, and keeps the journals and logs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import pickle
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from canal.position import journal_key
from canal.testing.proxy import FaultProxy
from canal.testing.servers import MariaDBServer, ThrowawayServer
from canal.testing.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from tests.programs.reliability import write_result
from tests.support.ha_journal import LogPosition, Verdict, append, iter_lives, judge, read_records, split_records
from tests.support.journal import check, compare_tables, replay
from tests.support.live import end_of_log
from tests.support.load import Load

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ("--binlog-row-metadata=FULL",)
SCHEMA = "load"
DESTINATION = "tormented"
PROCESSES = 3
#: Seconds.
SESSION = 1.5
TAKEOVER = 0.3
#: What asks a process for something.
_ASKING = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGRTMIN)
#: Seconds that the processes have to ack something new after a fault.
PATIENCE = 60.0


class ChaosError(AssertionError):
    """The run has shown a fault of the library."""


class Embedder:
    """A slot for an embedding process: its network, and its lives one after the other."""

    def __init__(self, run: Run, number: int) -> None:
        self.run = run
        self.number = number
        self.database = FaultProxy(run.server.host, run.server.port).start()
        self.coordination = [FaultProxy("127.0.0.1", member.port).start() for member in run.ensemble.members]
        self.process: subprocess.Popen[bytes] | None = None
        self.session: tuple[int, bytes] | None = None
        self.is_ready = False
        self.is_subscribed = False
        self.epoch = 0
        self.last: LogPosition = (-1, 0, 0)
        self.acked = 0
        self.settled: LogPosition = (-1, 0, 0)
        self.errors: collections.Counter[str] = collections.Counter()
        self.stops = 0
        self._path = Path()
        self._read = 0
        self._ends: dict[tuple[int, int], LogPosition] = {}

    def start(self) -> None:
        self._path = self.run.directory / f"life-{self.run.lives:04d}"
        self.run.lives += 1
        self._read = 0
        self._ends.clear()
        self.session = None
        self.is_ready = False
        self._path.touch()
        options = {
            "output": str(self._path),
            "destination": DESTINATION,
            "schema": SCHEMA,
            "port": self.database.port,
            "user": self.run.server.user,
            "password": self.run.server.password,
            "session_timeout": SESSION,
            "hosts": ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.coordination),
            "takeover_delay": TAKEOVER,
            "seed": self.run.rng.randrange(1 << 32),
        }
        with open(f"{self._path}.out", "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.programs.ha_child", json.dumps(options)], cwd=ROOT, stdout=output, stderr=output
            )

    def send(self, sent: signal.Signals) -> None:
        assert self.process is not None
        if sent in _ASKING and not self.is_ready:
            return  # its handlers are not there yet: it would end it
        self.process.send_signal(sent)

    def end(self, sent: signal.Signals = signal.SIGKILL) -> None:
        """Kill it, or let it stop in order."""
        if self.process is not None:
            self.send(sent)
            deadline = time.monotonic() + PATIENCE
            try:
                while self.process.poll() is None:
                    if time.monotonic() > deadline:
                        raise ChaosError(f"process {self._path.name} does not end on {sent.name}")
                    self.send(signal.SIGCONT)
                    time.sleep(0.02)
            finally:
                self.process.kill()
                self.process.wait()
                self.process = None
                self._read_on()

    @property
    def is_stopped(self) -> bool:
        """By SIGSTOP, its own or the run's."""
        if self.process is None or self.process.poll() is not None:
            return False
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def close(self) -> None:
        with contextlib.suppress(ChaosError):
            self.end()
        for proxy in (self.database, *self.coordination):
            proxy.stop()

    def read(self) -> None:
        """What it has written since the last look."""
        if self.process is None:
            return
        self._read_on()
        if self.process.poll() is not None:
            text = Path(f"{self._path}.out").read_text()[-3000:]
            raise ChaosError(f"process {self._path.name} has ended by itself, {self.process.returncode}: {text}")

    def _read_on(self) -> None:
        with open(self._path, "rb") as file:
            file.seek(self._read)
            records, size = split_records(file.read())
        self._read += size
        for kind, *values in records:
            if kind == "START":
                self.is_ready = True
            elif kind == "GOT":
                self.epoch = values[0]
                self._ends[values[0], values[1]] = values[4]
            elif kind == "SESSION":
                self.session = (values[0], values[1])
            elif kind == "SUBSCRIBED":
                self.is_subscribed = True
            elif kind == "ERROR":
                self.errors[f"{values[0]}: {values[1][:120]}"] += 1
            elif kind == "ACKED":
                self.acked += 1
                self.settled = max(self.settled, self._ends[values[0], values[1]])
        self.last = max([self.last, *(values[4] for kind, *values in records if kind == "GOT")])


@attrs.define(eq=False)
class Run:
    """One run: the parts, and how often each fault was done."""

    server: ThrowawayServer
    ensemble: ZooKeeperEnsemble
    directory: Path
    rng: random.Random
    journal: int
    lives: int = 0
    faults: int = 0
    counts: collections.Counter[str] = attrs.field(factory=collections.Counter)
    embedders: list[Embedder] = attrs.field(factory=list)

    def read(self) -> None:
        for embedder in self.embedders:
            embedder.read()

    @property
    def acked(self) -> int:
        return sum(embedder.acked for embedder in self.embedders)

    @property
    def last(self) -> LogPosition:
        """Up to where everything was delivered once."""
        return max(one.last for one in self.embedders)

    @property
    def owner(self) -> Embedder:
        """The one that delivered last."""
        self.read()
        return max(self.embedders, key=lambda one: one.epoch)

    def standby(self) -> Embedder:
        owner = self.owner
        return self.rng.choice([one for one in self.embedders if one is not owner])

    def note_death(self, kind: str, epoch: int) -> None:
        append(self.journal, "DEATH", time.monotonic(), epoch, kind)

    def one(self, kind: str = "") -> None:
        """Do one fault, by default any, and wait until deliveries are acked again."""
        kind = kind or self.rng.choices(list(FAULTS), [weight for weight, _ in FAULTS.values()])[0]
        began = time.monotonic()
        append(self.journal, "FAULT", began, kind)
        FAULTS[kind][1](self)
        append(self.journal, "OVER", time.monotonic(), kind)
        self.faults += 1
        self.counts[kind] += 1
        self.await_progress(f"after fault {self.faults}, {kind}")
        append(self.journal, "MENDED", time.monotonic(), kind)
        self.pause(0.0, 0.5)

    def await_progress(self, when: str) -> None:
        """A few acks: the first ones may be what was under way."""
        self.read()
        target = self.acked + 3
        self.await_(lambda: self.acked >= target, f"acks {when}")

    def await_(self, ready: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not ready():
            if time.monotonic() > deadline:
                raise ChaosError(f"waited {patience:g} s for {what}")
            time.sleep(0.02)
            self.read()
            for one in self.embedders:
                if one.is_stopped:  # it has come to its step after the fault
                    one.send(signal.SIGCONT)

    def pause(self, least: float, most: float) -> None:
        time.sleep(self.rng.uniform(least, most))


# -- faults ------------------------------------------------------------------------------------------------------------


def _kill_owner(run: Run) -> None:
    owner = run.owner
    run.note_death("killed", owner.epoch)
    owner.end()
    run.pause(0.0, 2 * SESSION)
    owner.start()


def _stop_owner_in_order(run: Run) -> None:
    owner = run.owner
    run.note_death("stopped in order", owner.epoch)
    owner.end(signal.SIGTERM)
    run.pause(0.0, SESSION)
    owner.start()


def _kill_standby(run: Run) -> None:
    standby = run.standby()
    standby.end()
    run.pause(0.0, SESSION)
    standby.start()


def _freeze(shortest: float, longest: float) -> Callable[[Run], None]:
    """SIGSTOP for a part of the session's time."""

    def freeze(run: Run) -> None:
        owner = run.owner
        if shortest > 1:
            run.note_death("frozen", owner.epoch)
        owner.send(signal.SIGSTOP)
        run.pause(shortest * SESSION, longest * SESSION)
        owner.send(signal.SIGCONT)

    return freeze


def _stop_between_steps(run: Run) -> None:
    """The owner stops itself where it is about to take a step of a get or an ack, past its session."""
    owner = run.owner
    owner.send(signal.SIGUSR2)
    _hold_stopped(run, [owner])


def _stop_claim(run: Run) -> None:
    """The next owner stops itself where it is about to take a step of its claim; the one behind it may go on."""
    owner = run.owner
    others = [one for one in run.embedders if one is not owner]
    for one in others:
        one.send(signal.SIGRTMIN)
    run.note_death("killed, and the next one stopped at a step of its claim", owner.epoch)
    owner.end()
    _hold_stopped(run, others)
    owner.start()


def _hold_stopped(run: Run, embedders: list[Embedder]) -> None:
    """Wait until one of them has stopped itself, and let it go on when its session is over."""
    deadline = time.monotonic() + 2 * SESSION
    while not (stopped := [one for one in embedders if one.is_stopped]) and time.monotonic() < deadline:
        time.sleep(0.005)
    for one in stopped:
        one.stops += 1
        if one is run.owner:
            run.note_death("stopped between two steps", one.epoch)
    run.pause(1.2 * SESSION, 2.5 * SESSION)
    for one in stopped:
        one.send(signal.SIGCONT)


def _close_session(run: Run) -> None:
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import KazooTimeoutError

    owner = run.owner
    if owner.session is None:
        return
    run.note_death("session closed", owner.epoch)
    for _ in range(5):
        killer = KazooClient(hosts=run.ensemble.hosts, client_id=owner.session, timeout=SESSION)
        try:
            killer.start(timeout=20)
            return
        except KazooTimeoutError:
            pass  # or the owner has taken its session back at that moment
        finally:
            killer.stop()
            killer.close()
    raise ChaosError("the ensemble lets nobody close a session")


def _cut(shortest: float, longest: float, database: bool) -> Callable[[Run], None]:
    """Nothing more passes for a part of the session's time, and no connection ends by it."""

    def cut(run: Run) -> None:
        owner = run.owner
        proxies = [*owner.coordination, *([owner.database] if database else [])]
        if shortest > 1:
            run.note_death("cut off" if database else "cut off from ZooKeeper", owner.epoch)
        for proxy in proxies:
            proxy.blackhole()
        run.pause(shortest * SESSION, longest * SESSION)
        for proxy in proxies:
            proxy.blackhole(False)

    return cut


def _reset(run: Run) -> None:
    """Connections with ZooKeeper end, and no new ones are let in for a while."""
    owner = run.owner
    for proxy in owner.coordination:
        proxy.refuse()
        proxy.cut()
    run.pause(0.0, 2 * SESSION)
    for proxy in owner.coordination:
        proxy.refuse(False)


def _release(run: Run) -> None:
    owner = run.owner
    run.note_death("released", owner.epoch)
    owner.send(signal.SIGUSR1)


def _retire(run: Run) -> None:
    """What canal's operators do: active=false in the running node."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException

    owner = run.owner
    client = KazooClient(hosts=run.ensemble.hosts, timeout=10.0)
    client.start(timeout=PATIENCE)
    try:
        path = f"/otter/canal/destinations/{DESTINATION}/running"
        with contextlib.suppress(KazooException):
            data, stat = client.get(path)
            document = json.loads(data) | {"active": False}
            run.note_death("active=false", owner.epoch)
            client.set(path, json.dumps(document).encode(), stat.version)
    finally:
        client.stop()
        client.close()


def _members(choose: Callable[[Run], list[ZooKeeperServer]], owner_too: bool = False) -> Callable[[Run], None]:
    """Kill members of the ensemble; they come back after a while."""

    def kill(run: Run) -> None:
        owner = run.owner
        chosen = choose(run)
        for member in chosen:
            member.kill()
        if owner_too:
            run.note_death("killed with the leader", owner.epoch)
            owner.end()
        run.pause(0.0, 2 * SESSION)
        if len(chosen) == 1 and run.rng.random() < 0.5:
            if owner_too:
                owner.start()
            run.await_progress("with a member down")
        for member in chosen:
            member.launch()
        for member in chosen:
            member.wait_serving()
        if owner_too and owner.process is None:
            owner.start()

    return kill


def _follower(run: Run) -> list[ZooKeeperServer]:
    leader = run.ensemble.leader()
    return [run.rng.choice([one for one in run.ensemble.members if one is not leader])]


#: Kind of fault -> how often beside the others, and what to do.
FAULTS: dict[str, tuple[int, Callable[[Run], None]]] = {
    "owner killed": (24, _kill_owner),
    "owner stopped in order": (4, _stop_owner_in_order),
    "standby killed": (4, _kill_standby),
    "owner frozen, less than its session": (6, _freeze(0.1, 0.6)),
    "owner frozen, longer than its session": (12, _freeze(1.2, 2.5)),
    "owner stopped between two steps": (30, _stop_between_steps),
    "next owner stopped between two steps of its claim": (16, _stop_claim),
    "session closed by id": (8, _close_session),
    "owner cut off, less than its session": (4, _cut(0.1, 0.6, True)),
    "owner cut off, longer": (8, _cut(1.3, 3.0, True)),
    "owner cut off from ZooKeeper only, less": (4, _cut(0.1, 0.6, False)),
    "owner cut off from ZooKeeper only, longer": (10, _cut(1.3, 3.0, False)),
    "connections with ZooKeeper refused": (5, _reset),
    "release": (4, _release),
    "active=false": (3, _retire),
    "follower killed": (5, _members(_follower)),
    "leader killed": (8, _members(lambda run: [run.ensemble.leader()])),
    "majority killed": (3, _members(lambda run: run.rng.sample(run.ensemble.members, 2))),
    "leader and owner killed": (5, _members(lambda run: [run.ensemble.leader()], owner_too=True)),
}


# -- the run -----------------------------------------------------------------------------------------------------------


def torment(
    server: ThrowawayServer,
    ensemble: ZooKeeperEnsemble,
    seed: int,
    faults: int,
    seconds: float = 1e9,
    results: Path | None = None,
    kinds: Sequence[str] = (),
) -> str:
    """Run so many faults, or until the time is over; gives the report. The server was started with ``OPTIONS``.

    The first ones are of these ``kinds``, whatever time that takes. What was found, good or bad, is added to ``results``.

    Raises:
        ChaosError: what went wrong, and the command that repeats the run.
    """
    line = f"python -m tests.programs.ha_chaos --seed {seed} --faults {faults}"
    print(line, flush=True)
    directory = Path(tempfile.mkdtemp(prefix="canal-ha-"))
    try:
        report = _torment(server, ensemble, directory, seed, faults, seconds, results, kinds)
    except Exception as error:
        raise ChaosError(f"{error!r}\nseed {seed}; again with: {line}\njournals and logs: {directory}") from error
    shutil.rmtree(directory)
    return report


def _torment(
    server: ThrowawayServer,
    ensemble: ZooKeeperEnsemble,
    directory: Path,
    seed: int,
    faults: int,
    seconds: float,
    results: Path | None,
    kinds: Sequence[str],
) -> str:
    began = told = time.monotonic()
    load = Load(server, SCHEMA, seed=seed, sessions=3, pause=0.06, ddl_interval=1.0)
    load.setup()
    with set_up(server, ensemble, directory, seed) as run:
        run.embedders[0].start()
        run.await_(lambda: run.embedders[0].is_subscribed, "the first process to subscribe")
        for embedder in run.embedders[1:]:
            embedder.start()
        time.sleep(1.0)
        with load:
            run.await_progress("at the start")
            for kind in kinds:
                run.one(kind)
            while run.faults < faults and time.monotonic() < began + seconds:
                run.one()
                if time.monotonic() > told + 10:
                    told = time.monotonic()
                    print(f"{told - began:.0f} s, {run.faults} faults, {run.acked} acks", flush=True)
        position = end_of_log(server)
        end = (journal_key(position.journal)[1], position.offset, 0)
        while (last := run.last) < end:  # however long it takes: the machine may be slow
            run.await_(lambda: run.last > last, f"what is delivered to reach {end}, behind {last}")  # noqa: B023
        with contextlib.suppress(ChaosError):  # an ack whose answer was lost may be the last one
            run.await_(lambda: max(one.settled for one in run.embedders) >= end, "the last ack", 10.0)
        for embedder in run.embedders:
            embedder.end(signal.SIGTERM)
        (directory / "load").write_bytes(pickle.dumps((load.journal, load.final_tables())))
        verdict, found = examine(directory)
        took = time.monotonic() - began
        text = report(run, verdict, took)
        print(text, flush=True)
        if results is not None:
            source = {"seed": seed, "server": f"{server.kind} {server.version}", "seconds": round(took)}
            write_result(results, source | figures(verdict) | {"compared": True, "wrong": found[:20]})
        if found:
            raise ChaosError("\n".join([f"{len(found)} differences:", *found[:20]]))
        return text


@contextlib.contextmanager
def set_up(server: ThrowawayServer, ensemble: ZooKeeperEnsemble, directory: Path, seed: int) -> Iterator[Run]:
    with open(directory / "run", "wb", buffering=0) as journal:
        run = Run(server, ensemble, directory, random.Random(seed), journal.fileno())
        try:
            for number in range(PROCESSES):
                run.embedders.append(Embedder(run, number))
            yield run
        finally:
            for embedder in run.embedders:
                embedder.close()


def examine(directory: Path) -> tuple[Verdict, list[str]]:
    """The verdict on the journals of a directory, and everything that is wrong."""
    verdict = judge(list(iter_lives(directory)), read_records(directory / "run"))
    if not (directory / "load").exists():  # the run did not come to its end
        return verdict, verdict.violations
    journal, tables = pickle.loads((directory / "load").read_bytes())
    found = verdict.violations + check(journal, verdict.changes)
    replayed, misfits = replay(journal, verdict.changes)
    return verdict, found + misfits + compare_tables(tables, replayed)


def figures(verdict: Verdict) -> dict[str, Any]:
    """What docs/reliability.md tells of a run. Times are seconds, one for each fault."""
    counts = ("processes", "batches", "epochs", "accepted", "refused", "doubtful", "repeated")
    return {
        "kind": "high availability",
        "faults": dict(verdict.faults),
        "changes": len(verdict.changes),
        "held": verdict.steps.total(),
        "steps": len(verdict.steps),
        "session": SESSION,
        "takeover": TAKEOVER,
        **{name: getattr(verdict, name) for name in counts},
        "waits": {kind: [round(one, 3) for one in waits] for kind, waits in verdict.waits.items()},
        "mended": {kind: [round(one, 3) for one in waits] for kind, waits in verdict.mended.items()},
    }


def report(run: Run, verdict: Verdict, seconds: float) -> str:
    lines = [f"{name:50}{run.counts[name]:6}" for name in FAULTS]
    lines.append(
        f"{run.faults} faults in {seconds:.0f} s, {run.lives} lives, {verdict.epochs} epochs that delivered, "
        f"{verdict.batches} batches, {len(verdict.changes)} changes, {verdict.repeated} of them came again, "
        f"acks: {verdict.accepted} accepted, {verdict.refused} refused, {verdict.doubtful} without an answer"
    )
    lines.append(f"seconds to the next owner's first batch (session {SESSION} s, takeover_delay {TAKEOVER} s):")
    lines.append(f"{'':26}{'count':>6}{'min':>8}{'median':>8}{'p95':>8}{'max':>8}")
    for kind, waits in verdict.waits.items():
        ordered = sorted(waits)
        p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
        figures = (ordered[0], statistics.median(ordered), p95, ordered[-1])
        lines.append(f"{kind:26}{len(ordered):6}" + "".join(f"{figure:8.2f}" for figure in figures))
    errors: collections.Counter[str] = collections.Counter()
    for embedder in run.embedders:
        errors.update(embedder.errors)
    lines += [f"{count:6} x {text}" for text, count in errors.most_common(12)]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.ha_chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=1e7, help="end sooner")
    parser.add_argument("--examine", type=Path, help="judge the journals of an earlier run again")
    parser.add_argument("--record", type=Path, help="add what was found to this file, for docs/reliability.md")
    options = parser.parse_args()
    if options.examine:
        verdict, found = examine(options.examine)
        print("\n".join(found) or "nothing is wrong", verdict.waits, sep="\n")
        if options.record is not None:
            is_compared = (options.examine / "load").exists()
            write_result(options.record, figures(verdict) | {"compared": is_compared, "wrong": found[:20]})
        return bool(found)
    with MariaDBServer(*OPTIONS) as server, ZooKeeperEnsemble() as ensemble:
        try:
            torment(server, ensemble, options.seed, options.faults, 60 * options.minutes, options.record)
        except ChaosError as error:
            print(f"FAILED: {error}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
