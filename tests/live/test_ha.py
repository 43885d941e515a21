"""Three processes embed one destination; owner, ensemble and network fail at random, and the journals are judged."""

from __future__ import annotations

import random

import pytest

from canal.testing.servers import ThrowawayServer
from canal.testing.zookeeper import ZooKeeperEnsemble
from tests.programs.ha_chaos import torment

#: What shows each of the deliberate faults that tests/programs/mutants.py names this test for.
_FIRST = (
    "owner stopped between two steps",
    "owner frozen, longer than its session",
    "owner stopped between two steps",
    "next owner stopped between two steps of its claim",
    "owner cut off from ZooKeeper only, longer",
    "owner stopped between two steps",
    "owner killed",
    "owner stopped between two steps",
)


@pytest.mark.slow
@pytest.mark.lines("mariadb")
@pytest.mark.timeout(3600)
def test_random_faults_lose_nothing_and_no_range_is_acked_twice(
    own_server: ThrowawayServer, own_ensemble: ZooKeeperEnsemble, full_size: bool
) -> None:
    """T91"""
    seed = random.randrange(1 << 32) if full_size else 1
    print(torment(own_server, own_ensemble, seed, 100, 3000.0 if full_size else 40.0, kinds=_FIRST))
