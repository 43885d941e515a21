"""What is MongoDB's own: exact values of BSON, two writers, and that no document that was refused is passed over.

FerretDB has neither Decimal128 nor transactions: the one is tested by what BSON makes of it, the other with a stand-in that takes
back what an aborted transaction wrote.
"""

from __future__ import annotations

import itertools
import json
import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import bson
import pymongo
import pytest
from bson.decimal128 import Decimal128

import canal
from canal.changes import Change, Reader
from canal.errors import ConfigError, ConnectionLostError, TargetConflictError, TargetSchemaError, UnfitChangeError
from canal.rows.values import InvalidText, NoLabel, ZeroDate
from canal.schema import column_from_text
from canal.targets import JSONLinesTarget, MongoDBTarget, Progress
from canal.targets.mongodb import _adapter
from canal.testing import FakeBinlog
from canal.testing.processes import reserve_port
from tests.support.replica_set import ReplicaSet
from tests.support.target_servers import FerretDBServer

_numbers = itertools.count(1)


class Shop:
    """A table of its own on the shared server, and who writes it."""

    def __init__(self, url: str, fake: FakeBinlog) -> None:
        self.url, self.fake = url, fake
        self.name = f"orders_{os.getpid()}_{next(_numbers)}"
        self.client: Any = pymongo.MongoClient(url)
        self.collection = self.client["shop"][self.name]

    def table(self, columns: str = "id INT PRIMARY KEY, n INT") -> Any:
        return self.fake.table("shop", self.name, columns)

    def target(self, **options: Any) -> MongoDBTarget:
        return MongoDBTarget(**{"url": self.url, "decimals": "text", **options})

    def rows(self) -> dict[Any, Any]:
        return {row["id"]: row["n"] for row in self.collection.find()}

    def send(self, target: MongoDBTarget | None = None, **options: Any) -> canal.Pipe:
        self.fake.end()
        with canal.Instance(canal.InstanceConfig(destination="shop", source=self.fake, start="earliest")) as instance:
            instance.subscribe()
            made = canal.pipe(instance, target or self.target(), **{"on_error": "stop", "stream": self.name, **options})
            made.run()
            return made

    def changes(self) -> tuple[list[Change], Progress]:
        reader, found = Reader(), []
        with canal.Instance(canal.InstanceConfig(destination="changes", source=self.fake, start="earliest")) as instance:
            instance.subscribe()
            while (message := instance.get(1000, timeout=0.2)).entries:
                found += [change for entry in message.entries for change in reader.changes(entry)]
        return found, Progress(self.fake.position)


@pytest.fixture
def shop(ferretdb_server: FerretDBServer, fake_binlog: FakeBinlog) -> Any:
    made = Shop(ferretdb_server.url, fake_binlog)
    yield made
    made.client.close()


# -- values --------------------------------------------------------------------------------------------------------------

