"""The parser: one thread that keeps a source connected and drives its events through the decoder into the sink.

Never decodes anything itself. After a lost connection it continues exactly behind what the sink has taken: the whole
transactions, and the rows of a very large one that were delivered in pieces. With a standby it can go on at either of the
two servers.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from datetime import timezone, tzinfo
from typing import Any, Callable, Container, Iterator, Protocol, runtime_checkable

import attrs

from canal.alarm import Alarm, AlarmDesk, AlarmKind, log_alarm
from canal.errors import (
    CanalError,
    ConnectionLostError,
    DecodeError,
    HookError,
    LostReason,
    NotActiveError,
    PositionLostError,
    ServerError,
    SourceError,
    StateError,
    StoreClosedError,
)
from canal.filter import FieldFilter, TableFilter
from canal.gtid import GtidSet, parse_gtid_set
from canal.model import Entry
from canal.parse import ddl
from canal.parse.backoff import Backoff
from canal.parse.cascades import CascadeWatch
from canal.parse.continuity import Continuity, opened
from canal.parse.decoder import BinlogDecoder
from canal.parse.follow import SchemaFollower
from canal.parse.history import MemoryHistory, SchemaHistory
from canal.parse.log_positions import LogPositionManager, MemoryLogPositionManager
from canal.parse.online_ddl import ShadowTables
from canal.parse.progress import Progress
from canal.parse.scan import transaction_start
from canal.parse.source import Connection, Source, dumps_by_offset
from canal.parse.start import Decision, Facts, How, decide
from canal.parse.tables import TableResolver
from canal.parse.tail import changes_schema, digests_of, find_tail, transactions
from canal.parse.xa import read_again
from canal.position import Position, PreparedXa
from canal.sink.protocol import Sink
from canal.status import ParserStatus, State

log = logging.getLogger("canal.parse")

_HEARTBEATS = frozenset((27, 41))


@runtime_checkable
class EventParser(Protocol):
    """Where entries come from. A user's own parser meets this Protocol and is given to ``Instance.compose``.

    It may also have a method ``status(source_timeout) -> canal.ParserStatus`` for ``Instance.status()``.
    """

    def start(
        self, destination: str, sink: Sink, resume: Position | None, finished: Callable[[], None]
    ) -> None:
        """Begin, on a thread of its own, to give entries to ``sink``, from ``resume`` or from its own start position.

        Call ``finished`` once when the thread ends by itself, after ``error`` is set.
        """

    def stop(self) -> None:
        """End the thread. Calls that the sink blocks are ended by stopping the store first."""

    def wait_started(self, timeout: float) -> Position:
        """The position at which the stream begins; waits until it is known. Raises what stopped the parser before that."""

    @property
    def error(self) -> CanalError | None:
        """What stopped the parser, once it has."""

    @property
    def is_finished(self) -> bool:
        """True when it has ended by itself: an error, or the end of a log that is not followed."""


class BinlogParser:
    """The :class:`EventParser` for every source: a live server, binlog files or a fake.

    Args:
        source: where to connect to.
        start: "latest", "earliest" or a :class:`Position`, when there is no cursor to resume from.
        standby: another server of the same replication, to ``switch`` to.
        standby_start: as ``start``, for a first start at the standby.
        log_positions: keeps where parsing stands.
        on_lost, dump_error_threshold, fallback_interval: see :class:`canal.parse.start.Facts`.
        tables, fields: filters, decided once per table map.
        time_zone: zone of TIMESTAMP values.
        json_text: give JSON as text, not as objects.
        backoff: seconds before the first and (at most) before any later attempt to reconnect.
        piece_bytes, piece_entries: a transaction beyond either goes on in pieces.
        alarm: told of lost connections, of what stopped the parser, and of what else an operator should know.
        shadow_tables: deliver the tables of online schema changes too.
        history: keeps the schemas of tables whose names the log does not carry.

    ``oldest`` gives the position before which nobody will resume (None: not known); an Instance sets it.
    """

    def __init__(
        self,
        source: Source,
        *,
        start: str | Position = "latest",
        tables: TableFilter | None = None,
        fields: FieldFilter | None = None,
        time_zone: tzinfo = timezone.utc,
        json_text: bool = True,
        backoff: tuple[float, float] = (0.1, 10.0),
        piece_bytes: int = 4 << 20,
        piece_entries: int = 4096,
        alarm: Alarm = log_alarm,
        shadow_tables: bool = False,
        history: SchemaHistory | None = None,
        standby: Source | None = None,
        standby_start: str | Position = "latest",
        log_positions: LogPositionManager | None = None,
        on_lost: str = "fail",
        dump_error_threshold: int = 2,
        fallback_interval: float = 60.0,
    ) -> None:
        self._sources: list[tuple[Source, str | Position]] = [(source, start)]
        if standby is not None:
            self._sources.append((standby, standby_start))
        self._active = 0
        self._has_switched = False
        self._positions = log_positions or MemoryLogPositionManager()
        self._on_lost = on_lost
        self._threshold = dump_error_threshold
        self._fallback = fallback_interval
        self._lost = 0
        self._lost_because: PositionLostError | None = None
        self._same_as: Position | None = None  # the start of the stream in the log of another server
        self._damage: tuple[type[DecodeError], str, str] | None = None
        self._dump_began = math.inf
        self._quiet_since = 0.0
        self._is_behind = False  # the source's log went on when nothing had come for a while
        self._none_done = False  # an empty GTID set says that nothing is done, not that this is unknown
        self._backoff = backoff
        self._alarms = AlarmDesk(alarm)
        self.oldest: Callable[[], Position | None] = lambda: None
        self.history = history or MemoryHistory()
        self._follower = SchemaFollower(
            self.history, lambda text: self._alarms.tell(AlarmKind.SCHEMA, text), lambda: self.oldest()
        )
        tables = tables or TableFilter()
        self._shadows = None if shadow_tables else ShadowTables(tables.accepts, self._tables_like)
        self._resolver = TableResolver(
            self._follower.find, tables, fields or FieldFilter(), time_zone,
            None if json_text else self._json_columns, self._shadows,
        )
        self._cascades = CascadeWatch(self._resolver.delivers, lambda text: self._alarms.tell(AlarmKind.MISSING, text))
        self._logs_cascades = False
        self._decoder = self._follower.decoder = BinlogDecoder(
            self._resolver.resolve, self._classify, self._resolver.wants, self._table_changed, self._deliver,
            piece_bytes, piece_entries, self._read_again,
        )  # fmt: skip
        self._progress = Progress(lambda: self.source, self._decoder, self._alarms, backoff[1])
        self._finished: Callable[[], None] = lambda: None
        self._destination = ""
        self._sink: Sink | None = None
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._resume: Position | None = None
        self._handed: Entry | None = None
        self._started: Position | None = None
        self._last_problem: CanalError | None = None
        self._error: CanalError | None = None
        self._work = 1  # odd while the decoder is at work, or has no place yet
        self._ended = False
        self._stopping = threading.Event()
        self._changed = threading.Condition()

    # -- life -----------------------------------------------------------------------------------------------------

    def start(
        self, destination: str, sink: Sink, resume: Position | None, finished: Callable[[], None]
    ) -> None:
        if self._thread is not None:
            raise StateError("the parser is started already", destination=destination)
        self._destination = self._decoder.destination = self._resolver.destination = destination
        if self._shadows is not None:
            self._shadows.destination = destination
        self._sink = sink
        self._resume = resume
        self._active = self._lost = 0
        self._has_switched = False
        self._lost_because = self._damage = None
        self._none_done = False
        self._positions.start(destination)
        self._finished = finished
        self._handed = self._started = self._error = self._last_problem = None
        self._work |= 1
        self._ended = False
        self._alarms.reset(destination)
        self._progress.reset()
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name=f"canal-{destination}-parse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        connection = self._connection
        if connection is not None:
            connection.close()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._thread = None
        self._positions.stop()
        self._progress.state = State.STOPPED

    @property
    def source(self) -> Source:
        """The source that is read at present, or that it tries to reach."""
        return self._sources[self._active][0]

    @property
    def other_source(self) -> Source | None:
        """The one to switch to; None without a standby."""
        return self._sources[1 - self._active][0] if len(self._sources) > 1 else None

    def open_probe(self, timeout: float) -> tuple[Source, Callable[[], Any]]:
        """The source that is read now, and how to open a session for queries whose answers take ``timeout`` s at most."""
        source = self.source
        return source, lambda: _probe(source, timeout)

    def switch(self, reason: str = "by hand") -> bool:
        """Go on at the other source, if it answers; False and an alarm when it does not, or there is none.

        May be called from any thread. What comes of the old source meanwhile is delivered first.
        """
        other, old, run = self.other_source, self.source, self._thread
        if other is None:
            self._alarms.tell(AlarmKind.FAILOVER, f"there is no standby to switch to ({reason})", "no standby")
            return False
        try:
            other.connect().close()
        except CanalError as error:  # a ConfigError too: TLS files that are not there
            self._alarms.tell(
                AlarmKind.FAILOVER, f"no switch to {_name(other)} ({reason}): it does not answer either: {error}", "no switch"
            )
            return False
        with self._changed:
            if self._stopping.is_set() or self._ended or self._thread is not run or self.other_source is not other:
                return False
            self._active = 1 - self._active
            self._has_switched = True
            connection = self._connection
            self._changed.notify_all()
        if connection is not None:
            connection.close()
        self._alarms.announce(AlarmKind.FAILOVER, f"switching from {_name(old)} to {_name(other)}: {reason}")
        return True

    def wait_started(self, timeout: float) -> Position:
        with self._changed:
            self._changed.wait_for(lambda: self._started is not None or self._ended, timeout)
            if self._started is not None:
                return self._started
            if self._error is not None:
                raise self._error
        problem = self._last_problem
        raise ConnectionLostError(
            f"no start position within {timeout:g} s" + (f": {problem.message}" if problem else self._follower.doing),
            destination=self._destination,
            remedy="The parser goes on trying; subscribe again. "
            + (problem.remedy if problem else "Check host, port and network."),
        ) from problem

    @property
    def error(self) -> CanalError | None:
        return self._error

    @property
    def is_finished(self) -> bool:
        return self._ended

    @property
    def received(self) -> tuple[int, int]:
        """Events and bytes received since the start."""
        return self._decoder.event_count, self._decoder.byte_count

    @property
    def place(self) -> Position:
        """How far the log has been read; to be asked by the parser's own thread, as a source's connection does."""
        return self._decoder.place

    @property
    def whole_place(self) -> Position:
        """As ``place``, but before a transaction that has been read in part: its GTID is not done."""
        return self._decoder.group_place

    @property
    def delivered_place(self) -> Position | None:
        """As ``whole_place``, for any thread: all before it has been given to the sink. None while that is under way."""
        work = self._work
        place = None if work % 2 else self._decoder.group_place
        return place if self._work == work else None

    @property
    def statement_changes(self) -> int:
        """Changes of rows that came as statements since the start: their rows are not in the log."""
        return self._decoder.statement_count

    def status(self, source_timeout: float | None = None) -> ParserStatus:
        """How it stands. The source is asked for the end of its log for ``source_timeout`` seconds at most; None: not at all."""
        return self._progress.status(self._delivered, source_timeout)

    def _delivered(self) -> Position | None:
        """Behind the last entry that was delivered, or where the stream began."""
        handed = self._handed
        return handed.position if handed is not None else self._started

    # -- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._follower.open(self._destination)
            self._reconnect_for_ever()
        except StoreClosedError:
            pass  # the instance is being stopped
        except CanalError as error:
            self._fail(error)
        except BaseException as error:  # a SystemExit of a hook too: nothing may end the thread unseen
            self._fail(HookError(f"{error!r} came out of the line behind the parser") if self._is_foreign(error)
                       else CanalError(f"unexpected {error!r}", remedy="This is a fault of the library; please report it."),
                       error)  # fmt: skip
        finally:
            self._follower.close()
            self._progress.ended(self._error)
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            self._finished()

    def _is_foreign(self, error: BaseException) -> bool:
        """Whether the exception was raised in somebody else's code, by the file of its innermost frame."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        return trace is not None and not trace.tb_frame.f_globals.get("__name__", "").startswith("canal.")

    def _fail(self, error: CanalError, cause: BaseException | None = None) -> None:
        if self._stopping.is_set():
            return
        if cause is not None:
            error.__cause__ = cause
        error.destination = error.destination or self._destination
        if error.position is None:
            error.position = f"{self._decoder.journal}:{self._decoder.offset}" if self._decoder.journal else None
        self._error = error
        if not isinstance(error, NotActiveError):  # which is how it should be: another process goes on
            self._alarms.announce(AlarmKind.STOPPED, f"the parser has stopped: {error}")

    def _reconnect_for_ever(self) -> None:
        backoff = Backoff(*self._backoff)
        while not self._stopping.is_set():
            handed, active = self._handed, self._active
            self._dump_began = math.inf
            try:
                self._stream_once()
                return
            except (ConnectionLostError, PositionLostError, DecodeError) as error:
                if self._stopping.is_set():
                    return
                gave_something = self._handed is not handed or self._active != active
                if gave_something:
                    self._lost = 0
                if isinstance(error, PositionLostError) and self._active == active:
                    self._count_lost(error)
                if isinstance(error, DecodeError):
                    self._count_damage(error)
                by_source = isinstance(error, ConnectionLostError) and error.by_source and self._active == active
                wait = backoff.lost(
                    gave_something=gave_something, seconds=max(time.monotonic() - self._dump_began, 0.0), by_source=by_source
                )
                self._last_problem = error
                if self._active == active:
                    self._progress.calm = self._backoff[1] * (3 if backoff.is_thrown_out else 1)
                    self._progress.lost(_what(error), error, wait)
                    if backoff.is_thrown_out:
                        self._thrown_out(backoff.ended_soon, error)
            finally:
                self._disconnect()
            self._wait(wait * random.uniform(0.8, 1.2), active)

    def _thrown_out(self, times: int, error: SourceError) -> None:
        self._alarms.tell(
            AlarmKind.CONNECTION,
            f"our dump of {_name(self.source)} has ended {times} times in a row soon after it began: {error}",
            f"thrown out: {error.message}",
        )

    def _wait(self, seconds: float, active: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping.is_set() or self._active != active, seconds)

    def _count_lost(self, error: PositionLostError) -> None:
        """Give up without a policy for it, or where no place was found yet."""
        if self._place() is None or self._on_lost == "fail":
            raise error
        self._lost += 1
        self._lost_because = error

    def _count_damage(self, error: DecodeError) -> None:
        """Give up where the log is damaged: then it is the same when it is read again, unlike damage on the way from a
        server. Files have no way."""
        if error.position is None:
            error.position = f"{self._decoder.journal}:{self._decoder.offset}"
        damage = (type(error), error.message, str(error.position))
        if damage == self._damage:
            error.message += ", the same when it was read again"
            raise error
        if self._connection is None or not self._connection.identity:
            raise error
        self._damage = damage

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _stream_once(self) -> None:
        self._progress.state = State.CONNECTING
        connection = self._connect()
        if connection is not None and self._started is None and not self._has_switched:
            connection = self._choose(connection)
        if connection is None:
            return
        self._progress.connected(connection)
        self._same_as = None
        position = self._locate(connection)
        executed = self._executed(connection, position)
        if self._started is None:
            self._read_foreign_keys(connection)
        # By them a place is found where GTIDs are not known: in the log of a standby of the other flavor too.
        digests = bool(connection.identity) and (not connection.has_gtids or len(self._sources) > 1)
        self._work |= 1
        by_offset = dumps_by_offset(position, connection.has_gtids)
        continuity = Continuity(position, connection.identity, by_offset=by_offset)
        self._decoder.reset(position, connection.flavor, connection.identity, executed, digests, continuity)
        if executed is None:
            self._decoder.purged = getattr(connection, "purged", "")
        if self._sink is not None:
            self._sink.restart()
        connection.dump(position)
        self._decoder.known = list(getattr(connection, "known", ()))
        self._work += 1
        for warning in getattr(connection, "warnings", ()):
            self._alarms.tell(AlarmKind.POSITION, warning)
        log.info("[%s] reading %s from %s", self._destination, connection.identity or "binlog files", position)
        # Before anybody may take the position for a cursor: what the tables are there cannot be found out later.
        self._follower.begin(connection, position, self._stopping.is_set, self._same_as, len(self._sources) > 1)
        known = position.incarnation != ""
        if known:
            self._begins(position)
        self._progress.began()
        self._dump_began = self._quiet_since = time.monotonic()
        self._is_behind = False
        while not self._stopping.is_set():
            try:
                events = connection.read(1.0)
            except ServerError as error:
                error.position = error.position or self._decoder.place
                if not isinstance(error, PositionLostError):
                    self._check_log(connection, error.message)  # of which it may only say that it cannot be read
                raise
            if not known:  # with the first events there comes what tells the log from a later one of its name
                known = True
                self._begins(opened(position, events or []))
            if events:
                if continuity.expects_event:
                    continuity.meet(events)
                self._work += 1
                self._decoder.feed(events)
                self._work += 1
            if events is None:
                return
            self._check_end(connection, events)
            self._progress.fed(events)

    def _begins(self, position: Position) -> None:
        """The start of the stream is known: clients may take it for a cursor."""
        if self._handed is None:
            self._positions.persist(lambda: position)
        with self._changed:
            self._started = self._started or position
            self._changed.notify_all()

    def _check_log(self, connection: Any, why: object) -> None:
        """Is it still the log that was read? A server that resets it while it sends it says anything, or nothing."""
        place = self._decoder.place
        if not place.incarnation or not hasattr(connection, "incarnation"):
            return
        if connection.incarnation(place.journal) != place.incarnation:
            raise PositionLostError(
                f"{_name(self.source)} has reset its log while {place.journal} was read: {why}",
                reason=LostReason.DIVERGED, position=place,
                remedy='Copy the tables anew and start from "latest" or "earliest".',
            )  # fmt: skip

    def _check_end(self, connection: Any, events: list[bytes]) -> None:
        """After a while without a change: is the log that is read still the one that the source writes?"""
        now = time.monotonic()
        if any(event[4] not in _HEARTBEATS for event in events) or self._decoder.is_inside_transaction:
            self._quiet_since, self._is_behind = now, False
            return
        if now - self._quiet_since < getattr(self.source, "check_interval", math.inf):
            return
        self._quiet_since = now
        if self._progress.state is State.SEEKING and self._is_held_up(connection):
            return
        behind = not connection.check_end(self._decoder.place)
        if behind:
            self._check_log(connection, "its log does not end where reading does, and nothing comes")
        if behind and self._is_behind:
            raise ConnectionLostError(f"{_name(self.source)} has changes in its log that it does not send")
        self._is_behind = behind

    def _is_held_up(self, connection: Any) -> bool:
        """Whether the source waits for somebody else before it begins to send."""
        held_up_by = getattr(connection, "held_up_by", None)
        text = "" if held_up_by is None else held_up_by()
        if text:
            self._progress.held_up(text)
        return bool(text)

    def _choose(self, connection: Connection) -> Connection | None:
        """At the start: a connection with that one of source and standby of which the stored cursor is a place.

        After a switch that is the standby, for a later run and for another process too: the source may be back, and lag
        or be followed by nobody.
        """
        place, other, source = self._place(), self.other_source, self.source
        if place is None or other is None or place.source in ("", connection.identity):
            return connection
        active, second = self._active, None
        try:
            second = self._connect(other)
        except CanalError as error:  # a ConfigError too
            log.warning("[%s] %s, which may have the place of the cursor, does not answer: %s", self._destination,
                        _name(other), error)  # fmt: skip
        found = second is not None and second.identity == place.source
        kept, dropped = (second, connection) if found else (connection, second)
        if dropped is not None:
            dropped.close()
        with self._changed:
            self._connection = kept
            if self._stopping.is_set():
                return None
            if self._active != active:
                raise ConnectionLostError(f"{_name(source)} is given up")
            if found:
                self._active, self._has_switched = 1 - active, True
        if found:
            place_of = f"the cursor is a place in its log, not in that of {_name(source)}"
            self._alarms.announce(AlarmKind.FAILOVER, f"going on at {_name(other)}: {place_of}")
        return kept

    def _connect(self, source: Source | None = None) -> Connection | None:
        """A connection, or None when the parser is stopped first: to look up a name, say, cannot be interrupted."""
        made: list[Connection | BaseException] = []
        with self._changed:
            source, active = source or self.source, self._active
        begin = getattr(source, "new_connection", None)
        fresh = None if begin is None else begin()

        def log_in() -> None:
            result: Connection | BaseException
            try:
                if fresh is None:
                    result = source.connect()
                else:
                    fresh.open()
                    result = fresh
            except BaseException as error:
                result = error
            with self._changed:
                made.append(result)
                self._changed.notify_all()
                abandoned = self._stopping.is_set() or self._active != active
            if abandoned and not isinstance(result, BaseException):
                result.close()

        thread = threading.Thread(target=log_in, name=f"canal-{self._destination}-connect", daemon=True)
        thread.start()
        with self._changed:
            self._changed.wait_for(lambda: made or self._stopping.is_set() or self._active != active)
            abandoned = self._stopping.is_set() or self._active != active
            if not abandoned and not isinstance(made[0], BaseException):
                self._connection = made[0]  # from now on stop() and switch() close it
        if abandoned:
            if fresh is not None:
                fresh.close()
                thread.join(1.0)  # a look-up of a name cannot be interrupted
            elif made and not isinstance(made[0], BaseException):
                made[0].close()
            if self._stopping.is_set():
                return None
            if self._active != active:
                raise ConnectionLostError(f"{_name(source)} is given up")
        if isinstance(made[0], BaseException):
            raise made[0]
        return made[0]

    def _read_foreign_keys(self, connection: Any) -> None:
        """Learn, where the connection can tell, which tables change without a word in the log."""
        foreign_keys = getattr(connection, "foreign_keys", None)
        if foreign_keys is None:
            return
        try:
            self._logs_cascades = connection.logs_cascades
            if not self._logs_cascades:
                self._cascades.add(foreign_keys())
        except SourceError as error:  # no reason not to stream
            if not self._stopping.is_set():
                self._alarms.tell(
                    AlarmKind.MISSING,
                    f"foreign keys cannot be read, so cascades that the log does not hold stay unknown: {error}",
                )

    def _classify(self, sql: str, schema: str, *, sql_mode: int, flavor: str) -> ddl.Statement:
        statement = ddl.classify(sql, schema, sql_mode=sql_mode, flavor=flavor)
        if statement.kind == "ddl" and not self._logs_cascades:
            self._cascades.follow(sql, statement, sql_mode=sql_mode, flavor=flavor)
        return statement

    def _executed(self, connection: Any, position: Position) -> GtidSet | None:
        """The GTIDs done at the position; None where they are not known, which is not the same as none at all."""
        return parse_gtid_set(position.gtid, connection.flavor) if position.gtid or self._none_done else None

    def _place(self) -> Position | None:
        """Behind what the sink has taken, or where the stream began, or the stored cursor."""
        return self._positions.latest() or self._started or self._resume

    def _locate(self, connection: Connection) -> Position:
        """Where to go on, as canal.parse.start decides."""
        place = self._place()
        decision = decide(
            Facts(
                place=place, configured=self._sources[self._active][1], identity=connection.identity,
                flavor=connection.flavor, has_gtids=connection.has_gtids, has_journal=_has_journal(connection, place),
                lost=self._lost, threshold=self._threshold, on_lost=self._on_lost, fallback=self._fallback,
                behind=self._lost_because.behind if self._lost_because is not None else None,
            )
        )  # fmt: skip
        start, how = decision.start, decision.how
        log.debug("[%s] start by rule %r: %s from %s", self._destination, decision.rule, how.value, start)
        if how is How.RESOLVE:
            place = self._resolve(connection, decision)
            self._none_done = not isinstance(start, Position) and connection.has_gtids
            return self._moved(place)
        assert isinstance(start, Position)
        if how is How.MATCH:
            self._none_done = False
            return self._moved(self._match(connection, start))
        if how is How.FAIL:
            raise PositionLostError(
                f"{start} is a place in the log of server {start.source}, and {_name(self.source)} is {connection.identity}",
                reason=LostReason.OTHER_SERVER,
                position=start,
                remedy="Journals of two servers do not compare, and it has neither a GTID set nor a time: copy the tables "
                'anew and start from "latest" or "earliest".',
            )
        if how is How.GTID:
            start = attrs.evolve(start, incarnation="")
        if self._handed is not None:
            self._none_done = self._handed.transaction.gtid_base is not None
        return start

    def _moved(self, place: Position) -> Position:
        """A place that was searched for is where to go on from now on."""
        self._handed, self._lost = None, 0
        self._positions.persist(lambda: place)
        return place

    def _resolve(self, connection: Connection, decision: Decision) -> Position:
        start = decision.start
        try:
            place = connection.resolve(start)
        except PositionLostError as error:
            if not self._is_policy(decision):
                raise
            self._alarms.tell(AlarmKind.POSITION, f"{error}; from the oldest log that is there instead")
            place = connection.resolve("earliest")
        if start == "latest" and not place.gtid:  # or a switch before the first change would have no time to search for
            clock = time.time() + (getattr(connection, "clock_offset", None) or 0.0)
            place = attrs.evolve(place, timestamp=int(1000 * clock))
        if isinstance(start, Position) and start.journal and start.offset > 4 and not start.source and not start.gtid:
            begin = transaction_start(connection, place)
            if begin != place.offset:
                log.warning("[%s] %s lies inside a transaction, which begins at %d", self._destination, place, begin)
                place = attrs.evolve(place, offset=begin)
        if self._is_policy(decision):
            self._alarms.tell(
                AlarmKind.POSITION,
                f"THE PLACE {self._place()} IS LOST ({self._lost_text()}): going on from {place}, as on_lost="
                f"{self._on_lost!r} says; the changes in between are not delivered, or are delivered again",
            )
        return place

    def _lost_text(self) -> str:
        """Why, without the remedy, which ``on_lost`` makes superfluous."""
        return " ".join(self._lost_because.message.split()) if self._lost_because is not None else ""

    @staticmethod
    def _is_policy(decision: Decision) -> bool:
        return decision.rule.startswith("lost")

    def _match(self, connection: Any, place: Position) -> Position:
        """The place in the log of another server: by time, then exactly behind the last transactions if they are there."""
        back = Position(timestamp=max(place.timestamp - int(self._fallback * 1000), 1))
        whole = False
        try:
            start = connection.resolve(back)
        except PositionLostError:
            start, whole = connection.resolve("earliest"), True
        prepared = tuple(PreparedXa(one.xid, "", 0) for one in place.xa)  # their rows are somewhere else in this log
        found = None
        if place.tail and hasattr(connection, "replay"):
            found = find_tail(place.tail, transactions(connection, start))
        where = f"{_name(self.source)} is not the server {place.source} that {place} is a place of"
        if found is None:
            if whole:
                raise PositionLostError(
                    f"{where}, and its log does not go back to the time of that place", position=place,
                    remedy='Copy the tables anew and start from "latest" or "earliest", or set on_lost.',
                )  # fmt: skip
            self._alarms.tell(
                AlarmKind.POSITION,
                f"{where}: going on from {start}, {self._fallback:g} s before the time of that place; changes come again",
            )
            # All before ``place`` stays done: its time and tail find it again in a third log, or back in the first.
            return attrs.evolve(
                place, journal=start.journal, offset=start.offset, gtid=start.gtid, row=0, source=start.source, xa=prepared,
                incarnation="", at_event=False,
            )  # fmt: skip
        done = digests_of(place.tail)[: -found.missing or None]
        exact: Position = attrs.evolve(
            place, journal=found.position.journal, offset=found.position.offset, source=connection.identity,
            gtid=found.position.gtid if connection.has_gtids else "",
            row=0 if found.missing else place.row, tail="".join(done), xa=prepared, incarnation="", at_event=False,
        )  # fmt: skip
        lacks = f" but for the last {found.missing}, which come again if it gets them" if found.missing else ""
        if not any(map(changes_schema, digests_of(place.tail)[len(done) :])):
            self._same_as = place
        self._alarms.tell(AlarmKind.POSITION, f"{where}: going on from {exact}, behind the same transactions{lacks}")
        return exact

    def _deliver(self, entries: list[Entry]) -> None:
        assert self._sink is not None
        if self._decoder.known:
            entries = [entry for entry in entries if not self._decoder.is_known(entry.transaction)]
            if not entries:
                return
        last = entries[-1]
        self._progress.delivering()
        self._sink.sink(entries)
        self._handed = last
        self._positions.persist(lambda: last.position)

    def _table_changed(self, statement: ddl.Statement, sql: str, data: bytes) -> None:
        if self._shadows is not None and not statement.temporary:
            self._shadows.forget()
        self._follower.changed(statement, sql, data)

    def _read_again(self, wanted: PreparedXa, offset: int) -> Iterator[bytes]:
        return read_again(self._connection, wanted, Position(journal=self._decoder.journal, offset=offset))

    def _tables_like(self, schema: str, name: str, is_prefix: bool) -> list[str] | None:
        """Tables that are called so, or begin so; None when the source cannot tell."""
        tables_like = getattr(self._connection, "tables_like", None)
        return None if tables_like is None else tables_like(schema, name, is_prefix=is_prefix)

    def _json_columns(self, schema: str, table: str) -> Container[str]:
        """Columns of MariaDB that are JSON, where the source can tell."""
        ask = getattr(self._connection, "json_columns", None)
        return () if ask is None else ask(schema, table)


def _has_journal(connection: Any, place: Position | None) -> bool | None:
    """Whether the source still has the journal of a position; None where it cannot be asked, or nothing depends on it."""
    if place is None or not place.incarnation or not place.gtid or not hasattr(connection, "journal_names"):
        return None
    return place.journal in connection.journal_names()


class _Reconnect:
    """The heartbeat of a source that takes no queries: to connect."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def rows(self, sql: str, *, doing: str) -> None:
        self._source.connect().close()

    def close(self) -> None:
        pass


def _probe(source: Any, timeout: float) -> Any:
    if not hasattr(source, "open_session"):
        return _Reconnect(source)
    return attrs.evolve(source, connect_timeout=timeout, read_timeout=timeout).open_session()


def _what(error: SourceError) -> str:
    if isinstance(error, DecodeError):
        return "damage on the way or in the log"
    return "position lost" if isinstance(error, PositionLostError) else "connection lost"


def _name(source: Source) -> str:
    """A source in messages."""
    return str(getattr(source, "address", None) or source)
