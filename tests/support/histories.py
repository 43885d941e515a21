"""Histories of a table, as a source tells them and as a dict knows them; and targets that are nothing but a dict or that fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pyarrow as pa
from hypothesis import strategies as st

from canal.errors import TargetConflictError
from canal.targets.protocol import Progress
from canal.targets.tables import Abilities, matching

KEYS = ("id", "k")
COLUMNS = {"id": pa.int64(), "k": pa.string(), "a": pa.int64(), "b": pa.string()}
NAMES = pa.list_(pa.field("element", pa.string()))
TEXTS = pa.map_(pa.string(), pa.string())
TAIL = [pa.field("_absent", NAMES), pa.field("_exact", TEXTS)]


def form(columns: dict[str, pa.DataType] = COLUMNS) -> pa.Schema:
    own = [pa.field(name, kind) for name, kind in columns.items()]
    head = [
        pa.field("_op", pa.string()),
        pa.field("_txn", pa.int64()),
        pa.field("_ord", pa.int64()),
        pa.field("_ts", pa.timestamp("us", "UTC")),
        pa.field("_gtid", pa.string()),
    ]
    return pa.schema([*head, *own, pa.field("_before", pa.struct([*own, *TAIL])), *TAIL])


def change(op: str, txn: int, ord: int, row: dict[str, Any], before: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One row of the form; columns that ``row`` lacks are absent from the image."""
    absent = [] if more.pop("whole", False) else [name for name in COLUMNS if name not in row]
    return {
        "_op": op,
        "_txn": txn,
        "_ord": ord,
        "_ts": 1_700_000_000_000_000 + 1_000_000 * (txn % (1 << 36)),
        "_gtid": f"log:{txn}",
        **row,
        "_before": before,
        "_absent": absent or None,
        "_exact": None,
        **more,
    }


def table(changes: list[dict[str, Any]], columns: dict[str, pa.DataType] = COLUMNS) -> pa.Table:
    return pa.Table.from_pylist(changes, schema=form(columns))


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEYS)


@attrs.define
class History:
    """Changes in their order, and the table before each of them and after the last."""

    changes: list[dict[str, Any]]
    states: list[dict[tuple[Any, ...], dict[str, Any]]]

    def counts(self, end: int) -> dict[tuple[Any, ...], int]:
        found: dict[tuple[Any, ...], int] = {}
        for one in self.changes[:end]:
            name = (one["_op"], one["_txn"], one["_ord"])
            found[name] = found.get(name, 0) + 1
        return found


IDS, NUMBERS, WORDS = st.integers(1, 4), st.none() | st.integers(0, 9), st.none() | st.sampled_from("pq")


@st.composite
def histories(draw: st.DrawFn, minimal: bool | None = None, snapshot: bool | None = None, numbered: bool = False) -> History:
    """A table's life: inserts, updates, deletes, moves to another key and back, in transactions.

    It may begin with a snapshot, of chunks or with ``numbered`` of one moment.
    """
    partial = draw(st.booleans()) if minimal is None else minimal
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    history = History([], [{}])

    def say(op: str, row: dict[str, Any], before: dict[str, Any] | None, txn: int, ord: int) -> None:
        image, old = row, before
        if partial and op == "U":
            assert before is not None
            image = {name: value for name, value in row.items() if value != before[name]}
            old = {name: before[name] for name in KEYS}
        if partial and op == "D":
            image = {name: row[name] for name in KEYS}
        history.changes.append(change(op, txn, ord, image, old))
        if before is not None:
            del rows[key(before)]
        if op != "D":
            rows[key(row)] = row
        history.states.append({name: dict(value) for name, value in rows.items()})

    txn = draw(st.integers(1, 5))
    if draw(st.booleans()) if snapshot is None else snapshot:
        for index, number in enumerate(draw(st.lists(IDS, max_size=4, unique=True))):
            row = {"id": number, "k": "x", "a": number, "b": None}
            rows[key(row)] = row
            history.changes.append(change("r", txn, index - (1 << 62) if numbered else -1, row))
            history.states.append({name: dict(value) for name, value in rows.items()})
        if not numbered and draw(st.booleans()):  # the first chunk had no rows, and may come last
            index = draw(st.integers(0, len(rows)))
            history.changes.insert(index, change("T", txn, -1, {}, whole=True))
            history.states.insert(index, history.states[index])
    for _ in range(draw(st.integers(1, 6))):
        for ord in range(draw(st.integers(1, 4))):
            kind = draw(st.sampled_from(["I", "I", "U", "U", "M", "D", "T" if ord == 0 else "D"]))
            if kind == "T":
                rows.clear()
                history.changes.append(change("T", txn, 0, {}, whole=True))
                history.states.append({})
                break
            free = [(i, k) for i in range(1, 5) for k in "xy" if (i, k) not in rows]
            if kind == "I" or not rows:
                if free:
                    i, k = draw(st.sampled_from(free))
                    say("I", {"id": i, "k": k, "a": draw(NUMBERS), "b": draw(WORDS)}, None, txn, ord)
                continue
            before = rows[draw(st.sampled_from(sorted(rows)))]
            if kind == "D":
                say("D", before, before, txn, ord)
            elif kind == "U":
                after = {**before, draw(st.sampled_from("ab")): None, "a": draw(NUMBERS)}
                if after != before:
                    say("U", after, before, txn, ord)
            elif free:
                i, k = draw(st.sampled_from(free))
                say("U", {**before, "id": i, "k": k, "b": draw(WORDS)}, before, txn, ord)
        txn += draw(st.integers(1, 1 << 40))
    return history


