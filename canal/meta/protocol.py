"""The contract of every meta manager; the docstrings are its specification.

Never implements anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import attrs

from canal.position import Position


@attrs.frozen
class Subscribed:
    """What the processes of a destination know of one client's subscription at a moment.

    Attributes:
        unsubscribed: the number of the client's last ``unsubscribe``, or 0 if it has none.
        last: the number of the last ``unsubscribe`` of any client.
        filter: identifies the last write of the client's filter; None: it is not subscribed.
    """

    unsubscribed: int
    last: int
    filter: object


@runtime_checkable
class MetaManager(Protocol):
    """Keeps the subscriptions of one destination (client id and filter) and each client's cursor.

    Durability: a change is durable, in the sense of the implementation, when the call returns. An implementation may
    put off ``update_cursor`` alone, by a window that its user chose and that it states; even then a client's *first*
    cursor is durable at once, because "latest" has no meaning after a crash.

    All or nothing: a call that raises has changed nothing that the other calls show, so it can be repeated.

    Threads: every call may come from any thread and is atomic. Reads never wait for a write to finish.

    Errors: ``CursorError`` when the state cannot be read or written, ``StateError`` for a call that needs ``start``
    first, ``NotSubscribedError`` for a cursor of an unknown client, ``NotActiveError`` (coordinated managers only) when
    another process owns the destination by now.

    One object serves one destination at a time. Never call the Instance from it: subscriptions and acks wait for the answer.
    """

    def start(self, destination: str) -> None:
        """Load the state of the destination and claim it against other writers, where the storage can.

        Raises:
            StateError: it is started already.
            ConfigError: the name cannot be used by the storage.
            CursorError: the state cannot be read, or another process has claimed it; nothing stays claimed.
        """

    def stop(self) -> None:
        """Make everything durable and give up the claim. Without ``start`` before it, it does nothing.

        Raises:
            CursorError: the last cursors could not be written; the manager is stopped all the same.
        """

    def subscribe(self, client_id: int, filter: str) -> None:
        """Add a client, without a cursor; for a known client replace the filter and keep the cursor."""

    def unsubscribe(self, client_id: int) -> None:
        """Forget the client, its filter and its cursor, durably. An unknown client is no error."""

    def subscriptions(self) -> dict[int, str]:
        """Filter by client id, ascending; a copy."""

    def cursor(self, client_id: int) -> Position | None:
        """The client's cursor; None for a client that is unknown or has none yet."""

    def update_cursor(self, client_id: int, position: Position) -> None:
        """Replace the client's cursor. Order is the caller's business: a cursor may also be set back.

        Raises:
            NotSubscribedError: no such client.
            CursorError: it could not be written; the old cursor stands.
        """

    def flush(self) -> None:
        """Return when every cursor given so far is durable.

        Raises:
            CursorError: it is not; what is on storage is the state of an earlier call, whole.
        """


@runtime_checkable
class AddressWriter(Protocol):
    """A meta manager that stores host and port with a cursor, as canal does to recognize its own cursors.

    Attributes:
        address_of: returns host and port of a cursor's source, or ("", 0) if they are unknown. The Instance sets it.
    """

    address_of: Callable[[Position], tuple[str, int]]
