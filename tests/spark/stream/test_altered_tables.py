"""Statements under a query: what ends it, what an option takes, what passes, and a query of many tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from canal.errors import ConfigError, SchemaError, UnloggedChangeError
from canal.spark.source import CanalSource
from canal.spark.stream.stretch import Stretch
from tests.support.engine import Engine, rows_of
from tests.support.shop import COLUMNS, Shop, both, seen

# -- what a query cannot go on after --------------------------------------------------------------------------------------------


def test_new_columns_end_the_batch_and_the_query_until_it_is_loaded_anew(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        shop.insert(2)
        shop.orders.alter("ALTER TABLE orders ADD more INT", COLUMNS + ", more INT")
        with shop.fake.transaction():
            shop.other.insert({"id": 1})
            shop.orders.insert({"id": 50, "note": "x", "more": 5})
        assert seen(engine.until(2)) == shop.expected
        with pytest.raises(SchemaError, match="more is new.*load it anew"):
            engine.until(3)
        engine.stop()
        engine.start()
        rows = engine.until(3)
        assert (rows[-1]["id"], rows[-1]["more"]) == (50, 5)


def test_a_column_that_goes_ends_the_query_too(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        shop.insert(1)
        engine.until(1)
        shop.orders.alter("ALTER TABLE orders DROP note", "id INT PRIMARY KEY")
        shop.orders.insert({"id": 50})
        with pytest.raises(SchemaError, match="note was dropped"):
            engine.until(2)
        engine.stop()
        engine.start()
        assert "note" not in engine.until(2)[-1]


def test_rows_of_before_the_query_lack_what_the_table_has_got_since(shop: Shop, query: Callable[..., Engine]) -> None:
    shop.insert(1)
    shop.orders.alter("ALTER TABLE orders ADD more INT", COLUMNS + ", more INT")
    shop.orders.insert({"id": 9, "note": "x", "more": 5})
    with query() as engine:
        engine.start()
        rows = engine.until(2)
    assert [(row["more"], row["_absent"]) for row in rows] == [(None, ["more"]), (5, None)]


def test_keep_goes_on_with_the_columns_of_the_start(shop: Shop, query: Callable[..., Engine]) -> None:
    with query(schemaChange="keep") as engine:
        engine.start()
        engine.step()
        shop.insert(1)
        shop.orders.alter("ALTER TABLE orders ADD more INT", COLUMNS + ", more INT")
        shop.orders.insert({"id": 9, "note": "x", "more": 5})
        rows = engine.until(2)
    assert [row["_extra"] for row in rows] == [None, [("more", "5")]]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("TRUNCATE TABLE orders", "emptied by TRUNCATE"),
        ("DROP TABLE orders", "dropped"),
        ("DROP TABLE shop.other, shop.orders", "dropped"),
        ("RENAME TABLE orders TO old", "renamed"),
        ("RENAME TABLE fresh TO orders", "another table was renamed"),
        ("ALTER TABLE orders TRUNCATE PARTITION p1", "partitions"),
        ("ALTER TABLE orders DROP PARTITION p1", "partitions"),
        ("CREATE OR REPLACE TABLE orders (id INT)", "replaced"),
        ("DROP DATABASE shop", "dropped with its database"),
        ("-- the old one\nDROP DATABASE shop", "dropped with its database"),
        ("CREATE OR REPLACE DATABASE shop", "dropped with its database"),
        ("ALTER TABLE orders DROP /* the old */ PARTITION p1", "partitions"),
        ("ALTER TABLE other EXCHANGE PARTITION p1 WITH TABLE orders", "partitions"),
        ("ALTER TABLE orders CONVERT PARTITION p1 TO TABLE old", "partitions"),
        ("ALTER TABLE other CONVERT TABLE orders TO PARTITION p1 VALUES LESS THAN (3)", "partitions"),
        ("ALTER IGNORE TABLE orders ADD UNIQUE (note)", "altered with IGNORE"),
    ],
)
def test_a_loss_of_rows_that_the_log_does_not_tell_is_loud(shop: Shop, query: Callable[..., Engine], sql: str, says: str) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        shop.insert(2)
        shop.fake.ddl(sql, "shop")
        shop.insert(1)
        assert seen(engine.until(2)) == shop.expected[:2]
        with pytest.raises(UnloggedChangeError, match=says):
            engine.until(3)
        engine.stop()
        engine.start(onTruncate="ignore")
        assert seen(engine.until(3)) == shop.expected


def test_an_alter_in_a_backlog_that_executors_read_is_loud_too(shop: Shop, query: Callable[..., Engine]) -> None:
    """The types of the rows before the backlog are in the offset, and the batch is planned beyond the ALTER."""
    shop.insert(1)
    with query() as engine:
        engine.start()
        engine.until(1)
        engine.stop()
        shop.fake.rotate()
        shop.orders.alter("ALTER TABLE orders MODIFY note VARCHAR(99)", "id INT PRIMARY KEY, note VARCHAR(99)")
        shop.insert(1)
        shop.fake.rotate()
        shop.insert(1)
        for _ in range(2):
            engine.start(backlogFiles=1)
            with pytest.raises(UnloggedChangeError, match="note was varchar") as found:
                engine.until(3)
            assert isinstance(engine.partitions[len(engine.offsets) - 1][0].what, Stretch)
            engine.stop()
        engine.start(acknowledge=found.value.position)
        engine.until(3)


def test_a_range_of_the_log_is_told_what_may_be_done_with_a_range(shop: Shop) -> None:
    shop.insert(1)
    shop.fake.ddl("DROP DATABASE shop", "shop")
    shop.insert(1)
    with shop.fake.serve(user="cdc", password="s3cr3t") as server:
        options = {"host": server.host, "port": str(server.port), "user": "cdc", "password": "s3cr3t", "table": "shop.orders"}
        source = CanalSource(options)
        reader = source.reader(source.schema())
        with pytest.raises(UnloggedChangeError, match=r"dropped with its database.*Read the range in two.*onTruncate=ignore\.$"):
            rows_of(reader, reader.partitions(), source.schema())


@both
def test_a_primary_key_that_is_dropped_is_loud(shop: Shop, query: Callable[..., Engine]) -> None:
    """A target with that key would hold one of several rows."""
    with query() as engine:
        engine.start()
        engine.step()
        shop.insert(1)
        shop.fake.ddl("ALTER TABLE orders DROP PRIMARY KEY", "shop")
        shop.insert(1)
        with pytest.raises(UnloggedChangeError, match="drops its primary key.*schemaChange=keep"):
            engine.until(2)
        engine.stop()
        engine.start(schemaChange="keep")
        assert seen(engine.until(2)) == shop.expected


@both
@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
def test_chosen_columns_are_all_that_a_stream_has(shop: Shop, query: Callable[..., Engine], image: str) -> None:
    shop.fake.row_image = image
    made = "id INT PRIMARY KEY, a INT, at DATETIME, hidden DATETIME, w VARCHAR(9)"
    people = shop.fake.table("shop", "people", made)
    with query(table="shop.people", columns="A, id,at", schemaChange="keep") as engine:
        engine.start()
        assert engine.struct.fieldNames()[5:8] == ["id", "a", "at"]
        people.insert({"id": 1, "a": 2, "at": "0000-00-00 00:00:00", "hidden": "0000-00-00 00:00:00", "w": "x"})
        people.update({"id": 1, "a": 2, "at": None, "hidden": None, "w": "x"}, {"w": "z"})
        rows = engine.until(2)
    assert [rows[0][name] for name in ("id", "a", "_exact", "_extra")] == [1, 2, [("at", "0000-00-00 00:00:00")], None]
    assert rows[1]["_absent"] == (None if image == "FULL" else ["id", "a", "at"])
    assert rows[1]["_before"].keys() == {"id", "a", "at", "_absent", "_exact", "_extra"}
    assert rows[1]["_before"]["_absent"] == (None if image == "FULL" else ["a", "at"])


def test_a_column_that_cannot_be_chosen_is_told(shop: Shop, query: Callable[..., Engine]) -> None:
    with pytest.raises(ConfigError, match="shop.orders has no columns nothing"):
        query(columns="id,nothing").start()
    with pytest.raises(ConfigError, match="columns goes with table"):
        query(tables=".*", columns="id").start()


def test_a_renamed_table_is_followed_by_its_new_name(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        shop.insert(1)
        shop.fake.ddl("RENAME TABLE orders TO old", "shop")
        with pytest.raises(UnloggedChangeError, match="Follow the table's new name, with a new checkpoint and a snapshot"):
            engine.until(2)


@both
def test_what_harms_no_row_passes(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        shop.insert(1)
        for sql in (
            "ALTER TABLE orders ADD INDEX (note)",
            "ALTER TABLE orders DROP INDEX note",
            "DROP INDEX `primary_note` ON orders",
            "ALTER TABLE other DROP PRIMARY KEY",
            "ALTER TABLE orders DROP FOREIGN KEY `PRIMARY`",
            "CREATE TABLE IF NOT EXISTS orders (id INT)",
            "TRUNCATE TABLE other",
            "DROP TABLE other",
            "DROP DATABASE else",
            "ANALYZE TABLE orders",
            "DROP TEMPORARY TABLE orders",
            "ALTER TABLE orders COMMENT 'we drop partition p1'",
            "ALTER TABLE orders CONVERT TO CHARACTER SET utf8mb4",
            "CREATE DATABASE IF NOT EXISTS shop",
            "ALTER TABLE orders REMOVE PARTITIONING",
        ):
            shop.fake.ddl(sql, "shop")
        shop.insert(1)
        assert seen(engine.until(2)) == shop.expected


NARROWER = "ALTER TABLE orders MODIFY note VARCHAR(2)"
UNKNOWN = "its columns before that are not known"


@both
@pytest.mark.parametrize("sql", [NARROWER, "ALTER TABLE orders MODIFY note TEXT", "ALTER TABLE orders CONVERT TO CHARSET utf8"])
def test_an_alter_before_the_first_row_of_a_checkpoint_is_loud(shop: Shop, query: Callable[..., Engine], sql: str) -> None:
    """Nobody knows what the columns were before that."""
    with query() as engine:
        engine.start()
        engine.step()
        shop.fake.ddl(sql, "shop")
        for _ in range(2):
            with pytest.raises(UnloggedChangeError, match=UNKNOWN) as found:
                engine.until(1)
            engine.stop()
            engine.start()
        shop.insert(1)
        engine.stop()
        engine.start(acknowledge=found.value.position)
        assert seen(engine.until(1)) == shop.expected


def test_a_dropped_column_tells_nothing_of_the_others(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        engine.stop()
        shop.fake.ddl("ALTER TABLE orders DROP note", "shop")
        shop.fake.ddl("ALTER TABLE orders MODIFY id INT", "shop")
        shop.fake.ddl("ALTER TABLE orders ADD note VARCHAR(2000)", "shop")
        shop.insert(1)
        engine.start()
        with pytest.raises(UnloggedChangeError, match=UNKNOWN) as found:
            engine.until(1)
        engine.stop()
        engine.start(schemaChange="keep", acknowledge=found.value.position)
        engine.until(1)


def test_a_column_that_came_in_the_place_of_a_dropped_one_is_loud(shop: Shop, query: Callable[..., Engine]) -> None:
    """Also where no row came before: a target that was filled by other means has the values of the one that is gone."""
    with query() as engine:
        engine.start()
        engine.step()
        engine.stop()
        shop.fake.ddl("ALTER TABLE orders DROP note", "shop")
        shop.fake.ddl("ALTER TABLE orders ADD note VARCHAR(2000)", "shop")
        shop.insert(1)
        engine.start()
        with pytest.raises(UnloggedChangeError, match="note was dropped, is"):
            engine.until(1)


@pytest.mark.parametrize("made", ["CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(20))", "TRUNCATE TABLE orders"])
def test_an_alter_of_a_table_that_has_no_rows_passes(shop: Shop, query: Callable[..., Engine], made: str) -> None:
    """Also where the query is begun anew between."""
    with query(onTruncate="row") as engine:
        engine.start()
        engine.step()
        shop.fake.ddl(made, "shop")
        engine.step()
        engine.stop()
        engine.start()
        shop.fake.ddl(NARROWER, "shop")
        shop.insert(1)
        assert seen(engine.until(2 if made[0] == "T" else 1))[-1:] == shop.expected


def test_an_alter_of_columns_that_were_not_chosen_passes(shop: Shop, query: Callable[..., Engine]) -> None:
    with query(columns="id") as engine:
        engine.start()
        engine.step()
        shop.fake.ddl(NARROWER, "shop")
        shop.insert(1)
        assert len(engine.until(1)) == 1
        shop.fake.ddl("ALTER TABLE orders MODIFY note VARCHAR(2), MODIFY id TINYINT", "shop")
        with pytest.raises(UnloggedChangeError, match="its columns behind that are not known"):
            engine.until(2)


def test_an_alter_behind_rows_that_executors_read_is_loud(shop: Shop, query: Callable[..., Engine]) -> None:
    """They have met other types than the offset has: the ALTER takes back what another one in the backlog did."""
    shop.insert(1)
    with query() as engine:
        engine.start()
        engine.until(1)
        engine.stop()
        shop.fake.rotate()
        shop.insert(1)
        shop.orders.alter("ALTER TABLE orders MODIFY note TEXT", "id INT PRIMARY KEY, note TEXT")
        shop.insert(1)
        shop.fake.rotate()
        engine.start(backlogFiles=1)
        engine.until(3)
        shop.orders.alter("ALTER TABLE orders MODIFY note VARCHAR(2000)", COLUMNS)
        with pytest.raises(UnloggedChangeError, match=UNKNOWN):
            engine.until(4)


def test_an_alter_in_a_later_file_of_a_backlog_is_loud(shop: Shop, query: Callable[..., Engine]) -> None:
    """Each file is read by itself: what the one before it widened is not known in it."""
    shop.insert(1)
    with query() as engine:
        engine.start()
        engine.until(1)
        engine.stop()
        shop.orders.alter("ALTER TABLE orders MODIFY note TEXT", "id INT PRIMARY KEY, note TEXT")
        shop.insert(1)
        shop.fake.rotate()
        shop.orders.alter("ALTER TABLE orders MODIFY note VARCHAR(2000)", COLUMNS)
        shop.fake.rotate()
        engine.start(backlogFiles=1)
        with pytest.raises(UnloggedChangeError, match=UNKNOWN):
            engine.until(3)


def test_a_narrower_column_ends_a_query_where_no_row_comes_behind_it(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        shop.insert(2)
        engine.until(2)
        shop.fake.ddl("ALTER TABLE orders MODIFY note VARCHAR(2)", "shop")
        shop.fake.ddl("ALTER TABLE orders ADD INDEX (note)", "shop")
        for _ in range(2):
            with pytest.raises(UnloggedChangeError, match=r"note was varchar\(\d+\).*, is varchar\(2\)") as found:
                engine.until(3)
            engine.stop()
            engine.start()
        engine.stop()
        engine.start(acknowledge=found.value.position)
        shop.insert(1)
        engine.until(3)


def test_truncate_and_drop_as_rows(shop: Shop, query: Callable[..., Engine]) -> None:
    with query(onTruncate="row") as engine:
        engine.start()
        shop.insert(1)
        shop.fake.ddl("TRUNCATE TABLE orders", "shop")
        shop.insert(1)
        shop.fake.ddl("DROP TABLE orders", "shop")
        rows = engine.until(4)
        assert [(row["_op"], row["id"]) for row in rows] == [("I", 0), ("T", None), ("I", 1), ("T", None)]
        assert sorted(row["_txn"] for row in rows) == [row["_txn"] for row in rows]
        shop.orders.alter("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(99))", "id INT PRIMARY KEY, note VARCHAR(99)")
        shop.insert(1)
        engine.until(5)  # narrower, but of no row that is there


def test_a_statement_whose_rows_are_not_in_the_log_is_loud(shop: Shop, query: Callable[..., Engine]) -> None:
    """What comes before it in its transaction is delivered, once."""
    with query() as engine:
        engine.start()
        engine.step()
        with shop.fake.transaction() as transaction:
            shop.orders.insert({"id": 100})
            transaction.query("UPDATE orders SET note = NULL", "shop")
            shop.orders.insert({"id": 101})
        assert [row["id"] for row in engine.until(1)] == [100]
        with pytest.raises(UnloggedChangeError, match="rows are not in the log"):
            engine.until(2)
        engine.stop()
        shop.insert(1)
        engine.start(onStatement="ignore")
        assert [row["id"] for row in engine.until(3)] == [100, 101, 0]


def test_a_statement_that_does_not_tell_its_tables_is_loud(shop: Shop, query: Callable[..., Engine]) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        with shop.fake.transaction() as transaction:
            shop.orders.insert({"id": 100})
            transaction.query("SELECT restock()", "shop")
        assert [row["id"] for row in engine.until(1)] == [100]
        with pytest.raises(UnloggedChangeError, match="does not tell its tables"):
            engine.until(2)
        engine.stop()
        shop.insert(1)
        engine.start(onStatement="ignore")
        assert [row["id"] for row in engine.until(2)] == [100, 0]


@pytest.mark.parametrize("sql", ["REFILL orders", "DROP TABLE other VERY QUICKLY orders", "RENAME other TO orders"])
def test_a_statement_that_is_not_understood_is_loud(shop: Shop, query: Callable[..., Engine], sql: str) -> None:
    with query() as engine:
        engine.start()
        engine.step()
        shop.insert(1)
        shop.fake.ddl(sql, "shop")
        shop.insert(1)
        engine.until(1)
        with pytest.raises(UnloggedChangeError, match="not understood may have changed shop.orders.*onStatement=ignore"):
            engine.until(2)
        engine.stop()
        engine.start(onStatement="ignore")
        assert seen(engine.until(2)) == shop.expected


# -- many tables ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["file", "bytes"])
def test_many_tables_come_as_an_envelope(shop: Shop, query: Callable[..., Engine], form: str) -> None:
    with query(tables=r"shop\..*", transport=form) as engine:
        engine.start()
        engine.step()
        shop.orders.insert({"id": 1, "note": "a"})
        shop.fake.ddl("TRUNCATE TABLE orders", "shop")
        shop.other.insert({"id": 2})
        shop.other.update({"id": 2}, {"note": "é"})
        rows = engine.until(4)
        before = [row for row in rows if row["_op"] != "T"]
        engine.stop()
        engine.offsets, engine.committed, engine.sink = [engine.offsets[0], engine.offsets[-1]], 1, {0: []}
        engine.start()
        engine.step()
        assert engine.rows == before
    assert [(row["_op"], row["table"], row["data"], row["old"], row["sql"]) for row in rows] == [
        ("I", "orders", '{"id":1,"note":"a"}', None, None),
        ("Q", "orders", None, None, "TRUNCATE TABLE orders"),
        ("I", "other", '{"id":2,"note":null}', None, None),
        ("U", "other", '{"id":2,"note":"é"}', '{"note":null}', None),
    ]
