"""Decoding of row events to values. User code and executors import it without the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal._util.lazy import lazy_names

if TYPE_CHECKING:
    from canal.rows.mask import Mask
    from canal.rows.values import ABSENT, AmbiguousLabel, InvalidJson, InvalidText, JsonDiff, NoLabel, PartialJson, ZeroDate

__all__ = ["ABSENT", "AmbiguousLabel", "InvalidJson", "InvalidText", "JsonDiff", "Mask", "NoLabel", "PartialJson", "ZeroDate"]

_HOMES: Final = {
    "ABSENT": "values",
    "AmbiguousLabel": "values",
    "InvalidJson": "values",
    "InvalidText": "values",
    "JsonDiff": "values",
    "Mask": "mask",
    "NoLabel": "values",
    "PartialJson": "values",
    "ZeroDate": "values",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)
