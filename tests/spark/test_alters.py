"""Which changes of a column's type leave all values as they are: a table, and the servers themselves."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

import canal
from canal.changes.alters import changed_values
from canal.errors import ConfigError, SchemaError, UnloggedChangeError
from canal.parse.schema.texts import tables_from_mapping
from canal.spark import apply_changes, foreach_batch
from canal.testing.servers import ThrowawayServer
from tests.support.engine import Engine, options
from tests.support.histories import MemoryTarget
from tests.support.live import source


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
    one, two = (tables_from_mapping({"s.t": f"id INT, c {text}"})["s", "t"].schema for text in (old, new))

    assert (changed_values(one.columns, two.columns) == "") == keeps


COLUMNS = (
    "id INT PRIMARY KEY, at DATETIME(6), v VARCHAR(20), e ENUM('a','b'), s SET('a','b'), n INT, m MEDIUMINT, "
    "l VARCHAR(20) CHARACTER SET latin1, x INT, g INT AS (n + 1) STORED"
)


OTHERS = (
    "z1 FLOAT(7,3), z2 DOUBLE(10,2) UNSIGNED, z3 DECIMAL(30,10) UNSIGNED, z4 YEAR, z5 BINARY(5), z6 VARBINARY(5), z7 LONGBLOB, "
    "z8 TINYTEXT CHARACTER SET ascii, z9 CHAR(9) CHARACTER SET utf16, z10 BIT(11), z11 POINT, z12 GEOMETRY, "
    "z13 TIMESTAMP(3) NULL, z14 TIME(2), z15 BIGINT UNSIGNED ZEROFILL, z16 TINYINT(1), z17 DATE, "
    "z18 ENUM('x''y','é') CHARACTER SET latin1"
)
VALUES_CHANGE = [
    ("MODIFY at DATETIME", "at was datetime\\(6\\), is datetime"),
    ("MODIFY v VARCHAR(10)", "v was varchar\\(20\\) of utf8mb4, is varchar\\(10\\)"),
    ("MODIFY v VARCHAR(20) CHARACTER SET latin1", "is varchar\\(20\\) of latin1"),
    ("CONVERT TO CHARACTER SET latin1", "v was"),
    ("MODIFY e ENUM('a','c')", "e was enum"),
    ("MODIFY s SET('b','a')", "s was set"),
    ("MODIFY n MEDIUMINT", "n was int, is mediumint"),
    ("MODIFY n VARCHAR(20)", "n was int, is varchar"),
    ("MODIFY g INT AS (n + 2) STORED", "generated"),
    ("CHANGE x y INT", "x, y was dropped or renamed"),
    ("CHANGE COLUMN x `m` INT, CHANGE m x INT", "m, x was dropped or renamed"),
    ("RENAME COLUMN x TO m, RENAME COLUMN m TO x", "m, x was dropped or renamed"),
    ("DROP x, ADD x INT DEFAULT 7", "x is new, with a value in each row"),
    ("DROP COLUMN `x`, ADD COLUMN `X` INT DEFAULT 7", "X is new, with a value in each row"),
    ("DROP x; ALTER TABLE orders ADD x INT DEFAULT 7", "x is new, with a value in each row"),
]


@pytest.mark.needs("full_metadata")
@pytest.mark.parametrize(
    ("alter", "says", "is_first"),
    [*((*one, False) for one in VALUES_CHANGE), *((*one, True) for one in VALUES_CHANGE if one[0][:4] in ("MODI", "DROP"))],
)
def test_an_alter_that_changes_values_without_a_row_comes_again_until_it_is_acknowledged(
    server: ThrowawayServer, database: str, tmp_path: Path, alter: str, says: str, is_first: bool
) -> None:
    """Also where it is the first that a query meets behind its checkpoint, and when it is loaded anew."""
    server.query(f"CREATE TABLE {database}.orders ({COLUMNS}, INDEX i (n))")
    with Engine(options(server, database, tmp_path)) as engine:
        engine.start()
        engine.step()
        server.query(f"INSERT INTO {database}.orders (id, v) VALUES (1, 'a')")
        engine.until(1)
        if is_first:
            engine.stop()
        altered(server, database, alter)
        server.query(f"INSERT INTO {database}.orders (id, v) VALUES (2, 'b')")
        if not is_first:
            with pytest.raises((SchemaError, UnloggedChangeError)):
                engine.until(2)
        for _ in range(2):
            engine.stop()
            engine.start()
            with pytest.raises(UnloggedChangeError, match=says) as found:
                engine.until(2)
        assert f"acknowledge = {found.value.position}" in str(found.value)
        engine.stop()
        engine.start(acknowledge=found.value.position)
        engine.until(2)
        engine.stop()
        engine.start(acknowledge="")
        server.query(f"INSERT INTO {database}.orders (id, v) VALUES (3, 'b')")
        engine.until(3)


UNIQUE = "a VARCHAR(9) NOT NULL, b INT NOT NULL, c INT, UNIQUE KEY u (a, b), KEY i (c)"
KEY_GOES = [
    ("DROP INDEX u", "was a, b and is gone"),
    ("DROP KEY u, ADD UNIQUE (b)", ""),  # what is unique in b is so in both
    ("MODIFY b INT NULL", "was a, b and is gone"),  # NULLs are not equal
    ("DROP INDEX u, ADD UNIQUE KEY w (c), MODIFY c INT NOT NULL", "was a, b and is c"),
    ("DROP INDEX i", ""),
]


@pytest.mark.needs("full_metadata")
@pytest.mark.parametrize(("alter", "says", "is_down"), [*((*one, False) for one in KEY_GOES), (*KEY_GOES[0], True)])
def test_a_unique_key_that_stood_in_for_a_primary_one_is_seen_to_go(
    server: ThrowawayServer, database: str, tmp_path: Path, alter: str, says: str, is_down: bool
) -> None:
    """A target with that key would hold one of several rows."""
    server.query(f"CREATE TABLE {database}.orders ({UNIQUE})")
    with Engine(options(server, database, tmp_path)) as engine:
        engine.start()
        engine.step()
        server.query(f"INSERT INTO {database}.orders VALUES ('x', 1, 1)")
        engine.until(1)
        if is_down:
            engine.stop()
        altered(server, database, alter)
        server.query(f"INSERT INTO {database}.orders VALUES ('x', 2, 2)")
        if is_down:
            engine.start()
        if says:
            with pytest.raises(UnloggedChangeError, match=f"the key of .*orders {says}") as found:
                engine.until(2)
            engine.stop()
            engine.start(acknowledge=found.value.position)
        engine.until(2)
        server.query(f"INSERT INTO {database}.orders VALUES ('y', 3, 3)")
        engine.until(3)


@pytest.mark.needs("full_metadata")
def test_a_loop_sees_a_unique_key_go(server: ThrowawayServer, database: str) -> None:
    server.query(f"CREATE TABLE {database}.orders ({UNIQUE})")
    target, keys = MemoryTarget(), ["a", "b"]
    config = canal.InstanceConfig(destination="shop", source=source(server), filter=rf"{database}\..*")

    def follow(instance: canal.Instance, count: int) -> None:
        stop, sink = threading.Event(), apply_changes(target, keys)

        def fn(rows: pa.Table, batch: Any) -> None:
            sink(rows, batch)
            if target.rows is not None and target.rows.num_rows == count:
                stop.set()

        foreach_batch(None, instance, fn, stop=stop, timeout=0.1)

    with canal.Instance(config) as instance:
        instance.subscribe()
        server.query(f"INSERT INTO {database}.orders VALUES ('x', 1, 1)")
        follow(instance, 1)
        altered(server, database, "DROP INDEX u")
        server.query(f"INSERT INTO {database}.orders VALUES ('y', 1, 1)")
        for _ in range(2):
            with pytest.raises(UnloggedChangeError, match="the key of .*orders was a, b and is gone.*snapshot='replace'"):
                follow(instance, 2)
        apply_changes(target, keys).acknowledge()
        follow(instance, 2)


VALUES_STAY = [
    ("MODIFY at DATETIME(6) NULL DEFAULT NULL, MODIFY v VARCHAR(40), MODIFY e ENUM('a','b','c')", ""),
    ("MODIFY l VARCHAR(30) CHARACTER SET utf8mb4, MODIFY m INT, ADD INDEX (x), COMMENT 'DROP x, ADD x'", ""),
    ("CHANGE x X INT", "X is new, x is gone"),
    ("DROP INDEX i, ADD INDEX i (x), ALTER x SET DEFAULT 3", ""),
    ("CHANGE x x BIGINT; ALTER TABLE orders RENAME INDEX i TO x; ALTER TABLE orders DROP INDEX x", "x is int64"),
    ("CHANGE m m INT, RENAME INDEX i TO x; ALTER TABLE orders DROP INDEX x", ""),
    ("DROP x", "x was dropped"),
    ("ADD y INT", "y is new"),
]


@pytest.mark.needs("full_metadata")
@pytest.mark.parametrize(
    ("alter", "says", "is_down"), [*((*one, False) for one in VALUES_STAY), *((*one, True) for one in VALUES_STAY if one[1])]
)
def test_an_alter_that_leaves_values_as_they_are_is_nothing_that_a_new_load_does_not_mend(
    server: ThrowawayServer, database: str, tmp_path: Path, alter: str, says: str, is_down: bool
) -> None:
    """Rows from before it come in the columns of the new load, also those that were planned and not committed."""
    server.query(f"CREATE TABLE {database}.orders ({COLUMNS}, INDEX i (n))")
    with Engine(options(server, database, tmp_path)) as engine:
        engine.start()
        engine.step()
        server.query(f"INSERT INTO {database}.orders (id, x) VALUES (1, 5)")
        engine.plan_next() if is_down else engine.until(1)
        if is_down:
            engine.stop()
            server.query(f"INSERT INTO {database}.orders (id, x) VALUES (11, 5)")
        altered(server, database, alter)
        server.query(f"INSERT INTO {database}.orders (id, v) VALUES (2, 'b')")
        if says and not is_down:
            with pytest.raises(SchemaError, match=says):
                engine.until(2)
        engine.stop()
        engine.start()
        rows = engine.until(3 if is_down else 2)
    if is_down and alter != "DROP x":
        assert [row.get("x", row.get("X")) for row in rows] == [5, 5, None]


@pytest.mark.needs("full_metadata")
def test_a_renamed_table_is_followed_by_doing_just_what_the_errors_say(
    server: ThrowawayServer, database: str, tmp_path: Path
) -> None:
    server.query(f"CREATE TABLE {database}.orders ({COLUMNS})")
    server.query(f"INSERT INTO {database}.orders (id) VALUES (1)")
    given = {**options(server, database, tmp_path), "snapshot": "initial"}
    with Engine(given) as engine:
        engine.start()
        engine.until(1)
        server.query(f"RENAME TABLE {database}.orders TO {database}.old")
        server.query(f"INSERT INTO {database}.old (id) VALUES (2)")
        with pytest.raises(UnloggedChangeError, match="Follow the table's new name, with a new checkpoint and a snapshot"):
            engine.until(2)
        engine.stop()
        with pytest.raises(ConfigError, match="follow its new name with a new checkpoint and a snapshot"):
            engine.start()
    with Engine({**given, "table": f"{database}.old"}) as engine:
        engine.start()
        engine.until(2)
        server.query(f"INSERT INTO {database}.old (id) VALUES (3)")
        assert [row["id"] for row in engine.until(3)] == [1, 2, 3]


@pytest.mark.needs("full_metadata")
def test_a_column_that_came_and_went_while_the_query_was_down_is_left_out(
    server: ThrowawayServer, database: str, tmp_path: Path
) -> None:
    server.query(f"CREATE TABLE {database}.orders ({COLUMNS})")
    with Engine(options(server, database, tmp_path)) as engine:
        engine.start()
        engine.step()
        engine.stop()
        server.query(f"ALTER TABLE {database}.orders ADD y INT")
        server.query(f"INSERT INTO {database}.orders (id, y) VALUES (1, 5)")
        server.query(f"ALTER TABLE {database}.orders DROP y")
        server.query(f"INSERT INTO {database}.orders (id) VALUES (2)")
        engine.start()
        assert [row["id"] for row in engine.until(2)] == [1, 2]


@pytest.mark.needs("full_metadata")
def test_an_alter_right_behind_a_snapshot_is_compared_with_what_the_snapshot_read(
    server: ThrowawayServer, database: str, tmp_path: Path
) -> None:
    server.query(f"CREATE TABLE {database}.orders ({COLUMNS})")
    server.query(f"INSERT INTO {database}.orders (id, v) VALUES (1, 'hello')")
    with Engine({**options(server, database, tmp_path), "snapshot": "initial"}) as engine:
        engine.start()
        engine.until(1)
        altered(server, database, "MODIFY v VARCHAR(10)")
        server.query(f"INSERT INTO {database}.orders (id, v) VALUES (2, 'b')")
        for _ in range(2):
            with pytest.raises(UnloggedChangeError, match="v was varchar"):
                engine.until(2)
            engine.stop()
            engine.start()


@pytest.mark.needs("full_metadata")
def test_types_that_a_snapshot_read_are_those_of_the_log(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    """As the server declares them, as its log names them, and as an offset keeps them: nothing is taken for an ALTER."""
    own = {"mysql": "z19 JSON", "mariadb": "z19 JSON, z20 INET6"}[server.kind]
    server.query(f"CREATE TABLE {database}.orders ({COLUMNS}, {OTHERS}, {own})")
    server.query(f"INSERT INTO {database}.orders (id, v) VALUES (1, 'hello')")
    with Engine({**options(server, database, tmp_path), "snapshot": "initial"}) as engine:
        engine.start()
        engine.until(1)
        for number in (2, 3):
            server.query(f"INSERT INTO {database}.orders (id, v) VALUES ({number}, 'b')")
            engine.until(number)
            engine.stop()
            engine.start()


@pytest.mark.needs("full_metadata")
def test_what_happens_to_other_than_the_chosen_columns_is_nothing(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE {database}.orders (id INT, k INT, a INT, b VARCHAR(9), c INT, PRIMARY KEY (id, k))")
    server.query(f"INSERT INTO {database}.orders VALUES (0, 0, 7, 'hello', 1)")
    with Engine({**options(server, database, tmp_path), "snapshot": "initial", "columns": "A,ID"}) as engine:
        engine.start()
        engine.until(1)
        ours = "MODIFY b VARCHAR(7)", "DROP b", "ADD d INT", "CHANGE c e INT", "ADD b INT DEFAULT 3", "ADD INDEX (e)"
        for number, alter in enumerate(ours, 1):
            altered(server, database, alter)
            server.query(f"INSERT INTO {database}.orders (id, k, a) VALUES ({number}, 0, 7)")
            rows = engine.until(number + 1)
            if number == 3:  # loaded anew
                engine.stop()
                engine.start()
        assert {name for name in rows[-1] if name[0] != "_"} == {"id", "a"}
        assert [(row["_op"], row["a"], row["_absent"]) for row in rows] == [("r", 7, None)] + [("I", 7, None)] * len(ours)
        altered(server, database, "MODIFY a SMALLINT")
        server.query(f"INSERT INTO {database}.orders (id, k, a) VALUES (99, 0, 7)")
        with pytest.raises(UnloggedChangeError, match="a was int.*, is smallint"):
            engine.until(len(ours) + 2)


KEYS = {
    "unique": "(a VARCHAR(9) NOT NULL, b INT NOT NULL, c INT, UNIQUE KEY n (c), UNIQUE KEY u (a, b), UNIQUE KEY w (b))",
    "prefix": "(a VARCHAR(9) NOT NULL, b INT, PRIMARY KEY (a(3)))",
    "unique prefix": "(a VARCHAR(9) NOT NULL, b INT NOT NULL, UNIQUE KEY u (a(3)), UNIQUE KEY w (b))",
    "late": "(a VARCHAR(9) NOT NULL, b INT NOT NULL, UNIQUE KEY u (a), PRIMARY KEY (b, a))",
    "generated": "(a VARCHAR(9), b INT, g INT AS (b + 1) STORED NOT NULL, UNIQUE KEY u (g))",
    "none": "(a VARCHAR(9), b INT, KEY (b))",
    "functions": "(a VARCHAR(9) NOT NULL, b INT NOT NULL, UNIQUE KEY f ((b + 1)), UNIQUE KEY u (a))",
    "versions": "(a VARCHAR(9) NOT NULL, b INT PRIMARY KEY) WITH SYSTEM VERSIONING",
    "unique versions": "(a VARCHAR(9) NOT NULL, b INT NOT NULL, UNIQUE KEY u (b)) WITH SYSTEM VERSIONING",
    "hash": "(a TEXT NOT NULL, b INT NOT NULL, UNIQUE KEY h (a), UNIQUE KEY u (b))",
}


@pytest.mark.needs("full_metadata")
@pytest.mark.parametrize("kind", KEYS)
def test_the_key_that_a_snapshot_read_is_that_of_the_log(
    server: ThrowawayServer, database: str, tmp_path: Path, kind: str
) -> None:
    """Nothing is taken for an ALTER, whatever stands in for a primary key."""
    try:
        server.query(f"CREATE TABLE {database}.orders {KEYS[kind]}")
    except pymysql.MySQLError:
        pytest.skip("not with this server")
    server.query(f"INSERT INTO {database}.orders (a, b) VALUES ('a', 1)")
    with Engine({**options(server, database, tmp_path), "snapshot": "initial"}) as engine:
        engine.start()
        engine.until(1)
        server.query(f"INSERT INTO {database}.orders (a, b) VALUES ('b', 2)")
        engine.until(2)


def altered(server: ThrowawayServer, database: str, alter: str) -> None:
    for one in alter.split("; ALTER TABLE orders "):
        server.query(f"ALTER TABLE {database}.orders {one}")
