"""The targets of ``apply_changes``: those of ``canal.targets.tables``, which need no Spark, and one that Spark writes.

Never changes them.
"""

from __future__ import annotations

from typing import Any

from canal.targets import tables
from canal.targets.tables import Progress as Progress
from canal.targets.tables import Target as Target
from canal.targets.tables import Work as Work
from canal.targets.tables import matching as matching
from canal.targets.tables import need as need
from canal.targets.tables import understood as understood

__all__ = [
    "DeltaSparkTarget",
    "DeltaTarget",
    "IcebergTarget",
    "MySQLTarget",
    "ParquetTarget",
    "Progress",
    "Target",
    "Upkeep",
    "Work",
]


def __getattr__(name: str) -> Any:
    if name == "DeltaSparkTarget":
        from canal.spark.targets.delta_spark import DeltaSparkTarget

        return DeltaSparkTarget
    if name in __all__:
        return getattr(tables, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
