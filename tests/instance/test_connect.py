"""``canal.connect``: a reader that is ready, from a URL or a source; what is wrong is told before it reads."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.errors import ConfigError, ConnectionLostError
from canal.meta import MemoryMeta
from canal.testing import FakeBinlog

SECRET = "s3cret"


@pytest.fixture
def shop() -> FakeBinlog:
    log = FakeBinlog()
    for schema, name in (("shop", "orders"), ("shop", "order_lines"), ("shop", "customers"), ("crm", "orders")):
        log.table(schema, name, "id INT PRIMARY KEY").insert({"id": len(name)})
    return log


def names(instance: canal.Instance, count: int) -> list[str]:
    """Tables of the first changes; it ends with a count that nothing comes behind."""
    with instance:
        message = instance.get_without_ack(100, timeout=30, linger=0.5)
        found = [f"{entry.header.schema}.{entry.header.table}" for entry in message.entries if entry.rows]
    assert len(found) == count
    return found


@pytest.mark.parametrize(
    ("tables", "wanted"),
    [
        ((), ["shop.orders", "shop.order_lines", "shop.customers", "crm.orders"]),
        ("shop.orders", ["shop.orders"]),
        (["shop.orders", "crm.*"], ["shop.orders", "crm.orders"]),
        (["SHOP.order*"], ["shop.orders", "shop.order_lines"]),
        ("*.orders", ["shop.orders", "crm.orders"]),
    ],
)
def test_tables_of_a_source_are_delivered(tables: Any, wanted: list[str], shop: FakeBinlog) -> None:
    assert names(canal.connect(shop, tables=tables, start="earliest"), len(wanted)) == wanted


@pytest.mark.parametrize(
    ("path", "options", "wanted"),
    [
        ("", {}, ["shop.orders", "shop.order_lines", "shop.customers", "crm.orders"]),
        ("/shop", {}, ["shop.orders", "shop.order_lines", "shop.customers"]),
        ("/shop", {"tables": "orders"}, ["shop.orders"]),
        ("/shop/?connect_timeout=3", {"tables": ["orders", "crm.orders"]}, ["shop.orders", "crm.orders"]),
        ("/shop", {"filter": r"crm\..*"}, ["crm.orders"]),
    ],
)
def test_a_url_is_a_source_with_a_database(path: str, options: dict[str, Any], wanted: list[str], shop: FakeBinlog) -> None:
    with shop.serve(user="canal", password=SECRET) as server:
        url = f"mysql://canal:{SECRET}@{server.host}:{server.port}{path}"
        assert names(canal.connect(url, start="earliest", **options), len(wanted)) == wanted


def test_changes_follow_from_now_on_and_a_directory_keeps_the_cursor(shop: FakeBinlog, tmp_path: Path) -> None:
    orders = shop.table("shop", "orders", "id INT PRIMARY KEY")

    def read(count: int) -> list[Any]:
        with canal.connect(shop, tables="shop.orders", meta=tmp_path) as instance:
            if count == 1:
                orders.insert({"id": 1001}, {"id": 1002})
            found = []
            for message in instance.stream():
                found += [row.after for entry in message.entries for row in entry.rows]
                if len(found) >= count:
                    instance.ack(message)
                    break
        assert not instance.is_running
        return [row["id"] for row in found]

    assert read(1) == [1001, 1002]
    orders.insert({"id": 1003}, {"id": 1004})
    assert read(2) == [1003, 1004]


@pytest.mark.parametrize(
    ("url", "destination", "expected"), [("/shop", "", "shop"), ("", "", "canal"), ("/shop", "mine", "mine")]
)
def test_the_cursor_is_under_the_name_of_the_database(url: str, destination: str, expected: str, shop: FakeBinlog) -> None:
    with shop.serve(user="canal", password=SECRET) as server:
        address = f"mysql://canal@{server.host}:{server.port}{url}"
        with canal.connect(address, password=SECRET, destination=destination, meta=MemoryMeta()) as instance:
            assert instance.destination == expected
            assert instance.subscriptions() == {1001: ""}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tables": "shop.oders"}, r"tables .shop.oders. matches no table .* now. Did you mean shop.orders. Use filter"),
        ({"tables": ["shop.orders", "shopp.*"]}, r"tables 'shopp\.\*' matches no table"),
        ({"tables": "shop"}, "neither the table name 'shop' nor the URL has a database"),
        ({"tables": 3}, "tables must be a name or several, not 3"),
        ({"tables": [3]}, "each name in tables must be a str, not int"),
        ({"tables": "shop.orders", "filter": "shop"}, "either tables or filter"),
        ({"password": SECRET}, "password applies to a URL only"),
        ({"start": "now"}, "start is "),
        ({"meta": 3}, "meta must be such as"),
    ],
)
def test_what_is_wrong_is_told_at_once(options: dict[str, Any], told: str, shop: FakeBinlog) -> None:
    with pytest.raises(ConfigError, match=told):
        canal.connect(shop, **options)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("canal-canal")]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (f"mysql://canal:{SECRET}@[db/shop", "cannot parse the URL"),
        (f"postgres://canal:{SECRET}@db/shop", "names no server"),
        (f"canal:{SECRET}@db", "names no server"),
        (f"mysql://canal:{SECRET}@db/shop?tables=a", "unknown option: tables"),
    ],
)
def test_a_url_that_is_none(url: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        canal.connect(url)
    assert SECRET not in str(caught.value)


def test_a_database_without_tables_and_a_server_without_any_are_told() -> None:
    log = FakeBinlog()
    with log.serve(user="canal", password=SECRET) as server:
        url = f"mysql://canal:{SECRET}@{server.host}:{server.port}/shop"
        with pytest.raises(ConfigError, match=r"tables 'shop\.\*' matches no table: the user cannot see any table"):
            canal.connect(url)
        log.table("crm", "orders", "id INT PRIMARY KEY")
        with pytest.raises(ConfigError, match=r"tables 'shop\.\*' matches no table") as caught:
            canal.connect(url)
        assert SECRET not in str(caught.value)
        with canal.connect(url, filter=r"shop\.orders") as instance:
            assert instance.is_running


def test_a_server_that_does_not_answer_is_told_unless_its_standby_does(shop: FakeBinlog) -> None:
    url = f"mysql://canal:{SECRET}@127.0.0.1:1/"
    with pytest.raises(ConnectionLostError) as caught:
        canal.connect(url)
    assert SECRET not in str(caught.value)
    with canal.connect(url, standby=shop, tables="shop.orders", standby_start="earliest", start_timeout=60) as instance:
        assert instance.is_running


def test_what_fails_after_the_look_leaves_nothing_behind(shop: FakeBinlog) -> None:
    with pytest.raises(canal.PositionLostError):
        canal.connect(shop, start=canal.Position(journal="binlog.000009", offset=4), destination="lost")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("canal-lost")]
