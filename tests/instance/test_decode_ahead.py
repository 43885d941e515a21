"""``Instance.decoded``: threads decode messages ahead; the loop gets them in order, acked and rolled back as by ``stream``."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import canal
from canal.instance.decode_ahead import Decoded
from canal.testing import FakeBinlog
from tests.support.instances import instance_of
from tests.support.stand_ins import composed
from tests.support.strategies import whole
from tests.support.waiting import until


def number_of(message: canal.Message) -> int:
    (number,) = (entry.transaction.offset // 100 - 1 for entry in message.entries if entry.row_count)
    return number


@pytest.fixture
def instance() -> Iterator[canal.Instance]:
    """Of 40 transactions with a row each, and then the end."""
    entries = [entry for number in range(1, 41) for entry in whole(number, 1)]
    with composed(entries, then="end") as instance:
        instance.subscribe()
        until(lambda: instance.is_exhausted)
        yield instance


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_all_come_in_order_and_are_acked_when_the_loop_comes_round(instance: canal.Instance, threads: int) -> None:
    slow = threading.Event()

    def decode(message: canal.Message) -> int:
        number = number_of(message)
        if number % threads == 0:
            slow.wait(0.001)  # those behind it are done before
        return -number

    seen = []
    for message, made in instance.decoded(decode, 1, decode_threads=threads):
        assert made == -number_of(message)
        assert instance.list_batches()[0] == message.id
        assert len(instance.list_batches()) <= threads + 1
        seen.append(-made)

    assert seen == list(range(40))
    assert instance.position().offset == 4099
    assert instance.list_batches() == []


def test_as_many_decode_at_the_same_time_as_there_are_threads(instance: canal.Instance) -> None:
    together = threading.Barrier(4, timeout=60)
    names = set()

    def decode(message: canal.Message) -> None:
        names.add(threading.current_thread().name)
        together.wait()

    assert sum(1 for _ in instance.decoded(decode, 1, decode_threads=4)) == 40
    assert sorted(names) == [f"canal-{instance.destination}-decode_{number}" for number in range(4)]


def test_what_decode_raises_is_raised_at_its_turn_and_the_message_comes_again(instance: canal.Instance) -> None:
    def decode(message: canal.Message) -> int:
        if (number := number_of(message)) == 5:
            raise ValueError(number)
        return number

    stream = instance.decoded(decode, 1, decode_threads=3)
    assert [next(stream)[1] for _ in range(5)] == [0, 1, 2, 3, 4]
    for _ in range(2):  # and none behind it
        with pytest.raises(ValueError, match="5"):
            next(stream)
    stream.close()

    assert instance.position().offset == 599, "those before it are acked"
    assert [number_of(message) for message in instance.stream(1)] == list(range(5, 40))


def test_a_decode_that_ends_an_iterator_does_not_end_the_loop_in_silence(instance: canal.Instance) -> None:
    with instance.decoded(lambda message: next(iter(())), 1) as stream, pytest.raises(RuntimeError, match="StopIteration"):
        next(stream)


def test_what_has_stopped_the_source_is_raised_behind_all_that_came() -> None:
    entries = [entry for number in range(1, 11) for entry in whole(number, 1)]
    with composed(entries, then=canal.DecodeError("broken")) as instance:
        instance.subscribe()
        until(lambda: instance.error is not None)
        seen = []
        with pytest.raises(canal.DecodeError, match="broken"):
            for _, number in instance.decoded(number_of, 1, decode_threads=4):
                seen.append(number)
        assert seen == list(range(10))


def leave(stream: Decoded[int]) -> None:
    with stream:
        pass


def let_go(stream: Decoded[int]) -> None:
    del stream  # the caller has no other
    gc.collect()


@pytest.mark.parametrize("way", [leave, let_go])
def test_when_it_is_left_what_is_in_hand_and_ahead_comes_again(
    instance: canal.Instance, way: Callable[[Decoded[int]], None]
) -> None:
    streams = [instance.decoded(number_of, 1, decode_threads=3)]
    assert [next(streams[0])[1] for _ in range(8)] == list(range(8))
    assert len(instance.list_batches()) == 4
    way(streams.pop())

    assert [number_of(message) for message in instance.stream(1)] == list(range(7, 40))


def test_what_was_acked_by_hand_before_it_is_left_does_not_come_again(instance: canal.Instance) -> None:
    stream = instance.decoded(number_of, 1, decode_threads=3)
    for _ in range(3):
        message, _ = next(stream)
    instance.ack(message)
    stream.close()

    assert instance.list_batches() == []
    assert [number_of(message) for message in instance.stream(1)] == list(range(3, 40))


def test_one_that_was_closed_has_ended(instance: canal.Instance) -> None:
    stream = instance.decoded(number_of, 1)
    next(stream)
    stream.close()
    stream.close()
    assert list(stream) == []
    assert instance.list_batches() == []


def test_what_is_rolled_back_by_hand_is_decoded_anew(instance: canal.Instance) -> None:
    seen = []
    for message, number in instance.decoded(number_of, 1, decode_threads=3):
        if number == 4 and seen.count(3) == 1:
            instance.ack(message.id)
            instance.rollback()
        if number == 9 and seen.count(8) == 1:
            instance.ack(message.id)  # by hand, and those ahead go on
        seen.append(number)

    assert seen == list(range(40))
    assert instance.position().offset == 4099


def test_batches_are_taken_back_where_no_thread_can_be_had(instance: canal.Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    stream = instance.decoded(number_of, 1, decode_threads=2)
    with monkeypatch.context() as context:
        context.setattr(ThreadPoolExecutor, "submit", refused)
        with pytest.raises(RuntimeError, match="new thread"):
            next(stream)
        assert instance.list_batches() == []
    assert [number for _, number in stream] == list(range(40))


def test_a_stop_ends_it(instance: canal.Instance) -> None:
    stream = instance.decoded(number_of, 1)
    next(stream)
    instance.stop()
    with pytest.raises(canal.StateError):
        next(stream)
    stream.close()


@pytest.mark.parametrize("threads", [0, -1, 1.0, "2", True, None])
def test_a_number_of_threads_that_is_none_is_refused(instance: canal.Instance, threads: Any) -> None:
    with pytest.raises(canal.ConfigError, match="decode_threads"):
        instance.decoded(number_of, decode_threads=threads)
    assert instance.list_batches() == []


def test_what_cannot_be_called_is_refused(instance: canal.Instance) -> None:
    with pytest.raises(canal.ConfigError, match="decode"):
        instance.decoded("rows")  # type: ignore[arg-type]


def test_arrow_comes_as_without_threads() -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "t", "id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(20, 2), at DATETIME(6), j JSON")
    for start in range(0, 400, 20):
        table.insert(*({"id": n, "name": f"name {n}", "price": f"{n}.25", "j": {"n": n}} for n in range(start, start + 20)))
    fake.end()
    expected: list[Any] = []
    with instance_of(fake) as instance:
        instance.subscribe()
        for message in instance.stream(50):
            expected += message.to_arrow()
    with instance_of(fake) as instance:
        instance.subscribe()
        found = [batch for _, batches in instance.decoded(canal.Message.to_arrow, 50) for batch in batches]

    assert sum(batch.num_rows for batch in found) == 400
    assert [batch.to_pylist() for batch in found] == [batch.to_pylist() for batch in expected]
