"""asyncio: the same promises, and a call that is cancelled anywhere loses nothing and leaves the order."""

from __future__ import annotations

import asyncio
import threading
import types
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

import canal
from canal.aio import AsyncInstance, AsyncMessage
from canal.testing import FakeBinlog

ROWS = list(range(12))


def filled(count: int = len(ROWS), *, ends: bool = True) -> FakeBinlog:
    fake = FakeBinlog()
    table = fake.table("shop", "t", "id INT PRIMARY KEY")
    for number in range(count):
        table.insert({"id": number})
    if ends:
        fake.end()
    return fake


def config(fake: FakeBinlog, meta: canal.meta.MetaManager | None = None, **options: Any) -> canal.InstanceConfig:
    return canal.InstanceConfig(destination="shop", source=fake, start="earliest", meta=meta or canal.MemoryMeta(), **options)


def ids(message: canal.Message) -> list[int]:
    return [row.after["id"] for entry in message.entries for row in entry.rows if row.after]


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 120))


def test_messages_are_acked_at_the_end_of_their_block() -> None:
    async def main() -> list[int]:
        found = []
        async with AsyncInstance(config(filled())) as instance:
            await instance.subscribe()
            async for message in instance.stream(batch_size=2):
                async with message:
                    found += ids(message)
                    assert instance.instance.list_batches() == [message.id]
                assert instance.instance.list_batches() == []
                assert isinstance(message, canal.Message)
        return found

    assert run(main()) == ROWS


def test_without_a_block_it_is_acked_when_the_loop_comes_round_and_comes_again_when_it_is_left() -> None:
    async def main() -> list[list[int]]:
        found = []
        async with AsyncInstance(config(filled())) as instance:
            await instance.subscribe()
            async for message in instance.stream(batch_size=1):
                found.append(ids(message))
                if len(found) == 5:
                    break
            del message
            async for message in instance.stream(batch_size=100):
                found.append(ids(message))
        return found

    *acked, left, rest = run(main())
    assert [one for batch in acked for one in batch] + rest == ROWS
    assert left == rest[: len(left)]


def test_an_exception_in_the_block_rolls_back() -> None:
    async def main() -> list[int]:
        found, failures = [], 0
        async with AsyncInstance(config(filled())) as instance:
            await instance.subscribe()
            async for message in instance.stream(batch_size=3):
                try:
                    async with message:
                        if ids(message) and failures < 2:
                            failures += 1
                            raise ValueError
                        found += ids(message)
                except ValueError:
                    continue
        assert failures == 2
        return found

    assert run(main()) == ROWS


def test_flat_iteration() -> None:
    async def main() -> list[Any]:
        async with AsyncInstance(config(filled())) as instance:
            await instance.subscribe()
            return [change.key async for change in instance.changes()]

    assert run(main()) == [(number,) for number in ROWS]


def test_what_the_instance_raises_is_raised() -> None:
    async def main() -> None:
        async with AsyncInstance(canal.Instance(config(filled()))) as instance:
            with pytest.raises(canal.errors.NotSubscribedError):
                await instance.get_without_ack()
            await instance.subscribe()
            with pytest.raises(canal.BatchError):
                await instance.ack(77)
            assert (await instance.status()).destination == "shop"
        with pytest.raises(canal.StateError):
            instance.position()

    run(main())


def test_a_waiting_get_holds_up_neither_the_loop_nor_other_calls() -> None:
    async def main() -> list[int]:
        fake = FakeBinlog()
        table = fake.table("shop", "t", "id INT PRIMARY KEY")
        async with AsyncInstance(config(fake)) as instance:
            await instance.subscribe()
            waiting = asyncio.create_task(instance.get_without_ack(timeout=None))
            await instance.status()
            assert not waiting.done()
            table.insert({"id": 1})
            return ids(await waiting)

    assert run(main()) == [1]


