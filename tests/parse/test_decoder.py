"""The ordered stage against what a stream can do: each event that is rare, odd or out of its usual place.

Never needs a server: genuine events of a fake binlog, put in another order or changed by hand. ``T..`` is the number of the
trap in docs/traps.md that a test is about.
"""

from __future__ import annotations

import gc
import re
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import canal
from canal.binlog import event_layout, event_types, type_codes
from canal.filter import FieldFilter, TableFilter
from canal.model import TableMap
from canal.parse.log.continuity import Continuity
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.log.events import query_context
from canal.parse.schema.classify import classify
from canal.parse.schema.table_map import TableResolver
from canal.testing.fake import FakeBinlog, FakeTable
from tests.support import zstd
from tests.support.packets import event
from tests.support.parsing import chained, decoded, flavors, order, rows_of, shop

QUERY, STOP, ROTATE, FORMAT, XID, TABLE_MAP, HEARTBEAT, ROWS_QUERY, HEARTBEAT_V2 = 2, 3, 4, 15, 16, 19, 27, 29, 41
GTIDS, ROWS = (33, 162), (23, 24, 25, 30, 31, 32)
ARTIFICIAL = 0x20


def kind(event: bytes) -> int:
    return event[4]


def remade(old: bytes, body: bytes, code: int | None = None) -> bytes:
    """An event with another body, and another type where one is given."""
    head = old[:4] + bytes((kind(old) if code is None else code,)) + old[5:9] + struct.pack("<I", 19 + len(body) + 4)
    data = head + old[13:19] + body
    return data + struct.pack("<I", zlib.crc32(data))


def placed(old: bytes, log_pos: int) -> bytes:
    """An event that says it ends there."""
    data = old[:13] + struct.pack("<I", log_pos) + old[17:-4]
    return data + struct.pack("<I", zlib.crc32(data))


def without_checksum(old: bytes) -> bytes:
    return old[:9] + struct.pack("<I", len(old) - 4) + old[13:-4]


def laid_out(events: Iterable[bytes]) -> list[bytes]:
    """The events with the ends that they have one after the other."""
    made: list[bytes] = []
    end = 4
    for old in events:
        end += len(old)
        made.append(placed(old, end))
    return made


def of_kind(events: Iterable[bytes], *kinds: int) -> list[bytes]:
    return [one for one in events if kind(one) in kinds]


def not_last(rows: bytes) -> bytes:
    """A rows event that does not end its statement."""
    return remade(rows, rows[19:25] + b"\0\0" + rows[27:-4])


def rotate_to(journal: str, offset: int = 4, **options: Any) -> bytes:
    return event(ROTATE, struct.pack("<Q", offset) + journal.encode(), **options)


def two_tables(**options: Any) -> tuple[FakeBinlog, FakeTable, FakeTable]:
    fake = FakeBinlog(**options)
    return fake, fake.table("shop", "a", "id INT"), fake.table("shop", "b", "name VARCHAR(300)")


def both_journals(fake: FakeBinlog) -> list[bytes]:
    return [one for journal, _ in fake.journals for one in fake.events(journal)]


# -- journals ------------------------------------------------------------------------------------------------------------


@flavors
@pytest.mark.parametrize(
    "options",
    [{"flags": ARTIFICIAL, "time": 0}, {"flags": ARTIFICIAL, "log_pos": 4711, "time": 0}, {"time": 0}],
    ids=["flag, no position", "flag and a position", "no flag"],
)
def test_an_artificial_rotate_moves_no_position(flavor: str, options: dict[str, Any]) -> None:
    """T1: the ROTATE that opens a dump and each journal in it names the file; what is saved stays as it is."""
    fake, orders = shop(flavor)
    orders.insert(order(1))
    fake.rotate()
    orders.insert(order(2))
    first, second = (fake.events(journal) for journal, _ in fake.journals)

    plain = decoded([*first, *second], flavor=flavor)
    opened = decoded(
        [rotate_to("binlog.000001", **options), *first, rotate_to("binlog.000002", **options), *second], flavor=flavor
    )

    assert [entry.position for entry in opened] == [entry.position for entry in plain]
    assert (opened[-1].position.journal, opened[-1].position.offset) == (fake.journal, fake.position.offset)


