"""An Instance for asyncio: the same object, whose calls run on threads and are awaited.

Never does anything itself that an :class:`~canal.Instance` does: this module only decides what becomes of a call that is
cancelled. Such a call loses nothing: a batch that it was handed and did not give is handed out again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from canal.changes.change import Change
from canal.changes.flat import FlatReader
from canal.config import InstanceConfig
from canal.errors import BatchError, CanalError, NotActiveError, NotSubscribedError, StateError
from canal.formats.message import Message
from canal.instance.consume import Crew, Handling, Key, ParallelConsumer, Task
from canal.instance.delivery import Taken, take_back
from canal.instance.instance import CLIENT_ID, Instance
from canal.instance.stream import Stream
from canal.position import Position
from canal.status import InstanceStatus

T = TypeVar("T")


async def to_the_end(call: Awaitable[T], hurry: Callable[[], object] = lambda: None) -> T:
    """Wait for a call on a thread until it has ended, also where that is cancelled meanwhile, which ``hurry`` is to tell it."""
    work = asyncio.ensure_future(call)
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as error:
            cancelled = error
            hurry()
        except BaseException:
            break
    if cancelled is not None:
        raise cancelled from work.exception()
    return work.result()


#: Seconds of one wait on a thread at most: so long a cancelled get holds up the next one of its client.
_SLICE = 0.2
#: Calls at one time, but for gets, which have a thread for each client.
_CALLS = 8


class AsyncMessage(Message):
    """A message that is acked at the end of ``async with message:``, or rolled back where an exception leaves that."""

    __slots__ = ("_owner", "_client_id", "is_settled")

    def __init__(self, message: Message, owner: AsyncInstance, client_id: int) -> None:
        super().__init__(message.id, message.entries, message.position, message.epoch)
        self._owner = owner
        self._client_id = client_id
        self.is_settled = not message
        """Whether it was acked or rolled back by ``async with``."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.is_settled:
            return
        if error is None:
            await self._owner.ack(self, client_id=self._client_id)
        else:
            with contextlib.suppress(BatchError, NotSubscribedError, NotActiveError, StateError):
                await self._owner.rollback(self, client_id=self._client_id)
        self.is_settled = True


