"""A model of features in pairs: clients that read in different ways, and what each of them must be handed.

A history has two features, options and a list of steps, all drawn from a seed. The oracle is the journal: the list of the changes
that were written. Each client must get the changes of its tables from its cursor on, without a gap, after every loop that it
leaves, every restart, kill, failover and seek.

    python -m tests.programs.pairs --seed 1 --histories 20000       from seed 1 on
    python -m tests.programs.pairs --seed 4711 --histories 1 -v     one history, step by step
    python -m tests.programs.pairs --server mysql --histories 20    over a real server

What fails is made shorter and printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import itertools
import logging
import random
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

import canal
import canal.aio
import canal.meta
import canal.server
from canal.testing import FakeBinlog
from canal.testing.servers import ThrowawayServer

#: What is drawn in pairs. A history has each feature of its pair, and others by chance.
FEATURES: Final = (
    "clients",
    "filter",
    "router",
    "group",
    "evict",
    "seek",
    "changes",
    "consume",
    "workers",
    "aio",
    "decoded",
    "follow",
    "masks",
)
#: A router reads one source and makes its instances itself, and a group's clients are not evicted.
UNMATCHED: Final = (("router", "group"), ("router", "follow"), ("group", "evict"))
PAIRS: Final = tuple(pair for pair in itertools.combinations(FEATURES, 2) if pair not in UNMATCHED)
#: Ways to read, beside get and ack.
LOOPS: Final = ("stream", "changes", "consume", "workers", "aio", "aio workers", "decoded")
FILTERS: Final = ("", r"s\.a", r"s\..*", r"o\.c", r"s\.(a|b)", r"s\.b,o\.c")
TABLES: Final = ("s.a", "s.b", "o.c")
COLUMNS: Final = "id INT PRIMARY KEY, n INT, v VARCHAR(200), t TEXT"
#: Files that exist while their successors are written.
WRITING: Final = shutil.ignore_patterns("*.tmp")
#: Seconds after which a history hangs.
PATIENCE: Final = 15.0

Step = tuple[str, int]
Item = tuple[Any, ...]


_ROOTS: Final = itertools.count()


class Wrong(Exception):
    """What came is not what the journal says."""


class Left(Exception):
    """Raised by a handler to leave a loop."""


# -- what is drawn -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Setup:
    """What stays the same in a history."""

    features: tuple[str, ...]
    flavor: str = "mysql"
    gtid: bool = True
    image: str = "FULL"
    metadata: str = "FULL"
    event_size: int = 8192
    sources: int = 1
    has_standby: bool = False
    durability: str = "ack"
    has_clock: bool = True
    """False: all is written in one second, by which transactions cannot be told apart."""
    filters: tuple[str, ...] = ("",)
    """Of each client."""
    outputs: tuple[str, ...] = ()
    """Filters of a router's outputs."""
    options: tuple[tuple[str, Any], ...] = ()


@attrs.frozen
class History:
    setup: Setup
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"{self.setup}\nsteps = {list(self.steps)}"


def draw(seed: int, stage: Stage | None = None, length: int = 24) -> History:
    """Draw a history: of fake binlogs, or one that can be played on the stage."""
    rng = random.Random(seed)
    pair = PAIRS[seed % len(PAIRS)]
    others = [
        one
        for one in FEATURES
        if one not in ("router", "group", "follow") and rng.random() < (0.5 if one == "clients" and "group" in pair else 0.08)
    ]
    features = tuple(sorted({*pair, *others}))
    setup = _setup(rng, features)
    if stage is not None:
        setup = stage.fitted(setup)
        features = setup.features
    kinds = ["write"] * 5 + ["get"] * 5 + ["ack"] * 4 + ["rollback", "restart", "kill", "cut", "rotate"]
    kinds += [one for one in LOOPS if one.split()[0] in features] * 4 + ["stream"]
    kinds += ["seek"] * 3 * ("seek" in features) + ["add"] * ("clients" in features) + ["switch"] * 2 * setup.has_standby
    kinds += ["edit"] * 2 * ("follow" in features)
    if "group" in features:
        kinds += ["rotate", "restart"] * 2 + ["inside"] * 12 + ["move"] * 6 * setup.has_standby
    kinds += ["restart"] * 3 * (stage is not None and stage.ha is not None)
    steps = [("write", rng.getrandbits(30))] + [(rng.choice(kinds), rng.getrandbits(30)) for _ in range(rng.randint(4, length))]
    return History(setup, tuple(steps))


