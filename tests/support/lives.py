"""The processes that a kill test started, and what each of them recorded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.programs.kill_child import read_records

ROOT = Path(__file__).resolve().parents[2]


def count_started(directory: Path) -> int:
    return len(list(directory.glob("*.started")))


def lives(directory: Path) -> list[list[tuple[Any, ...]]]:
    """The records of each process that got as far as its first."""
    return [records for path in life_files(directory) if (records := list(read_records(path)))]


def life_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("life-*") if not path.suffix)


def wait_for(ready: object, what: str, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not ready():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.05)
