"""What canal's nodes of a destination hold, and those by which this process shows that it takes part and whom it serves."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Collection

from canal.errors import CoordinationError
from canal.meta.zookeeper import client_node
from canal.zookeeper.session import Create, Delete, Fence, NodeExists, NodeMissing, Session, Value, VersionChanged, ZooKeeper

log = logging.getLogger("canal.ha")


def running_document(address: str, active: bool = True, client_id: int | None = None, router: str = "") -> bytes:
    """The data of a destination's running node, or of a client's, as canal writes it; of an output's it names the router."""
    document: dict[str, object] = {"active": active, "address": address}
    if client_id is not None:
        document["clientId"] = client_id
    if router:
        document["router"] = router
    return json.dumps(document, separators=(",", ":")).encode()


def read_running(data: bytes) -> tuple[str, bool]:
    """Address and whether it is active; canal's own nodes too."""
    try:
        document = json.loads(data)
        return str(document["address"]), bool(document.get("active", True))
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", True


def read_router(data: bytes) -> str:
    """The router of which the destination is an output; "" of one that runs by itself."""
    try:
        return str(json.loads(data).get("router", ""))
    except (ValueError, AttributeError, RecursionError):
        return ""


def read_epoch(path: str, data: bytes) -> int:
    """The number that a node of take-overs holds; 0 where it is empty.

    Raises:
        CoordinationError: it holds something else.
    """
    if not data:
        return 0
    if not data.isdigit() or len(data) > 18:
        raise CoordinationError(
            f"{path} holds {data[:20]!r}, which is no number of take-overs",
            remedy="Write the number of the last turn there, or delete the node and those below it.",
        )
    return int(data)


def made(session: Session, path: str) -> Value:
    """Create a node if it does not exist. Return the value.

    Raises:
        NodeMissing: it was deleted at the same time.
    """
    session.make(path)
    value = session.get(path)
    if value is None:
        raise NodeMissing(f"{path} was deleted at the same time")
    return value


def remove_own(session: Session, path: str, address: str) -> None:
    """Delete a running node if it is that of a process."""
    value = session.get(path)
    if value is None:
        return
    owner = read_running(value.data)[0]
    if owner == address or value.owner == session.id and not owner:
        with contextlib.suppress(NodeMissing, VersionChanged):
            session.write([Delete(path, value.version)])


class Presence:
    """This process among those of a destination, and the running nodes of the clients that it serves.

    All of its nodes end with the session. A node of somebody else's is left alone.
    """

    def __init__(self, config: ZooKeeper, destination: str, session: Session) -> None:
        self._config = config
        self._destination = destination
        self._session = session
        self._marked: set[int] = set()  # clients whose running node is ours

    def _path(self, *parts: str) -> str:
        return self._config.destination_path(self._destination, *parts)

    def join(self, address: str) -> None:
        for path in (self._path(), f"{self._config.root}/epochs/{self._destination}"):
            self._session.protect(path)
        for path in self._members(address):
            self._session.make(path.rpartition("/")[0])
            with contextlib.suppress(NodeExists):
                self._session.write([Create(path, b"", ephemeral=True)])

    def leave(self, address: str) -> None:
        for path in self._members(address):
            with contextlib.suppress(NodeMissing, VersionChanged):
                self._session.write([Delete(path)])

    def _members(self, address: str) -> tuple[str, str]:
        return f"{self._config.root}/cluster/{address}", self._path("cluster", address)

    def mark(self, clients: Collection[int], address: str, fence: Fence | None, ended: Callable[[], None]) -> None:
        """Write the running nodes of clients, so that canal's tools see who consumes; ``ended``: an operator ends one."""
        clients = set(clients)
        self._marked &= clients  # of those that are gone the node went with all the others
        for client_id in clients:
            path = self._path(client_node(client_id), "running")
            value = self._session.get(path)
            if value is None:
                with contextlib.suppress(NodeExists, NodeMissing):
                    document = running_document(address, client_id=client_id)
                    self._session.write([Create(path, document, ephemeral=True)], fence)
                    self._marked.add(client_id)
            elif value.owner == self._session.id and not read_running(value.data)[1]:
                log.info("[%s] an operator has written active=false for client %d", self._destination, client_id)
                ended()

    def unmark(self) -> None:
        """Without contact they go with the session."""
        marked, self._marked = self._marked, set()
        for client_id in marked if self._session.is_connected else ():
            path = self._path(client_node(client_id), "running")
            with contextlib.suppress(NodeMissing, VersionChanged):
                value = self._session.get(path)
                if value is not None and value.owner == self._session.id:
                    self._session.write([Delete(path, value.version)])
