"""Keep a cache equal to a table, from DataFrames but without a streaming query: get, call, ack.

    python examples/foreach_batch_cache.py mysql-host[:port] user password shop.orders id

Needs `pip install 'canal-cdc[spark]'` and Java 17; with `spark = None` it runs without both Java and PySpark, on Arrow tables.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

import canal
from canal.spark import Batch, configure, foreach_batch

address, user, password, table, key = sys.argv[1:]
host, _, port = address.partition(":")
schema, name = table.split(".")

# %% The Instance: one dump connection, and a cursor in a file that moves when a batch is done.

config = canal.InstanceConfig(
    destination="cache",
    source=canal.MySQLSource(  # docs/security.md says when not to believe who answers
        host=host, port=int(port or 3306), user=user, password=password, get_server_public_key=True
    ),
    filter=rf"{schema}\.{name},{schema}\.",  # its rows, and statements about the whole database
    meta=canal.FileMeta("cursors"),
)

# %% What is done with each batch. Whatever is raised here rolls the batch back; it comes again.

cache: dict[Any, dict[str, Any]] = {}


def update(df: Any, batch: Batch) -> None:
    for row in df.orderBy("_txn", "_ord").collect():
        if row["_before"] is not None:
            cache.pop(row["_before"][key], None)
        if row["_op"] == "D":
            cache.pop(row[key], None)
        else:
            cache[row[key]] = {column: row[column] for column in df.columns if not column.startswith("_")}
    print(f"{len(cache)} rows after {batch.end}")


# %% For ever. With `ha=canal.ZooKeeper(...)` in the config the same script runs on two machines, and one of them works.

spark = configure(SparkSession.builder.appName("canal cache")).getOrCreate()
with canal.Instance(config) as instance:
    instance.subscribe()
    foreach_batch(spark, instance, update)
