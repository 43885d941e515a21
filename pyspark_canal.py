"""Lets Spark find the data source "canal" by itself: it looks for modules that are named so.

Never imports more than it must before the source is used: Spark imports it at every look-up of any format.
"""

from __future__ import annotations

from canal.spark.source import CanalSource as DefaultSource

__all__ = ["DefaultSource"]
