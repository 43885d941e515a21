"""Threads of one client: who waits for whom, who is woken, and what a collected stream takes."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest

import canal
from tests.support.instances import ids, in_thread
from tests.support.stand_ins import composed
from tests.support.strategies import whole


def until_it_waits(instance: canal.Instance) -> None:
    """Until a thread waits in the store for entries."""
    deadline = time.monotonic() + 60
    while not instance.store._filled._locks:  # type: ignore[attr-defined]
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_get_that_need_not_wait_waits_for_nobody() -> None:
    with composed() as instance:
        instance.subscribe()
        _, found = in_thread(lambda: instance.get_without_ack(1, timeout=None))
        until_it_waits(instance)
        thread, empty = in_thread(lambda: instance.get_without_ack(1, timeout=0))
        thread.join(60)

        assert not thread.is_alive()
        assert (bool(empty[0]), found) == (False, [])


def test_a_rollback_wakes_a_get_that_waits() -> None:
    entries = whole(1, 1)
    with composed(entries) as instance:
        instance.subscribe()
        assert instance.get_without_ack(1, timeout=60)
        thread, found = in_thread(lambda: instance.get_without_ack(1, timeout=None))
        until_it_waits(instance)
        instance.rollback()
        thread.join(60)

        assert ids(found[0]) == [id(entry) for entry in entries]


@pytest.mark.parametrize("again", [False, True], ids=["gone", "anew"])
@pytest.mark.parametrize("linger", [0.0, 60.0], ids=["empty", "lingers"])
def test_unsubscribe_ends_a_get_that_waits(linger: float, again: bool) -> None:
    """While it lingers, what it has seen is freed."""
    with composed(whole(1, 1) if linger else []) as instance:
        instance.subscribe()
        instance.subscribe(2)
        thread, found = in_thread(lambda: instance.get_without_ack(9, timeout=None, linger=linger))
        until_it_waits(instance)
        if linger:
            instance.ack(instance.get_without_ack(9, timeout=60, client_id=2).id, client_id=2)
        instance.unsubscribe()
        if again:
            instance.subscribe()
        thread.join(60)

        assert isinstance(found[0], canal.errors.NotSubscribedError), found


def test_two_threads_that_get_as_one_client_share_what_comes() -> None:
    entries = [entry for number in range(1, 500) for entry in whole(number, 1)]
    with composed(entries, then="end") as instance:
        instance.subscribe()
        got: list[canal.Message] = []

        def get() -> None:
            while message := instance.get_without_ack(1, timeout=60):
                got.append(message)

        threads = [in_thread(get)[0] for _ in range(3)]
        for thread in threads:
            thread.join(60)
        got.sort(key=lambda message: message.id)

        assert [one for message in got for one in ids(message)] == [id(entry) for entry in entries]


def test_a_stream_that_is_collected_inside_an_ack_takes_no_lock() -> None:
    """The collector comes in whatever thread and under whatever lock."""

    class Collecting(canal.MemoryMeta):
        def update_cursor(self, client_id: int, position: canal.Position) -> None:
            gc.collect()
            super().update_cursor(client_id, position)

    def begin_and_leave(client: int) -> int:
        cycle: list[Any] = [instance.stream(1, client_id=client)]
        cycle.append(cycle)
        return next(cycle[0]).id

    clients = range(1, 22)
    with composed(whole(1, 1) + whole(2, 1), meta=Collecting()) as instance:
        for client in clients:
            instance.subscribe(client)
        gc.disable()
        gc.freeze()  # what other tests have left is not looked through
        try:
            handed = [begin_and_leave(client) for client in clients]
            thread, found = in_thread(lambda: instance.ack(handed[0], client_id=1))
            thread.join(60)
        finally:
            gc.unfreeze()
            gc.enable()

        assert not thread.is_alive()
        assert [instance.list_batches(client) for client in clients] == [[] for _ in clients]
        assert found == [None]
        assert instance.position(1) != instance.position(2)
