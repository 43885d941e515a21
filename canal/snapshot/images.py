# cython: language_level=3, cdivision=True
# cdivision: only non-negative integers are divided here, where C and Python agree.
"""Converts the rows of a text answer to row images of the binary log.

Never trusts a length: each value is checked. Compiled if a C compiler was available at installation.
"""

import struct

from canal.errors import DecodeError, TruncatedError
from canal.rows import native, wire

try:
    import cython  # noqa: F401
except ModuleNotFoundError:
    from canal._util import interpreted as cython  # noqa: F401

#: Size of a packet that continues in the next packet, and the maximum size of a row.
_LARGE = 0xFFFFFF
_MOST = 1 << 31
#: First byte of NULL, of the end of the rows, and of an error.
_NULL, _END, _ERROR = 0xFB, 0xFE, 0xFF
#: The packet at the end of the rows is shorter.
_END_SIZE = 9
#: Maximum bytes of a value other than text, with padding.
_FIXED = 40
_DATETIME_ZERO = 0x8000000000
#: Bounds of a number with 20 digits.
_TEN_19, _LARGEST = 10**19, 0xFFFFFFFFFFFFFFFF
#: Days from 0000-03-01 to 1970-01-01.
_EPOCH = 719468
_SINGLE, _DOUBLE = struct.Struct("<f").pack, struct.Struct("<d").pack


