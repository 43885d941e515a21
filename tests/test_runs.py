"""A run has its own state: start and stop from any thread, from code that canal calls, interrupted, and parts that are shared."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import canal
from canal._util.threads import OwnThread
from canal.parse.log_positions import MemoryLogPositionManager
from canal.testing import FakeBinlog
from tests.support.instances import in_thread
from tests.support.stand_ins import PATIENCE, Address, Holding, alarm_clock

ROWS = 40


def fake_with(count: int, begin: int = 0) -> FakeBinlog:
    fake = FakeBinlog()
    table = fake.table("d", "t", "id INT PRIMARY KEY")
    for number in range(begin, begin + count):
        table.insert({"id": number})
    return fake


def config(fake: Any, **options: Any) -> canal.InstanceConfig:
    return canal.InstanceConfig(
        **{
            "destination": "r",
            "source": fake,
            "start": "earliest",
            "reconnect_backoff": (0.001, 0.01),
            "alarm": lambda destination, text: None,
        }
        | options
    )


def threads(destination: str = "r") -> list[str]:
    # Not those of which a start was interrupted: Python may leave one that waits for its own lock, and never does anything.
    found = (one for one in threading.enumerate() if one.is_alive())
    return [one.name for one in found if one.name.startswith(f"canal-{destination}-")]


def wait_until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def read_all(instance: canal.Instance, count: int, **options: Any) -> list[int]:
    """The ids of the next rows, each batch acked."""
    found: list[int] = []
    while len(found) < count:
        message = instance.get_without_ack(3, timeout=PATIENCE, **options)
        assert message
        found += [row.after["id"] for entry in message.entries for row in entry.rows]
        instance.ack(message.id, **options)
    return found


def comes_whole(instance: canal.Instance, fake: FakeBinlog) -> None:
    """The instance starts again, and then gives all once, in order, and nothing else."""
    wait_until(lambda: threads() == [])
    instance.start()
    try:
        instance.subscribe()
        assert read_all(instance, ROWS) == list(range(ROWS))
        assert not instance.get_without_ack(10, timeout=0.05)
    finally:
        instance.stop()
    assert threads() == []


# -- stop and start where canal calls its user -------------------------------------------------------------------------


class Restart:
    """Stops and starts an instance, once: what canal calls does so."""

    def __init__(self) -> None:
        self.instance: Any = None
        self.refusals: list[canal.StateError] = []
        self.on: list[threading.Thread] = []
        self.called = threading.Event()

    def __call__(self) -> None:
        if self.called.is_set() or self.instance is None or not self.instance.is_running:
            return
        self.on.append(threading.current_thread())
        self.instance.stop()
        assert not self.instance.is_running
        try:
            self.instance.start()
        except canal.StateError as error:
            self.refusals.append(error)
        self.called.set()


class RestartingHook(canal.Hook):
    def __init__(self, restart: Restart, when: str) -> None:
        self._restart, self._when = restart, when

    def before(self, entries: list[canal.Entry]) -> Sequence[canal.Entry]:
        if self._when == "before":
            self._restart()
        return entries

    def after(self, entries: Sequence[canal.Entry]) -> None:
        if self._when == "after":
            self._restart()


class RestartingSink(canal.sink.EntrySink):
    def __init__(self, restart: Restart) -> None:
        super().__init__()
        self._restart = restart

    def sink(self, entries: list[canal.Entry]) -> None:
        self._restart()
        super().sink(entries)


def restarting(where: str, restart: Restart, source: Any) -> canal.Instance:
    if where in ("before", "after"):
        return canal.Instance(config(source, hooks=[RestartingHook(restart, where)]))
    if where == "row filter":
        return canal.Instance(config(source, row_filter=lambda header, before, after: restart() or True))
    parser = canal.parse.BinlogParser(source, start="earliest")
    return canal.Instance.compose("r", parser=parser, sink=RestartingSink(restart))


@pytest.mark.parametrize("where", ["before", "after", "row filter", "sink"])
def test_what_a_run_calls_may_stop_it_and_not_start_it_again(where: str) -> None:
    fake, restart = fake_with(ROWS), Restart()
    instance = restart.instance = restarting(where, restart, fake)
    with contextlib.suppress(canal.StateError):  # it may be stopped while it still starts
        instance.start()
    assert restart.called.wait(PATIENCE)
    (refusal,) = restart.refusals
    assert "has not ended yet" in refusal.message
    assert "thread of your own" in refusal.remedy
    with pytest.raises(canal.StateError):
        instance.subscribe()
    instance.stop()  # waits for the end of what the other one began
    assert threads() == []
    comes_whole(instance, fake)


@pytest.mark.parametrize("kind", list(canal.AlarmKind))
def test_an_alarm_may_stop_the_run_and_not_start_it_again(kind: canal.AlarmKind) -> None:
    class Alarming(canal.Hook):
        def before(self, entries: list[canal.Entry]) -> Sequence[canal.Entry]:
            instance.parser._run.alarms.announce(kind, "as the parser does")  # type: ignore[attr-defined]
            return entries

    fake, restart = fake_with(ROWS), Restart()
    instance = canal.Instance(config(fake, hooks=[Alarming()], alarm=lambda destination, text: restart()))
    restart.instance = instance
    with contextlib.suppress(canal.StateError):  # the alarm may come while it still starts
        instance.start()
    assert restart.called.wait(PATIENCE)
    assert len(restart.refusals) == 1
    comes_whole(instance, fake)


def test_an_alarm_about_a_lost_source_may_stop_the_run_while_others_start_it() -> None:
    """On the thread of the parser and on that of the heartbeats, again and again, with starts on the main thread."""
    fake, address = fake_with(ROWS), Address(None)
    kinds = itertools.cycle((canal.AlarmKind.CONNECTION, canal.AlarmKind.FAILOVER))
    awaited = next(kinds)

    def alarm(destination: str, text: Any) -> None:
        if text.kind is not awaited:
            return
        instance.stop()
        with contextlib.suppress(canal.StateError):
            instance.start()

    options: dict[str, Any] = {"heartbeat": canal.Heartbeat(interval=0.001, timeout=1.0, retries=0), "alarm": alarm}
    instance = canal.Instance(config(address, **options))
    for _ in range(50):
        with contextlib.suppress(canal.StateError):  # stopped by an alarm while it started
            instance.start()
        wait_until(lambda: not instance.is_running)
        awaited = next(kinds)
    instance.stop()
    address.server = fake
    comes_whole(instance, fake)


def test_a_parser_by_itself_is_not_started_on_its_own_thread() -> None:
    fake, refusals = fake_with(ROWS), []

    class Sink(canal.sink.EntrySink):
        def sink(self, entries: list[canal.Entry]) -> None:
            parser.stop()
            try:
                parser.start("r", self, None, lambda: None)
            except canal.StateError as error:
                refusals.append(error)

    parser = canal.parse.BinlogParser(fake, start="earliest")
    parser.start("r", Sink(), None, lambda: None)
    wait_until(lambda: refusals)
    parser.stop()
    assert threads() == []
    assert "on the thread of its last run" in refusals[0].message
    sink, store = canal.sink.EntrySink(), canal.store.MemoryStore()
    store.start()
    sink.start("r", store)
    parser.start("r", sink, None, store.end)
    wait_until(lambda: store.entry_count == 3 * ROWS)
    parser.stop()
    assert threads() == []


class OwnParser:
    """A user's own parser: hooks are called on a thread of which canal knows nothing."""

    error: canal.CanalError | None = None
    is_finished = False
    _thread: threading.Thread | None = None

    def start(self, destination: str, sink: canal.sink.Sink, resume: Any, finished: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=sink.sink, args=([],))
        self._thread.start()

    def stop(self) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def wait_started(self, timeout: float) -> canal.Position:
        return canal.Position("j", 4)