@flavors
@pytest.mark.parametrize("told_by", [ROTATE, FORMAT])
def test_a_new_journal_forgets_the_table_ids_of_the_old_one(flavor: str, told_by: int) -> None:
    """T2: ids begin anew in the next journal; a map of the old one would decode the rows of another table."""
    fake, orders = shop(flavor)
    orders.insert(order(1))
    fake.rotate()
    orders.insert(order(2))
    events = [not_last(one) if kind(one) in ROWS else one for one in both_journals(fake)]
    old, new = events[: len(fake.events("binlog.000001"))], events[len(fake.events("binlog.000001")) :]
    opening = of_kind([*old[-1:], *new], told_by)[:1]
    rest = [one for one in new if kind(one) not in (FORMAT, TABLE_MAP)]

    with pytest.raises(canal.errors.MissingTableMapError):
        decoded([*old[:-1], *opening, *rest], flavor=flavor)


@flavors
def test_table_ids_used_again_after_a_restart_are_those_of_the_new_maps(flavor: str) -> None:
    """T2"""
    fake, a, b = two_tables(flavor=flavor)
    a.insert({"id": 1})
    fake.restart()
    a.id, b.id = b.id, a.id
    b.insert({"name": "x"})

    entries = [entry for entry in decoded(both_journals(fake), flavor=flavor) if entry.rows]

    assert [(entry.header.table, entry.rows[0].after[0]) for entry in entries] == [("a", 1), ("b", "x")]


@flavors
def test_several_maps_before_rows_and_several_rows_after_a_map(flavor: str) -> None:
    """T3: a statement on two tables has both maps first; only the table id tells whose the rows are."""
    fake, a, b = two_tables(flavor=flavor)
    with fake.transaction():
        for number in (1, 2):
            a.insert({"id": number})
            b.insert({"name": f"n{number}"})
    events = fake.events()
    maps, rows = of_kind(events, TABLE_MAP), of_kind(events, *ROWS)
    before, after = events[: events.index(maps[0])], events[events.index(rows[-1]) + 1 :]

    changed = laid_out([*before, *maps[:2], *map(not_last, (rows[1], rows[0], rows[3])), rows[2], *after])

    assert [(e.header.table, e.rows[0].after[0]) for e in decoded(changed, flavor=flavor) if e.rows] == [
        ("b", "n1"),
        ("a", 1),
        ("b", "n2"),
        ("a", 2),
    ]


@flavors
def test_the_newest_map_of_a_table_id_wins_and_none_outlives_its_statement(flavor: str) -> None:
    """T4: FLUSH TABLES and ALTER give a table new ids; old ones are dropped when their statement ends."""
    fake, orders = shop(flavor)
    orders.insert(order(1))
    fake.flush_tables()
    orders.insert(order(2))
    orders.alter("ALTER TABLE orders DROP note", "id INT UNSIGNED PRIMARY KEY, price DECIMAL(10,2)")
    orders.insert({"id": 3})
    events = fake.events()
    again = of_kind(events, *ROWS)[0]

    assert rows_of(decoded(events, flavor=flavor)) == [("INSERT", None, n) for n in (1, 2, 3)]
    with pytest.raises(canal.errors.MissingTableMapError):
        decoded(chained([*events[: events.index(again) + 1], again]), flavor=flavor)


TYPES = ("INT", "VARCHAR(40)", "DATETIME", "DECIMAL(10,2)", "TEXT", "BIGINT UNSIGNED", "ENUM('a','b')", "DOUBLE")


def many_tables(count: int, width: int, alike: bool = False) -> list[bytes]:
    """The events of a row of each of so many tables, in schemas of their own; ``alike``: all have the same columns."""
    fake = FakeBinlog(metadata="FULL")
    for number in range(count):
        shift = 0 if alike else number
        columns = ", ".join(f"c{shift}_{i} {TYPES[(i + shift) % len(TYPES)]}" for i in range(width))
        fake.table(f"s{number}", "t", f"id INT PRIMARY KEY, {columns}").insert({"id": number})
    return fake.events()


