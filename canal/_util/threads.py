"""The library's own threads, told from those of its user.

An alarm, a hook, a filter or a sink runs on one of them. What it calls there never waits for the end of a run: it may be
what the run's end waits for.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds that one wait takes at most.
_SHORT = 1.0


class OwnThread(threading.Thread):
    """A thread of the library, whose ``start`` and ``join`` may be interrupted, as by Ctrl-C.

    After an interrupted ``start`` it runs or never will; ``join`` may be called again and tells the end for sure. Of Python's
    own threads neither is so: before 3.13 a thread counts as ended when its ``join`` was interrupted.
    """

    def __init__(self, *, target: Callable[..., object] | None = None, name: str, args: tuple[Any, ...] = ()) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)
        self._begins = threading.Lock()  # taken by the thread when it begins, or by who keeps it from that
        self._is_launched = False
        self._running = threading.Lock()  # held until its end
        self._running.acquire()
        self._is_over = False

    def start(self) -> None:
        try:
            super().start()
        except RuntimeError as error:
            if str(error) == "release unlocked lock" and error.__context__ is not None:
                raise error.__context__ from None  # a wait that an interrupt ends may name its lock instead of the interrupt
            raise
        self._is_launched = True

    def run(self) -> None:
        if self._begins.acquire(blocking=False):
            try:
                self.work()
            finally:
                self._is_over = True
                self._running.release()

    def work(self) -> None:
        """What it does."""
        super().run()

    def join(self, timeout: float | None = None) -> None:
        if not self._is_launched and self._begins.acquire(blocking=False):
            self._is_over = True  # it never runs
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not self._is_over and (left := deadline - time.monotonic()) > 0:
            if self._running.acquire(timeout=min(left, _SHORT)):  # where that is interrupted the flag tells
                self._running.release()
        if self._is_over and self._is_launched:
            super().join()


_lent = threading.local()


@contextmanager
def as_own() -> Iterator[None]:
    """Meanwhile the present thread, somebody else's, does what one of the library's does."""
    before = getattr(_lent, "is_own", False)
    _lent.is_own = True
    try:
        yield
    finally:
        _lent.is_own = before


def is_own() -> bool:
    """Whether the present thread is one of the library's."""
    return isinstance(threading.current_thread(), OwnThread) or getattr(_lent, "is_own", False)
