"""Keep a Delta table equal to each table of a schema, from one process over one connection: copy what is there, then one loop.

    python examples/many_tables.py mysql-host[:port] user password schema /lake

Needs `pip install 'canal-cdc[spark,lake]'`. It runs without Java: `spark = None` has the loop give Arrow tables.
"""

from __future__ import annotations

import sys
from typing import Any

import pymysql

import canal
from canal.spark import Batch, apply_changes, copy_table, foreach_batch
from canal.targets import DeltaTarget

address, user, password, schema, lake = sys.argv[1:]
host, _, port = address.partition(":")
spark = None  # or: canal.spark.configure(SparkSession.builder).getOrCreate()

# %% One sink for each table that has a primary key.

with pymysql.connect(host=host, port=int(port or 3306), user=user, password=password) as session, session.cursor() as cursor:
    cursor.execute(
        "SELECT table_name, column_name FROM information_schema.key_column_usage WHERE table_schema = %s AND"
        " constraint_name = 'PRIMARY' ORDER BY table_name, ordinal_position",
        [schema],
    )
    keys: dict[str, list[str]] = {}
    for table, column in cursor.fetchall():
        keys.setdefault(f"{schema}.{table}", []).append(column)
sinks = {table: apply_changes(DeltaTarget(lake), keys=columns) for table, columns in keys.items()}


def apply(df: Any, batch: Batch) -> None:
    if batch.table in sinks:
        sinks[batch.table](df, batch)


# %% From `subscribe` on every change comes in the loop, whatever the copies have of it already.

config = canal.InstanceConfig(
    destination="lake",
    source=canal.MySQLSource(  # docs/security.md says when not to believe who answers
        host=host, port=int(port or 3306), user=user, password=password, get_server_public_key=True
    ),
    filter=rf"{schema}\..*",
    meta=canal.FileMeta(f"{lake}/_cursors"),
)
with canal.Instance(config) as instance:
    instance.subscribe()
    for table, sink in sinks.items():
        copy_table(instance, table, sink)  # does nothing where that is done
    foreach_batch(spark, instance, apply)
