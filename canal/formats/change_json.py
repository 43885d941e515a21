"""A change as one line of JSON, for logs of changes: what happened to which row, and its place in the source's log.

Never loses a value: what JSON has no type for is text.
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

# json.dumps makes one each time
_encode = json.JSONEncoder(separators=(",", ":"), default=document_member).encode
_encode_row = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=document_member).encode
#: Types of most values, which stand in JSON as they are.
_PLAIN: Final = frozenset((int, str, float, type(None)))


def document(change: Change) -> dict[str, Any]:
    """The members of a change's JSON, in their order.

    ``id`` (the same whenever the change is given again), ``op`` (canal's event type), ``table``, ``key`` (of all keys that the
    source calls equal the same one), ``before``, ``after``, ``ts`` (milliseconds since 1970), ``transaction`` (GTID, or
    journal:offset), ``position``. Values are numbers, text, true, false and null. NaN, Infinity, DECIMAL, dates and times (as
    MySQL writes them) are text. Bytes are base64, and their columns are listed in ``base64``. JSON of an instance that gives
    objects is itself. A column that the row image does not hold is left out.

    Only some changes have ``sql`` (of a statement), ``partial`` (how JSON columns were changed if their value is not known) and
    ``error`` (of a parked change). A column that is bytes before the change and text after it, or the reverse, is listed in
    ``base64_before`` or ``base64_after`` instead.
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
    """The values of the key that the row image has, as ``KeyRules.written`` says."""
    names = [name for name in table.keys if not isinstance(row[name], (Absent, PartialJson))]
    numbers = [table.names.index(name) for name in names]
    return _members(names, KeyRules.of(table.columns, numbers).written(tuple([row[name] for name in names])), {}, {})


def _more(change: Change, old: dict[str, None], new: dict[str, None], partial: dict[str, str]) -> dict[str, Any]:
    """The members that few changes have; ``old`` and ``new`` are the columns that are bytes before and after the change."""
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
    """Makes the text of ``document``, in ASCII; numbers of up to 64 bits stand as they are."""

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
        if change.sql or change.error or any(type(value) is PartialJson for value in after or ()):
            partial: dict[str, str] = {}
            before, after = (_without_partial(change.table, values, partial) for values in (before, after))
            literals[_SQL] = _more_text({"sql": change.sql})
            literals[_REST] = _more_text({"partial": partial, "error": change.error})
        return before, after, literals


#: Numbers of literals.
_HEAD, _PART, _OTHER_PART, _END, _SQL, _REST = range(6)


def _key_steps(table: Table, side: int, is_whole: bool) -> list[tuple[int, Any]]:
    names = tuple([_member(name).encode() for name in table.keys])
    return [(put.TEXT, b"{"), (side, (is_whole, names, False)), (put.TEXT, b"}")]


def _without_partial(table: Table, values: Sequence[Any] | None, partial: dict[str, str]) -> Sequence[Any] | None:
    """Return values without the documents of which only changes are known, and add those to ``partial``."""
    if values is None:
        return None
    partial |= {name: one.expression(name) for name, one in zip(table.names.names, values) if isinstance(one, PartialJson)}
    return [ABSENT if isinstance(one, PartialJson) else one for one in values]


def _more_text(members: Mapping[str, Any]) -> bytes:
    return "".join(f",{_member(name)}{_encode(value)}" for name, value in members.items() if value).encode()


def row_json(row: Row) -> str:
    """A row alone as JSON, its values as in ``document``; bytes are base64."""
    return _encode_row(_row(row, {}, {}))


def key_json(row: Row, keys: Sequence[str], columns: Sequence[ColumnSchema] = ()) -> str:
    """Return the values of key columns as a JSON object of ASCII: the same text for what the source calls one key.

    Args:
        columns: of the row, by which equal keys are known: ``KeyRules.written``.
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
    """The beginning of a member."""
    return f"{_quoted(name)}:"


def _ascii(text: str) -> str:
    """JSON text in ASCII: what is beyond it stands in strings."""
    return text if text.isascii() else "".join(char if char < "\x7f" else _quoted(char)[1:-1] for char in text)


def _piece(value: Any) -> bytes:
    """Return the JSON of a value in ASCII."""
    kind = type(value)
    if kind is int:
        return b"%d" % value
    if kind is str:
        return _quoted(value).encode()
    if kind is Decimal or kind is datetime:
        return _quoted(TEXTS[kind](value)).encode()
    if kind is JsonText:
        return _ascii(value).encode()
    return _encode(_members(("",), (value,), {}, {})[""]).encode()


#: How any value is written.
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
#: Makes the line of a change: the text of ``document``.
line: Final = ChangeJson()
