"""The plain loop: get, call, ack; what it gives, what it acks, and what comes again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import canal
from canal.errors import ConfigError, NotActiveError, UnloggedChangeError
from canal.spark import Batch, apply_changes, foreach_batch
from canal.targets.tables import DeltaTableTarget, ParquetTableTarget
from canal.testing import FakeBinlog
from canal.testing.zookeeper import ZooKeeperServer
from tests.support.histories import MemoryTarget
from tests.support.lakes import Iceberg
from tests.support.waiting import until

COLUMNS = "id INT PRIMARY KEY, v VARCHAR(20)"


@contextlib.contextmanager
def following(log: FakeBinlog, **options: Any) -> Iterator[canal.Instance]:
    log.end()
    config = canal.InstanceConfig(destination="shop", source=log, start="earliest", **options)
    with canal.Instance(config) as instance:
        instance.subscribe()
        yield instance


def rows(target: MemoryTarget) -> dict[int, str]:
    assert target.rows is not None
    return dict(zip(target.rows["id"].to_pylist(), target.rows["v"].to_pylist()))


def test_each_table_of_a_message_makes_a_call_and_then_it_is_acked() -> None:
    log = FakeBinlog()
    orders, people = log.table("shop", "orders", COLUMNS), log.table("shop", "people", COLUMNS)
    with log.transaction():
        orders.insert({"id": 1, "v": "a"})
        people.insert({"id": 7, "v": "p"})
        orders.insert({"id": 2, "v": "b"})
    seen: list[tuple[Batch, list[dict[str, Any]]]] = []

    with following(log) as instance:
        foreach_batch(None, instance, lambda df, batch: seen.append((batch, df.to_pylist())))

        assert instance.list_batches() == []
        assert instance.position() == seen[-1][0].end

    ids = [(batch.table, [row["id"] for row in found]) for batch, found in seen]
    assert ids == [("shop.orders", [1, 2]), ("shop.people", [7])]
    first = seen[0][0]
    assert first.tables == ("shop.orders", "shop.people")
    assert (first.first, first.last) == ((seen[0][1][0]["_txn"], 0), (seen[0][1][0]["_txn"], 2))
    assert first.start != first.end
    assert first.source == first.end.source != ""


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_batch_whose_function_raises_is_rolled_back_and_comes_again(is_applied: bool) -> None:
    """Whether it raises behind the target's commit or before it."""
    log = FakeBinlog()
    orders = log.table("shop", "orders", COLUMNS)
    for number in range(3):
        orders.insert({"id": number, "v": "a"})
    target = MemoryTarget()
    apply = apply_changes(target, ["id"])

    def fn(df: Any, batch: Batch) -> None:
        if is_applied or failed:
            apply(df, batch)
        if not failed:
            failed.append(batch.id)
            raise RuntimeError("no")

    failed: list[int] = []
    with following(log) as instance:
        with pytest.raises(RuntimeError):
            foreach_batch(None, instance, fn, batch_size=1)
        assert instance.list_batches() == []
        foreach_batch(None, instance, fn, batch_size=1)

    assert rows(target) == {0: "a", 1: "a", 2: "a"}
    assert target.version == 3


def test_it_stops_behind_the_batch_in_hand() -> None:
    log = FakeBinlog()
    orders = log.table("shop", "orders", COLUMNS)
    for number in range(3):
        orders.insert({"id": number, "v": "a"})
    stop, seen = threading.Event(), []

    def fn(df: Any, batch: Batch) -> None:
        seen.append(batch)
        stop.set()

    with following(log) as instance:
        foreach_batch(None, instance, fn, batch_size=1, stop=stop)

        assert len(seen) == 1
        assert instance.position() == seen[0].end


