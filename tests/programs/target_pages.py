"""Makes the table of docs/targets.md, and the promise on each page of docs/targets, of what the targets declare.

    python -m tests.programs.target_pages

What they declare is what the suite (``canal/testing/target_suite.py``) holds them to: the table names the test that puts each one
through all of its cases.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from canal import targets
from canal.targets import Target

ROOT: Final = Path(__file__).resolve().parents[2]
_MADE: Final = re.compile(r"(<!-- (?:table|promise).*?-->\n).*?(<!-- end -->)", re.DOTALL)


@attrs.frozen
class Shown:
    """A row of the table.

    Attributes:
        kind: of the target, where there are several.
        extra: that it needs.
        target: one of it.
        test: in tests/targets/test_targets.py: all cases of the suite.
        against: what that test runs it with.
    """

    kind: str
    extra: str
    target: Target
    test: str
    against: str

    @property
    def name(self) -> str:
        return type(self.target).__name__

    @property
    def page(self) -> str:
        return f"targets/{self.name.removesuffix('Target').lower()}.md"

    @property
    def promise(self) -> tuple[str, str, str]:
        scope = "all tables of a transaction" if self.target.scope == "all" else "one table"
        return self.target.guarantee.promise, scope, "changes" if self.target.is_log else "rows"


SHOWN: Final = [
    Shown("", "lake", targets.DeltaTarget("lake"), "test_delta", "deltalake"),
    Shown("", "duckdb", targets.DuckDBTarget("copy.duckdb"), "test_duckdb", "DuckDB"),
    Shown("", "http", targets.HTTPTarget("https://localhost"), "test_http", "a server of Python's"),
    Shown("", "lake", targets.IcebergTarget(), "test_iceberg", "pyiceberg, a catalog in SQLite"),
    Shown("file", "", targets.JSONLinesTarget("changes.jsonl"), "test_json_lines", "a file"),
    Shown("pipe", "", targets.JSONLinesTarget(io.BytesIO()), "test_json_lines_into_a_file_object", "a file object"),
    Shown("", "kafka", targets.KafkaTarget("localhost"), "test_kafka", "Kafka 4.4"),
    Shown("", "mongodb", targets.MongoDBTarget("mongodb://localhost"), "test_mongodb", "FerretDB 1.24"),
    Shown(
        "transactions",
        "mongodb",
        targets.MongoDBTarget("mongodb://localhost", transactions=True),
        "test_transactions_of_mongodb",
        "a stand-in for a replica set, on FerretDB",
    ),
    Shown("", "", targets.MySQLTarget({}), "test_mariadb", "MariaDB 10.11, MySQL 9.7"),
    Shown("", "opensearch", targets.OpenSearchTarget("https://localhost:9200"), "test_opensearch", "OpenSearch 2.19"),
    Shown("", "arrow", targets.ParquetTarget("changes"), "test_parquet", "files"),
    Shown("", "postgresql", targets.PostgreSQLTarget(""), "test_postgresql", "PostgreSQL 15"),
    Shown("", "rabbitmq", targets.RabbitMQTarget("amqp://localhost"), "test_rabbitmq", "RabbitMQ 3.10"),
    Shown("one server, rows", "redis", targets.RedisTarget("redis://localhost"), "test_redis", "Redis 7"),
    Shown("one server, changes", "redis", targets.RedisTarget("redis://localhost", structure="stream"), "test_redis", "Redis 7"),
    Shown(
        "cluster: hash, json",
        "redis",
        targets.RedisTarget("redis://localhost", cluster=True),
        "test_redis_cluster",
        "a cluster of three Redis 7",
    ),
    Shown(
        "cluster: set, sortedset",
        "redis",
        targets.RedisTarget("redis://localhost", "set", cluster=True),
        "test_redis_cluster",
        "a cluster of three Redis 7",
    ),
    Shown(
        "cluster: stream, list",
        "redis",
        targets.RedisTarget("redis://localhost", "list", cluster=True),
        "test_redis_cluster",
        "a cluster of three Redis 7",
    ),
    Shown("", "", targets.RocketMQTarget("localhost:9876"), "test_rocketmq", "RocketMQ 5.2"),
    Shown("", "", targets.SQLiteTarget("copy.db"), "test_sqlite", "SQLite"),
]


def table() -> str:
    rows = ["| target | needs | promise | one commit has | keeps | the suite ran it with |", "|---|---|---|---|---|---|"]
    for one in SHOWN:
        name = f"[{one.name}]({one.page})" + (f" ({one.kind})" if one.kind else "")
        needs = f"`canal-cdc[{one.extra}]`" if one.extra else "–"
        rows.append(f"| {name} | {needs} | {' | '.join(one.promise)} | {one.against} |")
    return "\n".join(rows)


def promises(page: str) -> str:
    """What the targets of a page promise, one a line."""
    lines = []
    for one in SHOWN:
        if one.page == page:
            promise, scope, keeps = one.promise
            kind = f" ({one.kind})" if one.kind else ""
            lines.append(f"* **{promise[0].upper()}{promise[1:]}**{kind}; a commit has {scope}; keeps {keeps}.")
    return "\n".join(lines)


def pages() -> Iterator[tuple[Path, str]]:
    """The pages, and what they should say."""
    for page in ("targets.md", *dict.fromkeys(one.page for one in SHOWN)):
        path = ROOT / "docs" / page
        made = table() if page == "targets.md" else promises(page)
        yield path, _MADE.sub(lambda found, made=made: f"{found[1]}{made}\n{found[2]}", path.read_text("utf-8"))


if __name__ == "__main__":
    for path, text in pages():
        path.write_text(text, "utf-8")
