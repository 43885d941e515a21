"""Remedies of errors and of docs/troubleshooting.md, each followed on a fake binlog: afterwards every row comes."""

from __future__ import annotations

import itertools
import logging
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal.errors import GO_ON_AFTER, CanalError, ConfigError, ConnectionLostError, CursorError, HistoryError, SchemaError
from canal.meta import FileMeta
from canal.parse import FileHistory, LocalBinlogSource, MemoryHistory
from canal.testing import FakeBinlog
from canal.testing.fake import FakeTable
from tests.support.instances import in_thread, instance_of, read_up_to, rows_of


def log_of(*ids: int, **options: Any) -> tuple[FakeBinlog, FakeTable]:
    clock = itertools.count(1_700_000_000)
    fake = FakeBinlog(clock=lambda: next(clock), **options)
    table = fake.table("shop", "t", "id INT PRIMARY KEY")
    for one in ids:
        table.insert({"id": one})
    return fake, table


# -- mistakes whose message says all -----------------------------------------------------------------------------------


def config(**options: Any) -> canal.InstanceConfig:
    return canal.InstanceConfig(**{"destination": "shop", "source": log_of(1)[0], "start": "earliest", **options})


URL = "mysql://root:secret@127.0.0.1:3306/"
#: The mistake, a part of its remedy, and what the remedy says instead.
MISTAKES: list[tuple[Callable[[], object], str, Callable[[], object]]] = [
    (lambda: config(source=URL), "MySQLSource.from_url(url)", lambda: config(source=canal.MySQLSource.from_url(URL))),
    (lambda: canal.MySQLSource(host=URL), "MySQLSource.from_url(url)", lambda: canal.MySQLSource.from_url(URL)),
    (
        lambda: config(filter="shop.("),
        r"shop\..*,crm\.customer_\d{1,2}",
        lambda: config(filter=r"shop\..*,crm\.customer_\d{1,2}"),
    ),
    (
        lambda: config(start=canal.Position(timestamp=1_700_000_000)),
        "counts milliseconds",
        lambda: config(start=canal.Position(timestamp=1_700_000_000_000)),
    ),
    (
        lambda: config(ha=canal.ZooKeeper(hosts="h:1"), meta=FileMeta("x")),
        "Leave meta out",
        lambda: config(ha=canal.ZooKeeper(hosts="h:1")),
    ),
]


@pytest.mark.parametrize(("mistake", "remedy", "right"), MISTAKES, ids=[remedy for _, remedy, _ in MISTAKES])
def test_mistake_in_a_configuration_is_gone_after_its_remedy(
    mistake: Callable[[], object], remedy: str, right: Callable[[], object]
) -> None:
    with pytest.raises(ConfigError) as caught:
        mistake()
    assert remedy in caught.value.remedy

    assert right()


def test_mistakes_of_calls_are_gone_after_their_remedies() -> None:
    fake, _ = log_of(1, 2, 3)
    instance = instance_of(fake)
    with pytest.raises(CanalError, match=r"Call start\(\) first"):
        instance.subscribe()
    instance.start()
    with pytest.raises(CanalError, match=r"Call subscribe\(\) first"):
        instance.get(1)
    wrong: Any = r"shop\..*"
    with pytest.raises(CanalError, match=r"Did you mean subscribe\(filter="):
        instance.subscribe(wrong)
    instance.subscribe(filter=wrong)
    first, second = (instance.get_without_ack(1, timeout=10) for _ in range(2))
    with pytest.raises(CanalError, match="Acknowledge in order of delivery"):
        instance.ack(second)
    with pytest.raises(CanalError, match="Acknowledge them or roll them back"):
        instance.get(1)
    instance.ack(first)
    with pytest.raises(CanalError, match="It was acknowledged or rolled back before"):
        instance.ack(second.id + 1)
    instance.ack(second)
    assert rows_of(first) + rows_of(second) + read_up_to(instance, 3) == [1, 2, 3]
    instance.stop()


def test_part_that_two_instances_share_is_usable_after_the_remedy(tmp_path: Path) -> None:
    shared = FileMeta(tmp_path / "a")
    with canal.Instance(config(meta=shared)):
        with pytest.raises(CanalError, match="Give each instance an object of its own"):
            canal.Instance(config(destination="other", meta=shared)).start()
        with pytest.raises(CanalError, match="give this one a directory of its own"):
            canal.Instance(config(meta=FileMeta(tmp_path / "a"))).start()

        with canal.Instance(config(meta=FileMeta(tmp_path / "b"))) as other:
            other.subscribe()
            assert read_up_to(other, 1) == [1]


