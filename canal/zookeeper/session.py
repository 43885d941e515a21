"""ZooKeeper as this library uses it: one session, values with versions, transactions behind a fence.

Never decides who is active; that is canal.ha's business. Everything that kazoo raises stays in this file.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import attrs

from canal.errors import CoordinationError, NotActiveError
from canal.zookeeper.config import ROOT, ZooKeeper
from canal.zookeeper.link import EnsembleLink, is_alive, join, leave

__all__ = ["ROOT", "ZooKeeper"]

_REMEDY: Final = "Check that a majority of its members runs and can be reached, and the rights of the nodes."
_SLICE: Final = 0.25  # seconds after which a wait for an answer looks whether it is to end sooner


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
    """A node that every take-over changes: what is written behind it is refused once another process has taken over.

    ``turn`` is a node of a name that no other turn ever has: a ``path`` that was deleted and made anew may come to the same
    version again. ``series`` names the count of turns that ``epoch`` belongs to. Another ZooKeeper, root or destination has
    another one.
    """

    path: str
    version: int
    epoch: int
    turn: str = ""
    series: str = ""


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


class UnansweredError(CoordinationError):
    """ZooKeeper did not answer, or contact was lost before it did: a write may have happened or not."""


class Session:
    """Reads and writes nodes over a connection that is made again for as long as the session is open.

    Calls come from any thread. They raise UnansweredError when ZooKeeper does not answer within the session's time-out, and
    CoordinationError for whatever else it says, or kazoo raises.

    Args:
        config: how to reach it.
        changed: called with "CONNECTED", "SUSPENDED" or "LOST", on a thread of kazoo's that must not be held up.
        claim: share the connection with other sessions of this process, but for one of the same claim, such as the path of a
            destination: each takes part in an election by a session of its own. "" never conflicts. None: do not share it.
    """

    def __init__(
        self, config: ZooKeeper, changed: Callable[[str], None] = lambda state: None, *, claim: str | None = None
    ) -> None:
        self.config = config
        self.claim = claim or ""
        self.ephemerals: set[str] = set()
        self._is_shared = claim is not None
        self._changed = changed
        self._link: EnsembleLink | None = None
        self._lock = threading.Lock()
        self._patience = math.inf  # seconds that a call waits at most, where that is less than the session's time-out

    # -- life ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """
        Raises:
            ConfigError: ZooKeeper cannot be used as configured.
        """
        EnsembleLink(self.config).make()

    def open(self) -> None:
        """Begin to connect; does not wait until it is."""
        with self._lock:
            if self._link is not None:
                return
            self._patience = math.inf
            link = join(self, self.config, self._is_shared)
            was_connected = link.is_connected
            try:
                link.open()
            except BaseException:
                leave(self, link, lambda: 0.0)
                raise
            self._link = link
        if was_connected:
            self._changed("CONNECTED")

    def hurry(self) -> None:
        """The session is to be closed: a call waits for ``farewell`` seconds, and none any more once one has waited in vain."""
        self._patience = min(self._patience, self.config.farewell)

    def close(self) -> None:
        """End the session: ephemeral nodes are gone when this returns, where ZooKeeper answers within ``farewell`` seconds."""
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            leave(self, link, lambda: min(self.config.farewell, self._patience))
            self.ephemerals.clear()

    def revive(self) -> None:
        """Begin anew if kazoo cannot go on. See ``EnsembleLink.revive``."""
        link = self._link
        if link is not None:
            link.revive()

    def heard(self, state: str) -> None:
        """Take a change of the connection."""
        if state == "LOST":
            self.ephemerals.clear()
        self._changed(state)

    @property
    def _client(self) -> Any:
        link = self._link
        return None if link is None else link.client

    @property
    def has_ended(self) -> bool:
        """Whether kazoo connects no more, until ``revive``."""
        client = self._client
        return client is not None and not is_alive(client)

    def wait_connected(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while not self.is_connected:
            self.revive()
            if time.monotonic() >= deadline or self._client is None:
                return False
            time.sleep(0.01)
        return True

    @property
    def is_connected(self) -> bool:
        client = self._client
        return client is not None and bool(client.connected)

    @property
    def problem(self) -> str:
        """Why there was no contact the last time."""
        link = self._link
        return link is not None and link.problem or "no answer"

    @property
    def id(self) -> int:
        """The session's id, as ``Value.owner`` gives it; 0 before there is one."""
        client = self._client
        found = client.client_id if client is not None else None
        return int(found[0]) if found else 0

    @property
    def timeout(self) -> float:
        """Seconds after which ZooKeeper gives the session up: what was asked for, or less where the server says so."""
        wanted, link = self.config.session_timeout, self._link
        return min(wanted, link.negotiated) if link is not None and link.negotiated else wanted

    # -- reading ---------------------------------------------------------------------------------------------------

    def get(self, path: str, watch: Callable[[], None] | None = None) -> Value | None:
        """The node's value; None when there is none. ``watch`` is called once, when that changes."""

        def fired(event: Any) -> None:
            assert watch is not None
            watch()

        observer = None if watch is None else fired
        try:
            data, stat = self._call("get", path, observer)
        except NodeMissing:
            # A watch is left by a look that finds a node, or by exists.
            if observer is None or self._call("exists", path, observer) is None:
                return None
            return self.get(path, watch)
        return Value(bytes(data or b""), int(stat.version), int(stat.ephemeralOwner), stat.ctime / 1000, stat.mtime / 1000)

    def sync(self, path: str) -> None:
        """Wait until this session's member of ZooKeeper knows all that was written before this call."""
        self._call("sync", path)

    def get_many(self, paths: Iterable[str]) -> Iterator[bytes | None]:
        """The data of many nodes in turn, None for those that are not there; asked for without a wait for each."""
        wanted = iter(paths)
        while some := list(itertools.islice(wanted, 200)):
            for path, result in [(path, self._ask("get", path)) for path in some]:
                try:
                    yield bytes(self._wait(result, "get", path)[0] or b"")
                except NodeMissing:
                    yield None

    def children(self, path: str) -> list[str]:
        """Names of the node's children, sorted; [] when there is no node."""
        try:
            return sorted(self._call("get_children", path))
        except NodeMissing:
            return []

    def rights(self, path: str) -> str | None:
        """What its ACL lets these credentials do with a node, in zkCli.sh's letters (cdrwa), and "?" where the ACL is for others
        too of whom only ZooKeeper knows whether they are us; None when there is no node."""
        from kazoo.exceptions import NoAuthError
        from kazoo.security import make_digest_acl_credential

        digests = [pair[1].partition(":") for pair in self.config.auth if pair[0] == "digest"]
        own = {("world", "anyone"), *(("digest", make_digest_acl_credential(user, word)) for user, _, word in digests)}
        try:
            acls, _ = self._call("get_acls", path)
        except NodeMissing:
            return None
        except CoordinationError as error:
            if isinstance(error.__cause__, NoAuthError):  # the ACL itself is for who may read the node
                return ""
            raise
        bits = 0
        for acl in acls:
            bits |= acl.perms if (acl.id.scheme, acl.id.id) in own else 0
        others = any(acl.id.scheme not in ("world", "digest") for acl in acls)
        return "".join(letter for bit, letter in enumerate("rwcda") if bits & 1 << bit) + "?" * others

    # -- writing ---------------------------------------------------------------------------------------------------

    def make(self, path: str) -> None:
        """Make a node and its parents where they are not there yet."""
        try:
            self._call("ensure_path", path)
        except NodeMissing as error:
            raise CoordinationError(
                f"ZooKeeper at {self.config.hosts} cannot make {path}: what is above it is not there",
                remedy="Make the node that is named behind the addresses, the chroot; or it was deleted just now.",
            ) from error

    def protect(self, path: str) -> None:
        """With ``acl="creator"``: make the node, and what is below it, the creator's where it is open to everybody."""
        from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

        if not self.config.is_creators:
            return
        with contextlib.suppress(NodeMissing):
            if self._call("get_acls", path)[0] == OPEN_ACL_UNSAFE:
                for child in self.children(path):
                    self.protect(f"{path}/{child}")
                self._call("set_acls", path, CREATOR_ALL_ACL)  # the last one: else a crash would leave some below it

    def write(self, writes: Iterable[Write], fence: Fence | None = None) -> list[int]:
        """All of the writes or none of them; gives the versions of nodes that were set (0 of others).

        Raises:
            NotActiveError: the fence has moved: another process has taken over.
            NodeExists, NodeMissing, VersionChanged: what the first write that could not be done met.
        """
        from kazoo import exceptions

        writes = list(writes)
        checks = [] if fence is None else [(fence.path, fence.version)] + [(fence.turn, -1)] * bool(fence.turn)
        paths = [path for path, _ in checks] + [one.path for one in writes]

        def fill(client: Any) -> Any:
            transaction = client.transaction()
            for check in checks:
                transaction.check(*check)
            for one in writes:
                if isinstance(one, Create):
                    transaction.create(one.path, one.data, ephemeral=one.ephemeral)
                elif isinstance(one, Set):
                    transaction.set_data(one.path, one.data, one.version)
                else:
                    transaction.delete(one.path, one.version)
            return transaction.commit_async()

        made = {one.path for one in writes if isinstance(one, Create) and one.ephemeral}
        made -= self.ephemerals
        self.ephemerals |= made
        results = self._wait(self._begin(fill, "write", paths[0]), "write", paths[0])
        if any(isinstance(result, Exception) for result in results):
            self.ephemerals -= made
        self.ephemerals -= {one.path for one in writes if isinstance(one, Delete)}
        moved = (exceptions.BadVersionError, exceptions.NoNodeError)
        untouched = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)  # because of another write
        for number, (path, result) in enumerate(zip(paths, results)):
            if not isinstance(result, Exception) or isinstance(result, untouched):
                continue
            if number < len(checks) and isinstance(result, moved):
                raise NotActiveError(
                    f"another process has taken the destination over, or {path} was deleted",
                    remedy="This one stands by until it is its turn again.",
                )
            raise self._error(result, "write", path) from result
        if len(results) != len(paths) or any(isinstance(result, Exception) for result in results):
            raise CoordinationError(f"ZooKeeper at {self.config.hosts} refuses a write to {paths[0]}: {results!r}")
        return [getattr(result, "version", 0) for result in results[len(checks) :]]

    # -- asking ----------------------------------------------------------------------------------------------------

    def _call(self, name: str, path: str, *args: Any) -> Any:
        return self._wait(self._ask(name, path, *args), name, path)

    def _ask(self, name: str, path: str, *args: Any) -> Any:
        return self._begin(lambda client: getattr(client, f"{name}_async")(path, *args), name, path)

    def _begin(self, ask: Callable[[Any], Any], doing: str, path: str) -> Any:
        self.revive()
        client = self._client
        if client is None:
            raise UnansweredError("the ZooKeeper session is closed")
        try:
            return ask(client)
        except Exception as error:
            raise self._error(error, doing, path) from error

    def _wait(self, result: Any, doing: str, path: str) -> Any:
        """The answer, once it is there. Whatever is raised is one of ours."""
        from kazoo.handlers.threading import KazooTimeoutError

        began = time.monotonic()
        while True:
            left = began + min(self._patience, self.config.session_timeout) - time.monotonic()
            try:
                found = result.get(timeout=min(max(left, 0.0), _SLICE))
            except KazooTimeoutError as error:
                if left > _SLICE and not result.ready():
                    continue
                if self._patience < math.inf:
                    self._patience = 0.0
                raise self._error(error, doing, path) from error
            except Exception as error:
                raise self._error(error, doing, path) from error
            if (link := self._link) is not None:
                link.logins = 0
            return found

    def _error(self, error: Exception, doing: str, path: str) -> Exception:
        """Ours for one of kazoo's, or for whatever else it raises."""
        from kazoo import exceptions
        from kazoo.handlers.threading import KazooTimeoutError

        text = f"{type(error).__name__} {error}".rstrip()
        ours: list[tuple[type[Exception], type[Exception]]] = []
        if doing != "exists":  # whose answer that is
            ours.append((exceptions.NoNodeError, NodeMissing))
        if doing == "write":
            ours += [
                (exceptions.NodeExistsError, NodeExists),
                (exceptions.BadVersionError, VersionChanged),
                (exceptions.NotEmptyError, VersionChanged),
            ]
        for theirs, kind in ours:
            if isinstance(error, theirs):
                return kind(f"{path}: {text}")
        silence = (
            exceptions.ConnectionLoss,
            exceptions.OperationTimeoutError,
            exceptions.SessionExpiredError,
            exceptions.SessionMovedError,
            exceptions.UnknownSessionError,
            exceptions.RequestTimeoutError,
            exceptions.ConnectionDropped,
            exceptions.CancelledError,
            KazooTimeoutError,
            OSError,
        )
        return (UnansweredError if isinstance(error, silence) else CoordinationError)(
            f"ZooKeeper at {self.config.hosts} does not {doing} {path}: {text}", remedy=_REMEDY
        )


def connected(config: ZooKeeper, destination: str) -> Session:
    """A session that has contact.

    Raises:
        CoordinationError: there is none within the session's time-out.
    """
    session = Session(config, claim="")
    try:
        session.open()
        if not session.wait_connected(config.session_timeout):
            raise CoordinationError(
                f"ZooKeeper at {config.hosts} cannot be reached",
                destination=destination,
                remedy="Check that a majority of its members runs and can be reached.",
            )
    except BaseException:
        session.close()
        raise
    return session
