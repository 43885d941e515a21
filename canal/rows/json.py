"""Converts MySQL's binary JSON to the text that the server prints, or to Python objects.

Every offset is checked, and the work is bounded by the document size. The format is described in the server source,
``sql-common/json_binary.h``; MariaDB stores JSON as text. Partial updates (``sql-common/json_diff.h``) follow the server.
"""

import base64
import copy
import datetime
import decimal
import functools
import json
import re

from canal.binlog import type_codes as codes
from canal.errors import LOG_DAMAGED, DecodeError, TruncatedError
from canal.rows import native, wire
from canal.rows.values import ABSENT, InvalidJson, JsonDiff, ZeroDate
from canal.rows.wire import packed

#: Maximum nesting depth in the server.
MAX_DEPTH = 100

#: TIMESTAMP, DATE, TIME, DATETIME.
_TEMPORAL = (codes.TIMESTAMP, codes.DATE, codes.TIME, codes.DATETIME)
_OPERATIONS = ("REPLACE", "INSERT", "REMOVE")
#: A path step: a member, quoted as JSON or plain, or a cell, counted from either end.
_LEG = re.compile(r'\.(?:("(?:[^"\\]|\\.)*")|([^\s.\[\]*"]+))|\[(?:([0-9]{1,10})|last(?:-([0-9]{1,10}))?)\]', re.DOTALL)

_TOO_SHORT = "the JSON document ends too early"
_ESCAPES = {i: f"\\u{i:04x}" for i in range(32)}
_ESCAPES.update({8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"})


def decode_json(data, start, end):
    """Return the text of the document in ``data[start:end]``.

    An empty document is ``null``, as in the server. Old servers store it for NULL in a NOT NULL column.

    Raises:
        TruncatedError: an offset or length points beyond the end.
        DecodeError: another format violation.
    """
    if start >= end:
        return "null"
    document = Document(data, end - start)
    document.value(data[start], start + 1, end, 0)
    return "".join(document.parts)


def decode_objects(data, start, end):
    """Return the document in ``data[start:end]`` as dict, list, str, int, float, bool or None.

    SQL values have their column types: Decimal, date, naive datetime, timedelta, ``ZeroDate``, int for BIT, otherwise bytes.

    Raises:
        TruncatedError, DecodeError: see ``decode_json``.
    """
    if start >= end:
        return None
    document = Document(data, end - start)
    values = []
    document.values = values
    document.value(data[start], start + 1, end, 0)
    text = "".join(document.parts)
    return _objects(text, values) if values else json.loads(text)


def _objects(text, values):
    return json.loads(
        text, parse_float=lambda token: float(token) if "E" not in token else values[int(token.removesuffix("E+0"))]
    )


def text_objects(text):
    """Return Python objects for JSON text, as stored by MariaDB. Invalid text is returned marked.

    A number with a fraction or exponent is a float, or a Decimal if a float would change it.
    """
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text, parse_float=_exact_float, parse_constant=_refuse, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return InvalidJson(text)


def _exact_float(token):
    near = float(token)
    exact = decimal.Decimal(token)
    return near if near - near == 0 and decimal.Decimal(repr(near)) == exact else exact


def _refuse(name):
    raise ValueError(f"{name} is not JSON")


def _distinct(members):
    objects = dict(members)
    if len(objects) != len(members):
        raise ValueError("a member comes twice")
    return objects


class Document:
    """A JSON parser with its output and remaining work limit.

    With a list in ``values``, SQL values are appended there, and the text has their index in a form that no double has: 7E+0.
    """

    def __init__(self, data, size):
        self.data = data
        self.parts = []
        self.values = None
        self.budget = 2 * size + 16

    def value(self, kind, pos, end, depth):
        """Append the value of type ``kind`` between ``pos`` and ``end``."""
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
        """Append an object (kind 0 small, 1 large) or array (2, 3): count, size, entries, then referenced values."""
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
        """Append a value entry: a type, and an inline value or an offset in the container."""
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
        """Return a length in 7-bit groups, and the index after it."""
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
        """Append text, quoted and escaped like the server."""
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
        """Append an SQL value: DECIMAL as a number, temporal types as quoted text, others in base64."""
        self.need(pos, 1, end)
        code = self.data[pos]
        length, pos = self.length(pos + 1, end)
        self.need(pos, length, end)
        self.budget -= length
        if self.budget < 0:
            raise DecodeError("the JSON document refers to the same bytes again and again")
        payload = bytes(self.data[pos : pos + length])
        if self.values is None:
            self.parts.append(opaque_text(code, payload))
        else:
            self.parts.append(f"{len(self.values)}E+0")
            self.values.append(opaque_value(code, payload))


def double_text(value):
    """Return a DOUBLE like the server: shortest digits, with an exponent below 1e-15 and for whole numbers from 1e15."""
    text = repr(value)
    if "n" in text:  # nan or inf
        raise DecodeError("a number in the JSON document is not finite")
    mantissa, _, exponent = text.partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))  # digits before the decimal point
    digits = digits.rstrip("0")
    if not digits:
        return sign + "0.0"
    if point < -14 or (point > 15 and len(digits) <= point):  # a fraction excludes an exponent
        rest = "." + digits[1:] if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"


def opaque_text(code, payload):
    if code == codes.NEWDECIMAL:
        return _decimal_text(payload)
    if code in _TEMPORAL:
        return f'"{_temporal_text(code, payload)}"'
    encoded = base64.b64encode(payload).decode("ascii")
    # The server wraps base64 at 76 characters and escapes the line breaks.
    lines = "\\n".join([encoded[i : i + 76] for i in range(0, len(encoded), 76)])
    return f'"base64:type{code}:{lines}"'