def test_what_runs_on_a_thread_of_a_users_own_parser_may_stop_the_instance_too() -> None:
    class Sink(canal.sink.EntrySink):
        def sink(self, entries: list[canal.Entry]) -> None:
            entered.set()
            assert go.wait(PATIENCE)
            instance.stop()

    entered, go = threading.Event(), threading.Event()
    instance = canal.Instance.compose("r", parser=OwnParser(), sink=Sink())
    for _ in range(2):
        entered.clear(), go.clear()
        instance.start()
        assert entered.wait(PATIENCE)
        stopping = threading.Thread(target=instance.stop, daemon=True)
        stopping.start()
        wait_until(lambda: not instance.is_running)
        go.set()
        stopping.join(PATIENCE)
        assert not stopping.is_alive()


@pytest.mark.parametrize("where", ["before", "after", "row filter", "sink", "alarm"])
def test_what_a_run_calls_holds_no_lock_that_another_thread_needs(where: str) -> None:
    """It may wait for a thread that asks the instance for anything."""
    fake, done = fake_with(ROWS), threading.Event()

    class Asking(Restart):
        def __call__(self) -> None:
            if done.is_set() or self.instance is None:
                return
            asking = threading.Thread(target=self.ask, daemon=True)
            asking.start()
            asking.join(PATIENCE)
            assert not asking.is_alive()
            done.set()

        def ask(self) -> None:
            instance = self.instance
            instance.status(1.0)
            instance.subscriptions()
            instance.parser.oldest()
            with contextlib.suppress(canal.StateError, canal.errors.NotSubscribedError):  # it may still start
                instance.get_without_ack(1)
                instance.unsubscribe(7)
            with contextlib.suppress(canal.CanalError):
                instance.switch()

    asking = Asking()
    if where == "alarm":
        address = Address(None)
        instance = canal.Instance(config(address, alarm=lambda destination, text: asking()))
    else:
        instance = restarting(where, asking, fake)
    asking.instance = instance
    with instance:
        assert done.wait(PATIENCE)


