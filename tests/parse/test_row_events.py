"""Rows events: partial images, many columns, damage of every kind, both builds, and the form for digests."""

from __future__ import annotations

import datetime
import importlib.machinery
import importlib.util
import pickle
import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import canal.rows.decoder as rows
from canal.errors import DecodeError, TruncatedError, UnsupportedError
from canal.model import ColumnNames, Row
from canal.rows import native
from canal.rows.decoder import RowDecoder, unsupported_columns
from canal.rows.values import ABSENT, InvalidText, ZeroDate
from tests.support.row_images import (
    DELETE,
    INSERT,
    MIXED,
    NO_NULLS,
    ODD,
    UPDATE,
    UTC,
    bitmap,
    column,
    datetime2,
    decode,
    event,
    image,
    mixed_events,
    time2,
    value,
)

# -- events ------------------------------------------------------------------------------------------------------------

MIXED_VALUES = tuple(row[4] for row in MIXED)


def mixed_decoder(module: Any = rows, **options: Any) -> RowDecoder:
    return module.RowDecoder(
        bytes(row[0] for row in MIXED), tuple(row[1] for row in MIXED), tuple(row[2] for row in MIXED), **options
    )


def test_rows_of_every_kind_of_event() -> None:
    decoder = mixed_decoder()
    some = tuple(None if i % 3 == 0 else found for i, found in enumerate(MIXED_VALUES))
    none = (None,) * len(MIXED)
    halves = tuple(ABSENT if i % 2 else found for i, found in enumerate(MIXED_VALUES))
    expected = [
        [(None, MIXED_VALUES), (None, some), (None, none)],
        [(MIXED_VALUES, some), (some, none)],
        [(some, None), (MIXED_VALUES, None)],
        [(halves, some)],
    ]
    assert [decode(decoder, data, kind) for kind, data in mixed_events()] == expected


def test_wanted_columns_in_the_order_asked_for() -> None:
    decoder = mixed_decoder(wanted=(9, 0, 1))
    found = [decode(decoder, data, kind) for kind, data in mixed_events()]
    assert found[0] == [(None, (0.25, -7, 2**32 - 1)), (None, (None, None, 2**32 - 1)), (None, (None,) * 3)]
    assert found[3] == [((ABSENT, -7, ABSENT), (None, None, 2**32 - 1))]
    assert decode(mixed_decoder(wanted=()), mixed_events()[0][1]) == [(None, ())] * 3
    for wrong in ((0, 0), (-1,), (len(MIXED),)):
        with pytest.raises(ValueError, match="wanted"):
            mixed_decoder(wanted=wrong)


def test_absent_differs_from_null() -> None:
    """T72"""
    decoder = RowDecoder(b"\x03\x03\x03", (0, 0, 0), None)
    # NULL bits count the present columns only: bit 0 of the after image is the second column.
    data = event(3, b"\xfe\1\0\0\0", b"\xfd\5\0\0\0", kind=UPDATE, present=[b"\x01", b"\x06"])
    assert decode(decoder, data, UPDATE) == [((1, ABSENT, ABSENT), (ABSENT, None, 5))]


def test_image_without_columns() -> None:
    """T72: MINIMAL: an insert of nothing but defaults is a row without a byte, alone in its event."""
    decoder = RowDecoder(b"\x03\x03", (0, 0), None)
    assert decode(decoder, event(2, present=[b"\xfc"])) == [(None, (ABSENT, ABSENT))]
    assert decode(decoder, event(2, b"\xfe\1\0\0\0", kind=UPDATE, present=[b"\x01", b"\x00"]), UPDATE) == [
        ((1, ABSENT), (ABSENT,) * 2)
    ]
    assert decode(decoder, event(2, kind=UPDATE, present=[b"\0", b"\0"]), UPDATE) == [((ABSENT,) * 2, (ABSENT,) * 2)]
    for call in (decoder.walk, decoder.decode):
        with pytest.raises(DecodeError):
            call(event(2, b"x", present=[b"\0"]), 0, 3, INSERT)


def test_event_without_rows() -> None:
    assert decode(mixed_decoder(), event(len(MIXED))) == []


