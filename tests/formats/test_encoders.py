"""What all encoders have in common, and targets that are given one."""

from __future__ import annotations

import json
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import canal
from canal import formats
from canal.changes import Change, Origin, Reader, Table
from canal.errors import UnfitChangeError
from canal.formats import CanalJson, DebeziumJson, Encoder, MaxwellJson, change_json, encoder_of
from canal.formats.encoder import names as encoder_names
from canal.formats.text import dumps
from canal.pipes.rules import Rules
from canal.rows.values import JsonText
from canal.schema import column_from_text
from canal.testing.fake import FakeBinlog


@pytest.mark.parametrize("name", formats.TEXTS)
def test_an_encoder_of_a_name(name: str) -> None:
    assert isinstance(encoder_of(name), Encoder)


def test_a_format_that_there_is_not_is_told() -> None:
    with pytest.raises(canal.ConfigError, match="no format 'xml'.*canal-json"):
        encoder_of("xml")
    with pytest.raises(canal.ConfigError, match="options schema$"):
        encoder_of("debezium-json", schema=True)
    with pytest.raises(canal.ConfigError, match="times is one of"):
        encoder_of("debezium-json", times="iso")


def test_a_change_of_the_key_in_a_file(tmp_path: Path) -> None:
    fake = FakeBinlog()
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(40)")
    orders.insert({"id": 1, "note": "é"})
    orders.update({"id": 1, "note": "é"}, {"id": 2})
    fake.ddl("ALTER TABLE orders ADD x INT", schema="shop")
    fake.end()
    rules = [canal.Rule(tables=r"shop\.orders", to="lake.bought")]
    for name, wanted in (
        ("debezium-json", [("c", None, 1), ("d", 1, None), ("c", None, 2)]),
        ("maxwell-json", [("insert", None, 1), ("update", 1, 2)]),
        ("canal-json", [("INSERT", None, "1"), ("UPDATE", "1", "2"), ("ALTER", None, None)]),
    ):
        path = tmp_path / name
        config = canal.InstanceConfig(destination="file", source=fake, start="earliest")
        with canal.Instance(config) as instance:
            instance.subscribe()
            canal.pipe(instance, canal.targets.JSONLinesTarget(path, encoder_of(name)), rules=rules).run()
        found = [json.loads(line) for line in path.read_text().splitlines()]
        for line, (op, before, after) in zip(found, wanted, strict=True):
            assert (line.get("op") or line["type"]) == op
            old, new = line.get("before", line.get("old")), line.get("after", line.get("data"))
            old, new = (rows[0] if isinstance(rows, list) else rows for rows in (old, new))
            assert ((old or {}).get("id"), (new or {}).get("id")) == (before, after)
            source = line.get("source", line)
            assert (source.get("db", source.get("database")), source["table"]) == ("lake", "bought")


def changes_of(fake: FakeBinlog, **options: Any) -> list[Change]:
    reader = Reader(is_log=True)
    with canal.Instance(canal.InstanceConfig(destination="d", source=fake, start="earliest", **options)) as instance:
        instance.subscribe()
        return [change for message in instance.stream() for entry in message.entries for change in reader.changes(entry)]


def test_a_database_with_a_dot_in_its_name_is_whole_in_all_forms() -> None:
    fake = FakeBinlog()
    fake.table("a.b", "c", "id INT PRIMARY KEY").insert({"id": 1})
    fake.table("a", "b.c", "id INT PRIMARY KEY").insert({"id": 2})
    fake.ddl("ALTER TABLE c ADD x INT", schema="a.b")
    fake.end()
    found = changes_of(fake)

    names = [("a.b", "c"), ("a", "b.c"), ("a.b", "c")]
    assert [(line["database"], line["table"]) for line in (json.loads(CanalJson()(one)) for one in found)] == names
    lines = [json.loads(MaxwellJson()(change)) for change in found[:2]]
    assert [(line["database"], line["table"]) for line in lines] == names[:2]
    sources = [json.loads(DebeziumJson()(change))["source"] for change in found[:2]]
    assert [(source["db"], source["table"]) for source in sources] == names[:2]
    rules = Rules([canal.Rule(to="{schema}.new")], is_log=True)
    renamed = [one for change in found for one in rules.apply(change)]
    assert [one.table.name for one in renamed] == ["a.b.new", "a.new", "a.b.new"]
    assert [encoder_names(one.table) for one in renamed] == [("a.b", "new"), ("a", "new"), ("a.b", "new")]


