"""What every target must stand, also one of your own: the cases that `docs/targets.md` takes its guarantees from.

    HARNESS = target_suite.Harness(lambda: MyTarget(...), rows=read_my_table)

    @pytest.mark.parametrize("case", target_suite.CASES)
    def test_my_target(case):
        target_suite.run(case, HARNESS)

Each case makes changes with a fake binlog, has a pipe or a writer give them to the target with faults in between, and compares
what the target has then with what was done. It uses tables and streams of its own names, so one server serves all cases.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import linecache
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import FrameType
from typing import Any, Final

import attrs

from canal.changes import Change, Reader
from canal.config import InstanceConfig
from canal.errors import ConfigError, TargetConflictError, UnfitChangeError
from canal.instance.instance import Instance
from canal.meta import FileMeta
from canal.pipes import Pipe, pipe
from canal.rows.values import ZeroDate
from canal.targets.protocol import Guarantee, Progress, Readable, Scope, Target, Work
from canal.targets.values import TEXTS
from canal.testing.fake import FakeBinlog, FakeTable
from canal.testing.processes import scratch

Row = Mapping[str, Any]

_names = itertools.count(1)
#: So many steps of a commit are cut short, beside those around the moment in which it is done.
_SAMPLES: Final = 5


@attrs.frozen
class Harness:
    """How the suite gets at a target.

    Args:
        make: gives the target; called again and again, each time as after a restart, for the same storage.
        rows: of a target of rows: all rows of a table by its name ``schema.table``, [] where it is not there.
        messages: of a log: all messages of a table, oldest first, each with ``id``, ``op`` (INSERT, UPDATE, DELETE, TRUNCATE …),
            ``before`` and ``after``.
        unique: makes a unique key of a column of a table that is there already; None: the target has no such thing.
    """

    make: Callable[[], Target]
    rows: Callable[[str], Sequence[Row]] | None = None
    messages: Callable[[str], Sequence[Row]] | None = None
    unique: Callable[[str, str], None] | None = None

    @property
    def is_once(self) -> bool:
        return self.make().guarantee is Guarantee.ONCE

    def scope_of(self, table: str) -> str:
        """What a writer is asked for the progress of, where it is about this table."""
        return table if self.make().scope == "table" else ""

    def state(self, table: str) -> list[dict[str, Any]]:
        """The rows that the target has, or that its messages lead to, each value as text, by their keys."""
        if self.rows is not None:
            return _sorted(self.rows(table))
        found: dict[Any, Row] = {}
        for message in self.told(table):
            if message["op"] == "TRUNCATE":
                found.clear()
            if message["before"] is not None:
                found.pop(message["before"]["id"], None)
            if message["after"] is not None:
                found[message["after"]["id"]] = message["after"]
        return _sorted(list(found.values()))

    def told(self, table: str) -> list[Row]:
        """The messages of a table, each once; of a target that promises so there is no other."""
        assert self.messages is not None, "a harness has rows, or messages"
        messages = self.messages(table)
        once = list({message["id"]: message for message in reversed(messages)}.values())[::-1]
        first = list({message["id"]: message for message in messages}.values())
        if self.is_once:
            assert len(messages) == len(once), f"{len(messages) - len(once)} messages of {table} came twice"
        return once if len(messages) == len(once) else first


def _sorted(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows by their keys, their values as text; NULL is no value, as in targets that have none."""
    texts = ({name.lower(): as_text(value) for name, value in row.items() if value is not None} for row in rows)
    return sorted(texts, key=lambda row: str(row["id"]))


