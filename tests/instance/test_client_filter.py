"""Which entries a client has acked in an earlier life, by its cursor: what cannot be told comes again."""

from __future__ import annotations

import attrs
import pytest

from canal.gtid import MysqlGtidSet
from canal.instance.client_filter import Narrowing, ReadPosition, is_all_done, is_done, unskipped
from canal.model import Entry, EntryType, EventType, Transaction
from canal.position import Position
from canal.store import Slice
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
    assert len(unskipped(made, attrs.evolve(CURSOR, gtid="0-1-6", row=2))) == 2
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


OURS, THEIRS = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def numbered(uuid: str, number: int, before: str) -> list[Entry]:
    """A transaction in the log of another server, behind those of a GTID set."""
    made = Transaction("b", "mysql-bin.000009", 300 + 1000 * number, 1 if uuid == OURS else 2, 1_700_000_000)
    made.gtid_source, made.gtid_number = uuid, number
    made.gtid_first, made.gtid_previous = number, number - 1
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
        found, reading = Narrowing("").of(Slice(made, number, number + 1), reading)
        given += found

    assert given == [*own, *new], "whole: behind the other one nobody knows which of them the two rows were of"
    assert reading.skip is None
    assert reading.position.gtid == f"{OURS}:1-5,{THEIRS}:1"


def test_a_cursor_is_looked_at_until_the_stream_has_all_of_it() -> None:
    cursor = attrs.evolve(CURSOR, gtid=f"{OURS}:1-4")

    def skip(made: list[Entry]) -> Position | None:
        return Narrowing("").of(Slice(made, 0, 1), ReadPosition(0, cursor, skip=cursor))[1].skip

    assert skip(numbered(THEIRS, 1, f"{OURS}:1-2")) == cursor
    assert skip(numbered(THEIRS, 1, f"{OURS}:1-4")) is None
    assert skip(numbered(OURS, 5, f"{OURS}:1-2")) is None
