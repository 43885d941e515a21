"""The table ``pipe`` of a destination in TOML: where ``canal run`` writes its changes.

    [destinations.orders.pipe]
    target = { kind = "sqlite", path = "/var/lib/app/copy.db" }
    park = { kind = "jsonlines", path = "/var/lib/app/parked.jsonl" }

    [[destinations.orders.pipe.rules]]
    tables = 'shop\\.orders'
    fields = ["id", "total"]
    values = { label = "{{ row.id }}: {{ row.total }}" }
    to = { template = "{{ schema }}.orders_{{ row.country }}" }

Never opens a target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from canal import targets
from canal.errors import ConfigError
from canal.formats import encoder_of
from canal.pipes.rules import Rule
from canal.pipes.templates import Template

#: Of a rule and of the pipe, what a file can say; the rest is code.
_RULE: Final = ("tables", "fields", "exclude", "rename", "defaults", "values", "keys", "to", "merge")
_PIPE: Final = ("stream", "on_large", "acknowledged", "client_id", "batch_size", "linger", "snapshot")

#: Options of targets that may be ``{ template = "…" }``.
_TEMPLATED: Final = ("topic", "routing_key", "key", "tag", "encode")

#: Makes an object of options; a ConfigError says where they stand.
Call = Callable[[Callable[..., Any], dict[str, Any], str], Any]


def pipe_options(table: Any, where: str, call: Call) -> dict[str, Any]:
    """The arguments of ``canal.pipe`` that a table says, the instance apart.

    Raises:
        ConfigError: it is none, or has an option that there is not.
    """
    if not isinstance(table, dict) or "target" not in table:
        raise ConfigError(f"{where} is a table with a target")
    _check(table, (*_PIPE, "target", "park", "rules"), where)
    found = {name: table[name] for name in _PIPE if name in table}
    found["target"] = _target(table["target"], f"{where}.target", call)
    if "park" in table:
        found["on_unfit"] = _target(table["park"], f"{where}.park", call)
    rules = table.get("rules", [])
    if not isinstance(rules, list):
        raise ConfigError(f"{where}.rules is an array of tables")
    found["rules"] = [_rule(rule, f"{where}.rules[{number}]", call) for number, rule in enumerate(rules)]
    return found


def _check(table: Any, known: tuple[str, ...], where: str) -> None:
    if not isinstance(table, dict):
        raise ConfigError(f"{where} is a table, not a {type(table).__name__}")
    unknown = sorted(table.keys() - set(known))
    if unknown:
        raise ConfigError(f"{where} has no option {', '.join(unknown)}", remedy=f"There are {', '.join(known)}.")


def _rule(table: Any, where: str, call: Call) -> Rule:
    _check(table, _RULE, where)
    options = _templated(table, ("to",), where, call)
    if "values" in options:
        _check(options["values"], tuple(options["values"]) if isinstance(options["values"], dict) else (), f"{where}.values")
        options["values"] = {
            name: call(Template, {"text": text}, f"{where}.values.{name}") for name, text in options["values"].items()
        }
    rule: Rule = call(Rule, options, where)
    return rule


def _templated(table: dict[str, Any], names: tuple[str, ...], where: str, call: Call) -> dict[str, Any]:
    """The options, of which those of these names may be ``{ template = "…" }``."""
    return {
        name: call(Template, {"text": value["template"]}, f"{where}.{name}")
        if name in names and isinstance(value, dict) and value.keys() == {"template"}
        else value
        for name, value in table.items()
    }


def _target(table: Any, where: str, call: Call) -> Any:
    classes = (name for name in targets.__all__ if name.endswith("Target") and name != "Target")
    kinds = {name.removesuffix("Target").lower(): name for name in classes}
    kind = table.get("kind") if isinstance(table, dict) else None
    if kind not in kinds:
        raise ConfigError(f"{where} has no kind {kind!r}", remedy=f"There are {', '.join(sorted(kinds))}.")
    options = _templated({name: value for name, value in table.items() if name != "kind"}, _TEMPLATED, where, call)
    if "encode" in options and not isinstance(options["encode"], Template):
        options["encode"] = _encoder(options["encode"], f"{where}.encode", call)
    return call(getattr(targets, kinds[kind]), options, where)


def _encoder(value: Any, where: str, call: Call) -> Any:
    """``"debezium-json"``, or ``{ format = "debezium-json", schemas = true }``."""
    table = {"format": value} if isinstance(value, str) else value
    if not isinstance(table, dict) or not isinstance(table.get("format"), str):
        raise ConfigError(f'{where} is a format such as "debezium-json", or a table with format and its options')
    options = {name: one for name, one in table.items() if name != "format"}
    return call(lambda **given: encoder_of(table["format"], **given), options, where)