def opaque_value(code, payload):
    """Return the Python value for a column of this type."""
    if code == codes.NEWDECIMAL:
        return native.make_decimal(_decimal_text(payload))
    if code == codes.BIT:
        return int.from_bytes(payload, "big")
    if code not in _TEMPORAL:
        return payload
    text = _temporal_text(code, payload)
    if code == codes.TIME:
        hours, minutes, seconds = text.lstrip("-").split(":")
        value = datetime.timedelta(0, int(hours) * 3600 + int(minutes) * 60 + int(seconds[:2]), int(seconds[3:]))
        return -value if text[0] == "-" else value
    try:
        return datetime.date.fromisoformat(text) if code == codes.DATE else datetime.datetime.fromisoformat(text)
    except ValueError:
        return ZeroDate(text)


def _temporal_text(code, payload):
    if len(payload) != 8:
        raise DecodeError(f"a JSON value of type {code} has {len(payload)} bytes, not 8")
    number = int.from_bytes(payload, "little", signed=True)
    return _time_text(number) if code == codes.TIME else _datetime_text(number, code == codes.DATE)


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


# -- partial updates ---------------------------------------------------------------------------------------------------


def decode_diffs(data, start, end, as_text):
    """Return the ``JsonDiff`` values of a partial update, with text or objects.

    Raises:
        TruncatedError: a length points beyond the end.
        DecodeError: another format violation.
    """
    diffs = []
    pos = start
    while pos < end:
        operation = data[pos]
        if operation > 2:
            raise DecodeError(f"a JSON diff with the operation {operation}")
        first, pos = _piece(data, pos + 1, end)
        try:
            path = data[first:pos].decode("utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError("the path of a JSON diff is not UTF-8") from error
        parse_path(path)
        value = ABSENT
        if operation != 2:
            first, pos = _piece(data, pos, end)
            value = decode_json(data, first, pos) if as_text else decode_objects(data, first, pos)
        diffs.append(JsonDiff(_OPERATIONS[operation], path, value))
    return tuple(diffs)


def _piece(data, pos, end):
    """Return start and end of the bytes after a packed length."""
    try:
        length, pos = packed(data, pos, end)
    except TruncatedError:
        length = end  # longer than the data
    if length > end - pos:
        raise TruncatedError("a JSON diff ends too early")
    return pos, pos + length


@functools.lru_cache(maxsize=1024)
def parse_path(path):
    """Return the steps of a path without wildcards: str for a member, int for a cell, negative from the end."""
    if path[:1] != "$":
        raise DecodeError("the path of a JSON diff does not begin with $")
    legs = []
    at = 1
    while at < len(path):
        found = _LEG.match(path, at)
        if found is None or len(legs) >= MAX_DEPTH:
            raise DecodeError("the path of a JSON diff is none")
        quoted, plain, cell, back = found.groups()
        if quoted is not None:
            try:
                member = json.loads(quoted)
                member.encode()  # reject a lone surrogate
            except ValueError as error:
                raise DecodeError("the path of a JSON diff is none") from error
            legs.append(member)
        elif plain is not None:
            legs.append(plain)
        else:
            legs.append(int(cell) if cell is not None else -1 - int(back or 0))
        at = found.end()
    if not legs:
        raise DecodeError("a JSON diff of the whole document")
    return tuple(legs)


def apply_diffs(document, diffs, as_text):
    """Apply diffs in order and return the new document, as text or as a copy of the objects.

    Raises:
        DecodeError: a diff does not match the document.
    """
    if not diffs:
        return document
    if document is None:  # NULL
        raise _misfit()
    tree = _parse(document) if as_text else copy.deepcopy(document)
    grown = {}
    for diff in diffs:
        value = _parse(diff.value) if as_text and diff.value is not ABSENT else diff.value
        *parents, last = parse_path(diff.path)
        holder = tree
        for leg in parents:
            holder = holder[_place(holder, leg)]
        if diff.operation == "INSERT":
            _insert(holder, last, value)
            grown[id(holder)] = holder
        elif diff.operation == "REPLACE":
            holder[_place(holder, last)] = value
        else:
            del holder[_place(holder, last)]
    for holder in grown.values():
        if type(holder) is dict:
            members = sorted(holder.items(), key=_key_order)
            holder.clear()
            holder.update(members)
    return _print(tree) if as_text else tree


def _place(holder, leg):
    """Return the key or index of an existing value."""
    if type(holder) is dict and type(leg) is str and leg in holder:
        return leg
    if type(holder) is list and type(leg) is int and -len(holder) <= leg < len(holder):
        return leg if leg >= 0 else leg + len(holder)
    raise _misfit()


def _insert(holder, leg, value):
    if type(holder) is dict and type(leg) is str and leg not in holder:
        holder[leg] = value
    elif type(holder) is list and type(leg) is int:
        holder.insert(leg if leg >= 0 else max(leg + len(holder), 0), value)  # append after the end
    else:
        raise _misfit()


def _key_order(member):
    """Sort members by length in bytes, then by bytes, as in binary JSON."""
    key = member[0].encode("utf-8")
    return len(key), key


def _misfit():
    return DecodeError("a JSON diff does not fit the document before it", remedy=LOG_DAMAGED)


# Numbers between texts stay text, in strings that no document has: they begin and end with a lone surrogate.


def _parse(text):
    return json.loads(text, parse_int=_keep, parse_float=_keep)


def _keep(number):
    return f"\udc00{number}\udc01"


def _print(tree):
    """Return the server's text. Its escapes equal Python's."""
    return json.dumps(tree, ensure_ascii=False).replace('"\udc00', "").replace('\udc01"', "")
