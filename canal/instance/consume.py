"""``Instance.consume`` with ``workers``: threads that handle changes concurrently, in order for each key.

A batch is acknowledged after it and all batches before it are done. Two changes of one key never run at the same time.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import attrs

from canal._util.bounded import Recent
from canal._util.option_checks import check_callable
from canal.changes.change import Change, Table
from canal.changes.flat import FlatReader, refuse_unlogged
from canal.changes.keys import KeyRules
from canal.errors import BatchError, CanalError, ConfigError, NotActiveError, NotSubscribedError, StateError
from canal.formats.message import Message
from canal.instance.calls import Calls
from canal.model import TableMap

log = logging.getLogger("canal")

#: Seconds of one wait for a message: short while changes are in flight, so that their batches are acknowledged soon.
_BUSY, _IDLE = 0.05, 1.0

Key = Callable[[Change], Hashable | None]


class PrimaryKeys:
    """Returns the keys that order changes: primary keys, as the source compares them."""

    def __init__(self) -> None:
        self._rules: Recent[tuple[str, str], tuple[TableMap, KeyRules]] = Recent()

    def order(self, change: Change) -> tuple[Sequence[Hashable], Hashable | None]:
        """Return the exclusive keys of the change, and the key that it shares with changes of other rows.

        The exclusive keys are the primary key and, after an update of the key, the former one. The table itself is the exclusive
        key in three cases: the table has no primary key, the source may consider the key equal to any other key, or the key's
        columns have just changed.
        """
        name, table = change.table.origin, change.entry.table
        if table is None or change.key is None:
            return (name,), None
        found = self._rules.get(name)
        if found is None or found[0] is not table:
            rules = KeyRules.of(table.columns, table.names.key)
            self._rules[name] = table, rules
            if found is not None and found[1] != rules:
                return (name,), None
        else:
            rules = found[1]
        group, old = rules.group(change.key), change.old_key
        former = group if old is None else rules.group(old)
        if group is None or former is None:
            return (name,), None
        return ((*name, group),) if former == group else ((*name, group), (*name, former)), name


@attrs.define(eq=False)
class UnfinishedBatch:
    """An outstanding batch: its id, the number of its changes, and how many of them are not done."""

    id: int
    count: int
    left: int


@attrs.define(eq=False)
class Task:
    """A change that waits for all earlier changes with one of its keys."""

    change: Change
    batch: UnfinishedBatch
    keys: Sequence[Hashable]
    shared: Hashable | None = None
    """A key that consecutive tasks may share: a task waits only for tasks to which the key is exclusive."""
    waits: int = 0
    """The number of its keys for which an earlier task is not done."""
    failures: int = 0


@attrs.define(eq=False)
class Turn:
    """Tasks of one key that may run at the same time: one exclusive task, or several tasks that share the key."""

    is_shared: bool
    left: int = 0
    waiting: list[Task] = attrs.field(factory=list)
    """The tasks, until the turn is the first of its key."""


class KeyOrder:
    """Decides which tasks may run: a task must be in the first turn of each of its keys. Not thread-safe."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[Turn]] = {}

    def add(self, task: Task) -> bool:
        """Add the next task. Return whether it may run now."""
        for key in task.keys:
            self._join(key, task, is_shared=False)
        if task.shared is not None:
            self._join(task.shared, task, is_shared=True)
        return not task.waits

    def _join(self, key: Hashable, task: Task, *, is_shared: bool) -> None:
        line = self._lines.setdefault(key, deque())
        if not line or not is_shared or not line[-1].is_shared:
            line.append(Turn(is_shared))
        line[-1].left += 1
        if len(line) > 1:
            line[-1].waiting.append(task)
            task.waits += 1

    def done(self, task: Task) -> list[Task]:
        """Remove a finished task. Return the tasks that may run now."""
        ready: list[Task] = []
        for key in task.keys if task.shared is None else (*task.keys, task.shared):
            line = self._lines[key]
            line[0].left -= 1
            if line[0].left:
                continue
            line.popleft()
            if not line:
                del self._lines[key]
                continue
            waiting, line[0].waiting = line[0].waiting, []
            for other in waiting:
                other.waits -= 1
                if not other.waits:
                    ready.append(other)
        return ready


