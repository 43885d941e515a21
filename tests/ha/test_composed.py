"""Groups and routers take turns as an instance of one source does, a real ZooKeeper between them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import canal
from canal.ha import Role, nodes
from canal.ha.overview import destinations, look_at, release
from canal.meta.zookeeper import ZooKeeperMeta
from canal.testing import FakeBinlog
from canal.testing.zookeeper import ZooKeeperServer
from canal.zookeeper.session import Session, Set, ZooKeeper
from tests.support.ha_group import PATIENT, data_of, end_wait
from tests.support.waiting import until

MEMBERS: Final = ("a", "b", "c")
FILTERS: Final = {"some": r"s\.a", "all": ""}


@attrs.define(eq=False)
class Stage:
    """Sources with a table each, and processes that follow them."""

    config: ZooKeeper
    stack: ExitStack
    logs: dict[str, FakeBinlog]
    written: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(MEMBERS, 0))
    alarms: list[str] = attrs.field(factory=list)

    def write(self, name: str, count: int = 1) -> None:
        table = self.logs[name].table("s", name, "id INT PRIMARY KEY")
        for _ in range(count):
            table.insert({"id": self.written[name]})
            self.written[name] += 1

    def zookeeper(self, **options: Any) -> ZooKeeper:
        return attrs.evolve(self.config, **options)

    def tell(self, destination: str, text: str) -> None:
        self.alarms.append(text)

    def group(self, **options: Any) -> canal.Instance:
        ha = self.zookeeper(**options)
        parsers = {
            name: canal.parse.BinlogParser(log, start="earliest", backoff=(0.01, 0.05), history=canal.parse.ZooKeeperHistory(ha))
            for name, log in self.logs.items()
        }
        parser = canal.parse.GroupParser(parsers, order="arrival")
        instance = canal.Instance.compose("d", parser=parser, ha=ha, alarm=self.tell)
        self.stack.callback(instance.stop)
        instance.start()
        instance.subscribe()
        return instance

    def router(self, **options: Any) -> canal.server.RouterSink:
        """One whose source is that of all tables."""
        config = canal.InstanceConfig(
            destination="d",
            source=self.logs["a"],
            ha=self.zookeeper(**options),
            start="earliest",
            alarm=self.tell,
            reconnect_backoff=(0.01, 0.05),
        )
        router = canal.server.RouterSink(config)
        for name, filter in FILTERS.items():
            router.output(name, filter)
        self.stack.callback(router.stop)
        router.start()
        for output in router.outputs.values():
            output.subscribe()
        return router

    def session(self) -> Session:
        session = Session(self.config)
        session.open()
        self.stack.callback(session.close)
        assert session.wait_connected(30)
        return session


@pytest.fixture
def stage(zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> Iterator[Stage]:
    config = ZooKeeper(hosts=zookeeper_server.hosts, root=zookeeper_root, session_timeout=30.0, takeover_delay=0.3)
    logs = {name: FakeBinlog(server_id=number, metadata="MINIMAL") for number, name in enumerate(MEMBERS, 1)}
    with ExitStack() as stack:
        yield Stage(config, stack, logs)


def rows_of(message: canal.Message) -> list[tuple[str, int]]:
    return [(entry.header.table, row.after["id"]) for entry in message.entries for row in entry.rows if row.after]


def taken(instance: canal.Instance, count: int) -> list[canal.Message]:
    """Messages with so many rows in all, which are not acked."""
    found: list[canal.Message] = []

    def look() -> bool:
        found.extend(filter(None, [instance.get_without_ack(3, timeout=0.5)]))
        return sum(len(rows_of(message)) for message in found) >= count

    until(look)
    return found


def rows(name: str, *ids: int) -> list[tuple[str, int]]:
    return [(name, one) for one in ids]


def test_a_group_goes_on_where_each_member_was_acked(stage: Stage) -> None:
    first, second = stage.group(**PATIENT), stage.group()
    assert (first.role, second.role) == (Role.ACTIVE, Role.STANDBY)
    assert not second.get_without_ack(timeout=0.1)
    for name in MEMBERS:
        stage.write(name, 3)
    done, *rest = taken(first, 9)
    first.ack(done)
    acked = rows_of(done)
    first.release()
    again = [row for message in taken(second, 9 - len(acked)) for row in rows_of(message)]
    with pytest.raises(canal.NotActiveError):
        first.ack(rest[0])
    for name in MEMBERS:
        assert [row for row in acked + again if row[0] == name] == rows(name, 0, 1, 2)
    assert len(acked + again) == 9
    session = stage.session()
    assert destinations(session) == ["d"]
    (client,) = look_at(session, "d").clients
    assert client.cursor is not None
    assert [name for name, _ in client.cursor.members] == sorted(MEMBERS)


@pytest.mark.parametrize("composed", ["group", "router"])
def test_who_was_overtaken_while_it_was_paused_is_refused(stage: Stage, composed: str) -> None:
    """Another process has taken over, and this one does not know yet."""
    if composed == "group":
        owner, ha = (instance := stage.group()), instance._ha
    else:
        router = stage.router()
        assert router._turns is not None
        owner, ha = router.outputs["all"], router._turns.monitor
    assert ha is not None
    stage.write("a", 2)
    message, *_ = taken(owner, 2)
    session, path = stage.session(), stage.config.destination_path("d", "epoch")
    epoch = session.get(path)
    assert epoch is not None
    session.write([Set(path, b"7", epoch.version)])
    with pytest.raises(canal.NotActiveError):
        owner.ack(message)
    until(lambda: ha.transitions[Role.ACTIVE] == 2)
    again = taken(owner, 2)
    assert [row for message in again for row in rows_of(message)] == rows("a", 0, 1)
    assert again[0].epoch == 8


def test_a_router_goes_on_where_each_output_was_acked(stage: Stage) -> None:
    first, second = stage.router(**PATIENT), stage.router()
    assert (first.role, second.role) == (Role.ACTIVE, Role.STANDBY)
    assert {output.role for output in second.outputs.values()} == {Role.STANDBY}
    assert not second.outputs["all"].get_without_ack(timeout=0.1)
    stage.write("a", 6)
    some, every = (taken(first.outputs[name], 6) for name in FILTERS)
    assert {message.epoch for message in (*some, *every)} == {1}
    for message in every[:-1]:
        first.outputs["all"].ack(message)
    first.outputs["some"].ack(some[0])
    first.release()
    assert second.wait_active(60)
    for name, acked, last in (("all", every[:-1], every[-1]), ("some", some[:1], some[-1])):
        done = [row for message in acked for row in rows_of(message)]
        again = taken(second.outputs[name], 6 - len(done))
        assert done + [row for message in again for row in rows_of(message)] == rows("a", *range(6))
        assert {message.epoch for message in again} == {2}
        with pytest.raises(canal.NotActiveError):
            first.outputs[name].ack(last)
        for message in again:
            second.outputs[name].ack(message)
    second.stop()
    end_wait_router(first, Role.ACTIVE)
    stage.write("a", 1)
    assert [[row for message in taken(output, 1) for row in rows_of(message)] for output in first.outputs.values()] == [
        rows("a", 6),
        rows("a", 6),
    ]
    assert stage.alarms == []


def end_wait_router(router: canal.server.RouterSink, then: Role) -> None:
    assert router._turns is not None
    monitor = router._turns.monitor
    end_wait(_Waits(monitor), then)  # type: ignore[arg-type]


class _Waits:
    def __init__(self, monitor: Any) -> None:
        self._ha = monitor

    @property
    def role(self) -> Role:
        role: Role = self._ha.role
        return role


def test_an_output_is_stopped_and_started_within_a_turn_and_out_of_it(stage: Stage) -> None:
    first, second = stage.router(**PATIENT), stage.router()
    stage.write("a", 1)
    for output in first.outputs.values():
        output.ack(*taken(output, 1))
    some, every = first.outputs.values()
    some.stop()
    assert (some.role, some.is_running, every.role) == (Role.OFFLINE, False, Role.ACTIVE)
    with pytest.raises(canal.StateError):
        some.get_without_ack()
    stage.write("a", 2)
    every.ack(*taken(every, 2)[-1:])
    some.start()
    assert [row for message in taken(some, 2) for row in rows_of(message)] == rows("a", 1, 2)

    other = second.outputs["some"]
    other.stop()
    first.stop()
    assert second.wait_active(60)
    assert other.role is Role.OFFLINE
    other.start()
    assert [row for message in taken(other, 2) for row in rows_of(message)] == rows("a", 1, 2)
    assert not second.outputs["all"].get_without_ack(timeout=0.2)


def test_whoever_looks_sees_who_runs_an_output_and_nobody_else_runs_it(stage: Stage) -> None:
    router = stage.router()
    session = stage.session()
    assert router._turns is not None
    monitor = router._turns.monitor
    path = stage.config.destination_path("some", "running")
    assert nodes.read_running(data_of(session, path) or b"") == (monitor.address, True)
    assert sorted(destinations(session)) == ["all", "d", "some"]
    assert look_at(session, "some").owner == monitor.address
    with pytest.raises(canal.CoordinationError, match="some is an output of the router d"):
        release(session, "some", 1.0)

    config = canal.InstanceConfig(destination="some", source=stage.logs["b"], ha=stage.config)
    with canal.Instance(config) as alone:
        alone.subscribe()
        assert alone.role is Role.STANDBY
        router.stop()
        assert data_of(session, path) is None
        assert alone.wait_active(60)
        router.start()
        until(lambda: any("runs some by itself" in text for text in stage.alarms))
        assert router.role is not Role.ACTIVE
    until(lambda: router.role is Role.ACTIVE)


def test_what_a_dead_owner_has_left_of_an_output_is_taken_over(stage: Stage) -> None:
    """Its session lives on, as that of a process that was told to let go and could not remove every node."""
    first, second = stage.router(**PATIENT), stage.router()
    assert first._turns is not None
    first._turns._let_go = lambda *arguments: None  # type: ignore[method-assign]
    first.release()
    assert second.wait_active(60)
    stage.write("a", 1)
    assert [row for message in taken(second.outputs["some"], 1) for row in rows_of(message)] == rows("a", 0)


def test_an_output_waits_for_the_router_and_a_stop_ends_that(stage: Stage) -> None:
    router = stage.router()
    router.stop()
    output = router.outputs["some"]
    output.start()
    with pytest.raises(canal.CoordinationError, match="the router does not run"):
        output.subscribe(timeout=0.1)
    failed: list[BaseException] = []

    def get() -> None:
        try:
            output.get_without_ack(timeout=None)
        except canal.StateError as error:
            failed.append(error)

    waiting = threading.Thread(target=get)
    waiting.start()
    output.stop()
    waiting.join(30)
    assert failed
    with pytest.raises(canal.StateError, match="has no ha"):
        canal.server.RouterSink(canal.InstanceConfig(destination="x", source=stage.logs["a"])).release()


def test_managers_of_one_process_are_refused(stage: Stage, tmp_path: Path) -> None:
    parser = canal.parse.BinlogParser(stage.logs["a"])
    for meta in (canal.MemoryMeta(), canal.FileMeta(tmp_path)):
        with pytest.raises(canal.ConfigError, match="one process's own"):
            canal.Instance.compose("d", parser=parser, meta=meta, ha=stage.config)
        router = canal.server.RouterSink(canal.InstanceConfig(destination="d", source=stage.logs["a"], ha=stage.config))
        with pytest.raises(canal.ConfigError, match="one process's own"):
            router.output("one", meta=meta)
        assert not router.outputs
    kept = canal.parse.GroupParser({"a": canal.parse.BinlogParser(stage.logs["a"], history=canal.FileHistory(tmp_path))})
    with pytest.raises(canal.ConfigError, match="FileHistory is one process's own"):
        canal.Instance.compose("d", parser=kept, ha=stage.config)
    assert isinstance(canal.Instance.compose("d", parser=parser, ha=stage.config).meta, ZooKeeperMeta)
