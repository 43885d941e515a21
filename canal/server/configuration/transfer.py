"""go-mysql-transfer's app.yml (1.0.x): its rules, for the target of ours that is of the same kind as the file's.

    found = read_transfer("app.yml")
    target = canal.targets.KafkaTarget("kafka:9092", **found.options)
    canal.pipe(instance, target, rules=found.rules)

Every option maps, is refused, or is among ``notes`` with the reason.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import attrs

from canal._util.bounded import Recent
from canal.errors import ConfigError
from canal.filter import TableFilter
from canal.formats.transfer_json import TransferForm, TransferJson
from canal.pipes.rules import Rule
from canal.targets.tables import need

_SOURCE: Final = "an option of canal.MySQLSource"
_METER: Final = "canal.metrics.register, canal.cli.web.app"
_TARGET: Final = "an option of the target"
#: Options beside the rules, and what is in their stead.
_NOTES: Final[dict[str, str]] = {
    **dict.fromkeys(("addr", "user", "pass", "slave_id"), _SOURCE),
    "charset": "text is decoded in the charset of its column",
    "flavor": "asked of the server",
    "data_dir": "meta=canal.FileMeta(directory)",
    "logger": "Python's logging, of the name canal",
    "maxprocs": "one thread writes, in order",
    "bulk_size": "batch_size of canal.pipe",
    "flush_bulk_interval": "linger of canal.pipe",
    **dict.fromkeys(("mysqldump", "skip_master_data"), "an initial load: docs/how-to/initial-load.md"),
    "skip_no_pk_table": "a table without a primary key has messages without a key",
    **dict.fromkeys(("enable_exporter", "exporter_addr", "enable_web_admin", "web_admin_port"), _METER),
    "cluster": "ha=canal.ZooKeeper(hosts=…)",
    **dict.fromkeys(
        (
            "kafka_addrs",
            "kafka_sasl_user",
            "kafka_sasl_password",
            "rabbitmq_addr",
            "rocketmq_name_servers",
            "rocketmq_group_name",
            "rocketmq_instance_name",
            "rocketmq_access_key",
            "rocketmq_secret_key",
            "redis_addrs",
            "redis_pass",
            "redis_database",
            "redis_group_type",
            "mongodb_addrs",
            "mongodb_username",
            "mongodb_password",
            "es_addrs",
            "es_user",
            "es_password",
            "es_version",
        ),
        _TARGET,
    ),
}
_BROKERS: Final = {"kafka": "kafka_topic", "rabbitmq": "rabbitmq_queue", "rocketmq": "rocketmq_topic"}
#: The options of rules that are of one target.
_TARGETS: Final[Mapping[str, tuple[str, ...]]] = {
    **{target: (topic,) for target, topic in _BROKERS.items()},
    "redis": ("redis_structure", "redis_key_prefix", "redis_key_column", "redis_key_value", "redis_sorted_set_score_column"),
    "mongodb": ("mongodb_database", "mongodb_collection"),
    "elasticsearch": ("es_index", "es_mappings"),
}
_SCRIPT: Final = "Write it as transform= of a canal.Rule."
_FLAGS: Final = ("column_lower_case", "column_upper_case", "column_underscore_to_camel", "reserve_raw_data")
_MAPPED: Final = (
    "schema",
    "table",
    "include_columns",
    "exclude_columns",
    "column_mappings",
    "default_column_values",
    "date_formatter",
    "datetime_formatter",
    "value_encoder",
    *_FLAGS,
)
#: In ``to`` of a rule the name at the source.
_TABLE: Final = "{table}"
_CODE: Final = "Write it in Python: transform= of a canal.Rule, or encode= of the target."
_NAMES_KEYS: Final = "Name the columns of the key by keys= of a canal.Rule."
_REFUSED: Final = {
    **dict.fromkeys(("lua_script", "lua_file_path", "value_formatter"), _CODE),
    "redis_key_formatter": _NAMES_KEYS,
    "redis_hash_field_prefix": _NAMES_KEYS,
    "redis_hash_field_column": _NAMES_KEYS,
    "es_type": "There are none since Elasticsearch 7: take it out.",
}
#: What a target that keeps rows has no use for.
_OF_MESSAGES: Final = ("date_formatter", "datetime_formatter", "reserve_raw_data")
_OF_OTHERS: Final = re.compile(r"(redis|mongodb|es|kafka|rabbitmq|rocketmq)_\w+")
#: Of ``redis_structure``: that of a RedisTarget, and the options that name its keys.
_STRUCTURES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "string": ("json", ("redis_key_prefix", "redis_key_column")),
    "set": ("set", ("redis_key_value",)),
    "sortedset": ("sortedset", ("redis_key_value", "redis_sorted_set_score_column")),
}
_ROWS: Final = "Take it out: values have the types of their columns. mask= of a canal.Rule makes others of them."
_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    **dict.fromkeys(_FLAGS, (bool, "true or false")),
    "es_mappings": (list, "a list"),
}
_ORDER: Final = "of a full load, which reads by the primary key: docs/how-to/initial-load.md"


@attrs.frozen
class Transfer:
    """What an app.yml comes to.

    Attributes:
        filter: ``filter`` of the InstanceConfig: the tables that have a rule.
        rules: ``rules`` of the pipe.
        options: of the target: of a broker ``encode``, whose topic or routing key is the default, ``{name}``; of a RedisTarget
            ``structure``, and ``score`` and ``cluster`` where they are asked for.
        notes: options that have no part in them, and what is in their stead.
    """

    filter: str
    rules: tuple[Rule, ...]
    options: Mapping[str, Any]
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
        remedy = _SCRIPT if target == "script" else f"There are {', '.join(_TARGETS)}."
        raise ConfigError(f"target {target!r} has no reader of its rules", remedy=remedy)
    _known(document, ("target", "rule", *_NOTES), "app.yml")
    if str(document.get("es_version", 7)) != "7" or document.get("redis_group_type", "cluster") != "cluster":
        raise ConfigError("es_version is 7, and redis_group_type cluster", remedy="There is no target for others.")
    notes = {name: why for name, why in _NOTES.items() if name in document}
    read = [_Reading(rule, f"rule {number}", target) for number, rule in enumerate(document["rule"], 1)]
    tables = [one.tables for one in read]
    if again := next((text for text in tables if tables.count(text) > 1), None):
        raise ConfigError(f"two rules are for {again}, the last of which would count", remedy="Take the others out.")
    for one in read:
        notes |= one.notes()
    read.reverse()  # there the last rule counts, here the first
    options = _redis(read, document) if target == "redis" else {}
    if target in _BROKERS:
        options = {"encode": TransferJson(_Forms(tuple((TableFilter(one.tables), one.form()) for one in read)))}
    return Transfer(",".join(tables), tuple(one.rule() for one in read), options, notes)


def _redis(read: Sequence[_Reading], document: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the one RedisTarget that all rules are for."""
    found = [one.structure() for one in read]
    if any(one != found[0] for one in found):
        raise ConfigError("the rules ask for several structures or scores", remedy="Make a file, target and pipe for each.")
    return found[0] | ({"cluster": True} if "redis_group_type" in document else {})


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
        self._target = target
        self._check()
        schema, table = self._text("schema"), self._text("table")
        if not schema or not table or table == "*":
            raise ConfigError(f"{where} names a schema and a table, or a regular expression of tables other than *")
        self.tables = rf"{_literal(schema)}\.{_literal(table) if re.escape(table) == table else _search(table)}"

    def _check(self) -> None:
        for name, value in self.options.items():
            if name in _REFUSED:
                raise ConfigError(f"{self.where}: {name} has no equal here", remedy=_REFUSED[name])
            if _OF_OTHERS.fullmatch(str(name)) and name not in _TARGETS[self._target]:
                raise ConfigError(f"{self.where}: {name} is of another target", remedy="Take it out: it has no effect.")
            if self._target not in _BROKERS and (name in _OF_MESSAGES or name == "value_encoder" and value != "json"):
                raise ConfigError(f"{self.where}: {name} is of messages, and {self._target} has rows", remedy=_ROWS)
        _known(self.options, (*_MAPPED, *_TARGETS[self._target], "order_by_column"), self.where)
        for name, value in self.options.items():
            kind, what = _KINDS.get(name, (str, "a text: put it in quotes"))
            if not isinstance(value, kind):
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
        keys = None if "redis_key_column" not in self.options else [self._renamed(self._text("redis_key_column"))]
        return Rule(
            tables=self.tables,
            fields=self._list("include_columns"),
            exclude=self._list("exclude_columns") or (),
            defaults=self._pairs("default_column_values"),
            rename=self._renamed,
            keys=keys,
            to=self._to(),
        )

    @property
    def _renamed(self) -> _Names:
        letters: dict[str, Callable[[str], str]] = {
            "column_underscore_to_camel": camel,
            "column_lower_case": str.lower,
            "column_upper_case": str.upper,
        }
        chosen = next((change for name, change in letters.items() if self.options.get(name)), str)
        mapped = self._pairs("column_mappings") | {column: field for column, field, _ in self._fields()}
        return _Names({name.upper(): new for name, new in mapped.items()}, chosen)

    def _to(self) -> str:
        """What the target calls the table."""
        texts = {name: value for name, value in self.options.items() if isinstance(value, str)}
        options = {name: value.replace("{", "{{").replace("}", "}}") for name, value in texts.items()}
        if self._target in _BROKERS:
            return options.get(_BROKERS[self._target], _TABLE)
        if self._target == "redis":
            return options.get("redis_key_value", options.get("redis_key_prefix", f"{_TABLE}:").removesuffix(":"))
        if self._target == "elasticsearch":
            return options.get("es_index", _TABLE)
        if "mongodb_database" not in options:
            raise ConfigError(f"{self.where} has no mongodb_database")
        return f"{options['mongodb_database']}.{options.get('mongodb_collection', _TABLE)}"

    def _fields(self) -> list[tuple[str, str, dict[str, str]]]:
        """Of ``es_mappings`` the columns, the names of their fields, and how these are indexed."""
        found = []
        for one in self.options.get("es_mappings", ()):
            if not isinstance(one, dict) or not {"column", "field", "type"} <= one.keys():
                raise ConfigError(f"{self.where}: each of es_mappings has column, field and type")
            _known(one, ("column", "field", "type", "analyzer", "format"), f"{self.where}: es_mappings")
            own = {name: str(value) for name, value in one.items() if name not in ("column", "field")}
            found.append((str(one["column"]), str(one["field"]), own))
        return found

    def structure(self) -> dict[str, Any]:
        """The options of the RedisTarget."""
        asked = self._text("redis_structure").lower()
        if asked not in _STRUCTURES:
            remedy = f"There are {', '.join(_STRUCTURES)}. As hash and list a RedisTarget has others: see its structure=."
            raise ConfigError(f"{self.where}: redis_structure {asked!r} has no equal here", remedy=remedy)
        structure, own = _STRUCTURES[asked]
        for name in _TARGETS["redis"][1:]:
            if name in self.options and name not in own:
                raise ConfigError(f"{self.where}: {name} has no equal for redis_structure {asked}", remedy="Take it out.")
            if name in own and asked != "string" and name not in self.options:
                raise ConfigError(f"{self.where}: redis_structure {asked} needs {name}")
        if not re.fullmatch(".+:", self.options.get("redis_key_prefix", "any:")):
            raise ConfigError(f"{self.where}: redis_key_prefix ends with a colon here", remedy="Keys are PREFIX:KEY: add it.")
        score = self._text("redis_sorted_set_score_column")
        return {"structure": structure, **({"score": self._renamed(score)} if score else {})}

    def notes(self) -> dict[str, str]:
        found = {"order_by_column": _ORDER} if "order_by_column" in self.options else {}
        if fields := self._fields():
            body = {"settings": {"index.gc_deletes": "1h"}, "mappings": {"properties": {field: own for _, field, own in fields}}}
            found["es_mappings"] = f"make the index before the start, with {json.dumps(body)}"
        if self._text("redis_structure").lower() == "string" and "redis_key_prefix" not in self.options:
            found["redis_key_prefix"] = "keys are TABLE:KEY, as there is none"
        return {f"{self.where}: {name}": why for name, why in found.items()}

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
