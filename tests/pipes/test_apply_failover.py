"""A batch that is given again by another server, with other numbers: each change is applied once, whatever came before."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from canal.errors import StreamMismatchError
from canal.formats.gtid_text import from_text
from canal.pipes.apply import PlainBatch
from canal.position import Position
from canal.spark import apply_changes
from canal.targets.tables import DeltaTableTarget, ParquetTableTarget
from tests.support.engine import Engine
from tests.support.histories import KEYS, History, MemoryTarget, change, content, histories, table
from tests.support.lakes import Iceberg, load_catalog
from tests.support.shop import Pair, served

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


class Servers:
    """A history as servers tell it, each with the transactions at positions of its own in its log."""

    def __init__(self, history: History, flavor: str) -> None:
        self.changes = history.changes
        self.numbers = {txn: number for number, txn in enumerate(sorted({one["_txn"] for one in history.changes}))}
        self.flavor = flavor

    def told(self, first: int, end: int, server: int, epoch: int) -> list[dict[str, Any]]:
        rows = []
        for one in self.changes[first:end]:
            number = self.numbers[one["_txn"]]
            gtid = f"{UUID}:{2 * number + 1}" if self.flavor == "mysql" else f"0-{number % 2 + 1}-{2 * number + 1}"
            rows.append({**one, "_txn": epoch << 58 | 1000 * (server * 7 % 11) + 10 * number, "_gtid": gtid})
        return rows

    def is_end(self, position: int) -> bool:
        """Whether no transaction goes over this position."""
        changes = self.changes
        return not 0 < position < len(changes) or changes[position - 1]["_txn"] != changes[position]["_txn"]


def follow(data: st.DataObject, servers: Servers, target: MemoryTarget, keys: Any, check: Any) -> None:
    """Give each batch as a query may: planned at a server, or at two, then given again, at others too, until it is committed.

    The epoch of a batch that is read again comes from the offset that it begins at.
    """
    total = len(servers.changes)
    cuts = sorted(data.draw(st.sets(st.integers(0, total), max_size=5)) | {0, total})
    fresh, server, offset, applied = itertools.count(1), 0, (0, 0), (0, 0)
    for first, end in zip(cuts, cuts[1:]):
        done, planned = False, None
        tries = data.draw(st.integers(1, 4))
        for number in range(tries):
            if data.draw(st.booleans()) and (planned is None or servers.is_end(end)):
                server = next(fresh)
            epoch = offset[1] + (server != offset[0])
            middle = data.draw(st.integers(first, end)) if planned is None and data.draw(st.booleans()) else end
            rows, at = servers.told(first, middle, server, epoch), (server, epoch)
            if middle < end:  # a failover of the running query, maybe within a transaction, which goes on
                server = next(fresh)
                at = server, epoch + 1
                rows += servers.told(middle, end, *at)
            planned = planned or at
            if number < tries - 1 and data.draw(st.booleans()):
                continue  # killed before the commit
            try:
                apply_changes(target, keys)(table(rows))
            except StreamMismatchError:  # of a third server with the second's epoch nothing is known but its time
                assert not done
                assert applied[1] == epoch
                assert applied[0] != server
                return
            applied, done = applied if done else at, True
            check(end)
        assert planned is not None
        offset = planned


both = pytest.mark.parametrize("flavor", ["mysql", "mariadb"])


@both
@given(st.data())
def test_a_keyed_target_is_the_table_whatever_server_gives_a_batch_again(flavor: str, data: st.DataObject) -> None:
    """Partial images too: a row that was moved, or deleted, is not there to be changed a second time."""
    history, target = data.draw(histories(snapshot=False)), MemoryTarget()

    def check(end: int) -> None:
        assert content(target.rows) == history.states[end]

    follow(data, Servers(history, flavor), target, KEYS, check)


@both
@given(st.data())
def test_appended_changes_are_there_once_whatever_server_gives_a_batch_again(flavor: str, data: st.DataObject) -> None:
    history, target = data.draw(histories(snapshot=False)), MemoryTarget()
    servers = Servers(history, flavor)

    def check(end: int) -> None:
        found = [] if target.rows is None else target.rows.to_pylist()
        names = ("_gtid", "_ord", "_op")
        wanted = [tuple(one[name] for name in names) for one in servers.told(0, end, 0, 0)]
        assert sorted(tuple(row[name] for name in names) for row in found) == sorted(wanted)

    follow(data, servers, target, None, check)


# -- a query and a loop on one stream -----------------------------------------------------------------------------------------


@attrs.define
class Log:
    """A server's log of transactions of two changes, which are numbered from 1: where each ends in it."""

    source: str
    flavor: str
    offsets: list[int]

    def rows(self, first: int, end: int) -> list[dict[str, Any]]:
        return [
            change("I", self.at(number).offset, ord, row(10 * number + ord), _gtid=self.gtid(number + 1), _ts=7_000_000)
            for number in range(first, end)
            for ord in range(2)
        ]

    def gtid(self, number: int) -> str:
        return f"{UUID}:{number}" if self.flavor == "mysql" else f"0-{number % 2 + 1}-{number}"

    def at(self, number: int) -> Position:
        """Behind so many transactions."""
        done = "" if not number else f"{UUID}:1-{number}" if self.flavor == "mysql" else self.gtid(number)
        return Position("log.000000", self.offsets[number], gtid=done, source=self.source)


