"""Create the parts of an Instance from its config."""

from __future__ import annotations

from collections.abc import Callable

from canal.config import Group, InstanceConfig
from canal.parse.group import GroupParser
from canal.parse.log.events import MAX_INFLATED_BYTES
from canal.parse.log_positions import FailbackLogPositionManager, MemoryLogPositionManager, MetaLogPositionManager
from canal.parse.options import ParserOptions
from canal.parse.parser import BinlogParser
from canal.sink import EntrySink
from canal.store import HeldBack, MemoryStore, Patience

#: Entries and bytes of a transaction that enter the store at once at most, whatever the size of the store.
_PIECE_ENTRIES, _PIECE_BYTES = 4096, 4 << 20


def parser_of(config: InstanceConfig) -> BinlogParser | GroupParser:
    if isinstance(group := config.source, Group):
        parsers = {name: parser_of(member) for name, member in config.members().items()}
        return GroupParser(
            parsers,
            order=group.order,
            idle_after=group.idle_after,
            stalled_after=group.stalled_after,
            on_stalled=group.on_stalled,
            alarm=config.alarm,
        )
    options = ParserOptions(
        source=group,
        start=config.start,
        tables=config.table_filter(),
        fields=config.column_filter(),
        masks=config.masks(),
        time_zone=config.time_zone,
        json_text=config.json == "text",
        backoff=config.reconnect_backoff,
        piece_bytes=min(_PIECE_BYTES, max(config.store_bytes // 4, 1)),
        piece_entries=min(_PIECE_ENTRIES, max(config.store_entries // 4, 1)),
        inflated_bytes=max(config.store_bytes, MAX_INFLATED_BYTES),
        alarm=config.alarm,
        shadow_tables=config.shadow_tables,
        sequences=config.sequences,
        unknown_columns=config.unknown_columns,
        column_types=config.column_types,
        history=config.history(),
        standby=config.standby,
        standby_start=config.standby_start,
        log_positions=config.log_positions
        or FailbackLogPositionManager(MemoryLogPositionManager(), MetaLogPositionManager(config.meta)),
        on_lost=config.on_lost,
        dump_error_threshold=config.dump_error_threshold,
        fallback_interval=config.fallback_interval,
    )
    return BinlogParser(options)


def sink_of(config: InstanceConfig) -> EntrySink:
    return EntrySink(
        hooks=config.hooks,
        row_filter=config.row_filter,
        leave_out=config.leave_out,
        masks=config.masks(),
        empty_interval=config.empty_transaction_interval,
        empty_count=config.empty_transaction_count,
    )


def store_of(config: InstanceConfig, tell: Callable[[HeldBack], None]) -> MemoryStore:
    """Create the store. It calls ``tell`` with the clients that fill it."""
    return MemoryStore(
        config.store_entries,
        config.store_bytes,
        isolate_ddl=config.isolate_ddl,
        whole_transactions=config.whole_transactions,
        batch_bytes=config.batch_bytes,
        patience=Patience(
            seconds=config.slow_after, evict=config.on_slow == "evict", entries=config.slow_entries, bytes=config.slow_bytes
        ),
        tell=tell,
    )
