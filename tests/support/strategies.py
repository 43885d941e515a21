"""Hypothesis strategies and small builders that several test files share."""

from __future__ import annotations

from hypothesis import strategies as st

from canal.model import Entry, EntryType, EventType, Transaction


def transaction(number: int = 1, journal: str = "binlog.000001") -> Transaction:
    made = Transaction("", journal, 100 * number, 1, 1_700_000_000 + number)
    made.end = 100 * number + 99
    return made


def begin(txn: Transaction) -> Entry:
    return Entry(EntryType.TRANSACTIONBEGIN, EventType.QUERY, txn, b"B" * 20, txn.offset, txn.timestamp, 1)


def row(txn: Transaction, count: int = 1, size: int = 50) -> Entry:
    entry = Entry(EntryType.ROWDATA, EventType.INSERT, txn, b"R" * size, txn.offset + 30, txn.timestamp, 1)
    entry.row_count = count
    entry.first_row = txn.row_count
    txn.row_count += count
    return entry


def end(txn: Transaction) -> Entry:
    entry = Entry(EntryType.TRANSACTIONEND, EventType.QUERY, txn, b"E" * 31, txn.end - 31, txn.timestamp, 1)
    entry.is_end = True
    entry.first_row = txn.row_count
    return entry


def whole(number: int, *counts: int) -> list[Entry]:
    """A transaction with one row entry per count."""
    txn = transaction(number)
    return [begin(txn), *(row(txn, count) for count in counts), end(txn)]


#: Transactions as lists of row counts.
transactions = st.lists(st.lists(st.integers(1, 40), max_size=5), min_size=1, max_size=12)
