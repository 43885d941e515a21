"""Queries on an Instance that the driver shares: each gets what a query of its own would get, wherever it stands."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from canal import LocalBinlogSource
from canal.errors import ConfigError, PositionLostError
from canal.position import Position
from canal.spark.sharing import _served
from tests.support.driver import WAIT, Driver
from tests.support.engine import Engine
from tests.support.shop import Shop, rename, seen, told
from tests.support.waiting import until

both = pytest.mark.parametrize("shop", ["mysql", "mariadb"], indirect=True)


def drain(driver: Driver, count: int, client_id: int = 1001) -> None:
    """Have a client of the driver get and ack so many rows of the orders."""
    while count > 0:
        message = driver.instance.get(timeout=WAIT, client_id=client_id)
        count -= sum(entry.row_count for entry in message if entry.header.table == "orders")
    driver.instance.get(client_id=client_id)  # which acks


# -- one Instance, several queries ----------------------------------------------------------------------------------------


@both
def test_two_queries_and_a_client_of_the_driver_each_get_everything(shop: Shop, driver: Driver) -> None:
    driver.instance.subscribe()
    one, two = driver.query(), driver.query()
    for engine in (one, two):
        engine.start()
        engine.step()
    for count in (1, 40, 3):
        shop.insert(count)
        shop.other.insert({"id": shop.next})
    direct: list[int] = []

    assert seen(one.until(44)) == shop.expected
    assert seen(two.until(44)) == shop.expected
    while len(direct) < 44:
        message = driver.instance.get(timeout=WAIT)
        direct += [row.after["id"] for entry in message for row in entry.rows if entry.header.table == "orders"]
    assert direct == list(range(44))
    assert len(driver.clients()) == 3
    one.stop()
    two.stop()
    until(lambda: list(driver.clients()) == [1001])


@both
@pytest.mark.parametrize("options", [{}, {"maxRowsPerBatch": 7}])
def test_the_rows_are_those_of_a_query_with_a_connection_of_its_own(
    shop: Shop, driver: Driver, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Rows, orders and positions; the GTIDs, the statements and the begin of a transaction in pieces too."""
    own = Engine(
        {
            "host": driver.server.host,
            "port": driver.server.port,
            "user": "cdc",
            "password": "s3cr3t",
            "table": "shop.orders",
            "startingPosition": "earliest",
            "spoolDir": tmp_path / "spool",
            "transport": "file",
            "pollTimeout": "0.2",
            **options,
        }
    )
    driver.made.append(own)
    engine = driver.query(**options)
    for query in (own, engine):
        query.start()
        query.step()
    for count in (1, 25, 2):
        shop.insert(count)
    with shop.fake.transaction():
        shop.orders.update({"id": 0, "note": "0:".ljust(10, "x")}, {"note": None})
        shop.orders.delete({"id": 1, "note": "1:".ljust(10, "x")})
    shop.fake.rotate()
    shop.insert(3)

    assert engine.until(33) == own.until(33)
    ends = [json.loads(one.offsets[-1]) for one in (engine, own)]
    assert ends[0] == ends[1]


def test_an_envelope_has_the_tables_that_both_filters_pass_live_and_cold(shop: Shop, driver: Driver) -> None:
    driver.stop()
    driver.start(filter=r"shop\.o.*,nothing\..*", black_filter=r"shop\.oddities")
    odd = shop.fake.table("shop", "oddities", "id INT PRIMARY KEY")
    third = shop.fake.table("shop", "third", "id INT PRIMARY KEY")
    engine = driver.query(tables=r"shop\..*")
    engine.start()
    engine.step()
    for table in (shop.orders, shop.other, odd, third):
        table.insert({"id": 1})
    shop.fake.ddl("ALTER TABLE other COMMENT = 'x'", "shop")

    live = engine.until(3)
    assert [(row["_op"], row["table"]) for row in live] == [("I", "orders"), ("I", "other"), ("Q", "other")]
    engine.stop()
    engine.committed = 1  # the crash before the commit: all is planned again from the log
    engine.sink.clear()
    engine.offsets[1:] = engine.offsets[-1:]
    engine.start()
    engine.plan()
    assert engine.run() == live


def test_the_store_is_freed_when_a_batch_is_in_the_spool(shop: Shop, driver: Driver) -> None:
    engine = driver.query()
    engine.start()
    engine.step()
    shop.insert(100)
    engine.plan()  # and never commits
    until(lambda: driver.instance.status().store.entries == 0)


