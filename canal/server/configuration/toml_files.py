"""Our own form of configuration, in TOML: one table per destination, with the options of InstanceConfig under their names.

    [defaults]                       # of every destination that does not say otherwise
    meta = "/var/lib/app/canal"      # a FileMeta; "memory" a MemoryMeta
    filter = 'shop\\..*'

    [defaults.source]
    host = "db1"
    user = "canal"
    password = { env = "CANAL_PASSWORD" }        # or { file = "/run/secrets/canal" }

    [destinations.orders]
    start = { journal = "binlog.000007", offset = 4 }

    [destinations.shops]             # several sources in one store: a canal.Group
    group = { order = "arrival" }

    [destinations.shops.members.east]
    source = { host = "db2" }        # merged with that of all

Never reads a file, but those that a value refers to.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import attrs

from canal.config import OF_MEMBERS, Group, InstanceConfig, Member
from canal.errors import ConfigError
from canal.ha import Heartbeat
from canal.meta import FileMeta, MemoryMeta
from canal.parse.schema.history import FileHistory
from canal.parse.source.files import LocalBinlogSource
from canal.parse.source.mysql import MySQLSource
from canal.position import Position
from canal.rows.mask import Mask
from canal.server.configuration.pipe_tables import pipe_options
from canal.zookeeper.session import ZooKeeper

#: Keys of a destination that are no options of its config.
_LAZY: Final = "lazy"
_PIPE: Final = "pipe"
#: Keys of a destination of several sources that become its source.
#: What messages call a value of a document.
_KINDS: Final[dict[type, str]] = {str: "a string", list: "an array", bool: "a boolean", int: "a number", float: "a number"}
_OF_GROUPS: Final = frozenset((*OF_MEMBERS, "members", "group"))


class TomlFiles:
    """Destinations of a TOML document, and of files of their own beside it.

    Args:
        text: with the tables ``defaults`` and ``destinations``.
        where: the file, for errors.
        others: texts by destination, each with the options of that one.
        environ: environment variables; by default the process's.

    Raises:
        ConfigError: it is not TOML, or has another table.
    """

    def __init__(
        self,
        text: str,
        where: str = "canal.toml",
        others: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._where = where
        self._environ = os.environ if environ is None else environ
        self._others = dict(others or {})
        document = _parsed(text, where)
        unknown = sorted(document.keys() - {"defaults", "destinations"})
        if unknown:
            raise ConfigError(
                f"{where} has a table or key {', '.join(unknown)}, which means nothing here",
                remedy="The tables are [defaults] and [destinations.NAME].",
            )
        self._defaults = _table(document.get("defaults", {}), f"{where}: defaults")
        tables = _table(document.get("destinations", {}), f"{where}: destinations")
        twice = sorted(tables.keys() & self._others.keys())
        if twice:
            raise ConfigError(f"{where} has {', '.join(twice)}, which have files of their own too")
        self._tables = {name: _table(table, f"{where}: destinations.{name}") for name, table in tables.items()}

    def destinations(self) -> list[str]:
        """Those that it has."""
        return sorted({*self._tables, *self._others})

    def is_lazy(self, destination: str) -> bool:
        """Whether it is to be started at its first use only: ``lazy = true``."""
        lazy = self._written(destination).get(_LAZY, False)
        if not isinstance(lazy, bool):
            raise ConfigError(f"{self._where}: lazy must be true or false", destination=destination)
        return lazy

    def digest(self, destination: str) -> str:
        """Of all that its config is made of, references included; of the text where those cannot be read."""
        content: Any = [self._defaults, self._others.get(destination) or self._tables.get(destination)]
        with contextlib.suppress(ConfigError):
            content = self._resolved(self._written(destination), destination)
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()

    def notes(self, destination: str) -> dict[str, str]:
        """Keys that have no meaning: none, for they are errors."""
        return {}

    def config(self, destination: str) -> InstanceConfig:
        """What the destination is made of.

        Raises:
            ConfigError: an option that there is not, or a value that cannot be.
        """
        where = f"{self._where}: destinations.{destination}"
        try:
            options = self._resolved(self._written(destination), where)
            options.pop(_LAZY, None)
            options.pop(_PIPE, None)
            group: dict[str, Any] = {}
            if "members" in options or "group" in options:
                group = {"source": _group(options, where)}
                options = {name: value for name, value in options.items() if name not in _OF_GROUPS}
            made = {"destination": destination, **_made_of(options, where), **group}
            config: InstanceConfig = _call(InstanceConfig, made, where)
            return config
        except ConfigError as error:
            error.destination = error.destination or destination
            raise

    def pipe(self, destination: str) -> dict[str, Any] | None:
        """The arguments of ``canal.pipe`` for ``canal run``; None where the destination has none.

        Raises:
            ConfigError: an option that there is not, or a value that cannot be.
        """
        written, where = self._written(destination).get(_PIPE), f"{self._where}: destinations.{destination}.pipe"
        if written is not None and "members" in self._written(destination):
            raise ConfigError(f"{where}: a pipe has one source, and no group", remedy="Make a destination of each member.")
        return None if written is None else pipe_options(self._resolved(written, where), where, _call)

    def _written(self, destination: str) -> dict[str, Any]:
        text = self._others.get(destination)
        return _merged(self._defaults, self._tables[destination] if text is None else _parsed(text, f"{destination}.toml"))

    def _resolved(self, value: Any, where: str) -> Any:
        """The value with its references: ``{ env = "NAME" }`` and ``{ file = "/path" }``."""
        if isinstance(value, list):
            return [self._resolved(one, where) for one in value]
        if not isinstance(value, dict):
            return value
        if value.keys() == {"env"}:
            found = self._environ.get(str(value["env"]))
            if found is None:
                raise ConfigError(f"{where}: there is no environment variable {value['env']}")
            return found
        if value.keys() == {"file"}:
            try:
                return Path(value["file"]).read_text("utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{where}: the file {value['file']} cannot be read: {error}") from error
        return {name: self._resolved(one, f"{where}.{name}") for name, one in value.items()}


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not TOML: {error}") from error


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be a table, not {_KINDS.get(type(value), 'a value')}")  # which may have a password
    return value


def _merged(defaults: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The own values, and the defaults of what has none; tables are merged."""
    both = {
        name: _merged(defaults[name], own[name])
        for name in defaults.keys() & own.keys()
        if isinstance(defaults[name], dict) and isinstance(own[name], dict)
    }
    return {**defaults, **own, **both}


