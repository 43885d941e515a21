"""What a parser was configured with: the same for each of its runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo

import attrs

from canal.alarm import Alarm
from canal.filter import FieldFilter, TableFilter
from canal.parse.log_positions import LogPositionManager
from canal.parse.schema.history import SchemaHistory
from canal.parse.source.protocol import Source
from canal.position import Position
from canal.rows.mask import Masks


@attrs.frozen(kw_only=True, eq=False)
class ParserOptions:
    """As :class:`canal.BinlogParser` says; ``sources`` are the source and its standby, each with its start position."""

    sources: list[tuple[Source, str | Position]]
    tables: TableFilter
    fields: FieldFilter
    masks: Masks
    time_zone: tzinfo
    json_text: bool
    backoff: tuple[float, float]
    piece_bytes: int
    piece_entries: int
    inflated_bytes: int
    alarm: Alarm
    shadow_tables: bool
    unknown_columns: str
    column_types: str
    history: SchemaHistory
    log_positions: LogPositionManager
    on_lost: str
    dump_error_threshold: int
    fallback_interval: float
    oldest: Callable[[], Position | None]
    marks: Callable[[], list[Position]]
    translated: Callable[[dict[Position, Position | None]], None]
    began: Callable[[Position], None]