def fed(events: list[bytes], deliver: Callable[[list[canal.Entry]], None]) -> BinlogDecoder:
    resolver = TableResolver(lambda raw: None, TableFilter(), FieldFilter(), UTC)
    decoder = BinlogDecoder(resolver.resolve, classify, resolver.wants, lambda *_: None, deliver)
    decoder.reset(canal.Position(journal="binlog.000001", offset=4), "mysql", "", None)
    decoder.feed(events)
    return decoder


def test_a_log_that_has_only_been_named_has_no_begin_yet() -> None:
    """That of the log before it is not its own."""
    fake = FakeBinlog()
    first = fake.journal
    second = fake.rotate()
    connection = fake.connect()
    connection.dump(canal.Position(first, 4))
    decoder = BinlogDecoder(lambda *_: None, classify, lambda *_: True, lambda *_: None, lambda _: None)
    decoder.reset(
        canal.Position(first, 4), "mysql", "", None, continuity=Continuity(canal.Position(first, 4), "", by_offset=True)
    )
    seen: dict[str, set[str]] = {}
    for one in connection.read(0.0):
        decoder.feed([one])
        seen.setdefault(decoder.position.journal, set()).add(decoder.position.incarnation)

    assert list(seen) == [first, second]
    for name in seen:
        assert seen[name] == {"", fake.connect().incarnation(name)}


@pytest.mark.parametrize(("count", "width", "kept"), [(4500, 1, 4096), (250, 200, 180)])
def test_table_maps_do_not_pile_up(count: int, width: int, kept: int) -> None:
    """T4: memory is bounded however many tables come by, and however wide they are."""
    events = many_tables(count, width)
    gc.collect()
    before = sum(isinstance(one, TableMap) for one in gc.get_objects())

    decoder = fed(events, lambda entries: None)

    gc.collect()
    assert 0 < sum(isinstance(one, TableMap) for one in gc.get_objects()) - before <= kept
    assert decoder is not None


@pytest.mark.parametrize("width", [1, 8, 100])
@pytest.mark.parametrize("alike", [True, False])
def test_what_entries_hold_of_their_tables_is_accounted(width: int, alike: bool) -> None:
    """The store's budget is for all that entries hold. Tables with the same columns share them."""
    events = many_tables(100, width, alike)
    entries: list[canal.Entry] = []
    fed(events, lambda _: None)  # what is made once
    spare = [canal.Transaction("", "", 0, 0, 0) for _ in range(10_000)]  # that none is used again which was counted before
    spares = [canal.Entry(canal.EntryType.ROWDATA, canal.EventType.INSERT, one, b"", 0, 0, 0) for one in spare]
    gc.collect()
    tracemalloc.start(1)
    try:
        decoder = fed(events, entries.extend)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    accounted = sum(entry.size - len(entry.data) for entry in entries)  # the data was there before
    assert held < 1.2 * accounted
    assert accounted < 2 * held
    assert not decoder.held_bytes
    assert len(spares) == 10_000


@flavors
def test_rows_with_the_dummy_table_id_are_no_rows_and_no_error(flavor: str) -> None:
    """T5: a server ends a statement of which it logs no rows with a rows event of table id 0xffffff."""
    fake, orders = shop(flavor)
    orders.insert(order(1))
    events = fake.events()
    (rows,) = of_kind(events, *ROWS)
    dummy = remade(rows, b"\xff\xff\xff\0\0\0" + rows[25:-4])

    assert rows_of(decoded(laid_out([*events[:-1], dummy, events[-1]]), flavor=flavor)) == [("INSERT", None, 1)]
    unfinished = remade(rows, rows[19:25] + b"\0\0" + rows[27:-4])
    with pytest.raises(canal.errors.MissingTableMapError):  # the dummy has ended the statement, its maps hold no more
        decoded(laid_out([*events[:-2], unfinished, dummy, rows, events[-1]]), flavor=flavor)


