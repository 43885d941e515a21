"""Threads that many small state machines share, so that a thousand of them need no thousand threads."""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from canal._util.threads import OwnThread

_IDLE: Final = 10.0  # seconds after which a thread without a job ends


class Workers:
    """Runs jobs on at most ``most`` threads, which are started when needed and end when idle."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._numbers = itertools.count(1)
        self._threads: set[OwnThread] = set()
        self._idle = 0
        self._rests = False

    def submit(self, job: Callable[[], None]) -> None:
        """Run the job soon. The job must not raise."""
        with self._changed:
            self._jobs.append(job)
            self._rests = False
            if self._idle >= len(self._jobs) or len(self._threads) >= self._most:
                self._changed.notify()
                return
            thread = OwnThread(target=self._work, name=f"{self._name}-{next(self._numbers)}")
            self._threads.add(thread)
        thread.start()

    def rest(self) -> list[OwnThread]:
        """Let the threads end that have no job. Return all threads."""
        with self._changed:
            self._rests = True
            self._changed.notify_all()
            return list(self._threads)

    def _work(self) -> None:
        thread = threading.current_thread()
        try:
            while (job := self._next()) is not None:
                job()
        finally:
            with self._changed:
                self._threads.discard(thread)

    def _next(self) -> Callable[[], None] | None:
        deadline = time.monotonic() + _IDLE
        with self._changed:
            while not self._jobs:
                left = deadline - time.monotonic()
                if left <= 0 or self._rests:
                    return None
                self._idle += 1
                try:
                    self._changed.wait(left)
                finally:
                    self._idle -= 1
            return self._jobs.popleft()


class _Timer:
    """Calls functions after a time, on a thread that ends when no call is left."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._thread: OwnThread | None = None

    def call(self, seconds: float, what: Callable[[], None]) -> None:
        """Call a function that returns at once, after so many seconds."""
        with self._changed:
            due = time.monotonic() + seconds
            is_first = not self._calls or due < self._calls[0][0]
            heapq.heappush(self._calls, (due, next(self._numbers), what))
            if self._thread is not None:
                if is_first:
                    self._changed.notify()
                return
            thread = self._thread = OwnThread(target=self._work, name="canal-ha-timer")
        thread.start()

    def rest(self) -> list[OwnThread]:
        """Forget all calls. Return the thread."""
        with self._changed:
            self._calls.clear()
            self._changed.notify()
            return [] if self._thread is None else [self._thread]

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._calls and (left := self._calls[0][0] - time.monotonic()) > 0:
                    self._changed.wait(left)
                if not self._calls:
                    self._thread = None
                    return
                what = heapq.heappop(self._calls)[2]
            what()


#: Short steps, and those that start or stop the parts of a destination, which may wait for a server.
_short = Workers("canal-ha", 8)
_long = Workers("canal-turns", 200)
_timer = _Timer()
_count = 0  # of the steppers that are alive
_counting = threading.Lock()


def _renew() -> None:
    """In a fork none of the threads runs, and a lock may be held for ever."""
    global _short, _long, _timer, _count, _counting
    _short, _long, _timer = Workers("canal-ha", 8), Workers("canal-turns", 200), _Timer()
    _count, _counting = 0, threading.Lock()


def _count_by(change: int) -> None:
    global _count
    with _counting:
        _count += change


def _rest() -> None:
    """End all threads if no stepper is alive, and wait for that."""
    with _counting:
        if _count:
            return
        threads = [*_short.rest(), *_long.rest(), *_timer.rest()]
    for thread in threads:
        while thread is not threading.current_thread() and thread.is_alive() and not _count:
            thread.join(0.05)


os.register_at_fork(after_in_child=_renew)


class Stepper:
    """Runs steps in turn on shared threads, never two at the same time.

    Args:
        step: returns the seconds until the next step, or None after the last step. ``wake`` shortens the wait.
        name: the name of a thread during a step.
    """

    def __init__(self, step: Callable[[], float | None], name: str) -> None:
        #: Set by a step if the next step may take long.
        self.is_long = False
        #: The thread of the present step.
        self.thread: threading.Thread | None = None
        self._step = step
        self._name = name
        self._lock = threading.Lock()
        self._is_queued = self._is_running = self._is_awake = self._is_over = False
        self._sleeps = 0
        self._ended = threading.Event()
        _count_by(1)

    @property
    def is_alive(self) -> bool:
        """Whether the last step has not ended."""
        return not self._is_over

    def join(self, timeout: float) -> None:
        """Wait for the end of the last step. The last stepper of all ends the threads too."""
        if self._ended.wait(timeout):
            _rest()

    def wake(self) -> None:
        """Run the next step now, or after the present step."""
        with self._lock:
            if self._is_over:
                return
            if self._is_queued or self._is_running:
                self._is_awake = True
                return
            self._is_queued = True
        (_long if self.is_long else _short).submit(self._run)

    def _run(self) -> None:
        with self._lock:
            self._is_queued, self._is_running, self._is_awake = False, True, False
        thread = self.thread = threading.current_thread()
        pause: float | None = None
        shared, thread.name, self.is_long = thread.name, self._name, False
        try:
            pause = self._step()
        finally:
            self.thread, thread.name = None, shared
            with self._lock:
                self._is_running, self._is_over = False, pause is None
                self._sleeps += 1
                sleep, again = self._sleeps, self._is_awake or pause == 0.0
            if pause is None:
                _count_by(-1)
                self._ended.set()
            elif again:
                self.wake()
            else:
                _timer.call(pause, lambda: self._woken(sleep))

    def _woken(self, sleep: int) -> None:
        if sleep == self._sleeps:  # else it was woken before
            self.wake()
