"""A table as it is and then its changes, in one stream, read as Spark reads it, from real servers under load."""

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

import canal
import canal.spark
from canal.errors import AuthenticationError, ConfigError, SchemaError, SourceError, StateError, StoreError
from canal.parse.source.mysql import MySQLSource
from canal.snapshot.chunks import Pace
from canal.snapshot.files import SnapshotFiles
from canal.spark import apply_changes
from canal.spark.options import parse_options
from canal.spark.source import CanalSource, CanalStreamReader
from canal.targets.tables import ParquetTableTarget
from canal.testing import FakeBinlog
from canal.testing.servers import MySQLServer, ThrowawayServer
from tests.support.engine import PATIENCE, Engine, rows_of
from tests.support.waiting import until

_names = itertools.count(1)
SERVER = ("host", "port", "user", "password")


class Shop:
    """A table, and a writer that inserts, updates, deletes and changes keys for as long as it is asked to."""

    def __init__(self, server: ThrowawayServer) -> None:
        self.server, self.name = server, f"snap_{os.getpid()}_{next(_names)}"
        server.query(f"CREATE DATABASE {self.name}")
        server.query(f"CREATE TABLE {self.name}.orders (id INT PRIMARY KEY, note VARCHAR(20))")
        values = ",".join(f"({2 * number},'old')" for number in range(500))
        server.query(f"INSERT INTO {self.name}.orders VALUES {values}")
        self.rounds = 0
        self.stopping = threading.Event()
        self.writer = threading.Thread(target=self._write)

    def _write(self) -> None:
        table = f"{self.name}.orders"
        with self.server.connect(autocommit=True) as session, session.cursor() as cursor:
            for number in itertools.count(1):
                if self.stopping.wait(0.002):
                    return
                cursor.execute(f"REPLACE INTO {table} VALUES ({number * 37 % 1000}, 'new {number}')")
                cursor.execute(f"UPDATE IGNORE {table} SET id = id + 1 WHERE id = {number * 53 % 1000}")
                cursor.execute(f"DELETE FROM {table} WHERE id = {number * 71 % 1000}")
                self.rounds = number

    def write_on(self) -> None:
        """Wait until so much more was written that there are inserts, updates and deletes among it."""
        enough = self.rounds + 100
        until(lambda: self.rounds >= enough)

    def options(self, **more: Any) -> dict[str, Any]:
        server = self.server
        return {
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": server.password,
            "table": f"{self.name}.orders",
            "chunkRows": 50,
            "chunksPerBatch": 3,
            "pollTimeout": 0.1,
            **more,
        }

    def rows(self) -> dict[int, str]:
        return dict(self.server.query(f"SELECT id, note FROM {self.name}.orders"))


@pytest.fixture
def shop(server: ThrowawayServer) -> Iterator[Shop]:
    made = Shop(server)
    made.writer.start()
    yield made
    made.stopping.set()
    made.writer.join()
    server.query(f"DROP DATABASE {made.name}")


@pytest.fixture
def own_mysql(mysql_server: ThrowawayServer) -> Iterator[ThrowawayServer]:
    """A MySQL that gives tables a primary key, and does not show it."""
    hidden = ("--sql-generate-invisible-primary-key=ON", "--show-gipk-in-create-table-and-information-schema=OFF")
    with MySQLServer("--binlog-row-metadata=FULL", *hidden) as server:
        yield server


def fold(rows: list[dict[str, Any]]) -> dict[int, str]:
    """The table that the rows make, in their order."""
    found: dict[int, str] = {}
    for row in sorted(rows, key=lambda row: (row["_txn"], row["_ord"])):
        if row["_op"] == "U":
            found.pop(row["_before"]["id"], None)
        if row["_op"] == "D":
            found.pop(row["id"], None)
        else:
            found[row["id"]] = row["note"]
    return found


def until_equal(engine: Engine, shop: Shop) -> None:
    shop.stopping.set()
    shop.writer.join()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        engine.step()
        if fold(engine.rows) == shop.rows():
            return
    raise AssertionError(f"{len(fold(engine.rows))} rows, the table has {len(shop.rows())}, {len(engine.offsets)} batches")


