"""Row images: each type at its limits, NULLs, partial images, and damage of every kind."""

from __future__ import annotations

import copy
import datetime
import decimal
import importlib.machinery
import importlib.util
import ipaddress
import pickle
import random
import re
import struct
import sys
import tracemalloc
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import canal.rows.decoder as rows
from canal.errors import DecodeError, TruncatedError, UnsupportedError
from canal.model import ColumnNames, Row
from canal.rows import native
from canal.rows.decoder import RowDecoder, unsupported_columns
from canal.rows.values import ABSENT, InvalidJson, InvalidText, ZeroDate
from tests.support.row_images import (
    DELETE,
    INSERT,
    MIXED,
    ODD,
    UPDATE,
    UTC,
    bitmap,
    column,
    date3,
    datetime2,
    event,
    fraction,
    image,
    mixed_events,
    time2,
)

NO_NULLS = b"\0"


def decode(decoder: RowDecoder, data: bytes, kind: int = INSERT) -> list[Any]:
    """Decode what stands between other bytes, after a walk that must agree."""
    framed = b"\xee" * 5 + data + b"\xff" * 4
    found = decoder.decode(framed, 5, 5 + len(data), kind)
    assert decoder.walk(framed, 5, 5 + len(data), kind) == len(found)
    return found


def value(code: int, meta: int, raw: bytes, column_type: str = "", *, zone: Any = None, **traits: Any) -> Any:
    """One value of a table of one column, read through an insert."""
    decoder = RowDecoder(bytes([code]), (meta,), (column("c", column_type, **traits),), None, zone)
    [(before, (found,))] = decode(decoder, event(1, NO_NULLS + raw))
    assert before is None
    return found


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "size"), [(1, 1), (2, 2), (9, 3), (3, 4), (8, 8)])
@pytest.mark.parametrize("unsigned", [False, True])
def test_integers_at_their_limits(code: int, size: int, unsigned: bool) -> None:
    """T53"""
    bits = 8 * size
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for number in (low, low + 1, 0, 1, 127, high - 1, high):
        found = value(code, 0, number.to_bytes(size, "little", signed=not unsigned), unsigned=unsigned)
        assert found == number
        assert type(found) is int


def test_year() -> None:
    """T63"""
    assert [value(13, 0, bytes([raw])) for raw in (0, 1, 126, 255)] == [0, 1901, 2026, 2155]


@pytest.mark.parametrize(
    ("meta", "raw", "number"),
    [
        (0x0001, b"\x01", 1),  # BIT(1): one bit beside no whole bytes
        (0x0101, b"\x01\x02", 258),  # BIT(9)
        (0x0100, b"\xff", 255),  # BIT(8)
        (0x0800, b"\x80" + b"\0" * 7, 1 << 63),  # BIT(64)
        (0x0800, b"\xff" * 8, 2**64 - 1),
    ],
)
def test_bit(meta: int, raw: bytes, number: int) -> None:
    """T54"""
    assert value(16, meta, raw) == number


@pytest.mark.parametrize(
    "text", ["0.1", "-0.1", "1234.5677", "16777216.0", "3e+10", "3.4028235e+38", "1e-38", "1e-45", "-0.0", "1e-07"]
)
def test_float_reads_as_its_shortest_text(text: str) -> None:
    """T56"""
    found = value(4, 4, struct.pack("<f", float(text)))
    assert repr(found) == repr(float(text))


def shortest(number: float) -> float:
    """The float32's shortest text, the slow way."""
    for digits in range(1, 10):
        text = float(f"{number:.{digits}g}")
        if native.to_f32(text) == number:
            return text
    raise AssertionError(number)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_any_float(number: float) -> None:
    """T56"""
    assert repr(value(4, 4, struct.pack("<f", number))) == repr(shortest(number) if number else number)


def test_float_that_is_no_number() -> None:
    assert repr([value(4, 4, struct.pack("<f", float(text))) for text in ("nan", "inf", "-inf")]) == "[nan, inf, -inf]"


@given(st.floats())
def test_double(number: float) -> None:
    assert repr(value(5, 8, struct.pack("<d", number))) == repr(number)


