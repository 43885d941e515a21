"""How long to wait before the next connection: twice as long each time, and anew from the start once one worked.

Never sleeps: it takes how a connection ended and gives the seconds.
"""

from __future__ import annotations

from typing import Final

#: So many dumps in a row that the source ended soon after they began are no accident.
THROWN_OUT: Final = 5


class Backoff:
    """The waits of one parser.

    Two readers with one server id throw each other out: each of their connections works for a moment, so that waits that
    begin anew would never end it. ``is_thrown_out`` tells of it, and waits grow then until a dump lasts.

    Args:
        first, most: seconds of the first wait, and of the longest.
    """

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most = first, most
        self._next = first
        self.ended_soon = 0

    @property
    def is_thrown_out(self) -> bool:
        """Whether the source has ended one dump after the other soon after it began."""
        return self.ended_soon >= THROWN_OUT

    def lost(self, *, gave_something: bool, seconds: float, by_source: bool) -> float:
        """A connection was lost, or none was made: seconds to wait.

        Args:
            gave_something: it delivered, so it did work; some servers end a dump behind its first events.
            seconds: how long its dump lasted, 0 where none began: an attempt may take long and fail all the same. The other of
                two readers waits no longer than ``most``, and a little by chance.
            by_source: the source ended it.
        """
        self.ended_soon = self.ended_soon + 1 if by_source and seconds < 2 * self._most else 0
        if not self.is_thrown_out and (gave_something or seconds > self._most):
            self._next = self._first
        wait = self._next
        self._next = min(2 * wait, self._most)
        return wait