def _setup(rng: random.Random, features: tuple[str, ...]) -> Setup:
    flavor = rng.choice(["mysql", "mariadb"])
    count = rng.choice([2, 3]) if "clients" in features else 1
    is_narrow = "filter" in features
    options: dict[str, Any] = {
        "filter": rng.choice([r"s\..*,o\..*", r"s\..*", r"s\.a,o\.c"]) if is_narrow else r"s\..*,o\..*",
        "batch_bytes": rng.choice([None, None, 600]),
        "whole_transactions": rng.random() < 0.2,
        "isolate_ddl": rng.random() < 0.2,
        "empty_transaction_count": rng.choice([0, 3, 8192]),
    }
    if "evict" in features and "group" not in features:
        options |= {
            "on_slow": "evict",
            "slow_after": rng.choice([0.02, 0.05]),
            "store_entries": rng.choice([8, 16, 40]),
            "slow_entries": rng.choice([3, 10]),
        }
    elif count == 1 and "router" not in features:
        options |= {"store_entries": rng.choice([8, 40, 1 << 16]), "store_bytes": rng.choice([4000, 64 << 20])}
    if "masks" in features:
        options["mask"] = {r"s\..*": {"v": canal.Mask.last(2)}}
    outputs = tuple(rng.choice(FILTERS) for _ in range(rng.choice([1, 2, 3]))) if "router" in features else ()
    has_gtids = flavor == "mariadb" or rng.random() < 0.8
    return Setup(
        features,
        flavor,
        has_gtids,
        rng.choice(["FULL", "FULL", "MINIMAL", "NOBLOB"]),
        rng.choice(["FULL", "MINIMAL" if flavor == "mysql" else "NO_LOG"]),
        rng.choice([60, 200, 8192]),
        rng.choice([2, 3]) if "group" in features else 1,
        has_gtids and rng.random() < 0.3,
        rng.choice(["ack", "ack", "ack", "interval"]),
        rng.random() < (0.3 if "group" in features else 0.6),
        tuple(rng.choice(FILTERS) if is_narrow else "" for _ in range(count)),
        outputs,
        tuple(options.items()),
    )


# -- logs --------------------------------------------------------------------------------------------------------------------


class Log:
    """One source, and the journal of what was written to it."""

    def __init__(self) -> None:
        self.journal: list[Item] = []
        self.rows: dict[str, dict[int, int]] = {name: {} for name in TABLES}

    def write(self, rng: random.Random, ids: Iterator[int]) -> None:
        """Write one transaction."""
        if rng.random() < 0.12:
            name, number = rng.choice(TABLES), next(ids)
            self.ddl(f"ALTER TABLE {name} COMMENT 'c{number}'", name.partition(".")[0])
            self.journal.append(("sql", number, name))
        else:
            self.commit([self._change(rng, ids) for _ in range(rng.choice([1, 1, 2, 3, 12]))])

    def _change(self, rng: random.Random, ids: Iterator[int]) -> tuple[str, str, list[dict[str, Any]]]:
        """One statement, and its rows in the journal."""
        name = rng.choice(TABLES)
        known = self.rows[name]
        op = rng.choice(["insert", "update", "update", "delete"]) if known else "insert"
        rows = []
        for _ in range(rng.choice([1, 1, 3])):
            if op != "insert" and not known:
                break
            id = next(ids) if op == "insert" else rng.choice(sorted(known))
            row = {"id": id, "n": next(ids) if op == "insert" else known.pop(id), "v": "x" * rng.choice([3, 150]), "t": "t"}
            after = row
            if op == "update":
                after = {**row, "id": next(ids) if rng.random() < 0.2 else id, "n": next(ids), "v": "y" * rng.choice([3, 150])}
                rows.append(row)
            rows.append(after)
            if op != "delete":
                known[after["id"]] = after["n"]
            self.journal.append((op, after["id"], name, None if op == "delete" else after["n"], id))
        return name, op, rows

    def ddl(self, sql: str, schema: str) -> None:
        raise NotImplementedError

    def commit(self, changes: list[tuple[str, str, list[dict[str, Any]]]]) -> None:
        raise NotImplementedError

    def cut(self, events: int) -> None:
        """End the connection of the reader, after some events if possible."""
        raise NotImplementedError

    def rotate(self, rng: random.Random) -> None:
        raise NotImplementedError

    def move(self) -> None:
        """Let the standby and the source change places."""

    def source(self) -> dict[str, Any]:
        """The options of a config that name the source."""
        raise NotImplementedError


