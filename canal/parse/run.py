"""One run of a parser: the thread that feeds the events of a source through the decoder into the sink.

Never decodes anything itself, and shares only the parser's options with other runs. After a lost connection it resumes exactly
after what the sink has accepted: whole transactions, and rows of a very large transaction that was delivered in pieces. With
a standby it can continue at either server.
"""

from __future__ import annotations

import logging
import math
import random
import re
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import Final

from canal._util.memory import is_out_of_memory
from canal._util.ownership import claim
from canal._util.threads import OwnThread
from canal.alarm import AlarmDesk, AlarmKind
from canal.binlog import event_layout as layout
from canal.binlog.event_types import HEARTBEATS, ROTATE
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
    fresh,
)
from canal.model import Entry
from canal.parse import config_check
from canal.parse.backoff import Backoff
from canal.parse.connect import Link, name_of
from canal.parse.follower import SchemaFollower
from canal.parse.locate import Locator
from canal.parse.log.continuity import Continuity, opened
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.log.prepared import look_ahead, read_again
from canal.parse.options import Owner, ParserOptions
from canal.parse.progress import ParserProgress
from canal.parse.schema.cascades import CascadeWatch
from canal.parse.schema.classify import classify
from canal.parse.schema.online_ddl import ShadowTables
from canal.parse.schema.table_map import TableResolver
from canal.parse.source.dump import dumps_by_offset
from canal.parse.source.protocol import FullConnection
from canal.position import Position, PreparedXa
from canal.sink.protocol import Sink
from canal.statement import Statement
from canal.status import ParserStatus, State

log = logging.getLogger("canal.parse")

#: Opening events of a stream. A ROTATE alone does not identify the log yet.
_OPENING = HEARTBEATS | {ROTATE}
#: Check the start of a quiet log this many times less often than the end: it needs another connection.
_LOG_CHECKS = 30
#: The error of a server that is switched to gtid_mode=OFF during a dump by GTID set.
_GTIDS_OFF = re.compile("anonymous transaction when auto_?position", re.IGNORECASE)

_NO_ROWS: Final = (
    ": delivered as a statement, because its rows are not in the log. Make the application that sets binlog_format in its "
    "session use ROW, and copy the tables again."
)