# -- from several threads ----------------------------------------------------------------------------------------------


def test_a_stop_while_another_thread_starts_ends_what_that_one_has_started() -> None:
    class Slow(canal.MemoryMeta):
        def start(self, destination: str) -> None:
            entered.set()
            assert go.wait(PATIENCE)
            super().start(destination)

    entered, go, failures = threading.Event(), threading.Event(), []
    fake = fake_with(ROWS)
    instance = canal.Instance(config(fake, meta=Slow()))

    def start() -> None:
        try:
            instance.start()
        except canal.StateError as error:
            failures.append(error.message)

    starting = threading.Thread(target=start)
    starting.start()
    assert entered.wait(PATIENCE)
    stopping = threading.Thread(target=instance.stop)
    stopping.start()
    wait_until(lambda: not instance.is_running)
    go.set()
    starting.join(PATIENCE)
    stopping.join(PATIENCE)
    assert failures == ["the instance was stopped while it started"]
    assert threads() == []
    comes_whole(instance, fake)


def test_a_part_that_starts_may_stop_the_instance() -> None:
    class Refusing(canal.MemoryMeta):
        def start(self, destination: str) -> None:
            super().start(destination)
            if not asked:
                asked.append(1)
                instance.stop()

    asked: list[int] = []
    fake = fake_with(ROWS)
    instance = canal.Instance(config(fake, meta=Refusing()))
    with pytest.raises(canal.StateError, match="stopped while it started"):
        instance.start()
    comes_whole(instance, fake)


def sockets() -> int:
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the folder's own
            found += str(one.readlink()).startswith("socket:")
    return found


@pytest.mark.parametrize("is_wire", [False, True], ids=["within the process", "by sockets"])
@pytest.mark.parametrize("seed", range(8))
def test_whatever_threads_start_stop_and_read_a_later_start_works_and_nothing_is_left(seed: int, is_wire: bool) -> None:
    """A model of it: in every state that any schedule leads to, is_running, the threads and the next calls agree."""
    rng = random.Random(seed)
    fake = fake_with(ROWS)
    with contextlib.ExitStack() as stack:
        source: Any = fake
        if is_wire:
            served = stack.enter_context(fake.serve())
            source = canal.MySQLSource(host=served.host, port=served.port)
        before = sockets()
        instance = canal.Instance(config(source, hooks=[PausingHook(rng)], start_timeout=PATIENCE))
        run_schedules(instance, rng)
        wait_until(lambda: sockets() <= before)
        comes_whole(instance, fake)


