"""The connection of one run of a parser: to its source, or to the standby after a switch.

Never reads an event. To connect and to wait end at once when the run is stopped, or another source is taken.
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
from canal.parse import first_look
from canal.parse.source.protocol import Connection, FullConnection, Source, SourceTeller, complete, teller
from canal.parse.source.server import draw_server_id
from canal.position import Position

log = logging.getLogger("canal.parse")

_LOOK: Final = 60.0  # seconds between two looks at a standby


class Link:
    """Which source is read, and the connection to it.

    Args:
        sources: the source and, where there is one, its standby, each with its start position.

    ``changed``, under ``lock``, is notified of what others wait for: that the run is to stop or has ended, or that
    another source is taken.
    """

    def __init__(
        self, sources: list[tuple[Source, str | Position]], destination: str, alarms: AlarmDesk, tables: TableFilter | None = None
    ) -> None:
        self.sources = sources
        self._tellers = [teller(source) for source, _ in sources]
        self.active = 0
        self.has_switched = False
        self.connection: FullConnection | None = None
        #: Which source a server was reached by.
        self.reached: dict[str, Source] = {}
        self._stopping = False
        self.ended = False
        #: Of this run alone, where the configuration names none: two runs may read one source at the same time.
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
        """Whether the run is to end."""
        return self._stopping

    @property
    def source(self) -> Source:
        """The source that is read at present, or that it tries to reach."""
        return self.sources[self.active][0]

    @property
    def teller(self) -> SourceTeller:
        """What that one tells of itself."""
        return self._tellers[self.active]

    @property
    def start(self) -> str | Position:
        """The start position that is configured for it."""
        return self.sources[self.active][1]

    @property
    def other_source(self) -> Source | None:
        """The one to switch to; None without a standby."""
        return self.sources[1 - self.active][0] if len(self.sources) > 1 else None

    def open_probe(self, timeout: float) -> tuple[Source, Callable[[], Any]]:
        """The source that is read now, and how to open a session for queries whose answers take ``timeout`` s at most.

        The first call also looks at the standby, and raises an alarm if it cannot be switched to. Later calls look at it again
        every minute.
        """
        now, standby = time.monotonic(), self.other_source
        if standby is not None and (self.looked_at is None or now >= self.looked_at + _LOOK):
            self._look_at(standby)
            self.looked_at = now
        source = self.source
        told = teller(source)
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
                    first_look.warn_unlogged(connection, f"the standby {name_of(standby)}", self._tables, self._alarms)
                self._compare(connection)
        except CanalError as error:  # a ConfigError too
            self._alarms.tell(AlarmKind.FAILOVER, f"the standby {name_of(standby)} cannot be used: {error}", "standby")

    def switch(self, reason: str = "by hand") -> bool:
        """Go on at the other source, if it answers; False and an alarm when it does not, or there is none.

        May be called from any thread. What comes of the old source meanwhile is delivered first.
        """
        other, old = self.other_source, self.source
        if other is None:
            self._alarms.tell(AlarmKind.FAILOVER, f"there is no standby to switch to ({reason})", "no standby")
            return False
        try:
            with closing(complete(other.connect())) as standby, suppress(CanalError):  # of a source that does not answer
                self._compare(standby)
        except CanalError as error:  # a ConfigError too: TLS files that are not there
            self._alarms.tell(AlarmKind.FAILOVER, f"no switch to {name_of(other)} ({reason}): {error}", "no switch")
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
        """At the start: a connection with that one of source and standby of which the stored cursor is a position.

        After a switch that is the standby, for a later run and for another process too: the source may be back, and lag
        or be followed by nobody.
        """
        other, source = self.other_source, self.source
        if position is None or other is None or position.source in ("", connection.identity):
            return connection
        active, second = self.active, None
        try:
            second = self.connect(other)
        except CanalError as error:  # a ConfigError too
            log.warning(
                "[%s] %s, which may have the position of the cursor, does not answer: %s",
                self._destination,
                name_of(other),
                error,
            )
        found = second is not None and second.identity == position.source
        kept, dropped = (second, connection) if found else (connection, second)
        if dropped is not None:
            dropped.close()
        with self.lock:
            self.connection = kept
            if self._stopping:
                return None
            if self.active != active:
                raise ConnectionLostError(f"{name_of(source)} is given up")
            if found:
                self.active, self.has_switched = 1 - active, True
        if found:
            why = f"the cursor is a position in its log, not in that of {name_of(source)}"
            self._alarms.announce(AlarmKind.FAILOVER, f"going on at {name_of(other)}: {why}")
        return kept

    def connect(self, source: Source | None = None) -> FullConnection | None:
        """A connection, or None when the parser is stopped first: to look up a name, say, cannot be interrupted."""
        made: list[FullConnection | BaseException] = []
        with self.lock:
            source, active = source or self.source, self.active
        begin = teller(source).new_connection
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
                self.connection = made[0]  # from now on stop() and switch() close it
        if abandoned and fresh is not None:
            fresh.close()
        thread.join(1.0)  # it is at its end, or looks up a name, which nothing interrupts
        if abandoned:
            if fresh is None and made and not isinstance(made[0], BaseException):
                made[0].close()
            if self._stopping:
                return None
            if self.active != active:
                raise ConnectionLostError(f"{name_of(source)} is given up")
        if isinstance(made[0], BaseException):
            raise made[0]
        return made[0]

    def disconnect(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class _Reconnect:
    """The heartbeat of a source that takes no queries: to connect."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def rows(self, sql: str, *, doing: str) -> None:
        self._source.connect().close()

    def close(self) -> None:
        pass


def purged_alone(standby: Connection, source: Source) -> GtidSet | None:
    """Return what the standby has purged and the source has never executed, or None if they have no GTIDs of one kind.

    The source is read later, so a transaction on its way to it is not counted.
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
    """A source in messages."""
    return teller(source).address or str(source)