def test_the_snapshot_and_the_changes_make_the_table(shop: Shop) -> None:
    with Engine(shop.options(snapshot="initial")) as engine:
        engine.start()
        for _ in range(6):
            engine.step()
        assert {row["_op"] for row in engine.sink[1]} == {"r"}
        assert len(engine.partitions[1]) == 3
        until_equal(engine, shop)
    ops = [{row["_op"] for row in engine.sink[number]} for number in sorted(engine.sink)]
    last = max(number for number, some in enumerate(ops) if "r" in some)
    assert all(some <= {"r"} for some in ops[: last + 1])  # all of the snapshot comes before any change


@pytest.mark.parametrize("planned", [1, 2, 3, 9])
def test_a_restart_goes_on_in_the_middle_of_the_snapshot(shop: Shop, planned: int) -> None:
    """Once between the log of offsets and the sink, once between the sink and the commit, at each stage."""
    with Engine(shop.options(snapshot="initial")) as engine:
        engine.start()
        for _ in range(planned):
            engine.step()
        for run in (False, True):
            while not engine.plan():
                pass
            if run:
                engine.run()
            engine.stop()
            engine.start()
            engine.step()
        assert engine.committed == len(engine.offsets)
        until_equal(engine, shop)
    plans = {str(offset) for offset in engine.offsets if '"snap"' in offset}
    assert len({text.partition('"plan"')[2] for text in plans}) == 1  # the one that was made first


def in_the_offset(offset: str, plans: Path) -> str:
    """An offset as it was written when the plan with its chunks stood in it."""
    value = json.loads(offset)
    (path,) = plans.glob("plan-*.json")
    value["plan"] = json.loads(path.read_text())
    return json.dumps(value)


@pytest.mark.parametrize("how", ["initial", "consistent"])
def test_an_offset_is_as_small_for_a_thousand_chunks_and_holds_no_keys(
    shop: Shop, tmp_path: Path, how: str, thorough: bool
) -> None:
    people = 600 if thorough else 250  # a chunk and a connection each
    shop.stopping.set()
    shop.writer.join()
    shop.server.query(f"CREATE TABLE {shop.name}.people (mail VARCHAR(40) PRIMARY KEY)")
    values = ",".join(f"('person{number}@example.org')" for number in range(people))
    shop.server.query(f"INSERT INTO {shop.name}.people VALUES {values}")
    options = shop.options(snapshot=how, snapshotDir=tmp_path, chunkRows=1, chunksPerBatch=10_000, table=f"{shop.name}.people")
    with Engine(options) as engine:
        engine.start()
        engine.plan()
        assert engine.plan()
        assert json.loads(engine.offsets[-1])["plan"]["count"] > people // 2
        assert max(map(len, engine.offsets)) < 1500
        assert not any(one in offset for offset in engine.offsets for one in ("person", b"person".hex()))
        assert len(engine.run()) == people
        engine.committed = len(engine.offsets)
        engine.step()  # all is done for good
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("planned", [1, 2])
def test_a_checkpoint_that_holds_its_plan_goes_on(shop: Shop, tmp_path: Path, planned: int) -> None:
    with Engine(shop.options(snapshot="initial", snapshotDir=tmp_path)) as engine:
        engine.start()
        for _ in range(planned):
            engine.step()
        engine.plan()  # and is not run
        engine.offsets = [in_the_offset(offset, tmp_path) for offset in engine.offsets]
        engine.stop()
        for path in tmp_path.iterdir():
            path.unlink()
        engine.start()
        until_equal(engine, shop)
        assert '"chunks"' not in engine.offsets[-1]
        chunks = [part.what.chunk.number for parts in engine.partitions.values() for part in parts if hasattr(part.what, "chunk")]
        assert chunks == list(range(len(chunks)))  # each once


