"""Spark: a streaming source on the binlog, its snapshot, and sinks that keep a table equal to MySQL's.

Never imports PySpark before something of it is used.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

_HOMES: Final = {
    "Batch": "batches",
    "QueryListener": "listener",
    "apply_changes": "apply",
    "configure": "session",
    "copy_table": "copying",
    "foreach_batch": "batches",
    "share": "sharing",
    "supervise": "supervisor",
    "targets": "",
    "unshare": "sharing",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not home:
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
