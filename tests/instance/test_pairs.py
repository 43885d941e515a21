"""Every pair of features, on fake binlogs: what comes is what the journal says. The model is tests/programs/pairs.py."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.programs.pairs import PAIRS, draw, play, shrink

#: Histories play side by side in as many tests.
PARTS = 4


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL + 1, "canal"):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_pairs_of_features_deliver_what_the_journal_says(part: int, full_size: bool) -> None:
    count = (20_000 if full_size else 200) // PARTS
    first = part * count + 1
    for seed in range(first, first + count):
        history = draw(seed)
        if fault := play(history):
            shorter, same = shrink(history, fault)
            pytest.fail(f"{same}\n{shorter}\n(python -m tests.programs.pairs --seed {seed} --histories 1)")


def test_two_hundred_histories_have_every_pair() -> None:
    drawn = [set(draw(seed).setup.features) for seed in range(1, 201)]

    assert all(any(set(pair) <= features for features in drawn) for pair in PAIRS)
