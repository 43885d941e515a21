"""The processes that a kill test started, and what each of them recorded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import canal
from tests.programs.kill_child import read_records
from tests.support.journal import Change

ROOT = Path(__file__).resolve().parents[2]


def count_started(directory: Path) -> int:
    return len(list(directory.glob("*.started")))


def lives(directory: Path) -> list[list[tuple[Any, ...]]]:
    """The records of each process that got as far as its first."""
    return [records for path in life_files(directory) if (records := list(read_records(path)))]


def life_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("life-*") if not path.suffix)


def merged(directory: Path) -> tuple[list[Change], int]:
    """What a consumer holds that undoes, at each restart, what it got after the cursor; and how often that happened.

    A restart must find the cursor at the last batch that was acked, or at one that was being acked when the kill came.
    """
    batches: list[tuple[list[Change], canal.Position]] = []
    acked, repeats = 0, 0
    first_cursor: canal.Position | None = None
    for life in lives(directory):
        cursor = life[0][1]
        positions = [position for _, position in batches]
        if first_cursor is None:
            first_cursor = cursor
        kept = len(positions) - positions[::-1].index(cursor) if cursor in positions else 0
        assert kept or cursor == first_cursor, f"the cursor {cursor} is no position that was handed out"
        assert kept >= acked, f"{acked} batches were acked, and the cursor is after {kept} of them"
        repeats += len(batches) > kept
        del batches[kept:]
        for kind, *values in life[1:]:
            if kind == "GOT":
                batches.append((values[0], values[1]))
            else:
                assert values[0] == batches[-1][1]
                acked = len(batches)
    return [change for changes, _ in batches for change in changes], repeats


def acked(directory: Path) -> int:
    """How many batches with changes the process that was started last has acked."""
    records = list(read_records(directory / f"life-{count_started(directory) - 1:04d}"))
    return sum(kind == "ACKED" and bool(before[1]) for before, (kind, *_) in zip(records, records[1:], strict=False))


def reached(directory: Path, end: canal.Position) -> bool:
    """Whether the last process has acked, or begun with, everything before ``end``."""
    known = [record[1] for record in read_records(life_files(directory)[-1]) if record[0] in ("START", "ACKED")]
    return bool(known) and known[-1].precedes(end) is False


def wait_for(ready: object, what: str, timeout: float = 120.0) -> None:
    deadline = time.monotonic() + timeout
    while not ready():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.05)
