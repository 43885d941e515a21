"""canal's log position managers in ZooKeeper give back what they were given, after a cold start too, and canal's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

import canal
from canal.errors import CursorError
from canal.parse.log_positions import LogPositionManager
from canal.parse.zookeeper_log_positions import (
    MixedLogPositionManager,
    PeriodMixedLogPositionManager,
    ZooKeeperLogPositionManager,
)
from canal.position import Position
from canal.testing import FakeBinlog, ZooKeeperServer
from canal.zookeeper.session import Create, Session, Set, ZooKeeper

pytestmark = pytest.mark.zookeeper

KINDS = pytest.mark.parametrize(
    "kind", [ZooKeeperLogPositionManager, MixedLogPositionManager, PeriodMixedLogPositionManager], ids=lambda kind: kind.__name__
)
HERE = Position("bin.000001", 40, row=3, timestamp=7000, server_id=2, source="a")


@pytest.fixture
def session(zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> Iterator[Session]:
    session = Session(ZooKeeper(hosts=zookeeper_server.hosts, root=zookeeper_root, session_timeout=30.0))
    session.open()
    assert session.wait_connected(60)
    yield session
    session.close()


@KINDS
def test_what_was_given_is_there_after_a_cold_start(session: Session, kind: type[ZooKeeperLogPositionManager]) -> None:
    manager = kind(session.config, ("db1", 3307))
    assert isinstance(manager, LogPositionManager)
    manager.stop()  # before start it does nothing
    manager.start("shop")
    assert manager.latest() is None
    for offset in range(100):
        manager.persist(lambda offset=offset: Position("bin.000001", offset))  # type: ignore[misc]
    manager.persist(lambda: HERE)
    assert manager.latest() == HERE
    manager.stop()

    value = session.get(session.config.destination_path("shop", "parse"))
    again = kind(session)
    again.start("shop")

    assert again.latest() == HERE
    again.stop()
    assert value is not None
    document = json.loads(value.data)
    assert document["identity"]["sourceAddress"] == {"address": "db1", "port": 3307}
    assert document["postion"]["position"] == 40


@KINDS
def test_canals_own_is_taken_over_and_a_damaged_one_is_not_believed(
    session: Session, kind: type[ZooKeeperLogPositionManager]
) -> None:
    manager = kind(session)
    manager.start("shop")
    path = session.config.destination_path("shop", "parse")
    canals = {"@type": "x", **Position("bin.000007", 99, timestamp=5000, server_id=3).to_canal("db1", 3306)}
    session.write([Create(path, json.dumps(canals).encode())])
    assert manager.latest() == Position("bin.000007", 99, timestamp=5000, server_id=3, at_event=True)
    for damaged in (b"{", b"[]", b"{}"):
        session.write([Set(path, damaged)])
        with pytest.raises(CursorError, match="cannot read"):
            manager.latest()
    manager.stop()


def test_it_is_written_meanwhile_and_a_failure_reaches_the_parser(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = MixedLogPositionManager(session)
    manager.start("shop")
    written = threading.Event()
    write = manager._write

    def fail(position: object) -> None:
        written.set()
        raise CursorError("no answer")

    monkeypatch.setattr(manager, "_write", fail)
    manager.persist(lambda: HERE)
    assert written.wait(60)
    with pytest.raises(CursorError, match="no answer"):
        while True:
            manager.persist(lambda: HERE)
    monkeypatch.setattr(manager, "_write", write)
    manager.stop()
    manager.start("shop")
    assert manager.latest() == HERE
    manager.stop()


def test_a_parser_goes_on_there(session: Session) -> None:
    """Of an instance whose sink is the end of the line."""

    class Taken:
        rows: list[object]

        def start(self, destination: str, store: object) -> None:
            self.rows = []

        def stop(self) -> None: ...
        def restart(self) -> None: ...

        def sink(self, entries: list[canal.Entry]) -> None:
            self.rows += [row.after["id"] for entry in entries for row in entry.rows if row.after]

    fake = FakeBinlog()
    table = fake.table("shop", "t", "id INT PRIMARY KEY")
    found = []
    for number in range(2):
        table.insert({"id": number})
        parser = canal.parse.BinlogParser(fake, start="earliest", log_positions=PeriodMixedLogPositionManager(session.config))
        sink, ended = Taken(), threading.Event()
        sink.start("shop", None)
        parser.start("shop", sink, None, ended.set)
        while not sink.rows and not ended.wait(0.01):
            pass
        parser.stop()
        found.append(sink.rows)
    assert found == [[0], [1]]
