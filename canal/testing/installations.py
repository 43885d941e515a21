"""Where the programs of throwaway servers are: the system's own, or a tree of unpacked packages.

Never starts a server. A tree is laid out as a Debian system (``usr/sbin/mysqld``, run through the C library in the tree) or as
the archives of MySQL and MariaDB are (``bin/mysqld``, ``lib``, ``share``).
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from canal.errors import CanalError

__all__ = ["Installation", "ServerUnavailableError", "find_installation", "tree_candidates"]

#: The server's program by kind; MariaDB had the second name until 10.4.
_PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {"mariadb": ("mariadbd", "mysqld"), "mysql": ("mysqld",)}
_TREES: Final[Mapping[str, str]] = {"mariadb": "CANAL_MARIADB", "mysql": "CANAL_MYSQL"}


class ServerUnavailableError(CanalError):
    """The server's programs are not on this machine, or it did not start."""


@attrs.frozen
class Installation:
    """The programs of one server kind: the system's own, or those of a tree."""

    kind: str
    tree: Path | None = None

    def program(self, name: str) -> list[str]:
        """Give the start of a command line that runs the program ``name`` (such as ``mysqlbinlog``)."""
        if self.tree is None:
            path = shutil.which(name, path=_search_path())
            if path is None:
                raise ServerUnavailableError(f"{name} is not installed")
            return [path]
        program = self.tree / "bin" / name
        if self.is_archive and program.exists():
            return ["/usr/bin/env", f"LD_LIBRARY_PATH={self.tree / 'lib'}", str(program)]
        for folder in ("usr/sbin", "usr/bin"):
            program = self.tree / folder / name
            if program.exists():
                return [*self._loader(), str(program)]
        raise ServerUnavailableError(f"{name} is not in {self.tree}")

    def server(self) -> list[str]:
        """Give the start of the server's own command line."""
        *others, last = _PROGRAMS[self.kind]
        for name in others:
            try:
                return self.program(name)
            except ServerUnavailableError:
                continue
        return self.program(last)

    def _libraries(self) -> list[Path]:
        arch = f"{platform.machine()}-linux-gnu"
        assert self.tree is not None
        return [self.tree / "lib" / arch, self.tree / "usr/lib" / arch]

    def _loader(self) -> list[str]:
        # A program of the tree needs the C library of the tree, hence its loader.
        for folder in self._libraries():
            for loader in folder.glob("ld-linux-*.so.*"):
                return [str(loader), "--library-path", ":".join(map(str, self._libraries()))]
        raise ServerUnavailableError(f"no program loader in {self.tree}")

    @property
    def is_archive(self) -> bool:
        """Whether it is a tree that is laid out as the archives of MySQL and MariaDB are."""
        return self.tree is not None and not (self.tree / "usr").is_dir()

    @property
    def usr(self) -> Path:
        """The directory that the server's own files are below."""
        if self.tree is not None and self.is_archive:
            return self.tree
        return (self.tree or Path("/")) / "usr"

    def version(self) -> str:
        """Ask the server program for its version line."""
        return _version(self)

    @property
    def release(self) -> tuple[int, ...]:
        """The numbers of its version, ``(5, 7, 22)``."""
        found = re.search(r"Ver (\d+)\.(\d+)\.(\d+)", self.version())
        if found is None:
            raise ServerUnavailableError(f"{self.version()!r} names no release")
        return tuple(map(int, found.groups()))


@functools.cache
def _version(installation: Installation) -> str:
    out = subprocess.run([*installation.server(), "--version"], capture_output=True, text=True, timeout=30)
    if out.returncode != 0:
        raise ServerUnavailableError(f"{installation.kind} does not run: {out.stderr.strip()[-500:]}")
    return out.stdout.strip()


def _search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/usr/libexec"])


def tree_candidates(name: str) -> Iterator[Path]:
    """Where a tree of that name may be: in ``.servers`` of the current directory and those above, and of the checkout."""
    here, package = Path.cwd(), Path(__file__).resolve()
    for folder in (here, *here.parents, *package.parents):
        yield folder / ".servers" / name


def _is_tree(path: Path) -> bool:
    return (path / "usr").is_dir() or (path / "bin").is_dir()


def find_installation(kind: str, release: str = "") -> Installation:
    """Find the programs of ``mariadb`` or ``mysql``, of any release or of the one that is named (``"10.5"``).

    Raises:
        ServerUnavailableError: they are nowhere to be found.
    """
    named = "" if release else os.environ.get(_TREES[kind])
    if named:
        if not _is_tree(Path(named)):
            raise ServerUnavailableError(f"{_TREES[kind]}={named} is not a tree of unpacked packages")
        return Installation(kind, Path(named).resolve())
    name = f"{kind}-{release}" if release else kind
    for tree in tree_candidates(name):
        if _is_tree(tree):
            return Installation(kind, tree.resolve())
    if shutil.which(_PROGRAMS[kind][0], path=_search_path()):
        installation = Installation(kind)
        # MariaDB also installs a mysqld.
        if ("MariaDB" in installation.version()) == (kind == "mariadb") and _is_of(installation, release):
            return installation
    raise ServerUnavailableError(
        f"no {name} server on this machine",
        remedy="Run tests/servers/setup.sh" + (f" {name}" if release else f", or name a tree in {_TREES[kind]}"),
    )


def _is_of(installation: Installation, release: str) -> bool:
    wanted = tuple(map(int, release.split("."))) if release else ()
    return installation.release[: len(wanted)] == wanted
