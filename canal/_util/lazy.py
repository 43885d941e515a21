"""Names of a package that import their module when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

    Args:
        package: its ``__name__``.
        homes: the module of each name, within the package or with its full name; a module's own name stands for the module.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        home = homes[name]
        module = importlib.import_module(home if home.startswith("canal.") else f"{package}.{home}")
        found = module if home == name else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    return load
