"""The CRC-32 of binlog events.

Never compiled: crc.pxd has inline functions with the same names, and a test compares the two.
"""

import zlib


def setup() -> None:
    """Select the implementation for this processor. Call once in each module that verifies events."""


def crc32(p: bytes, size: int) -> int:
    """Return zlib's CRC-32 of the first ``size`` bytes."""
    return zlib.crc32(p if len(p) == size else p[:size])