# -- positions -----------------------------------------------------------------------------------------------------------


@flavors
def test_a_gtid_is_done_at_the_end_of_its_transaction_and_not_before(flavor: str) -> None:
    """T7: until then it must be asked for again. T6: and every position until then names the start of it."""
    fake, orders = shop(flavor)
    orders.insert(order(1))
    before = fake.position
    with fake.transaction():
        orders.insert(order(2))
        orders.insert(order(3))
    fake.ddl("ALTER TABLE orders ADD x INT", schema="shop")

    *_, begin, one, two, end, ddl = decoded(fake.events(), flavor=flavor)

    for entry in (begin, one, two):
        assert (entry.position.offset, entry.position.gtid) == (before.offset, before.gtid)
    assert [entry.position.row for entry in (begin, one, two)] == [0, 1, 2]
    assert before.precedes(end.position)
    assert end.position.gtid != before.gtid
    assert (ddl.position.offset, ddl.position.gtid) == (fake.position.offset, fake.executed)


@flavors
def test_heartbeats_are_no_entries_and_move_nothing(flavor: str) -> None:
    """T12: of either version, with any position in them; MariaDB puts a position beyond 4 GiB into a sub-header."""
    fake, orders = shop(flavor)
    orders.insert(order(1))
    events = fake.events()
    position = struct.pack("<BQ", 254, 5 << 32)
    beats = [
        event(HEARTBEAT, b"binlog.000001", log_pos=900, time=0),
        event(HEARTBEAT, struct.pack("<Q", 5 << 32) + b"binlog.000001", time=0),
        event(HEARTBEAT_V2, b"\1\x0dbinlog.000001\2\x09" + position + b"\0", log_pos=7, time=0),
    ]
    with_beats = [one for logged in events for one in (logged, *beats)]

    assert [e.position for e in decoded(with_beats, flavor=flavor)] == [e.position for e in decoded(events, flavor=flavor)]


def test_events_without_a_place_are_counted_from_the_last_one() -> None:
    """T13: since 11.4 MariaDB writes no end positions inside a transaction."""
    fake, orders = shop("mariadb")
    for number in (1, 2):
        with fake.transaction():
            orders.insert(order(number), sql="INSERT INTO orders …")
            orders.insert(order(number + 10))
    events = fake.events()
    outside = (*GTIDS, FORMAT, 163, 161)
    without = [one if kind(one) in outside else placed(one, 0) for one in events]

    plain, found = decoded(events, flavor="mariadb"), decoded(without, flavor="mariadb")

    assert [e.position for e in found] == [e.position for e in plain]
    assert [e.header.offset for e in found] == [e.header.offset for e in plain]
    assert found[-1].position.offset == fake.position.offset


@flavors
def test_mariadbs_stand_in_for_another_event_is_no_statement(flavor: str) -> None:
    """T14"""
    fake, orders = shop(flavor)
    with fake.transaction() as transaction:
        transaction.query("# Dummy event replacing event type 160 that slave cannot handle.", "shop")
        orders.insert(order(1))

    entries = [entry for entry in decoded(fake.events(), flavor=flavor) if entry.transaction.row_count]

    assert [entry.entry_type.name for entry in entries] == ["TRANSACTIONBEGIN", "ROWDATA", "TRANSACTIONEND"]


@flavors
def test_checksums_go_on_and_off_with_each_journal(flavor: str) -> None:
    """T15: each FORMAT_DESCRIPTION tells; it has a checksum itself in either case."""
    events: list[bytes] = []
    for number, checksum in enumerate((False, True, False), 1):
        fake, orders = shop(flavor, checksum=checksum)
        orders.insert(order(number))
        rotate = rotate_to(f"binlog.00000{number + 1}")
        events += [*fake.events(), rotate if checksum else without_checksum(rotate)]

    assert rows_of(decoded(events, flavor=flavor)) == [("INSERT", None, n) for n in (1, 2, 3)]
    (_, rows, _) = of_kind(events, *ROWS)
    damaged = rows[:-5] + bytes((rows[-5] ^ 1,)) + rows[-4:]
    with pytest.raises(canal.errors.ChecksumError, match=r"CRC32 [0-9a-f]{8}, but the CRC32 .* is [0-9a-f]{8}") as caught:
        decoded([damaged if one is rows else one for one in events], flavor=flavor)
    assert "binlog.000002:" in str(caught.value)