def decimal_bytes(number: Decimal, precision: int, scale: int) -> bytes:
    """A DECIMAL as servers store it: groups of up to nine digits, sign in the highest bit, negatives inverted."""
    digits = str(abs(int(number.scaleb(scale)))).rjust(precision, "0") if precision else ""
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    head = len(whole) % 9
    groups = [whole[:head]] + [whole[i : i + 9] for i in range(head, len(whole), 9)]
    groups += [fraction[i : i + 9] for i in range(0, scale, 9)]
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    raw = bytearray(b"".join(int(group).to_bytes(sizes[len(group)], "big") for group in groups if group))
    raw[0] |= 0x80
    return bytes(byte ^ 0xFF for byte in raw) if number < 0 else bytes(raw)


@pytest.mark.parametrize(
    ("precision", "scale", "raw", "text"),
    [
        (10, 2, b"\x80\x00\x00\x05\x00", "5.00"),
        (10, 2, b"\x7f\xff\xff\xff\xcd", "-0.50"),
        (1, 1, b"\x89", "0.9"),  # no digit before the point is stored
        (1, 1, b"\x76", "-0.9"),
        (1, 0, b"\x80", "0"),
        (5, 4, b"\x80\x00\x01", "0.0001"),
        (5, 4, b"\x7f\xff\xfe", "-0.0001"),
        (18, 9, b"\x8d\xfb\x38\xd2\x3a\xde\x68\xb1", "234567890.987654321"),
    ],
)
def test_decimal(precision: int, scale: int, raw: bytes, text: str) -> None:
    """T55"""
    found = value(246, precision | scale << 8, raw)
    assert isinstance(found, Decimal)
    assert str(found) == text


@given(st.data())
def test_any_decimal(data: st.DataObject) -> None:
    """T55"""
    precision = data.draw(st.integers(1, 65))
    scale = data.draw(st.integers(0, min(precision, 38)))
    number = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    whole = str(abs(number)).rjust(scale + 1, "0")
    text = ("-" if number < 0 else "") + (f"{whole[:-scale]}.{whole[-scale:]}" if scale else whole)
    with decimal.localcontext() as context:
        context.prec = 100
        raw = decimal_bytes(Decimal(text), precision, scale)
    with decimal.localcontext() as context:
        context.prec = 3  # the user's own context must not round
        found = value(246, precision | scale << 8, raw)
    assert f"{found:f}" == text
    assert -found.as_tuple().exponent == scale
    made = Decimal(text)  # by Python: one that is made by hand is the same in all that can be done with it
    for same in (hash, repr, type, Decimal.as_tuple, sys.getsizeof, pickle.dumps, Decimal.adjusted, Decimal.is_signed):
        assert same(found) == same(made)
    assert found == made == copy.deepcopy(found) == pickle.loads(pickle.dumps(found))
    with decimal.localcontext() as context:
        context.prec = 200
        for step in (abs, Decimal.next_plus, lambda one: one * 3, lambda one: one + Decimal("1e-9")):
            assert step(found).as_tuple() == step(made).as_tuple()


def test_decimal_of_impossible_digits() -> None:
    with pytest.raises(DecodeError, match="'c'"):
        value(246, 10 | 2 << 8, b"\x80\x00\x00\x05\xff")


# -- text and bytes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("charset", "raw", "text"),
    [
        ("utf8mb4", "añ€漢🙂".encode(), "añ€漢🙂"),
        ("utf8mb3", "añ€漢".encode(), "añ€漢"),
        ("latin1", b"a\xf1\x80", "añ€"),  # MySQL's latin1 is cp1252
        ("latin1", b"plain", "plain"),
        ("ascii", b"abc", "abc"),
        ("ucs2", b"\0a\x6f\x22", "a漢"),
        ("utf16", b"\xd8\x3d\xde\x42", "🙂"),
        ("gbk", "漢字a".encode("gbk"), "漢字a"),
    ],
)
def test_text_in_its_charset(charset: str, raw: bytes, text: str) -> None:
    """T65"""
    assert value(15, 200, bytes([len(raw)]) + raw, charset=charset) == text
    assert value(252, 2, struct.pack("<H", len(raw)) + raw, charset=charset) == text