def test_a_log_that_ends_behind_a_get_without_a_change_is_read_to_its_end() -> None:
    """The parser was slower than the get, and quicker than the look at whether it has ended."""
    log = FakeBinlog()
    log.table("shop", "orders", COLUMNS).insert({"id": 1, "v": "a"})
    target = MemoryTarget()

    with canal.Instance(canal.InstanceConfig(destination="shop", source=log, start="earliest")) as instance:
        instance.subscribe()
        get = instance._read

        def late(*args: Any, **more: Any) -> canal.Message:
            instance._read = get  # type: ignore[method-assign]
            log.end()
            until(lambda: instance.is_exhausted)
            return canal.Message(-1, [])

        instance._read = late  # type: ignore[method-assign]
        foreach_batch(None, instance, apply_changes(target, ["id"]))

    assert rows(target) == {1: "a"}


def test_new_columns_make_a_call_of_their_own_in_their_order() -> None:
    log = FakeBinlog()
    orders = log.table("shop", "orders", COLUMNS)
    orders.insert({"id": 1, "v": "a"})
    orders.alter("ALTER TABLE orders ADD c INT", COLUMNS + ", c INT")
    orders.insert({"id": 2, "v": "b", "c": 5})
    target = MemoryTarget()

    with following(log) as instance:
        foreach_batch(None, instance, apply_changes(target, ["id"], schema="add"))

    assert target.rows is not None
    assert target.rows.to_pylist() == [{"id": 1, "v": "a", "c": None}, {"id": 2, "v": "b", "c": 5}]


def test_what_a_table_s_second_call_of_a_message_has_is_not_done_by_the_first() -> None:
    """The process ends between them, and the next one goes on at another server, whose changes are known by GTIDs."""
    target, seen, servers = MemoryTarget(), [], (FakeBinlog(server_id=1), FakeBinlog(server_id=2))
    for log in servers:
        orders = log.table("shop", "orders", COLUMNS)
        with log.transaction(gtid=f"{servers[0].uuid}:1"):
            orders.insert({"id": 1, "v": "a"})
        log.ddl("ALTER TABLE orders ADD c INT", "shop", gtid=f"{servers[0].uuid}:2")
        orders = log.table("shop", "orders", COLUMNS + ", c INT")
        with log.transaction(gtid=f"{servers[0].uuid}:3"):
            orders.insert({"id": 2, "v": "b", "c": 5})

    def fn(df: Any, batch: Batch) -> None:
        apply_changes(target, ["id"], schema="add")(df, batch)
        seen.append(batch)
        if len(seen) == 1:
            raise RuntimeError("between the calls")

    for log in servers:
        with following(log) as instance, contextlib.suppress(RuntimeError):
            foreach_batch(None, instance, fn)

    assert rows(target) == {1: "a", 2: "b"}
    assert [batch.source for batch in seen] == [servers[0].uuid, *[servers[1].uuid] * (len(seen) - 1)]


def test_a_message_with_changes_of_two_servers_makes_a_call_for_each() -> None:
    """Their numbers are those of two logs, and the second's are smaller."""
    first, second = FakeBinlog(server_id=1, start_offset=1 << 20), FakeBinlog(server_id=2)
    target, seen = MemoryTarget(), []
    for log, count in ((first, 3), (second, 4)):
        orders = log.table("shop", "orders", COLUMNS)
        with log.transaction(gtid=f"{first.uuid}:1"):
            orders.insert({"id": 1, "v": "0"})
        for number in range(1, count):
            with log.transaction(gtid=f"{first.uuid}:{number + 1}"):
                orders.update({"id": 1, "v": str(number - 1)}, {"id": 1, "v": str(number)})

    def fn(df: Any, batch: Batch) -> None:
        apply_changes(target, ["id"])(df, batch)
        seen.append(batch)

    config = canal.InstanceConfig(destination="shop", source=first, standby=second, start="earliest")
    with canal.Instance(config) as instance:
        instance.subscribe()
        until(lambda: instance.status().store.put_rows == 3)
        assert instance.switch()
        second.end()
        until(lambda: instance.status().store.put_rows == 4)
        foreach_batch(None, instance, fn)

    assert rows(target) == {1: "3"}
    assert [batch.source for batch in seen] == [first.uuid, second.uuid]
    assert seen[0].end == seen[1].start


