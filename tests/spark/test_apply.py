"""What a batch of changes comes to, and that each is applied once: against a dict, whatever is delivered again."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canal.errors import StreamMismatchError, TargetConflictError, TargetSchemaError, UnfitChangeError
from canal.spark import apply_changes
from tests.spark.histories import (
    KEYS,
    FaultyTarget,
    History,
    MemoryTarget,
    change,
    content,
    deliveries,
    histories,
    table,
)

FULL = {"id": 1, "k": "x", "a": 1, "b": "p"}


@given(st.data())
@settings(max_examples=300)
def test_the_target_is_what_the_table_was_after_each_batch(data: st.DataObject) -> None:
    history = data.draw(histories())
    target = MemoryTarget()
    done = 0
    for run in data.draw(deliveries(history)):
        fn = apply_changes(target, KEYS)
        for first, end in run:
            rows = table(history.changes[first:end])
            order = data.draw(st.permutations(range(rows.num_rows)))  # partitions come in any order
            fn(rows.take(pa.array(order, pa.int64())), 0)
            done = max(done, end)
            assert content(target.rows) == history.states[done]