class RowImages:
    """Collects row images.

    Args:
        kinds: the kind of each column in ``canal.rows.native``: I64, U64 (integers of 1 to 8 bytes), FLOAT,
            DOUBLE, DECIMAL, YEAR, DATE, DATETIME, TIMESTAMP, TIME, BIT, and BYTES with a length of four bytes.
        params: bytes of integers and BIT, digits after the second, scale of DECIMAL.
        groups: groups of DECIMAL digits as (bytes, digits) pairs.
        number: sequence number of the first packet.

    Attributes:
        rows: number of images since the last ``take``.
        last: the packet at the end of the rows.
    """

    def __init__(self, kinds, params, groups, number):
        self._kinds = kinds
        self._params = params
        self._groups = tuple(groups)
        self._count = len(kinds)
        self._null_bytes = (self._count + 7) // 8
        self._images = bytearray()
        self._number = number & 0xFF
        self._rest = b""
        self._parts = []
        self.size = 0
        self.rows = 0
        self.last = b""

    def take(self) -> bytes:
        """Return the images, and clear the buffer."""
        made = bytes(self._images[: self.size])
        self.size = self.rows = 0
        return made

    def feed(self, received: bytes) -> int:
        """Add received bytes. Return the minimum number of bytes to receive next, or 0 after the last row.

        Raises:
            DecodeError: the bytes are not rows of these columns.
        """
        data = self._rest + received if self._rest else received
        p = data
        end = len(data)
        at = 0
        while True:
            need = at + 4 - end
            if need > 0:
                break
            size = wire.u24(p, at)
            need = at + 4 + size - end
            if need > 0:
                break
            if p[at + 3] != self._number:
                raise DecodeError("the packets of an answer are not in order")
            self._number = (self._number + 1) & 0xFF
            start = at + 4
            at = start + size
            if size == _LARGE or self._parts:
                self._join(data[start:at])
            elif size and (p[start] == _ERROR or p[start] == _END and size < _END_SIZE):
                self.last = data[start:at]
                if at < end:
                    raise DecodeError("more than an answer came")
                return 0
            else:
                self._row(data, start, at)
        self._rest = data[at:]
        return need

    def _join(self, part):
        """Add a part of a row that is larger than a packet."""
        self._parts.append(part)
        if sum(map(len, self._parts)) >= _MOST:
            raise DecodeError("a row of an answer has more than 2 GiB")
        if len(part) < _LARGE:
            row = b"".join(self._parts)
            self._parts.clear()
            self._row(row, 0, len(row))

    def _row(self, data, at, end):
        p = data
        kinds = self._kinds
        nulls = self.size
        out = nulls + self._null_bytes + (self._count + 1) * _FIXED + end - at
        if out > len(self._images):
            native.resize(self._images, 2 * out)
        to = self._images
        native.zero(to, nulls, self._null_bytes)
        out = nulls + self._null_bytes
        for i in range(self._count):
            if at >= end:
                raise self._truncated()
            size = p[at]
            at += 1
            if size >= _NULL:
                if size == _NULL:
                    to[nulls + (i >> 3)] |= 1 << (i & 7)
                    continue
                width = 2 if size == 252 else 3 if size == 253 else 8
                if size == _ERROR or at + width > end:
                    raise self._truncated()
                size = native.le_any(p, at, width)
                at += width
            if size < 0 or size > end - at:
                raise self._truncated()
            if kinds[i] == native.BYTES:
                native.put32(to, out, size)
                native.copy(to, out + 4, p, at, size)
                out += 4 + size
            else:
                out = self._put(i, data, at, at + size, out)
            at += size
        if at != end:
            raise DecodeError("a row of an answer has more columns than were asked for")
        self.size = out
        self.rows += 1

    def _truncated(self):
        return TruncatedError("a value of an answer runs past the end of its row")

    def _put(self, i, data, at, end, out):
        """Write a value, and return the index after the value."""
        p = data
        to = self._images
        kinds = self._kinds
        params = self._params
        kind = kinds[i]
        param = params[i]
        if kind == native.I64 or kind == native.U64:
            native.put64(to, out, _integer(p, at, end, param, kind == native.I64))
            return out + param
        if kind == native.DOUBLE:
            native.copy(to, out, _DOUBLE(_real(wire.piece(p, at, end))), 0, 8)
            return out + 8
        if kind == native.FLOAT:
            native.copy(to, out, _SINGLE(_real(wire.piece(p, at, end))), 0, 4)
            return out + 4
        if kind == native.DECIMAL:
            return self._decimal(i, data, at, end, out)
        if kind == native.BIT:
            return self._big(out, _integer(p, at, end, param, False), param)
        if kind == native.YEAR:
            number = _number(p, at, end)
            if number > 2155 or 0 < number < 1901:
                raise _unknown()
            to[out] = number - 1900 if number else 0
            return out + 1
        if kind == native.TIME:
            return self._time(p, at, end, out, param)
        number = _date(p, at, end)
        if kind == native.DATE:
            if end - at != 10:
                raise _unknown()
            native.put32(to, out, number)
            return out + 3
        second = _clock(p, at + 10, end, param)
        if kind == native.DATETIME:
            months = (number >> 9) * 13 + (number >> 5 & 15)
            out = self._big(out, _DATETIME_ZERO + ((months << 5 | number & 31) << 17 | second), 5)
        elif number == 0:
            out = self._big(out, 0, 4)
        else:
            out = self._big(out, _seconds(number, second), 4)
        return self._fraction(p, end - param, end, out, param)

    def _big(self, out, value, width):
        """Write a big-endian integer, and return the index after the integer."""
        to = self._images
        while width:
            width -= 1
            to[out] = value >> 8 * width & 0xFF
            out += 1
        return out

    def _fraction(self, p, at, end, out, digits):
        if digits == 0:
            return out
        return self._big(out, _number(p, at, end) * (10 if digits & 1 else 1), (digits + 1) // 2)

    def _time(self, p, at, end, out, digits):
        negative = at < end and p[at] == 45
        if negative:
            at += 1
        hours = end - 6 - (digits + 1 if digits else 0)
        if hours <= at:
            raise _unknown()
        number = _number(p, at, hours) << 12 | _sixty(p, hours) << 6 | _sixty(p, hours + 3)
        width = (digits + 1) // 2
        if digits:
            if p[end - digits - 1] != 46:
                raise _unknown()
            number = (number << 8 * width) + _number(p, end - digits, end) * (10 if digits & 1 else 1)
        zero = 0x800000
        zero <<= 8 * width
        if number >= zero:
            raise _unknown()
        return self._big(out, zero - number if negative else zero + number, 3 + width)

    def _decimal(self, i, data, at, end, out):
        p = data
        to = self._images
        groups = self._groups[i]
        g = groups
        count = len(groups) // 2
        scale = self._params[i]
        negative = at < end and p[at] == 45
        if negative:
            at += 1
        if at == end:
            raise _unknown()
        point = end
        if scale:
            point = end - scale - 1
            if point < at or p[point] != 46:
                raise _unknown()
        while at < point and p[at] == 48:
            at += 1
        lacking = -scale - (point - at)
        for n in range(count):
            lacking += g[2 * n + 1]
        if lacking < 0:
            raise _unknown()
        start = out
        for n in range(count):
            value = 0
            for k in range(g[2 * n + 1]):  # noqa: B007
                digit = 48
                if lacking:
                    lacking -= 1
                else:
                    if at == point and scale:
                        at += 1
                    digit = p[at]
                    at += 1
                if digit < 48 or digit > 57:
                    raise _unknown()
                value = value * 10 + digit - 48
            out = self._big(out, value, g[2 * n])
        if negative:
            for n in range(start, out):
                to[n] ^= 0xFF
        to[start] ^= 0x80
        return out


def _unknown():
    return DecodeError("a value of an answer is none of its column's type")


def _real(text):
    """Parse a number of double precision."""
    try:
        return float(text)
    except ValueError as error:
        raise _unknown() from error


def _number(p, at, end):
    """Parse digits."""
    digits = end - at
    if digits < 1 or digits > 20:
        raise _unknown()
    value = 0
    while at < end:
        digit = p[at]
        if digit < 48 or digit > 57:
            raise _unknown()
        value = value * 10 + (digit - 48)
        at += 1
    if digits == 20 and (value < _TEN_19 or value > _LARGEST):
        raise _unknown()
    return value


def _integer(p, at, end, width, is_signed):
    """Parse an integer of ``width`` bytes. Return its two's complement."""
    negative = at < end and p[at] == 45
    if negative:
        at += 1
    while at + 1 < end and p[at] == 48:  # ZEROFILL
        at += 1
    value = _number(p, at, end)
    bits = 8 * width - 1
    if is_signed:
        if negative and value > 0:
            value -= 1
        if value >> bits:
            raise _unknown()
        if negative and p[at] != 48:
            value = ~value
    elif negative or bits < 63 and value >> bits > 1:
        raise _unknown()
    return value & _LARGEST


def _sixty(p, at):
    """Parse two digits after a colon."""
    if p[at] != 58:
        raise _unknown()
    found = _number(p, at + 1, at + 3)
    if found > 59:
        raise _unknown()
    return found


def _date(p, at, end):
    """Parse a date. Return its number in the log."""
    if end - at < 10 or p[at + 4] != 45 or p[at + 7] != 45:
        raise _unknown()
    month = _number(p, at + 5, at + 7)
    day = _number(p, at + 8, at + 10)
    if month > 12 or day > 31:
        raise _unknown()
    return _number(p, at, at + 4) << 9 | month << 5 | day


def _clock(p, at, end, digits):
    """Parse the hour, minute and second after a date."""
    if end - at != 9 + (digits + 1 if digits else 0) or p[at] != 32 or digits and p[at + 9] != 46:
        raise _unknown()
    return _number(p, at + 1, at + 3) << 12 | _sixty(p, at + 3) << 6 | _sixty(p, at + 6)


def _seconds(date, clock):
    """Return the seconds since 1970."""
    year = date >> 9
    month = date >> 5 & 15
    day = date & 31
    if month < 3:
        year -= 1
        month += 9
    else:
        month -= 3
    days = year * 365 + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 1 - _EPOCH
    found = days * 86400 + (clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)
    if days < 0 or found >> 32:
        raise _unknown()
    return found
