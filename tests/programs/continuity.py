"""A model of binary logs, and readers of them that may not lose anything in silence.

A history is a list of steps drawn from a seed: writes, rotations, restarts, crashes, purges, RESETs, gtid_mode switched, cuts
of files, replicas; and readings, each of which ends at the end of the log or anywhere before. The model knows what each
cursor means, so it can say after each reading whether what came is exactly the rest of the log, or whether an error or an
alarm tells where it is not; and that neither comes where nothing is lost.

    python -m tests.programs.continuity --seed 1 --histories 20000      from seed 1 on
    python -m tests.programs.continuity --seed 4711 --histories 1 -v    one history, step by step

Never needs a server: the log is FakeBinlog's, read in the process, over its wire server, or as files.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import logging
import os
import random
import re
import shutil
import struct
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

import attrs

import canal
import canal.parse.source.connection
from canal.alarm import AlarmKind
from canal.gtid import parse_gtid_set
from canal.meta.stored import Client, Clients, StoredMeta, nowhere
from canal.parse.source import file_listing
from canal.position import journal_key
from canal.testing import FakeBinlog
from canal.testing import _feed as fakes

STARTED: Final = 1_700_000_000
TABLE: Final = "id INT PRIMARY KEY"
UUIDS: Final = ("0a000001-71ca-11e1-9e33-c80aa9429562", "0b000002-71ca-11e1-9e33-c80aa9429562")
CLIENTS: Final = (1001, 1002, 1003)
#: More connections than a reading has a reason for: it goes round in circles.
CIRCLES: Final = 40
#: Seconds after which a reading hangs.
PATIENCE: Final = 60.0
_JOURNAL: Final = re.compile(r"binlog\.\d{6}")
#: Of an alarm: the reading goes on somewhere else than behind the cursor.
_GOES_ELSEWHERE: Final = re.compile("LOST|delivered again")
_HEARTBEATS: Final = (27, 41)
_ROTATE: Final = 4

#: Steps whose first number is not that of a server.
_OF_FILES: Final = ("cut tail", "cut range", "remove", "index lacks", "age")

Step = tuple[Any, ...]


# -- what is drawn -----------------------------------------------------------------------------------------------------


@attrs.frozen
class Setup:
    """What stays the same in a history. ``form`` is how the log is read: "direct", "wire", "files" or "follow"."""

    form: str
    flavor: str = "mysql"
    gtid: bool = True
    servers: int = 1
    clients: int = 1
    checksum: bool = True
    has_index: bool = True


@attrs.frozen
class Reading:
    """One run of an instance: at which server, how far each client reads, and what happens meanwhile.

    Args:
        server: whom the connection finds.
        on_lost: as of the config.
        batch: rows in a message.
        plans: for each client how many messages it acks at most (None: all), and how many of the last ones it does not.
        meanwhile: steps, each after so many reads since the one before it; -1: when all there is was read.
        chunk: events in one read.
    """

    server: int = 0
    on_lost: str = "fail"
    batch: int = 100
    plans: tuple[tuple[int | None, int], ...] = ((None, 0),)
    meanwhile: tuple[tuple[int, Step], ...] = ()
    chunk: int = 1000
    start: str = "earliest"

    def __str__(self) -> str:
        shown = {field.name: getattr(self, field.name) for field in attrs.fields(Reading)}
        plain = attrs.asdict(Reading(), recurse=False)
        return "read(" + ", ".join(f"{name}={value!r}" for name, value in shown.items() if value != plain[name]) + ")"


@attrs.frozen
class History:
    setup: Setup
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        """A short script."""
        lines = [str(self.setup)]
        for step in self.steps:
            lines.append("  " + (str(step[1]) if step[0] == "read" else f"{step[0]}({', '.join(map(repr, step[1:]))})"))
        return "\n".join(lines)


def draw(seed: int) -> History:
    """The history of a seed."""
    rng = random.Random(seed)
    setup = _setup(rng)
    steps: list[Step] = [("write", 0, rng.randint(1, 6), rng.randint(1, 3))]
    for _ in range(rng.randint(4, 14)):
        steps.append(_step(rng, setup))
    steps.append(("read", Reading(on_lost=rng.choice(("fail", "fail", "earliest", "latest")), server=_server(rng, setup))))
    return History(setup, tuple(steps))


def _setup(rng: random.Random) -> Setup:
    form = rng.choices(("direct", "files", "follow", "wire"), (10, 6, 6, 1))[0]
    flavor = rng.choice(("mysql", "mariadb"))
    gtid = flavor == "mariadb" or rng.random() < 0.6
    servers = 2 if form in ("direct", "wire") and rng.random() < 0.35 else 1
    return Setup(
        form,
        flavor,
        gtid,
        servers,
        clients=rng.choices((1, 2, 3), (6, 3, 1))[0],
        checksum=rng.random() < 0.8,
        has_index=rng.random() < 0.7,
    )


def _server(rng: random.Random, setup: Setup) -> int:
    return rng.randrange(setup.servers) if rng.random() < 0.6 else 0


def _step(rng: random.Random, setup: Setup) -> Step:
    if rng.random() < 0.4:
        return ("read", _reading(rng, setup))
    if rng.random() < 0.08:
        return ("age", rng.randrange(setup.clients), rng.choice(("plain", "plain", "canal's", "canal's BEGIN")))
    return _change(rng, setup)


def _change(rng: random.Random, setup: Setup) -> Step:
    """A change of the log."""
    server = rng.randrange(setup.servers)
    kinds = {"write": 10, "ddl": 1, "rotate": 5, "restart": 2, "crash": 2, "purge": 3, "reset": 2}
    if setup.flavor == "mysql":
        kinds["gtids"] = 2 if setup.form in ("direct", "wire") else 1
    if setup.form in ("files", "follow"):
        kinds |= {"cut tail": 1, "cut range": 1, "remove": 1, "index twice": 0.4, "index lacks": 0.4}
    if setup.servers > 1:
        kinds["copy"] = 8
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    if kind == "write":
        return (kind, server, rng.randint(1, 8), rng.choice((1, 1, 2, 4)))
    if kind == "purge":
        return (kind, server, rng.randint(1, 3))
    if kind == "reset":
        return (kind, server, rng.random() < 0.15)
    if kind == "gtids":
        return (kind, server, rng.random() < 0.5)
    if kind == "cut tail":
        return (kind, rng.randrange(4), rng.randint(1, 12))
    if kind == "cut range":
        return (kind, rng.randrange(4), rng.randint(0, 20), rng.randint(1, 12))
    if kind in ("remove", "index lacks"):
        return (kind, rng.randrange(4))
    if kind == "index twice":
        return (kind,)
    if kind == "copy":
        return (kind, server, rng.choice((1, 3, 100, 100)))
    return (kind, server)


def _reading(rng: random.Random, setup: Setup) -> Reading:
    plans = tuple(
        (None, rng.choice((0, 0, 1, 3))) if rng.random() < 0.5 else (rng.randint(0, 6), rng.choice((0, 0, 1)))
        for _ in range(setup.clients)
    )
    meanwhile = []
    if rng.random() < 0.35:
        for _ in range(rng.randint(1, 5)):
            meanwhile.append((rng.choice((-1, -1, -1, 0, 1, 4)), _change(rng, setup)))
    return Reading(
        server=_server(rng, setup),
        on_lost=rng.choice(("fail", "fail", "earliest", "latest")),
        batch=rng.choice((1, 2, 3, 100, 100)),
        plans=plans,
        meanwhile=tuple(meanwhile),
        chunk=rng.choice((1, 3, 10, 1000, 1000)),
        start=rng.choice(("earliest", "earliest", "earliest", "latest")),
    )


# -- the truth ---------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Txn:
    """A transaction of one server's log, and the numbers in its rows, which no other transaction has."""

    rows: tuple[int, ...]
    journal: str
    events: tuple[int, int]
    """Its first event in its journal, and the one behind its last."""
    begin: int
    end: int
    gtid: str
    server_id: int
    second: int
    is_ddl: bool
    first: int = 0
    """How many rows of its life are before it."""


