"""Rows decoded straight into Arrow arrays: the same values as tuples have, and the same errors."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import canal
from canal.errors import DecodeError, UsageError
from canal.formats import columnar
from canal.formats.arrow import changes, to_arrow
from canal.model import Entry, EntryType, EventType, TableMap, decode_tuples
from canal.rows import charsets
from canal.rows.charsets import MAX_CHAR_BYTES, codec_of, utf8_table
from canal.rows.decoder import RowDecoder
from canal.rows.values import ABSENT, InvalidText, PartialJson, ZeroDate
from canal.schema import ColumnSchema, TableSchema
from canal.testing.fake import FakeBinlog
from tests.programs.types_table import EXAMPLES
from tests.support import partial_json, row_images
from tests.support.parsing import decoded
from tests.support.random_logs import decode, logs
from tests.support.row_images import DELETE, INSERT, MIXED, ODD, UPDATE, bitmap, event, image, packed
from tests.support.strategies import transaction

LAYOUTS = ("images", "changes")
CHARSETS = [*charsets._COLLATIONS, "utf8"]

# -- the judge -----------------------------------------------------------------------------------------------------------


def expected(entries: Sequence[Entry], layout: str) -> list[Any]:
    """(operation, number, entry, image, image before) of each row, by tuples."""
    found: list[Any] = []
    for index, entry in enumerate(entries):
        numbers = range(entry.first_row + entry.skip_rows, 1 << 62)
        chosen = numbers if entry.selected is None else [numbers[number] for number in entry.selected]
        for number, (before, after) in zip(chosen, decode_tuples(entry, json_text=True)):
            if before is None:
                found.append((0, number, index, after, None))
            elif after is None:
                found.append((3, number, index, before, None))
            elif layout == "images":
                found += [(1, number, index, before, None), (2, number, index, after, None)]
            else:
                found.append((2, number, index, after, before))
    return found


def told(value: Any, kind: pa.DataType) -> tuple[Any, bool, str | None]:
    """What Arrow must say of a value: its own value, whether it is absent, and the exact text."""
    if value is ABSENT:
        return None, True, None
    if isinstance(value, ZeroDate | InvalidText | PartialJson) or isinstance(value, bytes) and pa.types.is_string(kind):
        text = value.hex() if isinstance(value, bytes) else "PartialJson" if isinstance(value, PartialJson) else str(value)
        return None, False, text
    if pa.types.is_float32(kind) and value is not None:
        return repr(struct.unpack("<f", struct.pack("<f", value))[0]), False, None
    return repr(value) if isinstance(value, float) else value, False, None


def check(entries: Sequence[Entry], layout: Any) -> None:
    for entry in entries:
        check_forms(entry)
    found = changes(entries, layout)
    rows = expected(entries, layout)
    for array in (found.op, found.ord, found.entry, *found.columns, found.absent, found.exact, *(found.before or ())):
        array.validate(full=True)
        assert len(array) == len(rows)
    assert list(zip(found.op.to_pylist(), found.ord.to_pylist(), found.entry.to_pylist())) == [row[:3] for row in rows]
    check_side(found.table, found.columns, found.absent, found.exact, [row[3] for row in rows])
    if layout == "changes":
        assert found.before is not None
        check_side(found.table, found.before, found.before_absent, found.before_exact, [row[4] for row in rows])
    else:
        assert (found.before, found.before_absent, found.before_exact) == (None, None, None)


def check_forms(entry: Entry) -> None:
    """``rows``, ``tuples()`` and pairs are the same values."""
    pairs = repr(decode_tuples(entry))
    rows = [tuple(None if row is None else row.values() for row in (change.before, change.after)) for change in entry.rows]
    before, after = entry.tuples()
    none = [None] * max(len(before or ()), len(after or ()))
    assert repr(rows) == pairs == repr(list(zip(none if before is None else before, none if after is None else after)))
    assert (before is None, after is None) == (entry.kind == INSERT, entry.kind == DELETE)
    assert all(change.after is None or change.after.keys() == list(entry.column_names) for change in entry.rows)


def check_side(table: TableMap, columns: list[Any], absent: Any, exact: Any, images: list[Any]) -> None:
    names = [column.name for column in table.columns]
    lists = [array.to_pylist() for array in columns]
    for number, (row, missing, texts) in enumerate(zip(images, absent.to_pylist(), exact.to_pylist())):
        wanted = [told(value, array.type) for value, array in zip(row or [None] * len(names), columns)]
        values = [repr(one[number]) if isinstance(one[number], float) else one[number] for one in lists]
        assert values == [one[0] for one in wanted]
        assert missing == ([name for name, one in zip(names, wanted) if one[1]] or None)
        held = [(name, "PartialJson" if text.startswith("JSON_") else text) for name, text in texts or ()]
        assert held == [(name, one[2]) for name, one in zip(names, wanted) if one[2] is not None]


def outcome(entries: Sequence[Entry], layout: Any) -> Any:
    """None if the kernel agrees with the tuples, values or error."""
    wrong = error_of(lambda: expected(entries, layout))
    if wrong is None:
        check(entries, layout)
    else:
        assert error_of(lambda: changes(entries, layout)) == wrong
    return wrong


def error_of(call: Callable[[], Any]) -> Any:
    try:
        call()
    except DecodeError as error:
        return type(error), str(error), error.column, error.table
    return None


# -- entries -------------------------------------------------------------------------------------------------------------


def table_of(rows: Sequence[Any], zone: tzinfo = UTC, wanted: tuple[int, ...] | None = None) -> TableMap:
    """A table of the columns (type, metadata, column …) of row_images."""
    types, metas = bytes(row[0] for row in rows), tuple(row[1] for row in rows)
    columns = tuple(
        ColumnSchema(
            one.name,
            meta >> 8 if code == 254 and meta >> 8 in (247, 248) else code,
            meta,
            unsigned=one.unsigned,
            charset=one.charset,
            labels=one.labels,
            column_type=one.column_type,
        )
        for code, meta, one, *_ in rows
    )
    decoder = RowDecoder(types, metas, columns, wanted, zone)
    chosen = columns if wanted is None else tuple(columns[number] for number in wanted)
    return TableMap(TableSchema("shop", "t", columns), chosen, decoder, True)


def entry_of(table: TableMap, kind: int, body: bytes) -> Entry:
    """An entry whose event has other bytes around its body."""
    data = b"\xee" * 5 + body + b"\xff" * 4
    made = Entry(EntryType.ROWDATA, EventType.UPDATE, transaction(), data, 400, 0, 1)
    made.table, made.body, made.body_end, made.kind = table, 5, 5 + len(body), kind
    return made


MIXED_TABLE = table_of(MIXED)
ODD_TABLE = table_of(
    [(code, meta, row_images.column(f"c{i}", text, charset=charset)) for i, (code, meta, text, charset) in enumerate(ODD)]
)


# -- any table, any row --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(log=logs(), data=st.data())
def test_any_log_reads_as_its_tuples_do(layout: str, log: Any, data: st.DataObject) -> None:
    """T72 among others: also of entries of which some rows were skipped or not chosen."""
    groups: dict[int, list[Entry]] = {}
    for entry in decode(log[0], iter([log[0].events()])):
        if entry.table is not None:
            groups.setdefault(id(entry.table), []).append(entry)
            if data.draw(st.integers(0, 5)) == 0:
                entry.skip_rows = data.draw(st.integers(0, entry.row_count))
                entry.row_count -= entry.skip_rows
            if data.draw(st.integers(0, 5)) == 0:
                entry.select(tuple(data.draw(st.lists(st.integers(0, entry.row_count - 1)))) if entry.row_count else ())
    for group in groups.values():
        check(group, layout)


def random_rows(rng: random.Random, count: int) -> bytes:
    return b"".join(image([None if rng.random() < 0.2 else raw for raw in row_images.MIXED_RAW]) for _ in range(count))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_blocks_and_events_of_every_size(layout: str) -> None:
    """Small events are decoded together, large ones alone, and both in several blocks."""
    rng = random.Random(7)
    count = len(MIXED)
    halves = [bitmap([i % 2 == 0 for i in range(count)]), b"\xff" * 3]
    entries = []
    for number in range(60):
        kind = rng.choice((INSERT, UPDATE, UPDATE, DELETE))
        rows = rng.choice((1, 1, 2, 3, 60, 250, 700))
        if kind == UPDATE and rng.random() < 0.5:
            pairs = [image(row_images.MIXED_RAW[::2]) + random_rows(rng, 1) for _ in range(rows)]
            body = event(count, *pairs, kind=kind, present=halves)
        else:
            body = event(count, random_rows(rng, 2 * rows if kind == UPDATE else rows), kind=kind)
        entries.append(entry_of(MIXED_TABLE, kind, body))
        entries[-1].first_row = 1000 * number
    check(entries, layout)


def test_every_type_of_the_docs() -> None:
    for example in EXAMPLES:
        column = example.column
        code = 254 if column.type_code in (247, 248) else column.type_code
        decoder = RowDecoder(bytes([code]), (example.meta,), (column,))
        table = TableMap(TableSchema("shop", "t", (column,)), (column,), decoder, True)
        check([entry_of(table, INSERT, event(1, b"\xfe" + bytes.fromhex(example.data), b"\xff"))], "images")


def test_every_day_that_is_one_and_that_is_none() -> None:
    table = table_of([(10, 0, row_images.column("day")), (18, 0, row_images.column("at"))])
    rows = []
    for year in (0, 1, 4, 100, 400, 1900, 1969, 1970, 2000, 2023, 2024, 9999):
        for month in range(14):
            for day in range(32):
                moment = ((year * 13 + month % 13) << 5 | day) << 17 | 23 << 12 | 59 << 6 | 59
                day3 = (year << 9 | month << 5 | day).to_bytes(3, "little")
                rows.append(b"\0" + day3 + (moment + (1 << 39)).to_bytes(5, "big"))
    check([entry_of(table, INSERT, event(2, *rows))], "images")


@pytest.mark.parametrize("digits", range(7))
def test_the_first_second_of_1970(digits: int) -> None:
    """All zero is the zero date; MariaDB stores the rest of that second."""
    table = table_of([(17, digits, row_images.column("seen"))])
    size = (digits + 1) // 2
    rows = [b"\0" + bytes(4) + number.to_bytes(size, "big") for number in (0, 1, 99) if number == 0 or size]
    check([entry_of(table, INSERT, event(1, *rows))], "images")
    assert changes([entry_of(table, INSERT, event(1, *rows))], "images").columns[0].null_count == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_skipped_and_chosen_rows(layout: str) -> None:
    for kind in (INSERT, UPDATE, DELETE):
        entries = [entry_of(MIXED_TABLE, kind, event(len(MIXED), random_rows(random.Random(2), 12), kind=kind)) for _ in range(5)]
        entries[1].skip_rows = 2
        entries[2].select((3, 0, 3))
        entries[3].skip_rows = 1
        entries[3].select((0, 2))
        check(entries, layout)
        check(entries[:1] + entries[2:3], layout)


def test_members_that_a_column_does_not_have() -> None:
    columns = [row_images.column("c", "enum", charset="utf8mb4", labels=("a", "b")), row_images.column("d")]
    table = table_of([(254, 0xF701, columns[0]), (3, 0, columns[1])])
    assert outcome([entry_of(table, INSERT, event(2, b"\0\2\0\0\0\0"))], "images") is None
    assert outcome([entry_of(table, INSERT, event(2, b"\0\3\0\0\0\0"))], "images") is not None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("wanted", [(9, 0, 1), (), (17, 16, 15, 10, 11)])
def test_filtered_columns(layout: str, wanted: tuple[int, ...]) -> None:
    table = table_of(MIXED, wanted=wanted)
    check([entry_of(table, kind, body) for kind, body in row_images.mixed_events()], layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_images_without_columns(layout: str) -> None:
    table = table_of([(3, 0, row_images.column("a")), (3, 0, row_images.column("b"))])
    none = event(2, present=[b"\xfc"])
    updates = event(2, present=[b"\xfc", b"\xfc"], kind=UPDATE)
    check([entry_of(table, INSERT, none), entry_of(table, UPDATE, updates), entry_of(table, DELETE, none)], layout)
    check([entry_of(table, INSERT, event(2))], layout)  # nor rows


@pytest.mark.parametrize("layout", LAYOUTS)
def test_partial_documents(layout: str) -> None:
    """T70"""
    entry = decoded(partial_json.log())[1]
    without = entry.data[19:29] + b"\2\1\2" + b"\xfe" + struct.pack("<i", 1) + b"\1\1\xfe"
    without += partial_json.counted(partial_json.diff("REMOVE", "$.a"))
    assert entry.table is not None
    other = entry_of(entry.table, 3, without[10:])
    plain = FakeBinlog(flavor="mysql")
    plain.table("shop", "docs", "id INT PRIMARY KEY, doc JSON").insert({"id": 2, "doc": [1]}, {"id": 3, "doc": None})
    insert = next(one for one in decoded(plain.events()) if one.table is not None)
    insert.table = entry.table
    check([entry], layout)
    check([insert, entry, other, insert, entry, entry, insert], layout)
    for end in range(1, len(without) - 9):
        outcome([insert, entry_of(entry.table, 3, without[10 : 10 + end])], layout)


# -- damage --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_truncation_fails_as_it_does_for_tuples(layout: str) -> None:
    good = entry_of(MIXED_TABLE, *row_images.mixed_events()[0])
    for kind, body in row_images.mixed_events():
        ends = [end for end in range(len(body)) if outcome([good, entry_of(MIXED_TABLE, kind, body[:end])], layout) is None]
        assert len(ends) < 4  # where a row ends


@settings(max_examples=settings().max_examples * 3 // 2)
@given(st.data())
def test_damaged_events_fail_as_they_do_for_tuples(data: st.DataObject) -> None:
    entries = []
    for _ in range(data.draw(st.integers(1, 3))):
        kind, whole = data.draw(st.sampled_from(row_images.mixed_events()))
        raw = bytearray(whole)
        for _ in range(data.draw(st.integers(0, 3))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        entries.append(entry_of(MIXED_TABLE, kind, bytes(raw)))
    outcome(entries, data.draw(st.sampled_from(LAYOUTS)))


def test_any_bytes_of_odd_types() -> None:
    rng = random.Random(5)
    decodes = 0
    for number in range(1500):
        raw = bytearray(event(len(ODD)))
        for _ in range(rng.randint(0, 2)):
            raw += rng.choice((b"\0\0\0", rng.randbytes(3))) + rng.randbytes(rng.choice((58, 100, 200)))
            for at in range(len(raw) - 57, len(raw)):
                if rng.random() < 0.3:
                    raw[at] = 0
        decodes += outcome([entry_of(ODD_TABLE, INSERT, bytes(raw))], LAYOUTS[number % 2]) is None
    assert decodes


@settings(max_examples=settings().max_examples * 3 // 2)
@given(st.integers(0, len(ODD) + len(MIXED) - 1), st.binary(min_size=40, max_size=40))
def test_any_bytes_of_one_column(at: int, raw: bytes) -> None:
    table, rows = (ODD_TABLE, ODD) if at < len(ODD) else (MIXED_TABLE, MIXED)
    at %= len(ODD)
    size = table.decoder.plan[at][1]
    length = raw[0] % 35
    value = length.to_bytes(size - 128, "little") + raw[1 : 1 + length] if size >= 128 else raw[:size]
    body = event(len(rows), b"\xfe" + value, present=[bitmap([i == at for i in range(len(rows))])])
    outcome([entry_of(table, INSERT, body)], "images")


def test_the_first_entry_that_fails_is_named() -> None:
    """A later one is found first, as its rows are measured before any value is decoded."""
    fake = FakeBinlog(checksum=False)
    table = fake.table("shop", "orders", "id INT, price DECIMAL(4,2)")
    for number in range(3):
        table.insert({"id": number, "price": 1})
    entries = [entry for entry in decoded(fake.events()) if entry.table is not None]

    def damaged(entry: Entry, data: bytes) -> Entry:
        made = Entry(entry.entry_type, entry.event_type, entry.transaction, data, entry.offset, 0, 1)
        made.table, made.body, made.body_end, made.kind = entry.table, entry.body, entry.body_end, entry.kind
        return made

    value = damaged(entries[1], entries[1].data[:-2] + b"\xff\xff")
    count = damaged(entries[2], entries[2].data[: entries[2].body] + b"\7" + entries[2].data[entries[2].body + 1 :])
    with pytest.raises(DecodeError) as caught:
        changes([entries[0], value, count])
    assert caught.value.column == "price"
    assert caught.value.table == "shop.orders"
    assert caught.value.position == f"{entries[1].transaction.journal}:{entries[1].offset}"


# -- text ----------------------------------------------------------------------------------------------------------------

#: Bytes about the limits of UTF-8's forms.
EDGES = b"\x00Az\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff"


def text_table(charset: str, code: int = 15, meta: int = 1000) -> TableMap:
    return table_of([(code, meta, row_images.column("c", "varchar(1000)", charset=charset))])


def texts(table: TableMap, values: Sequence[bytes]) -> Entry:
    return entry_of(table, INSERT, packed(1) + b"\xff" + b"".join(b"\xfe" + struct.pack("<H", len(one)) + one for one in values))


def test_utf8_is_what_python_takes_for_it() -> None:
    table = text_table("utf8mb4")
    rng = random.Random(3)
    values = [bytes(one) for one in ([a, b] for a in EDGES for b in EDGES)]
    for lead in (0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5):
        values += [bytes([lead, a, b, c]) for a in EDGES for b in EDGES[4:10] for c in (0x7F, 0x80, 0xBF, 0xC0)]
        values += [bytes([lead, a, b]) for a in EDGES for b in EDGES]
    values += [
        b"x" * rng.randint(0, 17) + bytes(rng.choices(EDGES, k=rng.randint(0, 4))) + b"y" * rng.randint(0, 9) for _ in range(3000)
    ]
    check([texts(table, values)], "images")


@given(st.lists(st.lists(st.sampled_from([*map(chr, (0, 65, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF)), "\x80"]))))
def test_any_text(values: list[list[str]]) -> None:
    raw = ["".join(one).encode() for one in values]
    (column,) = changes([texts(text_table("utf8mb4"), raw)]).columns
    assert column.to_pylist() == ["".join(one) for one in values]


@pytest.mark.parametrize("charset", CHARSETS)
def test_every_character_set(charset: str) -> None:
    """T51"""
    table = text_table(charset)
    assert bool(utf8_table(charset)) == (charset not in MAX_CHAR_BYTES and charset != "binary")
    rng = random.Random(charset)
    values = [bytes([byte]) for byte in range(256)] + [rng.randbytes(rng.randint(0, 6)) for _ in range(300)]
    check([texts(table, values)], "images")


def test_text_of_another_set_is_not_taken_for_what_it_looks_like() -> None:
    """Bytes that are no ASCII are no ASCII where they would be UTF-8 too."""
    assert codec_of("ascii") == "ascii"
    (row,) = to_arrow([texts(text_table("ascii"), ["é".encode()])])[0].to_pylist()
    assert (row["c"], row["_exact"]) == (None, [("c", "c3a9")])


def test_labels_that_are_no_text() -> None:
    labels = ("a", b"\xff".decode("utf-8", "surrogateescape"))
    table = table_of([(254, 0xF701, row_images.column("c", "enum", charset="latin1", labels=labels))])
    rows = to_arrow([entry_of(table, INSERT, event(1, b"\0\1", b"\0\2"))])[0].to_pylist()
    assert [(row["c"], row["_exact"]) for row in rows] == [("a", None), (None, [("c", "ff")])]


@pytest.mark.parametrize(("charset", "most"), [("utf8mb4", 10), ("latin1", 10), ("gbk", 10), (None, 10)])
def test_more_text_than_offsets_can_tell(charset: Any, most: int) -> None:
    table = text_table(charset)
    for count in (2, 3):
        kernel = columnar.ChangeColumns(table.decoder, b"\1", False, most)
        kernel.extend([texts(table, [b"12345"])] * count)
        if count == 2:
            kernel.close()
            assert bytes(kernel.images.columns[0].data) == b"1234512345"
            continue
        with pytest.raises(UsageError, match="column 'c' has more than 10 bytes"):
            kernel.close()


# -- zones, and what does not go together --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        (UTC, "UTC"),
        (ZoneInfo("America/New_York"), "America/New_York"),
        (timezone(timedelta(hours=5, minutes=30)), "+05:30"),
        (timezone(-timedelta(hours=3)), "-03:00"),
        (timezone(timedelta(0)), "UTC"),
        (timezone(timedelta(seconds=1)), "UTC"),
    ],
)
def test_moments_are_of_the_instances_zone(zone: tzinfo, name: str) -> None:
    """Also those of the hour that the clocks show twice, and a column without any is of no other type."""
    table = table_of([(17, 0, row_images.column("seen", "timestamp")), (7, 0, row_images.column("old", "timestamp"))], zone)
    moments = [86400, *range(1793511000, 1793523000, 1200), 2**32 - 1]
    rows = [b"\0" + struct.pack(">I", one) + struct.pack("<I", one) for one in moments]
    found = changes([entry_of(table, INSERT, event(2, *rows))]).columns
    assert [column.type for column in found] == [pa.timestamp("us", tz=name)] * 2
    instants = [column.cast(pa.int64()).to_pylist() for column in found]
    assert instants == [[moment * 1_000_000 for moment in moments]] * 2
    assert [value.timestamp() for value in found[0].to_pylist()] == moments
    (empty, _) = changes([entry_of(table, INSERT, event(2, b"\3"))]).columns
    assert empty.type == pa.timestamp("us", tz=name)


def test_entries_must_be_of_one_table() -> None:
    with pytest.raises(ValueError, match="no entries"):
        changes([])
    entry = entry_of(MIXED_TABLE, *row_images.mixed_events()[0])
    begin = Entry(EntryType.TRANSACTIONBEGIN, EventType.QUERY, transaction(), b"", 4, 0, 1)
    other = entry_of(ODD_TABLE, INSERT, event(len(ODD)))
    for wrong in ([begin], [entry, begin], [entry, other]):
        with pytest.raises(ValueError, match="rows|same table"):
            changes(wrong)
    again = attrs.evolve(MIXED_TABLE.schema)
    twin = TableMap(again, MIXED_TABLE.columns, table_of(MIXED).decoder, True)
    check([entry, entry_of(twin, *row_images.mixed_events()[1])], "changes")


def test_json_is_text_where_the_instance_gives_objects() -> None:
    fake = FakeBinlog(flavor="mysql")
    fake.table("shop", "docs", "id INT PRIMARY KEY, doc JSON").insert({"id": 1, "doc": {"a": [1, None]}})
    entry = next(one for one in decoded(fake.events()) if one.table is not None)
    table = entry.table
    assert table is not None
    decoder = RowDecoder(b"\x03\xf5", (0, 4), table.schema.columns, None, UTC, False)
    entry.table = TableMap(table.schema, table.columns, decoder, True)
    assert entry.rows[0].after["doc"] == {"a": [1, None]}
    assert changes([entry]).columns[1].to_pylist() == ['{"a": [1, null]}']


def test_without_rows_there_are_no_values() -> None:
    fake = FakeBinlog()
    fake.table("shop", "orders", "id INT, note VARCHAR(9), doc JSON").insert({"id": 1, "note": "a", "doc": None})
    entry = next(one for one in decoded(fake.events()) if one.table is not None)
    entry.select(())
    batch = canal.Message(1, [entry]).to_arrow()[0]
    assert (batch.num_rows, batch.schema.names) == (0, ["_op", "_txn", "_ord", "id", "note", "doc", "_absent", "_exact"])
