"""Escapes control characters in text for terminals."""

from __future__ import annotations

import logging
from typing import Any

from canal.errors import CONTROLS, visible


def json_line(text: str) -> str:
    """Return JSON with escapes for valid characters that would control a terminal."""
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class VisibleFormatter(logging.Formatter):
    """Formats a message as one line, whatever it contains. A traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(visible, super().formatException(ei).split("\n")))
