"""Deliberate faults of the library are caught by the tests that the table of tests/programs/mutants.py names for them."""

from __future__ import annotations

import ast
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.programs.mutants import MUTANTS, ROOT, Tree, check_unbroken, mutated, trial


def test_each_fault_is_one_of_the_code_as_it_is() -> None:
    """Each replaced text occurs once in its file, and no two faults have one name."""
    for mutant in MUTANTS:
        assert mutated((ROOT / mutant.file).read_text(), mutant)
    assert Counter(mutant.name for mutant in MUTANTS).most_common(1)[0][1] == 1


def test_each_fault_names_tests_that_exist() -> None:
    """Definitions are compared, without importing them. The soak run checks the parameters too."""
    named = {tuple(test.partition("[")[0].split("::")) for mutant in MUTANTS for test in mutant.tests}
    defined = {(path, name) for path in {path for path, _ in named} for name in names_defined(ROOT / path)}

    assert named - defined == set()


def names_defined(path: Path) -> set[str]:
    """Return the names of a module's functions, classes and variables, or no names if the file is missing."""
    names = set()
    for node in ast.parse(path.read_text()).body if path.exists() else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.mutants
@pytest.mark.timeout(7200)
def test_each_fault_is_caught_by_the_tests_that_are_named_for_it(tmp_path: Path, full_size: bool) -> None:
    """All of them in `make soak`, the quick ones in `make test-all`; interpreted, whatever build this is."""
    if os.environ.get("CANAL_TEST_SERVERS") == "skip":
        pytest.skip("some of the tests that it runs need servers")
    tree, mutants = Tree(tmp_path), [mutant for mutant in MUTANTS if full_size or mutant.is_quick]
    check_unbroken(tree, mutants)

    assert [problem for mutant in mutants if (problem := trial(tree, mutant))] == []
