"""What the pages of reference/ need to know of the sources beyond Python's own rules: attrs classes and Sphinx's roles."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|meth|func|data|mod):`(?:~[\w.]+\.)?([\w.]+)`")


class Reference(griffe.Extension):
    """An attrs class takes its fields as arguments; roles such as :class:`Position` are shown as code."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        options = next((str(one.value) for one in cls.decorators if one.callable_path.startswith("attrs.")), None)
        if options is None or "__init__" in cls.members:
            return
        kind = griffe.ParameterKind.keyword_only if "kw_only=True" in options else griffe.ParameterKind.positional_or_keyword
        fields = [field for field in cls.attributes.values() if field.annotation is not None and _is_argument(field)]
        arguments = [
            griffe.Parameter(field.name.lstrip("_"), annotation=field.annotation, kind=kind, default=_default(field.value))
            for field in fields
        ]
        for field in fields:
            field.value = _default(field.value)
        this = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
        cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(this, *arguments), parent=cls))


def _is_argument(field: griffe.Attribute) -> bool:
    return "property" not in field.labels and "init=False" not in str(field.value)


def _default(value: Any) -> Any:
    """What a field is without an argument: of ``attrs.field(default=…)`` that, else the value itself; None: it must be given."""
    if not isinstance(value, griffe.ExprCall) or not str(value.function).startswith("attrs."):
        return value
    given = [argument for argument in value.arguments if isinstance(argument, griffe.ExprKeyword)]
    return next((one.value if one.name == "default" else "…" for one in given if one.name in ("default", "factory")), None)
