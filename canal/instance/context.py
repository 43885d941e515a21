"""The state that the clients of one Instance share: its parts, whether they run, and whether this process is active."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from canal._util.lifecycle import Life
from canal.alarm import AlarmDesk, AlarmKind
from canal.errors import NotActiveError, StateError
from canal.ha import RunningMonitor
from canal.instance.feed import Feed
from canal.instance.parts import Parts
from canal.position import Position

#: Opens a private feed for a client at a position. The feed is in the list before it starts, so that the caller can stop it.
OpenFeed = Callable[[int, Position, list[Feed]], Feed]


class ClientContext:
    """Shared by the :class:`canal.instance.delivery.Delivery` objects of one Instance.

    Args:
        life: knows whether the Instance is started.
        open_feed: called for a client that the store has evicted.

    Attributes:
        ha: the election, or None if the Instance runs in this process only.
        parts_run: whether the parts run. With ``ha``, they run only in the active process.
        name_of: returns the name of a client in alarms.
    """

    def __init__(self, destination: str, parts: Parts, alarms: AlarmDesk, life: Life, open_feed: OpenFeed) -> None:
        self.destination = destination
        self.parser = parts.parser
        self.store = parts.store
        self.open_feed = open_feed
        self.ha: RunningMonitor | None = None
        self.parts_run = False
        self.name_of: Callable[[int], str] = "client {}".format
        self._parts = parts
        self.alarms = alarms
        self._life = life
        self._started_at = 0.0

    @property
    def source(self) -> Any:
        """The source that the shared parser currently reads."""
        return self._parts.parser_info.source

    @property
    def is_started(self) -> bool:
        """Whether the Instance is between ``start`` and ``stop``."""
        return self._life.is_up

    @property
    def is_exhausted(self) -> bool:
        """Whether the store receives no more entries."""
        return self.parser.is_finished and (self.ha is None or self.parts_run)

    @property
    def uptime(self) -> float | None:
        """Seconds since the parts were started, or None if they do not run."""
        return time.monotonic() - self._started_at if self.parts_run else None

    def note_start(self) -> None:
        """Record that the parts run."""
        self._started_at = time.monotonic()
        self.parts_run = True

    def check_process(self) -> None:
        """Raise StateError in a fork of the process that started the Instance."""
        self._life.check_process()

    def check_running(self) -> None:
        """Raise StateError if the parts do not run, or NotActiveError if this process is a standby."""
        self.check_process()
        if self.parts_run:
            return
        if self.is_started and self.ha is not None:
            raise NotActiveError(
                f"this process is {self.ha.role.value}",
                destination=self.destination,
                remedy="The active process delivers. Call get, which waits until this process is active.",
            )
        raise StateError("the instance is not running", destination=self.destination, remedy="Call start() first.")

    def caught_up(self, client_id: int) -> None:
        """Announce that a client has caught up with the store."""
        self.alarms.announce(AlarmKind.SLOW, f"{self.name_of(client_id)} has caught up with the store")

    def write_cursor(self, client_id: int, position: Position) -> None:
        """Write a client's cursor durably. If another process is active, end this process's turn."""
        fence = None if self.ha is None else self.ha.fence
        try:
            self._parts.meta.update_cursor(client_id, position)
        except NotActiveError:
            if self.ha is not None:
                self.ha.fenced(fence)
            raise

    def flush(self) -> None:
        """Wait until all written cursors are durable."""
        self._parts.meta.flush()
