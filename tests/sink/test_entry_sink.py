"""The default sink: hooks, row predicate, condensing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal.config import InstanceConfig
from canal.errors import ConfigError, HookError, StateError
from canal.instance.instance import Instance
from canal.model import Entry, EntryType
from canal.sink import EntrySink, Hook, Sink
from canal.sink.condense import Condenser
from canal.store import MemoryStore
from canal.testing import FakeBinlog
from tests.support.strategies import begin, end, row, transaction, transactions, whole


def stored(sink: EntrySink, *lists: list[Entry]) -> list[Entry]:
    store = MemoryStore()
    store.start()
    store.open(1)
    sink.start("test", store)
    for entries in lists:
        sink.sink(entries)
    return store.get(1, 0, 1 << 40, 0, 0).entries


def test_it_meets_the_protocol() -> None:
    assert isinstance(EntrySink(), Sink)


def test_a_sink_that_is_not_started_refuses_entries() -> None:
    with pytest.raises(StateError):
        EntrySink().sink(whole(1, 1))


def test_empty_transactions_are_left_out_except_one_each_interval() -> None:
    now = [0.0]
    sink = EntrySink(clock=lambda: now[0], empty_interval=5.0)

    passed = stored(sink, whole(1), whole(2), whole(3, 1), whole(4))
    now[0] = 6.0
    later = stored(sink, whole(5))

    assert [entry.transaction.offset for entry in passed] == [100, 100, 300, 300, 300]
    assert len(later) == 2


def test_one_empty_transaction_passes_after_so_many() -> None:
    sink = EntrySink(clock=lambda: 0.0, empty_count=3)

    passed = stored(sink, *[whole(n) for n in range(1, 10)])

    assert [entry.transaction.offset for entry in passed[::2]] == [100, 500, 900]


@given(transactions, st.data())
def test_no_end_or_begin_of_a_transaction_with_rows_is_lost_however_it_is_cut(
    counts: list[list[int]], data: st.DataObject
) -> None:
    entries = [entry for n, rows in enumerate(counts, 1) for entry in whole(n, *rows)]
    condenser = Condenser(1e9, 1 << 30)
    condenser.feed(whole(99), 0.0)  # the one empty transaction that passes at the start
    kept: list[Entry] = []
    at = 0
    while at < len(entries):
        step = data.draw(st.integers(1, 6))
        kept += condenser.feed(entries[at : at + step], 1.0)
        at += step

    assert kept == [entry for n, rows in enumerate(counts) if rows for entry in _of(entries, n, counts)]


def test_the_end_comes_of_a_transaction_whose_first_rows_came_over_the_connection_before() -> None:
    txn = transaction()
    first, last = begin(txn), end(txn)
    first.part = last.part = 1
    condenser = Condenser(1e9, 1 << 30)
    condenser.feed(whole(99), 0.0)  # the one empty transaction that passes at the start

    assert condenser.feed([first, last], 1.0) == [first, last]


def _of(entries: list[Entry], number: int, counts: list[list[int]]) -> list[Entry]:
    start = sum(len(rows) + 2 for rows in counts[:number])
    return entries[start : start + len(counts[number]) + 2]


class Dropping(Hook):
    def before(self, entries: list[Entry]) -> list[Entry]:
        for entry in entries:
            entry.props["seen"] = True
        return [entry for entry in entries if entry.row_count != 2]


def test_a_hook_may_drop_and_annotate() -> None:
    passed = stored(EntrySink(hooks=[Dropping()]), whole(1, 1, 2), whole(2, 2))

    assert [entry.row_count for entry in passed] == [0, 1, 0, 0, 0]  # the emptied transaction is the first empty one
    assert all(entry.props["seen"] for entry in passed)


class Reordering(Hook):
    def before(self, entries: list[Entry]) -> list[Entry]:
        return entries[::-1]


class Failing(Hook):
    def before(self, entries: list[Entry]) -> list[Entry]:
        raise ValueError("no")


class FailingAfter(Hook):
    def after(self, entries: object) -> None:
        raise ValueError("no")


@pytest.mark.parametrize("hook", [Reordering(), Failing(), FailingAfter()], ids=lambda hook: type(hook).__name__)
def test_a_hook_that_misbehaves_stops_the_line_and_says_where(hook: Hook) -> None:
    with pytest.raises(HookError, match="binlog.000001:1"):
        stored(EntrySink(hooks=[hook]), whole(1, 1))


def test_a_held_begin_is_forgotten_when_the_parser_starts_again() -> None:
    txn = transaction()
    sink = EntrySink(clock=lambda: 0.0)
    store = MemoryStore()
    store.start()
    store.open(1)
    sink.start("test", store)

    sink.sink([begin(txn)])
    sink.restart()
    sink.sink([begin(txn), row(txn), end(txn)])

    kinds = [entry.entry_type for entry in store.get(1, 0, 10, 0, 0).entries]
    assert kinds == [EntryType.TRANSACTIONBEGIN, EntryType.ROWDATA, EntryType.TRANSACTIONEND]


def _kinds(leave_out: tuple[str, ...]) -> list[str]:
    """Which of one change of each kind are delivered: the type of rows, the first two words of a statement."""
    fake = FakeBinlog()
    table = fake.table("shop", "t", "id INT PRIMARY KEY, a INT")
    table.insert({"id": 1, "a": 1})
    table.update({"id": 1, "a": 1}, {"id": 1, "a": 2})
    table.delete({"id": 1, "a": 2})
    for sql in STATEMENTS:
        fake.ddl(sql, schema="shop")
    table.insert({"id": 2, "a": 1}, {"id": 2, "a": 1})
    fake.end()
    config = InstanceConfig(destination="kinds", source=fake, start="earliest", leave_out=leave_out)  # type: ignore[arg-type]
    with Instance(config) as instance:
        instance.subscribe()
        entries = [entry for message in instance.stream() for entry in message.entries]
    changes = [entry for entry in entries if entry.entry_type is EntryType.ROWDATA]
    return [" ".join((entry.sql or "").split()[:2]) or entry.event_type.name for entry in changes]


STATEMENTS = [
    "ALTER TABLE t ADD b INT",
    "CREATE DATABASE d",
    " /* x */ alter database d CHARACTER SET utf8mb4",
    "GRANT ALL ON *.* TO u",
    "CREATE VIEW v AS SELECT 1",
    "ANALYZE TABLE t",
    "UPDATE t SET a = 3",
]
ALL = [
    "INSERT",
    "UPDATE",
    "DELETE",
    "ALTER TABLE",
    "CREATE DATABASE",
    "/* x",
    "GRANT ALL",
    "CREATE VIEW",
    "ANALYZE TABLE",
    "UPDATE t",
    "INSERT",
]


@pytest.mark.parametrize(
    ("leave_out", "gone"),
    [
        ((), []),
        (("insert",), ["INSERT"]),
        (("update", "delete"), ["UPDATE", "DELETE"]),
        (("ddl",), ["ALTER TABLE", "CREATE DATABASE", "/* x"]),
        (("dml",), ["UPDATE t"]),
        (("dcl",), ["GRANT ALL", "CREATE VIEW", "ANALYZE TABLE"]),
        (("tableless",), ["/* x", "GRANT ALL", "CREATE VIEW", "ANALYZE TABLE"]),
    ],
)
def test_kinds_that_are_left_out(leave_out: tuple[str, ...], gone: list[str]) -> None:
    assert _kinds(leave_out) == [one for one in ALL if one not in gone]


def test_a_kind_that_there_is_not() -> None:
    with pytest.raises(ConfigError, match="leave_out names 'truncate'.*insert, update"):
        InstanceConfig(destination="x", source=FakeBinlog(), leave_out=("truncate",))  # type: ignore[arg-type]
