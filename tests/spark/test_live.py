"""The source in Spark, against real servers: what arrives in a sink is what the server committed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from canal.testing.servers import ThrowawayServer

_names = itertools.count(1)


class Stream:
    """A table on a server and queries on it."""

    def __init__(self, spark: Any, server: ThrowawayServer, directory: Path, table: str) -> None:
        self.spark, self.server, self.directory, self.table = spark, server, directory, table
        self.queries: list[Any] = []

    def options(self, **more: Any) -> dict[str, str]:
        server = self.server
        given = {"host": server.host, "port": server.port, "user": server.user, "password": server.password, "table": self.table}
        return {name: str(value) for name, value in {**given, **more}.items()}

    def frame(self, **more: Any) -> Any:
        return self.spark.readStream.format("canal").options(**self.options(**more)).load()

    def start(self, frame: Any, **trigger: Any) -> Any:
        """Into parquet, with a checkpoint: exactly once by Spark's own file sink."""
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self.directory / "checkpoint"))
        query = (writer.trigger(**trigger) if trigger else writer).start(str(self.directory / "out"))
        self.queries.append(query)
        return query

    def rows(self) -> list[Any]:
        if not list((self.directory / "out").glob("*.parquet")):
            return []
        found: list[Any] = self.spark.read.parquet(str(self.directory / "out")).orderBy("_txn", "_ord").collect()
        return found


@pytest.fixture
def stream(spark: Any, mariadb_server: ThrowawayServer, tmp_path: Path) -> Iterator[Stream]:
    name = f"spark_{next(_names)}"
    mariadb_server.query(f"CREATE DATABASE {name}")
    mariadb_server.query(f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, price DECIMAL(10,2), note VARCHAR(40))")
    made = Stream(spark, mariadb_server, tmp_path, f"{name}.orders")
    yield made
    for query in made.queries:
        query.stop()
    mariadb_server.query(f"DROP DATABASE {name}")


def test_a_stream_carries_inserts_updates_and_deletes(stream: Stream, wait: Callable[..., None]) -> None:
    query = stream.start(stream.frame())
    wait(lambda: query.lastProgress is not None, query)
    table = stream.table
    stream.server.query(f"INSERT INTO {table} VALUES (1, 9.99, 'é'), (2, NULL, 'b')")
    stream.server.query(f"UPDATE {table} SET price = 5.00 WHERE id = 1")
    stream.server.query(f"DELETE FROM {table} WHERE id = 2")
    wait(lambda: len(stream.rows()) >= 4, query)

    found = [(row._op, row.id, row.price and str(row.price), row.note, row._before and str(row._before.price))
             for row in stream.rows()]  # fmt: skip
    assert found == [
        ("I", 1, "9.99", "é", None), ("I", 2, None, "b", None), ("U", 1, "5.00", "é", "9.99"), ("D", 2, None, "b", None),
    ]  # fmt: skip
