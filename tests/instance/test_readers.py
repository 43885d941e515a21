"""Two readers of one client: the second one is refused when it starts, whatever the two are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import canal
import canal.aio
from canal.spark import foreach_batch
from canal.targets import SQLiteTarget
from canal.testing import FakeBinlog
from tests.support.instances import in_thread
from tests.support.waiting import until


@pytest.fixture
def instance() -> Iterator[canal.Instance]:
    fake = FakeBinlog()
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY")
    for number in range(20):
        orders.insert({"id": number})
    with canal.connect(fake, start="earliest") as made:
        made.subscribe()
        yield made


class Readers:
    """Each method starts a reader of client 1001 and gives what ends it again."""

    def __init__(self, instance: canal.Instance, folder: Path, loop: asyncio.Runner) -> None:
        self.instance = instance
        self.folder = folder
        self.loop = loop

    def stream(self) -> Callable[[], object]:
        stream = self.instance.stream(3)
        next(stream)
        return stream.close

    def changes(self) -> Callable[[], object]:
        changes = self.instance.changes()
        next(changes)
        return changes.close  # type: ignore[attr-defined, no-any-return]

    def decoded(self) -> Callable[[], object]:
        decoded = self.instance.decoded(len, 3)
        next(decoded)
        return decoded.close

    def pipe(self) -> Callable[[], object]:
        pipe = canal.pipe(self.instance, SQLiteTarget(self.folder / "x.db")).start()
        return pipe.stop

    def asyncio(self) -> Callable[[], object]:
        stream = canal.aio.AsyncInstance(self.instance).stream()
        self.loop.run(stream.__anext__())
        return lambda: self.loop.run(stream.aclose())


@pytest.fixture
def readers(instance: canal.Instance, tmp_path: Path) -> Iterator[Readers]:
    with asyncio.Runner() as loop:
        yield Readers(instance, tmp_path, loop)


ALL = ["stream", "changes", "decoded", "pipe", "asyncio"]


@pytest.mark.parametrize("second", ALL)
@pytest.mark.parametrize("first", ALL)
def test_second_reader_of_a_client_is_refused(first: str, second: str, readers: Readers) -> None:
    end = getattr(readers, first)()

    with pytest.raises(canal.StateError, match=r"cannot read client 1001: .* reads it, and .* a separate client"):
        getattr(readers, second)()

    end()
    getattr(readers, second)()()


@pytest.mark.parametrize("first", ["stream", "decoded", "pipe", "asyncio"])
def test_get_beside_a_reader_is_refused(first: str, readers: Readers) -> None:
    instance, end = readers.instance, getattr(readers, first)()

    for get in (instance.get, instance.get_without_ack):
        with pytest.raises(canal.StateError, match="a get cannot read client 1001"):
            get()
    instance.subscribe(2)
    assert instance.get(client_id=2, timeout=5)
    end()
    assert instance.list_batches() or instance.get(timeout=5) is not None


def test_consume_with_workers_is_a_reader(instance: canal.Instance) -> None:
    seen: list[Any] = []
    thread, found = in_thread(lambda: instance.consume(seen.append, workers=2))
    until(lambda: len(seen) == 20)

    with pytest.raises(canal.StateError, match=r"consume\(workers=\) of thread"):
        instance.stream()
    with pytest.raises(canal.StateError):
        instance.consume(seen.append)
    instance.stop()
    thread.join(60)
    assert isinstance(found[0], canal.StateError)


def test_foreach_batch_is_a_reader(instance: canal.Instance) -> None:
    stop, called = threading.Event(), threading.Event()
    thread, _ = in_thread(lambda: foreach_batch(None, instance, lambda rows, batch: called.set(), timeout=0.01, stop=stop))
    assert called.wait(60)

    with pytest.raises(canal.StateError, match="foreach_batch of thread"):
        instance.stream()
    with pytest.raises(canal.StateError, match="foreach_batch cannot read client 1001"):
        foreach_batch(None, instance, lambda rows, batch: None)
    stop.set()
    thread.join(60)
    assert instance.get(timeout=0) is not None


def test_stream_that_was_left_is_no_reader(instance: canal.Instance) -> None:
    for _ in instance.stream():
        break
    with pytest.raises(ZeroDivisionError):
        for _ in instance.stream():
            raise ZeroDivisionError
    assert next(instance.changes()).after["id"] == 0  # type: ignore[index]


def test_stream_goes_on_after_it_was_closed_unless_another_one_reads(instance: canal.Instance) -> None:
    stream = instance.stream(1)
    next(stream)
    stream.close()
    next(stream)
    stream.close()
    other = instance.stream(1)

    with pytest.raises(canal.StateError, match="a stream cannot read client 1001"):
        next(stream)
    other.close()


def test_ack_of_what_another_thread_got_names_that_thread(instance: canal.Instance) -> None:
    thread, found = in_thread(lambda: instance.get_without_ack(1, timeout=5))
    thread.join(60)
    second = instance.get_without_ack(1, timeout=5)

    with pytest.raises(canal.BatchError, match=r"before batch 1, which thread '.*' has not acknowledged.*a separate client"):
        instance.ack(second)
    instance.ack(found[0])
    instance.ack(second)
