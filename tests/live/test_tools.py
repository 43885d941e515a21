"""Logs that no public file has, made by the running servers: what we decode equals what the servers' own tools print.

Covers T10, T37, T39, T52 to T65, T67, T68 and T72 in files, each in all row images, compressed and not, with full and
minimal metadata.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from canal.gtid import parse_gtid_set
from canal.testing.servers import ThrowawayServer
from tests.support.log_tools import compare, decode

pytestmark = pytest.mark.needs("plain_files")

#: A column each: its type, and literals of which a row takes one; NULL comes as the last of them.
COLUMNS = [
    ("TINYINT", "-128", "127"),
    ("TINYINT UNSIGNED", "0", "255"),
    ("SMALLINT", "-32768"),
    ("SMALLINT UNSIGNED", "65535"),
    ("MEDIUMINT", "-8388608", "8388607"),
    ("MEDIUMINT UNSIGNED", "16777215"),
    ("INT", "-2147483648"),
    ("INT UNSIGNED", "4294967295"),
    ("BIGINT", "-9223372036854775808"),
    ("BIGINT UNSIGNED", "18446744073709551615"),
    ("DECIMAL(65,30)", f"-{'9' * 35}.{'9' * 30}", "-0.000000000000000000000000000001", "0"),
    ("DECIMAL(5,0) UNSIGNED", "99999", "0"),
    ("DECIMAL(1,1)", "-0.9"),
    ("DECIMAL(20,10)", "1234567890.0987654321"),
    ("FLOAT", "0.1", "-3.40282e38", "16777217"),
    ("DOUBLE", "0.1", "-1e-300", "1.7976931348623157e308"),
    ("BIT(1)", "b'1'", "b'0'"),
    ("BIT(13)", "b'1000000000001'"),
    ("BIT(64)", "18446744073709551615"),
    ("YEAR", "0", "1901", "2155"),
    ("DATE", "'0000-00-00'", "'2020-02-00'", "'1000-01-01'", "'9999-12-31'"),
    ("TIME", "'-838:59:59'", "'00:00:00'"),
    ("TIME(1)", "'-00:00:00.1'"),
    ("TIME(3)", "'-12:59:59.001'"),
    ("TIME(6)", "'-00:00:00.000001'", "'-838:59:58.999999'", "'838:59:59'"),
    ("DATETIME", "'0000-00-00 00:00:00'", "'1000-00-01 00:00:00'"),
    ("DATETIME(2)", "'2020-01-01 23:59:59.99'"),
    ("DATETIME(6)", "'9999-12-31 23:59:59.999999'", "'1000-01-01 00:00:00.000001'"),
    ("TIMESTAMP NULL", "0", "'1970-01-01 00:00:01'"),
    ("TIMESTAMP(5) NULL", "'2038-01-19 03:14:07.99999'", "0"),
    ("ENUM('a','é','b,c')", "'é'", "''", "'b,c'"),
    ("SET('x','y','1','2','3','4','5','6','7')", "'x,7'", "''"),
    ("CHAR(10) CHARACTER SET utf8mb4", "'é漢😀'", "''"),
    ("CHAR(255) CHARACTER SET utf8mb4", f"'{'漢' * 255}'"),
    ("VARCHAR(300) CHARACTER SET latin1", "'€é'", "''"),
    ("VARCHAR(20) CHARACTER SET sjis", "'ソ漢'"),
    ("VARCHAR(20) CHARACTER SET utf16", "'a😀'"),
    ("VARCHAR(20) CHARACTER SET gbk", "'漢'"),
    ("BINARY(10)", r"'a\0b'", "''"),
    ("VARBINARY(300)", f"X'{bytes(range(256)).hex()}'", "''", r"'\\x0a\''"),
    ("TINYTEXT", "'a\nb'"),
    ("TEXT CHARACTER SET ucs2", "'é'"),
    ("MEDIUMBLOB", "REPEAT(X'00', 70000)"),
    ("LONGTEXT", "''"),
]
OWN_COLUMNS = {
    "mariadb": [
        ("UUID", "'123e4567-e89b-12d3-a456-426655440000'"),
        ("INET6", "'::ffff:1.2.3.4'"),
        ("INET4", "'1.2.3.4'"),
        ("GEOMETRY", "ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('GEOMETRYCOLLECTION EMPTY')"),
    ],
    "mysql": [("JSON", """'{"a": [1, -2.5, null, "é"], "b": {}}'""", "'[]'", "CAST(CAST(1.50 AS DECIMAL(9,2)) AS JSON)")],
}
COMPRESSION = {"mariadb": "GLOBAL log_bin_compress", "mysql": "SESSION binlog_transaction_compression"}


def logs(server: ThrowawayServer) -> Iterator[Path]:
    server.query("FLUSH BINARY LOGS")
    for path in server.binlog_paths()[:-1]:
        yield path


def assert_all_equal(server: ThrowawayServer) -> int:
    """Compare every file but the one just begun; returns the number of rows."""
    rows = 0
    for path in logs(server):
        outcome = compare(path, server.kind)
        assert outcome.verdict == "equal", f"{path.name}: {outcome}"
        rows += outcome.rows
    return rows


def run(cursor: Any, *statements: str) -> None:
    for sql in statements:
        cursor.execute(sql)


def write_all_types(cursor: Any, table: str, columns: list[tuple[str, ...]]) -> int:
    """A row for each of the literals of the longest column, each column changed alone, all deleted; the row changes."""
    run(cursor, f"CREATE TABLE {table} (id INT PRIMARY KEY, {', '.join(f'c{n} {c[0]}' for n, c in enumerate(columns))})")
    count = max(map(len, columns))
    for row in range(count):
        values = [(*literals, "NULL")[row % (len(literals) + 1)] for _, *literals in columns]
        run(cursor, f"INSERT INTO {table} VALUES ({row}, {', '.join(values)})")
    run(cursor, *(f"UPDATE {table} SET c{n} = {c[1]} WHERE id > {count - 3}" for n, c in enumerate(columns)))
    run(cursor, f"UPDATE {table} SET id = -1 - id", f"DELETE FROM {table}")
    return count


@pytest.mark.lines("mysql", "mariadb>=10.10")  # all of its types
@pytest.mark.needs("programs", "compression", "full_metadata")
def test_all_types_in_all_images(own_server: ThrowawayServer) -> None:
    columns = COLUMNS + OWN_COLUMNS[own_server.kind]
    combinations = itertools.product(("FULL", "MINIMAL", "NOBLOB"), ("OFF", "ON"))
    with own_server.connect() as connection, connection.cursor() as cursor:
        run(cursor, "SET sql_mode=''", "SET time_zone='+00:00'", "CREATE DATABASE d", "USE d")
        if own_server.kind == "mariadb":
            run(cursor, "SET GLOBAL log_bin_compress_min_len=10")
        for number, (image, compressed) in enumerate(combinations):
            run(
                cursor,
                f"SET SESSION binlog_row_image={image}",
                f"SET {COMPRESSION[own_server.kind]}={compressed}",
                f"SET GLOBAL binlog_row_metadata={('FULL', 'MINIMAL')[number % 4 // 2]}",
                f"SET GLOBAL binlog_checksum={('CRC32', 'NONE')[number % 3 // 2]}",
            )
            write_all_types(cursor, f"t{number}", columns)

    rows = assert_all_equal(own_server)

    assert rows > 6 * len(columns)


def test_geometry(mysql_server: ThrowawayServer) -> None:
    """MySQL's tool cannot print GEOMETRY: it gives up at the column, so each event has one row and the column is last."""
    with type(mysql_server)() as server, server.connect() as connection, connection.cursor() as cursor:
        run(cursor, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, g GEOMETRY)")
        for number, text in enumerate(("POINT(1 2)", "LINESTRING(1 2,3 4)", "GEOMETRYCOLLECTION EMPTY")):
            run(cursor, f"INSERT INTO d.t VALUES ({number}, ST_GeomFromText('{text}', 4326))")
        assert assert_all_equal(server) == 3


