"""A change as one line of JSON, for logs of changes: what happened to which row, and where it stands in the source's log.

Never loses a value: what JSON has no type for is text, and says so.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, Final

from canal.changes.change import Change
from canal.formats.columns import float_text
from canal.formats.texts import TEXTS, document_member
from canal.model import Row
from canal.rows.values import ABSENT, JsonText, PartialJson

# json.dumps makes one each time
_encode = json.JSONEncoder(separators=(",", ":"), default=document_member).encode
_encode_row = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=document_member).encode
#: Types of most values, which stand in JSON as they are.
_PLAIN: Final = frozenset((int, str, float, type(None)))


def document(change: Change) -> dict[str, Any]:
    """The members of a change's JSON, in their order.

    ``id`` (the same whenever the change is given again), ``op`` (canal's event type), ``table``, ``key``, ``before``, ``after``,
    ``ts`` (milliseconds since 1970), ``transaction`` (GTID, or journal:offset), ``position``. Values are numbers, text, true,
    false and null; NaN, Infinity, DECIMAL, dates and times (as MySQL writes them) are text; bytes are base64, and their columns
    are listed in ``base64``; JSON of an instance that gives objects is itself. A column that the row image does not hold is not
    there. Only where there is such a thing: ``sql`` of a statement, ``partial`` (how JSON columns were changed of which the value
    is not known), ``error`` of a parked change. A column that is bytes before the change and text after it, or the reverse, is
    listed in ``base64_before`` or ``base64_after`` instead.
    """
    old: dict[str, None] = {}
    new: dict[str, None] = {}
    partial: dict[str, str] = {}
    before, after = _row(change.before, old, partial), _row(change.after, new, partial)
    row = after if after is not None else before
    found: dict[str, Any] = {
        "id": change.id,
        "op": change.op.name,
        "table": change.table.name,
        "key": {name: row[name] for name in change.table.keys if name in row} if row is not None else None,
        "before": before,
        "after": after,
        "ts": change.origin.ts,
        "transaction": change.origin.transaction,
        "position": change.origin.position,
    }
    if change.sql or old or new or partial or change.error:
        found |= _more(change, old, new, partial)
    return found


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


def line(change: Change) -> str:
    """The change as JSON, without an end of line; numbers of up to 64 bits stand as they are."""
    # The text of ``document``, put together by hand: an encoder takes twice as long for it.
    old: dict[str, None] = {}
    new: dict[str, None] = {}
    partial: dict[str, str] = {}
    before, after = _texts(change.before, old, partial), _texts(change.after, new, partial)
    row, origin = after if after is not None else before, change.origin
    key = "null" if row is None else _object([row[name] for name in change.table.keys if name in row])
    text = (
        f'{{"id":{_quoted(change.id)},"op":"{change.op.name}","table":{_quoted(change.table.name)},"key":{key},'
        f'"before":{_object(before)},"after":{_object(after)},"ts":{origin.ts},'
        f'"transaction":{_quoted(origin.transaction)},"position":{_quoted(origin.position)}'
    )
    if change.sql or old or new or partial or change.error:
        text += "".join(f",{_member(name)}{_encode(value)}" for name, value in _more(change, old, new, partial).items())
    return text + "}"


def row_json(row: Row) -> str:
    """A row alone as JSON, its values as in ``document``; bytes are base64."""
    return _encode_row(_row(row, {}, {}))


def key_json(row: Row, keys: Sequence[str]) -> str:
    """The values of key columns as a JSON object of ASCII: the same text for the same key."""
    return _object(_pieces(keys, [row[name] for name in keys], {}, {}))


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


def _object(members: dict[str, str] | Sequence[str] | None) -> str:
    return "null" if members is None else f"{{{','.join(members.values() if isinstance(members, dict) else members)}}}"


def _texts(row: Row | None, binary: dict[str, None], partial: dict[str, str]) -> dict[str, str] | None:
    return None if row is None else _pieces(row.keys(), row.values(), binary, partial)


def _pieces(names: Iterable[str], values: Iterable[Any], binary: dict[str, None], partial: dict[str, str]) -> dict[str, str]:
    """The members as texts, by their names."""
    found = {}
    for name, value in zip(names, values):
        kind = type(value)
        if kind is int:
            found[name] = f"{_member(name)}{value}"
        elif kind is str:
            found[name] = _member(name) + _quoted(value)
        elif kind is Decimal or kind is datetime:
            found[name] = _member(name) + _quoted(TEXTS[kind](value))
        elif value is None:
            found[name] = f"{_member(name)}null"
        elif kind is JsonText:
            found[name] = _member(name) + _ascii(value)
        elif members := _members((name,), (value,), binary, partial):
            found[name] = _member(name) + _encode(members[name])
    return found