def test_a_truncate_stops_it_unless_it_is_dealt_with_between_the_rows() -> None:
    log = FakeBinlog()
    orders = log.table("shop", "orders", COLUMNS)
    orders.insert({"id": 1, "v": "a"})
    log.ddl("TRUNCATE TABLE orders", "shop")
    orders.insert({"id": 2, "v": "b"})
    seen: list[Any] = []

    with following(log) as instance:
        with pytest.raises(UnloggedChangeError, match=r"shop\.orders was emptied by TRUNCATE"):
            foreach_batch(None, instance, lambda df, batch: None)
        foreach_batch(
            None, instance, lambda df, batch: seen.append(df["id"].to_pylist()), statements=lambda entry: seen.append(entry.sql)
        )

    assert seen == [[1], "TRUNCATE TABLE orders", [2]]


def test_a_refused_ack_leaves_the_batch_to_another_process_and_the_loop_goes_on() -> None:
    log = FakeBinlog()
    orders = log.table("shop", "orders", COLUMNS)
    orders.insert({"id": 1, "v": "a"})
    target = MemoryTarget()
    with following(log) as instance:
        ack, refused = instance.ack, []

        def refuse_once(batch_id: int, **more: Any) -> None:
            if not refused:
                refused.append(batch_id)
                raise NotActiveError("another process is active")
            ack(batch_id, **more)

        instance.ack = refuse_once  # type: ignore[method-assign]
        foreach_batch(None, instance, apply_changes(target, ["id"]))

        assert len(refused) == 1
        assert instance.list_batches() == []
    assert target.version == 1
    assert rows(target) == {1: "a"}


def test_turns_of_two_processes_apply_each_change_once(
    zookeeper_server: ZooKeeperServer, zookeeper_root: str, tmp_path: Path
) -> None:
    """Each is put to rest in the midst of its first batch: it is not acked, and the other gets it again."""
    log = FakeBinlog()
    orders = log.table("shop", "orders", COLUMNS)
    for number in range(6):
        orders.insert({"id": number, "v": "a"})
    target = str(tmp_path / "orders")
    with log.serve(user="u", password="p") as server, contextlib.ExitStack() as stack:
        command = [
            sys.executable,
            "-m",
            "tests.programs.spark_turns_child",
            str(server.port),
            zookeeper_server.hosts,
            zookeeper_root,
            target,
        ]
        children = []
        for _ in range(2):
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            children.append(stack.enter_context(child))
            stack.callback(child.kill)
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        until(lambda: DeltaTable.is_deltatable(target) and DeltaTable(target).to_pyarrow_table().num_rows >= 6, 60)
        for child in children:
            child.terminate()
        calls = [child.communicate()[0].splitlines() for child in children]

    assert DeltaTable(target).to_pyarrow_table()["id"].sort().to_pylist() == list(range(6))
    assert [batches[0].split()[0] for batches in calls] == ["0", "0"], "the first batch came to both"


def test_a_session_of_an_old_spark_is_refused_before_anything_is_taken() -> None:
    with following(FakeBinlog()) as instance, pytest.raises(ConfigError, match="need Spark 3.5 or later, this is 3.4.1"):
        foreach_batch(SimpleNamespace(version="3.4.1"), instance, lambda df, batch: None)


def test_a_delta_table_follows_a_log_without_spark(tmp_path: Path) -> None:
    log = FakeBinlog()
    orders = log.table("shop", "orders", COLUMNS + ", t TIME(6), at DATETIME, amount DECIMAL(10,2), n BIGINT UNSIGNED")
    with log.transaction():
        orders.insert({"id": 1, "t": "-838:59:59.000001", "at": "2026-01-02 03:04:05", "amount": "1.50", "n": 2**64 - 1})
        orders.insert({"id": 2, "v": "b"})
    target = DeltaTableTarget(str(tmp_path / "orders"))
    with following(log) as instance:
        foreach_batch(None, instance, apply_changes(target, ["id"]))

    found = {row["id"]: row for row in DeltaTable(target.path).to_pyarrow_table().to_pylist()}
    assert found[1]["t"] == -(838 * 3600 + 59 * 60 + 59) * 1_000_000 - 1
    assert found[1]["n"] == 2**64 - 1
    assert found[2]["t"] is None


# -- what no row tells ---------------------------------------------------------------------------------------------------


