"""Partial updates of JSON documents, byte by byte."""

from __future__ import annotations

import struct
from typing import Any

from canal.testing._encode import encode_json
from canal.testing.fake import FakeBinlog

REPLACE, INSERT, REMOVE = "REPLACE", "INSERT", "REMOVE"
OPERATIONS = (REPLACE, INSERT, REMOVE)
NOTHING: Any = object()


def packed(length: int) -> bytes:
    return bytes((length,)) if length < 251 else b"\xfc" + struct.pack("<H", length)


def diff(operation: str, path: str, value: Any = NOTHING) -> bytes:
    raw = path.encode()
    data = bytes((OPERATIONS.index(operation),)) + packed(len(raw)) + raw
    if value is not NOTHING:
        document = encode_json(value)
        data += packed(len(document)) + document
    return data


def counted(*parts: bytes) -> bytes:
    data = b"".join(parts)
    return struct.pack("<I", len(data)) + data


def document(value: Any) -> bytes:
    return counted(encode_json(value))


def log(**options: Any) -> list[bytes]:
    """A log whose one update is a partial one: the fake's own event, rewritten."""
    fake = FakeBinlog(flavor="mysql", checksum=False, **options)
    table = fake.table("shop", "docs", "id INT PRIMARY KEY, doc JSON")
    row = {"id": 1, "doc": {"a": 1}}
    table.update(row, row)
    events = fake.events()
    number = next(i for i, one in enumerate(events) if one[4] == 31)
    old = events[number]
    image = b"\xfc" + struct.pack("<i", 1)
    body = old[19:29] + b"\2\xff\xff" + image + document({"a": 1}) + b"\1\1" + image + counted(diff(INSERT, "$.b", "x"))
    events[number] = old[:4] + b"\x27" + old[5:9] + struct.pack("<II", 19 + len(body), 0) + old[17:19] + body
    return events
