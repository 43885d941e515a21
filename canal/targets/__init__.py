"""Targets: where a pipe writes changes, each with its progress in the commit of what it writes.

    canal.pipe(instance, canal.targets.SQLiteTarget("copy.db")).run()

``protocol.py`` says what a target promises and must have; ``work.py`` has bases for one of your own. Each target imports its
library when it is used. ``DeltaTarget``, ``IcebergTarget``, ``MySQLTarget`` and ``ParquetTarget`` serve ``apply_changes`` too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal._util.lazy import lazy_names
from canal.targets.protocol import Guarantee, Progress, Readable, Scope, TableProgress, Target, Work
from canal.targets.work import LogWork, StateWork, conflict

if TYPE_CHECKING:
    from canal.targets.canal_mq import CanalMQ
    from canal.targets.duckdb import DuckDBTarget
    from canal.targets.http import HTTPTarget
    from canal.targets.json_lines import JSONLinesTarget
    from canal.targets.kafka import KafkaTarget
    from canal.targets.lake import DeltaTarget, IcebergTarget, ParquetTarget
    from canal.targets.mongodb import MongoDBTarget
    from canal.targets.mysql import MySQLTarget
    from canal.targets.opensearch import OpenSearchTarget
    from canal.targets.postgresql import PostgreSQLTarget
    from canal.targets.rabbitmq import RabbitMQTarget
    from canal.targets.redis import RedisTarget
    from canal.targets.rocketmq import RocketMQTarget
    from canal.targets.sqlite import SQLiteTarget
    from canal.targets.tables.upkeep import Upkeep

_HOMES: Final = {
    "CanalMQ": "canal_mq",
    "DeltaTarget": "lake",
    "DuckDBTarget": "duckdb",
    "HTTPTarget": "http",
    "IcebergTarget": "lake",
    "JSONLinesTarget": "json_lines",
    "KafkaTarget": "kafka",
    "MongoDBTarget": "mongodb",
    "MySQLTarget": "mysql",
    "OpenSearchTarget": "opensearch",
    "ParquetTarget": "lake",
    "PostgreSQLTarget": "postgresql",
    "RabbitMQTarget": "rabbitmq",
    "RedisTarget": "redis",
    "RocketMQTarget": "rocketmq",
    "SQLiteTarget": "sqlite",
    "Upkeep": "tables.upkeep",
}

__all__ = [
    "CanalMQ",
    "DeltaTarget",
    "DuckDBTarget",
    "Guarantee",
    "HTTPTarget",
    "IcebergTarget",
    "JSONLinesTarget",
    "KafkaTarget",
    "LogWork",
    "MongoDBTarget",
    "MySQLTarget",
    "OpenSearchTarget",
    "ParquetTarget",
    "PostgreSQLTarget",
    "Progress",
    "RabbitMQTarget",
    "Readable",
    "RedisTarget",
    "RocketMQTarget",
    "SQLiteTarget",
    "Scope",
    "StateWork",
    "TableProgress",
    "Target",
    "Upkeep",
    "Work",
    "conflict",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES, {"lake": "lake", "postgresql": "postgresql"})