def test_two_tables_of_one_joined_name_stop_a_pipe_with_a_typed_error(tmp_path: Path) -> None:
    fake = FakeBinlog()
    fake.table("a.b", "c", "id INT PRIMARY KEY").insert({"id": 1})
    fake.table("a", "b.c", "id INT PRIMARY KEY").insert({"id": 1})
    fake.end()
    with canal.Instance(canal.InstanceConfig(destination="d", source=fake, start="earliest")) as instance:
        instance.subscribe()
        with pytest.raises(canal.ConfigError, match=r"\('a.b', 'c'\) and \('a', 'b.c'\) are both called a.b.c"):
            canal.pipe(instance, canal.targets.SQLiteTarget(tmp_path / "t.db"), on_error="stop").run()


DOCUMENTS = {"a": Decimal("1.10"), "t": timedelta(seconds=-1), "d": date(2026, 1, 31), "b": b"\xff\0", "n": None}
TEXT = '{"a": 1.10, "b": "base64:type252:/wA=", "d": "2026-01-31", "n": null, "t": "-00:00:01.000000"}'


def test_documents_are_the_servers_text_in_all_forms_also_where_the_instance_gives_objects() -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "t", "id INT PRIMARY KEY, j JSON")
    documents: list[tuple[Any, str | None]] = [
        (DOCUMENTS, TEXT),
        ('"text"', '"text"'),
        ('"1"', '"1"'),
        (["é"], '["é"]'),
        (None, None),
    ]
    for number, (value, _) in enumerate(documents):
        table.insert({"id": number, "j": value})
    fake.end()
    found = changes_of(fake, json="objects")

    for change, (_, text) in zip(found, documents, strict=True):
        assert change.row["j"] == text
        assert json.loads(CanalJson()(change))["data"][0]["j"] == text
        assert f'"j":{text or "null"}}}' in MaxwellJson()(change)
        assert json.loads(DebeziumJson()(change))["after"]["j"] == (text and text.replace(", ", ",").replace(": ", ":"))
        assert change_json.line(change).count(f'"j":{(text or "null").replace("é", json.dumps("é")[1:-1])}}}') == 1


def test_a_document_that_a_rule_makes_is_json() -> None:
    table = Table("t", "s.t", (column_from_text("j", "json"), column_from_text("k", "longtext", charset="utf8mb4")))
    value = {"a": Decimal("1.10"), "t": [timedelta(seconds=-1), b"\xff"]}
    change = Change(table, canal.changes.Op.INSERT, None, table.row({"j": value, "k": [value]}), Origin("f:4", "f:4", 0), 0)

    expected = {"a": "1.10", "t": ["-00:00:01", "ff"]}
    canals = json.loads(CanalJson()(change))["data"][0]
    assert [json.loads(text) for text in canals.values()] == [expected, [expected]]
    assert json.loads(MaxwellJson()(change))["data"] == {"j": expected, "k": [expected]}
    assert json.loads(change_json.line(change))["after"] == {"j": expected, "k": [expected]}


@pytest.mark.parametrize("name", [*formats.TEXTS, "line"])
def test_numbers_that_json_does_not_have_are_text_or_refused(name: str) -> None:
    table = Table("t", "s.t", (column_from_text("f", "double"),))
    encode = change_json.line if name == "line" else encoder_of(name)
    for value, text in ((float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity")):
        change = Change(table, canal.changes.Op.INSERT, None, table.row({"f": value}), Origin("f:4", "f:4", 0), 0)
        if name == "maxwell-json":
            with pytest.raises(UnfitChangeError, match="no infinite numbers"):
                encode(change)
        else:
            assert f'"f":"{text}"' in encode(change)


@pytest.mark.parametrize(
    "value", [0, -1 << 70, True, None, -0.0, 1e16, 5e-324, "", 'é"\n\x7f\u2028', JsonText("[]"), {"a": [1.5, b"x", {}], "": ()}]
)
def test_dumps_returns_the_text_of_the_standard_library(value: Any) -> None:
    assert dumps(value, bytes.hex) == json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=bytes.hex)


def test_dumps_of_what_utf8_or_json_lacks_is_valid_json() -> None:
    assert [dumps(one) for one in (float("nan"), float("-inf"), [float("inf")])] == ['"NaN"', '"-Infinity"', '["Infinity"]']
    assert dumps(["é\ud800"]) == '["\\u00e9\\ud800"]'
