# cython: language_level=3, cdivision=True
# cdivision: only non-negative integers are divided here, where C and Python agree.
"""Writes rows as message bytes: first encode each value as a piece, then assemble messages from the pieces.

Never phrases error messages: if a row lacks data, a method returns None and the caller reports the reason. A piece is encoded
from log bytes if the result is known to equal the Python function's, else by the function. Compiled if a C compiler is present
at installation.
"""

import datetime
from collections.abc import Sequence
from typing import Any

from canal.formats import columnar, put
from canal.rows import native, wire
from canal.rows.values import ABSENT

#: Flags for a column in an image.
_ABSENT = 0
_NULL = 1
_TEXT = 2
_BYTES = 3
_OTHER = 4

#: Addresses for a NULL value and for a column absent from the image. Events are smaller than either address.
_NOWHERE = 0xFFFFFFFF
_MISSING = 0xFFFFFFFE
_SKIP = 0xFFFF
_VARIABLE = 128
#: Maximum bytes for any value other than text.
_ROOM = 160
#: Maximum buffer size in bytes to keep for reuse.
_KEPT = 1 << 20
_DATETIME_ZERO = 0x8000000000
_MILLION = 1000000
_DAY = 86400
#: Days from 0000-03-01 to 1970-01-01. The calendar arithmetic starts years on March 1.
_EPOCH_DAYS = 719468
#: Maximum microseconds for which nanoseconds fit into 64 bits.
_MOST_MICROS = 9223372036854775
#: Maximum number of cached pieces for a SET column.
_LABELS_KEPT = 4096


class Buffer:
    """A growing byte buffer."""

    def __init__(self):
        self.data = bytearray(4096)
        self.used = 0

    def reserve(self, size):
        """Make room for ``size`` more bytes."""
        size += self.used
        if size > len(self.data):
            native.resize(self.data, 2 * size)

    def add(self, text):
        size = len(text)
        self.reserve(size)
        native.copy(self.data, self.used, text, 0, size)
        self.used += size

    def take(self, start):
        """Return the bytes from ``start`` to the end."""
        return bytes(memoryview(self.data)[start : self.used])

    def clear(self):
        self.used = 0
        if len(self.data) > _KEPT:
            self.data = bytearray(4096)


class Side:
    """The pieces of one row image: ``spans`` holds the start and end of each piece, ``flags`` the flag of each column."""

    def __init__(self, count):
        self.buffer = Buffer()
        self.spans = bytearray(16 * count)
        self.flags = bytearray(count)


class Program:
    """Steps that write one value, key or header.

    Args:
        steps: pairs of a step and an argument:

            * TEXT: the argument, as bytes. LITERAL: the bytes at this index in the entry's literals.
            * ORD: the row's number in the transaction. NUMBER and ZIGZAG: the row's number in the event, as JSON and as Avro.
            * AFTER, BEFORE: the members of this image. CHANGED: members of the before image with a different value in the
              after image. If the argument is true, columns absent from the after image are included.
            * KEY, KEY_BEFORE: the key. Argument: whether all columns must be known, the bytes before each value, and whether
              to use the pieces in ``others``.
            * PRESENT: the columns in the row. Argument: the bytes for a complete row, the bytes for each column, the bytes
              before and after a partial list, and the bytes for an empty list.
            * LAST: a mark for the last row in a transaction. Argument: the bytes for the last row, and the bytes before the
              number of any other row.
            * BINARY: the lists of columns with bytes. Argument: the images to inspect (1 before, 2 after).
    """

    def __init__(self, steps: Sequence[tuple[int, Any]]) -> None:
        self.steps = bytes([step for step, _ in steps])
        self.arguments = tuple([argument for _, argument in steps])
        self.count = len(steps)


