"""ZooKeeper as this library uses it: one session, values with versions, transactions behind a fence.

Never decides who is active; that is canal.ha's business. Everything that kazoo calls or raises stays in this file.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import attrs

from canal.checks import not_negative, positive
from canal.errors import ConfigError, CoordinationError, NotActiveError

log = logging.getLogger("canal.ha")

ROOT: Final = "/otter/canal"
"""canal's own, so that its users move in place."""


def _is_root(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not value.startswith("/") or value.endswith("/") or "//" in value:
        raise ConfigError(f"root of ZooKeeper is a path such as {ROOT}, not {value!r}")


def _is_hosts(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not value.strip():
        raise ConfigError("hosts of ZooKeeper names none", remedy='Write "zk1:2181,zk2:2181,zk3:2181".')


@attrs.frozen(kw_only=True)
class ZooKeeper:
    """How to reach ZooKeeper, and how the processes that embed one destination take turns.

    Args:
        hosts: ``host:port`` of each member, with commas between them.
        session_timeout: seconds without contact after which ZooKeeper takes this process for dead; the server has limits
            of its own (2 to 20 ticks by default, that is 4 to 40 s). Delivery stops by itself a little earlier.
        takeover_delay: seconds that others wait when the owner is gone, so that a restarted one takes up its work again.
        root: where the tree begins.
        auth: (scheme, credential) pairs, such as ``("digest", "user:password")``.
        options: further arguments of ``kazoo.client.KazooClient``, such as those for TLS.
    """

    hosts: str = attrs.field(validator=_is_hosts)
    session_timeout: float = attrs.field(default=10.0, validator=positive)
    takeover_delay: float = attrs.field(default=5.0, validator=not_negative)
    root: str = attrs.field(default=ROOT, validator=_is_root)
    auth: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=tuple, repr=False)
    options: dict[str, Any] = attrs.field(factory=dict, repr=False)

    def destination_path(self, destination: str, *parts: str) -> str:
        """The path of a destination's node, or of one below it."""
        return "/".join((self.root, "destinations", destination, *parts))


@attrs.frozen
class Value:
    """What a node holds; ``owner`` is the session that an ephemeral one lives by, else 0. Times by ZooKeeper's clock."""

    data: bytes
    version: int
    owner: int = 0
    created: float = attrs.field(default=0.0, eq=False)
    changed: float = attrs.field(default=0.0, eq=False)


@attrs.frozen
class Fence:
    """A node that every take-over changes: what is written behind it is refused once another process has taken over."""

    path: str
    version: int
    epoch: int


@attrs.frozen
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False


@attrs.frozen
class Set:
    path: str
    data: bytes
    version: int = -1


@attrs.frozen
class Delete:
    path: str
    version: int = -1


Write = Create | Set | Delete


class NodeExists(Exception):
    """A Create met a node that is there."""


class NodeMissing(Exception):
    """A Set or a Delete met no node, or a Create no parent."""


class VersionChanged(Exception):
    """A Set or a Delete met another version."""


class Session:
    """A connection to ZooKeeper, made again for as long as it is open; calls come from any thread.

    Args:
        config: how to reach it.
        changed: called with "CONNECTED", "SUSPENDED" or "LOST", on a thread of kazoo's that must not be held up.

    Calls raise CoordinationError when ZooKeeper does not answer within the session's time-out. A write may then have
    happened or not.
    """

    def __init__(self, config: ZooKeeper, changed: Callable[[str], None] = lambda state: None) -> None:
        self.config = config
        self._changed = changed
        self._client: Any = None
        self._negotiated = 0.0
        self._lock = threading.Lock()

    # -- life ------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to connect; does not wait until it is."""
        from kazoo.client import KazooClient
        from kazoo.retry import KazooRetry

        config = self.config
        with self._lock:
            if self._client is not None:
                return
            arguments: dict[str, Any] = {
                "hosts": config.hosts, "timeout": config.session_timeout, "auth_data": list(config.auth) or None,
                "connection_retry": KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=2.0, ignore_expire=True),
                "logger": logging.getLogger("canal.ha.kazoo"),
            }  # fmt: skip
            try:
                client = self._client = KazooClient(**{**arguments, **config.options})
            except (TypeError, ValueError) as error:
                raise ConfigError(f"ZooKeeper cannot be used as configured: {error}") from error
            self._time(client._connection)
            client.add_listener(self._listen)
            client.start_async()

    def close(self) -> None:
        """End the session: ephemeral nodes are gone when this returns, where ZooKeeper can be reached."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.remove_listener(self._listen)
            client.stop()
            client.close()

    def wait_connected(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while not self.is_connected:
            if time.monotonic() >= deadline or self._client is None:
                return False
            time.sleep(0.01)
        return True

    @property
    def is_connected(self) -> bool:
        client = self._client
        return client is not None and bool(client.connected)

    @property
    def id(self) -> int:
        """The session's id, as ``Value.owner`` gives it; 0 before there is one."""
        client = self._client
        found = client.client_id if client is not None else None
        return int(found[0]) if found else 0

    @property
    def timeout(self) -> float:
        """Seconds after which ZooKeeper gives the session up: what was asked for, or less where the server says so."""
        wanted = self.config.session_timeout
        return min(wanted, self._negotiated) if self._negotiated else wanted

    def _time(self, connection: Any) -> None:
        """Note the time-out that the server grants, which kazoo gives to nobody (two thirds of it are how long it waits for
        an answer), and wait a third of the session, or a second, for one that has accepted a connection: kazoo waits all of it
        where there is one address, and a server that starts never answers some."""
        connect, invoke = connection._connect, connection._invoke

        def noting(*arguments: Any) -> Any:
            milliseconds, rest = connect(*arguments)
            self._negotiated = milliseconds * 1.5 / 1000
            return milliseconds, rest

        def hurrying(timeout: float, *arguments: Any, **options: Any) -> Any:
            return invoke(min(timeout, max(self.config.session_timeout / 3, 1.0)), *arguments, **options)

        connection._connect, connection._invoke = noting, hurrying

    def _listen(self, state: str) -> None:
        self._changed(str(state))

    # -- reading ---------------------------------------------------------------------------------------------------

    def get(self, path: str, watch: Callable[[], None] | None = None) -> Value | None:
        """The node's value; None when there is none. ``watch`` is called once, when that changes."""
        from kazoo.exceptions import NoNodeError

        def fired(event: Any) -> None:
            assert watch is not None
            watch()

        observer = None if watch is None else fired
        try:
            data, stat = self._call("get_async", path, observer)
        except NoNodeError:
            # A watch is left by a look that finds a node, or by exists.
            if observer is None or self._call("exists_async", path, observer) is None:
                return None
            return self.get(path, watch)
        return Value(
            bytes(data or b""), int(stat.version), int(stat.ephemeralOwner), stat.ctime / 1000, stat.mtime / 1000
        )

    def get_many(self, paths: Iterable[str]) -> Iterator[bytes | None]:
        """The data of many nodes in turn, None for those that are not there; asked for without a wait for each."""
        from kazoo.exceptions import NoNodeError

        wanted = iter(paths)
        while some := list(itertools.islice(wanted, 200)):
            for result in [self._started().get_async(path) for path in some]:
                try:
                    yield bytes(self._wait(result, "get")[0] or b"")
                except NoNodeError:
                    yield None

    def children(self, path: str) -> list[str]:
        """Names of the node's children, sorted; [] when there is no node."""
        from kazoo.exceptions import NoNodeError

        try:
            return sorted(self._call("get_children_async", path))
        except NoNodeError:
            return []

    # -- writing ---------------------------------------------------------------------------------------------------

    def make(self, path: str) -> None:
        """Make a node and its parents where they are not there yet."""
        self._call("ensure_path_async", path)

    def write(self, writes: Iterable[Write], fence: Fence | None = None) -> list[int]:
        """All of the writes or none of them; gives the versions of nodes that were set (0 of others).

        Raises:
            NotActiveError: the fence has moved: another process has taken over.
            NodeExists, NodeMissing, VersionChanged: what the first write that could not be done met.
        """
        from kazoo import exceptions

        client = self._started()
        transaction = client.transaction()
        if fence is not None:
            transaction.check(fence.path, fence.version)
        for one in writes:
            if isinstance(one, Create):
                transaction.create(one.path, one.data, ephemeral=one.ephemeral)
            elif isinstance(one, Set):
                transaction.set_data(one.path, one.data, one.version)
            else:
                transaction.delete(one.path, one.version)
        results = self._wait(transaction.commit_async(), "write")
        kinds: tuple[tuple[type[Exception], type[Exception]], ...] = (
            (exceptions.NodeExistsError, NodeExists), (exceptions.NoNodeError, NodeMissing),
            (exceptions.BadVersionError, VersionChanged), (exceptions.NotEmptyError, VersionChanged),
        )  # fmt: skip
        moved = (exceptions.BadVersionError, exceptions.NoNodeError)
        untouched = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)  # because of another write
        for number, result in enumerate(results):
            if not isinstance(result, Exception) or isinstance(result, untouched):
                continue
            if fence is not None and number == 0 and isinstance(result, moved):
                raise NotActiveError(
                    "another process has taken the destination over", remedy="This one stands by until it is its turn again."
                )
            for kind, ours in kinds:
                if isinstance(result, kind):
                    raise ours(str(result))
            raise CoordinationError(f"ZooKeeper refuses a write: {result!r}") from result
        if any(isinstance(result, Exception) for result in results):
            raise CoordinationError(f"ZooKeeper refuses a write: {results!r}")
        return [getattr(result, "version", 0) for result in (results if fence is None else results[1:])]

    def _call(self, name: str, *args: Any) -> Any:
        return self._wait(getattr(self._started(), name)(*args), name.removesuffix("_async"))

    def _started(self) -> Any:
        client = self._client
        if client is None:
            raise CoordinationError("the ZooKeeper session is closed")
        return client

    def _wait(self, result: Any, doing: str) -> Any:
        from kazoo import exceptions
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            return result.get(timeout=self.config.session_timeout)
        except (exceptions.NoNodeError, exceptions.NodeExistsError, exceptions.BadVersionError):
            raise
        except (exceptions.KazooException, KazooTimeoutError, ConnectionError) as error:
            raise CoordinationError(
                f"ZooKeeper at {self.config.hosts} does not {doing}: {type(error).__name__} {error}".rstrip(),
                remedy="Check that a majority of its members runs and can be reached, and the rights of the nodes.",
            ) from error
