"""Zstandard: Python's module since 3.15, or the package zstandard. Decompresses piece by piece to bound memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import BytesIO

if sys.version_info >= (3, 15):
    from compression import zstd

    def compress(data: bytes) -> bytes:
        return zstd.compress(data)

    def inflate(data: bytes, size: int) -> Iterator[bytes]:
        """Return the decompressed frames in pieces of up to ``size`` bytes. Raise ValueError if they are damaged."""
        try:
            with zstd.ZstdFile(BytesIO(data)) as reader:
                while piece := reader.read(size):
                    yield piece
        except (zstd.ZstdError, EOFError) as error:
            raise ValueError(str(error)) from error
else:
    import zstandard

    def compress(data: bytes) -> bytes:
        return zstandard.ZstdCompressor().compress(data)

    def inflate(data: bytes, size: int) -> Iterator[bytes]:
        """What frames hold, in pieces of at most so many bytes. Raises ValueError where they are damaged."""
        try:
            with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
                while piece := reader.read(size):
                    yield piece
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
