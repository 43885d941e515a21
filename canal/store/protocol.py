"""What a store of entries must do. A user's own store meets this Protocol and is given to ``Instance.compose``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import attrs

from canal.model import Entry


@attrs.frozen
class Slice:
    """Entries ``start`` … ``end - 1`` (sequences of the store); empty when ``entries`` is."""

    entries: list[Entry]
    start: int
    end: int
    row_count: int | None = None
    """Row changes in ``entries``; None: the store does not count them."""


@runtime_checkable
class EntryStore(Protocol):
    """Keeps entries, in order, between one writer (the sink) and several clients, until each of them has acked them.

    Sequences number the entries from 0 in the order of ``put``. ``put`` runs on the parser's thread, the rest on any. What a
    client was handed out is no business of the store: it says from where it wants entries, so that what did not reach it
    comes again.

    A store may also have a method ``status(got) -> canal.status.StoreStatus``, which never waits for long, for
    ``Instance.status()``; ``got`` has, by client id, the sequence behind what it was handed out. See ``CatchUpStore`` too.
    """

    def start(self) -> None:
        """Become usable, empty."""

    def stop(self) -> None:
        """Forget everything; every call that waits, and every later ``put``, raises ``StoreClosedError``."""

    def put(self, entries: list[Entry]) -> None:
        """Append all entries, in order. Waits while there is no room: that is the back-pressure of the line."""

    def end(self) -> None:
        """Nothing more will be put: a ``get`` that finds nothing returns at once."""

    def open(self, client_id: int, like: int | None = None) -> int:
        """Keep entries for a client, from client ``like``'s last ack or the oldest that is kept; gives that sequence."""

    def close(self, client_id: int) -> None:
        """Keep nothing for a client any more; a ``get`` of it that waits raises ``NotSubscribedError``."""

    def get(self, client_id: int, start: int, batch_size: int, timeout: float | None, linger: float) -> Slice:
        """The entries from sequence ``start`` on: at most ``batch_size`` row changes, at least one entry.

        Waits up to ``timeout`` seconds for the first entry (None: for ever, 0: not at all) and then up to ``linger``
        seconds more for a full batch. Gives nothing, at once, where the client has acked beyond ``start``. Changes nothing,
        and holds no lock that another call needs while it waits.
        """

    def ack(self, client_id: int, end: int) -> None:
        """The client is done with everything before sequence ``end``: it may be forgotten. Never goes back."""

    def wake(self) -> None:
        """Every ``get`` that waits returns at once with what there is: a client wants entries from elsewhere."""


@runtime_checkable
class CatchUpStore(EntryStore, Protocol):
    """A store that a client may join where its own connection has caught up with the entries that are kept."""

    def join(self, client_id: int, is_done: Callable[[Entry], bool]) -> int | None:
        """Keep entries for a client from the oldest entry on and return its sequence, if the client has done that entry.

        If no entry is kept, the last one that was put decides. Return None, and keep nothing for the client, if ``is_done``
        returns False or nothing was put yet.
        """
