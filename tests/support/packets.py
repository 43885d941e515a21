"""Events of a log as bytes: made, cut into packets, and found in a file."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from canal.parse.log.framing import MAX_PACKET
from canal.parse.source.file_listing import MAGIC


def packet(sequence: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes((sequence & 0xFF,)) + payload


def dump(events: list[bytes], sequence: int = 1) -> bytes:
    """The packets in which a server sends events, large ones in pieces."""
    out = []
    for event in events:
        payload = b"\0" + event
        while True:
            out.append(packet(sequence, payload[:MAX_PACKET]))
            sequence += 1
            if len(payload) < MAX_PACKET:
                break
            payload = payload[MAX_PACKET:]
    return b"".join(out)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]


def event(code: int, body: bytes, *, flags: int = 0, log_pos: int = 0, time: int = 1_700_000_000) -> bytes:
    data = struct.pack("<IBIIIH", time, code, 1, 19 + len(body) + 4, log_pos, flags) + body
    return data + struct.pack("<I", zlib.crc32(data))


def events_in(path: Path) -> Iterator[bytes]:
    """The raw events of a binlog file."""
    data = path.read_bytes()
    at = len(MAGIC)
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        yield data[at : at + size]
        at += size
