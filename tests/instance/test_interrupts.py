"""Exceptions out of a signal's handler, caught by who called: delivery goes on, and nothing is lost or acked unseen.

CPython runs a handler, in the main thread, behind a call of anything but a Python function (those have a look of their own
where they begin), where a function begins (RESUME), where a loop comes round (a jump backward), and inside a call that a
signal has cut short. It does not behind the return of a Python function, nor between taking a lock by ``with`` and the
block. The first test raises at each of these points, one in each run, by a trace function; the second lets real signals
come at any time.
"""

from __future__ import annotations

import contextlib
import dis
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import canal
from canal.testing import FakeBinlog
from tests.support.instances import instance_of
from tests.support.stand_ins import composed
from tests.support.strategies import whole

#: An exception in a finalizer goes nowhere, and what it was to close is closed by another one.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Interrupt(Exception):
    """What the handler raises."""


# -- what a consumer does ----------------------------------------------------------------------------------------------


class Journal:
    """What came out, and of which batches the ack is known: checked while it is written.

    Rows are numbered from 0. A batch begins where the last acked one has ended; or, where a call that acks was cut short,
    where that one began.
    """

    def __init__(self) -> None:
        self.next = {0}

    def ack(self, rows: list[int], is_sure: bool) -> None:
        if not rows:
            return
        assert rows == list(range(rows[0], rows[0] + len(rows)))
        if is_sure:
            assert rows[0] in self.next, f"{rows} came, and not what begins with one of {self.next}"
            self.next = {rows[-1] + 1}
        elif rows[0] in self.next:  # else it would have been refused
            self.next |= {rows[-1] + 1}


