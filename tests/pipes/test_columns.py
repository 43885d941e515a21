"""A target that takes columns has the same tables as one that takes rows, and decodes no row without need."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import canal
from canal.changes import Reader, TableState
from canal.errors import DecodeError, UnfitChangeError
from canal.model import Row
from canal.targets import JSONLinesTarget, StateWork
from canal.targets.protocol import Guarantee, Scope
from canal.testing import FakeBinlog
from tests.support.pipes import QUICK, life

pytest.importorskip("numpy")


class Tables:
    """Tables in memory, of which each has rows by key."""

    guarantee = Guarantee.ONCE
    scope: Scope = "all"
    is_log = False

    def __init__(self, arrow_from: int | None, scope: Scope = "all") -> None:
        self.arrow_from, self.scope = arrow_from, scope
        self.rows: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        self.progress: dict[str, str] = {}
        self.columns, self.by_row = set[str](), set[str]()
        self.refuses: Callable[[Row], bool] | None = None

    @contextmanager
    def begin(self, stream: str) -> Iterator[_Work]:
        yield _Work(self)


class _Work(StateWork):
    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self._tables = tables
        self.arrow_from = tables.arrow_from  # type: ignore[misc]

    def load(self, table: str) -> str | None:
        return self._tables.progress.get(table)

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        for state in made:
            self._check(state)
            own = self._tables.rows.setdefault(state.table.name, {})
            if (arrow := state.arrow) is not None:
                self._tables.columns.add(state.table.name)
                deletes = [tuple(row.values()) for row in arrow.deletes.to_pylist()]
                upserts = arrow.upserts.to_pylist()
            else:
                self._tables.by_row.add(state.table.name)
                if state.is_emptied:
                    own.clear()
                for name, value in state.emptied:
                    for key in [key for key, row in own.items() if row[name] == value]:
                        del own[key]
                deletes = [*state.deletes, *state.replaced]
                upserts = [dict(zip(state.table.names.names, row)) for row in state.upserts]
            for key in deletes:
                own.pop(key, None)
            for row in upserts:
                own[tuple(row[name] for name in state.table.keys)] = row
        self._tables.progress[table] = new

    def _check(self, state: TableState) -> None:
        if (refuses := self._tables.refuses) is None:
            return
        if unfit := [one for one in state.changes if one.after is not None and refuses(one.after)]:
            raise UnfitChangeError("refused", changes=tuple(unfit), reasons=("refused",) * len(unfit))


_COLUMNS = "id INT, part VARCHAR(10), n INT, note VARCHAR(40), price DECIMAL(10,2), PRIMARY KEY (id, part)"


def _play(fake: FakeBinlog, seed: int, tables: int = 2, steps: int = 120) -> None:
    """Random changes of tables ``shop.t0`` …, several in a transaction."""
    draw = random.Random(seed)
    made = [(fake.table("shop", f"t{number}", _COLUMNS), dict[Any, dict[str, Any]]()) for number in range(tables)]

    def key() -> dict[str, Any]:
        return {"id": draw.randrange(6), "part": draw.choice(["a", "A", "b"])}

    for _ in range(steps // 4):
        with fake.transaction():
            for _ in range(4):
                table, rows = draw.choice(made)
                row = {**key(), "n": draw.randrange(100), "note": draw.choice([None, "x", "ä"]), "price": draw.randrange(9)}
                at = row["id"], row["part"]
                if at not in rows:
                    table.insert(row)
                elif draw.random() < 0.3:
                    table.delete(rows.pop(at))
                    continue
                elif (to := key()) and (other := (to["id"], to["part"])) not in rows:
                    moved = {**row, **to}
                    table.update(rows.pop(at), moved)
                    at, row = other, moved
                else:
                    table.update(rows[at], row)
                rows[at] = row


def _followed(fake: FakeBinlog, target: Tables, **options: Any) -> Tables:
    with life(fake) as instance:
        canal.pipe(instance, target, on_error=QUICK, **options).run()
    return target


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
@pytest.mark.parametrize("scope", ["all", "table"])
@pytest.mark.parametrize(
    "rules",
    [
        [],
        [canal.Rule(tables="shop.t0", exclude=["note"], rename={"n": "number"}, to="other.{table}")],
        [canal.Rule(fields=["n", "part", "id"], defaults={"shop": "here", "one": 1}, rename=str.upper)],
        [canal.Rule(keys=["part", "n", "id"])],
        [canal.Rule(tables="shop.t1", where=lambda row: row["n"] > 50), canal.Rule(exclude=["price"])],
        [canal.Rule(to="shop.all", merge="source")],
    ],
    ids=["none", "renamed", "constants", "keys", "callable", "merged"],
)
def test_columns_give_the_tables_that_rows_give(
    fake_binlog: FakeBinlog, rules: list[canal.Rule], scope: Scope, batch_size: int
) -> None:
    _play(fake_binlog, seed=batch_size)
    fake_binlog.end()

    rows, columns = (_followed(fake_binlog, Tables(least, scope), rules=rules, batch_size=batch_size) for least in (None, 1))

    assert columns.rows == rows.rows
    assert columns.progress == rows.progress
    assert rows.columns == set()
    assert columns.columns


def test_tables_that_columns_hold_are_never_decoded_as_rows(fake_binlog: FakeBinlog, monkeypatch: pytest.MonkeyPatch) -> None:
    _play(fake_binlog, seed=1)
    fake_binlog.end()
    decoded: list[str] = []
    monkeypatch.setattr(Reader, "rows", lambda self, entry, table: decoded.append(table.name))

    target = _followed(fake_binlog, Tables(1))

    assert target.columns == {"shop.t0", "shop.t1"}
    assert decoded == []


def test_tables_with_few_changes_have_rows(fake_binlog: FakeBinlog) -> None:
    orders = fake_binlog.table("shop", "orders", "id INT PRIMARY KEY")
    fake_binlog.table("shop", "few", "id INT PRIMARY KEY").insert({"id": 1})
    orders.insert(*({"id": number} for number in range(5)))
    fake_binlog.end()

    target = _followed(fake_binlog, Tables(5))

    assert (target.columns, target.by_row) == ({"shop.orders"}, {"shop.few"})


def test_unfit_change_among_columns_is_parked_and_the_others_are_written(fake_binlog: FakeBinlog, tmp_path: Any) -> None:
    fake_binlog.table("shop", "t", "id INT PRIMARY KEY, n INT").insert(*({"id": n, "n": n} for n in range(20)))
    fake_binlog.end()
    target = Tables(1)
    target.refuses = lambda row: row["n"] in (3, 17)

    _followed(fake_binlog, target, on_unfit=JSONLinesTarget(tmp_path / "parked.jsonl"))

    assert sorted(key[0] for key in target.rows["shop.t"]) == [n for n in range(20) if n not in (3, 17)]
    assert len((tmp_path / "parked.jsonl").read_text().splitlines()) == 2


def test_columns_that_cannot_be_decoded_stop_behind_what_can(fake_binlog: FakeBinlog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes before the transaction that is damaged are committed, as those of rows are."""
    table = fake_binlog.table("shop", "t", "id INT PRIMARY KEY, n INT")
    for number in range(5):
        table.insert({"id": number, "n": number})
    fake_binlog.end()
    target = Tables(1)

    with life(fake_binlog) as instance:
        message = instance.get_without_ack(100, timeout=5, linger=0.2)
        damaged = [entry for entry in message.entries if entry.table is not None][3]
        damaged.body_end -= 1
        instance.rollback(message.id)
        with pytest.raises(DecodeError):
            canal.pipe(instance, target, on_error="stop").run()

    assert sorted(target.rows["shop.t"]) == [(0,), (1,), (2,)]


def test_restart_in_a_unit_goes_on_behind_the_progress(fake_binlog: FakeBinlog) -> None:
    table = fake_binlog.table("shop", "t", "id INT PRIMARY KEY, n INT")
    for number in range(10):
        table.insert({"id": number, "n": number})
    target = Tables(1)
    with life(fake_binlog) as instance:
        pipe = canal.pipe(instance, target, batch_size=3)
        with pipe:
            while pipe.status().changes < 10:
                pipe.join(0.01)
    before: Mapping[str, Any] = dict(target.rows["shop.t"])
    target.rows["shop.t"].clear()
    table.insert({"id": 10, "n": 10})
    fake_binlog.end()

    _followed(fake_binlog, target)

    assert len(before) == 10
    assert list(target.rows["shop.t"]) == [(10,)]
