"""Changes cost the garbage collector nothing: walking them, which have no cycles, took a third of the time."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest

import canal
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.schema.classify import classify
from canal.position import PreparedXa
from canal.testing import FakeBinlog

ROWS = 500


@pytest.mark.skipif(not canal.compiled, reason="the collector tracks what is interpreted")
def test_the_collector_tracks_no_entry_transaction_or_row() -> None:
    with _stream() as instance:
        instance.subscribe()
        message = instance.get_without_ack(10, timeout=5.0)
        entry = next(entry for entry in message.entries if entry.header.row_count)
        change = entry.rows[0]
        assert not [one for one in (entry, entry.transaction, change, change.after) if gc.is_tracked(one)]


def test_what_is_acked_is_freed_without_the_collector() -> None:
    marks = weakref.WeakSet[Mark]()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        rows = 0
        with _stream() as instance:
            instance.subscribe()
            while rows < ROWS:
                message = instance.get_without_ack(100, timeout=5.0)
                for entry in message.entries:
                    marks.add(entry.props.setdefault("mark", Mark()))
                    for change in entry.rows:
                        rows += change.after["note"] == "é"
                assert len(marks) >= len(message.entries)
                instance.ack(message.id)
                del message, entry
                assert len(marks) <= 1  # the store remembers the last one
    finally:
        if was_enabled:
            gc.enable()


def test_a_decoder_is_freed_without_the_collector() -> None:
    """Each prepared XA transaction that is read again has one, with all tables and rows that it has met."""
    mark = Mark()
    alive = weakref.ref(mark)
    decoder = BinlogDecoder(partial(print, mark), classify, print, print, print)
    again = decoder.replay(PreparedXa("X'78'", "", 0), print)
    del mark, decoder
    assert alive() is not None
    del again
    assert alive() is None


class Mark:
    """Lives as long as the entry that has it."""


def _stream() -> canal.Instance:
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(40)")
    for number in range(ROWS):
        table.insert({"id": number, "note": "é"})
    return canal.Instance(canal.InstanceConfig(destination="shop", source=fake, start="earliest"))
