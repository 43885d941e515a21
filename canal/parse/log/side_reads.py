"""Verifies events read over a side connection, as the decoder verifies the events of the stream.

Never decodes rows, and never reads anything.
"""

from __future__ import annotations

import zlib

from canal.binlog import event_layout as layout
from canal.binlog.event_types import ARTIFICIAL_F, FORMAT_DESCRIPTION, HEADS, HEARTBEATS, ROTATE, event_name
from canal.errors import DecodeError, SourceError, TruncatedError
from canal.parse.log.events import CRC_RESIDUE, DAMAGED, Format, check_format, checksum_error, parse_format


class SideRead:
    """Checks length, end offset, CRC32 and log name of events that are read from ``offset`` on.

    Raises:
        DecodeError: an event fails a check; ``position`` is set.
    """

    def __init__(self, journal: str, offset: int) -> None:
        self._journal = journal
        self._offset = max(offset, layout.FIRST)
        self._format: Format | None = None

    def check(self, event: bytes) -> bytes:
        """Verify and return the next event."""
        at = self._offset
        try:
            self._check(event, event[layout.TYPE] if len(event) >= layout.HEADER else 0)
        except SourceError as error:
            error.position = f"{self._journal}:{at}"
            raise
        return event

    def _check(self, event: bytes, kind: int) -> None:
        size = len(event)
        if size < layout.HEADER or int.from_bytes(event[layout.SIZE : layout.END], "little") != size:
            raise TruncatedError(f"an event of {size} bytes has another length in its header", remedy=DAMAGED)
        if kind == FORMAT_DESCRIPTION:
            self._format = parse_format(event)
            check_format(event, self._format)
        elif self._format is None:
            if kind != ROTATE:
                raise DecodeError(f"{event_name(kind)} before the FORMAT_DESCRIPTION of its log", event_type=kind, remedy=DAMAGED)
        elif self._format.checksum and (size < layout.HEADER + layout.CHECKSUM or zlib.crc32(event) != CRC_RESIDUE):
            raise checksum_error(event)
        if kind not in HEARTBEATS:
            self._move(event, kind)

    def _move(self, event: bytes, kind: int) -> None:
        end = int.from_bytes(event[layout.END : layout.FLAGS], "little")
        if kind == ROTATE and (not end or event[layout.FLAGS] & ARTIFICIAL_F or self._format is None):
            self._enter(event)
        elif end == 0 or event[layout.FLAGS] & ARTIFICIAL_F:
            self._offset += 0 if kind in HEADS else len(event)  # MariaDB 11.4 and later write no ends inside a transaction
        else:
            self._offset = (layout.FIRST if kind == FORMAT_DESCRIPTION else self._offset) + len(event)
            if self._offset & 0xFFFFFFFF != end:
                raise DecodeError(
                    f"{event_name(kind)} of {len(event)} bytes has the end offset {end} instead of {self._offset}",
                    event_type=kind,
                    remedy=DAMAGED,
                )

    def _enter(self, event: bytes) -> None:
        """Process a ROTATE that a server sends before a log. Before the FORMAT_DESCRIPTION, it may or may not have a CRC32."""
        name = event[layout.ROTATE_NAME :]
        if self._format is None:
            first = self._journal.encode("utf-8", "surrogateescape")
            if self._offset <= 0xFFFFFFFF and (not name.startswith(first) or len(name) - len(first) not in (0, layout.CHECKSUM)):
                raise DecodeError(f"the server sent another log than {self._journal}", event_type=ROTATE, remedy=DAMAGED)
            if int.from_bytes(event[layout.ROTATE_OFFSET : layout.ROTATE_NAME], "little") > self._offset:
                raise DecodeError("the server sent the log from a later offset", event_type=ROTATE, remedy=DAMAGED)
            return
        name = name[: -layout.CHECKSUM] if self._format.checksum else name
        self._journal = name.rstrip(b"\0").decode("utf-8", "surrogateescape")
        self._offset = int.from_bytes(event[layout.ROTATE_OFFSET : layout.ROTATE_NAME], "little")
