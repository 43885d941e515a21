"""The files of running servers, while these rotate, purge and reset their logs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line, Pairing
from tests.support.live import end_of_log, ids_of, is_since, reset_log, source, wait_for_relay

pytestmark = [pytest.mark.every_line, pytest.mark.needs("plain_files")]


@pytest.fixture
def server(own_server: ThrowawayServer) -> ThrowawayServer:
    own_server.query("CREATE DATABASE d")
    own_server.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
    reset_log(own_server)
    return own_server


def insert(server: ThrowawayServer, first: int, count: int) -> list[int]:
    """So many transactions of one row each."""
    with server.connect() as connection, connection.cursor() as cursor:
        for number in range(first, first + count):
            cursor.execute("INSERT INTO d.t VALUES (%s)", (number,))
    return list(range(first, first + count))


def rotate(server: ThrowawayServer) -> str:
    server.query("FLUSH LOGS")
    return end_of_log(server).journal


@contextmanager
def reading(path: Path, **options: Any) -> Iterator[canal.Instance]:
    follow = options.pop("follow", False)
    config = canal.InstanceConfig(
        destination="files",
        start="earliest",
        filter=r"d\.t",
        reconnect_backoff=(0.01, 0.05),
        source=canal.LocalBinlogSource(path, follow=follow, poll_interval=0.001, schema={"d.t": "id INT PRIMARY KEY"}),
        **options,
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        yield instance


def read(instance: canal.Instance, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        message = instance.get(1000, timeout=60)
        assert message, found
        found += ids_of(message)
    return found


def index_of(server: ThrowawayServer) -> Path:
    return server.binlog_dir / (end_of_log(server).journal.rpartition(".")[0] + ".index")


@pytest.mark.every_line(always=True)
def test_a_missing_file(server: ThrowawayServer, tmp_path: Path) -> None:
    expected = []
    for number in range(4):
        expected += insert(server, 10 * number, 3)
        rotate(server)
    shutil.copytree(server.binlog_dir, tmp_path / "copy", ignore=lambda _, names: {n for n in names if "bin" not in n})
    index = tmp_path / "copy" / index_of(server).name
    with reading(index) as instance:
        assert [one for message in instance.stream(100) for one in ids_of(message)] == expected
    (tmp_path / "copy" / Path(index.read_text().split()[1]).name).unlink()
    index.write_text("".join(line + "\n" for line in index.read_text().split() if (index.parent / Path(line).name).exists()))

    found: list[int] = []
    with reading(index) as instance, pytest.raises(canal.PositionLostError) as caught:
        for message in instance.stream(100):
            found += ids_of(message)

    assert found == expected[:3]
    assert caught.value.reason is canal.errors.LostReason.GAP
    assert caught.value.behind.journal.endswith("3")


def test_logs_are_followed_through_rotations_and_purges(server: ThrowawayServer) -> None:
    """MySQL has its index away for a moment at each of them."""
    with reading(index_of(server), follow=True) as instance:
        for number in range(60):
            expected = insert(server, number, 1)
            assert read(instance, 1) == expected
            server.query("PURGE BINARY LOGS TO %s", rotate(server))


def test_a_log_that_is_purged_before_it_is_read(server: ThrowawayServer) -> None:
    expected = insert(server, 0, 3)
    with reading(index_of(server), follow=True, store_entries=4) as instance:
        found = ids_of(instance.get(1, timeout=60))
        for number in (10, 20, 30):
            rotate(server)
            insert(server, number, 3)
        newest = end_of_log(server).journal
        while server.query("SHOW BINARY LOGS")[0][0] != newest:  # MariaDB keeps those that a crash would need, for a moment
            server.query("PURGE BINARY LOGS TO %s", newest)
        with pytest.raises(canal.PositionLostError) as caught:
            while message := instance.get(100, timeout=60):
                found += ids_of(message)
    assert found == expected
    assert caught.value.reason is canal.errors.LostReason.GAP


def test_a_log_that_is_reset_under_the_reader(server: ThrowawayServer) -> None:
    """Once more rows than before come at once."""
    with reading(index_of(server), follow=True, on_lost="earliest", dump_error_threshold=0) as instance:
        expected = insert(server, 0, 3)
        assert read(instance, 3) == expected
        reset_log(server)
        expected = insert(server, 100, 60)
        assert read(instance, 60) == expected


def test_the_log_of_another_name(server: ThrowawayServer, tmp_path: Path) -> None:
    """Two series in one directory are two logs."""
    insert(server, 0, 1)
    for name in ("a.000001", "b.000002"):
        shutil.copy(server.binlog_dir / end_of_log(server).journal, tmp_path / name)
    with pytest.raises(canal.ConfigError, match=r"a\.\*, b\.\*"), reading(tmp_path):
        pass


def test_relay_logs_are_refused(pairing: Pairing) -> None:
    """Old replicas mark those only that a connection to the source begins with; in the others offsets do not fit."""
    with pairing.pair() as (first, second):
        first.query("CREATE DATABASE d")
        rotate(first)
        first.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
        wait_for_relay(second, first)
        second.query("FLUSH LOGS")
        first.query("CREATE DATABASE e")
        wait_for_relay(second, first)
        second.stop_replication()  # which deletes those that it has done
        found = sorted(second.data_dir.glob("relay.0*"))
        assert found
        error = "this is a replica's relay log"
        if not is_since(second, mysql=(5, 6), mariadb=(10, 5)):
            error += "|bytes are missing"
        for path in found:
            with pytest.raises(canal.DecodeError, match=error), reading(path) as instance:
                list(instance.stream(100))


#: As rows are on a server that keeps names in lower case, with what makes them.
IN_SEVERAL_CASES: list[tuple[str, dict[str, int | None] | None]] = [
    ("CREATE DATABASE Shop", None),
    ("USE shop", None),
    ("CREATE TABLE orders (a INT, b INT)", None),
    ("INSERT INTO Orders (a, b) VALUES (1, 2)", {"a": 1, "b": 2}),
    ("ALTER TABLE Orders MODIFY b INT FIRST", None),
    ("INSERT INTO Orders (a, b) VALUES (3, 4)", {"b": 4, "a": 3}),
    ("ALTER TABLE SHOP.ORDERS ADD c INT FIRST", None),
    ("INSERT INTO Orders (a, b) VALUES (5, 6)", {"c": None, "b": 6, "a": 5}),
    ("RENAME TABLE Orders TO Olders", None),
    ("CREATE TABLE IF NOT EXISTS OLDERS (x INT, y INT)", None),
    ("CREATE TABLE orders LIKE Shop.OLDERS", None),
    ("INSERT INTO Olders (a, b) VALUES (7, 8)", {"c": None, "b": 8, "a": 7}),
    ("CREATE TEMPORARY TABLE Orders (z INT, y INT, x INT)", None),
    ("ALTER TABLE orders MODIFY x INT FIRST", None),
    ("DROP TEMPORARY TABLE ORDERS", None),
    ("INSERT INTO Orders (a, b) VALUES (9, 10)", {"c": None, "b": 10, "a": 9}),
]


@pytest.fixture
def folding_server(line: Line) -> Iterator[ThrowawayServer]:
    """A server that keeps names in lower case, and whose log names no columns."""
    minimal = ("--binlog-row-metadata=MINIMAL",) if line.can("full_metadata") else ()
    with line.server("--lower-case-table-names=1", *minimal) as server, server.connect() as session, session.cursor() as cursor:
        reset_log(server)
        for sql, _ in IN_SEVERAL_CASES:
            cursor.execute(sql)
        yield server


def rows_of_files(server: ThrowawayServer, alarms: list[str], **options: Any) -> list[dict[str, Any]]:
    """All rows, one restart with a schema history behind each."""
    source = canal.LocalBinlogSource(index_of(server), **options)
    history, meta = canal.parse.MemoryHistory(), canal.MemoryMeta()
    found: list[dict[str, Any]] = []
    while True:
        config = canal.InstanceConfig(
            destination="files",
            start="earliest",
            filter=r"shop\..*",
            source=source,
            schema_history=history,
            meta=meta,
            alarm=lambda destination, text: alarms.append(text),
            store_entries=2,
        )
        with canal.Instance(config) as instance:
            instance.subscribe()
            for message in instance.stream(1):
                rows = [row.after.as_dict() for entry in message.entries for row in entry.rows]
                found += rows
                if rows:
                    instance.ack(message.id)
                    break
            else:
                return found


def test_names_in_several_cases(folding_server: ThrowawayServer) -> None:
    """The files do not tell that the server takes them for one: it is given, or asked of a server, or columns have no names."""
    expected = [row for _, row in IN_SEVERAL_CASES if row is not None]
    alarms: list[str] = []

    assert rows_of_files(folding_server, alarms, lower_case_table_names=1) == expected
    given = {"Shop.ORDERS": "a int, b int"}
    assert rows_of_files(folding_server, alarms, lower_case_table_names=1, schema=given) == expected
    assert rows_of_files(folding_server, alarms, schema=source(folding_server)) == expected
    assert not alarms

    for options in ({}, {"schema": given}, {"schema": {"shop.orders": "a int, b int"}}):
        unsure = rows_of_files(folding_server, alarms, **options)
        positions = [{f"@{number}": value for number, value in enumerate(row.values(), 1)} for row in expected]
        assert unsure == [row if row == one else position for row, one, position in zip(unsure, expected, positions)]
        assert unsure[1:] == positions[1:]
        assert any("lower_case_table_names" in alarm for alarm in alarms)
        alarms.clear()
