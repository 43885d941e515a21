"""The spool: segments of entries on disk for one process, cut into pieces for executors.

Never outlives its process for long: the next process removes the files of a killed process.
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

#: Seconds after the last heartbeat, after which a spool of another machine is removed.
_OLD: Final = 86400.0
_CUT_BYTES: Final = 1 << 20
_WRITE_BYTES: Final = 1 << 20  # each write releases the interpreter lock
#: Maximum number and bytes of released segments to overwrite: overwriting is 15 times faster.
_SPARES, _SPARE_BYTES = 8, 32 << 20
#: Minimum and maximum bytes of the four pieces of a batch: a Spark task costs as much as decoding 10 MB.
_LEAST_PIECE, _MOST_PIECE = 4 << 20, 16 << 20


@attrs.define
class _Segment:
    path: Path
    file: BinaryIO
    writer: SegmentWriter
    cuts: list[int] = attrs.field(factory=list)  # record boundaries, about every _CUT_BYTES


@attrs.frozen
class Piece:
    """Whole records of one segment, in a file or in memory with their tables."""

    path: str
    start: int
    end: int
    data: bytes | None = None
    tables: dict[int, bytes] = attrs.field(factory=dict)


class Spool:
    """A directory of segments of this process. The process removes it, or the next process does.

    Args:
        root: the parent directory of all spools. None: the system's temporary directory.
        is_shared: whether other machines read the files. Files are never reused then: a cache could have earlier content.
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
            raise ConfigError(f"cannot create the spool in {where}: {error}", remedy="Set spoolDir.") from error

    def _locked(self, parent: Path) -> BinaryIO:
        """Create the lock of this live process. It is locked before it gets its name."""
        path = parent / f".{self.directory.name}"
        file = open(path, "wb", opener=private)  # noqa: SIM115
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.rename(parent / f"{self.directory.name}.lock")
        return file

    @staticmethod
    def _remove_leftovers(parent: Path, host: str) -> None:
        """Remove spools without a lock. Spools of other host names must be old too, since locks may not work between machines."""
        for path in parent.glob("*.lock"):
            with contextlib.suppress(OSError), open(path, "rb", opener=private) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if host and not path.name.startswith(f"{host}-") and time.time() - os.fstat(file.fileno()).st_mtime < _OLD:
                    continue
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                path.unlink(missing_ok=True)

    def add(self, entry: Entry, epoch: int, limit: int) -> tuple[tuple[int, int], int]:
        """Write an entry. Return the address after it (segment, offset) and the bytes written."""
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
        """Write all added entries to the file."""
        segment = self._segments.get(self._number)
        if segment is not None:
            segment.writer.flush()

    def pieces(self, first: tuple[int, int], last: tuple[int, int], carried: bool) -> list[Piece]:
        """Return the data between two addresses (segment, offset), in pieces for separate decoding."""
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
        """Release the segments before a number. Frequent calls are the heartbeat of this process."""
        if time.monotonic() - self._touched > _OLD / 24:
            self._touched = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self._lock.fileno())
        for number in [number for number in list(self._segments) if number < before]:  # the other thread may add one
            segment = self._segments.pop(number)
            segment.file.close()
            with contextlib.suppress(OSError):  # the file was removed
                if len(self._spares) < self._most_spares and segment.writer.size <= _SPARE_BYTES:
                    self._spares.append(segment.path.rename(self.directory / f"spare-{number}"))
                else:
                    segment.path.unlink()

    def close(self) -> None:
        for segment in self._segments.values():
            with contextlib.suppress(OSError):  # the disk is full
                segment.file.close()
        self._segments.clear()
        shutil.rmtree(self.directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            Path(f"{self.directory}.lock").unlink()
        self._lock.close()


def _parts(cuts: list[int], start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield ranges with similar sizes of about ``size`` bytes."""
    size = (end - start) // max(1, round((end - start) / size))
    begin = start
    for cut in cuts:
        if begin < cut < end and cut - begin >= size and end - cut >= size // 2:
            yield begin, cut
            begin = cut
    yield begin, end


def piece_source(piece: Piece) -> tuple[bytes, Callable[[int], bytes]]:
    """Return the bytes of a piece and a function that reads its tables, for ``read_entries``.

    Raises:
        SourceError: the file is missing.
        TruncatedError: the file is shorter than the piece.
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
        os.stat(piece.path)  # raises if the file was released, and perhaps overwritten
    except OSError as error:
        raise SourceError(
            f"cannot read the spool file {piece.path} here: {error}",
            remedy="If executors cannot read the driver's disk, set transport=bytes, or a shared spoolDir. A file is "
            "removed after the commit of its batch.",
        ) from error
    if len(data) < piece.end - piece.start:
        raise TruncatedError(f"the spool file {piece.path} ends before offset {piece.end}")
    return data, table_at
