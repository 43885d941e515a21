"""The stand-in for python-mysql-replication's reader: its events are those of the original, of the same log."""

from __future__ import annotations

from typing import Any

import pymysqlreplication
import pytest
from pymysqlreplication.event import GtidEvent, QueryEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

import canal
from canal.compat import pymysqlreplication as ours
from canal.testing import FakeBinlog

THEIRS = (GtidEvent, QueryEvent, XidEvent, DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent)


def shop() -> FakeBinlog:
    fake = FakeBinlog(metadata="FULL", gtid=True)
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY, price DECIMAL(10,2), note VARCHAR(20)")
    lines = fake.table("shop", "lines", "a INT, b INT, PRIMARY KEY (a, b)")
    with fake.transaction():
        orders.insert({"id": 1, "price": "9.99", "note": "é"}, {"id": 2, "price": None, "note": ""})
        orders.update({"id": 1, "price": "9.99", "note": "é"}, {"price": "8.50"})
    fake.ddl("CREATE TABLE x (id INT)", schema="shop")
    lines.insert({"a": 1, "b": 2})
    orders.delete({"id": 2, "price": None, "note": ""})
    return fake


def shown(event: Any) -> tuple[Any, ...]:
    keep = ("timestamp", "schema", "table", "primary_key", "gtid", "query")
    rows = [{name: values for name, values in row.items() if "none" not in name} for row in getattr(event, "rows", [])]
    if getattr(event, "query", "") == "BEGIN":
        event.schema = b""  # ours does not know it
    return type(event).__name__, {name: getattr(event, name) for name in keep if hasattr(event, name)}, rows


@pytest.mark.filterwarnings("ignore:'db' is deprecated:DeprecationWarning")
def test_the_events_are_those_of_the_original() -> None:
    with shop().serve(user="u", password="p") as server:
        settings = {"host": server.host, "port": server.port, "user": "u", "password": "p"}
        theirs = pymysqlreplication.BinLogStreamReader(
            settings, 100, only_events=THEIRS, blocking=False, log_file="binlog.000001", log_pos=4
        )
        wanted = [shown(event) for event in theirs]
        theirs.close()
        with ours.BinLogStreamReader(settings, 101, blocking=True, log_file="binlog.000001", log_pos=4) as stream:
            found = [shown(stream.fetchone()) for _ in wanted]
    assert found == wanted
    assert {name for name, _, _ in found} == {one.__name__ for one in THEIRS}


def test_filters_and_positions() -> None:
    fake = shop()
    with ours.BinLogStreamReader(
        fake,
        blocking=True,
        log_file=fake.journal,
        only_events=[ours.RowsEvent],
        ignored_events=[ours.DeleteRowsEvent],
        only_schemas=["shop"],
        ignored_tables=["orders"],
    ) as stream:
        event = next(iter(stream))
        assert isinstance(event, ours.WriteRowsEvent)
        assert (event.table, event.primary_key, event.rows) == ("lines", ("a", "b"), [{"values": {"a": 1, "b": 2}}])
        position = stream.log_file, stream.log_pos
    with ours.BinLogStreamReader(
        fake, blocking=True, log_file=position[0], log_pos=position[1], only_events=[ours.RowsEvent]
    ) as stream:
        rest = [next(iter(stream)) for _ in range(2)]
    assert [type(one).__name__ for one in rest] == ["WriteRowsEvent", "DeleteRowsEvent"]  # of a transaction that was not over


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "blocking=False"),
        ({"blocking": True, "ignore_decode_errors": True}, "ignore_decode_errors of BinLogStreamReader"),
        ({"blocking": True, "end_log_pos": 7}, "end_log_pos of BinLogStreamReader"),
        ({"blocking": True, "connection_settings": {"host": "db", "cursorclass": 1}}, "cursorclass of connection_settings"),
    ],
)
def test_what_means_something_else_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(canal.ConfigError, match=text):
        ours.BinLogStreamReader(**{"connection_settings": {"host": "db"}, **options})


def test_large_transaction_that_a_lost_connection_cuts_has_one_gtid_event() -> None:
    fake = FakeBinlog(metadata="FULL", gtid=True, row_event_max_size=20)
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY")
    with fake.transaction():
        orders.insert(*[{"id": number} for number in range(5000)])  # in pieces
    fake.cut_after(4500)
    with ours.BinLogStreamReader(fake, blocking=True, log_file=fake.journal) as stream:
        found: list[str] = []
        while "XidEvent" not in found:
            found.append(type(stream.fetchone()).__name__)

    assert found == ["GtidEvent", "QueryEvent", *["WriteRowsEvent"] * 5000, "XidEvent"]
