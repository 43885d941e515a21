"""``InstanceConfig(json="objects")``: documents of real servers as Python objects (T69, T71)."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest

import canal
from canal.testing.servers import MariaDBServer, ThrowawayServer
from tests.support.live import end_of_log, source


def values(server: ThrowawayServer, start: canal.Position, count: int, form: str = "objects") -> list[canal.Row]:
    """What was inserted after ``start``."""
    config = canal.InstanceConfig(destination="objects", source=source(server), start=start, json=form)
    rows: list[canal.Row] = []
    with canal.Instance(config) as instance:
        instance.subscribe()
        while len(rows) < count:
            message = instance.get(1000, timeout=60)
            assert message
            rows += [change.after for entry in message.entries for change in entry.rows if change.after is not None]
            for entry in message.entries:
                for data, row in zip(entry.row_change.row_datas, entry.rows):  # canal's text is the server's, in either form
                    assert row.after is not None
                    text = next(one.value for one in data.after_columns if one.name == "doc")
                    query = f"SELECT doc FROM {entry.header.schema}.{entry.header.table} WHERE id = {row.after['id']}"
                    assert server.query(query) == [(text,)]
    return rows


#: SQL of a value in a document, and the object. BITS stands for a column of the type BIT.
MYSQL_VALUES: list[tuple[str, Any]] = [
    ("CAST(1.50 AS DECIMAL(5,2))", Decimal("1.50")),
    (
        "CAST(-99999999999999999999999999999999999.000000000000000000000000000001 AS DECIMAL(65,30))",
        Decimal("-99999999999999999999999999999999999.000000000000000000000000000001"),
    ),
    ("CAST('2020-02-29' AS DATE)", datetime.date(2020, 2, 29)),
    ("CAST('9999-12-31 23:59:59.999999' AS DATETIME(6))", datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("CAST('-838:59:58.5' AS TIME(1))", -datetime.timedelta(hours=838, minutes=59, seconds=58.5)),
    ("CAST('00:00:00.000001' AS TIME(6))", datetime.timedelta(microseconds=1)),
    ("BITS", 0b101010101),
    ("b'101010101'", b"\x01\x55"),
    ("x'00ff'", b"\x00\xff"),
    ("CAST('ab' AS BINARY(3))", b"ab\0"),
    ("18446744073709551615", 2**64 - 1),
    ("-9223372036854775808", -(2**63)),
    ("1e300", 1e300),
    ("-0e0", -0.0),
    ("0.1e0", 0.1),
    ("TRUE", True),
    ("NULL", None),
    ("'text'", "text"),
    ("'7E+0'", "7E+0"),
    ("1.0e15", 1e15),
    ("CAST(2020 AS YEAR)", 2020),
    ("JSON_OBJECT('k', CAST(1 AS DECIMAL(3,1)))", {"k": Decimal("1.0")}),
    ("JSON_ARRAY()", []),
    ("CAST('{}' AS JSON)", {}),
    ("UNHEX('00')", b"\0"),
]


@pytest.mark.parametrize("big", [False, True])
def test_sql_values_in_documents_of_mysql(mysql_server: ThrowawayServer, big: bool) -> None:
    start = end_of_log(mysql_server)
    name = f"objects_{'big' if big else 'small'}"
    pad = "y" * 70_000 if big else ""
    with mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
        cursor.execute("SET sql_mode = ''")
        cursor.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY, doc JSON)")
        cursor.execute(f"CREATE TABLE {name}.bits (id INT PRIMARY KEY, doc JSON, bits BIT(9))")
        cursor.execute(f"INSERT INTO {name}.bits VALUES (1, NULL, b'101010101')")
        inserts = [sql.replace("BITS", f"(SELECT bits FROM {name}.bits)") for sql, _ in MYSQL_VALUES]
        documents = [f"JSON_OBJECT('v', {sql}, 'a', JSON_ARRAY({sql}), 'p', '{pad}')" for sql in inserts]
        documents += [f"JSON_ARRAY({', '.join(inserts)})", "NULL", "'null'", "'\"s\"'"]
        documents += ["JSON_ARRAY(CAST('2020-00-00' AS DATE), CAST('0000-00-00' AS DATETIME))"]
        for number, document in enumerate(documents):
            cursor.execute(f"INSERT INTO {name}.t VALUES ({number}, {document})")
        connection.commit()
    found = [row["doc"] for row in values(mysql_server, start, len(documents) + 1)[1:]]

    for document, (_, value) in zip(found, MYSQL_VALUES):
        assert document == {"a": [value], "p": pad, "v": value}
        assert repr(document["v"]) == repr(value)
    assert repr(found[-5:]) == repr(
        [
            [value for _, value in MYSQL_VALUES],
            None,
            None,
            "s",
            [canal.ZeroDate("2020-00-00"), canal.ZeroDate("0000-00-00 00:00:00.000000")],
        ]
    )


#: Text of MariaDB's column and the object.
MARIADB_VALUES: list[tuple[str, Any]] = [
    ('{"b": 1, "a": [1.5, null, true]}', {"b": 1, "a": [1.5, None, True]}),
    (" [ ] ", []),
    ("0.1", 0.1),
    ("1e2", 100.0),
    ("12345678901234567890.123456789", Decimal("12345678901234567890.123456789")),
    ("1e999", Decimal("1e999")),
    ('"é\\u00e9\\/"', "éé/"),
    ('{"a": 1, "a": 2}', canal.InvalidJson('{"a": 1, "a": 2}')),
    ("-0.0", -0.0),
    ("123456789012345678901234567890", 123456789012345678901234567890),
    ("null", None),
]


@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_json_text_of_mariadb(mariadb_server: ThrowawayServer, metadata: str) -> None:
    """The log does not tell JSON from LONGTEXT: the server's check does."""
    with MariaDBServer(f"--binlog-row-metadata={metadata}").start() as server:
        start = end_of_log(server)
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE docs CHARACTER SET utf8mb4")
            cursor.execute("CREATE TABLE docs.t (id INT PRIMARY KEY, doc JSON, `o``dd` JSON, other LONGTEXT)")
            for number, (text, _) in enumerate(MARIADB_VALUES):
                cursor.execute("INSERT INTO docs.t VALUES (%s, %s, NULL, %s)", (number, text, text))
            cursor.execute("SET check_constraint_checks = OFF")
            cursor.execute("INSERT INTO docs.t VALUES (90, '{broken', '[1]', '')")
            connection.commit()
        rows = values(server, start, len(MARIADB_VALUES) + 1)

        expected = [*(value for _, value in MARIADB_VALUES), canal.InvalidJson("{broken")]
        assert repr([row["doc"] for row in rows]) == repr(expected)
        assert rows[-1]["o`dd"] == [1]
        assert [row["other"] for row in rows] == [*(text for text, _ in MARIADB_VALUES), ""]
        assert json.loads(values(server, start, 1, "text")[0]["doc"]) == MARIADB_VALUES[0][1]
