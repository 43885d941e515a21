"""Start and stop of an instance: thread-safe, in any order, and safe against interrupts.

It holds no lock while it calls the instance. One thread starts or stops, and others wait for it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from canal._util.threads import OwnThread, is_own
from canal.errors import StateError

log = logging.getLogger("canal")

#: Polling interval in seconds. We poll because an interrupt can corrupt a lock that queues its waiters.
_LOOK = 0.005


class Steps:
    """The steps that end a run, in order."""

    def __init__(self) -> None:
        self._left: list[Callable[[], None]] = []

    def add(self, *steps: Callable[[], None]) -> None:
        """Insert steps at the front."""
        self._left[:0] = steps

    def drop(self, step: Callable[[], None]) -> None:
        """Remove a step."""
        self._left.remove(step)

    def carry_out(self) -> None:
        """Run all remaining steps, even if some raise, then raise the first exception.

        A step that is interrupted, as by Ctrl-C, stays for the next call and may then run twice.
        """
        kept = 0  # at the front
        failure: BaseException | None = None
        while len(self._left) > kept:
            try:
                self._left[kept]()
            except BaseException as error:
                if failure is None or not isinstance(error, Exception):
                    failure = error
                if not isinstance(error, Exception):
                    kept += 1
                    continue
            del self._left[kept]  # remove it after success: an interrupt must not lose the step
        if failure is not None:
            raise failure


class Life:
    """State of an instance: started or not, and the thread that starts or stops it.

    Args:
        begin: starts the instance. If it raises, it must clean up.
        end: stops the instance and finishes an interrupted stop. Idempotent.
        patience: seconds that a start waits for another thread's start or stop.
    """

    def __init__(self, destination: str, begin: Callable[[], None], end: Callable[[], None], patience: float) -> None:
        self._destination = destination
        self._begin = begin
        self._end = end
        self._patience = patience
        self._lock = threading.Lock()
        self._wanted = False
        self._process = 0  # pid of the process that started it; 0 if completely stopped
        self._at_work: threading.Thread | None = None

    @property
    def is_up(self) -> bool:
        """Return whether it is started, in the process that started it."""
        return self._wanted and not self.is_elsewhere

    @property
    def is_elsewhere(self) -> bool:
        """Return whether this process is a fork of the one that started it."""
        return self._process not in (0, os.getpid())

    def check_process(self) -> None:
        """
        Raises:
            StateError: this process is a fork of the one that has started it.
        """
        if self.is_elsewhere:
            raise StateError(
                f"the instance runs in process {self._process}, of which this one, {os.getpid()}, is a fork",
                destination=self._destination,
                remedy="Make a new Instance, from a new config, after the fork.",
            )

    def start(self, *, once: bool = True) -> None:
        """Start the instance, after waiting for a stop on another thread.

        Raises:
            StateError: it is already started (not with ``once=False``), the previous run has not ended, or it was stopped
                during the start.
        """
        self.check_process()
        me = threading.current_thread()
        deadline = time.monotonic() + (0.0 if is_own() else self._patience)
        while True:
            with self._lock:
                if self._at_work in (None, me):
                    if self._wanted:
                        if once:
                            raise StateError("the instance is started already", destination=self._destination)
                        return
                    is_left = self._process != 0
                    self._at_work, self._wanted, self._process = me, True, os.getpid()
                    break
            if time.monotonic() >= deadline:
                raise StateError(
                    "another thread stops or starts the instance, and has not ended yet",
                    destination=self._destination,
                    remedy="Call start() on a thread of your own, not in an alarm, a hook, a filter or a sink: the end of a run "
                    "waits for theirs.",
                )
            time.sleep(_LOOK)
        try:
            if is_left:  # of an interrupted stop
                self._end()
            self._begin()
            if not self._wanted:
                self._end()
                raise StateError("it is not to run any more")
        except Exception as error:
            was_wanted, self._wanted, self._process = self._wanted, False, 0
            if was_wanted:
                raise
            raise StateError("the instance was stopped while it started", destination=self._destination) from error
        except BaseException:  # an interrupt may come at any point
            self._wanted = False
            raise
        finally:
            self._at_work = None

    def stop(self) -> None:
        """Stop the instance. On return it has ended, except on a thread of the library, where the stop continues in the
        background.
        No-op in a fork of its process.
        """
        if self.is_elsewhere:
            return
        me = threading.current_thread()
        with self._lock:
            self._wanted = False
            other = self._at_work
        if other not in (None, me):
            if is_own():
                return  # that thread completes the stop
            while self._at_work is other:
                time.sleep(_LOOK)
        with self._lock:
            if self._wanted or not self._process or self._at_work not in (None, me):  # stopped, and possibly started again
                return
            behind = OwnThread(target=self._stop_behind, name=f"canal-{self._destination}-stop")
            self._at_work = behind if is_own() else me
        if self._at_work is behind:
            behind.start()
            return
        try:
            self._finish()
        finally:
            self._at_work = None

    def _stop_behind(self) -> None:
        try:
            self._finish()
        except Exception:
            log.exception("[%s] did not stop cleanly", self._destination)
        finally:
            self._at_work = None

    def _finish(self) -> None:
        try:
            self._end()
        except Exception:
            self._process = 0
            raise
        self._process = 0
