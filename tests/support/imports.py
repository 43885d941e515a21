"""The import graph of the library, read from its text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import canal

PACKAGE = Path(canal.__file__).parent


def _module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


#: Every module, and its file.
MODULES = {_module(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def imports(path: Path, at_any_depth: bool = False) -> frozenset[str]:
    """Return the modules that a file imports when it is loaded; at any depth: also in functions, for types and in its .pxd."""
    found: set[str] = set()
    for node in ast.walk(tree(path)) if at_any_depth else _loaded(tree(path).body):
        if isinstance(node, ast.ImportFrom) and node.module == "canal":
            found |= {f"canal.{canal._HOMES.get(name.name, name.name)}" for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{name.name}" for name in node.names}
            found |= (names & MODULES.keys()) | ({node.module} if names - MODULES.keys() else set())
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
    return frozenset(found | _cimports(path.with_suffix(".pxd")) if at_any_depth else found)


def _cimports(path: Path) -> set[str]:
    """Return the modules whose C declarations a .pxd uses: compiled modules load them too."""
    found: set[str] = set()
    for module, names in re.findall(r"^from (canal[\w.]*) cimport (.+)", path.read_text("utf-8") if path.exists() else "", re.M):
        modules = {f"{module}.{name.split()[0]}" for name in names.split(",")} & MODULES.keys()
        found |= modules or {module}
    return found


def _loaded(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            yield from _loaded(node.body)
        if isinstance(node, (ast.If, ast.Try)):
            yield from _loaded(node.orelse)
        if isinstance(node, ast.Try):
            yield from _loaded([*node.body, *(one for handler in node.handlers for one in handler.body)])


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the largest sets of modules in which each one imports itself by way of the others."""
    whole = {name: reached(graph, name) for name in graph}
    found = {tuple(sorted(other for other in whole[name] if name in whole[other])) for name in graph}
    return [list(one) for one in sorted(found) if one]


def reached(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """Return what a module imports, by way of others too."""
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


def room(module: str) -> str:
    """Return the room of a module: a folder, a subject of parse/ or spark/, or a module of its own; "" is the package itself.

    Two modules of formats/ know no entry, so an entry may use them.
    """
    parts = module.split(".")[1:]
    if parts in (["formats", "columns"], ["formats", "texts"]):
        return ".".join(parts)
    is_cut = parts[:1] == ["spark"] or parts[:1] == ["parse"] and parts[1:2] in (["log"], ["schema"], ["source"])
    return ".".join(parts[: 2 if is_cut else 1])
