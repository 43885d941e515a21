"""Row images as a server writes them, byte by byte, with what they mean: of every type, and of odd ones."""

from __future__ import annotations

import datetime
import re
import struct
from decimal import Decimal
from typing import Any

from canal.rows.decoder import RowDecoder
from canal.schema import ColumnSchema

INSERT, UPDATE, DELETE = 0, 1, 2
UTC = datetime.UTC


def column(name: str = "c", column_type: str = "", **traits: Any) -> ColumnSchema:
    return ColumnSchema(name, column_type=column_type, **traits)


def packed(count: int) -> bytes:
    return bytes([count]) if count < 251 else b"\xfc" + struct.pack("<H", count)


def bitmap(bits: list[bool]) -> bytes:
    """Bits of a bitmap; the unused ones of the last byte are set, as servers set them among NULL bits."""
    value = sum(1 << i for i, bit in enumerate(bits) if bit)
    size = (len(bits) + 7) // 8
    return (value | (1 << 8 * size) - (1 << len(bits))).to_bytes(size, "little")


def image(values: list[bytes | None]) -> bytes:
    return bitmap([value is None for value in values]) + b"".join(value for value in values if value is not None)


def event(count: int, *images: bytes, kind: int = INSERT, present: list[bytes] | None = None) -> bytes:
    maps = present or [b"\xff" * ((count + 7) // 8)] * (2 if kind == UPDATE else 1)
    return packed(count) + b"".join(maps) + b"".join(images)


def date3(year: int, month: int, day: int) -> bytes:
    return (year << 9 | month << 5 | day).to_bytes(3, "little")


def datetime2(text: str, digits: int) -> bytes:
    numbers = [int(part) for part in re.findall(r"\d+", text)]
    year, month, day, hour, minute, second = numbers[:6]
    whole = (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second
    return (whole + 0x8000000000).to_bytes(5, "big") + fraction(text, digits)


def fraction(text: str, digits: int) -> bytes:
    size = (digits + 1) // 2
    part = text.partition(".")[2].ljust(2 * size, "0")[: 2 * size]
    return int(part).to_bytes(size, "big") if size else b""


def time2(micros: int, digits: int) -> bytes:
    size = (digits + 1) // 2
    seconds, part = divmod(abs(micros), 1000000)
    whole = (seconds // 3600) << 12 | (seconds // 60 % 60) << 6 | seconds % 60
    number = whole << 8 * size | part // 10 ** (6 - 2 * size)
    return ((0x800000 << 8 * size) + (-number if micros < 0 else number)).to_bytes(3 + size, "big")


#: Columns of every kind: (type, metadata, column, bytes of a value, value).
MIXED = [
    (8, 0, column("id"), struct.pack("<q", -7), -7),
    (3, 0, column("count", unsigned=True), b"\xff" * 4, 2**32 - 1),
    (15, 300, column("name", charset="utf8mb4"), b"\x03\0abc", "abc"),
    (246, 10 | 2 << 8, column("price"), b"\x80\x00\x00\x05\x00", Decimal("5.00")),
    (18, 3, column("made"), datetime2("2026-01-31 12:34:56.789", 3), datetime.datetime(2026, 1, 31, 12, 34, 56, 789000)),
    (17, 0, column("seen"), struct.pack(">I", 86400), datetime.datetime(1970, 1, 2, tzinfo=UTC)),
    (10, 0, column("day"), date3(2026, 2, 3), datetime.date(2026, 2, 3)),
    (19, 2, column("span"), time2(-1100000, 2), datetime.timedelta(seconds=-1.1)),
    (4, 4, column("ratio"), struct.pack("<f", 0.1), 0.1),
    (5, 8, column("score"), struct.pack("<d", 0.25), 0.25),
    (254, 247 << 8 | 1, column("state", labels=("on", "off")), b"\x02", "off"),
    (254, 248 << 8 | 1, column("flags", labels=("x", "y")), b"\x03", "x,y"),
    (16, 0x0101, column("bits"), b"\x01\x02", 258),
    (252, 3, column("blob"), b"\x02\0\0\xfe\xff", b"\xfe\xff"),
    (254, 0xFE04, column("fixed", "binary(4)"), b"\x02ab", b"ab\0\0"),
    (13, 0, column("year"), b"\x7e", 2026),
    (15, 100, column("old", charset="latin1"), b"\x02a\xf1", "añ"),
    (12, 0, column("old_moment"), struct.pack("<Q", 20260131123456), datetime.datetime(2026, 1, 31, 12, 34, 56)),
]
MIXED_RAW = [row[3] for row in MIXED]


def mixed_events() -> list[tuple[int, bytes]]:
    count = len(MIXED)
    some: list[bytes | None] = [None if i % 3 == 0 else raw for i, raw in enumerate(MIXED_RAW)]
    partial = bitmap([i % 2 == 0 for i in range(count)])
    full = b"\xff" * 3
    return [
        (INSERT, event(count, image(list(MIXED_RAW)), image(some), image([None] * count))),
        (UPDATE, event(count, image(list(MIXED_RAW)), image(some), image(some), image([None] * count), kind=UPDATE)),
        (DELETE, event(count, image(some), image(list(MIXED_RAW)), kind=DELETE)),
        (UPDATE, event(count, image(MIXED_RAW[::2]), image(some), kind=UPDATE, present=[partial, full])),
    ]


#: (type, metadata, column type, charset) of the remaining kinds; mutated bytes reach all of them.
ODD = [
    (2, 0, "", None),
    (9, 0, "", None),
    (1, 0, "", None),
    (8, 0, "", None),
    (14, 0, "", None),
    (11, 0, "", None),
    (7, 0, "", None),
    (12, 0, "datetime(6)", None),
    (11, 0, "time(3)", None),
    (7, 0, "timestamp(5)", None),
    (246, 65 | 30 << 8, "", None),
    (254, 0xFE10, "uuid", None),
    (254, 0xFE10, "inet6", None),
    (254, 0xFE04, "inet4", None),
    (254, 247 << 8 | 2, "", None),
    (254, 248 << 8 | 4, "", None),
    (15, 30, "", "gbk"),
    (15, 300, "", "ucs2"),
    (140, 2, "", "utf8mb4"),
    (141, 300, "", "gbk"),
    (242, 1, "", None),
    (6, 0, "", None),
    (18, 6, "", None),
    (19, 6, "", None),
]
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
