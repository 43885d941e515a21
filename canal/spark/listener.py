"""Spark's streaming queries on a canal source, as a listener of Spark sees them: numbers for people and for Prometheus.

Never asks a server: what is known is what queries tell when a batch is done, and every ten seconds while nothing comes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import attrs
from pyspark.sql.streaming.listener import StreamingQueryListener

_PHASES: Final = {"init": "start", "snap": "snapshot", "bin": "changes"}


@attrs.frozen(kw_only=True)
class QueryStatus:
    """One query since this listener has seen it."""

    query: str
    """Its name, or else its id."""

    is_active: bool = True
    error: str = ""
    """What it ended with; the whole text of Spark."""

    failures: int = 0
    """How often it has ended with an error: ``supervise`` starts the same query again."""

    phase: str = "start"
    """``start``, ``snapshot`` or ``changes``."""

    batches: int = 0
    rows: int = 0
    """Of the batches that Spark has reported: of one in which a query is stopped or dies it reports nothing."""

    batch_seconds: float = 0.0
    """How long the last batch took."""

    snapshot_rows: int | None = None
    """Of a snapshot, about, by the server's estimate."""

    snapshot_rows_done: int | None = None
    journal: str = ""
    offset: int = 0
    """Where the last batch ended."""

    lag_seconds: float | None = None
    """Age of the last batch's end, by the clocks of server and driver, or how far the query's process is behind its source,
    whichever is more; 0 when nothing that was received is missing; None: not known yet."""


class QueryListener(StreamingQueryListener):
    """``spark.streams.addListener(QueryListener())``: follows all queries of the session with one canal source.

    It is a collector for ``prometheus_client`` too: ``REGISTRY.register(listener)``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, QueryStatus] = {}

    def statuses(self) -> list[QueryStatus]:
        """Of every query that has had a batch, in the order of their first ones."""
        with self._lock:
            return list(self._found.values())

    # -- what Spark calls ------------------------------------------------------------------------------------------------

    def onQueryStarted(self, event: Any) -> None:
        with self._lock:
            if (old := self._found.get(str(event.id))) is not None:
                self._found[str(event.id)] = attrs.evolve(old, is_active=True, error="")

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        offsets = [(_dict(source.endOffset), _dict(source.latestOffset)) for source in progress.sources]
        ours = [(end, newest) for end, newest in offsets if end.get("ph") in _PHASES]
        if len(ours) != 1:
            return
        with self._lock:
            key = str(progress.id)
            old = self._found.get(key) or QueryStatus(query=progress.name or key)
            self._found[key] = attrs.evolve(
                old,
                is_active=True,
                batches=old.batches + 1,
                rows=old.rows + (progress.numInputRows or 0),
                batch_seconds=(progress.batchDuration or 0) / 1000,
                **_positions(*ours[0]),
            )

    def onQueryIdle(self, event: Any) -> None:
        """All that was received is done."""
        with self._lock:
            if (old := self._found.get(str(event.id))) is not None and old.lag_seconds is not None:
                self._found[str(event.id)] = attrs.evolve(old, lag_seconds=0.0)

    def onQueryTerminated(self, event: Any) -> None:
        with self._lock:
            if (old := self._found.get(str(event.id))) is not None:
                error = event.exception or ""
                failures = old.failures + bool(error)
                self._found[str(event.id)] = attrs.evolve(old, is_active=False, error=error, failures=failures)

    # -- what prometheus_client calls ------------------------------------------------------------------------------------

    def describe(self) -> Iterator[Any]:
        """The names, so that a registry notices when they are there already."""
        return self._families([])

    def collect(self) -> Iterator[Any]:
        return self._families(self.statuses())

    @staticmethod
    def _families(statuses: list[QueryStatus]) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, is_count, text in _METRICS:
            family = (CounterMetricFamily if is_count else GaugeMetricFamily)(f"canal_query_{name}", text, labels=["query"])
            for status in statuses:
                value = getattr(status, name)
                if value is not None:
                    family.add_metric([status.query], float(value))
            yield family


_METRICS: Final = (
    ("is_active", False, "1 while the query runs"),
    ("failures", True, "How often the query has ended with an error"),
    ("batches", True, "Batches that are done"),
    ("rows", True, "Rows of these batches"),
    ("batch_seconds", False, "How long the last batch took"),
    ("lag_seconds", False, "Age of the last batch's end; 0 when nothing is missing"),
    ("snapshot_rows", False, "Rows of the table that a snapshot reads, about"),
    ("snapshot_rows_done", False, "Those of them that are read"),
)


def _dict(text: Any) -> dict[str, Any]:
    """An offset as Spark shows it; nothing where it is none of ours."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _positions(end: dict[str, Any], newest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"phase": _PHASES[end["ph"]]}
    if end["ph"] == "snap":
        return {**found, "snapshot_rows": newest.get("rows"), "snapshot_rows_done": newest.get("rows_done")}
    if end["ph"] == "bin":
        position, last = end["position"], newest.get("position")
        journal, offset = position.get("journal", ""), position.get("offset", 0)
        found |= {"journal": journal, "offset": offset, "lag_seconds": None}
        if last is not None:  # Spark before 4.2 does not tell it
            is_all = (journal, offset) == (last.get("journal", ""), last.get("offset", 0))
            age = 0.0 if is_all else _age(position.get("timestamp"))
            found["lag_seconds"] = max(age, newest.get("lag_seconds") or 0.0)
    return found


def _age(timestamp: int | None) -> float:
    return max(0.0, time.time() - timestamp / 1000) if timestamp else 0.0
