"""Keep a cache of rows equal to a table: the smallest useful consumer, with a cursor that survives restarts.

    python examples/cache.py mysql-host user password shop.orders
"""

from __future__ import annotations

import sys
from typing import Any

import canal


def main() -> None:
    host, user, password, name = sys.argv[1:]
    schema, table = name.split(".")
    config = canal.InstanceConfig(
        destination="cache",
        source=canal.MySQLSource(host=host, user=user, password=password),
        filter=rf"{schema}\.{table}",
        meta=canal.FileMeta("cursors"),
    )
    cache: dict[Any, dict[str, Any]] = {}
    with canal.Instance(config) as instance:
        instance.subscribe()
        for message in instance.stream():
            for entry in message.entries:
                for row in entry.rows:
                    if row.before is not None:
                        cache.pop(row.before[0], None)
                    if row.after is not None:
                        cache[row.after[0]] = row.after.as_dict()
            print(f"{len(cache)} rows after {message.position}")


if __name__ == "__main__":
    main()
