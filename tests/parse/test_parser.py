"""From a source's events to entries: transactions, pieces, positions, faults and reconnects, over genuine binlog bytes."""

from __future__ import annotations

import itertools
import logging
import random
import struct
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import canal
from canal.parse.log.events import inflate_query, inflate_rows, iter_payload
from canal.testing import _encode
from canal.testing.fake import FakeBinlog, FakeConnection
from tests.support.parsing import chained, decoded, everything, flavors, order, patched, rows_of, shop, started


def wait_until(done: Callable[[], bool], timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- what comes out ------------------------------------------------------------------------------------------------------


@flavors
def test_a_transaction_is_begin_rows_end_with_its_place_and_gtid(flavor: str) -> None:
    """T44: every entry has its whole GTID."""
    fake, orders = shop(flavor)
    with fake.transaction():
        orders.insert(order(1), order(2))
        orders.update(order(1), {**order(1), "note": None})
        orders.delete(order(2))
    gtid = fake.executed

    entries = [e for e in decoded(fake.events(), flavor=flavor) if e.transaction.row_count]

    assert [e.entry_type.name for e in entries] == ["TRANSACTIONBEGIN", "ROWDATA", "ROWDATA", "ROWDATA", "TRANSACTIONEND"]
    assert rows_of(entries) == [("INSERT", None, 1), ("INSERT", None, 2), ("UPDATE", 1, 1), ("DELETE", 2, None)]
    assert [e.header.ordinal for e in entries] == [0, 1, 2, 3, 4]
    assert {e.header.gtid for e in entries} == {gtid}
    assert {(e.header.schema, e.header.table) for e in entries[1:4]} == {("shop", "orders")}
    assert entries[-1].position.offset == fake.position.offset
    assert entries[-1].position.gtid == gtid
    assert all(not e.part and e.last for e in entries)


@flavors
def test_row_values_by_name_index_and_dict(flavor: str) -> None:
    fake, orders = shop(flavor)
    orders.insert(order(3))
    (change,) = [row for entry in decoded(fake.events(), flavor=flavor) for row in entry.rows]
    row = change.after

    assert change.before is None
    assert (row["id"], row["NOTE"], row[2]) == (3, "é", Decimal("0.75"))
    assert row.as_dict() == order(3)
    assert list(row) == list(order(3).values())
    assert [name in row for name in ("id", "ID", "x", row["id"], None)] == [True, True, False, False, False]
    with pytest.raises(KeyError, match="no column 'x'"):
        row["x"]


def test_a_statement_is_an_entry_of_its_own_that_names_all_its_tables() -> None:
    """T76, T82"""
    fake, _ = shop()
    fake.ddl("RENAME TABLE a TO b, shop.c TO other.d", schema="shop")
    fake.ddl("DROP TABLE x, y", schema="shop")

    rename, drop = decoded(fake.events())

    assert (rename.header.event_type, drop.header.event_type) == (canal.EventType.RENAME, canal.EventType.ERASE)
    assert (rename.header.schema, rename.header.table) == ("shop", "b")
    assert drop.header.tables == (("shop", "x"), ("shop", "y"))
    assert rename.row_change.is_ddl
    assert rename.row_change.sql.startswith("RENAME")
    assert (rename.rows, rename.is_end) == ([], True)


def test_names_that_end_like_a_boundary_are_none() -> None:
    """T43"""
    fake, _ = shop()
    fake.ddl("DROP TABLE my_commit", schema="shop")
    fake.ddl("ALTER TABLE t ADD COLUMN begin INT", schema="shop")

    assert [e.header.event_type.name for e in decoded(fake.events())] == ["ERASE", "ALTER"]


def test_filtered_rows_are_left_out_but_counted() -> None:
    fake, orders = shop()
    other = fake.table("shop", "other", "id INT")
    with fake.transaction():
        other.insert({"id": 1}, {"id": 2})
        orders.insert(order(5))

    entries = decoded(fake.events(), tables=r"shop\.orders")
    (row,) = [e for e in entries if e.row_count]

    assert (row.first_row, row.header.ordinal) == (2, 2)
    assert row.position.row == 3


def test_statements_are_filtered_by_any_table_that_they_name() -> None:
    """T84: names without a schema belong to the session's, those of other schemas to theirs."""
    fake, orders = shop()
    for sql in (
        "CREATE TABLE other (id INT)", "RENAME TABLE other TO orders", "CREATE USER u IDENTIFIED BY 'x'",
        "DROP TABLE other, orders", "CREATE DATABASE elsewhere", "ALTER TABLE elsewhere.orders ADD x INT",
    ):  # fmt: skip
        fake.ddl(sql, schema="shop")
    orders.insert(order(1))

    entries = decoded(fake.events(), tables=r"shop\.orders")
    assert [e.row_change.sql.split()[0] for e in entries if e.statement is not None] == ["RENAME", "DROP"]
    assert rows_of(entries) == [("INSERT", None, 1)]
    assert entries[-1].position.gtid.endswith(":1-7")


def test_field_filter_leaves_columns_out() -> None:
    fake, orders = shop()
    orders.insert(order(1))
    fake.end()
    with started(fake, field_filter="shop.orders:ID/Price") as instance:
        instance.subscribe()
        (change,) = [change for entry in everything(instance) for change in entry.rows]

    assert change.after.as_dict() == {"id": 1, "price": Decimal("0.25")}


def test_row_filter_keeps_the_changes_for_which_it_is_true() -> None:
    fake, orders = shop()
    orders.insert(*[order(n) for n in range(6)])
    fake.end()
    with started(fake, row_filter=lambda header, before, after: after["id"] % 2 == 1) as instance:
        instance.subscribe()
        entries = everything(instance)

    assert [after for _, _, after in rows_of(entries)] == [1, 3, 5]
    assert [e.header.row_count for e in entries] == [0, 3, 0]


# -- large transactions --------------------------------------------------------------------------------------------------


@flavors
def test_a_transaction_beyond_the_limit_comes_in_pieces_that_say_so(flavor: str) -> None:
    """T46"""
    fake, orders = shop(flavor)
    with fake.transaction():
        for number in range(10):
            orders.insert(order(number))

    entries = [e for e in decoded(fake.events(), flavor=flavor, piece_entries=3) if e.transaction.row_count]

    assert [e.part for e in entries] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert [e.last for e in entries] == [False] * 8 + [True] * 4
    assert [e.first_row for e in entries[1:-1]] == list(range(10))


@flavors
@settings(max_examples=40)
@given(data=st.data())
def test_resuming_at_any_entry_gives_exactly_the_rest(flavor: str, data: st.DataObject) -> None:
    """T6, T8: a position is the start of a transaction and a number of rows that are done."""
    fake, orders = shop(flavor, row_event_max_size=data.draw(st.sampled_from([100, 8192])))
    number = 0
    for rows in data.draw(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=4), min_size=1, max_size=5)):
        with fake.transaction():
            for count in rows:
                orders.insert(*[order(number + n) for n in range(count)])
                number += count
    entries = decoded(fake.events(), flavor=flavor, piece_entries=data.draw(st.integers(1, 8)))
    at = data.draw(st.integers(0, len(entries) - 1))
    position = entries[at].position
    knows_gtids = bool(position.gtid)  # an empty set cannot be told from an unknown one

    connection = fake.connect()
    connection.dump(position)
    fake.end()
    events: list[bytes] = []
    while (read := connection.read(1.0)) is not None:
        events += read
    rest = decoded(events, position, flavor=flavor)

    assert rows_of(rest) == rows_of(entries[at + 1 :])
    if rest:
        assert rest[-1].position == attrs.evolve(entries[-1].position, **{} if knows_gtids else {"gtid": ""})


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=4), data=st.data())
def test_resuming_at_any_row_gives_exactly_the_rest(flavor: str, counts: list[int], data: st.DataObject) -> None:
    """Also at one in the middle of an event, where no ack ends, but a part of a batch of Spark's may."""
    fake, orders = shop(flavor)
    numbers = itertools.count()
    with fake.transaction():
        for count in counts:
            orders.insert(*[order(next(numbers)) for _ in range(count)])
    orders.insert(order(next(numbers)))
    entries = decoded(fake.events(), flavor=flavor)
    done = data.draw(st.integers(0, sum(counts)))
    position = entries[0].transaction.position_before(done)

    rest = decoded(fake.events(), position, flavor=flavor)

    assert [row.after["id"] for entry in rest for row in entry.rows if row.after] == list(range(done, sum(counts) + 1))
    assert [entry.position for entry in rest if entry.header.row_count][-1] == entries[-2].position


