"""The columns of a MariaDB sequence. The server stores it as a table with one row, and logs each change as an INSERT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from canal.schema import ColumnSchema, column_from_text

COLUMNS: Final = tuple(
    column_from_text(name, text, nullable=False)
    for name, text in (
        ("next_not_cached_value", "bigint(21)"),
        ("minimum_value", "bigint(21)"),
        ("maximum_value", "bigint(21)"),
        ("start_value", "bigint(21)"),
        ("increment", "bigint(21)"),
        ("cache_size", "bigint(21) unsigned"),
        ("cycle_option", "tinyint(1) unsigned"),
        ("cycle_count", "bigint(21)"),
    )
)
_SHAPE: Final = [(one.name, one.type_code) for one in COLUMNS]


def is_sequence(columns: Sequence[ColumnSchema]) -> bool:
    """Return whether the columns are those of a sequence, without a primary key."""
    return [(one.name, one.type_code) for one in columns] == _SHAPE and not any(one.key or one.nullable for one in columns)