@both
@given(st.data())
def test_a_query_and_a_loop_follow_each_other_exactly_or_not_at_all(flavor: str, data: st.DataObject) -> None:
    """At the same server or another, from any earlier position on, with all changes in one second."""
    offsets = st.lists(st.integers(1, 30), min_size=9, max_size=9, unique=True).map(sorted)
    logs = [Log(source, flavor, data.draw(offsets)) for source in "ab"]
    target, done, last, is_mixed = MemoryTarget(), 0, None, False
    for _ in range(data.draw(st.integers(2, 5))):
        log, is_loop = data.draw(st.sampled_from(logs)), data.draw(st.booleans())
        if last is not None and not is_loop and not target.stored["canal"].table.server:
            log = last  # that a query reads another server with another checkpoint cannot be told
        first = data.draw(st.integers(0, done))
        for end in data.draw(st.lists(st.integers(done, 8), min_size=1, max_size=3, unique=True).map(sorted)):
            version = target.version
            try:
                apply_changes(target, None)(table(log.rows(first, end)), loop_batch(log.at(first), log.at(end)) if is_loop else 0)
            except StreamMismatchError:
                assert is_mixed or last is not log
                return
            if target.version > version:
                is_mixed, last = is_mixed or last not in (None, log), log
            first, done = end, max(done, end)
        found = [] if target.rows is None else target.rows["id"].to_pylist()
        assert found == [10 * number + ord for number in range(done) for ord in range(2)]


def test_where_a_loop_was_is_not_where_the_query_behind_it_is() -> None:
    one, other = Log("a", "mysql", [100, 200, 300, 400, 500]), Log("b", "mysql", [4, 10, 20, 30, 40])
    target = MemoryTarget()
    fn = apply_changes(target, None)
    fn(table(one.rows(0, 1)), loop_batch(one.at(0), one.at(1)))
    fn(table(one.rows(1, 2)))
    fn(table(one.rows(2, 3)))

    with pytest.raises(StreamMismatchError, match="not read the same server"):
        fn(table(other.rows(1, 4)), loop_batch(other.at(1), other.at(4)))
    fn(table(one.rows(1, 4)), loop_batch(one.at(1), one.at(4)))
    fn(table(other.rows(3, 4)), loop_batch(one.at(3), other.at(4)))
    assert target.rows is not None
    assert target.rows["id"].to_pylist() == [0, 1, 10, 11, 20, 21, 30, 31]


def loop_batch(start: Position, end: Position) -> PlainBatch:
    return PlainBatch(start=start, end=end)


# -- of the source itself --------------------------------------------------------------------------------------------------


def arrow(engine: Engine) -> pa.Table:
    """The rows that the engine's sink was given last."""
    return pa.Table.from_pylist(engine.sink[len(engine.offsets) - 1], to_arrow_schema(engine.struct, timezone="UTC"))


@pytest.mark.parametrize("form", ["rows", "log", "files"])
def test_a_planned_batch_that_another_server_gives_again_is_applied_once(form: str, tmp_path: Path) -> None:
    """Its log has the transactions in another order, and others between."""
    path = str(tmp_path / "sink")
    target = ParquetTableTarget(path) if form == "files" else DeltaTableTarget(path)
    keys = ["id"] if form == "rows" else None
    pair = Pair()
    with contextlib.ExitStack() as stack:
        engine, (_, second) = served(pair, tmp_path, stack)
        pair.write(0, 1)
        engine.start()
        while not engine.rows:
            engine.step()
        apply_changes(target, keys)(arrow(engine))
        pair.write(0, 2, 3)
        engine.receive(pair.shops[0].fake.position)
        engine.plan_next()
        assert len(engine.run()) == 2
        apply_changes(target, keys)(arrow(engine))
        engine.stop()  # behind the sink's commit, before Spark's
        before = apply_changes(target, keys).progress()

        pair.write(1, 4, 1, 3, 5, 2, 6)
        engine.start(**second)
        engine.plan()
        engine.run()
        rows = arrow(engine)
        assert rows.num_rows == 2
        assert min(rows["_txn"].to_pylist()) >> 58 == 1
        apply_changes(target, keys)(rows)
        assert apply_changes(target, keys).progress() == before
        engine.committed = len(engine.offsets)
        while len(engine.rows) < 6:
            if engine.step():
                apply_changes(target, keys)(arrow(engine))

    assert sorted(read(target)) == [1, 2, 3, 4, 5, 6]


def read(target: DeltaTableTarget | ParquetTableTarget) -> list[int]:
    if isinstance(target, ParquetTableTarget):
        import pyarrow.parquet as pq

        found = pq.read_table(target.path)
    else:
        from deltalake import DeltaTable

        found = DeltaTable(target.path).to_pyarrow_table()
    return [one // 1000 for one in found["id"].to_pylist()]


# -- what is kept ----------------------------------------------------------------------------------------------------------


def row(number: int) -> dict[str, Any]:
    return {"id": number, "k": "x", "a": 1, "b": None}


def test_a_third_server_with_the_epoch_of_the_second_is_told_by_its_time() -> None:
    """Even where its changes are of the same second as the last that were applied."""
    target = MemoryTarget()
    one = change("I", 1 << 58 | 500, 0, row(1), _gtid=f"{UUID}:1", _ts=7_000_000)
    two = change("I", 1 << 58 | 3, 0, row(2), _gtid=f"{UUID}:2", _ts=7_000_000)
    apply_changes(target, KEYS)(table([one]))

    with pytest.raises(StreamMismatchError, match="numbers of applied changes"):
        apply_changes(target, KEYS)(table([two]))
    apply_changes(target, KEYS)(table([one]))


def test_a_query_with_a_new_checkpoint_at_the_second_server_is_told_by_its_time() -> None:
    """Its epoch is the one from before the failover; a change of the last one's second may be new."""
    target = MemoryTarget()
    one, two, three = (
        change("I", 10 * number, 0, row(number), _gtid=f"{UUID}:{number}", _ts=7_000_000 + number // 2) for number in (1, 2, 3)
    )
    apply_changes(target, None)(table([{**one, "_txn": 500}]))
    apply_changes(target, None)(table([{**two, "_txn": 1 << 58 | 20}]))

    with pytest.raises(StreamMismatchError, match="numbers of applied changes"):
        apply_changes(target, None)(table([one, two, three]))
    apply_changes(target, None)(table([one, two]))


def test_a_change_without_a_gtid_is_none_of_the_last_batch() -> None:
    target = MemoryTarget()
    for number in (1, 2):
        one = change("I", 1 << 58 | number, 0, row(number), _gtid=f"{UUID}:1" if number == 1 else None)
        apply_changes(target, KEYS)(table([one]))

    assert set(content(target.rows)) == {(1, "x"), (2, "x")}


def test_an_iceberg_table_that_was_rolled_back_has_the_progress_of_then(tmp_path: Path) -> None:
    """The GTIDs are a property of the table, which no roll-back takes back."""
    target = Iceberg(tmp_path).make()
    fn = apply_changes(target, KEYS)
    for number in (1, 2):
        fn(table([change("I", number, 0, row(number), _gtid=f"{UUID}:{number}")]))
    progress = fn.progress()
    assert progress is not None
    assert from_text(progress.table.gtids) == [f"{UUID}:2"]
    written = load_catalog("test", **target.properties).load_table(target.table)
    written.manage_snapshots().rollback_to_snapshot(written.current_snapshot().parent_snapshot_id).commit()

    progress = fn.progress()
    assert progress is not None
    assert (progress.table.last_change, progress.table.gtids) == ((1, 0), "")


@both
@pytest.mark.parametrize("is_loop", [False, True])
def test_another_transaction_at_the_place_of_the_last_one_is_of_another_server(flavor: str, is_loop: bool) -> None:
    """Of one second, and a number lower than in the log that was followed: it would be left out as done."""
    one, other = (Log(source, flavor, offsets) for source, offsets in (("a", [1, 2, 3, 8, 10]), ("b", [1, 2, 3, 5, 8])))
    target = MemoryTarget()
    apply_changes(target, None)(table(one.rows(0, 4)), loop_batch(one.at(0), one.at(4)) if is_loop else 0)

    with pytest.raises(StreamMismatchError, match="another server"):
        apply_changes(target, None)(table(other.rows(4, 5)), 0)
    with pytest.raises(StreamMismatchError):
        apply_changes(target, None)(table(other.rows(3, 5)), 0)


def test_the_same_place_without_a_gtid_is_another_transaction() -> None:
    target = MemoryTarget()
    for epoch in (0, 1):
        apply_changes(target, None)(table([change("I", epoch << 58 | 5, 0, row(1), _gtid="binlog.000001:5")]))

    assert target.rows is not None
    assert target.rows.num_rows == 2
