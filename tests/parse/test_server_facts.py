"""The table of what each release of a server brought, and that nothing else goes by the versions of servers."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import canal
from canal.binlog.server_facts import SINCE, Release, read_server
from canal.parse.source.mysql import MySQLSource

PACKAGE = Path(canal.__file__).parent
MODULES = [path for path in PACKAGE.rglob("*.py") if "testing" not in path.parts]


@pytest.mark.parametrize(
    ("version", "comment", "flavor", "numbers"),
    [
        ("5.5.9-log", "", "mysql", (5, 5, 9)),
        ("10.11.19-MariaDB-1", "Debian 12", "mariadb", (10, 11, 19)),
        ("10.6.16", "MariaDB Server", "mariadb", (10, 6, 16)),
        ("8.0.mysql_aurora.3.04.0", "", "mysql", (8, 0, sys.maxsize)),
        ("", "", "mysql", (sys.maxsize,)),
        ("unknown", "", "mysql", (sys.maxsize,)),
    ],
)
def test_release_parse_reads_server_version(version: str, comment: str, flavor: str, numbers: tuple[int, ...]) -> None:
    """What it does not say is new."""
    assert Release.parse(version, comment) == Release(flavor, numbers)


def test_has_feature_from_first_release_on() -> None:
    for feature, since in SINCE.items():
        for flavor, first in since.items():
            assert Release(flavor, first).has(feature)
            assert Release(flavor, (99,)).has(feature)
            assert not Release(flavor, (*first[:-1], first[-1] - 1, 99)).has(feature)
        for flavor in {"mysql", "mariadb"} - since.keys():
            assert not Release(flavor, (99,)).has(feature)


def test_every_feature_is_used() -> None:
    text = "".join(path.read_text() for path in MODULES)

    assert [feature for feature in SINCE if f'has("{feature}")' not in text] == []


@pytest.mark.nightly
def test_no_other_module_compares_versions() -> None:
    def is_version(node: ast.expr) -> bool:
        return isinstance(node, (ast.Attribute, ast.Name)) and ast.unparse(node).rpartition(".")[2].endswith("version")

    def has_numbers(node: ast.expr) -> bool:
        return isinstance(node, ast.Tuple) and all(isinstance(one, ast.Constant) for one in node.elts)

    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        and any(map(is_version, (node.left, *node.comparators)))
        and any(map(has_numbers, (node.left, *node.comparators)))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("variables", "words"),
    [({"log_bin": "OFF"}, "log_bin"), ({}, "log_bin"), ({"log_bin": "ON", "binlog_format": "MIXED"}, "binlog_format = 'ROW'")],
)
def test_server_with_unusable_settings_is_refused(variables: dict[str, str], words: str) -> None:
    with pytest.raises(canal.errors.ServerError, match=re.escape(words)):
        read_server(lambda sql: list(variables.items()), MySQLSource())


def test_server_with_log_in_innodb_is_refused() -> None:
    """MariaDB 12.3"""
    said = {"log_bin": "ON", "binlog_format": "ROW", "binlog_storage_engine": "InnoDB", "version": "12.3.2-MariaDB-log"}
    with pytest.raises(canal.errors.UnsupportedError, match=r"in InnoDB \(\.ibb files\)"):
        read_server(lambda sql: list(said.items()), MySQLSource())

    said["binlog_storage_engine"] = ""
    assert read_server(lambda sql: list(said.items()), MySQLSource()).version == (12, 3, 2)


def test_old_server_reports_few_settings() -> None:
    """MySQL 5.1: no checksums, no GTIDs, no UUID, no choice of row images."""
    said = {"log_bin": "ON", "binlog_format": "ROW", "version": "5.1.73", "server_id": "7", "hostname": "h", "port": "3306"}
    server = read_server(lambda sql: list(said.items()), MySQLSource())

    assert (server.flavor, server.version, server.identity) == ("mysql", (5, 1, 73), "7@h:3306")
    assert (server.has_gtids, server.has_checksums, server.full_metadata, server.full_images) == (False, False, False, True)
    assert (server.time_query, server.status_query) == ("SELECT UTC_TIMESTAMP()", "SHOW MASTER STATUS")
