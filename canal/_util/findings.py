"""What a look before the start finds, of a source or of a target.

Never looks itself.
"""

from __future__ import annotations

from typing import Literal

import attrs


@attrs.frozen
class Finding:
    """One thing that was looked at. ``level``: "error" an instance, or a pipe, cannot run so; "warning" it can, with less."""

    what: str
    level: Literal["ok", "warning", "error"]
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.level:7}  {self.what}: {self.text}" + (f" {self.remedy}" if self.remedy else "")
