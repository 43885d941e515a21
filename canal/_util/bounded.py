"""What is remembered by name of late: of tables, which come and go without end, only so many.

Never holds what must not be forgotten: a name that comes again after so many others is a new one.
"""

from __future__ import annotations

from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

#: Names that one :class:`Recent` holds: more than the tables of most servers, in a few MB.
MOST: Final = 10_000


class Recent(dict[K, V]):
    """A dict of the keys that were set last. One more than ``MOST`` takes the place of the one that was set longest ago."""

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self and len(self) >= MOST:
            del self[next(iter(self))]
        super().__setitem__(key, value)


class Told(Recent[K, None]):
    """Names of which something was reported, which is done once for each."""

    def is_first(self, key: K) -> bool:
        """Whether nothing was reported of it; from now on something was."""
        is_first = key not in self
        self.pop(key, None)  # what comes often is not forgotten
        self[key] = None
        return is_first