# -- at the start ------------------------------------------------------------------------------------------------------


def test_no_start_position_remedy_is_to_subscribe_again() -> None:
    fake, _ = log_of(1)
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    source = canal.MySQLSource(port=port)
    with instance_of(fake, source=source, start_timeout=0.2) as instance:
        with pytest.raises(ConnectionLostError, match="no start position within") as caught:
            instance.subscribe()
        assert "Subscribe again" in caught.value.remedy

        with fake.serve(port=port):
            instance.subscribe(timeout=30)
            assert read_up_to(instance, 1) == [1]


def warnings_of(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    found = [text for text in caplog.messages if part in text]
    caplog.clear()
    return found


def test_filter_that_matches_nothing_remedy_is_what_it_suggests(caplog: pytest.LogCaptureFixture) -> None:
    fake, _ = log_of(1)
    caplog.set_level(logging.WARNING, "canal.parse")
    with fake.serve() as server:
        source = canal.MySQLSource(host=server.host, port=server.port)
        with instance_of(fake, source=source, filter=r"shop\.tt") as instance:
            instance.subscribe()
            assert read_up_to(instance, None) == []
        (warning,) = warnings_of(caplog, "matches no table that our user may see now")
        assert "Did you mean shop.t?" in warning

        with instance_of(fake, source=source, filter=r"shop\.t") as instance:
            instance.subscribe()
            assert read_up_to(instance, 1) == [1]
        assert warnings_of(caplog, "matches no table") == []


# -- in get ------------------------------------------------------------------------------------------------------------


def test_loop_of_an_instance_that_was_stopped_goes_on_in_a_new_one(tmp_path: Path) -> None:
    fake, table = log_of(1)
    instance = instance_of(fake, meta=FileMeta(tmp_path)).start()
    instance.subscribe()
    assert read_up_to(instance, 1) == [1]
    thread, found = in_thread(lambda: instance.get(10, timeout=60))
    instance.stop()
    thread.join(60)
    (error,) = found
    assert isinstance(error, canal.errors.StateError)
    assert error.message in ("the instance was stopped", "the instance is not running")

    table.insert({"id": 2})
    with instance_of(fake, meta=FileMeta(tmp_path)) as again:
        again.subscribe()
        assert read_up_to(again, 2) == [2]


def test_hook_that_raises_is_left_out_or_mended(tmp_path: Path) -> None:
    fake, _ = log_of(1, 2)

    class Broken(canal.Hook):
        def before(self, entries: list[canal.Entry]) -> list[canal.Entry]:
            raise ValueError("of the hook")

    with instance_of(fake, meta=FileMeta(tmp_path), hooks=[Broken()]) as instance:
        instance.subscribe()
        with pytest.raises(canal.errors.HookError, match="hook .* raised ValueError.* on entries from") as caught:
            read_up_to(instance, -1)
        assert isinstance(caught.value.__cause__, ValueError)

    with instance_of(fake, meta=FileMeta(tmp_path)) as instance:
        instance.subscribe()
        assert read_up_to(instance, 2) == [1, 2]


# -- lost positions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["ends", "other server"])
def test_position_that_the_log_does_not_have_remedy_is_another_start(lost: str) -> None:
    fake, _ = log_of(1, gtid=False)
    with fake.serve() as server:
        source = canal.MySQLSource(host=server.host, port=server.port)
        start = canal.Position(
            journal=fake.journal,
            offset=1 << 20 if lost == "ends" else 4,
            source="" if lost == "ends" else "c1d6d9f5-0000-0000-0000-000000000001",
        )
        message = "ends at .* before offset" if lost == "ends" else "belongs to the log of server|is one of server"
        lost_there = pytest.raises(canal.PositionLostError, match=message)
        with instance_of(fake, source=source, start=start) as instance, lost_there as caught:
            instance.subscribe()
        assert 'start="earliest"' in caught.value.remedy

        with instance_of(fake, source=source, start="earliest") as instance:
            instance.subscribe()
            assert read_up_to(instance, 1) == [1]


def test_cursors_of_two_servers_remedy_is_to_forget_one_client(tmp_path: Path) -> None:
    fake, table = log_of(1, gtid=False)
    with instance_of(fake, meta=FileMeta(tmp_path)) as instance:
        instance.subscribe()
        assert read_up_to(instance, 1) == [1]
    table.insert({"id": 2})
    meta = FileMeta(tmp_path)
    meta.start("test")
    meta.subscribe(2, "")
    meta.update_cursor(2, canal.Position(journal=fake.journal, offset=4, source="c1d6d9f5-0000-0000-0000-000000000001"))
    meta.stop()
    with pytest.raises(CursorError, match="client 2 is at .* of c1d6d9f5-.* client 1001 is at ") as caught:
        instance_of(fake, meta=meta).start()
    assert "meta.start(destination), meta.unsubscribe(client_id), meta.stop()" in caught.value.remedy

    meta.start("test")
    meta.unsubscribe(2)
    meta.stop()
    with instance_of(fake, meta=meta) as instance:
        instance.subscribe()
        assert read_up_to(instance, 2) == [2]


# -- columns -----------------------------------------------------------------------------------------------------------


def without_names(tmp_path: Path, **options: Any) -> tuple[FakeBinlog, FakeTable, canal.Position]:
    """A log without names, in which a table is changed after a row, and another table has a row of its own."""
    fake, table = log_of(1, metadata="MINIMAL")
    with instance_of(fake, meta=FileMeta(tmp_path), **options) as instance:
        instance.subscribe()
        assert read_up_to(instance, 1) == [1]
    table.insert({"id": 2})
    table.alter("ALTER TABLE t ADD COLUMN b INT", "id INT PRIMARY KEY, b INT")
    after = fake.position
    table.insert({"id": 3, "b": 3})
    fake.table("shop", "u", "id INT PRIMARY KEY").insert({"id": 4})
    return fake, table, after


def test_unknown_columns_remedy_is_a_filter_without_the_table(tmp_path: Path) -> None:
    fake, _, _ = without_names(tmp_path, schema_history=MemoryHistory())
    with instance_of(fake, meta=FileMeta(tmp_path), schema_history=MemoryHistory()) as instance:
        instance.subscribe()
        with pytest.raises(SchemaError, match=r"columns of shop\.t are unknown") as caught:
            read_up_to(instance, -1)
        assert "Exclude the table with black_filter" in caught.value.remedy

    with instance_of(fake, meta=FileMeta(tmp_path), black_filter=r"shop\.t") as instance:
        instance.subscribe()
        assert read_up_to(instance, 4) == [4]


def test_unknown_columns_remedy_is_to_seek_after_the_change(tmp_path: Path) -> None:
    fake, _, after = without_names(tmp_path, schema_history=MemoryHistory())
    with instance_of(fake, meta=FileMeta(tmp_path), schema_history=MemoryHistory()) as instance:
        instance.subscribe()
        with pytest.raises(SchemaError) as caught:
            read_up_to(instance, -1)
        assert GO_ON_AFTER in caught.value.remedy
        instance.seek(1001, after)

    with instance_of(fake, meta=FileMeta(tmp_path)) as instance:
        instance.subscribe()
        assert read_up_to(instance, 4) == [3, 4]


def test_unknown_columns_do_not_come_with_a_schema_history(tmp_path: Path) -> None:
    history = tmp_path / "history"
    fake, _, _ = without_names(tmp_path / "meta", schema_history=FileHistory(history))
    with instance_of(fake, meta=FileMeta(tmp_path / "meta"), schema_history=FileHistory(history)) as instance:
        instance.subscribe()
        assert read_up_to(instance, 4) == [2, 3, 4]


@pytest.mark.parametrize("remedy", ["delete it", "a separate history"])
def test_history_of_something_else_remedy_is_another_one(tmp_path: Path, remedy: str) -> None:
    fake, _ = log_of(1, metadata="MINIMAL")
    folder = tmp_path / "history"
    (folder / "test").mkdir(parents=True)
    file = folder / "test" / "schema.db"
    file.write_bytes(b"not a database" * 100)
    with pytest.raises(HistoryError) as caught, instance_of(fake, schema_history=FileHistory(folder)) as instance:
        instance.subscribe()
        read_up_to(instance, -1)
    assert "or delete it: tables are then read from the source again" in caught.value.remedy

    if remedy == "delete it":
        file.unlink()
    else:
        folder = tmp_path / "other"
    with instance_of(fake, schema_history=FileHistory(folder)) as instance:
        instance.subscribe()
        assert read_up_to(instance, 1) == [1]


def test_columns_of_files_without_names_remedy_is_schema(tmp_path: Path) -> None:
    fake = FakeBinlog(metadata="MINIMAL")
    table = fake.table("shop", "t", "id INT PRIMARY KEY")
    fake.rotate()
    table.insert({"id": 1})
    fake.write(tmp_path)
    last = tmp_path / fake.journal
    alarms: list[str] = []

    def columns(**options: Any) -> list[str]:
        files = LocalBinlogSource(last, **options)
        with instance_of(fake, source=files, alarm=lambda destination, text: alarms.append(text)) as instance:
            instance.subscribe()
            message = instance.get(10, timeout=10)
            return [name for entry in message.entries for row in entry.rows for name in row.after.as_dict()]  # type: ignore[union-attr]

    assert columns() == ["@1"]
    assert any("they are named @1, @2 and so on" in text and "Set schema= of the source" in text for text in alarms)
    alarms.clear()

    assert columns(schema="CREATE TABLE shop.t (id INT PRIMARY KEY)") == ["id"]
    assert alarms == []


# -- places that cannot be read ----------------------------------------------------------------------------------------


def test_switch_without_a_standby_remedy_is_a_standby(tmp_path: Path) -> None:
    alarms: list[str] = []
    first, second = FakeBinlog(server_id=1), FakeBinlog(server_id=2)
    tables = {fake: fake.table("shop", "t", "id INT PRIMARY KEY") for fake in (first, second)}

    def write(number: int, *to: FakeBinlog) -> None:
        for fake in to:
            with fake.transaction(gtid=f"{first.uuid}:{number}"):
                tables[fake].insert({"id": number})

    write(1, first, second)
    options: dict[str, Any] = {"meta": FileMeta(tmp_path), "alarm": lambda destination, text: alarms.append(text)}
    with instance_of(first, **options) as instance:
        instance.subscribe()
        assert not instance.switch()
        assert any("there is no standby to switch to" in text for text in alarms)
        assert read_up_to(instance, 1) == [1]

    with instance_of(first, **options | {"meta": FileMeta(tmp_path)}, standby=second) as instance:
        instance.subscribe()
        assert instance.switch()
        write(2, second)
        assert read_up_to(instance, 2) == [2]


# -- files of cursors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("damage", "remedy"), [(a, b) for a in ("both", "missing") for b in ("restore", "delete both")])
def test_cursor_files_that_cannot_be_used_remedy_is_to_restore_or_delete_both(tmp_path: Path, damage: str, remedy: str) -> None:
    fake, table = log_of(1)
    folder = tmp_path / "meta"

    def rows(last: int) -> list[int]:
        with instance_of(fake, meta=FileMeta(folder)) as instance:
            instance.subscribe()
            return read_up_to(instance, last)

    assert rows(1) == [1]
    table.insert({"id": 2})
    assert rows(2) == [2]
    table.insert({"id": 3})
    file, spare = folder / "test" / "meta.dat", folder / "test" / "meta.dat.bak"
    whole = {path: path.read_bytes() for path in (folder / "test").iterdir()}
    file.unlink()
    if damage == "both":
        file.write_bytes(b"{")
    spare.write_bytes(b"{")
    message = "cannot be used .* nor meta.dat.bak|it is missing although there is a .bak"
    with pytest.raises(CursorError, match=message) as caught:
        rows(3)
    assert "elete both to start anew" in str(caught.value) or "delete it and its .bak" in str(caught.value)

    if remedy == "restore":
        for path, content in whole.items():
            path.write_bytes(content)
        assert rows(3) == [3]
    else:
        file.unlink(missing_ok=True)
        spare.unlink()
        assert rows(3) == [1, 2, 3]


def append(fake: FakeBinlog, kind: int, body: bytes) -> None:
    with fake.log.changed:
        fake.log.append(kind, body)


def add_incident(fake: FakeBinlog, table: FakeTable) -> str:
    append(fake, 26, b"\1\0")
    return "INCIDENT"


def add_unknown_event(fake: FakeBinlog, table: FakeTable) -> str:
    append(fake, 12, bytes(30))
    return "NEW_LOAD.* is not supported"


def add_piece_of_rows(fake: FakeBinlog, table: FakeTable) -> str:
    append(fake, 172, struct.pack("<IIBQ", 1, 2, 1, 4000) + bytes(40))
    return "a fragment of a rows event"


def damage_rows(fake: FakeBinlog, table: FakeTable) -> str:
    table.insert({"id": 2})
    events = fake.log.journals[-1].events
    events[-1] = attrs.evolve(events[-1], data=events[-1].data[:-4] + b"crc!")
    return "has CRC32 .*, but the CRC32 of its bytes is"


@pytest.mark.parametrize("add", [add_incident, add_unknown_event, add_piece_of_rows, damage_rows])
def test_place_that_cannot_be_read_remedy_is_to_seek_after_it(
    tmp_path: Path, add: Callable[[FakeBinlog, FakeTable], str]
) -> None:
    fake, table = log_of(1)
    message = add(fake, table)
    fake.rotate()
    after = fake.position
    table.insert({"id": 3})
    with instance_of(fake, meta=FileMeta(tmp_path)) as instance:
        instance.subscribe()
        found: list[int] = []
        with pytest.raises(canal.SourceError, match=message) as caught:
            while True:
                batch = instance.get_without_ack(10, timeout=10)
                found += rows_of(batch)
                instance.ack(batch)
        assert found == [1]
        assert GO_ON_AFTER in caught.value.remedy
        instance.seek(1001, after)

    with instance_of(fake, meta=FileMeta(tmp_path)) as instance:
        instance.subscribe()
        assert read_up_to(instance, 3) == [3]


def test_position_inside_a_transaction_remedy_is_its_beginning(tmp_path: Path) -> None:
    fake, table = log_of(1)
    begin = fake.position
    table.insert({"id": 2})
    journal = fake.log.journals[-1]
    inside = attrs.evolve(begin, offset=journal.end - sum(len(event.data) for event in journal.events[-2:]), gtid="")
    with instance_of(fake, meta=FileMeta(tmp_path), start=inside) as instance:
        instance.subscribe()
        with pytest.raises(canal.DecodeError, match="has table id .*, but no table map announced it") as caught:
            read_up_to(instance, -1)
        assert "start at the beginning of a transaction, or move the cursor there with seek()" in caught.value.remedy
        instance.seek(1001, begin)

    with instance_of(fake, meta=FileMeta(tmp_path)) as instance:
        instance.subscribe()
        assert read_up_to(instance, 2) == [2]


def log_with_savepoint(end: str) -> tuple[FakeBinlog, canal.Position]:
    """A log with a statement between the rows 3 and 4, and the position after their transaction."""
    fake, table = log_of(1)
    with fake.transaction() as transaction:
        table.insert({"id": 2})
        transaction.query("SAVEPOINT a", "shop")
        table.insert({"id": 3})
        transaction.query(end, "shop")
        table.insert({"id": 4})
    after = fake.position
    table.insert({"id": 5})
    return fake, after


def test_rows_taken_back_after_delivery_remedy_is_to_seek_after_the_transaction(tmp_path: Path) -> None:
    """The cursor was made by a reader that did not know of the ROLLBACK TO."""
    fake, _ = log_with_savepoint("SAVEPOINT b")
    with instance_of(fake, meta=FileMeta(tmp_path)) as instance:
        instance.subscribe()
        found: list[int] = []
        while 3 not in found:
            batch = instance.get_without_ack(1, timeout=10)
            found += rows_of(batch)
            instance.ack(batch)
        assert found == [1, 2, 3]
    fake, after = log_with_savepoint("ROLLBACK TO a")
    with instance_of(fake, meta=FileMeta(tmp_path)) as instance:
        instance.subscribe()
        with pytest.raises(canal.SourceError, match="rolls back rows that are already delivered") as caught:
            read_up_to(instance, -1)
        assert caught.value.remedy == GO_ON_AFTER
        instance.seek(1001, after)

    with instance_of(fake, meta=FileMeta(tmp_path)) as instance:
        instance.subscribe()
        assert read_up_to(instance, 5) == [5]