@pytest.mark.parametrize("planned", [1, 2, 3, "all"])
@pytest.mark.parametrize("fault", ["gone", "cut"])
def test_a_snapshot_whose_plan_is_lost_begins_anew_at_its_position(
    shop: Shop, tmp_path: Path, fault: str, planned: int | str, caplog: pytest.LogCaptureFixture
) -> None:
    with Engine(shop.options(snapshot="initial", snapshotDir=tmp_path)) as engine:
        engine.start()
        engine.step()
        while engine.plan():
            offset = json.loads(engine.offsets[-1])
            if len(engine.offsets) == planned or offset["done"] == offset["plan"]["count"]:
                break
            engine.run()
            engine.committed = len(engine.offsets)
        engine.stop()
        (path,) = tmp_path.glob("plan-*.json")
        if fault == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-9])
        shop.write_on()
        engine.start()
        until_equal(engine, shop)
        assert "the whole table is read again, at the same position" in caplog.text
        positions = {json.dumps(json.loads(one)["plan"]["position"]) for one in engine.offsets if '"snap"' in one}
        assert len(positions) == 1


@pytest.mark.parametrize("snapshot", ["initial", "never"])
def test_with_read_by_driver_no_executor_connects_to_the_server(
    shop: Shop, snapshot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for chunks, nor for a batch that is read again after a restart, nor for a backlog of many files."""
    more = {"snapshot": "initial"} if snapshot == "initial" else {"startingPosition": "earliest"}
    read = CanalStreamReader.read

    def reading(self: CanalStreamReader, partition: Any) -> Iterator[pa.RecordBatch]:
        with monkeypatch.context() as patch:
            patch.setattr(MySQLSource, "log_in", None)
            patch.setattr(MySQLSource, "connect", None)
            yield from [*read(self, partition)]

    monkeypatch.setattr(CanalStreamReader, "read", reading)
    with Engine(shop.options(readBy="driver", transport="bytes", **more)) as engine:
        engine.start()
        for _ in range(3):
            engine.step()
        for _ in range(2):
            engine.plan_next()
            engine.run()
            engine.stop()
            for _ in range(4):
                shop.write_on()
                shop.server.query("FLUSH BINARY LOGS")
            engine.start()
            before = engine.sink.pop(len(engine.offsets) - 1)
            engine.step()
            if '"bin"' in engine.offsets[-1]:
                assert engine.sink[len(engine.offsets) - 1] == before
        until_equal(engine, shop)


# -- at one moment ------------------------------------------------------------------------------------------------------


def fitted(rows: list[dict[str, Any]]) -> dict[int, str]:
    """The table that the rows make, each of which comes once and fits what is there before it."""
    found: dict[int, str] = {}
    positions = [(row["_txn"], row["_ord"]) for row in rows]
    assert len(set(positions)) == len(positions)
    for row in sorted(rows, key=lambda row: (row["_txn"], row["_ord"])):
        if row["_op"] in "UD":
            old = row["_before"] or row
            assert found.pop(old["id"]) == old["note"]
        if row["_op"] != "D":
            assert row["id"] not in found
            found[row["id"]] = row["note"]
    return found


class Query:
    """A snapshot at one moment and its changes, appended to parquet files."""

    def __init__(self, shop: Shop, directory: Path) -> None:
        self.files = directory / "snapshots"
        self.engine = Engine(shop.options(snapshot="consistent", snapshotDir=self.files))
        self.target = ParquetTableTarget(str(directory / "target"))

    def give(self) -> None:
        """The planned batch to the sink, without Spark's commit."""
        schema = to_arrow_schema(self.engine.struct, timezone="UTC")
        apply_changes(self.target, None)(pa.Table.from_pylist(self.engine.run(), schema=schema))

    def step(self) -> None:
        if self.engine.plan():
            self.give()
            self.engine.committed = len(self.engine.offsets)

    def restart(self) -> None:
        self.engine.stop()
        self.engine.start()

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pq.read_table(self.target.path).to_pylist()
        return found

    def until_equal(self, shop: Shop) -> None:
        shop.stopping.set()
        shop.writer.join()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.step()
            if fold(self.rows()) == shop.rows():
                break
        self.step()  # the last one is done only when the next is asked for
        assert fitted(self.rows()) == shop.rows()
        numbers = sorted(row["_ord"] for row in self.rows() if row["_op"] == "r")
        assert numbers == list(range(-(1 << 62), len(numbers) - (1 << 62)))


@pytest.fixture
def query(shop: Shop, tmp_path: Path) -> Iterator[Query]:
    made = Query(shop, tmp_path)
    with made.engine:
        yield made


@pytest.mark.parametrize("ending", [0, 1, 2, 4, 5])
def test_a_consistent_snapshot_and_its_changes_are_appended_each_once(shop: Shop, query: Query, ending: int) -> None:
    """Runs end with a batch planned, given to the sink, and committed; each restart finds the files that it needs."""
    engine = query.engine
    engine.start()
    for _ in range(ending):
        while not engine.plan():
            pass
        query.give()
        engine.committed = len(engine.offsets)
    for is_given in (False, True):
        while not engine.plan():
            pass
        if is_given:
            query.give()
        query.restart()
    query.step()
    query.restart()
    query.until_equal(shop)
    assert list(query.files.iterdir()) == []
    assert len({text.partition('"plan"')[2] for text in engine.offsets if '"snap"' in text}) == 1


class KilledError(BaseException):
    pass


def test_files_that_a_killed_process_left_are_removed_and_no_others(
    shop: Shop, query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Query(shop, tmp_path / "other")
    other.engine.options["snapshotDir"] = str(query.files)
    with other.engine:
        other.engine.start()
        other.step()
        other.step()
        (claimed,) = query.files.iterdir()
        reading = SnapshotFiles(query.files)  # of a process that lives

        def writing(self: SnapshotFiles, number: int, *args: Any) -> Any:
            if number == 3:
                raise KilledError
            return write(self, number, *args)

        write = SnapshotFiles._writing
        with monkeypatch.context() as patch:
            patch.setattr(SnapshotFiles, "_writing", writing)
            patch.setattr(SnapshotFiles, "remove", SnapshotFiles.close)
            query.engine.start()
            with pytest.raises(KilledError):
                query.engine.plan()
        killed = {*query.files.iterdir()} - {claimed, reading.directory, reading.directory.with_suffix(".unclaimed")}
        assert len(killed) == 2
        query.engine.stop()
        query.engine.start()
        assert query.engine.plan()  # Spark dies before it writes this down
        unwritten = json.loads(query.engine.offsets.pop())["plan"]["files"]
        query.restart()
        assert not any(path.exists() for path in killed)

        assert query.engine.plan()
        assert Path(unwritten).exists()  # it may have been written down, for all that is known
        os.utime(f"{unwritten}.unclaimed", (0, 0))
        query.give()
        SnapshotFiles(query.files).remove()
        assert not Path(unwritten).exists()
        assert reading.directory.exists()
        reading.remove()
        query.engine.committed = 1
        other.until_equal(shop)
        query.until_equal(shop)
    assert list(query.files.iterdir()) == []


def test_a_snapshot_that_fails_leaves_no_files(shop: Shop, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(number: int) -> None:
        if not stat.S_ISDIR(os.fstat(number).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")

    query.engine.start()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(StoreError, match="snapshotDir to a larger disk"):
            query.engine.plan()
        patch.undo()
        patch.setattr(os, "getppid", lambda: 1)
        with pytest.raises(StateError, match="gone"):
            query.engine.plan()
    assert list(query.files.iterdir()) == []


def test_files_that_are_gone_cut_or_of_other_columns_are_told(shop: Shop, query: Query) -> None:
    engine, server = query.engine, shop.server
    engine.start()
    query.step()
    assert engine.plan()
    (first, *_) = sorted(query.files.glob("*/*.arrow"))
    whole = first.read_bytes()
    with pa.ipc.open_stream(whole) as reader:
        schema = reader.schema
    with pa.ipc.new_stream(str(first), schema):
        pass
    with pytest.raises(SourceError, match="it has 0 rows, 50 were written"):
        engine.run()
    first.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match="cannot be read"):
        engine.run()
    first.unlink()
    with pytest.raises(SourceError, match="begin anew, with a new checkpoint"):
        engine.run()
    first.write_bytes(whole)
    shop.stopping.set()
    shop.writer.join()
    server.query(f"ALTER TABLE {shop.name}.orders ADD COLUMN more INT")
    query.restart()
    engine.plan()
    with pytest.raises(SchemaError, match="Begin anew"):
        engine.run()


def test_available_now_reads_the_snapshot_and_what_was_in_the_log_and_ends(shop: Shop) -> None:
    shop.stopping.set()
    shop.writer.join()
    with Engine(shop.options(snapshot="initial")) as engine:
        engine.start(available_now=True)
        while engine.step():
            pass
        assert fold(engine.rows) == shop.rows()
        shop.server.query(f"INSERT INTO {shop.name}.orders VALUES (5001, 'later')")
        engine.stop()
        engine.start(available_now=True)
        while engine.step():
            pass
        assert fold(engine.rows) == shop.rows()


def test_a_batch_of_a_snapshot_keeps_to_the_limit_of_rows(shop: Shop) -> None:
    with Engine(shop.options(snapshot="initial", maxRowsPerBatch=100, chunksPerBatch=100)) as engine:
        engine.start()
        for _ in range(3):
            engine.step()
        assert 1 <= len(engine.partitions[1]) < 6


def test_a_batch_of_a_snapshot_keeps_to_the_limit_of_bytes(shop: Shop) -> None:
    """By the server's estimate of a row: one of them is as much as several, not as all."""
    name = f"{shop.name}.wide"
    shop.server.query(f"CREATE TABLE {name} (id INT PRIMARY KEY, note TEXT)")
    values = ",".join(f"({number},REPEAT('x',1000))" for number in range(2000))
    shop.server.query(f"INSERT INTO {name} VALUES {values}")
    shop.server.query(f"ANALYZE TABLE {name}")
    options = shop.options(snapshot="initial", maxBytesPerBatch="200k", chunkRows=100000, chunksPerBatch=100, table=name)
    with Engine(options) as engine:
        engine.start()
        engine.until(2000)
        assert max(map(len, engine.sink.values())) < 500


@pytest.mark.parametrize("is_ahead", [False, True])
@pytest.mark.parametrize("how", ["initial", "consistent"])
def test_a_query_on_a_shared_instance_begins_with_a_snapshot(shop: Shop, tmp_path: Path, how: str, is_ahead: bool) -> None:
    """Also where the Instance is ahead, when the chunks are read: the changes between come over the query's connection."""
    server, name = shop.server, shop.name
    source = canal.MySQLSource(host=server.host, port=server.port, user=server.user, password=server.password)
    config = canal.InstanceConfig(destination=name, source=source, filter=rf"{name}\..*", start="latest")
    options = {key: value for key, value in shop.options(snapshot=how).items() if key not in SERVER}
    if how == "consistent":
        options["snapshotDir"] = tmp_path / "snapshots"
    with canal.Instance(config) as instance, Engine({**options, "instance": name, "spoolDir": tmp_path}) as engine:
        canal.spark.share(instance, name)
        instance.subscribe()
        engine.start()
        for _ in range(6):
            engine.step()
            if is_ahead:
                instance.get(1 << 20)
        shop.write_on()
        if is_ahead:
            instance.get(1 << 20)
            instance.get()  # which acks
        engine.stop()
        engine.start()
        until_equal(engine, shop)
        if how == "consistent":
            assert fitted(engine.rows) == shop.rows()
        assert {row["_op"] for row in engine.rows} == {"r", "I", "U", "D"}
        engine.stop()
        canal.spark.unshare(name)


def test_an_instance_whose_source_cannot_be_connected_to_has_no_snapshot(tmp_path: Path) -> None:
    fake = FakeBinlog("mysql")
    name = f"fake_{os.getpid()}"
    with canal.Instance(canal.InstanceConfig(destination=name, source=fake)) as instance:
        canal.spark.share(instance, name)
        with pytest.raises(ConfigError, match="a snapshot is of one table of a server"):
            CanalSource({"instance": name, "table": "a.b", "snapshot": "initial"}).schema()
        canal.spark.unshare(name)


def reported(engine: Engine) -> dict[str, Any]:
    assert engine.reader is not None
    found = engine.reader.reportLatestOffset()
    assert found is not None
    return found


@pytest.mark.parametrize("how", ["initial", "consistent"])
def test_how_far_a_snapshot_is_is_reported_and_logged(
    shop: Shop, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canal.snapshot.chunks._PACE", float("inf"))
    more = {"snapshotDir": tmp_path} if how == "consistent" else {}
    caplog.set_level("INFO", "canal.spark")
    with Engine(shop.options(snapshot=how, **more)) as engine:
        engine.start()
        for number in range(3):
            engine.step()
            found = reported(engine)
            assert (found["ph"], found["chunks_done"]) == ("snap", max(0, 3 * (number - 1)))
            assert 0 <= found["rows_done"] < found["rows"]
        engine.stop()
        engine.start()
        while '"snap"' in engine.offsets[-1]:
            engine.step()
        assert reported(engine)["ph"] == "bin"
    told = [text for text in caplog.messages if " of about " in text]
    assert 1 <= len(told) <= 3  # one for each run, and for what was read before
    assert sum(text.startswith(f"snapshot of {shop.name}.orders: done") for text in caplog.messages) == 1


def test_the_log_tells_rate_and_rest_at_intervals(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level("INFO", "canal.spark")
    clock = iter([100.0, 105.0, 110.0, 119.9, 4000.0])
    monkeypatch.setattr("canal.snapshot.chunks.time", SimpleNamespace(monotonic=lambda: next(clock)))
    pace = Pace("shop.orders")
    for done in (1000, 2000, 41000, 50000, 1000000):
        pace.tell(done, 500000)
    assert caplog.messages == [
        "snapshot of shop.orders: 1000 of about 500000 rows",
        "snapshot of shop.orders: 41000 of about 500000 rows, 4000 rows/s, about 0:01:55 left",
        "snapshot of shop.orders: 1000000 of about 1000000 rows, 256 rows/s",
    ]


@pytest.mark.parametrize("snapshot", ["initial", "never"])
def test_a_key_that_the_server_made_and_hides_is_a_column(own_mysql: ThrowawayServer, snapshot: str) -> None:
    """It is in the log in any case, and makes chunks."""
    server = own_mysql
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (a INT)")
    server.query(f"INSERT INTO d.t VALUES {','.join(f'({number})' for number in range(500))}")
    options = {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "table": "d.t",
        "snapshot": snapshot,
        "pollTimeout": 0.1,
        "chunkRows": 50,
    }
    with Engine(options) as engine:
        engine.start()
        engine.step()
        server.query("INSERT INTO d.t VALUES (-1)")
        rows = engine.until(501 if snapshot == "initial" else 1)
    assert sorted(int(row["my_row_id"]) for row in rows) == list(range(1, 502))[-len(rows) :]
    assert snapshot == "never" or len(engine.partitions[1]) > 4


@pytest.mark.parametrize("how", ["initial", "consistent"])
def test_an_empty_table_is_told_by_a_row_without_values(server: ThrowawayServer, database: str, tmp_path: Path, how: str) -> None:
    """The same whenever it is read again; of a table that was emptied while its chunks are read too."""
    server.query(f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, note VARCHAR(20))")
    options = {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "chunkRows": 20,
        "table": f"{database}.orders",
        "snapshot": how,
        "pollTimeout": 0.1,
    }
    if how == "consistent":
        options["snapshotDir"] = str(tmp_path)
    with Engine(options) as engine:
        engine.start()
        engine.step()
        assert engine.plan()
        told = engine.run()
        engine.committed = len(engine.offsets)
        server.query(f"INSERT INTO {database}.orders VALUES {','.join(f'({number}, 0)' for number in range(300))}")
        engine.until(301)
    (row,) = told
    assert (row["_op"], row["_ord"], row["id"], row["note"], row["_before"]) == ("T", -1, None, None, None)
    assert row["_txn"] <= min(row["_txn"] for row in engine.rows[1:])
    server.query(f"ANALYZE TABLE {database}.orders")
    with Engine(options) as engine:
        engine.start()
        engine.step()
        server.query(f"DELETE FROM {database}.orders")
        engine.step()
    assert len(engine.partitions[1]) > 5
    ops = [row["_op"] for row in engine.rows]
    assert ops == (["T"] if how == "initial" else ["r"] * len(ops))


def test_a_table_is_added_to_a_job(shop: Shop, tmp_path: Path) -> None:
    """To an envelope by itself, from its first change; to queries of one table as another one, with its rows."""
    server, name = shop.server, shop.name
    options = {**shop.options(), "tables": rf"{name}\..*"}
    del options["table"]
    with Engine(options) as every, Engine(shop.options(snapshot="initial", table=f"{name}.added")) as added:
        every.start()
        every.step()
        server.query(f"CREATE TABLE {name}.added (id INT PRIMARY KEY, note VARCHAR(20))")
        values = ",".join(f"({number}, 'old')" for number in range(300))
        server.query(f"INSERT INTO {name}.added VALUES {values}")
        server.query(f"UPDATE {name}.added SET note = 'new' WHERE id < 100")
        added.start()
        for _ in range(2):
            added.step()
        server.query(f"DELETE FROM {name}.added WHERE id % 3 = 0")
        held = dict(server.query(f"SELECT id, note FROM {name}.added"))

        def follows() -> bool:
            added.step()
            every.step()
            counts = Counter(row["_op"] for row in every.rows if row["table"] == "added" and row["_op"] != "Q")
            return fold(added.rows) == held and counts == {"I": 300, "U": 100, "D": 100}

        until(follows)


def test_a_bounded_read_of_the_table(shop: Shop) -> None:
    shop.stopping.set()
    shop.writer.join()
    source = CanalSource({name: str(value) for name, value in shop.options(mode="snapshot").items()})
    reader = source.reader(source.schema())
    partitions = reader.partitions()
    rows = rows_of(reader, partitions, source.schema())
    assert len(partitions) > 3
    assert {row["_op"] for row in rows} == {"r"}
    assert sorted((row["id"], row["note"]) for row in rows) == sorted(shop.rows().items())
    shop.server.query(f"DELETE FROM {shop.name}.orders")
    assert rows_of(reader, reader.partitions(), source.schema()) == []


@pytest.mark.parametrize(
    "more",
    [
        {"snapshot": "initial", "startingPosition": "earliest"},
        {"snapshot": "initial", "path": "/binlogs"},
        {"mode": "snapshot", "tables": "shop[.].*"},
        {"mode": "snapshot", "instance": "shop", "tables": "a[.]b"},
        {"snapshot": "consistent"},
        {"snapshotDir": "/shared"},
    ],
)
def test_a_snapshot_of_what_has_none_is_refused(more: dict[str, str]) -> None:
    server = {} if {"path", "instance"} & more.keys() else {"host": "h", "user": "u", "password": "p"}
    table = {} if "tables" in more else {"table": "a.b"}
    with pytest.raises(ConfigError):
        parse_options({**server, **table, **more})


def test_who_may_not_read_the_log_is_told_before_the_snapshot(shop: Shop) -> None:
    user, grants = f"reads_{shop.name}", "SELECT, REPLICATION CLIENT, LOCK TABLES, RELOAD"
    if shop.server.kind == "mariadb":
        grants = "SELECT, BINLOG MONITOR, LOCK TABLES, RELOAD"
    shop.server.query(f"CREATE USER '{user}'@'%' IDENTIFIED BY 'no replica'")
    shop.server.query(f"GRANT {grants} ON *.* TO '{user}'@'%'")
    try:
        with (
            Engine(shop.options(snapshot="initial", user=user, password="no replica", getServerPublicKey="true")) as engine,
            pytest.raises(AuthenticationError, match="REPLICATION SLAVE"),
        ):
            engine.start()
    finally:
        shop.server.query(f"DROP USER '{user}'@'%'")
