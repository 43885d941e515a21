"""canal's own configuration: the texts of canal.properties and of each instance.properties, made into InstanceConfigs.

Never reads a file, but those that a value refers to.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from canal.config import Group, InstanceConfig, Member
from canal.errors import ConfigError
from canal.ha import Heartbeat
from canal.meta import FileMeta, MemoryMeta, PeriodMixedMeta
from canal.parse.schema.history import MemoryHistory
from canal.parse.source.mysql import MySQLSource
from canal.position import Position
from canal.server.configuration.canal_mq import mq_notes, read_mq, read_target
from canal.server.configuration.keys import MASTERS, close_to, reason
from canal.server.configuration.properties import Values, parse
from canal.targets import CanalMQ
from canal.zookeeper.session import ZooKeeper

log = logging.getLogger("canal")

_PRESET: Final = re.compile(r"(?:classpath:)?(?:.*/)?(memory|file|default|group)-instance\.xml")
_RANGE: Final = re.compile(r"(.*)\{(\d+)-(\d+)\}(.*)")
#: Failures of heartbeats that are borne where they do not switch.
_NO_SWITCH: Final = 1 << 31
_TLS: Final = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_DEFAULTS: Final = {
    "canal.auto.scan": "true",
    "canal.auto.scan.interval": "5",
    "canal.file.flush.period": "1000",
    "canal.zookeeper.flush.period": "1000",
    "canal.instance.global.mode": "spring",
    "canal.instance.global.spring.xml": "classpath:spring/file-instance.xml",
    "canal.instance.memory.buffer.size": "16384",
    "canal.instance.memory.buffer.memunit": "1024",
    "canal.instance.memory.batch.mode": "MEMSIZE",
    "canal.instance.fallbackIntervalInSeconds": "60",
    "canal.instance.detecting.interval.time": "3",
    "canal.instance.detecting.retry.threshold": "3",
    "canal.instance.network.soTimeout": "30",
    "canal.instance.mysql.slaveId": "0",
    "canal.instance.tsdb.enable": "true",
    "canal.instance.binlog.format": "ROW,STATEMENT,MIXED",
}
_LEAVE_OUT: Final = {
    "rows": ("insert", "update", "delete"),
    "dml.insert": ("insert",),
    "dml.update": ("update",),
    "dml.delete": ("delete",),
    "query.ddl": ("ddl",),
    "query.dml": ("dml",),
    "query.dcl": ("dcl",),
}


class CanalFiles:
    """The configuration of one canal server.

    Args:
        server: the text of canal.properties.
        instances: the text of each destination's instance.properties.
        folder: canal's conf directory: what relative names of folders are taken from.
        environ: environment variables; by default the process's.

    Raises:
        ConfigError: a key that there is not, or one that is there twice.
    """

    def __init__(
        self,
        server: str,
        instances: Mapping[str, str],
        folder: str | os.PathLike[str] = ".",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = Path(folder).absolute()
        self._environ = environ
        self._server = parse(server, "canal.properties")
        self._texts = dict(instances)
        common = self._values("", {})
        self.scans = _flag(common, "canal.auto.scan")
        self.interval = _number(common, "canal.auto.scan.interval", float)
        self._named = _destinations(common)
        if not instances:
            _check_keys(self._server, common, "canal.properties")

    @property
    def folder(self) -> Path:
        """Where the folders of the destinations are."""
        named = self._server.get("canal.conf.dir", "").strip()
        return Path(named) if os.path.isabs(named) else self._folder

    def destinations(self) -> list[str]:
        """Those that canal would run: that are named, and with canal.auto.scan those that have a file."""
        return sorted({*self._named, *(self._texts if self.scans else ())})

    def is_lazy(self, destination: str) -> bool:
        """Whether canal would start it at its first use only."""
        return _flag(self._values(destination, {}), *_of_one(destination, "lazy"))

    def pipe(self, destination: str) -> dict[str, Any] | None:
        """The arguments of ``canal.pipe`` for ``canal run``, by ``canal.serverMode``; None for tcp.

        Raises:
            ConfigError: the mode, or a key of its broker, has no equal here.
        """
        target = read_target(self._of(destination), destination)
        return None if target is None else {"target": target, "rules": []}

    def digest(self, destination: str) -> str:
        """Of all that its config is made of, references included; of the texts where those cannot be read."""
        try:
            values = self._of(destination)
            content: Any = {key: values.written(key) for key in values.all()}
        except ConfigError:
            content = [self._server, self._texts.get(destination)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def notes(self, destination: str) -> dict[str, str]:
        """Keys that are set and have no meaning here, and why."""
        values = self._of(destination)
        is_group = _preset(values, destination) == "group"
        return {key: why for key in sorted(values.all()) if values.written(key) and (why := reason(key, is_group))}

    def config(self, destination: str) -> InstanceConfig:
        """What the destination is made of.

        Raises:
            ConfigError: a key that there is not, a value that cannot be, or what has no equal here.
        """
        values = self._of(destination)
        try:
            return _Reading(values, destination, self._folder).config()
        except ConfigError as error:
            error.destination = error.destination or destination
            raise

    def mq(self, destination: str) -> CanalMQ:
        """canal's routes of the destination to a broker.

        Raises:
            ConfigError: a key that there is not, a value that cannot be, or what has no equal here.
        """
        return read_mq(self._of(destination), destination)

    def mq_notes(self, destination: str) -> dict[str, str]:
        """Keys of canal's brokers that are set and have no part in the routes, and what is in their stead."""
        return mq_notes(self._of(destination))

    def _of(self, destination: str) -> Values:
        name = f"{destination}/instance.properties"
        own = parse(self._texts.get(destination, ""), name)
        values = self._values(destination, own)
        _check_keys({**self._server, **own}, values, name if own else "canal.properties")
        return values

    def _values(self, destination: str, own: Mapping[str, str]) -> Values:
        folder = {"canal.conf.dir": str(self.folder)}
        known = {"canal.instance.destination": destination}
        where = f"{destination}/instance.properties" if own else "canal.properties"
        return Values(own, folder, self._server, known, _DEFAULTS, where=where, environ=self._environ)


