"""What documents name is looked up in the tests as they stand."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


@cache
def functions(path: str) -> dict[str, str]:
    """The tests of a file that pytest collects, with their text; under "" the file's own docstring."""
    text, tree = _parsed(path)
    found = {
        node.name: ast.get_source_segment(text, node) or ""
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    return {"": ast.get_docstring(tree) or "", **found}


def decorators(path: str, name: str) -> list[str]:
    """Those of a test, as Python writes them; a name of the file stands for what it is set to."""
    _, tree = _parsed(path)
    set_to = {
        target.id: ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    (found,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    written = [ast.unparse(one) for one in found.decorator_list]
    return [set_to.get(one, one) for one in written]


def _parsed(path: str) -> tuple[str, ast.Module]:
    text = (ROOT / path).read_text("utf-8")
    return text, ast.parse(text)
