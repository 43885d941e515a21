"""Every target through the public suite, against its real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from canal.testing import target_suite
from canal.testing.servers import ThrowawayServer
from tests.support import harnesses
from tests.support.replica_set import ReplicaSet
from tests.support.target_servers import (
    FerretDBServer,
    KafkaServer,
    OpenSearchServer,
    PostgreSQLServer,
    RabbitMQServer,
    RedisCluster,
    RedisServer,
    RocketMQServer,
)

# PyMySQL's results raise in their finalizer where a kill hits their __init__.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
every_case = pytest.mark.parametrize("case", target_suite.CASES)


def nightly(*values: str) -> Iterator[Any]:
    return (pytest.param(value, marks=pytest.mark.nightly) for value in values)


@every_case
def test_sqlite(case: str, folder: Path) -> None:
    target_suite.run(case, harnesses.sqlite(folder / "copy.db"))


@every_case
def test_duckdb(case: str, folder: Path) -> None:
    target_suite.run(case, harnesses.duckdb(folder / "copy.duckdb"))


@every_case
def test_delta(case: str, folder: Path) -> None:
    target_suite.run(case, harnesses.delta(folder))


@every_case
def test_iceberg(case: str, folder: Path) -> None:
    target_suite.run(case, harnesses.iceberg(folder))


@every_case
def test_parquet(case: str, folder: Path) -> None:
    target_suite.run(case, harnesses.parquet(folder))


@every_case
def test_opensearch(case: str, opensearch_server: OpenSearchServer) -> None:
    target_suite.run(case, harnesses.opensearch(opensearch_server.url))


@every_case
@pytest.mark.usefixtures("mongo_clients")
def test_mongodb(case: str, ferretdb_server: FerretDBServer) -> None:
    target_suite.run(case, harnesses.mongodb(ferretdb_server.url))


@every_case
@pytest.mark.usefixtures("mongo_clients")
def test_transactions_of_mongodb(case: str, replica_set: ReplicaSet) -> None:
    replica_set.is_patient = False  # what a kill leaves open is as if it had run out
    target_suite.run(case, harnesses.mongodb(replica_set.url, transactions=True))


@every_case
def test_json_lines(case: str, folder: Path) -> None:
    target_suite.run(case, harnesses.json_lines(folder / "changes.jsonl"))


@every_case
def test_json_lines_into_a_file_object(case: str, folder: Path) -> None:
    with open(folder / "changes.jsonl", "ab", buffering=0) as file:
        target_suite.run(case, harnesses.json_lines(folder / "changes.jsonl", file))


@every_case
def test_http(case: str, receiver: harnesses.Receiver) -> None:
    target_suite.run(case, harnesses.http(receiver, batch=5))


@pytest.mark.parametrize("case", ["follows", "limits", "order"])
def test_http_with_a_request_for_each_change(case: str, receiver: harnesses.Receiver) -> None:
    target_suite.run(case, harnesses.http(receiver))


@every_case
def test_mariadb(case: str, mariadb_server: ThrowawayServer) -> None:
    target_suite.run(case, harnesses.mysql(mariadb_server))


@pytest.mark.parametrize(
    "case", ["follows", "killed_within_commit", "late_writer", "unique_values", "limits", "odd_text", "zero_dates", "scan"]
)
def test_mysql(case: str, mysql_server: ThrowawayServer) -> None:
    target_suite.run(case, harnesses.mysql(mysql_server))


@every_case
def test_postgresql(case: str, postgresql_server: PostgreSQLServer) -> None:
    target_suite.run(case, harnesses.postgresql(postgresql_server.conninfo))


@every_case
@pytest.mark.parametrize("structure", ["hash", "json", "set", "sortedset", "stream", "list"])
def test_redis(case: str, structure: str, redis_server: RedisServer) -> None:
    make = harnesses.redis_log if structure in ("stream", "list") else harnesses.redis_rows
    target_suite.run(case, make(redis_server.url, structure))


@every_case
@pytest.mark.parametrize("structure", ["hash", "stream", *nightly("json", "set", "sortedset", "list")])
def test_redis_cluster(case: str, structure: str, redis_cluster: RedisCluster) -> None:
    make = harnesses.redis_log if structure in ("stream", "list") else harnesses.redis_rows
    target_suite.run(case, make(redis_cluster.url, structure, cluster=True))


@every_case
def test_kafka(case: str, kafka_server: KafkaServer) -> None:
    target_suite.run(case, harnesses.kafka(kafka_server.servers))


@every_case
def test_rabbitmq(case: str, rabbitmq_server: RabbitMQServer) -> None:
    target_suite.run(case, harnesses.rabbitmq(rabbitmq_server.url))


@every_case
def test_rocketmq(case: str, rocketmq_server: RocketMQServer) -> None:
    target_suite.run(case, harnesses.rocketmq(rocketmq_server.name_server))