@pytest.mark.parametrize(
    ("charset", "raw"), [("utf8mb4", b"a\xff"), ("ascii", b"a\x80"), ("ucs2", b"abc"), ("gbk", b"\x81")]
)
def test_bytes_that_are_no_text_are_kept(charset: str, raw: bytes) -> None:
    """T66"""
    found = value(15, 200, bytes([len(raw)]) + raw, charset=charset)
    assert isinstance(found, InvalidText)
    assert found == raw
    assert found.charset == charset
    copy = pickle.loads(pickle.dumps(found))
    assert copy == raw
    assert copy.charset == charset


def test_text_without_charset_is_bytes() -> None:
    assert value(15, 200, b"\x02\xffa") == b"\xffa"
    assert value(15, 200, b"\x02\xffa", charset="binary") == b"\xffa"
    assert type(value(15, 200, b"\x02\xffa")) is bytes


@pytest.mark.parametrize(("meta", "size"), [(255, 1), (256, 2), (65535, 2)])
def test_varchar_has_one_or_two_length_bytes(meta: int, size: int) -> None:
    for code in (15, 253):
        assert value(code, meta, (200).to_bytes(size, "little") + b"x" * 200, charset="ascii") == "x" * 200


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_blob_lengths(size: int) -> None:
    """T67"""
    for length in (0, 255):
        raw = length.to_bytes(size, "little") + b"\xfe" * length
        for code in (252, 255, 242, 249, 250, 251):
            assert value(code, size, raw) == b"\xfe" * length
    assert value(252, size, b"\0" * size, charset="utf8mb4") == ""


def test_long_char_hides_length_bits_in_its_type() -> None:
    """T52"""
    # CHAR(255) of utf8mb4: 1020 bytes = 0x3fc; bits 0x300 travel inverted in 0xfe & 0x30.
    meta = (0xFE ^ 0x30) << 8 | 0xFC
    assert value(254, meta, struct.pack("<H", 765) + "漢".encode() * 255, charset="utf8mb4") == "漢" * 255
    assert value(254, 0xFE0A, b"\x03abc", charset="utf8mb4") == "abc"
    assert value(254, 0xFEFF, b"\x03abc", charset="utf8mb4") == "abc"


def test_binary_gets_its_zero_bytes_back() -> None:
    """T64"""
    assert value(254, 0xFE03, b"\x01a", "binary(3)") == b"a\0\0"
    assert value(254, 0xFE03, b"\x00", "BINARY(3)", charset="binary") == b"\0\0\0"
    assert value(15, 3, b"\x01a", "varbinary(3)") == b"a"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("426655440000a45612d3e89b123e4567", "123e4567-e89b-12d3-a456-426655440000"),
        ("", "00000000-0000-0000-0000-000000000000"),
        ("017f22e279b07cc398c4dc0c0c07398f", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"),  # version 7 is stored in order
    ],
)
def test_mariadb_uuid(raw: str, text: str) -> None:
    """T71"""
    data = bytes.fromhex(raw)
    assert value(254, 0xFE10, bytes([len(data)]) + data, "uuid") == text


@pytest.mark.parametrize(
    "text",
    ["::", "::1", "2001:db8::ff00:42:8329", "::ffff:1.2.3.4", "::1.2.3.4", "1:0:0:2::", "1:2:3:4:5:6:7:8",
     "1:2:3:4:5:6:7::",
     "::1:0:0:1", "0:1::1:0:0:1", "::2:3:4:5:6:7:8"],
)  # fmt: skip
def test_mariadb_inet6(text: str) -> None:
    """T71"""
    raw = ipaddress.IPv6Address(
        text.replace("1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0").replace("::2:3", "0:2:3")
    ).packed.rstrip(b"\0")
    assert value(254, 0xFE10, bytes([len(raw)]) + raw, "inet6") == text


def test_mariadb_inet4() -> None:
    """T71"""
    assert value(254, 0xFE04, b"\x01\x0a", "inet4") == "10.0.0.0"


def test_enum() -> None:
    """T50, T51, T52"""
    labels = ("a", "", "c")
    found = [value(254, 247 << 8 | 1, bytes([n]), labels=labels) for n in range(4)]
    assert found == ["", "a", "", "c"]
    many = tuple(f"m{i}" for i in range(300))
    assert value(254, 247 << 8 | 2, b"\x2c\x01", labels=many) == "m299"
    assert value(254, 247 << 8 | 2, b"\x2c\x01") == 300
    assert value(247, 247 << 8 | 1, b"\x02", labels=labels) == ""
    with pytest.raises(DecodeError, match="member 4"):
        value(254, 247 << 8 | 1, b"\x04", labels=labels)


