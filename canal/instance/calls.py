"""get, ack and rollback by client id, for the Instance and for loops over messages such as ``Instance.stream``."""

from __future__ import annotations

import contextlib
from typing import Any

from canal.errors import ConfigError, NotActiveError
from canal.formats.message import Message
from canal.instance.clients import Clients
from canal.instance.context import ClientContext
from canal.instance.delivery import Delivery, Taken, not_subscribed, take_back
from canal.instance.ha_turns import Turns
from canal.instance.readers import Readers


class Calls:
    """The calls that return and acknowledge batches. With ``ha`` a get of a standby waits, and an ack raises NotActiveError."""

    def __init__(self, context: ClientContext, clients: Clients) -> None:
        self.context = context
        self.destination = context.destination
        self.readers = Readers(context.destination)
        self.turns: Turns | None = None
        self._clients = clients

    @property
    def is_running(self) -> bool:
        """Whether the Instance is between ``start`` and ``stop``."""
        return self.context.is_started

    def client(self, client_id: int) -> Delivery:
        """Return a subscribed client.

        Raises:
            StateError: the parts do not run.
            NotSubscribedError: there is no such client.
        """
        self.context.check_running()
        client = self._clients.get(client_id)
        if client is None:
            raise not_subscribed(client_id, self.destination)
        return client

    def is_over(self, client_id: int) -> bool:
        """Return whether a client of the shared store receives no more entries."""
        client = self._clients.get(client_id)
        return self.context.is_exhausted and (client is None or client.kept is not None)

    # -- get ----------------------------------------------------------------------------------------------------------

    def get(self, batch_size: int, timeout: float | None, linger: float, client_id: int, taken: list[Taken]) -> Message:
        """Return the next batch; see ``Instance.get_without_ack``. A caller that is interrupted undoes the gets in ``taken``."""
        _check_get(batch_size, timeout, linger)
        self.context.check_process()
        if self.turns is None:
            return self.client(client_id).get(batch_size, timeout, linger, taken)
        return self.turns.get(batch_size, timeout, linger, client_id, taken)

    def read(self, batch_size: int, timeout: float | None, linger: float, client_id: int) -> Message:
        """Return the next batch to a registered reader; see ``Instance.get_without_ack``."""
        taken: list[Taken] = []
        try:
            return self.get(batch_size, timeout, linger, client_id, taken)
        except BaseException:  # for example from a signal handler
            take_back(taken)
            raise

    def get_and_ack(self, batch_size: int, timeout: float | None, linger: float, client_id: int) -> Message:
        """Acknowledge the batch of the previous call and return the next one; see ``Instance.get``."""
        self.readers.check(client_id)
        taken: list[Taken] = []
        try:
            with contextlib.suppress(NotActiveError):  # another process delivers that batch
                last = self.client(client_id).unacked_by_get()
                if last:
                    self.ack(last, client_id=client_id)
            message = self.get(batch_size, timeout, linger, client_id, taken)
            if message:
                client, batch = taken[-1]
                client.auto = batch.id
            return message  # no signal handler runs between these two lines, so only returned batches are acknowledged
        except BaseException:
            take_back(taken)
            raise

    # -- ack and rollback ---------------------------------------------------------------------------------------------

    def ack(self, batch_id: int | Message, *, client_id: int) -> None:
        """See ``Instance.ack``."""
        batch_id = batch_id.id if isinstance(batch_id, Message) else batch_id
        _check_batch_id(batch_id)
        if batch_id == -1 and self.is_running:
            return
        if self.turns is not None and self.is_running:
            self.turns.check_ack(batch_id, client_id)
        self.client(client_id).ack(batch_id)

    def rollback(self, batch_id: int | Message | None = None, *, client_id: int) -> None:
        """See ``Instance.rollback``."""
        if isinstance(batch_id, Message):
            if not batch_id:
                return
            batch_id = batch_id.id
        if batch_id is not None:
            _check_batch_id(batch_id)
        self.client(client_id).rollback(batch_id)

    # -- readers ------------------------------------------------------------------------------------------------------

    def begin_reading(self, client_id: int, reader: object, what: str) -> None:
        """Register the only reader of a client and roll back outstanding batches."""
        self.readers.begin(client_id, reader, what)
        try:
            with contextlib.suppress(NotActiveError):  # a standby has no outstanding batches
                self.rollback(client_id=client_id)
        except BaseException:
            self.readers.end(client_id, reader)
            raise


def _check_get(batch_size: Any, timeout: Any, linger: Any) -> None:
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1, not {batch_size!r}")
    if timeout is not None and not isinstance(timeout, (int, float)):
        raise ConfigError(f"timeout must be a number of seconds, or None, not {timeout!r}")
    if not isinstance(linger, (int, float)):
        raise ConfigError(f"linger must be a number of seconds, not {linger!r}")


def _check_batch_id(batch_id: Any) -> None:
    if isinstance(batch_id, bool) or not hasattr(batch_id, "__index__"):
        raise ConfigError(
            f"batch_id must be an int or a Message, not {batch_id!r}", remedy="Pass the message that a get returned, or its id."
        )
