"""Batches of an Instance as DataFrames, without a streaming query.

Never reads a message: ``canal.pipes.batches`` does.
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
    r"""Call ``fn(df, batch)`` with the changes of each table: get, call, ack, forever. Roll back and raise on an exception.

    This is the fastest way from the log to a DataFrame, without a query and a checkpoint: at least once, or exactly once with
    ``apply_changes``. A message with several tables causes one call per table, in the order of their first rows, and more calls
    after a statement, a change of columns, or a change of the server. The message is acked after all calls. Columns are as
    in the streaming source's one-table form. Return when ``stop`` is set (after the current message), or at the end of the log.

    With ``instance.ha`` each process runs the same loop, and waits while another process is active. If an epoch ends during a
    batch, the batch is not acked, and the next process gets it. The target's transaction must fence the late write, as
    ``apply_changes`` does.

    Args:
        spark: the session, Spark 3.5 or later. None: ``fn`` gets a ``pyarrow.Table``, and no JVM is needed.
        instance: a started Instance, with the client subscribed.
        batch_size: maximum row changes of a message. A larger transaction comes in pieces.
        timeout: seconds to wait for changes before ``stop`` is checked.
        linger: seconds to wait for more changes after the first change.
        keep: keep the columns of a table's first batch in all batches. Changed columns are in ``_extra``, ``_absent`` and
            ``_exact``.
        statements: called with each statement (such as DDL) between the rows before and after it. It must handle all effects
            on rows. None: for an effect without rows in the log (TRUNCATE, a replaced table, a renamed column, a change
            logged as a statement …) ``fn`` is called without rows, and ``batch.loss`` is set. The loop ends unless ``fn``
            settles the loss. The loop gets a statement about a whole database, such as DROP DATABASE, only if the Instance's
            filter passes the name with a dot (``shop\.``).

    Raises:
        ConfigError: the session is older than Spark 3.5.
        StateError: another reader uses the client, or the instance was stopped.
        UnloggedChangeError: rows changed without rows in the log. The error repeats until it is settled: with
            ``apply_changes`` by a snapshot, or by its ``acknowledge``.
        CanalError: the parser has stopped with this error.
        Exception: the error of ``fn``. The batch was rolled back, and the next call of ``foreach_batch`` begins with it.
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
    """Keep Arrow tables in Arrow when Spark makes DataFrames of them."""
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
