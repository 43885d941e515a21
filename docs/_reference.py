"""A griffe extension for the pages of reference/: supports attrs classes and Sphinx roles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|meth|func|data|mod):`(?:~[\w.]+\.)?([\w.]+)`")


class Reference(griffe.Extension):
    """Shows fields of attrs classes as arguments, and roles such as :class:`Position` as code."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        if _options(cls) is None or "__init__" in cls.members:
            return
        fields = [field for field in cls.attributes.values() if field.annotation is not None and _is_argument(field)]
        _set_arguments(cls, [(field, _default(field.value)) for field in fields])
        for field in fields:
            field.value = _default(field.value)

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Add the fields of attrs base classes, which are loaded now."""
        for module in [pkg, *_inside(pkg)]:
            for cls in module.classes.values():
                if not cls.is_alias and _options(cls) is not None and (bases := [one for one in cls.mro() if _options(one)]):
                    kinds = [*reversed(bases), cls]
                    fields = [field for kind in kinds for field in kind.attributes.values() if field.annotation is not None]
                    _set_arguments(cls, [(field, field.value) for field in fields if _is_argument(field)])


def _inside(module: griffe.Module) -> Iterator[griffe.Module]:
    for one in module.modules.values():
        if not one.is_alias:
            yield one
            yield from _inside(one)


def _options(cls: griffe.Class) -> str | None:
    """Return the call that makes a class an attrs class, or None."""
    return next((str(one.value) for one in cls.decorators if one.callable_path.startswith("attrs.")), None)


def _set_arguments(cls: griffe.Class, fields: list[tuple[griffe.Attribute, Any]]) -> None:
    by_name = "kw_only=True" in (_options(cls) or "")
    kind = griffe.ParameterKind.keyword_only if by_name else griffe.ParameterKind.positional_or_keyword
    arguments = [
        griffe.Parameter(field.name.lstrip("_"), annotation=field.annotation, kind=kind, default=default)
        for field, default in fields
    ]
    this = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(this, *arguments), parent=cls))


def _is_argument(field: griffe.Attribute) -> bool:
    return "property" not in field.labels and "init=False" not in str(field.value)


def _default(value: Any) -> Any:
    """Return the default of a field, or None if the argument is required."""
    if not isinstance(value, griffe.ExprCall) or not str(value.function).startswith("attrs."):
        return value
    given = [argument for argument in value.arguments if isinstance(argument, griffe.ExprKeyword)]
    return next((one.value if one.name == "default" else "…" for one in given if one.name in ("default", "factory")), None)
