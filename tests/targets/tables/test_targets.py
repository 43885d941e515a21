"""Each target against a dict: histories of any kind, delivered again from anywhere, with crashes around the commit."""

from __future__ import annotations

import contextlib
import pickle
import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pymysql.cursors
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import canal
import canal.spark
from canal.errors import (
    ConfigError,
    StreamMismatchError,
    TargetConflictError,
    TargetSchemaError,
    UnfitChangeError,
    UnloggedChangeError,
    UsageError,
)
from canal.position import Position
from canal.spark import apply_changes, foreach_batch
from canal.targets.protocol import Progress
from canal.targets.tables import Abilities, DeltaTableTarget, MySQLTableTarget, ParquetTableTarget, delta, matching
from canal.testing import FakeBinlog
from tests.support.histories import COLUMNS, KEYS, FaultyTarget, History, change, content, deliveries, histories, table
from tests.support.lakes import Iceberg, Lake, _numbers, first_changes, in_server, load_catalog, login, more_changes
from tests.support.live import source

#: Real tables are slower than a dict.
REAL = settings(
    max_examples=settings().max_examples // 8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def follow(data: st.DataObject, history: History, lake: Any, rows: Callable[[], dict[Any, Any]], target: Any) -> None:
    """Deliver a history as it may come, and compare after each batch."""
    done = 0
    faulty = FaultyTarget(target)
    for run in data.draw(deliveries(history, runs=3)):
        fn = apply_changes(faulty, KEYS)
        for first, end in run:
            first = min(first, done)  # a run that crashed before its commit has done less
            faulty.when = data.draw(st.sampled_from(["", "", "before", "after"]))
            crash = faulty.when
            try:
                fn(table(history.changes[first:end]), 0)
            except OSError:
                if crash == "after":
                    done = max(done, end)
                break  # the next run begins anew, from wherever
            done = max(done, end)
            assert rows() == history.states[done]
    fn = apply_changes(target, KEYS)
    fn(table(history.changes), 0)
    assert rows() == history.states[-1]


@given(st.data())
@REAL
def test_the_lake_table_is_the_table_through_crashes_and_replays(lake: Lake, data: st.DataObject) -> None:
    history = data.draw(histories())
    target = pickle.loads(pickle.dumps(lake.make()))

    follow(data, history, lake, lambda: content(lake.rows(target)), target)


WIDENED = {0: (0, "p"), 1: (1 << 40, "p"), 1 << 40: (7, "p"), 9: (None, None)}


@pytest.mark.parametrize("is_partial", [False, True])
def test_a_column_becomes_wider_with_the_first_value_that_needs_it(lake: Lake, is_partial: bool) -> None:
    """A key too; rows that are there, and those that are deleted and moved, are the same rows."""
    target = lake.make()
    widen(target, is_partial)

    assert {row["id"]: (row["a"], row["b"]) for row in lake.rows(target).to_pylist()} == WIDENED


def widen(target: Any, is_partial: bool) -> None:
    big = 1 << 40
    narrow = {**COLUMNS, "id": pa.int32(), "a": pa.int32()}
    rows = [{"id": number, "k": "x", "a": number, "b": "p"} for number in range(4)]
    changes = [change("I", 1, number, row) for number, row in enumerate(rows)]
    apply_changes(target, KEYS)(table(changes, narrow))
    patch = {"a": big} if is_partial else {**rows[1], "a": big}
    apply_changes(target, KEYS)(
        table(
            [
                change("U", 2, 0, patch, rows[1]),
                change("D", 2, 1, rows[2], rows[2]),
                change("U", 2, 2, {**rows[3], "id": big}, rows[3]),
                change("I", 2, 3, {"id": 9, "k": "x", "a": None, "b": None}),
            ]
        )
    )
    apply_changes(target, KEYS)(table([change("U", 3, 0, {"a": 7}, {"id": big, "k": "x"})]))
    apply_changes(target, KEYS)(table(changes, narrow))
    progress = apply_changes(target, KEYS).progress()
    assert progress is not None
    assert progress.table.last_change == (3, 0)


def test_appended_changes_become_wider_too(lake: Lake) -> None:
    target, big = lake.make(), 1 << 40
    row = {"id": 1, "k": "x", "a": 1, "b": None}
    apply_changes(target, None)(table([change("I", 1, 0, row)], {**COLUMNS, "a": pa.int32()}))
    apply_changes(target, None)(table([change("U", 2, 0, {**row, "a": 2}, {**row, "a": big})]))

    found = [(row["a"], row["_before"] and row["_before"]["a"]) for row in lake.rows(target).to_pylist()]
    assert sorted(found) == [(1, None), (2, big)]


def test_a_column_gets_digits_behind_the_point_that_the_target_has_no_alter_for(lake: Lake) -> None:
    target = lake.make()
    old, new = ({**COLUMNS, "a": pa.decimal128(*digits)} for digits in ((6, 2), (12, 4)))
    rows = [{"id": number, "k": "x", "a": Decimal(text), "b": "p"} for number, text in enumerate(("1.25", "-9999.99", "3"))]
    apply_changes(target, KEYS)(table([change("I", 1, number, row) for number, row in enumerate(rows)], old))
    moved = {**rows[1], "id": 7, "a": Decimal("12345678.1234")}
    apply_changes(target, KEYS)(table([change("D", 2, 0, rows[0], rows[0]), change("U", 2, 1, moved, rows[1])], new))
    apply_changes(target, KEYS)(table([change("I", 3, 0, rows[0])], new))

    found = {row["id"]: row["a"] for row in lake.rows(target).to_pylist()}
    assert found == {7: Decimal("12345678.1234"), 2: Decimal("3.0000"), 0: Decimal("1.2500")}


def test_a_column_that_iceberg_partitions_by_is_not_made_anew(tmp_path: Path) -> None:
    lake = Iceberg(tmp_path)
    target, row = lake.make(), {"id": 1, "k": "x", "a": Decimal("1.25"), "b": "p"}
    apply_changes(target, KEYS)(table([change("I", 1, 0, row)], {**COLUMNS, "a": pa.decimal128(6, 2)}))
    with load_catalog("test", **target.properties).load_table(target.table).update_spec() as update:
        update.add_identity("a")
    with pytest.raises(TargetSchemaError, match="columns a of .* partitions.*Drop the table"):
        apply_changes(target, KEYS)(
            table([change("U", 2, 0, {**row, "a": Decimal("1.2345")}, row)], {**COLUMNS, "a": pa.decimal128(12, 4)})
        )
    assert content(lake.rows(target)) == {(1, "x"): row}


OTHERS = [
    (pa.int32(), 1, pa.int64(), 1 << 40),
    (pa.int32(), 1, pa.string(), "x"),
    (pa.string(), "x", pa.int32(), 1),
    (pa.decimal128(6, 2), Decimal("1.25"), pa.decimal128(12, 4), Decimal("1.2345")),
    (pa.float64(), 1.5, pa.date32(), None),
]


@pytest.mark.parametrize(("old", "before", "new", "after"), OTHERS)
def test_a_snapshot_that_replaces_the_rows_gives_the_columns_their_new_types(
    lake: Lake, old: pa.DataType, before: Any, new: pa.DataType, after: Any
) -> None:
    """Of which the first chunk may need nothing."""
    target = lake.make()
    apply_changes(target, KEYS)(table([change("I", 1, 0, {"id": 1, "k": "x", "a": before, "b": "p"})], {**COLUMNS, "a": old}))
    fn, form = apply_changes(target, KEYS, snapshot="replace"), {**COLUMNS, "a": new}
    fn(table([change("r", 5, -1, {"id": 2, "k": "x", "a": None, "b": "q"})], form))
    fn(table([change("r", 5, -1, {"id": 3, "k": "x", "a": after, "b": "q"})], form))
    fn(table([change("I", 6, 0, {"id": 4, "k": "x", "a": after, "b": "q"})], form))

    assert {row["id"]: row["a"] for row in lake.rows(target).to_pylist()} == {2: None, 3: after, 4: after}


@pytest.fixture
def narrow(server: Any, in_mysql: MySQLTableTarget) -> MySQLTableTarget:
    """The same with columns that are too narrow, and that have more to them than their types."""
    columns = "MODIFY id INT NOT NULL AUTO_INCREMENT COMMENT 'it''s `id` int', MODIFY a INT DEFAULT 5"
    server.query(f"ALTER TABLE {in_mysql.table} {columns}")
    return in_mysql


@pytest.mark.parametrize("is_partial", [False, True])
def test_a_column_in_a_server_becomes_wider_with_the_first_value_that_needs_it(
    server: Any, narrow: MySQLTableTarget, is_partial: bool
) -> None:
    widen(narrow, is_partial)

    assert {key[0]: (row["a"], row["b"]) for key, row in in_server(server, narrow).items()} == WIDENED
    made = server.query(f"SHOW CREATE TABLE {narrow.table}")[0][1]
    assert re.search(r"`id` bigint(\(20\))? NOT NULL AUTO_INCREMENT COMMENT 'it''s `id` int'", made)
    assert re.search(r"`a` bigint(\(20\))? DEFAULT '?5'?", made)


@pytest.mark.parametrize(("collation", "other"), [("utf8mb4_general_ci", "A"), ("utf8mb4_bin", "a ")])
def test_keys_that_are_the_same_to_the_targets_collation_alone_are_told(
    server: Any, database: str, collation: str, other: str
) -> None:
    """Each comes by a batch of its own, so that the second one would take the first one's row away."""
    name, kind = f"{database}.t", "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE"
    server.query(f"CREATE TABLE {name} (id BIGINT, k {kind} {collation}, a BIGINT, b TEXT, PRIMARY KEY (id, k))")
    rows = [{"id": 1, "k": text, "a": number, "b": None} for number, text in enumerate(("a", other))]
    apply_changes(MySQLTableTarget(name, login(server)), KEYS)(table([change("I", 1, 0, rows[0])]))
    with pytest.raises(TargetSchemaError, match="use the source's collation"):
        apply_changes(MySQLTableTarget(name, login(server)), KEYS)(table([change("I", 2, 0, rows[1])]))

    names = dict(server.query("SELECT collation_name, 1 FROM information_schema.collations"))
    exact = "utf8mb4_0900_bin" if "utf8mb4_0900_bin" in names else "utf8mb4_nopad_bin"
    server.query(f"ALTER TABLE {name} MODIFY k {kind} {exact}")
    changes = [change("I", 2, 0, rows[1]), change("U", 3, 0, {"a": 5}, rows[0])]
    apply_changes(MySQLTableTarget(name, login(server)), KEYS)(table(changes))
    assert dict(server.query(f"SELECT k, a FROM {name}")) == {"a": 5, other: 1}


@pytest.mark.parametrize("keys", [("k",), KEYS])
def test_a_key_is_the_text_itself_and_not_what_a_collation_makes_of_it(server: Any, database: str, keys: tuple[str, ...]) -> None:
    """In a table without keys of its own; of another charset, too."""
    name = f"{database}.t"
    server.query(f"CREATE TABLE {name} (id BIGINT, k VARCHAR(9) CHARACTER SET latin1, a BIGINT, b TEXT, KEY (k))")
    rows = [{"id": 1, "k": text, "a": number, "b": None} for number, text in enumerate(("\u00e9", "\u00c9", "e", "e "))]
    for number, row in enumerate(rows):
        apply_changes(MySQLTableTarget(name, login(server)), keys)(table([change("I", number + 1, 0, row)]))
    assert server.query(f"SELECT COUNT(*) FROM {name}") == [(4,)]
    changes = [change("D", 9, 0, rows[0], rows[0]), change("U", 9, 1, {"a": 7}, {"id": 1, "k": "e "})]
    apply_changes(MySQLTableTarget(name, login(server)), keys)(table(changes))
    assert sorted(server.query(f"SELECT k, a FROM {name}"), key=repr) == [("e ", 7), ("e", 2), ("\u00c9", 1)]


def wide(number: int = 2) -> pa.Table:
    return table([change("I", number, 0, {"id": 1 << 40, "k": "x", "a": 1, "b": None})])


def test_who_dies_between_the_alter_and_the_rows_has_written_nothing(
    server: Any, narrow: MySQLTableTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server commits by itself there: the progress is the former one, and the batch is applied when it comes again."""
    apply_changes(narrow, KEYS)(first_changes())

    def end() -> None:
        raise OSError("killed")

    behind_alter(monkeypatch, end)
    with pytest.raises(OSError, match="killed"):
        apply_changes(narrow, KEYS)(wide())
    progress = apply_changes(narrow, KEYS).progress()
    assert progress is not None
    assert progress.table.last_change == (1, 2)
    assert len(in_server(server, narrow)) == 3

    apply_changes(narrow, KEYS)(wide())
    assert len(in_server(server, narrow)) == 4


def test_who_is_overtaken_between_the_alter_and_the_rows_is_refused(
    server: Any, narrow: MySQLTableTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_changes(narrow, KEYS)(first_changes())
    behind_alter(monkeypatch, lambda: apply_changes(narrow, KEYS)(wide(3)))
    with pytest.raises(TargetConflictError):
        apply_changes(narrow, KEYS)(wide(2))

    progress = apply_changes(narrow, KEYS).progress()
    assert progress is not None
    assert progress.table.last_change == (3, 0)


def behind_alter(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Once, when a column was made wider."""
    execute = pymysql.cursors.Cursor.execute

    def watched(self: Any, sql: str, args: Any = None) -> int:
        count = execute(self, sql, args)
        if "ALTER TABLE" in sql:
            monkeypatch.undo()
            then()
        return count

    monkeypatch.setattr(pymysql.cursors.Cursor, "execute", watched)


@pytest.mark.parametrize(
    ("old", "kind", "values", "new"),
    [
        ("INT UNSIGNED", pa.decimal128(20, 0), [1, 1 << 33], "bigint unsigned"),
        ("INT UNSIGNED", pa.int64(), [-1, 1], "bigint"),
        ("MEDIUMINT", pa.int32(), [1 << 30], "int"),
        ("TINYINT", pa.int16(), [200], "smallint"),
        ("BIGINT", pa.decimal128(20, 0), [(1 << 64) - 1], "decimal(20,0)"),
        ("FLOAT", pa.float64(), [0.1], "double"),
        ("DECIMAL(5,2)", pa.decimal128(8, 3), [Decimal("99999.999")], "decimal(8,3)"),
        ("DATETIME", pa.timestamp("us"), [datetime(2026, 1, 1, 0, 0, 0, 500_000)], "datetime(6)"),
        ("TIMESTAMP(3) DEFAULT NOW(3)", pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, 0, 0, 0, 1, UTC)], "timestamp(6)"),
        ("TIME(1)", pa.duration("us"), [timedelta(microseconds=10_000)], "time(6)"),
    ],
)
def test_what_a_server_would_refuse_or_round_makes_its_column_wider(
    server: Any, database: str, old: str, kind: pa.DataType, values: list[Any], new: str
) -> None:
    server.query(f"CREATE TABLE {database}.copy (id BIGINT PRIMARY KEY, a {old})")
    target = MySQLTableTarget(f"{database}.copy", login(server))
    columns = {"id": pa.int64(), "a": kind}
    apply_changes(target, ["id"])(tell(columns, *({"id": number, "a": value} for number, value in enumerate(values, 1))))

    assert target_rows(target)["a"].cast(kind).to_pylist() == values
    query = "SELECT column_type FROM information_schema.columns WHERE table_schema = %s AND column_name = 'a'"
    found = server.query(query.replace("%s", f"'{database}'"))[0][0]
    assert re.sub(r"(?<=int)\(\d+\)", "", found) == new


