"""What a real server's answers make impossible is an error, never a guess."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import canal
from canal.testing import MariaDBServer
from canal.testing.servers import ThrowawayServer
from tests.support.live import end_of_log, ids_of, source


def test_gtids_that_the_server_has_not_executed_are_refused(mysql_server: ThrowawayServer) -> None:
    connection = source(mysql_server).connect()
    try:
        with pytest.raises(canal.PositionLostError, match="has not executed"):
            connection.dump(canal.Position(gtid="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"))
    finally:
        connection.close()


def test_columns_that_no_source_tells_remedy_is_grant_or_filter(mariadb_server: ThrowawayServer) -> None:
    with MariaDBServer() as server:  # its default: no names, signs or charsets in the log
        for sql in ("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT UNSIGNED)", "CREATE TABLE shop.u (id INT)"):
            server.query(sql)
        start = end_of_log(server)
        for sql in (
            "INSERT INTO shop.t VALUES (4000000001)",
            "INSERT INTO shop.u VALUES (2)",
            "CREATE USER r IDENTIFIED BY 'pw'",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO r",
        ):
            server.query(sql)

        def read(last: int, **options: Any) -> list[int]:
            config = canal.InstanceConfig(
                destination="x",
                source=source(server, user="r", password="pw"),
                start=start,
                alarm=lambda destination, text: None,
                **options,
            )
            found: list[int] = []
            with canal.Instance(config) as instance:
                instance.subscribe()
                while last not in found:
                    found += ids_of(instance.get(100, timeout=5))
            return found

        with pytest.raises(canal.errors.SchemaError, match=r"does not describe shop\.t: .* SELECT on it is missing") as caught:
            read(2)
        assert caught.value.remedy.startswith("Grant SELECT, or exclude the table with black_filter.")
        server.query("GRANT SELECT ON shop.* TO r")
        assert read(2) == [4000000001, 2]

        server.query("DROP TABLE shop.t")
        with pytest.raises(canal.errors.SchemaError, match=r"columns of shop\.t are unknown"):
            read(2)
        assert read(2, black_filter=r"shop\.t") == [2]


def test_a_filter_that_matches_no_table_is_told_with_the_nearest(
    server: ThrowawayServer, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.query(f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)")
    config = canal.InstanceConfig(
        destination="x", source=source(server), filter=rf"{database}\.order", field_filter=f"{database}.orders:id"
    )
    with caplog.at_level(logging.WARNING, "canal.parse"), canal.Instance(config) as instance:
        instance.subscribe()
    (told,) = [record.getMessage() for record in caplog.records if "matches no table" in record.getMessage()]
    assert f"filter '{database}\\.order' matches no table" in told
    assert f"Did you mean {database}.orders" in told
