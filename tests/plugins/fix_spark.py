"""Spark for tests: one session for each test module that asks, and streaming queries that are stopped whatever happens."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with two slots and four attempts at a task; workers are in a time zone that is neither ours nor UTC."""
    pytest.importorskip("pyspark")
    pytest.importorskip("pyarrow")
    from pyspark.sql import SparkSession

    directory = tmp_path_factory.mktemp("spark")
    before = dict(os.environ)
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
    """Wait until a condition holds; fail after a minute, or when a query that is given has failed."""

    def wait(condition: Callable[[], bool], query: Any = None, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if query is not None and query.exception() is not None:
                raise query.exception()
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.1)

    return wait