def target_rows(target: MySQLTableTarget) -> pa.Table:
    with target.begin("reader", ("id",)) as work:
        return work.read(pa.table({"id": pa.array(range(1, 9), pa.int64())})).sort_by("id")


@pytest.mark.parametrize(("old", "value"), [("VARCHAR(2)", "abc"), ("CHAR(3)", "a "), ("BINARY(3)", b"a"), ("ENUM('x')", "y")])
def test_a_column_that_cannot_hold_a_value_is_named(server: Any, database: str, old: str, value: Any) -> None:
    """Also where the server would change the value without a word; with the source's column it goes on."""
    server.query(f"CREATE TABLE {database}.copy (id BIGINT PRIMARY KEY, a {old})")
    target = MySQLTableTarget(f"{database}.copy", login(server))
    changes = tell({"id": pa.int64(), "a": pa.array([value]).type}, {"id": 1, "a": value})
    with pytest.raises(TargetSchemaError, match=f"column a.*ALTER TABLE `{database}`.`copy` MODIFY `a`"):
        apply_changes(target, ["id"])(changes)
    server.query(f"ALTER TABLE {database}.copy MODIFY a {'VARBINARY(3)' if old[0] == 'B' else 'VARCHAR(3)'}")
    apply_changes(target, ["id"])(changes)

    assert target_rows(target)["a"].to_pylist() == [value]


