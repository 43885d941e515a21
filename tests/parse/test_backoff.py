"""Waits between connections."""

from __future__ import annotations

from canal.parse.backoff import THROWN_OUT, Backoff


def waits(count: int, *, gave: bool = False, seconds: float = 0.1, by_source: bool = False) -> list[float]:
    backoff = Backoff(0.1, 10.0)
    return [backoff.lost(has_delivered=gave, seconds=seconds, by_source=by_source) for _ in range(count)]


def test_backoff_doubles_up_to_maximum() -> None:
    assert waits(9) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_backoff_restarts_after_working_connection() -> None:
    assert waits(8, gave=True) == [0.1] * 8
    assert waits(8, seconds=10.1) == [0.1] * 8
    assert waits(8, seconds=20.1, by_source=True) == [0.1] * 8


def test_backoff_grows_if_source_ends_every_dump_early() -> None:
    """T24"""
    found = waits(THROWN_OUT + 7, gave=True, by_source=True)

    assert found[: THROWN_OUT - 1] == [0.1] * (THROWN_OUT - 1)
    assert found[THROWN_OUT - 1 :] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_backoff_restarts_after_lasting_dump() -> None:
    backoff = Backoff(0.1, 10.0)
    for _ in range(THROWN_OUT):
        backoff.lost(has_delivered=True, seconds=9.0, by_source=True)
    assert backoff.is_thrown_out

    assert backoff.lost(has_delivered=True, seconds=21.0, by_source=True) == 0.1
    assert not backoff.is_thrown_out
