"""Where configurations come from: a directory, a node of ZooKeeper, or a class of the user's own.

Never starts anything.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from canal.config import InstanceConfig
from canal.errors import ConfigError, CoordinationError
from canal.server.configuration.canal_files import CanalFiles
from canal.server.configuration.toml_files import TomlFiles
from canal.targets import CanalMQ
from canal.zookeeper.session import Session, ZooKeeper

log = logging.getLogger("canal")

_SERVER = "canal.properties"
_OWN = "instance.properties"
#: Folders of canal's conf that are none of a destination.
_OTHERS = ("spring", "metrics")


@runtime_checkable
class ConfigSource(Protocol):
    """Tells which destinations there are, and what each is made of. Called by one thread at a time.

    It may also have ``is_lazy(name) -> bool``: whether a destination is to be started at its first use only.
    """

    def names(self) -> Mapping[str, str]:
        """A digest of its configuration for each destination: another one, and it is loaded and started anew.

        Raises:
            CanalError, OSError: it cannot be read now. Nothing is changed then.
        """

    def load(self, name: str) -> InstanceConfig:
        """The configuration of a destination that ``names`` has told last.

        Raises:
            ConfigError: it cannot be used. The instance that runs goes on.
        """


class DirectorySource:
    """A directory of canal's (``canal.properties``, ``<destination>/instance.properties``), or of TOML files, or one such file.

    Of TOML files ``canal.toml`` has the tables ``defaults`` and ``destinations``, any other ``<destination>.toml`` the options of
    one destination. ``docs/configuration.md`` has both forms.

    Raises:
        ConfigError: there is neither.
    """

    def __init__(self, path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> None:
        self.path = Path(path)
        self._environ = environ
        self._single = self.path.name if self.path.is_file() and self.path.name != _SERVER else ""
        self._folder = self.path.parent if self.path.is_file() else self.path
        self.files: CanalFiles | TomlFiles = self._read()

    def names(self) -> Mapping[str, str]:
        """As ``ConfigSource.names``; reads all files."""
        files = self.files = self._read()
        return {name: files.digest(name) for name in files.destinations()}

    def load(self, name: str) -> InstanceConfig:
        """As ``ConfigSource.load``."""
        return self.files.config(name)

    def is_lazy(self, name: str) -> bool:
        """Whether the files say that it is to be started at its first use only."""
        return self.files.is_lazy(name)

    def mq(self, name: str) -> CanalMQ:
        """canal's routes of a destination to a broker, by the keys ``canal.mq.*`` of its files; what else is set for brokers, and
        is an option of the target here, is logged.

        Raises:
            ConfigError: they are TOML files, or a key or a value has no equal.
        """
        if not isinstance(self.files, CanalFiles):
            raise ConfigError(f"{self.path} has no canal.properties", remedy="Make a canal.targets.CanalMQ by its arguments.")
        for key, why in self.files.mq_notes(name).items():
            log.info("[%s] %s is not among the routes: %s", name, key, why)
        return self.files.mq(name)

    def _read(self) -> CanalFiles | TomlFiles:
        if self._single:
            return TomlFiles(_text(self.path) or "", str(self.path), environ=self._environ)
        server = _text(self._folder / _SERVER)
        own = {folder.name: text for folder in _folders(self._folder) if (text := _text(folder / _OWN)) is not None}
        if server is not None or own:
            return self._canals(server or "", own)
        found = sorted(self._folder.glob("*.toml"))
        if not found:
            raise ConfigError(
                f"{self.path} has neither {_SERVER}, <destination>/{_OWN} nor *.toml",
                remedy="docs/configuration.md tells what a configuration looks like.",
            )
        texts = {path.stem: text for path in found if not path.name.startswith(".") and (text := _text(path)) is not None}
        return TomlFiles(texts.pop("canal", ""), str(self._folder / "canal.toml"), texts, self._environ)

    def _canals(self, server: str, own: Mapping[str, str]) -> CanalFiles:
        files = CanalFiles(server, own, self._folder, self._environ)
        if files.folder == self._folder.absolute():
            return files
        elsewhere = {folder.name: text for folder in _folders(files.folder) if (text := _text(folder / _OWN)) is not None}
        return CanalFiles(server, elsewhere, self._folder, self._environ)


class ZooKeeperSource:
    """A node of ZooKeeper whose text is a TOML document with the tables ``defaults`` and ``destinations``.

    Args:
        zookeeper: how to reach it.
        path: the node, such as "/app/canal".
    """

    def __init__(self, zookeeper: ZooKeeper, path: str, environ: Mapping[str, str] | None = None) -> None:
        self._zookeeper = zookeeper
        self._path = path
        self._environ = environ
        self._session: Session | None = None
        self._files: TomlFiles | None = None

    def names(self) -> Mapping[str, str]:
        """As ``ConfigSource.names``. Raises CoordinationError where ZooKeeper cannot be reached, or has no such node."""
        files = self._files = TomlFiles(self._text(), self._path, environ=self._environ)
        return {name: files.digest(name) for name in files.destinations()}

    def load(self, name: str) -> InstanceConfig:
        """As ``ConfigSource.load``."""
        assert self._files is not None, "names() first"
        return self._files.config(name)

    def is_lazy(self, name: str) -> bool:
        """Whether it is to be started at its first use only."""
        return self._files is not None and self._files.is_lazy(name)

    def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _text(self) -> str:
        if self._session is None:
            session = Session(self._zookeeper, claim="")
            session.open()
            self._session = session
        if not self._session.wait_connected(self._zookeeper.session_timeout):
            raise CoordinationError(
                f"ZooKeeper at {self._zookeeper.hosts} cannot be reached",
                remedy="Check that a majority of its members runs and can be reached.",
            )
        value = self._session.get(self._path)
        if value is None:
            raise CoordinationError(f"ZooKeeper has no node {self._path}", remedy="Make it, with the configuration as its text.")
        try:
            return value.data.decode()
        except UnicodeDecodeError as error:
            raise ConfigError(f"the text of {self._path} is not UTF-8", remedy="Write it as UTF-8.") from error


def _folders(path: Path) -> list[Path]:
    try:
        found = sorted(path.iterdir())
    except FileNotFoundError:
        return []
    return [one for one in found if one.is_dir() and one.name not in _OTHERS and not one.name.startswith(".")]


def _text(path: Path) -> str | None:
    """Return the text of a file, or None if there is no such file. Raise ConfigError if it cannot be read.

    Comments of properties files may be in any encoding: ``properties.parse`` refuses other bytes that are not UTF-8.
    """
    try:
        data = path.read_bytes()
        return data.decode("utf-8", "surrogateescape" if path.suffix == ".properties" else "strict")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: it is not UTF-8", remedy="Save the file as UTF-8.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
