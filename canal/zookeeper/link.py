"""A connection to ZooKeeper that sessions of a process share. It reconnects until the last session is closed.

It deletes the ephemeral nodes of closed sessions, and reads or writes no other node.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import attrs

from canal._util.threads import OwnThread
from canal.errors import ConfigError
from canal.zookeeper.config import ZooKeeper

log = logging.getLogger("canal.ha")

_SLICE: Final = 0.25  # seconds after which a wait for an answer looks whether it is to end sooner
_LONGEST: Final = 60.0  # seconds between two attempts to log in again


class User(Protocol):
    """A session over a connection."""

    #: A node that no other session of the connection may write; "" if none.
    claim: str
    #: Ephemeral nodes that the session created.
    ephemerals: set[str]

    def heard(self, state: str) -> None:
        """Handle "CONNECTED", "SUSPENDED" or "LOST" without blocking: kazoo's thread calls this."""


class EnsembleLink:
    """Owns a kazoo client, and replaces it when it cannot reconnect."""

    def __init__(self, config: ZooKeeper) -> None:
        self.config = config
        self.client: Any = None
        self.problem = ""  # the last error of a connect
        self.negotiated = 0.0
        self.users: list[User] = []
        self.logins = 0  # consecutive failures
        self._login_at = 0.0  # earliest time of the next attempt
        self._lost_at: float | None = None  # when the loss of contact was noticed
        self._lock = threading.Lock()
        self._left: set[str] = set()  # ephemeral nodes of closed sessions
        self._sweeper: OwnThread | None = None

    # -- sessions -------------------------------------------------------------------------------------------------

    def suits(self, config: ZooKeeper, claim: str) -> bool:
        """Return whether a session with this configuration and claim may join."""
        own = attrs.evolve(self.config, root=config.root, takeover_delay=config.takeover_delay)
        return own == config and not (claim and any(user.claim == claim for user in self.users))

    def open(self) -> None:
        """Start to connect, without waiting for contact."""
        with self._lock:
            if self.client is None:
                self.client = self._launch()

    def leave_behind(self, paths: Iterable[str], patience: float) -> None:
        """Delete ephemeral nodes of a closed session, now or after a reconnect."""
        with self._lock:
            self._left.update(paths)
            sweeper = self._sweeper
            if self._left and sweeper is None:
                sweeper = self._sweeper = OwnThread(target=self._sweep, name="canal-zookeeper-sweep")
                sweeper.start()
        if sweeper is not None and self.is_connected:
            sweeper.join(patience)

    def _sweep(self) -> None:
        from kazoo.exceptions import KazooException, NoNodeError

        while True:
            with self._lock:
                client = self.client
                if client is None or not self._left:  # the end of the session deletes nodes too
                    self._sweeper = None
                    return
                path = next(iter(self._left), "")
                is_used = any(path in user.ephemerals for user in self.users)
            try:
                if not is_used and (stat := client.exists(path)) is not None and stat.ephemeralOwner == client.client_id[0]:
                    client.delete(path, stat.version)
            except NoNodeError:
                pass
            except (KazooException, OSError, client.handler.timeout_exception):
                time.sleep(_SLICE)
                continue
            with self._lock:
                self._left.discard(path)

    # -- life ------------------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        client = self.client
        return client is not None and bool(client.connected)

    def close(self, patience: float) -> None:
        """End the session. If ZooKeeper answers within ``patience`` seconds, its ephemeral nodes no longer exist."""
        with self._lock:
            client, self.client = self.client, None
        if client is None:
            return
        client.remove_listener(self._listen)
        ending = OwnThread(target=_end, name="canal-zookeeper-end", args=(client,))
        ending.start()
        ending.join(patience)
        if ending.is_alive():
            with contextlib.suppress(Exception):  # the socket may be closed
                client._connection._socket.shutdown(socket.SHUT_RDWR)
            ending.join(_SLICE)  # an attempt to connect may last longer

    def revive(self) -> None:
        """Replace the kazoo client if it stopped, or if contact is lost for longer than the session's time-out.

        kazoo stops when credentials are refused. A ZooKeeper without its data refuses clients that saw later transactions.
        """
        client = self.client
        if client is None or client.connected:
            self._lost_at = None
            return
        with self._lock:
            client, now = self.client, time.monotonic()
            if client is None or client.connected:
                self._lost_at = None
                return
            self._lost_at = self._lost_at or now
            if now < self._login_at or is_alive(client) and now < self._lost_at + self.config.session_timeout:
                return
            client.remove_listener(self._listen)
            self._tell("LOST")  # before the new client connects
            self.client = self._launch()
            self._login_at = now + min(2.0**self.logins, _LONGEST)
            self.logins = min(self.logins + 1, 10)
        OwnThread(target=_end, name="canal-zookeeper-end", args=(client,)).start()

    def _launch(self) -> Any:
        client = self.make()
        self._time(client._connection)
        client.add_listener(self._listen)
        self._lost_at = None
        client.start_async()
        return client

    def make(self) -> Any:
        """Create a client that is not started."""
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
            "default_acl": CREATOR_ALL_ACL if config.is_creators else None,
            "logger": logger,
        }
        try:
            return KazooClient(**{**arguments, **config.options})
        except (TypeError, ValueError, KazooException) as error:
            raise ConfigError(f"ZooKeeper cannot be used as configured: {error}") from error

    def _time(self, connection: Any) -> None:
        """Record the session time-out that the server grants, and shorten the wait for a login.

        kazoo keeps two thirds of the granted time-out. It waits a whole session for a server that accepted the connection, but
        a starting server leaves some logins unanswered.
        """
        connect, invoke = connection._connect, connection._invoke

        def noting(*arguments: Any) -> Any:
            try:
                milliseconds, rest = connect(*arguments)
            except Exception as error:
                self.problem = f"{type(error).__name__} {error}".rstrip()
                raise
            self.negotiated = milliseconds * 1.5 / 1000
            return milliseconds, rest

        def hurrying(timeout: float, *arguments: Any, **options: Any) -> Any:
            return invoke(min(timeout, max(self.config.session_timeout / 3, 1.0)), *arguments, **options)

        connection._connect, connection._invoke = noting, hurrying

    def _listen(self, state: str) -> None:
        if state == "CONNECTED":
            self._lost_at = None
        self._tell(str(state))

    def _tell(self, state: str) -> None:
        if state == "LOST":
            self._left.clear()
        for user in list(self.users):
            user.heard(state)


