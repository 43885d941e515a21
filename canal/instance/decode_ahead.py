"""Messages that threads decode ahead of the loop over them, in the order of the log.

Never has more in hand than one message for each thread and the one that the loop is at.
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

#: What errors call one.
_NAME = "decoded()"


class _Ahead(NamedTuple, Generic[_Made]):
    taken: Taken
    message: Message
    made: Future[_Made]

    def is_over(self) -> bool:
        """Whether it was acked or rolled back, or it is another process's turn."""
        client, batch = self.taken
        return client.is_over or client.state.number(batch.id) is None


class Decoded(Iterator[tuple[Message, _Made]]):
    """Messages of one client, each with what a function makes of it; leaving it rolls back what is in hand."""

    _ahead: deque[_Ahead[_Made]] = deque()  # where __init__ fails

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
            raise ConfigError(f"decode_threads is a number of threads, not {threads!r}", remedy="Give it 1 or more.")
        self._calls = calls
        self._decode = decode
        self._most = threads + 1
        self._batch_size, self._linger, self._client_id, self._poll = batch_size, linger, client_id, poll
        self._threads = ThreadPoolExecutor(threads, f"canal-{calls.destination}-decode")
        self._ahead = deque()  # the first may be in hand
        self._in_hand: Message | None = None
        calls.begin_reading(client_id, self, _NAME)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Message, _Made]:
        self._calls.readers.begin(self._client_id, self, _NAME)
        try:
            while (found := self._step()) is None:
                pass
            return found  # no signal's handler runs between these two
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        self._calls.readers.end(self._client_id, self)

    def _step(self) -> tuple[Message, _Made] | None:
        """Ack what is in hand, have more decoded, and give the next; None: none has come so far.

        Raises:
            StopIteration: the source has ended, or this was closed.
        """
        if self._in_hand is not None:
            with contextlib.suppress(NotActiveError):  # then another process delivers that message
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
        except StopIteration as error:  # which would end the loop
            raise RuntimeError("decode raised StopIteration") from error
        if first.is_over():
            return None
        self._in_hand = first.message
        return first.message, found

    def _take(self) -> bool:
        """Have one more message decoded, if there is one. Waits for it only where none is ahead."""
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
            if self._ahead:  # that comes first; the next look raises it again
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
        """Roll back what is in hand and ahead; the next get hands it out again. Waits for the threads, and is the end."""
        self._most = 0
        for one in self._ahead:
            one.made.cancel()
        self._threads.shutdown()
        first = next((one for one in self._ahead if not one.is_over()), None)
        if first is not None and self._calls.is_running:
            with contextlib.suppress(BatchError, NotSubscribedError, NotActiveError, StateError):  # as by Stream.close
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