def test_without_the_right_to_alter_it_is_said_what_to_run(server: Any, narrow: MySQLTableTarget, database: str) -> None:
    server.query(f"CREATE USER '{database}'@'%' IDENTIFIED BY 'x'")
    server.query(f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON {database}.* TO '{database}'@'%'")
    try:
        target = MySQLTableTarget(narrow.table, {**login(server), "user": database, "password": "x"})
        with pytest.raises(TargetSchemaError) as found:
            apply_changes(target, KEYS)(wide())
        assert found.value.remedy is not None
        server.query(re.findall("ALTER TABLE .* COMMENT '.*'", found.value.remedy)[0])
        apply_changes(target, KEYS)(wide())
    finally:
        server.query(f"DROP USER '{database}'@'%'")
    assert set(in_server(server, narrow)) == {(1 << 40, "x")}


def test_a_loss_is_kept_in_mysql_until_it_is_acknowledged(server: Any, in_mysql: MySQLTableTarget) -> None:
    log = FakeBinlog()
    orders = log.table("shop", "orders", "id BIGINT, k VARCHAR(9), a BIGINT, b VARCHAR(9), PRIMARY KEY (id, k)")
    orders.insert({"id": 1, "k": "x"})
    log.ddl("CREATE OR REPLACE TABLE orders LIKE other", "shop")
    orders.insert({"id": 2, "k": "x"})
    log.end()
    with canal.Instance(canal.InstanceConfig(destination="shop", source=log, start="earliest")) as instance:
        instance.subscribe()
        for _ in range(2):
            with pytest.raises(UnloggedChangeError, match="replaced.*acknowledge"):
                foreach_batch(None, instance, apply_changes(in_mysql, KEYS))
        assert set(in_server(server, in_mysql)) == {(1, "x")}
        apply_changes(in_mysql, KEYS).acknowledge()
        foreach_batch(None, instance, apply_changes(in_mysql, KEYS))
    assert set(in_server(server, in_mysql)) == {(1, "x"), (2, "x")}


@given(st.data())
@REAL
def test_the_server_s_table_is_the_table_through_crashes_and_replays(
    server: Any, database: str, in_mysql: MySQLTableTarget, data: st.DataObject
) -> None:
    server.query(f"DELETE FROM {in_mysql.table}")
    server.query(f"DROP TABLE IF EXISTS {database}.canal_progress")
    history = data.draw(histories())

    follow(data, history, None, lambda: in_server(server, in_mysql), in_mysql)


def tell(columns: dict[str, pa.DataType], *rows: dict[str, Any]) -> pa.Table:
    """Inserts, each of a transaction of its own by the number of its key."""
    return table([change("I", row["id"], 0, row, whole=True) for row in rows], columns)


def test_generated_columns_are_left_to_the_server(server: Any, database: str) -> None:
    server.query(
        f"CREATE TABLE {database}.copy (id BIGINT PRIMARY KEY, a BIGINT, b BIGINT AS (a + 1) STORED, c BIGINT AS (a + 2) VIRTUAL,"
        " d BIGINT DEFAULT (1 + 1))"
    )
    columns = dict.fromkeys(("id", "a", "b", "c", "d"), pa.int64())
    rows = tell(columns, {"id": 1, "a": 1, "b": 2, "c": 3, "d": 4})

    apply_changes(MySQLTableTarget(f"{database}.copy", login(server)), ["id"])(rows)

    assert list(server.query(f"SELECT id, a, b, c, d FROM {database}.copy")) == [(1, 1, 2, 3, 4)]


def test_large_rows_are_written_in_statements_that_the_server_takes(server: Any, database: str) -> None:
    server.query(f"CREATE TABLE {database}.copy (id BIGINT PRIMARY KEY, a LONGTEXT)")
    size = int(server.query("SELECT @@max_allowed_packet")[0][0]) // 20
    columns = {"id": pa.int64(), "a": pa.string()}
    rows = tell(columns, *({"id": number, "a": "'" * size} for number in range(1, 31)))

    apply_changes(MySQLTableTarget(f"{database}.copy", login(server)), ["id"])(rows)

    assert list(server.query(f"SELECT COUNT(*), MIN(LENGTH(a)) FROM {database}.copy")) == [(30, size)]


def test_a_table_without_transactions_is_refused(server: Any, database: str) -> None:
    """Its rows would stay where the progress is rolled back."""
    server.query(f"CREATE TABLE {database}.copy (id BIGINT PRIMARY KEY) ENGINE=MyISAM")

    with pytest.raises(TargetSchemaError, match="no transactions"):
        apply_changes(MySQLTableTarget(f"{database}.copy", login(server)), ["id"])(tell({"id": pa.int64()}, {"id": 1}))


def test_a_column_whose_name_differs_in_case_is_refused(lake: Lake) -> None:
    target = lake.make()
    apply_changes(target, ["id"])(tell({"id": pa.int64(), "note": pa.string()}, {"id": 1, "note": "a"}))

    with pytest.raises(TargetSchemaError, match=r"Note \(note\)"):
        apply_changes(target, ["id"], schema="add")(tell({"id": pa.int64(), "Note": pa.string()}, {"id": 2, "Note": "b"}))


def test_only_rows_that_change_are_read_of_a_delta_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partial images of the first and the last row do not bring all between into memory."""
    from deltalake import DeltaTable

    target = DeltaTableTarget(str(tmp_path / "delta"))
    rows = [{"id": number, "k": "x", "a": number, "b": None} for number in range(1, 1001)]
    apply_changes(target, KEYS)(table([change("I", 1, row["id"], row) for row in rows]))
    counts = []

    def counted(rows: pa.Table, keys: pa.Table, **more: Any) -> pa.Table:
        counts.append(rows.num_rows)
        return matching(rows, keys, **more)

    monkeypatch.setattr(delta, "matching", counted)
    patches = [change("U", 2, number, {"a": -1}, {"id": number, "k": "x"}) for number in (1, 1000)]
    apply_changes(target, KEYS)(table(patches))

    assert counts == [2]
    assert content(DeltaTable(target.path).to_pyarrow_table())[(1000, "x")]["a"] == -1


def test_a_delta_table_knows_its_source_behind_many_commits_of_others(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    target = DeltaTableTarget(str(tmp_path / "delta"))
    fn = apply_changes(target, ["id"])
    batch = canal.spark.Batch(1, "a.b", ("a.b",), Position(), Position(source="one"), (1, 0), (1, 0))
    fn(tell({"id": pa.int64()}, {"id": 1}), batch)
    written = DeltaTable(target.path)
    for _ in range(101):
        written.create_write_transaction([], "append", written.schema())

    progress = fn.progress()

    assert progress is not None
    assert progress.table.server == "one"


def test_a_delta_table_that_was_restored_is_refused(tmp_path: Path) -> None:
    """Rows would be gone that its progress says it has."""
    from deltalake import DeltaTable

    target = DeltaTableTarget(str(tmp_path / "orders"))
    for changes in (first_changes(), more_changes()):
        apply_changes(target, KEYS)(changes)
    table = DeltaTable(target.path)
    table.restore(table.version() - 1)
    DeltaTable(target.path).optimize.compact()

    with pytest.raises(StreamMismatchError, match="was restored"):
        apply_changes(target, KEYS)(more_changes())
    apply_changes(target, KEYS, stream="anew")(more_changes())


def test_a_snapshot_over_rows_that_nobody_knows_is_refused(lake: Lake, server: Any, in_mysql: MySQLTableTarget) -> None:
    """A table that another stream has made, or the user; one without rows is taken."""
    rows = [{"id": number, "k": "x", "a": 1, "b": None} for number in (1, 2)]
    made = lake.make()
    for target, found in ((made, lambda: content(lake.rows(made))), (in_mysql, lambda: in_server(server, in_mysql))):
        apply_changes(target, KEYS, stream="other")(table([change("I", 1, 0, rows[0])]))
        for snapshot in ([change("r", 5, -1, rows[1])], [change("T", 5, -1, {}, whole=True)]):
            with pytest.raises(StreamMismatchError, match="has rows and no progress"):
                apply_changes(target, KEYS)(table(snapshot))
        apply_changes(target, KEYS, stream="other")(table([change("D", 2, 0, rows[0])]))
        apply_changes(target, KEYS)(table(snapshot))
        apply_changes(target, KEYS)(table([change("r", 5, -1, rows[1])]))
        apply_changes(target, KEYS)(table(snapshot))
        assert set(found()) == {(2, "x")}


# -- each change once, where once more would show --------------------------------------------------------------------------


class CounterTarget:
    """Counts the changes of each row in a database of its own: nothing that may be done twice."""

    abilities = Abilities()

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE counts (op, txn, ord, n INTEGER, PRIMARY KEY (op, txn, ord))")
            database.execute("CREATE TABLE progress (stream PRIMARY KEY, progress)")
            database.commit()

    @contextlib.contextmanager
    def begin(self, stream: str, keys: tuple[str, ...]) -> Iterator[Any]:
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            yield CounterWork(database, stream)

    def counts(self) -> dict[tuple[Any, ...], int]:
        with contextlib.closing(sqlite3.connect(self.path)) as database:
            return {row[:3]: row[3] for row in database.execute("SELECT * FROM counts")}


class CounterWork:
    schema = None

    def __init__(self, database: sqlite3.Connection, stream: str) -> None:
        self.database, self.stream = database, stream
        row = database.execute("SELECT progress FROM progress WHERE stream = ?", (stream,)).fetchone()
        self.progress = None if row is None else Progress.from_text(row[0])

    def write(self, upserts: pa.Table, deletes: pa.Table, progress: Progress, *, added: Any, replace: bool) -> None:
        for row in upserts.to_pylist():
            self.database.execute(
                "INSERT INTO counts VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET n = n + 1",
                (row["_op"], row["_txn"], row["_ord"]),
            )
        self.database.execute("REPLACE INTO progress VALUES (?, ?)", (self.stream, progress.to_text()))
        self.database.execute("COMMIT")


def append(data: st.DataObject, target: Any, history: History, counts: Callable[[], dict[Any, int]]) -> None:
    done = 0
    faulty = FaultyTarget(target)
    for run in data.draw(deliveries(history, runs=4)):
        fn = apply_changes(faulty, None)
        for first, end in run:
            first = min(first, done)
            faulty.when = crash = data.draw(st.sampled_from(["", "", "before", "after"]))
            with contextlib.suppress(OSError):
                fn(table(history.changes[first:end]), 0)
            if crash != "before" or faulty.when:
                done = max(done, end)
            faulty.when = ""
            assert counts() == history.counts(done)
            if crash:
                break


@given(st.data())
@REAL
def test_nothing_is_counted_twice(tmp_path: Path, data: st.DataObject) -> None:
    target = CounterTarget(tmp_path / f"{next(_numbers)}.db")

    append(data, target, data.draw(histories(numbered=True)), target.counts)


def counted(rows: pa.Table | None) -> dict[Any, int]:
    if rows is None:
        return {}
    return dict(Counter(zip(*(rows[name].to_pylist() for name in ("_op", "_txn", "_ord")))))


@given(st.data())
@REAL
def test_a_lake_table_has_each_change_once(lake: Lake, data: st.DataObject) -> None:
    target = lake.make()

    append(data, target, data.draw(histories(numbered=True)), lambda: counted(lake.rows(target)))


@given(st.data())
@REAL
def test_parquet_files_have_each_change_once(tmp_path: Path, data: st.DataObject) -> None:
    target = ParquetTableTarget(str(tmp_path / f"bronze{next(_numbers)}"))

    append(data, target, data.draw(histories(numbered=True)), lambda: counted(read_parquet(target)))


def read_parquet(target: ParquetTableTarget) -> pa.Table | None:
    return pq.read_table(target.path) if list(Path(target.path).glob("*.parquet")) else None


def test_what_parquet_files_cannot_be_is_no_error_that_a_restart_mends(tmp_path: Path) -> None:
    target = ParquetTableTarget(str(tmp_path / "changes"))
    apply_changes(target, None)(first_changes())
    with pytest.raises(ConfigError, match="must consist of letters"):
        apply_changes(target, None, stream="shop.orders")(first_changes())
    with pytest.raises(ConfigError, match="cannot be replaced by another snapshot"):
        anew = change("r", 1 << 40, -1 << 62, {"id": 9, "k": "x", "a": 1, "b": None})
        apply_changes(target, None, snapshot="replace")(table([anew]))


def test_a_late_writer_of_parquet_files_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    target = ParquetTableTarget(str(tmp_path))
    apply_changes(target, None)(first_changes())
    late = FaultyTarget(target, "between")

    late.between = lambda: apply_changes(target, None)(more_changes())
    with pytest.raises(TargetConflictError):
        apply_changes(late, None)(more_changes())

    assert sorted(path.name for path in tmp_path.iterdir()) == ["canal-000000000001.parquet", "canal-000000000002.parquet"]
    assert read_parquet(target).num_rows == 5


def test_a_numbered_snapshot_is_appended_once_and_one_in_chunks_is_refused(tmp_path: Path) -> None:
    target = ParquetTableTarget(str(tmp_path))
    rows = [change("r", 1, number - (1 << 62), {"id": number, "k": "x", "a": 1, "b": None}) for number in range(5)]
    streamed = [change("I", 1, 0, {"id": 9, "k": "x", "a": 1, "b": None})]

    for part in (rows[:2], rows[:2], rows[1:4], rows[3:] + streamed, rows, streamed):
        apply_changes(target, None)(table(part))
    with pytest.raises(UnfitChangeError, match="different times"):
        apply_changes(ParquetTableTarget(str(tmp_path / "other")), None)(table([{**rows[0], "_ord": -1}]))

    assert sorted(read_parquet(target)["id"].to_pylist()) == [0, 1, 2, 3, 4, 9]


# -- every type ------------------------------------------------------------------------------------------------------------

TYPES = {
    "id": ("VARCHAR(20) COLLATE utf8mb4_bin", ["'a'", "'A'", "'\u00e9%s`'"]),
    "i8": ("TINYINT", ["-128", "127", "NULL"]),
    "u8": ("TINYINT UNSIGNED", ["0", "255", "NULL"]),
    "i24": ("MEDIUMINT", ["-8388608", "8388607", "NULL"]),
    "u32": ("INT UNSIGNED", ["0", "4294967295", "NULL"]),
    "u64": ("BIGINT UNSIGNED", ["0", "18446744073709551615", "NULL"]),
    "dec": ("DECIMAL(20,5)", ["-123456789012345.12345", "0.00001", "NULL"]),
    "big": ("DECIMAL(65,10)", ["-1234567890123456789012345678901234567890123456789012345.0123456789", "1", "NULL"]),
    "f": ("FLOAT", ["0.1", "-3.4e38", "NULL"]),
    "d": ("DOUBLE", ["0.1", "1.7976931348623157e308", "NULL"]),
    "day": ("DATE", ["'1000-01-01'", "'9999-12-31'", "NULL"]),
    "at": ("DATETIME(6)", ["'1000-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'", "NULL"]),
    "ts": ("TIMESTAMP(6) NULL", ["'1970-01-02 00:00:01.000001'", "'2038-01-18 03:14:07.999999'", "NULL"]),
    "t": ("TIME(6)", ["'-838:59:59.000000'", "'00:00:00.000001'", "NULL"]),
    "y": ("YEAR", ["1901", "2155", "NULL"]),
    "flags": ("BIT(10)", ["b'1000000001'", "b'0'", "NULL"]),
    "wide": ("BIT(64)", ["0xFFFFFFFFFFFFFFFF", "b'1'", "NULL"]),
    "e": ("ENUM('x','y y')", ["'x'", "'y y'", "NULL"]),
    "s": ("SET('x','y')", ["''", "'x,y'", "NULL"]),
    "txt": ("TEXT", ["'it''s \\\\ %s \U0001f600'", "''", "NULL"]),
    "bin": ("VARBINARY(20)", ["0xFF00275C25", "''", "NULL"]),
    "doc": ("JSON", ["""'{"a": [1, "x"]}'""", "'null'", "NULL"]),
}


@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
def test_every_type_arrives_at_another_table_as_the_server_has_it(server: Any, database: str, image: str) -> None:
    """The server is the oracle: the source's table and the target are the same for it."""
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _) in TYPES.items())
    for table_name in ("source", "copy"):
        server.query(f"CREATE TABLE {database}.{table_name} ({columns}, PRIMARY KEY (id)) CHARACTER SET utf8mb4")
    config = canal.InstanceConfig(destination="copy", source=source(server), filter=rf"{database}\.source", start="latest")
    target = MySQLTableTarget(f"{database}.copy", login(server))
    stop = threading.Event()
    with canal.Instance(config) as instance, server.connect() as connection, connection.cursor() as cursor:
        instance.subscribe()
        cursor.execute(f"SET SESSION binlog_row_image = {image}, time_zone = '+00:00'")
        for number in range(3):
            values = ", ".join(literals[number] for _, literals in TYPES.values())
            cursor.execute(f"INSERT INTO {database}.source VALUES ({values})")
        cursor.execute(f"UPDATE {database}.source SET i8 = 1, txt = NULL, doc = '[2]' WHERE id = 'a'")
        cursor.execute(f"UPDATE {database}.source SET id = 'moved' WHERE id = 'A'")
        cursor.execute(f"DELETE FROM {database}.source WHERE id = 'a'")
        apply = apply_changes(target, ["id"])

        def fn(df: pa.Table, batch: Any) -> None:
            apply(df, batch)
            if "D" in df["_op"].to_pylist():
                stop.set()

        foreach_batch(None, instance, fn, timeout=0.2, batch_size=2, stop=stop)

    checks = [server.query(f"CHECKSUM TABLE {database}.{name} EXTENDED")[0][1] for name in ("source", "copy")]
    rows = [server.query(f"SELECT * FROM {database}.{name} ORDER BY id") for name in ("source", "copy")]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 2
    assert checks[0] == checks[1]


