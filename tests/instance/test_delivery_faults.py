"""Delivery where it once went wrong: clients with filters, resumed transactions, cursors, parts that raise."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import attrs
import pytest

import canal
from canal.testing import FakeBinlog
from tests.support.instances import instance_of

COLUMNS = "id INT PRIMARY KEY"


def two_tables(**options: Any) -> tuple[FakeBinlog, Any, Any]:
    fake = FakeBinlog(**options)
    return fake, fake.table("s", "a", COLUMNS), fake.table("s", "b", COLUMNS)


def shown(entry: canal.Entry) -> str:
    if entry.entry_type is canal.EntryType.ROWDATA:
        return f"{entry.header.table}{[row.after[0] for row in entry.rows]}"
    return entry.entry_type.name.removeprefix("TRANSACTION")


def drained(instance: canal.Instance, last: str, batch_size: int = 100, client_id: int = 1001) -> list[str]:
    """Everything up to and including the entry shown as ``last``; acked."""
    found: list[str] = []
    deadline = time.monotonic() + 60
    while last not in found:
        assert time.monotonic() < deadline, f"{last} did not come, but {found}"
        message = instance.get_without_ack(batch_size, timeout=1.0, client_id=client_id)
        found += [shown(entry) for entry in message.entries]
        instance.ack(message.id, client_id=client_id)
    return found


def stored(*cursors: tuple[int, canal.Position]) -> canal.MemoryMeta:
    meta = canal.MemoryMeta()
    meta.start("test")
    for client_id, cursor in cursors:
        meta.subscribe(client_id, "")
        meta.update_cursor(client_id, cursor)
    meta.stop()
    return meta


# -- clients with filters ----------------------------------------------------------------------------------------------


def test_a_transaction_larger_than_the_store_of_which_a_client_wants_nothing_passes_by() -> None:
    fake, a, b = two_tables()
    with fake.transaction():
        for number in range(100):
            b.insert({"id": number})
    a.insert({"id": 99})

    with instance_of(fake, store_entries=16) as instance:
        instance.subscribe(filter=r"s\.a")
        assert drained(instance, "a[99]") == ["BEGIN", "a[99]", "END"]


def test_a_get_that_waits_for_ever_lets_unwanted_transactions_pass_by() -> None:
    fake, a, b = two_tables()
    for number in range(100):
        b.insert({"id": number})
    a.insert({"id": 99})

    with instance_of(fake, store_entries=16) as instance:
        instance.subscribe(filter=r"s\.a")
        assert "a[99]" in [shown(entry) for entry in instance.get_without_ack(10, timeout=None).entries]


def test_a_timeout_is_kept_while_unwanted_changes_come() -> None:
    fake, _, b = two_tables()
    stop = threading.Event()

    def write() -> None:
        number, end = 0, time.monotonic() + 90
        while not stop.wait(0.02) and time.monotonic() < end:
            b.insert({"id": number})
            number += 1

    writer = threading.Thread(target=write)
    with instance_of(fake) as instance:
        instance.subscribe(filter=r"s\.a")
        writer.start()
        for _ in range(5):
            assert not instance.get_without_ack(10, timeout=0.2)
        assert writer.is_alive()  # the changes still come
        stop.set()
        writer.join()


def test_the_end_of_a_transaction_comes_though_what_follows_its_rows_is_unwanted() -> None:
    fake, a, b = two_tables()
    with fake.transaction():
        a.insert({"id": 1})
        a.insert({"id": 2})
        b.insert({"id": 1})
    b.insert({"id": 2})
    a.insert({"id": 7})

    with instance_of(fake) as instance:
        instance.subscribe(filter=r"s\.a")
        found = drained(instance, "a[7]", batch_size=2)

    assert found[:4] == ["BEGIN", "a[1]", "a[2]", "END"]


@pytest.mark.parametrize(("of_instance", "of_client"), [(r"s\.a", ""), ("", r"s\.a")], ids=["instance", "client"])
def test_the_end_comes_after_a_connection_lost_inside_a_large_transaction(of_instance: str, of_client: str) -> None:
    fake, a, b = two_tables()
    with fake.transaction():
        for number in range(4):
            a.insert({"id": number})
        for number in range(9):
            b.insert({"id": number})
    a.insert({"id": 99})
    fake.cut_after(18)

    with instance_of(fake, filter=of_instance, store_entries=16) as instance:
        instance.subscribe(filter=of_client)
        found = drained(instance, "a[99]", batch_size=4)

    rows = [text for text in found if text not in ("BEGIN", "END")]
    assert rows == ["a[0]", "a[1]", "a[2]", "a[3]", "a[99]"]
    assert "END" in found[found.index("a[3]") : found.index("a[99]")]


# -- resumed transactions and cursors ------------------------------------------------------------------------------------


def test_after_a_restart_a_client_that_was_ahead_gets_the_begin_of_its_next_transaction() -> None:
    fake, a, _ = two_tables()
    for number in range(4):
        a.insert({"id": number})
    cursors = []
    with instance_of(fake) as instance:
        for client, batches in ((1, 1), (2, 2)):
            instance.subscribe(client)
            for _ in range(batches):
                instance.ack(instance.get_without_ack(1, timeout=60, client_id=client).id, client_id=client)
            cursors.append((client, instance.position(client)))

    with instance_of(fake, meta=stored(*cursors)) as instance:
        assert drained(instance, "a[3]", client_id=1)[:3] == ["BEGIN", "a[1]", "END"]
        assert drained(instance, "a[3]", client_id=2)[:3] == ["BEGIN", "a[3]", "END"]  # it began where client 1 was


def test_acking_a_begin_that_came_again_does_not_move_the_cursor_back() -> None:
    fake, a, _ = two_tables()
    with fake.transaction():
        for number in range(20):
            a.insert(*[{"id": number * 10 + n} for n in range(10)])
    with instance_of(fake, store_entries=16) as instance:
        instance.subscribe()
        while instance.position().row < 60:
            instance.ack(instance.get_without_ack(10, timeout=60).id)
        cursor = instance.position()

    with instance_of(fake, store_entries=16, meta=stored((1001, cursor))) as instance:
        message = instance.get_without_ack(5, timeout=60)
        instance.ack(message.id)
        assert instance.position().row >= cursor.row


def test_rows_are_not_skipped_of_another_transaction_than_the_cursors() -> None:
    fake, a, _ = two_tables()
    start = fake.position
    a.insert({"id": 1}, {"id": 2}, {"id": 3})
    cursor = attrs.evolve(start, row=2, timestamp=1_000_000, server_id=77, source="")

    with instance_of(fake, start=cursor) as instance:
        instance.subscribe()
        with pytest.raises(canal.SourceError, match="is after 2 rows of transaction"):
            instance.get_without_ack(10, timeout=60)


def test_a_cursor_inside_a_transaction_does_not_fit_a_lone_statement() -> None:
    fake, a, _ = two_tables()
    start = fake.position
    fake.ddl("CREATE TABLE x (id INT)", schema="s")
    a.insert({"id": 1})

    with instance_of(fake, start=attrs.evolve(start, row=5, timestamp=0)) as instance:
        instance.subscribe()
        with pytest.raises(canal.SourceError, match="5 rows"):
            instance.get_without_ack(10, timeout=60)


def test_the_text_of_a_statement_is_kept_and_accounted_once_for_all_its_rows() -> None:
    fake = FakeBinlog(flavor="mariadb")
    table = fake.table("s", "a", "id INT PRIMARY KEY, v VARCHAR(200)")
    text = "INSERT INTO a VALUES " + "x" * 500_000
    with fake.transaction():
        table.insert(*[{"id": number, "v": "y" * 200} for number in range(5000)], sql=text)

    with instance_of(fake) as instance:
        instance.subscribe()
        entries = instance.get_without_ack(5000, timeout=60).entries
        queries = {id(entry.rare.query) for entry in entries if entry.query}

        assert len([entry for entry in entries if entry.query]) > 50
        assert len(queries) == 1
        assert sum(entry.size for entry in entries) > len(text)


# -- parts that raise ----------------------------------------------------------------------------------------------------


def test_an_alarm_callback_that_raises_does_not_end_the_line() -> None:
    def alarm(destination: str, text: str) -> None:
        raise ValueError("the pager is down")

    fake, a, _ = two_tables()
    a.insert({"id": 1})
    fake.cut_after(4)
    with instance_of(fake, alarm=alarm) as instance:
        instance.subscribe()
        assert "a[1]" in drained(instance, "a[1]")


def test_a_hook_that_wants_to_exit_is_a_failure_and_not_the_end_of_the_log() -> None:
    class Exiting(canal.Hook):
        def before(self, entries: list[canal.Entry]) -> list[canal.Entry]:
            raise SystemExit(3)

    fake, a, _ = two_tables()
    a.insert({"id": 1})
    with instance_of(fake, hooks=[Exiting()]) as instance:
        instance.subscribe()
        with pytest.raises(canal.errors.HookError):
            list(instance.stream())


class FailingToStop(canal.MemoryMeta):
    def stop(self) -> None:
        raise canal.CursorError("disk full")


def test_one_destination_that_fails_to_stop_leaves_no_other_running() -> None:
    instances = []
    for name, meta in (("a", FailingToStop()), ("b", canal.MemoryMeta())):
        fake, table, _ = two_tables()
        table.insert({"id": 1})
        instances.append(instance_of(fake, destination=name, meta=meta))
    server = canal.Server(generator=lambda name: next(one for one in instances if one.destination == name))
    for name in ("a", "b"):
        server.instance(name)
    with pytest.raises(canal.CursorError, match="disk full"):
        server.stop()

    assert [instance.is_running for instance in instances] == [False, False]

    def left() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith(("canal-a-", "canal-b-"))]

    assert [name for name in left() if not name.endswith("-connect")] == []
    deadline = time.monotonic() + 60
    while left():
        assert time.monotonic() < deadline  # that of a connection may end a little later than the stop
        time.sleep(0.01)


# -- all of it together --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_clients_of_several_minds_each_get_their_rows_once_in_order(seed: int) -> None:
    rng = random.Random(seed)
    fake, a, b = two_tables()
    rows: list[tuple[str, int]] = []
    for _ in range(60):
        with fake.transaction():
            for _ in range(rng.choice((1, 1, 2, 40))):
                name, table = rng.choice((("a", a), ("b", b)))
                table.insert({"id": len(rows)})
                rows.append((name, len(rows)))
    a.insert({"id": -1})
    b.insert({"id": -2})
    for _ in range(8):
        fake.cut_after(rng.randint(1, 60))
    filters = {1: "", 2: r"s\.a", 3: r"s\.b"}
    got: dict[int, list[int]] = {}

    def consume(instance: canal.Instance, client: int, seed: int) -> None:
        dice = random.Random(seed)
        acked: list[int] = []
        while not {-1, -2} & set(acked) or (client == 1 and -2 not in acked):
            message = instance.get_without_ack(dice.randint(1, 30), timeout=60.0, client_id=client)
            if dice.random() < 0.2:
                instance.rollback(client_id=client)
            elif message:
                acked += [row.after[0] for entry in message.entries for row in entry.rows]
                instance.ack(message.id, client_id=client)
        got[client] = acked

    with instance_of(fake, store_entries=16) as instance:
        for client, filter in filters.items():
            instance.subscribe(client, filter)
        consumers = [threading.Thread(target=consume, args=(instance, client, seed)) for client in filters]
        for consumer in consumers:
            consumer.start()
        for consumer in consumers:
            consumer.join(60)
        assert not any(consumer.is_alive() for consumer in consumers)

    assert got[1] == [number for _, number in rows] + [-1, -2]
    assert got[2] == [number for name, number in rows if name == "a"] + [-1]
    assert got[3] == [number for name, number in rows if name == "b"] + [-2]
