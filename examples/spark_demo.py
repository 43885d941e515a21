"""A Delta table that follows a table of MySQL through Spark, on a fake server: no database is needed, only Java 17.

python examples/spark_demo.py
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from canal.spark import apply_changes, configure
from canal.targets import DeltaTarget
from canal.testing import FakeBinlog

COLUMNS = "id INT UNSIGNED PRIMARY KEY, customer VARCHAR(40), price DECIMAL(10,2), status ENUM('new','paid','sent')"
CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Frances")
ROUNDS, DEADLINE = 4, 120.0

console = Console()


class Shop:
    """Orders that change: what the server has, and its log."""

    def __init__(self) -> None:
        self.log = FakeBinlog(flavor="mysql")
        self.orders = self.log.table("shop", "orders", COLUMNS)
        self.rows: dict[int, dict[str, Any]] = {}
        self.chance = random.Random(7)

    def some_changes(self) -> str:
        new = [
            {
                "id": len(self.rows) + 10 * n + self.chance.randrange(10),
                "customer": self.chance.choice(CUSTOMERS),
                "price": Decimal(self.chance.randrange(100, 9999)) / 100,
                "status": "new",
            }
            for n in range(100, 103)
        ]
        new = [row for row in new if row["id"] not in self.rows]
        with self.log.transaction():
            self.orders.insert(*new)
        paid = self.chance.sample(sorted(self.rows), min(2, len(self.rows)))
        for number in paid:
            after = {**self.rows[number], "status": "paid"}
            self.orders.update(self.rows[number], after)
            self.rows[number] = after
        gone = [number for number in self.chance.sample(sorted(self.rows), min(1, len(self.rows))) if number not in paid]
        for number in gone:
            self.orders.delete(self.rows.pop(number))
        self.rows.update((row["id"], row) for row in new)
        return f"{len(new)} orders came, {len(paid)} were paid, {len(gone)} went"


def delta_rows(path: str) -> dict[int, dict[str, Any]]:
    from deltalake import DeltaTable

    if not Path(path).exists():
        return {}
    columns = ["id", "customer", "price", "status"]
    return {row["id"]: row for row in DeltaTable(path).to_pyarrow_table(columns=columns).to_pylist()}


def show(shop: Shop, found: dict[int, dict[str, Any]], seconds: float) -> None:
    table = Table("id", "customer", "price", "status", "in Delta", title=f"shop.orders, {seconds:.1f} s after the changes")
    for number in sorted(shop.rows.keys() | found.keys()):
        row = shop.rows.get(number, found.get(number, {}))
        same = "yes" if shop.rows.get(number) == found.get(number) else f"[red]{found.get(number)}"
        table.add_row(*map(str, row.values()), same)
    console.print(table)


def main() -> int:
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        console.print("Spark needs Java 17: apt-get install openjdk-17-jre-headless, or set JAVA_HOME.")
        return 2
    shop = Shop()
    with tempfile.TemporaryDirectory() as directory, shop.log.serve(user="cdc", password="cdc") as server:
        builder = configure(SparkSession.builder.master("local[2]").appName("canal"), spark_ui_enabled=False)
        with console.status("starting Spark"):
            spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        changes = (
            spark.readStream.format("canal")
            .options(host=server.host, port=server.port, user="cdc", password="cdc")
            .options(table="shop.orders", startingPosition="earliest")
            .load()
        )
        path = f"{directory}/lake/shop.orders"
        query = (
            changes.writeStream.option("checkpointLocation", f"{directory}/checkpoint")
            .foreachBatch(apply_changes(DeltaTarget(f"{directory}/lake"), keys=["id"], table="shop.orders"))
            .start()
        )
        try:
            for number in range(ROUNDS):
                console.print(f"\n[bold]round {number + 1}: {shop.some_changes()}")
                begun = time.monotonic()
                with console.status("waiting for the Delta table"):
                    while delta_rows(path) != shop.rows:
                        if query.exception() is not None:
                            raise query.exception()
                        if time.monotonic() - begun > DEADLINE:
                            console.print(f"[red]the tables still differ after {DEADLINE:.0f} s")
                            return 1
                        time.sleep(0.05)
                show(shop, delta_rows(path), time.monotonic() - begun)
        finally:
            query.stop()
            spark.stop()
    console.print(f"\nThe Delta table was equal to the source's {ROUNDS} times.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
