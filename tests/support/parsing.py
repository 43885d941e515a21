"""What many tests of the parser do: a log of the fake server with two tables, and the entries that a parser makes of it."""

from __future__ import annotations

import datetime
import struct
import zlib
from decimal import Decimal
from typing import Any

import pytest

import canal
from canal.filter import FieldFilter, TableFilter
from canal.gtid import parse_gtid_set
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.schema.classify import classify
from canal.parse.schema.table_map import TableResolver
from canal.testing.fake import FakeBinlog

COLUMNS = "id INT UNSIGNED PRIMARY KEY, note VARCHAR(40), price DECIMAL(10,2)"
flavors = pytest.mark.parametrize("flavor", ["mysql", "mariadb"])


def shop(flavor: str = "mysql", **options: Any) -> tuple[FakeBinlog, Any]:
    fake = FakeBinlog(flavor=flavor, **options)  # type: ignore[arg-type]
    return fake, fake.table("shop", "orders", COLUMNS)


def order(number: int, note: str | None = "é") -> dict[str, Any]:
    return {"id": number, "note": note, "price": Decimal(number) / 4}


def decoded(
    events: list[bytes],
    position: canal.Position | None = None,
    *,
    flavor: str = "mysql",
    tables: str = "",
    out: list[canal.Entry] | None = None,
    **options: Any,
) -> list[canal.Entry]:
    """Entries of raw events, through the decoder alone; ``out`` has them after an error too."""
    out = [] if out is None else out
    resolver = TableResolver(lambda raw: None, TableFilter(tables), FieldFilter(), datetime.UTC)
    decoder = BinlogDecoder(resolver.resolve, classify, resolver.wants, lambda *_: None, out.extend, **options)
    start = position or canal.Position(journal="binlog.000001", offset=4)
    executed = parse_gtid_set(start.gtid, flavor) if start.gtid else None  # type: ignore[arg-type]
    decoder.reset(start, flavor, "", executed)
    decoder.feed(events)
    return out


def chained(events: list[bytes]) -> list[bytes]:
    """The events of one log with the ends that follow from their sizes."""
    out, end = [], 4
    for event in events:
        end += len(event)
        out.append(patched(event, 13, struct.pack("<I", end & 0xFFFFFFFF)))
    return out


def started(fake: FakeBinlog, **options: Any) -> canal.Instance:
    config = canal.InstanceConfig(
        **{"destination": "test", "source": fake, "start": "earliest", "reconnect_backoff": (0.01, 0.05)} | options
    )
    return canal.Instance(config).start()


def rows_of(entries: list[canal.Entry]) -> list[tuple[str, Any, Any]]:
    return [
        (entry.event_type.name, change.before and change.before[0], change.after and change.after[0])
        for entry in entries
        for change in entry.rows
    ]


def everything(instance: canal.Instance, batch_size: int = 100) -> list[canal.Entry]:
    return [entry for message in instance.stream(batch_size) for entry in message.entries]


def patched(event: bytes, at: int, data: bytes) -> bytes:
    """The event with other bytes at an offset, and the checksum that goes with them."""
    event = event[:at] + data + event[at + len(data) : -4]
    return event + struct.pack("<I", zlib.crc32(event))
