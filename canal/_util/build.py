"""Selects the compiled or the interpreted build of the hot modules, which share their source files.

It imports no module of the library.

``CANAL_PURE=1`` selects the interpreted build, ``CANAL_PURE=0`` requires the compiled build. The default is the compiled
build if it is complete. The builds are never mixed, because compiled modules access each other's C structures.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

__all__ = ["COMPILED_MODULES", "compiled", "select", "stale_modules"]

COMPILED_MODULES: tuple[str, ...] = (
    "canal.model.transaction",
    "canal.model.row",
    "canal.model.table",
    "canal.model.entry",
    "canal.parse.log.framing",
    "canal.parse.log.gtid_run",
    "canal.parse.log.table_maps",
    "canal.parse.log.tape",
    "canal.parse.log.assembly",
    "canal.parse.log.decoder",
    "canal.rows.decoder",
    "canal.formats.columnar",
    "canal.rows.json",
    "canal.formats.columns",
    "canal.formats.row_writer",
    "canal.sink.condense",
    "canal.snapshot.images",
    "canal.store.ring",
)

_ROOT = Path(__file__).resolve().parents[2]


def _source(name: str) -> Path:
    return _ROOT.joinpath(*name.split(".")).with_suffix(".py")


def _extension(name: str) -> Path | None:
    stem = _ROOT.joinpath(*name.split("."))
    for suffix in EXTENSION_SUFFIXES:
        path = stem.with_name(stem.name + suffix)
        if path.exists():
            return path
    return None


def _present() -> list[str]:
    return [name for name in COMPILED_MODULES if _source(name).exists() or _extension(name) is not None]


def _missing() -> list[str]:
    return [name for name in _present() if _extension(name) is None]


def stale_modules() -> list[str]:
    """Return the compiled modules that are older than their source (a checkout that needs ``make build``)."""
    stale = []
    for name in _present():
        extension = _extension(name)
        sources = [path for path in (_source(name), _source(name).with_suffix(".pxd")) if path.exists()]
        if extension is not None and any(path.stat().st_mtime > extension.stat().st_mtime for path in sources):
            stale.append(name)
    return stale


def _wants_compiled() -> bool:
    wanted = os.environ.get("CANAL_PURE", "")
    return wanted != "1" and not _missing()


#: True if this process uses the compiled build.
compiled: bool = _wants_compiled()


class _InterpretedFinder:
    """Finds the .py file of a hot module. Python's finder would prefer the extension."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in COMPILED_MODULES or not _source(name).exists():
            return None
        source = str(_source(name))
        return spec_from_file_location(name, source, loader=SourceFileLoader(name, source))


def select() -> None:
    """Select the build for this process. ``canal/__init__.py`` calls this first.

    Raises:
        ImportError: CANAL_PURE=0 requires the compiled build, but a module is missing.
    """
    missing = _missing()
    if os.environ.get("CANAL_PURE") == "0" and missing:
        raise ImportError(
            f"CANAL_PURE=0 asks for the compiled build, but {', '.join(missing)} "
            "is not compiled. Install canal-cdc where a C compiler and Python's headers are, or unset CANAL_PURE",
            name=missing[0],
        )
    if not compiled and _InterpretedFinder not in sys.meta_path:
        sys.meta_path.insert(0, _InterpretedFinder)
