"""What an Instance tells of a real server: distances, idleness, and a server that is killed and comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import canal
from canal import AlarmKind, State
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.live import Watch, end_of_log, source


def wait_until(instance: canal.Instance, done: Callable[[canal.InstanceStatus], Any]) -> canal.InstanceStatus:
    deadline = time.monotonic() + 60
    while not done(status := instance.status()):
        assert time.monotonic() < deadline, status
        time.sleep(0.05)
    return status


def test_distances_are_those_that_the_server_tells(line: Line, server: ThrowawayServer, database: str) -> None:
    with Watch(server, rf"{database}\..*") as watch:
        watch.run(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
        start = end_of_log(server)
        watch.read()
        watch.run(*[f"INSERT INTO `{database}`.t VALUES ({number})" for number in range(5)])
        end = end_of_log(server)
        wait_until(watch.instance, lambda status: status.clients[0].unacked_transactions == 5)
        got = watch.instance.get_without_ack(3, timeout=60)
        watch.instance.ack(got.id)
        status = watch.instance.status(60.0)

    (client,) = status.clients
    assert status.parser is not None
    assert status.parser.end is not None
    assert (client.acked.journal, start.journal, end.journal) == (end.journal,) * 3
    assert client.lag.bytes == end.offset - client.acked.offset
    assert client.unacked_transactions == 2
    assert (client.lag.transactions, status.lag.transactions) == ((2, 0) if line.can("gtid") else (None, None))
    assert status.lag.bytes == 0
    assert status.parser.end.journals[-1] == (end.journal, end.offset)
    assert status.received is not None
    assert (status.received.journal, status.received.offset) == (end.journal, end.offset)
    assert status.stored is not None
    assert status.stored.offset == end.offset
    assert (status.parser.address, status.parser.identity) == (f"{server.host}:{server.port}", end.source)
    assert abs(status.parser.clock_offset) < 5  # it is this machine's
    assert client.rows_got == 3


@pytest.mark.every_line
def test_an_idle_server_has_no_lag_however_long_it_is_idle(server: ThrowawayServer, database: str) -> None:
    with Watch(server, rf"{database}\..*", source=source(server, heartbeat_interval=0.5)) as watch:
        watch.run(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
        watch.read()
        status = wait_until(watch.instance, lambda status: status.lag.seconds == 0.0)
        in_a_row, deadline = 0, time.monotonic() + 60
        while in_a_row < 25:  # a heartbeat that is late makes a doubt
            assert time.monotonic() < deadline, status
            time.sleep(0.1)
            status = watch.instance.status()
            in_a_row = in_a_row + 1 if (status.lag.seconds, status.clients[0].lag.seconds) == (0.0, 0.0) else 0


def test_a_killed_server_is_one_alarm_and_one_more_when_it_is_back(own_server: ThrowawayServer) -> None:
    alarms: list[Any] = []
    config = canal.InstanceConfig(
        destination="down",
        source=source(own_server, connect_timeout=5.0, heartbeat_interval=2.0),
        reconnect_backoff=(0.05, 0.2),
        alarm=lambda destination, text: alarms.append(text),
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        wait_until(instance, lambda status: status.lag.seconds == 0.0)
        own_server.kill()
        down = wait_until(instance, lambda status: status.parser is not None and status.parser.errors > 5)
        asked = instance.status(5.0)
        worse = wait_until(instance, lambda status: (status.lag.seconds or 0) > (down.lag.seconds or 0))
        told_down = list(alarms)
        own_server.start()
        up = wait_until(instance, lambda status: status.lag.seconds == 0.0 and alarms and alarms[-1].is_over)

    assert down.state in (State.WAITING, State.CONNECTING)
    assert (down.lag.seconds or 0) > 0
    assert worse.last_error is not None
    assert asked.lag.bytes is None
    assert {text.kind for text in alarms} == {AlarmKind.CONNECTION}
    assert len(told_down) <= 3  # how the connection broke, and how it is refused
    assert [text.is_over for text in alarms].count(True) == 1
    assert up.state is State.STREAMING
    assert up.parser is not None
    assert up.parser.reconnects >= 1