def test_what_the_server_would_cut_or_round_is_an_error(server: Any, in_mysql: MySQLTableTarget) -> None:
    server.query(f"ALTER TABLE {in_mysql.table} MODIFY b VARCHAR(1)")
    fn = apply_changes(in_mysql, KEYS)

    with pytest.raises(TargetSchemaError, match="refuses rows"):
        fn(table([change("I", 1, 0, {"id": 1, "k": "x", "a": 1, "b": "pq"})]))

    assert in_server(server, in_mysql) == {}
    assert fn.progress() is None


def test_foreach_batch_into_a_lake_of_many_tables_writes_each_below_its_root(fake_binlog: FakeBinlog, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    tables = [fake_binlog.table("shop", name, "id INT PRIMARY KEY, n INT") for name in ("orders", "items")]
    for number, made in enumerate(tables):
        made.insert({"id": 1, "n": number})
        made.insert({"id": 2, "n": number})
        made.delete({"id": 1, "n": number})
    fake_binlog.end()
    lake = canal.targets.DeltaTarget(tmp_path)
    sinks = {name: apply_changes(lake, ["id"]) for name in ("shop.orders", "shop.items")}

    config = canal.InstanceConfig(destination="test", source=fake_binlog, start="earliest", meta=canal.MemoryMeta())
    with canal.Instance(config) as instance:
        instance.subscribe()
        foreach_batch(None, instance, lambda rows, batch: sinks[batch.table](rows, batch))

    found = {name: DeltaTable(str(tmp_path / name)).to_pyarrow_table().select(["id", "n"]).to_pylist() for name in sinks}
    assert found == {"shop.orders": [{"id": 2, "n": 0}], "shop.items": [{"id": 2, "n": 1}]}


def test_a_batch_of_an_unknown_table_for_a_lake_of_many_is_refused(tmp_path: Path) -> None:
    rows = tell({"id": pa.int64()}, {"id": 1})

    with pytest.raises(UsageError, match="the table of these changes is unknown"):
        apply_changes(canal.targets.DeltaTarget(tmp_path), ["id"])(rows, 0)
    apply_changes(canal.targets.DeltaTarget(tmp_path), ["id"], table="shop.orders")(rows, 0)

    assert (tmp_path / "shop.orders").is_dir()


def iceberg_files(target: Any) -> set[str]:
    catalog = load_catalog("test", **target.properties)
    try:
        return {task.file.file_path for task in catalog.load_table(target.table).scan().plan_files()}
    finally:
        catalog.close()


def row_of(number: int, a: int) -> dict[str, Any]:
    return {"id": number, "k": "x", "a": a, "b": None}


def test_only_files_of_iceberg_that_have_keys_of_a_batch_are_written_anew(tmp_path: Path) -> None:
    lake = Iceberg(tmp_path)
    target = lake.make()
    fn = apply_changes(target, KEYS)
    for number in range(4):
        fn(table([change("I", number, 0, row_of(10 * number, 0)), change("I", number, 1, row_of(10 * number + 9, 0))]))
    before = iceberg_files(target)

    fn(table([change("U", 5, 0, row_of(10, 1), row_of(10, 0)), change("D", 5, 1, row_of(19, 0), row_of(19, 0))]))
    fn(table([change("I", 6, 0, row_of(25, 6))]))

    assert len(before & iceberg_files(target)) == 3
    assert {key[0]: row["a"] for key, row in content(lake.rows(target)).items()} == {
        0: 0,
        9: 0,
        10: 1,
        20: 0,
        25: 6,
        29: 0,
        30: 0,
        39: 0,
    }


@pytest.mark.parametrize("held", [1, 3, 1000])
def test_rewritten_rows_of_iceberg_are_written_in_parts_of_a_bounded_size(
    tmp_path: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Iceberg(tmp_path)
    target = lake.make()
    fn = apply_changes(target, KEYS)
    for number in range(6):
        fn(table([change("I", number, n, row_of(n * 6 + number, 0)) for n in range(6)]))
    monkeypatch.setattr("canal.targets.tables.rewrite._HELD", 2 * held)
    monkeypatch.setattr("canal.targets.tables.rewrite._ROWS", held)

    fn(table([change("U", 7, n, row_of(n, 1), row_of(n, 0)) for n in range(0, 36, 2)]))

    assert {key[0]: row["a"] for key, row in content(lake.rows(target)).items()} == {n: 1 - n % 2 for n in range(36)}
