"""What each failure does: the rows of the table in docs/high-availability.md that a process alone does not show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import attrs
import pytest

import canal
from canal.ha import Role
from canal.testing import FakeBinlog, FaultProxy, ZooKeeperEnsemble, ZooKeeperServer
from tests.support.ha_group import PATIENT, Group, hasty, ids_of, read
from tests.support.waiting import until


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def group(zookeeper_server: ZooKeeperServer, zookeeper_root: str, stack: ExitStack) -> Group:
    return Group(zookeeper_server, zookeeper_root, stack)


@pytest.fixture
def proxy(zookeeper_server: ZooKeeperServer, stack: ExitStack) -> FaultProxy:
    """A network of one process's own, between it and ZooKeeper."""
    proxy = FaultProxy("127.0.0.1", zookeeper_server.port).start()
    stack.callback(proxy.stop)
    return proxy


def turns(instance: canal.Instance) -> int:
    assert instance._ha is not None
    return instance._ha.transitions[Role.ACTIVE]


def passes(instance: canal.Instance) -> bool:
    assert instance._ha is not None
    return instance._ha.may_pass


def test_an_owner_that_stops_in_order_is_not_waited_for(group: Group) -> None:
    """Of the others nobody waits for its session; a restarted one not even for takeover_delay."""
    owner = group.instance(zookeeper={"session_timeout": 60.0})
    heir = group.instance(zookeeper={"session_timeout": 60.0})
    owner.stop()
    assert heir.wait_active(60)
    patient = group.instance(zookeeper=PATIENT)
    heir.stop()
    until(lambda: patient.role is Role.WAITING)
    restarted = group.instance(zookeeper=PATIENT)
    assert restarted.wait_active(60)
    until(lambda: patient.role is Role.STANDBY)


def test_an_owner_that_is_cut_off_from_zookeeper_for_long_loses_its_turn(group: Group, proxy: FaultProxy) -> None:
    """T91: the source still sends it everything."""
    owner = group.instance(zookeeper={"hosts": f"127.0.0.1:{proxy.port}", "session_timeout": 10.0})
    heir = group.instance()
    group.write(1)
    message = read(owner, 1)
    proxy.blackhole()
    assert heir.wait_active(60)
    assert not passes(owner)
    group.write(1)
    assert not owner.get_without_ack(timeout=0.2)
    with hasty(owner), pytest.raises(canal.NotActiveError):
        owner.ack(message.id)
    again = read(heir, 2)
    assert (ids_of(again), again.epoch) == ([0, 1], 2)
    heir.ack(again.id)

    proxy.blackhole(False)
    until(lambda: owner.role is Role.STANDBY)
    assert (turns(owner), turns(heir), heir.role) == (1, 1, Role.ACTIVE)


def test_an_owner_that_loses_its_connection_pauses_and_goes_on_in_the_same_turn(group: Group, proxy: FaultProxy) -> None:
    owner = group.instance(zookeeper={"hosts": f"127.0.0.1:{proxy.port}", "session_timeout": 30.0})
    other = group.instance(zookeeper={"session_timeout": 30.0})
    group.write(1)
    message = read(owner, 1)
    proxy.refuse()
    proxy.cut()
    until(lambda: owner.role is Role.SUSPENDED)
    group.write(1)
    assert not owner.get_without_ack(timeout=0.2)

    proxy.refuse(False)
    assert owner.wait_active(60)
    owner.ack(message.id)  # it was handed out in this turn
    again = read(owner, 1)
    assert (ids_of(again), again.epoch, turns(other)) == ([1], 1, 0)


def test_a_leader_that_dies_ends_no_turn(own_ensemble: ZooKeeperEnsemble, zookeeper_root: str, stack: ExitStack) -> None:
    group = Group(own_ensemble, zookeeper_root, stack)
    group.config = attrs.evolve(group.config, session_timeout=30.0)
    owner, other = group.instance(), group.instance()
    group.write(1)
    message = read(owner, 1)
    leader = own_ensemble.leader()
    leader.kill()
    own_ensemble.leader()
    until(lambda: owner._ha.session.is_connected and passes(owner))  # type: ignore[union-attr]
    group.write(1)
    acked = acked_somehow(owner, message)
    again = read(owner, 1 if acked else 2)
    owner.ack(again.id)
    assert (again.epoch, turns(other), owner.position()) == (1, 0, again.position)


