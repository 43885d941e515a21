"""Dumps that a server goes on with though nobody takes them: it blocks in a write for as long as net_write_timeout says."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs
import pytest

import canal
from canal.testing import FaultProxy
from canal.testing.servers import ThrowawayServer
from tests.support.live import Watch, end_of_log, source

#: More than the sockets between a server and a reader hold.
ROWS, ROW_BYTES = 32, 1_000_000
WRITES = ("Writing to net", "Sending to client")


def fill(server: ThrowawayServer, database: str) -> canal.Position:
    """The position before so many rows."""
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, b LONGBLOB)")
    start = end_of_log(server)
    for number in range(ROWS):
        server.query(f"INSERT INTO {database}.t VALUES (%s, REPEAT('x', {ROW_BYTES}))", number)
    return start


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def state_of(server: ThrowawayServer, number: int) -> str | None:
    """What a connection of the server is at; None when there is none."""
    found = [row[6] for row in server.query("SHOW PROCESSLIST") if row[0] == number]
    return found[0] if found else None


def is_blocked(server: ThrowawayServer, number: int) -> bool:
    return all(state_of(server, number) in WRITES for _ in range(50))


@pytest.mark.every_line
@pytest.mark.needs("uncompressed")  # so that it is more than the connection holds
def test_a_reader_comes_back_though_the_server_still_writes_to_the_connection_it_lost(
    server: ThrowawayServer, database: str
) -> None:
    """What forgets one side of a connection keeps the server's: MariaDB after 10.5 begins no other dump meanwhile."""
    start = fill(server, database)
    with FaultProxy(server.host, server.port) as proxy:
        reader = attrs.evolve(source(server), host=proxy.host, port=proxy.port)
        lost = reader.connect()
        lost.dump(start)
        assert lost.read(30.0)
        (number,) = (thread.number for thread in [lost._dump.thread] if thread)
        assert proxy.strand(lost._dump.stream._socket.getsockname()[1])  # type: ignore[union-attr]
        wait(lambda: is_blocked(server, number), "the dump does not block")
        lost.close()

        again = reader.connect()
        again.dump(start)
        try:
            assert again.read(30.0)
            wait(lambda: state_of(server, number) is None, f"the server still has connection {number}")
        finally:
            again.close()


@pytest.mark.every_line
@pytest.mark.lines("mariadb>=10.6")
@pytest.mark.needs("uncompressed")
def test_a_reader_that_waits_for_another_one_with_its_server_id_says_so(server: ThrowawayServer, database: str) -> None:
    start = fill(server, database)
    first = source(server, server_id=4711).connect()
    first.dump(start)
    assert first.read(30.0)
    assert first._dump.thread is not None
    wait(lambda: is_blocked(server, first._dump.thread.number), "the dump does not block")  # type: ignore[union-attr]
    reader = source(server, server_id=4711, check_interval=0.1)
    with Watch(server, rf"{database}\..*", source=reader, start=start, reconnect_backoff=(0.02, 0.1)) as watch:
        wait(lambda: bool(watch.alarms), "there is no alarm")
        assert "an earlier dump with our server id 4711 ends" in watch.alarms[0]
        assert str(first._dump.thread) in watch.alarms[0]
        assert watch.instance.status().state is canal.State.SEEKING

        with pytest.raises(canal.errors.ServerError, match="uses our server id 4711"):
            while True:
                first.read(30.0)
        first.close()
        assert sum(len(entry.rows) for entry in watch.read() if entry.entry_type is canal.EntryType.ROWDATA) == ROWS
        wait(lambda: len(watch.alarms) > 1, "the alarm is never over")
        assert [alarm.is_over for alarm in watch.alarms] == [False, True]  # type: ignore[attr-defined]
