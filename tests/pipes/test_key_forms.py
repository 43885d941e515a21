"""A row stays one row in the target whatever form its key has in the log: a wider DECIMAL, another time zone, -0.0."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import canal
from canal.targets import SQLiteTarget
from canal.testing import FakeBinlog
from tests.support.pipes import QUICK, life, read

_BERLIN = ZoneInfo("Europe/Berlin")


def _copied(fake: FakeBinlog, folder: Path, batch_size: int, zones: Sequence[Any] = (None,)) -> list[Any]:
    """The rows of ``shop.t`` in a target that one life of the instance after the other has written, each with its time zone."""
    target = SQLiteTarget(folder / "copy.db")
    for zone in zones:
        with life(fake, **({} if zone is None else {"time_zone": zone})) as instance:
            canal.pipe(instance, target, on_error=QUICK, batch_size=batch_size, linger=0).run()
    return read(target, "SELECT * FROM t ORDER BY n")


@pytest.mark.parametrize("batch_size", [1, 1000])
def test_key_of_a_decimal_that_becomes_wider_stays(fake_binlog: FakeBinlog, folder: Path, batch_size: int) -> None:
    fake_binlog.table("shop", "t", "id DECIMAL(10,2) PRIMARY KEY, n INT").insert(
        {"id": Decimal("1.00"), "n": 1}, {"id": Decimal("2.50"), "n": 2}, {"id": Decimal("300"), "n": 3}
    )
    fake_binlog.ddl("ALTER TABLE shop.t MODIFY id DECIMAL(12,4) NOT NULL")
    table = fake_binlog.table("shop", "t", "id DECIMAL(12,4) PRIMARY KEY, n INT")
    table.update({"id": Decimal("1.00"), "n": 1}, {"id": Decimal("1.00"), "n": 5})
    table.delete({"id": Decimal("2.50"), "n": 2})
    fake_binlog.end()

    assert _copied(fake_binlog, folder, batch_size) == [("300", 3), ("1", 5)]


@pytest.mark.parametrize("batch_size", [1, 1000])
@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_key_of_negative_zero_is_that_of_zero(fake_binlog: FakeBinlog, folder: Path, batch_size: int, kind: str) -> None:
    table = fake_binlog.table("shop", "t", f"id {kind} PRIMARY KEY, n INT")
    table.insert({"id": -0.0, "n": 1})
    table.update({"id": -0.0, "n": 1}, {"id": 0.0, "n": 2})
    fake_binlog.end()

    (row,) = _copied(fake_binlog, folder, batch_size)
    assert str(row) == "(0.0, 2)"


@pytest.mark.parametrize("batch_size", [1, 1000])
def test_moments_that_a_clock_shows_alike_are_two_keys(fake_binlog: FakeBinlog, folder: Path, batch_size: int) -> None:
    table = fake_binlog.table("shop", "t", "id TIMESTAMP PRIMARY KEY, n INT")
    for hour in (0, 1):
        table.insert({"id": datetime(2026, 10, 25, hour, 30, tzinfo=UTC), "n": hour})
    fake_binlog.end()

    rows = _copied(fake_binlog, folder, batch_size, [_BERLIN])

    assert rows == [("2026-10-25 00:30:00+00:00", 0), ("2026-10-25 01:30:00+00:00", 1)]


def test_moment_as_key_is_the_same_in_another_time_zone(fake_binlog: FakeBinlog, folder: Path) -> None:
    table = fake_binlog.table("shop", "t", "id TIMESTAMP PRIMARY KEY, n INT")
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    table.insert({"id": moment, "n": 1})
    target = SQLiteTarget(folder / "copy.db")
    with life(fake_binlog, time_zone=_BERLIN) as instance:
        pipe = canal.pipe(instance, target)
        with pipe:
            while pipe.status().changes < 1:
                pipe.join(0.01)
    table.update({"id": moment, "n": 1}, {"id": moment, "n": 2})
    fake_binlog.end()

    assert _copied(fake_binlog, folder, 1000) == [("2026-01-01 12:00:00+00:00", 2)]
