"""The source in Spark, against real servers: what arrives in a sink is what the server committed, whatever is killed."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from canal.spark import QueryListener
from canal.spark.options import parse_options
from canal.spark.stream.runner import is_spool_visible, master_of
from canal.testing import FakeBinlog
from canal.testing.servers import ThrowawayServer
from tests.support.streams import Load, Stream, processes, runners

_names = itertools.count(1)


def workers() -> list[int]:
    """The processes that read partitions: Spark forks them from a daemon, whose end it would not survive well."""
    found = processes("pyspark.worker")
    return [pid for pid, parent in found.items() if parent in found]


@pytest.fixture
def stream(spark: Any, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stream]:
    server: ThrowawayServer = request.getfixturevalue(f"{getattr(request, 'param', 'mariadb')}_server")
    name = f"spark_{os.getpid()}_{next(_names)}"
    server.query(f"CREATE DATABASE {name}")
    server.query(f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, n INT, note VARCHAR(200))")
    made = Stream(spark, server, tmp_path, f"{name}.orders")
    yield made
    for query in made.queries:
        query.stop()
    server.query(f"DROP DATABASE {name}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("stream", "victims"),
    [
        ("mariadb", ("runner", "worker", "stop")),
        pytest.param("mysql", ("runner",), marks=[pytest.mark.every_spark, pytest.mark.nightly]),
    ],
    indirect=["stream"],
)
def test_nothing_is_lost_or_doubled_whatever_is_killed(
    stream: Stream, victims: tuple[str, ...], wait: Callable[..., None]
) -> None:
    listener = QueryListener()
    stream.spark.streams.addListener(listener)
    with Load(stream.server, stream.table) as load:
        frame = stream.frame(startingPosition="earliest")
        for victim in victims:
            count = len(stream.rows())
            query = stream.start(frame, processingTime="0 seconds")
            wait(lambda: len(stream.rows()) > count, query)  # noqa: B023
            if victim == "runner":
                wait(lambda: len(runners()) == 1)  # one that was too late for Spark ends by itself
                (pid,) = runners()
                os.kill(pid, signal.SIGKILL)
                wait(lambda: not query.isActive)  # noqa: B023
                assert query.exception() is not None
            elif victim == "worker":
                for pid in workers():
                    with contextlib.suppress(ProcessLookupError):  # one that was idle has ended by itself
                        os.kill(pid, signal.SIGKILL)
                count = len(stream.rows())
                wait(lambda: len(stream.rows()) > count, query)  # noqa: B023
            query.stop()
            wait(lambda: not runners())
            if victim in ("stop", "worker"):  # Spark ends the runner by SIGTERM, which cleans up
                wait(lambda: not stream.spools())
        wait(lambda: len(load.journal) > 50)
    stream.drain(frame)

    assert stream.changes() == load.journal
    wait(lambda: not any(found.is_active for found in listener.statuses()))
    stream.spark.streams.removeListener(listener)
    [found] = listener.statuses()  # of one checkpoint all runs are one query
    assert found.failures >= 1
    assert found.rows > len(load.journal) // 2  # Spark reports nothing of a batch in which a query is stopped
    assert found.phase == "changes"
    assert len({(row["_txn"], row["_ord"]) for row in stream.rows()}) == len(load.journal)
    wait(lambda: not stream.spools())  # a query is over when its runner has been told so


@pytest.mark.every_spark
def test_available_now_takes_what_is_there_and_ends(stream: Stream) -> None:
    frame = stream.frame(startingPosition="earliest", maxRowsPerBatch=100)
    for batch in range(2):
        ids = f"{stream.table.partition('.')[0]}.seq_{1 + 250 * batch}_to_{250 * batch + 250}"  # MariaDB's sequence engine
        stream.server.query(f"INSERT INTO {stream.table} SELECT seq, {batch}, 'x' FROM {ids}")
        query = stream.start(frame, availableNow=True)
        assert query.awaitTermination(200)
        assert [row["id"] for row in stream.rows()] == list(range(1, 250 * batch + 251))


def test_without_its_checkpoint_a_stream_gives_the_same_rows_again(stream: Stream) -> None:
    stream.server.query(f"INSERT INTO {stream.table} VALUES (1, 1, 'a'), (2, 2, 'b')")
    stream.server.query(f"UPDATE {stream.table} SET n = 9")
    found = []
    for _ in range(2):
        stream.drain(stream.frame(startingPosition="earliest"))
        found.append(stream.rows())
        shutil.rmtree(stream.directory / "checkpoint")
        shutil.rmtree(stream.directory / "out")
    assert found[0] == found[1]  # with the same _txn and _ord, by which a sink knows them
    assert len(found[0]) == 4


def test_a_range_by_sql_with_times_of_three_zones(stream: Stream) -> None:
    server, table = stream.server, stream.table
    server.query(f"ALTER TABLE {table} ADD at TIMESTAMP(6) NULL, ADD local DATETIME(3), ADD took TIME, ADD day DATE")
    server.query(
        f"INSERT INTO {table} VALUES (1, 1, 'é', FROM_UNIXTIME(1767323045.123456), '2026-07-08 09:10:11.123', '-100:00:01', "
        "'2024-02-29')"
    )
    listed = ", ".join(f"{name} '{value}'" for name, value in stream.options(startingPosition="earliest").items())
    stream.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW changes USING canal OPTIONS ({listed})")

    (row,) = stream.spark.sql(
        "SELECT id, note, unix_micros(at) at, local, took, day, _op, current_timestamp() > _ts recent FROM changes"
    ).collect()

    assert row.asDict() == {
        "id": 1,
        "note": "é",
        "at": 1767323045123456,
        "local": datetime(2026, 7, 8, 9, 10, 11, 123000),
        "took": -timedelta(hours=100, seconds=1),
        "day": datetime(2024, 2, 29).date(),
        "_op": "I",
        "recent": True,
    }


def test_binlog_files_of_a_directory(spark: Any, tmp_path: Path) -> None:
    fake = FakeBinlog("mysql")
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(20)")
    for number in range(6):
        orders.insert({"id": number, "note": "x"})
        if number % 2:
            middle = fake.position
            fake.rotate()
    fake.write(tmp_path / "logs")
    options = {"path": str(tmp_path / "logs"), "table": "shop.orders"}

    frame = spark.read.format("canal").options(**options).load()
    assert [row.id for row in frame.orderBy("_txn").collect()] == list(range(6))
    assert frame.rdd.getNumPartitions() == 4
    part = spark.read.format("canal").options(**options).option("endingPosition", f"{middle.journal}:{middle.offset}").load()
    assert part.count() == 6
    late = spark.read.format("canal").options(**options).option("startingPosition", f"{middle.journal}:4").load()
    assert sorted(row.id for row in late.collect()) == [4, 5]


def test_new_columns_end_the_query_with_what_to_do(stream: Stream, wait: Callable[..., None]) -> None:
    query = stream.start(stream.frame(startingPosition="earliest"))
    stream.server.query(f"INSERT INTO {stream.table} VALUES (1, 1, 'a')")
    wait(lambda: len(stream.rows()) == 1, query)
    stream.server.query(f"ALTER TABLE {stream.table} ADD more INT")
    stream.server.query(f"INSERT INTO {stream.table} VALUES (2, 2, 'b', 7)")
    wait(lambda: not query.isActive)
    assert "more is new" in str(query.exception())
    assert "load it anew" in str(query.exception())

    stream.drain(stream.frame(startingPosition="earliest"))
    assert [(row["id"], row.get("more")) for row in stream.rows()] == [(1, None), (2, 7)]


def test_the_password_is_nowhere_to_be_read(stream: Stream, wait: Callable[..., None], capfd: Any) -> None:
    secret = "sEcReT7"
    stream.server.query(f"CREATE USER 'spy{os.getpid()}'@'%' IDENTIFIED BY '{secret}'")
    stream.server.query(f"GRANT ALL ON *.* TO 'spy{os.getpid()}'@'%'")
    frame = stream.frame(user=f"spy{os.getpid()}", password=secret, getServerPublicKey="true", startingPosition="earliest")
    frame.explain(True)
    query = stream.start(frame)
    stream.server.query(f"INSERT INTO {stream.table} VALUES (1, 1, 'a')")
    wait(lambda: len(stream.rows()) == 1, query)
    query.explain(True)
    texts = [str(query.lastProgress), str(query.status), *capfd.readouterr()]
    query.stop()  # files of the checkpoint get their names while it runs
    texts += [path.read_text("utf-8", "replace") for path in (stream.directory / "checkpoint").rglob("*") if path.is_file()]
    assert "canal" in "".join(texts)
    assert not [text for text in texts if secret in text]
    with pytest.raises(Exception, match="no option") as caught:
        stream.frame(user=f"spy{os.getpid()}", password=secret, tabel="x")
    assert secret not in str(caught.value)
    stream.server.query(f"DROP USER 'spy{os.getpid()}'@'%'")


def test_files_of_the_spool_are_named_to_executors_of_this_machine(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse_options({"host": "x", "table": "a.b"})
    assert not is_spool_visible(options)  # not below a JVM
    (jvm,) = processes("org.apache.spark.deploy.SparkSubmit")
    monkeypatch.setattr("os.getppid", lambda: jvm)
    assert is_spool_visible(options)
    assert not is_spool_visible(parse_options({"host": "x", "table": "a.b", "transport": "bytes"}))


@pytest.mark.parametrize(
    ("words", "master"),
    [
        ("--master yarn job.py --env local", "yarn"),
        ("--master spark://h:7077 job.py --conf spark.master=local", "spark://h:7077"),
        ("--conf spark.master=local[2,4] --conf spark.app.name=local pyspark-shell", "local[2,4]"),
        ("--verbose --name local --master=local job.py --master yarn", "local"),
        ("--conf spark.master=local --master yarn job.py", "yarn"),
        ("--properties-file local --class a.B local:///opt/job.jar", ""),
    ],
)
def test_the_master_is_what_spark_was_started_with(words: str, master: str) -> None:
    """Not what the program's own arguments, or values of other options, look like."""
    assert master_of(["java", "-cp", "local", "org.apache.spark.deploy.SparkSubmit", *words.split()]) == master
    assert master_of(["java", "-cp", "local", *words.split()]) == ""