class Handling:
    """Calls the handler for one change and decides about retries.

    Args:
        handler: called with each change, in any of the threads.
        retries, backoff, on_unfit: as in ``Instance.consume``, for one change.
    """

    def __init__(
        self,
        handler: Callable[[Change], Any],
        retries: int,
        backoff: tuple[float, float],
        on_unfit: Callable[[Change, Exception], Any] | None,
    ) -> None:
        check_callable(handler, "handler")
        self.handler = handler
        self._retries = retries
        self._backoff = backoff
        self.on_unfit = on_unfit

    def __call__(self, task: Task) -> float | None:
        """Handle the task once. Return None if it is done, or the seconds until its retry. Raise if the consumer must stop."""
        try:
            self.handler(task.change)
        except CanalError:
            raise
        except Exception as error:
            wait = self.failed(task, error)
            if wait is None and self.on_unfit is not None:
                self.on_unfit(task.change, error)
            return wait
        return None

    def failed(self, task: Task, error: Exception) -> float | None:
        """Return the seconds until the retry, or None after the last one. Raise the error if there is no ``on_unfit``."""
        task.failures += 1
        if task.failures <= self._retries:
            log.warning(
                "the handler failed at %r, attempt %d of %d", task.change.entry, task.failures, self._retries + 1, exc_info=error
            )
            return min(self._backoff[0] * 2.0 ** min(task.failures - 1, 60), self._backoff[1])
        if self.on_unfit is None:
            raise error
        return None


