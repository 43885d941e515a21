"""The iterator of ``Instance.stream``: each message is acked when the loop comes round for the next."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from canal.delivery import Taken, take_back
from canal.errors import BatchError, NotActiveError, NotSubscribedError, StateError
from canal.model import Message

if TYPE_CHECKING:
    from canal.instance import Instance


class Stream(Iterator[Message]):
    """Messages of one client; leaving it rolls back what is in hand."""

    _in_hand: Taken | None = None

    def __init__(self, instance: Instance, batch_size: int, linger: float, client_id: int, poll: float) -> None:
        self._instance = instance
        self._options = (batch_size, poll, linger, client_id)
        self._client_id = client_id

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        while (message := self.step()) is None:
            pass
        return message  # no signal's handler runs between these two

    def step(self) -> Message | None:
        """One look, of ``poll`` seconds at most: ack what is in hand, and give the next message, or None for none so far.

        Raises:
            StopIteration: the source has ended.
        """
        instance = self._instance
        if self._in_hand is not None:
            with contextlib.suppress(NotActiveError):  # then another process delivers that message
                instance.ack(self._in_hand[1].id, client_id=self._client_id)
            self._in_hand = None
        taken: list[Taken] = []
        try:
            finished = instance._is_over(self._client_id)
            message = instance._get(*self._options, taken)
            if message:
                self._in_hand = taken[-1]
                return message
            if finished:
                raise StopIteration
            return None
        except BaseException:
            take_back(taken)
            raise

    def let_go(self) -> None:
        """What is in hand was acked or rolled back by who has it."""
        self._in_hand = None

    def close(self) -> None:
        """Roll back what is in hand; the next get hands it out again."""
        if self._in_hand is not None and self._instance.is_running:
            try:
                self._instance.rollback(self._in_hand[1].id, client_id=self._client_id)
            except (BatchError, NotSubscribedError, NotActiveError, StateError):
                pass  # the user acked or rolled back by hand, unsubscribed or stopped, or another process is active
        self._in_hand = None

    def __del__(self) -> None:
        if self._in_hand is not None:
            client, batch = self._in_hand
            client.left.append(batch.id)
