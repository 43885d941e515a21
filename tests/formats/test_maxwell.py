"""Maxwell's form beside the lines that Maxwell's documents and tests give of the same statements."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from canal.changes.change import Change, Op, Origin, Table
from canal.errors import UnfitChangeError
from canal.formats.maxwell_json import MaxwellJson
from canal.model import Row
from canal.rows.values import ABSENT, AmbiguousLabel, InvalidText, NoLabel, ZeroDate
from canal.schema import column_from_text

ORIGIN = Origin("u:7", "master.000006:800911", 1477053217000, "u:7", 23042, 108, 23396, 0, 2)


def table(**columns: str) -> Table:
    kinds = tuple(column_from_text(name, kind, charset="utf8mb4", key=name == "id") for name, kind in columns.items())
    return Table("test.e", "test.e", kinds, ("id",) if "id" in columns else ())


def change(of: Table, before: Any, after: Any, ord: int = 1) -> Change:
    op = Op.INSERT if before is None else Op.DELETE if after is None else Op.UPDATE
    rows = [None if row is None else Row(row, of.names) for row in (before, after)]
    return Change(of, op, *rows, ORIGIN, ord)


E = table(id="int(10)", m="double", c="timestamp(6)", comment="varchar(255)")
FIRST = (1, 4.2341, datetime(2016, 10, 21, 5, 33, 37, 523000, UTC), "I am a creature of light.")
THEN = (1, 5.444, datetime(2016, 10, 21, 5, 33, 54, 631000, UTC), "I am a creature of light.")


def test_the_documented_lines_to_the_byte() -> None:
    encoder = MaxwellJson(binlog_position=True, server_id=True, thread_id=True)
    start = '{"database":"test","table":"e","type":"%s","ts":1477053217,"xid":23396,"commit":true,'
    start += '"position":"master.000006:800911","server_id":23042,"thread_id":108,"data":'
    was = '{"id":1,"m":4.2341,"c":"2016-10-21 05:33:37.523000","comment":"I am a creature of light."}'
    now = '{"id":1,"m":5.444,"c":"2016-10-21 05:33:54.631000","comment":"I am a creature of light."}'
    old = '{"m":4.2341,"c":"2016-10-21 05:33:37.523000"}'
    assert encoder(change(E, None, FIRST)) == start % "insert" + was + "}"
    assert encoder(change(E, FIRST, THEN)) == start % "update" + now + ',"old":' + old + "}"
    assert encoder(change(E, THEN, None)) == start % "delete" + now + "}"
    (message,) = encoder.messages(change(E, None, FIRST))
    assert message.key == b'{"database":"test","table":"e","pk.id":1}'


def test_commit_stands_at_the_last_row_of_the_transaction_only() -> None:
    found = json.loads(MaxwellJson(offsets=True, gtid_position=True, primary_keys=True)(change(E, None, FIRST, 0)))
    assert "commit" not in found
    assert (found["xoffset"], found["gtid"], found["primary_key"]) == (0, "u:7", [1])


POINT = bytes(4) + bytes.fromhex("0101000000") + bytes.fromhex("00000000000008400000000000000040")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("bigint(20) unsigned", 18446744073709551615, "18446744073709551615"),
        ("decimal(65,30)", Decimal("12345678901234567890.100"), "12345678901234567890.100"),
        ("float", 3.140000104904175, "3.14"),
        ("bit(12)", 2730, "2730"),
        ("year(4)", 2026, "2026"),
        ("blob", bytes([0, 1, 2, 3]), '"AAECAw=="'),
        ("set('foo','bar','baz')", "bar,baz", '["bar","baz"]'),
        ("set('foo','bar','baz')", "", "[]"),
        ("set('','a')", AmbiguousLabel("", 1), '[""]'),
        ("set('','a')", AmbiguousLabel("a", 3), '["","a"]'),
        ("enum('foo','bar')", "bar", '"bar"'),
        ("enum('foo','bar')", NoLabel(), '""'),
        ("time(6)", timedelta(hours=12, minutes=23, seconds=33, microseconds=123456), '"12:23:33.123456"'),
        ("time(3)", timedelta(0), '"00:00:00.000"'),
        ("datetime(3)", ZeroDate("0000-00-00 00:00:00.000"), '"0000-00-00 00:00:00.000"'),
        ("timestamp(4)", ZeroDate("0000-00-00 00:00:00.0000"), '"0000-00-00 00:00:00.0000"'),
        ("timestamp", datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), '"2026-01-01 00:00:00"'),
        ("json", '{"foo": [1, 2.50]}', '{"foo": [1, 2.50]}'),
        ("geometry", POINT, '"POINT (3 2)"'),
        ("varchar(9)", None, "null"),
    ],
)
def test_values(kind: str, value: Any, text: str) -> None:
    found = MaxwellJson()(change(table(v=kind), None, (value,)))
    assert found.endswith(f'"data":{{"v":{text}}}}}')


def test_a_column_that_is_not_logged_is_left_out_and_an_old_null_is_not() -> None:
    encoder = MaxwellJson(nulls=False)
    found = json.loads(encoder(change(E, (1, None, ABSENT, "x"), (ABSENT, 2.0, ABSENT, None))))
    assert (found["data"], found["old"]) == ({"m": 2.0}, {"id": 1, "m": None, "comment": "x"})


def test_what_is_no_text_is_refused() -> None:
    one = change(table(v="text"), None, (InvalidText(b"\xff", "utf8mb4"),))
    with pytest.raises(UnfitChangeError) as caught:
        MaxwellJson()(one)
    assert caught.value.changes == (one,)
