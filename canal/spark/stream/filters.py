"""Filters on the position, time and kind of a change, from Spark for the reader of a range: what cannot pass is not decoded.

Never decides what is in a result: Spark applies every filter to the rows that come.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from canal.formats.change_table import pack_txn
from canal.model import Entry, EventType
from canal.spark.stream.stretch import Stretch, renames

#: By the name of a filter in PySpark, whether a value from a lowest to a highest one can pass it.
_CAN_PASS: Final[Mapping[str, Callable[[Any, Any, Any], bool]]] = {
    "EqualTo": lambda low, high, value: low <= value <= high,
    "EqualNullSafe": lambda low, high, value: low <= value <= high,
    "GreaterThan": lambda low, high, value: high > value,
    "GreaterThanOrEqual": lambda low, high, value: high >= value,
    "LessThan": lambda low, high, value: low < value,
    "LessThanOrEqual": lambda low, high, value: low <= value,
    "In": lambda low, high, values: any(low <= value <= high for value in values),
}
#: The class of what a column is compared with.
_KINDS: Final = {"_op": str, "_txn": int, "_ts": datetime}
_OPERATIONS: Final = {EventType.INSERT: "I", EventType.UPDATE: "U", EventType.DELETE: "D"}


@attrs.frozen
class Condition:
    """One filter on one column, none of whose values is null. Pickles."""

    column: str
    name: str
    value: Any
    is_negated: bool

    def can_pass(self, low: Any, high: Any) -> bool:
        """Whether one of the values from ``low`` to ``high`` passes."""
        passes = _CAN_PASS[self.name](low, high, self.value)
        return not (passes and low == high) if self.is_negated else passes

    def takes(self, entry: Entry, epoch: int) -> bool:
        """Whether the rows of an entry pass; what tells of a statement always does."""
        value: Any = _OPERATIONS.get(entry.event_type)
        if value is None or entry.table is None:
            return True
        if self.column == "_txn":
            value = pack_txn(epoch, entry.transaction.journal, entry.transaction.offset)
        elif self.column == "_ts":
            value = datetime.fromtimestamp(entry.timestamp, UTC)
        return self.can_pass(value, value)

    def reaches(self, stretch: Stretch) -> bool:
        """Whether a row in a stretch of the log can pass, by the positions of its ends. Times prove nothing: clocks go back."""
        start, end = stretch.start, stretch.end
        if self.column != "_txn" or not (start.journal and end.journal):
            return True
        last = stretch.epoch + renames(start.journal, end.journal)
        return self.can_pass(pack_txn(stretch.epoch, start.journal, 0), pack_txn(last, end.journal, end.offset))


def conditions_of(filters: Iterable[Any]) -> tuple[Condition, ...]:
    """Those of PySpark's filters, all of which a row must pass, that are about ``_op``, ``_txn`` and ``_ts``."""
    return tuple(found for one in filters if (found := _condition(one)) is not None)


def _condition(one: Any) -> Condition | None:
    is_negated = type(one).__name__ == "Not"
    inner = one.child if is_negated else one
    name = type(inner).__name__
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if name not in _CAN_PASS or len(path) != 1 or path[0].lower() not in _KINDS:
        return None
    column = path[0].lower()
    values = inner.value if name == "In" else (inner.value,)
    is_known = all(type(value) is _KINDS[column] for value in values)
    return Condition(column, name, inner.value, is_negated) if is_known else None


def are_handed() -> bool:
    """Whether Spark hands filters to readers in this process; elsewhere it refuses a reader that takes some."""
    return "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules
