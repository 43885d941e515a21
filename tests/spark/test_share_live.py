"""A shared Instance in Spark, against a real server: queries of the driver and the driver itself over one dump."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import canal.spark
from canal import Instance, InstanceConfig, MySQLSource
from canal.testing.servers import ThrowawayServer
from tests.support.streams import Load, Stream, runners

NAME = f"the shop's / ✓ {os.getpid()}"


def dumps(server: ThrowawayServer) -> int:
    """How many connections read the server's log."""
    return sum(row[4] == "Binlog Dump" for row in server.query("SHOW PROCESSLIST"))


@pytest.mark.timeout(600)
def test_two_queries_and_the_driver_read_one_instance_over_one_dump(
    spark: Any, mariadb_server: ThrowawayServer, tmp_path: Path, wait: Callable[..., None]
) -> None:
    """And go on from their checkpoints when the process of one is killed, and when the driver has made a new Instance."""
    server, table = mariadb_server, "spark_share.orders"
    server.query("CREATE DATABASE spark_share")
    server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT, note VARCHAR(200))")
    source = MySQLSource(host=server.host, port=server.port, user=server.user, password=server.password)
    streams = [Stream(spark, server, tmp_path / name, table) for name in ("one", "two")]
    seen: list[tuple[str, int, int]] = []

    def start(stream: Stream) -> Any:
        options = {"instance": NAME, "table": table, "spoolDir": str(stream.directory / "spool")}
        return stream.start(spark.readStream.format("canal").options(**options).load())

    def follow(count: int, instance: Instance) -> None:
        """The driver's own client, as a function given to foreachBatch may have one."""
        while len(seen) < count:
            for entry in instance.get(timeout=10):
                seen.extend(
                    (entry.event_type.name[0], row["id"], row["n"])
                    for pair in entry.rows
                    if (row := pair.after or pair.before) is not None
                )

    with contextlib.ExitStack() as stack:
        stack.callback(server.query, "DROP DATABASE spark_share")
        instance = stack.enter_context(Instance(InstanceConfig(destination="share", source=source, filter=r"spark_share\..*")))
        instance.subscribe()
        with canal.spark.share(instance, NAME):
            load = Load(server, table)
            with load:
                queries = [start(stream) for stream in streams]
                for stream, query in zip(streams, queries):
                    stack.callback(query.stop)
                    wait(lambda stream=stream: len(stream.rows()) > 0, query)
                wait(lambda: dumps(server) == 1)  # one that a test before has left ends at its next event
                assert len(instance.subscriptions()) == 3

                wait(lambda: len(runners()) == 2)  # one that was too late for Spark ends by itself
                os.kill(runners()[0], signal.SIGKILL)
                wait(lambda: not all(query.isActive for query in queries))
                number = next(number for number, query in enumerate(queries) if not query.isActive)
                follow(len(load.journal) // 2, instance)
                queries[number] = start(streams[number])
                stack.callback(queries[number].stop)
                before = len(streams[number].rows())
                wait(lambda: len(streams[number].rows()) > before, queries[number])
            for stream, query in zip(streams, queries):
                wait(lambda stream=stream: len(stream.rows()) >= len(load.journal), query)
            follow(len(load.journal), instance)
            wait(lambda: dumps(server) == 1)

        for stream in streams:
            assert stream.changes() == load.journal
        assert seen == [(op, id, n) for op, id, n, _ in load.journal]
        wait(lambda: not any(query.isActive for query in queries))
        assert all("shares it no more" in str(query.exception()) for query in queries)
        wait(lambda: list(instance.subscriptions()) == [1001])
