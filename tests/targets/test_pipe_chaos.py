"""Pipes into four targets at once, while the process and the servers are killed."""

from __future__ import annotations

import random

import pytest

from canal.testing.servers import MariaDBServer, MySQLServer
from tests.programs.pipe_chaos import OPTIONS, run
from tests.support.target_servers import KafkaServer, OpenSearchServer, PostgreSQLServer, RedisServer


@pytest.mark.slow
@pytest.mark.mariadb
@pytest.mark.mysql
@pytest.mark.timeout(3600)
def test_four_targets_are_equal_whatever_is_killed(
    kafka_server: KafkaServer,
    redis_server: RedisServer,
    postgresql_server: PostgreSQLServer,
    opensearch_server: OpenSearchServer,
    full_size: bool,
) -> None:
    servers = {"kafka": kafka_server, "redis": redis_server, "postgresql": postgresql_server, "opensearch": opensearch_server}
    kills = {MariaDBServer: ("process", "postgresql", "kafka"), MySQLServer: ("source", "redis", "opensearch")}
    for kind, short in kills.items():
        with kind(*OPTIONS) as source:
            if full_size:
                print(run(source, servers, random.randrange(1 << 32), 3600.0, 600))
            else:
                print(run(source, servers, 1, 12.0, 3, short))