HIGH = (1 << 64) - 1
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 123000)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("bigint", -(1 << 63), -(1 << 63)),
        ("bigint unsigned", (1 << 63) - 1, (1 << 63) - 1),
        ("bigint unsigned", 1 << 63, Decimal128("9223372036854775808")),
        ("bit(64)", HIGH, Decimal128(str(HIGH))),
        ("decimal(34,4)", Decimal("9" * 30 + ".1230"), Decimal128("9" * 30 + ".1230")),
        ("decimal(10,2)", Decimal("-0.00"), Decimal128("-0.00")),
        ("decimal(35,0)", Decimal(7), "7"),
        ("decimal(65,30)", Decimal("9" * 35 + "." + "9" * 30), "9" * 35 + "." + "9" * 30),
        ("double", -0.1, -0.1),
        ("date", date(9999, 12, 31), datetime(9999, 12, 31)),
        ("datetime(3)", MOMENT, MOMENT),
        ("timestamp", MOMENT.replace(tzinfo=UTC), MOMENT),
        ("datetime(6)", MOMENT, "2026-01-31 12:00:00.123000"),
        ("timestamp(4)", datetime(2026, 1, 1, 0, 0, 0, 1, UTC), "2026-01-01 00:00:00.000001+00:00"),
        ("time(6)", -timedelta(hours=838, microseconds=1), "-838:00:00.000001"),
        ("enum('a')", "a", "a"),
        ("set('x','y')", "x,y", "x,y"),
        ("varbinary(9)", b"\0\xff", b"\0\xff"),
        ("text", "a\0ü", "a\0ü"),
        ("json", '{"a": 1}', '{"a": 1}'),
        ("json", {"a": [HIGH, Decimal("1.10"), None, True]}, {"a": [Decimal128(str(HIGH)), Decimal128("1.10"), None, True]}),
        ("int", None, None),
    ],
)
def test_a_value_is_the_same_in_bson_and_back(kind: str, value: Any, expected: Any) -> None:
    adapter = _adapter(column_from_text("c", kind), "decimal128")

    found = bson.decode(bson.encode({"c": adapter(value)}))["c"]

    assert (found, type(found) in (int, bson.Int64)) == (expected, type(expected) is int)
    assert repr(adapter(found)) == repr(found)  # as of a row that was read to put a partial image together


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        ("date", ZeroDate("2026-00-15"), "date that is none"),
        ("text", InvalidText(b"\xff", "utf8mb4"), "no text"),
        ("enum('a')", NoLabel(), "ENUM"),
        ("datetime(3)", datetime(2026, 1, 1, 0, 0, 0, 1), "more than three digits"),
        ("decimal(20,0)", Decimal("9" * 35), "34 digits"),
    ],
)
def test_what_bson_has_no_value_for_is_refused(kind: str, value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        _adapter(column_from_text("c", kind), "decimal128")(value)


def test_rows_without_an_exact_document_are_parked_and_the_others_written(shop: Shop, tmp_path: Path) -> None:
    table = shop.table("id INT PRIMARY KEY, n LONGTEXT")
    table.insert({"id": 1, "n": "a"}, {"id": 2, "n": "odd"}, {"id": 3, "n": "x" * (16 << 20)}, {"id": 4, "n": "b"})
    odd = canal.Rule(mask={"n": lambda text: text.replace("odd", "\ud800")})
    parked = JSONLinesTarget(tmp_path / "parked", encode=lambda change: json.dumps(change.row["id"]))

    with pytest.raises(UnfitChangeError, match="BSON does not have") as caught:
        shop.send(rules=[odd])
    made = shop.send(rules=[odd], on_unfit=parked)

    assert [change.row["id"] for change in caught.value.changes] == [2, 3]
    assert shop.rows() == {1: "a", 4: "b"}
    assert [made.status().parked, (tmp_path / "parked").read_text().split()] == [2, ["2", "3"]]


def test_keys_of_several_columns_are_documents_and_partial_images_find_them(shop: Shop) -> None:
    table = shop.table("a VARCHAR(9), id BIGINT UNSIGNED, n INT, m INT, PRIMARY KEY (a, id)")
    table.insert({"a": "x", "id": 1, "n": 1, "m": 1}, {"a": "x", "id": HIGH, "n": 2, "m": 2}, {"a": "y", "id": 1, "n": 3, "m": 3})
    shop.fake.row_image = "MINIMAL"
    table.update({"a": "x", "id": HIGH, "n": 2, "m": 2}, {"n": 7})
    shop.send(batch_size=1)

    found = {tuple(row["_id"].items()): (row["n"], row["m"]) for row in shop.collection.find()}
    assert found == {(("a", "x"), ("id", 1)): (1, 1), (("a", "x"), ("id", str(HIGH))): (7, 2), (("a", "y"), ("id", 1)): (3, 3)}


@pytest.mark.parametrize("name", ["_id", "$n", "a.b"])
def test_columns_that_are_no_fields_are_refused(name: str, shop: Shop) -> None:
    shop.table(f"id INT PRIMARY KEY, `{name}` INT").insert({"id": 1, name: 2})

    with pytest.raises(TargetSchemaError, match="no name of a field"):
        shop.send()
    shop.send(rules=[canal.Rule(rename={name: "n"})])

    assert shop.rows() == {1: 2}


@pytest.mark.parametrize(
    ("to", "says"), [("a b.c", "in a name"), ("canal.canal_progress", "something else"), ("shop.", "in a name")]
)
def test_tables_that_are_no_collection_are_refused(to: str, says: str, shop: Shop) -> None:
    shop.table().insert({"id": 1, "n": 1})

    with pytest.raises(ConfigError, match=says):
        shop.send(rules=[canal.Rule(to=to)])


def test_two_tables_that_would_be_one_collection_are_refused(shop: Shop) -> None:
    shop.table().insert({"id": 1, "n": 1})
    shop.fake.table("shop", f"{shop.name}_t", "id INT PRIMARY KEY").insert({"id": 1})
    rules = [canal.Rule(tables=r".*_t", to=f"canal.{shop.name}"), canal.Rule(to=shop.name)]

    with pytest.raises(ConfigError, match="something else"):
        shop.send(rules=rules)


# -- writers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True])
def test_a_late_writer_is_refused_before_it_writes(known: bool, shop: Shop) -> None:
    shop.table().insert(*({"id": n, "n": n} for n in (1, 2, 3)))
    (first, second, third), progress = shop.changes()
    with shop.target().begin("s") as early, shop.target().begin("s") as late:
        for work in (early, late):
            work.progress(shop.name)
        if known:
            early.apply([first])
            early.commit(progress, shop.name)
            late.progress(shop.name)
        early.apply([second])
        early.commit(attrs.evolve(progress, epoch=1), shop.name)
        late.apply([third])
        with pytest.raises(TargetConflictError):
            late.commit(attrs.evolve(progress, epoch=2), shop.name)

    assert shop.rows() == ({1: 1} if known else {}) | {2: 2}


def test_a_row_that_a_unique_index_refuses_is_parked(shop: Shop, tmp_path: Path) -> None:
    shop.collection.create_index("n", unique=True)
    shop.collection.insert_one({"_id": "mine", "id": "mine", "n": 2})
    shop.table().insert({"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 3})

    with pytest.raises(UnfitChangeError, match="unique index") as caught:
        shop.send()
    shop.send(on_unfit=JSONLinesTarget(tmp_path / "parked"))

    assert [change.row["id"] for change in caught.value.changes] == [2]
    assert shop.rows() == {1: 1, 3: 3, "mine": 2}


def test_a_server_without_transactions_is_refused_where_they_are_wanted(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="no replica set"), shop.target(transactions=True).begin("s"):
        pass


def test_a_server_that_is_not_there_is_a_lost_connection() -> None:
    with reserve_port(0) as port:
        url = f"mongodb://me:pw@127.0.0.1:{port.getsockname()[1]}/"
        with pytest.raises(ConnectionLostError) as caught, MongoDBTarget(url, timeout=0.2).begin("s"):
            pass
    assert "pw" not in f"{caught.value}"


# -- transactions, of the stand-in ---------------------------------------------------------------------------------------


def test_all_of_a_transaction_is_of_its_session_and_the_progress_comes_first(shop: Shop, replica_set: ReplicaSet) -> None:
    shop.table().insert({"id": 1, "n": 1})
    shop.fake.ddl(f"TRUNCATE TABLE shop.{shop.name}", "shop")
    shop.table().insert({"id": 2, "n": 2})

    shop.send(target=shop.target(url=replica_set.url, transactions=True))

    wanted = ["insert canal_progress", f"delete {shop.name}", f"insert {shop.name}", "commitTransaction"]
    assert replica_set.commands == wanted


@pytest.mark.parametrize("transactions", [False, True])
def test_a_majority_has_what_is_confirmed_and_what_is_believed(transactions: bool, shop: Shop, replica_set: ReplicaSet) -> None:
    shop.table().insert({"id": 1, "n": 1})

    shop.send(target=shop.target(url=replica_set.url, transactions=transactions))

    writes = {"commitTransaction"} if transactions else {"insert", "update"}
    assert replica_set.concerns == {(name, "majority") for name in {"find"} | writes}


@pytest.mark.parametrize("command", ["insert", "update", "commitTransaction"])
def test_a_connection_that_breaks_within_a_transaction_leaves_all_or_nothing(
    command: str, shop: Shop, replica_set: ReplicaSet
) -> None:
    shop.table().insert({"id": 1, "n": 1})
    changes, progress = shop.changes()
    target = shop.target(url=replica_set.url, transactions=True)
    replica_set.lost = lambda name: name == command
    with target.begin("s-" + shop.name) as work:
        work.apply(changes)
        with pytest.raises(ConnectionLostError):
            work.commit(progress)
    replica_set.lost = lambda name: False

    with target.begin("s-" + shop.name) as work:
        is_there = work.progress() == progress

    assert (is_there, shop.rows()) == ((True, {1: 1}) if command == "commitTransaction" else (False, {}))


def test_a_row_that_is_refused_takes_its_transaction_back_and_is_parked(
    shop: Shop, replica_set: ReplicaSet, tmp_path: Path
) -> None:
    shop.collection.create_index("n", unique=True)
    shop.collection.insert_one({"_id": "mine", "id": "mine", "n": 2})
    shop.table().insert({"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 3})
    target = shop.target(url=replica_set.url, transactions=True)

    with pytest.raises(UnfitChangeError, match="unique index"):
        shop.send(target=target)
    assert shop.rows() == {"mine": 2}
    shop.send(target=target, on_unfit=JSONLinesTarget(tmp_path / "parked"))

    assert shop.rows() == {1: 1, 3: 3, "mine": 2}


def test_a_writer_beside_an_open_transaction_is_refused(shop: Shop, replica_set: ReplicaSet) -> None:
    shop.table().insert({"id": 1, "n": 1})
    changes, progress = shop.changes()
    replica_set.open = b"of a process that was killed"
    with shop.target(url=replica_set.url, transactions=True).begin(shop.name) as work:
        work.apply(changes)
        with pytest.raises(TargetConflictError):
            work.commit(progress)
        replica_set.open = None
        work.apply(changes)
        work.commit(progress)

    assert shop.rows() == {1: 1}


# -- what cannot be ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"url": "host:27017"}, {"url": "mongodb:///"}, {"timeout": 0}, {"decimals": "float"}])
def test_options_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MongoDBTarget(**{"url": "mongodb://host/", **options})


@pytest.mark.parametrize("options", [{"url": "mongodb://me:p@w@host/"}, {"options": {"tlsCAFile": "/pw"}}])
def test_what_pymongo_does_not_take_is_refused_without_a_secret(options: dict[str, Any]) -> None:
    target = MongoDBTarget(**{"url": "mongodb://h/", **options})
    with pytest.raises(ConfigError, match="does not take") as caught, target.begin("s"):
        pass
    assert "p@w" not in f"{caught.value}"


def test_nothing_secret_is_shown() -> None:
    target = MongoDBTarget("mongodb://me:pw@one:27017,two/?replicaSet=rs0", options={"password": "pw"})

    assert f"{target}" == "MongoDB one:27017,two"
    assert "pw" not in repr(target)
