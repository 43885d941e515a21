"""The spool: segments of entries on disk, of one process, in pieces that executors decode.

Never outlives its process for long: what a killed one has left is removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import attrs

from canal._util.disk import own_folder, private
from canal.errors import ConfigError, SourceError, TruncatedError
from canal.model import Entry
from canal.spool.segments import HEADER, SegmentWriter, check_header, table_record, tables_of

#: Seconds that a spool of another machine is left alone since its process has last said that it lives.
_OLD: Final = 86400.0
_CUT_BYTES: Final = 1 << 20
_WRITE_BYTES: Final = 1 << 20  # each write lets another thread have the interpreter
#: Segments that are done with are kept, so many and no larger, to be written over: a disk takes that 15 times as fast.
_SPARES, _SPARE_BYTES = 8, 32 << 20
#: A batch is cut into about four pieces of about so many bytes at least and at most: a task costs Spark as much as decoding
#: 10 MB.
_LEAST_PIECE, _MOST_PIECE = 4 << 20, 16 << 20


@attrs.define
class _Segment:
    path: Path
    file: BinaryIO
    writer: SegmentWriter
    cuts: list[int] = attrs.field(factory=list)  # record boundaries, about every _CUT_BYTES


@attrs.frozen
class Piece:
    """Whole records of one segment: in a file, or carried with the tables that they name."""

    path: str
    start: int
    end: int
    data: bytes | None = None
    tables: dict[int, bytes] = attrs.field(factory=dict)


class Spool:
    """A directory of segments of this process, which is removed with it, or after it by the next one.

    Args:
        root: where the directories of all runners of this machine and others are; None for the system's temporary one.
        is_shared: other machines read the files. They are always new then: a cache could still have what one held before.
    """

    def __init__(self, root: str | None, is_shared: bool = False) -> None:
        host = re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())
        self._segments: dict[int, _Segment] = {}
        self._number = 0
        self._touched = time.monotonic()
        self._spares: list[Path] = []
        self._most_spares = 0 if is_shared else _SPARES
        try:
            parent = own_folder(root, "canal-spool")
            self.directory = parent / f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            self._lock = self._locked(parent)
            self.directory.mkdir(mode=0o700)
            self._remove_leftovers(parent, host if root else "")
        except OSError as error:
            where = root or tempfile.gettempdir()
            raise ConfigError(f"the spool in {where} cannot be made: {error}", remedy="Set spoolDir.") from error

    def _locked(self, parent: Path) -> BinaryIO:
        """The lock that says that this process lives; it is held before anybody can see it."""
        path = parent / f".{self.directory.name}"
        file = open(path, "wb", opener=private)  # noqa: SIM115
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.rename(parent / f"{self.directory.name}.lock")
        return file

    @staticmethod
    def _remove_leftovers(parent: Path, host: str) -> None:
        """What no living process has locked; of a machine with another name, which this one may have had, only what is old: a
        lock may mean nothing between machines."""
        for path in parent.glob("*.lock"):
            with contextlib.suppress(OSError), open(path, "rb", opener=private) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if host and not path.name.startswith(f"{host}-") and time.time() - os.fstat(file.fileno()).st_mtime < _OLD:
                    continue
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                path.unlink(missing_ok=True)

    def add(self, entry: Entry, epoch: int, limit: int) -> tuple[tuple[int, int], int]:
        """Write an entry; gives the address behind it, a segment and an offset there, and the bytes that it took."""
        segment = self._segments.get(self._number)
        if segment is None or segment.writer.size >= limit:
            segment = self._next()
        before = segment.writer.size
        segment.writer.add(entry, epoch)
        size = segment.writer.size
        if size - (segment.cuts[-1] if segment.cuts else len(HEADER)) >= _CUT_BYTES:
            segment.cuts.append(size)
        return (self._number, size), size - before

    def _next(self) -> _Segment:
        if self._number in self._segments:
            self._segments[self._number].file.close()
        self._number += 1
        path = self.directory / f"{self._number:08d}"
        with contextlib.suppress(IndexError, OSError):
            self._spares.pop().rename(path)
        file = open(path, "r+b" if path.exists() else "wb", _WRITE_BYTES, opener=private)  # noqa: SIM115
        segment = self._segments[self._number] = _Segment(path, file, SegmentWriter(file))
        return segment

    def flush(self) -> None:
        """Have everything that was added in the file."""
        segment = self._segments.get(self._number)
        if segment is not None:
            segment.writer.flush()

    def pieces(self, first: tuple[int, int], last: tuple[int, int], carried: bool) -> list[Piece]:
        """What lies between two addresses (segment, offset), in pieces to be decoded each by itself."""
        ranges = []
        for number in range(max(first[0], 1), last[0] + 1):
            segment = self._segments[number]
            start = first[1] if number == first[0] else len(HEADER)
            end = last[1] if number == last[0] else segment.writer.size
            if end > start:
                ranges.append((segment, start, end))
        total = sum(end - start for _, start, end in ranges)
        size = min(max(_LEAST_PIECE, total // 4), _MOST_PIECE)
        return [
            self._piece(segment, *part, carried)
            for segment, start, end in ranges
            for part in _parts(segment.cuts, start, end, size)
        ]

    @staticmethod
    def _piece(segment: _Segment, start: int, end: int, carried: bool) -> Piece:
        if not carried:
            return Piece(str(segment.path), start, end)
        with segment.path.open("rb") as file:
            file.seek(start)
            data = file.read(end - start)
            return Piece("", start, end, data, {at: table_record(file, at) for at in tables_of(data)})

    def release(self, before: int) -> None:
        """Be done with the segments before a number. Called all the time, it says that this process lives."""
        if time.monotonic() - self._touched > _OLD / 24:
            self._touched = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self._lock.fileno())
        for number in [number for number in list(self._segments) if number < before]:  # the other thread may add one
            segment = self._segments.pop(number)
            segment.file.close()
            with contextlib.suppress(OSError):  # somebody tidied up
                if len(self._spares) < self._most_spares and segment.writer.size <= _SPARE_BYTES:
                    self._spares.append(segment.path.rename(self.directory / f"spare-{number}"))
                else:
                    segment.path.unlink()

    def close(self) -> None:
        for segment in self._segments.values():
            with contextlib.suppress(OSError):  # what a full disk did not take
                segment.file.close()
        self._segments.clear()
        shutil.rmtree(self.directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            Path(f"{self.directory}.lock").unlink()
        self._lock.close()


def _parts(cuts: list[int], start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of about ``size`` bytes and about as long as each other."""
    size = (end - start) // max(1, round((end - start) / size))
    begin = start
    for cut in cuts:
        if begin < cut < end and cut - begin >= size and end - cut >= size // 2:
            yield begin, cut
            begin = cut
    yield begin, end


def piece_source(piece: Piece) -> tuple[bytes, Callable[[int], bytes]]:
    """The bytes of a piece and a way to its tables, for ``read_entries``.

    Raises:
        SourceError: the file is not there.
        TruncatedError: it is shorter than it was.
    """
    if piece.data is not None:
        return piece.data, piece.tables.__getitem__

    def table_at(at: int) -> bytes:
        with open(piece.path, "rb") as file:
            return table_record(file, at)

    try:
        with open(piece.path, "rb") as file:
            check_header(file)
            file.seek(piece.start)
            data = file.read(piece.end - piece.start)
        os.stat(piece.path)  # else it may have been written over meanwhile
    except OSError as error:
        raise SourceError(
            f"the spool's file {piece.path} cannot be read here: {error}",
            remedy="Where executors do not see the driver's disk set transport=bytes, or spoolDir to a shared directory. After "
            "its batch was committed a file is removed.",
        ) from error
    if len(data) < piece.end - piece.start:
        raise TruncatedError(f"the spool's file {piece.path} ends before offset {piece.end}")
    return data, table_at
