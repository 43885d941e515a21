"""Log position managers in canal's ZooKeeper node ``<root>/destinations/<destination>/parse``.

Never decides which process may write: the caller ensures a single writer, for example an Instance with ``ha``.

The node has canal's JSON, so that canal can resume from it, and our own text with more detail. When canal writes the node, our
text is gone and canal's position is used.
"""

from __future__ import annotations

import json
import threading
from typing import Any, Final

from canal._util.threads import OwnThread
from canal.errors import ConfigError, CoordinationError, CursorError
from canal.parse.log_positions import GivePosition
from canal.position import Position
from canal.zookeeper.session import Create, NodeExists, NodeMissing, Session, Set, ZooKeeper, connected

_TYPE: Final = "com.alibaba.otter.canal.protocol.position.LogPosition"
_OWN: Final = "ourPosition"


class ZooKeeperLogPositionManager:
    """Writes each position before ``persist`` returns: one round trip per transaction.

    Args:
        zookeeper: the connection options, or an open session.
        address: host and port of the source, by which canal recognises the position.
    """

    def __init__(self, zookeeper: ZooKeeper | Session, address: tuple[str, int] = ("", 0)) -> None:
        self._given = zookeeper if isinstance(zookeeper, Session) else None
        self._config = zookeeper.config if isinstance(zookeeper, Session) else zookeeper
        self._address = address
        self._session: Session | None = None
        self._path = ""
        self._give: GivePosition | None = None

    def start(self, destination: str) -> None:
        self._path = self._config.destination_path(destination, "parse")
        self._give = None
        self._session = session = self._given or connected(self._config, destination)
        try:
            session.make(self._path.rpartition("/")[0])
        except BaseException:
            self._release()
            raise

    def stop(self) -> None:
        self._release()

    def latest(self) -> Position | None:
        if self._give is not None:
            return self._give()
        if self._session is None:
            return None
        try:
            found = self._session.get(self._path)
            return _read(found.data) if found is not None and found.data else None
        except (CoordinationError, CursorError) as error:
            raise CursorError(
                f"cannot read {self._path}: {error.message}", remedy="Correct it, or delete it to start over."
            ) from error

    def persist(self, give: GivePosition) -> None:
        self._give = give
        self._write(give)

    def _write(self, give: GivePosition) -> None:
        session, position = self._session, give()
        if session is None:
            raise CursorError(f"cannot write {self._path or 'the position node'} after stop")
        document: dict[str, Any] = {"@type": _TYPE, **position.to_canal(*self._address), _OWN: position.to_text()}
        data = json.dumps(document, separators=(",", ":")).encode()
        try:
            try:
                session.write([Set(self._path, data)])
            except NodeMissing:
                session.write([Create(self._path, data)])
        except (CoordinationError, NodeExists, NodeMissing) as error:
            raise CursorError(f"cannot write {self._path}: {error}", remedy="Check that ZooKeeper is reachable.") from error

    def _release(self) -> None:
        session, self._session = self._session, None
        if session is not None and session is not self._given:
            session.close()


class MixedLogPositionManager(ZooKeeperLogPositionManager):
    """Keeps the position in memory. A thread writes the newest to ZooKeeper as soon as the previous write is done.

    After a crash, entries of about one round trip are delivered again. The next ``persist`` raises the error of a failed write,
    and the write is retried.
    """

    _interval = 0.0

    def start(self, destination: str) -> None:
        super().start(destination)
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._written: GivePosition | None = None
        self._error: CursorError | None = None
        self._writer = OwnThread(target=self._run, name=f"canal-{destination}-positions")
        self._writer.start()

    def stop(self) -> None:
        if self._session is None:
            return
        self._stopping.set()
        self._wake.set()
        self._writer.join()
        try:
            if self._give is not None and self._give is not self._written:
                self._write(self._give)
        finally:
            super().stop()

    def persist(self, give: GivePosition) -> None:
        self._give = give
        self._wake.set()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        while True:
            self._wake.wait()
            if self._stopping.is_set():
                return
            self._wake.clear()
            give = self._give
            if give is not None and give is not self._written:
                try:
                    self._write(give)
                    self._written = give
                except CursorError as error:
                    self._error = error
                    self._wake.set()
            if self._stopping.wait(max(self._interval, 1.0 if self._error is not None else 0.0)):
                return


class PeriodMixedLogPositionManager(MixedLogPositionManager):
    """Keeps the position in memory. A thread writes changes every ``interval`` seconds; see ``MixedLogPositionManager``."""

    def __init__(self, zookeeper: ZooKeeper | Session, address: tuple[str, int] = ("", 0), interval: float = 1.0) -> None:
        if not 0.0 < interval < threading.TIMEOUT_MAX:
            raise ConfigError(f"interval must be a number of seconds > 0, not {interval!r}")
        super().__init__(zookeeper, address)
        self._interval = interval


def _read(data: bytes) -> Position:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CursorError("it is not JSON") from error
    if not isinstance(document, dict):
        raise CursorError("it is not a JSON object")
    theirs, own = Position.from_canal(document), document.get(_OWN)
    return Position.from_text(own) if isinstance(own, str) else theirs
