"""canal's FlatMessage JSON."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from canal.formats.canal_json import to_canal_json
from canal.formats.columns import canal_columns
from canal.formats.message import Message
from canal.model import EntryType, EventType, RowData
from canal.rows.values import ABSENT
from canal.schema import ColumnSchema

COLUMNS = (
    ColumnSchema("id", 3, key=True, column_type="int(11)"),
    ColumnSchema("sname", 15, charset="utf8mb4", column_type="varchar(20)"),
)


def entry(
    event_type: EventType = EventType.INSERT,
    rows: tuple[Any, ...] = (),
    *,
    sql: str = "",
    is_ddl: bool = False,
    entry_type: EntryType = EntryType.ROWDATA,
    columns: tuple[ColumnSchema, ...] = COLUMNS,
) -> Any:
    """What to_canal_json() reads of an entry."""
    datas = [RowData(*canal_columns(columns, before, after)) for before, after in rows]
    return SimpleNamespace(
        entry_type=entry_type,
        event_type=event_type,
        header=SimpleNamespace(schema="db", table="t", execute_time=1553655416000, gtid=""),
        row_change=SimpleNamespace(is_ddl=is_ddl, sql=sql, row_datas=datas),
    )


def one(*args: Any, **kwargs: Any) -> dict[str, Any]:
    (text,) = to_canal_json([entry(*args, **kwargs)], batch_id=1, now=2)
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_sample_of_canal_to_the_byte() -> None:
    assert to_canal_json([entry(rows=((None, (11, "x")),))], batch_id=1, now=1553655817027) == [
        '{"data":[{"id":"11","sname":"x"}],"database":"db","es":1553655416000,"gtid":"","id":1,"isDdl":false,'
        '"mysqlType":{"id":"int(11)","sname":"varchar(20)"},"old":null,"pkNames":["id"],"sql":"",'
        '"sqlType":{"id":4,"sname":12},"table":"t","ts":1553655817027,"type":"INSERT"}'
    ]


@pytest.mark.parametrize("event_type", [EventType.INSERT, EventType.UPDATE, EventType.DELETE, EventType.QUERY])
def test_keys_are_alphabetical_and_all_there(event_type: EventType) -> None:
    rows = () if event_type == EventType.QUERY else (((1, "a"), (1, "b")),)
    keys = list(one(event_type, rows))
    assert keys == sorted(keys)
    assert len(keys) == 14


def test_update_gives_old_values_row_by_row() -> None:
    rows = (((1, "a"), (2, "a")), ((3, "b"), (3, "c")), ((4, None), (4, "d")))
    message = one(EventType.UPDATE, rows)
    assert message["old"] == [{"id": "1"}, {"sname": "b"}, {"sname": None}]  # canal adds "id" to the later ones
    assert message["data"] == [{"id": "2", "sname": "a"}, {"id": "3", "sname": "c"}, {"id": "4", "sname": "d"}]


def test_old_stays_beside_its_row_when_nothing_is_known() -> None:
    message = one(EventType.UPDATE, (((1, ABSENT), (ABSENT, "x")), ((2, "a"), (2, "b"))))
    assert message["old"] == [{}, {"sname": "a"}]
    assert message["data"] == [{"sname": "x"}, {"id": "2", "sname": "b"}]


def test_delete_gives_the_values_before() -> None:
    message = one(EventType.DELETE, (((1, "a"), None),))
    assert message["data"] == [{"id": "1", "sname": "a"}]
    assert message["old"] is None
    assert message["pkNames"] == ["id"]


def test_no_primary_key() -> None:
    assert one(rows=((None, (1,)),), columns=(ColumnSchema("a", 3),))["pkNames"] is None


def test_ddl() -> None:
    message = one(EventType.ALTER, sql='alter table t add `é"` int', is_ddl=True)
    assert message["isDdl"] is True
    assert message["sql"] == 'alter table t add `é"` int'
    assert [message[key] for key in ("data", "old", "sqlType", "mysqlType", "pkNames")] == [None] * 5
    assert message["type"] == "ALTER"


def test_begin_and_end_give_nothing() -> None:
    entries = [entry(entry_type=EntryType.TRANSACTIONBEGIN), entry(entry_type=EntryType.TRANSACTIONEND)]
    assert to_canal_json(entries, batch_id=1) == []


def test_a_message_has_its_id() -> None:
    (text,) = to_canal_json(Message(7, [entry(rows=((None, (1, "x")),))]))
    assert json.loads(text)["id"] == 7
    assert abs(json.loads(text)["ts"] / 1000 - time.time()) < 60
    assert json.loads(to_canal_json(Message(7, [entry()]), batch_id=9)[0])["id"] == 9


def test_every_line_can_be_written() -> None:
    (text,) = to_canal_json([entry(EventType.QUERY, sql="insert '\udcff表'", is_ddl=True)], batch_id=1)
    assert json.loads(text.encode())["sql"] == "insert '\udcff表'"
    (text,) = to_canal_json([entry(rows=((None, (1, "表\x00")),))], batch_id=1)
    assert "表" in text
