"""Whether the source still answers: a query at intervals, on a connection of its own, and what to do when it does not.

Never touches the replication connection, and never waits longer for an answer than its time-out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

import attrs

from canal._util.option_checks import not_negative, positive
from canal._util.threads import OwnThread
from canal.errors import CanalError

log = logging.getLogger("canal.ha")


@attrs.frozen(kw_only=True)
class Heartbeat:
    """How the source's health is watched.

    Args:
        sql: the query; one that writes (a heartbeat table) also shows a server that lives and takes no writes.
        interval: seconds between two of them.
        timeout: seconds that connecting and answering may take, each.
        retries: so many failures in a row are borne; the next one switches to the standby.
    """

    sql: str = "SELECT 1"
    interval: float = attrs.field(default=3.0, validator=positive)
    timeout: float = attrs.field(default=3.0, validator=positive)
    retries: int = attrs.field(default=3, validator=not_negative)


class Probe(Protocol):
    """A connection for one source's heartbeats."""

    def rows(self, sql: str, *, doing: str) -> object: ...
    def close(self) -> None: ...


class SourceHealth:
    """Sends heartbeats on a thread of its own.

    Args:
        heartbeat: how.
        open_probe: called with the time-out; gives the source that is read now, and how to open a probe of it.
        switch: called with the reason when there were too many failures in a row, and again at each further one until it
            returns True.
    """

    def __init__(
        self,
        heartbeat: Heartbeat,
        open_probe: Callable[[float], tuple[object, Callable[[], Probe]]],
        switch: Callable[[str], bool],
    ) -> None:
        self._heartbeat = heartbeat
        self._open_probe = open_probe
        self._switch = switch
        self._watch: _Watch | None = None
        self._destination = ""
        self.failures = 0

    def start(self, destination: str) -> None:
        self._destination = destination
        self.failures = 0
        self._watch = _Watch(self, f"canal-{destination}-heartbeat")
        self._watch.start()

    def stop(self) -> None:
        watch = self._watch
        if watch is not None:
            watch.close()
            if watch is not threading.current_thread():
                watch.join(2 * self._heartbeat.timeout + 1)

    def take(self, problem: str | None) -> None:
        """Count one heartbeat: what went wrong with it, or None."""
        if problem is None:
            self.failures = 0
            return
        self.failures += 1
        log.warning("[%s] heartbeat failed, %d in a row: %s", self._destination, self.failures, problem)
        if self.failures > self._heartbeat.retries and self._switch(f"{self.failures} heartbeats in a row failed: {problem}"):
            self.failures = 0


class _Watch(OwnThread):
    """The heartbeats of one run, and the connection that they are sent over."""

    def __init__(self, health: SourceHealth, name: str) -> None:
        super().__init__(name=name)
        self._health = health
        self._stopping = threading.Event()
        self._probe: Probe | None = None
        self._of: object = None

    def close(self) -> None:
        """End it: a heartbeat that waits for its answer fails."""
        self._stopping.set()
        probe = self._probe
        if probe is not None:
            probe.close()

    def work(self) -> None:
        try:
            while not self._stopping.wait(self._health._heartbeat.interval):
                problem = self._beat(self._health._heartbeat)
                if not self._stopping.is_set():  # else it has outlived its run
                    self._health.take(problem)
        finally:
            self._drop()

    def _beat(self, heartbeat: Heartbeat) -> str | None:
        source, opener = self._health._open_probe(heartbeat.timeout)
        if self._probe is None or source is not self._of:
            self._drop()
            self._of, self._probe = source, opener()
        try:
            self._probe.rows(heartbeat.sql, doing="send a heartbeat")
            return None
        except CanalError as error:
            self._drop()
            return error.message

    def _drop(self) -> None:
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.close()
