"""Converts events of a file to the form in which a server sends them: artificial ROTATE, FORMAT_DESCRIPTION.

Never reads a file.
"""

from __future__ import annotations

import zlib

from canal.binlog import event_layout as layout
from canal.binlog.event_types import ARTIFICIAL_F, ROTATE
from canal.parse.log.events import Format, as_closed, put


def rotate_event(journal: str, offset: int, *, checksum: bool) -> bytes:
    """Return an artificial ROTATE event: the next journal and offset."""
    name = journal.encode("utf-8", "surrogateescape")
    size = layout.ROTATE_NAME + len(name) + layout.CHECKSUM * checksum
    head = bytes(4) + bytes((ROTATE,)) + bytes(4) + size.to_bytes(4, "little") + bytes(4) + bytes((ARTIFICIAL_F, 0))
    return _sealed(head + offset.to_bytes(8, "little") + name, checksum)


def _sealed(event: bytes, checksum: bool) -> bytes:
    return event + zlib.crc32(event).to_bytes(4, "little") if checksum else event


def as_resent(event: bytes, form: Format) -> bytes:
    """Return a FORMAT_DESCRIPTION for the middle of a file, without an end position and without the sign of a restart."""
    plain = as_closed(event)
    plain = put(put(plain, layout.END, bytes(4)), layout.FORMAT_CREATED, bytes(4))
    return _sealed(plain[: -layout.CHECKSUM], True) if form.knows_checksums else plain
