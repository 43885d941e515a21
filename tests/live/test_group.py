"""Three sources in one store, of which one idles, one stops and one fails over, while the process is killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from canal.testing.servers import MariaDBServer, ThrowawayServer
from tests.programs.group_chaos import run


@pytest.fixture
def pair(mariadb_server: ThrowawayServer) -> Iterator[tuple[ThrowawayServer, ThrowawayServer]]:
    with MariaDBServer(server_id=11) as first, MariaDBServer(server_id=12) as second:
        second.replicate(first)
        yield first, second


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_sources_are_merged_exactly_while_one_idles_one_stops_and_one_fails_over(
    mysql_server: ThrowawayServer,
    mariadb_server: ThrowawayServer,
    pair: tuple[ThrowawayServer, ThrowawayServer],
    tmp_path: Path,
    full_size: bool,
) -> None:
    servers = {"idle": mysql_server, "stops": mariadb_server, "moves": pair[0]}
    seed, seconds, kills = (random.randrange(1 << 32), 600.0, 20) if full_size else (20, 0.0, 3)

    found = run(servers, pair[1], tmp_path, seed, seconds, kills)

    print(found)
    assert found["kills"] == kills
    assert found["in order"] > 0
