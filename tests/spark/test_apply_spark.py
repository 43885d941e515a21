"""Sinks in Spark itself: a stream into a Delta table through restarts, the plain loop's DataFrames, a supervisor's restart."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import re
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.errors import ConfigError, UnloggedChangeError
from canal.spark import apply_changes, foreach_batch, supervise
from canal.spark.delta_spark import DeltaSparkTarget, merge_sql
from canal.spark.frames import to_frame
from canal.targets.tables import DeltaTableTarget
from canal.testing import FakeBinlog
from canal.testing.servers import ThrowawayServer
from tests.support.fix_spark import drain, under_way
from tests.support.histories import KEYS, MemoryTarget, change, content, table

COLUMNS = (
    "id INT PRIMARY KEY, at TIMESTAMP(6), local DATETIME(6), t TIME(6), amount DECIMAL(10,2), n BIGINT UNSIGNED, b VARBINARY(9)"
)
ROW = {
    "at": dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC),
    "local": dt.datetime(2026, 7, 2, 3, 4, 5, 678901),
    "t": -dt.timedelta(hours=838, minutes=59, seconds=59),
    "amount": Decimal("-1.50"),
    "n": 2**64 - 1,
    "b": b"\xff\x00",
}


def delta(target: DeltaTableTarget) -> dict[int, dict[str, Any]]:
    from deltalake import DeltaTable

    rows = DeltaTable(target.path).to_pyarrow_table().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


@pytest.fixture
def orders(mariadb_server: ThrowawayServer) -> Any:
    mariadb_server.query("CREATE DATABASE spark_sink")
    mariadb_server.query("CREATE TABLE spark_sink.orders (id INT PRIMARY KEY, n INT)")
    yield "spark_sink.orders"
    mariadb_server.query("DROP DATABASE spark_sink")


@pytest.mark.every_spark
def test_a_stream_keeps_a_delta_table_through_crashes_and_lost_checkpoints(
    spark: Any, mariadb_server: ThrowawayServer, orders: str, tmp_path: Path
) -> None:
    server, target = mariadb_server, DeltaTableTarget(str(tmp_path / "orders"))
    begin = server.query("SHOW MASTER STATUS")[0]
    options = {
        "host": server.host,
        "port": str(server.port),
        "user": server.user,
        "password": server.password,
        "table": orders,
        "startingPosition": f"{begin[0]}:{begin[1]}",
        "maxRowsPerBatch": "6",
    }

    def run(checkpoint: str, crash: bool = False) -> None:
        apply, commits = apply_changes(target, ["id"]), []

        def fn(df: Any, batch_id: int) -> None:
            apply(df, batch_id)
            commits.append(batch_id)
            if crash and len(commits) == 2:
                raise RuntimeError("between the sink's commit and Spark's")

        frame = spark.readStream.format("canal").options(**options).load()
        writer = frame.writeStream.foreachBatch(fn).option("checkpointLocation", str(tmp_path / checkpoint))
        with pytest.raises(Exception, match="between the sink's commit") if crash else contextlib.nullcontext():
            drain(writer.trigger(availableNow=True).start)

    for number in range(10):
        server.query(f"INSERT INTO {orders} VALUES ({number}, 0)")
    run("one", crash=True)
    server.query(f"UPDATE {orders} SET n = n + 1 WHERE id < 4")
    server.query(f"UPDATE {orders} SET id = id + 100 WHERE id = 7")
    run("one")
    with target.begin("canal", ("id",)) as work:
        before = work.progress
    run("two")  # the checkpoint is gone: all comes again and nothing is applied
    server.query(f"DELETE FROM {orders} WHERE id = 2")
    run("two")

    with target.begin("canal", ("id",)) as work:
        assert before is not None
        assert work.progress.table.last_change > before.table.last_change
    assert {id: row["n"] for id, row in delta(target).items()} == dict(server.query(f"SELECT id, n FROM {orders}"))


@pytest.mark.every_spark
def test_the_plain_loop_gives_dataframes_whose_values_are_the_log_s(spark: Any, tmp_path: Path) -> None:
    """The session is in one time zone, the workers in another."""
    log = FakeBinlog()
    log.table("shop", "orders", COLUMNS).insert({"id": 1, **ROW})
    log.ddl("TRUNCATE orders", "shop")
    log.end()
    target, seen = MemoryTarget(), []
    apply, onto_delta = apply_changes(target, ["id"]), apply_changes(DeltaTableTarget(str(tmp_path / "orders")), ["id"])

    def fn(df: Any, batch: Any) -> None:
        seen.append((df.count(), df.schema["local"].dataType.simpleString(), batch.table))
        apply(df, batch)
        onto_delta(df, batch)

    before = spark.conf.get("spark.sql.execution.arrow.localRelationThreshold")
    config = canal.InstanceConfig(destination="shop", source=log, start="earliest")
    with canal.Instance(config) as instance:
        instance.subscribe()
        with pytest.raises(UnloggedChangeError, match="TRUNCATE"):
            foreach_batch(spark, instance, fn)

    assert seen == [(1, "timestamp_ntz", "shop.orders"), (0, "timestamp_ntz", "shop.orders")]
    assert target.rows is not None
    assert target.rows.to_pylist() == [{"id": 1, **ROW}]
    micros = ROW["t"] // dt.timedelta(microseconds=1)  # type: ignore[operator]
    assert delta(DeltaTableTarget(str(tmp_path / "orders"))) == {1: {"id": 1, **ROW, "t": micros}}
    assert spark.conf.get("spark.sql.execution.arrow.localRelationThreshold") == before


@pytest.mark.parametrize("op", ["I", "r"])
def test_a_batch_that_the_driver_does_not_take_at_once_is_applied_in_parts(spark: Any, tmp_path: Path, op: str) -> None:
    """Changes in their order, each part a commit; rows of a snapshot's chunks, which have one position, in any order."""
    count, target = 300, MemoryTarget()
    wide = [{"id": number, "k": "x", "a": number, "b": random.Random(number).randbytes(5000).hex()} for number in range(count)]
    changes = [change(op, 7, number if op == "I" else -1, row) for number, row in enumerate(wide)]
    changes += [change("U", 8, number, {**row, "b": "new"}, row) for number, row in enumerate(wide[:50]) if op == "I"]
    df = to_frame(spark, table(changes))
    settings = spark._jsc.sc().conf()
    settings.set("spark.driver.maxResultSize", "1m")
    try:
        apply_changes(target, KEYS)(df, 0)
        version = target.version
        apply_changes(target, KEYS)(df, 0)
        settings.set("spark.driver.maxResultSize", "1")
        with pytest.raises(Exception, match="maxResultSize"):
            apply_changes(MemoryTarget(), KEYS)(df.where("_ord < 1 AND a = 0"), 0)
    finally:
        settings.set("spark.driver.maxResultSize", "1g")

    found = content(target.rows)
    assert len(found) == count
    assert sum(row["b"] == "new" for row in found.values()) == (50 if op == "I" else 0)
    assert version > 2
    assert op == "r" or target.version == version


