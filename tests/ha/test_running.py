"""Several instances of one destination, a real ZooKeeper between them: turns, fences and the gate."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import attrs
import pytest

import canal
from canal.ha import Role, clock, nodes, running
from canal.ha.machine import Event
from canal.instance.delivery import Delivery
from canal.parse.schema.history import MemoryHistory
from canal.testing import FakeBinlog
from canal.testing.zookeeper import ZooKeeperServer
from canal.zookeeper.session import Create, Delete, Set
from tests.support.ha_group import PATIENT, Group, close_session, data_of, end_wait, hasty, ids_of, read
from tests.support.waiting import until


@pytest.fixture
def group(zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(zookeeper_server, zookeeper_root, stack)


def test_one_delivers_and_the_others_stand_by(group: Group) -> None:
    first, second = group.instance(), group.instance()
    assert (first.role, second.role) == (Role.ACTIVE, Role.STANDBY)
    assert [(status.role, status.role_changes["active"]) for status in (first.status(), second.status())] == [
        ("active", 1),
        ("standby", 0),
    ]
    group.write(2)
    message = read(first, 2)
    assert message.epoch == 1
    assert not second.get_without_ack(timeout=0.1)
    for refused in (lambda: second.ack(message.id), second.rollback, second.position, second.release):
        with pytest.raises(canal.NotActiveError):
            refused()
    first.ack(message.id)
    first.stop()
    group.write(1)
    message = read(second, 1)
    assert (ids_of(message), message.epoch, second.role) == ([2], 2, Role.ACTIVE)
    second.ack(message.id)
    assert group.session().children(group.path("cluster")) == [second._ha.address]  # type: ignore[union-attr]


def test_what_was_not_acked_comes_to_the_next_and_old_batches_are_refused(group: Group) -> None:
    first, second = group.instance(zookeeper=PATIENT), group.instance()
    group.write(3)
    message = read(first, 3)
    first.release()
    again = read(second, 3)
    assert ids_of(again) == ids_of(message)
    second.ack(again.id)
    with pytest.raises(canal.NotActiveError):
        first.ack(message.id)
    end_wait(first, Role.STANDBY)
    second.stop()
    end_wait(first, Role.ACTIVE)
    group.write(1)
    third = read(first, 1)
    assert third.id > message.id  # ids never repeat in a process
    with pytest.raises(canal.NotActiveError):
        first.ack(message.id)
    first.ack(third.id)
    assert third.epoch == 3


@pytest.mark.parametrize("when", ["behind_the_store", "in_the_last_look"])
def test_a_turn_that_ends_while_a_batch_is_taken_delivers_nothing(
    group: Group, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The process was stopped there for longer than its lease; what it has taken comes again, to whose turn it is then."""
    instance = group.instance()
    ha, client, consumer = instance._ha, instance._client(canal.instance.CLIENT_ID), threading.current_thread()
    get, take_back = client.get, canal.instance.ha_turns.take_back
    taken: list[int] = []
    held_for = 0.0

    def now() -> float:
        return time.monotonic() + (held_for if threading.current_thread() is consumer else 0.0)

    def hold() -> None:
        nonlocal held_for
        held_for = 1000.0 if len(taken) == 1 else 0.0

    def take(*arguments: Any) -> canal.Message:
        message = get(*arguments)
        if message:
            taken.append(message.id)
            if when == "behind_the_store":
                hold()
        return message

    def fence(self: Any) -> Any:
        if when == "in_the_last_look" and threading.current_thread() is consumer:
            hold()
        return self._fence

    def go_on(one: Any) -> None:
        taken.append(0)
        hold()
        take_back(one)

    monkeypatch.setattr("canal.ha.clock.now", now)
    monkeypatch.setattr("canal.instance.ha_turns.take_back", go_on)
    monkeypatch.setattr(client, "get", take)
    monkeypatch.setattr(type(ha), "fence", property(fence))
    group.write(2)
    message = instance.get_without_ack(1000, timeout=60, linger=0.2)
    assert ids_of(message) == [0, 1]
    assert [number > 0 for number in taken] == [True, False, True]


def test_an_operator_may_retire_the_owner_as_in_canal(group: Group) -> None:
    first, second = group.instance(zookeeper=PATIENT), group.instance()
    session = group.session()
    address, active = nodes.read_running(session.get(group.path("running")).data)  # type: ignore[union-attr]
    assert active
    session.write([Set(group.path("running"), nodes.running_document(address, False))])
    assert second.wait_active(60)
    end_wait(first, Role.STANDBY)


