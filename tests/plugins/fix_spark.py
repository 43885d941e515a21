"""Spark for tests: one session for each test module that asks, and streaming queries that are stopped whatever happens."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


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


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with two slots and four attempts at a task; workers are in a time zone that is neither ours nor UTC."""
    from pyspark.sql import SparkSession

    directory = tmp_path_factory.mktemp("spark")
    before = dict(os.environ)
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.environ["TZ"] = "Asia/Kolkata"  # of the JVM's children; ours is set already
    os.environ["TMPDIR"] = str(directory)
    session = (
        SparkSession.builder.master("local[2,4]")
        .appName("canal tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "America/Caracas")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
        .getOrCreate()
    )  # fmt: skip
    session.sparkContext.setLogLevel("ERROR")
    os.environ.clear()
    os.environ.update(before)
    yield session
    session.stop()
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:  # the next module gets a JVM of its own, with its environment
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
        SparkContext._gateway = SparkContext._jvm = None


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
