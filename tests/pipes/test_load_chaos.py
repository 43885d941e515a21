"""The short form of ``tests.programs.load_chaos``, and the whole of it in `make soak`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from canal.testing.servers import MariaDBServer, MySQLServer
from tests.programs.load_chaos import KINDS, Run, where_of

ROWS: Final = 300_000 if os.environ.get("CANAL_SOAK") == "full" else 5_000


@pytest.mark.parametrize(("kind", "server"), [("sqlite", MySQLServer), ("postgresql", MariaDBServer)])
def test_tables_loaded_under_changes_and_kills_equal_the_source(kind: str, server: type, tmp_path: Path) -> None:
    with server() as source, where_of(kind, tmp_path, source) as where:
        Run(source, kind, where, tmp_path, rows=800, kills=2, seed=7).play()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_tables_loaded_into_each_target_equal_the_source(kind: str, tmp_path: Path) -> None:
    with MySQLServer() as source, where_of(kind, tmp_path, source) as where:
        Run(source, kind, where, tmp_path, rows=ROWS, kills=3, seed=7).play()
