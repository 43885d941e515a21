"""check_rule finds rules that are not pure."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import canal
from canal.changes import Change, Op, Origin, Table
from canal.model import Row
from canal.schema import column_from_text
from canal.testing import check_rule

TABLE = Table("shop.t", "shop.t", (column_from_text("id", "int", key=True), column_from_text("tags", "json")), ("id",))


def changes() -> list[Change]:
    return [Change(TABLE, Op.INSERT, None, Row((n, ["a"]), TABLE.names), Origin("u:1", "b.1:4", 0), n) for n in (0, 1)]


def test_what_a_rule_makes_is_given() -> None:
    rule = canal.Rule(where=lambda row: row["id"] > 0, rename={"tags": "labels"}, to="lake.t")
    (made,) = check_rule(rule, changes())
    assert (made.table.name, made.row.as_dict()) == ("lake.t", {"id": 1, "labels": ["a"]})


COUNT = itertools.count()


def stamped(change: Change) -> Change:
    return change.evolve(after={**change.row.as_dict(), "n": next(COUNT)})


def altering(change: Change) -> Change:
    change.row["tags"].append("b")
    return change


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transform": stamped}, "gives .*'n': 0.*and then .*'n': 1"),
        ({"where": lambda row: next(COUNT) % 2 == 0}, "gives"),
        ({"transform": altering}, "alters the change"),
    ],
)
def test_a_rule_that_is_not_pure_is_found(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_rule(canal.Rule(**options), changes())
