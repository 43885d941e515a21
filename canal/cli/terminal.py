"""Text for terminals: what would control one is shown as an escape."""

from __future__ import annotations

import logging
import re
from typing import Any

#: What a terminal obeys, or what changes the order in which it shows a line: C0, DEL, C1, ends of lines, directions, and halves
#: of characters, which cannot be written.
_CONTROLS = re.compile("[\0-\x08\n-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    """Return text for one line of a terminal."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def json_line(text: str) -> str:
    """Return JSON with escapes for what is valid in it and would control a terminal."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class VisibleFormatter(logging.Formatter):
    """A message takes one line, whatever is in it; a traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(visible, super().formatException(ei).split("\n")))
