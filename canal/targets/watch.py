"""Ends a connection whose server does not answer, so that the thread which waits for the answer gets an error.

Never looks at what is sent. A client library waits without an end where a firewall drops packets, or a server hangs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

#: Seconds between two looks at the clock.
_POLL: Final = 0.25
#: Seconds that a statement may take when the pipe is to end.
_GRACE: Final = 5.0


class ConnectionWatch:
    """The watch over one connection. ``with watch:`` is around each call that waits for the server.

    Args:
        fileno: returns the connection's socket, or raises if there is none now.
        limit: seconds that a call may take.
        stopping: returns the event that is set when the pipe is to end: a call may take 5 seconds then.
    """

    def __init__(self, fileno: Callable[[], int], limit: float, stopping: Callable[[], threading.Event]) -> None:
        self.limit = limit
        self.is_cut = False
        self._fileno, self._stopping = fileno, stopping
        self._since: float | None = None
        self._patience = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canal-target-watch", daemon=True)

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Run the watch on a thread."""
        self._thread.start()
        try:
            yield self
        finally:
            self._closed.set()
            self._thread.join()

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Let calls take any time: those that alter or empty a large table."""
        self._patience += 1
        try:
            yield
        finally:
            self._patience -= 1

    def renew(self) -> None:
        """Begin to count anew: the server has taken a part of what it is sent."""
        with self._lock:
            if self._since is not None:
                self._since = time.monotonic()

    def __enter__(self) -> Self:
        with self._lock:
            self._since = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:  # the socket is open as long as the watch may cut it
            self._since = None

    def _run(self) -> None:
        while not self._closed.wait(_POLL):
            with self._lock:
                if self._since is not None and not self._patience and time.monotonic() - self._since > self._allowed():
                    self._since = None
                    self._cut()

    def _allowed(self) -> float:
        return min(self.limit, _GRACE) if self._stopping().is_set() else self.limit

    def _cut(self) -> None:
        with contextlib.suppress(Exception), socket.socket(fileno=os.dup(self._fileno())) as own:  # it may be closed
            self.is_cut = True
            own.shutdown(socket.SHUT_RDWR)
