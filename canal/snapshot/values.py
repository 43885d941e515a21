"""Converts the rows of a SELECT to entries that the row decoder reads.

Never queries a server: ``canal.snapshot.cells`` has the SQL of a column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, tzinfo
from typing import Any, Final, TypeAlias

import attrs

from canal.binlog import type_codes as codes
from canal.filter import FieldFilter
from canal.model import Entry, EntryType, EventType, TableMap, Transaction
from canal.position import Position
from canal.rows import native
from canal.rows.decoder import RowDecoder
from canal.rows.mask import Masks
from canal.schema import ColumnSchema, TableSchema, column_from_text
from canal.snapshot.cells import is_unseen, reader_of
from canal.snapshot.images import RowImages
from canal.snapshot.keys import ADDRESSES

#: Type and metadata for the row decoder; kind, parameter and groups for ``RowImages``.
_Wire: TypeAlias = "tuple[int, int, int, int, bytes]"
_INTEGERS: Final = {codes.TINY: 1, codes.SHORT: 2, codes.INT24: 3, codes.LONG: 4, codes.LONGLONG: 8}
_SIMPLE: Final[dict[int, _Wire]] = {
    codes.FLOAT: (codes.FLOAT, 4, native.FLOAT, 0, b""),
    codes.DOUBLE: (codes.DOUBLE, 8, native.DOUBLE, 0, b""),
    codes.YEAR: (codes.YEAR, 0, native.YEAR, 0, b""),
    codes.DATE: (codes.DATE, 0, native.DATE, 0, b""),
    codes.NEWDATE: (codes.DATE, 0, native.DATE, 0, b""),
}
_MOMENTS: Final = {
    codes.TIME: (codes.TIME2, native.TIME),
    codes.TIME2: (codes.TIME2, native.TIME),
    codes.DATETIME: (codes.DATETIME2, native.DATETIME),
    codes.DATETIME2: (codes.DATETIME2, native.DATETIME),
    codes.TIMESTAMP: (codes.TIMESTAMP2, native.TIMESTAMP),
    codes.TIMESTAMP2: (codes.TIMESTAMP2, native.TIMESTAMP),
}
#: Text and bytes, with a length of four bytes.
_BYTES: Final[_Wire] = (codes.BLOB, 4, native.BYTES, 0, b"")
#: Selected if no column is delivered.
_NOTHING: Final = column_from_text("1", "tinyint")


@attrs.frozen
class Forms:
    """Options of an instance that affect rows."""

    fields: FieldFilter = attrs.field(factory=FieldFilter)
    masks: Masks = attrs.field(factory=Masks)
    time_zone: tzinfo = UTC
    json_text: bool = True
    """Whether the instance gives JSON as text."""


@attrs.frozen
class Selection:
    """The SELECT of a table, and the row images of its answer."""

    table: TableMap
    """The table with the delivered columns."""

    selects: tuple[str, ...]
    _columns: tuple[ColumnSchema, ...] = attrs.field(repr=False)
    """Columns for the decoder."""

    _wires: tuple[_Wire, ...] = attrs.field(repr=False)

    @classmethod
    def of(cls, schema: TableSchema, forms: Forms) -> Selection:
        """Return the selection of the delivered columns."""
        known = [column for column in schema.columns if not column.hidden]
        names = [column.name for column in known]
        chosen = forms.fields.wanted(schema.schema, schema.table, names, strict=False)
        masks = forms.masks.of(schema.schema, schema.table, names) if forms.masks else {}
        numbers = [
            number
            for number in (range(len(known)) if chosen is None else chosen)
            if not is_unseen(known[number]) and (number not in masks or masks[number].kind != "drop")
        ]
        own = [known[number] for number in numbers]
        selects = [reader_of(column).select for column in own]
        wires = [_wire(column) for column in own or [_NOTHING]]
        seen = tuple([_seen(column, wire) for column, wire in zip(own or [_NOTHING], wires)])
        masked = [(at, masks[number]) for at, number in enumerate(numbers) if number in masks]
        decoder = RowDecoder(  # type: ignore[no-untyped-call]
            bytes(wire[0] for wire in wires),
            tuple([wire[1] for wire in wires]),
            seen,
            None if own else (),
            forms.time_zone,
            forms.json_text,
            tuple(masked),
        )
        delivered = [attrs.evolve(column, meta=wire[1]) if wire[4] else column for column, wire in zip(own, wires)]
        for at, mask in masked:
            delivered[at] = mask.column(delivered[at])
        shown = attrs.evolve(schema, columns=tuple(delivered))
        return cls(TableMap(shown, shown.columns, decoder, True), tuple(selects) or ("1",), seen, tuple(wires))

    @property
    def columns(self) -> tuple[ColumnSchema, ...]:
        """The delivered columns."""
        return self.table.columns

    def images(self, number: int) -> RowImages:
        """Return a new collector of row images.

        Args:
            number: sequence number of the first row's packet.
        """
        kinds, params = bytes(wire[2] for wire in self._wires), bytes(wire[3] for wire in self._wires)
        return RowImages(kinds, params, [wire[4] for wire in self._wires], number)  # type: ignore[no-untyped-call]

    def entry(self, rows: int, images: bytes, end: Position, ts: int) -> Entry:
        """Return an INSERT entry of row images.

        Args:
            rows: the number of the images.
            end: the position of the entry.
            ts: its time in milliseconds since 1970.
        """
        count = len(self._wires)
        head = bytes((count,)) if count < 251 else b"\xfc" + count.to_bytes(2, "little")
        data = head + b"\xff" * ((count + 7) // 8) + images
        transaction = Transaction(end.source, end.journal, end.offset, 0, ts // 1000)
        entry = Entry(EntryType.ROWDATA, EventType.INSERT, transaction, data, end.offset, ts // 1000, 0)
        entry.table, entry.body, entry.body_end, entry.kind = self.table, 0, len(data), 0
        entry.row_count = rows
        return entry

    def key_decoder(self, names: Sequence[str]) -> RowDecoder:
        """Return a decoder of the named columns."""
        numbers = {column.name: number for number, column in enumerate(self.columns)}
        return RowDecoder(  # type: ignore[no-untyped-call]
            bytes(wire[0] for wire in self._wires),
            tuple([wire[1] for wire in self._wires]),
            self._columns,
            tuple([numbers[name] for name in names]),
            self.table.decoder.timezone,
        )


def _seen(column: ColumnSchema, wire: _Wire) -> ColumnSchema:
    """Return the column for the decoder: addresses and MySQL's JSON are text."""
    if column.base_type in ADDRESSES:
        return attrs.evolve(column, column_type="varchar(48)", charset="utf8mb4")
    if column.type_code == codes.JSON:
        return attrs.evolve(column, type_code=codes.BLOB, column_type="json", charset="utf8mb4")
    return attrs.evolve(column, logged=True, hidden=False)


