"""Every pair of features over real servers, and with ``ha`` over a ZooKeeper. The model is tests/programs/pairs.py."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import canal
from canal.testing.servers import ThrowawayServer
from canal.testing.zookeeper import ZooKeeperServer
from tests.programs.pairs import PAIRS, Stage, draw, play


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL + 1, "canal"):
        yield


def run(stage: Stage, is_full: bool) -> None:
    """Play ten histories; each pair four times at full size."""
    for seed in range(1, 4 * len(PAIRS)) if is_full else range(1, 4 * len(PAIRS), 30):
        history = draw(seed, stage)
        fault = play(history, stage=stage)
        assert not fault, f"seed {seed}: {fault}\n{history}"


@pytest.mark.slow
@pytest.mark.needs("row_image")
def test_pairs_of_features_deliver_what_the_journal_of_a_server_says(server: ThrowawayServer, full_size: bool) -> None:
    run(Stage((server,)), full_size)


@pytest.mark.slow
def test_pairs_of_features_deliver_what_the_journal_says_through_turns(
    zookeeper_server: ZooKeeperServer, zookeeper_root: str, full_size: bool
) -> None:
    run(
        Stage(ha=canal.ZooKeeper(hosts=zookeeper_server.hosts, root=zookeeper_root, session_timeout=30.0, takeover_delay=0.0)),
        full_size,
    )