#: Connections that sessions share.
_shared: list[EnsembleLink] = []
_lock = threading.Lock()


def join(user: User, config: ZooKeeper, shared: bool) -> EnsembleLink:
    """Add a session to a shared connection without the same claim, or to a new connection."""
    with _lock:
        link = next((one for one in _shared if shared and one.suits(config, user.claim)), None)
        if link is None:
            link = EnsembleLink(config)
            if shared:
                _shared.append(link)
        link.users.append(user)
        return link


def leave(user: User, link: EnsembleLink, patience: Callable[[], float]) -> None:
    """Remove a closed session. Close the connection after the last session."""
    with _lock:
        link.users.remove(user)
        is_last = not link.users
        if is_last and link in _shared:
            _shared.remove(link)
    if is_last:
        link.close(patience())
    else:
        link.leave_behind(user.ephemerals, patience())


def _renew() -> None:
    """Forget the connections of the parent process in a fork."""
    global _lock
    _lock = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_renew)


def is_alive(client: Any) -> bool:
    """Return whether kazoo still tries to connect."""
    routine = client._connection._connection_routine
    return routine is not None and bool(routine.is_alive())


def _end(client: Any) -> None:
    try:
        client.stop()
        client.close()
    except Exception as error:  # such as a time-out; the client is not used again
        log.debug("the connection to ZooKeeper did not end in order: %r", error)


def _is_worth_it(record: logging.LogRecord) -> bool:
    """Keep errors only, unless the logger has a level: kazoo logs each attempt, request and answer."""
    return record.levelno >= logging.ERROR or logging.getLogger(record.name).level != logging.NOTSET


def _without_secrets(record: logging.LogRecord) -> bool:
    """Replace requests that contain credentials by their names."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            type(one).__name__ if type(one).__name__ in ("Auth", "Connect", "SASL") or isinstance(one, bytes) else one
            for one in record.args
        )
    return True
