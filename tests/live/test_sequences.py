"""MariaDB's sequences: tables of one row, of which each change is an INSERT."""

from __future__ import annotations

import pytest

from canal.parse.schema.sequences import COLUMNS
from tests.support.fix_servers import Line
from tests.support.live import Watch


@pytest.mark.every_line
@pytest.mark.needs("sequences", "full_metadata")
@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_rows_of_sequences_are_delivered_on_demand_only(line: Line, metadata: str) -> None:
    statements = (
        "CREATE SEQUENCE shop.numbers CACHE 2",
        "CREATE TABLE shop.t (id BIGINT PRIMARY KEY DEFAULT NEXTVAL(shop.numbers), a INT)",
        "INSERT INTO shop.t (a) VALUES (1), (2), (3)",
        "DO SETVAL(shop.numbers, 100)",
        "INSERT INTO shop.t (a) VALUES (4)",
    )
    with line.server(f"--binlog-row-metadata={metadata}") as server:
        server.query("CREATE DATABASE shop")
        server.query("CREATE SEQUENCE shop.earlier CACHE 2")
        with Watch(server, r"shop\..*") as watch, Watch(server, r"shop\..*", sequences=True) as watch_all:
            watch.run(*statements, "SELECT NEXTVAL(shop.earlier)")
            rows = [(entry.header.table, row.after) for entry in watch.read() for row in entry.rows]
            all_rows = [(entry.header.table, row.after) for entry in watch_all.read() for row in entry.rows]

        assert {table for table, _ in rows} == {"t"}
        assert [tuple(row) for _, row in rows if row] == [(1, 1), (2, 2), (3, 3), (101, 4)]
        assert {table for table, _ in all_rows} == {"numbers", "earlier", "t"}
        last = [row for table, row in all_rows if table == "numbers"][-1]
        assert last is not None
        assert last["next_not_cached_value"] == server.query("SELECT next_not_cached_value FROM shop.numbers")[0][0]
        assert list(last.as_dict()) == [one.name for one in COLUMNS]
