"""The clock that leases and waits are counted on."""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds on a clock that also runs while the machine sleeps, where there is one."""
    return time.clock_gettime(_CLOCK)