def as_text(value: Any) -> Any:
    """A value as what two of them are compared by: text, bytes or None."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    return None if value is None else TEXTS.get(type(value), str)(value)


def run(case: str, harness: Harness) -> None:
    """Put a target through a case. AssertionError says what it does wrong."""
    with _Source() as source:
        CASES[case](harness, source)


class Killed(BaseException):
    """The process ends here."""


# -- the source ----------------------------------------------------------------------------------------------------------


class _Source:
    """A fake binlog, and what its tables hold."""

    def __init__(self) -> None:
        self.fake = FakeBinlog()
        self.stream = f"suite-{next(_names)}-{random.randrange(1 << 32):08x}"
        self.expected: dict[str, dict[Any, dict[str, Any]]] = {}
        self._tables: dict[str, FakeTable] = {}
        self._folder = tempfile.TemporaryDirectory(dir=scratch())

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.fake.close()
        self._folder.cleanup()

    def table(self, columns: str = "id INT PRIMARY KEY, n INT, note VARCHAR(40)") -> str:
        """A new table with the key ``id``."""
        name = f"t{next(_names)}_{random.randrange(1 << 32):08x}"
        self._tables[f"suite.{name}"] = self.fake.table("suite", name, columns)
        self.expected[f"suite.{name}"] = {}
        return f"suite.{name}"

    def insert(self, table: str, *rows: dict[str, Any]) -> None:
        names = [column.name for column in self._tables[table].columns]
        for row in rows:
            self._tables[table].insert(row)
            self.expected[table][row["id"]] = {name: row.get(name) for name in names}

    def update(self, table: str, key: Any, **new: Any) -> None:
        old = self.expected[table].pop(key)
        self._tables[table].update(old, new)
        self.expected[table][new.get("id", key)] = {**old, **new}

    def delete(self, table: str, *keys: Any) -> None:
        for key in keys:
            self._tables[table].delete(self.expected[table].pop(key))

    def truncate(self, table: str) -> None:
        self.fake.ddl(f"TRUNCATE TABLE {table}", "suite")
        self.expected[table] = {}

    def add_column(self, table: str, columns: str, name: str) -> None:
        self._tables[table].alter(f"ALTER TABLE {table} ADD COLUMN {name} INT", columns)
        for row in self.expected[table].values():
            row[name] = None

    def load(self, tables: Sequence[str], seed: int, transactions: int = 40) -> None:
        """Transactions that insert, delete, and move keys and amounts; the sum of ``n`` over the tables stays 0."""
        draw = random.Random(seed)
        fresh = itertools.count(1)
        for _ in range(transactions):
            with self.fake.transaction():
                amount = draw.randrange(100)
                for table, n in zip(tables, (amount, -amount)):
                    self.insert(table, {"id": next(fresh), "n": n, "note": "x" * draw.randrange(30)})
                for table in tables:
                    rows = self.expected[table]
                    one, other = draw.choice(list(rows)), draw.choice(list(rows))
                    if one != other:
                        self.update(table, one, n=rows[one]["n"] + 1)
                        self.update(table, other, n=rows[other]["n"] - 1, id=next(fresh))
                    if rows[max(rows)]["n"] == 0:
                        self.delete(table, max(rows))

    @contextmanager
    def instance(self) -> Iterator[Instance]:
        """One life of a process that goes on from its last ack."""
        meta = FileMeta(self._folder.name)
        config = InstanceConfig(destination=self.stream, source=self.fake, start="earliest", meta=meta)
        with Instance(config) as instance:
            instance.subscribe()
            yield instance

    def follow(self, target: Target, **options: Any) -> Pipe:
        """A pipe from the last ack to the end of the log."""
        self.fake.end()
        with self.instance() as instance:
            made = pipe(instance, target, on_error="stop", **options)
            made.run()
            return made

    def changes(self, *, is_log: bool) -> tuple[list[Change], Progress]:
        """All changes of the log, and the progress behind them."""
        reader, found = Reader(is_log=is_log), []
        config = InstanceConfig(destination="changes", source=self.fake, start="earliest")
        with Instance(config) as instance:
            instance.subscribe()
            for message in instance.stream():
                found += [change for entry in message.entries for change in reader.changes(entry)]
                assert message.position is not None
                if message.position.offset == self.fake.position.offset:
                    return found, Progress(message.position)
        raise AssertionError("the log ended before its end")

    def check(self, harness: Harness) -> None:
        """The target has what the tables hold."""
        for table, rows in self.expected.items():
            assert harness.state(table) == _sorted(list(rows.values())), f"{table} differs"


# -- faults --------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Faulty:
    """A target around which something happens: ``at`` is called with "before" and "after" each commit."""

    target: Target
    at: Callable[[str], None]

    @property
    def guarantee(self) -> Guarantee:
        return self.target.guarantee

    @property
    def scope(self) -> Scope:
        return self.target.scope

    @property
    def is_log(self) -> bool:
        return self.target.is_log

    @contextmanager
    def begin(self, stream: str) -> Iterator[Work]:
        with self.target.begin(stream) as work:
            yield _FaultyWork(work, self.at)


@attrs.frozen
class _FaultyWork:
    work: Work
    at: Callable[[str], None]

    def progress(self, table: str = "") -> Progress | None:
        return self.work.progress(table)

    def apply(self, changes: Sequence[Change]) -> None:
        self.work.apply(changes)

    def commit(self, progress: Progress, table: str = "") -> None:
        self.at("before")
        self.work.commit(progress, table)
        self.at("after")


@contextmanager
def _killed_at(step: int) -> Iterator[list[int]]:
    """Raise ``Killed`` at this of the lines of Python that run meanwhile, of any file; gives a list with their number so far.

    Not where a lock would stay taken, as no process leaves one: within ``threading``, and at a line that takes or releases one.
    """
    count, is_killed = [0], False

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal is_killed
        if event == "line":
            count[0] += 1
            if 0 < step <= count[0] and not (_may_hold_a_lock(frame) or _is_finalizer(frame)):
                sys.settrace(None)
                is_killed = True
                raise Killed
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    except BaseException as error:
        if is_killed and not isinstance(error, GeneratorExit):  # whatever a library has made of it on its way
            raise Killed from None
        raise
    finally:
        sys.settrace(before)


@contextmanager
def _frozen_heap() -> Iterator[None]:
    """Hide all objects of now from the garbage collector: a collection takes milliseconds instead of a third of a second."""
    is_frozen = gc.get_freeze_count() > 0  # by the program, which wants it to stay so
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not is_frozen:
            gc.unfreeze()


@contextmanager
def _ended() -> Iterator[None]:
    """What is killed within it is gone behind it; what its finalizers raise is nothing to anybody."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with contextlib.suppress(Killed):
            yield
        gc.collect()
    finally:
        sys.unraisablehook = before


