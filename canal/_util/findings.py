"""Findings of preflight checks of a source or target."""

from __future__ import annotations

from typing import Literal

import attrs


@attrs.frozen
class Finding:
    """A finding. ``level``: "error" prevents the instance or pipe from running; "warning" limits it."""

    what: str
    level: Literal["ok", "warning", "error"]
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.level:7}  {self.what}: {self.text}" + (f" {self.remedy}" if self.remedy else "")
