"""go-mysql-transfer's app.yml: what its options come to, and that none is passed over."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.changes import Change, Op, Table
from canal.changes.change import Origin
from canal.errors import ConfigError, UnfitChangeError
from canal.pipes.rules import Rules
from canal.schema import column_from_text
from canal.server.configuration.transfer import Transfer, read_transfer, transfer_of

_COLUMNS = (
    ("ID", "int"),
    ("USER_NAME", "varchar(40)"),
    ("PASSWORD", "varchar(40)"),
    ("amount", "decimal(30,2)"),
    ("born", "date"),
    ("at", "datetime(6)"),
    ("data", "blob"),
    ("doc", "json"),
)
_ROW = {
    "ID": 7,
    "USER_NAME": "wang",
    "PASSWORD": None,
    "amount": Decimal("12345678901234567890.10"),
    "born": date(2020, 1, 31),
    "at": datetime(2020, 1, 31, 4, 5, 6, 700000),
    "data": b"\xff",
    "doc": {"a": [1]},
}


def of(*rules: dict[str, Any], **options: Any) -> Transfer:
    given = [{"schema": "shop", "table": "t_user", **rule} for rule in rules]
    return transfer_of({"target": "kafka", "rule": given or [{"schema": "shop", "table": "t_user"}], **options})


def change(op: Op = Op.INSERT, source: str = "shop.t_user") -> Change:
    table = Table(source, source, tuple(column_from_text(name, kind, charset="utf8mb4") for name, kind in _COLUMNS), ("ID",))
    rows = {Op.INSERT: (None, _ROW), Op.DELETE: (_ROW, None), Op.UPDATE: (_ROW, _ROW | {"USER_NAME": "li"})}
    before, after = (None if row is None else table.row(row) for row in rows.get(op, (None, None)))
    return Change(table, op, before, after, Origin("u:1", "b:1", 1_600_000_000_999), 0)


def sent(found: Transfer, one: Change) -> tuple[str, Any]:
    """The topic and the message."""
    (made,) = Rules(found.rules, is_log=True).apply(one)
    text = found.options["encode"](made)
    return made.table.name, json.loads(text, parse_float=Decimal) if text else None


def test_a_row_is_the_message_that_its_consumers_know() -> None:
    topic, message = sent(of(), change())

    assert topic == "t_user"
    assert message == {
        "action": "insert",
        "timestamp": 1_600_000_000,
        "date": {**_ROW, "born": "2020-01-31", "at": "2020-01-31 04:05:06.700000", "data": "/w=="},
    }
    assert sent(of(), change(Op.DELETE))[1]["action"] == "delete"


@pytest.mark.parametrize(
    ("options", "topic", "names"),
    [
        ({"column_lower_case": True}, "t_user", "id user_name password amount born at data doc"),
        ({"column_upper_case": True, "kafka_topic": "users{x}"}, "users{x}", "ID USER_NAME PASSWORD AMOUNT BORN AT DATA DOC"),
        (
            {"column_underscore_to_camel": True, "column_lower_case": True},
            "t_user",
            "id userName password amount born at data doc",
        ),
        (
            {"include_columns": "ID,USER_NAME", "column_mappings": "user_name=account", "column_lower_case": True},
            "t_user",
            "id account",
        ),
        ({"exclude_columns": "data,doc,at,born,amount"}, "t_user", "ID USER_NAME PASSWORD"),
        (
            {"include_columns": "ID", "default_column_values": "AREA_name=x,b=", "column_underscore_to_camel": True},
            "t_user",
            "id areaName b",
        ),
    ],
)
def test_columns_are_chosen_named_and_filled(options: dict[str, Any], topic: str, names: str) -> None:
    found, message = sent(of(options), change())

    assert found == topic
    assert set(message["date"]) == set(names.split())
    if "default_column_values" in options:
        assert (message["date"]["areaName"], message["date"]["b"]) == ("x", "")


def test_values_have_the_forms_that_are_asked_for() -> None:
    few = {"include_columns": "ID,USER_NAME,PASSWORD,born,at"}
    patterns = {"date_formatter": "dd/MM/yyyy", "datetime_formatter": "yyMMdd HH:mm:ss"}

    assert sent(of({**few, **patterns, "value_encoder": "kv-commas"}), change())[1]["date"] == (
        "ID=7,USER_NAME=wang,PASSWORD=,born=31/01/2020,at=200131 04:05:06"
    )
    assert sent(of({**few, "value_encoder": "v-commas"}), change())[1]["date"] == "7,wang,,2020-01-31,2020-01-31 04:05:06.700000"
    raw = sent(of({**few, "reserve_raw_data": True}), change(Op.UPDATE))[1]
    assert (raw["raw"]["USER_NAME"], raw["date"]["USER_NAME"]) == ("wang", "li")
    assert "raw" not in sent(of(few), change(Op.UPDATE))[1]


def test_what_has_no_message_is_not_sent_or_unfit() -> None:
    assert sent(of(), change(source="shop.other"))[1] is None
    assert sent(of(), change(Op.ALTER))[1] is None
    with pytest.raises(UnfitChangeError, match="TRUNCATE"):
        sent(of(), change(Op.TRUNCATE))


def test_the_last_rule_counts_and_a_pattern_is_searched_in_the_name() -> None:
    found = of({"kafka_topic": "one"}, {"table": r"_user\d*$", "kafka_topic": "many"}, {"table": "^x", "kafka_topic": "x"})

    assert [sent(found, change(source=f"SHOP.{name}"))[0] for name in ("t_user", "t_user12", "x_y")] == ["many", "many", "x"]
    accepts = canal.InstanceConfig(destination="d", source=canal.MySQLSource(), filter=found.filter).table_filter().accepts
    assert [accepts("shop", name) for name in ("t_user", "t_user1", "x1", "y", "t_users")] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"lua_script": "x"}, "lua_script has no equal"),
        ({"lua_file_path": "x"}, "lua_file_path has no equal"),
        ({"value_formatter": "{{.ID}}"}, "value_formatter has no equal"),
        ({"redis_structure": "string"}, "redis_structure is of another target"),
        ({"es_index": "a"}, "es_index is of another target"),
        ({"mongodb_database": "a"}, "mongodb_database is of another target"),
        ({"rabbitmq_queue": "a"}, "rabbitmq_queue is of another target"),
        ({"rocketmq_topic": "a"}, "rocketmq_topic is of another target"),
        ({"include_columns": "ID", "exclude_columns": "doc"}, "no effect beside"),
        ({"column_mappings": "a"}, "is like COLUMN=text"),
        ({"default_column_values": "a=b=c"}, "is like COLUMN=text"),
        ({"value_encoder": "xml"}, "json, kv-commas or v-commas"),
        ({"date_formatter": "yyyy-MMM-dd"}, "'MMM'|'M'"),
        ({"date_formatter": "yyyy HH"}, "'HH'"),
        ({"column_lower_case": "yes"}, "true or false"),
        ({"kafka_topic": 7}, "in quotes"),
        ({"include_column": "ID"}, "Did you mean include_columns"),
        ({"table": "*"}, "other than"),
        ({"schema": ""}, "names a schema"),
    ],
)
def test_what_has_no_equal_is_refused_by_its_name(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        of(rule)


def test_the_file_as_it_is_shipped(tmp_path: Path) -> None:
    path = tmp_path / "app.yml"
    path.write_text(
        "addr: 127.0.0.1:3306\nuser: root\npass: root\ncharset : utf8\nslave_id: 1001\nflavor: mysql\nenable_web_admin: true\n"
        "target: RabbitMQ\nrabbitmq_addr: amqp://x\nrule:\n  -\n    schema: shop\n    table: t_user\n    order_by_column: id\n"
        "    column_underscore_to_camel: true\n    value_encoder: json\n"
    )

    found = read_transfer(path)

    assert sent(found, change())[1]["date"]["userName"] == "wang"
    assert {*found.notes} == {
        "addr",
        "user",
        "pass",
        "charset",
        "slave_id",
        "flavor",
        "enable_web_admin",
        "rabbitmq_addr",
        "rule 1: order_by_column",
    }
    wrong = (("rule: {", "cannot be read"), ("target: script\nrule: [{}]", "transform= of a canal.Rule"), ("[]", "list of rules"))
    for text, message in wrong:
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_transfer(path)
    topics = "target: rocketmq\nrocketmq_name_servers: a:1\nrule: [{schema: shop, table: t_user, rocketmq_topic: users}]"
    path.write_text(topics)
    assert sent(read_transfer(path), change())[0] == "users"
    with pytest.raises(ConfigError, match="has no option kafka_addr"):
        of(kafka_addr="x")
    with pytest.raises(ConfigError, match="two rules"):
        of({}, {})


def rows_of(target: str, *rules: dict[str, Any], **options: Any) -> Transfer:
    return of(*rules, target=target, **options)


def kept(found: Transfer, one: Change) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    """The table, its key, and the row."""
    (made,) = Rules(found.rules).apply(one)
    assert made.after is not None
    return made.table.name, made.table.keys, made.after.as_dict()


@pytest.mark.parametrize(
    ("target", "options", "name", "keys"),
    [
        ("mongodb", {"mongodb_database": "d{}"}, "d{}.t_user", ("ID",)),
        ("MongoDB", {"mongodb_database": "d", "mongodb_collection": "users"}, "d.users", ("ID",)),
        ("elasticsearch", {}, "t_user", ("ID",)),
        ("elasticsearch", {"es_index": "users", "column_lower_case": True}, "users", ("id",)),
        ("redis", {"redis_structure": "String"}, "t_user", ("ID",)),
        ("redis", {"redis_structure": "string", "redis_key_prefix": "user:"}, "user", ("ID",)),
        (
            "redis",
            {"redis_structure": "string", "redis_key_column": "USER_NAME", "column_underscore_to_camel": True},
            "t_user",
            ("userName",),
        ),
        ("redis", {"redis_structure": "set", "redis_key_value": "users"}, "users", ("ID",)),
    ],
)
def test_rules_for_targets_that_keep_rows(target: str, options: dict[str, Any], name: str, keys: tuple[str, ...]) -> None:
    found = rows_of(target, {"value_encoder": "json", **options})

    assert kept(found, change())[:2] == (name, keys)
    assert [*kept(found, change())[2].values()] == [*_ROW.values()]
    assert "encode" not in found.options


def test_the_options_of_a_redis_target() -> None:
    scored = {"redis_structure": "sortedset", "redis_key_value": "u", "redis_sorted_set_score_column": "ID"}

    found = rows_of("redis", {"redis_structure": "string"}, redis_group_type="cluster")
    assert found.options == {"structure": "json", "cluster": True}
    found = rows_of("redis", scored | {"column_lower_case": True})
    assert found.options == {"structure": "sortedset", "score": "id"}
    canal.targets.RedisTarget("redis://localhost", **found.options)
    with pytest.raises(ConfigError, match="several structures"):
        rows_of("redis", scored, {"table": "b", "redis_structure": "string"})
    assert "rule 1: redis_key_prefix" in rows_of("redis", {"redis_structure": "string"}).notes


def test_fields_of_an_index_are_renamed_and_how_it_is_made_is_told() -> None:
    field = {"column": "user_name", "field": "account", "type": "text", "analyzer": "ik_smart"}
    found = rows_of("elasticsearch", {"es_mappings": [field], "include_columns": "ID,USER_NAME"})

    assert kept(found, change()) == ("t_user", ("ID",), {"ID": 7, "account": "wang"})
    assert '"account": {"type": "text", "analyzer": "ik_smart"}' in found.notes["rule 1: es_mappings"]


@pytest.mark.parametrize(
    ("target", "rule", "message"),
    [
        ("mongodb", {}, "has no mongodb_database"),
        ("mongodb", {"mongodb_database": "d", "date_formatter": "yyyy"}, "date_formatter is of messages"),
        ("mongodb", {"mongodb_database": "d", "value_encoder": "v-commas"}, "value_encoder is of messages"),
        ("mongodb", {"mongodb_database": "d", "kafka_topic": "t"}, "kafka_topic is of another target"),
        ("elasticsearch", {"reserve_raw_data": True}, "reserve_raw_data is of messages"),
        ("elasticsearch", {"es_type": "_doc"}, "es_type has no equal"),
        ("elasticsearch", {"es_mappings": "x"}, "es_mappings is a list"),
        ("elasticsearch", {"es_mappings": [{"column": "a"}]}, "column, field and type"),
        ("elasticsearch", {"es_mappings": [{"column": "a", "field": "b", "type": "text", "boost": 1}]}, "no option boost"),
        ("redis", {}, "redis_structure '' has no equal"),
        ("redis", {"redis_structure": "hash", "redis_key_value": "u"}, "redis_structure 'hash' has no equal"),
        ("redis", {"redis_structure": "list", "redis_key_value": "u"}, "redis_structure 'list' has no equal"),
        ("redis", {"redis_structure": "string", "redis_key_value": "u"}, "redis_key_value has no equal"),
        ("redis", {"redis_structure": "string", "redis_key_prefix": "USER_"}, "ends with a colon"),
        ("redis", {"redis_structure": "string", "redis_key_formatter": "{{.ID}}"}, "redis_key_formatter has no equal"),
        ("redis", {"redis_structure": "set"}, "needs redis_key_value"),
        ("redis", {"redis_structure": "set", "redis_key_value": "u", "redis_key_prefix": "u:"}, "redis_key_prefix has no equal"),
        ("redis", {"redis_structure": "sortedset", "redis_key_value": "u"}, "needs redis_sorted_set_score_column"),
    ],
)
def test_what_a_target_of_rows_has_no_equal_for_is_refused(target: str, rule: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rows_of(target, rule)


@pytest.mark.parametrize(
    ("target", "options"), [("elasticsearch", {"es_version": 6}), ("redis", {"redis_group_type": "sentinel"})]
)
def test_servers_that_no_target_is_for_are_refused(target: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="es_version is 7, and redis_group_type cluster"):
        rows_of(target, {}, **options)
