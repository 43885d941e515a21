"""Column definitions and keys, text by text: what is read of them, what the server makes of it, and what is no guess."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal.parse.schema.column_types import converted_type, resolve
from canal.parse.schema.definition import create_options, read_body
from canal.parse.schema.parts import MAXDB, ORACLE, Body, Dialect, Key, NotUnderstoodError
from canal.parse.schema.scanner import Scanner
from canal.schema import ColumnSchema

MYSQL, OLD, MARIADB = Dialect("mysql", (8, 4, 0)), Dialect("mysql", (5, 7, 44)), Dialect("mariadb", (10, 11, 2))


def body(text: str, dialect: Dialect = MYSQL) -> Body:
    """Of the text between the brackets."""
    scan = Scanner(f"{text})", dialect.sql_mode, dialect.flavor)
    found = read_body(scan, dialect)
    assert scan.at_end()
    return found


def column(text: str, dialect: Dialect = MYSQL, default: str | None = "utf8mb4") -> ColumnSchema:
    (found,) = body(f"c {text}", dialect).columns
    return resolve(found, dialect, default)


@pytest.mark.parametrize(
    ("text", "dialect", "shown"),
    [
        ("INT UNSIGNED", MYSQL, "int unsigned"),
        ("INT UNSIGNED", OLD, "int(10) unsigned"),
        ("BOOL", MYSQL, "tinyint(1)"),
        ("BIGINT", OLD, "bigint(20)"),
        ("DECIMAL(5)", MYSQL, "decimal(5,0)"),
        ("NUMERIC", MYSQL, "decimal(10,0)"),
        ("DOUBLE PRECISION", MYSQL, "double"),
        ("REAL", MYSQL, "double"),
        ("REAL", Dialect(sql_mode=1), "float"),
        ("DATETIME(3)", MYSQL, "datetime(3)"),
        ("BIT", MYSQL, "bit(1)"),
        ("YEAR", OLD, "year(4)"),
        ("YEAR", MYSQL, "year"),
        ("JSON", MYSQL, "json"),
        ("JSON", MARIADB, "longtext"),
        ("UUID", MARIADB, "uuid"),
        ("CLOB", MARIADB, "longtext"),
        ("VARCHAR(7)", MYSQL, "varchar(7)"),
        ("NCHAR VARYING(7)", MYSQL, "varchar(7)"),
        ("LONG VARBINARY", MYSQL, "mediumblob"),
        ("TEXT(300)", MYSQL, "text"),
        ("TEXT(10)", MYSQL, "tinytext"),
        ("ENUM('a','it''s')", MYSQL, "enum('a','it''s')"),
        ("SERIAL", MYSQL, "bigint unsigned"),
        ("GEOMCOLLECTION", MYSQL, "geomcollection"),
        ("VECTOR", MYSQL, "vector(2048)"),
    ],
)
def test_a_type_is_shown_as_the_server_shows_it(text: str, dialect: Dialect, shown: str) -> None:
    assert column(text, dialect).column_type == shown


@pytest.mark.parametrize(
    ("text", "dialect", "charset"),
    [
        ("VARCHAR(7)", MYSQL, "utf8mb4"),
        ("VARCHAR(7) CHARACTER SET latin1", MYSQL, "latin1"),
        ("INT", MYSQL, None),
        ("VARCHAR(7) COLLATE latin1_bin", MYSQL, "latin1"),
        ("NCHAR(3)", MYSQL, "utf8mb3"),
        ("VARBINARY(7)", MYSQL, None),
        ("TEXT COLLATE uca1400_ai_ci", MARIADB, "utf8mb4"),
        ("TEXT CHARACTER SET binary", MYSQL, None),
    ],
)
def test_the_charset_is_that_of_the_column_its_collation_or_the_default(text: str, dialect: Dialect, charset: str | None) -> None:
    assert column(text, dialect).charset == charset


@pytest.mark.parametrize(
    ("text", "dialect", "nullable"),
    [
        ("INT", MYSQL, True),
        ("INT NOT NULL", MYSQL, False),
        ("INT NULL DEFAULT 5", MYSQL, True),
        ("INT PRIMARY KEY", MYSQL, False),
        ("TIMESTAMP", MYSQL, True),
        ("TIMESTAMP", Dialect(explicit_defaults=False), False),
        ("TIMESTAMP NULL", Dialect(explicit_defaults=False), True),
        ("TIMESTAMP", Dialect(explicit_defaults=None), None),
    ],
)
def test_a_column_takes_null_as_its_text_and_the_server_say(text: str, dialect: Dialect, nullable: bool | None) -> None:
    assert column(text, dialect).nullable is nullable


def test_attributes_come_in_any_order_and_each_is_taken() -> None:
    found = body("a INT COMMENT 'x, y)' NOT NULL DEFAULT (1 + (2)) INVISIBLE, b INT GENERATED ALWAYS AS (a + 1) VIRTUAL, c INT")

    assert [one.name for one in found.columns] == ["a", "b", "c"]
    first, second, third = (resolve(one, MYSQL, None) for one in found.columns)
    assert (first.nullable, first.visible, first.virtual) == (False, False, False)
    assert (second.visible, second.virtual) == (True, True)
    assert [one.fills(MYSQL) for one in found.columns] == [True, True, False]
    assert (third.visible, third.virtual) == (True, False)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("id INT PRIMARY KEY", [Key("PRIMARY", True, (("id", None),))]),
        ("id INT UNIQUE", [Key("", True, (("id", None),))]),
        ("id INT, n TEXT, KEY k (n(5), id DESC)", [Key("k", False, (("n", 5), ("id", None)))]),
        ("id INT, CONSTRAINT x UNIQUE KEY u (id)", [Key("u", True, (("id", None),))]),
        ("id INT, CONSTRAINT x UNIQUE (id)", [Key("x", True, (("id", None),))]),
        ("id INT, CHECK (id > 0), FOREIGN KEY f (id) REFERENCES o (id) ON DELETE CASCADE", None),
    ],
)
def test_keys_are_those_of_columns_and_clauses(text: str, keys: list[Key] | None) -> None:
    found = body(text)
    assert [one.name for one in found.columns] == ["id", "n"][: len(found.columns)]
    if keys is not None:
        assert found.keys == keys
    else:  # the key that a foreign key brings stands for it, and a check has none
        assert all(not key.unique for key in found.keys)


@pytest.mark.parametrize(
    "default",
    [
        "_utf8mb4 X'61'",
        "_latin1 0x61",
        "_latin1 b'01100001'",
        "@@sql_mode",
        "@@GLOBAL.max_connections",
        "@x",
        "CASE WHEN a THEN CASE a WHEN 1 THEN 2 END ELSE (3) END",
    ],
)
def test_a_default_is_passed_over_whole(default: str) -> None:
    found = body(f"a INT, b INT DEFAULT {default} NOT NULL, c INT", MARIADB)
    assert [(one.name, one.nullable) for one in found.columns] == [("a", None), ("b", False), ("c", None)]


@pytest.mark.parametrize(
    ("text", "mode", "shown"),
    [
        ("TIMESTAMP(3)", MAXDB, "datetime(3)"),
        ("mariadb_schema.TIMESTAMP", MAXDB, "timestamp"),
        ("DATE", ORACLE, "datetime"),
        ("mariadb_schema.DATE", ORACLE, "date"),
        ("oracle_schema.DATE", 0, "datetime"),
        ("maxdb_schema.TIMESTAMP", 0, "datetime"),
        ("mariadb_schema.BLOB", ORACLE, "longblob"),
    ],
)
def test_sql_mode_and_the_schema_before_a_type_decide_what_it_is(text: str, mode: int, shown: str) -> None:
    assert column(text, attrs.evolve(MARIADB, sql_mode=mode)).column_type == shown


def test_options_behind_the_brackets() -> None:
    found = create_options(Scanner("ENGINE = MyISAM DEFAULT CHARSET=latin1 COMMENT='CHARSET=utf8' AUTO_INCREMENT=7"))
    assert (found.engine, found.charset.charset if found.charset else None, found.queried) == ("myisam", "latin1", False)
    assert create_options(Scanner("AS SELECT 1 x")).queried


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("c WHATEVER", MYSQL),
        ("c UUID", MYSQL),
        ("c INT WHATEVER", MYSQL),
        ("c VARCHAR(7", MYSQL),
        ("c INT DEFAULT", MYSQL),
        ("", MYSQL),
        ("c VARCHAR(7) CHARACTER SET klingon", MYSQL),
        ("c INT,", MYSQL),
        ("KEY k", MYSQL),
        ("c ENUM(", MYSQL),
        ("c VARCHAR(99999999999999999999999)", MYSQL),
    ],
)
def test_what_is_not_understood_is_no_guess(text: str, dialect: Dialect) -> None:
    with pytest.raises(NotUnderstoodError):
        body(text, dialect)


def test_a_text_column_without_a_known_charset_is_no_guess() -> None:
    with pytest.raises(NotUnderstoodError, match="default charset is unknown"):
        column("TEXT", OLD, default=None)


def test_a_conversion_makes_room_for_the_longer_characters() -> None:
    assert converted_type("text", "latin1", "utf8mb4", MYSQL) == "mediumtext"
    assert converted_type("varchar(9)", "latin1", "utf8mb4", MYSQL) == "varchar(9)"
    assert converted_type("text", "utf8mb4", "latin1", MYSQL) == "text"


_WORDS = "c INT VARCHAR ( ) , 5 'x' `q` NOT NULL DEFAULT PRIMARY UNIQUE KEY CHARACTER SET utf8mb4 COLLATE GENERATED AS ENUM CHECK"


@given(st.lists(st.sampled_from(_WORDS.split()), max_size=14), st.sampled_from([MYSQL, OLD, MARIADB]))
def test_any_text_is_read_to_its_end_or_not_understood(words: list[str], dialect: Dialect) -> None:
    try:
        found = body(" ".join(words), dialect)
    except (NotUnderstoodError, AssertionError):
        return
    assert found.columns or found.keys or "CHECK" in words
