"""Values of rows: each type at its limits, NULL, and bytes that are none of its values."""

from __future__ import annotations

import copy
import datetime
import decimal
import ipaddress
import pickle
import struct
import sys
import tracemalloc
import zlib
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal.errors import DecodeError, UnsupportedError
from canal.rows import native
from canal.rows.decoder import RowDecoder
from canal.rows.values import InvalidJson, InvalidText, ZeroDate
from tests.support.row_images import NO_NULLS, UTC, column, date3, datetime2, decode, event, fraction, time2, value

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


@pytest.mark.parametrize(("charset", "raw"), [("utf8mb4", b"a\xff"), ("ascii", b"a\x80"), ("ucs2", b"abc"), ("gbk", b"\x81")])
def test_bytes_that_are_no_text_are_kept(charset: str, raw: bytes) -> None:
    """T66"""
    found = value(15, 200, bytes([len(raw)]) + raw, charset=charset)
    assert isinstance(found, InvalidText)
    assert found == raw
    assert found.charset == charset
    copy = pickle.loads(pickle.dumps(found))
    assert copy == raw
    assert copy.charset == charset


def same_text(raw: bytes) -> None:
    """The text is what Python reads, and made as Python makes it: one of another width would be unequal to its equal."""
    found = value(253, 1000, struct.pack("<H", len(raw)) + raw, charset="utf8mb4")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        assert found == InvalidText(raw, "utf8mb4")
        return
    assert type(found) is str
    assert (found, hash(found), sys.getsizeof(found)) == (text, hash(text), sys.getsizeof(raw.decode("utf-8")))


@given(st.lists(st.sampled_from("a\x7f\x80ÿĀ\u07ff\u0800€\ud7ff\ue000\uffff\U00010000\U0010ffff"), max_size=20).map("".join))
def test_text_of_utf8_at_the_limits_of_each_width(text: str) -> None:
    same_text(text.encode())


@given(st.lists(st.one_of(st.text(min_size=1).map(str.encode), st.binary(min_size=1, max_size=4)), max_size=6).map(b"".join))
def test_any_bytes_as_utf8(raw: bytes) -> None:
    same_text(raw)


def test_one_byte_that_is_not_ascii_is_seen_wherever_it_stands() -> None:
    for length in range(1, 20):
        for at in range(length):
            same_text(b"a" * at + b"\xff" + b"a" * (length - at - 1))
            same_text(b"a" * at + "é".encode() + b"a" * (length - at - 1))


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
    [
        "::",
        "::1",
        "2001:db8::ff00:42:8329",
        "::ffff:1.2.3.4",
        "::1.2.3.4",
        "1:0:0:2::",
        "1:2:3:4:5:6:7:8",
        "1:2:3:4:5:6:7::",
        "::1:0:0:1",
        "0:1::1:0:0:1",
        "::2:3:4:5:6:7:8",
    ],
)
def test_mariadb_inet6(text: str) -> None:
    """T71"""
    raw = ipaddress.IPv6Address(text.replace("1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0").replace("::2:3", "0:2:3")).packed.rstrip(b"\0")
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
        whole[:-1],
        whole + b"x",
        whole[:1],
        whole[:3],
        whole[:5] + b"\xff" + whole[6:],
        compressed(b""),
        b"\x82\0\x63" + whole[3:],
        b"\x82\0\x65" + whole[3:],
        bomb,
    ):
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
    for text in ("0000-00-00", "2026-00-15", "2026-02-31", "2026-05-00", "2023-02-29", "1900-02-29", "0000-01-01", "2026-04-31"):
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
    ("code", "meta", "raw"), [(18, 2, b"\x99\x00\x00\x00\x00\x64"), (17, 6, b"\0\0\0\1\xff\xff\xff"), (18, 0, b"\0" * 5)]
)
def test_impossible_temporal_bytes(code: int, meta: int, raw: bytes) -> None:
    with pytest.raises(DecodeError, match="'c'"):
        value(code, meta, raw)


def test_old_temporal_types() -> None:
    """T60"""
    assert value(11, 0, (123456).to_bytes(3, "little")) == datetime.timedelta(hours=12, minutes=34, seconds=56)
    assert value(11, 0, (-8385959).to_bytes(3, "little", signed=True)) == -datetime.timedelta(hours=838, minutes=59, seconds=59)
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