class AsyncInstance:
    """An Instance whose calls are awaited; their meanings, arguments and errors are those of :class:`canal.Instance`.

    ``async with`` starts and stops it. To be used in one event loop. A get waits on a thread of its client's own, other calls
    on a few shared ones. A call that is cancelled goes on to its end on its thread: an ack may have been done, and can be
    repeated.

    Args:
        config: of an instance of its own, or an :class:`~canal.Instance`.
    """

    def __init__(self, config: InstanceConfig | Instance) -> None:
        self.instance = config if isinstance(config, Instance) else Instance(config)
        self._calls = self._pool("call", _CALLS)
        self._gets: dict[int, ThreadPoolExecutor] = {}

    def _pool(self, role: str, threads: int) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(threads, thread_name_prefix=f"canal-{self.instance.destination}-{role}")

    async def __aenter__(self) -> Self:
        try:
            await self._call(self.instance.__enter__)
        except BaseException:
            await to_the_end(self._call(self.instance.stop))
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await to_the_end(self._call(self.instance.stop))
        finally:
            for pool in (self._calls, *self._gets.values()):
                pool.shutdown(wait=False)

    # -- calls ----------------------------------------------------------------------------------------------------------

    async def subscribe(
        self, client_id: int = CLIENT_ID, filter: str | None = None, *, timeout: float | None = None, durable: bool = True
    ) -> None:
        """As ``Instance.subscribe``."""
        await self._call(self.instance.subscribe, client_id, filter, timeout=timeout, durable=durable)

    async def unsubscribe(self, client_id: int = CLIENT_ID) -> None:
        """As ``Instance.unsubscribe``."""
        await self._call(self.instance.unsubscribe, client_id)

    async def ack(self, batch_id: int | Message, *, client_id: int = CLIENT_ID) -> None:
        """As ``Instance.ack``. Where it is cancelled the ack may have been done; to ack again does nothing then."""
        await self._call(self.instance.ack, batch_id, client_id=client_id)

    async def rollback(self, batch_id: int | Message | None = None, *, client_id: int = CLIENT_ID) -> None:
        """As ``Instance.rollback``."""
        await self._call(self.instance.rollback, batch_id, client_id=client_id)

    async def seek(self, client_id: int, to: str | Position, *, timeout: float | None = None) -> Position:
        """As ``Instance.seek``."""
        return await self._call(self.instance.seek, client_id, to, timeout=timeout)

    async def switch(self, reason: str = "by hand") -> bool:
        """As ``Instance.switch``."""
        return await self._call(self.instance.switch, reason)

    async def wait_active(self, timeout: float | None = None) -> bool:
        """As ``Instance.wait_active``."""
        return await self._call(self.instance.wait_active, timeout)

    async def status(self, source_timeout: float | None = None) -> InstanceStatus:
        """As ``Instance.status``."""
        return await self._call(self.instance.status, source_timeout)

    def position(self, client_id: int = CLIENT_ID) -> Position:
        """As ``Instance.position``; it waits for nothing."""
        return self.instance.position(client_id)

    async def get_without_ack(
        self, batch_size: int = 1000, timeout: float | None = 0.0, linger: float = 0.0, *, client_id: int = CLIENT_ID
    ) -> AsyncMessage:
        """As ``Instance.get_without_ack``. Where it is cancelled, what it was handed is handed out again."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        self.instance._readers.check(client_id)
        while True:
            left = _SLICE if deadline is None else min(deadline - loop.time(), _SLICE)
            taken: list[Taken] = []
            look = partial(self.instance._get, batch_size, max(left, 0.0), linger, client_id, taken)
            message = await _Look(look, partial(take_back, taken)).on(loop, self._getter(client_id))
            is_over = self.instance._is_over(client_id) or deadline is not None and loop.time() >= deadline
            if message or is_over:
                return AsyncMessage(message, self, client_id)

    def stream(self, batch_size: int = 1000, linger: float = 0.0, *, client_id: int = CLIENT_ID) -> AsyncStream:
        """Messages one after the other, for ``async for``: each is acked at the end of ``async with message:``, or when the
        loop comes round for the next. What is in hand when the loop is left, or cancelled, comes again. Else as
        ``Instance.stream``."""
        return AsyncStream(self, Stream(self.instance._calls, batch_size, linger, client_id, _SLICE), client_id)

    async def changes(
        self, batch_size: int = 1000, linger: float = 0.0, *, statements: bool = False, client_id: int = CLIENT_ID
    ) -> AsyncIterator[Change]:
        """As ``Instance.changes``, for ``async for``."""
        reader = FlatReader()
        async for message in self.stream(batch_size, linger, client_id=client_id):
            for change in reader.changes(message, statements):
                yield change

    async def consume(
        self,
        handler: Callable[[Change], Awaitable[Any]],
        batch_size: int = 1000,
        linger: float = 0.0,
        *,
        workers: int,
        retries: int = 0,
        backoff: tuple[float, float] = (0.1, 30.0),
        on_unfit: Callable[[Change, Exception], Awaitable[Any]] | None = None,
        client_id: int = CLIENT_ID,
        key: str | Key = "primary key",
        in_flight: int = 10_000,
        statements: bool = False,
    ) -> None:
        """As ``Instance.consume`` with ``workers``: so many calls of ``handler`` are awaited at the same time, in this loop.

        Those of one key come one after the other, and a batch is acked when all of it and all before it is done. When one
        fails for good, or this call is cancelled, the calls under way are cancelled; what was not done comes again. ``key`` is
        called on a thread.
        """
        loop = asyncio.get_running_loop()
        handling = Handling(handler, retries, backoff, on_unfit)
        consumer = ParallelConsumer(
            self.instance._calls,
            partial(LoopCrew, loop, workers, handling),
            workers,
            key,
            in_flight,
            statements,
            batch_size,
            linger,
            client_id,
            _SLICE,
        )
        await to_the_end(loop.run_in_executor(self._getter(client_id), consumer.run), consumer.cancel)

    # -- threads --------------------------------------------------------------------------------------------------------

    def _getter(self, client_id: int) -> ThreadPoolExecutor:
        """The thread of a client's gets: the next one begins when a cancelled one has given back what it was handed."""
        if client_id not in self._gets:
            self._gets[client_id] = self._pool(f"get-{client_id}", 1)
        return self._gets[client_id]

    async def _call(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._calls, partial(call, *arguments, **options))