@pytest.mark.needs("programs", "compression")
def test_more_than_sixteen_megabytes(own_server: ThrowawayServer) -> None:
    """An event, and a compressed transaction, that no single packet holds."""
    own_server.query("SET GLOBAL max_allowed_packet = 64 << 20")
    with own_server.connect(max_allowed_packet=64 << 20) as connection, connection.cursor() as cursor:
        run(cursor, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, b LONGBLOB)")
        run(cursor, "INSERT INTO d.t VALUES (1, REPEAT('x', 17 << 20))")
        run(cursor, f"SET {COMPRESSION[own_server.kind]}=ON", "INSERT INTO d.t VALUES (2, REPEAT('y', 17 << 20))", "BEGIN")
        for number in range(3, 6):
            cursor.execute("INSERT INTO d.t VALUES (%s, %s)", (number, random.Random(number).randbytes(6 << 20)))
        connection.commit()

    assert assert_all_equal(own_server) == 5


@pytest.mark.needs("programs", "xa_in_log")
def test_xa(own_server: ThrowawayServer) -> None:
    """T40: what the tool prints of a rolled back or a forgotten one is not delivered."""
    own_server.query("CREATE DATABASE d")
    own_server.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
    for number, end in enumerate(("XA COMMIT 'x{}' ONE PHASE", "XA COMMIT 'x{}'", "XA ROLLBACK 'x{}'", "")):
        with own_server.connect() as connection, connection.cursor() as cursor:
            run(cursor, f"XA START 'x{number}'", f"INSERT INTO d.t VALUES ({number})", f"XA END 'x{number}'")
            if "PHASE" not in end:
                run(cursor, f"XA PREPARE 'x{number}'")
            if end:
                run(cursor, end.format(number))

    assert assert_all_equal(own_server) == 2


