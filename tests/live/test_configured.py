"""Configurations in files, and each way to take changes, on real servers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.aio import AsyncInstance
from canal.testing.servers import ThrowawayServer
from tests.support.live import end_of_log, source
from tests.support.waiting import until

KEYS, CHANGES = 7, 60


def test_canals_own_files_are_followed(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    """What is edited takes effect, and what a bad edit says does not."""
    server.query(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    end = end_of_log(server)
    own = tmp_path / "shop/instance.properties"
    own.parent.mkdir()
    text = "".join(
        f"canal.instance.{name}={value}\n"
        for name, value in {
            "master.address": f"{server.host}:{server.port}",
            "master.journal.name": end.journal,
            "master.position": end.offset,
            "master.sslMode": "PREFERRED",
            "dbUsername": server.user,
            "dbPassword": server.password,
            "filter.regex": f"{database}\\\\..*",
            "filter.dml.delete": "true",
        }.items()
    )
    own.write_text(text)
    (tmp_path / "canal.properties").write_text(f"canal.destinations=shop\ncanal.file.data.dir={tmp_path}/meta\n")
    found: list[Any] = []
    alarms: list[str] = []

    def follow(running: canal.Server, *wanted: Any) -> None:
        """Up to these rows, whatever instance has them."""

        def has_come() -> bool:
            with contextlib.suppress(canal.StateError):
                instance = running.instance("shop")
                instance.subscribe()
                message = instance.get_without_ack(timeout=0.2)
                found.extend((row.after or row.before or {})["id"] for entry in message.entries for row in entry.rows)
                if message:
                    instance.ack(message)
            return found == list(wanted)

        until(has_come)

    with canal.Server() as running:
        running.follow(canal.server.DirectorySource(tmp_path), interval=0.1, alarm=lambda name, text: alarms.append(text))
        assert alarms == []
        server.query(f"INSERT INTO `{database}`.t VALUES (1)")
        server.query(f"DELETE FROM `{database}`.t WHERE id = 1")
        server.query(f"INSERT INTO `{database}`.t VALUES (2)")
        follow(running, 1, 2)
        before = running.instance("shop")
        own.write_text(text.replace("filter.dml.delete=true", "filter.dml.delete=perhaps"))
        until(lambda: any("true or false" in one for one in alarms))
        assert running.instance("shop") is before
        own.write_text(text.replace("filter.dml.delete=true", "filter.dml.delete=false"))
        until(lambda: not before.is_running)
        server.query(f"DELETE FROM `{database}`.t WHERE id = 2")
        follow(running, 1, 2, 2)


def test_a_group_in_a_file_has_the_rows_of_two_servers(
    mysql_server: ThrowawayServer, mariadb_server: ThrowawayServer, tmp_path: Path
) -> None:
    servers = {"east": mysql_server, "west": mariadb_server}
    text = f"[destinations.shops]\nfilter = 'shops\\..*'\nmeta = '{tmp_path}/meta'\n"
    for name, server in servers.items():
        server.query("DROP DATABASE IF EXISTS shops")
        server.query("CREATE DATABASE shops")
        server.query("CREATE TABLE shops.t (id INT PRIMARY KEY)")
        text += f"[destinations.shops.members.{name}.source]\nhost = '{server.host}'\nport = {server.port}\n"
        text += f"user = '{server.user}'\npassword = '{server.password}'\nget_server_public_key = true\n"
    (tmp_path / "all.toml").write_text(text)
    found: list[tuple[str, int]] = []
    for number in range(3):
        with canal.load(tmp_path / "all.toml") as running:
            instance = running.instance("shops")
            instance.subscribe(timeout=60.0)
            for server in servers.values():
                server.query(f"INSERT INTO shops.t VALUES ({number})")

            def has_come(instance: canal.Instance = instance, count: int = 2 * (number + 1)) -> bool:
                message = instance.get_without_ack(timeout=0.2)
                found.extend((entry.member, row.after["id"]) for entry in message.entries for row in entry.rows if row.after)
                if message:
                    instance.ack(message)
                return len(found) >= count

            until(has_come)
    assert sorted(found) == [(name, number) for name in servers for number in range(3)]


@pytest.fixture
def written(server: ThrowawayServer, database: str) -> tuple[canal.Position, dict[int, list[int]]]:
    """Where changes of some keys begin, and what each key was in turn."""
    server.query(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, n INT)")
    start, expected, chance = end_of_log(server), defaultdict(list), random.Random(5)
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for n in range(CHANGES):
            key = chance.randrange(KEYS)
            cursor.execute(f"REPLACE INTO `{database}`.t VALUES ({key}, {n})")
            expected[key].append(n)
    return start, dict(expected)


def test_each_way_to_take_changes_has_each_once_and_those_of_a_key_in_order(
    server: ThrowawayServer, database: str, written: tuple[canal.Position, dict[int, list[int]]]
) -> None:
    start, expected = written
    destinations = itertools.count()

    def config() -> canal.InstanceConfig:
        return canal.InstanceConfig(
            destination=f"way-{next(destinations)}", source=source(server), filter=rf"{database}\..*", start=start
        )

    def see(seen: dict[int, list[int]], change: canal.Change) -> bool:
        """Whether it was the last one."""
        if change.after is not None:
            seen[change.after["id"]].append(change.after["n"])
        return sum(map(len, seen.values())) == CHANGES

    flat: dict[int, list[int]] = defaultdict(list)
    with canal.Instance(config()) as instance:
        instance.subscribe()
        next(change for change in instance.changes() if see(flat, change))

    parallel: dict[int, list[int]] = defaultdict(list)
    done = threading.Event()
    with canal.Instance(config()) as instance:
        instance.subscribe()

        def stop() -> None:
            done.wait(60)
            instance.stop()

        threading.Thread(target=stop).start()
        with contextlib.suppress(canal.StateError):
            instance.consume(lambda change: done.set() if see(parallel, change) else None, workers=4)

    async def main() -> dict[int, list[int]]:
        seen: dict[int, list[int]] = defaultdict(list)
        async with AsyncInstance(config()) as instance:
            await instance.subscribe()
            async for message in instance.stream(batch_size=5):
                async with message:
                    for entry in message.entries:
                        for row in entry.rows:
                            if row.after is not None:
                                seen[row.after["id"]].append(row.after["n"])
                if sum(map(len, seen.values())) == CHANGES:
                    return seen
        raise AssertionError

    awaited = asyncio.run(asyncio.wait_for(main(), 120))
    assert flat == parallel == awaited == expected
