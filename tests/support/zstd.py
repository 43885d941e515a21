"""Zstandard: Python's own from 3.15 on, the package zstandard before."""

from __future__ import annotations

import sys
from collections.abc import Iterable

if sys.version_info >= (3, 15):
    from compression import zstd

    def compress(pieces: Iterable[bytes]) -> bytes:
        """One frame of all the pieces."""
        packer = zstd.ZstdCompressor()
        return b"".join([*map(packer.compress, pieces), packer.flush()])

else:
    import zstandard

    def compress(pieces: Iterable[bytes]) -> bytes:
        """One frame of all the pieces."""
        packer = zstandard.ZstdCompressor().compressobj()
        return b"".join([*map(packer.compress, pieces), packer.flush()])
