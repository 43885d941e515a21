"""Reads from ZooKeeper the owner, the standbys and the clients of each destination under a root.

Never takes part in an election. It writes only what an operator asks for: a release or another epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

from canal.errors import CoordinationError, CursorError, UnknownDestinationError
from canal.ha.nodes import read_epoch, read_router, read_running, running_document
from canal.meta.zookeeper import client_node, client_of, read_cursor
from canal.position import Position
from canal.zookeeper.session import Delete, NodeMissing, Session, Set, VersionChanged, Write

#: Times that a cursor is read while its owner moves it.
_LOOKS = 5


@attrs.frozen
class ClientOverview:
    """A client: its filter, its cursor (None: none, or not readable), and when that was written, in seconds since 1970;
    ``problem`` says why a cursor cannot be read."""

    id: int
    filter: str
    cursor: Position | None
    acked: float
    problem: str = ""

    def behind(self, now: float) -> float | None:
        """How many seconds the client is behind the source at most; None where its cursor has no time."""
        if self.cursor is None or not self.cursor.timestamp:
            return None
        return max(now - self.cursor.timestamp / 1000, 0.0)


@attrs.frozen
class DestinationOverview:
    """A destination. ``owner`` is "" when no process runs it, or nobody can tell which; ``since`` is in seconds since 1970, by
    ZooKeeper's clock. ``damaged`` are sentences about nodes that hold what cannot be read."""

    name: str
    owner: str
    active: bool
    since: float
    epoch: int
    members: tuple[str, ...]
    clients: tuple[ClientOverview, ...]
    damaged: tuple[str, ...] = ()

    @property
    def standbys(self) -> tuple[str, ...]:
        return tuple(member for member in self.members if member != self.owner)


def destinations(session: Session) -> list[str]:
    """Those that somebody has run; a member of a group has nothing but its schema history under its name."""
    names = session.children(f"{session.config.root}/destinations")
    return [name for name in names if session.children(session.config.destination_path(name)) != ["schema"]]


def look_at(session: Session, name: str) -> DestinationOverview:
    """
    Raises:
        UnknownDestinationError: no process has ever run a destination of that name under the root.
    """
    path = session.config.destination_path(name)
    found = session.children(path)
    if not found and name not in (known := destinations(session)):
        raise UnknownDestinationError(
            f"there is no destination {name!r} under {session.config.root}",
            remedy=f"There are: {', '.join(known)}." if known else "There is none at all: check the root.",
        )
    running, epoch = session.get(f"{path}/running"), session.get(f"{path}/epoch")
    owner, active, number, damaged = "", False, 0, []
    if running is not None:
        owner, active = read_running(running.data)
        if not owner:
            damaged.append(f"{path}/running holds {running.data[:40]!r}: nobody can tell which process that is")
        if not running.owner:
            damaged.append(f"{path}/running lives by no session: as long as it is there no process can take the destination over")
    try:
        number = read_epoch(f"{path}/epoch", epoch.data) if epoch is not None else 0
    except CoordinationError as error:
        damaged.append(error.message)
    clients = tuple(_client(session, path, one) for one in map(client_of, found) if one is not None)
    unread = [client for client in clients if client.problem]
    damaged += [f"{path}/{client_node(client.id)} has a cursor that cannot be read: {client.problem}" for client in unread]
    return DestinationOverview(
        name,
        owner,
        active,
        running.created if running is not None else 0.0,
        number,
        tuple(session.children(f"{path}/cluster")),
        clients,
        tuple(damaged),
    )


def _client(session: Session, path: str, number: int) -> ClientOverview:
    base = f"{path}/{client_node(number)}"
    filter, cursor = session.get(f"{base}/filter"), session.get(f"{base}/cursor")
    for _ in range(_LOOKS):  # the owner writes both nodes at once, perhaps between two of our reads
        exact, again = session.get(f"{base}/position"), session.get(f"{base}/cursor")
        if (again and again.version) == (cursor and cursor.version):
            break
        cursor = again
    text = filter.data.decode(errors="replace") if filter is not None else ""
    position, problem = None, ""
    if cursor is not None and cursor.data:
        try:
            position = read_cursor(cursor.data, exact.data if exact is not None else b"")
        except CursorError as error:
            problem = error.message
    return ClientOverview(number, text, position, cursor.changed if cursor is not None else 0.0, problem)


def adopt(session: Session, name: str, epoch: int) -> int:
    """Raise the epoch of a destination to ``epoch`` if it is lower. Return the epoch.

    An owner loses its turn and competes again.

    Raises:
        UnknownDestinationError: no process has ever run a destination of that name under the root.
    """
    look_at(session, name)
    running = session.config.destination_path(name, "running")
    paths = (session.config.destination_path(name, "epoch"), f"{session.config.root}/epochs/{name}")
    while True:
        owned = session.get(running)
        writes: list[Write] = [Delete(running, owned.version)] if owned is not None else []
        for path in paths:
            session.make(path)
        values = [session.get(path) for path in paths]
        if None in values:  # deleted just now
            continue
        last = max(epoch, *(read_epoch(path, value.data) for path, value in zip(paths, values) if value is not None))
        if last > epoch:
            return last
        for path, value in zip(paths, values):
            assert value is not None
            writes.append(Set(path, str(last).encode(), value.version))
        try:
            session.write(writes)
        except (NodeMissing, VersionChanged):
            continue
        return last


def release(
    session: Session, name: str, timeout: float, sleep: Callable[[float], None] = time.sleep
) -> tuple[str, DestinationOverview]:
    """Ask the owner to let go, as canal's admin does, and wait until another process is the owner; gives the old and the new.

    Raises:
        CoordinationError: nobody runs the destination, nobody else could, or nobody has taken it over in time.
    """
    old = look_at(session, name)
    if not old.owner and old.damaged:
        raise CoordinationError(f"nobody can be asked to release {name}: {'; '.join(old.damaged)}")
    if not old.owner:
        raise CoordinationError(f"no process runs {name}: there is nothing to release")
    running = session.get(session.config.destination_path(name, "running"))
    router = "" if running is None else read_router(running.data)
    if router:
        raise CoordinationError(f"{name} is an output of the router {router}", remedy=f"Release {router}: outputs go with it.")
    if not old.standbys:
        raise CoordinationError(
            f"no other process stands by for {name}, so {old.owner} was left alone", remedy="Start another one first."
        )
    path = session.config.destination_path(name, "running")
    node = session.get(path)
    if node is not None and read_running(node.data)[0] == old.owner:
        try:
            session.write([Set(path, running_document(old.owner, active=False), node.version)])
        except (NodeMissing, VersionChanged):
            pass  # it goes by itself just now
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        new = look_at(session, name)
        if new.owner not in ("", old.owner) and new.active:
            return old.owner, new
        sleep(0.05)
    raise CoordinationError(
        f"{old.owner} was asked to release {name}, but no other process has taken it over within {timeout:g} s",
        remedy="Look at canal ha status and at the logs of the processes that stand by.",
    )
