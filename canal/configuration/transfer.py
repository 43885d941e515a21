"""go-mysql-transfer's app.yml (1.0.x): its rules, for a KafkaTarget, a RabbitMQTarget or a RocketMQTarget.

    found = read_transfer("app.yml")
    target = canal.targets.KafkaTarget("kafka:9092", encode=found.encode)
    canal.pipe(instance, target, rules=found.rules)

Every option maps, is refused, or is among ``notes`` with the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import attrs

from canal.errors import ConfigError
from canal.filter import TableFilter
from canal.formats.transfer_json import TransferForm, TransferJson
from canal.recent import Recent
from canal.rules import Rule
from canal.targets.tables import need

_SOURCE: Final = "an option of canal.MySQLSource"
_METER: Final = "canal.metrics.register, canal.web.app"
_BROKER: Final = "an option of the target"
#: Options beside the rules, and what is in their stead.
_NOTES: Final[dict[str, str]] = {
    **dict.fromkeys(("addr", "user", "pass", "slave_id"), _SOURCE),
    "charset": "text is decoded in the charset of its column", "flavor": "asked of the server",
    "data_dir": "meta=canal.FileMeta(directory)", "logger": "Python's logging, of the name canal",
    "maxprocs": "one thread writes, in order", "bulk_size": "batch_size of canal.pipe",
    "flush_bulk_interval": "linger of canal.pipe",
    **dict.fromkeys(("mysqldump", "skip_master_data"), "an initial load: docs/how-to/initial-load.md"),
    "skip_no_pk_table": "a table without a primary key has messages without a key",
    **dict.fromkeys(("enable_exporter", "exporter_addr", "enable_web_admin", "web_admin_port"), _METER),
    "cluster": "ha=canal.ZooKeeper(hosts=…)",
    **dict.fromkeys(("kafka_addrs", "kafka_sasl_user", "kafka_sasl_password", "rabbitmq_addr", "rocketmq_name_servers",
                     "rocketmq_group_name", "rocketmq_instance_name", "rocketmq_access_key", "rocketmq_secret_key"), _BROKER),
}  # fmt: skip
_TARGETS: Final = {"kafka": "kafka_topic", "rabbitmq": "rabbitmq_queue", "rocketmq": "rocketmq_topic"}
#: Where an app.yml for another target leads.
_OTHERS: Final = {
    "redis": "Make a canal.targets.RedisTarget, and canal.Rule objects.", "script": "Write it as transform= of a canal.Rule.",
    "elasticsearch": "Make a canal.targets.OpenSearchTarget, and canal.Rule objects.",
}  # fmt: skip
_FLAGS: Final = ("column_lower_case", "column_upper_case", "column_underscore_to_camel", "reserve_raw_data")
_MAPPED: Final = (
    "schema", "table", "include_columns", "exclude_columns", "column_mappings", "default_column_values", "date_formatter",
    "datetime_formatter", "value_encoder", *_FLAGS, *_TARGETS.values(),
)  # fmt: skip
_CODE: Final = "Write it in Python: transform= of a canal.Rule, or encode= of the target."
_REFUSED: Final = dict.fromkeys(("lua_script", "lua_file_path", "value_formatter"), _CODE)
_OF_OTHERS: Final = re.compile(r"(redis|mongodb|es)_\w+")
_ORDER: Final = "of a full load, which reads by the primary key: docs/how-to/initial-load.md"


@attrs.frozen
class Transfer:
    """What an app.yml comes to.

    Attributes:
        filter: ``filter`` of the InstanceConfig: the tables that have a rule.
        rules: ``rules`` of the pipe.
        encode: ``encode`` of the target, whose topic or routing key is the default, ``{name}``.
        notes: options that have no part in them, and what is in their stead.
    """

    filter: str
    rules: tuple[Rule, ...]
    encode: TransferJson
    notes: Mapping[str, str]


def read_transfer(path: str | os.PathLike[str]) -> Transfer:
    """Read an app.yml, with PyYAML.

    Raises:
        ConfigError: it is none, or an option has no equal; the message names it.
    """
    yaml = need("yaml", "transfer")
    try:
        document = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return transfer_of(document)


def transfer_of(document: Any) -> Transfer:
    """As ``read_transfer``, of what the file says.

    Raises:
        ConfigError: as ``read_transfer``.
    """
    if not isinstance(document, dict) or not isinstance(document.get("rule"), list) or not document["rule"]:
        raise ConfigError("an app.yml has a list of rules by the name rule")
    target = str(document.get("target", "")).lower()
    if target not in _TARGETS:
        remedy = _OTHERS.get(target, f"There are {', '.join(_TARGETS)}.")
        raise ConfigError(f"target {target!r} has no reader of its rules", remedy=remedy)
    _known(document, ("target", "rule", *_NOTES), "app.yml")
    notes = {name: why for name, why in _NOTES.items() if name in document}
    read = [_Reading(rule, f"rule {number}", target) for number, rule in enumerate(document["rule"], 1)]
    tables = [one.tables for one in read]
    if again := next((text for text in tables if tables.count(text) > 1), None):
        raise ConfigError(f"two rules are for {again}, the last of which would count", remedy="Take the others out.")
    notes |= {f"{one.where}: order_by_column": _ORDER for one in read if "order_by_column" in one.options}
    read.reverse()  # there the last rule counts, here the first
    forms = tuple((TableFilter(one.tables), one.form()) for one in read)
    return Transfer(",".join(tables), tuple(one.rule() for one in read), TransferJson(_Forms(forms)), notes)


@attrs.frozen
class _Forms:
    """The form of each table."""

    forms: tuple[tuple[TableFilter, TransferForm], ...]
    _found: Recent[str, TransferForm | None] = attrs.field(init=False, repr=False, eq=False, factory=Recent)

    def __call__(self, source: str) -> TransferForm | None:
        if source not in self._found:
            self._found[source] = next((form for names, form in self.forms if names.accepts_name(source)), None)
        return self._found[source]


@attrs.frozen
class _Names:
    """The new name of a column: the one that is mapped to it, in whatever case, else by its letters."""

    mapped: Mapping[str, str]
    letters: Callable[[str], str]

    def __call__(self, name: str) -> str:
        found = self.mapped.get(name.upper())
        return self.letters(name) if found is None else found


def camel(name: str) -> str:
    """``USER_NAME`` as ``userName``."""
    first, *others = name.lower().split("_")
    text = first + "".join(word[:1].upper() + word[1:] for word in others)
    return text[:1].lower() + text[1:]


class _Reading:
    """One rule, and what it comes to."""

    def __init__(self, options: Any, where: str, target: str) -> None:
        if not isinstance(options, dict):
            raise ConfigError(f"{where} is a list of options, not a {type(options).__name__}")
        self.where = where
        self.options = {name: value for name, value in options.items() if value is not None and value != ""}
        self._topic = _TARGETS[target]
        self._check()
        schema, table = self._text("schema"), self._text("table")
        if not schema or not table or table == "*":
            raise ConfigError(f"{where} names a schema and a table, or a regular expression of tables other than *")
        self.tables = rf"{_literal(schema)}\.{_literal(table) if re.escape(table) == table else _search(table)}"

    def _check(self) -> None:
        for name in self.options:
            if name in _REFUSED:
                raise ConfigError(f"{self.where}: {name} is not run here", remedy=_REFUSED[name])
            if _OF_OTHERS.fullmatch(str(name)) or name in _TARGETS.values() and name != self._topic:
                raise ConfigError(f"{self.where}: {name} is of another target", remedy="Take it out: it has no effect.")
        _known(self.options, (*_MAPPED, "order_by_column"), self.where)
        for name, value in self.options.items():
            if not isinstance(value, bool if name in _FLAGS else str):
                what = "true or false" if name in _FLAGS else "a text: put it in quotes"
                raise ConfigError(f"{self.where}: {name} is {what}, not {value!r}")
        if "include_columns" in self.options and "exclude_columns" in self.options:
            raise ConfigError(f"{self.where}: exclude_columns has no effect beside include_columns", remedy="Take it out.")

    def _text(self, name: str) -> str:
        return str(self.options.get(name, ""))

    def _list(self, name: str) -> list[str] | None:
        return self._text(name).split(",") if name in self.options else None

    def _pairs(self, name: str) -> dict[str, str]:
        pairs = [item.split("=") for item in self._list(name) or ()]
        if any(len(pair) != 2 for pair in pairs):
            raise ConfigError(f"{self.where}: {name} is like COLUMN=text,OTHER=text")
        return dict(pairs)

    def rule(self) -> Rule:
        letters: dict[str, Callable[[str], str]] = {
            "column_underscore_to_camel": camel, "column_lower_case": str.lower, "column_upper_case": str.upper,
        }  # fmt: skip
        chosen = next((change for name, change in letters.items() if self.options.get(name)), str)
        mapped = {name.upper(): new for name, new in self._pairs("column_mappings").items()}
        topic = self._text(self._topic).replace("{", "{{").replace("}", "}}")
        return Rule(
            tables=self.tables, fields=self._list("include_columns"), exclude=self._list("exclude_columns") or (),
            defaults=self._pairs("default_column_values"), rename=_Names(mapped, chosen), to=topic or "{table}",
        )  # fmt: skip

    def form(self) -> TransferForm:
        encoder: Any = self.options.get("value_encoder", "json")
        if encoder not in ("json", "kv-commas", "v-commas"):
            raise ConfigError(f"{self.where}: value_encoder is json, kv-commas or v-commas, not {encoder!r}")
        try:
            patterns = self._text("date_formatter"), self._text("datetime_formatter")
            return TransferForm(encoder, *patterns, self.options.get("reserve_raw_data", False))
        except ConfigError as error:
            raise ConfigError(f"{self.where}: {error.message}", remedy=error.remedy) from None


def _known(options: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in options:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            remedy = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
            raise ConfigError(f"{where} has no option {name}", remedy=remedy)


def _literal(name: str) -> str:
    return re.escape(name).replace(",", "[,]")


def _search(pattern: str) -> str:
    """A pattern for the whole name, of one that is searched within it."""
    front, back = "" if pattern.startswith("^") else ".*", "" if pattern.endswith("$") else ".*"
    return f"{front}(?:{pattern.removeprefix('^').removesuffix('$')}){back}"
