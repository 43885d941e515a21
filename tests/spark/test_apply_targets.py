"""Each target against a dict: histories of any kind, delivered again from anywhere, with crashes around the commit."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from canal.errors import TargetConflictError, TargetSchemaError
from canal.spark import apply_changes
from canal.spark.targets import DeltaTarget, IcebergTarget, MySQLTarget, ParquetTarget
from tests.spark.histories import KEYS, FaultyTarget, History, change, content, deliveries, histories, table

_numbers = itertools.count()


class Lake:
    """Makes targets, and reads them by another way than they are written."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self) -> Any:
        raise NotImplementedError

    def rows(self, target: Any) -> pa.Table | None:
        raise NotImplementedError


class Delta(Lake):
    def make(self) -> DeltaTarget:
        return DeltaTarget(str(self.root / f"delta{next(_numbers)}"))

    def rows(self, target: DeltaTarget) -> pa.Table | None:
        from deltalake import DeltaTable

        return DeltaTable(target.path).to_pyarrow_table() if DeltaTable.is_deltatable(target.path) else None


class Iceberg(Lake):
    def make(self) -> IcebergTarget:
        properties = {"type": "sql", "uri": f"sqlite:///{self.root}/catalog.db", "warehouse": f"file://{self.root}/lake"}
        return IcebergTarget(f"shop.orders{next(_numbers)}", "test", properties)

    def rows(self, target: IcebergTarget) -> pa.Table | None:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("test", **target.properties)
        try:
            return catalog.load_table(target.table).scan().to_arrow() if catalog.table_exists(target.table) else None
        finally:
            catalog.close()


@pytest.fixture(params=[Delta, Iceberg])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made: Lake = request.param(tmp_path)
    return made


def follow(data: st.DataObject, history: History, lake: Any, rows: Callable[[], dict[Any, Any]], target: Any) -> None:
    """Deliver a history as it may come, and compare after each batch."""
    done = 0
    faulty = FaultyTarget(target)
    for run in data.draw(deliveries(history, runs=3)):
        fn = apply_changes(faulty, KEYS)
        for first, end in run:
            first = min(first, done)  # a run that crashed before its commit has done less
            faulty.when = data.draw(st.sampled_from(["", "", "before", "after"]))
            crash = faulty.when
            try:
                fn(table(history.changes[first:end]), 0)
            except OSError:
                if crash == "after":
                    done = max(done, end)
                break  # the next run begins anew, from wherever
            done = max(done, end)
            assert rows() == history.states[done]
    fn = apply_changes(target, KEYS)
    fn(table(history.changes), 0)
    assert rows() == history.states[-1]


@given(st.data())
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_the_lake_table_is_the_table_through_crashes_and_replays(lake: Lake, data: st.DataObject) -> None:
    history = data.draw(histories())
    target = pickle.loads(pickle.dumps(lake.make()))

    follow(data, history, lake, lambda: content(lake.rows(target)), target)
