"""Bounded memories by name. Tables are created and dropped without end, so only recent names are kept.

An evicted name counts as new when it returns, so store only values that may be lost.
"""

from __future__ import annotations

from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

#: Capacity of a :class:`Recent`: more tables than most servers have, in a few MB.
MOST: Final = 10_000


class Recent(dict[K, V]):
    """A dict with at most ``MOST`` keys. It evicts the key that was set longest ago."""

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self and len(self) >= MOST:
            del self[next(iter(self))]
        super().__setitem__(key, value)


class Told(Recent[K, None]):
    """Names that were already reported."""

    def is_first(self, key: K) -> bool:
        """Return whether the name is new, and remember it."""
        is_first = key not in self
        self.pop(key, None)  # move frequent names to the end
        self[key] = None
        return is_first
