"""The yardstick: a Python data source that does nothing but yield record batches that are ready, of an Arrow file.

Never decodes or copies anything: the file is mapped into memory. Its stream has two steps, each let through by a file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

PARTITIONS = 8


class Ready(DataSource):
    """Options: ``path`` of the Arrow file, ``warm``: how many of its first batches are the stream's first step."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        with pa.memory_map(self.options["path"]) as file:
            return from_arrow_schema(pa.ipc.open_file(file).schema, prefer_timestamp_ntz=True)

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(self.options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _StreamReader(self.options)


class _Reading:
    def __init__(self, options: Any) -> None:
        self.path, self.warm = options["path"], int(options["warm"])

    def between(self, start: int, end: int) -> Sequence[InputPartition]:
        step = max(1, -(-(end - start) // PARTITIONS))
        return [InputPartition((first, min(first + step, end))) for first in range(start, end, step)]

    def count(self) -> int:
        with pa.memory_map(self.path) as file:
            return int(pa.ipc.open_file(file).num_record_batches)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        file = pa.ipc.open_file(pa.memory_map(self.path))
        for number in range(*partition.value):
            yield file.get_batch(number)


class _Reader(_Reading, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return self.between(0, self.count())


class _StreamReader(_Reading, DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        deadline = time.monotonic() + 0.5
        while True:
            found = self.count() if Path(f"{self.path}.all").exists() else self.warm if Path(f"{self.path}.warm").exists() else 0
            if found > start["batch"] or time.monotonic() > deadline:
                return {"batch": max(found, start["batch"])}
            time.sleep(0.005)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self.between(start["batch"], end["batch"])

    def commit(self, end: dict[str, int]) -> None:
        pass


class Gate:
    """Lets the steps of a ``Ready`` stream through, as a ``Burst`` does with rows of a server."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        for step in ("warm", "all"):
            Path(f"{self.path}.{step}").unlink(missing_ok=True)

    def warm(self) -> None:
        Path(f"{self.path}.warm").touch()

    def hold(self) -> None:
        pass

    def release(self) -> None:
        Path(f"{self.path}.all").touch()
