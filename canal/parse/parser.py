"""The parser: what it was configured with, and its present run.

Never reads anything itself: canal.parse.run does.
"""

from __future__ import annotations

import threading
import warnings
from datetime import timezone, tzinfo
from typing import Any, Callable, Protocol, TypeVar, cast, runtime_checkable

from canal.alarm import Alarm, log_alarm
from canal.errors import CanalError, CursorError, StateError
from canal.filter import FieldFilter, TableFilter
from canal.parse.log.events import MAX_INFLATED_BYTES
from canal.parse.log_positions import LogPositionManager, MemoryLogPositionManager
from canal.parse.options import ParserOptions
from canal.parse.run import ParserRun
from canal.parse.schema.history import MemoryHistory, SchemaHistory
from canal.parse.source.protocol import Completed, Source
from canal.position import Position
from canal.rows.mask import Masks
from canal.sink.protocol import Sink
from canal.status import ParserStatus

_Value = TypeVar("_Value")


@runtime_checkable
class EventParser(Protocol):
    """Where entries come from. A user's own parser meets this Protocol and is given to ``Instance.compose``.

    It may also have what is in ``ParserTeller``.
    """

    def start(
        self, destination: str, sink: Sink, resume: Position | None, finished: Callable[[], None]
    ) -> None:
        """Begin, on a thread of its own, to give entries to ``sink``, from ``resume`` or from its own start position.

        Call ``finished`` once when the thread ends by itself, after ``error`` is set.
        """

    def stop(self) -> None:
        """End the thread, and wait for that. Calls that the sink blocks are ended by stopping the store first.

        May be called again, where a call was interrupted, and before ``start``, where the line behind did not start.
        """

    def wait_started(self, timeout: float) -> Position:
        """The position at which the stream begins; waits until it is known.

        Raises:
            ConnectionLostError: it is not known in time.
            StateError: ``stop`` was called before.
            CanalError: what stopped the parser before.
        """

    @property
    def error(self) -> CanalError | None:
        """What stopped the parser, once it has."""

    @property
    def is_finished(self) -> bool:
        """True when it has ended by itself: an error, or the end of a log that is not followed."""


class ParserTeller(Protocol):
    """What an Instance asks of a parser beside; the bodies hold of one that does not have it."""

    @property
    def source(self) -> Source | None:
        """The source that is read at present."""
        return None

    @property
    def history(self) -> SchemaHistory | None:
        """Where it keeps the schemas of tables."""
        return None

    @property
    def switch(self) -> Callable[[str], bool] | None:
        """Goes on at the other source, for a reason; gives False where that does not answer."""
        return None

    @property
    def complete_to(self) -> float:
        """The source has said that it has nothing more which it made before this time, in seconds by its clock, and all of
        that has been given to the sink; 0: it has said nothing."""
        return 0.0

    def address_of(self, cursor: Position) -> tuple[str, int]:
        """Host and port of the server that a cursor is of; ("", 0): not known."""
        return "", 0

    def status(self, source_timeout: float | None = None) -> ParserStatus | None:
        """How it stands, for ``Instance.status()``."""
        return None


def parser_teller(parser: EventParser) -> ParserTeller:
    """A parser, with what it does not have itself."""
    return cast(ParserTeller, Completed(parser, (ParserTeller,)))


class OwnParser:
    """A parser of the library's own, which asks the Instance that it belongs to. That sets the three.

    Attributes:
        oldest: gives the position before which nobody will resume; None: not known.
        marks: gives the cursors of clients that are ahead of the stream.
        translated: called with what these are in another log; None for what cannot be known there.
    """

    def __init__(self) -> None:
        self.oldest: Callable[[], Position | None] = lambda: None
        self.marks: Callable[[], list[Position]] = list
        self.translated: Callable[[dict[Position, Position | None]], None] = lambda found: None


