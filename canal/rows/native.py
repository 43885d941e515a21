"""Helpers that the compiled row decoder implements with the C API: kinds, tuples, dates, floats and digits.

native.pxd has the same names as inline functions, and a test compares both.
"""

import datetime
import decimal
import math
import struct

#: How to decode a column. native.pxd repeats these as a C enum. Common kinds come first.
(
    NULL,
    I8,
    U8,
    I16,
    U16,
    I24,
    U24,
    I32,
    U32,
    I64,
    U64,
    UTF8,
    ASCII,
    CODEC,
    BYTES,
    PADDED,
    FLOAT,
    DOUBLE,
    DECIMAL,
    YEAR,
    DATE,
    DATETIME,
    TIMESTAMP,
    TIME,
    ENUM,
    SET,
    NUMBER,
    BIT,
    JSON,
    UUID,
    INET6,
    INET4,
    OLD_TIME,
    OLD_DATETIME,
    OLD_TIMESTAMP,
    HIRES_TIME,
    HIRES_DATETIME,
    HIRES_TIMESTAMP,
    JSON_DIFFS,
    JSON_TEXT,
    COMPRESSED,
    MASKED,
) = range(42)

#: Exact for every DECIMAL, independent of the user's context. A context method accepts one argument, which is fast.
make_decimal = decimal.Context(prec=100, Emin=-1000, Emax=1000, traps=[decimal.Inexact]).create_decimal

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


def setup():
    """Load the C API for dates and decimals. Call it once per module that needs it."""


def tuple_new(size, leaf):
    """Create a tuple. Fill all slots before sharing it. ``leaf``: its values contain no objects."""
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


def single(value):
    """Return the nearest single precision number."""
    try:
        return _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def i32(p, i):
    return int.from_bytes(p[i : i + 4], "little", signed=True)


def i64(p, i):
    return int.from_bytes(p[i : i + 8], "little", signed=True)


def le_any(p, i, n):
    """Return the ``n``-byte (1 to 8) little-endian unsigned integer at ``i``."""
    return int.from_bytes(p[i : i + n], "little")


def f32(p, i):
    return _FLOAT.unpack_from(p, i)[0]


def f64(p, i):
    return _DOUBLE.unpack_from(p, i)[0]


def to_f32(value):
    """Return the nearest float32."""
    try:
        return _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def is_ascii(p, start, end):
    return p[start:end].isascii()


def ascii_text(p, start, end):
    return p[start:end].decode("ascii")


def decimal_text(p, start, groups, count, scale):
    """Return the text of a DECIMAL with ``count`` digit groups, (bytes, digits) pairs in ``groups``; None if invalid.

    The highest bit is set for positive values; negative values are inverted. The text has ``scale`` digits after the point and
    at least one before.
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


def decimal_new(p, start, groups, count, scale):
    """Return the Decimal for :func:`decimal_text`; None if invalid."""
    text = decimal_text(p, start, groups, count, scale)
    return None if text is None else make_decimal(text)


def put_decimal(to, at, width, p, start, groups, count):
    """Write a DECIMAL without point as a little-endian integer with ``width`` bytes. Return False if invalid.

    ``groups`` and ``count``: see :func:`decimal_text`.
    """
    text = decimal_text(p, start, groups, count, 0)
    if text is None:
        return False
    to[at : at + width] = int(text).to_bytes(width, "little", signed=True)
    return True


def resize(buffer, size):
    """Resize a bytearray. New bytes are uninitialized."""
    if size < len(buffer):
        del buffer[size:]
    else:
        buffer.extend(bytes(size - len(buffer)))


def put16(to, at, value):
    to[at : at + 2] = (value & 0xFFFF).to_bytes(2, "little")


def put32(to, at, value):
    to[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")


def put64(to, at, value):
    to[at : at + 8] = (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")


def copy(to, at, p, start, size):
    to[at : at + size] = p[start : start + size]


def zero(to, at, size):
    to[at : at + size] = bytes(size)


def is_utf8(p, start, end):
    """Return whether the bytes are valid UTF-8 for Python and Arrow: no surrogates or overlong forms."""
    try:
        p[start:end].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def utf8_text(p, start, end):
    """Decode UTF-8; return None if invalid."""
    try:
        return p[start:end].decode("utf-8")
    except UnicodeDecodeError:
        return None


def put_utf8(to, at, p, start, end, table):
    """Write single-byte text as UTF-8 and return the size; -1 if a byte is invalid.

    ``table`` has four bytes for each of the 256 codes: size in UTF-8 (0 if invalid) and the bytes.
    """
    first = at
    for byte in p[start:end]:
        size = table[4 * byte]
        if size == 0:
            return -1
        to[at : at + size] = table[4 * byte + 1 : 4 * byte + 1 + size]
        at += size
    return at - first
