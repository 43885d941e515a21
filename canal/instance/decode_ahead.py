"""``Instance.decoded``: threads that decode messages ahead of the loop, in log order.

At most one message per thread and the current one are outstanding.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, Self, TypeVar

from canal._util.option_checks import check_callable
from canal.errors import BatchError, CanalError, ConfigError, NotActiveError, NotSubscribedError, StateError
from canal.formats.message import Message
from canal.instance.calls import Calls
from canal.instance.delivery import Taken, take_back

_Made = TypeVar("_Made")

#: The reader's name in errors.
_NAME = "decoded()"


class _Ahead(NamedTuple, Generic[_Made]):
    taken: Taken
    message: Message
    made: Future[_Made]

    def is_over(self) -> bool:
        """Return whether the message was acknowledged or rolled back, or its turn has ended."""
        client, batch = self.taken
        return client.is_over or client.state.number(batch.id) is None


class Decoded(Iterator[tuple[Message, _Made]]):
    """Messages of one client, each with its decoded form. Closing it rolls back the outstanding messages."""

    _ahead: deque[_Ahead[_Made]] = deque()  # for __del__ if __init__ fails

    def __init__(
        self,
        calls: Calls,
        decode: Callable[[Message], _Made],
        threads: int,
        batch_size: int,
        linger: float,
        client_id: int,
        poll: float,
    ) -> None:
        check_callable(decode, "decode")
        if type(threads) is not int or threads < 1:
            raise ConfigError(f"decode_threads must be an int of at least 1, not {threads!r}")
        self._calls = calls
        self._decode = decode
        self._most = threads + 1
        self._batch_size, self._linger, self._client_id, self._poll = batch_size, linger, client_id, poll
        self._threads = ThreadPoolExecutor(threads, f"canal-{calls.destination}-decode")
        self._ahead = deque()  # the first may be the current message
        self._in_hand: Message | None = None
        calls.begin_reading(client_id, self, _NAME)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Message, _Made]:
        self._calls.readers.begin(self._client_id, self, _NAME)
        try:
            while (found := self._step()) is None:
                pass
            return found  # no signal handler runs between these two lines
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        self._calls.readers.end(self._client_id, self)

    def _step(self) -> tuple[Message, _Made] | None:
        """Acknowledge the current message, submit more messages and return the next one, or None if none has arrived.

        Raises:
            StopIteration: the source has ended, or the iterator was closed.
        """
        if self._in_hand is not None:
            with contextlib.suppress(NotActiveError):  # another process delivers that message
                self._calls.ack(self._in_hand, client_id=self._client_id)
            self._in_hand = None
        if not self._most:
            raise StopIteration
        while self._ahead and self._ahead[0].is_over():
            self._ahead.popleft()
        while len(self._ahead) < self._most and self._take():
            pass
        if not self._ahead:
            return None
        first = self._ahead[0]
        try:
            found = first.made.result()
        except StopIteration as error:  # it would end the loop
            raise RuntimeError("decode raised StopIteration") from error
        if first.is_over():
            return None
        self._in_hand = first.message
        return first.message, found

    def _take(self) -> bool:
        """Submit one more message. Wait for a message only if none is being decoded. Return False if there is none."""
        calls = self._calls
        poll, linger = (0.0, 0.0) if self._ahead else (self._poll, self._linger)
        taken: list[Taken] = []
        try:
            finished = calls.is_over(self._client_id)
            message = calls.get(self._batch_size, poll, linger, self._client_id, taken)
            if message:
                self._ahead.append(_Ahead(taken[-1], message, self._threads.submit(self._decode, message)))
                return True
        except CanalError:
            take_back(taken)
            if self._ahead:  # deliver these first; the next call raises the error again
                return False
            raise
        except BaseException:
            if not self._ahead or taken and self._ahead[-1].taken is not taken[-1]:
                take_back(taken)
            raise
        if finished and not self._ahead:
            raise StopIteration
        return False

    def close(self) -> None:
        """Roll back all outstanding messages, so that the next get returns them again. Wait for the threads."""
        self._most = 0
        for one in self._ahead:
            one.made.cancel()
        self._threads.shutdown()
        first = next((one for one in self._ahead if not one.is_over()), None)
        if first is not None and self._calls.is_running:
            with contextlib.suppress(BatchError, NotSubscribedError, NotActiveError, StateError):  # as in Stream.close
                self._calls.rollback(first.message.id, client_id=self._client_id)
        self._ahead.clear()
        self._in_hand = None
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        for (client, batch), _, _ in self._ahead:
            client.left.append(batch.id)
