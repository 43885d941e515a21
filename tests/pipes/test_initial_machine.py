"""Rows that are read beside a stream, in random interleavings: at the end the target has what the source has."""

from __future__ import annotations

from collections import Counter

import pytest

from canal.pipes import initial
from tests.support.loads import World

SEEDS = range(100)


@pytest.mark.parametrize("has_key", [True, False])
def test_rows_and_changes_come_to_be_the_table_in_any_order(has_key: bool) -> None:
    for seed in SEEDS:
        world = World(seed, has_key=has_key)
        world.play()
        assert +world.target == world.history.states[-1], seed


def test_a_window_that_is_full_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial, "_MOST_TOUCHED", 2)
    for seed in SEEDS:
        world = World(seed, has_key=True)
        world.play()
        assert +world.target == world.history.states[-1], seed


def test_the_machine_sees_what_is_left() -> None:
    world = World(1, has_key=True)
    assert world.left is not None
    world.play()
    assert world.left is None
    assert isinstance(world.target, Counter)
