"""Connections that are cut, end, do not answer or are silent, and stops: nothing is lost, repeated or left."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import canal
from canal.testing.fake import FakeBinlog, FakeConnection
from tests.support.instances import instance_of
from tests.support.parsing import flavors, order, rows_of, shop, started


def wait_until(done: Callable[[], bool], timeout: float = 120.0) -> None:
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@flavors
@pytest.mark.parametrize("served", [False, True], ids=["in process", "served"])
@pytest.mark.parametrize(("store_entries", "least"), [(64, 20), (8, 10)], ids=["whole", "in pieces"])
def test_cut_connections_lose_and_repeat_no_changes(flavor: str, served: bool, store_entries: int, least: int) -> None:
    """T8. A transaction in pieces is read by the side first, over a connection that may end before its cut."""
    fake, orders = shop(flavor, row_event_max_size=200)
    expected = []
    rng = random.Random(5)
    number = 0
    for _ in range(30):
        with fake.transaction():
            for _ in range(rng.randint(1, 4)):
                count = rng.randint(1, 12)
                orders.insert(*[order(number + n) for n in range(count)])
                expected += [("INSERT", None, number + n) for n in range(count)]
                number += count
    for _ in range(25):
        fake.cut_after(rng.randint(1, 15), inside=served and rng.random() < 0.5)
    options: dict[str, Any] = {"alarm": lambda destination, text: None, "store_entries": store_entries}

    with fake.serve(user="u", password="p") as server:
        source: Any = fake
        if served:
            source = canal.MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
        with started(fake, **options, source=source) as instance:
            instance.subscribe()
            got: list[tuple[str, Any, Any]] = []
            while len(got) < len(expected):
                message = instance.get_without_ack(7, timeout=30)
                assert message
                got += rows_of(message.entries)
                instance.ack(message.id)

        errors = instance.status().parser.errors  # type: ignore[union-attr]

    assert got == expected
    assert errors >= least


def test_missing_side_connection_is_not_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may have two connections is told what the server said."""
    fake = FakeBinlog()
    monkeypatch.setattr(FakeConnection, "incarnation", lambda self, journal: None)
    fake.table("s", "t", "id INT PRIMARY KEY").insert({"id": 1})
    fake.error_after(3, 1105, "the disk is full")
    with canal.Instance(canal.InstanceConfig(destination="d", source=fake, start="earliest")) as instance:
        instance.subscribe()
        with pytest.raises(canal.errors.ServerError, match="the disk is full") as caught:
            while instance.get(timeout=60):
                pass
    assert not isinstance(caught.value, canal.PositionLostError)


def test_error_packet_stops_instance_with_remedy() -> None:
    """T23"""
    fake, orders = shop()
    orders.insert(order(1))
    fake.error_after(2, 1236, "Could not find first log file name in binary log index file")
    with fake.serve(user="u", password="p") as server:
        source = canal.MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
        with started(fake, source=source, alarm=lambda *_: None) as instance:
            instance.subscribe()
            with pytest.raises(canal.PositionLostError, match="on_lost="):
                instance.get_without_ack(1, timeout=30)


@flavors
def test_server_that_ends_every_dump_is_retried_less_often(
    flavor: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T22: the head of a dump is no sign that the connection works."""
    monkeypatch.setattr("canal.parse.run.time", SimpleNamespace(monotonic=lambda: 0.0))  # none of them lasts, as it sees it
    fake, orders = shop(flavor)
    orders.insert(order(1))
    fake.end()

    def lost() -> list[str]:
        return [record.getMessage() for record in caplog.records if "connection lost" in record.getMessage()]

    caplog.set_level(logging.INFO, "canal")
    with fake.serve(user="u", password="p") as server:
        source = canal.MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
        with started(fake, source=source, start="latest", reconnect_backoff=(0.05, 0.3)) as instance:
            instance.subscribe()
            wait_until(lambda: len(lost()) >= 5)

    attempts = lost()
    assert "ended the dump" in attempts[0]
    assert [text.partition(" s: ")[0][-3:] for text in attempts[:5]] == ["0.1", "0.1", "0.2", "0.3", "0.3"]


def test_stop_with_full_store_ends_every_thread() -> None:
    fake, orders = shop()
    for number in range(100):
        orders.insert(order(number))
    with started(fake, store_entries=4) as instance:
        instance.subscribe()
        instance.get_without_ack(1, timeout=30)

    def left() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("canal-test")]

    assert [name for name in left() if not name.endswith("-connect")] == []
    wait_until(lambda: not left())  # stop() has not waited long for the thread of the login


class Unanswering:
    """A source whose login never ends."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.release = threading.Event()

    def connect(self, server_id_hint: int | None = None) -> Any:
        self.asked.set()
        self.release.wait(200)
        raise canal.ConnectionLostError("gave up")


def test_stop_does_not_wait_for_login() -> None:
    source = Unanswering()
    instance = started(source)  # type: ignore[arg-type]
    assert source.asked.wait(120)
    stopping = threading.Thread(target=instance.stop)
    stopping.start()
    stopping.join(120)  # less than the login takes
    source.release.set()

    assert not stopping.is_alive()


def test_missing_source_fails_subscribe_and_is_retried() -> None:
    alarms: list[str] = []
    config = canal.InstanceConfig(
        destination="test",
        source=canal.MySQLSource(port=1, connect_timeout=1.0),
        start_timeout=0.3,
        reconnect_backoff=(0.01, 0.02),
        alarm=lambda destination, text: alarms.append(text),
    )
    with canal.Instance(config) as instance:
        with pytest.raises(canal.ConnectionLostError, match="keeps trying"):
            instance.subscribe()
        for _ in range(3000):
            errors = instance.status().parser.errors  # type: ignore[union-attr]
            if errors > 1:
                break
            time.sleep(0.01)

    assert errors > 1
    assert len(alarms) == 1


class Quiet:
    """A source that sends heartbeats only, on a clock of its own, and has begun its log anew."""

    check_interval = canal.MySQLSource().check_interval

    def __init__(self, fake: FakeBinlog) -> None:
        self.fake = fake
        self.now = 1000.0
        self.asked: list[float] = []
        self._connection: Any = None

    def connect(self, server_id_hint: int | None = None) -> Any:
        self._connection = self.fake.connect()
        return self

    def read(self, timeout: float) -> list[bytes]:
        if events := self._connection.read(0.0):
            return events
        self.now += 1.0
        if self.now % 3 == 0:
            self.fake.heartbeat()
        return []

    def check_end(self, position: canal.Position) -> bool:
        self.asked.append(self.now)
        raise canal.PositionLostError("the log was begun anew", reason=canal.errors.LostReason.DIVERGED, position=position)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_quiet_log_is_checked_after_check_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, orders = shop()
    orders.insert(order(1))
    source = Quiet(fake)
    monkeypatch.setattr("canal.parse.run.time", SimpleNamespace(monotonic=lambda: source.now))
    with started(source) as instance:  # type: ignore[arg-type]
        instance.subscribe()
        with pytest.raises(canal.PositionLostError, match="begun anew"):
            while instance.get(100, timeout=60):
                pass

    assert source.asked == [1010.0]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread"), OSError(12, "Cannot allocate memory")])
def test_lack_of_memory_stops_with_remedy(error: Exception) -> None:
    class Exhausted:
        def connect(self, server_id_hint: int | None = None) -> Any:
            raise error

    with instance_of(Exhausted()) as instance, pytest.raises(canal.CanalError, match="out of memory") as caught:  # type: ignore[arg-type]
        instance.subscribe()
    assert "store_bytes" in caught.value.remedy
    assert "bug in the library" not in str(caught.value)
