"""Other readers in Python, and a client that only drains the socket: ``python -m benchmarks.python_peers NAME JOB``."""

from __future__ import annotations

import importlib.util
import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pymysql

from benchmarks.meter import Meter


def drain(job: dict[str, Any], meter: Meter) -> None:
    """Ask for the same dump, receive it and throw it away; rows are reckoned from the bytes."""
    connection = pymysql.connect(host=job["host"], port=job["port"], user=job["user"], password=job["password"])
    with connection.cursor() as cursor:
        cursor.execute("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32', @mariadb_slave_capability = 4")
    flags = 2 if job["flavor"] == "mariadb" else 0  # with the texts of statements, as the file has them
    request = struct.pack("<IHI", job["offset"], flags, job["server_id"]) + job["journal"].encode()
    connection._execute_command(0x12, request)  # type: ignore[attr-defined]  # COM_BINLOG_DUMP
    socket, buffer, total = connection._sock, memoryview(bytearray(1 << 20)), 0  # type: ignore[attr-defined]
    while meter.more():
        total += socket.recv_into(buffer)
        meter.rows = min(job["rows"] * total // job["bytes"], job["rows"])
    socket.close()


def mysql_replication(job: dict[str, Any], meter: Meter) -> None:
    """BinLogStreamReader, every value of every row."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import UpdateRowsEvent, WriteRowsEvent

    stream = BinLogStreamReader(
        connection_settings={key: job[key] for key in ("host", "port", "user")} | {"passwd": job["password"]},
        server_id=job["server_id"],
        blocking=True,
        resume_stream=True,
        log_file=job["journal"],
        log_pos=job["offset"],
        only_events=[UpdateRowsEvent if job["update"] else WriteRowsEvent],
        only_schemas=[job["schema"]],
    )
    for event in stream:
        for row in event.rows:
            before, after = row.get("before_values"), row.get("after_values") or row["values"]
            meter.rows += 1
            meter.ids += after["id"]
            if meter.watch:
                meter.look(before and list(before.values()), list(after.values()))
        if not meter.more():
            break
    stream.close()


def mysql_event_stream(job: dict[str, Any], meter: Meter) -> None:
    """BinlogClient.poll_batch into CdcEngine, in one thread."""
    from mysql_event_stream import BinlogClient, CdcEngine

    client = BinlogClient(
        host=job["host"],
        port=job["port"],
        user=job["user"],
        password=job["password"],
        server_id=job["server_id"],
        start_binlog_file=job["journal"],
        start_binlog_position=job["offset"],
        ssl_mode=0,
        allow_public_key_retrieval=True,
    )
    with client, CdcEngine() as engine:
        engine.set_include_databases([job["schema"]])
        engine.set_trailer_pre_verified(True)  # the client has checked it
        client.connect()
        client.start()
        while meter.more():
            for result in client.poll_batch():
                engine.set_checksum_enabled(result.checksum_enabled)
                left = result.data or b""
                while left:
                    left = left[engine.feed(left) :]
                    while (event := engine.next_event()) is not None:
                        before, after = event.before, event.after
                        meter.rows += 1
                        meter.ids += after["id"]
                        if meter.watch:
                            meter.look(before and list(before.values()), list(after.values()))


def mysqlbinlog(job: dict[str, Any], meter: Meter) -> None:
    """The server's own program prints every value; a run for speed throws that away, a checked one counts rows."""
    command = [
        *job["mysqlbinlog"],
        "--no-defaults",
        f"--host={job['host']}",
        f"--port={job['port']}",
        f"--user={job['user']}",
        f"--password={job['password']}",
        "--protocol=TCP",
        "--read-from-remote-server",
        f"--start-position={job['offset']}",
        f"--stop-position={job['offset'] + job['bytes']}",
        "-v",
        "--base64-output=DECODE-ROWS",
        job["journal"],
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE if meter.watch else subprocess.DEVNULL, check=True)
    meter.rows = len(re.findall(rb"^### (?:INSERT INTO|UPDATE)", done.stdout, re.MULTILINE)) if meter.watch else job["rows"]


PEERS = {peer.__name__: peer for peer in (drain, mysqlbinlog, mysql_replication, mysql_event_stream)}
#: Those that give no values.
COUNTERS = ("drain", "mysqlbinlog")
PACKAGES = {"mysql_replication": "pymysqlreplication", "mysql_event_stream": "mysql_event_stream"}


def main() -> None:
    name, job = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    package = PACKAGES.get(name)
    if package:
        if importlib.util.find_spec(package) is None:
            raise SystemExit(f"ABSENT there is no Python package {package}: pip install 'canal-cdc[bench]'")
        importlib.import_module(package)  # imports are no part of the race
    meter = Meter(job)
    PEERS[name](job, meter)
    meter.end(values=name not in COUNTERS)


if __name__ == "__main__":
    main()
