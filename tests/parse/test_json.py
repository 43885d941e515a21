"""MySQL's binary JSON: documents as a real server stored them beside the text it printed for them, and damage."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal.errors import DecodeError, TruncatedError
from canal.rows.json import decode_json, decode_objects, double_text

#: (bytes in the log, SELECT CAST(doc AS CHAR)) of MySQL 9.7; the last rows are opaque SQL values.

DOCUMENTS = [
    (b"\x04\x00", "null"),
    (b"\x04\x01", "true"),
    (b"\x04\x02", "false"),
    (b"\x05\x00\x00", "0"),
    (b"\x05\xff\xff", "-1"),
    (b"\x05\xff\x7f", "32767"),
    (b"\x05\x00\x80", "-32768"),
    (b"\x07\xff\xff\x00\x00", "65535"),
    (b"\x07\x00\x00\x01\x00", "65536"),
    (b"\x07\xff\x7f\xff\xff", "-32769"),
    (b"\x07\xff\xff\xff\x7f", "2147483647"),
    (b"\x07\x00\x00\x00\x80", "-2147483648"),
    (b"\t\xff\xff\xff\xff\x00\x00\x00\x00", "4294967295"),
    (b"\n\x00\x00\x00\x00\x01\x00\x00\x00", "4294967296"),
    (b"\n\xff\xff\xff\xff\xff\xff\xff\x7f", "9223372036854775807"),
    (b"\t\x00\x00\x00\x00\x00\x00\x00\x80", "-9223372036854775808"),
    (b"\n\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615"),
    (b"\x0b\x00\x00\x00\x00\x00\x00\x00@", "2.0"),
    (b"\x0b\x00\x00\x00\x00\x00\x00\x00\x80", "-0.0"),
    (b"\x0b\x00\x004&\xf5k\x0cC", "1e15"),
    (b"\x0b\x00\x80\xe07y\xc3AC", "1e16"),
    (b"\x0b\xf1h\xe3\x88\xb5\xf8\xe4>", "0.00001"),
    (b"\x0b\x16V\xe7\x9e\xaf\x03\xd2<", "0.000000000000001"),
    (b"\x0b}\xc3\x94%\xadI\xb2T", "1e100"),
    (b"\x0b/0\xb7\xb3\xa7\xc9\xaa\x81", "-1.25e-300"),
    (b"\x0b\x9a\x99\x99\x99\x99\x99\xb9?", "0.1"),
    (b"\x0c\x00", '""'),
    (b'\x0c\x05\xc3\xa9"\\/', '"é\\"\\\\/"'),
    (b"\x0c\x04\n\t\x01\x7f", '"\\n\\t\\u0001\x7f"'),
    (b"\x02\x00\x00\x04\x00", "[]"),
    (b"\x00\x00\x00\x04\x00", "{}"),
    (
        b"\x02\x03\x00+\x00\x05\x01\x00\x02\r\x00\x00\x1b\x00\x02\x00\x0e\x00\x05\x02\x00\x02\n\x00\x00\x00\x04\x00\x01\x00\x10\x00\x0b\x00\x01\x00\x00\x0c\x00a\x00\x00\x04\x00",
        '[1, [2, []], {"a": {}}]',
    ),
    (
        b"\x00\x03\x00\x1d\x00\x19\x00\x00\x00\x19\x00\x01\x00\x1a\x00\x01\x00\x04\x00\x00\x0c\x1b\x00\x05\x01\x00ab\x01x",
        '{"": null, "a": "x", "b": 1}',
    ),
    (b"\x02\x01\x00\x11\x00\x0f\x07\x00\x0c\x08\xc0\xd4\x01\x19v\x1f\x95\x19", '["2015-01-15 23:24:25.120000"]'),
    (b"\x02\x01\x00\x11\x00\x0f\x07\x00\n\x08\x00\x00\x00\x00\x00\x1e\x95\x19", '["2015-01-15"]'),
    (b"\x02\x01\x00\x11\x00\x0f\x07\x00\x0b\x08@+\xfe\xe69\xff\xff\xff", '["-12:24:25.120000"]'),
    (b"\x02\x01\x00\x11\x00\x0f\x07\x00\x0b\x08\x00\x00\x00\xfbn4\x00\x00", '["838:59:59.000000"]'),
    (b"\x02\x01\x00\x11\x00\x0f\x07\x00\x0c\x08@\xe2\x01\x19v\x1f\x95\x19", '["2015-01-15 23:24:25.123456"]'),
    (b"\x02\x01\x00\r\x00\x0f\x07\x00\xf6\x04\x03\x02\x83\x0e", "[3.14]"),
    (b"\x02\x01\x00\r\x00\x0f\x07\x00\xf6\x04\x02\x01\x7f\xfa", "[-0.5]"),
    (
        b"\x02\x01\x00\x19\x00\x0f\x07\x00\xf6\x10\x1e\n\x8c\x14\x9a\xa45\r\xfb8\xd2\x07[\xcd\x15\x00",
        "[12345678901234567890.1234567890]",
    ),
    (b"\x02\x01\x00\x0c\x00\x0f\x07\x00\x0f\x03\x01\x02\xff", '["base64:type15:AQL/"]'),
    (b"\x02\x01\x00\n\x00\x0f\x07\x00\x0f\x01\x05", '["base64:type15:BQ=="]'),
    (b"\x0b\xc4\xa5\xb5.*\xeeEC", "1.2345678901234568e16"),
    (b"\x0b\x03\xeb*\xf2T\x8b\x11C", "1234567890123456.8"),
    (
        b'\x0f\xf6"H\x00\x7f\xff\xff\x9c\xc4e6\x00\xc4e6\x00\xc4e6\x00\xc4e6\x00\xc4e6\x00\xc4e6\x00\xc4e6\x00',
        "-99999999999999999999999999999999999999999999999999999999999999999",
    ),
    (
        b"\x0f\x0f:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        '"base64:type15:YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh\\nYQ=="',
    ),
    (b"", "null"),
]


@pytest.mark.parametrize(("data", "text"), DOCUMENTS, ids=lambda value: value[:30] if isinstance(value, str) else "")
def test_the_text_is_the_servers_own(data: bytes, text: str) -> None:
    """T69"""
    assert decode_json(data, 0, len(data)) == text
    assert decode_json(b"??" + data + b"??", 2, 2 + len(data)) == text


@pytest.mark.parametrize(("data", "text"), DOCUMENTS, ids=lambda value: value[:30] if isinstance(value, str) else "")
def test_every_truncation_is_a_typed_error_or_the_null_of_an_empty_document(data: bytes, text: str) -> None:
    """T69"""
    for end in range(1, len(data)):
        with pytest.raises(DecodeError):
            decode_json(data, 0, end)


def test_damage_never_raises_anything_else() -> None:
    rng = random.Random(1)
    for _ in range(30_000):
        data = bytearray(rng.choice(DOCUMENTS)[0] or b"\4\0")
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            text = decode_json(bytes(data), 0, len(data))
        except DecodeError:
            continue
        assert len(text) < 20 * len(data) + 400


@given(st.binary(max_size=60))
def test_any_bytes_end_in_a_text_or_a_typed_error(data: bytes) -> None:
    try:
        assert isinstance(decode_json(data, 0, len(data)), str)
    except DecodeError:
        pass


def test_damage_never_raises_anything_else_where_objects_are_asked_for() -> None:
    rng = random.Random(2)
    for _ in range(30_000):
        data = bytearray(rng.choice(DOCUMENTS)[0] or b"\4\0")
        for _ in range(rng.randint(0, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            value: object = decode_objects(bytes(data), 0, len(data))
        except DecodeError as error:
            value = error
        try:
            text: object = decode_json(bytes(data), 0, len(data))
        except DecodeError as error:
            text = error
        assert isinstance(value, DecodeError) == isinstance(text, DecodeError)
        assert (value is None) == (text == "null")


def test_containers_that_refer_to_themselves_are_refused() -> None:
    itself = b"\2" + b"\2\0" + b"\x0a\0" + b"\2\0\0" * 2  # both elements are the array

    with pytest.raises(DecodeError, match="containers inside|again and again"):
        decode_json(itself, 0, len(itself))


def test_containers_may_be_a_hundred_deep_and_no_deeper() -> None:
    """T69"""

    def nested(depth: int) -> bytes:
        data = b"\0\0" + b"\4\0"
        for _ in range(depth - 1):
            data = b"\1\0" + (len(data) + 7).to_bytes(2, "little") + b"\2\7\0" + data
        return b"\2" + data

    assert decode_json(nested(100), 0, len(nested(100))) == "[" * 100 + "]" * 100
    with pytest.raises(DecodeError, match="100 JSON containers"):
        decode_json(nested(101), 0, len(nested(101)))


def test_a_number_that_is_not_finite_is_refused() -> None:
    with pytest.raises(DecodeError, match="not finite"):
        double_text(float("nan"))


def test_a_length_may_not_point_behind_the_end() -> None:
    with pytest.raises(TruncatedError):
        decode_json(b"\x0c\xff\xff\xff\xff\x0f" + b"x" * 10, 0, 16)
