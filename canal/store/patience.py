"""The policy for a client that holds up the others: timeouts and reports."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Patience:
    """Policy: how long a store waits for the slowest client."""

    seconds: float
    """For room, until who holds the store back is reported."""
    evict: bool = False
    """Then, or beyond one of the limits, keep nothing for that client any more, if there are others that it holds back."""
    entries: int | None = None
    """Kept for the client alone, at most."""
    bytes: int | None = None


@attrs.frozen
class HeldBack:
    """Report: the store waits for some clients, or has stopped waiting."""

    clients: tuple[int, ...] = ()
    """Those that have acked least; none: it is over."""
    entries: int = 0
    """Kept for them."""
    bytes: int = 0
    tail: int = 0
    """Sequence behind the last entry."""
    seconds: float = 0.0
    """For which the writer has waited."""
    is_evicted: bool = False
