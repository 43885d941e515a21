"""Forks readers of a random load for as long as it is told to; each goes on where the last one was killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import canal
from tests.support.ddl_load import changes_of


def read(folder: str, filter: str, start: str, options: dict[str, Any]) -> None:
    """A line per row change and then the ack, for ever."""
    config = canal.InstanceConfig(
        destination="r",
        source=canal.MySQLSource(**options),
        filter=filter,
        start=canal.Position.from_text(start),
        meta=canal.FileMeta(folder),
        alarm=lambda destination, text: print("alarm:", text, file=sys.stderr, flush=True),
    )
    with canal.Instance(config) as instance, (Path(folder) / "rows").open("a") as out:
        out.write("\n")  # behind a line that a kill cut off
        instance.subscribe()
        while True:
            message = instance.get_without_ack(7, timeout=1)
            if message:
                for position, change in changes_of(message):
                    out.write(json.dumps([position, change]) + "\n")
                out.flush()
                instance.ack(message.id)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    folder, filter, start, options = sys.argv[1:]
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            read(folder, filter, start, json.loads(options))
        print(child, flush=True)
