"""Spark for tests: one JVM for the whole run, a session for each test, and queries that are stopped whatever happens."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKER_ZONE = "Asia/Kolkata"
#: A JVM that lives for a few minutes at most, and mostly starts.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def java_home() -> str | None:
    """The Java that tests/servers/setup.sh brought; None where the machine has one of its own."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return None
    found = sorted(ROOT.glob(".servers/zookeeper/usr/lib/jvm/java-17-*"))
    if found:
        return str(found[0])
    if os.environ.get("CANAL_TEST_SERVERS") == "skip":
        pytest.skip("NO JAVA: CANAL_TEST_SERVERS=skip")
    pytest.fail("Spark needs Java 17: run tests/servers/setup.sh (CANAL_TEST_SERVERS=skip leaves these tests out)", pytrace=False)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:  # the first one starts the JVM, and each several processes
                item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session in the one JVM of the run: two slots, four attempts at a task; nothing is compiled for a few rows."""
    from pyspark.sql import SparkSession

    directory = tmp_path_factory.mktemp("spark")
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "TZ": WORKER_ZONE,
        "TMPDIR": str(directory),
        "JAVA_HOME": java_home(),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }
    builder = SparkSession.builder.master("local[2,4]").appName("canal tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "America/Caracas",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch:  # the environment is for the JVM and its children; ours is set already
        for name, value in environment.items():
            if value is not None:
                patch.setenv(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(120)
        SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture
def spark(spark_jvm: Any) -> Iterator[Any]:
    """A session of the test's own, with settings, views and sources of its own; its queries end with it.

    The JVM and its workers are those of all tests. Workers are in a time zone that is neither ours nor UTC.
    """
    session = spark_jvm.newSession()
    yield session
    for query in session.streams.active:
        query.stop()


def under_way(start: Callable[[], Any]) -> Any:
    """The query that ``start`` starts, with its first batch done or at its end.

    Spark gives a Python process of its own 10 s to start, which on a busy machine may be too few: then it is tried again.
    """
    for _ in range(5):
        query = start()
        while query.isActive and query.lastProgress is None:
            time.sleep(0.1)
        if query.isActive or "failed to connect back" not in str(query.exception()):
            break
    return query


def drain(start: Callable[[], Any]) -> Any:
    """Run a query with AvailableNow until it has taken what is there; returns the last run.

    One run does. Before Spark 4.2 it is one batch, which may be a smaller one that was planned before: there until one is empty.
    """
    while True:
        query = under_way(start)
        assert query.awaitTermination(200)
        if find_spec("pyspark.sql.streaming.datasource") or not query.lastProgress["numInputRows"]:
            return query


@pytest.fixture
def wait() -> Callable[..., None]:
    """Wait until a condition holds; fail after two minutes, or when a query that is given has failed."""

    def wait(condition: Callable[[], bool], query: Any = None, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if query is not None and query.exception() is not None:
                raise query.exception()
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.1)

    return wait
