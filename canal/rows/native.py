"""What the row decoder leaves to the C API where it is compiled: kinds as constants, tuples, dates, floats, digits.

Never compiled itself: native.pxd beside it has the same names as inline functions, and a test compares the two.
"""

import datetime
import decimal
import math
import struct

#: What to do with a column's bytes. native.pxd repeats these as a C enum; the order puts the common kinds first.
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

#: Exact for every DECIMAL, whatever the user's context says; a method of a context takes one argument, which is quick.
make_decimal = decimal.Context(prec=100, Emin=-1000, Emax=1000, traps=[decimal.Inexact]).create_decimal

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


def setup():
    """Load what C knows of dates and decimals; call it once in each module that makes some."""


def tuple_new(size, leaf):
    """A tuple to be filled once, every slot of it, before anybody else sees it; ``leaf``: of nothing that holds others."""
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
    """The nearest number of single precision."""
    try:
        return _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


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


def ascii_text(p, start, end):
    return p[start:end].decode("ascii")


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


def decimal_new(p, start, groups, count, scale):
    """The Decimal whose text :func:`decimal_text` gives; None if it is none."""
    text = decimal_text(p, start, groups, count, scale)
    return None if text is None else make_decimal(text)


def put_decimal(to, at, width, p, start, groups, count):
    """Write a DECIMAL, without its point, as a little-endian integer of ``width`` bytes; False if it is none.

    ``groups`` and ``count`` as for :func:`decimal_text`.
    """
    text = decimal_text(p, start, groups, count, 0)
    if text is None:
        return False
    to[at : at + width] = int(text).to_bytes(width, "little", signed=True)
    return True


def resize(buffer, size):
    """Make a bytearray this long; what it is longer by holds anything."""
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
    """Whether the bytes are UTF-8 as Python and Arrow have it: no surrogates, nothing longer than it must be."""
    try:
        p[start:end].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def utf8_text(p, start, end):
    """The text that UTF-8 stands for; None where the bytes are none."""
    try:
        return p[start:end].decode("utf-8")
    except UnicodeDecodeError:
        return None


def put_utf8(to, at, p, start, end, table):
    """Write bytes of a single-byte character set as UTF-8 and give how many that are; -1 if one is no character.

    ``table`` has four bytes for each of the 256: how many its UTF-8 has, 0 for none, and these.
    """
    first = at
    for byte in p[start:end]:
        size = table[4 * byte]
        if size == 0:
            return -1
        to[at : at + size] = table[4 * byte + 1 : 4 * byte + 1 + size]
        at += size
    return at - first