@pytest.mark.parametrize("count", [1, 7, 8, 9, 64, 65, 250, 251, 252, 300, 4096])
def test_many_columns(count: int) -> None:
    """T73"""
    decoder = RowDecoder(b"\x01" * count, (0,) * count, None)
    raw: list[bytes | None] = [None if i % 5 == 2 else bytes([i % 100]) for i in range(count)]
    row = tuple(None if i % 5 == 2 else i % 100 for i in range(count))
    assert decode(decoder, event(count, image(raw), image(raw))) == [(None, row)] * 2
    [(_, last)] = decode(decoder, event(count, b"\xfe\7", present=[bitmap([i == count - 1 for i in range(count)])]))
    assert last == (ABSENT,) * (count - 1) + (7,)


def test_an_image_seen_before_decodes_the_same() -> None:
    decoder = RowDecoder(b"\x01" * 16, (0,) * 16, None)
    for present in list(range(1, 1000)) * 2:
        chosen = [bool(present >> i & 1) for i in range(16)]
        values = [bytes([i]) for i in range(16) if chosen[i]]
        [(_, row)] = decode(decoder, event(16, image(list(values)), present=[bitmap(chosen)]))
        assert row == tuple(i if chosen[i] else ABSENT for i in range(16))


def test_type_null() -> None:
    assert value(6, 0, b"") is None


def test_positional_decoder() -> None:
    decoder = RowDecoder(b"\x03\x0f\xfe\xfe", (0, 10, 247 << 8 | 1, 0xFE05), None)
    assert decode(decoder, event(4, b"\xf0\xff\xff\xff\xff\x01a\x02\x01b")) == [(None, (-1, b"a", 2, b"b"))]


def test_decoder_is_picklable() -> None:
    decoder = pickle.loads(pickle.dumps(mixed_decoder(wanted=(0, 2))))
    assert decode(decoder, mixed_events()[0][1])[0] == (None, (-7, "abc"))
    assert pickle.loads(pickle.dumps(ABSENT)) is ABSENT
    assert not ABSENT
    assert repr(ABSENT) == "ABSENT"
    zero = pickle.loads(pickle.dumps(ZeroDate("0000-00-00")))
    assert type(zero) is ZeroDate
    assert zero == "0000-00-00"


# -- what cannot be measured -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 20, 21, 128, 139, 142, 241, 243, 244])
def test_types_without_a_length(code: int) -> None:
    with pytest.raises(UnsupportedError, match=f"type {code}") as caught:
        RowDecoder(bytes([3, code]), (0, 0), (column("a"), column("b")))
    assert caught.value.column == "b"
    assert "column 2" in (unsupported_columns(bytes([3, code]), (0, 0)) or "")


def test_every_other_type_has_a_length() -> None:
    metas = {246: 10, 16: 1, 247: 0xF701, 248: 0xF801, 254: 0xFE0A, **dict.fromkeys((140, 242, 245, 249, 250, 251, 252, 255), 2)}
    codes = [*range(1, 20), 140, 141, 242, *range(245, 256)]
    assert unsupported_columns(bytes(codes), tuple(metas.get(code, 0) for code in codes)) is None


@pytest.mark.parametrize(
    ("code", "meta"),
    [
        (246, 66),
        (246, 0),
        (246, 5 | 6 << 8),
        (246, 65 | 39 << 8),
        (16, 0),
        (16, 0x0801),
        (17, 7),
        (18, 7),
        (19, 255),
        (252, 0),
        (140, 0),
        (140, 5),
        (252, 5),
        (245, 0),
        (254, 247 << 8),
        (254, 247 << 8 | 3),
        (254, 248 << 8 | 9),
    ],
)
def test_impossible_metadata(code: int, meta: int) -> None:
    with pytest.raises(DecodeError):
        RowDecoder(bytes([code]), (meta,), None)
    assert unsupported_columns(bytes([code]), (meta,))