def lake(kind: str, path: Path) -> Any:
    made: dict[str, Callable[[], Any]] = {
        "memory": MemoryTarget,
        "delta": lambda: DeltaTableTarget(str(path / "orders")),
        "iceberg": lambda: Iceberg(path).make(),
        "parquet": lambda: ParquetTableTarget(str(path / "orders")),
    }
    return made[kind]()


BOTH = r"shop\.orders,shop\."  # rows, and statements about the whole database
LOSSES = [
    ("TRUNCATE TABLE orders", "emptied by TRUNCATE"),
    ("DROP TABLE orders; CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))", "dropped"),
    ("RENAME TABLE orders TO old, fresh TO orders", "another table was renamed"),
    ("CREATE OR REPLACE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))", "replaced"),
    ("ALTER TABLE orders TRUNCATE PARTITION p1", "partitions"),
    ("ALTER TABLE orders CHANGE w v VARCHAR(20)", "v, w was dropped or renamed"),
    ("ALTER TABLE orders DROP v, ADD v VARCHAR(20) DEFAULT 'x'", "v was dropped or renamed"),
    ("ALTER IGNORE TABLE orders ADD UNIQUE (v)", "IGNORE"),
    ("ALTER TABLE orders DROP PRIMARY KEY", "drops its primary key"),
    ("ALTER TABLE orders ADD w INT, DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", "drops its primary key"),
    ("DROP INDEX `PRIMARY` ON orders", "drops its primary key"),
    ("ALTER TABLE orders DROP KEY IF EXISTS `Primary`", "drops its primary key"),
    ("DROP DATABASE shop", "dropped with its database"),
    ("UPDATE orders SET v = NULL", "rows are not in the log"),
    ("SELECT restock()", "does not tell its tables"),
    ("REFILL orders", "not understood"),
]


@pytest.mark.parametrize(("sql", "says"), LOSSES)
@pytest.mark.parametrize("is_new", [False, True])
def test_what_changes_rows_without_a_row_comes_again_until_it_is_acknowledged(sql: str, says: str, is_new: bool) -> None:
    """Whatever starts: a loop that goes on, or one that reads the log anew, with another sink for the same target."""
    target, applied = MemoryTarget(), []
    with following(losing(sql), filter=BOTH) as instance:
        for number in range(3):
            with pytest.raises(UnloggedChangeError, match=f"{says}.*acknowledge"):
                foreach_batch(None, instance, apply_changes(target, ["id"]), batch_size=1 + number)
            assert rows(target) == {1: "a"}
            applied.append(target.version)
        assert applied[1:] == applied[:-1]
        apply_changes(target, ["id"]).acknowledge()
        if not is_new:
            foreach_batch(None, instance, apply_changes(target, ["id"]))
    if is_new:
        with following(losing(sql), filter=BOTH) as instance:
            foreach_batch(None, instance, apply_changes(target, ["id"]))
    assert rows(target) == {1: "a", 2: "b"}


def losing(sql: str) -> FakeBinlog:
    log = FakeBinlog(clock=lambda: 1_700_000_000)
    orders = log.table("shop", "orders", COLUMNS)
    orders.insert({"id": 1, "v": "a"})
    for one in sql.split("; "):
        (log.query if one.startswith(("UPDATE", "SELECT")) else log.ddl)(one, "shop")
    orders.insert({"id": 2, "v": "b"})
    return log


