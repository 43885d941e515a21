"""What is handed over to Arrow by its C data interface: whose it is, and until when."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pyarrow as pa
import pytest

import canal
from canal._util import build
from canal.formats import arrow, columnar
from canal.testing import FakeBinlog
from tests.support.parsing import decoded

pytestmark = pytest.mark.skipif(not build.compiled, reason="the interpreted build makes each array by a call of pyarrow")

KIND = pa.struct([("n", pa.int32()), ("text", pa.string()), ("none", pa.list_(pa.string()))])


def parts() -> tuple[list[bytearray], list[Any]]:
    numbers = bytearray(b"".join(n.to_bytes(4, "little") for n in (1, 2, 3)))
    valid = bytearray([0b101])
    offsets, data = bytearray(b"".join(n.to_bytes(4, "little") for n in (0, 1, 3, 3))), bytearray(b"abb")
    buffers = [numbers, valid, offsets, data]
    return buffers, [(1, valid, numbers, None), (0, None, offsets, data), pa.nulls(3, KIND[2].type)]


def counts(buffers: list[bytearray]) -> list[int]:
    gc.collect()
    return [sys.getrefcount(buffer) for buffer in buffers]


def test_the_buffers_live_as_long_as_the_last_array() -> None:
    buffers, given = parts()
    before = counts(buffers)

    arrays = columnar.hand_over(pa.Array._import_from_c, 3, given, KIND).flatten()
    texts = arrays[1][1:]
    assert [array.to_pylist() for array in arrays] == [[1, None, 3], ["a", "bb", ""], [None, None, None]]
    del arrays
    assert counts(buffers)[2:] == [count + 1 for count in before[2:]]
    assert texts.to_pylist() == ["bb", ""]
    del texts
    assert counts(buffers) == before


def test_what_nobody_takes_is_given_back() -> None:
    buffers, given = parts()
    before = counts(buffers)
    with pytest.raises(pa.ArrowInvalid):
        columnar.hand_over(pa.Array._import_from_c, 3, given, pa.struct([("one", pa.int32())]))
    with pytest.raises(AttributeError):
        columnar.hand_over(pa.Array._import_from_c, 3, [*given[:2], "no part"], KIND)
    with pytest.raises(ZeroDivisionError):
        columnar.hand_over(lambda address, kind: 1 // 0, 3, given, KIND)
    assert counts(buffers) == before


def test_batches_that_are_gone_leave_nothing() -> None:
    entries = decoded(of_all_kinds().events())
    arrow.to_arrow(entries)
    before = pa.total_allocated_bytes(), len(gc.get_objects())
    for _ in range(300):
        arrow.to_arrow(entries)
    gc.collect()
    assert pa.total_allocated_bytes() == before[0]
    assert len(gc.get_objects()) < before[1] + 100


def test_both_ways_make_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = decoded(of_all_kinds().events())
    row_entries = [entry for entry in entries if entry.rows]
    found = arrow.to_arrow(entries), arrow.changes(row_entries), arrow.changes(row_entries, "changes")
    monkeypatch.setattr(arrow, "_IMPORTS", False)
    assert found == (arrow.to_arrow(entries), arrow.changes(row_entries), arrow.changes(row_entries, "changes"))
    (batch,) = found[0]
    batch.validate(full=True)
    assert batch.num_rows == 6


def of_all_kinds() -> FakeBinlog:
    """Numbers, text, NULLs, what Arrow cannot hold, and an image that lacks a column."""
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT PRIMARY KEY, price DECIMAL(10,2), note TEXT, day DATE, doc JSON, raw BLOB")
    row = {"id": 1, "price": "1.5", "note": "é", "day": "2026-11-25", "doc": {"a": 1}, "raw": b"\xff"}
    table.insert(row, {"id": 2}, {**row, "id": 3, "day": canal.ZeroDate("0000-00-00")})
    table.update(row, {**row, "note": "other"})
    table.delete(row)
    return fake
