"""A file with two alternating slots, for cursors that moved since the last write of the complete state.

Create the file once. An update is one write and one sync of preallocated blocks.

A slot begins with a checksum header. A write overwrites the older slot, so the last synced slot survives a failed write.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import struct
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from canal._util.disk import private, sync_folder
from canal.errors import CursorError
from canal.position import Position

_MAGIC: Final = b"canal c1"
#: Magic, write number, body size, and SHA-256 of header and body.
_HEAD: Final = struct.Struct("<8sQI32s")
_BLOCK: Final = 4096
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class CursorFile:
    """The cursor file, open for writing from the first ``write`` to ``close``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._slot_bytes = 0
        self._number = 0

    def write(self, base: str, cursors: Mapping[int, Position]) -> None:
        """Write and sync the cursors. They are valid only with the complete state named ``base``.

        Raises:
            OSError: the write failed, or the cursors do not fit. The previous slot is still valid; write the complete state.
        """
        self._number += 1
        record = _record(self._number, base, cursors)
        if self._file is None:
            self._file = self._make(record)
        if len(record) > self._slot_bytes or not self._has_name(self._file):
            self.close()  # the next write recreates the file, once its content is obsolete
            raise OSError(errno.EFBIG, "the file of cursors is too small, or is not there any more")
        if os.pwrite(self._file, record, self._number % 2 * self._slot_bytes) < len(record):
            raise OSError(errno.ENOSPC, "not all of a cursor could be written")
        os.fdatasync(self._file)

    def read(self, base: str) -> dict[int, Position]:
        """Return the cursors for that state; {} if there are none."""
        try:
            with open(self._path, "rb", opener=private) as file:
                data = file.read()
        except FileNotFoundError:
            return {}
        half = len(data) // 2
        found = [one for one in map(_load, (data[:half], data[half:])) if one is not None and one[1] == base]
        return max(found, key=lambda one: one[0])[2] if found else {}

    def clear(self) -> None:
        """Invalidate the slots: the complete state includes them, and a restored older state must not use them."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                for slot in (0, 1):
                    os.pwrite(self._file, bytes(_HEAD.size), slot * self._slot_bytes)

    def remove(self) -> None:
        """Clear and remove the file."""
        self.close()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _make(self, record: bytes) -> int:
        """Create the file with all blocks allocated. An existing file must be obsolete."""
        self._slot_bytes = -(-2 * len(record) // _BLOCK) * _BLOCK
        file = private(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            os.pwrite(file, bytes(2 * self._slot_bytes), 0)
            os.fsync(file)
            sync_folder(self._path.parent)
        except BaseException:
            os.close(file)
            raise
        return file

    def _has_name(self, file: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(file))
        except OSError:
            return False


def _record(number: int, base: str, cursors: Mapping[int, Position]) -> bytes:
    texts = {str(client_id): position.to_text() for client_id, position in cursors.items()}
    body = _encode({"base": base, "cursors": texts}).encode("ascii")
    return _HEAD.pack(_MAGIC, number, len(body), _digest(number, body)) + body


def _load(slot: bytes) -> tuple[int, str, dict[int, Position]] | None:
    """Return number, base and cursors of a slot; None if it is empty or damaged."""
    if len(slot) < _HEAD.size:
        return None
    magic, number, size, digest = _HEAD.unpack_from(slot)
    body = slot[_HEAD.size : _HEAD.size + size]
    if magic != _MAGIC or len(body) != size or digest != _digest(number, body):
        return None
    try:
        document = json.loads(body)
        cursors = {int(client_id): Position.from_text(text) for client_id, text in document["cursors"].items()}
        return number, document["base"], cursors
    except (ValueError, KeyError, TypeError, AttributeError, CursorError):
        return None


def _digest(number: int, body: bytes) -> bytes:
    return sha256(number.to_bytes(8, "little") + body).digest()
