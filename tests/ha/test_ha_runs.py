"""Start and stop of instances that take turns, where canal calls its user, interrupted, and in forks."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

import canal
from canal.ha import Role
from canal.testing.zookeeper import ZooKeeperServer
from tests.support.ha_group import Group, read
from tests.support.stand_ins import Holding, alarm_clock
from tests.support.waiting import until


@pytest.fixture
def group(zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(zookeeper_server, zookeeper_root, stack)


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("canal-d-")]


def test_a_hook_may_stop_an_instance_that_takes_turns(group: Group) -> None:
    """It runs on the parser's thread, whose end the end of the turn waits for."""

    class Stopping(canal.Hook):
        def before(self, entries: list[canal.Entry]) -> Sequence[canal.Entry]:
            if not stopped:
                instance.stop()
                stopped.append(True)
                with pytest.raises(canal.StateError, match="has not ended"):
                    instance.start()
            return entries

    stopped: list[bool] = []
    instance = group.instance(hooks=[Stopping()], start="earliest")
    ids = group.write(3)
    until(lambda: stopped)
    instance.stop()
    assert threads() == []
    assert instance.role is Role.OFFLINE
    instance.start()
    instance.subscribe()
    read(instance, len(ids))


def test_an_alarm_of_the_monitor_may_stop_its_instance(group: Group) -> None:
    class Failing(canal.sink.EntrySink):
        def start(self, destination: str, store: Any) -> None:
            raise canal.CanalError("as a part that does not start")

    told: list[str] = []

    def alarm(destination: str, text: str) -> None:
        told.append(threading.current_thread().name)
        instance.stop()

    instance = canal.Instance(canal.InstanceConfig(destination="d", source=group.log, ha=group.config, alarm=alarm))
    instance.sink = Failing()
    with contextlib.suppress(canal.StateError):
        instance.start()
    until(lambda: told and not threads())
    assert told == ["canal-d-ha"]
    instance.sink = canal.sink.EntrySink()
    instance.start()
    instance.subscribe()
    assert instance.role is Role.ACTIVE
    instance.stop()
    assert threads() == []


def test_a_stop_of_an_instance_that_takes_turns_can_be_called_again(group: Group) -> None:
    hook = Holding()
    instance = group.instance(hooks=[hook], start="earliest")
    group.write(1)
    assert hook.entered.wait(60)
    with alarm_clock():
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                instance.stop()
            assert not instance.is_running
            assert "canal-d-ha" in threads()
    hook.go.set()
    instance.stop()
    assert threads() == []
    instance.start()
    instance.subscribe()
    read(instance, 1)


def test_threads_that_start_and_stop_an_instance_which_takes_turns(group: Group) -> None:
    instance = canal.Instance(canal.InstanceConfig(destination="d", source=group.log, ha=group.config, start="earliest"))
    unexpected: list[BaseException] = []

    def act(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(8):
            try:
                choice = rng.choice(["start", "start", "stop", "subscribe", "get"])
                if choice == "start":
                    instance.start()
                elif choice == "stop":
                    instance.stop()
                elif choice == "subscribe":
                    instance.subscribe(timeout=60)
                else:
                    instance.get_without_ack(timeout=0.01)
            except (canal.StateError, canal.errors.NotSubscribedError, canal.ConnectionLostError):
                pass  # not running, or another thread was quicker
            except BaseException as error:
                unexpected.append(error)

    for _ in range(3):
        workers = [threading.Thread(target=act, args=(seed,), daemon=True) for seed in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)
        assert not any(worker.is_alive() for worker in workers)
        assert unexpected == []
        instance.stop()
        assert threads() == []
        assert instance.role is Role.OFFLINE
    group.write(3)
    with instance:
        instance.subscribe()
        read(instance, 3)


def test_forks_of_one_process_that_have_not_started_yet_compete_with_each_other(group: Group) -> None:
    """Each has another address: else one would take the other's running node for one of its own that it left."""
    instance = canal.Instance(canal.InstanceConfig(destination="d", source=group.log, ha=group.config))
    (ours, theirs), (child_ready, go) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            instance.start()
            instance.subscribe()
            os.write(theirs, f"{instance._ha.address} {instance.role.value}\n".encode())  # type: ignore[union-attr]
            os.read(child_ready, 1)
        os._exit(0)
    try:
        address, role = os.read(ours, 1000).decode().split()
        assert role == "active"
        with instance:
            instance.subscribe()
            assert instance.role is Role.STANDBY
            assert instance._ha is not None
            assert instance._ha.address != address
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for one in (ours, theirs, child_ready, go):
            os.close(one)


def test_a_wait_for_the_source_names_the_seconds_that_were_asked_for(group: Group) -> None:
    """It is made of short waits, for the turn may end meanwhile."""
    instance = group.instance(subscribe=False, source=canal.MySQLSource(port=1))
    assert instance.wait_active(60)
    with pytest.raises(canal.ConnectionLostError, match=r"no start position within 0\.7 s"):
        instance.subscribe(timeout=0.7)


def test_alarms_of_turns_are_counted(group: Group) -> None:
    class Failing(canal.sink.EntrySink):
        def start(self, destination: str, store: Any) -> None:
            raise OSError("a full disk")

    told: list[str] = []
    instance = canal.Instance.compose(
        "d",
        parser=canal.parse.BinlogParser(group.log),
        sink=Failing(),
        ha=group.config,
        alarm=lambda destination, text: told.append(text),
    )
    with instance:
        until(lambda: told)
        assert instance.status().alarms >= 1
