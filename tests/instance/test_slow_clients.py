"""Clients that hold others back: told of, evicted, caught up again; and clients that seek."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.metrics import METRICS
from canal.parse.schema.history import MemoryHistory
from canal.testing import FakeBinlog
from tests.support.instances import Alarms, has_all, in_thread, instance_of, is_behind, read, rows_of
from tests.support.waiting import until


class Table:
    """A table of which each insert is a transaction of its own, with numbers from 0."""

    def __init__(self, fake: FakeBinlog) -> None:
        self.fake = fake
        self._table = fake.table("s", "a", "id INT PRIMARY KEY, v VARCHAR(300)")
        self.count = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            self._table.insert({"id": self.count, "v": "x" * 200})
            self.count += 1

    def write_one(self, rows: int) -> None:
        with self.fake.transaction():
            self.write(rows)


class Gate:
    """A source whose first connection is made when it is let."""

    def __init__(self, log: FakeBinlog) -> None:
        self.log, self.entered, self.go = log, threading.Event(), threading.Event()

    def connect(self, server_id_hint: int | None = None) -> Any:
        if not self.entered.is_set():
            self.entered.set()
            assert self.go.wait(60)
        return self.log.connect(server_id_hint)


def test_an_alarm_names_who_holds_the_store_back_and_is_over_when_he_goes_on() -> None:
    table, alarms = Table(FakeBinlog()), Alarms()
    table.write(100)
    with instance_of(table.fake, store_entries=32, slow_after=0.05, alarm=alarms) as instance:
        for client in (1, 2):
            instance.subscribe(client)
        assert instance.get_without_ack(3, timeout=60, client_id=2)
        reader, _ = in_thread(lambda: read(instance, 1, 100))
        told = alarms.wait(lambda message: not message.is_over)

        assert "client 2 (" in told
        assert "client 1" not in told
        assert "9 of them returned and not acknowledged" in told
        instance.unsubscribe(2)
        reader.join(60)
        assert alarms.wait(lambda message: message.is_over)
        status = instance.status()
        assert status.parser is not None
        assert (status.parser.alarms, status.alarms) == (0, 2)
        assert "2 alarms" in str(status)
        assert [value for _, value in sample_of("canal_instance_alarms", status)] == [2]


def sample_of(name: str, status: canal.InstanceStatus) -> Any:
    """Of a metric, its samples."""
    return next(samples for metric, _, _, samples in METRICS if metric == name)(status)


LIMITS = [{"slow_after": 0.05}, {"slow_entries": 5}, {"slow_bytes": 2000}]


@pytest.mark.parametrize("limit", LIMITS, ids=["seconds", "entries", "bytes"])
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@pytest.mark.parametrize("handed", [0, 3], ids=["nobody reads", "a forgotten ack"])
def test_a_client_that_is_evicted_reads_on_and_catches_up(limit: dict[str, Any], flavor: str, handed: int) -> None:
    table, alarms = Table(FakeBinlog(flavor=flavor)), Alarms()
    table.write(100)
    options = {"store_entries": 32, "slow_after": 3600.0, "on_slow": "evict", "alarm": alarms, **limit}
    with instance_of(table.fake, **options) as instance:
        for client in (1, 2):
            instance.subscribe(client)
        message = instance.get_without_ack(handed, timeout=60, client_id=2) if handed else canal.Message(-1, [])
        assert read(instance, 1, 100) == list(range(100))
        alarms.wait(lambda told: "client 2" in told and "separate connection" in told)
        got = rows_of(message)
        instance.ack(message.id, client_id=2)  # that of a batch from before the eviction counts
        got += read(instance, 2, 100 - len(got))
        table.write(20)
        assert read(instance, 1, 20) == list(range(100, 120))
        got += read(instance, 2, 20)

        assert got == list(range(120))
        until(lambda: has_all(instance, 2))
        assert alarms.wait(lambda told: "caught up" in told)
        table.write(5)
        assert [read(instance, client, 5) for client in (1, 2)] == [list(range(120, 125))] * 2


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_rollbacks_around_an_eviction_and_around_catching_up(size: int) -> None:
    """Inside transactions too: whatever is rolled back when, what is acked is everything once in order."""
    table = Table(FakeBinlog())
    for rows in (1, 40, 3, 60, 1, 1):
        table.write_one(rows)
    # Smaller than what is left when the first transaction is acked: else nobody is ever held back.
    with instance_of(table.fake, store_entries=12, slow_after=0.05, on_slow="evict", alarm=Alarms()) as instance:
        for client in (1, 2):
            instance.subscribe(client)
        reader, _ = in_thread(lambda: read(instance, 1, table.count))
        until(lambda: is_behind(instance, 2))
        acked: list[int] = []
        number = 0
        while len(acked) < table.count or is_behind(instance, 2):
            number += 1
            if len(acked) == table.count:
                reader.join(60)  # or the two would take each other's rows
                table.write(1)
                assert read(instance, 1, 1)
            message = instance.get_without_ack(size, timeout=1.0, client_id=2)
            other = instance.get_without_ack(size, timeout=0.0, client_id=2)
            if number % 3 == 0:
                instance.rollback(client_id=2)
            elif number % 3 == 1 and other:
                instance.rollback(other.id, client_id=2)
                other = canal.Message(-1, [])
            if number % 3:
                for one in (message, other):
                    acked += rows_of(one)
                    instance.ack(one.id, client_id=2)
        reader.join(60)

        assert acked == list(range(len(acked)))
        assert table.count - len(acked) <= 1


def test_the_last_client_is_never_evicted_and_both_are_kept_where_both_are_slow() -> None:
    table, alarms = Table(FakeBinlog()), Alarms()
    table.write(50)
    with instance_of(table.fake, store_entries=16, slow_after=0.02, on_slow="evict", alarm=alarms) as instance:
        for client in (1, 2):
            instance.subscribe(client)
        alarms.wait(lambda told: "no client receives new entries" in told)

        assert not is_behind(instance, 1)
        assert not is_behind(instance, 2)


def test_who_subscribes_while_the_slowest_is_evicted_begins_with_what_is_kept() -> None:
    table, alarms = Table(FakeBinlog()), Alarms()
    table.write(50)
    with instance_of(table.fake, store_entries=16, slow_after=0.02, on_slow="evict", alarm=alarms) as instance:
        instance.subscribe(1)
        instance.subscribe(2)
        first = read(instance, 1, 20)
        alarms.wait(lambda told: "separate connection" in told)
        instance.subscribe(3)
        third = read(instance, 3, 50 - len(first))

        assert third == list(range(len(first), 50))


def test_a_restart_forgets_that_a_client_was_evicted_and_nothing_else() -> None:
    table, meta = Table(FakeBinlog()), canal.MemoryMeta()
    table.write(60)
    options = {"store_entries": 16, "slow_after": 0.02, "on_slow": "evict", "alarm": Alarms(), "meta": meta}
    with instance_of(table.fake, **options) as instance:
        instance.subscribe(1)
        instance.subscribe(2)
        assert read(instance, 1, 60) == list(range(60))
        got = read(instance, 2, 14)
    with instance_of(table.fake, **options) as instance:
        table.write(5)
        assert got + read(instance, 2, 65 - len(got)) == list(range(65))
        assert read(instance, 1, 5) == list(range(60, 65))


def test_what_a_client_is_behind_by_may_be_purged() -> None:
    table, alarms = Table(FakeBinlog()), Alarms()
    table.write(40)
    with instance_of(table.fake, store_entries=16, slow_after=0.02, on_slow="evict", alarm=alarms) as instance:
        instance.subscribe(1)
        instance.subscribe(2)
        read(instance, 1, 40)
        alarms.wait(lambda told: "separate connection" in told)
        table.fake.rotate()
        table.write(1)
        assert read(instance, 1, 1) == [40]  # a server purges no log that it sends
        table.fake.purge(table.fake.position.journal)
        for _ in range(2):
            with pytest.raises(canal.PositionLostError):
                read(instance, 2, 1)
        table.write(1)
        assert read(instance, 1, 1) == [41]


def test_a_stream_ends_behind_all_that_its_client_is_behind_by() -> None:
    table, alarms = Table(FakeBinlog()), Alarms()
    table.write(60)
    table.fake.end()
    with instance_of(table.fake, store_entries=16, slow_after=0.02, on_slow="evict", alarm=alarms) as instance:
        instance.subscribe(1)
        instance.subscribe(2)
        assert read(instance, 1, 60) == list(range(60))
        until(lambda: instance.is_exhausted)
        got = [row for message in instance.stream(7, client_id=2, poll=0.05) for row in rows_of(message)]

    assert got == list(range(60))


def test_stop_and_unsubscribe_end_a_client_that_is_behind() -> None:
    def waits(client: int) -> tuple[threading.Thread, list[Any]]:
        def get() -> BaseException | None:
            try:
                while True:
                    instance.ack(instance.get_without_ack(7, timeout=None, client_id=client).id, client_id=client)
            except (canal.UsageError, canal.errors.StoreError) as error:
                return error

        return in_thread(get)

    table, alarms = Table(FakeBinlog()), Alarms()
    table.write(60)
    instance = instance_of(table.fake, store_entries=16, slow_after=0.02, on_slow="evict", alarm=alarms).start()
    for client in (1, 2, 3):
        instance.subscribe(client)
    read(instance, 1, 60)
    until(lambda: is_behind(instance, 2) and is_behind(instance, 3))
    threads = [waits(2), waits(3)]
    instance.unsubscribe(2)
    threads[0][0].join(60)
    instance.stop()
    threads[1][0].join(60)

    assert isinstance(threads[0][1][0], canal.errors.NotSubscribedError)
    assert isinstance(threads[1][1][0], canal.StateError)
    until(lambda: [thread for thread in threading.enumerate() if thread.name.startswith("canal-test-parse")] == [])


# -- seek ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_a_client_seeks_back_and_ahead_and_no_other_one_notices(flavor: str) -> None:
    table, meta = Table(FakeBinlog(flavor=flavor)), canal.MemoryMeta()
    table.write(30)
    with instance_of(table.fake, store_entries=64, meta=meta) as instance:
        instance.subscribe(1)
        instance.subscribe(2)
        reader, first = in_thread(lambda: read(instance, 1, 30))
        assert read(instance, 2, 30) == list(range(30))
        reader.join(60)
        middle = instance.position(2)
        table.write(10)
        assert read(instance, 2, 10) == list(range(30, 40))

        assert instance.seek(2, middle) == instance.position(2) == meta.cursor(2)
        assert read(instance, 2, 10) == list(range(30, 40))
        instance.seek(2, "earliest")
        assert read(instance, 2, 40) == list(range(40))
        instance.seek(2, "latest")
        table.write(3)
        assert read(instance, 2, 3) == [40, 41, 42]
        until(lambda: has_all(instance, 2))
        assert first + [read(instance, 1, 13)] == [list(range(30)), list(range(30, 43))]


def test_a_seek_is_durable_when_it_returns_also_where_acks_are_not(tmp_path: Path) -> None:
    table = Table(FakeBinlog())
    table.write(3)
    with instance_of(table.fake, meta=canal.FileMeta(tmp_path / "meta", durability="interval", interval=600.0)) as instance:
        instance.subscribe()
        assert read(instance, 1001, 3) == [0, 1, 2]
        instance.meta.flush()
        instance.seek(1001, "earliest")
        shutil.copytree(tmp_path / "meta", tmp_path / "killed")

    with instance_of(table.fake, meta=canal.FileMeta(tmp_path / "killed")) as instance:
        instance.subscribe()
        assert read(instance, 1001, 3) == [0, 1, 2]


def test_a_seek_whose_cursor_cannot_be_written_changes_nothing() -> None:
    class FullDisk(canal.MemoryMeta):
        def flush(self) -> None:
            raise canal.CursorError("the disk is full")

    table, meta = Table(FakeBinlog()), FullDisk()
    table.write(3)
    with instance_of(table.fake, meta=meta) as instance:
        instance.subscribe()
        assert read(instance, 1001, 2, size=1) == [0, 1]
        before = meta.cursor(1001)
        with pytest.raises(canal.CursorError):
            instance.seek(1001, "earliest")
        assert meta.cursor(1001) == before
        assert read(instance, 1001, 1) == [2]


def test_a_seek_before_the_parser_reads_repeats_nothing_to_another_client() -> None:
    table, meta = Table(FakeBinlog()), canal.MemoryMeta()
    table.write(4)
    with instance_of(table.fake, meta=meta) as instance:
        begin = [instance.subscribe(1), instance.position(1)][1]
        instance.subscribe(2)
        assert read(instance, 1, 3, size=1) == read(instance, 2, 3, size=1) == [0, 1, 2]

    gate = Gate(table.fake)
    with instance_of(gate, meta=meta) as instance:
        instance.subscribe(1)
        instance.subscribe(2)
        assert gate.entered.wait(60)
        instance.seek(2, begin)
        gate.go.set()
        assert read(instance, 1, 1) == [3]
        assert read(instance, 2, 4) == [0, 1, 2, 3]


def test_a_batch_from_before_a_seek_cannot_be_acked() -> None:
    table = Table(FakeBinlog())
    table.write(3)
    with instance_of(table.fake) as instance:
        instance.subscribe()
        message = instance.get_without_ack(1, timeout=60)
        instance.seek(1001, "latest")
        with pytest.raises(canal.BatchError):
            instance.ack(message.id)


def test_a_seek_to_what_is_not_there_changes_nothing() -> None:
    table = Table(FakeBinlog())
    table.write(3)
    with instance_of(table.fake) as instance:
        instance.subscribe()
        message = instance.get_without_ack(1, timeout=60)
        with pytest.raises(canal.PositionLostError):
            instance.seek(1001, canal.Position(journal="gone.000001", offset=4))
        instance.ack(message.id)
        assert read(instance, 1001, 2) == [1, 2]
        with pytest.raises(canal.ConfigError):
            instance.seek(1001, "yesterday")


def test_the_only_client_may_seek_and_who_comes_then_misses_nothing() -> None:
    table = Table(FakeBinlog())
    table.write(30)
    with instance_of(table.fake, store_entries=16) as instance:
        instance.subscribe(1)
        assert read(instance, 1, 10, size=1) == list(range(10))
        instance.seek(1, "earliest")
        instance.subscribe(2)
        reader, other = in_thread(lambda: read(instance, 2, 20))
        assert read(instance, 1, 30) == list(range(30))
        reader.join(60)
        assert other == [list(range(10, 30))]


def test_schema_error_of_a_client_that_has_sought_names_what_helps() -> None:
    """Its own connection does not use the schema history of the instance."""
    fake, alarms = FakeBinlog(metadata="MINIMAL"), []
    table = fake.table("s", "a", "id INT PRIMARY KEY")
    table.insert({"id": 0})
    table.alter("ALTER TABLE s.a ADD COLUMN v INT FIRST", "v INT, id INT PRIMARY KEY")
    table.insert({"v": 5, "id": 1})
    options = {"schema_history": MemoryHistory(), "alarm": lambda destination, text: alarms.append(text)}
    with instance_of(fake, start="latest", **options) as instance:
        instance.subscribe(1)
        instance.seek(1, "earliest")

        way = r"Restart the instance if its .* without that history, seek\(\)"
        with pytest.raises(canal.errors.SchemaError, match=way) as error:
            instance.get(client_id=1, timeout=60)
        assert "schema_history=" not in str(error.value)
        assert not any("schema_history=" in text for text in alarms)


def test_full_store_before_the_first_get_is_no_seeking() -> None:
    table = Table(FakeBinlog())
    table.write(100)
    with instance_of(table.fake, store_entries=32) as instance:
        instance.subscribe()
        until(lambda: instance.status().store.waited > 0)  # type: ignore[union-attr]

        assert instance.status().state is canal.State.STREAMING