def acked_somehow(instance: canal.Instance, message: canal.Message) -> bool:
    """An ack while a connection may end: it can be repeated until there is an answer."""
    answers: list[bool] = []

    def answered() -> bool:
        try:
            instance.ack(message.id)
        except canal.NotActiveError:
            answers.append(False)
        except canal.CoordinationError:
            return False
        else:
            answers.append(True)
        return True

    until(answered)
    return answers[0]


def test_without_a_majority_nobody_delivers(own_ensemble: ZooKeeperEnsemble, zookeeper_root: str, stack: ExitStack) -> None:
    group = Group(own_ensemble, zookeeper_root, stack)
    group.config = attrs.evolve(group.config, session_timeout=20.0)
    both = group.instance(), group.instance()
    group.write(1)
    message = read(both[0], 1)
    down = own_ensemble.members[:2]
    for member in down:
        member.kill()
    survivor = own_ensemble.members[2]
    until(lambda: survivor.mode() not in ("leader", "follower"))  # a leader serves on until it misses the others
    until(lambda: not any(passes(one) for one in both))
    until(lambda: all(one.role in (Role.SUSPENDED, Role.CONNECTING) for one in both))
    group.write(1)
    assert not any(one.get_without_ack(timeout=0.5) for one in both)
    with hasty(both[0]), pytest.raises(canal.NotActiveError):
        both[0].ack(message.id)

    down[0].start()
    until(lambda: any(passes(one) for one in both), 60)
    owner = next(one for one in both if passes(one))
    again = read(owner, 2)
    owner.ack(again.id)
    assert sum(passes(one) for one in both) == 1


@attrs.define(eq=False)
class Address:
    """Where a source answers, or nobody does."""

    log: FakeBinlog
    is_gone: bool = False
    tries: int = 0

    def connect(self, server_id_hint: int | None = None) -> Any:
        self.tries += 1
        if self.is_gone:
            raise canal.ConnectionLostError("nobody answers")
        return self.log.connect(server_id_hint)


def test_a_source_that_does_not_answer_ends_no_turn(group: Group) -> None:
    address = Address(group.log)
    owner = group.instance(source=address, reconnect_backoff=(0.01, 0.02))
    other = group.instance()
    group.write(1)
    owner.ack(read(owner, 1).id)
    address.is_gone, tried = True, address.tries
    group.log.cut_after(1)
    group.write(2)
    until(lambda: address.tries > tried + 20)
    assert (owner.role, other.role) == (Role.ACTIVE, Role.STANDBY)
    assert any("nobody answers" in alarm for alarm in group.alarms)

    address.is_gone = False
    found: list[int] = []
    while len(found) < 2:
        found += ids_of(owner.get(1000, timeout=60))
    assert found == [1, 2]
    assert (turns(owner), turns(other)) == (1, 0)


def test_a_parser_that_stops_is_told_to_the_owners_consumer_and_a_release_goes_on(group: Group) -> None:
    class Failing(canal.Hook):
        def before(self, entries: list[canal.Entry]) -> list[canal.Entry]:
            if any(row.after and row.after["id"] == 1 for entry in entries for row in entry.rows):
                raise ValueError("not this one")
            return entries

    owner, other = group.instance(hooks=[Failing()], zookeeper=PATIENT), group.instance()
    group.write(1)
    owner.ack(read(owner, 1).id)
    group.write(1)
    for _ in range(2):
        with pytest.raises(canal.errors.HookError):
            while True:
                assert not ids_of(owner.get(timeout=60))
    assert (owner.role, other.role, turns(owner)) == (Role.ACTIVE, Role.STANDBY, 1)
    assert isinstance(owner.error, canal.errors.HookError)
    assert any("has stopped" in alarm for alarm in group.alarms)

    owner.release()
    again = read(other, 1)
    assert (ids_of(again), again.epoch) == ([1], 2)