class ParserRun:
    """Keeps a source connected and feeds its events through the decoder into the sink.

    Args:
        owner: the parser.
        finished: called once, when the thread ends.
    """

    def __init__(
        self,
        options: ParserOptions,
        owner: Owner,
        destination: str = "",
        sink: Sink | None = None,
        resume: Position | None = None,
        finished: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._owner = owner
        self._destination = destination
        self._sink = sink
        self._finished = finished
        self.alarms = AlarmDesk(options.alarm)
        self.alarms.reset(destination)
        self.link = Link(options.sources, destination, self.alarms, options.tables)
        self._locator = Locator(options, owner, self.link, destination, self.alarms, resume)
        schema = partial(self.alarms.tell, AlarmKind.SCHEMA)
        self._follower = SchemaFollower(options.history, schema, lambda: owner.oldest(), options.tables.accepts)
        missing = partial(self.alarms.tell, AlarmKind.MISSING)
        self._shadows = None if options.shadow_tables else ShadowTables(options.tables.accepts, self._tables_like, missing)
        self._resolver = TableResolver(
            self._follower.find,
            options.tables,
            options.fields,
            options.time_zone,
            None if options.json_text else self._json_columns,
            self._shadows,
            options.unknown_columns,
            schema,
            options.masks,
            options.column_types == "history",
            options.sequences,
            self._unlogged_columns,
        )
        self._cascades = CascadeWatch(self._resolver.delivers, missing)
        self._logs_cascades = False
        self.decoder = self._follower.decoder = BinlogDecoder(
            self._resolver.resolve,
            self._classify,
            self._wants,
            self._table_changed,
            self._deliver,
            options.piece_bytes,
            options.piece_entries,
            self._read_again,
            options.inflated_bytes,
            lambda journal, offset: look_ahead(self.link.connection, journal, offset, options.inflated_bytes),
        )
        self.decoder.destination = self._resolver.destination = destination
        self.progress = ParserProgress(lambda: self.link.source_info, self.decoder, self.alarms, options.backoff[1])
        self._damage: tuple[type[DecodeError], str, str] | None = None
        self._dump_began = math.inf
        self._quiet_since = 0.0
        self._is_behind = False  # whether the source's log had grown at the last check although no event came
        self._log_checked = 0.0  # when the log's start was last compared
        self._last_problem: CanalError | None = None
        self.error: CanalError | None = None
        self._work = 1  # odd while the decoder works or has no position yet
        self.thread: threading.Thread | None = None
        self._release: Callable[[], None] | None = None

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        options = self._options
        self._release = claim(self._owner, self._destination, options.history, options.log_positions)
        try:
            options.log_positions.start(self._destination)
            self.thread = OwnThread(target=self._run, name=f"canal-{self._destination}-parse")
            self.thread.start()
        except BaseException:
            if self.thread is None:
                self.stop()
            self.link.stop()  # the thread may run and wait for room in a store that is stopped first; a later stop() joins it
            raise

    def stop(self) -> None:
        """Stop the thread and wait until it has ended. On that thread itself, a later call does the rest."""
        self.link.stop()
        thread = self.thread
        if thread is threading.current_thread():
            return
        if thread is not None:
            thread.join()
        release, self._release = self._release, None
        if release is not None:
            try:
                self._options.log_positions.stop()
            finally:
                release()
        self.progress.state = State.STOPPED

    def wait_started(self, timeout: float) -> Position:
        with self.link.lock:
            self.link.changed.wait_for(lambda: self._locator.started is not None or self.link.ended, timeout)
            if self._locator.started is not None:
                return self._locator.started
            if self.error is not None:
                raise fresh(self.error)
            if self.link.is_stopping():
                raise StateError("the parser was stopped before it had a start position", destination=self._destination)
        problem, remedy = self._last_problem, "Check host, port and network."
        doing = f": {name_of(self.link.source)} has not answered yet"
        if problem is not None:
            doing, remedy = f": {problem.message}", problem.remedy
        elif self.progress.state is State.SEEKING:
            doing = (
                self._follower.doing or f": {name_of(self.link.source)} has answered, and the start position is being searched"
            )
            remedy = "A busy server or machine may need more time: raise start_timeout=."
        raise ConnectionLostError(
            f"no start position within {timeout:g} s{doing}",
            destination=self._destination,
            remedy=f"Subscribe again: the parser keeps trying. {remedy}",
        ) from problem

    @property
    def delivered_position(self) -> Position | None:
        work = self._work
        position = None if work % 2 else self.decoder.group_position
        return position if self._work == work else None

    def status(self, source_timeout: float | None = None) -> ParserStatus:
        return self.progress.status(self._delivered, source_timeout)

    def _delivered(self) -> Position | None:
        """Return the position after the last delivered entry, else the start of the stream."""
        last_delivered = self._locator.last_delivered
        return last_delivered.own_position if last_delivered is not None else self._locator.started

    # -- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._follower.open(self._destination)
            self._reconnect_for_ever()
        except StoreClosedError:
            pass  # the instance is stopping
        except CanalError as error:
            self._fail(error)
        except BaseException as error:  # also a SystemExit of a hook: the thread must not end silently
            self._fail(_unexpected(error), error)
        finally:
            self._follower.close()
            self.progress.ended(self.error)
            with self.link.lock:
                self.link.ended = True
                self.link.changed.notify_all()
            self._finished()

    def _fail(self, error: CanalError, cause: BaseException | None = None) -> None:
        if self.link.is_stopping():
            return
        if cause is not None:
            error.__cause__ = cause
        error.destination = error.destination or self._destination
        if error.position is None:
            error.position = f"{self.decoder.journal}:{self.decoder.offset}" if self.decoder.journal else None
        self.error = error
        if not isinstance(error, NotActiveError):  # expected: another process continues
            self.alarms.announce(AlarmKind.STOPPED, f"the parser has stopped: {error}")

    def _reconnect_for_ever(self) -> None:
        backoff = Backoff(*self._options.backoff)
        while not self.link.is_stopping():
            last_delivered, active = self._locator.last_delivered, self.link.active
            self._dump_began = math.inf
            try:
                self._stream_once()
                return
            except (ConnectionLostError, PositionLostError, DecodeError) as error:
                if self.link.is_stopping():
                    return
                has_delivered = self._locator.last_delivered is not last_delivered or self.link.active != active
                if has_delivered:
                    self._locator.lost = 0
                if isinstance(error, PositionLostError) and self.link.active == active:
                    self._locator.count_lost(error)
                if isinstance(error, DecodeError):
                    self._count_damage(error)
                by_source = isinstance(error, ConnectionLostError) and error.by_source and self.link.active == active
                wait = backoff.lost(
                    has_delivered=has_delivered, seconds=max(time.monotonic() - self._dump_began, 0.0), by_source=by_source
                )
                self._last_problem = error
                if self.link.active == active:
                    self.progress.calm = self._options.backoff[1] * (3 if backoff.is_thrown_out else 1)
                    self.progress.lost(_problem_kind(error), error, wait)
                    if backoff.is_thrown_out:
                        self._thrown_out(backoff.ended_soon, error)
            finally:
                self.link.disconnect()
            self.link.wait(wait * random.uniform(0.8, 1.2), active)

    def _thrown_out(self, times: int, error: SourceError) -> None:
        self.alarms.tell(
            AlarmKind.CONNECTION,
            f"our dump of {name_of(self.link.source)} ended {times} times in a row soon after it began: {error}",
            f"thrown out: {error.message}",
        )

    def _count_damage(self, error: DecodeError) -> None:
        """Raise ``error`` if the log itself is damaged: the same error at a second read. A file needs no second read.

        Unlike a damaged log, corruption in transit does not repeat.
        """
        if error.position is None:
            error.position = f"{self.decoder.journal}:{self.decoder.offset}"
        damage = (type(error), error.message, str(error.position))
        if damage == self._damage:
            error.message += ", and again on a second read"
            raise error
        if self.link.connection is None or not self.link.connection.identity:
            raise error
        self._damage = damage

    def _stream_once(self) -> None:
        self.progress.state = State.CONNECTING
        connection = self.link.connect()
        if connection is not None and self._locator.started is None and not self.link.has_switched:
            connection = self.link.choose(connection, self._locator.position())
        if connection is None:
            return
        self.progress.connected(connection)
        self.link.reached[connection.identity] = self.link.source
        config_check.warn_unlogged(connection, name_of(self.link.source), self._options.tables, self.alarms)
        self._locator.same_as = None
        position = self._locator.locate(connection)
        executed = self._locator.executed(connection, position)
        if self._locator.started is None:
            config_check.warn(
                connection,
                self._options.tables,
                self._options.fields,
                self._options.masks,
                self._destination,
                name_of(self.link.source),
            )
            self._read_foreign_keys(connection)
        # Digests find a position without GTIDs, also in the log of a standby of the other flavor.
        digests = bool(connection.identity) and (not connection.has_gtids or len(self.link.sources) > 1)
        self._work |= 1
        by_offset = dumps_by_offset(position, connection.has_gtids)
        continuity = Continuity(self._locator.found, connection.identity, by_offset=by_offset, ask=connection.incarnation)
        self.decoder.reset(position, connection.flavor, connection.identity, executed, digests, continuity)
        if executed is None:
            self.decoder.purged = connection.purged
        if self._sink is not None:
            self._sink.restart()
        connection.dump(position)
        self.decoder.assembly.known = list(connection.known)
        self._work += 1
        for warning in connection.warnings:
            self.alarms.tell(AlarmKind.POSITION, warning)
        log.info("[%s] reads the log of %s from %s", self._destination, name_of(self.link.source), position)
        # Before any client may store the position: table schemas cannot be recovered for it later.
        self._follower.begin(connection, position, self.link.is_stopping, self._locator.same_as, len(self.link.sources) > 1)
        found = self._locator.found
        known = found.incarnation != "" or found.source not in ("", connection.identity)
        opening: list[bytes] = []
        if known:
            self._publish_start(found)
        self.progress.began()
        self._dump_began = self._quiet_since = self._log_checked = time.monotonic()
        self._is_behind = False
        while not self.link.is_stopping():
            try:
                events = connection.read(1.0)
            except ServerError as error:
                error.position = error.position or self.decoder.position
                if not isinstance(error, PositionLostError):
                    self._check_log(connection, error.message)  # the error may only say that the log is unreadable
                wanted = self._locator.position()
                is_of_log = wanted is not None and wanted.incarnation and wanted.source == connection.identity
                if _GTIDS_OFF.search(error.message) and not by_offset and is_of_log:
                    raise ConnectionLostError(error.message) from error  # a dump by journal and offset can continue
                raise
            if not known:  # the journal's head distinguishes it from a later journal with the same name
                opening += events or []
                known = not events or any(event[layout.TYPE] not in _OPENING for event in opening)
                if known:
                    self._publish_start(opened(found, opening))
            if events:
                if continuity.expects_event:
                    continuity.meet(events)
                self._work += 1
                try:
                    self.decoder.feed(events)
                finally:
                    self._warn(continuity)
                self._work += 1
            if not events and continuity.is_open and connection.is_alive:
                continuity.check()  # the source has sent everything; this is not just a delay
            self._warn(continuity)
            if events is None:
                return
            self._check_end(connection, events)
            self.progress.fed(events)

    def _warn(self, continuity: Continuity) -> None:
        if continuity.warning:
            self.alarms.tell(AlarmKind.POSITION, f"{name_of(self.link.source)}: {continuity.warning}", "continuity")
            continuity.warning = ""

    def _publish_start(self, position: Position) -> None:
        """Publish the start of the stream: clients may use it as a cursor."""
        if self._locator.last_delivered is None:
            self._options.log_positions.persist(lambda: position)
        if self._locator.started is None:
            self._owner.began(position)
        with self.link.lock:
            self._locator.started = self._locator.started or position
            self.link.changed.notify_all()

    def _check_log(self, connection: FullConnection, why: object) -> None:
        """Raise PositionLostError if the log was reset: a server that resets it during a dump may report anything, or nothing."""
        position = self.decoder.position
        if not position.incarnation:
            return
        found = connection.incarnation(position.journal)
        if found is not None and found != position.incarnation:
            raise PositionLostError(
                f"{name_of(self.link.source)} has reset its log while {position.journal} was read: {why}",
                reason=LostReason.DIVERGED,
                position=position,
            )

    def _check_end(self, connection: FullConnection, events: Sequence[bytes]) -> None:
        """After a quiet period, check that the source still writes the log that is read."""
        now = time.monotonic()
        if any(event[layout.TYPE] not in HEARTBEATS for event in events) or self.decoder.is_inside_transaction:
            self._quiet_since, self._is_behind = now, False
            return
        interval = self.link.source_info.check_interval
        if now - self._quiet_since < interval:
            return
        self._quiet_since = now
        if self.progress.state is State.SEEKING and self._is_blocked(connection):
            return
        behind = not connection.check_end(self.decoder.position)
        if behind:
            self._check_log(connection, "the log does not end at our position, and no events come")
        elif now - self._log_checked >= _LOG_CHECKS * interval:
            self._log_checked = now
            self._check_log(connection, "another log with that name ends at our position")
        if behind and self._is_behind:
            raise ConnectionLostError(f"{name_of(self.link.source)} has changes in the log that it does not send")
        self._is_behind = behind

    def _is_blocked(self, connection: FullConnection) -> bool:
        """Return whether the source waits for another dump before it begins to send; raise an alarm if so."""
        text = connection.blocked_by()
        if text:
            self.progress.blocked(text)
        return bool(text)

    def _read_foreign_keys(self, connection: FullConnection) -> None:
        """Find, if the connection can, the tables that cascades change without log events."""
        try:
            self._logs_cascades = connection.logs_cascades
            if not self._logs_cascades:
                self._cascades.add(connection.foreign_keys())
        except SourceError as error:  # streaming works without it
            if not self.link.is_stopping():
                self.alarms.tell(
                    AlarmKind.MISSING,
                    f"cannot read foreign keys, so changes by cascades that are not in the log stay unknown: {error}",
                )

    def _wants(self, statement: Statement) -> Statement | None:
        wanted = self._resolver.wants(statement)
        if wanted is not None and wanted.kind == "dml":
            tables = ", ".join(f"{schema}.{table}" for schema, table in wanted.tables) or "unknown tables"
            text = f"statement-format change of {tables} at {self.decoder.journal}:{self.decoder.offset}{_NO_ROWS}"
            self.alarms.tell(AlarmKind.MISSING, text, f"statement {tables}")
        return wanted

    def _classify(self, sql: str, schema: str, *, sql_mode: int, flavor: str) -> Statement:
        statement = classify(sql, schema, sql_mode=sql_mode, flavor=flavor)
        if statement.kind == "ddl" and not self._logs_cascades:
            self._cascades.follow(sql, statement, sql_mode=sql_mode, flavor=flavor)
        return statement

    def _deliver(self, entries: list[Entry]) -> None:
        assert self._sink is not None
        if self.decoder.assembly.known or self.decoder.assembly.leaves_out:
            entries = [entry for entry in entries if not self.decoder.assembly.is_known(entry.transaction)]
            if not entries:
                return
        last = entries[-1]
        self.progress.delivering()
        self._sink.sink(entries)
        self._locator.last_delivered = last
        self._options.log_positions.persist(lambda: last.own_position)

    def _table_changed(self, statement: Statement, sql: str, data: bytes) -> None:
        if self._shadows is not None:
            self._shadows.follow(statement, sql)
        self._follower.changed(statement, sql, data)

    def _read_again(self, wanted: PreparedXa, offset: int) -> Iterator[bytes]:
        if self._locator.is_canals and not wanted.journal:
            self.alarms.tell(
                AlarmKind.POSITION,
                f"XA transaction {wanted.xid} was prepared before canal's cursor, and is committed now: its rows are delivered "
                "here, and canal has already delivered them at XA PREPARE",
                f"canal's XA {wanted.xid}",
            )
        return read_again(self.link.connection, wanted, Position(journal=self.decoder.journal, offset=offset))

    def _tables_like(self, schema: str, name: str, is_prefix: bool) -> list[str] | None:
        """Return tables with this name or name prefix; None if the source cannot list them."""
        connection = self.link.connection
        return None if connection is None else connection.tables_like(schema, name, is_prefix=is_prefix)

    def _json_columns(self, schema: str, table: str) -> Container[str]:
        """Return the JSON columns of a MariaDB table, if the source knows them."""
        connection = self.link.connection
        return () if connection is None else connection.json_columns(schema, table)

    def _unlogged_columns(self, schema: str, table: str) -> Container[str]:
        """Return the columns of a MariaDB table with wrong values in the log, if the source knows them."""
        connection = self.link.connection
        return () if connection is None else connection.unlogged_columns(schema, table)


def _unexpected(error: BaseException) -> CanalError:
    """Return the error for an exception that is not from the library."""
    if is_out_of_memory(error):
        return CanalError(
            f"the process is out of memory or cannot start threads: {error!r}",
            remedy="Raise the memory or thread limit, or lower store_bytes and batch_bytes. Then start again: no changes are "
            "lost.",
        )
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is not None and not trace.tb_frame.f_globals.get("__name__", "").startswith("canal."):
        return HookError(f"a hook, filter, sink or store raised {error!r}")
    return CanalError(f"unexpected {error!r}", remedy="This is a bug in the library; please report it.")


def _problem_kind(error: SourceError) -> str:
    if isinstance(error, DecodeError):
        return "corruption in transit or in the log"
    return "position lost" if isinstance(error, PositionLostError) else "connection lost"
