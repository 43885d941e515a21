# cython: language_level=3, cdivision=True
# cdivision: only non-negative integers are divided here, where C and Python agree.
"""Decodes row images: from WRITE, UPDATE and DELETE rows events to tuples of Python values.

``walk`` and ``decode`` each check every length, and end exactly at the event's end. Compiled if a C compiler was present at
install time.
"""

import datetime
import struct
import zlib
from uuid import UUID

from canal.binlog import type_codes as codes
from canal.binlog.type_codes import BLOBS, NAMES, TEMPORAL
from canal.errors import LOG_DAMAGED, DecodeError, TruncatedError, UnsupportedError
from canal.rows import native, wire
from canal.rows.charsets import codec_of
from canal.rows.json import apply_diffs, decode_diffs, decode_json, decode_objects, text_objects
from canal.rows.values import ABSENT, AmbiguousLabel, InvalidText, NoLabel, PartialJson, ZeroDate
from canal.rows.wire import packed
from canal.schema import is_sure, label_bytes, set_text

try:
    import cython
except ModuleNotFoundError:
    from canal._util import interpreted as cython

native.setup()

#: From this width on, lengths are variable: the low bits are the size of the length prefix.
_VARIABLE = 128
#: Slot of a column that is not wanted.
_SKIP = 0xFFFF
#: Number of cached images (sets of present columns). A table rarely has more than a few.
_MAX_IMAGES = 256
#: Up to this size a copy is faster than a memoryview.
_SMALL = 4096

_FIXED = {
    codes.TINY: 1,
    codes.SHORT: 2,
    codes.LONG: 4,
    codes.FLOAT: 4,
    codes.DOUBLE: 8,
    codes.NULL: 0,
    codes.TIMESTAMP: 4,
    codes.LONGLONG: 8,
    codes.INT24: 3,
    codes.DATE: 3,
    codes.TIME: 3,
    codes.DATETIME: 8,
    codes.YEAR: 1,
    codes.NEWDATE: 3,
}
_INTEGERS = {
    codes.TINY: native.I8,
    codes.SHORT: native.I16,
    codes.INT24: native.I24,
    codes.LONG: native.I32,
    codes.LONGLONG: native.I64,
}
_PLAIN_KINDS = {
    codes.FLOAT: native.FLOAT,
    codes.DOUBLE: native.DOUBLE,
    codes.NULL: native.NULL,
    codes.TIMESTAMP: native.OLD_TIMESTAMP,
    codes.DATE: native.DATE,
    codes.TIME: native.OLD_TIME,
    codes.DATETIME: native.OLD_DATETIME,
    codes.YEAR: native.YEAR,
    codes.NEWDATE: native.DATE,
}
_TEMPORAL_KINDS = {codes.TIMESTAMP2: native.TIMESTAMP, codes.DATETIME2: native.DATETIME, codes.TIME2: native.TIME}
#: Size without the fraction.
_WHOLE_SECONDS = {codes.TIMESTAMP2: 4, codes.DATETIME2: 5, codes.TIME2: 3}
#: Types with the size of the length prefix as metadata.
_COUNTED = BLOBS | {codes.VECTOR, codes.JSON, codes.GEOMETRY}
#: MariaDB's formats of old temporal types with a fraction, by type code: kind, and size per number of digits.
_HIRES = {
    codes.TIMESTAMP: (native.HIRES_TIMESTAMP, (4, 5, 5, 6, 6, 7, 7)),
    codes.TIME: (native.HIRES_TIME, (3, 4, 4, 5, 5, 5, 6)),
    codes.DATETIME: (native.HIRES_DATETIME, (5, 6, 6, 7, 7, 7, 8)),
}
#: Maximum length by size of the length prefix.
_LONGEST = (0, 0xFF, 0xFFFF, 0xFFFFFF, 1 << 30)  # the limit of all servers
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_MONTH_DAYS = bytes((0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31))
# C integers if compiled: a literal beyond 32 bits would be a Python object.
#: Seconds from 0000-03-01, the start of the calendar calculation, to 1970-01-01.
_EPOCH = 719468 * 86400
_DATETIME_ZERO = 0x8000000000
#: Adding and subtracting it rounds a double to an integer.
_ROUND = 1.5 * 2.0**52
_UTC = datetime.timezone.utc


# -- type codes and metadata -------------------------------------------------------------------------------------------


def unsupported_columns(types, metas):
    """Return a message for the first column without a measurable size; None if all columns are supported."""
    for i in range(len(types)):
        try:
            _width(types[i], metas[i], "")
        except DecodeError as error:
            return f"column {i + 1}: {error.message}"
    return None


