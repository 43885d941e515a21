"""Whether the source still answers: a query at intervals, on a connection of its own, and what to do when it does not.

Never touches the replication connection, and never waits longer for an answer than its time-out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

import attrs

from canal.checks import not_negative, positive
from canal.errors import CanalError
from canal.threads import OwnThread

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
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._probe: Probe | None = None
        self._of: object = None
        self._destination = ""
        self.failures = 0

    def start(self, destination: str) -> None:
        self._stopping = threading.Event()  # of this run: what outlived the one before must not go on
        self._destination = destination
        self.failures = 0
        name = f"canal-{destination}-heartbeat"
        self._thread = OwnThread(target=self._run, args=(self._stopping,), name=name)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        probe = self._probe
        if probe is not None:
            probe.close()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(2 * self._heartbeat.timeout + 1)
        self._thread = None

    def _run(self, stopping: threading.Event) -> None:
        try:
            while not stopping.wait(self._heartbeat.interval):
                problem = self._beat()
                if not stopping.is_set():
                    self.take(problem)
        finally:
            if stopping is self._stopping:
                self._drop()

    def take(self, problem: str | None) -> None:
        """Count one heartbeat: what went wrong with it, or None."""
        if problem is None:
            self.failures = 0
            return
        self.failures += 1
        log.warning("[%s] heartbeat failed, %d in a row: %s", self._destination, self.failures, problem)
        if self.failures > self._heartbeat.retries and self._switch(
            f"{self.failures} heartbeats in a row failed: {problem}"
        ):
            self.failures = 0

    def _beat(self) -> str | None:
        source, opener = self._open_probe(self._heartbeat.timeout)
        if self._probe is None or source is not self._of:
            self._drop()
            self._of, self._probe = source, opener()
        try:
            self._probe.rows(self._heartbeat.sql, doing="send a heartbeat")
            return None
        except CanalError as error:
            self._drop()
            return error.message

    def _drop(self) -> None:
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.close()