class FakeLog(Log):
    """A fake binlog, perhaps with a standby that has the same transactions."""

    def __init__(self, setup: Setup, number: int, tick: Callable[[], float]) -> None:
        super().__init__()
        more = {"gtid": setup.gtid} if setup.flavor == "mysql" else {}
        self.setup, self.number, self.count = setup, number, 0
        self.logs = [
            FakeBinlog(
                setup.flavor,
                server_id=10 * number,
                row_event_max_size=setup.event_size,
                row_image=setup.image,  # type: ignore[arg-type]
                metadata=setup.metadata,
                clock=tick,
                uuid=f"{number}{copy}11fa47-71ca-11e1-9e33-c80aa9429562",
                **more,  # type: ignore[arg-type]
            )
            for copy in range(1 + setup.has_standby)
        ]
        self.tables = [{name: log.table(*name.split("."), COLUMNS) for name in TABLES} for log in self.logs]
        self.start: str | canal.Position = "earliest"
        if setup.has_standby:  # before the first GTID nothing tells where a cursor stands on the other server
            gtid = self._gtid()
            self.start = canal.Position(gtid=gtid or "")
            for log in self.logs:
                log.ddl("CREATE DATABASE s", "s", gtid=gtid)
        for log in self.logs[1:]:
            log.rotate()  # positions differ

    def _gtid(self) -> str | None:
        self.count += 1
        if not self.setup.has_standby:
            return None
        return f"{self.logs[0].uuid}:{self.count}" if self.setup.flavor == "mysql" else f"0-{self.number * 10}-{self.count}"

    def ddl(self, sql: str, schema: str) -> None:
        gtid = self._gtid()
        for log in self.logs:
            log.ddl(sql, schema, gtid=gtid)

    def commit(self, changes: list[tuple[str, str, list[dict[str, Any]]]]) -> None:
        gtid = self._gtid()
        for log, tables in zip(self.logs, self.tables):
            with log.transaction(gtid=gtid):
                for name, op, rows in changes:
                    getattr(tables[name], op)(*rows)

    def cut(self, events: int) -> None:
        self.logs[0].cut_after(events)

    def rotate(self, rng: random.Random) -> None:
        rng.choice(self.logs).rotate()

    def move(self) -> None:
        self.logs.reverse()
        self.tables.reverse()

    def source(self) -> dict[str, Any]:
        found: dict[str, Any] = {"source": self.logs[0], "start": self.start}
        return found | ({"standby": self.logs[1], "standby_start": self.start} if len(self.logs) > 1 else {})


class ServerLog(Log):
    """A real server, whose databases ``s`` and ``o`` are made anew."""

    def __init__(self, server: ThrowawayServer, setup: Setup) -> None:
        super().__init__()
        self.server = server
        for name in ("s", "o"):
            server.query(f"DROP DATABASE IF EXISTS {name}")
            server.query(f"CREATE DATABASE {name}")
        self.connection = server.connect(autocommit=True)
        with self.connection.cursor() as cursor:
            for name in TABLES:
                cursor.execute(f"CREATE TABLE {name} ({COLUMNS})")
            cursor.execute(f"SET SESSION binlog_row_image = {setup.image}")
        self.config = canal.MySQLSource(host=server.host, port=server.port, user=server.user, password=server.password)
        connection = self.config.connect()
        self.start = connection.resolve("latest")
        connection.close()

    def ddl(self, sql: str, schema: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)

    def commit(self, changes: list[tuple[str, str, list[dict[str, Any]]]]) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for name, op, rows in changes:
                if op == "insert":
                    cursor.executemany(f"INSERT INTO {name} VALUES (%s, %s, %s, %s)", [tuple(row.values()) for row in rows])
                elif op == "delete":
                    cursor.executemany(f"DELETE FROM {name} WHERE id = %s", [[row["id"]] for row in rows])
                else:
                    for old, new in zip(rows[::2], rows[1::2]):
                        cursor.execute(
                            f"UPDATE {name} SET id = %s, n = %s, v = %s WHERE id = %s", (new["id"], new["n"], new["v"], old["id"])
                        )
            cursor.execute("COMMIT")

    def cut(self, events: int) -> None:
        for row in self.server.query("SHOW PROCESSLIST"):
            if str(row[4]).startswith("Binlog Dump"):
                with contextlib.suppress(Exception):  # it has ended
                    self.server.query(f"KILL {row[0]}")

    def rotate(self, rng: random.Random) -> None:
        self.server.query("FLUSH BINARY LOGS")

    def source(self) -> dict[str, Any]:
        return {"source": self.config, "start": self.start}


def matches(text: str, name: str) -> bool:
    return not text or re.fullmatch(text.replace(",", "|"), name) is not None


# -- the model of a client ---------------------------------------------------------------------------------------------------


#: Where a client stands in what is for it: a count for each source, or the least and the most of it.
Place = list[tuple[int, int]]


