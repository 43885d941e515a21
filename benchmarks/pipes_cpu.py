"""CPU seconds per million changes of a pipe into each target, beside a loop by hand that does the least there is to do.

    python -m benchmarks.pipes_cpu [columns|rows|changes|json|sqlite|duckdb|delta|iceberg …] [--rows 200000] [--rounds 3]

One log of 11 columns, three quarters inserts and a quarter updates, in transactions of 100 changes, is read from a file by each.
``columns``, ``rows`` and ``changes`` are pipes into targets that write nothing, and so the cost of the pipe itself; beside
``columns`` stands a loop that decodes to Arrow and acks. What is in each target at the end is compared with what the log says.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, cast

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import canal
from benchmarks.values import MIXED
from canal import targets
from canal.changes import Change, TableState
from canal.testing import FakeBinlog

#: Changes of a transaction.
TRANSACTION: Final = 100
NAMES: Final = tuple(column.name for column in MIXED)
_Rows = dict[int, tuple[Any, ...]]
_runs = itertools.count()


def write_log(folder: Path, changes: int) -> _Rows:
    """Write the log, and return the customer and quantity of each row at its end by its id."""
    fake = FakeBinlog()
    table = fake.table("bench", "orders", ", ".join(f"{column.name} {column.sql}" for column in MIXED))
    rows: dict[int, dict[str, Any]] = {}
    for begin in range(0, changes, TRANSACTION):
        with fake.transaction():
            new = [{one.name: one.value(n) for one in MIXED} for n in range(begin + 1, begin + TRANSACTION * 3 // 4 + 1)]
            table.insert(*new)
            rows |= {row["id"]: row for row in new}
            for number in range(TRANSACTION // 4):
                row = new[number * 3]
                other = {**row, "quantity": row["quantity"] + 1, "name": f"customer again {number}"}
                table.update(row, other)
                rows[row["id"]] = other
    fake.end()
    fake.write(folder)
    return {key: (row["customer"], row["quantity"], row["name"]) for key, row in rows.items()}


class Nothing:
    """A target that writes nothing, and knows how many changes it was given."""

    guarantee, scope, is_log = targets.Guarantee.ONCE, "all", False

    def __init__(self, *, is_log: bool = False, has_columns: bool = False) -> None:
        self.is_log, self.has_columns = is_log, has_columns
        self.count = 0

    @contextmanager
    def begin(self, stream: str) -> Iterator[Any]:
        yield _Log(self) if self.is_log else _State(self)


class _Log(targets.LogWork):
    def __init__(self, target: Nothing) -> None:
        super().__init__()
        self._target = target

    def load(self, table: str) -> str | None:
        return None

    def write(self, made: Sequence[Change], old: str | None, new: str, table: str) -> None:
        self._target.count += len(made)


class _State(targets.StateWork):
    def __init__(self, target: Nothing) -> None:
        super().__init__()
        self._target = target
        self.arrow_from = 1 if target.has_columns else None  # type: ignore[misc]

    def load(self, table: str) -> str | None:
        return None

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        self._target.count += sum(len(state.rows) if (arrow := state.arrow) is None else arrow.upserts.num_rows for state in made)


# -- by hand -------------------------------------------------------------------------------------------------------------


def arrow_of(message: canal.Message) -> pa.Table:
    """The last row of each id, in its order, of a load that deletes nothing."""
    (batch,) = message.to_arrow()
    rows = pa.Table.from_batches([batch.filter(pc.not_equal(batch["_op"], "update_preimage"))])
    rows = rows.append_column("number", pa.array(range(rows.num_rows)))
    last = rows.select(["id", "number"]).group_by("id", use_threads=False).aggregate([("number", "max")])["number_max"]
    return rows.take(last).select(NAMES).sort_by("id")


def hand_arrow(folder: Path) -> Callable[[canal.Message], None]:
    return lambda message: cast(None, message.to_arrow())


def hand_json(folder: Path) -> Callable[[canal.Message], None]:
    def write(message: canal.Message) -> None:
        with (folder / "hand.jsonl").open("a") as file:
            for row in itertools.chain.from_iterable(entry.rows for entry in message.entries):
                document = {
                    "op": "I" if row.before is None else "U",
                    "before": row.before and row.before.as_dict(),
                    "after": row.after.as_dict(),
                }
                file.write(json.dumps(document, default=str) + "\n")

    return write


def hand_sqlite(folder: Path) -> Callable[[canal.Message], None]:
    database = sqlite3.connect(folder / "hand.db")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(f"CREATE TABLE orders ({', '.join(NAMES)}, PRIMARY KEY (id))")
    slots = ", ".join("?" * len(NAMES))
    sets = ", ".join(f"{name} = excluded.{name}" for name in NAMES[1:])
    sql = f"INSERT INTO orders VALUES ({slots}) ON CONFLICT (id) DO UPDATE SET {sets}"

    def write(message: canal.Message) -> None:
        rows = arrow_of(message)
        texts = [
            column.cast(pa.string()) if pa.types.is_decimal(column.type) or pa.types.is_timestamp(column.type) else column
            for column in rows.columns
        ]
        database.executemany(sql, zip(*(column.to_pylist() for column in texts)))
        database.commit()

    return write


def hand_duckdb(folder: Path) -> Callable[[canal.Message], None]:
    database = duckdb.connect(folder / "hand.duckdb")
    sets = ", ".join(f"{name} = s.{name}" for name in NAMES[1:])
    made: list[bool] = []

    def write(message: canal.Message) -> None:
        database.register("s", arrow_of(message))
        if not made:
            database.execute("CREATE TABLE orders AS SELECT * FROM s LIMIT 0")
            database.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
            made.append(True)
        database.execute("BEGIN")
        database.execute(f"UPDATE orders AS t SET {sets} FROM s WHERE t.id = s.id")
        database.execute("INSERT INTO orders SELECT * FROM s WHERE NOT EXISTS (SELECT 1 FROM orders AS t WHERE t.id = s.id)")
        database.execute("COMMIT")

    return write


def hand_delta(folder: Path) -> Callable[[canal.Message], None]:
    """Copy on write: replace the files whose ids overlap those of the batch, in one commit."""
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

    path = folder / "hand_delta"

    def write(message: canal.Message) -> None:
        rows = arrow_of(message)
        if not path.exists():
            DeltaTable.create(str(path), rows.schema)
        table = DeltaTable(str(path))
        ids, done, kept = pc.min_max(rows["id"]).as_py(), [], [rows]
        files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        for file in files:
            if file["min.id"] <= ids["max"] and file["max.id"] >= ids["min"]:
                before = pq.read_table(path / file["path"], schema=rows.schema)
                kept.append(before.filter(pc.invert(pc.is_in(before["id"], value_set=rows["id"].combine_chunks()))))
                done.append(RemoveAction(file["path"], True, 1, file["size_bytes"], {}))
        name, made = f"{uuid.uuid4()}.parquet", pa.concat_tables(kept)
        pq.write_table(made, path / name)
        found = pc.min_max(made["id"]).as_py()
        bounds = {"minValues": {"id": found["min"]}, "maxValues": {"id": found["max"]}, "nullCount": {"id": 0}}
        statistics = json.dumps({"numRecords": len(made), **bounds})
        done.append(AddAction(name, (path / name).stat().st_size, {}, 1, True, statistics))
        table.create_write_transaction(done, "append", table.schema())

    return write


def catalog_of(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}


def hand_iceberg(folder: Path) -> Callable[[canal.Message], None]:
    """Append, and replace the files whose ids overlap those of the batch."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.conversions import from_bytes
    from pyiceberg.io.pyarrow import _dataframe_to_data_files, schema_to_pyarrow
    from pyiceberg.types import LongType

    catalog = load_catalog("hand", **catalog_of(folder))
    catalog.create_namespace("hand")
    tables: list[Any] = []

    def write(message: canal.Message) -> None:
        rows = arrow_of(message)
        if not tables:
            plain = [pa.int64() if pa.types.is_uint32(one.type) else one.type for one in rows.schema]
            plain = [pa.timestamp("us", one.tz) if pa.types.is_timestamp(one) else one for one in plain]
            tables.append(catalog.create_table("hand.orders", pa.schema(list(zip(rows.schema.names, plain)))))
        (table,) = tables
        rows = rows.cast(schema_to_pyarrow(table.schema(), include_field_ids=False))
        ids, gone, kept, number = pc.min_max(rows["id"]).as_py(), [], [rows], table.schema().find_field("id").field_id
        for task in table.scan().plan_files():
            low, high = (from_bytes(LongType(), one[number]) for one in (task.file.lower_bounds, task.file.upper_bounds))
            if low <= ids["max"] and high >= ids["min"]:
                before = pq.read_table(task.file.file_path.removeprefix("file://")).cast(rows.schema)
                kept.append(before.filter(pc.invert(pc.is_in(before["id"], value_set=rows["id"].combine_chunks()))))
                gone.append(task.file)
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
            for file in gone:
                update.delete_data_file(file)
            for file in _dataframe_to_data_files(transaction.table_metadata, pa.concat_tables(kept), table.io):
                update.append_data_file(file)

    return write


