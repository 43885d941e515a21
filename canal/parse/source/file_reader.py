"""Reads the events of a binlog file from an offset.

Parses only the headers of events, and the FORMAT_DESCRIPTION.
"""

from __future__ import annotations

import io
import logging
import os
from pathlib import Path
from typing import Any, Sequence

from canal.binlog import event_layout as layout
from canal.binlog.event_types import ARTIFICIAL_F, FORMAT_DESCRIPTION, IN_USE_F, ROTATE, START_ENCRYPTION, START_EVENT_V3
from canal.errors import (
    CanalError,
    ConnectionLostError,
    DecodeError,
    LostReason,
    PositionLostError,
    SourceError,
    TruncatedError,
    UnsupportedError,
)
from canal.parse.log.events import Format, as_closed, check_format, parse_format
from canal.parse.log.framing import BUFFER_BYTES, FileFramer
from canal.parse.source.file_listing import ENCRYPTED_MAGIC, INNODB_MAGIC, MAGIC, kept_in_innodb
from canal.parse.source.sealing import as_resent
from canal.position import Position

log = logging.getLogger("canal.parse")

#: Bytes to read first when a read starts in the middle of a file: enough for the FORMAT_DESCRIPTION.
_HEAD_BYTES = 4096


def open_first(journals: list[Path], start: int) -> JournalReader:
    """Open the first of the files. The error for a missing file names the next file that exists."""
    try:
        reader = JournalReader(journals[0], start)
        reader.has_successor = len(journals) > 1
        return reader
    except FileNotFoundError as error:
        behind = next((Position(journal=path.name, offset=layout.FIRST) for path in journals if path.exists()), None)
        raise PositionLostError(
            f"{journals[0]} is missing, and the log has later files",
            reason=LostReason.GAP,
            behind=behind,
            remedy="Restore the file.",
        ) from error


