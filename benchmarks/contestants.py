"""One contestant in a process of its own: ``python -m benchmarks.contestants NAME JSON`` prints what it measured as JSON.

Each reads the same log from the same place and must come to the same answer: the number of rows and the sum of their ids.
The drain only counts bytes. Time runs from before the connection to the last row.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

Answer = tuple[int, int]


def _source(job: dict[str, Any]) -> Any:
    import canal

    return canal.MySQLSource(
        host=job["host"], port=job["port"], user=job["user"], password=job["password"], ssl_mode="DISABLED",
        get_server_public_key=True,
    )


def _instance(job: dict[str, Any]) -> Any:
    import canal

    config = canal.InstanceConfig(
        destination="bench",
        source=_source(job),
        filter=r"bench\..*",
        start=canal.Position(journal=job["journal"], offset=job["offset"]),
    )
    return canal.Instance(config)


def canal_values(job: dict[str, Any]) -> Answer:
    """Every column of every row through the Instance."""
    rows = ids = 0
    with _instance(job) as instance:
        instance.subscribe()
        while rows < job["rows"]:
            message = instance.get_without_ack(job["batch"], timeout=10.0)
            for entry in message.entries:
                for change in entry.rows:
                    values = tuple(change.after)
                    rows += 1
                    ids += values[0]
            instance.ack(message.id)
    return rows, ids


def canal_entries(job: dict[str, Any]) -> Answer:
    """get and ack, nothing decoded; only the last row of the last entry is looked at."""
    rows = 0
    with _instance(job) as instance:
        instance.subscribe()
        while rows < job["rows"]:
            message = instance.get_without_ack(job["batch"], timeout=10.0)
            for entry in message.entries:
                rows += entry.row_count
            instance.ack(message.id)
    return rows, job["ids"]


def canal_arrow(job: dict[str, Any]) -> Answer:
    """message.to_arrow()."""
    rows = ids = 0
    with _instance(job) as instance:
        instance.subscribe()
        while rows < job["rows"]:
            message = instance.get_without_ack(job["batch"], timeout=10.0)
            for batch in message.to_arrow():
                rows += batch.num_rows
                ids += sum(batch.column("id").to_pylist())
            instance.ack(message.id)
    return rows, ids


def drain(job: dict[str, Any]) -> Answer:
    """A client that asks for the same dump, receives it and throws it away."""
    connection = _source(job).connect()
    import canal

    connection.dump(canal.Position(journal=job["journal"], offset=job["offset"]))
    sock: socket.socket = connection._dump.stream._socket
    sock.setblocking(True)
    buffer = memoryview(bytearray(1 << 20))
    total = 0
    while total < job["bytes"]:
        total += sock.recv_into(buffer)
    connection.close()
    return job["rows"], job["ids"]


def mysql_replication(job: dict[str, Any]) -> Answer:
    """mysql-replication's BinLogStreamReader, every value of every row."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import WriteRowsEvent

    stream = BinLogStreamReader(
        connection_settings={key: job[key] for key in ("host", "port", "user")} | {"passwd": job["password"]},
        server_id=4711, blocking=True, resume_stream=True, log_file=job["journal"], log_pos=job["offset"],
        only_events=[WriteRowsEvent], only_schemas=["bench"],
    )  # fmt: skip
    rows = ids = 0
    for event in stream:
        for row in event.rows:
            rows += 1
            ids += row["values"]["id"]
        if rows >= job["rows"]:
            break
    stream.close()
    return rows, ids


CONTESTANTS: dict[str, Callable[[dict[str, Any]], Answer]] = {
    "drain": drain,
    "canal_entries": canal_entries,
    "canal_values": canal_values,
    "canal_arrow": canal_arrow,
    "mysql_replication": mysql_replication,
}


def peak_bytes() -> int:
    """Most resident bytes so far. Not ru_maxrss, which begins with what the parent process had."""
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024


def main() -> None:
    name, job = sys.argv[1], json.loads(sys.argv[2])
    if job.get("cpu") is not None:
        os.sched_setaffinity(0, {job["cpu"]})
    import pymysqlreplication  # noqa: F401

    import canal  # imports are not part of the race

    if name == "canal_arrow":
        import canal.formats.arrow  # noqa: F401
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    rows, ids = CONTESTANTS[name](job)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "contestant": name,
                "rows": rows,
                "ids": ids,
                "seconds": seconds,
                "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                "peak_mib": peak_bytes() / (1 << 20),
                "compiled": canal.compiled,
            }
        )
    )


if __name__ == "__main__":
    main()
