"""The fuzzer's run for the suite: damage ends in values or typed errors, the same in both builds."""

from __future__ import annotations

import pytest

import canal
from tests.programs import fuzz


@pytest.mark.slow
@pytest.mark.timeout(28800)
def test_damage_ends_in_values_or_typed_errors_the_same_in_both_builds(full_size: bool, thorough: bool) -> None:
    if not canal.compiled:  # the compiled build runs both
        check([fuzz.Run(["--seed", "suite"], 0, 3000 if thorough else 300, "1").go()], [])
        return
    check(*fuzz.compare(["--seed", "suite"], 0, 200_000 if full_size else 5000 if thorough else 500))
    if full_size:  # ten million events, a hundred million values
        check(*fuzz.compare(["--seed", "suite", "--layer", "events"], 0, 1_000_000))
        check(*fuzz.compare(["--seed", "suite", "--layer", "values"], 0, 130_000))


def check(runs: list[fuzz.Run], different: list[int]) -> None:
    for run in runs:
        print(run.report())
    assert [run.findings for run in runs] == [{}] * len(runs)
    assert different == []


@pytest.mark.slow
def test_a_case_without_an_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANAL_FUZZ_FAULTS", "3:hang")
    monkeypatch.setattr(fuzz, "HANGS", 2)

    run = fuzz.Run(["--seed", "1"], 0, 10, None).go()

    assert sorted(run.findings) == [3]
    assert "hangs" in run.findings[3]


@pytest.mark.slow
def test_memory_that_is_kept_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    for kept, findings in (("", []), ("1005:keep", [-1])):
        monkeypatch.setenv("CANAL_FUZZ_FAULTS", kept)

        run = fuzz.Run(["--seed", "1", "--layer", "parts"], 0, 1010, None).go()

        assert sorted(run.findings) == findings
    assert "memory grew from" in run.findings[-1]


def test_a_crash_and_an_untyped_error_are_findings_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANAL_FUZZ_FAULTS", "3:crash,5:raise,8:grow")

    run = fuzz.Run(["--seed", "1"], 0, 10, None).go()

    assert sorted(run.findings) == [3, 5, 8]
    assert "ends the process with -" in run.findings[3]
    assert "ZeroDivisionError" in run.findings[5]
    assert "MemoryError" in run.findings[8]
