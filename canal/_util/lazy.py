"""Package attributes that import their module on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str], extras: Mapping[str, str] = {}) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package.

    Args:
        package: the ``__name__`` of the package.
        homes: the module of each name, relative or fully qualified. A module's name maps to the module.
        extras: the installation extra that a module needs.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        home = homes[name]
        try:
            module = importlib.import_module(home if home.startswith("canal.") else f"{package}.{home}")
        except ModuleNotFoundError as error:
            if home not in extras:
                raise
            from canal.errors import ConfigError

            raise ConfigError(
                f"{package}.{name} needs {error.name}, which is not installed", remedy=f"pip install 'canal-cdc[{extras[home]}]'"
            ) from error
        found = module if home == name else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    return load
