"""The pages of targets: what they promise is what the targets declare and the suite shows, all have one form, their code runs,
and the examples do what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal import targets
from canal.testing import FakeBinlog, target_suite
from tests.programs.target_pages import SHOWN, pages
from tests.support.documents import ROOT, decorators

DOCS = ROOT / "docs"
PAGES = sorted({one.page for one in SHOWN})
FORM = ["Install", "Ten lines", "Options", "Guarantee", "What each failure does"]
_CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
#: Those whose ten lines need no server.
FILES = ("sqlite", "duckdb", "delta", "iceberg", "parquet", "jsonlines")


def test_the_pages_say_what_the_targets_declare() -> None:
    for path, text in pages():
        assert path.read_text("utf-8") == text, f"{path.name}: python -m tests.programs.target_pages"
    assert {one.name for one in SHOWN} == {name for name in targets.__all__ if name.endswith("Target") and name != "Target"}


def test_each_was_put_through_all_cases_of_the_suite() -> None:
    for one in SHOWN:
        marks = decorators("tests/targets/test_targets.py", one.test)
        assert "pytest.mark.parametrize('case', target_suite.CASES)" in marks, one.test


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_have_one_form(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    target = next(one.target for one in SHOWN if one.page == page)

    assert text.startswith(f"# {type(target).__name__}\n")
    assert re.findall(r"^## (.*)", text, re.MULTILINE)[:5] == FORM
    parts = dict(zip(FORM, re.split(r"^## .*\n", text, flags=re.MULTILINE)[1:]))
    options = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", parts["Options"], re.MULTILINE))))
    assert options == {field.alias for field in attrs.fields(type(target)) if field.init}
    assert len(parts["What each failure does"].splitlines()) > 5


@pytest.mark.parametrize("page", PAGES)
def test_the_ten_lines_run(page: str, tmp_path: Path, fake_binlog: FakeBinlog, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = _CODE.findall((DOCS / page).read_text("utf-8"))
    orders = fake_binlog.table("shop", "orders", "id INT PRIMARY KEY")
    subscribe, run, ran = canal.Instance.subscribe, canal.Pipe.run, []

    def subscribed(instance: canal.Instance) -> None:
        subscribe(instance)
        orders.insert({"id": 1})
        fake_binlog.end()

    def shown(pipe: canal.Pipe) -> None:
        if Path(page).stem in FILES:
            run(pipe)
            assert pipe.status().changes == 1
        ran.append(pipe)

    monkeypatch.setattr(canal, "MySQLSource", lambda **options: fake_binlog)
    monkeypatch.setattr(canal.Instance, "subscribe", subscribed)
    monkeypatch.setattr(canal.Pipe, "run", shown)
    exec(compile(code.replace("/var/lib/app", str(tmp_path)), page, "exec"), {})

    assert len(code.strip().splitlines()) <= 10
    assert len(ran) == 1


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, id=f"{page}-{number}")
        for page in (
            "targets.md",
            "targets/rules.md",
            "targets/canal-mq.md",
            "targets/go-mysql-transfer.md",
            "targets/your-own.md",
        )
        for number, code in enumerate(_CODE.findall((DOCS / page).read_text("utf-8")))
    ],
)
def test_other_code_runs(code: str, tmp_path: Path, fake_binlog: FakeBinlog) -> None:
    code = code.replace("/var/lib/app", str(tmp_path))
    fake_binlog.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": 1})
    fake_binlog.end()
    own = runpy.run_path(str(ROOT / "examples/own_target.py"))

    class MyTarget:
        def __new__(cls) -> Any:
            made = own["DictTarget"](tmp_path / "tables")
            made.rows = lambda table: list(own["DictWork"](made.path, "").content().get(table, {}).values())
            return made

    given = {"config": canal.InstanceConfig(destination="shop", source=fake_binlog, start="earliest"), "MyTarget": MyTarget}
    exec(compile(code, "targets", "exec"), given)


def test_a_target_of_ones_own_has_less_than_60_lines_and_stands_the_suite(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (ROOT / "examples/own_target.py").read_text("utf-8").partition('if __name__ == "__main__"')[0].splitlines()
    assert len(lines) < 60

    runpy.run_path(str(ROOT / "examples/own_target.py"), run_name="__main__")

    assert capsys.readouterr().out.split() == [word for case in target_suite.CASES for word in ("ok", case)]


def test_the_example_writes_each_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples/pipe_to_sqlite.py"), run_name="__main__")

    assert capsys.readouterr().out.splitlines() == [
        "first life: 4 changes, exactly once",
        "second life: 0 changes, exactly once",
        "[(2, 'B…', '4.50')]",
    ]
