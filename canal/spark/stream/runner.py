"""What the methods of a stream's reader do, in the process that Spark keeps for a query.

Never decodes a row: what it gives are pieces of the spool, or stretches of the log that executors read themselves.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, cast

import attrs

from canal.errors import StateError
from canal.formats.change_table import Shape
from canal.parse.source.mysql import MySQLSource, another
from canal.parse.source.protocol import complete
from canal.position import Position, journal_key
from canal.snapshot.chunks import Pace, SnapshotPart, SnapshotPlan, SnapshotRows, plan_again, read_chunk
from canal.snapshot.chunks import plan as plan_snapshot
from canal.snapshot.files import SnapshotFiles, keep, remove
from canal.snapshot.kept_plans import forget, whole
from canal.snapshot.kept_plans import keep as keep_plan
from canal.spark.options import Options
from canal.spark.stream.offsets import VERSION, Offset
from canal.spark.stream.stretch import Stretch, beginning, plan, read_stretch, renames, tells_columns, wait_for_end
from canal.spark.stream.tail import SEGMENT_BYTES, Tail
from canal.spark.stream.watch import Watch
from canal.spool.spool import Piece, Spool

log = logging.getLogger("canal.spark")

_SUBMIT: Final = "org.apache.spark.deploy.SparkSubmit"
_SWITCHES: Final = ("--verbose", "-v", "--supervise", "--help", "-h", "--version", "--usage-error")


class Runner:
    """What the methods of the stream reader do, in the process of the query. Opens nothing before it is needed."""

    def __init__(self, options: Options, shape: Shape | None) -> None:
        self._options = options
        self._shape = shape
        self._spool: Spool | None = None
        self._tail: Tail | None = None
        self._target: Position | None = None
        self._target_at = 0.0  # when it was taken, or found to be within reach
        self._is_one_batch = False  # all up to the target is to be one batch
        self._parent = os.getppid()
        self._moved_at = time.monotonic()
        self._moved_bytes = 0
        self._carried = not is_spool_visible(options)
        self._files: SnapshotFiles | None = None
        self._snapshot: Offset | None = None  # where Spark is in it
        self._plan: SnapshotPlan | None = None  # with its chunks
        self._pace: Pace | None = None
        if not log.hasHandlers():  # in the process that Spark made: nobody else would set up what is logged there
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
            log.addHandler(handler)
            log.setLevel(logging.INFO)

    def prepare_available_now(self) -> None:
        """Only what is in the log now is wanted."""
        connection = another(self._options.source).connect()
        try:
            self._target = connection.resolve("latest")
        finally:
            connection.close()
        self._target_at = time.monotonic()

    def latest_at_once(self, start: dict[str, Any], rows: int | None, size: int | None) -> dict[str, Any]:
        """As ``latest``, of all that is in the log now as far as one batch may hold it, also behind the initial offset.

        The end of that first batch has with it, as "since", where the stream began, which is found out now.
        """
        self.prepare_available_now()
        self._is_one_batch = True
        try:
            known = Offset.from_document(start)
            end = self._next(known, rows, size)
            if known is None:
                begin, end = end, self._next(end, rows, size)
                if end.plan is None and end != begin:
                    end = attrs.evolve(end, since=begin)
        finally:
            self._target, self._is_one_batch = None, False
        return start if end is known else end.to_document()

    def latest(self, start: dict[str, Any], rows: int | None, size: int | None) -> dict[str, Any]:
        """The end of the next batch; ``start`` itself where there is nothing new. All before ``start`` is done."""
        known = Offset.from_document(start)
        end = self._next(known, rows, size)
        return start if end is known else end.to_document()

    def _next(self, start: Offset | None, rows: int | None, size: int | None) -> Offset:
        if start is None:
            return self._first()
        if start.chunks_left:
            return self._next_chunks(start, rows, size)
        if start.plan is not None:
            self._end_snapshot(start.plan)
        tail = self._tail
        if tail is None or not tail.knows(start) or tail.has_end == (self._target is None):
            end = self._backlog_end(start)
            if end is not None and not self._goes_on(end):
                return end
            start = end or start
            tail = self._open(start.position, start.epoch, self._types(start), start.types_at)
            tail.rename_base(start)
        tail.release(start)
        if self._target is not None:
            found = self._wait_for_all(tail, start, rows, size)
        else:
            found = tail.next(start, rows, size, self._options.poll, self._is_idle(tail))
        if found != start:
            self._moved_at, self._moved_bytes = time.monotonic(), tail.received
        return found

    def _first(self) -> Offset:
        """Where the stream begins, which is found out now."""
        if self._options.snapshot != "never":
            self._check_log()
            plan = self._stored_plan() if self._options.snapshot == "consistent" else self._planned()
            self._snapshot = Offset(plan.position, 0, plan)
            return self._snapshot
        start = self._options.starting or "latest"
        first = self._open(start, 0).base
        if start != "latest" and self._backlog_end(first) is not None:
            self.close()  # executors read the backlog
        return first

    def _goes_on(self, end: Offset) -> bool:
        """Whether a backlog is to be one batch with what is behind it up to the target, in the same file."""
        target = self._target
        return (
            self._is_one_batch
            and self._options.max_bytes is None
            and target is not None
            and end.position.journal == target.journal
        )

    def _check_log(self) -> None:
        """Raise what keeps the log from being read, such as a privilege, before a snapshot that takes long."""
        if self._options.instance is None:
            connection = complete(another(self._options.source).connect())
            try:
                connection.dump(connection.resolve("latest"))
                connection.read(self._options.start_timeout)
            finally:
                connection.close()

    def _planned(self) -> SnapshotPlan:
        return self._keep(snapshot_plan(self._options, self._shape, tell=self._check_parent))

    def _stored_plan(self) -> SnapshotPlan:
        """The table is read now, as it is at one moment."""
        assert self._options.snapshot_dir is not None
        self._files = files = SnapshotFiles(self._options.snapshot_dir)
        try:
            return self._keep(snapshot_plan(self._options, self._shape, files=files, tell=self._check_parent))
        except BaseException:
            files.remove()
            raise

    def _check_parent(self, done: int) -> None:
        if os.getppid() != self._parent:
            raise StateError("the process that runs the query is gone")

    def _keep(self, plan: SnapshotPlan) -> SnapshotPlan:
        """What the checkpoint is to have of a plan."""
        kept = keep_plan(plan, self._options.snapshot_dir)
        self._plan = attrs.evolve(kept, chunks=plan.chunks)
        return kept

    def _whole(self, plan: SnapshotPlan) -> SnapshotPlan | None:
        """A plan with its chunks; None where they are lost."""
        if self._plan is None or self._plan.kept != plan.kept:
            self._plan = whole(plan, self._options.snapshot_dir)
        return self._plan

    def _planned_again(self, lost: SnapshotPlan) -> SnapshotPlan:
        log.warning(
            "the plan %s of the snapshot of %s is not in snapshotDir here: the whole table is read again, at the same position",
            lost.kept,
            lost.name,
        )
        options = self._options
        assert self._shape is not None
        source = cast(MySQLSource, another(options.source))
        return plan_again(
            source, self._shape, lost, chunk_rows=options.chunk_rows, chunk_bytes=options.max_bytes, tell=self._check_parent
        )

    def _end_snapshot(self, plan: SnapshotPlan) -> None:
        """All chunks are done for good."""
        if self._snapshot is not None:
            log.info("snapshot of %s: done; the changes since %s follow", plan.name, plan.position)
        self._snapshot = self._plan = None
        forget(plan, self._options.snapshot_dir)
        if plan.files:
            remove(plan.files)

    def _next_chunks(self, offset: Offset, rows: int | None, size: int | None) -> Offset:
        """Where a batch of a snapshot ends: at least one chunk."""
        assert offset.plan is not None
        plan = self._whole(offset.plan)
        if plan is None:
            plan, offset = self._planned_again(offset.plan), attrs.evolve(offset, done=0)
        if not plan.kept:
            offset = attrs.evolve(offset, plan=self._keep(plan))
        if size is not None and plan.row_bytes:
            rows = min(size // plan.row_bytes, size if rows is None else rows)
        chunks = plan.chunks[offset.done : offset.done + self._options.chunks]
        fitting = [total for total in accumulate(chunk.rows for chunk in chunks) if rows is None or total <= rows]
        self._snapshot = offset
        self._pace = self._pace or Pace(plan.name)
        self._pace.tell(plan.progress(offset.done)["rows_done"], plan.rows)
        return attrs.evolve(offset, done=offset.done + max(len(fitting), 1))

    def _wait_for_all(self, tail: Tail, start: Offset, rows: int | None, size: int | None) -> Offset:
        """As ``Tail.next``, but the same offset means that the end of the log is reached."""
        while os.getppid() == self._parent:
            is_due = not self._is_one_batch or tail.fill(start, rows, size, self._options.poll)
            over = tail.is_over()
            if not over and time.monotonic() - self._target_at >= self._options.start_timeout:
                self._check_target()
            if not is_due:
                continue
            found = tail.next(start, rows, size, 0 if over else self._options.poll, over)
            if found != start or over:
                return found
        raise StateError("the process that runs the query is gone")

    def _check_target(self) -> None:
        """Raise PositionLostError where the source has become a server that lacks what is waited for."""
        target, source = self._target, self._options.source
        assert target is not None
        if target.gtid and isinstance(source, MySQLSource):
            connection = another(source).connect()
            try:
                if connection.identity != target.source:
                    wait_for_end(connection, target, self._options.start_timeout)
            finally:
                connection.close()
        self._target_at = time.monotonic()

    def _is_idle(self, tail: Tail) -> bool:
        options = self._options
        return (
            time.monotonic() - self._moved_at >= options.idle_advance or tail.received - self._moved_bytes >= options.idle_bytes
        )

    def _open(self, start: str | Position, epoch: int, types: str = "", types_at: str = "") -> Tail:
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        if self._spool is not None:
            self._spool.close()
        self._spool = self._new_spool()
        self._tail = Tail(
            self._options, Watch(self._shape, self._options, types, types_at), self._spool, start, epoch, self._target
        )
        self._moved_at, self._moved_bytes = time.monotonic(), 0
        return self._tail

    def _backlog_end(self, offset: Offset) -> Offset | None:
        """Where a batch ends that executors read from the log themselves; None where the stream is not so far behind."""
        options, start = self._options, offset.position
        if self._reads_itself or not options.backlog_files or options.max_rows is not None or not start.journal or start.row:
            return None
        connection = complete(another(options.source).connect())
        try:
            if connection.identity != start.source or not tells_columns(connection):
                return None
            names = connection.journal_names()
            if self._target is not None:
                if self._target.source != start.source or self._target.journal not in names:
                    return None
                names = names[: names.index(self._target.journal) + 1]
            if start.journal not in names:
                return None
            later = names[names.index(start.journal) + 1 :]
            if len(later) < options.backlog_files:
                return None
            count = self._count(start, later)
            while renames(start.journal, *later[:count]) > 1:
                count -= 1
            position = beginning(connection, later[count - 1])
        finally:
            connection.close()
        log.info("the stream is %d files of the log behind: executors read up to %s", len(later), position)
        epoch, at = offset.epoch + renames(start.journal, *later[:count]), offset.types_at or f"{start.journal}:{start.offset}"
        return Offset(position, epoch, types=offset.types, types_at=at if offset.types else "")

    def _types(self, offset: Offset) -> str:
        """The types to compare later ones with: none where something behind the position that they are of was acknowledged."""
        if offset.types_at:
            known = _parts_of(offset.types_at)
            parts = map(_parts_of, self._options.acknowledged)
            if any(one[0] == known[0] and one >= known for one in parts):
                return ""
        return offset.types

    def _count(self, start: Position, later: list[str]) -> int:
        """How many of the files behind that of ``start`` a batch ends at: by their number, and by their sizes."""
        most = min(len(later), self._options.max_files)
        if self._options.max_bytes is None:
            return most
        sizes = dict(self._options.source.read_end(self._options.start_timeout).journals)  # type: ignore[attr-defined]
        total = sizes.get(start.journal, 0) - start.offset
        for count in range(1, most):
            total += sizes.get(later[count - 1], 0)
            if total > self._options.max_bytes:
                return count
        return most

    @property
    def _reads_itself(self) -> bool:
        return self._options.read_by == "driver"

    def ranges(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> list[Piece] | list[Stretch] | list[SnapshotPart] | list[SnapshotRows]:
        """Exactly what lies behind ``start`` up to ``end``.

        Raises:
            PositionLostError: it is neither in the spool nor in the log of the source any more.
        """
        first, last = Offset.from_document(start), Offset.from_document(end)
        if first is None and last is not None:
            first = last.since
        if last is not None and last.plan is not None:
            if last.plan.files:
                keep(last.plan.files)  # Spark has written it down
            first = first or attrs.evolve(last, done=0)
        if first is None or last is None or first == last:
            return []
        if last.plan is not None:
            chunks = self._chunks(first, last, last.plan)
            return list(self._rows_of(chunks)) if self._reads_itself and not last.plan.files else chunks
        tail = self._tail
        if tail is not None and tail.knows(first) and tail.knows(last):
            return tail.pieces(first, last, self._carried)
        stretch = Stretch(first.position, last.position, first.epoch, self._types(first), first.types_at)
        parts = plan(self._options, stretch)
        return self._read_here(stretch) if self._reads_itself or self._options.history_dir is not None else parts

    def _chunks(self, first: Offset, last: Offset, plan: SnapshotPlan) -> list[SnapshotPart]:
        """Those of a batch. Of a lost plan nothing, as a later batch has it all; with the last batch all that the table has."""
        is_new = first.plan is None or first.plan.kept not in ("", plan.kept)
        found = self._whole(plan)
        if found is not None:
            return snapshot_parts(found, 0 if is_new else first.done, last.done)
        return [] if last.chunks_left else snapshot_parts(self._planned_again(plan))

    def _rows_of(self, parts: list[SnapshotPart]) -> Iterator[SnapshotRows]:
        """The rows of chunks, so many bytes in each."""
        assert self._shape is not None
        source = cast(MySQLSource, another(self._options.source))
        found: list[Any] = []
        size = 0
        for part in parts:
            for batch in read_chunk(source, self._shape, part.plan, part.chunk, tell_empty=True):
                if found and size + batch.nbytes > SEGMENT_BYTES:
                    yield SnapshotRows.of(found)
                    found, size = [], 0
                found.append(batch)
                size += batch.nbytes
        if found:
            yield SnapshotRows.of(found)

    def _read_here(self, stretch: Stretch) -> list[Piece]:
        """A stretch whose columns only this process knows, from the history that it keeps."""
        self.close()
        self._spool = spool = self._new_spool()
        options, address = self._options, (0, 0)
        watch = Watch(self._shape, options, stretch.types, stretch.types_at)
        for epoch, entry in read_stretch(options, watch, stretch, history=True):
            address, _ = spool.add(entry, epoch, SEGMENT_BYTES)
        spool.flush()
        return spool.pieces((0, 0), address, self._carried)

    def _new_spool(self) -> Spool:
        options = self._options
        return Spool(options.spool_dir, is_shared=options.transport == "file" and options.spool_dir is not None)

    def report(self) -> dict[str, Any] | None:
        """The newest offset that is known, from memory, with how far it is behind the source; of a snapshot how far that is."""
        if self._snapshot is not None and self._plan is not None:
            return {"v": VERSION, "ph": "snap", **self._plan.progress(self._snapshot.done)}
        if self._tail is None:
            return None
        lag = self._tail.lag
        return {**self._tail.last().to_document(), **({} if lag is None else {"lag_seconds": round(lag, 3)})}

    def close(self) -> None:
        """End the stream and remove the spool. A second call does nothing."""
        tail, self._tail = self._tail, None
        spool, self._spool = self._spool, None
        files, self._files = self._files, None
        if files is not None:
            files.close()
        try:
            if tail is not None:
                tail.close()
        finally:
            if spool is not None:
                spool.close()


def _parts_of(text: str) -> tuple[str, int, int]:
    journal, _, offset = text.rpartition(":")
    return *journal_key(journal), int(offset)


def snapshot_plan(options: Options, shape: Shape | None, **more: Any) -> SnapshotPlan:
    """The chunks of the table, and the position in the log that was taken before."""
    assert shape is not None
    source = cast(MySQLSource, another(options.source))
    return plan_snapshot(
        source, shape, chunk_rows=options.chunk_rows, chunk_bytes=options.max_bytes, lock_timeout=options.lock_timeout, **more
    )


def snapshot_parts(plan: SnapshotPlan, start: int = 0, end: int | None = None) -> list[SnapshotPart]:
    """The chunks of a plan from one number up to another, for one executor each."""
    alone = attrs.evolve(plan, chunks=(), kept="", count=0)
    return [SnapshotPart(alone, chunk) for chunk in plan.chunks[start:end]]


def is_spool_visible(options: Options) -> bool:
    """Whether executors see the files of the spool: they are told to, or the master is of this machine."""
    if options.transport != "auto":
        return options.transport == "file"
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return re.match(r"local(-cluster)?(\[|$)", master_of(words)) is not None


def master_of(words: list[str]) -> str:
    """The master that the command line of Spark's driver names in its options, "" for none; what follows is the program's."""
    found: dict[str, str] = {}
    rest = iter(words[words.index(_SUBMIT) + 1 :] if _SUBMIT in words else [])
    for word in rest:
        if not word.startswith("-"):
            break
        name, is_whole, value = word.partition("=")
        if name not in _SWITCHES:
            found[name] = value = value if is_whole else next(rest, "")
        if name in ("--conf", "-c"):
            key, _, setting = value.partition("=")
            found[key] = setting
    return found.get("--master", found.get("spark.master", ""))
