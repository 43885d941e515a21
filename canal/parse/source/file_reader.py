"""The events of one binlog file, from an offset on.

Never looks inside an event further than its header, except the FORMAT_DESCRIPTION.
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

#: Bytes that are read at once of a file of which the first event is wanted, and then its middle.
_HEAD_BYTES = 4096


def open_first(journals: list[Path], start: int) -> JournalReader:
    """The first of the files; an error names where the log goes on where it is not there."""
    try:
        reader = JournalReader(journals[0], start)
        reader.has_successor = len(journals) > 1
        return reader
    except FileNotFoundError as error:
        behind = next((Position(journal=path.name, offset=layout.FIRST) for path in journals if path.exists()), None)
        raise PositionLostError(
            f"there is no {journals[0]}, which belongs to the log",
            reason=LostReason.GAP,
            behind=behind,
            remedy="Restore the file.",
        ) from error


class _SameFile(io.RawIOBase):
    """An open file with a position of its own. A descriptor that is duplicated shares the position."""

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
    """Reads one file from an offset: first its FORMAT_DESCRIPTION, then whole events from there on."""

    def __init__(self, path: Path, start: int = layout.FIRST, file: io.RawIOBase | None = None) -> None:
        self.path = path
        self.start = start
        self._is_start_proved = False  # an event begins there
        self.is_fresh = True
        #: Whether there is a next file, as the listing says, or the ROTATE at the end.
        self.has_successor = False
        #: Whether there is a FORMAT_DESCRIPTION among the events that were read last.
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
        """The next whole events; [] when there is no more at the moment."""
        try:
            return self._read()
        except OSError as error:
            raise SourceError(f"cannot read {self.path}: {error.strerror}") from error

    def _read(self) -> Sequence[bytes]:
        framer = self._begun()
        if framer is None:
            return []
        if framer.offset == self.start > layout.FIRST:
            self._check_start()
        while True:
            if framer.error is not None:
                raise self._placed(framer.error, framer.offset)
            count = self._file.readinto(framer.room())
            if not count:
                self._check_rest(framer)
                return []
            events: Sequence[bytes] = framer.advance(count)
            if events:
                self.has_successor |= events[-1][layout.TYPE] == ROTATE
                self.brings_format = framer.has_format or not self._has_format
                return events if self._has_format else self._first(list(events))

    def _begun(self) -> FileFramer | None:
        """The framer, behind the file's magic bytes; None while the file has none yet."""
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
                f"{self.path} is not a binlog file", position=f"{self.path.name}:0", remedy="Such a file begins with fe 62 69 6e."
            )
        if len(magic) < len(MAGIC):
            return None
        self._framer = FileFramer(buffer_bytes=BUFFER_BYTES if self.start == layout.FIRST else _HEAD_BYTES)
        return self._framer

    def _check_start(self) -> None:
        """Does an event begin at the offset at which reading began? Of those behind it the decoder sees whether they fit."""
        header = os.pread(self._file.fileno(), layout.HEADER, self.start)
        size, says = _lengths(header)
        end = self.start + size
        # MariaDB from 11.4 on does not say inside a transaction where an event ends; such a start is one that was read.
        fits = says == end & 0xFFFFFFFF if says else end <= self.size
        if len(header) == layout.HEADER and not (fits and size >= layout.HEADER):
            raise self._no_start()
        if 0 < len(header) < layout.HEADER and not self._is_start_proved:
            if not self._is_boundary():
                raise self._no_start()
            self._is_start_proved = True

    def _is_boundary(self) -> bool:
        """Whether the event before the start ends there, by the lengths of all of them."""
        at, size = layout.FIRST, layout.HEADER
        while at < self.start and size >= layout.HEADER:
            size = _lengths(os.pread(self._file.fileno(), layout.HEADER, at))[0]
            at += size
        return at == self.start

    def _no_start(self) -> PositionLostError:
        return PositionLostError(
            f"no event begins in {self.path} at offset {self.start}",
            reason=LostReason.BEYOND,
            position=f"{self.path.name}:{self.start}",
            remedy="The file is not the same, is damaged there, or is still being copied.",
        )

    def _check_rest(self, framer: FileFramer) -> None:
        """Is the event that is not whole at the end of the file one that is still being written, or is its length damaged?"""
        header = os.pread(self._file.fileno(), layout.HEADER, framer.offset)
        size, says = _lengths(header)
        is_wrong = says and says != framer.offset + size & 0xFFFFFFFF
        if len(header) == layout.HEADER and is_wrong and not header[layout.FLAGS] & ARTIFICIAL_F:
            raise self._placed(
                DecodeError(
                    f"an event of {size} bytes says that it ends at {says}",
                    event_type=header[layout.TYPE],
                    remedy="The file is damaged there.",
                ),
                framer.offset,
            )

    def _encrypted(self) -> UnsupportedError:
        return UnsupportedError(
            f"{self.path} is encrypted",
            event_type=START_ENCRYPTION,
            position=f"{self.path.name}:0",
            remedy="Read from the server, which decrypts what it sends.",
        )

    def _first(self, events: list[bytes]) -> list[bytes]:
        """Check the head of the file, and go on at ``start`` where that is further behind."""
        head = events[0]
        kind = head[layout.TYPE]
        if kind != FORMAT_DESCRIPTION:
            raise UnsupportedError(
                f"{self.path} does not begin with a FORMAT_DESCRIPTION event but with type {kind}",
                event_type=kind,
                position=f"{self.path.name}:{layout.FIRST}",
                remedy="MySQL before 5.0 wrote it; it holds no rows." if kind == START_EVENT_V3 else "The file's head is lost.",
            )
        try:
            form = parse_format(head)
            check_format(head, form)  # a reading from the middle begins with a new checksum
        except DecodeError as error:
            raise self._placed(error, layout.FIRST) from error
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

    def _placed(self, error: CanalError, offset: int) -> CanalError:
        error.message = f"{self.path}: {error.message}"
        error.position = f"{self.path.name}:{offset}"
        return error

    @property
    def size(self) -> int:
        """Bytes of the open file, whatever has its name now."""
        return os.fstat(self._file.fileno()).st_size

    def has_more(self) -> bool:
        """Whether the file has grown since the last read.

        Raises ConnectionLostError where it has shrunk: a server that starts after a crash cuts what is not whole. What was
        read is then held against the file.
        """
        size, at = self.size, self._file.tell()
        if size < at:
            raise ConnectionLostError(f"{self.path} was cut to {size} bytes when {at} were read")
        return size > at

    def is_there(self) -> bool | None:
        """Whether the open file still has its name; None where no file has it."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        except OSError:
            return None

    def check_tail(self) -> None:
        """Say what becomes of an event that is not whole, now that the file will not grow."""
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
                remedy="The file was cut or is still being copied.",
            )
        if not self._warned:
            self._warned = True
            log.warning(
                "%s ends inside the event at offset %d: the server has it open, or stopped while it wrote", self.path, offset
            )

    def read_format(self) -> Format | None:
        """What the file's head says; None while there is none."""
        try:
            events = self.read()
            return parse_format(events[0]) if events else None
        finally:
            self.close()

    def read_time(self) -> int | None:
        """When the file was begun, in seconds; None while it has no head."""
        try:
            events = self.read()
            return int.from_bytes(events[0][: layout.TYPE], "little") if events else None
        finally:
            self.close()

    def close(self) -> None:
        self._file.close()


def _lengths(header: bytes) -> tuple[int, int]:
    """The bytes of an event, and where it ends, as its header says."""
    size, end = header[layout.SIZE : layout.END], header[layout.END : layout.FLAGS]
    return int.from_bytes(size, "little"), int.from_bytes(end, "little")
