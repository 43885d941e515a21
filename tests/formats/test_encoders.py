"""What all encoders have in common, and targets that are given one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import canal
from canal import formats
from canal.formats import Encoder, encoder_of
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
