"""Debezium's embedded engine as a contestant: a JVM of its own that writes JSON lines, and Arrow of them.

Never part of the library: Maven fetches the engine, and where there is no ``mvn`` the contestant is left out.
"""

from __future__ import annotations

import base64
import io
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from canal.formats.change_table import pack_txn
from canal.testing.servers import MySQLServer, ThrowawayServer

HERE = Path(__file__).resolve().parent / "debezium"
_BLOCK = 1 << 20
_IMAGE = pa.struct(
    [
        ("id", pa.int64()),
        ("quantity", pa.int32()),
        ("price", pa.string()),
        ("ratio", pa.float64()),
        ("name", pa.string()),
        ("note", pa.string()),
        ("changed", pa.string()),
        ("day", pa.int32()),
        ("paid", pa.int8()),
        ("payload", pa.string()),
    ]
)
_PLACE = pa.struct(
    [("ts_ms", pa.int64()), ("file", pa.string()), ("pos", pa.int64()), ("row", pa.int64()), ("gtid", pa.string())]
)
_LINE = pa.schema([("before", _IMAGE), ("after", _IMAGE), ("op", pa.string()), ("source", _PLACE)])


def classpath(directory: Path) -> str | None:
    """The engine's jars, fetched into ``directory`` once; None, with a word about it, where that cannot be done."""
    if not (directory / "ok").exists():
        for program in ("mvn", "java"):
            if shutil.which(program) is None:
                print(f"DEBEZIUM IS LEFT OUT: there is no {program} on this machine", flush=True)
                return None
        command = [
            "mvn",
            "-B",
            "-q",
            "-f",
            str(HERE / "pom.xml"),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={directory}",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"DEBEZIUM IS LEFT OUT: mvn failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}", flush=True)
            return None
        (directory / "ok").touch()
    return str(directory / "*")


def version(jars: str) -> str:
    return next(Path(jars).parent.glob("debezium-embedded-*.jar")).stem.removeprefix("debezium-embedded-")


def properties(path: Path, server: ThrowawayServer, tables: Sequence[str], **more: object) -> Path:
    """A file of the engine's properties, beside which it keeps its own: these tables from now on, or from where it stood.

    Its queue and batches are ten times Debezium's defaults, and it polls each 20 ms instead of 500.
    """
    kind = "mysql.MySql" if isinstance(server, MySQLServer) else "mariadb.MariaDb"
    found = {
        "name": "bench",
        "topic.prefix": "bench",
        "connector.class": f"io.debezium.connector.{kind}Connector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": path.parent / "offsets",
        "offset.flush.interval.ms": 1000,
        "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
        "database.hostname": server.host,
        "database.port": server.port,
        "database.user": server.user,
        "database.password": server.password,
        "database.server.id": 990000 + os.getpid() % 10000,
        "table.include.list": ",".join(tables).replace(".", "[.]"),
        "database.include.list": tables[0].partition(".")[0],
        "snapshot.mode": "no_data",
        "include.schema.changes": "false",
        "tombstones.on.delete": "false",
        "decimal.handling.mode": "string",
        "binary.handling.mode": "base64",
        "max.batch.size": 20480,
        "max.queue.size": 81920,
        "poll.interval.ms": 20,
        "converter.schemas.enable": "false",
        "driver.allowPublicKeyRetrieval": "true",
    }
    return written(path, found | more)


def written(path: Path, properties: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path


class Feed:
    """The engine, following one table from now on. ``lines`` gives what has come: whole lines, at least one."""

    def __init__(self, jars: str, server: ThrowawayServer, table: str, directory: Path) -> None:
        path = properties(directory / "feed.properties", server, [table])
        self._log = (directory / "feed.log").open("w+")
        command = [
            "java",
            "-Xmx1g",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            jars,
            str(HERE / "Feed.java"),
            str(path),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, bufsize=0)
        self._parts: list[bytes] = []
        self._changed = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        """Takes from the pipe at once, so that the engine goes on while a batch is applied."""
        assert self._process.stdout is not None
        while part := os.read(self._process.stdout.fileno(), _BLOCK):
            with self._changed:
                self._parts.append(part)
                self._changed.notify()
        with self._changed:
            self._over = True
            self._changed.notify()

    def lines(self, timeout: float = 120.0, most: int = 64 << 20) -> bytes:
        """What has come since the last call, at most about ``most`` bytes, whole lines; waits for the first one."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._has_line(), timeout)
            if self._over or not self._has_line():
                self._log.seek(0)
                raise RuntimeError(f"the engine ended, or gave nothing for {timeout} s:\n{self._log.read()[-4000:]}")
            count = size = 0
            while count < len(self._parts) and size < most:
                size += len(self._parts[count])
                count += 1
            data = b"".join(self._parts[:count])
            whole = data.rfind(b"\n") + 1
            self._parts[:count] = [data[whole:]] if whole < len(data) else []
        return data[:whole]

    def _has_line(self) -> bool:
        return any(b"\n" in part for part in self._parts)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        self._log.close()


def table(lines: bytes, schema: pa.Schema) -> pa.Table:
    """The changes in the form in which the source "canal" gives them, so that one sink takes both."""
    options = pyarrow.json.ParseOptions(explicit_schema=_LINE, unexpected_field_behavior="ignore")
    found = pyarrow.json.read_json(
        io.BytesIO(lines), read_options=pyarrow.json.ReadOptions(block_size=4 << 20), parse_options=options
    ).combine_chunks()
    source, op = _column(found, "source"), _column(found, "op")
    is_delete, is_update = pc.equal(op, "d"), pc.equal(op, "u")
    before, after = _column(found, "before"), _column(found, "after")
    image = after if not pc.any(is_delete).as_py() else pc.if_else(is_delete, before, after)
    files = source.field("file").dictionary_encode()
    bases = pa.array([pack_txn(0, name, 0) for name in files.dictionary.to_pylist()], pa.int64())
    columns: dict[str, Any] = {
        "_op": pc.if_else(is_delete, "D", pc.if_else(is_update, "U", "I")),
        "_txn": pc.add(bases.take(files.indices), source.field("pos")),
        "_ord": source.field("row"),
        "_ts": pc.multiply(source.field("ts_ms"), 1000).cast(pa.timestamp("us", "UTC")),
        "_gtid": source.field("gtid"),
        **_values(image),
    }
    if pc.any(is_update).as_py():
        kind = schema.field("_before").type
        arrays = _fitted(_values(before), kind, len(op))
        columns["_before"] = pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pc.invert(is_update))
    return pa.table(_fitted(columns, schema, len(op)), schema=schema)


def _fitted(columns: dict[str, Any], fields: Any, count: int) -> list[Any]:
    return [columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type) for field in fields]


def _column(found: pa.Table, name: str) -> Any:
    column = found[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _values(image: Any) -> dict[str, Any]:
    values = {field.name: image.field(number) for number, field in enumerate(image.type)}
    values["price"] = values["price"].cast(pa.decimal128(12, 2))
    values["changed"] = values["changed"].cast(pa.timestamp("us", "UTC"))
    values["day"] = values["day"].cast(pa.date32())
    values["payload"] = pa.array(
        [None if text is None else base64.b64decode(text) for text in values["payload"].to_pylist()], pa.binary()
    )
    return values
