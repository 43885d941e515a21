"""A change as one line of JSON, for change logs: the operation, the row, and the position in the source's log.

Never loses a value: types that JSON lacks become text.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, Final

import attrs

from canal.changes.change import Change, Op, Origin, Table
from canal.changes.keys import KeyRules
from canal.formats import put
from canal.formats.columns import float_text
from canal.formats.encoder import INTEGERS, ColumnPiece, Encoded, RowEncoder, image_object, text_styles, writer_of
from canal.formats.row_writer import Program, RowWriter
from canal.formats.texts import TEXTS, document_member
from canal.model import Row
from canal.rows import native
from canal.rows.values import ABSENT, Absent, JsonText, PartialJson
from canal.schema import ColumnSchema

# json.dumps creates a new encoder for each call
_encode = json.JSONEncoder(separators=(",", ":"), default=document_member).encode
_encode_row = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=document_member).encode
#: The most frequent types. JSON represents their values directly.
_PLAIN: Final = frozenset((int, str, float, type(None)))


def document(change: Change) -> dict[str, Any]:
    """Return the members of a change's JSON in order.

    * ``id``: the same if the change is delivered again.
    * ``op``: canal's event type.
    * ``table``
    * ``key``: the same for all keys that are equal in the source.
    * ``before``, ``after``: the rows.
    * ``ts``: milliseconds since 1970.
    * ``transaction``: the GTID, or journal:offset.
    * ``position``

    Values are numbers, text, true, false and null. NaN, Infinity and DECIMAL are text. Dates and times are text in MySQL's
    format. Bytes are base64, and ``base64`` lists their columns. If the instance decodes JSON into objects, JSON columns are
    nested values. Columns absent from the row image are omitted.

    Only some changes have these members:

    * ``sql``: the text of a statement.
    * ``partial``: how the change modified JSON columns with unknown values.
    * ``error``: why a parked change was rejected.
    * ``base64_before``, ``base64_after``: columns with bytes in this image but text in the other image. ``base64`` omits them.
    """
    old: dict[str, None] = {}
    new: dict[str, None] = {}
    partial: dict[str, str] = {}
    before, after = _row(change.before, old, partial), _row(change.after, new, partial)
    found: dict[str, Any] = {
        "id": change.id,
        "op": change.op.name,
        "table": change.table.name,
        "key": None if before is after is None else _key(change.table, change.row),
        "before": before,
        "after": after,
        "ts": change.origin.ts,
        "transaction": change.origin.transaction,
        "position": change.origin.position,
    }
    if change.sql or old or new or partial or change.error:
        found |= _more(change, old, new, partial)
    return found


def _key(table: Table, row: Row) -> dict[str, Any]:
    """Return the key values in the row image, as canonicalized by ``KeyRules.written``."""
    names = [name for name in table.keys if not isinstance(row[name], (Absent, PartialJson))]
    numbers = [table.names.index(name) for name in names]
    return _members(names, KeyRules.of(table.columns, numbers).written(tuple([row[name] for name in names])), {}, {})


def _more(change: Change, old: dict[str, None], new: dict[str, None], partial: dict[str, str]) -> dict[str, Any]:
    """Return the uncommon members. ``old`` and ``new`` are the columns with bytes before and after the change."""
    only_old = [name for name in old if name not in new and _is_text(change.after, name)]
    only_new = [name for name in new if name not in old and _is_text(change.before, name)]
    more = {
        "sql": change.sql,
        "base64": [name for name in old | new if name not in (*only_old, *only_new)],
        "base64_before": only_old,
        "base64_after": only_new,
        "partial": partial,
        "error": change.error,
    }
    return {name: value for name, value in more.items() if value}


def _is_text(row: Row | None, name: str) -> bool:
    return row is not None and isinstance(row.get(name), str)


@attrs.frozen
class ChangeJson(RowEncoder):
    """Encodes ``document`` as JSON text in ASCII. Numbers up to 64 bits are JSON numbers."""

    def _statement(self, change: Change) -> Sequence[Encoded]:
        return (Encoded(None, _encode(document(change)).encode()),)

    def _form(self, table: Table) -> RowWriter:
        labels = [_quoted(column.name).encode() for column in table.columns]
        return writer_of(table, [VALUE] * len(table.columns), labels=labels)

    def _key(self, table: Table, side: int) -> Program | None:
        return Program(_key_steps(table, side, True)) if table.keys else None

    def _value(self, table: Table, op: Op, has_before: bool, has_after: bool, is_half: bool = False) -> Program:
        middle = f'","op":"{op.name}","table":{_quoted(table.name)},"key":'
        return Program(
            [
                (put.LITERAL, _HEAD),
                (put.ORD, None),
                (put.LITERAL, _OTHER_PART if is_half else _PART),
                (put.TEXT, middle.encode()),
                *_key_steps(table, put.KEY if has_after else put.KEY_BEFORE, False),
                (put.TEXT, b',"before":'),
                *image_object(put.BEFORE, has_before),
                (put.TEXT, b',"after":'),
                *image_object(put.AFTER, has_after),
                (put.LITERAL, _END),
                (put.LITERAL, _SQL),
                (put.BINARY, has_before + 2 * has_after),
                (put.LITERAL, _REST),
                (put.TEXT, b"}"),
            ]
        )

    def _literals(self, table: Table, origin: Origin, part: int = 0) -> list[bytes]:
        transaction = _quoted(origin.transaction)
        head = f'{{"id":{transaction[:-1]}/'
        end = f',"ts":{origin.ts},"transaction":{transaction},"position":{_quoted(origin.position)}'
        return [head.encode(), f".{part}".encode() if part else b"", f".{~part}".encode(), end.encode(), b"", b""]

    def _values(self, change: Change) -> tuple[Any, Any, list[bytes]]:
        before, after, literals = super()._values(change)
        if change.sql or change.error or PartialJson in map(type, after or ()):
            partial: dict[str, str] = {}
            before, after = (_without_partial(change.table, values, partial) for values in (before, after))
            literals[_SQL] = _more_text({"sql": change.sql})
            literals[_REST] = _more_text({"partial": partial, "error": change.error})
        return before, after, literals


#: Indexes into the literals.
_HEAD, _PART, _OTHER_PART, _END, _SQL, _REST = range(6)


def _key_steps(table: Table, side: int, is_whole: bool) -> list[tuple[int, Any]]:
    names = tuple([_member(name).encode() for name in table.keys])
    return [(put.TEXT, b"{"), (side, (is_whole, names, False)), (put.TEXT, b"}")]


def _without_partial(table: Table, values: Sequence[Any] | None, partial: dict[str, str]) -> Sequence[Any] | None:
    """Return the values, with partial JSON documents replaced by ABSENT. Add the partial documents to ``partial``."""
    if values is None:
        return None
    partial |= {name: one.expression(name) for name, one in zip(table.names.names, values) if isinstance(one, PartialJson)}
    return [ABSENT if isinstance(one, PartialJson) else one for one in values]


def _more_text(members: Mapping[str, Any]) -> bytes:
    return "".join(f",{_member(name)}{_encode(value)}" for name, value in members.items() if value).encode()


def row_json(row: Row) -> str:
    """Return only a row as JSON, with values as in ``document``. Bytes are base64."""
    return _encode_row(_row(row, {}, {}))


def key_json(row: Row, keys: Sequence[str], columns: Sequence[ColumnSchema] = ()) -> str:
    """Return key values as a JSON object in ASCII. Keys that are equal in the source have the same text.

    Args:
        columns: the row's columns, for canonical values: see ``KeyRules.written``. Default: use the values unchanged.
    """
    values = tuple([row[name] for name in keys])
    if columns:
        found = {column.name.lower(): column for column in columns}
        values = KeyRules(tuple([found[name.lower()] for name in keys])).written(values)
    return f"{{{','.join(f'{_member(name)}{_piece(value).decode()}' for name, value in zip(keys, values))}}}"


def _row(row: Row | None, binary: dict[str, None], partial: dict[str, str]) -> dict[str, Any] | None:
    return None if row is None else _members(row.keys(), row.values(), binary, partial)


def _members(names: Iterable[str], values: Iterable[Any], binary: dict[str, None], partial: dict[str, str]) -> dict[str, Any]:
    found = {}
    for name, value in zip(names, values):
        kind = type(value)
        if kind in _PLAIN:
            found[name] = value if kind is not float or value - value == 0 else float_text(value)
            continue
        if value is ABSENT:
            continue
        if isinstance(value, PartialJson):
            partial[name] = value.expression(name)
            continue
        if kind is JsonText:
            value = json.loads(value)
        elif isinstance(value, bytes):
            binary[name] = None
            value = base64.b64encode(value).decode()
        elif kind in TEXTS and kind not in (dict, list):
            value = TEXTS[kind](value)
        found[name] = value
    return found


@functools.lru_cache(4096)
def _member(name: str) -> str:
    """Return the start of a JSON member: its name and a colon."""
    return f"{_quoted(name)}:"


def _ascii(text: str) -> str:
    """Return JSON text in ASCII. Other characters occur only in strings, so JSON escapes can replace them."""
    return text if text.isascii() else "".join(char if char < "\x7f" else _quoted(char)[1:-1] for char in text)


def _piece(value: Any) -> bytes:
    """Return a value as JSON in ASCII."""
    kind = type(value)
    if kind is int:
        return b"%d" % value
    if kind is str:
        return _quoted(value).encode()
    if kind is float and value - value == 0:
        return repr(value).encode()
    if kind is Decimal or kind is datetime:
        return _quoted(TEXTS[kind](value)).encode()
    if kind is JsonText:
        return _ascii(value).encode()
    return _encode(_members(("",), (value,), {}, {})[""]).encode()


#: How to write any value.
VALUE: Final = ColumnPiece(
    _piece,
    {
        **dict.fromkeys((*INTEGERS, native.YEAR, native.BIT, native.NUMBER), (put.INTEGER, 0)),
        **text_styles(put.ASCII_TEXT),
        native.DECIMAL: (put.DECIMAL_TEXT, 0),
        native.DATETIME: (put.MOMENT, put.DIGITS),
        native.TIMESTAMP: (put.MOMENT, put.DIGITS | put.WITH_ZONE),
        native.DATE: (put.DAY, 0),
        native.BYTES: (put.BASE64, 0),
        native.FLOAT: (put.REAL, 0),
        native.DOUBLE: (put.REAL, 0),
    },
)
#: Encodes a change as one line: the text of ``document``.
line: Final = ChangeJson()
