"""The live end of a stream: an Instance whose entries go to the spool, and the positions at which a batch may end.

Never decodes a row, and never lets the spool grow beyond its limit: the source waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import islice
from typing import Any, Final

import attrs

from canal.errors import CanalError, StateError, StoreError, fresh
from canal.instance.instance import Instance
from canal.model import Entry
from canal.parse.parser import parser_info
from canal.parse.source.files import LocalBinlogSource
from canal.parse.source.mysql import MySQLSource
from canal.position import Position
from canal.spark.options import Options
from canal.spark.stream.offsets import Offset
from canal.spark.stream.shared_instance import SharedInstance
from canal.spark.stream.stretch import Stretch, Until, is_before_told, messages, open_instance, within
from canal.spark.stream.watch import Epochs, Watch
from canal.spool.spool import Piece, Spool

_GRAIN_ROWS, _GRAIN_BYTES = 1000, 64 << 10  # how near two marks may lie that nobody asked for
#: A batch that is smaller is let grow while as many bytes come in as many seconds, for so many seconds at most: about what a
#: batch costs Spark.
_SMALL_BYTES, _BURST_BYTES, _BURST_SECONDS, _BURST_MOST = 8 << 20, 512 << 10, 0.05, 0.3
SEGMENT_BYTES: Final = 16 << 20


@attrs.define(eq=False)
class _Mark:
    """A position where a batch may end: behind an entry, with how much of the stream lies before it."""

    last: Entry | Position
    epoch: int
    address: tuple[int, int]  # segment, and offset in it
    rows: int
    bytes: int
    types: tuple[str, str]  # of the columns of the rows before it, and of which position
    known: Offset | None = None  # once Spark was given it

    @property
    def offset(self) -> Offset:
        types, at = self.types
        return Offset(self.last.position if isinstance(self.last, Entry) else self.last, self.epoch, types=types, types_at=at)


class Tail:
    """Reads on from a position into the spool, on a thread of its own.

    Args:
        start: where from.
        until: where to end; None for never.
    """

    def __init__(
        self, options: Options, watch: Watch, spool: Spool, start: str | Position, epoch: int, until: Position | None
    ) -> None:
        self._options = options
        self._watch = watch
        self._spool = spool
        source: Any = attrs.evolve(options.source) if isinstance(options.source, MySQLSource) else options.source
        if until is not None:
            source = Until(source, Stretch(start if isinstance(start, Position) else Position(), until))
        elif isinstance(source, LocalBinlogSource):
            source = attrs.evolve(source, follow=True)
        self._instance: Any
        if options.instance is None:
            self._instance = open_instance(options, source, start, history=True)
        else:
            self._instance = SharedInstance(options, start, until)
        self._changed = threading.Condition()
        self._closing = False
        self._fault: BaseException | None = None
        self._over = False
        try:
            self._instance.subscribe()
        except BaseException:
            self._instance.stop()
            raise
        position = self._instance.position()
        if position.gtid and not position.source:  # it is the GTID set that was followed; whose the position is nobody knows
            position = Position(gtid=position.gtid)
        self._start: Position | None = position
        self._stretch = None if until is None else Stretch(position, until)
        base = _Mark(position, epoch, (0, 0), 0, 0, (watch.types, watch.types_at))
        base.known = base.offset
        self._marks = deque([base])
        self._given = {base.known: base}
        # How far the thread has read, how much of that lies behind its last mark, and marks that nobody has seen yet.
        self._address, self._rows, self._bytes = (0, 0), 0, 0
        self._open_rows = self._open_bytes = 0
        self._fresh: list[_Mark] = []
        self._epochs = Epochs(position, epoch)
        self._segment_bytes = max(1, min(SEGMENT_BYTES, options.spool_bytes // 4))
        self._most_open = max(1, min(options.max_transaction, options.spool_bytes // 4))
        self._thread = threading.Thread(target=self._run, name="canal-spark-tail", daemon=True)
        self._thread.start()

    @property
    def has_end(self) -> bool:
        return self._stretch is not None

    @property
    def base(self) -> Offset:
        """Where it began, or what was released last."""
        return self._marks[0].offset

    def rename_base(self, offset: Offset) -> None:
        """Spark knows the start by another offset."""
        with self._changed:
            self._marks[0].known = offset
            self._given[offset] = self._marks[0]

    def knows(self, offset: Offset) -> bool:
        return offset in self._given

    def last(self) -> Offset:
        """The newest position that a batch may end at."""
        return self._marks[-1].offset

    @property
    def received(self) -> int:
        """Bytes of the log that have come since the start."""
        return parser_info(self._instance.parser).received[1]

    @property
    def lag(self) -> float | None:
        """Seconds that what has come is behind the source, where that is known."""
        return self._instance.status().lag.seconds if isinstance(self._instance, Instance) else None

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        fault: BaseException | None = None
        try:
            for message in messages(self._instance):
                try:
                    if not all(map(self._take, message.entries)):
                        break
                finally:
                    self._publish()
                self._wait_for_room()
        except StateError as error:
            fault = None if self._closing else error
        except OSError as error:
            fault = StoreError(
                f"the spool in {self._spool.directory} cannot be written: {error}",
                remedy="Make room there, or set spoolDir to a larger disk or spoolBytes to less; then start the query again.",
            )
        except BaseException as error:  # told to whoever asks for the next offset
            fault = error
        with self._changed:
            self._fault = fault
            self._over = True
            self._changed.notify_all()

    def _take(self, entry: Entry) -> bool:
        """Add an entry; False where it lies behind the end."""
        if self._start is not None:
            if is_before_told(self._start, entry.transaction):
                return True
            self._start = None
        # What another server's log has before the end but not among the end's GTIDs is given too: the marks behind it name it.
        if self._stretch is not None and within(entry, self._stretch) is None:
            return False
        epoch = self._epochs.of(entry.transaction)
        try:
            delivered = self._watch.delivers(entry)
        except CanalError:
            if self._open_rows:  # what came before it in its transaction goes first
                self._mark(entry.transaction.position_before(entry.first_row + entry.skip_rows), epoch)
            raise
        if delivered:
            self._address, size = self._spool.add(entry, epoch, self._segment_bytes)
            self._open_rows += entry.header.row_count if entry.table is not None else 1
            self._open_bytes += size
        if entry.is_end or (delivered and self._open_bytes >= self._most_open):
            self._mark(entry, epoch)
        return True

    def _mark(self, last: Entry | Position, epoch: int) -> None:
        """A batch may end here."""
        self._rows += self._open_rows
        self._bytes += self._open_bytes
        self._open_rows = self._open_bytes = 0
        self._fresh.append(_Mark(last, epoch, self._address, self._rows, self._bytes, (self._watch.types, self._watch.types_at)))

    def _publish(self) -> None:
        """Let batches end at the new marks. Those that nobody was given and that lie near to each other are one."""
        self._spool.flush()
        with self._changed:
            marks = self._marks
            for mark in self._fresh:
                if len(marks) > 1 and marks[-1].known is None and self._is_near(marks[-2], mark):
                    marks.pop()
                marks.append(mark)
            self._fresh.clear()
            self._changed.notify_all()

    def _is_near(self, one: _Mark, other: _Mark) -> bool:
        rows, size = _GRAIN_ROWS, _GRAIN_BYTES
        if self._options.max_rows is not None:
            rows = min(rows, self._options.max_rows // 16)
        if self._options.max_bytes is not None:
            size = min(size, self._options.max_bytes // 16)
        return other.rows - one.rows <= rows and other.bytes - one.bytes <= size

    def _wait_for_room(self) -> None:
        with self._changed:
            most = self._options.spool_bytes
            self._changed.wait_for(lambda: self._closing or self._marks[-1].bytes - self._marks[0].bytes < most)

    # -- batches -------------------------------------------------------------------------------------------------------

    def next(self, offset: Offset, rows: int | None, size: int | None, timeout: float, idle: bool) -> Offset:
        """Where the batch behind ``offset`` ends: ``offset`` itself where there is nothing within ``timeout`` s.

        Args:
            rows, size: how much it may hold; one transaction may be more.
            idle: let it also end where there is nothing to deliver before it.

        Raises:
            CanalError: what stopped the stream, once all before it has been given.
        """
        with self._changed:
            start = self._given[offset]
            self._wait_for_rows(start, rows, size, timeout)
            end = self._end_of(start, rows, size)
            if end is start and self._fault is not None:
                raise fresh(self._fault) if isinstance(self._fault, CanalError) else self._fault
            if end is start or (end.rows == start.rows and not idle and self._fault is None):
                return offset
            end.known = end.known or end.offset
            self._given[end.known] = end
            return end.known

    def _wait_for_rows(self, start: _Mark, rows: int | None, size: int | None, timeout: float) -> None:
        """Wait for the first rows, and where they are the beginning of a burst, for its end: a batch costs Spark more."""
        is_small = self._marks[-1].bytes - start.bytes <= _SMALL_BYTES
        self._changed.wait_for(lambda: self._marks[-1].rows > start.rows or self._fault is not None, timeout)
        deadline = time.monotonic() + _BURST_MOST
        seen = start.bytes + _GRAIN_BYTES - _BURST_BYTES
        while is_small and self._marks[-1].bytes - seen >= _BURST_BYTES and not self._over:
            last, left = self._marks[-1], deadline - time.monotonic()
            if left <= 0 or self._is_full(start, rows, size):
                return
            seen = last.bytes
            self._changed.wait_for(self.is_over, min(left, _BURST_SECONDS))

    def fill(self, offset: Offset, rows: int | None, size: int | None, timeout: float) -> bool:
        """Wait until there is as much as a batch may hold, or all; False where there is not within ``timeout`` seconds."""
        with self._changed:
            start = self._given[offset]
            return self._changed.wait_for(lambda: self._over or self._is_full(start, rows, size), timeout)

    def _is_full(self, start: _Mark, rows: int | None, size: int | None) -> bool:
        last, most = self._marks[-1], self._options.spool_bytes
        return (rows is not None and last.rows - start.rows >= rows) or last.bytes - start.bytes >= min(size or most, most)

    def _end_of(self, start: _Mark, rows: int | None, size: int | None) -> _Mark:
        end = start
        for mark in islice(self._marks, self._marks.index(start) + 1, None):
            too_much = rows is not None and mark.rows - start.rows > rows
            too_much = too_much or (size is not None and mark.bytes - start.bytes > size)
            if too_much and end.rows > start.rows:
                break
            end = mark
            if too_much:
                break
        return end

    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._over

    def pieces(self, start: Offset, end: Offset, carried: bool) -> list[Piece]:
        with self._changed:
            first, last = self._given[start], self._given[end]
            return self._spool.pieces(first.address, last.address, carried)

    def release(self, offset: Offset) -> None:
        """Everything up to an offset is done for good."""
        with self._changed:
            mark = self._given[offset]
            while self._marks[0] is not mark:
                gone = self._marks.popleft()
                if gone.known is not None:
                    self._given.pop(gone.known, None)
            self._spool.release(mark.address[0])
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._instance.stop()
        self._thread.join()
