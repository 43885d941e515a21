"""Cursors, a started FileMeta, what its file holds, and a file of canal's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from canal.meta import FileMeta, document
from canal.position import Position

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
HERE = Position("bin.000001", 2**33, f"{UUID}:1-5", row=3, timestamp=7, server_id=2, source=UUID)
NEXT = Position("bin.000002", 4, f"{UUID}:1-6", source=UUID)

CANAL_FILE = """{"clientDatas":[{"clientIdentity":{"clientId":1001,"destination":"example","filter":".*\\\\..*"},
"cursor":{"@type":"com.alibaba.otter.canal.protocol.position.LogPosition",
"identity":{"slaveId":-1,"sourceAddress":{"address":"localhost","port":3306}},
"postion":{"gtid":"","included":false,"journalName":"mysql-bin.000003","position":154,"serverId":1,
"timestamp":1600000000000}}},{"clientIdentity":{"clientId":1002,"destination":"example"},"cursor":null}],
"destination":"example"}"""


@contextmanager
def started(directory: Path, destination: str = "example", interval: float = 0.0) -> Iterator[FileMeta]:
    meta = FileMeta(directory, "interval", interval) if interval else FileMeta(directory)
    meta.start(destination)
    try:
        yield meta
    finally:
        meta.stop()


def stored(directory: Path) -> Position | None:
    return document.load((directory / "example" / "meta.dat").read_bytes(), "example")[1].cursor