def _width(code, meta, column_type):
    """Return the size of a value, or _VARIABLE plus the size of its length prefix."""
    if code in _HIRES:
        digits = _fraction_digits(column_type)
        return _HIRES[code][1][digits] if digits else _FIXED[code]
    if code in _FIXED:
        return _FIXED[code]
    if code == codes.STRING or code == codes.ENUM or code == codes.SET:
        return _string_width(meta)
    if code == codes.VARCHAR or code == codes.VAR_STRING or code == codes.VARCHAR_COMPRESSED:
        return _VARIABLE + (2 if meta > 255 else 1)
    if code == codes.NEWDECIMAL:
        return sum(_decimal_groups(meta)[::2])
    if code == codes.BIT:
        size = (meta >> 8) + (1 if meta & 0xFF else 0)
        return _checked(code, meta, size, 1 <= size <= 8)
    if code in TEMPORAL:
        return _checked(code, meta, _WHOLE_SECONDS[code] + (meta + 1) // 2, meta <= 6)
    if code in _COUNTED:
        return _checked(code, meta, _VARIABLE + meta, 1 <= meta <= 4)
    raise UnsupportedError(f"{NAMES.get(code, 'unknown')} (type {code}) cannot be measured")


def _checked(code, meta, width, good):
    if not good:
        raise DecodeError(f"{NAMES[code]} (type {code}) cannot have the metadata {meta:#x}")
    return width


def _string_width(meta):
    real = meta >> 8
    if real == codes.ENUM:
        return _checked(codes.ENUM, meta, meta & 0xFF, meta & 0xFF in (1, 2))
    if real == codes.SET:
        return _checked(codes.SET, meta, meta & 0xFF, 1 <= meta & 0xFF <= 8)
    return _VARIABLE + (2 if _string_length(meta) > 255 else 1)


def _string_length(meta):
    """Return the size of a CHAR or BINARY. Two inverted bits of the length are in the type byte."""
    if meta < 256:
        return meta
    return meta & 0xFF | (meta >> 8 & 0x30 ^ 0x30) << 4


def _decimal_groups(meta):
    """Return the stored digit groups of a DECIMAL as pairs of (bytes, digits)."""
    precision, scale = meta & 0xFF, meta >> 8
    _checked(codes.NEWDECIMAL, meta, 0, 1 <= precision <= 65 and scale <= min(precision, 38))
    whole = precision - scale
    digits = [whole % 9] + [9] * (whole // 9) + [9] * (scale // 9) + [scale % 9]
    return bytes(part for count in digits if count for part in (_DIGIT_BYTES[count], count))


def _fraction_digits(column_type):
    """Return the fraction digits of an old MariaDB temporal type, which table maps lack."""
    head, _, rest = column_type.partition("(")
    if head in ("timestamp", "datetime", "time") and rest[:1] in ("1", "2", "3", "4", "5", "6"):
        return int(rest[0])
    return 0


#: Kinds with values that may contain objects.
_HOLDERS = {native.JSON, native.JSON_DIFFS, native.MASKED}


# -- column plan -------------------------------------------------------------------------------------------------------


class Image:
    """The columns in a row image, in order, and how to decode each. Immutable.

    ``slots`` (16 bits each) are tuple indexes. ``steps`` is the fast path without NULLs: 32 bits with the bytes to skip, then the
    size of a length prefix.
    """

    def __init__(self, decoder, present, partial=()):
        """``present`` is the column bitmap. Columns in ``partial`` have diffs in place of documents."""
        here = [i for i in range(decoder.count) if present[i >> 3] >> (i & 7) & 1]
        plan = decoder.plan
        rows = [(native.JSON_DIFFS, _VARIABLE + 4, *plan[i][2:]) if i in partial else plan[i] for i in here]
        masked = {i for i, _ in decoder.masks}  # diffs cannot be masked
        slots = [_SKIP if i in decoder.unlogged or i in partial and i in masked else plan[i][2] for i in here]
        self.present = present
        found = set(slots)
        self.count = len(rows)
        self.null_bytes = (self.count + 7) // 8
        self.last_mask = 0xFF >> (-self.count & 7)
        self.kinds = bytes(row[0] for row in rows)
        self.widths = bytes(row[1] for row in rows)
        self.slots = struct.pack(f"<{len(slots)}H", *slots)
        self.params = struct.pack(f"<{len(rows)}H", *(row[3] for row in rows))
        self.extras = tuple(row[4] for row in rows)
        self.names = tuple(row[5] for row in rows)
        self.plain = slots == list(range(self.count))
        self.absent = tuple(slot for slot in range(decoder.width) if slot not in found)
        self.width = decoder.width
        self.leaf = not _HOLDERS & set(self.kinds)
        self.partial = tuple((slot, i) for i, slot in enumerate(slots) if self.kinds[i] == native.JSON_DIFFS and slot != _SKIP)
        self._plan_steps()

    def _plan_steps(self):
        steps, fixed = b"", 0
        for width in self.widths:
            if width < _VARIABLE:
                fixed += width
            else:
                steps += struct.pack("<IB", fixed, width - _VARIABLE)
                fixed = 0
        self.steps = steps
        self.step_count = len(steps) // 5
        self.tail = fixed


@cython.no_gc
@cython.freelist(8)
@cython.cclass
class Cursor:
    """The state of a walk through an event."""

    __slots__ = ("pos", "end", "before", "after")


class RowDecoder:
    """Measures and decodes rows of a table described by a TABLE_MAP. Immutable and thread-safe.

    Args:
        types: type code per column.
        metas: metadata per column from the map; for CHAR, ENUM and SET the first byte is the high byte.
        columns: ``ColumnSchema`` per column, or None to treat integers as signed and text as bytes.
        wanted: indexes of the columns to return, in tuple order; None for all.
        timezone: zone of TIMESTAMP values; None for UTC.
        json_text: return JSON as text, not as objects.
        masks: (index, object with ``text(value)``) pairs of masked columns.

    Raises:
        UnsupportedError: a column has an unknown size.
        DecodeError: a column has invalid metadata.
    """

    def __init__(self, types, metas, columns, wanted=None, timezone=None, json_text=True, masks=()):
        self._arguments = (types, metas, columns, wanted, timezone, json_text, masks)
        self.count = len(types)
        if len(metas) != self.count or columns is not None and len(columns) != self.count:
            raise DecodeError(f"{self.count} column types do not go with {len(metas)} metadata and their schema")
        self.timezone = timezone or _UTC
        self._fixed_zone = isinstance(self.timezone, datetime.timezone)
        self._offset = 0
        if self._fixed_zone:
            shift = self.timezone.utcoffset(None)
            self._offset = shift.days * 86400 + shift.seconds
            self._fixed_zone = shift.microseconds == 0
        self.json_text = json_text
        self.masks = tuple(masks)
        chosen = tuple(range(self.count)) if wanted is None else tuple(wanted)
        self.width = len(chosen)
        slots = {column: slot for slot, column in enumerate(chosen)}
        if len(slots) != self.width or any(not 0 <= column < self.count for column in chosen):
            raise ValueError(f"wanted columns are not distinct indexes below {self.count}")
        self.plan = tuple(
            self._resolve(i, types[i], metas[i], None if columns is None else columns[i], slots.get(i, _SKIP))
            for i in range(self.count)
        )
        if self.masks:
            self.plan = self._masked_plan()
        known = () if columns is None else columns
        self.unlogged = tuple(i for i, column in enumerate(known) if not column.logged)
        self.hidden = tuple(i for i, column in enumerate(known) if column.hidden)
        self.bitmap_bytes = (self.count + 7) // 8
        self.last_mask = 0xFF >> (-self.count & 7)
        self.json_columns = tuple(i for i, code in enumerate(types) if code == codes.JSON)
        self.old_temporals = any(code in _HIRES for code in types)
        self._text_form = None
        self.full = Image(self, b"\xff" * self.bitmap_bytes)
        self._images = {}

    def __reduce__(self):
        return (RowDecoder, self._arguments)

    @property
    def text_form(self):
        """The same decoder with JSON as text."""
        if self.json_text:
            return self
        with cython.critical_section(self):
            if self._text_form is None:
                self._text_form = RowDecoder(*self._arguments[:5], True, self.masks)
            return self._text_form

    def decodes_as(self, other):
        """Return whether both decoders return equal values for equal bytes."""
        return self is other or self._arguments == other._arguments

    def _resolve(self, i, code, meta, column, slot):
        """Return (kind, width, slot, parameter, extra, name) of a column."""
        name = f"@{i + 1}" if column is None else column.name
        column_type = "" if column is None else column.column_type.lower()
        try:
            width = _width(code, meta, column_type)
        except DecodeError as error:
            error.column = name
            error.message = f"column {i + 1}, {name!r}: {error.message}"
            raise
        kind, param, extra = self._value_kind(code, meta, column, column_type)
        return kind, width, slot, param, extra, name

    def _masked_plan(self):
        """Return the plan with masks applied to an unmasked decoder's values."""
        plain = RowDecoder(*self._arguments[:3])
        plan = list(self.plan)
        for i, mask in self.masks:
            _, width, slot, _, _, name = plan[i]
            plan[i] = native.MASKED, width, slot, 0, (mask, i, plain), name
        return tuple(plan)

    def _value_kind(self, code, meta, column, column_type):
        if code in _INTEGERS:
            return _INTEGERS[code] + (1 if column is not None and column.unsigned else 0), 0, None
        if code in _HIRES and _fraction_digits(column_type):
            return _HIRES[code][0], _fraction_digits(column_type), None
        if code in _PLAIN_KINDS:
            return _PLAIN_KINDS[code], 0, None
        if code == codes.NEWDECIMAL:
            return native.DECIMAL, meta >> 8, _decimal_groups(meta)
        if code in TEMPORAL:
            return _TEMPORAL_KINDS[code], meta, None
        if code == codes.BIT:
            return native.BIT, 0, None
        if code == codes.JSON:
            return native.JSON, 0, None
        if code == codes.VECTOR or code == codes.GEOMETRY:
            return native.BYTES, 0, None
        if code in (codes.ENUM, codes.SET, codes.STRING) and meta >> 8 in (codes.ENUM, codes.SET):
            return self._label_kind(meta >> 8, column)
        kind, param, extra = self._text_kind(code, meta, column, column_type)
        if code == codes.BLOB_COMPRESSED or code == codes.VARCHAR_COMPRESSED:
            return native.COMPRESSED, kind, extra
        if column_type == "json" and not self.json_text:
            return native.JSON_TEXT, kind, extra
        return kind, param, extra

    def _label_kind(self, real, column):
        labels = None if column is None else column.labels
        if labels is None:
            return native.NUMBER, 0, None
        if real == codes.ENUM:
            first = {}
            for n, label in enumerate(labels):
                first.setdefault(label, n + 1)
            found = [_label_value(label, column.charset, n + 1, first[label]) for n, label in enumerate(labels)]
            return native.ENUM, 0, (NoLabel(), *found)
        # Cache SET texts: few combinations occur in practice.
        return native.SET, 0, (tuple(labels), {}, column.charset)

    def _text_kind(self, code, meta, column, column_type):
        if column is None:
            return native.BYTES, 0, None
        special = {"uuid": native.UUID, "inet6": native.INET6, "inet4": native.INET4}.get(column_type)
        if special is not None:
            return special, 0, None
        charset = column.charset
        codec = None if charset is None or charset == "binary" else codec_of(charset)
        if codec is None:
            if code == codes.STRING and column_type.startswith("binary"):
                return native.PADDED, _string_length(meta), None
            return native.BYTES, 0, None
        if codec in ("utf-8", "utf8"):
            return native.UTF8, 0, (codec, charset)
        return (native.ASCII if _extends_ascii(codec) else native.CODEC), 0, (codec, charset)

    # -- events --------------------------------------------------------------------------------------------------------

    def walk(self, data, pos, end, kind):
        """Count the rows of an event and check every length. A before and after pair is one row.

        ``pos`` is the index of the packed column count, ``end`` the index of the checksum. ``kind``: 0 insert, 1
        update, 2 delete,
        3 update with partial JSON.
        """
        at = self._begin(data, pos, end, kind)
        if kind != 3:
            return self._count(data, at)
        rows = 0
        while at.pos < end:
            self._skip_row(at.before, data, at)
            self._skip_row(self._partial_image(at.after, data, at), data, at)
            rows += 1
        return rows

    def count_rows(self, p, pos, end, kind):
        """Count rows like ``walk``, for kinds 0 to 2 in a buffer with other events. All bytes up to ``end`` must be present."""
        return self._count(p, self._open(p, pos, end, kind))

    def _count(self, p, at):
        before = at.before
        after = at.after
        end = at.end
        rows = 0
        while at.pos < end:
            if before is not None:
                self._skip_row(before, p, at)
            if after is not None:
                self._skip_row(after, p, at)
            rows += 1
        # An image without columns has no bytes. Servers write such a row alone in its event.
        if rows == 0 and (before is None or before.count == 0) and (after is None or after.count == 0):
            rows = 1
        return rows

    def decode(self, data, pos, end, kind):
        """Return the rows as (before, after) pairs of tuples. Arguments: see :meth:`walk`."""
        before, after = self.images(data, pos, end, kind)
        if before is None:
            return [(None, new) for new in after]
        if after is None:
            return [(old, None) for old in before]
        return list(zip(before, after))

    def images(self, data, pos, end, kind):
        """Return the tuples before and after the changes; None for a missing side. Arguments: see :meth:`walk`."""
        at = self._begin(data, pos, end, kind)
        before = at.before
        after = at.after
        olds = None if before is None else []
        news = None if after is None else []
        is_partial = kind == 3
        # An image without columns has no bytes. Servers write such a row alone in its event.
        is_empty = at.pos == end and not is_partial
        if (before is not None and before.count) or (after is not None and after.count):
            is_empty = False
        while at.pos < end or is_empty:
            is_empty = False
            if before is not None:
                old = self._row(before, data, at)
                olds.append(old)
            if is_partial:
                image = self._partial_image(after, data, at)
                news.append(self._apply(image, old, self._row(image, data, at)))
            elif after is not None:
                news.append(self._row(after, data, at))
        return olds, news

    def diffs(self, data, pos, end):
        """Return the diffs of each row for kind 3: a dict from partial column name to diffs."""
        at = self._begin(data, pos, end, 3)
        rows = []
        while at.pos < end:
            self._skip_row(at.before, data, at)
            image = self._partial_image(at.after, data, at)
            values = self._row(image, data, at)
            rows.append({image.names[i]: values[slot] for slot, i in image.partial if values[slot] is not None})
        return rows

    def canonical(self, data, pos, end, kind):
        """Return rows in a form that is independent of the server, for digests. Arguments: see :meth:`walk`.

        Unused NULL bits are 0 (MySQL before 8.0 and MariaDB set them). Old TIME, DATETIME and TIMESTAMP are in the
        format since MySQL
        5.6 without a fraction.
        """
        at = self._begin(data, pos, end, kind)
        before = at.before
        after = at.after
        start = at.pos
        if kind == 3 or not self.old_temporals and not self._has_stray_bits(before or after, after, data, at):
            return data[start:end] if end - start < _SMALL else memoryview(data)[start:end]
        out = bytearray(end - start)  # the result may be shorter
        size = 0
        while at.pos < end:
            if before is not None:
                size = self._put_row(before, data, at, out, size)
            if after is not None:
                size = self._put_row(after, data, at, out, size)
        return out if size == end - start else memoryview(out)[:size]

    def _has_stray_bits(self, first, after, data, at):
        """Return whether unused NULL bits may be set. The first image represents the whole log."""
        p = data
        bits = at.pos + first.null_bytes - 1
        if first.last_mask != 0xFF and bits < at.end:
            return p[bits] > first.last_mask
        return first.last_mask != 0xFF or after is not None and after.last_mask != 0xFF

    def _put_row(self, image, data, at, out, size):
        """Write the canonical form of the row at ``at`` to ``out[size:]`` and return the new size."""
        p = data
        to = out
        kinds = image.kinds
        widths = image.widths
        nulls = at.pos
        pos = nulls + image.null_bytes
        self._skip_row(image, data, at)
        native.copy(to, size, p, nulls, image.null_bytes)
        size += image.null_bytes
        if image.count:
            to[size - 1] &= image.last_mask
        for i in range(image.count if self.old_temporals else 0):
            if p[nulls + (i >> 3)] >> (i & 7) & 1:
                continue
            width = widths[i]
            if width >= _VARIABLE:
                width += native.le_any(p, pos, width - _VARIABLE) - _VARIABLE
            kind = kinds[i]
            start = pos
            pos += width
            if kind != native.OLD_TIME and kind != native.OLD_DATETIME and kind != native.OLD_TIMESTAMP:
                native.copy(to, size, p, start, width)
                size += width
                continue
            number = _new_temporal(kind, data, start)
            width = 5 if kind == native.OLD_DATETIME else width
            size += width
            while width:
                to[size - width] = number >> 8 * (width - 1) & 0xFF
                width -= 1
        native.copy(to, size, p, pos, at.pos - pos)
        return size + at.pos - pos

    def _partial_image(self, image, data, at):
        """Return the plan of an after image with its options and a bit per JSON column."""
        options, pos = packed(data, at.pos, at.end)
        if options > 1:
            raise UnsupportedError(f"an update with the row value options {options:#x}")
        if options == 0:
            at.pos = pos
            return image
        columns = self.json_columns
        size = (len(columns) + 7) // 8
        if size > at.end - pos:
            raise TruncatedError("rows event ends inside the bits of its partial JSON columns")
        bits = int.from_bytes(data[pos : pos + size], "little")
        at.pos = pos + size
        if bits == 0:
            return image
        key = (image, bits)
        found = self._images.get(key)
        if found is None:
            partial = {column for number, column in enumerate(columns) if bits >> number & 1}
            found = Image(self, image.present, partial)
            if len(self._images) < _MAX_IMAGES:
                found = self._images.setdefault(key, found)
        return found

    def _apply(self, image, old, new):
        """Return the row with diffs applied to the old documents."""
        if not image.partial:
            return new
        values = list(new)
        for slot, i in image.partial:
            diffs = new[slot]
            if diffs is None:
                continue
            if old[slot] is ABSENT:
                values[slot] = PartialJson(diffs)
                continue
            try:
                values[slot] = apply_diffs(old[slot], diffs, self.json_text)
            except DecodeError as error:
                error.column = image.names[i]
                raise
        return tuple(values)

    def _begin(self, data, pos, end, kind):
        if pos < 0 or end > len(data) or pos > end:
            raise TruncatedError(f"rows event of {len(data)} bytes has no body from {pos} to {end}")
        return self._open(data, pos, end, kind)

    def _open(self, p, pos, end, kind):
        """Parse the event head: column count and bitmaps of present columns."""
        if kind < 0 or kind > 3:
            raise UnsupportedError(f"rows event of kind {kind}")
        if pos == end:
            raise TruncatedError("rows event ends before its column count")
        count = p[pos]
        pos += 1
        if count == 252:
            if end - pos < 2:
                raise TruncatedError("rows event ends in its column count")
            count = wire.u16(p, pos)
            pos += 2
        elif count > 250:
            raise DecodeError(f"rows event has a column count that begins with {count:#x}; servers have 4096 at most")
        if count != self.count:
            raise DecodeError(f"rows event has {count} columns, its table map {self.count}", remedy=LOG_DAMAGED)
        size = self.bitmap_bytes
        is_update = kind & 1
        if end - pos < (2 * size if is_update else size):
            raise TruncatedError("rows event ends in its bitmap of columns")
        at = Cursor.__new__(Cursor)
        at.pos = pos + size
        at.end = end
        at.before = at.after = None
        image = self._image(p, pos)
        if kind != 0:
            at.before = image
            if is_update:
                at.after = self._image(p, pos + size)
                at.pos += size
        else:
            at.after = image
        # Rows without columns have no bytes and would never end. Rows of kind 3 have options.
        if at.pos < end and image.count == 0 and kind != 3 and (not is_update or at.after.count == 0):
            raise DecodeError("rows event has bytes after images without any column", remedy=LOG_DAMAGED)
        return at

    def _image(self, p, pos):
        """Return the plan for the bitmap at ``pos``."""
        last = pos + self.bitmap_bytes - 1
        i = pos
        while i < last and p[i] == 0xFF:
            i += 1
        if i > last or i == last and p[i] & self.last_mask == self.last_mask:
            if self.hidden:
                raise self._unhidden(self.hidden[0])
            return self.full
        present = wire.piece(p, pos, last + 1)
        image = self._images.get(present)
        if image is None:
            for i in self.hidden:
                if present[i >> 3] >> (i & 7) & 1:
                    raise self._unhidden(i)
            image = Image(self, present)
            if len(self._images) < _MAX_IMAGES:
                image = self._images.setdefault(present, image)
        return image

    def _unhidden(self, i):
        name = self.plan[i][5]
        return UnsupportedError(
            f"column {name!r} is in a row, and seems to be one that MySQL has made for a functional key",
            column=name,
            remedy="Rename a column of yours that is named as those are.",
        )

    def _truncated(self, image, column, at):
        name = image.names[column] if column >= 0 else ""
        part = f"column {name!r}" if name else "the NULL bits of a row"
        return TruncatedError(f"rows event ends inside {part}, in the row at byte {at.pos}", column=name)

    def _skip_row(self, image, p, at):
        steps = image.steps
        nulls = at.pos
        end = at.end
        pos = nulls + image.null_bytes
        if pos > end:
            raise self._truncated(image, -1, at)
        found = 0
        i = nulls
        while i < pos - 1:
            found |= p[i]
            i += 1
        if i < pos:
            found |= p[i] & image.last_mask
        if found:
            return self._skip_nulls(image, p, at)
        i = 0
        stop = image.step_count * 5
        while i < stop:
            pos += wire.u32(steps, i)
            size = steps[i + 4]
            if size > end - pos:
                return self._skip_nulls(image, p, at)
            if size == 1:
                pos += 1 + p[pos]
            elif size == 2:
                pos += 2 + wire.u16(p, pos)
            else:
                pos += size + native.le_any(p, pos, size)
            i += 5
        pos += image.tail
        if pos > end:
            return self._skip_nulls(image, p, at)
        at.pos = pos
        return 0

    def _skip_nulls(self, image, p, at):
        """Skip a row column by column: it has NULLs, or is truncated and the error needs the column."""
        widths = image.widths
        nulls = at.pos
        end = at.end
        pos = nulls + image.null_bytes
        for i in range(image.count):
            if p[nulls + (i >> 3)] >> (i & 7) & 1:
                continue
            size = widths[i]
            if size >= _VARIABLE:
                size -= _VARIABLE
                if size > end - pos:
                    raise self._truncated(image, i, at)
                pos += size
                size = native.le_any(p, pos - size, size)
            if size > end - pos:
                raise self._truncated(image, i, at)
            pos += size
        at.pos = pos
        return 0

    def _row(self, image, data, at):
        p = data
        kinds = image.kinds
        widths = image.widths
        slots = image.slots
        plain = image.plain
        nulls = at.pos
        end = at.end
        pos = nulls + image.null_bytes
        if pos > end:
            raise self._truncated(image, -1, at)
        some = 0
        for i in range(nulls, pos):
            some |= p[i]
        values = native.tuple_new(image.width, image.leaf)
        for i in range(image.count):
            slot = i
            if not plain:
                slot = wire.u16(slots, 2 * i)
            if some and p[nulls + (i >> 3)] >> (i & 7) & 1:
                if slot != _SKIP:
                    native.tuple_set(values, slot, None)
                continue
            size = widths[i]
            if size >= _VARIABLE:
                size -= _VARIABLE
                if size > end - pos:
                    raise self._truncated(image, i, at)
                pos += size
                size = native.le_any(p, pos - size, size)
            if size > end - pos:
                raise self._truncated(image, i, at)
            start = pos
            pos += size
            if slot == _SKIP:
                continue
            kind = kinds[i]
            if kind <= native.U64:
                native.tuple_set(values, slot, _integer(data, start, kind))
            elif kind <= native.PADDED:
                native.tuple_set(values, slot, self._text(image, i, kind, data, start, pos))
            else:
                native.tuple_set(values, slot, self._value(image, i, kind, data, start, pos))
        at.pos = pos
        if image.absent:
            for missing in image.absent:
                slot = missing
                native.tuple_set(values, slot, ABSENT)
        return native.tuple_done(values)

    # -- values: each receives exactly its measured bytes ------------------------------------------------------------------

    def cell(self, image, i, data, start, end):
        """Return the value of column ``i`` of an image."""
        kinds = image.kinds
        kind = kinds[i]
        if kind <= native.U64:
            return _integer(data, start, kind)
        if kind <= native.PADDED:
            return self._text(image, i, kind, data, start, end)
        return self._value(image, i, kind, data, start, end)

    def _text(self, image, i, kind, data, start, end):
        p = data
        if kind <= native.ASCII and native.is_ascii(p, start, end):
            return native.ascii_text(p, start, end)
        if kind == native.UTF8:
            text = native.utf8_text(p, start, end)
            return InvalidText(p[start:end], image.extras[i][1]) if text is None else text
        if kind == native.BYTES:
            return p[start:end]
        raw = p[start:end]
        if kind == native.PADDED:
            return raw.ljust(wire.u16(image.params, 2 * i), b"\0")
        codec, charset = image.extras[i]
        try:
            return raw.decode(codec)
        except UnicodeDecodeError:
            return InvalidText(raw, charset)

    def _value(self, image, i, kind, data, start, end):
        p = data
        params = image.params
        if kind == native.DECIMAL:
            return _decimal(image, i, data, start)
        if kind == native.DATETIME:
            return _datetime(image, i, data, start, end - start, wire.u16(params, 2 * i))
        if kind == native.TIMESTAMP:
            seconds = wire.be32(p, start)
            micros = _fraction(image, i, data, start + 4, end - start - 4)
            return self._timestamp(seconds, micros, wire.u16(params, 2 * i))
        if kind == native.DATE:
            days = wire.u24(p, start)
            return _date(days >> 9, days >> 5 & 15, days & 31)
        if kind == native.FLOAT:
            return _shortest(native.f32(p, start))
        if kind == native.DOUBLE:
            return native.f64(p, start)
        if kind == native.ENUM:
            return _label(image, i, native.le_any(p, start, end - start))
        if kind == native.SET:
            return _set_text(image, i, native.le_any(p, start, end - start))
        if kind == native.JSON:
            return self._json(image, i, data, start, end)
        if kind == native.TIME:
            return _time(image, i, data, start, end - start)
        if kind == native.YEAR:
            year = p[start]
            return year + 1900 if year else 0
        if kind == native.BIT:
            return wire.be_any(p, start, end - start)
        if kind == native.NUMBER:
            return native.le_any(p, start, end - start)
        return self._rare_value(image, i, kind, data, start, end)

    def _rare_value(self, image, i, kind, data, start, end):
        p = data
        digits = wire.u16(image.params, 2 * i)
        if kind == native.JSON_DIFFS:
            return self._json_diffs(image, i, data, start, end)
        if kind == native.COMPRESSED:
            raw = _inflate(image, i, data, start, end)
            return self._text(image, i, digits, raw, 0, len(raw))
        if kind == native.MASKED:
            mask, column, plain = image.extras[i]
            return mask.text(plain.cell(plain.full, column, data, start, end))
        if kind == native.JSON_TEXT:
            return text_objects(self._text(image, i, digits, data, start, end))
        if kind == native.UUID or kind == native.INET6 or kind == native.INET4:
            return _address(kind, p[start:end])
        if kind == native.OLD_TIME:
            number = wire.u24(p, start)
            negative = number >= 0x800000
            if negative:
                number = 0x1000000 - number
            return _delta(negative, number // 10000, number // 100 % 100, number % 100, 0)
        if kind == native.OLD_DATETIME:
            number = wire.u64(p, start)
            day = number // 1000000
            year = day // 10000
            if year > 9999:
                raise _impossible(image, i)
            return _moment(year, day // 100 % 100, day % 100, number // 10000 % 100, number // 100 % 100, number % 100, 0, 0)
        if kind == native.OLD_TIMESTAMP:
            return self._timestamp(wire.u32(p, start), 0, 0)
        if kind == native.HIRES_TIMESTAMP:
            number = wire.be_any(p, start + 4, end - start - 4) * _power(6 - digits)
            if number > 999999:
                raise _impossible(image, i)
            return self._timestamp(wire.be32(p, start), number, digits)
        return _hires(image, i, kind, wire.be_any(p, start, end - start), digits)

    def _timestamp(self, seconds, micros, digits):
        """Return an aware datetime, or the zero date. MariaDB can store the first second of 1970 with a fraction."""
        if seconds == 0 and micros == 0:
            return ZeroDate("0000-00-00 00:00:00" + ("." + "0" * digits if digits else ""))
        if not self._fixed_zone:
            return datetime.datetime.fromtimestamp(seconds, self.timezone).replace(microsecond=micros)
        # Days since 0000-03-01. Years begin in March, so that leap days come last.
        moment = seconds + self._offset + _EPOCH
        second = moment % 86400
        days = moment // 86400
        era = days // 146097
        of_era = days % 146097
        year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
        of_year = of_era - (365 * year + year // 4 - year // 100)
        month = (5 * of_year + 2) // 153
        day = of_year - (153 * month + 2) // 5 + 1
        year += era * 400
        if month < 10:
            month += 3
        else:
            month -= 9
            year += 1
        return native.datetime_new(year, month, day, second // 3600, second // 60 % 60, second % 60, micros, self.timezone)

    def _json(self, image, i, data, start, end):
        try:
            return decode_json(data, start, end) if self.json_text else decode_objects(data, start, end)
        except DecodeError as error:
            error.column = image.names[i]
            raise

    def _json_diffs(self, image, i, data, start, end):
        try:
            return decode_diffs(data, start, end, self.json_text)
        except DecodeError as error:
            error.column = image.names[i]
            raise


def _extends_ascii(codec):
    """Return whether bytes below 128 are always ASCII."""
    try:
        return bytes(range(128)).decode(codec) == bytes(range(128)).decode("ascii")
    except UnicodeDecodeError:
        return False


def _new_temporal(kind, data, start):
    """Return an old temporal value without fraction as the big-endian integer of the format since MySQL 5.6."""
    p = data
    if kind == native.OLD_TIMESTAMP:
        return wire.u32(p, start)
    if kind == native.OLD_TIME:
        number = wire.u24(p, start)
        if number >= 0x800000:
            return 0x800000 - _packed_time(0x1000000 - number)
        return 0x800000 + _packed_time(number)
    number = wire.u64(p, start)
    day = number // 1000000
    return _DATETIME_ZERO + ((day // 10000 * 13 + day // 100 % 100) << 22 | day % 100 << 17 | _packed_time(number % 1000000))


def _packed_time(number):
    return number // 10000 << 12 | number // 100 % 100 << 6 | number % 100


def _integer(data, start, kind):
    p = data
    if kind == native.I32:
        return native.i32(p, start)
    if kind == native.I64:
        return native.i64(p, start)
    if kind == native.I8:
        value = p[start]
        return value - ((value & 0x80) << 1)
    if kind == native.U32:
        return wire.u32(p, start)
    if kind == native.U64:
        return wire.u64(p, start)
    if kind == native.U8:
        return p[start]
    if kind == native.I16:
        value = wire.u16(p, start)
        return value - ((value & 0x8000) << 1)
    if kind == native.U16:
        return wire.u16(p, start)
    if kind == native.I24:
        value = wire.u24(p, start)
        return value - ((value & 0x800000) << 1)
    if kind == native.U24:
        return wire.u24(p, start)
    return None  # type 6 (NULL) has no bytes


def _impossible(image, i):
    return DecodeError(f"column {image.names[i]!r} holds bytes that its type cannot have", column=image.names[i])


def _inflate(image, i, data, start, end):
    """Return the data of a MariaDB COMPRESSED column: a header byte, the length if deflated, and the data."""
    if start == end:
        return b""
    head = data[start]
    if head >> 4 == 0:  # stored uncompressed
        return data[start + 1 : end]
    width = head & 7
    if head >> 4 != 8 or width == 0:
        raise UnsupportedError(
            f"column {image.names[i]!r} is compressed in a way ({head:#x}) that is not known", column=image.names[i]
        )
    size = int.from_bytes(data[start + 1 : start + 1 + width], "big")
    plain = None
    if start + 1 + width <= end and 0 < size <= _LONGEST[image.widths[i] - _VARIABLE]:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS if head & 8 else zlib.MAX_WBITS)
        try:
            plain = inflater.decompress(data[start + 1 + width : end], size + 1)
        except zlib.error:
            pass
    if plain is None or len(plain) != size or not inflater.eof or inflater.unused_data:
        raise DecodeError(f"column {image.names[i]!r} cannot be inflated", column=image.names[i], remedy=LOG_DAMAGED)
    return plain


def _decimal(image, i, data, start):
    p = data
    extra = image.extras[i]
    groups = extra
    value = native.decimal_new(p, start, groups, len(extra) // 2, wire.u16(image.params, 2 * i))
    if value is None:
        raise _impossible(image, i)
    return value


def _shortest(value):
    """Return the double with the shortest repr that reads back as this float32: 0.1, not 0.10000000149011612.

    The quotient of two integers that doubles represent exactly equals the parsed decimal text.
    """
    size = value if value >= 0 else -value
    if not size < 16777216.0 or size < 1e-7:
        return value if size == 0 or size != size else _shortest_text(value)
    power = 1.0
    for _ in range(16):
        whole = size * power + _ROUND - _ROUND
        if whole > 999999999.0:
            break
        near = whole / power
        if native.to_f32(near) == size:
            return near if value >= 0 else -near
        power *= 10.0
    return _shortest_text(value)


def _shortest_text(value):
    for digits in range(1, 10):
        near = float(f"{value:.{digits}g}")
        if native.to_f32(near) == value:
            return near
    return value


def _days_in(year, month):
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return _MONTH_DAYS[month]


def _date(year, month, day):
    if 0 < year < 10000 and 0 < month < 13 and (0 < day < 29 or 0 < day <= _days_in(year, month)):
        return native.date_new(year, month, day)
    return ZeroDate(f"{year:04}-{month:02}-{day:02}")


def _moment(year, month, day, hour, minute, second, micros, digits):
    """Return a naive datetime, or the server's text if it is invalid."""
    if (
        0 < year < 10000
        and 0 < month < 13
        and (0 < day < 29 or 0 < day <= _days_in(year, month))
        and hour < 24
        and minute < 60
        and second < 60
    ):
        return native.datetime_new(year, month, day, hour, minute, second, micros, None)
    text = f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"
    return ZeroDate(f"{text}.{micros:06}"[: 20 + digits] if digits else text)


def _delta(negative, hours, minutes, seconds, micros):
    total = hours * 3600 + minutes * 60 + seconds
    return native.timedelta_new(-total, -micros) if negative else native.timedelta_new(total, micros)


def _power(exponent):
    value = 1
    while exponent > 0:
        value *= 10
        exponent -= 1
    return value


def _micros(image, i, fraction, size):
    """Convert a fraction to microseconds: ``size`` bytes with hundredths, ten-thousandths or millionths."""
    if size == 0:
        return 0
    micros = fraction * 10000 if size == 1 else fraction * 100 if size == 2 else fraction
    if micros > 999999:
        raise _impossible(image, i)
    return micros


def _fraction(image, i, data, start, size):
    p = data
    if size == 0:
        return 0
    return _micros(image, i, wire.be_any(p, start, size), size)


def _datetime(image, i, data, start, size, digits):
    p = data
    micros = _fraction(image, i, data, start + 5, size - 5)
    packed = wire.be40(p, start)
    if packed < _DATETIME_ZERO:
        raise _impossible(image, i)
    packed -= _DATETIME_ZERO
    days = packed >> 17
    months = days >> 5
    return _moment(months // 13, months % 13, days & 31, packed >> 12 & 31, packed >> 6 & 63, packed & 63, micros, digits)


def _time(image, i, data, start, size):
    """Decode TIME: seconds and fraction in one integer with an offset."""
    p = data
    bits = 8 * (size - 3)
    packed = wire.be_any(p, start, size)
    half = 0x800000
    half <<= bits  # separate statement: the literal is a C int
    negative = packed < half
    packed = half - packed if negative else packed - half
    whole = packed >> bits
    micros = _micros(image, i, packed - (whole << bits), size - 3)
    return _delta(negative, whole >> 12 & 0x3FF, whole >> 6 & 63, whole & 63, micros)


def _hires(image, i, kind, packed, digits):
    """Decode MariaDB's DATETIME or TIME with fraction, before 10.1.2 or with mysql56_temporal_format=OFF."""
    unit = _power(digits)
    if kind == native.HIRES_DATETIME:
        fraction = packed % unit
        packed //= unit
        months = packed // 2764800
        if months // 13 > 9999:
            raise _impossible(image, i)
        return _moment(
            months // 13,
            months % 13,
            packed // 86400 % 32,
            packed // 3600 % 24,
            packed // 60 % 60,
            packed % 60,
            fraction * _power(6 - digits),
            digits,
        )
    zero = 3020400 * unit
    negative = packed < zero
    packed = zero - packed if negative else packed - zero
    fraction = packed % unit
    packed //= unit
    if packed >= 3020400:
        raise _impossible(image, i)
    return _delta(negative, 0, 0, packed, fraction * _power(6 - digits))


def _label(image, i, number):
    labels = image.extras[i]
    if number >= len(labels):
        raise DecodeError(
            f"member {number} of the ENUM {image.names[i]!r}, which has {len(labels) - 1}",
            column=image.names[i],
            remedy="The table's columns are not what its schema says.",
        )
    return labels[number]


def _set_text(image, i, mask):
    labels, seen, charset = image.extras[i]
    text = seen.get(mask)
    if text is None:
        if mask >> len(labels):
            raise DecodeError(
                f"bits {mask:#x} in the SET {image.names[i]!r}, which has {len(labels)} members",
                column=image.names[i],
                remedy="The table's columns are not what its schema says.",
            )
        text = set_text(labels, mask)
        text = _label_value(text, charset, mask, _bits_of(text, labels))
        if len(seen) < 4096:
            text = seen.setdefault(mask, text)
    return text


def _bits_of(text, labels):
    """Return the bits of a SET that its text suggests."""
    bits = 0
    for label in text.split(",") if text else ():
        if label in labels:
            bits |= 1 << labels.index(label)
    return bits


def _label_value(text, charset, number, suggested):
    """Return the text of labels. An uncertain or ambiguous text includes the number."""
    if not is_sure(text):
        return InvalidText(label_bytes(text), charset or "", number)
    return text if number == suggested else AmbiguousLabel(text, number)


def _address(kind, raw):
    """Return the text of MariaDB's UUID, INET6 or INET4; the bytes if they are too long."""
    size = 4 if kind == native.INET4 else 16
    if len(raw) > size:
        return raw
    raw = raw.ljust(size, b"\0")  # trailing zero bytes are not stored
    if kind == native.INET4:
        return _inet4_text(raw)
    if kind == native.INET6:
        return _inet6_text(raw)
    # Most UUID versions are stored with the time first, so that they sort.
    if raw[6] & 0x80 and 0 < raw[8] < 0x60:
        raw = raw[12:16] + raw[10:12] + raw[8:10] + raw[6:8] + raw[0:6]
    return str(UUID(bytes=raw))


def _inet4_text(raw):
    return ".".join([str(byte) for byte in raw])


def _inet6_text(raw):
    """Return the server's form: "::" replaces the first longest run of zeros, even a single zero."""
    words = struct.unpack(">8H", raw)
    gap, length = -1, 0
    for i in range(8):
        run = 0
        while i + run < 8 and words[i + run] == 0:
            run += 1
        if run > length:
            gap, length = i, run
    head = ":".join([f"{word:x}" for word in words[: max(gap, 0)]])
    if gap == 0 and (length == 6 or length == 5 and words[5] == 0xFFFF):
        return ("::" if length == 6 else "::ffff:") + _inet4_text(raw[12:])
    tail = ":".join([f"{word:x}" for word in words[gap + length if gap >= 0 else 0 :]])
    return f"{head}::{tail}" if gap >= 0 else tail
