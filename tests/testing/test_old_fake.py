"""A fake binlog that plays MySQL 5.1, of which there is no server to be had: its bytes, and how it is followed over TCP."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.errors import UsageError
from canal.parse.log.events import parse_format
from canal.testing import FakeBinlog
from canal.testing._serve import FakeServer

COLUMNS = "id INT PRIMARY KEY, name VARCHAR(20), at DATETIME, stamp TIMESTAMP NULL, took TIME, day DATE"
NOON = dt.datetime(2012, 5, 6, 12, 30, 1)
ROW = {
    "id": 1,
    "name": "é",
    "at": NOON,
    "stamp": NOON.replace(tzinfo=dt.UTC),
    "took": -dt.timedelta(hours=700, seconds=9),
    "day": NOON.date(),
}


@pytest.fixture
def old() -> FakeBinlog:
    return FakeBinlog(version="5.1.73")


@pytest.fixture
def server(old: FakeBinlog) -> Iterator[FakeServer]:
    with old.serve(user="u", password="p") as server:
        yield server


def source_of(server: FakeServer, **options: Any) -> canal.MySQLSource:
    return canal.MySQLSource(host=server.host, port=server.port, user="u", password="p", **options)


def rows_of(instance: canal.Instance, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        message = instance.get_without_ack(100, timeout=10)
        assert message
        instance.ack(message.id)
        for entry in message.entries:
            found += [(before and tuple(before), after and tuple(after)) for before, after in entry.rows]
    return found


def test_its_log_is_one_of_mysql_5_1(old: FakeBinlog) -> None:
    old.table("d", "t", COLUMNS).insert(ROW)
    events = old.events()

    assert [event[4] for event in events] == [15, 2, 19, 23, 16]
    assert len(events[0]) == 19 + 2 + 50 + 4 + 1 + 26  # as in the files of that release: no checksum
    form = parse_format(events[0])
    assert (form.server_version, form.checksum, form.knows_checksums) == ("5.1.73", False, False)


def test_an_instance_follows_it(old: FakeBinlog, server: FakeServer, tmp_path: Path) -> None:
    table = old.table("d", "t", COLUMNS)
    config = canal.InstanceConfig(destination="old", source=source_of(server), meta=canal.FileMeta(tmp_path))
    with canal.Instance(config) as instance:
        instance.subscribe()
        table.insert(ROW)
        old.ddl("ALTER TABLE t ADD more INT", schema="d")
        old.rotate()
        table = old.table("d", "t", COLUMNS + ", more INT")
        table.insert(ROW | {"id": 2, "more": 5})
        found = rows_of(instance, 2)
        assert found == [(None, tuple(ROW.values())), (None, (2, *tuple(ROW.values())[1:], 5))]
        status = instance.status()
        assert (status.parser.flavor, status.parser.identity) == ("mysql", old.identity)
        assert status.parser.identity == "1@fake:3306"
    table.delete(ROW | {"id": 2, "more": 5})
    with canal.Instance(config) as instance:  # from its cursor
        instance.subscribe()
        assert rows_of(instance, 1) == [((2, *tuple(ROW.values())[1:], 5), None)]


@pytest.mark.parametrize("start", ["earliest", "latest", "time", "offset", "a log"])
def test_every_start(old: FakeBinlog, server: FakeServer, start: str) -> None:
    table = old.table("d", "t", "id INT PRIMARY KEY")
    table.insert({"id": 1})
    old.rotate()
    old.rotate()
    position = old.position
    table.insert({"id": 2})
    starts: dict[str, Any] = {
        "time": canal.Position(timestamp=int(time.time() - 3600) * 1000),
        "offset": canal.Position(journal=position.journal, offset=position.offset),
        "a log": canal.Position(journal="binlog.000002"),
    }
    config = canal.InstanceConfig(destination="old", source=source_of(server), start=starts.get(start, start))
    with canal.Instance(config) as instance:
        instance.subscribe()
        if start == "latest":
            table.insert({"id": 2})
        first = 1 if start in ("earliest", "time") else 2
        assert rows_of(instance, 3 - first) == [(None, (number,)) for number in range(first, 3)]


def test_what_it_lacks_is_not_asked_for(old: FakeBinlog, server: FakeServer) -> None:
    old.table("d", "t", "id INT PRIMARY KEY").insert({"id": 1})
    with canal.Instance(canal.InstanceConfig(destination="old", source=source_of(server), start="earliest")) as instance:
        instance.subscribe()
        assert rows_of(instance, 1) == [(None, (1,))]
        end = source_of(server).read_end(10)
        assert end.journals == ((old.journal, old.position.offset),)
        assert end.gtid == ""
    refused = {"SET NAMES utf8mb4", "SHOW BINARY LOGS"}  # tried first: only the answer tells
    lacking = ("gtid", "(6)", "binlog_checksum", "replica status", "gipk")
    asked = [sql for sql in server.queries if sql not in refused]
    assert [sql for sql in asked if any(word in sql.lower() for word in lacking) and not sql.startswith("SHOW GLOBAL")] == []


def test_an_idle_server_without_heartbeats_is_no_lost_connection(old: FakeBinlog, server: FakeServer) -> None:
    table = old.table("d", "t", "id INT PRIMARY KEY")
    source = source_of(server, heartbeat_interval=0.1, check_interval=0.2)
    with canal.Instance(canal.InstanceConfig(destination="old", source=source)) as instance:
        instance.subscribe()
        table.insert({"id": 1})
        assert rows_of(instance, 1) == [(None, (1,))]
        assert not instance.get(10, timeout=1.0)
        assert instance.status().parser.reconnects == 0
        table.insert({"id": 2})
        assert rows_of(instance, 1) == [(None, (2,))]


@pytest.mark.parametrize("version", ["5.5.9", "8.0.46", "10.1.23", "x"])
def test_other_releases_are_not_played(version: str) -> None:
    with pytest.raises(UsageError, match="5.1"):
        FakeBinlog(version=version)


@pytest.mark.parametrize("column", ["a JSON", "a VECTOR(3)"])
def test_it_has_no_newer_types(old: FakeBinlog, column: str) -> None:
    with pytest.raises(UsageError, match="5.1"):
        old.table("d", "t", column)


@pytest.mark.parametrize(
    ("column", "value"),
    [("a TIME", "10:00:00.5"), ("a DATETIME", "2012-01-02 03:04:05.5"), ("a TIMESTAMP", "2012-01-02 03:04:05.5")],
)
def test_it_has_no_fractions_of_seconds(old: FakeBinlog, column: str, value: str) -> None:
    with pytest.raises(UsageError, match="decimals"):
        old.table("d", "t", column).insert({"a": value})