def test_a_cursor_inside_a_transaction_that_is_shorter_now_is_an_error() -> None:
    fake, orders = shop()
    orders.insert(order(1))
    entries = decoded(fake.events())
    begin = entries[0]

    with pytest.raises(canal.SourceError, match="7 rows.*has 1"):
        decoded(fake.events(), begin.transaction.position_before(7))


def test_offsets_go_on_beyond_four_gibibytes() -> None:
    """T11"""
    fake, orders = shop(start_offset=(1 << 32) - 300)
    for number in range(4):
        orders.insert(order(number))
    fake.end()
    with started(fake) as instance:
        instance.subscribe()
        entries = everything(instance)

    offsets = [e.header.offset for e in entries]
    assert offsets == sorted(offsets)
    assert offsets[0] < 1 << 32 < offsets[-1]
    assert entries[-1].position.offset == fake.position.offset


@flavors
def test_a_small_place_behind_a_large_one_is_no_wrap(flavor: str) -> None:
    """T11: an offset that wraps at 4 GiB is told from one that goes back, with no checksum to help."""
    fake, orders = shop(flavor)
    for number in range(4):
        orders.insert(order(number))
    events = fake.events()
    for number in range(3, len(events)):
        end = struct.unpack_from("<I", events[number], 13)[0]
        for wrong in (1, end - 1, end >> 1, end ^ 1 << 31):
            damaged = patched(events[number], 13, struct.pack("<I", wrong))
            with pytest.raises(canal.DecodeError, match="says it ends at"):
                decoded([*events[:number], damaged, *events[number + 1 :], *fake_tail(fake, orders)], flavor=flavor)


