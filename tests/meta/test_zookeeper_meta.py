"""Meta in ZooKeeper: canal's nodes, the fence, writes of unknown outcome, and what a crash repeats."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal.errors import ConfigError, CoordinationError, CursorError, NotActiveError
from canal.meta import MixedMeta, PeriodMixedMeta, ZooKeeperMeta
from canal.position import Position
from canal.testing import ZooKeeperServer
from canal.zookeeper.session import Create, Fence, Session, Set, VersionChanged, ZooKeeper
from tests.support.waiting import until

#: What canal writes, from its documentation of the nodes.
CANALS = (
    b'{"@type":"com.alibaba.otter.canal.protocol.position.LogPosition","identity":{"slaveId":-1,"sourceAddress":'
    b'{"address":"db1","port":3306}},"postion":{"gtid":"","included":false,"journalName":"mysql-bin.000266",'
    b'"position":226987109,"serverId":2757725211,"timestamp":1610750948000}}'
)
THEIRS = Position("mysql-bin.000266", 226987109, server_id=2757725211, timestamp=1610750948000, at_event=True)
HERE = Position("bin.000001", 40, row=3, timestamp=7, server_id=2, source="a")
THERE = Position("bin.000002", 4)


@pytest.fixture
def session(zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> Iterator[Session]:
    session = Session(ZooKeeper(hosts=zookeeper_server.hosts, root=zookeeper_root, session_timeout=30.0))
    session.open()
    assert session.wait_connected(60)
    session.make(f"{zookeeper_root}/destinations/example")
    yield session
    session.close()


def started(session: Session, kind: Callable[..., ZooKeeperMeta] = ZooKeeperMeta) -> ZooKeeperMeta:
    meta = kind(session)
    meta.start("example")
    return meta


def node(session: Session, name: str) -> bytes | None:
    value = session.get(session.config.destination_path("example", *name.split("/")))
    return None if value is None else value.data


def put(session: Session, name: str, data: bytes) -> None:
    path = session.config.destination_path("example", *name.split("/"))
    session.make(path)
    session.write([Set(path, data)])


def test_the_cursor_of_a_group_is_read_as_it_was_written_unless_canal_has_moved_its_own(session: Session) -> None:
    """Canal's node holds of all members one time."""
    both = Position(members={"a": attrs.evolve(HERE, timestamp=5000), "b": attrs.evolve(THERE, incarnation="3-1")})
    meta = started(session)
    meta.subscribe(1001, "")
    meta.update_cursor(1001, both)
    written = node(session, "1001/cursor")

    assert started(session).cursor(1001) == both

    assert written is not None
    put(session, "1001/cursor", written.replace(b'"timestamp":3000', b'"timestamp":9000'))
    assert started(session).cursor(1001) == Position(timestamp=9000)


def test_what_canal_left_is_taken_over(session: Session) -> None:
    put(session, "1001/filter", "库\\..*".encode())
    put(session, "1001/cursor", CANALS)
    put(session, "1001/mark/0000000003", b"{}")
    session.make(session.config.destination_path("example", "1002"))
    put(session, "running", b'{"active":true,"address":"10.0.0.1:11111"}')
    meta = started(session)
    assert meta.subscriptions() == {1001: "库\\..*", 1002: ""}
    assert (meta.cursor(1001), meta.cursor(1002)) == (THEIRS, None)
    meta.update_cursor(1001, HERE)
    assert node(session, "1001/mark/0000000003") is None  # batches outstanding at canal say nothing any more
    assert started(session).cursor(1001) == HERE


def test_canal_can_read_ours_and_its_own_cursor_counts(session: Session) -> None:
    meta = started(session)
    meta.subscribe(1001, "库\\..*")
    meta.update_cursor(1001, THEIRS)
    assert node(session, "1001/filter") == "库\\..*".encode()
    ours = json.loads(node(session, "1001/cursor") or b"")
    expected = json.loads(CANALS)
    assert ours["postion"] == expected["postion"]
    assert list(ours) == list(expected)
    assert ours["@type"] == expected["@type"]
    meta.update_cursor(1001, HERE)
    assert started(session).cursor(1001) == HERE
    put(session, "1001/cursor", CANALS)
    assert started(session).cursor(1001) == THEIRS


