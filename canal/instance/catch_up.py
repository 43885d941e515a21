"""The config of a private Instance, over which one client catches up with the shared store."""

from __future__ import annotations

from typing import Any

import attrs

from canal.alarm import Alarm, AlarmMessage
from canal.config import InstanceConfig
from canal.meta import MemoryMeta
from canal.parse.schema.history import CatchUpHistory
from canal.parse.source.mysql import another
from canal.position import Position


def line_config(
    config: InstanceConfig, source: Any, client_id: int, start: str | Position, is_cursor: bool, name: str
) -> InstanceConfig:
    """Return the config of an Instance for one client.

    Args:
        start: where the Instance begins. If ``is_cursor``, it is the client's cursor.
        name: the client's name in alarms.
    """
    meta = MemoryMeta()
    if is_cursor:
        assert isinstance(start, Position)
        meta.start(config.destination)
        meta.subscribe(client_id, "")
        meta.update_cursor(client_id, start)
        meta.stop()
        start = "latest"
    return attrs.evolve(
        config,
        source=another(source),
        start=start,
        standby=None,
        heartbeat=None,
        ha=None,
        meta=meta,
        schema_history=CatchUpHistory(),
        log_positions=None,
        on_slow="wait",
        alarm=_named(config.alarm, name),
    )


def _named(alarm: Alarm, name: str) -> Alarm:
    """Prefix alarms with the name of the client."""

    def named(destination: str, message: str) -> None:
        text = f"while {name} catches up: {message}"
        if isinstance(message, AlarmMessage):
            text = AlarmMessage(text, message.kind, message.times, message.is_over)
        alarm(destination, text)

    return named