class BinlogParser(OwnParser):
    """The :class:`EventParser` for every source: a live server, binlog files or a fake.

    Args:
        source: where to connect to.
        start: "latest", "earliest" or a :class:`Position`, when there is no cursor to resume from.
        standby: another server of the same replication, to ``switch`` to.
        standby_start: as ``start``, for a first start at the standby.
        log_positions: keeps where parsing stands.
        on_lost, dump_error_threshold, fallback_interval: see :class:`canal.parse.start.Facts`.
        tables, fields: filters, decided once per table map.
        masks: of columns; statements keep their texts, which the sink withholds: an ``EntrySink`` must have them too.
        time_zone: zone of TIMESTAMP values.
        json_text: give JSON as text, not as objects.
        backoff: seconds before the first and (at most) before any later attempt to reconnect.
        piece_bytes, piece_entries: a transaction beyond either goes on in pieces.
        inflated_bytes: an event that comes out of a compressed one and is larger is refused.
        alarm: told of lost connections, of what stopped the parser, and of what else an operator should know.
        shadow_tables: deliver the tables of online schema changes too.
        unknown_columns, column_types: see :class:`canal.InstanceConfig`.
        history: keeps the schemas of tables whose names the log does not carry.

    Attributes:
        began: called with the position at which the stream begins, before anything of it is seen; what it raises ends the run.
    """

    def __init__(
        self,
        source: Source,
        *,
        start: str | Position = "latest",
        tables: TableFilter | None = None,
        fields: FieldFilter | None = None,
        masks: Masks | None = None,
        time_zone: tzinfo = timezone.utc,
        json_text: bool = True,
        backoff: tuple[float, float] = (0.1, 10.0),
        piece_bytes: int = 4 << 20,
        piece_entries: int = 4096,
        inflated_bytes: int = MAX_INFLATED_BYTES,
        alarm: Alarm = log_alarm,
        shadow_tables: bool = False,
        unknown_columns: str = "positions",
        column_types: str = "log",
        history: SchemaHistory | None = None,
        standby: Source | None = None,
        standby_start: str | Position = "latest",
        log_positions: LogPositionManager | None = None,
        on_lost: str = "fail",
        dump_error_threshold: int = 2,
        fallback_interval: float = 60.0,
    ) -> None:
        super().__init__()
        self.began: Callable[[Position], None] = lambda position: None
        sources: list[tuple[Source, str | Position]] = [(source, start)]
        if standby is not None:
            sources.append((standby, standby_start))
        self.history = history or MemoryHistory()
        self.masks = masks or Masks()
        self._options = ParserOptions(
            sources=sources,
            tables=tables or TableFilter(),
            fields=fields or FieldFilter(),
            masks=self.masks,
            time_zone=time_zone,
            json_text=json_text,
            backoff=backoff,
            piece_bytes=piece_bytes,
            piece_entries=piece_entries,
            inflated_bytes=inflated_bytes,
            alarm=alarm,
            shadow_tables=shadow_tables,
            unknown_columns=unknown_columns,
            column_types=column_types,
            history=self.history,
            log_positions=log_positions or MemoryLogPositionManager(),
            on_lost=on_lost,
            dump_error_threshold=dump_error_threshold,
            fallback_interval=fallback_interval,
            oldest=lambda: self.oldest(),
            marks=lambda: self.marks(),
            translated=lambda found: self.translated(found),
            began=lambda position: self.began(position),
        )
        self._run = ParserRun(self._options)  # one that never starts, until there is another

    # -- life -----------------------------------------------------------------------------------------------------

    def start(
        self, destination: str, sink: Sink, resume: Position | None, finished: Callable[[], None]
    ) -> None:
        if resume is not None and resume.members:
            raise CursorError(
                f"the cursor names the members of a group, {resume}", destination=destination,
                remedy="Use canal.GroupParser with these members, or write the cursor of one of them: "
                "meta.update_cursor(client, cursor.member(name)).",
            )  # fmt: skip
        last = self._run
        if last.thread is not None and not last.link.is_stopping():
            raise StateError("the parser is started already", destination=destination)
        if last.thread is threading.current_thread():
            raise StateError(
                "the parser's last run has not ended yet: this is its thread", destination=destination,
                remedy="Start it on a thread of your own, not in an alarm, a hook, a filter or a sink.",
            )  # fmt: skip
        last.stop()  # which may have been called on its own thread
        self._run = ParserRun(self._options, destination, sink, resume, finished)
        self._run.start()

    def stop(self) -> None:
        self._run.stop()

    @property
    def source(self) -> Source:
        """The source that is read at present, or that it tries to reach."""
        return self._run.link.source

    @property
    def other_source(self) -> Source | None:
        """The one to switch to; None without a standby."""
        return self._run.link.other_source

    def open_probe(self, timeout: float) -> tuple[Source, Callable[[], Any]]:
        """The source that is read now, and how to open a session for queries whose answers take ``timeout`` s at most."""
        return self._run.link.open_probe(timeout)

    def switch(self, reason: str = "by hand") -> bool:
        """Go on at the other source, if it answers; False and an alarm when it does not, or there is none.

        May be called from any thread. What comes of the old source meanwhile is delivered first.
        """
        return self._run.link.switch(reason)

    def address_of(self, cursor: Position) -> tuple[str, int]:
        """Host and port of the server that a cursor is of; ("", 0): not known."""
        link = self._run.link
        source: Any = link.reached.get(cursor.source)
        if source is None and (not cursor.source or link.other_source is None):
            source = link.sources[0][0]
        return getattr(source, "host", ""), getattr(source, "port", 0)

    def wait_started(self, timeout: float) -> Position:
        return self._run.wait_started(timeout)

    @property
    def error(self) -> CanalError | None:
        return self._run.error

    @property
    def is_finished(self) -> bool:
        return self._run.link.ended

    @property
    def complete_to(self) -> float:
        """The source has said that it has nothing more which it made before this time, in seconds by its clock."""
        return self._run.progress.complete_to

    @property
    def received(self) -> tuple[int, int]:
        """Events and bytes received since the start."""
        return self._run.decoder.event_count, self._run.decoder.byte_count

    @property
    def position(self) -> Position:
        """How far the log has been read; to be asked by the parser's own thread, as a source's connection does."""
        return self._run.decoder.position

    @property
    def whole_position(self) -> Position:
        """As ``position``, but before a transaction that has been read in part: its GTID is not done."""
        return self._run.decoder.group_position

    @property
    def place(self) -> Position:
        """The former name of ``position``."""
        return self._former("place", self.position)

    @property
    def whole_place(self) -> Position:
        """The former name of ``whole_position``."""
        return self._former("whole_place", self.whole_position)

    @property
    def delivered_place(self) -> Position | None:
        """The former name of ``delivered_position``."""
        return self._former("delivered_place", self.delivered_position)

    @staticmethod
    def _former(name: str, value: _Value) -> _Value:
        warnings.warn(f"{name} is called {name.replace('place', 'position')} now", DeprecationWarning, stacklevel=3)
        return value

    @property
    def delivered_position(self) -> Position | None:
        """As ``whole_position``, for any thread: all before it has been given to the sink. None while that is under way."""
        return self._run.delivered_position

    @property
    def statement_changes(self) -> int:
        """Changes of rows that came as statements since the start: their rows are not in the log."""
        return self._run.decoder.statement_count

    def status(self, source_timeout: float | None = None) -> ParserStatus:
        """How it stands. The source is asked for the end of its log for ``source_timeout`` seconds at most; None: not at all."""
        return self._run.status(source_timeout)
