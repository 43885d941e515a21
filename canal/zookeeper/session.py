"""ZooKeeper as this library uses it: one session, values with versions, transactions behind a fence.

Never decides who is active; that is canal.ha's business. Everything that kazoo calls or raises stays in this file.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal

import attrs

from canal._util.option_checks import not_negative, positive
from canal._util.threads import OwnThread
from canal.errors import ConfigError, CoordinationError, NotActiveError

log = logging.getLogger("canal.ha")

ROOT: Final = "/otter/canal"
"""canal's own, so that its users move in place."""
_REMEDY: Final = "Check that a majority of its members runs and can be reached, and the rights of the nodes."
_SLICE: Final = 0.25  # seconds after which a wait for an answer looks whether it is to end sooner
_LONGEST: Final = 60.0  # seconds between two attempts to log in again


def _is_root(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not value.startswith("/") or value.endswith("/") or "//" in value:
        raise ConfigError(f"root of ZooKeeper is a path such as {ROOT}, not {value!r}")


def _is_hosts(instance: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"hosts of ZooKeeper must be a str, not {value!r}", remedy='Write "zk1:2181,zk2:2181,zk3:2181".')
    if not value.strip():
        raise ConfigError("hosts of ZooKeeper names none", remedy='Write "zk1:2181,zk2:2181,zk3:2181".')


def _is_acl(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if value not in ("creator", "open"):
        raise ConfigError(f'acl of ZooKeeper is "creator" or "open", not {value!r}')


def _pairs(value: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    pairs = tuple(tuple(pair) if isinstance(pair, (tuple, list)) else () for pair in value)
    if not all(len(pair) == 2 and all(isinstance(part, str) for part in pair) for pair in pairs):
        raise ConfigError(
            "auth of ZooKeeper is no list of pairs of texts", remedy='Write (("digest", "user:password"),), with both commas.'
        )
    return pairs


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
        acl: who may read and change the nodes: with ``auth`` only who logs in with the same credentials ("creator"), and
            nodes of the destination that are open to everybody are taken over; "open": everybody. Without ``auth`` everybody.
        options: further arguments of ``kazoo.client.KazooClient``, such as those for TLS.
    """

    hosts: str = attrs.field(validator=_is_hosts)
    session_timeout: float = attrs.field(default=10.0, validator=positive)
    takeover_delay: float = attrs.field(default=5.0, validator=not_negative)
    root: str = attrs.field(default=ROOT, validator=_is_root)
    auth: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_pairs, repr=False)
    acl: Literal["creator", "open"] = attrs.field(default="creator", validator=_is_acl)
    options: dict[str, Any] = attrs.field(factory=dict, repr=False)

    def destination_path(self, destination: str, *parts: str) -> str:
        """The path of a destination's node, or of one below it."""
        return "/".join((self.root, "destinations", destination, *parts))

    @property
    def farewell(self) -> float:
        """Seconds that ZooKeeper has for its last answers when a session is closed."""
        return min(self.session_timeout / 4, 5.0)


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
    version again.
    """

    path: str
    version: int
    epoch: int
    turn: str = ""


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
    """A connection to ZooKeeper, made again for as long as it is open; calls come from any thread.

    Args:
        config: how to reach it.
        changed: called with "CONNECTED", "SUSPENDED" or "LOST", on a thread of kazoo's that must not be held up.

    Calls raise UnansweredError when ZooKeeper does not answer within the session's time-out, and CoordinationError for
    whatever else it says, or kazoo raises.
    """

    def __init__(self, config: ZooKeeper, changed: Callable[[str], None] = lambda state: None) -> None:
        self.config = config
        self._changed = changed
        self._client: Any = None
        self._negotiated = 0.0
        self._lock = threading.Lock()
        self._patience = math.inf  # seconds that a call waits at most, where that is less than the session's time-out
        self._problem = ""  # why there was no contact the last time
        self._lost_at: float | None = None  # when it was first seen that there is no contact
        self._logins = 0  # in a row that were in vain
        self._login_at = 0.0  # not before

    # -- life ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """
        Raises:
            ConfigError: ZooKeeper cannot be used as configured.
        """
        self._make()

    def open(self) -> None:
        """Begin to connect; does not wait until it is."""
        with self._lock:
            if self._client is None:
                self._patience = math.inf
                self._client = self._launch()

    def hurry(self) -> None:
        """The session is to be closed: a call waits for ``farewell`` seconds, and none any more once one has waited in vain."""
        self._patience = min(self._patience, self.config.farewell)

    def close(self) -> None:
        """End the session: ephemeral nodes are gone when this returns, where ZooKeeper answers within ``farewell`` seconds."""
        with self._lock:
            client, self._client = self._client, None
        if client is None:
            return
        client.remove_listener(self._listen)
        ending = OwnThread(target=_end, name="canal-zookeeper-end", args=(client,))
        ending.start()
        ending.join(min(self.config.farewell, self._patience))
        if ending.is_alive():
            with contextlib.suppress(Exception):  # it has none any more
                client._connection._socket.shutdown(socket.SHUT_RDWR)
            ending.join(_SLICE)  # else it ends when the attempt to connect does

    def revive(self) -> None:
        """Begin anew where kazoo cannot go on: it has ended its work, as it does when credentials are refused, or there was no
        contact for longer than a session lives. A ZooKeeper that has lost its data refuses all who have seen more of it."""
        with self._lock:
            client, now = self._client, time.monotonic()
            if client is None or client.connected:
                self._lost_at = None
                return
            self._lost_at = self._lost_at or now
            if now < self._login_at or _is_alive(client) and now < self._lost_at + self.config.session_timeout:
                return
            client.remove_listener(self._listen)
            self._listen("LOST")  # before the new one can connect
            self._client = self._launch()
            self._login_at = now + min(2.0**self._logins, _LONGEST)
            self._logins = min(self._logins + 1, 10)
        OwnThread(target=_end, name="canal-zookeeper-end", args=(client,)).start()

    @property
    def has_ended(self) -> bool:
        """Whether kazoo connects no more, until ``revive``."""
        client = self._client
        return client is not None and not _is_alive(client)

    def _launch(self) -> Any:
        client = self._make()
        self._time(client._connection)
        client.add_listener(self._listen)
        self._lost_at = None
        client.start_async()
        return client

    def _make(self) -> Any:
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException
        from kazoo.retry import KazooRetry
        from kazoo.security import CREATOR_ALL_ACL

        config = self.config
        logger = logging.getLogger("canal.ha.kazoo")
        logger.addFilter(_without_secrets)
        logger.addFilter(_is_worth_it)
        arguments: dict[str, Any] = {
            "hosts": config.hosts,
            "timeout": config.session_timeout,
            "auth_data": list(config.auth) or None,
            "connection_retry": KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=2.0, ignore_expire=True),
            "default_acl": CREATOR_ALL_ACL if self._is_creators else None,
            "logger": logger,
        }
        try:
            return KazooClient(**{**arguments, **config.options})
        except (TypeError, ValueError, KazooException) as error:
            raise ConfigError(f"ZooKeeper cannot be used as configured: {error}") from error

    @property
    def _is_creators(self) -> bool:
        return bool(self.config.auth) and self.config.acl == "creator"

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
    def problem(self) -> str:
        """Why there was no contact the last time."""
        return self._problem or "no answer"

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
            try:
                milliseconds, rest = connect(*arguments)
            except Exception as error:
                self._problem = f"{type(error).__name__} {error}".rstrip()
                raise
            self._negotiated = milliseconds * 1.5 / 1000
            return milliseconds, rest

        def hurrying(timeout: float, *arguments: Any, **options: Any) -> Any:
            return invoke(min(timeout, max(self.config.session_timeout / 3, 1.0)), *arguments, **options)

        connection._connect, connection._invoke = noting, hurrying

    def _listen(self, state: str) -> None:
        if state == "CONNECTED":
            self._lost_at = None
        self._changed(str(state))

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

        if not self._is_creators:
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

        results = self._wait(self._begin(fill, "write", paths[0]), "write", paths[0])
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
            self._logins = 0
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


def _is_alive(client: Any) -> bool:
    """Whether kazoo's thread, which connects again and again, has not ended."""
    routine = client._connection._connection_routine
    return routine is not None and bool(routine.is_alive())


def _end(client: Any) -> None:
    try:
        client.stop()
        client.close()
    except Exception as error:  # it has not ended in time, say: it is used no more
        log.debug("the connection to ZooKeeper did not end in order: %r", error)


def _is_worth_it(record: logging.LogRecord) -> bool:
    """Errors only, unless somebody has set the level of that logger: each attempt, request and answer is a line otherwise."""
    return record.levelno >= logging.ERROR or logging.getLogger(record.name).level != logging.NOTSET


def _without_secrets(record: logging.LogRecord) -> bool:
    """What kazoo logs of what it sends has credentials in it: of such a message the name is enough."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            type(one).__name__ if type(one).__name__ in ("Auth", "Connect", "SASL") or isinstance(one, bytes) else one
            for one in record.args
        )
    return True


def connected(config: ZooKeeper, destination: str) -> Session:
    """A session that has contact.

    Raises:
        CoordinationError: there is none within the session's time-out.
    """
    session = Session(config)
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