@st.composite
def deliveries(draw: st.DrawFn, history: History, runs: int = 4) -> list[list[tuple[int, int]]]:
    """Batches of each run as (first, end) of the changes: each run begins anywhere that is done already, with cuts of its own."""
    total, done, result = len(history.changes), 0, []
    for number in range(draw(st.integers(1, runs))):
        first = draw(st.integers(0, done))
        last = number + 1 == runs
        end = total if last else draw(st.integers(first, total))
        cuts = sorted(draw(st.sets(st.integers(first, end), max_size=4)) | {first, end})
        result.append([(a, b) for a, b in zip(cuts, cuts[1:]) if b > a])
        done = max(done, end)
    return result


class MemoryTarget:
    """A target that is a table in memory, with every rule of the Protocol checked."""

    abilities = Abilities(stores_durations=True)

    def __init__(self) -> None:
        self.rows: pa.Table | None = None
        self.stored: dict[str, Progress] = {}
        self.version = 0

    @contextmanager
    def begin(self, stream: str, keys: tuple[str, ...]) -> Iterator[MemoryWork]:
        yield MemoryWork(self, stream, keys)


class MemoryWork:
    def __init__(self, target: MemoryTarget, stream: str, keys: tuple[str, ...]) -> None:
        self.target, self.stream, self.keys = target, stream, keys
        self.progress = target.stored.get(stream)
        self.schema = None if target.rows is None else target.rows.schema
        self.version = target.version

    def read(self, keys: pa.Table) -> pa.Table:
        return matching(self.target.rows, keys)

    def is_empty(self) -> bool:
        return self.target.rows.num_rows == 0

    def write(self, upserts: pa.Table, deletes: pa.Table, progress: Progress, *, added: list[pa.Field], replace: bool) -> None:
        target = self.target
        if target.version != self.version:
            raise TargetConflictError("changed meanwhile")
        old = self.schema.names if self.schema else []
        names = [*old, *(field.name for field in added if field.name not in old)]
        assert upserts.column_names == names
        kept = [] if replace or target.rows is None else target.rows.to_pylist()
        if deletes.num_columns:
            gone, put = ([tuple(row[name] for name in self.keys) for row in part.to_pylist()] for part in (deletes, upserts))
            assert deletes.column_names == list(self.keys)
            assert len({*gone, *put}) == len(gone) + len(put)
            kept = [row for row in kept if tuple(row[name] for name in self.keys) not in {*gone, *put}]
        target.rows = pa.Table.from_pylist([*kept, *upserts.to_pylist()], schema=upserts.schema)
        target.stored[self.stream] = progress
        target.version += 1


class FaultyTarget:
    """Fails once before or after the write of another target, as a crash around its commit does; or has another come first."""

    def __init__(self, target: Any, when: str = "") -> None:
        self.target, self.when = target, when

    def __getattr__(self, name: str) -> Any:
        if name == "target":
            raise AttributeError(name)
        return getattr(self.target, name)  # what it says of itself, such as ``abilities``

    def between(self) -> None:
        raise NotImplementedError

    @contextmanager
    def begin(self, stream: str, keys: tuple[str, ...]) -> Iterator[Any]:
        with self.target.begin(stream, keys) as work:
            if self.when in ("before", "between"):
                write, when = work.write, self.when

                def first(*args: Any, **more: Any) -> None:
                    self.when = ""
                    if when == "before":
                        raise OSError("before the commit")
                    self.between()
                    write(*args, **more)

                work.write = first
            yield work
        if self.when == "after":
            self.when = ""
            raise OSError("after the commit")


def content(rows: pa.Table | None) -> dict[tuple[Any, ...], dict[str, Any]]:
    """A table as the dict of ``History.states``; a key that is there twice is an error."""
    found = {} if rows is None else {key(row): row for row in rows.to_pylist()}
    assert rows is None or len(found) == rows.num_rows
    return found
