"""The parser: one thread that keeps a source connected and drives its events through the decoder into the sink.

Never decodes anything itself. After a lost connection it continues exactly behind what the sink has taken: the whole
transactions, and the rows of a very large one that were delivered in pieces.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from datetime import timezone, tzinfo
from typing import Any, Callable, Container, Iterator, Protocol, runtime_checkable

from canal.errors import CanalError, ConnectionLostError, HookError, SourceError, StateError, StoreClosedError
from canal.filter import FieldFilter, TableFilter
from canal.gtid import GtidSet, parse_gtid_set
from canal.model import Entry
from canal.parse import ddl
from canal.parse.cascades import CascadeWatch
from canal.parse.decoder import BinlogDecoder
from canal.parse.follow import SchemaFollower
from canal.parse.history import MemoryHistory, SchemaHistory
from canal.parse.online_ddl import ShadowTables
from canal.parse.source import Connection, Source
from canal.parse.tables import TableResolver
from canal.parse.xa import read_again
from canal.position import Position, PreparedXa
from canal.sink.protocol import Sink

log = logging.getLogger("canal.parse")

#: ``(destination, message)``: told of everything an operator should know.
Alarm = Callable[[str, str], None]


def log_alarm(destination: str, message: str) -> None:
    """The alarm used where none is given: an ERROR line in the log."""
    log.error("[%s] %s", destination, message)


@runtime_checkable
class EventParser(Protocol):
    """Where entries come from. A user's own parser meets this Protocol and is given to ``Instance.compose``."""

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
        tables, fields: filters, decided once per table map.
        time_zone: zone of TIMESTAMP values.
        json_text: give JSON as text, not as objects.
        backoff: seconds before the first and (at most) before any later attempt to reconnect.
        piece_bytes, piece_entries: a transaction beyond either goes on in pieces.
        alarm: told of lost connections and of what stopped the parser.
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
    ) -> None:
        self._source = source
        self._start = start
        self._backoff = backoff
        self._alarm = alarm
        self.oldest: Callable[[], Position | None] = lambda: None
        self._follower = SchemaFollower(history or MemoryHistory(), self._tell, lambda: self.oldest())
        tables = tables or TableFilter()
        self._shadows = None if shadow_tables else ShadowTables(tables.accepts, self._tables_like)
        self._resolver = TableResolver(
            self._follower.find, tables, fields or FieldFilter(), time_zone,
            None if json_text else self._json_columns, self._shadows,
        )
        self._cascades = CascadeWatch(self._resolver.delivers, lambda text: self._tell(text))
        self._logs_cascades = False
        self._decoder = self._follower.decoder = BinlogDecoder(
            self._resolver.resolve, self._classify, self._resolver.wants, self._table_changed, self._deliver,
            piece_bytes, piece_entries, self._read_again,
        )  # fmt: skip
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
        self._finished = finished
        self._handed = self._started = self._error = self._last_problem = None
        self._ended = False
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
            remedy="The parser goes on trying; subscribe again, or check host, port and network.",
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
    def statement_changes(self) -> int:
        """Changes of rows that came as statements since the start: their rows are not in the log."""
        return self._decoder.statement_count

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
        self._tell(f"the parser has stopped: {error}")

    def _tell(self, message: str) -> None:
        try:
            self._alarm(self._destination, message)
        except Exception:
            log.exception("[%s] the alarm callback failed on: %s", self._destination, message)

    def _reconnect_for_ever(self) -> None:
        wait = self._backoff[0]
        while not self._stopping.is_set():
            handed, began = self._handed, time.monotonic()
            try:
                self._stream_once()
                return
            except ConnectionLostError as error:
                if self._stopping.is_set():
                    return
                # The connection did work if it gave something or lasted; some servers end a dump behind its first events.
                if self._handed is not handed or time.monotonic() - began > self._backoff[1]:
                    wait = self._backoff[0]
                self._last_problem = error
                self._tell(f"connection lost, again in {wait:.1f} s: {error}")
            finally:
                self._disconnect()
            self._stopping.wait(wait * random.uniform(0.8, 1.2))
            wait = min(wait * 2, self._backoff[1])

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _stream_once(self) -> None:
        connection = self._connection = self._connect()
        if connection is None:
            return
        position = self._position(connection)
        executed = self._executed(connection, position)
        if self._started is None:
            self._read_foreign_keys(connection)
        self._decoder.reset(position, connection.flavor, connection.identity, executed)
        if executed is None:
            self._decoder.purged = getattr(connection, "purged", "")
        if self._sink is not None:
            self._sink.restart()
        connection.dump(position)
        log.info("[%s] reading %s from %s", self._destination, connection.identity or "binlog files", position)
        # Before anybody may take the position for a cursor: what the tables are there cannot be found out later.
        self._follower.begin(connection, position, self._stopping.is_set)
        with self._changed:
            self._started = self._started or position
            self._changed.notify_all()
        while not self._stopping.is_set():
            events = connection.read(1.0)
            if events is None:
                return
            if events:
                self._decoder.feed(events)

    def _connect(self) -> Connection | None:
        """A connection, or None when the parser is stopped first: a login can take long and cannot be interrupted."""
        made: list[Connection | BaseException] = []

        def log_in() -> None:
            result: Connection | BaseException
            try:
                result = self._source.connect()
            except BaseException as error:
                result = error
            with self._changed:
                made.append(result)
                self._changed.notify_all()
                abandoned = self._stopping.is_set()
            if abandoned and not isinstance(result, BaseException):
                result.close()

        threading.Thread(target=log_in, name=f"canal-{self._destination}-connect", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: made or self._stopping.is_set())
            if self._stopping.is_set():
                return None
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
                self._tell(f"foreign keys cannot be read, so cascades that the log does not hold stay unknown: {error}")

    def _classify(self, sql: str, schema: str, *, sql_mode: int, flavor: str) -> ddl.Statement:
        statement = ddl.classify(sql, schema, sql_mode=sql_mode, flavor=flavor)
        if statement.kind == "ddl" and not self._logs_cascades:
            self._cascades.follow(sql, statement, sql_mode=sql_mode, flavor=flavor)
        return statement

    def _executed(self, connection: Any, position: Position) -> GtidSet | None:
        """The GTIDs done at the position; None where they are not known, which is not the same as none at all."""
        if self._handed is not None:
            known = self._handed.transaction.gtid_base is not None
        else:
            known = self._resume is None and not isinstance(self._start, Position) and connection.has_gtids
        return parse_gtid_set(position.gtid, connection.flavor) if position.gtid or known else None

    def _position(self, connection: Connection) -> Position:
        if self._handed is not None:
            return self._handed.position
        if self._started is not None:
            return self._started
        if self._resume is not None:
            return self._resume if self._resume.is_concrete else connection.resolve(self._resume)
        return connection.resolve(self._start)

    def _deliver(self, entries: list[Entry]) -> None:
        assert self._sink is not None
        last = entries[-1]
        self._sink.sink(entries)
        self._handed = last

    def _table_changed(self, statement: ddl.Statement, sql: str, data: bytes) -> None:
        if self._shadows is not None and not statement.temporary:
            self._shadows.forget()
        self._follower.changed(statement, sql, data)

    def _read_again(self, wanted: PreparedXa, offset: int) -> Iterator[bytes]:
        return read_again(self._connection, wanted, Position(journal=self._decoder.journal, offset=offset))

    def _tables_like(self, schema: str, prefix: str) -> list[str] | None:
        """Tables whose names begin so; None when the source cannot tell."""
        tables_like = getattr(self._connection, "tables_like", None)
        return None if tables_like is None else tables_like(schema, prefix)

    def _json_columns(self, schema: str, table: str) -> Container[str]:
        """Columns of MariaDB that are JSON, where the source can tell."""
        ask = getattr(self._connection, "json_columns", None)
        return () if ask is None else ask(schema, table)

    @property
    def lag(self) -> float:
        """Seconds between the last transaction's time at the source and now."""
        return time.time() - self._decoder.timestamp if self._decoder.timestamp else 0.0
