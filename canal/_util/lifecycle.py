"""Start and stop of an instance, from any thread, in any order, also interrupted.

Never calls anything of its instance while it holds a lock: one thread at a time starts or stops, and others wait for it.
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

#: Seconds between two looks whether another thread has done its work. Nothing announces that: a lock with a queue of who
#: waits does not outlive an interrupt.
_LOOK = 0.005


class Steps:
    """What ends a run, in the order in which it is to be done."""

    def __init__(self) -> None:
        self._left: list[Callable[[], None]] = []

    def add(self, *steps: Callable[[], None]) -> None:
        """These come before what is there."""
        self._left[:0] = steps

    def drop(self, step: Callable[[], None]) -> None:
        """Not to be done."""
        self._left.remove(step)

    def carry_out(self) -> None:
        """Do all that is left, each whatever another raises; the first exception is raised at the end.

        A step that is interrupted, as by Ctrl-C, is left for the next call, which may do again what is done already.
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
            del self._left[kept]  # only now: an interrupt between two lines loses none
        if failure is not None:
            raise failure


class Life:
    """Whether an instance is started, and which thread starts or stops it just now.

    Args:
        begin: starts what there is; where it raises it has left nothing behind.
        end: stops it, and does what an interrupted call has left. Called again, it does nothing.
        patience: seconds that a start waits for another thread's start or stop.
    """

    def __init__(self, destination: str, begin: Callable[[], None], end: Callable[[], None], patience: float) -> None:
        self._destination = destination
        self._begin = begin
        self._end = end
        self._patience = patience
        self._lock = threading.Lock()
        self._wanted = False
        self._process = 0  # that has started it; 0: it is stopped to the end
        self._at_work: threading.Thread | None = None

    @property
    def is_up(self) -> bool:
        """Between a start and the next stop, in the process that has started it."""
        return self._wanted and not self.is_elsewhere

    @property
    def is_elsewhere(self) -> bool:
        """Whether this process is a fork of the one that has started it."""
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
        """Start it, after the end of a stop that another thread carries out.

        Raises:
            StateError: it is started already (not with ``once=False``), its last run has not ended yet, or it was stopped
                meanwhile.
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
            if is_left:  # by a stop that was interrupted
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
        except BaseException:  # which may have come at any point
            self._wanted = False
            raise
        finally:
            self._at_work = None

    def stop(self) -> None:
        """Stop it. When this returns everything has ended, unless it is called on a thread of the library's: then that is
        under way. In a fork of its process it does nothing."""
        if self.is_elsewhere:
            return
        me = threading.current_thread()
        with self._lock:
            self._wanted = False
            other = self._at_work
        if other not in (None, me):
            if is_own():
                return  # it sees to it
            while self._at_work is other:
                time.sleep(_LOOK)
        with self._lock:
            if self._wanted or not self._process or self._at_work not in (None, me):  # stopped, and perhaps started again
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
