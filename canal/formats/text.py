"""JSON as text, for all formats that write it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def dumps(document: Any, default: Callable[[Any], Any] | None = None) -> str:
    """JSON that is valid UTF-8, whatever a statement or a name holds; NaN and infinite numbers are text."""
    try:
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=default, allow_nan=False)
        text.encode("utf-8")
    except UnicodeEncodeError:  # bytes of a statement that are no text in its charset: escaped, the line can be written
        return json.dumps(document, separators=(",", ":"), default=default, allow_nan=False)
    except ValueError:
        return dumps(_finite(document), default)
    return text


def _finite(value: Any) -> Any:
    """A document with text in place of the numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return json.dumps(value) if isinstance(value, float) and value - value != 0 else value