def fake_tail(fake: FakeBinlog, orders: Any) -> list[bytes]:
    """What a log goes on with."""
    before = len(fake.events())
    orders.insert(order(9))
    return fake.events()[before:]


def test_a_hole_over_the_wrap_is_followed() -> None:
    """T11: what a server leaves out, since we have it, may lie across a multiple of 4 GiB."""
    fake, orders = shop(start_offset=(1 << 32) - 300)
    for number in range(4):
        orders.insert(order(number))
    events = fake.events()
    begins = [number for number, event in enumerate(events) if event[4] == 33]

    entries = decoded([*events[: begins[0]], *events[begins[0] : begins[1]], *events[begins[3] :]])

    assert entries[0].header.offset < 1 << 32
    assert entries[-1].position.offset == fake.position.offset > 1 << 32


@flavors
def test_a_dump_by_gtid_set_goes_on_beyond_four_gibibytes(flavor: str) -> None:
    """T11: it begins at the start of the log, so only our position knows how often the offset has wrapped."""
    fake, orders = shop(flavor, start_offset=(2 << 32) + 5000)
    for number in range(4):
        orders.insert(order(number))
    entries = decoded(fake.events(), canal.Position(fake.journal, (2 << 32) + 5000), flavor=flavor)
    done = entries[5].position
    begins = [number for number, event in enumerate(fake.events()) if event[4] in (33, 162)]
    opening = fake.events()[: begins[0]]
    rotate = _encode.event(4, struct.pack("<Q", 4) + fake.journal.encode(), timestamp=0, server_id=1, end=0, flags=0x20)

    rest = decoded([rotate, *opening, *fake.events()[begins[2] :]], done, flavor=flavor)

    assert done.offset > 2 << 32
    assert rest[-1].position.offset == fake.position.offset
    assert [(e.header.offset, e.position.offset) for e in rest] == [(e.header.offset, e.position.offset) for e in entries[6:]]


