"""The fake binlog against real servers, their own tools and another library's reader."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
import struct
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pymysql
import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from canal.errors import ConnectionLostError, PositionLostError, ServerError, SourceError, StateError, UsageError
from canal.parse.log.events import parse_gtid_list, parse_previous_gtids
from canal.parse.source.mysql import MySQLSource
from canal.position import Position
from canal.testing.fake import Corrupt, Cut, ErrorPacket, FakeBinlog, FakeConnection, FakeTable, Repeat, Stall
from canal.testing.servers import ThrowawayServer
from tests.support.live import is_since

ORDERS = "id INT UNSIGNED PRIMARY KEY, price DECIMAL(10,2), note VARCHAR(40), status ENUM('new','paid')"
FIRST = {"id": 1, "price": Decimal("9.99"), "note": "é", "status": "new"}
FLAVORS = ("mysql", "mariadb")
ROWS_EVENTS = (23, 24, 25, 30, 31, 32)


@pytest.fixture(params=FLAVORS)
def fake(request: pytest.FixtureRequest) -> Iterator[FakeBinlog]:
    with FakeBinlog(request.param) as made:
        yield made


def shop(fake: FakeBinlog) -> FakeTable:
    return fake.table("shop", "orders", ORDERS)


def kinds(events: Sequence[bytes]) -> list[int]:
    return [event[4] for event in events]


def drain(connection: FakeConnection, timeout: float = 0.0) -> list[bytes]:
    """Everything that comes until a read gives nothing."""
    events: list[bytes] = []
    while got := connection.read(timeout):
        events += got
    return events


def dump(fake: FakeBinlog, start: str | Position = "earliest") -> FakeConnection:
    connection = fake.connect()
    connection.dump(connection.resolve(start))
    return connection


# -- the log -----------------------------------------------------------------------------------------------------------


def test_events_have_checksums_and_ends_that_follow_each_other(fake: FakeBinlog) -> None:
    orders = shop(fake)
    fake.ddl("CREATE TABLE orders (id INT)", "shop")
    with fake.transaction():
        orders.insert(FIRST, {"id": 2}, sql="insert into orders …")
        orders.update(FIRST, {"note": "x"})
    fake.rotate()
    orders.delete(FIRST)
    fake.restart()

    for journal, size in fake.journals:
        data, at = fake.bytes(journal), 4
        assert data[:4] == b"\xfebin"
        assert data[21] == (journal == fake.journal)  # the mark of a file in use, which no checksum covers
        data = data[:21] + b"\0" + data[22:]
        while at < len(data):
            length, end = struct.unpack_from("<II", data, at + 9)
            assert end == at + length
            assert struct.unpack_from("<I", data, end - 4)[0] == zlib.crc32(data[at : end - 4])
            at = end
        assert at == size
    assert fake.position.offset == fake.journals[-1][1]


def test_a_transaction_is_in_the_log_as_a_whole_or_not_at_all(fake: FakeBinlog) -> None:
    orders = shop(fake)
    before = fake.events()
    with fake.transaction() as transaction:
        orders.insert(FIRST)
        assert fake.events() == before
        transaction.rollback()
    with contextlib.suppress(ZeroDivisionError), fake.transaction():
        orders.insert(FIRST)
        raise ZeroDivisionError
    with fake.transaction():
        pass
    assert fake.events() == before

    with fake.transaction():
        orders.insert(FIRST)
    orders.insert({"id": 2})
    one = [33, 2, 19, 30, 16] if fake.flavor == "mysql" else [162, 19, 23, 16]
    assert kinds(fake.events()[len(before) :]) == one * 2


def test_a_transaction_belongs_to_its_thread(fake: FakeBinlog) -> None:
    orders = shop(fake)
    with fake.transaction():
        orders.insert(FIRST)
        other = threading.Thread(target=orders.insert, args=({"id": 2},))
        other.start()
        other.join()
        assert fake.position.gtid.endswith("1")
    with pytest.raises(StateError), fake.transaction():
        fake.rotate()


def test_positions_name_the_end_of_the_log_and_its_gtids() -> None:
    mysql, mariadb = FakeBinlog("mysql"), FakeBinlog("mariadb", server_id=7, domain=3)
    for fake in (mysql, mariadb):
        orders = shop(fake)
        orders.insert(FIRST)
        orders.delete(FIRST)
    assert mysql.position.gtid == f"{mysql.uuid}:1-2"
    assert mariadb.position.gtid == "3-7-2"
    mariadb.ddl("DROP TABLE orders", "shop", gtid="0-1-99")
    assert mariadb.position.gtid == "0-1-99,3-7-2"
    with mysql.transaction(gtid=f"{mysql.uuid}:9"):
        shop(mysql).insert(FIRST)
    assert mysql.position.gtid == f"{mysql.uuid}:1-2:9"
    assert mysql.resolve("earliest") == Position(journal="binlog.000001", offset=4, source=mysql.identity)


def test_long_statements_are_split_and_only_the_last_event_ends_them(fake: FakeBinlog) -> None:
    shop(fake).insert(*({"id": number, "note": "x" * 40} for number in range(1000)))
    events = [event for event in fake.events() if event[4] in ROWS_EVENTS]
    assert len(events) > 5
    assert [event[25] & 1 for event in events] == [0] * (len(events) - 1) + [1]
    assert max(map(len, events)) < 8300


@pytest.mark.parametrize(
    "columns",
    ["a GEOGRAPHY", "a INT DEFAULT 3", "a INT,", "a VARCHAR", "a ENUM", "a DECIMAL(66,0)", "a INT; b INT",
     "a VARCHAR(9) CHARACTER SET klingon", "a INT, PRIMARY KEY (b)", ""],
)  # fmt: skip
def test_columns_that_are_not_understood_are_refused(columns: str) -> None:
    with pytest.raises(UsageError):
        FakeBinlog().table("shop", "orders", columns)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("TINYINT", 128), ("TINYINT UNSIGNED", -1), ("DECIMAL(3,1)", Decimal("1.25")), ("DECIMAL(3,1)", 100),
     ("VARCHAR(2)", "abc"), ("VARCHAR(2) CHARACTER SET latin1", "я"), ("ENUM('a')", "b"), ("SET('a')", "a,b"),
     ("BIT(3)", 8), ("DATETIME", "2024-01-01 00:00:00.5"), ("TIME", "839:00:00"), ("DATE", "today"), ("YEAR", 1900),
     ("JSON", "{"), ("BLOB", "text"), ("INT NOT NULL", None), ("FLOAT", 1e300), ("DOUBLE", "x")],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused_without_showing_them(kind: str, value: Any) -> None:
    table = FakeBinlog().table("shop", "orders", f"c {kind}")
    with pytest.raises(UsageError, match=r"shop\.orders\.c") as caught:
        table.insert({"c": value})
    assert caught.value.__cause__ is None
    assert value in (None, 8) or repr(value) not in str(caught.value)


def test_a_column_that_a_table_lacks_is_told_with_those_that_it_has() -> None:
    table = FakeBinlog().table("shop", "orders", "id INT, n INT")
    with pytest.raises(UsageError, match=r"shop\.orders has no column 'x'; it has id, n\. .*alter\("):
        table.insert({"id": 1, "x": 2})


def test_tables_answer_as_information_schema_does() -> None:
    fake = FakeBinlog("mariadb")
    fake.table("shop", "t", "id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, s SET('a','it''s'), j JSON, b BIT, x CHAR(3)")
    schema = fake.table_columns("shop", "t")
    assert schema is not None
    assert [(column.name, column.column_type, column.nullable, column.key) for column in schema.columns] == [
        ("id", "int(10) unsigned", False, True),
        ("s", "set('a','it''s')", True, False),
        ("j", "longtext", True, False),
        ("b", "bit(1)", True, False),
        ("x", "char(3)", True, False),
    ]
    assert schema.columns[1].labels == ("a", "it's")
    assert fake.table_columns("shop", "other") is None


# -- the same bytes as a server ----------------------------------------------------------------------------------------


def logged(data: bytes, start: int) -> list[tuple[int, bytes]]:
    """Types and bodies of table maps and rows events, without table ids and the flags that depend on the session."""
    found, at = [], start
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 9)[0]
        kind, body = data[at + 4], data[at + 25 : at + size - 4]
        if kind in (19, *ROWS_EVENTS):
            found.append((kind, bytes((body[0] & 1,)) + body[1:]))
        at += size
    return found


def sql_value(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    if isinstance(value, dt.timedelta):
        micros = abs(value) // dt.timedelta(microseconds=1)
        sign = "-" if value < dt.timedelta() else ""
        return f"{sign}{micros // 3_600_000_000}:{micros // 60_000_000 % 60:02}:{micros // 1_000_000 % 60:02}"
    return value


class Mirror:
    """Does the same on a server and on a fake, and compares the bytes."""

    def __init__(self, server: ThrowawayServer, columns: str, **options: Any) -> None:
        self._server = server
        self.fake = FakeBinlog(server.kind, **options)  # type: ignore[arg-type]
        self.table = self.fake.table("mirror", "t", columns)
        self._connection = server.connect(init_command="SET time_zone = '+00:00', sql_mode = ''", charset="utf8mb4")
        self.sql("CREATE DATABASE IF NOT EXISTS mirror CHARACTER SET utf8mb4")
        self.sql("USE mirror")
        self.sql(f"SET binlog_row_image = {self.fake.row_image}")
        self.sql("DROP TABLE IF EXISTS t")
        self.sql(f"CREATE TABLE t ({columns}) CHARACTER SET utf8mb4")
        status = "SHOW BINARY LOG STATUS" if server.kind == "mysql" else "SHOW MASTER STATUS"
        self._journal, self._offset = self.sql(status)[0][:2]

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, [sql_value(value) for value in values] or None)
            return list(cursor.fetchall())

    def insert(self, *rows: dict[str, Any]) -> None:
        names, holders = ", ".join(rows[0]), f"({', '.join(['%s'] * len(rows[0]))})"
        values = [value for row in rows for value in row.values()]
        self.sql(f"INSERT INTO t ({names}) VALUES {', '.join([holders] * len(rows))}", *values)
        self.table.insert(*rows)

    def assert_same(self) -> None:
        self._connection.commit()
        data = (self._server.binlog_dir / self._journal).read_bytes()
        self._connection.close()
        assert logged(self.fake.bytes(), 4) == logged(data, self._offset)


def limits(low: bool) -> dict[str, int]:
    found = {}
    for name, bits in (("a", 8), ("b", 16), ("c", 24), ("d", 32), ("e", 64)):
        found[name] = -(1 << bits - 1) if low else (1 << bits - 1) - 1
        found[name + "u"] = 0 if low else (1 << bits) - 1
    return found


def times(digits: int) -> list[dict[str, Any]]:
    part = "." + "123456"[:digits] if digits else ""
    least = "." + "000001"[6 - digits :] if digits else ""
    most = "." + "9" * digits if digits else ""
    return [
        {"t": "00:00:00", "d": f"2024-02-29 12:34:56{part}", "s": f"2038-01-19 03:14:07{part}"},
        {"t": f"-00:00:01{part}", "d": "0000-00-00 00:00:00", "s": "0000-00-00 00:00:00"},
        {"t": "838:59:59", "d": f"9999-12-31 23:59:59{most}", "s": f"1970-01-01 00:00:01{least}"},
        {"t": "-838:59:59", "d": f"1000-01-01 00:00:00{least}", "s": "2001-09-09 01:46:40"},
        {"t": f"-12:00:00{least}", "d": "2024-00-00 00:00:00", "s": None},
        {"t": dt.timedelta(hours=-1, minutes=-2), "d": dt.datetime(2001, 2, 3, 4, 5, 6), "s": dt.datetime(2001, 2, 3)},
        {"t": f"-00:59:59{most}", "d": None, "s": None},
    ]


def numbers(places: list[tuple[int, int]], sign: str, least: bool) -> dict[str, Decimal]:
    def text(precision: int, scale: int) -> str:
        return "1" if least and not scale else "0." + "0" * (scale - 1) + "1" if least else (
            "9" * (precision - scale) + ("." + "9" * scale if scale else "")
        )  # fmt: skip

    return {f"d{place}": Decimal(sign + text(*size)) for place, size in enumerate(places)}


DECIMALS = [(1, 0), (10, 2), (65, 30), (18, 9), (9, 9), (5, 5), (20, 0), (38, 10), (12, 11)]
BITS = (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64)
LABELS = [f"é{number}" for number in range(300)]
MIRRORED: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "integers": (
        "a TINYINT, au TINYINT UNSIGNED, b SMALLINT, bu SMALLINT UNSIGNED, c MEDIUMINT, cu MEDIUMINT UNSIGNED, d INT,"
        " du INT UNSIGNED, e BIGINT, eu BIGINT UNSIGNED, PRIMARY KEY (e, b)",
        [limits(False), limits(True)],
    ),
    "decimals": (
        ", ".join(f"d{place} DECIMAL({a},{b})" for place, (a, b) in enumerate(DECIMALS)),
        [numbers(DECIMALS, sign, least) for sign in ("", "-") for least in (True, False)],
    ),
    "reals": (
        "f FLOAT, g DOUBLE, h FLOAT UNSIGNED",
        [{"f": 0.1, "g": 0.1, "h": 1.5}, {"f": -3.4028234663852886e38, "g": -1.7976931348623157e308, "h": 0.0}],
    ),
    **{f"times({n})": (f"t TIME({n}), d DATETIME({n}), s TIMESTAMP({n}) NULL", times(n)) for n in range(7)},
    "dates": (
        "d DATE, y YEAR",
        [{"d": "0000-00-00", "y": 0}, {"d": "9999-12-31", "y": 2155}, {"d": dt.date(2024, 2, 29), "y": 1901}],
    ),
    "bits": (
        ", ".join(f"b{n} BIT({n})" for n in BITS),
        [{f"b{n}": (1 << n) - 1 for n in BITS}, {f"b{n}": 0 for n in BITS}, {f"b{n}": 1 << n - 1 for n in BITS}],
    ),
    **{
        f"set of {n}": (
            "s SET(" + ",".join(f"'m{place}'" for place in range(n)) + ")",
            [{"s": ""}, {"s": "m0"}, {"s": ",".join(f"m{place}" for place in range(n))}, {"s": f"m{n - 1}"}],
        )
        for n in (1, 8, 9, 24, 25, 32, 33, 64)
    },
    **{
        f"enum of {n}": (
            "e ENUM(" + ",".join(f"'{label}'" for label in LABELS[:n]) + ") CHARACTER SET latin1",
            [{"e": LABELS[0]}, {"e": LABELS[n - 1]}, {"e": None}],
        )
        for n in (1, 255, 256, 300)
    },
    **{
        f"{n} characters of {charset}": (
            f"c CHAR({n}) CHARACTER SET {charset}, v VARCHAR({n}) CHARACTER SET {charset}, b BINARY({n}),"
            f" w VARBINARY({n})",
            [{"c": "é" * n, "v": "é" * n, "b": b"\xff" * n, "w": b"\xfe" * n},
             {"c": "", "v": "", "b": bytes(n), "w": b""},
             {"c": "a ", "v": "a ", "b": b"a".ljust(n, b"\0"), "w": b"a\0"}],
        )
        for n in (2, 63, 64, 127, 128, 255)
        for charset in ("latin1", "utf8mb3", "utf8mb4", "utf16")
    },
    "blobs": (
        "a TINYTEXT, b TEXT, c MEDIUMTEXT, d LONGTEXT, e TINYBLOB, f BLOB, g MEDIUMBLOB, h LONGBLOB",
        [{"a": "é" * 127, "b": "é" * 32767, "c": "x" * 70000, "d": "y" * 70001, "e": bytes(255), "f": b"\1" * 65535,
          "g": b"\2" * 65536, "h": b"\3" * 65537},
         dict.fromkeys("abcd", "") | dict.fromkeys("efgh", b""), dict.fromkeys("abcdefgh")],
    ),
    **{
        f"text in {charset}": (
            f"v VARCHAR(20) CHARACTER SET {charset}, c CHAR(7) CHARACTER SET {charset}, t TEXT CHARACTER SET {charset}",
            [{"v": text, "c": text, "t": text}],
        )
        for charset, text in (
            ("gbk", "中文"), ("gb2312", "中文"), ("big5", "中文"), ("sjis", "漢"), ("cp932", "漢字"), ("ujis", "漢字"),
            ("euckr", "한글"), ("latin2", "ą"), ("latin5", "ş"), ("latin7", "ą"), ("greek", "α"), ("hebrew", "א"),
            ("cp1250", "ž"), ("cp1251", "я"), ("cp1256", "ع"), ("cp1257", "ą"), ("cp850", "é"), ("cp852", "ž"),
            ("cp866", "я"), ("koi8r", "я"), ("koi8u", "ї"), ("tis620", "ก"), ("ascii", "a"), ("utf16le", "é€"),
            ("utf32", "é"), ("utf16", "é😀"), ("latin1", "é€\x81"), ("ucs2", "é"), ("eucjpms", "漢"),
        )
    },
    "geometries": (
        "a TEXT, g GEOMETRY, b CHAR(3) CHARACTER SET latin1, h GEOMETRY, c VARCHAR(9) CHARACTER SET latin1, d CHAR(2), e CHAR(2)",
        [{"a": "é", "g": bytes(4) + struct.pack("<BIdd", 1, 1, 1.5, -2.5), "b": "é", "h": None}],
    ),
    "labels": (
        "e ENUM('a','it''s','x,y','') , s SET('é','ß') COLLATE utf8mb4_bin, f ENUM('é') CHARACTER SET ucs2",
        [{"e": "it's", "s": "é,ß", "f": "é"}, {"e": "", "s": "", "f": None}],
    ),
    "many charsets": (
        "a CHAR(1), b CHAR(1) CHARACTER SET latin1, c CHAR(1), d CHAR(1), e BLOB, g ENUM('x') CHARACTER SET latin1,"
        " h SET('y'), i ENUM('z')",
        [{"a": "a", "b": "b", "c": "c", "d": "d", "e": b"e", "g": "x", "h": "y", "i": "z"}],
    ),
    "key with a prefix": ("a CHAR(1), b BLOB, id INT, PRIMARY KEY (id, b(3), a)", [{"a": "a", "b": b"bb", "id": 1}]),
    "300 columns": (
        ", ".join(f"c{place} TINYINT" + (" NOT NULL" if place % 3 == 0 else "") for place in range(300)),
        [{f"c{place}": place % 100 if place % 5 or place % 3 == 0 else None for place in range(300)}],
    ),
    "statement of 2000 rows": (
        "id INT PRIMARY KEY, v VARCHAR(200)", [{"id": place, "v": "x" * (place % 200)} for place in range(2000)]
    ),
    "rows larger than an event": ("id INT, v LONGTEXT", [{"id": n, "v": "x" * 9000 * (n % 3)} for n in range(6)]),
}  # fmt: skip


@pytest.mark.parametrize("name", MIRRORED)
def test_rows_and_table_maps_are_byte_for_byte_those_of_a_server(server: ThrowawayServer, name: str) -> None:
    columns, rows = MIRRORED[name]
    mirror = Mirror(server, columns)
    mirror.insert(*rows)
    mirror.assert_same()


def test_vectors_are_byte_for_byte_those_of_a_server(mysql_server: ThrowawayServer) -> None:
    mirror = Mirror(mysql_server, "a TEXT, v VECTOR(3), w VECTOR(300), b CHAR(3) CHARACTER SET latin1, c CHAR(1), d CHAR(1)")
    mirror.insert({"a": "é", "v": struct.pack("<3f", 1.5, -2, 0), "w": None})
    mirror.assert_same()


DOCUMENTS = [
    "{}", "[]", "null", "true", "0", "-1", "32767", "32768", "-32768", "-32769", "65536", "2147483647", "2147483648",
    "-2147483649", "4294967295", "4294967296", "9223372036854775808", "18446744073709551615",
    "18446744073709551616", "1.5",
    "1e300", '"x"', '"é😀"', '""', json.dumps("x" * 127), json.dumps("x" * 128), json.dumps("y" * 20000),
    '{"bb":1,"a":2,"ab":3,"":4,"é":5}', '[32767,32768,65535,70000,-40000,4294967295,1.5,null,true,false,"s"]',
    '[1,[2,[3,{"a":[{}]}]]]', json.dumps(list(range(70000, 90000))), json.dumps({f"k{n}": n for n in range(9000)}),
    json.dumps(["x" * 70000, {"a": 1, "b": [1, 2, 40000]}]), json.dumps([True, -1, 70000, None, "z" * 66000]),
    *(json.dumps({"a": "x" * size, "n": 40000}) for size in range(65500, 65520, 3)),
]  # fmt: skip


def test_json_is_byte_for_byte_that_of_a_server(server: ThrowawayServer) -> None:
    mirror = Mirror(server, "j JSON")
    for document in DOCUMENTS:
        mirror.insert({"j": document})
    mirror.assert_same()


def test_sql_values_in_json_are_byte_for_byte_those_of_a_server(mysql_server: ThrowawayServer) -> None:
    mirror = Mirror(mysql_server, "j JSON")
    mirror.sql(
        "INSERT INTO t VALUES (JSON_ARRAY(1.50, -0.25, 12345678901.5, DATE '2024-01-02',"
        " TIMESTAMP '2024-01-02 03:04:05.678901', TIME '-01:02:03.5', TIME '838:00:00'))"
    )
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, 678901)
    times = [-dt.timedelta(hours=1, minutes=2, seconds=3, milliseconds=500), dt.timedelta(hours=838)]
    decimals = [Decimal("1.50"), Decimal("-0.25"), Decimal("12345678901.5")]
    mirror.table.insert({"j": [*decimals, moment.date(), moment, *times]})
    mirror.assert_same()


@pytest.mark.parametrize("key", [", PRIMARY KEY (id)", ""])
@pytest.mark.parametrize("image", ["FULL", "MINIMAL", "NOBLOB"])
def test_row_images_are_those_of_a_server(server: ThrowawayServer, image: str, key: str) -> None:
    mirror = Mirror(server, "id INT, a INT, b TEXT, c VARCHAR(10), d INT" + key, row_image=image)
    row = {"id": 1, "a": 2, "b": "t", "c": "c", "d": 5}
    mirror.insert(row)
    mirror.insert({"id": 2, "c": "q"})
    mirror.sql("UPDATE t SET a = 9 WHERE id = 1")
    mirror.table.update(row, {"a": 9})
    mirror.sql("UPDATE t SET b = 'new', c = 'z' WHERE id = 2")
    mirror.table.update({"id": 2, "c": "q"}, {"b": "new", "c": "z"})
    mirror.sql("DELETE FROM t WHERE id = 1")
    mirror.table.delete({**row, "a": 9})
    mirror.assert_same()


# -- other readers -----------------------------------------------------------------------------------------------------


def test_the_servers_own_tool_reads_the_files(server: ThrowawayServer, tmp_path: Path) -> None:
    fake = FakeBinlog(server.kind)  # type: ignore[arg-type]
    orders = shop(fake)
    fake.ddl("CREATE TABLE orders (id INT)", "shop")
    with fake.transaction():
        orders.insert(FIRST, {"id": 2}, sql="insert into orders …")
        orders.update(FIRST, {"price": Decimal("-5.00")})
    fake.restart()
    orders.delete({"id": 2})
    program = server.program("mysqlbinlog" if server.kind == "mysql" else "mariadb-binlog")

    shown = ""
    for path in fake.write(tmp_path):
        options = ["--no-defaults", "-vv", "--verify-binlog-checksum", "--base64-output=decode-rows"]
        done = subprocess.run([*program, *options, str(path)], capture_output=True, timeout=60, check=True)
        assert not done.stderr
        shown += done.stdout.decode()

    assert (tmp_path / "binlog.index").read_text() == "./binlog.000001\n./binlog.000002\n"
    found = re.findall(r"^### (?:  (@\d=\S+)|(INSERT|UPDATE|DELETE).*|(?:SET|WHERE))", shown, re.MULTILINE)
    first = ["@1=1", "@2=9.99", "@3='é'", "@4=1"]
    changed = ["@1=1", "@2=-5.00", "@3='é'", "@4=1"]
    second = ["@1=2", "@2=NULL", "@3=NULL", "@4=NULL"]
    told = [cell or verb for cell, verb in found if cell or verb]
    assert told == ["INSERT", *first, "INSERT", *second, "UPDATE", *first, *changed, "DELETE", *second]


def reader(fake: FakeBinlog, host: str, port: int, **options: Any) -> BinLogStreamReader:
    start: dict[str, Any] = {"log_file": "binlog.000001", "log_pos": 4}
    if fake.flavor == "mariadb":
        start = {"is_mariadb": True, "auto_position": ""}
    return BinLogStreamReader(
        connection_settings={"host": host, "port": port, "user": "any", "passwd": "any"}, server_id=9,
        slave_heartbeat=0.1, only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent], resume_stream=True,
        **start, **options,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_mysql_replication_tails_the_served_log(fake: FakeBinlog) -> None:
    orders = shop(fake)
    orders.insert(FIRST, {"id": 2, "status": "paid"})
    fake.rotate()
    seen: list[Any] = []
    with fake.serve() as served:
        stream = reader(fake, served.host, served.port, blocking=True)
        timer = threading.Timer(0.3, lambda: (orders.delete(FIRST), fake.end()))
        timer.start()
        seen += stream
        stream.close()
    nothing = {"price": None, "note": None, "status": None}
    assert [row["values"] for row in seen[0].rows] == [FIRST, {"id": 2, **nothing, "status": "paid"}]
    assert seen[1].rows[0]["values"] == FIRST
    assert len(seen) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_events_around_16_mib_are_split_into_packets(fake: FakeBinlog, more: int) -> None:
    table = fake.table("shop", "big", "b LONGBLOB")
    table.insert({"b": b"-"})
    overhead = len(next(event for event in fake.events() if event[4] in ROWS_EVENTS)) # the OK byte for that of "-"
    value = b"x" * ((1 << 24) - 1 - overhead + more)
    table.insert({"b": value})
    table.insert({"b": b"after"})
    fake.end()
    with fake.serve() as served:
        stream = reader(fake, served.host, served.port, blocking=True)
        assert [event.rows[0]["values"]["b"] for event in stream] == [b"-", value, b"after"]
        stream.close()


def test_the_server_answers_queries_and_checks_a_password(fake: FakeBinlog) -> None:
    shop(fake).insert(FIRST)
    with fake.serve(user="canal", password="secret") as served:
        login: dict[str, Any] = {"host": served.host, "port": served.port, "user": "canal"}
        with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
            pymysql.connect(**login, password="wrong")
        with pymysql.connect(**login, password="secret") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT @@global.server_id, VERSION() AS v, 7")
            assert cursor.fetchall() == (("1", fake.version, 7),)
            cursor.execute("SHOW BINARY LOGS")
            assert cursor.fetchall()[0][:2] == ("binlog.000001", fake.position.offset)  # type: ignore[index]
            cursor.execute("SHOW VARIABLES LIKE 'binlog\\_row_m%'")
            assert cursor.fetchall() == (("binlog_row_metadata", "FULL"),)
            cursor.execute(
                "SELECT column_name, column_type FROM information_schema.columns"
                " WHERE table_schema = %s AND table_name = %s", ("shop", "orders"),
            )  # fmt: skip
            assert cursor.fetchall()[3] == ("status", "enum('new','paid')")  # type: ignore[index]
            with pytest.raises(pymysql.err.ProgrammingError):
                cursor.execute("SELECT * FROM shop.orders")
            connection.ping()
        assert "SHOW BINARY LOGS" in served.queries


# -- as a source -------------------------------------------------------------------------------------------------------


def test_a_dump_begins_as_that_of_a_server(fake: FakeBinlog) -> None:
    orders = shop(fake)
    orders.insert(FIRST)
    middle = fake.position.offset
    orders.delete(FIRST)
    fake.rotate()

    opening = [15, 35] if fake.flavor == "mysql" else [15, 163, 161]
    assert kinds(drain(dump(fake)))[: len(opening) + 1] == [4, *opening]
    events = drain(dump(fake, Position(journal="binlog.000001", offset=middle)))
    assert events[0][:4] == bytes(4)
    assert struct.unpack_from("<Q", events[0], 19)[0] == middle
    assert events[0][27:-4] == b"binlog.000001"
    assert struct.unpack_from("<I", events[1], 13)[0] == 0  # an end of 0: not a place in the log
    assert struct.unpack_from("<I", events[1], 71)[0] == 0
    again = opening + ([161] if fake.flavor == "mariadb" else [])
    body = [33, 2, 19, 32, 16] if fake.flavor == "mysql" else [162, 19, 25, 16]
    assert kinds(events) == [4, 15, *body, 4, 4, *again]
    for event in events:
        assert struct.unpack("<I", event[-4:])[0] == zlib.crc32(event[:-4])


def test_a_dump_by_gtid_leaves_out_what_is_done(fake: FakeBinlog) -> None:
    orders = shop(fake)
    places = []
    for number in range(3):
        orders.insert({"id": number})
        places.append(fake.position.gtid)
    fake.rotate()
    orders.insert({"id": 3})

    writes = [sum(event[4] in ROWS_EVENTS for event in drain(dump(fake, Position(gtid=gtid)))) for gtid in places]
    assert writes == [3, 2, 1]
    assert kinds(drain(dump(fake, Position(gtid=places[0]))))[3 if fake.flavor == "mysql" else 4] in (27, 163)
    fake.purge("binlog.000002")
    with pytest.raises(PositionLostError):
        dump(fake, Position(gtid=places[0]))
    assert fake.resolve("earliest").gtid == places[2]


def test_positions_that_are_not_there_are_refused(fake: FakeBinlog) -> None:
    shop(fake).insert(FIRST)
    end = fake.position.offset
    for lost in (
        Position(journal="binlog.000009", offset=4),
        Position(journal=fake.journal, offset=end + 1),
        Position(journal=fake.journal, offset=end, source="another"),
        Position(gtid=f"{fake.uuid}:9" if fake.flavor == "mysql" else "0-1-9"),
    ):
        with pytest.raises(PositionLostError):
            fake.connect().resolve(lost)
    with pytest.raises(PositionLostError):
        fake.connect().dump(Position(journal=fake.journal, offset=5))
    assert drain(dump(fake, Position(journal=fake.journal, offset=end)))[2:] == []


def test_a_log_that_is_reset_begins_with_the_first_names_and_gtids_again(fake: FakeBinlog) -> None:
    orders = shop(fake)
    orders.insert(FIRST)
    first = fake.executed
    fake.rotate()
    orders.insert(FIRST)
    fake.reset()
    assert [name for name, _ in fake.journals] == ["binlog.000001"]
    assert fake.executed == fake.gtid_state == ""
    orders.insert(FIRST)
    assert fake.executed == first


def test_a_switch_of_gtid_mode_begins_a_journal_and_keeps_the_gtids() -> None:
    fake = FakeBinlog()
    orders = shop(fake)
    orders.insert(FIRST)
    before = fake.position.gtid
    fake.switch_gtids(False)
    orders.insert(FIRST)
    assert (fake.journal, fake.executed, fake.position.gtid) == ("binlog.000002", before, "")
    fake.switch_gtids(True)
    orders.insert(FIRST)
    assert fake.executed == before.replace(":1", ":1-2")
    # By GTID set a server begins with the last journal whose list the set has, and refuses what has none in it.
    assert [event[4] for event in drain(dump(fake, Position(gtid=before))) if event[4] in (33, 34)] == [33]
    connection = dump(fake, Position(gtid=before))
    fake.switch_gtids(False)
    orders.insert(FIRST)
    with pytest.raises(ServerError, match="anonymous transaction"):
        drain(connection)
    with pytest.raises(UsageError):
        FakeBinlog("mariadb").switch_gtids(False)


def test_transactions_of_another_server_keep_its_id() -> None:
    for fake in (FakeBinlog("mysql", gtid=False), FakeBinlog("mysql"), FakeBinlog("mariadb")):
        orders = shop(fake)
        with fake.transaction(gtid="0-7-1" if fake.flavor == "mariadb" else None, server_id=7):
            orders.insert(FIRST)
        orders.insert(FIRST)
        events = [event for event in drain(dump(fake)) if event[4] in ROWS_EVENTS]
        assert [struct.unpack_from("<I", event, 5)[0] for event in events] == [7, 1]
        if fake.flavor == "mariadb":
            assert (fake.executed, fake.gtid_state) == ("0-1-2", "0-7-1,0-1-2")


def test_a_position_by_time_is_the_first_transaction_from_then_on() -> None:
    now = [1000.0]
    fake = FakeBinlog(clock=lambda: now[0])
    orders = shop(fake)
    for second in (1000.0, 1010.0, 1020.0):
        now[0] = second
        orders.insert(FIRST)
    found = fake.resolve(Position(timestamp=1_005_000))
    assert found.gtid == f"{fake.uuid}:1"
    assert sum(event[4] in ROWS_EVENTS for event in drain(dump(fake, found))) == 2
    assert fake.resolve(Position(timestamp=1_021_000)) == fake.position


def test_open_connections_see_what_is_written_later(fake: FakeBinlog) -> None:
    orders = shop(fake)
    connection = dump(fake, "latest")
    drain(connection)
    timer = threading.Timer(0.05, orders.insert, args=(FIRST,))
    timer.start()
    events = connection.read(60) or []
    assert any(event[4] in ROWS_EVENTS for event in events)
    fake.heartbeat()
    assert kinds(connection.read(0) or []) == [27]
    closer = threading.Timer(0.05, connection.close)
    closer.start()
    with pytest.raises(ConnectionLostError):
        connection.read(60)

    other = dump(fake, "latest")
    drain(other)
    fake.end()
    assert other.read(10) is None
    with pytest.raises(StateError):
        orders.insert(FIRST)


def test_offsets_beyond_4_gib_wrap_in_the_headers_only() -> None:
    fake = FakeBinlog("mariadb", start_offset=(1 << 32) - 100)
    shop(fake).insert(FIRST)
    earliest = fake.resolve("earliest")
    assert earliest.offset == (1 << 32) - 100
    events = drain(dump(fake))
    assert struct.unpack_from("<Q", events[0], 19)[0] == earliest.offset
    offset = earliest.offset
    for event in events[2:]:
        offset += len(event)
        assert struct.unpack_from("<I", event, 13)[0] == offset & 0xFFFFFFFF
    assert offset == fake.position.offset > 1 << 32
    with pytest.raises(UsageError):
        fake.bytes()


def test_without_checksums_and_gtids() -> None:
    fake = FakeBinlog("mysql", checksum=False, gtid=False)
    orders = shop(fake)
    orders.insert(FIRST)
    assert fake.position.gtid == ""
    events = drain(dump(fake))
    assert kinds(events) == [4, 15, 35, 34, 2, 19, 30, 16]
    assert sum(map(len, events[1:])) == fake.position.offset - 4


# -- heads and ends of journals ----------------------------------------------------------------------------------------


def heads_and_ends(paths: Sequence[Path]) -> list[tuple[int, bool, list[int], int, str]]:
    """Of each file: the mark of use, whether a server started with it, the kinds of its head, of its end, and its list."""
    found = []
    for path in paths:
        data = path.read_bytes()
        events, at = [], 4
        while at < len(data):
            size = struct.unpack_from("<I", data, at + 9)[0]
            events.append(data[at : at + size])
            at += size
        known = [event for event in events if event[4] != 161]  # the second checkpoint of a log may come at any time
        head = next((number for number, event in enumerate(known) if event[4] not in (15, 35, 163)), len(known))
        listed = known[1]
        gtids = (parse_previous_gtids if listed[4] == 35 else parse_gtid_list)(listed, len(listed) - 4)
        text = str(gtids).rpartition(":")[2] if listed[4] == 35 else str(gtids)
        created = struct.unpack_from("<I", data, 4 + 19 + 52)[0]
        found.append((data[21], created != 0, kinds(known[:head]), known[-1][4], text))
    return found


@pytest.mark.every_line
@pytest.mark.needs("gtid")
def test_journals_begin_and_end_as_those_of_a_server(own_server: ThrowawayServer, line: Any, tmp_path: Path) -> None:
    """Rotated, restarted, crashed and reset."""
    server, fake = own_server, FakeBinlog(own_server.kind)  # type: ignore[arg-type]
    gtids = ("--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--log-slave-updates") * (server.kind == "mysql")
    server.restart("--binlog-checksum=CRC32", *gtids, *server.options)
    reset = "RESET BINARY LOGS AND GTIDS" if is_since(server, mysql=(8, 2)) else "RESET MASTER"
    server.query("CREATE DATABASE heads")
    server.query("CREATE TABLE heads.t (id INT PRIMARY KEY AUTO_INCREMENT)")
    table = fake.table("heads", "t", "id INT PRIMARY KEY AUTO_INCREMENT")
    for number, (on_server, on_fake) in enumerate((
        (lambda: server.query(reset), fake.reset), (lambda: server.query("FLUSH BINARY LOGS"), fake.rotate),
        (server.restart, fake.restart), (lambda: (server.kill(), server.start()), fake.crash),
        (lambda: server.query("FLUSH BINARY LOGS"), fake.rotate), (lambda: server.query(reset), fake.reset),
    )):  # fmt: skip
        on_server()
        on_fake()
        server.query("INSERT INTO heads.t VALUES ()")
        table.insert({})
        assert heads_and_ends(server.binlog_paths()) == heads_and_ends(fake.write(tmp_path / str(number))), number


@attrs.frozen
class _Sent:
    """What a dump gave under a reset: rows, and how it ended."""

    rows: int
    end: str


def under_a_reset(source: MySQLSource, do: Callable[[str], None], before: Sequence[str], after: Sequence[str]) -> _Sent:
    """Read all that ``before`` wrote, do what is ``after`` it, and read up to an error or until nothing comes any more."""
    for step in ("reset", *before):
        do(step)
    connection = source.connect()
    connection.dump(Position(journal="binlog.000001", offset=4))
    try:
        _until_silent(connection)
        for step in after:
            do(step)
        rows, end = _until_silent(connection), "silent"
    except SourceError as error:
        reason = error.reason.name if isinstance(error, PositionLostError) else ""
        rows, end = 0, f"{type(error).__name__} {reason}".strip()
    finally:
        connection.close()
    return _Sent(rows, end)


def _until_silent(connection: Any) -> int:
    """The rows events that come before two heartbeats in a row."""
    rows = beats = 0
    while beats < 2:
        for event in connection.read(60.0):
            beats = beats + 1 if event[4] in (27, 41) else 0
            rows += event[4] in ROWS_EVENTS
    return rows


@pytest.mark.lines("mysql>=5.7", "mariadb>=10.2")
def test_a_dump_under_a_reset_ends_as_that_of_a_server(server: ThrowawayServer) -> None:
    reset = "RESET BINARY LOGS AND GTIDS" if is_since(server, mysql=(8, 2)) else "RESET MASTER"
    server.query("CREATE DATABASE IF NOT EXISTS sent")
    server.query("CREATE TABLE IF NOT EXISTS sent.t (id INT PRIMARY KEY AUTO_INCREMENT)")
    fake = FakeBinlog(server.kind, gtid=server.kind == "mariadb")  # type: ignore[arg-type]
    table = fake.table("sent", "t", "id INT PRIMARY KEY AUTO_INCREMENT")

    def on_server(step: str) -> None:
        server.query({"reset": reset, "rotate": "FLUSH BINARY LOGS"}.get(step, "INSERT INTO sent.t VALUES ()" + step))

    def on_fake(step: str) -> None:
        {"reset": fake.reset, "rotate": fake.rotate}.get(step, lambda: table.insert({}, *({} for _ in step.split())))()

    options = {"heartbeat_interval": 0.2, "ssl_mode": "DISABLED"}
    real = MySQLSource(host="127.0.0.1", port=server.port, user=server.user, password=server.password, **options)  # type: ignore[arg-type]
    more = ", ()" * 400  # so that the new log is longer than the old one was
    with fake.serve() as served:
        ours = MySQLSource(host=served.host, port=served.port, **options)  # type: ignore[arg-type]
        # Whether MariaDB notices a log that is longer, or of a later one than the first that it is gone, is a matter of luck.
        steps = (["reset"], ["reset", ""], ["reset", "rotate", ""], ["reset", "", "rotate", ""], ["reset", more])
        for before in (["", ""], ["", "rotate", ""])[: 1 + (server.kind == "mysql")]:
            for after in steps[: 4 + (server.kind == "mysql")]:
                expected = under_a_reset(real, on_server, before, after)
                assert under_a_reset(ours, on_fake, before, after) == expected, (before, after)


# -- faults ------------------------------------------------------------------------------------------------------------


def test_faults_happen_once_and_in_turn(fake: FakeBinlog) -> None:
    orders = shop(fake)
    for number in range(3):
        orders.insert({"id": number})
    whole = drain(dump(fake))
    opening = 3 if fake.flavor == "mysql" else 4
    fake.fail(2, Cut())
    fake.fail(1, Corrupt(20))
    fake.fail(0, ErrorPacket(1236, "Could not find first log file name in binary log index file"))
    fake.fail(3, Repeat(2))
    fake.fail(1, Stall(1.5))

    first = dump(fake)
    assert len(first.read(0) or []) == opening + 2
    with pytest.raises(ConnectionLostError):
        first.read(0)
    second = dump(fake)
    got = second.read(0) or []
    assert got[: opening + 1] == whole[: opening + 1]
    differing = [place for place, (a, b) in enumerate(zip(got[-1], whole[len(got) - 1], strict=True)) if a != b]
    assert differing == [20]
    with pytest.raises(PositionLostError):
        second.read(0)
    third = dump(fake)
    begun = third.read(0) or []
    stop = opening + 3
    assert begun[:stop] == whole[:stop]
    assert begun[stop:] == [*whole[stop - 2 : stop], whole[stop]]
    assert third.read(0) == []
    assert third.read(60) == whole[stop + 1 :]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("fault", [Cut(), Cut(inside=True), ErrorPacket(1234, "as ordered")])
def test_faults_reach_a_client_of_the_served_log(fake: FakeBinlog, fault: Any) -> None:
    shop(fake).insert(FIRST)
    fake.fail(2, fault)
    with fake.serve() as served:
        stream = reader(fake, served.host, served.port, blocking=True)
        if isinstance(fault, ErrorPacket):
            with pytest.raises(pymysql.err.MySQLError, match="as ordered"):
                next(iter(stream))
        else:  # it connects again by itself
            assert next(iter(stream)).rows[0]["values"] == FIRST
            assert sum(query.startswith("SHOW GLOBAL VARIABLES") for query in served.queries) == 2
        stream.close()


# -- a consumer's test -------------------------------------------------------------------------------------------------


def test_a_consumer_in_ten_lines(fake_binlog: FakeBinlog, canal_instance: Any) -> None:
    orders = fake_binlog.table("shop", "orders", "id INT PRIMARY KEY, price DECIMAL(10,2)")
    instance = canal_instance(fake_binlog, filter=r"shop\..*")
    orders.insert({"id": 1, "price": Decimal("9.99")})
    message = instance.get_without_ack(batch_size=10, timeout=60)
    prices = [row.after["price"] for entry in message.entries for row in entry.rows]
    instance.ack(message.id)
    assert prices == [Decimal("9.99")]
