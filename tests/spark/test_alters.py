"""Which changes of a column's type leave all values as they are: a table, and the servers themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal.errors import SchemaError
from canal.schema import tables_from_mapping
from canal.spark.alters import changed_values
from canal.testing.servers import ThrowawayServer
from tests.spark.engine import Engine
from tests.spark.test_statements import options


@pytest.mark.parametrize(
    ("old", "new", "keeps"),
    [
        ("INT", "INT", True),
        ("INT", "BIGINT", True),
        ("INT(5) ZEROFILL", "INT UNSIGNED", True),
        ("BIGINT", "INT", False),
        ("INT", "SMALLINT", False),
        ("INT", "INT UNSIGNED", False),
        ("INT UNSIGNED", "INT", False),
        ("INT UNSIGNED", "BIGINT", True),
        ("MEDIUMINT", "INT", True),
        ("INT", "MEDIUMINT", False),
        ("VARCHAR(10)", "VARCHAR(20)", True),
        ("VARCHAR(20)", "VARCHAR(10)", False),
        ("VARCHAR(20)", "TEXT", True),
        ("VARCHAR(20)", "TINYTEXT", True),
        ("VARCHAR(64)", "TINYTEXT", False),
        ("TINYTEXT", "VARCHAR(255)", True),
        ("TEXT", "VARCHAR(255)", False),
        ("TEXT", "LONGTEXT", True),
        ("LONGTEXT", "TEXT", False),
        ("CHAR(5)", "VARCHAR(5)", True),
        ("VARCHAR(5)", "CHAR(5)", False),
        ("CHAR(5)", "CHAR(6)", True),
        ("BINARY(5)", "BINARY(6)", False),
        ("BINARY(5)", "VARBINARY(5)", True),
        ("VARBINARY(5)", "BLOB", True),
        ("VARCHAR(5) CHARACTER SET latin1", "VARCHAR(5) CHARACTER SET utf8mb4", True),
        ("VARCHAR(5) CHARACTER SET utf8mb4", "VARCHAR(5) CHARACTER SET latin1", False),
        ("VARBINARY(5)", "VARCHAR(5)", False),
        ("VARCHAR(5)", "VARBINARY(20)", False),
        ("DATETIME(6)", "DATETIME", False),
        ("DATETIME", "DATETIME(3)", True),
        ("TIMESTAMP(3)", "TIMESTAMP(2)", False),
        ("TIME", "TIME(6)", True),
        ("DATETIME", "TIMESTAMP", False),
        ("ENUM('a','b')", "ENUM('a','b','c')", True),
        ("ENUM('a','b')", "ENUM('c','b','a')", True),
        ("ENUM('a','b')", "ENUM('a','c')", False),
        ("SET('a','b')", "SET('a','b','c')", True),
        ("SET('a','b')", "SET('b','a')", False),
        ("SET('a','b')", "SET('a')", False),
        ("DECIMAL(10,2)", "DECIMAL(12,3)", True),
        ("DECIMAL(10,2)", "DECIMAL(10,1)", False),
        ("DECIMAL(10,2)", "DECIMAL(10,3)", False),
        ("DECIMAL", "DECIMAL(11)", True),
        ("DECIMAL(10,2)", "DECIMAL(10,2) UNSIGNED", False),
        ("FLOAT(7,3)", "FLOAT", True),
        ("FLOAT", "FLOAT(7,3)", False),
        ("BIT(3)", "BIT(8)", True),
        ("BIT(8)", "BIT(3)", False),
        ("JSON", "JSON", True),
        ("INT", "VARCHAR(20)", False),
        ("POINT", "GEOMETRY", True),
        ("INT", "INT NOT NULL", True),
    ],
)
def test_what_keeps_all_values(old: str, new: str, keeps: bool) -> None:
    one, two = (tables_from_mapping({"s.t": f"id INT, c {text}"})["s", "t"] for text in (old, new))

    assert (changed_values(one, two) == "") == keeps


COLUMNS = (
    "id INT PRIMARY KEY, at DATETIME(6), v VARCHAR(20), e ENUM('a','b'), s SET('a','b'), n INT, m MEDIUMINT, "
    "l VARCHAR(20) CHARACTER SET latin1, x INT, g INT AS (n + 1) STORED"
)


@pytest.mark.parametrize(
    ("alter", "says"),
    [
        ("MODIFY at DATETIME", "at was datetime\\(6\\), is datetime"),
        ("MODIFY v VARCHAR(10)", "v was varchar\\(20\\) of utf8mb4, is varchar\\(10\\)"),
        ("MODIFY v VARCHAR(20) CHARACTER SET latin1", "is varchar\\(20\\) of latin1"),
        ("CONVERT TO CHARACTER SET latin1", "v was"),
        ("MODIFY e ENUM('a','c')", "e was enum"),
        ("MODIFY s SET('b','a')", "s was set"),
        ("MODIFY n MEDIUMINT", "n was int, is mediumint"),
        ("MODIFY g INT AS (n + 2) STORED", "generated"),
        ("DROP x, ADD x INT DEFAULT 7", "x was dropped"),
        ("DROP COLUMN `x`, ADD COLUMN `X` INT DEFAULT 7", "x was dropped"),
        ("DROP x; ALTER TABLE orders ADD x INT DEFAULT 7", "x was dropped"),
        ("CHANGE COLUMN x `m` INT, CHANGE m x INT", "m, x was dropped or renamed"),
        ("RENAME COLUMN x TO m, RENAME COLUMN m TO x", "m, x was dropped or renamed"),
        ("MODIFY at DATETIME(6) NULL DEFAULT NULL, MODIFY v VARCHAR(40), MODIFY e ENUM('a','b','c')", ""),
        ("MODIFY l VARCHAR(30) CHARACTER SET utf8mb4, MODIFY m INT, ADD INDEX (x), COMMENT 'DROP x, ADD x'", ""),
        ("CHANGE x X INT", "X is new, x is gone"),
        ("DROP INDEX i, ADD INDEX i (x), ALTER x SET DEFAULT 3", ""),
        ("CHANGE x x BIGINT; ALTER TABLE orders RENAME INDEX i TO x; ALTER TABLE orders DROP INDEX x", "x is int64"),
        ("CHANGE m m INT, RENAME INDEX i TO x; ALTER TABLE orders DROP INDEX x", ""),
    ],
)
def test_an_alter_that_changes_values_without_a_row_is_loud(
    server: ThrowawayServer, database: str, tmp_path: Path, alter: str, says: str
) -> None:
    server.query(f"CREATE TABLE {database}.orders ({COLUMNS}, INDEX i (n))")
    with Engine(options(server, database, tmp_path)) as engine:
        engine.start()
        engine.step()
        server.query(f"INSERT INTO {database}.orders (id, v) VALUES (1, 'a')")
        engine.until(1)
        for one in alter.split("; ALTER TABLE orders "):
            server.query(f"ALTER TABLE {database}.orders {one}")
        server.query(f"INSERT INTO {database}.orders (id, v) VALUES (2, 'b')")
        if not says:
            engine.until(2)
            return
        with pytest.raises(SchemaError, match=says):
            engine.until(2)
        engine.stop()
        engine.start(schemaChange="keep")
        engine.until(2)