@pytest.mark.parametrize("kind", ["memory", "delta", "iceberg", "parquet"])
def test_a_loss_stands_in_the_target_with_its_progress(kind: str, tmp_path: Path) -> None:
    """Also one in the middle of a transaction, between rows of the table."""
    target, keys = lake(kind, tmp_path), None if kind == "parquet" else ["id"]
    log = FakeBinlog()
    orders = log.table("shop", "orders", COLUMNS)
    with log.transaction() as transaction:
        orders.insert({"id": 1, "v": "a"})
        transaction.query("UPDATE orders SET v = 'z'", "shop")
        orders.insert({"id": 2, "v": "b"})
    log.ddl("TRUNCATE orders", "shop")
    orders.insert({"id": 3, "v": "c"})
    with following(log) as instance:
        for says in ("rows are not in the log", "TRUNCATE"):
            for _ in range(2):
                sink = apply_changes(target, keys)
                with pytest.raises(UnloggedChangeError, match=says):
                    foreach_batch(None, instance, sink)
            progress = sink.progress()
            assert progress is not None
            assert says in progress.table.fault
            sink.acknowledge()
        foreach_batch(None, instance, apply_changes(target, keys))
    assert [progress.table.txn for progress in [apply_changes(target, keys).progress()] if progress and not progress.table.fault]
    found = {
        "memory": lambda: target.rows,
        "delta": lambda: DeltaTable(target.path).to_pyarrow_table(),
        "iceberg": lambda: Iceberg(tmp_path).rows(target),
        "parquet": lambda: pq.read_table(target.path),
    }[kind]()
    assert sorted(found["id"].to_pylist()) == [1, 2, 3]


NARROWER = [("VARCHAR(20)", "VARCHAR(2)"), ("INT", "SMALLINT"), ("ENUM('a','b')", "ENUM('b','c')")]