class Messages:
    """The messages to write for a change.

    Args:
        same: the messages if the key does not change: (key, value, header name, header). Key, value and header are each a
            Program or None.
        moved: the messages if the key changes. None means ``same``.
        suffixes: the id suffix for each message in ``moved``.
    """

    def __init__(self, same: Sequence[Any], moved: Sequence[Any] | None = None, suffixes: Sequence[str] = ()) -> None:
        self.same = tuple(same)
        self.moved = None if moved is None else tuple(moved)
        self.suffixes = tuple(suffixes)


class RowWriter:
    """Writes a table's changes in a format. Not thread-safe.

    Args:
        names: for each column, the bytes before its piece.
        makes: for each column, the function that converts a value to a piece.
        styles: for each column, maps each kind in ``native`` to a style number in ``put`` and a parameter.
        sources: for each column, its number in the table's rows. A table column may have several pieces.
        members: the number of columns to write as row members. Later columns are only for keys.
        keys: the columns to use as the key.
        others: the columns to use as a second form of the key.
        labels: for each column, the name as JSON.
        null: the piece for NULL.
        comma: the bytes between members.
        nulls: whether to write members with NULL.
        is_whole: whether to reject rows with an absent column.
    """

    def __init__(
        self,
        names: Sequence[bytes],
        makes: Sequence[Any],
        styles: Sequence[Any],
        sources: Sequence[int],
        members: int,
        keys: Sequence[int],
        others: Sequence[int] = (),
        labels: Sequence[bytes] = (),
        null: bytes = b"null",
        comma: bytes = b",",
        nulls: bool = True,
        is_whole: bool = False,
    ) -> None:
        self.names = tuple(names)
        self.makes = list(makes)
        self.styles = tuple(styles)
        self.sources = tuple(sources)
        self.members = members
        self.count = len(self.names)
        self.keys = tuple(keys)
        self.others = tuple(others)
        self.labels = tuple(labels)
        self.null = null
        self.comma = comma
        self.nulls = nulls
        self.is_whole = is_whole
        self.before = Side(self.count)
        self.after = Side(self.count)
        self.out = Buffer()
        self.has_before = False
        self.has_after = False
        self.decoder = None
        #: Number of rows in the transaction, or 0 if unknown.
        self.total = 0

    def bind(self, decoder: Any, slots: Any, constants: Any, marks: Any) -> None:
        """Read row images with this decoder from now on.

        Args:
            decoder: for the source table. Must return JSON as text.
            slots: for each column in the table's rows, its slot in the images, or None for a constant.
            constants: for each column in the table's rows, its constant.
            marks: maps a slot to a function to apply to its values first.
        """
        self._follow(decoder)
        by_slot = {row[2]: (i, row) for i, row in enumerate(decoder.plan)}
        ops = []
        params = []
        kinds = []
        columns = []
        found = []
        self.extras = [None] * self.count
        self.pieces = [None] * self.count
        self.marks = [None] * self.count
        for j in range(self.count):
            source = self.sources[j]
            slot = slots[source]
            if slot is None:
                value = constants[source]
                self.pieces[j] = None if value is None else self.makes[j](value)
                self.extras[j] = value
                found.append(_SKIP)
                ops.append(put.OTHER)
                params.append(0)
                kinds.append(0)
                columns.append(0)
                continue
            i, row = by_slot[slot]
            kind = row[0]
            op, param = self.styles[j].get(kind, (put.OTHER, 0))
            self.marks[j] = marks.get(slot)
            if self.marks[j] is not None:
                op = put.OTHER
            if op == put.MOMENT and kind == native.TIMESTAMP and not self.is_fixed and not param & put.IN_UTC:
                op = put.OTHER
            if op == put.LABELS:
                if kind == native.ENUM:
                    self.pieces[j] = self._enum(j, row[4])
                else:
                    self.pieces[j] = {}
            self.extras[j] = row[4] if kind == native.DECIMAL else b""
            found.append(slot)
            ops.append(op)
            params.append(param)
            kinds.append(kind)
            columns.append(i)
        self.scales = bytes([decoder.plan[i][3] & 0xFF for i in columns])
        self.ops = bytes(ops)
        self.params = bytes(params)
        self.kinds = bytes(kinds)
        self.columns = columns
        self.slots = b"".join([slot.to_bytes(2, "little") for slot in found])

    def _follow(self, decoder):
        self.decoder = decoder
        self.width = decoder.width
        self.cells = bytearray(8 * max(decoder.width, 1))
        self.is_fixed = decoder._fixed_zone
        self.offset = decoder._offset
        self.zone = b""
        if self.is_fixed:
            self.zone = datetime.datetime(2000, 1, 1, tzinfo=decoder.timezone).isoformat()[19:].encode()

    def _enum(self, j, labels):
        """Return the piece for each label, or None if the piece depends on the decoded value."""
        pieces = []
        for label in labels:
            piece = None
            if type(label) is str:
                try:
                    piece = self.makes[j](label)
                except ValueError:
                    piece = None
            pieces.append(piece)
        return pieces

    # -- pieces --------------------------------------------------------------------------------------------------------

    def load(self, before: Any, after: Any) -> None:
        """Load a row as Python values before and after the change. A missing image is None.

        Raises:
            ValueError: if a function rejects a value.
        """
        self.has_before = before is not None
        self.has_after = after is not None
        if before is not None:
            self._load(self.before, before)
        if after is not None:
            self._load(self.after, after)

    def _load(self, side, values):
        side.buffer.used = 0
        for j in range(self.count):
            value = values[self.sources[j]]
            if value is None or value is ABSENT:
                self._span(side, j, side.buffer.used, _NULL if value is None else _ABSENT)
            else:
                self._make(side, j, value)

    def _span(self, side, j, start, flag):
        spans = side.spans
        flags = side.flags
        native.put64(spans, 16 * j, start)
        native.put64(spans, 16 * j + 8, side.buffer.used)
        flags[j] = flag

    def _make(self, side, j, value):
        start = side.buffer.used
        side.buffer.add(self.makes[j](value))
        self._span(side, j, start, _BYTES if isinstance(value, bytes) else _TEXT if isinstance(value, str) else _OTHER)

    def _read(self, side, image, data, at):
        """Write the pieces for the image at ``at``, then advance ``at`` past the image."""
        self._measure(image, data, at)
        c = self.cells
        slots = self.slots
        side.buffer.used = 0
        for j in range(self.count):
            slot = wire.u16(slots, 2 * j)
            if slot == _SKIP:
                piece = self.pieces[j]
                if piece is None:
                    self._span(side, j, side.buffer.used, _NULL)
                else:
                    self._make(side, j, self.extras[j])
                continue
            start = wire.u32(c, 8 * slot)
            if start == _NOWHERE:
                self._span(side, j, side.buffer.used, _NULL)
            elif start == _MISSING:
                self._span(side, j, side.buffer.used, _ABSENT)
            else:
                self._piece(side, j, data, start, wire.u32(c, 8 * slot + 4))

    def _measure(self, image, data, at):
        """Store the addresses of the row's values at ``at``, then advance ``at`` past the row."""
        p = data
        c = self.cells
        widths = image.widths
        slots = image.slots
        plain = image.plain
        nulls = at.pos
        end = at.end
        pos = nulls + image.null_bytes
        if pos > end:
            raise columnar.short()
        if not plain or image.count < self.width:
            for slot in range(self.width):
                native.put32(c, 8 * slot, _MISSING)
        for i in range(image.count):
            slot = i if plain else wire.u16(slots, 2 * i)
            if p[nulls + (i >> 3)] >> (i & 7) & 1:
                if slot != _SKIP:
                    native.put32(c, 8 * slot, _NOWHERE)
                continue
            size = widths[i]
            if size >= _VARIABLE:
                size -= _VARIABLE
                if size > end - pos:
                    raise columnar.short()
                pos += size
                size = native.le_any(p, pos - size, size)
            if size > end - pos:
                raise columnar.short()
            if slot != _SKIP:
                native.put32(c, 8 * slot, pos)
                native.put32(c, 8 * slot + 4, pos + size)
            pos += size
        at.pos = pos

    def _piece(self, side, j, data, start, end):
        p = data
        buffer = side.buffer
        buffer.reserve(6 * (end - start) + _ROOM)
        to = buffer.data
        first = buffer.used
        op = self.ops[j]
        kind = self.kinds[j]
        flag = _OTHER
        pos = -1
        if op == put.INTEGER or op == put.QUOTED_INTEGER:
            pos = first
            if op == put.QUOTED_INTEGER:
                to[pos] = 34
                pos += 1
            if kind == native.U64 and self.params[j] == 0:
                pos = put.unsigned(to, pos, wire.u64(p, start))
            elif kind == native.BIT:
                pos = put.unsigned(to, pos, wire.be_any(p, start, end - start))
            elif kind == native.NUMBER:
                pos = put.unsigned(to, pos, native.le_any(p, start, end - start))
            else:
                pos = put.integer(to, pos, _number(p, start, kind))
            if op == put.QUOTED_INTEGER:
                to[pos] = 34
                pos += 1
        elif op == put.ASCII_TEXT or op == put.UTF8_TEXT:
            flag = _TEXT
            if native.is_utf8(p, start, end) if kind == native.UTF8 else native.is_ascii(p, start, end):
                if op == put.ASCII_TEXT:
                    pos = put.ascii_string(to, first, p, start, end)
                else:
                    pos = put.utf8_string(to, first, p, start, end)
        elif op == put.DECIMAL_TEXT:
            groups = self.extras[j]
            to[first] = 34
            pos = put.decimal(to, first + 1, p, start, groups, len(groups) // 2, self.scales[j])
            if pos >= 0:
                to[pos] = 34
                pos += 1
        elif op == put.DECIMAL_NUMBER:
            groups = self.extras[j]
            pos = put.decimal(to, first, p, start, groups, len(groups) // 2, self.scales[j])
        elif op == put.DECIMAL_BASE64:
            groups = self.extras[j]
            end = put.unscaled(to, first + 80, p, start, groups, len(groups) // 2)
            if end >= 0:
                to[first] = 34
                pos = put.base64(to, first + 1, to, first + 80, end)
                to[pos] = 34
                pos += 1
        elif op == put.MOMENT or op == put.DAY or op == put.EPOCH:
            pos = self._temporal(to, first, p, start, end, op, kind, self.params[j])
        elif op == put.REAL:
            value = native.f64(p, start) if kind == native.DOUBLE else self._single(j, data, start, end)
            pos = self._real(to, first, value, self.params[j])
        elif op == put.BASE64:
            flag = _BYTES
            to[first] = 34
            pos = put.base64(to, first + 1, p, start, end)
            to[pos] = 34
            pos += 1
        elif op == put.LABELS:
            self._label(side, j, data, start, end)
            return 0
        elif op >= put.AVRO_LONG:
            pos = self._avro(side, j, data, start, end, op, kind)
        if pos < 0:
            self._make(side, j, self._value(j, data, start, end))
        else:
            buffer.used = pos
            self._span(side, j, first, flag)
        return 0

    def _avro(self, side, j, data, start, end, op, kind):
        """Write a value as Avro. Return -1 if the Python function must write it.

        A value in an optional column starts with the type's index in the union.
        """
        p = data
        to = side.buffer.data
        pos = side.buffer.used
        form = self.params[j]
        if form & put.OPTIONAL:
            to[pos] = 2
            pos += 1
            form -= put.OPTIONAL
        if op == put.AVRO_LONG:
            return put.zigzag(to, pos, _number(p, start, kind))
        if op == put.AVRO_TEXT:
            if not (native.is_utf8(p, start, end) if kind == native.UTF8 else native.is_ascii(p, start, end)):
                return -1
        elif op == put.AVRO_DECIMAL:
            groups = self.extras[j]
            end = put.unscaled(to, pos + 1, p, start, groups, len(groups) // 2)
            if end >= 0:
                to[pos] = 2 * (end - pos - 1)  # 32 bytes at most, so the length takes a single byte
            return end
        elif op == put.AVRO_MOMENT:
            end = self._temporal(to, pos, p, start, end, put.MOMENT, kind, form)
            if end >= 0:  # the length replaces the opening quote
                to[pos] = 2 * (end - pos - 2)
                end -= 1
            return end
        elif op == put.AVRO_EPOCH:
            return self._temporal(to, pos, p, start, end, op, kind, form)
        elif op == put.AVRO_REAL:
            if kind == native.FLOAT:
                native.copy(to, pos, p, start, 4)
                return pos + 4
            native.copy(to, pos, p, start, 8)
            return pos + 8
        pos = put.zigzag(to, pos, end - start)
        native.copy(to, pos, p, start, end - start)
        return pos + end - start

    def _value(self, j, data, start, end):
        """Return a column's Python value."""
        decoder = self.decoder
        value = decoder.cell(decoder.full, self.columns[j], data, start, end)
        mark = self.marks[j]
        return value if mark is None else mark(value)

    def _single(self, j, data, start, end):
        """Return a FLOAT as the double to which the decoder converts it."""
        decoder = self.decoder
        return decoder.cell(decoder.full, self.columns[j], data, start, end)

    def _real(self, to, pos, value, form):
        size = value if value >= 0 else -value
        if size - size != 0:
            return -1
        if form & put.LIKE_JAVA and not (0.001 <= size < 10000000.0):
            return -1
        if form & put.QUOTED:
            to[pos] = 34
            pos = put.real(to, pos + 1, value)
            to[pos] = 34
            return pos + 1
        return put.real(to, pos, value)

    def _label(self, side, j, data, start, end):
        p = data
        number = native.le_any(p, start, end - start)
        first = side.buffer.used
        known = self.pieces[j]
        piece = None
        if self.kinds[j] == native.ENUM:
            if number < len(known):
                piece = known[number]
        else:
            piece = known.get(number)
        if piece is None:
            value = self._value(j, data, start, end)
            self._make(side, j, value)
            if self.kinds[j] == native.SET and type(value) is str and len(known) < _LABELS_KEPT:
                known[number] = side.buffer.take(first)
            return
        side.buffer.add(piece)
        self._span(side, j, first, _TEXT)

    def _temporal(self, to, pos, p, start, end, op, kind, form):
        """Write a date or time. Return -1 if Python or the requested style cannot represent it."""
        second = -1
        micros = 0
        year = 1
        month = 1
        day = 1
        days = 0
        if kind == native.DATE:
            value = wire.u24(p, start)
            year = value >> 9
            month = value >> 5 & 15
            day = value & 31
            if not columnar.is_date(year, month, day):
                return -1
        elif kind == native.DATETIME:
            value = wire.be40(p, start) - _DATETIME_ZERO
            micros = columnar.micros_of(p, start + 5, end)
            if value < 0 or micros < 0:
                return -1
            day = value >> 17
            month = day >> 5
            year = month // 13
            month %= 13
            day &= 31
            if (value >> 12 & 31) > 23 or (value >> 6 & 63) > 59 or (value & 63) > 59 or not columnar.is_date(year, month, day):
                return -1
            second = (value >> 12 & 31) * 3600 + (value >> 6 & 63) * 60 + (value & 63)
        elif kind == native.TIMESTAMP:
            value = wire.be32(p, start)
            micros = columnar.micros_of(p, start + 4, end)
            if micros < 0 or value + micros == 0:
                return -1
            if not form & put.IN_UTC:
                value += self.offset
            value += _EPOCH_DAYS * _DAY
            second = value % _DAY
            days = value // _DAY
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
        elif kind == native.TIME:
            if op != put.EPOCH and op != put.AVRO_EPOCH or not columnar.put_time(to, pos, p, start, end - start):
                return -1
            value = native.i64(to, pos)
            if form == put.NANOS:
                value *= 1000
            return put.integer(to, pos, value) if op == put.EPOCH else put.zigzag(to, pos, value)
        else:
            return -1
        if op == put.EPOCH or op == put.AVRO_EPOCH:
            days = columnar.days(year, month, day)
            value = (days * _DAY + second) * _MILLION + micros
            if form == put.DAYS:
                value = days
            elif form == put.NANOS:
                if value > _MOST_MICROS or value < -_MOST_MICROS:
                    return -1
                value *= 1000
            elif form == put.MILLIS:
                value = value // 1000 if value >= 0 else -((999 - value) // 1000)
            return put.integer(to, pos, value) if op == put.EPOCH else put.zigzag(to, pos, value)
        to[pos] = 34
        pos = put.moment(to, pos + 1, year, month, day, second, micros, form)
        if form & put.WITH_ZONE:
            native.copy(to, pos, self.zone, 0, len(self.zone))
            pos += len(self.zone)
        if form & put.WITH_Z:
            to[pos] = 90
            pos += 1
        to[pos] = 34
        return pos + 1

    # -- messages ------------------------------------------------------------------------------------------------------

    def lines(self, entry: Any, messages: Any, literals: Any) -> Any:
        """Return the values for an entry's changes, one per line. None means a failure: encode rows singly for the reason.

        Raises:
            ValueError: if a function rejects a value.
            DecodeError: if a row's bytes cannot be decoded.
        """
        out = self.out
        out.used = 0
        ready = self._entry(entry, messages, literals, None)
        made = out.take(0) if ready else None
        out.clear()
        return made

    def messages(self, entry: Any, messages: Any, literals: Any) -> Any:
        """Return the messages for an entry's changes, like ``change``. None means a failure: encode rows singly for the reason.

        Raises:
            ValueError: if a function rejects a value.
            DecodeError: if a row's bytes cannot be decoded.
        """
        found = []
        self.out.used = 0
        ready = self._entry(entry, messages, literals, found)
        self.out.clear()
        return found if ready else None

    def line(self, messages: Any, literals: Any, ord: int, first: int) -> Any:
        """Return the values for the loaded row, one per line, or None if the row lacks a required column."""
        out = self.out
        out.used = 0
        ready = self._change(messages, literals, ord, first, None)
        made = out.take(0) if ready else None
        out.clear()
        return made

    def change(self, messages: Any, literals: Any, ord: int, first: int) -> Any:
        """Return the messages for the loaded row, or None if the row lacks a required column.

        A message is (ord, id suffix, key, value, header name, header).
        """
        found = []
        self.out.used = 0
        ready = self._change(messages, literals, ord, first, found)
        self.out.clear()
        return found if ready else None

    def _entry(self, entry, messages, literals, found):
        decoder = self.decoder
        data = entry.data
        first = entry.first_row
        skip = entry.skip_rows
        at = decoder._begin(data, entry.body, entry.body_end, entry.kind)
        before = at.before
        after = at.after
        self.has_before = before is not None
        self.has_after = after is not None
        if (before is not None and before.count == 0) or (after is not None and after.count == 0):
            return False
        wanted = None if entry.rare is None else entry.selected
        if wanted is not None:
            wanted = frozenset(wanted)
        n = 0
        while at.pos < at.end:
            if before is not None:
                self._read(self.before, before, data, at)
            if after is not None:
                self._read(self.after, after, data, at)
            if n >= skip and (wanted is None or n - skip in wanted):
                if not self._change(messages, literals, first + n, first, found):
                    return False
            n += 1
        return True

    def _change(self, messages, literals, ord, first, found):
        out = self.out
        if self.is_whole and self._lacks():
            return False
        plan = messages.same
        is_moved = False
        if messages.moved is not None:
            moved = self._moved()
            if moved < 0:
                return False
            if moved > 0:
                plan = messages.moved
                is_moved = True
        for i in range(len(plan)):
            key, value, name, header = plan[i]
            if found is None:
                if value is not None:
                    if not self._write(value, literals, ord, first):
                        return False
                    out.reserve(1)
                    to = out.data
                    to[out.used] = 10
                    out.used += 1
                continue
            out.used = 0
            if key is not None:
                if not self._write(key, literals, ord, first):
                    return False
                key = out.take(0)
                out.used = 0
            if value is not None:
                if not self._write(value, literals, ord, first):
                    return False
                value = out.take(0)
                out.used = 0
            if header is not None:
                if not self._write(header, literals, ord, first):
                    return False
                header = out.take(0)
            found.append((ord, messages.suffixes[i] if is_moved else "", key, value, name, header))
        return True

    def _lacks(self):
        """Return whether an image lacks a column."""
        old = self.before.flags
        new = self.after.flags
        lacking = False
        for j in range(self.members):
            lacking = lacking or self.has_before and old[j] == _ABSENT or self.has_after and new[j] == _ABSENT
        return lacking

    def _moved(self):
        """Return 1 if the change modifies the key, 0 if not, or -1 if the images lack columns needed to decide or write it."""
        if not self.has_before or not self.has_after:
            return 0
        old = self.before.flags
        new = self.after.flags
        for j in self.keys:
            if new[j] != _ABSENT:
                if old[j] == _ABSENT:
                    return -1
                if not self._is_same(j):
                    return -1 if self._lacks() else 1
        return 0

    def _is_same(self, j):
        """Return whether a column has the same piece before and after the change."""
        p = self.before.spans
        q = self.after.spans
        start = wire.u64(p, 16 * j)
        other = wire.u64(q, 16 * j)
        size = wire.u64(p, 16 * j + 8) - start
        if size != wire.u64(q, 16 * j + 8) - other:
            return False
        if size == 0 and self.before.flags[j] != self.after.flags[j]:
            return False
        return wire.same(self.before.buffer.data, start, self.after.buffer.data, other, size)

    def _write(self, program, literals, ord, first):
        """Run a program. Return False if the row lacks a required column."""
        out = self.out
        steps = program.steps
        for i in range(program.count):
            step = steps[i]
            if step == put.TEXT:
                out.add(program.arguments[i])
            elif step == put.LITERAL:
                out.add(literals[program.arguments[i]])
            elif step == put.AFTER:
                self._members(self.after, 0)
            elif step == put.BEFORE:
                self._members(self.before, 0)
            elif step == put.CHANGED:
                self._members(self.before, 2 if program.arguments[i] else 1)
            elif step == put.KEY or step == put.KEY_BEFORE:
                if not self._key(step == put.KEY and self.has_after, program.arguments[i]):
                    return False
            elif step == put.ORD or step == put.NUMBER:
                out.reserve(24)
                out.used = put.integer(out.data, out.used, ord if step == put.ORD else ord - first)
            elif step == put.PRESENT:
                self._present(program.arguments[i])
            elif step == put.LAST:
                last, other = program.arguments[i]
                if ord + 1 == self.total:
                    out.add(last)
                elif other:
                    out.add(other)
                    out.reserve(24)
                    out.used = put.integer(out.data, out.used, ord)
            elif step == put.ZIGZAG:
                out.reserve(16)
                out.used = put.zigzag(out.data, out.used, ord - first)
            else:
                self._binary(program.arguments[i])
        return True

    def _members(self, side, changed):
        """Write the columns in an image.

        With ``changed`` 1, write only columns that differ in the after image. With 2, also columns absent from that image.
        """
        out = self.out
        flags = side.flags
        new = self.after.flags
        some = False
        for j in range(self.members):
            flag = flags[j]
            if flag == _ABSENT or flag == _NULL and not self.nulls and not changed:
                continue
            if changed and (changed == 1 if new[j] == _ABSENT else self._is_same(j)):
                continue
            if some:
                out.add(self.comma)
            some = True
            out.add(self.names[j])
            self._add(side, j, flag)

    def _add(self, side, j, flag):
        out = self.out
        if flag == _NULL:
            out.add(self.null)
            return 0
        spans = side.spans
        start = wire.u64(spans, 16 * j)
        size = wire.u64(spans, 16 * j + 8) - start
        out.reserve(size)
        native.copy(out.data, out.used, side.buffer.data, start, size)
        out.used += size
        return 0

    def _key(self, is_after, argument):
        """Write the key columns. With ``is_whole``, use the before image for columns absent from the after image."""
        is_whole, names, is_other = argument
        keys = self.others if is_other else self.keys
        out = self.out
        some = False
        for i in range(len(keys)):
            j = keys[i]
            side = self.after if is_after else self.before
            flag = side.flags[j]
            if flag == _ABSENT and is_whole and is_after and self.has_before:
                side = self.before
                flag = side.flags[j]
            if flag == _ABSENT:
                if is_whole:
                    return False
                continue
            if some:
                out.add(self.comma)
            some = True
            out.add(names[i])
            self._add(side, j, flag)
        return True

    def _present(self, argument):
        """Write the texts for the columns in the row."""
        out = self.out
        flags = self.after.flags if self.has_after else self.before.flags
        lacking = False
        for j in range(self.members):
            if flags[j] == _ABSENT:
                lacking = True
        whole, texts, before, after, nothing = argument
        if lacking:
            found = self.comma.join([texts[j] for j in range(self.members) if texts[j] and flags[j] != _ABSENT])
            whole = before + found + after if found else nothing
        out.add(whole)

    def _binary(self, images):
        """Write the lists of columns with bytes: in general, and only before or only after if the other image has text."""
        has_before = self.has_before and images & 1
        has_after = self.has_after and images & 2
        old = self.before.flags
        new = self.after.flags
        some = False
        for j in range(self.members):
            some = some or has_before and old[j] == _BYTES or has_after and new[j] == _BYTES
        if not some:
            return
        lists = ([], [], [])
        for j in range(self.members):
            if has_before and old[j] == _BYTES:
                is_text = has_after and new[j] == _TEXT
                lists[1 if is_text else 0].append(self.labels[j])
        for j in range(self.members):
            if has_after and new[j] == _BYTES and not (has_before and old[j] == _BYTES):
                is_text = has_before and old[j] == _TEXT
                lists[2 if is_text else 0].append(self.labels[j])
        for name, found in zip((b"base64", b"base64_before", b"base64_after"), lists):
            if found:
                self.out.add(b',"%s":[%s]' % (name, b",".join(found)))


def _number(p, start, kind):
    """Read an integer from a row image. Unsigned 64-bit integers are read as signed."""
    if kind == native.I32:
        return native.i32(p, start)
    if kind == native.I64 or kind == native.U64:
        return native.i64(p, start)
    if kind == native.U32:
        return wire.u32(p, start)
    if kind == native.I8:
        return p[start] - ((p[start] & 0x80) << 1)
    if kind == native.U8:
        return p[start]
    if kind == native.YEAR:
        return p[start] + 1900 if p[start] else 0
    if kind == native.I16 or kind == native.U16:
        value = wire.u16(p, start)
        return value - ((value & 0x8000) << 1) if kind == native.I16 else value
    value = wire.u24(p, start)
    return value - ((value & 0x800000) << 1) if kind == native.I24 else value