def test_set() -> None:
    """T51"""
    labels = ("x", "y", "z")
    found = [value(254, 248 << 8 | 1, bytes([n]), labels=labels) for n in (0, 1, 6, 7)]
    assert found == ["", "x", "y,z", "x,y,z"]
    many = tuple(f"k{i}" for i in range(64))
    assert value(254, 248 << 8 | 8, b"\xff" * 8, labels=many) == ",".join(many)
    assert value(254, 248 << 8 | 8, b"\0" * 7 + b"\x80", labels=many) == "k63"
    assert value(254, 248 << 8 | 3, b"\1\0\1") == 65537
    with pytest.raises(DecodeError, match="3 members"):
        value(254, 248 << 8 | 1, b"\x08", labels=labels)


def compressed(plain: bytes, *, wrap: bool = True, width: int = 2) -> bytes:
    """A value of MariaDB's COMPRESSED columns, deflated."""
    deflater = zlib.compressobj(6, zlib.DEFLATED, 15 if wrap else -15)
    head = bytes((0x80 | width | (0 if wrap else 8),)) + len(plain).to_bytes(width, "big")
    return head + deflater.compress(plain) + deflater.flush()


@pytest.mark.parametrize(
    ("code", "meta", "size"), [(141, 255, 1), (141, 256, 2), (140, 1, 1), (140, 2, 2), (140, 3, 3), (140, 4, 4)]
)
def test_compressed_columns(code: int, meta: int, size: int) -> None:
    """Empty, stored as it is, deflated with and without zlib's frame, in the column's charset."""
    text = "añ" * 80
    for charset, raw in (("utf8mb4", text.encode()), ("latin1", text.encode("cp1252")), (None, text.encode())):
        found = text if charset else raw
        forms = [b"\0" + raw] + [compressed(raw, wrap=wrap, width=width) for wrap in (True, False) for width in (1, 2, 4, 7)]
        for form in forms:
            assert value(code, meta, len(form).to_bytes(size, "little") + form, charset=charset) == found
        assert value(code, meta, bytes(size), charset=charset) == (raw[:0] if charset is None else "")
        assert value(code, meta, b"\1".ljust(size, b"\0") + b"\0", charset=charset) == (b"" if charset is None else "")
    assert value(code, meta, b"\3".ljust(size, b"\0") + b"\0\xff\xfe", charset="utf8mb4") == InvalidText(b"\xff\xfe", "utf8mb4")


def test_damaged_compressed_values_are_typed_errors() -> None:
    whole = compressed(b"x" * 100)
    bomb = compressed(bytes(1 << 24), width=4)
    for raw in (
        whole[:-1], whole + b"x", whole[:1], whole[:3], whole[:5] + b"\xff" + whole[6:], compressed(b""),
        b"\x82\0\x63" + whole[3:], b"\x82\0\x65" + whole[3:], bomb,
    ):  # fmt: skip
        with pytest.raises(DecodeError, match="cannot be inflated") as caught:
            value(140, 2, struct.pack("<H", len(raw)) + raw)
        assert caught.value.column == "c"
    for head in (0x80, 0x88, 0x91, 0xF1):
        with pytest.raises(UnsupportedError, match="not known"):
            value(140, 2, struct.pack("<H", 3) + bytes((head, 1, 1)))


def test_a_compressed_value_of_more_than_a_server_sends_is_refused_before_it_is_inflated() -> None:
    deflated = zlib.compress(bytes(48 << 20))
    raw = b"\x84" + ((1 << 30) + 1).to_bytes(4, "big") + deflated
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="cannot be inflated"):
            value(140, 4, struct.pack("<I", len(raw)) + raw)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_json_of_mariadb_as_objects() -> None:
    schema = (column("c", "json", charset="utf8mb4"),)
    decoder = RowDecoder(b"\xfc", (4,), schema, json_text=False)

    def found(text: bytes) -> Any:
        return decode(decoder, event(1, NO_NULLS + struct.pack("<I", len(text)) + text))[0][1][0]

    assert found(b'{"a": [1, 0.5, null]}') == {"a": [1, 0.5, None]}
    assert decode(decoder.text_form, event(1, NO_NULLS + b"\1\0\0\0x")) == [(None, ("x",))]
    assert decoder.text_form.text_form is decoder.text_form
    for wrong in (b"", b"{", b"NaN", b'{"a": 1, "a": 1}', b"[" * 100_000, b"1" * 5000):
        assert type(found(wrong)) is InvalidJson
        assert found(wrong) == wrong.decode()
    assert type(found(b"\xff")) is InvalidText


