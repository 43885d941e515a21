"""An Instance for asyncio. Calls run on threads and are awaited.

All behavior is that of :class:`~canal.Instance`, except for cancellation. A cancelled call loses no data: a batch that the
caller did not receive is delivered again.
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
    """Wait until a call on a thread ends, even if the waiting task is cancelled. ``hurry`` then asks the call to end early."""
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


#: Longest wait on a thread in seconds. A cancelled get delays the client's next get by at most this time.
_SLICE = 0.2
#: Number of parallel calls. Gets are not included: each client has a thread for them.
_CALLS = 8


class AsyncMessage(Message):
    """A message that ``async with message:`` acknowledges at the end, or rolls back after an exception."""

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
    """An Instance with awaitable calls. Semantics, arguments and errors are those of :class:`canal.Instance`.

    ``async with`` starts and stops it. Use it in a single event loop. Each client has a thread for gets; other calls share a
    few threads. A cancelled call runs to its end on its thread: an ack may have been done, and can be repeated.

    Args:
        config: an instance config, or an :class:`~canal.Instance`.
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
        """See ``Instance.subscribe``."""
        await self._call(self.instance.subscribe, client_id, filter, timeout=timeout, durable=durable)

    async def unsubscribe(self, client_id: int = CLIENT_ID) -> None:
        """See ``Instance.unsubscribe``."""
        await self._call(self.instance.unsubscribe, client_id)

    async def ack(self, batch_id: int | Message, *, client_id: int = CLIENT_ID) -> None:
        """See ``Instance.ack``. After a cancellation the ack may have been done; repeating it is a no-op."""
        await self._call(self.instance.ack, batch_id, client_id=client_id)

    async def rollback(self, batch_id: int | Message | None = None, *, client_id: int = CLIENT_ID) -> None:
        """See ``Instance.rollback``."""
        await self._call(self.instance.rollback, batch_id, client_id=client_id)

    async def seek(self, client_id: int, to: str | Position, *, timeout: float | None = None) -> Position:
        """See ``Instance.seek``."""
        return await self._call(self.instance.seek, client_id, to, timeout=timeout)

    async def switch(self, reason: str = "by hand") -> bool:
        """See ``Instance.switch``."""
        return await self._call(self.instance.switch, reason)

    async def wait_active(self, timeout: float | None = None) -> bool:
        """See ``Instance.wait_active``."""
        return await self._call(self.instance.wait_active, timeout)

    async def status(self, source_timeout: float | None = None) -> InstanceStatus:
        """See ``Instance.status``."""
        return await self._call(self.instance.status, source_timeout)

    def position(self, client_id: int = CLIENT_ID) -> Position:
        """See ``Instance.position``. Does not wait."""
        return self.instance.position(client_id)

    async def get_without_ack(
        self, batch_size: int = 1000, timeout: float | None = 0.0, linger: float = 0.0, *, client_id: int = CLIENT_ID
    ) -> AsyncMessage:
        """See ``Instance.get_without_ack``. After a cancellation the batch is delivered again."""
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
        """Iterate over messages with ``async for``; see ``Instance.stream``.

        Each message is acknowledged at the end of ``async with message:``, or when the loop requests the next message.
        If the loop
        ends early or is cancelled, its message is delivered again.
        """
        return AsyncStream(self, Stream(self.instance._calls, batch_size, linger, client_id, _SLICE), client_id)

    async def changes(
        self, batch_size: int = 1000, linger: float = 0.0, *, statements: bool = False, client_id: int = CLIENT_ID
    ) -> AsyncIterator[Change]:
        """Iterate over changes with ``async for``; see ``Instance.changes``."""
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
        """Run ``handler`` for each change, with up to ``workers`` parallel calls in this loop; see ``Instance.consume``.

        Changes with the same key run in order. A batch is acknowledged when the batch and all earlier batches are done. If a
        change fails permanently, or this call is cancelled, running handlers are cancelled and unfinished changes are delivered
        again. ``key`` runs on a thread.
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
        """Return the thread for a client's gets. The next get starts after a cancelled get has returned its batch to the
        store.
        """
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
        """Roll back the current message."""
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
    """A crew of tasks in an event loop; see ``AsyncInstance.consume``. Used from another thread."""

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
        except BaseException as error:  # re-raised by consume; a cancelled task is not done
            if not self._stopping:
                self.fail(error)
        finally:
            with self._lock:
                self._running.discard(asyncio.current_task())
                self._done.notify_all()
            self._begin()

    async def _handled(self, task: Task) -> float | None:
        """See ``Handling``."""
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
    """A call on a thread. If the caller is cancelled before it receives the result, ``undo`` reverts the call.

    Args:
        call: runs on the thread.
        undo: reverts the call, on the same thread and before any later call there.
    """

    def __init__(self, call: Callable[[], Any], undo: Callable[[], Any]) -> None:
        self._call = call
        self._undo = undo
        self._lock = threading.Lock()
        self._is_done = False
        self._is_abandoned = False

    async def on(self, loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor) -> Any:
        """Return the result or raise the exception of the call."""
        work = pool.submit(self._work)
        try:
            return await asyncio.wrap_future(work, loop=loop)
        except asyncio.CancelledError:
            with self._lock:
                self._is_abandoned, is_done = True, self._is_done
            if is_done:  # the call has a result that no task receives
                with contextlib.suppress(RuntimeError):  # the pool is shut down because the instance stopped
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
