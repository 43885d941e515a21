"""Spark: a streaming source on the binlog, its snapshot, and sinks that keep a table equal to MySQL's.

Never imports PySpark before something of it is used.
"""

from __future__ import annotations

from typing import Final

from canal._util.lazy import lazy_names

_HOMES: Final = {
    "Batch": "batches",
    "QueryListener": "listener",
    "apply_changes": "apply",
    "configure": "session",
    "copy_table": "canal.pipes.copy_table",
    "foreach_batch": "batches",
    "share": "sharing",
    "supervise": "supervisor",
    "targets": "targets",
    "unshare": "sharing",
}

__getattr__ = lazy_names(__name__, _HOMES)
