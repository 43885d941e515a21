"""Several clients, of which one has lost its position: what on_lost says holds for that one alone."""

from __future__ import annotations

from typing import Any

import pytest

import canal
from canal.testing import FakeBinlog
from tests.support.waiting import until


def two_clients(**options: Any) -> tuple[FakeBinlog, canal.MemoryMeta]:
    """Client 1 has acked 0 to 4 and client 2 has acked 0 to 9; the log of 5 to 8 is purged, and 9 to 14 are there."""
    fake, meta = FakeBinlog(**options), canal.MemoryMeta()
    with running(fake, meta) as instance:
        instance.subscribe(1)
        instance.subscribe(2)
        insert(fake, 5)
        assert read(instance, 1, 5) == read(instance, 2, 5) == [*range(5)]
        fake.rotate()
        insert(fake, 4, 5)
        fake.rotate()
        insert(fake, 1, 9)
        assert read(instance, 2, 5) == [*range(5, 10)]
    insert(fake, 5, 10)
    fake.purge("binlog.000003")
    return fake, meta


def insert(fake: FakeBinlog, count: int, first: int = 0) -> None:
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY")
    for number in range(first, first + count):
        orders.insert({"id": number})


def running(fake: FakeBinlog, meta: canal.meta.MetaManager, **options: Any) -> canal.Instance:
    options = {"start": "earliest", "reconnect_backoff": (0.01, 0.02), "dump_error_threshold": 0, **options}
    return canal.Instance(canal.InstanceConfig(destination="shop", source=fake, meta=meta, **options))


def read(instance: canal.Instance, client: int, count: int) -> list[int]:
    """So many rows, each acked."""
    found: list[int] = []
    while len(found) < count:
        message = instance.get_without_ack(timeout=10, client_id=client)
        assert message, found
        found += [row.after["id"] for entry in message.entries for row in entry.rows if row.after]
        instance.ack(message, client_id=client)
    return found


@pytest.mark.parametrize("gtid", [True, False], ids=["gtid", "file"])
@pytest.mark.parametrize(("on_lost", "expected"), [("latest", []), ("earliest", [*range(9, 15)])])
def test_on_lost_decides_for_the_client_that_is_lost_alone(on_lost: Any, expected: list[int], gtid: bool) -> None:
    fake, meta = two_clients(gtid=gtid)
    alarms: list[str] = []
    with running(fake, meta, alarm=lambda destination, text: alarms.append(text), on_lost=on_lost) as instance:
        assert read(instance, 2, 5) == [*range(10, 15)]
        until(lambda: (instance.get_without_ack(client_id=1), is_told(alarms, "IS LOST"))[1])  # its own connection has begun
        instance.rollback(client_id=1)
        insert(fake, 1, 15)

        assert read(instance, 1, len(expected) + 1) == [*expected, 15]
        assert read(instance, 2, 1) == [15]
    assert is_told(alarms, "the position of client 1 is lost")
    assert is_told(alarms, "while client 1 catches up: THE POSITION")


def is_told(alarms: list[str], text: str) -> bool:
    return any(text in told for told in alarms)


@pytest.mark.parametrize("gtid", [True, False], ids=["gtid", "file"])
def test_lost_client_fails_alone_and_its_error_names_what_helps(gtid: bool) -> None:
    fake, meta = two_clients(gtid=gtid)
    for first in (10, 15):  # also at the next start
        with running(fake, meta) as instance:
            assert read(instance, 2, 5) == [*range(first, first + 5)]
            with pytest.raises(canal.PositionLostError, match=r"It is the cursor of client 1: seek\(\) moves"):
                instance.get(client_id=1, timeout=10)
            insert(fake, 5, first + 5)
    with running(fake, meta) as instance:
        instance.seek(1, "latest")
        assert read(instance, 2, 5) == [*range(20, 25)]
        insert(fake, 1, 25)
        assert read(instance, 1, 1) == read(instance, 2, 1) == [25]


def test_lost_client_of_a_composed_instance_is_named() -> None:
    """It cannot have a connection of its own."""
    fake, meta = two_clients()
    parser = canal.parse.BinlogParser(fake, backoff=(0.01, 0.02))
    with canal.Instance.compose("shop", parser=parser, meta=meta) as instance:
        with pytest.raises(canal.PositionLostError, match=r"the cursor of client 1: .* unsubscribe\(\) deletes"):
            instance.get(client_id=2, timeout=10)
        instance.unsubscribe(1)
    with canal.Instance.compose("shop", parser=parser, meta=meta) as instance:
        assert read(instance, 2, 5) == [*range(10, 15)]
