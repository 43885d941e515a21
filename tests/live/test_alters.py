"""Random ALTERs of types on real servers, of tables whose next row never comes: the server tells which have changed values."""

from __future__ import annotations

import random
from typing import Any

import pymysql
import pytest

import canal
from canal.changes import Reader
from canal.testing.servers import ThrowawayServer
from tests.support.live import end_of_log, source

#: Types, each with texts of values that it takes.
TYPES = {
    "TINYINT": ["-128", "127"],
    "SMALLINT UNSIGNED": ["65535", "0"],
    "INT": ["-2147483648", "70000"],
    "BIGINT": ["9223372036854775807", "1"],
    "DECIMAL(6,2)": ["1234.56", "-0.5"],
    "DECIMAL(12,4)": ["12345678.1234", "1"],
    "DOUBLE": ["1.5", "1e300"],
    "FLOAT": ["0.25"],
    "VARCHAR(40)": ["'a word'", "'ÄÖÜ €'", "'12'"],
    "VARCHAR(3)": ["'abc'", "'7'"],
    "CHAR(6)": ["'six'", "'8'"],
    "TEXT": ["REPEAT('x', 300)", "'9'"],
    "TINYTEXT": ["REPEAT('y', 200)"],
    "VARCHAR(20) CHARACTER SET latin1": ["'ÄÖ'"],
    "VARBINARY(20)": ["X'00FF61'", "'b'"],
    "BLOB": ["X'FFFE'"],
    "ENUM('a','b','c')": ["'c'", "'a'"],
    "ENUM('c','a')": ["'c'"],
    "SET('x','y','z')": ["'x,z'", "'y'"],
    "SET('z','x')": ["'x'"],
    "DATE": ["'2024-02-29'"],
    "DATETIME(6)": ["'2024-02-29 10:11:12.345678'"],
    "DATETIME": ["'2024-02-29 23:59:59'"],
    "TIMESTAMP": ["'2024-02-29 10:11:12'"],
    "TIME(3)": ["'10:11:12.5'"],
    "TIME": ["'-10:11:12'"],
    "YEAR": ["2024"],
    "BIT(12)": ["b'101010101010'"],
    "BIT(10)": ["b'101'"],
    "JSON": ["""'{"a": 1}'"""],
}
OTHERS = [
    "ADD c INT",
    "ADD c INT NULL DEFAULT NULL AFTER id",
    "ADD c INT DEFAULT 5",
    "ADD (c INT, d VARCHAR(9) NOT NULL)",
    "ADD c TIMESTAMP",
    "ADD c INT AS (id + 1)",
    "ADD c TEXT FIRST",
    "ADD c ENUM('x','y') NOT NULL",
    "DROP b",
    "ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP",
    "ADD INDEX (b)",
    "ENGINE=InnoDB",
    "ALTER a SET DEFAULT NULL",
    "CONVERT TO CHARACTER SET latin1",
]
TABLES = 150


def alter(rng: random.Random) -> str:
    kind = rng.choice(list(TYPES)) + rng.choice(["", "", " NOT NULL"])
    return rng.choice([f"MODIFY a {kind}", f"CHANGE COLUMN a a {kind}", f"ADD c INT, MODIFY COLUMN a {kind}", rng.choice(OTHERS)])


@pytest.mark.parametrize("sees_rows", [True, False])
def test_an_alter_that_changes_values_is_never_silent(
    server: ThrowawayServer, database: str, sees_rows: bool, record_property: Any
) -> None:
    seed = random.randrange(1 << 32)
    rng, start, changed = random.Random(seed), end_of_log(server), {}
    with server.connect(database=database, autocommit=True, charset="utf8mb4") as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for number in range(TABLES):
            kind = rng.choice(list(TYPES))
            cursor.execute(
                f"CREATE TABLE t{number} (id INT PRIMARY KEY, a {kind}, b INT) CHARACTER SET {rng.choice(('utf8mb4', 'latin1'))}"
            )
            for id, value in enumerate(rng.choices([*TYPES[kind], "NULL"], k=2)):
                cursor.execute(f"INSERT INTO t{number} VALUES ({id}, {value}, 1)")
        between = end_of_log(server)
        for number in range(TABLES):
            cursor.execute(f"SELECT id, a, b FROM t{number} ORDER BY id")
            before, sql = cursor.fetchall(), f"ALTER TABLE t{number} {alter(rng)}"
            try:
                cursor.execute(sql)
            except pymysql.Error:  # the server does not let it be
                continue
            cursor.execute(f"SELECT * FROM t{number} ORDER BY id")
            after = [dict(zip((column[0] for column in cursor.description), row)) for row in cursor.fetchall()]
            olds = [dict(zip(("id", "a", "b"), row)) for row in before]
            is_changed = any(value != old.get(name) for old, new in zip(olds, after) for name, value in new.items())
            changed[f"t{number}"] = (sql, is_changed, before, after)

    config = canal.InstanceConfig(
        destination="alters", source=source(server), filter=rf"{database}\.t\d+", start=start if sees_rows else between
    )
    readers, refused, altered = {name: Reader() for name in changed}, {}, set()
    with canal.Instance(config) as instance:
        instance.subscribe()
        while not changed.keys() <= altered:
            message = instance.get(1000, timeout=60)
            assert message, f"seed {seed}: {changed.keys() - altered} did not come"
            for entry in message.entries:
                name = entry.header.table
                if name in readers and name not in refused:
                    try:
                        list(readers[name].changes(entry))
                    except canal.UnloggedChangeError as error:
                        refused[name] = error.message
                if (entry.sql or "").startswith("ALTER"):
                    altered.add(name)

    silent = [(name, *told) for name, told in changed.items() if told[1] and name not in refused]
    assert not silent, f"seed {seed}"
    needless = [told[0] for name, told in changed.items() if not told[1] and name in refused]
    record_property("refused", f"{len(refused)} of {len(changed)}, {len(needless)} of them had changed nothing in these rows")
    assert len(refused) < len(changed), f"seed {seed}: what changes no value passes"
