"""Functions that write values as JSON or Avro bytes: the interpreted version of ``put.pxd``.

Never compiled: ``put.pxd`` has the same names as inline C functions, for the compiled row writer. A test compares the two.
Each function writes at an index in a buffer with enough room, and returns the index after the written bytes.
"""

import base64 as _base64
from json.encoder import encode_basestring, encode_basestring_ascii

from canal.rows import native

#: How to turn a value into bytes. OTHER calls a Python function.
(
    OTHER,
    INTEGER,
    QUOTED_INTEGER,
    ASCII_TEXT,
    UTF8_TEXT,
    DECIMAL_TEXT,
    DECIMAL_NUMBER,
    DECIMAL_BASE64,
    MOMENT,
    DAY,
    EPOCH,
    BASE64,
    REAL,
    LABELS,
    AVRO_LONG,
    AVRO_TEXT,
    AVRO_BYTES,
    AVRO_DECIMAL,
    AVRO_MOMENT,
    AVRO_EPOCH,
    AVRO_REAL,
) = range(21)
#: For MOMENT: the number of fraction digits (7: six, or none if the fraction is zero), and flags.
DIGITS, MIDDLE_T, IN_UTC, WITH_ZONE, WITH_Z = 7, 8, 16, 32, 64
#: For EPOCH: the unit since 1970.
MICROS, MILLIS, NANOS, DAYS = range(4)
#: Flag for Avro styles: the column's type is a union with null.
OPTIONAL = 128
#: Program steps: see ``row_writer.Program``.
TEXT, LITERAL, ORD, NUMBER, ZIGZAG, AFTER, BEFORE, CHANGED, KEY, KEY_BEFORE, PRESENT, LAST, BINARY = range(13)
#: Flags for REAL: add quotes; accept only numbers that Java and Python format alike.
QUOTED, LIKE_JAVA = 1, 2


def _put(to, at, text):
    to[at : at + len(text)] = text
    return at + len(text)


def unsigned(to, at, value):
    return _put(to, at, b"%d" % value)


def integer(to, at, value):
    return _put(to, at, b"%d" % value)


def zigzag(to: bytearray, at: int, value: int) -> int:
    """Write a 64-bit integer in Avro's zigzag encoding: seven bits per byte, low bits first, the sign in the lowest bit."""
    value = value << 1 ^ value >> 63
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return _put(to, at, found)


def ascii_string(to, at, p, start, end):
    """Write UTF-8 text as a JSON string in ASCII."""
    return _put(to, at, encode_basestring_ascii(str(p[start:end], "utf-8")).encode())


def utf8_string(to, at, p, start, end):
    """Write UTF-8 text as a JSON string in UTF-8."""
    return _put(to, at, encode_basestring(str(p[start:end], "utf-8")).encode())


def base64(to, at, p, start, end):
    return _put(to, at, _base64.b64encode(p[start:end]))


def moment(to, at, year, month, day, second, micros, form):
    """Write a date, then the time of day in seconds unless ``second`` is negative."""
    text = f"{year:04}-{month:02}-{day:02}"
    if second >= 0:
        text += f"{'T' if form & MIDDLE_T else ' '}{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        digits = form & DIGITS
        if digits == 7:
            digits = 6 if micros else 0
        text += f".{micros:06}"[: digits + 1] if digits else ""
    return _put(to, at, text.encode())


def real(to, at, value):
    """Write the shortest digits that parse back to the same finite number."""
    return _put(to, at, repr(value).encode())


def decimal(to, at, p, start, groups, count, scale):
    """Write a DECIMAL like ``native.decimal_text``, or return -1 if the bytes are not a DECIMAL."""
    text = native.decimal_text(p, start, groups, count, scale)
    return -1 if text is None else _put(to, at, text.encode())


def unscaled(to, at, p, start, groups, count):
    """Write a DECIMAL's unscaled value like Java's BigInteger: big-endian, in as few bytes as possible.

    Return -1 if the bytes are not a DECIMAL.
    """
    text = native.decimal_text(p, start, groups, count, 0)
    if text is None:
        return -1
    number = int(text)
    return _put(to, at, number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True))
