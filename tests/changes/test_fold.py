"""Both forms of a state are equal, whatever the changes are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal.changes import TableState
from canal.model import Entry
from canal.testing import FakeBinlog
from tests.support import states
from tests.support.pipes import life

pytest.importorskip("numpy")

#: Key columns, and strategies of few values of each.
_KEYS: Mapping[str, tuple[str, st.SearchStrategy[Any]]] = {
    "int": ("int", st.integers(-2, 4)),
    "far": ("bigint unsigned", st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    "text": ("varchar(20)", st.sampled_from(["", "a", "A", "a ", "ä", "b" * 20])),
    "binary": ("varbinary(8)", st.sampled_from([b"", b"a", b"a\0", b"\xff"])),
    "decimal": ("decimal(30,2)", st.sampled_from([Decimal("0.00"), Decimal("-1.50"), Decimal("9" * 28)])),
    "double": ("double", st.sampled_from([0.0, -0.0, 1.5, -1e300])),
    "datetime": ("datetime(6)", st.sampled_from([datetime(1000, 1, 1), datetime(2026, 1, 1, 1, 1, 1, 1)])),
    "timestamp": ("timestamp", st.sampled_from([datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, tzinfo=UTC)])),
    "date": ("date", st.sampled_from([date(1, 1, 1), date(2026, 1, 1)])),
    "time": ("time(3)", st.sampled_from([timedelta(hours=-1), timedelta(milliseconds=1)])),
    "bit": ("bit(9)", st.integers(0, 3)),
}


@st.composite
def _histories(draw: st.DrawFn, kinds: list[str]) -> list[tuple[dict[str, Any] | None, dict[str, Any] | None]]:
    """Changes of one table that a source can have made: inserts, updates, deletes, and updates that change the key."""
    names = [f"k{number}" for number in range(len(kinds))]
    keys = st.tuples(*(_KEYS[kind][1] for kind in kinds))
    there = draw(st.sets(keys, max_size=4))
    found: list[tuple[dict[str, Any] | None, dict[str, Any] | None]] = []

    def row(key: tuple[Any, ...], value: int | None) -> dict[str, Any]:
        return {**dict(zip(names, key)), "value": value, "note": str(value)}

    for number in range(draw(st.integers(0, 15))):
        key, other = draw(keys), draw(keys)
        if key not in there:
            there.add(key)
            found.append((None, row(key, number)))
        elif (what := draw(st.sampled_from(["update", "delete", "move"]))) == "delete":
            there.discard(key)
            found.append((row(key, None), None))
        elif what == "update" or other in there:
            found.append((row(key, None), row(key, number)))
        else:
            there.discard(key)
            there.add(other)
            found.append((row(key, None), row(other, number)))
    return found


def _compare(state: TableState) -> None:
    arrow = state.arrow
    assert arrow is not None
    names, keys = arrow.upserts.column_names, arrow.deletes.column_names
    assert names == list(state.table.names.names)
    assert keys == list(state.table.keys)
    upserts = [tuple(row[name] for name in names) for row in arrow.upserts.to_pylist()]
    deletes = [tuple(row[name] for name in keys) for row in arrow.deletes.to_pylist()]
    put = [tuple(row[names.index(name)] for name in keys) for row in upserts]
    new = {key for key, is_new in zip(put, arrow.is_new.to_pylist(), strict=True) if is_new}

    assert sorted(upserts) == sorted(state.upserts)
    assert new == state.inserted & set(put) == state.inserted
    assert sorted(deletes) == sorted({*state.deletes, *state.replaced})
    assert len(set(put)) == len(put)
    assert put == sorted(put, key=lambda key: tuple(one.encode() if isinstance(one, str) else one for one in key))


@pytest.mark.parametrize("kinds", [[kind] for kind in _KEYS] + [["int", "text"], ["far", "double", "binary"]], ids="-".join)
@given(data=st.data())
def test_arrow_form_of_a_state_equals_its_rows(kinds: list[str], data: st.DataObject) -> None:
    columns = {f"k{number}": _KEYS[kind][0] for number, kind in enumerate(kinds)}
    of = states.table("shop.t", {**columns, "value": "int", "note": "text"}, tuple(columns))
    history = data.draw(_histories(kinds))

    if history:
        _compare(states.state(states.changed(of, history)))


def test_key_that_goes_and_comes_again_is_replaced() -> None:
    of = states.table("shop.t", {"id": "int", "n": "int"}, ["id"])
    one, two = {"id": 1, "n": 1}, {"id": 2, "n": 2}

    state = states.state(states.changed(of, [(one, None), (None, {"id": 1, "n": 5}), (two, {"id": 3, "n": 2}), (None, two)]))

    assert state.arrow is not None
    assert state.arrow.upserts.to_pylist() == [{"id": 1, "n": 5}, two, {"id": 3, "n": 2}]
    assert state.arrow.is_new.to_pylist() == [True, True, True]
    assert state.arrow.deletes.to_pylist() == [{"id": 1}, {"id": 2}]
    _compare(state)


def test_composite_codes_beyond_64_bits_keep_keys_apart() -> None:
    names = [f"k{number}" for number in range(6)]
    of = states.table("shop.t", dict.fromkeys(names, "bigint"), names)
    rows = [dict.fromkeys(names, n * 2**40) for n in range(3000)]
    apart = [{**rows[n], names[n % 6]: 1} for n in range(3000)]

    state = states.state(states.changed(of, [(None, row) for row in rows + apart]))

    _compare(state)
    assert len(state.rows) == 6000


# -- from a log --------------------------------------------------------------------------------------------------------


def _entries(fake: FakeBinlog) -> list[Entry]:
    fake.end()
    with life(fake) as instance:
        return [entry for message in instance.stream() for entry in message.entries]


def _states(fake: FakeBinlog) -> dict[str, TableState]:
    return {state.table.name: state for state in states.states(_entries(fake))}


def test_state_of_a_log_has_both_forms(fake_binlog: FakeBinlog) -> None:
    table = fake_binlog.table("shop", "t", "id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(10,2), at DATETIME")
    rows = [{"id": n, "name": f"n{n}", "price": Decimal(n) / 4, "at": datetime(2026, 1, 1 + n)} for n in range(4)]
    table.insert(*rows)
    table.update(rows[1], {**rows[1], "id": 9})
    table.update(rows[2], {**rows[2], "name": None})
    table.delete(rows[3])

    state = _states(fake_binlog)["shop.t"]

    _compare(state)
    assert [row[:2] for row in state.upserts] == [(0, "n0"), (9, "n1"), (2, None)]


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ("id INT, name VARCHAR(20)", {"id": 1}),
        ("id DECIMAL(10,2) PRIMARY KEY, n INT", {"id": 1}),
        ("id INT PRIMARY KEY, at DATE", {"id": 1, "at": "0000-00-00"}),
        ("id DATE PRIMARY KEY, name VARCHAR(20)", {"id": "0000-00-00"}),
        ("id INT PRIMARY KEY, name VARCHAR(20) CHARACTER SET utf8mb4", {"id": 1, "name": b"\xff"}),
    ],
    ids=["no key", "scale", "zero date", "zero date as key", "invalid text"],
)
def test_changes_that_columns_do_not_hold_exactly_have_rows_alone(
    fake_binlog: FakeBinlog, columns: str, row: dict[str, Any]
) -> None:
    fake_binlog.table("shop", "t", columns).insert(row)

    (batch,) = states.changes(_entries(fake_binlog)).tables

    assert batch.arrow is None
    assert len(batch.changes) == 1


def test_partial_images_and_emptied_tables_have_rows_alone(fake_binlog: FakeBinlog) -> None:
    tables = {name: fake_binlog.table("shop", name, "id INT PRIMARY KEY, a INT, b INT") for name in ("whole", "part", "emptied")}
    for table in tables.values():
        table.insert({"id": 1, "a": 1, "b": 1})
    fake_binlog.ddl("TRUNCATE TABLE shop.emptied")
    fake_binlog.row_image = "MINIMAL"
    tables["part"].update({"id": 1, "a": 1, "b": 1}, {"id": 1, "a": 1, "b": 2})

    found = _states(fake_binlog)

    assert [name for name, state in found.items() if state.arrow is not None] == ["shop.whole"]
    assert found["shop.part"].upserts == [(1, 1, 2)]
    assert found["shop.emptied"].is_emptied
