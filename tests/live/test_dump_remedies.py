"""Remedies of errors that end a dump, each followed on a server: afterwards the rest of the rows comes, and none is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal import Position
from canal.errors import GO_ON_AFTER, ServerError, SourceError
from canal.parse.source.server_errors import MEANINGS
from canal.testing.servers import ThrowawayServer
from tests.support.live import end_of_log, ids_of, source
from tests.support.waiting import until

#: Offset of the length in the header of an event.
LENGTH = 9


class Table:
    """A table with one row in each transaction, and an instance that reads it from a cursor on disk."""

    def __init__(self, server: ThrowawayServer, folder: Path) -> None:
        self.server = server
        self.meta = folder / "meta"
        server.query("CREATE DATABASE IF NOT EXISTS d")
        server.query("DROP TABLE IF EXISTS d.t")
        server.query("CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB)")
        self.begin = self.rotate()

    def write(self, count: int, size: int = 1) -> None:
        for _ in range(count):
            self.server.query("INSERT INTO d.t (b) VALUES (REPEAT('x', %s))", size)

    def rotate(self) -> Position:
        """Begin a log; return the position at which it begins, without GTIDs."""
        self.server.query("FLUSH LOGS")
        found = end_of_log(self.server)
        return Position(journal=found.journal, offset=found.offset)

    @property
    def identity(self) -> str:
        connection = source(self.server).connect()
        connection.close()
        return connection.identity

    def path(self, position: Position) -> Path:
        return self.server.binlog_dir / position.journal

    def inserts(self, journal: str) -> list[int]:
        """The offsets of the events with rows."""
        events = self.server.query(f"SHOW BINLOG EVENTS IN '{journal}'")
        return [int(row[1]) for row in events if row[2].startswith("Write_rows")]

    def instance(self, start: Any = None, reader: canal.MySQLSource | None = None) -> canal.Instance:
        config = canal.InstanceConfig(
            destination="x",
            source=reader or source(self.server),
            start=start or self.begin,
            filter=r"d\.t",
            meta=canal.FileMeta(self.meta),
            alarm=lambda destination, text: None,
        )
        return canal.Instance(config)

    def read(self, last: int, **options: Any) -> list[int]:
        """The ids up to ``last``, acknowledged."""
        with self.instance(**options) as instance:
            instance.subscribe()
            return read(instance, last)

    def unsubscribe(self, remedy: str) -> None:
        assert "start= counts only without a stored cursor: unsubscribe() deletes it" in remedy
        with self.instance() as instance:
            instance.unsubscribe()

    def fails(self, error: type[SourceError], name: str, **options: Any) -> str:
        """Return the remedy of the error with which reading ends; it is the one of this row of the table."""
        with pytest.raises(error) as caught:
            self.read(1 << 30, **options)
        remedy = next(row.remedy for row in MEANINGS if row.name == name)
        assert remedy
        assert caught.value.remedy.startswith(remedy.split("{")[0])
        return caught.value.remedy


def read(instance: canal.Instance, last: int) -> list[int]:
    found: list[int] = []
    while last not in found:
        message = instance.get_without_ack(10, timeout=10)
        assert message, f"only {found} came"
        found += ids_of(message)
        instance.ack(message)
    return found


@pytest.fixture
def table(module_server: ThrowawayServer, tmp_path: Path) -> Table:
    return Table(module_server, tmp_path)


def statement(remedy: str, pattern: str) -> str:
    found = re.search(pattern, remedy)
    assert found is not None, remedy
    return found[0]


@pytest.mark.lines("mariadb")  # MySQL goes by the UUID, of which each instance has its own
def test_server_id_twice_remedy_is_an_id_of_its_own(table: Table, tmp_path: Path) -> None:
    table.write(1)
    same = source(table.server, server_id=77)
    config = attrs.evolve(table.instance(reader=same).config, meta=canal.FileMeta(tmp_path / "other"))
    with table.instance(reader=same) as first:
        first.subscribe()
        assert read(first, 1) == [1]
        with canal.Instance(config) as second:
            second.subscribe()
            table.write(1)
            with pytest.raises(ServerError) as caught:
                read(first, 3)
            assert "server id 77: give each a different server_id" in caught.value.remedy
            first.stop()

            assert table.read(2, reader=source(table.server, server_id=78))[-1] == 2
            table.write(1)
            assert read(second, 3) == [1, 2, 3]


@pytest.mark.lines("mariadb")  # MySQL says the same of it as of a purged log
def test_removed_log_remedy_is_to_put_it_back(table: Table) -> None:
    start = end_of_log(table.server)
    table.write(2)
    path = table.path(start)
    table.rotate()
    table.write(1)
    away = path.rename(path.with_name("away"))
    assert "Restore that log" in table.fails(canal.PositionLostError, "log removed", start=start)

    away.rename(path)

    assert table.read(3, start=start) == [1, 2, 3]


def test_no_event_there_remedy_is_the_begin_of_a_transaction(table: Table) -> None:
    table.write(1, 500)
    begin = end_of_log(table.server).offset
    table.write(1, 500)
    journal, identity = table.begin.journal, table.identity
    inside = Position(journal=journal, offset=table.inserts(journal)[-1] + 200, source=identity)
    remedy = table.fails(canal.PositionLostError, "no event there", start=inside)
    assert "start at the beginning of a transaction" in remedy
    table.unsubscribe(remedy)

    assert table.read(2, start=Position(journal=journal, offset=begin, source=identity)) == [2]


@pytest.mark.parametrize("damage", ["large length", "no magic"])
def test_damaged_log_remedy_is_to_seek_behind_it(table: Table, damage: str) -> None:
    table.write(1)
    assert table.read(1) == [1]
    table.write(2)
    if damage == "no magic":
        table.begin = table.rotate()
    table.write(1)
    after = table.rotate()
    table.write(2)
    path = table.path(table.begin)
    whole = path.read_bytes()
    at = 0 if damage == "no magic" else table.inserts(path.name)[2] + LENGTH
    path.write_bytes(whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :])
    with table.instance() as instance:
        instance.subscribe()
        with pytest.raises(ServerError) as caught:
            read(instance, 4)
        assert caught.value.remedy.endswith(GO_ON_AFTER)
        assert "log is damaged" in caught.value.remedy
        instance.seek(1001, after)

    try:
        assert table.read(6) == [5, 6]
    finally:
        path.write_bytes(whole)


def test_unreadable_log_remedy_is_to_check_it_and_start_again(table: Table) -> None:
    table.write(1)
    assert table.read(1) == [1]
    path = table.path(table.rotate())
    table.write(1)
    table.rotate()
    table.write(1)
    whole = path.read_bytes()
    path.write_bytes(b"")
    assert "disk is damaged. Check it, then start again" in table.fails(ServerError, "log not readable")

    path.write_bytes(whole)

    assert table.read(3) == [2, 3]


def switch_gtids(server: ThrowawayServer, on: bool) -> None:
    steps = ["OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"] if on else ["ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"]
    for step in steps:
        server.query(f"SET GLOBAL gtid_mode = {step}")


@pytest.mark.lines("mysql>=8.0")
def test_transactions_without_gtids_remedy_is_a_permissive_mode(table: Table) -> None:
    server = table.server
    switch_gtids(server, on=False)
    start = table.rotate()
    table.write(1)
    assert table.read(1, start=start) == [1]
    table.write(1)
    switch_gtids(server, on=True)
    table.write(1)
    remedy = table.fails(ServerError, "anonymous transaction, gtid_mode=ON")

    server.query(statement(remedy, r"SET GLOBAL gtid_mode = ON_PERMISSIVE"))
    assert table.read(3) == [2, 3]
    server.query("SET GLOBAL gtid_mode = ON")
    table.write(1)
    assert table.read(4) == [4]


@pytest.mark.lines("mysql>=8.0")
def test_transactions_with_gtids_remedy_is_a_permissive_mode(table: Table) -> None:
    server = table.server
    table.write(2)
    switch_gtids(server, on=False)
    try:
        table.write(1)
        remedy = table.fails(ServerError, "GTID transaction, gtid_mode=OFF")

        server.query(statement(remedy, r"SET GLOBAL gtid_mode = OFF_PERMISSIVE"))
        assert table.read(3) == [1, 2, 3]
        server.query("SET GLOBAL gtid_mode = OFF")
        table.write(1)
        assert table.read(4) == [4]
    finally:
        switch_gtids(server, on=True)


@pytest.mark.lines("mysql>=8.0")
def test_transactions_without_gtids_behind_a_gtid_set_remedy_is_journal_and_offset(table: Table) -> None:
    server = table.server
    executed = server.query("SELECT @@GLOBAL.gtid_executed")[0][0].replace("\n", "")
    table.write(1)
    switch_gtids(server, on=False)
    table.write(1)
    switch_gtids(server, on=True)
    table.write(1)
    connection = source(server).connect()
    connection.dump(Position(gtid=executed))
    with pytest.raises(ServerError) as caught:
        until(lambda: connection.read(0.2) is None)
    connection.close()
    remedy = caught.value.remedy
    assert "Start from a journal and an offset" in remedy

    server.query(statement(remedy, r"SET GLOBAL gtid_mode = ON_PERMISSIVE"))
    assert table.read(3) == [1, 2, 3]
    server.query("SET GLOBAL gtid_mode = ON")


@pytest.mark.lines("mysql>=8.0")
def test_gtids_switched_off_before_a_dump_is_tried_again(table: Table) -> None:
    table.write(1)
    connection = source(table.server).connect()
    switch_gtids(table.server, on=False)
    try:
        with pytest.raises(canal.ConnectionLostError, match=r"(?i)auto_position"):
            connection.dump(Position(gtid=f"{table.server.query('SELECT @@server_uuid')[0][0]}:1"))
            until(lambda: connection.read(0.2) is None)
    finally:
        connection.close()
        switch_gtids(table.server, on=True)


@pytest.mark.nightly  # for its restart
@pytest.mark.lines("mysql>=8.0")  # MariaDB takes 0
def test_server_without_id_remedy_is_a_server_id(table: Table) -> None:
    table.write(1)
    table.server.query("SET GLOBAL server_id = 0")
    assert "log_bin and a server_id in the server's configuration, and restart it" in table.fails(ServerError, "no log")

    table.server.restart()

    assert table.read(1) == [1]


@pytest.mark.lines("mysql<5.6")
@pytest.mark.every_line
def test_large_event_remedy_is_max_allowed_packet(table: Table) -> None:
    table.write(1)
    assert table.read(1) == [1]
    table.write(1, 1 << 20)
    table.server.query("SET GLOBAL max_allowed_packet = 1024")
    assert "up to 1G" in table.fails(ServerError, "event too large")

    table.server.query("SET GLOBAL max_allowed_packet = 1073741824")

    assert table.read(2) == [2]


@pytest.mark.lines("mysql<5.6")
@pytest.mark.every_line
def test_no_event_there_without_a_place_remedy_is_the_begin_of_a_transaction(table: Table) -> None:
    table.write(2, 500)
    identity = table.identity
    inside = Position(journal=table.begin.journal, offset=table.inserts(table.begin.journal)[-1] + 200, source=identity)
    remedy = table.fails(canal.PositionLostError, "no event there, from the start", start=inside)
    table.unsubscribe(remedy)

    assert table.read(2) == [1, 2]
