"""Stand-ins for the parts of an Instance: sources, a parser, a sink, a store and a hook that tests see through."""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

import canal
from canal.model import Entry
from canal.testing import FakeBinlog


@attrs.define(eq=False)
class Piece:
    """As much of an entry as the merge looks at."""

    member: str
    timestamp: int
    number: int = 0
    is_end: bool = True


#: Much more than anything here takes.
PATIENCE = 60.0


class Holding(canal.Hook):
    """Does not return before it is let."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()

    def before(self, entries: list[canal.Entry]) -> Sequence[canal.Entry]:
        self.entered.set()
        assert self.go.wait(PATIENCE)
        return entries


@contextlib.contextmanager
def alarm_clock() -> Iterator[None]:
    """Makes SIGALRM raise KeyboardInterrupt, as Ctrl-C does SIGINT."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@attrs.define(eq=False)
class Address:
    """A source behind which the server may change or be gone."""

    server: FakeBinlog | None
    connects: int = 0
    address: str = "vip"

    def connect(self, server_id_hint: int | None = None) -> Any:
        self.connects += 1
        if self.server is None:
            raise canal.ConnectionLostError(f"nobody is at {self.address}")
        return self.server.connect(server_id_hint)


class Pair:
    """Two logs with the same transactions at different positions."""

    def __init__(self, *, gtid: bool = True, flavor: str = "mysql", other: str = "", **options: Any) -> None:
        seconds = itertools.count(1_700_000_000)
        self.now = next(seconds)
        self.gtid = gtid
        logs = []
        for number, kind in enumerate((flavor, other or flavor), 1):
            uuid = f"{number}e11fa47-71ca-11e1-9e33-c80aa9429562"
            log = FakeBinlog(kind, gtid=gtid, uuid=uuid, clock=lambda: self.now, **options)  # type: ignore[arg-type]
            logs.append((log, log.table("shop", "orders", "id INT PRIMARY KEY")))
        (self.first, one), (self.second, two) = logs
        self.tables = {id(self.first): one, id(self.second): two}
        self.second.ddl("CREATE DATABASE only_here")
        self.count = 0

    def write(self, *ids: int, to: tuple[FakeBinlog, ...] = ()) -> None:
        """One transaction for each id, in both logs or in those given."""
        for one in ids:
            self.now += 1
            self.count += 1
            for log in to or (self.first, self.second):
                gtid = None
                if self.gtid and log.flavor == "mysql":
                    gtid = f"{self.first.uuid}:{self.count}"
                elif self.gtid:
                    gtid = f"0-1-{self.count + 10}"
                with log.transaction(gtid=gtid):
                    self.tables[id(log)].insert({"id": one})

    def write_at_once(self, *some: tuple[int, ...], to: FakeBinlog) -> None:
        """A transaction for each group of ids, in one log."""
        for ids in some:
            self.now += 1
            with to.transaction():
                for one in ids:
                    self.tables[id(to)].insert({"id": one})


class DequeStore:
    """A store for one client, unbounded: everything the EntryStore Protocol asks for, in a few lines."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: deque[canal.Entry] = deque()
        self._first = self._wakes = 0
        self._open = self._ended = False

    def start(self) -> None:
        self._open = True

    def stop(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def put(self, entries: list[canal.Entry]) -> None:
        with self._changed:
            if not self._open:
                raise canal.errors.StoreClosedError("stopped")
            self._entries.extend(entries)
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def open(self, client_id: int, like: int | None = None) -> int:
        return self._first

    def close(self, client_id: int) -> None: ...

    def get(self, client_id: int, start: int, batch_size: int, timeout: float | None, linger: float) -> canal.store.Slice:
        with self._changed:
            wakes = self._wakes
            self._changed.wait_for(lambda: self._end() > start or self._ended or not self._open or self._wakes > wakes, timeout)
            if not self._open:
                raise canal.errors.StoreClosedError("stopped")
            end = min(self._end(), start + batch_size) if start >= self._first else start
            return canal.store.Slice([self._entries[n - self._first] for n in range(start, end)], start, end)

    def ack(self, client_id: int, end: int) -> None:
        with self._changed:
            while self._first < end:
                self._entries.popleft()
                self._first += 1

    def wake(self) -> None:
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def _end(self) -> int:
        return self._first + len(self._entries)


class AuditSink:
    """A sink that keeps only inserts, notes what it dropped, and goes on to the store."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def start(self, destination: str, store: canal.store.EntryStore) -> None:
        self._store = store

    def stop(self) -> None: ...

    def restart(self) -> None: ...

    def sink(self, entries: list[canal.Entry]) -> None:
        kept = [e for e in entries if not e.rows or e.event_type is canal.EventType.INSERT]
        self.dropped += [e.event_type.name for e in entries if e not in kept]
        self._store.put(kept)


class ListParser:
    """An EventParser that gives lists of entries and then waits, ends or fails."""

    def __init__(self, *lists: list[Entry], then: str | Exception = "wait") -> None:
        self.lists = lists
        self.then = then
        self.error: canal.CanalError | None = None
        self.is_finished = False
        self.resume: canal.Position | None = None
        self.more: list[list[Entry]] = []
        self._wake = threading.Condition()
        self._stopping = False

    def start(self, destination: str, sink: canal.sink.Sink, resume: canal.Position | None, finished: Callable[[], None]) -> None:
        self.resume = resume
        self.is_finished = self._stopping = False
        self.sink, self.finished = sink, finished
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for entries in self.lists:
                self.sink.sink(entries)
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self.then != "wait")
        except canal.errors.StoreClosedError:
            return
        if isinstance(self.then, canal.CanalError):
            self.error = self.then
        self.is_finished = True
        self.finished()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join()

    def wait_started(self, timeout: float) -> canal.Position:
        return canal.Position(journal="binlog.000001", offset=4)


def composed(*lists: list[Entry], then: str | Exception = "wait", **parts: Any) -> canal.Instance:
    sink = canal.sink.EntrySink(empty_interval=-1)  # every empty transaction passes
    return canal.Instance.compose("test", parser=ListParser(*lists, then=then), sink=sink, **parts)