def run_schedules(instance: canal.Instance, rng: random.Random) -> None:
    unexpected: list[BaseException] = []

    def act(choices: list[str]) -> None:
        for choice in choices:
            try:
                if choice == "start":
                    instance.start()
                elif choice == "stop":
                    instance.stop()
                elif choice == "with":
                    with instance:
                        instance.subscribe(timeout=PATIENCE)
                elif choice == "subscribe":
                    instance.subscribe(rng.choice([1001, 7]), timeout=PATIENCE)
                elif choice == "unsubscribe":
                    instance.unsubscribe(7)
                elif choice == "status":
                    instance.status()
                else:
                    instance.get_without_ack(5, timeout=rng.choice([0.0, 0.01]))
            except canal.StateError:
                pass  # not running, or another thread was quicker
            except canal.errors.NotSubscribedError:
                pass
            except canal.ConnectionLostError:
                pass  # stopped before there was a start position
            except BaseException as error:
                unexpected.append(error)

    words = ["start", "start", "stop", "with", "subscribe", "unsubscribe", "get", "get", "status"]
    for _ in range(6):
        workers = [threading.Thread(target=act, args=(rng.choices(words, k=12),), daemon=True) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(PATIENCE)
        assert not any(worker.is_alive() for worker in workers)
        assert unexpected == []
        instance.stop()
        assert not instance.is_running
        assert threads() == []
        instance.start()
        assert instance.is_running
        instance.unsubscribe(7)
        instance.unsubscribe()
        instance.stop()


class PausingHook(canal.Hook):
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def before(self, entries: list[canal.Entry]) -> Sequence[canal.Entry]:
        time.sleep(self._rng.choice([0.0, 0.0, 0.001]))
        return entries


def test_a_get_that_outlives_a_stop_takes_nothing_of_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeBinlog()
    table = fake.table("d", "t", "id INT PRIMARY KEY")
    instance = canal.Instance(config(fake))
    outcomes: list[str] = []
    looking = threading.Event()
    get = instance.store.get

    def noted(*arguments: Any) -> Any:
        looking.set()
        return get(*arguments)

    def wait() -> None:
        try:
            outcomes.append(repr(instance.get_without_ack(10, timeout=None)))
        except canal.StateError as error:
            outcomes.append(error.message)

    monkeypatch.setattr(instance.store, "get", noted)
    for number in range(30):
        with instance:
            instance.subscribe()
            looking.clear()
            waiting = threading.Thread(target=wait, daemon=True)
            waiting.start()
            assert looking.wait(PATIENCE)
        with instance:
            table.insert({"id": number})
            assert read_all(instance, 1) == [number]
            waiting.join(PATIENCE)
            assert not waiting.is_alive()
    assert outcomes == ["the instance was stopped"] * 30


# -- interrupted -------------------------------------------------------------------------------------------------------


def test_a_stop_that_is_interrupted_can_be_called_again(tmp_path: Path) -> None:
    fake, hook = fake_with(ROWS), Holding()
    meta = canal.FileMeta(tmp_path)
    instance = canal.Instance(config(fake, meta=meta, hooks=[hook])).start()
    assert hook.entered.wait(PATIENCE)
    with alarm_clock():
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                instance.stop()
            assert not instance.is_running
            assert threads() == ["canal-r-parse"]  # which it has not silently forgotten
    hook.go.set()
    instance.stop()
    assert threads() == []
    comes_whole(instance, fake)


def test_a_start_finishes_a_stop_that_was_interrupted() -> None:
    fake, hook = fake_with(ROWS), Holding()
    instance = canal.Instance(config(fake, hooks=[hook])).start()
    assert hook.entered.wait(PATIENCE)
    with alarm_clock(), pytest.raises(KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        instance.stop()
    threading.Timer(0.05, hook.go.set).start()
    instance.start()
    instance.subscribe()
    assert read_all(instance, ROWS) == list(range(ROWS))
    instance.stop()
    assert threads() == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one that comes within a collection
def test_interrupts_at_any_time_of_start_and_stop_leave_nothing_behind() -> None:
    fake, rng = fake_with(ROWS), random.Random(1)
    instance = canal.Instance(config(fake))
    with alarm_clock():
        for _ in range(300):
            with contextlib.suppress(KeyboardInterrupt):
                with contextlib.suppress(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 4e-3))
                    with instance:
                        instance.subscribe()
                signal.setitimer(signal.ITIMER_REAL, 0)
            instance.stop()
            assert not instance.is_running
            wait_until(lambda: threads() == [])
            with instance:
                assert instance.is_running
    instance.start()
    instance.unsubscribe()
    instance.stop()
    comes_whole(instance, fake)


def test_a_start_that_is_interrupted_waits_for_no_room_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser's thread runs already, and has filled the store that nobody reads yet."""
    fake = fake_with(ROWS)
    instance = canal.Instance(config(fake, store_entries=8))
    start = OwnThread.start

    def interrupted(thread: OwnThread) -> None:
        start(thread)
        if thread.name == "canal-r-parse":
            wait_until(lambda: instance.store.status().waited > 0)  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    monkeypatch.setattr(OwnThread, "start", interrupted)
    caller, raised = in_thread(instance.start)
    caller.join(PATIENCE)
    assert not caller.is_alive()
    assert isinstance(raised[0], KeyboardInterrupt)
    assert not instance.is_running
    instance.stop()
    assert threads() == []
    monkeypatch.undo()
    comes_whole(instance, fake)


def test_an_interrupt_that_python_hides_behind_its_lock_is_the_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Condition.wait, interrupted while it lets go of its lock, says "release unlocked lock" (before Python 3.13)."""

    def start(self: threading.Thread) -> None:
        lock = threading.Lock()
        try:
            raise KeyboardInterrupt
        finally:
            lock.release()

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        canal.Instance(config(fake_with(ROWS))).start()


def test_a_part_that_fails_to_stop_keeps_the_others_from_nothing() -> None:
    class Failing(canal.MemoryMeta):
        def stop(self) -> None:
            super().stop()
            raise canal.CursorError("cannot be written")

    fake = fake_with(ROWS)
    instance = canal.Instance(config(fake, meta=Failing()))
    for _ in range(2):
        instance.start()
        with pytest.raises(canal.CursorError):
            instance.stop()
        assert not instance.is_running
        assert threads() == []
        instance.stop()


# -- a server ----------------------------------------------------------------------------------------------------------


def test_what_a_server_waits_for_may_ask_the_server() -> None:
    """stop(name) waits for a hook, which asks for another destination; so does a generator, for another thread."""
    fake = fake_with(ROWS)
    entered, answers = threading.Event(), []

    class Asking(canal.Hook):
        def before(self, entries: list[canal.Entry]) -> Sequence[canal.Entry]:
            entered.set()
            wait_until(lambda: "a" not in server.destinations())
            answers.append(server.instance("b").destination)
            return entries

    def generate(destination: str) -> canal.InstanceConfig:
        asking = threading.Thread(target=lambda: answers.append(str(len(server.destinations()))))
        asking.start()
        asking.join(PATIENCE)
        assert not asking.is_alive()
        return config(fake_with(1), destination=destination)

    with canal.Server([config(fake, destination="a", hooks=[Asking()])], generate) as server:
        server.instance("a")
        assert entered.wait(PATIENCE)
        stopping = threading.Thread(target=server.stop, args=("a",), daemon=True)
        stopping.start()
        stopping.join(PATIENCE)
        assert not stopping.is_alive()
        assert answers[-1] == "b"
        assert server.destinations() == ["b"]
    assert threads("a") == threads("b") == []


def test_an_alarm_may_stop_the_whole_server() -> None:
    fake, restart = fake_with(ROWS), Restart()

    class Stopping(canal.Hook):
        def before(self, entries: list[canal.Entry]) -> Sequence[canal.Entry]:
            server.stop()
            return entries

    server = canal.Server([config(fake, destination="a", hooks=[Stopping()]), config(fake_with(1), destination="b")])
    server.instance("b")
    with contextlib.suppress(canal.StateError):
        server.instance("a")
    assert server.wait(PATIENCE)
    assert threads("a") == threads("b") == []
    assert restart.refusals == []


def test_destinations_that_threads_start_and_stop_at_once() -> None:
    rng, unexpected = random.Random(3), []
    server = canal.Server(generator=lambda name: config(fake_with(3), destination=name))

    def act(seed: int) -> None:
        own = random.Random(seed)
        for _ in range(15):
            name = own.choice(["a", "b"])
            try:
                if own.random() < 0.5:
                    assert server.instance(name).destination == name
                else:
                    server.stop(name)
            except (canal.StateError, canal.errors.UnknownDestinationError):
                pass
            except BaseException as error:
                unexpected.append(error)

    workers = [threading.Thread(target=act, args=(rng.random(),), daemon=True) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE)
    assert not any(worker.is_alive() for worker in workers)
    assert unexpected == []
    for name in server.destinations():
        assert server.instance(name).is_running
        server.stop(name)
    assert threads("a") == threads("b") == []
    server.instance("a")
    server.stop()
    assert server.wait(PATIENCE)
    assert threads("a") == []


def test_a_servers_stop_that_is_interrupted_can_be_called_again() -> None:
    hook = Holding()
    server = canal.Server([config(fake_with(1), destination="a", hooks=[hook]), config(fake_with(1), destination="b")])
    for name in ("a", "b"):
        server.instance(name)
    assert hook.entered.wait(PATIENCE)
    with alarm_clock():
        for name in ("a", None):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                server.stop(name)
            assert not server.wait(0.0)
    hook.go.set()
    server.stop()
    assert server.wait(0.0)
    assert threads("a") == threads("b") == []


# -- parts that two instances share ------------------------------------------------------------------------------------


def composed(destination: str, **parts: Any) -> canal.Instance:
    options = {name: parts.pop(name) for name in ("history", "log_positions") if name in parts}
    parser = parts.pop("parser", None) or canal.parse.BinlogParser(fake_with(ROWS), start="earliest", **options)
    return canal.Instance.compose(destination, parser=parser, **parts)


SHARED: dict[str, Callable[[Path], Any]] = {
    "meta": lambda path: canal.MemoryMeta(),
    "store": lambda path: canal.store.MemoryStore(),
    "sink": lambda path: canal.sink.EntrySink(),
    "parser": lambda path: canal.parse.BinlogParser(fake_with(ROWS), start="earliest"),
    "history": lambda path: canal.FileHistory(path),
    "log_positions": lambda path: MemoryLogPositionManager(),
}


@pytest.mark.parametrize("part", SHARED)
def test_a_part_of_one_run_is_refused_to_another_by_name(part: str, tmp_path: Path) -> None:
    shared = SHARED[part](tmp_path)
    first, second = (composed(name, **{part: shared}) for name in ("r", "other"))
    with first:
        first.subscribe()
        with pytest.raises(canal.StateError, match=rf"{type(shared).__name__}.* is in use by the instance of 'r'"):
            second.start()
        assert not second.is_running
        assert threads("other") == []
        assert read_all(first, ROWS) == list(range(ROWS))
    with second:  # one after the other they may
        second.subscribe()
    assert threads() == threads("other") == []


def test_what_two_instances_may_share(tmp_path: Path) -> None:
    """A source, a standby, a heartbeat, hooks and filters: their runs connect each for itself."""
    fake, standby = fake_with(ROWS), fake_with(ROWS)
    seen: list[int] = []

    class Counting(canal.Hook):
        def after(self, entries: Sequence[canal.Entry]) -> None:
            seen.append(sum(entry.row_count for entry in entries))

    options: dict[str, Any] = {
        "standby": standby,
        "standby_start": "earliest",
        "heartbeat": canal.Heartbeat(interval=0.01),
        "hooks": [Counting()],
        "row_filter": lambda header, before, after: True,
    }
    first, second = (canal.Instance(config(fake, destination=name, **options)) for name in ("r", "other"))
    with first, second:
        for instance in (first, second):
            instance.subscribe()
        assert [read_all(instance, ROWS) for instance in (first, second)] == [list(range(ROWS))] * 2
        assert first.switch()
        assert first.parser.source is standby  # type: ignore[attr-defined]
        assert second.parser.source is fake  # type: ignore[attr-defined]
    assert sum(seen) >= 2 * ROWS
