"""Ends a connection whose server does not answer, so that the thread which waits for the answer gets an error.

Never looks at what is sent. A client library waits without an end where a firewall drops packets, or a server hangs.
"""

from __future__ import annotations

import contextlib
import math
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


def keep_alive(own: socket.socket) -> None:
    """Let the kernel probe an idle connection, so that a lost peer is noticed within about a minute."""
    own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if own.family != getattr(socket, "AF_UNIX", None) and (option := getattr(socket, name, None)) is not None:
            own.setsockopt(socket.IPPROTO_TCP, option, value)


class ConnectionWatch:
    """The watch over one connection. ``with watch:`` is around each call that waits for the server.

    Args:
        fileno: returns the connection's socket, or raises if there is none now.
        limit: seconds that a call may take.
        stopping: returns the event that is set when the pipe is to end. Then a call has 5 seconds, a patient call
            ``limit`` seconds.
    """

    def __init__(self, fileno: Callable[[], int], limit: float, stopping: Callable[[], threading.Event]) -> None:
        self.limit = limit
        self.is_cut = False
        self._fileno, self._stopping = fileno, stopping
        self._since: float | None = None
        self._ends: float | None = None  # when it was first seen that the pipe is to end
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
        """Let calls take any time until the pipe is to end: those that alter or empty a large table."""
        self._patience += 1
        try:
            yield
        finally:
            self._patience -= 1

    def renew(self) -> None:
        """Restart the clock: the server has received a part of the data."""
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
                if self._since is not None and time.monotonic() > self._deadline(self._since):
                    self._since = None
                    self._cut()

    def _deadline(self, since: float) -> float:
        if not self._stopping().is_set():
            return math.inf if self._patience else since + self.limit
        self._ends = self._ends or time.monotonic()
        return max(since, self._ends) + self.limit if self._patience else since + min(self.limit, _GRACE)

    def _cut(self) -> None:
        with contextlib.suppress(Exception), socket.socket(fileno=os.dup(self._fileno())) as own:  # it may be closed
            self.is_cut = True
            own.shutdown(socket.SHUT_RDWR)