def test_a_query_is_not_started_again_over_values_that_changed_without_a_row(
    spark: Any, mariadb_server: ThrowawayServer, orders: str, tmp_path: Path
) -> None:
    """With the options of the example; new columns are what it is started again for."""
    server, target = mariadb_server, DeltaTableTarget(str(tmp_path / "orders"))
    begin = server.query("SHOW MASTER STATUS")[0]
    options = {
        "host": server.host,
        "port": str(server.port),
        "user": server.user,
        "password": server.password,
        "table": orders,
        "startingPosition": f"{begin[0]}:{begin[1]}",
    }

    def run(**more: str) -> None:
        sink = apply_changes(target, ["id"], schema="add", absent="null")

        def start() -> Any:
            frame = spark.readStream.format("canal").options(**options, **more).load()
            writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
            return under_way(writer.trigger(availableNow=True).start)

        supervise(start, restart_on=["SchemaError"], backoff=(0.01, 0.01), most=2)

    server.query(f"INSERT INTO {orders} VALUES (1, 5)")
    run()
    server.query(f"ALTER TABLE {orders} ADD w INT")
    server.query(f"INSERT INTO {orders} VALUES (2, 6, 7)")
    run()
    server.query(f"ALTER TABLE {orders} CHANGE n m INT")
    server.query(f"INSERT INTO {orders} VALUES (3, 8, 9)")
    for _ in range(2):
        with pytest.raises(Exception, match="UnloggedChangeError") as found:
            run()
        assert set(delta(target)) == {1, 2}
    position = re.search(r"acknowledge = (\S+:\d+)", str(found.value))
    assert position is not None
    run(acknowledge=position[1])
    assert delta(target)[3] == {"id": 3, "n": None, "w": 9, "m": 8}


def test_a_query_whose_sink_fails_is_started_again_unless_that_is_of_no_use(spark: Any, tmp_path: Path) -> None:
    """What the sink raised is known by its class, through Spark's own exception."""
    from canal.errors import TargetConflictError, UnfitChangeError

    fail: list[Exception] = [TargetConflictError("another was quicker"), OSError("no space"), UnfitChangeError("a key is NULL")]
    told: list[str] = []

    def fn(df: Any, batch_id: int) -> None:
        if df.count() and fail:
            raise fail.pop(0)

    def start() -> Any:
        frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        return frame.writeStream.foreachBatch(fn).option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    with pytest.raises(Exception, match="UnfitChangeError"):
        supervise(start, name="orders", backoff=(0.01, 0.01), alarm=lambda name, text: told.append(text))

    assert fail == []
    assert "TargetConflictError: another was quicker" in told[0]
    assert "UnfitChangeError cannot be mended by a restart" in told[-1]


def test_a_query_is_stopped_on_request(spark: Any, tmp_path: Path, wait: Callable[..., None]) -> None:
    stop, queries = threading.Event(), []

    def start() -> Any:
        frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        queries.append(frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start())
        return queries[-1]

    loop = threading.Thread(target=supervise, args=(start,), kwargs={"stop": stop})
    loop.start()
    wait(lambda: bool(queries) and queries[0].lastProgress is not None)
    stop.set()
    loop.join(60)

    assert not loop.is_alive()
    assert not queries[0].isActive


def test_delta_s_jars_are_asked_for_and_its_statement_is_one_of_spark_s(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="jars are not on the class path"):
        apply_changes(DeltaSparkTarget(str(tmp_path)), ["id"]).progress()

    statement = merge_sql("delta.`/a``b`", "changes", ["id", "a`b"], ["id", "a`b", "n"])
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(statement).toString()

    assert "MergeIntoTable" in plan