def test_an_idle_query_moves_on_over_what_is_of_no_interest(shop: Shop, driver: Driver) -> None:
    engine = driver.query(idleAdvance="0")
    engine.start()
    shop.insert(1)
    engine.until(1)
    before = engine.offsets[-1]
    shop.other.insert({"id": 1})
    position = shop.fake.position

    def moved() -> bool:
        engine.step()
        return engine.offsets[-1] != before

    until(moved)
    found = Position.from_text(json.dumps(json.loads(engine.offsets[-1])["position"]))
    assert (found.journal, found.offset, found.gtid) == (position.journal, position.offset, position.gtid)
    assert len(engine.rows) == 1


def test_available_now_ends_at_what_is_there(shop: Shop, driver: Driver) -> None:
    shop.insert(5)
    engine = driver.query()
    engine.start(available_now=True)
    while engine.step():
        pass
    assert seen(engine.rows) == shop.expected


def test_available_now_waits_for_what_the_store_has_no_room_for(shop: Shop, driver: Driver) -> None:
    """All of the log was read, but a client that is slower holds up the last transaction."""
    driver.stop()
    driver.start(store_entries=8)
    driver.instance.subscribe()  # and does not get until the query has waited
    for _ in range(3):  # of three entries each
        shop.insert(1)
    engine = driver.query()
    engine.start(available_now=True)
    while len(engine.rows) < 2:
        assert engine.step()
    until(lambda: driver.instance.status().store.waited > 0)
    planned: list[bool] = []
    planning = threading.Thread(target=lambda: planned.append(engine.plan()))
    planning.start()
    planning.join(2.0)
    drain(driver, 3)
    planning.join(WAIT)

    assert planned == [True]
    engine.run()
    assert seen(engine.rows) == shop.expected
    engine.committed = len(engine.offsets)
    assert not engine.step()


# -- where the query and the Instance stand -------------------------------------------------------------------------------


def test_what_the_instance_has_no_more_is_read_again(shop: Shop, driver: Driver) -> None:
    """P before C: the query was down while others went on. Its cold batch comes first, then the gap, then the Instance."""
    driver.instance.subscribe()
    engine = driver.query()
    engine.start()
    engine.step()
    shop.insert(3)
    engine.until(3)
    shop.insert(2)
    until(engine.plan)
    engine.stop()
    shop.insert(20)
    drain(driver, 25)
    engine.start()
    assert seen(engine.until(25)) == shop.expected
    shop.insert(4)
    assert seen(engine.until(29)) == shop.expected


def test_files_that_end_before_what_is_read_again_are_an_error(shop: Shop, driver: Driver, tmp_path: Path) -> None:
    shop.insert(1)
    end = shop.fake.journals[-1][1]
    shop.insert(2)
    shop.fake.write(tmp_path / "logs")
    driver.stop()
    driver.start(source=LocalBinlogSource(tmp_path / "logs"))
    driver.instance.subscribe()
    drain(driver, 3)
    journal = tmp_path / "logs" / shop.fake.journals[-1][0]
    journal.write_bytes(journal.read_bytes()[:end])
    engine = driver.query(startingPosition="earliest")
    engine.start()
    with pytest.raises(PositionLostError, match="the log ends at"):
        engine.until(3)


@pytest.mark.parametrize("options", [{}, {"clientId": 7}])
def test_what_was_acked_and_never_reached_the_checkpoint_is_read_again(
    shop: Shop, driver: Driver, options: dict[str, int]
) -> None:
    engine = driver.query(**options)
    engine.start()
    engine.step()
    shop.insert(3)
    until(engine.plan)
    engine.offsets.pop()  # a crash before Spark wrote it down
    until(lambda: driver.instance.status().store.entries == 0)
    engine.stop()
    until(lambda: not _served)
    shop.insert(2)
    engine.start()
    assert seen(engine.until(5)) == shop.expected


def test_what_the_query_has_already_is_passed_over(shop: Shop, driver: Driver) -> None:
    """P after C: a slow client of the driver holds the Instance back."""
    driver.instance.subscribe()  # and never gets
    engine = driver.query()
    engine.start()
    engine.step()
    shop.insert(12)
    shop.insert(1)
    engine.until(13)
    engine.stop()
    engine.start()
    for _ in range(3):
        assert not engine.step()
    shop.insert(4)
    assert seen(engine.until(17)) == shop.expected