# -- forms of events -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "text", "sql_mode"),
    [
        (b"", "é", 0),
        (b"\0" + bytes(4) + b"\1" + struct.pack("<Q", 1 << 20), "é", 1 << 20),
        (b"\4\x08\0\x08\0\x08\0\xc8\4\x1c\0\x1c\0\x1c\0", "Ã©", 0),
        (b"\x06\3std\4\x08\0\x08\0\x08\0\x0c\xfe", "Ã©", 0),  # 254 databases: no list follows
        (b"\x0c\2a\0b\0\4\x08\0", "é", 0),  # cut behind what is not looked at
        (b"\1\0\0", "é", 0),
        (b"\5\x40UTC", "é", 0),
    ],
)
def test_status_variables_that_are_unknown_or_cut_are_passed_over(status: bytes, text: str, sql_mode: int) -> None:
    """T18"""
    codec, found = query_context(status)

    assert ("é".encode().decode(codec), found) == (text, sql_mode)


@pytest.mark.parametrize("extra", [b"", b"\0\x03ndb", b"\1\2\0", b"\1\2\0\5\0", bytes(300)])
def test_extra_data_of_rows_is_passed_over(extra: bytes) -> None:
    """T19: partition numbers (MySQL 8.0.16), NDB's own; its length counts itself."""
    fake, orders = shop()
    orders.insert(order(1))
    events = fake.events()
    (rows,) = of_kind(events, *ROWS)
    with_extra = remade(rows, rows[19:27] + struct.pack("<H", 2 + len(extra)) + extra + rows[29:-4])

    assert rows_of(decoded(chained([with_extra if one is rows else one for one in events]))) == [("INSERT", None, 1)]


@pytest.mark.parametrize("code", [QUERY, ROTATE, TABLE_MAP, 23, 25, 30, 32, 162])
def test_a_log_with_fixed_parts_of_other_lengths_is_refused(code: int) -> None:
    """T20: its events would be read at the wrong positions."""
    form = FakeBinlog(flavor="mariadb").events()[0]
    body = bytearray(form[19:-4])
    body[57 + code - 1] = 6

    with pytest.raises(canal.errors.UnsupportedError, match=rf"\(type {code}\) with a fixed part of 6 bytes"):
        decoded([remade(form, bytes(body))], flavor="mariadb")


def test_a_log_of_an_older_or_newer_server_that_knows_other_types_is_read() -> None:
    """T20: a server lists the types that it knows; those that it does not list it cannot write."""
    fake, orders = shop()
    orders.insert(order(1))
    form, *rest = fake.events()
    known = form[19 + 57 : -5]
    for lengths in (known[:35], known + b"\0" * 60):
        changed = remade(form, form[19 : 19 + 57] + lengths + form[-5:-4])
        assert rows_of(decoded(chained([changed, *rest]))) == [("INSERT", None, 1)]


@pytest.mark.parametrize("sql", ["TRUNCATE TABLE orders", "DROP DATABASE shop", "ALTER TABLE orders TRUNCATE PARTITION p1"])
def test_what_removes_rows_without_row_events_is_an_entry(sql: str) -> None:
    """T48"""
    fake, orders = shop()
    orders.insert(order(1))
    fake.ddl(sql, schema="shop")

    *_, entry = decoded(fake.events(), tables=r"shop\..*")

    assert entry.row_change.is_ddl
    assert entry.row_change.sql == sql


