"""Logs that are reset while nobody reads them, served by a fake: whatever is the same in them again, nothing is left out."""

from __future__ import annotations

import itertools
import time
from typing import Any

import attrs
import pytest

import canal
from canal.testing import FakeBinlog
from canal.testing.fake import FakeTable

OLD, NEW, LATER = range(1, 11), range(101, 131), range(201, 204)


class Served:
    """A fake server, a table whose rows are transactions of their own, and instances that go on with one cursor."""

    def __init__(self, flavor: str, gtid: bool = True) -> None:
        seconds = itertools.count(1_700_000_000)
        self.fake = FakeBinlog(flavor=flavor, gtid=gtid, clock=lambda: next(seconds))
        self.rows: FakeTable = self.fake.table("s", "t", "id INT PRIMARY KEY")
        self.meta = canal.MemoryMeta()
        self.alarms: list[str] = []

    def write(self, ids: range, logs: int = 1) -> None:
        for number, one in enumerate(ids):
            if number and number % -(-len(ids) // logs) == 0:
                self.fake.rotate()
            self.rows.insert({"id": one})

    def change_cursor(self, **changes: Any) -> None:
        self.meta.start("resets")
        position = self.meta.cursor(1001)
        assert position is not None
        self.meta.update_cursor(1001, attrs.evolve(position, **changes))
        self.meta.stop()

    def read(self, last: int, **options: Any) -> list[int]:
        """What comes up to a row; with on_lost="latest" the last rows are written when the reader is there."""
        found: list[int] = []
        with self.fake.serve() as server:
            source = canal.MySQLSource(host=server.host, port=server.port, ssl_mode="DISABLED")
            config = canal.InstanceConfig(
                destination="resets",
                source=source,
                start="earliest",
                meta=self.meta,
                reconnect_backoff=(0.01, 0.05),
                dump_error_threshold=1,
                alarm=lambda destination, text: self.alarms.append(text),
                **options,
            )
            with canal.Instance(config) as instance:
                instance.subscribe()
                if "on_lost" in options:
                    self.await_alarm("IS LOST")
                    self.write(LATER)
                while last not in found:
                    message = instance.get(100, timeout=60)
                    assert message, found
                    found += [row.after["id"] for entry in message.entries for row in entry.rows if row.after]
                instance.get(1, timeout=0)
        return found

    def await_alarm(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while not any(text in alarm for alarm in self.alarms):
            assert time.monotonic() < deadline, self.alarms
            time.sleep(0.01)


kinds = pytest.mark.parametrize(("flavor", "gtid"), [("mysql", True), ("mysql", False), ("mariadb", True)])


@kinds
@pytest.mark.parametrize("logs", list(itertools.product((1, 2, 3), repeat=2)), ids=str)
@pytest.mark.parametrize("on_lost", ["fail", "earliest", "latest"])
def test_a_log_that_was_reset_is_another_one(flavor: str, gtid: bool, logs: tuple[int, int], on_lost: str) -> None:
    """Its journals have the former names, or not yet; its transactions the offsets and GTIDs of before, and more."""
    log = Served(flavor, gtid)
    log.write(OLD, logs[0])
    assert log.read(OLD[-1]) == list(OLD)
    log.fake.reset()
    log.write(NEW, logs[1])

    if on_lost == "fail":
        with pytest.raises(canal.PositionLostError):
            log.read(NEW[-1])
        return
    expected = [*NEW, *LATER] if on_lost == "earliest" else list(LATER)
    assert log.read(LATER[-1], on_lost=on_lost) == expected


def test_transactions_without_gtids_between_others_come_behind_any_cursor() -> None:
    """By its GTID set a server would leave out the logs that have none; cursors of earlier versions go by offset, too."""
    changes: dict[str, str]
    for changes in ({}, {"incarnation": ""}):
        log = Served("mysql")
        log.write(OLD)
        assert log.read(OLD[-1]) == list(OLD)
        log.fake.switch_gtids(False)
        log.write(NEW, 3)
        log.fake.switch_gtids(True)
        log.write(LATER)
        log.change_cursor(**changes)
        assert log.read(LATER[-1]) == [*NEW, *LATER]