def _check_keys(given: Mapping[str, str], values: Values, name: str) -> None:
    for key in given:
        values.written(key)  # for what it refers to
    for key in sorted(given):
        if reason(key) is None and key not in values.referred:
            meant = close_to(key)
            raise ConfigError(
                f"{name}: there is no key {key}",
                remedy=f"Did you mean {meant}?" if meant else "Take it out; one of your own must be referred to by another.",
            )


def _destinations(values: Values) -> list[str]:
    names = [name.strip() for name in values.get("canal.destinations").split(",") if name.strip()]
    for item in filter(None, map(str.strip, values.get("canal.destinations.expr").split(","))):
        found = _RANGE.fullmatch(item)
        if found is None:
            raise ConfigError(f"canal.destinations.expr is like shop{{1-32}}, not {item!r}")
        names += [f"{found[1]}{number}{found[4]}" for number in range(int(found[2]), int(found[3]) + 1)]
    return names


def _of_one(destination: str, name: str) -> tuple[str, str]:
    """The key of a destination, and the one of all."""
    return f"canal.instance.{destination}.{name}", f"canal.instance.global.{name}"


def _text(values: Values, *keys: str) -> str:
    return next((value for value in map(values.get, keys) if value), "")


def _preset(values: Values, destination: str) -> str:
    text = _text(values, *_of_one(destination, "spring.xml"))
    found = _PRESET.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"canal.instance.global.spring.xml is none of canal's memory, file, default and group, but {text!r}",
            remedy="Beans of your own are parts here: canal.Instance.compose.",
        )
    return found[1]


def _flag(values: Values, *keys: str) -> bool:
    text = _text(values, *keys).lower()
    if text not in ("true", "false", ""):
        raise ConfigError(f"{keys[0]} is true or false, not {text!r}")
    return text == "true"


def _number(values: Values, key: str, kind: Any = int) -> Any:
    text = values.get(key)
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"{key} is a number, not {text!r}") from None


