"""A fake server with a table for the Spark source, and a pair of them."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

from canal.position import Position
from canal.testing import FakeBinlog
from tests.support.engine import Engine

COLUMNS = "id INT PRIMARY KEY, note VARCHAR(2000)"


class Shop:
    """A fake server with one table, and what was committed there: ``expected``, as (op, id, note)."""

    def __init__(self, fake: FakeBinlog) -> None:
        self.fake = fake
        self.orders = fake.table("shop", "orders", COLUMNS)
        self.other = fake.table("shop", "other", COLUMNS)
        self.expected: list[tuple[str, int, str | None]] = []
        self.next = 0

    def insert(self, count: int = 1, size: int = 10) -> None:
        """One transaction of so many rows."""
        rows = [{"id": self.next + n, "note": f"{self.next + n}:".ljust(size, "x")} for n in range(count)]
        self.next += count
        with self.fake.transaction():
            for begin in range(0, count, 10):
                self.orders.insert(*rows[begin : begin + 10])
        self.expected += [("I", row["id"], row["note"]) for row in rows]  # type: ignore[misc]


def seen(rows: list[dict[str, Any]]) -> list[tuple[str, int, str | None]]:
    return [(row["_op"], row["id"], row["note"]) for row in rows]


class Pair:
    """Two servers of one replication whose logs have the same transactions in another order."""

    def __init__(self, gtid: bool = True) -> None:
        now = time.time()  # replicas log the times of their source
        self.shops = [
            Shop(FakeBinlog("mysql", uuid=f"{n}" * 8 + "-0000-4000-8000-000000000000", gtid=gtid, clock=lambda: now))
            for n in (1, 2)
        ]
        self.gtid = gtid

    def write(self, shop: int, *numbers: int, size: int = 1) -> None:
        """Transactions by number, each of ``size`` rows that carry it as ``id``."""
        one = self.shops[shop]
        for number in numbers:
            with one.fake.transaction(gtid=f"{'3' * 8}-0000-4000-8000-000000000000:{number}" if self.gtid else None):
                one.orders.insert(*({"id": number * 1000 + n, "note": "x" * 500} for n in range(size)))


def served(pair: Pair, tmp_path: Path, stack: contextlib.ExitStack) -> tuple[Engine, list[dict[str, Any]]]:
    """A query on the first of the pair, and the options that lead to each."""
    servers = [stack.enter_context(shop.fake.serve()) for shop in pair.shops]
    ways = [{"host": server.host, "port": server.port} for server in servers]
    engine = Engine(
        {"table": "shop.orders", "startingPosition": "earliest", "spoolDir": tmp_path / "spool", "pollTimeout": "0.5", **ways[0]}
    )
    return stack.enter_context(engine), ways


def told(shop: Shop, before: str) -> str:
    """The end of the log as a MySQL may tell it: with a GTID set that lacks the last transactions before it."""
    journal, offset = shop.fake.journals[-1]
    return Position(journal=journal, offset=offset, gtid=before, source=shop.fake.identity).to_text()


def rename(shop: Shop, base: str, number: int = 1) -> None:
    """As a restart with another log_bin does, with the index that was: numbers begin anew."""
    shop.fake.log.base_name, shop.fake.log.journal_number = base, number - 1
    shop.fake.rotate()


both = pytest.mark.parametrize("shop", ["mysql", "mariadb"], indirect=True)


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] // 1000 for row in rows]
