"""The process that is killed while it merges three sources: writes what it got and acked to a file of its own.

    python -m tests.programs.group_child OPTIONS_AS_JSON META_DIRECTORY OUTPUT_FILE

The options have the ports of the members by their names, that of the standby of one, their user and password, and the filter.
"""

from __future__ import annotations

import json
import os
import sys

import canal
from tests.programs.kill_child import append
from tests.support.journal import changes_of


def parser_of(options: dict[str, str], port: str, standby: str | None) -> canal.parse.BinlogParser:
    def source(port: str) -> canal.MySQLSource:
        return canal.MySQLSource(
            host="127.0.0.1",
            port=int(port),
            user=options["user"],
            password=options["password"],
            connect_timeout=2.0,
            heartbeat_interval=1.0,
            get_server_public_key=True,
        )

    return canal.parse.BinlogParser(
        source(port),
        tables=canal.filter.TableFilter(options["filter"]),
        standby=None if standby is None else source(standby),
        backoff=(0.1, 1.0),
    )


def main() -> None:
    options, directory, output = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    standbys = options["standbys"]
    parsers = {name: parser_of(options, port, standbys.get(name)) for name, port in options["members"].items()}
    group = canal.parse.GroupParser(parsers, idle_after=1.0, stalled_after=4.0, on_stalled="go_on")
    quick = canal.Heartbeat(interval=0.3, timeout=2.0, retries=2)
    with canal.Instance.compose("grouped", parser=group, meta=canal.FileMeta(directory), heartbeat=quick) as instance:
        instance.subscribe()
        append(file, "START", instance.position())
        while True:
            message = instance.get_without_ack(50, timeout=1.0)
            if message:
                found = [(entry.member, change) for entry in message.entries for change in changes_of([entry])]
                ends = [(entry.member, entry.timestamp) for entry in message.entries if entry.is_end]
                append(file, "GOT", found, message.position)
                instance.ack(message.id)
                append(file, "ACKED", message.position)
                append(file, "ENDS", ends, group.late)


if __name__ == "__main__":
    main()
