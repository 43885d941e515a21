"""Clients that are behind the store, and that seek, on real servers: their lines are replicas of their own."""

from __future__ import annotations

import time

import pytest

import canal
from canal.testing.servers import ThrowawayServer
from tests.support.instances import has_all, in_thread, is_behind, read
from tests.support.live import Watch
from tests.support.waiting import until


@pytest.mark.every_line
def test_an_evicted_client_catches_up_and_seeks(server: ThrowawayServer, database: str) -> None:
    options = {"store_entries": 24, "slow_after": 0.5, "on_slow": "evict"}
    with Watch(server, rf"{database}\.t", **options) as watch:
        instance = watch.instance
        watch.run(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
        watch.read()
        instance.subscribe(2)
        start = instance.position(2)
        reader, first = in_thread(lambda: read(instance, 1001, 60))
        watch.run(*[f"INSERT INTO `{database}`.t VALUES ({number})" for number in range(50)])
        watch.run(f"INSERT INTO `{database}`.t VALUES {', '.join(f'({number})' for number in range(50, 60))}")
        reader.join(60)
        assert first == [list(range(60))]
        until(lambda: is_behind(instance, 2))
        got = read(instance, 2, 60, size=4)
        until(lambda: has_all(instance, 2))
        time.sleep(1.1)  # times in logs are whole seconds
        now = int(time.time() * 1000)
        watch.run(f"INSERT INTO `{database}`.t VALUES (60)")
        got += read(instance, 2, 1)

        assert got == list(range(61))
        instance.seek(2, start)
        assert read(instance, 2, 61) == got
        assert instance.seek(2, canal.Position(timestamp=now - now % 1000)).journal
        assert read(instance, 2, 1) == [60]
