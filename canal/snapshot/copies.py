"""Tables that are being copied in this process, for who shows them. Never reads a row."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import attrs


@attrs.frozen
class CopyStatus:
    """How far the copy of a table is."""

    destination: str
    table: str
    rows: int
    """That are in the target."""
    of: int
    """As the source estimated the table's rows when the copy began."""
    begun_at: float
    """In seconds since 1970."""


_lock = threading.Lock()
_running: dict[object, CopyStatus] = {}


@contextlib.contextmanager
def copying(destination: str, table: str, of: int) -> Iterator[Callable[[int], None]]:
    """A copy runs for as long as this context does; what it gives is told how many rows are done."""
    key = object()

    def tell(rows: int) -> None:
        with _lock:
            _running[key] = attrs.evolve(begun, rows=rows)

    begun = CopyStatus(destination, table, 0, of, time.time())
    tell(0)
    try:
        yield tell
    finally:
        with _lock:
            del _running[key]


def copies() -> list[CopyStatus]:
    """Those that run, in the order in which they began."""
    with _lock:
        return list(_running.values())
