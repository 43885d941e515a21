"""A folder for tables of Delta and Iceberg, and a table in MySQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from canal.targets.tables import MySQLTableTarget
from tests.support.lakes import Delta, Iceberg, Lake, login


@pytest.fixture(params=[Delta, Iceberg])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made: Lake = request.param(tmp_path)
    return made


@pytest.fixture
def in_mysql(server: Any, database: str) -> MySQLTableTarget:
    server.query(f"CREATE TABLE {database}.orders (id BIGINT, k VARCHAR(9), a BIGINT, b VARCHAR(9), PRIMARY KEY (id, k))")
    return MySQLTableTarget(f"{database}.orders", login(server))
