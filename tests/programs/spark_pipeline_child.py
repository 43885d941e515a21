"""Runs examples/pipeline on a fake server, all in one JVM, and prints what came of it as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow.dataset as ds
import yaml
from pyspark.errors import PySparkException
from pyspark.pipelines.cli import run
from pyspark.sql import SparkSession

from canal.testing import FakeBinlog

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/pipeline"
#: Spark gives a Python process of its own 10 s to start, which on a busy machine may be too few: then it tries again.
PATIENT = {"spark.sql.pipelines.maxFlowRetryAttempts": "9"}
LAKE = {"spark.sql.catalog.lake": "canal.MergeCatalog", "spark.sql.shuffle.partitions": "1"}


def outcome(name: str, folder: Path, **other: object) -> str:
    """What a run of one of the example's specs ends with, with the choices that a user makes in it."""
    spec = yaml.safe_load((EXAMPLE / name).read_text("utf-8")) | {"storage": f"file://{folder}/storage"} | other
    spec["configuration"] = PATIENT | spec.get("configuration", {})
    (folder / name).write_text(yaml.safe_dump(spec), "utf-8")
    os.environ["SPARK_REMOTE"] = "local[2]"  # each run takes it away when it ends
    try:
        run(folder / name, [], False, [], False)
    except PySparkException as error:
        return str(error)
    return "done"


def changes(folder: Path) -> list[list[object]]:
    table = ds.dataset(folder / "spark-warehouse/order_changes", format="parquet").to_table()
    rows = table.sort_by([("_txn", "ascending"), ("_ord", "ascending")]).select(["_op", "id", "customer"]).to_pylist()
    return [list(row.values()) for row in rows]


def auto_cdc_table() -> list[list[object]]:
    builder = SparkSession.builder.master("local[1]")
    for name, value in LAKE.items():
        builder = builder.config(name, value)
    return sorted(list(row) for row in builder.getOrCreate().table("lake.shop.orders").select("id", "customer").collect())


def main(folder: Path) -> None:
    for name in ("changes.py", "orders.py"):
        (folder / name).write_text((EXAMPLE / name).read_text("utf-8"), "utf-8")
    os.chdir(folder)
    log = FakeBinlog(flavor="mysql")
    orders = log.table("shop", "orders", "id INT UNSIGNED PRIMARY KEY, customer VARCHAR(40)")
    ada, grace, edsger = ({"id": id, "customer": name} for id, name in enumerate(("Ada", "Grace", "Edsger"), 1))
    found: dict[str, object] = {}
    with log.serve(user="cdc", password="cdc") as server:
        os.environ |= {"MYSQL_HOST": server.host, "MYSQL_PORT": str(server.port), "MYSQL_USER": "cdc", "MYSQL_PASSWORD": "cdc"}
        orders.insert(ada, grace, edsger)
        orders.update(ada, {**ada, "id": 11})
        orders.delete(grace)
        orders.insert(grace)
        found["first"] = outcome("auto-cdc.yaml", folder, catalog="lake", database="shop", configuration=LAKE)
        orders.update({**ada, "id": 11}, ada)
        orders.update(grace, {**grace, "customer": "Barbara"})
        orders.delete(edsger)
        found["second"] = outcome("auto-cdc.yaml", folder, catalog="lake", database="shop", configuration=LAKE)
        found["parquet"] = outcome("auto-cdc.yaml", folder)
        found["append"] = outcome("spark-pipeline.yaml", folder)
    found["changes"] = changes(folder)
    found["table"] = auto_cdc_table()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