@attrs.define(eq=False)
class Life:
    """All that a server's log has held between two RESETs."""

    began: dict[str, int] = attrs.field(factory=dict)
    """The time in the FORMAT_DESCRIPTION of each journal."""
    txns: list[Txn] = attrs.field(factory=list)
    rows: list[int] = attrs.field(factory=list)
    end: tuple[str, int] = ("", 0)
    """Journal and offset of its end, once it is over."""

    def add(self, txn: Txn) -> None:
        txn.first = len(self.rows)
        self.txns.append(txn)
        self.rows += txn.rows


class Log:
    """One server: its fake, and all that it has ever logged."""

    def __init__(self, model: Model, number: int) -> None:
        setup = model.setup
        self.model = model
        self.number = number
        self.fake = FakeBinlog(
            setup.flavor, gtid=setup.gtid, server_id=number + 1, checksum=setup.checksum, clock=model.clock, uuid=UUIDS[number]
        )
        self.table = self.fake.table("shop", "t", TABLE)
        self.lives = [Life()]
        self.holders: set[str] = set()
        self.note()

    @property
    def life(self) -> Life:
        return self.lives[-1]

    def note(self) -> None:
        """A journal may have begun."""
        for name, _ in self.fake.journals:
            self.life.began.setdefault(name, self.model.second)

    def write(self, rows: Sequence[int], *, gtid: str = "", server_id: int = 0, ddl: bool = False) -> Txn:
        fake = self.fake
        journal, begin = fake.journals[-1]
        before = len(fake.events(journal))
        if ddl:
            fake.ddl(f"CREATE TABLE made_{rows[0]} (id INT)", "shop", gtid=gtid or None)
        else:
            with fake.transaction(gtid=gtid or None, server_id=server_id or None):
                for row in rows:
                    self.table.insert({"id": row})
        txn = Txn(
            tuple(rows),
            journal,
            (before, len(fake.events(journal))),
            begin,
            fake.journals[-1][1],
            self._last_gtid(),
            struct.unpack_from("<I", fake.events(journal)[-1], 5)[0],
            self.model.second,
            ddl,
        )
        self.life.add(txn)
        return txn

    def _last_gtid(self) -> str:
        """Of the transaction that was written last; "" without."""
        event = next(event for event in reversed(self.fake.events(self.fake.journal)) if event[4] in (33, 34, 162))
        if event[4] == 162:
            sequence, domain = struct.unpack_from("<QI", event, 19)
            return f"{domain}-{struct.unpack_from('<I', event, 5)[0]}-{sequence}"
        if event[4] == 34:
            return ""
        return f"{uuid.UUID(bytes=event[20:36])}:{struct.unpack_from('<Q', event, 36)[0]}"

    def available(self) -> set[int]:
        """The rows that can be read now."""
        if self.model.files is not None:
            return self.model.files.available(self.life)
        names = {name for name, _ in self.fake.journals}
        return {row for txn in self.life.txns if txn.journal in names for row in txn.rows}

    def journals(self) -> list[str]:
        if self.model.files is not None:
            return self.model.files.listed()
        return [name for name, _ in self.fake.journals]

    def find(self, journal: str, begin: int, second: int, rows: Sequence[int]) -> tuple[int, Txn] | None:
        """The life and the transaction that an entry is of; the latest where two lives are the same there."""
        for number in range(len(self.lives) - 1, -1, -1):
            for txn in self.lives[number].txns:
                is_there = txn.journal == journal and txn.begin <= begin < txn.end and txn.second == second
                if is_there and set(rows) <= set(txn.rows):
                    return number, txn
        return None


