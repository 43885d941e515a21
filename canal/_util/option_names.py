"""Checks of option names, with a suggestion for an unknown name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

import attrs

from canal.errors import UnknownOptionError

_Class = TypeVar("_Class", bound=type)


def checks_names(instead: Mapping[str, str] | None = None) -> Callable[[_Class], _Class]:
    """Decorate an attrs class to raise UnknownOptionError, also a TypeError, for an unknown keyword.

    Args:
        instead: maps names from other libraries to ours.
    """

    def decorate(made: _Class) -> _Class:
        init: Callable[..., None] = made.__init__  # type: ignore[misc]
        names = [attribute.alias for attribute in attrs.fields(made) if attribute.init]

        @wraps(init)
        def checked(self: object, *arguments: object, **options: Any) -> None:
            for name in options:
                if name not in names:
                    raise unknown(made.__name__, name, names, instead or {})
            init(self, *arguments, **options)

        made.__init__ = checked  # type: ignore[misc]
        return made

    return decorate


def check_arguments(of: str, given: Mapping[str, Any], call: Callable[..., Any]) -> None:
    """Raise UnknownOptionError if a name in ``given`` is not a parameter of ``call``."""
    names = list(signature(call).parameters)
    for name in given:
        if name not in names:
            raise unknown(of, name, names, {})


def unknown(of: str, name: str, names: list[str], instead: Mapping[str, str]) -> UnknownOptionError:
    near = [instead[name]] if name in instead else get_close_matches(name, names, 1)
    remedy = f"Did you mean {near[0]}?" if near else f"It has {', '.join(sorted(names))}."
    return UnknownOptionError(f"{of} has no option {name!r}", remedy=remedy)