def test_json() -> None:
    decoder = RowDecoder(b"\xf5", (4,), (column(),))
    data = event(1, NO_NULLS + b"\2\0\0\0\x04\x01")
    assert decode(decoder, data) == [(None, ("true",))]
    assert decode(RowDecoder(b"\xf5", (4,), (column(),), json_text=False), data) == [(None, (True,))]


# -- temporal types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [10, 14])
def test_date(code: int) -> None:
    """T57"""
    for text in ("0001-01-01", "1000-01-01", "2024-02-29", "2000-02-29", "9999-12-31"):
        assert value(code, 0, date3(*map(int, text.split("-")))) == datetime.date.fromisoformat(text)
    for text in (
        "0000-00-00",
        "2026-00-15",
        "2026-02-31",
        "2026-05-00",
        "2023-02-29",
        "1900-02-29",
        "0000-01-01",
        "2026-04-31",
    ):
        found = value(code, 0, date3(*map(int, text.split("-"))))
        assert isinstance(found, ZeroDate)
        assert found == text


@pytest.mark.parametrize("digits", range(7))
def test_datetime(digits: int) -> None:
    """T57, T61"""
    tail = "." + "123456"[:digits] if digits else ""
    for text in ("2026-01-31 12:34:56", "0001-01-01 00:00:00", "9999-12-31 23:59:59", "1582-10-10 01:01:01"):
        found = value(18, digits, datetime2(text + tail, digits))
        assert found == datetime.datetime.fromisoformat(text + (tail.ljust(7, "0") if tail else ""))
        assert found.tzinfo is None
    for text in ("0000-00-00 00:00:00", "2026-00-15 01:02:03", "2026-02-31 23:59:59", "2026-01-01 24:00:00"):
        found = value(18, digits, datetime2(text + tail, digits))
        assert isinstance(found, ZeroDate)
        assert found == text + tail


@pytest.mark.parametrize("digits", range(7))
def test_timestamp(digits: int) -> None:
    """T58, T62"""
    part = fraction("." + "987654"[:digits], digits)
    micros = int("987654"[:digits].ljust(6, "0")) if digits else 0
    for seconds in (*[0][: micros > 0], 1, 951782400, 951868799, 951868800, 2**31 - 1, 2**32 - 1):
        raw = struct.pack(">I", seconds) + part
        expected = datetime.datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
        found = value(17, digits, raw)
        assert found == expected
        assert found.tzinfo is UTC
        for zone in (datetime.timezone(datetime.timedelta(hours=-5)), ZoneInfo("Europe/Berlin")):
            found = value(17, digits, raw, zone=zone)
            assert found == expected
            assert found.tzinfo is zone
    found = value(17, digits, b"\0\0\0\0" + b"\0" * len(part))
    assert isinstance(found, ZeroDate)
    assert found == "0000-00-00 00:00:00" + ("." + "0" * digits if digits else "")


def test_timestamp_in_the_doubled_hour() -> None:
    """T62"""
    berlin = ZoneInfo("Europe/Berlin")
    first, second = (value(17, 0, struct.pack(">I", 1792889999 + shift), zone=berlin) for shift in (0, 3600))
    assert (first.hour, first.fold, second.hour, second.fold) == (2, 0, 2, 1)


@given(st.integers(1, 2**32 - 1))
def test_any_timestamp(seconds: int) -> None:
    assert value(17, 0, struct.pack(">I", seconds)) == datetime.datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize("digits", range(7))