def test_a_query_goes_on_inside_an_oversized_transaction(shop: Shop, driver: Driver) -> None:
    driver.instance.subscribe()
    engine = driver.query(maxTransactionBytes=20_000, maxBytesPerBatch=20_000)
    engine.start()
    engine.step()
    shop.insert(100, size=1000)
    until(engine.plan)
    assert json.loads(engine.offsets[-1])["position"].get("row")
    engine.run()
    engine.committed = len(engine.offsets)
    engine.stop()
    engine.start()
    assert seen(engine.until(100)) == shop.expected


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_a_query_begins_where_it_is_told(shop: Shop, driver: Driver, start: str) -> None:
    driver.instance.subscribe()
    shop.insert(3)
    drain(driver, 3)
    engine = driver.query(startingPosition=start)
    engine.start()
    engine.step()
    shop.insert(2)
    assert seen(engine.until(5 if start == "earliest" else 2)) == shop.expected[0 if start == "earliest" else 3 :]


@pytest.mark.parametrize("is_behind", [False, True])
def test_the_place_of_latest_counts_where_its_gtid_set_is_behind(shop: Shop, driver: Driver, is_behind: bool) -> None:
    shop.insert(1)
    before = shop.fake.executed
    shop.insert(2)
    start = told(shop, before)
    if is_behind:  # what it has no more is read again
        driver.instance.subscribe()
        shop.insert(1)
        drain(driver, 4)
    else:
        shop.insert(1)
    engine = driver.query(startingPosition=start)
    engine.start()
    shop.insert(2)

    assert seen(engine.until(3)) == shop.expected[3:]


@pytest.mark.parametrize("where", ["at", "before", "behind"])
def test_files_of_another_name_go_on_in_the_next_epoch(shop: Shop, driver: Driver, where: str) -> None:
    driver.instance.subscribe()
    for _ in range(3):
        shop.fake.rotate()
    if where == "behind":  # a client that is slower than the checkpoint
        driver.instance.subscribe(client_id=5)
    shop.insert(2)
    engine = driver.query(**({"clientId": 5} if where == "behind" else {}))
    engine.start()
    engine.until(2)
    if where == "before":
        engine.stop()
    rename(shop, "renamed")
    shop.insert(1)
    if where == "before":
        drain(driver, 3)
        engine.start()
    shop.insert(3)

    assert seen(engine.until(6)) == shop.expected
    assert [row["_txn"] >> 58 for row in engine.rows] == [0, 0, 1, 1, 1, 1]


def test_a_source_that_cannot_be_handed_over_is_an_error_that_names_the_gap(shop: Shop, driver: Driver) -> None:
    driver.stop()
    driver.start(source=shop.fake)
    engine = driver.query()
    engine.start()
    engine.step()
    shop.insert(3)
    assert seen(engine.until(3)) == shop.expected  # live it needs no source
    position = json.loads(engine.offsets[-1])["position"]
    until(lambda: driver.instance.status().store.entries == 0)
    engine.stop()
    driver.instance.subscribe(5)
    shop.insert(2)
    drain(driver, 2, client_id=5)
    until(lambda: list(driver.clients()) == [5])
    engine.start()
    start = f"{position['journal']}:{position['offset']}"
    with pytest.raises(ConfigError, match=f"changes from {start}.* to .* are not in the Instance"):
        until(engine.step)


def test_a_source_that_cannot_be_handed_over_will_do_while_nothing_is_missing(shop: Shop, driver: Driver) -> None:
    driver.stop()
    driver.start(source=shop.fake)
    engine = driver.query()
    for count in (3, 2):
        engine.start(available_now=True)
        shop.insert(count)
        while engine.step():
            pass
        engine.stop()
    engine.start()
    assert seen(engine.until(5)) == shop.expected


def test_the_driver_starts_again(shop: Shop, driver: Driver) -> None:
    """The Instance keeps nothing: it begins at the end of the log, and the query where it was."""
    engine = driver.query()
    engine.start()
    engine.step()
    shop.insert(3)
    engine.until(3)
    engine.stop()
    driver.stop()
    shop.insert(3)
    driver.start(start="latest")
    engine.start()
    shop.insert(3)
    assert seen(engine.until(9)) == shop.expected
