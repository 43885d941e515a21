# cython: language_level=3, cdivision=True
# cdivision: only non-negative integers are divided here, where C and Python agree.
"""Row images to the buffers of Arrow arrays: no Python object for a value, but where a type is rare.

Never imports Arrow, which wraps the buffers, and never words an error of its own: what cannot be decoded raises, and the
decoder of tuples says what it is. Compiled where a C compiler was there at install time.
"""

from canal.errors import DecodeError, TruncatedError, UnsupportedError, UsageError
from canal.formats import arrow_c
from canal.rows import native, wire
from canal.rows.charsets import utf8_table
from canal.rows.values import ABSENT, InvalidText, PartialJson, ZeroDate

#: Kinds beside those of ``native``: Python values that become text (or bytes) here, and those that Arrow takes as they are.
_OTHER_TEXT = -1
_OBJECTS = -2
#: The address of a value that is NULL or absent; events are smaller.
_NOWHERE = 0xFFFFFFFF
_SKIP = 0xFFFF
_VARIABLE = 128
#: Values, and bytes of small events, that are measured before they are decoded, column by column: what the caches hold.
_BLOCK = 4096
_JOINED = 65536
_SMALL = 16384
#: Offsets of Arrow's strings are 32 bits.
_MAX_TEXT = 0x7FFFFFFF
#: Days from 0000-03-01, where years of the calculation begin, to 1970-01-01.
_EPOCH_DAYS = 719468
_DATETIME_ZERO = 0x8000000000
_MILLION = 1000000

#: Bytes of a value in its buffer.
_SIZES = {
    native.I8: 1,
    native.U8: 1,
    native.I16: 2,
    native.U16: 2,
    native.I24: 4,
    native.U24: 4,
    native.I32: 4,
    native.U32: 4,
    native.I64: 8,
    native.U64: 8,
    native.FLOAT: 4,
    native.DOUBLE: 8,
    native.YEAR: 2,
    native.DATE: 4,
    native.DATETIME: 8,
    native.TIMESTAMP: 8,
    native.TIME: 8,
    native.BIT: 8,
    native.NUMBER: 8,
}
_TEXTS = (native.UTF8, native.BYTES, native.PADDED)