def test_an_operator_may_retire_a_client_as_in_canal(group: Group) -> None:
    """Whoever has the destination has its clients, so that a client goes to another process with all the others."""
    session, path = group.session(), group.path("1001", "running")
    first, second = group.instance(zookeeper=PATIENT), group.instance()
    until(lambda: session.get(path))
    group.write(1)
    message = read(first, 1)
    session.write([Set(path, nodes.running_document(first._ha.address, False, 1001))])  # type: ignore[union-attr]
    assert second.wait_active(60)
    with pytest.raises(canal.NotActiveError):
        first.ack(message.id)
    assert ids_of(read(second, 1)) == [0]
    until(lambda: data_of(session, path) == nodes.running_document(second._ha.address, client_id=1001))  # type: ignore[union-attr]

    session.write([Delete(path)])  # says nothing: it is written again
    until(lambda: session.get(path))
    assert second.role is Role.ACTIVE


def test_a_client_that_is_retired_with_nobody_to_take_it_goes_on_after_a_rest(group: Group) -> None:
    session, path = group.session(), group.path("1001", "running")
    owner = group.instance()
    until(lambda: session.get(path))
    session.write([Set(path, nodes.running_document(owner._ha.address, False, 1001))])  # type: ignore[union-attr]
    until(lambda: owner._ha.transitions[Role.ACTIVE] == 2)  # type: ignore[union-attr]
    assert owner._ha.transitions[Role.RESTING] == 1  # type: ignore[union-attr]


def test_an_owner_whose_session_ends_stops_and_takes_it_up_again(group: Group, zookeeper_server: ZooKeeperServer) -> None:
    owner = group.instance()
    group.write(1)
    message = read(owner, 1)
    close_session(owner)
    until(lambda: owner._ha.transitions[Role.ACTIVE] == 2)  # type: ignore[union-attr]
    with pytest.raises(canal.NotActiveError):
        owner.ack(message.id)
    again = read(owner, 1)
    assert (ids_of(again), again.epoch) == ([0], 2)


def test_a_zombie_can_neither_deliver_nor_ack(group: Group) -> None:
    """T91: another process has taken over, and this one does not know yet."""
    owner = group.instance()
    group.write(2)
    message = read(owner, 2)
    session = group.session()
    epoch = session.get(group.path("epoch"))
    assert epoch is not None
    session.write([Set(group.path("epoch"), b"7", epoch.version)])
    with pytest.raises(canal.NotActiveError):
        owner.ack(message.id)
    until(lambda: owner._ha.transitions[Role.ACTIVE] == 2)  # type: ignore[union-attr]
    again = read(owner, 2)
    assert (ids_of(again), again.epoch) == ([0, 1], 8)


