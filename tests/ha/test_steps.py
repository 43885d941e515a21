"""A process is held before each step of a get and an ack, while another one takes over, delivers and acks.

Two instances stand for two processes, each with a clock of its own: while one is held its session ends and its lease too, and
it hears of that only when it goes on. The judge of the fault runs reads what both wrote down.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import canal
from canal.ha import Role
from canal.testing.zookeeper import ZooKeeperServer
from tests.programs.ha_child import log_position
from tests.support.ha_group import Group, end_session, end_wait
from tests.support.ha_journal import Record, judge
from tests.support.journal import changes_of
from tests.support.steps import Steps, ThreadStepper, is_monitor
from tests.support.waiting import until


class Process:
    """An instance, and what its consumer writes down."""

    def __init__(self, group: Group) -> None:
        before = set(threading.enumerate())
        self.instance = group.instance(subscribe=False, start="earliest", zookeeper={"takeover_delay": 0.05})
        self.ha: Any = self.instance._ha
        (self.monitor,) = filter(is_monitor, set(threading.enumerate()) - before)
        self.threads = {self.monitor}
        self.records: list[Record] = []
        self.ahead = 0.0
        """Seconds that its clock has gone on while it was held."""

    def cycle(self, timeout: float = 60.0) -> None:
        """Get a batch and ack it."""
        asked = time.monotonic()
        message = self.instance.get_without_ack(1000, timeout=timeout)
        came = time.monotonic()
        if not message:
            return
        pieces = [
            (log_position(entry.position), list(changes_of([entry])))
            for entry in message.entries
            if entry.entry_type is not canal.EntryType.TRANSACTIONBEGIN
        ]
        self.records.append(("GOT", message.epoch, message.id, asked, came, log_position(message.position), pieces))
        self.records.append(("ACKING", message.epoch, message.id, time.monotonic()))
        answer = "ACKED"
        try:
            self.instance.ack(message.id)
        except canal.NotActiveError:
            answer = "REFUSED"
        except canal.CanalError:
            answer = "UNKNOWN"
        self.records.append((answer, message.epoch, message.id, time.monotonic()))

    def consume(self, timeout: float = 60.0) -> None:
        """A cycle by its own clock."""
        thread = threading.Thread(target=self.cycle, args=(timeout,), name="consumer")
        self.threads.add(thread)
        thread.start()
        thread.join(120)
        assert not thread.is_alive()

    def is_active(self) -> bool:
        return self.instance.role is Role.ACTIVE

    def has_entries(self, count: int) -> bool:
        """So many wait for an ack."""
        return any((client.unacked_entries or 0) >= count for client in self.instance.status().clients)

    @contextlib.contextmanager
    def deaf(self) -> Iterator[None]:
        """It hears nothing of its session, and its election stands still."""
        tell, take, heard, go = self.ha.session._changed, self.ha._take, [], threading.Event()

        def take_later(event: Any) -> Any:
            go.wait(60)
            return take(event)

        self.ha.session._changed, self.ha._take = heard.append, take_later
        try:
            yield
        finally:
            self.ha.session._changed = tell
            for state in heard:
                tell(state)
            del self.ha._take
            go.set()


class Stage:
    """Two processes, one of which is held at a step."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.steps = Steps(self._hold)
        self.is_held, self.go = threading.Event(), threading.Event()
        threading.settrace(self.steps._enter_thread)
        self.owner, self.other = Process(group), Process(group)
        self.owner.instance.subscribe(timeout=60)
        self.other.instance.subscribe(timeout=60)
        until(lambda: self.owner.is_active() or self.other.is_active())
        self._look()

    def now(self) -> float:
        thread = threading.current_thread()
        return time.monotonic() + sum(one.ahead for one in (self.owner, self.other) if thread in one.threads)

    def _look(self) -> None:
        if self.other.is_active():
            self.owner, self.other = self.other, self.owner

    def _hold(self, step: str) -> None:
        self.is_held.set()
        assert self.go.wait(60)

    def hold(self, process: Process, thread: threading.Thread, count: int) -> bool:
        """Start it and let it come to its step; False where it comes to its end before."""
        self.is_held.clear()
        self.go.clear()
        process.threads.add(thread)
        self.steps.arm(thread, count)
        thread.start()
        until(lambda: self.is_held.is_set() or not thread.is_alive())
        self.steps.disarm()
        return self.is_held.is_set()

    def consume_with_a_pause(self, count: int) -> bool:
        """The owner is held at a step of a get or an ack."""
        owner, other = self.owner, self.other
        thread = threading.Thread(target=self._cycle, args=(owner,), name="consumer")
        self.group.write(2)
        until(lambda: owner.has_entries(6))  # each row with its BEGIN and END
        is_held = self.hold(owner, thread, count)
        if is_held:
            with owner.deaf():
                end_session(owner.ha.session)
                until(other.is_active)
                self.group.write(1)
                other.consume()
                owner.ahead += 1000.0
                self.go.set()
                thread.join(0.5)  # what waits for its election waits for the end of its deafness
        thread.join(60)
        assert not thread.is_alive()
        self._settle()
        return is_held

    def claim_with_a_pause(self, count: int) -> bool:
        """The next owner is held at a step of its take-over, and the one before takes its turn again meanwhile."""
        owner, other = self.owner, self.other
        self.group.write(1)
        self.is_held.clear()
        self.go.clear()
        self.steps.arm(other.monitor, count)
        owner.instance.release()
        until(lambda: self.is_held.is_set() or other.is_active())
        self.steps.disarm()
        is_held = self.is_held.is_set()
        if is_held:
            with other.deaf():
                end_session(other.ha.session)
                end_wait(owner.instance, Role.ACTIVE)
                self.group.write(1)
                owner.consume()
                other.ahead += 1000.0
                self.go.set()
                other.consume(timeout=0.3)  # whatever it takes itself for
        self._settle()
        return is_held

    def _cycle(self, process: Process) -> None:
        self.steps.follow()
        process.cycle(timeout=0.3)

    def _settle(self) -> None:
        """Until one of them is active and the other one stands by."""
        until(lambda: any(one.is_active() for one in (self.owner, self.other)))
        self._look()
        end_wait(self.other.instance, Role.STANDBY)

    def finish(self) -> None:
        """Everything that was written came, in order, and nothing in two turns at once."""
        self.group.write(1)
        while (_ := self.owner.records[-1:]) and not self._is_all_acked():
            self.owner.consume()
        verdict = judge([self.owner.records, self.other.records])
        assert verdict.violations == []
        assert [change[4]["id"] for change in verdict.changes if change[4]] == list(range(self.group._written))

    def _is_all_acked(self) -> bool:
        kind, *values = self.owner.records[-1]
        got = [record for record in self.owner.records if record[0] == "GOT" and list(record[1:3]) == values[:2]]
        ids = [change[4]["id"] for _, changes in got[-1][6] for change in changes if change[4]]
        return kind == "ACKED" and ids[-1:] == [self.group._written - 1]


