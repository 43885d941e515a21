"""One transaction of many rows streams through a small store: memory stays flat."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from canal.testing.servers import MySQLServer, ThrowawayServer

BUDGET = 8 << 20
ALLOWANCE = 64 << 20


def fill(server: ThrowawayServer, rows: int) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE big")
        cursor.execute("USE big")
        cursor.execute("CREATE TABLE big.t (id BIGINT UNSIGNED PRIMARY KEY, note VARCHAR(40), price DECIMAL(10,2))")
        if isinstance(server, MySQLServer):
            cursor.execute("SET SESSION cte_max_recursion_depth = 10000000")
            numbers = f"(WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n + 1 FROM s WHERE n < {rows}) SELECT n FROM s) x"
        else:
            numbers = f"(SELECT seq n FROM seq_1_to_{rows}) x"
        cursor.execute(f"INSERT INTO big.t SELECT n, CONCAT('customer number ', n), n / 100 FROM {numbers}")


@pytest.mark.needs("cte")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_stays_within_the_stores_budget_and_a_fixed_allowance(own_server: ThrowawayServer, thorough: bool) -> None:
    """T46"""
    rows = 2_000_000 if thorough else 500_000
    fill(own_server, rows)
    arguments = [str(own_server.port), own_server.user, own_server.password, str(rows), str(BUDGET)]

    done = subprocess.run(
        [sys.executable, "-m", "tests.programs.memory_child", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
    )

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    print(result)
    assert (result["rows"], result["total"]) == (rows, rows * (rows + 1) // 2)
    assert result["pieces"] > rows // 200_000
    assert result["grown"] <= BUDGET + ALLOWANCE