@pytest.mark.parametrize(("old", "new"), NARROWER)
@pytest.mark.parametrize("is_new", [False, True])
def test_a_narrower_column_is_told_by_the_types_that_the_target_has_met(old: str, new: str, is_new: bool) -> None:
    """Also where the rows before the ALTER were acked, and by a process that is no more."""
    log, target = FakeBinlog(), MemoryTarget()
    orders = log.table("shop", "orders", f"id INT PRIMARY KEY, v {old}")
    orders.insert({"id": 1})
    config = canal.InstanceConfig(destination="shop", source=log, start="earliest")
    with canal.Instance(config) as instance:
        instance.subscribe()
        stop = threading.Event()

        def first(df: Any, batch: Batch) -> None:
            apply_changes(target, ["id"])(df, batch)
            stop.set()

        foreach_batch(None, instance, first, stop=stop)
        orders.alter(f"ALTER TABLE orders MODIFY v {new}", f"id INT PRIMARY KEY, v {new}")
        orders.insert({"id": 2})
        log.end()
        for _ in range(2):
            with pytest.raises(UnloggedChangeError, match="v was .*, is .*acknowledge"):
                foreach_batch(None, instance, apply_changes(target, ["id"], schema="add"))
        apply_changes(target, ["id"]).acknowledge()
        foreach_batch(None, instance, apply_changes(target, ["id"]))
    assert target.rows is not None
    assert target.rows["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize(("old", "new"), NARROWER)
def test_a_narrower_column_is_told_where_no_row_comes_behind_it(old: str, new: str) -> None:
    log, target = FakeBinlog(), MemoryTarget()
    orders = log.table("shop", "orders", f"id INT PRIMARY KEY, v {old}")
    orders.insert({"id": 1})
    log.ddl(f"ALTER TABLE orders MODIFY v {new}", "shop")
    with following(log) as instance:
        for _ in range(2):
            with pytest.raises(UnloggedChangeError, match="v was .*, is .*acknowledge"):
                foreach_batch(None, instance, apply_changes(target, ["id"]))
        apply_changes(target, ["id"]).acknowledge()
        foreach_batch(None, instance, apply_changes(target, ["id"]))
    assert rows(target) == {1: None}


@pytest.mark.parametrize(("new", "is_loud"), [("SMALLINT", True), ("BIGINT", False)])
def test_an_alter_before_the_first_row_of_a_run_is_judged_by_the_types_of_the_target(new: str, is_loud: bool) -> None:
    """The loop has met no row, and none comes: what the target met in the run before is all that is known."""
    log, target = FakeBinlog(), MemoryTarget()
    orders = log.table("shop", "orders", "id INT PRIMARY KEY, v INT")
    orders.insert({"id": 1})
    config = canal.InstanceConfig(destination="shop", source=log, start="earliest")
    with canal.Instance(config) as instance:
        instance.subscribe()
        stop = threading.Event()

        def first(df: Any, batch: Batch) -> None:
            apply_changes(target, ["id"])(df, batch)
            stop.set()

        foreach_batch(None, instance, first, stop=stop)
        log.ddl(f"ALTER TABLE orders MODIFY v {new}", "shop")
        log.end()
        if is_loud:
            with pytest.raises(UnloggedChangeError, match="v was int, is smallint.*acknowledge"):
                foreach_batch(None, instance, apply_changes(target, ["id"]))
            apply_changes(target, ["id"]).acknowledge()
        foreach_batch(None, instance, apply_changes(target, ["id"]))
    assert rows(target) == {1: None}


def test_a_function_of_its_own_is_told_of_an_alter_before_the_first_row() -> None:
    log, told = FakeBinlog(), []
    log.table("shop", "orders", COLUMNS)
    log.ddl("ALTER TABLE orders MODIFY v VARCHAR(2)", "shop")

    def settle(df: Any, batch: Batch) -> None:
        assert batch.loss is not None
        told.append((batch.loss.told(""), batch.loss.told('[["id", "int", null, 1], ["v", "varchar(2)", "utf8mb4"]]')))
        batch.loss.settle()

    with following(log) as instance:
        foreach_batch(None, instance, settle)
    [(unknown, known)] = told
    assert "its columns before that are not known" in unknown
    assert known == ""


def test_an_alter_of_a_table_that_was_just_made_is_no_loss() -> None:
    log, target = FakeBinlog(), MemoryTarget()
    orders = log.table("shop", "orders", COLUMNS)
    log.ddl("CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))", "shop")
    log.ddl("ALTER TABLE orders MODIFY v VARCHAR(2)", "shop")
    orders.insert({"id": 1, "v": "a"})
    calls = []

    def call(df: Any, batch: Batch) -> None:
        calls.append(batch.loss)
        apply_changes(target, ["id"])(df, batch)

    with following(log) as instance:
        foreach_batch(None, instance, call)
    assert calls == [None]


def test_of_a_target_without_rows_nothing_is_lost() -> None:
    log, target = FakeBinlog(), MemoryTarget()
    orders = log.table("shop", "orders", COLUMNS)
    log.ddl("DROP TABLE IF EXISTS orders", "shop")
    orders.insert({"id": 1, "v": "a"})
    with following(log) as instance:
        foreach_batch(None, instance, apply_changes(target, ["id"]))
    assert rows(target) == {1: "a"}


def test_a_function_of_its_own_is_told_of_a_loss_and_may_settle_it() -> None:
    seen: list[Any] = []

    def settle(df: Any, batch: Batch) -> None:
        seen.append((batch.table, df["id"].to_pylist(), batch.loss and batch.loss.row["_op"].to_pylist()))
        if batch.loss is not None:
            batch.loss.settle()

    with following(losing("RENAME TABLE orders TO old, fresh TO orders"), filter=r"shop\.orders") as instance:
        with pytest.raises(UnloggedChangeError, match="settle"):
            foreach_batch(None, instance, lambda df, batch: None)
        with pytest.raises(UnloggedChangeError, match="renamed") as found:
            foreach_batch(None, instance, lambda df, batch: {}[batch.table] if batch.loss else None)
        assert isinstance(found.value.__cause__, KeyError)
        foreach_batch(None, instance, settle)
    assert seen == [("shop.orders", [1], None), ("shop.orders", [], ["T"]), ("shop.orders", [2], None)]


def test_statements_about_other_tables_lose_nothing() -> None:
    sql = "TRUNCATE a; RENAME TABLE a TO b; DROP TABLE b; DROP DATABASE elsewhere; ALTER TABLE orders ADD INDEX (v)"
    target = MemoryTarget()
    with following(losing(sql), filter=BOTH) as instance:
        foreach_batch(None, instance, apply_changes(target, ["id"]))
    assert rows(target) == {1: "a", 2: "b"}


def test_a_filter_that_keeps_statements_about_the_database_out_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with following(losing("ANALYZE TABLE orders"), filter=r"shop\.orders") as instance:
        foreach_batch(None, instance, apply_changes(MemoryTarget(), ["id"]))
    assert caplog.text.count("a DROP DATABASE goes unnoticed") == 1