def _wire(column: ColumnSchema) -> _Wire:
    code = column.type_code
    if code in _INTEGERS:
        return code, 0, native.U64 if column.unsigned else native.I64, _INTEGERS[code], b""
    if code in _SIMPLE:
        return _SIMPLE[code]
    if code in codes.DECIMALS:
        precision, scale = _sizes(column, (10, 0))
        return codes.NEWDECIMAL, scale << 8 | precision, native.DECIMAL, scale, _groups(precision, scale)
    if code in _MOMENTS:
        real, kind = _MOMENTS[code]
        (digits,) = _sizes(column, (0,))
        return real, digits, kind, digits, b""
    if code == codes.BIT:
        (bits,) = _sizes(column, (1,))
        return codes.BIT, bits // 8 << 8 | bits % 8, native.BIT, (bits + 7) // 8, b""
    if code in (codes.ENUM, codes.SET):
        count = 1 << 16 if column.labels is None else len(column.labels)
        size = (
            1 + (count > 255) if code == codes.ENUM else next(size for size in (1, 2, 3, 4, 8) if size == 8 or count <= 8 * size)
        )
        return codes.STRING, code << 8 | size, native.U64, size, b""
    return _BYTES


def _sizes(column: ColumnSchema, usual: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers in the type's brackets."""
    found = re.match(r"\w+\((\d+)(?:,(\d+))?\)", column.column_type)
    if found is None:
        return usual
    given = [int(number) for number in found.groups() if number is not None]
    return (*given, *usual[len(given) :])[: len(usual)]


def _groups(precision: int, scale: int) -> bytes:
    plan: Any = RowDecoder(bytes((codes.NEWDECIMAL,)), (scale << 8 | precision,), None).plan  # type: ignore[no-untyped-call]
    return bytes(plan[0][4])
