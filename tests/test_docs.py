"""The documents: what they name is there, their code runs as it stands, and the list of traps is whole."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import prometheus_client
import pytest

import canal
from canal.testing import FakeBinlog
from tests.support.documents import ROOT, functions

#: tests/spark/test_document.py runs the code of docs/spark, tests/targets/test_document.py that of the pages of targets.
ELSEWHERE = (
    ROOT / "docs/targets.md",
    *sorted(path for room in ("spark", "targets") for path in (ROOT / "docs" / room).glob("*.md")),
)
DOCUMENTS = [ROOT / "README.md", *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path not in ELSEWHERE)]
#: A block of Python, and the output that is shown for it.
_BLOCK = re.compile(r"```python\n(.*?)```(?:\n\nIt prints:\n\n```text\n(.*?)```)?", re.DOTALL)
TRAPS = range(1, 87)
#: A test file, or one test in it.
_PROOF = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")
_NUMBERS = re.compile(r"\bT(\d+)\b(?: to T(\d+)\b)?")


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


def test_a_promise_that_a_nightly_file_proves_says_so() -> None:
    mark = "\npytestmark = pytest.mark.nightly"
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if mark in path.read_text("utf-8")]
    nightly = {str(path.relative_to(ROOT)) for path in files}
    lines = (ROOT / "docs/guarantees.md").read_text("utf-8").splitlines()
    named = {line: set(re.findall(r"`(tests/[\w/]+\.py)`", line)) for line in lines}
    silent = [line for line in lines if nightly & named[line] and "`make test-all`" not in line]

    assert silent == []


def test_the_list_of_traps_is_whole() -> None:
    assert list(rows()) == list(TRAPS)


def test_each_trap_is_named_by_a_test_of_its_row() -> None:
    unnamed = []
    for trap, row in rows().items():
        texts = [functions(path)[name] + functions(path)[""] for path, name in _PROOF.findall(row)]
        if trap not in numbers("\n".join(texts)) and "not proved yet" not in row:
            unnamed.append(row)

    assert unnamed == []


def test_every_file_that_is_named_is_there() -> None:
    named = re.compile(r"\]\((?!http)([^)#]+)|`((?:docs|examples|tests|canal|benchmarks)/[\w./-]+\.\w+)`")
    missing = []
    for path in (*DOCUMENTS, *ELSEWHERE):
        for link, name in named.findall(path.read_text("utf-8")):
            if not (path.parent / link if link else ROOT / name).exists():
                missing.append(f"{path.name}: {link or name}")
    assert missing == []


@pytest.mark.nightly
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Such as of a link that leads nowhere, a page that is not in the navigation, an object that is not there."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )

    assert (built.returncode, [line for line in built.stderr.splitlines() if "WARNING" in line]) == (0, [])
    assert "get_without_ack" in (tmp_path / "reference/instance.html").read_text("utf-8")


def test_the_pictures_are_what_their_script_draws() -> None:
    drawn = runpy.run_path(str(ROOT / "docs/_pictures.py"))
    for name, picture in drawn["PICTURES"].items():
        text = (ROOT / f"docs/pictures/{name}.svg").read_text("utf-8")
        assert text == drawn["draw"](*picture), "run python docs/_pictures.py"
        ElementTree.fromstring(text)


def test_the_recordings_show_what_the_commands_show_now() -> None:
    """Their texts: where each stands in the picture is up to the version of rich."""
    for name, draw in runpy.run_path(str(ROOT / "docs/_recordings.py"))["RECORDINGS"].items():
        kept = (ROOT / f"docs/pictures/{name}.svg").read_text("utf-8")
        assert not re.search(r"url\(['\"]?http", kept), "a picture loads nothing"
        assert _texts(kept) == _texts(draw()), "run python docs/_recordings.py"


def _texts(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def code_blocks() -> list[Any]:
    found = []
    for path in DOCUMENTS:
        for number, (code, output) in enumerate(_BLOCK.findall(path.read_text("utf-8"))):
            if "spark" not in code and not output:
                found.append(pytest.param(path, code, id=f"{path.stem}-{number}"))
    return found


def programs() -> list[Any]:
    shown = {path: [block for block in _BLOCK.findall(path.read_text("utf-8")) if block[1]] for path in DOCUMENTS}
    return [pytest.param(blocks, id=path.stem) for path, blocks in shown.items() if blocks]


@pytest.mark.parametrize("blocks", programs())
def test_the_programs_of_a_document_print_what_it_shows(
    blocks: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other in one directory: what a program leaves there the next one finds."""
    monkeypatch.chdir(tmp_path)
    for code, output in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "program", "exec"), {"__name__": "__main__"})
        assert printed.getvalue() == output


