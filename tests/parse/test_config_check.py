"""Filters that match no table of the server, and row images that are not whole: one warning at the start, with what was meant."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import canal
from canal.filter import FieldFilter, TableFilter
from canal.parse.config_check import _patterns, unmatched
from canal.testing import FakeBinlog

NAMES = [("shop", "orders"), ("shop", "customers"), ("CRM", "Contacts"), ("my-shop", "orders2")]


def said(names: Any = NAMES, **filters: str) -> list[str]:
    tables = TableFilter(filters.get("filter", ""), filters.get("black_filter", ""))
    fields = FieldFilter(filters.get("field_filter", ""), filters.get("black_field_filter", ""))
    return list(unmatched(list(_patterns(tables, fields)), names))


@pytest.mark.parametrize(
    ("filters", "option", "meant"),
    [
        ({"filter": r"shop\.order"}, r"filter 'shop\.order'", ["shop.orders", "my-shop.orders2"]),
        ({"filter": "shop"}, "filter 'shop'", [r"shop\..*"]),
        ({"filter": r"shoop\..*"}, r"filter 'shoop\..*'", [r"shop\..*"]),
        ({"filter": "orders"}, "filter 'orders'", ["shop.orders"]),
        ({"filter": r"shop\."}, r"filter 'shop\.'", [r"shop\..*"]),
        ({"filter": r"shop\.,crm\..*"}, r"filter 'shop\.'", [r"shop\..*"]),
        ({"filter": "shop.order%"}, "filter 'shop.order%'", ["shop.orders"]),
        ({"filter": "`shop`.`orders`"}, "filter '`shop`.`orders`'", ["shop.orders"]),
        ({"filter": r"shop\.orders,crm\.contact"}, r"filter 'crm\.contact'", ["CRM.Contacts"]),
        ({"black_filter": r"shop\.custmers"}, r"black_filter 'shop\.custmers'", ["shop.customers"]),
        ({"field_filter": "shop.oders:id/price"}, "field_filter 'shop.oders'", ["shop.orders", "my-shop.orders2"]),
        ({"black_field_filter": "orders.shop:price"}, "black_field_filter 'orders.shop'", []),
    ],
)
def test_unmatched_pattern_suggests_nearest_names(filters: dict[str, str], option: str, meant: list[str]) -> None:
    (text,) = said(**filters)
    assert text.startswith(f"{option} matches no table that our user may see now. ")
    assert text.endswith(f"Did you mean {' or '.join(meant)}?" if meant else "Patterns are compared with schema.table.")


def test_unmatched_sql_pattern_suggests_regular_expression() -> None:
    (text,) = said(filter="shop.%")
    assert text.endswith("Patterns are compared with schema.table. They are regular expressions: write .* instead of SQL's %.")


@pytest.mark.parametrize(
    "filters",
    [
        {"filter": r".*\..*"},
        {"filter": r"SHOP\.Orders,crm\..*"},
        {"filter": r"shop\.(orders|nothing)"},
        {"filter": r"shop\.orders,shop\."},
        {"filter": r"my\-shop\.,my\-shop\.orders2"},
        {"black_filter": r"mysql\.slave_.*"},
        {"field_filter": "crm.contacts:id"},
        {},
    ],
)
def test_matching_patterns_and_system_tables_cause_no_warning(filters: dict[str, str]) -> None:
    assert said(**filters) == []


def test_user_without_visible_tables_gets_no_warning() -> None:
    assert said([], filter="shop") == []


def started(server: Any, **options: Any) -> canal.Instance:
    source = canal.MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
    return canal.Instance(canal.InstanceConfig(destination="shop", source=source, **options))


@pytest.fixture(autouse=True)
def warnings_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "canal.parse")


def test_unmatched_filter_warns_once_per_start(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeBinlog(row_image="MINIMAL")
    fake.table("shop", "orders", "id INT")
    filters = {"filter": r"shop\.order", "black_filter": r"shop\.orders"}
    with fake.serve(user="u", password="p") as server, started(server, **filters) as instance:
        instance.subscribe()
        where = f"[shop] {server.host}:{server.port}"
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
        images, tables = (record.getMessage() for record in caplog.records)
        assert images.startswith(f"{where} does not write binlog_row_image=FULL")
        assert tables == rf"{where}: filter 'shop\.order' matches no table that our user may see now. Did you mean shop.orders?"
        server.disconnect()
        fake.table("shop", "order", "id INT").insert({"id": 1})
        assert instance.get(1, timeout=60).entries
    lost = [one for one in caplog.records if "matches no table" in one.getMessage() or "row_image" in one.getMessage()]
    assert len(lost) == 2


def test_start_without_filters_queries_no_tables(caplog: pytest.LogCaptureFixture) -> None:
    with FakeBinlog().serve(user="u", password="p") as server, started(server) as instance:
        instance.subscribe()
    assert caplog.records == []


def test_unmatched_mask_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeBinlog()
    fake.table("shop", "users", "id INT, email VARCHAR(40), phone INT")
    fake.table("shop", "users2", "id INT, email VARCHAR(40)")
    last = canal.Mask.last(2)
    masks = {
        r"shop\.user": {"email": last},
        r"shop\.users2?": {"EMAIL": last, "emial": last, "phone": last.if_present()},
        "shop.users2": {"gone": last.if_present()},
    }
    with fake.serve(user="u", password="p") as server, started(server, mask=masks) as instance:
        instance.subscribe()
        server.disconnect()
        fake.table("shop", "other", "id INT").insert({"id": 1})
        assert instance.get(1, timeout=60).entries
        where = f"[shop] {server.host}:{server.port}: "
    told = [one.getMessage().removeprefix(where) for one in caplog.records if "mask" in one.getMessage()]
    assert told == [
        r"mask 'shop\.user' matches no table that our user may see now. Did you mean shop.users or shop.users2?",
        r"mask 'shop\.users2?' names the column 'emial', which shop.users does not have, and that table's first row "
        "will stop the instance. Did you mean email?",
        "mask 'shop.users2' names the column 'gone', which shop.users2 does not have.",
    ]


def test_missing_column_of_field_filter_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeBinlog()
    fake.table("shop", "users", "id INT, email VARCHAR(40), phone INT")
    fake.table("shop", "orders", "id INT, price INT")
    options = {"field_filter": "shop.users:ID/emial", "black_field_filter": "shop.orders:prices/id"}
    with fake.serve(user="u", password="p") as server, started(server, **options) as instance:
        instance.subscribe()
        where = f"[shop] {server.host}:{server.port}: "
    assert [one.getMessage().removeprefix(where) for one in caplog.records] == [
        "field_filter 'shop.users' names the column 'emial', which shop.users does not have, and that table's first row "
        "will stop the instance. Did you mean email?",
        "black_field_filter 'shop.orders' names the column 'prices', which shop.orders does not have, and that table's first row "
        "will stop the instance. Did you mean price?",
    ]
