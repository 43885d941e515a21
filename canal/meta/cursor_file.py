"""Cursors that moved since the file of the whole state was written, in two slots of one file that are written in turn.

Never makes a name on a disk but once: a cursor costs one write and one sync of bytes that the file has already.

A slot begins with what tells whether it is whole. The one that is overwritten is never the newest, so what was synced last is
there whatever becomes of the write under way.
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
#: Magic, number of the write, bytes of the body, SHA-256 of all that and the body.
_HEAD: Final = struct.Struct("<8sQI32s")
_BLOCK: Final = 4096
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class CursorFile:
    """The file, open for writing from the first ``write`` to ``close``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._slot_bytes = 0
        self._number = 0

    def write(self, base: str, cursors: Mapping[int, Position]) -> None:
        """Have the cursors on the disk; they count with that whole state only whose name is ``base``.

        Raises:
            OSError: also where they do not fit. What was written last still counts; write the whole state.
        """
        self._number += 1
        record = _record(self._number, base, cursors)
        if self._file is None:
            self._file = self._make(record)
        if len(record) > self._slot_bytes or not self._has_name(self._file):
            self.close()  # the next one makes it anew, when nothing in it counts any more
            raise OSError(errno.EFBIG, "the file of cursors is too small, or is not there any more")
        if os.pwrite(self._file, record, self._number % 2 * self._slot_bytes) < len(record):
            raise OSError(errno.ENOSPC, "not all of a cursor could be written")
        os.fdatasync(self._file)

    def read(self, base: str) -> dict[int, Position]:
        """The cursors that count with that state; {} where there are none."""
        try:
            with open(self._path, "rb", opener=private) as file:
                data = file.read()
        except FileNotFoundError:
            return {}
        half = len(data) // 2
        found = [one for one in map(_load, (data[:half], data[half:])) if one is not None and one[1] == base]
        return max(found, key=lambda one: one[0])[2] if found else {}

    def clear(self) -> None:
        """The whole state holds all of it: so that a copy of an earlier one, put in its stead, does not get what is here."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                for slot in (0, 1):
                    os.pwrite(self._file, bytes(_HEAD.size), slot * self._slot_bytes)

    def remove(self) -> None:
        """As ``clear``, and for good."""
        self.close()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _make(self, record: bytes) -> int:
        """A file under that name whose blocks are all there. Nothing that counts is in the one that had it."""
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
    """Number, base and cursors of a slot; None where it is empty or not whole."""
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