class Reader:
    """What the model knows of one client."""

    def __init__(self, world: World, id: int, filter: str, output: int | None, *, is_first: bool) -> None:
        sources = range(len(world.logs))
        self.world, self.id, self.filter, self.output = world, id, filter, output
        self.bases: list[int | None] = [0 if is_first else None for _ in sources]
        """Of each source where in the journal the client begins; None: it is found by its first change."""
        self.acked: Place = [(0, 0) for _ in sources]
        self.read: Place = [(0, 0) for _ in sources]
        self.out: list[tuple[int, Place, Place]] = []
        """Batches that are out: id, and what was read before and after each."""
        self.open: Any = "?"
        self.seen: set[str] = set()
        """Members of which something came since then: of another one the rest of a transaction may come."""
        self.places: list[tuple[canal.Position, Place]] = []
        self.repeats = 0
        self.peak = [0 for _ in sources]
        """What it had acked before an alarm said that changes come again."""

    def expected(self, source: int) -> list[Item]:
        base = self.bases[source] or 0
        return [item for item in self.world.logs[source].journal[base:] if self.world.passes(self, item)]

    def pending(self) -> int:
        """Changes that are sure to come; 0 where it is not known where it begins."""
        if None in self.bases:
            return 0
        return sum(len(self.expected(source)) - most for source, (_, most) in enumerate(self.read))

    def take(self, source: int, found: Item) -> None:
        """Compare one change with the journal."""
        if self.bases[source] is None:
            journal = self.world.logs[source].journal
            self.bases[source] = next((n for n, item in enumerate(journal) if same(item, found)), len(journal))
        expected, place = self.expected(source), self.read[source]
        if self.comes_again():
            place = self.read[source]
        least, most = place
        fits = [n for n in range(least, most + 1) if n < len(expected) and same(expected[n], found)]
        if not fits:
            raise Wrong(
                f"client {self.id} ({self.filter!r}, output {self.output}) of source {source} at {place}: got {found}, "
                f"wanted {expected[least : most + 2]}"
            )
        if least < most and self.acked[source] == place:
            self.acked[source] = fits[0], fits[-1]
        self.read[source] = fits[0] + 1, fits[-1] + 1

    def comes_again(self) -> bool:
        """Whether an alarm has said that changes come again: from the start of the log, at most."""
        if self.world.repeats == self.repeats:
            return False
        self.repeats = self.world.repeats
        self.peak = [max(most, peak) for (_, most), peak in zip(self.acked, self.peak)]
        self.acked, self.read = ([(0, most) for _, most in place] for place in (self.acked, self.read))
        return True

    def back(self, to: Place) -> None:
        """What was read behind this comes again."""
        self.read, self.open, self.seen = list(to), "?", set()

    def left(self, most: Sequence[int]) -> None:
        """A loop was left, of which it is not known how much of what it has done it has acked."""
        self.acked = [(low, max(low, high)) for (low, _), high in zip(self.acked, most)]
        self.back(self.acked)

    def structure(self, entry: canal.Entry) -> None:
        """BEGIN, changes and END of each transaction come in this order, each transaction after the other."""
        one = entry.transaction
        transaction = (entry.member, one.gtid or (one.journal, one.offset))
        kind, is_alone = entry.entry_type, entry.entry_type is canal.EntryType.ROWDATA and entry.table is None
        if kind is canal.EntryType.TRANSACTIONBEGIN or is_alone:
            is_right = self.open in (None, "?", transaction)
        else:
            is_right = self.open in ("?", transaction) or self.open is None and entry.member not in self.seen
        if not is_right:
            raise Wrong(f"client {self.id} ({self.filter!r}, output {self.output}): {entry} while {self.open} is open")
        self.seen.add(entry.member)
        self.open = None if is_alone or kind is canal.EntryType.TRANSACTIONEND else transaction


def same(item: Item, found: Item) -> bool:
    """Whether a change is that of the journal; a MINIMAL image does not have all."""
    if found[:2] == ("sql", None):  # the text is withheld, as the table is masked
        return item[0] == "sql" and item[2] == found[2]
    return item[:3] == found[:3] and (len(found) < 4 or found[3] is None or item[3] == found[3])


def item_of(op: str, entry: canal.Entry, row: canal.ChangedRow | canal.Change | None) -> Item:
    name = f"{entry.header.schema}.{entry.header.table}"
    if row is None:
        found = re.search(r"'c(\d+)'", entry.row_change.sql or "")
        return "sql", int(found.group(1)) if found else None, name
    key = row.key
    if key is None:
        raise Wrong(f"{entry}: a change without its key")
    n = None if row.after is None else row.after["n"]
    value = None if row.after is None else row.after.get("v")
    is_masked = isinstance(value, str) and value.startswith("*")
    if isinstance(value, str) and is_masked is not (len(value) > 2 and bool(entry.table and entry.table.columns[2].unmasked)):
        raise Wrong(f"{entry}: {value!r} is not masked")
    return op, key[0], name, None if n is canal.ABSENT else n


def found_in(change: canal.Change) -> tuple[int, Item]:
    """Return the source of a change, and what it is in the journal."""
    source = int(change.entry.member[1:]) if change.entry.member else 0
    is_row = change.op.is_row
    return source, item_of(change.op if is_row else "sql", change.entry, change if is_row else None)


# -- the world ---------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Stage:
    """What histories are played on: fake binlogs, or real servers; and a ZooKeeper for ``ha``."""

    servers: tuple[ThrowawayServer, ...] = ()
    ha: canal.ZooKeeper | None = None

    def fitted(self, setup: Setup) -> Setup:
        """Return a setup without what the stage lacks."""
        if self.servers:
            sources = min(setup.sources, len(self.servers))
            kind = self.servers[0].kind
            setup = attrs.evolve(setup, has_standby=False, gtid=True, sources=sources, flavor=kind, metadata="of the server")
        if self.ha is not None:
            features = tuple(one for one in setup.features if one != "follow")
            setup = attrs.evolve(setup, features=features, durability="ack")
        return setup


FAKE: Final = Stage()