def test_unsubscribe_leaves_nothing_of_the_client(session: Session) -> None:
    meta = started(session)
    meta.subscribe(1, "a")
    meta.update_cursor(1, HERE)
    put(session, "1/mark/0000000001", b"{}")
    put(session, "1/running", b"{}")
    meta.unsubscribe(1)
    assert session.children(session.config.destination_path("example")) == []


@pytest.mark.parametrize(("name", "data"), [("filter", b"\xff"), ("cursor", b"{"), ("cursor", b"[]"), ("cursor", b"{}")])
def test_a_damaged_node_is_refused(session: Session, name: str, data: bytes) -> None:
    put(session, f"1/{name}", data)
    with pytest.raises(CursorError, match="example/1"):
        started(session)


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b'{"postion":' * 50_000, b"9" * 5000, b"\xff", b"null", b'{"v":2,"offset":1e999}']
)
@pytest.mark.parametrize("name", ["cursor", "position"])
def test_whatever_a_node_holds_is_refused_by_its_name(session: Session, name: str, data: bytes) -> None:
    put(session, "1/cursor", CANALS)
    put(session, f"1/{name}", data)
    with pytest.raises(CursorError, match="example/1 cannot be read"):
        started(session)


def test_names_that_are_no_clients_are_left_alone(session: Session) -> None:
    for name in ("²", "01", "1" + "0" * 5000, "x"):
        session.make(session.config.destination_path("example", name))
    assert started(session).subscriptions() == {}


