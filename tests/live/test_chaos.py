"""Random faults on a server under load: nothing is lost, nothing comes twice after its ack, and damage is always told."""

from __future__ import annotations

import random

import pytest

from canal.testing.servers import ThrowawayServer
from tests.programs.chaos import METADATA, OPTIONS, torment
from tests.support.fix_servers import Line


@pytest.mark.slow
@pytest.mark.needs("checksum")  # damage that no checksum tells of is not told
@pytest.mark.timeout(3600)
def test_random_faults_lose_repeat_and_change_nothing(
    line: Line, own_server: ThrowawayServer, full_size: bool, thorough: bool
) -> None:
    """T8, T16"""
    own_server.restart(*OPTIONS, *METADATA * line.can("full_metadata"))
    seed = random.randrange(1 << 32) if full_size else 1
    print(torment(own_server, seed, 60.0, 500) if full_size else torment(own_server, seed, 0.4 if thorough else 0.15))
