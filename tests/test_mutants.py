"""Deliberate faults of the library are caught by the tests that the table of tests/programs/mutants.py names for them."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.programs.mutants import MUTANTS, ROOT, Tree, check_unbroken, mutated, trial


def test_each_fault_is_one_of_the_code_as_it_is() -> None:
    """The table cannot rot: what a fault replaces is there once, and so are its tests."""
    for mutant in MUTANTS:
        assert mutated((ROOT / mutant.file).read_text(), mutant)
        for test in mutant.tests:
            path, name, *_ = test.split("::")
            assert name.partition("[")[0] in (ROOT / path).read_text(), test
    assert Counter(mutant.name for mutant in MUTANTS).most_common(1)[0][1] == 1


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
