"""A query that is thought to be dead and its successor, on one table, at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.pandas.types import to_arrow_schema

from canal.errors import TargetConflictError
from canal.spark import apply_changes
from canal.targets.tables import DeltaTableTarget
from canal.testing import FakeBinlog
from tests.support.engine import Engine


def held(target: DeltaTableTarget) -> list[dict[str, Any]]:
    return DeltaTable(target.path).to_pyarrow_table().to_pylist()


def test_two_queries_on_one_table_apply_each_change_once(tmp_path: Path) -> None:
    """Each with a checkpoint and cuts of its own; who is late is refused, and begins its batch anew."""
    fake, expected, count = FakeBinlog("mysql"), {}, 0
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY, n INT")
    for number in range(60):
        with fake.transaction():
            orders.insert({"id": number, "n": 0})
            orders.update({"id": number, "n": 0}, {"n": number})
            count, expected[number] = count + 2, number
            if number % 3 == 2:
                orders.delete({"id": number - 1, "n": expected.pop(number - 1)})
                count += 1
    table, history = DeltaTableTarget(str(tmp_path / "table")), DeltaTableTarget(str(tmp_path / "history"))
    together = threading.Barrier(2)

    def follow(options: dict[str, Any]) -> int:
        """How often it was refused."""
        sinks, refused = [apply_changes(table, ["id"]), apply_changes(history, None)], 0
        with Engine({**options, "table": "shop.orders", "startingPosition": "earliest", "pollTimeout": 0.2}) as engine:
            engine.start()
            schema = to_arrow_schema(engine.struct, timezone="UTC")
            while sum(len(engine.sink[batch]) for batch in range(engine.committed)) < count:
                if not engine.plan():
                    continue
                rows = pa.Table.from_pylist(engine.run(), schema=schema)
                try:
                    together.wait(60)
                except threading.BrokenBarrierError:
                    pass  # the other one is done
                try:
                    for sink in sinks:
                        sink(rows, len(engine.offsets))
                except TargetConflictError:
                    refused += 1
                    engine.stop()
                    engine.start()
                else:
                    engine.committed = len(engine.offsets)
        together.abort()
        return refused

    with fake.serve() as server, ThreadPoolExecutor(2) as pool:
        way = {"host": server.host, "port": server.port}
        runs = [pool.submit(follow, {**way, "maxRowsPerBatch": rows, "spoolDir": tmp_path / "spool"}) for rows in (9, 14)]
        print("refused", *(run.result() for run in runs))

    assert {row["id"]: row["n"] for row in held(table)} == expected
    positions = [(row["_txn"], row["_ord"]) for row in held(history)]
    assert len(positions) == len(set(positions)) == count
