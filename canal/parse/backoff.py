"""Backoff between reconnects: the wait doubles each time and restarts after a connection that worked.

Never sleeps: returns the seconds to wait.
"""

from __future__ import annotations

from typing import Final

#: More dumps in a row that the source ended early are not a coincidence.
THROWN_OUT: Final = 5


class Backoff:
    """The waits of one parser.

    Two readers with the same server id disconnect each other. Each connection works for a moment, so a wait that restarts every
    time would never end the conflict. ``is_thrown_out`` detects this, and the wait grows until a dump lasts.

    Args:
        first, most: seconds of the first and of the longest wait.
    """

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most = first, most
        self._next = first
        self.ended_soon = 0

    @property
    def is_thrown_out(self) -> bool:
        """Whether the source has ended several dumps in a row soon after they began."""
        return self.ended_soon >= THROWN_OUT

    def lost(self, *, has_delivered: bool, seconds: float, by_source: bool) -> float:
        """Record a lost or failed connection and return the seconds to wait.

        Args:
            has_delivered: the connection delivered entries. Some servers end a dump after the first events.
            seconds: duration of the dump; 0 if none began, as a failed attempt may also take long. The competing reader waits at
                most ``most`` seconds plus jitter.
            by_source: the source ended the connection.
        """
        self.ended_soon = self.ended_soon + 1 if by_source and seconds < 2 * self._most else 0
        if not self.is_thrown_out and (has_delivered or seconds > self._most):
            self._next = self._first
        wait = self._next
        self._next = min(2 * wait, self._most)
        return wait
