"""Which entries a client has acked in an earlier life, by its cursor: what cannot be told comes again."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import canal
from canal.gtid import MysqlGtidSet
from canal.instance.client_filter import ClientFilter, ReadPosition, is_all_done, is_done, unskipped
from canal.model import Entry, EntryType, EventType, Transaction
from canal.parse.group import GroupPosition
from canal.position import Position
from canal.store import Slice
from canal.testing import FakeBinlog
from tests.support.strategies import begin, end, row


def transaction(journal: str = "binlog.000001", offset: int = 300, incarnation: str = "100-1", source: str = "a") -> Transaction:
    """A GTID at ``offset``, BEGIN 50 and rows 80 behind it."""
    made = Transaction(source, journal, offset, 1, 1_700_000_000)
    made.end = offset + 150
    made.incarnation = incarnation
    return made


def entries(txn: Transaction) -> list[Entry]:
    first = Entry(EntryType.TRANSACTIONBEGIN, EventType.QUERY, txn, b"B" * 20, txn.offset + 50, 1, 1)
    rows = []
    for offset, count in ((80, 2), (100, 3)):
        made = Entry(EntryType.ROWDATA, EventType.INSERT, txn, b"R" * 20, txn.offset + offset, 1, 1)
        made.row_count, made.first_row = count, txn.row_count
        txn.row_count += count
        rows.append(made)
    last = Entry(EntryType.TRANSACTIONEND, EventType.QUERY, txn, b"E" * 20, txn.offset + 120, 1, 1)
    last.is_end, last.first_row = True, txn.row_count
    return [first, *rows, last]


def left(cursor: Position, **of: object) -> int:
    """How many entries of the transaction at 300 to 450 a client with a cursor is handed out."""
    return len(unskipped(entries(transaction(**of)), cursor))  # type: ignore[arg-type]


CURSOR = Position(journal="binlog.000001", offset=300, source="a", incarnation="100-1")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 4),
        ({"offset": 450}, 0),
        ({"row": 2}, 2),
        ({"row": 4}, 2),
        ({"row": 5}, 1),
        ({"journal": "binlog.000002", "offset": 4}, 0),
        ({"journal": "binlog.000002", "offset": 4, "incarnation": "200-1"}, 0),
    ],
    ids=["before", "behind", "in the rows", "in an entry", "before the END", "a later journal", "begun later"],
)
def test_by_journal_and_offset(changes: dict[str, object], expected: int) -> None:
    assert left(attrs.evolve(CURSOR, **changes)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offset", "expected"), [(350, 4), (380, 2), (420, 0), (430, 0), (250, 4)], ids=["BEGIN", "row", "END", "behind", "before"]
)
def test_canals_cursor_names_the_event_that_was_done_last_and_at_a_begin_nothing_is(offset: int, expected: int) -> None:
    assert left(attrs.evolve(CURSOR, offset=offset, source="", incarnation="", at_event=True)) == expected


def test_canals_cursor_at_a_lone_statement_says_that_it_is_done() -> None:
    txn = transaction()
    statement = Entry(EntryType.ROWDATA, EventType.ALTER, txn, b"Q" * 20, txn.offset, 1, 1)
    statement.is_end = True

    assert is_done(statement, attrs.evolve(CURSOR, at_event=True))
    assert not is_done(statement, CURSOR)


@pytest.mark.parametrize(
    "cursor",
    [
        attrs.evolve(CURSOR, offset=9000, incarnation="50-1"),
        attrs.evolve(CURSOR, offset=9000, incarnation="150-1"),
        attrs.evolve(CURSOR, journal="binlog.000007", offset=9000, incarnation="50-1"),
        attrs.evolve(CURSOR, offset=9000, source="b"),
        attrs.evolve(CURSOR, journal="other.000007", offset=9000),
    ],
    ids=["of a log before", "of a later one", "of a log before with more journals", "of another server", "of another name"],
)
def test_a_cursor_that_cannot_be_compared_holds_nothing_back(cursor: Position) -> None:
    assert left(cursor) == 4


def test_by_gtids_where_the_server_is_another_one() -> None:
    from canal.gtid import parse_gtid_set

    txn = transaction(source="b")
    txn.gtid_base = parse_gtid_set("0-1-5")
    txn.gtid_source, txn.gtid_number, txn.gtid_previous = (0, 1), 7, 6
    made = entries(txn)

    assert len(unskipped(made, attrs.evolve(CURSOR, gtid="0-1-7"))) == 0
    assert len(unskipped(made, attrs.evolve(CURSOR, gtid="0-1-6", row=2, next_gtid="0-1-7"))) == 2
    assert len(unskipped(made, attrs.evolve(CURSOR, gtid="0-1-6", row=2, next_gtid="0-1-8"))) == 4
    assert len(unskipped(made, attrs.evolve(CURSOR, gtid="0-1-6", row=2))) == 4
    assert len(unskipped(made, attrs.evolve(CURSOR, gtid="0-1-6"))) == 4


def test_rows_of_an_xa_transaction_lie_where_it_is_committed() -> None:
    txn = transaction()
    early = row(txn)
    assert early.offset > txn.offset
    adopted = Entry(EntryType.ROWDATA, EventType.INSERT, txn, b"R" * 20, 90, 1, 1)
    adopted.row_count = 1

    assert not is_done(adopted, CURSOR)
    assert is_done(adopted, attrs.evolve(CURSOR, offset=450))
    assert not is_done(begin(txn), CURSOR)
    assert is_done(end(txn), attrs.evolve(CURSOR, offset=450))


def test_a_later_transaction_of_the_same_second_is_not_taken_for_the_one_that_is_done_in_part() -> None:
    """By which a client that was behind would go on with the store beyond what it has read."""
    later = transaction("binlog.000002")
    later.gtid_source, later.gtid_number = "3e11fa47-71ca-11e1-9e33-c80aa9429562", 9
    later.gtid_first, later.gtid_previous = 1, 8
    later.gtid_base = MysqlGtidSet()
    cursor = attrs.evolve(CURSOR, row=4, gtid=f"{later.gtid_source}:1-5", timestamp=later.timestamp * 1000, server_id=1)

    assert [is_all_done(entry, cursor) for entry in entries(later)] == [False] * 4
    done = transaction()
    assert [is_all_done(entry, cursor) for entry in entries(done)] == [False] * 4
    assert all(is_all_done(entry, attrs.evolve(cursor, offset=450, row=0)) for entry in entries(done))


SECOND = 1_700_000_000
OURS, THEIRS = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def numbered(uuid: str, number: int, before: str, source: str = "b") -> list[Entry]:
    """A transaction in the log of another server, behind those of a GTID set."""
    made = Transaction(source, "mysql-bin.000009", 300 + 1000 * number, 1 if uuid == OURS else 2, SECOND)
    made.gtid_source, made.gtid_number = uuid, number
    made.gtid_first, made.gtid_previous = number, 0
    made.gtid_base = MysqlGtidSet.parse(before)
    return entries(made)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_standbys_own_transaction_before_what_is_done_does_not_make_that_come_again(at_once: bool) -> None:
    """As the stream begins for a client that is behind, at a server that has executed something of its own."""
    own, done = numbered(THEIRS, 1, f"{OURS}:1-2"), numbered(OURS, 3, f"{OURS}:1-2,{THEIRS}:1")
    new = numbered(OURS, 5, f"{OURS}:1-4,{THEIRS}:1")
    cursor = attrs.evolve(CURSOR, gtid=f"{OURS}:1-4", row=2, timestamp=1_700_000_000_000, server_id=1)
    slices = [[*own, *done, *new]] if at_once else [own, done, new]

    reading, given = ReadPosition(0, cursor, skip=cursor), []
    for number, made in enumerate(slices):
        found, reading = ClientFilter("").select(Slice(made, number, number + 1), reading)
        given += found

    assert given == [*own, *new], "whole: behind the other one nobody knows which of them the two rows were of"
    assert reading.skip is None
    assert reading.position.gtid == f"{OURS}:1-5,{THEIRS}:1"


def test_skip_with_next_gtid_after_foreign_transaction_skips_the_rows() -> None:
    own, new = numbered(THEIRS, 1, f"{OURS}:1-4"), numbered(OURS, 5, f"{OURS}:1-4,{THEIRS}:1")
    cursor = attrs.evolve(CURSOR, gtid=f"{OURS}:1-4", row=2, next_gtid=f"{OURS}:5")

    found, reading = ClientFilter("").select(Slice([*own, *new], 0, 8), ReadPosition(0, cursor, skip=cursor))

    assert found == [*own, *new[2:]]
    assert reading.skip is None


@pytest.mark.parametrize("source", ["a", "b"], ids=["next journal", "another server"])
def test_skip_of_a_group_leaves_other_transactions_of_the_same_second_whole(source: str) -> None:
    cut = numbered(OURS, 5, f"{OURS}:1-4", source)
    later = [numbered(OURS, number, f"{OURS}:1-{number - 1}", source) for number in (6, 7)]
    every = [entry for made in (cut, *later) for entry in made]
    for entry in every:
        entry.group = GroupPosition("m", ())
    inside = attrs.evolve(CURSOR, gtid=f"{OURS}:1-4", row=4, next_gtid=f"{OURS}:5", timestamp=SECOND * 1000, server_id=1)
    cursor = Position(members={"m": inside})

    for made in ([*later[0], *later[1]], every):
        found, _ = ClientFilter("").select(Slice(made, 0, len(made)), ReadPosition(0, cursor, skip=cursor))
        assert found[-8:] == [*later[0], *later[1]]
    assert found[:-8] == cut[2:]  # the entry with rows 3 to 5 comes again, and the END


def again(made: Entry) -> Entry:
    """The same entry as it comes after a lost connection: of another object of its transaction."""
    return made.copy(made.transaction.copy(0))


@pytest.mark.parametrize("moved", [False, True], ids=["reconnect", "failover"])
def test_end_of_transaction_that_was_cut_passes_the_filter(moved: bool) -> None:
    """The store then holds two objects of the transaction, in one slice or in several."""
    first, rows, others, last = numbered(OURS, 5, f"{OURS}:1-4")
    rows.table, others.table = tables("s.a", "s.b")
    if moved:
        last = numbered(OURS, 5, f"{OURS}:1-4", "c")[-1]
    else:
        others, last = again(others), again(last)
    for slices in ([[first, rows, others, last]], [[first, rows], [others, last]], [[first], [rows], [others], [last]]):
        assert filtered(slices) == [first, rows, last]


def test_begin_of_transaction_that_was_cut_passes_the_filter_once() -> None:
    first, others, rows, last = numbered(OURS, 5, f"{OURS}:1-4")
    others.table, rows.table = tables("s.b", "s.a")
    repeated = again(first)
    repeated.part = 1
    rows, last = rows.copy(repeated.transaction), last.copy(repeated.transaction)
    for slices in ([[first, others, repeated, rows, last]], [[first, others], [repeated, rows], [last]]):
        assert filtered(slices) == [first, rows, last]


def test_end_passes_the_filter_after_a_restart_inside_the_transaction() -> None:
    """Nothing says whether rows of it passed before."""
    first, _, others, last = numbered(OURS, 5, f"{OURS}:1-4")
    (others.table,) = tables("s.b")
    first.part = 1

    assert filtered([[first, others], [last]]) == [first, last]


def test_end_passes_the_filter_behind_rows_that_another_client_made_the_parser_repeat() -> None:
    first, rows, others, last = numbered(OURS, 5, f"{OURS}:1-4")
    rows.table, others.table = tables("s.a", "s.b")
    cursor = attrs.evolve(CURSOR, gtid=f"{OURS}:1-4", row=2, next_gtid=f"{OURS}:5")
    for slices in ([[first, rows, others, last]], [[first, rows], [others], [last]]):
        assert filtered(slices, skip=cursor) == [last]


def test_client_that_joins_the_store_inside_a_transaction_gets_its_begin_and_end_with_a_row_only() -> None:
    """Rows before were read over a line of its own, and none of them passed the filter."""
    first, dropped, rows, last = numbered(OURS, 5, f"{OURS}:1-4")
    dropped.table, passing, other = tables("s.b", "s.a", "s.b")
    selects = ClientFilter(r"s\.a")
    _, reading = selects.select(Slice([first, dropped], 0, 2), ReadPosition(0, Position()))
    joined = reading._replace(skip=dropped.position)

    rows.table = other
    assert selects.select(Slice([first, dropped, rows, last], 0, 4), joined)[0] == []
    rows.table = passing
    assert selects.select(Slice([first, dropped, rows, last], 0, 4), joined)[0] == [first, rows, last]


@pytest.mark.parametrize("at_once", [True, False], ids=["one slice", "several"])
def test_end_passes_the_filter_before_rows_of_another_member_that_are_done(at_once: bool) -> None:
    """After a restart the members of a group may be merged in another order than that in which the client acked them."""
    other, torn, last = numbered(THEIRS, 1, ""), numbered(OURS, 5, f"{OURS}:1-4", "a"), numbered(THEIRS, 2, f"{THEIRS}:1")
    for name, made in (("m1", other), ("m0", torn), ("m1", last)):
        made[1].table, made[2].table = tables("s.a", "s.b")
        for entry in made:
            entry.group = GroupPosition(name, ())
    inside = attrs.evolve(CURSOR, gtid=f"{OURS}:1-4", row=2, next_gtid=f"{OURS}:5")
    before = Position("mysql-bin.000009", 4, source="b")
    cursor = Position(members={"m0": inside, "m1": before})
    slices = [other[:2], [*other[2:], *torn, *last[:1]], last[1:]] if at_once else [[entry] for entry in (*other, *torn, *last)]

    found = filtered(slices, skip=cursor)

    assert found == [*other[:2], other[3], torn[3], *last[:2], last[3]]


def tables(*names: str) -> list[Any]:
    fake = FakeBinlog()
    with fake.transaction():
        for name in names:
            fake.table(*name.split("."), "id INT PRIMARY KEY").insert({"id": 1})
    fake.end()
    with canal.connect(fake, start="earliest") as instance:
        return [entry.table for message in instance.stream() for entry in message.entries if entry.table is not None]


def filtered(slices: list[list[Entry]], skip: Position | None = None) -> list[Entry]:
    """All that passes the filter of a client of s.a."""
    selects, found = ClientFilter(r"s\.a"), []
    reading = ReadPosition(0, Position(), skip=skip)
    for number, made in enumerate(slices):
        passed, reading = selects.select(Slice(made, number, number + 1), reading)
        found += passed
    return found


def test_a_cursor_is_looked_at_until_the_stream_has_all_of_it() -> None:
    cursor = attrs.evolve(CURSOR, gtid=f"{OURS}:1-4")

    def skip(made: list[Entry]) -> Position | None:
        return ClientFilter("").select(Slice(made, 0, 1), ReadPosition(0, cursor, skip=cursor))[1].skip

    assert skip(numbered(THEIRS, 1, f"{OURS}:1-2")) == cursor
    assert skip(numbered(THEIRS, 1, f"{OURS}:1-4")) is None
    assert skip(numbered(OURS, 5, f"{OURS}:1-2")) is None
