"""The options of a parser, and the callbacks that a run uses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timezone, tzinfo
from typing import Literal, Protocol, TypedDict

import attrs

from canal._util.option_names import checks_names
from canal.alarm import Alarm, log_alarm
from canal.errors import PositionLostError
from canal.filter import FieldFilter, TableFilter
from canal.parse.log.events import MAX_INFLATED_BYTES
from canal.parse.log_positions import LogPositionManager, MemoryLogPositionManager
from canal.parse.schema.history import MemoryHistory, SchemaHistory
from canal.parse.source.protocol import Source, Start
from canal.parse.start import OnLost
from canal.position import Position
from canal.rows.mask import Masks

UnknownColumns = Literal["positions", "error", "leave_out"]
ColumnTypes = Literal["log", "history"]


@checks_names()
@attrs.frozen(kw_only=True, eq=False)
class ParserOptions:
    """The options of a :class:`BinlogParser`; ``attrs.evolve()`` changes them.

    Args:
        source: the source to read.
        start: "latest", "earliest" or a :class:`Position`, used without a cursor to resume from.
        standby: another server of the same replication, for ``switch``.
        standby_start: like ``start``, for a first start at the standby.
        tables, fields: filters, applied once per table map.
        masks: masks for columns. Statements keep their text, which the sink withholds: pass the masks to an ``EntrySink`` too.
        time_zone: time zone of TIMESTAMP values.
        json_text: return JSON as text rather than as objects.
        shadow_tables: also deliver the temporary tables of online schema changes.
        sequences: also deliver the rows of MariaDB sequences.
        unknown_columns, column_types: see :class:`canal.InstanceConfig`.
        history: stores table schemas that the log does not carry. Serves one parser at a time.
        log_positions: stores the parse position. Serves one parser at a time.
        on_lost, dump_error_threshold, fallback_interval: see :class:`canal.InstanceConfig`.
        backoff: seconds before the first reconnect, and the maximum before later ones.
        piece_bytes, piece_entries: a larger transaction is delivered in pieces.
        inflated_bytes: maximum size of an event after decompression; larger events are refused.
        alarm: called for lost connections, the error that stopped the parser, and other problems.
    """

    source: Source
    start: Start = "latest"
    standby: Source | None = None
    standby_start: Start = "latest"
    tables: TableFilter = attrs.field(factory=TableFilter)
    fields: FieldFilter = attrs.field(factory=FieldFilter)
    masks: Masks = attrs.field(factory=Masks)
    time_zone: tzinfo = timezone.utc
    json_text: bool = True
    shadow_tables: bool = False
    sequences: bool = False
    unknown_columns: UnknownColumns = "positions"
    column_types: ColumnTypes = "log"
    history: SchemaHistory = attrs.field(factory=MemoryHistory)
    log_positions: LogPositionManager = attrs.field(factory=MemoryLogPositionManager)
    on_lost: OnLost = "fail"
    dump_error_threshold: int = 2
    fallback_interval: float = 60.0
    backoff: tuple[float, float] = (0.1, 10.0)
    piece_bytes: int = 4 << 20
    piece_entries: int = 4096
    inflated_bytes: int = MAX_INFLATED_BYTES
    alarm: Alarm = log_alarm

    @property
    def sources(self) -> list[tuple[Source, Start]]:
        """The source and the standby, each with a start position."""
        return [(self.source, self.start)] + ([(self.standby, self.standby_start)] if self.standby is not None else [])


class ParserKeywords(TypedDict, total=False):
    """The types of the :class:`ParserOptions` that :class:`BinlogParser` accepts by name. None selects the default."""

    start: Start
    standby: Source | None
    standby_start: Start
    tables: TableFilter | None
    fields: FieldFilter | None
    masks: Masks | None
    time_zone: tzinfo
    json_text: bool
    shadow_tables: bool
    sequences: bool
    unknown_columns: UnknownColumns
    column_types: ColumnTypes
    history: SchemaHistory | None
    log_positions: LogPositionManager | None
    on_lost: OnLost
    dump_error_threshold: int
    fallback_interval: float
    backoff: tuple[float, float]
    piece_bytes: int
    piece_entries: int
    inflated_bytes: int
    alarm: Alarm


class Owner(Protocol):
    """The callbacks of a run's parser. They may be replaced while the run continues."""

    oldest: Callable[[], Position | None]
    marks: Callable[[], list[Position]]
    translated: Callable[[dict[Position, Position | None]], None]
    began: Callable[[Position], None]
    lost: Callable[[PositionLostError], Position | None]