class Files:
    """The log as files on disk, which are written on where the log grows, and can be damaged."""

    def __init__(self, log: Log, has_index: bool) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="canal-continuity-", dir=_memory()))
        self._log = log
        self._has_index = has_index
        self._life: Life | None = None
        self._kept: dict[str, list[int]] = {}  # numbers of the events that are in the file
        self._seen: dict[str, int] = {}  # how many events of the journal were looked at
        self._removed: set[str] = set()
        self._unlisted: set[str] = set()
        self._twice = False
        self.shortened: set[str] = set()  # files that were cut in their middle
        #: Rows whose loss leaves no trace in the files.
        self.traceless: set[int] = set()
        #: Whether there is damage that takes no row, of which a reader may complain.
        self.is_odd = False
        #: Whether there was such damage in a log that was reset since this was set to False.
        self.was_odd = False
        self.sync()

    def sync(self) -> None:
        fake = self._log.fake
        if self._life is not self._log.life:
            for path in self.directory.iterdir():
                path.unlink()
            self._life = self._log.life
            for one in (self._kept, self._seen, self._removed, self._unlisted, self.shortened):
                one.clear()
            self.was_odd |= self.is_odd
            self._twice = self.is_odd = False
        names = [name for name, _ in fake.journals]
        for name in names:
            if name not in self._removed:
                self._write_on(name, fake.bytes(name))
        for name in [name for name in self._seen if name not in names]:  # purged
            self._unlink(name)
            del self._seen[name]
            self._kept.pop(name, None)
        self._write_index()

    def _write_on(self, name: str, data: bytes) -> None:
        path = self.directory / name
        spans = list(_spans(data))
        seen = self._seen.get(name, 0)
        mode = "r+b" if path.exists() else "w+b"
        if seen == len(spans) and mode == "r+b" and path.read_bytes()[21] == data[21]:
            return
        with path.open(mode) as file:
            if mode == "w+b":
                file.write(data[:4])
                self._kept[name] = []
            file.seek(0, os.SEEK_END)
            for number in range(seen, len(spans)):
                file.write(data[slice(*spans[number])])
                self._kept[name].append(number)
            file.seek(21)
            file.write(data[21:22])
        self._seen[name] = len(spans)

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self.directory / name).unlink()

    def _write_index(self) -> None:
        if not self._has_index:
            return
        lines = [f"./{name}\n" for name in self._names() if name not in self._unlisted]
        if self._twice and lines:
            lines.append(lines[-1])
        (self.directory / "binlog.index").write_text("".join(lines))

    def _names(self) -> list[str]:
        """As the server's own index has them."""
        return [name for name, _ in self._log.fake.journals]

    def listed(self) -> list[str]:
        """The files that a reader can find."""
        hidden = self._removed | (self._unlisted if self._has_index else set())
        return [name for name in self._names() if name not in hidden]

    def available(self, life: Life) -> set[int]:
        listed = set(self.listed())
        found: set[int] = set()
        for txn in life.txns:
            if txn.journal in listed and set(range(*txn.events)) <= set(self._kept[txn.journal]):
                found.update(txn.rows)
        return found

    def hides(self, name: str, offset: int) -> bool:
        """Whether a file was cut in its middle, so that it ends just at an offset now, without a ROTATE: what stood behind the
        offset stands before it, where nobody looks who goes on there."""
        return name in self.shortened and self.ends_at(name, offset)

    def ends_at(self, name: str, offset: int) -> bool:
        """Whether a file ends just at an offset, without a ROTATE."""
        if name not in self.listed():
            return False
        data = (self.directory / name).read_bytes()
        return len(data) == offset and data[list(_spans(data))[-1][0] + 4] != _ROTATE

    # -- damage --------------------------------------------------------------------------------------------------------

    def _closed(self, number: int) -> str | None:
        """A file that is there and closed; the oldest is 0."""
        closed = self.listed()[:-1]
        return closed[number % len(closed)] if closed else None

    def cut_tail(self, number: int, events: int) -> None:
        name = self._closed(number)
        if name is not None and name in self._kept:
            kept = self._kept[name]
            events = min(events, len(kept) - 3)
            if events > 0:
                self._take(name, kept[len(kept) - events :], tail=True)

    def cut_range(self, number: int, at: int, events: int) -> None:
        name = self._closed(number)
        if name is not None and name in self._kept:
            kept = self._kept[name]
            at = 3 + at % max(len(kept) - 4, 1)
            chosen = kept[at : min(at + events, len(kept) - 1)]
            if chosen:
                self._take(name, chosen, tail=False)

    def _take(self, name: str, events: list[int], *, tail: bool) -> None:
        data = self._log.fake.bytes(name)
        spans = list(_spans(data))
        kinds = {data[spans[number][0] + 4] for number in events}
        self._kept[name] = [number for number in self._kept[name] if number not in events]
        path = self.directory / name
        whole = data[:4] + b"".join(data[slice(*spans[number])] for number in self._kept[name])
        copy = path.with_suffix(".copy")  # whoever has the file open goes on with what it was
        copy.write_bytes(whole)
        copy.replace(path)
        self.is_odd = True
        if not tail:
            self.shortened.add(name)
            return
        # Without lists that tell the difference, a file that was ended by STOP, or by a crash, looks as if it had crashed
        # there; one that was ended by ROTATE is followed by one that was begun without a start of the server.
        for txn in self._log.life.txns:
            if txn.journal == name and not txn.gtid and 4 not in kinds and txn.events[1] - 1 > self._kept[name][-1]:
                self.traceless.update(txn.rows)

    def remove(self, number: int) -> None:
        """A file in the middle, or the first, is gone; a server's own index still names it."""
        name = self._closed(number)
        if name is not None:
            self._unlink(name)
            self._removed.add(name)
            self._kept.pop(name, None)
            self.is_odd = True

    def index_twice(self) -> None:
        self._twice = self.is_odd = True
        self._write_index()

    def index_lacks(self, number: int) -> None:
        name = self._closed(number)
        if name is not None and self._has_index:
            self._unlisted.add(name)
            self.is_odd = True
            self._write_index()

    def close(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _spans(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each event begins and ends."""
    at = 4
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 9)[0]
        yield at, at + size
        at += size


@attrs.define(eq=False)
class Cursor:
    """What a client's cursor means: ``index`` rows of a life of a server's log are done.

    ``kind`` is "" for what this version stores, else what ``age`` made of it.
    """

    server: int
    life: int
    index: int
    done: set[int]
    kind: str = ""
    again: set[int] = attrs.field(factory=set)
    """Rows that may come again."""


# -- reading -----------------------------------------------------------------------------------------------------------


class Texts:
    """Keeps cursors as text, in a dict that lasts longer."""

    address_of = staticmethod(nowhere)

    def __init__(self, texts: dict[int, str]) -> None:
        self._texts = texts

    def open(self, destination: str) -> Clients:
        return {client: Client("", canal.Position.from_text(text)) for client, text in self._texts.items()}

    def close(self, clients: Clients) -> None: ...

    def commit(self, clients: Clients, urgent: bool) -> None:
        self._texts.clear()
        for number, client in clients.items():
            if client.cursor is not None:
                self._texts[number] = client.cursor.to_text()


class Circles(Exception):
    """A reading goes on for ever."""


class Played:
    """A source whose log changes while it is read, at just the moments that the reading names."""

    address = "the log"

    def __init__(self, inner: Any, reading: Reading, model: Model, log: Log) -> None:
        self.inner = inner
        self.reading = reading
        self.model = model
        self.log = log
        self.left = list(reading.meanwhile)
        self.reads = 0
        self.connects = 0
        #: After so many looks without anything new the log has ended.
        self.check_interval = 0.0
        if not hasattr(inner, "read_end"):
            raise TypeError(inner)

    def connect(self, server_id_hint: int | None = None) -> Any:
        self.connects += 1
        if self.connects > CIRCLES:
            raise Circles
        return PlayedConnection(self, self.inner.connect(server_id_hint))

    def due(self, idle: bool) -> bool:
        """Carry out the step whose time has come."""
        if not self.left:
            return False
        after, step = self.left[0]
        if idle or 0 <= after <= self.reads:
            self.left.pop(0)
            self.reads = 0
            self.model.do(step)
            return True
        return False


class PlayedConnection:
    def __init__(self, played: Played, inner: Any) -> None:
        self._played = played
        self._inner = inner
        self._waiting: list[bytes] = []
        self._idle = 0
        self._wire = isinstance(inner, canal.parse.source.connection.MySQLConnection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def check_end(self, position: canal.Position) -> bool:
        check_end = getattr(self._inner, "check_end", None)
        return True if check_end is None else check_end(position)

    def dump(self, *args: Any, **options: Any) -> None:
        self._inner.dump(*args, **options)

    def read(self, timeout: float) -> list[bytes] | None:
        played = self._played
        played.reads += 1
        if played.reads > 2000:
            raise Circles
        if not self._waiting:
            self._waiting = self._next()
        if self._waiting is None:
            return None
        chunk = played.reading.chunk
        events, self._waiting = self._waiting[:chunk], self._waiting[chunk:]
        if events:
            self._idle = 0
            played.due(False)
            return events
        if played.due(True):
            self._idle = 0
            return []
        self._idle += 1
        return None if self._idle > 4 else []

    def _next(self) -> list[bytes] | None:
        events = self._inner.read(0.0)
        while self._wire and not events:  # silence is no end: a heartbeat is what comes behind all that there is
            self._played.log.fake.heartbeat()
            events = self._inner.read(0.05)
        for event in events or ():
            if event[4] == _ROTATE and event[:4] == bytes(4):  # the one that a dump begins a log with
                self._played.model.sending = event[27:40].decode()
        if self._wire and events and all(event[4] in _HEARTBEATS for event in events):
            return []
        return events if events is None else list(events)  # copied: some of them wait here while more is read


# -- the model ---------------------------------------------------------------------------------------------------------


class Fault(AssertionError):
    """A reading that the model does not allow. ``kind`` is its class."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@attrs.define
class Counts:
    """What the readings came to."""

    histories: int = 0
    readings: int = 0
    rows: int = 0
    exact: int = 0
    loud: int = 0
    alarmed: int = 0
    cautious: int = 0
    early: int = 0
    traceless: int = 0
    repeated: int = 0


class Model:
    """Carries out one history; raises Fault."""

    def __init__(self, setup: Setup, counts: Counts, tell: Callable[[str], None] = lambda text: None) -> None:
        self.setup = setup
        self.counts = counts
        self.tell = tell
        self.second = STARTED
        self.rows = 0
        self.files: Files | None = None
        self.logs = [Log(self, number) for number in range(setup.servers)]
        if setup.form in ("files", "follow"):
            self.files = Files(self.logs[0], setup.has_index)
        self.served = [log.fake.serve().start() for log in self.logs] if setup.form == "wire" else []
        self.texts: dict[int, str] = {}
        self.cursors: dict[int, Cursor] = {}
        self.busy: Log | None = None  # the one that is read now
        self.sending = ""  # the journal that it has come to

    def clock(self) -> float:
        return self.second + 0.25

    def close(self) -> None:
        for server in self.served:
            server.stop()
        for log in self.logs:
            log.fake.close()
        if self.files is not None:
            self.files.close()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def do(self, step: Step) -> None:
        name, *args = step
        if name not in _OF_FILES and args and type(args[0]) is int:
            args[0] %= len(self.logs)
        self.tell(f"  {step[1] if name == 'read' else step}")
        getattr(self, "_" + re.sub(r"\W", "_", name))(*args)
        for log in self.logs:
            log.note()
        if self.files is not None:
            self.files.sync()

    def _pass(self, seconds: int = 1) -> None:
        self.second += seconds

    def _write(self, server: int, count: int, size: int) -> None:
        self._catch_up(server)
        for _ in range(count):
            if self.rows % 3 == 0:
                self._pass()
            self.logs[server].write([self._row() for _ in range(size)])

    def _row(self) -> int:
        self.rows += 1
        return self.rows

    def _catch_up(self, server: int) -> None:
        """Only with MySQL's GTIDs may both servers of a pair take writes at once."""
        if self.setup.flavor == "mariadb" or not self.logs[server].fake.gtid:
            self._copy(server, -1)

    def _ddl(self, server: int) -> None:
        self._catch_up(server)
        self.logs[server].write([self._row()], ddl=True)

    def _rotate(self, server: int) -> None:
        self._pass()
        self.logs[server].fake.rotate()

    def _restart(self, server: int) -> None:
        self._pass(2)
        self.logs[server].fake.restart()

    def _crash(self, server: int) -> None:
        self._pass(2)
        self.logs[server].fake.crash()

    def _purge(self, server: int, keep: int) -> None:
        """A server does not purge what it sends at the moment, but whoever removes files does."""
        log = self.logs[server]
        names = [name for name, _ in log.fake.journals]
        to = max(len(names) - keep, 0)
        if self.busy is log and self.files is None:
            to = min(to, self._read_now(names))
        log.fake.purge(names[to])

    def _read_now(self, names: list[str]) -> int:
        """How many journals are before the one that the dump under way has reached at least."""
        return names.index(self.sending) if self.sending in names else 0

    def _reset(self, server: int, same_second: bool) -> None:
        """A pair is set up anew: both logs begin again, in the same second only where no log of theirs was begun later."""
        self._pass(2)
        same_second = same_second and all(len(log.life.began) == 1 for log in self.logs)
        for log in self.logs:
            if same_second:
                self.second = next(iter(log.life.began.values()))
            log.life.end = log.fake.journals[-1]
            log.fake.reset()
            log.lives.append(Life())
            log.note()
        if same_second:
            self.tell("    in the same second")

    def _gtids(self, server: int, on: bool) -> None:
        for number in range(len(self.logs)):
            self._copy(number, -1)
        for log in self.logs:
            if log.fake.gtid != on:
                self._pass()
                log.fake.switch_gtids(on)

    def _copy(self, server: int, count: int) -> None:
        """The server gets transactions that the other one has."""
        if len(self.logs) < 2:
            return
        to, other = self.logs[server], self.logs[1 - server]
        have = set(to.life.rows)
        now = self.second
        for txn in other.life.txns:
            if count and not have.issuperset(txn.rows):
                count -= 1
                self.second = txn.second
                to.write(txn.rows, gtid=txn.gtid if to.fake.gtid else "", server_id=txn.server_id, ddl=txn.is_ddl)
        self.second = now

    def _cut_tail(self, number: int, events: int) -> None:
        if self.files is not None:
            self.files.cut_tail(number, events)

    def _cut_range(self, number: int, at: int, events: int) -> None:
        if self.files is not None:
            self.files.cut_range(number, at, events)

    def _remove(self, number: int) -> None:
        if self.files is not None:
            self.files.remove(number)

    def _index_twice(self) -> None:
        if self.files is not None:
            self.files.index_twice()

    def _index_lacks(self, number: int) -> None:
        if self.files is not None:
            self.files.index_lacks(number)

    def _age(self, client: int, kind: str) -> None:
        """The cursor becomes one that an older version stored, or canal's."""
        number = CLIENTS[client % self.setup.clients]
        cursor = self.cursors.get(number)
        if cursor is None or number not in self.texts or cursor.kind not in ("", kind):
            return
        position = canal.Position.from_text(self.texts[number])
        if kind == "plain":
            known = {field.name for field in attrs.fields(canal.Position)}
            gone = {"incarnation": "", "at_event": False}
            position = attrs.evolve(position, **{name: value for name, value in gone.items() if name in known})
            cursor.kind = "plain"
        else:
            made = self._canals(cursor, kind)
            if made is None:
                return
            position = made
        self.texts[number] = position.to_text()

    def _canals(self, cursor: Cursor, kind: str) -> canal.Position | None:
        """As canal stores it: where the END or the BEGIN of the last transaction begins. Only between transactions."""
        log = self.logs[cursor.server]
        life = log.lives[cursor.life]
        if life is not log.life or cursor.again:
            return None
        txn = next((txn for txn in life.txns if txn.first + len(txn.rows) == cursor.index), None)
        if txn is None or txn.journal not in [name for name, _ in log.fake.journals]:
            return None
        spans = list(_spans(log.fake.bytes(txn.journal)))[slice(*txn.events)]
        kinds = [log.fake.bytes(txn.journal)[begin + 4] for begin, _ in spans]
        is_ddl = kinds[-1] == 2 and 19 not in kinds
        if kind == "canal's BEGIN" and not is_ddl:
            begin = next((spans[at][0] for at, found in enumerate(kinds) if found in (2, 162)), txn.begin)
            cursor.index = txn.first  # a batch of canal's ended behind it
            cursor.done = cursor.done - set(txn.rows)
        else:
            begin = spans[-1][0]
            if is_ddl:
                cursor.again = set(txn.rows)
        cursor.kind = "canal's"
        return canal.Position.from_canal(
            {
                "identity": {"slaveId": -1, "sourceAddress": {"address": "127.0.0.1", "port": 3306}},
                "postion": {
                    "journalName": txn.journal,
                    "position": begin,
                    "serverId": txn.server_id,
                    "timestamp": txn.second * 1000,
                    "gtid": "",
                    "included": False,
                },
            }
        )

    # -- one reading ---------------------------------------------------------------------------------------------------

    def _read(self, reading: Reading) -> None:
        log = self.busy = self.logs[reading.server % len(self.logs)]
        clients = CLIENTS[: self.setup.clients]
        lives = len(log.lives)
        before = log.available()
        alarms: list[Any] = []
        expected = {client: self.cursors.get(client) for client in clients}
        stored = {client: canal.Position.from_text(text) for client, text in self.texts.items()}
        at_end = len(log.life.rows)
        old = set(log.life.rows)
        if self.files is not None:
            self.files.was_odd = self.files.is_odd
        hidden = {client: self._hidden(log, one) for client, one in stored.items()}
        played = Played(self._source(log), reading, self, log)
        instance = canal.Instance(
            canal.InstanceConfig(
                destination="m",
                source=played,
                start=reading.start,
                meta=StoredMeta(Texts(self.texts)),
                on_lost=reading.on_lost,
                dump_error_threshold=0,
                reconnect_backoff=(1e-4, 1e-4),
                empty_transaction_interval=0.0,
                alarm=lambda destination, text: alarms.append(text),
            )
        )
        try:
            run = Run(log, instance, reading, clients)
            with mock.patch.object(fakes, "_READ_EVENTS", reading.chunk):  # else a dump is ahead of its reader
                run.go()
        finally:
            instance.stop()
            self.busy = None
        self.counts.readings += 1
        for number in range(lives - 1, len(log.lives)):
            self.tell(f"    life {number} has rows {_short(log.lives[number].rows)}")
        self.tell(f"    available {_short(sorted(log.available()))}")
        errors = [error for error in (run.error, *run.errors.values()) if error is not None]
        if any(isinstance(error.__cause__, Circles) for error in errors) or played.connects > CIRCLES:
            raise Fault("circles", f"the reading does not end; alarms {alarms[-2:]}")
        for client in clients:
            cursor = expected[client]
            if cursor is None:
                cursor = self._first(log, lives - 1, reading.start, at_end, before)
            stand = Stand(self, log, reading, cursor, stored.get(client), lives - 1, old, before, run, client, alarms)
            stand.is_of_nobody = any(one is not None and one.kind == "canal's" for one in expected.values())
            stand.is_plain = any(one is not None and one.kind != "" for one in expected.values())
            stand.hidden |= hidden.get(client, set())
            stand.oldest_life = min(one.life if one is not None else cursor.life for one in expected.values())
            stand.judge()
            if client in self.texts:
                self.cursors[client] = stand.cursor_now()
        if errors:  # whoever reads on has copied the tables anew
            self.texts.clear()
            self.cursors.clear()

    def _hidden(self, log: Log, stored: canal.Position | None) -> set[int]:
        """Rows whose loss leaves no trace behind this cursor; one with GTIDs is held against the list of the next file."""
        files = self.files
        if files is None or stored is None:
            return set()
        # A cursor behind no transaction may be one behind the ROTATE that is not there any more.
        is_blank = not stored.gtid and not stored.server_id and files.ends_at(stored.journal, stored.offset)
        if not is_blank and not files.hides(stored.journal, stored.offset):
            return set()
        txns = [txn for txn in log.life.txns if txn.journal == stored.journal]
        return {row for txn in txns if not txn.gtid or not stored.gtid for row in txn.rows}

    def _first(self, log: Log, life: int, start: str, at_end: int, before: set[int]) -> Cursor:
        """Where a client begins that has no cursor."""
        rows = log.lives[life].rows
        index = at_end if start == "latest" else next((i for i, row in enumerate(rows) if row in before), at_end)
        return Cursor(log.number, life, index, set(rows[:index]))

    def _source(self, log: Log) -> Any:
        if self.files is not None:
            schema = {"shop.t": TABLE}
            return canal.LocalBinlogSource(self.files.directory, follow=self.setup.form == "follow", schema=schema)
        if self.setup.form == "direct":
            return log.fake
        server = self.served[log.number]
        return canal.MySQLSource(host=server.host, port=server.port, check_interval=1e-9, ssl_mode="DISABLED")


class Run:
    """An instance, from start to stop: what each client got and acked."""

    def __init__(self, log: Log, instance: canal.Instance, reading: Reading, clients: Sequence[int]) -> None:
        self.log = log
        self.instance = instance
        self.reading = reading
        self.clients = clients
        self.got: dict[int, list[int]] = {client: [] for client in clients}
        self.acked: dict[int, Any] = dict.fromkeys(clients)
        self.error: BaseException | None = None  # of all clients
        self.errors: dict[int, BaseException] = {}  # of one, which may have a connection of its own
        self.ended = threading.Event()
        store, end = instance.store, instance.store.end
        store.end = lambda: (end(), self.ended.set())  # type: ignore[method-assign, assignment]

    def go(self) -> None:
        try:
            self.instance.start()
            for client in self.clients:
                self.instance.subscribe(client, timeout=60)
        except canal.CanalError as error:
            self.error = error
            return
        # What is in a message must not depend on how fast the parser is.
        if not self.ended.wait(PATIENCE):
            raise Fault("stuck", "the reading has not ended in a minute")
        for client, (limit, keep) in zip(self.clients, itertools.cycle(self.reading.plans)):
            self._read(client, limit, keep)

    def _read(self, client: int, limit: int | None, keep: int) -> None:
        """Get all, and ack the first messages."""
        messages = []
        deadline = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < deadline:
                is_over = self.instance._is_over(client)
                message = self.instance.get_without_ack(self.reading.batch, 0.0 if is_over else 0.2, client_id=client)
                if not message and is_over:
                    break
                if message:
                    messages.append(message)
                    self.got[client] += [row for entry in message.entries for row in rows_of(entry)]
            else:
                raise Fault("stuck", f"the reading of client {client} has not ended in a minute")
        except canal.CanalError as error:
            self.errors[client] = error
        for message in messages[: max(len(messages) - keep, 0)][:limit]:
            self.instance.ack(message.id, client_id=client)
            self.acked[client] = message.entries[-1]


def rows_of(entry: Any) -> list[int]:
    if entry.is_ddl:
        found = re.search(r"made_(\d+)", entry.sql)
        return [int(found[1])] if found else []
    return [row.after["id"] for row in entry.rows]


class Stand:
    """One client after one reading: what should have come, and what came."""

    def __init__(
        self,
        model: Model,
        log: Log,
        reading: Reading,
        cursor: Cursor,
        stored: canal.Position | None,
        life: int,
        old: set[int],
        before: set[int],
        run: Run,
        client: int,
        alarms: list[Any],
    ) -> None:
        self.model = model
        self.log = log
        self.reading = reading
        self.cursor = cursor
        self.stored = stored
        self.is_odd = model.files is not None and (model.files.is_odd or model.files.was_odd)
        self.first_life = life  # when the reading began
        self.old = old  # rows of that life then, and those of them that could be read
        self.before = before
        self.after = log.available()
        self.run = run
        self.client = client
        self.got = run.got[client]
        self.error = run.errors.get(client, run.error)
        self.is_of_nobody = False  # a cursor of canal's is among them
        self.is_plain = False  # one of them does not say when its journal was begun
        self.oldest_life = cursor.life  # of the cursors of all clients
        self.losses = [str(one) for one in alarms if getattr(one, "kind", None) is AlarmKind.POSITION]
        self.hidden = model._hidden(log, stored)
        self.timeline, self.gaps = self._timeline()

    # -- what should come ----------------------------------------------------------------------------------------------

    def _timeline(self) -> tuple[list[int], set[int]]:
        """The rows from the cursor on, over the lives of the log, and before which of them something is between."""
        log, cursor = self.log, self.cursor
        gaps: set[int] = set()
        if cursor.server == log.number and cursor.life <= self.first_life:
            rows = log.lives[cursor.life].rows[cursor.index :]
            number = cursor.life + 1
        else:
            rows = [row for row in log.lives[self.first_life].rows if row not in cursor.done]
            number = self.first_life + 1
        rows = list(rows)
        for life in log.lives[number:]:
            gaps.add(len(rows))
            rows += life.rows
        return rows, gaps

    def _shortened(self) -> str | None:
        """The file of the cursor, if events were cut out of it, before or behind the cursor."""
        files, stored = self.model.files, self.stored
        return stored.journal if files is not None and stored is not None and stored.journal in files.shortened else None

    def _is_there(self, row: int) -> bool:
        """Whether the row could be read all the time."""
        if row in self.hidden:
            return False
        return row in self.before and row in self.after or (row in self.after and row not in self.old)

    def _is_lost(self, at: int) -> bool:
        """Whether there may be something between the row ``at`` of the timeline and the one before it, or it is gone."""
        return at in self.gaps or (at < len(self.timeline) and not self._is_there(self.timeline[at]))

    # -- what came -----------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        counts, got = self.model.counts, self.got
        counts.rows += len(got)
        again = self._again()
        at = come = 0
        while come < len(got):
            at = self._behind_done(at, got[come])
            if at < len(self.timeline) and got[come] == self.timeline[at] and not self._must_tell(at):
                at += 1
            elif got[come] in again:
                counts.repeated += 1
            else:
                break
            come += 1
        rest, at = got[come:], self._behind_done(at, None)
        if not rest and at == len(self.timeline) and self.error is None:
            return self._nothing_lost(at)
        lost = any(self._is_lost(number) for number in range(at, len(self.timeline) + 1))
        if self.error is not None and not rest:
            return self._loud(at, lost)
        if self.is_of_nobody and self.cursor.server != self.log.number:  # which names no server, and its event may be there too
            counts.traceless += 1
            return None
        if self._is_of_former_pair() or self._is_reordered() or self._is_left_out(at, rest):
            counts.traceless += 1
            return None
        if (lost or self.oldest_life < max(self.cursor.life, self.first_life)) and self._is_ambiguous():
            counts.traceless += 1
            return None
        came_and_went = self.model.setup.form == "files" and self.before.isdisjoint(self.timeline[at:])
        is_ended = not rest and came_and_went and all("with neither ROTATE nor STOP" in text for text in self.losses)
        is_elsewhere = self._may_be_cautious() and any(_GOES_ELSEWHERE.search(text) for text in self.losses)
        if not is_ended and (lost and self.losses or is_elsewhere):
            return self._alarmed(at, rest)
        if not rest and (came_and_went or at in self.gaps and self._looks_the_same(at) or self._stands_at_a_head()):
            counts.traceless += 1
            return None
        if lost and self._is_traceless(at):
            counts.traceless += 1
            return None
        return self._fault(at, rest)

    def _behind_done(self, at: int, come: int | None) -> int:
        """What a server got late from another one, where it was read already, is told by its GTID, if it has one."""
        if self.stored is None or not self.stored.gtid:
            return at
        while at < len(self.timeline) and self.timeline[at] in self.cursor.done:
            if self.timeline[at] == come and not self._has_common_gtids():
                break
            at += 1
        return at

    def _again(self) -> set[int]:
        """The rows that may come though they are done."""
        # Two servers may have the same transactions in another order.
        is_said = any("delivered again" in text or "after the same transactions" in text for text in self.losses)
        if self.log.fake.flavor == "mariadb" and self.model.setup.servers > 1:  # a position has one GTID for each domain
            return self.cursor.again | self.cursor.done
        if is_said and self.cursor.server != self.log.number:
            return self.cursor.again | self.cursor.done
        if any("LOST" in text for text in self.losses):  # which says that changes are delivered again
            return self.cursor.again | self.cursor.done
        if len(self.run.clients) > 1 and self.model.setup.servers > 1:  # one that is ahead goes on from where the stream is
            return self.cursor.again | self.cursor.done
        others = [cursor.kind for cursor in self.model.cursors.values()]
        if "canal's" in others and self.cursor.server != self.log.number:  # of which nobody knows of what server it is
            return self.cursor.again | self.cursor.done
        return self.cursor.again

    def _has_common_gtids(self) -> bool:
        return self.log.fake.gtid and bool(self.stored and self.stored.gtid)

    def _is_of_former_pair(self) -> bool:
        """Whether some of what is done was of a pair of servers that was set up anew, and has the same GTIDs again."""
        logs = self.model.logs
        now = {row for log in logs for row in log.life.rows}
        is_old = self.cursor.server != self.log.number and self.cursor.life < self.first_life
        has_gtid = bool(self.stored and self.stored.gtid)
        return len(logs) > 1 and has_gtid and (is_old or bool(self.cursor.done - now))

    def _is_left_out(self, at: int, rest: list[int]) -> bool:
        """Whether another server leaves out nothing but what it got while gtid_mode was off: a dump by GTID set begins with a
        log behind it."""
        if self.cursor.server == self.log.number or self.stored is None or not self.stored.gtid:
            return False
        lacking = set(self.timeline[at:]).difference(rest)
        return all(not txn.gtid for txn in self.log.life.txns if lacking.intersection(txn.rows))

    def _is_reordered(self) -> bool:
        """Whether two servers without GTIDs in common have the same transactions in another order."""
        if self.cursor.server == self.log.number or self._has_common_gtids():
            return False
        here, there = (log.life.rows for log in self.model.logs)
        both = set(here).intersection(there)
        return [row for row in here if row in both] != [row for row in there if row in both]

    def _must_tell(self, at: int) -> bool:
        """Whether another life begins here before the end of the last one has been read, or rows were gone from the start."""
        return at in self.gaps and any(not self._was_read(row) for row in self.timeline[:at])

    def _was_read(self, row: int) -> bool:
        return row in self.got

    def _nothing_lost(self, at: int) -> None:
        counts = self.model.counts
        if not self.losses:
            counts.exact += 1
        elif any(self._is_lost(number) for number in range(len(self.timeline) + 1)) or self._others_lost():
            counts.alarmed += 1
        elif why := self._may_be_cautious():
            counts.cautious += 1
            self.model.tell(f"    cautious: {why}")
        elif self.cursor.server == self.log.number or any("LOST" in text for text in self.losses):
            raise Fault("false alarm", f"client {self.client}: {self.losses[0]}")
        else:
            counts.exact += 1

    def _is_reset_within_a_second(self) -> bool:
        return any(one.began.items() & other.began.items() for one, other in itertools.pairwise(self.log.lives))

    def _others_lost(self) -> bool:
        return len(self.run.clients) > 1

    def _may_be_cautious(self) -> str:
        """Why a reader that lost nothing may say that it does not know; "" where it has to know."""
        journals = self.log.journals()
        stored, files = self.stored, self.model.files
        if len(self.log.lives) - 1 > self.cursor.life and self.cursor.server == self.log.number:
            return "the log was reset"
        if self._is_reset_within_a_second():
            return "a log was reset within the second in which it was begun"
        if self.is_odd:
            return "files are damaged"
        if files is not None and any("with neither ROTATE nor STOP" in text for text in self.losses):
            return "the server has crashed"
        is_switched = any(step[0] == "gtids" for _, step in self.reading.meanwhile)
        if stored is None:
            is_gone = files is not None or is_switched
            return "journals were removed before they were read" if self.reading.meanwhile and is_gone else ""
        if files is not None and self.reading.meanwhile:
            return "files were removed meanwhile"
        if self.cursor.server != self.log.number and not self._has_common_gtids():
            return "another server without GTIDs in common"
        if stored.journal and stored.journal not in journals and (files is not None or not self._has_common_gtids()):
            return "the cursor's journal is gone"
        if self.cursor.server != self.log.number and self.cursor.again & self.old:
            return "the cursor is behind a jump, and does not say what was done before it"
        if self.model.setup.servers > 1 and self.cursor.done - self.old:
            return "the server lacks what is done"
        if self.cursor.server != self.log.number and self.log.fake.flavor == "mariadb" and set(self.log.life.rows) - self.before:
            return "the other server has purged a part of its log, and may have another order"
        if self._others_lost():
            return "it may be another client's"
        if stored.row and stored.journal not in journals:
            return "the cursor is inside a transaction whose journal is gone"
        if self.cursor.server != self.log.number and stored.row:
            return "the cursor is inside a transaction, and this server may have others before it"
        is_switched = is_switched or self.model.setup.gtid != self.log.fake.gtid
        if is_switched or any(not txn.gtid for txn in self.log.life.txns) and stored.gtid:
            return "gtid_mode was switched"
        return ""

    def _loud(self, at: int, lost: bool) -> None:
        counts, error = self.model.counts, self.error
        assert isinstance(error, canal.CanalError)
        if not lost:
            why = self._may_be_cautious()
            if not why and not self._others_lost():
                raise Fault("false error", f"client {self.client}: {error!r}")
            self.model.tell(f"    cautious: {why}: {error!r}")
            counts.cautious += 1
            return
        if not isinstance(error, (canal.SourceError, canal.CursorError)):
            raise Fault("odd error", f"{error!r}")
        if not _JOURNAL.search(str(error)):
            raise Fault("nameless", f"the error names no journal: {error!r}")
        is_damage = self.is_odd and (isinstance(error, canal.DecodeError) or "inside transaction" in str(error))
        if is_damage or isinstance(error, canal.CursorError):
            counts.loud += 1
            return
        if "I/O error" in str(error) or self._is_reset_within_a_second():  # then its journals look like those before
            counts.loud += 1
            return
        if self.reading.on_lost != "fail" and not isinstance(error, canal.PositionLostError):
            raise Fault("on_lost not asked", f"{error!r}")
        if self.reading.on_lost != "fail":
            raise Fault("on_lost not done", f"{error!r}")
        counts.loud += 1
        if not self._is_lost(at):
            counts.early += 1

    def _alarmed(self, at: int, rest: list[int]) -> None:
        """After an alarm comes what ``on_lost`` says, up to the end."""
        counts = self.model.counts
        is_here = self.cursor.server == self.log.number
        # A cursor that does not say which GTIDs are done, as one inside of the first transaction of all.
        has_gtid = bool(self.stored and self.stored.gtid)
        is_known = has_gtid and not self._others_lost()
        has_gtids = self.model.setup.gtid or self.log.fake.gtid
        is_said = has_gtids and not is_known and any("neither ROTATE nor STOP" in text for text in self.losses)
        if self.reading.on_lost == "fail" and is_here and not self._is_traceless(at) and not is_said:
            raise Fault("told, but not stopped", f"client {self.client} got {_short(self.got)}; {self.losses}")
        if self.cursor.server == self.log.number and not any(_JOURNAL.search(text) for text in self.losses):
            raise Fault("nameless", f"the alarm names no journal: {self.losses}")
        readable = [row for row in self.log.life.rows if row in self.after]
        older = [row for row in self._all_rows() if row in self.before or row in self.after or row not in self.old]
        jumps = sum("LOST" in text for text in self.losses) + self._is_traceless(at)  # until it is noticed
        may_pass = self.reading.on_lost == "latest"
        if self.error is None and rest and not _are_stretches(rest, older, self.after, jumps, may_pass):
            return self._fault(at, rest)
        if self.reading.on_lost == "earliest" and self.error is None and not self._is_traceless(at):
            gap = next((number for number in range(at, len(self.timeline) + 1) if self._is_lost(number)), at)
            wanted = [row for row in self.timeline[gap:] if row in readable and self._is_there(row)]
            if self.model.setup.form == "files":  # what is read to its end is what there was
                wanted = [row for row in wanted if row in self.old]
            damaged = self._shortened()  # what is behind the cursor may stand before its offset now
            hidden = {row for txn in self.log.life.txns if txn.journal == damaged for row in txn.rows}
            wanted = [row for row in wanted if row not in hidden]
            lacking = [row for row in wanted if row not in self.got]
            if lacking:
                raise Fault("lost behind an alarm", f"client {self.client} lacks {_short(lacking)}; {self.losses}")
        counts.alarmed += 1
        return None

    def _all_rows(self) -> list[int]:
        return [row for life in self.log.lives for row in life.rows]

    def _is_ambiguous(self) -> bool:
        """Whether a client's cursor may be taken for one of a log that was reset, though others' may not: one of them does not
        say when its journal was begun, or in the same second as that of the same name."""
        lives = [life.began.items() for life in self.log.lives[self.oldest_life :]]
        same = any(one & other for one, other in itertools.combinations(lives, 2))
        return len(self.run.clients) > 1 and len(lives) > 1 and (same or self.is_plain)

    def _looks_the_same(self, at: int) -> bool:
        """Whether a dump that goes on after a RESET cannot know of it yet: the new log ends just where the old one did."""
        over = self.log.lives[self.first_life : -1]
        if self.model.setup.form == "files":  # what is read to its end is what there was
            return True
        return self.model.files is None and any(life.end == self.log.fake.journals[-1] for life in over)

    def _stands_at_a_head(self) -> bool:
        """Whether a dump that had come no further than the head of its log stands where the new one ends, which has no more."""
        over = self.log.lives[self.first_life : -1]
        is_first = self.cursor.index == 0 and not self.got
        return self.model.files is None and bool(over) and is_first and not self.log.life.txns and len(self.log.journals()) == 1

    def _is_traceless(self, at: int) -> bool:
        """Whether nothing that can be read tells of the loss."""
        files = self.model.files
        if files is not None and (files.traceless | self.hidden).intersection(self.timeline):
            return True
        old = self.cursor.life < len(self.log.lives) - 1 and self.cursor.server == self.log.number
        if self.cursor.server != self.log.number:
            # A pair that was set up anew has the same GTIDs again.
            return self.cursor.life < len(self.log.lives) - 1 or not self._has_common_gtids()
        if self.stored is None:  # reset within the second in which it was begun
            lives = [life.began.items() for life in self.log.lives[self.first_life :]]
            return any(one & other for one, other in itertools.pairwise(lives))
        gone = [txn for txn in self.log.life.txns if set(txn.rows) & set(self.timeline[at:]) and txn.rows[0] not in self.after]
        here = [txn for txn in self.log.life.txns if txn.journal in self.log.journals()]
        if self.stored.gtid and self.stored.journal not in self.log.journals() and not any(txn.gtid for txn in gone):
            return not here or here[0].gtid != ""  # all that was purged came while gtid_mode was off
        if not old:
            return False
        stored, journals = self.stored, self.log.journals()
        then, *later = (life.began for life in self.log.lives[self.cursor.life :])
        if any(began.get(stored.journal) == then.get(stored.journal, 0) for began in later):
            return True  # reset within the second in which it was begun
        lives = [life.began.get(stored.journal, 0) for life in self.log.lives]
        if self.first_life < len(lives) - 1 and self.cursor.life < self.first_life:
            return self.cursor.kind != "" or lives[self.cursor.life] == lives[self.first_life]
        then, now = self.log.lives[self.cursor.life].began, self.log.life.began
        fake, has_gtids = self.log.fake, self._has_common_gtids()
        if files is None and has_gtids and not stored.gtid_set <= parse_gtid_set(fake.executed, fake.flavor):
            return False
        if stored.journal not in journals and self.cursor.kind and not stored.gtid and self.reading.meanwhile:
            return True  # it was there until then, and the cursor says nothing of what it was
        if stored.journal not in journals:  # so by GTID set, if the new log has been purged beyond the cursor's number
            done = parse_gtid_set(stored.gtid, fake.flavor)
            here = [txn for txn in self.log.life.txns if txn.journal in journals and txn.gtid]
            own = [txn for txn in here if txn.server_id == fake.server_id]
            is_seen = any(parse_gtid_set(txn.gtid, fake.flavor) <= done for txn in (here if fake.flavor == "mysql" else own))
            return has_gtids and not is_seen and journal_key(stored.journal) < journal_key(journals[0])
        is_plain = self.cursor.kind != "" or bool(stored.gtid and not stored.incarnation)
        if not is_plain and then.get(stored.journal) != now[stored.journal]:
            return False
        if len(self.run.clients) > 1:  # only the cursor that is furthest behind is looked for in the log
            return True
        return stored.offset in {4, *(end for _, end in _spans(fake.bytes(stored.journal)))}

    def _fault(self, at: int, rest: list[int]) -> None:
        wanted = self.timeline[at:]
        kind = "wrong rows"
        if self._must_tell(at):
            kind = "lost in silence"
        elif not rest:
            kind = "lost in silence" if self.error is None else "an error at the wrong position"
        elif rest[0] in self.got[: len(self.got) - len(rest)] or rest[0] in self.cursor.done:
            kind = "repeated"
        elif rest[0] in wanted:
            kind = "lost in silence"
        raise Fault(
            kind,
            f"client {self.client} got {_short(self.got)}, the cursor {self.stored} (row {self.cursor.index} of life "
            f"{self.cursor.life}) has behind it {_short(self.timeline)}, of which {_short(rest) or 'nothing'} came where "
            f"{_short(wanted[:9])} was due; error {self.error!r}, alarms {self.losses}",
        )

    # -- what the cursor means now -------------------------------------------------------------------------------------

    def cursor_now(self) -> Cursor:
        entry = self.run.acked[self.client]
        if entry is None:
            return self.cursor
        rows = rows_of(entry)
        found = self.log.find(entry.transaction.journal, entry.transaction.offset, entry.transaction.timestamp, rows)
        if found is None:
            raise Fault("no such transaction", f"{entry}")
        life, txn = found
        index = txn.first
        if entry.is_end:
            index += len(txn.rows)
        elif rows:
            index += txn.rows.index(rows[-1]) + 1
        all_rows = self.log.lives[life].rows
        # Without GTIDs the log alone tells; and of what the other server lacked an alarm says that it comes again, once for all.
        again = (self.cursor.again if self.log.fake.gtid else self.cursor.done).difference(all_rows[:index])
        if any(_GOES_ELSEWHERE.search(text) for text in self.losses):
            again |= self.cursor.done
        return Cursor(self.log.number, life, index, self.cursor.done | set(all_rows[:index]), again=again)


def _are_stretches(rows: list[int], whole: list[int], there: set[int], count: int, may_pass: bool) -> bool:
    """Whether the rows are so many stretches of the whole at most; ``may_pass``: another one may begin further on."""
    order = {row: number for number, row in enumerate(whole)}

    def begins_at(at: int) -> bool:
        before, now = order.get(rows[at - 1], 0), order.get(rows[at], 0)
        return now <= before or may_pass and not there.isdisjoint(whole[before + 1 : now])

    begins = [0, *(at for at in range(1, len(rows)) if begins_at(at)), len(rows)]
    return len(begins) - 1 <= max(count, 1) and all(
        _is_stretch(rows[begin:end], whole, there) for begin, end in itertools.pairwise(begins)
    )


def _is_stretch(rows: list[int], whole: list[int], there: set[int]) -> bool:
    """Whether the rows are a stretch of the whole, without some that are not there."""
    if rows[0] not in whole:
        return False
    wanted = iter(whole[whole.index(rows[0]) :])
    for row in rows:
        for one in wanted:
            if one == row:
                break
            if one in there:
                return False
        else:
            return False
    return True


def _short(rows: Sequence[int]) -> str:
    """Numbers, runs of them as first-last."""
    runs: list[list[int]] = []
    for row in rows:
        if runs and runs[-1][1] + 1 == row:
            runs[-1][1] = row
        else:
            runs.append([row, row])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


# -- histories ---------------------------------------------------------------------------------------------------------


def play(history: History, counts: Counts | None = None, tell: Callable[[str], None] = lambda text: None) -> Fault | None:
    """Carry out a history; the fault that it shows."""
    counts = counts or Counts()
    counts.histories += 1
    tell(str(history.setup))
    model = Model(history.setup, counts, tell)
    try:
        with mock.patch.object(file_listing, "PATIENCE", 0.0):  # nothing comes back by itself
            for step in history.steps:
                model.do(step)
    except Fault as fault:
        return fault
    finally:
        model.close()
    return None


def shrink(history: History, fault: Fault, tries: int = 600) -> tuple[History, Fault]:
    """A shorter history with a fault of the same kind."""
    left = [tries]

    def fails(steps: Sequence[Step], setup: Setup | None = None) -> Fault | None:
        if left[0] <= 0:
            return None
        left[0] -= 1
        found = play(History(setup or history.setup, tuple(steps)))
        return found if found is not None and found.kind == fault.kind else None

    improved = True
    while improved and left[0] > 0:
        improved = False
        for shorter in _shorter(history):
            found = fails(shorter.steps, shorter.setup)
            if found is not None:
                history, fault, improved = shorter, found, True
                break
    return history, fault


def _shorter(history: History) -> Iterator[History]:
    """Histories that are a little simpler, the boldest first."""
    setup, steps = history.setup, history.steps
    size = len(steps) // 2
    while size:
        for at in range(0, len(steps) - size + 1, size):
            yield History(setup, steps[:at] + steps[at + size :])
        size //= 2
    for change in ({"servers": 1}, {"clients": 1}, {"has_index": True}, {"checksum": True}):
        if any(getattr(setup, name) != value for name, value in change.items()):
            yield History(attrs.evolve(setup, **change), steps)
    for at, step in enumerate(steps):
        for simpler in _simpler(step):
            yield History(setup, (*steps[:at], simpler, *steps[at + 1 :]))


def _simpler(step: Step) -> Iterator[Step]:
    if step[0] == "read":
        reading, plain = step[1], Reading()
        for number in range(len(reading.meanwhile)):
            yield ("read", attrs.evolve(reading, meanwhile=reading.meanwhile[:number] + reading.meanwhile[number + 1 :]))
        for number, (after, inner) in enumerate(reading.meanwhile):
            for simpler in _simpler(inner):
                changed = (*reading.meanwhile[:number], (after, simpler), *reading.meanwhile[number + 1 :])
                yield ("read", attrs.evolve(reading, meanwhile=changed))
        for name in ("server", "on_lost", "batch", "plans", "chunk", "start"):
            if getattr(reading, name) != getattr(plain, name):
                yield ("read", attrs.evolve(reading, **{name: getattr(plain, name)}))
        return
    for at, value in enumerate(step):
        if type(value) is int and value > (1 if at > 1 else 0):
            yield (*step[:at], value // 2 if at > 1 else 0, *step[at + 1 :])
        elif value is True and step[0] == "reset":
            yield (*step[:at], False, *step[at + 1 :])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.continuity", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--faults", type=int, default=1, help="how many to show before it ends")
    parser.add_argument("--whole", action="store_true", help="do not shorten what fails")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args(argv)
    logging.getLogger("canal").setLevel(logging.CRITICAL)
    counts, began, faults = Counts(), time.monotonic(), collections.Counter[Any]()
    for seed in range(options.seed, options.seed + options.histories):
        history = draw(seed)
        fault = play(history, counts, print if options.verbose else lambda text: None)
        if fault is None:
            continue
        setup = history.setup
        kind = (fault.kind, setup.form, setup.flavor, setup.gtid)
        faults[kind] += 1
        if faults[kind] <= options.faults:
            if not options.whole:
                history, fault = shrink(history, fault)
            print(f"seed {seed}: {fault}\n{history}\n", flush=True)
    spent = time.monotonic() - began
    print(f"{counts}\n{spent:.1f} s, {spent / max(counts.histories, 1) * 1000:.1f} ms each; {sum(faults.values())} faults")
    for kind, count in faults.most_common():
        print(count, *kind)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
