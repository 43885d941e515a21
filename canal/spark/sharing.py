"""An Instance that a driver shares with its streaming queries: each reads as a client of its own, over loopback.

Never gives one client's entries to two readers, and never lets anybody in who has not read the file of this process's user.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from canal.config import InstanceConfig
from canal.errors import CanalError, ConfigError, NotActiveError, StateError
from canal.ha import Role
from canal.instance.instance import CLIENT_ID, Instance
from canal.instance.sharing.addresses import publish, withdraw
from canal.instance.sharing.wire import Channel, EntryWriter, encode_error, encode_source, encode_table
from canal.parse.parser import parser_info
from canal.position import Position
from canal.zookeeper.session import Fence

log = logging.getLogger("canal.spark")

_REQUEST: Final = 1 << 20  # bytes of one request at most
_shares: dict[str, Share] = {}
_served: dict[tuple[int, int], _Reader] = {}  # who reads as which client of which Instance
_lock = threading.RLock()
_numbers: Final = itertools.count(1 << 32)  # of clients that nobody named


def share(instance: Instance, name: str) -> Share:
    """Let streaming queries of this driver read a started Instance: ``.option("instance", name)``.

    Each query is a client of its own, in memory only, that is forgotten with its query: Spark's checkpoint keeps its position.
    With the option ``clientId`` it is a client as any other, whose cursor is kept. The Instance stays the caller's, who may
    use other clients of it meanwhile, and who stops it, after the queries.

    Ends by ``unshare(name)``, by leaving ``with share(…):``, or with the process.

    Args:
        name: any text; one Instance of this user's on this machine can have it.

    Raises:
        StateError: the name is taken, by this or another process; or this is a session of Spark Connect.
        ConfigError: the Instance drops or changes what a query would get again unchanged when it is restarted.
    """
    _check_classic()
    _check_config(instance.config)
    with _lock:
        if name in _shares:
            raise StateError(f"an Instance is shared as {name!r} already", remedy="Call canal.spark.unshare first.")
        _shares[name] = made = Share(instance, name)
    return made


def unshare(name: str) -> None:
    """Share it no more: its queries fail. Does nothing for a name that is not shared by this process."""
    with _lock:
        found = _shares.get(name)
    if found is not None:
        found.close()


def _check_classic() -> None:
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise StateError(
            "an Instance cannot be shared with Spark Connect: queries run in the server, not in this process",
            remedy="Use a classic session, or the options host, port, user and password.",
        )


def _check_config(config: InstanceConfig | None) -> None:
    """Refuse what a query that reads a part of the log again, by itself, would not get in the same way."""
    if config is None:
        return  # composed of parts of the user's own
    changes = [
        name
        for name in ("row_filter", "field_filter", "black_field_filter", "hooks", "shadow_tables", "sequences")
        if getattr(config, name)
    ]
    if config.on_lost != "fail":
        changes.append(f"on_lost={config.on_lost}")
    if changes:
        raise ConfigError(
            f"an Instance with {', '.join(changes)} cannot be shared: what a query reads again would not be what it got",
            destination=config.destination,
            remedy="Filter in Spark, and share an Instance without.",
        )


class Share:
    """An Instance under a name. Leaving it as a context manager ends the sharing, and does not stop the Instance."""

    def __init__(self, instance: Instance, name: str) -> None:
        self.instance = instance
        self.name = name
        self.key = secrets.token_bytes(32)
        self._listener = Listener(("127.0.0.1", 0), "AF_INET", backlog=64)
        self._process = os.getpid()
        self._closing = threading.Event()
        self._readers: set[_Reader] = set()
        host, port = self._listener.address
        document = {"v": 1, "pid": os.getpid(), "name": name, "host": host, "port": port, "key": self.key.hex()}
        try:
            self._file: BinaryIO = publish(name, document)
        except BaseException:
            self._listener.close()
            raise
        self._thread = threading.Thread(target=self._accept, name=f"canal-{instance.destination}-share", daemon=True)
        self._thread.start()
        log.info("[%s] shared as %r at %s:%d", instance.destination, name, host, port)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection = self._listener.accept()
            except OSError as error:
                log.warning("[%s] a connection to %r failed: %s", self.instance.destination, self.name, error)
                self._closing.wait(0.1)
                continue
            reader = _Reader(self, connection)
            with _lock:
                self._readers.add(reader)
            reader.start()

    def close(self) -> None:
        """Share it no more. A second call does nothing."""
        with _lock:
            if _shares.get(self.name) is not self or self._closing.is_set():
                return
            self._closing.set()
        withdraw(self.name, self._file)
        with contextlib.suppress(OSError):  # which wakes its thread
            socket.create_connection(self._listener.address, 1).close()
        self._thread.join()
        self._listener.close()
        with _lock:
            readers = list(self._readers)
            del _shares[self.name]
        for reader in readers:
            reader.end()

    def forget(self, reader: _Reader) -> None:
        with _lock:
            self._readers.discard(reader)

    def forked(self) -> None:
        """In a child of the process, which has no part in it: let go of what it has inherited."""
        for reader in self._readers:
            reader.drop()
        self._listener.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Share {self.name!r} of {self.instance!r}>"


class _Reader(threading.Thread):
    """The end in the driver of one connection: a process of a query, which asks for one thing after the other."""

    def __init__(self, share: Share, connection: Connection) -> None:
        super().__init__(name=f"canal-{share.instance.destination}-share-reader", daemon=True)
        self._share = share
        self._instance = share.instance
        self._channel = Channel(connection)
        self._client: int | None = None
        self._is_named = False
        self._writer = EntryWriter()
        self._next_id = 0
        self._told: Position | None = None  # the last cursor that the reader was sent
        self._turn = threading.Lock()
        self._superseded = False
        self._fence: Fence | None = None  # of the turn in which it became a client, with ``ha``
        self._questions: dict[str, Callable[..., tuple[dict[str, Any], bytes]]] = {
            "describe": self._describe,
            "resolve": self._resolve,
            "open": self._open,
            "get": self._get,
        }

    def run(self) -> None:
        channel = self._channel
        try:
            channel.log_in(self._share.key, first=True)
            channel.limit(0)
            while True:
                head, _ = channel.receive(_REQUEST)
                with self._turn:
                    reply = self._answered(head)
                channel.send(*reply)
        except AuthenticationError:
            log.warning("[%s] a process without the key of %r was refused", self._instance.destination, self._share.name)
        except (EOFError, OSError):
            pass  # it has gone
        except Exception:
            log.exception("[%s] a reader of %r failed", self._instance.destination, self._share.name)
        finally:
            self._leave()
            channel.close()
            self._share.forget(self)

    def end(self) -> None:
        self._channel.shut()
        self.join(5.0)

    def drop(self) -> None:
        self._channel.drop()

    def _answered(self, head: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        try:
            if self._superseded:
                raise StateError(
                    f"another query, or a later run of this one, reads as client {self._client} now",
                    destination=self._instance.destination,
                    remedy="Give each query a clientId of its own, or none.",
                )
            return self._questions[head.pop("do")](**head)
        except CanalError as error:
            if isinstance(error, StateError | NotActiveError) and not self._instance.is_running:
                error = self._stopped()
            elif isinstance(error, NotActiveError):
                error = self._standby()
            return {"error": encode_error(error)}, b""
        except (TypeError, KeyError, ValueError) as error:
            return {"error": encode_error(StateError(f"the request is not known here: {error!r}"))}, b""

    # -- what can be asked ---------------------------------------------------------------------------------------------

    def _describe(self, table: list[str] | None) -> tuple[dict[str, Any], bytes]:
        """How to read without the Instance, and what the Instance lets through."""
        config = self._instance.config
        reply: dict[str, Any] = {"source": encode_source(self._source()), "filter": "", "black_filter": ""}
        if config is not None and table is None:
            reply.update(filter=config.filter, black_filter=config.black_filter)
        elif config is not None and table is not None:
            for name, what in ((table[1], "its rows"), ("", "statements about its database, such as DROP DATABASE")):
                if not config.table_filter().accepts(table[0], name):
                    raise ConfigError(
                        f"the Instance that is shared as {self._share.name!r} does not deliver {'.'.join(table)}: its filter "
                        f"keeps out {what}",
                        destination=self._instance.destination,
                        remedy=rf'Let its filter pass "{table[0]}\..*".',
                    )
        return reply, b""

    def _source(self) -> Any:
        return parser_info(self._instance.parser).source  # with a standby, the one that is read at present

    def _resolve(self, start: str | None, table: list[str] | None) -> tuple[dict[str, Any], bytes]:
        """What a connection to the source tells, for who cannot connect to it."""
        source = self._source()
        if source is None:
            raise ConfigError("the Instance has no source that could be asked", destination=self._instance.destination)
        connection = source.connect()
        try:
            found = None if table is None else connection.table_columns(*table)
            position = None if start is None else connection.resolve(Position.from_text(start) if start[0] == "{" else start)
            return {
                "identity": connection.identity,
                "table": None if found is None else encode_table(found),
                "position": None if position is None else position.to_text(),
            }, b""
        finally:
            connection.close()

    def _open(self, client: int | None, filter: str, timeout: float) -> tuple[dict[str, Any], bytes]:
        """Become a client."""
        instance = self._instance
        if self._client is not None:
            raise StateError(f"this connection is client {self._client} already")
        self._check_turn(timeout)
        if client == CLIENT_ID:
            raise ConfigError(
                f"client {CLIENT_ID} is who uses the Instance without naming a client",
                destination=instance.destination,
                remedy="Choose another clientId, or none.",
            )
        self._is_named = client is not None
        if client is None:
            client = next(number for number in _numbers if number not in instance.subscriptions())
        self._fence = self._present_fence()
        self._take_over(client)
        instance.subscribe(client, filter, timeout=timeout, durable=self._is_named)
        instance.rollback(client_id=client)
        self._next_id = instance._client(client).state.next_id
        self._told = instance.position(client)
        self._check_same_turn()
        return {"client": client, "position": self._told.to_text()}, b""

    def _take_over(self, client: int) -> None:
        """Be the one who reads as a client. Who was before gets nothing more."""
        with _lock:
            self._client = client
            key = id(self._instance), client
            other = _served.get(key)
            _served[key] = self
        if other is not None:
            other._superseded = True
            with other._turn:
                pass
            log.warning("[%s] client %d is taken over by another query", self._instance.destination, client)

    def _get(self, ack: int, size: int, timeout: float) -> tuple[dict[str, Any], bytes]:
        """Ack what was given before and get more."""
        instance, client = self._instance, self._client
        if client is None:
            raise StateError("this connection is no client yet")
        if not instance.is_running:
            self._check_turn(0)
        self._check_same_turn()
        instance.ack(ack, client_id=client)
        parser = parser_info(instance.parser)
        reply: dict[str, Any] = {"over": instance.is_exhausted}
        reply["received"], position = parser.received[1], parser.delivered_position  # what is before it comes with the get
        message = instance.get_without_ack(size, timeout, client_id=client)
        self._check_same_turn()
        reply["id"] = message.id
        if message:
            if message.id != self._next_id:
                raise StateError(
                    f"somebody else uses client {client}, which a query reads as: batches {self._next_id} to "
                    f"{message.id - 1} were not given to it",
                    destination=instance.destination,
                    remedy="Give the query a clientId of its own, or none.",
                )
            self._next_id += 1
            return reply, self._writer.write(message.entries)
        self._check_turn(0)
        if position is not None and not self._has_more():
            reply["position"] = position.to_text()
        cursor = instance.position(client)
        if cursor != self._told and not cursor.row:  # what was of no interest has moved it
            self._told = cursor
            reply["cursor"] = cursor.to_text()
        return reply, b""

    def _has_more(self) -> bool:
        """Whether the store has entries that the client has not come to, as where it passes over many of other tables."""
        found = (one.unacked_entries for one in self._instance.status().clients if one.client_id == self._client)
        return bool(next(found, None))

    def _check_turn(self, timeout: float) -> None:
        """Raise unless the Instance delivers here, or has only lost sight of ZooKeeper for the moment."""
        instance = self._instance
        if instance.wait_active(timeout) or (instance.is_running and instance.role is Role.SUSPENDED):
            return
        raise self._standby() if instance.is_running else self._stopped()

    def _present_fence(self) -> Fence | None:
        """What no two turns of this process have in common; None where it has none, or is not active."""
        monitor = self._instance._ha
        return None if monitor is None else monitor.fence

    def _check_same_turn(self) -> None:
        """Raise where the turn has ended, though another one has begun: what others delivered in between would be left out."""
        if self._present_fence() is not self._fence:
            raise self._standby()

    def _stopped(self) -> StateError:
        return StateError(
            "the Instance was stopped, or not started",
            destination=self._instance.destination,
            remedy="Start it before the queries, and stop it after them.",
        )

    def _standby(self) -> NotActiveError:
        instance = self._instance
        return NotActiveError(
            f"this process is {instance.role.value}, or was meanwhile: another one delivers",
            destination=instance.destination,
            remedy="Start the query when it is this process's turn: have what supervise() calls begin with "
            "instance.wait_active().",
        )

    def _leave(self) -> None:
        """What was not acked comes again; a client that nobody named is forgotten, and holds up nobody."""
        client = self._client
        if client is None:
            return
        with _lock:
            key = id(self._instance), client
            if _served.get(key) is not self:
                return
            del _served[key]
            with contextlib.suppress(CanalError):
                if self._is_named:
                    self._instance.rollback(client_id=client)
                else:
                    self._instance.unsubscribe(client)


def _close_all() -> None:
    for found in list(_shares.values()):
        found.close()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    for found in _shares.values():
        found.forked()
    _shares.clear()
    _served.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)

__all__ = ["Share", "share", "unshare"]
