"""The parser: options and the current run.

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
from canal.parse.source.protocol import Completed, Source, source_info
from canal.position import Position
from canal.rows.mask import Masks
from canal.sink.protocol import Sink
from canal.status import ParserStatus


@runtime_checkable
class EventParser(Protocol):
    """A producer of entries. Users can implement this Protocol and pass the parser to ``Instance.compose``.

    It may also implement ``ParserInfo``, ``ClientAwareParser``, ``SwitchingParser`` and ``MergingParser``.
    """

    def start(self, destination: str, sink: Sink, resume: Position | None, finished: Callable[[], None]) -> None:
        """Start a thread that passes entries to ``sink``, from ``resume`` or else from the configured start.

        Call ``finished`` once when the thread ends without ``stop``, after ``error`` is set.
        """

    def stop(self) -> None:
        """Stop the thread and wait until it has ended. Stop the store first: that ends calls in which the sink blocks.

        May be called again after an interrupted call, and before ``start`` if a later part failed to start.
        """

    def wait_started(self, timeout: float) -> Position:
        """Return the position at which the stream begins; wait until it is known.

        Raises:
            ConnectionLostError: the position is not known in time.
            StateError: ``stop`` was called before.
            CanalError: the error that stopped the parser.
        """

    @property
    def error(self) -> CanalError | None:
        """The error that stopped the parser, or None."""

    @property
    def is_finished(self) -> bool:
        """Whether the parser has ended without ``stop``: by an error, or at the end of a log that is not followed."""


def wait_for_rest(parser: EventParser, left: float, timeout: float) -> Position:
    """Call ``wait_started`` for the rest of a wait. The error message names the whole ``timeout``."""
    left = max(left, 0.0)
    try:
        return parser.wait_started(left)
    except ConnectionLostError as error:
        error.message = error.message.replace(f"within {left:g} s", f"within {timeout:g} s", 1)
        raise


class ParserInfo(Protocol):
    """Optional abilities that an Instance uses of a parser. The bodies are defaults for a parser without them."""

    @property
    def source(self) -> Source | None:
        """The source that is read now."""
        return None

    @property
    def history(self) -> SchemaHistory | None:
        """The store for table schemas."""
        return None

    @property
    def switch(self) -> Callable[[str], bool] | None:
        """A function that switches to the other source for a reason, and returns False if it does not answer."""
        return None

    @property
    def masks(self) -> Masks:
        """The masks for columns."""
        return Masks()

    @property
    def complete_to(self) -> float:
        """Source time in seconds up to which the source has sent everything and the sink has received it; 0: unknown."""
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
        """The position up to which everything was passed to the sink; None: unknown at the moment."""
        return None

    def address_of(self, cursor: Position) -> tuple[str, int]:
        """Return host and port of the server to which a cursor belongs; ("", 0): unknown."""
        return "", 0

    def status(self, source_timeout: float | None = None) -> ParserStatus | None:
        """Return the status for ``Instance.status()``."""
        return None


def parser_info(parser: EventParser) -> ParserInfo:
    """Return a parser's ``ParserInfo``, with defaults for missing members."""
    return cast(ParserInfo, Completed(parser, (ParserInfo,)))


@runtime_checkable
class ClientAwareParser(Protocol):
    """A parser that calls back about client cursors. The Instance or group sets the callbacks.

    Attributes:
        oldest: returns the position before which no client will resume, or None if it is unknown.
        marks: returns the cursors of clients that are ahead of the stream.
        translated: called with these cursors' positions in another log; None for an unknown position.
        began: called with the position at which the stream begins, before events are delivered. An exception ends the run.
        lost: called if the source has purged the log after the first cursor. Returns the next cursor to begin at, or None if
            there is no other.
    """

    oldest: Callable[[], Position | None]
    marks: Callable[[], list[Position]]
    translated: Callable[[dict[Position, Position | None]], None]
    began: Callable[[Position], None]
    lost: Callable[[PositionLostError], Position | None]


@runtime_checkable
class SwitchingParser(Protocol):
    """A parser of a single source that can switch to a standby. Required for ``heartbeat``."""

    @property
    def other_source(self) -> object | None:
        """The source to switch to; None without a standby."""

    def open_probe(self, timeout: float) -> tuple[object, Callable[[], Any]]:
        """Return the active source, and a function that makes a :class:`canal.ha.source_health.Probe` of it.

        The probe connects at the first query. ``timeout`` (seconds) limits each answer.
        """

    def switch(self, reason: str) -> bool:
        """Switch to the other source; return False if it does not answer. May be called from any thread."""


