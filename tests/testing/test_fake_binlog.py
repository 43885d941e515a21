"""The fake binlog as a log, as a source, and as a server that other readers and tools read."""

from __future__ import annotations

import contextlib
import re
import struct
import subprocess
import threading
import zlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from canal.errors import ConnectionLostError, PositionLostError, ServerError, StateError, UsageError
from canal.position import Position
from canal.testing.fake import Corrupt, Cut, ErrorPacket, FakeBinlog, FakeConnection, FakeTable, Repeat, Stall
from canal.testing.servers import ThrowawayServer
from tests.support.fakes import ROWS_EVENTS, kinds

ORDERS = "id INT UNSIGNED PRIMARY KEY, price DECIMAL(10,2), note VARCHAR(40), status ENUM('new','paid')"
FIRST = {"id": 1, "price": Decimal("9.99"), "note": "é", "status": "new"}
FLAVORS = ("mysql", "mariadb")


@pytest.fixture(params=FLAVORS)
def fake(request: pytest.FixtureRequest) -> Iterator[FakeBinlog]:
    with FakeBinlog(request.param) as made:
        yield made


def shop(fake: FakeBinlog) -> FakeTable:
    return fake.table("shop", "orders", ORDERS)


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
    [
        "a GEOGRAPHY",
        "a INT DEFAULT 3",
        "a INT AS (1) VIRTUAL",
        "a INT ZEROFILL",
        "a INT,",
        "a VARCHAR",
        "a ENUM",
        "a DECIMAL(66,0)",
        "a INT; b INT",
        "a VARCHAR(9) CHARACTER SET klingon",
        "a INT, PRIMARY KEY (b)",
        "",
    ],
)
def test_columns_that_are_not_understood_are_refused(columns: str) -> None:
    with pytest.raises(UsageError):
        FakeBinlog().table("shop", "orders", columns)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("TINYINT", 128),
        ("TINYINT UNSIGNED", -1),
        ("DECIMAL(3,1)", Decimal("1.25")),
        ("DECIMAL(3,1)", 100),
        ("VARCHAR(2)", "abc"),
        ("VARCHAR(2) CHARACTER SET latin1", "я"),
        ("ENUM('a')", "b"),
        ("SET('a')", "a,b"),
        ("BIT(3)", 8),
        ("DATETIME", "2024-01-01 00:00:00.5"),
        ("TIME", "839:00:00"),
        ("DATE", "today"),
        ("YEAR", 1900),
        ("JSON", "{"),
        ("BLOB", "text"),
        ("INT NOT NULL", None),
        ("FLOAT", 1e300),
        ("DOUBLE", "x"),
    ],
)
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
        connection_settings={"host": host, "port": port, "user": "any", "passwd": "any"},
        server_id=9,
        slave_heartbeat=0.1,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        resume_stream=True,
        **start,
        **options,
    )


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
    overhead = len(next(event for event in fake.events() if event[4] in ROWS_EVENTS))  # the OK byte for that of "-"
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
                "SELECT column_name, column_type FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
                ("shop", "orders"),
            )
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
    assert struct.unpack_from("<I", events[1], 13)[0] == 0  # an end of 0: not a position in the log
    assert struct.unpack_from("<I", events[1], 71)[0] == 0
    again = opening + ([161] if fake.flavor == "mariadb" else [])
    body = [33, 2, 19, 32, 16] if fake.flavor == "mysql" else [162, 19, 25, 16]
    assert kinds(events) == [4, 15, *body, 4, 4, *again]
    for event in events:
        assert struct.unpack("<I", event[-4:])[0] == zlib.crc32(event[:-4])


def test_a_dump_by_gtid_leaves_out_what_is_done(fake: FakeBinlog) -> None:
    orders = shop(fake)
    positions = []
    for number in range(3):
        orders.insert({"id": number})
        positions.append(fake.position.gtid)
    fake.rotate()
    orders.insert({"id": 3})

    writes = [sum(event[4] in ROWS_EVENTS for event in drain(dump(fake, Position(gtid=gtid)))) for gtid in positions]
    assert writes == [3, 2, 1]
    assert kinds(drain(dump(fake, Position(gtid=positions[0]))))[3 if fake.flavor == "mysql" else 4] in (27, 163)
    fake.purge("binlog.000002")
    with pytest.raises(PositionLostError):
        dump(fake, Position(gtid=positions[0]))
    assert fake.resolve("earliest").gtid == positions[2]


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
    differing = [position for position, (a, b) in enumerate(zip(got[-1], whole[len(got) - 1], strict=True)) if a != b]
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
