"""Subscriptions and cursors in ZooKeeper, in the nodes that canal keeps them in: ``<root>/destinations/<destination>``.

Never decides who is active: every change is one transaction behind the fence that it was given, if any.

Of a client there are ``<clientId>/filter``, ``<clientId>/cursor`` (canal's JSON, so that canal can go on from it) and
``<clientId>/position`` (ours, which says more). The two cursors change together; where canal has moved its own, that counts.
A client whose id is beyond those of canal is ``client-<clientId>``, which canal passes over.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from canal.errors import ConfigError, CoordinationError, CursorError, NotActiveError
from canal.meta.protocol import Subscribed
from canal.meta.stored import Client, Clients, StoredMeta, is_canals, nowhere
from canal.position import Position
from canal.zookeeper.session import (
    Create,
    Delete,
    Fence,
    NodeExists,
    NodeMissing,
    Session,
    Set,
    Value,
    VersionChanged,
    Write,
    ZooKeeper,
    connected,
)

log = logging.getLogger("canal.meta")

_TYPE: Final = "com.alibaba.otter.canal.protocol.position.LogPosition"
_LARGEST: Final = 1_000_000  # ZooKeeper hangs up on a request of 1 MiB
_RETRIES: Final = 5
_UNSUBSCRIBED: Final = "unsubscribed"  # the node that numbers unsubscribes: those of the newest clients
_KEPT: Final = 1000
_PAUSE: Final = 30.0  # seconds between two tries of the writer at most
_REMEDY: Final = "Correct the node, or delete it with its neighbour and subscribe again"


def client_node(client_id: int) -> str:
    """The node of a client below its destination's."""
    return str(client_id) if is_canals(client_id) else f"client-{client_id}"


def client_of(name: str) -> int | None:
    """The client whose node this is below its destination's; None where it is that of none."""
    digits = name.removeprefix("client-")
    if not (digits.isascii() and digits.removeprefix("-").isdecimal() and len(digits) <= 19):
        return None
    return int(digits) if client_node(int(digits)) == name else None


def read_cursor(cursor: bytes, exact: bytes) -> Position:
    """The cursor of a client's two nodes: ours, which says more, unless canal has moved its own since.

    Raises:
        CursorError: one of them holds something else.
    """
    try:
        document = json.loads(cursor)
        if not isinstance(document, dict):
            raise CursorError("it is not a JSON object")
        theirs = Position.from_canal(document)
        ours = Position.from_text(exact.decode()) if exact else theirs
    except (ValueError, RecursionError) as error:
        raise CursorError("it is not JSON") from error
    written = Position.from_canal(ours.to_canal())  # as canal's node held it when ours was written
    if all(getattr(written, name) == getattr(theirs, name) for name in ("journal", "offset", "gtid", "timestamp")):
        return ours
    log.warning("a cursor was moved by another program since: going on from %s", theirs)
    return theirs