@types.coroutine
def cancelled_at(work: Coroutine[Any, Any, Any], number: int, *, late: bool) -> Generator[Any, Any, bool]:
    """Run it as a task would, and cancel it at its await of that number, before or just after what it waits for is there;
    gives whether it came so far."""
    value: Any = None
    for count in range(1 << 30):
        try:
            waits_for = work.send(value)
        except StopIteration:
            return False
        if count < number or waits_for is None:
            value = yield waits_for
            continue
        waits_for._asyncio_future_blocking = False
        while late and not waits_for.done():
            yield from asyncio.sleep(0.001).__await__()
        waits_for.cancel()
        break
    try:
        waits_for = work.throw(asyncio.CancelledError())
        while True:
            waits_for = work.send((yield waits_for))
    except (asyncio.CancelledError, StopIteration):
        return True


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("way", ["stream", "get"])
def test_cancelled_at_every_await_nothing_is_lost(way: str, late: bool) -> None:
    """The rows of blocks that were left well, then those that come to the next one: each at least once, in order, and but for
    one whose ack was cancelled not again."""
    fake = filled(4)

    async def consume(instance: AsyncInstance, found: list[int]) -> None:
        if way == "stream":
            async for message in instance.stream(batch_size=1):
                async with message:
                    found += ids(message)
            return
        while message := await instance.get_without_ack(1, timeout=None):
            async with message:
                found += ids(message)

    async def main(number: int) -> tuple[bool, list[int], list[int]]:
        first: list[int] = []
        rest: list[int] = []
        async with AsyncInstance(config(fake)) as instance:
            await instance.subscribe()
            was_cancelled = await cancelled_at(consume(instance, first), number, late=late)
            await instance.rollback()
            await consume(instance, rest)
        return was_cancelled, first, rest

    number, was_cancelled = 0, True
    while was_cancelled:
        was_cancelled, first, rest = run(main(number))
        both = first + rest
        assert first == list(range(len(first)))
        assert rest == list(range(4 - len(rest), 4))
        assert sorted(set(both)) == list(range(4)), (number, first, rest)
        assert len(both) <= 5, (number, first, rest)
        number += 1
    assert number > 6  # as many awaits as Python's own loop has


@pytest.mark.parametrize("late", [False, True])
def test_a_get_right_after_a_cancelled_one_comes_in_order(late: bool) -> None:
    async def main() -> None:
        async with AsyncInstance(config(filled())) as instance:
            await instance.subscribe()
            for _ in range(3):
                is_begun = threading.Event()  # what is there at once is not awaited from Python 3.14 on
                instance._getter(1001).submit(is_begun.wait)
                asyncio.get_running_loop().call_later(0.01, is_begun.set)
                assert await cancelled_at(instance.get_without_ack(1, timeout=None), 0, late=late)
            found: list[int] = []
            while message := await instance.get_without_ack(1, timeout=None):
                found += ids(message)
                await instance.ack(message)
            assert found == ROWS

    run(main())


@pytest.mark.parametrize("number", range(3))
def test_a_cancelled_start_or_stop_leaves_nothing_behind(number: int) -> None:
    before = threading.active_count()

    async def main() -> None:
        async def whole() -> None:
            async with instance:
                await instance.subscribe()

        instance = AsyncInstance(config(filled()))
        await cancelled_at(whole(), number, late=False)
        assert not instance.instance.is_running

    run(main())
    assert [thread.name for thread in threading.enumerate() if thread.name.endswith("-parse")] == []
    assert threading.active_count() <= before + 8


def test_a_message_of_nothing_needs_no_ack() -> None:
    async def main() -> None:
        async with AsyncInstance(config(filled(0, ends=False))) as instance:
            await instance.subscribe()
            message = AsyncMessage(canal.Message(-1, []), instance, 1001)
            async with message:
                assert not message

    run(main())


class Keyed:
    """Changes of some keys in turn, and what an awaited handler saw of them."""

    def __init__(self, count: int = 120, keys: int = 7) -> None:
        self.fake = FakeBinlog()
        self.keys = keys
        table = self.fake.table("shop", "t", "id INT PRIMARY KEY, n INT")
        for number in range(count):
            key = number % keys
            if number < keys:
                table.insert({"id": key, "n": number})
            else:
                table.update({"id": key, "n": number - keys}, {"id": key, "n": number})
        self.fake.end()
        self.expected = list(range(count))
        self.meta = canal.MemoryMeta()
        self.began: list[int] = []
        self.seen: list[int] = []
        self.running: set[Any] = set()
        self.most = 0

    async def handle(self, change: canal.Change) -> None:
        assert change.after is not None
        assert change.key not in self.running
        number = change.after["n"]
        self.began.append(number)
        self.running.add(change.key)
        self.most = max(self.most, len(self.running))
        try:
            for _ in range(number % 4):
                await asyncio.sleep(0)
            self.seen.append(number)
        finally:
            self.running.discard(change.key)

    async def consume(self, handler: Any = None, **options: Any) -> canal.Position:
        async with AsyncInstance(config(self.fake, self.meta)) as instance:
            await instance.subscribe()
            await instance.consume(handler or self.handle, batch_size=10, **{"workers": 4, **options})
            return instance.position()

    def check_order(self, seen: list[int]) -> None:
        for key in range(self.keys):
            assert (of_key := [number for number in seen if number % self.keys == key]) == sorted(of_key)


