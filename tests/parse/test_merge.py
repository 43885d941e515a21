"""Whose turn it is in a group: times, heartbeats, members that stall, large transactions. No log and no parser."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

import canal
from canal.alarm import AlarmDesk
from canal.parse.merge import Lane, Merge
from tests.support.stand_ins import Piece
from tests.support.waiting import until


class Group:
    """A merge whose clock and whose members' heartbeats the test sets."""

    def __init__(
        self, names: str, *, by_time: bool = True, idle: float = 2.0, stalled: float = 60.0, goes_on: bool = False, torn: str = ""
    ) -> None:
        self.now = 0.0
        self.said = dict.fromkeys(names, 0.0)
        self.passed: list[Piece] = []
        self.told: list[Any] = []
        desk = AlarmDesk(lambda destination, message: self.told.append(message))
        lanes = [Lane(name, lambda name=name: self.said[name]) for name in names]  # type: ignore[misc]
        self.merge = Merge(lanes, by_time, idle, stalled, goes_on, desk, torn, clock=lambda: self.now)
        self.threads: list[threading.Thread] = []

    def give(self, *pieces: Piece) -> threading.Thread:
        """On a thread of the member's."""

        def work() -> None:
            try:
                self.merge.pass_on(pieces[0].member, list(pieces), self.passed.extend)  # type: ignore[arg-type]
            except canal.errors.StoreClosedError:
                pass

        thread = threading.Thread(target=work, daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread

    def waits(self, thread: threading.Thread, *passed: int) -> None:
        """It has looked at the others, and waits."""
        thread.join(0.25)
        assert thread.is_alive()
        assert self.times == list(passed)

    def goes(self, thread: threading.Thread, *passed: int) -> None:
        thread.join(60)
        assert not thread.is_alive()
        assert self.times == list(passed)

    @property
    def times(self) -> list[int]:
        return [piece.timestamp for piece in self.passed]

    def stop(self) -> None:
        self.merge.stop()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


def test_later_transaction_waits_for_other_member() -> None:
    group = Group("ab")

    first = group.give(Piece("a", 10), Piece("a", 12))
    group.waits(first)
    group.goes(group.give(Piece("b", 11)), 10, 11)
    group.waits(first, 10, 11)
    second = group.give(Piece("b", 12), Piece("b", 20))  # of one second, in whatever order

    first.join(60)
    assert group.times[2:4] == [12, 12]
    group.waits(second, 10, 11, 12, 12)
    group.stop()


def test_heartbeat_passes_transactions_older_than_idle_after() -> None:
    group = Group("ab", idle=2.0)
    group.said["b"] = 11.9

    first = group.give(Piece("a", 10))
    group.waits(first)
    group.said["b"] = 12.0
    group.goes(first, 10)

    assert group.merge.late == 0
    group.stop()


def test_transaction_older_than_heartbeat_is_late_and_delivered() -> None:
    group = Group("ab", idle=0)
    group.said["b"] = 10.0
    group.goes(group.give(Piece("a", 10)), 10)

    group.goes(group.give(Piece("b", 7)), 10, 7)

    assert group.merge.late == 1
    group.stop()


def test_transaction_before_end_of_pieces_is_late() -> None:
    group = Group("ab")
    group.said["b"] = 100.0
    group.goes(group.give(Piece("a", 10, is_end=False)), 10)
    group.goes(group.give(Piece("a", 13)), 10, 13)

    group.goes(group.give(Piece("b", 11)), 10, 13, 11)

    assert group.merge.late == 1
    group.stop()


def test_transaction_before_resumed_transaction_is_late() -> None:
    group = Group("ab", torn="a")
    group.goes(group.give(Piece("a", 13)), 13)

    group.goes(group.give(Piece("b", 11)), 13, 11)

    assert group.merge.late == 1
    group.stop()


def test_member_with_clock_set_back_keeps_log_order() -> None:
    group = Group("ab")

    first = group.give(Piece("a", 10), Piece("a", 5), Piece("a", 11))
    group.waits(first)
    group.give(Piece("b", 10))
    until(lambda: len(group.passed) == 3)

    assert [piece.timestamp for piece in group.passed if piece.member == "a"] == [10, 5]
    group.stop()


def test_order_arrival_passes_first_arrived_without_waiting() -> None:
    group = Group("abc", by_time=False)

    group.goes(group.give(Piece("a", 10, is_end=False)), 10)
    waiting = group.give(Piece("b", 3))
    group.waits(waiting, 10)
    last = group.give(Piece("c", 2))
    group.waits(last, 10)
    group.give(Piece("a", 11)).join(60)

    waiting.join(60)
    last.join(60)
    assert group.times == [10, 11, 3, 2]
    group.stop()


@pytest.mark.parametrize("by_time", [True, False])
def test_no_transaction_passes_between_pieces(by_time: bool) -> None:
    group = Group("ab", by_time=by_time)
    group.said["b"] = 100.0
    group.goes(group.give(Piece("a", 10, is_end=False)), 10)

    other = group.give(Piece("b", 9))
    group.waits(other, 10)
    group.goes(group.give(Piece("a", 30, is_end=False)), 10, 30)
    group.waits(other, 10, 30)
    group.give(Piece("a", 31))

    group.goes(other, 10, 30, 31, 9)
    group.stop()


@pytest.mark.parametrize("goes_on", [True, False])
def test_stalled_member_raises_alarm_and_follows_on_stalled(goes_on: bool) -> None:
    group = Group("ab", stalled=60, goes_on=goes_on)

    first = group.give(Piece("a", 10))
    group.waits(first)
    group.now = 61.0
    until(lambda: bool(group.told))

    assert group.told[0].kind is canal.AlarmKind.SLOW
    assert "member b sent no change and no heartbeat for 61 s" in group.told[0]
    if goes_on:
        group.goes(first, 10)
        group.goes(group.give(Piece("b", 5)), 10, 5)
        assert group.merge.late == 1
        assert "continue without it" in group.told[0]
    else:
        group.waits(first)
        group.give(Piece("b", 12))
        group.goes(first, 10)
    group.stop()


def test_alarm_ends_when_stalled_member_reports() -> None:
    group = Group("ab", stalled=60)
    first = group.give(Piece("a", 10))
    group.waits(first)
    group.now = 61.0
    until(lambda: len(group.told) == 1)

    group.said["b"] = 5.0
    until(lambda: len(group.told) == 2)

    assert group.told[1].is_over
    group.waits(first)
    group.stop()


def test_member_stalled_inside_transaction_is_awaited() -> None:
    group = Group("ab", by_time=False, stalled=60, goes_on=True)
    group.goes(group.give(Piece("a", 10, is_end=False)), 10)

    other = group.give(Piece("b", 10))
    group.waits(other, 10)
    group.now = 61.0
    until(lambda: bool(group.told))

    assert "a transaction of it is incomplete" in group.told[0]
    group.waits(other, 10)
    group.give(Piece("a", 11))
    group.goes(other, 10, 11, 10)
    group.stop()


def test_ended_member_blocks_no_other() -> None:
    group = Group("ab")
    group.merge.end("b")
    group.goes(group.give(Piece("a", 10, is_end=False)), 10)

    group.merge.end("a")

    assert not group.merge.has_open("a")
    group.stop()


@pytest.mark.parametrize("by_time", [True, False])
def test_rest_of_torn_transaction_passes_first(by_time: bool) -> None:
    group = Group("abc", by_time=by_time, torn="ab")
    group.said["c"] = 100.0

    last = group.give(Piece("c", 9))
    second = group.give(Piece("b", 20))
    group.waits(last)
    first = group.give(Piece("a", 30))
    for thread in (first, second):
        thread.join(60)
    assert group.times[:2] == [30, 20]
    group.stop()


def test_member_ended_inside_transaction_blocks_no_other() -> None:
    group = Group("abc", by_time=False, torn="ab")
    group.merge.end("b")
    waiting = group.give(Piece("c", 1))
    group.waits(waiting)
    group.said["a"] = 50.0  # nothing of it is left, as behind another filter

    group.goes(waiting, 1)
    group.stop()


def refuse(pieces: Any) -> None:
    raise canal.ConnectionLostError("a hook has said so")


def test_failed_pass_is_repeated_without_counting() -> None:
    group = Group("ab", idle=0)
    group.said["b"] = 10.0
    with pytest.raises(canal.ConnectionLostError):
        group.merge.pass_on("a", [Piece("a", 10)], refuse)  # type: ignore[list-item]
    assert not group.merge.has_open("a")
    group.said["a"] = 5.0

    group.goes(group.give(Piece("b", 5)), 5)
    group.goes(group.give(Piece("a", 10)), 5, 10)
    assert group.merge.late == 0
    group.stop()


def test_failure_inside_transaction_keeps_turn_and_names_member() -> None:
    group = Group("ab", by_time=False, stalled=60)
    group.goes(group.give(Piece("a", 10, is_end=False)), 10)
    with pytest.raises(canal.ConnectionLostError):
        group.merge.pass_on("a", [Piece("a", 10)], refuse)  # type: ignore[list-item]
    assert group.merge.has_open("a")

    other = group.give(Piece("b", 5))
    group.waits(other, 10)
    group.now = 61.0
    until(lambda: bool(group.told))
    group.give(Piece("a", 10)).join(60)
    group.goes(other, 10, 10, 5)
    group.stop()


@pytest.mark.parametrize("seed", range(20))
def test_any_histories_pass_whole_in_time_order(seed: int) -> None:
    """Every member's in its own order, nothing lost, nothing between the pieces of one; by time unless a clock was set back."""
    rng = random.Random(seed)
    names = "abcd"[: rng.randint(2, 4)]
    group = Group(names)
    histories = {}
    for name in names:
        now, pieces = 0, []
        for number in range(60):
            now += rng.choice((0, 0, 1, 3))
            for _ in range(rng.choice((0, 0, 0, 2))):
                pieces.append(Piece(name, now, number, is_end=False))
            pieces.append(Piece(name, now, number))
        histories[name] = pieces

    def play(name: str, seed: int) -> None:
        own, pieces = random.Random(seed), list(histories[name])
        while pieces:
            count = own.randint(1, 12)
            group.merge.pass_on(name, pieces[:count], group.passed.extend)  # type: ignore[arg-type]
            del pieces[:count]
        group.merge.end(name)

    threads = [threading.Thread(target=play, args=(name, rng.random()), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()

    for name in names:
        assert [piece for piece in group.passed if piece.member == name] == histories[name]
    for one, following in zip(group.passed, group.passed[1:]):
        if not one.is_end:
            assert following.member == one.member
    assert group.times == sorted(group.times)
    assert group.merge.late == 0


def test_late_transaction_is_counted_before_delivery() -> None:
    """Else a reader that is quick sees it out of order, and ``late`` says that nothing was."""
    group = Group("ab", idle=0)
    group.said["b"] = 10.0
    group.goes(group.give(Piece("a", 10)), 10)
    counted: list[int] = []

    group.merge.pass_on("b", [Piece("b", 7)], lambda entries: counted.append(group.merge.late))  # type: ignore[arg-type,list-item]

    assert counted == [1]


def test_repeated_late_transaction_is_counted_once() -> None:
    group = Group("ab", idle=0)
    group.said["b"] = 10.0
    group.goes(group.give(Piece("a", 10)), 10)

    def refuse(entries: Any) -> None:
        raise canal.errors.StoreClosedError("no")

    pieces: Any = [Piece("b", 7), Piece("b", 12)]
    with pytest.raises(canal.errors.StoreClosedError):
        group.merge.pass_on("b", pieces[:1], refuse)
    assert group.merge.late == 0
    group.said["a"] = 20.0
    group.goes(group.give(*pieces), 10, 7, 12)
    assert group.merge.late == 1