class World:
    """Sources, an instance or router over them, and its clients."""

    def __init__(self, setup: Setup, directory: Path, stage: Stage) -> None:
        self.setup, self.directory, self.stage = setup, directory, stage
        self.now = 1_700_000_000
        self.ids = itertools.count(1)
        self.logs: list[Log]
        if stage.servers:
            self.logs = [ServerLog(server, setup) for server in stage.servers[: setup.sources]]
        else:
            self.logs = [FakeLog(setup, number, lambda: self.now) for number in range(1, setup.sources + 1)]
        self.options = dict(setup.options)
        self.readers: dict[int, Reader] = {}
        self.life = self.edits = self.repeats = 0
        self.alarms: list[str] = []
        self.failed: BaseException | None = None
        self.asynchronous: dict[int, canal.aio.AsyncInstance] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self.server: canal.Server | None = None
        self.ha = stage.ha and attrs.evolve(stage.ha, root=f"{stage.ha.root}-{next(_ROOTS)}")
        self.start()
        for filter in setup.filters:
            self.add(filter, is_first=True)

    # -- starting and stopping ---------------------------------------------------------------------------------------------

    def _alarm(self, destination: str, text: str) -> None:
        self.alarms.append(str(text))
        self.repeats += "delivered again" in str(text)

    def _meta(self, name: str = "") -> canal.meta.MetaManager:
        more = {} if self.setup.durability == "ack" else {"durability": "interval", "interval": 0.02}
        return canal.FileMeta(self.directory / f"meta-{self.life}" / name, **more)

    def _meta_option(self, name: str = "") -> dict[str, Any]:
        return {"meta": self._meta(name)} if self.ha is None else {}  # else it is in ZooKeeper

    def _config(self, **options: Any) -> canal.InstanceConfig:
        members = [log.source() for log in self.logs]
        if "group" in self.setup.features:
            given = {f"m{number}": canal.Member(**one) for number, one in enumerate(members)}
            one: dict[str, Any] = {"source": canal.Group(given, order="arrival")}
        else:
            one = members[0]
        if self.ha is not None:
            options = {"ha": self.ha}
        return canal.InstanceConfig(
            destination="d", alarm=self._alarm, reconnect_backoff=(0.01, 0.02), **one, **self.options, **options
        )

    def start(self, then: Callable[[], None] = lambda: None) -> None:
        """Start what reads, do something else, and subscribe the clients."""
        if self.setup.outputs:
            config = self._config()
            self.router = canal.server.RouterSink(config)
            own = {name: self.options[name] for name in ("batch_bytes", "whole_transactions", "isolate_ddl")}
            self.instances = [
                self.router.output(f"o{number}", filter, alarm=self._alarm, **own, **self._meta_option(f"o{number}"))
                for number, filter in enumerate(self.setup.outputs)
            ]
            self.router.start()
        elif "follow" in self.setup.features:
            self.server = canal.Server()
            self.server.follow(self, interval=0.01, alarm=self._alarm)
            self.instances = [self.server.instance("d")]
        else:
            instance = canal.Instance(self._config(**self._meta_option()))
            instance.start()
            self.instances = [instance]
        then()
        for reader in self.readers.values():
            self._instance(reader).subscribe(reader.id, timeout=PATIENCE)

    def names(self) -> Mapping[str, str]:
        """Of the configuration that ``Server.follow`` follows."""
        return {"d": f"{self.edits}"}

    def load(self, name: str) -> canal.InstanceConfig:
        return self._config(meta=self._meta())

    def _ender(self) -> Callable[[], None]:
        """Return what stops what runs now."""
        runs: Any = self.router if self.setup.outputs else self.server or self.instances[0]
        asynchronous, self.asynchronous = self.asynchronous, {}

        def end() -> None:
            for one in asynchronous.values():
                for pool in (one._calls, *one._gets.values()):
                    pool.shutdown()
            runs.stop()

        return end

    def stop(self) -> None:
        self._ender()()

    def restart(self, *, kill: bool) -> None:
        is_sure = self.setup.durability == "ack" or not kill or self.ha is not None
        if self.ha is not None:  # another process takes over
            self.start(self._ender())
        else:
            if kill:  # what the disk has now, without what stop() would write
                old, self.life = self.life, self.life + 1
                shutil.copytree(self.directory / f"meta-{old}", self.directory / f"meta-{self.life}", ignore=WRITING)
            self.stop()
            self.start()
        for reader in self.readers.values():
            self._restarted(reader, is_sure)

    def edit(self) -> None:
        """Change the followed configuration: the destination is started anew."""
        assert self.server is not None
        (before,) = self.instances
        self.options["batch_bytes"] = None if self.options["batch_bytes"] else 600
        self.edits += 1
        deadline = time.monotonic() + PATIENCE
        while self.instances == [before]:
            if time.monotonic() > deadline:
                raise Wrong("the changed configuration was not taken")
            time.sleep(0.005)
            with contextlib.suppress(canal.StateError):  # it is being changed
                self.instances = [self.server.instance("d")]
        for reader in self.readers.values():
            self._instance(reader).subscribe(reader.id)
            self._restarted(reader, is_sure=True)

    def _restarted(self, reader: Reader, is_sure: bool) -> None:
        reader.out = []
        if is_sure:
            reader.back(reader.acked)
        else:
            reader.acked = [(0, max(most, peak)) for (_, most), peak in zip(reader.acked, reader.peak)]
            reader.back(reader.acked)

    def _instance(self, reader: Reader) -> canal.Instance:
        return self.instances[reader.output or 0]

    def passes(self, reader: Reader, item: Item) -> bool:
        filters = [reader.filter, self.options["filter"]]
        if reader.output is not None:
            filters.append(self.setup.outputs[reader.output])
        return all(matches(one, item[2]) for one in filters)

    def add(self, filter: str, *, is_first: bool = False) -> Reader:
        number = 1001 + len(self.readers)
        output = len(self.readers) % len(self.setup.outputs) if self.setup.outputs else None
        is_first = is_first and all(reader.output != output or reader.read == reader.acked for reader in self.readers.values())
        reader = Reader(self, number, filter, output, is_first=is_first)
        self._instance(reader).subscribe(reader.id, filter)
        self.readers[number] = reader
        return reader

    # -- steps ---------------------------------------------------------------------------------------------------------------

    def step(self, kind: str, seed: int) -> None:
        rng = random.Random(seed)
        self.now += rng.choice([0, 0, 1]) * self.setup.has_clock
        reader = rng.choice(list(self.readers.values()))
        log = rng.choice(self.logs)
        if kind == "write":
            self.write(log, rng, rng.choice([1, 1, 3]))
        elif kind == "get":
            self.get(reader, rng.choice([1, 1, 2, 5, 20, 1000]), 0.01, rng)
        elif kind == "ack":
            self.ack(reader, min(len(reader.out), 1))
        elif kind == "rollback":
            self.rollback(reader, rng)
        elif kind in ("restart", "kill"):
            self.restart(kill=kind == "kill")
        elif kind == "inside":  # in all likelihood
            self.write(log, rng, 4)
            if self.get(reader, rng.choice([1, 2, 5, 9, 14]), 0.05):
                self.ack(reader, len(reader.out))
            self.restart(kill=True)
        elif kind == "move":
            if self.has_gtids():
                for one in self.logs:
                    one.move()
            self.restart(kill=True)
        elif kind == "cut":
            log.cut(rng.randint(1, 30))
        elif kind == "rotate":
            log.rotate(rng)
        elif kind == "switch" and "group" not in self.setup.features:
            if self.has_gtids():
                (self.router.instance if self.setup.outputs else self.instances[0]).switch()
                for one in self.readers.values():
                    one.places = []  # of the other server, perhaps without GTIDs
        elif kind == "add":
            if len(self.readers) < 4:
                self.add(rng.choice(FILTERS))
        elif kind == "seek":
            self.seek(reader, rng)
        elif kind == "edit":
            self.edit()
        elif kind != "switch":
            self.run_loop(kind, reader, rng.randint(1, 12), rng.choice([1, 3, 100]))

    def write(self, log: Log, rng: random.Random, count: int) -> None:
        for _ in range(count):
            if rng.random() < (0.4 if "group" in self.setup.features else 0.1):
                log.rotate(rng)
            self.now += rng.choice([0, 1]) * self.setup.has_clock
            log.write(rng, self.ids)

    def has_gtids(self) -> bool:
        """Whether each cursor has a GTID set, which tells where it stands in the log of another server."""
        cursors = [self._instance(one).position(one.id) for one in self.readers.values()]
        return all(own.gtid for cursor in cursors for own in (dict(cursor.members).values() or [cursor]))

    def ack(self, reader: Reader, count: int) -> None:
        for batch, _, after in reader.out[:count]:
            self._instance(reader).ack(batch, client_id=reader.id)
            reader.acked = list(after)
        del reader.out[:count]

    def rollback(self, reader: Reader, rng: random.Random) -> None:
        instance = self._instance(reader)
        if reader.out and rng.random() < 0.5:
            number = rng.randrange(len(reader.out))
            instance.rollback(reader.out[number][0], client_id=reader.id)
            reader.back(reader.out[number][1])
            del reader.out[number:]
        else:
            instance.rollback(client_id=reader.id)
            reader.back(reader.acked)
            reader.out = []

    def seek(self, reader: Reader, rng: random.Random) -> None:
        if None in reader.bases or "group" in self.setup.features or self.setup.outputs:
            return
        places = reader.places[-20:]
        if places and rng.random() < 0.7:
            position, read = rng.choice(places)
            try:
                self._instance(reader).seek(reader.id, position)
            except canal.PositionLostError:
                if not self.setup.has_standby:
                    raise
                return  # before the first GTID nothing tells where it is on the other server; nothing has changed
        else:
            read = [(0, 0)]
            reader.bases, reader.places = [0], []
            self._instance(reader).seek(reader.id, self.logs[0].source()["start"])
        reader.out, reader.acked, reader.peak = [], list(read), [0]
        reader.back(read)

    def get(self, reader: Reader, size: int, timeout: float, rng: random.Random | None = None) -> bool:
        message = self._instance(reader).get_without_ack(size, timeout=timeout, client_id=reader.id)
        if not message:
            return False
        before = list(reader.read)
        self.look(reader, message)
        reader.out.append((message.id, before, list(reader.read)))
        return True

    def look(self, reader: Reader, message: canal.Message) -> int:
        """Compare a message with the journal; return how many changes it has."""
        count = 0
        for entry in message.entries:
            reader.structure(entry)
            source = int(entry.member[1:]) if entry.member else 0
            if entry.entry_type is not canal.EntryType.ROWDATA:
                continue
            if entry.table is None:
                reader.take(source, item_of("sql", entry, None))
                count += 1
            for row in entry.rows:
                reader.take(source, item_of(entry.event_type.name.lower(), entry, row))
                count += 1
        if message.position is not None and count and None not in reader.bases and len(self.logs) == 1:
            reader.places.append((message.position, list(reader.read)))
        return count

    # -- loops ---------------------------------------------------------------------------------------------------------------

    def run_loop(self, kind: str, reader: Reader, count: int, size: int) -> None:
        """Read so many changes by a loop, which is left then; or fewer, if there are no more."""
        if reader.out:  # as the loop does
            self._instance(reader).rollback(client_id=reader.id)
            reader.out = []
            reader.back(reader.acked)
        count = min(count, reader.pending())
        if count < 1:
            return
        getattr(self, "_" + kind.replace(" ", "_"))(self._instance(reader), reader, count, size)

    def _messages(self, reader: Reader, messages: Iterator[canal.Message], count: int) -> None:
        """Read from a loop that acks a message when it comes round."""
        done = list(reader.read)
        for message in messages:
            reader.acked = done
            count -= self.look(reader, message)
            done = list(reader.read)
            if count < 1:
                break
        reader.back(reader.acked)

    def _stream(self, instance: canal.Instance, reader: Reader, count: int, size: int) -> None:
        with contextlib.closing(instance.stream(size, client_id=reader.id, poll=0.1)) as messages:
            self._messages(reader, messages, count)

    def _decoded(self, instance: canal.Instance, reader: Reader, count: int, size: int) -> None:
        decoded = instance.decoded(lambda message: message.id, size, client_id=reader.id, poll=0.1)
        with contextlib.closing(decoded):
            self._messages(reader, (message for message, number in decoded if number == message.id), count)

    def _changes(self, instance: canal.Instance, reader: Reader, count: int, size: int) -> None:
        changes = instance.changes(size, statements=True, client_id=reader.id, poll=0.1)
        with contextlib.closing(changes):  # type: ignore[type-var]
            for change in changes:
                reader.take(*found_in(change))
                count -= 1
                if count < 1:
                    break
        reader.left([most for _, most in reader.read])

    def _consume(self, instance: canal.Instance, reader: Reader, count: int, size: int) -> None:
        left, done = count, list(reader.read)

        def handle(message: canal.Message) -> None:
            nonlocal left, done
            reader.acked = done
            left -= self.look(reader, message)
            done = list(reader.read)
            if left < 1:
                raise Left

        with contextlib.suppress(Left):
            instance.consume(handle, size, client_id=reader.id)
        reader.back(reader.acked)

    def _workers(self, instance: canal.Instance, reader: Reader, count: int, size: int) -> None:
        handled = Handled(self, reader, count)
        with contextlib.suppress(Left):
            instance.consume(handled, size, client_id=reader.id, workers=3, statements=True, in_flight=20)
        reader.left(handled.contiguous())

    def _aio(self, instance: canal.Instance, reader: Reader, count: int, size: int) -> None:
        async def run() -> None:
            nonlocal count
            done = list(reader.read)
            stream = self._async(instance).stream(size, client_id=reader.id)
            async for message in stream:
                reader.acked = done
                count -= self.look(reader, message)
                done = list(reader.read)
                if count < 1:
                    break
            await stream.aclose()

        self._run(run())
        reader.back(reader.acked)

    def _aio_workers(self, instance: canal.Instance, reader: Reader, count: int, size: int) -> None:
        handled = Handled(self, reader, count)

        async def handle(change: canal.Change) -> None:
            await asyncio.sleep(0)
            handled(change)

        with contextlib.suppress(Left):
            self._run(self._async(instance).consume(handle, size, client_id=reader.id, workers=3, statements=True, in_flight=20))
        reader.left(handled.contiguous())

    def _async(self, instance: canal.Instance) -> canal.aio.AsyncInstance:
        return self.asynchronous.setdefault(id(instance), canal.aio.AsyncInstance(instance))

    def _run(self, awaitable: Any) -> None:
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(awaitable)

    # -- the end -------------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Every client gets the rest, and nothing more."""
        deadline = time.monotonic() + PATIENCE
        for reader in self.readers.values():
            self.ack(reader, len(reader.out))
        quiet = 0
        while quiet < 1:
            quiet += 1
            for reader in self.readers.values():
                while self.get(reader, 1000, 0.02):
                    quiet = 0
                    self._instance(reader).ack(reader.out.pop()[0], client_id=reader.id)
                if reader.pending() or reader.open not in (None, "?"):
                    quiet = 0
            if time.monotonic() > deadline:
                left = {one.id: (one.pending(), one.open, one.filter, one.output) for one in self.readers.values()}
                raise Wrong(f"never came: {left}; {[one.status().state for one in self.instances]}")