def _may_hold_a_lock(frame: FrameType) -> bool:
    """Whether it may be at the end of a ``with``, which runs as its first line once more, or just behind ``acquire()``."""
    file = frame.f_code.co_filename
    line = linecache.getline(file, frame.f_lineno).strip()
    return file == threading.__file__ or line.startswith(("with ", "async with ", "try:")) or ".release()" in line


def _is_finalizer(frame: FrameType | None) -> bool:
    """Whether it is called by one, out of which nothing can be raised."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


# -- cases ---------------------------------------------------------------------------------------------------------------


def _follows(harness: Harness, source: _Source) -> None:
    """Inserts, updates, deletes and moved keys of two tables."""
    source.load([source.table(), source.table()], seed=1)

    source.follow(harness.make(), batch_size=7)

    source.check(harness)
    source.follow(harness.make())
    source.check(harness)


def _killed(point: str) -> Callable[[Harness, _Source], None]:
    def case(harness: Harness, source: _Source) -> None:
        source.load([source.table(), source.table()], seed=2)
        draw = random.Random(point)
        kills = 0

        def at(now: str) -> None:
            if now == point and draw.random() < 0.3:
                raise Killed

        while True:
            try:
                source.follow(Faulty(harness.make(), at), batch_size=11)
                break
            except Killed:
                kills += 1

        assert kills > 2
        source.check(harness)

    case.__doc__ = f"The process is killed {point} commits, and goes on from its last ack."
    return case


def _killed_within(harness: Harness, source: _Source) -> None:
    """The process is killed at any step of a commit: all or nothing is there, and then the rest comes."""
    table = source.table()
    source.load([table, source.table()], seed=3, transactions=4)
    changes, progress = source.changes(is_log=harness.make().is_log)
    mine = [change for change in changes if change.table.name == table]
    steps = _steps_of_a_commit(harness, mine, progress, f"{source.stream}-count")
    expected = _sorted(list(source.expected[table].values()))
    numbers = itertools.count(1)

    def is_there(step: int) -> bool:
        """Whether a commit that is killed at this step leaves rows; then the rest is done."""
        number = next(numbers)
        stream, name = f"{source.stream}-{number}", f"{table}_{number}"
        own = _renamed(mine, name)
        at = harness.scope_of(name)
        with _ended(), harness.make().begin(stream) as work:
            work.progress(at)
            work.apply(own)
            with _killed_at(step):
                work.commit(progress, at)
        with harness.make().begin(stream) as work:
            is_done, there = work.progress(at) is not None, harness.state(name)
            if harness.is_once:
                assert bool(there) == is_done, f"killed at step {step}: progress {is_done}, {len(there)} rows"
            if not is_done:
                work.apply(own)
                work.commit(progress, at)
        assert harness.state(name) == expected, f"killed at step {step}"
        return bool(there)

    with _frozen_heap():
        for step in range(1, steps, max(steps // _SAMPLES, 1)):
            is_there(step)
        low, high = 0, steps + 1  # the moment at which rows are there, to the step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_there(middle) else (middle, high)


def _renamed(changes: Sequence[Change], name: str) -> list[Change]:
    tables = {id(change.table): attrs.evolve(change.table, name=name, source=name) for change in changes}
    return [attrs.evolve(change, table=tables[id(change.table)]) for change in changes]


def _steps_of_a_commit(harness: Harness, changes: Sequence[Change], progress: Progress, stream: str) -> int:
    name = f"{changes[0].table.name}_count"
    with harness.make().begin(stream) as work:
        work.progress(harness.scope_of(name))
        work.apply(_renamed(changes, name))
        with _killed_at(0) as count:
            work.commit(progress, harness.scope_of(name))
    return count[0]


def _begun(harness: Harness, stream: str, table: str, stack: contextlib.ExitStack) -> tuple[Work, Progress | None]:
    work = stack.enter_context(harness.make().begin(stream))
    return work, work.progress(table)


def _late_writer(harness: Harness, source: _Source) -> None:
    """Of two writers one is refused, at the first commit and later, and nothing of it is there: the one that commits second, or
    the one that began first, where beginning shuts out those before."""
    if not harness.is_once:
        return
    table = source.table()
    for key in range(1, 5):
        source.insert(table, {"id": key, "n": key})
    changes, progress = source.changes(is_log=harness.make().is_log)
    for known in (False, True):
        stream, name = f"{source.stream}-{known}", f"{table}_{int(known)}"
        first, second, third = (_renamed(changes[at : at + 1], name) for at in range(3))
        own = harness.scope_of(name)
        with contextlib.ExitStack() as stack:
            early, _ = _begun(harness, stream, own, stack)
            if known:
                early.apply(first)
                early.commit(progress, own)
            late, _ = _begun(harness, stream, own, stack)
            early.apply(second)
            try:
                early.commit(attrs.evolve(progress, epoch=1), own)
                is_shut_out = False
            except TargetConflictError:
                is_shut_out = True
            late.apply(third)
            with contextlib.nullcontext() if is_shut_out else _raises(TargetConflictError, "neither of two writers was refused"):
                late.commit(attrs.evolve(progress, epoch=1), own)
        ids = [row["id"] for row in harness.state(name)]
        assert ids == ["1"] * known + ["3" if is_shut_out else "2"], f"rows {ids} are there after a writer was refused"


def _early_turn(harness: Harness, source: _Source) -> None:
    """The writer of an earlier turn of ``ha`` is refused."""
    table = source.table()
    source.insert(table, {"id": 1}, {"id": 2})
    changes, progress = source.changes(is_log=harness.make().is_log)
    own = harness.scope_of(table)
    with contextlib.ExitStack() as stack:
        work, before = _begun(harness, source.stream, own, stack)
        work.apply(changes[:1])
        work.commit(attrs.evolve(progress, epoch=5), own)
    with contextlib.ExitStack() as stack:
        work, before = _begun(harness, source.stream, own, stack)
        if before is None:
            return  # it keeps no progress
        assert before == attrs.evolve(progress, epoch=5), "the progress does not come back as it was given"
        work.apply(changes[1:])
        with _raises(TargetConflictError, "a writer of an earlier turn was not refused"):
            work.commit(attrs.evolve(progress, epoch=4), own)
    assert len(harness.state(table)) == 1


def _repeats(harness: Harness, source: _Source) -> None:
    """Everything is given again from the start: it is left out, or does no harm."""
    source.load([source.table(), source.table()], seed=4)
    source.follow(harness.make(), batch_size=9)
    source._folder.cleanup()
    source._folder = tempfile.TemporaryDirectory(dir=scratch())  # a cursor that is lost

    made = source.follow(harness.make(), batch_size=13)

    source.check(harness)
    if harness.is_once:
        assert made.status().changes == 0


def _key_swap(harness: Harness, source: _Source) -> None:
    """Rows change places within a transaction."""
    table = source.table()
    source.insert(table, {"id": 1, "n": 1}, {"id": 2, "n": 2})
    with source.fake.transaction():
        source.update(table, 1, id=3)
        source.update(table, 2, id=1)
        source.update(table, 3, id=2)

    source.follow(harness.make(), batch_size=1)

    source.check(harness)


def _same_key(harness: Harness, source: _Source) -> None:
    """A key is deleted and inserted, updated and deleted, and inserted and deleted within a transaction."""
    table = source.table()
    source.insert(table, {"id": 1, "n": 1}, {"id": 2, "n": 2})
    with source.fake.transaction():
        source.delete(table, 1)
        source.insert(table, {"id": 1, "n": 3})
        source.update(table, 2, n=4)
        source.delete(table, 2)
        source.insert(table, {"id": 3, "n": 5})
        source.delete(table, 3)

    source.follow(harness.make())

    source.check(harness)


def _unique_values(harness: Harness, source: _Source) -> None:
    """Values of a second unique key change places within a transaction."""
    table = source.table("id INT PRIMARY KEY, n INT, UNIQUE KEY (n)")
    source.insert(table, {"id": 1, "n": 1}, {"id": 2, "n": 2})
    changes, progress = source.changes(is_log=harness.make().is_log)
    with harness.make().begin(source.stream) as work:
        work.progress(harness.scope_of(table))
        work.apply(changes)
        work.commit(progress, harness.scope_of(table))
    if harness.unique is not None:
        harness.unique(table, "n")
    with source.fake.transaction():
        source.update(table, 1, n=3)
        source.update(table, 2, n=1)
        source.update(table, 1, n=2)

    source.follow(harness.make())

    source.check(harness)


def _values(columns: str, *rows: dict[str, Any]) -> Callable[[Harness, _Source], None]:
    def case(harness: Harness, source: _Source) -> None:
        table = source.table(columns)
        source.insert(table, *rows)
        source.update(table, rows[0]["id"], id=rows[0]["id"] - 1)
        source.delete(table, rows[-1]["id"])

        source.follow(harness.make())

        source.check(harness)

    return case


def _zero_dates(harness: Harness, source: _Source) -> None:
    """A date that is none is kept as it is, or refused, and then nothing behind it is written."""
    table = source.table("id INT PRIMARY KEY, d DATE")
    other = source.table()
    source.insert(other, {"id": 1})
    source.insert(table, {"id": 1, "d": ZeroDate("0000-00-00")})
    source.insert(other, {"id": 2})
    try:
        source.follow(harness.make(), batch_size=1)
    except UnfitChangeError:
        assert len(harness.state(table)) == 0
        assert [row["id"] for row in harness.state(other)] == ["1"]
    else:
        source.check(harness)


def _truncate(harness: Harness, source: _Source) -> None:
    """A table is emptied between rows of one commit, before it has any, and another one is left alone."""
    table, other, empty = source.table(), source.table(), source.table()
    source.truncate(empty)
    source.insert(empty, {"id": 1})
    source.insert(table, {"id": 1}, {"id": 2})
    source.insert(other, {"id": 1}, {"id": 2})
    source.insert(table, {"id": 3})
    source.truncate(table)
    source.insert(table, {"id": 2, "n": 7})

    source.follow(harness.make(), batch_size=2)

    source.check(harness)


def _added_column(harness: Harness, source: _Source) -> None:
    """A column is added between rows of one commit, and between commits."""
    tables = source.table(), source.table()
    for table in tables:
        source.insert(table, {"id": 1, "n": 1}, {"id": 2, "n": 2})
        source.add_column(table, "id INT PRIMARY KEY, n INT, note VARCHAR(40), more INT", "more")
        source.insert(table, {"id": 3, "more": 3})
        source.update(table, 2, more=5)

    source.follow(harness.make(), batch_size=4)

    if harness.messages is None:
        source.check(harness)
    else:  # what was said before the column was there does not name it
        for table in tables:
            ids = {row["id"]: row.get("more") for row in harness.state(table)}
            assert ids == {"1": None, "2": "5", "3": "3"}


def _partial_images(harness: Harness, source: _Source) -> None:
    """Row images hold only what changed (MINIMAL): rows are put together, or refused."""
    if harness.messages is not None:
        return
    table = source.table()
    source.insert(table, *({"id": key, "n": key, "note": "é"} for key in range(1, 5)))
    source.fake.row_image = "MINIMAL"
    source.update(table, 1, n=5)
    source.update(table, 1, note="ü")
    source.update(table, 2, id=7)
    source.update(table, 7, n=8)
    source.delete(table, 3)
    for size in (1, 100):
        try:
            source.follow(harness.make(), batch_size=size)
        except UnfitChangeError:
            return
    source.check(harness)


def _scan(harness: Harness, source: _Source) -> None:
    """What can be read gives each row once, between any two keys; of other targets nothing is asked."""
    with harness.make().begin(source.stream) as work:
        if not isinstance(work, Readable):
            return
    one, two = source.table(), source.table("id INT, n INT, note VARCHAR(40), PRIMARY KEY (id, n)")
    source.insert(one, *({"id": number, "n": -number, "note": "é"} for number in range(1, 1101)))
    del source.expected[two]
    source._tables[two].insert(*({"id": number // 4, "n": number % 4} for number in range(1100)))
    source.follow(harness.make())
    tables = {change.table.name: change.table for change in source.changes(is_log=False)[0]}
    with harness.make().begin(source.stream) as work:
        assert isinstance(work, Readable)
        whole = [dict(zip(tables[one].names.names, row)) for row in work.scan(tables[one])]
        part = [row[0] for row in work.scan(tables[one], (20,), (1050,))]
        pairs = [row[:2] for row in work.scan(tables[two], (2, 1), (270, 2))]
        ends = [row[:2] for row in work.scan(tables[two], (0, 3), (2, 0))]
        read = work.read(tables[one], [(7,), (1101,)])
        gone = list(work.scan(attrs.evolve(tables[one], name=f"{one}_gone")))
        with _raises(ConfigError, "a table without a key is read"):
            list(work.scan(attrs.evolve(tables[one], keys=())))

    assert [as_text(row["id"]) for row in whole] == [str(number) for number in range(1, 1101)], "rows are not in their order"
    assert _sorted(whole) == _sorted(list(source.expected[one].values()))
    assert part == list(range(21, 1051))
    assert pairs == [divmod(number, 4) for number in range(10, 1083)]
    assert ends == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
    assert (list(read), gone) == ([(7,)], [])


def _whole(harness: Harness, source: _Source) -> None:
    """With the scope "all" no commit ends within a transaction of the source."""
    if harness.make().scope != "all":
        return
    tables = source.table(), source.table()
    source.load(tables, seed=5, transactions=15)
    seen = []

    def at(point: str) -> None:
        if point == "after":
            total = sum(int(row["n"]) for table in tables for row in harness.state(table))
            seen.append(total)

    source.follow(Faulty(harness.make(), at), batch_size=3)

    assert len(seen) > 4
    assert set(seen) == {0}, "a commit shows a part of a transaction"
    source.check(harness)


def _order(harness: Harness, source: _Source) -> None:
    """A log has each change in the order of the log, with the rows before and after it; a row whose key changes may be deleted
    and inserted."""
    if harness.messages is None:
        return
    table = source.table()
    source.insert(table, {"id": 1, "n": 1, "note": "ü"})
    source.update(table, 1, n=2, id=2)
    source.truncate(table)
    source.insert(table, {"id": 3})
    source.delete(table, 3)

    source.follow(harness.make())

    one, moved = {"id": "1", "n": "1", "note": "ü"}, {"id": "2", "n": "2", "note": "ü"}
    new = {"id": "3", "n": None, "note": None}
    sides = [(message["op"], message["before"], message["after"]) for message in harness.told(table)]
    found = [
        (op, *(side and {name: as_text(value) for name, value in side.items()} for side in (before, after)))
        for op, before, after in sides
    ]
    moves = [("UPDATE", one, moved)] if len(found) == 5 else [("DELETE", one, None), ("INSERT", None, moved)]
    assert found == [("INSERT", None, one), *moves, ("TRUNCATE", None, None), ("INSERT", None, new), ("DELETE", new, None)]


_LIMITS: Final = (
    "id BIGINT UNSIGNED PRIMARY KEY, u BIGINT UNSIGNED, s BIGINT, bits BIT(64), p DECIMAL(65,30), q DECIMAL(10,2), y YEAR, "
    "d DATE, t TIME(6), dt DATETIME(6), ts TIMESTAMP(6), e ENUM('a','ü'), m SET('x','y'), j JSON, b VARBINARY(20)"
)
_HIGH: Final = {
    "id": (1 << 64) - 1,
    "u": (1 << 64) - 1,
    "s": (1 << 63) - 1,
    "bits": (1 << 64) - 1,
    "p": Decimal("9" * 35 + "." + "9" * 30),
    "q": Decimal("99999999.99"),
    "y": 2155,
    "d": date(9999, 12, 31),
    "t": timedelta(hours=838, minutes=59, seconds=59),
    "dt": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "ts": datetime(2038, 1, 19, 3, 14, 7, 999999, UTC),
    "e": "ü",
    "m": "x,y",
    "j": '{"a": [1, "ü"]}',
    "b": bytes(range(20)),
}
_LOW: Final = {
    "id": 1,
    "u": 0,
    "s": -(1 << 63),
    "bits": 0,
    "p": Decimal("-" + "9" * 35 + "." + "9" * 30),
    "q": Decimal("-0.01"),
    "y": 1901,
    "d": date(1000, 1, 1),
    "t": -timedelta(hours=838, minutes=59, seconds=59),
    "dt": datetime(1000, 1, 1),
    "ts": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    "e": "a",
    "m": "",
    "j": "[]",
    "b": b"",
}
_BIG: Final = {"id": 2, "t": "ü€😀" * 30_000, "b": bytes(range(256)) * 300}

#: The cases by their names.
CASES: Final[Mapping[str, Callable[[Harness, _Source], None]]] = {
    "follows": _follows,
    "killed_before_commit": _killed("before"),
    "killed_after_commit": _killed("after"),
    "killed_within_commit": _killed_within,
    "late_writer": _late_writer,
    "early_turn": _early_turn,
    "repeats": _repeats,
    "key_swap": _key_swap,
    "same_key": _same_key,
    "unique_values": _unique_values,
    "nulls": _values("id INT PRIMARY KEY, n INT, note VARCHAR(9), b BLOB, d DATE", {"id": 2}, {"id": 4, "note": ""}, {"id": 6}),
    "limits": _values(_LIMITS, _HIGH, _LOW, {"id": 7}),
    "large_values": _values("id INT PRIMARY KEY, t LONGTEXT, b LONGBLOB", _BIG, {"id": 9}),
    "odd_text": _values(
        "id INT PRIMARY KEY, t TEXT, b BLOB", {"id": 2, "t": "'\"\\%s?:a\n\t ", "b": b"\0'\\"}, {"id": 4, "t": "NULL"}, {"id": 9}
    ),
    "zero_dates": _zero_dates,
    "truncate": _truncate,
    "added_column": _added_column,
    "partial_images": _partial_images,
    "scan": _scan,
    "whole_transactions": _whole,
    "order": _order,
}


@contextmanager
def _raises(kind: type[Exception], otherwise: str) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    raise AssertionError(otherwise)