@flavors
def test_a_resume_beyond_four_gibibytes_is_exact_or_refused(flavor: str, tmp_path: Path) -> None:
    """T11: the protocol's offset has 32 bits. By GTID set it does not matter; behind the transaction that made the log so
    large there is only the ROTATE, so the next log is the same place."""
    fake, orders = shop(flavor, start_offset=(1 << 32) - 100)
    orders.insert(order(1))
    config: dict[str, Any] = {"meta": canal.FileMeta(tmp_path)}
    with started(fake, **config) as instance:
        instance.subscribe()
        instance.ack(instance.get_without_ack(100, timeout=30).id)
        done = instance.position()
    assert done.offset > 1 << 32

    with fake.serve(user="u", password="p") as server:
        source = canal.MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
        orders.insert(order(2))
        with started(fake, **config, source=source) as instance:
            assert rows_of(instance.get_without_ack(100, timeout=30).entries) == [("INSERT", None, 2)]

        by_offset = attrs.evolve(done, gtid="")
        with (
            started(fake, source=source, start=by_offset, alarm=lambda *_: None) as instance,
            pytest.raises(canal.PositionLostError, match="32 bits.*FLUSH BINARY LOGS"),
        ):
            instance.subscribe()

        at_its_end = attrs.evolve(fake.position, gtid="")
        fake.rotate()
        orders.insert(order(3))
        with started(fake, source=source, start=at_its_end) as instance:
            instance.subscribe()
            message = instance.get_without_ack(100, timeout=30)
            assert rows_of(message.entries) == [("INSERT", None, 3)]
            assert message.position.journal == fake.journal


# -- damaged and cut input -----------------------------------------------------------------------------------------------


@flavors
def test_every_truncation_and_every_flipped_byte_is_a_typed_error_or_is_noticed(flavor: str) -> None:
    """T16"""
    fake, orders = shop(flavor)
    with fake.transaction():
        orders.insert(order(1), order(2, None))
        orders.update(order(1), order(3))
    events = fake.events()
    whole = rows_of(decoded(events, flavor=flavor))

    for number, event in enumerate(events):
        for cut in range(len(event)):
            with pytest.raises(canal.DecodeError):
                decoded([*events[:number], event[:cut], *events[number + 1 :]], flavor=flavor)
        for at in range(0, len(event), 3):
            damaged = event[:at] + bytes((event[at] ^ 0x10,)) + event[at + 1 :]
            with pytest.raises(canal.SourceError):
                got = decoded([*events[:number], damaged, *events[number + 1 :]], flavor=flavor)
                raise AssertionError(f"byte {at} of event {number} was not noticed: {rows_of(got)} for {whole}")


