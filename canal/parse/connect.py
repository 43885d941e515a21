"""The connection of one parser run to the source, or to the standby after a failover.

Never reads events. Connecting and waiting end at once when the run is stopped or the source is switched.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Final

import attrs

from canal._util.threads import OwnThread
from canal.alarm import AlarmDesk, AlarmKind
from canal.errors import CanalError, ConnectionLostError
from canal.filter import TableFilter
from canal.gtid import GtidSet, parse_gtid_set
from canal.parse import config_check
from canal.parse.source.protocol import Connection, FullConnection, Source, SourceInfo, complete, source_info
from canal.parse.source.server import draw_server_id
from canal.position import Position

log = logging.getLogger("canal.parse")

_LOOK: Final = 60.0  # seconds between two looks at a standby


class Link:
    """The active source and the connection to it.

    Args:
        sources: the source and the standby, if any, each with a start position.

    ``changed`` (under ``lock``) is notified when the run stops or has ended, and when the source is switched.
    """

    def __init__(
        self, sources: list[tuple[Source, str | Position]], destination: str, alarms: AlarmDesk, tables: TableFilter | None = None
    ) -> None:
        self.sources = sources
        self._infos = [source_info(source) for source, _ in sources]
        self.active = 0
        self.has_switched = False
        self.connection: FullConnection | None = None
        #: The source by which each server identity was reached.
        self.reached: dict[str, Source] = {}
        self._stopping = False
        self.ended = False
        #: Used if the configuration has none. Unique per run: two runs may read one source at the same time.
        self._server_id = draw_server_id()
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self._destination = destination
        self._alarms = alarms
        self._tables = tables or TableFilter()
        #: When the standby was looked at last; None: never in this run.
        self.looked_at: float | None = None
        self._own: dict[str, GtidSet] = {}  # by the identity of a server

    def stop(self) -> None:
        with self.lock:
            self._stopping = True
            self.changed.notify_all()
        connection = self.connection
        if connection is not None:
            connection.close()

    def is_stopping(self) -> bool:
        """Return whether the run should end."""
        return self._stopping

    @property
    def source(self) -> Source:
        """The active source."""
        return self.sources[self.active][0]

    @property
    def source_info(self) -> SourceInfo:
        """The active source's ``SourceInfo``."""
        return self._infos[self.active]

    @property
    def start(self) -> str | Position:
        """The active source's configured start."""
        return self.sources[self.active][1]

    @property
    def other_source(self) -> Source | None:
        """The source to switch to; None without a standby."""
        return self.sources[1 - self.active][0] if len(self.sources) > 1 else None

    def open_probe(self, timeout: float) -> tuple[Source, Callable[[], Any]]:
        """Return the active source, and a function that opens a session for queries with the limit ``timeout`` for an answer.

        The first call also checks the standby, and raises an alarm if a switch to it would fail. Later calls repeat the
        check every minute.
        """
        now, standby = time.monotonic(), self.other_source
        if standby is not None and (self.looked_at is None or now >= self.looked_at + _LOOK):
            self._look_at(standby)
            self.looked_at = now
        source = self.source
        told = source_info(source)
        return source, lambda: told.open_probe(timeout) or _Reconnect(source)

    def own(self, identity: str, position: Position) -> Position:
        """Count as done what only this server has executed and has purged: no position of another server has it."""
        own = self._own.get(identity)
        if own is None or not position.gtid or position.source == identity:
            return position
        return attrs.evolve(position, gtid=str(position.gtid_set | own))

    def _compare(self, standby: FullConnection) -> None:
        """Note what the standby has purged though the source, which is read later, has never executed it."""
        own = purged_alone(standby, self.source)
        if own is not None:
            self._own[standby.identity] = own

    def _look_at(self, standby: Source) -> None:
        try:
            with closing(complete(standby.connect())) as connection:
                if self.looked_at is None:
                    config_check.warn_unlogged(connection, f"the standby {name_of(standby)}", self._tables, self._alarms)
                self._compare(connection)
        except CanalError as error:  # a ConfigError too
            self._alarms.tell(AlarmKind.FAILOVER, f"cannot use the standby {name_of(standby)}: {error}", "standby")

    def switch(self, reason: str = "by hand") -> bool:
        """Switch to the other source. Return False and raise an alarm if it does not answer or there is no standby.

        May be called from any thread. Entries that were received from the old source are delivered first.
        """
        other, old = self.other_source, self.source
        if other is None:
            self._alarms.tell(AlarmKind.FAILOVER, f"there is no standby to switch to ({reason})", "no standby")
            return False
        try:
            with closing(complete(other.connect())) as standby, suppress(CanalError):  # if the old source does not answer
                self._compare(standby)
        except CanalError as error:  # including ConfigError, such as missing TLS files
            self._alarms.tell(AlarmKind.FAILOVER, f"cannot switch to {name_of(other)} ({reason}): {error}", "no switch")
            return False
        with self.lock:
            if self._stopping or self.ended or self.other_source is not other:
                return False
            self.active = 1 - self.active
            self.has_switched = True
            connection = self.connection
            self.changed.notify_all()
        if connection is not None:
            connection.close()
        self._alarms.announce(AlarmKind.FAILOVER, f"switching from {name_of(old)} to {name_of(other)}: {reason}")
        return True

    def wait(self, seconds: float, active: int) -> None:
        with self.lock:
            self.changed.wait_for(lambda: self._stopping or self.active != active, seconds)

    def choose(self, connection: FullConnection, position: Position | None) -> FullConnection | None:
        """Return a connection to the source or standby whose log the stored cursor belongs to.

        After a failover that is the standby, also for a later run or another process. The old source may be back, but lag or
        have no replicas.
        """
        other, source = self.other_source, self.source
        if position is None or other is None or position.source in ("", connection.identity):
            return connection
        active, second = self.active, None
        try:
            second = self.connect(other)
        except CanalError as error:  # a ConfigError too
            log.warning("[%s] %s may have the cursor's log but does not answer: %s", self._destination, name_of(other), error)
        found = second is not None and second.identity == position.source
        kept, dropped = (second, connection) if found else (connection, second)
        if dropped is not None:
            dropped.close()
        with self.lock:
            self.connection = kept
            if self._stopping:
                return None
            if self.active != active:
                raise ConnectionLostError(f"switched away from {name_of(source)}")
            if found:
                self.active, self.has_switched = 1 - active, True
        if found:
            why = f"the cursor belongs to this server's log, not to that of {name_of(source)}"
            self._alarms.announce(AlarmKind.FAILOVER, f"continuing at {name_of(other)}: {why}")
        return kept

    def connect(self, source: Source | None = None) -> FullConnection | None:
        """Connect on another thread. Return None if the parser is stopped first: a DNS lookup cannot be interrupted."""
        made: list[FullConnection | BaseException] = []
        with self.lock:
            source, active = source or self.source, self.active
        begin = source_info(source).new_connection
        fresh = None if begin is None else begin(self._server_id)

        def log_in() -> None:
            result: FullConnection | BaseException
            try:
                if fresh is None:
                    result = complete(source.connect(self._server_id))
                else:
                    fresh.open()
                    result = complete(fresh)
            except BaseException as error:
                result = error
            with self.lock:
                made.append(result)
                self.changed.notify_all()
                abandoned = self._stopping or self.active != active
            if abandoned and not isinstance(result, BaseException):
                result.close()

        thread = OwnThread(target=log_in, name=f"canal-{self._destination}-connect")
        thread.start()
        with self.lock:
            self.changed.wait_for(lambda: made or self._stopping or self.active != active)
            abandoned = self._stopping or self.active != active
            if not abandoned and not isinstance(made[0], BaseException):
                self.connection = made[0]  # from now on stop() and switch() close the connection
        if abandoned and fresh is not None:
            fresh.close()
        thread.join(1.0)  # it ends now, or waits for DNS, which cannot be interrupted
        if abandoned:
            if fresh is None and made and not isinstance(made[0], BaseException):
                made[0].close()
            if self._stopping:
                return None
            if self.active != active:
                raise ConnectionLostError(f"switched away from {name_of(source)}")
        if isinstance(made[0], BaseException):
            raise made[0]
        return made[0]

    def disconnect(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class _Reconnect:
    """The heartbeat probe of a source without queries: connect."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def rows(self, sql: str, *, doing: str) -> None:
        self._source.connect().close()

    def close(self) -> None:
        pass


def purged_alone(standby: Connection, source: Source) -> GtidSet | None:
    """Return what the standby has purged and the source has never executed, or None without GTIDs of the same kind.

    The source is read later, so a transaction that still has to reach it is not counted.
    """
    if not standby.has_gtids:
        return None
    purged = parse_gtid_set(standby.resolve("earliest").gtid, standby.flavor)
    with closing(source.connect()) as connection:
        if connection.flavor != standby.flavor or not connection.has_gtids:
            return None
        executed = parse_gtid_set(connection.resolve("latest").gtid, connection.flavor)
    return purged - executed


def name_of(source: Source) -> str:
    """Return the source's name for messages."""
    return source_info(source).address or str(source)
