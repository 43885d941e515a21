"""Rows events to Arrow: the kernel against tuples that Arrow reads, in turn, on one core, with ratios of the same run.

    python -m benchmarks.columnar [--rows 400000] [--rounds 5] [--json FILE]

Ten mixed columns: inserts in events of the size that servers make and of one row each, and updates. Before anything is timed,
both ways must come to the same values, and each timed round to the same count and sum.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import canal
from canal.filter import FieldFilter, TableFilter
from canal.formats.arrow import arrow_type, changes
from canal.model import Entry, decode_tuples
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.schema.classify import classify
from canal.parse.schema.table_map import TableResolver
from canal.testing import FakeBinlog

COLUMNS = (
    "id BIGINT PRIMARY KEY, customer INT NOT NULL, price DECIMAL(10,2), ratio DOUBLE, name VARCHAR(40) CHARACTER SET utf8mb4,"
    " city VARCHAR(40) CHARACTER SET utf8mb4, created DATETIME(6), day DATE, paid BOOL, token BINARY(16)"
)
BAR = 5.0


def row(number: int) -> dict[str, Any]:
    created = datetime.datetime(2026, 11, 21, 10) + datetime.timedelta(microseconds=number)
    return {
        "id": number, "customer": number % 9973 - 5000, "price": Decimal(f"{number % 100000}.{number % 100:02d}"),
        "ratio": number / 7, "name": f"customer {number}", "city": ("Zürich", "Oslo", "東京")[number % 3], "created": created,
        "day": created.date(), "paid": number % 2, "token": number.to_bytes(16, "big") if number % 10 else None,
    }  # fmt: skip


def entries(rows: int, size: int, kind: str) -> list[Entry]:
    """``rows`` changes, of which only the first few thousand differ."""
    fake = FakeBinlog(row_event_max_size=size)
    table = fake.table("bench", "t", COLUMNS)
    made = min(rows, 5000)
    if kind == "insert":
        table.insert(*map(row, range(made)))
    else:
        with fake.transaction():
            for number in range(made):
                table.update(row(number), row(number + 1))
    found: list[Entry] = []
    resolver = TableResolver(lambda raw: None, TableFilter(""), FieldFilter(), datetime.UTC)
    decoder = BinlogDecoder(resolver.resolve, classify, resolver.wants, lambda *_: None, found.extend)
    decoder.reset(canal.Position(journal="binlog.000001", offset=4), fake.flavor, "", None)
    decoder.feed(fake.events())
    rows_only = [entry for entry in found if entry.table is not None]
    return rows_only * (rows // made)


def by_tuples(given: list[Entry]) -> list[pa.Array]:
    """The obvious way: tuples, turned into columns, each of which Arrow reads."""
    images: list[tuple[Any, ...]] = []
    for entry in given:
        for before, after in decode_tuples(entry, json_text=True):
            images += [image for image in (before, after) if image is not None]
    table = given[0].table
    assert table is not None
    return [pa.array(list(values), arrow_type(column)) for column, values in zip(table.columns, zip(*images))]


def by_kernel(given: list[Entry]) -> list[pa.Array]:
    return changes(given).columns


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})
    report = []
    for load, size, kind in (("insert, 8 KiB events", 8192, "insert"), ("update, a row an event", 8192, "update"),
                             ("insert, a row an event", 64, "insert")):  # fmt: skip
        report.append(compare(load, entries(options.rows, size, kind), options.rounds))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    return 0 if not canal.compiled or report[0]["median"] >= BAR else 1


def compare(load: str, given: list[Entry], rounds: int) -> dict[str, Any]:
    first = given[: len(given) // 4 + 1]
    if [array.to_pylist() for array in by_kernel(first)] != [array.to_pylist() for array in by_tuples(first)]:
        raise SystemExit(f"{load}: the two ways differ")
    rows = sum(entry.row_count for entry in given)
    answer = None
    rates: dict[str, list[float]] = {"tuples": [], "kernel": []}
    ways: list[tuple[str, Callable[[list[Entry]], list[pa.Array]]]] = [("tuples", by_tuples), ("kernel", by_kernel)]
    for _ in range(rounds):
        for name, way in ways:
            started = time.process_time()
            columns = way(given)
            seconds = time.process_time() - started
            told = (len(columns[0]), pc.sum(columns[0]).as_py(), columns[9].null_count)
            if answer not in (None, told):
                raise SystemExit(f"{load}: {name} came to {told}, not {answer}")
            answer = told
            rates[name].append(rows / seconds)
    ratios = [ours / theirs for ours, theirs in zip(rates["kernel"], rates["tuples"])]
    for name in rates:
        print(f"{load:24} {name:8} {statistics.median(rates[name]):12,.0f} changes/s of CPU")
    print(f"{load:24} {'ratio':8} {statistics.median(ratios):12.2f} ({min(ratios):.2f} … {max(ratios):.2f})", flush=True)
    return {"load": load, "rates": rates, "ratios": ratios, "median": statistics.median(ratios)}


if __name__ == "__main__":
    raise SystemExit(main())
