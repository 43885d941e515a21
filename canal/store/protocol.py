"""What a store of entries must do. A user's own store meets this Protocol and is given to ``Instance.compose``."""

from __future__ import annotations

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
    """Keeps entries, in order, between one writer (the sink) and several clients, each with its own place.

    Sequences number the entries from 0 in the order of ``put``. ``put`` runs on the parser's thread, the rest on any.
    A store may also have a method ``status() -> canal.StoreStatus``, which never waits for long, for ``Instance.status()``.
    """

    def start(self) -> None:
        """Become usable, empty."""

    def stop(self) -> None:
        """Forget everything; every call that waits, and every later ``put``, raises ``StoreClosedError``."""

    def put(self, entries: list[Entry]) -> None:
        """Append all entries, in order. Waits while there is no room: that is the back-pressure of the line."""

    def end(self) -> None:
        """Nothing more will be put: a ``get`` that finds nothing returns at once."""

    def open(self, client_id: int, like: int | None = None) -> None:
        """Give a client a place: that of client ``like``'s last ack, or the oldest entry kept."""

    def close(self, client_id: int) -> None:
        """Forget a client's place."""

    def get(self, client_id: int, batch_size: int, timeout: float | None, linger: float) -> Slice:
        """Hand out the next entries: at most ``batch_size`` row changes, at least one entry.

        Waits up to ``timeout`` seconds for the first entry (None: for ever, 0: not at all) and then up to ``linger``
        seconds more for a full batch. Holds no lock that ``ack``, ``rollback`` or ``put`` need while it waits.
        """

    def ack(self, client_id: int, end: int) -> None:
        """The client is done with everything before sequence ``end``: it may be forgotten."""

    def rollback(self, client_id: int, start: int) -> None:
        """Put the client back to sequence ``start``, which it has not acked."""