def test_schema_of_another_length() -> None:
    with pytest.raises(DecodeError):
        RowDecoder(b"\3\3", (0, 0), (column(),))


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", range(4))
def test_every_truncation_is_refused(which: int) -> None:
    """A cut event either ends early, or is a shorter event that ends between two rows."""
    decoder = mixed_decoder()
    kind, data = mixed_events()[which]
    whole = decoder.decode(data, 0, len(data), kind)
    refused = 0
    for size in range(len(data)):
        for cut, end in ((data[:size], size), (data, size)):
            try:
                found = decoder.decode(cut, 0, end, kind)
            except TruncatedError:
                refused += 1
                with pytest.raises(TruncatedError):
                    decoder.walk(cut, 0, end, kind)
            else:
                assert found == whole[: len(found)]
                assert decoder.walk(cut, 0, end, kind) == len(found) < len(whole)
    assert refused == 2 * (len(data) - len(whole))


@pytest.mark.parametrize("which", range(4))
def test_trailing_bytes_are_refused(which: int) -> None:
    decoder = mixed_decoder()
    kind, data = mixed_events()[which]
    for tail in (b"\0", b"\x01\0\0\xff", b"\0" * 20):
        for call in (decoder.walk, decoder.decode):
            with pytest.raises(DecodeError):
                call(data + tail, 0, len(data) + len(tail), kind)


@pytest.mark.parametrize(
    "count", [b"\x01", b"\x03", b"\xfc\x02\x01", b"\xfb", b"\xfd\x02\0\0", b"\xfe", b"\xff", b"\xfc", b"\xfc\x02", b""]
)
def test_wrong_column_count(count: bytes) -> None:
    decoder = RowDecoder(b"\3\3", (0, 0), None)
    for call in (decoder.walk, decoder.decode):
        with pytest.raises(DecodeError):
            call(count, 0, len(count), INSERT)


@pytest.mark.parametrize(("pos", "end"), [(-1, 3), (0, 100), (3, 2), (4, 4), (-5, -1)])
def test_places_outside_of_the_event(pos: int, end: int) -> None:
    decoder = RowDecoder(b"\3", (0,), None)
    for call in (decoder.walk, decoder.decode):
        with pytest.raises(TruncatedError):
            call(b"\1\xff\0\0", pos, end, INSERT)


def test_unknown_kind_of_event() -> None:
    for kind in (-1, 4):
        with pytest.raises(UnsupportedError):
            mixed_decoder().walk(b"\1\xff\0", 0, 3, kind)


def test_length_beyond_the_event_names_its_column() -> None:
    decoder = RowDecoder(b"\3\xfc", (0, 4), (column("id"), column("body")))
    data = event(2, NO_NULLS + b"\1\0\0\0" + b"\xff\xff\xff\xff" + b"abc")
    for call in (decoder.walk, decoder.decode):
        with pytest.raises(TruncatedError, match="'body'") as caught:
            call(data, 0, len(data), INSERT)
        assert caught.value.column == "body"


# -- both builds -------------------------------------------------------------------------------------------------------