def rows_of(message: canal.Message | None) -> list[int]:
    return [] if message is None else [entry.transaction.offset // 100 - 1 for entry in message.entries if entry.row_count]


Guard = Callable[[Callable[..., Any]], Any]


class Consumer:
    """One way to use an Instance. ``guard`` makes calls that a signal may cut short."""

    timeout = 0.0

    def __init__(self, instance: canal.Instance, guard: Guard, size: int, rolls_back: bool) -> None:
        self.instance = instance
        self.guard = guard
        self.size = size
        self.rolls_back = rolls_back
        self.journal = Journal()
        self.is_over = False

    def go_on(self) -> None:
        try:
            self.step()
        except Interrupt:
            if self.rolls_back:
                self.roll_back()
        except canal.BatchError:  # loud: a batch is outstanding that nobody has seen
            self.roll_back()

    def roll_back(self) -> None:
        while True:
            with contextlib.suppress(Interrupt):
                return self.guard(self.instance.rollback)

    def step(self) -> None:
        raise NotImplementedError

    def ack(self, message: canal.Message) -> None:
        try:
            self.guard(lambda: self.instance.ack(message.id))
        except Interrupt:
            self.journal.ack(rows_of(message), is_sure=False)
            raise
        self.journal.ack(rows_of(message), is_sure=True)


class Acks(Consumer):
    def step(self) -> None:
        message = self.guard(lambda: self.instance.get_without_ack(self.size, timeout=self.timeout))
        self.is_over = not message
        if message:
            self.ack(message)


class AcksLater(Consumer):
    """Has two batches in hand, and rolls one of them back now and then."""

    def step(self) -> None:
        first = self.guard(lambda: self.instance.get_without_ack(self.size, timeout=self.timeout))
        self.is_over = not first
        if not first:
            return
        try:
            second = self.guard(lambda: self.instance.get_without_ack(self.size, timeout=self.timeout))
            if second and second.id % 3 == 0:
                self.guard(lambda: self.instance.rollback(second.id))
                second = None
        except Interrupt:
            self.roll_back()
            return
        self.ack(first)
        if second:
            self.ack(second)


class Gets(Consumer):
    """Acks by the next get."""

    last: canal.Message | None = None

    def step(self) -> None:
        last, self.last = self.last, None
        try:
            self.last = self.guard(lambda: self.instance.get(self.size, timeout=self.timeout))
        except Interrupt:
            self.journal.ack(rows_of(last), is_sure=False)
            raise
        self.is_over = not self.last
        self.journal.ack(rows_of(last), is_sure=True)


class Streams(Consumer):
    """Acks when the loop comes round; after an exception with the same stream, or with another one."""

    stream: Any = None
    last: canal.Message | None = None

    def step(self) -> None:
        last, self.last = self.last, None
        try:
            if self.stream is None:
                self.stream = self.guard(self.make)
            self.last = self.message(self.guard(self.stream.__next__))
        except StopIteration:
            self.is_over = True
        except Interrupt:
            self.journal.ack(rows_of(last), is_sure=False)
            raise
        self.journal.ack(rows_of(last), is_sure=True)

    def make(self) -> Any:
        return self.instance.stream(self.size, poll=self.timeout)

    def message(self, given: Any) -> canal.Message:
        found: canal.Message = given
        return found

    def roll_back(self) -> None:
        self.stream = None  # and its message comes again
        super().roll_back()


class Decodes(Streams):
    """As Streams, with messages ahead that threads decode."""

    def make(self) -> Any:
        return self.instance.decoded(rows_of, self.size, poll=self.timeout)

    def message(self, given: tuple[canal.Message, list[int]]) -> canal.Message:
        found, rows = given
        assert rows == rows_of(found)
        return found


class Consumes(Consumer):
    last: canal.Message | None = None

    def step(self) -> None:
        try:
            self.guard(lambda: self.instance.consume(self.handle, self.size))
            self.is_over = True
        finally:
            self.close(is_sure=self.is_over)

    def handle(self, message: canal.Message) -> None:
        with unarmed():
            self.close(is_sure=True)
            self.last = message

    def close(self, is_sure: bool) -> None:
        last, self.last = self.last, None
        self.journal.ack(rows_of(last), is_sure)


CONSUMERS = [Acks, AcksLater, Gets, Streams, Decodes, Consumes]


def source(count: int, meta: canal.meta.MetaManager, **options: Any) -> canal.Instance:
    entries = [entry for number in range(1, count + 1) for entry in whole(number, 1)]
    return composed(entries, then="end", meta=meta, **options)


def check(consumer: Consumer, instance: canal.Instance, count: int) -> None:
    """All came, the durable cursor is behind all of it, and the store keeps nothing."""
    with unarmed():
        instance.rollback()
        for message in instance.stream():
            consumer.journal.ack(rows_of(message), is_sure=True)
    assert count in consumer.journal.next
    assert instance.position().offset == 100 * count + 99
    assert instance.meta.cursor(1001) == instance.position()
    assert instance.status().store.entries == 0  # type: ignore[union-attr]


# -- at every point ------------------------------------------------------------------------------------------------------


#: Code at whose points exceptions are raised. Not that of finalizers, which may run anywhere: theirs goes nowhere.
TRACED = (str(Path(canal.__file__).parent), contextlib.__file__)


@cache
def operations(code: CodeType) -> dict[int, str]:
    return {instruction.offset: instruction.opname for instruction in dis.get_instructions(code)}


class Tracer:
    """Raises at the n-th point at which a handler's exception can come, in what is called by ``guard``."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.entered = 0

    def guard(self, call: Callable[[], Any]) -> Any:
        if self.left <= 0:
            return call()
        sys.settrace(self.enter)
        try:
            return call()
        finally:
            sys.settrace(None)

    def enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.entered += 1
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        last, entered = "RESUME", 0

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last, entered
            if event == "opcode":
                name = operations(frame.f_code)[frame.f_lasti]
                if name == "RESUME":
                    return step
                is_round = last == "RESUME" or ("JUMP_BACKWARD" in last and "NO_INTERRUPT" not in last)
                is_called = last.startswith("CALL") and entered == self.entered  # no Python function was
                if is_round or is_called or name == "BEFORE_WITH":  # a lock that another thread has
                    self.point()
                last, entered = name, self.entered
            return step

        return step

    def point(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Interrupt


@contextlib.contextmanager
def unarmed() -> Iterator[None]:
    """Here no exception comes."""
    tracing, armed = sys.gettrace(), Armed.is_set
    sys.settrace(None)
    Armed.is_set = False
    try:
        yield
    finally:
        Armed.is_set = armed
        sys.settrace(tracing)


class Armed:
    """Whether a signal's handler raises."""

    is_set = False


def try_each_point(
    kind: type[Consumer], rolls_back: bool, count: int, meta: Callable[[int], canal.meta.MetaManager], thorough: bool
) -> int:
    """Raise at each point in turn, or at each seventh one; returns how many points there are."""
    points, step = (0, 1) if thorough else (CONSUMERS.index(kind) % 7, 7)
    while True:
        points += step
        with source(count, meta(points)) as instance:
            instance.subscribe()
            while not instance.is_exhausted:
                time.sleep(0)
            tracer = Tracer(points)
            consumer = kind(instance, tracer.guard, 1, rolls_back)
            while not consumer.is_over:
                consumer.go_on()
            check(consumer, instance, count)
        if tracer.left > 0:
            return points


@pytest.mark.parametrize("rolls_back", [False, True], ids=["goes on", "rolls back"])
@pytest.mark.parametrize("kind", CONSUMERS, ids=lambda kind: kind.__name__)
def test_an_exception_at_any_point_loses_nothing(kind: type[Consumer], rolls_back: bool, thorough: bool) -> None:
    assert try_each_point(kind, rolls_back, 3, lambda point: canal.MemoryMeta(), thorough) > 100


def test_an_exception_at_any_point_of_writing_a_cursor_loses_nothing(tmp_path: Path, thorough: bool) -> None:
    assert try_each_point(Acks, False, 2, lambda point: canal.FileMeta(tmp_path / str(point)), thorough) > 100


# -- at any time ---------------------------------------------------------------------------------------------------------


class Signals:
    """Signals at random moments; the handler raises in what is called by ``guard``."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.count = 0

    def __enter__(self) -> Signals:
        self._old = signal.signal(signal.SIGUSR1, self._handle)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        signal.signal(signal.SIGUSR1, self._old)

    def _send(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        while not self._over.is_set():
            time.sleep(self._rng.choice((1e-5, 1e-4, 4e-4)) * self._rng.random())
            signal.pthread_kill(main, signal.SIGUSR1)

    def _handle(self, number: int, frame: object) -> None:
        if Armed.is_set:
            Armed.is_set = False
            self.count += 1
            raise Interrupt

    @staticmethod
    def guard(call: Callable[[], Any]) -> Any:
        Armed.is_set = True
        try:
            result = call()
            Armed.is_set = False
        except BaseException:
            Armed.is_set = False
            raise
        return result


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONSUMERS, ids=lambda kind: kind.__name__)
def test_signals_at_any_time_lose_nothing(kind: type[Consumer], full_size: bool, thorough: bool) -> None:
    """20,000 of them for each way to use an Instance at full size, again and again over 20,000 rows."""
    wanted, rows, seed = (20_000 if full_size else 2_000 if thorough else 300), 20_000, 0
    while wanted > 0:
        seed += 1
        with source(rows, canal.MemoryMeta(), store=canal.store.MemoryStore(256)) as instance:
            instance.subscribe()
            with Signals(seed) as signals:
                consumer = kind(instance, signals.guard, 1 + seed * 7 % 20, rolls_back=seed % 2 == 0)
                consumer.timeout = 0.001
                while signals.count < wanted and not (instance.is_exhausted and consumer.is_over):
                    consumer.go_on()
            wanted -= signals.count
            check(consumer, instance, rows)


# -- of a client that is behind the store ----------------------------------------------------------------------------------


def ids_of(message: canal.Message | None) -> list[int]:
    return [row.after["id"] for entry in (message or ()) for row in entry.rows]


@pytest.mark.parametrize("seed", range(4))
def test_an_exception_at_some_points_of_being_behind_the_store_loses_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the eviction to catching up: the line of its own is opened, read, left and ended."""
    monkeypatch.setattr(f"{__name__}.rows_of", ids_of)
    rng = random.Random(seed)
    fake = FakeBinlog()
    table = fake.table("s", "a", "id INT PRIMARY KEY")
    for number in range(40):
        table.insert({"id": number})
    options = {"store_entries": 16, "slow_after": 0.01, "on_slow": "evict", "alarm": lambda destination, text: None}
    for _ in range(10):
        with instance_of(fake, **options) as instance:
            instance.subscribe()
            instance.subscribe(2)
            while instance.position(2).offset != fake.position.offset:
                instance.ack(instance.get_without_ack(9, timeout=60, client_id=2).id, client_id=2)
            tracer = Tracer(rng.randint(1, 2500))
            consumer = rng.choice((Acks, AcksLater))(instance, tracer.guard, 3, rng.random() < 0.5)
            consumer.timeout = 0.01
            deadline = time.monotonic() + 60
            while instance.position().offset != fake.position.offset or instance.status().clients[0].is_behind:
                assert time.monotonic() < deadline
                consumer.go_on()
                if consumer.is_over:  # an ack was cut short, and the next one that would tell so does not come
                    consumer.roll_back()

            assert 40 in consumer.journal.next
            assert instance.meta.cursor(1001) == instance.position()
            assert len(instance._client(1001).feeds) == 0
        assert not [thread for thread in threading.enumerate() if thread.is_alive() and thread.name == "canal-test-parse"]
