"""What the row decoder leaves to the C API where it is compiled: kinds as constants, tuples, dates, floats, digits.

Never compiled itself: native.pxd beside it has the same names as inline functions, and a test compares the two.
"""

import datetime
import struct

#: What to do with a column's bytes. native.pxd repeats these as a C enum; the order puts the common kinds first.
(
    NULL,
    I8, U8, I16, U16, I24, U24, I32, U32, I64, U64,
    UTF8, ASCII, CODEC, BYTES, PADDED,
    FLOAT, DOUBLE, DECIMAL, YEAR, DATE, DATETIME, TIMESTAMP, TIME,
    ENUM, SET, NUMBER, BIT, JSON, UUID, INET6, INET4,
    OLD_TIME, OLD_DATETIME, OLD_TIMESTAMP, HIRES_TIME, HIRES_DATETIME, HIRES_TIMESTAMP,
    JSON_DIFFS, JSON_TEXT, COMPRESSED,
) = range(41)  # fmt: skip

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


def setup():
    """Load the C API of datetime; call it once in each module that makes dates."""


def tuple_new(size):
    """A tuple to be filled once, every slot of it, before anybody else sees it."""
    return [None] * size


def tuple_set(values, slot, value):
    values[slot] = value


def tuple_done(values):
    return tuple(values)


def date_new(year, month, day):
    return datetime.date(year, month, day)


def datetime_new(year, month, day, hour, minute, second, micro, zone):
    return datetime.datetime(year, month, day, hour, minute, second, micro, zone)


def timedelta_new(seconds, micros):
    return datetime.timedelta(0, seconds, micros)


def i32(p, i):
    return int.from_bytes(p[i : i + 4], "little", signed=True)


def i64(p, i):
    return int.from_bytes(p[i : i + 8], "little", signed=True)


def le_any(p, i, n):
    """The ``n``-byte (1 to 8) little-endian unsigned integer at ``i``."""
    return int.from_bytes(p[i : i + n], "little")


def f32(p, i):
    return _FLOAT.unpack_from(p, i)[0]


def f64(p, i):
    return _DOUBLE.unpack_from(p, i)[0]


def to_f32(value):
    """The nearest float32."""
    try:
        return _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def is_ascii(p, start, end):
    return p[start:end].isascii()


def decimal_text(p, start, groups, count, scale):
    """Text of a DECIMAL of ``count`` groups of digits, each a (bytes, digits) pair of ``groups``; None if it is none.

    The sign is the highest bit, set for positive ones; all bits of negative ones are inverted. A decimal point goes
    before the last ``scale`` digits, and at least one digit before that.
    """
    first = p[start]
    flip = 0 if first & 0x80 else -1
    digits = ""
    for i in range(count):
        size = groups[2 * i]
        value = int.from_bytes(p[start : start + size], "big")
        if i == 0:
            value ^= 0x80 << (8 * (size - 1))
        value = (value ^ flip) & ((1 << 8 * size) - 1)
        text = "%0*d" % (groups[2 * i + 1], value)
        if len(text) > groups[2 * i + 1]:
            return None
        digits += text
        start += size
    whole = digits[: len(digits) - scale].lstrip("0") or "0"
    sign = "-" if flip else ""
    return f"{sign}{whole}.{digits[len(digits) - scale :]}" if scale else sign + whole
