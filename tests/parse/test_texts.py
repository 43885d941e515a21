"""Tables as users write them: read as the statements of a log are, and refused where that is not possible."""

from __future__ import annotations

import sys

import pytest

import canal
from canal.binlog.server_facts import Release
from canal.parse.schema.catalog import Catalog
from canal.parse.schema.scanner import MAX_TOKENS, Scanner
from canal.parse.schema.texts import tables_from_mapping, tables_from_sql

DUMP = """
-- MySQL dump 10.13  Distrib 8.4.0
/*!40101 SET NAMES utf8mb4 */;
CREATE DATABASE /*!32312 IF NOT EXISTS*/ `shop` /*!40100 DEFAULT CHARACTER SET latin1 */;
USE `shop`;
DROP TABLE IF EXISTS `orders`;
CREATE TABLE `orders` (
  `id` int unsigned NOT NULL AUTO_INCREMENT,
  `note` varchar(20) COLLATE latin1_bin DEFAULT 'it''s; (so)' COMMENT 'a, b',
  `at` timestamp NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  `twice` int GENERATED ALWAYS AS (`id` * 2) VIRTUAL,
  `hidden` int /*!80023 INVISIBLE */,
  PRIMARY KEY (`id`),
  UNIQUE KEY `by_note` (`note`(10)),
  CONSTRAINT `c` FOREIGN KEY (`hidden`) REFERENCES `other` (`id`) ON DELETE CASCADE
) ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=latin1
/*!50100 PARTITION BY HASH (id) PARTITIONS 4 */;
/*!50001 CREATE VIEW `v` AS SELECT 1 AS `a`*/;
INSERT INTO `orders` VALUES (1,'x',NULL,2,3);
CREATE TABLE other.t (a BIGINT);
"""


@pytest.mark.parametrize("release", [Release("mysql", (8, 4)), Release("mysql", (5, 7, 44)), Release("mariadb", (10, 11, 19))])
def test_a_text_is_read_as_the_statements_of_a_log_are(release: Release) -> None:
    found = tables_from_sql(DUMP, release=release)
    statement = DUMP[DUMP.index("CREATE TABLE `orders`") : DUMP.index("/*!50001")]
    catalog = Catalog()
    catalog.apply(statement, "shop", flavor=release.flavor, version=release.version)

    assert list(found) == [("shop", "orders"), ("other", "t")]
    assert found["shop", "orders"] == catalog.get("shop", "orders")
    assert found["other", "t"].charset == "utf8mb4"


def test_columns_alone_are_those_of_a_statement() -> None:
    columns = "id INT PRIMARY KEY, a VARCHAR(9), UNIQUE (a)"
    (mapped,) = tables_from_mapping({"s.t": columns}).values()
    (whole,) = tables_from_mapping({"s.t": f"CREATE TABLE other.u ({columns})"}).values()

    assert (mapped.schema, mapped.keys, mapped.charset) == (whole.schema, whole.keys, whole.charset)
    assert mapped.charset == "utf8mb4"
    assert [key.columns for key in mapped.keys or ()] == [(("id", None),), (("a", None),)]


def test_types_of_either_flavor_are_read_where_the_release_is_not_known() -> None:
    for text in ("a VECTOR(3), b JSON", "a UUID, b INET6"):
        assert len(tables_from_mapping({"s.t": text})["s", "t"].schema.columns) == 2
    with pytest.raises(canal.ConfigError, match="unknown type 'uuid'"):
        tables_from_mapping({"s.t": "a UUID"}, Release("mysql", (8, 4)))


def test_a_long_key_of_mariadb_has_its_hidden_column() -> None:
    (found,) = tables_from_mapping({"s.t": "a INT, b TEXT, UNIQUE (b)"}, Release("mariadb", (10, 11, 19))).values()

    assert [column.name for column in found.schema.columns] == ["a", "b", "DB_ROW_HASH_1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE t (a INT)", "table 't' has no schema name"),
        ("CREATE TABLE s.t LIKE s.u", "s.t lists no columns"),
        ("CREATE TABLE s.t (a INT) SELECT 1 AS b", "columns from a query"),
        ("CREATE TABLE s.t (a)", "a type is missing"),
        ("CREATE TABLE s.t (a INT", "instead of , or \\)"),
        ("CREATE TABLE s.t (a INT, PRIMARY KEY (b))", "a primary key of missing columns: b"),
        ("CREATE TABLE s.t (a VARCAHR(9))", "unknown type 'varcahr'"),
        ("CREATE TABLE s.t (a INT); INSERT INTO s.t VALUES ('x", "cannot parse the schema text"),
        ("SELECT 1", "no CREATE TABLE with columns"),
        ("", "no CREATE TABLE with columns"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, message: str) -> None:
    with pytest.raises(canal.ConfigError, match=message):
        tables_from_sql(text)


@pytest.mark.parametrize("name", ["t", ".t", "s."])
def test_a_name_without_its_schema_is_refused(name: str) -> None:
    with pytest.raises(canal.ConfigError, match="is not a table name"):
        tables_from_mapping({name: "a INT"})


def test_a_text_of_any_length_is_read_to_its_end() -> None:
    """A statement of the log is not, beyond MAX_TOKENS."""
    text = "SELECT " + "," * MAX_TOKENS + ";CREATE TABLE s.t (a INT)"

    assert list(tables_from_sql(text)) == [("s", "t")]
    assert Scanner("a,b", most=2).peek(2)[0] == "end"
    assert Scanner("a,b", most=sys.maxsize).peek(2)[1] == "b"
