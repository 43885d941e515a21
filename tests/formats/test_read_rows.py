"""A row of a snapshot in each format: the op READ."""

from __future__ import annotations

import json

import pytest

from canal.changes import Change, Op, Origin, Table
from canal.changes.latest import latest
from canal.formats import CanalJson, DebeziumJson, MaxwellJson, change_json
from canal.formats.transfer_json import TransferForm, TransferJson
from canal.pipes.rules import Rule, Rules
from canal.schema import column_from_text

_TABLE = Table(
    "shop.orders", "shop.orders", (column_from_text("id", "int", key=True, nullable=False), column_from_text("n", "int")), ("id",)
)


def _read(number: int = 1) -> Change:
    origin = Origin("shop.orders@b.000001:9", "b.000001:9", 1700000000000)
    return Change(_TABLE, Op.READ, None, _TABLE.row({"id": number, "n": 10}), origin, 0)


def test_debezium_writes_read_rows_as_r_of_an_incremental_snapshot() -> None:
    (message,) = DebeziumJson().messages(_read())
    found = json.loads(message.value or b"")
    assert (found["op"], found["before"], found["after"]) == ("r", None, {"id": 1, "n": 10})
    assert (found["source"]["snapshot"], found["source"]["file"], found["source"]["pos"]) == ("incremental", "b.000001", 9)
    assert json.loads(message.key or b"") == {"id": 1}


def test_maxwell_writes_read_rows_as_bootstrap_insert() -> None:
    (message,) = MaxwellJson().messages(_read())
    found = json.loads(message.value or b"")
    assert (found["type"], found["data"]) == ("bootstrap-insert", {"id": 1, "n": 10})
    assert not found.keys() & {"xid", "commit", "old"}


def test_canal_json_writes_read_rows_as_insert() -> None:
    found = json.loads(CanalJson()(_read()))
    assert (found["type"], found["data"], found["old"]) == ("INSERT", [{"id": "1", "n": "10"}], None)


def test_json_lines_write_read_rows_as_read() -> None:
    found = json.loads(change_json.line(_read()))
    assert (found["op"], found["before"], found["after"], found["id"]) == (
        "READ",
        None,
        {"id": 1, "n": 10},
        "shop.orders@b.000001:9/0",
    )


def test_go_mysql_transfer_writes_read_rows_as_insert() -> None:
    assert json.loads(TransferJson(lambda name: TransferForm())(_read()))["action"] == "insert"


def test_fold_takes_read_rows_as_new_rows() -> None:
    (state,) = latest([_read(1), _read(2)], lambda table, keys: {})
    assert (state.upserts, state.inserted) == ([(1, 10), (2, 10)], {(1,), (2,)})


@pytest.mark.parametrize(("where", "count"), [(lambda row: row["id"] == 1, 1), (lambda row: False, 0)])
def test_rules_filter_read_rows_and_keep_their_op(where: object, count: int) -> None:
    made = list(Rules([Rule(where=where, defaults={"x": 5})]).apply(_read()))  # type: ignore[arg-type]
    assert [(one.op, one.row["x"]) for one in made] == [(Op.READ, 5)] * count
