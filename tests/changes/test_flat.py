"""``Instance.changes``: row after row, with key and position, acked when the loop comes round."""

from __future__ import annotations

from typing import Any

import pytest

import canal
from canal.testing import FakeBinlog


def instance_of(fake: FakeBinlog, meta: canal.meta.MetaManager | None = None, **options: Any) -> canal.Instance:
    more = {} if meta is None else {"meta": meta}
    return canal.Instance(canal.InstanceConfig(destination="shop", source=fake, start="earliest", **more, **options))


def short(change: canal.Change) -> tuple[Any, ...]:
    rows = [None if row is None else tuple(row) for row in (change.before, change.after)]
    return change.table.name, change.op, *rows, change.key


@pytest.fixture
def fake() -> FakeBinlog:
    fake = FakeBinlog()
    table = fake.table("shop", "t", "a INT, id INT, b INT, PRIMARY KEY (id, b)")
    with fake.transaction():
        fake.insert(table, {"a": 1, "id": 1, "b": 1}, {"a": 2, "id": 2, "b": 1}, {"a": 3, "id": 3, "b": 1})
        table.update({"a": 1, "id": 1, "b": 1}, {"a": 1, "id": 9, "b": 1})
    table.delete({"a": 2, "id": 2, "b": 1})
    fake.ddl("ALTER TABLE t COMMENT 'x'", schema="shop")
    fake.table("shop", "keyless", "a INT").insert({"a": 1})
    fake.end()
    return fake


ROWS: list[tuple[Any, ...]] = [
    ("shop.t", "insert", None, (1, 1, 1), (1, 1)),
    ("shop.t", "insert", None, (2, 2, 1), (2, 1)),
    ("shop.t", "insert", None, (3, 3, 1), (3, 1)),
    ("shop.t", "update", (1, 1, 1), (1, 9, 1), (9, 1)),
    ("shop.t", "delete", (2, 2, 1), None, (2, 1)),
    ("shop.keyless", "insert", None, (1,), None),
]


def test_each_row_comes_with_its_key(fake: FakeBinlog) -> None:
    with instance_of(fake) as instance:
        instance.subscribe()
        found = list(instance.changes(batch_size=2))
        assert [short(change) for change in found] == ROWS
        assert [change.old_key for change in found] == [None, None, None, (1, 1), (2, 1), None]
        assert instance.list_batches() == []


def test_statements_on_demand(fake: FakeBinlog) -> None:
    with instance_of(fake) as instance:
        instance.subscribe()
        found = [(change.op, change.sql) for change in instance.changes(statements=True) if change.after is None]
    assert not found[-1][0].is_row
    assert ("alter", "ALTER TABLE t COMMENT 'x'") in found


def test_each_position_is_where_to_resume_behind_that_row(fake: FakeBinlog) -> None:
    with instance_of(fake) as instance:
        instance.subscribe()
        found = list(instance.changes())
    for number, change in enumerate(found):
        meta = canal.MemoryMeta()
        meta.start("shop")
        meta.subscribe(1001, "")
        meta.update_cursor(1001, change.position)
        meta.stop()
        with instance_of(fake, meta) as instance:
            assert [short(one) for one in instance.changes()] == ROWS[number + 1 :]


def test_a_row_filter_moves_no_position(fake: FakeBinlog) -> None:
    def odd(header: object, before: canal.Row | None, after: canal.Row | None) -> bool:
        return after is not None and after["a"] in (1, 3)

    with instance_of(fake, row_filter=odd) as instance:
        instance.subscribe()
        found = [(change.key, change.position.row) for change in instance.changes()]
    assert found[:3] == [((1, 1), 1), ((3, 1), 3), ((9, 1), 4)]


def test_a_key_that_is_not_delivered_is_none(fake: FakeBinlog) -> None:
    with instance_of(fake, field_filter="shop.t:a/id") as instance:
        instance.subscribe()
        assert {change.key for change in instance.changes()} == {None}


def test_a_message_is_acked_behind_its_last_row_only(fake: FakeBinlog) -> None:
    with instance_of(fake) as instance:
        instance.subscribe()
        begin = instance.position()
        changes = instance.changes(batch_size=3)
        for _ in range(3):
            next(changes)
        assert instance.position() == begin
        next(changes)
        assert instance.position() != begin
        changes.close()  # type: ignore[attr-defined]
        for change in instance.changes():
            assert short(change) == ROWS[3]
            break
        assert [short(change) for change in instance.changes()] == ROWS[3:]


def test_rows_of_entries_have_the_same_keys(fake: FakeBinlog) -> None:
    with instance_of(fake) as instance:
        instance.subscribe()
        rows = [row for message in instance.stream() for entry in message.entries for row in entry.rows]
    assert [row.key for row in rows] == [row[-1] for row in ROWS]
    assert rows[3].before is not None
    assert rows[3].before.key == (1, 1)


def test_a_key_that_a_minimal_image_lacks_is_that_of_the_image_before() -> None:
    fake = FakeBinlog(row_image="MINIMAL")
    table = fake.table("shop", "t", "id INT PRIMARY KEY, a INT")
    table.update({"id": 1, "a": 1}, {"a": 2})
    fake.end()
    with instance_of(fake) as instance:
        instance.subscribe()
        ((row,),) = (entry.rows for message in instance.stream() for entry in message.entries if entry.rows)
    assert row.before is not None
    assert row.after is not None
    assert (row.key, row.before.key, row.after.key) == ((1,), (1,), None)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("TRUNCATE TABLE t", "emptied by TRUNCATE"),
        ("DROP TABLE t", "dropped"),
        ("DROP TABLE IF EXISTS t, u", "dropped"),
        ("DROP DATABASE shop", "dropped with its database"),
        ("RENAME TABLE t TO old", "renamed"),
        ("ALTER TABLE t TRUNCATE PARTITION p", "partitions"),
        ("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)", "replaced"),
        ("UPDATE t SET b = 2", "changed by a statement"),
        ("DELETE FROM t", "changed by a statement"),
    ],
)
def test_changes_raises_at_a_statement_that_changed_rows_without_logging_them(statement: str, what: str) -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "t", "id INT PRIMARY KEY, b INT")
    table.insert({"id": 1, "b": 1})
    if statement.startswith(("UPDATE", "DELETE")):
        with fake.transaction():
            fake.query(statement, "shop")
    else:
        fake.ddl(statement, schema="shop")
    fake.end()
    seen = []
    with instance_of(fake) as instance:
        instance.subscribe()
        begin = instance.position()
        with pytest.raises(canal.UnloggedChangeError, match=what) as error:
            for change in instance.changes():
                seen.append(change.op)
        assert instance.position() == begin
        assert "statements=True" in str(error.value)
        seen += [change.op for change in instance.changes(statements=True)]
    assert [op for op in seen if op.is_row] == ["insert", "insert"]
    assert not seen[-1].is_row


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD c INT DEFAULT 5",
        "CREATE TABLE u (id INT)",
        "DROP TEMPORARY TABLE t",
        "CREATE INDEX i ON t (b)",
        "ANALYZE TABLE t",
    ],
)
def test_changes_leaves_out_statements_that_change_no_rows(statement: str) -> None:
    fake = FakeBinlog()
    fake.table("shop", "t", "id INT PRIMARY KEY, b INT").insert({"id": 1, "b": 1})
    fake.ddl(statement, schema="shop")
    fake.end()
    with instance_of(fake) as instance:
        instance.subscribe()
        assert [change.op for change in instance.changes()] == ["insert"]
