"""Spark: a streaming source on the binlog, its snapshot, and sinks that keep a table equal to MySQL's.

Never imports PySpark before something of it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal._util.lazy import lazy_names

if TYPE_CHECKING:
    from canal.pipes.batches import Batch
    from canal.pipes.copy_table import copy_table
    from canal.spark.apply import apply_changes
    from canal.spark.batches import foreach_batch
    from canal.spark.delta_spark import DeltaSparkTarget
    from canal.spark.listener import QueryListener
    from canal.spark.session import configure
    from canal.spark.sharing import share, unshare
    from canal.spark.supervisor import supervise

__all__ = [
    "Batch",
    "DeltaSparkTarget",
    "QueryListener",
    "apply_changes",
    "configure",
    "copy_table",
    "foreach_batch",
    "share",
    "supervise",
    "unshare",
]

_HOMES: Final = {
    "Batch": "canal.pipes.batches",
    "DeltaSparkTarget": "delta_spark",
    "QueryListener": "listener",
    "apply_changes": "apply",
    "configure": "session",
    "copy_table": "canal.pipes.copy_table",
    "foreach_batch": "batches",
    "share": "sharing",
    "supervise": "supervisor",
    "unshare": "sharing",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES, dict.fromkeys(_HOMES.values(), "spark"))
