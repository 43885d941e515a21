"""docs/reliability.md is what the recorded runs have found."""

from __future__ import annotations

from pathlib import Path

from tests.programs.reliability import PAGE, page, read_results, write_result


def test_the_page_is_made_of_the_recorded_runs() -> None:
    assert PAGE.read_text() == page(read_results())


def test_what_a_run_found_wrong_is_told(tmp_path: Path) -> None:
    results = read_results()
    for kind in ("high availability", "pipes", "group", "spark ddl", "spark upkeep", "spark many"):
        found = next(one for one in results if one["kind"] == kind) | {"wrong": [f"{kind} has lost a change"]}
        write_result(tmp_path / "results", found)

        assert f"{kind} has lost a change" in page([found])
    assert (tmp_path / "results").read_text().count("\n") == 6