class Handled:
    """A handler of several threads: what it has done, in order for each key."""

    def __init__(self, world: World, reader: Reader, count: int) -> None:
        self.world, self.reader, self.left = world, reader, count
        self.done: list[set[Item]] = [set() for _ in world.logs]
        self.running: set[Any] = set()
        self.lock = threading.Lock()
        self.start = [most for _, most in reader.read]
        self._expect()

    def _expect(self) -> None:
        self.low = [least for least, _ in self.reader.read]
        self.expected = [self.reader.expected(source)[low:] for source, low in enumerate(self.low)]

    def __call__(self, change: canal.Change) -> None:
        source, found = found_in(change)
        is_row = change.op.is_row
        name = (source, found[2], found[1])
        with self.lock:
            if name in self.running:
                raise Wrong(f"client {self.reader.id}: two changes of {name} at one time")
            self.running.add(name)
            if self.reader.comes_again():
                self._expect()
            self._check_order(source, found, is_row)
            self.left -= 1
            is_last = self.left < 1
        if is_last:
            raise Left
        with self.lock:
            self.running.remove(name)
            self.done[source].add(found[:3] + found[3:4])

    def _check_order(self, source: int, found: Item, is_row: bool) -> None:
        """All changes of its key before this one are done, and all before a statement."""
        for item in self.expected[source]:
            if same(item, found):
                return
            touches = not is_row or item[0] == "sql" or item[2] == found[2] and found[1] in (item[1], item[4])
            is_done = any(same(item, one) for one in self.done[source])
            if touches and not is_done and not self._was_acked(source, item):
                raise Wrong(f"client {self.reader.id}: {found} before {item}")
        raise Wrong(f"client {self.reader.id}: {found} is not among {self.expected[source][:5]}…")

    def _was_acked(self, source: int, item: Item) -> bool:
        """It may have been acked by an earlier loop that was left."""
        at = self.low[source] + self.expected[source].index(item)
        return at < self.start[source]

    def contiguous(self) -> list[int]:
        """How much was done without a gap, for each source."""
        found = []
        for source, expected in enumerate(self.expected):
            at = self.low[source]
            for item in expected:
                if at >= self.start[source] and not any(same(item, one) for one in self.done[source]):
                    break
                at += 1
            found.append(at)
        return found


