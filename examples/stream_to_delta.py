"""Keep a Delta table equal to a table of MySQL, with a streaming query that is started again when it fails.

    python examples/stream_to_delta.py mysql-host[:port] user password shop.orders id /lake /checkpoints/orders

Needs `pip install 'canal-cdc[spark,lake]'` and Java 17, no jars. Kill it, start it again, delete the checkpoint: the Delta
table, /lake/shop.orders, has each change once, because its commits record how far it is. It has what the server's log has: for
rows that are older than the log begin with `.option("snapshot", "initial")` instead of `startingPosition`.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

from canal.spark import apply_changes, configure, supervise
from canal.targets import DeltaTarget

address, user, password, table, keys, lake, checkpoint = sys.argv[1:]
host, _, port = address.partition(":")

# %% A session whose workers run this Python and reckon in UTC.

spark = configure(SparkSession.builder.appName(f"canal {table}")).getOrCreate()

# %% The sink: the latest change of each key, deletes, changes of the key. New columns of the source are added to the table;
# rows of before have null there. (The server's binlog_row_image is FULL: else null would stand for any column's default.)

sink = apply_changes(DeltaTarget(lake), keys.split(","), table=table, schema="add", absent="null")

# %% The query. A supervisor calls this again after a failure, so that a new reader sees a changed schema.


def start() -> Any:
    changes = (
        spark.readStream.format("canal")
        .option("host", host)
        .option("port", port or 3306)
        .option("user", user)
        .option("password", password)
        .option("table", table)
        .option("startingPosition", "earliest")
        .option("maxRowsPerBatch", 50_000)
        .option("onTruncate", "row")
        .load()
    )
    return changes.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).start()


# %% For ever: a lost server or a killed worker is worth a restart, and so are new columns. Wrong options are not, and neither is
# an UnloggedChangeError, which names what to do: bring the target to the table's state, then give start the option acknowledge.

supervise(start, name=table, restart_on=["SchemaError"])
