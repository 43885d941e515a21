"""Follows a ConfigSource: destinations that come are started, those that go stopped, those that change started anew.

Never carries out what it cannot use: an alarm says so, and what runs goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol

from canal.alarm import Alarm, AlarmDesk, AlarmKind
from canal.config import InstanceConfig
from canal.server.configuration.sources import ConfigSource

#: Seconds after which a change must still be the same: a file that is being written may be valid in between.
_SETTLED = 0.25


class Configured(Protocol):
    """What a follower does to a server."""

    def configure(self, config: InstanceConfig, *, lazy: bool) -> None: ...
    def forget(self, destination: str) -> None: ...


class Follower:
    """Looks every ``interval`` seconds, on a thread of its own.

    Args:
        server: told what has changed.
        source: asked.
        interval: seconds between two looks.
        lazy: whether a new destination waits for its first use; None: as the source says.
        alarm: told what cannot be used, once, and that it is over.
    """

    def __init__(self, server: Configured, source: ConfigSource, interval: float, lazy: bool | None, alarm: Alarm) -> None:
        self._server = server
        self._source = source
        self._interval = interval
        self._lazy = lazy
        self._alarm = alarm
        self._desks: dict[str, AlarmDesk] = {}
        self._done: dict[str, str] = {}  # digests of what was carried out
        self._failed: dict[str, str] = {}  # of what could not be used
        self._stopping = threading.Event()
        # No OwnThread: there a stop() returns before what it stops has ended.
        self._thread = threading.Thread(target=self._run, name="canal-follow", daemon=True)

    def start(self) -> None:
        """Carry out what there is now, then follow. Raises what ``ConfigSource.names`` does; a destination that cannot be used
        is an alarm."""
        self._carry_out(self._source.names())
        self._thread.start()

    def end(self) -> None:
        """Let the thread end when the look under way is over; what that starts meanwhile a stopped server refuses."""
        self._stopping.set()

    def failed(self) -> list[str]:
        """The destinations whose present configuration cannot be used."""
        return [name for name, digest in tuple(self._failed.items()) if digest]

    def _run(self) -> None:
        seen: Mapping[str, str] = {}
        is_settled = True
        while not self._stopping.wait(self._interval if is_settled else min(self._interval, _SETTLED)):
            try:
                names = dict(self._source.names())
            except Exception as error:
                self._tell("", f"the configuration cannot be read, and nothing is changed: {error}")
                seen, is_settled = {}, True
                continue
            self._over("", "the configuration can be read again")
            is_settled = names == seen or names == self._done
            if is_settled:
                self._carry_out(names)
            seen = names

    def _carry_out(self, names: Mapping[str, str]) -> None:
        for name in sorted({*self._done, *self._failed} - names.keys()):
            self._attempt(name, "")
        for name, digest in sorted(names.items()):
            if self._stopping.is_set():
                return
            if self._done.get(name) == digest:
                self._over(name, "its configuration is again the one that is in use")
                self._failed.pop(name, None)
            elif self._failed.get(name) != digest:
                self._attempt(name, digest)

    def _attempt(self, name: str, digest: str) -> None:
        """Carry out the change of one destination; "" for a digest: it is gone."""
        try:
            if digest:
                self._server.configure(self._source.load(name), lazy=self._is_lazy(name))
            else:
                self._server.forget(name)
        except Exception as error:
            self._failed[name] = digest
            self._tell(name, f"its configuration has changed and cannot be used, so what runs goes on: {error}")
            return
        self._failed.pop(name, None)
        self._done.pop(name, None)
        if digest:
            self._done[name] = digest
        self._over(name, "its configuration is in use")

    def _is_lazy(self, name: str) -> bool:
        if self._lazy is not None:
            return self._lazy
        told: Any = getattr(self._source, "is_lazy", None)
        return bool(told is not None and told(name))

    def _desk(self, name: str) -> AlarmDesk:
        if name not in self._desks:
            self._desks[name] = AlarmDesk(self._alarm)
            self._desks[name].reset(name)
        return self._desks[name]

    def _tell(self, name: str, text: str) -> None:
        self._desk(name).tell(AlarmKind.CONFIGURATION, text, text)

    def _over(self, name: str, text: str) -> None:
        self._desk(name).over(AlarmKind.CONFIGURATION, text)
