"""A line of one client's own, over a connection of its own, while it is behind what the store keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from canal.alarm import Alarm, AlarmMessage
from canal.config import InstanceConfig
from canal.instance.feed import Feed
from canal.meta import MemoryMeta
from canal.parse.schema.history import CatchUpHistory
from canal.parse.source.mysql import another
from canal.position import Position

if TYPE_CHECKING:
    from canal.instance.instance import Instance


def open_line(
    config: InstanceConfig, source: Any, client_id: int, feeds: list[Feed], start: str | Position, is_cursor: bool, name: str
) -> tuple[Instance, Feed]:
    """A started instance like that of ``config``, for one client, which nobody else has.

    Args:
        feeds: has the line before it begins, for who ends it.
        start: where it begins; ``is_cursor`` says that it is one, which wins over everything.
        name: of the client, for alarms.
    """
    from canal.instance.instance import Instance

    meta = MemoryMeta()
    if is_cursor:
        assert isinstance(start, Position)
        meta.start(config.destination)
        meta.subscribe(client_id, "")
        meta.update_cursor(client_id, start)
        meta.stop()
        start = "latest"
    instance = Instance(
        attrs.evolve(
            config, source=another(source), start=start, standby=None, heartbeat=None, ha=None, meta=meta,
            schema_history=CatchUpHistory(), log_positions=None, on_slow="wait", alarm=_named(config.alarm, name),
        )
    )  # fmt: skip
    instance._name_clients(lambda client_id: name)
    feed = Feed(instance.parser, instance.store, instance.stop, source)
    feeds.append(feed)
    instance.start()
    return instance, feed


def _named(alarm: Alarm, name: str) -> Alarm:
    """An alarm that says whose line it is about."""

    def tell(destination: str, message: str) -> None:
        text = f"the line of {name}, which is behind: {message}"
        if isinstance(message, AlarmMessage):
            text = AlarmMessage(text, message.kind, message.times, message.is_over)
        alarm(destination, text)

    return tell
