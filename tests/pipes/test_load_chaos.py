"""The short form of ``tests.programs.load_chaos``."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal.testing.servers import MariaDBServer, MySQLServer
from tests.programs.load_chaos import Run, where_of


@pytest.mark.parametrize(("kind", "server"), [("sqlite", MySQLServer), ("postgresql", MariaDBServer)])
def test_tables_are_loaded_while_they_change_and_the_process_is_killed(kind: str, server: type, tmp_path: Path) -> None:
    with server() as source, where_of(kind, tmp_path, source) as where:
        Run(source, kind, where, tmp_path, rows=800, kills=2, seed=7).play()
