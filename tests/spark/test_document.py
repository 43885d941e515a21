"""The code of docs/spark runs, with the names of servers and directories replaced."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.readwriter import DataStreamWriter

import canal.spark
from canal.testing.servers import ThrowawayServer
from tests.support.fix_spark import under_way

PAGES = ("index", "columns", "snapshots", "sinks", "sharing")
DOCS = Path(__file__).parents[2] / "docs" / "spark"
BLOCKS = [code for page in PAGES for code in re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text("utf-8"), re.S)]


@pytest.mark.timeout(900)
def test_the_code_of_the_document_runs(
    spark: Any, mariadb_server: ThrowawayServer, tmp_path: Path, wait: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, name = mariadb_server, f"shop{os.getpid()}"  # one process of the machine can share a name
    for sql in (
        "CREATE DATABASE in_doc",
        "CREATE TABLE in_doc.orders (id INT PRIMARY KEY)",
        "INSERT INTO in_doc.orders VALUES (1)",
        "CREATE TABLE in_doc.customers (id INT PRIMARY KEY)",
    ):
        server.query(sql)
    source = canal.MySQLSource(host=server.host, port=server.port, user=server.user, password=server.password)
    calls: list[Any] = []
    names: dict[str, Any] = {
        "canal": canal,
        "spark": spark,
        "source": source,
        "shared": str(tmp_path / "shared"),
        "server": {"host": server.host, "port": server.port, "user": server.user, "password": server.password},
        "fn": lambda df, number: calls.append(df.count()),
        "other": lambda df, number: None,
    }

    def run(code: str) -> None:
        for old, new in (
            ("shop.", "in_doc."),
            ("shop\\.", "in_doc\\."),
            ('"shop"', f'"{name}"'),
            ("'db'", f"'{server.host}', port '{server.port}'"),
            ('"db"', f'"{server.host}"'),
            ("3306", str(server.port)),
            ("'…'", f"'{server.password}'"),
            ('"password", "…"', f'"password", "{server.password}"'),
            ('"/lake', f'"{tmp_path}/lake'),
            ('"/checkpoints', f'"{tmp_path}/checkpoints'),
        ):
            code = code.replace(old, new)
        count = iter(range(9))
        code = re.sub(r"(?<=Location\", )…", lambda _: repr(str(tmp_path / f"checkpoint{next(count)}")), code)
        exec(compile(code, "docs/spark", "exec"), names)

    def rows(path: Path) -> set[int]:
        from deltalake import DeltaTable

        there = DeltaTable.is_deltatable(str(path))  # its directory is there before
        return set(DeltaTable(str(path)).to_pyarrow_table()["id"].to_pylist()) if there else set()

    def until_supervised(true: Callable[[], bool]) -> None:
        """Have the next ``supervise`` end when this is so."""
        supervise, stop = canal.spark.supervise, threading.Event()

        def one(start: Any, **more: Any) -> None:
            def watch() -> None:
                try:
                    wait(true, seconds=200)
                    seen.append(True)
                finally:
                    stop.set()

            seen: list[bool] = []
            waiting = threading.Thread(target=watch)
            waiting.start()
            supervise(start, stop=stop, **more)
            waiting.join()
            assert seen

        monkeypatch.setattr(canal.spark, "supervise", one, raising=False)

    ids = iter(range(2, 1 << 20))

    def more() -> None:
        server.query(f"INSERT INTO in_doc.orders VALUES ({next(ids)})")

    def is_seen() -> bool:
        """A query without a snapshot sees what is written when it runs."""
        more()
        return sum(calls) > 0

    foreach_batch = canal.spark.foreach_batch
    stop = threading.Event()

    def until_there(spark: Any, instance: Any, fn: Any) -> None:
        def one(df: Any, batch: Any) -> None:
            fn(df, batch)
            stop.set()

        more()
        foreach_batch(spark, instance, one, stop=stop)

    quick, bounded, drain, typed, many, loop, _, share, supervised = BLOCKS  # a pipeline needs another session
    try:
        until_supervised(lambda: rows(tmp_path / "lake" / "in_doc.orders") == {1})
        run(quick)
        run(bounded)
        assert names["spark"].sql("SELECT id FROM v").collect() == [(1,)]
        run(typed)
        assert names["rows"].where("_op = 'I'").select("id", "price", "_exact").collect() == [(1, None, None)]

        with monkeypatch.context() as patch:
            patch.setattr(canal.spark, "foreach_batch", until_there, raising=False)
            run(loop.replace('"/lake"', '"/lake/loop"'))
            assert rows(tmp_path / "lake" / "loop" / "in_doc.orders")
            run(many.replace('"/lake"', '"/lake/many"'))
            assert rows(tmp_path / "lake" / "many" / "in_doc.orders")

        drained = names["spark"].readStream.format("canal").options(**names["server"], table="in_doc.orders", snapshot="initial")
        files = {"path": str(tmp_path / "drained"), "checkpointLocation": str(tmp_path / "drained_checkpoint")}
        names["writer"] = drained.load().writeStream.format("parquet").options(**files)
        run(drain)
        assert names["spark"].read.parquet(files["path"]).count() == len(server.query("SELECT id FROM in_doc.orders"))

        begin = DataStreamWriter.start
        with monkeypatch.context() as patch:
            patch.setattr(DataStreamWriter, "start", lambda *args, **options: under_way(lambda: begin(*args, **options)))
            run(share)
        wait(is_seen, seconds=120)
        for query in names["spark"].streams.active:
            query.stop()
        calls.clear()
        monkeypatch.undo()
        until_supervised(is_seen)
        run(supervised)
    finally:
        for query in names["spark"].streams.active:
            query.stop()
        if "instance" in names:
            canal.spark.unshare(name)
            names["instance"].stop()
        server.query("DROP DATABASE in_doc")
