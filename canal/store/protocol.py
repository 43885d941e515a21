"""The Protocol of entry stores. Pass a custom store to ``Instance.compose``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import attrs

from canal.model import Entry


@attrs.frozen
class Slice:
    """Entries with sequences ``start`` to ``end - 1``."""

    entries: list[Entry]
    start: int
    end: int
    row_count: int | None = None
    """Row changes in ``entries``; None: the store does not count them."""


@runtime_checkable
class EntryStore(Protocol):
    """A buffer between one writer (the sink) and several clients. It keeps each entry until every client has acknowledged it.

    Sequences number the entries from 0 in the order of ``put``. ``put`` runs on the parser's thread, other methods on any
    thread. The store does not track deliveries: each client passes the start sequence, so undelivered entries are read again.

    A store may define ``status(got) -> canal.status.StoreStatus`` for ``Instance.status()``. It must not block. ``got`` maps
    client ids to the sequence after the last delivered entry. See also ``CatchUpStore``.
    """

    def start(self) -> None:
        """Start with no entries."""

    def stop(self) -> None:
        """Discard all entries. Waiting calls and later ``put`` calls raise ``StoreClosedError``."""

    def put(self, entries: list[Entry]) -> None:
        """Append all entries in order. Wait while the store is full: this is the instance's backpressure."""

    def end(self) -> None:
        """Mark the end of the stream: a ``get`` without entries then returns immediately."""

    def open(self, client_id: int, like: int | None = None) -> int:
        """Keep entries for a client and return the first sequence: ``like``'s last acknowledgement, or the oldest kept entry."""

    def close(self, client_id: int) -> None:
        """Stop keeping entries for a client. A waiting ``get`` raises ``NotSubscribedError``."""

    def get(self, client_id: int, start: int, batch_size: int, timeout: float | None, linger: float) -> Slice:
        """Return entries from sequence ``start``: at most ``batch_size`` row changes and at least one entry.

        Wait up to ``timeout`` seconds for the first entry (None: no limit, 0: do not wait), then up to ``linger`` seconds for a
        full batch. Return an empty slice immediately if the client has acknowledged beyond ``start``. Change no state, and do
        not hold a lock that other calls need while waiting.
        """

    def ack(self, client_id: int, end: int) -> None:
        """Acknowledge entries before sequence ``end`` for a client. Never moves back."""

    def wake(self) -> None:
        """Make waiting ``get`` calls return immediately with the available entries. A client is about to switch its source."""


@runtime_checkable
class CatchUpStore(EntryStore, Protocol):
    """A store that a client can join after catching up over a private connection."""

    def join(self, client_id: int, is_done: Callable[[Entry], bool]) -> int | None:
        """Keep entries for a client from the oldest entry on and return its sequence, if the client has done that entry.

        An empty store uses the last stored entry. Return None, without keeping entries, if ``is_done`` returns False or the
        store never had an entry.
        """
