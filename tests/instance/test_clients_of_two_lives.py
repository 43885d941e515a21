"""Two clients of one instance whose cursors are of two lives of a log: neither is passed over."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import canal
from canal.testing import FakeBinlog

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def stored(cursors: dict[int, canal.Position]) -> canal.MemoryMeta:
    meta = canal.MemoryMeta()
    meta.start("x")
    for client, position in cursors.items():
        meta.subscribe(client, "")
        meta.update_cursor(client, position)
    meta.stop()
    return meta


def log_of_six(flavor: Any, uuid: str = UUID) -> FakeBinlog:
    log = FakeBinlog(flavor, gtid=True, uuid=uuid)
    orders = log.table("shop", "orders", "id INT PRIMARY KEY")
    for number in range(6):
        orders.insert({"id": number})
    return log


def read(log: FakeBinlog, cursors: dict[int, canal.Position]) -> None:
    log.end()
    with canal.Instance(canal.InstanceConfig(destination="x", source=log, meta=stored(cursors))) as instance:
        for client in cursors:
            instance.subscribe(client)
        for client in cursors:
            while instance.get(100, timeout=1, client_id=client):
                pass


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_a_client_that_is_behind_the_gtids_of_an_older_life_is_not_passed_over(flavor: str) -> None:
    """The log was reset and has as many transactions again; all of them were purged."""
    log = log_of_six(flavor)
    now = log.position
    part = f"{UUID}:1-3" if flavor == "mysql" else now.gtid.rpartition("-")[0] + "-2"
    begun = log.connect().incarnation("binlog.000001")
    log.rotate()
    log.purge("binlog.000002")
    here = attrs.evolve(now, offset=400, gtid=part, incarnation=begun)
    older = attrs.evolve(now, incarnation="1-1")

    with pytest.raises(canal.PositionLostError, match="it lacks GTIDs that are done"):
        read(log, {1001: older, 1002: here})


def test_a_client_without_gtids_is_not_read_by_those_of_an_older_life_at_another_server() -> None:
    now = log_of_six("mysql").position
    inside = canal.Position(now.journal, 400, row=3, timestamp=now.timestamp, source=UUID, incarnation="1700000000-1")
    older = attrs.evolve(now, incarnation="1-1", gtid=f"{UUID}:1-2")
    other = FakeBinlog("mysql", gtid=True, uuid="9e11fa47-71ca-11e1-9e33-c80aa9429562")
    orders = other.table("shop", "orders", "id INT PRIMARY KEY")
    for number in range(6):
        with other.transaction(gtid=f"{UUID}:{number + 1}"):
            orders.insert({"id": number})

    with pytest.raises(canal.PositionLostError, match="it has no GTIDs"):
        read(other, {1001: older, 1002: inside})


def test_a_cursor_that_does_not_say_when_its_journal_was_begun_is_not_one_of_a_journal_that_has_not_come() -> None:
    """It was stored by an earlier version, and the log was reset since."""
    log = log_of_six("mysql")
    now = attrs.evolve(log.position, incarnation=log.connect().incarnation("binlog.000001"))

    with pytest.raises(canal.PositionLostError, match="that log ends in binlog.000001"):
        read(log, {1001: now, 1002: attrs.evolve(now, journal="binlog.000003", incarnation="")})
