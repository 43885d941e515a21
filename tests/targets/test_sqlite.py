"""SQLite through the suite."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from canal.targets import SQLiteTarget
from canal.testing import target_suite


def harness(path: Path) -> target_suite.Harness:
    def ask(sql: str) -> list[dict[str, Any]]:
        with sqlite3.connect(path) as connection:
            cursor = connection.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            rows = [dict(zip(names, row)) for row in cursor.fetchall()]
        connection.close()
        return rows

    def rows(table: str) -> list[dict[str, Any]]:
        name = table.partition(".")[2]
        return ask(f'SELECT * FROM "{name}"') if ask(f"SELECT 1 FROM sqlite_master WHERE name = '{name}'") else []

    def unique(table: str, column: str) -> None:
        ask(f'CREATE UNIQUE INDEX "u_{table}" ON "{table.partition(".")[2]}" ("{column}")')

    return target_suite.Harness(lambda: SQLiteTarget(path), rows=rows, unique=unique)


@pytest.mark.parametrize("case", target_suite.CASES)
def test_the_suite(case: str, tmp_path: Path) -> None:
    target_suite.run(case, harness(tmp_path / "copy.db"))
