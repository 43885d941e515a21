"""The parser: what it was configured with, and its present run.

Never reads anything itself: canal.parse.run does.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Protocol, Unpack, cast, runtime_checkable

import attrs

from canal.errors import CanalError, ConnectionLostError, CursorError, PositionLostError, StateError
from canal.parse.options import ParserKeywords, ParserOptions
from canal.parse.run import ParserRun
from canal.parse.schema.history import SchemaHistory
from canal.parse.source.protocol import Completed, Source, teller
from canal.position import Position
from canal.rows.mask import Masks
from canal.sink.protocol import Sink
from canal.status import ParserStatus


@runtime_checkable
class EventParser(Protocol):
    """Where entries come from. A user's own parser meets this Protocol and is given to ``Instance.compose``.

    It may also have what is in ``ParserTeller``, ``ClientAwareParser``, ``SwitchingParser`` and ``MergingParser``.
    """

    def start(self, destination: str, sink: Sink, resume: Position | None, finished: Callable[[], None]) -> None:
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


def wait_for_rest(parser: EventParser, left: float, timeout: float) -> Position:
    """As ``wait_started``, for the rest of a wait: an error of it names the whole ``timeout``."""
    left = max(left, 0.0)
    try:
        return parser.wait_started(left)
    except ConnectionLostError as error:
        error.message = error.message.replace(f"within {left:g} s", f"within {timeout:g} s", 1)
        raise


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
    def masks(self) -> Masks:
        """The columns whose values it masks."""
        return Masks()

    @property
    def complete_to(self) -> float:
        """The source has said that it has nothing more which it made before this time, in seconds by its clock, and all of
        that has been given to the sink; 0: it has said nothing."""
        return 0.0

    @property
    def full_metadata(self) -> bool | None:
        """Whether the source writes binlog_row_metadata=FULL; None if that is unknown."""
        return None

    @property
    def received(self) -> tuple[int, int]:
        """Events and bytes received since the start."""
        return 0, 0

    @property
    def delivered_position(self) -> Position | None:
        """All before it has been given to the sink; None: not known at this moment."""
        return None

    def address_of(self, cursor: Position) -> tuple[str, int]:
        """Host and port of the server that a cursor is of; ("", 0): not known."""
        return "", 0

    def status(self, source_timeout: float | None = None) -> ParserStatus | None:
        """How it stands, for ``Instance.status()``."""
        return None


def parser_teller(parser: EventParser) -> ParserTeller:
    """A parser, with what it does not have itself."""
    return cast(ParserTeller, Completed(parser, (ParserTeller,)))


@runtime_checkable
class ClientAwareParser(Protocol):
    """A parser that calls back for its clients' cursors. Its Instance, or the group that it belongs to, sets the callbacks.

    Attributes:
        oldest: returns the position before which no client will resume, or None if it is unknown.
        marks: returns the cursors of clients that are ahead of the stream.
        translated: called with what these are in another log; None for what cannot be known there.
        began: called with the position at which the stream begins, before anything of it is seen; what it raises ends the run.
        lost: called if the source has purged the log behind the first cursor. Returns the next cursor to begin at, or None if
            there is no other one.
    """

    oldest: Callable[[], Position | None]
    marks: Callable[[], list[Position]]
    translated: Callable[[dict[Position, Position | None]], None]
    began: Callable[[Position], None]
    lost: Callable[[PositionLostError], Position | None]


@runtime_checkable
class SwitchingParser(Protocol):
    """A parser of one source that can switch to a standby. ``heartbeat`` needs it."""

    @property
    def other_source(self) -> object | None:
        """The source to switch to; None without a standby."""

    def open_probe(self, timeout: float) -> tuple[object, Callable[[], Any]]:
        """Return the source that is read now, and a function that makes a :class:`canal.ha.source_health.Probe` of it.

        The probe connects at its first query. Its answers take ``timeout`` seconds at most.
        """

    def switch(self, reason: str) -> bool:
        """Continue at the other source; return False if it does not answer. May be called from any thread."""


@runtime_checkable
class MergingParser(Protocol):
    """A parser that merges several parsers: its positions have ``members``.

    Attributes:
        members: the parsers by their names.
        joined: called, before anything passes, with the start of a member that the cursors do not name yet.
    """

    members: dict[str, EventParser]
    joined: Callable[[Position], None]


class OwnParser:
    """Base of the library's parsers: a ``ClientAwareParser`` before anything has set its callbacks."""

    def __init__(self) -> None:
        self.oldest: Callable[[], Position | None] = lambda: None
        self.marks: Callable[[], list[Position]] = list
        self.translated: Callable[[dict[Position, Position | None]], None] = lambda found: None
        self.began: Callable[[Position], None] = lambda position: None
        self.lost: Callable[[PositionLostError], Position | None] = lambda error: None


class BinlogParser(OwnParser):
    """The :class:`EventParser` for every source: a live server, binlog files or a fake.

    Args:
        source: its :class:`ParserOptions`; or the source alone, with the other options as keywords.

    Attributes:
        options: what it is configured with.
    """

    def __init__(self, source: ParserOptions | Source, **options: Unpack[ParserKeywords]) -> None:
        super().__init__()
        given: dict[str, Any] = {**options}
        if isinstance(source, ParserOptions):
            self.options = attrs.evolve(source, **given)
        else:
            self.options = ParserOptions(source=source, **{key: value for key, value in given.items() if value is not None})
        self.history = self.options.history
        self.masks = self.options.masks
        self._run = ParserRun(self.options, self)  # one that never starts, until there is another

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self, destination: str, sink: Sink, resume: Position | None, finished: Callable[[], None]) -> None:
        if resume is not None and resume.members:
            raise CursorError(
                f"the cursor names the members of a group, {resume}",
                destination=destination,
                remedy="Use canal.parse.GroupParser with these members, or write the cursor of one of them: "
                "meta.update_cursor(client, cursor.member(name)).",
            )
        last = self._run
        if last.thread is not None and not last.link.is_stopping():
            raise StateError("the parser is started already", destination=destination)
        if last.thread is threading.current_thread():
            raise StateError(
                "the parser's last run has not ended yet: this is its thread",
                destination=destination,
                remedy="Start it on a thread of your own, not in an alarm, a hook, a filter or a sink.",
            )
        last.stop()  # which may have been called on its own thread
        self._run = ParserRun(self.options, self, destination, sink, resume, finished)
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
        source = link.reached.get(cursor.source)
        if source is None and (not cursor.source or link.other_source is None):
            source = link.sources[0][0]
        return ("", 0) if source is None else (teller(source).host, teller(source).port)

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
    def full_metadata(self) -> bool | None:
        """Whether the source writes binlog_row_metadata=FULL; None if that is unknown."""
        connection = self._run.link.connection
        return None if connection is None else connection.full_metadata

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