def test_a_refusal_that_comes_late_ends_no_later_turn(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """A get that began in one turn is refused when the same process has the next one."""
    owner = group.instance()
    ha = owner._ha
    assert ha is not None
    group.write(1)
    genuine = Delivery.get
    refused: list[str] = []

    def get(client: Delivery, *arguments: Any) -> canal.Message:
        if not refused:
            close_session(owner)
            until(lambda: ha.transitions[Role.ACTIVE] == 2)
            refused.append("now")
            raise canal.NotActiveError("of the first turn")
        return genuine(client, *arguments)

    monkeypatch.setattr(Delivery, "get", get)
    message = owner.get_without_ack(timeout=60)
    assert (ids_of(message), message.epoch, refused) == ([0], 2, ["now"])
    first = attrs.evolve(ha.fence, epoch=1)  # type: ignore[type-var]
    ha.fenced(first)
    assert ha.may_pass
    ha._events.put(running._OfTurn(Event.FENCED, first))
    ha._events.put(running._OfTurn(Event.RELEASE, first))
    until(lambda: ha._events.empty())
    group.write(1)
    read(owner, 1)
    owner.ack(message.id)
    assert (owner.role, ha.transitions[Role.ACTIVE]) == (Role.ACTIVE, 2)


def test_a_lease_that_is_over_shuts_the_gate(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after SIGSTOP: nothing has told this process yet that its session is over."""
    owner = group.instance()
    group.write(1)
    message = read(owner, 1)
    group.write(1)
    ha = owner._ha
    assert ha is not None
    monkeypatch.setattr(ha.gate, "renew", lambda look, timeout: None)
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + 100.0)
    assert not ha.may_pass
    assert not owner.get_without_ack(timeout=0.2)
    with hasty(owner), pytest.raises(canal.NotActiveError):
        owner.ack(message.id)
    assert owner.role is Role.ACTIVE

    monkeypatch.undo()  # contact is there again, and nobody has taken over: the refusal stands, so it comes again
    again = read(owner, 2)
    assert (ids_of(again), again.epoch) == ([0, 1], 1)
    with pytest.raises(canal.NotActiveError):
        owner.ack(message.id)
    owner.ack(again.id)


def test_what_a_cut_off_owner_was_refused_comes_again_when_its_session_goes_on(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several batches are in hand, and the consumer drops each whose ack is refused."""
    owner = group.instance()
    group.write(3)
    batches = [owner.get_without_ack(1, timeout=60) for _ in range(2)]
    with monkeypatch.context() as cut_off:
        assert owner._ha is not None
        cut_off.setattr(owner._ha.gate, "renew", lambda look, timeout: None)
        now = clock.now
        cut_off.setattr(clock, "now", lambda: now() + 100.0)
        with hasty(owner), pytest.raises(canal.NotActiveError):
            owner.ack(batches[0].id)
    assert owner.wait_active(60)
    with pytest.raises(canal.NotActiveError):
        owner.ack(batches[1].id)
    again = read(owner, 3)
    assert (ids_of(again), again.epoch) == ([0, 1, 2], batches[0].epoch)
    owner.ack(again.id)


def test_contact_that_is_lost_and_found_during_a_look_shuts_the_gate_for_a_moment_only(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = group.instance()
    ha = owner._ha
    assert ha is not None
    look = ha._look
    passed: list[bool] = []

    def lose_and_find(watch: bool = True) -> Event | None:
        passed.append(ha.may_pass)
        genuine = ha.session.get
        with monkeypatch.context() as patch:
            if len(passed) == 1:

                def get(*arguments: Any) -> Any:
                    ha.gate.lose_contact()
                    return genuine(*arguments)

                patch.setattr(ha.session, "get", get)
            return look(watch)

    monkeypatch.setattr(ha, "_look", lose_and_find)
    until(lambda: len(passed) > 1)
    assert passed[1] is False  # the look during which it was proves nothing
    assert owner.wait_active(60)
    group.write(1)
    owner.ack(read(owner, 1).id)


def test_a_start_that_fails_gives_the_node_up(group: Group) -> None:
    class Broken(canal.sink.EntrySink):
        fails = True

        def start(self, destination: str, store: Any) -> None:
            if self.fails:
                raise canal.errors.StoreError("a full disk")
            super().start(destination, store)

    first = group.instance(subscribe=False)
    first.stop()
    sink = first.sink = Broken()
    first.start()
    until(lambda: group.alarms)
    assert "a full disk" in group.alarms[0]
    second = group.instance()
    assert second.wait_active(60)
    second.stop()
    sink.fails = False
    assert first.wait_active(60)


def test_who_is_overtaken_while_he_starts_stands_by_without_an_alarm(group: Group) -> None:
    class Overtaken(canal.sink.EntrySink):
        starts = 0

        def start(self, destination: str, store: Any) -> None:
            self.starts += 1
            if self.starts == 2:
                raise canal.NotActiveError("another process has taken over")
            super().start(destination, store)

    instance = group.instance()
    instance.stop()
    sink = instance.sink = Overtaken()
    sink.starts = 1
    instance.start()
    assert instance.wait_active(20)
    assert (sink.starts, group.alarms) == (3, [])


def test_a_leftover_node_of_a_dead_session_is_taken_up_at_once(group: Group) -> None:
    instance = group.instance(subscribe=False, zookeeper={"takeover_delay": 60.0})
    assert instance.wait_active(20)
    instance.stop()
    session = group.session()
    ha = instance._ha
    assert ha is not None
    session.write([Create(group.path("running"), nodes.running_document(ha.address), ephemeral=True)])
    instance.start()
    assert instance.wait_active(20)


def test_the_owner_goes_first_and_others_wait(group: Group) -> None:
    first, second = group.instance(zookeeper=PATIENT), group.instance(zookeeper=PATIENT)
    close_session(first)
    until(lambda: first._ha.transitions[Role.ACTIVE] == 2)  # type: ignore[union-attr]
    assert second.role in (Role.WAITING, Role.STANDBY)


def test_the_owner_writes_the_running_nodes_of_its_clients(group: Group) -> None:
    session = group.session()
    first, second = group.instance(zookeeper=PATIENT), group.instance()

    def running_of(client_id: int) -> dict[str, Any] | None:
        node = session.get(group.path(str(client_id), "running"))
        return None if node is None else json.loads(node.data)

    def is_of(instance: canal.Instance, client_id: int) -> bool:
        found, ha = running_of(client_id), instance._ha
        assert ha is not None
        return found == {"active": True, "address": ha.address, "clientId": client_id}

    until(lambda: is_of(first, 1001))
    node = session.get(group.path("1001", "running"))
    assert node is not None
    assert node.owner == first._ha.session.id  # type: ignore[union-attr]
    assert node.data.startswith(b'{"active":true,"address":"')
    first.subscribe(7)
    until(lambda: is_of(first, 7))
    first.unsubscribe(7)
    assert session.children(group.path("7")) == []
    first.subscribe(7)
    until(lambda: is_of(first, 7))
    first.release()
    until(lambda: is_of(second, 1001) and is_of(second, 7))
    second.stop()
    assert running_of(1001) is running_of(7) is None
    assert session.get(group.path("1001", "cursor")) is not None


def test_a_clients_running_node_of_somebody_else_is_left_until_it_goes(group: Group) -> None:
    """canal's own client waits there for a server of canal's."""
    theirs, path = group.session(), group.path("1001", "running")
    theirs.make(group.path("1001"))
    data = b'{"active":true,"address":"10.0.0.9:50112","clientId":1001}'
    theirs.write([Create(path, data, ephemeral=True)])
    owner = group.instance()
    group.write(1)
    owner.ack(read(owner, 1).id)
    assert theirs.get(path).data == data  # type: ignore[union-attr]
    theirs.close()
    session = group.session()
    until(lambda: session.get(path) is not None and session.get(path).owner == owner._ha.session.id)  # type: ignore[union-attr]


def test_members_are_seen_also_after_a_new_session(group: Group) -> None:
    session = group.session()
    first, second = group.instance(), group.instance()
    paths = group.path("cluster"), f"{group.config.root}/cluster"
    both = sorted(one._ha.address for one in (first, second))  # type: ignore[union-attr]
    for member in (first, second):
        close_session(member)
        for path in paths:
            until(lambda path=path: session.children(path) == both)  # type: ignore[misc]
    nodes = [session.get(f"{path}/{both[0]}") for path in paths]
    assert all(node is not None and node.data == b"" and node.owner for node in nodes)
    second.stop()
    assert [session.children(path) for path in paths] == [[first._ha.address]] * 2  # type: ignore[union-attr]


@pytest.mark.parametrize("ahead", [False, True], ids=["stream", "decoded"])
def test_a_loop_runs_everywhere(group: Group, ahead: bool) -> None:
    instances = [group.instance() for _ in range(3)]
    got: list[int] = []
    done = threading.Event()

    def consume(instance: canal.Instance) -> None:
        decoded = (
            (ids_of(message) for message in instance.stream(poll=0.1))
            if not ahead
            else (found for _, found in instance.decoded(ids_of, 1, decode_threads=3, poll=0.1))
        )
        try:
            for found in decoded:
                got.extend(found)
                if done.is_set():
                    return
        except canal.StateError:
            pass  # stopped

    threads = [threading.Thread(target=consume, args=(instance,), daemon=True) for instance in instances]
    for thread in threads:
        thread.start()
    for turn in range(3):
        group.write(2)
        until(lambda: len(set(got)) == 2 * (turn + 1))  # noqa: B023
        if turn < 2:
            until(lambda: any(one.role is Role.ACTIVE for one in instances))
            next(one for one in instances if one.role is Role.ACTIVE).release()
    done.set()
    for instance in instances:
        instance.stop()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    first_seen = list(dict.fromkeys(got))
    assert first_seen == sorted(first_seen) == list(range(6))


def pass_on(owner: canal.Instance, heir: canal.Instance) -> None:
    """It is the heir's turn, and the owner stands by."""
    owner.release()
    end_wait(heir, Role.ACTIVE)
    assert heir.wait_active(60)
    end_wait(owner, Role.STANDBY)


def test_unsubscribe_is_not_undone_by_a_process_that_has_subscribed_before(group: Group) -> None:
    first, second = group.instance(zookeeper=PATIENT), group.instance(zookeeper=PATIENT)
    first.subscribe(1002)
    second.subscribe(1002)
    first.unsubscribe(1002)
    pass_on(first, second)
    assert second.subscriptions() == {1001: ""}
    second.unsubscribe(1001)
    pass_on(second, first)  # which has subscribed it while active
    assert first.subscriptions() == {}
    assert data_of(group.session(), group.path("1001", "cursor")) is None


def test_a_client_that_subscribes_again_in_standby_is_subscribed_in_the_turn(group: Group) -> None:
    first, second = group.instance(zookeeper=PATIENT), group.instance(zookeeper=PATIENT)
    first.unsubscribe()
    second.subscribe(filter=r"shop\.orders")
    pass_on(first, second)
    assert second.subscriptions() == {1001: r"shop\.orders"}


def test_the_filter_of_the_last_subscribe_counts_whichever_process_it_was(group: Group) -> None:
    first = group.instance(zookeeper=PATIENT, subscribe=False)
    first.subscribe(filter="one")
    second = group.instance(zookeeper=PATIENT, subscribe=False)
    second.subscribe(filter="two")
    pass_on(first, second)
    assert second.subscriptions() == {1001: "two"}
    first.subscribe(filter="three")
    second.subscribe(filter="four")
    pass_on(second, first)
    assert first.subscriptions() == {1001: "four"}


def test_a_subscription_that_is_noted_in_standby_is_made_when_the_turn_comes(group: Group) -> None:
    first = group.instance(subscribe=False)
    assert first.wait_active(20)
    second = group.instance(subscribe=False)
    second.subscribe(7, "shop\\..*")
    assert first.subscriptions() == {}
    first.stop()
    assert second.wait_active(20)
    assert second.subscriptions() == {7: "shop\\..*"}


@pytest.mark.parametrize("in_order", [True, False])
def test_a_write_behind_manager_repeats_what_it_had_no_time_to_write(group: Group, in_order: bool) -> None:
    """A stop in order writes it, the end of the session does not."""
    owner, heir = (
        group.instance(meta=canal.meta.PeriodMixedMeta(group.config, interval=3600.0), zookeeper=PATIENT) for _ in range(2)
    )
    group.write(2)
    owner.ack(read(owner, 2).id)
    if in_order:
        owner.stop()
    else:
        close_session(owner)
        until(lambda: owner._ha.transitions[Role.ACTIVE] == 2)  # type: ignore[union-attr]
        assert ids_of(read(owner, 2)) == [0, 1]
        owner.release()
        until(lambda: owner.role is Role.RESTING)
    end_wait(heir, Role.ACTIVE)
    assert heir.wait_active(60)
    group.write(1)
    expected = [2] if in_order else [0, 1, 2]
    assert ids_of(read(heir, len(expected))) == expected


def test_canals_filter_is_kept_when_none_is_given(group: Group) -> None:
    """With canal's cursor, and of a client that has subscribed and never acked; by whoever has the turn."""
    session = group.session()
    theirs = {"@type": "com.alibaba.otter.canal.protocol.position.LogPosition", **group.log.position.to_canal()}
    for client_id in (1001, 1002):
        session.make(group.path(str(client_id), "filter"))
        session.write([Set(group.path(str(client_id), "filter"), rb"shop\.other")])
    session.make(group.path("1001", "cursor"))
    session.write([Set(group.path("1001", "cursor"), json.dumps(theirs).encode())])
    first, second = group.instance(), group.instance()
    first.subscribe(1002)
    second.subscribe(1002)
    expected = {1001: r"shop\.other", 1002: r"shop\.other"}
    assert first.subscriptions() == expected
    second.subscribe(1002, r"shop\.orders")  # noted for its turn
    second.subscribe(1002)
    group.write(1)
    assert not first.get_without_ack(timeout=0.2)
    assert not first.get_without_ack(timeout=0.2, client_id=1002)
    assert session.get(group.path("1001", "filter")).data == rb"shop\.other"  # type: ignore[union-attr]
    first.stop()
    assert second.wait_active(20)
    assert second.subscriptions() == expected | {1002: r"shop\.orders"}
    second.subscribe(1001, "")
    assert session.get(group.path("1001", "filter")).data == b""  # type: ignore[union-attr]
    group.write(1)
    assert ids_of(second.get_without_ack(timeout=60))


def test_without_zookeeper_nothing_starts_and_a_stop_is_quick(own_zookeeper: ZooKeeperServer, zookeeper_root: str) -> None:
    with ExitStack() as stack:
        group = Group(own_zookeeper, zookeeper_root, stack)
        group.config = attrs.evolve(group.config, session_timeout=3600.0)  # for which a stop does not wait
        own_zookeeper.kill()
        instance = group.instance(subscribe=False)
        until(lambda: instance.role is Role.CONNECTING)
        with pytest.raises(canal.CoordinationError, match="connecting"):
            instance.subscribe(timeout=0.5)
        assert not instance.get_without_ack(timeout=0.1)
        instance.stop()
        instance.start()
        own_zookeeper.start()
        assert instance.wait_active(60)


def test_a_start_before_the_last_run_has_ended_is_refused(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop does not wait for ever, as for a hook that does not return."""
    instance = group.instance()
    ha = instance._ha
    assert ha is not None
    asked, let, stop_parts = threading.Event(), threading.Event(), ha._parts.stop_parts

    def stop_late() -> None:
        asked.set()
        assert let.wait(60)
        stop_parts()

    monkeypatch.setattr(ha._parts, "stop_parts", stop_late)
    monkeypatch.setattr(ha, "stop", partial(ha.stop, 0.1))
    instance.stop()
    assert asked.wait(60)
    with pytest.raises(canal.StateError, match="has not ended yet"):
        instance.start()
    assert not instance.is_running
    let.set()

    def starts() -> bool:
        with suppress(canal.StateError):
            instance.start()
        return instance.is_running

    until(starts)
    assert instance.wait_active(60)


def test_no_thread_is_left(group: Group) -> None:
    instance = group.instance()
    instance.stop()
    until(lambda: not [one for one in threading.enumerate() if one.name.startswith("canal-d")])


def test_managers_of_one_process_are_refused(group: Group, tmp_path: Any) -> None:
    for meta in (canal.MemoryMeta(), canal.FileMeta(tmp_path)):
        with pytest.raises(canal.ConfigError, match="one process's own"):
            canal.InstanceConfig(destination="d", source=group.log, ha=group.config, meta=meta)


def test_schemas_that_one_process_keeps_are_not_believed_in_its_next_turn(group: Group, tmp_path: Any) -> None:
    """Another one has followed a change that gives two columns other names and moves no value."""
    log = FakeBinlog(metadata="MINIMAL")
    table = log.table("shop", "swaps", "id INT PRIMARY KEY, one INT, two INT")

    def process(**options: Any) -> canal.Instance:
        return group.instance(source=log, schema_history=MemoryHistory(), zookeeper=options)

    def row_of(instance: canal.Instance) -> dict[str, Any]:
        message = read(instance, 1)
        instance.ack(message)
        (row,) = [row for entry in message.entries for row in entry.rows]
        return dict(row.after or {})

    first, second = process(**PATIENT), process()
    table.insert({"id": 1, "one": 10, "two": 20})
    assert row_of(first) == {"id": 1, "one": 10, "two": 20}
    first.release()
    assert second.wait_active(60)
    changed = "ALTER TABLE shop.swaps RENAME COLUMN one TO three, RENAME COLUMN two TO one"
    table.alter(changed, "id INT PRIMARY KEY, three INT, one INT")
    table.insert({"id": 2, "three": 11, "one": 21})
    assert row_of(second) == {"id": 2, "three": 11, "one": 21}
    second.stop()
    end_wait(first, Role.ACTIVE)
    table.insert({"id": 3, "three": 12, "one": 22})
    assert row_of(first) == {"id": 3, "three": 12, "one": 22}

    with pytest.raises(canal.ConfigError, match="FileHistory is one process's own"):
        canal.InstanceConfig(destination="d", source=log, ha=group.config, schema_history=canal.FileHistory(tmp_path))


def test_an_operator_ends_one_client_though_the_node_of_another_cannot_be_read(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = group.instance()
    ha = owner._ha
    assert ha is not None
    session, path = group.session(), group.path("1001", "running")
    until(lambda: data_of(session, path))
    genuine = ha.session.get

    def get(node: str, *arguments: Any) -> Any:
        if node == group.path("1002", "running"):
            raise canal.CoordinationError("no right to read it")
        return genuine(node, *arguments)

    monkeypatch.setattr(ha.session, "get", get)
    owner.subscribe(client_id=1002)
    session.write([Set(path, nodes.running_document(ha.address, False, 1001))])
    until(lambda: ha.transitions[Role.RESTING] == 1)
