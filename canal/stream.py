"""The iterator of ``Instance.stream``: each message is acked when the loop comes round for the next."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from canal.errors import BatchError, NotActiveError, NotSubscribedError, StateError
from canal.model import Message

if TYPE_CHECKING:
    from canal.instance import Instance


class Stream(Iterator[Message]):
    """Messages of one client; leaving it rolls back what is in hand."""

    def __init__(self, instance: Instance, batch_size: int, linger: float, client_id: int, poll: float) -> None:
        self._instance = instance
        self._options = (batch_size, poll, linger)
        self._client_id = client_id
        self._in_hand = -1

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        instance = self._instance
        with contextlib.suppress(NotActiveError):  # then another process delivers that message
            instance.ack(self._in_hand, client_id=self._client_id)
        self._in_hand = -1
        while True:
            finished = instance.is_exhausted
            message = instance.get_without_ack(*self._options, client_id=self._client_id)
            if message:
                self._in_hand = message.id
                return message
            if finished:
                raise StopIteration

    def close(self) -> None:
        """Roll back what is in hand; the next get hands it out again."""
        if self._in_hand != -1 and self._instance.is_running:
            in_hand, self._in_hand = self._in_hand, -1
            try:
                self._instance.rollback(in_hand, client_id=self._client_id)
            except (BatchError, NotSubscribedError, NotActiveError, StateError):
                pass  # the user acked or rolled back by hand, unsubscribed or stopped, or another process is active

    def __del__(self) -> None:
        self.close()
