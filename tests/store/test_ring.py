"""The ring of entries beside a list of them that forgets nothing: the store's own tests say what waits for it."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from canal.model import Entry, EntryType
from canal.statement import Statement
from canal.store.ring import Ring
from tests.support.strategies import row, transaction, whole

_MOST, _ROOM = 6, 4000


def ddl() -> Entry:
    entry = row(transaction(), 0)
    entry.statement = Statement(kind="ddl", event_type="ALTER")
    assert entry.is_ddl
    return entry


def weight(entries: list[Entry]) -> int:
    """Row changes; a statement is one."""
    return sum(1 if entry.statement is not None else entry.row_count for entry in entries)


class RingBesideAList(RuleBasedStateMachine):
    """What went in stands in ``entries``, each at the index that is its sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = Ring(_MOST, _ROOM)
        self.entries: list[Entry] = []
        self.taken = 0  # how far somebody has taken everything

    def kept(self) -> list[Entry]:
        return self.entries[self.ring.head :]

    @rule(counts=st.lists(st.integers(1, 5), max_size=3), size=st.sampled_from([10, 1500, 9000]), kind=st.sampled_from("wrd"))
    def put(self, counts: list[int], size: int, kind: str) -> None:
        txn = transaction(len(self.entries))
        coming = whole(1, *counts) if kind == "w" else [row(txn, count, size) for count in counts] if kind == "r" else [ddl()]
        went = self.ring.put(coming, 0)
        self.entries += coming[:went]
        if went < len(coming):  # it is full: there is something, and one more would be too many or too large
            kept, following = self.kept(), coming[went]
            assert kept
            assert len(kept) == _MOST or sum(entry.size for entry in kept) + following.size > _ROOM

    @precondition(lambda self: self.ring.tail)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        head = data.draw(st.integers(0, self.ring.tail))
        before = self.ring.head
        self.ring.release(head)
        self.taken = max(self.taken, head)
        assert self.ring.head == max(before, head)

    @rule(
        data=st.data(), size=st.integers(1, 8), room=st.sampled_from([1, 600, 1 << 20]), alone=st.booleans(), ends=st.booleans()
    )
    def take(self, data: st.DataObject, size: int, room: int, alone: bool, ends: bool) -> None:
        start = data.draw(st.integers(0, self.ring.tail))
        taken = self.ring.take(start, size, room, alone, ends)
        if start <= self.taken:
            self.taken = max(self.taken, start + len(taken))
        if start < self.ring.head or start == self.ring.tail:
            assert taken == []
            return
        following = self.entries[start:]
        assert taken == following[: len(taken)]
        assert self.ring.taken_rows == sum(entry.row_count for entry in taken)
        if ends and any(entry.is_end for entry in following):
            assert not taken or taken[-1].is_end or not any(entry.is_end for entry in taken)
        if ends:
            return
        assert taken, "one entry at least"
        first = 2 if len(taken) > 1 and taken[0].entry_type is EntryType.TRANSACTIONBEGIN else 1
        if len(taken) > first:
            assert weight(taken) <= size
            assert sum(entry.size for entry in taken) <= room
        if alone and len(taken) > 1:
            assert not any(entry.is_ddl for entry in taken)
        assert taken[-1].entry_type is not EntryType.TRANSACTIONBEGIN or taken == following or len(taken) == 1

    @invariant()
    def it_counts_what_it_has(self) -> None:
        ring, kept = self.ring, self.kept()
        assert ring.tail == len(self.entries)
        assert ring.byte_count == sum(entry.size for entry in kept)
        assert ring.bytes_between(ring.head, ring.tail) == ring.byte_count
        assert ring.rows_from(ring.head) == sum(entry.row_count for entry in kept)
        assert ring.unread == sum(entry.size for entry in self.entries[self.taken :])
        assert ring.row_total == sum(entry.row_count for entry in self.entries)
        gone = self.entries[: ring.head]
        assert (ring.freed_bytes, ring.freed_rows) == (sum(e.size for e in gone), sum(e.row_count for e in gone))
        found = [ring.at(sequence) for sequence in range(ring.tail + 1)]
        assert found == [*[None] * ring.head, *kept, None]


TestRing = RingBesideAList.TestCase


@pytest.mark.parametrize("limit", ["rows", "bytes"])
def test_take_begin_whose_row_exceeds_a_limit_leaves_begin_for_the_next_batch(limit: str) -> None:
    entries = [row(transaction(0)), *whole(1, 2)]
    ring = Ring(_MOST, _ROOM)
    ring.put(entries, 0)
    rows, size = (2, _ROOM) if limit == "rows" else (9, sum(entry.size for entry in entries[:2]))

    assert ring.take(0, rows, size, False, False) == entries[:1]
