"""A SQLite file that follows the tables of a source, through a restart; no server needed.

python examples/pipe_to_sqlite.py
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import canal
from canal.targets import SQLiteTarget
from canal.testing import FakeBinlog


def follow(source: FakeBinlog, folder: Path) -> canal.PipeStatus:
    """One life of a process: what it finds in the log goes into the file, each change once."""
    config = canal.InstanceConfig(
        destination="shop", source=source, start="earliest", filter=r"shop\..*", meta=canal.FileMeta(folder / "cursors")
    )
    rules = [canal.Rule(tables=r"shop\.orders", mask={"customer": lambda name: name[0] + "…"}, rename={"customer": "who"})]
    with canal.Instance(config) as instance:
        instance.subscribe()
        pipe = canal.pipe(instance, SQLiteTarget(folder / "copy.db"), rules=rules)
        pipe.run()  # returns because this source ends; with a server's log it goes on until pipe.stop()
        return pipe.status()


def main() -> None:
    source = FakeBinlog()
    orders = source.table("shop", "orders", "id INT UNSIGNED PRIMARY KEY, customer VARCHAR(40), price DECIMAL(10,2)")
    with source.transaction():
        orders.insert({"id": 1, "customer": "Ada", "price": "9.99"}, {"id": 2, "customer": "Bob", "price": "5.00"})
        orders.update({"id": 2, "customer": "Bob", "price": "5.00"}, {"price": "4.50"})
    orders.delete({"id": 1, "customer": "Ada", "price": "9.99"})
    source.end()

    with tempfile.TemporaryDirectory() as folder:
        for life in ("first", "second"):
            status = follow(source, Path(folder))
            print(f"{life} life: {status.changes} changes, {status.guarantee}")
        with closing(sqlite3.connect(Path(folder) / "copy.db")) as copy:
            print(copy.execute("SELECT * FROM orders").fetchall())


if __name__ == "__main__":
    main()
