"""The short form of ``tests.programs.load_chaos``, and the whole of it in `make soak`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from canal.testing.servers import MariaDBServer, MySQLServer
from tests.programs.load_chaos import KINDS, Run, where_of

IS_FULL: Final = os.environ.get("CANAL_SOAK") == "full"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS if IS_FULL else ("sqlite", "postgresql"))
def test_tables_loaded_under_changes_and_kills_equal_the_source(kind: str, tmp_path: Path) -> None:
    server = MariaDBServer if kind == "postgresql" else MySQLServer
    with server() as source, where_of(kind, tmp_path, source) as where:
        Run(source, kind, where, tmp_path, rows=300_000 if IS_FULL else 800, kills=3 if IS_FULL else 2, seed=7).play()
