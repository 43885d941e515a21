"""Keep a cache of rows equal to a table: the smallest useful consumer. Each start fills it by a SELECT.

python examples/cache.py mysql-host[:port] user password shop.orders
"""

from __future__ import annotations

import sys
from typing import Any

import pymysql
import pymysql.cursors

import canal

Cache = dict[Any, dict[str, Any]]


def fill(cache: Cache, connection: pymysql.Connection[Any], schema: str, table: str) -> None:
    """Read the rows that are there. Values are PyMySQL's: its TIMESTAMPs have no time zone."""
    with connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(f"SHOW COLUMNS FROM `{schema}`.`{table}`")
        keys = [column["Field"] for column in cursor.fetchall() if column["Key"] == "PRI"]
        cursor.execute(f"SELECT * FROM `{schema}`.`{table}`")
        for row in cursor.fetchall():
            cache[tuple(row[name] for name in keys)] = row


def main() -> None:
    address, user, password, name = sys.argv[1:]
    host, _, port = address.partition(":")
    login: dict[str, Any] = {"host": host, "port": int(port or 3306), "user": user, "password": password}
    schema, table = name.split(".")
    # Without meta= the cursor is in memory, as the cache is: a cursor that survived would skip what the cache has lost.
    config = canal.InstanceConfig(
        destination="cache", source=canal.MySQLSource(**login), start="latest", filter=rf"{schema}\.{table}"
    )
    cache: Cache = {}
    with canal.Instance(config) as instance:
        instance.subscribe()  # first: a change during the SELECT comes in the stream too
        with pymysql.connect(**login) as connection:
            fill(cache, connection, schema, table)
        print(f"{len(cache)} rows to begin with", flush=True)
        for message in instance.stream():
            for entry in message.entries:
                if entry.event_type is canal.EventType.TRUNCATE:
                    cache.clear()
                for row in entry.rows:
                    if row.before is not None:
                        cache.pop(row.before.key, None)
                    if row.after is not None:
                        cache[row.key] = row.after.as_dict()
            print(f"{len(cache)} rows after {message.position}", flush=True)


if __name__ == "__main__":
    main()
