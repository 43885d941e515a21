"""Failed queries are started again, but not over an error that would only come again."""

from __future__ import annotations

import os
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from canal.errors import ConfigError, SchemaError, TargetConflictError
from canal.spark import configure, supervise
from canal.spark.supervisor import FATAL, error_names


class QueryError(Exception):
    """As Spark's StreamingQueryException: all that is known stands in its text."""


class Query:
    def __init__(self, error: Exception | None = None, ends: bool = True) -> None:
        self.error, self.ends, self.stopped = error, ends, 0

    def awaitTermination(self, timeout: float) -> bool:
        if self.error is not None:
            raise self.error
        return self.ends

    def stop(self) -> None:
        self.stopped += 1
        self.ends = True


def traceback_of(name: str) -> QueryError:
    return QueryError(
        f"[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):\n"
        f'  File "source.py", line 7, in latestOffset\n    raise {name}\ncanal.errors.{name}: what and where. What to do\n'
    )


def run(*queries: Query | Exception, **options: Any) -> tuple[int, list[str]]:
    """Run queries one after the other: how many were started, and the alarms."""
    left, told = list(queries), []

    def start() -> Query:
        query = left.pop(0)
        if isinstance(query, Exception):
            raise query
        return query

    def alarm(name: str, text: str) -> None:
        told.append(f"{name}: {text}")

    error = None
    try:
        supervise(start, name="orders", backoff=(0.001, 0.002), alarm=alarm, **options)
    except Exception as raised:
        error = raised
    run.error = error  # type: ignore[attr-defined]
    return len(queries) - len(left), told


def test_a_failed_query_is_started_again_and_it_is_told() -> None:
    lost = traceback_of("ConnectionLostError")

    count, told = run(Query(lost), Query(QueryError("executor lost")), OSError("cannot start"), Query())

    assert (count, run.error) == (4, None)  # type: ignore[attr-defined]
    assert "orders: the query failed and is started again: canal.errors.ConnectionLostError: what and where. What to do" in told
    assert told[-1].startswith("orders: over: the query runs again")


@pytest.mark.parametrize("name", sorted(FATAL))
def test_what_a_restart_cannot_mend_ends_it(name: str) -> None:
    error = traceback_of(name)

    count, told = run(Query(error), Query())

    assert (count, run.error) == (1, error)  # type: ignore[attr-defined]
    assert f"{name} cannot be mended by a restart" in told[-1]


def test_a_change_of_columns_may_be_left_to_a_new_reader() -> None:
    count, _ = run(Query(traceback_of("SchemaError")), Query(), restart_on=["SchemaError"])

    assert count == 2


def test_it_gives_up_after_so_many_failures_in_a_row() -> None:
    count, told = run(*(Query(QueryError("lost")) for _ in range(5)), most=3)

    assert count == 3
    assert isinstance(run.error, QueryError)  # type: ignore[attr-defined]
    assert "3 failures in a row" in told[-1]


@pytest.mark.parametrize(("status", "started"), [(None, 2), (-9, 1)])
def test_without_its_jvm_nothing_is_started_again(monkeypatch: pytest.MonkeyPatch, status: int | None, started: int) -> None:
    import pyspark

    jvm = SimpleNamespace(proc=SimpleNamespace(poll=lambda: status))
    monkeypatch.setattr(pyspark.SparkContext, "_gateway", jvm)
    lost = ConnectionRefusedError("Py4J has no connection")

    count, told = run(lost, Query())

    assert count == started
    assert (run.error is lost) == (status is not None)  # type: ignore[attr-defined]
    assert ("this process must be started anew" in told[-1]) == (status is not None)


def test_a_stop_stops_the_query() -> None:
    stop, query = threading.Event(), Query(ends=False)
    awaited = query.awaitTermination

    def await_and_stop(timeout: float) -> bool:
        stop.set()
        return awaited(timeout)

    query.awaitTermination = await_and_stop  # type: ignore[method-assign]
    supervise(lambda: query, stop=stop)

    assert query.stopped == 1


def test_an_error_is_found_behind_others_and_in_texts() -> None:
    caused = QueryError("a query failed")
    caused.__cause__ = SchemaError("columns")

    assert error_names(caused) == {"SchemaError"}
    assert error_names(traceback_of("TargetConflictError")) == {"TargetConflictError"}
    assert error_names(QueryError("canal.errors.NoSuchError: x")) == set()
    assert error_names(TargetConflictError("x")) == {"TargetConflictError"}


def test_a_misspelt_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="SchemeError"):
        supervise(Query, restart_on=["SchemeError"])


def test_configure_sets_what_is_needed_and_lets_others_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("TZ", "Europe/Berlin")

    class Builder(dict):  # type: ignore[type-arg]
        def config(self, name: str, value: Any) -> Builder:
            self[name] = value
            return self

    made = configure(Builder(), spark_sql_shuffle_partitions=4, spark_sql_session_timeZone="Asia/Tokyo")

    assert made["spark.sql.execution.arrow.localRelationThreshold"] == "0"
    assert made["spark.sql.python.filterPushdown.enabled"] == "true"
    assert made["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert made["spark.sql.shuffle.partitions"] == 4
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["TZ"] == "Europe/Berlin"


def test_queries_of_one_process_start_one_after_another() -> None:
    """The next when the one before has made progress: Spark gives the Python of each ten seconds."""
    events: list[str] = []
    makes_progress = [threading.Event() for _ in range(3)]

    class Starting(Query):
        isActive = True

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        @property
        def lastProgress(self) -> dict[str, int] | None:
            if not makes_progress[self.number].is_set():
                events.append(f"wait {self.number}")
                makes_progress[self.number].set()
                return None
            events.append(f"goes {self.number}")
            return {}

    def start(number: int) -> Query:
        events.append(f"start {number}")
        return Starting(number)

    threads = [threading.Thread(target=supervise, args=(lambda number=number: start(number),)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    starts = [events[at : at + 3] for at in range(0, len(events), 3)]
    assert sorted(starts) == [[f"{word} {number}" for word in ("start", "wait", "goes")] for number in range(3)]