class _Reading:
    """One destination's values, and the options that they give."""

    def __init__(self, values: Values, destination: str, folder: Path) -> None:
        self._values = values
        self._destination = destination
        self._folder = folder

    def config(self) -> InstanceConfig:
        values = self._values
        if _text(values, *_of_one(self._destination, "mode")) != "spring":
            raise ConfigError(
                "canal.instance.global.mode is not spring: its configuration is in canal-admin",
                remedy="Write its files, or give Server.follow a ConfigSource of your own that asks canal-admin.",
            )
        if _flag(values, "canal.instance.multi.stream.on"):
            raise ConfigError("canal.instance.multi.stream.on: the streams of PolarDB-X cannot be read")
        preset = _preset(values, self._destination)
        size, unit = (_number(values, f"canal.instance.memory.buffer.{name}") for name in ("size", "memunit"))
        mode = values.get("canal.instance.memory.batch.mode")
        if mode not in ("MEMSIZE", "ITEMSIZE"):
            raise ConfigError(f"canal.instance.memory.batch.mode is MEMSIZE or ITEMSIZE, not {mode!r}")
        leave_out: list[Any] = [kind for key, kinds in _LEAVE_OUT.items() if self._filter(key) for kind in kinds]
        sources, has_standby = self._group() if preset == "group" else self._one("master", "standby")
        return InstanceConfig(
            destination=self._destination,
            **sources,
            heartbeat=self._heartbeat(has_standby),
            filter=values.get("canal.instance.filter.regex"),
            black_filter=values.get("canal.instance.filter.black.regex"),
            field_filter=values.get("canal.instance.filter.field"),
            black_field_filter=values.get("canal.instance.filter.black.field"),
            leave_out=tuple(dict.fromkeys([*leave_out, "tableless"])),
            column_types="history",  # canal asks the server for each table
            unknown_columns="leave_out" if self._filter("table.error") else "error",
            isolate_ddl=_flag(values, "canal.instance.get.ddl.isolation"),
            fallback_interval=_number(values, "canal.instance.fallbackIntervalInSeconds", float),
            on_lost="latest" if _flag(values, "canal.auto.reset.latest.pos.mode") else "fail",
            store_entries=size,
            **({"store_bytes": size * unit} if mode == "MEMSIZE" else {}),
            **self._kept(preset),
        )

    def _one(self, master: str, standby: str) -> tuple[dict[str, Any], bool]:
        """The options of a source and its standby, and whether it has one."""
        has_standby = bool(self._values.get(f"canal.instance.{standby}.address"))
        options = {
            "source": self._source(master),
            "start": self._start(master),
            "standby_start": self._start(standby),
            "standby": self._source(standby) if has_standby else None,
        }
        return options, has_standby

    def _group(self) -> tuple[dict[str, Any], bool]:
        """As canal's group its two sources, in the order in which they come, and without a history that outlasts the process."""
        found = {name: self._one(name, name.replace("master", "standby")) for name in MASTERS}
        members = {name: Member(**options, schema_history=MemoryHistory()) for name, (options, _) in found.items()}
        return {"source": Group(members, order="arrival")}, any(has_standby for _, has_standby in found.values())

    def _filter(self, name: str) -> bool:
        return _flag(self._values, f"canal.instance.filter.{name}")

    def _kept(self, preset: str) -> dict[str, Any]:
        """Where cursors and schemas are kept. As with canal, processes take turns wherever ZooKeeper is named."""
        values, kept = self._values, {}
        if preset != "group" and (preset == "memory" or not _flag(values, "canal.instance.tsdb.enable")):
            kept["schema_history"] = MemoryHistory()
        hosts = values.get("canal.zkServers").split(";")[0]
        if hosts:
            ha = ZooKeeper(hosts=hosts)
            period = _number(values, "canal.zookeeper.flush.period", float) / 1000
            return {**kept, "ha": ha, "meta": PeriodMixedMeta(ha, period)}
        if preset == "default":
            raise ConfigError("the preset default keeps cursors in ZooKeeper, and canal.zkServers names none")
        if preset in ("memory", "group"):
            return {**kept, "meta": MemoryMeta()}
        period = _number(values, "canal.file.flush.period", float) / 1000
        return {**kept, "meta": FileMeta(self._path(values.get("canal.file.data.dir")), "interval", period)}

    def _path(self, text: str) -> Path:
        """A folder; relative ones are of canal's bin, which stands beside its conf."""
        path = Path(text or self._folder)
        if path.is_absolute() or path == self._folder:
            return path
        parts = path.parts
        if parts[:2] == ("..", "conf"):
            return self._folder.joinpath(*parts[2:])
        return Path(os.path.normpath(self._folder.parent / "bin" / path))

    def _source(self, which: str) -> MySQLSource:
        values, prefix = self._values, f"canal.instance.{which}"
        if _flag(values, "canal.instance.enableDruid"):
            raise ConfigError(
                "canal.instance.enableDruid: an encrypted password cannot be read",
                remedy="Give the password itself by reference, as in canal.instance.dbPassword=${file:/run/secrets/canal}.",
            )
        address = values.get(f"{prefix}.address")
        host, colon, port = address.rpartition(":")
        if not (colon and host and port.isdecimal()):
            raise ConfigError(f"{prefix}.address is host:port, not {address!r}")
        formats = {one.strip().upper() for one in values.get("canal.instance.binlog.format").split(",")}
        return MySQLSource(
            host=host.strip("[]"),
            port=int(port),
            user=values.get("canal.instance.dbUsername"),
            password=values.get("canal.instance.dbPassword"),
            server_id=_number(values, "canal.instance.mysql.slaveId") or None,
            read_timeout=_number(values, "canal.instance.network.soTimeout", float),
            require_row_format=formats == {"ROW"},
            **self._tls(prefix),
        )

    def _tls(self, prefix: str) -> dict[str, Any]:
        values = self._values
        mode = values.get(f"{prefix}.sslMode").upper() or "DISABLED"
        found: dict[str, Any] = {"ssl_mode": mode}
        versions = [one.strip() for one in values.get(f"{prefix}.tlsVersions").split(",") if one.strip()]
        unknown = [one for one in versions if one not in _TLS]
        if unknown:
            raise ConfigError(f"{prefix}.tlsVersions names {', '.join(unknown)}", remedy=f"There are {', '.join(_TLS)}.")
        if versions and mode != "DISABLED":
            found["tls_min_version"] = min(versions, key=_TLS.index)
        for key, options in (("trust", ("ssl_ca",)), ("client", ("ssl_cert", "ssl_key"))):
            url = values.get(f"{prefix}.{key}CertificateKeyStoreUrl")
            if not url:
                continue
            if not url.endswith(".pem"):
                raise ConfigError(
                    f"{prefix}.{key}CertificateKeyStoreUrl: a Java key store cannot be read",
                    remedy="Export it as PEM (keytool -importkeystore … -deststoretype PKCS12, then openssl pkcs12 -nodes) "
                    "into a file that ends in .pem, and name that.",
                )
            found.update(dict.fromkeys(options, url.removeprefix("file:")))
        return found

    def _start(self, which: str) -> str | Position:
        values, prefix = self._values, f"canal.instance.{which}"
        gtid = values.get(f"{prefix}.gtid") if _flag(values, "canal.instance.gtidon") else ""
        if gtid:
            return Position(gtid=gtid)
        journal = values.get(f"{prefix}.journal.name")
        numbers = {
            name: int(_number(values, f"{prefix}.{name}")) if values.get(f"{prefix}.{name}") else 0
            for name in ("position", "timestamp")
        }
        if journal:
            offset = numbers["position"] or (0 if numbers["timestamp"] else 4)
            return Position(journal=journal, offset=offset, timestamp=0 if offset else numbers["timestamp"])
        return Position(timestamp=numbers["timestamp"]) if numbers["timestamp"] else "latest"

    def _heartbeat(self, has_standby: bool) -> Heartbeat | None:
        values = self._values
        asks = _flag(values, "canal.instance.detecting.enable")
        if not asks and not has_standby:
            return None
        switches = asks and has_standby and _flag(values, "canal.instance.detecting.heartbeatHaEnable")
        retries = _number(values, "canal.instance.detecting.retry.threshold") if switches else _NO_SWITCH
        interval = _number(values, "canal.instance.detecting.interval.time", float)
        return Heartbeat(sql=values.get("canal.instance.detecting.sql") or "SELECT 1", interval=interval, retries=retries)
