"""A stream of Spark on a real server, and the load that is written meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from canal.testing.servers import ThrowawayServer
from tests.support.fix_spark import drain, under_way


def processes(word: str) -> dict[int, int]:
    """Processes below this one whose command line has a word in it, and their parents."""
    parents, found = {}, []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if word.encode() in (path / "cmdline").read_bytes():
                found.append(int(path.name))

    def is_ours(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid > 1

    return {pid: parents[pid] for pid in found if is_ours(pid)}


def runners() -> list[int]:
    return list(processes("python_streaming_source_runner"))


class Load:
    """One writer; ``journal`` holds the changes of what it committed, in order: (op, id, n, n before)."""

    def __init__(self, server: ThrowawayServer, table: str) -> None:
        self.journal: list[tuple[str, int, int, int | None]] = []
        self._server, self._table = server, table
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        rng, rows, ids = random.Random(7), {}, itertools.count(1)
        connection = self._server.connect()
        while not self._over.wait(0.05):
            changes = []
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
                for _ in range(rng.choice((1, 1, 2, 40))):
                    known = rng.choice(list(rows)) if rows and rng.random() < 0.5 else None
                    if known is None:
                        known, n = next(ids), rng.randrange(10**6)
                        cursor.execute(f"INSERT INTO {self._table} VALUES (%s, %s, %s)", (known, n, "x" * rng.randrange(200)))
                        changes.append(("I", known, n, None))
                        rows[known] = n
                    elif rng.random() < 0.7:
                        n = rows[known] + 1 + rng.randrange(10)
                        cursor.execute(f"UPDATE {self._table} SET n = %s WHERE id = %s", (n, known))
                        changes.append(("U", known, n, rows[known]))
                        rows[known] = n
                    else:
                        cursor.execute(f"DELETE FROM {self._table} WHERE id = %s", (known,))
                        changes.append(("D", known, rows.pop(known), None))
                cursor.execute("COMMIT")
            self.journal += changes
        connection.close()


class Stream:
    """A table on a server and queries on it."""

    def __init__(self, spark: Any, server: ThrowawayServer, directory: Path, table: str) -> None:
        self.spark, self.server, self.directory, self.table = spark, server, directory, table
        self.queries: list[Any] = []
        self._files: dict[str, list[dict[str, Any]]] = {}

    def options(self, **more: Any) -> dict[str, str]:
        server = self.server
        given = {
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": server.password,
            "table": self.table,
            "spoolDir": self.directory / "spool",
        }
        return {name: str(value) for name, value in {**given, **more}.items()}

    def frame(self, **more: Any) -> Any:
        return self.spark.readStream.format("canal").options(**self.options(**more)).load()

    def start(self, frame: Any, **trigger: Any) -> Any:
        """Into parquet, with a checkpoint: exactly once by Spark's own file sink."""
        return under_way(lambda: self._start(frame, **trigger))

    def drain(self, frame: Any) -> None:
        drain(lambda: self._start(frame, availableNow=True))

    def _start(self, frame: Any, **trigger: Any) -> Any:
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self.directory / "checkpoint"))
        self.queries.append((writer.trigger(**trigger) if trigger else writer).start(str(self.directory / "out")))
        return self.queries[-1]

    def rows(self) -> list[dict[str, Any]]:
        """What Spark's file sink holds: the files that its log of batches names."""
        logs = (self.directory / "out" / "_spark_metadata").glob("[0-9]*")
        lines = [line for log in logs for line in log.read_text().splitlines()]
        files = {unquote(urlsplit(json.loads(line)["path"]).path) for line in lines if line.startswith("{")}
        self._files = {path: self._files.get(path) or pq.read_table(path).to_pylist() for path in files}
        found = [row for rows in self._files.values() for row in rows]
        return sorted(found, key=lambda row: (row["_txn"], row["_ord"]))

    def changes(self) -> list[tuple[str, int, int, int | None]]:
        """The rows as a ``Load`` writes them down."""
        return [(row["_op"], row["id"], row["n"], row["_before"] and row["_before"]["n"]) for row in self.rows()]

    def spools(self) -> list[Path]:
        return list((self.directory / "spool").glob("*"))