class _SameFile(io.RawIOBase):
    """An open file with an independent read position. A duplicated descriptor would share the position."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._at = 0

    def fileno(self) -> int:
        return self._descriptor

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        count = os.preadv(self._descriptor, [room], self._at)
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


class JournalReader:
    """Reads a file from an offset: the FORMAT_DESCRIPTION first, then whole events."""

    def __init__(self, path: Path, start: int = layout.FIRST, file: io.RawIOBase | None = None) -> None:
        self.path = path
        self.start = start
        self._is_start_proved = False  # whether an event is known to begin at the start offset
        self.is_fresh = True
        #: Whether the log has a next file, as the listing or the ROTATE at the end shows.
        self.has_successor = False
        #: Whether the last events that were read include a FORMAT_DESCRIPTION.
        self.brings_format = False
        self._file = file or open(path, "rb", buffering=0)
        self._framer: FileFramer | None = None
        self._is_in_use = False
        self._has_format = False
        self._warned = False

    def again(self, start: int) -> JournalReader:
        """Return another reader of the same open file."""
        return JournalReader(self.path, max(start, layout.FIRST), _SameFile(self._file.fileno()))

    def read(self) -> Sequence[bytes]:
        """Return the next whole events; [] if there are no more at the moment."""
        try:
            return self._read()
        except OSError as error:
            raise SourceError(f"cannot read {self.path}: {error.strerror}") from error

    def _read(self) -> Sequence[bytes]:
        framer = self._framer_or_none()
        if framer is None:
            return []
        if framer.offset == self.start > layout.FIRST:
            self._check_start()
        while True:
            if framer.error is not None:
                raise self._with_position(framer.error, framer.offset)
            count = self._file.readinto(framer.room())
            if not count:
                self._check_rest(framer)
                return []
            events: Sequence[bytes] = framer.advance(count)
            if events:
                self.has_successor |= events[-1][layout.TYPE] == ROTATE
                self.brings_format = framer.has_format or not self._has_format
                return events if self._has_format else self._first(list(events))

    def _framer_or_none(self) -> FileFramer | None:
        """Return the framer, positioned after the magic bytes; None while the file has none."""
        if self._framer is not None:
            return self._framer
        self._file.seek(0)
        magic = self._file.read(len(MAGIC))
        if magic == ENCRYPTED_MAGIC:
            raise self._encrypted()
        if magic == INNODB_MAGIC:
            raise kept_in_innodb(self.path)
        if magic != MAGIC[: len(magic)]:
            raise UnsupportedError(
                f"{self.path} is not a binlog file",
                position=f"{self.path.name}:0",
                remedy="A binlog file begins with fe 62 69 6e.",
            )
        if len(magic) < len(MAGIC):
            return None
        self._framer = FileFramer(buffer_bytes=BUFFER_BYTES if self.start == layout.FIRST else _HEAD_BYTES)
        return self._framer

    def _check_start(self) -> None:
        """Check that an event begins at the start offset. The decoder checks the events after it."""
        header = os.pread(self._file.fileno(), layout.HEADER, self.start)
        size, end_offset = _lengths(header)
        end = self.start + size
        # MariaDB from 11.4 on writes no end offset inside a transaction. Such a start was read from this log before.
        fits = end_offset == end & 0xFFFFFFFF if end_offset else end <= self.size
        if len(header) == layout.HEADER and not (fits and size >= layout.HEADER):
            raise self._no_start()
        if 0 < len(header) < layout.HEADER and not self._is_start_proved:
            if not self._is_boundary():
                raise self._no_start()
            self._is_start_proved = True

    def _is_boundary(self) -> bool:
        """Return whether the event before the start ends there, by adding up the lengths of all events."""
        at, size = layout.FIRST, layout.HEADER
        while at < self.start and size >= layout.HEADER:
            size = _lengths(os.pread(self._file.fileno(), layout.HEADER, at))[0]
            at += size
        return at == self.start

    def _no_start(self) -> PositionLostError:
        return PositionLostError(
            f"no event begins at offset {self.start} of {self.path}",
            reason=LostReason.BEYOND,
            position=f"{self.path.name}:{self.start}",
            remedy="Check the file: it was replaced, is damaged there, or is still being copied.",
        )

    def _check_rest(self, framer: FileFramer) -> None:
        """Check whether the incomplete event at the end is still being written or has a damaged length."""
        header = os.pread(self._file.fileno(), layout.HEADER, framer.offset)
        size, end_offset = _lengths(header)
        is_wrong = end_offset and end_offset != framer.offset + size & 0xFFFFFFFF
        if len(header) == layout.HEADER and is_wrong and not header[layout.FLAGS] & ARTIFICIAL_F:
            raise self._with_position(
                DecodeError(
                    f"an event of {size} bytes has the end offset {end_offset}",
                    event_type=header[layout.TYPE],
                    remedy="Restore the file: it is damaged there.",
                ),
                framer.offset,
            )

    def _encrypted(self) -> UnsupportedError:
        return UnsupportedError(
            f"{self.path} is encrypted",
            event_type=START_ENCRYPTION,
            position=f"{self.path.name}:0",
            remedy="Read from the server, which decrypts the events that it sends.",
        )

    def _first(self, events: list[bytes]) -> list[bytes]:
        """Check the head of the file. Continue at ``start`` if that is further on."""
        head = events[0]
        kind = head[layout.TYPE]
        if kind != FORMAT_DESCRIPTION:
            raise UnsupportedError(
                f"{self.path} begins with an event of type {kind} instead of a FORMAT_DESCRIPTION",
                event_type=kind,
                position=f"{self.path.name}:{layout.FIRST}",
                remedy="MySQL before 5.0 wrote it; it holds no rows." if kind == START_EVENT_V3 else "Restore the file's head.",
            )
        try:
            form = parse_format(head)
            check_format(head, form)  # a start in the middle sends the head with a new checksum
        except DecodeError as error:
            raise self._with_position(error, layout.FIRST) from error
        if any(event[layout.TYPE] == START_ENCRYPTION for event in events[1:3]):
            raise self._encrypted()
        self._has_format = True
        self._is_in_use = bool(head[layout.FLAGS] & IN_USE_F)
        if self.start == layout.FIRST:
            return [as_closed(head), *events[1:]]
        after = layout.FIRST + len(head)
        begin = max(self.start, after)
        self._file.seek(begin)
        self._framer = FileFramer(begin)
        if begin > after:
            return [as_resent(head, form)]
        self.start = layout.FIRST
        return [as_closed(head)]

    def _with_position(self, error: CanalError, offset: int) -> CanalError:
        error.message = f"{self.path}: {error.message}"
        error.position = f"{self.path.name}:{offset}"
        return error

    @property
    def size(self) -> int:
        """Size of the open file in bytes, also after a rename."""
        return os.fstat(self._file.fileno()).st_size

    def has_more(self) -> bool:
        """Return whether the file has grown since the last read.

        Raises:
            ConnectionLostError: the file has shrunk. A server that starts after a crash removes an incomplete transaction.
                The reconnect compares what was read with the file.
        """
        size, at = self.size, self._file.tell()
        if size < at:
            raise ConnectionLostError(f"{self.path} was cut to {size} bytes after {at} were read")
        return size > at

    def is_there(self) -> bool | None:
        """Return whether the open file still has the same name; None if no file has that name."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        except OSError:
            return None

    def check_tail(self) -> None:
        """Raise TruncatedError or log a warning if the file ends inside an event and will not grow."""
        pending = self._framer.pending if self._framer is not None else 0
        if self._framer is not None and self._has_format and not pending:
            return
        offset = self._framer.offset if self._framer is not None else 0
        if not self._is_in_use:
            if offset == self.start > layout.FIRST and pending < layout.HEADER:
                raise self._no_start()
            raise TruncatedError(
                f"{self.path} ends inside the event at offset {offset}",
                position=f"{self.path.name}:{offset}",
                remedy="Restore the file: it was cut or is still being copied.",
            )
        if not self._warned:
            self._warned = True
            log.warning(
                "%s ends inside the event at offset %d: the server has it open or stopped during a write", self.path, offset
            )

    def read_format(self) -> Format | None:
        """Return the parsed FORMAT_DESCRIPTION; None if the file has none yet."""
        try:
            events = self.read()
            return parse_format(events[0]) if events else None
        finally:
            self.close()

    def read_time(self) -> int | None:
        """Return when the file was begun, in Unix seconds; None if it has no head yet."""
        try:
            events = self.read()
            return int.from_bytes(events[0][: layout.TYPE], "little") if events else None
        finally:
            self.close()

    def close(self) -> None:
        self._file.close()


def _lengths(header: bytes) -> tuple[int, int]:
    size, end = header[layout.SIZE : layout.END], header[layout.END : layout.FLAGS]
    return int.from_bytes(size, "little"), int.from_bytes(end, "little")
