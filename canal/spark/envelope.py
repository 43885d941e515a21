"""Rows as JSON that Spark's ``from_json`` reads with the table's types, see "An envelope's values" in docs/spark.md.

Never rounds, cuts or shifts a value: what a column's Spark type cannot hold is null and stands, exactly, in ``_exact``.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from canal.formats.arrow import exact_text
from canal.formats.columns import float_text
from canal.formats.spark_types import spark_arrow_type
from canal.formats.text import dumps
from canal.formats.texts import TEXTS
from canal.rows.values import ABSENT, AmbiguousLabel, NoLabel
from canal.schema import ColumnSchema, is_sure

_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode
#: The JSON of a value, by the value's own class; None: such a value, as one of any other class, stands in ``_exact``.
_Forms = Mapping[type, Callable[[Any], str | None]]


def _text(value: str) -> str | None:
    return _quoted(value) if value.isascii() or is_sure(value) else None


def _real(value: float) -> str:
    return repr(value) if value - value == 0 else _quoted(float_text(value))


def _in_quotes(value: Any) -> str:
    return f'"{TEXTS[type(value)](value)}"'


_FORMS: Final[_Forms] = {
    type(None): lambda value: "null", int: repr, float: _real, str: _text, NoLabel: lambda value: '""', AmbiguousLabel: _text,
    **dict.fromkeys((Decimal, date, datetime, timedelta), _in_quotes),
}  # fmt: skip
_OF_BYTES: Final[_Forms] = {**_FORMS, bytes: lambda value: f'"{b64encode(value).decode()}"'}


class RowJson:
    """Makes the JSON objects of one version of a table's columns."""

    def __init__(self, columns: Sequence[ColumnSchema]) -> None:
        taken = {column.name.lower() for column in columns}
        exact = "_exact"
        while exact in taken:
            exact = f"_{exact}"
        self._exact = dumps(exact)
        self._columns: list[tuple[str, str, _Forms]] = [
            (column.name, dumps(column.name), _OF_BYTES if pa.types.is_binary(spark_arrow_type(column)) else _FORMS)
            for column in columns
        ]

    def texts(self, before: Sequence[Any] | None, after: Sequence[Any] | None) -> tuple[str, str | None]:
        """The row after a change, or the one that was deleted; and of an update the columns that it changed, before it."""
        if before is None or after is None:
            return self._object(self._members((before if after is None else after) or ())), None
        new, old = self._members(after), self._members(before)
        changed = {number: member for number, member in old.items() if new.get(number, member) != member}
        return self._object(new), self._object(changed)

    def _members(self, values: Sequence[Any]) -> dict[int, tuple[str, str | None]]:
        """By the number of each column that the image holds, its JSON, and the text that ``_exact`` has of it."""
        found: dict[int, tuple[str, str | None]] = {}
        for number, value in enumerate(values):
            if value is ABSENT:
                continue
            name, _, forms = self._columns[number]
            form = forms.get(type(value))
            made = None if form is None else form(value)
            found[number] = (made, None) if made is not None else ("null", exact_text(value, name))
        return found

    def _object(self, members: Mapping[int, tuple[str, str | None]]) -> str:
        parts = [f"{self._columns[number][1]}:{made}" for number, (made, _) in members.items()]
        exact = {self._columns[number][0]: text for number, (_, text) in members.items() if text is not None}
        if exact:
            parts.append(f"{self._exact}:{dumps(exact)}")
        return f"{{{','.join(parts)}}}"
