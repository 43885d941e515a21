"""Remedies of errors, each followed as an operator would: after it, the same program goes on."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Literal

import pytest

import canal
from canal.testing import FakeBinlog
from canal.testing.fake import FakeTable
from tests.support.instances import instance_of, rows_of


def purged(tmp_path: Path, flavor: Literal["mysql", "mariadb"]) -> tuple[FakeBinlog, FakeTable]:
    """A log of which the row 2 was purged, and a stored cursor between the rows 1 and 2; the row 3 is there."""
    clock = itertools.count(1_700_000_000)
    fake = FakeBinlog(flavor, clock=lambda: next(clock))
    table = fake.table("shop", "t", "id INT PRIMARY KEY")
    table.insert({"id": 1})
    with instance_of(fake, meta=canal.FileMeta(tmp_path)) as instance:
        instance.subscribe()
        message = instance.get_without_ack(10, timeout=10)
        assert rows_of(message) == [1]
        instance.ack(message)
    fake.rotate()
    table.insert({"id": 2})
    fake.purge(fake.rotate())
    table.insert({"id": 3})
    return fake, table


def read(instance: canal.Instance) -> list[int]:
    instance.subscribe()
    found: list[int] = []
    while message := instance.get(10, timeout=0.5):
        found += rows_of(message)
    return found


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_lost_cursor_remedy_is_on_lost_or_unsubscribe(tmp_path: Path, flavor: Literal["mysql", "mariadb"]) -> None:
    fake, table = purged(tmp_path, flavor)

    def configured(**options: Any) -> canal.Instance:
        return instance_of(fake, meta=canal.FileMeta(tmp_path), **options)

    for start in ("latest", "earliest"):  # which a stored cursor wins over
        with configured(start=start) as instance, pytest.raises(canal.PositionLostError) as caught:
            read(instance)
        assert all(one in str(caught.value) for one in ('on_lost="latest"', 'on_lost="earliest"', "unsubscribe()"))
        assert 'start from "' not in str(caught.value)

    with configured(on_lost="earliest") as instance:
        assert read(instance) == [3]
    with configured() as instance:
        table.insert({"id": 4})
        assert read(instance) == [4]


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_lost_cursor_remedy_latest_goes_on_at_the_end(tmp_path: Path, flavor: Literal["mysql", "mariadb"]) -> None:
    fake, table = purged(tmp_path, flavor)
    with instance_of(fake, meta=canal.FileMeta(tmp_path), on_lost="latest") as instance:
        assert read(instance) == []
        table.insert({"id": 4})
        assert read(instance) == [4]


def test_lost_cursor_remedy_unsubscribe_lets_start_decide(tmp_path: Path) -> None:
    fake, _ = purged(tmp_path, "mysql")
    with instance_of(fake, meta=canal.FileMeta(tmp_path)) as instance:
        with pytest.raises(canal.PositionLostError):
            read(instance)
        instance.unsubscribe()
    with instance_of(fake, meta=canal.FileMeta(tmp_path), start="earliest") as instance:
        assert read(instance) == [3]


@pytest.mark.parametrize(("on_lost", "expected"), [("earliest", [3]), ("latest", [])])
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_reset_log_remedy_is_on_lost(
    tmp_path: Path, flavor: Literal["mysql", "mariadb"], on_lost: Any, expected: list[int]
) -> None:
    fake, table = purged(tmp_path, flavor)
    fake.reset()
    table.insert({"id": 3})
    with fake.serve() as server:
        source = canal.MySQLSource(host=server.host, port=server.port)
        options: dict[str, Any] = {"source": source, "meta": canal.FileMeta(tmp_path)}
        with instance_of(fake, **options) as instance, pytest.raises(canal.PositionLostError) as caught:
            read(instance)
        assert f'on_lost="{on_lost}"' in caught.value.remedy

        with instance_of(fake, **options, on_lost=on_lost) as instance:
            assert read(instance) == expected


@pytest.mark.parametrize(("start", "expected"), [("earliest", [3]), ("latest", [])])
def test_lost_start_remedy_is_another_start(tmp_path: Path, start: str, expected: list[int]) -> None:
    fake, _ = purged(tmp_path, "mysql")
    lost = canal.Position(journal="binlog.000001", offset=4)
    with instance_of(fake, start=lost) as instance, pytest.raises(canal.PositionLostError) as caught:
        read(instance)
    assert f'start="{start}"' in caught.value.remedy
    assert "on_lost" not in caught.value.remedy

    with instance_of(fake, start=start) as instance:
        assert read(instance) == expected
