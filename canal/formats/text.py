"""JSON as text, for all formats that write it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any


def dumps(document: Any, default: Callable[[Any], Any] | None = None) -> str:
    """JSON that is valid UTF-8, whatever a statement or a name holds; NaN and infinite numbers are text."""
    kind = type(document)
    if kind is int or kind is float and document - document == 0:
        return repr(document)
    try:
        text = _encoder(default, False)(document)
        if not text.isascii():
            text.encode("utf-8")
    except UnicodeEncodeError:  # bytes of a statement that are no text in its charset: escaped, the line can be written
        return _encoder(default, True)(document)
    except ValueError:
        return dumps(_finite(document), default)
    return text


@lru_cache(16)
def _encoder(default: Callable[[Any], Any] | None, ensure_ascii: bool) -> Callable[[Any], str]:
    """Return the function that encodes documents. json.dumps makes a new encoder for each call with options."""
    return json.JSONEncoder(ensure_ascii=ensure_ascii, separators=(",", ":"), default=default, allow_nan=False).encode


def _finite(value: Any) -> Any:
    """A document with text in place of the numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return json.dumps(value) if isinstance(value, float) and value - value != 0 else value