def interpreted() -> Any:
    """The interpreted module, whichever build is in use."""
    path = Path(rows.__file__).parent / "decoder.py"
    loader = importlib.machinery.SourceFileLoader("rows_interpreted", str(path))
    spec = importlib.util.spec_from_loader("rows_interpreted", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


INTERPRETED = interpreted()
DECODERS = mixed_decoder(), mixed_decoder(INTERPRETED)
ODD_TYPES = bytes(row[0] for row in ODD)
ODD_METAS = tuple(row[1] for row in ODD)
ODD_COLUMNS = tuple(column(f"c{i}", row[2], charset=row[3], unsigned=bool(i & 1)) for i, row in enumerate(ODD))
ODD_DECODERS = tuple(module.RowDecoder(ODD_TYPES, ODD_METAS, ODD_COLUMNS) for module in (rows, INTERPRETED))


def outcome(decoder: Any, call: str, data: bytes, kind: int) -> Any:
    try:
        return repr(getattr(decoder, call)(data, 0, len(data), kind))
    except DecodeError as error:
        return type(error), str(error), error.column


@settings(max_examples=settings().max_examples * 5 // 2)
@given(st.data())
def test_damaged_events_do_the_same_in_both_builds(data: st.DataObject) -> None:
    kind, whole = data.draw(st.sampled_from(mixed_events()))
    raw = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    for call in ("walk", "decode"):
        one, other = (outcome(decoder, call, bytes(raw), kind) for decoder in DECODERS)
        assert one == other


def test_random_rows_do_the_same_in_both_builds() -> None:
    rng = random.Random(5)
    count = len(ODD_TYPES)
    decoded = 0
    for _ in range(1500):
        raw = bytearray(event(count))
        for _ in range(rng.randint(0, 2)):
            raw += rng.choice((b"\0\0\0", rng.randbytes(3))) + rng.randbytes(rng.choice((58, 100, 200)))
            for at in range(len(raw) - 57, len(raw)):
                if rng.random() < 0.3:
                    raw[at] = 0
        for call in ("walk", "decode"):
            one, other = (outcome(decoder, call, bytes(raw), INSERT) for decoder in ODD_DECODERS)
            assert one == other
        decoded += isinstance(one, str)
    assert decoded


@settings(max_examples=settings().max_examples * 3 // 2)
@given(st.integers(0, len(ODD_TYPES) - 1), st.binary(min_size=40, max_size=40))
def test_any_bytes_of_one_column_do_the_same_in_both_builds(at: int, raw: bytes) -> None:
    size = rows._width(ODD_TYPES[at], ODD_METAS[at], ODD_COLUMNS[at].column_type)
    if size >= 128:
        length = raw[0] % 35
        body = length.to_bytes(size - 128, "little") + raw[1 : 1 + length]
    else:
        body = raw[:size]
    present = bitmap([i == at for i in range(len(ODD_TYPES))])
    data = event(len(ODD_TYPES), b"\xfe" + body, present=[present])
    one, other = (outcome(decoder, "decode", data, INSERT) for decoder in ODD_DECODERS)
    assert one == other


def test_constants_of_the_compiled_form() -> None:
    path = Path(native.__file__).with_name("native.pxd")
    if not path.exists():
        pytest.skip("installed without native.pxd")
    listed = re.search(r"cdef enum:\n(.*?)\n\n", path.read_text(), re.DOTALL)
    assert listed is not None
    names = re.findall(r"\w+", listed[1])
    assert [getattr(native, name) for name in names] == list(range(len(names)))
    assert len(names) == 42


def test_old_and_new_temporal_formats_in_one_table() -> None:
    """T60: as MySQL logs a table from before 5.6.4 that got columns since: no server made today has one."""
    cells: list[tuple[int, int, str, bytes, Any]] = [
        (11, 0, "time", (-10203 & 0xFFFFFF).to_bytes(3, "little"), -datetime.timedelta(hours=1, minutes=2, seconds=3)),
        (19, 3, "time(3)", bytes.fromhex("7fffffffce"), -datetime.timedelta(milliseconds=5)),
        (12, 0, "datetime", struct.pack("<Q", 20260715010203), datetime.datetime(2026, 7, 15, 1, 2, 3)),
        (18, 0, "datetime", bytes.fromhex("8000000000"), ZeroDate("0000-00-00 00:00:00")),
        (7, 0, "timestamp", struct.pack("<I", 86400), datetime.datetime(1970, 1, 2, tzinfo=UTC)),
        (17, 3, "timestamp(3)", struct.pack(">I", 86400) + b"\x04\xe2", datetime.datetime(1970, 1, 2, 0, 0, 0, 125000, UTC)),
    ]
    columns = tuple(column(f"c{n}", cell[2]) for n, cell in enumerate(cells))
    decoder = RowDecoder(bytes(cell[0] for cell in cells), tuple(cell[1] for cell in cells), columns, None, UTC)

    ((_, found),) = decode(decoder, event(len(cells), image([cell[3] for cell in cells])))

    assert list(found) == [cell[4] for cell in cells]


def test_labels_that_are_not_known_for_sure_are_bytes_with_their_number() -> None:
    labels = ("b\udc3f", "ok", "\udcfc")
    enum = RowDecoder(b"\xfe", (247 << 8 | 1,), (column(column_type="enum()", labels=labels, charset="utf8mb4"),))
    bits = RowDecoder(b"\xfe", (248 << 8 | 1,), (column(column_type="set()", labels=labels, charset="utf8mb4"),))

    def value(decoder: RowDecoder, number: int) -> Any:
        data = bytes((1, 1, 0, number))
        return decoder.decode(data, 0, len(data), 0)[0][1][0]

    assert [value(enum, n) for n in (0, 1, 2, 3)] == ["", b"b?", "ok", b"\xfc"]
    assert [value(bits, n) for n in (2, 3, 5)] == ["ok", b"b?,ok", b"b?,\xfc"]
    for decoder, number in ((enum, 3), (bits, 5)):
        found = pickle.loads(pickle.dumps(value(decoder, number)))
        assert (type(found), found.charset, found.number) == (InvalidText, "utf8mb4", number)


# -- the form that digests are made of ---------------------------------------------------------------------------------

_MOMENTS = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59))
_CELLS = st.tuples(
    st.binary(min_size=4, max_size=4),
    _MOMENTS.map(lambda one: (struct.pack("<Q", int(one.strftime("%Y%m%d%H%M%S").zfill(14))), datetime2(str(one)[:19], 0))),
    st.integers(-3020399, 3020399).map(lambda one: (_old_time(one), time2(1000000 * one, 0))),
    st.integers(0, 2**32 - 1).map(lambda one: (struct.pack("<I", one), struct.pack(">I", one))),
    st.binary(max_size=9).map(lambda one: bytes([len(one)]) + one),
)


def _old_time(seconds: int) -> bytes:
    number = abs(seconds) // 3600 * 10000 + abs(seconds) // 60 % 60 * 100 + abs(seconds) % 60
    return (number if seconds >= 0 else -number).to_bytes(3, "little", signed=True)


@given(data=st.data(), kind=st.sampled_from([INSERT, UPDATE, DELETE]))
def test_rows_have_one_form_whichever_server_logged_them(data: st.DataObject, kind: int) -> None:
    """With the temporal types from before 5.6 and with those since; with the unused NULL bits set and clear."""
    images: list[list[bytes]] = [[], [], []]
    for _ in range(2 * data.draw(st.integers(1, 3))):
        nulls = data.draw(st.lists(st.booleans(), min_size=5, max_size=5))
        cells = [one if isinstance(one, tuple) else (one, one) for one in data.draw(_CELLS)]
        for number in (0, 1):
            images[number].append(image([None if null else cell[number] for null, cell in zip(nulls, cells)]))
        images[2].append(bytes([images[1][-1][0] & 0x1F]) + images[1][-1][1:])
    before_56 = RowDecoder(b"\x03\x0c\x0b\x07\x0f", (0, 0, 0, 0, 9), None)
    since_56 = RowDecoder(b"\x03\x12\x13\x11\x0f", (0, 0, 0, 0, 9), None)

    forms = []
    for decoder, rows_of_it in zip((before_56, since_56, since_56), images):
        framed = b"\xee" * 5 + event(5, *rows_of_it, kind=kind) + b"\xff" * 4
        assert decoder.walk(framed, 5, len(framed) - 4, kind) == len(rows_of_it) // (2 if kind == UPDATE else 1)
        forms.append(bytes(decoder.canonical(framed, 5, len(framed) - 4, kind)))

    assert forms == [b"".join(images[2])] * 3
    assert decode(before_56, event(5, *images[0], kind=kind), kind) == decode(since_56, event(5, *images[1], kind=kind), kind)


def test_rows_without_columns_have_an_empty_form() -> None:
    decoder = RowDecoder(b"\x03\x03", (0, 0), None)
    data = event(2, present=[b"\xfc"])
    assert bytes(decoder.canonical(data, 0, len(data), INSERT)) == b""


def test_rows_are_equal_by_names_and_values() -> None:
    names = ColumnNames(("a", "b"))
    row = Row((1, None), names)

    assert row == Row((1, None), ColumnNames(("a", "b")))
    assert row not in (Row((1, 2), names), Row((1, None), ColumnNames(("a", "c"))), (1, None), None)