@pytest.fixture
def stage(zookeeper_server: ZooKeeperServer, zookeeper_root: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with ExitStack() as stack:
        stack.callback(threading.settrace, None)  # type: ignore[arg-type]
        monkeypatch.setattr("canal.ha.running.Stepper", ThreadStepper)
        stage = Stage(Group(zookeeper_server, zookeeper_root, stack))
        monkeypatch.setattr("canal.ha.clock.now", stage.now)
        stack.callback(stage.go.set)
        yield stage


@pytest.mark.timeout(1800)
def test_a_consumer_that_is_held_between_any_two_steps_of_get_and_ack(stage: Stage, full_size: bool) -> None:
    """Each step in `make soak`; in `make test` those of the look at the clock and one in ten of the others."""
    assert not stage.consume_with_a_pause(1_000_000), "it was held by no step"
    passed = list(stage.steps.passed)
    first = {name: count for count, name in reversed(list(enumerate(passed, 1)))}
    looks = ("Turns.get", "RunningMonitor", "Gate")
    last_looks = {count for name, count in first.items() if name.startswith(looks)}
    held = [
        stage.consume_with_a_pause(count)
        for count in range(1, len(passed) + 1)
        if full_size or count % 10 == 1 or count in last_looks
    ]
    assert sum(held) > 20
    stage.finish()


@pytest.mark.timeout(1800)
def test_who_is_held_between_any_two_steps_of_a_take_over(stage: Stage, full_size: bool) -> None:
    """Each step in `make soak`, one in fifteen in `make test`."""
    assert not stage.claim_with_a_pause(1_000_000), "it was held by no step"
    passed = list(stage.steps.passed)
    assert any(name.startswith("RunningMonitor._claim: versions = self.session.write") for name in passed)
    held = [stage.claim_with_a_pause(count) for count in range(1, len(passed) + 1) if full_size or count % 15 == 1]
    print(f"{sum(held)} of {len(passed)} steps")
    assert sum(held) > 10
    stage.finish()
