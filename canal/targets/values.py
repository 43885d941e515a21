"""How a target without a type for a value takes it: as text, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from canal.formats.texts import TEXTS, document_text, duration_text, moment_text, plain_text
from canal.rows.values import InvalidText, NoLabel, ZeroDate

__all__ = ["NO_TYPE", "TEXTS", "document_text", "duration_text", "moment_text", "plain_text", "refuse"]


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