def test_awaited_handlers_are_called_in_the_order_of_each_key_and_all_is_acked() -> None:
    keyed = Keyed()

    position = run(keyed.consume())

    assert sorted(keyed.seen) == keyed.expected
    keyed.check_order(keyed.seen)
    assert 1 < keyed.most <= 4
    assert position.offset == keyed.fake.position.offset


def test_awaited_handlers_of_minimal_images_are_called_in_the_order_of_the_key() -> None:
    fake = FakeBinlog(row_image="MINIMAL")
    table = fake.table("shop", "t", "k VARCHAR(9) PRIMARY KEY, n INT")
    table.update({"k": "a"}, {"n": 1})
    table.update({"k": "a"}, {"k": "A"})
    table.delete({"k": "A"})
    table.update({"k": "b"}, {"n": 1})
    fake.end()

    async def main() -> list[Any]:
        seen: list[Any] = []
        last = asyncio.Event()

        async def handle(change: canal.Change) -> None:
            if change.old_key == ("a",) and change.key == ("a",):
                await last.wait()
            seen.append((change.op, change.old_key, change.key))
            if change.key == ("b",):
                last.set()

        async with AsyncInstance(config(fake)) as instance:
            await instance.subscribe()
            await instance.consume(handle, workers=3)
        return seen

    *before, first, second, third = run(main())
    assert before == [("update", ("b",), ("b",))]
    assert [first, second, third] == [("update", ("a",), ("a",)), ("update", ("a",), ("A",)), ("delete", ("A",), ("A",))]


@pytest.mark.parametrize("after", [0, 1, 2, 7, 30, 90])
def test_a_consume_that_is_cancelled_leaves_no_handler_and_acks_what_was_done_without_a_gap(after: int) -> None:
    keyed = Keyed()

    async def cancel() -> None:
        async def handle(change: canal.Change) -> None:
            if len(keyed.began) >= after:
                following.cancel()
                if after % 2:  # one that would never end
                    await asyncio.Event().wait()
            await keyed.handle(change)

        following = asyncio.create_task(keyed.consume(handle))
        with pytest.raises(asyncio.CancelledError):
            await following
        assert keyed.running == set()
        assert len(asyncio.all_tasks()) <= 2  # this one, and that of wait_for

    run(cancel())
    first, keyed.seen = keyed.seen, []
    assert len(first) < len(keyed.expected)
    run(keyed.consume())

    assert sorted({*first, *keyed.seen}) == keyed.expected
    keyed.check_order(first)
    keyed.check_order(keyed.seen)
    again = min(keyed.seen)
    assert sorted(keyed.seen) == list(range(again, len(keyed.expected))), "one contiguous ack"
    assert set(range(again)) <= set(first), "only what was done is acked"


def test_an_awaited_handler_that_fails_is_tried_again_and_what_stays_unfit_is_given_away() -> None:
    keyed = Keyed(30)
    tries: list[int] = []
    unfit: list[int] = []

    async def handle(change: canal.Change) -> None:
        if change.after is not None and change.after["n"] in (3, 9):
            tries.append(change.after["n"])
            if change.after["n"] == 9 or tries.count(3) < 3:
                raise ValueError(change.after["n"])
        await keyed.handle(change)

    async def give_away(change: canal.Change, error: Exception) -> None:
        await asyncio.sleep(0)
        unfit.append(error.args[0])

    run(keyed.consume(handle, retries=2, backoff=(0.001, 0.002), on_unfit=give_away))

    assert (tries.count(3), tries.count(9), unfit) == (3, 3, [9])
    assert sorted(keyed.seen) == [number for number in keyed.expected if number != 9]
    keyed.check_order(keyed.seen)

    async def fail(change: canal.Change) -> None:
        raise ValueError("for good")

    failing = Keyed(30)
    with pytest.raises(ValueError, match="for good"):
        run(failing.consume(fail))
    run(failing.consume())
    assert sorted(failing.seen) == failing.expected
    with pytest.raises(canal.ConfigError, match="workers"):
        run(failing.consume(workers=0))