class Crew:
    """Threads that handle tasks in the order of their keys.

    Args:
        name: prefix of the threads' names.
        handle: handles one task; see ``Handling``.
    """

    def __init__(self, name: str, workers: int, handle: Callable[[Task], float | None]) -> None:
        self._handle = handle
        self._order = KeyOrder()
        self._ready: deque[Task] = deque()
        self._later: list[tuple[float, int, Task]] = []  # a heap of retries: time, sequence number, task
        self._count = 0
        self._stopping = False
        self.left = 0  # tasks that are not done
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # a task may be ready
        self._done = threading.Condition(self._lock)  # a batch or all tasks are done, or a task failed
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(workers)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def add(self, task: Task) -> None:
        """Add a task. It runs when it is the first of each of its keys."""
        with self._lock:
            self.left += 1
            if self._order.add(task):
                self._ready.append(task)
                self._work.notify()

    def wait(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the end of a batch or of all tasks, or for an error."""
        with self._lock:
            if self.left and self.error is None:
                self._done.wait(seconds)

    def stop(self) -> None:
        """Start no further task and wait for the running ones."""
        with self._lock:
            self._stopping = True
            self._work.notify_all()
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                wait = self._handle(task)
            except BaseException as error:  # also SystemExit, which the caller of consume raises again
                self.fail(error)
                return
            self._ended(task, wait)

    def _next(self) -> Task | None:
        with self._lock:
            while not self._stopping:
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    self._ready.append(heapq.heappop(self._later)[2])
                if self._ready:
                    return self._ready.popleft()
                self._work.wait(self._later[0][0] - now if self._later else None)
            return None

    def _ended(self, task: Task, wait: float | None) -> None:
        with self._lock:
            if wait is not None:  # the task remains the first of its keys
                self._count += 1
                heapq.heappush(self._later, (time.monotonic() + wait, self._count, task))
                self._work.notify()
                return
            self.left -= 1
            task.batch.left -= 1
            ready = self._order.done(task)
            self._ready.extend(ready)
            self._work.notify(len(ready))
            if not task.batch.left or not self.left:
                self._done.notify_all()

    def fail(self, error: BaseException) -> None:
        """Start no further task and let the consumer raise this error."""
        with self._lock:
            self.error = self.error or error
            self._stopping = True
            self._work.notify_all()
            self._done.notify_all()


class ParallelConsumer:
    """Reads one client's batches, passes their changes to a crew and acknowledges finished batches in order.

    Args:
        new_crew: creates a crew for each turn.
        idle: seconds of one wait for a message at most.
        in_flight: unacknowledged changes at most, plus one batch.
        key: the function that orders changes, or "primary key".
        statements: also pass statements. No other change runs at the same time.
    """

    def __init__(
        self,
        calls: Calls,
        new_crew: Callable[[], Crew],
        workers: int,
        key: str | Key,
        in_flight: int,
        statements: bool,
        batch_size: int,
        linger: float,
        client_id: int,
        idle: float = _IDLE,
    ) -> None:
        if type(workers) is not int or workers < 1:
            raise ConfigError(f"workers must be an int of at least 1, not {workers!r}")
        if in_flight < 1:
            raise ConfigError(f"in_flight must be at least 1, not {in_flight!r}")
        if key != "primary key" and not callable(key):
            raise ConfigError(f'key must be "primary key" or a function of a canal.Change, not {key!r}')
        self._calls = calls
        self._key = key
        self._primary_keys = PrimaryKeys()
        self._in_flight = in_flight
        self._statements = statements
        self._get = (batch_size, linger, client_id)
        self._client_id = client_id
        self._batches: deque[UnfinishedBatch] = deque()
        self._idle = idle
        self._reader = FlatReader()
        self._is_cancelled = False
        self._new_crew = new_crew
        self._crew = new_crew()

    def run(self) -> None:
        """Consume until the source ends or an error occurs. Unacknowledged batches are delivered again."""
        readers = self._calls.readers
        readers.begin(self._client_id, self, "consume(workers=)")
        try:
            self._run()
        finally:
            readers.end(self._client_id, self)

    def _run(self) -> None:
        while True:
            self._crew = self._new_crew()
            with contextlib.suppress(NotActiveError):  # a standby has no outstanding batches
                self._calls.rollback(client_id=self._client_id)
            try:
                self._crew.start()
                self._read()
                return
            except NotActiveError:  # another process delivers the unacknowledged batches; the next get waits for our turn
                if not self._calls.is_running or self._is_cancelled:
                    raise
            finally:
                self._end()

    def cancel(self) -> None:
        """Let ``run`` raise StateError soon. Thread-safe."""
        self._is_cancelled = True
        self._crew.fail(StateError("it was cancelled"))

    def _check(self) -> None:
        if self._crew.error is not None:
            raise self._crew.error
        if self._is_cancelled:
            raise StateError("it was cancelled")

    def _read(self) -> None:
        batch_size, linger, client_id = self._get
        calls, crew = self._calls, self._crew
        while True:
            self._ack_done()
            self._check()
            if sum(batch.count for batch in self._batches) >= self._in_flight:
                calls.client(client_id)  # raises if the instance was stopped
                crew.wait(_IDLE)
                continue
            is_over = calls.is_over(client_id)
            timeout = _BUSY if self._batches else self._idle
            message = calls.read(batch_size, timeout, linger, client_id)
            if message:
                self._hand_out(message)
            elif is_over and not self._batches:
                return
            elif is_over:
                crew.wait(_IDLE)

    def _hand_out(self, message: Message) -> None:
        changes = list(self._reader.changes(message, statements=True))
        batch = UnfinishedBatch(message.id, len(changes), len(changes))
        self._batches.append(batch)
        for change in changes:
            if change.op.is_row:
                self._crew.add(Task(change, batch, *self._keys(change)))
                continue
            self._wait_all()  # the statement may change the keys or the name of a table
            if not self._statements:
                refuse_unlogged(change.entry)
                batch.left -= 1  # no lock needed: no task runs now
                continue
            self._crew.add(Task(change, batch, ()))
            self._wait_all()

    def _keys(self, change: Change) -> tuple[Sequence[Hashable], Hashable | None]:
        if not callable(self._key):
            return self._primary_keys.order(change)
        key = _by_name(self._key(change))
        return () if key is None else (key,), None

    def _wait_all(self) -> None:
        while self._crew.left:
            self._check()
            self._calls.client(self._client_id)  # raises if the instance was stopped
            self._crew.wait(_IDLE)

    def _ack_done(self) -> None:
        while self._batches and not self._batches[0].left:
            self._calls.ack(self._batches[0].id, client_id=self._client_id)
            self._batches.popleft()

    def _end(self) -> None:
        """Wait for running tasks, acknowledge finished batches up to the first gap and roll back the rest."""
        self._crew.stop()
        try:
            with contextlib.suppress(BatchError, NotSubscribedError, NotActiveError, StateError):
                self._ack_done()
                self._calls.rollback(client_id=self._client_id)
        finally:
            self._batches.clear()


def _by_name(key: Hashable | None) -> Hashable | None:
    """Replace tables in a key by their names, because each version of a table's columns is a separate object."""
    if isinstance(key, tuple):
        return tuple(map(_by_name, key))
    return key.origin if isinstance(key, Table) else key
