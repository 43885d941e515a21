"""The documents name tests as proof: each is there, and the list of traps is whole and names what it says."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TRAPS = range(1, 87)
#: A test file, or one test in it.
_PROOF = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")
_NUMBERS = re.compile(r"\bT(\d+)\b(?: to T(\d+)\b)?")


@cache
def functions(path: str) -> dict[str, str]:
    """The tests of a file that pytest collects, with their text; under "" the file's own docstring."""
    text = (ROOT / path).read_text("utf-8")
    tree = ast.parse(text)
    found = {
        node.name: ast.get_source_segment(text, node) or ""
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    return {"": ast.get_docstring(tree) or "", **found}


def rows() -> dict[int, str]:
    lines = (ROOT / "docs/traps.md").read_text("utf-8").splitlines()
    return {int(line.split(" ")[1][1:]): line for line in lines if line.startswith("| T")}


def numbers(text: str) -> set[int]:
    return {n for first, last in _NUMBERS.findall(text) for n in range(int(first), int(last or first) + 1)}


@pytest.mark.parametrize("document", ["traps.md", "guarantees.md"])
def test_every_test_that_is_named_as_proof_exists(document: str) -> None:
    proofs = _PROOF.findall((ROOT / "docs" / document).read_text("utf-8"))

    assert len(proofs) > 20
    for path, name in proofs:
        assert (ROOT / path).is_file(), path
        assert name in functions(path), f"{path}::{name}"


def test_the_list_of_traps_is_whole() -> None:
    assert list(rows()) == list(TRAPS)


def test_each_trap_is_named_by_a_test_of_its_row() -> None:
    unnamed = []
    for trap, row in rows().items():
        texts = [functions(path)[name] + functions(path)[""] for path, name in _PROOF.findall(row)]
        if trap not in numbers("\n".join(texts)) and "not proved yet" not in row:
            unnamed.append(row)

    assert unnamed == []
