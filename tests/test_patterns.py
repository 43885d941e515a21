"""The library's regular expressions mean the same to every Python that it runs on."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import canal
from canal.parse.schema.scanner import _lexer

parse: Any = importlib.import_module("re._parser")


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Those that stand in a module, and the lexer's."""
    for backslash in (False, True):
        for ansi in (False, True):
            yield f"lexer {backslash} {ansi}", _lexer(backslash, ansi)
    for module in pkgutil.walk_packages(canal.__path__, "canal."):
        if module.name.startswith(("canal.parse.", "canal.filter", "canal.tables", "canal.rows.")):
            for name, value in vars(importlib.import_module(module.name)).items():
                values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
                for one in values:
                    found = one[0] if isinstance(one, tuple) and one else one
                    if isinstance(found, re.Pattern):
                        yield f"{module.name}.{name}", found


def wrong(parts: Any, is_possessive: bool = False) -> Iterator[str]:
    """What Python before 3.11.5 does not give up where the possessive or atomic group around it fails."""
    for op, argument in parts:
        name = str(op)
        if is_possessive and name in ("ASSERT", "ASSERT_NOT", "MAX_REPEAT", "MIN_REPEAT"):
            yield name
        inner = is_possessive or name in ("POSSESSIVE_REPEAT", "ATOMIC_GROUP")
        for part in argument if isinstance(argument, (tuple, list)) else [argument]:
            for one in part if isinstance(part, list) else [part]:
                if isinstance(one, parse.SubPattern):
                    yield from wrong(one, inner)


def test_no_possessive_group_looks_ahead_or_searches_back() -> None:
    """3.11.2, which Debian 12 has, took what stands between two comments for a comment."""
    found = dict(patterns())
    assert len(found) > 20
    assert {name: kinds for name, one in found.items() if (kinds := [*wrong(parse.parse(one.pattern, one.flags))])} == {}


@pytest.mark.parametrize("text", [r"/\*(?:[^*]++|\*(?!/))*+\*/", r"(?:a+b)++", r"(?>x(?=y))", r"a(?:(?:[0-9]{5,6})b)?+"])
def test_one_that_does_is_found(text: str) -> None:
    assert [*wrong(parse.parse(text, 0))]
