"""Logs with checksums, without them, and changing between the two: each kind of start gives what was written behind it."""

from __future__ import annotations

import pytest

import canal
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.live import Watch, end_of_log, rows_of, source

OTHER = {"NONE": "CRC32", "CRC32": "NONE"}
TABLE = "CREATE TABLE s.t (id INT PRIMARY KEY)"


class Log:
    """Transactions of one row each, and the position of the server before each of them."""

    def __init__(self, server: ThrowawayServer) -> None:
        self.server = server
        self.begins: list[canal.Position] = []
        server.query("CREATE DATABASE s")
        server.query(TABLE)

    def write(self) -> None:
        begin = end_of_log(self.server)
        self.server.query("INSERT INTO s.t VALUES (%s)", len(self.begins))
        self.begins.append(begin)

    def rows(self, first: int = 0) -> list[int]:
        return list(range(first, len(self.begins)))


def read(log: Log, start: str | canal.Position, wanted: list[int], files: canal.LocalBinlogSource | None = None) -> list[int]:
    """The ids that come from a start on, of the server or of its files: as many as are wanted."""
    config = canal.InstanceConfig(
        destination="checksums", source=files or source(log.server), start=start, filter=r"s\.t", reconnect_backoff=(0.02, 0.1)
    )
    found: list[int] = []
    with canal.Instance(config) as instance:
        instance.subscribe()
        while len(found) < len(wanted):
            entries = instance.get(1000, timeout=30.0).entries
            assert entries, f"{found} came from {start}"
            found += [row[3][0] for row in rows_of(entries) if row[3]]  # the rest are statements
    return found


def switch(server: ThrowawayServer, setting: str) -> None:
    server.query(f"SET GLOBAL binlog_checksum = {setting}")


@pytest.mark.every_line
@pytest.mark.needs("checksum")
@pytest.mark.parametrize("first", ["NONE", "CRC32"])
@pytest.mark.needs("plain_files")
def test_every_start_in_a_log_with_and_without_checksums(line: Line, first: str) -> None:
    """For a dump from the middle of a log servers change the FORMAT_DESCRIPTION, whose own checksum they do not always renew."""
    second = OTHER[first]
    with line.server(f"--binlog-checksum={first}") as server:
        log = Log(server)
        log.write()
        switch(server, second)
        log.write()
        server.query("FLUSH LOGS")
        log.write()
        switch(server, first)
        log.write()
        server.kill()
        server.start()
        log.write()
        log.write()
        files = canal.LocalBinlogSource(server.binlog_dir, schema=TABLE)

        assert read(log, "earliest", log.rows()) == log.rows()
        assert read(log, canal.Position(timestamp=10**12), log.rows()) == log.rows()
        for number, begin in enumerate(log.begins):
            position = canal.Position(begin.journal, begin.offset)
            assert read(log, position, log.rows(number)) == log.rows(number)
            assert read(log, position, log.rows(number), files) == log.rows(number)
            if begin.gtid:
                assert read(log, canal.Position(gtid=begin.gtid), log.rows(number)) == log.rows(number)


@pytest.mark.every_line
@pytest.mark.needs("checksum")
def test_checksums_go_on_and_off_while_the_log_is_followed(own_server: ThrowawayServer) -> None:
    (first,) = own_server.query("SELECT @@global.binlog_checksum")[0]
    log = Log(own_server)
    with Watch(own_server, r"s\.t") as watch:
        for setting in (OTHER[first], first, OTHER[first]):
            log.write()
            switch(own_server, setting)
            log.write()

            assert [row[3] for row in rows_of(watch.read())] == [(one,) for one in log.rows()[-2:]]
