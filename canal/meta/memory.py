"""Subscriptions and cursors in memory. They survive stop and start, but not the object."""

from __future__ import annotations

from collections.abc import Callable

from canal.meta.stored import Clients, StoredMeta, nowhere
from canal.position import Position


class MemoryMeta(StoredMeta):
    """Keeps subscriptions and cursors in memory, by destination. See ``MetaManager``."""

    def __init__(self) -> None:
        super().__init__(_Kept())


class _Kept:
    """The last state of each destination."""

    address_of: Callable[[Position], tuple[str, int]] = staticmethod(nowhere)

    def __init__(self) -> None:
        self._destination = ""
        self._clients: dict[str, Clients] = {}

    def open(self, destination: str) -> Clients:
        self._destination = destination
        return self._clients.get(destination, {})

    def close(self, clients: Clients) -> None:
        self._clients[self._destination] = clients

    def commit(self, clients: Clients, urgent: bool) -> None:
        """No-op: the manager has the state."""
