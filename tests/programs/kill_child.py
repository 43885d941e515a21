"""The process that is killed: follows a server, writes what it got and acked to a file of its own.

python -m tests.programs.kill_child PORT USER PASSWORD META_DIRECTORY OUTPUT_FILE SCHEMA
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import canal
from tests.support.journal import changes_of

#: START (cursor) | GOT (changes, position) | ACKED (position)
Record = tuple[str, Any]


def append(file: int, *record: Any) -> None:
    data = pickle.dumps(record)
    os.write(file, struct.pack("<I", len(data)) + data)


def read_records(path: Path) -> Iterator[tuple[Any, ...]]:
    """The whole records of one process; one that the kill has cut is the last and counts as not written."""
    data = path.read_bytes() if path.exists() else b""
    at = 0
    while at + 4 <= len(data):
        (size,) = struct.unpack_from("<I", data, at)
        if at + 4 + size > len(data):
            return
        yield pickle.loads(data[at + 4 : at + 4 + size])
        at += 4 + size


def main() -> None:
    port, user, password, directory, output, schema = sys.argv[1:]
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    config = canal.InstanceConfig(
        destination="killed",
        source=canal.MySQLSource(host="127.0.0.1", port=int(port), user=user, password=password, get_server_public_key=True),
        filter=schema + r"\..*",
        meta=canal.FileMeta(directory),
        store_bytes=1 << 20,
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        append(file, "START", instance.position())
        while True:
            message = instance.get_without_ack(50, timeout=1.0)
            if message:
                append(file, "GOT", list(changes_of(message.entries)), message.position)
                instance.ack(message.id)
                append(file, "ACKED", message.position)


if __name__ == "__main__":
    main()