def _call(kind: Callable[..., Any], options: dict[str, Any], where: str) -> Any:
    """The object of these options. Raises ConfigError for one that there is not, and never shows a value."""
    known = {field.name for field in attrs.fields(kind) if field.init} if attrs.has(kind) else None  # type: ignore[arg-type]
    unknown = sorted(options.keys() - known) if known is not None else []
    if unknown:
        near = [one for name in unknown for one in get_close_matches(name, sorted(known or ()), 1)]
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        raise ConfigError(
            f"{where} has no option {', '.join(unknown)}", remedy=f"{meant}There are {', '.join(sorted(known or ()))}."
        )
    try:
        return kind(**options)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", remedy=error.remedy) from error
    except (TypeError, ValueError) as error:
        names = ", ".join(sorted(options))
        raise ConfigError(f"{where}: {kind.__name__} cannot be made of {names}: {type(error).__name__}") from error


def _source(value: Any, where: str) -> Any:
    """``{ host = …, … }`` a server, a URL one too, ``{ path = … }`` binlog files."""
    if isinstance(value, str):
        return _call(MySQLSource.from_url, {"url": value}, where)
    table = _table(value, where)
    return _call(LocalBinlogSource if "path" in table else MySQLSource, table, where)


def _group(options: dict[str, Any], where: str) -> Group:
    """What all members have stands beside ``members``; each member's own is merged with it."""
    of_all: dict[str, Any] = {name: options[name] for name in OF_MEMBERS if name in options}
    members = {}
    for name, own in _table(options.get("members", {}), f"{where}.members").items():
        here = f"{where}.members.{name}"
        members[name] = _call(Member, _made_of(_merged(of_all, _table(own, here)), here), here)
    group: Group = _call(Group, {"members": members, **_table(options.get("group", {}), f"{where}.group")}, f"{where}.group")
    return group


def _made_of(options: dict[str, Any], where: str) -> dict[str, Any]:
    return {name: _MAKE[name](value, f"{where}.{name}") if name in _MAKE else value for name, value in options.items()}


def _position(value: Any, where: str) -> Any:
    return value if isinstance(value, str) else _call(Position, _table(value, where), where)


def _meta(value: Any, where: str) -> Any:
    if value == "memory":
        return MemoryMeta()
    table = {"directory": value} if isinstance(value, str) else _table(value, where)
    return _call(FileMeta, table, where)


def _made(kind: Callable[..., Any]) -> Callable[[Any, str], Any]:
    return lambda value, where: _call(kind, _table(value, where), where)


def _mask(value: Any, where: str) -> Any:
    """``{ hmac = "key" }``, ``{ last = 4 }``, ``{ cut = 3 }`` or ``"drop"``, by table and column."""
    return {
        table: {name: _one_mask(one, f"{where}.{table}.{name}") for name, one in _table(columns, f"{where}.{table}").items()}
        for table, columns in _table(value, where).items()
    }


def _one_mask(value: Any, where: str) -> Mask:
    if isinstance(value, dict) and "if_present" in value:
        rest = {name: one for name, one in value.items() if name != "if_present"}
        made = _one_mask("drop" if rest == {"drop": True} else rest, where)
        if type(value["if_present"]) is not bool:
            raise ConfigError(f"{where}.if_present must be true or false")
        return made.if_present() if value["if_present"] else made
    if value == "drop":
        return Mask.drop()
    if isinstance(value, dict) and len(value) == 1:
        ((kind, argument),) = value.items()
        if kind == "hmac" and isinstance(argument, str):
            return Mask.hmac(key=argument)
        if kind in ("last", "cut"):
            mask: Mask = getattr(Mask, kind)(argument)
            return mask
    raise ConfigError(f'{where} is {{ hmac = {{ env = "NAME" }} }}, {{ last = 4 }}, {{ cut = 3 }} or "drop"')


def _zone(value: Any, where: str) -> Any:
    try:
        return ZoneInfo(value)
    except Exception as error:
        raise ConfigError(f"{where}: there is no time zone {value!r}") from error


_MAKE: Final[dict[str, Callable[[Any, str], Any]]] = {
    "source": _source,
    "standby": _source,
    "start": _position,
    "standby_start": _position,
    "meta": _meta,
    "heartbeat": _made(Heartbeat),
    "ha": _made(ZooKeeper),
    "time_zone": _zone,
    "mask": _mask,
    "schema_history": lambda value, where: _call(FileHistory, {"directory": value}, where),
    "reconnect_backoff": lambda value, where: tuple(value) if isinstance(value, list) else value,
}