class AsyncStream(AsyncIterator[AsyncMessage]):
    """The iterator of ``AsyncInstance.stream``."""

    def __init__(self, owner: AsyncInstance, stream: Stream, client_id: int) -> None:
        self._owner = owner
        self._stream = stream
        self._client_id = client_id
        self._message: AsyncMessage | None = None
        self._begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncMessage:
        loop, getter = asyncio.get_running_loop(), self._owner._getter(self._client_id)
        message, self._message = self._message, None
        if message is not None and message.is_settled:
            self._stream.let_go()
        while True:
            found = await _Look(self._step, self._stream.close).on(loop, getter)
            if found is _END:
                raise StopAsyncIteration
            if found is not None:
                self._message = AsyncMessage(found, self._owner, self._client_id)
                return self._message

    async def aclose(self) -> None:
        """Roll back what is in hand."""
        message, self._message = self._message, None
        if message is not None and message.is_settled:
            self._stream.let_go()
        await asyncio.get_running_loop().run_in_executor(self._owner._getter(self._client_id), self._stream.close)

    def _step(self) -> Any:
        if not self._begun:
            self._stream.begin()
            self._begun = True
        try:
            return self._stream.step()
        except StopIteration:
            return _END


class LoopCrew(Crew):
    """A crew whose tasks are awaited in an event loop; see ``AsyncInstance.consume``. It is used on another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: int, handling: Handling) -> None:
        super().__init__("", 0, handling)
        self._loop = loop
        self._workers = workers
        self._handling = handling
        self._running: set[asyncio.Task[None]] = set()

    def add(self, task: Task) -> None:
        super().add(task)
        self._loop.call_soon_threadsafe(self._begin)

    def stop(self) -> None:
        super().stop()
        self._loop.call_soon_threadsafe(self._cancel)
        with self._lock:
            while self._running:
                self._done.wait()

    # -- in the loop --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        with self._lock:
            while self._ready and not self._stopping and len(self._running) < self._workers:
                self._running.add(self._loop.create_task(self._carry_out(self._ready.popleft())))

    def _cancel(self) -> None:
        for running in tuple(self._running):
            running.cancel()

    async def _carry_out(self, task: Task) -> None:
        try:
            wait = await self._handled(task)
            if wait is None:
                self._ended(task, None)
            else:
                self._loop.call_later(wait, self._again, task)
        except BaseException as error:  # raised where consume was called; a cancelled one is not done
            if not self._stopping:
                self.fail(error)
        finally:
            with self._lock:
                self._running.discard(asyncio.current_task())
                self._done.notify_all()
            self._begin()

    async def _handled(self, task: Task) -> float | None:
        """As ``Handling`` does."""
        handling = self._handling
        try:
            await handling.handler(task.change)
        except CanalError:
            raise
        except Exception as error:
            wait = handling.failed(task, error)
            if wait is None and handling.on_unfit is not None:
                await handling.on_unfit(task.change, error)
            return wait
        return None

    def _again(self, task: Task) -> None:
        with self._lock:
            self._ready.append(task)
        self._begin()


_END = object()


class _Look:
    """A call on a thread, whose result is undone where nobody gets it: cancelled before its end, or just behind it.

    Args:
        call: runs on the thread.
        undo: undoes what it did; runs on the same thread, before any later call there.
    """

    def __init__(self, call: Callable[[], Any], undo: Callable[[], Any]) -> None:
        self._call = call
        self._undo = undo
        self._lock = threading.Lock()
        self._is_done = False
        self._is_abandoned = False

    async def on(self, loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor) -> Any:
        """The result. Raises what the call does."""
        work = pool.submit(self._work)
        try:
            return await asyncio.wrap_future(work, loop=loop)
        except asyncio.CancelledError:
            with self._lock:
                self._is_abandoned, is_done = True, self._is_done
            if is_done:  # it has a result, which is lost
                with contextlib.suppress(RuntimeError):  # the pool was shut down, and the instance stopped
                    pool.submit(self._undo)
            raise

    def _work(self) -> Any:
        if self._was_abandoned(is_done=False):
            return None
        result = self._call()
        if self._was_abandoned(is_done=True):
            self._undo()
        return result

    def _was_abandoned(self, *, is_done: bool) -> bool:
        with self._lock:
            self._is_done = is_done
            return self._is_abandoned
