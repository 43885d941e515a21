"""The lanes of `make test` hold every test file once."""

from __future__ import annotations

from tests.programs.lanes import COMPILED, INTERPRETED, ROOT, Lane, apart, lanes_of, run


def test_every_test_file_is_in_one_lane() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        name = str(path.relative_to(ROOT))
        holding = {
            part.paths
            for part in COMPILED.values()
            if part.is_apart
            and is_below(name, part.paths)
            and not is_below(name, [option.removeprefix("--ignore=") for option in apart(part)])
        }
        assert len(holding) == 1, name


def is_below(name: str, paths: tuple[str, ...] | list[str]) -> bool:
    return any(f"{name}/".startswith(f"{path}/") for path in paths)


def test_lanes_name_what_there_is() -> None:
    paths = [*INTERPRETED, *(path for part in COMPILED.values() for path in part.paths)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_all_runs_the_nightly_tests_and_test_does_not() -> None:
    assert all("not nightly" in lane.arguments[1] for lane in lanes_of(False, "0"))
    assert not any("nightly" in lane.arguments[1] for lane in lanes_of(True, "0", ["4.0"]))


def test_a_lane_that_fails_fails_the_run() -> None:
    good, bad = Lane("one that passes", ("--version",), {}), Lane("one that fails", ("--no-such-option",), {})

    assert run([good], 2)
    assert not run([bad, good], 2)
