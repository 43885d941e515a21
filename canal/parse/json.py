"""MySQL's binary JSON to the text that the server itself prints for the document.

Never trusts an offset: every read is checked, and the work is bounded by the size of the document, whatever it points at.
The format is described in the server's source, ``sql-common/json_binary.h``; MariaDB stores JSON as text and needs none of it.
"""

import base64

from canal.errors import DecodeError, TruncatedError
from canal.parse import native, wire

#: Containers inside each other that the server allows.
MAX_DEPTH = 100

_TOO_SHORT = "the JSON document ends too early"
_ESCAPES = {i: f"\\u{i:04x}" for i in range(32)}
_ESCAPES.update({8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"})


def decode_json(data, start, end):
    """Text of the document in ``data[start:end]``.

    An empty document, which old servers store for NULL in a NOT NULL column, is ``null``, as the server reads it.

    Raises:
        TruncatedError: an offset or a length points behind the end.
        DecodeError: anything else that is not the format.
    """
    if start >= end:
        return "null"
    document = Document(data, end - start)
    document.value(data[start], start + 1, end, 0)
    return "".join(document.parts)


class Document:
    """One document being read: its text so far, and what is left of the work that its size allows."""

    def __init__(self, data, size):
        self.data = data
        self.parts = []
        self.budget = 2 * size + 16

    def value(self, kind, pos, end, depth):
        """Append the value of type ``kind`` whose data begins at ``pos`` and lies before ``end``."""
        p = self.data
        self.budget -= 1
        if self.budget < 0:
            raise DecodeError("the JSON document refers to the same bytes again and again")
        if kind <= 3:
            self.container(kind, pos, end, depth)
        elif kind == 12:
            self.string(pos, end)
        elif kind == 5:
            self.need(pos, 2, end)
            small = wire.u16(p, pos)
            self.parts.append(str(small - 0x10000 if small >= 0x8000 else small))
        elif kind == 6:
            self.need(pos, 2, end)
            self.parts.append(str(wire.u16(p, pos)))
        elif kind == 7:
            self.need(pos, 4, end)
            small = wire.u32(p, pos)
            self.parts.append(str(small - 0x100000000 if small >= 0x80000000 else small))
        elif kind == 8:
            self.need(pos, 4, end)
            self.parts.append(str(wire.u32(p, pos)))
        elif kind == 9:
            self.need(pos, 8, end)
            self.parts.append(str(native.i64(p, pos)))
        elif kind == 10:
            self.need(pos, 8, end)
            self.parts.append(str(wire.u64(p, pos)))
        elif kind == 11:
            self.need(pos, 8, end)
            self.parts.append(double_text(native.f64(p, pos)))
        elif kind == 4:
            self.need(pos, 1, end)
            self.literal(p[pos])
        elif kind == 15:
            self.opaque(pos, end)
        else:
            raise DecodeError(f"JSON type {kind} is unknown")

    def need(self, pos, count, end):
        if pos < 0 or pos + count > end:
            raise TruncatedError(_TOO_SHORT)

    def literal(self, code):
        if code == 0:
            self.parts.append("null")
        elif code == 1:
            self.parts.append("true")
        elif code == 2:
            self.parts.append("false")
        else:
            raise DecodeError(f"JSON literal {code} is unknown")

    def container(self, kind, pos, end, depth):
        """An object (kind 0 small, 1 large) or an array (2, 3): count, size, entries, then what the entries point to."""
        p = self.data
        if depth >= MAX_DEPTH:
            raise DecodeError(f"more than {MAX_DEPTH} JSON containers inside each other")
        width = 4 if kind & 1 else 2
        self.need(pos, 2 * width, end)
        count = wire.u32(p, pos) if width == 4 else wire.u16(p, pos)
        size = wire.u32(p, pos + width) if width == 4 else wire.u16(p, pos + width)
        self.need(pos, size, end)
        stop = pos + size
        is_object = kind < 2
        entry = pos + 2 * width
        values = entry + count * (width + 2) if is_object else entry
        self.need(values, count * (width + 1), stop)
        parts = self.parts
        parts.append("{" if is_object else "[")
        for i in range(count):
            if i:
                parts.append(", ")
            if is_object:
                offset = wire.u32(p, entry) if width == 4 else wire.u16(p, entry)
                length = wire.u16(p, entry + width)
                self.need(pos + offset, length, stop)
                self.text(pos + offset, length)
                parts.append(": ")
                entry += width + 2
            self.entry(values, width, pos, stop, depth)
            values += width + 1
        parts.append("}" if is_object else "]")

    def entry(self, at, width, base, stop, depth):
        """A value entry: a type and, where the value fits there, the value; else its offset in the container."""
        p = self.data
        kind = p[at]
        if kind == 4 or kind == 5 or kind == 6 or (width == 4 and (kind == 7 or kind == 8)):
            self.value(kind, at + 1, at + 1 + width, depth + 1)
            return
        offset = wire.u32(p, at + 1) if width == 4 else wire.u16(p, at + 1)
        if base + offset >= stop:
            raise TruncatedError(_TOO_SHORT)
        self.value(kind, base + offset, stop, depth + 1)

    def string(self, pos, end):
        length, pos = self.length(pos, end)
        self.need(pos, length, end)
        self.text(pos, length)

    def length(self, pos, end):
        """A length in groups of seven bits, and the index after it."""
        p = self.data
        length = 0
        for i in range(5):
            if pos + i >= end:
                raise TruncatedError(_TOO_SHORT)
            group = p[pos + i] & 0x7F
            length |= group << (7 * i)
            if p[pos + i] < 0x80:
                return length, pos + i + 1
        raise DecodeError("a length in the JSON document has more than five bytes")

    def text(self, pos, length):
        """Append quoted text, escaped as the server does it."""
        p = self.data
        self.budget -= length
        if self.budget < 0:
            raise DecodeError("the JSON document refers to the same bytes again and again")
        plain = True
        for i in range(pos, pos + length):
            if p[i] < 32 or p[i] == 34 or p[i] == 92:
                plain = False
                break
        try:
            text = p[pos : pos + length].decode("utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError("text in a JSON document is not UTF-8") from error
        parts = self.parts
        parts.append('"')
        parts.append(text if plain else text.translate(_ESCAPES))
        parts.append('"')

    def opaque(self, pos, end):
        """A value of an SQL type: DECIMAL as a number, temporal types as quoted text, others in base64."""
        self.need(pos, 1, end)
        code = self.data[pos]
        length, pos = self.length(pos + 1, end)
        self.need(pos, length, end)
        self.budget -= length
        if self.budget < 0:
            raise DecodeError("the JSON document refers to the same bytes again and again")
        self.parts.append(opaque_text(code, bytes(self.data[pos : pos + length])))


def double_text(value):
    """A DOUBLE as the server prints it: shortest digits, an exponent below 1e-15 and for whole numbers from 1e15 on."""
    text = repr(value)
    if "n" in text:  # nan, inf
        raise DecodeError("a number in the JSON document is not finite")
    mantissa, _, exponent = text.partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))  # digits before the decimal point
    digits = digits.rstrip("0")
    if not digits:
        return sign + "0.0"
    if point < -14 or (point > 15 and len(digits) <= point):  # with a fraction there is no exponent
        rest = "." + digits[1:] if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"


def opaque_text(code, payload):
    if code == 246:
        return _decimal_text(payload)
    if code in (7, 10, 11, 12):
        if len(payload) != 8:
            raise DecodeError(f"a JSON value of type {code} has {len(payload)} bytes, not 8")
        packed = int.from_bytes(payload, "little", signed=True)
        return '"' + (_time_text(packed) if code == 11 else _datetime_text(packed, code == 10)) + '"'
    encoded = base64.b64encode(payload).decode("ascii")
    # The server breaks its base64 into lines of 76 characters, and escapes the breaks.
    lines = "\\n".join([encoded[i : i + 76] for i in range(0, len(encoded), 76)])
    return f'"base64:type{code}:{lines}"'


def _decimal_text(payload):
    if len(payload) < 2:
        raise TruncatedError("a DECIMAL in the JSON document is cut")
    precision, scale = payload[0], payload[1]
    if not 1 <= precision <= 81 or scale > min(precision, 38):  # the server rounds 65 digits up to whole groups: 72
        raise DecodeError(f"a DECIMAL({precision},{scale}) in the JSON document")
    whole = precision - scale
    counts = [whole % 9] + [9] * (whole // 9) + [9] * (scale // 9) + [scale % 9]
    groups = bytes(part for count in counts if count for part in ((count + 1) // 2 if count < 9 else 4, count))
    if len(payload) != 2 + sum(groups[::2]):
        raise TruncatedError("a DECIMAL in the JSON document is cut")
    text = native.decimal_text(payload, 2, groups, len(groups) // 2, scale)
    if text is None:
        raise DecodeError("a DECIMAL in the JSON document has digits that are none")
    return text


def _datetime_text(packed, is_date):
    seconds, micros = packed >> 24, packed & 0xFFFFFF
    day, clock = seconds >> 17, seconds & 0x1FFFF
    date = f"{(day >> 5) // 13:04d}-{(day >> 5) % 13:02d}-{day & 31:02d}"
    if is_date:
        return date
    return f"{date} {clock >> 12:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{micros:06d}"


def _time_text(packed):
    sign = "-" if packed < 0 else ""
    packed = abs(packed)
    clock, micros = packed >> 24, packed & 0xFFFFFF
    return f"{sign}{clock >> 12 & 1023:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{micros:06d}"