@flavors
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("at_the_start", [True, False])
def test_every_flipped_bit_of_the_head_of_a_dump_is_noticed(flavor: str, at_the_start: bool, checksum: bool) -> None:
    """T16: the ROTATE that opens it comes before it is known that events have checksums, which one bit then tells.

    The FORMAT_DESCRIPTION has one in any case, which a server does not renew for a dump from the middle of a log whose
    other events have none.
    """
    fake, orders = shop(flavor, checksum=checksum)
    orders.insert(order(1))
    start = canal.Position(journal=fake.journal, offset=4) if at_the_start else fake.position
    connection = fake.connect()
    connection.dump(attrs.evolve(start, gtid=""))
    orders.insert(order(2))
    fake.end()
    events: list[bytes] = []
    while (read := connection.read(1.0)) is not None:
        events += read
    whole = decoded(events, start, flavor=flavor)

    assert whole[-1].position.journal == fake.journal
    for number, event in enumerate(events[:3]):
        for bit in range(8 * len(event) if checksum or event[4] == 15 else 0):
            if event[4] == 15 and bit == 8 * 17:
                continue  # a log in use is marked so after its checksum was made
            damaged = bytearray(event)
            damaged[bit // 8] ^= 1 << bit % 8
            if event[4] == 15 and not checksum and damaged[13:17] == struct.pack("<I", 4 + len(event)):
                continue  # its end, which the server had taken out, is there again
            with pytest.raises(canal.DecodeError):
                decoded([*events[:number], bytes(damaged), *events[number + 1 :]], start, flavor=flavor)


@flavors
def test_damage_without_checksums_never_raises_anything_else(flavor: str) -> None:
    fake, orders = shop(flavor, checksum=False)
    with fake.transaction():
        orders.insert(order(1), order(2, None))
        orders.update(order(1), order(3))
    fake.ddl("ALTER TABLE orders ADD x INT", schema="shop")
    events = fake.events()
    rng = random.Random(3)

    for _ in range(3000):
        number = rng.randrange(len(events))
        event = bytearray(events[number])
        for _ in range(rng.randint(1, 3)):
            event[rng.randrange(19 if rng.random() < 0.9 else 0, len(event))] = rng.randrange(256)
        try:
            rows_of(decoded([*events[:number], bytes(event), *events[number + 1 :]], flavor=flavor))
        except canal.CanalError:
            pass


@flavors
@pytest.mark.parametrize("kinds", [(33, 162), (35, 163)], ids=["GTID", "list"])
def test_gtids_of_the_other_server_are_a_typed_error(flavor: str, kinds: tuple[int, int]) -> None:
    fake, orders = shop(flavor)
    foreign, others = shop("mariadb" if flavor == "mysql" else "mysql")
    orders.insert(order(1))
    others.insert(order(2))
    alien = next(event for event in foreign.events() if event[4] in kinds)

    with pytest.raises(canal.DecodeError, match=f"in a log of {flavor}"):
        decoded(chained([*fake.events(), alien]), flavor=flavor)


@flavors
def test_a_list_of_gtids_inside_a_transaction_is_a_typed_error(flavor: str) -> None:
    fake, orders = shop(flavor)
    orders.insert(order(1))
    events = fake.events()
    listed = next(event for event in events if event[4] in (35, 163))
    events.remove(listed)
    begin = next(number for number, event in enumerate(events) if event[4] in (33, 162))

    with pytest.raises(canal.DecodeError, match="inside a transaction"):
        decoded(chained([*events[: begin + 1], listed, *events[begin + 1 :]]), flavor=flavor)


@pytest.mark.parametrize("number", [0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_gtid_that_no_server_gives_is_a_typed_error(number: int) -> None:
    fake, orders = shop()
    orders.insert(order(1))
    events = [patched(event, 36, struct.pack("<Q", number)) if event[4] == 33 else event for event in fake.events()]

    with pytest.raises(canal.DecodeError, match="GTID has the number"):
        decoded(events)


def test_places_that_cannot_be_are_typed_errors() -> None:
    fake, orders = shop()
    orders.insert(order(1))
    fake.rotate()
    events = fake.events()
    rotate = next(event for event in events if event[4] == 4)

    with pytest.raises(canal.DecodeError, match="says it ends at 7"):
        decoded([patched(events[0], 13, struct.pack("<I", 7))])
    with pytest.raises(canal.DecodeError, match="offset that no file has"):
        decoded([events[0], patched(rotate, 19, struct.pack("<Q", 1 << 63))])


def payload_event(body: bytes) -> bytes:
    return _encode.event(40, body, timestamp=1, server_id=1, end=0)


def test_a_payload_that_inflates_to_more_than_it_says_is_refused_on_the_way() -> None:
    data = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    body = _encode.tlv(2, b"\0") + _encode.tlv(3, _encode.packed(100)) + _encode.tlv(1, _encode.packed(len(data))) + b"\0" + data
    (form, *_) = FakeBinlog().events()

    with pytest.raises(canal.DecodeError, match="more than 100"):
        decoded([form, payload_event(body)])


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_events_of_many_chunks_inside_a_payload_are_joined(compression: Any) -> None:
    fake = FakeBinlog(compression=compression)
    table = fake.table("shop", "t", "id INT, v LONGTEXT")
    sizes = [1, 3 << 20, 5, (1 << 20) - 60, 1 << 20, 7]
    with fake.transaction():
        for number, size in enumerate(sizes):
            table.insert({"id": number, "v": chr(97 + number) * size})

    rows = [row.after for entry in decoded(fake.events()) for row in entry.rows]
    assert [(row["id"], row["v"] == chr(97 + row["id"]) * sizes[row["id"]]) for row in rows] == [(n, True) for n in range(6)]


def bomb(size: int, kind: int = 30) -> bytes:
    """A TRANSACTION_PAYLOAD of some kB with one event of so many bytes, nearly all of them 0."""
    packer = zstandard.ZstdCompressor().compressobj()
    parts = [packer.compress(struct.pack("<IBIIIH", 1, kind, 1, size, 0, 0))]
    parts += [packer.compress(bytes(min(1 << 20, size - 19 - done))) for done in range(0, size - 19, 1 << 20)]
    data = b"".join([*parts, packer.flush()])
    fields = _encode.tlv(2, b"\0") + _encode.tlv(3, _encode.packed(size)) + _encode.tlv(1, _encode.packed(len(data)))
    return payload_event(fields + b"\0" + data)


def peak_of(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_some_bytes_that_inflate_to_a_giant_event_are_refused_before_they_do() -> None:
    """33 kB had become 3 GB."""
    (form, *_) = FakeBinlog().events()
    event = bomb(1 << 30)
    assert len(event) < 40_000

    def refused() -> None:
        with pytest.raises(canal.UnsupportedError, match="an event of 1073741824 bytes") as caught:
            decoded([form, event])
        assert "store_bytes" in caught.value.remedy

    assert peak_of(refused) < 16 << 20


def test_a_giant_event_of_a_compressed_one_takes_memory_of_its_own_size_once() -> None:
    event, size = bomb(48 << 20), 48 << 20

    assert peak_of(lambda: [len(one) for one in iter_payload(event, len(event))]) < size + (8 << 20)
    assert [len(one) for one in iter_payload(event, len(event))] == [size]


@pytest.mark.parametrize("compression", ["zstd", "zlib"])
@pytest.mark.parametrize("store_bytes", [2 << 20, 8 << 20])
def test_a_store_with_more_room_takes_larger_events_out_of_compressed_ones(
    compression: Any, store_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canal.wiring.MAX_INFLATED_BYTES", 1 << 20)
    fake = FakeBinlog(flavor="mysql" if compression == "zstd" else "mariadb", compression=compression)
    fake.table("shop", "t", "id INT, v LONGTEXT").insert({"id": 1, "v": "x" * (3 << 20)})
    config = canal.InstanceConfig(destination="test", source=fake, start="earliest", store_bytes=store_bytes)
    with canal.Instance(config) as instance:
        instance.subscribe()
        if store_bytes < 3 << 20:
            with pytest.raises(canal.UnsupportedError, match="in a compressed one"):
                while instance.get(100, timeout=60):
                    pass
        else:
            rows: list[Any] = []
            while not rows:
                rows += [row.after["v"] for entry in instance.get(100, timeout=60) for row in entry.rows]
            assert [len(one) for one in rows] == [3 << 20]


@pytest.mark.parametrize("kind", [165, 169])
def test_a_compressed_event_of_mariadb_is_inflated_within_the_limit_and_in_memory_of_its_size(kind: int) -> None:
    size = 40 << 20
    plain = zlib.compress(bytes(size))
    head = bytes(27) + bytes(5) if kind == 165 else bytes(27) + b"\1\1"
    at = 33 if kind == 165 else 29
    event = head.ljust(at, b"\0") + b"\x84" + size.to_bytes(4, "big") + plain

    def inflated(limit: int) -> bytes:
        return inflate_query(event, len(event), limit) if kind == 165 else inflate_rows(event, len(event), kind, 27, limit)

    assert inflated(size) == event[:at] + bytes(size)
    assert peak_of(lambda: len(inflated(size))) < size + (12 << 20)
    with pytest.raises(canal.UnsupportedError, match=f"an event of {size} bytes in a compressed one"):
        inflated(size - 1)
    for cut in (9, len(plain) - 1000):
        event = event[:-cut]
        with pytest.raises(canal.DecodeError, match="does not inflate to"):
            inflated(size)


@flavors
@pytest.mark.parametrize("served", [False, True], ids=["in process", "served"])
def test_damage_on_the_way_is_read_again_and_told(flavor: str, served: bool) -> None:
    """T16: gone at the second reading, it was not in the log."""
    fake, orders = shop(flavor)
    for number in range(8):
        orders.insert(order(number))
    fake.corrupt_after(8)
    fake.end()
    alarms: list[str] = []

    def tell(destination: str, text: str) -> None:
        alarms.append(text)
        if len(alarms) < 3:
            fake.corrupt_after(7)

    with fake.serve(user="u", password="p") as server:
        source = canal.MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
        with started(fake, source=source if served else fake, alarm=tell) as instance:
            instance.subscribe()
            got: list[tuple[str, Any, Any]] = []
            while len(got) < 8:
                message = instance.get_without_ack(100, timeout=30)
                assert message
                got += rows_of(message.entries)

    assert got == [("INSERT", None, number) for number in range(8)]
    assert sum("damage on the way or in the log, again in" in text for text in alarms) == 3
    assert not any("has stopped" in text for text in alarms)


@pytest.mark.parametrize("live", [True, False], ids=["live", "files"])
def test_a_damaged_log_stops_the_instance_and_says_where(live: bool, tmp_path: Path) -> None:
    """T16: a server sends the same damage again, and of a file there is no other reading."""
    fake, orders = shop()
    orders.insert(order(1))
    orders.insert(order(2))
    if live:
        events = fake.log.journals[0].events
        events[-1] = attrs.evolve(events[-1], data=patched(events[-1].data, 20, b"x")[:-4] + b"crc!")
    else:
        (path,) = fake.write(tmp_path)
        data = bytearray(path.read_bytes())
        data[-6] ^= 1
        path.write_bytes(data)
    alarms: list[str] = []
    source = fake if live else canal.LocalBinlogSource(tmp_path)
    with started(source, alarm=lambda _, text: alarms.append(text)) as instance:  # type: ignore[arg-type]
        instance.subscribe()
        got = instance.get_without_ack(100, timeout=30)
        with pytest.raises(canal.ChecksumError, match=r"\[test\].*binlog.000001:\d+"):
            while more := instance.get_without_ack(100, timeout=30):
                got = more

    assert rows_of(got.entries) == [("INSERT", None, 1)]
    assert sum("again in" in text for text in alarms) == live
    assert sum("has stopped" in text for text in alarms) == 1
    assert ("the same when it was read again" in alarms[-1]) == live


def test_rows_without_their_table_map_are_a_typed_error() -> None:
    fake, orders = shop()
    orders.insert(order(1))
    events = [event for event in fake.events() if event[4] != 19]

    with pytest.raises(canal.MissingTableMapError, match="table id"):
        decoded(events)


def test_a_position_inside_a_transaction_is_an_error_with_a_remedy() -> None:
    fake, orders = shop()
    orders.insert(order(1))
    events = [event for event in fake.events() if event[4] not in (2, 33)]

    with pytest.raises(canal.DecodeError, match="start from the beginning"):
        decoded(events)


@flavors
@pytest.mark.parametrize("served", [False, True], ids=["in process", "served"])
def test_cut_connections_lose_and_repeat_nothing(flavor: str, served: bool) -> None:
    """T8"""
    fake, orders = shop(flavor, row_event_max_size=200)
    expected = []
    rng = random.Random(5)
    number = 0
    for _ in range(30):
        with fake.transaction():
            for _ in range(rng.randint(1, 4)):
                count = rng.randint(1, 12)
                orders.insert(*[order(number + n) for n in range(count)])
                expected += [("INSERT", None, number + n) for n in range(count)]
                number += count
    for _ in range(25):
        fake.cut_after(rng.randint(1, 15), inside=served and rng.random() < 0.5)
    options: dict[str, Any] = {"alarm": lambda destination, text: None, "store_entries": 8}

    with fake.serve(user="u", password="p") as server:
        source: Any = fake
        if served:
            source = canal.MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
        with started(fake, **options, source=source) as instance:
            instance.subscribe()
            got: list[tuple[str, Any, Any]] = []
            while len(got) < len(expected):
                message = instance.get_without_ack(7, timeout=30)
                assert message
                got += rows_of(message.entries)
                instance.ack(message.id)

        errors = instance.status().parser.errors  # type: ignore[union-attr]

    assert got == expected
    assert errors >= 20

def test_what_cannot_be_asked_for_want_of_a_connection_is_no_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may have two connections is told what the server said."""
    fake = FakeBinlog()
    monkeypatch.setattr(FakeConnection, "incarnation", lambda self, journal: None)
    fake.table("s", "t", "id INT PRIMARY KEY").insert({"id": 1})
    fake.error_after(3, 1105, "the disk is full")
    with canal.Instance(canal.InstanceConfig(destination="d", source=fake, start="earliest")) as instance:
        instance.subscribe()
        with pytest.raises(canal.ServerError, match="the disk is full") as caught:
            while instance.get(timeout=60):
                pass
    assert not isinstance(caught.value, canal.PositionLostError)


def test_an_error_packet_stops_the_instance_with_a_remedy() -> None:
    """T23"""
    fake, orders = shop()
    orders.insert(order(1))
    fake.error_after(2, 1236, "Could not find first log file name in binary log index file")
    with fake.serve(user="u", password="p") as server:
        source = canal.MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
        with started(fake, source=source, alarm=lambda *_: None) as instance:
            instance.subscribe()
            with pytest.raises(canal.PositionLostError, match="start from"):
                instance.get_without_ack(1, timeout=30)


@flavors
def test_a_server_that_ends_each_dump_at_once_is_asked_less_and_less_often(
    flavor: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T22: the head of a dump is no sign that the connection works."""
    monkeypatch.setattr("canal.parse.run.time", SimpleNamespace(monotonic=lambda: 0.0))  # none of them lasts, as it sees it
    fake, orders = shop(flavor)
    orders.insert(order(1))
    fake.end()

    def lost() -> list[str]:
        return [record.getMessage() for record in caplog.records if "connection lost" in record.getMessage()]

    caplog.set_level(logging.INFO, "canal")
    with fake.serve(user="u", password="p") as server:
        source = canal.MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
        with started(fake, source=source, start="latest", reconnect_backoff=(0.05, 0.3)) as instance:
            instance.subscribe()
            wait_until(lambda: len(lost()) >= 5)

    attempts = lost()
    assert "ended the dump" in attempts[0]
    assert [text.partition(" s: ")[0][-3:] for text in attempts[:5]] == ["0.1", "0.1", "0.2", "0.3", "0.3"]


def test_a_stop_while_the_store_is_full_ends_every_thread() -> None:
    fake, orders = shop()
    for number in range(100):
        orders.insert(order(number))
    with started(fake, store_entries=4) as instance:
        instance.subscribe()
        instance.get_without_ack(1, timeout=30)

    def left() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("canal-test")]

    assert [name for name in left() if not name.endswith("-connect")] == []
    wait_until(lambda: not left())  # stop() has not waited long for the thread of the login


class Unanswering:
    """A source whose login never ends."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.release = threading.Event()

    def connect(self, server_id_hint: int | None = None) -> Any:
        self.asked.set()
        self.release.wait(30)
        raise canal.ConnectionLostError("gave up")


def test_a_stop_does_not_wait_for_a_login() -> None:
    source = Unanswering()
    instance = started(source)  # type: ignore[arg-type]
    assert source.asked.wait(30)
    stopping = threading.Thread(target=instance.stop)
    stopping.start()
    stopping.join(20)  # less than the login takes
    source.release.set()

    assert not stopping.is_alive()


def test_a_source_that_is_not_there_is_told_at_subscribe_and_tried_again() -> None:
    alarms: list[str] = []
    config = canal.InstanceConfig(
        destination="test", source=canal.MySQLSource(port=1, connect_timeout=1.0), start_timeout=0.3,
        reconnect_backoff=(0.01, 0.02), alarm=lambda destination, text: alarms.append(text),
    )  # fmt: skip
    with canal.Instance(config) as instance:
        with pytest.raises(canal.ConnectionLostError, match="goes on trying"):
            instance.subscribe()
        for _ in range(3000):
            errors = instance.status().parser.errors  # type: ignore[union-attr]
            if errors > 1:
                break
            time.sleep(0.01)

    assert errors > 1
    assert len(alarms) == 1


class Quiet:
    """A source that sends heartbeats only, on a clock of its own, and has begun its log anew."""

    check_interval = canal.MySQLSource().check_interval

    def __init__(self, fake: FakeBinlog) -> None:
        self.fake = fake
        self.now = 1000.0
        self.asked: list[float] = []
        self._connection: Any = None

    def connect(self, server_id_hint: int | None = None) -> Any:
        self._connection = self.fake.connect()
        return self

    def read(self, timeout: float) -> list[bytes]:
        if events := self._connection.read(0.0):
            return events
        self.now += 1.0
        if self.now % 3 == 0:
            self.fake.heartbeat()
        return []

    def check_end(self, place: canal.Position) -> bool:
        self.asked.append(self.now)
        raise canal.PositionLostError("the log was begun anew", reason=canal.LostReason.DIVERGED, position=place)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_a_log_that_nothing_comes_of_is_looked_at_after_ten_seconds_whatever_heartbeats_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake, orders = shop()
    orders.insert(order(1))
    source = Quiet(fake)
    monkeypatch.setattr("canal.parse.run.time", SimpleNamespace(monotonic=lambda: source.now))
    with started(source) as instance:  # type: ignore[arg-type]
        instance.subscribe()
        with pytest.raises(canal.PositionLostError, match="begun anew"):
            while instance.get(100, timeout=60):
                pass

    assert source.asked == [1010.0]
