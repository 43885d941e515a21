"""Whether deliveries and acks may go through in this process.

Never asks ZooKeeper: it is opened, shut and renewed by who does, and counts on this process's own clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from canal.ha import clock

#: The part of the session's time-out for which a contact lets deliveries through. A member of ZooKeeper that dies may take
#: up to a tick of what it has heard with it.
_LEASE: Final = 2 / 3


class Gate:
    """Open while this process is known to own the destination, and for no longer than its lease.

    A look at the running node proves who owns it only if contact was not lost meanwhile: ``look`` is called before it,
    ``renew`` with what that gave behind it. ``open`` opens only where contact was not lost since the look that renewed.
    """

    def __init__(self) -> None:
        #: Held by who changes what lets through, and notified of it.
        self.changed = threading.Condition()
        self._open = False
        self._doubts = 0  # how often contact was lost
        self._certain = 0  # how often it had been at the look that renewed
        self._lease_until = 0.0

    @property
    def may_pass(self) -> bool:
        return self._open and clock.now() < self._lease_until

    def wait(self, timeout: float | None, is_over: Callable[[], bool]) -> bool:
        """Wait until ``may_pass``; False when so many seconds have gone by, or ``is_over``."""
        deadline = None if timeout is None else clock.now() + timeout
        with self.changed:
            while not self.may_pass:
                left = None if deadline is None else deadline - clock.now()
                if (left is not None and left <= 0) or is_over():
                    return False
                # A lease that runs on again notifies nobody.
                self.changed.wait(0.1 if left is None else min(left, 0.1))
        return True

    def look(self) -> tuple[float, int]:
        """What ``renew`` is to be given for a look that begins now."""
        return clock.now(), self._doubts

    def renew(self, look: tuple[float, int], timeout: float) -> None:
        """The session owned the node after the look began, so it lives for its time-out from then on at least."""
        asked, self._certain = look
        self._lease_until = asked + timeout * _LEASE

    def open(self) -> None:
        with self.changed:
            # Else contact was lost since the last look, and the event that says so is on its way.
            self._open = self._doubts == self._certain
            self.changed.notify_all()

    def shut(self) -> None:
        with self.changed:
            self._open = False
            self.changed.notify_all()

    def lose_contact(self) -> None:
        """Shut it; a look that is under way proves nothing."""
        self._doubts += 1
        self.shut()
