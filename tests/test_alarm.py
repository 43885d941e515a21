"""Alarms: the same trouble is told when it begins, at growing intervals and when it is over; another one always."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import canal
from canal import AlarmKind
from canal.alarm import AlarmDesk, AlarmMessage, log_alarm
from canal.testing import FakeBinlog


class Desk:
    """An AlarmDesk on a clock of its own, which keeps what it told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.told: list[Any] = []
        self.desk = AlarmDesk(lambda destination, text: self.told.append(text), (60.0, 240.0), lambda: self.now)

    def lost(self, key: str = "refused", times: int = 1, every: float = 10.0) -> None:
        for _ in range(times):
            self.desk.tell(AlarmKind.CONNECTION, f"lost at {self.now}: {key}", key)
            self.now += every


def test_the_same_trouble_is_told_once_and_then_at_growing_intervals_with_a_count() -> None:
    clock = Desk()
    began = clock.now
    clock.lost(times=200)  # 2000 seconds

    at = [float(text.split()[2].rstrip(":")) - began for text in clock.told]
    assert at == [0, 60, 180, 420, 660, 900, 1140, 1380, 1620, 1860]
    assert [text.times for text in clock.told[:3]] == [1, 7, 19]
    assert clock.told[0] == "lost at 1000.0: refused"
    assert clock.told[2].endswith("refused (19 times in 3 min)")
    assert clock.desk.count == len(clock.told)


def test_reminders_come_after_a_minute_and_then_ever_more_rarely_up_to_an_hour() -> None:
    """As docs/monitoring.md says, where nobody gives other times: that is how an Instance makes its desk."""
    now, told = 0.0, []
    desk = AlarmDesk(lambda destination, text: told.append(now), clock=lambda: now)
    for minute in range(60 * 5):
        now = 60.0 * minute
        desk.tell(AlarmKind.CONNECTION, "refused")

    assert [at / 60 for at in told] == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]


def test_another_trouble_is_told_at_once() -> None:
    clock = Desk()
    clock.lost("refused", 3)
    clock.lost("timed out", 3)
    clock.desk.tell(AlarmKind.SCHEMA, "refused")

    assert [(text.kind, text.partition(": ")[2]) for text in clock.told] == [
        (AlarmKind.CONNECTION, "refused"),
        (AlarmKind.CONNECTION, "timed out"),
        (AlarmKind.SCHEMA, ""),
    ]


def test_the_end_of_a_trouble_is_told_once_and_only_when_there_was_one() -> None:
    clock = Desk()
    clock.desk.over(AlarmKind.CONNECTION, "connected")
    clock.lost("refused", 30)
    clock.lost("timed out", 2)
    clock.desk.tell(AlarmKind.SCHEMA, "unsure")
    told = len(clock.told)
    clock.desk.over(AlarmKind.CONNECTION, "connected")
    clock.desk.over(AlarmKind.CONNECTION, "connected")

    (over,) = clock.told[told:]
    assert (over.kind, over.is_over, over.times) == (AlarmKind.CONNECTION, True, 32)
    assert over == "over: connected, after 5 min and 32 alarms"
    clock.lost("refused")
    assert clock.told[-1].times == 1
    clock.desk.tell(AlarmKind.SCHEMA, "unsure")
    assert clock.told[-1].kind is AlarmKind.CONNECTION


def test_a_new_run_tells_everything_anew_and_memory_is_bounded() -> None:
    clock = Desk()
    clock.lost()
    clock.desk.reset("again")
    clock.lost()
    for number in range(1000):
        clock.lost(f"trouble {number}", every=0)

    assert len(clock.told) == 1002
    assert len(clock.desk._troubles) <= 256


def test_what_is_not_told_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = Desk()
    with caplog.at_level(logging.INFO, "canal"):
        clock.lost(times=3)

    assert [record.getMessage() for record in caplog.records] == ["[] lost at 1010.0: refused", "[] lost at 1020.0: refused"]


def test_without_a_callback_trouble_is_an_error_in_the_log_and_its_end_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    log_alarm("d", "plain text")
    log_alarm("d", AlarmMessage("down", AlarmKind.CONNECTION))
    log_alarm("d", AlarmMessage("up", AlarmKind.CONNECTION, 3, is_over=True))

    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR", "WARNING"]


def test_a_message_is_a_text_that_survives_pickling() -> None:
    message = pickle.loads(pickle.dumps(AlarmMessage("up", AlarmKind.CONNECTION, 3, is_over=True)))

    assert message == "up"
    assert (message.kind, message.times, message.is_over) == (AlarmKind.CONNECTION, 3, True)