def test_an_atomic_create_table_select_is_one_transaction() -> None:
    """T45: MySQL 8.0.21 and later begin it with the statement itself."""
    fake, orders = shop()
    with fake.transaction() as transaction:
        transaction.query("CREATE TABLE orders (id INT) START TRANSACTION", "shop")
        orders.insert(order(1))
    events = fake.events()
    begin = of_kind(events, QUERY)[0]

    found = decoded(laid_out(one for one in events if one is not begin))

    assert [e.entry_type.name for e in found] == ["TRANSACTIONBEGIN", "ROWDATA", "ROWDATA", "TRANSACTIONEND"]
    assert [e.event_type.name for e in found[1:3]] == ["CREATE", "INSERT"]
    assert {e.header.gtid for e in found} == {fake.executed}


def test_a_statement_is_decoded_in_the_charset_of_its_session() -> None:
    """T66: and bytes that are no text in it are kept, so that the statement can be written out again."""
    fake, _ = shop()
    fake.ddl("ALTER TABLE orders COMMENT 'XYZ'", schema="shop")
    *head, query = fake.events()
    status = struct.unpack_from("<H", query, 30)[0]
    body = query[19:30] + struct.pack("<H", 7) + b"\4\x08\0\x08\0\x08\0" + query[32 + status : -4]

    (latin1,) = decoded([*head, remade(query, body.replace(b"XYZ", b"\xe9\x80z"))])
    (broken,) = decoded([*head, remade(query, query[19:-4].replace(b"XYZ", b"\xe9\x80z"))])

    assert latin1.row_change.sql == "ALTER TABLE orders COMMENT 'é€z'"
    assert broken.row_change.sql.encode("utf-8", "surrogateescape") == b"ALTER TABLE orders COMMENT '\xe9\x80z'"


# -- GTIDs ---------------------------------------------------------------------------------------------------------------


def test_domains_of_mariadb_come_interleaved_and_a_server_may_count_anew() -> None:
    """T31"""
    fake, orders = shop("mariadb")
    for number, gtid in enumerate(("0-1-100", "7-1-5", "0-1-101", "0-2-102", "7-2-3")):
        with fake.transaction(gtid=gtid):
            orders.insert(order(number))

    ends = [e for e in decoded(fake.events(), flavor="mariadb") if e.is_end]

    assert [e.header.gtid for e in ends] == ["0-1-100", "7-1-5", "0-1-101", "0-2-102", "7-2-3"]
    assert [e.position.gtid for e in ends] == ["0-1-100", "0-1-100,7-1-5", "0-1-101,7-1-5", "0-2-102,7-1-5", "0-2-102,7-2-3"]


def test_anonymous_transactions_have_no_gtid_and_a_position_all_the_same() -> None:
    """T32"""
    fake, orders = shop(gtid=False)
    orders.insert(order(1))
    end = decoded(fake.events())[-1]

    assert (end.header.gtid, end.position.gtid, end.position.offset) == ("", "", fake.position.offset)


# -- stops of the server -------------------------------------------------------------------------------------------------


def crashed(flavor: str, rows: int = 1) -> list[bytes]:
    """A log whose server died inside a transaction, came back and went on."""
    fake, orders = shop(flavor)
    orders.insert(order(1))
    with fake.transaction():
        for number in range(rows):
            orders.insert(order(100 + number))
    lost = fake.events()[:-1]
    fake.restart()
    orders.insert(order(2))
    return [*lost, *fake.events(fake.journal)]


@flavors
def test_a_transaction_that_a_crash_cut_off_is_rolled_back(flavor: str, caplog: pytest.LogCaptureFixture) -> None:
    """T35: the next journal says that its server was started anew, so the rest will never come."""
    assert rows_of(decoded(crashed(flavor), flavor=flavor)) == [("INSERT", None, 1), ("INSERT", None, 2)]
    assert "stopped inside" in caplog.text


@flavors
def test_a_crash_behind_rows_that_are_delivered_is_an_error(flavor: str) -> None:
    """T35: what is handed out cannot be taken back."""
    with pytest.raises(canal.SourceError, match="first rows are already delivered"):
        decoded(crashed(flavor, rows=9), flavor=flavor, piece_entries=4)


