"""Lets Spark find the data source "canal" by itself: it looks into all modules that are named so.

Never imports the library before the source is used: Spark imports this at every look-up of any Python data source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Makes a :class:`canal.spark.source.CanalSource`."""

    def __new__(cls, options: Mapping[str, str]) -> Any:
        from canal.spark.source import CanalSource

        return CanalSource(options)

    @classmethod
    def name(cls) -> str:
        return "canal"