@pytest.mark.parametrize("kind", [MixedMeta, PeriodMixedMeta])
def test_the_writer_survives_whatever_is_raised(session: Session, kind: type[MixedMeta], monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing that is put off would ever be written again, and nobody told."""
    meta = PeriodMixedMeta(session, 0.01) if kind is PeriodMixedMeta else kind(session)
    meta.start("example")
    meta.subscribe(1, "")
    meta.update_cursor(1, HERE)
    store, raised = meta._nodes.store, []

    def broken(clients: object) -> None:
        raised.append(clients)
        raise RuntimeError("as injected")

    monkeypatch.setattr(meta._nodes, "store", broken)
    meta.update_cursor(1, THERE)
    deadline = time.monotonic() + 60
    while not raised:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(RuntimeError):  # and the next call is told
        meta.update_cursor(1, LATER)
    monkeypatch.setattr(meta._nodes, "store", store)
    while started(session).cursor(1) != THERE:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    meta.stop()


def test_what_a_node_cannot_hold_is_refused(session: Session) -> None:
    with pytest.raises(ConfigError):
        ZooKeeperMeta(session).start("a/b")
    meta = started(session)
    with pytest.raises(CursorError, match="too large"):
        meta.subscribe(1, "x" * 2_000_000)
    assert meta.subscriptions() == {}


@pytest.mark.parametrize("kind", [ZooKeeperMeta, MixedMeta, PeriodMixedMeta])
def test_after_a_take_over_nothing_is_written(session: Session, kind: type[ZooKeeperMeta]) -> None:
    epoch = session.config.destination_path("example", "epoch")
    session.write([Create(epoch, b"1")])
    meta = kind(session)
    meta.bind(session, lambda: Fence(epoch, 0, 1))
    meta.start("example")
    meta.subscribe(1, "a")
    meta.update_cursor(1, HERE)
    session.write([Set(epoch, b"2")])
    for call in (lambda: meta.subscribe(1, "b"), lambda: meta.subscribe(2, "b"), lambda: meta.unsubscribe(1)):
        with pytest.raises(NotActiveError):
            call()
    with pytest.raises(NotActiveError):
        meta.update_cursor(1, THERE)
    assert (meta.subscriptions(), meta.cursor(1)) == ({1: "a"}, HERE)
    other = started(session)
    assert (other.subscriptions(), other.cursor(1)) == ({1: "a"}, HERE)
    meta.stop()


@contextmanager
def impatient(meta: ZooKeeperMeta | MixedMeta) -> Iterator[None]:
    """Its calls wait for an answer for a moment only; one that is slow is not waited for, so not while answers count."""
    session = meta._nodes._session
    assert session is not None
    config = session.config
    session.config = attrs.evolve(config, session_timeout=0.5)
    yield
    session.config = config


def test_a_write_of_unknown_outcome_can_be_repeated(own_zookeeper: ZooKeeperServer) -> None:
    meta = ZooKeeperMeta(ZooKeeper(hosts=own_zookeeper.hosts, session_timeout=30.0))
    meta.start("example")
    meta.subscribe(1, "a")
    meta.update_cursor(1, HERE)
    own_zookeeper.pause()
    with impatient(meta), pytest.raises(CoordinationError):
        meta.update_cursor(1, THERE)
    assert meta.cursor(1) == HERE
    own_zookeeper.kill()
    own_zookeeper.start()
    other = ZooKeeperMeta(ZooKeeper(hosts=own_zookeeper.hosts, session_timeout=30.0))
    other.start("example")
    assert other.cursor(1) in (HERE, THERE)
    other.stop()
    deadline = time.monotonic() + 60
    while True:
        try:
            meta.update_cursor(1, THERE)
            break
        except CoordinationError:
            assert time.monotonic() < deadline
    meta.stop()
    other.start("example")
    assert other.cursor(1) == THERE
    other.stop()


@pytest.mark.parametrize("kind", [ZooKeeperMeta, PeriodMixedMeta])
def test_a_zookeeper_that_comes_back_without_its_data_gets_it_again(
    own_zookeeper: ZooKeeperServer, kind: type[ZooKeeperMeta | PeriodMixedMeta]
) -> None:
    meta = kind(ZooKeeper(hosts=own_zookeeper.hosts, session_timeout=4.0))
    meta.start("example")
    meta.subscribe(1, "a")
    meta.update_cursor(1, HERE)
    own_zookeeper.stop()
    own_zookeeper.start()

    def write() -> bool:
        try:
            meta.update_cursor(1, THERE)
            meta.flush()
        except CoordinationError:
            return False
        return True

    until(write)
    meta.stop()
    again = ZooKeeperMeta(ZooKeeper(hosts=own_zookeeper.hosts, session_timeout=30.0))
    again.start("example")
    assert (again.subscriptions(), again.cursor(1)) == ({1: "a"}, THERE)
    again.stop()


def test_a_write_that_was_not_answered_and_is_carried_out_late_does_not_undo_later_ones(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that was slow may carry it out when the session comes back to it."""
    meta = started(session)
    meta.subscribe(1, "")
    meta.update_cursor(1, HERE)
    write, late = session.write, []

    def unanswered(*args: Any) -> list[int]:
        late.append(args)
        raise CoordinationError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(session, "write", unanswered)
        with pytest.raises(CoordinationError):
            meta.update_cursor(1, THERE)
    for offset in (5, 6):
        meta.update_cursor(1, Position("bin.000002", offset))

    with pytest.raises(VersionChanged):
        write(*late[0])
    assert started(session).cursor(1) == Position("bin.000002", 6)
    meta.update_cursor(1, Position("bin.000002", 7))


def test_what_is_put_off_is_written_in_the_end(session: Session) -> None:
    meta = started(session, MixedMeta)
    meta.subscribe(1, "")
    for offset in range(1, 500):
        meta.update_cursor(1, Position("bin.000001", offset))
        if offset % 50 == 0:
            meta.flush()
    deadline = time.monotonic() + 60
    while started(session).cursor(1) != Position("bin.000001", 499):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    meta.stop()


def stored(server: ZooKeeperServer) -> Position | None:
    """What another process finds."""
    meta = ZooKeeperMeta(ZooKeeper(hosts=server.hosts, session_timeout=30.0))
    meta.start("example")
    cursor = meta.cursor(1)
    meta.stop()
    return cursor


def cut_off(kind: type[MixedMeta], server: ZooKeeperServer) -> MixedMeta:
    """One whose connection is lost."""
    config = ZooKeeper(hosts=server.hosts, session_timeout=30.0)
    meta = PeriodMixedMeta(config, 0.05) if kind is PeriodMixedMeta else kind(config)
    meta.start("example")
    meta.subscribe(1, "a")
    meta.update_cursor(1, HERE)
    session = meta._nodes._session
    assert session is not None
    server.kill()
    deadline = time.monotonic() + 60
    while session.is_connected:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return meta


LATER = Position("bin.000003", 4)


@pytest.mark.parametrize("kind", [MixedMeta, PeriodMixedMeta])
def test_a_lost_connection_is_told_and_what_was_put_off_is_written_when_it_is_back(
    own_zookeeper: ZooKeeperServer, kind: type[MixedMeta]
) -> None:
    meta = cut_off(kind, own_zookeeper)
    with impatient(meta):
        meta.update_cursor(1, THERE)  # put off
        with pytest.raises(CoordinationError):
            meta.flush()
        assert meta.cursor(1) == THERE
        for call in (lambda: meta.update_cursor(1, LATER), lambda: meta.subscribe(2, ""), lambda: meta.unsubscribe(1)):
            with pytest.raises(CoordinationError):  # after a failed write every call writes
                call()
        assert (meta.cursor(1), meta.subscriptions()) == (THERE, {1: "a"})

    own_zookeeper.start()
    deadline = time.monotonic() + 60
    while stored(own_zookeeper) != THERE:  # without another call
        assert time.monotonic() < deadline
        time.sleep(0.05)
    meta.flush()
    meta.update_cursor(1, LATER)
    meta.flush()
    assert stored(own_zookeeper) == LATER
    meta.stop()


@pytest.mark.parametrize("kind", [MixedMeta, PeriodMixedMeta])
def test_a_stop_without_connection_is_quick_and_leaves_the_last_durable_cursor(
    own_zookeeper: ZooKeeperServer, kind: type[MixedMeta]
) -> None:
    meta = cut_off(kind, own_zookeeper)
    with impatient(meta):
        meta.update_cursor(1, THERE)  # put off
        with pytest.raises(CoordinationError, match="delivered again"):
            meta.stop()
    with pytest.raises(canal.StateError):
        meta.cursor(1)
    meta.stop()
    own_zookeeper.start()
    assert stored(own_zookeeper) == HERE
    meta.start("example")  # the object itself goes on from there too
    assert meta.cursor(1) == HERE
    meta.update_cursor(1, THERE)
    meta.stop()
    assert stored(own_zookeeper) == THERE


def test_a_stop_without_connection_and_nothing_put_off_is_no_error(own_zookeeper: ZooKeeperServer) -> None:
    meta = MixedMeta(ZooKeeper(hosts=own_zookeeper.hosts, session_timeout=30.0))
    meta.start("example")
    meta.subscribe(1, "a")
    meta.update_cursor(1, HERE)
    own_zookeeper.kill()
    meta.stop()


_ACKS = """
import os, signal, sys
from canal.meta import MixedMeta, PeriodMixedMeta, ZooKeeperMeta
from canal.position import Position
from canal.zookeeper.session import ZooKeeper
kind, hosts, root = sys.argv[1:]
config = ZooKeeper(hosts=hosts, root=root, session_timeout=30.0)
meta = PeriodMixedMeta(config, 3600.0) if kind == "PeriodMixedMeta" else globals()[kind](config)
meta.start("example")
meta.subscribe(1, "a")
for offset in range(1, 101):
    meta.update_cursor(1, Position("bin.000001", offset))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("kind", "least"), [("ZooKeeperMeta", 100), ("MixedMeta", 1), ("PeriodMixedMeta", 1)])
def test_what_a_killed_process_repeats(session: Session, kind: str, least: int) -> None:
    arguments = [sys.executable, "-c", _ACKS, kind, session.config.hosts, session.config.root]
    done = subprocess.run(arguments, cwd=Path(canal.__file__).parent.parent, timeout=100, capture_output=True)
    assert done.returncode == -9, done.stderr
    cursor = started(session).cursor(1)
    assert cursor is not None
    assert least <= cursor.offset <= (1 if kind == "PeriodMixedMeta" else 100)


def test_ids_that_canal_cannot_read_have_nodes_that_it_passes_over(session: Session) -> None:
    ids = (7, 1 << 32, -1)
    meta = started(session)
    meta.address_of = lambda position: ("db1", 3307)
    for client_id in ids:
        meta.subscribe(client_id, f"t{client_id}")
        meta.update_cursor(client_id, HERE)

    names = session.children(session.config.destination_path("example"))
    again = started(session)

    assert sorted(names) == ["7", "client--1", "client-4294967296"]
    assert {client_id: (filter, again.cursor(client_id)) for client_id, filter in again.subscriptions().items()} == {
        client_id: (f"t{client_id}", HERE) for client_id in ids
    }
    assert json.loads(node(session, "7/cursor") or b"")["identity"]["sourceAddress"] == {"address": "db1", "port": 3307}
    meta.unsubscribe(1 << 32)
    assert sorted(session.children(session.config.destination_path("example"))) == ["7", "client--1"]
