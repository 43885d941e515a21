"""Append what was logged between two moments to a directory of parquet files, each change once: history for analysis.

    python examples/backfill.py mysql-host[:port] user password shop.orders 2026-01-01 2026-02-01 /lake

Needs `pip install 'canal-cdc[spark]'` and Java 17. Run it again with a later end and it appends what is new.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from canal.spark import apply_changes, configure
from canal.targets import ParquetTarget

address, user, password, table, begin, end, lake = sys.argv[1:]
host, _, port = address.partition(":")

# %% A bounded read, file by file of the binlog, by as many tasks as there are slots.

spark = configure(SparkSession.builder.appName(f"canal backfill {table}")).getOrCreate()
changes = (
    spark.read.format("canal")
    .option("host", host)
    .option("port", port or 3306)
    .option("user", user)
    .option("password", password)
    .option("table", table)
    .option("startingTime", begin)
    .option("endingTime", end)
    .load()
)

# %% The changes themselves, not the table: `keys=None` appends. What is there already, from an earlier run, is left out.

sink = apply_changes(ParquetTarget(lake), keys=None, table=table)
sink(changes)
print(sink.progress())

# %% How often each kind of change came, by hour.

history = spark.read.option("mergeSchema", "true").parquet(f"{lake}/{table}")
history.groupBy(f.date_trunc("hour", "_ts").alias("hour"), "_op").count().orderBy("hour", "_op").show()
