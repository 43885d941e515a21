"""What the tests of turns share: several instances of one destination on a fake binlog, a real ZooKeeper between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import attrs

import canal
from canal.ha import Role
from canal.ha.machine import Event
from canal.testing import FakeBinlog
from canal.testing.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from canal.zookeeper.session import Session, ZooKeeper
from tests.support.waiting import until

#: For an instance that is to let go, or not to take over: it leaves that to another, however long it takes, until
#: ``end_wait``. Else it competes again after some tenths of a second.
PATIENT: Final[dict[str, Any]] = {"takeover_delay": 60.0}


class Group:
    """Instances on one log and one root. A session outlives a machine that stalls for many seconds."""

    def __init__(self, server: ZooKeeperServer | ZooKeeperEnsemble, root: str, stack: ExitStack) -> None:
        self.config = ZooKeeper(hosts=server.hosts, root=root, session_timeout=30.0, takeover_delay=0.3)
        self.log = FakeBinlog()
        self.table = self.log.table("shop", "orders", "id INT PRIMARY KEY")
        self.alarms: list[str] = []
        self._stack = stack
        self._written = 0

    def instance(self, *, subscribe: bool = True, **options: Any) -> canal.Instance:
        config = canal.InstanceConfig(
            destination="d",
            source=options.pop("source", self.log),
            ha=attrs.evolve(self.config, **options.pop("zookeeper", {})),
            alarm=lambda destination, text: self.alarms.append(text),
            **options,
        )
        instance = canal.Instance(config)
        self._stack.callback(instance.stop)
        instance.start()
        if subscribe:
            instance.subscribe()
        return instance

    def write(self, count: int = 1) -> list[int]:
        ids = list(range(self._written, self._written + count))
        for one in ids:
            self.table.insert({"id": one})
        self._written += count
        return ids

    def session(self) -> Session:
        session = Session(self.config)
        session.open()
        self._stack.callback(session.close)
        assert session.wait_connected(30)
        return session

    def path(self, *parts: str) -> str:
        return self.config.destination_path("d", *parts)


def ids_of(message: canal.Message) -> list[int]:
    return [row.after["id"] for entry in message.entries for row in entry.rows if row.after is not None]


def read(instance: canal.Instance, count: int, timeout: float = 60.0) -> canal.Message:
    """The next message, which brings so many rows; one that came before all of them were there is rolled back."""
    deadline = time.monotonic() + timeout
    while True:
        message = instance.get_without_ack(1000, timeout=timeout, linger=0.2)
        if not message or len(ids_of(message)) >= count or time.monotonic() > deadline:
            break
        instance.rollback(message.id)
    assert len(ids_of(message)) == count, (message.entries, instance.role)
    return message


def end_wait(instance: canal.Instance, then: Role) -> None:
    """Its rest is over, or the time that it gives the owner to come back, until it has that role."""

    def has_it() -> bool:
        if instance.role in (Role.RESTING, Role.WAITING):
            instance._ha._events.put(Event.DUE)  # type: ignore[union-attr]
        return instance.role is then

    until(has_it)


@contextmanager
def hasty(instance: canal.Instance) -> Iterator[None]:
    """An ack without contact is refused at once: it does not wait for the end of the session."""
    ha = instance._ha
    assert ha is not None
    config = ha.config
    ha.config = attrs.evolve(config, session_timeout=0.1)
    try:
        yield
    finally:
        ha.config = config


def close_session(instance: canal.Instance) -> None:
    end_session(instance._ha.session)  # type: ignore[union-attr]


def end_session(session: Session) -> None:
    """Another client takes the session over and ends it; until then its owner does not connect again and take it back."""
    from kazoo.client import KazooClient

    client = session._client
    connect, ended = client._connection._connect, threading.Event()

    def connect_later(*address: Any) -> Any:
        assert ended.wait(60)
        return connect(*address)

    client._connection._connect = connect_later
    other = KazooClient(hosts=session.config.hosts, client_id=client.client_id, timeout=60.0)
    try:
        other.start(timeout=60)
        other.stop()
        other.close()
    finally:
        client._connection._connect = connect
        ended.set()


def data_of(session: Session, path: str) -> bytes | None:
    value = session.get(path)
    return None if value is None else value.data
