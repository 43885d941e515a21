"""What a listener makes of the events that Spark gives: those of a real run are in test_live.py."""

from __future__ import annotations

import json
import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from canal.spark.listener import QueryListener

prometheus = pytest.importorskip("prometheus_client")

ID = uuid.UUID(int=7)
SNAPSHOT = {"v": 1, "ph": "snap", "ep": 0, "done": 1, "plan": {}}


def offset_at(offset: int, timestamp: int = 0, **more: Any) -> dict[str, Any]:
    return {"v": 1, "ph": "bin", "ep": 0, "position": {"journal": "b.000001", "offset": offset, "timestamp": timestamp}, **more}


def progress(*sources: tuple[Any, Any], rows: int = 3) -> Any:
    made = [SimpleNamespace(endOffset=json.dumps(end), latestOffset=json.dumps(newest)) for end, newest in sources]
    found = SimpleNamespace(id=ID, name="orders", sources=made, numInputRows=rows, batchDuration=1500)
    return SimpleNamespace(progress=found)


def sample(registry: Any, name: str) -> float | None:
    value: float | None = registry.get_sample_value(f"canal_query_{name}", {"query": "orders"})
    return value


def test_a_query_is_followed_from_its_snapshot_to_its_end() -> None:
    listener, registry, now = QueryListener(), prometheus.CollectorRegistry(), int(time.time() * 1000)
    registry.register(listener)
    assert listener.statuses() == []
    listener.onQueryProgress(progress((SNAPSHOT, {**SNAPSHOT, "rows": 100, "rows_done": 40})))
    assert sample(registry, "snapshot_rows_done") == 40
    assert sample(registry, "lag_seconds") is None

    listener.onQueryProgress(progress((offset_at(9, now - 50_000), offset_at(12, now, lag_seconds=2.0))))
    [found] = listener.statuses()
    assert (found.phase, found.batches, found.rows, found.journal, found.offset) == ("changes", 2, 6, "b.000001", 9)
    assert found.batch_seconds == 1.5
    assert found.lag_seconds is not None
    assert found.lag_seconds >= 50
    listener.onQueryProgress(progress((offset_at(12, now - 50_000), offset_at(12, now - 50_000, lag_seconds=2.0))))
    assert sample(registry, "lag_seconds") == 2.0
    listener.onQueryIdle(SimpleNamespace(id=ID))
    assert sample(registry, "lag_seconds") == 0
    listener.onQueryProgress(progress((offset_at(13), None), rows=0))  # Spark 4.1
    assert sample(registry, "lag_seconds") is None

    listener.onQueryTerminated(SimpleNamespace(id=ID, exception="canal.errors.SchemaError: …"))
    assert (sample(registry, "is_active"), sample(registry, "failures_total"), sample(registry, "rows_total")) == (0, 1, 9)
    listener.onQueryStarted(SimpleNamespace(id=ID))
    [found] = listener.statuses()
    assert (found.is_active, found.error, found.failures) == (True, "", 1)


@pytest.mark.parametrize("sources", [(), (({"kafka": {"0": 7}}, None),), ((None, None),), ((offset_at(1), offset_at(1)),) * 2])
def test_other_queries_are_left_alone(sources: Any) -> None:
    listener = QueryListener()
    listener.onQueryProgress(progress(*sources))
    for event in (listener.onQueryStarted, listener.onQueryIdle, listener.onQueryTerminated):
        event(SimpleNamespace(id=ID, exception=None))
    assert listener.statuses() == []


def test_a_registry_takes_one_listener() -> None:
    registry = prometheus.CollectorRegistry()
    registry.register(QueryListener())
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(QueryListener())