class ZooKeeperNodes:
    """The nodes of one destination, as a ``Storage``.

    Args:
        zookeeper: how to reach it, or an open session.
    """

    def __init__(self, zookeeper: ZooKeeper | Session) -> None:
        self.address_of: Callable[[Position], tuple[str, int]] = nowhere
        self._given: Session | None = zookeeper if isinstance(zookeeper, Session) else None
        self._config = zookeeper.config if isinstance(zookeeper, Session) else zookeeper
        self._session: Session | None = None  # while started
        self._ask_fence: Callable[[], Fence | None] | None = None
        self._fence: Fence | None = None
        self._base = ""
        self.stored: Clients | None = None  # what the nodes hold; None: a write failed, so it is to be read again
        # Those of the clients that are there, with the version of what they hold, by which a write that was not answered, and is
        # carried out late, does not undo later ones; -1 where none is needed.
        self._nodes: dict[str, int] = {}

    def bind(self, session: Session, fence: Callable[[], Fence | None]) -> None:
        """Use this session from the next ``start`` on, and write behind the fence that there is then."""
        self._given, self._ask_fence = session, fence

    def open(self, destination: str) -> Clients:
        if destination in ("", ".", "..") or "/" in destination or not destination.isprintable():
            raise ConfigError(f"destination {destination!r} cannot be the name of a node of ZooKeeper")
        self._base = self._config.destination_path(destination)
        self._fence = None
        if self._ask_fence is not None:
            self._fence = self._ask_fence()
            if self._fence is None:
                raise NotActiveError("this process is not the active one", destination=destination)
        self._session = session = self._given or connected(self._config, destination)
        try:
            session.make(self._base)
            self.stored = self._load()
        except BaseException:
            self.release()
            raise
        return self.stored

    def close(self, clients: Clients) -> None:
        self.release()

    def commit(self, clients: Clients, urgent: bool) -> None:
        self.store(clients)

    def release(self) -> None:
        """Let go of the session."""
        session, self._session = self._session, None
        if session is not None and session is not self._given:
            session.close()

    # -- reading ---------------------------------------------------------------------------------------------------

    def connected(self) -> Session:
        assert self._session is not None
        return self._session

    def _load(self) -> Clients:
        self._nodes = {}
        names = self.connected().children(self._base)
        found = {name: client_of(name) for name in names}
        return {client_id: self._load_client(name) for name, client_id in found.items() if client_id is not None}

    def _load_client(self, name: str) -> Client:
        filter, cursor, position = (self._data(f"{name}/{part}") for part in ("filter", "cursor", "position"))
        marks = self.connected().children(f"{self._base}/{name}/mark")
        self._nodes.update({name: -1, **{f"{name}/mark/{mark}": -1 for mark in marks}})
        try:
            text = filter.decode()
        except UnicodeDecodeError as error:
            raise CursorError(f"the filter in {self._base}/{name} is not UTF-8", remedy=_REMEDY) from error
        if not cursor:  # deleted, or emptied, by somebody who wants to begin anew
            return Client(text)
        try:
            return Client(text, read_cursor(cursor, position))
        except CursorError as error:
            raise CursorError(f"the cursor in {self._base}/{name} cannot be read: {error.message}", remedy=_REMEDY) from error

    def _data(self, name: str) -> bytes:
        value = self.connected().get(f"{self._base}/{name}")
        if value is None:
            return b""
        self._nodes[name] = value.version
        return value.data

    def subscribed(self, session: Session, destination: str, client_id: int) -> Subscribed:
        """Read what all processes have done with a client's subscription. The nodes need not be open."""
        base = self._config.destination_path(destination)
        session.sync(base)
        numbers = _numbers(session.get(f"{base}/{_UNSUBSCRIBED}"))
        filter = session.get(f"{base}/{client_node(client_id)}/filter")
        written = None if filter is None else (filter.data, filter.version, filter.created)
        return Subscribed(numbers.get(str(client_id), 0), max(numbers.values(), default=0), written)

    # -- writing ---------------------------------------------------------------------------------------------------

    def store(self, clients: Clients) -> None:
        """Make the nodes hold this state, in one transaction."""
        for _ in range(_RETRIES):
            stored = self.stored
            if stored is None:
                self.connected().make(self._base)  # ZooKeeper may have lost the data
                stored = self._load()
            writes = list(self._writes(stored, clients))
            if not writes:
                self.stored = clients
                return
            size = sum(len(write.path) + len(getattr(write, "data", b"")) + 32 for write in writes)
            if size > _LARGEST:
                raise CursorError(f"a write of {size} bytes is too large for ZooKeeper", remedy="Keep cursors in a file.")
            self.stored = None  # unless the answer says otherwise
            try:
                versions = self.connected().write(writes, self._fence)
            except NotActiveError:
                self.stored = stored
                raise
            except (NodeExists, NodeMissing, VersionChanged) as error:
                log.info("%s was changed by another program, reading it again: %r", self._base, error)
                continue
            for write, version in zip(writes, versions):
                if isinstance(write, Delete):
                    self._nodes.pop(self._name(write), None)
                else:
                    self._nodes[self._name(write)] = version
            self.stored = clients
            return
        raise CoordinationError(f"another program changes {self._base} all the time")

    def _name(self, write: Write) -> str:
        return write.path.removeprefix(f"{self._base}/")

    def _writes(self, stored: Clients, clients: Clients) -> Iterator[Write]:
        gone = stored.keys() - clients.keys()
        for client_id in gone:
            yield from self._delete(f"{self._base}/{client_node(client_id)}")
        if gone and self._ask_fence is not None:  # else no other process repeats subscriptions
            yield self._number(gone)
        for client_id, client in clients.items():
            old, node = stored.get(client_id), client_node(client_id)
            if client == old:
                continue
            if node not in self._nodes:
                yield Create(f"{self._base}/{node}")
            if old is None or client.filter != old.filter:
                yield self._put(f"{node}/filter", client.filter)
            if client.cursor is not None and (old is None or client.cursor != old.cursor):
                yield self._put(f"{node}/cursor", self._canal_text(client.cursor))
                yield self._put(f"{node}/position", client.cursor.to_text())
            elif client.cursor is None:
                yield from self._drop(f"{node}/cursor", f"{node}/position")
            # canal's outstanding batches: of a cursor that has moved they say nothing any more.
            yield from self._drop(*(name for name in self._nodes if name.startswith(f"{node}/mark/")))

    def _number(self, gone: Iterable[int]) -> Write:
        """Number the unsubscribes of these clients, so that no process repeats an earlier subscription in its turn."""
        node = self.connected().get(f"{self._base}/{_UNSUBSCRIBED}")
        numbers = _numbers(node)
        for client_id in gone:
            last = max(numbers.values(), default=0)
            numbers.pop(str(client_id), None)
            numbers[str(client_id)] = last + 1
        data = json.dumps(dict(list(numbers.items())[-_KEPT:])).encode()
        path = f"{self._base}/{_UNSUBSCRIBED}"
        return Create(path, data) if node is None else Set(path, data, node.version)

    def _put(self, name: str, text: str) -> Write:
        path = f"{self._base}/{name}"
        return Set(path, text.encode(), self._nodes[name]) if name in self._nodes else Create(path, text.encode())

    def _canal_text(self, position: Position) -> str:
        document: dict[str, Any] = {"@type": _TYPE, **position.to_canal(*self.address_of(position))}
        return json.dumps(document, separators=(",", ":"))

    def _drop(self, *names: str) -> Iterator[Write]:
        for name in sorted(set(names) & self._nodes.keys()):
            yield Delete(f"{self._base}/{name}")

    def _delete(self, path: str) -> Iterator[Write]:
        """The node and all below it, such as the running node of canal's client."""
        for child in self.connected().children(path):
            yield from self._delete(f"{path}/{child}")
        yield Delete(path)


