"""JSON as text, for all formats that write it."""

from __future__ import annotations

import json
from typing import Any


def dumps(document: Any) -> str:
    """JSON that is valid UTF-8, whatever a statement or a name holds."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # bytes of a statement that are no text in its charset: escaped, the line can be written
        return json.dumps(document, separators=(",", ":"))
    return text
