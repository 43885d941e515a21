"""A fault run: a real server under load, a consumer behind the fault proxy, and faults at random, one after the other.

    python -m tests.programs.chaos --seed N --minutes M [--server mariadb|mysql] [--faults COUNT]

Never takes a look inside the library for its verdict: what the consumer has acked must be what the load has committed,
each change once and in order, with the values that SELECT gave; and each byte that was changed on the way of the
replication stream must be told of. A failure prints the seed and the command that repeats the run.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import random
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import attrs

import canal
from canal.alarm import AlarmDesk
from canal.testing.proxy import FaultProxy
from canal.testing.servers import MariaDBServer, MySQLServer, ThrowawayServer
from tests.support.journal import Change, changes_of, check, compare_tables, replay
from tests.support.live import end_of_log, is_behind
from tests.support.load import Load

SERVERS = {"mariadb": MariaDBServer, "mysql": MySQLServer}
METADATA = ("--binlog-row-metadata=FULL",)
OPTIONS = ("--binlog-checksum=CRC32", "--max-binlog-size=1048576")
SCHEMA = "load"
_DUMPS = (0x12, 0x1E)  # COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID
#: Seconds after which a silent connection is a lost one: three heartbeats.
HEARTBEAT = 0.3
#: Seconds that the consumer has to ack something new after a fault, and that damage has to be told of.
PATIENCE = 60.0


class ChaosError(AssertionError):
    """The run has shown a fault of the library."""


# -- the consumer ------------------------------------------------------------------------------------------------------


class Source:
    """The server behind the proxy; knows the port of the connection that streams, and can be told to damage the next."""

    def __init__(self, proxy: FaultProxy, server: ThrowawayServer, ssl_mode: str) -> None:
        self._proxy = proxy
        self._source = canal.MySQLSource(
            host=proxy.host,
            port=proxy.port,
            user=server.user,
            password=server.password,
            ssl_mode=ssl_mode,
            get_server_public_key=True,
            heartbeat_interval=HEARTBEAT,
            connect_timeout=1.0,
            read_timeout=2.0,
            seek_timeout=5.0,
        )
        self.address = self._source.address
        self.port = 0
        self.opening: tuple[int, int] | None = None

    def connect(self, server_id_hint: int | None = None) -> Any:
        connection: Any = self._source.connect(server_id_hint)
        login = connection._login.connection
        execute = login._execute_command

        def execute_and_tell(command: int, payload: Any) -> None:
            if command in _DUMPS:
                self.port = login._sock.getsockname()[1]
                opening, self.opening = self.opening, None
                if opening is not None:
                    self._proxy.corrupt_after(opening[0], self.port, opening[1])
            execute(command, payload)

        login._execute_command = execute_and_tell
        return connection


class Consumer:
    """Gets, acks, rolls back, and is started anew from its FileMeta now and then; keeps what it has acked."""

    def __init__(self, server: ThrowawayServer, proxy: FaultProxy, directory: Path, rng: random.Random) -> None:
        self._server = server
        self._proxy = proxy
        self._directory = directory
        self._rng = rng
        self.acked: list[Change] = []
        self.batches = 0
        self.rollbacks = 0
        self.lives = 0
        self.alarms: list[str] = []
        self.stops: list[canal.CanalError] = []
        self.failure: BaseException | None = None
        self.restart = threading.Event()
        self._leaving = threading.Event()
        self._target: canal.Position | None = None
        self._start()
        self.instance.subscribe()
        self._thread = threading.Thread(target=self._guard, name="chaos-consumer", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        self.source = Source(self._proxy, self._server, self._rng.choice(["DISABLED"] * 4 + ["PREFERRED"]))
        self.instance = canal.Instance(
            canal.InstanceConfig(
                destination="chaos",
                source=self.source,
                filter=SCHEMA + r"\..*",
                meta=canal.FileMeta(self._directory),
                reconnect_backoff=(0.02, 0.2),
                store_bytes=1 << 20,
                alarm=lambda *_: None,
            )
        )
        life = self

        class Desk(AlarmDesk):
            """Keeps what is not told again since it was told a short time ago."""

            def tell(self, kind: canal.AlarmKind, text: str, key: str = "") -> None:
                life.source.port = 0
                life.alarms.append(text)
                super().tell(kind, text, key)

        with mock.patch("canal.parse.run.AlarmDesk", Desk):
            self.instance.start()
        self.lives += 1

    def _guard(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.failure = error
        finally:
            self.instance.stop()

    def _run(self) -> None:
        in_hand: collections.deque[tuple[int, list[Change]]] = collections.deque()
        while not self._leaving.is_set():
            if self.restart.is_set():
                self.restart.clear()
                in_hand.clear()
                self.instance.stop()
                self._start()
            target = self._target
            try:
                message = self.instance.get_without_ack(self._rng.choice((1, 20, 200)), timeout=0.2)
            except canal.CanalError as error:  # an operator looks at it, and starts again
                self.stops.append(error)
                self.restart.set()
                time.sleep(0.05)
                continue
            if message:
                in_hand.append((message.id, list(changes_of(message.entries))))
                if self._rng.random() < 0.03:
                    self._roll_back(in_hand)
            while in_hand and (not message or len(in_hand) > 4 or self._rng.random() < 0.6):
                number, changes = in_hand.popleft()
                self.instance.ack(number)
                self.acked += changes
                self.batches += 1
            if not message and not in_hand and target is not None and is_behind(self.instance, target):
                return

    def _roll_back(self, in_hand: collections.deque[tuple[int, list[Change]]]) -> None:
        """Everything, or from one of the batches on."""
        self.rollbacks += 1
        keep = self._rng.randrange(len(in_hand) + 1)
        if keep == 0 or keep == len(in_hand):
            self.instance.rollback()
            in_hand.clear()
            return
        self.instance.rollback(in_hand[keep][0])
        while len(in_hand) > keep:
            in_hand.pop()

    def leave(self) -> None:
        """Stop, wherever it is."""
        self._leaving.set()
        self._thread.join(PATIENCE)

    def finish(self, target: canal.Position) -> None:
        """Read and ack everything up to the target."""
        self._target = target
        self._thread.join(2 * PATIENCE)
        if self.failure is not None:
            raise self.failure
        if self._thread.is_alive():
            raise ChaosError(f"not at {target} {2 * PATIENCE:g} s after the last fault, but at {self.instance.position()}")


# -- faults ------------------------------------------------------------------------------------------------------------


@attrs.define
class Run:
    """One run: the parts, and what has become of each fault."""

    server: ThrowawayServer
    proxy: FaultProxy
    consumer: Consumer
    rng: random.Random
    outcomes: dict[str, collections.Counter[str]] = attrs.field(factory=lambda: collections.defaultdict(collections.Counter))
    faults: int = 0

    def one(self) -> None:
        """Do one fault, see what comes of it, and wait until the consumer goes on."""
        kind = self.rng.choices(list(FAULTS), [weight for weight, _ in FAULTS.values()])[0]
        alarms = -1
        while alarms < 0 or not self.proxy.is_open(self.consumer.source.port):  # an earlier fault may still end it, and be told
            self.await_(lambda: self.proxy.is_open(self.consumer.source.port), "a stream to harm")
            alarms, stops, damaged = len(self.consumer.alarms), len(self.consumer.stops), self.proxy.damaged
        acked = len(self.consumer.acked)
        FAULTS[kind][1](self)
        self.faults += 1
        try:
            if kind in ON_THE_WIRE:
                cut = kind == "damage in a dump's head"  # the cut that leads to the dump is told of too

                def is_told() -> bool:
                    told = self.consumer.alarms[alarms:]
                    return len(told) > cut or any(text.startswith("damage") for text in told)

                self.await_(lambda: self.proxy.damaged > damaged or is_told(), "the damage")
                if self.proxy.damaged > damaged:
                    self.await_(is_told, "a word about the damage")
            elif kind in ALWAYS_TOLD:
                self.await_(lambda: len(self.consumer.alarms) > alarms, "a word about the lost connection")
            batches = self.consumer.batches
            self.await_(lambda: self.consumer.batches > batches, "the consumer to go on")
        except ChaosError as error:
            since = f"{len(self.consumer.acked) - acked} changes acked since, alarms: {self.consumer.alarms[alarms:]}"
            raise ChaosError(f"{error}, after fault {self.faults}, {kind}; {since}") from None
        told = self.consumer.alarms[alarms:]
        for error in self.consumer.stops[stops:]:
            if kind != "damage in a login":
                raise ChaosError(f"fault {self.faults}, {kind}, stopped the instance: {error!r}") from error
        if kind in ON_THE_WIRE and self.proxy.damaged == damaged:
            self.outcomes[kind]["did not happen"] += 1
        else:
            self.outcomes[kind][_outcome(told, len(self.consumer.stops) > stops)] += 1

    def await_(self, ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if self.consumer.failure is not None:
                raise self.consumer.failure
            if time.monotonic() > deadline:
                raise ChaosError(f"waited {PATIENCE:g} s for {what}")
            time.sleep(0.01)

    def pause(self, least: float, most: float) -> None:
        time.sleep(self.rng.uniform(least, most))

    def mask(self) -> int:
        """Bits to flip; never the lowest alone, which marks a log that is in use and means nothing to a reader."""
        return self.rng.randrange(2, 256) if self.rng.random() < 0.5 else 2 << self.rng.randrange(7)


def _outcome(told: list[str], stopped: bool) -> str:
    if stopped:
        return "stopped"
    if any(text.startswith("damage") for text in told):
        return "read again"
    return "reconnected" if told else "absorbed"


def _cut_after(run: Run) -> None:
    run.proxy.cut_after(run.rng.choice((1, 100, 5000, 50000)) + run.rng.randrange(100))


def _stall(run: Run) -> None:
    run.proxy.blackhole()
    run.pause(0.05, 5 * HEARTBEAT)
    run.proxy.blackhole(False)


def _half_open(run: Run) -> None:
    run.await_(lambda: run.proxy.hold(run.consumer.source.port), "a stream to hold")
    run.pause(3 * HEARTBEAT, 4 * HEARTBEAT)


def _slow(name: str, low: float, high: float) -> Callable[[Run], None]:
    def slow(run: Run) -> None:
        setattr(run.proxy, name, run.rng.uniform(low, high))
        run.pause(0.1, 0.8)
        setattr(run.proxy, name, 0.0)

    return slow


def _damage(sizes: Callable[[random.Random], int]) -> Callable[[Run], None]:
    def damage(run: Run) -> None:
        size, mask = sizes(run.rng), run.mask()
        run.await_(lambda: run.proxy.corrupt_after(size, run.consumer.source.port, mask), "a stream to damage")

    return damage


def _damage_opening(run: Run) -> None:
    run.consumer.source.opening = (run.rng.randrange(400), run.mask())
    run.proxy.cut()


def _damage_login(run: Run) -> None:
    run.proxy.corrupt_at(run.rng.randrange(2000))
    run.proxy.cut()


def _refuse(run: Run) -> None:
    run.proxy.refuse()
    run.proxy.cut()
    run.pause(0.05, 0.6)
    run.proxy.refuse(False)


def _start_anew(run: Run) -> None:
    lives = run.consumer.lives
    run.consumer.restart.set()
    run.await_(lambda: run.consumer.lives > lives, "the instance to start anew")


def _pause_server(run: Run) -> None:
    run.server.pause()
    run.pause(0.05, 5 * HEARTBEAT)
    run.server.resume()


def _kill_server(run: Run) -> None:
    run.server.kill()
    run.pause(0.0, 0.3)
    run.server.start()


#: Kind of fault -> how often beside the others, and what to do.
FAULTS: dict[str, tuple[int, Callable[[Run], None]]] = {
    "cut by RST": (10, lambda run: run.proxy.cut()),
    "cut by FIN": (10, lambda run: run.proxy.cut(fin=True)),
    "cut after n bytes": (12, _cut_after),
    "stall": (8, _stall),
    "half-open": (6, _half_open),
    "delay": (4, _slow("delay", 0.01, 0.2)),
    "rate limit": (4, _slow("rate", 2000.0, 50000.0)),
    "damage in the stream": (14, _damage(lambda rng: rng.randrange(5000))),
    "damage in a packet header": (14, _damage(lambda rng: rng.randrange(5))),
    "damage in a dump's head": (8, _damage_opening),
    "damage in a login": (4, _damage_login),
    "connections refused": (6, _refuse),
    "server restarted": (2, lambda run: run.server.restart() and None),
    "server killed": (3, _kill_server),
    "server paused": (5, _pause_server),
    "instance started anew": (8, _start_anew),
}
#: What ends a connection; and damage behind the login, each byte of which must be told of.
ALWAYS_TOLD = ("cut by RST", "cut by FIN", "half-open", "connections refused", "server restarted", "server killed")
ON_THE_WIRE = ("damage in the stream", "damage in a packet header", "damage in a dump's head")


# -- the run -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def set_up(server: ThrowawayServer, seed: int, directory: Path) -> Iterator[tuple[Run, Load]]:
    with FaultProxy(server.host, server.port) as proxy:
        load = Load(server, SCHEMA, seed=seed, sessions=3, pause=0.06, ddl_interval=1.0)
        load.setup()
        consumer = Consumer(server, proxy, directory, random.Random(f"{seed} consumer"))
        try:
            yield Run(server, proxy, consumer, random.Random(seed)), load
        finally:
            consumer.leave()


def torment(server: ThrowawayServer, seed: int, minutes: float, faults: int | None = None) -> str:
    """Run until the time is over or so many faults are done; gives the table. The server was started with ``OPTIONS``.

    Raises:
        ChaosError: what went wrong, and the command that repeats the run.
    """
    command = ["python", "-m", "tests.programs.chaos", "--seed", seed, "--minutes", minutes, "--server", server.kind]
    command += ["--faults", faults] if faults else []
    line = shlex.join(map(str, command))
    print(line, flush=True)
    try:
        return _torment(server, seed, minutes, faults)
    except Exception as error:
        raise ChaosError(f"{error!r}\nseed {seed}; again with: {line}") from error


def _torment(server: ThrowawayServer, seed: int, minutes: float, faults: int | None) -> str:
    began = told = time.monotonic()
    with tempfile.TemporaryDirectory() as directory, set_up(server, seed, Path(directory)) as (run, load):
        with load:
            while time.monotonic() < began + 60 * minutes and (faults is None or run.faults < faults):
                run.one()
                if time.monotonic() > told + 10:
                    told = time.monotonic()
                    done = f"{run.faults} faults, {len(run.consumer.acked)} changes"
                    print(f"{server.kind}: {told - began:.0f} s, {done}", flush=True)
        run.consumer.finish(end_of_log(run.server))
        found = judge(load, run.consumer.acked)
        if found:
            raise ChaosError("\n".join([f"{len(found)} differences:", *found[:20]]))
        return table(run, load, time.monotonic() - began)


def judge(load: Load, changes: list[Change]) -> list[str]:
    """What the consumer has acked against what the load has committed."""
    found = check(load.journal, changes)
    tables, misfits = replay(load.journal, changes)
    return found + misfits + compare_tables(load.final_tables(), tables)


def table(run: Run, load: Load, seconds: float) -> str:
    consumer = run.consumer
    columns = ["absorbed", "reconnected", "read again", "stopped", "did not happen"]
    lines = [f"{'':26}" + "".join(f"{name:>16}" for name in columns)]
    for name in FAULTS:
        lines.append(f"{name:26}" + "".join(f"{run.outcomes[name][column]:16}" for column in columns))
    lines.append(
        f"{run.server.kind} {run.server.version}: {run.faults} faults in {seconds:.0f} s, {run.proxy.damaged} bytes changed, "
        f"{len(load.journal.committed())} transactions, {len(consumer.acked)} changes acked in {consumer.batches} batches, "
        f"{consumer.rollbacks} rollbacks, {consumer.lives} lives, {len(consumer.alarms)} alarms"
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--faults", type=int)
    parser.add_argument("--server", choices=list(SERVERS), action="append")
    options = parser.parse_args()
    for kind in options.server or list(SERVERS):
        with SERVERS[kind](*METADATA, *OPTIONS) as server:
            try:
                print(torment(server, options.seed, options.minutes, options.faults), flush=True)
            except ChaosError as error:
                print(f"FAILED: {error}", flush=True)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
