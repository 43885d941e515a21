"""Waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(found: Callable[[], Any], timeout: float = 60.0) -> Any:
    """What ``found`` gives once that is true; an assertion fails where it is not within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not (what := found()):
        assert time.monotonic() < deadline, f"waited {timeout} s in vain"
        time.sleep(0.01)
    return what
