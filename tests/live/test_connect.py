"""``canal.connect`` against real servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import canal
from canal.errors import AuthenticationError, ConfigError
from canal.testing.servers import ThrowawayServer
from tests.support.live import source


def url(server: ThrowawayServer, schema: str, password: str = "") -> str:
    password = password or server.password
    return f"mysql://{server.user}:{password}@{server.host}:{server.port}/{schema}?get_server_public_key=true"


def read(server: ThrowawayServer, schema: str, tmp_path: Path, count: int, **options: Any) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    with canal.connect(url(server, schema), meta=tmp_path, **options) as instance:
        server.query(f"INSERT INTO {schema}.orders VALUES ({len(server.query(f'SELECT * FROM {schema}.orders')) + 1})")
        server.query(f"INSERT INTO {schema}.lines_of VALUES ({count})")
        for message in instance.stream():
            for entry in message.entries:
                found += [(entry.header.table, row.after["id"]) for row in entry.rows if row.after]
            if len(found) >= count:
                instance.ack(message)
                return found
    return found


def test_tables_of_a_url_are_followed_and_the_cursor_is_kept(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    for table in ("orders", "lines_of"):
        server.query(f"CREATE TABLE {database}.{table} (id INT)")

    assert read(server, database, tmp_path, 1, tables="orders") == [("orders", 1)]
    server.query(f"INSERT INTO {database}.orders VALUES (2)")
    assert read(server, database, tmp_path, 2, tables="orders") == [("orders", 2), ("orders", 3)]
    assert read(server, database, tmp_path / "all", 2) == [("orders", 4), ("lines_of", 2)]


def test_a_wrong_table_database_or_password_is_told_at_once(server: ThrowawayServer, database: str) -> None:
    server.query(f"CREATE TABLE {database}.orders (id INT)")
    with pytest.raises(ConfigError, match=rf"tables '{database}\.oders' matches no table .*Did you mean {database}\.orders"):
        canal.connect(url(server, database), tables="oders")
    with pytest.raises(ConfigError, match=r"tables 'nothing_\.\*' matches no table"):
        canal.connect(url(server, "nothing_"))
    with pytest.raises(AuthenticationError) as caught:
        canal.connect(url(server, database, "wr0ng"))
    assert "wr0ng" not in str(caught.value)


def test_a_source_is_taken_too(server: ThrowawayServer, database: str) -> None:
    server.query(f"CREATE TABLE {database}.orders (id INT)")
    with canal.connect(source(server), tables=f"{database}.orders") as instance:
        server.query(f"INSERT INTO {database}.orders VALUES (1)")
        change = next(instance.changes())
        assert (change.table.name, change.op, change.after["id"] if change.after else None) == (f"{database}.orders", "insert", 1)
