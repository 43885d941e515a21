"""A meta manager on a storage. Changes become visible after the storage has them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import attrs

from canal.errors import NotSubscribedError, StateError
from canal.position import Position


@attrs.frozen
class Client:
    """The stored state of a client."""

    filter: str = ""
    cursor: Position | None = None


Clients: TypeAlias = Mapping[int, Client]
"""A state as a whole; never changed in place, so a reader needs no lock and a failed write leaves no trace."""


def is_canals(client_id: int) -> bool:
    """Return whether canal can read this client id, a Java short. An unreadable id would make canal reject all clients."""
    return 0 <= client_id < 1 << 15


class Storage(Protocol):
    """Storage for the state of a destination. All methods except ``address_of`` are called under the manager's lock."""

    #: Returns host and port of a cursor's source, by which canal recognizes its cursors; ("", 0) if unknown.
    address_of: Callable[[Position], tuple[str, int]]

    def open(self, destination: str) -> Clients:
        """Lock the storage of a destination and return its state. If it raises, it holds no lock."""

    def close(self, clients: Clients) -> None:
        """Store the last state and release the storage, even if storing fails."""

    def commit(self, clients: Clients, urgent: bool) -> None:
        """Store the state. A change that is not urgent may be delayed."""


def nowhere(cursor: Position) -> tuple[str, int]:
    """Return the address of an unknown source."""
    return "", 0


class StoredMeta:
    """Keeps subscriptions and cursors in a storage. See ``MetaManager``."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = threading.RLock()  # held by writers
        self._destination = ""
        self._clients: Clients | None = None  # None: not started

    @property
    def address_of(self) -> Callable[[Position], tuple[str, int]]:
        """Host and port of a cursor's source, which are stored with the cursor; ("", 0) if unknown."""
        return self._storage.address_of

    @address_of.setter
    def address_of(self, address_of: Callable[[Position], tuple[str, int]]) -> None:
        self._storage.address_of = address_of

    def start(self, destination: str) -> None:
        with self._lock:
            if self._clients is not None:
                raise StateError("the meta manager is started already", destination=self._destination)
            self._clients = self._storage.open(destination)
            self._destination = destination

    def stop(self) -> None:
        with self._lock:
            clients = self._clients
            if clients is None:
                return
            self._clients = None
            self._storage.close(clients)

    def subscribe(self, client_id: int, filter: str) -> None:
        with self._lock:
            clients = self._started()
            old = clients.get(client_id)
            client = Client(filter) if old is None else attrs.evolve(old, filter=filter)
            self._apply({**clients, client_id: client}, urgent=True)

    def unsubscribe(self, client_id: int) -> None:
        with self._lock:
            clients = self._started()
            self._apply({known: client for known, client in clients.items() if known != client_id}, urgent=True)

    def subscriptions(self) -> dict[int, str]:
        return {client_id: client.filter for client_id, client in sorted(self._started().items())}

    def cursor(self, client_id: int) -> Position | None:
        client = self._started().get(client_id)
        return None if client is None else client.cursor

    def update_cursor(self, client_id: int, position: Position) -> None:
        with self._lock:
            clients = self._started()
            client = clients.get(client_id)
            if client is None:
                raise NotSubscribedError(f"client {client_id} has not subscribed", destination=self._destination)
            moved = attrs.evolve(client, cursor=position)
            self._apply({**clients, client_id: moved}, urgent=client.cursor is None)

    def flush(self) -> None:
        self._started()

    def _started(self) -> Clients:
        clients = self._clients
        if clients is None:
            raise StateError("the meta manager is not started", destination=self._destination)
        return clients

    def _apply(self, clients: Clients, urgent: bool) -> None:
        """Commit, then publish. A failed commit keeps the old state."""
        if clients != self._clients:
            self._storage.commit(clients, urgent)
            self._clients = clients
