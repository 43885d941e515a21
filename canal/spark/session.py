"""Settings of a Spark session that the source and the sinks need, in one call.

Never starts a session.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

#: Workers run this interpreter, reckon in UTC, and are given Arrow as it is; readers of ranges are handed filters.
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.executorEnv.TZ": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}


def configure(builder: Any, **settings: Any) -> Any:
    """Give a ``SparkSession.builder`` what the source and the sinks need, before ``getOrCreate``; returns the builder.

    The workers' Python becomes this one (``PYSPARK_PYTHON``, unless it is set: without it Spark takes what ``python3`` is on
    the PATH), time zones become UTC for the session and the executors (``TZ`` of this process too, unless it is set, as
    local executors inherit it), Arrow tables are not turned into rows in the driver, and Spark hands filters to Python sources.

    Args:
        settings: others, or another choice for one of these, with ``_`` for each dot: ``spark_sql_shuffle_partitions=4``.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("TZ", "UTC")
    for name, value in {**_SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else value)
    return builder