def texts_of_the_code() -> set[str]:
    """Every text in canal/, a NUL for each value that is put into it."""
    found = set()
    for path in (ROOT / "canal").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.add("".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def has_in_order(text: str, parts: list[str]) -> bool:
    at = 0
    for part in parts:
        at = text.find(part, at) + len(part)
        if at < len(part):
            return False
    return True


def test_every_message_of_the_troubleshooting_is_in_the_code() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text("utf-8").partition("## At the start")[2]
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    texts = texts_of_the_code()

    assert len(messages) > 25
    assert [one for one in messages if not any(has_in_order(text, one.split("…")) for text in texts)] == []


class Enough(Exception):
    """A loop of a document has shown what it shows."""


@pytest.mark.parametrize(("path", "code"), code_blocks())
def test_the_code_of_the_documents_runs(
    path: Path, code: str, tmp_path: Path, fake_binlog: FakeBinlog, canal_instance: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it stands, but for the address and the directory; what it takes for given is given."""
    customers = fake_binlog.table("shop", "customers", "id INT PRIMARY KEY")
    subscribe, handler = canal.Instance.subscribe, signal.getsignal(signal.SIGTERM)
    printed: list[tuple[Any, ...]] = []

    def subscribed(instance: canal.Instance, *arguments: Any, **options: Any) -> None:
        subscribe(instance, *arguments, **options)
        customers.insert({"id": 1})

    def show(*values: Any) -> None:
        printed.append(values)
        raise Enough

    given: dict[str, Any] = {
        "__name__": "__main__",
        "canal": canal,
        "FakeBinlog": FakeBinlog,
        "signal": signal,
        "sys": sys,
        "print": show,
        "source": fake_binlog,
        "instance": canal_instance(FakeBinlog()),
        "server": canal.Server(),
    }
    monkeypatch.setattr("canal.Instance.switch", lambda self: True)
    monkeypatch.setattr("canal.Instance.subscribe", subscribed)
    monkeypatch.setattr("prometheus_client.REGISTRY", prometheus_client.CollectorRegistry())
    monkeypatch.setattr("prometheus_client.start_http_server", lambda port: None)
    try:
        with fake_binlog.serve(user="canal", password="...") as server:
            monkeypatch.setenv("ORDERS_SOURCE", f"mysql://canal:...@{server.host}:{server.port}/")
            monkeypatch.setenv("ORDERS_CURSORS", str(tmp_path))
            code = code.replace("port=3306", f"port={server.port}").replace("127.0.0.1:3306", f"{server.host}:{server.port}")
            code = code.replace("/var/lib/app", str(tmp_path))
            exec(compile(code, path.name, "exec"), given)
        monkeypatch.setattr("canal.Instance.subscribe", subscribe)
        for name in [name for name in given if name.startswith("test_")]:
            given[name](fake_binlog, canal_instance)
    except Enough:
        shown = [("customers", "INSERT"), ("shop.customers", "insert")]  # of an entry, of a change
        assert [str(value) for value in printed[0]] in [[*one, "None", "Row(id=1)"] for one in shown]
    finally:
        signal.signal(signal.SIGTERM, handler)


def test_every_step_of_the_walk_is_a_function_that_there_is_and_that_an_earlier_step_calls() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    methods = {
        (node.name, member.name): member
        for path in (ROOT / "canal").rglob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
        for member in node.body
        if isinstance(member, ast.FunctionDef)
    }
    files = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.(?:py|md))`", text))
    ways = re.findall(r"^## The way of an .*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    begun = {("ParserRun", "_stream_once"), ("Instance", "get"), ("Instance", "ack")}  # by a thread and the user

    assert len(ways) == 2
    for way in ways:
        steps = list(dict.fromkeys(re.findall(r"`([A-Z]\w+)\.(\w+)`", way)))
        assert len(steps) > 10
        assert set(steps) <= methods.keys()
        for number, step in enumerate(steps):
            nodes = (node for before in steps[:number] for node in ast.walk(methods[before]))
            called = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            assert step in begun or step[1] in called, f"no step before {'.'.join(step)} calls it"
    assert [name for name in files if not any((ROOT / top / name).is_file() for top in (".", "canal", "docs"))] == []
