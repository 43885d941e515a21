"""The process that is killed while a router gives one source to two outputs: each writes what it got and acked.

    python -m tests.programs.router_child PORT USER PASSWORD META_DIRECTORY RECORDS_DIRECTORY LIFE SCHEMA

The records of output NAME go to RECORDS_DIRECTORY/NAME/LIFE.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import canal
from tests.programs.kill_child import append
from tests.support.journal import changes_of


def follow(output: canal.Instance, path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    output.subscribe()
    append(file, "START", output.position())
    while True:
        message = output.get_without_ack(50, timeout=1.0)
        if message:
            append(file, "GOT", list(changes_of(message.entries)), message.position)
            output.ack(message)
            append(file, "ACKED", message.position)


def main() -> None:
    port, user, password, directory, records, life, schema = sys.argv[1:]
    source = canal.MySQLSource(host="127.0.0.1", port=int(port), user=user, password=password, get_server_public_key=True)
    config = canal.InstanceConfig(
        destination="routed",
        source=source,
        filter=rf"{schema}\..*",
        store_bytes=1 << 20,
        on_slow="evict",
        slow_after=0.2,
        schema_history=canal.FileHistory(directory),
    )
    router = canal.server.RouterSink(config)
    filters = {"all": "", "log": rf"{schema}\.(log|done)"}
    for name, filter in filters.items():
        router.output(name, filter, meta=canal.FileMeta(directory), store_bytes=1 << 18)
    with router:
        threads = [
            threading.Thread(target=follow, args=(output, Path(records) / name / life)) for name, output in router.outputs.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
