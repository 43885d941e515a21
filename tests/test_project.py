"""What surrounds the code agrees: workflows, package metadata, make targets."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted(ROOT.joinpath(".github/workflows").glob("*.yml"))
PROJECT: dict[str, Any] = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text("utf-8"))
#: What CI tests. Not 3.15, which has no release.
TESTED = {"3.11", "3.12", "3.13", "3.14"}


def test_actions_are_pinned_by_digest_and_name_their_version() -> None:
    uses = [line for path in WORKFLOWS for line in re.findall(r"uses: (.*)", path.read_text("utf-8"))]

    assert len(uses) > 10
    assert [line for line in uses if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []
    assert len(set(uses)) == len({line.partition("@")[0] for line in uses}), "one version of each action"


def test_pythons_are_the_same_for_wheels_tests_and_metadata() -> None:
    classifiers = PROJECT["project"]["classifiers"]
    named = {found[1] for one in classifiers if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one))}
    built = {f"3.{found[1]}" for one in PROJECT["tool"]["cibuildwheel"]["build"] if (found := re.match(r"cp3(\d+)-", one))}
    jobs = yaml.safe_load(ROOT.joinpath(".github/workflows/test.yml").read_text("utf-8"))["jobs"]

    assert named == built
    assert set(jobs["without-servers"]["strategy"]["matrix"]["python"]) == TESTED
    assert named > TESTED
    assert PROJECT["project"]["requires-python"] == ">=3.11"
    assert classifiers == sorted(classifiers)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_can_only_read_unless_a_job_says_more(path: Path) -> None:
    assert yaml.safe_load(path.read_text("utf-8"))["permissions"] == {"contents": "read"}


def test_make_targets_in_documents_and_workflows_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", ROOT.joinpath("Makefile").read_text("utf-8"), re.MULTILINE))
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.*"), ROOT / ".ci/run"]
    command = re.compile(r"(?:`|run: |exec |^)make ([a-z-]+)", re.MULTILINE)
    named = {name for path in paths for name in command.findall(path.read_text("utf-8"))}

    assert len(named) > 8
    assert named - targets == set()