def test_tagged_gtids(mysql_server: ThrowawayServer) -> None:
    """T30: several tags in one log, compressed and not; the GTIDs done at its end are the server's."""
    with type(mysql_server)() as server, server.connect() as connection, connection.cursor() as cursor:
        run(cursor, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        for number, tag in enumerate((":a", ":zebra_7", "", ":a", ":a", ":_", "")):
            run(
                cursor,
                f"SET gtid_next='AUTOMATIC{tag}'",
                f"SET binlog_transaction_compression={number % 2}",
                f"INSERT INTO d.t VALUES ({number})",
            )
        (executed,) = server.query("SELECT @@global.gtid_executed")[0]
        assert assert_all_equal(server) == 7
        found = decode(server.binlog_dir / "binlog.000001").gtids

    assert parse_gtid_set(found, "mysql") == parse_gtid_set(executed, "mysql")


def test_an_alter_in_two_phases_is_one_change(mariadb_server: ThrowawayServer) -> None:
    """MariaDB logs the statement before it begins and when it has ended; a failed one never was."""
    with type(mariadb_server)() as server, server.connect() as connection, connection.cursor() as cursor:
        run(
            cursor,
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY)",
            "SET binlog_alter_two_phase=ON",
            "INSERT INTO d.t VALUES (1)",
            "ALTER TABLE d.t ADD name VARCHAR(10)",
            "INSERT INTO d.t VALUES (2, 'x')",
        )
        with pytest.raises(pymysql.err.MySQLError):
            run(cursor, "ALTER TABLE d.t ADD FOREIGN KEY (id) REFERENCES d.nothing (id)")
        assert assert_all_equal(server) == 2
        changes = [change.kind for path in server.binlog_paths() for change in decode(path).changes]

    assert changes == ["STATEMENT", "STATEMENT", "INSERT", "STATEMENT", "INSERT"]
