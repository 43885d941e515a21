"""The driver of a cluster in tests: keeps a Delta table equal to a server's, and writes down who sees files of the spool.

    python -m tests.programs.spark_cluster_child DIRECTORY

DIRECTORY holds ``spec.json``, with the master and the options of the source. The process ends with its standard input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from canal.spark import apply_changes, configure
from canal.targets.tables import DeltaTableTarget


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(18)


def files(directory: str) -> list[str]:
    return [name for _, _, names in os.walk(directory) for name in names]


def main(directory: Path) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    spec = json.loads((directory / "spec.json").read_text())
    builder = configure(SparkSession.builder.master(spec["master"]).appName("cluster"), spark_ui_enabled=False)
    for name, value in spec["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    sink, spool = apply_changes(DeltaTableTarget(str(directory / "table")), keys=["id"]), spec["options"]["spoolDir"]
    seen = (directory / "seen").open("a", buffering=1)

    def apply(df: Any, batch: int) -> None:
        rows = df.toArrow()
        [there] = spark.sparkContext.parallelize([spool], 1).map(files).collect()
        print(json.dumps({"kinds": sorted(set(rows["_op"].to_pylist())), "here": files(spool), "there": there}), file=seen)
        sink(rows, batch)

    frame = spark.readStream.format("canal").options(**spec["options"]).load()
    writer = frame.writeStream.foreachBatch(apply).option("checkpointLocation", str(directory / "checkpoint"))
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
