"""The CRC-32 of binlog events.

Never compiled itself: crc.pxd beside it has the same names as inline functions, and a test compares the two.
"""

import zlib


def setup() -> None:
    """Choose how to count by what the processor can do; call it once in each module that checks events."""


def crc32(p: bytes, size: int) -> int:
    """zlib's CRC-32 of the first ``size`` bytes."""
    return zlib.crc32(p if len(p) == size else p[:size])
