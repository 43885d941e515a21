"""How a target without a type for a value takes it: as text, or not at all."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from canal.formats.texts import TEXTS, document_text, duration_text, moment_text, plain_text
from canal.rows.values import InvalidText, NoLabel, ZeroDate

__all__ = [
    "BYTES",
    "NO_TYPE",
    "SHAPES",
    "TEXTS",
    "document_text",
    "duration_text",
    "moment_text",
    "plain_text",
    "refuse",
    "shortest",
    "widened",
]

_FLOAT: Final = struct.Struct("f")
#: Types of shapes. Their values are bytes.
SHAPES: Final = frozenset(
    (
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        *("geometrycollection", "geomcollection"),
    )
)
#: Types whose values are bytes, whatever the charset of their columns is.
BYTES: Final = SHAPES | {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"}


def refuse(what: str) -> Callable[[Any], Any]:
    """An adapter of values that a target does not hold."""

    def adapter(value: Any) -> Any:
        raise ValueError(what)

    return adapter


#: What no typed column of another database holds.
NO_TYPE: Final[Mapping[type, Callable[[Any], Any]]] = {
    ZeroDate: refuse("a date that is none"),
    NoLabel: refuse("an ENUM that holds none of its labels"),
    InvalidText: refuse("bytes that are no text in their charset"),
}


def widened(value: float) -> float:
    """Return the double that a FLOAT is, of any double that is rounded to it."""
    return float(_FLOAT.unpack(_FLOAT.pack(value))[0])


def shortest(value: float) -> float:
    """Return the double of the shortest text that reads back as the FLOAT."""
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    return next((float(text) for text in texts if widened(float(text)) == value), value)