# -- playing -----------------------------------------------------------------------------------------------------------------


def play(history: History, tell: Callable[[str], None] = lambda text: None, stage: Stage = FAKE) -> str:
    """Return what is wrong, or "" for nothing."""
    root = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    directory, world = Path(tempfile.mkdtemp(prefix="canal-pairs-", dir=root)), None
    watch: threading.Timer | None = None
    try:
        world = World(history.setup, directory, stage)
        watch = threading.Timer(2 * PATIENCE, _give_up, [world])
        watch.daemon = True
        watch.start()
        for number, (kind, seed) in enumerate(history.steps):
            tell(f"{number} {kind} {[(one.id, one.acked, one.read) for one in world.readers.values()]}")
            world.step(kind, seed)
        world.finish()
        return ""
    except Wrong as wrong:
        return f"Wrong: {wrong}"
    except Exception as error:
        if world is not None and world.failed:
            return "hangs"
        logging.getLogger("pairs").debug("a history ends", exc_info=True)
        return f"{type(error).__name__}: {error}"
    finally:
        if watch is not None:
            watch.cancel()
        if world is not None:
            with contextlib.suppress(Exception):
                world.stop()
            if world.loop is not None:
                world.loop.close()
        shutil.rmtree(directory, ignore_errors=True)


def _give_up(world: World) -> None:
    world.failed = TimeoutError()
    faulthandler.dump_traceback()
    for instance in world.instances:
        instance.stop()


