"""The suite finds what is wrong with a target: each of these is wrong in one way, and the case named for it says so."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from canal.changes import Change, ChangeBatch, Op, Table, TableState
from canal.changes.latest import Key, Values
from canal.errors import CanalError, TargetError
from canal.targets import JSONLinesTarget, LogWork, Progress, SQLiteTarget
from canal.targets.sql_tables import SQLOptions
from canal.targets.sqlite import SQLiteWork
from canal.testing import target_suite
from canal.testing.processes import scratch
from tests.support import harnesses


class RowsFirst(SQLiteWork):
    """Rows in one commit, the progress in the next."""

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        for state in made:
            self.prepare(state)
        self.begin()
        for state in made:
            self._put(state)
        self.execute("COMMIT")
        super().write([], old, new, table)


class ProgressFirst(SQLiteWork):
    """The progress in one commit, the rows in the next."""

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        super().write([], old, new, table)
        for state in made:
            self.prepare(state)
        self.begin()
        for state in made:
            self._put(state)
        self.execute("COMMIT")


class Unfenced(SQLiteWork):
    """Whoever writes last wins."""

    def _claim(self, old: str | None, new: str, table: str) -> None:
        self.execute(f"INSERT OR REPLACE INTO {self.progress_name} VALUES (?, ?, ?)", (self._stream, table, new))


class WithoutTurns(SQLiteWork):
    """An earlier turn may write."""

    def commit(self, progress: Progress, table: str = "") -> None:
        super().commit(attrs.evolve(progress, epoch=99), table)

    def progress(self, table: str = "") -> Progress | None:
        found = super().progress(table)
        return found and attrs.evolve(found, epoch=5)


class Forgetful(SQLiteWork):
    """It says that it keeps no progress, and promises that each change comes once."""

    def progress(self, table: str = "") -> Progress | None:
        super().progress(table)
        return None


class _States(SQLiteWork):
    """What is done to tables is changed on its way."""

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        super().write([self.changed(state) for state in made], old, new, table)

    def changed(self, state: TableState) -> TableState:
        return state


def evolved(state: TableState, **fields: Any) -> TableState:
    """A state with other rows, and without columns."""
    made = TableState(state.table, ChangeBatch([state.changes]))
    made._form = attrs.evolve(state._rows, **fields)
    return made


class KeepsMoved(_States):
    """Rows whose key changed stay under the old one."""

    def changed(self, state: TableState) -> TableState:
        moved = {one.key_of(one.before) for one in state.changes if one.op is Op.UPDATE and one.before is not None}
        rows = {key: row for key, row in state.rows.items() if row is not None or key not in moved}
        return evolved(state, rows=rows)


class DeletesLast(_States):
    """Rows are put, then others are taken away."""

    def changed(self, state: TableState) -> TableState:
        last = {change.key_of(change.row): change for change in state.changes}
        deleted = {change.key_of(change.row) for change in state.changes if change.op is Op.DELETE}
        return evolved(state, rows={key: None if key in deleted and key in last else row for key, row in state.rows.items()})


class PutsOneByOne(SQLiteWork):
    """A row is put in the stead of the one with its key, one after the other."""

    def _put(self, state: TableState) -> None:
        for key, row in state.rows.items():
            super()._put(evolved(state, rows={key: row}))

    def write_in_order(self, error: Exception, old: str | None, new: str, table: str) -> None:
        raise TargetError("refused") from error


class KeepsEmptied(_States):
    """A TRUNCATE is passed over."""

    def changed(self, state: TableState) -> TableState:
        return evolved(state, is_emptied=False)


class _Cells(SQLiteWork):
    """Values are changed on their way."""

    kind: ClassVar[type] = object

    def adapters(self) -> Mapping[type, Any]:
        return {**super().adapters(), self.kind: self.cell}

    @staticmethod
    def cell(value: Any) -> Any:
        return value


class Rounds(_Cells):
    """Numbers become floats."""

    kind = Decimal
    cell = staticmethod(lambda value: str(float(value)))


class Cuts(_Cells):
    """Text is cut at 64 KiB."""

    kind = str
    cell = staticmethod(lambda value: value.encode()[:65535].decode(errors="ignore"))


class NullIsEmpty(_Cells):
    """NULL is the empty text."""

    kind = type(None)
    cell = staticmethod(lambda value: "")


class SkipsUnfit(SQLiteWork):
    """A date that is none is not written, in silence."""

    def apply(self, changes: Sequence[Change]) -> None:
        super().apply([one for one in changes if one.after is None or "0000-00-00" not in one.after.values()])


class DropsColumns(SQLiteWork):
    """A column that was added at the source is left out."""

    def apply(self, changes: Sequence[Change]) -> None:
        super().apply([one.evolve(after=_without(one.after), before=_without(one.before)) for one in changes])


def _without(row: Any) -> Any:
    return None if row is None else {name: value for name, value in row.as_dict().items() if name != "more"}


class NullsForAbsent(SQLiteWork):
    """What a partial image does not hold becomes NULL."""

    def read(self, table: Table, keys: Sequence[Key]) -> Mapping[Key, Values]:
        return {key: tuple(dict(zip(table.keys, key)).get(name) for name in table.names.names) for key in keys}


class Tears(SQLiteWork):
    """Every change is a commit."""

    def commit(self, progress: Progress, table: str = "") -> None:
        changes, self._changes = self._changes, []
        for change in changes or [None]:
            self._changes = [] if change is None else [change]
            super().commit(progress, table)


class OnePage(SQLiteWork):
    """Only the first rows are read."""

    def scan(self, table: Table, lower: Key | None = None, upper: Key | None = None) -> Iterator[Values]:
        return itertools.islice(super().scan(table, lower, upper), 1000)


@attrs.frozen
class Wrong(SQLiteTarget):
    kind: type[SQLiteWork] = attrs.field(default=SQLiteWork, kw_only=True)

    @contextmanager
    def begin(self, stream: str) -> Iterator[SQLiteWork]:
        connection = sqlite3.connect(self.path, isolation_level=None)
        with closing(connection):
            yield self.kind(connection, stream, SQLOptions())


CASES = [
    (RowsFirst, "killed_within_commit"),
    (ProgressFirst, "killed_within_commit"),
    (Unfenced, "late_writer"),
    (WithoutTurns, "early_turn"),
    (Forgetful, "repeats"),
    (KeepsMoved, "follows"),
    (Tears, "killed_within_commit"),
    (DeletesLast, "same_key"),
    (PutsOneByOne, "unique_values"),
    (KeepsEmptied, "truncate"),
    (Rounds, "limits"),
    (Cuts, "large_values"),
    (NullIsEmpty, "nulls"),
    (SkipsUnfit, "zero_dates"),
    (DropsColumns, "added_column"),
    (NullsForAbsent, "partial_images"),
    (OnePage, "scan"),
]


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        yield Path(folder) / "copy"


@pytest.mark.parametrize(("kind", "case"), CASES, ids=[f"{kind.__name__}-{case}" for kind, case in CASES])
def test_a_wrong_target_is_found(kind: type[SQLiteWork], case: str, path: Path) -> None:
    right = harnesses.sqlite(path)

    with pytest.raises((AssertionError, CanalError)):
        target_suite.run(case, attrs.evolve(right, make=lambda: Wrong(path, kind=kind)))


@attrs.frozen
class WrongLog(JSONLinesTarget):
    change: Any = None

    @contextmanager
    def begin(self, stream: str) -> Iterator[LogWork]:
        with JSONLinesTarget(self.path).begin(stream) as work:
            wrong = self.change

            class Log(LogWork):
                load = work.load

                def write(self, made: Sequence[Change], old: str | None, new: str, table: str) -> None:
                    work.write(wrong(made), old, new, table)

            yield Log()


@pytest.mark.parametrize(
    ("change", "case"),
    [(lambda made: made[::-1], "order"), (lambda made: [*made, *made], "follows"), (lambda made: made[:-1], "follows")],
    ids=["backwards", "twice", "short"],
)
def test_a_wrong_log_is_found(change: Any, case: str, path: Path) -> None:
    right = harnesses.json_lines(path)

    with pytest.raises((AssertionError, CanalError)):
        target_suite.run(case, attrs.evolve(right, make=lambda: WrongLog(path, change=change)))


def test_a_kill_leaves_no_lock_taken() -> None:
    """A process that is killed leaves none, and whoever wants it next would wait for ever."""
    entered, released = threading.Lock(), threading.Lock()

    def work() -> None:
        with entered:
            time.monotonic()
        released.acquire()
        try:
            time.monotonic()
        finally:
            released.release()

    with target_suite._killed_at(0) as count:
        work()
    killed = 0
    for step in range(1, count[0] + 1):
        with contextlib.suppress(target_suite.Killed), target_suite._killed_at(step):
            work()
            killed -= 1
        killed += 1
        assert not entered.locked()
        assert not released.locked()
    assert killed > 2