class Down:
    """A source that refuses so many connections, each in one of two ways."""

    def __init__(self, fake: FakeBinlog, reasons: list[str]) -> None:
        self.fake = fake
        self.reasons = reasons
        self.address = "db:3306"

    def connect(self, server_id_hint: int | None = None) -> Any:
        if self.reasons:
            raise canal.ConnectionLostError(self.reasons.pop(0))
        return self.fake.connect()


def wait_until(done: Callable[[], bool], timeout: float = 120.0) -> None:
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_instance_tells_of_a_source_that_is_down_once_and_of_its_return() -> None:
    told: list[Any] = []
    fake = FakeBinlog()
    source = Down(fake, ["refused"] * 20 + ["timed out"] * 5)
    config = canal.InstanceConfig(
        destination="d",
        source=source,
        start="earliest",
        reconnect_backoff=(0.001, 0.002),
        alarm=lambda destination, text: told.append(text),
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        fake.heartbeat()
        wait_until(lambda: len(told) == 3)
        status = instance.status()

    assert [(text.kind, text.is_over) for text in told] == [
        (AlarmKind.CONNECTION, False),
        (AlarmKind.CONNECTION, False),
        (AlarmKind.CONNECTION, True),
    ]
    assert "refused" in told[0]
    assert "timed out" in told[1]
    assert told[2].startswith("over: connected to db:3306, after")
    assert told[2].times == 25
    assert status.parser is not None
    assert (status.alarms, status.parser.alarms, status.parser.errors) == (3, 3, 25)


def test_a_connection_that_breaks_again_at_once_is_the_same_trouble() -> None:
    told: list[Any] = []
    fake = FakeBinlog()
    orders = fake.table("s", "a", "id INT PRIMARY KEY")
    for number in range(200):
        orders.insert({"id": number})
    for _ in range(20):
        fake.cut_after(20)
    fake.end()
    config = canal.InstanceConfig(
        destination="d",
        source=fake,
        start="earliest",
        reconnect_backoff=(0.001, 30.0),
        alarm=lambda destination, text: told.append(text),
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        rows = sum(len(entry.rows) for message in instance.stream() for entry in message.entries)
        status = instance.status()

    assert rows == 200
    assert len(told) == 1
    assert status.parser is not None
    assert status.parser.errors == 20
    assert status.parser.reconnects == 20


def test_what_stops_the_parser_is_told_at_each_start() -> None:
    told: list[Any] = []
    fake = FakeBinlog()
    orders = fake.table("s", "a", "id INT PRIMARY KEY")
    config = canal.InstanceConfig(
        destination="d", source=fake, start="earliest", alarm=lambda destination, text: told.append(text)
    )
    instance = canal.Instance(config)
    for number in range(2):
        for row in range(4):
            orders.insert({"id": 4 * number + row})
        fake.error_after(8, 1234, "a fault of the server")
        with instance, pytest.raises(canal.errors.ServerError):
            instance.subscribe()
            for _ in range(10):
                instance.get_without_ack(timeout=60)

    assert [text.kind for text in told] == [AlarmKind.STOPPED] * 2


def test_alarms_may_come_from_several_threads() -> None:
    told: list[Any] = []
    desk = AlarmDesk(lambda destination, text: told.append(text))
    threads = [threading.Thread(target=lambda: [desk.tell(AlarmKind.SCHEMA, f"t{n % 10}") for n in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(told) == [f"t{n}" for n in range(10)]


def test_each_switch_is_told_and_a_missing_standby_once_whatever_the_reason_says() -> None:
    told: list[Any] = []
    source, standby = FakeBinlog(server_id=1), FakeBinlog(server_id=2)
    both = canal.parse.BinlogParser(source, standby=standby, alarm=lambda destination, text: told.append(text))
    alone = canal.parse.BinlogParser(source, alarm=lambda destination, text: told.append(text))

    assert [both.switch("test") for _ in range(4)] == [True] * 4
    assert [alone.switch(f"{number} heartbeats failed") for number in range(50)] == [False] * 50
    assert [text.kind for text in told] == [AlarmKind.FAILOVER] * 5
    assert "no standby" in told[-1]


def test_errors_and_alarms_are_one_line_without_the_passwords_of_urls() -> None:
    text = "the table a\nb\x1b[31m of mysql://u:p/s@c@h:3306/ is gone"
    shown = r"the table a\nb\x1b[31m of mysql://u:…@h:3306/ is gone"

    assert str(canal.CanalError(text)) == shown
    assert str(canal.CanalError("it failed", remedy=text)).endswith(shown)
    assert AlarmMessage(text, AlarmKind.SCHEMA) == shown
