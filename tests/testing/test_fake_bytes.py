"""The bytes of the fake binlog are those that a real server logs."""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest

from canal.errors import PositionLostError, SourceError
from canal.parse.log.events import parse_gtid_list, parse_previous_gtids
from canal.parse.source.mysql import MySQLSource
from canal.position import Position
from canal.testing.fake import FakeBinlog
from canal.testing.servers import ThrowawayServer
from tests.support.fakes import ROWS_EVENTS, kinds
from tests.support.live import is_since

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


def numbers(sizes: list[tuple[int, int]], sign: str, least: bool) -> dict[str, Decimal]:
    def text(precision: int, scale: int) -> str:
        return (
            "1"
            if least and not scale
            else "0." + "0" * (scale - 1) + "1"
            if least
            else ("9" * (precision - scale) + ("." + "9" * scale if scale else ""))
        )

    return {f"d{index}": Decimal(sign + text(*size)) for index, size in enumerate(sizes)}


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
        ", ".join(f"d{index} DECIMAL({a},{b})" for index, (a, b) in enumerate(DECIMALS)),
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
            "s SET(" + ",".join(f"'m{index}'" for index in range(n)) + ")",
            [{"s": ""}, {"s": "m0"}, {"s": ",".join(f"m{index}" for index in range(n))}, {"s": f"m{n - 1}"}],
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
            f"c CHAR({n}) CHARACTER SET {charset}, v VARCHAR({n}) CHARACTER SET {charset}, b BINARY({n}), w VARBINARY({n})",
            [
                {"c": "é" * n, "v": "é" * n, "b": b"\xff" * n, "w": b"\xfe" * n},
                {"c": "", "v": "", "b": bytes(n), "w": b""},
                {"c": "a ", "v": "a ", "b": b"a".ljust(n, b"\0"), "w": b"a\0"},
            ],
        )
        for n in (2, 63, 64, 127, 128, 255)
        for charset in ("latin1", "utf8mb3", "utf8mb4", "utf16")
    },
    "blobs": (
        "a TINYTEXT, b TEXT, c MEDIUMTEXT, d LONGTEXT, e TINYBLOB, f BLOB, g MEDIUMBLOB, h LONGBLOB",
        [
            {
                "a": "é" * 127,
                "b": "é" * 32767,
                "c": "x" * 70000,
                "d": "y" * 70001,
                "e": bytes(255),
                "f": b"\1" * 65535,
                "g": b"\2" * 65536,
                "h": b"\3" * 65537,
            },
            dict.fromkeys("abcd", "") | dict.fromkeys("efgh", b""),
            dict.fromkeys("abcdefgh"),
        ],
    ),
    **{
        f"text in {charset}": (
            f"v VARCHAR(20) CHARACTER SET {charset}, c CHAR(7) CHARACTER SET {charset}, t TEXT CHARACTER SET {charset}",
            [{"v": text, "c": text, "t": text}],
        )
        for charset, text in (
            ("gbk", "中文"),
            ("gb2312", "中文"),
            ("big5", "中文"),
            ("sjis", "漢"),
            ("cp932", "漢字"),
            ("ujis", "漢字"),
            ("euckr", "한글"),
            ("latin2", "ą"),
            ("latin5", "ş"),
            ("latin7", "ą"),
            ("greek", "α"),
            ("hebrew", "א"),
            ("cp1250", "ž"),
            ("cp1251", "я"),
            ("cp1256", "ع"),
            ("cp1257", "ą"),
            ("cp850", "é"),
            ("cp852", "ž"),
            ("cp866", "я"),
            ("koi8r", "я"),
            ("koi8u", "ї"),
            ("tis620", "ก"),
            ("ascii", "a"),
            ("utf16le", "é€"),
            ("utf32", "é"),
            ("utf16", "é😀"),
            ("latin1", "é€\x81"),
            ("ucs2", "é"),
            ("eucjpms", "漢"),
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
        ", ".join(f"c{index} TINYINT" + (" NOT NULL" if index % 3 == 0 else "") for index in range(300)),
        [{f"c{index}": index % 100 if index % 5 or index % 3 == 0 else None for index in range(300)}],
    ),
    "statement of 2000 rows": (
        "id INT PRIMARY KEY, v VARCHAR(200)",
        [{"id": index, "v": "x" * (index % 200)} for index in range(2000)],
    ),
    "rows larger than an event": ("id INT, v LONGTEXT", [{"id": n, "v": "x" * 9000 * (n % 3)} for n in range(6)]),
}


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
    "{}",
    "[]",
    "null",
    "true",
    "0",
    "-1",
    "32767",
    "32768",
    "-32768",
    "-32769",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1.5",
    "1e300",
    '"x"',
    '"é😀"',
    '""',
    json.dumps("x" * 127),
    json.dumps("x" * 128),
    json.dumps("y" * 20000),
    '{"bb":1,"a":2,"ab":3,"":4,"é":5}',
    '[32767,32768,65535,70000,-40000,4294967295,1.5,null,true,false,"s"]',
    '[1,[2,[3,{"a":[{}]}]]]',
    json.dumps(list(range(70000, 90000))),
    json.dumps({f"k{n}": n for n in range(9000)}),
    json.dumps(["x" * 70000, {"a": 1, "b": [1, 2, 40000]}]),
    json.dumps([True, -1, 70000, None, "z" * 66000]),
    *(json.dumps({"a": "x" * size, "n": 40000}) for size in range(65500, 65520, 3)),
]


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
    for number, (on_server, on_fake) in enumerate(
        (
            (lambda: server.query(reset), fake.reset),
            (lambda: server.query("FLUSH BINARY LOGS"), fake.rotate),
            (server.restart, fake.restart),
            (lambda: (server.kill(), server.start()), fake.crash),
            (lambda: server.query("FLUSH BINARY LOGS"), fake.rotate),
            (lambda: server.query(reset), fake.reset),
        )
    ):
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
