"""The types of events."""

from __future__ import annotations

from collections.abc import Sequence

ROWS_EVENTS = (23, 24, 25, 30, 31, 32)


def kinds(events: Sequence[bytes]) -> list[int]:
    return [event[4] for event in events]