def shrink(history: History, fault: str, stage: Stage = FAKE, tries: int = 150) -> tuple[History, str]:
    """Return a shorter history with a fault of the same kind."""
    left, size = tries, len(history.steps) // 2
    while size and left > 0:
        is_shorter = False
        for at in range(0, len(history.steps) - size + 1, size):
            left -= 1
            shorter = History(history.setup, history.steps[:at] + history.steps[at + size :])
            found = play(shorter, stage=stage)
            if found and found.partition(":")[0] == fault.partition(":")[0]:
                history, fault, is_shorter = shorter, found, True
                break
        if not is_shorter:
            size //= 2
    return history, fault


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.pairs", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=200)
    parser.add_argument("--faults", type=int, default=3, help="how many to show before it ends")
    parser.add_argument("--whole", action="store_true", help="do not shorten what fails")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args(argv)
    logging.getLogger("canal").setLevel(logging.CRITICAL + 1)
    if options.verbose:
        logging.basicConfig(level=logging.DEBUG)
    began, faults = time.monotonic(), 0
    for seed in range(options.seed, options.seed + options.histories):
        history = draw(seed)
        fault = play(history, print if options.verbose else lambda text: None)
        if fault:
            faults += 1
            if not options.whole:
                history, fault = shrink(history, fault)
            print(f"seed {seed}: {fault}\n{history}\n", flush=True)
            if faults >= options.faults:
                break
    spent = time.monotonic() - began
    print(f"{seed - options.seed + 1} histories of {len(PAIRS)} pairs, {faults} wrong, {spent:.1f} s")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