@pytest.mark.parametrize("sign", [1, -1])
def test_time(digits: int, sign: int) -> None:
    """T59"""
    unit = 10 ** (6 - digits)
    for micros in (0, unit, 500000, 1000000, 3599999999, 45296123456, 3020398999999, 3020399000000):
        micros = sign * (micros // unit * unit)
        assert value(19, digits, time2(micros, digits)) == datetime.timedelta(microseconds=micros)


def test_time_as_the_manual_stores_it() -> None:
    """T59"""
    assert value(19, 2, b"\x7f\xff\xff\xff") == datetime.timedelta(microseconds=-10000)  # -00:00:00.01
    assert value(19, 2, b"\x7f\xff\xfe\xf6") == datetime.timedelta(seconds=-1, microseconds=-100000)  # -00:00:01.10
    assert value(19, 6, b"\x7f\xff\xff\xff\xff\xff") == datetime.timedelta(microseconds=-1)


@pytest.mark.parametrize(
    ("code", "meta", "raw"),
    [(18, 2, b"\x99\x00\x00\x00\x00\x64"), (17, 6, b"\0\0\0\1\xff\xff\xff"), (18, 0, b"\0" * 5)],
)
def test_impossible_temporal_bytes(code: int, meta: int, raw: bytes) -> None:
    with pytest.raises(DecodeError, match="'c'"):
        value(code, meta, raw)


def test_old_temporal_types() -> None:
    """T60"""
    assert value(11, 0, (123456).to_bytes(3, "little")) == datetime.timedelta(hours=12, minutes=34, seconds=56)
    assert value(11, 0, (-8385959).to_bytes(3, "little", signed=True)) == -datetime.timedelta(
        hours=838, minutes=59, seconds=59
    )
    assert value(12, 0, struct.pack("<Q", 20260131123456)) == datetime.datetime(2026, 1, 31, 12, 34, 56)
    assert value(12, 0, bytes(8)) == ZeroDate("0000-00-00 00:00:00")
    assert value(12, 0, struct.pack("<Q", 20260015000000)) == ZeroDate("2026-00-15 00:00:00")
    assert value(7, 0, struct.pack("<I", 86400)) == datetime.datetime(1970, 1, 2, tzinfo=UTC)
    assert value(7, 0, bytes(4)) == ZeroDate("0000-00-00 00:00:00")


def test_old_temporal_types_with_a_fraction() -> None:
    """T60: MariaDB with mysql56_temporal_format=OFF: only the schema tells the digits."""
    assert value(7, 0, struct.pack(">I", 86400) + b"\x03\xe7", "timestamp(3)") == datetime.datetime(
        1970, 1, 2, 0, 0, 0, 999000, UTC
    )
    assert value(7, 0, bytes(4) + b"\0\x01", "timestamp(3)") == datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)
    assert value(7, 0, bytes(6), "timestamp(3)") == ZeroDate("0000-00-00 00:00:00.000")
    seconds = (((2026 * 13 + 1) * 32 + 31) * 24 + 12) * 3600 + 34 * 60 + 56
    raw = (seconds * 1000000 + 123456).to_bytes(8, "big")
    assert value(12, 0, raw, "datetime(6)") == datetime.datetime(2026, 1, 31, 12, 34, 56, 123456)
    raw = (3020400 * 100 - 150).to_bytes(4, "big")
    assert value(11, 0, raw, "time(2)") == -datetime.timedelta(seconds=1, milliseconds=500)


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
    metas = {
        246: 10,
        16: 1,
        247: 0xF701,
        248: 0xF801,
        254: 0xFE0A,
        **dict.fromkeys((140, 242, 245, 249, 250, 251, 252, 255), 2),
    }
    codes = [*range(1, 20), 140, 141, 242, *range(245, 256)]
    assert unsupported_columns(bytes(codes), tuple(metas.get(code, 0) for code in codes)) is None


@pytest.mark.parametrize(
    ("code", "meta"),
    [(246, 66), (246, 0), (246, 5 | 6 << 8), (246, 65 | 39 << 8), (16, 0), (16, 0x0801), (17, 7), (18, 7), (19, 255),
     (252, 0), (140, 0), (140, 5),
     (252, 5), (245, 0), (254, 247 << 8), (254, 247 << 8 | 3), (254, 248 << 8 | 9)],
)  # fmt: skip
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


@settings(max_examples=500, deadline=None)
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


@settings(max_examples=300, deadline=None)
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
    """T60: as MySQL logs a table of before 5.6.4 that got columns since: no server made today has one."""
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
    """With the temporal types of before 5.6 and with those since; with the unused NULL bits set and clear."""
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