@flavors
def test_a_format_description_that_is_only_repeated_ends_nothing(flavor: str) -> None:
    """T35: without a time of creation it tells how to read, not that the server began anew."""
    fake, orders = shop(flavor)
    with fake.transaction():
        orders.insert(order(1))
        orders.insert(order(2))
    form, *rest = fake.events()
    repeated = remade(form, form[19 : 19 + 52] + bytes(4) + form[19 + 56 : -4])
    middle = rest.index(of_kind(rest, TABLE_MAP)[1])

    assert rows_of(decoded([form, *rest[:middle], placed(repeated, 0), *rest[middle:]], flavor=flavor)) == [
        ("INSERT", None, 1),
        ("INSERT", None, 2),
    ]


# -- compressed transactions ---------------------------------------------------------------------------------------------


def packed(number: int) -> bytes:
    return bytes((number,)) if number < 251 else b"\xfd" + number.to_bytes(3, "little")


def field(code: int, value: bytes) -> bytes:
    return packed(code) + packed(len(value)) + value


def compressed(events: list[bytes], algorithm: int = 0) -> list[bytes]:
    """The log of MySQL with the last transaction in a TRANSACTION_PAYLOAD, its events without checksums."""
    start = max(number for number, one in enumerate(events) if kind(one) in GTIDS) + 1
    inner = b"".join(map(without_checksum, events[start:]))
    data = zstd.compress([inner]) if algorithm == 0 else inner
    body = field(2, packed(algorithm)) + field(3, packed(len(inner))) + field(1, packed(len(data))) + b"\0" + data
    return laid_out([*events[:start], event(40, body)])


@pytest.mark.parametrize("algorithm", [0, 255], ids=["zstd", "none"])
def test_a_compressed_transaction_is_as_a_plain_one_at_the_place_of_its_payload(algorithm: int) -> None:
    """T37: the GTID is outside, the events inside have no positions; filters and statement texts work inside."""
    fake, a, b = two_tables()
    with fake.transaction():
        a.insert({"id": 1}, sql="INSERT INTO a …")
        b.insert({"name": "x" * 200})
    gtid, plain = fake.executed, fake.events()
    events = compressed(plain, algorithm)

    found = decoded(events)

    assert [e.entry_type for e in found] == [e.entry_type for e in decoded(plain)]
    assert rows_of(found) == [("INSERT", None, 1), ("INSERT", None, "x" * 200)]
    assert found[1].query == "INSERT INTO a …"
    assert {e.header.gtid for e in found} == {gtid}
    assert {e.header.offset for e in found[:-1]} == {4 + sum(map(len, events[:-1]))}
    assert found[-1].position.offset == 4 + sum(map(len, events))
    assert [e.position.row for e in found[:-1]] == [0, 1, 2]
    assert rows_of(decoded(events, tables=r"shop\.b")) == [("INSERT", None, "x" * 200)]


def test_a_compressed_transaction_of_filtered_rows_only_is_an_empty_one() -> None:
    """T38"""
    fake, a, _ = two_tables()
    a.insert({"id": 1})

    found = decoded(compressed(fake.events()), tables=r"shop\.b")

    assert [e.entry_type.name for e in found] == ["TRANSACTIONBEGIN", "TRANSACTIONEND"]
    assert found[-1].position.gtid == fake.executed


@pytest.mark.parametrize("inner", [ROTATE, FORMAT, 40])
def test_an_event_that_cannot_be_in_a_payload_is_an_error(inner: int) -> None:
    """T37"""
    fake, a, _ = two_tables()
    a.insert({"id": 1})
    events = fake.events()
    odd = event(inner, bytes(90))
    (xid,) = of_kind(events, XID)

    with pytest.raises(canal.DecodeError, match="inside a TRANSACTION_PAYLOAD"):
        decoded(compressed([odd if one is xid else one for one in events]))


