"""Keeps what fault runs found, and makes docs/reliability.md of it.

    python -m tests.reliability

Runs add to tests/reliability.jsonl what they found, good or bad: a line of JSON each. Nothing is in the page that is not there.
"""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
FOUND: Final = ROOT / "tests/reliability.jsonl"
PAGE: Final = ROOT / "docs/reliability.md"


def write_result(path: Path, figures: dict[str, Any]) -> None:
    """Add what one run has found, and where it ran."""
    where = {"date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "processors": os.cpu_count()}
    line = json.dumps(where | figures) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
