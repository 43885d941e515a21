"""The programs in examples/ that follow a server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from canal.testing.servers import ThrowawayServer

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def running(program: str, *arguments: str) -> Iterator[Iterator[str]]:
    """Run an example; its lines."""
    command = [sys.executable, str(EXAMPLES / program), *arguments]
    with subprocess.Popen(command, cwd=EXAMPLES.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield iter(process.stdout)
        finally:
            process.kill()


def test_cache_is_whole_after_a_restart_and_keeps_no_former_key(server: ThrowawayServer, database: str) -> None:
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, n INT)")
    server.query(f"INSERT INTO {database}.t VALUES (1, 1), (2, 2)")
    login = f"{server.host}:{server.port}", server.user, server.password, f"{database}.t"

    with running("cache.py", *login) as lines:
        assert next(lines) == "2 rows to begin with\n"
        server.query(f"UPDATE {database}.t SET id = 3 WHERE id = 1")
        assert next(lines).startswith("2 rows after")
        server.query(f"INSERT INTO {database}.t VALUES (4, 4)")
        assert next(lines).startswith("3 rows after")
    with running("cache.py", *login) as lines:
        assert next(lines) == "3 rows to begin with\n"
