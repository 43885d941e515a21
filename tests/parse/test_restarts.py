"""Restarts at every position of a log that has all that a log can say of transactions: what comes is exactly the rest."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.model import EntryType
from canal.testing import FakeBinlog
from canal.testing._serve import FakeServer
from tests.support.instances import instance_of
from tests.support.waiting import until

COLUMNS = "id INT PRIMARY KEY, note VARCHAR(100)"
SMALL = {"store_entries": 40, "store_bytes": 100_000}
KINDS = pytest.mark.parametrize(
    ("flavor", "log", "options"),
    [
        ("mysql", {}, SMALL),
        ("mysql", {"gtid": False, "metadata": "MINIMAL"}, {"store_entries": 4000, "store_bytes": 40_000}),
        ("mysql", {"compression": "zstd"}, SMALL),
        ("mariadb", {}, SMALL),
        ("mariadb", {"compression": "zlib", "metadata": "NO_LOG"}, {}),
    ],
    ids=["mysql", "mysql-no-gtids", "mysql-compressed", "mariadb", "mariadb-compressed"],
)


def made(flavor: Any, **log: Any) -> FakeBinlog:
    """Small transactions and large ones, savepoints, ROLLBACK, statements, DDL, tags; XA decided in any order and journal."""
    clock = itertools.count(1_700_000_000)
    fake = FakeBinlog(flavor=flavor, clock=lambda: next(clock), row_event_max_size=64, **log)
    orders, hidden = fake.table("shop", "orders", COLUMNS), fake.table("shop", "hidden", COLUMNS)
    numbers = itertools.count(1)

    def rows(count: int) -> list[dict[str, Any]]:
        return [{"id": next(numbers), "note": ""} for _ in range(count)]

    def xa(name: str, end: Any = "PREPARE", size: int = 0) -> None:
        with fake.transaction(xa=name, end=end) as transaction:
            hidden.insert(*rows(2))
            orders.insert(*rows(3))
            transaction.query("SAVEPOINT s")
            orders.insert(*rows(1))
            transaction.query("ROLLBACK TO s")
            hidden.insert(*rows(1))
            for _ in range(size):
                orders.insert(*rows(2))

    orders.insert(*rows(1))
    with fake.transaction() as transaction:
        orders.insert(*rows(2))
        transaction.query("SAVEPOINT a")
        orders.insert(*rows(2))
        hidden.insert(*rows(1))
        transaction.query("INSERT INTO orders VALUES (0, 'kept')", "shop")
        transaction.query("SAVEPOINT b")
        orders.insert(*rows(1))
        transaction.query("ROLLBACK TO b")
        orders.insert(*rows(1))
        transaction.query("ROLLBACK TO a")
        transaction.query("INSERT INTO orders VALUES (0, 'next')", "shop")
        orders.insert(*rows(2))
    with fake.transaction(end="ROLLBACK") as transaction:
        orders.insert(*rows(2))
        transaction.query("INSERT INTO orders VALUES (0, 'stays')", "shop")
        orders.insert(*rows(2))
    xa("a")
    xa("b")
    fake.ddl("CREATE TABLE shop.more (id INT)", "shop")
    xa("gone")
    xa("big", size=20)
    fake.rotate()
    if flavor == "mysql":
        xa("one", end="ONE PHASE")
        xa("big one", end="ONE PHASE", size=13)
        if fake.gtid:
            with fake.transaction(gtid=f"{fake.uuid}:tag:7"):
                orders.insert(*rows(2))
    with fake.transaction():
        for _ in range(25):
            orders.insert(*rows(2))
            hidden.insert(*rows(1))
    for end in ("XID", "ROLLBACK"):
        with fake.transaction(end=end) as transaction:
            for number in range(22):
                orders.insert(*rows(2))
                if number in (2, 5, 8, 14):
                    transaction.query(f"SAVEPOINT s{number}")
                if number in (7, 12):
                    transaction.query("ROLLBACK TO s5")
                if number == 11:
                    transaction.query("INSERT INTO orders VALUES (0, 'not undone')", "shop")
    fake.xa_commit("b")
    fake.xa_rollback("gone")
    xa("left")
    orders.update({"id": 1, "note": ""}, {"note": "y"}, {"id": 2, "note": ""}, {"note": "y"})
    orders.delete({"id": 1, "note": "y"})
    fake.restart()
    xa("b")
    fake.xa_commit("big")
    fake.xa_commit("a")
    with fake.transaction():
        hidden.insert(*rows(3))
    fake.query("INSERT INTO orders VALUES (9, 'alone')", "shop")
    fake.xa_commit("b")
    orders.insert(*rows(1))
    fake.end()
    return fake


def read(fake: FakeBinlog, start: Any, options: dict[str, Any], size: int = 1000) -> list[canal.Entry]:
    config = canal.InstanceConfig(
        destination="restarts",
        source=fake,
        start=start,
        filter=r"shop\.(orders|more)",
        reconnect_backoff=(0.001, 0.002),
        **options,
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        entries: list[canal.Entry] = []
        while message := instance.get_without_ack(size, timeout=30):
            entries += message.entries
            instance.ack(message.id)
        assert instance.error is None
    return entries


def told(entry: canal.Entry, with_gtids: bool = True) -> tuple[Any, ...]:
    """All that a user can see of an entry, but for how large transactions are cut."""
    header, position = entry.header, entry.position
    return (
        entry.entry_type.name,
        entry.event_type.name,
        header.gtid,
        header.journal,
        header.offset,
        header.ordinal,
        header.execute_time,
        header.server_id,
        tuple(entry.props.items()),
        entry.row_change.sql,
        tuple((change.before and tuple(change.before), change.after and tuple(change.after)) for change in entry.rows),
        position.journal,
        position.offset,
        position.row,
        position.xa,
        position.gtid if with_gtids else "",
    )


def is_change(entry: canal.Entry) -> bool:
    return entry.entry_type == EntryType.ROWDATA


@KINDS
def test_a_restart_at_any_entry_gives_exactly_the_rest(flavor: str, log: dict[str, Any], options: dict[str, Any]) -> None:
    """Row by row, with position, GTID and cursor; only a statement within a transaction may come again."""
    fake = made(flavor, **log)
    entries = read(fake, "earliest", options)
    identifiers = [change.after[0] for entry in entries for change in entry.rows if change.after]
    assert len(identifiers) == len(set(identifiers)) + 2 > 70  # the update's
    last_parts = {id(entry.transaction): entry.part for entry in entries}
    assert [entry.last for entry in entries] == [entry.part == last_parts[id(entry.transaction)] for entry in entries]

    for stop, entry in enumerate(entries):
        start = canal.Position.from_text(entry.position.to_text())
        with_gtids = start.gtid != ""  # else its journal is all that is known
        found = [told(one, with_gtids) for one in read(fake, start, options, 7) if is_change(one)]
        rest = [told(one, with_gtids) for one in entries[stop + 1 :] if is_change(one)]
        again = found[: len(found) - len(rest)]
        assert found[len(again) :] == rest, (stop, entry)
        seen = [told(one, with_gtids) for one in entries[: stop + 1] if one.transaction is entry.transaction and one.sql]
        assert [one for one in again if one not in seen] == [], (stop, entry)
        assert not (again and entry.is_end), (stop, entry)


@KINDS
def test_a_connection_lost_at_any_event_changes_nothing(flavor: str, log: dict[str, Any], options: dict[str, Any]) -> None:
    whole = [told(one, False) for one in read(made(flavor, **log), "earliest", options) if is_change(one)]
    for event in range(0, 200, 11):
        fake = made(flavor, **log)
        for after in (event, 1, 40):
            fake.cut_after(after)
        found = [one for one in read(fake, "earliest", options) if is_change(one)]
        assert [told(one, False) for one in found] == whole, event


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
class TestPurge:
    """The journal of the position is purged; without FULL metadata the schema history needs a position in another one."""

    def read(self, instance: canal.Instance) -> list[int]:
        message = instance.get_without_ack(10, timeout=30)
        instance.ack(message)
        return [row.after["id"] for entry in message.entries for row in entry.rows if row.after]

    def instance(self, server: FakeServer, folder: Path) -> canal.Instance:
        source = canal.MySQLSource(host=server.host, port=server.port)
        backoff = (0.01, 0.02)
        return instance_of(source, start="latest", meta=canal.FileMeta(folder), reconnect_backoff=backoff)  # type: ignore[arg-type]

    @pytest.mark.parametrize("restarts", [True, False])
    def test_purge_of_acked_changes_loses_nothing(self, tmp_path: Path, flavor: Any, metadata: Any, restarts: bool) -> None:
        fake = FakeBinlog(flavor, metadata=metadata)
        table = fake.table("shop", "t", "id INT PRIMARY KEY")
        with fake.serve() as server, contextlib.ExitStack() as ends:
            instance = ends.enter_context(self.instance(server, tmp_path))
            instance.subscribe()
            table.insert({"id": 1})
            assert self.read(instance) == [1]
            if restarts:
                ends.close()
            journal = fake.rotate()
            if not restarts:  # a server keeps the log that a dump reads
                until(lambda: instance.parser._run.decoder.journal == journal)  # type: ignore[attr-defined]
            fake.purge(journal)
            if restarts:
                instance = ends.enter_context(self.instance(server, tmp_path))
                instance.subscribe()
            else:
                server.disconnect()
            table.insert({"id": 2})
            assert self.read(instance) == [2]

    def test_purge_of_changes_that_were_not_read_is_an_error(self, tmp_path: Path, flavor: Any, metadata: Any) -> None:
        fake = FakeBinlog(flavor, metadata=metadata)
        table = fake.table("shop", "t", "id INT PRIMARY KEY")
        with fake.serve() as server:
            with self.instance(server, tmp_path) as instance:
                instance.subscribe()
                table.insert({"id": 1})
                assert self.read(instance) == [1]
            table.insert({"id": 2})
            fake.purge(fake.rotate())
            table.insert({"id": 3})
            with self.instance(server, tmp_path) as instance, pytest.raises(canal.PositionLostError) as caught:
                instance.subscribe()
                self.read(instance)
        assert caught.value.reason is canal.errors.LostReason.PURGED
