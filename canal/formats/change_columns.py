"""Changes of entries as the columns that targets are given.

Never gives columns that do not hold every value exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from canal.changes.change import Table
from canal.changes.fold import DELETE, INSERT, UPDATE, ArrowChanges
from canal.formats.arrow import changes
from canal.model import Entry

#: By the numbers of ``formats.arrow``, which has one for images before updates too.
_OPERATIONS: Final = pa.array([INSERT, UPDATE, UPDATE, DELETE], pa.uint8())


def change_columns(table: Table, entries: Sequence[Entry], keys: Sequence[str]) -> ArrowChanges | None:
    """Return the changes of entries of one table; None if columns do not hold all of them exactly.

    Args:
        keys: the columns of which ``before_keys`` has the values. No value of them may be NULL.

    Raises:
        CanalError: as ``canal.formats.arrow.changes``.
    """
    found = changes(entries, "changes")
    assert found.before is not None
    assert found.before_exact is not None
    for texts in (found.absent, found.exact, found.before_exact):
        if texts.null_count < len(texts):
            return None
    op = _OPERATIONS.take(found.op)
    numbers = [table.names.index(name) for name in keys]
    if any(getattr(found.columns[at].type, "scale", 0) for at in numbers):
        return None  # of a DECIMAL, whose zeros behind the point no key has (KeyRules.written)
    before = pa.Table.from_arrays([found.before[at] for at in numbers], list(keys))
    others = len(op) - pc.sum(pc.equal(op, UPDATE)).as_py()
    if any(found.columns[at].null_count for at in numbers) or any(column.null_count > others for column in before.columns):
        return None
    return ArrowChanges(table, op, found.ord, found.entry, pa.Table.from_arrays(found.columns, list(table.names.names)), before)
