"""A folder whose meta.dat and the spare beside it hold known cursors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.file_meta import HERE, NEXT, started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A destination's folder whose meta.dat says NEXT and whose .bak says HERE."""
    with started(tmp_path) as meta:
        meta.subscribe(1, "shop\\..*")
        meta.update_cursor(1, HERE)
    with started(tmp_path) as meta:
        meta.update_cursor(1, NEXT)
    return tmp_path / "example"
