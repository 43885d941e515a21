"""The reader of a stream as Spark uses it since 4.2: Spark says where a batch starts, and how much it may hold."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow

from canal.spark.readers import CanalStreamReader


class LimitedStreamReader(CanalStreamReader, SupportsTriggerAvailableNow):
    """Knows the start of a batch and its limit from Spark, and when AvailableNow is wanted."""

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._runner.prepare_available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]
        rows, size = self._options.max_rows, self._options.max_bytes
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        elif isinstance(limit, ReadAllAvailable):
            rows = size = None
        return self._runner.latest(start, rows, size)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._open is None else self._open.report()