class ColumnBuilder:
    """A column as it grows: the buffers of an Arrow array, or the values of one.

    ``valid`` has a bit for each row and ``nulls`` counts those that are 0. ``values`` are of ``size`` bytes each; where
    ``is_text``, they are 32-bit offsets into ``data``, one more than rows. ``objects``, if not None, are the values instead.
    ``exact`` holds (row, value) of what Arrow has no value for: such rows are null.
    """

    def __init__(self, decoder, i, direct, limit):
        """``i`` is the column's index in the table; ``direct``: buffers are wanted, where there can be any."""
        kind, _, _, param, extra, name = decoder.plan[i]
        self.decoder = decoder
        self.i = i
        self.name = name
        self.limit = limit
        self.is_json = kind == native.JSON
        self.param = param
        self.extra = b""
        self.ends = b""
        self.longest = 1
        self.kind = self._kind(kind, param, extra, direct)
        self.size = _SIZES.get(self.kind, 0)
        if self.kind == native.DECIMAL:
            self.extra = extra
            self.size = 16 if sum(extra[1::2]) <= 38 else 32
        self.is_text = self.kind != _OBJECTS and self.size == 0
        # A binary column takes bytes, another what is text.
        self.takes_bytes = kind == native.COMPRESSED and param in (native.BYTES, native.PADDED)
        self.rows = 0
        self.used = 0
        self.nulls = 0
        self.values = bytearray(4 if self.is_text else 0)
        self.valid = bytearray()
        self.data = bytearray()
        self.objects = [] if self.kind == _OBJECTS else None
        self.exact = []
        if self.is_text:
            self.size = 4

    def _kind(self, kind, param, extra, direct):
        if not direct:
            return _OBJECTS
        if kind in _SIZES or kind == native.DECIMAL:
            return kind
        if kind == native.ENUM:
            return self._label_kind(extra)
        if kind == native.ASCII:
            self.extra = utf8_table(extra[1])
            self.longest = 3
            return kind if self.extra else _OTHER_TEXT
        return kind if kind in _TEXTS else _OTHER_TEXT

    def _label_kind(self, labels):
        """Where each label ends in the bytes of all of them."""
        try:
            texts = [label.encode() for label in labels]
        except (UnicodeEncodeError, AttributeError):  # the bytes of a label that is not known for sure
            return _OTHER_TEXT
        self.extra = b"".join(texts)
        self.longest = max(map(len, texts))
        end = 0
        for text in texts:
            end += len(text)
            self.ends += end.to_bytes(4, "little")
        return native.ENUM

    def append(self, cells, first, stride, count, data):
        """Take ``count`` values of ``data``: cell ``n``, at ``first + n * stride``, says where the value starts and ends."""
        self._reserve(count)
        _set_bits(self.valid, self.rows, count)
        if self.kind < 0:
            self._append_others(cells, first, stride, count, data)
        elif self.is_text:
            self._append_texts(cells, first, stride, count, data)
        else:
            self._append_fixed(cells, first, stride, count, data)
        self.rows += count

    def _append_fixed(self, cells, first, stride, count, data):
        c = cells
        p = data
        to = self.values
        kind = self.kind
        size = self.size
        extra = self.extra
        groups = extra
        group_count = len(extra) // 2
        pos = self.rows * size
        for n in range(count):
            start = wire.u32(c, first + n * stride)
            good = start != _NOWHERE
            if not good:
                self._null(self.rows + n)
            elif kind == native.I32 or kind == native.U32 or kind == native.FLOAT:
                native.put32(to, pos, wire.u32(p, start))
            elif kind == native.I64 or kind == native.U64 or kind == native.DOUBLE:
                native.put64(to, pos, wire.u64(p, start))
            elif kind == native.I8 or kind == native.U8:
                to[pos] = p[start]
            elif kind == native.I16 or kind == native.U16:
                native.put16(to, pos, wire.u16(p, start))
            elif kind == native.U24:
                native.put32(to, pos, wire.u24(p, start))
            elif kind == native.I24:
                value = wire.u24(p, start)
                native.put32(to, pos, value - ((value & 0x800000) << 1))
            elif kind == native.DECIMAL:
                good = native.put_decimal(to, pos, size, p, start, groups, group_count)
            elif kind == native.DATETIME:
                value = wire.be40(p, start) - _DATETIME_ZERO
                micros = micros_of(p, start + 5, wire.u32(c, first + n * stride + 4))
                good = value >= 0 and micros >= 0
                if good:
                    day = value >> 17
                    month = day >> 5
                    year = month // 13
                    month %= 13
                    second = (value >> 12 & 31) * 3600 + (value >> 6 & 63) * 60 + (value & 63)
                    good = is_date(year, month, day & 31)
                    good = good and (value >> 12 & 31) < 24 and (value >> 6 & 63) < 60 and (value & 63) < 60
                    if good:
                        native.put64(to, pos, (days(year, month, day & 31) * 86400 + second) * _MILLION + micros)
            elif kind == native.TIMESTAMP:
                value = wire.be32(p, start)
                micros = micros_of(p, start + 4, wire.u32(c, first + n * stride + 4))
                good = micros >= 0 and value + micros > 0
                if good:
                    native.put64(to, pos, value * _MILLION + micros)
            elif kind == native.DATE:
                value = wire.u24(p, start)
                good = is_date(value >> 9, value >> 5 & 15, value & 31)
                if good:
                    native.put32(to, pos, days(value >> 9, value >> 5 & 15, value & 31))
            elif kind == native.TIME:
                end = wire.u32(c, first + n * stride + 4)
                good = put_time(to, pos, p, start, end - start)
            elif kind == native.YEAR:
                native.put16(to, pos, p[start] + 1900 if p[start] else 0)
            elif kind == native.BIT:
                native.put64(to, pos, wire.be_any(p, start, wire.u32(c, first + n * stride + 4) - start))
            else:  # NUMBER
                native.put64(to, pos, native.le_any(p, start, wire.u32(c, first + n * stride + 4) - start))
            if not good:
                native.zero(to, pos, size)
                if start != _NOWHERE:
                    self._odd(self.rows + n, data, start, wire.u32(c, first + n * stride + 4))
            pos += size

    def _append_texts(self, cells, first, stride, count, data):
        c = cells
        p = data
        kind = self.kind
        table = self.extra
        ends = self.ends
        labels = len(self.ends) // 4
        # What they may take at most, so that it is reserved once.
        room = 0
        for n in range(count):
            start = wire.u32(c, first + n * stride)
            if start != _NOWHERE:
                room += wire.u32(c, first + n * stride + 4) - start
        if kind == native.ENUM:
            room = count * self.longest
        elif kind == native.PADDED:
            room += count * self.param
        else:
            room *= self.longest
        self._reserve_data(room)
        to = self.values
        d = self.data
        used = self.used
        for n in range(count):
            start = wire.u32(c, first + n * stride)
            if start == _NOWHERE:
                self._null(self.rows + n)
            else:
                end = wire.u32(c, first + n * stride + 4)
                size = end - start
                if kind == native.UTF8:
                    if native.is_utf8(p, start, end):
                        native.copy(d, used, p, start, size)
                        used += size
                    else:
                        self._odd(self.rows + n, data, start, end)
                elif kind == native.ENUM:
                    number = native.le_any(p, start, size)
                    if number >= labels:
                        self._odd(self.rows + n, data, start, end)
                    else:
                        start = wire.u32(ends, 4 * number - 4) if number else 0
                        size = wire.u32(ends, 4 * number) - start
                        native.copy(d, used, table, start, size)
                        used += size
                elif kind == native.ASCII:
                    if native.is_ascii(p, start, end):
                        native.copy(d, used, p, start, size)
                        used += size
                    else:
                        size = native.put_utf8(d, used, p, start, end, table)
                        if size < 0:
                            self._odd(self.rows + n, data, start, end)
                        else:
                            used += size
                else:
                    native.copy(d, used, p, start, size)
                    used += size
                    if kind == native.PADDED and size < self.param:
                        native.zero(d, used, self.param - size)
                        used += self.param - size
            native.put32(to, 4 * (self.rows + n + 1), used)
        self.used = used
        self._check_limit()

    def _append_others(self, cells, first, stride, count, data):
        c = cells
        p = data
        decoder = self.decoder
        for n in range(count):
            start = wire.u32(c, first + n * stride)
            value = None
            if start != _NOWHERE:
                raw = bytes(p[start : wire.u32(c, first + n * stride + 4)])
                value = decoder.cell(decoder.full, self.i, raw, 0, len(raw))
            self._put(self.rows + n, value)

    def extend(self, values):
        """Take Python values, None and ABSENT among them."""
        self._reserve(len(values))
        _set_bits(self.valid, self.rows, len(values))
        for n, value in enumerate(values):
            self._put(self.rows + n, None if value is ABSENT else value)
        self.rows += len(values)

    def _put(self, row, value):
        raw = b""
        if value is not None and not self._takes(value):
            self.exact.append((row, value))
            value = None
        if value is None:
            self._null(row)
        if self.objects is not None:
            self.objects.append(value)
            return
        if value is not None:
            raw = value if self.takes_bytes else value.encode()
            self._reserve_data(len(raw))
            native.copy(self.data, self.used, raw, 0, len(raw))
            self.used += len(raw)
            self._check_limit()
        native.put32(self.values, 4 * (row + 1), self.used)

    def _takes(self, value):
        """Whether Arrow has such a value."""
        if isinstance(value, (ZeroDate, InvalidText, PartialJson)):
            return False
        if self.objects is not None or self.takes_bytes:
            return True
        if not isinstance(value, str):
            return False
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
        return True

    def pad(self, count):
        """Take ``count`` nulls."""
        self._reserve(count)
        self.nulls += count
        if self.objects is not None:
            self.objects.extend([None] * count)
        elif self.is_text:
            for n in range(count):
                native.put32(self.values, 4 * (self.rows + n + 1), self.used)
        else:
            native.zero(self.values, self.rows * self.size, count * self.size)
        self.rows += count

    def close(self):
        """Cut the buffers to what is used of them."""
        native.resize(self.valid, (self.rows + 7) // 8)
        native.resize(self.values, self.rows * self.size + (4 if self.is_text else 0))
        native.resize(self.data, self.used)

    def part(self):
        """The count of nulls and the buffers: which are valid, if not all are, values, data of text."""
        return self.nulls, self.valid if self.nulls else None, self.values, self.data if self.is_text else None

    def _odd(self, row, data, start, end):
        """A value that is none to Arrow, or an error: the decoder of Python values knows which."""
        p = data
        decoder = self.decoder
        raw = bytes(p[start:end])
        value = decoder.cell(decoder.full, self.i, raw, 0, len(raw))
        if not isinstance(value, (ZeroDate, InvalidText)):
            raise DecodeError(f"column {self.name!r} reads in two ways, which is a fault of this library", column=self.name)
        self.exact.append((row, value))
        self._null(row)

    def _null(self, row):
        valid = self.valid
        valid[row >> 3] &= ~(1 << (row & 7)) & 0xFF
        self.nulls += 1

    def _reserve(self, count):
        rows = self.rows + count
        if rows > len(self.valid) * 8:
            self.valid.extend(bytes(rows // 8 + 64))  # of zeros
        size = rows * self.size + 4
        if size > len(self.values):
            native.resize(self.values, max(size, 2 * len(self.values)))

    def _reserve_data(self, size):
        size += self.used
        if size > len(self.data):
            native.resize(self.data, max(size, 2 * len(self.data)))

    def _check_limit(self):
        if self.used > self.limit:
            raise UsageError(
                f"column {self.name!r} has more than {self.limit} bytes in one batch, which Arrow's offsets cannot tell",
                remedy="Take fewer entries at once.",
            )


class Images:
    """The columns of row images, one after the other.

    ``absent`` lists the sets of columns that an image may lack, as slots; ``numbers`` says for each row which, as int32.
    """

    def __init__(self, decoder, direct, limit):
        numbers = {row[2]: i for i, row in enumerate(decoder.plan)}
        self.width = decoder.width
        self.columns = tuple([ColumnBuilder(decoder, numbers[slot], direct[slot], limit) for slot in range(decoder.width)])
        self.block = max(8, _BLOCK // max(self.width, 1))
        # For each value of the rows that are measured and not yet decoded, where it starts and ends.
        self.cells = bytearray(8 * self.width * self.block)
        self.rows = 0
        self.filled = 0
        self.absent = [()]
        self.numbers = bytearray(4 * self.block)

    def number(self, absent):
        """The index of a set of absent columns in ``absent``."""
        if not absent:
            return 0
        if absent not in self.absent:
            self.absent.append(absent)
        return self.absent.index(absent)

    def measure(self, image, number, data, at, shift):
        """Note where the values of the row at ``at`` are, as many bytes further on as ``shift`` says, and move behind it."""
        p = data
        c = self.cells
        widths = image.widths
        slots = image.slots
        plain = image.plain
        nulls = at.pos
        end = at.end
        pos = nulls + image.null_bytes
        if pos > end:
            raise short()
        if number:
            self._clear()
        first = 8 * self.width * self.filled
        for i in range(image.count):
            slot = i if plain else wire.u16(slots, 2 * i)
            if p[nulls + (i >> 3)] >> (i & 7) & 1:
                if slot != _SKIP:
                    native.put32(c, first + 8 * slot, _NOWHERE)
                continue
            size = widths[i]
            if size >= _VARIABLE:
                size -= _VARIABLE
                if size > end - pos:
                    raise short()
                pos += size
                size = native.le_any(p, pos - size, size)
            if size > end - pos:
                raise short()
            if slot != _SKIP:
                native.put32(c, first + 8 * slot, pos + shift)
                native.put32(c, first + 8 * slot + 4, pos + shift + size)
            pos += size
        at.pos = pos
        native.put32(self.numbers, 4 * (self.rows + self.filled), number)
        self.filled += 1

    def _clear(self):
        """Let the next row have no values."""
        c = self.cells
        first = 8 * self.width * self.filled
        for slot in range(self.width):
            native.put32(c, first + 8 * slot, _NOWHERE)

    def follow(self, other):
        """Go up to as many rows as the other images are with nulls."""
        count = other.rows - self.rows
        if count > 0:  # nothing is measured
            for slot in range(self.width):
                column = self.columns[slot]
                column.pad(count)
            native.resize(self.numbers, 4 * (other.rows + self.block))
            native.zero(self.numbers, 4 * self.rows, 4 * count)
            self.rows = other.rows
        while self.filled < other.filled:
            self._clear()
            native.put32(self.numbers, 4 * (self.rows + self.filled), 0)
            self.filled += 1

    def flush(self, data, partial):
        """Decode what was measured; with ``partial`` all but the JSON columns."""
        if self.filled == 0:
            return
        for slot in range(self.width):
            column = self.columns[slot]
            if not (partial and column.is_json):
                column.append(self.cells, 8 * slot, 8 * self.width, self.filled, data)
        self.rows += self.filled
        self.filled = 0
        size = 4 * (self.rows + self.block)
        if size > len(self.numbers):
            native.resize(self.numbers, 2 * size)

    def extend(self, images):
        """Take the JSON columns of rows that were decoded otherwise."""
        for slot in range(self.width):
            column = self.columns[slot]
            if column.is_json:
                column.extend([image[slot] for image in images])

    def close(self):
        native.resize(self.numbers, 4 * self.rows)
        for slot in range(self.width):
            column = self.columns[slot]
            column.close()


class ChangeColumns:
    """The row changes of events of one table, by column.

    Args:
        decoder: that of the table, giving JSON as text.
        direct: for each of its columns, not 0 where the column's Arrow type is the usual one of its kind.
        apart: an update is one row in ``images`` and one in ``before``; else two rows in ``images``.
        limit: the most bytes of text in a column.

    ``op`` (int8: 0 insert, 1 before an update, 2 update, 3 delete), ``order`` (int64) and ``entry`` (int32) have one number
    for each row of ``images``. All rows of an event are decoded; if not all are wanted, ``kept`` lists those that are.
    """

    def __init__(self, decoder, direct, apart=False, limit=_MAX_TEXT):
        self.decoder = decoder
        self.images = Images(decoder, direct, limit)
        self.before = Images(decoder, direct, limit) if apart else None
        self.op = bytearray()
        self.order = bytearray()
        self.entry = bytearray()
        self.kept = None
        self.entries = 0
        # Small events, one after the other: a block of rows may be of many.
        self.joined = bytearray()
        self.joined_size = 0

    def extend(self, entries):
        """Decode the rows of entries, now or with later ones.

        Raises:
            DecodeError: of one of the entries so far; ``RowDecoder.decode`` says what is wrong. What was added is of no use then.
            UsageError: a column has more text than ``limit``.
            ValueError: an entry of another table, or without rows.
        """
        table = None
        for entry in entries:
            if entry.table is not table:
                table = entry.table
                if table is None or table.decoder is None or not self.decoder.decodes_as(table.decoder.text_form):
                    raise ValueError(f"{entry!r} is not of the same table as the entries before it")
            before = len(self.op)
            rows = self._add(entry.data, entry.body, entry.body_end, entry.kind, entry.first_row)
            selected = entry.selected
            if self.kept is None and (entry.skip_rows or selected is not None):
                self.kept = list(range(before))
            if self.kept is not None:
                numbers = range(rows)[entry.skip_rows :]
                if selected is not None:
                    numbers = [numbers[number] for number in selected]
                images = (len(self.op) - before) // rows if rows else 0
                self.kept += [before + number * images + image for number in numbers for image in range(images)]
            self.entries += 1

    def _add(self, data, pos, end, kind, first):
        """Decode the rows of an event, or remember it; gives how many changes it has."""
        if len(data) >= _MAX_TEXT:
            raise UnsupportedError(f"rows event of {len(data)} bytes")
        decoder = self.decoder
        at = decoder._begin(data, pos, end, kind)
        before = at.before
        after = at.after
        new = self.images
        old = new
        paired = before is not None and after is not None
        if paired and self.before is not None:
            old = self.before
            old.follow(new)
        partial = kind == 3
        small = not partial and end - pos <= _SMALL
        shift = 0
        if small:
            size = end - pos
            shift = self.joined_size - pos
            if self.joined_size + size > len(self.joined):
                native.resize(self.joined, 2 * (self.joined_size + size))
            native.copy(self.joined, self.joined_size, data, pos, size)
            self.joined_size += size
        else:
            self._flush()
        before_number = 0 if before is None else old.number(before.absent)
        after_number = 0 if after is None else new.number(after.absent)
        rows = 0
        while at.pos < end or rows == 0:
            if at.pos == end:
                # An image without any column is no bytes; servers write such a row alone in its event.
                if partial or (before is not None and before.count) or (after is not None and after.count):
                    break
            if before is not None:
                old.measure(before, before_number, data, at, shift)
            if after is not None:
                new.measure(decoder._partial_image(after, data, at) if partial else after, after_number, data, at, shift)
            rows += 1
            if new.filled + 2 > new.block:
                self._decode(self.joined if small else data, partial)
        if not small:
            self._decode(data, partial)
        elif self.joined_size > _JOINED:
            self._flush()
        if partial:
            self._add_json(old, new, decoder.decode(data, pos, end, kind))
        self._tell(rows, 2 if paired and old is new else 1, 0 if before is None else 3 if after is None else 2, first)
        return rows

    def _decode(self, data, partial):
        if self.before is not None:
            self.before.flush(data, partial)
        self.images.flush(data, partial)

    def _flush(self):
        """Decode the small events."""
        self._decode(self.joined, False)
        self.joined_size = 0

    def _add_json(self, old, new, rows):
        if old is new:
            new.extend([image for row in rows for image in row])
        else:
            old.extend([row[0] for row in rows])
            new.extend([row[1] for row in rows])

    def _tell(self, rows, images, op, first):
        """Number, entry and operation of the changes that were added."""
        before = len(self.op)
        count = rows * images
        native.resize(self.op, before + count)
        native.resize(self.order, 8 * (before + count))
        native.resize(self.entry, 4 * (before + count))
        ops = self.op
        orders = self.order
        entries = self.entry
        for n in range(count):
            ops[before + n] = op if images == 1 else 1 + (n & 1)
            native.put64(orders, 8 * (before + n), first + n // images)
            native.put32(entries, 4 * (before + n), self.entries)

    def close(self):
        """Decode what is left and cut the buffers to what is used of them; nothing may be added then.

        Raises: as :meth:`extend` does.
        """
        self._flush()
        if self.before is not None:
            self.before.follow(self.images)
            self.before.close()
        self.images.close()


def by_schema(entries):
    """The entries that have rows, in a list for each table and schema version, in the order of their first ones."""
    groups = {}
    schema = None
    group = []
    for entry in entries:
        table = entry.table
        if table is None:
            continue
        if table.schema is not schema:
            schema = table.schema
            group = groups.setdefault(id(schema), [])
        group.append(entry)
    return list(groups.values())


def transaction_names(entries):
    """Of each entry its transaction's name in UTF-8.

    Raises:
        UnicodeEncodeError: a journal's name is no UTF-8.
    """
    names = []
    last = None
    name = b""
    for entry in entries:
        if entry.transaction is not last:
            last = entry.transaction
            name = last.name.encode()
        names.append(name)
    return names


def repeated(texts, numbers, size):
    """Offsets and bytes of a text column that has in each row the text of a number; ``numbers`` are of ``size`` bytes each."""
    p = numbers
    count = len(numbers) // size
    total = 0
    n = 0
    while n < count:
        end = _end_of_run(p, n, count, size)
        text = texts[p[n] if size == 1 else wire.u32(p, 4 * n)]
        total += (end - n) * len(text)
        n = end
    if total > _MAX_TEXT:
        raise UsageError("a batch has over 2 GiB of text, which Arrow cannot hold", remedy="Take fewer entries at once.")
    offsets = bytearray(4 * count + 4)
    data = bytearray(total)
    to = offsets
    d = data
    used = 0
    n = 0
    while n < count:
        end = _end_of_run(p, n, count, size)
        text = texts[p[n] if size == 1 else wire.u32(p, 4 * n)]
        width = len(text)
        native.copy(d, used, text, 0, width)
        done = width
        total = (end - n) * width
        while done < total:  # each time as much again
            more = min(done, total - done)
            native.copy(d, used + done, d, used, more)
            done += more
        while n < end:
            used += width
            n += 1
            native.put32(to, 4 * n, used)
    return offsets, data


def _end_of_run(p, n, count, size):
    """Where the numbers that are the same as the one at ``n`` end."""
    end = n + 1
    if size == 1:
        while end < count and p[end] == p[n]:
            end += 1
    else:
        while end < count and wire.u32(p, 4 * end) == wire.u32(p, 4 * n):
            end += 1
    return end


def hand_over(take, rows, parts, kind):
    """What ``take``, an ``_import_from_c`` of pyarrow, makes of the columns of a struct or a schema, by one call for them all.

    A part is what ``ColumnBuilder.part`` gives, of bytearrays that nobody changes any more, or an array of Arrow. Of the
    compiled build only.
    """
    root = arrow_c.new_struct(rows, len(parts))
    if not root:
        raise MemoryError
    try:
        for i, part in enumerate(parts):
            if isinstance(part, tuple):
                nulls, valid, values, data = part
                if arrow_c.fill(root, i, nulls, valid, values, data):
                    raise MemoryError
            else:
                part._export_to_c(arrow_c.child(root, i))
        return take(arrow_c.address(root), kind)
    finally:
        arrow_c.end_struct(root)


def short():
    return TruncatedError("rows event ends inside a row")


def _set_bits(bits, first, count):
    to = bits
    end = first + count
    while first < end:
        if first & 7 == 0 and end - first >= 8:
            to[first >> 3] = 0xFF
            first += 8
        else:
            to[first >> 3] |= 1 << (first & 7)
            first += 1


def is_date(year, month, day):
    if year < 1 or year > 9999 or month < 1 or month > 12 or day < 1:
        return False
    if day < 29:
        return True
    if month == 2:
        return day == 29 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return day < 31 or day == 31 and (month < 8) == (month % 2 == 1)


def days(year, month, day):
    """Days since 1970-01-01, in years that begin with March: leap days come last."""
    if month < 3:
        year -= 1
        month += 9
    else:
        month -= 3
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * month + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH_DAYS


def micros_of(p, start, end):
    """Microseconds of the fraction of a second there: hundredths, ten-thousandths or millionths. -1 if it is none."""
    size = end - start
    if size == 0:
        return 0
    value = wire.be_any(p, start, size)
    value = value * 10000 if size == 1 else value * 100 if size == 2 else value
    return value if value < 1000000 else -1


def put_time(to, pos, p, start, size):
    """Seconds and their fraction are one signed integer, offset by half of its range."""
    bits = 8 * (size - 3)
    packed = wire.be_any(p, start, size)
    half = 0x800000
    half <<= bits  # not in one: the literal is a C int
    negative = packed < half
    packed = half - packed if negative else packed - half
    whole = packed >> bits
    packed -= whole << bits
    micros = packed if size == 6 or size == 3 else packed * 10000 if size == 4 else packed * 100
    if micros > 999999:
        return False
    seconds = (whole >> 12 & 0x3FF) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
    value = seconds * _MILLION + micros
    native.put64(to, pos, -value if negative else value)
    return True
