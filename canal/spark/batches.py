"""Batches of an Instance as DataFrames, without a streaming query.

Never reads a message itself: that is done by ``canal.pipes.batches``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from canal.instance.instance import CLIENT_ID, Instance
from canal.model import Entry
from canal.pipes.batches import Batch, each_batch
from canal.spark.frames import check_version, to_frame

_THRESHOLD: Final = "spark.sql.execution.arrow.localRelationThreshold"


def foreach_batch(
    spark: Any,
    instance: Instance,
    fn: Callable[[Any, Batch], None],
    *,
    client_id: int = CLIENT_ID,
    batch_size: int = 20_000,
    timeout: float = 1.0,
    linger: float = 0.05,
    keep: bool = False,
    statements: Callable[[Entry], None] | None = None,
    stop: threading.Event | None = None,
) -> None:
    r"""Call ``fn(df, batch)`` with the changes of each table, for ever: get, call, ack; on an exception roll back and raise.

    The quickest way from the log to a DataFrame, with no query and no checkpoint: at least once by itself, exactly once with
    ``apply_changes``. A message with several tables makes a call for each, in the order of their first rows, and further ones
    behind a statement, a change of a table's columns, or one of the server; it is acked when all have returned. The columns
    are those of the streaming source's one-table form. Returns when ``stop`` is set (after the message in hand), or when the
    log has ended.

    With ``instance.ha`` the same loop runs in every process and waits while another is active. When a turn ends during a
    batch, the batch is not acked and the next process gets it again: the target's own transaction must fence it, as
    ``apply_changes`` does.

    Args:
        spark: the session, of Spark 3.5 or later; None: ``fn`` gets a ``pyarrow.Table`` instead of a DataFrame, and no JVM
            is needed.
        instance: started, with the client subscribed.
        batch_size: row changes of a message, at most (a larger transaction comes in pieces).
        timeout: seconds to wait for changes before ``stop`` is looked at again.
        linger: seconds to wait for more changes once there is one.
        keep: what has changed of a table's columns since its first batch is in ``_extra``, ``_absent`` and ``_exact``, so
            that all batches of a table have the same columns.
        statements: called with each statement (DDL and what else comes as one), between the rows before and behind it, and
            responsible for all that it does to rows. None: what of that no row of the log tells (TRUNCATE, another table of
            the name, a renamed column, a change logged as a statement …) is told by a call of ``fn`` without rows whose batch
            has a ``loss``, and ends the loop unless that is settled. A statement about a whole database, such as DROP
            DATABASE, comes only where the Instance's filter passes its name with a dot (``shop\.``).

    Raises:
        ConfigError: the session is of an older Spark.
        StateError: something else reads the client, or the instance was stopped.
        UnloggedChangeError: rows changed without any in the log. It comes again until that is settled: with ``apply_changes``
            by a snapshot, or by its ``acknowledge``.
        CanalError: what stopped the parser.
        Exception: what ``fn`` raised; the batch was rolled back, and the next call of ``foreach_batch`` begins with it.
    """
    framed = None if spark is None else partial(to_frame, spark)
    with _quick(spark):
        each_batch(
            instance,
            fn,
            framed=framed,
            client_id=client_id,
            batch_size=batch_size,
            timeout=timeout,
            linger=linger,
            keep=keep,
            statements=statements,
            stop=stop,
        )


@contextlib.contextmanager
def _quick(spark: Any) -> Iterator[None]:
    """Arrow tables stay Arrow on their way into a DataFrame."""
    if spark is None:
        yield
        return
    check_version(spark)
    before = spark.conf.get(_THRESHOLD)
    spark.conf.set(_THRESHOLD, "0")
    try:
        yield
    finally:
        spark.conf.set(_THRESHOLD, before)