def test_a_payload_with_an_unknown_compression_is_an_error() -> None:
    """T37"""
    fake, a, _ = two_tables()
    a.insert({"id": 1})

    with pytest.raises(canal.errors.UnsupportedError, match="compression type 3"):
        decoded(compressed(fake.events(), 3))


def test_a_payload_larger_than_memory_should_hold_is_read_in_pieces() -> None:
    """T37: what is inside comes out piece by piece, before the whole is inflated."""
    fake, a, b = two_tables(row_event_max_size=1 << 16)
    with fake.transaction():
        for _ in range(40):
            b.insert(*[{"name": "x" * 10}] * 2000)
    pieces: list[int] = []
    resolver = TableResolver(lambda raw: None, TableFilter(), FieldFilter(), UTC)
    decoder = BinlogDecoder(
        resolver.resolve, classify, resolver.wants, lambda *_: None, lambda e: pieces.append(len(e)), piece_bytes=1 << 17
    )
    decoder.reset(canal.Position(journal="binlog.000001", offset=4), "mysql", "", None)

    decoder.feed(compressed(fake.events()))

    assert len(pieces) > 5
    assert max(pieces) < 10


def shrunk(data: bytes, width: int) -> bytes:
    """MariaDB's compressed form, its length in so many bytes."""
    return bytes((0x80 | width,)) + len(data).to_bytes(width, "big") + zlib.compress(data)


def shrunk_event(old: bytes, width: int, version: int) -> bytes:
    """A QUERY or rows event of MariaDB as log_bin_compress writes it, the rows in either version."""
    if kind(old) == QUERY:
        text = 32 + struct.unpack_from("<H", old, 30)[0] + old[27] + 1
        return remade(old, old[19:text] + shrunk(old[text:-4], width), 165)
    change = kind(old) - 23
    images = 27 + 1 + (2 if change == 1 else 1) * ((old[27] + 7) // 8)
    extra = struct.pack("<H", 2) if version == 2 else b""
    body = old[19:27] + extra + old[27:images] + shrunk(old[images:-4], width)
    return remade(old, body, (166 if version == 1 else 169) + change)


@pytest.mark.parametrize(("width", "version"), [(1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (4, 2)])
def test_compressed_rows_and_statements_of_mariadb(width: int, version: int) -> None:
    """T39: every kind of change, both versions, a length of one to four bytes; DDL and COMMIT too."""
    fake, orders = shop("mariadb")
    with fake.transaction(end="COMMIT"):
        orders.insert(order(1), order(2))
        orders.update(order(1), order(3))
        orders.delete(order(2))
    fake.ddl("ALTER TABLE orders ADD x INT", schema="shop")
    plain = fake.events()
    form = bytearray(plain[0][19:-4])
    form[57 + 168 : 57 + 171] = b"\x0a\x0a\x0a"  # what a server says of version 2

    events = [shrunk_event(one, width, version) if kind(one) in (QUERY, 23, 24, 25) else one for one in plain]
    assert {kind(one) for one in events} >= ({165, 166, 167, 168} if version == 1 else {165, 169, 170, 171})
    found = decoded(laid_out([remade(plain[0], bytes(form)), *events[1:]]), flavor="mariadb")

    assert rows_of(found) == [("INSERT", None, 1), ("INSERT", None, 2), ("UPDATE", 1, 3), ("DELETE", 2, None)]
    assert [e.row_change.sql for e in found if e.statement is not None] == ["ALTER TABLE orders ADD x INT"]


@pytest.mark.parametrize("module", [event_layout, event_types, type_codes])
def test_numbers_of_the_compiled_form(module: ModuleType) -> None:
    path = Path(str(module.__file__)).with_suffix(".pxd")
    if not path.exists():
        pytest.skip(f"installed without {path.name}")
    listed = {name: int(number, 0) for name, number in re.findall(r"^    (\w+) = (\w+)$", path.read_text(), re.MULTILINE)}

    assert listed == {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, int)}


def test_each_event_type_has_a_name() -> None:
    assert len(event_types.EVENT_NAMES) == 55
