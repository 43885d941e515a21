"""Little-endian and big-endian integers in a buffer.

Except for ``packed``, bounds are the caller's responsibility. ``p`` is a C pointer if compiled, else bytes-like.
"""

from canal.errors import DecodeError, TruncatedError


def u16(p, i):
    return p[i] | p[i + 1] << 8


def u24(p, i):
    return p[i] | p[i + 1] << 8 | p[i + 2] << 16


def u32(p, i):
    return p[i] | p[i + 1] << 8 | p[i + 2] << 16 | p[i + 3] << 24


def u48(p, i):
    return u32(p, i) | u16(p, i + 4) << 32


def u64(p, i):
    return u32(p, i) | u32(p, i + 4) << 32


def be16(p, i):
    return p[i] << 8 | p[i + 1]


def be24(p, i):
    return p[i] << 16 | p[i + 1] << 8 | p[i + 2]


def be32(p, i):
    return be16(p, i) << 16 | be16(p, i + 2)


def be40(p, i):
    return p[i] << 32 | be32(p, i + 1)


def be48(p, i):
    return be16(p, i) << 32 | be32(p, i + 2)


def be_any(p, i, n):
    """Return the ``n``-byte (1 to 8) big-endian unsigned integer at ``i``."""
    value = 0
    end = i + n
    while i < end:
        value = value << 8 | p[i]
        i += 1
    return value


def same(p, i, q, j, n):
    """Return whether ``n`` bytes at ``i`` equal those in ``q`` at ``j``."""
    return p[i : i + n] == q[j : j + n]


def piece(p, i, end):
    """Copy the bytes from ``i`` to ``end``."""
    return bytes(p[i:end])


def part(p, i, end):
    """Return the bytes from ``i`` to ``end``; compiled, a pointer."""
    return bytes(p[i:end])


def packed(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a length-encoded integer at ``at`` and the index after it."""
    if at >= end:
        raise TruncatedError("a packed integer runs past the end of its event")
    first = data[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}.get(first)
    if width is None:
        raise DecodeError(f"{first:#x} does not begin a packed integer")
    if at + 1 + width > end:
        raise TruncatedError("a packed integer runs past the end of its event")
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width
