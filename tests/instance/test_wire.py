"""Entries that go to another process are the same there: rows, positions, statements, whatever the log is like."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from canal import Instance, InstanceConfig, LocalBinlogSource, MySQLSource
from canal.errors import BatchError, CanalError, ChecksumError, DecodeError, TruncatedError
from canal.instance.sharing.wire import EntryReader, EntryWriter, decode_error, decode_source, encode_error, encode_source, end_at
from canal.model import Entry, EntryType
from canal.parse.source.files import LocalBinlogConnection
from canal.position import Position, PreparedXa
from canal.testing import FakeBinlog


def told(entry: Entry) -> Any:
    """What a reader can tell of an entry."""
    transaction = entry.transaction
    return (
        entry.entry_type,
        entry.event_type,
        entry.position,
        entry.is_end,
        entry.offset,
        entry.ordinal,
        entry.timestamp,
        transaction.source,
        transaction.gtid,
        transaction.position_before(0),
        entry.sql,
        entry.statement,
        entry.table and entry.table.schema,
        [(row.before and row.before.values(), row.after and row.after.values()) for row in entry.rows],
    )


def log(flavor: str, gtids: bool) -> FakeBinlog:
    fake = FakeBinlog(flavor, gtid=gtids)  # type: ignore[arg-type]
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(2000), kind ENUM('a','b')")
    for number in range(30):
        orders.insert({"id": number, "note": "ä", "kind": "b"})
    with fake.transaction():
        orders.insert(*({"id": 100 + n, "note": None} for n in range(50)))
        orders.update({"id": 1, "note": "ä", "kind": "b"}, {"note": "c"})
    fake.ddl("ALTER TABLE orders RENAME TO old_orders, ALGORITHM=COPY", "shop")
    fake.ddl("DROP DATABASE IF EXISTS nothing")
    fake.rotate()
    with fake.transaction():
        orders.insert(*({"id": 1000 + n, "note": "x" * 1500} for n in range(40)))
    orders.delete({"id": 1, "note": "c", "kind": "b"})
    fake.end()
    return fake


@pytest.mark.parametrize(("flavor", "gtids"), [("mysql", True), ("mysql", False), ("mariadb", True)])
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_entries_are_the_same_at_the_other_end(flavor: str, gtids: bool, size: int) -> None:
    writer, reader = EntryWriter(), EntryReader()
    config = InstanceConfig(destination="wire", source=log(flavor, gtids), start="earliest", store_bytes=40_000)
    count = 0
    with Instance(config) as instance:
        instance.subscribe()
        while message := instance.get(size, timeout=30.0):
            wanted = [entry for entry in message if entry.is_end or entry.entry_type is EntryType.ROWDATA]
            found = reader.read(writer.write(message.entries))
            assert [told(entry) for entry in found] == [told(entry) for entry in wanted]
            count += sum(entry.row_count for entry in found)
    assert count == 122


def test_tables_are_told_anew_in_a_new_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("canal.instance.sharing.wire._SEGMENT_BYTES", 1)
    test_entries_are_the_same_at_the_other_end("mysql", True, 7)


def test_bytes_that_are_not_what_was_written_are_an_error() -> None:
    with Instance(InstanceConfig(destination="wire", source=log("mysql", True), start="earliest")) as instance:
        instance.subscribe()
        writer = EntryWriter()
        data, later = (writer.write(instance.get(10, timeout=30.0).entries) for _ in range(2))
    EntryReader().read(data)
    for index in range(0, len(data), 11):
        with pytest.raises((TruncatedError, ChecksumError, DecodeError)):
            EntryReader().read(data[:index] + bytes([data[index] ^ 0x41]) + data[index + 1 :])
    with pytest.raises(TruncatedError):
        EntryReader().read(data[:-1])
    with pytest.raises(DecodeError, match="has not described"):
        EntryReader().read(later)


def test_a_place_without_a_transaction() -> None:
    position = Position(
        journal="b.000003",
        offset=77,
        gtid="0-1-5",
        timestamp=5000,
        server_id=3,
        source="me",
        tail="ab" * 16,
        xa=(PreparedXa("X'31',X'',1", "b.000002", 4),),
    )
    assert end_at(position).position == position


def test_an_error_is_of_its_own_class_and_anything_else_is_none() -> None:
    error = decode_error(encode_error(BatchError("no", destination="d", position=Position(journal="b.1", offset=4), remedy="do")))
    assert type(error) is BatchError
    assert str(error) == "[d] no (at b.1:4). do"
    for kind in ("LostReason", "_rebuild", "Any", "__doc__"):
        assert type(decode_error({**encode_error(error), "kind": kind})) is CanalError


@pytest.mark.parametrize(
    "source",
    [
        MySQLSource(host="h", port=3307, user="u", password="p", ssl_mode="required", read_timeout=7),
        LocalBinlogSource("/x/y.index", follow=True, schema={"a.b": "id int"}),
        LocalBinlogSource("/x/y.index", schema=MySQLSource(host="h", password="p")),
        LocalBinlogSource("/x/y.index"),
    ],
)
def test_a_source_is_handed_over_but_for_its_server_id(source: Any) -> None:
    assert decode_source(encode_source(source)) == source
    if isinstance(source, MySQLSource):
        assert decode_source(encode_source(attrs.evolve(source, server_id=9))) == source


def test_a_source_of_another_class_is_not_handed_over() -> None:
    class Mine(MySQLSource):
        pass

    assert encode_source(Mine()) is None
    assert encode_source(LocalBinlogConnection) is None
    assert decode_source(None) is None
