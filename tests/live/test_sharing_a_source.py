"""One MySQLSource in several Instances: each reads for itself, and a server id that was given to all of them is refused."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

import canal
from canal.testing.servers import ThrowawayServer
from tests.support.live import source

ROWS = 20


def ids(instance: canal.Instance, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        message = instance.get(100, timeout=60)
        assert message
        found += [row.after["id"] for entry in message.entries for row in entry.rows]
    return found


@pytest.mark.every_line
def test_a_source_that_instances_share_is_read_by_each(server: ThrowawayServer, database: str) -> None:
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    shared = source(server)
    alarms: list[str] = []
    instances = [
        canal.Instance(
            canal.InstanceConfig(
                destination=name,
                source=shared,
                filter=rf"{database}\..*",
                reconnect_backoff=(0.05, 0.1),
                alarm=lambda destination, text: alarms.append(text),
            )
        )
        for name in ("a", "b", "c")
    ]
    try:
        for instance in instances:
            instance.start()
            instance.subscribe()
        for number in range(ROWS):
            server.query(f"INSERT INTO {database}.t VALUES ({number})")
            if number == ROWS // 2:  # a run that begins anew has an id of its own again
                instances[0].stop()
                instances[0].start()
        assert [ids(instance, ROWS) for instance in instances] == [list(range(ROWS))] * 3
        found = [instance.status().parser for instance in instances]
        assert [(parser.reconnects, parser.errors) for parser in found if parser] == [(0, 0)] * 3
        assert alarms == []
    finally:
        for instance in instances:
            instance.stop()


@pytest.mark.every_line
def test_a_server_id_that_was_given_is_refused_to_a_second_reader(server: ThrowawayServer, database: str) -> None:
    """They throw each other out, and say whose fault that may be."""
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    shared = source(server, server_id=4711)
    alarms: list[str] = []
    options: dict[str, Any] = {"source": shared, "filter": rf"{database}\..*", "reconnect_backoff": (0.05, 0.1)}
    first, second = (
        canal.Instance(canal.InstanceConfig(destination=name, **options, alarm=lambda destination, text: alarms.append(text)))
        for name in ("a", "b")
    )
    with first, second:
        first.subscribe()
        with contextlib.suppress(canal.errors.ServerError):  # the first has thrown it out already
            second.subscribe()
        deadline = time.monotonic() + 60
        while not any("server_id" in text or "4711" in text for text in alarms):
            assert time.monotonic() < deadline, alarms
            server.query(f"REPLACE INTO {database}.t VALUES (1)")
            time.sleep(0.05)