@runtime_checkable
class MergingParser(Protocol):
    """A parser that merges several parsers, with positions that have ``members``.

    Attributes:
        members: the parsers by name.
        joined: called with the start of a member that the cursors lack, before any entry passes.
    """

    members: dict[str, EventParser]
    joined: Callable[[Position], None]


class OwnParser:
    """Base class of the library's parsers: a ``ClientAwareParser`` with default callbacks."""

    def __init__(self) -> None:
        self.oldest: Callable[[], Position | None] = lambda: None
        self.marks: Callable[[], list[Position]] = list
        self.translated: Callable[[dict[Position, Position | None]], None] = lambda found: None
        self.began: Callable[[Position], None] = lambda position: None
        self.lost: Callable[[PositionLostError], Position | None] = lambda error: None


class BinlogParser(OwnParser):
    """The :class:`EventParser` for every source: a live server, binlog files or a fake.

    Args:
        source: the :class:`ParserOptions`, or a source with the other options as keywords.

    Attributes:
        options: the configuration.
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
        self._run = ParserRun(self.options, self)  # placeholder that never starts

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self, destination: str, sink: Sink, resume: Position | None, finished: Callable[[], None]) -> None:
        if resume is not None and resume.members:
            raise CursorError(
                f"the cursor has positions for members of a group: {resume}",
                destination=destination,
                remedy="Use canal.parse.GroupParser with these members, or write the cursor of one member: "
                "meta.update_cursor(client, cursor.member(name)).",
            )
        last = self._run
        if last.thread is not None and not last.link.is_stopping():
            raise StateError("the parser is already started", destination=destination)
        if last.thread is threading.current_thread():
            raise StateError(
                "cannot start the parser on the thread of its last run, which has not ended yet",
                destination=destination,
                remedy="Start it on another thread, not in an alarm, hook, filter or sink.",
            )
        last.stop()  # an earlier stop() on the run's own thread could not finish
        self._run = ParserRun(self.options, self, destination, sink, resume, finished)
        self._run.start()

    def stop(self) -> None:
        self._run.stop()

    @property
    def source(self) -> Source:
        """The source that is read now, or that the parser tries to reach."""
        return self._run.link.source

    @property
    def other_source(self) -> Source | None:
        return self._run.link.other_source

    def open_probe(self, timeout: float) -> tuple[Source, Callable[[], Any]]:
        return self._run.link.open_probe(timeout)

    def switch(self, reason: str = "by hand") -> bool:
        """Switch to the other source. Return False and raise an alarm if it does not answer or there is no standby.

        May be called from any thread. Entries that were received from the old source are delivered first.
        """
        return self._run.link.switch(reason)

    def address_of(self, cursor: Position) -> tuple[str, int]:
        link = self._run.link
        source = link.reached.get(cursor.source)
        if source is None and (not cursor.source or link.other_source is None):
            source = link.sources[0][0]
        return ("", 0) if source is None else (source_info(source).host, source_info(source).port)

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
        return self._run.progress.complete_to

    @property
    def full_metadata(self) -> bool | None:
        connection = self._run.link.connection
        return None if connection is None else connection.full_metadata

    @property
    def received(self) -> tuple[int, int]:
        return self._run.decoder.event_count, self._run.decoder.byte_count

    @property
    def position(self) -> Position:
        """The position up to which the log was read. For the parser's thread only."""
        return self._run.decoder.position

    @property
    def whole_position(self) -> Position:
        """Like ``position``, but before a transaction that was read in part, because that GTID is not done."""
        return self._run.decoder.group_position

    @property
    def delivered_position(self) -> Position | None:
        """Like ``whole_position``, for any thread: the sink has received everything before it. None during a delivery."""
        return self._run.delivered_position

    @property
    def statement_changes(self) -> int:
        """Number of row changes logged as statements since the start: their rows are not in the log."""
        return self._run.decoder.statement_count

    def status(self, source_timeout: float | None = None) -> ParserStatus:
        """Return the status. Query the source for the end of the log for at most ``source_timeout`` seconds; None: do not."""
        return self._run.status(source_timeout)