def _numbers(node: Value | None) -> dict[str, int]:
    """Read the numbers of unsubscribes by client. A damaged node counts as empty: its next write repairs it."""
    try:
        return {str(name): int(number) for name, number in json.loads(node.data if node is not None else b"{}").items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


class _WriteBehind:
    """A ``Storage`` in which a thread writes cursors to nodes, seconds after each other."""

    def __init__(self, nodes: ZooKeeperNodes, interval: float) -> None:
        self._nodes = nodes
        self._interval = interval
        self._destination = ""
        self._writing = threading.Lock()  # held while nodes are written; never taken before the manager's
        self._wanted: Clients = {}  # what the nodes are to hold
        self._failures = 0  # writes in a row that failed
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._writer: threading.Thread | None = None

    @property
    def address_of(self) -> Callable[[Position], tuple[str, int]]:
        return self._nodes.address_of

    @address_of.setter
    def address_of(self, address_of: Callable[[Position], tuple[str, int]]) -> None:
        self._nodes.address_of = address_of

    def open(self, destination: str) -> Clients:
        self._destination = destination
        clients = self._wanted = self._nodes.open(destination)
        self._failures = 0
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._writer = threading.Thread(target=self._run, name=f"canal-{destination}-meta", daemon=True)
        self._writer.start()
        return clients

    def close(self, clients: Clients) -> None:
        self._stopping.set()
        self._wake.set()
        try:
            if self._writer is not None:
                self._writer.join()
            if self._nodes.stored == clients:
                return
            if not self._nodes.connected().is_connected:  # do not hold up the end of a process that has lost its turn
                raise CoordinationError(
                    "the last cursors are not in ZooKeeper, which cannot be reached",
                    destination=self._destination,
                    remedy="Changes that were acked since are delivered again.",
                )
            self.write(clients)
        finally:
            self._nodes.release()

    def commit(self, clients: Clients, urgent: bool) -> None:
        if urgent or self._failures:
            self.write(clients)
        else:
            self._wanted = clients
            self._wake.set()

    def write(self, clients: Clients | None = None) -> None:
        """Store this state and want it from now on; by default the one that is wanted. Others hold the lock of the manager."""
        with self._writing:
            try:
                self._nodes.store(self._wanted if clients is None else clients)
            except Exception as error:
                if not self._failures:
                    log.error("[%s] cursors are not written: %s", self._destination, error)
                self._failures += 1
                raise
            self._failures = 0
            if clients is not None:
                self._wanted = clients

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._stopping.wait(min(2.0 ** min(self._failures - 1, 10), _PAUSE) if self._failures else self._interval)
            if self._stopping.is_set():
                return
            self._wake.clear()
            try:
                self.write()
            except NotActiveError:
                return
            except Exception:  # whatever it is: without this thread nothing would be written any more, and nobody told
                self._wake.set()


class ZooKeeperMeta(StoredMeta):
    """Keeps subscriptions and cursors in ZooKeeper; every change is there when its call returns. See ``MetaManager``.

    Loses nothing; what was delivered and not acked comes again. When ZooKeeper cannot be reached, calls raise
    ``CoordinationError`` and show no change; the change may still be made there, and the call can be repeated.

    Used alone, without ``ha``, it writes without a fence: one process at a time is then the user's business.

    Args:
        zookeeper: how to reach it, or an open session.
    """

    def __init__(self, zookeeper: ZooKeeper | Session) -> None:
        self._nodes = ZooKeeperNodes(zookeeper)
        super().__init__(self._nodes)

    def bind(self, session: Session, fence: Callable[[], Fence | None]) -> None:
        """Use this session from the next ``start`` on, and write behind the fence that there is then."""
        self._nodes.bind(session, fence)

    def subscribed(self, session: Session, destination: str, client_id: int) -> Subscribed:
        """Return what all processes have done with a client's subscription. The manager need not be started."""
        return self._nodes.subscribed(session, destination, client_id)


class MixedMeta(StoredMeta):
    """In memory, and a thread writes each cursor to ZooKeeper as soon as the one before is there. See ``MetaManager``.

    Loses nothing. When the process dies, what was acked within about one round trip to ZooKeeper comes again; while
    ZooKeeper cannot be reached the thread tries on, and what was acked since comes again. So does, after a take-over,
    what this process acked before it learned of it: two processes may then both have acked a change.

    Only the newest cursor of each client waits, so nothing grows. After a failed write calls write at once again, until
    one succeeds: so the failure reaches the caller. Subscriptions and first cursors are always written at once.
    """

    def __init__(self, zookeeper: ZooKeeper | Session) -> None:
        self._begin(zookeeper, 0.0)

    def _begin(self, zookeeper: ZooKeeper | Session, interval: float) -> None:
        self._nodes = ZooKeeperNodes(zookeeper)
        self._behind = _WriteBehind(self._nodes, interval)
        super().__init__(self._behind)

    def bind(self, session: Session, fence: Callable[[], Fence | None]) -> None:
        """As ``ZooKeeperMeta.bind``."""
        self._nodes.bind(session, fence)

    def subscribed(self, session: Session, destination: str, client_id: int) -> Subscribed:
        """As ``ZooKeeperMeta.subscribed``."""
        return self._nodes.subscribed(session, destination, client_id)

    def flush(self) -> None:
        with self._lock:
            self._behind.write(self._started())


class PeriodMixedMeta(MixedMeta):
    """In memory, and a thread writes cursors that have changed every ``interval`` seconds. See ``MixedMeta``.

    Loses nothing. When the process dies, what was acked within the last ``interval`` comes again, besides what
    ``MixedMeta`` may repeat.
    """

    def __init__(self, zookeeper: ZooKeeper | Session, interval: float = 1.0) -> None:
        if not 0.0 < interval < threading.TIMEOUT_MAX:
            raise ConfigError(f"interval is a number of seconds > 0, not {interval!r}")
        self._begin(zookeeper, interval)
