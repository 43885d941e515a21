"""A streaming table of a declarative pipeline: the changes of shop.orders, each once, in the order of ``_txn`` and ``_ord``."""

from __future__ import annotations

import os
from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table
def order_changes() -> Any:
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
