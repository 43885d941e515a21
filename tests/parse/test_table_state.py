"""What is kept for a table ends with the table: tables that are made and dropped again and again cost nothing in the end."""

from __future__ import annotations

import gc
import types
from collections import Counter
from typing import Any

import pytest

import canal
from canal._util import bounded as recent
from canal.parse import follower as follow
from canal.testing import FakeBinlog

_VALUES = (str, bytes, int, float, type, types.ModuleType, types.BuiltinFunctionType)


def held(root: object, *others: object) -> Counter[str]:
    """Elements of all containers that can be reached from an object but not through the others, by the way there."""
    seen = {id(root), *map(id, others)}
    found: Counter[str] = Counter()
    waiting = [(root, type(root).__name__)]
    while waiting:
        one, way = waiting.pop()
        if isinstance(one, (dict, list, tuple, set, frozenset)):
            found[way] += len(one)
        is_function = isinstance(one, types.FunctionType)
        for next_one in (one.__closure__, one.__defaults__) if is_function else gc.get_referents(one):  # type: ignore[attr-defined]
            if id(next_one) not in seen and not isinstance(next_one, _VALUES):
                seen.add(id(next_one))
                waiting.append((next_one, f"{way} {type(next_one).__name__}"[-120:]))
    return found


def make_and_drop(fake: FakeBinlog, first: int, count: int, statements: tuple[str, ...], name: str) -> None:
    for number in range(first, first + count):
        table = name.format(number)
        for sql in statements:
            if sql == "INSERT":
                fake.table("shop", table, "id INT PRIMARY KEY, n INT").insert({"id": number, "n": 1})
            else:
                fake.ddl(sql.format(table), "shop")


def read_all(instance: canal.Instance, mark: Any, number: int) -> None:
    mark.insert({"id": number})
    for message in instance.stream(500):
        if any(entry.header.table == "mark" and entry.rows for entry in message.entries):
            instance.ack(message.id)
            return


CREATE = "CREATE TABLE {} (id INT PRIMARY KEY, n INT)"
CASCADE = "CREATE TABLE {} (id INT PRIMARY KEY, n INT, FOREIGN KEY (n) REFERENCES p (id) ON DELETE CASCADE)"
DROP = "DROP TABLE {}"


@pytest.mark.parametrize("name", ["t{}", "_t{}_new"])
@pytest.mark.parametrize(
    "statements",
    [
        (CREATE, "INSERT", DROP),
        (CASCADE, "INSERT", DROP),
        (CREATE, "ALTER TABLE {0} RENAME {0}_renamed", DROP + "_renamed"),
        (CREATE.replace("TABLE", "TEMPORARY TABLE"), "DROP TEMPORARY TABLE {}"),
    ],
    ids=["plain", "cascades", "renamed", "temporary"],
)
@pytest.mark.parametrize(("flavor", "metadata"), [("mysql", "FULL"), ("mariadb", "NO_LOG")])
def test_tables_that_come_and_go_leave_nothing(
    monkeypatch: pytest.MonkeyPatch, flavor: Any, metadata: Any, statements: tuple[str, ...], name: str
) -> None:
    monkeypatch.setattr(recent, "MOST", 20)
    monkeypatch.setattr(follow, "PRUNE_INTERVAL", 10)
    _check(FakeBinlog(flavor, metadata=metadata), 200, statements, name)


def test_databases_that_come_and_go_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST", 20)
    statements = ("CREATE DATABASE {}", CASCADE.replace("{}", "{0}.{0}", 1), "DROP DATABASE {}")
    _check(FakeBinlog(), 200, statements, "_t{}_new")


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("flavor", "metadata"), [("mysql", "FULL"), ("mariadb", "NO_LOG")])
def test_a_hundred_thousand_tables_leave_nothing(full_size: bool, flavor: Any, metadata: Any) -> None:
    _check(FakeBinlog(flavor, metadata=metadata), 50_000 if full_size else 12_000, (CREATE, "INSERT", DROP), "t{}")


def _check(fake: FakeBinlog, count: int, statements: tuple[str, ...], name: str) -> None:
    mark = fake.table("shop", "mark", "id INT PRIMARY KEY")
    config = canal.InstanceConfig(
        destination="example", source=fake, field_filter="shop.mark:id", alarm=lambda destination, message: None
    )
    step = count // 20
    sizes: list[Counter[str]] = []
    with canal.Instance(config) as instance:
        instance.subscribe(filter=r"shop\..*")
        for half in range(2):
            for first in range(0, count, step):
                make_and_drop(fake, half * count + first, step, statements, name)
                fake.rotate()
                read_all(instance, mark, half * count + first)
                fake.purge(fake.journal)
            gc.collect()
            sizes.append(held(instance, fake))

    grown = sizes[1] - sizes[0]
    assert {way: number for way, number in grown.items() if number >= count} == {}
