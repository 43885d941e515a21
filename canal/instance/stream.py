"""Loops over an Instance's messages. Each message is acknowledged when the loop asks for the next one."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

from canal._util.option_checks import check_callable
from canal.changes.change import Change
from canal.changes.flat import FlatReader
from canal.errors import BatchError, CanalError, NotActiveError, NotSubscribedError, StateError
from canal.formats.message import Message
from canal.instance.calls import Calls
from canal.instance.delivery import Taken, take_back

log = logging.getLogger("canal")

#: The reader's name in errors.
_NAME = "a stream"


class Stream(Iterator[Message]):
    """Messages of one client. Closing the stream rolls back the current message."""

    _in_hand: Taken | None = None
    _is_reading = False

    def __init__(self, calls: Calls, batch_size: int, linger: float, client_id: int, poll: float = 1.0) -> None:
        self._calls = calls
        self._options = (batch_size, poll, linger, client_id)
        self._client_id = client_id

    def begin(self) -> None:
        """Register as the client's reader and roll back outstanding batches."""
        self._calls.begin_reading(self._client_id, self, _NAME)
        self._is_reading = True

    def _end(self) -> None:
        self._is_reading = False
        self._calls.readers.end(self._client_id, self)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        while (message := self.step()) is None:
            pass
        return message  # no signal handler runs between these two lines

    def step(self) -> Message | None:
        """Acknowledge the current message and return the next one, or None if none arrives within ``poll`` seconds.

        Raises:
            StopIteration: the source has ended.
            StateError: another reader was registered for this client after this stream ended.
        """
        calls = self._calls
        if not self._is_reading:
            calls.readers.begin(self._client_id, self, _NAME)
            self._is_reading = True
        if self._in_hand is not None:
            with contextlib.suppress(NotActiveError):  # another process delivers that message
                calls.ack(self._in_hand[1].id, client_id=self._client_id)
            self._in_hand = None
        taken: list[Taken] = []
        try:
            finished = calls.is_over(self._client_id)
            message = calls.get(*self._options, taken)
            if message:
                self._in_hand = taken[-1]
                return message
            if finished:
                raise StopIteration
            return None
        except BaseException:
            take_back(taken)
            self._end()
            raise

    def let_go(self) -> None:
        """Forget the current message, which the caller has acknowledged or rolled back."""
        self._in_hand = None

    def close(self) -> None:
        """Roll back the current message, so that the next get returns it again."""
        if self._in_hand is not None and self._calls.is_running:
            try:
                self._calls.rollback(self._in_hand[1].id, client_id=self._client_id)
            except (BatchError, NotSubscribedError, NotActiveError, StateError):
                pass  # the user acknowledged, rolled back, unsubscribed or stopped, or another process is active
        self._in_hand = None
        self._end()

    def __del__(self) -> None:
        if self._in_hand is not None:
            client, batch = self._in_hand
            client.left.append(batch.id)


class ChangeIterator(Iterator[Change]):
    """The iterator of ``Instance.changes``."""

    def __init__(self, stream: Stream, statements: bool) -> None:
        self._stream = stream
        self._statements = statements
        self._reader = FlatReader()
        self._left: Iterator[Change] = iter(())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        while True:
            try:
                change = next(self._left, None)
            except CanalError:
                self.close()  # the error's traceback would keep this reader registered
                raise
            if change is not None:
                return change
            self._left = self._reader.changes(next(self._stream), self._statements)

    def close(self) -> None:
        """Roll back the current message, so that the next get returns it again."""
        self._left = iter(())
        self._stream.close()


def consume(
    calls: Calls,
    handler: Callable[[Message], Any],
    retries: int,
    backoff: tuple[float, float],
    on_unfit: Callable[[Message, Exception], Any] | None,
    batch_size: int,
    linger: float,
    client_id: int,
) -> None:
    """Call the handler with whole messages; see ``Instance.consume`` without workers."""
    check_callable(handler, "handler")
    failures = 0
    while True:
        stream = Stream(calls, batch_size, linger, client_id)
        stream.begin()
        try:
            for message in stream:
                try:
                    handler(message)
                except CanalError:
                    raise
                except Exception as error:
                    failures += 1
                    if failures <= retries:
                        log.warning(
                            "[%s] the handler failed, attempt %d of %d", calls.destination, failures, retries + 1, exc_info=True
                        )
                        break
                    if on_unfit is None:
                        raise
                    on_unfit(message, error)
                failures = 0
            else:
                return
        finally:
            stream.close()
        _pause(calls, min(backoff[0] * 2.0 ** min(failures - 1, 60), backoff[1]))


def _pause(calls: Calls, seconds: float) -> None:
    """Sleep, but return early if the instance is stopped."""
    deadline = time.monotonic() + seconds
    while calls.is_running and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.2))
