"""A server, a stream and a target as plain values, in which every interleaving of writes, reads and crashes can be played."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Any

import attrs

import canal
from canal.changes import Change, Changes, Op, Reader, Table
from canal.model import Entry
from canal.pipes.initial import Initial, SnapshotBatch
from canal.pipes.rules import Rules
from canal.position import Position
from canal.schema import TableSchema, column_from_text
from canal.snapshot.rows import Name, Rows, SourceTable
from canal.snapshot.values import Forms, Selection
from canal.targets import SQLiteTarget
from canal.targets.json_lines import JSONLinesTarget
from canal.targets.protocol import Load, Progress
from canal.testing import FakeBinlog
from canal.testing._encode import packed_text

NAME = ("shop", "orders")
#: Parts of keys which are equal if they are joined or folded.
PARTS = ("a", "A", "a,", ",a")
Row = tuple[str, str, int]


class Later(Executor):
    """Runs a task when ``run`` is called."""

    def __init__(self) -> None:
        self.tasks: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if fn.__name__ == "as_tried":  # the pipe waits for it
            future.set_result(fn(*args, **kwargs))
        else:
            self.tasks.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run(self) -> None:
        for future, task in self.tasks:
            if future.set_running_or_notify_cancel():
                future.set_result(task())
        self.tasks.clear()


@attrs.define
class History:
    """Transactions of a table, each with its entries, and the rows behind it."""

    units: list[tuple[list[Entry], Position]]
    states: list[Counter[Row]]
    """The first is that before any of them."""

    @classmethod
    def random(cls, rng: random.Random, count: int, *, has_key: bool) -> History:
        fake = FakeBinlog()
        key = "PRIMARY KEY (a, b)" if has_key else "KEY (a)"
        table = fake.table(*NAME, f"a VARCHAR(9) NOT NULL, b VARCHAR(9) NOT NULL, n INT, {key}")
        rows: list[Row] = []
        states = [Counter[Row]()]
        for number in range(count):
            rows = _changed(rng, fake, table, rows, number, has_key)
            states.append(Counter(rows))
        fake.end()
        units: list[tuple[list[Entry], Position]] = []
        config = canal.InstanceConfig(destination="load", source=fake, start="earliest")
        with canal.Instance(config) as instance:
            instance.subscribe()
            open_ones: list[Entry] = []
            for message in instance.stream(batch_size=1):
                for entry in message.entries:
                    open_ones.append(entry)
                    if entry.is_end:
                        units.append((open_ones, entry.position))
                        open_ones = []
        assert len(units) == count, (len(units), count)
        return cls(units, states)

    def position(self, number: int) -> Position:
        """The position behind so many transactions."""
        return self.units[number - 1][1] if number else attrs.evolve(self.units[0][1], offset=4)


def packet(number: int, cells: Iterable[str | bytes | None]) -> bytes:
    """Return a row of an answer as a server sends it."""
    row = b"".join(b"\xfb" if cell is None else packed_text(cell if isinstance(cell, bytes) else cell.encode()) for cell in cells)
    return len(row).to_bytes(3, "little") + bytes((number & 0xFF,)) + row


def _changed(rng: random.Random, fake: FakeBinlog, table: Any, rows: list[Row], number: int, has_key: bool) -> list[Row]:
    weights = (8, 4, 4, 4, 0.5) if number > 15 else (1, 0, 0, 0, 0)
    kind = rng.choices(("insert", "update", "move", "delete", "truncate"), weights)[0]
    taken = {row[:2] for row in rows}
    free = [(a, b) for a in PARTS for b in PARTS if not has_key or (a, b) not in taken]
    if kind == "truncate":
        fake.ddl("TRUNCATE TABLE orders", schema="shop")
        return []
    if kind == "insert" and free or not rows:
        new = (*rng.choice(free), number)
        table.insert(_row(new))
        return [*rows, new]
    kind = "delete" if kind in ("insert", "move") and not free else kind
    old = rng.choice(rows)
    rest = list(rows)
    rest.remove(old)
    if kind == "delete":
        table.delete(_row(old))
        return rest
    new = (*(rng.choice(free) if kind == "move" else old[:2]), number)
    table.update(_row(old), _row(new))
    return [*rest, new]


def _row(row: Row) -> dict[str, Any]:
    return dict(zip("abn", row))


class World:
    """What a server has in its log and shows in its tables, how far the stream is, and what is in the target.

    Args:
        count: transactions before the pipe begins, and after.
    """

    def __init__(self, seed: int, *, has_key: bool, before: int = 20, count: int = 40) -> None:
        self.rng = random.Random(seed)
        self.has_key = has_key
        self.history = History.random(self.rng, before + count, has_key=has_key)
        self.logged = self.streamed = before
        self.shown = before - self.rng.randrange(5)
        self.target: Counter[Row] = Counter()
        self.saved: Progress | None = None
        self.executor = Later()
        columns = (
            column_from_text("a", "varchar(9)", charset="utf8mb4", key=has_key, nullable=False),
            column_from_text("b", "varchar(9)", charset="utf8mb4", key=has_key, nullable=False),
            column_from_text("n", "int"),
        )
        keys = ("a", "b") if has_key else ()
        self.selection = Selection.of(TableSchema(*NAME, columns), Forms())
        self.source = SourceTable(Table("shop.orders", "shop.orders", columns, keys), keys, "a b", 0)
        self.reader = Reader(is_log=not has_key)
        self.initial = self._initial()

    # -- the tables of the server -------------------------------------------------------------------------------------

    def names(self) -> list[Name]:
        return [NAME]

    def look(self, name: Name) -> SourceTable:
        return self.source

    def settle(self, name: Name, position: Position, stopping: threading.Event) -> None:
        numbers = (number for number in range(len(self.history.units) + 1) if self.history.position(number) == position)
        self.shown = max(self.shown, next(numbers))

    def read(self, name: Name, after: tuple[str, ...] | None, order: str, count: int, stopping: threading.Event) -> Rows:
        found = sorted(row for row in self.history.states[self.shown] if after is None or row[:2] > after)
        upper = found[count - 1][:2] if len(found) >= count else None
        self.goes_on()
        return self._rows(found[:count], upper, self.history.position(self.logged))

    def read_whole(self, name: Name, stopping: threading.Event) -> Rows:
        values = list(self.history.states[self.shown].elements())
        end = self.history.position(self.shown)
        self.goes_on()
        return self._rows(values, None, end)

    def _rows(self, rows: list[Row], upper: tuple[str, ...] | None, end: Position) -> Rows:
        images = self.selection.images(0)
        images.feed(b"".join(packet(number, map(str, row)) for number, row in enumerate(rows)))
        entry = self.selection.entry(images.rows, images.take(), end, 0)
        return Rows(self.source, self.selection, [entry] if rows else [], upper, end, 0)

    def delivers(self, name: Name) -> bool:
        return True

    def check(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass

    def goes_on(self) -> None:
        """Transactions are committed, and some of them are shown."""
        self.logged = min(self.logged + self.rng.randrange(4), len(self.history.units))
        self.shown = self.rng.choice((self.shown, self.rng.randint(self.shown, self.logged)))

    # -- the pipe -------------------------------------------------------------------------------------------------------

    def _initial(self) -> Initial:
        target: Any = SQLiteTarget("copy.db") if self.has_key else JSONLinesTarget("lines")
        made = Initial(self, target, Rules(()), parks=False, executor=self.executor, chunk_rows=3)
        made.begin(None, lambda key: self.saved)  # type: ignore[arg-type]
        return made

    def play(self) -> None:
        """Let everything happen in some order, until all is done."""
        while self.streamed < len(self.history.units) or not self.initial.is_done:
            if self.logged == len(self.history.units) and self.rng.random() < 0.1:
                self.shown = self.logged
            kind = self.rng.choices(("server", "stream", "read", "write", "crash"), (3, 3, 3, 3, 0.2))[0]
            getattr(self, f"_{kind}")()

    def _server(self) -> None:
        self.goes_on()

    def _stream(self) -> None:
        if self.streamed == self.logged:
            return
        entries, position = self.history.units[self.streamed]
        self.initial.saw(entries)
        changes = Changes([list(self.reader.changes(entry)) for entry in entries])
        self._apply(self.initial.keep(changes))
        self.streamed += 1
        self.saved = Progress(position, load=self.initial.load(""))

    def _read(self) -> None:
        self.executor.run()

    def _write(self) -> None:
        batch = self.initial.step(self.history.position(self.streamed))
        if batch is not None:
            self._wrote(batch)

    def _wrote(self, batch: SnapshotBatch) -> None:
        self._apply(batch.changes)
        self.saved = Progress(self.history.position(self.streamed), load=batch.load)
        self.initial.wrote(batch)

    def _crash(self) -> None:
        self.executor.tasks.clear()
        self.initial = self._initial()

    def _apply(self, changes: Changes) -> None:
        for change in changes:
            if self.has_key:
                self._put(change)
            elif change.op is Op.TRUNCATE:
                self.target.clear()
            else:
                self._count(change)

    def _put(self, change: Change) -> None:
        if change.op is Op.TRUNCATE:
            self.target.clear()
            return
        for row in (change.before, change.after):
            if row is not None:
                gone = [one for one in self.target if one[:2] == row.values()[:2]]
                for one in gone:
                    del self.target[one]
        if change.after is not None:
            self.target[change.after.values()] = 1  # type: ignore[index]

    def _count(self, change: Change) -> None:
        if change.before is not None:
            self.target[change.before.values()] -= 1  # type: ignore[index]
        if change.after is not None:
            self.target[change.after.values()] += 1  # type: ignore[index]

    @property
    def left(self) -> Load | None:
        return self.initial.load("")
