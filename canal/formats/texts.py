"""Values of rows as text, for formats and targets that have no type for them.

Never rounds or cuts a value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from canal.rows.values import AmbiguousLabel, InvalidJson, JsonText, NoLabel, ZeroDate


def moment_text(value: datetime) -> str:
    """``2026-01-31 12:00:00.5``, as much of a fraction as there is; with an offset where it has a zone."""
    return value.isoformat(" ")


def duration_text(value: timedelta) -> str:
    """A TIME as MySQL writes it: ``-838:59:59.000001``."""
    micros = value // timedelta(microseconds=1)
    seconds, fraction = divmod(abs(micros), 1_000_000)
    text = f"{'-' if micros < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}" if fraction else text


def document_text(value: Any) -> str:
    """JSON that the instance gave as objects."""
    return json.dumps(value, ensure_ascii=False, default=document_member)


def document_member(value: Any) -> Any:
    """A value of a document that JSON has no type for."""
    if isinstance(value, Decimal):
        return str(value)
    if type(value) in TEXTS:
        return TEXTS[type(value)](value)
    if isinstance(value, bytes):
        return value.hex()
    raise ValueError(f"a value of the type {type(value).__name__} in a document")


def plain_text(value: str) -> str:
    """The text of a kind of ``str`` that libraries may not know."""
    return str.__str__(value)


#: What makes text of values that are none, by their type.
TEXTS: Final[Mapping[type, Callable[[Any], str]]] = {
    Decimal: lambda value: format(value, "f"),
    datetime: moment_text,
    date: date.isoformat,
    timedelta: duration_text,
    dict: document_text,
    list: document_text,
    ZeroDate: plain_text,
    NoLabel: plain_text,
    AmbiguousLabel: plain_text,
    InvalidJson: plain_text,
    JsonText: plain_text,
}