# -- what is there at the end ----------------------------------------------------------------------------------------------

_SELECT: Final = "SELECT id, customer, quantity, name FROM orders"


def _of(rows: Sequence[Any]) -> _Rows:
    return {row[0]: tuple(row[1:]) for row in rows}


def json_rows(folder: Path) -> _Rows:
    rows = [json.loads(line)["after"] for line in (folder / "pipe.jsonl").read_text().splitlines()]
    return _of([(row["id"], row["customer"], row["quantity"], row["name"]) for row in rows])


def sqlite_rows(folder: Path) -> _Rows:
    with closing(sqlite3.connect(folder / "pipe.db")) as database:
        return _of(database.execute(_SELECT).fetchall())


def duckdb_rows(folder: Path) -> _Rows:
    with duckdb.connect(folder / "pipe.duckdb") as database:
        (schema,) = database.execute("SELECT schema_name FROM duckdb_tables() WHERE table_name = 'orders'").fetchall()[0]
        return _of(database.execute(_SELECT.replace("orders", f"{schema}.orders")).fetchall())


def delta_rows(folder: Path) -> _Rows:
    from deltalake import DeltaTable

    (path,) = [one.parent for one in (folder / "pipe_delta").rglob("_delta_log")]
    rows = DeltaTable(path).to_pyarrow_table(columns=["id", "customer", "quantity", "name"]).to_pylist()
    return _of([tuple(row.values()) for row in rows])


