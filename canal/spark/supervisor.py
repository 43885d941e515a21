"""Start a streaming query again when it has failed: Spark does not.

Never reads a checkpoint, and never starts a query over an error that would only come again.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Final

import canal.errors
from canal.alarm import Alarm, AlarmDesk, AlarmKind, log_alarm
from canal.errors import CanalError, ConfigError
from canal.parse.backoff import Backoff

log = logging.getLogger("canal.spark")

#: Errors that come again until somebody acts. A restart may mend others: a lost connection, a killed process, a conflict.
FATAL: Final = frozenset(
    {
        "ConfigError",
        "UsageError",
        "StateError",
        "UnknownDestinationError",
        "NotSubscribedError",
        "BatchError",
        "AuthenticationError",
        "PositionLostError",
        "SchemaError",
        "UnloggedChangeError",
        "DecodeError",
        "TruncatedError",
        "ChecksumError",
        "UnsupportedError",
        "MissingTableMapError",
        "HookError",
        "CursorError",
        "HistoryError",
        "TargetSchemaError",
        "UnfitChangeError",
        "StreamMismatchError",
    }
)

_POLL: Final = 1.0
#: Seconds that the next query of this process waits for one that starts: Spark gives the Python of each 10 s to come up, and many
#: at once take longer.
_START: Final = 30.0
_starting = threading.Lock()


def supervise(
    start_query: Callable[[], Any],
    *,
    name: str = "",
    backoff: tuple[float, float] = (1.0, 60.0),
    steady: float = 300.0,
    most: int | None = None,
    restart_on: Collection[str] = (),
    alarm: Alarm = log_alarm,
    stop: threading.Event | None = None,
    stop_timeout: float = 30.0,
) -> None:
    """Run a streaming query for ever: start it, wait for its end, and start it again after a failure.

    Returns when the query ended by itself without an error (somebody stopped it, or its trigger is ``availableNow``), or
    when ``stop`` is set, in which case the query is stopped first.

    Of several calls in threads of this process one starts its query at a time, and the next when that has made progress or
    ended, or after 30 s.

    Which error it was is read from the query's message, where the class of what a Python source or sink raised stands as
    text. An unknown error is worth a restart, as most are of the network or of a process that was killed.

    Args:
        start_query: starts the query and returns it; called again for each restart, so that it makes a new reader, and
            with it sees a changed schema. What it raises counts as a failure of the query.
        name: for alarms and the log.
        backoff: seconds before the first restart, and at most; they double with each one in between.
        steady: after so many seconds without a failure the waits, and the count of failures, begin anew.
        most: failures in a row after which it gives up; None: never.
        restart_on: names of error classes that are not to end it, such as "SchemaError", which is what a change of the
            table's columns raises: a new reader takes the new columns.
        alarm: told ``(name, message)`` of each failure, when it gives up, and when it is over.
        stop: set it to end this call.
        stop_timeout: seconds that the query has to end when it is stopped.

    Raises:
        Exception: what the query failed with, where a restart cannot mend it, or after ``most`` failures. When the JVM of
            the session has ended, nothing in this process can be started again: let the process end and be started anew.
    """
    unknown = [one for one in restart_on if not _is_error(one)]
    if unknown:
        raise ConfigError(f"restart_on names {', '.join(unknown)}, which no error of this library is called")
    desk = AlarmDesk(alarm)
    desk.reset(name)
    stop = stop or threading.Event()
    waits = Backoff(*backoff)
    failures = 0
    while not stop.is_set():
        started = time.monotonic()
        try:
            with _starting:
                query = start_query()
                _await_start(query, stop)
            if failures:
                desk.over(AlarmKind.CONNECTION, "the query runs again")
            _wait(query, stop, stop_timeout)
            return
        except Exception as error:
            lasted = time.monotonic() - started
            failures = 1 if lasted >= steady else failures + 1
            found = error_names(error)
            fatal = sorted(found & FATAL - set(restart_on)) if not found & set(restart_on) else []
            without_jvm = _has_lost_jvm()
            if fatal or without_jvm or most is not None and failures >= most:
                reason = f"{', '.join(fatal)} cannot be mended by a restart" if fatal else f"{failures} failures in a row"
                reason = "the session's JVM has ended, this process must be started anew" if without_jvm else reason
                desk.announce(AlarmKind.STOPPED, f"the query is not started again, {reason}: {_first_line(error)}")
                raise
            wait = waits.lost(has_delivered=lasted >= steady, seconds=lasted, by_source=False)
            log.warning("[%s] the query failed; failures %d, started again in %.1f s", name, failures, wait, exc_info=error)
            desk.tell(AlarmKind.CONNECTION, f"the query failed and is started again: {_first_line(error)}")
            stop.wait(wait)


def _await_start(query: Any, stop: threading.Event) -> None:
    """Until the query has made progress or ended."""
    deadline = time.monotonic() + _START
    while getattr(query, "isActive", False) and query.lastProgress is None and time.monotonic() < deadline:
        if stop.wait(0.1):
            return


def _wait(query: Any, stop: threading.Event, timeout: float) -> None:
    """Until the query ends, or is to be stopped."""
    while not stop.is_set():
        if query.awaitTermination(_POLL):
            return
    query.stop()
    query.awaitTermination(timeout)


def _has_lost_jvm() -> bool:
    """Whether the JVM that this process started for its sessions has ended."""
    pyspark = sys.modules.get("pyspark")
    process = getattr(getattr(getattr(pyspark, "SparkContext", None), "_gateway", None), "proc", None)
    return process is not None and process.poll() is not None


def error_names(error: BaseException) -> set[str]:
    """The classes of this library's errors that an exception is, was caused by, or quotes in the text of its message."""
    names: set[str] = set()
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, CanalError):
            names.add(type(seen).__name__)
        names.update(re.findall(r"\bcanal\.errors\.([A-Za-z]+Error)\b", str(seen)))
        seen = seen.__cause__ or seen.__context__
    return {one for one in names if _is_error(one)}


def _is_error(name: str) -> bool:
    return name in canal.errors.__all__ and name != "LostReason"


def _first_line(error: BaseException) -> str:
    """The line of the message that names the cause: for an error of a Python source or sink the last of its traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if line.startswith("canal.errors.")), lines[0])[:500]
