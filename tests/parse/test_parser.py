"""From a source's events to entries: transactions, pieces, positions, faults and reconnects, over genuine binlog bytes."""

from __future__ import annotations

import itertools
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import canal
from canal.testing import _encode
from canal.testing.fake import FakeBinlog
from tests.support.parsing import decoded, everything, flavors, order, patched, rows_of, shop, started

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
        "CREATE TABLE other (id INT)",
        "RENAME TABLE other TO orders",
        "CREATE USER u IDENTIFIED BY 'x'",
        "DROP TABLE other, orders",
        "CREATE DATABASE elsewhere",
        "ALTER TABLE elsewhere.orders ADD x INT",
    ):
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
@settings(max_examples=settings().max_examples // 5)
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

    with pytest.raises(canal.SourceError, match="7 rows.*has only 1"):
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
            with pytest.raises(canal.DecodeError, match="has the end offset"):
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
