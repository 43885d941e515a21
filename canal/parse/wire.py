"""Little-endian and big-endian integers at an index of a buffer.

Never checks bounds: callers do, once for a run of fields. Compiled, ``p`` is a C pointer; interpreted, any bytes-like.
"""


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
    """The ``n``-byte (1 to 8) big-endian unsigned integer at ``i``."""
    value = 0
    end = i + n
    while i < end:
        value = value << 8 | p[i]
        i += 1
    return value