def iceberg_rows(folder: Path) -> _Rows:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("bench", **catalog_of(folder))
    try:
        rows = catalog.load_table("bench.orders").scan(selected_fields=("id", "customer", "quantity", "name")).to_arrow()
    finally:
        catalog.close()
    return _of([tuple(row.values()) for row in rows.to_pylist()])


#: The target, what it has, and the loop by hand.
CONTESTS: Final[dict[str, tuple[Callable[[Path], Any], Callable[[Path], _Rows] | None, Any]]] = {
    "columns": (lambda folder: Nothing(has_columns=True), None, hand_arrow),
    "rows": (lambda folder: Nothing(), None, None),
    "changes": (lambda folder: Nothing(is_log=True), None, None),
    "json": (lambda folder: targets.JSONLinesTarget(folder / "pipe.jsonl"), json_rows, hand_json),
    "sqlite": (lambda folder: targets.SQLiteTarget(folder / "pipe.db"), sqlite_rows, hand_sqlite),
    "duckdb": (lambda folder: targets.DuckDBTarget(folder / "pipe.duckdb"), duckdb_rows, hand_duckdb),
    "delta": (lambda folder: targets.DeltaTarget(folder / "pipe_delta"), delta_rows, hand_delta),
    "iceberg": (lambda folder: targets.IcebergTarget("bench", catalog_of(folder)), iceberg_rows, hand_iceberg),
}


def measured(log: Path, changes: int, run: Callable[[canal.Instance], None]) -> float:
    """CPU seconds per million changes."""
    source = canal.LocalBinlogSource(log, follow=False)
    config = canal.InstanceConfig(destination=f"b{next(_runs)}", source=source, start="earliest", meta=canal.MemoryMeta())
    gc.collect()
    with canal.Instance(config) as instance:
        instance.subscribe()
        began = time.process_time()
        run(instance)
        return (time.process_time() - began) * 1e6 / changes


def by_hand(write: Callable[[canal.Message], None], batch: int) -> Callable[[canal.Instance], None]:
    def run(instance: canal.Instance) -> None:
        for message in instance.stream(batch_size=batch):
            if any(entry.table is not None for entry in message.entries):
                write(message)

    return run


def piped(target: Any, batch: int) -> Callable[[canal.Instance], None]:
    return lambda instance: canal.pipe(instance, target, batch_size=batch).run()


def race(name: str, log: Path, wanted: _Rows, changes: int, batch: int, rounds: int) -> None:
    make, rows, hand = CONTESTS[name]
    costs: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as path:
            folder = Path(path)
            target = make(folder)
            costs.setdefault("pipe", []).append(measured(log, changes, piped(target, batch)))
            if rows is not None and rows(folder) != wanted:
                raise SystemExit(f"what {name} has at the end differs from the log")
            if isinstance(target, Nothing) and target.count != (changes if target.is_log else len(wanted)):
                raise SystemExit(f"{target.count} changes or rows came to {name}, not what the log has")
            if hand is not None:
                costs.setdefault("by hand", []).append(measured(log, changes, by_hand(hand(folder), batch)))
    print(f"{name:10}" + "   ".join(f"{who} {min(found):6.2f}" for who, found in costs.items()), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipes_cpu", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("names", nargs="*", choices=[*CONTESTS, []])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        log = Path(path) / "log"
        wanted = write_log(log, options.rows)
        for name in options.names or CONTESTS:
            race(name, log, wanted, options.rows, options.batch, options.rounds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
