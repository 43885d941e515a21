"""AUTO CDC of a declarative pipeline: a table that is kept equal to shop.orders, where its format takes MERGE.

AUTO CDC knows upserts and deletes by key, of whole rows. An update that changes the key is therefore given as two, and what it
would apply wrongly without a word ends the run: a partial row image, a value that its column cannot hold.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()
KEYS = ["id"]
OURS = {"_op", "_txn", "_ord", "_ts", "_gtid", "_before", "_absent", "_exact"}


def changes() -> Any:
    return (
        spark.readStream.format("canal")
        .option("host", os.environ["MYSQL_HOST"])
        .option("port", os.environ.get("MYSQL_PORT", "3306"))
        .option("user", os.environ["MYSQL_USER"])
        .option("password", os.environ["MYSQL_PASSWORD"])
        .option("table", "shop.orders")
        .option("startingPosition", "earliest")
        .load()
    )


# Spark wants to know the columns outside of a query function.
COLUMNS = [name for name in changes().columns if name not in OURS]


@dp.temporary_view
def order_changes() -> Any:
    is_moved = f.lit(False)
    for key in KEYS:
        is_moved |= f.col(f"_before.{key}") != f.col(key)
    place = ["_txn", "_ord"]
    gone = f.struct(f.lit("D").alias("_op"), *place, *(f.col(f"_before.{name}").alias(name) for name in COLUMNS))
    row = f.struct("_op", *place, *COLUMNS)
    is_whole = f.col("_absent").isNull() & f.col("_exact").isNull()
    return (
        changes()
        .where(f.assert_true(is_whole, f.lit("a partial row image, or a value that its column cannot hold")).isNull())
        .select(f.explode(f.when((f.col("_op") == "U") & is_moved, f.array(gone, row)).otherwise(f.array(row))).alias("row"))
        .select("row.*")
    )


dp.create_streaming_table("orders")
dp.create_auto_cdc_flow(
    target="orders",
    source="order_changes",
    keys=KEYS,
    sequence_by=f.struct("_txn", "_ord"),
    apply_as_deletes="_op = 'D'",
    except_column_list=["_op", "_txn", "_ord"],
)
