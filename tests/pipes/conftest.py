"""A folder that is gone behind the test, and a target in it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from canal.targets import SQLiteTarget
from canal.testing.processes import scratch


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=scratch()) as path:
        yield Path(path)


@pytest.fixture
def target(folder: Path) -> SQLiteTarget:
    return SQLiteTarget(folder / "copy.db")
