"""Debezium beside ``canal.pipe``: its embedded engine, whose records its own JDBC sink writes into PostgreSQL.

Both are in one JVM, without a Kafka between them: benchmarks/debezium/Sink.java. Never part of the library: Maven fetches them.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks import spark_debezium
from canal.testing.servers import ThrowawayServer
from tests.support.target_servers import PostgreSQLServer

#: Rows of a batch of the sink, four times its default; more did not make it faster.
_BATCH: Final = 2000
_runs = itertools.count(1)


class Debezium:
    """Knows a place of the source's log, from which each run begins: make it before the load, which is of ``bench.orders``."""

    def __init__(self, source: ThrowawayServer, jars: str) -> None:
        self._source = source
        self._jars = jars
        self._temporary = tempfile.TemporaryDirectory(prefix="canal-debezium-")
        self._folder = Path(self._temporary.name)
        source.query("CREATE TABLE bench.marker (id INT AUTO_INCREMENT PRIMARY KEY)")
        with PostgreSQLServer() as server, self._running(server, "begin", 1) as engine:
            marked = threading.Event()
            threading.Thread(target=self._mark, args=(marked, engine), daemon=True).start()
            try:
                self._wait(engine, rb"marked")
            finally:
                marked.set()
            while not (self._folder / "begin/offsets").is_file():  # which it writes each second
                time.sleep(0.1)

    def seconds(self, server: PostgreSQLServer, rows: int) -> float:
        """From its first row to the commit of its last one."""
        with self._running(server, f"debezium_{next(_runs)}", rows) as engine:
            return float(self._wait(engine, rb"[\d.E-]+"))

    def close(self) -> None:
        self._temporary.cleanup()

    def _mark(self, marked: threading.Event, engine: subprocess.Popen[bytes]) -> None:
        """A row each half second, until one comes: nobody tells when the engine has begun."""
        while not marked.wait(0.5) and engine.poll() is None:
            self._source.query("INSERT INTO bench.marker VALUES ()")

    def _wait(self, engine: subprocess.Popen[bytes], line: bytes) -> bytes:
        assert engine.stdout is not None
        for found in engine.stdout:
            if re.fullmatch(line, found.strip()):
                return found
        raise RuntimeError(f"Debezium's engine has ended: {max(self._folder.glob('*/log')).read_text()[-4000:]}")

    @contextmanager
    def _running(self, server: PostgreSQLServer, name: str, rows: int) -> Iterator[subprocess.Popen[bytes]]:
        folder = self._folder / name
        if name == "begin":
            folder.mkdir()
        else:
            shutil.copytree(self._folder / "begin", folder)
        engine = {
            "decimal.handling.mode": "precise",
            "schema.history.internal.file.filename": folder / "history",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        }
        sink = {
            "connection.url": f"jdbc:postgresql://{server.host}:{server.port}/postgres?reWriteBatchedInserts=true",
            "connection.username": "cdc",
            "connection.password": "",
            "insert.mode": "upsert",
            "primary.key.mode": "record_key",
            "schema.evolution": "basic",
            "collection.name.format": name,
            "batch.size": _BATCH,
        }
        files = [spark_debezium.properties(folder / "engine", self._source, ["bench.orders", "bench.marker"], **engine)]
        files.append(spark_debezium.written(folder / "sink", sink))
        command = ["java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", self._jars]
        command += [str(spark_debezium.HERE / "Sink.java"), *map(str, files), str(rows)]
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) as process,
        ):
            try:
                yield process
            finally:
                process.stdin.close()  # type: ignore[union-attr]
                process.wait()
