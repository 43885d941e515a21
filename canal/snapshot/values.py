"""The cells of a server's answer as the values that the log has for them, and the columns as its rows deliver them.

Never asks a server: ``canal.snapshot.cells`` says what is selected of a column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Final, Literal

import attrs

from canal.binlog import type_codes as codes
from canal.filter import FieldFilter
from canal.rows import native
from canal.rows.charsets import codec_of
from canal.rows.json import text_objects
from canal.rows.mask import Masks
from canal.rows.values import AmbiguousLabel, InvalidJson, InvalidText, JsonText, NoLabel, ZeroDate
from canal.schema import ColumnSchema, TableSchema, is_sure, label_bytes, set_text
from canal.snapshot.cells import is_unseen, reader_of
from canal.snapshot.keys import ADDRESSES, NUMBERS, moment_number

#: Makes the value of a cell that is not NULL.
Make = Callable[[bytes], Any]
_MOST_SEEN: Final = 4096


@attrs.frozen
class Forms:
    """How an instance delivers rows: which columns, masked how, and in which form values with a choice come."""

    fields: FieldFilter = attrs.field(factory=FieldFilter)
    masks: Masks = attrs.field(factory=Masks)
    time_zone: tzinfo = UTC
    json: Literal["text", "marked", "objects"] = "text"
    """How JSON comes; "marked": its text as ``JsonText``."""


@attrs.frozen
class Selection:
    """What is selected of a table, and how its cells become rows."""

    columns: tuple[ColumnSchema, ...]
    """As the rows deliver them."""

    selects: tuple[str, ...]
    makes: tuple[Make, ...] = attrs.field(repr=False)

    @classmethod
    def of(cls, schema: TableSchema, forms: Forms) -> Selection:
        """Return the selection of the columns that the log's rows would have."""
        known = [column for column in schema.columns if not column.hidden]
        names = [column.name for column in known]
        chosen = forms.fields.wanted(schema.schema, schema.table, names, strict=False)
        masks = forms.masks.of(schema.schema, schema.table, names) if forms.masks else {}
        columns, selects, makes = [], [], []
        for number in range(len(known)) if chosen is None else chosen:
            column, mask = known[number], masks.get(number)
            if is_unseen(column) or mask is not None and mask.kind == "drop":
                continue
            make = maker(column, forms)
            selects.append(reader_of(column).select)
            columns.append(column if mask is None else mask.column(column))
            makes.append(make if mask is None else _masked(maker(column, Forms()), mask.text))
        return cls(tuple(columns), tuple(selects), tuple(makes))

    def rows(self, cells: Sequence[Sequence[bytes | None]]) -> list[tuple[Any, ...]]:
        """Return the rows of an answer."""
        if not self.makes:
            return [()] * len(cells)
        made = ([None if cell is None else make(cell) for cell in column] for make, column in zip(self.makes, zip(*cells)))
        return list(zip(*made))


def _masked(make: Make, text: Callable[[Any], str]) -> Make:
    return lambda cell: text(make(cell))


def maker(column: ColumnSchema, forms: Forms) -> Make:
    """Return the function that makes a value of a cell, as ``canal.snapshot.cells`` selects it."""
    code = column.type_code
    if code == codes.FLOAT:
        return _single
    if code == codes.DOUBLE:
        return float
    if code in codes.DECIMALS:
        return lambda cell: Decimal(cell.decode())
    if code in (codes.ENUM, codes.SET):
        return _label_maker(column)
    if code in NUMBERS:
        return int
    if code in (codes.DATE, codes.NEWDATE):
        return _date
    if code in (codes.TIME, codes.TIME2):
        return lambda cell: timedelta(microseconds=moment_number(cell.decode()))
    if code in (codes.TIMESTAMP, codes.TIMESTAMP2):
        return _timestamp_maker(forms.time_zone)
    if code in codes.MOMENTS:
        return _moment
    if code == codes.JSON or column.base_type in ADDRESSES:
        text = _text_maker("utf-8", "utf8mb4")
    elif column.charset in (None, "binary"):
        return bytes
    else:
        codec = codec_of(str(column.charset))
        if codec is None:
            return bytes
        text = _text_maker(codec, str(column.charset))
    if forms.json != "text" and (code == codes.JSON or column.base_type == "json"):
        return _json_maker(text, forms.json == "objects")
    return text


def _json_maker(text: Make, is_object: bool) -> Make:
    def make(cell: bytes) -> Any:
        value = text(cell)
        found = text_objects(value)  # type: ignore[no-untyped-call]
        if is_object or isinstance(found, InvalidJson) or not isinstance(value, str):
            return found
        return JsonText(value)

    return make


def _single(cell: bytes) -> float:
    """Return the double with the fewest digits that is the same FLOAT, as the row decoder does."""
    value = float(cell)
    for digits in range(1, 9):
        near = float(f"{value:.{digits}g}")
        if native.single(near) == value:  # type: ignore[no-untyped-call]
            return near
    return float(f"{value:.9g}")


def _date(cell: bytes) -> Any:
    text = cell.decode()
    try:
        return date.fromisoformat(text)
    except ValueError:
        return ZeroDate(text)


def _moment(cell: bytes) -> Any:
    text = cell.decode()
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return ZeroDate(text)


def _timestamp_maker(zone: tzinfo) -> Make:
    """The session's zone is UTC."""

    def make(cell: bytes) -> Any:
        found = _moment(cell)
        if isinstance(found, ZeroDate):
            return found
        return found.replace(tzinfo=UTC) if zone is UTC else found.replace(tzinfo=UTC).astimezone(zone)

    return make


def _text_maker(codec: str, charset: str) -> Make:
    def make(cell: bytes) -> Any:
        try:
            return cell.decode(codec)
        except UnicodeDecodeError:
            return InvalidText(cell, charset)

    return make


def _label_maker(column: ColumnSchema) -> Make:
    """Return labels by their number, as the log has them."""
    labels, charset = column.labels, column.charset or ""
    if labels is None:
        return int
    seen: dict[bytes, Any] = {}

    def label(number: int) -> Any:
        if column.type_code == codes.ENUM:
            if not number:
                return NoLabel()
            text, suggested = labels[number - 1], labels.index(labels[number - 1]) + 1
        else:
            text = set_text(labels, number)
            suggested = 0
            for part in text.split(",") if text else ():
                suggested |= 1 << labels.index(part) if part in labels else 0
        if not is_sure(text):
            return InvalidText(label_bytes(text), charset, number)
        return text if number == suggested else AmbiguousLabel(text, number)

    def make(cell: bytes) -> Any:
        found = seen.get(cell)
        if found is None:
            found = label(int(cell))
            if len(seen) < _MOST_SEEN:
                seen[cell] = found
        return found

    return make
