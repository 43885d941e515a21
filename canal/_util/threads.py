"""Threads of the library, distinguished from user threads.

Alarms, hooks, filters and sinks run on library threads. Their calls must not wait for the end of a run, because the end may
wait for them.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Longest single wait in seconds.
_SHORT = 1.0


class OwnThread(threading.Thread):
    """A library thread with interruptible ``start`` and ``join``, as by Ctrl-C.

    After an interrupted ``start`` the thread either runs or never will. ``join`` can be repeated and reports the end reliably.
    Python's threads guarantee neither: before 3.13, a thread counts as ended after an interrupted ``join``.
    """

    def __init__(self, *, target: Callable[..., object] | None = None, name: str, args: tuple[Any, ...] = ()) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)
        self._begins = threading.Lock()  # acquired by the thread when it begins, or by a thread that prevents it
        self._is_launched = False
        self._running = threading.Lock()  # held until the thread ends
        self._running.acquire()
        self._is_over = False

    def start(self) -> None:
        try:
            super().start()
        except RuntimeError as error:
            if str(error) == "release unlocked lock" and error.__context__ is not None:
                # an interrupted wait may raise an error about the lock in place of the interrupt
                raise error.__context__ from None
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
        """Run the target function. Subclasses override this."""
        super().run()

    def join(self, timeout: float | None = None) -> None:
        if not self._is_launched and self._begins.acquire(blocking=False):
            self._is_over = True  # it will never run
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not self._is_over and (left := deadline - time.monotonic()) > 0:
            if self._running.acquire(timeout=min(left, _SHORT)):  # if interrupted, the flag decides
                self._running.release()
        if self._is_over and self._is_launched:
            super().join()


_lent = threading.local()


@contextmanager
def as_own() -> Iterator[None]:
    """Mark the present thread as a library thread inside the block."""
    before = getattr(_lent, "is_own", False)
    _lent.is_own = True
    try:
        yield
    finally:
        _lent.is_own = before


def is_own() -> bool:
    """Return whether the present thread belongs to the library."""
    return isinstance(threading.current_thread(), OwnThread) or getattr(_lent, "is_own", False)
