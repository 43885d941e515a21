"""Templates: the same text each time, the values as MySQL writes them, and no way out of the sandbox."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.errors import ConfigError, UnfitChangeError
from canal.server.configuration.toml_files import TomlFiles
from canal.targets import JSONLinesTarget, KafkaTarget
from canal.targets.messages import halves
from canal.testing import FakeBinlog, check_rule

COLUMNS = "id INT PRIMARY KEY, first VARCHAR(20), last VARCHAR(20), total DECIMAL(10,2), raw BLOB"
ROW = {"id": 1, "first": "Ada", "last": None, "total": Decimal("4.50"), "raw": b"\x01\xff"}


@pytest.fixture
def changes(fake_binlog: FakeBinlog) -> list[canal.changes.Change]:
    table = fake_binlog.table("shop", "orders", COLUMNS)
    table.insert(ROW)
    table.update(ROW, {"id": 2, "last": "L"})
    table.delete({**ROW, "id": 2, "last": "L"})
    fake_binlog.end()
    reader = canal.changes.Reader(is_log=True)
    with canal.Instance(canal.InstanceConfig(destination="d", source=fake_binlog, start="earliest")) as instance:
        instance.subscribe()
        return [change for message in instance.stream() for entry in message.entries for change in reader.changes(entry)]


def written(rule: canal.Rule, fake: FakeBinlog, path: Path, **options: Any) -> list[dict[str, Any]]:
    fake.end()
    with canal.Instance(canal.InstanceConfig(destination="d", source=fake, start="earliest")) as instance:
        instance.subscribe()
        canal.pipe(instance, JSONLinesTarget(path), rules=[rule], on_error="stop", **options).run()
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("{{ schema }}.{{ table }}_{{ row.id }}", ["shop.orders_1", "shop.orders_2", "shop.orders_2"]),
        ("{{ op }} {{ row['first'] | lower }} {{ row.last or '' }}", ["INSERT ada ", "UPDATE ada L", "DELETE ada L"]),
        ("{{ row.total }} {{ row.raw | hex }}\n", ["4.50 01ff\n"] * 3),
        ("{{ [row.id, row.last] | json }}", ["[1,null]", '[2,"L"]', '[2,"L"]']),
        ("{% if before %}{{ before.id }}{% endif %}-{% if after %}{{ after.id }}{% endif %}", ["-1", "1-2", "2-"]),
    ],
)
def test_texts_are_made_of_changes(text: str, made: list[str], changes: list[canal.changes.Change]) -> None:
    template = pickle.loads(pickle.dumps(canal.Template(text)))

    assert [template(change) for change in changes] == made


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ row.last }}", "is NULL"),
        ("{{ row.raw }}", "is bytes"),
        ("{{ row.other }}", "has no attribute 'other'"),
        ("{{ row.first.__class__.__mro__ }}", "unsafe"),
        ("{{ row.update({'id': 7}) }}", "unsafe"),
        ("{{ row.first / 2 }}", "TypeError"),
    ],
)
def test_what_is_no_text_is_unfit_with_its_table_and_position(text: str, says: str, changes: list[canal.changes.Change]) -> None:
    with pytest.raises(UnfitChangeError, match=f"change of shop.orders: .*{says}") as raised:
        canal.Template(text)(changes[0])

    assert raised.value.position == changes[0].origin.position
    assert raised.value.changes == (changes[0],)
    assert "Ada" not in str(raised.value)


@pytest.mark.parametrize("text", ["{{ row.", "{% for %}", "{{ row | random }}", 7])
def test_what_is_no_template_is_told_at_once(text: Any) -> None:
    with pytest.raises(ConfigError):
        canal.Template(text)


def test_no_template_gives_another_text_the_second_time(changes: list[canal.changes.Change]) -> None:
    with pytest.raises(UnfitChangeError, match="lipsum"):
        canal.Template("{{ lipsum() }}")(changes[0])
    rule = canal.Rule(values={"label": canal.Template("{{ row.id }}")}, to=canal.Template("x{{ row.id }}"))

    # the update is a delete and an insert
    assert [change.table.name for change in check_rule(rule, changes)] == ["x1", "x1", "x2", "x2"]


def test_a_key_is_made_by_a_template(changes: list[canal.changes.Change]) -> None:
    key: Any = canal.Template("{{ table }}:{{ row.id }}")
    target = KafkaTarget("localhost", key=key)

    assert [found for change in changes for _, found in halves(change, target.key)] == [
        b"orders:1",
        b"orders:1",
        b"orders:2",
        b"orders:2",
    ]
    with pytest.raises(UnfitChangeError, match="is NULL") as raised:
        list(halves(changes[0], canal.Template("{{ row.last }}")))
    assert raised.value.position == changes[0].origin.position


def test_values_of_a_rule_are_made_of_masked_rows(fake_binlog: FakeBinlog, tmp_path: Path) -> None:
    fake_binlog.table("shop", "orders", COLUMNS).insert(ROW)
    rule = canal.Rule(
        fields=["id", "total"],
        mask={"first": lambda name: name[0]},
        rename=str.upper,
        defaults={"country": "de"},
        values={"label": canal.Template("{{ row.first }} {{ row.country }}"), "total": lambda row: row["total"] * 2},
    )

    (line,) = written(rule, fake_binlog, tmp_path / "out")

    assert line["after"] == {"ID": 1, "TOTAL": "9.00", "COUNTRY": "de", "LABEL": "A de"}


def test_a_change_that_a_template_cannot_name_is_parked(fake_binlog: FakeBinlog, tmp_path: Path) -> None:
    orders = fake_binlog.table("shop", "orders", COLUMNS)
    orders.insert(ROW)
    orders.insert({**ROW, "id": 2, "last": "L"})
    rule = canal.Rule(to=canal.Template("{{ row.last }}"))

    (line,) = written(rule, fake_binlog, tmp_path / "out", on_unfit=JSONLinesTarget(tmp_path / "parked"))

    assert (line["table"], line["after"]["id"]) == ("L", 2)
    parked = json.loads((tmp_path / "parked").read_text())
    assert (parked["after"]["id"], "is NULL" in parked["error"]) == (1, True)


TOML = """
[destinations.orders]
source = { directory = "%s" }
filter = 'shop\\..*'

[destinations.orders.pipe]
target = { kind = "kafka", servers = "kafka", key = { template = "{{ row.id }}" }, encode = { template = "{{ row.id }}!" } }

[[destinations.orders.pipe.rules]]
tables = 'shop\\.orders'
rename = { template = "text" }
values = { label = "{{ row.first }}" }
to = { template = "{{ schema }}_{{ row.id }}" }
"""


def test_templates_stand_in_a_file(tmp_path: Path) -> None:
    pipe = TomlFiles(TOML % tmp_path).pipe("orders")

    assert pipe is not None
    (rule,) = pipe["rules"]
    assert (rule.to, rule.values) == (canal.Template("{{ schema }}_{{ row.id }}"), {"label": canal.Template("{{ row.first }}")})
    assert rule.rename == {"template": "text"}
    assert (pipe["target"].key, pipe["target"].encode) == (canal.Template("{{ row.id }}"), canal.Template("{{ row.id }}!"))
    with pytest.raises(ConfigError, match=r"rules\[0\]\.values\.label: .* no template"):
        TomlFiles((TOML % tmp_path).replace("{{ row.first }}", "{{ row.")).pipe("orders")
